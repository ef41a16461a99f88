"""Taking over new files of the journal: which rows are new, which came before, which are bad.

Every file is looked at with Arrow first (`intake_files`). A file whose rows are all fine and whose
identities no other file has passes without another look; its rows are copied (`intake_copying`)
and Spark reads them only to make the tables. Only files that overlap with others go the exact
way, row by row, and only files with bad rows are judged again on the way.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from postroad.pipeline import intake_registry as registry
from postroad.pipeline.intake_copying import copy, rows_of
from postroad.pipeline.intake_files import Run, Segment, look
from postroad.pipeline.intake_registry import Intervals, Registry, joined, with_conflicts
from postroad.pipeline.intake_rules import IDENTITY, reasons
from postroad.pipeline.lake_formats import nothing
from postroad.pipeline.picking import each_file
from postroad.pipeline.schema import DATE, EVENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from postroad.pipeline.lake import Change, Lake

QUARANTINE: Final = "_quarantine"
UNDATED: Final = "1970-01-01"
_THREADS: Final = 8
_CONDITIONS: Final = 50
_NEW, _STORED, _DOUBTED = 2, 1, 0

Identity = tuple[str, int, int, str]
"""Node, epoch, seq, and the day on which the event stands in the lake."""


class Totals(msgspec.Struct, frozen=True):
    """What became of the rows of a run; read = kept + repeats + quarantined."""

    files: int = 0
    foreign: int = 0
    read: int = 0
    kept: int = 0
    repeats: int = 0
    quarantined: int = 0
    retracted: int = 0
    """Rows that were kept by an earlier run and went to quarantine in this one."""

    def __post_init__(self) -> None:
        if self.read != self.kept + self.repeats + self.quarantined:
            raise AssertionError(f"rows were lost or doubled: {self}")

    def __add__(self, other: "Totals") -> "Totals":
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Totals(*(a + b for a, b in pairs))


@dataclass(frozen=True)
class Batch:
    """What some new files bring."""

    events: "DataFrame"
    """The new rows that are kept, with their day."""
    whole: list[Segment]
    """The files all of whose rows are kept."""
    rest: "DataFrame | None"
    """Those rows of `events` that are in no such file; None where there is none."""
    retracted: list[Identity]
    """Rows that stand among the events and must go: other content came under their identity."""
    segments: list[Segment]
    """The files, foreign ones too."""
    quarantined: "DataFrame | None"
    """The rows that are not kept, each with a reason; None when there is none."""
    totals: Totals
    before: Registry
    known: Registry
    """What is known of all files, these among them."""
    held: "list[DataFrame]" = field(default_factory=list)

    def add_events(self, change: "Change") -> None:
        """Write the new rows down."""
        if self.whole:
            change.add_files("events", partial(copy, self.whole))
        if self.rest is not None:
            change.add("events", self.rest)

    def record(self, change: "Change") -> None:
        """Write files and quarantine down; the events are for who makes the tables."""
        self.known.record(change, self.before)
        if self.quarantined is not None:
            change.add(QUARANTINE, self.quarantined.coalesce(1))

    def release(self) -> None:
        for frame in self.held:
            frame.unpersist()


def take(
    spark: "SparkSession",
    lake: "Lake",
    paths: Sequence[str],
    damaged: Mapping[str, str] | None = None,
) -> Batch:
    """Find out what is new in these files. `damaged`: files that Spark could not read, and why."""
    before = registry.read(lake)
    found = _looked_at(paths, damaged or {})
    fresh, copies = _fresh(found, before)
    exact = before.overlapping(fresh)
    fine = [one for one in fresh if one.path not in exact and not one.bad]
    mixed = [one for one in fresh if one.path not in exact and one.bad]
    twice = [one for one in fresh if one.path in exact]
    judged = _judged(spark, mixed) if mixed else None
    intake = _Exact(spark, lake, before, twice)

    rest = [judged.where("reason IS NULL").drop("reason")] if judged is not None else []
    rest += intake.kept()
    kept = [_rows(spark, [one.path for one in fine]), *rest] if fine else rest
    bad = [judged.where("reason IS NOT NULL")] if judged is not None else []
    bad += intake.bad()
    quarantined, held = _distinct_bad(lake, bad)
    newly_bad = quarantined.count() if quarantined is not None else 0

    read = sum(one.rows for one in found)
    untouched = sum(one.rows - one.bad for one in fresh if one.path not in exact)
    conflicts = with_conflicts(before.conflicts, intake.conflicts)
    clashing = sum(map(Intervals(conflicts).shared, (run for one in copies for run in one.runs)))
    totals = Totals(
        files=len(found),
        foreign=sum(one.problem is not None for one in found),
        read=read,
        kept=untouched + intake.counts["keep"],
        repeats=sum(one.rows for one in copies)
        - clashing
        + sum(one.bad for one in fresh)
        - newly_bad
        + intake.counts["repeat"],
        quarantined=newly_bad + intake.counts["quarantine"] + intake.counts["clash"] + clashing,
        retracted=len(intake.retracted),
    )
    new = [one for one in found if one not in before]
    events = _dated(_together(spark, kept))
    known = Registry((*before.segments, *new), conflicts)
    doubtful = intake.doubtful()
    parts = [part for part in (quarantined, doubtful) if part is not None]
    return Batch(
        events=events,
        whole=fine,
        rest=_dated(_together(spark, rest)) if rest else None,
        retracted=intake.retracted,
        segments=new,
        quarantined=reduce(lambda a, b: a.unionByName(b), parts) if parts else None,
        totals=totals,
        before=before,
        known=_without_conflicts(lake, known, events, intake.retracted),
        held=held + intake.held,
    )


def _without_conflicts(
    lake: "Lake", known: Registry, events: "DataFrame", retracted: list[Identity]
) -> Registry:
    """The registry with the runs that are left of its files without what is in conflict."""
    files = known.of(known.conflicts)
    if not files:
        return known
    runs = [run for one in files for run in one.runs]
    stored = lake.read("events", known.days_of(runs))
    if retracted:
        gone = lake.spark.createDataFrame(
            [one[:3] for one in retracted], "node string, epoch int, seq bigint"
        )
        stored = stored.join(gone, ["node", "epoch", "seq"], "left_anti")
    left: dict[str, list[Run]] = {one.path: [] for one in files}
    left |= _runs_left(lake.spark, events.unionByName(stored), files)
    return Registry(
        tuple(
            msgspec.structs.replace(one, runs=left[one.path]) if one.path in left else one
            for one in known.segments
        ),
        known.conflicts,
    )


def _runs_left(
    spark: "SparkSession", events: "DataFrame", files: list[Segment]
) -> dict[str, list[Run]]:
    """The runs of some files as the events that are kept have them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    runs = spark.createDataFrame(
        [(f.path, r.node, r.epoch, r.seq_from, r.seq_to) for f in files for r in f.runs],
        "path string, node string, epoch int, seq_from bigint, seq_to bigint",
    )
    of_run = Window.partitionBy("path", "node", "epoch", "seq_from").orderBy("seq")
    rows = (
        events.select("node", "epoch", "seq", F.unix_micros("at").alias("at"))
        .join(F.broadcast(runs), ["node", "epoch"])
        .where("seq BETWEEN seq_from AND seq_to")
        .withColumn("island", F.col("seq") - F.row_number().over(of_run))
        .groupBy("path", "node", "epoch", "seq_from", "island")
        .agg(F.min("seq"), F.max("seq"), F.min("at"), F.max("at"))
    )
    left: dict[str, list[Run]] = {}
    for path, node, epoch, _, _, *bounds in rows.collect():
        left.setdefault(path, []).append(Run(node, epoch, *bounds))
    return {path: sorted(some) for path, some in left.items()}


