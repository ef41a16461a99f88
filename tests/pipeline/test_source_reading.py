"""Messages as rows: what is in them, what fits, and what is too large."""

import pickle
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition, LessThanOrEqual
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from postroad.node.service import Service
from postroad.pipeline import source_reading, source_writing
from postroad.pipeline.source_offsets import DataLoss
from postroad.pipeline.source_options import OPTIONS, reading_of
from postroad.pipeline.source_reading import charset_of, schema_of
from tests.api.world import Faulty
from tests.conftest import PROJECT
from tests.pipeline.inboxes import TOKEN, Inbox, cursors, rows_of


def test_a_row_says_what_the_message_says(inbox: Inbox) -> None:
    inbox.deliver("<a/>", conversation_id="talk", properties=(("p", "1", None), ("p", "2", None)))
    (row,) = inbox.rows(includeMetadata="true")
    assert (row["cursor"], row["message_id"], row["from_party"]) == (1, "1@seller", "seller")
    assert (row["conversation_id"], row["bytes"]) == ("talk", 4)
    assert row["properties"] == [("p", "1")]
    (part,) = row["parts"]
    assert (part["number"], part["media_type"], part["size"]) == (1, "application/xml", 4)
    assert "payload" not in part
    assert (row["source"]["node"], row["source"]["state"]) == ("n1", "delivered")


def test_payloads_come_as_bytes_or_as_text(inbox: Inbox) -> None:
    inbox.deliver("ü")
    assert inbox.rows(payload="binary")[0]["parts"][0]["payload"] == "ü".encode()
    assert inbox.rows(payload="text")[0]["parts"][0]["payload"] == "ü"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("text/plain; charset=iso-8859-1", "ü".encode("latin-1")),
        ("application/xml; charset=UTF-8", b"\xef\xbb\xbf" + "ü".encode()),
        ("application/xml", "ü".encode("utf-16")),
        ("application/xml", "ü".encode()),
    ],
)
def test_text_is_read_in_the_charset_that_is_said_or_marked(kind: str, data: bytes) -> None:
    assert data.decode(charset_of(kind, data)) == "ü"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("application/xml", b"\xff\xff\xff"),
        ("text/plain; charset=klingon", b"x"),
        ("text/plain; charset=utf-7", b"+2AA-"),
        ("text/plain; charset=unicode_escape", rb"\ud800"),
    ],
)
def test_a_payload_that_is_no_text_is_null_with_the_reason(
    inbox: Inbox, kind: str, data: bytes
) -> None:
    inbox.deliver("before")
    inbox.deliver(data, kind=kind)
    inbox.deliver("after")
    parts = [part for row in inbox.rows(payload="text") for part in row["parts"]]
    assert [one["payload"] for one in parts] == ["before", None, "after"]
    assert [one["payload_error"] is None for one in parts] == [True, False, True]
    assert "is no text in" in parts[1]["payload_error"]


def test_a_payload_that_is_no_text_can_be_an_error_that_names_the_message(inbox: Inbox) -> None:
    inbox.deliver(b"\xff\xff\xff")
    with pytest.raises(PySparkException, match=r"payload 1 of 1@seller .*payload=binary"):
        inbox.rows(payload="text", binaryPayload="error")


def test_a_schema_of_before_without_the_reason_is_still_taken(inbox: Inbox) -> None:
    inbox.deliver(b"\xff")
    parts = schema_of(reading_of({**inbox.options, "payload": "text"}))["parts"].dataType
    assert isinstance(parts, ArrayType)
    assert isinstance(parts.elementType, StructType)
    older = StructType([one for one in parts.elementType if one.name != "payload_error"])
    reader = inbox.reader(StructType().add("parts", ArrayType(older)), payload="text")
    ((part,),) = [row["parts"] for row in rows_of(reader)]
    assert part["payload"] is None
    assert "payload_error" not in part


def test_a_payload_beyond_the_limit_is_an_error_that_names_the_option(inbox: Inbox) -> None:
    inbox.deliver("12345")
    with pytest.raises(PySparkException, match="has 5 bytes, more than maxPayloadBytes"):
        inbox.rows(payload="binary", maxPayloadBytes=4)
    (row,) = inbox.rows(payload="binary", maxPayloadBytes=4, largePayload="null")
    assert row["parts"][0]["payload"] is None
    assert "5 bytes, more than maxPayloadBytes (4)" in row["parts"][0]["payload_error"]


def test_rows_come_in_batches_of_bounded_size(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reading, "_BYTES", 8)
    inbox.deliver("1234", "1234", "12345678", "1")
    reader = inbox.reader(payload="binary")
    (partition,) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(partition)] == [2, 1, 1]


def test_all_pages_of_a_stretch_are_read(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_reading, "_PAGE", 2)
    inbox.deliver(*"12345")
    assert cursors(inbox.rows(payload="text", concurrency=2)) == [1, 2, 3, 4, 5]


def test_a_batch_reads_between_two_cursors(inbox: Inbox) -> None:
    inbox.deliver(*"12345")
    between = {"startingOffsets": '{"cursor": 1}', "endingOffsets": '{"cursor": 3}'}
    assert cursors(inbox.rows(**between)) == [2, 3]


