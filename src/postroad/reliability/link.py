"""The older Reliable Messaging draft (001): one link per Sender, Receiver and transport.

The Sender numbers its reliable messages 1, 2, 3 … and has only one of them under way: the next one
leaves when the Receiver has acknowledged the last. Hence the Receiver needs little memory to know a
repetition, and the order is kept. What goes wrong belongs to one of four classes, each with its own
recovery (`RECOVERIES`); the retries of all classes are counted together, and after the last one the
Receiver is suspended until an administrator resumes. A suspension is of the Receiver, so it holds
up all that goes to its address. Only answers (acknowledgements, errors) are never held up.

The life of a message that is sent over a link is that of `delivery`, a suspension that of
`breaker`; here is what the draft adds to their tables. The Receiver is in `link_receiver`.

What the draft leaves open, and how it is read here:

- An ebXML Messaging Error ends the transmission, and the next message leaves. Whether the Receiver
  counted the refused number nobody knows; 1 is what every Receiver takes, so numbering begins anew.
- Resuming ends every suspension, that for MinRetrySecs too. Nothing else ends one of the
  administrator's: a late acknowledgement completes its message, and the next one still waits.
- Case (2) looks at numbers alone. Two messages under one number would then lose the second behind
  an acknowledgement, so the same number on another MessageId is case (4), or (3) when it is 1.
- A MessageId that is remembered is a repetition whatever its number says. That is the only guard
  against a late copy of a message that had the number 1, so `Rules.remember` must not be small.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

MAX_SEQUENCE_NUMBER: Final = 2**32 - 1


class ErrorClass(StrEnum):
    """The draft's classes of errors; an error message can tell of all but the last."""

    PROTOCOL_ERROR = "Communication Protocol Error"
    MESSAGING_ERROR = "ebXML Messaging Error"
    TRANSIENT_ERROR = "Transient Error"
    TIMEOUT = "Timeout"


class Recovery(NamedTuple):
    """What the Sender does about an error of one class."""

    resends: bool
    """The message is sent again, if a retry is left; else it has failed and is passed up."""
    suspends: bool = False
    """Nothing is sent to the Receiver meanwhile."""


RECOVERIES: Final[Mapping[ErrorClass, Recovery]] = {
    ErrorClass.PROTOCOL_ERROR: Recovery(resends=True),
    ErrorClass.MESSAGING_ERROR: Recovery(resends=False),
    ErrorClass.TRANSIENT_ERROR: Recovery(resends=True, suspends=True),
    ErrorClass.TIMEOUT: Recovery(resends=True),
}
"""[RM001-2.6.1-01] [RM001-2.6.1-02]"""


class DeliverySemantics(StrEnum):
    AT_MOST_ONCE = "AtMostOnce"
    """A reliable message. [RM001-2.1-02]"""
    UNSPECIFIED = "Unspecified"


class MessageType(StrEnum):
    NORMAL = "Normal"
    ACKNOWLEDGEMENT = "Acknowledgement"
    ERROR = "Error"


class LinkError(ValueError):
    """What this discipline refuses."""


class InvalidSequenceNumber(LinkError):
    """No whole number from 1 to 4294967295."""


class WrongTriple(LinkError):
    """The message belongs to another link."""


def sequence_number(value: object) -> int:
    """The value, if it can be a SequenceNumber. [RM001-2.2.3-05]"""
    if type(value) is int and 1 <= value <= MAX_SEQUENCE_NUMBER:
        return value
    raise InvalidSequenceNumber(f"SequenceNumber is no integer from 1 to {MAX_SEQUENCE_NUMBER}")


def next_number(last: int | None) -> int:
    """The number after `last`; 1 when none is known, and after the greatest.

    [RM001-2.1-06] [RM001-2.2.3-06] [RM001-2.2.3-07] [RM001-2.2.3-08]
    """
    if last is None or sequence_number(last) == MAX_SEQUENCE_NUMBER:
        return 1
    return last + 1


class PartyID(Struct, frozen=True):
    """The logical address of a Messaging Service Handler."""

    value: str
    context: str | None = None


class Triple(Struct, frozen=True):
    """What a link is between, and over which transport."""

    sender_id: PartyID
    receiver_id: PartyID
    transport: str


class AnswerHeader(Struct, frozen=True):
    """What stands in the header of an acknowledgement or error; no ServiceInterface, no Action."""

    from_id: PartyID
    to_id: PartyID
    tpa_id: str
    conversation_id: str
    ref_to_message_id: str
    message_type: MessageType
    delivery_semantics: DeliverySemantics = DeliverySemantics.UNSPECIFIED


class Ack(Struct, frozen=True):
    header: AnswerHeader


class ErrorMessage(Struct, frozen=True):
    header: AnswerHeader
    error_class: ErrorClass
    min_retry_secs: int | None = None
    detail: str = ""
