"""Lists of messages in the SQLite database: the ranges of indexes that they are read from.

Without a side, a state, an error code and a partner the table itself is read. Else there is one
range for each side and state, each in the order of the whole.
"""

import heapq
import itertools
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from postroad.store.queries import query
from postroad.store.records import Side, State, Total, Wanted
from postroad.store.rows import Row, microseconds

_LARGEST: Final = 2**63 - 1
_LOOKED_AT: Final = 5
"""How many messages are looked at for each that is counted, where no index knows what fits."""
_MESSAGES: Final = query("messages")
_TOTAL: Final = query("total")
_STATE: Final = query("range_of_state")
_ERROR: Final = query("range_of_error")
_RECEIVER: Final = query("range_of_receiver")
_SENDER: Final = query("range_of_sender")
_SENDER_ONLY: Final = query("range_of_sender_only")
_UNINDEXED: Final = ("pmode", "from_party", "to_party", "service", "action", "conversation_id")


def list_query(within: str | None, *, newest_first: bool) -> str:
    """The query for the messages of a range; None: of all."""
    ordered = _MESSAGES.replace("ORDER BY key", "ORDER BY key DESC") if newest_first else _MESSAGES
    return _ranged(ordered, within)


def total_query(within: str | None) -> str:
    """The query that counts those of a range."""
    return _ranged(_TOTAL, within)


def _ranged(sql: str, within: str | None) -> str:
    return sql if within is None else sql.replace("WHERE part_of", f"WHERE {within} AND part_of")


RANGES: Final = (None, _STATE, _ERROR, _RECEIVER, _SENDER)
_LISTS: Final = {
    (within, newest_first): list_query(within, newest_first=newest_first)
    for within in RANGES
    for newest_first in (False, True)
}
_TOTALS: Final = {within: total_query(within) for within in RANGES}
_TOTAL_OF_FORWARDED: Final = total_query(_SENDER_ONLY)


def found(cursor: sqlite3.Cursor, wanted: Wanted) -> list[Row]:
    """Key and details of the messages that fit."""
    values = _values(wanted)
    rows = [
        cursor.execute(_LISTS[within, wanted.newest_first], values | place).fetchall()
        for within, place in _ranges(wanted)
    ]
    merged = heapq.merge(*rows, key=lambda row: row[0], reverse=wanted.newest_first)
    # What a partner sends to itself over this node is in two ranges.
    once = (next(same) for _, same in itertools.groupby(merged, key=lambda row: row[0]))
    return list(itertools.islice(once, wanted.limit))


def total(cursor: sqlite3.Cursor, wanted: Wanted, most: int) -> Total:
    """How many fit, up to `most`."""
    values, count, more = _values(wanted), 0, False
    filtered = any(getattr(wanted, name) is not None for name in (*_UNINDEXED, "since", "until"))
    left = most * (_LOOKED_AT if filtered else 1) + 1
    for within, place in _ranges(wanted):
        forwarded = within is _SENDER and place["side"] == Side.FORWARDING
        sql = _TOTAL_OF_FORWARDED if forwarded else _TOTALS[within]
        [(looked_at, fitting)] = cursor.execute(sql, values | place | {"most": left}).fetchall()
        left -= looked_at
        count += fitting
        if left <= 0 or count > most:
            more = True
            break
    return Total(min(count, most), more)


def _ranges(wanted: Wanted) -> Iterator[tuple[str | None, dict[str, str]]]:
    """The ranges in which messages may fit, with their places in them."""
    chosen = (wanted.side, wanted.partner, wanted.error_code)
    if not wanted.states and all(one is None for one in chosen):
        yield None, {}
        return
    for side in [wanted.side] if wanted.side else Side:
        for state in dict.fromkeys(wanted.states) or State:
            place = {"side": side._value_, "state": state._value_}
            if wanted.error_code is not None:
                yield _ERROR, place
            elif wanted.partner is None:
                yield _STATE, place
            else:
                if side is not Side.RECEIVING:
                    yield _RECEIVER, place
                if side is not Side.SENDING:
                    yield _SENDER, place


def _values(wanted: Wanted) -> dict[str, Any]:
    return {
        **{name: getattr(wanted, name) for name in (*_UNINDEXED, "partner", "error_code")},
        "since": -_LARGEST if wanted.since is None else microseconds(wanted.since),
        "until": _LARGEST if wanted.until is None else microseconds(wanted.until),
        "after": wanted.after,
        "before": _LARGEST if wanted.before is None else wanted.before,
        "limit": wanted.limit,
    }
