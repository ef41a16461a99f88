"""A message, or a bundle, that gets its number in a sequence after it was put together.

It is complete before it is numbered and signed, and stays as it is when it goes into another
sequence under another number. [P2-3.2.2-11]
"""

from collections.abc import Sequence

from postroad.msh.outbound import (
    DraftPayload,
    Package,
    PackedPart,
    PackedUnit,
    package_units,
    soap_version,
)
from postroad.msh.wsrm import ack_blocks, sequence_blocks
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.steps.wsrm_states import Numbered
from postroad.security.sign import Block
from postroad.store.records import Message, StoredPart
from postroad.wire.ebms3 import Property, UserMessage
from postroad.wire.wsa import EndpointReference
from postroad.wire.wsrm import Sequence as RmSequence
from postroad.wire.wsrm import SequenceAcknowledgement


def in_sequence(sending: Sending, place: Numbered | None) -> list[Block]:
    """The headers of a message in a sequence."""
    if place is None:
        return []
    sequence = RmSequence(place.identifier, place.number)
    return sequence_blocks(sequence, soap_version(sending.match.leg))


def repackaged(
    context: Context,
    messages: Sequence[Message],
    sent: Sequence[UserMessage],
    sending: Sending,
    place: Numbered,
    acks: Sequence[SequenceAcknowledgement] = (),
    routed_by: EndpointReference | None = None,
) -> Package:
    """The envelope under its new number; headers and payloads stay as they are kept.

    `messages` are all units of a bundle, the primary first, or one alone; `acks` ride along. A
    reply goes where its request asked for it, by `routed_by`.
    [P2-3.2.2-01] [P2-3.2.2-08]
    """
    beside = ack_blocks(acks, soap_version(sending.match.leg))
    units = [
        PackedUnit(header, tuple([_part(context, part) for part in one.parts]), routed_by=routed_by)
        for one, header in zip(messages, sent, strict=True)
    ]
    return package_units(
        units,
        sending.match,
        sending.material,
        now=context.clock(),
        entropy=context.entropy,
        headers=in_sequence(sending, place) + beside,
        address=sending.address,
        limits=context.limits,
    )


def _part(context: Context, part: StoredPart) -> PackedPart:
    content = context.store.content(part.stored)
    payload = DraftPayload(
        content,
        bytes.fromhex(part.sha256),
        part.media_type,
        part.content_id or "",
        part.file_name,
    )
    named = tuple(Property(*one) for one in part.properties)
    return PackedPart(payload, content, part.wire_type, part.compressed, named)
