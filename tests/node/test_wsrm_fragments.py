"""Fragments in sequences of WS-ReliableMessaging: each is a message of its own there."""

from typing import Any

import pytest

from postroad.store.interface import Transaction
from postroad.store.records import State
from tests.node import sequences
from tests.node.bundled import UPDATES, bundling, in_every_store, submit, unit
from tests.node.joining import payloads
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    Posted,
    World,
    address,
    lost,
    passed,
    played,
    refused,
    reply_lost,
)
from tests.node.sequences import headers_of, kind_of, kinds, numbers, unless
from tests.node.splitting import BIG, PAYLOAD, fragments, splitting
from tests.node.test_wsrm_bundles import cut_off, dying, signed_or_not, states


def agree(world: World, name: str = ORDERS, **more: Any) -> None:
    """Orders that are split, and whose fragments go in a sequence; all answers call back."""
    sequences.agree(world, name, pattern="Callback", **more)
    for at in (BUYER, SELLER):
        leg = world._pmodes[at][-1]["legs"][0]
        leg["splitting"] = splitting()
        report = {"as_response": False, "receiver_errors_to": address(BUYER)}
        leg["error_handling"]["report"] = report
        receipt = leg["security"]["send_receipt"]
        receipt["reply_pattern"], receipt["reply_to"] = "callback", address(BUYER)


def posted_fragments(world: World) -> list[Posted]:
    return [one for one in world.wire.to(SELLER) if b"MessageFragment" in one.body]


def is_fragment(posted: Posted) -> bool:
    return b"MessageFragment" in posted.body


async def arrived(world: World, state: State) -> None:
    """The message is delivered once, and all fragments were acknowledged."""
    buyer, seller = world.stations[BUYER], world.stations[SELLER]
    assert await buyer.state(BIG) is state
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await seller.inbox() == [BIG]
    assert await payloads(seller, BIG) == [PAYLOAD]
    assert set(await buyer.work()) <= {"sequence_end"}
    assert await seller.work() == {}


@pytest.mark.req("P2-4.4.2-05")
@in_every_store
@signed_or_not
@pytest.mark.parametrize("receipts", [False, True])
@played
async def test_each_fragment_is_a_message_of_the_sequence(
    world: World, kept_in: str, signed: bool, receipts: bool
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed, receipts=receipts)
    buyer, seller = await world.both()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(5)
    # Fragments are acknowledged; that the message was joined is told by its receipt alone.
    await arrived(world, State.ACKNOWLEDGED if receipts else State.SENT)
    assert len(posted_fragments(world)) == 4
    assert kinds(world)[0] == "CreateSequence"
    assert sorted(number for _, number in numbers(world)) == [1, 2, 3, 4]
    assert len({name for name, _ in numbers(world)}) == 1
    assert kinds(world, BUYER).count("ack") == 4
    for one in await fragments(buyer):
        story = await buyer.story(one.message_id)
        assert [event for event in story if event != "receipt_received"] == ["sent", "ack_received"]
        assert "acked" in [event.event for event in await seller.events(one.message_id)]


@pytest.mark.req("P2-4.4.2-05")
@in_every_store
@signed_or_not
@pytest.mark.parametrize("trouble", [lost, reply_lost, refused])
@played
async def test_a_fragment_is_sent_again_as_it_was_under_its_number(
    world: World, kept_in: str, signed: bool, trouble: Any
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed)
    buyer, seller = await world.both()
    world.wire.usual[BUYER] = lost
    world.wire.will(passed, passed, trouble)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(8)
    assert {one.state for one in await fragments(buyer)} == {State.WAITING}
    world.wire.usual.clear()
    await world.until(90)
    await arrived(world, State.SENT)
    by_number: dict[int, set[bytes]] = {}
    for one in posted_fragments(world):
        headers = headers_of(one)
        assert headers is not None
        assert headers.sequence is not None
        by_number.setdefault(headers.sequence.message_number, set()).add(one.body)
    assert {number: len(copies) for number, copies in by_number.items()} == dict.fromkeys(
        range(1, 5), 1
    )
    assert len(posted_fragments(world)) > 4
    stories = [await seller.story(one.message_id) for one in await fragments(buyer)]
    assert any("duplicate" in one for one in stories)


