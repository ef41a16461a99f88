"""Rows as messages: what becomes of each column, and how a task submits them.

A message id is made from the row's key, and a node takes what it knows already as a repetition:
a task that is tried again, or a batch that is replayed, sends nothing twice.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from postroad.api.client_values import ApiError, Payload
from postroad.pipeline.source_options import Writing, wrong
from postroad.pipeline.source_reading import ahead
from postroad.pipeline.source_rows import Spool

if TYPE_CHECKING:
    from postroad.api.client import Client

COLUMNS: Final = (
    ("message_id", ("string",), "its id, where it isn't made from `keyColumns`"),
    ("pmode", ("string",), "the P-Mode, where it isn't an option"),
    ("conversation_id", ("string",), "null: as the node makes it"),
    ("ref_to_message_id", ("string",), "the message that this one answers"),
    ("service", ("string",), "null: from the P-Mode"),
    ("action", ("string",), "null: from the P-Mode"),
    ("properties", ("map<string,string>",), "message properties"),
    ("payload", ("binary", "string"), "the payload; null for none"),
    ("media_type", ("string",), "of the payload; null: the option `contentType`"),
    ("file_name", ("string",), "of the payload"),
)
_TYPES: Final = {name: kinds for name, kinds, _ in COLUMNS}
_log = logging.getLogger("postroad.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task did."""

    sent: int
    repeated: int
    """Of these, known to the node from an earlier attempt."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be submitted."""

    message_id: str
    pmode: str
    payload: Payload | None
    size: int
    properties: dict[str, str]
    fields: dict[str, str | None]


