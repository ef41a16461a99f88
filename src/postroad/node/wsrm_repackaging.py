"""A message that goes into another sequence: the same but for its number, and signed anew."""

from postroad.msh.outbound import DraftPayload, Package, PackedPart, PackedUnit, package_units
from postroad.node.context import Context
from postroad.node.in_force import Sending
from postroad.node.packaging import in_sequence
from postroad.node.wsrm_states import Numbered
from postroad.store.records import Message, StoredPart
from postroad.wire.ebms3 import Property, UserMessage


def repackaged(
    context: Context, message: Message, sent: UserMessage, sending: Sending, place: Numbered
) -> Package:
    """The envelope under its new number; header and payloads stay as they are kept."""
    unit = PackedUnit(sent, tuple([_part(context, one) for one in message.parts]))
    return package_units(
        (unit,),
        sending.match,
        sending.material,
        now=context.clock(),
        entropy=context.entropy,
        headers=in_sequence(sending, place),
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
