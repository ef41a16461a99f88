"""Facts: all that the events of a message say, in one row. The tables are made of these."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroad.pipeline.folding import READ, TIME, fold
from postroad.pipeline.parcels import PARCEL, gathered, pack, shares_of, unpacked
from postroad.store.journal_columns import RECEIVING, SENDING

_SIDE: Final = """
    kind: string, party: string, from_party: string, to_party: string, service: string,
    action: string, conversation_id: string, pmode: string, protocol: string, bytes: bigint,
    several: boolean
"""
_FOLDED: Final = {
    "message_id": "string",
    "kind": "string",
    "conversation_id": "string",
    "ref_to_message_id": "string",
    "from_party": "string",
    "to_party": "string",
    "sequence_number": "bigint",
    "out_of_order": "bigint",
    "noted_at": "timestamp",
    "until_at": "timestamp",
    "first_at": "timestamp",
    "last_at": "timestamp",
    SENDING: f"""struct<{_SIDE},
        submitted_at: timestamp, first_sent_at: timestamp, last_sent_at: timestamp,
        acknowledged_at: timestamp, failed_at: timestamp, attempts: bigint, transmitted: boolean,
        errors: bigint, refused: boolean, delivery_failed: boolean, expired: boolean,
        in_doubt: boolean, settled: string, settled_by: string, wire_bytes: bigint,
        own_envelope: boolean>""",
    RECEIVING: f"""struct<{_SIDE},
        received_at: timestamp, delivered_at: timestamp, acknowledged_at: timestamp,
        failed_at: timestamp, duplicates: bigint, deliveries: bigint, errors: bigint>""",
    "envelopes": "array<string>",
    "troubles": "array<struct<side: string, hour: timestamp, duplicates: bigint, errors: bigint>>",
    "hops": """array<struct<node: string, party: string, arrived_at: timestamp,
        left_at: timestamp, next: string>>""",
}
COLUMNS: Final = {**_FOLDED, "key": "bigint", "conversation_key": "bigint", "ref_key": "bigint"}
"""What facts are, by name and Spark type."""
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def facts(events: DataFrame) -> DataFrame:
    """One row for each message that the events name: `SCHEMA`."""
    shares = shares_of(events.sparkSession)
    return gathered(of_events(events, shares), shares).mapInArrow(_folded, SCHEMA)


def of_events(events: DataFrame, shares: int) -> DataFrame:
    """Events as parcels by their message."""
    named = events.where("message_id IS NOT NULL").select(*READ)
    return named.mapInArrow(partial(packed, shares=shares), PARCEL)


def packed(batches: Iterable[pa.RecordBatch], *, shares: int) -> Iterator[pa.RecordBatch]:
    yield from pack(map(_slim, batches), "message_id", shares)


_LOOKED_AT: Final = {
    "envelope": ("sent", "resent"),
    "peer": ("settled", "forwarded"),
    "detail": ("settled",),
}
"""The events of which the fold reads long texts."""


def _slim(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Long texts are left out where nobody looks at them, times are in UTC whoever read them."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["at"] = columns["at"].cast(TIME)
    for name, events in _LOOKED_AT.items():
        there = pc.is_in(columns["event"], value_set=pa.array(events))
        columns[name] = pc.if_else(there, columns[name], pa.scalar(None, pa.string()))
    some = columns["signal_id"].is_valid()
    columns["signal_id"] = pc.if_else(some, pa.scalar(""), pa.scalar(None, pa.string()))
    return pa.RecordBatch.from_pydict(columns)


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for events in unpacked(batches):
        yield from fold(events).to_batches()


def key(name: str) -> Column:
    """An id as a number: quicker to look up. What has another number is another."""
    return F.when(F.col(name).isNotNull(), F.xxhash64(name))


def day(time: Column) -> Column:
    """The day of a time, in UTC whatever the session's zone is."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / 86400).cast("int"))
