"""Which P-Mode a message belongs to, and whether it keeps to it."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.agreement.conformity import PartFacts, check_user_message
from postroad.agreement.matching import Match, PModes, header, match
from postroad.agreement.pmode import PMode
from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    PartInfo,
    Party,
    PartyId,
    Property,
    Service,
    UserMessage,
)
from postroad.wire.errors import EbmsError
from postroad.wire.names import (
    AS4_ACTION,
    AS4_SERVICE,
    DEFAULT_MPC,
    INITIATOR_ROLE,
    RESPONDER_ROLE,
    TEST_ACTION,
    TEST_SERVICE,
)
from tests.changing import replace

ACME = PartyId("acme", "urn:names")
GLOBEX = PartyId("urn:globex")


def message(**changes: Any) -> UserMessage:
    info: dict[str, Any] = {
        "service": Service("orders", "urn:services"),
        "action": "Place",
        "conversation_id": "1",
        "agreement_ref": changes.pop("agreement", None),
    }
    info |= {key: changes.pop(key) for key in ("service", "action") if key in changes}
    made = UserMessage(
        MessageInfo(datetime(2025, 1, 1, tzinfo=UTC), "m1@acme", changes.pop("ref", None)),
        Party(changes.pop("sender", (ACME,)), changes.pop("sender_role", "Buyer")),
        Party(changes.pop("receiver", (GLOBEX,)), changes.pop("receiver_role", "Seller")),
        CollaborationInfo(**info),
    )
    return replace(made, **changes)


def pmode(id: str = "p", leg: dict[str, Any] | None = None, **general: Any) -> PMode:
    return PMode.model_validate({"id": id, "legs": [leg or {}], **general})


FULL = pmode(
    "full",
    {
        "business_info": {
            "service": {"value": "orders", "type": "urn:services"},
            "action": "Place",
            "mpc": "default",
        }
    },
    agreement="urn:agreement",
    initiator={"party": {"id": "acme", "type": "urn:names"}, "role": "Buyer"},
    responder={"party": "urn:globex", "role": "Seller"},
)
FITTING = message(agreement=AgreementRef("urn:agreement"))


def refusal(pmodes: list[PMode], given: UserMessage) -> EbmsError:
    with pytest.raises(EbmsError) as caught:
        match(pmodes, given)
    assert caught.value.code == "EBMS:0010"
    assert caught.value.ref == "m1@acme"
    return caught.value


def test_a_message_that_fits_in_everything_matches() -> None:
    found = match([FULL], FITTING)
    assert found == Match(FULL, FULL.legs[0], 1)


def test_what_is_unset_is_no_constraint() -> None:
    anything = pmode()
    assert match([anything], message()).pmode is anything
    assert match([anything], FITTING).pmode is anything


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"agreement": None}, "AgreementRef is absent, not 'urn:agreement'"),
        ({"agreement": AgreementRef("urn:agreement", "t")}, "AgreementRef is 't::urn:agreement'"),
        ({"sender": (PartyId("acme"),)}, "From PartyId is 'acme', not 'urn:names::acme'"),
        ({"sender": (ACME, GLOBEX)}, "From PartyId is 'urn:globex' + 'urn:names::acme', not"),
        ({"receiver": (PartyId("urn:glob"),)}, "To PartyId is 'urn:glob', not 'urn:globex'"),
        ({"sender_role": "Payer"}, "From Role is 'Payer', not 'Buyer'"),
        ({"receiver_role": "Payee"}, "To Role is 'Payee', not 'Seller'"),
        ({"service": Service("orders")}, "Service is 'orders', not 'urn:services::orders'"),
        ({"action": "Cancel"}, "Action is 'Cancel', not 'Place'"),
        ({"mpc": "urn:mpc"}, "mpc is 'urn:mpc', not '" + DEFAULT_MPC),
    ],
)
def test_what_differs_is_told_with_the_nearest_pmode(changes: dict[str, Any], said: str) -> None:
    far = pmode("far", {"business_info": {"action": "X"}}, responder={"party": "urn:elsewhere"})
    given = message(**({"agreement": AgreementRef("urn:agreement")} | changes))
    error = refusal([far, FULL], given)
    assert "no P-Mode matches; nearest is 'full', leg 1, where" in error.detail
    assert said in error.detail


def test_without_pmodes_nothing_matches() -> None:
    assert refusal([], message()).detail == "no P-Mode is loaded"


def test_ids_are_compared_as_a_set() -> None:
    both = pmode(initiator={"party": ["urn:a", {"id": "b", "type": "t"}]})
    ids = (PartyId("b", "t"), PartyId("urn:a"))
    assert match([both], message(sender=ids)).pmode is both
    assert refusal([both], message(sender=ids[:1]))


def test_a_pmode_id_in_the_message_is_no_constraint_unless_the_pmode_says_so() -> None:
    """Partners name their P-Modes as they like."""
    foreign = message(agreement=AgreementRef("urn:x", pmode="theirs"))
    lax = pmode("ours", agreement="urn:x")
    assert match([lax], foreign).pmode is lax
    strict = pmode("ours", agreement={"value": "urn:x", "match_pmode": True})
    assert "AgreementRef/@pmode is 'theirs', not 'ours'" in refusal([strict], foreign).detail
    for own in (None, "ours"):
        assert match([strict], message(agreement=AgreementRef("urn:x", pmode=own))).pmode is strict


def test_a_pmode_id_in_the_message_chooses_among_equals_only() -> None:
    """It must not lead a message to a P-Mode that asks for less than the one it belongs to."""
    one, two = pmode("one", agreement="urn:x"), pmode("two", agreement="urn:x")
    specific = pmode("specific", {"business_info": {"action": "Place"}}, agreement="urn:x")
    for name, chosen in (("one", one), ("two", two), ("theirs", one)):
        given = message(agreement=AgreementRef("urn:x", pmode=name))
        assert match([one, two], given).pmode is chosen
        assert match([one, two, specific], given).pmode is specific


def test_a_ping_goes_to_the_pmode_that_it_names() -> None:
    one = pmode("one", agreement="urn:x")
    two = pmode("two", {"business_info": {"action": "Place"}}, agreement="urn:x")
    for name, chosen in (("one", one), ("two", two)):
        ping = message(
            service=Service(TEST_SERVICE),
            action=TEST_ACTION,
            agreement=AgreementRef("urn:x", pmode=name),
        )
        assert match([one, two], ping).pmode is chosen


def test_messages_carry_the_pmode_id_only_where_the_pmode_says_so() -> None:
    silent = pmode("p", agreement={"value": "urn:a", "type": "t"})
    assert header(silent, 1).agreement_ref == AgreementRef("urn:a", "t", None)
    told = pmode("p", agreement={"value": "urn:a", "type": "t", "include_pmode": True})
    assert header(told, 1).agreement_ref == AgreementRef("urn:a", "t", "p")
    unit = pmode("p.init", agreement={"value": "urn:a", "include_pmode": False})
    assert header(unit, 1).agreement_ref == AgreementRef("urn:a")


@pytest.mark.req("P2-2.7.2-03")
def test_the_pmode_id_in_a_message_has_no_unit_suffix() -> None:
    for suffix in (".init", ".resp"):
        unit = pmode("hop" + suffix, agreement="urn:agreement")
        agreed = header(unit, 1).agreement_ref
        assert agreed == AgreementRef("urn:agreement", None, "hop")
        assert match([unit], message(agreement=agreed)).pmode is unit
        suffixed = AgreementRef("urn:agreement", None, "hop" + suffix)
        assert refusal([unit], message(agreement=suffixed))


def test_the_most_specific_pmode_wins() -> None:
    anything = pmode("anything")
    action = pmode("action", {"business_info": {"action": "Place"}})
    service = pmode(
        "service", {"business_info": {"service": {"value": "orders", "type": "urn:services"}}}
    )
    partner = pmode("partner", responder={"party": "urn:globex"})
    ranked = [anything, action, service, partner, FULL]
    for count in range(1, len(ranked) + 1):
        for order in (ranked[:count], ranked[:count][::-1]):
            assert match(order, FITTING).pmode is ranked[count - 1]


def test_in_a_pull_the_responder_sends() -> None:
    pulled = pmode(
        mep_binding="pull", initiator={"party": "urn:globex"}, responder={"party": "urn:acme"}
    )
    assert match([pulled], message(sender=(PartyId("urn:acme"),), receiver=(GLOBEX,)))
    assert refusal([pulled], message(sender=(GLOBEX,), receiver=(PartyId("urn:acme"),)))


@pytest.mark.parametrize(
    ("binding", "initiator_sends"),
    [
        ("sync", (True, False)),
        ("pushAndPush", (True, False)),
        ("pushAndPull", (True, False)),
        ("pullAndPush", (False, True)),
    ],
)
def test_the_legs_of_two_way_go_both_ways(binding: str, initiator_sends: tuple[bool, bool]) -> None:
    both = PMode.model_validate(
        {
            "id": "p",
            "mep": "twoWay",
            "mep_binding": binding,
            "initiator": {"party": "urn:i"},
            "responder": {"party": "urn:r"},
            "legs": [{}, {}],
        }
    )
    ids = {True: (PartyId("urn:i"),), False: (PartyId("urn:r"),)}
    first, second = initiator_sends
    request = message(sender=ids[first], receiver=ids[not first])
    reply = message(sender=ids[second], receiver=ids[not second], ref="m0@i")
    assert match([both], request).number == 1
    assert match([both], reply).number == 2
    orphan = message(sender=ids[second], receiver=ids[not second])
    assert "RefToMessageId is absent" in refusal([both], orphan).detail


def test_the_alternate_mpc_matches_too() -> None:
    info = {"mpc": "urn:one", "mpc_alternate": "urn:two"}
    late = pmode(leg={"business_info": info})
    assert match([late], message(mpc="urn:one"))
    assert match([late], message(mpc="urn:two"))
    assert refusal([late], message(mpc="urn:three"))


def test_a_test_message_matches_the_pmodes_of_its_partners() -> None:
    given = message(
        service=Service(TEST_SERVICE), action=TEST_ACTION, agreement=AgreementRef("urn:agreement")
    )
    found = match([FULL], given)
    assert found.pmode is FULL
    assert found.test
    assert not match([FULL], FITTING).test
    stranger = replace(given, from_party=Party((PartyId("urn:x"),), "Buyer"))
    assert refusal([FULL], stranger)
    assert refusal(
        [FULL],
        replace(
            FITTING,
            collaboration_info=message(
                service=Service(TEST_SERVICE), agreement=AgreementRef("urn:agreement")
            ).collaboration_info,
        ),
    )


def test_a_pmode_for_the_test_service_comes_before_others() -> None:
    testing = pmode("t", {"business_info": {"service": TEST_SERVICE, "action": TEST_ACTION}})
    given = message(
        service=Service(TEST_SERVICE), action=TEST_ACTION, agreement=AgreementRef("urn:agreement")
    )
    assert match([FULL, testing], given).pmode is testing


def test_what_is_unset_is_sent_with_the_defaults_of_as4() -> None:
    agreed = header(pmode(), 1)
    assert agreed.service == Service(AS4_SERVICE)
    assert agreed.action == AS4_ACTION
    assert agreed.mpc == DEFAULT_MPC
    assert (agreed.from_party.role, agreed.to_party.role) == (INITIATOR_ROLE, RESPONDER_ROLE)
    assert agreed.agreement_ref is None
    pulled = header(pmode(mep_binding="pull"), 1)
    assert (pulled.from_party.role, pulled.to_party.role) == (RESPONDER_ROLE, INITIATOR_ROLE)


def test_what_a_pmode_sends_it_also_takes() -> None:
    agreed = header(FULL, 1)
    given = message(
        sender=agreed.from_party.party_ids,
        sender_role=agreed.from_party.role,
        receiver=agreed.to_party.party_ids,
        receiver_role=agreed.to_party.role,
        service=agreed.service,
        action=agreed.action,
        agreement=agreed.agreement_ref,
        mpc=agreed.mpc,
    )
    assert match([FULL], given).pmode is FULL


def test_thousands_of_pmodes_are_not_scanned() -> None:
    many = PModes(
        pmode(
            f"p{n}",
            {"business_info": {"service": "urn:s", "action": "A"}},
            initiator={"party": "urn:hub"},
            responder={"party": f"urn:partner:{n}"},
        )
        for n in range(3000)
    )
    given = message(
        service=Service("urn:s"),
        action="A",
        sender=(PartyId("urn:hub"),),
        receiver=(PartyId("urn:partner:1777"),),
    )
    assert [leg.pmode.id for leg in many.candidates(given)] == ["p1777"]
    start = time.perf_counter()
    for _ in range(200):
        assert many.match(given).pmode.id == "p1777"
    assert time.perf_counter() - start < 1


VALUES = st.sampled_from([None, "urn:a", "urn:b"])


@given(st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), max_size=6), st.tuples(*[VALUES] * 4))
def test_the_index_finds_what_a_scan_would(
    rows: list[tuple[str | None, ...]], wanted: tuple[str | None, ...]
) -> None:
    def made(n: int, row: tuple[str | None, ...]) -> PMode:
        service, action, sender, receiver = row
        info = {k: v for k, v in (("service", service), ("action", action)) if v}
        return pmode(
            f"p{n}",
            {"business_info": info},
            initiator={"party": sender} if sender else None,
            responder={"party": receiver} if receiver else None,
        )

    service, action, sender, receiver = (value or "urn:c" for value in wanted)
    given = message(
        service=Service(service),
        action=action,
        sender=(PartyId(sender),),
        receiver=(PartyId(receiver),),
    )
    facts = (service, action, sender, receiver)
    fitting = [
        n
        for n, row in enumerate(rows)
        if all(want in (None, have) for want, have in zip(row, facts, strict=True))
    ]
    pmodes = [made(n, row) for n, row in enumerate(rows)]
    if fitting:
        assert int(match(pmodes, given).pmode.id[1:]) in fitting
    else:
        assert refusal(pmodes, given)


def matched(leg: dict[str, Any], *, test: bool = False) -> Match:
    found = pmode(leg=leg)
    return Match(found, found.legs[0], 1, test)


def said(leg: dict[str, Any], given: UserMessage, *parts: PartFacts, **facts: Any) -> list[str]:
    errors = check_user_message(matched(leg), given, parts, **facts)
    assert all(error.code == "EBMS:0010" and error.location for error in errors)
    return [f"{error.location}: {error.detail}" for error in errors]


def test_a_pmode_without_profile_takes_all() -> None:
    assert said({}, message(), soap_version="1.1", for_next_msh=True) == []


def test_the_soap_version_is_held() -> None:
    leg = {"protocol": {"soap_version": "1.2"}}
    assert said(leg, message(), soap_version="1.2") == []
    assert said(leg, message()) == []
    assert said(leg, message(), soap_version="1.1") == [
        "soap:Envelope: SOAP 1.1 is used, the P-Mode says 1.2"
    ]


@pytest.mark.parametrize("agreed", [True, False])
def test_the_role_of_the_next_msh_is_held(agreed: bool) -> None:
    leg = {"protocol": {"add_actor_or_role_attribute": agreed}}
    assert said(leg, message(), for_next_msh=agreed) == []
    assert len(said(leg, message(), for_next_msh=not agreed)) == 1


def test_required_properties_are_there_and_have_their_type() -> None:
    leg = {
        "business_info": {
            "properties": [
                {"name": "originalSender", "required": True},
                {"name": "count", "type": "xs:int"},
                {"name": "other"},
            ]
        }
    }
    good = (Property("originalSender", "x"), Property("count", "12"), Property("unknown", "y"))
    assert said(leg, message(properties=good)) == []
    bad = said(leg, message(properties=(Property("count", "many"),)))
    assert len(bad) == 2
    assert "'originalSender' is missing" in bad[0]
    assert "'count' is 'many', not of type integer" in bad[1]


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("boolean", "true", "yes"),
        ("decimal", "-1.50", "1,50"),
        ("date", "2025-02-01", "1.2.2025"),
        ("dateTime", "2025-02-01T10:00:00Z", "2025-02-01 10:00"),
        ("anyURI", "urn:a", "a b"),
        ("token", "a b", " a"),
    ],
)
def test_property_types_are_those_of_xml_schema(type_: str, good: str, bad: str) -> None:
    leg = {"business_info": {"properties": [{"name": "p", "type": type_}]}}
    assert said(leg, message(properties=(Property("p", good),))) == []
    assert len(said(leg, message(properties=(Property("p", bad),)))) == 1


def profile(*payloads: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"business_info": {"payload_profile": {"payloads": list(payloads), **more}}}


def with_parts(*hrefs: str | None, **properties: str) -> UserMessage:
    listed = tuple(Property(name, value) for name, value in properties.items())
    return message(part_infos=tuple(PartInfo(href, listed) for href in hrefs))


def test_required_payloads_are_there() -> None:
    leg = profile({"name": "order", "required": True}, {"mime_type": "application/pdf"})
    assert said(leg, with_parts("cid:order")) == []
    assert said(leg, with_parts("#order")) == []
    bad = said(leg, with_parts())
    assert bad == [
        "eb:Messaging/eb:UserMessage/eb:PayloadInfo: "
        "the payload 'order' is missing, which the P-Mode requires"
    ]


def test_a_content_id_is_compared_decoded() -> None:
    assert said(profile({"name": "a b@c", "required": True}), with_parts("cid:a%20b%40c")) == []


def test_payloads_that_were_not_agreed_on_are_told() -> None:
    leg = profile({"mime_type": "application/xml"})
    xml, pdf = PartFacts("cid:1", "text/xml"), PartFacts("cid:2", "application/XML; charset=utf-8")
    bad = said(leg, with_parts("cid:1", "cid:2"), xml, pdf)
    assert bad == [
        "eb:Messaging/eb:UserMessage/eb:PayloadInfo: there are 2 payloads, the P-Mode knows 1",
        "cid:1: the P-Mode knows no such payload",
    ]


def test_a_named_payload_has_its_type() -> None:
    leg = profile({"name": "1", "mime_type": "application/xml"})
    assert said(leg, with_parts("cid:1"), PartFacts("cid:1", "application/pdf")) == [
        "cid:1: its type is 'application/pdf', the P-Mode says 'application/xml'"
    ]
    compressed = with_parts("cid:1", MimeType="application/xml", CompressionType="application/gzip")
    assert said(leg, compressed, PartFacts("cid:1", "application/gzip")) == []


def test_sizes_are_held() -> None:
    leg = profile({"max_size": "10 B"}, {"max_size": "10 B"}, max_size="15 B")
    small = (PartFacts("cid:1", size=8), PartFacts(None, size=7))
    assert said(leg, with_parts("cid:1", None), *small) == []
    large = (PartFacts("cid:1", size=11), PartFacts(None, size=7))
    assert said(leg, with_parts("cid:1", None), *large) == [
        "eb:Messaging/eb:UserMessage/eb:PayloadInfo: the payloads have 18 bytes, more than 15 B",
        "cid:1: it has 11 bytes, more than 10 B",
    ]


def test_compression_is_as_agreed_or_left_out() -> None:
    leg = {"payload_service": {"compression_type": "gzip"}}
    assert said(leg, with_parts("cid:1")) == []
    good = with_parts("cid:1", CompressionType="application/gzip", MimeType="text/xml")
    assert said(leg, good) == []
    bad = said(leg, with_parts("cid:1", CompressionType="application/zip", MimeType="text/xml"))
    assert bad == [
        "cid:1: it is compressed as 'application/zip', the P-Mode says 'application/gzip'"
    ]
    assert len(said({}, with_parts("cid:1", CompressionType="application/gzip"))) == 1


def test_a_test_message_needs_no_payloads_or_properties() -> None:
    leg = profile({"name": "order", "required": True})
    assert check_user_message(matched(leg, test=True), message()) == []
