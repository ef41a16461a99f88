"""Two-way exchanges while answers are lost and nodes die: what both sides say is true."""

import asyncio
import random
from datetime import timedelta
from typing import Final

import pytest

from postroad.node.service import Refused
from postroad.store.interface import StoreError
from postroad.store.records import Message, Side, State, Wanted
from postroad.transport.http_outgoing import Reply, TransportFailure
from tests.node.asking import AGAIN, ASYNCHRONOUS, PRICES, ask, reply
from tests.node.reliable import BUYER, SELLER, Posted, World, address, lost, passed, played, refused
from tests.sim.loop import Died

SEEDS: Final = 8
_STORM: Final = 90
"""Seconds until nothing goes wrong any more."""
_BINDINGS: Final = (
    *ASYNCHRONOUS,
    "sync",
    "sync pushAndPull",
    "sync pushAndPush",
    "sync pushAndPull",
)
_REST: Final = (
    State.ACKNOWLEDGED,
    State.SENT,
    State.FAILED,
    State.EXPIRED,
    State.IN_DOUBT,
)
_PULLED: Final = {"scheduled": True, "interval": "PT3S", "longest": "PT10S"}


class Storm:
    """A network that loses a part of everything, and somebody who kills nodes."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self._world = world
        self._draw = draw

    @property
    def over(self) -> bool:
        return asyncio.get_running_loop().time() > _STORM

    async def __call__(self, world: World, posted: Posted) -> Reply:
        luck = 1.0 if self.over else self._draw.random()
        if luck < 0.1:
            return await refused(world, posted)
        if luck < 0.25:
            return await lost(world, posted)
        try:
            if luck < 0.35:
                await asyncio.gather(passed(world, posted), passed(world, posted))
            given = await passed(world, posted)
        except (Died, StoreError) as died:
            raise TransportFailure("closed", "it died", transmitted=True) from died
        if luck < 0.6:
            return await lost(world, posted)
        return given

    async def kill(self, name: str) -> None:
        """Now and then, as long as the storm lasts."""
        while True:
            await asyncio.sleep(self._draw.uniform(10, 60))
            if self.over:
                return
            self._world.stations.pop(name).kill()
            await asyncio.sleep(self._draw.uniform(0.1, 5))
            await self._world.start(name)


async def _answer(world: World, draw: random.Random) -> None:
    """The seller's application: it takes its time, and answers as long as it may."""
    while True:
        await asyncio.sleep(draw.uniform(0.5, 5))
        seller = world.stations.get(SELLER)
        if seller is None:
            continue
        try:
            for name in await seller.inbox():
                if draw.random() < 0.6:
                    await reply(seller, f"r-{name}", to=name)
        except (Refused, Died, StoreError):
            continue


async def _weather(world: World, seed: int) -> None:
    draw = random.Random(seed)
    binding, _, alternate = draw.choice(_BINDINGS).partition(" ")
    receipts = draw.choice((("response", "response"), ("callback", "response"), (None, None)))
    retry = {**AGAIN, "max_retries": draw.choice((2, 4, 30))}
    ask(
        world,
        binding,
        alternate=alternate or None,
        receipts=receipts,
        retry=retry if receipts[0] and draw.random() < 0.7 else None,
        **_PULLED,
    )
    for pmode in (one for name in (BUYER, SELLER) for one in world._pmodes[name]):
        receipt = pmode["legs"][0]["security"].get("send_receipt", {})
        if receipt.get("reply_pattern") == "callback" and not binding.startswith("pull"):
            receipt["reply_to"] = address(BUYER)
    world.configure(SELLER, http={"reply_timeout": "PT3S"})
    storm = Storm(world, draw)
    for name in (BUYER, SELLER):
        world.wire.usual[name] = storm
    await world.both()
    tasks = [asyncio.ensure_future(storm.kill(name)) for name in (BUYER, SELLER)]
    tasks.append(asyncio.ensure_future(_answer(world, draw)))
    for number in range(4):
        while BUYER not in world.stations:
            await asyncio.sleep(0.1)
        try:
            await world.stations[BUYER].send(f"q{number}@buyer", PRICES)
        except (Died, StoreError):
            continue
        await asyncio.sleep(draw.uniform(0, 15))
    await world.until(1500)
    for task in tasks:
        task.cancel()


def _is_at_rest(one: Message) -> bool:
    """A receipt that calls back is waited for a day where nothing is sent again."""
    later = one.due_at is not None and one.due_at - one.created_at >= timedelta(days=1)
    return one.state in _REST or (one.state is State.WAITING and later)


async def _check(world: World) -> None:
    buyer, seller = (world.stations[name] for name in (BUYER, SELLER))
    asked, answered = set(await seller.inbox()), set(await buyer.inbox())
    wanted = Wanted(Side.SENDING)
    for one in await buyer.node.messages(wanted):
        name, there = one.message_id, one.message_id in asked
        assert _is_at_rest(one), f"{name} is {one.state}"
        if one.state is State.ACKNOWLEDGED:
            assert there, f"{name} is acknowledged, and was not delivered"
        if one.state in (State.FAILED, State.EXPIRED):
            assert not there, f"{name} is {one.state}, and was delivered"
        known = one.reply_message_id
        assert (known in answered) if known else f"r-{name}" not in answered, name
    for one in await seller.node.messages(wanted):
        name, there = one.message_id, one.message_id in answered
        request = await buyer.message(one.ref_to_message_id or "", Side.SENDING)
        if one.late and not request.late:
            # Who asked was never told where the reply is: the request is in doubt, or was once.
            assert request.state in (State.IN_DOUBT, State.ACKNOWLEDGED, State.SENT), name
            continue
        assert _is_at_rest(one), f"{name} is {one.state}"
        if one.state is State.ACKNOWLEDGED:
            assert there, f"{name} is acknowledged, and was not delivered"
        if one.state in (State.FAILED, State.EXPIRED):
            assert not there, f"{name} is {one.state}, and was delivered"
    left = {**await buyer.work(), **await seller.work()}
    assert left.keys() <= {"collect", "send", "offer"}, left


@pytest.mark.parametrize("seed", range(SEEDS))
@played
async def test_in_a_storm_each_request_and_reply_is_delivered_once_or_told(
    world: World, seed: int
) -> None:
    await _weather(world, seed)
    await _check(world)
