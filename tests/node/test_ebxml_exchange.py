"""Messages of the older tongue between two nodes: sent, acknowledged, sent again, in order."""

import hashlib
from datetime import timedelta
from typing import Any, Final

import pytest

from postroad.node.service import Submission, SubmittedPayload
from postroad.store.records import Side, State
from postroad.wire.content import BytesContent
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    World,
    address,
    lost,
    passed,
    played,
    refused,
    reply_lost,
)

M: Final = "m@buyer.example"
VERSIONS: Final = ("0.98b", "1.0", "2.0")
RELIABLY: Final[dict[str, Any]] = {
    "delivery_semantics": "OnceAndOnlyOnce",
    "ack_requested": "UnSigned",
    "reply_to": address(BUYER),
}


def answers_to(version: str) -> dict[str, Any]:
    """2.0 has no TraceHeader: where acknowledgments go is the agreement's to say."""
    if version != "2.0":
        return {}
    return {"security": {"send_receipt": {"reply_to": address(BUYER)}}}


@pytest.mark.req("MS098-8.5.3.1-01", "MS098-10.3.1.3-01")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_reliable_message_is_delivered_and_acknowledged_by_a_message_of_its_own(
    world: World, version: str
) -> None:
    world.speak(version=version, **RELIABLY, **answers_to(version))
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await seller.inbox() == [M]
    assert await buyer.story(M) == ["submitted", "sent", "ack_received"]
    assert await seller.story(M) == ["received", "delivered", "acked"]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    there, back = world.wire.posted
    assert (there.receiver, back.receiver) == (SELLER, BUYER)
    assert there.soap_action == back.soap_action == '"ebXML"'
    assert (await buyer.message(M)).protocol == f"ebxml-{version}"


@pytest.mark.req("MS098-10.2.1-06")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_best_effort_is_sent_once_and_nobody_is_told(world: World, version: str) -> None:
    world.speak(version=version, delivery_semantics="BestEffort")
    buyer, seller = await world.both()
    world.wire.will(passed, lost)
    await buyer.send(M)
    await buyer.send("lost@buyer.example")
    await world.wait(100)
    assert await seller.inbox() == [M]
    assert len(world.wire.posted) == 2
    assert await buyer.state(M) is State.SENT


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_with_sync_reply_the_acknowledgment_is_the_response(
    world: World, version: str
) -> None:
    world.speak(version=version, sync_reply="mshSignalsOnly", **RELIABLY)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert len(world.wire.posted) == 1


@pytest.mark.req("MS098-10.3.1.5-01", "MS098-10.3.1.5-04", "MS098-10.3.1.5-05", "MS098-10.3.1.5-06")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_copy_is_the_same_and_gets_the_first_acknowledgment_again(
    world: World, version: str
) -> None:
    world.speak(version=version, **RELIABLY, **answers_to(version))
    buyer, seller = await world.both()
    world.wire.will(lost, at=SELLER)
    world.wire.will(*[lost] * 20, at=BUYER)
    await buyer.send(M)
    await world.wait(30)
    copies = world.wire.to(SELLER)
    assert len(copies) > 2
    assert len({one.body for one in copies}) == 1
    assert await seller.inbox() == [M]
    assert "duplicate" in await seller.story(M)
    acknowledgments = world.wire.to(BUYER)
    assert len(acknowledgments) > 1
    ids = {one.body.split(b"MessageId>")[1] for one in acknowledgments}
    assert len(ids) == 1, "each copy gets the first acknowledgment"


@pytest.mark.req("OV004-1-11", "MS098-10.3.1.5-05")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_copy_that_comes_after_the_acknowledgment_is_acknowledged_once_more(
    world: World, version: str
) -> None:
    world.speak(version=version, **RELIABLY, **answers_to(version))
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [copy] = world.wire.to(SELLER)
    assert len(world.wire.to(BUYER, M)) == 1
    await world.wire.post(BUYER, SELLER, copy.content_type, copy.body, copy.soap_action)
    await world.wait(1)
    assert (await seller.story(M)).count("delivered") == 1
    first, second = world.wire.to(BUYER, M)
    assert first.body.split(b"MessageId>")[1] == second.body.split(b"MessageId>")[1]


@pytest.mark.req("OV004-1-08")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_copy_is_known_for_as_long_as_the_sender_may_send_it_again(
    world: World, version: str
) -> None:
    """The last of the retries is due ten hours after the first copy."""
    retry = {"max_retries": 10, "period": "PT1H"}
    world.speak(version=version, retry=retry, **RELIABLY, **answers_to(version))
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    await seller.node.acknowledge(M)
    [first] = world.wire.to(SELLER)
    world.clock.ahead += timedelta(hours=10)
    assert await seller.node.purge(0) == 0
    await world.wire.post(BUYER, SELLER, first.content_type, first.body, first.soap_action)
    await world.wait(1)
    assert await seller.story(M) == ["received", "delivered", "acked", "duplicate", "acked"]
    assert await seller.inbox() == [M]
    assert len(world.wire.to(BUYER)) == 2, "the copy is acknowledged too"


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_signed_message_gets_a_signed_acknowledgment(world: World, version: str) -> None:
    terms = RELIABLY | {"ack_requested": "Signed", "sync_reply": "mshSignalsOnly"}
    world.speak(version=version, signed=True, **terms)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    given = await seller.node.signals(await seller.message(M))
    envelope = b"".join(seller.node.signal(given[0]).chunks())
    assert b"<ds:Signature" in envelope


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_messages_of_a_conversation_keep_their_order(world: World, version: str) -> None:
    world.speak(version=version, message_order="Guaranteed", **RELIABLY, **answers_to(version))
    buyer, seller = await world.both()
    ids = [f"{number}@buyer.example" for number in range(4)]
    world.wire.will(lost, passed, reply_lost, lost)
    for one in ids:
        await buyer.send(one, conversation="c1")
    await world.wait(100)
    assert await seller.inbox() == ids
    numbers = [(await buyer.message(one)).sequence_number for one in ids]
    assert numbers == [0, 1, 2, 3]
    statuses = [one.body.count(b"Reset") for one in world.wire.to(SELLER)]
    assert statuses[0] == 1
    assert statuses[-1] == 0


