"""The data source as Spark runs it: found by its name, exactly once, with a checkpoint."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from tests.e2e.nodes import Pair, Served, make_pair, started
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


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = make_pair(tmp_path)
    try:
        yield started(pair)
    finally:
        pair.end()


CLUSTER = """
import json, pathlib, sys
from pyspark import TaskContext
from postroad.api.client import Client
from postroad.pipeline.session import BRIEF, session

given = json.loads(sys.argv[1])
brief = BRIEF["spark.driver.defaultJavaOptions"]
spark = session(
    master="local-cluster[2,1,1024]", memory="512m",
    settings=BRIEF
    | {"spark.executor.memory": "512m", "spark.executor.defaultJavaOptions": brief},
)

def dying(batches):
    yield from batches
    task = TaskContext.get()
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        pathlib.Path(given["died"]).touch()
        raise RuntimeError("dies after it sent everything")

orders = spark.range(0, 6, 1, 2).selectExpr("id AS number", "'order ' || id AS payload")
write = orders.mapInArrow(dying, orders.schema).write.format("postroad").options(**given["buyer"])
write = write.option("pmode", "buyer-to-seller-order").option("contentType", "text/plain")
write.option("keyColumns", "number").option("concurrency", 1).mode("append").save()
with Client(given["buyer"]["url"], token=given["token"]) as buyer:
    states = {buyer.wait(one.message_id, 60).state for one in buyer.messages(side="sending")}
read = spark.read.format("postroad").options(**given["seller"]).option("payload", "text")
rows = read.option("minPartitions", 2).load().selectExpr("parts[0].payload").collect()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(json.dumps([list(states), sorted(row[0] for row in rows), executors]))
spark.stop()
"""


@pytest.mark.timeout(400)
def test_a_cluster_sends_and_reads_each_message_once_though_a_task_dies(
    pair: Pair, tmp_path: Path
) -> None:
    def told(node: Served) -> dict[str, str | None]:
        token = node.folder / "keys" / "api.token"
        return {"url": node.serving.api_url, "tokenFile": str(token)}

    given: dict[str, Any] = {
        "buyer": told(pair.buyer),
        "seller": told(pair.seller),
        "token": (pair.buyer.folder / "keys" / "api.token").read_text().strip(),
        "died": str(tmp_path / "died"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER, json.dumps(given)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "SPARK_HOME": str(home_of_spark(tmp_path / "spark"))},
    )
    assert done.returncode == 0, done.stderr
    states, payloads, executors = json.loads(done.stdout)
    assert payloads == [f"order {number}" for number in range(6)]
    assert states == ["acknowledged"]
    assert executors == 2
    assert (tmp_path / "died").exists()


def home_of_spark(folder: Path) -> Path:
    """Spark as it is installed; executors leave their logs here and not there."""
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder
