"""Group commit: the steps of the same moment share one transaction and one wait for the disk.

Steps run on the loop, because they take microseconds and a second thread would only quarrel about
the interpreter with it. What waits (for the disk, for another process) is done by a `Hand`; the
steps that come meanwhile make up the next group.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgspec import Struct

from postroad.store.changing import SqliteTransaction
from postroad.store.failures import again, busy, is_mistake, told
from postroad.store.hand import Hand
from postroad.store.interface import StoreBusy, StoreError, Transaction
from postroad.store.writing import Writer

T = TypeVar("T")

GROUP_STEPS: Final = 128
"""The loop is not kept from other things for longer than these take."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    step: Callable[[Transaction], Any]
    future: "asyncio.Future[Any]"
    since: float


class _Outcome(Struct, frozen=True):
    result: Any = None
    error: Exception | None = None


class GroupCommit:
    """The queue of steps."""

    def __init__(self, writer: Writer, removed: Callable[[list[str]], None]) -> None:
        self._writer = writer
        self._removed = removed
        self._hand = Hand("postroad-commit")
        self._waiting: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._beginning: asyncio.Future[None] | None = None

    async def run(self, step: Callable[[Transaction], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Waiting(step, future, loop.time()))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Wait for the steps that were given."""
        if self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker}, timeout=2 * self._writer.patience)
            if not self._worker.done():
                self._writer.give_up()
                self._worker.cancel()
                if self._beginning is not None:
                    self._beginning.cancel()
        self._hand.end()

    async def _work(self) -> None:
        while self._waiting:
            await self._group()
            # Those whose steps are through may have more; it fits into the next group.
            await asyncio.sleep(0)

    async def _group(self) -> None:
        try:
            await self._begin()
        except StoreBusy as error:
            # Who came later has not waited long enough to be told so; another try is made.
            self._fail(self._impatient(), error)
            return
        except StoreError as error:
            self._fail(self._take(len(self._waiting)), error)
            return
        taken: list[_Waiting] = []
        try:
            outcomes = self._execute(taken)
            if not self._writer.group.changed:
                self._writer.abort()
                trash: list[str] = []
            else:
                trash = await self._commit()
        except StoreError as error:
            self._fail(taken, error)
            return
        except BaseException as error:
            self._fail(
                taken, StoreError(f"The store was interrupted ({error!r}): look what is kept.")
            )
            if isinstance(error, Exception):
                return
            raise
        for waiting, outcome in zip(taken, outcomes, strict=True):
            if waiting.future.done():
                continue
            if outcome.error is None:
                waiting.future.set_result(outcome.result)
            else:
                waiting.future.set_exception(outcome.error)
        if trash:
            self._removed(trash)

    async def _begin(self) -> None:
        """Begin a transaction; steps that wait too long for other processes are told so."""
        if self._beginning is None:
            if self._writer.try_begin():
                return
            self._beginning = self._hand.do(self._writer.begin)
        beginning = self._beginning
        while not beginning.done():
            await asyncio.wait({beginning}, timeout=self._writer.patience / 4)
            if not beginning.done():
                self._fail(self._impatient(), busy(self._writer.path, self._writer.patience))
        self._beginning = None
        beginning.result()

    def _impatient(self) -> list[_Waiting]:
        long_ago = asyncio.get_running_loop().time() - self._writer.patience
        impatient = 0
        while impatient < len(self._waiting) and self._waiting[impatient].since <= long_ago:
            impatient += 1
        return self._take(impatient)

    def _take(self, count: int) -> list[_Waiting]:
        return [self._waiting.popleft() for _ in range(count)]

    def _execute(self, taken: list[_Waiting]) -> list[_Outcome]:
        """Run the steps of the next group; what came of each of those that were taken.

        A step that fails after it has changed something takes its neighbours back with it. They
        are run again then, and the rest of the group too, each behind a savepoint: too costly for
        every day.
        """
        try:
            transaction = self._writer.transaction()
            outcomes: list[_Outcome] = []
            careful = False
            while self._waiting and len(taken) < GROUP_STEPS and not self._writer.full:
                waiting = self._waiting.popleft()
                if waiting.future.done():
                    continue
                taken.append(waiting)
                if careful:
                    outcomes.append(self._run_carefully(transaction, waiting))
                    continue
                outcome, harmed = self._run(transaction, waiting)
                outcomes.append(outcome)
                if harmed:
                    careful = True
                    self._writer.rewind()
                    transaction = self._writer.transaction()
                    outcomes = [self._run_carefully(transaction, one) for one in taken]
            if self._writer.group.changed:
                self._writer.finish_steps()
        except sqlite3.Error as error:
            self._writer.abort()
            raise told(error, self._writer.path) from error
        except BaseException:
            self._writer.abort()
            raise
        return outcomes

    def _run(self, transaction: SqliteTransaction, waiting: _Waiting) -> tuple[_Outcome, bool]:
        """What came of a step, and whether it failed after changing something."""
        group = self._writer.group
        changed, group.changed = group.changed, False
        try:
            return _Outcome(result=waiting.step(transaction)), False
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not is_mistake(error):
                raise
            return _Outcome(error=error), group.changed
        finally:
            group.changed |= changed

    def _run_carefully(self, transaction: SqliteTransaction, waiting: _Waiting) -> _Outcome:
        """What came of a step; nothing of it is left if it failed."""
        mark = self._writer.savepoint()
        outcome, harmed = self._run(transaction, waiting)
        if harmed:
            self._writer.back_to(mark)
        else:
            self._writer.release()
        return outcome

    async def _commit(self) -> list[str]:
        return await self._hand.do(self._writer.commit)

    def _fail(self, steps: list[_Waiting], error: StoreError) -> None:
        for waiting in steps:
            if not waiting.future.done():
                waiting.future.set_exception(again(error))
