"""The loop of the simulation: time that is made up, and processes that can be killed."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.sim.loop import Died, Process, Runaway, Stuck, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.bury()
    made.close()


def test_time_passes_as_fast_as_nobody_has_anything_to_do(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == 86_400


def test_timers_of_the_same_time_go_off_in_the_order_in_which_they_were_set(
    loop: VirtualLoop,
) -> None:
    seen: list[int] = []

    async def story() -> None:
        for number in range(50):
            asyncio.get_running_loop().call_at(7, seen.append, number)
        await asyncio.sleep(7)

    loop.run_until_complete(story())
    assert seen == list(range(50))


def test_what_is_given_to_a_thread_is_done_at_once(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def story() -> None:
        waiting = asyncio.ensure_future(asyncio.to_thread(seen.append, "thread"))
        await asyncio.sleep(0)
        seen.append("loop")
        await waiting

    loop.run_until_complete(story())
    assert seen == ["thread", "loop"]


def test_waiting_for_what_never_comes_is_told(loop: VirtualLoop) -> None:
    with pytest.raises(Stuck):
        loop.run_until_complete(_never())


def test_a_loop_without_end_is_told(loop: VirtualLoop) -> None:
    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Runaway):
        loop.run_until_complete(busy())


def _lives(seen: list[str]) -> Coroutine[Any, Any, None]:
    async def life() -> None:
        try:
            for second in range(10):
                seen.append(f"{second} s")
                await asyncio.sleep(1)
        finally:
            seen.append("cleaned up")

    return life()


def test_of_a_process_that_is_killed_not_a_step_more_is_run(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def story() -> None:
        process = Process("mortal")
        process.spawn(_lives(seen))
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(100)

    loop.run_until_complete(story())
    assert seen == ["0 s", "1 s", "2 s"]


def test_what_a_process_began_dies_with_it(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def parent() -> None:
        child = asyncio.create_task(_lives(seen))
        asyncio.get_running_loop().call_later(5, seen.append, "timer")
        await child

    async def story() -> None:
        process = Process("parent")
        process.spawn(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(100)

    loop.run_until_complete(story())
    assert seen == ["0 s"]


def test_who_asked_a_process_learns_of_its_death(loop: VirtualLoop) -> None:
    async def story() -> None:
        process = Process("mortal")
        asyncio.get_running_loop().call_later(3, process.kill)
        with pytest.raises(Died):
            await process.ask(_never())
        assert asyncio.get_running_loop().time() == 3

    loop.run_until_complete(story())


def test_a_dead_process_is_asked_in_vain(loop: VirtualLoop) -> None:
    async def story() -> None:
        process = Process("dead")
        process.kill()
        with pytest.raises(Died):
            await process.ask(asyncio.sleep(1))

    loop.run_until_complete(story())


async def _never() -> None:
    await asyncio.get_running_loop().create_future()
