"""Rows on their way into Parquet files, one for each day."""

from collections.abc import Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.pipeline.schema import DATE
from postroad.pipeline.times import day
from postroad.store.places import Place
from postroad.store.segments import ROW_GROUP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DAY: Final = 86_400_000_000
_OPEN: Final = 120
"""So many days are written side by side."""
_WAITING: Final = 2 * ROW_GROUP
"""So many rows of all days wait at most."""
MANY: Final = frozenset({"message_id", "conversation_id", "ref_to_message_id", "detail", "subject"})
"""Texts that have many values where a row is one of a message."""


def of_few(schema: pa.Schema, many: Set[str] = MANY) -> list[str]:
    """The columns of texts but for these, as Parquet names them."""
    names = (name for one in schema for name in _texts(one.name, one.type))
    return [name for name in names if many.isdisjoint(name.split("."))]


def _texts(name: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for one in kind:
            yield from _texts(f"{name}.{one.name}", one.type)
    elif pa.types.is_list(kind):
        yield from _texts(f"{name}.list.element", kind.value_type)
    elif pa.types.is_string(kind) or pa.types.is_dictionary(kind):
        yield name


def by_day(rows: Any, column: str) -> Iterator[tuple[str, Any]]:
    """The rows of each day of a time, be they a batch or a table."""
    days = np.asarray(rows[column].cast(pa.int64())) // _DAY
    for number in np.unique(days):
        mine = days == number
        yield day(int(number) * _DAY), rows if mine.all() else rows.filter(pa.array(mine))


def write(rows: "DataFrame", place: Place, mark: str) -> list[str]:
    """Write rows, each under its `date`, from where Spark has them; the files."""
    written = rows.mapInArrow(partial(_written, place=place, mark=mark), "file string")
    return [row[0] for row in written.collect()]


def _written(
    batches: Iterable[pa.RecordBatch], *, place: Place, mark: str
) -> Iterator[pa.RecordBatch]:
    with writing(place, f"{mark}-{attempt()}") as days:
        for batch in batches:
            dates = batch[DATE].dictionary_encode()
            rows = batch.drop_columns([DATE])
            for number, date in enumerate(dates.dictionary.to_pylist()):
                mine = pa.array(np.asarray(dates.indices) == number)
                days.add(date, rows if len(dates.dictionary) == 1 else rows.filter(mine))
    yield files(days.names)


def day_of(file: str) -> str:
    """The day under which a file lies."""
    return file.rsplit("/", 2)[-2].removeprefix(f"{DATE}=")


def attempt() -> int:
    """The number of this attempt to do some task of Spark: no other has the same."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.taskAttemptId())


def files(names: list[str]) -> pa.RecordBatch:
    """What a task that wrote files tells Spark."""
    return pa.RecordBatch.from_pydict({"file": pa.array(names, pa.string())})


@contextmanager
def writing(place: Place, mark: str, *, many: Set[str] = MANY) -> "Iterator[Days]":
    """Files that are there when all is done, and after an error not; no other may have the mark.

    Texts other than `many` are written as numbers and a list of these.
    """
    with ExitStack() as opened:
        days = Days(place, mark, opened, many)
        yield days
        days.flush()


class Days:
    """The files of some days below a folder. What is added waits until it makes a row group."""

    def __init__(self, place: Place, mark: str, opened: ExitStack, many: Set[str] = MANY) -> None:
        self.names: list[str] = []
        self._many = many
        self._place = place
        self._mark = mark
        self._opened = opened
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._rows = 0

    def add(self, date: str, rows: pa.RecordBatch) -> None:
        self._waiting.setdefault(date, []).append(rows)
        self._rows += rows.num_rows
        if self._rows >= _WAITING:
            self.flush()

    def flush(self) -> None:
        for date, batches in self._waiting.items():
            rows = pa.Table.from_batches(batches)
            self._writer(date, rows.schema).write_table(rows, ROW_GROUP)
        self._waiting, self._rows = {}, 0

    def _writer(self, date: str, schema: pa.Schema) -> pq.ParquetWriter:
        if date not in self._writers:
            if len(self._writers) == _OPEN:
                self._opened.close()
                self._writers = {}
            name = f"{DATE}={date}/part-{self._mark}-{len(self.names)}.parquet"
            file = self._opened.enter_context(self._place.writing(name))
            # Texts are read back as such, also where they came as numbers and a list of these.
            few = of_few(schema, self._many)
            writer = pq.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=few, store_schema=False
            )
            self._writers[date] = self._opened.enter_context(writer)
            self.names.append(name)
        return self._writers[date]
