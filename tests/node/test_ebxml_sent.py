"""What leaves a node that speaks ebXML, read without the product; and what optional things mean."""

from collections import defaultdict
from typing import Any

import pytest

from postroad.node.base.requests import Request
from postroad.node.service import Refused
from tests.node.ebxml_letters import (
    OLD_NS,
    RELIABLY,
    M,
    Said,
    envelope,
    hand,
    header,
    listening,
    manifest,
    order,
    packed,
    quality,
    reliable_terms,
    spoiled,
    via,
)
from tests.node.reliable import (
    BUYER,
    CPA,
    ORDERS,
    SELLER,
    World,
    _pieces,
    address,
    party,
    played,
)


async def sent(world: World, pmode: str = ORDERS, **named: Any) -> Said:
    """What the buyer sends to the seller."""
    buyer = world.stations.get(BUYER) or await listening(world, BUYER)
    await buyer.send(M, pmode, **named)
    await world.wait(1)
    return read(world.wire.to(SELLER)[-1].body)


def read(body: bytes) -> Said:
    """The root part of a package."""
    start, end = body.index(b"<?xml"), body.index(b"</SOAP-ENV:Envelope>") + 20
    return Said.read(body[start:end])


@pytest.mark.req(
    "MS098-10.3.1.1-01",
    "MS098-8.5.3.2-01",
    "MS098-8.13.3-02",
)
@pytest.mark.parametrize("profile", ["ms098", "rm000", "rm001"])
@played
async def test_a_reliable_message_says_so_and_names_both_ends_of_its_hop(
    world: World, profile: str
) -> None:
    world.speak(profile=profile, **reliable_terms())
    said = await sent(world)
    semantics = said.attribute("MessageHeader/QualityOfServiceInfo", "deliverySemantics")
    assert semantics == ("AtMostOnce" if profile == "rm001" else "OnceAndOnlyOnce")
    assert said.text("TraceHeaderList/TraceHeader/SenderURI") == address(BUYER)
    assert said.text("TraceHeaderList/TraceHeader/ReceiverURI") == address(SELLER)
    numbers = said.find("TraceHeaderList/TraceHeader/SequenceNumber")
    assert [one.text for one in numbers] == (["1"] if profile == "rm001" else [])


@pytest.mark.parametrize("semantics", ["OnceAndOnlyOnce", "BestEffort"])
@played
async def test_each_hop_names_its_sender_and_its_receiver(world: World, semantics: str) -> None:
    """As PartyIds in 1.0; the URIs of 0.98b are PartyIds without a type."""
    world.speak(version="0.98b", delivery_semantics=semantics)
    world.speak("newer", version="1.0", delivery_semantics=semantics)
    said = await sent(world)
    assert said.text("TraceHeaderList/TraceHeader/SenderURI") == address(BUYER)
    assert said.text("TraceHeaderList/TraceHeader/ReceiverURI") == address(SELLER)
    buyer = world.stations[BUYER]
    await buyer.send("n@buyer.example", "newer")
    await world.wait(1)
    newer = read(world.wire.to(SELLER)[-1].body)
    assert newer.text("TraceHeaderList/TraceHeader/Sender/PartyId")
    assert newer.text("TraceHeaderList/TraceHeader/Receiver/PartyId")
    assert newer.text("TraceHeaderList/TraceHeader/Sender/Location") == address(BUYER)
    assert newer.text("TraceHeaderList/TraceHeader/Receiver/Location") == address(SELLER)


@pytest.mark.req("MS098-8.4.8-02", "MS098-8.4.8-03")
@played
async def test_each_conversation_has_numbers_of_its_own_from_zero(world: World) -> None:
    world.speak(message_order="Guaranteed", **reliable_terms())
    buyer, _ = await world.both()
    for name, conversation in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a"), ("5", "b")):
        await buyer.send(f"{name}@buyer.example", conversation=conversation)
    await world.wait(1)
    found = [read(one.body) for one in world.wire.to(SELLER)]
    numbers = defaultdict(list)
    for one in found:
        place = one.text("MessageHeader/ConversationId")
        numbers[place].append(one.text("MessageHeader/SequenceNumber"))
    assert numbers == {"a": ["0", "1", "2"], "b": ["0", "1"]}