def unreadable(spark: "SparkSession", paths: Sequence[str]) -> dict[str, str]:
    """Those files that Spark cannot read, and what it says of each; found by halving."""
    try:
        _rows(spark, paths).write.format("noop").mode("overwrite").save()
    except spark_errors() as error:
        if len(paths) == 1:
            return {paths[0]: f"it is damaged ({_reason(error)})"}
        half = len(paths) // 2
        return unreadable(spark, paths[:half]) | unreadable(spark, paths[half:])
    return {}


def spark_errors() -> tuple[type[Exception], ...]:
    """What a failing job raises: some of it passes PySpark's own conversion by."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def visible(path: str, folders: Sequence[str]) -> bool:
    """Whether a file below one of the journal's folders is data: no name begins with `_` or `.`."""
    inside = next((path.removeprefix(folder) for folder in folders if path.startswith(folder)), "")
    return not any(part.startswith(("_", ".")) for part in inside.split("/"))


def _looked_at(paths: Sequence[str], damaged: Mapping[str, str]) -> list[Segment]:
    def one(path: str) -> Segment | None:
        found = look(path)
        if found is None or path not in damaged or found.problem is not None:
            return found
        return Segment(path, found.sha256, found.bytes, found.at, damaged[path])

    with ThreadPoolExecutor(_THREADS) as pool:
        return [found for found in pool.map(one, sorted(set(paths))) if found is not None]


