"""Sending again: when, how often, with which bytes, and how it ends."""

import asyncio
from itertools import pairwise
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import (
    BEGIN,
    BUYER,
    LARGE,
    ORDERS,
    SELLER,
    Answering,
    Held,
    Posted,
    Station,
    World,
    lost,
    party,
    passed,
    played,
    refused,
    reply_lost,
    status,
    told,
)

M: Final = "m@buyer"
FEW: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}
NO_BREAKER: Final = {"breaker": {"failures": 0}}


async def attempts(buyer: Station, message_id: str = M) -> list[tuple[str, int | None]]:
    """What the journal says of each attempt."""
    told = await buyer.events(message_id)
    return [
        (one.event, one.attempt) for one in told if one.event in ("sent", "resent", "send_failed")
    ]


@pytest.mark.req(
    "RM000-1.2.6-01",
    "RM000-1.2.7-01",
    "RM000-1.2.8-01",
    "RM000-1.3.1.4-01",
    "RM000-1.3.1.4-02",
    "MS098-10.2.6-01",
    "MS098-10.2.7-01",
    "MS098-10.2.8-01",
    "MS098-10.3.1.4-01",
    "MS098-10.3.1.4-02",
    "OV004-1-03",
    "OV004-1-09",
    "OV004-2-01",
)
@played
async def test_it_is_sent_again_after_the_timeout_and_then_after_each_interval(
    world: World,
) -> None:
    world.agree(retry=FEW)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1000)
    assert world.wire.times(M) == [0, 5, 15, 25]
    assert await attempts(buyer) == [("sent", 1), ("resent", 2), ("resent", 3), ("resent", 4)]


@pytest.mark.req("RM000-1.3.1.1-05", "RM000-1.3.2-03", "MS098-10.3.1.5-01", "MS098-10.3.1.5-04")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@played
async def test_it_is_the_same_to_the_last_byte_however_often_it_is_sent(
    world: World, payload: bytes
) -> None:
    world.agree(retry=FEW, signed=True)
    world.wire.will(lost, refused)
    buyer, seller = await world.both()
    await buyer.send(M, payload=payload)
    await world.until(10)
    buyer = await world.start_again(BUYER)
    await world.until(100)
    first, *others = world.wire.to(SELLER, M)
    assert len(others) == 2
    assert {(one.content_type, one.body) for one in others} == {(first.content_type, first.body)}
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@pytest.mark.parametrize(
    ("growth", "times"),
    [
        ({"backoff": 2}, [0, 2, 5, 11, 23, 47]),
        ({"backoff": 2, "max_period": "PT10S"}, [0, 2, 5, 11, 21, 31]),
        ({}, [0, 2, 5, 8, 11, 14]),
    ],
    ids=["doubling", "up to the longest", "constant"],
)
@played
async def test_intervals_grow_as_agreed(
    world: World, growth: dict[str, Any], times: list[float]
) -> None:
    world.agree(retry={"max_retries": 5, "timeout": "PT2S", "period": "PT3S"} | growth)
    world.configure(BUYER, send=NO_BREAKER)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(500)
    assert world.wire.times(M) == times


@played
async def test_jitter_stretches_intervals_and_never_shortens_them(world: World) -> None:
    world.agree(retry={"max_retries": 40, "period": "PT10S", "jitter": 0.5})
    world.configure(BUYER, send=NO_BREAKER)
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(650)
    times = world.wire.times(M)
    waits = [after - before for before, after in pairwise(times)]
    assert len(waits) == 40
    assert min(waits) >= 9.99
    assert max(waits) <= 15.1
    assert max(waits) - min(waits) > 2


@played
async def test_the_interval_counts_from_the_last_time_that_it_was_sent(world: World) -> None:
    world.agree(retry={"max_retries": 2, "period": "PT10S"})
    buyer = await world.start(BUYER)

    def after(seconds: float) -> Answering:
        async def slow(world: World, posted: Posted) -> Reply:
            await world.wait(seconds)
            return await lost(world, posted)

        return slow

    world.wire.will(after(4), after(14), lost)
    await buyer.send(M)
    await world.until(100)
    assert world.wire.times(M) == [0, 10, 24]


