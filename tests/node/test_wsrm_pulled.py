"""Acknowledgements that wait in a channel until the sender of the messages pulls them."""

from typing import Any

import pytest

from postroad.store.records import State
from postroad.wire.multihop import find_routing_input, read_routing_input
from postroad.wire.names import DEFAULT_MPC
from postroad.wire.soap import read_envelope
from postroad.wire.wsrm import CreateSequence
from postroad.wire.wsrm_reader import read_lifecycle
from postroad.wire.xml import parse
from tests.node.collecting import USER
from tests.node.reliable import BUYER, ORDERS, SELLER, STORES, World, played
from tests.node.sequences import agree, envelope_of

M, N = "m@buyer", "n@buyer"
ACKS = "http://seller.example/acks"
RETRY = {"max_retries": 3, "timeout": "PT1M", "period": "PT1M"}


def agree_on_pulling(world: World, *, mpc: str | None = ACKS, **more: Any) -> None:
    to = None
    if mpc is not None:
        to = {
            "value": "http://hub.example/msh",
            "addressing": {
                "address": "icloud",
                "epr": {"routing_input": {"business_info": {"mpc": mpc}}},
            },
        }
    agree(world, pattern="Pull", acks_to=to, retry=RETRY, **more)
    for station in (BUYER, SELLER):
        pmode = world._pmodes[station][-1]
        pmode["initiator"]["authorization"] = USER
        pmode["legs"][0]["pulling"] = {"scheduled": False}


@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("mpc", [ACKS, None])
@pytest.mark.req("P2-6.6.3-01", "P2-6.6.3-02", "P2-2.6.2-05", "P2-2.6.2-06")
@played
async def test_an_acknowledgement_is_pulled_from_the_channel_of_its_reference(
    world: World, kept_in: str, signed: bool, mpc: str | None
) -> None:
    world.kept_in = kept_in
    agree_on_pulling(world, mpc=mpc, signed=signed)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(1)
    assert await buyer.state(M) is State.WAITING
    asked, _ = read_lifecycle(envelope_of(world.wire.to(SELLER)[0]))
    assert isinstance(asked, CreateSequence)
    assert asked.acks_to.routing_input is not None
    channel = mpc or f"{DEFAULT_MPC}.response"
    assert asked.acks_to.routing_input.user_message.mpc == channel
    await buyer.process.ask(buyer.node.pull(ORDERS, most=2))
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    assert "acked" in await seller.story(M)


@pytest.mark.req("P2-6.6.3-02")
@played
async def test_a_pulled_acknowledgement_holds_the_routing_input_that_was_named(
    world: World,
) -> None:
    agree_on_pulling(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [signal] = await seller.node.signals(await seller.message(M))
    envelope = read_envelope(parse(b"".join(seller.node.signal(signal).chunks())))
    block = find_routing_input(envelope)
    assert block is not None
    found, _ = read_routing_input(block)
    assert found is not None
    assert found.user_message.mpc == ACKS
    assert found.user_message.collaboration_info.action == f"{ORDERS}.response"
