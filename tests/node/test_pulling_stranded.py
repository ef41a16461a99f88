"""Messages that wait to be pulled, and whose P-Mode was removed."""

import pytest

from postroad.store.records import State
from tests.node.collecting import collect, given, request
from tests.node.reliable import BUYER, ORDERS, SOAP, STORES, Station, World, played

M = "m@buyer"


async def without(world: World) -> Station:
    """The buyer, without what was agreed on."""
    world._pmodes[BUYER].clear()
    return await world.start_again(BUYER)


@played
async def test_what_nobody_can_pull_is_told(world: World) -> None:
    collect(world)
    buyer, _ = await world.both()
    await buyer.send(M)
    assert (await buyer.process.ask(buyer.node.health())).problems == ()
    buyer = await without(world)
    health = await buyer.process.ask(buyer.node.health())
    assert (health.ready, [ORDERS in one for one in health.problems]) == (True, [True])


@played
async def test_what_was_to_be_pulled_before_its_pmode_pushed_is_told(world: World) -> None:
    collect(world)
    buyer, _ = await world.both()
    await buyer.send(M)
    world._pmodes[BUYER].clear()
    world.agree()
    buyer = await world.start_again(BUYER)
    health = await buyer.process.ask(buyer.node.health())
    assert [ORDERS in one for one in health.problems] == [True]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_it_expires_as_was_agreed_on(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    collect(world, keep="PT2M")
    buyer, _ = await world.both()
    await buyer.send(M)
    buyer = await without(world)
    await world.wait(60)
    assert await buyer.state(M) is State.READY
    await world.wait(65)
    assert await buyer.state(M) is State.EXPIRED
    assert (await buyer.process.ask(buyer.node.health())).problems == ()


@played
async def test_it_is_offered_again_when_its_pmode_comes_back(world: World) -> None:
    collect(world, keep="PT2M")
    buyer, seller = await world.both()
    await buyer.send(M)
    agreed = list(world._pmodes[BUYER])
    await without(world)
    await world.wait(60)
    world._pmodes[BUYER].extend(agreed)
    buyer = await world.start_again(BUYER)
    assert given(await buyer.receive(SOAP, request(seller))) == M
    await world.wait(1)
    assert (await buyer.process.ask(buyer.node.health())).problems == ()
