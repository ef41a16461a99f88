"""What must not happen to messages that are carried for others."""

from typing import Any

import pytest

from postroad.store.records import Side, State
from tests.node.ebxml_letters import (
    CID,
    RELIABLY,
    SERVICES,
    TIME,
    XML,
    M,
    Said,
    acknowledgment,
    envelope,
    header,
    listening,
    manifest,
    order,
    pack,
    packed,
    spoiled,
    trace,
    via,
)
from tests.node.ebxml_stations import BY_BUYER, EBXML, RELIABLE, in_order, linked, start
from tests.node.reliable import (
    BUYER,
    CARRIER,
    SELLER,
    Station,
    World,
    address,
    lost,
    party,
    played,
    refused,
    status,
)


@played
async def test_what_a_relay_could_not_pass_on_does_not_stop_what_follows_for_ever(
    world: World,
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, ack_requested="UnSigned", **RELIABLE)
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = lost
    for number, name in enumerate(("m0", "m1")):
        to = trace(address(BUYER), address(CARRIER))
        said = header(id=f"{name}@buyer.example", inside=in_order(number))
        letter = envelope(said, to, via(' eb:ackRequested="UnSigned"'), body=manifest())
        await carrier.receive(*packed(letter), EBXML)
        await world.wait(120)
        world.wire.usual[SELLER] = status(204)
    assert world.wire.to(SELLER, "m0@buyer.example")
    assert world.wire.to(SELLER, "m1@buyer.example")


@pytest.mark.parametrize(
    ("agreed", "to", "answer"),
    [(False, BUYER, 503), (False, CARRIER, 202), (True, BUYER, 202)],
)
@played
async def test_a_signal_that_a_relay_cannot_pass_on_is_not_taken(
    world: World, agreed: bool, to: str, answer: int
) -> None:
    """Whoever sent it tries again; later the P-Mode may be there."""
    if agreed:
        world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, version="0.98b", relay=True)
    carrier = await listening(world, CARRIER)
    said = header(
        id="a@seller.example",
        ref=M,
        frm=party(SELLER),
        to=party(to),
        service=SERVICES["0.98b"],
        action="Acknowledgment",
    )
    letter = envelope(said, trace(address(SELLER), address(CARRIER)), acknowledgment())
    response = await carrier.receive(XML, letter.encode(), EBXML)
    await world.wait(2)
    assert response.status == answer
    assert len(world.wire.to(BUYER)) == agreed


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


async def late_acknowledging(world: World) -> Station:
    """A carrier that acknowledges after it has passed on, which it cannot: nobody takes it."""
    terms = RELIABLE | {"ack_requested": "UnSigned", "ack_after_forward": True}
    world.speak("there", at=(CARRIER,), relay=True, **terms)
    world.wire.usual[SELLER] = refused
    return await listening(world, CARRIER)


@played
async def test_a_relay_that_acknowledges_after_forwarding_does_not_do_so_on_the_response(
    world: World,
) -> None:
    carrier = await late_acknowledging(world)
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
    carrier = await late_acknowledging(world)
    letter = envelope(
        header(inside=RELIABLY),
        trace(address(BUYER), address(CARRIER)),
        via(' eb:ackRequested="UnSigned"'),
        body=manifest(),
    )
    await carrier.receive(*packed(letter), EBXML)
    await world.wait(300)
    assert (await carrier.message(M, Side.FORWARDING)).state is State.FAILED
    # Nobody acknowledges the notice either.
    await world.wait(4000)
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
    terms: dict[str, Any] = {
        "version": "2.0",
        "delivery_semantics": "OnceAndOnlyOnce",
        "ack_requested": "UnSigned",
    }
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


def sent_at(time: str) -> tuple[str, bytes]:
    """An order to the carrier as it left the buyer then."""
    hop = spoiled(trace(address(BUYER), address(CARRIER)), TIME, time)
    asks = via(' eb:ackRequested="UnSigned"')
    return packed(envelope(header(inside=RELIABLY), hop, asks, body=manifest()))


@pytest.mark.req("MS098-10.3.1.5-01")
@pytest.mark.parametrize("trouble", [lost, refused])
@pytest.mark.parametrize(
    "later", ["2024-06-01T12:05:00Z", "2024-06-01T11:05:00Z"], ids=["later", "clock set back"]
)
@played
async def test_what_a_relay_gave_up_is_passed_on_when_it_is_sent_again(
    world: World, trouble: Any, later: str
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, ack_requested="UnSigned", **RELIABLE)
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = trouble
    await carrier.receive(*sent_at("2024-06-01T12:00:00Z"), EBXML)
    await world.wait(300)
    world.wire.usual[SELLER] = status(204)
    before = len(world.wire.to(SELLER))
    await carrier.receive(*sent_at(later), EBXML)
    await world.wait(300)
    assert len(world.wire.to(SELLER)) > before


@pytest.mark.parametrize("trouble", [lost, refused])
@played
async def test_what_comes_late_of_an_old_transmission_is_acknowledged_and_not_passed_on(
    world: World, trouble: Any
) -> None:
    world.speak("there", at=(CARRIER,), relay=True, ack_requested="UnSigned", **RELIABLE)
    world.configure(CARRIER, send={"breaker": {"failures": 0}})
    carrier = await listening(world, CARRIER)
    world.wire.usual[SELLER] = trouble
    transmissions = [sent_at(f"2024-06-01T12:0{minute}:00Z") for minute in (0, 5)]
    for one in transmissions:
        await carrier.receive(*one, EBXML)
        await world.wait(300)
    assert (await carrier.story(M)).count("delivery_failed") == 2
    world.wire.usual[SELLER] = status(204)
    before = len(world.wire.to(SELLER))
    acknowledged = len(world.wire.to(BUYER, "Acknowledgment"))
    for one in transmissions:
        await carrier.receive(*one, EBXML)
        await world.wait(300)
    assert len(world.wire.to(SELLER)) == before, "who sent it was told that it failed"
    assert len(world.wire.to(BUYER, "Acknowledgment")) == acknowledged + 2
    assert (await carrier.story(M)).count("duplicate") == 3


@played
async def test_over_a_link_what_is_passed_on_anew_gets_a_new_number(world: World) -> None:
    retry = {"max_retries": 2, "timeout": "PT5S", "period": "PT5S", "then": "give_up"}
    terms = RELIABLE | {"profile": "rm001", "relay": True, "retry": retry}
    world.speak("there", at=(CARRIER,), **terms)
    world.speak(at=(SELLER,), profile="rm001", **RELIABLE)
    carrier, seller = await listening(world, CARRIER), await start(world, SELLER)

    async def come(number: int) -> None:
        said = header(id=f"m{number}@buyer.example", inside=RELIABLY)
        await carrier.receive(*packed(envelope(said, linked(number), body=manifest())), EBXML)

    del world.wire.usual[SELLER]
    await come(1)
    await world.wait(5)
    world.wire.usual[SELLER] = lost
    await come(2)
    await world.wait(60)
    del world.wire.usual[SELLER]
    for number in (3, 4):
        await come(number)
        await world.wait(60)
    await come(2)
    await world.wait(60)
    assert sorted(one[:2] for one in await seller.inbox()) == ["m1", "m2", "m3", "m4"]
