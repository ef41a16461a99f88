"""The tables by hour: made of parts, however messages are cut into these, they are the same."""

from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from postroad.pipeline.folding import READ, fold
from postroad.pipeline.hourly import HOURLY, hour_keys, hours_of
from postroad.pipeline.keys import KeySet
from postroad.pipeline.parcels import pack
from postroad.pipeline.schema import TABLES
from postroad.store.journal_columns import COLUMNS
from tests.pipeline.journals import side_by_side
from tests.pipeline.nasty import nasty

SHARES: Final = 3


@pytest.fixture(scope="module")
def facts() -> pa.Table:
    events = side_by_side({str(seed): nasty(seed) for seed in range(60)})
    rows = pa.Table.from_pylist(events, schema=COLUMNS)
    return fold(rows.filter(rows["message_id"].is_valid()).select(READ))


def _table(name: str, parts: list[pa.Table], hours: KeySet | None = None) -> list[dict[str, Any]]:
    """All rows in order, made of parcels for some shares."""
    hourly = HOURLY[name]
    packed = pa.Table.from_batches(hourly.parcels(parts, SHARES, hours))
    parcels = packed.sort_by("share").to_batches()
    assert len(packed["share"].unique()) == SHARES
    names = ("name", *TABLES[name].names[1:])
    rows = [row for made in hourly.fold(parcels, names) for row in made.to_pylist()]
    return sorted(rows, key=lambda row: (row["name"], row["hour"]))


@pytest.mark.parametrize("name", HOURLY)
@pytest.mark.parametrize("seed", range(5))
def test_messages_may_be_cut_into_any_parts(facts: pa.Table, name: str, seed: int) -> None:
    whole = _table(name, [facts])
    assert len(whole) > 50
    random = Random(seed)
    part = np.array([random.randrange(4) for _ in range(len(facts))])
    cut = [facts.filter(pa.array(part == number)) for number in range(4)]
    assert _table(name, [*cut, facts.slice(0, 0)]) == whole


@pytest.mark.parametrize("name", HOURLY)
def test_of_some_hours_those_rows_are_made_as_of_all(facts: pa.Table, name: str) -> None:
    whole = _table(name, [facts])
    some = whole[::3]
    names, times = pa.array([row["name"] for row in some]), pa.array([row["hour"] for row in some])
    hours = KeySet.of(pa.chunked_array([hour_keys(names, hours_of(times))]))
    assert _table(name, [facts], hours) == some


def test_the_hours_of_one_name_are_of_several_shares() -> None:
    """A partner with whom all is exchanged is not folded in one piece."""
    hours = hour_keys(pa.array(["all"] * 1000), pa.array(range(490_000, 491_000)))
    batch = pa.RecordBatch.from_pydict({"key": hours})
    [parcels] = pack([batch], "key", 10)
    assert len(parcels) == 10
    counts = [pa.ipc.open_stream(rows.as_buffer()).read_all().num_rows for rows in parcels["rows"]]
    assert max(counts) < 2 * min(counts)


def test_percentiles_lie_between_the_values_next_to_them() -> None:
    told = _percentiles_of([4.0, 1.0, None, 3.0, 2.0], [None], [7.0])
    assert told["p50_ms"] == [2.5, None, 7.0]
    assert told["p95_ms"] == [pytest.approx(3.85), None, 7.0]


def _percentiles_of(*hours: list[float | None]) -> dict[str, list[float | None]]:
    place = np.repeat(np.arange(len(hours)), [len(values) for values in hours])
    values = pa.array([value for each in hours for value in each], pa.float64())
    made = HOURLY["partners"].told({"ms": (place, values)}, len(hours))
    return {name: column.to_pylist() for name, column in made.items()}


def test_an_envelope_counts_once_whoever_tells_of_it() -> None:
    own = (np.array([0, 0, 0, 1]), pa.array(["a", "b", None, "a"]))
    others = (np.array([0, 0, 1, 1]), pa.array(["a", "a", "z", None]))
    made = HOURLY["packing"].told({"own": own, "others": others}, 3)
    assert made["envelopes"].to_pylist() == [2, 2, 0]
