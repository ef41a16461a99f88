"""Messages of an inbox as rows: the schema, and how a stretch of the inbox is read."""

import codecs
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from email.message import Message as Headers
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from postroad.api.client_values import ApiError, Message, Part, Property
from postroad.pipeline.source_offsets import DataLoss, Stretch, check_purged
from postroad.pipeline.source_options import Reading, wrong

if TYPE_CHECKING:
    from postroad.api.client import Client

COLUMNS: Final = (
    ("cursor", "bigint", "its place in the inbox; grows in the order of delivery"),
    ("message_id", "string", "its id"),
    ("received_at", "timestamp", "when it came"),
    ("pmode", "string", "the agreement"),
    ("protocol", "string", "as4, ebms3, ebxml-0.98b, …"),
    ("from_party", "string", "who sends it"),
    ("to_party", "string", "for whom it is"),
    ("from_role", "string", "the sender's role"),
    ("to_role", "string", "the receiver's role"),
    ("service", "string", "of the message"),
    ("action", "string", "of the message"),
    ("mpc", "string", "the channel"),
    ("agreement", "string", "the agreement that the message names"),
    ("conversation_id", "string", "of the message"),
    ("ref_to_message_id", "string", "the message that this one answers"),
    ("properties", "map<string,string>", "message properties; of equal names the first"),
    ("bytes", "bigint", "of all payloads"),
)
_TEXT: Final = StringType()
_MAP: Final = MapType(_TEXT, _TEXT)
_TYPES: Final[dict[str, DataType]] = {
    "string": _TEXT,
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": _MAP,
}
_PAYLOADS: Final[dict[str, DataType]] = {"binary": BinaryType(), "text": _TEXT}
_SOURCE: Final = (
    StructType()
    .add("node", _TEXT)
    .add("state", _TEXT)
    .add("wire_bytes", LongType())
    .add("peer", _TEXT)
    .add("updated_at", TimestampType())
)
_ERROR: Final = "payload_error"
_PAGE: Final = 500
_ROWS: Final = 1000
_BYTES: Final = 8 * 1024 * 1024
"""A batch of rows is full with so many rows or payload bytes."""

T = TypeVar("T")
U = TypeVar("U")


def schema_of(reading: Reading) -> StructType:
    """The columns that the options ask for; made by hand, since DDL is read by a session only."""
    part = (
        StructType()
        .add("number", IntegerType())
        .add("content_id", _TEXT)
        .add("media_type", _TEXT)
        .add("size", LongType())
        .add("sha256", _TEXT)
        .add("file_name", _TEXT)
        .add("properties", _MAP)
    )
    if reading.payload != "none":
        part = part.add("payload", _PAYLOADS[reading.payload]).add(_ERROR, _TEXT)
    schema = StructType()
    for name, kind, _ in COLUMNS:
        schema = schema.add(name, _TYPES[kind])
    schema = schema.add("parts", ArrayType(part))
    return schema.add("source", _SOURCE) if reading.metadata else schema


def check_schema(schema: StructType, reading: Reading) -> None:
    """A schema of one's own may leave columns out, and `payload_error`, and nothing else."""
    ours = schema_of(reading)
    types = {column.name: column.dataType for column in ours}
    for column in schema:
        if column.dataType not in (types.get(column.name), _without_errors(types, column.name)):
            raise wrong(
                f"there is no column {column.name} {column.dataType.simpleString()}; the columns "
                f"are {ours.simpleString()}",
                "POSTROAD_COLUMNS",
            )


def _without_errors(types: Mapping[str, DataType], name: str) -> DataType | None:
    """The type of a column as it was before parts told why a payload is missing."""
    kind = types.get(name)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return kind
    return ArrayType(StructType([one for one in kind.elementType if one.name != _ERROR]))