@pytest.mark.req("MS098-8.4.6.3-01")
@played
async def test_a_message_about_an_earlier_one_names_it(world: World) -> None:
    world.speak(version="0.98b")
    buyer = await listening(world, BUYER)
    await buyer.send("1@buyer.example")
    await buyer.answer("2@buyer.example", ORDERS, to="1@buyer.example")
    await world.wait(1)
    found = [read(one.body) for one in world.wire.to(SELLER)]
    assert [one.data("RefToMessageId") for one in found] == [None, "1@buyer.example"]
    with pytest.raises(Refused, match="itself"):
        await buyer.answer("3@buyer.example", ORDERS, to="3@buyer.example")


@pytest.mark.req("MS098-8.4.3-02", "MS098-8.4.6.1-01", "MS098-8.4.6.3-02")
@played
async def test_each_message_has_an_id_and_a_conversation_of_its_own(world: World) -> None:
    world.speak(version="0.98b")
    buyer = await listening(world, BUYER)
    for name in ("1@buyer.example", "2@buyer.example"):
        await buyer.send(name)
    await world.wait(1)
    found = [read(one.body) for one in world.wire.to(SELLER)]
    assert [one.data("MessageId") for one in found] == ["1@buyer.example", "2@buyer.example"]
    assert len({one.text("MessageHeader/ConversationId") for one in found}) == 2
    assert [one.data("RefToMessageId") for one in found] == [None, None]


@pytest.mark.req("MS098-8.4.3-03")
@played
async def test_messages_of_a_conversation_have_its_id(world: World) -> None:
    world.speak(version="0.98b")
    said = await sent(world, conversation="c1")
    assert said.text("MessageHeader/ConversationId") == "c1"
    assert said.text("MessageHeader/CPAId") == CPA
    assert said.parties == (party(BUYER), party(SELLER))


@pytest.mark.req("MS098-8.4.7.1-02")
@played
async def test_what_is_not_agreed_is_not_asked_for(world: World) -> None:
    world.speak(version="0.98b")
    said = await sent(world)
    assert said.find("Via") == []
    for name in ("deliveryReceiptRequested", "messageOrderSemantics", "deliverySemantics"):
        assert all(
            said.attribute("MessageHeader/QualityOfServiceInfo", name)
            in (None, "None", "BestEffort", "NotGuaranteed")
            for _ in said.find("MessageHeader/QualityOfServiceInfo")
        )


@pytest.mark.req("MS098-10.2.3-01")
@pytest.mark.parametrize("version", ["0.98b", "2.0"])
@played
async def test_time_to_live_is_a_time(world: World, version: str) -> None:
    retry = {"max_retries": 1, "timeout": "PT5S", "period": "PT5S", "time_to_live": "PT1H"}
    world.speak(retry=retry, **reliable_terms(version))
    said = await sent(world)
    assert said.data("TimeToLive") == "2024-06-01T13:00:00.000Z"


@pytest.mark.req("MS098-8.6.4-01")
@played
async def test_where_there_is_no_response_sync_reply_is_ignored(world: World) -> None:
    """A mail has no response: the acknowledgment goes to the SenderURI."""
    world.speak(**reliable_terms())
    seller = await listening(world)
    kind, body = packed(order("0.98b", via(' eb:syncReply="true"'), inside=RELIABLY))
    request = Request(kind, "192.0.2.1", _pieces(body), soap_action='"ebXML"', synchronous=False)
    response = await seller.process.ask(seller.node.receive(request))
    await world.wait(1)
    assert not response.body
    [posted] = world.wire.to(BUYER)
    assert Said.read(posted.body).service[1] == "Acknowledgment"


DESCRIPTIONS = (
    '<eb:Description xml:lang="en">paper</eb:Description>'
    '<eb:Description xml:lang="de">Papier</eb:Description>'
)
FOREIGN = '<x:a xmlns:x="urn:example:x"/>'


