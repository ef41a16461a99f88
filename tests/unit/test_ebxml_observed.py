"""What the machines of ebXML see of a message, and of the links of draft 001."""

from typing import Any

import pytest
from msgspec.structs import replace

from postroad.msh.ebxml_link import link_message, read_link_answer, write_link_answer
from postroad.msh.ebxml_outbound import hop
from postroad.msh.ebxml_terms import header_terms, party_name, reliable
from postroad.reliability import link, link_receiver
from postroad.reliability.ebxml import AckType, Kind, Known, Receiver, Step, receive
from postroad.reliability.ebxml_sending import Word, said
from postroad.reliability.ebxml_terms import ErrorCode
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import MS098, EbxmlMessage
from tests.unit.ebxml_answering import (
    ANSWER_ID,
    ASKED,
    BUYER_URI,
    OLDER,
    ORDER,
    RELIABLE,
    SELLER_URI,
    about,
    acknowledged,
    every_version,
    failure,
    heard,
    transmitted,
)
from tests.unit.ebxml_world import NOW, SELLER, World, later

# What the machines look at


@every_version
def test_two_messages_are_identical_whatever_way_they_took(version: str) -> None:
    world = World(version, ebxml=ASKED)
    found, made = transmitted(world)
    assert found.ebxml is not None
    assert reliable(found.ebxml, [b"1"]).digest == reliable(made.message, [b"1"]).digest


@every_version
def test_another_header_or_payload_is_another_message(version: str) -> None:
    message = World(version).package(ORDER).message
    other = replace(message, header=replace(message.header, conversation_id="c-2"))
    digests = {
        reliable(message, [b"1"]).digest,
        reliable(message, [b"2"]).digest,
        reliable(other, [b"1"]).digest,
    }
    assert len(digests) == 3


