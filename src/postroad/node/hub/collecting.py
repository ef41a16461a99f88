"""Channels of an intermediary: what waits there for others, handed out to who may pull it.

A message has left when the transport took the response: its receipt goes to who sent it, not to a
hub. Until then, and if nobody knows because the process is gone, it is offered again.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from postroad.agreement.waiting import Policy
from postroad.msh.lens import Inspection
from postroad.msh.selecting import items_asked
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, signed
from postroad.node.base.requests import Response
from postroad.node.hub.forwarding import place_of
from postroad.node.settings.routes import Puller, Routing
from postroad.node.steps.outcome import Reason, apply, life_of
from postroad.reliability.delivery import Input, attempted, heard
from postroad.security.username import UsernameTokenRefused, check_username_token
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State
from postroad.transport.http_outgoing import Pieces
from postroad.wire.content import read_all
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.errors import EbmsError, Severity

_IN_ONE_PIECE: Final = 256 * 1024
_AT_ONCE: Final = 100
_HANDING: Final = Policy(timeout=timedelta(minutes=5), interval=timedelta(minutes=5), retries=None)
"""So long a response may be under way before its message is offered again."""
_log = logging.getLogger("postroad.forward")


class Collecting:
    """Answers PullRequests from what is carried for others."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def answer(
        self, found: Inspection, request: SignalMessage, now: datetime, peer: str | None
    ) -> Response | bool:
        """The message that a PullRequest gets; True: there is none; False: it may have none."""
        assert request.pull_request is not None
        if any(one.severity is Severity.FAILURE for one in found.problems):
            return False
        pullers, nonces = self._allowed(found, now)
        if not pullers:
            return False
        channel = request.pull_request.effective_mpc
        places = [(one.place(channel), place_of(one.route)) for one in pullers]
        items = items_asked(request.pull_request.selection)

        def step(tx: Transaction) -> Message | bool:
            if not all(tx.first_time(name, now, until) for name, until in nonces):
                return False
            for _ in range(_AT_ONCE):
                offer = tx.first_offer(places, now, items)
                if offer is None:
                    break
                message = self._handed(tx, offer.message_id, now, peer)
                if message is not None:
                    return message
            return True

        taken = await self._context.store.run(step)
        if isinstance(taken, bool):
            return taken
        self._context.work_came.set()
        self._context.count("send_attempts", outcome="pulled")
        _log.info("pulled", extra={"message_id": taken.wire_id, "peer": peer})
        return self._response(taken)

    def _allowed(
        self, found: Inspection, now: datetime
    ) -> tuple[list[Puller], list[tuple[str, datetime]]]:
        """The rules whose user name and password are shown. [P2-2.5.3-02] [P2-2.4.4-02]"""
        routing: Routing = self._context.in_force.routing
        tokens = found.username_tokens
        nonces: dict[str, datetime] = {}
        pullers: list[Puller] = []
        for one in routing.pulled_by(tokens[0].username) if len(tokens) == 1 else ():
            to = one.route.to.channel
            assert to is not None

            def seen(nonce: bytes, until: datetime) -> bool:
                nonces[f"collect:{tokens[0].username}:{nonce.hex()}"] = until
                return False

            try:
                check_username_token(
                    tokens[0],
                    username=one.authorization.username,
                    password=one.authorization.password.get_secret_value(),
                    now=now,
                    skew=self._context.config.clock_skew,
                    seen=seen,
                    allow_text=not to.digest,
                )
            except (EbmsError, UsernameTokenRefused):
                continue
            pullers.append(one)
        return pullers, list(nonces.items())

    def _handed(
        self, tx: Transaction, message_id: str, now: datetime, peer: str | None
    ) -> Message | None:
        """Written down before it leaves; None when it is not to be handed out any more."""
        message = tx.message(Side.FORWARDING, message_id)
        if message is None or message.state not in (State.READY, State.WAITING):
            tx.remove_offer(message_id)
            return None
        if message.expires_at is not None and now > message.expires_at:
            # Whoever gives it up tells its sender. [P2-2.5.6-23]
            tx.postpone_offer(message_id, now + _HANDING.timeout)
            if message.timer is not None:
                tx.wake_work(message.timer, now)
            return None
        number = message.attempts + 1
        decision = attempted(life_of(message), Input.UNANSWERED, _HANDING, began=now, now=now)

        def note() -> None:
            event = about(
                message,
                "forwarded",
                now,
                attempt=number,
                peer=peer,
                envelope=message.wire_id,
                wire_bytes=message.wire_bytes,
                evidence=signed(message),
            )
            tx.record((event,))

        apply(
            self._context,
            tx,
            message,
            decision,
            now,
            Reason(peer=peer),
            message.timer,
            note,
            attempts=number,
        )
        return message

    def _response(self, message: Message) -> Response:
        [part] = message.parts
        content = self._context.store.content(part.stored)

        async def handed(taken: bool) -> None:
            await self._context.store.run(lambda tx: self._left(tx, message.message_id, taken))

        if part.size <= _IN_ONE_PIECE:
            return Response(200, part.wire_type, read_all(content, part.size), handed)
        pieces = Pieces(part.size, content.chunks)
        return Response(200, part.wire_type, handed=handed, pieces=pieces)

    def _left(self, tx: Transaction, message_id: str, taken: bool) -> None:
        """The transport took the response, and the message has left; or it is offered again."""
        now = self._context.clock()
        message = tx.message(Side.FORWARDING, message_id)
        if message is None or message.state is not State.WAITING:
            return
        decision = heard(life_of(message), Input.LEFT) if taken else None
        if decision is None:
            tx.postpone_offer(message_id, now)
            return
        apply(self._context, tx, message, decision, now, Reason(), message.timer)
