"""Pull on pull: a PullRequest goes through two hubs to who has the messages (2.4.7.2, case 3a)."""

from typing import Any

import pytest

from postroad.msh.forwarding import read_routable
from postroad.store.records import State
from postroad.wire.multihop import RoutingUserMessage
from postroad.wire.names import NEXT_MSH, ONE_WAY
from tests.node.collecting import MPC, collect, errors, request
from tests.node.hubs import FAR, NEAR, hub, rule
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    ORDERS,
    SELLER,
    SOAP,
    Station,
    World,
    address,
    lost,
    party,
    played,
    refused,
)

M = "m@buyer"


def relay(name: str, *to: str, **match: Any) -> Any:
    return {"id": name, "match": match, "to": {"relay": [address(one) for one in to]}}


def road(world: World, *, signed: bool = False, **more: Any) -> None:
    """The seller pulls from far, far from near, near from the buyer."""
    collect(world, mpc=MPC, signed=signed, **more)
    for at in (BUYER, SELLER):
        [leg] = world._pmodes[at][0]["legs"]
        leg["protocol"]["add_actor_or_role_attribute"] = True
        leg["security"]["send_receipt"]["reply_to"] = address(BUYER)
        if at == SELLER:
            leg["protocol"]["address"] = address(FAR)
    hub(world, FAR, relay("over", NEAR, mpc=MPC))
    hub(world, NEAR, relay("home", BUYER, mpc=MPC))


async def start(world: World) -> tuple[Station, Station, Station, Station]:
    buyer, seller = await world.both()
    return buyer, await world.start(NEAR), await world.start(FAR), seller


async def pull(seller: Station) -> tuple[str, ...]:
    return (await seller.process.ask(seller.node.pull(ORDERS))).messages


@pytest.mark.req("P2-2.5.5-14", "P2-2.5.1-02", "P2-2.5.2-03", "P2-2.4.3-01")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@played
async def test_a_signed_message_is_pulled_through_two_hubs(world: World, payload: bytes) -> None:
    road(world, signed=True)
    buyer, near, far, seller = await start(world)
    assert await pull(seller) == ()
    await buyer.send(M, payload=payload)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    asked = [
        [one.body for one in world.wire.to(name, "PullRequest")] for name in (FAR, NEAR, BUYER)
    ]
    assert asked[0] == asked[1] == asked[2]
    assert NEXT_MSH.encode() in asked[0][0]
    for station, before, after in ((near, BUYER, "192.0.2.1"), (far, NEAR, "192.0.2.1")):
        events = await station.events(M)
        assert [one.event for one in events] == ["received", "forwarded"]
        assert [one.peer for one in events] == [address(before), after]
        assert await station.node.message(M) is None


@played
async def test_the_sender_alone_says_who_may_pull(world: World) -> None:
    road(world)
    world._pmodes[SELLER][0]["initiator"]["authorization"] = {"username": "x", "password": "y"}
    buyer, _, far, seller = await start(world)
    await buyer.send(M)
    answer = await far.receive(SOAP, request(seller))
    assert answer.flow is not None
    body = b"".join([piece async for piece in answer.flow.pieces])
    await answer.flow.end()
    assert b"EBMS:0101" in body
    assert await buyer.state(M) is State.READY


@pytest.mark.req("P2-2.5.6-08")
@played
async def test_a_next_msh_that_is_away_is_told_to_who_pulls(world: World) -> None:
    road(world)
    *_, far, seller = await start(world)
    world.wire.usual[NEAR] = refused
    assert errors(await far.receive(SOAP, request(seller))) == ["EBMS:0005"]
    world.wire.usual[NEAR] = lost
    answer = await far.receive(SOAP, request(seller))
    assert (answer.status, errors(answer)) == (502, ["EBMS:0004"])


