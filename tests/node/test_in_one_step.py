"""Steps of the store that are taken together."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from postroad.node.base.in_one_step import InOneStep
from postroad.store.interface import StoreError, Transaction
from postroad.store.memory import open_memory
from tests.store.samples import message


class Full:
    """A store on a full disk."""

    async def run(self, step: Any) -> Any:
        raise StoreError("the disk is full")


def _add(tx: Transaction, name: str) -> bool:
    return tx.add_message(message(name))


def _add_all(tx: Transaction, names: Sequence[str]) -> list[str]:
    tx.add_messages([message(one) for one in names])
    return [f"{one} with others" for one in names]


def test_all_that_is_ready_in_the_same_moment_is_one_step() -> None:
    async def scenario() -> None:
        step: InOneStep[str, str | bool] = InOneStep(await open_memory(), _add_all, _add)
        first = await asyncio.gather(step("a@x"), step("b@x"))
        assert first == ["a@x with others", "b@x with others"]
        assert await step("c@x") == "c@x with others"

    asyncio.run(scenario())


def test_what_cannot_be_written_together_is_written_one_by_one() -> None:
    async def scenario() -> None:
        store = await open_memory()
        step: InOneStep[str, str | bool] = InOneStep(store, _add_all, _add)
        await store.run(lambda tx: tx.add_message(message("b@x")))
        assert await asyncio.gather(*map(step, ("a@x", "b@x", "c@x"))) == [True, False, True]

    asyncio.run(scenario())


def test_an_error_is_told_to_the_one_that_it_is_about() -> None:
    def alone(tx: Transaction, number: int) -> int:
        return 10 // number

    def together(tx: Transaction, numbers: Sequence[int]) -> list[int]:
        return [10 // one for one in numbers]

    async def scenario() -> list[int | BaseException]:
        step = InOneStep(await open_memory(), together, alone)
        return await asyncio.gather(*map(step, (5, 0, 2)), return_exceptions=True)

    five, none, two = asyncio.run(scenario())
    assert (five, two) == (2, 5)
    assert isinstance(none, ZeroDivisionError)


def test_a_store_that_fails_is_told_to_all_and_not_asked_again() -> None:
    async def scenario() -> None:
        step: InOneStep[str, str | bool] = InOneStep(Full(), _add_all, _add)  # type: ignore[arg-type]
        for one in [asyncio.ensure_future(step(name)) for name in ("a@x", "b@x")]:
            with pytest.raises(StoreError, match="full"):
                await one

    asyncio.run(scenario())


def test_who_left_is_passed_over() -> None:
    async def scenario() -> None:
        store = await open_memory()
        step: InOneStep[str, str | bool] = InOneStep(store, _add_all, _add)
        asked = [asyncio.ensure_future(step(name)) for name in ("a@x", "b@x")]
        await asyncio.sleep(0)
        asked[0].cancel()
        assert await asked[1] == "b@x with others"
        assert await store.look(lambda reader: reader.message(message("a@x").side, "a@x")) is None

    asyncio.run(scenario())
