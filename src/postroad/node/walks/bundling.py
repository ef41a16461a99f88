"""Units that wait to be bundled: planned when their time comes, packaged and handed to the sender.

A unit that was submitted is durable as a message without an envelope and a `bundle` row that holds
its header; the rows stand in the order of submission. This process has it in memory too, and the
planner (`msh.bundling`) says who goes with whom, and when to look again.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.bundling import BundlingTerms
from postroad.msh.answers import sent_units
from postroad.msh.bundle_rules import BUNDLING_ERROR, Member
from postroad.msh.bundling import Waiting, deadline, plan
from postroad.msh.outbound import Package, PackedUnit
from postroad.msh.securing import Unsecurable
from postroad.msh.sizing import rest_size
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.bundles.units import (
    LONELY,
    package_at_once,
    packaged_or_cut,
    restored,
    sequence_of,
    series_of,
    waiting_unit,
    whole_size,
)
from postroad.node.large.splitting import Cut
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.exchanging import request_of
from postroad.node.steps.outcome import unpackable
from postroad.node.walks.packaging import Plan, new_boundary
from postroad.node.walks.posting import Outgoing
from postroad.node.walks.replying import routed_by
from postroad.node.walks.sending import Sender
from postroad.reliability.schedule import ends_at
from postroad.store.interface import Reader, StoreError, Transaction
from postroad.store.records import Event, Message, Side, State, Work
from postroad.wire.ebms3 import UserMessage
from postroad.wire.errors import EbmsError

_log = logging.getLogger("postroad.bundle")

T = TypeVar("T")


class Unit(Struct, frozen=True):
    """A unit that waits, as this process has it."""

    message: Message
    work: Work
    packed: PackedUnit
    sending: Sending
    terms: BundlingTerms


class _Gone(Exception):
    """A unit does not wait any more: another process was quicker, which is no trouble."""

    def __init__(self) -> None:
        super().__init__("a unit of it left with another bundle, or came to rest")


class Bundling:
    """Holds what waits, and sends it in bundles."""

    def __init__(self, context: Context, sender: Sender) -> None:
        self._context = context
        self._sender = sender
        self._waiting: dict[str, dict[str, tuple[Unit, Waiting]]] = {}
        """By destination and id."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Where the order counts, what leaves for a partner does so one after the other."""
        self._timers: dict[str, tuple[datetime, asyncio.TimerHandle]] = {}
        self._grown: dict[str, int] = {}
        """Bytes that came to a destination since it was planned."""
        self._done: dict[int, asyncio.Future[None]] = {}
        """Work that was claimed by the loop, which waits until it is done here."""
        self._loading: list[Work] = []
        self._rests: dict[str, tuple[Sending, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = True

    async def stop(self) -> None:
        """What is being packaged is handed over; what waits, waits for the next start."""
        self._open = False
        for _, timer in self._timers.values():
            timer.cancel()
        for done in self._done.values():
            if not done.done():
                done.set_result(None)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def work(self, message: Message, unit: PackedUnit) -> Work:
        """The row that keeps a unit's header, claimed by this process."""
        now, context = message.created_at, self._context
        data = msgspec.json.encode(unit.user_message)
        owner, until = context.owner, now + context.lease
        return Work("bundle", message.message_id, now, data, owner=owner, lease_until=until)

    def take(self, unit: Unit) -> None:
        """A unit that was submitted here just now."""
        self._context.in_hand.add(unit.work.id)
        self._add(unit)

    async def perform(self, work: Work) -> None:
        """A unit from before: it waits here with the others until it is sent."""
        if not self._open:
            return
        done = asyncio.get_running_loop().create_future()
        self._done[work.id] = done
        self._loading.append(work)
        if len(self._loading) == 1:
            self._begin(self._load())
        await done

    async def _load(self) -> None:
        """All that were claimed together, in their order."""
        await asyncio.sleep(0)
        works, self._loading = sorted(self._loading, key=lambda one: one.id), []
        store = self._context.store
        try:
            found = await store.look(
                lambda reader: [reader.message(Side.SENDING, one.message_id) for one in works]
            )
            requests = await store.look(lambda reader: [_request(reader, one) for one in found])
        except StoreError as error:
            self._leave_to_be_loaded(works, error)
            return
        for work, message, request in zip(works, found, requests, strict=True):
            try:
                unit = None if message is None else self._loaded(message, work, request)
            except Refused as refused:
                assert message is not None
                await self._fail(message, work, refused.detail, None)
                continue
            if unit is None:
                await self._run([work], lambda tx, work=work: tx.finish_work(work.id, work.owner))  # type: ignore[misc]
            else:
                self._add(unit)

    def _add(self, unit: Unit) -> None:
        waiting = waiting_unit(unit.message, unit.packed, unit.sending, self._rest(unit))
        place = waiting.destination
        self._waiting.setdefault(place, {})[waiting.id] = (unit, waiting)
        self._grown[place] = self._grown.get(place, 0) + waiting.size
        there = self._waiting[place]
        most = unit.terms.max_size
        if len(there) % self._context.limits.units == 0 or (
            most is not None and self._grown[place] >= most
        ):
            self._wake(place, self._context.clock())
        self._wake(place, deadline(waiting, {waiting.pmode: unit.terms}))

    def _rest(self, unit: Unit) -> int:
        """What a message needs beside its units, when one of this P-Mode is the primary."""
        sending, name = unit.sending, unit.terms.pmode
        known = self._rests.get(name)
        if known is None or known[0] is not sending:
            whole = whole_size(self._made([unit]))
            known = sending, rest_size(whole, unit.packed, sending.match.leg)
            self._rests[name] = known
        return known[1]

    def _wake(self, place: str, at: datetime) -> None:
        """Plan a destination at that time, or before."""
        known = self._timers.get(place)
        if known is not None:
            if known[0] <= at:
                return
            known[1].cancel()
        loop = asyncio.get_running_loop()
        wait = max((at - self._context.clock()).total_seconds(), 0.0)
        self._timers[place] = (at, loop.call_later(wait, self._plan, place))

    def _plan(self, place: str, drain: bool = False) -> None:
        known = self._timers.pop(place, None)
        if known is not None:
            known[1].cancel()
        if not self._open:
            return
        there = self._waiting.get(place, {})
        terms = {unit.terms.pmode: unit.terms for unit, _ in there.values()}
        # What was left behind, and is loaded later, was submitted before.
        units = sorted(there.values(), key=lambda one: one[0].work.id)
        waiting = [one for _, one in units]
        now, limits = self._context.clock(), self._context.limits
        found = plan(waiting, terms, now, limits=limits, drain=drain)
        self._grown[place] = 0
        bundles = [[there.pop(one.id)[0] for one in bundle] for bundle in found.bundles]
        lonely = [there.pop(one.id)[0] for one in found.lonely]
        if not there:
            self._waiting.pop(place, None)
            self._grown.pop(place, None)
        elif found.wake is not None:
            self._wake(place, found.wake)
        if bundles or lonely:
            self._begin(self._leave(bundles, lonely))

    async def _leave(self, bundles: Sequence[list[Unit]], lonely: Sequence[Unit]) -> None:
        given = [*(one for units in bundles for one in units), *lonely]
        if not lonely and not any(one.terms.in_order for one in given):
            await self._leave_now(bundles, lonely, given)
            return
        async with self._turns[given[0].message.partner]:
            await self._leave_now(bundles, lonely, given)

    async def _leave_now(
        self, bundles: Sequence[list[Unit]], lonely: Sequence[Unit], given: Sequence[Unit]
    ) -> None:
        if lonely or any(one.terms.in_order for one in given):
            try:
                bundles, lonely = await self._with_others(bundles, lonely, given)
            except StoreError as error:
                self._leave_to_be_loaded([one.work for one in given], error)
                return
        await self._send_all(bundles)
        for unit in lonely:
            await self._fail(unit.message, unit.work, LONELY, BUNDLING_ERROR)

    async def _with_others(
        self, bundles: Sequence[list[Unit]], lonely: Sequence[Unit], given: Sequence[Unit]
    ) -> tuple[Sequence[list[Unit]], Sequence[Unit]]:
        """The same with those who wait elsewhere, in other processes or in none, where some do.

        Nobody is lonely whose company came to another process, and nobody overtakes who comes
        later. Whose unit leaves with another process finds it gone, and plans without it.
        """
        others = await self._of_others(given)
        if not others:
            return bundles, lonely
        if any(one.terms.in_order for one in others):
            # They must not overtake those who still wait here.
            given = [*given, *self._waiting_in_order(given[0])]
        if len(others) >= self._context.limits.units:
            # There may be more of them: who comes behind these waits for another look.
            last = others[-1].work.id
            late = [one.work for one in given if one.terms.in_order and one.work.id > last]
            self._let_go(late)
            given = [one for one in given if one.work not in late]
        units = sorted([*given, *others], key=lambda one: one.work.id)
        by_id = {one.message.message_id: one for one in units}
        waiting = [
            waiting_unit(one.message, one.packed, one.sending, self._rest(one)) for one in units
        ]
        terms = {one.terms.pmode: one.terms for one in units}
        now, limits = self._context.clock(), self._context.limits
        found = plan(waiting, terms, now, limits=limits, drain=True)
        mine = {one.message.message_id for one in given}
        for one in found.waiting:
            if one.id in mine:
                self._add(by_id[one.id])
        with_mine = [one for one in found.bundles if any(unit.id in mine for unit in one)]
        ordered = any(one.terms.in_order for one in units)
        return (
            [[by_id[unit.id] for unit in one] for one in (found.bundles if ordered else with_mine)],
            [by_id[one.id] for one in found.lonely if one.id in mine],
        )

    def _waiting_in_order(self, unit: Unit) -> list[Unit]:
        """Take those who wait here for the same partner, where their order counts."""
        place = waiting_unit(unit.message, unit.packed, unit.sending, self._rest(unit)).destination
        there = self._waiting.get(place, {})
        names = [name for name, (one, _) in there.items() if one.terms.in_order]
        return [there.pop(name)[0] for name in names]

    async def _of_others(self, given: Sequence[Unit]) -> list[Unit]:
        """What waits for a partner elsewhere: the first of it, in the order of submission.

        That is in other processes, or in none since one stopped. Where the order counts it is also
        what this process could not store, or is just about to load.
        """
        context, partner = self._context, given[0].message.partner
        most = context.limits.units
        ordered = [one.work.id for one in given if one.terms.in_order]
        before = max(ordered, default=0)
        here = {one.message.message_id for one in given}
        here.update(name for there in self._waiting.values() for name in there)

        def look(reader: Reader) -> list[tuple[Work, Message, Message | None]]:
            found: list[tuple[Work, Message, Message | None]] = []
            after = 0
            while True:
                works = reader.others_work(
                    "bundle", context.owner, most, after=after, before=before
                )
                for work in works:
                    if work.message_id in here:
                        continue
                    message = reader.message(Side.SENDING, work.message_id)
                    if message is not None and message.partner == partner:
                        found.append((work, message, _request(reader, message)))
                if len(works) < most or len(found) >= most:
                    return found[:most]
                after = works[-1].id

        units = []
        for work, message, request in await context.store.look(look):
            with contextlib.suppress(Refused):
                unit = self._loaded(message, work, request)
                if unit is not None and (unit.terms.in_order or work.owner != context.owner):
                    units.append(unit)
        return units

    def _loaded(self, message: Message, work: Work, request: Message | None) -> Unit | None:
        """A unit from its row; None where it waits no longer. `Refused` without its P-Mode.

        `request` is what it answers, if anything.
        """
        if message.state is not State.SUBMITTED:
            return None
        sending = self._context.in_force.sending_of(message)
        terms = sending.bundling
        if terms is None:
            terms = BundlingTerms(sending.match.pmode.id)
            sending = dataclasses.replace(sending, bundling=terms)
        header = msgspec.json.decode(work.data, type=UserMessage)
        packed = restored(self._context, message, header)
        routed = changed(packed, routed_by=routed_by(self._context, request))
        return Unit(message, work, routed, sending, terms)

    async def _send_all(self, bundles: Sequence[Sequence[Unit]]) -> bool:
        """One after the other; False when one waits on, and nobody overtakes that in its order."""
        left, ordered = deque(bundles), any(one.terms.in_order for many in bundles for one in many)
        sent = True
        while left and (sent or not ordered):
            sent &= await self._send(left.popleft())
        self._let_go([one.work for units in left for one in units])
        return sent

    async def _send(self, units: Sequence[Unit]) -> bool:
        """Package a bundle, make it durable, and hand it to the sender; False: it waits on."""
        first = units[0]
        try:
            made = await self.package_or_cut(units)
        except (Unsecurable, EbmsError, ValueError) as error:
            if len(units) > 1:
                return await self._send_all([[one] for one in units])
            detail = error.detail if isinstance(error, EbmsError) else str(error)
            return await self._fail(first.message, first.work, detail, None)
        work = self._row(units, made)
        step = self._kept(units, made, work)
        done = await self._run([one.work for one in units], step)
        if done is not None:
            self._hand_over(made, work, *done)
        return done is not None

    async def send_at_once(
        self,
        units: Sequence[Unit],
        made: Package | Cut,
        take: Callable[[Transaction], list[Message]],
    ) -> tuple[Message, ...]:
        """A bundle that an application put together, kept and on its way: what its units became.

        `take` is the first thing in the same step: the messages of the units, with their parts kept
        and not yet added.
        """
        work = self._row(units, made)
        now, boundary = self._context.clock(), self._boundary(made)

        def step(tx: Transaction) -> tuple[int, tuple[Message, ...]]:
            submitted, row = take(tx), tx.add_work(work)
            messages = _ready(tx, submitted, made, boundary, now, changed(work, id=row))
            tx.add_messages(messages)
            tx.record([about(one, "submitted", one.created_at) for one in submitted])
            tx.record(_made_of(messages, made, now))
            return row, messages

        number, messages = await self._context.store.run(step)
        self._hand_over(made, work, number, messages)
        return messages

    async def let_go_first(self, units: Sequence[Unit]) -> None:
        """What waits and was promised to arrive before some units leaves now.

        `Refused` when one of them cannot, for want of company. [P2-3.10.1-08]
        """
        ordered = [one for one in units if one.terms.in_order]
        if not ordered:
            return
        place = ordered[0].message.partner
        self._plan(place, drain=True)
        if self._tasks:
            await asyncio.wait(self._tasks)
        series = {series_of(one.message, one.packed, one.sending) for one in ordered}
        for _, waiting in self._waiting.get(place, {}).values():
            if waiting.series in series:
                said = "goes before these and still waits for company; submit them after it"
                raise Refused(409, f"{waiting.id} {said}", code=BUNDLING_ERROR)

    def _hand_over(
        self, made: Package | Cut, work: Work, number: int, messages: tuple[Message, ...]
    ) -> None:
        """What is durable now goes to the sender, if that claimed it."""
        if work.owner is None or isinstance(made, Cut):
            self._context.work_came.set()
            return
        sent = sent_units((made.user_message, *made.secondaries), made.references)
        outgoing = Outgoing(messages[0], changed(work, id=number), made=made)
        if len(messages) > 1:
            outgoing = changed(outgoing, units=messages, sent_units=sent)
        else:
            outgoing = changed(outgoing, sent=sent[messages[0].message_id])
        self._sender.take(outgoing)

    async def package_or_cut(self, units: Sequence[Unit]) -> Package | Cut:
        """The units in one message, by the P-Mode of the first; it is not kept yet."""
        first = units[0]
        packed, made_here = [one.packed for one in units], first.message.fingerprint is None
        return await packaged_or_cut(self._context, packed, first.sending, made_here=made_here)

    def _made(self, units: Sequence[Unit]) -> Package:
        return package_at_once(self._context, [one.packed for one in units], units[0].sending)

    def _boundary(self, made: Package | Cut) -> str | None:
        return made.boundary if isinstance(made, Cut) else new_boundary(self._context, made)

    def _row(self, units: Sequence[Unit], made: Package | Cut) -> Work:
        """The row that sends a bundle, claimed if the sender takes it at once; or cuts it."""
        context, sender = self._context, self._sender
        message, sending = units[0].message, units[0].sending
        ends = [ends_at(sending.policy, one.message.created_at, None) for one in units]
        lane = None
        if any(one.terms.in_order for one in units):
            # Units of a series may be in several bundles, which arrive in their order.
            lane = f"send:bundle:{message.partner}"
        now, partner = context.clock(), sending.destination(message)
        ends_first = min((one for one in ends if one is not None), default=None)
        if sending.reliable is not None and not isinstance(made, Cut):
            # It is complete, and gets its number next: in the order in which bundles leave.
            key = sequence_of(units[0].packed, sending)
            data = msgspec.json.encode(Plan(None, None, False, (), key))
            name, lane = message.message_id, f"sequence:{key}"
            return Work("sequence", name, now, data, lane=lane, expires_at=ends_first)
        if isinstance(made, Cut):
            return Work("split", message.message_id, now, lane=lane, expires_at=ends_first)
        work = Work(
            "send", message.message_id, now, partner=partner, lane=lane, expires_at=ends_first
        )
        taken = lane is None and sender.has_room(partner)
        taken = taken and (sending.policy.fail_fast or not context.is_paused(partner))
        return sender.claimed(work, now) if taken else work

    def _kept(
        self, units: Sequence[Unit], made: Package | Cut, work: Work
    ) -> Callable[[Transaction], tuple[int, tuple[Message, ...]]]:
        """The step after which the bundle is ready to be sent."""
        now, boundary = self._context.clock(), self._boundary(made)
        waited = [unit.message for unit in units]

        def step(tx: Transaction) -> tuple[int, tuple[Message, ...]]:
            row = tx.add_work(work)
            messages = _ready(tx, waited, made, boundary, now, changed(work, id=row))
            if not tx.replace_messages(list(zip(waited, messages, strict=True))):
                raise _Gone
            for owner in {unit.work.owner for unit in units}:
                # Some may have waited in another process.
                tx.finish_works([one.work.id for one in units if one.work.owner == owner], owner)
            tx.record(_made_of(messages, made, now))
            return row, messages

        return step

    async def _fail(self, message: Message, work: Work, detail: str, code: str | None) -> bool:
        context, now = self._context, self._context.clock()

        def step(tx: Transaction) -> bool:
            unpackable(context, tx, message, work, detail, now, code)
            return True

        done = await self._run([work], step)
        context.settled.tell(message.message_id)
        context.told()
        return done is not None

    async def _run(self, works: Sequence[Work], step: Callable[[Transaction], T]) -> T | None:
        """Run a step that ends the waiting of units; what cannot be stored is loaded again."""
        context = self._context
        try:
            return await context.store.run(step)
        except (StoreError, _Gone) as error:
            self._leave_to_be_loaded(works, error)
            return None
        finally:
            self._forget(works)

    def _leave_to_be_loaded(self, works: Sequence[Work], error: Exception) -> None:
        level = logging.INFO if isinstance(error, _Gone) else logging.ERROR
        _log.log(level, "not bundled, it will be tried again", extra={"detail": str(error)})
        self._let_go(works)

    def _let_go(self, works: Sequence[Work]) -> None:
        for work in works:
            self._context.let_go[work.id] = False
        self._forget(works)

    def _forget(self, works: Sequence[Work]) -> None:
        for work in works:
            self._context.in_hand.discard(work.id)
            done = self._done.pop(work.id, None)
            if done is not None and not done.done():
                done.set_result(None)

    def _begin(self, doing: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(self._guarded(doing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, doing: Coroutine[None, None, None]) -> None:
        try:
            await doing
        except Exception:
            _log.exception("bundling failed")


def _ready(
    tx: Transaction,
    messages: Sequence[Message],
    made: Package | Cut,
    boundary: str | None,
    now: datetime,
    work: Work,
) -> tuple[Message, ...]:
    """Units that are packaged: what is kept of the primary says how to send them.

    What is to get a number in a sequence is packaged once more, with that. [P2-3.2.2-11]
    """
    primary = messages[0]
    whole = made.made if isinstance(made, Cut) else made
    envelope = tx.keep(whole.envelope)
    common: dict[str, Any] = {
        "state": State.SUBMITTED if work.kind == "sequence" else State.READY,
        "envelope": envelope,
        "soap": whole.version.number,
        "boundary": None,
        "seal": None,
        "bundle": primary.message_id if len(messages) > 1 else None,
        "updated_at": now,
    }
    ready = [changed(primary, **common | {"boundary": boundary, "seal": whole.seal})]
    for one in messages[1:]:
        tx.share(envelope)
        ready.append(changed(one, **common))
    if isinstance(made, Cut):
        cuts = (made.kept(tx), *made.of_secondaries())
        timer = work.id
        ready = [changed(one, split=cut, timer=timer) for one, cut in zip(ready, cuts, strict=True)]
    return tuple(ready)


def _made_of(messages: Sequence[Message], made: Package | Cut, now: datetime) -> list[Event]:
    """What the journal says of units that are packaged."""
    events = [about(one, "bundled", now) for one in messages] if len(messages) > 1 else []
    if isinstance(made, Cut):
        count = made.count
        events += [about(one, "split", now, fragments=count) for one in messages]
    return events


def members(units: Sequence[Unit]) -> list[Member]:
    """Units of a bundle, as its rules see them."""
    return [
        Member(one.message.message_id, one.packed.user_message.message_info.timestamp, one.terms)
        for one in units
    ]


def _request(reader: Reader, message: Message | None) -> Message | None:
    """What a message answers, if it is a reply."""
    if message is None or message.leg != 2:
        return None
    return request_of(reader, message)
