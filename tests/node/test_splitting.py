"""Messages that go out in fragments: cut, written, sent, answered."""

import pytest

from postroad.agreement import loading
from postroad.store.records import State
from tests.node.reliable import BUYER, SELLER, STORES, World, played
from tests.node.splitting import BIG, PAYLOAD, Partner, agree, fragments

in_every_store = pytest.mark.parametrize("kept_in", STORES)


@pytest.fixture(autouse=True)
def _splitting_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "unsupported", lambda *_: [])


@in_every_store
@played
async def test_a_large_message_goes_in_fragments_and_is_acknowledged_as_a_whole(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner(fragment_size=30_000)
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert partner.numbers == [1, 2, 3, 4]
    assert {one.state for one in await fragments(buyer)} == {State.WAITING}
    assert await buyer.state(BIG) is State.WAITING
    [part] = partner.joined().attachments
    assert b"".join(part.content.chunks()) == PAYLOAD
    await partner.acknowledge(world)
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await buyer.state(BIG) is State.WAITING
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert await buyer.work() == {}
    assert await buyer.story(BIG) == ["submitted", "split", "sent", "receipt_received"]
