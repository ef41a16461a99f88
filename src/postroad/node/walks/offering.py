"""Who is pulled from: messages wait in their channels, and PullRequests are answered by them.

A message is put into its channel in the step that takes it over, and handed out in the step that
writes down the attempt. It leaves the channel by its receipt or an error (`steps.outcome`), and is
offered again when none came in time, with the same bytes.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from postroad.agreement.channels import pulling_of
from postroad.agreement.matching import Match, header
from postroad.agreement.waiting import Policy
from postroad.msh.answers import sent_messages
from postroad.msh.bundle_rules import BUNDLING_ERROR
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.outbound import WireForm, WirePart, wire_form
from postroad.msh.pulling import Allowed, Channel, allowed, bundled_wrong
from postroad.msh.resign import expired
from postroad.msh.securing import signs
from postroad.msh.selecting import items_asked
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place, signed
from postroad.node.base.requests import Request, Response
from postroad.node.bundles.draining import (
    Drained,
    Unplanned,
    bundled,
    cut_bundle,
    drain,
    may_be_bundled,
)
from postroad.node.bundles.outcome import unit_ids
from postroad.node.bundles.units import LONELY
from postroad.node.large.fragmenting import Fragmenting
from postroad.node.large.splitting import Cut, Splitting
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.attempts import due, give_up, left_as
from postroad.node.steps.bundle_rows import units_of
from postroad.node.steps.calling import SENT
from postroad.node.steps.offers import is_reserved, needs_company_until, offer
from postroad.node.steps.outcome import Reason, apply, fail, life_of, unpackable
from postroad.node.steps.split_units import split_units
from postroad.node.walks.signature_renewal import SignatureRenewal, Unsigned
from postroad.reliability.breaker import Gate
from postroad.reliability.delivery import Input, attempted
from postroad.reliability.schedule import ends_at
from postroad.store.interface import Place, StoreDamaged, StoreError, Transaction
from postroad.store.records import Event, Message, Offer, Side, Signal, State, Work
from postroad.transport.http_outgoing import Pieces
from postroad.wire.content import read_all
from postroad.wire.ebms3 import SignalMessage, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap import SoapVersion
from postroad.wire.wsrm import SequenceAcknowledgement

WAITING: Final = (State.READY, State.WAITING)
_IN_ONE_PIECE: Final = 256 * 1024
_VERSIONS: Final = {version.number: version for version in SoapVersion}
_MAY_NOT_PULL: Final = "what it shows allows nobody to pull from that channel"
CAME_BEFORE: Final = "it came before: its nonce or its id was used already"
_LATER: Final = timedelta(hours=1)
"""How soon a message without its P-Mode is looked at again."""
_AT_ONCE: Final = 100
"""Messages whose time is over that one step gives up."""
_Given = WireForm | Signal | Work
"""What is handed out; or what has to be done before."""
_log = logging.getLogger("postroad.offer")


class Withheld(Struct, frozen=True):
    """Why a PullRequest gets no message."""

    problems: tuple[EbmsError, ...]
    match: Match | None = None
    """How the answer is signed; None where nobody showed who asks."""
    why: str | None = None
    """What the journal is told; nothing of a channel that is merely empty."""
    acks: tuple[SequenceAcknowledgement, ...] = ()
    """Of the PullRequests, where these are sent in a sequence."""


class _Outdated(Exception):
    """What is to be handed out was signed with other keys or terms; `renew` signs it again."""

    def __init__(self, name: str, renew: Callable[[], Awaitable[object]]) -> None:
        super().__init__(name)
        self.name = name
        self.renew = renew


class Offering:
    """The channels of a node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fragmenting = Fragmenting(context)
        self._splitting = Splitting(context)
        self._renewal = SignatureRenewal(context, self._fragmenting)
        self._held: set[tuple[Place, bool]] = set()
        """Channels, of messages or signals, from which nothing is handed out; the log was told."""

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
            sending = context.in_force.sending_of(message)
        except Refused as refused:
            _log.warning(
                "nobody can pull it", extra={"message_id": work.message_id, "detail": str(refused)}
            )
            await self._without_pmode(message, work, now)
            return
        policy = sending.policy
        decision = due(message, policy, now)
        ended: Callable[[Transaction], object] | None = None
        if decision is not None:
            ended = give_up(context, message, work, decision, now)
        elif await self._is_lonely(message, sending, now):
            said = (LONELY, now, BUNDLING_ERROR)
            ended = lambda tx: unpackable(context, tx, message, work, *said)  # noqa: E731
        if ended is not None:
            await context.store.run(ended)
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
            # Of a reply that was the response the receipt is waited for. Whoever sends it again
            # can only wait for another request.
            due_at = found.due_at if found.channel is None else None
            waits = due_at if due_at is not None and due_at > now else end
            if waits is None:
                tx.finish_work(work.id, work.owner)
            else:
                tx.postpone_work(work.id, waits, owner=work.owner)
            timer = None if waits is None else work.id
            tx.change_message(Side.SENDING, work.message_id, WAITING, timer=timer)

        await context.store.run(step)

    async def _is_lonely(self, message: Message, sending: Sending, now: datetime) -> bool:
        """Whether a message must be bundled, and nobody came in time to go with it. [P2-3.5-06]"""
        until = needs_company_until(message, sending)
        if until is None or now < until or not may_be_bundled(message, sending):
            return False
        channels = self._context.in_force.channels.at(message.channel or "")
        places = [one.place for one in channels if not one.signals]
        drained = await drain(self._context, lambda tx: places, now, whose=message)
        return message.message_id in drained.lonely

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
        if there is not None and not is_reserved(there, message):
            return None
        assert stored is not None
        try:
            kept = read_all(store.content(stored), stored.size)
        except StoreDamaged as lost:
            _log.error("not offered", extra={"message_id": message.message_id, "detail": str(lost)})
            return None
        return sent_messages(kept, self._context.limits)[message.message_id].user_message

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
            revocation=self._context.in_force.revocation,
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
            why = CAME_BEFORE
        return refused(request, why)

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
        drained: Drained | None = None
        renewed: set[str] = set()
        open_places = [one for one in may.places if not self.is_held(one, now)]

        def places(tx: Transaction) -> list[Place]:
            return [one.place for one in open_places if not self.is_suspended(tx, one)]

        def first(tx: Transaction) -> tuple[_Given | None, str, bool] | None:
            if not all(tx.first_time(name, now, until) for name, until in may.once):
                return None, "", False
            return step(tx)

        def step(tx: Transaction) -> tuple[_Given | None, str, bool] | None:
            """None: so many were given up that the next step goes on."""
            served = places(tx)
            for _ in range(_AT_ONCE):
                found = self._next(tx, served, now, items, drained)
                if found is None:
                    return None, "", True
                given = (
                    self._handed(tx, found.message_id, now, peer, dice, drained, renewed)
                    if found.about is None
                    else self._signal_handed(tx, found, now, peer, renewed)
                )
                if given is not None:
                    return given, found.message_id, True
            return None

        outcome, begun = None, first
        while outcome is None:
            try:
                outcome = await context.store.run(begun)
                begun = step
            except Unplanned:
                drained = await drain(context, places, now, items)
            except _Outdated as outdated:
                renewed.add(outdated.name)
                await self._renew(outdated)
            if outcome is not None and isinstance(outcome[0], Work):
                await self._write_fragments(outcome[0])
                outcome = drained = None
        given, name, new = outcome
        if given is None or isinstance(given, Work):
            return None, new
        if isinstance(given, WireForm):
            context.count("send_attempts", outcome="pulled")
            context.settled.tell(name)
        _log.info("pulled", extra={"message_id": name, "peer": peer})
        return self.response(given), new

    def is_held(self, channel: Channel, now: datetime) -> bool:
        """Whether nothing is handed out of a channel, as our certificate has expired."""
        match, in_force = channel.match, self._context.in_force
        if not signs(match.leg):
            return False
        # Signals are signed with the key of the node, messages with that of their P-Mode.
        key = in_force.keyring.signing
        if not channel.signals:
            key = in_force.sending(match.pmode.id, match.number).material.signing
        held, name = expired(match.leg, key, now), (channel.place, channel.signals)
        if held is None:
            self._held.discard(name)
        elif name not in self._held:
            self._held.add(name)
            _log.warning("not handed out", extra={"pmode": match.pmode.id, "detail": held})
        return held is not None

    async def _renew(self, outdated: _Outdated) -> None:
        """Sign again what is to be handed out; it stays as it was where that cannot be."""
        try:
            await outdated.renew()
        except (Unsigned, StoreDamaged) as why:
            extra = {"message_id": outdated.name, "detail": str(why)}
            _log.warning("not signed again", extra=extra)

    async def _write_fragments(self, work: Work) -> None:
        """A bundle was cut for who asks now: its first fragment is what that one gets."""
        context = self._context
        context.in_hand.add(work.id)
        try:
            await self._splitting.perform(work)
        except BaseException:
            context.let_go[work.id] = False
            raise
        finally:
            context.in_hand.discard(work.id)

    def _next(
        self,
        tx: Transaction,
        places: Sequence[Place],
        now: datetime,
        items: Sequence[str],
        drained: Drained | None,
    ) -> Offer | None:
        """What came first, but for those that wait for company."""
        staying = drained.staying if drained is not None else ()
        if not staying:
            return tx.first_offer(places, now, items)
        found = tx.first_offers(places, now, items, len(staying) + 1)
        return next((one for one in found if one.message_id not in staying), None)

    def response(self, form: WireForm | Signal) -> Response:
        if isinstance(form, Signal):
            stored = form.envelope
            envelope = read_all(self._context.store.content(stored), stored.size)
            return Response(200, form.content_type, envelope)
        if form.length <= _IN_ONE_PIECE:
            return Response(200, form.content_type, b"".join(form.pieces()))
        return Response(200, form.content_type, pieces=Pieces(form.length, form.pieces))

    def is_suspended(self, tx: Transaction, channel: Channel) -> bool:
        """Whether no messages are to go to the receiver until somebody resumes."""
        if channel.signals:
            return False
        receiver = str(header(channel.match.pmode, channel.match.number).to_party)
        return tx.partner(receiver).gate is Gate.SUSPENDED

    def _signal_handed(
        self, tx: Transaction, offer: Offer, now: datetime, peer: str | None, renewed: Set[str]
    ) -> Signal | None:
        """A signal is gone once it was handed out: should it be lost, a copy brings it back.

        None when it is kept no longer, or too old. `_Outdated` where it is to be signed again,
        which was tried for those that are `renewed`.
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
            if match is not None and signal.signal_id not in renewed:
                self._check_signal(signal, match)
            event = SENT.get(signal.kind)
            if event is not None:
                told = {"signal_id": signal.signal_id, "evidence": place(signal.envelope)}
                tx.record((about(message, event, now, peer=peer, **told),))
            return signal
        return None

    def _handed(
        self,
        tx: Transaction,
        message_id: str,
        now: datetime,
        peer: str | None,
        dice: float,
        drained: Drained | None = None,
        renewed: Set[str] | None = None,
    ) -> WireForm | Work | None:
        """The attempt is written down; None when the message is not to be handed out any more.

        `Unplanned` where it may be bundled, and that was not planned. Where its bundle is cut, the
        work that writes the fragments. `_Outdated` where it is to be signed again, which was tried
        for those that are `renewed`; None: it goes as it was signed.
        """
        context = self._context
        message = tx.message(Side.SENDING, message_id)
        if message is None or message.state not in WAITING:
            tx.remove_offer(message_id)
            return None
        sending = context.in_force.sending_of(message)
        if message.bundle is not None:
            ids = unit_ids(context, message)
            kept = units_of(tx, ids)
            if len(kept) == len(ids):
                self._check(kept, sending, renewed)
            return self._units_handed(tx, kept, len(ids), now, peer, dice)
        if self.is_over(tx, message, sending.policy, now):
            return None
        if may_be_bundled(message, sending):
            if drained is None or message_id not in drained.known:
                raise Unplanned
            if message_id in drained.lonely:
                reason = Reason(BUNDLING_ERROR, LONELY)
                fail(context, tx, message, now, reason, message.timer)
                return None
            if any(one.message_id == message_id for one in drained.units):
                if isinstance(drained.made, Cut):
                    return cut_bundle(context, tx, drained, now)
                units, made = bundled(tx, drained, now)
                return self._units_handed(tx, units, len(units), now, peer, dice, made.envelope)
        self._check((message,), sending, renewed)
        form = self._readable(tx, message, [message])
        self.note_attempt(tx, message, sending, sending.policy, form, now, peer, dice)
        return form if isinstance(form, WireForm) else None

    def _check(self, units: Sequence[Message], sending: Sending, renewed: Set[str] | None) -> None:
        """`_Outdated` if an envelope is to be signed again first."""
        name = units[0].message_id
        if renewed is None or name in renewed:
            return
        try:
            current = self._renewal.is_current(units, sending)
        except (EbmsError, ValueError, StoreError):
            # It goes as it was signed, or is found to be unreadable.
            return
        if not current:
            raise _Outdated(name, lambda: self._renewal.renew(units, sending))

    def _check_signal(self, signal: Signal, match: Match) -> None:
        """`_Outdated` if a signal is to be signed again first."""
        how = self._context.in_force.taking(match).signing
        if not self._renewal.is_signal_current(signal, how):
            raise _Outdated(signal.signal_id, lambda: self._renewal.renew_signal(signal, how))

    def _units_handed(
        self,
        tx: Transaction,
        units: Sequence[Message],
        many: int,
        now: datetime,
        peer: str | None,
        dice: float,
        envelope: bytes | None = None,
    ) -> WireForm | None:
        """The same for a bundle of so many units: an attempt counts for each of them.

        `envelope` is given where this step keeps it.
        """
        sendings = [self._context.in_force.sending_of(one) for one in units]
        policy = sendings[0].policy
        waiting = [one.state in WAITING and not self.is_over(tx, one, policy, now) for one in units]
        if not any(waiting):
            return None
        form: WireForm | str = "a message of its bundle was removed since"
        if len(units) == many:
            form = self._readable(tx, units[0], units, envelope)
        for unit, sending, waits in zip(units, sendings, waiting, strict=True):
            if waits:
                self.note_attempt(tx, unit, sending, policy, form, now, peer, dice)
            elif isinstance(form, WireForm):
                number = unit.attempts + 1
                tx.record((self._left(unit, number, form.length, now, peer),))
                tx.change_message(Side.SENDING, unit.message_id, (unit.state,), attempts=number)
        return form if isinstance(form, WireForm) else None

    def is_over(self, tx: Transaction, message: Message, policy: Policy, now: datetime) -> bool:
        """Whether its time is over: then it is given up."""
        over = due(message, policy, now)
        if over is not None:
            reason = Reason(None, None, message.peer)
            apply(self._context, tx, message, over, now, reason, message.timer)
        return over is not None

    def _readable(
        self,
        tx: Transaction,
        primary: Message,
        units: Sequence[Message],
        envelope: bytes | None = None,
    ) -> WireForm | str:
        """What is sent, or why it cannot be."""
        try:
            if primary.part_of is not None:
                return self._cut(tx, primary)
            return self.form(primary, units, envelope)
        except StoreError as lost:
            return f"it cannot be read: {lost}"

    def note_attempt(
        self,
        tx: Transaction,
        message: Message,
        sending: Sending,
        policy: Policy,
        form: WireForm | str,
        now: datetime,
        peer: str | None,
        dice: float,
    ) -> None:
        """An attempt is written down, and when the message is offered again.

        What cannot be read stands in nobody's way: the next one is handed out.
        """
        timer, number = message.timer, message.attempts + 1
        result = Input.UNANSWERED if sending.awaits else Input.LEFT
        reason, length = Reason(peer=peer), 0
        if isinstance(form, str):
            result, reason = Input.NOT_SENT, Reason("EBMS:0005", form, peer)
        else:
            length = form.length
        decision = attempted(
            life_of(message), result, policy, began=now, now=now, dice=dice, hope=True
        )
        ends = policy.retries is not None or ends_at(policy, now, now) is not None
        if timer is None and decision.due is not None and ends:
            timer = tx.add_work(Work("offer", message.message_id, decision.due))

        def note() -> None:
            if isinstance(form, str):
                told = {"attempt": number, "peer": peer, "detail": form}
                tx.record((about(message, "send_failed", now, **told),))
            else:
                tx.record((self._left(message, number, length, now, peer),))

        tried: dict[str, Any] = {"attempts": number, "wire_bytes": length, "peer": peer}
        apply(self._context, tx, message, decision, now, reason, timer, note, **tried)

    def _left(
        self, message: Message, number: int, length: int, now: datetime, peer: str | None
    ) -> Event:
        return about(
            message,
            left_as(message, number),
            now,
            attempt=number,
            peer=peer,
            envelope=message.bundle or message.message_id,
            wire_bytes=length,
            evidence=signed(message),
        )

    def hand_out(
        self, tx: Transaction, reply: Message, now: datetime, peer: str | None, dice: float
    ) -> WireForm | None:
        """A reply that is the response leaves; None when it is not to any more."""
        handed = self._handed(tx, reply.message_id, now, peer, dice)
        assert not isinstance(handed, Work)
        return handed

    def respond(self, message: Message) -> Response:
        """A message as the response: large ones in pieces."""
        return self.response(self.form(message, [message]))

    def _cut(self, tx: Transaction, message: Message) -> WireForm:
        """A fragment as it goes over the wire; `StoreDamaged` when its message is not there."""
        units = split_units(tx, message.part_of or "")
        if not units:
            raise StoreDamaged("the message that it is a part of is not there")
        sending = self._context.in_force.sending_of(message)
        return self._fragmenting.form(units, message, sending)

    def form(
        self, primary: Message, units: Sequence[Message], envelope: bytes | None = None
    ) -> WireForm:
        """The message as it goes over the wire: the same bytes each time."""
        store = self._context.store
        assert primary.envelope is not None
        stored = [part for unit in units for part in unit.parts]
        contents = [store.content(part.stored) for part in stored]
        types: Sequence[str] = [part.wire_type for part in stored]
        if primary.seal is not None:
            contents = list(primary.seal.on(contents))
            types = primary.seal.media_types(types)
        parts = [
            WirePart(part.content_id or "", media_type, content, part.file_name)
            for part, media_type, content in zip(stored, types, contents, strict=True)
        ]
        if envelope is None:
            envelope = read_all(store.content(primary.envelope), primary.envelope.size)
        return wire_form(_VERSIONS[primary.soap], envelope, parts, primary.boundary)


def refused(request: SignalMessage, why: str) -> Withheld:
    """Nobody is told why but the journal."""
    assert request.pull_request is not None
    channel = request.pull_request.effective_mpc[:200]
    refusal = EbmsError("EBMS:0101", _MAY_NOT_PULL)
    return Withheld((refusal,), why=f"a PullRequest for {channel}: {why}")


def nothing() -> EbmsError:
    """Neither a message, nor one that is selected. [P2-5.1-07]"""
    said = "no message is there to be pulled"
    return EbmsError("EBMS:0006", said, location="eb:PullRequest/@mpc")