@pytest.mark.req("RM000-1.3.1.4-04", "MS098-10.3.1.4-04")
@played
async def test_what_cannot_leave_is_tried_again_and_flows_when_it_can(world: World) -> None:
    world.agree(retry=FEW)
    world.wire.will(refused, refused)
    buyer, seller = await world.both()
    await buyer.send(M)
    assert await buyer.state(M) is State.READY
    await world.until(100)
    assert world.wire.times(M) == [0, 5, 15]
    assert await attempts(buyer) == [("send_failed", 1), ("send_failed", 2), ("resent", 3)]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    assert await buyer.work() == {}


@played
async def test_the_retries_count_over_all_kinds_of_trouble_until_a_receipt_comes(
    world: World,
) -> None:
    world.agree(retry=FEW)
    world.wire.will(refused, lost, status(500))
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(100)
    assert world.wire.times(M) == [0, 5, 15, 25]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_retries_without_end_go_on_until_the_partner_is_there(world: World) -> None:
    world.agree(retry={"max_retries": "unlimited", "period": "PT10S"})
    world.configure(BUYER, send=NO_BREAKER)
    world.wire.usual[SELLER] = refused
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1000)
    assert 95 < len(world.wire.to(SELLER, M)) < 102
    assert await buyer.state(M) is State.READY
    assert not await buyer.notices(M)
    del world.wire.usual[SELLER]
    await world.until(1020)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_receipt_is_the_end_of_it(world: World) -> None:
    world.agree(retry=FEW)
    world.wire.will(lost)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(500)
    assert world.wire.times(M) == [0, 5]
    found = await buyer.message(M)
    assert (found.state, found.due_at, found.decided_by) == (State.ACKNOWLEDGED, None, None)
    assert await buyer.work() == {}
    assert not await buyer.notices(M)


@pytest.mark.req(
    "RM000-1-01",
    "RM000-1.3.1.4-03",
    "RM000-1.3.1.4-06",
    "RM000-1.4-06",
    "RM000-1.4-07",
    "MS098-10.3.1.4-03",
    "MS098-10.4-05",
    "MS098-10.4-06",
    "OV004-1-12",
    "OV004-1-14",
)
@pytest.mark.parametrize(
    ("trouble", "state", "event", "severity"),
    [
        (refused, State.FAILED, "delivery_failed", "Error"),
        (lost, State.IN_DOUBT, "in_doubt", "Warning"),
    ],
    ids=["never left", "no answer"],
)
@played
async def test_after_the_last_retry_the_application_is_told_once_which_kind_of_failure(
    world: World, trouble: Answering, state: State, event: str, severity: str
) -> None:
    world.agree(retry=FEW)
    world.wire.usual[SELLER] = trouble
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(24)
    assert await buyer.state(M) in (State.READY, State.WAITING)
    assert not await buyer.notices(M)
    await world.until(500)
    assert await buyer.state(M) is state
    assert (await buyer.story(M)).count(event) == 1
    [told] = await buyer.notices(M)
    assert (told.severity, told.state) == (severity, state)
    assert await buyer.work() == {}


@pytest.mark.req("OV004-2-06", "OV004-2-07")
@played
async def test_status_says_when_it_is_looked_at_again_and_until_when_its_fate_is_known(
    world: World,
) -> None:
    world.agree(retry=FEW)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    found = await buyer.message(M)
    assert found.due_at is not None
    assert found.decided_by is not None
    assert (found.due_at - BEGIN).total_seconds() == pytest.approx(5, abs=0.1)
    assert (found.decided_by - BEGIN).total_seconds() == pytest.approx(35, abs=0.1)
    await world.until(16)
    found = await buyer.message(M)
    assert found.due_at is not None
    assert (found.due_at - BEGIN).total_seconds() == pytest.approx(25, abs=0.1)
    await world.until(36)
    found = await buyer.message(M)
    assert (found.state, found.due_at, found.decided_by) == (State.IN_DOUBT, None, None)


MORTAL: Final[dict[str, Any]] = {"max_retries": 9, "period": "PT10S", "time_to_live": "PT25S"}


@played
async def test_what_has_not_left_by_its_time_to_live_has_expired_and_is_not_sent(
    world: World,
) -> None:
    world.agree(retry=MORTAL)
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(500)
    assert world.wire.times(M) == [0, 10, 20]
    assert await buyer.state(M) is State.EXPIRED
    [end] = [one for one in await buyer.events(M) if one.event == "expired"]
    assert (end.at - BEGIN).total_seconds() == pytest.approx(25, abs=0.1)
    [told] = await buyer.notices(M)
    assert (told.event, told.severity) == ("failed", "Error")
    assert await buyer.work() == {}


