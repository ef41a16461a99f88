"""A node stops whatever it is doing in that moment."""

import asyncio

import pytest

from tests.node.reliable import BUYER, World, played


@pytest.mark.parametrize("turns", range(4))
@played
async def test_a_node_stops_while_work_comes(world: World, turns: int) -> None:
    world.agree()
    buyer = await world.start(BUYER)
    await world.wait(1)
    buyer.node.context.work_came.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await buyer.stop()
