"""Rows on their way to those that have the same id: many in one parcel.

Spark would carry every row for itself. Here a row of the shuffle is the number of a share of all
ids, and many rows of that share in the form of Arrow.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from postroad.pipeline.keys import hashed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARCEL: Final = "share int, rows binary"
_PARCEL: Final = pa.schema({"share": pa.int32(), "rows": pa.binary()})
_ROWS: Final = 1 << 17
"""About so many rows are sorted into shares at a time."""
_AFTER_EACH_OTHER: Final = 10
"""A task has at most about so many shares. It holds one at a time, and writes one file of all."""
_MIXING: Final = np.uint64(0x9E3779B97F4A7C15)
"""Numbers that differ in few bits shall be of different shares."""
_FEW: Final = 1 << 10
"""A column of fewer values travels as a list of these, and numbers."""


def parcels(rows: "DataFrame", by: str, shares: int) -> "DataFrame":
    """Rows that have an id in that column, as parcels."""
    return rows.mapInArrow(partial(pack, by=by, shares=shares), PARCEL)


def gathered(parcels: "DataFrame", shares: int) -> "DataFrame":
    """All parcels of a share in one partition, share by share."""
    from pyspark.sql import functions as F

    tasks = min(shares, max(shares_of(parcels.sparkSession), shares // _AFTER_EACH_OTHER))
    if tasks == shares:
        return parcels.repartitionById(tasks, F.col("share"))
    apart = parcels.repartitionById(tasks, F.col("share") % tasks)
    return apart.sortWithinPartitions("share")


def shares_of(spark: "SparkSession") -> int:
    """As many as the session has partitions of a shuffle."""
    return int(str(spark.conf.get("spark.sql.shuffle.partitions")))


def pack(batches: Iterable[pa.RecordBatch], by: str, shares: int) -> Iterator[pa.RecordBatch]:
    """Rows by the share to which they belong: one of so many, by the id in a column."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield _packed(pa.Table.from_batches(waiting), by, shares)
            waiting, rows = [], 0
    if rows:
        yield _packed(pa.Table.from_batches(waiting), by, shares)


def unpacked(parcels: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of each share; the parcels of a share follow each other."""
    for _, found in groupby(_each(parcels), key=itemgetter(0)):
        yield _together([_read(parcel) for _, parcel in found])


def _each(parcels: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.BinaryScalar]]:
    for batch in parcels:
        yield from zip(batch["share"].to_pylist(), batch["rows"], strict=True)


def _together(found: list[pa.Table]) -> pa.Table:
    if any(table.schema != found[0].schema for table in found):
        found = [_plain(table, 0) for table in found]
    return pa.concat_tables(found).unify_dictionaries()


def _packed(rows: pa.Table, by: str, shares: int) -> pa.RecordBatch:
    share = _shares(rows[by].combine_chunks(), shares)
    order = np.argsort(share, kind="stable")
    rows = _plain(rows.unify_dictionaries().combine_chunks(), _FEW).take(pa.array(order))
    starts = np.flatnonzero(np.diff(share[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    parcels = [_written(rows.slice(a, n)) for a, n in zip(starts, sizes, strict=True)]
    numbers = pa.array(share[order][starts])
    return pa.RecordBatch.from_arrays([numbers, pa.array(parcels, pa.binary())], schema=_PARCEL)


def _shares(ids: pa.Array, shares: int) -> Any:
    """Of each id, text or number, its share."""
    if pa.types.is_integer(ids.type):
        numbers, half = np.asarray(ids).view(np.uint64), np.uint64(32)
        mixed = (numbers ^ (numbers >> half)) * _MIXING >> half
        return (mixed % np.uint64(shares)).astype(np.int32)
    coded = ids.dictionary_encode()
    of_id = (hashed(coded.dictionary) % np.uint64(shares)).astype(np.int32)
    return of_id[coded.indices.to_numpy()]


def _plain(rows: pa.Table, few: int) -> pa.Table:
    """Columns of so many values, or more, as plain texts."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            column = rows[field.name]
            if max((len(chunk.dictionary) for chunk in column.chunks), default=0) >= few:
                rows = rows.set_column(place, field.name, column.cast(field.type.value_type))
    return rows


def _written(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read(parcel: pa.BinaryScalar) -> pa.Table:
    with pa.ipc.open_stream(parcel.as_buffer()) as stream:
        return stream.read_all()
