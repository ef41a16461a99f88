"""A receiver that is short of time, on a clock that is made up: no storm of retries.

The receiver has one processor, which takes requests in the order in which they came. While it is
starved a request takes it longer than its sender waits; then it is as quick as ever. Nothing here
is random.
"""

import asyncio
from typing import Final
from unittest.mock import patch

import pytest

from postroad.node.base.requests import Response
from postroad.node.base.windows import Windows
from postroad.store.records import State, Wanted
from postroad.transport.http_body import Truncated
from postroad.transport.http_outgoing import Reply, TransportFailure
from tests.node.reliable import BUYER, SELLER, Posted, World, played

MESSAGES: Final = 400
PATIENCE: Final = 8.0
"""Seconds that the sender waits for an answer."""
STARVED: Final = 100.0
"""Seconds after the beginning until which the receiver is starved."""
QUICK: Final = 0.1
"""Seconds that a request takes the receiver when it is not."""
DRAINED: Final = 100.0
"""Seconds after that in which all messages are to be acknowledged: 40 of them are work."""
_RETRY: Final = {"max_retries": "unlimited", "timeout": "PT10S", "period": "PT10S"}


class Starved:
    """A receiver to which a request takes so many seconds while it is starved."""

    def __init__(self, seconds: float, *, sees_who_is_gone: bool) -> None:
        self._seconds = seconds
        self._sees = sees_who_is_gone
        self._processor = asyncio.Lock()
        self.dropped = 0
        self.in_vain = 0
        """How often it worked for a sender that had gone."""

    async def __call__(self, world: World, posted: Posted) -> Reply:
        gone = asyncio.Event()
        working = asyncio.ensure_future(self._work(world, posted, gone))
        try:
            response = await asyncio.wait_for(asyncio.shield(working), PATIENCE)
        except TimeoutError:
            gone.set()
            raise TransportFailure("timeout", "no answer in time", transmitted=True) from None
        return Reply(response.status, response.content_type or "", (), response.body)

    async def _work(self, world: World, posted: Posted, gone: asyncio.Event) -> Response:
        station = world.stations[posted.receiver]
        is_gone = gone.is_set if self._sees else None
        async with self._processor:
            try:
                response = await station.receive(posted.content_type, posted.body, is_gone=is_gone)
            except Truncated:
                self.dropped += 1
                return Response(400)
            starved = asyncio.get_running_loop().time() < STARVED
            await asyncio.sleep(self._seconds if starved else QUICK)
        self.in_vain += gone.is_set()
        return response


async def _acknowledged(world: World) -> int:
    wanted = Wanted(states=(State.ACKNOWLEDGED,), limit=2 * MESSAGES)
    return len(await world.stations[BUYER].node.messages(wanted))


async def _weather(world: World, starved: Starved) -> float:
    """Hand in all messages; the seconds from the recovery until all are acknowledged."""
    world.agree(retry=_RETRY)
    world.configure(BUYER, http={"answer_timeout": f"PT{PATIENCE:g}S"})
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = starved
    for number in range(MESSAGES):
        await buyer.send(f"m{number}@buyer")
    loop = asyncio.get_running_loop()
    while await _acknowledged(world) < MESSAGES:
        assert loop.time() < STARVED + 10 * DRAINED
        await asyncio.sleep(1)
    return loop.time() - STARVED


@pytest.mark.parametrize("seconds", [1.0, 2 * PATIENCE], ids=["few answers", "no answer"])
@played
async def test_backlog_drains_soon_after_a_starved_receiver_recovers(
    world: World, seconds: float
) -> None:
    starved = Starved(seconds, sees_who_is_gone=True)
    assert await _weather(world, starved) < DRAINED
    wasted = len(world.wire.to(SELLER)) - MESSAGES
    assert wasted < MESSAGES / 2
    assert starved.in_vain < MESSAGES / 10
    # All that the receiver did not work for was dropped.
    assert starved.dropped >= wasted - starved.in_vain
    limits = [one for one in world.stations[BUYER].node.metrics() if "send_limit" in one]
    [limit] = limits
    assert 'partner="urn:example:seller",address="http://seller.example/msh"' in limit


@pytest.mark.parametrize("seconds", [1.0, 2 * PATIENCE], ids=["few answers", "no answer"])
@played
async def test_without_window_and_dropping_there_is_a_storm(world: World, seconds: float) -> None:
    starved = Starved(seconds, sees_who_is_gone=False)
    with patch.object(Windows, "limit", lambda self, partner: MESSAGES):
        assert await _weather(world, starved) > 1.5 * DRAINED
    assert len(world.wire.to(SELLER)) > 2 * MESSAGES
    assert starved.in_vain > MESSAGES
