"""Three hubs between two ends, on a bad network, and one of the hubs crashes again and again.

Everything follows from the seed. Whatever happens, each message arrives once and with every byte,
its signed receipt finds its way back, and the journals of all stations tell the same road.
"""

import asyncio
import os
import random
from collections import Counter
from typing import Final

import pytest

from postroad.store.interface import StoreError
from postroad.store.records import Side, State, Wanted
from postroad.transport.http_outgoing import Reply, TransportFailure
from tests.node.hubs import FAR, NEAR, by_way_of, hub, rule
from tests.node.reliable import (
    BUYER,
    SELLER,
    STORES,
    Posted,
    Station,
    World,
    address,
    lost,
    party,
    passed,
    played,
    refused,
)
from tests.sim.loop import Died

MID: Final = "mid"
HUBS: Final = (NEAR, MID, FAR)
SEEDS: Final = int(os.environ.get("HUB_SEEDS", "8"))
_STORM: Final = 120.0
"""Seconds until nothing goes wrong any more."""
_HEALING: Final = 3600.0
_AGAIN: Final = {"max_retries": "unlimited", "timeout": "PT20S", "period": "PT5S"}


class Storm:
    """A network that loses, copies and delays, and somebody who kills one hub."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.draw = random.Random(seed)
        self.victim = self.draw.choice(HUBS)
        self.crashes = 0

    @property
    def over(self) -> bool:
        return asyncio.get_running_loop().time() > _STORM

    async def __call__(self, world: World, posted: Posted) -> Reply:
        luck = 1.0 if self.over else self.draw.random()
        if luck < 0.1:
            return await refused(world, posted)
        if luck < 0.2:
            return await lost(world, posted)
        try:
            if luck < 0.3:
                await asyncio.gather(passed(world, posted), passed(world, posted))
            if luck < 0.4:
                await asyncio.sleep(self.draw.uniform(1, 30))
            answer = await passed(world, posted)
        except (Died, StoreError) as died:
            raise TransportFailure("closed", "it died", transmitted=True) from died
        return await lost(world, posted) if 0.4 < luck < 0.5 else answer

    async def crash(self) -> None:
        """At any moment; it is down for a while."""
        while not self.over:
            await asyncio.sleep(self.draw.uniform(1, 20))
            self.world.stations.pop(self.victim).kill()
            self.crashes += 1
            await asyncio.sleep(self.draw.uniform(0.1, 10))
            await self.world.start(self.victim)


def road(world: World, *, signed: bool) -> None:
    """The middle hub can be passed by, in both directions."""
    world.agree(receipt="callback", signed=signed, retry=_AGAIN)
    by_way_of(world, NEAR)
    for pmode in world._pmodes[SELLER]:
        pmode["legs"][0]["security"]["send_receipt"]["reply_to"] = address(FAR)
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    soon = {"max_retries": "unlimited", "timeout": "PT3S", "period": "PT3S", "max_period": "PT10S"}
    hub(world, NEAR, rule("there", [MID, FAR], soon, **there), rule("back", BUYER, soon, **back))
    hub(world, MID, rule("there", FAR, soon, **there), rule("back", NEAR, soon, **back))
    hub(world, FAR, rule("there", SELLER, soon, **there), rule("back", [MID, NEAR], soon, **back))


async def submit(world: World, draw: random.Random, count: int) -> list[str]:
    names = [f"m{number}@buyer" for number in range(count)]
    for name in names:
        await world.wait(draw.uniform(0, _STORM / count))
        await world.stations[BUYER].send(name)
    return names


async def settled(world: World, names: list[str]) -> None:
    """Nothing is left to do anywhere."""
    until = asyncio.get_running_loop().time() + _HEALING
    while asyncio.get_running_loop().time() < until:
        await world.wait(10)
        states = {await world.stations[BUYER].state(name) for name in names}
        work = [await one.work() for one in world.stations.values()]
        if states == {State.ACKNOWLEDGED} and not any(work):
            return
    raise AssertionError(f"not at rest: {states} {work}")


async def carried(station: Station) -> list[State]:
    wanted = Wanted(Side.FORWARDING, limit=1000)
    return [one.state for one in await station.node.messages(wanted)]


@pytest.mark.req("P2-2.4.1-01", "P2-2.4.3-01", "P2-2.5.2-01", "P2-7.1-02", "P2-7.1-03")
@pytest.mark.parametrize("seed", range(SEEDS))
@played
async def test_each_message_arrives_once_whichever_hub_crashes(world: World, seed: int) -> None:
    draw = random.Random(f"{seed}/plan")
    world.kept_in = STORES[seed % 2]
    road(world, signed=seed % 4 == 0)
    for name in (BUYER, SELLER, *HUBS):
        await world.start(name)
    storm = Storm(world, seed)
    world.wire.usual |= dict.fromkeys((BUYER, SELLER, *HUBS), storm)
    chaos = asyncio.create_task(storm.crash())
    names = await submit(world, draw, draw.choice((3, 10, 20)))
    await chaos
    await settled(world, names)
    assert storm.crashes > 2
    inbox = await world.stations[SELLER].inbox()
    assert (sorted(inbox), len(inbox)) == (sorted(names), len(names))
    for name in names:
        copies = {
            (one.content_type, one.body)
            for one in world.wire.posted
            if one.content_type.startswith("multipart") and f">{name}<".encode() in one.body
        }
        assert len(copies) == 1, "no hub changes a byte"
        await told(world, name)
    for name in HUBS:
        assert set(await carried(world.stations[name])) <= {State.SENT}


async def told(world: World, name: str) -> None:
    """The journals of all stations, brought together, tell one road from end to end."""
    rows = [
        (one.at, station, one)
        for station in (BUYER, *HUBS, SELLER)
        for one in await world.stations[station].events(name)
        if one.signal_id is None
    ]
    events = Counter((station, one.event) for _, station, one in rows)
    assert events[BUYER, "submitted"] == events[SELLER, "delivered"] == 1
    assert events[NEAR, "received"] == events[FAR, "received"] == 1
    assert events[NEAR, "forwarded"] >= 1
    assert events[FAR, "forwarded"] >= 1
    first = {
        (station, one.event): at for at, station, one in sorted(rows, key=lambda row: row[0])[::-1]
    }
    assert first[BUYER, "submitted"] <= first[NEAR, "received"] <= first[FAR, "received"]
    assert first[FAR, "received"] <= first[SELLER, "delivered"]
