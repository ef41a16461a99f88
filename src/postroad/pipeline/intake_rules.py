"""What a row of the journal must be like to count as an event (JOURNAL sections 2 and 3)."""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.store.journal_columns import EVENTS, SIDES

RULES: Final = {
    "null": "node, epoch, seq, at, party or event is null",
    "number": "epoch or seq is below 1",
    "time": "at is before 1970 or after 9999",
    "side": "side is not sending, receiving or forwarding",
    "wrong_side": "an event that cannot happen on this side",
    "no_message": "an event about a message has no message_id",
    "negative": "a count, number or size is negative",
}
"""Each rule with what is wrong with a row that breaks it; the first one broken is the reason."""
IDENTITY: Final = "identity"
"""The reason of rows that are fine each, but differ under one node, epoch and seq."""

REQUIRED: Final = ("node", "epoch", "seq", "at", "party", "event")
COUNTS: Final = ("attempt", "sequence_number", "fragment", "fragments", "bytes", "wire_bytes")
JUDGED: Final = (*REQUIRED, "side", "message_id", *COUNTS)
"""The columns that the rules look at."""

_CODES: Final = {name: number for number, name in enumerate(RULES, 1)}
_ABOUT_NO_MESSAGE: Final = {name for name, sides in EVENTS.items() if None in sides}
_YEAR_10000: Final = 253_402_300_800_000_000


def broken(rows: pa.RecordBatch) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """For each row the number of the first rule that it breaks, 0 for none."""
    codes = np.zeros(rows.num_rows, dtype=np.uint8)
    names = set(rows.schema.names)
    for name in COUNTS:
        if name in names:
            _mark(codes, "negative", pc.less(rows[name], 0))
    _judge_happening(codes, rows, names)
    if rows.num_rows:
        micros = micros_of(rows["at"])
        _mark(codes, "time", pc.or_(pc.less(micros, 0), pc.greater_equal(micros, _YEAR_10000)))
    for name in ("epoch", "seq"):
        _mark(codes, "number", pc.less(rows[name], 1))
    for name in REQUIRED:
        if rows[name].null_count:
            _mark(codes, "null", pc.is_null(rows[name]))
    return codes


def reasons(rows: pa.RecordBatch) -> pa.Array:
    """For each row the name of the first rule that it breaks, null for none."""
    codes = broken(rows)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32) - 1, mask=codes == 0), pa.array(list(RULES))
    ).cast(pa.string())


def micros_of(at: pa.Array) -> pa.Array:
    """Microseconds since 1970."""
    return at.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _mark(codes: "np.ndarray[Any, np.dtype[np.uint8]]", rule: str, wrong: pa.Array) -> None:
    """What is marked later stands earlier among the rules."""
    if pc.any(wrong).as_py():
        codes[pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)] = _CODES[rule]


def _judge_happening(
    codes: "np.ndarray[Any, np.dtype[np.uint8]]", rows: pa.RecordBatch, names: set[str]
) -> None:
    """Event, side and message_id together: few combinations, so each is judged once."""
    events, event = _encoded(rows["event"])
    sides, side = _encoded(rows["side"]) if "side" in names else ([None], np.zeros_like(event))
    if "message_id" in names:
        lacking = rows["message_id"].is_null().to_numpy(zero_copy_only=False)
    else:
        lacking = np.ones(rows.num_rows, dtype=bool)
    combined = (event * len(sides) + side) * 2 + lacking
    table = np.array(
        [
            _CODES.get(_happening(name, where, none) or "", 0)
            for name in events
            for where in sides
            for none in (False, True)
        ],
        dtype=np.uint8,
    )
    found = table[combined]
    np.copyto(codes, found, where=found != 0)


@lru_cache(maxsize=4096)
def _happening(event: str | None, side: str | None, lacking: bool) -> str | None:
    if side is not None and side not in SIDES:
        return "side"
    if event not in EVENTS:
        return None
    if side not in EVENTS[event]:
        return "wrong_side"
    return "no_message" if lacking and event not in _ABOUT_NO_MESSAGE else None


def _encoded(column: pa.Array) -> tuple[list[str | None], "np.ndarray[Any, np.dtype[np.int64]]"]:
    """The distinct values, null last, and for each row the place of its value among them."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary.to_pylist()
    places = pc.fill_null(column.indices, len(values)).to_numpy(zero_copy_only=False)
    return [*values, None], places.astype(np.int64)
