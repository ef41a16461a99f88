"""What the database and the disk complain about, told as the errors of the store."""

import errno
import sqlite3
from pathlib import Path
from typing import Final

from postroad.store.interface import StoreBusy, StoreDamaged, StoreError, StoreFull

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_WRITES_THAT_FAIL_WITHOUT_ROOM: Final = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}
"""SQLite says `full` only for ENOSPC; quotas and size limits come as these."""
_MISTAKES: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    sqlite3.NotSupportedError,
)


def is_mistake(error: sqlite3.Error) -> bool:
    """Whether the values of one step were wrong, rather than the database unable to work."""
    return isinstance(error, (*_MISTAKES, sqlite3.InterfaceError))


def told(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """The error of the store for what happened to the file or folder at `path`."""
    if isinstance(error, OSError):
        if error.errno in _NO_ROOM:
            return full(path)
        return StoreError(
            f"{path} cannot be used ({error.strerror or error}): check that the disk works and"
            " that the node may write there, then try again."
        )
    code = getattr(error, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    if kind == sqlite3.SQLITE_FULL or code in _WRITES_THAT_FAIL_WITHOUT_ROOM:
        return full(path)
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return StoreBusy(
            f"The database {path} is locked by another process: end the program that holds it,"
            " or try again."
        )
    if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(
            f"The database {path} is damaged ({error}): stop the node, put the file aside, and"
            " restore a backup in its place."
        )
    return StoreError(
        f"The database {path} cannot be used ({error}): check that the disk works and that the"
        " node may write there, then try again."
    )


def full(path: Path) -> StoreFull:
    return StoreFull(
        f"There is no room to write {path}: free disk space (or raise the quota) and try again;"
        " nothing of this step was kept."
    )


def released(folder: Path, size: int) -> StoreFull:
    return StoreFull(
        f"The disk of {folder} is full, and the node only lists, acknowledges and purges: make sure"
        f" that {2 * size // 2**20} MiB are free, and it goes on by itself; nothing of this step"
        " was kept."
    )


def busy(path: Path, seconds: float) -> StoreBusy:
    return StoreBusy(
        f"The database {path} has been locked by another process for {seconds:g} seconds: end"
        " the program that holds it, or try again."
    )


def lost(place: str, detail: str) -> StoreDamaged:
    return StoreDamaged(
        f"The content {place!r} {detail}: restore the file from a backup, or ask the partner to"
        " send the message again."
    )


def again(error: StoreError) -> StoreError:
    """The same error for another caller, who gets a traceback of his own."""
    return type(error)(*error.args)
