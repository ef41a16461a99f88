"""A sender that dies, stumbles or stops in the midst of its fragments goes on where it was."""

import asyncio
from unittest.mock import patch

import pytest

from postroad.node.large import splitting as node_splitting
from postroad.node.large.fragmenting import Fragmenting
from postroad.node.large.splitting import Splitting
from postroad.store.interface import StoreFull
from postroad.store.records import Message, State
from tests.node.reliable import BUYER, SELLER, STORES, Held, Station, World, failing, played
from tests.node.splitting import BIG, PAYLOAD, RETRY, Partner, agree, fragments

in_every_store = pytest.mark.parametrize("kept_in", STORES)


async def ends_well(world: World, partner: Partner) -> None:
    """All answers come, and everything is at rest."""
    buyer = world.stations[BUYER]
    await partner.acknowledge(world)
    await partner.acknowledge_whole(world)
    await world.wait(1)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await buyer.work() == {}


@in_every_store
@pytest.mark.parametrize("written", [0, 1, 3])
@played
async def test_who_dies_while_fragments_are_written_leaves_the_others_to_the_next(
    world: World, kept_in: str, written: int
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    write, done = Splitting._write_some, 0

    async def dying(self: Splitting, *given: object) -> Message | None:
        nonlocal done
        if done == written:
            buyer.kill()
            await asyncio.Event().wait()
        done += 1
        return await write(self, *given)  # type: ignore[arg-type]

    with patch.object(node_splitting, "AT_ONCE", 1):
        with patch.object(Splitting, "_write_some", dying):
            await buyer.send(BIG, payload=PAYLOAD)
            await world.until(2)
        assert len(partner.numbers) <= written
        buyer = await world.start_again(BUYER)
        await world.until(4)
    assert partner.numbers == [1, 2, 3, 4]
    assert [one.fragment for one in await fragments(buyer)] == [1, 2, 3, 4]
    await ends_well(world, partner)


@in_every_store
@played
async def test_who_dies_while_sending_sends_again_what_was_under_way_and_nothing_else(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    world.configure(BUYER, send={"parallel": 1})
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    world.wire.will(partner, partner, Held(partner))
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert partner.numbers == [1, 2]
    await partner.acknowledge(world)
    cut = world.wire.posted[-1]
    await world.start_again(BUYER)
    await world.until(4)
    assert partner.numbers == [1, 2, 3, 4]
    again = partner.came[2][0]
    assert (again.content_type, again.body) == (cut.content_type, cut.body)
    await ends_well(world, partner)


@played
async def test_a_fragment_that_was_not_made_when_its_sender_died_never_left(world: World) -> None:
    agree(world)
    world.configure(BUYER, send={"parallel": 1})
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner

    async def dying(*_: object) -> None:
        buyer.kill()
        await asyncio.Event().wait()

    with patch.object(Fragmenting, "ready", dying):
        await buyer.send(BIG, payload=PAYLOAD)
        await world.until(2)
    buyer = await world.start_again(BUYER)
    await world.until(4)
    assert partner.numbers == [1, 2, 3, 4]
    first = (await fragments(buyer))[0]
    assert (first.attempts, await buyer.story(first.message_id)) == (1, ["sent"])
    await ends_well(world, partner)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    "step", ["_keep_cut", "_write_some", "ready", "_look", "attempted_unit", "_written"]
)
@played
async def test_no_step_that_cannot_be_stored_harms_it(world: World, step: str, kept: bool) -> None:
    agree(world, retry=RETRY | {"max_retries": 50})
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    full = StoreFull("the disk is full")
    with failing(buyer.node.context.store, full, kept=kept, about=step, times=2):
        await buyer.send(BIG, payload=PAYLOAD)
        await world.until(5)
    await world.until(200)
    assert sorted(set(partner.numbers)) == [1, 2, 3, 4]
    assert len(partner.data) == 4
    await ends_well(world, partner)


@played
async def test_a_node_that_stops_finishes_what_is_under_way_and_the_next_goes_on(
    world: World,
) -> None:
    agree(world)
    world.configure(BUYER, send={"parallel": 1})
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    hold = Held(partner)
    world.wire.will(partner, hold)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    stopping = asyncio.ensure_future(_stopped(buyer))
    await world.until(3)
    hold.release()
    await stopping
    assert partner.numbers == [1, 2]
    await world.start(BUYER)
    await world.until(5)
    assert partner.numbers == [1, 2, 3, 4]
    await ends_well(world, partner)


async def _stopped(station: Station) -> None:
    await station.stop()


@in_every_store
@played
async def test_two_processes_of_a_node_share_the_fragments(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world, size="5000 B")
    buyer = await world.start(BUYER)
    await world.start(BUYER, beside=True)
    partner = Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(5)
    assert sorted(partner.numbers) == list(range(1, 22))
    await ends_well(world, partner)