def _fresh(found: list[Segment], before: Registry) -> tuple[list[Segment], list[Segment]]:
    """Files with content that was never there, and copies of others.

    A copy of a file that has an identity twice is looked at row by row again: its rows may clash.
    """
    seen = {segment.sha256 for segment in before.segments if segment.problem is None}
    fresh: list[Segment] = []
    copies: list[Segment] = []
    for segment in found:
        if segment.problem is not None:
            continue
        copied = segment.sha256 in seen and not segment.doubled
        (copies if copied else fresh).append(segment)
        seen.add(segment.sha256)
    return fresh, copies


def _rows(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """Read files with Arrow, as the contract has it: Spark takes fewer types, in fewer widths."""
    return each_file(spark, paths, _read, EVENTS.schema)


def _read(path: str) -> Iterator[pa.RecordBatch]:
    for batch in rows_of(path):
        # A bad row may be null where the contract has a value.
        yield pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)


def _judged(spark: "SparkSession", files: Sequence[Segment]) -> "DataFrame":
    """The rows with the rule that each breaks."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    rows = _rows(spark, [one.path for one in files])
    if not any(one.bad for one in files):
        return rows.withColumn("reason", F.lit(None).cast("string"))
    return rows.mapInArrow(_with_reasons, EVENTS.schema.add("reason", StringType()))


def _with_reasons(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("reason", reasons(batch))


def _together(spark: "SparkSession", frames: "list[DataFrame]") -> "DataFrame":
    if not frames:
        return nothing(spark, EVENTS.schema)
    return reduce(lambda a, b: a.unionByName(b), frames)


def _dated(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return rows.withColumn(DATE, F.to_date("at").cast("string"))


def _content() -> "Column":
    """One text for all that a row says."""
    from pyspark.sql import functions as F

    said = [
        F.unix_micros("at").alias("at") if name == "at" else F.col(name) for name in EVENTS.names
    ]
    return F.sha2(F.to_json(F.struct(*said)), 256)


def quarantine_schema() -> Any:
    from pyspark.sql.types import StringType

    return EVENTS.schema.add("reason", StringType()).add("content", StringType())


def _distinct_bad(
    lake: "Lake", frames: "list[DataFrame]"
) -> "tuple[DataFrame | None, list[DataFrame]]":
    """Each bad row once, unless it is in quarantine already."""
    from pyspark.sql import functions as F

    if not frames:
        return None, []
    sane = F.col("at").between(F.lit("1970-01-01"), F.lit("9999-12-31 23:59:59.999999"))
    rows = reduce(lambda a, b: a.unionByName(b), frames).withColumn("content", _content())
    rows = rows.dropDuplicates(["content"]).withColumn(
        DATE, F.when(sane, F.to_date("at").cast("string")).otherwise(UNDATED)
    )
    if lake.days(QUARANTINE):
        stored = lake.read(QUARANTINE, schema=quarantine_schema())
        rows = rows.join(stored.select("content"), "content", "left_anti")
    rows = rows.select(*EVENTS.names, "reason", "content", DATE).persist()
    return rows, [rows]


def _reason(error: Exception) -> str:
    """The innermost thing that Java says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1].removeprefix("Caused by:") if causes else lines[0]).strip()


