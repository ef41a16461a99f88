"""The store of one machine: SQLite, and contents as files beside it.

Any number of processes of one node open the same folder at the same time.

    postroad.db         messages, work and journal
    journal.mark        how far the journal is, noted outside of the database
    reserve             room that is given up when the disk is full
    segments/           small contents, many in a file
    payloads/           large contents, each in a file of its own
    incoming/           a folder for each process, with what it is working on
    *.lock              who may write next, who writes, who opens
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from postroad.store.changing import SqliteTransaction
from postroad.store.commits import GroupCommit
from postroad.store.contents import SMALL, Contents, sync_folder
from postroad.store.failures import busy, released, told
from postroad.store.interface import Reader, StoreError, StoreFull, Transaction
from postroad.store.locks import TurnLock, take_in_time
from postroad.store.opening import (
    DATABASE,
    MARK,
    appear,
    clean_up,
    connect,
    disappear,
    identify,
    migrate,
    noted_mark,
    settle_folder,
    write_mark,
)
from postroad.store.private import create_private_file, make_private
from postroad.store.queries import migrations
from postroad.store.reading import SqliteReader
from postroad.store.records import Stored, Wanted
from postroad.store.reserve import Reserve
from postroad.store.writing import Writer, now
from postroad.wire.content import Content, Sink

T = TypeVar("T")

_THREADS: Final = 4
_PROBE_BYTES: Final = 64 * 1024
"""What `check` writes, to see whether content could be written."""
_READER_PATIENCE: Final = 5000
"""Milliseconds that a list waits where a reader must wait at all: while another process recovers
or closes the database."""


class _TooLong(BaseException):
    """This question is not for the loop. No `Exception`, so that who asks does not catch it."""


class _QuickReader(SqliteReader):
    """Questions that are answered in microseconds; the others are asked again in a thread."""

    def messages(self, wanted: Wanted) -> NoReturn:
        raise _TooLong

    def journal(self, after: int, limit: int, epoch: int | None = None) -> NoReturn:
        raise _TooLong

    def figures(self) -> NoReturn:
        raise _TooLong


class SqliteStore:
    """The store behind `open_sqlite`."""

    def __init__(self, folder: Path, node: str, patience: float, reserve: int = 0) -> None:
        self.node = node
        self._folder = folder
        self._path = folder / DATABASE
        self._closed = False
        self._reading = threading.local()
        self._readers: list[sqlite3.Connection] = []
        try:
            make_private(folder)
            self._reserve = Reserve(folder, reserve)
            self._reserve.open()
            with contextlib.ExitStack() as undo:
                self._open(patience, undo)
                sync_folder(folder.parent)
                undo.pop_all()
        except sqlite3.Error as error:
            raise told(error, self._path) from error
        except OSError as error:
            raise told(error, folder) from error
        self._steps = GroupCommit(self._writer, self._remove)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="postroad-store")

    def _open(self, patience: float, undo: contextlib.ExitStack) -> None:
        lock = TurnLock(self._folder)
        undo.callback(lock.close)
        if not take_in_time(lock, patience):
            raise busy(self._path, patience)
        create_private_file(self._path)  # SQLite gives its other files the rights of this one.
        database = connect(self._path)
        undo.callback(database.close)
        database.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        migrate(database, self._path, migrations())
        self.epoch = identify(database, self._folder, self.node)
        self._presence = appear(self._folder)
        undo.callback(disappear, self._folder, self._presence)
        self._contents = Contents(self._folder, self._presence.token)
        clean_up(database, self._contents)
        undo.callback(self._close_readers)
        self._quick_database = self._reader()
        cursor = self._quick_database.cursor()
        undo.callback(cursor.close)
        self._quick_cursor = cursor
        self._quick = _QuickReader(cursor, self.node, self._bytes_on_disk)
        database.execute("PRAGMA busy_timeout = 0")
        self._writer = Writer(
            database, self._path, self.node, self._contents, lock, patience, self._bytes_on_disk
        )
        lock.give_back()

    @property
    def commits(self) -> int:
        """How often this process has waited for the disk to keep steps."""
        return self._writer.commits

    async def run(self, step: Callable[[Transaction], T]) -> T:
        self._must_be_open()
        if not self._reserve.is_whole and not self._reserve.restore():
            raise released(self._folder, self._reserve.size)
        return await self._steps.run(step)

    async def run_with_reserve(self, step: Callable[[Transaction], T]) -> T:
        self._must_be_open()
        try:
            return await self._steps.run(step)
        except StoreFull:
            if not self._reserve.size:
                raise
        try:
            self._reserve.release()
            await self._in_pool(self._reuse_log)
            return await self._steps.run(step)
        finally:
            self._reserve.keep_rest()

    def _reuse_log(self) -> None:
        """Bring the write-ahead log into the database, so that it is written from its beginning."""
        with contextlib.suppress(StoreError, sqlite3.Error), self._writer.alone() as database:
            database.execute("PRAGMA wal_checkpoint(RESTART)")

    async def look(self, ask: Callable[[Reader], T]) -> T:
        self._must_be_open()
        try:
            return _asked(self._quick_database, self._quick, ask)
        except _TooLong:
            pass
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise told(error, self._path) from error
        return await self._in_pool(lambda: self._look_long(ask))

    def _look_long(self, ask: Callable[[Reader], T]) -> T:
        try:
            database: sqlite3.Connection | None = getattr(self._reading, "database", None)
            if database is None:
                database = self._reading.database = self._reader()
                database.execute(f"PRAGMA busy_timeout = {_READER_PATIENCE}")
            with contextlib.closing(database.cursor()) as cursor:
                reader = SqliteReader(cursor, self.node, self._bytes_on_disk)
                return _asked(database, reader, ask)
        except sqlite3.Error as error:
            raise told(error, self._path) from error

    def new_sink(self) -> Sink:
        return self._contents.new_sink()

    async def persist(self, content: Content) -> Content:
        self._must_be_open()
        if content.size <= SMALL:
            return content
        return await self._in_pool(lambda: self._contents.persist(content))

    def content(self, stored: Stored) -> Content:
        return self._contents.content(stored)

    def free(self) -> int:
        return self._reserve.free()

    def reserved(self) -> int:
        return self._reserve.held()

    async def check(self) -> None:
        await self.run(_touch)
        await self._in_pool(self._probe)

    async def mark(self) -> None:
        self._must_be_open()
        await self._in_pool(self._write_mark)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._steps.close()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Leave the folder tidy where that is possible; the next start does what is not."""
        self._pool.shutdown()
        self._contents.close()
        with contextlib.suppress(StoreError, sqlite3.Error, OSError):
            with self._writer.alone() as database:
                settle_folder(database, self._contents, self._contents.own)
            self._write_mark()
        self._quick_cursor.close()
        self._close_readers()
        # The last connection to the database brings all of it into one file.
        self._writer.close()
        disappear(self._folder, self._presence)

    def _must_be_open(self) -> None:
        if self._closed:
            raise StoreError(f"The store in {self._folder} was closed: open it again.")

    async def _in_pool(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def _reader(self) -> sqlite3.Connection:
        database = connect(self._path, reader=True)
        self._readers.append(database)
        return database

    def _close_readers(self) -> None:
        for database in self._readers:
            database.close()

    def _bytes_on_disk(self) -> int:
        total = 0
        for path in (self._path, self._path.with_name(f"{DATABASE}-wal")):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def _remove(self, places: list[str]) -> None:
        """Remove files off the loop; a large one takes a while."""

        def remove() -> None:
            self._writer.removed += [place for place in places if self._contents.remove(place)]

        self._pool.submit(remove)

    def _probe(self) -> None:
        sink = self._contents.new_file()
        sink.write(b"\0" * _PROBE_BYTES)
        try:
            sink.persist()
        except OSError as error:
            raise told(error, sink.path) from error

    def _write_mark(self) -> None:
        try:
            database = connect(self._path, reader=True)
            try:
                mark = noted_mark(database)
            finally:
                database.close()
            write_mark(self._folder, mark)
        except sqlite3.Error as error:
            raise told(error, self._path) from error
        except OSError as error:
            raise told(error, self._folder / MARK) from error


def _asked(database: sqlite3.Connection, reader: SqliteReader, ask: Callable[[Reader], T]) -> T:
    """The answer from one snapshot."""
    database.execute("BEGIN")
    try:
        return ask(reader)
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _touch(transaction: Transaction) -> None:
    assert isinstance(transaction, SqliteTransaction)
    transaction.touch(now())


async def open_sqlite(
    folder: Path, node: str, *, patience: float = 10.0, reserve: int = 0
) -> SqliteStore:
    """Open the store in a folder, which is made if it is not there.

    `patience` is how many seconds a step waits for other processes that write, `reserve` how many
    bytes are set aside for steps that make room on a full disk.
    """
    return await asyncio.to_thread(SqliteStore, folder, node, patience, reserve)