@played
async def test_what_left_and_was_not_answered_by_its_time_to_live_is_in_doubt(
    world: World,
) -> None:
    world.agree(retry=MORTAL)
    world.wire.will(refused, lost)
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(500)
    assert world.wire.times(M) == [0, 10, 20]
    assert await buyer.state(M) is State.IN_DOUBT
    [end] = [one for one in await buyer.events(M) if one.event == "in_doubt"]
    assert (end.at - BEGIN).total_seconds() == pytest.approx(25, abs=0.1)


@pytest.mark.req("RM000-1.2.10-03", "MS098-10.2.9-02", "MS098-10.2.9-03")
@played
async def test_nothing_is_sent_under_an_id_that_the_receiver_may_have_forgotten(
    world: World,
) -> None:
    world.agree(retry={"max_retries": 9, "period": "PT10S", "persist_duration": "PT25S"})
    world.wire.will(refused)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(500)
    assert world.wire.times(M) == [0, 10, 20, 30]
    assert await buyer.state(M) is State.IN_DOUBT
    [end] = [one for one in await buyer.events(M) if one.event == "in_doubt"]
    assert (end.at - BEGIN).total_seconds() == pytest.approx(35, abs=0.1)


@played
async def test_not_even_an_operator_sends_under_an_id_that_may_be_forgotten(world: World) -> None:
    world.agree(retry={"max_retries": 1, "period": "PT10S", "persist_duration": "PT25S"})
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(60)
    sent = world.wire.times(M)
    with pytest.raises(Refused) as no:
        await buyer.node.resend(M)
    assert no.value.status == 409
    await world.until(200)
    assert world.wire.times(M) == sent
    assert await buyer.state(M) is State.IN_DOUBT


@pytest.mark.req("OV004-1-13")
@played
async def test_with_fail_fast_a_partner_that_cannot_be_reached_ends_it_at_once(
    world: World,
) -> None:
    world.agree(retry=FEW | {"fail_fast": True})
    world.wire.will(refused)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(0.1)
    assert await buyer.state(M) is State.FAILED
    [told] = await buyer.notices(M)
    assert told.severity == "Error"
    await world.until(100)
    assert world.wire.times(M) == [0]


@played
async def test_with_fail_fast_what_left_is_still_sent_again_and_never_called_certain(
    world: World,
) -> None:
    world.agree(retry=FEW | {"fail_fast": True})
    world.wire.will(reply_lost, refused)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(100)
    assert world.wire.times(M) == [0, 5]
    assert await buyer.state(M) is State.IN_DOUBT
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("trouble", [refused, lost], ids=["never left", "no answer"])
@played
async def test_where_agreed_the_partner_is_suspended_after_the_last_retry_until_it_is_resumed(
    world: World, trouble: Answering
) -> None:
    world.agree(retry=FEW | {"then": "suspend"})
    world.agree("invoices", retry=FEW)
    world.wire.usual[SELLER] = trouble
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(26)
    assert await buyer.state(M) is State.SUSPENDED
    [partner] = await buyer.node.partners()
    assert (partner.name, partner.gate.value) == (party(SELLER), "suspended")
    [told] = await buyer.notices(M)
    assert (told.event, told.state) == ("suspended", State.SUSPENDED)
    [event] = await buyer.journal("suspended")
    assert (event.message_id, event.to_party) == (None, party(SELLER))
    await buyer.send("later@buyer", "invoices")
    await world.until(500)
    assert len(world.wire.posted) == 4
    assert not {"delivery_failed", "in_doubt", "expired"} & set(await buyer.story(M))

    del world.wire.usual[SELLER]
    assert await buyer.node.resume(party(SELLER)) == 1
    await world.wait(1)
    assert set(await seller.inbox()) == {M, "later@buyer"}
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert [one.to_party for one in await buyer.journal("resumed")] == [party(SELLER)]
    assert await buyer.node.partners() == []
    assert await buyer.work() == {}


