"""Uploads as rows of the SQLite database."""

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from postroad.store.queries import query
from postroad.store.records import Stored
from postroad.store.rows import Row, microseconds, time_of
from postroad.store.transfers import Held, StoredTransfer

_TRANSFER: Final = query("transfer")
_SET: Final = query("set_transfer")
_REMOVE: Final = query("remove_transfer")
_HELD: Final = query("held_transfers")
_HELD_OF: Final = query("held_transfers_of")
_RELEASE: Final = query("release_transfers")
_OVER: Final = query("transfers_over")
_DONE: Final = query("transfers_done")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[Stored, ...]).decode


def transfer_of(cursor: sqlite3.Cursor, sender: str, path: str, name: str) -> StoredTransfer | None:
    rows = cursor.execute(_TRANSFER, (sender, path, name)).fetchall()
    return _transfer(rows[0]) if rows else None


def held(cursor: sqlite3.Cursor, partner: str | None) -> Held:
    asked = (_HELD, ()) if partner is None else (_HELD_OF, (partner,))
    [(transfers, size)] = cursor.execute(*asked).fetchall()
    return Held(transfers, size or 0)


def set_transfer(cursor: sqlite3.Cursor, transfer: StoredTransfer) -> tuple[Stored, ...]:
    """The pieces that it had and has no more."""
    before = transfer_of(cursor, transfer.sender, transfer.path, transfer.name)
    open_until = transfer.open_until
    row = (
        transfer.sender,
        transfer.path,
        transfer.name,
        transfer.partner,
        transfer.stored,
        transfer.total,
        transfer.size,
        microseconds(transfer.touched_at),
        microseconds(transfer.expires_at),
        transfer.owner,
        None if open_until is None else microseconds(open_until),
        transfer.done,
        _encode(transfer.pieces),
        transfer.details,
    )
    cursor.execute(_SET, row)
    had = before.pieces if before is not None else ()
    return tuple(piece for piece in had if piece not in transfer.pieces)


def remove_transfer(
    cursor: sqlite3.Cursor, sender: str, path: str, name: str
) -> tuple[Stored, ...] | None:
    """Its pieces; None when there is none."""
    rows = cursor.execute(_REMOVE, (sender, path, name)).fetchall()
    return _decode(rows[0][0]) if rows else None


def release(cursor: sqlite3.Cursor, owner_prefix: str) -> int:
    return cursor.execute(_RELEASE, {"prefix": owner_prefix}).rowcount


def forget(cursor: sqlite3.Cursor, now: datetime, limit: int) -> list[tuple[Stored, ...]]:
    """The pieces of each that is forgotten."""
    return _pieces(cursor.execute(_OVER, (microseconds(now), limit)).fetchall())


def forget_done(cursor: sqlite3.Cursor, most: int) -> list[tuple[Stored, ...]]:
    return _pieces(cursor.execute(_DONE, (most,)).fetchall())


def _pieces(rows: Iterable[Row]) -> list[tuple[Stored, ...]]:
    return [_decode(pieces) for (pieces,) in rows]


def _transfer(row: Row) -> StoredTransfer:
    sender, path, name, partner, stored, total, touched, expires, owner, until, done, *rest = row
    pieces, details = rest
    return StoredTransfer(
        sender,
        path,
        name,
        partner,
        stored,
        total,
        time_of(touched),
        time_of(expires),
        _decode(pieces),
        owner,
        None if until is None else time_of(until),
        bool(done),
        details,
    )
