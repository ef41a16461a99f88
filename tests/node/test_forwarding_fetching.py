"""Push on pull: a hub pulls from a sender's channel, and passes on what comes."""

from typing import Any

import pytest

from postroad.store.records import State
from postroad.wire.names import DEFAULT_MPC
from tests.node.hubs import FAR, NEAR, hub, road, rule
from tests.node.reliable import (
    BUYER,
    LARGE,
    SELLER,
    STORES,
    Station,
    World,
    address,
    party,
    played,
    refused,
)

M, N = "m@buyer", "n@buyer"
USER = {"username": "near", "password": "a secret of ours"}


def first_pull(world: World, *rules: Any, user: dict[str, str] = USER, **more: Any) -> None:
    """near pulls from the buyer, and pushes to far, which pushes to the seller."""
    road(world)
    inbound = {"mpc": f"{DEFAULT_MPC}/out", "address": address(BUYER), "authorization": user}
    over = rules or (rule("over", FAR, to_party=party(SELLER)),)
    hub(world, NEAR, *over, pull=[inbound | {"interval": "PT10S"}], **more)
    [pmode] = world._pmodes[BUYER]
    [leg] = pmode["legs"]
    leg["protocol"]["address"] = address(BUYER)
    leg["business_info"]["sub_mpc_ext"] = "out"
    leg["pulling"] = {"scheduled": False}
    pmode |= {
        "mep_binding": "pull",
        "initiator": pmode["responder"] | {"authorization": USER},
        "responder": pmode["initiator"],
    }


async def start(world: World) -> tuple[Station, Station, Station]:
    buyer, seller = await world.both()
    await world.start(FAR)
    return buyer, await world.start(NEAR), seller


@pytest.mark.req("P2-2.5.1-02", "P2-2.5.3-01", "P2-2.5.3-02", "P2-2.5.3-03")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_a_hub_pulls_it_passes_on_with_every_byte(
    world: World, kept_in: str, payload: bytes
) -> None:
    world.kept_in = kept_in
    first_pull(world)
    buyer, near, seller = await start(world)
    for name in (M, N):
        await buyer.send(name, payload=payload)
    await world.wait(30)
    assert sorted(await seller.inbox()) == [M, N]
    assert await near.story(M) == ["received", "forwarded"]
    assert await buyer.state(M) is await buyer.state(N) is State.ACKNOWLEDGED
    [far], [there] = world.wire.to(FAR, M), world.wire.to(SELLER, M)
    assert far.body == there.body
    assert b"defaultMPC/out" not in far.body


@played
async def test_a_hub_that_may_not_pull_tells_it(world: World) -> None:
    first_pull(world, user=USER | {"password": "wrong"})
    buyer, near, seller = await start(world)
    await buyer.send(M)
    await world.wait(15)
    [first, *_] = await near.journal("error_raised")
    assert (first.error_code, first.peer) == ("EBMS:0101", address(BUYER))
    assert await seller.inbox() == []
    assert await buyer.state(M) is State.READY


@played
async def test_an_empty_channel_is_asked_after_the_interval(world: World) -> None:
    first_pull(world)
    _, near, _ = await start(world)
    await world.wait(31)
    assert 3 <= len(world.wire.to(BUYER, "PullRequest")) <= 4
    assert await near.journal("error_raised") == []


@pytest.mark.req("P2-2.5.6-01")
@played
async def test_what_was_pulled_and_has_no_rule_is_reported_to_its_sender(world: World) -> None:
    first_pull(world, rule("back", BUYER, to_party=party(BUYER)))
    buyer, near, seller = await start(world)
    await buyer.send(M)
    await world.wait(15)
    [report] = world.wire.to(BUYER, "EBMS:0020")
    assert b"orders.error" in report.body
    [raised] = await near.journal("error_raised")
    assert (raised.message_id, raised.error_code) == (M, "EBMS:0020")
    assert await seller.inbox() == []


@played
async def test_a_channel_that_cannot_be_reached_is_asked_again(world: World) -> None:
    first_pull(world)
    buyer, _, seller = await start(world)
    await buyer.send(M)
    world.wire.will(refused, at=BUYER)
    await world.wait(15)
    assert await seller.inbox() == [M]
