"""Who is pulled from: messages wait in their channels, and PullRequests are answered by them.

A message is put into its channel in the step that takes it over, and handed out in the step that
writes down the attempt. It leaves the channel by its receipt or an error (`node.outcome`), and is
offered again when none came in time, with the same bytes.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from postroad.agreement.channels import pulling_of
from postroad.agreement.matching import Match, header
from postroad.agreement.waiting import Policy
from postroad.msh.answers import sent_message
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.outbound import WireForm, WirePart, wire_form
from postroad.msh.pulling import Allowed, Channel, allowed, bundled_wrong
from postroad.msh.selecting import items_asked, items_of
from postroad.node.calling import SENT
from postroad.node.context import Context
from postroad.node.fragmenting import Fragmenting
from postroad.node.in_force import Sending
from postroad.node.journaling import about, place, signed
from postroad.node.outcome import Reason, apply, due, give_up, left_as, life_of
from postroad.node.requests import Request, Response
from postroad.node.service import Refused
from postroad.reliability.breaker import Gate
from postroad.reliability.delivery import Input, attempted
from postroad.reliability.schedule import ends_at
from postroad.store.interface import StoreDamaged, StoreError, Transaction
from postroad.store.records import Message, Offer, Side, Signal, State, Work
from postroad.transport.http_outgoing import Pieces
from postroad.wire.content import read_all
from postroad.wire.ebms3 import SignalMessage, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap import SoapVersion

WAITING: Final = (State.READY, State.WAITING)
_IN_ONE_PIECE: Final = 256 * 1024
_SEALED_TYPE: Final = "application/octet-stream"
_VERSIONS: Final = {version.number: version for version in SoapVersion}
_MAY_NOT_PULL: Final = "what it shows allows nobody to pull from that channel"
_NOT_YET: Final = datetime(9000, 1, 1, tzinfo=UTC)
_LATER: Final = timedelta(hours=1)
"""How soon a message without its P-Mode is looked at again."""
_AT_ONCE: Final = 100
"""Messages whose time is over that one step gives up."""
_log = logging.getLogger("postroad.offer")


def offer(tx: Transaction, message: Message, sent: UserMessage, now: datetime) -> bool:
    """Put a message into its channel; False when it is there already."""
    assert message.channel is not None
    added = Offer(
        message.channel, message.pmode or "", message.message_id, now, items_of(sent), None
    )
    if not tx.add_offer(added):
        return False
    tx.record((about(message, "queued", now),))
    return True


def reserve(tx: Transaction, message: Message) -> None:
    """A message that is still packaged takes its room in the channel, and nobody gets it yet."""
    assert message.channel is not None
    room = (message.channel, message.pmode or "", message.message_id, message.created_at)
    tx.add_offer(Offer(*room, due_at=_NOT_YET))


def _is_reserved(offer: Offer, message: Message) -> bool:
    """Whether only the room is taken: it is not offered, and never was."""
    return offer.due_at is not None and message.attempts == 0


def check_room(tx: Transaction, sending: Sending) -> None:
    """`Refused` when a channel holds as much as it may."""
    channel, most = sending.channel, sending.capacity
    if channel is None or most is None or tx.queue(channel).count < most:
        return
    said = f"{most} messages wait in the channel {channel}, and it holds no more"
    raise Refused(503, f"{said}; submit it again when some were pulled", code="EBMS:0021")


def offer_work(message: Message, sending: Sending) -> Work | None:
    """The work that ends a message which nobody pulls in time; None where there is no end."""
    end = ends_at(sending.policy, message.created_at, message.first_sent_at)
    return None if end is None else Work("offer", message.message_id, end, expires_at=end)


class Withheld(Struct, frozen=True):
    """Why a PullRequest gets no message."""

    problems: tuple[EbmsError, ...]
    match: Match | None = None
    """How the answer is signed; None where nobody showed who asks."""
    why: str | None = None
    """What the journal is told; nothing of a channel that is merely empty."""


class Offering:
    """The channels of a node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fragmenting = Fragmenting(context)

    async def perform(self, work: Work) -> None:
        """Look at a message whose time has come: given up, or seen to that it is offered."""
        context, now = self._context, self._context.clock()
        message = await context.store.look(
            lambda reader: reader.message(Side.SENDING, work.message_id)
        )
        if message is None or message.state not in (*WAITING, State.SUSPENDED):
            await context.store.run(lambda tx: tx.finish_work(work.id, work.owner))
            return
        try:
            policy = context.in_force.sending_of(message).policy
        except Refused as refused:
            _log.warning(
                "nobody can pull it", extra={"message_id": work.message_id, "detail": str(refused)}
            )
            await self._without_pmode(message, work, now)
            return
        decision = due(message, policy, now)
        if decision is not None:
            await context.store.run(give_up(context, message, work, decision, now))
            context.settled.tell(message.message_id)
            context.told()
            return
        sent = await self._unoffered(message) if message.channel is not None else None
        end = ends_at(policy, message.created_at, message.first_sent_at)

        def step(tx: Transaction) -> None:
            found = tx.message(Side.SENDING, work.message_id)
            if found is None or found.state not in WAITING:
                tx.finish_work(work.id, work.owner)
                return
            if sent is not None:
                tx.remove_offer(work.message_id)
                offer(tx, found, sent, now)
            # Of a reply that was the response the receipt is waited for.
            due_at = found.due_at if found.channel is None else None
            tx.postpone_work(work.id, due_at or end, owner=work.owner)
            tx.change_message(Side.SENDING, work.message_id, WAITING, timer=work.id)

        await context.store.run(step)

    async def _without_pmode(self, message: Message, work: Work, now: datetime) -> None:
        """It expires as was agreed on; until then its P-Mode may come back, and it is pulled."""
        context, end = self._context, work.expires_at
        if end is None or end > now:
            later = now + _LATER if end is None else min(now + _LATER, end)
            await context.store.run(lambda tx: tx.postpone_work(work.id, later, owner=work.owner))
            return
        over = due(message, Policy(time_to_live=end - message.created_at), now)
        assert over is not None
        await context.store.run(give_up(context, message, work, over, now))
        context.settled.tell(message.message_id)
        context.told()

    async def _unoffered(self, message: Message) -> UserMessage | None:
        """The header of a message that is to be put into its channel; None: it is there."""
        store, stored = self._context.store, message.envelope
        there = await store.look(lambda reader: reader.offer(message.message_id))
        if there is not None and not _is_reserved(there, message):
            return None
        assert stored is not None
        try:
            kept = read_all(store.content(stored), stored.size)
        except StoreDamaged as lost:
            _log.error("not offered", extra={"message_id": message.message_id, "detail": str(lost)})
            return None
        return sent_message(kept, self._context.limits).user_message

    def malformed(self, found: Inspection) -> Withheld | None:
        """What is wrong with a PullRequest as such, whoever asks."""
        assert found.messaging is not None
        wrong = [one for one in found.problems if one.severity is Severity.FAILURE]
        if bundled_wrong(found.messaging):
            said = "beside a PullRequest stand at most one receipt and one error"
            wrong.append(EbmsError("EBMS:0008", said, location="eb:Messaging"))
        return Withheld(tuple(wrong), why=wrong[0].detail) if wrong else None

    def judge(self, look: Look, request: SignalMessage, asked: Request, now: datetime) -> Allowed:
        """What a PullRequest may have."""
        channels = self._context.in_force.channels
        look.judge(channels.terms)
        return allowed(
            look.found,
            request,
            channels,
            client_certificate=asked.client_certificate,
            now=now,
            skew=self._context.config.clock_skew,
        )

    async def answer(
        self, request: SignalMessage, may: Allowed, peer: str | None, now: datetime
    ) -> "Response | Withheld":
        """The message that a PullRequest gets, or what keeps it from one."""
        assert request.pull_request is not None
        why = may.why
        if may.matches:
            response, new = await self._hand_out(request, may, now, peer)
            if response is not None:
                return response
            if new:
                return Withheld((nothing(),), may.matches[0])
            why = "it came before: its nonce or its id was used already"
        channel = request.pull_request.effective_mpc[:200]
        refusal = EbmsError("EBMS:0101", _MAY_NOT_PULL)
        return Withheld((refusal,), why=f"a PullRequest for {channel}: {why}")

    async def _hand_out(
        self, request: SignalMessage, may: Allowed, now: datetime, peer: str | None
    ) -> tuple[Response | None, bool]:
        """What came first and may be had, once it is written down that it left.

        None: there is none. False: the request came before.
        """
        context = self._context
        assert request.pull_request is not None
        items = items_asked(request.pull_request.selection)
        dice = context.dice()

        def first(tx: Transaction) -> tuple[WireForm | Signal | None, str, bool] | None:
            if not all(tx.first_time(name, now, until) for name, until in may.once):
                return None, "", False
            return step(tx)

        def step(tx: Transaction) -> tuple[WireForm | Signal | None, str, bool] | None:
            """None: so many were given up that the next step goes on."""
            served = [one.place for one in may.places if not self._is_suspended(tx, one)]
            for _ in range(_AT_ONCE):
                found = tx.first_offer(served, now, items)
                if found is None:
                    return None, "", True
                given = (
                    self._handed(tx, found.message_id, now, peer, dice)
                    if found.about is None
                    else self._signal_handed(tx, found, now, peer)
                )
                if given is not None:
                    return given, found.message_id, True
            return None

        outcome = await context.store.run(first)
        while outcome is None:
            outcome = await context.store.run(step)
        given, name, new = outcome
        if given is None:
            return None, new
        if isinstance(given, WireForm):
            context.count("send_attempts", outcome="pulled")
            context.settled.tell(name)
        _log.info("pulled", extra={"message_id": name, "peer": peer})
        return self._response(given), new

    def _response(self, form: WireForm | Signal) -> Response:
        if isinstance(form, Signal):
            stored = form.envelope
            envelope = read_all(self._context.store.content(stored), stored.size)
            return Response(200, form.content_type, envelope)
        if form.length <= _IN_ONE_PIECE:
            return Response(200, form.content_type, b"".join(form.pieces()))
        return Response(200, form.content_type, pieces=Pieces(form.length, form.pieces))

    def _is_suspended(self, tx: Transaction, channel: Channel) -> bool:
        """Whether no messages are to go to the receiver until somebody resumes."""
        if channel.signals:
            return False
        receiver = str(header(channel.match.pmode, channel.match.number).to_party)
        return tx.partner(receiver).gate is Gate.SUSPENDED

    def _signal_handed(
        self, tx: Transaction, offer: Offer, now: datetime, peer: str | None
    ) -> Signal | None:
        """A signal is gone once it was handed out: should it be lost, a copy brings it back.

        None when it is kept no longer, or too old.
        """
        tx.remove_offer(offer.message_id)
        message = tx.message(Side.RECEIVING, offer.about or "")
        match = self._context.in_force.match(offer.pmode, message.leg) if message else None
        keep = pulling_of(match.leg).keep if match is not None else None
        if message is None or (keep is not None and now - offer.added_at > keep):
            return None
        for signal in tx.signals(Side.RECEIVING, message.message_id):
            if signal.signal_id != offer.message_id:
                continue
            event = SENT.get(signal.kind)
            if event is not None:
                told = {"signal_id": signal.signal_id, "evidence": place(signal.envelope)}
                tx.record((about(message, event, now, peer=peer, **told),))
            return signal
        return None

    def _handed(
        self, tx: Transaction, message_id: str, now: datetime, peer: str | None, dice: float
    ) -> WireForm | None:
        """The attempt is written down; None when the message is not to be handed out any more."""
        context = self._context
        message = tx.message(Side.SENDING, message_id)
        if message is None or message.state not in WAITING:
            tx.remove_offer(message_id)
            return None
        sending = context.in_force.sending_of(message)
        timer = message.timer
        over = due(message, sending.policy, now)
        if over is not None:
            reason = Reason(None, None, message.peer)
            apply(context, tx, message, over, now, reason, timer)
            return None
        result = Input.UNANSWERED if sending.awaits else Input.LEFT
        reason, form, length = Reason(peer=peer), None, 0
        try:
            form = self._form(message) if message.part_of is None else self._cut(tx, message)
            length = form.length
        except StoreError as lost:
            # It stands in nobody's way: the next one is handed out.
            result = Input.NOT_SENT
            reason = Reason("EBMS:0005", f"it cannot be read: {lost}", peer)
        decision = attempted(
            life_of(message), result, sending.policy, began=now, now=now, dice=dice, hope=True
        )
        ends = sending.policy.retries is not None or ends_at(sending.policy, now, now) is not None
        if timer is None and decision.due is not None and ends:
            timer = tx.add_work(Work("offer", message_id, decision.due))
        left, number = result is not Input.NOT_SENT, message.attempts + 1

        def note() -> None:
            event = about(
                message,
                left_as(message, number) if left else "send_failed",
                now,
                attempt=number,
                peer=peer,
                envelope=message_id if left else None,
                wire_bytes=length if left else None,
                detail=reason.detail,
                evidence=signed(message) if left else None,
            )
            tx.record((event,))

        tried: dict[str, Any] = {"attempts": number, "wire_bytes": length, "peer": peer}
        apply(context, tx, message, decision, now, reason, timer, note, **tried)
        return form

    def hand_out(
        self, tx: Transaction, reply: Message, now: datetime, peer: str | None, dice: float
    ) -> WireForm | None:
        """A reply that is the response leaves; None when it is not to any more."""
        return self._handed(tx, reply.message_id, now, peer, dice)

    def respond(self, message: Message) -> Response:
        """A message as the response: large ones in pieces."""
        return self._response(self._form(message))

    def _cut(self, tx: Transaction, message: Message) -> WireForm:
        """A fragment as it goes over the wire; `StoreDamaged` when its message is not there."""
        whole = tx.message(Side.SENDING, message.part_of or "")
        if whole is None:
            raise StoreDamaged("the message that it is a part of is not there")
        sending = self._context.in_force.sending_of(message)
        return self._fragmenting.form(whole, message, sending)

    def _form(self, message: Message) -> WireForm:
        """The message as it goes over the wire: the same bytes each time."""
        store = self._context.store
        assert message.envelope is not None
        contents = [store.content(part.stored) for part in message.parts]
        if message.seal is not None:
            contents = list(message.seal.on(contents))
        parts = [
            WirePart(
                part.content_id or "",
                part.wire_type if message.seal is None else _SEALED_TYPE,
                content,
                part.file_name,
            )
            for part, content in zip(message.parts, contents, strict=True)
        ]
        envelope = read_all(store.content(message.envelope), message.envelope.size)
        return wire_form(_VERSIONS[message.soap], envelope, parts, message.boundary)


def nothing() -> EbmsError:
    """Neither a message, nor one that is selected. [P2-5.1-07]"""
    said = "no message is there to be pulled"
    return EbmsError("EBMS:0006", said, location="eb:PullRequest/@mpc")
