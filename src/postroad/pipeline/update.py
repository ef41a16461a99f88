"""What new events change in the lake, at the cost of what is new.

Facts are made anew for the messages that the new events name, from all their events; then the
days on which facts changed are written anew in the tables. Other days change only where their
rows look further than their own day: hours in which messages of another day were sent
(`spread`), conversations, and messages whose fate a journal decides that goes on (`open`).
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial, reduce
from typing import Any, Final

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroad.pipeline import fact_files, tables, watching
from postroad.pipeline import facts as fact
from postroad.pipeline.covering import AROUND, Covering
from postroad.pipeline.intake import UNDATED, Batch
from postroad.pipeline.lake import Change, Lake
from postroad.pipeline.parcels import shares_of
from postroad.pipeline.schema import DATE, RECONCILIATION
from postroad.pipeline.watching import microseconds

Step = Callable[[], None]
FACTS: Final = "_facts"
FINDINGS: Final = "_fact_findings"
_SPREAD: Final = "spread"
_OPEN: Final = "open"
_WATCHES: Final = "watches"
_SERVED: Final = "served"
_GRACE: Final = "grace"
_AT_ONCE: Final = 4
"""So many tables are made side by side: each has times in which it doesn't use all cores."""
_ROWS: Final = 500_000
"""About so many events are folded at a time."""
_INDEX: Final = ("key", "conversation_key", "ref_key", DATE)


def update(
    spark: SparkSession, lake: Lake, change: Change, batch: Batch, *, grace: timedelta
) -> None:
    """Bring all tables up to the events of a batch; nothing is committed here."""
    if batch.totals.kept or batch.retracted or lake.state(_GRACE) != grace.total_seconds():
        _Update(spark, lake, change, batch, grace).run()