@played
async def test_what_fits_into_a_fragment_has_a_number_too(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send("small@buyer")
    await world.until(3)
    assert posted_fragments(world) == []
    assert [number for _, number in numbers(world)] == [1]
    assert await buyer.state("small@buyer") is State.ACKNOWLEDGED
    assert await seller.inbox() == ["small@buyer"]


@played
async def test_what_follows_in_the_sequence_does_not_wait_for_the_fragments(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = unless(is_fragment, lost)
    await buyer.send(BIG, payload=PAYLOAD)
    await buyer.send("small@buyer")
    await world.until(3)
    assert await seller.inbox() == ["small@buyer"]
    assert await buyer.state("small@buyer") is State.ACKNOWLEDGED


@pytest.mark.req("P2-4.4.2-05")
@in_every_store
@played
async def test_a_partner_who_forgot_the_sequence_gets_the_fragments_in_another_one(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world, signed=True)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = unless(is_fragment, lost)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    [identifier] = {name for name, _ in numbers(world)}

    def forget(tx: Transaction) -> None:
        tx.set_state(f"~wsrm:destination:{identifier}", None, world.clock())

    await seller.node.context.store.run(forget)
    world.wire.usual.clear()
    await world.until(90)
    await arrived(world, State.SENT)
    assert kinds(world).count("CreateSequence") == 2
    last = numbers(world)[-1][0]
    assert {number for name, number in numbers(world) if name == last} == {1, 2, 3, 4}


@played
async def test_a_fragment_that_is_refused_is_not_acknowledged_and_fails_the_message(
    world: World,
) -> None:
    agree(world)
    world.configure(SELLER, joining={"quota": "50 kB"})
    buyer, seller = await world.both()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(60)
    assert await buyer.state(BIG) in (State.FAILED, State.IN_DOUBT)
    assert await seller.inbox() == []
    assert kinds(world, BUYER).count("ack") < 4


@pytest.mark.req("P2-4.4.2-05")
@in_every_store
@played
async def test_a_bundle_goes_in_fragments_of_a_sequence(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world, UPDATES, signed=True, receipts=True)
    for at in (BUYER, SELLER):
        world._pmodes[at][-1]["legs"][0]["bundling"] = bundling()
    buyer, seller = await world.both()
    names = ("a@buyer", "b@buyer")
    await submit(buyer, *[unit(one, content=PAYLOAD) for one in names])
    await world.until(20)
    assert await states(buyer, *names) == {State.ACKNOWLEDGED}
    assert await seller.inbox() == list(names)
    count = len(posted_fragments(world))
    assert count > 4
    assert sorted(number for _, number in numbers(world)) == list(range(1, count + 1))
    assert set(await buyer.work()) <= {"sequence_end"}


@pytest.mark.req("P2-4.4.2-05")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("step", range(1, 25))
@pytest.mark.parametrize("who", [BUYER, SELLER])
@played
async def test_who_dies_at_any_step_loses_and_doubles_nothing(
    world: World, who: str, step: int, kept: bool
) -> None:
    agree(world, receipts=True)
    world.configure(BUYER, send={"parallel": 2})
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = world.wire.usual[BUYER] = cut_off
    await buyer.send(BIG, payload=PAYLOAD)
    with dying(world.stations[who], step, kept=kept):
        await world.until(10)
    await world.start_again(who)
    await world.until(120)
    await arrived(world, State.ACKNOWLEDGED)
    assert {number for _, number in numbers(world)} >= {1, 2, 3, 4}
    assert kind_of(world.wire.to(SELLER)[0]) == "CreateSequence"
