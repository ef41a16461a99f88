"""Draft 001 of ebXML Reliable Messaging on running nodes: messages, answers, Receivers, Routers."""

import pytest

from tests.node.ebxml_letters import listening, packed, spoiled
from tests.node.ebxml_stations import EBXML
from tests.node.reliable import BUYER, CPA, SELLER, World, address, lost, played
from tests.spec.link_stations import (
    LINK,
    NUMBER,
    SEMANTICS,
    UNRELIABLE,
    M,
    message,
    numbers,
    receiver,
    said_in,
    sender,
    talking,
)

# The messages on the wire: 2.1, 2.2


@pytest.mark.req(
    "RM001-2.1-01",
    "RM001-2.1-02",
    "RM001-2.1-04",
    "RM001-2.2.3-01",
    "RM001-2.2.3-04",
    "RM001-2.2.3-06",
    "RM001-2.3-01",
    "RM001-4.2-01",
)
@played
async def test_a_reliable_message_says_at_most_once_and_carries_its_number_and_both_ends(
    world: World,
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    said = said_in(posted)
    assert said.data("MessageId") == M
    assert said.attribute(*SEMANTICS) == "AtMostOnce"
    assert said.parties == ("urn:example:buyer", "urn:example:seller")
    assert said.text(f"{LINK}/SenderURI") == address(BUYER)
    assert said.text(f"{LINK}/ReceiverURI") == address(SELLER)
    assert said.text(NUMBER) == "1"


@pytest.mark.req("RM001-2.2.3-02", "RM001-2.2.3-03")
@pytest.mark.parametrize("semantics", ["OnceAndOnlyOnce", "BestEffort"])
@pytest.mark.parametrize(
    ("version", "place"), [("0.98b", "{}URI"), ("1.0", "{}/PartyId")], ids=["0.98b", "1.0"]
)
@played
async def test_every_message_names_sender_and_receiver_in_its_routing_header(
    world: World, version: str, place: str, semantics: str
) -> None:
    """In 0.98b by URI, which is a PartyId without a type, and in 1.0 by PartyId."""
    world.speak(version=version, profile="rm001", delivery_semantics=semantics)
    buyer = await listening(world, BUYER)
    await buyer.send(M)
    await world.wait(1)
    said = said_in(world.wire.to(SELLER)[0])
    assert said.text(f"{LINK}/{place.format('Sender')}") == address(BUYER)
    assert said.text(f"{LINK}/{place.format('Receiver')}") == address(SELLER)


@pytest.mark.req("RM001-2.2.2-03")
@played
async def test_an_unreliable_message_has_no_number_and_is_neither_answered_nor_sent_again(
    world: World,
) -> None:
    world.speak(**UNRELIABLE)
    buyer, seller = await talking(world)
    await buyer.send("1@buyer.example")
    await world.wait(5)
    said = said_in(world.wire.to(SELLER)[0])
    assert said.attribute(*SEMANTICS) == "Unspecified"
    assert said.find(NUMBER) == []
    assert await seller.inbox() == ["1@buyer.example"]
    world.wire.will(lost)
    await buyer.send("2@buyer.example")
    await world.wait(600)
    assert len(world.wire.to(SELLER)) == 2
    assert world.wire.to(BUYER) == []


@pytest.mark.req("RM001-2.2.2-03")
@played
async def test_unreliable_messages_do_not_wait_for_reliable_ones(world: World) -> None:
    world.speak("notes", **UNRELIABLE)
    buyer = await sender(world)
    await buyer.send(M)
    await buyer.send("n@buyer.example", "notes")
    await world.wait(1)
    assert numbers(world) == ["1", None]


# The answers on the wire: 2.6.2, 2.6.7, 3.1


@pytest.mark.req(
    "RM001-2.6.2-01",
    "RM001-2.6.2-02",
    "RM001-2.6.2-03",
    "RM001-2.6.2-04",
    "RM001-2.6.2-05",
    "RM001-2.6.2-06",
    "RM001-2.6.7-01",
    "RM001-2.6.7-02",
    "RM001-3.1-01",
    "RM001-3.1-02",
)
@pytest.mark.parametrize(
    ("letter", "kind"),
    [
        (message(1), "Acknowledgement"),
        (message(7), "Error"),
        (message(None), "Error"),
        (message(1, live="2024-05-31T12:00:00Z"), "Error"),
        (spoiled(message(1), "cid:order@", "cid:missing@"), "Error"),
    ],
    ids=["new", "number 7", "no number", "expired", "no payload"],
)
@played
async def test_an_answer_goes_from_receiver_to_sender_and_is_of_the_draft_s_type(
    world: World, letter: str, kind: str
) -> None:
    seller = await receiver(world)
    response = await seller.receive(*packed(letter), EBXML)
    await world.wait(1)
    assert not response.body
    [posted] = world.wire.to(BUYER)
    said = said_in(posted)
    assert said.text("MessageHeader/MessageType") == kind
    assert said.service == (None, None)
    assert said.parties == (address(SELLER), address(BUYER))
    assert said.text("MessageHeader/CPAId") == CPA
    assert said.text("MessageHeader/ConversationId") == "c1"
    assert said.data("RefToMessageId") == M
    assert said.attribute(*SEMANTICS) == "Unspecified"
    assert said.find("Manifest") == []
    assert b"order@" not in posted.body
    assert bool(said.errors) is (kind == "Error")
