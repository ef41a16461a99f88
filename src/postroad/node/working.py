"""The loop that claims what is due and hands it to those who do it."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from postroad.node.context import Context
from postroad.node.sending import LEASE, Outgoing, Sender
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side, Work

_AT_ONCE: Final = {"package": 2, "signal": 16, "notify": 16}
"""How much of each kind is done at a time: who is slow holds up only his own kind."""
_SHORTEST: Final = 0.02
_LONGEST: Final = 1.0
_LATER: Final = timedelta(minutes=1)
_RENEWAL: Final = LEASE / 3
_log = logging.getLogger("postroad.work")

Perform = Callable[[Work], Awaitable[None]]
Claimed = list[tuple[Work, Message | None]]


class WorkLoop:
    """Claims due work. A process that dies leaves work that another picks up."""

    def __init__(self, context: Context, sender: Sender, performers: Mapping[str, Perform]) -> None:
        self._context = context
        self._sender = sender
        self._performers = performers
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: Counter[str] = Counter()
        self._renewed = self._swept = context.clock()

    async def run(self) -> None:
        """Until cancelled: look what is due, claim it, hand it out."""
        while True:
            wait = _LONGEST
            try:
                wait = await self._round()
            except StoreError as error:
                _log.error("work cannot be claimed now", extra={"detail": str(error)})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._context.work_came.wait(), wait)
            self._context.work_came.clear()

    async def stop(self) -> None:
        """Let what was begun come to its end."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _round(self) -> float:
        """One look; how long until the next is worth it."""
        now = self._context.clock()
        await self._give_back(now)
        await self._renew(now)
        room = self._room()
        if not room:
            return _SHORTEST
        due = await self._context.store.look(lambda reader: reader.next_due(tuple(room)))
        # What an owner that is gone had claimed is not told as due: look for it now and then.
        if now - self._swept < _LATER:
            if due is None:
                return _LONGEST
            if due > now:
                return min(max((due - now).total_seconds(), _SHORTEST), _LONGEST)
        self._swept = now
        claimed = await self._context.store.run(lambda tx: self._claim(tx, room, now))
        for work, message in claimed:
            if message is not None:
                self._sender.take(Outgoing(message, work))
            else:
                self._begin(work)
        return _SHORTEST

    async def _give_back(self, now: datetime) -> None:
        """What could not be finished for want of room is due again once there is some."""
        given = tuple(self._context.let_go)
        if not given:
            return

        def step(tx: Transaction) -> None:
            for number in given:
                tx.postpone_work(number, now)

        await self._context.store.run(step)
        self._context.let_go.difference_update(given)

    async def _renew(self, now: datetime) -> None:
        """A long transfer keeps its claim."""
        if now - self._renewed < _RENEWAL:
            return
        self._renewed = now
        await self._context.store.run(lambda tx: tx.renew_work(self._context.owner, now + LEASE))

    def _room(self) -> dict[str, int]:
        """How much more of each kind can be taken."""
        room = {kind: _AT_ONCE[kind] - self._busy[kind] for kind in self._performers}
        room["send"] = self._sender.room()
        return {kind: free for kind, free in room.items() if free > 0}

    def _claim(self, tx: Transaction, room: Mapping[str, int], now: datetime) -> Claimed:
        owner, until = self._context.owner, now + LEASE
        found: Claimed = []
        for kind, free in room.items():
            for work in tx.claim_work((kind,), now, owner, until, free):
                message = None
                if kind == "send":
                    message = tx.message(Side.SENDING, work.message_id)
                    if message is None:
                        tx.finish_work(work.id)
                        continue
                found.append((work, message))
        return found

    def _begin(self, work: Work) -> None:
        self._busy[work.kind] += 1
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
            self._context.let_go.add(work.id)
        except Exception:
            _log.exception(f"{work.kind} failed", extra={"message_id": work.message_id})
            later = self._context.clock() + _LATER
            try:
                await self._context.store.run(lambda tx: tx.postpone_work(work.id, later))
            except StoreError:
                self._context.let_go.add(work.id)
        finally:
            self._busy[work.kind] -= 1
            self._context.work_came.set()
