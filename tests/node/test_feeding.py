"""Large pieces of a body are taken beside the loop, one after the other."""

import asyncio
import threading

import pytest

from postroad.node.base.feeding import Feeder
from postroad.store.interface import StoreFull
from postroad.wire.limits import MIB

LARGE, SMALL = bytes(MIB), bytes(1000)


def test_a_large_piece_is_taken_while_the_loop_goes_on() -> None:
    loop_went_on, taken = threading.Event(), []

    def take(piece: bytes) -> None:
        taken.append((len(piece), loop_went_on.wait(60)))

    async def scenario() -> None:
        feeding = asyncio.ensure_future(Feeder().feed(take, LARGE))
        await asyncio.sleep(0)
        loop_went_on.set()
        await feeding

    asyncio.run(scenario())
    assert taken == [(MIB, True)]


def test_a_small_piece_is_taken_at_once() -> None:
    threads: list[int] = []
    feeding = Feeder().feed(lambda _: threads.append(threading.get_ident()), SMALL)
    asyncio.run(feeding)
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("piece", [LARGE, SMALL])
def test_what_is_wrong_with_a_piece_is_raised(piece: bytes) -> None:
    def take(_: bytes) -> None:
        raise StoreFull("the disk is full")

    with pytest.raises(StoreFull):
        asyncio.run(Feeder().feed(take, piece))


def test_who_is_cancelled_waits_until_nobody_is_at_the_piece() -> None:
    begun, go_on, over = threading.Event(), threading.Event(), []

    def take(_: bytes) -> None:
        begun.set()
        over.append(go_on.wait(60))

    async def scenario() -> None:
        feeding = asyncio.ensure_future(Feeder().feed(take, LARGE))
        await asyncio.to_thread(begun.wait, 60)
        feeding.cancel()
        asyncio.get_running_loop().call_later(0.01, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await feeding
        assert over == [True], "it could be given up meanwhile"

    asyncio.run(scenario())
