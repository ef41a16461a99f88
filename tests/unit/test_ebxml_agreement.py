"""P-Modes that speak ebXML: what they say, which messages they take, and the rules they keep."""

from datetime import UTC, datetime, timedelta

import pytest

from postroad.agreement.breach import Level
from postroad.agreement.ebxml import (
    acknowledgment,
    addresses,
    cpa_terms,
    order_scope,
    speaks,
    time_to_live,
)
from postroad.agreement.loading import Problem, load_pmodes
from postroad.agreement.matching import PModes, header
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.retrying import retry_of
from postroad.reliability.ebxml_terms import EbxmlError, OrderSemantics, SyncReplyMode, agree
from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    Party,
    PartyId,
    Service,
    UserMessage,
)
from postroad.wire.errors import EbmsError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HEAD = "id: p\nagreement: urn:cpa:1\ninitiator: {party: urn:acme}\nresponder: {party: urn:globex}\n"
"""Four lines; the leg begins in line 6."""
BUSINESS = "business_info: {service: urn:orders, action: Order}\n"
ADDRESS = "protocol: {address: https://globex.example/msh}\n"
BACK = "security: {send_receipt: {reply_to: https://acme.example/msh}}\n"
ONCE = "delivery_semantics: OnceAndOnlyOnce"


def text(leg: str, head: str = HEAD) -> str:
    return head + "legs:\n  - " + leg.rstrip("\n").replace("\n", "\n    ") + "\n"


def written(ebxml: str, more: str = "") -> str:
    return text(f"ebxml: {{{ebxml}}}\n{BUSINESS}{more}")


def problems(source: str) -> list[Problem]:
    return list(load_pmodes(source, "p.yaml").problems)


def breach(source: str, level: Level = Level.ERROR) -> tuple[int, str]:
    found = problems(source)
    assert len(found) == 1, [str(problem) for problem in found]
    assert found[0].level is level
    return found[0].line, found[0].message


def pmode(source: str) -> PMode:
    result = load_pmodes(source, "p.yaml")
    assert result.ok, [str(problem) for problem in result.errors]
    return result.pmodes[0]


def leg(ebxml: str, more: str = "") -> Leg:
    return pmode(written(ebxml, more)).legs[0]


def message(
    *,
    sender: str = "urn:acme",
    receiver: str = "urn:globex",
    service: str = "urn:orders",
    action: str = "Order",
    cpa: str = "urn:cpa:1",
) -> UserMessage:
    return UserMessage(
        message_info=MessageInfo(NOW, "m@acme.example"),
        from_party=Party((PartyId(sender),), ""),
        to_party=Party((PartyId(receiver),), ""),
        collaboration_info=CollaborationInfo(Service(service), action, "c", AgreementRef(cpa)),
    )


# What a leg says


def test_a_leg_with_ebxml_speaks_its_version() -> None:
    assert speaks(leg("version: 0.98b")) == "0.98b"
    assert speaks(leg("version: 1.0")) == "1.0"
    assert speaks(leg("lenient: true")) == "2.0"
    assert speaks(Leg()) is None


def test_a_cpa_id_is_any_text_and_in_older_versions_better_a_uri() -> None:
    source = written("version: 2.0", BACK).replace("urn:cpa:1", "cpa-1")
    assert problems(source) == []
    [problem] = problems(source.replace("version: 2.0", "version: 1.0"))
    assert (problem.level, problem.message) == (
        Level.WARNING,
        "PMode.Agreement: CPAId should be a URI, not 'cpa-1'",
    )


@pytest.mark.req("RM000-1.2-04", "MS098-10.2.2-01")
def test_the_terms_of_a_leg_are_those_of_the_specification() -> None:
    parameters = "{max_retries: 3, timeout: PT20S, period: PT40S, persist_duration: P1D}"
    found = leg(
        f"version: 0.98b, {ONCE}, message_order: Guaranteed, sync_reply: none, hops: 1, "
        "msh_time_accuracy: '00:30', transports: mailto:msh@globex.example",
        f"{ADDRESS}reception_awareness: {{retry: {{parameters: {parameters}}}}}",
    )
    terms = agree(cpa_terms(found), {}, timestamp=NOW)
    assert terms.is_reliable
    assert terms.message_order_semantics is OrderSemantics.GUARANTEED
    assert terms.sync_reply_mode is SyncReplyMode.NONE
    assert (terms.timeout, terms.retries) == (timedelta(seconds=20), 3)
    assert (terms.retry_interval, terms.persist_duration) == (
        timedelta(seconds=40),
        timedelta(days=1),
    )
    assert terms.msh_time_accuracy == timedelta(seconds=30)
    assert (terms.protocols, terms.hops) == (("HTTP", "SMTP"), 1)


