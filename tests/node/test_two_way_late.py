"""A reply that is late goes by the alternate binding (Part 2, 5.2)."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from postroad.node.service import Refused
from postroad.store.records import Side, State
from tests.node.asking import LATE, PRICES, REPLIES, Q, R, ask, reply
from tests.node.collecting import errors
from tests.node.reliable import (
    BUYER,
    LARGE,
    SELLER,
    STORES,
    Station,
    World,
    ebms_error,
    played,
    reply_lost,
    status,
)
from tests.node.test_two_way_sync import Recorded, body_of

PULLED = {"scheduled": True, "interval": "PT10S", "growth": 2, "longest": "PT1M"}


async def late(world: World) -> tuple[Station, Station]:
    """The buyer asked, and the seller's application says nothing in time."""
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(5)
    return buyer, seller


@pytest.mark.req("P2-5.2-04", "P2-5.2-05", "P2-5.2-06", "P2-5.2-07", "P2-5.2-08", "P2-5.2-09")
@pytest.mark.req("P2-5.2-10", "P2-6.12-01", "P2-7.3-03")
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_late_reply_is_pulled_from_the_alternate_channel(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    ask(world, "sync", alternate="pushAndPull", signed=signed, **PULLED)
    said = Recorded()
    world.wire.usual[SELLER] = said
    buyer, seller = await late(world)
    assert await buyer.state(Q) is State.ACKNOWLEDGED
    assert b"EBMS:0060" in said.bodies[0]
    assert b"Receipt" in said.bodies[0]
    [told] = [one for one in await buyer.events(Q) if one.event == "error_received"]
    assert (told.error_code, told.severity) == ("EBMS:0060", "warning")
    [raised] = await seller.journal("error_raised")
    assert (raised.error_code, raised.severity) == ("EBMS:0060", "warning")
    await world.until(16)
    await reply(seller)
    assert (await seller.message(R)).channel == LATE
    await world.until(120)
    assert await buyer.inbox() == [R]
    given = await buyer.message(R)
    assert (given.leg, given.ref_to_message_id, given.mpc) == (2, Q, LATE)
    assert await seller.state(R) is State.ACKNOWLEDGED
    assert (await buyer.message(Q)).reply_message_id == R
    [*pulls, _] = world.wire.to(SELLER, "<eb:PullRequest")
    assert all(f"<eb:RefToMessageId>{Q}<".encode() in one.body for one in pulls)
    waits = [round(two.at - one.at) for one, two in pairwise(pulls)]
    assert waits == sorted(waits), "each time it waits longer"
    assert await buyer.work() == await seller.work() == {}


@pytest.mark.req("P2-5.2-02")
@played
async def test_without_a_channel_of_their_own_late_replies_are_in_that_of_replies(
    world: World,
) -> None:
    ask(world, "sync", alternate="pushAndPull", late=None, **PULLED)
    buyer, seller = await late(world)
    await reply(seller)
    assert (await seller.message(R)).channel == REPLIES
    await world.until(60)
    assert (await buyer.inbox(), (await buyer.message(R)).mpc) == ([R], REPLIES)


@pytest.mark.req("P2-5.2-03")
@played
async def test_a_late_reply_is_not_for_somebody_without_credentials(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    buyer, seller = await late(world)
    world._pmodes[BUYER][0]["initiator"]["authorization"] = {"username": "buyer", "password": "?"}
    world._write(BUYER)
    assert (await buyer.node.reload()).ok
    await reply(seller)
    await world.until(60)
    assert await buyer.inbox() == []
    assert "EBMS:0101" in [one.error_code for one in await seller.journal("error_raised")]


@played
async def test_a_late_reply_is_asked_for_by_who_starts_again(world: World) -> None:
    world.kept_in = "sqlite"
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    buyer, seller = await late(world)
    buyer.kill()
    seller.kill()
    seller = await world.start(SELLER)
    await reply(seller)
    buyer = await world.start(BUYER)
    await world.until(60)
    assert await buyer.inbox() == [R]


@played
async def test_a_lost_word_that_the_reply_is_late_comes_again_with_the_copy(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    world.wire.will(reply_lost)
    buyer, seller = await late(world)
    [posted] = world.wire.to(SELLER)
    letter = (posted.content_type, posted.body)
    copies = [body_of(await seller.receive(*letter)) for _ in range(2)]
    assert copies[0] == copies[1]
    assert errors(await seller.receive(*letter)) == ["EBMS:0060"]
    await reply(seller)
    assert body_of(await seller.receive(*letter)) == copies[0], "also when the reply is there"
    await world.until(90)
    assert await buyer.inbox() == [R]
    assert await buyer.state(Q) is State.ACKNOWLEDGED


@pytest.mark.parametrize("receipt", [None, "callback"])
@played
async def test_a_request_whose_reply_is_late_has_not_failed(
    world: World, receipt: str | None
) -> None:
    ask(world, "sync", alternate="pushAndPull", receipts=(receipt, None), retry=None, **PULLED)
    for one in (BUYER, SELLER) if receipt else ():
        asked = world._pmodes[one][0]["legs"][0]["security"]["send_receipt"]
        asked["reply_to"] = "http://buyer.example/msh"
    buyer, seller = await late(world)
    assert await buyer.state(Q) is (State.ACKNOWLEDGED if receipt else State.SENT)
    await reply(seller)
    await world.until(60)
    assert await buyer.inbox() == [R]


@played
async def test_a_late_reply_is_pushed_where_that_is_the_alternate(world: World) -> None:
    ask(world, "sync", alternate="pushAndPush")
    buyer, seller = await late(world)
    await reply(seller)
    await world.wait(2)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED
    assert world.wire.to(BUYER, "UserMessage")
    assert await buyer.work() == {}


@played
async def test_only_when_asked_it_is_pulled_by_hand(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull")
    buyer, seller = await late(world)
    await reply(seller)
    await world.until(300)
    assert await buyer.inbox() == []
    await buyer.process.ask(buyer.node.pull(PRICES, most=10))
    await world.wait(2)
    assert await buyer.inbox() == [R]


@played
async def test_without_an_alternate_such_a_word_is_an_error_like_others(world: World) -> None:
    ask(world, "sync", retry=None)
    said = ebms_error("EBMS:0060", Q, "e@seller")
    world.wire.will(status(200, said))
    buyer, _ = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    assert await buyer.state(Q) is State.IN_DOUBT
    assert not (await buyer.message(Q, Side.SENDING)).late
    assert await buyer.work() == {}


@played
async def test_a_reply_in_the_last_moment_goes_one_way_only(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    for number, moment in enumerate((2.9, 2.99, 3.0, 3.01)):
        name = f"q{number}@buyer"
        began = asyncio.get_running_loop().time()
        await buyer.send(name, PRICES)
        while asyncio.get_running_loop().time() < began + moment:
            await world.wait(0.01)
        await reply(seller, f"r{number}@seller", to=name)
    await world.wait(120)
    assert sorted(await buyer.inbox()) == [f"r{number}@seller" for number in range(4)]
    for number in range(4):
        assert await seller.state(f"r{number}@seller") is State.ACKNOWLEDGED


@played
async def test_a_late_request_has_one_reply_too(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    _, seller = await late(world)
    await reply(seller)
    with pytest.raises(Refused, match="was answered already"):
        await reply(seller, "r2@seller")


@played
async def test_a_reply_that_is_overtaken_while_it_is_made_goes_the_other_way(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    submitting: Any = seller.node._submitting
    package, made = submitting._package, 0

    async def slowly(given: Any) -> Any:
        nonlocal made
        made += 1
        await asyncio.sleep(3 if made == 1 else 0)
        return await package(given)

    submitting._package = slowly
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    assert (made, (await seller.message(R)).channel) == (2, LATE)
    await world.wait(60)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED


@played
async def test_a_reply_that_is_given_in_time_may_be_packaged_after_it(world: World) -> None:
    ask(world, "sync", alternate="pushAndPull", **PULLED)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    performers: Any = seller.node._loop._performers
    package = performers["package"]

    async def slowly(work: Any) -> None:
        await world.wait(2)
        await package(work)

    performers["package"] = slowly
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller, payload=LARGE)
    while not await buyer.inbox():
        await world.wait(0.1)
    assert not (await seller.message(Q)).late
    assert len(world.wire.to(SELLER, "<eb:PullRequest")) == 0
