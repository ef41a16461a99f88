"""Messages of the older tongue through an MSH on the way: traces, hop acknowledgments, notices."""

from typing import Any, Final

import pytest

from postroad.store.records import Side, State
from postroad.transport.http_outgoing import Reply
from postroad.wire import xml
from postroad.wire.ebxml import EbxmlMessage
from postroad.wire.ebxml_reader import dialect_of, read_ebxml
from postroad.wire.soap import read_envelope
from tests.node.ebxml_letters import Said
from tests.node.reliable import (
    BUYER,
    CARRIER,
    SELLER,
    STORES,
    Posted,
    Station,
    World,
    address,
    lost,
    passed,
    played,
    refused,
    reply_lost,
    status,
)

M: Final = "m@buyer.example"
MANIFEST: Final = b"Manifest"
TERMS: Final[dict[str, Any]] = {
    "delivery_semantics": "OnceAndOnlyOnce",
    "ack_requested": "UnSigned",
}


def agree(world: World, version: str = "0.98b", **terms: Any) -> None:
    """Buyer and seller, and a carrier between them."""
    ends = TERMS | {"version": version, "delivery_receipt": "UnSigned"}
    world.speak(at=(BUYER,), url=address(CARRIER), hops=1, **ends)
    world.speak(at=(SELLER,), **ends)
    between = {"version": version, "relay": True}
    world.speak("there", at=(CARRIER,), **between, **TERMS, **terms)
    world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, **between)


async def start(world: World, name: str) -> Station:
    station = await world.start(name)
    station.node.context.msh_url = address(name)
    return station


async def started(world: World) -> tuple[Station, Station, Station]:
    return await start(world, BUYER), await start(world, CARRIER), await start(world, SELLER)


def read(posted: Posted) -> EbxmlMessage:
    """What went over the wire."""
    body = posted.body
    start = body.index(b"<?xml")
    end = body.index(b"</SOAP-ENV:Envelope>") + len(b"</SOAP-ENV:Envelope>")
    envelope = read_envelope(xml.parse(body[start:end]))
    dialect = dialect_of(envelope)
    assert dialect is not None
    reading = read_ebxml(envelope, dialect)
    assert reading.message is not None
    return reading.message


@pytest.mark.req("MS098-8.5-01", "MS098-8.5.3-01", "MS098-8.6.2-02")
@pytest.mark.parametrize("version", ["0.98b", "1.0"])
@played
async def test_each_hop_adds_its_trace_renews_via_and_changes_nothing_else(
    world: World, version: str
) -> None:
    agree(world, version, via_cpa_id="urn:example:second-hop")
    await started(world)
    await world.stations[BUYER].send(M)
    await world.wait(2)
    first = read(world.wire.to(CARRIER, "<order>")[0])
    second = read(world.wire.to(SELLER)[0])
    assert [one.receiver_uri for one in first.trace] == [address(CARRIER)]
    assert [(one.sender_uri, one.receiver_uri) for one in second.trace] == [
        (address(BUYER), address(CARRIER)),
        (address(CARRIER), address(SELLER)),
    ]
    assert second.header == first.header
    assert second.manifest == first.manifest
    assert first.via is not None
    assert second.via is not None
    assert (first.via.cpa_id, second.via.cpa_id) == (None, "urn:example:second-hop")


@pytest.mark.parametrize("version", ["0.98b", "1.0"])
@played
async def test_hops_are_acknowledged_and_the_receipt_comes_back(world: World, version: str) -> None:
    agree(world, version)
    buyer, carrier, seller = await started(world)
    await buyer.send(M)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert await buyer.story(M) == ["submitted", "sent", "hop_acked", "ack_received"]
    assert await carrier.story(M) == ["received", "forwarded", "hop_acked"]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await carrier.message(M, Side.FORWARDING)).state is State.ACKNOWLEDGED


