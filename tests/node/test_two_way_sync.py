"""Two-Way/Sync: the reply is the response to its request, and the receipt rides in it."""

import asyncio
from typing import Any

import pytest

from postroad.msh.outbound import Draft
from postroad.msh.proof import Prover, trust_in
from postroad.node.base.requests import Response
from postroad.node.service import Refused, Submission
from postroad.node.walks import replying
from postroad.node.walks.offering import Offering
from postroad.node.walks.packaging import drafted, make_package
from postroad.node.walks.replying import riding
from postroad.security.keys import load_certificates
from postroad.store.records import Side, State, Work
from postroad.transport.http_outgoing import Reply
from postroad.wire.content import read_all
from tests.node.asking import PRICES, Q, R, ask, reply
from tests.node.collecting import errors
from tests.node.reliable import (
    BUYER,
    LARGE,
    SELLER,
    SOAP,
    STORES,
    Posted,
    Station,
    World,
    lost,
    passed,
    played,
    reply_lost,
)


def body_of(response: Response) -> bytes:
    return b"".join(response.pieces.read()) if response.pieces is not None else response.body


class Recorded:
    """Passes on what is posted to the seller, and remembers the responses."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, world: World, posted: Posted) -> Reply:
        given = await passed(world, posted)
        self.bodies.append(given.body)
        return given


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_the_reply_is_the_response_and_the_receipt_rides_in_it(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    ask(world, "sync", signed=signed)
    said = Recorded()
    world.wire.usual[SELLER] = said
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(2)
    assert (await seller.inbox(), await buyer.state(Q)) == ([Q], State.READY)
    await reply(seller)
    await world.wait(2)
    assert await buyer.inbox() == [R]
    assert await buyer.state(Q) is await seller.state(R) is State.ACKNOWLEDGED
    [response] = [one for one in said.bodies if b"UserMessage>" in one]
    assert response.index(b"eb:SignalMessage>") < response.index(b"eb:UserMessage>")
    assert response.count(b"</ds:Signature>") == signed, "one signature over both"
    [_, posted] = world.wire.to(SELLER)
    assert b"Receipt" in posted.body, "the receipt for the reply calls back"
    for station, side in ((buyer, Side.SENDING), (seller, Side.RECEIVING)):
        assert (await station.message(Q, side)).reply_message_id == R
    assert await buyer.work() == await seller.work() == {}
    assert await seller.story(Q) == ["received", "delivered", "receipt_sent"]
    assert await seller.story(R) == ["submitted", "sent", "receipt_received"]
    assert await buyer.story(Q) == ["submitted", "sent", "receipt_received"]


@played
async def test_a_reply_that_comes_at_once_needs_no_second_look(world: World) -> None:
    ask(world, "sync")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    looks = 0
    look = seller.node.context.store.look

    async def counted(question: Any) -> Any:
        nonlocal looks
        looks += 1
        return await look(question)

    waiting = asyncio.get_running_loop().time()
    await reply(seller)
    while not await buyer.inbox():
        await world.wait(0.01)
    assert asyncio.get_running_loop().time() - waiting < 0.5
    seller.node.context.store.look = counted  # type: ignore[method-assign]
    await buyer.send("q2@buyer", PRICES)
    await world.wait(10)
    idle = looks
    assert idle < 30, "it does not look ten times a second"


@pytest.mark.parametrize("receipts", [(None, None), ("callback", None), ("response", None)])
@played
async def test_receipts_go_as_each_leg_says(
    world: World, receipts: tuple[str | None, str | None]
) -> None:
    ask(world, "sync", receipts=receipts, retry=None)
    if receipts[0] == "callback":
        for one in (BUYER, SELLER):
            receipt = world._pmodes[one][0]["legs"][0]["security"]["send_receipt"]
            receipt["reply_to"] = "http://buyer.example/msh"
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(2)
    assert await buyer.inbox() == [R]
    acknowledged = State.SENT if receipts[0] is None else State.ACKNOWLEDGED
    assert (await buyer.state(Q), await seller.state(R)) == (acknowledged, State.SENT)
    assert len(world.wire.to(BUYER)) == (1 if receipts[0] == "callback" else 0)


@played
async def test_copies_wait_too_and_get_the_same_bytes_whenever_they_come(world: World) -> None:
    ask(world, "sync")
    world.wire.will(lost)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    letter = (posted.content_type, posted.body)
    waiting = [asyncio.ensure_future(seller.receive(*letter)) for _ in range(3)]
    await world.wait(2)
    assert not any(one.done() for one in waiting)
    await reply(seller)
    bodies = [body_of(await one) for one in waiting]
    await world.wait(400)
    bodies.append(body_of(await seller.receive(*letter)))
    assert bodies == [bodies[0]] * 4
    assert b"eb:UserMessage>" in bodies[0]
    assert await seller.inbox() == [Q]


@played
async def test_a_lost_response_is_asked_for_again(world: World) -> None:
    ask(world, "sync")
    world.wire.will(reply_lost)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(30)
    assert (await buyer.inbox(), await seller.inbox()) == ([R], [Q])
    assert await buyer.state(Q) is await seller.state(R) is State.ACKNOWLEDGED
    assert (await seller.story(R))[:3] == ["submitted", "sent", "resent"]


@played
async def test_the_reply_is_given_by_another_process_and_after_a_restart(world: World) -> None:
    world.kept_in = "sqlite"
    ask(world, "sync")
    buyer, _ = await world.both()
    other = await world.start(SELLER, beside=True)
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(other)
    await world.wait(5)
    assert await buyer.inbox() == [R]


@played
async def test_a_request_whose_seller_stops_is_asked_again(world: World) -> None:
    world.kept_in = "sqlite"
    ask(world, "sync")
    buyer, seller = await world.both()
    world.wire.will(lost)
    await buyer.send(Q, PRICES)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    waiting = asyncio.ensure_future(seller.receive(posted.content_type, posted.body))
    await world.wait(1)
    seller.kill()
    waiting.cancel()
    seller = await world.start(SELLER)
    await reply(seller)
    assert await seller.state(R) is State.READY
    await world.wait(30)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED


@played
async def test_a_test_message_has_no_reply_to_wait_for(world: World) -> None:
    ask(world, "sync")
    buyer, seller = await world.both()
    given = Submission(PRICES, message_id=Q, test=True)
    await buyer.process.ask(buyer.node.submit(given))
    await world.wait(0.5)
    assert (await buyer.state(Q), await seller.inbox()) == (State.ACKNOWLEDGED, [])
    assert await seller.story(Q) == ["received", "receipt_sent"]


@played
async def test_a_large_reply_is_packaged_while_its_request_waits(world: World) -> None:
    ask(world, "sync", signed=True)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller, payload=LARGE)
    while not await buyer.inbox():
        await world.wait(0.1)
    assert (await buyer.message(R)).bytes == len(LARGE)
    assert await buyer.state(Q) is State.ACKNOWLEDGED


@pytest.mark.parametrize("receipt", ["response", None])
@played
async def test_a_reply_that_is_late_is_refused_where_no_alternate_is_agreed_on(
    world: World, receipt: str | None
) -> None:
    ask(world, "sync", receipts=(receipt, None), retry=None)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(5)
    assert await buyer.state(Q) is (State.ACKNOWLEDGED if receipt else State.SENT)
    with pytest.raises(Refused, match="comes too late") as refusal:
        await reply(seller)
    assert refusal.value.status == 409
    [posted] = world.wire.to(SELLER)
    again = await seller.receive(posted.content_type, posted.body)
    assert again.status == (200 if receipt else 202)


@pytest.mark.parametrize("receipt", ["response", None])
@played
async def test_who_gets_no_reply_in_the_response_waits_no_longer(
    world: World, receipt: str | None
) -> None:
    ask(world, "sync", receipts=(receipt, None), retry=None)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, _ = await world.both()
    await buyer.send(Q, PRICES)
    assert buyer.node.no_reply(await buyer.message(Q, Side.SENDING)) is None
    found = await buyer.process.ask(buyer.node.replied(Q, 1000))
    assert asyncio.get_running_loop().time() < 20
    assert found is not None
    assert "no alternate" in (buyer.node.no_reply(found) or "")


@pytest.mark.parametrize("alternate", ["pushAndPull", "pushAndPush"])
@played
async def test_who_is_told_that_the_reply_is_late_waits_on(world: World, alternate: str) -> None:
    ask(world, "sync", alternate=alternate, scheduled=True)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    waiting = asyncio.ensure_future(buyer.process.ask(buyer.node.replied(Q, 1000)))
    await world.wait(10)
    assert not waiting.done()
    await reply(seller)
    found = await waiting
    assert found is not None
    assert found.reply_message_id == R


@played
async def test_a_response_that_answers_another_request_is_refused(world: World) -> None:
    ask(world, "sync", receipts=(None, None), retry=None)
    said = Recorded()
    world.wire.will(said)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(2)

    async def replayed(world: World, posted: Posted) -> Reply:
        body = said.bodies[0].replace(b"r@seller", b"x@seller")
        return Reply(200, _kind(body), (), body)

    world.wire.will(replayed)
    await buyer.send("q2@buyer", PRICES)
    await world.wait(2)
    assert await buyer.inbox() == [R]
    assert await buyer.state("q2@buyer") is State.IN_DOUBT
    assert (await buyer.message("x@seller")).error_code == "EBMS:0010"


@played
async def test_a_reply_that_is_there_has_not_failed_when_another_request_gets_it_too(
    world: World,
) -> None:
    ask(world, "sync")
    said = Recorded()
    world.wire.will(said, lost)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(1)

    async def replayed(world: World, posted: Posted) -> Reply:
        return Reply(200, _kind(said.bodies[0]), (), said.bodies[0])

    world.wire.will(replayed)
    await buyer.send("q2@buyer", PRICES)
    await world.wait(5)
    assert await buyer.inbox() == [R]
    assert await seller.state(R) is State.ACKNOWLEDGED
    assert "duplicate" in await buyer.story(R)
    assert (await buyer.message("q2@buyer", Side.SENDING)).reply_message_id is None


@played
async def test_what_is_to_be_the_response_cannot_be_pushed_or_pulled(world: World) -> None:
    ask(world, "sync")
    said = Recorded()
    world.wire.will(said)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(2)
    body = said.bodies[0].replace(b"r@seller", b"x@seller")
    start, end = body.index(b"<eb:SignalMessage>"), body.index(b"</eb:SignalMessage>")
    body = body[:start] + body[end + len(b"</eb:SignalMessage>") :]
    assert errors(await buyer.receive(_kind(body), body)) == ["EBMS:0010"]
    assert await buyer.inbox() == [R]


@played
async def test_a_receipt_in_a_reply_counts_although_the_reply_is_refused(world: World) -> None:
    buyer, seller = await _disagreeing(world)
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(2)
    assert (await buyer.inbox(), await buyer.state(Q)) == ([], State.ACKNOWLEDGED)
    assert await seller.state(R) is State.FAILED, "the error calls back"
    assert (await buyer.message(Q)).reply_message_id is None


@played
async def test_a_reply_that_was_given_twice_and_refused_once_is_in_doubt(world: World) -> None:
    buyer, seller = await _disagreeing(world)
    world.wire.will(reply_lost)
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(30)
    assert (await seller.story(R)).count("error_received") == 1
    assert await seller.state(R) is State.IN_DOUBT


@played
async def test_who_waits_is_let_go_by_a_node_that_stops_and_comes_again(world: World) -> None:
    world.kept_in = "sqlite"
    ask(world, "sync")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    seller.node.hurry()
    await world.wait(0.5)
    assert (await buyer.state(Q), (await seller.message(Q)).late) == (State.WAITING, False)
    await seller.stop()
    seller = await world.start(SELLER)
    await reply(seller)
    await world.wait(30)
    assert (await buyer.inbox(), await buyer.state(Q)) == ([R], State.ACKNOWLEDGED)


@played
async def test_a_receipt_in_a_reply_of_another_agreement_is_not_believed(world: World) -> None:
    """Who signs for another P-Mode says nothing about this request."""
    for name in (PRICES, "other"):
        ask(world, "sync", name, signed=True)
        for station in (BUYER, SELLER):
            for leg in world._pmodes[station][-1]["legs"]:
                leg["business_info"]["action"] += name
    buyer, seller = await world.both()

    async def forged(world: World, posted: Posted) -> Reply:
        waiting = asyncio.ensure_future(passed(world, posted))
        await world.wait(1)
        context = seller.node.context
        sending = context.in_force.sending("other", 2)
        draft = Draft("x@seller", Q, (), Q)
        true = drafted(context, draft, context.in_force.sending(PRICES, 2), context.clock())
        receipt = await riding(context, true, sending)
        assert receipt is not None
        made = make_package(context, draft, sending, context.clock(), None, receipt)
        waiting.cancel()
        return Reply(200, SOAP, (), made.envelope)

    world.wire.will(forged)
    await buyer.send(Q, PRICES)
    await world.wait(3)
    assert (await buyer.state(Q), await buyer.inbox()) == (State.WAITING, [])
    assert (await buyer.message("x@seller")).state is State.REJECTED


@played
async def test_a_receipt_in_a_reply_is_proved_in_bulk_too(world: World) -> None:
    ask(world, "sync", signed=True)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(2)
    store = buyer.node.context.store
    [signal] = await store.look(lambda reader: reader.signals(Side.SENDING, Q))
    sent = (await buyer.message(Q)).envelope
    assert sent is not None
    receipt, message = (read_all(store.content(one), one.size) for one in (signal.envelope, sent))
    keys = (world.folder / BUYER / "keys" / "authority.pem").read_bytes()
    prover = Prover(trust_in(load_certificates(keys)))
    at = int(signal.at.timestamp() * 1e6)
    assert prover.prove(receipt, message, Q, signal.signal_id, at).valid is True
    changed = receipt.replace(b"q@buyer", b"q@bayer")
    assert prover.prove(changed, message, Q, signal.signal_id, at).valid is False


@played
async def test_a_reply_that_nobody_fetches_expires_and_another_may_be_given(world: World) -> None:
    ask(world, "sync")
    world.wire.will(lost)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    waiting = asyncio.ensure_future(seller.receive(posted.content_type, posted.body))
    await world.wait(1)
    buyer.kill()
    seller.kill()
    waiting.cancel()
    seller = await world.start(SELLER)
    await reply(seller)
    await world.wait(400)
    assert await seller.state(R) is State.EXPIRED
    assert [one.event for one in await seller.notices(R)] == ["failed"]
    again = asyncio.ensure_future(seller.receive(posted.content_type, posted.body))
    await world.wait(1)
    await reply(seller, "r2@seller")
    assert b"r2@seller" in body_of(await again)


async def ended(world: World, station: Station) -> State:
    await world.wait(400)
    return await station.state(R)


@played
async def test_a_reply_whose_receipt_never_comes_is_in_doubt(world: World) -> None:
    ask(world, "sync")
    buyer, seller = await world.both()
    world.wire.will(passed)
    world.wire.usual[SELLER] = lost
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    assert await ended(world, seller) is State.IN_DOUBT
    assert await buyer.inbox() == [R]


@played
async def test_a_reply_that_an_operator_sends_again_is_not_looked_at_without_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can only go with another response: there is nothing to do until its time is over."""
    ask(world, "sync")
    buyer, seller = await world.both()
    world.wire.will(passed)
    world.wire.usual[SELLER] = lost
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(5)
    assert await seller.state(R) is State.WAITING
    looked, perform = [], Offering.perform

    async def counted(self: Offering, work: Work) -> None:
        looked.append(work)
        await perform(self, work)

    monkeypatch.setattr(Offering, "perform", counted)
    await seller.process.ask(seller.node.resend(R))
    await world.wait(10)
    assert len(looked) <= 2
    assert await ended(world, seller) is State.IN_DOUBT


