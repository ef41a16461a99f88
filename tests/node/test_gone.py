"""Senders that close the connection before their message is stored: no work is spent on them."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from postroad.msh.inspection import Look
from postroad.transport.http_body import Abandoned
from tests.node.reliable import BUYER, LARGE, ORDER, SELLER, Posted, World, lost, played

RELIABLY = {"delivery_semantics": "OnceAndOnlyOnce", "profile": "ms098"}
WAYS = ("small", "large", "ebxml")


async def _lost(world: World, way: str) -> Posted:
    """A message that left and did not arrive."""
    if way == "ebxml":
        world.speak(signed=True, **RELIABLY)
    else:
        world.agree(signed=True, retry={"max_retries": 1})
    await world.both()
    world.wire.will(lost)
    payload = LARGE if way == "large" else ORDER
    await world.stations[BUYER].send("m@buyer", payload=payload)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    return posted


def _after(looks: int) -> Callable[[], bool]:
    """Who is there when the receiver looks so often, and then gone."""
    answers = iter([False] * looks)
    return lambda: next(answers, True)


async def _receive(world: World, posted: Posted, is_gone: Callable[[], bool]) -> None:
    await world.stations[SELLER].receive(
        posted.content_type, posted.body, posted.soap_action, is_gone=is_gone
    )


@pytest.mark.parametrize("way", WAYS)
@played
async def test_nothing_is_verified_for_a_sender_that_is_gone(world: World, way: str) -> None:
    posted = await _lost(world, way)
    with patch.object(Look, "judge", autospec=True) as judged, pytest.raises(Abandoned):
        await _receive(world, posted, _after(0))
    assert not judged.called
    assert await world.stations[SELLER].journal("received", "rejected", "error_raised") == []


@pytest.mark.parametrize("way", WAYS)
@played
async def test_whenever_a_sender_leaves_its_message_is_stored_once_or_not_at_all(
    world: World, way: str
) -> None:
    posted, seller = await _lost(world, way), world.stations[SELLER]
    looks = 0
    while True:
        try:
            await _receive(world, posted, _after(looks))
        except Abandoned:
            assert await seller.inbox() == []
            looks += 1
        else:
            break
    assert looks >= 2
    assert await seller.inbox() == ["m@buyer"]
    with pytest.raises(Abandoned):
        await _receive(world, posted, _after(0))
    assert await seller.inbox() == ["m@buyer"]
