"""The store as the node sees it. Every backend passes the same contract test.

A step is a plain function that gets a `Transaction`: it loads, decides and changes. Steps of the
same moment share one commit; `run` returns once that commit is durable. A step may be run a second
time when a neighbour of the same commit failed, so it has no effect beside the transaction.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from postroad.store.fragments import FragmentReader, FragmentSteps
from postroad.store.records import (
    Event,
    Extent,
    Figures,
    Load,
    Message,
    Notice,
    Offer,
    Partner,
    Queue,
    Recorded,
    Shipped,
    Side,
    Signal,
    State,
    Stored,
    Total,
    Wanted,
    Work,
)
from postroad.store.transfers import TransferReader, TransferSteps
from postroad.wire.content import Content, Sink

T = TypeVar("T")

Place = tuple[str, str]
"""A channel, and the P-Mode by which messages are in it."""


class StoreError(Exception):
    """The store cannot do it now; the sentence says why, and what to do."""


class StoreFull(StoreError):
    """The disk is full. Nothing of the step was kept; it can be run again when there is room."""


class StoreBusy(StoreError):
    """Somebody else holds the database for too long."""


class StoreDamaged(StoreError):
    """The database or a content is not what was written."""


class Reader(FragmentReader, TransferReader, Protocol):
    """What can be asked."""

    def message(self, side: Side, message_id: str) -> Message | None:
        """Return the message that is stored under an id, which may be a qualified one."""
        ...

    def messages_of_id(self, side: Side, message_id: str) -> list[Message]:
        """Return all messages that have this MessageId, the one without a qualified id first."""
        ...

    def messages_by_id(self, side: Side, ids: Collection[str]) -> dict[str, Message]:
        """Return all that have one of these MessageIds, by the ids under which they are stored."""
        ...

    def messages(self, wanted: Wanted) -> list[Message]:
        """Those that fit; fragments are not among them (`fragment_messages`)."""
        ...

    def total(self, wanted: Wanted, most: int) -> Total:
        """How many fit, wherever the list begins and ends, counted up to `most`.

        Where nothing leads to those that fit, only the newest are looked at, so many that it takes
        about as long as counting `most`.
        """
        ...

    def inbox(self) -> Extent:
        """How far the inbox is; what comes to it later has a greater key."""
        ...

    def signals(self, side: Side, message_id: str) -> list[Signal]:
        """In the order in which they came."""
        ...

    def events(self, message_id: str) -> list[Recorded]:
        """All that the journal says about a message, in order."""
        ...

    def journal(self, after: int, limit: int, epoch: int | None = None) -> list[Recorded]:
        """Events with a seq greater than `after`, in order.

        Of this epoch, or of the one that is named and all after it.
        """
        ...

    def beginning(self, message_id: str) -> bytes | None:
        """The beginning of a refused message whose sender proved nothing; None: none is kept."""
        ...

    def shipped(self, target: str) -> Shipped:
        """How far the journal was shipped to a place; from epoch 0, seq 0 where it never was."""
        ...

    def shipped_positions(self) -> list[Shipped]:
        """How far the journal was shipped, for each place that it was shipped to."""
        ...

    def due_by_kind(
        self, kinds: Collection[str], without: Collection[str] = ()
    ) -> dict[str, datetime]:
        """When the next unclaimed work of each kind is due, where there is any.

        `without` names partners that are not served.

        A party stands for all its addresses, here and in `claim_work`.
        """
        ...

    def work(self, id: int) -> Work | None: ...

    def others_work(
        self, kind: str, owner: str, most: int, *, after: int = 0, before: int = 0
    ) -> list[Work]:
        """What an owner has not claimed of one kind, in the order in which it was added.

        From behind the number `after` on; of what it has claimed, too, what is `before` a number.
        """
        ...

    def partners(self) -> list[Partner]:
        """Those with whom not all is well, by name."""
        ...

    def partner(self, name: str) -> Partner:
        """As it is known; all is well with a partner of whom nothing is kept."""
        ...

    def notices(self, after: int, limit: int) -> list[Notice]:
        """What the application was not told yet, in order."""
        ...

    def state(self, name: str) -> bytes | None:
        """What a protocol remembers under a name."""
        ...

    def offer(self, message_id: str) -> Offer | None:
        """Where a message or a signal is offered, without its items; None when it is not."""
        ...

    def queue(self, channel: str) -> Queue:
        """How much waits in a channel, what was handed out and not acknowledged included."""
        ...

    def load(self, account: str) -> Load:
        """How much waits to be passed on in somebody's name."""
        ...

    def figures(self) -> Figures: ...


