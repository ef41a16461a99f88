"""What a node does by the clock: heartbeats, a look at its files, removing what is too old."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.hub.forwarding import place_of
from postroad.node.settings.config import Config
from postroad.node.settings.in_force import InForce
from postroad.node.steps.noting import record_refusals
from postroad.reliability.agreed import largest_memory
from postroad.store.interface import Reader, StoreError, Transaction
from postroad.store.records import Event, Figures, Message, Side, State, Wanted
from postroad.wire.limits import MIB

HEARTBEAT: Final = 30.0
RELOAD: Final = 1.0
PURGE: Final = 3600.0
UPLOADS: Final = 60.0
REFUSALS: Final = 60.0
_AT_ONCE: Final = 200
_EVENTS_AT_ONCE: Final = 1000
_SENT: Final = (
    State.SENT,
    State.ACKNOWLEDGED,
    State.FAILED,
    State.IN_DOUBT,
    State.EXPIRED,
    State.SETTLED,
)
_RECEIVED: Final = (
    State.RECEIVED,
    State.DELIVERED,
    State.CONSUMED,
    State.REJECTED,
)
"""What may be removed by age: whatever is still on its way stays."""
_log = logging.getLogger("postroad.node")


class Upkeep:
    """The timers of one process."""

    def __init__(self, context: Context, *, leads: bool) -> None:
        self._context = context
        self._leads = leads
        """One process of a node beats and cleans for all."""
        self._stranded: set[str] = set()
        self._warned = False
        """That the disk is almost full."""

    async def run(self) -> None:
        """Until cancelled."""
        jobs = [self._every(RELOAD, self._reload), self._every(REFUSALS, self.record_refusals)]
        if self._leads:
            jobs += [
                self._every(HEARTBEAT, self.heartbeat),
                self._every(PURGE, self._purge),
                self._every(UPLOADS, self.forget_uploads),
                self._every(HEARTBEAT, self.watch_disk),
            ]
        await asyncio.gather(*jobs)

    async def _every(self, seconds: float, job: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await job()
            except StoreError as error:
                _log.error("upkeep", extra={"detail": str(error)})

    async def _reload(self) -> None:
        await asyncio.to_thread(self._context.in_force.refresh)

    async def record_refusals(self) -> None:
        """Tell how much was refused without an event of its own."""
        await record_refusals(self._context)

    async def _purge(self) -> None:
        await self.purge(None)
        await self.purge_events()

    async def heartbeat(self, detail: str | None = None) -> None:
        """So that silence is known to be silence."""
        now = self._context.clock()
        event = Event(now, self._context.party, "heartbeat", detail=detail)
        await self._context.store.run(lambda tx: tx.record((event,)))
        await self._context.store.mark()
        await self._tell_stranded()

    async def _tell_stranded(self) -> None:
        """Say once what nobody can pull, since its P-Mode is gone or pulls no more."""
        figures = await self._context.store.run(lambda tx: tx.figures())
        found = stranded(self._context.in_force, figures)
        for name in found.keys() - self._stranded:
            _log.warning("nobody can pull it", extra={"pmode": name, "detail": found[name]})
        self._stranded = set(found)

    async def watch_disk(self) -> None:
        """Log one line when there is little room on the disk, and one when there is enough."""
        problem = disk_problem(self._context.config, self._context.store.free())
        if problem is not None and not self._warned:
            _log.warning("the disk is almost full", extra={"detail": problem})
        elif problem is None and self._warned:
            _log.info("the disk has enough room again")
        self._warned = problem is not None

    async def purge(self, age: timedelta | None) -> int:
        """Remove messages past their retention, a few at a time; how many there were."""
        await self.purge_refused()
        kept_for = age if age is not None else self._context.config.retention.messages
        if kept_for is None:
            return 0
        now = self._context.clock()
        removed = await self._remove(_SENT, now, kept_for)
        await self._forget(now - kept_for)
        # Who forgets a message that came takes its copy for a new one.
        memory = self._context.in_force.longest_memory()
        memory = memory if memory is not None else self._context.config.retention.messages
        if memory is None:
            return removed
        memory = max(kept_for, memory)
        await self._forget_groups(now - memory)
        removed += await self._remove(_RECEIVED, now, memory)
        for leg in self._context.in_force.expectation.pmodes.legs:
            room = largest_memory(leg.leg)
            if room is not None:
                number = leg.index + 1
                removed += await self._bound_memory(leg.pmode.id, number, room, now, kept_for)
        return removed

    async def _bound_memory(
        self, pmode: str, leg: int, room: int, now: datetime, kept_for: timedelta
    ) -> int:
        """Remove the oldest messages that are kept for their ids alone, beyond this many bytes.

        AS4 5.2.4: DuplicateDetection.Parameters, maxsize.
        """
        store, before, removed = self._context.store, now - kept_for, 0
        key: int | None = None
        while True:
            wanted = Wanted(
                Side.RECEIVING,
                _RECEIVED,
                pmode,
                until=before,
                limit=_AT_ONCE,
                newest_first=True,
                before=key,
            )
            found = await store.look(partial(_listed, wanted=wanted))
            if not found:
                return removed
            key = min(one.key for one in found)
            surplus = []
            for one in found:
                if one.leg != leg or one.updated_at >= before:
                    continue
                room -= _kept_bytes(one)
                if room < 0:
                    surplus.append(one)
            if surplus:
                removed += await store.run_with_reserve(
                    partial(_removed, messages=surplus, now=now)
                )

    async def purge_refused(self) -> None:
        """Remove refused messages of senders who proved nothing, past their own retention."""
        limits = self._context.config.limits.refused
        before = self._context.clock() - limits.retention
        room, store = limits.total_bytes, self._context.store
        while (
            await store.run_with_reserve(lambda tx: tx.purge_refused(before, room, _AT_ONCE))
            == _AT_ONCE
        ):
            pass

    async def purge_events(self) -> int:
        """Remove events past their retention that were shipped to every place; how many."""
        journal, store = self._context.config.journal, self._context.store
        target = journal.ship_to
        if journal.retention is None or target is None:
            return 0
        before, removed = self._context.clock() - journal.retention, 0
        while count := await store.run_with_reserve(
            lambda tx: tx.purge_events(target, before, _EVENTS_AT_ONCE)
        ):
            removed += count
        behind = await store.look(lambda reader: _behind(reader, target, before))
        if behind is not None:
            detail = (
                f"old events of the journal are kept because {behind} has not got them. Ship or "
                "export to it, or give it up with: postroad journal forget"
            )
            _log.warning("the journal is not purged", extra={"detail": detail})
        return removed

    async def _forget_groups(self, before: datetime) -> None:
        """Who forgets that a group was rejected takes its next fragment for a new one."""
        store = self._context.store
        while await store.run_with_reserve(lambda tx: tx.forget_fragment_groups(before, _AT_ONCE)):
            pass

    async def forget_uploads(self) -> None:
        """What broke off and was not gone on with in time goes. [P2-6.4.3-03]"""
        now = self._context.clock()
        while await self._context.store.run_with_reserve(
            lambda tx: tx.forget_transfers(now, _AT_ONCE)
        ):
            pass

    async def _forget(self, before: datetime) -> None:
        while await self._context.store.run_with_reserve(
            lambda tx: tx.forget_states(before, _AT_ONCE)
        ):
            pass

    async def _remove(self, states: tuple[State, ...], now: datetime, age: timedelta) -> int:
        removed = 0
        while True:
            count = await self._context.store.run_with_reserve(
                lambda tx: _purged(tx, states, now, now - age)
            )
            removed += count
            if count < _AT_ONCE:
                return removed


def disk_problem(config: Config, free: int | None) -> str | None:
    """Say that there is little room on the disk; None: there is enough, or nobody counts."""
    if free is None or free >= config.limits.disk_warning:
        return None
    return (
        f"Only {free // MIB} MiB are free on the disk of {config.data}: free disk space, or remove"
        " old messages with: postroad purge --days N"
    )


def _behind(reader: Reader, target: str, before: datetime) -> str | None:
    """The place, beside the one that is always shipped to, for which old events are kept."""
    oldest = reader.journal(0, 1, 0)
    if not oldest or oldest[0].event.at >= before:
        return None
    first = (oldest[0].epoch, oldest[0].seq)
    return next(
        (
            one.target
            for one in reader.shipped_positions()
            if one.target != target and (one.epoch, one.seq) < first
        ),
        None,
    )


def stranded(in_force: InForce, figures: Figures) -> dict[str, str]:
    """What waits in channels that nobody can pull from: a sentence for each P-Mode or rule."""
    served = {one.match.pmode.id for one in in_force.channels.offered}
    served |= {place_of(one) for one in in_force.routing.file.routes if one.to.channel is not None}
    return {
        name: f"{count} wait to be pulled with {name}, which has no channel now: put it back, "
        "or they expire"
        for name, count in figures.offers.items()
        if count > 0 and name not in served
    }


def _purged(tx: Transaction, states: tuple[State, ...], now: datetime, before: datetime) -> int:
    gone = tx.purge(before, states, _AT_ONCE)
    _record_purged(tx, gone, now)
    return len(gone)


def _kept_bytes(message: Message) -> int:
    """How much is kept of a message."""
    envelope = message.envelope.size if message.envelope is not None else 0
    return envelope + sum(part.stored.size for part in message.parts)


def _listed(reader: Reader, wanted: Wanted) -> list[Message]:
    return reader.messages(wanted)


def _removed(tx: Transaction, messages: Sequence[Message], now: datetime) -> int:
    """Remove messages that are still as they were listed; return how many."""
    ids = [one.message_id for one in messages]
    found = {one.key: one for name in ids for one in tx.messages_of_id(Side.RECEIVING, name)}
    same = [one for one in messages if found.get(one.key) == one]
    tx.remove_received(same)
    _record_purged(tx, same, now)
    return len(same)


def _record_purged(tx: Transaction, gone: Sequence[Message], now: datetime) -> None:
    for message in gone:
        if message.timer is not None:
            tx.finish_work(message.timer)
    tx.record([about(one, "purged", now) for one in gone])
