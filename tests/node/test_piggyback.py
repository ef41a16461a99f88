"""Piggy-backing: the receipt of a pulled message rides on the next PullRequest."""

from typing import Any

import pytest

from postroad.msh.pulling import message_channel, pull_request
from postroad.node.base.requests import Response
from postroad.security.keys import KeyPair
from postroad.store.records import State
from postroad.wire.ebms3 import SignalMessage
from tests.node.collecting import collect, errors, given, request, said
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    SOAP,
    STORES,
    Held,
    Posted,
    Station,
    World,
    lost,
    passed,
    played,
    refused,
    reply_lost,
)

NAMES = ("m@buyer", "n@buyer", "o@buyer", "p@buyer")
M, N = NAMES[:2]


async def pull(seller: Station, most: int = 10) -> tuple[str, ...]:
    return (await seller.process.ask(seller.node.pull(ORDERS, most=most))).messages


async def offered(buyer: Station, *names: str) -> None:
    for name in names:
        await buyer.send(name)


def rides(world: World) -> list[Posted]:
    """The PullRequests with a receipt beside them."""
    return [one for one in world.wire.to(BUYER, "PullRequest") if b"Receipt>" in one.body]


def calls(world: World) -> list[Posted]:
    """The receipts that came by themselves."""
    return [one for one in world.wire.to(BUYER, "Receipt>") if b"PullRequest" not in one.body]


def asked(seller: Station, riding: SignalMessage, key: KeyPair | None = None) -> bytes:
    """A PullRequest with a signal beside it, perhaps signed by somebody else."""
    context = seller.node.context
    now = context.clock()
    return pull_request(
        message_channel(context.in_force.pulled[0]),
        None,
        signal_id=context.new_id(now),
        now=now,
        entropy=context.entropy,
        key=key or context.in_force.keyring.signing,
        riding=riding,
    ).envelope


async def unheard(world: World, seller: Station) -> SignalMessage:
    """The receipt of the first message: it is pulled, and then nothing reaches the buyer."""
    world.wire.will(passed, at=BUYER)
    world.wire.usual[BUYER] = refused
    assert await pull(seller, most=1) == (M,)
    await world.wait(1)
    [receipt] = said(Response(200, SOAP, calls(world)[0].body)).signals
    return receipt


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_receipts_ride_on_the_requests_that_follow(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    collect(world, piggyback=True, signed=signed)
    buyer, seller = await world.both()
    await offered(buyer, *NAMES)
    assert await pull(seller) == NAMES
    await world.wait(1)
    assert len(rides(world)) >= 2
    assert len(rides(world)) + len(calls(world)) == len(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        assert (await seller.story(name)).count("receipt_sent") == 1
    assert await seller.work() == {}


@played
async def test_a_receipt_for_which_no_request_follows_calls_back_at_once(world: World) -> None:
    collect(world, piggyback=True)
    buyer, seller = await world.both()
    await offered(buyer, M, N)
    assert await pull(seller, most=1) == (M,)
    await world.wait(1)
    assert (len(rides(world)), len(calls(world))) == (0, 1)
    assert (await buyer.state(M), await buyer.state(N)) == (State.ACKNOWLEDGED, State.READY)


@played
async def test_without_piggyback_no_receipt_rides(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await offered(buyer, *NAMES)
    await pull(seller)
    await world.wait(1)
    assert (len(rides(world)), len(calls(world))) == (0, len(NAMES))


@pytest.mark.parametrize("failure", [lost, reply_lost, refused])
@played
async def test_a_receipt_whose_request_got_no_answer_calls_back(world: World, failure: Any) -> None:
    collect(world, piggyback=True)
    buyer, seller = await world.both()
    await offered(buyer, *NAMES)

    async def broken(world: World, posted: Posted) -> Any:
        if posted in rides(world):
            world.wire.usual.clear()
            return await failure(world, posted)
        return await passed(world, posted)

    world.wire.usual[BUYER] = broken
    await pull(seller)
    assert len(rides(world)) == 1
    await world.wait(10)
    about = (
        said(Response(200, SOAP, rides(world)[0].body)).signals[-1].message_info.ref_to_message_id
    )
    assert about is not None
    assert len([one for one in calls(world) if about.encode() in one.body]) == 1
    assert await buyer.state(about) is State.ACKNOWLEDGED


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_receipt_outlives_the_process_that_was_going_to_take_it_along(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world, piggyback=True)
    buyer, seller = await world.both()
    await offered(buyer, M)
    world.wire.will(passed, Held(), at=BUYER)
    seller.process.spawn(seller.node.pull(ORDERS, most=2))
    await world.wait(2)
    assert (await buyer.state(M), calls(world)) == (State.WAITING, [])
    await world.start_again(SELLER)
    await world.wait(9)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.parametrize("signed", [False, True])
@played
async def test_what_rides_is_heard_before_the_next_message_is_handed_out(
    world: World, signed: bool
) -> None:
    collect(world, signed=signed)
    buyer, seller = await world.both()
    await offered(buyer, M, N)
    riding = await unheard(world, seller)
    assert await buyer.state(M) is State.WAITING
    assert given(await buyer.receive(SOAP, asked(seller, riding))) == N
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_receipt_that_rides_is_believed_by_the_rules_of_its_own_message(
    world: World,
) -> None:
    collect(world, signed=True)
    buyer, seller = await world.both()
    await offered(buyer, M, N)
    riding = await unheard(world, seller)
    stranger = buyer.node.context.in_force.keyring.signing
    await buyer.receive(SOAP, asked(seller, riding, key=stranger))
    assert await buyer.state(M) is State.WAITING


@played
async def test_a_receipt_is_heard_also_where_nothing_may_be_pulled(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await offered(buyer, M, N)
    riding = await unheard(world, seller)
    body = asked(seller, riding).replace(b"seller</wsse:Username", b"nobody</wsse:Username")
    assert errors(await buyer.receive(SOAP, body)) == ["EBMS:0101"]
    assert (await buyer.state(M), await buyer.state(N)) == (State.ACKNOWLEDGED, State.READY)


@played
async def test_beside_a_request_stands_one_receipt_at_most(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await offered(buyer, M, N)
    body = asked(seller, await unheard(world, seller))
    start = body.rindex(b"<eb:SignalMessage>")
    end = body.rindex(b"</eb:SignalMessage>") + len(b"</eb:SignalMessage>")
    twice = body[:end] + body[start:end].replace(b"MessageId>", b"MessageId>x", 1) + body[end:]
    assert errors(await buyer.receive(SOAP, twice)) == ["EBMS:0008"]
    assert (await buyer.state(M), await buyer.state(N)) == (State.WAITING, State.READY)
    assert given(await buyer.receive(SOAP, request(seller))) == N
