"""What an application gives becomes an ebXML message, and what each transmission adds to it."""

import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from postroad.msh.ebxml_inbound import ROLE
from postroad.msh.ebxml_outbound import check_ebxml_draft, hop, via_of
from postroad.msh.securing import Unsecurable
from postroad.reliability.order import SequenceNumber, Status
from postroad.wire.ebxml import (
    GUARANTEED,
    ONCE_AND_ONLY_ONCE,
    Acknowledgment,
    AckRequested,
    Error,
    ErrorList,
    Via,
)
from tests.unit.ebxml_world import CPA, NOW, VERSIONS, World, later

ORDER = b"<order/>"
RELIABLE = {"delivery_semantics": "OnceAndOnlyOnce"}
OLDER = ("0.98b", "1.0")

every_version = pytest.mark.parametrize("version", VERSIONS)


def sent(world: World, envelope: bytes, **given: Any) -> bytes:
    where = {"sender_uri": "http://buyer.example/msh", "receiver_uri": "http://seller.example/msh"}
    return hop(envelope, world.dialect, **{**where, "now": NOW, **given})


@every_version
@pytest.mark.req("MS098-8.13.2-01", "MS098-8.4.2-01", "MS098-8.4.6-01", "MS098-8.4.6.2-01")
def test_the_header_is_what_the_p_mode_and_the_application_say(version: str) -> None:
    world = World(version)
    header = world.package(ORDER).message.header
    assert header.cpa_id == CPA
    assert (header.service.value, header.action) == ("urn:example:orders", "NewOrder")
    assert (header.message_id, header.conversation_id) == ("order-1@buyer.example", "c-1")
    assert header.timestamp == NOW
    assert header.ref_to_message_id is None


@every_version
def test_what_is_packaged_is_what_is_read(version: str) -> None:
    world = World(version, ebxml=RELIABLE)
    made = world.package(ORDER, time_to_live=later(3600))
    assert world.read(made) == made.message


@every_version
@pytest.mark.req("MS098-8.13.1-01", "MS098-8.10.7-01", "MS098-7.4-04")
def test_every_payload_is_in_the_manifest(version: str) -> None:
    manifest = World(version).package(ORDER, b"two").message.manifest
    assert manifest is not None
    hrefs = [one.href for one in manifest.references]
    assert hrefs == ["cid:part-1@buyer.example", "cid:part-2@buyer.example"]


@every_version
@pytest.mark.req("MS098-7.4-01", "MS098-7.4-03")
def test_without_payloads_there_is_no_manifest(version: str) -> None:
    world = World(version)
    assert world.package().message.manifest is None
    assert world.receive(world.package()).holds


def test_the_role_of_a_payload_is_told_and_read() -> None:
    world = World()
    payload = replace(world.draft(ORDER).payloads[0], properties=((ROLE, "urn:example:po", None),))
    made = world.package(draft=world.draft(payloads=(payload,)))
    found = world.receive(made)
    assert found.messaging is not None
    assert found.messaging.user_messages[0].part_infos[0].property(ROLE) == "urn:example:po"
    assert made.user_message == found.messaging.user_messages[0]


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.req("MS098-8.4.7-01")
def test_quality_of_service_is_told_where_it_is_not_the_default(version: str) -> None:
    ordered = {**RELIABLE, "message_order": "Guaranteed", "delivery_receipt": "UnSigned"}
    world = World(version, ebxml=ordered)
    header = world.package(ORDER, sequence_number=SequenceNumber(0, Status.RESET)).message.header
    assert header.delivery_semantics == ONCE_AND_ONLY_ONCE
    assert header.message_order_semantics == GUARANTEED
    assert header.delivery_receipt_requested == "UnSigned"
    assert header.sequence_number is not None
    assert (header.sequence_number.value, header.sequence_number.status) == (0, "Reset")


def test_two_point_zero_asks_for_it_by_elements() -> None:
    world = World("2.0", ebxml=RELIABLE)
    message = world.package(ORDER).message
    assert message.header.duplicate_elimination
    assert message.header.delivery_semantics is None
    assert message.ack_requested == (AckRequested(False),)


def test_best_effort_asks_for_nothing() -> None:
    message = World("2.0").package(ORDER).message
    assert not message.header.duplicate_elimination
    assert message.ack_requested == ()


@pytest.mark.parametrize("mode", ["none", "mshSignalsOnly"])
def test_two_point_zero_asks_for_a_synchronous_reply_in_the_message(mode: str) -> None:
    world = World("2.0", ebxml={"sync_reply": mode})
    assert world.package(ORDER).message.sync_reply is (mode != "none")


@every_version
@pytest.mark.req("MS098-8.8-01")
def test_a_p_mode_that_signs_signs_document_and_payloads(version: str) -> None:
    made = World(version, signed=True).package(ORDER)
    assert [one.uri for one in made.references] == ["", "cid:part-1@buyer.example"]
    assert made.references[1].digest_value == hashlib.sha256(ORDER).digest()


