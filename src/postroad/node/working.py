"""The loop that claims what is due and hands it to those who do it."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace as changed

from postroad.node.base.context import WEBHOOK, Context
from postroad.node.bundles.outcome import bundle_left_behind
from postroad.node.steps.attempts import left_behind
from postroad.node.steps.partners import probe
from postroad.node.walks.posting import Outgoing
from postroad.node.walks.sending import Sender
from postroad.reliability.breaker import Gate, is_served
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side, State, Work

_AT_ONCE: Final = {
    "package": 2,
    "sequence": 64,
    "sequence_end": 16,
    "held": 4,
    "split": 4,
    "signal": 16,
    "notify": 16,
    "deliver": 16,
    "report": 16,
    "inform": 16,
    "complain": 16,
    "gap": 4,
    "offer": 16,
    "collect": 16,
    "bundle": 1000,
    "join": 2,
}
"""How much of each kind is done at a time: who is slow holds up only his own kind."""
_ALONE: Final = ("signal",)
"""Nothing follows from these that would be due at once."""
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST: Final = 0.02
_LONGEST: Final = 1.0
_LATER: Final = timedelta(minutes=1)
_RENEWALS: Final = 3
"""Signs of life within a lease."""
STOPPED: Final = "the node stopped while it was sending"
JUMP: Final = timedelta(seconds=5)
"""A clock that is set back by more is noticed."""
_log = logging.getLogger("postroad.work")

SIDES: Final = {"send": Side.SENDING, "forward": Side.FORWARDING}
"""Work that the sender does, and the side of its messages."""

Perform = Callable[[Work], Awaitable[None]]
Claimed = list[tuple[Work, Outgoing | None]]


class WorkLoop:
    """Claims due work. A process that dies leaves work that another picks up."""

    def __init__(
        self,
        context: Context,
        sender: Sender,
        performers: Mapping[str, Perform],
        *,
        leads: bool = True,
    ) -> None:
        self._context = context
        self._leads = leads
        self._sender = sender
        self._performers = performers
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()
        self._renewed = self._swept = context.clock()
        self._steady: timedelta | None = None

    async def run(self) -> None:
        """Until cancelled: look what is due, claim it, hand it out."""
        while True:
            wait = _LONGEST
            try:
                wait = await self._round()
            except StoreError as error:
                _log.error("work cannot be claimed now", extra={"detail": str(error)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._context.work_came.wait()
            self._context.work_came.clear()

    async def stop(self) -> None:
        """Let what was begun come to its end, and give back what could not be finished."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._give_back(self._context.clock())

    async def _round(self) -> float:
        """One look; how long until the next is worth it."""
        now = self._context.clock()
        await self._notice_jump(now)
        await self._give_back(now)
        await self._renew(now)
        await self._context.look_at_partners()
        room = self._room()
        if not room:
            return _SHORTEST
        pauses = self._pauses(now)
        kinds = tuple(room)
        due = await self._context.store.look(lambda reader: reader.due_by_kind(kinds, pauses))
        # What an owner that is gone had claimed is not told as due: look for it now and then.
        sweeps = now - self._swept >= self._context.lease / _RENEWALS
        claimable = kinds if sweeps else [kind for kind, at in due.items() if at <= now]
        if not claimable:
            if self._sender.full():
                # There will be room in a moment, and nobody says when.
                return _SHORTEST
            times = [one for one in (*due.values(), *pauses.values()) if one is not None]
            wait = (min(times) - now).total_seconds() if times else _LONGEST
            return min(max(wait, _SHORTEST), _LONGEST)
        if sweeps:
            self._swept = now
        claimed = await self._context.store.run(lambda tx: self._claim(tx, room, claimable, now))
        for work, outgoing in claimed:
            if outgoing is not None:
                self._sender.take(outgoing)
            else:
                self._begin(work)
        return _SHORTEST

    def _pauses(self, now: datetime) -> dict[str, datetime | None]:
        """The partners for whom nothing can be done now, and until when."""
        pauses: dict[str, datetime | None] = dict.fromkeys(self._sender.full())
        for name, one in self._context.unwell.items():
            if one.gate is not Gate.FLOWING and (one.until is None or one.until > now):
                pauses[name] = one.until
        return pauses

    async def _notice_jump(self, now: datetime) -> None:
        """When the clock is set back, what waits for a time must not wait so much longer."""
        steady = timedelta(seconds=asyncio.get_running_loop().time())
        ahead = now - _START - steady
        back = timedelta(0) if self._steady is None else self._steady - ahead
        if back > JUMP:
            self._renewed = self._swept = now
            if self._leads:
                await self._context.store.run(lambda tx: set_back(tx, back))
        self._steady = ahead

    async def _give_back(self, now: datetime) -> None:
        """What could not be finished for want of room is due again once there is some."""
        given = dict(self._context.let_go)
        if not given:
            return

        def step(tx: Transaction) -> None:
            for number, left in given.items():
                work = tx.work(number)
                if work is None or work.owner != self._context.owner:
                    continue
                side = SIDES.get(work.kind, Side.SENDING)
                message = tx.message(side, work.message_id) if left else None
                said = "what came of it could not be stored"
                if message is None or self._left_behind(tx, message, work, now, said) is not None:
                    tx.postpone_work(number, now)

        await self._context.store.run(step)
        for number in given:
            del self._context.let_go[number]

    async def _renew(self, now: datetime) -> None:
        """A long transfer keeps its claim."""
        if now - self._renewed < self._context.lease / _RENEWALS:
            return
        self._renewed = now
        owner, until = self._context.owner, now + self._context.lease
        mine = tuple(self._context.in_hand)
        await self._context.store.run(lambda tx: tx.renew_work(owner, mine, until))

    def _room(self) -> dict[str, int]:
        """How much more of each kind can be taken."""
        room = {kind: _AT_ONCE[kind] - self._busy[kind] for kind in self._performers}
        room.update(dict.fromkeys(SIDES, self._sender.room()))
        return {kind: free for kind, free in room.items() if free > 0}

    def _claim(
        self, tx: Transaction, room: Mapping[str, int], kinds: Sequence[str], now: datetime
    ) -> Claimed:
        owner, until = self._context.owner, now + self._context.lease
        paused = [one.name for one in tx.partners() if one.gate is not Gate.FLOWING]
        paused += self._sender.full()
        found: Claimed = []
        for kind in kinds:
            for work in tx.claim_work((kind,), now, owner, until, room[kind], without=paused):
                if kind not in SIDES:
                    found.append((work, None))
                elif (outgoing := self._outgoing(tx, work, now)) is not None:
                    found.append((work, outgoing))
        return found + self._probes(tx, room, now)

    def _probes(self, tx: Transaction, room: Mapping[str, int], now: datetime) -> Claimed:
        """One message for each address whose pause is over, and one call of the webhook."""
        owner, until = self._context.owner, now + self._context.lease
        found: Claimed = []
        stopped = [one for one in tx.partners() if one.gate is not Gate.FLOWING]
        waiting = [one.name for one in stopped if one.until is None or one.until > now]
        for partner in stopped:
            if not is_served(partner.name, waiting):
                continue
            kinds = ("notify",) if partner.name == WEBHOOK else tuple(SIDES)
            if not any(kind in room for kind in kinds):
                continue
            name = partner.name
            for work in tx.claim_work(kinds, now, owner, until, 1, without=waiting, partner=name):
                outgoing = self._outgoing(tx, work, now) if work.kind in SIDES else None
                if work.kind in SIDES and outgoing is None:
                    continue
                if probe(self._context, tx, partner, now):
                    found.append((work, outgoing and changed(outgoing, probes=True)))
        return found

    def _outgoing(self, tx: Transaction, work: Work, now: datetime) -> Outgoing | None:
        message = tx.message(SIDES[work.kind], work.message_id)
        if message is None:
            tx.finish_work(work.id)
            return None
        if work.left_by is not None and message.state is not State.SUSPENDED:
            found = self._left_behind(tx, message, work, now, STOPPED)
            return None if found is None else Outgoing(found, work)
        return Outgoing(message, work)

    def _left_behind(
        self, tx: Transaction, message: Message, work: Work, now: datetime, why: str
    ) -> Message | None:
        if message.bundle is None:
            return left_behind(self._context, tx, message, work, now, why)
        return bundle_left_behind(self._context, tx, message, work, now, why)

    def claimed(self, work: Work) -> Work:
        """Work that is about to be added: as this process has it, where it can begin at once."""
        if self._busy[work.kind] >= _AT_ONCE[work.kind]:
            return work
        until = self._context.clock() + self._context.lease
        return changed(work, owner=self._context.owner, lease_until=until)

    def begin(self, work: Work) -> None:
        """What was added claimed, or else could be claimed now."""
        if work.owner is not None:
            self._begin(work)
        else:
            self._context.work_came.set()

    def _begin(self, work: Work) -> None:
        self._busy[work.kind] += 1
        self._context.in_hand.add(work.id)
        task = asyncio.create_task(self._performed(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _performed(self, work: Work) -> None:
        try:
            await self._performers[work.kind](work)
        except StoreError as error:
            _log.error(
                "not recorded, it will be done again",
                extra={"message_id": work.message_id, "detail": str(error)},
            )
            self._context.let_go[work.id] = False
        except Exception:
            _log.exception(f"{work.kind} failed", extra={"message_id": work.message_id})
            later = self._context.clock() + _LATER
            try:
                await self._context.store.run(
                    lambda tx: tx.postpone_work(work.id, later, owner=work.owner)
                )
            except StoreError:
                self._context.let_go[work.id] = False
        finally:
            full = self._busy[work.kind] >= _AT_ONCE[work.kind]
            self._busy[work.kind] -= 1
            self._context.in_hand.discard(work.id)
            if full or work.kind not in _ALONE:
                self._context.work_came.set()


def set_back(tx: Transaction, back: timedelta) -> None:
    """The clock was set back by so much: what waits for a time must not wait so much longer."""
    _log.warning("the clock was set back", extra={"detail": f"by {back}"})
    tx.shift_work(back)
    for partner in tx.partners():
        if partner.until is not None:
            tx.set_partner(changed(partner, until=partner.until - back))
