"""Where acknowledgements of a sequence go, and which messages share one."""

from typing import Any

import pytest
from msgspec.structs import replace

from postroad.msh.answers import sent_message
from postroad.node.wsrm.source import key_of
from postroad.store.records import State
from postroad.wire.content import read_all
from postroad.wire.ebms3 import Party, PartyId, UserMessage
from postroad.wire.wsrm import CreateSequence
from postroad.wire.wsrm_reader import read_lifecycle
from tests.node.reliable import BUYER, ORDERS, SELLER, Station, World, address, played
from tests.node.sequences import agree, envelope_of, kinds

M = "m@buyer"


def asked(world: World) -> CreateSequence:
    found, _ = read_lifecycle(envelope_of(world.wire.to(SELLER)[0]))
    assert isinstance(found, CreateSequence)
    return found


@pytest.mark.parametrize(
    "acks_to",
    [
        pytest.param(
            address(BUYER), marks=pytest.mark.req("P2-2.7.1.4-04", "P2-2.7.1.4-05"), id="a URI"
        ),
        pytest.param(
            {"addressing": {"address": address(BUYER)}},
            marks=pytest.mark.req("P2-2.7.1.4-06", "P2-2.7.1.4-08"),
            id="an address",
        ),
    ],
)
@played
async def test_acknowledgements_go_to_the_sender_of_the_leg(world: World, acks_to: Any) -> None:
    agree(world, pattern="Callback", acks_to=acks_to)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert asked(world).acks_to.address == address(BUYER)
    assert asked(world).acks_to.routing_input is None
    assert kinds(world, BUYER) == ["ack"]
    assert await buyer.state(M) is State.ACKNOWLEDGED


async def _sent(station: Station) -> UserMessage:
    message = await station.message(M)
    assert message.envelope is not None
    kept = station.node.context.store.content(message.envelope)
    return sent_message(read_all(kept, message.envelope.size)).user_message


@pytest.mark.req("P2-2.8.1-04", "P2-2.8.1-07")
@played
async def test_messages_for_another_receiver_or_channel_go_in_another_sequence(
    world: World,
) -> None:
    agree(world, correlation=["eb3:CollaborationInfo/eb3:Service"])
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    message = await _sent(buyer)
    sending = buyer.node.context.in_force.sending(ORDERS)
    own = key_of(sending, message)
    other = Party((PartyId("urn:example:other"),), "urn:example:receiver")
    assert key_of(sending, message) == own
    assert key_of(sending, replace(message, to_party=other)) != own
    assert key_of(sending, replace(message, mpc="urn:example:mpc")) != own