@played
async def test_what_is_resumed_has_all_its_retries_again(world: World) -> None:
    world.agree(retry=FEW | {"then": "suspend"})
    world.wire.usual[SELLER] = refused
    world.configure(BUYER, send=NO_BREAKER)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(100)
    await buyer.node.resume(party(SELLER))
    await world.until(200)
    assert world.wire.times(M) == [0, 5, 15, 25, 100, 105, 115, 125]
    assert await buyer.state(M) is State.SUSPENDED
    with pytest.raises(Refused):
        await buyer.node.resume(party("nobody"))


@played
async def test_a_receipt_that_comes_while_it_is_suspended_ends_it(world: World) -> None:
    world.agree(receipt="callback", retry=FEW | {"then": "suspend"})
    world.wire.usual[BUYER] = refused
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(36)
    assert await buyer.state(M) is State.SUSPENDED
    del world.wire.usual[BUYER]
    await world.until(100)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await buyer.work() == {}


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        (refused, State.FAILED),
        (lost, State.IN_DOUBT),
        (status(500), State.IN_DOUBT),
        (status(202), State.IN_DOUBT),
        (told(503, "EBMS:0202", M), State.FAILED),
        (passed, State.ACKNOWLEDGED),
    ],
    ids=["refused", "lost", "500", "202", "not now", "passed"],
)
@pytest.mark.parametrize(
    "terms",
    [{}, {"enabled": False, "retry": FEW}, {"retry_enabled": False, "retry": FEW}],
    ids=["nothing agreed", "switched off", "retry switched off"],
)
@played
async def test_without_retries_there_is_one_attempt_and_the_outcome_is_known_at_once(
    world: World, trouble: Answering, state: State, terms: dict[str, Any]
) -> None:
    world.agree(**terms)
    world.wire.will(trouble)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(0.1)
    assert await buyer.state(M) is state
    assert await buyer.work() == {}
    await world.until(10)
    assert world.wire.times(M) == [0]


@played
async def test_what_can_never_be_packaged_fails_and_is_told(world: World) -> None:
    world.agree(retry=FEW, signed=True)
    buyer = await world.start(BUYER)
    await buyer.send(M, payload=LARGE, media_type="application/xml")
    await world.until(10)
    assert await buyer.state(M) is State.FAILED
    [told] = await buyer.notices(M)
    assert told.severity == "Error"
    assert await buyer.work() == {}


# What is agreed on changes meanwhile


@pytest.mark.parametrize(
    ("trouble", "state"),
    [(refused, State.FAILED), (lost, State.IN_DOUBT)],
    ids=["never left", "no answer"],
)
@played
async def test_a_message_whose_agreement_is_gone_is_given_up_and_told(
    world: World, trouble: Answering, state: State
) -> None:
    world.agree(retry=FEW)
    world.wire.usual[SELLER] = trouble
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    await world.agree_only(BUYER, "invoices")
    await world.until(10)
    assert world.wire.times(M) == [0]
    assert await buyer.state(M) is state
    [told] = await buyer.notices(M)
    assert "P-Mode" in (told.detail or "")
    with pytest.raises(Refused) as no:
        await buyer.node.resend(M)
    assert no.value.status == 422
    assert await buyer.state(M) is state


@played
async def test_retries_follow_what_is_agreed_on_now(world: World) -> None:
    world.agree(retry={"max_retries": 2, "period": "PT10S"})
    world.wire.usual[SELLER] = lost
    world.configure(BUYER, send=NO_BREAKER)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    await world.agree_only(BUYER, ORDERS, retry={"max_retries": 4, "period": "PT30S"})
    await world.until(500)
    assert world.wire.times(M) == [0, 10, 40, 70, 100]


# Stopping in good order


@played
async def test_what_was_not_begun_when_a_node_stops_is_not_said_to_have_left(
    world: World,
) -> None:
    world.agree(retry=FEW)
    world.configure(BUYER, send={"parallel": 1})
    slow = Held()
    world.wire.will(slow)
    buyer, seller = await world.both()
    for number in range(3):
        await buyer.send(f"{number}@buyer")
    await world.until(1)
    stopping = asyncio.ensure_future(buyer.stop())
    await world.until(2)
    slow.release()
    await stopping
    assert len(world.wire.to(SELLER)) == 1
    buyer = await world.start(BUYER)
    await world.until(4)
    assert len(await seller.inbox()) == 3
    assert [(await buyer.message(f"{number}@buyer")).attempts for number in range(3)] == [1, 1, 1]
    assert not await buyer.journal("resent")
