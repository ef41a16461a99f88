"""The profiles beside the common one: four corners, SBDH, dynamic receiver, ENTSOG, Minder."""

import gzip
import re
from typing import Final

import pytest
from lxml import etree

from postroad.api.client import ApiError, Payload, Property
from tests.as4.bench import C2, C3, EIC, EIC_TYPE, NOTHING, Bench, issued
from tests.as4.conftest import ESENS, POLICY
from tests.as4.foreign import Identity, Letter, Part
from tests.as4.reading import (
    EB3,
    Seen,
    check_nonrepudiation,
    decrypted,
    must_be_signed,
    read,
    signed,
)
from tests.pki import authority

XML: Final = b'<order xmlns="urn:example:order"><id>1</id></order>'
CORNERS: Final = [
    Property("originalSender", "urn:example:c1", "urn:example:party-type"),
    Property("finalRecipient", "urn:example:c4", "urn:example:party-type"),
]
AS4: Final = "http://docs.oasis-open.org/ebxml-msg/as4/200902"


def told(properties: list[Property]) -> list[tuple[str, str, str | None]]:
    return [(one.name, one.value, one.type) for one in properties]


def test_as4_4ct_ta01_the_outer_corners_are_named_by_properties(bench: Bench) -> None:
    """AS4_4CT_TA01: originalSender and finalRecipient go along as message properties."""
    sent = bench.c2.send("edelivery", Payload(XML), properties=CORNERS)
    seen = bench.exchange(sent.message_id).seen
    assert seen.properties == told(CORNERS)
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert received.properties == tuple(CORNERS)


def test_as4_4ct_ta02_the_tracking_identifier_is_kept(bench: Bench) -> None:
    """AS4_4CT_TA02: a trackingIdentifier of the first corner reaches the last one unchanged."""
    given = [*CORNERS, Property("trackingIdentifier", "c1-tracks-4711")]
    sent = bench.c2.send("edelivery", Payload(XML), properties=given)
    assert bench.exchange(sent.message_id).seen.properties == told(given)
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert received.properties == tuple(given)


def test_as4_4ct_ta03_from_and_to_are_the_access_points(bench: Bench) -> None:
    """AS4_4CT_TA03: From and To name corners two and three, never the end parties."""
    sent = bench.c2.send("edelivery", Payload(XML), properties=CORNERS)
    seen = bench.exchange(sent.message_id).seen
    parties = seen.texts("//eb:UserMessage/eb:PartyInfo//eb:PartyId")
    assert parties == ["urn:example:c2", "urn:example:c3"]


PARTY_TYPE: Final = "urn:example:party-names"


def from_anyone(message_id: str, name: str, signed_by: Identity) -> Letter:
    """A message whose initiator the receiver has never heard of."""
    return Letter(
        message_id,
        "anchored",
        (Part("order@stranger", XML),),
        sender=name,
        sender_type=PARTY_TYPE,
        signed_by=signed_by,
    )


def assert_not_authenticated(bench: Bench, letter: Letter) -> None:
    answer = bench.post(letter)
    assert answer.status == 200
    assert answer.codes == ["EBMS:0101"]
    assert answer.seen.errors[0]["severity"] == "failure"
    assert not answer.seen.all("//eb:Receipt")
    assert bench.c3.delivered(letter.message_id) is None


def test_as4_dr_ta01_a_certificate_that_chains_to_the_anchor_is_taken(bench: Bench) -> None:
    """AS4_DR_TA01: the certificate chains, has the policy and names the party: NRR."""
    newcomer = bench.stranger("newcomer", POLICY)
    wire = from_anyone("dr-ta01@stranger", "newcomer", newcomer).wire()
    answer = bench.deliver(wire)
    check_nonrepudiation(answer.seen, read(*wire), "dr-ta01@stranger", bench.c3.certificate)
    assert bench.c3.payloads("dr-ta01@stranger") == [XML]
    received = bench.c3.delivered("dr-ta01@stranger")
    assert received is not None
    assert received.from_party == f"{PARTY_TYPE}::newcomer"


@pytest.mark.parametrize("whose", ["another authority's", "its own"])
def test_as4_dr_ta02_a_certificate_that_does_not_chain_is_refused(bench: Bench, whose: str) -> None:
    """AS4_DR_TA02: a certificate that leads to no trust anchor gets an ebMS error."""
    issuer = None if whose == "its own" else authority("Another authority")
    newcomer = issued(issuer, "newcomer", POLICY)
    message_id = f"dr-ta02-{len(whose)}@stranger"
    assert_not_authenticated(bench, from_anyone(message_id, "newcomer", newcomer))


