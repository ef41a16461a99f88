"""Simulated networks: the reconciliation finds out the truth about every message."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.schema import TABLES
from postroad.pipeline.simulation import simulate
from postroad.pipeline.tables import of_events
from tests.pipeline.journals import NAMES, rows

SEEDS: Final = range(12)
COLUMNS: Final = (
    *("class", "sender_outcome", "receiver_outcome", "deliveries", "settled_by"),
    *("first_at", "last_at"),
)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Small networks with much trouble; hourly heartbeats say as much as those of each minute."""
    folders = {seed: tmp_path_factory.mktemp(f"network-{seed}") for seed in SEEDS}
    for seed, folder in folders.items():
        simulate(folder, messages=250, seed=seed, trouble=0.6, heartbeat=timedelta(hours=1))
    return folders


@pytest.fixture(scope="module")
def truth(networks: dict[int, Path]) -> dict[str, dict[str, Any]]:
    return {
        f"{seed}/{row['message_id']}": row
        for seed, folder in networks.items()
        for row in pq.read_table(folder / "truth" / "messages").to_pylist()
    }


@pytest.fixture(scope="module")
def reconciled(spark: SparkSession, networks: dict[int, Path]) -> dict[str, dict[str, Any]]:
    """All networks cost one run."""
    events = pa.concat_tables(_journals(networks))
    table = of_events(spark.createDataFrame(events).to(TABLES["events"].schema))["reconciliation"]
    return {row["message_id"]: row for row in rows(table)}


def _journals(networks: dict[int, Path]) -> Iterator[pa.Table]:
    """Each with names of its own, as if they had nothing to do with each other."""
    for seed, folder in networks.items():
        journal = pq.read_table(folder / "journal", partitioning=None)
        for column in NAMES:
            place = journal.column_names.index(column)
            named = pc.binary_join_element_wise(f"{seed}/", journal[column], "")
            journal = journal.set_column(place, column, named)
        yield journal


def test_every_class_occurs_in_the_truth(truth: dict[str, dict[str, Any]]) -> None:
    assert {row["class"] for row in truth.values()} == {
        *("twice", "lost", "confirmed", "ghost"),
        *("refused", "failed", "in_doubt", "pending"),
    }


def test_the_reconciliation_has_a_row_for_every_message_and_no_other(
    truth: dict[str, dict[str, Any]], reconciled: dict[str, dict[str, Any]]
) -> None:
    assert reconciled.keys() == truth.keys()


def test_the_reconciliation_equals_the_truth_row_by_row(
    truth: dict[str, dict[str, Any]], reconciled: dict[str, dict[str, Any]]
) -> None:
    wrong = {
        name: (row["story"], [(c, row[c], reconciled[name][c]) for c in COLUMNS])
        for name, row in truth.items()
        if any(row[c] != reconciled[name][c] for c in COLUMNS)
    }

    assert not wrong, f"{len(wrong)} of {len(truth)}; one: {next(iter(wrong.items()))}"