@pytest.mark.req("MS098-4.2-01")
@pytest.mark.parametrize(
    "letter",
    [
        order(inside=RELIABLY + DESCRIPTIONS),
        spoiled(order(inside=RELIABLY), "</eb:TraceHeader>", f"{FOREIGN}</eb:TraceHeader>"),
        spoiled(
            order(inside=RELIABLY),
            'xlink:type="simple"',
            'xlink:type="simple" xmlns:x="urn:example:x" x:mood="good" '
            'xlink:role="urn:example:order"',
        ),
        order("0.98b", via(' eb:syncReply="false" eb:ackRequested="UnSigned"'), inside=RELIABLY),
        order(inside=quality("OnceAndOnlyOnce", "NotGuaranteed", "UnSigned")),
    ],
    ids=["descriptions", "extension", "foreign attribute", "Via", "delivery receipt"],
)
@played
async def test_what_a_partner_may_add_does_no_harm(world: World, letter: str) -> None:
    world.speak(**reliable_terms())
    outcome = await hand(world, await listening(world), letter)
    assert outcome.delivered == [M]
    assert outcome.said.service[1] == "Acknowledgment"


@pytest.mark.req("MS098-4.2-02", "MS098-8.2.2-02")
@pytest.mark.parametrize(
    "letter",
    [
        envelope(header(inside=RELIABLY), body=manifest()),
        order(),
        order(body=""),
        order(inside=RELIABLY)
        .replace(f' xmlns:eb="{OLD_NS}"', "", 1)
        .replace("<eb:MessageHeader ", f'<eb:MessageHeader xmlns:eb="{OLD_NS}" ')
        .replace("<eb:TraceHeaderList ", f'<eb:TraceHeaderList xmlns:eb="{OLD_NS}" ')
        .replace("<eb:Manifest ", f'<eb:Manifest xmlns:eb="{OLD_NS}" '),
    ],
    ids=["no TraceHeaderList", "no QualityOfServiceInfo", "no payload", "namespace on elements"],
)
@played
async def test_what_a_partner_may_leave_out_is_not_missed(world: World, letter: str) -> None:
    world.speak(**reliable_terms())
    outcome = await hand(world, await listening(world), letter)
    assert outcome.delivered == [M]


@pytest.mark.req("MS098-8.4.7.1-04", "MS098-8.12.1-01", "MS098-8.4.6.3-04")
@played
async def test_a_delivery_receipt_tells_when_the_message_came(world: World) -> None:
    world.speak(delivery_receipt="UnSigned", **reliable_terms())
    seller = await listening(world)
    await world.wait(60)
    letter = order(inside=quality("OnceAndOnlyOnce", None, "UnSigned"))
    said = (await hand(world, seller, letter)).said
    assert said.attribute("Acknowledgment", "type") in ("DeliveryReceipt", None)
    assert said.text("Acknowledgment/Timestamp") == "2024-06-01T12:01:00.000Z"
    assert said.data("RefToMessageId") == M


@pytest.mark.req("MS098-10.3.1.3-01", "MS098-10.3.1.3-03", "MS098-8.6.6-02")
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("", ["MessageHeader"]),
        (' eb:ackRequested="None"', ["MessageHeader"]),
        (' eb:ackRequested="UnSigned"', ["MessageHeader", "Acknowledgment"]),
        (' eb:ackRequested="Unsigned"', ["MessageHeader", "Acknowledgment"]),
    ],
)
@played
async def test_an_acknowledgment_element_is_given_when_it_is_asked_for(
    world: World, asked: str, names: list[str]
) -> None:
    world.speak(**reliable_terms())
    letter = order("0.98b", via(asked + ' eb:syncReply="false"'), inside=RELIABLY)
    said = (await hand(world, await listening(world), letter)).said
    assert said.names == names
    assert said.data("RefToMessageId") == M


@played
async def test_best_effort_is_answered_by_nobody(world: World) -> None:
    world.speak(version="0.98b")
    outcome = await hand(world, await listening(world), order())
    assert outcome.silent
    assert outcome.delivered == [M]
