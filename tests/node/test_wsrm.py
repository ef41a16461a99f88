"""WS-ReliableMessaging between two nodes: sequences, numbers, acknowledgements, faults."""

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace as changed

from postroad.node.base.windows import Windows
from postroad.node.settings.in_force import Sending
from postroad.node.walks.posting import Outgoing
from postroad.node.walks.sending import Sender
from postroad.store.records import State
from tests.node.reliable import (
    BUYER,
    LARGE,
    ORDERS,
    SELLER,
    STORES,
    Held,
    Posted,
    World,
    lost,
    passed,
    played,
    refused,
    reply_lost,
    status,
)
from tests.node.reliable import told as told_by
from tests.node.sequences import agree, headers_of, kind_of, kinds, numbers, unless

M = [f"m{n}@buyer" for n in range(6)]


@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.req("P2-6.6.1-01", "P2-2.8.1-01")
@played
async def test_a_message_is_acknowledged_by_its_number(
    world: World, kept_in: str, soap: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed, soap=soap)
    buyer, seller = await world.both()
    for one in M[:3]:
        await buyer.send(one)
    await world.wait(1)
    assert [await buyer.state(one) for one in M[:3]] == [State.ACKNOWLEDGED] * 3
    assert await seller.inbox() == M[:3]
    assert kinds(world) == ["CreateSequence", *["message"] * 3]
    assert sorted(number for _, number in numbers(world)) == [1, 2, 3]
    assert len({name for name, _ in numbers(world)}) == 1
    assert await buyer.story(M[0]) == ["submitted", "sent", "ack_received"]
    assert await seller.story(M[0]) == ["received", "delivered", "acked"]


@played
async def test_a_copy_has_the_same_number_and_is_taken_once(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = unless(lambda one: kind_of(one) == "message", reply_lost)
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.usual.clear()
    await world.wait(5)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[0]]
    first, second = numbers(world)
    assert first == second
    assert "duplicate" in await seller.story(M[0])


@played
async def test_one_acknowledgement_settles_all_that_it_covers(world: World) -> None:
    agree(world)
    buyer, _ = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.usual[SELLER] = reply_lost
    for one in M[1:4]:
        await buyer.send(one)
    await world.wait(1)
    assert [await buyer.state(one) for one in M[1:4]] == [State.WAITING] * 3
    world.wire.usual.clear()
    await buyer.send(M[4])
    await world.wait(1)
    assert [await buyer.state(one) for one in M[1:5]] == [State.ACKNOWLEDGED] * 4
    assert kinds(world).count("message") == 5


@played
async def test_order_is_kept_over_a_line_that_loses(world: World) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.will(lost)
    for one in M[1:4]:
        await buyer.send(one)
    await world.wait(1)
    assert await seller.inbox() == M[:1]
    assert await seller.state(M[3]) is State.HELD
    assert await buyer.state(M[3]) is State.ACKNOWLEDGED
    await world.wait(6)
    assert await seller.inbox() == M[:4]
    assert await seller.story(M[2]) == ["received", "out_of_order", "held", "acked", "delivered"]


