"""Bundles in sequences of WS-ReliableMessaging: one envelope, one number, all its units."""

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import pytest

from postroad.msh.answers import error, write_answer
from postroad.node.service import Refused
from postroad.store.interface import Transaction
from postroad.store.records import State
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap import SoapVersion
from tests.node import sequences
from tests.node.bundled import NAMES, UPDATES, bundling, in_every_store, submit, unit, units
from tests.node.reliable import (
    BUYER,
    SELLER,
    SOAP,
    Answering,
    Held,
    Posted,
    Station,
    World,
    address,
    lost,
    passed,
    played,
    refused,
    reply_lost,
    status,
)
from tests.node.sequences import headers_of, kind_of, kinds, numbers, unless
from tests.sim.loop import Died

MORE: Final = ("d@buyer", "e@buyer", "f@buyer")
ORDERED: Final = {"ordering": {"policy": "documentorder"}}
signed_or_not = pytest.mark.parametrize("signed", [False, True])


def agree(
    world: World, name: str = UPDATES, *, terms: dict[str, Any] | None = None, **more: Any
) -> None:
    """Updates that are bundled, and go in a sequence; errors about them call back."""
    sequences.agree(world, name, **more)
    for at in (BUYER, SELLER):
        leg = world._pmodes[at][-1]["legs"][0]
        leg["bundling"] = bundling(**({"compatibility": {"pmode_list": [UPDATES]}} | (terms or {})))
        report = {"as_response": False, "receiver_errors_to": address(BUYER)}
        leg["error_handling"]["report"] = report


async def send(station: Station, *names: str, pmode: str = UPDATES) -> None:
    for name in names:
        await station.send(name, pmode)


async def states(station: Station, *names: str) -> set[State]:
    return {await station.state(one) for one in names}


def bundles(world: World) -> list[Posted]:
    """What was posted to the seller and is no message of the protocol, copies too."""
    return [one for one in world.wire.to(SELLER) if kind_of(one) == "message"]


def is_message(posted: Posted) -> bool:
    return kind_of(posted) == "message"


async def forget_sequences(world: World, seller: Station) -> None:
    """Let the seller lose all sequences that were used so far."""

    def step(tx: Transaction) -> None:
        for identifier, _ in numbers(world):
            tx.set_state(f"~wsrm:destination:{identifier}", None, world.clock())

    await seller.node.context.store.run(step)


async def report(world: World, code: str, severity: Severity, *refs: str) -> None:
    """Post an error of the seller about each of these messages to the buyer."""
    for ref in refs:
        problem = EbmsError(code, "not today", severity=severity)
        signal = error([problem], signal_id=f"error-{ref}", ref=ref, now=world.clock())
        answer = write_answer(signal, SoapVersion.SOAP_12, None, world.clock())
        await world.wire.post(SELLER, BUYER, SOAP, answer.envelope, None)


def late(wanted: Callable[[Posted], bool]) -> Answering:
    """Passed on; what is wanted takes its time, there and back."""

    async def answer(world: World, posted: Posted) -> Any:
        slow = wanted(posted)
        await asyncio.sleep(2 * slow)
        reply = await passed(world, posted)
        await asyncio.sleep(2 * slow)
        return reply

    return answer


@pytest.mark.req("P2-3.2.2-08", "P2-3.2.2-01", "P2-3.2.2-11")
@in_every_store
@signed_or_not
@played
async def test_a_bundle_is_one_message_of_one_sequence(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed)
    buyer, seller = await world.both()
    await send(buyer, *NAMES)
    await world.until(6)
    await send(buyer, *MORE)
    await world.until(13)
    assert kinds(world) == ["CreateSequence", "message", "message"]
    assert [units(one) for one in bundles(world)] == [list(NAMES), list(MORE)]
    [(first, one), (second, two)] = numbers(world)
    assert (first == second, one, two) == (True, 1, 2)
    assert await states(buyer, *NAMES, *MORE) == {State.ACKNOWLEDGED}
    assert await seller.inbox() == [*NAMES, *MORE]
    for name in (*NAMES, *MORE):
        assert await buyer.story(name) == ["submitted", "bundled", "sent", "ack_received"]
        assert await seller.story(name) == ["received", "delivered", "acked"]
    # All units are signed under the number that was given to the whole: there is one signature.
    assert [one.body.count(b"<ds:Signature ") for one in bundles(world)] == [signed] * 2
    assert set(await buyer.work()) == {"sequence_end"}


