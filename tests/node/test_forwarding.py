"""Store and forward: what two hubs in a row do with messages that are not for them."""

import pytest

from postroad.store.records import State
from tests.node.hubs import FAR, NEAR, road
from tests.node.reliable import LARGE, SELLER, STORES, World, played

M = "m@buyer"


@pytest.mark.req("P2-2.4.1-01", "P2-2.4.3-01", "P2-2.4.5-01", "P2-2.4.5-03", "P2-2.5.1-01")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_two_hubs_pass_on_every_byte_and_the_signature_holds(
    world: World, kept_in: str, payload: bytes
) -> None:
    world.kept_in = kept_in
    road(world)
    buyer, seller = await world.both()
    near, far = await world.start(NEAR), await world.start(FAR)
    await buyer.send(M, payload=payload)
    await world.wait(5)
    [first], [second], [third] = (
        [one for one in world.wire.to(name) if one.content_type.startswith("multipart")]
        for name in (NEAR, FAR, SELLER)
    )
    assert (first.body, first.content_type) == (second.body, second.content_type)
    assert (second.body, second.content_type) == (third.body, third.content_type)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    for station in (near, far):
        assert await station.story(M) == ["received", "forwarded"]
        assert (await station.message(M)).state is State.SENT
        assert await station.work() == {}
    peers = [one.peer for one in await near.events(M)]
    assert peers == ["192.0.2.1", "http://far.example/msh"]
