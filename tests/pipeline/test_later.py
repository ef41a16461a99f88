"""Facts of some events joined with those of later ones are the facts of all."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from postroad.pipeline.folding import READ, SCHEMA, fold
from postroad.pipeline.later import joinable, joined, table
from postroad.store.journal_columns import COLUMNS
from tests.pipeline.journals import Event, side_by_side
from tests.pipeline.nasty import nasty


def _facts(events: list[Event]) -> dict[str, dict[str, object]]:
    rows = pa.Table.from_pylist(events, schema=COLUMNS)
    named = rows.filter(rows["message_id"].is_valid())
    return {row["message_id"]: row for row in fold(named.select(READ)).to_pylist()}


@pytest.mark.parametrize("seed", range(20))
def test_facts_joined_with_those_of_later_events_are_the_facts_of_all(seed: int) -> None:
    """Wherever time is cut, and also where the clocks of nodes disagree."""
    random = Random(seed)
    events = side_by_side({str(one): nasty(one) for one in range(10 * seed, 10 * seed + 10)})
    whole = _facts(events)
    count = 0
    for cut in random.sample(sorted({event["at"] for event in events}), 12):
        before = _facts([event for event in events if event["at"] < cut])
        later = _facts([event for event in events if event["at"] >= cut])
        for message_id in before.keys() & later.keys():
            if joinable(before[message_id], later[message_id]):
                count += 1
                assert joined(before[message_id], later[message_id]) == whole[message_id]
            else:
                sent: Any = before[message_id]["sending"]
                assert sent["settled"] is not None or sent["settled_by"] is not None
    assert count > 5


def test_joined_facts_are_written_as_they_were_read() -> None:
    facts = _facts(side_by_side({str(seed): nasty(seed) for seed in range(5)}))
    made = table(facts.values())
    assert made.schema == SCHEMA
    assert made.to_pylist() == list(facts.values())


def test_facts_of_events_that_fall_between_cannot_be_joined() -> None:
    facts = _facts(side_by_side({"1": nasty(1), "2": nasty(2)}))
    for row in facts.values():
        assert not joinable(row, row)
