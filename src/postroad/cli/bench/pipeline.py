"""The pipeline benchmark: simulated journals through all tables, beside what Spark alone needs.

The floor of `tables`: Spark merely reads the same segments, writes all rows out again by day and
groups them once by message. `incremental` compares new days on top of ten times as many with the
same days alone. Session and compiled code are warm when the clock starts.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from postroad.cli.bench.evidence import evidence_measure
from postroad.cli.bench.wire import Measure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
_TABLES_GOAL: Final = 0.35
_INCREMENTAL_GOAL: Final = 1 / 1.5
_WARM: Final = 200_000
_TIMES: Final = 4
"""How often all is run in small first."""
_SHARE: Final = 11
"""One day in so many is new in `incremental`: 2 million on top of 20."""


def pipeline_measures(
    *,
    events: int,
    wanted: Iterable[str],
    memory: str | None = None,
    folder: Path | None = None,
    tell: Tell = lambda said: None,
) -> dict[str, Measure]:
    """Those of tables, incremental and evidence that are wanted."""
    from postroad.pipeline.session import session

    names = set(wanted)
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-pipeline-") as work:
        spark = session(memory=memory)
        bench = _Bench(spark, Path(work), tell)
        measures = {}
        if names & {"tables", "incremental"}:
            bench.warm()
        if "tables" in names:
            measures["tables"] = bench.tables(events)
        if "incremental" in names:
            measures["incremental"] = bench.incremental(events // 5)
        if "evidence" in names:
            tell("evidence")
            measures["evidence"] = evidence_measure(spark, folder=Path(work))
        return measures


class _Bench:
    def __init__(self, spark: "SparkSession", work: Path, tell: Tell) -> None:
        self._spark = spark
        self._work = work
        self._tell = tell

    def warm(self) -> None:
        """Run all some times in small, so that little is compiled on the clock."""
        journal, _ = self._simulated("warm", _WARM, 2)
        for time in range(_TIMES):
            for day in sorted(journal.glob("*")):
                self._product([day], f"warm-{time}")
        self._floor(journal)

    def tables(self, events: int) -> Measure:
        journal, count = self._simulated("tables", events, max(2, events // 1_000_000))
        self._tell("the floor: reading, writing by day, grouping")
        floor = self._floor(journal)
        self._tell("all tables")
        seconds = self._product(sorted(journal.glob("*")), "tables")
        floor = min(floor, self._floor(journal))
        shutil.rmtree(journal.parent)
        return Measure(
            count / seconds,
            count / floor,
            "events per second",
            _TABLES_GOAL,
            peak_rss_mib=_peak(self._spark),
            seconds=seconds,
        )

    def incremental(self, new: int) -> Measure:
        """New days on top of ten times as many, against the same days alone."""
        days = _SHARE * max(1, round(new / 1_000_000))
        journal, count = self._simulated("incremental", new * _SHARE, days)
        every = sorted(journal.glob("*"))
        late = every[-(days // _SHARE) :]
        self._tell("the old days")
        self._product(every[: -len(late)], "grown")
        self._tell("the new days, alone and on top")
        alone = self._product(late, "alone")
        on_top = self._product(late, "grown")
        alone = min(alone, self._product(late, "alone-again"))
        rows = count / _SHARE
        return Measure(
            rows / on_top, rows / alone, "events per second", _INCREMENTAL_GOAL, seconds=on_top
        )

    def _simulated(self, name: str, events: int, days: int) -> tuple[Path, int]:
        from postroad.pipeline.simulation import simulate

        self._tell(f"simulating {events:,} events")
        found = simulate(self._work / name, events=events, days=days, seed=1)
        return found.journal, found.events

    def _product(self, days: list[Path], lake: str) -> float:
        """Seconds that the pipeline takes to bring a lake up to these days."""
        from postroad.pipeline.runner import Plan, run

        journal = self._work / f"{lake}-journal"
        for day in days:
            target = journal / day.name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(day, target, copy_function=_linked)
        begin = perf_counter()
        run(self._spark, Plan((str(journal),), str(self._work / f"{lake}-lake")))
        return perf_counter() - begin

    def _floor(self, journal: Path) -> float:
        from pyspark.sql import functions as F

        from postroad.pipeline.schema import DATE, EVENTS

        begin = perf_counter()
        rows = self._spark.read.schema(EVENTS.schema).parquet(str(journal)).drop(DATE)
        target = self._work / "floor"
        by_day = rows.withColumn(DATE, F.to_date("at"))
        by_day.write.partitionBy(DATE).mode("overwrite").parquet(str(target))
        grouped = rows.groupBy("message_id").agg(F.count("*"), F.min("at"), F.max("at"))
        grouped.write.format("noop").mode("overwrite").save()
        seconds = perf_counter() - begin
        shutil.rmtree(target)
        return seconds


def _linked(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _peak(spark: "SparkSession") -> float | None:
    """The most memory that Spark's process ever had, in MiB."""
    machine = spark.sparkContext._jvm
    assert machine is not None
    pid = machine.java.lang.ProcessHandle.current().pid()
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) / 1024 if lines else None
