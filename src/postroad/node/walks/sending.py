"""Sending: what is claimed is tried when it is due, and what follows is committed.

It goes with the bytes that were kept, the first time and every time after (`walks.posting`). What
follows from the outcome is decided in `steps.attempts`.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy
from postroad.msh.outbound import WireForm
from postroad.msh.resign import expired
from postroad.node.base.context import Context
from postroad.node.base.in_one_step import InOneStep
from postroad.node.base.together import Together
from postroad.node.base.turns import Turns
from postroad.node.base.windows import Windows
from postroad.node.bundles.outcome import attempt_all, give_up_all, unit_ids
from postroad.node.hub.carrying import Carrying
from postroad.node.hub.forwarding import station_of
from postroad.node.large.fragmenting import Fragmenting
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.attempts import (
    AfterAttempt,
    Attempt,
    Outcome,
    Step,
    due,
    give_up,
    on_next_way,
)
from postroad.node.steps.bundle_rows import share_envelope, units_of
from postroad.node.steps.ebxml_order import numbered_on
from postroad.node.steps.exchanging import request_of
from postroad.node.steps.good_end import GoodEnd, is_good
from postroad.node.steps.mailing import Mailing
from postroad.node.steps.outcome import Done
from postroad.node.steps.partners import resume
from postroad.node.steps.split_units import at_work, split_units
from postroad.node.steps.wsrm_states import Numbered, is_ready
from postroad.node.steps.wsrm_states import packed as packed_in
from postroad.node.walks.posting import Outgoing, Posting, not_sent
from postroad.node.walks.replying import routed_by
from postroad.node.walks.signature_renewal import SignatureRenewal, Unsigned
from postroad.node.walks.wsrm_repackaging import repackaged
from postroad.node.wsrm.asking import NoSequence
from postroad.node.wsrm.source import Sequences, key_of
from postroad.reliability.breaker import address_of
from postroad.reliability.delivery import Input
from postroad.reliability.schedule import ONCE, SIGNALS, ends_at
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side, State, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Timeouts

_FRAGMENTS: Final = 4
"""Fragments on their way to a partner at once: each fills the line by itself."""
_AHEAD: Final = 2
"""Fragments that are signed before there is a place for them: the line waits for none."""
_HELD: Final = timedelta(minutes=1)
"""How soon a message is looked at again that cannot be sent with an expired certificate."""
_SENDABLE: Final = (State.READY, State.WAITING, State.SUSPENDED)
_YET: Final = {State.READY: "not sent yet", State.WAITING: "not answered yet"}
"""What the log says of a message that is in these states after trouble: its outlook is open."""
_log = logging.getLogger("postroad.send")


class Sender:
    """Sends what is ready, so many at a time."""

    def __init__(self, context: Context, client: Client, mail: Mailing) -> None:
        self._context = context
        self._fragmenting = Fragmenting(context)
        http = context.config.http
        timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._posting = Posting(context, client, mail, self._fragmenting, timeouts)
        self._renewal = SignatureRenewal(context, self._fragmenting)
        self._prepare: Together[tuple[Outgoing, Sending, str, datetime], WireForm] = Together(
            lambda given: self._posting.form(*given)
        )
        self._end_well: InOneStep[Attempt, Done | None] = InOneStep(
            context.store, self._attempts_ended, lambda tx, one: AfterAttempt(context, one)(tx)
        )
        parallel = context.config.send.parallel
        self._windows = Windows(context, parallel)
        self._carrying = Carrying(context, client, timeouts, station_of(context))
        self.sequences = Sequences(context, client)
        limit = self._windows.limit
        self._turns: Turns[Outgoing] = Turns(parallel, limit)
        self._fragments: Turns[Outgoing] = Turns(min(parallel, _FRAGMENTS), limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = False

    def start(self) -> None:
        self._open = True

    async def stop(self) -> None:
        """Finish what is being sent; what was not begun stays for the next start."""
        self._open = False
        if self._tasks:
            await asyncio.wait(self._tasks)

    def has_room(self, partner: str) -> bool:
        return self._open and self._turns.has_room(partner)

    def room(self) -> int:
        """How many more messages could be taken now."""
        return self._turns.room() if self._open else 0

    def full(self) -> tuple[str, ...]:
        """Partners for whom no more is to be fetched now."""
        return self._turns.full() + self._fragments.full()

    def claimed(self, work: Work, now: datetime) -> Work:
        """The work as this process has it."""
        return changed(work, owner=self._context.owner, lease_until=now + self._context.lease)

    def take(self, outgoing: Outgoing) -> None:
        """Send it as soon as there is a place on the wire."""
        self._context.in_hand.add(outgoing.work.id)
        turns, partner = self._turns_of(outgoing), outgoing.work.partner
        turns.add(partner, outgoing)
        self._begin(turns, partner)

    def _turns_of(self, outgoing: Outgoing) -> Turns[Outgoing]:
        """Fragments take turns among themselves, so that they hold up no other message."""
        return self._turns if outgoing.message.part_of is None else self._fragments

    def _begin(self, turns: Turns[Outgoing], partner: str) -> None:
        while self._open and (outgoing := turns.next(partner)) is not None:
            self._has_begun(asyncio.create_task(self._send(outgoing)))
        if self._open and turns is self._fragments:
            for following in turns.following(partner, _AHEAD):
                self._make_ahead(following.message)

    def _make_ahead(self, fragment: Message) -> None:
        with contextlib.suppress(Refused):
            sending = self._sending(fragment)
            # One that goes in a sequence gets its number first.
            ahead = sending.reliable is None
            begun = self._fragmenting.begin(fragment, sending) if ahead else None
            if begun is not None:
                self._has_begun(begun)

    def _has_begun(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, outgoing: Outgoing) -> None:
        """A place is free: for the same partner, or whoever waits for one."""
        turns, partner = self._turns_of(outgoing), outgoing.work.partner
        turns.done(partner)
        self._begin(turns, partner)
        for other in turns.ready():
            self._begin(turns, other)

    async def _send(self, outgoing: Outgoing) -> None:
        """One message: the place on the wire is free again before the outcome is durable."""
        try:
            try:
                step = await self._step(outgoing)
            except StoreError:
                raise
            except Exception:
                _log.exception("sending failed", extra={"message_id": outgoing.message.message_id})
                step = self._unexpected(outgoing)
            finally:
                self._end(outgoing)
            await self._settle(outgoing, step)
        except StoreError as error:
            _log.error(
                "not recorded, it will be sent again",
                extra={"message_id": outgoing.message.message_id, "detail": str(error)},
            )
            self._context.let_go[outgoing.work.id] = True
        finally:
            self._fragmenting.forget(outgoing.message.message_id)
            self._context.in_hand.discard(outgoing.work.id)

    def _unexpected(self, outgoing: Outgoing) -> Step:
        """Something went wrong that should not: an attempt like others, and it may have left."""
        context, message = self._context, outgoing.message
        said = "sending it failed unexpectedly; the log tells how"
        outcome = Outcome(Input.UNANSWERED, None, "EBMS:0004", said, message.peer)
        if message.route is not None:
            return self._carrying.after(message, outgoing.work, outcome, context.clock())
        sending = None
        with contextlib.suppress(Refused):
            sending = self._sending(message)
        if outgoing.units:
            outcomes = [outcome] * len(outgoing.units)
            return attempt_all(
                context, outgoing.units, outgoing.work, sending, outcomes, context.clock(), False
            )
        tried = Attempt(message, outgoing.work, sending, outcome, context.clock())
        return AfterAttempt(context, tried)

    async def _step(self, outgoing: Outgoing) -> Step | Attempt:
        """What is to be committed: after an attempt, or because none is due."""
        context, message, work = self._context, outgoing.message, outgoing.work
        began = context.clock()
        if message.bundle is not None:
            return await self._bundle_step(outgoing)
        if message.state not in _SENDABLE:
            return _none_due(work)
        if message.route is not None:
            windows, probes = self._windows, outgoing.probes
            return await self._carrying.step(message, work, windows, probes=probes)
        try:
            sending = self._sending(message)
        except Refused as refused:
            never = not_sent(refused.detail, message.peer, reached=True)
            return AfterAttempt(context, Attempt(message, work, None, never, began))
        return await self._one_step(outgoing, sending, began)

    async def _bundle_step(self, outgoing: Outgoing) -> Step:
        """The same for a bundle, by the P-Mode of its primary unit. [P2-3.2.2-01]"""
        context, work = self._context, outgoing.work
        began = context.clock()
        outgoing = await self._gathered(outgoing)
        units = outgoing.units
        lead = next((one for one in units if one.state in _SENDABLE), None)
        if lead is None:
            return _none_due(work)
        if outgoing.lacks_units:
            said = "a message of its bundle was removed since: submit it under another id"
            never = not_sent(said, lead.peer, reached=True)
            return attempt_all(context, units, work, None, [never] * len(units), began, False)
        try:
            sending = self._sending(units[0])
        except Refused as refused:
            never = not_sent(refused.detail, lead.peer, reached=True)
            return attempt_all(context, units, work, None, [never] * len(units), began, False)
        units = tuple([on_next_way(one, sending) for one in units])
        outgoing = changed(outgoing, message=units[0], units=units)
        address = sending.address_of(lead)
        if any(due(one, sending.policy, began) for one in units if one.state in _SENDABLE):
            return give_up_all(context, units, work, sending, began)
        moved = _readdressed(outgoing, lead, sending)
        if moved is None:
            return _elsewhere(context, work, lead, sending, began)
        if moved is not work:
            work, outgoing = moved, changed(outgoing, work=moved)
        if context.is_paused(work.partner) and not outgoing.probes:
            if not sending.policy.fail_fast:
                return _not_now(work, began)
            outcomes = [not_sent(f"{lead.to_party} cannot be reached", address, reached=True)]
            return self._all(outgoing, sending, outcomes * len(units), began)
        held = expired(sending.match.leg, sending.material.signing, began)
        if held is not None:
            return _held(work, units, held, began)
        try:
            if sending.reliable is not None:
                outgoing = await self._in_sequence(outgoing, sending)
            if outgoing.made is None:
                outgoing = await self._renewal.current(outgoing, sending)
            form = await self._prepare((outgoing, sending, address, began))
        except StoreError as lost:
            never = not_sent(f"it cannot be read: {lost}", address, reached=True)
            return self._all(outgoing, sending, [never] * len(units), began)
        except Unsigned as unsigned:
            never = not_sent(unsigned.detail, address, reached=True)
            return self._all(outgoing, sending, [never] * len(units), began)
        except NoSequence as none:
            never = changed(not_sent(none.detail, address, reached=True), error_code=none.code)
            return self._all(outgoing, sending, [never] * len(units), began)
        with self._windows.attempt(work.partner) as timed:
            outcomes = await self._posting.attempt_all(outgoing, sending, form, address)
            timed.in_time = outcomes[0].in_time
        length = form.length
        told = [changed(one, peer=address, wire_bytes=length) for one in outcomes]
        return self._all(outgoing, sending, told, began, sending.later)

    def _all(
        self,
        outgoing: Outgoing,
        sending: Sending,
        outcomes: Sequence[Outcome],
        began: datetime,
        hope: bool = False,
    ) -> Step:
        units, work = outgoing.units, outgoing.work
        args = (units, work, sending, outcomes, began, hope, outgoing.probes)
        return attempt_all(self._context, *args)

    async def _gathered(self, outgoing: Outgoing) -> Outgoing:
        """A bundle with all its units, as the store has them now."""
        if outgoing.units:
            return outgoing
        context = self._context
        ids = unit_ids(context, outgoing.message)
        units = await context.store.look(lambda reader: units_of(reader, ids))
        return changed(outgoing, units=units, lacks_units=len(units) < len(ids))

    async def _one_step(
        self, outgoing: Outgoing, sending: Sending, began: datetime
    ) -> Step | Attempt:
        context, message, work = self._context, outgoing.message, outgoing.work
        message = on_next_way(message, sending)
        if message is not outgoing.message:
            outgoing = changed(outgoing, message=message)
        address = sending.address_of(message)
        given_up = due(message, sending.policy, began)
        if given_up is not None:
            return give_up(context, message, work, given_up, began)
        if work.expires_at is not None and work.expires_at <= began:
            return _other_end(work, message, sending.policy, began)
        moved = _readdressed(outgoing, message, sending)
        if moved is None:
            return _elsewhere(context, work, message, sending, began)
        if moved is not work:
            work, outgoing = moved, changed(outgoing, work=moved)
        if context.is_paused(work.partner) and not outgoing.probes:
            if not sending.policy.fail_fast:
                return _not_now(work, began)
            never = not_sent(f"{message.to_party} cannot be reached", address, reached=True)
            return AfterAttempt(context, Attempt(message, work, sending, never, began))
        own = message.side is Side.SENDING
        held = expired(sending.match.leg, sending.material.signing, began) if own else None
        if held is not None:
            return _held(work, (message,), held, began)
        try:
            if sending.reliable is not None and message.part_of is None:
                outgoing = await self._in_sequence(outgoing, sending)
            if message.part_of is not None:
                made = await self._made(outgoing, sending)
                if made is None:
                    return _none_due(work)
                outgoing, message = made, made.message
            # What is carried for others stays as they signed it.
            if own and outgoing.made is None:
                outgoing = await self._renewal.current(outgoing, sending)
                message = outgoing.message
            if sending.linked and not own:
                message = await context.store.run(
                    lambda tx: numbered_on(context, tx, outgoing.message, sending, began)
                )
                outgoing = changed(outgoing, message=message)
            form = await self._prepare((outgoing, sending, address, began))
        except StoreError as lost:
            never = not_sent(f"it cannot be read: {lost}", address, reached=True)
            return AfterAttempt(context, Attempt(message, work, sending, never, began))
        except Unsigned as unsigned:
            never = not_sent(unsigned.detail, address, reached=True)
            return AfterAttempt(context, Attempt(message, work, sending, never, began))
        except NoSequence as none:
            never = changed(not_sent(none.detail, address, reached=True), error_code=none.code)
            return AfterAttempt(context, Attempt(message, work, sending, never, began))
        with self._windows.attempt(work.partner) as timed:
            outcome = await self._posting.attempt(outgoing, sending, form, address)
            timed.in_time = outcome.in_time
        if _is_best_effort(message, sending) and outcome.result is Input.UNANSWERED:
            outcome = changed(outcome, result=Input.LEFT)
        outcome = changed(outcome, peer=address, wire_bytes=form.length)
        probe, hope = outgoing.probes, sending.later
        tried = Attempt(message, work, sending, outcome, began, hope, probe)
        return tried if is_good(context, tried) else AfterAttempt(context, tried)

    def _attempts_ended(self, tx: Transaction, ended: Sequence[Attempt]) -> list[Done | None]:
        """What `AfterAttempt` writes for each of those that came to a good end."""
        context = self._context
        if not GoodEnd(context, ended, context.clock()).write(tx):
            return [AfterAttempt(context, one)(tx) for one in ended]
        tx.finish_works([one.work.id for one in ended], context.owner)
        return [Done(State.ACKNOWLEDGED, one.outcome.peer) for one in ended]

    async def _in_sequence(self, outgoing: Outgoing, sending: Sending) -> Outgoing:
        """A message whose sequence is gone goes into the next one, under another number.

        A bundle does with all its units: its number is that of the primary.
        """
        context, units = self._context, outgoing.units or (outgoing.message,)
        name, now = units[0].message_id, context.clock()
        if await context.store.look(lambda reader: is_ready(reader, name, now)):
            return outgoing
        sent = [one.user_message for one in self._posting.sent_units(outgoing).values()]
        others = tuple([one.message_id for one in units[1:]])
        place = await self.sequences.place(name, key_of(sending, sent[0]), sending, others)
        if place is None or place.packed:
            return outgoing
        request = await context.store.look(lambda reader: request_of(reader, units[0]))
        routed = routed_by(context, request) if units[0].leg == 2 else None
        made = repackaged(context, units, sent, sending, place, (), routed)

        def step(tx: Transaction) -> tuple[Message, ...] | None:
            found = share_envelope(tx, units, made.envelope, made.seal)
            if found is not None:
                packed_in(tx, name, place, now)
            return found

        found = await context.store.run(step)
        if found is None:
            return outgoing
        outgoing = changed(outgoing, message=found[0], sent=None, made=None, sent_units=None)
        return changed(outgoing, units=found) if outgoing.units else outgoing

    async def _made(self, outgoing: Outgoing, sending: Sending) -> Outgoing | None:
        """A fragment with its source, signed and durable; None: nobody needs it any more."""
        place = None
        if sending.reliable is not None:
            place = await self._fragment_place(outgoing.message, sending)
        found = await self._fragmenting.ready(outgoing.message, sending, place)
        return None if found is None else changed(outgoing, whole=found[0], message=found[1])

    async def _fragment_place(self, fragment: Message, sending: Sending) -> Numbered | None:
        """The number that a fragment still has to be made with; None: it has it. [P2-4.4.2-05]"""
        store, now, name = self._context.store, self._context.clock(), fragment.message_id
        made = fragment.envelope is not None
        if made and await store.look(lambda reader: is_ready(reader, name, now)):
            return None
        units = await store.look(lambda reader: split_units(reader, fragment.part_of or ""))
        if not at_work(units):
            return None
        header = self._fragmenting.source(units, sending).splitting.messaging.user_messages[0]
        place = await self.sequences.place(name, key_of(sending, header), sending)
        return None if place is None or place.packed else place

    def _sending(self, message: Message) -> Sending:
        in_force = self._context.in_force
        if message.side is not Side.FORWARDING:
            return in_force.sending_of(message)
        sending = in_force.forwarding(message.pmode or "", message.leg)
        if not message.best_effort:
            return sending
        # Nobody sends a signal again when it is lost on the way, so it is tried for long.
        policy = SIGNALS if message.signal else ONCE
        return dataclasses.replace(sending, policy=policy, awaits=False, later=False)

    async def _settle(self, outgoing: Outgoing, step: Step | Attempt) -> None:
        """Make the outcome durable, and tell those who wait for it."""
        context, message = self._context, outgoing.message
        if isinstance(step, Attempt):
            done = await self._end_well(step)
        else:
            done = await context.store.run(step)
        if done is None:
            context.work_came.set()
            return
        if done.partners_changed:
            await context.look_at_partners()
            context.work_came.set()
        if outgoing.work.lane is not None or done.state in _SENDABLE:
            # Somebody has to look when it, or what follows it, is due.
            context.work_came.set()
        context.count("send_attempts", outcome=done.state.value, pmode=message.agreed_by)
        for one in outgoing.units or (message,):
            context.settled.tell(one.part_of or one.message_id)
        context.told()
        _tell_outcome(message.message_id, done)


def _tell_outcome(message_id: str, done: Done) -> None:
    """What became of an attempt, for who reads the log: trouble is told as trouble."""
    said = _YET.get(done.state, done.state.value) if done.detail else done.state.value
    well = not done.detail or done.state in (State.ACKNOWLEDGED, State.SENT)
    level = logging.INFO if well else logging.WARNING
    extra = {"message_id": message_id, "peer": done.peer, "detail": done.detail}
    _log.log(level, said, extra=extra)


def _is_best_effort(message: Message, sending: Sending) -> bool:
    """Whether it is sent once and nobody asks what became of it. [MS098-10.2.1-06]"""
    return sending.dialect is not None and not sending.awaits and not message.signal


def _none_due(work: Work) -> Step:
    """The message came to rest by another way."""

    def step(tx: Transaction) -> None:
        tx.finish_work(work.id, work.owner)

    return step


def _not_now(work: Work, now: datetime) -> Step:
    """The partner is paused: the message keeps its place, and no retry is used up."""

    def step(tx: Transaction) -> None:
        tx.postpone_work(work.id, now, owner=work.owner)

    return step


def _readdressed(outgoing: Outgoing, message: Message, sending: Sending) -> Work | None:
    """The work with the address that its message goes to now; None: it waits its turn there first.

    Who probes goes at once. It came with another name if its work was kept by an older version, or
    if its retries over one address are used up.
    """
    work, after = outgoing.work, sending.destination(message)
    if work.partner == after:
        return work
    before = address_of(work.partner)
    is_known = before is None or before in sending.addresses
    return changed(work, partner=after) if outgoing.probes and is_known else None


def _elsewhere(
    context: Context, work: Work, message: Message, sending: Sending, now: datetime
) -> Step:
    """The message goes to another address by now: it waits there for its turn.

    If its P-Mode no longer has the old address, a pause of that ends, so that all others that wait
    for it are looked at too. If another P-Mode still uses it, it will be paused again.
    """
    before, after = work.partner, sending.destination(message)

    def step(tx: Transaction) -> None:
        found = tx.work(work.id)
        if found is None or found.owner != work.owner:
            return
        tx.turn_work(work.id, work.kind, now, after)
        address = address_of(before)
        if address is not None and address not in sending.addresses:
            resume(context, tx, before, now)

    return step


def _held(work: Work, messages: Sequence[Message], detail: str, now: datetime) -> Step:
    """Nothing can be signed now: the messages keep their place, and no retry is used up."""

    def step(tx: Transaction) -> None:
        parts = [one for one in messages if one.part_of is not None]
        wholes = [unit for one in parts for unit in split_units(tx, one.part_of or "")]
        for one in (*messages, *wholes):
            if one.detail != detail and one.state in _SENDABLE:
                tx.change_message(one.side, one.message_id, (one.state,), detail=detail)
                _log.warning("held", extra={"message_id": one.message_id, "detail": detail})
        tx.postpone_work(work.id, now + _HELD, owner=work.owner)

    return step


def _other_end(work: Work, message: Message, policy: Policy, now: datetime) -> Step:
    """It was to end now, and the P-Mode says otherwise by now: it goes back to where it stood."""
    end = ends_at(policy, message.created_at, message.first_sent_at)

    def step(tx: Transaction) -> None:
        tx.expire_work(work.id, end)
        tx.postpone_work(work.id, now, owner=work.owner)

    return step
