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

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


async def signed_again(
    context: Context, outgoing: Outgoing, sending: Sending
) -> tuple[Outgoing, str | None]:
    """The message in the form to be sent, durable, and what the journal says if that is a new one.

    If a copy may have arrived and the digests would change, the message stays as it is: the partner
    may answer with the receipt for that copy, which has to fit.
    """
    message, leg, material = outgoing.message, sending.match.leg, sending.material
    assert message.envelope is not None
    kept = read_all(context.store.content(message.envelope), message.envelope.size)
    dialect, attached = sending.dialect, bool(message.parts)
    try:
        if is_current(kept, leg, material, dialect=dialect, attached=attached):
            return outgoing, None
        made = await asyncio.to_thread(
            sign_again,
            kept,
            _attachments(context, message),
            leg,
            material,
            now=context.clock(),
            entropy=context.entropy,
            dialect=dialect,
            limits=context.limits,
        )
    except EbmsError as error:
        raise Unsigned(error.detail) from None
    except ValueError as error:
        raise Unsigned(str(error)) from None
    if message.unanswered > 0 and not made.same_digests:
        return outgoing, None
    found = await context.store.run(lambda tx: _keep(tx, message, made))
    if found is None:
        return outgoing, None
    return changed(outgoing, message=found, sent=None, made=None), NOTE


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