@pytest.mark.req(
    "RM000-1.3.2.1-03",
    "RM000-1.3.2.1-04",
    "RM000-1.3.2.1-05",
    "RM000-1.3.2.1-06",
    "RM000-1.3.2.1-07",
)
@played
async def test_a_relay_acknowledges_a_hop_as_the_first_draft_has_it(world: World) -> None:
    agree(world, profile="rm000")
    buyer, *_ = await started(world)
    await buyer.send(M)
    await world.wait(2)
    said = Said.read(world.wire.to(BUYER)[0].body)
    assert said.service == (
        "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment",
        "Acknowledgment",
    )
    assert said.parties == (address(CARRIER), address(BUYER))
    assert said.data("RefToMessageId") == M
    quality = said.attribute("MessageHeader/QualityOfServiceInfo", "deliverySemantics")
    assert quality == "BestEffort"
    assert await buyer.story(M) == ["submitted", "sent", "hop_acked", "ack_received"]


@played
async def test_losses_on_both_hops_deliver_once(world: World) -> None:
    agree(world)
    buyer, carrier, seller = await started(world)
    world.wire.will(lost, reply_lost, at=CARRIER)
    world.wire.will(lost, reply_lost, at=SELLER)
    await buyer.send(M)
    await world.wait(200)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await carrier.story(M)).count("received") == 1


@played
async def test_a_carrier_that_dies_passes_on_what_it_acknowledged(world: World) -> None:
    agree(world)
    buyer, _, seller = await started(world)
    world.wire.will(lost, at=SELLER)
    await buyer.send(M)
    await world.wait(1)
    assert "hop_acked" in await buyer.story(M)
    world.stations[CARRIER].kill()
    await start(world, CARRIER)
    await world.wait(60)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("MS098-8.4.6.3-03")
@pytest.mark.parametrize(
    ("trouble", "state", "severity"),
    [(refused, State.FAILED, b"Error"), (lost, State.IN_DOUBT, b"Warning")],
)
@played
async def test_who_sent_it_learns_that_it_could_not_be_passed_on(
    world: World, trouble: Any, state: State, severity: bytes
) -> None:
    agree(world)
    world.configure(CARRIER, send={"breaker": {"failures": 0}})
    buyer, carrier, _ = await started(world)
    world.wire.usual[SELLER] = trouble
    await buyer.send(M)
    await world.wait(200)
    notice = read(world.wire.to(BUYER, "DeliveryFailure")[0])
    assert notice.error_list is not None
    assert notice.error_list.highest_severity.encode() == severity
    assert notice.header.ref_to_message_id == M
    assert await buyer.state(M) is state
    assert "error_received" in await buyer.story(M)
    assert (await carrier.story(M))[-1] == "delivery_failed"


async def swallowed(world: World, posted: Posted) -> Reply:
    """Taken, and never heard of again, as by a mail server; what is no notice is passed on."""
    respond = status(202) if b"DeliveryFailure" in posted.body else passed
    return await respond(world, posted)


async def given_up(world: World) -> tuple[Station, Station]:
    """A message that the carrier cannot pass on."""
    agree(world)
    world.configure(CARRIER, send={"breaker": {"failures": 0}})
    buyer, carrier, _ = await started(world)
    world.wire.usual[SELLER] = refused
    await buyer.send(M)
    return buyer, carrier


