"""The tables by hour made anew: those hours to which changed messages belong, now or before.

A row tells of a partner, or of a P-Mode, and an hour: both together have a key, like an id.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroad.pipeline import tables
from postroad.pipeline.changed import FACTS, Changed, dated
from postroad.pipeline.daily import day_of
from postroad.pipeline.folding import HOUR, Flags, numbers_of
from postroad.pipeline.keys import KeySet, keys
from postroad.pipeline.picking import each_file, opened, stretches, whole
from postroad.pipeline.schema import DATE
from postroad.pipeline.times import day
from postroad.store.journal_columns import RECEIVING, SENDING

_SPREAD: Final = "spread"
"""For each day of facts the other days to whose hours they belong, or did."""
_TABLES: Final = (("partners", tables.partners), ("packing", tables.packing))
_COLUMNS: Final = ("message_id", "kind", SENDING, RECEIVING, "envelopes", "troubles")
_READ: Final = (
    "sending.to_party", "sending.pmode", "sending.first_sent_at", "receiving.from_party",
    "troubles",
)  # fmt: skip
_SHIFT: Final = 40
"""The number of an hour is put before that of a name."""
_FOUND: Final = pa.schema({DATE: pa.string(), "hour": pa.int64(), "key": pa.int64()})
_DDL: Final = f"{DATE} string, hour bigint, key bigint"


def replace_hours(changed: Changed) -> None:
    """A row by hour is made of all facts of its hour; these may lie under other days."""
    lake, change, added = changed.lake, changed.change, changed.added().select(*_COLUMNS)
    found = _found(changed)
    touched = _spread(found)
    spread = _together(lake.state(_SPREAD) or {}, touched)
    change.set(_SPREAD, spread)
    if not lake.days(FACTS):
        for name, table in _TABLES:
            change.add(name, dated(table(added), "hour"))
        return
    hours = KeySet.of(found["key"])
    days = {*changed.days(), *(other for others in touched.values() for other in others)}
    sources = days | {one for one, others in spread.items() if days & set(others)}
    others = changed.choose(_InHours(hours), sources, *_COLUMNS).select(*_COLUMNS).cache()
    facts = others.unionByName(added)
    some = lake.spark.createDataFrame(pa.table({"hour_key": hours.numbers}))
    for name, table in _TABLES:
        stay = _told_of(lake.read(name, days), some, "left_anti")
        rows = _told_of(dated(table(facts), "hour"), some, "left_semi")
        change.replace(name, stay.unionByName(rows), days)
    others.unpersist()


def _told_of(rows: DataFrame, some: DataFrame, how: str) -> DataFrame:
    """The rows of a table that tell of some of these, or of others."""
    whose = rows.columns[0]
    hour = (F.unix_micros("hour") / F.lit(HOUR)).cast("bigint")
    key = F.xxhash64(whose).bitwiseXOR(F.shiftleft(hour, _SHIFT))
    keyed = rows.withColumn("hour_key", key)
    return keyed.join(F.broadcast(some), "hour_key", how).select(*rows.columns)


def _found(changed: Changed) -> pa.Table:
    """The day of each changed message with the hours, and the keys, to which it belongs."""
    spark, files = changed.lake.spark, changed.change.added_files(FACTS)
    found = each_file(spark, files, _of_file, _DDL).toArrow()
    if changed.before is None:
        return found
    before = changed.before.rows.select(SENDING, RECEIVING, "troubles", DATE)
    return pa.concat_tables([found, before.mapInArrow(_of_rows, _DDL).toArrow()])


def _of_file(file: str) -> Iterator[pa.RecordBatch]:
    with opened(file) as reader:
        for stretch in stretches(reader):
            rows = stretch.read(_READ)
            date = pa.array([day_of(file)] * len(rows), pa.string())
            yield _unique(rows.append_column(DATE, date))


def _of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _unique(pa.Table.from_batches([batch]))


def _unique(facts: pa.Table) -> pa.RecordBatch:
    parts = [
        pa.table([facts[DATE].take(rows), hours, keys], schema=_FOUND)
        for rows, hours, keys in _keyed(facts)
    ]
    grouped = pa.concat_tables(parts).group_by(_FOUND.names).aggregate([])
    columns = [grouped[name].combine_chunks() for name in _FOUND.names]
    return pa.RecordBatch.from_arrays(columns, schema=_FOUND)


def _keyed(facts: Any) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    """Places of messages, and for each an hour to which it belongs, and the key of that."""
    sent, came, troubles = (whole(facts[name]) for name in (SENDING, RECEIVING, "troubles"))
    to, pmode = (_hashed(pc.struct_field(sent, name)) for name in ("to_party", "pmode"))
    hour = pc.struct_field(sent, "first_sent_at").cast(pa.int64())
    every = pa.array(np.arange(len(sent)))
    for whose in (to, pmode):
        yield _pairs(every, whose, hour)
    rows = pc.list_parent_indices(troubles).cast(pa.int64())
    each = pc.list_flatten(troubles)
    sending = pc.equal(pc.struct_field(each, "side"), SENDING)
    by = _hashed(pc.struct_field(came, "from_party"))
    party = pc.if_else(sending, to.take(rows), by.take(rows))
    yield _pairs(rows, party, pc.struct_field(each, "hour").cast(pa.int64()))


def _hashed(names: pa.Array) -> pa.Array:
    """Each of the few names as a number."""
    coded = names.dictionary_encode()
    return keys(coded.dictionary).take(coded.indices)


def _pairs(rows: pa.Array, whose: pa.Array, time: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    there = pc.and_(whose.is_valid(), time.is_valid())
    rows, whose, time = rows.filter(there), whose.filter(there), time.filter(there)
    hours = numbers_of(time) // HOUR
    return rows, pa.array(hours), pa.array(numbers_of(whose) ^ (hours << _SHIFT))


@dataclass(frozen=True)
class _InHours:
    """Facts that belong to some of these."""

    hours: KeySet

    @property
    def columns(self) -> Sequence[str]:
        return _READ

    def mask(self, rows: Any, day: str | None) -> Flags:
        found = np.zeros(len(rows), dtype=bool)
        for places, _, whose in _keyed(rows):
            found[np.asarray(places)[self.hours.holds(whose)]] = True
        return found


def _spread(found: pa.Table) -> dict[str, list[str]]:
    pairs = found.group_by([DATE, "hour"]).aggregate([])
    spread: dict[str, set[str]] = {}
    for date, hour in zip(pairs[DATE].to_pylist(), pairs["hour"].to_pylist(), strict=True):
        if (other := day(hour * HOUR)) != date:
            spread.setdefault(date, set()).add(other)
    return {date: sorted(others) for date, others in spread.items()}


def _together(one: dict[str, list[str]], other: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        day: sorted({*one.get(day, ()), *other.get(day, ())}) for day in one.keys() | other.keys()
    }
