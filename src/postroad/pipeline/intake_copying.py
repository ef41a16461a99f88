"""Files whose rows are all kept, written out by day with Arrow: Spark would read row by row."""

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from postroad.pipeline.intake_files import Segment
from postroad.pipeline.schema import DATE
from postroad.pipeline.times import day
from postroad.store.journal_columns import COLUMNS
from postroad.store.places import Place
from postroad.store.segments import ROW_GROUP, with_all_columns

_DAY: Final = 86_400_000_000
_SHARE: Final = 1 << 26
"""Segments of so many bytes become files together, one for each of their days."""
_OPEN: Final = 8
"""So many days are written side by side."""


class Damaged(Exception):
    """A file cannot be read to its end; the message says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"it is damaged ({reason})")
        self.path = path


def copy(segments: Sequence[Segment], place: Place) -> None:
    """Write the rows of all these below a folder, in daily partitions."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(_Share(place).write, share) for share in _shares(segments)]:
            done.result()


def _shares(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """By day first, so that a share has few of them."""
    share: list[Segment] = []
    size = 0
    for segment in sorted(segments, key=lambda one: (day(one.at), one.path)):
        if share and size + segment.bytes > _SHARE:
            yield share
            share, size = [], 0
        share.append(segment)
        size += segment.bytes
    if share:
        yield share


class _Share:
    """Some segments on their way into one file for each day."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._days: dict[int, _Day] = {}

    def write(self, segments: Sequence[Segment]) -> None:
        with ExitStack() as files:
            for segment in segments:
                for batch in _batches(segment.path):
                    for number, rows in _by_day(batch):
                        self._of(number, files).add(rows)

    def _of(self, number: int, files: ExitStack) -> "_Day":
        if number not in self._days:
            if len(self._days) == _OPEN:
                files.close()
                self._days = {}
            # No other file may ever have its name: they all come to lie in one folder.
            name = f"{DATE}={day(number * _DAY)}/part-{uuid.uuid4().hex}.parquet"
            self._days[number] = files.enter_context(_writing(self._place, name))
        return self._days[number]


class _Day:
    """The file of a day; rows wait until they make a row group."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, COLUMNS))
        self._waiting, self._rows = [], 0


@contextmanager
def _writing(place: Place, name: str) -> Iterator[_Day]:
    with (
        place.writing(name) as file,
        pq.ParquetWriter(file, COLUMNS, compression="zstd") as writer,
    ):
        of_day = _Day(writer)
        yield of_day
        of_day.flush()


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, all columns in order; every page is checked."""
    try:
        fs, name = fsspec.core.url_to_fs(path)
        with fs.open(name, "rb") as file:
            source = name if isinstance(fs, LocalFileSystem) else file
            reader = pq.ParquetFile(source, page_checksum_verification=True)
            ours = [field for field in reader.schema_arrow.names if field in COLUMNS.names]
            for batch in reader.iter_batches(ROW_GROUP, columns=ours, use_threads=False):
                yield with_all_columns(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(path, str(error).strip().split("\n", 1)[0]) from error


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each day, counted since 1970."""
    days = batch["at"].cast(pa.int64()).to_numpy() // _DAY
    for number in np.unique(days):
        mine = days == number
        yield int(number), batch if mine.all() else batch.filter(pa.array(mine))
