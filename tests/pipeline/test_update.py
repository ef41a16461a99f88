"""A lake that grew batch by batch has the tables of one that was made at once."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.intake import take
from postroad.pipeline.lake import Lake
from postroad.pipeline.schema import DATE, EVENTS, TABLES
from postroad.pipeline.tables import of_events
from postroad.pipeline.update import update
from tests.pipeline.intakes import segment
from tests.pipeline.journals import Event, side_by_side
from tests.pipeline.nasty import nasty

GRACE: Final = timedelta(days=1)
JOURNALS: Final = 60
SEEDS: Final = range(20 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lake_that_grew_equals_one_that_was_made_at_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """New events come in any order; some again, some with other content, which retracts them."""
    random = Random(seed)
    some = range(1000 * seed, 1000 * seed + JOURNALS)
    events = side_by_side({str(one): nasty(one) for one in some})
    lake = Lake(spark, str(tmp_path / "lake"))
    for number, part in enumerate(_batches(random, events)):
        path, _ = segment(tmp_path / f"journal-{number}", part)
        _take(lake, number, path)

    kept = lake.read("events").drop(DATE).cache()
    assert 0 < kept.count() < len(events)
    for name, expected in of_events(kept, GRACE).items():
        table = "_fact_findings" if name == "findings" else name
        found = lake.read(table).drop(DATE)
        if name == "findings":
            expected = expected.where("kind <> 'gap'")
        wanted = TABLES[name].names
        came, made = _told(found.select(wanted)), _told(expected.select(wanted))
        assert came == made, (name, [row for row in came if row not in made][:3])
    kept.unpersist()


def _batches(random: Random, events: Sequence[Event]) -> list[list[Event]]:
    """Most of it, in two parts; then what is late, what comes again and what contradicts."""
    shuffled = list(events)
    random.shuffle(shuffled)
    shuffled.sort(key=lambda event: event["at"] + timedelta(hours=random.choice((0, 0, 0, 48))))
    half, most = len(events) // 2, len(events) * 9 // 10
    again = random.sample(shuffled[:half], 20)
    altered = [event | {"detail": "altered"} for event in random.sample(shuffled[:half], 5)]
    return [shuffled[:half], shuffled[half:most], [*shuffled[most:], *again, *altered]]


def _take(lake: Lake, number: int, path: str) -> None:
    change = lake.begin(number)
    assert change is not None
    batch = take(lake.spark, lake, [path])
    update(lake.spark, lake, change, batch, grace=GRACE)
    batch.record(change)
    batch.release()
    change.commit()


def _told(table: Any) -> list[str]:
    """Rows in an order that doesn't depend on how they were written."""
    return sorted(str(row) for row in table.toArrow().to_pylist())


def test_another_grace_judges_all_days_anew(spark: SparkSession, tmp_path: Path) -> None:
    events = side_by_side({str(one): nasty(one) for one in range(20)})
    path, _ = segment(tmp_path / "journal", events)
    lake = Lake(spark, str(tmp_path / "lake"))
    _take(lake, 0, path)
    change = lake.begin(1)
    assert change is not None
    shorter = timedelta(minutes=1)
    batch = take(spark, lake, [])
    update(spark, lake, change, batch, grace=shorter)
    batch.record(change)
    change.commit()

    kept = lake.read("events").select(EVENTS.names)
    expected = of_events(kept, shorter)["reconciliation"]
    found = lake.read("reconciliation").drop(DATE)
    assert _told(found) == _told(expected)
