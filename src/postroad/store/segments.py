"""Segments of a journal: Parquet files, chained by digest, never changed once they are there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from postroad.store.journal_columns import (
    COLUMNS,
    META_EPOCH,
    META_NODE,
    META_PREVIOUS,
    META_SCHEMA,
    SCHEMA_VERSION,
)
from postroad.store.places import Place

ROW_GROUP: Final = 1 << 16
"""Rows of a row group: what one thread of a reader takes at a time, and what is kept in memory."""


class SegmentExists(Exception):
    """There is a segment of that name already, and segments never change."""


class NotASegment(Exception):
    """The file is no segment of a journal; says why."""


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment that is there, whole and durable."""

    name: str
    """Below the journal's folder."""
    path: str
    digest: str
    first_seq: int
    last_seq: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What a segment says of itself; None for what its writer left out."""

    node: str | None
    epoch: int | None
    previous: str | None
    rows: int


def segment_name(node: str, epoch: int, seq: int, at: datetime) -> str:
    """Where a segment lies below the journal's folder, by its first event."""
    return f"date={at.astimezone(UTC):%Y-%m-%d}/{file_name(node)}-{epoch}-{seq:020d}.parquet"


def file_name(node: str) -> str:
    """A node's name as it stands in the names of files."""
    named = quote(node, safe="")
    # Names that begin so are not data.
    return f"%{ord(named[0]):02X}{named[1:]}" if named[0] in "._" else named


def write_segment(
    folder: str | Path | Place,
    rows: pa.Table | Iterable[pa.RecordBatch],
    *,
    node: str,
    epoch: int,
    previous: str,
) -> WrittenSegment:
    """Write one segment below a folder or URL: it appears whole, or not at all.

    `previous` is the digest of the segment before it, empty for the first of an epoch. A column
    that the rows lack is null. Rows are written as they come, some thousands at a time.
    """
    place = folder if isinstance(folder, Place) else Place.of(folder)
    groups = _row_groups(rows.to_batches() if isinstance(rows, pa.Table) else rows)
    group = next(groups, None)
    if group is None:
        raise ValueError("a segment has at least one event")
    first_seq = last_seq = group["seq"][0].as_py()
    name = segment_name(node, epoch, first_seq, group["at"][0].as_py())
    if place.exists(name):
        raise SegmentExists(
            f"{place.path(name)} is there already, and segments never change: write to another"
            " folder, or remove it if it is not wanted."
        )
    schema = COLUMNS.with_metadata(
        {
            META_SCHEMA: SCHEMA_VERSION,
            META_NODE: node,
            META_EPOCH: str(epoch),
            META_PREVIOUS: previous,
        }
    )
    count = 0
    with place.writing(name) as file:
        with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
            while group is not None:
                writer.write_table(group, row_group_size=ROW_GROUP)
                count += group.num_rows
                last_seq = group["seq"][-1].as_py()
                group = next(groups, None)
        digest, size = file.digest, file.size
    return WrittenSegment(name, place.path(name), digest, first_seq, last_seq, count, size)


def read_footer(place: Place, name: str) -> Footer:
    """What a segment says of itself; NotASegment tells what is wrong with another file."""
    with place.reading(name) as file:
        return footer_of(open_segment(file))


def open_segment(file: Any) -> pq.ParquetFile:
    """A Parquet file, opened; its pages are checked as they are read."""
    try:
        return pq.ParquetFile(file, page_checksum_verification=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise NotASegment(f"it is no whole Parquet file ({_first_line(error)})") from error


def footer_of(segment: pq.ParquetFile) -> Footer:
    said: dict[bytes, bytes] = segment.metadata.metadata or {}
    version = said.get(META_SCHEMA)
    if version is None:
        raise NotASegment("it is Parquet, but no segment of a journal (no postroad.schema in it)")
    if version != SCHEMA_VERSION.encode():
        raise NotASegment(
            f"its schema is {version.decode(errors='replace')!r}, this version reads"
            f" {SCHEMA_VERSION!r}"
        )
    try:
        node, epoch, previous = (
            said[key].decode() if key in said else None
            for key in (META_NODE, META_EPOCH, META_PREVIOUS)
        )
        number = int(epoch) if epoch is not None else None
    except ValueError as error:
        raise NotASegment(f"its metadata is not readable ({error})") from error
    for field in COLUMNS:
        kinds = [one.type for one in segment.schema_arrow if one.name == field.name]
        if len(kinds) > 1:
            raise NotASegment(f"it has the column {field.name} {len(kinds)} times")
        if not kinds and not field.nullable:
            raise NotASegment(f"it has no column {field.name}")
        if kinds and not _fits(kinds[0], field.type):
            raise NotASegment(f"its column {field.name} is {kinds[0]}, not {field.type}")
    return Footer(node, number, previous, segment.metadata.num_rows)


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column of this type has values of the type that is wanted.

    Writers differ in how they lay out strings, in the width of numbers and the unit of times.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(wanted) and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return _fits(kind.value_type, wanted.value_type)
    return pa.types.is_null(kind) or any(right(kind) for ours, right in _FITTING if ours(wanted))


_FITTING: Final = (
    (pa.types.is_string, pa.types.is_string),
    (pa.types.is_string, pa.types.is_large_string),
    (pa.types.is_string, pa.types.is_string_view),
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_timestamp, pa.types.is_timestamp),
)
"""The types of the contract, each with one that has the same values."""


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column that fits as the type of the contract; times are cut to microseconds."""
    if column.type == kind:
        return column
    return column.cast(kind, safe=not pa.types.is_timestamp(kind) or column.type.unit != "ns")


def read_rows(segment: pq.ParquetFile, size: int) -> Iterator[pa.RecordBatch]:
    """Read the rows of a segment, `size` at a time, with every column as the contract has it."""
    ours = [name for name in segment.schema_arrow.names if name in COLUMNS.names]
    for batch in segment.iter_batches(size, columns=ours, use_threads=False):
        yield with_all_columns(batch)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches of any size, put together to row groups with all columns in order."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(with_all_columns(batch))
        rows += batch.num_rows
        if rows >= ROW_GROUP:
            table = pa.Table.from_batches(waiting, COLUMNS)
            whole = rows - rows % ROW_GROUP
            yield table[:whole]
            waiting, rows = table[whole:].to_batches(), rows - whole
    if rows:
        yield pa.Table.from_batches(waiting, COLUMNS)


def with_all_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with every column of a segment, in order; null where they had none."""
    if batch.schema.equals(COLUMNS):
        return batch
    names = set(batch.schema.names)
    columns = [
        as_type(batch.column(field.name), field.type)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