def test_without_a_key_nothing_can_be_signed() -> None:
    world = World(signed=True)
    world.expectation.materials.clear()  # type: ignore[attr-defined]
    with pytest.raises(Unsecurable, match="no key to sign with"):
        world.package(ORDER)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"properties": (("a", "b", None),)}, "no message property but"),
        ({"test": True}, "ping the partner"),
        ({"service": "uri:www.ebxml.org/messageService/"}, "the P-Mode has the"),
    ],
)
def test_what_ebxml_cannot_say_is_refused_with_a_sentence(given: dict[str, Any], why: str) -> None:
    world = World("0.98b")
    with pytest.raises(ValueError, match=why):
        check_ebxml_draft(world.draft(**given), world.match, NOW)


def test_a_payload_property_without_a_place_is_refused() -> None:
    world = World()
    payload = replace(world.draft(ORDER).payloads[0], properties=(("color", "red", None),))
    with pytest.raises(ValueError, match="color"):
        world.package(draft=world.draft(payloads=(payload,)))


def test_the_application_names_service_and_action_of_the_p_mode_or_is_refused() -> None:
    world = World()
    draft = world.draft(ORDER, service="urn:example:orders", action="NewOrder")
    assert check_ebxml_draft(draft, world.match, NOW) == []
    for other in ({"service": "urn:example:invoices"}, {"action": "Correct"}):
        with pytest.raises(ValueError, match="the P-Mode has the"):
            world.package(draft=world.draft(ORDER, **other))


def test_a_draft_that_breaks_its_payload_profile_is_told_before_it_is_packaged() -> None:
    info = {
        "service": "urn:example:orders",
        "action": "NewOrder",
        "payload_profile": {"max_size": "1 KiB"},
    }
    world = World(leg={"business_info": info})
    problems = check_ebxml_draft(world.draft(b"x" * 2000), world.match, NOW)
    assert [one.code for one in problems] == ["EBMS:0010"]


@every_version
@pytest.mark.req("RM000-1.3.1.3-01", "MS098-10.3.1.3-04", "MS098-8.13.6-01")
@pytest.mark.req("MS098-8.13.5-01", "MS098-11.5-01")
def test_acknowledgment_and_warnings_ride_on_a_message_of_the_application(version: str) -> None:
    world = World(version)
    draft = world.draft(ORDER, ref_to_message_id="request-1@seller.example")
    ref = "request-1@seller.example" if version == "2.0" else None
    acknowledgment = Acknowledgment(timestamp=NOW, ref_to_message_id=ref)
    context = world.dialect.error_code_context
    warnings = ErrorList((Error(error_code="Unknown", severity="Warning", code_context=context),))
    message = world.read(
        world.package(draft=draft, acknowledgment=acknowledgment, warnings=warnings)
    )
    assert message.acknowledged == "request-1@seller.example"
    assert message.error_list is not None
    assert message.error_list.highest_severity == "Warning"
    assert message.header.service.value == "urn:example:orders"
    assert message.header.action == "NewOrder"


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.req("MS098-8.13.3-02")
def test_each_transmission_has_its_trace_header_and_its_via(version: str) -> None:
    world = World(version, ebxml={**RELIABLE, "ack_requested": "UnSigned"})
    made = world.package(ORDER)
    first = sent(world, made.envelope, via=via_of(world.match.leg), sequence_number=7)
    message = world.read(made, first)
    (trace,) = message.trace
    assert trace.sender_uri == "http://buyer.example/msh"
    assert trace.receiver_uri == "http://seller.example/msh"
    assert trace.sequence_number == 7
    assert message.via == Via(ack_requested="UnSigned")


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.req("MS098-8.13.8-01")
def test_a_relay_adds_its_trace_header_and_takes_the_via_away(version: str) -> None:
    world = World(version)
    made = world.package(ORDER)
    first = sent(world, made.envelope, via=Via(ack_requested="UnSigned"))
    second = sent(world, first, sender_uri="http://relay.example/msh")
    message = world.read(made, second)
    assert [one.sender_uri for one in message.trace] == [
        "http://buyer.example/msh",
        "http://relay.example/msh",
    ]
    assert message.via is None


def test_two_point_zero_has_neither_trace_nor_via() -> None:
    world = World("2.0", ebxml={"ack_requested": "UnSigned"})
    made = world.package(ORDER)
    assert sent(world, made.envelope) == made.envelope
    assert via_of(world.match.leg) is None


@pytest.mark.parametrize(
    ("own", "via"),
    [
        ({}, None),
        ({"ack_requested": "UnSigned"}, Via(ack_requested="UnSigned")),
        ({"sync_reply": "mshSignalsOnly"}, Via(sync_reply=True)),
        ({"via_cpa_id": "urn:example:hop"}, Via(cpa_id="urn:example:hop")),
    ],
)
def test_via_says_what_the_next_msh_must_know(own: dict[str, Any], via: Via | None) -> None:
    assert via_of(World("0.98b", ebxml=own).match.leg) == via
