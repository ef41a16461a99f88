"""Rows as messages: ids from keys, once and only once, and a clear word where that cannot be."""

import csv
import io
import json
import pickle
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructType,
)
from starlette.types import Receive, Scope, Send

from postroad.pipeline.source_writing import Written, message_id_of
from tests.api.site import LostReplies
from tests.pipeline.inboxes import PMODE, TOKEN, Inbox

ORDERS = [{"number": 1, "payload": "<one/>"}, {"number": 2, "payload": "<two/>"}]
KEY = {"keyColumns": "number", "pmode": PMODE}
TYPES: dict[type, DataType] = {str: StringType(), int: LongType(), bytes: BinaryType()}


def schema_for(row: dict[str, Any]) -> StructType:
    schema = StructType()
    for name, value in row.items():
        text = MapType(StringType(), StringType())
        schema = schema.add(name, TYPES.get(type(value), text))
    return schema


def writer(inbox: Inbox, rows: list[dict[str, Any]], **options: object) -> Any:
    return inbox.source(**options).writer(schema_for(rows[0]), overwrite=False)


def write(inbox: Inbox, rows: list[dict[str, Any]], **options: object) -> Written:
    """One task."""
    return run(writer(inbox, rows, **options), rows)


def run(task: Any, rows: list[dict[str, Any]]) -> Written:
    done = task.write(iter([pa.RecordBatch.from_pylist(rows)]))
    assert isinstance(done, Written)
    return done


def payloads(inbox: Inbox) -> list[bytes]:
    return sorted(one for (one,) in inbox.sent.values())


def test_each_row_is_a_message(inbox: Inbox) -> None:
    assert write(inbox, ORDERS, **KEY) == Written(sent=2, repeated=0, bytes=12)
    assert payloads(inbox) == [b"<one/>", b"<two/>"]


def test_a_task_that_is_tried_again_sends_nothing_twice(inbox: Inbox) -> None:
    write(inbox, ORDERS[:1], **KEY)
    assert write(inbox, ORDERS, **KEY) == Written(sent=2, repeated=1, bytes=12)
    assert payloads(inbox) == [b"<one/>", b"<two/>"]


def test_an_answer_that_is_lost_sends_nothing_twice(inbox: Inbox) -> None:
    lost = LostReplies(inbox.app, 1, lambda scope: bool(scope["method"] == "POST"))
    inbox.serve(lost)
    assert write(inbox, ORDERS, **KEY, retries=1, concurrency=1).repeated == 1
    assert (lost.asked, len(inbox.sent)) == (3, 2)


def test_a_node_that_is_busy_is_asked_again(inbox: Inbox) -> None:
    refused = 0

    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal refused
        if refused:
            return await inbox.app(scope, receive, send)
        refused += 1
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body"})
        return None

    inbox.serve(busy)
    assert write(inbox, ORDERS, **KEY, retries=1, concurrency=1).sent == 2


def test_the_same_key_with_other_content_is_an_error_that_names_the_message(inbox: Inbox) -> None:
    write(inbox, ORDERS, **KEY)
    with pytest.raises(PySparkException, match=r"^\[POSTROAD_REFUSED\] .*other content") as told:
        write(inbox, [{"number": 1, "payload": "<changed/>"}], **KEY)
    assert message_id_of(PMODE, [("number", 1)], "spark.postroad") in str(told.value)


def test_columns_become_what_they_are_called(inbox: Inbox) -> None:
    row = {
        "message_id": "mine@x",
        "pmode": PMODE,
        "conversation_id": "talk",
        "ref_to_message_id": "before@x",
        "service": "urn:s",
        "action": "do",
        "properties": {"a": "1"},
        "payload": b"\x00\x01",
        "media_type": "image/png",
        "file_name": "a.png",
    }
    batch = pa.RecordBatch.from_pylist([row | {"properties": [("a", "1")]}], schema=_arrow(row))
    task: Any = writer(inbox, [row])
    assert task.write(iter([batch])).sent == 1
    message = inbox.service.outgoing("mine@x")
    assert (message.conversation_id, message.ref_to_message_id) == ("talk", "before@x")
    assert (message.service, message.action) == ("urn:s", "do")
    assert message.properties == (("a", "1", None),)
    (part,) = message.parts
    assert (part.media_type, part.file_name, part.size) == ("image/png", "a.png", 2)


def _arrow(row: dict[str, Any]) -> pa.Schema:
    text = pa.map_(pa.string(), pa.string())
    kinds = {str: pa.string(), bytes: pa.binary()}
    return pa.schema([(name, kinds.get(type(value), text)) for name, value in row.items()])


def test_the_media_type_can_be_an_option(inbox: Inbox) -> None:
    write(inbox, ORDERS[:1], **KEY, contentType="application/xml")
    (message_id,) = inbox.sent
    assert inbox.service.outgoing(message_id).parts[0].media_type == "application/xml"


def test_a_row_without_payload_is_a_message_without_any(inbox: Inbox) -> None:
    task: Any = inbox.source(**KEY).writer(schema_for(ORDERS[0]), overwrite=False)
    batch = pa.RecordBatch.from_pylist([{"number": 1, "payload": None}])
    assert task.write(iter([batch])).bytes == 0
    assert list(inbox.sent.values()) == [[]]


def test_an_id_depends_on_the_key_and_the_p_mode_and_nothing_else() -> None:
    assert message_id_of("p", [("n", 1), ("s", "é")], "x") == (
        "f309d7f0d359010a7b3a12163e9727752bb54282@x"
    )


