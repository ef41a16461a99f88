"""What strangers, hostile partners and bad moments must not do to ebXML messages."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

import pytest

from postroad.msh.securing import signing
from postroad.node import packaging
from postroad.node.requests import Request
from postroad.node.service import Refused
from postroad.reliability.breaker import Gate
from postroad.security.ebxml_signature import sign_ebxml
from postroad.store.interface import Transaction
from postroad.store.records import Side, State
from postroad.wire.ebxml import MS098
from postroad.wire.ebxml_hops import insert_signature
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
    manifest,
    order,
    pack,
    packed,
    quality,
    spoiled,
    trace,
    via,
)
from tests.node.reliable import (
    BUYER,
    CARRIER,
    ORDERS,
    SELLER,
    STORES,
    Station,
    World,
    address,
    lost,
    party,
    played,
    refused,
    status,
)

EBXML: Final = '"ebXML"'
RELIABLE: Final[dict[str, Any]] = {"version": "0.98b", "delivery_semantics": "OnceAndOnlyOnce"}
BY_BUYER: Final = {
    "x509": {
        "sign": True,
        "signature": {"certificate": "../keys/buyer.pem", "algorithm": "rsa-sha256"},
    }
}
"""Whoever sends has the buyer's key: there are but two in these worlds."""


def by_key_of_the_buyer(buyer: Station, pmode: str, letter: str) -> bytes:
    """A letter with the signature that a P-Mode asks for."""
    in_force = buyer.node.context.in_force
    match = in_force.match(pmode, 1)
    assert match is not None
    how = signing(match.leg, in_force.keyring.signing)
    assert how is not None
    signature, _ = sign_ebxml(letter.encode(), MS098, (), how)
    return insert_signature(letter.encode(), signature)


def linked(number: int) -> str:
    """The TraceHeaderList of a message over a link to the carrier."""
    said = '<r:SequenceNumber xmlns:r="http://www.ebxml.org/namespaces/reliableMessaging">'
    said += f"{number}</r:SequenceNumber></eb:TraceHeader>"
    return spoiled(trace(address(BUYER), address(CARRIER)), "</eb:TraceHeader>", said)


def in_order(number: int) -> str:
    """What the header of a message says that has this number in its conversation."""
    how = "Continue" if number else "Reset"
    said = f'<eb:SequenceNumber eb:status="{how}">{number}</eb:SequenceNumber>'
    return quality("OnceAndOnlyOnce", "Guaranteed") + said


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def start(world: World, name: str) -> Station:
    station = await world.start(name)
    station.node.context.msh_url = address(name)
    return station


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
async def test_what_a_relay_could_not_pass_on_does_not_stop_what_follows_for_ever(
    world: World,
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, ack_requested="UnSigned", **RELIABLE)
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = lost
    ordered = quality("OnceAndOnlyOnce", "Guaranteed")
    for number, name in enumerate(("m0", "m1")):
        how = "Reset" if number == 0 else "Continue"
        inside = f'{ordered}<eb:SequenceNumber eb:status="{how}">{number}</eb:SequenceNumber>'
        to = trace(address(BUYER), address(CARRIER))
        said = header(id=f"{name}@buyer.example", inside=inside)
        letter = envelope(said, to, via(' eb:ackRequested="UnSigned"'), body=manifest())
        await carrier.receive(*packed(letter), EBXML)
        await world.wait(120)
        world.wire.usual[SELLER] = status(204)
    assert world.wire.to(SELLER, "m0@buyer.example")
    assert world.wire.to(SELLER, "m1@buyer.example")


