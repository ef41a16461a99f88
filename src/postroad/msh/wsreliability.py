"""Headers of WS-Reliability on messages, and envelopes that hold nothing else."""

from datetime import datetime
from typing import Final

from postroad.agreement.reliable import Reliable
from postroad.msh.outbound import secured_at
from postroad.msh.wsrm import Written
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import wsa_id
from postroad.wire.wsreliability import (
    Poll,
    PollRequest,
    Reply,
    ReplyPattern,
    Request,
    write_poll_request,
    write_request,
    write_response,
)

_ID: Final = "_reliability"


def group_of(message_id: str) -> str:
    """The group of a message, which is its only one."""
    return wsa_id(message_id)


def message_of(group_id: str) -> str:
    """The message of a group that we made."""
    return group_id.removeprefix("mid:")


def request_block(
    agreed: Reliable, message_id: str, expires: datetime, version: SoapVersion
) -> Block:
    """The header of a message that is sent reliably; ValueError where its id cannot be one."""
    callback = agreed.pattern == ReplyPattern.CALLBACK.value
    request = Request(
        group_of(message_id),
        expires,
        ReplyPattern(agreed.pattern),
        reply_to=agreed.acks_to if callback else None,
        ack_requested=True,
        duplicate_elimination=agreed.at_most_once,
    )
    return Block(_ID, write_request(request, version, id=_ID))


def write_replies(
    replies: tuple[Reply, ...],
    version: SoapVersion,
    *,
    message_id: str,
    now: datetime,
    how: Signing | None,
) -> Written:
    """Acknowledgments and faults alone, signed as answers are."""
    return _alone(write_response(replies, version, id=_ID), version, message_id, now, how)


def write_poll(
    message: str, version: SoapVersion, *, message_id: str, now: datetime, how: Signing | None
) -> Written:
    """A question for the acknowledgment of a message."""
    asked = PollRequest((Poll(group_of(message)),))
    return _alone(write_poll_request(asked, version, id=_ID), version, message_id, now, how)


def _alone(
    block: str, version: SoapVersion, message_id: str, now: datetime, how: Signing | None
) -> Written:
    lifetime = secured_at(now) if how else None
    secured = secure(version, [Block(_ID, block)], [], signing=how, lifetime=lifetime)
    return Written(message_id, version, secured.envelope, "")
