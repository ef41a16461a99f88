"""A party with several addresses: each has a breaker of its own, the party's view is on top."""

import dataclasses
from typing import Any, Final

import pytest
from msgspec.structs import replace

from postroad.reliability.breaker import Gate, Partner
from postroad.store.interface import Transaction
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    Held,
    Posted,
    Station,
    World,
    answers,
    party,
    passed,
    played,
    refused,
)

BILLS: Final = "bills"
DEAD: Final = "http://dead.example/msh"
DOWN: Final = "http://down.example/msh"
AGAIN: Final[dict[str, Any]] = {"max_retries": "unlimited", "period": "PT10S"}


async def to_seller(world: World, posted: Posted) -> Reply:
    """The seller listens there, too."""
    return await passed(world, dataclasses.replace(posted, receiver=SELLER))


async def half_dead(world: World, first: str | None = None) -> Station:
    """Orders go to an address that is paused by now, bills to one that answers.

    With `first` a message of that P-Mode is sent before.
    """
    world.agree(ORDERS, retry=AGAIN, url=DEAD)
    world.agree(BILLS, retry=AGAIN)
    breaker = {"failures": 3, "pause": "PT30S", "longest_pause": "PT10M"}
    world.configure(BUYER, send={"breaker": breaker})
    world.wire.usual["dead"] = refused
    buyer, _ = await world.both()
    if first is not None:
        await buyer.send("first@buyer", first)
        await world.wait(1)
    for number in range(5):
        await buyer.send(f"o{number}@buyer", ORDERS)
    await world.wait(1)
    return buyer


async def two_dead(world: World, first: str | None = None) -> Station:
    """The same, and another address that is paused."""
    world.agree("more", retry=AGAIN, url=DOWN)
    world.wire.usual["down"] = refused
    buyer = await half_dead(world, first)
    for number in range(3):
        await buyer.send(f"m{number}@buyer", "more")
    await world.until(10)
    assert await standing(buyer) == {DEAD: "paused", DOWN: "paused"}
    return buyer


def orders(world: World) -> int:
    """How often it was tried to send an order."""
    return len(world.wire.to("dead"))


async def standing(buyer: Station) -> dict[str, str]:
    [found] = await buyer.node.partners()
    assert found.name == party(SELLER)
    return {one.name: one.gate.value for one in found.addresses}


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_one_dead_address_of_a_party_does_not_hold_up_the_other(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer = await half_dead(world)
    assert orders(world) == 3
    assert await standing(buyer) == {DEAD: "paused"}
    for number in range(5):
        await buyer.send(f"b{number}@buyer", BILLS)
    await world.wait(1)
    for number in range(5):
        assert await buyer.state(f"b{number}@buyer") is State.ACKNOWLEDGED
    # That the other address answers says nothing about this one.
    assert await standing(buyer) == {DEAD: "paused"}
    assert orders(world) == 3
    [event] = await buyer.journal("suspended")
    assert (event.to_party, event.peer) == (party(SELLER), DEAD)
    world.wire.usual["dead"] = to_seller
    await world.until(60)
    assert await buyer.node.partners() == []
    assert await buyer.work() == {}
    [event] = await buyer.journal("resumed")
    assert (event.to_party, event.peer) == (party(SELLER), DEAD)


@played
async def test_an_operator_suspends_and_resumes_a_party_with_all_its_addresses(
    world: World,
) -> None:
    buyer = await half_dead(world)
    suspended = await buyer.node.suspend(party(SELLER), "they move house")
    assert (suspended.gate, suspended.detail) == (Gate.SUSPENDED, "they move house")
    assert [one.name for one in suspended.addresses] == [DEAD]
    await buyer.send("b@buyer", BILLS)
    await world.until(120)
    assert orders(world) == 3
    assert world.wire.to(SELLER) == []
    world.wire.usual["dead"] = to_seller
    await buyer.node.resume(party(SELLER))
    assert await buyer.node.partners() == []
    await world.wait(15)
    assert await buyer.work() == {}


@played
async def test_a_message_from_a_party_lets_each_of_its_addresses_be_tried(world: World) -> None:
    answers(world)
    buyer = await two_dead(world)
    world.wire.usual["dead"] = to_seller
    await world.stations[SELLER].send("a@seller", "answers")
    await world.wait(2)
    assert await standing(buyer) == {DOWN: "paused"}
    assert len(world.wire.to("down")) == 4


@played
async def test_a_ping_tries_only_the_address_of_its_p_mode(world: World) -> None:
    buyer = await two_dead(world)
    world.wire.usual["dead"] = to_seller
    pong = await buyer.process.ask(buyer.node.ping(ORDERS, 5))
    assert pong.answer == "Pong"
    await world.wait(5)
    assert await standing(buyer) == {DOWN: "paused"}
    assert len(world.wire.to("down")) == 3


@played
async def test_a_late_receipt_tries_the_address_that_its_message_was_sent_to(world: World) -> None:
    world.agree("late", retry=AGAIN, url=DEAD, receipt="callback")
    world.wire.will(to_seller, at="dead")
    held = world.wire.usual[BUYER] = Held()
    buyer = await two_dead(world, first="late")
    assert await buyer.state("first@buyer") is State.WAITING
    held.release()
    world.wire.usual["dead"] = to_seller
    await world.wait(5)
    assert await buyer.state("first@buyer") is State.ACKNOWLEDGED
    assert await standing(buyer) == {DOWN: "paused"}
    assert len(world.wire.to("down")) == 3


@played
async def test_what_waits_for_an_address_goes_to_the_one_that_its_p_mode_has_now(
    world: World,
) -> None:
    buyer = await half_dead(world)
    await world.agree_only(BUYER, ORDERS, retry=AGAIN)
    await world.until(45)
    assert orders(world) == 3
    assert await buyer.work() == {}
    for number in range(5):
        assert await buyer.state(f"o{number}@buyer") is State.ACKNOWLEDGED
    assert await buyer.node.partners() == []
    [event] = await buyer.journal("resumed")
    assert (event.to_party, event.peer) == (party(SELLER), DEAD)


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_work_and_pauses_of_an_older_version_go_on(world: World, kept_in: str) -> None:
    """There the name of a breaker was that of the party."""
    world.kept_in = kept_in
    buyer = await half_dead(world)

    def step(tx: Transaction) -> None:
        for found in tx.partners():
            tx.set_partner(Partner(found.name))
            tx.set_partner(replace(found, name=party(SELLER)))
        for number in range(1, 6):
            work = tx.work(number)
            if work is not None:
                tx.turn_work(number, work.kind, work.due_at, party(SELLER))

    await buyer.node.context.store.run(step)
    await buyer.send("b@buyer", BILLS)
    await world.until(20)
    [found] = await buyer.node.partners()
    assert (found.name, found.gate, found.addresses) == (party(SELLER), Gate.PAUSED, ())
    world.wire.usual["dead"] = to_seller
    await world.until(60)
    assert await buyer.node.partners() == []
    assert await buyer.work() == {}


@played
async def test_the_log_names_party_and_address(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await half_dead(world)
    told = [one for one in caplog.records if one.getMessage() == "paused"]
    assert [(one.partner, one.peer) for one in told] == [(party(SELLER), DEAD)]  # type: ignore[attr-defined]