@pytest.mark.req("MS098-10.3.1.5-01")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_an_operator_sends_again_is_passed_on_once_more(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer, _ = await given_up(world)
    await world.wait(200)
    assert await buyer.state(M) is State.FAILED
    del world.wire.usual[SELLER]
    world.wire.will(refused, reply_lost, at=CARRIER)
    await buyer.node.resend(M)
    await world.wait(60)
    assert await world.stations[SELLER].inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    sent = [
        read(one).trace[0].timestamp for one in world.wire.to(CARRIER, M) if MANIFEST in one.body
    ]
    assert len(sent) > 2
    assert len(set(sent)) == 2, "copies are the same"


@played
async def test_a_notice_is_sent_again_until_it_is_acknowledged(world: World) -> None:
    world.wire.usual[BUYER] = swallowed
    buyer, carrier = await given_up(world)
    await world.wait(60)
    assert await buyer.state(M) is State.SENT
    del world.wire.usual[BUYER]
    await world.wait(60)
    assert await buyer.state(M) is State.FAILED
    copies = world.wire.to(BUYER, "DeliveryFailure")
    assert len(copies) > 1
    assert len({one.body for one in copies}) == 1
    await world.wait(9000)
    assert world.wire.to(BUYER, "DeliveryFailure") == copies
    assert (await carrier.story(M))[-1] == "delivery_failed"


@played
async def test_a_notice_that_nobody_acknowledges_is_given_up(world: World) -> None:
    world.wire.usual[BUYER] = swallowed
    _, carrier = await given_up(world)
    await world.wait(9000)
    assert len(world.wire.to(BUYER, "DeliveryFailure")) == 8
    assert (await carrier.story(M))[-1] == "error_raised"


@played
async def test_best_effort_is_passed_on_once_and_nobody_is_told(world: World) -> None:
    world.speak(at=(BUYER,), url=address(CARRIER), version="0.98b")
    world.speak("there", at=(CARRIER,), version="0.98b", relay=True, **TERMS)
    buyer, carrier = await start(world, BUYER), await start(world, CARRIER)
    world.wire.usual[SELLER] = lost
    await buyer.send(M)
    await world.wait(200)
    assert len(world.wire.to(SELLER)) == 1
    assert world.wire.to(BUYER) == []
    assert await carrier.story(M) == ["received", "forwarded"]


@played
async def test_where_it_is_agreed_a_hop_is_acknowledged_after_the_next(world: World) -> None:
    agree(world, ack_after_forward=True)
    buyer, _, _ = await started(world)
    world.wire.will(lost, at=SELLER)
    await buyer.send(M)
    await world.wait(1)
    assert "hop_acked" not in await buyer.story(M)
    await world.wait(20)
    assert "hop_acked" in await buyer.story(M)


@played
async def test_what_comes_in_a_circle_is_not_passed_on_for_ever(world: World) -> None:
    world.speak(at=(BUYER,), url=address(CARRIER), version="0.98b", **TERMS)
    world.speak("there", at=(CARRIER,), url=address(CARRIER), version="0.98b", relay=True, **TERMS)
    buyer, carrier = await start(world, BUYER), await start(world, CARRIER)
    await buyer.send(M)
    await world.wait(100)
    assert len(world.wire.to(CARRIER, "<order>")) < 8
    raised = await carrier.journal("error_raised")
    assert any("circle" in (one.detail or "") for one in raised)


@pytest.mark.req("RM001-4.3-01", "RM001-2.6.6-01", "RM001-2.6.6-03")
@played
async def test_a_router_whose_next_one_is_down_says_so_and_the_sender_waits(world: World) -> None:
    terms = {"version": "0.98b", "delivery_semantics": "OnceAndOnlyOnce", "profile": "rm001"}
    world.speak(at=(BUYER,), url=address(CARRIER), hops=1, **terms)
    world.speak(at=(SELLER,), **terms)
    world.speak("there", at=(CARRIER,), relay=True, **terms)
    world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, version="0.98b", relay=True)
    buyer, carrier, seller = await started(world)
    await carrier.process.ask(carrier.node.suspend("urn:example:seller", "maintenance"))
    await buyer.send(M)
    await world.wait(1)
    told = read(world.wire.to(BUYER)[0])
    assert told.error_list is not None
    assert told.error_list.errors[0].min_retry_secs == 30
    before = len(world.wire.to(CARRIER, "<order>"))
    await world.wait(20)
    assert len(world.wire.to(CARRIER, "<order>")) == before, "it leaves the carrier alone"
    await carrier.process.ask(carrier.node.resume("urn:example:seller"))
    await world.wait(60)
    assert await seller.inbox() == [M]


@pytest.mark.req("RM001-2.2.3-01", "RM001-2.2.3-04", "RM001-3.1-01", "RM001-3.1-02")
@played
async def test_over_a_link_one_message_is_under_way_and_each_has_its_number(world: World) -> None:
    world.speak(
        version="0.98b",
        delivery_semantics="OnceAndOnlyOnce",
        profile="rm001",
        reply_to=address(BUYER),
    )
    buyer, seller = await world.both()
    bodies = []

    async def noted(world: World, posted: Posted) -> Reply:
        reply = await passed(world, posted)
        bodies.append(reply.body)
        return reply

    world.wire.usual[SELLER] = noted
    world.wire.will(lost, reply_lost)
    ids = [f"{number}@buyer.example" for number in range(3)]
    for one in ids:
        await buyer.send(one, conversation=one)
    await world.wait(100)
    assert await seller.inbox() == ids
    assert set(bodies) == {b""}, "acknowledgements are posts of their own"
    sent = [read(one) for one in world.wire.to(SELLER)]
    numbers = [one.trace[-1].sequence_number for one in sent]
    assert numbers[0] == 1
    assert sorted(set(numbers)) == [1, 2, 3]
    assert numbers == sorted(numbers), "the next leaves when the last is acknowledged"
    assert {await buyer.state(one) for one in ids} == {State.ACKNOWLEDGED}


