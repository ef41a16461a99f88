"""The facts that a run changes, and how tables follow them.

A message's row, in whichever table, lies under one day. What changed is taken out of the files it
lies in, by the keys of the messages, and its new row is added: the rest of a day is not looked at.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from postroad.pipeline import facts as fact
from postroad.pipeline.intake import UNDATED
from postroad.pipeline.keys import KeySet
from postroad.pipeline.lake import Change, Lake, dated
from postroad.pipeline.lake_formats import fitted
from postroad.pipeline.picking import ByKey, Choice
from postroad.pipeline.schema import DATE
from postroad.pipeline.tables import READ

FACTS: Final = "_facts"
_KEYS: Final = ("key", "conversation_key", "ref_key")


@dataclass(frozen=True)
class Before:
    """Messages that new events change, as their facts were before."""

    rows: DataFrame
    keys: KeySet
    days: Mapping[str, KeySet]
    """Those that may have events on a day."""

    @staticmethod
    def of(rows: DataFrame, days: Iterable[str], everywhere: KeySet) -> "Before":
        """Events of those that are `everywhere` may lie on any of the days."""
        known = rows.cache()
        first, last = (fact.day(F.col(name)) for name in ("noted_at", "until_at"))
        found = known.select("key", first.alias("first"), last.alias("last")).toArrow()
        on: dict[str, list[int]] = {day: list(everywhere.numbers) for day in days if everywhere}
        for key, *span in zip(*(column.to_pylist() for column in found.columns), strict=True):
            for day in _between(*span):
                on.setdefault(day, []).append(key)
        each = {day: KeySet.union([keys]) for day, keys in on.items()}
        return Before(known, KeySet.of(found["key"]), each)


@dataclass(frozen=True)
class Changed:
    """Those facts that a run adds, takes away, and keeps."""

    change: Change
    before: Before | None = None
    """None: what was there before stays as it is."""

    @property
    def lake(self) -> Lake:
        return self.change.lake

    @property
    def gone(self) -> KeySet:
        return self.before.keys if self.before else KeySet()

    def days(self) -> list[str]:
        """On which facts came or went."""
        return self.change.days(FACTS)

    def added(self, table: str) -> DataFrame:
        """Those that are new, or other than before, as they are read for a table."""
        return self.change.added(FACTS, read_for(table))

    def touched(self, table: str) -> DataFrame:
        """The same, and these as they were before."""
        if self.before is None:
            return self.added(table)
        return self.added(table).unionByName(fitted(self.before.rows, dated(read_for(table))))

    def find(self, table: str, by: str, among: KeySet) -> DataFrame:
        """All others with such a key, of any day."""
        return self.change.find(FACTS, ByKey(by, among), read_for(table))

    def choose(self, table: str, choice: Choice, days: Iterable[str]) -> DataFrame:
        """Some of the others of these days, chosen by what is read for the table."""
        return self.change.find(FACTS, choice, read_for(table), dates=days)

    def follow(
        self,
        table: str,
        rows: DataFrame,
        by: str,
        *,
        gone: KeySet | None = None,
        days: Collection[str] = (),
    ) -> None:
        """Add rows to a table; those of `gone` go, by default of all that changed."""
        self.change.add(table, rows)
        every = {*self.days(), *self.change.days(table), *days}
        keys = self.gone if gone is None else gone
        self.change.remove(table, every, ByKey(by, keys) if keys else None)


def facts_schema() -> StructType:
    parsed = StructType.fromDDL(fact.SCHEMA)
    assert isinstance(parsed, StructType)
    return parsed


def read_for(table: str) -> StructType:
    """What is read of facts for a table, and the keys."""
    fields = []
    for one in facts_schema().fields:
        if one.name in (*READ[table], *_KEYS):
            fields.append(one)
        elif isinstance(one.dataType, StructType):
            parts = [part for part in one.dataType if f"{one.name}.{part.name}" in READ[table]]
            fields += [StructField(one.name, StructType(parts))] if parts else []
    return StructType(fields)


def under_day(rows: DataFrame, time: str) -> DataFrame:
    """Rows with the day of a time."""
    day = fact.day(F.col(time)).cast("string")
    return rows.withColumn(DATE, F.coalesce(day, F.lit(UNDATED)))


def days_of(rows: DataFrame) -> list[str]:
    return sorted(row[0] for row in rows.select(DATE).distinct().collect())


def _between(first: date, last: date) -> Iterable[str]:
    for days in range((last - first).days + 1):
        yield (first + timedelta(days=days)).isoformat()