def test_a_batch_leaves_out_what_was_acknowledged_when_asked_to(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    inbox.site.run(inbox.service.acknowledge("1@seller"))
    assert cursors(inbox.rows()) == [1, 2]
    assert cursors(inbox.rows(includeAcknowledged="false")) == [2]


@pytest.mark.parametrize(
    "fitting",
    [{"pmode": "buyer-to-seller-order"}, {"from": "seller", "to": "buyer"}, {"action": "submit"}],
)
def test_the_node_filters(inbox: Inbox, fitting: dict[str, str]) -> None:
    inbox.deliver("1")
    assert len(inbox.rows(**fitting)) == 1
    assert inbox.rows(**dict.fromkeys(fitting, "another")) == []


def test_filters_that_the_node_can_apply_are_taken_and_the_rest_is_given_back(
    inbox: Inbox,
) -> None:
    inbox.deliver(*"123")
    inbox.deliver("4", conversation_id="mine", message_id="m@x")
    inbox.deliver("5", conversation_id="mine", message_id="n@x")
    reader: Any = inbox.reader(pushFilters="true")
    left = EqualTo(("message_id",), "m@x")
    given = [
        EqualTo(("conversation_id",), "mine"),
        GreaterThan(("cursor",), 2),
        left,
        LessThanOrEqual(("cursor",), 4),
    ]
    (returned,) = reader.pushFilters(given)
    assert returned is left
    assert cursors(rows_of(reader)) == [4]


def test_a_filter_that_contradicts_an_option_is_left_to_spark(inbox: Inbox) -> None:
    reader: Any = inbox.reader(pushFilters="true", pmode="a")
    contrary = EqualTo(("pmode",), "b")
    assert reader.pushFilters([contrary]) == [contrary]


def test_without_the_option_a_reader_takes_no_filters(inbox: Inbox) -> None:
    """Spark refuses to read where it is not allowed to push and a reader would take filters."""
    assert "pushFilters" not in vars(type(inbox.reader()))


def test_columns_can_be_left_out(inbox: Inbox) -> None:
    inbox.deliver("1")
    schema = StructType().add("message_id", StringType()).add("cursor", LongType())
    assert rows_of(inbox.reader(schema)) == [{"message_id": "1@seller", "cursor": 1}]


def test_a_column_that_does_not_exist_is_named(inbox: Inbox) -> None:
    with pytest.raises(PySparkException, match="there is no column total string"):
        inbox.reader(StructType().add("total", StringType()))


def test_a_message_that_is_removed_while_it_is_read_is_an_error(inbox: Inbox) -> None:
    inbox.deliver("1")

    async def nothing(*asked: object) -> None:
        return None

    service: Service = Faulty(inbox.service, message=nothing)  # type: ignore[assignment]
    inbox.instead(service)
    with pytest.raises(DataLoss, match="message 1@seller was removed while it was read"):
        inbox.rows(payload="binary")
    assert inbox.rows(payload="binary", failOnDataLoss="false") == []


def test_a_batch_from_a_cursor_misses_nothing_silently(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    inbox.purge()
    inbox.deliver("3")
    assert cursors(inbox.rows()) == [3]
    with pytest.raises(DataLoss, match="up to cursor 2"):
        inbox.rows(startingOffsets='{"cursor": 1}')


def test_an_empty_inbox_has_no_rows(inbox: Inbox) -> None:
    reader = inbox.reader()
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "x"}, "there is no option topic; there are url, token"),
        ({"payload": "xml"}, "payload is none or binary or text, not 'xml'"),
        ({"startingOffsets": "latest"}, "startingOffsets is earliest or"),
        ({"startingOffsets": '{"offset": 1}'}, 'or {"cursor": 4711}, not'),
        ({"endingOffsets": "earliest"}, "endingOffsets is latest or"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is a time like"),
        ({"startingTimestamp": "2026-01-01", "startingOffsets": "earliest"}, "exclude each other"),
        ({"maxMessagesPerTrigger": "5"}, "maxMessagesPerTrigger is an option of readStream only"),
        ({"keyColumns": "a"}, "keyColumns is an option of write and writeStream only"),
        ({"concurrency": "0"}, "concurrency is a whole number of at least 1, not '0'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not 'maybe'"),
        ({"url": "postgres://x"}, "url is the address of a node"),
        ({"tokenFile": "/nowhere", "token": ""}, "tokenFile /nowhere cannot be read"),
        ({"tokenFile": "/nowhere"}, "token and tokenFile exclude each other"),
    ],
)
def test_a_wrong_option_is_told_by_its_name(
    inbox: Inbox, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as told:
        inbox.reader(StructType(), **options)
    assert said in str(told.value)
    assert str(told.value).startswith("[POSTROAD_OPTION]")


def test_options_for_batches_only_are_told_by_name(inbox: Inbox) -> None:
    with pytest.raises(PySparkException, match="endingOffsets is an option of read only"):
        inbox.stream(endingOffsets="latest")


def test_an_address_can_stand_where_others_have_a_path(inbox: Inbox) -> None:
    given = {"path": inbox.site.url, "TOKENFILE": ""}
    assert reading_of(given, "read").connection.url == inbox.site.url


def test_options_and_columns_stand_in_the_page_as_they_are() -> None:
    page = (PROJECT / "docs" / "spark.md").read_text(encoding="utf-8")
    for option in OPTIONS:
        ways = "all" if len(option.ways) == 4 else ", ".join(option.ways)
        assert f"| `{option.name}` | {ways} | {option.default} | {option.meaning} |" in page
    for name, kind, meaning in source_reading.COLUMNS:
        assert f"| `{name}` | {kind} | {meaning} |" in page
    for name, kinds, meaning in source_writing.COLUMNS:
        assert f"| `{name}` | {' or '.join(kinds)} | {meaning} |" in page


def test_what_travels_to_executors_can_be_pickled_and_shows_no_token(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader = pickle.loads(cloudpickle.dumps(inbox.reader()))
    assert cursors(rows_of(reader)) == [1]
    assert TOKEN not in repr(vars(reader))
    assert TOKEN not in repr(reader.partitions())
