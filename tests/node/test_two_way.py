"""Two-way exchanges: a request, and its one reply, in every binding that is not synchronous."""

from datetime import timedelta
from typing import Any

import pytest

from postroad.node.service import Refused, Submission
from postroad.node.walks import submitting
from postroad.store.records import Side, State
from tests.node.asking import ASYNCHRONOUS, PRICES, REPLIES, Q, R, ask, reply
from tests.node.collecting import errors
from tests.node.reliable import BUYER, LARGE, SELLER, STORES, Station, World, lost, party, played


async def fetch(world: World, puller: Station) -> None:
    """Pull where the binding says so, and let the rest come by itself."""
    if any(one.pmode.id == PRICES for one in puller.node.context.in_force.pulled):
        await puller.process.ask(puller.node.pull(PRICES, most=10))
    await world.wait(2)


@pytest.mark.req("P2-2.4.8.1-01")
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("binding", ASYNCHRONOUS)
@played
async def test_a_request_is_answered_by_one_reply(world: World, binding: str, signed: bool) -> None:
    ask(world, binding, signed=signed)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await fetch(world, seller)
    assert await seller.inbox() == [Q]
    await reply(seller)
    await fetch(world, buyer)
    assert await buyer.inbox() == [R]
    given = await buyer.message(R)
    assert (given.leg, given.ref_to_message_id, given.conversation_id) == (2, Q, Q)
    assert await buyer.state(Q) is await seller.state(R) is State.ACKNOWLEDGED
    for station, side in ((buyer, Side.SENDING), (seller, Side.RECEIVING)):
        assert (await station.message(Q, side)).reply_message_id == R
    assert await buyer.work() == await seller.work() == {}


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_reply_is_pulled_from_its_own_channel_by_a_schedule(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    ask(world, "pushAndPull", scheduled=True, interval="PT10S")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(5)
    await reply(seller)
    assert (await seller.message(R)).channel == REPLIES
    await world.until(45)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED


@played
async def test_a_reply_goes_where_the_request_went_when_its_leg_names_no_place(
    world: World,
) -> None:
    ask(world, "pushAndPull")
    for station in (BUYER, SELLER):
        del world._pmodes[station][0]["legs"][1]["protocol"]["address"]
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller)
    await fetch(world, buyer)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED


@played
async def test_a_large_reply_is_packaged_afterwards(world: World) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller, payload=LARGE)
    while not await buyer.inbox():
        await world.wait(0.1)
    assert (await buyer.message(R)).bytes == len(LARGE)
    assert (await buyer.message(Q)).reply_message_id == R


@played
async def test_what_cannot_be_answered_is_refused_with_the_reason(world: World) -> None:
    ask(world, "pushAndPush")
    ask(world, "pushAndPush", "other")
    world._pmodes[SELLER][1]["legs"][0]["business_info"]["action"] = "AskOther"
    world._pmodes[BUYER][1]["legs"][0]["business_info"]["action"] = "AskOther"
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES, conversation="c-1")
    await world.wait(2)
    cases: list[tuple[Station, dict[str, Any], int, str]] = [
        (seller, {"to": None}, 422, "name the request"),
        (seller, {"to": "nobody@buyer"}, 404, "nothing was received under that id"),
        (seller, {"pmode": "other"}, 422, "answer it with its own P-Mode"),
        (seller, {"conversation_id": "c-2"}, 422, "its reply belongs to it"),
        (buyer, {"to": "x@y"}, 422, "leave ref_to_message_id out"),
    ]
    for station, given, status, said in cases:
        with pytest.raises(Refused, match=said) as refusal:
            await reply(station, "x@seller", **given)
        assert refusal.value.status == status
    assert await seller.node.message("x@seller") is None
    assert (await seller.message(Q)).reply_message_id is None
    assert (await reply(seller, conversation_id="c-1")).conversation_id == "c-1"


@played
async def test_a_test_message_is_no_reply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    with pytest.raises(Refused, match="a test message"):
        await reply(seller, test=True)
    monkeypatch.setattr(submitting, "leg_of", _unchecked)
    await reply(seller, "test@seller", test=True)
    await world.wait(1)
    assert (await buyer.message("test@seller")).state is State.RECEIVED
    assert (await buyer.message(Q)).reply_message_id is None


async def _unchecked(context: Any, submission: Any) -> Any:
    """A partner that lets its application answer with a test message."""
    return context.in_force.sending(PRICES, 2), None


@played
async def test_no_reply_to_a_one_way_message_is_waited_for(world: World) -> None:
    world.agree("orders")
    buyer, _ = await world.both()
    await buyer.send(Q, "orders")
    found = await buyer.process.ask(buyer.node.replied(Q, 1000))
    assert found is not None
    assert "one-way" in (buyer.node.no_reply(found) or "")


@played
async def test_a_request_has_one_reply(world: World) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    first = await reply(seller)
    with pytest.raises(Refused, match="was answered already, by r@seller") as refusal:
        await reply(seller, "r2@seller")
    assert refusal.value.status == 409
    assert await seller.node.message("r2@seller") is None
    assert (await reply(seller)).created_at == first.created_at, "the same again is the same"


@played
async def test_a_request_has_one_reply_also_when_that_was_removed(world: World) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller)
    await world.wait(2)
    later, store = seller.node.context.clock() + timedelta(days=1), seller.node.context.store
    await store.run(lambda tx: tx.purge(later, [State.ACKNOWLEDGED], 10))
    with pytest.raises(Refused, match="was answered already, by r@seller"):
        await reply(seller, "other@seller")


