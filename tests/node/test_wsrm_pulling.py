"""Reliable pulling: PullRequests in a sequence, messages in the one that it offers."""

from typing import Any

import pytest

from postroad.node.service import Refused
from postroad.node.steps import wsrm_pull_states as pulls
from postroad.store.records import State
from postroad.wire.wsrm import CreateSequence
from postroad.wire.wsrm_reader import read_lifecycle
from tests.node.collecting import MPC, collect, errors, request
from tests.node.hubs import NEAR, hub, rule
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    World,
    address,
    lost,
    party,
    played,
    reply_lost,
)
from tests.node.sequences import RETRY, envelope_of, headers_of, kind_of, kinds, unless

M = [f"m{n}@buyer" for n in range(6)]


def agree(world: World, *, in_order: bool = False, retry: Any = RETRY, **more: Any) -> None:
    """The seller pulls orders of the buyer's in a sequence."""
    collect(world, retry=None, **more)
    for station in (BUYER, SELLER):
        leg = world._pmodes[station][-1]["legs"][0]
        leg["security"]["send_receipt"]["enabled"] = False
        leg["reliability"] = {
            "protocol": "wsrm",
            "at_least_once": {"contract": True},
            "at_most_once": True,
            "in_order": in_order,
            "retry": retry,
        }


def unreliably(world: World, *stations: str) -> None:
    """Somebody's PullRequests are in no sequence."""
    for station in stations:
        leg = world._pmodes[station][-1]["legs"][0]
        contract = {"enabled": True, "reliable_pull": False, "acks_to": "http://hub.example/"}
        leg["reliability"]["at_least_once"] = {"contract": contract, "reply_pattern": "Callback"}


async def pull(world: World, most: int = 1) -> tuple[str, ...]:
    seller = world.stations[SELLER]
    return (await seller.process.ask(seller.node.pull(ORDERS, most=most))).messages


def asked(world: World) -> list[int]:
    """The numbers of the PullRequests that were posted."""
    found = [headers_of(one) for one in world.wire.to(BUYER) if kind_of(one) == "message"]
    return [one.sequence.message_number for one in found if one and one.sequence]


@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.req("P2-6.6.2-01", "P2-2.8.3-01")
@played
async def test_a_pull_request_goes_in_a_sequence_that_offers_one_for_messages(
    world: World, kept_in: str, signed: bool, soap: str
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed, soap=soap)
    buyer, seller = await world.both()
    for one in M[:3]:
        await buyer.send(one)
    assert await pull(world, most=5) == tuple(M[:3])
    await world.wait(1)
    assert await seller.inbox() == M[:3]
    assert [await buyer.state(one) for one in M[:3]] == [State.ACKNOWLEDGED] * 3
    assert kinds(world, BUYER)[0] == "CreateSequence"
    made, _ = read_lifecycle(envelope_of(world.wire.to(BUYER)[0]))
    assert isinstance(made, CreateSequence)
    assert made.offer is not None
    assert asked(world)[:3] == [1, 2, 3]
    assert await buyer.story(M[0]) == ["submitted", "queued", "sent", "ack_received"]
    assert await seller.story(M[0]) == ["pulled", "received", "delivered", "acked"]


@played
async def test_a_request_that_was_not_answered_comes_again_and_gets_the_same_message(
    world: World,
) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await buyer.send(M[1])
    world.wire.usual[BUYER] = unless(lambda one: kind_of(one) == "message", reply_lost)
    assert await pull(world) == ()
    world.wire.usual.clear()
    assert await pull(world) == (M[0],)
    assert asked(world) == [1, 1]
    await world.wait(1)
    assert await seller.inbox() == [M[0]]
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert (await buyer.message(M[0])).attempts == 2
    assert (await buyer.message(M[1])).attempts == 0


@played
async def test_a_request_that_is_lost_is_sent_again_under_its_number(world: World) -> None:
    agree(world)
    buyer, _ = await world.both()
    await buyer.send(M[0])
    world.wire.usual[BUYER] = unless(lambda one: kind_of(one) == "message", lost)
    assert await pull(world) == ()
    world.wire.usual.clear()
    assert await pull(world) == (M[0],)
    assert asked(world) == [1, 1]


@played
async def test_who_pulls_goes_on_with_its_numbers_after_a_restart(world: World) -> None:
    world.kept_in = "sqlite"
    agree(world)
    buyer, _ = await world.both()
    await buyer.send(M[0])
    await buyer.send(M[1])
    assert await pull(world) == (M[0],)
    await world.start_again(SELLER)
    assert await pull(world) == (M[1],)
    assert asked(world) == [1, 2]
    assert kinds(world, BUYER).count("CreateSequence") == 1


@played
async def test_an_acknowledgement_that_was_lost_comes_with_the_next_request(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    world.wire.usual[BUYER] = unless(lambda one: kind_of(one) == "ack", lost)
    assert await pull(world) == (M[0],)
    assert await buyer.state(M[0]) is State.WAITING
    assert await pull(world) == ()
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[0]]


