"""Events in parcels: what comes out is what went in, each message in one share."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from postroad.pipeline import parcels
from postroad.pipeline.facts import key, packed
from postroad.pipeline.folding import FEW, READ, fold
from postroad.pipeline.keys import KeySet, keys
from postroad.store.journal_columns import COLUMNS
from tests.pipeline.journals import side_by_side
from tests.pipeline.nasty import nasty

TEXTS = ["", "a", "1234", "12345678", "x" * 31, "y" * 32, "z" * 45, "ü" * 50, "@" * 200, None]


def test_keys_are_those_of_spark(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(text,) for text in TEXTS], "id string")
    expected = [row[0] for row in rows.select(key("id")).collect()]
    assert keys(pa.array(TEXTS)).to_pylist() == expected


def test_keys_of_a_slice_are_those_of_its_rows() -> None:
    texts = pa.array(TEXTS)
    assert keys(texts.slice(4, 4)).to_pylist() == keys(texts).to_pylist()[4:8]
    assert keys(texts.slice(0, 0)).to_pylist() == []


def test_a_set_of_keys_holds_ids_as_texts_and_as_numbers() -> None:
    ids = pa.array(["a", "b", None, "a", "c"])
    some = KeySet.of(pa.chunked_array([keys(pa.array(["c", "a", None]))]))
    held = [True, False, False, True, True]
    assert list(some.holds(ids)) == held
    assert list(some.holds(ids.dictionary_encode())) == held
    assert list(some.holds(keys(ids))) == held
    assert len(some) == 2
    assert not KeySet().holds(ids).any()
    assert not some.holds(ids.slice(0, 0)).any()
    rest = some - KeySet.of(pa.chunked_array([keys(pa.array(["a", "b"]))]))
    assert list(rest.holds(ids)) == [False, False, False, False, True]
    assert list((rest | some).holds(ids)) == held


@pytest.mark.parametrize("few", FEW)
def test_columns_of_many_values_and_of_few_travel_together(
    monkeypatch: pytest.MonkeyPatch, few: str
) -> None:
    """A parcel may have numbers where the next one has texts."""
    events = _events()
    encoded = pa.Table.from_batches([_encoded(batch, few) for batch in events.to_batches(50)])
    monkeypatch.setattr(parcels, "_ROWS", 100)
    monkeypatch.setattr(parcels, "_FEW", len(events[few].unique()) // 2)
    assert _gathered(encoded) == _facts(events)


def test_each_message_comes_whole_into_one_share() -> None:
    events = _events()
    assert _gathered(events) == _facts(events)
    found = [share["message_id"] for share in _shares(events)]
    assert len(found) > 1
    assert sum(len(ids.unique()) for ids in found) == len(events["message_id"].unique())


def test_events_that_were_read_in_another_zone_travel_with_the_others() -> None:
    events = _events()
    elsewhere = events["at"].cast(pa.timestamp("us", tz="Asia/Tokyo"))
    abroad = events.set_column(events.schema.get_field_index("at"), "at", elsewhere)
    batches = [*packed(events.slice(0, 50).to_batches(), shares=1)]
    batches += packed(abroad.slice(50).to_batches(), shares=1)
    (found,) = parcels.unpacked(batches)
    assert _facts(found) == _facts(events)


def test_texts_that_nobody_reads_stay_behind() -> None:
    (whole,) = _shares(_events().filter(pa.compute.field("event") != "settled"), 1)
    assert whole["detail"].null_count == len(whole)


def _events() -> pa.Table:
    events = side_by_side({str(seed): nasty(seed) for seed in range(20)})
    Random(1).shuffle(events)
    named = [event for event in events if event["message_id"] is not None]
    return pa.Table.from_pylist(named, schema=COLUMNS).select(READ)


def _encoded(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, name, batch[name].dictionary_encode())


def _shares(events: pa.Table, shares: int = 3) -> list[pa.Table]:
    sent: dict[int, list[pa.RecordBatch]] = {}
    for batch in packed(events.to_batches(40), shares=shares):
        for place, share in enumerate(batch["share"].to_pylist()):
            sent.setdefault(share, []).append(batch.slice(place, 1))
    return [share for batches in sent.values() for share in parcels.unpacked(batches)]


def _gathered(events: pa.Table) -> dict[str, Any]:
    return {row["message_id"]: row for share in _shares(events) for row in fold(share).to_pylist()}


def _facts(events: pa.Table) -> dict[str, Any]:
    return {row["message_id"]: row for row in fold(events).to_pylist()}
