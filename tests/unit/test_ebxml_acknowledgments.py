"""Acknowledgments of ebXML: how they are written, and which of them are believed."""

from typing import Any

import pytest
from lxml import etree
from msgspec.structs import replace

from postroad.msh.ebxml_answers import SentEbxml, answer_problems, ride, sent_ebxml, write_signal
from postroad.msh.ebxml_faults import fault
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.ebxml_terms import party_name, reliable
from postroad.reliability.ebxml import SERVICE_000, Hop, Profile
from postroad.reliability.ebxml_sending import Word, said
from postroad.wire import names
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import MS098, MS20, kind_of
from postroad.wire.soap_faults import Fault
from tests.unit.ebxml_answering import (
    ANSWER_ID,
    ASKED,
    BUYER_URI,
    OLDER,
    ORDER,
    RELIABLE,
    SELLER_URI,
    SIGNED,
    about,
    acknowledged,
    every_version,
    failure,
    heard,
    signal_about,
    transmitted,
)
from tests.unit.ebxml_world import BUYER, CPA, MESSAGE_ID, NOW, SELLER, World, alone, later

# Acknowledgments


@every_version
@pytest.mark.req(
    "MS098-10.3.1.3-02", "MS098-10.3.1.3-05", "MS098-10.3.1.3-06", "MS098-10.3.1.3-09",
    "MS098-8.4.6.3-04",
)  # fmt: skip
def test_an_acknowledgment_goes_alone_with_the_service_of_the_msh(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, _ = acknowledged(world)
    message = heard(world, answer)
    header = message.header
    assert kind_of(message) == "acknowledgment"
    assert header.service.value == world.dialect.msh_service
    assert header.action == "Acknowledgment"
    assert header.ref_to_message_id == MESSAGE_ID
    assert (header.message_id, header.conversation_id, header.cpa_id) == (ANSWER_ID, "c-1", CPA)
    assert answer is not None
    assert answer.kind == "acknowledgment"


@every_version
@pytest.mark.req("MS098-10.3.1.3-07", "MS098-10.3.1.3-08")
def test_an_acknowledgment_goes_back_from_the_to_party(version: str) -> None:
    world = World(version, ebxml=ASKED)
    header = heard(world, acknowledged(world)[0]).header
    assert (header.from_party, header.to_party) == (SELLER, BUYER)


@every_version
@pytest.mark.req("MS098-10.3.1.3-03", "MS098-8.12.1-01", "MS098-8.12.5-01", "MS098-8.4.7.1-04")
def test_who_asks_gets_the_element_with_the_time_of_receipt(version: str) -> None:
    world = World(version, ebxml=ASKED)
    said = heard(world, acknowledged(world)[0]).acknowledgment
    assert said is not None
    assert said.timestamp == later(5)
    assert said.type == "DeliveryReceipt"
    assert not said.signed


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.req("MS098-10.3.1.3-01", "MS098-10.3.1.3-03")
def test_who_asks_for_no_element_gets_none_and_yet_an_acknowledgment(version: str) -> None:
    world = World(version, ebxml=RELIABLE)
    message = heard(world, acknowledged(world)[0])
    assert message.acknowledgment is None
    assert message.acknowledged == MESSAGE_ID


def test_two_point_zero_acknowledges_only_what_asks_for_it() -> None:
    world = World("2.0", ebxml=RELIABLE)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    unasked = replace(found.ebxml, ack_requested=())
    signal = signal_about(unasked)
    answer = write_signal(signal, MS20, message_id=ANSWER_ID, now=NOW, to=unasked)
    assert answer is None


@pytest.mark.req("MS098-8.9-01")
def test_the_element_stands_in_the_body_of_old_messages_and_in_the_header_of_new() -> None:
    for version, place in (("0.98b", "Body"), ("2.0", "Header")):
        answer, _ = acknowledged(World(version, ebxml=ASKED))
        assert answer is not None
        root = etree.fromstring(answer.envelope)
        assert root.find(f"{{{names.S11}}}{place}/{{*}}Acknowledgment") is not None


@every_version
@pytest.mark.req("MS098-8.12.6-01")
def test_a_signed_acknowledgment_is_signed_and_says_so(version: str) -> None:
    world = World(version, signed=True, ebxml=SIGNED)
    answer, made = acknowledged(world)
    assert answer is not None
    found = world.hear(answer)
    assert found.trusted
    assert found.ebxml is not None
    assert found.ebxml.acknowledgment is not None
    assert found.ebxml.acknowledgment.signed
    sent = SentEbxml(made.message, made.references)
    assert answer_problems(found, sent, world.match, on_response=True) == []


def test_a_signed_acknowledgment_of_two_point_zero_repeats_the_digests() -> None:
    world = World("2.0", signed=True, ebxml=SIGNED)
    answer, made = acknowledged(world)
    said = heard(world, answer).acknowledgment
    assert said is not None
    assert [(one.uri, one.digest_value) for one in said.references] == [
        (one.uri, one.digest_value) for one in made.references
    ]


def test_a_signature_cannot_be_promised_without_a_key() -> None:
    world = World("0.98b", signed=True, ebxml=SIGNED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    signal = signal_about(found.ebxml, signed=True)
    with pytest.raises(ValueError, match="signed acknowledgment"):
        write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)


@pytest.mark.req("MS098-10.3.1.3-07", "MS098-10.3.1.3-08", "MS098-8.12.5-01")
def test_an_msh_on_the_way_acknowledges_by_the_uris_of_the_last_hop() -> None:
    world = World("0.98b", ebxml=ASKED)
    found, made = transmitted(world)
    assert found.ebxml is not None
    signal = signal_about(found.ebxml, party="urn:example:relay")
    answer = write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)
    message = heard(world, answer)
    assert message.header.from_party.party_ids == (PartyId(SELLER_URI),)
    assert message.header.to_party.party_ids == (PartyId(BUYER_URI),)
    assert message.acknowledgment is not None
    assert message.acknowledgment.type == "Acknowledgment"
    sent = reliable(made.message, hop=Hop(BUYER_URI, SELLER_URI))
    word = said(sent, world.terms, reliable(message, about=made.message))
    assert word is Word.TAKEN_OVER


