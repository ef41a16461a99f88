"""Rows picked out of the files of a table, or left out; with Arrow.

Of a file only that is read by which rows are chosen, mostly the keys of an id, and the rest where
one is. So to look for some messages costs little more than what is found of them.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from postroad.pipeline.daily import MANY, attempt, day_of, of_few, writing
from postroad.pipeline.folding import Flags
from postroad.pipeline.keys import KeySet
from postroad.pipeline.parcels import shares_of
from postroad.pipeline.schema import DATE
from postroad.store.places import Place
from postroad.store.segments import ROW_GROUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Task = Callable[[str], Iterator[pa.RecordBatch]]
"""What one file becomes."""
_ALONE: Final = 1
"""Arrow reads texts in structs as numbers and a list of these in one row group only."""
_LONG: Final = 4
"""To begin a task takes longer than to look into a file: so many less than a shuffle has."""


class Choice(Protocol):
    """By what rows are chosen."""

    @property
    def columns(self) -> Sequence[str]:
        """What is read for it; `a.b` is a field of a struct."""
        ...

    def mask(self, rows: Any, day: str | None) -> Flags:
        """Of each row, a batch's or a table's, whether it is; None: the rows are of many days."""
        ...


@dataclass(frozen=True)
class ByKey:
    """Rows with one of these ids, which may be others for each day."""

    by: str
    among: KeySet | Mapping[str, KeySet]

    @property
    def columns(self) -> Sequence[str]:
        return [self.by]

    def mask(self, rows: Any, day: str | None) -> Flags:
        found: Flags = self._of(day).holds(whole(rows[self.by]))
        return found

    def _of(self, day: str | None) -> KeySet:
        if isinstance(self.among, KeySet):
            return self.among
        if day is not None:
            return self.among[day]
        return KeySet.union(keys.numbers for keys in self.among.values())


@dataclass(frozen=True)
class Of:
    """Of the rows that are chosen first, those that are chosen by what is read of them then."""

    first: Choice
    then: Choice

    @property
    def columns(self) -> Sequence[str]:
        return [*self.first.columns, *self.then.columns]

    def mask(self, rows: Any, day: str | None) -> Flags:
        return self.first.mask(rows, day) & self.then.mask(rows, day)


def picked(
    spark: "SparkSession", files: Sequence[str], schema: "StructType", choice: Choice
) -> "DataFrame":
    """The chosen rows of these files, of some columns and their day."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    return each_file(spark, files, partial(_picked, schema=arrow, choice=choice), schema)


def picked_rows(rows: "DataFrame", choice: Choice) -> "DataFrame":
    """The same, of rows that lie in no files of ours."""
    return rows.mapInArrow(partial(_sorted_out, choice=choice, wanted=True), rows.schema)


def whole(column: Any) -> pa.Array:
    """A column of a batch or of a table in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def left_rows(rows: "DataFrame", choice: Choice) -> "DataFrame":
    """Those that are not chosen."""
    return rows.mapInArrow(partial(_sorted_out, choice=choice, wanted=False), rows.schema)


def copy_without(
    spark: "SparkSession", files: Sequence[str], choice: Choice, place: Place, mark: str
) -> dict[str, str | None]:
    """Copies, below a folder, of those files that have chosen rows, without these rows.

    For each file that has some, the copy; None where nothing is left.
    """
    task = partial(_copied, choice=choice, place=place, mark=mark)
    made = each_file(spark, files, task, "file string, copy string")
    return {row[0]: row[1] for row in made.collect()}


def each_file(
    spark: "SparkSession",
    files: Sequence[str],
    task: Task,
    schema: "StructType | str",
    tasks: int | None = None,
) -> "DataFrame":
    """What comes of each file; by default in few tasks."""
    count = max(1, min(len(files), tasks or shares_of(spark) // _LONG))
    shares = [list(files[number::count]) for number in range(count)]
    numbers = spark.range(0, count, 1, count)
    return numbers.mapInArrow(partial(_of_share, shares=shares, task=task), schema)


def _of_share(
    batches: Iterable[pa.RecordBatch], *, shares: list[list[str]], task: Task
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch["id"].to_pylist():
            for file in shares[number]:
                yield from task(file)


@contextmanager
def opened(file: str, few: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """A Parquet file; columns with `few` values are read as numbers and a list of these."""
    fs, name = fsspec.core.url_to_fs(file)
    if isinstance(fs, LocalFileSystem):
        # Arrow reads a file of this machine without Python in between.
        with pq.ParquetFile(name, read_dictionary=list(few)) as reader:
            yield reader
        return
    with fs.open(name, "rb") as source, pq.ParquetFile(source, read_dictionary=list(few)) as reader:
        yield reader


@dataclass(frozen=True)
class Stretch:
    """Rows of a file that are looked at together."""

    reader: pq.ParquetFile
    groups: list[int]

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All columns, or these."""
        names = None if columns is None else list(columns)
        return self.reader.read_row_groups(self.groups, names, use_threads=False)


