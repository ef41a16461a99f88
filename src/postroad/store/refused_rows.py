"""Rows of refused messages whose senders proved nothing, in the SQLite database."""

import sqlite3
from typing import Final

from postroad.store.queries import query
from postroad.store.records import Message
from postroad.store.rows import message_details, microseconds

_ADD: Final = query("add_refused")
_BEGINNING: Final = query("beginning")
_OLDEST: Final = query("oldest_refused")
_REMOVE: Final = query("remove_refused")
OVERHEAD: Final = 1024
"""Bytes that the rows and indexes of a refused message take beside its fields."""


def size_of(message: Message, beginning: bytes) -> int:
    """What a refused message takes of the database: columns of the row repeat its fields."""
    return 2 * len(message_details(message)) + len(beginning) + OVERHEAD


def add(cursor: sqlite3.Cursor, message: Message, beginning: bytes) -> int:
    """Add the beginning of a message; what the message takes."""
    size = size_of(message, beginning)
    values = (message.message_id, microseconds(message.created_at), size, beginning)
    cursor.execute(_ADD, values)
    return size


def beginning_of(cursor: sqlite3.Cursor, message_id: str) -> bytes | None:
    rows = cursor.execute(_BEGINNING, (message_id,)).fetchall()
    return rows[0][0] if rows else None


def oldest(cursor: sqlite3.Cursor, limit: int) -> list[tuple[str, int, int]]:
    """Message id, time in microseconds and size of those that came first."""
    return cursor.execute(_OLDEST, (limit,)).fetchall()


def remove(cursor: sqlite3.Cursor, message_id: str) -> int:
    """Remove the beginning of a message; what it took, 0 where there was none."""
    return sum(size for (size,) in cursor.execute(_REMOVE, (message_id,)).fetchall())
