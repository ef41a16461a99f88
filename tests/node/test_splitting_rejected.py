"""A group that its receiver rejects after it took some of it: the message has failed, and says why.

Errors about a group as a whole name its first fragment, which was acknowledged by then.
"""

from unittest.mock import patch

import pytest

from postroad.store.interface import StoreFull
from postroad.store.records import State
from postroad.wire.content import Content, Sink
from tests.node.joining import payloads
from tests.node.reliable import BUYER, SELLER, STORES, Posted, World, lost, passed, played
from tests.node.splitting import BIG, PAYLOAD, Partner, agree, fragments, splitting

in_every_store = pytest.mark.parametrize("kept_in", STORES)


@pytest.mark.req("P2-4.6-01")
@in_every_store
@pytest.mark.parametrize("code", ["EBMS:0051", "EBMS:0053", "EBMS:0055", "EBMS:0040"])
@played
async def test_an_error_about_a_group_whose_fragments_were_acknowledged_fails_the_message(
    world: World, kept_in: str, code: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world)
    await partner.refuse(world, 1, code)
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.FAILED, code)
    assert (message.detail or "").startswith("the group of its fragments was rejected: ")
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert (await buyer.story(BIG))[-1] == "delivery_failed"
    [notice] = await buyer.node.notices()
    assert (notice.message_id, notice.error_code) == (BIG, code)
    assert await buyer.work() == {}


@played
async def test_what_is_under_way_of_a_rejected_group_is_not_sent_again(world: World) -> None:
    agree(world, splitting=splitting(join_interval="PT5S"), signed=True)
    world.configure(BUYER, send={"parallel": 1})
    buyer, seller = await world.both()
    world.wire.will(passed, passed, passed)
    world.wire.usual[SELLER] = lost
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(9)
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.FAILED, "EBMS:0051")
    posted = len(_fragments(world))
    del world.wire.usual[SELLER]
    await world.until(120)
    assert len(_fragments(world)) == posted
    assert await buyer.work() == {}
    assert await seller.work() == {}
    await buyer.node.resend(BIG)
    await world.until(130)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert await seller.inbox() == [BIG]


def _fragments(world: World) -> list[Posted]:
    return [one for one in world.wire.to(SELLER) if b"MessageFragment" in one.body]


@played
async def test_without_receipts_an_error_about_a_fragment_still_fails_the_message(
    world: World,
) -> None:
    agree(world, receipts=False, retry=None)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert await buyer.state(BIG) is State.SENT
    await partner.refuse(world, 1, "EBMS:0055")
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.FAILED, "EBMS:0055")


class _Full:
    """A sink on a disk without room."""

    def write(self, data: bytes | memoryview, /) -> None:
        raise StoreFull("no space left on device")

    def finish(self) -> Content:
        raise NotImplementedError

    def discard(self) -> None:
        pass


@in_every_store
@played
async def test_a_disk_that_is_full_while_a_fragment_comes_in_costs_that_fragment_another_attempt(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world, size="400 KB", signed=True)
    world.configure(BUYER, send={"parallel": 1})
    buyer, seller = await world.both()
    store = seller.node.context.store
    usual, sinks = store.new_sink, iter([False, True])

    def new_sink() -> Sink:
        return _Full() if next(sinks, False) else usual()

    payload = PAYLOAD * 10
    with patch.object(store, "new_sink", new_sink):
        await buyer.send(BIG, payload=payload)
        await world.until(60)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert [one.attempts for one in await fragments(buyer)] == [1, 2, 1]
    assert await payloads(seller, BIG) == [payload]
