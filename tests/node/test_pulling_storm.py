"""Pulling over a network that loses things, between nodes that are killed: once and only once."""

import random
from typing import Final

import pytest

from postroad.store.records import State
from postroad.wire.names import DEFAULT_MPC
from tests.node.collecting import collect
from tests.node.reliable import BUYER, SELLER, STORES, World, played
from tests.node.weather import FOREVER, Stormy

MESSAGES: Final = 15


@pytest.mark.parametrize("seed", range(4))
@played
async def test_everything_is_delivered_once_whatever_is_lost(world: World, seed: int) -> None:
    dice = random.Random(seed)
    world.kept_in = STORES[seed % 2]
    collect(
        world,
        scheduled=True,
        interval="PT2S",
        longest="PT5S",
        parallel=1 + seed % 3,
        retry=FOREVER,
    )
    stormy = Stormy(dice, passing=2)
    world.wire.usual[BUYER] = stormy
    await world.both()
    names = [f"{number}@buyer" for number in range(MESSAGES)]
    for name in names:
        await world.stations[BUYER].send(name)
        await world.wait(dice.random() * 4)
        if dice.random() < 0.2:
            await world.start_again(dice.choice((BUYER, SELLER)))
    stormy.calm = True
    await world.wait(120)
    buyer, seller = world.stations[BUYER], world.stations[SELLER]
    assert sorted(await seller.inbox()) == sorted(names)
    assert {await buyer.state(name) for name in names} == {State.ACKNOWLEDGED}
    waiting = await buyer.node.context.store.look(lambda reader: reader.queue(DEFAULT_MPC))
    assert waiting.count == 0
    assert await buyer.work() == await seller.work() == {}
