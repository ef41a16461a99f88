"""Pulling: a message waits in its channel, is handed out, and leaves it by its receipt."""

import asyncio
from datetime import timedelta
from unittest.mock import AsyncMock

import pytest

from postroad.node.service import Refused
from postroad.node.walks import offering, pulling
from postroad.store.interface import StoreFull
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from postroad.wire.ebms3 import Selection
from tests.node.collecting import AGAIN, MPC, collect, errors, given, pull, queued, request, said
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    ORDERS,
    SELLER,
    SOAP,
    STORES,
    Answering,
    Posted,
    Station,
    World,
    ebms_error,
    failing,
    lost,
    party,
    passed,
    played,
    refused,
    reply_lost,
    status,
    told,
)

M, N = "m@buyer", "n@buyer"


@pytest.mark.req("P2-2.4.2-01")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_message_waits_until_it_is_pulled_and_its_receipt_ends_it(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(60)
    assert await buyer.story(M) == ["submitted", "queued"]
    assert (await buyer.state(M), await queued(buyer)) == (State.READY, 1)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await seller.story(M) == ["pulled", "received", "delivered", "receipt_sent"]
    assert await buyer.story(M) == ["submitted", "queued", "sent", "receipt_received"]
    assert (await buyer.state(M), await queued(buyer)) == (State.ACKNOWLEDGED, 0)
    assert await buyer.work() == await seller.work() == {}


@played
async def test_what_came_first_is_pulled_first(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    names = [f"{number}@buyer" for number in range(5)]
    for name in names:
        await buyer.send(name)
    assert await pull(seller) == (names[0],)
    assert await pull(seller, most=1000) == tuple(names[1:])
    await world.wait(2)
    assert await seller.inbox() == names
    assert {await buyer.state(name) for name in names} == {State.ACKNOWLEDGED}


@played
async def test_an_empty_channel_is_answered_by_a_warning(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    answer = await buyer.receive(SOAP, request(seller, signal_id="ask@seller"))
    [signal] = said(answer).signals
    [error] = signal.errors
    assert (answer.status, signal.message_info.ref_to_message_id) == (200, "ask@seller")
    assert (error.error_code, error.severity) == ("EBMS:0006", "warning")
    assert await pull(seller) == ()
    assert await seller.journal("error_raised") == []


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_lost_response_is_offered_again_with_the_same_bytes(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    first = await buyer.receive(SOAP, request(seller))
    assert given(first) == M
    assert await buyer.state(M) is State.WAITING
    assert await pull(seller) == ()
    await world.until(9.9)
    assert await pull(seller) == ()
    await world.until(10.1)
    again = await buyer.receive(SOAP, request(seller))
    assert again.body == first.body
    await world.until(31)
    assert await pull(seller) == (M,)
    await world.wait(2)
    told = [(one.event, one.attempt) for one in await buyer.events(M) if one.attempt]
    assert told == [("sent", 1), ("resent", 2), ("resent", 3)]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_lost_receipt_is_sent_again_and_nothing_is_delivered_twice(world: World) -> None:
    collect(world, retry={"max_retries": 3, "timeout": "PT0.5S", "period": "PT20S"})
    buyer, seller = await world.both()
    await buyer.send(M)
    world.wire.will(passed, lost, at=BUYER)
    assert await pull(seller) == (M,)
    await world.until(0.6)
    assert await pull(seller) == (M,)
    await world.wait(5)
    assert await seller.inbox() == [M]
    assert (await seller.story(M)).count("duplicate") == 1
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_no_receipt_ever_leaves_it_in_doubt(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    for _ in range(4):
        assert given(await buyer.receive(SOAP, request(seller))) == M
        await world.wait(21)
    assert await buyer.state(M) is State.IN_DOUBT
    assert errors(await buyer.receive(SOAP, request(seller))) == ["EBMS:0006"]
    assert await queued(buyer) == 0
    assert (await buyer.story(M))[-1] == "in_doubt"
    [notice] = await buyer.notices(M)
    assert notice.event == "in_doubt"


@played
async def test_what_nobody_pulls_in_its_time_expires(world: World) -> None:
    collect(world, retry=AGAIN | {"time_to_live": "PT5M"})
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(299)
    assert await buyer.state(M) is State.READY
    await world.until(302)
    assert (await buyer.state(M), await queued(buyer)) == (State.EXPIRED, 0)
    assert await buyer.story(M) == ["submitted", "queued", "expired"]


@pytest.mark.req("P2-2.5.6-17")
@played
async def test_a_channel_keeps_messages_as_long_as_is_agreed(world: World) -> None:
    collect(world, retry=None, keep="PT10M")
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    assert given(await buyer.receive(SOAP, request(seller))) == M
    await world.wait(605)
    assert await buyer.state(M) is State.IN_DOUBT
    assert await buyer.state(N) is State.EXPIRED
    assert await pull(seller) == ()
    assert await buyer.work() == {}


@pytest.mark.req("P2-5.1-06")
@played
async def test_however_many_are_too_old_the_first_that_is_not_is_handed_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offering, "_AT_ONCE", 1)
    # Nobody looks at them before they are asked for.
    monkeypatch.setattr(offering.Offering, "perform", AsyncMock())
    collect(world, keep="PT1M", retry=None)
    buyer, seller = await world.both()
    context, later = buyer.node.context, timedelta(minutes=2)
    for name in (M, N):
        await buyer.send(name, conversation="case")
    monkeypatch.setattr(context, "clock", lambda: world.clock() + later)
    await buyer.send("third@buyer", conversation="case")
    body = request(seller, selection=Selection(conversation_id="case"))
    assert given(await buyer.receive(SOAP, body)) == "third@buyer"
    assert await buyer.state(N) is State.EXPIRED


@played
async def test_a_message_whose_agreement_is_away_for_a_while_expires_all_the_same(
    world: World,
) -> None:
    collect(world, keep="PT1M", retry=None)
    world.agree("other")
    buyer, _ = await world.both()
    await buyer.send(M)
    agreed = world._pmodes[BUYER]
    for known in (agreed[1:], agreed):
        world._pmodes[BUYER] = known
        world._write(BUYER)
        assert (await buyer.node.reload()).ok
        await world.wait(3700)
    assert await buyer.state(M) is State.EXPIRED


@played
async def test_without_an_end_it_is_offered_again_and_again(world: World) -> None:
    collect(world, retry=None)
    buyer, seller = await world.both()
    await buyer.send(M)
    for _ in range(5):
        assert given(await buyer.receive(SOAP, request(seller))) == M
        await world.wait(301)
    assert await buyer.state(M) is State.WAITING


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_who_dies_after_handing_out_goes_on_after_a_restart(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    world.wire.will(reply_lost, at=BUYER)
    assert await pull(seller) == ()
    buyer = await world.start_again(BUYER)
    assert await buyer.state(M) is State.WAITING
    assert await pull(seller) == (N,)
    await world.wait(11)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await seller.inbox() == [N, M]
    assert await buyer.state(M) is await buyer.state(N) is State.ACKNOWLEDGED


@played
async def test_a_receipt_that_comes_after_a_restart_counts(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    world.wire.usual[BUYER] = refused
    body = request(seller)
    answer = await buyer.receive(SOAP, body)
    assert given(answer) == M
    buyer = await world.start_again(BUYER)
    del world.wire.usual[BUYER]
    await world.wait(11)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_two_who_pull_at_once_get_different_messages(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    collect(world)
    buyer, seller = await world.both()
    names = {f"{number}@buyer" for number in range(6)}
    for name in sorted(names):
        await buyer.send(name)
    asked = [buyer.receive(SOAP, request(seller)) for _ in range(8)]
    answers = await asyncio.gather(*asked)
    assert sorted(filter(None, map(given, answers))) == sorted(names)


@played
async def test_several_pull_at_once_from_a_full_channel(world: World) -> None:
    collect(world, parallel=4)
    buyer, seller = await world.both()
    names = [f"{number}@buyer" for number in range(30)]
    for name in names:
        await buyer.send(name)
    assert sorted(await pull(seller, most=1000)) == sorted(names)
    await world.wait(2)
    assert {await buyer.state(name) for name in names} == {State.ACKNOWLEDGED}
    assert {(await buyer.message(name)).attempts for name in names} == {1}


@played
async def test_a_full_channel_takes_no_more(world: World) -> None:
    collect(world, capacity=2)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    with pytest.raises(Refused, match="2 messages wait in the channel") as refusal:
        await buyer.send("third@buyer")
    assert (refusal.value.status, refusal.value.code) == (503, "EBMS:0021")
    assert await buyer.node.message("third@buyer") is None
    with pytest.raises(Refused):
        await buyer.send("large@buyer", payload=LARGE)
    assert await pull(seller) == (M,)
    await world.wait(2)
    await buyer.send("third@buyer")
    assert await pull(seller, most=1000) == (N, "third@buyer")


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_is_still_packaged_takes_its_room(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    collect(world, capacity=2)
    buyer, seller = await world.both()
    await buyer.send(M, payload=LARGE)
    await buyer.send(N, payload=LARGE)
    assert await buyer.state(N) is State.SUBMITTED
    for payload in (LARGE, b"small"):
        with pytest.raises(Refused, match="2 messages wait in the channel"):
            await buyer.send("third@buyer", payload=payload)
    while {await buyer.state(M), await buyer.state(N)} != {State.READY}:
        assert await pull(seller) == (), "nobody gets what is not packaged"
        await world.wait(0.1)
    await world.wait(2)
    assert sorted(await pull(seller, most=1000)) == sorted((M, N))
    await world.wait(2)
    await buyer.send("third@buyer")
    assert await pull(seller) == ("third@buyer",)


@played
async def test_a_large_message_is_packaged_first_and_then_offered(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M, payload=LARGE)
    assert await buyer.state(M) is State.SUBMITTED
    while await buyer.state(M) is State.SUBMITTED or not await queued(buyer):
        await world.wait(0.1)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert (await seller.message(M)).bytes == len(LARGE)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_an_operator_offers_it_again(world: World) -> None:
    collect(world, retry=AGAIN | {"max_retries": 0})
    buyer, seller = await world.both()
    await buyer.send(M)
    assert given(await buyer.receive(SOAP, request(seller))) == M
    await world.wait(15)
    assert await buyer.state(M) is State.IN_DOUBT
    assert await pull(seller) == ()
    await buyer.process.ask(buyer.node.resend(M))
    await world.wait(1)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_an_operator_need_not_wait_for_who_pulled_it(world: World) -> None:
    collect(world, retry=AGAIN | {"timeout": "PT1H"})
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    assert given(await buyer.receive(SOAP, request(seller))) == M
    await buyer.process.ask(buyer.node.resend(M))
    await world.wait(1)
    assert await pull(seller, most=2) == (M, N)


@played
async def test_a_suspended_partner_gets_nothing_until_it_is_resumed(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.process.ask(buyer.node.suspend(party(SELLER), "a quarrel"))
    assert await pull(seller) == ()
    await buyer.process.ask(buyer.node.resume(party(SELLER)))
    assert await pull(seller) == (M,)


@played
async def test_without_receipts_what_was_handed_out_is_gone(world: World) -> None:
    collect(world, retry=None, receipt=False)
    buyer, seller = await world.both()
    await buyer.send(M)
    assert await pull(seller) == (M,)
    assert (await buyer.state(M), await queued(buyer)) == (State.SENT, 0)


@played
async def test_an_error_of_who_pulled_ends_it(world: World) -> None:
    collect(world)
    collect(world, "invoices", at=(BUYER,))
    buyer, seller = await world.both()
    await buyer.send(M, pmode="invoices")
    # Both are in the same channel with the same credentials, and the seller knows only one.
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await seller.state(M) is State.REJECTED
    failed = await buyer.message(M)
    assert (failed.state, failed.error_code) == (State.FAILED, "EBMS:0010")
    assert await queued(buyer) == 0


@played
async def test_what_nobody_pulled_yet_nobody_can_refuse(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.receive(SOAP, ebms_error("EBMS:0004", M))
    assert await buyer.state(M) is State.READY
    assert await pull(seller) == (M,)


@played
async def test_what_cannot_be_stored_is_not_acknowledged_and_offered_again(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    with failing(seller.node.context.store, StoreFull("no room"), about="keep.<locals>"):
        assert await pull(seller, most=1000) == ()
    assert await buyer.state(M) is State.WAITING
    await world.wait(11)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_message_that_is_to_be_pulled_cannot_be_pushed(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    handed = await buyer.receive(SOAP, request(seller))
    pushed = await seller.receive(handed.content_type, handed.body)
    assert errors(pushed) == ["EBMS:0010"]
    assert await seller.inbox() == []


@played
async def test_a_message_of_another_agreement_cannot_be_pulled_elsewhere(world: World) -> None:
    collect(world)
    world.agree("pushed")
    buyer, seller = await world.both()
    await buyer.send(M, pmode="pushed")
    await world.wait(1)
    [posted] = world.wire.to(SELLER, M)
    # A partner answers a PullRequest with what another agreement would have pushed.
    body = posted.body.replace(b"m@buyer", b"x@buyer")
    world.wire.will(status(200, body, posted.content_type), at=BUYER)
    assert await pull(seller) == ("x@buyer",)
    assert await seller.state("x@buyer") is State.REJECTED


@played
async def test_who_pulls_by_a_schedule_asks_less_often_while_nothing_is_there(
    world: World,
) -> None:
    collect(world, scheduled=True, interval="PT10S", growth=2, longest="PT1M")
    buyer, seller = await world.both()
    await world.until(300)
    asked = world.wire.times("PullRequest", BUYER)
    assert asked[:6] == [0, 10, 30, 70, 130, 190]
    await buyer.send(M)
    await buyer.send(N)
    await world.until(330)
    assert await seller.inbox() == [M, N]
    after = [one for one in world.wire.times("PullRequest", BUYER) if one >= 250]
    assert after[-1] - after[-2] == 10


async def _agrees_anew(world: World, station: Station) -> None:
    """Its P-Modes, as they are now in the test, are in force."""
    world._write(station.name)
    assert (await station.node.reload()).ok


@played
async def test_who_empties_a_full_channel_looks_what_is_agreed_on_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "_IN_ONE_GO", 2)
    collect(world, scheduled=True)
    buyer = await world.start(BUYER)
    for number in range(5):
        await buyer.send(f"{number}@buyer")

    async def no_more(world: World, posted: Posted) -> Reply:
        world._pmodes[SELLER][0]["legs"][0]["pulling"]["scheduled"] = False
        await _agrees_anew(world, world.stations[SELLER])
        return await passed(world, posted)

    world.wire.will(passed, no_more, at=BUYER)
    seller = await world.start(SELLER)
    await world.wait(5)
    assert await seller.inbox() == ["0@buyer", "1@buyer"]


@played
async def test_a_shorter_schedule_counts_at_once(world: World) -> None:
    collect(world, at=(SELLER,), scheduled=True, interval="PT1H")
    seller = await world.start(SELLER)
    await world.until(10)
    world._pmodes[SELLER][0]["legs"][0]["pulling"] |= {"interval": "PT10S", "longest": "PT10S"}
    await _agrees_anew(world, seller)
    await world.until(42)
    assert len(world.wire.to(BUYER)) == 4


@played
async def test_a_partner_who_cannot_be_reached_is_asked_again(world: World) -> None:
    collect(world, scheduled=True, interval="PT10S", growth=2, longest="PT1M")
    seller = await world.start(SELLER)
    await world.until(100)
    assert world.wire.times("PullRequest", BUYER) == [0, 10, 30, 70]
    told = await seller.journal("error_raised")
    assert {one.error_code for one in told} == {"EBMS:0005"}
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(140)
    assert await seller.inbox() == [M]


@played
async def test_what_is_not_pulled_here_is_refused_by_name(world: World) -> None:
    collect(world)
    world.agree("pushed")
    buyer, seller = await world.both()
    for station, name in ((seller, "pushed"), (seller, "unheard"), (buyer, ORDERS)):
        with pytest.raises(Refused, match=f"nothing of {name} is pulled by"):
            await pull(station, name)


@pytest.mark.req("P2-2.5.4-01", "P2-2.5.4-02", "P2-2.5.4-04", "P2-2.5.4-07", "P2-2.5.4-09")
@played
async def test_a_sub_channel_is_pulled_by_its_own_credentials_and_never_by_a_sibling(
    world: World,
) -> None:
    other = {"username": "carrier", "password": "quite another"}
    collect(world, "north", mpc=MPC, sub="north")
    collect(world, "south", by=CARRIER, user=other, mpc=MPC, sub="south")
    buyer, seller = await world.both()
    carrier = await world.start(CARRIER)
    await buyer.send(M, pmode="north")
    assert await pull(carrier, "south") == ()
    assert await pull(seller, "north") == (M,)
    assert (await seller.message(M)).mpc == MPC
    assert await queued(buyer, f"{MPC}/north") == 1


@pytest.mark.req("P2-2.5.4-03", "P2-2.5.4-05", "P2-2.5.4-06")
@played
async def test_who_pulls_from_the_parent_gets_its_own_messages_of_sub_channels(
    world: World,
) -> None:
    other = {"username": "carrier", "password": "quite another"}
    collect(world, "all", mpc=MPC)
    collect(world, "north", mpc=MPC, sub="north")
    collect(world, "south", by=CARRIER, user=other, mpc=MPC, sub="south", at=(BUYER,))
    buyer, seller = await world.both()
    await buyer.send(M, pmode="south")
    await buyer.send(N, pmode="north")
    assert await pull(seller, "all", most=1000) == (N,)
    assert await queued(buyer, f"{MPC}/south") == 1


@pytest.mark.req("P2-2.5.4-09")
@played
async def test_who_knows_the_sub_channel_alone_takes_messages_that_name_the_parent(
    world: World,
) -> None:
    collect(world, "north", mpc=MPC, sub="north", at=(BUYER,))
    collect(world, "north", mpc=f"{MPC}/north", at=(SELLER,))
    buyer, seller = await world.both()
    await buyer.send(M, pmode="north")
    assert await pull(seller, "north") == (M,)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_what_cannot_be_read_stands_in_nobodys_way(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    lost_one = await buyer.message(M)
    assert lost_one.envelope is not None
    world._memories[BUYER]._tables.contents.pop(lost_one.envelope.place)
    assert await pull(seller, most=10) == (N,)
    told = [(one.event, one.attempt) for one in await buyer.events(M) if one.attempt]
    assert told == [("send_failed", 1)]
    kept = await buyer.message(M)
    assert kept.state is State.READY
    assert "cannot be read" in (kept.detail or "")
    await world.wait(60)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (status(500), "answered HTTP 500 and nothing else"),
        (status(200, b"<p>hello</p>", "text/html"), "answered HTTP 200"),
        (status(200, b"not XML at all"), "answered"),
        (status(202), "answered HTTP 202 and nothing else"),
        (lost, "no answer in time"),
    ],
)
@played
async def test_an_answer_that_is_none_is_told(world: World, answer: Answering, told: str) -> None:
    collect(world)
    seller = await world.start(SELLER)
    world.wire.will(answer, at=BUYER)
    collected = await seller.process.ask(seller.node.pull(ORDERS, most=10))
    assert collected.messages == ()
    assert told in (collected.detail or "")
    [event] = await seller.journal("error_raised")
    assert "nothing could be pulled" in (event.detail or "")
    assert len(world.wire.posted) == 1


@played
async def test_an_error_that_names_a_user_message_is_not_asked_for_again(world: World) -> None:
    collect(world)
    _, seller = await world.both()
    world.wire.usual[BUYER] = told(200, "EBMS:0004", "eb:UserMessage")
    found = await seller.process.ask(seller.node.pull(ORDERS, most=100))
    assert (found.messages, found.detail is None) == ((), False)
    assert len(world.wire.to(BUYER, "PullRequest")) < 50