@played
async def test_what_could_not_be_packaged_leaves_no_hole_in_its_conversation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    make = packaging.make_package

    def broken(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(packaging, "make_package", make)
        raise Refused(422, "the key is gone")

    monkeypatch.setattr(packaging, "make_package", broken)
    await buyer.send("m0@buyer.example", conversation="c")
    await world.wait(2)
    assert await buyer.state("m0@buyer.example") is State.FAILED
    await buyer.send("m1@buyer.example", conversation="c")
    await world.wait(2)
    assert await seller.inbox() == ["m1@buyer.example"]


@played
async def test_a_relay_that_agreed_on_signatures_passes_on_nothing_unsigned(world: World) -> None:
    world.speak("other", at=(SELLER,), signed=True, version="0.98b")
    terms = RELIABLE | {"relay": True, "security": BY_BUYER}
    world.speak("there", at=(SELLER,), frm=BUYER, to=CARRIER, **terms)
    seller = await listening(world, SELLER)
    letter = order(to=party(CARRIER), inside=RELIABLY)
    await seller.receive(*packed(letter), EBXML)
    await world.wait(2)
    assert not world.wire.to(CARRIER)


@played
async def test_a_relay_is_not_brought_down_by_a_payload_that_is_not_there(world: World) -> None:
    world.speak("there", at=(CARRIER,), relay=True, **RELIABLE)
    carrier = await listening(world, CARRIER)
    letter = order(body=manifest(hrefs=("http://evil.example/order",)), inside=RELIABLY)
    response = await carrier.receive(*packed(letter), EBXML)
    assert response.status < 500


@played
async def test_a_relay_that_acknowledges_after_forwarding_does_not_do_so_on_the_response(
    world: World,
) -> None:
    world.speak(
        "there",
        at=(CARRIER,),
        relay=True,
        ack_requested="UnSigned",
        ack_after_forward=True,
        **RELIABLE,
    )
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = refused
    asks = via(' eb:ackRequested="UnSigned" eb:syncReply="true"')
    letter = envelope(
        header(inside=RELIABLY), trace(address(BUYER), address(CARRIER)), asks, body=manifest()
    )
    response = await carrier.receive(*packed(letter), EBXML)
    assert not response.body


@played
async def test_an_acknowledgment_that_waits_goes_away_with_a_message_that_is_given_up(
    world: World,
) -> None:
    world.speak(
        "there",
        at=(CARRIER,),
        relay=True,
        ack_requested="UnSigned",
        ack_after_forward=True,
        **RELIABLE,
    )
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = refused
    letter = envelope(
        header(inside=RELIABLY),
        trace(address(BUYER), address(CARRIER)),
        via(' eb:ackRequested="UnSigned"'),
        body=manifest(),
    )
    await carrier.receive(*packed(letter), EBXML)
    await world.wait(300)
    assert (await carrier.message(M, Side.FORWARDING)).state is State.FAILED
    assert await carrier.work() == {}


@played
async def test_best_effort_that_was_passed_on_is_acknowledged_after_forwarding(
    world: World,
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, version="0.98b", ack_after_forward=True)
    carrier = await listening(world, CARRIER)
    letter = envelope(
        header(),
        trace(address(BUYER), address(CARRIER)),
        via(' eb:ackRequested="UnSigned"'),
        body=manifest(),
    )
    await carrier.receive(*packed(letter), EBXML)
    await world.wait(10)
    assert world.wire.to(SELLER, M)
    assert [Said.read(one.body).service[1] for one in world.wire.to(BUYER)] == ["Acknowledgment"]


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
async def test_a_relay_tells_who_sends_something_else_under_a_known_id(world: World) -> None:
    world.speak("there", at=(CARRIER,), relay=True, **RELIABLE)
    carrier = await listening(world, CARRIER)
    letter = order(inside=RELIABLY)
    await carrier.receive(*packed(letter), EBXML)
    await world.wait(2)
    before = len(world.wire.to(BUYER))
    await carrier.receive(*pack(letter, (CID, b"<order>gold</order>")), EBXML)
    await world.wait(2)
    answers = [Said.read(one.body).service[1] for one in world.wire.to(BUYER)[before:]]
    assert answers == ["MessageError"]
    assert "rejected" not in await carrier.story(M), "the first one was not"


@played
async def test_a_message_without_a_link_is_refused_where_links_are_spoken(world: World) -> None:
    world.speak(profile="rm001", **RELIABLE)
    seller = await listening(world)
    letter = envelope(header(inside=RELIABLY), body=manifest())
    response = await seller.receive(*packed(letter), EBXML)
    await world.wait(1)
    said = [Said.read(one.body) for one in world.wire.to(BUYER)]
    assert response.status < 500 or Said.read(response.body).fault
    assert response.body or said


@played
async def test_a_conversation_goes_on_after_what_is_old_was_removed(world: World) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    for name in ("m0@buyer.example", "m1@buyer.example"):
        await buyer.send(name, conversation="c")
        await world.wait(2)
    world.clock.ahead += timedelta(days=40)
    await seller.node.purge(30)
    await buyer.send("m2@buyer.example", conversation="c")
    await world.wait(2)
    assert "m2@buyer.example" in await seller.inbox()


@played
async def test_what_is_held_for_its_order_is_not_removed_while_it_waits(world: World) -> None:
    """It was acknowledged: nobody sends it again."""
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    inside = quality("OnceAndOnlyOnce", "Guaranteed")
    inside += '<eb:SequenceNumber eb:status="Continue">1</eb:SequenceNumber>'
    await seller.receive(*packed(order(inside=inside)), EBXML)
    world.clock.ahead += timedelta(days=40)
    await seller.node.purge(30)
    assert await seller.state(M) is State.HELD


@played
async def test_two_p_modes_of_one_conversation_leave_no_hole_in_it(world: World) -> None:
    world.speak(message_order="Guaranteed", url=address("nowhere"), **RELIABLE)
    world.speak("changes", message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    world.wire.usual["nowhere"] = refused
    await buyer.send("m0@buyer.example", conversation="c")
    await world.wait(1)
    await buyer.send("m1@buyer.example", "changes", conversation="c")
    await world.wait(600)
    assert await buyer.state("m0@buyer.example") is State.FAILED
    assert await seller.inbox() == ["m1@buyer.example"]


@played
async def test_resuming_a_partner_sends_also_what_is_carried_for_others(world: World) -> None:
    world.speak(
        "there",
        at=(CARRIER,),
        relay=True,
        retry={"max_retries": 1, "then": "suspend", "timeout": "PT1S", "period": "PT1S"},
        **RELIABLE,
    )
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = refused
    await carrier.receive(*packed(order(inside=RELIABLY)), EBXML)
    await world.wait(300)
    assert (await carrier.message(M, Side.FORWARDING)).state is State.SUSPENDED
    world.wire.usual[SELLER] = status(204)
    before = len(world.wire.to(SELLER))
    await carrier.process.ask(carrier.node.resume(party(SELLER)))
    await world.wait(5)
    assert len(world.wire.to(SELLER)) > before


@played
async def test_status_knows_what_is_carried_for_others_without_being_told_the_side(
    world: World,
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, **RELIABLE)
    carrier = await listening(world, CARRIER)
    await carrier.receive(*packed(order(inside=RELIABLY)), EBXML)
    await world.wait(1)
    assert await carrier.node.message(M) is not None


@pytest.mark.xfail(strict=True, reason="R18")
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


@played
async def test_over_a_link_a_copy_is_not_acknowledged_before_it_was_forwarded(
    world: World,
) -> None:
    terms = RELIABLE | {"profile": "rm001", "ack_after_forward": True, "relay": True}
    world.speak("there", at=(CARRIER,), **terms)
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = refused
    letter = envelope(header(inside=RELIABLY), linked(1), body=manifest())
    for _ in range(2):
        await carrier.receive(*packed(letter), EBXML)
        await world.wait(1)
    assert not [one for one in world.wire.to(BUYER) if b"Acknowledgment" in one.body]


@played
async def test_each_hole_of_a_conversation_is_reported(world: World) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    ordered = quality("OnceAndOnlyOnce", "Guaranteed")

    async def come(number: int) -> None:
        how = "Continue" if number else "Reset"
        inside = f'{ordered}<eb:SequenceNumber eb:status="{how}">{number}</eb:SequenceNumber>'
        named = {"id": f"m{number}@buyer.example", "inside": inside}
        await seller.receive(*packed(order(**named)), EBXML)

    for number in (0, 2, 4, 6):
        await come(number)
    await world.wait(2 * 3600)
    await come(1)
    await world.wait(2 * 3600)
    holes = [one.detail or "" for one in await seller.journal("error_raised")]
    assert [one.split()[1] for one in holes] == ["1", "3"]


@pytest.mark.xfail(strict=True, reason="R23")
@played
async def test_where_messages_are_signed_the_unsigned_trace_does_not_say_whom_we_call(
    world: World,
) -> None:
    """A TraceHeader is outside of the signature: whoever has a message can send it with another."""
    world.speak("news", frm=CARRIER, to=BUYER, at=(BUYER,), security=BY_BUYER, **RELIABLE)
    world.speak(signed=True, at=(BUYER,), **RELIABLE)
    world.wire.usual["victim"] = status(204)
    buyer = await start(world, BUYER)
    named = {"frm": party(CARRIER), "to": party(BUYER)}
    letter = envelope(header(action="news", inside=RELIABLY, **named), trace(address(CARRIER)))
    body = by_key_of_the_buyer(buyer, "news", letter)
    await buyer.receive(
        XML, body.replace(address(CARRIER).encode(), address("victim").encode()), EBXML
    )
    await world.wait(2)
    assert not world.wire.to("victim")


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
    left = [
        n
        for n in range(1000)
        if await store.look(lambda r, n=n: r.state(f"~awaits:{n}")) is not None
    ]
    assert not left


@played
async def test_a_relay_takes_no_id_that_is_longer_than_elsewhere(world: World) -> None:
    world.speak("there", at=(CARRIER,), relay=True, **RELIABLE)
    carrier = await listening(world, CARRIER)
    letter = order(id="x" * 100_000, inside=RELIABLY)
    await carrier.receive(*packed(letter), EBXML)
    await world.wait(1)
    assert not world.wire.to(SELLER)


@played
async def test_what_no_mail_can_say_is_given_up_with_its_reason(world: World) -> None:
    world.configure(
        CARRIER,
        mail={
            "address": "msh@carrier.example",
            "relay": {"host": "127.0.0.1", "port": 9, "starttls": "never"},
        },
    )
    world.speak("there", at=(CARRIER,), relay=True, url="mailto:msh@seller.example", **RELIABLE)
    carrier = await listening(world, CARRIER)
    await carrier.receive(*packed(order(id="an id with blanks", inside=RELIABLY)), EBXML)
    await world.wait(2)
    events = [one.event for one in await carrier.events("an id with blanks")]
    assert "forwarded" not in events, "not a byte left"


@played
async def test_what_the_receiver_says_on_a_response_comes_back_through_the_relay(
    world: World,
) -> None:
    terms = {"version": "2.0", "delivery_semantics": "OnceAndOnlyOnce", "ack_requested": "UnSigned"}
    world.speak(at=(BUYER,), url=address(CARRIER), hops=1, **terms)
    world.speak(at=(SELLER,), **terms)
    world.speak("there", at=(CARRIER,), relay=True, **terms)
    world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, relay=True, version="2.0")
    for name in (SELLER, CARRIER):
        await start(world, name)
    buyer = await start(world, BUYER)
    await buyer.send(M)
    await world.wait(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED


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
async def test_applications_are_told_of_a_conversation_in_its_order(world: World) -> None:
    world.configure(SELLER, webhook={"url": "http://shop.example/told"})
    world.wire.will(status(500), at="shop")
    world.wire.usual["shop"] = status(204)
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    ordered = quality("OnceAndOnlyOnce", "Guaranteed")
    for number in (1, 0):
        how = "Continue" if number else "Reset"
        inside = f'{ordered}<eb:SequenceNumber eb:status="{how}">{number}</eb:SequenceNumber>'
        await seller.receive(*packed(order(id=f"m{number}@buyer.example", inside=inside)), EBXML)
    await world.wait(300)
    told = [one.told["message_id"][:2] for one in world.wire.to("shop")]
    assert told == ["m0", "m0", "m1"]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_the_inbox_lists_a_conversation_in_its_order(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    ordered = quality("OnceAndOnlyOnce", "Guaranteed")
    for number in (2, 1, 0):
        how = "Continue" if number else "Reset"
        inside = f'{ordered}<eb:SequenceNumber eb:status="{how}">{number}</eb:SequenceNumber>'
        await seller.receive(*packed(order(id=f"m{number}@buyer.example", inside=inside)), EBXML)
        await world.wait(1)
    assert [one[:2] for one in await seller.inbox()] == ["m0", "m1", "m2"]


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


@played
async def test_over_a_link_too_what_is_too_late_is_refused(world: World) -> None:
    world.speak(profile="rm001", **RELIABLE)
    seller = await listening(world)
    to_seller = linked(1).replace(address(CARRIER), address(SELLER))
    late = header(inside=RELIABLY, live="2024-05-31T12:00:00Z")
    await seller.receive(*packed(envelope(late, to_seller, body=manifest())), EBXML)
    assert await seller.inbox() == []


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_expires_before_its_turn_takes_no_number(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    retry = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S", "time_to_live": "PT30S"}
    world.speak(message_order="Guaranteed", retry=retry, **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    world.wire.usual[SELLER] = lost
    for name in ("m0", "m1", "m2"):
        await buyer.send(f"{name}@buyer.example", conversation="c")
    await world.wait(60)
    assert await buyer.state("m2@buyer.example") is State.EXPIRED
    del world.wire.usual[SELLER]
    await buyer.process.ask(buyer.node.settle("m0@buyer.example", "not_received"))
    await buyer.send("m3@buyer.example", conversation="c")
    await world.wait(5)
    assert await seller.inbox() == ["m3@buyer.example"]


@played
async def test_each_partner_of_a_conversation_gets_numbers_without_holes(world: World) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    world.speak("transport", to=CARRIER, message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    carrier = await start(world, CARRIER)
    await buyer.send("m0@buyer.example", conversation="order 4711")
    await world.wait(2)
    await buyer.send("t0@buyer.example", "transport", conversation="order 4711")
    await world.wait(2)
    assert await seller.inbox() == ["m0@buyer.example"]
    assert await carrier.inbox() == ["t0@buyer.example"]


@played
async def test_a_link_is_one_whoever_says_our_address(world: World) -> None:
    """The receiver knows a link by the two URIs of the TraceHeader, and so must who numbers."""
    terms = RELIABLE | {"profile": "rm001"}
    world.speak(**terms)
    world.speak("changes", reply_to=address(BUYER), **terms)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    for number in range(3):
        await buyer.send(f"m{number}@buyer.example")
        await buyer.send(f"c{number}@buyer.example", "changes")
        await world.wait(3)
    assert len(await seller.inbox()) == 6


@pytest.mark.xfail(strict=True, reason="R41")
@played
async def test_a_relay_passes_a_payload_on_as_it_says_of_itself(world: World) -> None:
    world.speak("there", at=(CARRIER,), relay=True, **RELIABLE)
    carrier = await listening(world, CARRIER)
    content_type, body = packed(order(inside=RELIABLY))
    said = b"Content-Type: text/plain; charset=iso-8859-1\r\n"
    body = body.replace(b"Content-Type: text/plain\r\n", said)
    await carrier.receive(content_type, body, EBXML)
    await world.wait(1)
    [passed_on] = world.wire.to(SELLER)
    assert b"charset=iso-8859-1" in passed_on.body


@pytest.mark.xfail(strict=True, reason="R45")
@played
async def test_a_conversation_goes_on_when_somebody_was_wrong_about_what_arrived(
    world: World,
) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    await buyer.send("m0@buyer.example", conversation="c")
    await world.wait(2)
    world.wire.usual[BUYER] = refused
    await buyer.send("m1@buyer.example", conversation="c")
    await world.wait(60)
    assert await buyer.state("m1@buyer.example") is State.IN_DOUBT
    await buyer.process.ask(buyer.node.settle("m1@buyer.example", "not_received"))
    del world.wire.usual[BUYER]
    await world.wait(600)
    for name in ("m2@buyer.example", "m3@buyer.example"):
        await buyer.send(name, conversation="c")
        await world.wait(30)
    assert len(await seller.inbox()) == 4


@pytest.mark.xfail(strict=True, reason="R47")
@pytest.mark.parametrize("trouble", [lost, refused])
@played
async def test_what_a_relay_gave_up_is_passed_on_when_it_comes_again(
    world: World, trouble: Any
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, ack_requested="UnSigned", **RELIABLE)
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = trouble
    asks = via(' eb:ackRequested="UnSigned"')
    to_carrier = trace(address(BUYER), address(CARRIER))
    letter = packed(envelope(header(inside=RELIABLY), to_carrier, asks, body=manifest()))
    await carrier.receive(*letter, EBXML)
    await world.wait(300)
    world.wire.usual[SELLER] = status(204)
    before = len(world.wire.to(SELLER))
    await carrier.receive(*letter, EBXML)
    await world.wait(300)
    assert len(world.wire.to(SELLER)) > before
