"""The loop that claims what is due and hands it to those who do it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from postroad.node.context import Context
from postroad.node.sending import LEASE, Outgoing, Sender
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side, Work

_KINDS: Final = ("package", "signal", "notify")
_SHORTEST: Final = 0.02
_LONGEST: Final = 1.0
_AT_ONCE: Final = 16
_log = logging.getLogger("postroad.work")

Perform = Callable[[Work], Awaitable[None]]


class WorkLoop:
    """Claims due work. A process that dies leaves work that another picks up."""

    def __init__(self, context: Context, sender: Sender, performers: dict[str, Perform]) -> None:
        self._context = context
        self._sender = sender
        self._performers = performers
        self._tasks: set[asyncio.Task[None]] = set()

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
        context = self._context
        now = context.clock()
        kinds = [kind for kind in self._performers if len(self._tasks) < _AT_ONCE]
        if self._sender.room():
            kinds.append("send")
        if not kinds:
            return _SHORTEST
        due = await context.store.look(lambda reader: reader.next_due(kinds))
        if due is None:
            return _LONGEST
        if due > now:
            return min(max((due - now).total_seconds(), _SHORTEST), _LONGEST)
        claimed = await context.store.run(lambda tx: self._claim(tx, kinds, now))
        for work, message in claimed:
            if work.kind == "send":
                assert message is not None
                self._sender.take(Outgoing(message, work))
            else:
                self._perform(work)
        return _SHORTEST

    def _claim(
        self, tx: Transaction, kinds: list[str], now: datetime
    ) -> list[tuple[Work, Message | None]]:
        owner, until = self._context.owner, now + LEASE
        found: list[tuple[Work, Message | None]] = []
        if "send" in kinds:
            for work in tx.claim_work(("send",), now, owner, until, self._sender.room()):
                message = tx.message(Side.SENDING, work.message_id)
                if message is None:
                    tx.finish_work(work.id)
                else:
                    found.append((work, message))
        others = [kind for kind in kinds if kind != "send"]
        if others:
            free = _AT_ONCE - len(self._tasks)
            found += ((work, None) for work in tx.claim_work(others, now, owner, until, free))
        return found

    def _perform(self, work: Work) -> None:
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
        except Exception:
            _log.exception(f"{work.kind} failed", extra={"message_id": work.message_id})
            with contextlib.suppress(StoreError):
                later = self._context.clock() + timedelta(minutes=1)
                await self._context.store.run(lambda tx: tx.postpone_work(work.id, later))
        finally:
            self._context.work_came.set()
