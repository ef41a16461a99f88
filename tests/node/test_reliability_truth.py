"""The sender is told the truth: what is certain, what is in doubt, and what settles it later."""

from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.node.walks.receiving import Response
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    SOAP,
    Answering,
    Held,
    Posted,
    Station,
    World,
    ebms_error,
    lost,
    played,
    refused,
    reply_lost,
    status,
    told,
)

M: Final = "m@buyer"
ONE_RETRY: Final[dict[str, Any]] = {"max_retries": 1, "period": "PT5S"}
TWO: Final = {"max_retries": 2, "period": "PT5S"}


REFUSAL: Final = told(200, "EBMS:0004", M)


async def keep_back(station: Station, posted: Posted) -> Response:
    """Somebody gets a message; its answer, which its sender does not see."""
    return await station.receive(posted.content_type, posted.body)


@pytest.mark.parametrize(
    ("before", "state"),
    [
        ((), State.FAILED),
        ((refused,), State.FAILED),
        ((lost,), State.IN_DOUBT),
        ((reply_lost,), State.IN_DOUBT),
        ((status(500),), State.IN_DOUBT),
        ((told(503, "EBMS:0202", M),), State.FAILED),
        ((lost, refused), State.IN_DOUBT),
    ],
    ids=["none", "never left", "lost", "reply lost", "trouble", "turned away", "lost, then not"],
)
@played
async def test_a_refusal_of_one_copy_says_nothing_about_one_that_is_unanswered(
    world: World, before: tuple[Answering, ...], state: State
) -> None:
    world.agree(retry=TWO)
    world.wire.will(*before, REFUSAL)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(100)
    assert len(world.wire.to(SELLER, M)) == len(before) + 1
    assert await buyer.state(M) is state
    story = await buyer.story(M)
    assert "error_received" in story
    assert story.count("delivery_failed") == (state is State.FAILED)
    assert story.count("in_doubt") == (state is State.IN_DOUBT)
    assert await buyer.work() == {}


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        ((status(400),), 1),
        ((status(503, ebms_error("EBMS:0202", M, "e1@seller")), status(400)), 1),
        ((status(429), status(429), status(429)), 1),
        ((REFUSAL,), 1),
        ((lost, status(400)), 0),
        ((refused, refused, refused), 0),
    ],
    ids=["400", "error, then 400", "429 only", "error", "lost, then 400", "never left"],
)
@played
async def test_a_message_that_left_and_surely_failed_has_an_error_of_the_partner_in_the_journal(
    world: World, answers: tuple[Answering, ...], count: int
) -> None:
    """Who has only the journal can tell a certain failure from doubt."""
    world.agree(retry=TWO)
    world.wire.will(*answers)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(100)
    events = [one for one in await buyer.events(M) if one.event == "error_received"]
    assert [one.severity for one in events] == ["failure"] * count
    assert all(one.peer and one.detail for one in events)


@pytest.mark.req("OV004-2-04")
@pytest.mark.parametrize("trouble", [lost, refused], ids=["in doubt", "failed"])
@played
async def test_a_receipt_after_it_was_given_up_settles_it(world: World, trouble: Answering) -> None:
    world.agree(signed=True, retry=ONE_RETRY)
    world.wire.usual[SELLER] = trouble
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(20)
    given_up = await buyer.state(M)
    assert given_up is (State.IN_DOUBT if trouble is lost else State.FAILED)
    answer = await keep_back(seller, world.wire.to(SELLER, M)[0])
    assert (await buyer.receive(answer.content_type, answer.body)).status == 202
    assert await buyer.state(M) is State.SETTLED
    told = await buyer.events(M)
    assert [one.event for one in told][-2:] == ["receipt_received", "settled"]
    assert (told[-1].detail, told[-1].peer) == ("delivered", "192.0.2.1")
    assert [one.event for one in await buyer.notices(M)][1:] == ["settled"]
    found = await buyer.message(M)
    assert found.error_code is None


