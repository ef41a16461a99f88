"""Every request of every protocol, recorded and sent again with hostile text in each field.

Whatever it says, it is answered, and no exception is one that nobody thought of: `played` fails
when the log has one.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.hostile import FEW, variants
from tests.node import ebxml_letters as letters
from tests.node import sequences, splitting, test_wsreliability
from tests.node.hubs import hubs, road
from tests.node.reliable import BUYER, SELLER, World, played

M: Final = "m@buyer"
_envelope: Final = re.compile(rb"<(\w[\w-]*:)?Envelope[ >].*?</(\w[\w-]*:)?Envelope>", re.DOTALL)


async def _push(world: World, **terms: Any) -> None:
    world.agree(**terms)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)


async def _routed(world: World) -> None:
    road(world, signed=False)
    buyer, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(5)


async def _split(world: World) -> None:
    splitting.agree(world, receipts=True)
    buyer, _ = await world.both()
    await buyer.send(splitting.BIG, payload=splitting.PAYLOAD[:70_000])
    await world.wait(5)


async def _sequence(world: World) -> None:
    sequences.agree(world, pattern="Callback")
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(5)


async def _reliability(world: World) -> None:
    test_wsreliability.agree(world, pattern="Poll")
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(30)


def _ebxml(version: str) -> Callable[[World], Awaitable[None]]:
    async def exchange(world: World) -> None:
        world.speak(**letters.reliable_terms(version))
        await letters.listening(world, SELLER)
        buyer = await letters.listening(world, BUYER)
        world.wire.usual.clear()
        await buyer.send(M)
        await world.wait(5)

    return exchange


EXCHANGES: Final[dict[str, Callable[[World], Awaitable[None]]]] = {
    "push": lambda world: _push(world, receipt="callback"),
    "SOAP 1.1": lambda world: _push(world, receipt="callback", soap="1.1"),
    "hubs": _routed,
    "fragments": _split,
    "WS-ReliableMessaging": _sequence,
    "WS-Reliability": _reliability,
    **{f"ebXML {version}": _ebxml(version) for version in letters.VERSIONS},
}


@pytest.mark.parametrize("protocol", EXCHANGES)
@played
async def test_no_field_of_a_request_causes_an_unnamed_error(world: World, protocol: str) -> None:
    await EXCHANGES[protocol](world)
    recorded = list(world.wire.posted)
    assert recorded
    found = []
    seen = set()
    for posted in recorded:
        match = _envelope.search(posted.body)
        assert match is not None
        kind = (posted.receiver, *re.findall(rb"<(?:\w+:)?(\w+)", match[0]))
        if kind in seen:
            continue
        seen.add(kind)
        station = world.stations[posted.receiver]
        for what, changed in variants(match[0], FEW):
            body = posted.body[: match.start()] + changed + posted.body[match.end() :]
            try:
                response = await station.receive(
                    posted.content_type, body, posted.soap_action, posted.stations
                )
                if response.handed is not None:
                    await response.handed(True)
            except Exception as error:
                found.append(f"{posted.receiver}: {what}: {error!r}")
    await world.wait(60)
    assert not found, f"{len(found)}:\n" + "\n".join(found[:50])
