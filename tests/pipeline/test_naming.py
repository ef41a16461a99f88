"""What new events name; and that events of purging that are passed over would change nothing."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.folding import READ, fold
from postroad.pipeline.keys import KeySet, keys
from postroad.pipeline.naming import PURGED, Named, named_in
from postroad.store.journal_columns import COLUMNS
from tests.pipeline.journals import Event, side_by_side
from tests.pipeline.nasty import nasty


def _facts(events: Sequence[Event]) -> dict[str, Any]:
    table = pa.Table.from_pylist(list(events), schema=COLUMNS)
    return {row["message_id"]: row for row in _fold(table).to_pylist()}


def _fold(events: pa.Table) -> pa.Table:
    return fold(events.filter(events["message_id"].is_valid()).select(READ))


def _named(spark: SparkSession, folder: Path, events: Sequence[Event]) -> Named:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(events), schema=COLUMNS), folder / "new.parquet")
    return named_in(spark, [str(folder / "new.parquet")])


def _key(message_id: str) -> int:
    found: int = keys(pa.array([message_id]))[0].as_py()
    return found


def _split(events: Sequence[Event], at: datetime) -> tuple[list[Event], list[Event]]:
    """What was there before a time, and what came then: mostly that messages were purged."""
    random = Random(1)
    old = [event for event in events if event["at"] < at]
    new = [
        event
        for event in events
        if event["at"] >= at and (event["event"] == PURGED or random.random() < 0.2)
    ]
    return old, new


def test_an_event_of_purging_that_is_known_changes_nothing_but_how_long_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = side_by_side({str(seed): nasty(seed) for seed in range(300)})
    purging = sorted(event["at"] for event in events if event["event"] == PURGED)
    old, new = _split(events, purging[len(purging) // 4])
    named = _named(spark, tmp_path / "journal", new)
    purged_only = {e["message_id"] for e in new} - {
        e["message_id"] for e in new if e["event"] != PURGED
    }
    purged_only.discard(None)
    assert named.purged.keys.numbers.tolist() == sorted(map(_key, purged_only))
    assert len(named.keys) == len({e["message_id"] for e in new} - {None})
    before = _fold(pa.Table.from_pylist(old, schema=COLUMNS))
    asked = before.filter(pa.array(named.purged.keys.holds(before["key"].combine_chunks())))
    known = KeySet.of(asked.filter(pa.array(named.purged.mask(asked, None)))["key"])
    was, now = _facts(old), _facts([*old, *new])
    same, other = 0, 0
    for message_id in purged_only & was.keys():
        changed = {
            name
            for name, value in now[message_id].items()
            if name != "until_at" and value != was[message_id][name]
        }
        if _key(message_id) in known.numbers.tolist():
            same += 1
            assert not changed, (message_id, changed)
        else:
            other += bool(changed)
    assert same > 5
    assert other > 0


@pytest.mark.parametrize(
    ("altered", "known"),
    [
        ({}, True),
        ({"party": "C"}, False),
        ({"side": "receiving", "party": "B"}, False),
        ({"side": "forwarding", "party": "H"}, True),
        ({"side": None}, True),
        ({"ref_to_message_id": "another"}, False),
        ({"service": "orders"}, False),
        ({"at": datetime.fromisoformat("2026-03-01T12:00:00+00:00")}, False),
    ],
    ids=str,
)
def test_what_an_event_of_purging_may_tell(
    spark: SparkSession, tmp_path: Path, altered: Event, known: bool
) -> None:
    """Another party, a side, or a value that no event told before; or that it was not the last."""
    sent = _event(event="sent", at=datetime.fromisoformat("2026-03-01T12:00:00+00:00"))
    purged = _event(event=PURGED, at=datetime.fromisoformat("2026-04-01T12:00:00+00:00")) | altered
    facts = _fold(pa.Table.from_pylist([sent], schema=COLUMNS))
    named = _named(spark, tmp_path, [purged])
    assert named.purged.mask(facts, None).tolist() == [known]


def _event(**said: Any) -> Event:
    blank = dict.fromkeys(COLUMNS.names)
    about = {"message_id": "m", "kind": "message", "from_party": "A", "to_party": "B"}
    own = {"node": "a", "epoch": 1, "seq": 1, "party": "A", "side": "sending"}
    return blank | about | own | said
