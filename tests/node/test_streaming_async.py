"""Asynchronous streaming: the sender hears that all of it left, and of trouble by a report."""

from typing import Any

import pytest

from postroad.msh.forwarding import read_routable
from postroad.store.records import State
from tests.node.hubs import (
    FAR,
    NEAR,
    PATIENT,
    assert_every_byte_was_passed_on,
    by_way_of,
    hub,
    hubs,
    rule,
    streamed,
)
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    SELLER,
    Answering,
    Held,
    World,
    lost,
    party,
    played,
    refused,
    status,
)
from tests.node.test_streaming import M


def road(world: World, *, signed: bool = True, **more: Any) -> None:
    """buyer, near, far, seller; receipts find their own way."""
    world.agree(receipt="callback", signed=signed, retry=PATIENT)
    by_way_of(world, NEAR)
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, streamed("over", FAR, "stream", **there), rule("home", BUYER, **back), **more)
    hub(world, FAR, streamed("home", SELLER, "stream", **there), rule("over", NEAR, **back))


@pytest.mark.req("P2-2.4.1-01", "P2-2.4.3-01", "P2-2.4.5-03", "P2-2.5.1-01")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@played
async def test_every_byte_passes_two_hubs_and_the_signature_holds(
    world: World, payload: bytes
) -> None:
    road(world)
    buyer, near, far, seller = await hubs(world)
    await buyer.send(M, payload=payload)
    await world.wait(5)
    assert_every_byte_was_passed_on(world)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    for station in (near, far):
        assert await station.node.message(M) is None
        assert await station.story(M) == ["received", "forwarded", "hop_acked"]


@played
async def test_the_sender_is_answered_when_all_left_and_before_the_next_msh_answers(
    world: World,
) -> None:
    road(world, signed=False)
    buyer, near, *_ = await hubs(world)
    held = Held()
    world.wire.will(lost, at=NEAR)
    await buyer.send(M, payload=LARGE)
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    world.wire.will(held, at=FAR)
    answer = await near.receive(first.content_type, first.body)
    assert (answer.status, answer.body) == (202, b"")
    assert await near.story(M) == ["received", "forwarded"]
    held.release()
    await world.wait(1)
    assert await near.story(M) == ["received", "forwarded", "hop_acked"]


@pytest.mark.req("P2-2.5.6-01", "P2-2.5.6-05", "P2-2.5.6-07")
@played
async def test_what_the_next_msh_refuses_is_reported_to_the_sender(world: World) -> None:
    road(world, signed=False)
    hub(world, FAR, streamed("other", SELLER, "stream", to_party="urn:example:other"))
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(5)
    assert await near.story(M) == ["received", "forwarded", "send_failed", "error_raised"]
    [report] = world.wire.to(BUYER, "EBMS:0020")
    assert read_routable(report.body).ref_to_message_id == M
    assert await buyer.state(M) is State.FAILED


@pytest.mark.parametrize("trouble", [lost, status(500)])
@played
async def test_what_left_and_was_not_answered_is_reported(world: World, trouble: Answering) -> None:
    road(world, signed=False, errors="log")
    buyer, near, *_ = await hubs(world)
    world.wire.will(trouble, at=FAR)
    await buyer.send(M)
    await world.wait(5)
    assert await near.story(M) == ["received", "forwarded", "send_failed", "error_raised"]
    assert ((await near.journal("error_raised"))[0].detail or "").startswith("logged only")
    assert world.wire.to(BUYER) == []


@pytest.mark.req("P2-2.5.6-08")
@played
async def test_a_next_msh_that_is_away_is_told_at_once(world: World) -> None:
    road(world, signed=False)
    hub(world, NEAR, streamed("over", [FAR, CARRIER], "stream", to_party=party(SELLER)))
    buyer, near, *_ = await hubs(world)
    world.wire.usual |= {FAR: refused, CARRIER: refused}
    await buyer.send(M)
    await world.wait(2)
    assert await near.story(M) == ["error_raised"]
    assert (await buyer.message(M)).error_code == "EBMS:0005"
