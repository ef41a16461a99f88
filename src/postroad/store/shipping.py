"""Shipping the journal: what stands in the store becomes segments, without gap or repeat.

A segment is written whole, and only then is it noted how far the journal was shipped. When
somebody dies in between, the segment is found by the next one: it is compared with the journal and
adopted.
"""

import asyncio
import contextlib
import errno
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import takewhile
from pathlib import Path
from typing import Final

import pyarrow as pa
from msgspec.structs import astuple

from postroad.store.hand import Hand
from postroad.store.interface import Reader, Store, StoreError, Transaction
from postroad.store.journal_columns import COLUMNS
from postroad.store.locks import FileLock
from postroad.store.places import Place
from postroad.store.records import Event, Recorded, Shipped
from postroad.store.rows import SEQ_BITS
from postroad.store.segments import (
    NotASegment,
    WrittenSegment,
    file_name,
    footer_of,
    open_segment,
    segment_name,
    write_segment,
)

SIZE: Final = 32 * 1024 * 1024
LOCK: Final = "shipping.lock"
_BATCH: Final = 4096
_EVENT_BYTES: Final = 80.0
"""What an event takes in a segment, until that is measured."""
_ENOUGH: Final = 1000
"""Events of a segment from which that can be measured."""
_LAST_SEQ: Final = (1 << SEQ_BITS) - 1
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_log = logging.getLogger("postroad.journal")

assert tuple(COLUMNS.names[3:]) == Event.__struct_fields__

Read = Callable[[int, int, int], list[Recorded]]
"""Events after an epoch and a seq, so many at most."""


class ShippingError(Exception):
    """The journal cannot be shipped now; the sentence says why, and what to do."""


class OtherJournal(ShippingError):
    """Where the next segment should go there is a file that tells something else."""

    def __init__(self, sentence: str, epoch: int, name: str) -> None:
        super().__init__(sentence)
        self.epoch = epoch
        self.name = name


