"""What a cluster does in one go: it sends and reads messages, and makes the tables of a journal.

python -m tests.pipeline.on_cluster JSON

Two executors are processes of their own. The last line that is printed tells what came of it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from postroad.api.client import Client
from postroad.pipeline.runner import Plan, run
from postroad.pipeline.session import BRIEF, session


def started() -> SparkSession:
    brief = BRIEF["spark.driver.defaultJavaOptions"]
    return session(
        master="local-cluster[2,1,1024]",
        memory="512m",
        settings=BRIEF
        | {"spark.executor.memory": "512m", "spark.executor.defaultJavaOptions": brief},
    )


def exchanged(spark: SparkSession, given: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Send orders, of which one task dies at the end; their states, and what arrived."""
    mark = given["died"]

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            Path(mark).touch()
            raise RuntimeError("dies after it sent everything")

    orders = spark.range(0, 6, 1, 2).selectExpr("id AS number", "'order ' || id AS payload")
    write = orders.mapInArrow(dying, orders.schema).write.format("postroad")
    write = write.options(**given["buyer"]).option("pmode", "buyer-to-seller-order")
    write = write.option("contentType", "text/plain").option("keyColumns", "number")
    write.option("concurrency", 1).mode("append").save()
    with Client(given["buyer"]["url"], token=given["token"]) as buyer:
        states = {buyer.wait(one.message_id, 60).state for one in buyer.messages(side="sending")}
    read = spark.read.format("postroad").options(**given["seller"]).option("payload", "text")
    rows = read.option("minPartitions", 2).load().selectExpr("parts[0].payload").collect()
    return list(states), sorted(row[0] for row in rows)


def main(given: dict[str, Any]) -> None:
    spark = started()
    states, payloads = exchanged(spark, given)
    totals = run(spark, Plan((given["journal"],), given["lake"], max_files=given["files"]))
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    found = {
        "states": states,
        "payloads": payloads,
        "executors": executors,
        "kept": totals.kept - totals.retracted,
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
