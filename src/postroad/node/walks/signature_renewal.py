"""A message that was kept is signed again before it is sent, when keys or P-Mode changed since."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace as changed

from postroad.msh.resign import is_current, sign_again
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.steps.bundle_rows import share_envelope
from postroad.node.walks.posting import Outgoing
from postroad.security.attachments import Attachment
from postroad.store.records import Message, State
from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError

NOTE = "signed again: keys or P-Mode changed since it was signed"
_SENDABLE = (State.READY, State.WAITING, State.SUSPENDED)


class Unsigned(Exception):
    """A message cannot be signed as its P-Mode says now."""

    def __init__(self, error: EbmsError | ValueError) -> None:
        self.detail = error.detail if isinstance(error, EbmsError) else str(error)
        super().__init__(self.detail)


async def signed_again(
    context: Context, outgoing: Outgoing, sending: Sending
) -> tuple[Outgoing, str | None]:
    """The message in the form to be sent, durable, and what the journal says if that is a new one.

    `Unsigned` when the P-Mode's terms cannot be met.
    """
    units = outgoing.units or (outgoing.message,)
    try:
        if is_signed_as_agreed(context, units, sending):
            return outgoing, None
    except (EbmsError, ValueError) as error:
        raise Unsigned(error) from None
    found = await renewed(context, units, sending)
    if found is None:
        return outgoing, None
    again = changed(outgoing, message=found[0], sent=None, made=None, sent_units=None)
    return (changed(again, units=found) if outgoing.units else again), NOTE


def is_signed_as_agreed(context: Context, units: Sequence[Message], sending: Sending) -> bool:
    """Whether keys and P-Mode are those with which an envelope was signed and encrypted."""
    leg, material = sending.match.leg, sending.material
    attached = any(one.parts for one in units)
    kept = _envelope(context, units[0])
    return is_current(kept, leg, material, dialect=sending.dialect, attached=attached)


async def renewed(
    context: Context, units: Sequence[Message], sending: Sending
) -> tuple[Message, ...] | None:
    """The units of an envelope as they are kept now that it was signed again.

    None: it stays as it was. If a copy may have arrived and the digests would change, the partner
    may answer with the receipt for that copy, which has to fit. `Unsigned` when the P-Mode's terms
    cannot be met.
    """
    leg, material = sending.match.leg, sending.material
    try:
        made = await asyncio.to_thread(
            sign_again,
            _envelope(context, units[0]),
            [one for unit in units for one in _attachments(context, unit)],
            leg,
            material,
            now=context.clock(),
            entropy=context.entropy,
            dialect=sending.dialect,
            limits=context.limits,
        )
    except (EbmsError, ValueError) as error:
        raise Unsigned(error) from None
    arrived = any(one.unanswered > 0 or one.state not in _SENDABLE for one in units)
    if arrived and not made.same_digests:
        return None
    return await context.store.run(lambda tx: share_envelope(tx, units, made.envelope, made.seal))


def _envelope(context: Context, message: Message) -> bytes:
    assert message.envelope is not None
    return read_all(context.store.content(message.envelope), message.envelope.size)


def _attachments(context: Context, message: Message) -> Sequence[Attachment]:
    """The payloads in their signed form."""
    return [
        Attachment(
            part.content_id or "",
            context.store.content(part.stored),
            part.wire_type,
            None if part.compressed else bytes.fromhex(part.sha256),
        )
        for part in message.parts
    ]
