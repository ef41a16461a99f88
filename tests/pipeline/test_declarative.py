"""The tables as a Spark Declarative Pipeline: started as people start it, equal to the truth."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from postroad.pipeline.java import java_home
from postroad.pipeline.schema import TABLES
from postroad.pipeline.session import BRIEF
from postroad.pipeline.simulation import simulate
from tests.conftest import PROJECT

COLUMNS: Final = (
    *("message_id", "class", "sender_outcome", "receiver_outcome", "deliveries", "settled_by"),
    *("first_at", "last_at"),
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`spark-pipelines`, with the pipeline of the project in a folder of its own."""
    spec = yaml.safe_load((PROJECT / "pipelines" / "spark-pipeline.yml").read_text())
    spec["storage"] = (folder / "storage").as_uri()
    spec["configuration"]["spark.sql.shuffle.partitions"] = "2"
    (folder / "spark-pipeline.yml").write_text(yaml.safe_dump(spec))
    (folder / "journal.py").write_bytes((PROJECT / "pipelines" / "journal.py").read_bytes())
    environment = {
        "JAVA_HOME": str(java_home()),
        "JDK_JAVA_OPTIONS": BRIEF["spark.driver.defaultJavaOptions"],
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # With this Spark Connect takes a free port instead of always the same.
        "SPARK_TESTING": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }
    command = Path(sys.executable).with_name("spark-pipelines")
    return subprocess.run(
        [command, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=str)


def repeat_and_spoil(journal: Path) -> None:
    """The last events of a node come again, and one after them that says not for whom."""
    segment = max(journal.rglob("*.parquet"))
    whole = pq.read_table(segment, partitioning=None)
    again = whole.slice(whole.num_rows - 3).to_pylist()
    spoilt = again[-1] | {"seq": again[-1]["seq"] + 1, "party": None}
    loose = pa.schema([field.with_nullable(True) for field in whole.schema])
    rows = pa.Table.from_pylist([*again, spoilt], schema=loose)
    pq.write_table(rows, segment.with_name("again.parquet"))


@pytest.mark.timeout(600)
def test_the_pipeline_gives_the_tables_of_a_journal(tmp_path: Path) -> None:
    simulate(tmp_path, messages=60, seed=1, days=2, heartbeat=timedelta(minutes=30), trouble=0.4)
    repeat_and_spoil(tmp_path / "journal")
    done = run(tmp_path, "run", "--conf", "spark.connect.grpc.binding.address=127.0.0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    made = tmp_path / "spark-warehouse"
    truth = pq.read_table(tmp_path / "truth" / "messages").to_pylist()
    assert told(pq.read_table(made / "reconciliation").to_pylist()) == told(truth)
    for name, table in TABLES.items():
        if name != "evidence":
            assert pq.read_schema(next((made / name).glob("*.parquet"))).names == table.names
    bad = pq.read_table(made / "quarantine").to_pylist()
    assert [(row["reason"], row["party"]) for row in bad] == [("null", None)]
