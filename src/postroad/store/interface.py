"""The store as the node sees it. Every backend passes the same contract test.

A step is a plain function that gets a `Transaction`: it loads, decides and changes. Steps of the
same moment share one commit; `run` returns once that commit is durable. A step may be run a second
time when a neighbour of the same commit failed, so it has no effect beside the transaction.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from postroad.store.records import (
    Event,
    Figures,
    Message,
    Recorded,
    Side,
    Signal,
    State,
    Stored,
    Wanted,
    Work,
)
from postroad.wire.content import Content, Sink

T = TypeVar("T")


class StoreError(Exception):
    """The store cannot do it now; the sentence says why, and what to do."""


class StoreFull(StoreError):
    """The disk is full. Nothing of the step was kept; it can be run again when there is room."""


class StoreBusy(StoreError):
    """Somebody else holds the database for too long."""


class StoreDamaged(StoreError):
    """The database or a content is not what was written."""


class Reader(Protocol):
    """What can be asked."""

    def message(self, side: Side, message_id: str) -> Message | None: ...

    def messages(self, wanted: Wanted) -> list[Message]: ...

    def signals(self, side: Side, message_id: str) -> list[Signal]:
        """In the order in which they came."""
        ...

    def events(self, message_id: str) -> list[Recorded]:
        """All that the journal says about a message, in order."""
        ...

    def journal(self, after: int, limit: int) -> list[Recorded]:
        """Events with a seq greater than `after`, in order."""
        ...

    def next_due(self, kinds: Collection[str]) -> datetime | None:
        """When the next unclaimed work is due."""
        ...

    def figures(self) -> Figures: ...


class Transaction(Reader, Protocol):
    """One step."""

    def add_message(self, message: Message) -> bool:
        """False when there is one of this side and id already; nothing is changed then."""
        ...

    def change_message(
        self, side: Side, message_id: str, expected: Collection[State], /, **changes: Any
    ) -> bool:
        """Change fields of a message if it is in one of the expected states; else False."""
        ...

    def add_signal(self, signal: Signal) -> None: ...

    def add_work(self, work: Work) -> int:
        """Its id. With an owner and a lease it is claimed from the start."""
        ...

    def claim_work(
        self, kinds: Collection[str], now: datetime, owner: str, lease_until: datetime, limit: int
    ) -> list[Work]:
        """Take due work whose lease is free or over, oldest first.

        Of `notify` work for one message only the first is given, so that they stay in order.
        """
        ...

    def finish_work(self, id: int) -> None: ...

    def postpone_work(self, id: int, due_at: datetime, data: bytes | None = None) -> None:
        """Try again later: the attempt is counted, the lease given back."""
        ...

    def renew_work(self, owner: str, lease_until: datetime) -> None:
        """The owner is still at it, with all that it has claimed."""
        ...

    def release_work(self, owner_prefix: str) -> list[Work]:
        """Give back the leases of owners that are gone; what they had claimed."""
        ...

    def record(self, events: Iterable[Event]) -> None:
        """Write to the journal, in this order."""
        ...

    def keep(self, content: bytes | Content) -> Stored:
        """Make content durable together with this step."""
        ...

    def drop(self, stored: Stored) -> None:
        """Content that nobody needs any more; gone after the commit."""
        ...

    def purge(self, before: datetime, states: Collection[State], limit: int) -> list[Message]:
        """Remove messages (rows, signals, contents) last changed before a time; those removed."""
        ...


class Store(Protocol):
    node: str
    epoch: int

    async def run(self, step: Callable[[Transaction], T]) -> T:
        """Run a step; when this returns, what it did is durable."""
        ...

    async def look(self, ask: Callable[[Reader], T]) -> T:
        """Ask without changing anything; never waits for a commit."""
        ...

    def new_sink(self) -> Sink:
        """Where content of any size is written before a step keeps it."""
        ...

    async def persist(self, content: Content) -> Content:
        """Large content is flushed to the disk off the loop, so that `keep` need not wait for it.

        Small content comes back as it is.
        """
        ...

    def content(self, stored: Stored) -> Content:
        """What was kept; `StoreDamaged` when it is not there or not whole."""
        ...

    async def check(self) -> None:
        """Whether the store works: raises the error that a step would meet."""
        ...

    async def mark(self) -> None:
        """Note how far the journal is where a restored database would be found behind it.

        For each heartbeat: what was recorded since the last note may be missed by that check.
        """
        ...

    async def close(self) -> None:
        """Wait for the steps that were given; no more are taken."""
        ...


class OpenStore(Protocol):
    """How a backend is opened: by the node's name and the folder of its data."""

    async def __call__(self, folder: Path, node: str) -> Store: ...