@pytest.mark.req("OV004-2-05")
@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
@played
async def test_a_receipt_may_come_twice(world: World, late: bool) -> None:
    world.agree(signed=True, retry=ONE_RETRY)
    world.wire.will(*([lost, lost] if late else []))
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(20)
    answer = await keep_back(seller, world.wire.to(SELLER, M)[0])
    for _ in range(2):
        again = await buyer.receive(answer.content_type, answer.body)
        assert (again.status, again.body) == (202, b"")
    assert await buyer.state(M) is (State.SETTLED if late else State.ACKNOWLEDGED)
    story = await buyer.story(M)
    assert story.count("receipt_received") == 1
    assert story.count("settled") == late
    assert len(await buyer.notices(M)) == 2 * late


@played
async def test_a_receipt_for_a_message_that_nobody_sent_is_noted_and_changes_nothing(
    world: World,
) -> None:
    world.agree(retry=ONE_RETRY)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1)
    answer = await keep_back(seller, world.wire.to(SELLER, M)[0])
    other = answer.body.replace(M.encode(), b"never@buyer")
    before = await buyer.story(M)
    assert (await buyer.receive(answer.content_type, other)).status == 202
    [noted] = await buyer.journal("error_raised")
    assert "never@buyer" in (noted.detail or "")
    assert await buyer.story(M) == before
    assert await buyer.node.message("never@buyer") is None


async def disbelieved(buyer: Station, receipt: Response) -> str | None:
    """A receipt comes that proves nothing: the code by which it is told."""
    before = await buyer.message(M)
    seen = len(await buyer.events(M))
    assert (await buyer.receive(receipt.content_type, receipt.body)).status == 202
    assert await buyer.message(M) == before
    [told] = (await buyer.events(M))[seen:]
    assert (told.event, told.severity) == ("error_raised", "failure")
    assert str(told.side) == "sending"
    assert told.signal_id
    assert told.evidence
    return told.error_code


@pytest.mark.parametrize("state", [State.WAITING, State.IN_DOUBT, State.FAILED])
@played
async def test_a_receipt_for_something_else_is_an_incident_and_no_acknowledgment(
    world: World, state: State
) -> None:
    """The receipt's digests are not those of what was sent."""
    world.agree(signed=True, retry=ONE_RETRY)
    world.wire.usual[SELLER] = REFUSAL if state is State.FAILED else lost
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1 if state is State.WAITING else 20)
    assert await buyer.state(M) is state
    world.wire.usual.clear()
    world.wire.will(lost)
    with world.elsewhere():
        stranger = await world.start(BUYER)
        await stranger.send(M, payload=b"another order")
        await world.wait(0.1)
    other = [one for one in world.wire.to(SELLER, M) if b"another order" in one.body]
    receipt = await keep_back(seller, other[0])
    assert b"Receipt>" in receipt.body
    assert await disbelieved(buyer, receipt) == "EBMS:0302"
    assert await buyer.state(M) is state


@played
async def test_a_response_with_the_receipt_of_another_message_is_no_answer(world: World) -> None:
    world.agree(signed=True, retry=ONE_RETRY)
    buyer, _ = await world.both()
    await buyer.send("other@buyer")
    await world.until(1)
    first = world.wire.to(SELLER, "other@buyer")[0]
    receipt = await keep_back(world.stations[SELLER], first)
    world.wire.usual[SELLER] = status(200, receipt.body)
    await buyer.send(M)
    await world.until(50)
    assert len(world.wire.to(SELLER, M)) == 2
    assert await buyer.state(M) is State.IN_DOUBT
    assert "receipt_received" not in await buyer.story(M)


@played
async def test_a_receipt_that_the_partner_did_not_sign_is_not_believed(world: World) -> None:
    """Somebody who is trusted for something else vouches for another partner's message."""
    world.agree(signed=True, retry=ONE_RETRY)
    world.wire.will(lost)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    posted = world.wire.to(SELLER, M)[0]
    world.sign_as(SELLER, BUYER)
    impostor = await world.start(SELLER)
    receipt = await keep_back(impostor, posted)
    assert b"Receipt>" in receipt.body
    assert await disbelieved(buyer, receipt) == "EBMS:0101"


