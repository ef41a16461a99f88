"""Large messages through hubs: fragments take different roads, and none of these joins them."""

import random

import pytest

from postroad.store.records import Side, State
from tests.node.hubs import FAR, NEAR, PATIENT, by_way_of, hub, rule
from tests.node.joining import payloads
from tests.node.reliable import BUYER, SELLER, STORES, World, party, passed, played, refused
from tests.node.splitting import BIG, agree, fragments, splitting

ASIDE = "aside"
"""Another hub beside the one on the usual road."""


@pytest.mark.req("P2-4.4.2-03")
@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("algorithm", ["gzip", "identity"])
@played
async def test_fragments_travel_on_different_roads_and_are_joined_by_their_receiver(
    world: World, kept_in: str, algorithm: str
) -> None:
    world.kept_in = kept_in
    terms = splitting("2000 B", compression={"algorithm": algorithm})
    agree(world, splitting=terms, signed=True, retry=PATIENT)
    by_way_of(world, NEAR)
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("over", [FAR, ASIDE], **there), rule("home", BUYER, **back))
    hub(world, FAR, rule("home", SELLER, **there))
    hub(world, ASIDE, rule("home", SELLER, **there))
    payload = random.Random(7).randbytes(9000)
    for name in (NEAR, FAR, ASIDE):
        await world.start(name)
    buyer, seller = await world.both()
    world.wire.will(passed, refused, passed, refused, at=FAR)
    await buyer.send(BIG, payload=payload)
    await world.until(30)
    assert await seller.inbox() == [BIG]
    assert await payloads(seller, BIG) == [payload]
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    names = [one.message_id for one in await fragments(buyer)]
    far, aside = await passing(world, FAR, names), await passing(world, ASIDE, names)
    assert far
    assert aside
    assert far | aside == set(names)
    for road in (NEAR, FAR, ASIDE):
        assert await world.stations[road].inbox() == []
        assert await world.stations[road].node.message(BIG) is None


async def passing(world: World, road: str, names: list[str]) -> set[str]:
    """Which of these messages a hub passed on."""
    node = world.stations[road].node
    return {one for one in names if await node.message(one, Side.FORWARDING) is not None}
