"""Draft 001 of ebXML Reliable Messaging on running nodes: how a Sender recovers from errors."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.reliability.breaker import Gate
from postroad.store.records import Side, State
from postroad.transport.http_outgoing import Reply
from tests.node.ebxml_stations import start
from tests.node.reliable import (
    BUYER,
    CARRIER,
    SELLER,
    Posted,
    Station,
    World,
    address,
    lost,
    party,
    played,
    refused,
    status,
)
from tests.spec.link_stations import (
    INTERVAL,
    LINKED,
    RETRIES,
    TIMEOUT,
    M,
    agree,
    answer,
    numbers,
    said_in,
    sender,
    talking,
    tell,
)

OTHERS: Final = ("bank", "customs")
NEXT: Final = "n@buyer.example"
PROTOCOL: Final[dict[str, Any]] = {"kind": "Error", "code": "CommunicationProtocolError"}
TRANSIENT: Final[dict[str, Any]] = {"kind": "Error", "code": "TransientError"}
MESSAGING: Final[dict[str, Any]] = {"kind": "Error", "code": "Inconsistent"}


def copies(world: World, about: str = M, receiver: str = SELLER) -> list[float]:
    """When copies of a message were posted."""
    assert len({one.body for one in world.wire.to(receiver, about)}) <= 1, "copies are the same"
    return world.wire.times(about, receiver)


# Timeout: 2.4, 2.6.5, 5


@pytest.mark.req(
    "RM001-2.1-12",
    "RM001-2.1-13",
    "RM001-2.4-01",
    "RM001-2.6.1-01",
    "RM001-2.6.5-01",
    "RM001-2.6.5-02",
    "RM001-2.6.5-03",
    "RM001-2.6.5-04",
    "RM001-5-01",
    "RM001-5-02",
    "RM001-5-04",
)
@played
async def test_a_message_without_an_answer_is_sent_again_after_timeout_then_each_interval(
    world: World,
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(300)
    first = TIMEOUT
    assert copies(world) == [0, *(first + INTERVAL * number for number in range(RETRIES))]
    assert await buyer.state(M) is State.SUSPENDED


@pytest.mark.req("RM001-2.6.5-05", "RM001-1.2-02", "RM001-2.6.3-07", "RM001-5-02")
@played
async def test_an_acknowledgement_completes_the_transmission_after_a_retry_too(
    world: World,
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.until(TIMEOUT + 1)
    assert await buyer.state(M) is State.WAITING
    await tell(buyer, answer())
    assert await buyer.state(M) is State.ACKNOWLEDGED
    await world.wait(300)
    assert copies(world) == [0, TIMEOUT]


# Communication Protocol Errors: 2.6.3


@pytest.mark.req(
    "RM001-2.6.1-01",
    "RM001-2.6.3-02",
    "RM001-2.6.3-03",
    "RM001-2.6.3-04",
    "RM001-2.6.3-05",
    "RM001-5-02",
)
@pytest.mark.parametrize("trouble", [refused, lost, status(500), status(503)])
@played
async def test_an_error_of_the_transport_is_followed_by_the_same_message_after_an_interval(
    world: World, trouble: Any
) -> None:
    world.wire.usual[SELLER] = trouble
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(300)
    assert copies(world) == [INTERVAL * number for number in range(RETRIES + 1)]
    assert await buyer.state(M) is State.SUSPENDED


@pytest.mark.req("RM001-2.6.3-02", "RM001-2.6.8-01", "RM001-5-02", "RM001-5-03")
@played
async def test_many_retries_are_all_made_where_nobody_listens(world: World) -> None:
    """Also where the breaker of addresses would pause a partner after five of them."""
    world.wire.usual[SELLER] = refused
    retry = {"max_retries": 9, "timeout": f"PT{TIMEOUT}S", "period": f"PT{INTERVAL}S"}
    buyer = await sender(world, retry=retry)
    await buyer.send(M)
    await world.wait(3600)
    assert copies(world) == [INTERVAL * number for number in range(10)]
    assert await buyer.state(M) is State.SUSPENDED


@pytest.mark.req(
    "RM001-2.6.1-01",
    "RM001-2.6.3-02",
    "RM001-2.6.3-03",
    "RM001-2.6.3-04",
    "RM001-2.6.3-05",
)
@played
async def test_the_error_message_about_the_transport_has_the_same_recovery(world: World) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.until(3)
    await tell(buyer, answer(**PROTOCOL))
    await world.until(3 + INTERVAL + 1)
    assert copies(world) == [0, 3 + INTERVAL]
    await tell(buyer, answer(**PROTOCOL, id="b@seller.example"))
    await world.until(3 + 2 * INTERVAL + 2)
    assert copies(world) == [0, 3 + INTERVAL, 3 + 2 * INTERVAL + 1]
    await tell(buyer, answer(id="c@seller.example"))
    await world.wait(300)
    assert len(copies(world)) == 3
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("RM001-2.6.3-07")
@pytest.mark.parametrize("trouble", [lost, status(500), status(503)], ids=["lost", "500", "503"])
@pytest.mark.parametrize("retries", [0, 1], ids=["before", "after"])
@played
async def test_an_acknowledgement_completes_the_transmission_despite_an_error_of_the_transport(
    world: World, trouble: Any, retries: int
) -> None:
    """The Receiver may have the message although its transport reported an error."""
    world.wire.usual[SELLER] = trouble
    buyer = await sender(world)
    await buyer.send(M)
    await world.until(INTERVAL * retries + 1)
    await tell(buyer, answer())
    assert await buyer.state(M) is State.ACKNOWLEDGED
    await world.wait(300)
    assert copies(world) == [INTERVAL * number for number in range(retries + 1)]


@pytest.mark.req("RM001-2.6.3-06", "RM001-2.6.5-05", "RM001-2.6.6-05")
@played
async def test_each_error_has_its_own_recovery_whatever_came_before(world: World) -> None:
    """First the transport fails, then nothing is heard, then the Receiver asks to wait."""
    world.wire.will(refused)
    buyer = await sender(world)
    await buyer.send(M)
    await world.until(INTERVAL * 2 + 3)
    assert copies(world) == [0, INTERVAL, INTERVAL * 2], "no answer within the interval"
    await tell(buyer, answer(**TRANSIENT, seconds=60))
    world.wire.will(refused)
    await world.until(INTERVAL * 2 + 3 + 62)
    assert copies(world)[3:] == [INTERVAL * 2 + 3 + 60]
    await world.wait(300)
    assert len(copies(world)) == RETRIES + 1, "one counter for all errors"
    assert await buyer.state(M) is State.SUSPENDED


# Transient Errors: 2.6.6


@pytest.mark.req("RM001-2.6.1-01", "RM001-2.6.6-01", "RM001-2.6.6-03", "RM001-2.6.6-04")
@pytest.mark.parametrize("seconds", [5, 45])
@played
async def test_a_transient_error_suspends_sending_for_as_long_as_it_says(
    world: World, seconds: int
) -> None:
    world.speak("notes", version="0.98b", profile="rm001")
    buyer = await sender(world)
    await buyer.send(M)
    await world.until(2)
    await tell(buyer, answer(**TRANSIENT, seconds=seconds))
    await buyer.send(NEXT)
    await buyer.send("u@buyer.example", "notes")
    await world.until(2 + seconds - 0.5)
    assert len(world.wire.to(SELLER)) == 1, "nothing at all is sent to the Receiver"
    await world.until(2 + seconds + 1)
    assert copies(world) == [0, 2 + seconds]
    await tell(buyer, answer(id="b@seller.example"))
    await world.wait(1)
    assert numbers(world) in (["1", "1", None, "2"], ["1", None, "1", "2"], ["1", "1", "2", None])


@pytest.mark.req("RM001-2.6.6-01", "RM001-2.6.6-03", "RM001-2.6.3-06")
@pytest.mark.parametrize(
    ("told", "again"), [(TRANSIENT | {"seconds": 5}, 5), (PROTOCOL, INTERVAL)], ids=str
)
@played
async def test_an_error_message_that_overtakes_the_response_has_the_same_recovery(
    world: World, told: dict[str, Any], again: int
) -> None:
    buyer = await sender(world)

    async def busy(world: World, posted: Posted) -> Reply:
        await tell(buyer, answer(**told))
        return await status(204)(world, posted)

    world.wire.will(busy)
    await buyer.send(M)
    await world.until(again + 1)
    assert copies(world) == [0, again]


@pytest.mark.req("RM001-2.6.6-02")
@played
async def test_without_min_retry_secs_the_suspension_lasts_for_the_retry_interval(
    world: World,
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.until(2)
    await tell(buyer, answer(**TRANSIENT))
    await world.until(2 + INTERVAL + 1)
    assert copies(world) == [0, 2 + INTERVAL]


@pytest.mark.req("RM001-2.6.6-01", "RM001-2.6.6-03")
@played
async def test_a_suspension_is_of_the_receiver_whoever_the_messages_are_for(world: World) -> None:
    agree(world, at=(BUYER,), url=address(CARRIER), hops=1)
    world.speak("transport", to=CARRIER, at=(BUYER,), **LINKED)
    buyer = await sender(world, name="invoices")
    world.wire.usual[CARRIER] = status(204)
    await buyer.send(M)
    await world.until(2)
    await tell(buyer, answer(**TRANSIENT, seconds=30, frm=address(CARRIER)))
    await buyer.send("t@buyer.example", "transport")
    await buyer.send("i@buyer.example", "invoices")
    await world.until(31)
    assert len(world.wire.to(CARRIER)) == 1
    await world.until(33)
    assert copies(world, receiver=CARRIER) == [0, 32]


@pytest.mark.req("RM001-2.6.6-05")
@played
async def test_a_further_transient_error_repeats_the_suspension_until_the_retries_are_used_up(
    world: World,
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    for number in range(RETRIES + 1):
        await world.until(31 * number + 1)
        assert copies(world) == [31 * one for one in range(number + 1)]
        await tell(buyer, answer(**TRANSIENT, seconds=30, id=f"{number}@seller.example"))
    await world.wait(1)
    assert await buyer.state(M) is State.SUSPENDED
    await world.wait(300)
    assert len(copies(world)) == RETRIES + 1


# ebXML Messaging Errors: 2.6.4


@pytest.mark.req("RM001-2.6.1-02", "RM001-2.6.4-01", "RM001-2.2.3-08")
@played
async def test_a_messaging_error_is_passed_up_and_the_next_message_leaves(world: World) -> None:
    buyer = await sender(world)
    await buyer.send("0@buyer.example")
    await world.wait(1)
    await tell(buyer, answer("0@buyer.example", id="0@seller.example"))
    await buyer.send(M)
    await buyer.send(NEXT)
    await world.wait(1)
    assert numbers(world) == ["1", "2"]
    await tell(buyer, answer(**MESSAGING))
    assert await buyer.state(M) is State.FAILED
    assert [one.event for one in await buyer.notices(M)] == ["failed"]
    assert "error_received" in await buyer.story(M)
    await world.wait(1)
    assert numbers(world) == ["1", "2", "1"], "nobody knows whether the number was counted"
    await tell(buyer, answer(NEXT, id="b@seller.example"))
    await world.wait(300)
    assert len(copies(world)) == 1, "it is not sent again"
    assert await buyer.state(NEXT) is State.ACKNOWLEDGED


# The end of all retries: 2.6.8, 5


@pytest.mark.req("RM001-2.6.8-01", "RM001-2.6.8-02", "RM001-2.6.8-03", "RM001-5-03", "RM001-1.2-02")
@played
async def test_after_the_last_retry_the_receiver_is_suspended_until_an_administrator_resumes(
    world: World,
) -> None:
    world.speak("notes", version="0.98b", profile="rm001")
    world.speak("others", to=CARRIER, at=(BUYER,), url=address(SELLER), **LINKED)
    buyer = await sender(world)
    await buyer.send(M)
    await buyer.send(NEXT)
    end = TIMEOUT + INTERVAL * RETRIES
    await world.until(end + 1)
    assert await buyer.state(M) is State.SUSPENDED
    assert [one.event for one in await buyer.notices(M)] == ["suspended"]
    assert [one.to_party for one in await buyer.journal("suspended")] == [party(SELLER)]
    stopped = {one.name: one.gate for one in await buyer.node.partners()}
    assert stopped == dict.fromkeys((party(SELLER), address(SELLER)), Gate.SUSPENDED)
    for name in ("notes", "others"):
        await buyer.send(f"{name}@buyer.example", name)
    await world.wait(3600)
    assert len(world.wire.to(SELLER)) == RETRIES + 1, "nothing is sent to the Receiver"
    resumed = end + 3700
    await world.until(resumed)
    await buyer.process.ask(buyer.node.resume(party(SELLER)))
    await world.wait(300)
    again = [0, *(TIMEOUT + INTERVAL * number for number in range(RETRIES))]
    assert copies(world)[RETRIES + 1 :] == [resumed + one for one in again], "from zero"
    assert copies(world, NEXT) == []
    await buyer.process.ask(buyer.node.resume(party(SELLER)))
    await world.wait(1)
    await tell(buyer, answer())
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert len(copies(world, NEXT)) == 1, "the next one follows the unfinished one"


@pytest.mark.req("RM001-2.6.8-03")
@played
async def test_nothing_is_resumed_that_is_not_suspended(world: World) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(1)
    with pytest.raises(Refused):
        await buyer.process.ask(buyer.node.resume(party(SELLER)))


@pytest.mark.req("RM001-2.6.8-03")
@pytest.mark.parametrize("name", [party(SELLER), address(SELLER)], ids=["party", "address"])
@played
async def test_a_resumed_link_carries_everything_on_in_its_order(world: World, name: str) -> None:
    agree(world)
    buyer, seller = await talking(world)
    world.wire.usual[SELLER] = refused
    ids = [f"{number}@buyer.example" for number in range(3)]
    for one in ids:
        await buyer.send(one)
    await world.wait(300)
    assert await buyer.state(ids[0]) is State.SUSPENDED
    del world.wire.usual[SELLER]
    await buyer.process.ask(buyer.node.resume(name))
    assert await buyer.node.partners() == []
    await world.wait(10)
    assert await seller.inbox() == ids
    assert numbers(world)[-3:] == ["1", "2", "3"]


async def halted_router(world: World) -> tuple[Station, Station, Station]:
    """A carrier whose seller cannot be reached, by a relay for any party, nor can two others.

    What it carries for the seller is suspended, and what it sent to the others.
    """
    agree(world, at=(BUYER,), url=address(CARRIER), hops=1)
    agree(world, at=(SELLER,))
    agree(world, name="there", at=(CARRIER,), relay=True)
    del world._pmodes[CARRIER][0]["responder"]
    agree(world, name="back", frm=SELLER, to=BUYER, at=(CARRIER,), relay=True)
    for name in OTHERS:
        world.speak(name, frm=CARRIER, to=name, at=(CARRIER,), **LINKED)
    buyer, seller = await talking(world)
    carrier = await start(world, CARRIER)
    for name in (SELLER, *OTHERS):
        world.wire.usual[name] = refused
    await buyer.send(M)
    for name in OTHERS:
        await carrier.send(f"{name}@carrier.example", name)
    await world.wait(300)
    assert (await carrier.message(M, Side.FORWARDING)).state is State.SUSPENDED
    stopped = {one.name: one.gate for one in await carrier.node.partners()}
    names = [called(name) for name in (SELLER, *OTHERS) for called in (party, address)]
    assert stopped == dict.fromkeys(names, Gate.SUSPENDED)
    return buyer, carrier, seller


@pytest.mark.req("RM001-2.6.8-03")
@pytest.mark.parametrize("called", [party, address])
@played
async def test_resuming_a_receiver_behind_a_relay_for_all_resumes_nobody_else(
    world: World, called: Callable[[str], str]
) -> None:
    _, carrier, seller = await halted_router(world)
    del world.wire.usual[SELLER]
    assert await carrier.process.ask(carrier.node.resume(called(SELLER))) == 1
    stopped = {one.name for one in await carrier.node.partners()}
    assert stopped == {name(other) for other in OTHERS for name in (party, address)}
    await world.wait(10)
    assert await seller.inbox() == [M]


@pytest.mark.req("RM001-2.6.8-03")
@pytest.mark.parametrize("called", [party, address])
@played
async def test_resuming_another_leaves_the_receiver_behind_a_relay_for_all_suspended(
    world: World, called: Callable[[str], str]
) -> None:
    _, carrier, _ = await halted_router(world)
    assert await carrier.process.ask(carrier.node.resume(called(OTHERS[0]))) == 1
    stopped = {one.name for one in await carrier.node.partners()}
    assert stopped == {name(other) for other in (SELLER, OTHERS[1]) for name in (party, address)}


# Which answers count: 2.3, 2.6.7


@pytest.mark.req("RM001-2.3-09", "RM001-2.6.3-07")
@pytest.mark.parametrize(
    "letter",
    [
        answer("another@buyer.example"),
        answer(frm=address(CARRIER)),
        answer(to=address(CARRIER)),
        answer(kind="Normal"),
    ],
    ids=["another message", "from another", "for another", "no acknowledgement"],
)
@played
async def test_only_the_acknowledgement_of_the_message_completes_its_transmission(
    world: World, letter: str
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(1)
    await tell(buyer, letter)
    await world.until(TIMEOUT + 1)
    assert copies(world) == [0, TIMEOUT]
    await tell(buyer, answer(id="b@seller.example"))
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("RM001-2.6.7-03")
@pytest.mark.parametrize("ref", [M, "never@buyer.example"])
@played
async def test_an_acknowledgement_is_never_answered(world: World, ref: str) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(1)
    before = len(world.wire.posted)
    for number in range(3):
        response = await tell(buyer, answer(ref, id=f"{number}@seller.example"))
        assert not response.body
    await world.wait(TIMEOUT - 5)
    assert len(world.wire.posted) == before
    assert said_in(world.wire.posted[0]).data("MessageId") == M