def test_one_address_is_no_choice_of_protocols() -> None:
    assert "protocols" not in cpa_terms(leg("version: 0.98b", ADDRESS))


def test_where_a_leg_is_silent_the_header_counts() -> None:
    silent = cpa_terms(leg("version: 0.98b"))
    assert agree(silent, {"deliverySemantics": "OnceAndOnlyOnce"}, timestamp=NOW).is_reliable


@pytest.mark.req("RM000-1.2-01")
def test_where_a_leg_speaks_the_header_says_the_same() -> None:
    said = cpa_terms(leg("version: 0.98b, delivery_semantics: BestEffort"))
    with pytest.raises(EbxmlError, match="Inconsistent"):
        agree(said, {"deliverySemantics": "OnceAndOnlyOnce"}, timestamp=NOW)


def test_an_as4_leg_has_no_ebxml_terms() -> None:
    assert cpa_terms(Leg()) == {}


@pytest.mark.req("MS098-10.2.1-06")
def test_only_once_and_only_once_is_sent_again() -> None:
    assert retry_of(leg("version: 0.98b")) is None
    policy = retry_of(leg(f"version: 0.98b, {ONCE}"))
    assert policy is not None
    assert (policy.retries, policy.timeout, policy.suspend) == (10, timedelta(minutes=1), False)


def test_each_msh_on_the_way_gives_the_answer_a_timeout_more() -> None:
    policy = retry_of(leg(f"version: 0.98b, {ONCE}, hops: 2"))
    assert policy is not None
    assert (policy.timeout, policy.interval) == (timedelta(minutes=3), timedelta(minutes=1))
    assert cpa_terms(leg(f"version: 0.98b, {ONCE}, hops: 2"))["timeout"] == "PT1M"


def test_draft_001_suspends_unless_it_is_told_to_give_up() -> None:
    suspending = retry_of(leg(f"version: 0.98b, {ONCE}, profile: rm001"))
    assert suspending is not None
    assert suspending.suspend
    told = "reception_awareness: {retry: {parameters: {then: give_up}}}"
    giving_up = retry_of(leg(f"version: 0.98b, {ONCE}, profile: rm001", told))
    assert giving_up is not None
    assert not giving_up.suspend


def test_a_relay_that_says_nothing_is_ready_to_send_again() -> None:
    source = text(f"ebxml: {{version: 0.98b, relay: true}}\n{ADDRESS}", "id: p\n")
    relay = load_pmodes(source, "p.yaml").pmodes[0].legs[0]
    assert retry_of(relay) is not None


def test_guaranteed_order_is_that_of_the_conversation() -> None:
    assert order_scope(leg(f"version: 0.98b, {ONCE}, message_order: Guaranteed")) == "conversation"
    assert order_scope(leg(f"version: 0.98b, {ONCE}")) is None
    aware = "security: {send_receipt: true}\nreception_awareness: {in_order: pmode}"
    assert order_scope(pmode(text(aware, HEAD.replace("urn:cpa:1", "urn:a"))).legs[0]) == "pmode"


def test_addresses_come_in_their_order() -> None:
    found = leg("version: 2.0, transports: ['http://b.example', 'mailto:c@d.example']", ADDRESS)
    assert addresses(found) == (
        "https://globex.example/msh",
        "http://b.example",
        "mailto:c@d.example",
    )


def test_reliable_messages_of_2_0_always_ask_for_an_acknowledgment() -> None:
    assert acknowledgment(leg(ONCE, BACK)) == "UnSigned"
    assert acknowledgment(leg("version: 2.0")) == "None"
    assert acknowledgment(leg(f"version: 0.98b, {ONCE}")) == "None"
    assert acknowledgment(leg("version: 0.98b, ack_requested: unsigned")) == "UnSigned"


def test_time_to_live_holds_for_best_effort_too() -> None:
    told = "reception_awareness: {retry: {parameters: {time_to_live: PT1H}}}"
    assert time_to_live(leg("version: 0.98b", told)) == timedelta(hours=1)
    assert time_to_live(leg("version: 0.98b")) is None