class Transaction(Reader, FragmentSteps, TransferSteps, Protocol):
    """One step."""

    def add_message(self, message: Message) -> bool:
        """False when one is stored under this side and id already; nothing is changed then."""
        ...

    def add_messages(self, messages: Sequence[Message]) -> None:
        """The same for many, of which none is there: an error when one is."""
        ...

    def add_refused(self, message: Message, beginning: bytes) -> bool:
        """Add a refused message whose sender proved nothing, with the beginning of its envelope.

        False when there is one of this side and id already; nothing is changed then.
        """
        ...

    def drop_beginning(self, message_id: str) -> None:
        """A good copy takes the place of a refused message: its beginning is needed no more."""
        ...

    def purge_refused(self, before: datetime, room: int, limit: int) -> int:
        """Remove what `add_refused` added, oldest first; how many were removed, `limit` at most.

        Those go that were added before a time, and as many more as all of them take more than
        `room` bytes of the database.
        """
        ...

    def replace_messages(self, pairs: Sequence[tuple[Message, Message]]) -> bool:
        """Put messages in the place of what they were, if every one is still exactly so.

        Else False, and nothing is changed. For many at once: what lists are filtered by has to
        stay as it is but for the state, and nothing comes to the inbox so.
        """
        ...

    def change_message(
        self,
        side: Side,
        message_id: str,
        expected: Collection[State],
        /,
        *,
        attempts_were: int | None = None,
        **changes: Any,
    ) -> bool:
        """Change fields of a message if it is in one of the expected states; else False.

        With `attempts_were` also if so many attempts were made.
        """
        ...

    def add_signal(self, signal: Signal) -> None: ...

    def change_signal(self, before: Signal, after: Signal) -> None:
        """Put another signal about the same message in the place of one that is kept."""
        ...

    def add_work(self, work: Work) -> int:
        """Its id. With an owner and a lease it is claimed from the start.

        Not so in a lane that is taken: there it waits until all before it are finished.
        """
        ...

    def add_works(self, works: Sequence[Work]) -> list[int]:
        """The same for many: their ids, in their order."""
        ...

    def claim_work(
        self,
        kinds: Collection[str],
        now: datetime,
        owner: str,
        lease_until: datetime,
        limit: int,
        *,
        without: Collection[str] = (),
        partner: str | None = None,
    ) -> list[Work]:
        """Take due work whose lease is free or over, oldest first.

        Not for the partners `without`; with `partner` for that one only. What has expired is
        taken in any case.
        """
        ...

    def finish_work(self, id: int, owner: str | None = None) -> None:
        """It is done; the next in its lane may begin.

        With an owner: only if it is still the owner's.
        """
        ...

    def finish_works(self, ids: Collection[int], owner: str | None = None) -> None:
        """The same for many."""
        ...

    def postpone_work(
        self,
        id: int,
        due_at: datetime | None,
        data: bytes | None = None,
        *,
        owner: str | None = None,
    ) -> None:
        """Try again later: the attempt is counted, the lease given back.

        It keeps its place in its lane. None: when somebody wakes it. With an owner: only if it is
        still the owner's.
        """
        ...

    def expire_work(self, id: int, expires_at: datetime | None) -> None:
        """Set when somebody has to look at it at the latest."""
        ...

    def wake_work(self, id: int, due_at: datetime) -> bool:
        """Make unclaimed work due then; False when somebody is at it, or there is none.

        Nothing overtakes: behind another in its lane it still waits for its turn.
        """
        ...

    def turn_work(self, id: int, kind: str, due_at: datetime, partner: str = "") -> None:
        """Work of another kind takes its place, in its lane too; its data are done with."""
        ...

    def renew_work(self, owner: str, ids: Collection[int], lease_until: datetime) -> None:
        """The owner is still at it; what it does not name runs out."""
        ...

    def release_work(self, owner_prefix: str) -> list[Work]:
        """Give back the leases of owners that are gone; what they had claimed."""
        ...

    def shift_work(self, back: timedelta) -> None:
        """The clock was set back by so much: all times and leases with it."""
        ...

    def set_partner(self, partner: Partner) -> None:
        """Remember how it stands with a partner; nothing when all is well."""
        ...

    def add_notice(self, notice: Notice) -> None: ...

    def remove_notice(self, id: int) -> bool:
        """The application knows; False when there is no such notice."""
        ...

    def add_offer(self, offer: Offer) -> bool:
        """Put something into a channel, behind all others; False when it is in one already."""
        ...

    def first_offer(
        self, places: Collection[Place], now: datetime, items: Sequence[str] = ()
    ) -> Offer | None:
        """What came first of that which is offered now in some places, and has all the items.

        The first of the items is looked up, the others are compared: give that first which few
        messages have. What was handed out is offered again when its time has come.
        """
        ...

    def first_offers(
        self, places: Collection[Place], now: datetime, items: Sequence[str], most: int
    ) -> list[Offer]:
        """So many of them at most, in their order."""
        ...

    def postpone_offer(self, message_id: str, due_at: datetime) -> None:
        """It was handed out, and keeps its place: it is offered again then."""
        ...

    def remove_offer(self, message_id: str) -> None:
        """It is offered no more."""
        ...

    def first_time(self, name: str, now: datetime, until: datetime) -> bool:
        """Whether something comes for the first time; it is remembered until then."""
        ...

    def set_state(self, name: str, value: bytes | None, now: datetime) -> None:
        """Remember something under a name; None forgets it."""
        ...

    def forget_states(self, before: datetime, limit: int) -> int:
        """Forget what is passing (its name begins with ~) and was last changed before a time.

        How many there were.
        """
        ...

    def record(self, events: Iterable[Event]) -> None:
        """Write to the journal, in this order."""
        ...

    def set_shipped(self, shipped: Shipped) -> None:
        """The journal was shipped so far."""
        ...

    def forget_shipped(self, target: str) -> bool:
        """Nothing more is shipped to a place; False when nothing was."""
        ...

    def purge_events(self, target: str, before: datetime, limit: int) -> int:
        """Remove the oldest events that were shipped to a place, and to all others that are known.

        Up to the first event that is not older than a time, `limit` at most; how many were removed.
        Nothing is removed where nothing was shipped to `target`.
        """
        ...

    def keep(self, content: bytes | Content) -> Stored:
        """Make content durable together with this step."""
        ...

    def share(self, stored: Stored, more: int = 1) -> Stored:
        """So many more messages own content; it goes when each of its owners dropped it."""
        ...

    def drop(self, stored: Stored) -> None:
        """Content that its owner needs no more; gone after the commit."""
        ...

    def purge(self, before: datetime, states: Collection[State], limit: int) -> list[Message]:
        """Remove messages (rows, signals, contents) last changed before a time; those removed.

        The fragments of a message that is sent go with it, whatever became of each of them: those
        first, so many at a time, then the message.
        """
        ...

    def remove_received(self, messages: Sequence[Message]) -> None:
        """Remove received messages with their signals and contents, whatever their age."""
        ...


class Store(Protocol):
    node: str
    epoch: int

    async def run(self, step: Callable[[Transaction], T]) -> T:
        """Run a step; when this returns, what it did is durable."""
        ...

    async def run_with_reserve(self, step: Callable[[Transaction], T]) -> T:
        """Run a step that makes room: on a full disk it may use the room that is set aside."""
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

    def free(self) -> int | None:
        """How many more bytes of content there is room for; None: nobody counts."""
        ...

    def reserved(self) -> int:
        """How many bytes are set aside for steps that make room (`run_with_reserve`)."""
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