@every_version
def test_a_copy_is_known_by_its_digest(version: str) -> None:
    world = World(version, ebxml=ASKED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    assert found.ebxml_terms is not None
    message = reliable(found.ebxml)
    seller = Receiver(party_name(SELLER))
    known = Known(message.digest, NOW)
    again = receive(message, found.ebxml_terms, seller, later(60), known=known)
    assert Step.DELIVER not in again.steps
    assert Step.REPORT not in again.steps


def test_a_party_is_known_by_all_its_ids_in_any_order() -> None:
    one, two = PartyId("1", "urn:duns"), PartyId("urn:example:seller")
    assert party_name(Party((one, two), "")) == party_name(Party((two, one), "Seller"))


def test_one_of_its_ids_is_enough_to_answer_for_a_party() -> None:
    world = World("2.0", ebxml=ASKED)
    answer, made = acknowledged(world)
    both = Party((*SELLER.party_ids, PartyId("1", "urn:duns")), "")
    sent = replace(made.message, header=replace(made.message.header, to_party=both))
    heard_of = reliable(heard(world, answer), about=sent)
    assert said(reliable(sent), world.terms, heard_of) is Word.ACKNOWLEDGED


@pytest.mark.parametrize("version", OLDER)
def test_the_to_party_takes_a_wish_for_a_receipt_as_one_for_an_acknowledgment(version: str) -> None:
    world = World(version, ebxml={"delivery_receipt": "UnSigned"})
    message = world.package(ORDER).message
    assert header_terms(message)["ackRequested"] == "UnSigned"
    assert "ackRequested" not in header_terms(message, final=False)


@pytest.mark.req("MS098-8.4.7.1-04")
def test_a_delivery_receipt_is_given_without_reliable_messaging_too() -> None:
    world = World("0.98b", ebxml={"delivery_receipt": "UnSigned"})
    message = heard(world, acknowledged(world)[0])
    assert message.acknowledgment is not None
    assert message.acknowledgment.type == "DeliveryReceipt"


def test_the_stronger_wish_counts() -> None:
    both = {"delivery_receipt": "Signed", "ack_requested": "UnSigned"}
    world = World("0.98b", signed=True, ebxml=both)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    assert header_terms(found.ebxml)["ackRequested"] == "Signed"
    assert header_terms(found.ebxml, final=False)["ackRequested"] == "UnSigned"


def test_the_machine_sees_error_and_kind() -> None:
    world = World()
    message = reliable(heard(world, about(world, failure("TimeToLiveExpired"))))
    assert message.kind is Kind.ERROR
    assert message.error is not None
    assert message.error.code is ErrorCode.TIME_TO_LIVE_EXPIRED


def test_the_type_of_an_acknowledgment_reaches_the_machine() -> None:
    world = World("0.98b", ebxml=ASKED)
    message = reliable(heard(world, acknowledged(world)[0]))
    assert message.acknowledgment is not None
    assert message.acknowledgment.type is AckType.DELIVERY_RECEIPT


# The link discipline of draft 001

SENDER, RECEIVER = link.PartyID(BUYER_URI), link.PartyID(SELLER_URI)
LINK = link_receiver.ReceiverState(link.Triple(SENDER, RECEIVER, "HTTP"))


def linked(number: int | None, **ebxml: Any) -> tuple[World, link_receiver.Message]:
    world = World("0.98b", ebxml=ebxml or RELIABLE)
    made = world.package(ORDER)
    envelope = hop(
        made.envelope,
        MS098,
        sender_uri=BUYER_URI,
        receiver_uri=SELLER_URI,
        now=NOW,
        sequence_number=number,
    )
    return world, link_message(world.read(made, envelope), "HTTP")


def test_triple_and_number_of_a_link_stand_in_the_last_trace_header() -> None:
    _, message = linked(1)
    assert message.triple == LINK.triple
    assert message.sequence_number == 1
    assert message.delivery_semantics is link.DeliverySemantics.AT_MOST_ONCE
    _, unreliable = linked(None, delivery_semantics="BestEffort")
    assert unreliable.sequence_number is None
    assert unreliable.delivery_semantics is link.DeliverySemantics.UNSPECIFIED


def answers(number: int, onward: link_receiver.Onward) -> tuple[Any, EbxmlMessage]:
    """What the machine answers, and what the other side reads of it."""
    world, message = linked(number)
    rules = link_receiver.Rules(min_retry_secs=90)
    step = link_receiver.receive(LINK, message, rules, onward)
    (answer,) = [a for a in step.actions if isinstance(a, link.Ack | link.ErrorMessage)]
    written = write_link_answer(answer, MS098, message_id=ANSWER_ID, now=NOW)
    return answer, heard(world, written)


@pytest.mark.parametrize(
    ("number", "onward"),
    [
        pytest.param(1, link_receiver.Onward.NOWHERE, id="acknowledgement"),
        pytest.param(7, link_receiver.Onward.NOWHERE, id="messaging error"),
        pytest.param(1, link_receiver.Onward.DOWN, id="transient error"),
    ],
)
@pytest.mark.req(
    "RM001-2.6.2-01", "RM001-2.6.2-02", "RM001-2.6.2-03", "RM001-2.6.2-05", "RM001-2.6.2-06",
    "RM001-2.6.7-02", "RM001-2.6.6-01",
)  # fmt: skip
def test_an_answer_of_a_link_is_written_and_read(number: int, onward: link_receiver.Onward) -> None:
    answer, message = answers(number, onward)
    assert read_link_answer(message) == answer
    assert message.manifest is None
    assert not message.header.is_reliable


def test_a_message_of_an_application_answers_nothing_on_a_link() -> None:
    world = World("0.98b")
    assert read_link_answer(world.read(world.package(ORDER))) is None


def test_without_a_trace_header_there_is_no_link() -> None:
    with pytest.raises(ValueError, match="no TraceHeader"):
        link_message(World("0.98b").package(ORDER).message, "HTTP")


@pytest.mark.parametrize(("code", "wait"), [("Transient Errors", None), ("Busy", 30)])
def test_a_transient_error_is_known_by_the_words_of_the_draft_or_by_its_wait(
    code: str, wait: int | None
) -> None:
    _, message = answers(1, link_receiver.Onward.DOWN)
    assert message.error_list is not None
    spelt = replace(message.error_list.errors[0], error_code=code, min_retry_secs=wait)
    other = replace(message, error_list=replace(message.error_list, errors=(spelt,)))
    answer = read_link_answer(other)
    assert isinstance(answer, link.ErrorMessage)
    assert answer.error_class is link.ErrorClass.TRANSIENT_ERROR
    assert answer.min_retry_secs == wait