def test_an_ebxml_header_has_no_defaults_of_as4() -> None:
    found = header(pmode(written("version: 0.98b")), 1)
    assert (found.from_party.role, found.to_party.role) == ("", "")
    assert (found.service, found.action) == (Service("urn:orders"), "Order")
    assert found.agreement_ref == AgreementRef("urn:cpa:1")


# Which messages it takes


def pmodes(*sources: str) -> PModes:
    return PModes([pmode(source) for source in sources])


def test_a_pmode_takes_messages_of_its_own_tongue_only() -> None:
    ebxml = pmodes(written("version: 0.98b"))
    assert ebxml.match(message(), ebxml="0.98b").pmode.id == "p"
    for other in (None, "1.0", "2.0"):
        with pytest.raises(EbmsError, match="no P-Mode is for"):
            ebxml.match(message(), ebxml=other)
    as4 = PModes([PMode.model_validate({"id": "a", "legs": [{}]})])
    assert as4.match(message()).pmode.id == "a"
    with pytest.raises(EbmsError, match=r"no P-Mode is for ebXML 2\.0"):
        as4.match(message(), ebxml="2.0")


def test_a_match_of_one_tongue_is_not_remembered_for_another() -> None:
    both = PModes(
        [
            pmode(written("version: 0.98b")),
            PMode.model_validate({"id": "a", "legs": [{}]}),
        ]
    )
    assert both.match(message()).pmode.id == "a"
    assert both.match(message(), ebxml="0.98b").pmode.id == "p"
    assert both.match(message()).pmode.id == "a"


def test_what_differs_is_told_of_the_nearest_pmode_of_the_same_tongue() -> None:
    found = pmodes(written("version: 0.98b"))
    with pytest.raises(EbmsError, match="Action is 'Cancel', not 'Order'"):
        found.match(message(action="Cancel"), ebxml="0.98b")


def test_a_signal_matches_by_parties_and_cpa_alone() -> None:
    found = pmodes(written("version: 0.98b"))
    service = "uri:www.ebxml.org/messageService/"
    ping = message(service=service, action="Ping")
    with pytest.raises(EbmsError):
        found.match(ping, ebxml="0.98b")
    match = found.match(ping, ebxml="0.98b", signal=True)
    assert (match.pmode.id, match.against) == ("p", False)
    with pytest.raises(EbmsError, match="AgreementRef is 'cpa-2'"):
        found.match(message(service=service, cpa="cpa-2"), ebxml="0.98b", signal=True)
    with pytest.raises(EbmsError, match="From PartyId"):
        found.match(message(sender="urn:stranger"), ebxml="0.98b", signal=True)


def test_a_signal_of_the_receiver_goes_against_the_leg() -> None:
    found = pmodes(written("version: 0.98b"))
    back = message(sender="urn:globex", receiver="urn:acme", action="Acknowledgment")
    assert found.match(back, ebxml="0.98b", signal=True).against
    with pytest.raises(EbmsError):
        found.match(back, ebxml="0.98b")


def test_a_leg_of_the_signals_own_direction_is_preferred() -> None:
    other = written("version: 0.98b").replace("id: p", "id: q")
    other = other.replace("urn:acme", "urn:x").replace("urn:globex", "urn:acme")
    found = pmodes(written("version: 0.98b"), other.replace("urn:x", "urn:globex"))
    back = message(sender="urn:globex", receiver="urn:acme", action="Acknowledgment")
    match = found.match(back, ebxml="0.98b", signal=True)
    assert (match.pmode.id, match.against) == ("q", False)


def test_a_relay_takes_what_its_pmode_leaves_open() -> None:
    source = text(f"ebxml: {{version: 1.0, relay: true}}\n{ADDRESS}", "id: relay\n")
    found = PModes(load_pmodes(source, "p.yaml").pmodes)
    anything = message(sender="urn:x", receiver="urn:y", service="urn:z", action="W", cpa="V")
    assert found.match(anything, ebxml="1.0").pmode.id == "relay"


def test_a_relay_needs_nothing_but_the_next_address() -> None:
    told = "version: 1.0, relay: true, ack_requested: Signed"
    assert problems(text(f"ebxml: {{{told}}}\n{ADDRESS}", "id: relay\n")) == []


def test_two_tongues_for_the_same_messages_are_no_ambiguity() -> None:
    same = written("version: 1.0").replace("id: p", "id: q")
    assert load_pmodes(written("version: 0.98b") + "---\n" + same, "p.yaml").problems == ()


