"""Bundles that pass hubs: forwarded as they are, by their primary unit, and never judged there."""

import copy

import pytest

from postroad.store.records import State
from tests.node.bundled import NAMES, UPDATES, bundling, units
from tests.node.hubs import FAR, NEAR, PATIENT, by_way_of, hub, rule
from tests.node.reliable import BUYER, SELLER, Station, World, party, played


async def on_the_road(world: World) -> tuple[Station, Station]:
    """buyer, near, far, seller; the hubs have the P-Mode of the bundle's units too."""
    terms = bundling(max_size="1 MiB")
    world.agree(UPDATES, receipt="callback", retry=PATIENT, bundling=terms)
    by_way_of(world, NEAR)
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("over", FAR, **there), rule("home", BUYER, **back))
    hub(world, FAR, rule("home", SELLER, **there), rule("over", NEAR, **back))
    for name in (NEAR, FAR):
        world._pmodes[name] = copy.deepcopy(world._pmodes[SELLER])
    buyer = await world.start(BUYER)
    await world.start(NEAR)
    await world.start(FAR)
    return buyer, await world.start(SELLER)


def allow_at(world: World, name: str, max_size: str) -> None:
    world._pmodes[name][0]["legs"][0]["bundling"]["max_size"] = max_size


@pytest.mark.req("P2-3.9-01", "P2-3.9-02")
@played
async def test_hubs_pass_a_bundle_on_as_any_message(world: World) -> None:
    buyer, seller = await on_the_road(world)
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(20)
    [first], [second], [third] = (world.wire.to(at, NAMES[0])[:1] for at in (NEAR, FAR, SELLER))
    assert first.body == second.body == third.body
    assert units(third) == list(NAMES)
    assert await seller.inbox() == list(NAMES)
    assert [await buyer.state(name) for name in NAMES] == 3 * [State.ACKNOWLEDGED]
    # A hub knows of the primary only: that is the message.
    near = world.stations[NEAR]
    assert await near.node.message(NAMES[0]) is not None
    assert await near.node.message(NAMES[1]) is None


@pytest.mark.req("P2-3.5-07")
@played
async def test_only_who_receives_a_bundle_says_that_it_is_too_large(world: World) -> None:
    buyer, seller = await on_the_road(world)
    for name in (NEAR, FAR, SELLER):
        allow_at(world, name, "1 KiB")
        world._write(name)
        assert (await world.stations[name].node.reload()).ok
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(20)
    [third] = world.wire.to(SELLER, NAMES[0])
    assert units(third) == list(NAMES)
    told = {name: await world.stations[name].journal("rejected") for name in (NEAR, FAR, SELLER)}
    assert (told[NEAR], told[FAR]) == ([], [])
    assert {one.error_code for one in told[SELLER]} == {"EBMS:0030"}
    assert await seller.inbox() == []
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.error_code) == (State.FAILED, "EBMS:0030")