@dataclass(frozen=True)
class Sending:
    """How the rows of a frame are sent; travels to the executors."""

    writing: Writing
    columns: tuple[str, ...]

    @classmethod
    def of(cls, writing: Writing, schema: StructType) -> "Sending":
        """Whether options and columns make messages; an error that names what doesn't."""
        columns = {column.name: column.dataType.simpleString() for column in schema}
        for name in writing.key_columns:
            if name not in columns:
                raise _column(f"keyColumns names {name}, and there is no such column")
        if ("pmode" in columns) == (writing.pmode is not None):
            raise _column("give the P-Mode either as a column pmode or as the option pmode")
        if writing.per_partition:
            if "message_id" in columns:
                raise _column("a partition is one message: rows have no message_id of their own")
        else:
            _check_rows(writing, columns)
        return cls(writing, tuple(columns))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """One task."""
        sent = repeated = size = 0
        with self.writing.connection.client() as client:
            outgoing, width = self._rows(batches), self.writing.connection.concurrency
            if self.writing.per_partition:
                outgoing, width = self._of_partition(batches), 1
            for message, was_known in ahead(
                lambda one: (one, _submit(client, one)), outgoing, width
            ):
                sent += 1
                repeated += was_known
                size += message.size
        return Written(sent, repeated, size)

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                for row in batch.slice(start, 100).to_pylist():
                    yield self._outgoing(row)

    def _outgoing(self, row: dict[str, Any]) -> Outgoing:
        pmode = self.writing.pmode or row["pmode"]
        if not pmode:
            raise _row("a row has no pmode")
        payload, size = None, 0
        if row.get("payload") is not None:
            content = row["payload"]
            content = content.encode() if isinstance(content, str) else content
            kind = row.get("media_type") or self.writing.content_type
            payload, size = Payload(content, kind, row.get("file_name")), len(content)
        return Outgoing(
            message_id=self._id_of(row, pmode),
            pmode=pmode,
            payload=payload,
            size=size,
            properties=dict(row.get("properties") or ()),
            fields={
                name: row.get(name)
                for name in ("conversation_id", "ref_to_message_id", "service", "action")
            },
        )

    def _id_of(self, row: dict[str, Any], pmode: str) -> str:
        if not self.writing.key_columns:
            if not row["message_id"]:
                raise _row("a row has no message_id")
            return str(row["message_id"])
        return message_id_of(
            pmode, [(name, row[name]) for name in self.writing.key_columns], self.writing.domain
        )

    def _of_partition(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
        """All rows as one payload, on disk when they are many; nothing for an empty partition."""
        writing = self.writing
        keys: set[tuple[Any, ...]] = set()
        pmodes = {writing.pmode} if writing.pmode else set()
        with Spool(writing.csv, [name for name in self.columns if name != "pmode"]) as spool:
            for batch in batches:
                for row in batch.to_pylist():
                    keys.add(tuple(row[name] for name in writing.key_columns))
                    if writing.pmode is None:
                        pmodes.add(row.pop("pmode"))
                    spool.add(row)
                if len(keys) > 1 or len(pmodes) > 1:
                    raise _row(
                        "a partition is one message, and this one has several keys or P-Modes: "
                        "repartition by them"
                    )
            if not spool.rows:
                return
            (pmode,), (key,) = pmodes, keys
            named = list(zip(writing.key_columns, key, strict=True))
            id_from = named or [("sha256", spool.digest())]
            kind = writing.content_type or ("text/csv" if writing.csv else "application/x-ndjson")
            yield Outgoing(
                message_id_of(str(pmode), id_from, writing.domain),
                str(pmode),
                Payload(spool.file(), kind),
                spool.size,
                {},
                {},
            )


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, sending: Sending) -> None:
        self._sending = sending

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._sending.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _tell("written", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _tell("given up; sent before that", messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sending: Sending) -> None:
        self._sending = sending

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._sending.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _tell(f"batch {batchId} written", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _tell(f"batch {batchId} given up; sent before that", messages)


def message_id_of(pmode: str, key: Sequence[tuple[str, Any]], domain: str) -> str:
    """The id of a message, from the P-Mode and the names and values of a row's key."""
    told = json.dumps([pmode, [[name, *_plain(name, value)] for name, value in key]])
    return f"{sha256(told.encode()).hexdigest()[:40]}@{domain}"


def _plain(name: str, value: Any) -> tuple[str, str]:
    """A value with its kind, so that 1 and "1" are two keys."""
    if value is None:
        raise _row(f"the key column {name} is null")
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return "timestamp", moment.isoformat()
    if isinstance(value, bytes):
        return "binary", value.hex()
    for kind in (bool, int, str, Decimal, date):
        if isinstance(value, kind):
            return kind.__name__, str(value)
    raise _row(f"the key column {name} has values of type {type(value).__name__}, which is no key")


def _submit(client: "Client", message: Outgoing) -> bool:
    """Whether the node knew it already."""
    try:
        return client.send(
            pmode=message.pmode,
            payloads=[message.payload] if message.payload else [],
            message_id=message.message_id,
            properties=message.properties,
            **message.fields,  # type: ignore[arg-type]
        ).repeated
    except ApiError as refused:
        said = f"message {message.message_id} was not taken: {refused}"
        if refused.status == 409:
            said += "; another row had the same key and other content"
        raise PySparkRuntimeError(
            message=said, errorClass="POSTROAD_REFUSED", messageParameters={}
        ) from None


def _check_rows(writing: Writing, columns: dict[str, str]) -> None:
    if ("message_id" in columns) == bool(writing.key_columns):
        raise _column("give message ids either as a column message_id or by the option keyColumns")
    for name, kind in columns.items():
        if name in writing.key_columns and name not in _TYPES:
            continue
        if name not in _TYPES:
            known = ", ".join(_TYPES)
            raise _column(f"there is no place for the column {name} in a message; take {known}")
        if kind not in _TYPES[name]:
            raise _column(f"{name} is of type {' or '.join(_TYPES[name])}, not {kind}")


def _column(said: str) -> Exception:
    return wrong(said, "POSTROAD_COLUMNS")


def _row(said: str) -> PySparkRuntimeError:
    return PySparkRuntimeError(message=said, errorClass="POSTROAD_ROW", messageParameters={})


def _tell(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [one for one in messages if isinstance(one, Written)]
    _log.info(
        "%s: %d messages, %d of them known before, %d bytes",
        what,
        sum(one.sent for one in written),
        sum(one.repeated for one in written),
        sum(one.bytes for one in written),
    )
