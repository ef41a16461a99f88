"""Fragments become one message again: gathered, joined, delivered once, answered by a call."""

import pytest

from postroad.store.records import State
from tests.node.joining import (
    DRAWING,
    GROUP,
    SOURCE,
    agree_on_splitting,
    bring,
    errors,
    large,
    payloads,
    receipts,
)
from tests.node.reliable import STORES, World, played


@pytest.mark.req("P2-4.2.1-01", "P2-4.3.2-01", "P2-4.3.2-05", "P2-4.3.2-11", "P2-4.3.2-15")
@pytest.mark.req("P2-7.4-01", "P2-4.4.2-05", "P2-4.4.2-17", "P2-4.4.2-19")
@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("signed", [False, True])
@played
async def test_fragments_in_any_order_are_delivered_as_one_message(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, signed=signed)
    buyer, seller = await world.both()
    given = large(buyer)
    assert given.count == 3
    await bring(seller, given, 3, 1)
    await world.wait(60)
    assert await seller.inbox() == []
    await bring(seller, given, 2)
    await world.wait(5)
    assert await seller.inbox() == [SOURCE]
    assert await payloads(seller) == [DRAWING]
    assert await seller.story(SOURCE) == ["received", "joined", "delivered", "receipt_sent"]
    fragment = f"1.{GROUP}@buyer.example"
    assert await seller.state(fragment) is State.RECEIVED
    assert await seller.story(fragment) == ["received", "receipt_sent"]
    assert len(receipts(world)) == 4
    assert len(receipts(world, fragment)) == len(receipts(world, SOURCE)) == 1
    assert errors(world) == []
    assert await seller.work() == {}
