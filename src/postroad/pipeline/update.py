"""What new events change in the lake, at the cost of what is new.

Facts of messages that the new events name are joined with the facts of these, or made anew; the
tables follow, row by row. What lies further is found by keys (conversations, hours to which
messages of another day belong) or by what state tells (messages whose fate a journal decides that
goes on).
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.pipeline import fact_files, tables
from postroad.pipeline import facts as fact
from postroad.pipeline.changed import FACTS, Before, Changed, days_of, facts_schema
from postroad.pipeline.folding import READ, Flags
from postroad.pipeline.intake import Batch
from postroad.pipeline.keys import KeySet
from postroad.pipeline.lake import Change, Lake, dated, some_of
from postroad.pipeline.naming import Purged, named_in
from postroad.pipeline.picking import ByKey, picked, picked_rows
from postroad.pipeline.schema import DATE, EVENTS
from postroad.pipeline.update_conversations import replace_conversations
from postroad.pipeline.update_hours import replace_hours
from postroad.pipeline.update_reconciliation import other_grace, replace_reconciliation
from postroad.pipeline.watching import microseconds
from postroad.store.places import Place

Step = Callable[[], None]
FINDINGS: Final = "_fact_findings"
_AT_ONCE: Final = 4
"""So many tables are made side by side: each has times in which it doesn't use all cores."""
_IDENTITY: Final = ["node", "epoch", "seq"]
_ROWS: Final = 500_000
"""About so many events are folded at a time."""


def update(
    spark: SparkSession, lake: Lake, change: Change, batch: Batch, *, grace: timedelta
) -> None:
    """Bring all tables up to the events of a batch; nothing is committed here."""
    if batch.totals.kept or batch.retracted:
        _Update(spark, lake, change, batch, grace).run()
    elif other_grace(Changed(change), grace):
        replace_reconciliation(Changed(change), batch, grace)


