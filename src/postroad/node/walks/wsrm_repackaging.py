"""A message that goes into another sequence: the same but for its number, and signed anew."""

from collections.abc import Sequence

from postroad.msh.outbound import (
    DraftPayload,
    Package,
    PackedPart,
    PackedUnit,
    package_units,
    soap_version,
)
from postroad.msh.wsrm import ack_blocks
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.steps.wsrm_states import Numbered
from postroad.node.walks.packaging import in_sequence
from postroad.store.records import Message, StoredPart
from postroad.wire.ebms3 import Property, UserMessage
from postroad.wire.wsrm import SequenceAcknowledgement


def repackaged(
    context: Context,
    message: Message,
    sent: UserMessage,
    sending: Sending,
    place: Numbered,
    acks: Sequence[SequenceAcknowledgement] = (),
) -> Package:
    """The envelope under its new number; header and payloads stay as they are kept.

    `acks` ride along with it.
    """
    beside = ack_blocks(acks, soap_version(sending.match.leg))
    unit = PackedUnit(sent, tuple([_part(context, one) for one in message.parts]))
    return package_units(
        (unit,),
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
