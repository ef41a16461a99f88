"""What is read of an ebXML message that comes in, believed of it, and held against its CPA."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import PModes
from postroad.msh.ebxml_inbound import HEADER, MANIFEST, SIGNATURE, user_message
from postroad.msh.ebxml_outbound import hop
from postroad.msh.ebxml_services import ping
from postroad.msh.expectation import Expectation, Material
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Lens
from postroad.wire.ebms3 import MIME_TYPE, AgreementRef
from postroad.wire.ebxml import DIALECTS, MS098, Via
from postroad.wire.errors import Severity
from postroad.wire.names import EB2_NEXT_MSH, S11
from tests import pki
from tests.unit.ebxml_world import (
    BUYER,
    CPA,
    MESSAGE_ID,
    NOW,
    SELLER,
    VERSIONS,
    World,
    alone,
    arrived,
    asking,
    codes,
    incoming,
)

ORDER = b"<order number='4711'/>"
RELIABLE = {"delivery_semantics": "OnceAndOnlyOnce"}

every_version = pytest.mark.parametrize("version", VERSIONS)


def changed(world: World, made: Any, before: bytes, after: bytes) -> Any:
    """What the seller finds when something was changed on the way."""
    assert before in made.envelope
    return world.receive(made, made.envelope.replace(before, after))


@every_version
def test_a_message_is_read_into_what_every_message_has(version: str) -> None:
    world = World(version)
    message = user_message(world.read(world.package(ORDER)))
    assert message.message_info.message_id == MESSAGE_ID
    assert message.from_party == BUYER
    assert message.to_party == SELLER
    assert message.collaboration_info.service.value == "urn:example:orders"
    assert message.collaboration_info.action == "NewOrder"
    assert message.collaboration_info.agreement_ref == AgreementRef(CPA)
    assert [one.href for one in message.part_infos] == ["cid:part-1@buyer.example"]


@every_version
@pytest.mark.req("MS098-8.4.2-02")
def test_a_message_of_each_version_holds_under_its_cpa(version: str) -> None:
    world = World(version)
    found = world.receive(world.package(ORDER))
    assert found.problems == []
    assert (found.kind, found.pmode) == ("ebxml_message", "orders")
    assert found.ebxml is not None
    assert found.ebxml.dialect is DIALECTS[version]


def test_the_media_type_of_a_part_is_the_one_that_it_travelled_with() -> None:
    world = World()
    found = world.receive(world.package(ORDER))
    assert found.messaging is not None
    part = found.messaging.user_messages[0].part_infos[0]
    assert part.property(MIME_TYPE) == "application/xml"


def test_payloads_are_opened_with_their_digests() -> None:
    world = World()
    found = world.receive(world.package(ORDER, b"second"))
    first, second = found.payloads[0]
    assert first.sha256 == hashlib.sha256(ORDER).digest()
    assert second.content is not None
    assert b"".join(second.content.chunks()) == b"second"


@every_version
@pytest.mark.req("MS098-8.4.2-09")
def test_an_unknown_cpa_is_not_recognized(version: str) -> None:
    world = World(version)
    found = changed(world, world.package(ORDER), CPA.encode(), b"urn:example:cpa:18")
    wrong = [one for one in found.problems if one.severity is Severity.FAILURE]
    assert [(one.code, one.location) for one in wrong] == [
        ("ValueNotRecognized", f"{HEADER}/eb:CPAId")
    ]


@pytest.mark.req("MS098-8.4.2-08")
def test_what_contradicts_the_cpa_is_inconsistent() -> None:
    world = World()
    found = changed(world, world.package(ORDER), b">NewOrder<", b">OldOrder<")
    assert codes(found) == ["Inconsistent"]


@every_version
@pytest.mark.req("MS098-8.4.2-06", "MS098-8.4.2-08")
def test_a_header_that_is_not_as_reliable_as_the_cpa_is_inconsistent(version: str) -> None:
    world = World(version, ebxml=RELIABLE)
    best_effort = World(version, ebxml={"delivery_semantics": "BestEffort"})
    made = best_effort.package(ORDER)
    if version != "2.0":
        place = b"</eb:MessageData>"
        said = place + b'<eb:QualityOfServiceInfo eb:deliverySemantics="BestEffort"/>'
        found = changed(world, made, place, said)
    else:
        found = world.receive(made)
    assert codes(found) == ["Inconsistent"]
    assert found.ebxml_terms is None


def test_what_header_and_cpa_agree_on_is_known_to_who_receives() -> None:
    world = World("0.98b", ebxml=RELIABLE)
    found = world.receive(world.package(ORDER))
    assert found.ebxml_terms is not None
    assert found.ebxml_terms.is_reliable
    assert found.ebxml_terms.retries == 3


@every_version
@pytest.mark.req("MS098-8.10.7-02")
def test_a_listed_part_that_is_missing_is_a_mime_problem(version: str) -> None:
    world = World(version)
    found = world.look(alone(world.package(ORDER).envelope))
    (wrong,) = found.problems
    assert (wrong.code, wrong.severity) == ("MimeProblem", Severity.FAILURE)
    assert wrong.location == f"{MANIFEST}/eb:Reference[1]/@xlink:href"


@pytest.mark.req("MS098-7.4-04")
def test_a_part_that_the_manifest_does_not_list_is_a_mime_problem() -> None:
    world = World()
    one, two = world.package(ORDER), world.package(ORDER, b"another")
    found = world.look(arrived(two, one.envelope))
    assert codes(found) == ["MimeProblem"]
    assert found.problems[0].location == "cid:part-2@buyer.example"


@pytest.mark.parametrize("receiving", [True, False])
@pytest.mark.req("MS098-8.10.7-03", "MS098-8.10.7-04")
def test_what_lies_outside_of_the_message_is_not_fetched(receiving: bool) -> None:
    """Who receives it refuses it; who only looks is warned."""
    world = World()
    outside = b"http://buyer.example/order.xml"
    envelope = world.package(ORDER).envelope.replace(b"cid:part-1@buyer.example", outside)
    found = world.look(alone(envelope), receiving=receiving)
    (wrong,) = found.problems
    assert wrong.code == "MimeProblem"
    assert wrong.severity is (Severity.FAILURE if receiving else Severity.WARNING)
    assert wrong.location == f"{MANIFEST}/eb:Reference[1]/@xlink:href"
    assert found.payloads[0][0].content is None


@every_version
def test_a_message_that_refers_to_itself_is_inconsistent(version: str) -> None:
    world = World(version)
    made = world.package(draft=world.draft(ref_to_message_id="earlier@buyer.example"))
    itself = made.envelope.replace(b"earlier@buyer.example", MESSAGE_ID.encode())
    found = world.receive(made, itself)
    assert codes(found) == ["Inconsistent"]
    assert found.problems[0].location == f"{HEADER}/eb:MessageData/eb:RefToMessageId"


def test_ebxml_without_a_message_header_gets_a_soap_fault() -> None:
    world = World()
    whole = world.package(ORDER).envelope
    begin, end = whole.index(b"<SOAP-ENV:Header>"), whole.index(b"<SOAP-ENV:Body>")
    found = world.look(alone(whole[:begin] + whole[end:]))
    assert found.kind == "ebxml"
    assert found.soap_fault is not None
    assert found.soap_fault.code == f"{{{S11}}}Client"


@pytest.mark.parametrize("soap", ["http://www.w3.org/2003/05/soap-envelope", "urn:example:soap"])
@pytest.mark.req("MS098-11-03")
def test_another_soap_is_a_version_mismatch(soap: str) -> None:
    envelope = World().package().envelope.replace(S11.encode(), soap.encode())
    found = inspect_message([envelope], Lens(NOW, receiving=True))
    assert found.soap_fault is not None
    assert found.soap_fault.code == f"{{{S11}}}VersionMismatch"
    assert not found.holds


def test_of_an_envelope_alone_nobody_knows_whether_a_part_is_missing() -> None:
    world = World()
    capture = alone(world.package(ORDER).envelope)
    kept = type(capture)(None, None, None, capture.envelope, (), False, ())
    found = world.look(kept, receiving=False)
    assert found.holds
    assert codes(found) == ["MimeProblem"]


@every_version
@pytest.mark.req("MS098-8.8-04", "MS098-8.13.7-01")
def test_a_signed_message_is_verified_and_its_signer_trusted(version: str) -> None:
    world = World(version, signed=True)
    found = world.receive(world.package(ORDER))
    assert found.problems == []
    assert found.verification is not None
    assert found.verification.valid
    assert found.trusted
    assert found.verification.covers_attachment("part-1@buyer.example")


@every_version
def test_what_each_hop_adds_breaks_no_signature(version: str) -> None:
    world = World(version, signed=True)
    made = world.package(ORDER)
    envelope = made.envelope
    for number in range(2):
        envelope = hop(
            envelope,
            world.dialect,
            sender_uri=f"http://{number}.example/msh",
            receiver_uri=f"http://{number + 1}.example/msh",
            now=NOW,
            via=Via(ack_requested="UnSigned"),
        )
    found = world.receive(made, envelope)
    assert found.problems == []
    assert found.trusted


@every_version
def test_a_signed_header_that_was_changed_does_not_hold(version: str) -> None:
    world = World(version, signed=True)
    found = changed(world, world.package(ORDER), b"c-1", b"c-2")
    assert not found.holds
    assert found.verification is not None
    assert found.verification.valid is False


def test_a_signed_payload_that_was_changed_does_not_hold() -> None:
    world = World(signed=True)
    signed, other = world.package(ORDER), world.package(b"<order number='4712'/>")
    assert not world.look(arrived(other, signed.envelope)).holds


def test_the_signature_of_a_stranger_is_not_trusted() -> None:
    world = World(signed=True)
    stranger = pki.issue(pki.authority("Another CA"), "buyer")
    made = world.package(ORDER)
    world.expectation.materials[("orders", 1)] = Material(pins=(stranger.certificate,))  # type: ignore[index]
    found = world.receive(made)
    assert found.trusted is False
    assert not found.holds


@every_version
def test_a_message_that_should_be_signed_and_is_not_is_refused(version: str) -> None:
    found = World(version, signed=True).receive(World(version).package(ORDER))
    (wrong,) = found.problems
    assert (wrong.code, wrong.location) == ("EBMS:0103", SIGNATURE)


def test_an_acknowledgment_that_the_signature_leaves_out_is_not_believed() -> None:
    world = World(signed=True)
    slipped_in = (
        f'<eb:Acknowledgment SOAP-ENV:mustUnderstand="1" eb:version="2.0" '
        f'SOAP-ENV:actor="{EB2_NEXT_MSH}"><eb:Timestamp>2026-06-01T12:00:00Z</eb:Timestamp>'
        "<eb:RefToMessageId>other@seller.example</eb:RefToMessageId></eb:Acknowledgment>"
    ).encode()
    end = b"</SOAP-ENV:Header>"
    found = changed(world, world.package(ORDER), end, slipped_in + end)
    assert found.verification is not None
    assert found.verification.valid
    assert codes(found) == ["SecurityFailure"]


@pytest.mark.req("MS098-8.6.7-01")
def test_the_cpa_in_via_is_that_of_the_hop() -> None:
    world = World("0.98b")
    made = world.package(ORDER)
    other = made.envelope.replace(CPA.encode(), b"urn:example:cpa:of-the-parties")
    envelope = hop(
        other,
        MS098,
        sender_uri="http://relay.example/msh",
        receiver_uri="http://seller.example/msh",
        now=NOW,
        via=Via(cpa_id=CPA),
    )
    assert world.receive(made, other).pmode is None
    assert world.receive(made, envelope).pmode == "orders"


def test_where_a_message_is_delivered_the_cpa_of_the_header_goes_before_that_in_via() -> None:
    """No signature covers Via."""
    world = World("0.98b")
    text = world.yaml.replace("id: orders", "id: hop").replace(CPA, "urn:example:cpa:hop")
    both = (*load_pmodes(world.yaml, "a.yaml").pmodes, *load_pmodes(text, "b.yaml").pmodes)
    made = world.package(ORDER)
    envelope = hop(
        made.envelope,
        MS098,
        sender_uri="http://relay.example/msh",
        receiver_uri="http://seller.example/msh",
        now=NOW,
        via=Via(cpa_id="urn:example:cpa:hop"),
    )
    found = world.look(arrived(made, envelope), expectation=Expectation(PModes(both)))
    assert found.pmode == "orders"
    assert found.ebxml is not None
    assert found.ebxml.header.cpa_id == CPA


@every_version
@pytest.mark.req("MS098-11-01", "MS098-11-03")
def test_a_block_that_must_be_understood_and_is_not_gives_a_soap_fault(version: str) -> None:
    world = World(version)
    block = b'<x:Toll xmlns:x="urn:example:toll" SOAP-ENV:mustUnderstand="1"/></SOAP-ENV:Header>'
    found = changed(world, world.package(ORDER), b"</SOAP-ENV:Header>", block)
    assert found.soap_fault is not None
    assert found.soap_fault.code == f"{{{S11}}}MustUnderstand"
    assert "Toll" in found.soap_fault.reason


@pytest.mark.req("MS098-7.6-01")
def test_a_mime_error_is_answered_as_soap_says() -> None:
    world = World()
    envelope = world.package().envelope
    found = world.look(incoming("text/xml; charset=UTF-16", envelope))
    assert found.soap_fault is not None
    assert found.soap_fault.code == f"{{{S11}}}Client"


@pytest.mark.req("MS098-11-04")
def test_warnings_give_no_soap_fault() -> None:
    world = World("0.98b")
    old = b'eb:version="98.0"'
    found = changed(world, world.package(ORDER), b'eb:version="0.98b"', old)
    assert found.soap_fault is None


@every_version
@pytest.mark.req("MS098-9-02")
def test_a_service_of_the_msh_that_nobody_knows_is_not_understood(version: str) -> None:
    world = World(version)
    asked = ping(world.dialect, **asking())
    found = world.look(alone(asked.envelope.replace(b">Ping<", b">Dance<")))
    assert found.soap_fault is not None
    assert found.soap_fault.code == f"{{{S11}}}MustUnderstand"


@every_version
@pytest.mark.parametrize("backwards", [False, True])
def test_a_ping_belongs_to_the_cpa_of_its_parties_in_either_direction(
    version: str, backwards: bool
) -> None:
    world = World(version)
    turned = {"from_party": SELLER, "to_party": BUYER} if backwards else {}
    asked = ping(world.dialect, **asking(**turned))
    found = world.look(alone(asked.envelope))
    assert (found.kind, found.pmode) == ("ebxml_ping", "orders")
    assert found.problems == []


@every_version
def test_a_signed_ping_of_the_receiver_is_trusted_by_its_certificate_for_answers(
    version: str,
) -> None:
    world = World(version, signed=True)
    turned = asking(from_party=SELLER, to_party=BUYER)
    asked = ping(world.dialect, **turned, signing=world.sellers_signing)
    found = world.look(alone(asked.envelope))
    assert found.trusted
    assert found.problems == []


@every_version
@pytest.mark.parametrize("action", ["MessageError", "StatusRequest", "StatusResponse"])
def test_a_message_that_says_nothing_of_what_its_action_promises_is_refused(
    version: str, action: str
) -> None:
    world = World(version)
    asked = ping(world.dialect, **asking())
    found = world.look(alone(asked.envelope.replace(b">Ping<", f">{action}<".encode())))
    assert f"{HEADER}/eb:Action" in [one.location for one in found.problems]
    assert not found.holds


@pytest.mark.req("MS098-8.4.7.1-03", "MS098-8.4.7.1-05")
def test_a_signed_receipt_is_not_supported_where_nothing_is_signed() -> None:
    world = World("0.98b")
    place = b"</eb:MessageData>"
    asked = place + b'<eb:QualityOfServiceInfo eb:deliveryReceiptRequested="Signed"/>'
    found = changed(world, world.package(ORDER), place, asked)
    assert codes(found) == ["NotSupported"]


@pytest.mark.parametrize("lenient", [True, False])
def test_slips_of_other_products_are_forgiven_unless_the_p_mode_is_strict(lenient: bool) -> None:
    world = World("0.98b", ebxml={"lenient": lenient})
    slip: tuple[bytes, bytes] = (b'eb:version="0.98b"', b'eb:version="98.0"')
    found = changed(world, world.package(ORDER), *slip)
    assert found.holds is lenient


def test_a_message_from_the_future_is_refused() -> None:
    world = World()
    found = changed(world, world.package(ORDER), b">2026-06-01T", b">2027-06-01T")
    assert codes(found) == ["Inconsistent"]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda data: data.replace(b"eb:MessageHeader", b"eb:Header"), id="no header"),
        pytest.param(lambda data: data.replace(b"<eb:From>", b"<eb:From/><eb:X>"), id="not XML"),
    ],
)
def test_what_has_no_readable_header_is_found_to_be_so(broken: Callable[[bytes], bytes]) -> None:
    found = inspect_message([broken(World().package().envelope)], Lens(NOW))
    assert not found.holds
    assert found.ebxml is None
