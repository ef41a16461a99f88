"""Facts of files of events, into files: Spark's tasks read and write them with Arrow."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.pipeline.daily import attempt, by_day, files, writing
from postroad.pipeline.facts import packed
from postroad.pipeline.folding import FEW, READ, fold
from postroad.pipeline.parcels import PARCEL, gathered, unpack
from postroad.store.places import Place
from postroad.store.segments import ROW_GROUP


def parcels(spark: SparkSession, paths: Sequence[str], shares: int) -> DataFrame:
    """The events of these files as parcels."""
    numbered = spark.createDataFrame(list(enumerate(paths)), "number int, file string")
    each = numbered.repartitionById(len(paths), F.col("number")).select("file")
    return each.mapInArrow(partial(_packed, shares=shares), PARCEL)


def write(parcels: DataFrame, shares: int, place: Place) -> list[str]:
    """Write the facts of these events below a folder, in daily partitions; the files."""
    task = partial(_written, place=place, mark=uuid.uuid4().hex)
    written = gathered(parcels, shares).mapInArrow(task, "file string")
    return [row[0] for row in written.collect()]


def _packed(batches: Iterable[pa.RecordBatch], *, shares: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch["file"].to_pylist():
            yield from packed(_events(file), shares=shares)


def _events(file: str) -> Iterator[pa.RecordBatch]:
    """Those that name a message."""
    fs, name = fsspec.core.url_to_fs(file)
    with fs.open(name, "rb") as opened:
        # Arrow reads a file of this machine without Python in between.
        source = name if isinstance(fs, LocalFileSystem) else opened
        reader = pq.ParquetFile(source, read_dictionary=list(FEW))
        for batch in reader.iter_batches(ROW_GROUP, columns=list(READ), use_threads=False):
            yield batch.filter(batch["message_id"].is_valid())


def _written(
    batches: Iterable[pa.RecordBatch], *, place: Place, mark: str
) -> Iterator[pa.RecordBatch]:
    if (events := unpack(batches)) is not None:
        with writing(place, f"{mark}-{attempt()}") as days:
            for date, rows in by_day(fold(events), "noted_at"):
                for batch in rows.to_batches():
                    days.add(date, batch)
        yield files(days.names)
