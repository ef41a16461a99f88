"""The store's twin in memory, on a disk that survives its processes and does not always work.

As with the real store, the steps of the same moment share one commit: all of it is kept, or
nothing. A process may be killed before a commit or right after it; then nobody learns of it.
"""

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from postroad.store.interface import (
    Reader,
    StoreBusy,
    StoreError,
    StoreFull,
    Transaction,
)
from postroad.store.memory import MemoryStore, _MemoryTransaction
from postroad.store.memory_reading import MemoryReader, Tables
from postroad.store.records import Message, Recorded, Side, Work
from tests.sim.faults import Faults
from tests.sim.loop import Process, refuse

T = TypeVar("T")

CAUSE: Final[ContextVar[object]] = ContextVar("cause", default=None)
"""On whose account a step is run: the transmission that brought a message."""
Key = tuple[Side, str]


@dataclass
class Disk:
    """What is left when a process dies."""

    name: str
    tables: Tables = field(default_factory=Tables)
    full: bool = False
    deaths: int = 0
    """How many processes died over it."""

    def messages(self) -> Collection[Message]:
        return self.tables.messages.values()

    def message(self, side: Side, message_id: str) -> Message | None:
        return self.tables.messages.get((side, message_id))

    def messages_of_id(self, side: Side, message_id: str) -> list[Message]:
        return MemoryReader(self.tables).messages_of_id(side, message_id)


@dataclass(frozen=True)
class Commit:
    """What a step made durable."""

    disk: Disk
    events: list[Recorded]
    touched: list[Key]
    partners: list[str]
    cause: object
    process: Process
    claimed: list[int]
    """Work that it gave to the process."""


class Watching(Protocol):
    """Who looks at every commit."""

    def __call__(self, commit: Commit) -> None: ...


class _NotingTransaction(_MemoryTransaction):
    """Remembers which messages it changed."""

    def __init__(self, tables: Tables, node: str) -> None:
        super().__init__(tables, node)
        self.touched: dict[Key, None] = {}
        self.changed_partners: dict[str, None] = {}
        self.claimed: list[int] = []

    def _put(self, table: dict[Any, Any], key: Any, value: object) -> None:
        self._note(table, key)
        super()._put(table, key, value)

    def _pop(self, table: dict[Any, Any], key: Any) -> None:
        self._note(table, key)
        super()._pop(table, key)

    def claim_work(self, *args: Any, **named: Any) -> list[Work]:
        found = super().claim_work(*args, **named)
        self.claimed += [one.id for one in found]
        return found

    def _note(self, table: dict[Any, Any], key: Any) -> None:
        if table is self._tables.messages:
            self.touched[key] = None
        elif table is self._tables.work and key in table:
            # What happens to its work is of interest to the message.
            self.touched[Side.SENDING, table[key].message_id] = None
        elif table is self._tables.offers:
            self.touched[Side.SENDING, key] = None
        elif table is self._tables.partners:
            self.changed_partners[key] = None


@dataclass
class _Waiting:
    step: Callable[[Transaction], Any]
    future: "asyncio.Future[Any]"
    cause: object


_Outcome = tuple[_Waiting, Any, Exception | None]


class SimStore(MemoryStore):
    """The store of one process; others may have the same disk."""

    def __init__(self, disk: Disk, process: Process, faults: Faults, committed: Watching) -> None:
        super().__init__(disk.name)
        self._tables = disk.tables
        self._disk = disk
        self._process = process
        self._faults = faults
        self._committed = committed
        self._waiting: list[_Waiting] = []
        self._idle: asyncio.Future[None] | None = None
        """Done once nothing is being committed; None: nothing is."""

    async def run(self, step: Callable[[Transaction], T]) -> T:
        self._must_be_open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Waiting(step, future, CAUSE.get()))
        if self._idle is None:
            self._idle = loop.create_future()
            self._next()
        return await future

    async def look(self, ask: Callable[[Reader], T]) -> T:
        if self._faults.hits("unreadable"):
            raise StoreError("The database cannot be used (input/output error): try again.")
        return await super().look(ask)

    async def check(self) -> None:
        await self.run(lambda tx: None)

    async def close(self) -> None:
        if self._idle is not None:
            await self._idle
        await super().close()

    # By callbacks rather than by a task: nothing else is done as often.

    def _next(self) -> None:
        """Begin with what waits, all of it together, or rest."""
        if self._waiting:
            self._pause(self._commit)
        elif self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _pause(self, then: Callable[..., None], *args: object) -> None:
        """What the disk takes for a commit, before or after the moment in which it counts."""
        slow = self._faults.hits("slow disk")
        seconds = self._faults.between("slow disk", 0.1, 8) if slow else 0.001
        asyncio.get_running_loop().call_later(seconds, then, *args)

    def _commit(self) -> None:
        group, self._waiting = self._waiting, []
        try:
            outcomes = self._outcomes(group)
        except StoreError as error:
            for one in group:
                refuse(one.future, type(error)(*error.args))
            self._next()
            return
        if self._process.alive:
            self._pause(self._answer, outcomes)

    def _outcomes(self, group: list[_Waiting]) -> list[_Outcome]:
        faults = self._faults
        if self._disk.full:
            raise StoreFull("There is no room: nothing of this step was kept.")
        if faults.hits("busy"):
            raise StoreBusy("The database is locked by another process.")
        if faults.hits("crash before commit"):
            self._process.kill()
            return []
        outcomes = [self._executed(one) for one in group if not one.future.done()]
        if faults.hits("crash after commit"):
            self._process.kill()
        elif faults.hits("commit unknown"):
            raise StoreError("The store was interrupted: look what is kept.")
        return outcomes

    def _answer(self, outcomes: list[_Outcome]) -> None:
        for one, result, error in outcomes:
            if error is not None:
                refuse(one.future, error)
            elif not one.future.done():
                one.future.set_result(result)
        self._next()

    def _executed(self, one: _Waiting) -> _Outcome:
        """One step, all of it or nothing."""
        if self._faults.hits("step runs twice"):
            rehearsal = _MemoryTransaction(self._tables, self.node)
            try:
                one.step(rehearsal)
            except Exception:
                pass
            finally:
                rehearsal.take_back()
        before = len(self._tables.journal)
        transaction = _NotingTransaction(self._tables, self.node)
        try:
            result = one.step(transaction)
        except Exception as error:
            transaction.take_back()
            return one, None, error
        events = self._tables.journal[before:]
        touched, partners = list(transaction.touched), list(transaction.changed_partners)
        if events or touched or partners:
            cause, claimed = one.cause, transaction.claimed
            args = (self._disk, events, touched, partners, cause, self._process, claimed)
            self._committed(Commit(*args))
        return one, result, None
