"""Facts of a message, and of events that came after all of these, as facts of both.

So what was written of a message before is not read again, as long as time goes on. Where new events
fall between old ones, facts cannot be joined: first and last are not known any more.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from postroad.pipeline.folding import OF_A_SIDE, OF_ALL, SCHEMA
from postroad.store.journal_columns import RECEIVING, SENDING

Row = dict[str, Any]
Joining = Callable[[Any, Any], Any]


def joinable(before: Row, later: Row) -> bool:
    """Whether all of one came before the other, and nothing was settled that may be again."""
    sent = before[SENDING] or {}
    settled = sent.get("settled") is not None or sent.get("settled_by") is not None
    return bool(before["until_at"] < later["noted_at"]) and not settled


def joined(before: Row, later: Row) -> Row:
    """The facts of both."""
    return {name: _OF_MESSAGE[name](before[name], later[name]) for name in SCHEMA.names}


def table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def _first(before: Any, later: Any) -> Any:
    return later if before is None else before


def _last(before: Any, later: Any) -> Any:
    return before if later is None else later


def _either(before: bool, later: bool) -> bool:
    return before or later


def _sum(before: int | None, later: int | None) -> int | None:
    return None if before is None and later is None else (before or 0) + (later or 0)


def _of_side(fields: dict[str, Joining]) -> Joining:
    def join(before: Row | None, later: Row | None) -> Row | None:
        if before is None or later is None:
            return later if before is None else before
        side = {name: one(before[name], later[name]) for name, one in fields.items()}
        return side | {"several": side["several"] or before["party"] != later["party"]}

    return join


def _envelopes(before: list[str] | None, later: list[str] | None) -> list[str] | None:
    return sorted({*(before or ()), *(later or ())}) or None


def _troubles(before: list[Row] | None, later: list[Row] | None) -> list[Row] | None:
    """By side and hour, in that order."""
    found: dict[tuple[str, Any], Row] = {}
    for one in (*(before or ()), *(later or ())):
        known = found.get((one["side"], one["hour"]), {"duplicates": 0, "errors": 0})
        counts = {name: known[name] + one[name] for name in ("duplicates", "errors")}
        found[one["side"], one["hour"]] = one | counts
    return [found[key] for key in sorted(found)] or None


def _hops(before: list[Row] | None, later: list[Row] | None) -> list[Row] | None:
    """By node."""
    found = {one["node"]: one for one in before or ()}
    for one in later or ():
        known = found.setdefault(one["node"], one)
        left = known if known["left_at"] is not None else one
        found[one["node"]] = known | {
            "arrived_at": _first(known["arrived_at"], one["arrived_at"]),
            **{name: left[name] for name in ("left_at", "next")},
        }
    return [found[node] for node in sorted(found)] or None


_SIDE: Final[dict[str, Joining]] = {
    **dict.fromkeys(OF_A_SIDE, _first),
    "several": _either,
    "acknowledged_at": _first,
    "failed_at": _first,
    "errors": _sum,
}
_OF_MESSAGE: Final[dict[str, Joining]] = {
    "message_id": _first,
    **dict.fromkeys(OF_ALL, _first),
    "out_of_order": _sum,
    "noted_at": _first,
    "until_at": _last,
    "first_at": _first,
    "last_at": _last,
    SENDING: _of_side(
        {
            **_SIDE,
            "submitted_at": _first,
            "first_sent_at": _first,
            "last_sent_at": _last,
            "attempts": _sum,
            **dict.fromkeys(
                ("transmitted", "refused", "delivery_failed", "expired", "in_doubt"), _either
            ),
            "settled": _last,
            "settled_by": _last,
            "wire_bytes": _sum,
            "own_envelope": _either,
        }
    ),
    RECEIVING: _of_side(
        {
            **_SIDE,
            "received_at": _first,
            "delivered_at": _first,
            "duplicates": _sum,
            "deliveries": _sum,
        }
    ),
    "envelopes": _envelopes,
    "troubles": _troubles,
    "hops": _hops,
    "key": _first,
    "conversation_key": _first,
    "ref_key": _first,
}
"""How each fact is made of both."""


def join_all(rows: pa.Table) -> Iterator[tuple[Row | None, Row]]:
    """Facts of messages, those of `later` events marked; what becomes of each, and what it was."""
    known: dict[str, Row] = {}
    came: dict[str, Row] = {}
    for row in rows.to_pylist():
        (came if row["later"] else known)[row["message_id"]] = row
    for message_id, before in known.items():
        later = came.pop(message_id, None)
        able = later is not None and joinable(before, later)
        yield (joined(before, later) if later is not None and able else None), before
    for later in came.values():
        yield later, later
