"""Files whose rows are all kept, written out by day with Arrow: Spark would read row by row."""

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from postroad.pipeline.daily import by_day, writing
from postroad.pipeline.intake_files import Segment
from postroad.pipeline.times import day
from postroad.store.places import Place
from postroad.store.segments import ROW_GROUP, read_rows

_SHARE: Final = 1 << 26
"""Segments of so many bytes become files together, one for each of their days."""


class Damaged(Exception):
    """A file cannot be read to its end; the message says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"it is damaged ({reason})")
        self.path = path


def copy(segments: Sequence[Segment], place: Place) -> list[str]:
    """Write the rows of all these below a folder, in daily partitions; the files."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        written = [pool.submit(_write, share, place) for share in _shares(segments)]
        return [name for names in written for name in names.result()]


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


def _write(segments: Sequence[Segment], place: Place) -> list[str]:
    # The events of a message all name it.
    with writing(place, uuid.uuid4().hex, many=frozenset()) as days:
        for segment in segments:
            for batch in rows_of(segment.path):
                for date, rows in by_day(batch, "at"):
                    days.add(date, rows)
    return days.names


def rows_of(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, all columns in order; every page is checked."""
    try:
        fs, name = fsspec.core.url_to_fs(path)
        with fs.open(name, "rb") as file:
            source = name if isinstance(fs, LocalFileSystem) else file
            reader = pq.ParquetFile(source, page_checksum_verification=True)
            yield from read_rows(reader, ROW_GROUP)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(path, str(error).strip().split("\n", 1)[0]) from error