@played
async def test_in_2_0_only_the_to_party_acknowledges_what_asks_nobody_else(world: World) -> None:
    ends = TERMS | {"version": "2.0"}
    back = {"security": {"send_receipt": {"reply_to": address(CARRIER)}}}
    world.speak(at=(BUYER,), url=address(CARRIER), hops=1, **ends, **back)
    world.speak(at=(SELLER,), **ends, **back)
    world.speak("there", at=(CARRIER,), version="2.0", relay=True)
    world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, version="2.0", relay=True)
    buyer, carrier, seller = await started(world)
    await buyer.send(M)
    await world.wait(3)
    assert await seller.inbox() == [M]
    assert await buyer.story(M) == ["submitted", "sent", "ack_received"]
    assert len(world.wire.to(CARRIER, "<order>")) == 1
    assert await carrier.story(M) == ["received", "forwarded", "hop_acked"]


@played
async def test_a_carrier_that_keeps_order_passes_on_what_has_none(world: World) -> None:
    world.speak(at=(BUYER,), url=address(CARRIER), version="0.98b")
    world.speak(at=(SELLER,), version="0.98b")
    ordered = TERMS | {"message_order": "Guaranteed"}
    world.speak("there", at=(CARRIER,), version="0.98b", relay=True, **ordered)
    buyer, _, seller = await started(world)
    await buyer.send(M)
    await world.wait(3)
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("version", ["0.98b", "1.0", "2.0"])
@played
async def test_questions_and_answers_pass_a_carrier_too(world: World, version: str) -> None:
    """In 0.98b and 1.0 a status request goes to the next MSH, which the message went to."""
    back: dict[str, Any] = {}
    if version == "2.0":
        back = {"security": {"send_receipt": {"reply_to": address(CARRIER)}}}
    ends = TERMS | {"version": version}
    world.speak(at=(BUYER,), url=address(CARRIER), hops=1, **ends, **back)
    world.speak(at=(SELLER,), **ends, **back)
    world.speak("there", at=(CARRIER,), version=version, relay=True, **TERMS)
    world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, version=version, relay=True)
    buyer, _, _ = await started(world)
    found = await buyer.process.ask(buyer.node.ping("orders", 10))
    assert found.answer == "Pong"
    await buyer.send(M)
    await world.wait(2)
    asked = await buyer.process.ask(buyer.node.query(M, 10))
    assert asked.answer == "Received"


