"""EBMS:0023: what expired by its own headers is not passed on any more (Part 2, 2.5.6)."""

from datetime import timedelta

import pytest

from postroad.store.interface import Transaction
from postroad.store.records import Side, State
from postroad.wire.names import WSR, WSSE, WSU
from tests.node.collecting import errors, request
from tests.node.hubs import FAR, NEAR, hub, road, rule, streamed
from tests.node.reliable import (
    BUYER,
    SELLER,
    SOAP,
    STORES,
    Station,
    World,
    lost,
    party,
    played,
    refused,
)
from tests.node.test_forwarding_channels import last_pull, start

M = "m@buyer"
EXPIRED = "2020-01-01T00:00:00Z"
NEVER = "2099-01-01T00:00:00Z"


def timestamp(end: str) -> str:
    return (
        f"<wsse:Security xmlns:wsse='{WSSE}' xmlns:wsu='{WSU}'><wsu:Timestamp>"
        f"<wsu:Expires>{end}</wsu:Expires></wsu:Timestamp></wsse:Security>"
    )


def reliability(end: str) -> str:
    return f"<r:Request xmlns:r='{WSR}'><r:ExpiryTime>{end}</r:ExpiryTime></r:Request>"


async def written(world: World, header: str) -> tuple[str, bytes, Station]:
    """A message as the buyer posts it, with another header; and the hub for it."""
    buyer, _ = await world.both()
    near = await world.start(NEAR)
    world.wire.will(lost, at=NEAR)
    await buyer.send(M)
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    body = first.body.replace(b"</S12:Header>", f"{header}</S12:Header>".encode())
    assert body != first.body
    return first.content_type, body, near


@pytest.mark.req("P2-2.5.6-20", "P2-2.5.6-21", "P2-2.5.6-22", "P2-2.5.6-23", "P2-2.5.6-24")
@pytest.mark.req("P2-2.5.6-25")
@pytest.mark.parametrize("forward", ["store", "sync"])
@pytest.mark.parametrize("header", [timestamp(EXPIRED), reliability(EXPIRED)])
@played
async def test_what_expired_is_refused_with_a_warning(
    world: World, header: str, forward: str
) -> None:
    road(world, signed=False)
    hub(world, NEAR, streamed("over", FAR, forward, to_party=party(SELLER)))
    kind, body, near = await written(world, header)
    answer = await near.receive(kind, body)
    assert b"EBMS:0023" in answer.body
    [raised] = await near.journal("error_raised")
    assert (raised.error_code, raised.severity) == ("EBMS:0023", "warning")
    assert world.wire.to(FAR) == []


@pytest.mark.parametrize("header", [timestamp(NEVER), reliability(NEVER), timestamp("soon")])
@played
async def test_what_has_time_or_says_nothing_that_can_be_read_is_passed_on(
    world: World, header: str
) -> None:
    road(world, signed=False)
    kind, body, near = await written(world, header)
    assert (await near.receive(kind, body)).status == 202


@pytest.mark.req("P2-2.5.6-20", "P2-2.5.6-23")
@played
async def test_what_expires_while_the_next_msh_is_away_is_not_tried_again(world: World) -> None:
    road(world, signed=False, retry={"max_retries": 0, "timeout": "PT1H"})
    patient = {"max_retries": 5, "timeout": "PT1H", "period": "PT1H"}
    there = rule("over", FAR, patient, to_party=party(SELLER))
    hub(world, NEAR, there, rule("home", BUYER, to_party=party(BUYER)))
    half_past = "2024-06-01T12:30:00Z"
    kind, body, near = await written(world, timestamp(half_past))
    world.wire.usual[FAR] = refused
    await near.receive(kind, body)
    await world.wait(2 * 3600)
    assert await near.state(M) is State.EXPIRED
    assert len(world.wire.to(FAR)) == 1
    assert len(world.wire.to(BUYER, "EBMS:0023")) == 1


@pytest.mark.req("P2-2.5.6-23", "P2-2.5.6-24")
@pytest.mark.parametrize("keep", [None, "P1D", "PT1M"])
@played
async def test_what_expires_in_a_channel_is_not_handed_out_and_its_sender_told(
    world: World, keep: str | None
) -> None:
    road(world, signed=False, retry={"max_retries": 0, "timeout": "PT1H"})
    user = {"username": "seller", "password": "a secret"}
    to = {"authorization": user} | ({"keep": keep} if keep else {})
    box = {"id": "box", "match": {"to_party": party(SELLER)}, "to": {"channel": to}}
    hub(world, NEAR, box, rule("home", BUYER, to_party=party(BUYER)))
    kind, body, near = await written(world, timestamp("2024-06-01T12:30:00Z"))
    assert (await near.receive(kind, body)).status == 202
    await world.wait(2 * 3600)
    assert await near.state(M) is State.EXPIRED
    code = "EBMS:0022" if keep == "PT1M" else "EBMS:0023"
    assert len(world.wire.to(BUYER, code)) == 1
    assert await near.work() == {}


@pytest.mark.req("P2-2.5.6-23")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_expired_a_moment_ago_is_not_handed_out_either(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    last_pull(world)
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(2)
    before = far.node.context.clock() - timedelta(seconds=1)

    def expire(tx: Transaction) -> None:
        tx.change_message(Side.FORWARDING, M, (State.READY,), expires_at=before)

    await far.node.context.store.run(expire)
    assert errors(await far.receive(SOAP, request(seller))) == ["EBMS:0006"]
    assert await seller.inbox() == []
