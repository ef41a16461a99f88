"""How much of one sender waits at a hub, and what happens to more."""

from typing import Any

import pytest

from postroad.node.base.requests import Request, Response
from postroad.store.records import State
from tests.node.collecting import errors
from tests.node.hubs import FAR, NEAR, SOON, hub, road, rule
from tests.node.reliable import (
    BUYER,
    SELLER,
    STORES,
    Station,
    World,
    _pieces,
    party,
    passed,
    played,
    refused,
    status,
)

M, N = "m@buyer", "n@buyer"


def limited(world: World, to: dict[str, Any] | None = None, **quotas: Any) -> None:
    """The seller's hub is limited, and cannot reach the seller."""
    road(world, signed=False)
    there = rule("home", SELLER, {"max_retries": 99, "period": "PT1H"}, to_party=party(SELLER))
    if to is not None:
        there["to"] = to
    hub(world, FAR, there, rule("over", NEAR, to_party=party(BUYER)), quotas=quotas)
    world.wire.usual[SELLER] = refused


async def letters(world: World, *names: str) -> tuple[Station, list[tuple[str, bytes]]]:
    """The seller's hub, and messages of the buyer that nobody passed on yet."""
    buyer, _ = await world.both()
    far = await world.start(FAR)
    world.wire.usual[NEAR] = refused
    for name in names:
        await buyer.send(name)
    await world.wait(2)
    return far, [(one.content_type, one.body) for one in world.wire.to(NEAR)]


