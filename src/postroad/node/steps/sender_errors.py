"""Errors that the sender of a message finds, told to SenderErrorsTo (Core D.3.4; Part 2, 2.7.1.4).

They are about messages that never arrived, or of which nobody heard: what the partner said against
a message it said itself.
"""

import base64
from datetime import datetime
from typing import Final

import msgspec

from postroad.agreement.matching import Match
from postroad.agreement.places import report_of
from postroad.msh.answers import Answer, error, write_answer
from postroad.msh.forwarding import read_routable
from postroad.msh.outbound import soap_version
from postroad.msh.routing_headers import sender_error_routing
from postroad.msh.securing import Unsecurable, answer_signing
from postroad.node.base.context import Context
from postroad.node.steps.calling import Call
from postroad.reliability.awareness import INVALID_RECEIPT, MISSING_RECEIPT
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, Work
from postroad.wire.content import read_all
from postroad.wire.ebms3 import UserMessage
from postroad.wire.errors import EbmsError

_FAILURE: Final = "EBMS:0202"
_OWN: Final = frozenset((None, _FAILURE, "EBMS:0005", MISSING_RECEIPT, INVALID_RECEIPT))
"""The codes of what the sender finds; all others are the partner's."""


def addresses(match: Match) -> tuple[str, ...]:
    """Where the sender's errors about messages of a leg go.

    With routing input and no address they go to the sender's own hub.
    """
    to = report_of(match.leg).sender_errors_to
    if to is None:
        return ()
    hub = match.leg.protocol.address if match.leg.protocol else None
    return to.value or ((hub,) if to.addressing is not None and hub is not None else ())


def is_told(context: Context, message: Message, error_code: str | None) -> bool:
    """Whether somebody is told that a message was given up."""
    if message.side is not Side.SENDING or error_code not in _OWN:
        return False
    match = context.in_force.match(message.pmode, message.leg)
    return match is not None and match.leg.ebxml is None and bool(addresses(match))


class SenderErrors:
    """Makes the errors, and the work of sending them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def perform(self, work: Work) -> None:
        context, now = self._context, self._context.clock()
        message = await context.store.look(
            lambda reader: reader.message(Side.SENDING, work.message_id)
        )
        calls = [] if message is None else self._calls(message, now)

        def step(tx: Transaction) -> None:
            for call in calls:
                tx.add_work(Work("signal", work.message_id, now, msgspec.json.encode(call)))
            tx.finish_work(work.id, work.owner)

        await context.store.run(step)
        context.work_came.set()

    def _calls(self, message: Message, now: datetime) -> list[Call]:
        match = self._context.in_force.match(message.pmode, message.leg)
        sent = self._sent(message)
        if match is None or sent is None:
            return []
        answer = self._answer(message, sent, match, now)
        envelope = base64.b64encode(answer.envelope).decode()
        return [
            Call(
                url,
                "error",
                answer.signal_id,
                answer.content_type,
                envelope,
                match.pmode.id,
                leg=match.number,
            )
            for url in addresses(match)
        ]

    def _sent(self, message: Message) -> UserMessage | None:
        """Its header; None where it was never packaged."""
        context, kept = self._context, message.envelope
        if kept is None:
            return None
        found = read_routable(read_all(context.store.content(kept), kept.size), context.limits)
        units = found.messaging.user_messages if found.messaging is not None else ()
        ids = (one for one in units if one.message_info.message_id == message.message_id)
        return next(ids, None)

    def _answer(self, message: Message, sent: UserMessage, match: Match, now: datetime) -> Answer:
        context, ref = self._context, message.message_id
        problem = EbmsError(message.error_code or _FAILURE, message.detail or "it did not arrive")
        signal = error([problem], signal_id=context.new_id(now), ref=ref, now=now)
        try:
            how = answer_signing(match.leg, context.in_force.keyring.signing)
        except Unsecurable:
            how = None
        version = soap_version(match.leg)
        return write_answer(signal, version, how, now, sender_error_routing(match, sent))