async def _disagreeing(world: World) -> tuple[Station, Station]:
    """A buyer who takes smaller replies than the seller gives."""
    ask(world, "sync", at=(SELLER,))
    ask(world, "sync", at=(BUYER,))
    info = world._pmodes[BUYER][0]["legs"][1]["business_info"]
    info["payload_profile"] = {"max_size": "2 B"}
    return await world.both()


def _kind(body: bytes) -> str:
    """The Content-Type of a package whose first line is its boundary."""
    boundary = body.split(b"\r\n", 1)[0].removeprefix(b"--").decode()
    return (
        f'multipart/related; boundary="{boundary}"; type="application/soap+xml"; '
        'start="<envelope@postroad>"'
    )


async def _without_pmodes(world: World, station: Station, seconds: float) -> None:
    """Somebody takes the P-Modes away for a while."""
    kept = list(world._pmodes[station.name])
    for pmodes in ([], kept):
        world._pmodes[station.name][:] = pmodes
        world._write(station.name)
        assert (await station.node.reload()).ok
        await world.wait(seconds if not pmodes else 0)


@pytest.mark.parametrize("who", [BUYER, SELLER])
@played
async def test_a_p_mode_that_is_away_while_a_request_waits_costs_no_reply(
    world: World, who: str
) -> None:
    ask(world, "sync", alternate="pushAndPull")
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    if who == BUYER:
        away = asyncio.ensure_future(_without_pmodes(world, buyer, 4))
        await world.wait(0.5)
        await reply(seller)
        await away
    else:
        await _without_pmodes(world, seller, 4)
        await reply(seller)
    await world.wait(30)
    assert await buyer.inbox() == [R]
    assert await buyer.state(Q) is await seller.state(R) is State.ACKNOWLEDGED
    assert not (await seller.message(Q)).late


@pytest.mark.parametrize("alternate", ["pushAndPull", None])
@played
async def test_requests_that_wait_leave_room_for_others(
    world: World, alternate: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replying, "MOST_WAITING", 1)
    ask(world, "sync", alternate=alternate)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await buyer.send("q2@buyer", PRICES)
    await world.wait(1)
    assert await buyer.state(Q) is State.READY
    refused = State.ACKNOWLEDGED if alternate else State.WAITING
    assert await buyer.state("q2@buyer") is refused
    assert (await seller.message("q2@buyer")).late is (alternate is not None)
    await reply(seller)
    await reply(seller, "r2@seller", to="q2@buyer")
    await world.wait(30)
    assert await buyer.inbox() == ([R] if alternate else [R, "r2@seller"])
