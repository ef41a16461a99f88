"""A large message leaves while it is still being compressed; its last fragment tells the count."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from postroad.msh import compression
from postroad.node.large import splitting as node_splitting
from postroad.node.large.splitting import Splitting
from postroad.store import contents
from postroad.store.fragments import compressed_form
from postroad.store.interface import StoreDamaged
from postroad.store.records import Message, State
from tests.node.collecting import collect
from tests.node.reliable import BUYER, ORDERS, SELLER, STORES, World, played
from tests.node.splitting import BIG, Partner, agree, fragments, splitting
from tests.node.test_splitting_exchange import arrives

in_every_store = pytest.mark.parametrize("kept_in", STORES)
NOISE = random.Random(7).randbytes(600_000)
SIZE, COUNT = 50_000, 13
"""Of fragments. What compresses holds back more than a hundred kilobytes, so they are large."""


@pytest.fixture(autouse=True)
def in_small_portions() -> Iterator[None]:
    with (
        patch.object(node_splitting, "_IN_PORTIONS", 100_000),
        patch.object(node_splitting, "_PORTION", 1),
        patch.object(compression, "_STRETCH", 5_000),
    ):
        yield


def compressing(algorithm: str = "gzip") -> dict[str, Any]:
    coding = {"enabled": True, "algorithm": algorithm}
    return splitting(f"{SIZE} B", compression=coding)


def stopping_after(portions: int, then: Any) -> Any:
    """`_compress_some`, and what is to happen instead of it when so many are done."""
    compress, done = Splitting._compress_some, 0

    async def some(self: Splitting, whole: Message) -> Message | None:
        nonlocal done
        if done == portions:
            await then()
        done += 1
        return await compress(self, whole)

    return patch.object(Splitting, "_compress_some", some)


async def ends_well(world: World, partner: Partner) -> None:
    buyer = world.stations[BUYER]
    assert partner.numbers == list(range(1, COUNT + 1))
    [part] = partner.joined().attachments
    assert b"".join(part.content.chunks()) == NOISE
    await partner.acknowledge(world)
    await partner.acknowledge_whole(world)
    await world.wait(1)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await buyer.work() == {}


@pytest.mark.req("P2-4.2.2-03", "P2-4.2.4-01")
@in_every_store
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@played
async def test_its_first_fragments_leave_before_the_others_are_compressed(
    world: World, kept_in: str, algorithm: str
) -> None:
    world.kept_in = kept_in
    agree(world, splitting=compressing(algorithm))
    buyer, partner = await world.start(BUYER), Partner(algorithm=algorithm)
    world.wire.usual[SELLER] = partner
    more = asyncio.Event()
    with stopping_after(2, more.wait):
        await buyer.send(BIG, payload=NOISE)
        await world.until(2)
        early = partner.numbers
        assert 0 < len(early) < COUNT
        assert partner.group is not None
        assert (partner.group.count, partner.group.algorithm) == (None, None)
        assert (partner.group.message_size or 0) > len(NOISE)
        transfer = await buyer.node.transfer(await buyer.message(BIG))
        assert transfer is not None
        assert (transfer.fragments, transfer.sent) == (None, len(early))
        assert (transfer.arrived_bytes, transfer.bytes) == (0, partner.group.message_size)
        more.set()
        await world.until(4)
    assert (partner.group.count, partner.group.algorithm) == (COUNT, algorithm)
    assert [one.fragments for one in await buyer.journal("split")] == [None]
    told = {one.fragment: one.fragments for one in await buyer.journal("sent")}
    assert (told[1], told[COUNT]) == (None, COUNT)
    assert partner.group.compressed_size == partner.group.size
    transfer = await buyer.node.transfer(await buyer.message(BIG))
    assert transfer is not None
    assert (transfer.fragments, transfer.bytes) == (COUNT, partner.group.size)
    await ends_well(world, partner)


@in_every_store
@pytest.mark.parametrize("portions", [0, 1, 3])
@played
async def test_who_dies_while_it_is_compressed_leaves_the_rest_to_the_next(
    world: World, kept_in: str, portions: int
) -> None:
    world.kept_in = kept_in
    agree(world, splitting=compressing())
    buyer, partner = await world.start(BUYER), Partner(algorithm="gzip")
    world.wire.usual[SELLER] = partner

    async def dying() -> None:
        buyer.kill()
        await asyncio.Event().wait()

    with stopping_after(portions, dying):
        await buyer.send(BIG, payload=NOISE)
        await world.until(2)
    buyer = await world.start_again(BUYER)
    await world.until(6)
    sent = [one.fragment.fragment_num for _, _, one in partner.came]
    assert sorted(set(sent)) == list(range(1, COUNT + 1))
    [part] = partner.joined().attachments
    assert b"".join(part.content.chunks()) == NOISE


@in_every_store
@played
async def test_it_is_resent_as_another_group_though_it_was_not_all_compressed(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world, splitting=compressing())
    buyer, partner = await world.start(BUYER), Partner(algorithm="gzip")
    world.wire.usual[SELLER] = partner
    more = asyncio.Event()
    with stopping_after(2, more.wait):
        await buyer.send(BIG, payload=NOISE)
        await world.until(2)
        await partner.refuse(world, 1)
        message = await buyer.message(BIG)
        assert message.state is State.FAILED
        assert (message.detail or "").startswith("fragment 1: ")
        more.set()
        await world.until(3)
    assert await buyer.work() == {}
    early = len(partner.numbers)
    assert early < COUNT
    world.wire.usual[SELLER] = second = Partner(algorithm="gzip")
    await buyer.node.resend(BIG)
    await world.until(6)
    await ends_well(world, second)
    assert len(partner.numbers) == early


@in_every_store
@played
async def test_its_compressed_form_goes_with_it(
    world: World, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "SMALL", 10_000)  # each piece has a file of its own
    world.kept_in = kept_in
    agree(world, splitting=compressing())
    buyer, partner = await world.start(BUYER), Partner(algorithm="gzip")
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=NOISE)
    await world.until(4)
    await ends_well(world, partner)
    store, pieces = buyer.node.context.store, compressed_form(await buyer.message(BIG))
    assert len(pieces) > 2
    assert sum(store.content(one).size for one in pieces) > len(NOISE)
    before = await store.look(lambda reader: reader.figures())
    assert await buyer.node.purge(0) == COUNT + 1
    after = await store.look(lambda reader: reader.figures())
    if kept_in == "sqlite":
        assert before.bytes - after.bytes > 1.5 * len(NOISE), "payload and compressed form"
    else:
        for one in pieces:
            with pytest.raises(StoreDamaged):
                store.content(one)


@played
async def test_what_cannot_be_read_any_more_fails(world: World) -> None:
    agree(world, splitting=compressing())
    buyer, partner = await world.start(BUYER), Partner(algorithm="gzip")
    world.wire.usual[SELLER] = partner

    async def damaged() -> None:
        raise StoreDamaged("the payload is not whole")

    with stopping_after(2, damaged):
        await buyer.send(BIG, payload=NOISE)
        await world.until(2)
    message = await buyer.message(BIG)
    assert message.state is State.FAILED
    assert message.detail == "it cannot be read: the payload is not whole"
    assert await buyer.work() == {}


@in_every_store
@played
async def test_it_arrives_at_a_node_that_learns_the_count_at_the_end(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world, splitting=compressing(), signed=True)
    buyer, _ = await world.both()
    await buyer.send(BIG, payload=NOISE)
    await world.until(6)
    await arrives(world, NOISE)
    assert len(await fragments(buyer)) == COUNT


@pytest.mark.req("P2-4.4.2-15")
@played
async def test_one_that_is_pulled_is_offered_while_it_is_compressed(world: World) -> None:
    collect(world, signed=True)
    for at in (BUYER, SELLER):
        world._pmodes[at][-1]["legs"][0]["splitting"] = compressing()
    buyer, seller = await world.both()
    more = asyncio.Event()
    with stopping_after(2, more.wait):
        await buyer.send(BIG, payload=NOISE)
        await world.until(2)
        await seller.process.ask(seller.node.pull(ORDERS))
        more.set()
        await world.until(4)
    for _ in range(COUNT - 1):
        await seller.process.ask(seller.node.pull(ORDERS))
    await world.until(8)
    await arrives(world, NOISE)