# The rules it keeps


@pytest.mark.parametrize(
    ("ebxml", "more", "line", "said"),
    [
        ("version: 0.98b, message_order: Guaranteed", "", 6, "guarantees order"),
        ("version: 0.98b, profile: rm000", "", 6, "reliable delivery"),
        (f"profile: rm001, {ONCE}", BACK, 6, "needs TraceHeaders"),
        (
            f"version: 0.98b, profile: rm001, {ONCE}, transports: 'http://b.example'",
            ADDRESS,
            6,
            "suspends the receiver",
        ),
        ("version: 0.98b, method: Transport", "", 6, "is not one of 'ebXML'"),
        ("version: 0.98b, via_service: 'urn:x:s'", "", 6, "both or not at all"),
        ("version: 0.98b, via_service: 'urn:x:s', via_action: a", "", 6, "a Via has a CPAId"),
        ("delivery_receipt: UnSigned", "", 6, "has no delivery receipts"),
        (f"ack_requested: None, {ONCE}", BACK, 6, "waits for acknowledgments"),
        ("version: 1.0, ack_requested: Signed", "", 6, "X509.Sign is not true"),
        ("version: 1.0, delivery_receipt: Signed", "", 6, "X509.Sign is not true"),
        (
            "version: 1.0, sync_reply: mshSignalsOnly",
            "protocol: {address: 'mailto:a@b.example'}",
            6,
            "mail has no response",
        ),
        ("version: 1.0, relay: true", "", 6, "address of the next MSH"),
        ("version: 1.0, transports: 'http://b.example'", "", 6, "there is none"),
        ("version: 1.0, ack_after_forward: true", "", 6, "only a relay forwards"),
        ("via_cpa_id: cpa-2", "", 6, "has no Via"),
        ("version: 1.0, reply_to: 'ftp://a.example'", "", 6, "no transport for ftp:"),
        ("version: 1.0", "protocol: {address: 'mailto:nobody'}", 8, "names no mailbox"),
        ("version: 1.0", "protocol: {soap_version: 1.2}", 8, "SOAP 1.1"),
        ("version: 1.0", "payload_service: {compression_type: gzip}", 8, "no place in ebXML"),
        ("version: 1.0", "reception_awareness: {in_order: pmode}", 8, "no place in ebXML"),
        ("version: 1.0", "security: {wss_version: 1.1}", 8, "no place in ebXML"),
        (
            "version: 1.0",
            "security: {x509: {encryption: {encrypt: true}}}",
            8,
            "no place in ebXML",
        ),
        ("version: 1.0", "security: {send_receipt: false}", 8, "ebxml.ack_requested says"),
        (
            f"version: 1.0, {ONCE}",
            "reception_awareness: {retry: false}",
            8,
            "until the acknowledgment comes",
        ),
        (
            f"version: 1.0, {ONCE}",
            "reception_awareness: false",
            8,
            "until the acknowledgment comes",
        ),
        (
            "version: 1.0",
            "protocol: {address: 'mailto:a@b.example', security: {protocol: TLS}}",
            8,
            "all addresses are mail",
        ),
    ],
)
def test_a_rule_that_is_broken_is_told_at_its_line(
    ebxml: str, more: str, line: int, said: str
) -> None:
    found = breach(written(ebxml, more))
    assert found[0] == line
    assert said in found[1]


def test_mpc_and_properties_have_no_place_in_ebxml() -> None:
    info = "business_info: {service: urn:o, action: A, mpc: urn:m, properties: [{name: n}]}"
    found = problems(text(f"ebxml: {{version: 1.0}}\n{info}"))
    assert [problem.message for problem in found] == [
        "PMode[1].BusinessInfo.MPC: it has no place in ebXML messages",
        "PMode[1].BusinessInfo.Properties: it has no place in ebXML messages",
    ]


def test_a_header_needs_cpa_id_service_and_action() -> None:
    source = text("ebxml: {version: 1.0}", HEAD.replace("agreement: urn:cpa:1\n", ""))
    assert [problem.message for problem in problems(source)] == [
        "PMode: ebXML messages carry a CPAId",
        "PMode[1]: ebXML messages carry a Service",
        "PMode[1]: ebXML messages carry an Action",
    ]