@pytest.mark.req("P2-3.2.2-08")
@in_every_store
@pytest.mark.parametrize("trouble", [lost, reply_lost, refused])
@signed_or_not
@played
async def test_a_bundle_is_sent_again_as_it_was_under_its_number(
    world: World, kept_in: str, trouble: Any, signed: bool
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed)
    buyer, seller = await world.both()
    await send(buyer, *NAMES)
    world.wire.usual[SELLER] = unless(is_message, trouble)
    await world.until(6)
    world.wire.usual.clear()
    await world.until(40)
    copies = bundles(world)
    assert len(copies) == 2
    assert len({one.body for one in copies}) == 1
    assert await states(buyer, *NAMES) == {State.ACKNOWLEDGED}
    assert await seller.inbox() == list(NAMES)
    again = "duplicate" in await seller.story(NAMES[1])
    assert again is (trouble is reply_lost)


@pytest.mark.req("P2-3.2.2-01")
@played
async def test_the_acknowledgement_of_a_later_bundle_settles_all_units_of_an_earlier_one(
    world: World,
) -> None:
    agree(world)
    buyer, _ = await world.both()
    world.wire.will(passed, reply_lost)
    await send(buyer, *NAMES)
    await world.until(6)
    assert await states(buyer, *NAMES) == {State.WAITING}
    await submit(buyer, *[unit(one) for one in MORE])
    await world.until(7)
    assert await states(buyer, *NAMES, *MORE) == {State.ACKNOWLEDGED}
    await world.until(60)
    assert len(bundles(world)) == 2
    assert set(await buyer.work()) == {"sequence_end"}


