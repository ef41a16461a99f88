"""Bundles in fragments over a network that loses things, between nodes that are killed."""

import random
from typing import Any, Final

import pytest

from postroad.store.records import Side, State, Wanted
from tests.node.bundled import UPDATES, bundling
from tests.node.collecting import collect
from tests.node.joining import payloads
from tests.node.reliable import BUYER, SELLER, STORES, World, played
from tests.node.splitting import agree, splitting
from tests.node.weather import FOREVER, Stormy

MESSAGES: Final = 14


def agreed(world: World, seed: int) -> None:
    """Bundles are pushed or pulled, and split where they are larger than a fragment."""
    company = bundling(max_size="64 KiB", max_delay="PT6S")
    if seed % 2:
        agree(world, UPDATES, "9000 B", retry=FOREVER, bundling=company)
        return
    how: dict[str, Any] = {"interval": "PT4S", "longest": "PT6S", "parallel": 1 + seed % 3}
    collect(world, UPDATES, bundling=company, retry=FOREVER, scheduled=True, **how)
    for at in (BUYER, SELLER):
        world._pmodes[at][-1]["legs"][0]["splitting"] = splitting("9000 B")


@pytest.mark.parametrize("seed", range(4))
@played
async def test_every_unit_is_delivered_once_whatever_is_lost(world: World, seed: int) -> None:
    dice = random.Random(seed)
    world.kept_in = STORES[seed // 2 % 2]
    agreed(world, seed)
    stormy = Stormy(dice, passing=3)
    world.wire.usual = {BUYER: stormy, SELLER: stormy}
    await world.both()
    contents = {
        f"{number}@buyer": bytes([number]) * dice.choice((50, 4_000, 7_000, 20_000))
        for number in range(MESSAGES)
    }
    for name, content in contents.items():
        await world.stations[BUYER].send(name, UPDATES, content)
        await world.wait(dice.random() * 3)
        if dice.random() < 0.2:
            await world.start_again(dice.choice((BUYER, SELLER)))
    stormy.calm = True
    await world.wait(200)
    buyer, seller = world.stations[BUYER], world.stations[SELLER]
    assert sorted(await seller.inbox()) == sorted(contents)
    assert {await buyer.state(name) for name in contents} == {State.ACKNOWLEDGED}
    for name, content in contents.items():
        assert await payloads(seller, name) == [content]
    sent = await buyer.node.messages(Wanted(Side.SENDING))
    assert any(one.bundle is not None and one.split is not None for one in sent)
    assert await buyer.work() == await seller.work() == {}
