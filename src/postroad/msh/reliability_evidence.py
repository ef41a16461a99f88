"""What acknowledgments of WS-ReliableMessaging and WS-Reliability prove about a message.

They name the message, by its number in a sequence or by its group, and hold no digests. Both names
stand in headers of the message that its signature has to cover.
"""

from typing import Final

from postroad.msh.lens import Inspection
from postroad.reliability.ranges import holds
from postroad.wire.errors import EbmsError
from postroad.wire.wsreliability import Reply, Request

NUMBER: Final = (
    "that the receiver has the message with this number of this sequence: it repeats no digests, "
    "so it says nothing about its payloads"
)
GROUP: Final = (
    "that the receiver has the message of this group: it repeats no digests, so it says nothing "
    "about its payloads"
)
UNSIGNED: Final = "nothing to a third party: it is not signed"
MESSAGE_UNSIGNED: Final = (
    "nothing about this message: the message is not signed, so nothing ties it to what is "
    "acknowledged"
)
DISBELIEVED: Final = "nothing: the node did not believe it when it came"
BROKEN: Final = "nothing, see what is wrong"


def acknowledgment_problems(found: Inspection, message: Inspection) -> list[EbmsError]:
    """Why an envelope is no acknowledgment of a message."""
    sequence = message.rm.sequence if message.rm is not None else None
    if sequence is not None:
        acks = found.rm.acknowledgements if found.rm is not None else ()
        number = sequence.message_number
        if any(a.identifier == sequence.identifier and holds(a.ranges, number) for a in acks):
            return []
        said = f"it does not acknowledge number {number} of the sequence {sequence.identifier}"
        return [EbmsError("EBMS:0302", said, location="wsrm:SequenceAcknowledgement")]
    request = message.wsr.request if message.wsr is not None else None
    if request is not None:
        if any(one.fault is None for one in _replies(found, request)):
            return []
        said = f"it does not acknowledge the group {request.group_id}"
        return [EbmsError("EBMS:0302", said, location="wsr:Response")]
    said = "the message has no header of WS-ReliableMessaging or WS-Reliability to be acknowledged"
    return [EbmsError("EBMS:0302", said)]


def is_fault_about(found: Inspection, message: Inspection) -> bool:
    """Whether an envelope holds a fault of these protocols about a message."""
    sequence = message.rm.sequence if message.rm is not None else None
    if sequence is not None and found.rm_fault is not None:
        return found.rm_fault.identifier in (sequence.identifier, None)
    request = message.wsr.request if message.wsr is not None else None
    return request is not None and any(one.fault for one in _replies(found, request))


def _replies(found: Inspection, request: Request) -> list[Reply]:
    """What an envelope says about the message of a request."""
    number = request.sequence_num.number if request.sequence_num is not None else None
    replies = found.wsr.response if found.wsr is not None else ()
    return [
        one
        for one in replies
        if one.group_id == request.group_id
        and (
            one.first is one.last is None
            if number is None
            else one.first is not None and one.last is not None and one.first <= number <= one.last
        )
    ]


def worth_of_acknowledgment(
    found: Inspection, message: Inspection, *, holds: bool, believed: bool
) -> tuple[str | None, str]:
    """What an acknowledgment proves to whoever trusts its signer: a name, None for nothing, and a
    sentence."""
    if found.verification is None:
        return None, UNSIGNED
    if not holds or found.verification.valid is not True:
        return None, BROKEN
    if not believed:
        return None, DISBELIEVED
    if message.verification is None:
        return None, MESSAGE_UNSIGNED
    in_sequence = message.rm is not None and message.rm.sequence is not None
    return ("message_number", NUMBER) if in_sequence else ("message_id", GROUP)