def read_stretch(
    reading: Reading, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """One task: the messages of its stretch, in batches of bounded size."""
    if not isinstance(partition, Stretch):
        return
    arrow = to_arrow_schema(schema, timezone="UTC")
    node = ""
    with reading.connection.client() as client:
        if reading.metadata:
            node = client.inbox_extent().node
        found = listed(client, reading, partition.after, partition.through)
        rows: Iterable[dict[str, Any] | None]
        if reading.payload == "none":
            rows = (_row(message, _parts(message), node) for message in found)
        else:
            rows = ahead(
                lambda message: _whole(client, reading, message, node),
                found,
                reading.connection.concurrency,
            )
        for rows_of_batch in _batches(row for row in rows if row is not None):
            # Columns that the schema leaves out are left out here.
            yield pa.RecordBatch.from_pylist(rows_of_batch, schema=arrow)
        # Afterwards: what is removed while the stretch is read would be missing.
        if partition.floor is not None:
            _check(client, partition, partition.floor)


def listed(client: "Client", reading: Reading, after: int, through: int) -> Iterator[Message]:
    """The messages after one cursor up to another that fit, in order."""
    return client.inbox(
        consumed=reading.acknowledged_too,
        cursor=str(after),
        through=str(through),
        limit=_PAGE,
        **reading.filters,
    )


def ahead(do: Callable[[T], U], items: Iterable[T], width: int) -> Iterator[U]:
    """What is done to each item, in order, with so many under way at a time."""
    with ThreadPoolExecutor(width) as threads:
        waiting: deque[Future[U]] = deque()
        items = iter(items)
        try:
            waiting.extend(threads.submit(do, item) for item in islice(items, width))
            while waiting:
                done = waiting.popleft().result()
                waiting.extend(threads.submit(do, item) for item in islice(items, 1))
                yield done
        finally:
            for future in waiting:
                future.cancel()


def _check(client: "Client", stretch: Stretch, floor: int) -> None:
    extent = client.inbox_extent()
    if extent.epoch != stretch.epoch:
        raise DataLoss(f"the database of {extent.node} was restored while the inbox was read")
    check_purged(extent, floor)


def _whole(
    client: "Client", reading: Reading, message: Message, node: str
) -> dict[str, Any] | None:
    """A message with its payloads; None when it was removed meanwhile and that is no error."""
    try:
        payloads = [_payload(client, reading, message, part) for part in message.parts]
    except ApiError as refused:
        if refused.status != 404:
            raise
        if reading.fail_on_data_loss:
            raise DataLoss(f"message {message.message_id} was removed while it was read") from None
        return None
    return _row(message, _parts(message, payloads), node)


_Payload = tuple[bytes | str | None, str | None]
"""The payload of a part, or why it is null."""


def _payload(client: "Client", reading: Reading, message: Message, part: Part) -> _Payload:
    about = f"payload {part.number} of {message.message_id}"
    if part.size > reading.largest_payload:
        said = f"{part.size} bytes, more than maxPayloadBytes ({reading.largest_payload})"
        if reading.large_is_error:
            raise PySparkRuntimeError(
                message=f"{about} has {said}: give a larger limit, or largePayload=null",
                errorClass="POSTROAD_LARGE_PAYLOAD",
                messageParameters={},
            )
        return None, f"it has {said}"
    data = client.part(message.message_id, part.number, cursor=message.cursor)
    if reading.payload == "binary":
        return data, None
    charset = charset_of(part.media_type, data)
    try:
        text = data.decode(charset)
        # Some charsets can say what no string of Spark holds.
        text.encode()
        return text, None
    except (LookupError, ValueError):
        said = f"({part.media_type}) is no text in {charset}: read it with payload=binary"
    if not reading.binary_is_error:
        return None, f"it {said}"
    raise PySparkRuntimeError(
        message=f"{about} {said}, or give binaryPayload=null",
        errorClass="POSTROAD_NOT_TEXT",
        messageParameters={},
    )


def charset_of(media_type: str, data: bytes) -> str:
    """What the media type says, else the mark at the beginning, else UTF-8."""
    headers = Headers()
    headers["Content-Type"] = media_type
    if said := headers.get_content_charset():
        return "utf-8-sig" if said == "utf-8" else said
    marked = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if marked else "utf-8-sig"


def _row(message: Message, parts: list[dict[str, Any]], node: str) -> dict[str, Any]:
    plain = {name: getattr(message, name, None) for name, _, _ in COLUMNS}
    return plain | {
        "cursor": int(message.cursor),
        "received_at": message.created_at,
        "properties": _pairs(message.properties),
        "parts": parts,
        "source": {
            "node": node,
            "state": message.state,
            "wire_bytes": message.wire_bytes,
            "peer": message.peer,
            "updated_at": message.updated_at,
        },
    }


def _parts(message: Message, payloads: list[_Payload] | None = None) -> list[Any]:
    return [
        {
            "number": part.number,
            "content_id": part.content_id,
            "media_type": part.media_type,
            "size": part.size,
            "sha256": part.sha256,
            "file_name": part.file_name,
            "properties": _pairs(part.properties),
            "payload": payloads[at][0] if payloads else None,
            _ERROR: payloads[at][1] if payloads else None,
        }
        for at, part in enumerate(message.parts)
    ]


def _pairs(properties: Iterable[Property]) -> list[tuple[str, str]]:
    first: dict[str, str] = {}
    for one in properties:
        first.setdefault(one.name, one.value)
    return list(first.items())


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(part["payload"] or "") for part in row["parts"])
        if len(batch) >= _ROWS or size >= _BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
