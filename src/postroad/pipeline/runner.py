"""The runner: new files of the journal, through the intake, into the tables of a lake.

Structured Streaming finds the files and remembers them in its checkpoint; the lake's own commit
decides what counts. A batch that was committed, and comes again after a crash, is passed over.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from postroad.pipeline.intake import Batch, Totals, spark_errors, take, unreadable, visible
from postroad.pipeline.intake_copying import Damaged
from postroad.pipeline.intake_findings import Finding, findings
from postroad.pipeline.lake import Change, Lake, no_room, told
from postroad.pipeline.lake_lock import held
from postroad.pipeline.schema import DATE, FINDINGS
from postroad.pipeline.times import day
from postroad.store.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GRACE: Final = timedelta(days=1)
CHECKPOINT: Final = "_checkpoint"
TOTALS: Final = "totals"
_PAGES: Final = "findings"
_PATTERN: Final = frozenset("{}[]*?\\")
_FOREVER: Final = "36500d"
_PATIENCE: Final = 1

Update = Callable[..., None]
Tell = Callable[[str], None]


class RunError(Exception):
    """The pipeline cannot run so; the message is a sentence that says what to do."""


@dataclass(frozen=True)
class Plan:
    """What goes where."""

    journals: tuple[str, ...]
    lake: str
    format: str = "parquet"
    grace: timedelta = GRACE
    max_files: int | None = None


def run(
    spark: "SparkSession",
    plan: Plan,
    *,
    every: timedelta | None = None,
    tell: Tell | None = None,
    update: Update | None = None,
) -> Totals:
    """Take over all that is new, and, with `every`, go on doing so; what became of the rows."""
    plan = _checked(plan)
    with held(plan.lake), told(plan.lake):
        lake = Lake(spark, plan.lake, plan.format)
        lake.recover()
        before = _totals(lake)
        failures: list[Exception] = []
        query = _started(spark, plan, every, _batches(plan, tell, update, failures))
        try:
            _await(query, failures)
        except KeyboardInterrupt:
            query.stop()
        after = _totals(Lake(spark, plan.lake, plan.format))
    return msgspec.convert({name: after[name] - before[name] for name in after}, Totals)


def _totals(lake: Lake) -> dict[str, int]:
    """Of all runs so far."""
    counted: dict[str, int] = msgspec.structs.asdict(
        msgspec.convert(lake.state(TOTALS) or {}, Totals)
    )
    return counted


def process(
    spark: "SparkSession",
    plan: Plan,
    paths: Sequence[str],
    batch: int,
    *,
    query: str = "",
    tell: Tell | None = None,
    update: Update | None = None,
) -> None:
    """Take some files over in one commit, unless that was done before."""
    lake = Lake(spark, plan.lake, plan.format)
    damaged: dict[str, str] = {}
    while (change := lake.begin(batch, query)) is not None:
        try:
            _change(spark, plan, change, paths, damaged, tell or _silent, update or _update())
            return
        except Damaged as file:
            damaged[file.path] = str(file)
        except spark_errors() as failure:
            if no_room(failure):
                raise
            # Which file it was, Spark tells only in passing. Each costs its own rows, not a run.
            readable = [path for path in _segments(paths) if path not in damaged]
            if not (found := unreadable(spark, readable)):
                raise
            damaged |= found


def _change(
    spark: "SparkSession",
    plan: Plan,
    change: Change,
    paths: Sequence[str],
    damaged: dict[str, str],
    tell: Tell,
    update: Update,
) -> None:
    now = datetime.now(UTC)
    lake = change.lake
    tell(f"looking at {len(paths)} new files")
    batch = take(spark, lake, paths, damaged)
    try:
        tell(f"{batch.totals.kept:,} new events: making the tables")
        update(spark, lake, change, batch, grace=plan.grace)
        batch.record(change)
        record_findings(change, batch, now)
        change.set(TOTALS, _sum(lake, batch.totals))
        tell("committing")
        change.commit()
    finally:
        batch.release()


def record_findings(change: Change, batch: Batch, now: datetime) -> None:
    """Bring the table of findings up to date: those days on which anything changed."""
    from pyspark.sql import functions as F

    lake = change.lake
    by_day: dict[str, list[Finding]] = {}
    for finding in findings(batch.known):
        by_day.setdefault(day(finding.at), []).append(finding)
    pages = {date: _page(found) for date, found in by_day.items()}
    written = lake.state(_PAGES) or {}
    today = f"{now:%Y-%m-%d}"
    days = {
        *(date for date in pages.keys() | written.keys() if pages.get(date) != written.get(date)),
        *change.days("_fact_findings"),
        today,
    }
    own = [finding for date in days for finding in by_day.get(date, [])]
    earlier = lake.read("findings", days).where(F.col("kind") == TOTALS)
    rows = (
        _frame(change, [*own, _told(batch.totals, change.batch, now)])
        .unionByName(change.read("_fact_findings", days))
        .unionByName(earlier)
    )
    change.replace("findings", rows.coalesce(1), days)
    change.set(_PAGES, pages)


def _page(found: list[Finding]) -> str:
    return hashlib.sha256(msgspec.json.encode(found)).hexdigest()[:16]


def _told(totals: Totals, batch: int, now: datetime) -> Finding:
    detail = (
        f"rows read {totals.read} = kept {totals.kept} + repeats {totals.repeats}"
        f" + quarantined {totals.quarantined}; files {totals.files}, foreign {totals.foreign};"
        f" retracted {totals.retracted}"
    )
    return Finding(int(now.timestamp() * 1_000_000), TOTALS, f"batch {batch}", detail)


def _frame(change: Change, found: list[Finding]) -> "DataFrame":
    import pyarrow as pa

    at = pa.array([one.at for one in found], pa.timestamp("us", tz="UTC"))
    texts = {
        name: pa.array([getattr(one, name) for one in found], pa.string())
        for name in FINDINGS.names[1:]
    }
    dates = pa.array([day(one.at) for one in found], pa.string())
    return change.lake.spark.createDataFrame(pa.table({"at": at, **texts, DATE: dates}))


def _sum(lake: Lake, totals: Totals) -> dict[str, int]:
    added = msgspec.structs.asdict(totals)
    return {name: count + added[name] for name, count in _totals(lake).items()}


def _silent(_: str) -> None:
    return None


def _update() -> Update:
    from postroad.pipeline.update import update

    return update


def _segments(paths: Sequence[str]) -> list[str]:
    """Those files that looked like segments, and so were given to Spark."""
    from postroad.pipeline.intake_files import look

    looked = (look(path) for path in paths)
    return [one.path for one in looked if one is not None and one.problem is None]


# --- the stream of files ---


def _checked(plan: Plan) -> Plan:
    if not plan.journals:
        raise RunError("say where the journal lies: --journal FOLDER")
    journals = []
    for journal in plan.journals:
        place = Place.of(journal.replace("s3a://", "s3://"))
        if not place.fs.isdir(place.root):
            raise RunError(f"there is no journal {journal}: check the folder")
        if _PATTERN.intersection(place.root):
            raise RunError(f"Spark takes {journal} for a pattern: use a folder without {{}}[]*?\\")
        journals.append(place.root if place.local else journal.rstrip("/"))
    lake = Place.of(plan.lake.replace("s3a://", "s3://"))
    url = lake.root if lake.local else plan.lake.rstrip("/")
    for journal in journals:
        if f"{url}/".startswith(f"{journal}/"):
            raise RunError(f"the lake {url} lies in the journal {journal}: keep them apart")
    return Plan(tuple(journals), url, plan.format, plan.grace, plan.max_files)


def _pattern(journals: Sequence[str]) -> str:
    """One path for all folders: their number may grow, and the checkpoint stays good."""
    if len(journals) == 1:
        return journals[0]
    roots = {_root(journal) for journal in journals}
    if len(roots) > 1:
        raise RunError("the journals lie in different stores: run once for each, on one lake")
    (root,) = roots
    return f"{root}{{{','.join(journal.removeprefix(root) for journal in journals)}}}"


def _root(journal: str) -> str:
    scheme, found, rest = journal.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0]}/" if found else "/"


def _started(
    spark: "SparkSession",
    plan: Plan,
    every: timedelta | None,
    batches: "Callable[[DataFrame, int], None]",
) -> "StreamingQuery":
    # The content of the files is not read: only the path is asked for.
    source = (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length bigint, content binary")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .option("ignoreMissingFiles", "true")
        # A segment that comes late may be of any age.
        .option("maxFileAge", _FOREVER)
    )
    if plan.max_files:
        source = source.option("maxFilesPerTrigger", str(plan.max_files))
    writer = (
        source.load(_pattern(plan.journals))
        .select("path")
        .writeStream.foreachBatch(batches)
        .option("checkpointLocation", f"{plan.lake}/{CHECKPOINT}")
        .queryName("postroad")
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every.total_seconds():g} seconds").start()


def _batches(
    plan: Plan, tell: Tell | None, update: Update | None, failures: list[Exception]
) -> "Callable[[DataFrame, int], None]":
    """What is done with each batch of paths."""

    def take_over(rows: "DataFrame", batch: int) -> None:
        try:
            paths = [row["path"].removeprefix("file:") for row in rows.collect()]
            paths = [f"/{path.lstrip('/')}" if "://" not in path else path for path in paths]
            paths += _empty(plan.journals)
            shown = sorted({path for path in paths if visible(path, plan.journals)})
            process(
                rows.sparkSession,
                plan,
                shown,
                batch,
                query=_query(plan.lake),
                tell=tell,
                update=update,
            )
        except Exception as failure:
            failures.append(failure)
            raise

    return take_over


def _empty(journals: Sequence[str]) -> list[str]:
    """Spark passes over files without a byte; they are findings."""
    found = []
    for journal in journals:
        place = Place.of(journal.replace("s3a://", "s3://"))
        for path, info in place.fs.find(place.root, detail=True).items():
            if info["size"] == 0 and path.endswith(".parquet"):
                found.append(path if place.local else place.fs.unstrip_protocol(path))
    return found


def _query(lake: str) -> str:
    """The name that Spark gave the checkpoint: batches are counted anew in another one."""
    place = Place.of(lake.replace("s3a://", "s3://"))
    with place.reading(f"{CHECKPOINT}/metadata") as file:
        said: dict[str, Any] = json.loads(file.read())
    return str(said["id"])


def _await(query: "StreamingQuery", failures: list[Exception]) -> None:
    try:
        while not query.awaitTermination(_PATIENCE):
            pass
    except Exception as failure:
        if failures:
            raise failures[0] from failure
        raise RunError(_last_line(failure)) from failure


def _last_line(failure: Exception) -> str:
    lines = [line for line in str(failure).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(failure).__name__