@played
async def test_a_receipt_that_nobody_signed_is_not_believed(world: World) -> None:
    world.agree(signed=True, retry=ONE_RETRY)
    world.wire.will(lost)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1)
    signed = await keep_back(seller, world.wire.to(SELLER, M)[0])
    start, end = signed.body.index(b"<wsse:Security"), signed.body.index(b"</wsse:Security>")
    bare = signed.body[:start] + signed.body[end + len(b"</wsse:Security>") :]
    assert await disbelieved(buyer, Response(200, SOAP, bare)) == "EBMS:0103"


@played
async def test_a_bad_receipt_in_the_response_is_retried_and_the_good_one_counts(
    world: World,
) -> None:
    world.agree(signed=True, retry=ONE_RETRY)
    buyer, seller = await world.both()

    async def spoiled(world: World, posted: Posted) -> Reply:
        answer = await seller.receive(posted.content_type, posted.body)
        start = answer.body.index(b"DigestValue>") + len(b"DigestValue>")
        wrong = bytes([answer.body[start] ^ 1])
        body = answer.body[:start] + wrong + answer.body[start + 1 :]
        return await status(200, body)(world, posted)

    world.wire.will(spoiled)
    await buyer.send(M)
    await world.until(1)
    assert await buyer.state(M) is State.WAITING
    assert (await buyer.story(M))[-1] == "error_raised"
    await world.until(20)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.story(M) == ["received", "delivered", "receipt_sent", "duplicate"]


# Refusals that call back


@played
async def test_the_same_refusal_twice_is_one_refusal(world: World) -> None:
    """Two copies are out; one was refused, and its sender repeats itself."""
    world.agree(receipt="callback", retry=TWO)
    world.wire.will(status(202), status(202))
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(6)
    for _ in range(2):
        await buyer.receive(SOAP, ebms_error("EBMS:0004", M))
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_a_refusal_that_comes_again_says_nothing_about_a_copy_that_was_resent(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=TWO)
    world.wire.usual[SELLER] = status(202)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    refusal = ebms_error("EBMS:0004", M, "e@seller")
    await buyer.receive(SOAP, refusal)
    assert await buyer.state(M) is State.FAILED
    await buyer.node.resend(M)
    await world.until(1)
    await buyer.receive(SOAP, refusal)
    assert await buyer.state(M) is State.WAITING


@played
async def test_the_answer_to_an_earlier_copy_is_no_answer_to_this_one(world: World) -> None:
    """A proxy that mixes up answers gives the first one again; the second copy may be there."""
    world.agree(retry=TWO)
    not_now = status(503, ebms_error("EBMS:0202", M))
    world.wire.will(not_now, not_now)
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(100)
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_further_refusals_do_not_make_certain_what_is_in_doubt(world: World) -> None:
    """Nobody knows which copy they are about."""
    world.agree(receipt="callback", retry=TWO)
    world.wire.will(status(202), status(202))
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(6)
    for number in range(3):
        await buyer.receive(SOAP, ebms_error("EBMS:0004", M, f"e{number}@seller"))
    assert await buyer.state(M) is State.IN_DOUBT
    assert (await buyer.story(M)).count("in_doubt") == 1
    await world.until(50)
    assert len(world.wire.to(SELLER, M)) == 2
    assert len(await buyer.notices(M)) == 1


@played
async def test_a_receipt_outweighs_a_refusal_that_came_before_it(world: World) -> None:
    world.agree(receipt="callback", retry=TWO)
    world.wire.usual[SELLER] = status(202)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1)
    await buyer.receive(SOAP, ebms_error("EBMS:0004", M))
    assert await buyer.state(M) is State.FAILED
    posted = world.wire.to(SELLER, M)[0]
    await seller.receive(posted.content_type, posted.body)
    await world.until(5)
    assert await buyer.state(M) is State.SETTLED
    assert await seller.inbox() == [M]


