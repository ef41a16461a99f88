"""Sequences from end to end over hubs that stream: what is about them is routed as messages are."""

from typing import Any

import pytest

from postroad.store.records import State
from postroad.wire.multihop import find_routing_input, read_routing_input
from postroad.wire.names import I_CLOUD, NEXT_MSH, WSRM
from postroad.wire.wsa import read_addressing
from tests.node.hubs import FAR, NEAR, by_way_of, hub, rule
from tests.node.reliable import BUYER, SELLER, World, party, played
from tests.node.sequences import agree, envelope_of, kind_of, kinds

M, N = "m@buyer", "n@buyer"


def road(world: World, forward: str, **how: Any) -> None:
    """buyer, near, far, seller; the seller is known to hubs by its party and the service."""
    agree(world, **how)
    by_way_of(world, NEAR)
    for at in (BUYER, SELLER):
        [pmode] = world._pmodes[at]
        epr = {"routing_input": {"business_info": {"action": "routed"}}}
        pmode["responder"]["addressing"] = {"address": "icloud", "epr": epr}
    there = {"to_party": party(SELLER)}
    for name, to in ((NEAR, FAR), (FAR, SELLER)):
        one = rule("there", to, **there)
        hub(world, name, {**one, "to": {"push": one["to"]["push"], "forward": forward}})


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.req("P2-2.8-01", "P2-2.8.1-02", "P2-2.8.1-03", "P2-2.6.1-07", "P2-2.6.3.2-08")
@played
async def test_a_sequence_reaches_from_end_to_end(world: World, signed: bool) -> None:
    road(world, "sync", signed=signed, in_order=True, max_idle="PT1M")
    for name in (NEAR, FAR):
        await world.start(name)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(200)
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    assert await seller.inbox() == [M, N]
    asked = ["CreateSequence", "message", "message", "CloseSequence", "TerminateSequence"]
    assert kinds(world, NEAR) == kinds(world, SELLER) == asked
    for posted in world.wire.to(SELLER):
        envelope = envelope_of(posted)
        addressing, _ = read_addressing(envelope)
        block = find_routing_input(envelope)
        assert addressing is not None
        assert block is not None
        found, _ = read_routing_input(block)
        assert found is not None
        assert (addressing.to, found.role) == (I_CLOUD, NEXT_MSH)
        assert found.user_message.collaboration_info.action == "routed"
        if kind_of(posted) != "message":
            assert addressing.action == f"{WSRM}/{kind_of(posted)}"


@played
async def test_a_hub_that_stores_carries_no_sequence_and_the_sender_is_told(world: World) -> None:
    road(world, "store")
    for name in (NEAR, FAR):
        await world.start(name)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(100)
    message = await buyer.message(M)
    assert message.state is State.FAILED
    assert "let it stream" in (message.detail or "")
