"""What was kept is signed again before it leaves, when keys or P-Mode changed since.

The new bytes are durable before one of them leaves, and the journal says so in the same step.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace as changed

from postroad.msh.resign import (
    Resigned,
    is_answer_current,
    is_current,
    sign_again,
    sign_answer_again,
)
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place, signed
from postroad.node.large.fragmenting import Fragmenting
from postroad.node.settings.in_force import Sending
from postroad.node.steps.bundle_rows import share_envelope
from postroad.node.steps.split_units import split_units
from postroad.node.walks.posting import Outgoing
from postroad.security.attachments import Attachment
from postroad.security.sign import Signing
from postroad.store.interface import StoreDamaged, Transaction
from postroad.store.records import Message, Signal, State
from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError

SIGNED_AGAIN: Final = "signed_again"
"""The journal's word for it."""
_WHY: Final = "keys or P-Mode changed since it was signed"
_SENDABLE: Final = (State.READY, State.WAITING, State.SUSPENDED)


class Unsigned(Exception):
    """A message cannot be signed as its P-Mode says now."""

    def __init__(self, error: EbmsError | ValueError) -> None:
        self.detail = error.detail if isinstance(error, EbmsError) else str(error)
        super().__init__(self.detail)


class SignatureRenewal:
    """Signs messages, bundles, fragments and signals again that were kept."""

    def __init__(self, context: Context, fragmenting: Fragmenting) -> None:
        self._context = context
        self._fragmenting = fragmenting

    async def current(self, outgoing: Outgoing, sending: Sending) -> Outgoing:
        """Return a message in the form to be sent, which is durable.

        `Unsigned` when the P-Mode's terms cannot be met.
        """
        units = outgoing.units or (outgoing.message,)
        try:
            if self.is_current(units, sending):
                return outgoing
        except (EbmsError, ValueError) as error:
            raise Unsigned(error) from None
        found = await self.renew(units, sending)
        if found is None:
            return outgoing
        again = changed(outgoing, message=found[0], sent=None, made=None, sent_units=None)
        return changed(again, units=found) if outgoing.units else again

    def is_current(self, units: Sequence[Message], sending: Sending) -> bool:
        """Whether keys and P-Mode are those with which an envelope was signed and encrypted."""
        leg, material = sending.match.leg, sending.material
        attached = any(one.parts or one.part_of is not None for one in units)
        kept = self._envelope(units[0])
        return is_current(kept, leg, material, dialect=sending.dialect, attached=attached)

    async def renew(self, units: Sequence[Message], sending: Sending) -> tuple[Message, ...] | None:
        """Sign an envelope again, and return its units as they are kept now.

        None: it stays as it was. If a copy may have arrived and the digests would change, the
        partner may answer with the receipt for that copy, which has to fit. `Unsigned` when the
        P-Mode's terms cannot be met.
        """
        context = self._context
        attachments = await self._attachments(units, sending)
        try:
            made = await asyncio.to_thread(
                sign_again,
                self._envelope(units[0]),
                attachments,
                sending.match.leg,
                sending.material,
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
        return await context.store.run(lambda tx: self._keep(tx, units, made))

    def is_signal_current(self, signal: Signal, how: Signing | None) -> bool:
        """Whether keys and P-Mode are those with which a receipt or an error was signed."""
        return is_answer_current(self._bytes(signal), how)

    async def renew_signal(self, signal: Signal, how: Signing | None) -> None:
        """Sign a receipt or an error again that waits for its receiver.

        `Unsigned` when the P-Mode's terms cannot be met.
        """
        context, now = self._context, self._context.clock()
        try:
            made = await asyncio.to_thread(
                sign_answer_again,
                self._bytes(signal),
                how,
                now=now,
                entropy=context.entropy,
                limits=context.limits,
            )
        except (EbmsError, ValueError) as error:
            raise Unsigned(error) from None

        def step(tx: Transaction) -> None:
            message = tx.message(signal.side, signal.message_id)
            if message is None or signal not in tx.signals(signal.side, signal.message_id):
                return
            stored = tx.keep(made)
            tx.change_signal(signal, changed(signal, envelope=stored))
            tx.drop(signal.envelope)
            said = {"signal_id": signal.signal_id, "evidence": place(stored), "detail": _WHY}
            tx.record((about(message, SIGNED_AGAIN, now, **said),))

        await context.store.run(step)

    def _envelope(self, message: Message) -> bytes:
        assert message.envelope is not None
        content = self._context.store.content(message.envelope)
        return read_all(content, message.envelope.size)

    def _bytes(self, signal: Signal) -> bytes:
        return read_all(self._context.store.content(signal.envelope), signal.envelope.size)

    async def _attachments(
        self, units: Sequence[Message], sending: Sending
    ) -> Sequence[Attachment]:
        """Return the payloads in their signed form; of a fragment its piece of the source."""
        source = units[0].part_of
        if source is None:
            return [one for unit in units for one in _payloads(self._context, unit)]
        whole = await self._context.store.look(lambda reader: split_units(reader, source))
        if not whole:
            raise StoreDamaged("the message that it is a part of is not there")
        return [self._fragmenting.source(whole, sending).piece(units[0]).attachment]

    def _keep(
        self, tx: Transaction, units: Sequence[Message], made: Resigned
    ) -> tuple[Message, ...] | None:
        """Replace the envelope, which all units share; None when one came to rest meanwhile."""
        again = share_envelope(tx, units, made.envelope, made.seal)
        if again is None:
            return None
        now = self._context.clock()
        tx.record(
            [about(one, SIGNED_AGAIN, now, evidence=signed(one), detail=_WHY) for one in again]
        )
        return again


def _payloads(context: Context, message: Message) -> Sequence[Attachment]:
    return [
        Attachment(
            part.content_id or "",
            context.store.content(part.stored),
            part.wire_type,
            None if part.compressed else bytes.fromhex(part.sha256),
        )
        for part in message.parts
    ]