@played
async def test_a_request_for_another_channel_is_answered_here(world: World) -> None:
    road(world)
    hub(world, FAR, relay("over", CARRIER, mpc="http://other.example/mpc"))
    *_, far, seller = await start(world)
    assert errors(await far.receive(SOAP, request(seller))) == ["EBMS:0101"]
    assert world.wire.to(CARRIER) == []


@played
async def test_a_message_that_only_a_relay_matches_has_no_way(world: World) -> None:
    world.agree(retry=None)
    for pmode in world._pmodes[BUYER]:
        [leg] = pmode["legs"]
        leg["protocol"] |= {"add_actor_or_role_attribute": True, "address": address(NEAR)}
    hub(world, NEAR, relay("all", FAR), rule("never", FAR, to_party=party(CARRIER)))
    buyer, _ = await world.both()
    await world.start(NEAR)
    await buyer.send(M)
    await world.wait(2)
    assert (await buyer.message(M)).error_code == "EBMS:0020"


@played
async def test_a_circle_of_relays_ends(world: World) -> None:
    road(world)
    hub(world, NEAR, relay("back", FAR, mpc=MPC))
    *_, far, seller = await start(world)
    answer = await far.receive(SOAP, request(seller))
    assert answer.flow is not None
    assert b"EBMS:0101" in b"".join([piece async for piece in answer.flow.pieces])
    assert len(world.wire.to(NEAR)) == 1


@pytest.mark.req("P2-2.6.1-01", "P2-2.6.1-03", "P2-2.6.1-04", "P2-2.6.1-05", "P2-2.6.1-06")
@pytest.mark.req("P2-2.5.5-09", "P2-2.4.7.2-01", "P2-2.4.7.2-02", "P2-2.4.5-06")
@played
async def test_a_pull_request_is_relayed_by_its_routing_input(world: World) -> None:
    road(world, signed=True)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["legs"][0]["addressing"] = {"address": "icloud"}
    asked = {"to_party": party(BUYER), "action": f"{ORDERS}.pull"}
    hub(world, FAR, relay("over", NEAR, **asked))
    hub(world, NEAR, relay("home", BUYER, **asked))
    buyer, _, _, seller = await start(world)
    await buyer.send(M)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    [first] = world.wire.to(FAR, "PullRequest")
    [last] = world.wire.to(BUYER, "PullRequest")
    assert first.body == last.body
    found = read_routable(first.body)
    assert found.by == "RoutingInput"
    assert found.messaging is not None
    assert found.messaging.role is None, "the signal itself is for the ultimate receiver"
    asking = found.messaging.signals[0].pull_request
    assert asking is not None
    assert asking.mpc == MPC
    assert isinstance(found.input, RoutingUserMessage)
    assert (str(found.input.from_party), found.input.mpc) == (party(SELLER), None)
    assert found.addressing is not None
    assert found.addressing.action == f"{ONE_WAY}.pull"


@played
async def test_what_the_epr_of_a_leg_says_comes_before_what_is_inferred(world: World) -> None:
    road(world)
    business = {"service": "urn:example:post", "action": "collect"}
    for at in (BUYER, SELLER):
        addressing = {"epr": {"routing_input": {"business_info": business}}}
        world._pmodes[at][0]["legs"][0]["addressing"] = addressing
    hub(world, FAR, relay("over", NEAR, action="collect", service="urn:example:post"))
    hub(world, NEAR, relay("home", BUYER, action="collect"))
    buyer, _, _, seller = await start(world)
    await buyer.send(M)
    assert await pull(seller) == (M,)


@played
async def test_a_request_routed_to_this_party_is_answered_here(world: World) -> None:
    """The buyer has rules of its own, and one would relay what is for itself."""
    road(world)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["legs"][0]["addressing"] = {"address": "icloud"}
    hub(world, FAR, relay("over", BUYER))
    hub(world, BUYER, relay("all", CARRIER))
    buyer, _, _, seller = await start(world)
    await buyer.send(M)
    assert await pull(seller) == (M,)
