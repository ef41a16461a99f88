"""A message that was kept is signed again before it is sent, when keys or P-Mode changed since."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace as changed

from postroad.msh.resign import Resigned, is_current, sign_again
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.walks.posting import Outgoing
from postroad.security.attachments import Attachment
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State
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
    try:
        if is_signed_as_agreed(context, outgoing.message, sending):
            return outgoing, None
    except (EbmsError, ValueError) as error:
        raise Unsigned(error) from None
    found = await renewed(context, outgoing.message, sending)
    if found is None:
        return outgoing, None
    return changed(outgoing, message=found, sent=None, made=None), NOTE


def is_signed_as_agreed(context: Context, message: Message, sending: Sending) -> bool:
    """Whether keys and P-Mode are those with which a message was signed and encrypted."""
    assert message.envelope is not None
    kept = read_all(context.store.content(message.envelope), message.envelope.size)
    leg, material = sending.match.leg, sending.material
    attached = bool(message.parts)
    return is_current(kept, leg, material, dialect=sending.dialect, attached=attached)


async def renewed(context: Context, message: Message, sending: Sending) -> Message | None:
    """The message as it is kept now that it was signed again; None: it stays as it was.

    If a copy may have arrived and the digests would change, the message stays as it is: the partner
    may answer with the receipt for that copy, which has to fit. `Unsigned` when the P-Mode's terms
    cannot be met.
    """
    leg, material = sending.match.leg, sending.material
    assert message.envelope is not None
    kept = read_all(context.store.content(message.envelope), message.envelope.size)
    try:
        made = await asyncio.to_thread(
            sign_again,
            kept,
            _attachments(context, message),
            leg,
            material,
            now=context.clock(),
            entropy=context.entropy,
            dialect=sending.dialect,
            limits=context.limits,
        )
    except (EbmsError, ValueError) as error:
        raise Unsigned(error) from None
    if message.unanswered > 0 and not made.same_digests:
        return None
    return await context.store.run(lambda tx: _keep(tx, message, made))


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


def _keep(tx: Transaction, message: Message, made: Resigned) -> Message | None:
    """Replace the kept envelope; None when the message came to rest meanwhile."""
    stored = tx.keep(made.envelope)
    if not tx.change_message(
        Side.SENDING, message.message_id, _SENDABLE, envelope=stored, seal=made.seal
    ):
        tx.drop(stored)
        return None
    if message.envelope is not None:
        tx.drop(message.envelope)
    return tx.message(Side.SENDING, message.message_id)