@pytest.mark.parametrize("version", ["0.98b", "1.0"])
@played
async def test_a_signal_is_not_passed_on_against_the_direction_of_a_pmode(
    world: World, version: str
) -> None:
    """The only P-Mode leads to who sent the signal: it waits for the one that leads to its To."""
    agree(world, version)
    [*there, back] = world._pmodes[CARRIER]
    world._pmodes[CARRIER] = there
    buyer, carrier, seller = await started(world)
    await buyer.send(M)
    await world.wait(10)
    assert await seller.inbox() == [M]
    assert all(b"<order>" in one.body for one in world.wire.to(SELLER))
    assert await buyer.state(M) is not State.ACKNOWLEDGED
    [raised, *_] = await carrier.journal("error_raised")
    assert "no P-Mode says how to pass on a signal for" in (raised.detail or "")
    world._pmodes[CARRIER].append(back)
    world._write(CARRIER)
    assert (await carrier.node.reload()).ok
    await world.wait(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert all(b"<order>" in one.body for one in world.wire.to(SELLER))


@pytest.mark.parametrize("version", ["0.98b", "1.0"])
@played
async def test_a_question_is_not_passed_on_against_the_direction_of_a_pmode(
    world: World, version: str
) -> None:
    agree(world, version)
    world._pmodes[CARRIER] = world._pmodes[CARRIER][1:]
    buyer, carrier, _ = await started(world)
    found = await buyer.process.ask(buyer.node.ping("orders", 10))
    assert found.answer is None
    [raised] = await carrier.journal("error_raised")
    assert "no P-Mode says how to pass on a signal for" in (raised.detail or "")
    assert world.wire.to(BUYER) == world.wire.to(SELLER) == []


def agree_on_order(world: World) -> None:
    """A further P-Mode between buyer and seller, `steps`, whose messages come in order."""
    agree(world)
    ordered = TERMS | {"version": "0.98b", "delivery_receipt": "UnSigned"}
    ordered |= {"message_order": "Guaranteed"}
    world.speak("steps", at=(BUYER,), url=address(CARRIER), hops=1, **ordered)
    world.speak("steps", at=(SELLER,), **ordered)


@played
async def test_through_a_carrier_a_message_waits_until_the_one_before_has_arrived(
    world: World,
) -> None:
    agree_on_order(world)
    buyer, _, seller = await started(world)
    world.wire.will(lost, at=SELLER)
    ids = [f"{number}@buyer.example" for number in range(3)]
    for one in ids:
        await buyer.send(one, "steps", conversation="c")
    await world.wait(1)
    assert "hop_acked" in await buyer.story(ids[0])
    assert await buyer.story(ids[1]) == ["submitted"], "the first has not arrived yet"
    await world.wait(60)
    assert await seller.inbox() == ids
    assert {await buyer.state(one) for one in ids} == {State.ACKNOWLEDGED}


async def answered_late(world: World, posted: Posted) -> Reply:
    """The partner gets it, and what it calls back is here before its response."""
    reply = await passed(world, posted)
    await world.wait(2)
    return reply


@pytest.mark.parametrize("dies", [False, True])
@played
async def test_it_waits_too_where_the_hop_was_acknowledged_before_the_response_came(
    world: World, dies: bool
) -> None:
    agree_on_order(world)
    buyer, _, seller = await started(world)
    world.wire.will(answered_late, at=CARRIER)
    world.wire.will(lost, lost, at=SELLER)
    first, second = "0@buyer.example", "1@buyer.example"
    for one in (first, second):
        await buyer.send(one, "steps", conversation="c")
    await world.wait(1)
    assert await buyer.story(first) == ["submitted", "hop_acked"], "no response yet"
    if dies:
        buyer.kill()
        buyer = await start(world, BUYER)
    await world.wait(3)
    assert "sent" in await buyer.story(first)
    assert await buyer.story(second) == ["submitted"], "the first has not arrived yet"
    await world.wait(120)
    assert await seller.inbox() == [first, second]
    assert {await buyer.state(one) for one in (first, second)} == {State.ACKNOWLEDGED}


ONCE_MORE: Final = {"max_retries": 1, "timeout": "PT5S", "period": "PT5S"}


@played
async def test_a_notice_is_passed_on_again_after_it_was_given_up(world: World) -> None:
    """Two relays: the second one gave up a notice, and the first one sends it once more."""
    ends = TERMS | {"version": "0.98b"}
    between = {"version": "0.98b", "relay": True}
    for at, there, back in ((CARRIER, "hub", BUYER), ("hub", SELLER, CARRIER)):
        world.speak("there", at=(at,), url=address(there), **between, **TERMS)
        world.speak("back", at=(at,), frm=SELLER, to=BUYER, url=address(back), **between)
        world.configure(at, send={"breaker": {"failures": 0}})
    for frm, to in (("hub", BUYER), (BUYER, "hub")):
        world.speak(f"notices to {to}", at=(CARRIER,), frm=frm, to=to, retry=ONCE_MORE, **between)
    world.speak(at=(BUYER,), url=address(CARRIER), hops=2, **ends)
    buyer, _, _ = [await start(world, one) for one in (BUYER, CARRIER, "hub")]
    world.wire.usual[SELLER] = refused
    world.wire.usual[BUYER] = swallowed
    await buyer.send(M)
    await world.wait(400)
    assert await buyer.state(M) is State.SENT
    del world.wire.usual[BUYER]
    await world.wait(200)
    assert await buyer.state(M) is State.FAILED
    copies = world.wire.to(BUYER, "DeliveryFailure")
    await world.wait(9000)
    assert world.wire.to(BUYER, "DeliveryFailure") == copies
