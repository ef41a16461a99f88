"""The tables by hour made anew: those hours to which changed messages belong, now or before.

A row tells of a partner, or of a P-Mode, and an hour: both together have a key, like an id.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from postroad.pipeline import tables
from postroad.pipeline.changed import FACTS, Changed, read_for, under_day
from postroad.pipeline.daily import day_of
from postroad.pipeline.folding import HOUR, Flags
from postroad.pipeline.hourly import HOURLY, hour_keys, hours_of
from postroad.pipeline.keys import KeySet
from postroad.pipeline.parcels import PARCEL, shares_of
from postroad.pipeline.picking import each_file, opened, stretches, whole
from postroad.pipeline.schema import DATE, TABLES
from postroad.pipeline.times import day

_SPREAD: Final = "spread"
"""For each day of facts the other days to whose hours they belong, or did."""
_FOUND: Final = pa.schema({DATE: pa.string(), "hour": pa.int64(), "key": pa.int64()})
_DDL: Final = f"{DATE} string, hour bigint, key bigint"


def replace_hours(changed: Changed, shares: int) -> None:
    """A row by hour is made of all facts of its hour; these may lie under other days.

    `shares`: into so many parts all hours are cut at least.
    """
    lake, change = changed.lake, changed.change
    shares = max(shares, shares_of(lake.spark))
    found = _found(changed)
    touched = _spread(found)
    spread = _together(lake.state(_SPREAD) or {}, touched)
    change.set(_SPREAD, spread)
    hours = KeySet.of(found["key"])
    days = {*changed.days(), *(other for others in touched.values() for other in others)}
    sources = days | {one for one, others in spread.items() if days & set(others)}
    for name in HOURLY:
        change.add(name, under_day(_made(changed, name, hours, sources, shares), "hour"))
        change.remove(name, days, _InHours(TABLES[name].names[0], hours))


def _made(changed: Changed, table: str, hours: KeySet, days: set[str], shares: int) -> DataFrame:
    """The rows of these hours, of what is added and of what stays."""
    spark, change = changed.lake.spark, changed.change
    added = partial(_told, table=table, shares=shares)
    parts = each_file(spark, change.added_files(FACTS), added, PARCEL)
    kept = partial(HOURLY[table].parcels, shares=shares, hours=hours)
    files = change.kept_files(FACTS, days)
    if files is None:
        rows = change.kept(FACTS, days, read_for(table))
        parts = parts.unionAll(rows.mapInArrow(kept, PARCEL))
    elif files:
        task = partial(_told, table=table, shares=shares, hours=hours)
        parts = parts.unionAll(each_file(spark, files, task, PARCEL))
    return tables.hours(TABLES[table], parts, shares)


def _told(
    file: str, *, table: str, shares: int, hours: KeySet | None = None
) -> Iterator[pa.RecordBatch]:
    """What the messages of a file tell of these hours."""
    hourly = HOURLY[table]
    with opened(file) as reader:
        facts = (stretch.read(hourly.read) for stretch in stretches(reader))
        yield from hourly.parcels(facts, shares, hours)


@dataclass(frozen=True)
class _InHours:
    """Rows of a table that tell of some of these."""

    whose: str
    hours: KeySet

    @property
    def columns(self) -> Sequence[str]:
        return [self.whose, "hour"]

    def mask(self, rows: Any, day: str | None) -> Flags:
        times = hours_of(whole(rows["hour"]))
        found: Flags = self.hours.holds(hour_keys(whole(rows[self.whose]), times))
        return found


def _found(changed: Changed) -> pa.Table:
    """The day of each changed message with the hours, and the keys, to which it belongs."""
    spark, files = changed.lake.spark, changed.change.added_files(FACTS)
    found = each_file(spark, files, _of_file, _DDL).toArrow()
    if changed.before is None:
        return found
    return pa.concat_tables([found, changed.before.rows.mapInArrow(_of_rows, _DDL).toArrow()])


def _of_file(file: str) -> Iterator[pa.RecordBatch]:
    read = sorted({name for hourly in HOURLY.values() for name in hourly.read})
    with opened(file) as reader:
        for stretch in stretches(reader):
            yield _hours(stretch.read(read), day_of(file))


def _of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        dates = batch[DATE].dictionary_encode()
        for number, date in enumerate(dates.dictionary.to_pylist()):
            mine = pc.equal(dates.indices, number)
            yield _hours(pa.Table.from_batches([batch]).filter(mine), date)


def _hours(facts: pa.Table, date: str) -> pa.RecordBatch:
    """Of messages of one day."""
    rows = pa.concat_tables([hourly.hours(facts) for hourly in HOURLY.values()])
    dates = pa.array([date] * len(rows), pa.string())
    columns = [dates, whole(rows["hour"]), hour_keys(whole(rows["name"]), whole(rows["hour"]))]
    return pa.RecordBatch.from_arrays(columns, schema=_FOUND)


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