class Shipper:
    """Ships the journal of a store to one place, one segment after the other.

    A segment becomes about as large as `size`. `folder` is the store's: there lies the lock that
    lets one process at a time write a segment. `view` is how events look there, `until` ends it;
    who ships something else than the journal itself has another `key` for how far that is.
    """

    def __init__(
        self,
        store: Store,
        target: str | Path,
        *,
        size: int = SIZE,
        folder: Path | None = None,
        key: str | None = None,
        view: Callable[[Recorded], Recorded] | None = None,
        until: datetime | None = None,
    ) -> None:
        self.target = str(target)
        self._store = store
        self._size = size
        self._key = key or self.target
        self._view = view
        self._until = until
        self._lock = FileLock(folder / LOCK) if folder else None
        self._event_bytes = _EVENT_BYTES
        self._hand = Hand("postroad-shipping")
        self._swept = False

    async def waiting(self) -> int:
        """How many events of this epoch are still to be shipped."""
        position = await self._position()
        last = (await self._store.look(lambda reader: reader.figures())).last_seq
        return last - (position.seq if position.epoch == self._store.epoch else 0)

    async def begin_at(self, since: datetime) -> None:
        """Leave out what was before a time, unless there is something there already."""
        start = position = await self._position()
        if position != Shipped(self._key):
            return
        while rows := await self._store.look(_asking(position.epoch, position.seq, _BATCH)):
            early = list(takewhile(lambda one: one.event.at < since, rows))
            if early:
                position = Shipped(self._key, early[-1].epoch, early[-1].seq)
            if len(early) < len(rows):
                break
        await self._note(start, position)

    async def ship(
        self, *, everything: bool, told: Callable[[WrittenSegment], None] = lambda _: None
    ) -> int:
        """Write the segments that are full or, with `everything`, all that there is; how many.

        `told` hears of each once it is noted.
        """
        count = 0
        while everything or await self._is_full():
            position = await self._position()
            try:
                written = await self._write_next(position)
            except OtherJournal as error:
                if error.epoch == self._store.epoch:
                    raise
                _log.error("an earlier epoch is not shipped on", extra={"detail": str(error)})
                await self._note(position, Shipped(self._key, error.epoch, _LAST_SEQ))
                continue
            if written is None:
                break
            epoch, segment = written
            now = Shipped(self._key, epoch, segment.last_seq, segment.digest, segment.name)
            if await self._note(position, now):
                told(segment)
                count += 1
        return count

    def close(self) -> None:
        """No more is shipped. Who is at it may finish, and has the lock until then."""
        if self._lock is not None:
            self._hand.do(self._lock.close)
        self._hand.end()

    async def _position(self) -> Shipped:
        return await self._store.look(lambda reader: reader.shipped(self._key))

    @property
    def _most(self) -> int:
        """Events of a segment."""
        return max(1, int(self._size / self._event_bytes))

    async def _is_full(self) -> bool:
        """Whether the next segment would not grow any more."""

        def ask(reader: Reader) -> bool:
            position = reader.shipped(self._key)
            first = reader.journal(position.seq, 1, position.epoch)
            last = reader.journal(reader.figures().last_seq - 1, 1)
            if not first or not last:
                return bool(first)
            count = last[0].seq - first[0].seq + 1
            return not _fits(first[0])(last[0]) or count >= self._most

        return await self._store.look(ask)

    async def _note(self, before: Shipped, now: Shipped) -> bool:
        """Note how far it is; False when another process was quicker."""

        def step(tx: Transaction) -> bool:
            if tx.shipped(self._key) != before:
                return False
            tx.set_shipped(now)
            return True

        return await self._store.run(step)

    async def _write_next(self, position: Shipped) -> tuple[int, WrittenSegment] | None:
        """The next segment, with its epoch; None when there is nothing to ship."""
        loop = asyncio.get_running_loop()

        def read(epoch: int, seq: int, limit: int) -> list[Recorded]:
            asked = self._store.look(_asking(epoch, seq, limit))
            rows = asyncio.run_coroutine_threadsafe(asked, loop).result()
            if self._until is not None:
                end = self._until
                rows = list(takewhile(lambda one: one.event.at < end, rows))
            return rows if self._view is None else list(map(self._view, rows))

        return await self._hand.do(lambda: self._write(position, read))

    def _write(self, position: Shipped, read: Read) -> tuple[int, WrittenSegment] | None:
        with self._alone():
            first = next(iter(read(position.epoch, position.seq, 1)), None)
            if first is None:
                return None
            previous = position.digest if first.epoch == position.epoch else ""
            try:
                return first.epoch, self._written(position, first, previous, read)
            except (ShippingError, StoreError):
                raise
            except Exception as error:
                raise ShippingError(self._sentence(error)) from error

    def _written(
        self, position: Shipped, first: Recorded, previous: str, read: Read
    ) -> WrittenSegment:
        place = Place.of(self.target)
        self._sweep(place, first.node)
        name = segment_name(first.node, first.epoch, first.seq, first.event.at)
        if place.exists(name):
            return self._adopted(place, name, first, previous, read)
        stretch = _stretch(read, position, self._most)
        written = write_segment(
            place, map(record_batch, stretch), node=first.node, epoch=first.epoch, previous=previous
        )
        if written.rows >= _ENOUGH:
            self._event_bytes = written.bytes / written.rows
        return written

    def _adopted(
        self, place: Place, name: str, first: Recorded, previous: str, read: Read
    ) -> WrittenSegment:
        """A segment that is there already, after a look whether it tells what our journal tells."""

        def other(why: str) -> OtherJournal:
            return OtherJournal(
                f"{place.path(name)} is in the way: {why}. If something else was written there,"
                " choose another folder. If this node's whole data folder was restored, stop the"
                " node, remove journal.mark from that folder and start it: its journal goes on in"
                " a new epoch.",
                first.epoch,
                name,
            )

        seq, rows = first.seq - 1, 0
        with place.reading(name) as file:
            try:
                segment = open_segment(file)
                footer = footer_of(segment)
                if (footer.node, footer.epoch) != (first.node, first.epoch):
                    raise other("it is of another node or epoch")
                if footer.previous != previous:
                    raise other("it does not follow the segment that was shipped last")
                for batch in segment.iter_batches(_BATCH):
                    ours = read(first.epoch, seq, batch.num_rows)
                    ours = [one for one in ours if one.epoch == first.epoch]
                    # An earlier epoch may have gone on after this database was saved.
                    same = batch[: len(ours)] if first.epoch < self._store.epoch else batch
                    if not record_batch(ours).equals(same):
                        raise other(f"it tells something else from seq {seq + 1} on")
                    seq, rows = batch["seq"][-1].as_py(), rows + batch.num_rows
            except (NotASegment, pa.ArrowException) as error:
                raise other(str(error)) from error
        return WrittenSegment(
            name, place.path(name), place.digest(name), first.seq, seq, rows, place.size(name)
        )

    def _sweep(self, place: Place, node: str) -> None:
        """Remove what this node left half-written when it died."""
        if self._swept:
            return
        left = re.compile(rf"(.*/)?\.{re.escape(file_name(node))}-\d+-\d{{20}}\.parquet")
        if place.renames:
            for name in place.names(hidden=True):
                if left.fullmatch(name):
                    place.remove(name)
        self._swept = True

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self._lock is None:
            yield
            return
        self._lock.take()
        try:
            yield
        finally:
            self._lock.give_back()

    def _sentence(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return (
                f"There is no room to ship the journal to {self.target}: free disk space there;"
                " what is not shipped stays in the database and is shipped then."
            )
        said = " ".join(str(getattr(error, "strerror", None) or error or type(error)).split())
        return (
            f"The journal cannot be shipped to {self.target} ({said}): check that the place is"
            " there and may be written; what is not shipped stays in the database and is shipped"
            " then."
        )


def _asking(epoch: int, seq: int, limit: int) -> Callable[[Reader], list[Recorded]]:
    return lambda reader: reader.journal(seq, limit, epoch)


def _stretch(read: Read, position: Shipped, most: int) -> Iterator[list[Recorded]]:
    """The events of the next segment, some thousands at a time: one epoch, one day, not too many.

    A clock that is set back past midnight ends a segment just as midnight does.
    """
    epoch, seq, first = position.epoch, position.seq, None
    while most > 0:
        rows = read(epoch, seq, min(_BATCH, most))
        if not rows:
            return
        first = first or rows[0]
        fitting = list(takewhile(_fits(first), rows))
        if fitting:
            yield fitting
        if len(fitting) < len(rows):
            return
        epoch, seq, most = rows[-1].epoch, rows[-1].seq, most - len(rows)


def _fits(first: Recorded) -> Callable[[Recorded], bool]:
    """Whether an event may be in the same segment as the first one."""
    epoch, day = first.epoch, _day(first)
    return lambda one: one.epoch == epoch and _day(one) == day


def _day(one: Recorded) -> date:
    return one.event.at.astimezone(UTC).date()


def record_batch(rows: Sequence[Recorded]) -> pa.RecordBatch:
    """Events as the columns of a segment."""
    if not rows:
        return pa.RecordBatch.from_pylist([], COLUMNS)
    columns = [
        [one.node for one in rows],
        [one.epoch for one in rows],
        [one.seq for one in rows],
        *zip(*(astuple(one.event) for one in rows), strict=True),
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)