class _Exact:
    """Files that share identities with others: their rows are compared with what is there."""

    def __init__(
        self, spark: "SparkSession", lake: "Lake", before: Registry, files: list[Segment]
    ) -> None:
        self.counts = {"keep": 0, "repeat": 0, "quarantine": 0, "clash": 0}
        self.retracted: list[Identity] = []
        self.conflicts: list[tuple[str, int, int, int]] = []
        self.held: list[DataFrame] = []
        self._judged = _judged(spark, files) if files else None
        self._with_bad = any(one.bad for one in files)
        self._decided: DataFrame | None = None
        if self._judged is None:
            return
        runs = joined(run for one in files for run in one.runs)
        self._decided = self._decide(lake, before, runs).persist()
        self.held.append(self._decided)
        for row in self._decided.groupBy("verdict").count().collect():
            self.counts[row["verdict"]] = row["count"]
        self._collect()

    def kept(self) -> "list[DataFrame]":
        if self._decided is None:
            return []
        return [self._decided.where("verdict = 'keep'").select(*EVENTS.names)]

    def bad(self) -> "list[DataFrame]":
        if self._judged is None or not self._with_bad:
            return []
        return [self._judged.where("reason IS NOT NULL")]

    def doubtful(self) -> "DataFrame | None":
        """Rows that go to quarantine because of their identity, those that are retracted too."""
        from pyspark.sql import functions as F

        if self._decided is None or not self.conflicts:
            return None
        rows = _dated(self._decided.where("verdict IN ('quarantine', 'retract')"))
        return rows.withColumn("reason", F.lit(IDENTITY)).select(
            *EVENTS.names, "reason", "content", DATE
        )

    def _decide(self, lake: "Lake", before: Registry, runs: list[Run]) -> "DataFrame":
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        assert self._judged is not None
        rows = self._judged.where("reason IS NULL").select(*EVENTS.names, F.lit(_NEW).alias("from"))
        within = _within(runs)
        if days := before.days_of(runs):
            stored = lake.read("events", days).where(within)
            rows = rows.unionByName(stored.select(*EVENTS.names, F.lit(_STORED).alias("from")))
        wanted = Intervals(runs)
        if any(wanted.meets(one) for one in before.conflicts):
            doubted = lake.read(QUARANTINE, schema=quarantine_schema()).where(within)
            doubted = doubted.where(F.col("reason") == IDENTITY)
            rows = rows.unionByName(doubted.select(*EVENTS.names, F.lit(_DOUBTED).alias("from")))
        same = Window.partitionBy("node", "epoch", "seq")
        first = same.orderBy("content", "from")
        verdict = (
            F.when(F.col("from") == _DOUBTED, F.lit("known"))
            .when(F.col("from") == _STORED, F.when(F.col("conflict"), "retract").otherwise("known"))
            # Copies of what is in quarantine, or goes there: counted so, and kept there once.
            .when(F.col("again"), F.when(F.col("conflict"), "clash").otherwise("repeat"))
            .when(F.col("conflict"), "quarantine")
            .otherwise("keep")
        )
        return (
            rows.withColumn("content", _content())
            .withColumn(
                "again", F.coalesce(F.lag("content").over(first), F.lit("")) == F.col("content")
            )
            .withColumn(
                "conflict",
                (F.min("content").over(same) != F.max("content").over(same))
                | (F.min("from").over(same) == _DOUBTED),
            )
            .withColumn("verdict", verdict)
            .where("verdict != 'known'")
            .select(*EVENTS.names, "content", "verdict")
        )

    def _collect(self) -> None:
        from pyspark.sql import functions as F

        assert self._decided is not None
        if not self.counts["quarantine"] and not self.counts.get("retract"):
            return
        rows = _dated(self._decided.where("verdict IN ('quarantine', 'retract')"))
        for row in rows.select(
            "node", "epoch", "seq", F.unix_micros("at").alias("at"), DATE, "verdict"
        ).collect():
            self.conflicts.append((row["node"], row["epoch"], row["seq"], row["at"]))
            if row["verdict"] == "retract":
                self.retracted.append((row["node"], row["epoch"], row["seq"], row[DATE]))
        self.retracted.sort()


def _within(runs: list[Run]) -> "Column":
    """Whether a row lies in one of the runs, or, where these are many, near them."""
    from pyspark.sql import functions as F

    if len(runs) > _CONDITIONS:
        ends: dict[tuple[str, int], Run] = {}
        for run in runs:
            first = ends.get((run.node, run.epoch), run)
            ends[run.node, run.epoch] = msgspec.structs.replace(first, seq_to=run.seq_to)
        runs = list(ends.values())
    if len(runs) > _CONDITIONS:
        # A condition for each would be nested deeper than Spark can follow.
        return F.col("node").isin(sorted({run.node for run in runs}))
    return reduce(
        lambda a, b: a | b,
        (
            (F.col("node") == run.node)
            & (F.col("epoch") == run.epoch)
            & F.col("seq").between(run.seq_from, run.seq_to)
            for run in runs
        ),
        F.lit(False),
    )