async def brought(
    far: Station,
    letter: tuple[str, bytes],
    peer: str = "192.0.2.1",
    certificate: bytes | None = None,
    claims: str | None = None,
) -> Response:
    """A letter as somebody brings it, perhaps under another From."""
    kind, body = letter
    if claims is not None:
        body = body.replace(party(BUYER).encode(), claims.encode())
    request = Request(kind, peer, _pieces(body), certificate)
    return await far.process.ask(far.node.receive(request))


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_beyond_the_quota_a_sender_is_told_to_come_again(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    limited(world, sender={"messages": 1})
    far, (first, second) = await letters(world, M, N)
    assert (await brought(far, first)).status == 202
    told = await brought(far, second)
    assert (told.status, errors(told)) == (429, ["EBMS:0202"])
    [raised] = [one for one in await far.events(N) if one.event == "error_raised"]
    assert "1 messages of urn:example:buyer at 192.0.2.1 wait here" in (raised.detail or "")


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_there_is_room_again_when_a_message_has_left(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    limited(world, sender={"messages": 1})
    far, (first, second) = await letters(world, M, N)
    await brought(far, first)
    world.wire.usual[SELLER] = passed
    await world.wait(7200)
    assert await far.state(M) is State.SENT
    assert (await brought(far, second)).status == 202


@played
async def test_a_copy_of_what_waits_needs_no_room(world: World) -> None:
    limited(world, sender={"messages": 1})
    far, (first, _) = await letters(world, M, N)
    assert (await brought(far, first)).status == 202
    assert (await brought(far, first)).status == 202


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_bytes_count_too(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    limited(world, sender={"bytes": "3 kB"})
    far, (first, second) = await letters(world, M, N)
    assert 1500 < len(first[1]) < 3000
    assert (await brought(far, first)).status == 202
    assert (await brought(far, second)).status == 429


@pytest.mark.req("P2-2.5.6-16")
@played
async def test_in_a_channel_it_is_its_capacity_that_is_exceeded(world: World) -> None:
    keys = {"username": "seller", "password": "a secret"}
    limited(world, {"channel": {"authorization": keys}}, sender={"messages": 1})
    far, (first, second) = await letters(world, M, N)
    assert (await brought(far, first)).status == 202
    assert errors(await brought(far, second)) == ["EBMS:0021"]


@played
async def test_who_claims_to_be_another_uses_up_his_own_quota(world: World) -> None:
    limited(world, sender={"messages": 1})
    far, (first, second) = await letters(world, M, N)
    assert (await brought(far, first, "198.51.100.7")).status == 202
    assert (await brought(far, second, "198.51.100.7")).status == 429
    assert (await brought(far, second, "192.0.2.1")).status == 202


@played
async def test_a_stranger_with_many_names_has_one_address(world: World) -> None:
    limited(world, sender={"messages": 1}, address={"messages": 1})
    far, (first, second) = await letters(world, M, N)
    assert (await brought(far, first, claims="urn:example:x")).status == 202
    assert (await brought(far, second, claims="urn:example:y")).status == 429
    assert (await brought(far, second, "198.51.100.7")).status == 202


@played
async def test_strangers_leave_room_for_who_shows_a_certificate(world: World) -> None:
    limited(world, sender={"messages": 1}, strangers={"messages": 1})
    far, (first, second, third) = await letters(world, M, N, "o@buyer")
    assert (await brought(far, first, "192.0.2.1")).status == 202
    assert (await brought(far, second, "198.51.100.7")).status == 429
    assert (await brought(far, second, "192.0.2.1", b"a certificate")).status == 202
    assert (await brought(far, third, "203.0.113.9", b"a certificate")).status == 429
    assert (await brought(far, third, "203.0.113.9", b"another")).status == 202


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_of_what_strangers_sent_nothing_is_kept_once_it_was_passed_on(
    world: World, kept_in: str, keeps: bool
) -> None:
    """Unless the file asks for it; what those sent who are known is kept in any case."""
    world.kept_in = kept_in
    limited(world, **({"keep_passed": True} if keeps else {}))
    far, (first, second) = await letters(world, M, N)
    await brought(far, first)
    await brought(far, second, certificate=b"a certificate")
    for name in (M, N):
        waits = await far.message(name)
        assert waits.parts, "it is passed on from there"
    world.wire.usual[SELLER] = passed
    await world.wait(7200)
    for name, kept in ((M, keeps), (N, True)):
        found = await far.message(name)
        assert (found.state, bool(found.parts), found.envelope is not None) == (
            State.SENT,
            kept,
            kept,
        )
    assert (await brought(far, first)).status == 202
    await world.wait(7200)
    assert (await far.message(M)).state is State.SENT


@played
async def test_a_message_of_a_stranger_that_is_given_up_is_reported_and_dropped(
    world: World,
) -> None:
    limited(world)
    hub(world, FAR, rule("home", SELLER, {"max_retries": 1, "period": "PT1S"}), errors="log")
    far, (first,) = await letters(world, M)
    await brought(far, first)
    await world.wait(7200)
    found = await far.message(M)
    assert (found.state, found.parts, found.envelope) == (State.FAILED, (), None)
    [raised] = [one for one in await far.events(M) if one.event == "error_raised"]
    assert "logged only" in (raised.detail or "")


@played
async def test_strangers_have_quotas_where_the_file_has_none(world: World) -> None:
    limited(world)
    far, (first,) = await letters(world, M)
    quotas = far.node.context.in_force.routing.file.quotas
    assert quotas.address is not None
    assert quotas.strangers is not None
    assert (quotas.address.messages, quotas.strangers.messages) == (10_000, 50_000)
    await brought(far, first)
    assert len((await far.message(M)).accounts) == 3


@played
async def test_quotas_change_with_the_file(world: World) -> None:
    limited(world, sender={"messages": 1})
    far, (first, second) = await letters(world, M, N)
    await brought(far, first)
    limited(world, sender={"messages": 2})
    far.node.context.in_force.refresh()
    assert (await brought(far, second)).status == 202


@played
async def test_one_hub_whose_sender_has_no_room_is_asked_again_and_not_paused(
    world: World,
) -> None:
    road(world, signed=False)
    hub(world, NEAR, rule("over", FAR, SOON, to_party=party(SELLER)))
    world.wire.will(*[status(429)] * 3, at=FAR)
    buyer, seller = await world.both()
    near, _ = await world.start(NEAR), await world.start(FAR)
    await buyer.send(M)
    await world.wait(60)
    assert await seller.inbox() == [M]
    assert await near.journal("suspended") == []


@played
async def test_nothing_counts_any_more_when_all_have_left(world: World) -> None:
    world.kept_in = "sqlite"
    limited(world, sender={"messages": 9})
    far, (first, second) = await letters(world, M, N)
    await brought(far, first)
    await brought(far, second)
    store = far.node.context.store

    def loads() -> list[Any]:
        rows = store._writer._database.execute(  # type: ignore[attr-defined]
            "SELECT count FROM counts WHERE name LIKE 'load%' ORDER BY count"
        )
        return [count for (count,) in rows.fetchall()]

    assert loads()[:3] == [2, 2, 2]
    world.wire.usual[SELLER] = passed
    await world.wait(7200)
    assert loads() == []


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_nobody_keeps_out_a_message_by_using_its_id_first(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    limited(world)
    far, (letter,) = await letters(world, M)
    kind, body = letter
    forged = (kind, body.replace(b"</S12:Envelope>", b"<!-- forged --></S12:Envelope>"))
    assert forged != letter
    assert (await brought(far, forged)).status == 202
    assert (await brought(far, letter, certificate=b"the buyer's")).status == 202
    assert (await brought(far, letter, certificate=b"the buyer's")).status == 202
    del world.wire.usual[SELLER]
    await world.wait(3600)
    arrived = [one.body for one in world.wire.to(SELLER)]
    assert letter[1] in arrived
    told = [one.event for one in await far.events(M)]
    assert told.count("received") == 2
    assert told.count("duplicate") == 1
    assert {one.message_id for one in await far.events(M)} == {M}
