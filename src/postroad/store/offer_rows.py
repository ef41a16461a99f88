"""What a selection finds in a channel, as rows of the SQLite database.

Each offer has a row for everything that a selection can ask of it. Where one of the items asked for
is rare, those that have it are looked at one by one. Where all of them are common, and the first
few that have one have not the others, the selection gets an item of its own: it is given to all
that have what it asks for, and to what comes later as it comes. So a selection looks at few rows,
but for the first time that it is made.
"""

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from postroad.store.interface import Place
from postroad.store.queries import query
from postroad.store.rows import Row, microseconds, offer_item

_ADD_ITEM: Final = query("add_offer_item")
_FREE: Final = query("free_offers")
_FIRST: Final = query("first_offers")
_FIRST_SELECTED: Final = query("first_selected_offers")
_FURTHER_HOLDER: Final = query("further_holder")
_COMBINATIONS: Final = query("combinations")
_ADD_COMBINATION: Final = query("add_combination")
_COMBINE: Final = query("combine_offers")
_REMOVE_COMBINATION: Final = query("remove_combination")
_REMOVE_COMBINED: Final = query("remove_combined")

FEW: Final = 50
"""Offers that a selection may look at one by one."""
MOST_COMBINATIONS: Final = 32
"""Selections of one place that have an item of their own."""
_ALL: Final = -1


def add_items(cursor: sqlite3.Cursor, place: Place, offer: int, items: Sequence[str]) -> None:
    """What selections can find a new offer by."""
    held = {offer_item(place, one) for one in items}
    combined = [item for item, needed in _combinations(cursor, place).items() if needed <= held]
    cursor.executemany(_ADD_ITEM, [(one, offer) for one in sorted(held) + combined])


def free(cursor: sqlite3.Cursor, place: Place, now: datetime) -> None:
    """Offer again what was handed out and not acknowledged in time."""
    cursor.execute(_FREE, (*place, microseconds(now)))


def first(cursor: sqlite3.Cursor, place: Place, items: Sequence[str], wanted: int = 1) -> list[Row]:
    """What came first of that which is offered in a place and has all the items, if anything.

    With a selection it may be less than is wanted, though there is more.
    """
    if not items:
        return cursor.execute(_FIRST, (*place, wanted)).fetchall()
    asked = list(dict.fromkeys(offer_item(place, one) for one in items))
    if len(asked) == 1:
        return _selected(cursor, asked, _ALL, wanted)
    for item in asked:
        if not cursor.execute(_FURTHER_HOLDER, (item, FEW)).fetchall():
            return _selected(cursor, [item, *(one for one in asked if one != item)], FEW, wanted)
    known, combined = _combinations(cursor, place), _combined(asked)
    if combined not in known:
        found = _selected(cursor, asked, FEW, wanted)
        if found:
            return found
        _combine(cursor, place, asked, list(known))
    return _selected(cursor, [combined], _ALL, wanted)


def _selected(cursor: sqlite3.Cursor, asked: list[str], most: int, wanted: int) -> list[Row]:
    others = json.dumps(asked[1:])
    values = {"item": asked[0], "others": others, "most": most, "wanted": wanted}
    return cursor.execute(_FIRST_SELECTED, values).fetchall()


def _combine(cursor: sqlite3.Cursor, place: Place, asked: list[str], known: list[str]) -> None:
    """Give a selection an item of its own; the oldest ones make room for it."""
    for old in known[: max(len(known) + 1 - MOST_COMBINATIONS, 0)]:
        cursor.execute(_REMOVE_COMBINATION, (old,))
        cursor.execute(_REMOVE_COMBINED, (old,))
    combined, others = _combined(asked), json.dumps(asked[1:])
    cursor.execute(_ADD_COMBINATION, (combined, _place(place), json.dumps(sorted(asked))))
    cursor.execute(_COMBINE, {"combined": combined, "item": asked[0], "others": others})


def _combinations(cursor: sqlite3.Cursor, place: Place) -> dict[str, set[str]]:
    rows = cursor.execute(_COMBINATIONS, (_place(place),)).fetchall()
    return {item: set(json.loads(items)) for item, items in rows}


def _place(place: Place) -> str:
    return offer_item(place, "")


def _combined(asked: Sequence[str]) -> str:
    return hashlib.blake2b(" ".join(sorted(asked)).encode(), digest_size=16).hexdigest()