@dataclass
class _Update:
    spark: SparkSession
    lake: Lake
    change: Change
    batch: Batch
    grace: timedelta

    def run(self) -> None:
        self._add_events()
        changed = self._add_facts()
        steps: list[Step] = [partial(replace_reconciliation, changed, self.batch, self.grace)]
        if changed.days():
            steps += [
                partial(replace_conversations, changed, self._shares()),
                partial(replace_hours, changed, self._shares()),
                partial(self._follow, changed, "messages", tables.messages),
                partial(self._follow, changed, "hops", tables.hops),
                partial(self._replace_findings, changed),
            ]
        self._at_once(steps)
        if changed.before is not None:
            changed.before.rows.unpersist()

    def _at_once(self, steps: Iterable[Step]) -> None:
        inherit = inheritable_thread_target(self.spark)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(inherit(step)) for step in steps]:
                done.result()

    def _add_events(self) -> None:
        """The new events. Days are written anew where rows must go, or that lie in many files."""
        self.batch.add_events(self.change)
        days = {day for _, _, _, day in self.batch.retracted}
        days.update(
            day for day in self.change.days("events") if self.lake.format.crowded("events", day)
        )
        if days:
            stay = self.lake.read("events", days)
            if self.batch.retracted:
                stay = stay.join(F.broadcast(self._retracted()), _IDENTITY, "left_anti")
            self.change.replace("events", stay, days)

    def _retracted(self) -> DataFrame:
        rows = [(node, epoch, seq) for node, epoch, seq, _ in self.batch.retracted]
        return self.spark.createDataFrame(rows, "node string, epoch int, seq bigint")

    def _keys_of_retracted(self) -> KeySet:
        days = sorted({day for _, _, _, day in self.batch.retracted})
        gone = self.lake.read("events", days).join(F.broadcast(self._retracted()), _IDENTITY)
        return KeySet.of(gone.select(fact.key("message_id").alias("key")).toArrow()["key"])

    def _add_facts(self) -> Changed:
        files = self.change.added_files("events")
        if not self.lake.days(FACTS):
            if files:
                self._fold(fact_files.parcels(self.spark, files, self._shares()))
            return Changed(self.change)
        named = named_in(self.spark, files)
        gone = self._keys_of_retracted() if self.batch.retracted else KeySet()
        known = self._known(named.purged) - gone
        choice = ByKey("key", (named.keys | gone) - known)
        found = self.change.find(FACTS, choice, facts_schema())
        # Of a message that loses an event, one that was passed over may tell something.
        before = Before.of(found, self.lake.days("events"), everywhere=gone)
        later: list[str] = []
        if files:
            parcels = fact_files.parcels(self.spark, files, self._shares(), known)
            later = self._fold(parcels, before.keys)
        if before.keys:
            self._fold_again(before, self._join(before, later, gone))
        days = {*self.change.days("events"), *days_of(before.rows)}
        gone_by = ByKey("key", before.keys) if before.keys else None
        self.change.remove(FACTS, days, gone_by, facts_schema())
        return Changed(self.change, before)

    def _known(self, purged: Purged) -> KeySet:
        """The messages that were purged, and of which all else was told before."""
        found = self.change.find(FACTS, purged.known(), facts_schema(), "key")
        return KeySet.of(found.toArrow()["key"])

    def _fold(self, parcels: DataFrame, apart: KeySet | None = None) -> list[str]:
        """Facts of these events. Those that are kept apart are not added; their files."""
        others: list[str] = []

        def write(place: Place) -> list[str]:
            files, kept = fact_files.write(parcels, self._shares(), place, apart)
            folder = self.lake.url + place.root.removeprefix(self.lake.place.root)
            others.extend(f"{folder}/{name}" for name in kept)
            return files

        self.change.add_files(FACTS, write)
        return others

    def _join(self, before: Before, later: list[str], gone: KeySet) -> KeySet:
        """Facts of changed messages, from those before and of later events; which cannot be."""
        left = before.keys
        schema = facts_schema()
        came = self.spark.read.schema(schema).parquet(*later) if later else before.rows.limit(0)
        rows = before.rows.select(*schema.names, F.lit(False).alias("later")).unionAll(
            came.select(*schema.names, F.lit(True))
        )

        def write(place: Place) -> list[str]:
            nonlocal left
            files, left = fact_files.join(rows, self._shares(), place, gone)
            return files

        self.change.add_files(FACTS, write)
        return left

    def _fold_again(self, before: Before, keys: KeySet) -> None:
        """Facts of some messages from all their events."""
        if not keys:
            return
        schema = some_of(EVENTS.schema, READ)
        days = {day: mine for day, every in before.days.items() if (mine := every & keys)}
        old = self.change.find(
            "events", ByKey("message_id", days), EVENTS.schema, *READ, dates=days
        )
        new = picked(
            self.spark, self.change.added_files("events"), schema, ByKey("message_id", keys)
        )
        events = old.select(*schema.names).unionAll(new)
        self._fold(fact.of_events(events, self._shares()))

    def _shares(self) -> int:
        """Into so many parts a fold is cut, so that what each holds does not grow with the run."""
        return 1 + self.batch.totals.kept // _ROWS

    def _follow(self, changed: Changed, table: str, rows: Callable[[DataFrame], DataFrame]) -> None:
        """A table whose rows are each of one message."""
        changed.follow(table, rows(changed.added(table)), "message_id")

    def _replace_findings(self, changed: Changed) -> None:
        """Those of whole days, if there is one of a changed message, or was."""
        if days := self._troubled_days(changed):
            added = changed.added("findings").where(F.col(DATE).isin(days))
            others = changed.choose("findings", _Troubled(), days).cache()
            facts = others.unionByName(added)
            self.change.replace(FINDINGS, tables.fact_findings(facts), days)
            others.unpersist()

    def _troubled_days(self, changed: Changed) -> list[str]:
        files = self.change.added_files(FACTS)
        schema = some_of(dated(facts_schema()), ["key", DATE])
        troubled = picked(self.spark, files, schema, _Troubled()).select(DATE)
        if changed.before is not None:
            before = picked_rows(changed.before.rows, _Troubled())
            troubled = troubled.unionAll(before.select(DATE))
        return days_of(troubled)


@dataclass(frozen=True)
class _Troubled:
    """Messages of which findings may tell: of several parties, or that came before they went."""

    columns: Sequence[str] = (
        "sending.several", "sending.first_sent_at", "receiving.several", "receiving.received_at",
    )  # fmt: skip

    def mask(self, rows: Any, day: str | None) -> Flags:
        sent, came = rows["sending"], rows["receiving"]
        several = [pc.struct_field(side, "several") for side in (sent, came)]
        times = (
            pc.struct_field(sent, "first_sent_at").cast(pa.int64()),
            pc.struct_field(came, "received_at").cast(pa.int64()),
        )
        early = pc.greater(pc.subtract(*times), microseconds(tables.CLOCK))
        flags = [np.asarray(pc.fill_null(one, False)) for one in (*several, early)]
        found: Flags = np.logical_or.reduce(flags)
        return found
