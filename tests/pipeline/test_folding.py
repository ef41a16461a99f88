"""The fold itself, without Spark: it depends on the rows, not on how they come."""

from random import Random
from typing import Any

import pyarrow as pa

from postroad.pipeline.folding import READ, SCHEMA, fold
from postroad.store.journal_columns import COLUMNS
from tests.pipeline.journals import Event, Journal, side_by_side
from tests.pipeline.nasty import nasty


def folded(events: list[Event]) -> dict[str, dict[str, Any]]:
    """The facts of each message."""
    named = [event for event in events if event["message_id"] is not None]
    rows = fold(pa.Table.from_pylist(named, schema=COLUMNS).select(READ))
    assert rows.schema == SCHEMA
    return {row["message_id"]: row for row in rows.to_pylist()}


def test_nothing_gives_no_row() -> None:
    assert folded([]) == {}


def test_the_order_of_rows_does_not_matter() -> None:
    events = side_by_side({str(seed): nasty(seed) for seed in range(40)})
    expected = folded(events)
    assert len(expected) > 50
    for seed in range(3):
        Random(seed).shuffle(events)
        assert folded(events) == expected


def test_each_message_is_folded_as_if_it_were_alone() -> None:
    events = side_by_side({str(seed): nasty(seed) for seed in range(10)})
    for message_id, row in folded(events).items():
        alone = folded([event for event in events if event["message_id"] == message_id])
        assert alone == {message_id: row}


def test_a_message_that_only_relays_saw_has_neither_side() -> None:
    j = Journal()
    j.relay("h1").write(0, "received").write(1, "forwarded", peer="B")
    row = folded(j.events)["m"]
    assert (row["sending"], row["receiving"], row["troubles"]) == (None, None, None)
    assert [(hop["node"], hop["next"]) for hop in row["hops"]] == [("h1", "B")]


def test_envelopes_of_others_are_told_once_each_and_in_order() -> None:
    j = Journal()
    a = j.node("a1", "A").write(0, "sent", envelope="z").write(1, "resent", envelope="b")
    a.write(2, "resent", envelope="z").write(3, "resent", envelope="m")
    row = folded(j.events)["m"]
    assert row["envelopes"] == ["b", "z"]
    assert row["sending"]["own_envelope"]


def test_troubles_are_counted_by_side_and_hour() -> None:
    j = Journal()
    b = j.node("b1", "B").write(1, "duplicate").write(2, "duplicate").write(70, "duplicate")
    b.write(3, "error_raised", side="receiving")
    j.node("a1", "A").write(4, "error_received", severity="failure")
    found = [
        (one["side"], one["duplicates"], one["errors"]) for one in folded(j.events)["m"]["troubles"]
    ]
    assert found == [("receiving", 2, 1), ("receiving", 1, 0), ("sending", 0, 1)]
