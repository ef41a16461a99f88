"""The Receiver of the older Reliable Messaging draft (001), and the Router that forwards.

The Receiver compares the number of a message with that of the one before it on the same link: four
cases, each with what is done. How the draft is read where it leaves something open stands at the
top of `link`; the two rules for who edits that file hold here too.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.reliability.link import (
    Ack,
    AnswerHeader,
    DeliverySemantics,
    ErrorClass,
    ErrorMessage,
    InvalidSequenceNumber,
    MessageType,
    Store,
    Triple,
    WrongTriple,
    check_least,
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
    state_was_lost: bool = False
    """Begin with whatever number the Sender has come to. Else only 1 can be the first."""
    ack_after_forward: bool = False
    """A Router acknowledges when the next one has acknowledged (4.3), not when it has stored."""
    min_retry_secs: int | None = None
    """What a Transient Error asks for."""

    def __post_init__(self) -> None:
        check_least("the number of remembered MessageIds", self.remember, 1)
        if self.min_retry_secs is not None:
            check_least("MinRetrySecs", self.min_retry_secs, 0)


class ReceiverState(Struct, frozen=True):
    """What a Receiver knows of one triple."""

    triple: Triple
    previous: int | None = None
    """Number of the last message that was taken."""
    recent: tuple[str, ...] = ()
    """MessageIds of the last ones that were taken, the previous message's at the end."""
    unanswered: AnswerHeader | None = None
    """Header of the acknowledgement that waits until the previous message is forwarded."""
    refused: tuple[str, ...] = ()
    """Those of the recent ones that the next Router or Receiver refused."""


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


def case_of(state: ReceiverState, number: int, message_id: str, rules: Rules) -> Case:
    """Which of the four cases a reliable message is. [RM001-2.1-09] [RM001-2.5-03]"""
    if message_id in state.recent:
        return Case.REPEATED
    if state.previous is None:
        return Case.NEXT if number == 1 or rules.state_was_lost else Case.INVALID
    if number == state.previous + 1:
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
        return _refused(state, answer_header(message, MessageType.ERROR), str(invalid))
    keep, answer = CASES[case_of(state, number, message.message_id, rules)]
    header = answer_header(message, answer)
    if answer is MessageType.ERROR:
        return _refused(state, header, f"SequenceNumber {number} after {state.previous or 'none'}")
    if not keep:
        return _repeated(state, header, rules, onward)
    if onward is Onward.DOWN:
        return ReceiverStep(state, (Discard(message.message_id), _come_again(header, rules)))
    waits = rules.ack_after_forward and not here
    taken = _taken(state, number, message.message_id, rules, header if waits else None)
    store, ack = Store(message.message_id), Ack(header)
    if waits:
        return ReceiverStep(taken, (store, passed))
    return ReceiverStep(taken, (store, passed, ack) if here else (store, ack, passed))


def forwarded(state: ReceiverState, message_id: str) -> ReceiverStep:
    """The next one has acknowledged it, so the acknowledgement that waited is due."""
    if state.unanswered is None or state.unanswered.ref_to_message_id != message_id:
        return ReceiverStep(state, ())
    return ReceiverStep(changed(state, unanswered=None), (Ack(state.unanswered),))


def not_forwarded(state: ReceiverState, message_id: str, rules: Rules) -> ReceiverStep:
    """It cannot be forwarded now: the previous Sender is told so instead. [RM001-4.3-01]

    The message stays here and waits for the next one; a copy of it is not forwarded again.
    """
    if state.unanswered is None or state.unanswered.ref_to_message_id != message_id:
        return ReceiverStep(state, ())
    return ReceiverStep(state, (_come_again(state.unanswered, rules),))


def refused_onward(state: ReceiverState, message_id: str, why: str) -> ReceiverStep:
    """The next one found an error in it, which is told to the previous Sender."""
    if state.unanswered is None or state.unanswered.ref_to_message_id != message_id:
        return ReceiverStep(state, ())
    refused = changed(state, unanswered=None, refused=(*state.refused, message_id))
    return ReceiverStep(refused, (_error(state.unanswered, why),))


def _taken(
    state: ReceiverState, number: int, message_id: str, rules: Rules, waits: AnswerHeader | None
) -> ReceiverState:
    """The state in which this message is the previous one."""
    recent = (*state.recent, message_id)[-rules.remember :]
    refused = tuple(each for each in state.refused if each in recent)
    return ReceiverState(state.triple, number, recent, waits, refused)


def _repeated(
    state: ReceiverState, header: AnswerHeader, rules: Rules, onward: Onward
) -> ReceiverStep:
    """A copy gets the answer that the message has by now, if any. [RM001-2.4-02]"""
    discard = Discard(header.ref_to_message_id)
    if header.ref_to_message_id in state.refused:
        return _refused(state, header, "the next Receiver refused it")
    if state.unanswered is None or state.unanswered.ref_to_message_id != header.ref_to_message_id:
        return ReceiverStep(state, (discard, Ack(header)))
    if onward is Onward.DOWN:
        return ReceiverStep(state, (discard, _come_again(header, rules)))
    return ReceiverStep(state, (discard,))


def _refused(state: ReceiverState, header: AnswerHeader, why: str) -> ReceiverStep:
    return ReceiverStep(state, (Discard(header.ref_to_message_id), _error(header, why)))


def _error(header: AnswerHeader, why: str) -> ErrorMessage:
    told = changed(header, message_type=MessageType.ERROR)
    return ErrorMessage(told, ErrorClass.MESSAGING_ERROR, detail=why)


def _come_again(header: AnswerHeader, rules: Rules) -> ErrorMessage:
    """The Transient Error of a Router, in place of the acknowledgement with this header."""
    told = changed(header, message_type=MessageType.ERROR)
    detail = "the next Receiver cannot be reached"
    return ErrorMessage(told, ErrorClass.TRANSIENT_ERROR, rules.min_retry_secs, detail)
