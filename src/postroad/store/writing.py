"""The one connection of a process that changes the database."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from postroad.store.changing import SqliteTransaction
from postroad.store.contents import Contents, Segment
from postroad.store.failures import busy, told
from postroad.store.group import Group
from postroad.store.interface import StoreError
from postroad.store.locks import TurnLock, take_in_time
from postroad.store.queries import query
from postroad.store.reading import BYTES_COUNT, LOAD_BYTES, LOAD_COUNT, OFFER_COUNT

_POSITION: Final = query("position")
_SET_POSITION: Final = query("set_position")
_COUNT: Final = query("count")
_REMOVE_COUNT: Final = query("remove_count")
_ADD_TO_SEGMENT: Final = query("add_to_segment")
_TAKE_FROM_SEGMENT: Final = query("take_from_segment")
_CLOSE_SEGMENT: Final = query("close_segment")
_REMOVE_EMPTY_SEGMENT: Final = query("remove_empty_segment")
_ADD_TRASH: Final = query("add_trash")
_REMOVE_TRASH: Final = query("remove_trash")

_FULL_GROUP_BYTES: Final = 1024 * 1024
"""A group ends with so much content, so that some messages are on their way to the partner while
others are written: with all of them in one group, both nodes would wait for each other in turns."""


class Writer:
    """Write transactions, one after the other, each of them the steps of one commit.

    `try_begin`, the steps and `finish_steps` are quick and run on the loop; `begin` and `commit`
    wait for other processes and for the disk, and run in the store's hand.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        path: Path,
        node: str,
        contents: Contents,
        lock: TurnLock,
        patience: float,
        bytes_on_disk: Callable[[], int],
    ) -> None:
        self.path = path
        self.patience = patience
        self.commits = 0
        self.removed: list[str] = []
        """Files that are gone, and that the next commit strikes from the trash."""
        self._database = database
        self._cursor = database.cursor()
        self._node = node
        self._contents = contents
        self._bytes_on_disk = bytes_on_disk
        self._lock = lock
        self._group: Group | None = None
        self._closing: list[Segment] = []
        self._striking: list[str] = []
        self._given_up = False

    def try_begin(self) -> bool:
        """Begin unless that means waiting."""
        if not self._lock.try_take():
            return False
        try:
            if self._database.in_transaction:  # A rollback failed, on a disk that failed too.
                self._database.execute("ROLLBACK")
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._lock.give_back()
            if _is_busy(error):
                return False
            raise told(error, self.path) from error
        return True

    def begin(self) -> None:
        """Wait for other processes, then begin."""
        self._lock.take()
        try:
            if self._given_up:
                raise busy(self.path, self.patience)
            self._wait_for_strangers()
        except BaseException:
            self._lock.give_back()
            raise

    def _wait_for_strangers(self) -> None:
        """Others than nodes (a backup, a shell) know nothing of our lock, only of SQLite's."""
        self._database.execute(f"PRAGMA busy_timeout = {int(self.patience * 1000)}")
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise (
                busy(self.path, self.patience) if _is_busy(error) else told(error, self.path)
            ) from error
        finally:
            self._database.execute("PRAGMA busy_timeout = 0")

    def transaction(self) -> SqliteTransaction:
        """For the steps of the transaction that has begun."""
        try:
            epoch, seq = self._database.execute(_POSITION).fetchall()[0]
        except sqlite3.Error as error:
            raise told(error, self.path) from error
        self._group = Group(epoch, seq, self._contents.batch())
        return SqliteTransaction(self._cursor, self._node, self._bytes_on_disk, self._group)

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    @property
    def full(self) -> bool:
        """Whether so much content waits in memory that it had better be written."""
        return self.group.contents.size >= _FULL_GROUP_BYTES

    def savepoint(self) -> tuple[Any, ...]:
        self.group.flush(self._cursor)
        self._database.execute("SAVEPOINT step")
        return self.group.mark()

    def release(self) -> None:
        self._database.execute("RELEASE step")

    def back_to(self, mark: tuple[Any, ...]) -> None:
        self._database.execute("ROLLBACK TO step")
        self._database.execute("RELEASE step")
        self.group.back_to(mark)

    def finish_steps(self) -> None:
        """Write down what the steps have added up."""
        database, group = self._database, self.group
        if not database.in_transaction:
            raise StoreError(
                f"The database {self.path} gave up a transaction; nothing of it was kept: try"
                " again."
            )
        group.flush(self._cursor)
        if group.kept and group.contents.segment is not None:
            database.execute(
                _ADD_TO_SEGMENT,
                (group.contents.segment.place, group.kept, group.contents.segment_end),
            )
        database.executemany(_TAKE_FROM_SEGMENT, [(n, place) for place, n in group.taken.items()])
        self._closing = list(self._contents.finished)
        database.executemany(_CLOSE_SEGMENT, [(segment.place,) for segment in self._closing])
        for place in {*group.taken, *(segment.place for segment in self._closing)}:
            for (size,) in database.execute(_REMOVE_EMPTY_SEGMENT, (place,)).fetchall():
                group.trash.append(place)
                group.counts[BYTES_COUNT] -= size
        database.executemany(_ADD_TRASH, [(place,) for place in group.trash])
        self._striking = list(self.removed)
        database.executemany(_REMOVE_TRASH, [(place,) for place in self._striking])
        database.executemany(_COUNT, [(name, n) for name, n in group.counts.items() if n])
        # Strangers name any number of senders and channels: none stays when nothing waits in it.
        passing = (LOAD_COUNT, LOAD_BYTES, OFFER_COUNT)
        empty = [(name,) for name, n in group.counts.items() if n < 0 and name.startswith(passing)]
        database.executemany(_REMOVE_COUNT, empty)
        database.execute(_SET_POSITION, (group.seq,))

    def commit(self) -> list[str]:
        """Make the contents durable, then the rows; the files that can go now."""
        group = self.group
        try:
            try:
                group.contents.write()
            except OSError as error:
                raise told(error, self._contents.own) from error
            try:
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                raise told(error, self.path) from error
        except BaseException:
            with contextlib.suppress(StoreError):
                self.abort()
            group.contents.undo()
            raise
        self._lock.give_back()
        self.commits += 1
        group.contents.settle()
        for segment in self._closing:
            self._contents.finished.remove(segment)
            self._contents.finish(segment.place)
        del self.removed[: len(self._striking)]
        self._group = None
        self._closing = []
        return group.trash

    def abort(self) -> None:
        """Nothing of it is kept."""
        try:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise told(error, self.path) from error
        finally:
            self._group = None
            self._closing = []
            self._lock.give_back()

    def rewind(self) -> None:
        """Start the same transaction again; the lock is kept."""
        self._database.execute("ROLLBACK")
        self._database.execute("BEGIN IMMEDIATE")

    def give_up(self) -> None:
        """Nobody waits for the lock any more; should it come, it goes back."""
        self._given_up = True

    @contextlib.contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """The database for whatever else is to be done, while no other node process writes."""
        if self._given_up or not take_in_time(self._lock, self.patience):
            raise busy(self.path, self.patience)
        try:
            yield self._database
        finally:
            self._lock.give_back()

    def close(self) -> None:
        self._lock.close()
        self._cursor.close()
        self._database.close()


def _is_busy(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