@played
async def test_a_number_of_what_never_arrived_is_given_to_the_next(world: World) -> None:
    world.speak(version="0.98b", message_order="Guaranteed", **RELIABLY)
    world.configure(BUYER, send={"breaker": {"failures": 0}})
    buyer, seller = await world.both()
    world.wire.will(passed, *[refused] * 4)
    for number in range(3):
        await buyer.send(f"{number}@buyer.example", conversation="c1")
    await world.wait(200)
    assert await buyer.state("1@buyer.example") is State.FAILED
    assert await seller.inbox() == ["0@buyer.example", "2@buyer.example"]
    assert (await buyer.message("2@buyer.example")).sequence_number == 1


@played
async def test_the_next_transport_is_tried_when_one_has_used_up_its_retries(world: World) -> None:
    terms = RELIABLY | {"transports": ["http://carrier.example/msh"]}
    world.speak(version="0.98b", **terms)
    world.configure(BUYER, send={"breaker": {"failures": 0}})
    buyer, seller = await world.both()
    world.stations["carrier"] = seller
    world.wire.usual[SELLER] = refused
    await buyer.send(M)
    await world.wait(100)
    assert len(world.wire.to(SELLER)) == 4
    assert len(world.wire.to("carrier")) == 1
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert b"<eb:ReceiverURI>http://carrier.example/msh<" in world.wire.to("carrier")[0].body
    del world.stations["carrier"]


@pytest.mark.req("MS098-8.6.4-03")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_the_answer_of_the_application_is_the_response_where_that_is_agreed(
    world: World, version: str
) -> None:
    terms = RELIABLY | {"sync_reply": "signalsAndResponse"}
    world.speak(version=version, **terms)
    world.speak("answers", frm=SELLER, to=BUYER, version=version)
    buyer, seller = await world.both()
    await buyer.send(M, ORDERS)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.READY, "its request still waits"
    await seller.answer("r@seller.example", "answers", to=M)
    await world.wait(2)
    assert await buyer.inbox() == ["r@seller.example"]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.state("r@seller.example") is State.SENT
    assert len(world.wire.posted) == 1


@played
async def test_a_request_that_waited_in_vain_gets_the_answer_later(world: World) -> None:
    terms = RELIABLY | {"sync_reply": "responseOnly"}
    world.speak(version="0.98b", **terms)
    world.speak("answers", frm=SELLER, to=BUYER, version="0.98b")
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    await buyer.send(M, ORDERS)
    await world.wait(4)
    await seller.answer("r@seller.example", "answers", to=M)
    await world.wait(2)
    assert await buyer.inbox() == ["r@seller.example"]
    assert [one.receiver for one in world.wire.posted].count(BUYER) == 1


@pytest.mark.req("MS098-8.4.9-01", "MS098-8.4.9-02", "MS098-8.10.5.2-02")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_descriptions_in_several_languages_reach_the_application(
    world: World, version: str
) -> None:
    world.speak(version=version)
    buyer, seller = await world.both()
    told = (("Description", "an order", "en"), ("Description", "eine Bestellung", "de"))
    paper = ("Description", "papier", "nl")
    digest = hashlib.sha256(b"x").digest()
    part = SubmittedPayload(BytesContent(b"x"), digest, properties=(paper,))
    submission = Submission(ORDERS, (part,), M, properties=told)
    await buyer.process.ask(buyer.node.submit(submission))
    await world.wait(1)
    found = await seller.message(M)
    assert found.properties == told
    assert paper in found.parts[0].properties


@played
async def test_time_to_live_leaves_room_for_the_clock_of_the_receiver(world: World) -> None:
    retry = {"max_retries": 1, "time_to_live": "PT1H"}
    world.speak(version="0.98b", retry=retry, msh_time_accuracy="02:30", **RELIABLY)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert b"<eb:TimeToLive>2024-06-01T13:02:30" in world.wire.to(SELLER)[0].body


@pytest.mark.req("RM000-1.2.10-02", "MS098-10.2.9-01")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_receiver_knows_a_message_for_persist_duration_whatever_is_purged(
    world: World, version: str
) -> None:
    """Also where TimeToLive ends its sending long before."""
    kept = {"max_retries": 3, "period": "PT1M", "time_to_live": "PT3H", "persist_duration": "P7D"}
    world.speak(version=version, retry=kept, **RELIABLY, **answers_to(version))
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    await seller.node.acknowledge(M)
    world.clock.ahead += timedelta(days=6)
    assert await seller.node.purge(0) == 0
    assert await seller.message(M, Side.RECEIVING)
    world.clock.ahead += timedelta(days=2)
    assert await seller.node.purge(0) == 1
