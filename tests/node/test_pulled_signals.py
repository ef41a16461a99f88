"""Receipts and errors that wait in a channel until the sender of the message pulls them."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from postroad.msh.pulling import pull_request
from postroad.node.base.requests import Response
from postroad.node.walks import listening
from postroad.security.keys import KeyPair
from postroad.store.interface import StoreError
from postroad.store.records import Queue, State
from postroad.wire.ebms3 import Selection
from postroad.wire.multihop import RoutingInput, find_routing_input, read_routing_input
from postroad.wire.soap import read_envelope
from postroad.wire.xml import parse
from tests.node.collecting import USER, errors, request, said
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    SOAP,
    STORES,
    Station,
    World,
    address,
    lost,
    party,
    passed,
    played,
    status,
)

M, N = "m@buyer", "n@buyer"
RECEIPTS, ERRORS = "http://seller.example/receipts", "http://seller.example/errors"
AGAIN = {"max_retries": 3, "timeout": "PT1M", "period": "PT1M"}


def epr(mpc: str, **more: Any) -> dict[str, Any]:
    return {"epr": {"routing_input": {"business_info": {"mpc": mpc}, **more}}}


def agree(
    world: World,
    *,
    pulled_errors: bool = True,
    receipts: bool = True,
    user: dict[str, str] | None = USER,
    signed: bool = False,
    retry: dict[str, Any] | None = None,
    routing: dict[str, Any] | None = None,
    most: str | None = None,
    **pulling: Any,
) -> None:
    """Orders are pushed, and what is said about them is pulled; `most` is all the seller takes."""
    world.agree(signed=signed, retry=retry or AGAIN)
    for station in (BUYER, SELLER):
        pmode = world._pmodes[station][-1]
        leg = pmode["legs"][0]
        if user is not None:
            pmode["initiator"]["authorization"] = user
        if receipts:
            addressing = epr(RECEIPTS, **routing or {})
            leg["security"]["send_receipt"] |= {"reply_pattern": "pull", "addressing": addressing}
        report = {"receiver_errors_to": {"addressing": epr(ERRORS)}}
        report |= {"receiver_errors": {"reply_pattern": "pull"}}
        leg["error_handling"]["report"] = report if pulled_errors else {"as_response": True}
        leg["pulling"] = {"scheduled": False} | pulling
        if most is not None and station == SELLER:
            leg["business_info"]["payload_profile"] = {"max_size": most}


async def pull(station: Station, name: str = ORDERS, **how: Any) -> tuple[str, ...]:
    return (await station.process.ask(station.node.pull(name, **how))).answered


def asked(puller: Station, mpc: str, key: KeyPair | None = None) -> bytes:
    """A PullRequest for one of the channels, perhaps signed by somebody else."""
    context = puller.node.context
    [channel] = [one for one in context.in_force.pulled_signals if one.mpc == mpc]
    now = context.clock()
    return pull_request(
        channel,
        None,
        signal_id=context.new_id(now),
        now=now,
        entropy=context.entropy,
        key=key or context.in_force.keyring.signing,
    ).envelope


async def queued(station: Station, channel: str = RECEIPTS) -> int:
    found: Queue = await station.node.context.store.look(lambda reader: reader.queue(channel))
    return found.count


def routed(response: Response) -> RoutingInput:
    """The RoutingInput of an answer."""
    block = find_routing_input(read_envelope(parse(response.body)))
    assert block is not None
    value, problems = read_routing_input(block)
    assert problems == []
    assert value is not None
    return value


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_receipt_waits_until_the_sender_pulls_it(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert (await buyer.state(M), await queued(seller)) == (State.WAITING, 1)
    assert "receipt_sent" not in await seller.story(M)
    assert await pull(buyer) == (M,)
    assert (await buyer.state(M), await queued(seller)) == (State.ACKNOWLEDGED, 0)
    assert (await seller.story(M))[-1] == "receipt_sent"
    assert (await buyer.story(M))[-1] == "receipt_received"
    assert await pull(buyer) == ()


@played
async def test_a_receipt_that_came_while_the_store_was_in_trouble_comes_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    agree(world, scheduled=True, interval="PT3S")
    buyer, _ = await world.both()
    known, failed = listening._known, []

    async def unreadable(*given: Any) -> Any:
        if not failed:
            failed.append(given)
            raise StoreError("input/output error")
        return await known(*given)

    with patch.object(listening, "_known", unreadable):
        await buyer.send(M)
        await world.wait(30)
        assert failed
        assert await buyer.state(M) is State.WAITING
        await world.wait(90)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    [told] = [one for one in caplog.records if one.getMessage() == "not pulled"]
    assert (told.levelname, told.__dict__["detail"]) == ("ERROR", "input/output error")


@pytest.mark.req("P2-6.7.1-01", "P2-6.7.1-03", "P2-2.7.1.2-02")
@played
async def test_a_pulled_receipt_says_where_it_is_pulled_and_how_it_is_routed(world: World) -> None:
    hub = {"party": "urn:example:desk", "role": "urn:example:clerk"}
    agree(world, signed=True, routing={"initiator": hub})
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    routing = routed(await seller.receive(SOAP, request(buyer)))
    message = routing.user_message
    assert message.mpc == RECEIPTS
    assert [one.value for one in message.to_party.party_ids] == ["urn:example:desk"]
    assert message.to_party.role == "urn:example:clerk"
    assert str(message.from_party) == party(SELLER)
    assert message.collaboration_info.action == f"{ORDERS}.receipt"
    assert routing.is_reference_parameter


@played
async def test_a_signature_covers_what_a_receipt_is_routed_by(world: World) -> None:
    agree(world, signed=True, user=None)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)

    async def rerouted(world: World, posted: Any) -> Any:
        reply = await passed(world, posted)
        body = reply.body.replace(b"seller.example/receipts", b"seller.example/reroutes")
        return type(reply)(reply.status, reply.content_type, reply.headers, body)

    world.wire.will(rerouted)
    await pull(buyer)
    assert await buyer.state(M) is State.WAITING
    [event] = await buyer.journal("error_raised")
    assert event.error_code == "EBMS:0101"


@pytest.mark.req("P2-6.5-02")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_an_error_waits_until_the_sender_pulls_it(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world, signed=True, most="3B")
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert (await seller.state(M), await buyer.state(M)) == (State.REJECTED, State.WAITING)
    assert (await queued(seller, ERRORS), await queued(seller)) == (1, 0)
    assert await pull(buyer) == (M,)
    assert (await buyer.state(M), await queued(seller, ERRORS)) == (State.FAILED, 0)
    assert "error_received" in await buyer.story(M)


@pytest.mark.req("P2-6.5-02")
@played
async def test_a_pulled_error_says_how_it_is_routed(world: World) -> None:
    agree(world, most="3B")
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    routing = routed(await seller.receive(SOAP, asked(buyer, ERRORS))).user_message
    assert (routing.mpc, routing.collaboration_info.action) == (ERRORS, f"{ORDERS}.error")


@pytest.mark.req("P2-6.5-01")
@pytest.mark.parametrize(
    ("pattern", "left"), [("response", "FAILED"), ("callback", "FAILED"), ("pull", "WAITING")]
)
@played
async def test_the_reply_pattern_says_how_errors_come_back(
    world: World, pattern: str, left: str
) -> None:
    agree(world, most="3B")
    for station in (BUYER, SELLER):
        report = world._pmodes[station][-1]["legs"][0]["error_handling"]["report"]
        report["receiver_errors"]["reply_pattern"] = pattern
        if pattern == "callback":
            report["receiver_errors_to"] = address(BUYER)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State[left]
    assert bool(world.wire.to(BUYER)) is (pattern == "callback")


@played
async def test_a_receipt_that_was_lost_comes_back_with_the_copy_of_its_message(
    world: World,
) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    first = said(await seller.receive(SOAP, request(buyer)))
    assert await queued(seller) == 0
    await world.until(62)
    assert await queued(seller) == 1
    assert said(await seller.receive(SOAP, request(buyer))) == first
    await world.until(123)
    assert await pull(buyer) == (M,)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_receipt_that_nobody_pulled_is_there_once_however_many_copies_came(
    world: World,
) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(150)
    assert ((await seller.story(M)).count("duplicate"), await queued(seller)) == (2, 1)


@pytest.mark.req("P2-5.1-06", "P2-5.1-07")
@played
async def test_a_signal_is_selected_by_the_message_that_it_is_about(world: World) -> None:
    agree(world)
    buyer, _ = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(1)
    assert await pull(buyer, selection=Selection(ref_to_message_id="x@buyer")) == ()
    assert await pull(buyer, selection=Selection(ref_to_message_id=N)) == (N,)
    assert (await buyer.state(M), await buyer.state(N)) == (State.WAITING, State.ACKNOWLEDGED)


@played
async def test_only_the_initiator_pulls_what_is_said_about_its_messages(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    world._pmodes[BUYER][-1]["initiator"]["authorization"] = {"username": "x", "password": "y"}
    with world.elsewhere():
        stranger = await world.start(BUYER)
    assert errors(await seller.receive(SOAP, request(stranger))) == ["EBMS:0101"]
    assert await queued(seller) == 1


@played
async def test_a_signature_shows_who_pulls_a_receipt(world: World) -> None:
    agree(world, signed=True, user=None)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    forged = asked(buyer, RECEIPTS, key=seller.node.context.in_force.keyring.signing)
    assert errors(await seller.receive(SOAP, forged)) == ["EBMS:0101"]
    assert await pull(buyer) == (M,)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_receipts_are_asked_for_while_messages_wait_and_not_otherwise(world: World) -> None:
    agree(world, pulled_errors=False, scheduled=True, interval="PT10S")
    buyer, _ = await world.both()
    await world.wait(60)
    assert world.wire.posted == []
    await buyer.send(M)
    await world.wait(25)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    so_far = len(world.wire.posted)
    await world.wait(600)
    assert len(world.wire.posted) == so_far


@played
async def test_where_no_receipts_are_sent_errors_are_asked_for_all_the_same(world: World) -> None:
    agree(world, receipts=False, most="1B", scheduled=True, interval="PT10S")
    for station in (BUYER, SELLER):
        leg = world._pmodes[station][-1]["legs"][0]
        del leg["security"]["send_receipt"], leg["reception_awareness"]
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(25)
    assert await buyer.state(M) is State.FAILED


@played
async def test_a_channel_without_the_receipt_is_asked_less_and_less_often(world: World) -> None:
    agree(world, pulled_errors=False, scheduled=True, interval="PT5S", longest="PT20S")
    world.wire.will(lost)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(59)
    gaps = [after - before for before, after in pairwise(world.wire.times("PullRequest"))]
    assert gaps == pytest.approx([5, 10, 20], abs=0.3)


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_receipt_waits_through_a_restart(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    await world.start_again(SELLER)
    buyer = await world.start_again(BUYER)
    assert await pull(buyer) == (M,)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_receipt_that_is_too_old_is_handed_out_no_more(world: World) -> None:
    agree(world, keep="PT30S")
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(31)
    assert errors(await seller.receive(SOAP, request(buyer))) == ["EBMS:0006"]
    assert await queued(seller) == 0


@played
async def test_what_is_said_about_a_message_of_nobody_is_not_believed(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    held = await seller.receive(SOAP, request(buyer))
    world.wire.will(status(200, held.body.replace(b"m@buyer", b"x@buyer")))
    found = await buyer.process.ask(buyer.node.pull(ORDERS))
    assert found.answered == ()
    assert "x@buyer, which was not sent from here" in (found.detail or "")
    assert await buyer.state(M) is State.WAITING
