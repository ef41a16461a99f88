"""The data source as Spark runs it: found by its name, exactly once, with a checkpoint."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from tests.pipeline.inboxes import PMODE, Inbox


def finished(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(60)
    assert query.exception() is None
    return query


def forget(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before it noted that a batch was done."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()


def test_payloads_are_parsed_with_spark_itself(spark: SparkSession, inbox: Inbox) -> None:
    inbox.deliver("<order><number>1</number></order>", kind="application/xml")
    inbox.deliver('{"number": 2}', kind="application/json")
    inbox.deliver("3,three", kind="text/csv")
    read = spark.read.format("postroad").options(**inbox.options)
    messages = read.option("payload", "text").option("minPartitions", 2).load()
    text, kind = F.col("parts")[0]["payload"], F.col("parts")[0]["media_type"]
    number = (
        F.when(kind == "application/xml", F.from_xml(text, "number int")["number"])
        .when(kind == "application/json", F.from_json(text, "number int")["number"])
        .otherwise(F.from_csv(text, "number int, name string")["number"])
    )
    rows = messages.select("message_id", number.alias("number")).orderBy("cursor").collect()
    assert [(row.message_id, row.number) for row in rows] == [
        ("1@seller", 1),
        ("2@seller", 2),
        ("3@seller", 3),
    ]


def test_a_wrong_option_is_told_at_load(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"\[POSTROAD_OPTION\] there is no option topic"):
        spark.read.format("postroad").option("topic", "x").option("url", "http://x").load()


def test_an_error_is_told_without_a_traceback(spark: SparkSession, inbox: Inbox) -> None:
    def told(**options: str) -> str:
        with pytest.raises(PySparkException) as error:
            spark.read.format("postroad").options(**options).load().collect()
        return str(error.value)

    right = inbox.options
    wrong_token = {**right, "token": "wrong", "retries": "0"}
    for said, name in (
        (told(**right, topic="x"), "[POSTROAD_OPTION]"),
        (told(**right, payload="words"), "[POSTROAD_OPTION]"),
        (told(**wrong_token), "[POSTROAD_NODE]"),
    ):
        assert name in said
        assert "Traceback" not in said
        assert 'File "' not in said


def test_a_stream_goes_on_where_its_checkpoint_is_and_replays_what_was_not_committed(
    spark: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    batches: list[tuple[int, list[int]]] = []

    def take(frame: DataFrame, batch: int) -> None:
        batches.append((batch, sorted(row.cursor for row in frame.select("cursor").collect())))

    def run() -> StreamingQuery:
        read = spark.readStream.format("postroad").options(**inbox.options)
        read = read.option("startingOffsets", "earliest").option("maxMessagesPerTrigger", 2)
        write = read.load().writeStream.foreachBatch(take)
        write = write.option("checkpointLocation", str(tmp_path))
        return finished(write.trigger(availableNow=True).start())

    inbox.deliver("1", "2", "3")
    query = run()
    assert batches == [(0, [1, 2]), (1, [3])]
    assert inbox.waiting == [3]
    (source,) = query.recentProgress[0].sources
    assert '"cursor": 2' in source.endOffset
    assert '"cursor": 3' in str(source.latestOffset)
    batches.clear()
    forget(tmp_path, 1)
    inbox.deliver("4")
    run()
    assert batches == [(1, [3]), (2, [4])]
    assert inbox.waiting == [4]


def test_a_batch_that_is_replayed_sends_nothing_twice(
    spark: SparkSession, inbox: Inbox, tmp_path: Path
) -> None:
    inbox.deliver("1", "2")

    def run() -> None:
        read = spark.readStream.format("postroad").options(**inbox.options)
        orders = read.option("startingOffsets", "earliest").option("payload", "binary").load()
        answers = orders.select(
            F.col("cursor"),
            F.col("message_id").alias("ref_to_message_id"),
            F.col("parts")[0]["payload"].alias("payload"),
        )
        write = answers.writeStream.format("postroad").options(**inbox.options)
        write = write.option("keyColumns", "cursor").option("pmode", PMODE)
        write = write.option("checkpointLocation", str(tmp_path))
        finished(write.trigger(availableNow=True).start())

    run()
    first = inbox.sent
    assert sorted(first.values()) == [[b"1"], [b"2"]]
    forget(tmp_path, 0)
    run()
    assert inbox.sent == first


def test_filters_are_left_to_the_node_when_asked_to(spark: SparkSession, inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    read = spark.read.format("postroad").options(**inbox.options).option("pushFilters", "true")
    messages = read.load().where("from_party = 'seller' and cursor > 1 and message_id like '%@%'")
    plan = messages._jdf.queryExecution().executedPlan().toString()
    assert "= seller" not in plan
    assert [row.cursor for row in messages.select("cursor").collect()] == [2]