@played
async def test_what_is_acknowledged_while_a_retry_begins_gets_no_other_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that nobody sends would hold up all that follow it."""
    # A late answer does not keep the next message from being sent.
    monkeypatch.setattr(Windows, "limit", lambda *_: 8)
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.will(reply_lost)
    await buyer.send(M[1])
    await world.wait(1)
    in_sequence, begun, acknowledged = Sender._in_sequence, asyncio.Event(), asyncio.Event()

    async def late(sender: Sender, outgoing: Outgoing, sending: Sending) -> Outgoing:
        if outgoing.message.message_id == M[1]:
            begun.set()
            await acknowledged.wait()
        return await in_sequence(sender, outgoing, sending)

    monkeypatch.setattr(Sender, "_in_sequence", late)
    await world.wait(5)
    assert begun.is_set()
    await buyer.send(M[2])
    await world.wait(1)
    assert await buyer.state(M[1]) is State.ACKNOWLEDGED
    acknowledged.set()
    await world.wait(1)
    await buyer.send(M[3])
    await world.wait(1)
    assert await seller.inbox() == M[:4]


@played
async def test_without_order_nobody_waits(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.will(lost)
    await buyer.send(M[1])
    await buyer.send(M[2])
    await world.wait(1)
    assert await seller.inbox() == [M[0], M[2]]


@played
async def test_acknowledgements_that_call_back(world: World) -> None:
    agree(world, pattern="Callback")
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert kinds(world, BUYER) == ["ack"]
    assert await seller.inbox() == [M[0]]


@played
async def test_a_signed_request_for_a_sequence_is_answered_by_a_pmode_that_signs(
    world: World,
) -> None:
    agree(world, "unsigned")
    agree(world, "signed", signed=True)
    buyer, _ = await world.both()
    await buyer.send("m@buyer", "signed")
    await buyer.send("n@buyer", "unsigned")
    await world.wait(5)
    assert await buyer.state("m@buyer") is State.ACKNOWLEDGED
    assert await buyer.state("n@buyer") is State.ACKNOWLEDGED


@played
async def test_a_signed_acknowledgement_calls_back(world: World) -> None:
    agree(world, pattern="Callback", signed=True)
    buyer, _ = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED


@played
async def test_a_partner_who_forgot_the_sequence_gets_another_one(world: World) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    seller.kill()
    world._memories.pop(SELLER)
    seller = await world.start(SELLER)
    for one in M[1:4]:
        await buyer.send(one)
    await world.wait(20)
    assert [await buyer.state(one) for one in M[1:4]] == [State.ACKNOWLEDGED] * 3
    assert await seller.inbox() == M[1:4]
    assert kinds(world).count("CreateSequence") == 2
    last = numbers(world)[-1][0]
    assert sorted(number for name, number in numbers(world) if name == last)[:3] == [1, 2, 3]


@played
async def test_what_an_ended_sequence_left_behind_is_not_overtaken(world: World) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    seller.kill()
    world._memories.pop(SELLER)
    seller = await world.start(SELLER)
    await buyer.send(M[1])
    await world.wait(1)
    # It was turned away, and waits for its retry; what comes now goes into the next sequence.
    await buyer.send(M[2])
    await world.wait(1)
    assert await seller.inbox() == []
    await world.wait(20)
    assert await seller.inbox() == M[1:3]


@played
async def test_nobody_who_makes_a_sequence_fails_the_message_in_time(world: World) -> None:
    agree(world)
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    await buyer.send(M[0])
    await buyer.send(M[1])
    await world.wait(60)
    for one in M[:2]:
        assert await buyer.state(one) is State.FAILED
    message = await buyer.message(M[0])
    assert "no sequence could be made" in (message.detail or "")


@played
async def test_a_partner_who_comes_back_makes_the_sequence(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    world.wire.will(refused, lost)
    await buyer.send(M[0])
    await world.wait(20)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[0]]


@pytest.mark.parametrize("code", ["EBMS:0004", "EBMS:0202"])
@played
async def test_a_partner_in_trouble_is_asked_for_a_sequence_again(world: World, code: str) -> None:
    agree(world)
    buyer, seller = await world.both()
    world.wire.will(told_by(500, code, "nothing"))
    await buyer.send(M[0])
    await world.wait(20)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[0]]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_who_is_killed_goes_on_in_the_same_sequence(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.usual[SELLER] = lost
    await buyer.send(M[1])
    await world.wait(1)
    world.wire.usual.clear()
    buyer = await world.start_again(BUYER)
    seller = await world.start_again(SELLER)
    await buyer.send(M[2])
    await world.wait(30)
    assert [await buyer.state(one) for one in M[:3]] == [State.ACKNOWLEDGED] * 3
    assert await seller.inbox() == M[:3]
    assert kinds(world).count("CreateSequence") == 1


@played
async def test_who_dies_while_a_sequence_is_made_asks_for_it_again(world: World) -> None:
    agree(world, pattern="Callback")
    buyer, seller = await world.both()
    world.wire.will(Held())
    await buyer.send(M[0])
    await world.wait(1)
    buyer = await world.start_again(BUYER)
    await world.wait(30)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert await seller.inbox() == M[:1]


@played
async def test_an_idle_sequence_is_ended(world: World) -> None:
    agree(world, max_idle="PT1M")
    buyer, _ = await world.both()
    await buyer.send(M[0])
    await world.wait(200)
    assert kinds(world) == ["CreateSequence", "message", "CloseSequence", "TerminateSequence"]
    await buyer.send(M[1])
    await world.wait(1)
    assert await buyer.state(M[1]) is State.ACKNOWLEDGED
    assert kinds(world)[-2:] == ["CreateSequence", "message"]
    assert numbers(world)[-1][1] == 1


@played
async def test_a_message_that_is_given_up_holds_nobody_up(world: World) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.usual[SELLER] = unless(lambda one: M[1].encode() in one.body, lost)
    await buyer.send(M[1])
    await buyer.send(M[2])
    await world.wait(60)
    assert await buyer.state(M[1]) is State.IN_DOUBT
    assert await seller.inbox() == [M[0], M[2]]
    await buyer.send(M[3])
    await world.wait(2)
    assert await seller.inbox() == [M[0], M[2], M[3]]
    assert kinds(world).count("CreateSequence") == 2


@played
async def test_a_close_that_is_answered_without_identifier_ends_the_sequence(
    world: World,
) -> None:
    """Apache CXF answers so about a sequence that it does not know."""
    agree(world, in_order=True)
    buyer, seller = await world.both()

    async def unknowing(world: World, posted: Posted) -> Any:
        if kind_of(posted) != "CloseSequence":
            return await (lost if M[0].encode() in posted.body else passed)(world, posted)
        reply = await passed(world, posted)
        named = rb"(<wsrm:CloseSequenceResponse[^>]*>)<wsrm:Identifier>[^<]*</wsrm:Identifier>"
        return changed(reply, body=re.sub(named, rb"\1", reply.body))

    world.wire.usual[SELLER] = unknowing
    await buyer.send(M[0])
    await world.wait(60)
    await buyer.send(M[1])
    await world.wait(2)
    assert await buyer.state(M[1]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[1]]


@played
async def test_what_was_given_up_is_sent_anew_in_the_next_sequence(world: World) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    await buyer.send(M[0])
    await world.wait(1)
    world.wire.usual[SELLER] = unless(lambda one: M[1].encode() in one.body, lost)
    await buyer.send(M[1])
    await world.wait(60)
    world.wire.usual.clear()
    await buyer.process.ask(buyer.node.resend(M[1]))
    await world.wait(2)
    assert await buyer.state(M[1]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[0], M[1]]


@played
async def test_a_large_message_is_numbered_too(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M[0], payload=LARGE)
    await world.wait(1)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M[0]]


@played
async def test_receipts_call_back_beside_acknowledgements(world: World) -> None:
    agree(world, receipts=True, signed=True)
    buyer, _ = await world.both()
    await buyer.send(M[0])
    await world.wait(2)
    assert await buyer.state(M[0]) is State.ACKNOWLEDGED
    assert "receipt_received" in await buyer.story(M[0])


@pytest.mark.req("P2-2.8.1-11", "P2-2.8.1-05")
@played
async def test_what_is_correlated_shares_a_sequence(world: World) -> None:
    paths = "eb3:UserMessage/eb3:CollaborationInfo/eb3:ConversationId"
    agree(world, ORDERS, correlation=paths)
    agree(world, "invoices", correlation=paths)
    buyer, _ = await world.both()
    await buyer.send(M[0], conversation="a")
    await buyer.send(M[1], conversation="b")
    await buyer.send(M[2], "invoices", conversation="a")
    await world.wait(2)
    assert [await buyer.state(one) for one in M[:3]] == [State.ACKNOWLEDGED] * 3
    by = {one: headers_of(world.wire.to(SELLER, one)[0]) for one in M[:3]}
    names = [by[one].sequence.identifier for one in M[:3]]  # type: ignore[union-attr]
    assert names[0] == names[2] != names[1]


def told(world: World) -> list[str]:
    """The messages that the application was told of, and took or not, in the order of the calls."""
    return [one.told["message_id"] for one in world.wire.to("application")]


@pytest.mark.parametrize("in_order", [True, False])
@played
async def test_the_webhook_is_called_in_the_order_of_the_sequence(
    world: World, in_order: bool
) -> None:
    agree(world, in_order=in_order)
    world.configure(SELLER, webhook={"url": "http://application.example/"})
    buyer, seller = await world.both()
    world.wire.will(status(500), at="application")
    world.wire.usual["application"] = status(204)
    for name in M[:4]:
        await buyer.send(name)
        await world.wait(0.5)
    await world.wait(30)
    first, *others = M[:4]
    calls = [first, first, *others] if in_order else [first, *others, first]
    assert told(world) == calls
    assert await seller.work() == {}


@played
async def test_the_webhook_is_called_in_order_where_two_pmodes_share_a_sequence(
    world: World,
) -> None:
    paths = "eb3:UserMessage/eb3:CollaborationInfo/eb3:ConversationId"
    agree(world, ORDERS, in_order=True, correlation=paths)
    agree(world, "invoices", in_order=True, correlation=paths)
    world.configure(SELLER, webhook={"url": "http://application.example/"})
    buyer, _ = await world.both()
    world.wire.will(status(500), at="application")
    world.wire.usual["application"] = status(204)
    for name, pmode in zip(M[:3], (ORDERS, "invoices", ORDERS), strict=True):
        await buyer.send(name, pmode, conversation="a")
        await world.wait(0.5)
    await world.wait(30)
    assert told(world) == [M[0], *M[:3]]
