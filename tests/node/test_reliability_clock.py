"""A clock that is set: timers go on, nothing is lost, nothing is doubled."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar
from unittest.mock import patch

import pytest

from postroad.store.interface import Transaction
from postroad.store.records import State
from tests.node.reliable import (
    BUYER,
    SELLER,
    STORES,
    Held,
    World,
    lost,
    played,
    refused,
    status,
)

T = TypeVar("T")
M: Final = "m@buyer"
HOUR: Final = timedelta(hours=1)
RETRY: Final = {"max_retries": 3, "period": "PT20S"}
LEASE: Final = 20.0
in_every_store = pytest.mark.parametrize("kept_in", STORES)


def set_back(world: World) -> None:
    world.clock.ahead -= HOUR


@in_every_store
@played
async def test_what_waits_for_its_next_attempt_does_not_wait_an_hour_longer(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(5)
    set_back(world)
    await world.until(200)
    assert world.wire.times(M) == [0, 20, 40, 60]
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_a_receipt_that_does_not_come_is_missed_in_time(world: World) -> None:
    world.agree(receipt="callback", retry=RETRY | {"max_retries": 0})
    world.wire.usual[SELLER] = status(202)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(5)
    set_back(world)
    await world.until(25)
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_what_is_being_sent_while_the_clock_is_set_is_sent_again_in_time(
    world: World,
) -> None:
    """When the attempt began is not known by the new clock: its end counts."""
    world.agree(retry=RETRY)
    slow = Held(lost)
    world.wire.will(slow)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(5)
    set_back(world)
    await world.until(10)
    slow.release()
    await world.until(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert world.wire.times(M) == [0, 30]
    assert await seller.inbox() == [M]


@played
async def test_a_clock_that_is_set_twice_is_followed_twice(world: World) -> None:
    world.agree(retry=RETRY)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    for moment in (5, 10, 30):
        await world.until(moment)
        set_back(world)
    await world.until(200)
    assert world.wire.times(M) == [0, 20, 40, 60]


@in_every_store
@played
async def test_nobody_takes_what_another_one_is_sending_because_the_clock_was_set(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY)
    world.configure(BUYER, send={"lease": "PT20S"})
    slow = Held()
    world.wire.will(slow)
    buyer, seller = await world.both()
    await world.start(BUYER, beside=True)
    await buyer.send(M)
    await world.until(5)
    set_back(world)
    await world.until(100)
    assert len(world.wire.to(SELLER, M)) == 1
    slow.release()
    await world.until(101)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await seller.story(M)).count("delivered") == 1


@played
async def test_a_process_that_dies_is_replaced_although_the_clock_was_set(world: World) -> None:
    world.agree(retry=RETRY)
    world.configure(BUYER, send={"lease": "PT20S"})
    world.wire.will(Held())
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    await buyer.send(M)
    await world.until(5)
    set_back(world)
    await world.until(8)
    buyer.kill()
    await world.until(8 + 2 * LEASE)
    assert await other.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_clock_that_was_set_while_the_node_was_down_is_noticed_at_the_start(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    world.wire.will(lost)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(5)
    buyer.kill()
    set_back(world)
    again = await world.start(BUYER)
    await world.until(60)
    assert await again.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_pause_does_not_last_an_hour_longer(world: World) -> None:
    world.agree(retry=RETRY)
    world.configure(BUYER, send={"breaker": {"failures": 1, "pause": "PT30S"}})
    world.wire.will(refused)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(5)
    set_back(world)
    await world.until(35)
    assert await seller.inbox() == [M]
    assert await buyer.node.partners() == []


@played
async def test_messages_and_copies_are_told_apart_as_before(world: World) -> None:
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    await buyer.send("1@buyer")
    await world.until(1)
    posted = world.wire.to(SELLER, "1@buyer")[0]
    set_back(world)
    await buyer.send("2@buyer")
    await seller.receive(posted.content_type, posted.body)
    await world.until(5)
    assert await seller.inbox() == ["1@buyer", "2@buyer"]
    assert (await seller.story("1@buyer")).count("delivered") == 1


@played
async def test_order_is_kept_although_later_ones_are_earlier_by_the_clock(world: World) -> None:
    world.agree(retry=RETRY, in_order="pmode")
    world.wire.will(lost)
    buyer, seller = await world.both()
    await buyer.send("1@buyer")
    await world.until(1)
    set_back(world)
    await buyer.send("2@buyer")
    await world.until(2)
    set_back(world)
    await buyer.send("3@buyer")
    await world.until(60)
    assert await seller.inbox() == ["1@buyer", "2@buyer", "3@buyer"]


@played
async def test_a_clock_that_is_set_forward_doubles_nothing(world: World) -> None:
    world.agree(retry=RETRY)
    world.configure(BUYER, send={"lease": "PT20S"})
    slow = Held()
    world.wire.will(slow)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(5)
    world.clock.ahead += HOUR
    await world.until(60)
    assert len(world.wire.to(SELLER, M)) == 1
    slow.release()
    await world.until(61)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_store_that_is_slow_when_a_process_starts_is_no_clock_that_was_set(
    world: World,
) -> None:
    """Events that another process writes meanwhile are not ahead of the clock."""
    world.agree(retry=RETRY)
    world.wire.usual[SELLER] = lost
    first = await world.start(BUYER)
    other = await world.start(BUYER, beside=True)
    first.kill()
    store = other.node.context.store
    run = store.run_with_reserve

    async def run_slowly(step: Callable[[Transaction], T]) -> T:
        await asyncio.sleep(15)
        return await run(step)

    with patch.object(store, "run_with_reserve", run_slowly):
        starting = asyncio.create_task(world.start(BUYER))
        await world.until(10)
        await other.send(M)
        await starting
    await world.until(100)
    assert world.wire.times(M) == [10, 30, 50, 70]
