"""Groups of fragments as rows of the SQLite database."""

import sqlite3
from datetime import datetime
from typing import Final

from postroad.store.fragments import StoredFragment, StoredGroup
from postroad.store.queries import query
from postroad.store.records import Stored
from postroad.store.rows import Row, microseconds, time_of

_GROUP: Final = query("fragment_group")
_GATHERING: Final = query("gathering_groups")
_GATHERING_OF: Final = query("gathering_groups_of")
_SET_GROUP: Final = query("set_fragment_group")
_ADD: Final = query("add_fragment")
_FRAGMENT: Final = query("fragment")
_FRAGMENTS: Final = query("fragments")
_REMOVE: Final = query("remove_fragments")
_FORGET: Final = query("forget_fragment_groups")


def group_of(cursor: sqlite3.Cursor, sender: str, group_id: str) -> StoredGroup | None:
    rows = cursor.execute(_GROUP, (sender, group_id)).fetchall()
    return _group(rows[0]) if rows else None


def gathering(cursor: sqlite3.Cursor, sender: str | None, limit: int) -> list[StoredGroup]:
    if sender is None:
        rows = cursor.execute(_GATHERING, (limit,)).fetchall()
    else:
        rows = cursor.execute(_GATHERING_OF, (sender, limit)).fetchall()
    return [_group(row) for row in rows]


def _group(row: Row) -> StoredGroup:
    sender, group_id, changed_at, ended, to_come, details = row
    return StoredGroup(sender, group_id, time_of(changed_at), bool(ended), to_come, details)


def set_group(cursor: sqlite3.Cursor, group: StoredGroup) -> int:
    """By how many bytes more or less is to come."""
    before = group_of(cursor, group.sender, group.group_id)
    at = microseconds(group.changed_at)
    to_come = 0 if group.ended else group.to_come
    ended_at = at if group.ended else None
    row = (group.sender, group.group_id, at, ended_at, to_come, group.details)
    cursor.execute(_SET_GROUP, row)
    return to_come - (before.to_come if before is not None else 0)


def add_fragment(
    cursor: sqlite3.Cursor, sender: str, group_id: str, fragment: StoredFragment
) -> bool:
    where = fragment.stored
    row = (fragment.number, fragment.message_id, where.place, where.offset, where.size)
    return cursor.execute(_ADD, (*row, sender, group_id)).rowcount > 0


def fragment_of(
    cursor: sqlite3.Cursor, sender: str, group_id: str, number: int
) -> StoredFragment | None:
    rows = cursor.execute(_FRAGMENT, (sender, group_id, number)).fetchall()
    return _fragment(rows[0]) if rows else None


def fragments_of(cursor: sqlite3.Cursor, sender: str, group_id: str) -> list[StoredFragment]:
    return [_fragment(row) for row in cursor.execute(_FRAGMENTS, (sender, group_id)).fetchall()]


def take_fragments(cursor: sqlite3.Cursor, sender: str, group_id: str) -> list[StoredFragment]:
    """The fragments of a group, which has them no more."""
    found = fragments_of(cursor, sender, group_id)
    cursor.execute(_REMOVE, (sender, group_id))
    return found


def forget_groups(cursor: sqlite3.Cursor, before: datetime, limit: int) -> int:
    return cursor.execute(_FORGET, (microseconds(before), limit)).rowcount


def _fragment(row: Row) -> StoredFragment:
    number, message_id, place, start, size = row
    return StoredFragment(number, message_id, Stored(place, start, size))
