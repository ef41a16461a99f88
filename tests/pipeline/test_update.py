"""A lake that grew batch by batch has the tables of one that was made at once."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from postroad.pipeline import lake as lakes
from postroad.pipeline import lake_formats, tables
from postroad.pipeline import update as updates
from postroad.pipeline.covering import Covering, retirements, stretches
from postroad.pipeline.facts import facts
from postroad.pipeline.intake import take
from postroad.pipeline.lake import Lake
from postroad.pipeline.schema import DATE
from postroad.pipeline.update import update
from tests.pipeline.intakes import segment
from tests.pipeline.journals import Event, Journal, side_by_side
from tests.pipeline.nasty import nasty

GRACE: Final = timedelta(days=1)
SHORTER: Final = timedelta(minutes=1)
JOURNALS: Final = 60
SEEDS: Final = range(20 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 1)


@pytest.mark.parametrize("crowded", [False, True], ids=["file by file", "day by day"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_lake_that_grew_equals_one_that_was_made_at_once(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    crowded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New events come in any order; some again, some with other content, which retracts them.

    Rows that change are taken out of their files; or these are not known, one file of a day is
    many, and each run puts the day together. Then another grace judges all days anew. What is
    folded at a time is little: no share has all.
    """
    if crowded:
        monkeypatch.setattr(lake_formats, "CROWD", 1)
        monkeypatch.setattr(lake_formats, "FEW", 1)
        monkeypatch.setattr(lake_formats.Parquet, "paths", lambda *_: None)
    monkeypatch.setattr(updates, "_ROWS", 150)
    shares = _noted_shares(monkeypatch)
    copied = _noted_copies(monkeypatch)
    random = Random(seed)
    some = range(1000 * seed, 1000 * seed + JOURNALS)
    events = side_by_side({str(one): nasty(one) for one in some})
    lake = Lake(spark, str(tmp_path / "lake"))
    for number, part in enumerate(_batches(random, events)):
        path, _ = segment(tmp_path / f"journal-{number}", part)
        before = _files(lake)
        _take(lake, number, path)
        if crowded and before:
            stayed = before & _files(lake)
            assert stayed < before
            assert _days(stayed).isdisjoint(_days(_files(lake) - before))

    assert len(shares) == 2
    assert min(shares) > 2
    assert bool(copied) != crowded
    kept = lake.read("events").drop(DATE).cache()
    assert 0 < kept.count() < len(events)
    known = facts(kept).cache()
    covering = Covering.of(stretches(kept), retirements(kept))
    expected = {
        "messages": tables.messages(known),
        "hops": tables.hops(known),
        "conversations": tables.conversations(known),
        "partners": tables.partners(known),
        "packing": tables.packing(known),
        "reconciliation": tables.reconciliation(known, covering, GRACE),
        "_fact_findings": tables.fact_findings(known),
    }
    for name, table in expected.items():
        came, made = _told(lake.read(name).select(table.columns)), _told(table)
        assert came == made, (name, [row for row in came if row not in made][:3])

    _take(lake, 2, grace=SHORTER)
    again = tables.reconciliation(known, covering, SHORTER)
    assert _told(lake.read("reconciliation").drop(DATE)) == _told(again)
    known.unpersist()
    kept.unpersist()


def test_a_finding_goes_when_the_event_that_made_it_is_retracted(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = Journal()
    journal.node("a", "A").write(0, "submitted")
    journal.node("c", "C").write(1, "submitted")
    mine, strange = journal.events
    lake = Lake(spark, str(tmp_path / "lake"))
    _take(lake, 0, *(segment(tmp_path / one["node"], [one])[0] for one in journal.events))
    assert [row.kind for row in lake.read("_fact_findings").collect()] == ["two_senders"]
    path, _ = segment(tmp_path / "again", [strange | {"detail": "altered"}])
    _take(lake, 1, path)
    assert [row.node for row in lake.read("events").collect()] == [mine["node"]]
    assert lake.read("_fact_findings").collect() == []


def _noted_shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Into how many parts conversations are cut, each time that they are made for the lake."""
    made, noted = tables.conversations, list[int]()

    def noting(facts: DataFrame, shares: int | None = None) -> DataFrame:
        if shares is not None:
            noted.append(shares)
        return made(facts, shares)

    monkeypatch.setattr(tables, "conversations", noting)
    return noted


def _noted_copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files out of which rows were taken."""
    made, noted = lakes.copy_without, list[str]()

    def noting(*given: Any) -> dict[str, str | None]:
        copies = made(*given)
        noted.extend(copies)
        return copies

    monkeypatch.setattr(lakes, "copy_without", noting)
    return noted


def _batches(random: Random, events: Sequence[Event]) -> list[list[Event]]:
    """Most of it; then the rest, what comes again and what contradicts."""
    shuffled = list(events)
    random.shuffle(shuffled)
    shuffled.sort(key=lambda event: event["at"] + timedelta(hours=random.choice((0, 0, 0, 48))))
    most = len(events) * 7 // 10
    again = random.sample(shuffled[:most], 20)
    altered = [event | {"detail": "altered"} for event in random.sample(shuffled[:most], 5)]
    return [shuffled[:most], [*shuffled[most:], *again, *altered]]


def _take(lake: Lake, number: int, *paths: str, grace: timedelta = GRACE) -> None:
    change = lake.begin(number)
    assert change is not None
    batch = take(lake.spark, lake, paths)
    update(lake.spark, lake, change, batch, grace=grace)
    batch.record(change)
    batch.release()
    change.commit()


def _files(lake: Lake) -> set[str]:
    return set(lake.format.files("events", lake.days("events")))


def _days(files: set[str]) -> set[str]:
    return {file.split("/")[1] for file in files}


def _told(table: Any) -> list[str]:
    """Rows in an order that doesn't depend on how they were written."""
    return sorted(str(row) for row in table.toArrow().to_pylist())
