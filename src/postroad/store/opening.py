"""What happens when a process opens a store's folder: schema, identity, and cleaning up.

One process at a time does this, under the lock of the file `open.lock`.
"""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from postroad.store.contents import Contents, sync_folder
from postroad.store.interface import StoreError
from postroad.store.locks import FileLock
from postroad.store.private import create_private_file, create_private_folder
from postroad.store.queries import Migration, query
from postroad.store.writing import now

DATABASE: Final = "postroad.db"
MARK: Final = "journal.mark"
LOCK: Final = "lock"
"""In the folder of a process below `incoming`: who holds it is alive."""

_CHECKPOINT_PAGES: Final = 4000
_WAL_BYTES: Final = 64 * 1024 * 1024
_WRITER_CACHE_KIB: Final = 32 * 1024
_READER_CACHE_KIB: Final = 8 * 1024


def connect(path: Path, *, reader: bool = False) -> sqlite3.Connection:
    """A connection that never waits for a lock unless it is told to."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if reader else 'rwc'}"
    database = sqlite3.connect(
        address,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        timeout=0,
    )
    try:
        database.execute(
            f"PRAGMA cache_size = -{_READER_CACHE_KIB if reader else _WRITER_CACHE_KIB}"
        )
        database.execute("PRAGMA temp_store = MEMORY")
        if reader:
            return database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        database.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    except BaseException:
        database.close()
        raise
    return database


@contextlib.contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def migrate(database: sqlite3.Connection, path: Path, known: tuple[Migration, ...]) -> None:
    """Bring the schema up to date; a schema from the future is left alone."""
    with transaction(database):
        database.execute(query("migrations_table"))
        [(last,)] = database.execute(query("last_migration")).fetchall()
    newest = known[-1].number
    if last > newest:
        raise StoreError(
            f"The database {path} was made by a newer version (its schema is {last}, this version"
            f" knows {newest}): install that version, or restore a backup from before it."
        )
    for migration in known:
        if migration.number > last:
            with transaction(database):
                for statement in migration.statements():
                    database.execute(statement)
                database.execute(query("add_migration"), (migration.number, migration.name, now()))


class Mark(msgspec.Struct, frozen=True):
    """How far the journal is, noted outside of the database: a restored one is behind it."""

    epoch: int
    incarnation: str
    seq: int


def read_mark(folder: Path) -> Mark | None:
    try:
        return msgspec.json.decode((folder / MARK).read_bytes(), type=Mark)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_mark(folder: Path, mark: Mark) -> None:
    """Replace it whole, durably."""
    fresh = folder / f".{MARK}.{secrets.token_hex(4)}"
    try:
        create_private_file(fresh)
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(mark))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / MARK)
        sync_folder(folder)
    finally:
        fresh.unlink(missing_ok=True)


def identify(database: sqlite3.Connection, folder: Path, node: str) -> int:
    """Make sure that the store is this node's; the epoch of its journal.

    The epoch grows when the journal does not go on where the mark says it was: the database was
    made anew, restored from a backup, or came from elsewhere. An epoch without events is used
    again, so that it grows by one even if this is interrupted between database and mark.
    """
    mark = read_mark(folder)
    rows = database.execute(query("node")).fetchall()
    if not rows:
        epoch = 1 if mark is None else mark.epoch + 1
        incarnation, seq = secrets.token_hex(8), 0
        with transaction(database):
            database.execute(query("add_node"), (node, epoch, incarnation))
    else:
        [(name, epoch, incarnation, seq)] = rows
        if name != node:
            raise StoreError(
                f"The store in {folder} belongs to the node {name!r}, not to {node!r}: give each"
                " node a folder of its own."
            )
        if not _goes_on(mark, epoch, incarnation, seq):
            epoch = max(epoch + (seq > 0), 1 if mark is None else mark.epoch + 1)
            incarnation, seq = secrets.token_hex(8), 0
            with transaction(database):
                database.execute(query("start_epoch"), (epoch, incarnation))
    write_mark(folder, Mark(epoch, incarnation, seq))
    return int(epoch)


def _goes_on(mark: Mark | None, epoch: int, incarnation: str, seq: int) -> bool:
    return (
        mark is not None
        and (mark.epoch, mark.incarnation) == (epoch, incarnation)
        and mark.seq <= seq
    )


def noted_mark(database: sqlite3.Connection) -> Mark:
    """The mark as it should be now."""
    [(_, epoch, incarnation, seq)] = database.execute(query("node")).fetchall()
    return Mark(epoch, incarnation, seq)


@dataclass(frozen=True, slots=True)
class Presence:
    """The folder of this process below `incoming`, held as long as it lives."""

    token: str
    lock: FileLock


def appear(folder: Path) -> Presence:
    token = secrets.token_hex(6)
    own = folder / "incoming" / token
    create_private_folder(own)
    lock = FileLock(own / LOCK)
    lock.take()
    sync_folder(folder / "incoming")
    return Presence(token, lock)


def disappear(folder: Path, presence: Presence) -> None:
    """The folder goes if it is empty; what is left in it is looked through at the next start."""
    own = folder / "incoming" / presence.token
    with contextlib.suppress(OSError):
        if all(path.name == LOCK for path in own.iterdir()):
            presence.lock.path.unlink()
            own.rmdir()
    presence.lock.close()


def clean_up(database: sqlite3.Connection, contents: Contents) -> None:
    """Finish what processes that are gone have left, and remove what nobody needs."""
    for own in sorted((contents.folder / "incoming").iterdir()):
        # A process that ends just now takes its folder along.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if own.name != contents.token:
                _clean_up_after(database, contents, own)
    trash = [place for (place,) in database.execute(query("trash")).fetchall()]
    gone = [(place,) for place in trash if contents.remove(place)]
    if gone:
        with transaction(database):
            database.executemany(query("remove_trash"), gone)


def _clean_up_after(database: sqlite3.Connection, contents: Contents, own: Path) -> None:
    lock = FileLock(own / LOCK)
    try:
        if lock.try_take():
            settle_folder(database, contents, own)
            disappear(contents.folder, Presence(own.name, lock))
    finally:
        lock.close()


def settle_folder(database: sqlite3.Connection, contents: Contents, own: Path) -> None:
    """Each file that a row names is finished; the others belong to no commit."""
    for path in sorted(own.iterdir()):
        if path.name == LOCK:
            continue
        kind = path.name[:1]
        if kind == "s" and (
            rows := database.execute(query("segment_end"), (path.name,)).fetchall()
        ):
            if path.stat().st_size > rows[0][0]:
                os.truncate(path, rows[0][0])
            _close_segment(database, path.name)
            contents.finish(path.name)
        elif kind in ("f", "j") and database.execute(query("file_size"), (path.name,)).fetchall():
            contents.finish(path.name)
        else:
            path.unlink()


def _close_segment(database: sqlite3.Connection, place: str) -> None:
    with transaction(database):
        database.execute(query("close_segment"), (place,))
        for (size,) in database.execute(query("remove_empty_segment"), (place,)).fetchall():
            database.execute(query("add_trash"), (place,))
            database.execute(query("count"), ("bytes", -size))
