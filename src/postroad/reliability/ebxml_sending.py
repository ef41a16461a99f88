"""The sender of ebXML reliable messaging (draft 000; 0.98b, section 10).

The life of what is sent is that of `delivery`. Here is added what an answer means, which depends on
who gives it, and the delivery failure notification. An MSH on the way that acknowledges has taken a
message over; that says nothing about the To Party.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from postroad.reliability.delivery import KINDS, Input, Stage
from postroad.reliability.ebxml import AckType, Kind, Message, Signal, report
from postroad.reliability.ebxml_terms import (
    Error,
    ErrorCode,
    Severity,
    Terms,
)


class Word(StrEnum):
    """What an answer says about a message."""

    ACKNOWLEDGED = "the To Party has it"
    TAKEN_OVER = "the next MSH has it"
    REFUSED = "it was refused"
    NOT_NOW = "the To Party has no room for it now"
    DOUBTED = "it was passed on, and nobody acknowledged it"
    NOTHING = "nothing about its delivery"
    FOREIGN = "nothing, as somebody says it who has no part in the message"


WORDS: Final[Mapping[Word, Input]] = {
    Word.ACKNOWLEDGED: Input.ACKNOWLEDGED,
    Word.TAKEN_OVER: Input.LEFT,
    Word.REFUSED: Input.REFUSED,
    Word.NOT_NOW: Input.TURNED_AWAY,
    Word.DOUBTED: Input.REFUSED,
}
"""What it does to the message (`delivery`); DOUBTED is a refusal that leaves a doubt."""


def said(sent: Message, terms: Terms, answer: Message) -> Word:
    """What an answer says about the message to which it refers, by what it is and whose it is."""
    by_to_party = answer.from_party == sent.to_party
    by_next = sent.hop is not None and answer.from_party == sent.hop.receiver_uri
    if answer.kind is Kind.ERROR or _is_error(answer.error):
        if not (by_to_party or by_next or terms.hops):
            return Word.FOREIGN
        word = _error_said(answer.error, by_to_party)
        # MSHs on the way may have sent several copies, of which one was refused.
        doubtful = word is Word.REFUSED and by_to_party and terms.hops
        return Word.DOUBTED if doubtful else word
    if by_to_party:
        return Word.ACKNOWLEDGED
    if not by_next:
        return Word.FOREIGN
    if answer.acknowledgment is None:
        return Word.TAKEN_OVER if terms.hops else Word.ACKNOWLEDGED
    final = answer.acknowledgment.type is AckType.DELIVERY_RECEIPT
    return Word.ACKNOWLEDGED if final else Word.TAKEN_OVER


def _is_error(error: Error | None) -> bool:
    """Whether it says more than that something could be better, on whatever message it rides."""
    return error is not None and (error.severity is Severity.ERROR or _is_failure(error))


def _is_failure(error: Error | None) -> bool:
    """Whether it is a delivery failure; one of severity Warning rides on any message."""
    return error is not None and error.code is ErrorCode.DELIVERY_FAILURE


def _error_said(error: Error | None, by_to_party: bool) -> Word:
    if error is not None and error.severity is Severity.WARNING:
        return Word.DOUBTED if _is_failure(error) else Word.NOTHING
    return Word.NOT_NOW if _is_failure(error) and by_to_party else Word.REFUSED


def notice(message: Message, terms: Terms, stage: Stage, party: str) -> Signal | None:
    """The delivery failure notification of a message that `party` gave up.

    None for what is not given up, with BestEffort, and about an acknowledgment or an error, a
    notification included. [RM000-1.4-02] [RM000-1.4-05] [MS098-10.4-01]
    """
    if stage not in KINDS or not terms.is_reliable:
        return None
    severity = Severity(KINDS[stage])
    why = "it could not be sent" if severity is Severity.ERROR else "it was not acknowledged"
    error = Error(ErrorCode.DELIVERY_FAILURE, why, severity)
    return report(message, party, error, terms.delivery_semantics)
