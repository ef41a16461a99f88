"""The Receiver of the older Reliable Messaging draft (001), and the Router that forwards.

The Receiver compares the number of a message with that of the one before it on the same link: four
cases, each with what is done. How the draft is read where it leaves something open stands at the
top of `link`.

Two rules for who edits this file: all that affects the machine stands here; what is not in the
table does not happen.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from postroad.reliability.link import (
    Ack,
    AnswerHeader,
    DeliverySemantics,
    ErrorClass,
    ErrorMessage,
    InvalidSequenceNumber,
    MessageType,
    Triple,
    WrongTriple,
    sequence_number,
)


class Case(StrEnum):
    """The four cases of a reliable message's number, as 2.5 counts them."""

    NEXT = "1"
    REPEATED = "2"
    RESTARTED = "3"
    INVALID = "4"


class Treatment(NamedTuple):
    """What a Receiver does in one case."""

    keep: bool
    """Store and process it; else it is discarded."""
    answer: MessageType


CASES: Final[Mapping[Case, Treatment]] = {
    Case.NEXT: Treatment(True, MessageType.ACKNOWLEDGEMENT),
    Case.REPEATED: Treatment(False, MessageType.ACKNOWLEDGEMENT),
    Case.RESTARTED: Treatment(True, MessageType.ACKNOWLEDGEMENT),
    Case.INVALID: Treatment(False, MessageType.ERROR),
}
"""[RM001-2.5-01] [RM001-2.5-02] [RM001-2.5-04] [RM001-2.5-05]"""


class Message(Struct, frozen=True):
    """What a Receiver looks at in a message that came."""

    triple: Triple
    message_id: str
    tpa_id: str
    conversation_id: str
    sequence_number: int | None = None
    delivery_semantics: DeliverySemantics = DeliverySemantics.AT_MOST_ONCE
    message_type: MessageType = MessageType.NORMAL


class Onward(StrEnum):
    """Where a message goes from here."""

    NOWHERE = "it is for this Messaging Service"
    OPEN = "to the next Router or Receiver"
    DOWN = "to the next one, which cannot be reached now"


class Rules(Struct, frozen=True):
    """How a Receiver is set up."""

    remember: int = 1000
    """MessageIds per triple."""
    min_retry_secs: int | None = None
    """What a Transient Error asks for."""


class ReceiverState(Struct, frozen=True):
    """What a Receiver knows of one triple."""

    triple: Triple
    previous: int | None = None
    """Number of the last message that was taken."""
    recent: tuple[str, ...] = ()
    """MessageIds of the last ones that were taken, the previous message's at the end."""


class Store(Struct, frozen=True):
    """Put it in persistent storage, before anything that follows in the same step."""

    message_id: str


class Deliver(Struct, frozen=True):
    """Pass it to the To-Party."""

    message_id: str


class Forward(Struct, frozen=True):
    """Submit it to the link to the next Router or Receiver."""

    message_id: str


class Discard(Struct, frozen=True):
    message_id: str


class ReceiverStep(NamedTuple):
    """The state to commit and then, in this order, what to do."""

    state: ReceiverState
    actions: tuple[Store | Deliver | Forward | Discard | Ack | ErrorMessage, ...]


def answer_header(message: Message, message_type: MessageType) -> AnswerHeader:
    """The header of an acknowledgement of the message, or of an error about it.

    [RM001-2.6.2-01] [RM001-2.6.2-02] [RM001-2.6.2-03] [RM001-2.6.2-05] [RM001-2.6.7-01]
    """
    return AnswerHeader(
        from_id=message.triple.receiver_id,
        to_id=message.triple.sender_id,
        tpa_id=message.tpa_id,
        conversation_id=message.conversation_id,
        ref_to_message_id=message.message_id,
        message_type=message_type,
    )


def case_of(state: ReceiverState, number: int, message_id: str) -> Case:
    """Which of the four cases a reliable message is. [RM001-2.1-09] [RM001-2.5-03]"""
    if message_id in state.recent:
        return Case.REPEATED
    if number == (state.previous or 0) + 1:
        return Case.NEXT
    return Case.RESTARTED if number == 1 else Case.INVALID


def receive(
    state: ReceiverState, message: Message, rules: Rules, onward: Onward = Onward.NOWHERE
) -> ReceiverStep:
    """A message came: what becomes of it, and the one answer. [RM001-2.3-02] [RM001-2.3-06]"""
    if message.triple != state.triple:
        raise WrongTriple("the message came over another link")
    if message.message_type is not MessageType.NORMAL:
        return ReceiverStep(state, ())
    here = onward is Onward.NOWHERE
    passed = Deliver(message.message_id) if here else Forward(message.message_id)
    if message.delivery_semantics is DeliverySemantics.UNSPECIFIED:
        return ReceiverStep(state, (passed,))
    try:
        number = sequence_number(message.sequence_number)
    except InvalidSequenceNumber as invalid:
        return _refused(state, message, str(invalid))
    keep, answer = CASES[case_of(state, number, message.message_id)]
    if answer is MessageType.ERROR:
        return _refused(state, message, f"SequenceNumber {number} after {state.previous or 'none'}")
    discard, ack = Discard(message.message_id), Ack(answer_header(message, answer))
    if not keep:
        return ReceiverStep(state, (discard, ack))
    if onward is Onward.DOWN:
        return ReceiverStep(state, (discard, come_again(message, rules)))
    recent = (*state.recent, message.message_id)[-rules.remember :]
    taken, store = ReceiverState(state.triple, number, recent), Store(message.message_id)
    return ReceiverStep(taken, (store, passed, ack) if here else (store, ack, passed))


def come_again(message: Message, rules: Rules) -> ErrorMessage:
    """The Transient Error of a Router that cannot forward a message now. [RM001-4.3-01]"""
    header = answer_header(message, MessageType.ERROR)
    detail = "the next Receiver cannot be reached"
    return ErrorMessage(header, ErrorClass.TRANSIENT_ERROR, rules.min_retry_secs, detail)


def _refused(state: ReceiverState, message: Message, why: str) -> ReceiverStep:
    header = answer_header(message, MessageType.ERROR)
    error = ErrorMessage(header, ErrorClass.MESSAGING_ERROR, detail=why)
    return ReceiverStep(state, (Discard(message.message_id), error))
