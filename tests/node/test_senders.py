"""Messages of several senders under one id: each is taken over and answered by itself."""

from typing import Any

import pytest

from postroad.store.records import State
from tests.node.joining import payloads
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    Station,
    World,
    played,
    status,
)
from tests.node.splitting import BIG, PAYLOAD, RETRY, splitting
from tests.node.test_reliability_telling import APPLICATION

BUNDLED = {"policy": "always", "compatibility": {"pmode_list": [ORDERS]}, "max_delay": "PT5S"}


async def occupied(world: World, *ids: str, **terms: Any) -> tuple[Station, Station]:
    """A buyer and a seller who already has unsigned messages with these ids, from anybody."""
    world.agree("open")
    world.agree(signed=True, **terms)
    stranger, seller = await world.both()
    for name in ids:
        await stranger.send(name, "open")
    await world.wait(1)
    await stranger.stop()
    world._memories.pop(BUYER)
    return await world.start(BUYER), seller


async def states_of(seller: Station, name: str) -> list[tuple[str | None, State]]:
    return [(one.pmode, one.state) for one in await seller.node.received(name)]


BOTH = [("open", State.DELIVERED), (ORDERS, State.DELIVERED)]


@pytest.mark.parametrize("terms", [{}, {"receipt": "callback"}, {"strict_ack": True}])
@played
async def test_each_message_gets_its_own_receipt(world: World, terms: dict[str, Any]) -> None:
    buyer, seller = await occupied(world, "m@buyer", retry=RETRY, **terms)
    await buyer.send("m@buyer")
    await world.until(5)
    assert await buyer.state("m@buyer") is State.ACKNOWLEDGED
    assert await states_of(seller, "m@buyer") == BOTH
    assert await seller.work() == {}


@played
async def test_the_webhook_tells_messages_with_one_id_apart(world: World) -> None:
    world.configure(SELLER, webhook={"url": f"http://{APPLICATION}.example/"})
    world.wire.usual[APPLICATION] = status(204)
    buyer, seller = await occupied(world, "m@buyer")
    await buyer.send("m@buyer")
    await world.wait(5)
    calls = [one.told for one in world.wire.to(APPLICATION)]
    known = [(one.pmode, str(one.key)) for one in await seller.node.received("m@buyer")]
    assert [(one["pmode"], one["cursor"]) for one in calls] == known


@played
async def test_units_of_a_bundle_are_taken_although_some_ids_are_used(world: World) -> None:
    buyer, seller = await occupied(world, "b@buyer", retry=RETRY, bundling=BUNDLED)
    for name in ("a@buyer", "b@buyer"):
        await buyer.send(name)
    await world.until(10)
    assert await buyer.state("a@buyer") is State.ACKNOWLEDGED
    assert await buyer.state("b@buyer") is State.ACKNOWLEDGED
    assert await states_of(seller, "b@buyer") == BOTH
    [posted] = world.wire.to(SELLER, "a@buyer")
    await seller.receive(posted.content_type, posted.body)
    assert (await seller.story("b@buyer")).count("duplicate") == 1
    assert (await seller.story("b@buyer")).count("delivered") == 2


@played
async def test_message_in_fragments_is_joined_although_its_id_is_used(world: World) -> None:
    buyer, seller = await occupied(
        world, BIG, receipt="callback", retry=RETRY, splitting=splitting("30000 B")
    )
    await buyer.send(BIG, ORDERS, PAYLOAD)
    await world.until(10)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert await states_of(seller, BIG) == BOTH
    second = (await seller.node.received(BIG))[1]
    assert await payloads(seller, second.message_id) == [PAYLOAD]


@played
async def test_a_copy_is_known_after_its_pmode_was_renamed(world: World) -> None:
    buyer, seller = await occupied(world, "m@buyer")
    await buyer.send("m@buyer")
    await world.wait(1)
    posted = world.wire.to(SELLER, "m@buyer")[-1]
    await seller.stop()
    world._pmodes[SELLER][-1]["id"] = "orders-renamed"
    seller = await world.start(SELLER)
    await seller.receive(posted.content_type, posted.body)
    assert (await seller.story("m@buyer")).count("delivered") == 2
    assert (await seller.story("m@buyer"))[-1] == "duplicate"
