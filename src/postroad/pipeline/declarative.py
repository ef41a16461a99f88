"""The intake of a Spark Declarative Pipeline: events of a journal as one frame.

The rules are those of `postroad pipeline run`; here every row goes the exact way, on each run.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from postroad.pipeline.intake_rules import IDENTITY, reasons
from postroad.pipeline.schema import EVENTS

REASON: Final = "reason"
_IDENTITY: Final = ("node", "epoch", "seq")


def judged(spark: SparkSession, journal: str) -> DataFrame:
    """All events of the segments in a folder, each once, with the reason why it is bad, if it is.

    Repeats with the same content count once; with other content all are bad.
    """
    rows = spark.read.schema(EVENTS.schema).option("recursiveFileLookup", "true").parquet(journal)
    once = rows.mapInArrow(_judged, EVENTS.schema.add(REASON, "string")).dropDuplicates()
    same = F.count("*").over(Window.partitionBy(*_IDENTITY))
    reason = F.coalesce(REASON, F.when(same > 1, F.lit(IDENTITY)))
    return once.select(*EVENTS.names, reason.alias(REASON))


def kept(judged: DataFrame) -> DataFrame:
    return judged.where(f"{REASON} IS NULL").select(*EVENTS.names)


def quarantined(judged: DataFrame) -> DataFrame:
    return judged.where(f"{REASON} IS NOT NULL")


def _judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, reasons(batch)], names=[*batch.schema.names, REASON]
        )


class Described:
    """A frame whose columns are known beforehand.

    A dataset of a pipeline isn't there yet when the pipeline is described, so that Spark can't be
    asked for its columns.
    """

    def __init__(self, frame: DataFrame, columns: Iterable[str]) -> None:
        self._frame = frame
        self.columns = list(columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)