@pytest.mark.parametrize("policies", [(), ("1.3.6.1.4.1.99999.2",)], ids=["none", "another"])
def test_as4_dr_ta03_a_certificate_without_the_policy_is_refused(
    bench: Bench, policies: tuple[str, ...]
) -> None:
    """AS4_DR_TA03: it chains, but lacks the certificate policy that is asked for."""
    newcomer = bench.stranger("newcomer", *policies)
    message_id = f"dr-ta03-{len(policies)}@stranger"
    assert_not_authenticated(bench, from_anyone(message_id, "newcomer", newcomer))


def test_as4_dr_ta04_a_certificate_that_names_another_party_is_refused(bench: Bench) -> None:
    """AS4_DR_TA04: it chains and has the policy, but its subject is not the party of From."""
    newcomer = bench.stranger("newcomer", POLICY)
    assert_not_authenticated(bench, from_anyone("dr-ta04@stranger", "somebody-else", newcomer))


def of_gas(bench: Bench, **more: str) -> Seen:
    """A message by a P-Mode that names an agreement, and neither service, action nor roles."""
    sent = bench.c2.send("agreed", Payload(XML, "application/xml"), **more)
    assert sent.state == "acknowledged"
    assert bench.c3.payloads(sent.message_id) == [XML]
    return bench.exchange(sent.message_id).seen


def test_as4_entsog_ta01_only_the_default_mpc_is_used(bench: Bench) -> None:
    """AS4_ENTSOG_TA01: the mpc attribute is absent, or that of the default channel."""
    assert of_gas(bench).attributes("//eb:UserMessage/@mpc") in ([], [f"{EB3}defaultMPC"])


def test_as4_entsog_ta06_the_action_is_the_default_one(bench: Bench) -> None:
    """AS4_ENTSOG_TA06: without another one, Action is the default of AS4; so is Service here."""
    seen = of_gas(bench)
    assert seen.text("//eb:CollaborationInfo/eb:Action") == f"{AS4}/action"
    assert seen.text("//eb:CollaborationInfo/eb:Service") == f"{AS4}/service"


def test_as4_entsog_ta08_the_roles_are_the_default_ones(bench: Bench) -> None:
    """AS4_ENTSOG_TA08: without another one, the roles are initiator and responder."""
    seen = of_gas(bench)
    assert seen.text("//eb:PartyInfo/eb:From/eb:Role") == f"{EB3}initiator"
    assert seen.text("//eb:PartyInfo/eb:To/eb:Role") == f"{EB3}responder"


def test_as4_entsog_ta09_the_agreement_is_named(bench: Bench) -> None:
    """AS4_ENTSOG_TA09: AgreementRef is there and holds the agreement."""
    seen = of_gas(bench)
    assert seen.text("//eb:CollaborationInfo/eb:AgreementRef") == "http://example.com/a/1"


def test_as4_entsog_ta10_an_empty_conversation_id_is_sent(bench: Bench) -> None:
    """AS4_ENTSOG_TA10: ConversationId is there, and empty because the community says so."""
    seen = of_gas(bench, conversation_id="")
    assert seen.text("//eb:CollaborationInfo/eb:ConversationId") == ""


def test_as4_entsog_ta10_an_empty_conversation_id_is_taken(bench: Bench, partner: Identity) -> None:
    """AS4_ENTSOG_TA10, the receiver's side of it."""
    letter = Letter("ta10@gas", "signed", conversation_id="", signed_by=partner)
    assert not bench.post(letter).codes
    received = bench.c3.delivered("ta10@gas")
    assert received is not None
    assert not received.conversation_id


def of_edigas(bench: Bench, message_id: str) -> Seen:
    """A message by a P-Mode as ENTSOG agrees on them."""
    sent = bench.c2.send(
        "gas",
        Payload(XML, "application/xml"),
        message_id=message_id,
        properties=[Property("EDIGASDocumentType", "01G")],
    )
    assert sent.state == "acknowledged", sent.message.detail
    assert bench.c3.payloads(message_id) == [XML]
    return bench.exchange(message_id).seen


def test_as4_entsog_ta02_parties_have_the_type_of_eic_codes(bench: Bench) -> None:
    """AS4_ENTSOG_TA02: the type of each PartyId is that of EIC codes."""
    types = of_edigas(bench, "entsog-ta02@c2").attributes("//eb:PartyInfo//eb:PartyId/@type")
    assert types == [EIC_TYPE] * 2


def test_as4_entsog_ta03_parties_are_eic_codes(bench: Bench) -> None:
    """AS4_ENTSOG_TA03: each PartyId has the form of an EIC code, and comes unchanged."""
    parties = of_edigas(bench, "entsog-ta03@c2").texts("//eb:PartyInfo//eb:PartyId")
    assert parties == [EIC[one][0]["id"] for one in (C2, C3)]
    assert all(re.fullmatch(r"\d{2}[A-Z][A-Z\d-]{12}[A-Z\d]", one) for one in parties)


