"""Whose turn it is to be sent."""

from postroad.node.base.turns import Turns


def test_who_has_one_place_fetches_more_than_one_message_at_a_time() -> None:
    turns: Turns[int] = Turns(1)
    fetched = turns.room()
    assert fetched > 1
    for number in range(fetched):
        turns.add("seller", number)
    assert (turns.next("seller"), turns.next("seller")) == (0, None)
    turns.done("seller")
    assert turns.next("seller") == 1
