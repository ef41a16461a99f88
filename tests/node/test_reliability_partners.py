"""A partner that cannot be reached is left alone, and the others are not touched."""

import logging
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.store.interface import StoreBusy
from postroad.store.records import State
from tests.node.reliable import (
    BEGIN,
    BUYER,
    CARRIER,
    LARGE,
    ORDERS,
    SELLER,
    STORES,
    Answering,
    Held,
    Station,
    World,
    answers,
    failing,
    lost,
    party,
    played,
    refused,
    status,
)

RETRY: Final[dict[str, Any]] = {"max_retries": 3, "period": "PT10S"}
FOR_EVER: Final[dict[str, Any]] = {"max_retries": "unlimited", "period": "PT10S"}
FREIGHT: Final = "freight"
in_every_store = pytest.mark.parametrize("kept_in", STORES)


async def down(world: World, retry: dict[str, Any] = FOR_EVER, **breaker: object) -> Station:
    """A buyer whose seller cannot be reached: paused from the third attempt on, at 0 seconds."""
    world.agree(ORDERS, retry=retry)
    world.agree(FREIGHT, to=CARRIER, retry=retry)
    given = {"failures": 3, "pause": "PT30S", "longest_pause": "PT2M"} | breaker
    world.configure(BUYER, send={"breaker": given, "lease": "PT20S"})
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    for number in range(3):
        await buyer.send(f"{number}@buyer")
    await world.wait(0.1)
    [partner] = await buyer.node.partners()
    assert (partner.name, partner.gate.value) == (party(SELLER), "paused")
    return buyer


@played
async def test_after_so_many_failures_in_a_row_nothing_more_is_attempted_for_a_while(
    world: World,
) -> None:
    buyer = await down(world)
    await buyer.send("3@buyer")
    await world.until(29)
    assert len(world.wire.to(SELLER)) == 3
    [event] = await buyer.journal("suspended")
    assert (event.message_id, event.to_party) == (None, party(SELLER))
    assert event.side is None, "it is about no message"
    [partner] = await buyer.node.partners()
    assert partner.until is not None
    assert partner.since is not None


@played
async def test_fewer_failures_or_one_success_between_them_pause_nobody(world: World) -> None:
    world.agree(retry=FOR_EVER)
    world.configure(BUYER, send={"breaker": {"failures": 3}})
    world.wire.will(refused, refused)
    buyer, _ = await world.both()
    await buyer.send("0@buyer")
    await world.until(30)
    assert await buyer.state("0@buyer") is State.ACKNOWLEDGED
    assert await buyer.node.partners() == []
    world.wire.will(refused, refused)
    await buyer.send("1@buyer")
    await world.until(60)
    assert await buyer.state("1@buyer") is State.ACKNOWLEDGED
    assert not await buyer.journal("suspended", "resumed")


@pytest.mark.parametrize("answer", [status(404), status(202)], ids=["404", "202"])
@played
async def test_a_partner_that_answers_is_not_paused_whatever_it_says(
    world: World, answer: Answering
) -> None:
    world.agree()
    world.configure(BUYER, send={"breaker": {"failures": 2}})
    world.wire.usual[SELLER] = answer
    buyer = await world.start(BUYER)
    for number in range(5):
        await buyer.send(f"{number}@buyer")
    await world.until(1)
    assert await buyer.node.partners() == []
    assert len(world.wire.to(SELLER)) == 5


@played
async def test_the_others_are_served_as_ever(world: World) -> None:
    buyer = await down(world)
    carrier = await world.start(CARRIER)
    for number in range(5):
        await buyer.send(f"c{number}@buyer", FREIGHT)
    await world.until(1)
    assert len(await carrier.inbox()) == 5
    assert len(world.wire.to(SELLER)) == 3


@played
async def test_no_retries_are_used_up_while_a_partner_is_paused(world: World) -> None:
    buyer = await down(world, RETRY, pause="PT5M", longest_pause="PT5M")
    await world.until(290)
    for number in range(3):
        found = await buyer.message(f"{number}@buyer")
        assert (found.state, found.attempts, found.tries) == (State.READY, 1, 1)
    assert not await buyer.journal("delivery_failed")


