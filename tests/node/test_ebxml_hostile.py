"""What strangers and hostile partners must not do to ebXML messages."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from postroad.node.base.requests import Request
from postroad.reliability.breaker import Gate
from postroad.store.interface import Reader, Transaction
from postroad.store.records import State
from tests.node.ebxml_letters import (
    CID,
    RELIABLY,
    SERVICES,
    XML,
    M,
    Said,
    acknowledgment,
    block,
    envelope,
    error,
    header,
    listening,
    order,
    pack,
    packed,
    spoiled,
    trace,
    via,
)
from tests.node.ebxml_stations import (
    BY_BUYER,
    EBXML,
    RELIABLE,
    by_key_of_the_buyer,
    start,
)
from tests.node.reliable import (
    BUYER,
    CARRIER,
    ORDERS,
    SELLER,
    World,
    address,
    lost,
    party,
    played,
    refused,
    status,
)


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


@pytest.mark.parametrize("profile", ["ms098", "rm001"])
@played
async def test_a_stranger_cannot_have_a_partner_left_alone_by_an_unsigned_transient_error(
    world: World, profile: str
) -> None:
    world.speak(signed=True, ack_requested="Signed", profile=profile, **RELIABLE)
    world.wire.usual[SELLER] = lost
    buyer = await start(world, BUYER)
    await buyer.send(M)
    await world.wait(1)
    listed = spoiled(error(), "<eb:Error ", '<eb:Error MinRetrySecs="864000" ')
    said = header(
        id="e@evil.example",
        ref=M,
        frm=party(SELLER),
        to=party(BUYER),
        service=SERVICES["0.98b"],
        action="MessageError",
        conversation=M,
    )
    await buyer.receive(XML, envelope(said, listed).encode(), EBXML)
    partners = await buyer.node.partners()
    assert all(one.gate is Gate.FLOWING for one in partners)


@played
async def test_one_partner_cannot_acknowledge_in_the_name_of_another(world: World) -> None:
    """An Acknowledgment may name who acknowledges; who brings it must be that one."""
    world.speak(signed=True, delivery_receipt="Signed", **RELIABLE)
    world.speak("news", frm=CARRIER, to=BUYER, at=(BUYER,), security=BY_BUYER, **RELIABLE)
    world.wire.usual[SELLER] = world.wire.usual[CARRIER] = lost
    buyer = await start(world, BUYER)
    await buyer.send(M)
    await world.wait(1)
    claims = spoiled(
        acknowledgment("DeliveryReceipt", signed="true"),
        "</eb:Timestamp>",
        f"</eb:Timestamp><eb:From><eb:PartyId>{party(SELLER)}</eb:PartyId></eb:From>",
    )
    named = {"id": "n@carrier.example", "ref": M, "frm": party(CARRIER), "to": party(BUYER)}
    news = envelope(
        header(action="news", inside=RELIABLY, **named),
        trace(address(CARRIER), address(BUYER)),
        claims,
    )
    await buyer.receive(XML, by_key_of_the_buyer(buyer, "news", news), EBXML)
    assert await buyer.inbox() == ["n@carrier.example"]
    assert await buyer.state(M) is State.WAITING


@played
async def test_message_is_delivered_although_a_stranger_used_its_id_first(world: World) -> None:
    world.speak(signed=True, ack_requested="Signed", **RELIABLE)
    world.speak("news", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    await seller.receive(*packed(order(action="news", inside=RELIABLY)), EBXML)
    await buyer.send(M)
    await world.wait(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    received = await seller.node.received(M)
    assert [(one.pmode, one.state) for one in received] == [
        ("news", State.DELIVERED),
        (ORDERS, State.DELIVERED),
    ]
    [posted] = world.wire.to(SELLER, M)
    await seller.receive(posted.content_type, posted.body, EBXML)
    await world.wait(2)
    assert (await seller.story(M)).count("delivered") == 2
    assert (await seller.story(M)).count("duplicate") == 1


@played
async def test_something_else_under_a_known_id_gets_no_acknowledgment_of_the_first(
    world: World,
) -> None:
    world.speak(version="0.98b", ack_requested="UnSigned")
    seller = await listening(world)
    asks = via(' eb:ackRequested="UnSigned"')
    await seller.receive(*packed(order("0.98b", asks)), EBXML)
    await world.wait(2)
    before = len(world.wire.to(BUYER))
    await seller.receive(*pack(order("0.98b", asks), (CID, b"<order>gold</order>")), EBXML)
    await world.wait(2)
    answers = [Said.read(one.body).service[1] for one in world.wire.to(BUYER)[before:]]
    assert answers == ["MessageError"]


@played
async def test_a_copy_that_comes_by_another_way_gets_the_response_as_it_was(world: World) -> None:
    world.speak(sync_reply="responseOnly", **RELIABLE)
    world.speak("answers", frm=SELLER, to=BUYER, version="0.98b")
    seller = await listening(world)
    asks = via(' eb:syncReply="true"')
    waiting = asyncio.ensure_future(
        seller.receive(*packed(order("0.98b", asks, inside=RELIABLY)), EBXML)
    )
    await world.wait(1)
    await seller.answer("yes@seller.example", "answers", to=M)
    response = await waiting
    assert b"yes@seller.example" in response.body
    again = await seller.receive(*packed(order(inside=RELIABLY)), EBXML)
    await world.wait(2)
    assert again.status < 500
    said = again.body + b"".join(one.body for one in world.wire.to(BUYER))
    assert b"yes@seller.example" in said


@played
async def test_a_message_that_wants_its_answer_in_a_response_is_acknowledged_where_there_is_none(
    world: World,
) -> None:
    world.speak(sync_reply="responseOnly", **RELIABLE)
    seller = await listening(world)
    asks = via(' eb:syncReply="true"')
    content_type, body = packed(order("0.98b", asks, inside=RELIABLY))
    request = Request(content_type, "mailto:a@b", pieces(body), None, EBXML, synchronous=False)
    await seller.process.ask(seller.node.receive(request))
    await world.wait(2)
    assert [Said.read(one.body).service[1] for one in world.wire.to(BUYER)] == ["Acknowledgment"]


@played
async def test_a_copy_does_not_take_the_answer_from_the_request_that_waits_for_it(
    world: World,
) -> None:
    world.speak(sync_reply="responseOnly", **RELIABLE)
    world.speak("answers", frm=SELLER, to=BUYER, version="0.98b")
    seller = await listening(world)
    other = await world.start(SELLER, beside=True)
    letter = packed(order("0.98b", via(' eb:syncReply="true"'), inside=RELIABLY))
    first = asyncio.ensure_future(seller.receive(*letter, EBXML))
    await world.wait(1.05)
    await other.answer("yes@seller.example", "answers", to=M)
    second = asyncio.ensure_future(other.receive(*letter, EBXML))
    await world.wait(1)
    done = [one.result().body for one in (first, second) if one.done()]
    assert any(b"yes@seller.example" in one for one in done)


@pytest.mark.parametrize(
    ("hosts", "called"),
    [([], []), (["*.carrier.example"], []), (["*.example"], ["victim"])],
)
@played
async def test_whom_the_unsigned_trace_has_us_call_is_bounded_by_agreement_and_configuration(
    world: World, hosts: list[str], called: list[str]
) -> None:
    """A TraceHeader is outside of the signature: whoever has a message can send another one."""
    world.configure(BUYER, security={"egress": {"callback_hosts": hosts}})
    world.speak("news", frm=CARRIER, to=BUYER, at=(BUYER,), security=BY_BUYER, **RELIABLE)
    world.speak(signed=True, at=(BUYER,), **RELIABLE)
    for name in ("victim", CARRIER):
        world.wire.usual[name] = status(204)
    buyer = await start(world, BUYER)
    named = {"frm": party(CARRIER), "to": party(BUYER)}
    letter = envelope(header(action="news", inside=RELIABLY, **named), trace(address(CARRIER)))
    signed = by_key_of_the_buyer(buyer, "news", letter)
    changed = signed.replace(address(CARRIER).encode(), address("victim").encode())
    response = await buyer.receive(XML, changed, EBXML)
    await world.wait(2)
    assert [name for name in ("victim", CARRIER) if world.wire.to(name)] == called
    assert await buyer.inbox() == [M]
    told = [one.detail for one in await buyer.journal("error_raised")]
    assert len(told) == (not called)
    if not called:
        # Nobody knows another address: who sent it gets the answer in the response.
        assert b"Acknowledgment" in response.body
        assert "security.egress.callback_hosts" in (told[0] or "")


@pytest.mark.parametrize(
    ("second", "answered"), [(CARRIER, [BUYER, CARRIER]), ("stranger", [BUYER, BUYER])]
)
@played
async def test_a_second_copy_is_answered_where_p_modes_say_or_where_the_first_was(
    world: World, second: str, answered: list[str]
) -> None:
    """A relay that brings the second copy waits for an acknowledgment of its own."""
    world.configure(SELLER, security={"egress": {"callback_hosts": ["*.example"]}})
    world.speak(at=(SELLER,), **RELIABLE)
    for name in (BUYER, CARRIER):
        world.speak(f"news to {name}", frm=SELLER, to=BUYER, at=(SELLER,), url=address(name))
    for name in (CARRIER, "stranger"):
        world.wire.usual[name] = status(204)
    seller = await listening(world)
    first = order(inside=RELIABLY)
    for letter in (first, spoiled(first, address(BUYER), address(second))):
        await seller.receive(*packed(letter), EBXML)
        await world.wait(2)
    called = [one for one in (BUYER, CARRIER, "stranger") for _ in world.wire.to(one)]
    assert called == answered
    assert await seller.inbox() == [M]


@played
async def test_copies_do_not_pile_up_acknowledgments_that_nobody_takes(world: World) -> None:
    world.speak(ack_requested="UnSigned", **RELIABLE)
    seller = await listening(world)
    world.wire.usual[BUYER] = refused
    letter = packed(order("0.98b", via(' eb:ackRequested="UnSigned"'), inside=RELIABLY))
    for _ in range(20):
        await seller.receive(*letter, EBXML)
    assert await seller.work() == {"signal": 1}


@played
async def test_all_that_may_be_forgotten_is_forgotten(world: World) -> None:
    world.speak(version="0.98b")
    seller = await start(world, SELLER)
    store, now = seller.node.context.store, seller.node.context.clock()

    def fill(tx: Transaction) -> None:
        for number in range(1000):
            tx.set_state(f"~awaits:{number}", b"", now)

    await store.run(fill)
    world.clock.ahead += timedelta(days=400)
    await seller.node.purge(30)

    def left(reader: Reader) -> list[int]:
        return [one for one in range(1000) if reader.state(f"~awaits:{one}") is not None]

    assert await store.look(left) == []


@played
async def test_an_acknowledgment_that_was_not_believed_once_is_heard_when_it_comes_again(
    world: World,
) -> None:
    """A copy gets the first acknowledgment again, with its id; here the first is forged."""
    world.speak(ack_requested="Signed", signed=True, **RELIABLE)
    buyer, _ = await start(world, BUYER), await start(world, SELLER)
    world.wire.will(lost, at=BUYER)
    await buyer.send(M)
    await world.wait(0.5)
    true = world.wire.to(BUYER)[0]
    start_of, end_of = true.body.index(b"<ds:Signature"), true.body.index(b"</ds:Signature>")
    forged = true.body[:start_of] + true.body[end_of + len(b"</ds:Signature>") :]
    await buyer.receive(true.content_type, forged, EBXML)
    assert await buyer.state(M) is State.WAITING
    await buyer.receive(true.content_type, true.body, EBXML)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_message_to_somebody_else_is_not_given_to_the_request_that_waits(
    world: World,
) -> None:
    world.speak(sync_reply="responseOnly", **RELIABLE)
    world.speak("warehouse", frm=SELLER, to=CARRIER, version="0.98b")
    seller = await listening(world)
    world.wire.usual[CARRIER] = status(204)
    letter = packed(order("0.98b", via(' eb:syncReply="true"'), inside=RELIABLY))
    waiting = asyncio.ensure_future(seller.receive(*letter, EBXML))
    await world.wait(1)
    await seller.answer("secret@seller.example", "warehouse", to=M)
    await world.wait(60)
    assert b"secret@seller.example" not in (await waiting).body
    assert world.wire.to(CARRIER, "secret@seller.example")


@played
async def test_a_status_is_no_answer_to_a_ping(world: World) -> None:
    world.speak(version="2.0")
    world.wire.usual[SELLER] = status(204)
    buyer = await start(world, BUYER)
    asking = asyncio.ensure_future(buyer.process.ask(buyer.node.ping(ORDERS, 5)))
    await world.wait(1)
    ref = Said.read(world.wire.to(SELLER)[0].body).data("MessageId")
    said = header(
        "2.0",
        id="s@seller.example",
        ref=ref,
        frm=party(SELLER),
        to=party(BUYER),
        service=SERVICES["2.0"],
        action="StatusResponse",
    )
    data = block(
        "StatusResponse",
        f"<eb:RefToMessageId>{ref}</eb:RefToMessageId>",
        "2.0",
        ' eb:messageStatus="UnAuthorized"',
    ).replace(' SOAP-ENV:mustUnderstand="1"', "")
    await buyer.receive(XML, envelope(said, body=data, version="2.0").encode(), EBXML)
    assert (await asking).answer is None
