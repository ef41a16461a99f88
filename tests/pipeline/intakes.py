"""A lake that takes segments, for tests: the runner's way without its stream."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.pipeline.intake import Batch, take
from postroad.pipeline.intake_findings import Finding, findings
from postroad.pipeline.lake import Change, Lake
from postroad.store.journal_columns import COLUMNS
from postroad.store.segments import write_segment

Event = dict[str, Any]


def events_only(
    spark: SparkSession, lake: Lake, change: Change, batch: Batch, *, grace: Any = None
) -> None:
    """Stands in for the update of the tables: events, and nothing else."""
    if batch.retracted:
        days = {day for *_, day in batch.retracted}
        gone = spark.createDataFrame(
            batch.retracted, "node string, epoch int, seq bigint, day string"
        )
        left = lake.read("events", days).join(gone, ["node", "epoch", "seq"], "left_anti")
        change.replace("events", left, days)
    batch.add_events(change)


def segment(
    folder: Path, events: Sequence[Event], previous: str = "", schema: pa.Schema = COLUMNS
) -> tuple[str, str]:
    """Write events as one segment; its path and digest."""
    written = write_segment(
        folder,
        pa.Table.from_pylist(list(events), schema=schema.remove_metadata()),
        node=events[0]["node"],
        epoch=events[0]["epoch"],
        previous=previous,
    )
    return str(Path(folder) / written.name), written.digest


@dataclass
class Intake:
    """Takes files into a lake, batch by batch."""

    spark: SparkSession
    folder: Path
    batches: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = Lake(self.spark, str(self.folder))

    def take(self, *paths: str) -> Batch:
        change = self.lake.begin(len(self.batches))
        assert change is not None
        batch = take(self.spark, self.lake, paths)
        events_only(self.spark, self.lake, change, batch)
        batch.record(change)
        change.commit()
        batch.release()
        self.batches.append(batch)
        return batch

    @property
    def findings(self) -> list[Finding]:
        return findings(self.batches[-1].known)

    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings]

    def seqs(self) -> list[int]:
        return sorted(row.seq for row in self.lake.read("events").select("seq").collect())

    def rows(self) -> list[tuple[Any, ...]]:
        return told(self.lake.read("events"))


def told(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows in an order that doesn't depend on how they were written."""
    plain = frame.select(*(F.to_json(F.struct(name)).alias(name) for name in sorted(frame.columns)))
    return sorted(tuple(row) for row in plain.collect())


def altered(path: str, at: Iterable[int]) -> None:
    """Change some bytes of a file."""
    content = bytearray(Path(path).read_bytes())
    for place in at:
        content[place] ^= 0xFF
    Path(path).write_bytes(content)