@in_every_store
@signed_or_not
@played
async def test_acknowledgements_of_bundles_call_back(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree(world, pattern="Callback", signed=signed)
    buyer, seller = await world.both()
    await send(buyer, *NAMES)
    await world.until(7)
    assert kinds(world, BUYER) == ["ack"]
    assert await states(buyer, *NAMES) == {State.ACKNOWLEDGED}
    assert await seller.inbox() == list(NAMES)
    assert len(bundles(world)) == 1
    assert set(await buyer.work()) == {"sequence_end"}


@played
async def test_receipts_of_units_call_back_beside_the_acknowledgement(world: World) -> None:
    agree(world, receipts=True, signed=True)
    buyer, _ = await world.both()
    await send(buyer, *NAMES)
    await world.until(8)
    assert await states(buyer, *NAMES) == {State.ACKNOWLEDGED}
    for name in NAMES:
        assert "receipt_received" in await buyer.story(name)


@pytest.mark.req("P2-3.2.2-08", "P2-3.2.2-09")
@in_every_store
@played
async def test_order_follows_the_numbers_of_bundles_and_then_their_units(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world, in_order=True, terms=ORDERED)
    buyer, seller = await world.both()
    await send(buyer, "0@buyer")
    await world.until(6)
    world.wire.will(lost)
    await send(buyer, *NAMES)
    await world.until(12)
    await send(buyer, *MORE)
    await world.until(15)
    # The second bundle is lost; units of the third wait for it, and are acknowledged.
    await buyer.process.ask(buyer.node.submit_bundle([unit("g@buyer"), unit("h@buyer")]))
    held = (*MORE, "g@buyer", "h@buyer")
    await world.until(15.5)
    assert await seller.inbox() == ["0@buyer"]
    assert {await seller.state(one) for one in ("g@buyer", "h@buyer")} == {State.HELD}
    await world.until(60)
    assert await seller.inbox() == ["0@buyer", *NAMES, *held]
    assert await states(buyer, *NAMES, *held) == {State.ACKNOWLEDGED}
    story = ["received", "out_of_order", "held", "acked", "delivered"]
    assert await seller.story("g@buyer") == story


@pytest.mark.req("P2-3.2.2-09")
@played
async def test_units_of_a_bundle_that_is_ahead_wait_all_and_are_told_in_their_order(
    world: World,
) -> None:
    agree(world, in_order=True, terms={"ordering": {"policy": "timestamp"}})
    world.configure(SELLER, webhook={"url": "http://application.example/"})
    world.wire.usual["application"] = status(204)
    buyer, seller = await world.both()
    await send(buyer, "0@buyer")
    await world.until(6)
    world.wire.will(lost)
    await submit(buyer, unit("a@buyer"), unit("b@buyer"))
    await submit(buyer, unit("c@buyer"), unit("d@buyer"))
    await world.until(8)
    assert {await seller.state(one) for one in ("c@buyer", "d@buyer")} == {State.HELD}
    seller = await world.start_again(SELLER)
    await world.until(60)
    told = [one.told["message_id"] for one in world.wire.to("application")]
    assert told == ["0@buyer", "a@buyer", "b@buyer", "c@buyer", "d@buyer"]
    assert await seller.inbox() == told


@played
async def test_a_unit_alone_has_a_number_too(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await send(buyer, NAMES[0])
    await world.until(6)
    assert numbers(world)[0][1] == 1
    assert await buyer.story(NAMES[0]) == ["submitted", "sent", "ack_received"]
    assert await seller.inbox() == [NAMES[0]]


@pytest.mark.req("P2-3.2.2-01")
@in_every_store
@pytest.mark.parametrize("pattern", ["Response", "Callback"])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("last", ["ack", "error"])
@played
async def test_a_unit_that_is_refused_has_failed_though_its_envelope_is_acknowledged(
    world: World, kept_in: str, pattern: str, bad: int, last: str
) -> None:
    world.kept_in = kept_in
    both = {"compatibility": {"pmode_list": [UPDATES, "small"]}}
    agree(world, terms=both, pattern=pattern)
    agree(world, "small", terms=both, pattern=pattern)
    profile = {"max_size": "4 B"}
    world._pmodes[SELLER][-1]["legs"][0]["business_info"]["payload_profile"] = profile
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = late(lambda one: last == "ack" and is_message(one))
    world.wire.usual[BUYER] = late(lambda one: (kind_of(one) == "ack") is (last == "ack"))
    names, pmodes = ("a@buyer", "b@buyer"), [UPDATES, UPDATES]
    pmodes[bad] = "small"
    given = [unit(name, pmode, b"more than 4") for name, pmode in zip(names, pmodes, strict=True)]
    await submit(buyer, *given)
    await world.until(30)
    good = names[1 - bad]
    assert await buyer.state(good) is State.ACKNOWLEDGED
    assert await buyer.state(names[bad]) is State.FAILED
    assert await seller.inbox() == [good]
    assert await seller.state(names[bad]) is State.REJECTED
    [notice] = await buyer.notices(names[bad])
    assert notice.state is State.FAILED
    assert len(bundles(world)) == 1
    assert await seller.work() == {}
    # The sequence goes on.
    await buyer.send("next@buyer", pmodes[0], b"1")
    await world.until(40)
    assert await buyer.state("next@buyer") is State.ACKNOWLEDGED
    assert [number for _, number in numbers(world)] == [1, 2]


@played
async def test_a_bundle_of_which_no_unit_is_taken_keeps_its_number_free(world: World) -> None:
    agree(world, in_order=True, terms=ORDERED)
    profile = {"max_size": "4 B"}
    world._pmodes[SELLER][-1]["legs"][0]["business_info"]["payload_profile"] = profile
    buyer, seller = await world.both()
    await submit(buyer, unit("a@buyer", content=b"too much"), unit("b@buyer", content=b"too much"))
    await world.until(30)
    assert {await buyer.state(one) for one in NAMES[:2]} <= {State.FAILED, State.IN_DOUBT}
    await submit(buyer, unit("c@buyer"), unit("d@buyer"))
    await world.until(60)
    assert await seller.inbox() == ["c@buyer", "d@buyer"]
    assert await states(buyer, "c@buyer", "d@buyer") == {State.ACKNOWLEDGED}


@in_every_store
@played
async def test_an_old_error_about_a_bundle_that_was_acknowledged_meanwhile_leaves_doubt(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    business = world._pmodes[SELLER][-1]["legs"][0].setdefault("business_info", {})
    business["payload_profile"] = {"max_size": "4 B"}
    buyer, seller = await world.both()
    delayed_error = Held()
    world.wire.will(delayed_error, at=BUYER)
    names = NAMES[:2]
    await submit(buyer, *[unit(name, content=b"more than 4") for name in names])
    await world.until(3)
    assert await seller.inbox() == []
    del business["payload_profile"]
    world._write(SELLER)
    assert (await seller.node.reload()).ok
    await world.until(25)
    assert len(bundles(world)) == 2
    assert await seller.inbox() == list(names)
    assert await states(buyer, *names) == {State.ACKNOWLEDGED}
    delayed_error.release()
    await world.until(60)
    for name in names:
        assert "error_received" in await buyer.story(name)
        [notice] = await buyer.notices(name)
        assert (notice.state, notice.severity) == (State.IN_DOUBT, "Warning")
    assert await states(buyer, *names) == {State.IN_DOUBT}


@pytest.mark.req("P2-3.2.2-08")
@in_every_store
@signed_or_not
@played
async def test_a_partner_who_forgot_the_sequence_gets_the_bundle_in_another_one(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree(world, in_order=True, terms=ORDERED, signed=signed)
    buyer, seller = await world.both()
    await send(buyer, "0@buyer")
    await world.until(6)

    await forget_sequences(world, seller)
    await submit(buyer, *[unit(one) for one in NAMES])
    await submit(buyer, *[unit(one) for one in MORE])
    await world.until(60)
    assert await states(buyer, *NAMES, *MORE) == {State.ACKNOWLEDGED}
    assert await seller.inbox() == ["0@buyer", *NAMES, *MORE]
    assert kinds(world).count("CreateSequence") == 2
    last = numbers(world)[-1][0]
    by_number = {
        headers.sequence.message_number: units(one)
        for one in bundles(world)
        if (headers := headers_of(one)) is not None
        and headers.sequence is not None
        and headers.sequence.identifier == last
    }
    assert by_number == {1: list(NAMES), 2: list(MORE)}


@in_every_store
@pytest.mark.parametrize(
    ("heard_before", "late_state"),
    [
        ("UnknownSequence", State.SETTLED),
        ("later", State.SETTLED),
        ("warning", State.SETTLED),
        ("refusal", State.IN_DOUBT),
    ],
)
@played
async def test_a_late_acknowledgement_settles_units_unless_they_were_refused(
    world: World, kept_in: str, heard_before: str, late_state: State
) -> None:
    world.kept_in = kept_in
    agree(world, pattern="Callback")
    buyer, seller = await world.both()
    await send(buyer, "0@buyer")
    await world.until(7)
    assert await buyer.state("0@buyer") is State.ACKNOWLEDGED
    if heard_before == "UnknownSequence":
        await forget_sequences(world, seller)
    acknowledgements = Held()
    world.wire.usual[BUYER] = unless(lambda one: kind_of(one) == "ack", acknowledgements)
    await submit(buyer, *[unit(one) for one in NAMES])
    await world.until(9)
    if heard_before == "later":
        await report(world, "EBMS:0202", Severity.FAILURE, *NAMES)
    elif heard_before == "warning":
        await report(world, "EBMS:0004", Severity.WARNING, *NAMES)
    await world.until(150)
    if heard_before == "refusal":
        await report(world, "EBMS:0004", Severity.FAILURE, *NAMES)
    assert await states(buyer, *NAMES) == {State.IN_DOUBT}
    assert await seller.inbox() == ["0@buyer", *NAMES]
    for name in NAMES:
        assert "error_received" in await buyer.story(name)
    acknowledgements.release()
    await world.until(200)
    assert await states(buyer, *NAMES) == {late_state}


@played
async def test_a_bundle_that_is_given_up_holds_nobody_up(world: World) -> None:
    agree(world, in_order=True, terms=ORDERED)
    buyer, seller = await world.both()
    await submit(buyer, unit("0@buyer"), unit("1@buyer"))
    await world.until(1)
    world.wire.usual[SELLER] = unless(lambda one: b"a@buyer" in one.body, lost)
    await submit(buyer, *[unit(one) for one in NAMES])
    await submit(buyer, *[unit(one) for one in MORE])
    await world.until(60)
    assert await states(buyer, *NAMES) == {State.IN_DOUBT}
    assert await seller.inbox() == ["0@buyer", "1@buyer", *MORE]
    world.wire.usual.clear()
    await buyer.process.ask(buyer.node.resend(NAMES[1]))
    await world.until(120)
    assert sorted(await seller.inbox()) == sorted(["0@buyer", "1@buyer", *NAMES, *MORE])
    assert await buyer.state(NAMES[1]) in (State.ACKNOWLEDGED, State.SETTLED)


@played
async def test_nobody_who_makes_a_sequence_fails_all_units_in_time(world: World) -> None:
    agree(world)
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    await send(buyer, *NAMES)
    await world.until(90)
    assert await states(buyer, *NAMES) == {State.FAILED}
    assert await buyer.work() == {}


@pytest.mark.req("P2-3.6.3-04")
@played
async def test_units_that_keep_their_order_go_in_the_sequence_of_their_own_pmode(
    world: World,
) -> None:
    both = {"compatibility": {"pmode_list": [UPDATES, "others"]}} | ORDERED
    agree(world, terms=both, in_order=True)
    agree(world, "others", terms=both, in_order=True)
    buyer, seller = await world.both()
    for name, pmode in zip((*NAMES, *MORE), (UPDATES, "others") * 3, strict=True):
        await buyer.send(name, pmode)
    await world.until(7)
    assert sorted(units(one) for one in bundles(world)) == [
        ["a@buyer", "c@buyer", "e@buyer"],
        ["b@buyer", "d@buyer", "f@buyer"],
    ]
    assert len({name for name, _ in numbers(world)}) == 2
    assert len(await seller.inbox()) == 6
    with pytest.raises(Refused) as told:
        await submit(buyer, unit("x@buyer", UPDATES), unit("y@buyer", "others"))
    assert told.value.code == "EBMS:0030"


@played
async def test_units_without_order_go_in_the_sequence_of_the_primary(world: World) -> None:
    both = {"compatibility": {"pmode_list": [UPDATES, "others"]}}
    agree(world, terms=both)
    agree(world, "others", terms=both)
    buyer, seller = await world.both()
    await submit(buyer, unit("a@buyer", UPDATES), unit("b@buyer", "others"))
    await world.until(2)
    assert [units(one) for one in bundles(world)] == [["a@buyer", "b@buyer"]]
    assert await states(buyer, "a@buyer", "b@buyer") == {State.ACKNOWLEDGED}
    assert await seller.inbox() == ["a@buyer", "b@buyer"]


@contextmanager
def dying(station: Station, step: int, *, kept: bool) -> Any:
    """The node is killed at one of the steps of its store: before it is kept, or right after."""
    store, count = station.node.context.store, 0
    run = store.run

    async def counted(given: Callable[[Transaction], Any]) -> Any:
        nonlocal count
        count += 1
        if count < step:
            return await run(given)
        if count == step and kept:
            await run(given)
        station.kill()
        return await asyncio.Event().wait()

    with patch.object(store, "run", counted):
        yield


async def cut_off(world: World, posted: Posted) -> Any:
    """Passed on; who dies meanwhile leaves a connection without an answer."""
    try:
        return await passed(world, posted)
    except Died:
        return await lost(world, posted)


@pytest.mark.req("P2-3.2.2-08")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("step", range(1, 13))
@pytest.mark.parametrize("who", [BUYER, SELLER])
@in_every_store
@played
async def test_who_dies_at_any_step_loses_and_doubles_nothing(
    world: World, kept_in: str, who: str, step: int, kept: bool
) -> None:
    world.kept_in = kept_in
    agree(world, in_order=True, terms=ORDERED)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = cut_off
    await send(buyer, *NAMES)
    with dying(world.stations[who], step, kept=kept):
        await world.until(10)
    buyer = await world.start_again(who) if who == BUYER else buyer
    seller = world.stations[SELLER] if who == BUYER else await world.start_again(SELLER)
    await world.until(15)
    await send(buyer, *MORE)
    await world.until(120)
    assert await states(buyer, *NAMES, *MORE) == {State.ACKNOWLEDGED}
    assert await seller.inbox() == [*NAMES, *MORE]
    copies = [one for one in bundles(world) if units(one)[0] == NAMES[0]]
    assert all(units(one) == list(NAMES) for one in copies)
    assert len({one.body for one in copies}) == 1
