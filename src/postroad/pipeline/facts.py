"""Facts: all that the events of a message say, in one row. The tables are made of these."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroad.pipeline.folding import READ, fold
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
_KEYS: Final = {
    "key": "message_id",
    "conversation_key": "conversation_id",
    "ref_key": "ref_to_message_id",
}
COLUMNS: Final = {**_FOLDED, **dict.fromkeys(_KEYS, "bigint")}
"""What facts are, by name and Spark type."""
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def facts(events: DataFrame, partitions: int | None = None) -> DataFrame:
    """One row for each message that the events name: `SCHEMA`.

    The events of each message are brought together, in so many partitions, and folded there. A
    partition is held in memory as a whole.
    """
    named = events.where("message_id IS NOT NULL").select(*map(_slim, READ))
    where = ("message_id",) if partitions is None else (partitions, "message_id")
    together = named.repartition(*where)
    folded = together.mapInArrow(_folded, ", ".join(f"{n} {kind}" for n, kind in _FOLDED.items()))
    return folded.select(*_FOLDED, *(key(of).alias(name) for name, of in _KEYS.items()))


_SLIM: Final = {
    "signal_id": "CASE WHEN signal_id IS NOT NULL THEN '' END",
    "envelope": "CASE WHEN event IN ('sent', 'resent') THEN envelope END",
    "peer": "CASE WHEN event IN ('settled', 'forwarded') THEN peer END",
    "detail": "CASE WHEN event = 'settled' THEN detail END",
}
"""Long texts that the fold looks at only here: elsewhere they need not travel."""


def _slim(name: str) -> Column:
    return F.expr(_SLIM.get(name, name)).alias(name)


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if rows := list(batches):
        yield from fold(pa.Table.from_batches(rows)).to_batches()


def key(name: str) -> Column:
    """An id as a number: quicker to look up. What has another number is another."""
    return F.when(F.col(name).isNotNull(), F.xxhash64(name))


def hour(time: Column) -> Column:
    """The hour of a time, in UTC whatever the session's zone is."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(time) / 3600) * 3600)


def day(time: Column) -> Column:
    """The day of a time, in UTC whatever the session's zone is."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / 86400).cast("int"))
