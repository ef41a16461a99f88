"""Transition tables: what follows, what does not happen, and how a table is drawn."""

from enum import StrEnum

import pytest

from postroad.reliability.tables import Impossible, Table, follow, markdown


class Door(StrEnum):
    OPEN = "open"
    SHUT = "shut"
    LOCKED = "locked"


class Hand(StrEnum):
    PUSH = "push"
    TURN = "turn the key"


DOORS: Table[Door, Hand] = {
    Door.OPEN: {Hand.PUSH: Door.SHUT},
    Door.SHUT: {Hand.PUSH: Door.OPEN, Hand.TURN: (Door.LOCKED, Door.SHUT)},
    Door.LOCKED: {},
}


def test_a_state_follows() -> None:
    assert follow(DOORS, Door.OPEN, Hand.PUSH) is Door.SHUT


def test_doubt_chooses_the_second_of_a_pair() -> None:
    assert follow(DOORS, Door.SHUT, Hand.TURN) is Door.LOCKED
    assert follow(DOORS, Door.SHUT, Hand.TURN, doubt=True) is Door.SHUT


def test_doubt_changes_nothing_where_there_is_no_pair() -> None:
    assert follow(DOORS, Door.OPEN, Hand.PUSH, doubt=True) is Door.SHUT


@pytest.mark.parametrize("door", [Door.OPEN, Door.LOCKED])
def test_what_is_not_in_the_table_does_not_happen(door: Door) -> None:
    with pytest.raises(Impossible, match=f"'turn the key' does not happen in '{door.value}'") as no:
        follow(DOORS, door, Hand.TURN)
    assert (no.value.state, no.value.given) == (door, Hand.TURN)


def test_a_table_is_drawn_row_by_row() -> None:
    assert markdown(DOORS).splitlines() == [
        "| from | when | to |",
        "| --- | --- | --- |",
        "| open | push | shut |",
        "| shut | push | open |",
        "| shut | turn the key | locked; in doubt: shut |",
    ]
