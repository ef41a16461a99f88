"""Facts of files of events, into files: Spark's tasks read and write them with Arrow."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from postroad.pipeline.daily import Days, attempt, by_day, writing
from postroad.pipeline.facts import packed
from postroad.pipeline.folding import FEW, READ, fold
from postroad.pipeline.keys import KeySet
from postroad.pipeline.later import join_all, table
from postroad.pipeline.naming import PURGED
from postroad.pipeline.parcels import PARCEL, gathered, unpacked
from postroad.pipeline.parcels import parcels as parcels_of
from postroad.pipeline.picking import each_file, opened
from postroad.store.places import Place
from postroad.store.segments import ROW_GROUP

_APART: Final = "apart"


def parcels(
    spark: SparkSession, paths: Sequence[str], shares: int, known: KeySet | None = None
) -> DataFrame:
    """The events of these files as parcels, but for those that tell what is `known`: purged."""
    task = partial(_packed, shares=shares, known=known)
    return each_file(spark, paths, task, PARCEL, tasks=len(paths))


def write(
    parcels: DataFrame, shares: int, place: Place, apart: KeySet | None = None
) -> tuple[list[str], list[str]]:
    """Write the facts of these events below a folder, in daily partitions; the files.

    Those of messages that are to be kept `apart` lie in files of their own, told by themselves.
    """
    task = partial(_written, place=place, mark=uuid.uuid4().hex, apart=apart or KeySet())
    written = gathered(parcels, shares).mapInArrow(task, "file string, apart boolean").collect()
    return [name for name, other in written if not other], [
        name for name, other in written if other
    ]


def join(rows: DataFrame, shares: int, place: Place, never: KeySet) -> tuple[list[str], KeySet]:
    """Write facts that were joined with `later` ones; the files, and which cannot be."""
    task = partial(_joined, place=place, mark=uuid.uuid4().hex, never=never)
    packed = gathered(parcels_of(rows, "message_id", shares), shares)
    found = packed.mapInArrow(task, "file string, key bigint").toArrow()
    return found["file"].drop_null().to_pylist(), KeySet.of(found["key"])


def _packed(file: str, *, shares: int, known: KeySet | None) -> Iterator[pa.RecordBatch]:
    return packed(_events(file, known), shares=shares)


def _events(file: str, known: KeySet | None) -> Iterator[pa.RecordBatch]:
    """Those that name a message."""
    with opened(file, FEW) as reader:
        for batch in reader.iter_batches(ROW_GROUP, columns=list(READ), use_threads=False):
            named = batch.filter(batch["message_id"].is_valid())
            yield named if known is None else _without(named, known)


def _without(batch: pa.RecordBatch, known: KeySet) -> pa.RecordBatch:
    purged = np.flatnonzero(pc.equal(batch["event"], PURGED))
    ids = batch["message_id"].take(pa.array(purged))
    stays = np.ones(batch.num_rows, dtype=bool)
    stays[purged[known.holds(ids)]] = False
    return batch.filter(pa.array(stays))


def _written(
    batches: Iterable[pa.RecordBatch], *, place: Place, mark: str, apart: KeySet
) -> Iterator[pa.RecordBatch]:
    name = f"{mark}-{attempt()}"
    with writing(place, name) as days, writing(Place(place.fs, place.path(_APART)), name) as others:
        for events in unpacked(batches):
            facts = fold(events)
            held = apart.holds(facts["key"].combine_chunks())
            for rows, target in (
                (facts.filter(pa.array(~held)), days),
                (facts.filter(pa.array(held)), others),
            ):
                _add(rows, target)
    for names, other in ((days.names, False), ([f"{_APART}/{one}" for one in others.names], True)):
        flags = pa.array([other] * len(names), pa.bool_())
        yield pa.RecordBatch.from_pydict({"file": pa.array(names, pa.string()), "apart": flags})


def _joined(
    batches: Iterable[pa.RecordBatch], *, place: Place, mark: str, never: KeySet
) -> Iterator[pa.RecordBatch]:
    left: list[int] = []
    with writing(place, f"{mark}-{attempt()}") as days:
        for rows in unpacked(batches):
            excluded = never.holds(rows["key"].combine_chunks())
            left += rows["key"].filter(pa.array(excluded)).to_pylist()
            made = list(join_all(rows.filter(pa.array(~excluded))))
            # Ids of the same key are made anew together.
            again = {before["key"] for row, before in made if row is None}
            left += again
            _add(table(row for row, _ in made if row and row["key"] not in again), days)
    files = pa.array([*days.names, *[None] * len(left)], pa.string())
    numbers = pa.array([*[None] * len(days.names), *left], pa.int64())
    yield pa.RecordBatch.from_pydict({"file": files, "key": numbers})


def _add(facts: pa.Table, days: Days) -> None:
    for date, rows in by_day(facts, "noted_at"):
        for batch in rows.to_batches():
            days.add(date, batch)