@dataclass
class _Update:
    spark: SparkSession
    lake: Lake
    change: Change
    batch: Batch
    grace: timedelta

    def run(self) -> None:
        if not self.batch.totals.kept and not self.batch.retracted:
            # Another grace, and nothing else.
            self._replace_reconciliation([])
            return
        new = self._add_events()
        touched = self._touched(new)
        self._add_facts(touched)
        days = self.change.days(FACTS)
        steps: list[Step] = [partial(self._replace_reconciliation, days)]
        if days:
            steps.append(partial(self._replace_conversations, touched))
            steps.append(partial(self._replace_hours, days))
            steps += self._replacing_days(days)
        self._at_once(steps)
        if touched is not None:
            touched.rows.unpersist()

    def _at_once(self, steps: Iterable[Step]) -> None:
        inherit = inheritable_thread_target(self.spark)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(inherit(step)) for step in steps]:
                done.result()

    def _add_events(self) -> DataFrame:
        """The new events, read from where they wait.

        Their days are written anew where rows must go, or where many runs left many small files.
        """
        self.batch.add_events(self.change)
        new = self.change.added("events")
        days = {day for _, _, _, day in self.batch.retracted}
        days.update(
            day for day in self.change.days("events") if self.lake.format.crowded("events", day)
        )
        if days:
            stay = self._without_retracted(self.lake.read("events", days))
            self.change.replace("events", stay, days)
        return new

    def _without_retracted(self, events: DataFrame) -> DataFrame:
        if not self.batch.retracted:
            return events
        return events.join(F.broadcast(self._retracted()), ["node", "epoch", "seq"], "left_anti")

    def _retracted(self) -> DataFrame:
        rows = [(node, epoch, seq) for node, epoch, seq, _ in self.batch.retracted]
        return self.spark.createDataFrame(rows, "node string, epoch int, seq bigint")

    def _touched(self, new: DataFrame) -> "_Touched | None":
        """The facts so far of those messages that the new events name; None: there are none."""
        if not self.lake.days(FACTS):
            return None
        named = new.where("message_id IS NOT NULL").select("message_id")
        if self.batch.retracted:
            days = sorted({day for _, _, _, day in self.batch.retracted})
            gone = self.lake.read("events", days).join(
                F.broadcast(self._retracted()), ["node", "epoch", "seq"]
            )
            named = named.unionByName(gone.where("message_id IS NOT NULL").select("message_id"))
        keys = named.select(fact.key("message_id").alias("key"))
        days = _days(self._index().join(keys, "key", "left_semi"))
        if not days:
            return None
        found = self._facts(days).join(named, "message_id", "left_semi")
        return _Touched.of(found.select("message_id", "noted_at", "until_at", *_INDEX).cache())

    def _index(self) -> DataFrame:
        """The keys of all facts: the only thing that is read of all days."""
        return self.lake.read(FACTS, schema=_facts_schema()).select(*_INDEX)

    def _facts(self, days: Iterable[str]) -> DataFrame:
        """As they are before this change."""
        return self.lake.read(FACTS, days, _facts_schema())

    def _changed(self, days: Iterable[str]) -> DataFrame:
        """As they will be."""
        return self.change.read(FACTS, days, _facts_schema())

    def _add_facts(self, touched: "_Touched | None") -> None:
        shares = self._shares()
        files = self.change.added_files("events")
        parcels = [fact_files.parcels(self.spark, files, shares)] if files else []
        steps: list[Step] = []
        if touched is not None:
            stored = self.lake.read("events", touched.spans)
            ids = touched.rows.select("message_id")
            old = self._without_retracted(stored).join(ids, "message_id", "left_semi")
            parcels.append(fact.of_events(old, shares))
            stay = self._facts(touched.days).join(ids, "message_id", "left_anti")
            steps.append(partial(self.change.replace, FACTS, stay, touched.days))
        if parcels:
            every = reduce(DataFrame.unionAll, parcels)
            writing = partial(fact_files.write, every, shares)
            steps.append(partial(self.change.add_files, FACTS, writing))
        self._at_once(steps)

    def _shares(self) -> int:
        """Into so many parts a fold is cut, so that what each holds does not grow with the run."""
        return 1 + self.batch.totals.kept // _ROWS

    def _replacing_days(self, days: list[str]) -> list[Step]:
        """The tables whose rows lie under the day of their message."""
        facts = self._changed(days)
        made = {
            "messages": tables.messages(facts),
            "hops": tables.hops(facts),
            FINDINGS: tables.fact_findings(facts),
        }
        return [partial(self.change.replace, name, rows, days) for name, rows in made.items()]

    def _replace_hours(self, days: list[str]) -> None:
        """The tables by hour, of all days to whose hours changed facts belong, now or before."""
        before: dict[str, list[str]] = self.lake.state(_SPREAD) or {}
        now = {**before, **{day: [] for day in days}, **_spread(self._changed(days))}
        dirty = {one for day in days for one in (*_hours_of(before, day), *_hours_of(now, day))}
        sources = dirty | {day for day, others in now.items() if dirty & set(others)}
        facts = self._changed(sources)
        for name, table in (("partners", tables.partners), ("packing", tables.packing)):
            rows = _dated(table(facts), "hour").where(F.col(DATE).isin(sorted(dirty)))
            self.change.replace(name, rows, dirty)
        self.change.set(_SPREAD, {day: some for day, some in now.items() if some})

    def _replace_conversations(self, touched: "_Touched | None") -> None:
        """Those of the changed messages, and of the requests that these answer."""
        added = self.change.added(FACTS, _facts_schema())
        if touched is None and not self.lake.days(FACTS):
            rows = _dated(self._conversations(added), "started_at")
            self.change.add("conversations", rows)
            return
        changed = added.select(*_INDEX)
        if touched is not None:
            changed = changed.unionByName(touched.rows.select(*_INDEX))
        index = self._index()
        asked = index.join(
            changed.select(F.col("ref_key").alias("key")), "key", "left_semi"
        ).unionByName(changed)
        wanted = (
            asked.where("conversation_key IS NOT NULL")
            .select("conversation_key")
            .distinct()
            .cache()
        )
        said = index.join(wanted, "conversation_key", "left_semi")
        answers = index.join(
            said.unionByName(added.select(*_INDEX)).select(F.col("key").alias("ref_key")),
            "ref_key",
            "left_semi",
        )
        said_on = _days(said)
        old = self._facts(said_on).where("kind = 'message'")
        starts = (
            old.join(wanted, "conversation_key", "left_semi")
            .groupBy("conversation_id")
            .agg(F.min("first_at").alias("started_at"))
        )
        days = _days(_dated(starts, "started_at"))
        everything = self._changed({*said_on, *_days(answers), *self.change.days(FACTS)})
        rows = _dated(self._conversations(_concerned(everything, wanted)), "started_at")
        if days:
            stay = self.lake.read("conversations", days).join(
                wanted, fact.key("conversation_id") == F.col("conversation_key"), "left_anti"
            )
            self.change.replace("conversations", stay, days)
        self.change.add("conversations", rows)
        wanted.unpersist()

    def _conversations(self, facts: DataFrame) -> DataFrame:
        return tables.conversations(facts, max(shares_of(facts), self._shares()))

    def _replace_reconciliation(self, days: list[str]) -> None:
        """Of the changed days, and of those where a journal that went on may decide something."""
        covering = self._covering()
        opened: dict[str, dict[str, int]] = self.lake.state(_OPEN) or {}
        dirty = sorted({*days, *self._reopened(opened, covering)})
        if dirty:
            judged = tables.judged(self._changed(dirty), covering, self.grace)
            rows = judged.select(*RECONCILIATION.names, DATE)
            self.change.replace("reconciliation", rows, dirty)
            opened = {**opened, **{day: {} for day in dirty}, **_undecided(judged, self.grace)}
        self.change.set(_OPEN, {day: parties for day, parties in opened.items() if parties})
        self.change.set(_GRACE, self.grace.total_seconds())
        self.change.set(_WATCHES, watching.plain(covering))

    def _reopened(self, opened: dict[str, dict[str, int]], covering: Covering) -> set[str]:
        before = watching.read(self.lake.state(_WATCHES) or {})
        changes = {
            party: watching.compare(before.get(party, ()), watches)
            for party, watches in covering.parties.items()
        }
        less = watching.LESS in changes.values() or set(before) - set(covering.parties)
        if less or self.lake.state(_GRACE) not in (None, self.grace.total_seconds()):
            return set(self.lake.days(FACTS))
        return {
            day
            for day, parties in opened.items()
            if any(changes.get(party, watching.NOTHING) < end for party, end in parties.items())
        }

    def _covering(self) -> Covering:
        """By the stretches of all files, and for whom each node wrote."""
        served: dict[str, Any] = self.lake.state(_SERVED) or {}
        if self.batch.retracted:
            days = {*self.lake.days("events"), *self.change.days("events")}
            served = watching.served(self.change.read("events", days))
        else:
            for segment in self.batch.whole:
                served = watching.together(served, watching.of_segment(segment.served))
            if self.batch.rest is not None:
                served = watching.together(served, watching.served(self.batch.rest))
        self.change.set(_SERVED, served)
        parts = watching.stretches(self.batch.known.runs, served)
        return Covering.of(parts, watching.retired(served))


