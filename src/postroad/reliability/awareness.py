"""AS4 reception awareness: what a copy means to a receiver, and an answer to a sender (AS4 3.2).

A receiver knows a message by its id. What comes under a known id is a duplicate when it says the
same as the first, or when the same partner sends it by the same P-Mode and duplicates are known by
MessageId there (AS4 3.2): some products write a message anew for each attempt. A duplicate is
answered as the first was, byte for byte, but only once the first was taken for good: before that
there is nothing to say. Anything else under a known id is refused. The first stays untouched in any
case. What was refused before may come again.

A sender believes a receipt that names every digest of what was sent. A receipt that doesn't is no
acknowledgment; it is an incident (EBMS:0302), and the message is as unanswered as before. No
receipt at all is EBMS:0301.

Two rules for who edits this file: all that affects these decisions stands here; what is not in a
table does not happen.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from postroad.reliability.delivery import Input

MISSING_RECEIPT: Final = "EBMS:0301"
INVALID_RECEIPT: Final = "EBMS:0302"
_UNSPECIFIC: Final = frozenset(("EBMS:0004", "Unknown"))
"""Codes of errors that do not say what is wrong with the message, in ebMS 3.0 and in ebXML."""
_NOT_TAKEN: Final = frozenset(("EBMS:0202", "EBMS:0005"))
"""Errors by which a partner says that it could not take a message now."""
_AT_FAULT: Final = frozenset(
    ("Sender", "Client", "MustUnderstand", "VersionMismatch", "DataEncodingUnknown")
)
"""Codes of SOAP faults that blame the message."""
_LATER: Final = frozenset((408, 425, 429))
"""HTTP statuses that say the same."""


class Known(StrEnum):
    """What a receiver has under an id."""

    NOTHING = "nothing"
    REJECTED = "a message that was rejected"
    HELD = "a message that is held back"
    TAKEN = "a message that was taken, and its answer"
    UNANSWERED = "a message that was taken and is not to be answered yet"


class Arrival(StrEnum):
    """What comes under it."""

    SAME = "the same"
    REBUILT = "other contents of the same partner, where MessageId decides"
    OTHER = "something else"


class Reception(StrEnum):
    """What is done."""

    TAKE = "take it"
    TAKE_INSTEAD = "take it in the place of the other"
    ANSWER_AGAIN = "filter it, and give the first answer again"
    FILTER = "filter it, and say nothing yet"
    REFUSE = "refuse it with EBMS:0003"


RECEPTION: Final[Mapping[Known, Mapping[Arrival, Reception]]] = {
    Known.NOTHING: {
        Arrival.SAME: Reception.TAKE,
        Arrival.REBUILT: Reception.TAKE,
        Arrival.OTHER: Reception.TAKE,
    },
    Known.REJECTED: {
        Arrival.SAME: Reception.TAKE_INSTEAD,
        Arrival.REBUILT: Reception.TAKE_INSTEAD,
        Arrival.OTHER: Reception.TAKE_INSTEAD,
    },
    Known.HELD: {
        Arrival.SAME: Reception.ANSWER_AGAIN,
        Arrival.REBUILT: Reception.ANSWER_AGAIN,
        Arrival.OTHER: Reception.REFUSE,
    },
    Known.TAKEN: {
        Arrival.SAME: Reception.ANSWER_AGAIN,
        Arrival.REBUILT: Reception.ANSWER_AGAIN,
        Arrival.OTHER: Reception.REFUSE,
    },
    Known.UNANSWERED: {
        Arrival.SAME: Reception.FILTER,
        Arrival.REBUILT: Reception.FILTER,
        Arrival.OTHER: Reception.REFUSE,
    },
}


class Answer(StrEnum):
    """What comes back to the sender."""

    RECEIPT = "a receipt that holds"
    BAD_RECEIPT = "a receipt that does not hold"
    ERROR = "an error of severity failure"
    NOT_NOW = "an error that says: not now"
    DISBELIEVED = "an error that is not believed"
    FAULT = "a SOAP fault: the message is at fault"
    BREAKDOWN = "a SOAP fault: the receiver is at fault"
    ELSEWHERE = "an HTTP status 3xx"
    REJECTION = "an HTTP status 4xx"
    LATER = "an HTTP status that says: not now"
    TROUBLE = "an HTTP status 5xx"
    NOTHING = "nothing about the message"


ANSWERS: Final[Mapping[Answer, Input]] = {
    Answer.RECEIPT: Input.ACKNOWLEDGED,
    Answer.BAD_RECEIPT: Input.UNANSWERED,
    Answer.ERROR: Input.REFUSED,
    Answer.NOT_NOW: Input.TURNED_AWAY,
    Answer.DISBELIEVED: Input.UNANSWERED,
    Answer.FAULT: Input.REFUSED,
    Answer.BREAKDOWN: Input.UNANSWERED,
    Answer.ELSEWHERE: Input.UNANSWERED,
    Answer.REJECTION: Input.REFUSED,
    Answer.LATER: Input.TURNED_AWAY,
    Answer.TROUBLE: Input.UNANSWERED,
    Answer.NOTHING: Input.UNANSWERED,
}
"""What an answer does to the message (`delivery`)."""


def received(known: Known, arrival: Arrival) -> Reception:
    """What is done with what came."""
    return RECEPTION[known][arrival]


def error_said(code: str) -> Answer:
    """What an error of severity failure says, by its code."""
    return Answer.NOT_NOW if code in _NOT_TAKEN else Answer.ERROR


def leaves_open(code: str | None, status: int) -> bool:
    """Whether an error that came with this HTTP status leaves open what became of the message.

    Who fails and does not say what is wrong with the message may have taken it. Any other code is a
    refusal, also with a 500, which is how SOAP 1.1 sends every fault (Core 6).
    """
    return status >= 500 and code in _UNSPECIFIC


def fault_said(code: str) -> Answer:
    """What a SOAP fault says, by its code: who doesn't blame the message may have taken it."""
    name = code.rpartition("}")[2].partition(".")[0]
    return Answer.FAULT if name in _AT_FAULT else Answer.BREAKDOWN


def status_said(status: int) -> Answer:
    """What an HTTP status says where nothing else does."""
    if status in _LATER:
        return Answer.LATER
    if status >= 500:
        return Answer.TROUBLE
    if 300 <= status < 400:
        # No redirect is followed, so nobody has it as far as is known.
        return Answer.ELSEWHERE
    return Answer.REJECTION if status >= 400 else Answer.NOTHING