@played
async def test_failing_probes_use_up_no_retries_either(world: World) -> None:
    """A transport that is known to be down doesn't burn retries."""
    buyer = await down(world, RETRY, longest_pause="PT30S")
    await world.until(900)
    assert len(world.wire.to(SELLER)) > 10
    assert [await buyer.state(f"{number}@buyer") for number in range(3)] == [State.READY] * 3


@played
async def test_when_the_pause_is_over_one_message_probes_and_the_next_pause_is_longer(
    world: World,
) -> None:
    buyer = await down(world)
    for number in range(3, 9):
        await buyer.send(f"{number}@buyer")
    await world.until(400)
    times = [round(one.at) for one in world.wire.to(SELLER)]
    assert times == [0, 0, 0, 30, 90, 210, 330]
    assert len(await buyer.journal("suspended")) == 1


@played
async def test_only_one_probes_however_long_it_takes(world: World) -> None:
    buyer = await down(world)
    other = await world.start(BUYER, beside=True)
    for number in range(3, 9):
        await (buyer, other)[number % 2].send(f"{number}@buyer")
    slow = Held(refused)
    world.wire.will(slow)
    await world.until(45)
    assert len(world.wire.to(SELLER)) == 4
    slow.release()


@pytest.mark.req("RM000-1.3.1.4-04")
@in_every_store
@played
async def test_when_a_probe_gets_through_all_that_waited_flows_at_once(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer = await down(world)
    for number in range(3, 40):
        await buyer.send(f"{number}@buyer")
    seller = await world.start(SELLER)
    del world.wire.usual[SELLER]
    await world.until(29.9)
    assert len(world.wire.to(SELLER)) == 3
    await world.until(32)
    assert len(await seller.inbox()) == 40
    assert await buyer.node.partners() == []
    [event] = await buyer.journal("resumed")
    assert (event.message_id, event.to_party) == (None, party(SELLER))
    assert await buyer.work() == {}


@in_every_store
@pytest.mark.parametrize("protocol", ["as4", "ebxml"])
@played
async def test_a_message_from_a_paused_partner_lets_the_backlog_go_at_once(
    world: World, kept_in: str, protocol: str
) -> None:
    world.kept_in = kept_in
    buyer = await down(world)
    if protocol == "ebxml":
        world.speak("answers", frm=SELLER, to=BUYER, version="1.0")
    else:
        answers(world)
    buyer = await world.start_again(BUYER)
    for number in range(3, 40):
        await buyer.send(f"{number}@buyer")
    # The third pause lasts two minutes.
    await world.until(95)
    [partner] = await buyer.node.partners()
    assert partner.until == BEGIN + timedelta(seconds=210)
    seller = await world.start(SELLER)
    del world.wire.usual[SELLER]
    await seller.send("answer@seller", "answers")
    await world.until(100)
    assert len(await seller.inbox()) == 40
    assert await buyer.node.partners() == []


@pytest.mark.parametrize("protocol", ["as4", "ebxml"])
@played
async def test_a_message_is_answered_as_taken_although_its_sign_of_life_cannot_be_stored(
    world: World, protocol: str
) -> None:
    """503 would say that it was not taken, and its sender would take it for lost."""
    buyer = await down(world)
    if protocol == "ebxml":
        world.speak("answers", frm=SELLER, to=BUYER, version="1.0")
    else:
        answers(world)
    buyer = await world.start_again(BUYER)
    await world.until(95)
    seller = await world.start(SELLER)
    busy = StoreBusy("The database is locked by another process.")
    with failing(buyer.node.context.store, busy, about="show_life") as failed:
        await seller.send("answer@seller", "answers")
        await world.until(96)
    assert failed
    assert await buyer.inbox() == ["answer@seller"]
    story = await seller.story("answer@seller")
    assert story[:2] == ["submitted", "sent"]
    assert story[2:] in (["receipt_received"], [])


@played
async def test_signs_of_life_end_a_pause_early_only_once(world: World) -> None:
    """A partner that sends and cannot be reached is not tried with each of its messages."""
    buyer = await down(world)
    answers(world)
    buyer = await world.start_again(BUYER)
    await buyer.send("3@buyer")
    seller = await world.start(SELLER)
    for number in range(40):
        await world.until(1 + number / 2)
        await seller.send(f"answer-{number}@seller", "answers")
    await world.until(25)
    tried = world.wire.times("", SELLER)[2:]
    assert tried[1] == pytest.approx(5, abs=1)
    assert len(tried) > 3
    assert all(later - sooner >= 5 for sooner, later in pairwise(tried))
    assert [one.gate.value for one in await buyer.node.partners()] == ["paused"]


@played
async def test_a_ping_to_a_paused_partner_that_is_back_is_answered(world: World) -> None:
    buyer = await down(world)
    await world.until(95)
    seller = await world.start(SELLER)
    del world.wire.usual[SELLER]
    found = await buyer.process.ask(buyer.node.ping(ORDERS, 8))
    assert found.answer == "Pong"
    await world.until(105)
    assert len(await seller.inbox()) == 3


@in_every_store
@played
async def test_what_probed_in_vain_is_not_sent_last_when_the_partner_is_back(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer = await down(world)
    for number in range(3, 20):
        await buyer.send(f"{number}@buyer")
    # Two more of them probe, in vain.
    await world.until(95)
    seller = await world.start(SELLER)
    del world.wire.usual[SELLER]
    await world.until(215)
    inbox = await seller.inbox()
    assert len(inbox) == 20
    assert {"3@buyer", "4@buyer"} <= set(inbox[:3])


@in_every_store
@played
async def test_a_pause_survives_a_restart(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    buyer = await down(world)
    await world.until(5)
    before = await buyer.node.partners()
    buyer = await world.start_again(BUYER)
    assert await buyer.node.partners() == before
    await buyer.send("3@buyer")
    await world.until(29)
    assert len(world.wire.to(SELLER)) == 3
    await world.until(32)
    assert len(world.wire.to(SELLER)) == 4


@played
async def test_an_operator_resumes_a_paused_partner(world: World) -> None:
    buyer = await down(world)
    await buyer.send("3@buyer")
    seller = await world.start(SELLER)
    del world.wire.usual[SELLER]
    await buyer.node.resume(party(SELLER))
    await world.until(12)
    assert len(await seller.inbox()) == 4
    assert len(await buyer.journal("resumed")) == 1
    with pytest.raises(Refused) as no:
        await buyer.node.resume(party(SELLER))
    assert no.value.status == 409


@played
async def test_what_one_process_learns_of_a_partner_holds_for_all(world: World) -> None:
    buyer = await down(world)
    other = await world.start(BUYER, beside=True)
    await other.send("3@buyer")
    await world.until(29)
    assert len(world.wire.to(SELLER)) == 3
    assert await other.node.partners() == await buyer.node.partners()


@played
async def test_a_prober_that_dies_is_replaced_by_another(world: World) -> None:
    buyer = await down(world)
    other = await world.start(BUYER, beside=True)
    buyer_probes = Held(refused)
    world.wire.will(buyer_probes)
    await world.until(31)
    [probing] = [one for one in world.wire.to(SELLER) if one.at > 29]
    assert probing
    (buyer if buyer.node.context.in_hand else other).kill()
    alive = other if buyer.process.alive is False else buyer
    seller = await world.start(SELLER)
    world.wire.usual.clear()
    await world.until(31 + 2 * 20)
    assert len(await seller.inbox()) == 3
    assert await alive.node.partners() == []


@played
async def test_a_message_that_was_on_its_way_all_along_shows_that_the_partner_is_there(
    world: World,
) -> None:
    world.agree(retry=FOR_EVER)
    world.configure(BUYER, send={"breaker": {"failures": 2, "pause": "PT5M"}})
    slow = Held()
    world.wire.will(slow, refused, refused)
    buyer, seller = await world.both()
    for number in range(3):
        await buyer.send(f"{number}@buyer")
    await world.until(1)
    assert len(await buyer.node.partners()) == 1
    slow.release()
    await world.until(15)
    assert len(await seller.inbox()) == 3
    assert await buyer.node.partners() == []


@played
async def test_without_a_breaker_nobody_is_paused(world: World) -> None:
    world.agree(retry=FOR_EVER)
    world.configure(BUYER, send={"breaker": {"failures": 0}})
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    for number in range(10):
        await buyer.send(f"{number}@buyer")
    await world.until(25)
    assert len(world.wire.to(SELLER)) == 30


@played
async def test_with_fail_fast_a_message_to_a_paused_partner_fails_without_being_tried(
    world: World,
) -> None:
    world.agree("hasty", retry=RETRY | {"fail_fast": True})
    buyer = await down(world)
    await buyer.send("hasty@buyer", "hasty")
    await world.until(1)
    assert await buyer.state("hasty@buyer") is State.FAILED
    assert not world.wire.to(SELLER, "hasty@buyer")
    [told] = await buyer.notices("hasty@buyer")
    assert told.severity == "Error"
    assert (await buyer.story("hasty@buyer")).count("send_failed") == 1


@played
async def test_a_large_message_alone_finds_out_that_a_partner_is_back(world: World) -> None:
    """All others were given up while it was paused: nothing but what is to be packaged waits."""
    world.agree()
    world.configure(BUYER, send={"breaker": {"failures": 1, "pause": "PT30S"}})
    world.wire.will(refused)
    buyer, seller = await world.both()
    await buyer.send("0@buyer")
    await world.until(1)
    assert await buyer.state("0@buyer") is State.FAILED
    assert len(await buyer.node.partners()) == 1
    await buyer.send("large@buyer", payload=LARGE)
    await world.until(100)
    assert await seller.inbox() == ["large@buyer"]


@pytest.mark.parametrize("left", [False, True], ids=["never left", "no answer"])
@played
async def test_time_to_live_ends_also_what_waits_for_a_paused_partner(
    world: World, left: bool
) -> None:
    world.agree(retry=FOR_EVER | {"time_to_live": "PT1M"})
    world.configure(
        BUYER, send={"breaker": {"failures": 1, "pause": "PT1H", "longest_pause": "PT1H"}}
    )
    world.wire.usual[SELLER] = lost if left else refused
    buyer = await world.start(BUYER)
    await buyer.send("0@buyer")
    await world.until(65)
    assert await buyer.state("0@buyer") is (State.IN_DOUBT if left else State.EXPIRED)
    assert len(await buyer.notices("0@buyer")) == 1


@played
async def test_time_to_live_ends_also_what_was_suspended(world: World) -> None:
    world.agree(retry=RETRY | {"then": "suspend", "time_to_live": "PT1M"})
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send("0@buyer")
    await world.until(35)
    assert await buyer.state("0@buyer") is State.SUSPENDED
    await world.until(65)
    assert await buyer.state("0@buyer") is State.EXPIRED


@played
async def test_a_message_whose_time_is_over_takes_no_probe_from_the_others(world: World) -> None:
    world.agree("mortal", retry=FOR_EVER | {"time_to_live": "PT20S"})
    world.agree(retry=FOR_EVER)
    breaker = {"failures": 1, "pause": "PT30S"}
    world.configure(BUYER, send={"breaker": breaker, "lease": "PT2M"})
    world.wire.will(refused)
    buyer, seller = await world.both()
    await buyer.send("old@buyer", "mortal")
    await world.until(1)
    await buyer.send("new@buyer")
    await world.until(35)
    assert await seller.inbox() == ["new@buyer"]


@played
async def test_a_day_of_darkness_loses_nothing(world: World) -> None:
    buyer = await down(world)
    await world.until(100)
    world.clock.ahead += timedelta(days=1)
    await world.until(110)
    for number in range(3, 60):
        await buyer.send(f"{number}@buyer")
    await world.until(200)
    world.clock.ahead += timedelta(days=1)
    seller = await world.start(SELLER)
    del world.wire.usual[SELLER]
    await world.until(205)
    assert len(await seller.inbox()) == 60
    assert not await buyer.journal("delivery_failed", "in_doubt", "expired")


@in_every_store
@played
async def test_persist_duration_ends_also_what_waits_for_a_paused_partner(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=FOR_EVER | {"persist_duration": "PT1M"})
    breaker = {"failures": 1, "pause": "PT1H", "longest_pause": "PT1H"}
    world.configure(BUYER, send={"breaker": breaker})
    world.wire.will(lost)
    buyer, _ = await world.both()
    await buyer.send("0@buyer")
    await world.until(10)
    await buyer.send("1@buyer")
    await world.until(65)
    assert await buyer.state("0@buyer") is State.IN_DOUBT
    assert await buyer.state("1@buyer") is State.READY
    assert len(world.wire.to(SELLER)) == 1


@played
async def test_an_operator_suspends_a_partner_and_nothing_is_sent_until_it_is_resumed(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    world.agree(FREIGHT, to=CARRIER, retry=RETRY)
    buyer, seller = await world.both()
    carrier = await world.start(CARRIER)
    await buyer.node.suspend(party(SELLER), "they move house")
    await buyer.send("0@buyer")
    await buyer.send("large@buyer", payload=LARGE)
    await buyer.send("1@buyer", FREIGHT)
    await world.until(100)
    assert await carrier.inbox() == ["1@buyer"]
    assert not world.wire.to(SELLER)
    buyer = await world.start_again(BUYER)
    await world.until(200)
    assert not world.wire.to(SELLER)
    [partner] = await buyer.node.partners()
    assert partner.detail == "they move house"
    await buyer.node.resume(party(SELLER))
    await world.until(201)
    assert set(await seller.inbox()) == {"0@buyer", "large@buyer"}


@played
async def test_a_failing_probe_is_still_an_attempt_in_the_journal(world: World) -> None:
    buyer = await down(world, RETRY, longest_pause="PT30S")
    await world.until(200)
    numbers: dict[str, list[int]] = {}
    for event in await buyer.journal("send_failed"):
        numbers.setdefault(event.message_id or "", []).append(event.attempt or 0)
    assert sum(map(len, numbers.values())) == len(world.wire.to(SELLER))
    for message_id, found in numbers.items():
        assert found == list(range(1, len(found) + 1))
        assert (await buyer.message(message_id)).attempts == len(found)


@played
async def test_a_partner_who_hangs_does_not_hold_up_the_others(world: World) -> None:
    """It takes connections and answers nothing: all places on the wire are its own."""
    world.agree(retry=RETRY)
    world.agree(FREIGHT, to=CARRIER, retry=RETRY)
    world.configure(BUYER, send={"parallel": 4})
    world.wire.usual[SELLER] = Held(lost)
    buyer = await world.start(BUYER)
    carrier = await world.start(CARRIER)
    for number in range(100):
        await buyer.send(f"{number}@buyer")
    await buyer.send("c@buyer", FREIGHT)
    await world.until(10)
    assert await carrier.inbox() == ["c@buyer"]


@played
async def test_the_log_tells_trouble_as_trouble_and_names_the_partner(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postroad")
    buyer = await down(world)
    await world.until(31)
    world.wire.usual.pop(SELLER)
    await world.start(SELLER)
    await world.until(100)
    assert await buyer.state("0@buyer") is State.ACKNOWLEDGED
    told = [(one.levelname, one.message, getattr(one, "partner", None)) for one in caplog.records]
    assert told.count(("WARNING", "not sent yet", None)) >= 3
    of_seller = [one[:2] for one in told if one[2] == party(SELLER)]
    assert of_seller == [("WARNING", "paused"), ("INFO", "served again")]
    assert ("INFO", "acknowledged", None) in told