def test_a_cpa_id_has_no_type() -> None:
    source = written("version: 1.0").replace("urn:cpa:1", "{value: urn:cpa:1, type: t}")
    assert breach(source) == (2, "PMode.Agreement.type: a CPAId has no type")


@pytest.mark.parametrize(
    ("version", "service"),
    [
        ("0.98b", "uri:www.ebxml.org/messageService/"),
        ("1.0", "uri:www.ebxml.org/messageService"),
        ("2.0", "urn:oasis:names:tc:ebxml-msg:service"),
    ],
)
def test_the_service_of_the_mshs_is_theirs(version: str, service: str) -> None:
    source = written(f"version: {version}").replace("urn:orders", service)
    assert breach(source)[1].endswith("this service belongs to the MSHs themselves")


def test_roles_and_several_party_ids_came_with_later_versions() -> None:
    party = "initiator: {party: [urn:acme, {id: urn:a, type: urn:t}], role: Buyer}"
    source = written("version: 0.98b").replace("initiator: {party: urn:acme}", party)
    assert [problem.message for problem in problems(source)] == [
        "PMode.Initiator.Party[2]: ebXML 0.98b has one PartyId for each party",
        "PMode.Initiator.Role: ebXML 0.98b has no roles",
    ]
    assert len(problems(source.replace("0.98b", "1.0"))) == 1
    assert problems(source.replace("0.98b", "2.0")) == []


def test_ebxml_is_neither_pulled_nor_two_way() -> None:
    pulled = HEAD + "mep_binding: pull\n"
    assert "are pushed" in breach(text(f"ebxml: {{version: 1.0}}\n{BUSINESS}", pulled))[1]


def test_acknowledgments_of_2_0_need_a_way_back() -> None:
    found = breach(written(ONCE), Level.WARNING)
    assert found == (
        6,
        "PMode[1].ebXML: acknowledgments have no way back: SendReceipt.ReplyTo is not set",
    )
    assert problems(written(ONCE, BACK)) == []
    assert problems(written(f"{ONCE}, sync_reply: mshSignalsOnly")) == []


def test_unsigned_acknowledgments_of_signed_messages_are_a_warning() -> None:
    more = "security: {x509: {sign: true}, send_receipt: {reply_to: 'http://a.example'}}"
    told = "PMode[1].ebXML: messages are signed, acknowledgments are not"
    [found] = [one for one in problems(written(ONCE, more)) if one.message.startswith(told)]
    assert found.level is Level.WARNING
    signed = problems(written(f"{ONCE}, ack_requested: Signed", more))
    assert not any(one.message.startswith(told) for one in signed)


def test_retries_without_reliable_delivery_are_told() -> None:
    told = "reception_awareness: {retry: {parameters: {max_retries: 3, time_to_live: PT1H}}}"
    found = breach(written("version: 1.0", told), Level.WARNING)
    assert found[1].endswith("with BestEffort nothing is sent again")
    assert "maxretries" in found[1]


def test_persist_duration_covers_the_retries_over_all_transports() -> None:
    told = "{max_retries: 1, period: PT1M, persist_duration: PT3M}"
    more = f"{ADDRESS}reception_awareness: {{retry: {{parameters: {told}}}}}"
    assert problems(written(f"version: 1.0, {ONCE}", more)) == []
    two = f"version: 1.0, {ONCE}, transports: 'http://b.example'"
    assert "take PT4M" in breach(written(two, more), Level.WARNING)[1]


def test_ids_are_remembered_for_the_retries_over_all_transports() -> None:
    told = "{retry: {parameters: {max_retries: 1, period: PT1M}}, "
    window = "duplicate_detection: {parameters: {check_window: PT3M}}}"
    more = f"{ADDRESS}reception_awareness: {told}{window}"
    assert problems(written(f"version: 1.0, {ONCE}", more)) == []
    two = f"version: 1.0, {ONCE}, transports: 'http://b.example'"
    assert "sends again for PT4M" in breach(written(two, more), Level.WARNING)[1]


@pytest.mark.parametrize("accuracy", ["30", "0:30", "00:60", "00:30:00"])
def test_the_accuracy_of_clocks_is_minutes_and_seconds(accuracy: str) -> None:
    found = breach(written(f"version: 1.0, msh_time_accuracy: '{accuracy}'"))
    assert "is not written as mm:ss" in found[1]


def test_an_unknown_version_is_refused() -> None:
    assert "'3.0' is not one of" in breach(written("version: 3.0"))[1]