def test_different_keys_make_different_ids() -> None:
    keys: list[list[tuple[str, Any]]] = [
        [("n", 1)], [("n", "1")], [("n", True)], [("m", 1)], [("n", Decimal(1))], [("n", b"1")],
        [("n", date(2026, 1, 1))], [("n", datetime(2026, 1, 1))], [("n", 1), ("m", 1)],
        [("n", datetime(2026, 1, 1, tzinfo=UTC))],
    ]  # fmt: skip
    ids = [message_id_of(pmode, key, "x") for key in keys for pmode in ("p", "q")]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("value", [None, 1.5, [1]])
def test_what_is_no_key_is_told(value: object) -> None:
    with pytest.raises(PySparkException, match="the key column n"):
        message_id_of("p", [("n", value)], "x")


def test_a_partition_is_one_message_of_json_lines(inbox: Inbox) -> None:
    rows = [{"number": 1, "name": "é"}, {"number": 2, "name": "b"}]
    done = write(inbox, rows, pmode=PMODE, messagePer="partition")
    (payload,) = payloads(inbox)
    assert (done.sent, done.bytes) == (1, len(payload))
    assert [json.loads(line) for line in payload.decode().splitlines()] == rows


def test_a_partition_is_one_message_of_csv(inbox: Inbox) -> None:
    rows = [{"number": 1, "name": 'a,"b"'}, {"number": 2, "name": "c\nd"}]
    write(inbox, rows, pmode=PMODE, messagePer="partition", payloadFormat="csv")
    (payload,) = payloads(inbox)
    read = list(csv.DictReader(io.StringIO(payload.decode(), newline="")))
    assert read == [{"number": str(row["number"]), "name": row["name"]} for row in rows]


def test_a_partition_that_is_written_again_is_sent_once(inbox: Inbox) -> None:
    for _ in range(2):
        write(inbox, ORDERS, pmode=PMODE, messagePer="partition")
    assert len(inbox.sent) == 1


def test_the_key_of_a_partition_is_its_id(inbox: Inbox) -> None:
    rows = [{"customer": "c", "total": 1}, {"customer": "c", "total": 2}]
    write(inbox, rows, pmode=PMODE, messagePer="partition", keyColumns="customer")
    assert list(inbox.sent) == [message_id_of(PMODE, [("customer", "c")], "spark.postroad")]


def test_a_partition_with_several_keys_is_an_error(inbox: Inbox) -> None:
    rows = [{"customer": "c", "total": 1}, {"customer": "d", "total": 2}]
    with pytest.raises(PySparkException, match="several keys or P-Modes: repartition"):
        write(inbox, rows, pmode=PMODE, messagePer="partition", keyColumns="customer")


def test_an_empty_partition_sends_nothing(inbox: Inbox) -> None:
    task = writer(inbox, ORDERS, pmode=PMODE, messagePer="partition")
    assert task.write(iter([])) == Written(0, 0, 0)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["message_id", "payload"], {}, "either as a column pmode or as the option pmode"),
        (["message_id", "pmode"], {"pmode": "p"}, "either as a column pmode or as the option"),
        (["payload"], {"pmode": "p"}, "either as a column message_id or by the option keyColumns"),
        (["message_id", "n"], {"pmode": "p", "keyColumns": "n"}, "either as a column message_id"),
        (["payload"], {"pmode": "p", "keyColumns": "n"}, "keyColumns names n, and there is no"),
        (["message_id", "x"], {"pmode": "p"}, "there is no place for the column x in a message"),
        (["message_id"], {"pmode": "p", "messagePer": "partition"}, "a partition is one message"),
    ],
)
def test_columns_that_make_no_message_are_told_by_name(
    inbox: Inbox, columns: Iterable[str], options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as told:
        writer(inbox, [dict.fromkeys(columns, "")], **options)
    assert said in str(told.value)


def test_a_column_of_another_type_is_told(inbox: Inbox) -> None:
    with pytest.raises(PySparkException, match="payload is of type binary or string, not bigint"):
        writer(inbox, [{"message_id": "m", "payload": 1}], pmode="p")


def test_what_was_sent_cannot_be_overwritten(inbox: Inbox) -> None:
    source, schema = inbox.source(**KEY), schema_for(ORDERS[0])
    with pytest.raises(PySparkException, match="write with mode append"):
        source.writer(schema, overwrite=True)
    with pytest.raises(PySparkException, match="write with mode append"):
        source.streamWriter(schema, overwrite=True)


def test_a_writer_travels_to_executors_and_shows_no_token(inbox: Inbox) -> None:
    task = writer(inbox, ORDERS, **KEY)
    assert run(pickle.loads(cloudpickle.dumps(task)), ORDERS).sent == 2
    assert TOKEN not in repr(vars(task))


def test_counts_are_told_at_the_end(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "postroad.spark")
    batch, stream = writer(inbox, ORDERS, **KEY), inbox.source(**KEY).streamWriter
    batch.commit([Written(2, 1, 10), Written(1, 0, 5)])
    stream(schema_for(ORDERS[0]), False).abort([Written(1, 0, 5), None], 7)
    assert caplog.messages == [
        "written: 3 messages, 1 of them known before, 15 bytes",
        "batch 7 given up; sent before that: 1 messages, 0 of them known before, 5 bytes",
    ]
