"""Synchronous streaming: what two hubs in a row do with messages that they never have."""

from typing import Any

import pytest

from postroad.store.records import State
from tests.node.hubs import FAR, NEAR, PATIENT, by_way_of, hub, hubs, rule, streamed
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    SELLER,
    STORES,
    Answering,
    World,
    address,
    lost,
    party,
    played,
    refused,
    reply_lost,
    status,
)

M = "m@buyer"


def road(world: World, *, signed: bool = True, retry: dict[str, Any] | None = PATIENT) -> None:
    """buyer, near, far, seller; the receipt is the response."""
    world.agree(signed=signed, retry=retry)
    by_way_of(world, NEAR)
    hub(world, NEAR, streamed("over", FAR, to_party=party(SELLER)))
    hub(world, FAR, streamed("home", SELLER, to_party=party(SELLER)))


@pytest.mark.req("P2-2.4.1-01", "P2-2.4.3-01", "P2-2.4.5-03", "P2-2.5.1-01", "P2-2.5.2-03")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_every_byte_passes_two_hubs_and_the_signed_receipt_is_the_response(
    world: World, kept_in: str, payload: bytes
) -> None:
    world.kept_in = kept_in
    road(world)
    buyer, near, far, seller = await hubs(world)
    await buyer.send(M, payload=payload)
    await world.wait(2)
    [first], [second], [third] = (world.wire.to(name) for name in (NEAR, FAR, SELLER))
    assert (first.body, first.content_type) == (second.body, second.content_type)
    assert (second.body, second.content_type) == (third.body, third.content_type)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    for station in (near, far):
        assert await station.node.message(M) is None
        events = await station.events(M)
        assert [one.event for one in events] == ["received", "forwarded", "hop_acked"]
        assert [one.wire_bytes for one in events] == [len(first.body), len(first.body), None]
        assert await station.work() == {}
    assert [one.peer for one in await near.events(M)] == ["192.0.2.1", address(FAR), address(FAR)]


@pytest.mark.req("P2-2.5.6-27")
@played
async def test_an_error_of_the_receiver_is_passed_back(world: World) -> None:
    road(world, signed=False, retry=None)
    buyer, near, _, seller = await hubs(world)
    await world.agree_only(SELLER, "something else")
    await buyer.send(M)
    await world.wait(2)
    assert (await buyer.message(M)).error_code == "EBMS:0010"
    assert await buyer.state(M) is State.FAILED
    assert await seller.inbox() == []
    assert await near.journal("error_raised") == []


@pytest.mark.req("P2-2.5.6-12", "P2-2.5.6-15")
@played
async def test_what_no_rule_matches_is_refused_at_once(world: World) -> None:
    road(world)
    hub(world, NEAR, streamed("other", FAR, to_party="urn:example:other"))
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    assert (await buyer.message(M)).error_code == "EBMS:0020"
    assert await near.story(M) == ["error_raised"]
    assert world.wire.to(FAR) == []


@played
async def test_rules_of_both_kinds_stand_side_by_side(world: World) -> None:
    road(world)
    hub(world, NEAR, rule("over", FAR, to_party=party(SELLER)), streamed("rest", CARRIER))
    hub(world, FAR, rule("home", SELLER, to_party=party(SELLER)), streamed("rest", CARRIER))
    buyer, near, _, seller = await hubs(world)
    await buyer.send(M, payload=LARGE)
    await world.wait(3)
    assert await near.state(M) is State.SENT
    assert await seller.inbox() == [M]
    [first], [third] = (world.wire.to(name) for name in (NEAR, SELLER))
    assert first.body == third.body


@played
async def test_a_node_that_streams_takes_its_own_messages_as_an_endpoint(world: World) -> None:
    world.agree(retry=None)
    hub(world, SELLER, streamed("all", FAR))
    by_way_of(world, SELLER)
    buyer, seller = await world.both()
    await buyer.send(M, payload=LARGE)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("P2-2.5.6-08")
@played
async def test_the_next_address_is_tried_while_nothing_left(world: World) -> None:
    road(world)
    hub(world, NEAR, streamed("over", [CARRIER, FAR], to_party=party(SELLER)))
    world.wire.usual[CARRIER] = refused
    buyer, near, _, seller = await hubs(world)
    await buyer.send(M, payload=LARGE)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert [one.peer for one in await near.journal("forwarded")] == [address(FAR)]


@pytest.mark.req("P2-2.5.6-01", "P2-2.5.6-08")
@played
async def test_a_next_msh_that_is_away_is_told_to_who_waits(world: World) -> None:
    road(world, signed=False)
    buyer, near, *_ = await hubs(world)
    world.wire.usual[FAR] = refused
    await buyer.send(M)
    await world.wait(2)
    assert await near.story(M) == ["error_raised"]
    [raised] = await near.journal("error_raised")
    assert raised.error_code == "EBMS:0005"
    assert (await buyer.message(M)).error_code == "EBMS:0005"
    assert await buyer.state(M) is State.READY
    del world.wire.usual[FAR]
    await world.wait(7200)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.parametrize("trouble", [lost, reply_lost, status(302)])
@played
async def test_what_left_and_was_not_answered_is_in_doubt_and_tried_nowhere_else(
    world: World, trouble: Answering
) -> None:
    road(world, signed=False, retry=None)
    hub(world, NEAR, streamed("over", [FAR, CARRIER], to_party=party(SELLER)))
    buyer, near, *_ = await hubs(world)
    world.wire.will(trouble, at=FAR)
    await buyer.send(M)
    await world.wait(2)
    assert world.wire.to(CARRIER) == []
    assert await near.story(M) == ["received", "forwarded", "error_raised"]
    [raised] = await near.journal("error_raised")
    assert (raised.error_code, raised.severity) == ("EBMS:0004", "failure")
    assert await buyer.state(M) is State.IN_DOUBT


@pytest.mark.req("P2-2.5.6-27")
@pytest.mark.parametrize("said", [400, 429, 500, 503])
@played
async def test_a_status_of_the_next_msh_is_passed_back(world: World, said: int) -> None:
    road(world, signed=False)
    _, near, *_ = await hubs(world)
    world.wire.will(lost, at=NEAR)
    await world.stations[BUYER].send(M)
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    world.wire.will(status(said), at=FAR)
    answer = await near.receive(first.content_type, first.body)
    assert answer.status == said
    assert answer.flow is not None
    await answer.flow.end()
    assert (await near.story(M))[-1] == "send_failed"


@played
async def test_a_circle_is_seen(world: World) -> None:
    road(world, signed=False)
    hub(world, FAR, streamed("round", NEAR, to_party=party(SELLER)))
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    assert len(world.wire.to(FAR)) == 1
    assert "comes in a circle" in ((await near.journal("error_raised"))[0].detail or "")
    assert (await buyer.message(M)).error_code == "EBMS:0020"


@played
async def test_only_so_many_are_passed_on_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.node.hub.streaming._AT_ONCE", 1)
    road(world, signed=False)
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    under_way = await near.receive(first.content_type, first.body)
    assert under_way.flow is not None
    turned_away = await near.receive(first.content_type, first.body)
    assert (turned_away.status, b"EBMS:0202" in turned_away.body) == (503, True)
    await under_way.flow.end()
    assert (await near.receive(first.content_type, first.body)).status == 200