def stretches(reader: pq.ParquetFile, most: int = ROW_GROUP) -> Iterator[Stretch]:
    """The row groups of a file, small ones together up to so many rows."""
    some: list[int] = []
    rows = 0
    for group in range(reader.num_row_groups):
        count = reader.metadata.row_group(group).num_rows
        if some and rows + count > most:
            yield Stretch(reader, some)
            some, rows = [], 0
        some.append(group)
        rows += count
    if some:
        yield Stretch(reader, some)


def _picked(file: str, *, schema: pa.Schema, choice: Choice) -> Iterator[pa.RecordBatch]:
    columns = list(_leaves(schema))
    texts = (one.name for one in schema if pa.types.is_string(one.type))
    with opened(file, [name for name in texts if name not in {*MANY, DATE}]) as reader:
        for stretch in stretches(reader):
            mask = _mask(stretch, file, choice)
            if mask.any():
                found = stretch.read(columns).filter(pa.array(mask))
                day = pa.array([day_of(file)] * found.num_rows, pa.string())
                dated = found.append_column(DATE, day).select(schema.names)
                # A file was written by Spark, or by Arrow: the same values, other details.
                yield from dated.cast(schema).to_batches()


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """What is read of a file: of structs the fields, and not the day."""
    for one in schema:
        if pa.types.is_struct(one.type):
            yield from (f"{one.name}.{part.name}" for part in one.type)
        elif one.name != DATE:
            yield one.name


def _mask(stretch: Stretch, file: str, choice: Choice) -> Flags:
    if isinstance(choice, Of):
        mask = _mask(stretch, file, choice.first)
        if mask.any():
            rows = stretch.read(choice.then.columns).filter(pa.array(mask))
            mask[mask] = choice.then.mask(rows, day_of(file))
        return mask
    return choice.mask(stretch.read(choice.columns), day_of(file))


def _sorted_out(
    batches: Iterable[pa.RecordBatch], *, choice: Choice, wanted: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pa.array(choice.mask(batch, None) == wanted))


def _copied(file: str, *, choice: Choice, place: Place, mark: str) -> Iterator[pa.RecordBatch]:
    with opened(file) as reader:
        masks = [_mask(stretch, file, choice) for stretch in stretches(reader, _ALONE)]
        few = of_few(reader.schema_arrow)
    if not any(mask.any() for mask in masks):
        return
    with opened(file, few) as reader:
        name = f"{mark}-{attempt()}-{uuid.uuid4().hex[:8]}"
        with writing(place, name) as days:
            for stretch, mask in zip(stretches(reader, _ALONE), masks, strict=True):
                for batch in stretch.read().filter(pa.array(~mask)).to_batches(ROW_GROUP):
                    days.add(day_of(file), batch)
    copy = days.names[0] if days.names else None
    yield pa.RecordBatch.from_pydict(
        {"file": pa.array([file]), "copy": pa.array([copy], pa.string())}
    )