@dataclass(frozen=True)
class _Touched:
    """The facts of some messages as they were before a change, of what is needed of them."""

    rows: DataFrame
    days: list[str]
    """Under which they lie."""
    spans: list[str]
    """On which events of these messages may lie."""

    @staticmethod
    def of(rows: DataFrame) -> "_Touched":
        first, last = fact.day(F.col("noted_at")), fact.day(F.col("until_at"))
        found = rows.select(DATE, first, last).distinct().collect()
        spans = {day for _, start, end in found for day in _between(start, end)}
        return _Touched(rows, sorted({day for day, _, _ in found}), sorted(spans))


def _between(first: date, last: date) -> Iterable[str]:
    for days in range((last - first).days + 1):
        yield (first + timedelta(days=days)).isoformat()


def _facts_schema() -> StructType:
    parsed = StructType.fromDDL(fact.SCHEMA)
    assert isinstance(parsed, StructType)
    return parsed


def _dated(rows: DataFrame, by: str) -> DataFrame:
    day = fact.day(F.col(by)).cast("string")
    return rows.withColumn(DATE, F.coalesce(day, F.lit(UNDATED)))


def _days(rows: DataFrame) -> list[str]:
    return sorted(row[0] for row in rows.select(DATE).distinct().collect())


def _spread(facts: DataFrame) -> dict[str, list[str]]:
    """For each day of facts the other days to whose hours they belong."""
    hours = F.concat(
        F.array("sending.first_sent_at"),
        F.coalesce(F.col("troubles.hour"), F.array().cast("array<timestamp>")),
    )
    pairs = (
        facts.select(DATE, F.explode(hours).alias("hour"))
        .where("hour IS NOT NULL")
        .select(DATE, fact.day(F.col("hour")).cast("string").alias("other"))
        .where(f"{DATE} <> other")
        .distinct()
    )
    found: dict[str, list[str]] = {}
    for day, other in sorted(pairs.collect()):
        found.setdefault(day, []).append(other)
    return found


def _hours_of(spread: dict[str, list[str]], day: str) -> list[str]:
    return [day, *spread.get(day, ())]


def _undecided(judged: DataFrame, grace: timedelta) -> dict[str, dict[str, int]]:
    """For each day the receivers whose journal may still decide something, and until when."""
    end = F.greatest(
        F.unix_micros("last_at") + F.lit(microseconds(grace)),
        F.unix_micros("sent_to") + F.lit(microseconds(AROUND)),
    )
    rows = (
        judged.where("sender IS NOT NULL AND deliveries = 0 AND NOT silent AND watched IS NOT NULL")
        .groupBy(DATE, "watched")
        .agg(F.max(end))
    )
    found: dict[str, dict[str, int]] = {}
    for day, party, until in rows.collect():
        if until is not None:
            found.setdefault(day, {})[party] = until
    return found


def _concerned(facts: DataFrame, wanted: DataFrame) -> DataFrame:
    """The messages of some conversations, and all that refer to them."""
    said = facts.join(wanted, "conversation_key", "left_semi")
    answers = facts.join(said.select(F.col("key").alias("ref_key")), "ref_key", "left_semi").join(
        wanted, "conversation_key", "left_anti"
    )
    # An answer from elsewhere counts as such, and its own conversation is not looked at.
    apart = answers.withColumn("conversation_id", F.lit(None).cast("string"))
    return said.unionByName(apart)