def test_as4_entsog_ta04_the_service_has_the_type_of_edigas(bench: Bench) -> None:
    """AS4_ENTSOG_TA04: the type of Service is that of EDIG@S."""
    seen = of_edigas(bench, "entsog-ta04@c2")
    assert seen.attributes("//eb:CollaborationInfo/eb:Service/@type") == [
        "http://edigas.org/service"
    ]


def test_as4_entsog_ta05_the_service_is_one_of_edigas(bench: Bench) -> None:
    """AS4_ENTSOG_TA05: Service is one of A01 to A11."""
    seen = of_edigas(bench, "entsog-ta05@c2")
    assert seen.text("//eb:CollaborationInfo/eb:Service") in {f"A{n:02}" for n in range(1, 12)}


def test_as4_entsog_ta07_the_document_type_is_a_message_property(bench: Bench) -> None:
    """AS4_ENTSOG_TA07: EDIGASDocumentType is there; without it nothing is sent."""
    seen = of_edigas(bench, "entsog-ta07@c2")
    assert seen.properties == [("EDIGASDocumentType", "01G", None)]
    with pytest.raises(ApiError, match="EDIGASDocumentType"):
        bench.c2.send("gas", Payload(XML, "application/xml"), message_id="entsog-ta07-none@c2")
    assert not bench.relay.about("entsog-ta07-none@c2")


def test_as4_entsog_ta11_the_first_part_is_xml(bench: Bench) -> None:
    """AS4_ENTSOG_TA11: MimeType of the first part says XML."""
    seen = of_edigas(bench, "entsog-ta11@c2")
    assert seen.part_properties(seen.content_ids[0])["MimeType"] == "application/xml"


def test_as4_entsog_ta12_a_payload_has_less_than_ten_megabytes(bench: Bench) -> None:
    """AS4_ENTSOG_TA12: a payload just below 10 MB is delivered, a larger one is not sent."""
    largest = b"<a>" + b"x" * (10_000_000 - 7) + b"</a>"
    document = [Property("EDIGASDocumentType", "01G")]
    sent = bench.c2.send("gas", Payload(largest, "application/xml"), properties=document)
    assert sent.state == "acknowledged", sent.message.detail
    assert bench.c3.payloads(sent.message_id) == [largest]
    with pytest.raises(ApiError, match="10 MB"):
        bench.c2.send(
            "gas",
            Payload(largest + b"\n", "application/xml"),
            message_id="entsog-ta12@c2",
            properties=document,
        )
    assert not bench.relay.about("entsog-ta12@c2")


SBDH: Final = b"""<StandardBusinessDocumentHeader
 xmlns="http://www.unece.org/cefact/namespaces/StandardBusinessDocumentHeader">
<HeaderVersion>1.0</HeaderVersion><Manifest><NumberOfItems>2</NumberOfItems>
<ManifestItem><MimeTypeQualifierCode>application/xml</MimeTypeQualifierCode>
<UniformResourceIdentifier>cid:order@c1</UniformResourceIdentifier></ManifestItem>
<ManifestItem><MimeTypeQualifierCode>application/pdf</MimeTypeQualifierCode>
<UniformResourceIdentifier>cid:picture@c1</UniformResourceIdentifier></ManifestItem>
</Manifest></StandardBusinessDocumentHeader>"""


def with_sbdh(bench: Bench, message_id: str) -> Seen:
    """A message whose first payload is the header of its business document."""
    sent = bench.c2.send(
        "edelivery",
        Payload(SBDH, "application/xml", content_id="sbdh@c1"),
        Payload(XML, "application/xml", content_id="order@c1"),
        Payload(b"%PDF-1.4", "application/pdf", content_id="picture@c1"),
        message_id=message_id,
    )
    assert sent.state == "acknowledged", sent.message.detail
    return bench.exchange(message_id).seen


def test_as4_sbdh_ta01_the_business_document_header_is_the_first_part(bench: Bench) -> None:
    """AS4_SBDH_TA01: the first PartInfo refers to the SBDH, and it is delivered first."""
    seen = with_sbdh(bench, "sbdh-ta01@c2")
    assert seen.content_ids[0] == "sbdh@c1"
    assert gzip.decompress(decrypted(seen, bench.c3.key)["sbdh@c1"]) == SBDH
    assert bench.c3.payloads("sbdh-ta01@c2")[0] == SBDH


