"""The messages that new events name, and which of these need not be looked at again.

Every message is purged one day, long after all else was told of it. An event that says so changes
no table as a rule: who sent the message, who got it and what both know of it was told before. Then
its facts stay as they are, and what was ever written of it is not read again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.folding import OF_A_SIDE, OF_ALL, Flags, Numbers
from postroad.pipeline.keys import KeySet, keys
from postroad.pipeline.picking import ByKey, Choice, Of, each_file, opened, stretches, whole
from postroad.store.journal_columns import RECEIVING, SENDING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PURGED: Final = "purged"
_SIDES: Final = (SENDING, RECEIVING)
_ROW: Final = pa.schema(
    {name: pa.int64() for name in ("key", "at", "side", "party", "of_all", "of_side")}
)
_DDL: Final = ", ".join(f"{name} bigint" for name in _ROW.names)
_READ: Final = ("message_id", "at", "side", *dict.fromkeys((*OF_ALL, *OF_A_SIDE)))
_NUMBERS: Final = ("at", "bytes", "sequence_number")


@dataclass(frozen=True)
class Named:
    """Messages by the keys of their ids."""

    keys: KeySet
    purged: "Purged"


@dataclass(frozen=True)
class Purged:
    """Events of messages of which nothing else is new, by the keys of these."""

    rows: pa.Table
    """Numbers all, sorted by key: `_ROW`."""

    @property
    def keys(self) -> KeySet:
        return KeySet.of(self.rows["key"])

    @property
    def columns(self) -> Sequence[str]:
        """The columns of facts by which it is known whether an event changes them."""
        sides = (f"{side}.{name}" for side in _SIDES for name in (*OF_A_SIDE, "several"))
        return ["key", "until_at", *OF_ALL, *sides]

    def mask(self, rows: Any, day: str | None) -> Flags:
        """The messages of which these events say nothing new."""
        return ~_changed(rows, self.rows)

    def known(self) -> Choice:
        """These messages, looked for among all."""
        return Of(ByKey("key", self.keys), self)


def named_in(spark: "SparkSession", files: Sequence[str]) -> Named:
    """What the events of these files name."""
    rows = each_file(spark, files, _named, _DDL).toArrow()
    purging = rows["at"].is_valid()
    others = KeySet.of(rows.filter(pc.invert(purging))["key"])
    purged = rows.filter(purging)
    alone = purged.filter(pa.array(~others.holds(purged["key"].combine_chunks())))
    return Named(KeySet.of(rows["key"]), Purged(alone.sort_by("key").combine_chunks()))


def _named(file: str) -> Iterator[pa.RecordBatch]:
    with opened(file, ["event", *(name for name in _READ if name not in _NUMBERS)]) as reader:
        for stretch in stretches(reader):
            rows = stretch.read(["message_id", "event"]).unify_dictionaries()
            ids, event = (rows[name].combine_chunks() for name in ("message_id", "event"))
            there = ids.is_valid()
            purging = pc.and_(there, pc.equal(event, PURGED))
            others = ids.indices.filter(pc.and_not(there, purging)).unique()
            yield _batch({"key": keys(ids.dictionary.take(others))})
            if pc.any(purging).as_py():
                for batch in stretch.read(_READ).filter(purging).combine_chunks().to_batches():
                    yield _of_purged(batch)


def _of_purged(rows: pa.RecordBatch) -> pa.RecordBatch:
    sides = rows["side"].dictionary_decode()
    side = pc.index_in(sides, value_set=pa.array(_SIDES)).cast(pa.int64())
    return _batch(
        {
            "key": keys(rows["message_id"].dictionary_decode()),
            "at": rows["at"].cast(pa.int64()),
            "side": side,
            "party": keys(rows["party"].dictionary_decode()),
            "of_all": pa.array(_there(rows[name] for name in OF_ALL)),
            "of_side": pa.array(_there(rows[name] for name in OF_A_SIDE)),
        }
    )


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    missing = pa.nulls(len(columns["key"]), pa.int64())
    arrays = [columns.get(name, missing) for name in _ROW.names]
    return pa.RecordBatch.from_arrays(arrays, schema=_ROW)


def _there(columns: Iterable[Any]) -> Numbers:
    """Which of these have a value, as the bits of a number."""
    flags = [np.asarray(column.is_valid()).astype(np.int64) for column in columns]
    bits: Numbers = np.bitwise_or.reduce([there << place for place, there in enumerate(flags)])
    return bits


def _changed(facts: Any, purged: pa.Table) -> Flags:
    """Of each message whether one of its events says anything that was not known."""
    key = np.asarray(purged["key"])
    mine = np.asarray(facts["key"])
    first, end = np.searchsorted(key, mine, "left"), np.searchsorted(key, mine, "right")
    counts = end - first
    whose = np.repeat(np.arange(len(mine)), counts)
    event = np.arange(len(whose)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    new = _new(facts.take(pa.array(whose)), purged.take(pa.array(event)))
    found: Flags = np.bincount(whose[new], minlength=len(mine)) > 0
    return found


def _new(facts: Any, events: pa.Table) -> Flags:
    """Of each pair of a message and its event whether the event says something new."""
    of_all, of_side, party, at = (
        np.asarray(events[name]) for name in ("of_all", "of_side", "party", "at")
    )
    side = np.asarray(pc.fill_null(events["side"], -1))
    new: Flags = at <= np.asarray(facts["until_at"].cast(pa.int64()))
    new |= (of_all & ~_there(facts[name] for name in OF_ALL)) != 0
    for place, name in enumerate(_SIDES):
        told = {part: pc.struct_field(facts[name], part) for part in (*OF_A_SIDE, "several")}
        several = np.asarray(pc.fill_null(told["several"], False))
        other = np.asarray(pc.fill_null(keys(whole(told["party"])), 0)) != party
        more = (of_side & ~_there(told[part] for part in OF_A_SIDE)) != 0
        unknown = ~np.asarray(facts[name].is_valid())
        new |= (side == place) & (unknown | more | (other & ~several))
    return new
