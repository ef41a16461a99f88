"""WS-Reliability 1.1: what a receiver does with what comes, and what a reply is to the sender.

There is nothing to set up: each message says for itself that it is to be acknowledged, until when,
and by what way. Each is a group of its own here, so its identity is its groupId; a partner may
number messages of a group, which is then part of the identity. Sending again and giving up is for
`delivery` and `schedule`.

Two rules for who edits this file: all that affects these machines stands here; what is not in a
table does not happen.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from postroad.reliability.delivery import Input
from postroad.wire.wsreliability import FaultCode, ReplyPattern, Request


class Coming(StrEnum):
    """What comes."""

    NEW = "new"
    COPY = "the same message again"
    OTHER = "another message under a known identity"
    EXPIRED = "new, and its ExpiryTime is over"
    LATE_COPY = "the same message again, and its ExpiryTime is over"
    ORDERED = "it asks for order"
    UNACKNOWLEDGED = "it asks for no acknowledgment"
    OTHER_PATTERN = "it names another way for acknowledgments than is agreed on"


class Done(StrEnum):
    DELIVER = "deliver it; acknowledge"
    DROP = "drop it; acknowledge"
    REFUSE = "refuse it"


class Verdict(Struct, frozen=True):
    done: Done
    fault: FaultCode | None = None


_F = FaultCode
RECEIVING: Final[Mapping[Coming, Verdict]] = {
    Coming.NEW: Verdict(Done.DELIVER),
    Coming.COPY: Verdict(Done.DROP),
    Coming.LATE_COPY: Verdict(Done.DROP),
    Coming.OTHER: Verdict(Done.REFUSE, _F.INVALID_MESSAGE_ID),
    Coming.EXPIRED: Verdict(Done.REFUSE, _F.INVALID_EXPIRY_TIME),
    Coming.ORDERED: Verdict(Done.REFUSE, _F.FEATURE_NOT_SUPPORTED),
    Coming.UNACKNOWLEDGED: Verdict(Done.REFUSE, _F.INVALID_MESSAGE_PARAMETERS),
    Coming.OTHER_PATTERN: Verdict(Done.REFUSE, _F.INVALID_REPLY_PATTERN),
}

REPLIES: Final[Mapping[FaultCode | None, Input]] = {
    None: Input.ACKNOWLEDGED,
    _F.INVALID_REQUEST: Input.REFUSED,
    _F.INVALID_POLL_REQUEST: Input.UNANSWERED,
    _F.INVALID_MESSAGE_ID: Input.REFUSED,
    _F.INVALID_MESSAGE_PARAMETERS: Input.REFUSED,
    _F.INVALID_REPLY_PATTERN: Input.REFUSED,
    _F.INVALID_EXPIRY_TIME: Input.REFUSED,
    _F.FEATURE_NOT_SUPPORTED: Input.REFUSED,
    _F.PERMANENT_PROCESSING_FAILURE: Input.REFUSED,
    _F.MESSAGE_PROCESSING_FAILURE: Input.TURNED_AWAY,
    _F.GROUP_ABORTED: Input.REFUSED,
}
"""What a reply does to the message that it is about; None: it is an acknowledgment."""


class Agreed(Struct, frozen=True):
    """The way for acknowledgments."""

    pattern: ReplyPattern
    reply_to: str | None = None


def coming(
    request: Request, agreed: Agreed, message_id: str, known: str | None, now: datetime
) -> Coming:
    """What comes; `known` is the id of the message that had this identity before."""
    if request.message_order:
        return Coming.ORDERED
    if not request.ack_requested:
        return Coming.UNACKNOWLEDGED
    elsewhere = request.reply_to != agreed.reply_to and agreed.pattern is ReplyPattern.CALLBACK
    if request.reply_pattern is not agreed.pattern or elsewhere:
        return Coming.OTHER_PATTERN
    if known is not None and known != message_id:
        return Coming.OTHER
    over = now >= request.expiry_time
    if known is not None:
        return Coming.LATE_COPY if over else Coming.COPY
    return Coming.EXPIRED if over else Coming.NEW