@played
async def test_a_reply_that_never_left_may_be_given_anew(world: World) -> None:
    ask(world, "pushAndPush", retry=None)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    buyer.kill()
    del world.stations[BUYER]
    await reply(seller)
    await world.wait(2)
    assert await seller.state(R) is State.FAILED
    buyer = await world.start(BUYER)
    await reply(seller, "r2@seller")
    await world.wait(2)
    assert await buyer.inbox() == ["r2@seller"]


@played
async def test_a_reply_to_what_was_not_asked_is_refused(world: World) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller)
    await world.wait(2)
    [posted] = world.wire.to(BUYER, "UserMessage")
    for body in (
        posted.body.replace(b"r@seller", b"x@seller").replace(b"q@buyer", b"nobody@b"),
        posted.body.replace(b"r@seller", b"x@seller"),
    ):
        answer = await buyer.receive(posted.content_type, body)
        assert errors(answer) == ["EBMS:0003"]
        told = await buyer.message("x@seller")
        assert told.state is State.REJECTED
        assert "RefToMessageId" in (told.detail or "")
    assert await buyer.inbox() == [R]
    assert (await buyer.message(Q)).reply_message_id == R


@played
async def test_the_identifiers_of_who_replies_have_no_order(world: World) -> None:
    ask(world, "pushAndPush")
    ids: list[Any] = [party(SELLER), {"id": "4711", "type": "urn:example:numbers"}]
    for station, named in ((BUYER, ids), (SELLER, ids[::-1])):
        world._pmodes[station][-1]["responder"]["party"] = named
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller)
    await world.wait(2)
    assert await buyer.inbox() == [R]


@played
async def test_a_request_refers_to_no_other_message(world: World) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    world.wire.will(lost, at=SELLER)
    await buyer.send(Q, PRICES)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    marked = posted.body.replace(
        b"<eb:MessageId>q@buyer</eb:MessageId>",
        b"<eb:MessageId>q@buyer</eb:MessageId><eb:RefToMessageId>o@s</eb:RefToMessageId>",
    )
    assert marked != posted.body
    assert errors(await seller.receive(posted.content_type, marked)) == ["EBMS:0003"]
    assert await seller.inbox() == []


@played
async def test_a_reply_that_is_to_be_pulled_cannot_be_pushed(world: World) -> None:
    ask(world, "pushAndPull", at=(BUYER,))
    ask(world, "pushAndPush", at=(SELLER,))
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await reply(seller)
    await world.wait(2)
    assert (await buyer.inbox(), await seller.state(R)) == ([], State.FAILED)
    assert (await seller.message(R)).error_code == "EBMS:0010"


@played
async def test_each_side_pulls_with_its_own_credentials(world: World) -> None:
    ask(world, "pullAndPull")
    buyer, seller = await world.both()
    world._pmodes[BUYER][0]["responder"]["authorization"] = {"username": "buyer", "password": "?"}
    world._write(BUYER)
    assert (await buyer.node.reload()).ok
    await buyer.send(Q, PRICES)
    await fetch(world, seller)
    assert await seller.inbox() == [Q]
    await reply(seller)
    await fetch(world, buyer)
    assert await buyer.inbox() == []
    [refusal] = await seller.journal("error_raised")
    assert refusal.error_code == "EBMS:0101"


@played
async def test_a_partner_that_is_suspended_gets_no_reply(world: World) -> None:
    ask(world, "pushAndPull")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    await seller.process.ask(seller.node.suspend(party(BUYER), "a quarrel"))
    await reply(seller)
    await fetch(world, buyer)
    assert await buyer.inbox() == []
    await seller.process.ask(seller.node.resume(party(BUYER)))
    await fetch(world, buyer)
    assert await buyer.inbox() == [R]


@pytest.mark.parametrize("binding", ASYNCHRONOUS)
@played
async def test_a_lost_reply_comes_again_and_is_delivered_once(world: World, binding: str) -> None:
    ask(world, binding)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await fetch(world, seller)
    world.wire.will(lost, at=SELLER if binding.endswith("Pull") else BUYER)
    await reply(seller)
    await fetch(world, buyer)
    assert await buyer.inbox() == []
    await world.wait(25)
    await fetch(world, buyer)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED


@played
async def test_a_message_of_the_inbox_is_answered_without_naming_anything(world: World) -> None:
    ask(world, "pushAndPush")
    world.agree("orders")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES, conversation="c-1")
    await buyer.send("o@buyer", "orders")
    await world.wait(2)
    given = await seller.process.ask(seller.node.reply(Q, Submission("", message_id=R)))
    assert (given.message.pmode, given.message.conversation_id) == (PRICES, "c-1")
    again = await seller.process.ask(seller.node.reply(Q, Submission("", message_id=R)))
    assert again.repeated
    found = await buyer.process.ask(buyer.node.replied(Q, 60))
    assert found is not None
    assert found.reply_message_id == R
    with pytest.raises(Refused, match="is one-way; a reply goes with another one") as refusal:
        await seller.process.ask(seller.node.reply("o@buyer", Submission("")))
    assert refusal.value.status == 422
    with pytest.raises(Refused, match="there is no message nobody@b in the inbox"):
        await seller.process.ask(seller.node.reply("nobody@b", Submission("")))
    with pytest.raises(Refused, match="leave ref_to_message_id out"):
        await seller.process.ask(seller.node.reply(Q, Submission("", ref_to_message_id="x@y")))