def test_draft_000_has_a_service_of_its_own_for_acknowledgments() -> None:
    world = World("0.98b", ebxml=ASKED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    signal = signal_about(found.ebxml, profile=Profile.RM000)
    answer = write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)
    message = heard(world, answer)
    assert message.header.service.value == SERVICE_000
    assert kind_of(message) == "acknowledgment"


@every_version
def test_the_machine_of_the_sender_hears_the_acknowledgment(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    message = reliable(heard(world, answer), about=made.message)
    assert said(reliable(made.message), world.terms, message) is Word.ACKNOWLEDGED


@every_version
@pytest.mark.req("MS098-10.3.1.3-04")
def test_a_response_of_the_application_may_acknowledge(version: str) -> None:
    world = World(version, ebxml=ASKED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    acknowledgment, errors = ride(signal_about(found.ebxml), world.dialect, to=found.ebxml, now=NOW)
    assert errors is None
    reply = world.draft(ORDER, message_id="reply@seller.example", ref_to_message_id=MESSAGE_ID)
    message = world.package(draft=reply, acknowledgment=acknowledgment).message
    assert message.acknowledged == MESSAGE_ID
    assert kind_of(message) == "message"


# What is believed


def sent_of(made: Any) -> SentEbxml:
    return SentEbxml(made.message, made.references)


@every_version
@pytest.mark.parametrize("signed", [False, True])
def test_what_was_sent_is_known_from_the_envelope_that_was_kept(version: str, signed: bool) -> None:
    made = World(version, signed=signed).package(ORDER)
    assert sent_ebxml(made.envelope) == sent_of(made)


def test_an_envelope_of_something_else_was_not_sent() -> None:
    with pytest.raises(ValueError, match="no ebXML message"):
        sent_ebxml(fault(Fault(f"{{{names.S11}}}Client", "no")))


@every_version
def test_an_acknowledgment_that_should_be_signed_and_is_not_is_not_believed(version: str) -> None:
    world = World(version, signed=True, ebxml=SIGNED)
    found, made = transmitted(world)
    assert found.ebxml is not None
    answer = write_signal(
        signal_about(found.ebxml), world.dialect, message_id=ANSWER_ID, now=NOW, to=found.ebxml
    )
    assert answer is not None
    problems = answer_problems(world.hear(answer), sent_of(made), world.match, on_response=True)
    assert "SecurityFailure" in [one.code for one in problems]


def test_an_acknowledgment_signed_by_its_receiver_proves_nothing() -> None:
    world = World("2.0", signed=True, ebxml=SIGNED)
    assert world.expectation
    world.seller = world.buyer
    answer, made = acknowledged(world)
    assert answer is not None
    problems = answer_problems(world.hear(answer), sent_of(made), world.match, on_response=True)
    assert problems != []


def test_an_acknowledgment_with_other_digests_is_not_believed() -> None:
    world = World("2.0", signed=True, ebxml=SIGNED)
    answer, made = acknowledged(world)
    assert answer is not None
    other = SentEbxml(made.message, made.references[:1])
    problems = answer_problems(world.hear(answer), other, world.match, on_response=True)
    assert [one.code for one in problems] == ["SecurityFailure"]


@every_version
def test_an_acknowledgment_of_another_message_is_not_believed(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    assert answer is not None
    header = replace(made.message.header, message_id="order-2@buyer.example")
    other = SentEbxml(replace(made.message, header=header), ())
    problems = answer_problems(world.hear(answer), other, world.match, on_response=True)
    assert [one.code for one in problems] == ["Inconsistent"]


@every_version
@pytest.mark.req("MS098-10.3.1.3-08")
def test_an_acknowledgment_for_somebody_else_is_not_believed(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    assert answer is not None
    other = answer.envelope.replace(b"urn:example:buyer", b"urn:example:stranger")
    found = world.look(alone(other), answering=True)
    problems = answer_problems(found, sent_of(made), world.match, on_response=True)
    assert [(one.code, one.location) for one in problems] == [("Inconsistent", f"{HEADER}/eb:To")]


def test_an_acknowledgment_of_another_version_is_not_believed_and_an_error_is() -> None:
    old, new = World("0.98b", ebxml=ASKED), World("2.0", ebxml=ASKED)
    sent = sent_of(new.package(ORDER))
    acknowledgment, error = acknowledged(old)[0], about(old, failure())
    assert acknowledgment is not None
    assert error is not None
    said = answer_problems(new.hear(acknowledgment), sent, new.match, on_response=True)
    assert [one.code for one in said] == ["Inconsistent"]
    assert answer_problems(new.hear(error), sent, new.match, on_response=True) == []


@every_version
@pytest.mark.parametrize("on_response", [True, False])
def test_an_unsigned_error_is_believed_on_the_response_only_where_the_p_mode_signs(
    version: str, on_response: bool
) -> None:
    world = World(version, signed=True)
    answer = about(world, failure())
    assert answer is not None
    made = world.package(ORDER)
    problems = answer_problems(
        world.hear(answer), sent_of(made), world.match, on_response=on_response
    )
    assert (problems == []) is on_response


@every_version
@pytest.mark.req("MS098-8.12.2-01")
def test_who_acknowledges_is_the_from_of_the_element_or_of_the_message(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    message = heard(world, answer)
    assert reliable(message, about=made.message).from_party == party_name(SELLER)
    assert message.acknowledgment is not None
    relay = Party((PartyId("urn:example:relay"),), "")
    other = replace(message, acknowledgment=replace(message.acknowledgment, from_party=relay))
    assert reliable(other, about=made.message).from_party == "urn:example:relay"