@played
async def test_a_pulled_message_that_is_not_acknowledged_is_offered_again_with_its_number(
    world: World,
) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    for one in M[:2]:
        await buyer.send(one)
    world.wire.usual[BUYER] = unless(lambda one: kind_of(one) == "message", reply_lost)
    assert await pull(world) == ()
    world.wire.usual.clear()
    seller = await world.start_again(SELLER)
    assert await pull(world, most=5) == tuple(M[:2])
    assert await seller.inbox() == M[:2]
    assert asked(world)[:2] == [1, 1]


@pytest.mark.req("P2-6.6.2-01")
@played
async def test_a_request_in_no_sequence_is_refused(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    unreliably(world, SELLER)
    seller = await world.start_again(SELLER)
    response = await buyer.receive("application/soap+xml", request(seller))
    assert errors(response) == ["EBMS:0010"]
    assert (await buyer.message(M[0])).attempts == 0


@pytest.mark.req("P2-2.8.3-02", "P2-2.8.3-03")
@played
async def test_without_reliable_pull_requests_are_in_no_sequence(world: World) -> None:
    agree(world)
    unreliably(world, BUYER, SELLER)
    buyer, _ = await world.both()
    with pytest.raises(Refused, match="reliable_pull"):
        await buyer.send(M[0])
    assert await pull(world) == ()
    assert kinds(world, BUYER) == ["message"]
    assert headers_of(world.wire.to(BUYER)[0]) is None


@played
async def test_a_sequence_that_the_partner_forgot_is_made_anew_and_nothing_is_lost(
    world: World,
) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    assert await pull(world) == (M[0],)
    identifier = headers_of(world.wire.to(BUYER)[1]).sequence.identifier  # type: ignore[union-attr]
    now = world.clock()
    await buyer.node.context.store.run(lambda tx: pulls.forget_asked(tx, identifier, now))
    await buyer.send(M[1])
    assert await pull(world) == ()
    assert await pull(world) == (M[1],)
    assert await seller.inbox() == M[:2]
    await world.wait(1)
    assert await buyer.state(M[1]) is State.ACKNOWLEDGED
    assert kinds(world, BUYER).count("CreateSequence") == 2


@played
async def test_a_message_that_is_given_up_lets_the_others_pass(world: World) -> None:
    agree(world, in_order=True, retry={"max_retries": 0, "timeout": "PT5S", "period": "PT10S"})
    buyer, seller = await world.both()
    for one in M[:2]:
        await buyer.send(one)
    for number in range(2):
        world.wire.usual[BUYER] = unless(lambda one: kind_of(one) == "message", reply_lost)
        assert await pull(world) == (), number
    world.wire.usual.clear()
    await world.wait(60)
    assert await buyer.state(M[0]) is State.IN_DOUBT
    await buyer.send(M[2])
    await pull(world, most=5)
    await pull(world, most=5)
    assert await seller.inbox() == M[1:3]


@played
async def test_a_stranger_cannot_pull_in_the_sequence_of_another(world: World) -> None:
    agree(world, signed=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    assert await pull(world) == (M[0],)
    await buyer.send(M[1])
    again = next(one for one in world.wire.to(BUYER) if kind_of(one) == "message")
    response = await buyer.receive(again.content_type, again.body)
    assert errors(response) == ["EBMS:0101"]
    assert (await buyer.message(M[1])).attempts == 0
    assert await seller.inbox() == [M[0]]


def relay(name: str, to: str, **match: Any) -> dict[str, Any]:
    return {"id": name, "match": match, "to": {"relay": [address(to)]}}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.req("P2-2.8.3-01")
@played
async def test_from_end_to_end_messages_are_pulled_reliably_through_a_hub(
    world: World, signed: bool
) -> None:
    agree(world, signed=signed, mpc=MPC)
    for station in (BUYER, SELLER):
        leg = world._pmodes[station][0]["legs"][0]
        leg["addressing"] = {"address": "icloud"}
    world._pmodes[SELLER][0]["legs"][0]["protocol"]["address"] = address(NEAR)
    about = rule("about", BUYER, to_party=party(BUYER), action=ORDERS)
    about["to"] = {"push": about["to"]["push"], "forward": "sync"}
    hub(world, NEAR, relay("over", BUYER, action=f"{ORDERS}.pull"), about)
    await world.start(NEAR)
    buyer, seller = await world.both()
    for one in M[:2]:
        await buyer.send(one)
    world.wire.usual[NEAR] = unless(lambda one: kind_of(one) == "message", reply_lost)
    assert await pull(world) == ()
    world.wire.usual.clear()
    assert await pull(world, most=2) == tuple(M[:2])
    await world.wait(1)
    assert await seller.inbox() == M[:2]
    assert [await buyer.state(one) for one in M[:2]] == [State.ACKNOWLEDGED] * 2
    assert {one.sender for one in world.wire.to(BUYER)} == {NEAR}


@played
async def test_acknowledgements_go_to_no_address_that_only_the_partner_names(world: World) -> None:
    """The answer to CreateSequence names one; the agreement does not."""
    agree(world)
    [leg] = world._pmodes[BUYER][-1]["legs"]
    leg["protocol"]["address"] = address("victim")
    buyer, seller = await world.both()
    await buyer.send(M[0])
    assert await pull(world, most=5) == (M[0],)
    await world.wait(5)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert world.wire.to("victim") == []
    assert await seller.inbox() == [M[0]]