@played
async def test_a_refusal_after_a_receipt_changes_nothing(world: World) -> None:
    world.agree(receipt="callback", retry=TWO)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    await buyer.receive(SOAP, ebms_error("EBMS:0004", M))
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert not await buyer.notices(M)


@played
async def test_a_receipt_that_is_quicker_than_the_response_counts_and_the_attempt_too(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=TWO)
    buyer, seller = await world.both()
    slow = Held(lost)
    world.wire.will(slow)
    await buyer.send(M)
    await world.until(1)
    posted = world.wire.to(SELLER, M)[0]
    await seller.receive(posted.content_type, posted.body)
    await world.until(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    slow.release()
    await world.until(50)
    found = await buyer.message(M)
    assert (found.state, found.attempts) == (State.ACKNOWLEDGED, 1)
    assert sorted(await buyer.story(M)) == ["receipt_received", "sent", "submitted"]
    assert await buyer.work() == {}


# What an operator says


async def brought_to(world: World, state: State) -> Station:
    """A buyer whose message is in that state."""
    terms: dict[str, Any] = {"retry": ONE_RETRY}
    trouble: Answering = lost
    if state in (State.FAILED, State.READY):
        trouble = refused
    elif state is State.EXPIRED:
        trouble = refused
        terms = {"retry": ONE_RETRY | {"max_retries": 9, "time_to_live": "PT12S"}}
    elif state is State.SUSPENDED:
        terms = {"retry": ONE_RETRY | {"then": "suspend"}}
    # A signed receipt is believed however it comes.
    world.agree(ORDERS, signed=True, **terms)
    if state is not State.ACKNOWLEDGED:
        world.wire.usual[SELLER] = trouble
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(1 if state in (State.READY, State.WAITING) else 20)
    if state is State.SETTLED:
        await buyer.node.settle(M, "not_received")
    assert await buyer.state(M) is state
    return buyer


@pytest.mark.parametrize("answer", ["delivered", "received", "not_received"])
@pytest.mark.parametrize(
    "state", [State.IN_DOUBT, State.FAILED, State.EXPIRED, State.SUSPENDED, State.SETTLED]
)
@played
async def test_an_operator_settles_what_was_given_up(
    world: World, state: State, answer: str
) -> None:
    buyer = await brought_to(world, state)
    settled = await buyer.node.settle(M, answer, "the clerk")
    assert (settled.state, settled.detail) == (State.SETTLED, answer)
    told = [one for one in await buyer.events(M) if one.event == "settled"]
    assert (told[-1].detail, told[-1].peer) in (
        (answer, "the clerk"),
        ("not_received", "operator"),
    )
    assert [one.event for one in await buyer.notices(M)][-1] == "settled"
    sent = len(world.wire.to(SELLER, M))
    await world.wait(100)
    assert len(world.wire.to(SELLER, M)) == sent


@pytest.mark.parametrize("state", [State.READY, State.WAITING, State.ACKNOWLEDGED])
@played
async def test_what_is_on_its_way_or_certain_is_not_settled(world: World, state: State) -> None:
    buyer = await brought_to(world, state)
    before = await buyer.story(M)
    with pytest.raises(Refused) as no:
        await buyer.node.settle(M, "delivered")
    assert no.value.status == 409
    assert await buyer.story(M) == before
    assert await buyer.state(M) is state


@played
async def test_an_answer_that_is_none_and_a_message_that_is_none_are_refused(world: World) -> None:
    buyer = await brought_to(world, State.IN_DOUBT)
    with pytest.raises(Refused) as no:
        await buyer.node.settle(M, "perhaps")
    assert no.value.status == 400
    with pytest.raises(Refused) as no:
        await buyer.node.settle("never@buyer", "delivered")
    assert no.value.status == 404
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_the_last_word_about_a_settled_message_counts(world: World) -> None:
    buyer = await brought_to(world, State.IN_DOUBT)
    await buyer.node.settle(M, "not_received")
    posted = world.wire.to(SELLER, M)[0]
    answer = await keep_back(world.stations[SELLER], posted)
    await buyer.receive(answer.content_type, answer.body)
    found = await buyer.message(M)
    assert (found.state, found.detail) == (State.SETTLED, "delivered")
    told = [one.detail for one in await buyer.events(M) if one.event == "settled"]
    assert told == ["not_received", "delivered"]


@pytest.mark.parametrize("state", [State.IN_DOUBT, State.FAILED])
@played
async def test_an_operator_sends_again_what_was_given_up(world: World, state: State) -> None:
    buyer = await brought_to(world, state)
    world.wire.usual.clear()
    await buyer.node.resend(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    first, *_, last = world.wire.to(SELLER, M)
    assert first.body == last.body
    assert await world.stations[SELLER].inbox() == [M]
    assert await buyer.work() == {}


@pytest.mark.parametrize(
    ("state", "after"),
    [(State.IN_DOUBT, State.IN_DOUBT), (State.FAILED, State.FAILED)],
)
@played
async def test_what_is_sent_again_has_all_its_retries_and_stays_as_doubtful_as_it_was(
    world: World, state: State, after: State
) -> None:
    buyer = await brought_to(world, state)
    world.wire.usual[SELLER] = refused
    tried = len(world.wire.to(SELLER, M))
    await buyer.node.resend(M)
    await world.wait(50)
    assert len(world.wire.to(SELLER, M)) == tried + 2
    assert await buyer.state(M) is after


@played
async def test_what_a_receipt_settled_is_never_called_failed_again(world: World) -> None:
    buyer = await brought_to(world, State.IN_DOUBT)
    answer = await keep_back(world.stations[SELLER], world.wire.to(SELLER, M)[0])
    await buyer.receive(answer.content_type, answer.body)
    assert await buyer.state(M) is State.SETTLED
    world.wire.usual[SELLER] = refused
    with pytest.raises(Refused):
        await buyer.node.resend(M)
    await world.wait(50)
    assert await buyer.state(M) is State.SETTLED


@pytest.mark.parametrize("state", [State.ACKNOWLEDGED, State.SETTLED])
@played
async def test_what_was_answered_is_not_sent_again(world: World, state: State) -> None:
    buyer = await brought_to(world, state)
    sent = len(world.wire.to(SELLER, M))
    with pytest.raises(Refused) as no:
        await buyer.node.resend(M)
    assert no.value.status == 409
    await world.wait(20)
    assert len(world.wire.to(SELLER, M)) == sent
    assert await buyer.state(M) is state


@played
async def test_what_waits_for_its_next_attempt_is_sent_now_when_an_operator_says_so(
    world: World,
) -> None:
    buyer = await brought_to(world, State.WAITING)
    world.wire.usual.clear()
    await buyer.node.resend(M)
    await world.until(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_what_is_being_sent_is_not_sent_a_second_time_at_once(world: World) -> None:
    world.agree(retry=ONE_RETRY)
    under_way = Held()
    world.wire.will(under_way)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1)
    with pytest.raises(Refused) as no:
        await buyer.node.resend(M)
    assert no.value.status == 409
    under_way.release()
    await world.until(20)
    assert len(world.wire.to(SELLER, M)) == 1
    assert await seller.inbox() == [M]


@played
async def test_sending_an_expired_message_again_is_refused_or_sends_it(world: World) -> None:
    buyer = await brought_to(world, State.EXPIRED)
    world.wire.usual.clear()
    try:
        await buyer.node.resend(M)
    except Refused:
        return
    await world.wait(10)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_receipt_that_comes_while_it_is_sent_again_outweighs_what_becomes_of_that(
    world: World,
) -> None:
    buyer = await brought_to(world, State.IN_DOUBT)
    posted = world.wire.to(SELLER, M)[0]
    again = Held(REFUSAL)
    world.wire.will(again)
    await buyer.node.resend(M)
    await world.wait(1)
    answer = await keep_back(world.stations[SELLER], posted)
    await buyer.receive(answer.content_type, answer.body)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    again.release()
    await world.wait(20)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    story = await buyer.story(M)
    assert story[-2:] == ["resent", "error_received"]
    assert story.count("delivery_failed") == 0
    assert await buyer.work() == {}