def test_as4_sbdh_ta02_the_manifest_lists_the_other_parts(bench: Bench) -> None:
    """AS4_SBDH_TA02: what the manifest refers to are the Content-IDs of the other parts."""
    seen = with_sbdh(bench, "sbdh-ta02@c2")
    listed = etree.fromstring(bench.c3.payloads("sbdh-ta02@c2")[0]).xpath(
        "//*[local-name()='UniformResourceIdentifier']/text()"
    )
    assert listed == seen.hrefs[1:]
    received = bench.c3.delivered("sbdh-ta02@c2")
    assert received is not None
    assert listed == [f"cid:{one.content_id}" for one in received.parts[1:]]


MINDER_PAYLOADS: Final = (
    Payload(XML, "application/xml", content_id="xmlpayload@minder"),
    Payload(XML, "application/xml", content_id="xmlpayload2@minder"),
    Payload(bytes(range(256)), "application/octet-stream", content_id="custompayload@minder"),
)


def check_minder_header(seen: Seen, action: str) -> None:
    assert seen.text("//eb:PartyInfo/eb:From/eb:Role") == f"{ESENS}/testdriver"
    assert seen.text("//eb:PartyInfo/eb:To/eb:Role") == f"{ESENS}/sut"
    assert seen.text("//eb:CollaborationInfo/eb:Service") == ESENS
    assert seen.text("//eb:CollaborationInfo/eb:Action") == action
    assert seen.text("//eb:CollaborationInfo/eb:ConversationId") == "conv-1"
    assert seen.properties == told(CORNERS)


@pytest.mark.parametrize("profile", ["SIMPLE_ONEWAY", "ONEWAY_ONLY_SIGN"])
def test_minder_as4_basic_one_way_and_oneway_sign_only(bench: Bench, profile: str) -> None:
    """Minder AS4_basic_one_way and OnewaySignOnly: submit, deliver, notify, as the bench does."""
    message_id = f"{profile}@minder"
    sent = bench.c2.send(
        profile,
        *MINDER_PAYLOADS,
        message_id=message_id,
        conversation_id="conv-1",
        properties=CORNERS,
    )
    exchange = bench.exchange(message_id)
    seen = exchange.seen
    check_minder_header(seen, profile)
    sealed = profile == "SIMPLE_ONEWAY"
    opened = decrypted(seen, bench.c3.key) if sealed else {}
    assert bool(seen.all("//xenc:EncryptedData")) == sealed
    assert signed(seen, opened).keys() >= must_be_signed(seen)
    check_nonrepudiation(exchange.answer.seen, seen, message_id, bench.c3.certificate)
    assert sent.state == "acknowledged"

    received = bench.c3.delivered(message_id)
    assert received is not None
    assert [one.content_id for one in received.parts] == seen.content_ids
    assert bench.c3.payloads(message_id) == [one.content for one in MINDER_PAYLOADS]
    notified = bench.c2.application.told(message_id)
    assert (notified["event"], notified["error_code"]) == ("receipt", None)
    assert bench.c3.application.told(message_id)["event"] == "received"


def test_minder_ping(bench: Bench) -> None:
    """Minder PING: the twin for the test service is acknowledged, and nothing is delivered."""
    sent = bench.c2.send("ping", Payload(XML, "application/xml"), test=True)
    exchange = bench.exchange(sent.message_id)
    check_nonrepudiation(exchange.answer.seen, exchange.seen, sent.message_id, bench.c3.certificate)
    assert sent.state == "acknowledged"
    assert bench.c3.delivered(sent.message_id) is None


def test_minder_an_error_is_notified_to_the_producer(bench: Bench) -> None:
    """Minder's Notify with SignalType Error: the interceptor damages the message on its way."""
    bench.relay.intercept("damaged@minder", request=lambda octets: octets.replace(b"conv-1", b"c"))
    sent = bench.c2.send(
        "SIMPLE_ONEWAY", Payload(XML), message_id="damaged@minder", conversation_id="conv-1"
    )
    assert (sent.state, sent.message.error_code) == ("failed", "EBMS:0101")
    notified = bench.c2.application.told("damaged@minder")
    assert (notified["event"], notified["error_code"]) == ("failed", "EBMS:0101")
    assert notified["detail"]
    assert bench.c3.delivered("damaged@minder") is None


def test_minder_a_null_reply_leaves_the_message_in_doubt(bench: Bench) -> None:
    """Minder's interceptor answers with nothing: no receipt is believed, and the producer told."""
    bench.relay.intercept("null@minder", answer=lambda _: NOTHING)
    sent = bench.c2.send("SIMPLE_ONEWAY", Payload(XML), message_id="null@minder")
    assert (sent.state, sent.message.error_code) == ("in_doubt", "EBMS:0301")
    assert bench.c2.application.told("null@minder")["state"] == "in_doubt"
