"""A cluster: executors that are processes of their own, and share nothing with the driver."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.runner import Plan, run
from postroad.pipeline.simulation import simulate
from tests.e2e.nodes import Pair, Served, make_pair, started
from tests.pipeline.test_runner_kill import tables

pytestmark = pytest.mark.timeout(900)
FAULTS = ("identity", "foreign", "unknown_event", "repeated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[Pair]:
    pair = make_pair(folder)
    try:
        yield started(pair)
    finally:
        pair.end()


@pytest.fixture(scope="module")
def journal(folder: Path) -> Path:
    """Of a small network, with something wrong in it."""
    beat = timedelta(hours=1)
    simulated = simulate(
        folder / "network", messages=60, days=2, heartbeat=beat, trouble=0.3, faults=FAULTS
    )
    return simulated.journal


@pytest.fixture(scope="module")
def done(pair: Pair, journal: Path, folder: Path) -> dict[str, Any]:
    """What one session on a cluster did, and told."""

    def told(node: Served) -> dict[str, str | None]:
        token = node.folder / "keys" / "api.token"
        return {"url": node.serving.api_url, "tokenFile": str(token)}

    given: dict[str, Any] = {
        "buyer": told(pair.buyer),
        "seller": told(pair.seller),
        "token": (pair.buyer.folder / "keys" / "api.token").read_text().strip(),
        "died": str(folder / "died"),
        "journal": str(journal),
        "lake": str(folder / "lake"),
        # The second commit changes days of the first.
        "files": sum(1 for _ in journal.rglob("*.parquet")) * 2 // 3,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.on_cluster", json.dumps(given)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "SPARK_HOME": str(home_of_spark(folder / "spark"))},
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def home_of_spark(folder: Path) -> Path:
    """Spark as it is installed; executors leave their logs here and not there."""
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def test_a_cluster_sends_and_reads_each_message_once_though_a_task_dies(
    done: dict[str, Any], folder: Path
) -> None:
    assert done["payloads"] == [f"order {number}" for number in range(6)]
    assert done["states"] == ["acknowledged"]
    assert done["executors"] == 2
    assert (folder / "died").exists()


def test_executors_make_the_tables_that_a_run_on_one_machine_makes(
    spark: SparkSession, done: dict[str, Any], journal: Path, folder: Path
) -> None:
    totals = run(spark, Plan((str(journal),), str(folder / "here")))
    assert done["kept"] == totals.kept - totals.retracted > 0
    expected, found = tables(spark, folder / "here"), tables(spark, folder / "lake")
    filled = {name for name, rows in expected.items() if rows}
    assert filled == set(expected) - {"evidence"}
    for name, rows in expected.items():
        assert found[name] == rows, name
