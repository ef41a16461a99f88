"""Steps that are done for many at once."""

import asyncio

import pytest

from postroad.node.base.together import AT_ONCE, Together


def test_all_that_wait_are_served_in_their_order_in_one_go() -> None:
    served: list[list[int]] = []

    async def scenario() -> list[int]:
        def double(number: int) -> int:
            served[-1].append(number)
            return 2 * number

        step = Together(double)

        async def ask(number: int) -> int:
            if number == 0:
                served.append([])
            return await step(number)

        return await asyncio.gather(*(ask(number) for number in range(5)))

    assert asyncio.run(scenario()) == [0, 2, 4, 6, 8]
    assert served == [[0, 1, 2, 3, 4]]


def test_one_that_fails_harms_no_other_and_who_left_is_passed_over() -> None:
    async def scenario() -> None:
        seen: list[int] = []

        def divide(number: int) -> float:
            seen.append(number)
            return 1 / number

        step = Together(divide)
        asked = [step(number) for number in (2, 0, 4, 5)]
        asked[3].cancel()
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert done[0] == 0.5
        assert isinstance(done[1], ZeroDivisionError)
        assert done[2] == 0.25
        assert isinstance(done[3], asyncio.CancelledError)
        assert await step(8) == 0.125
        assert 8 in seen

    asyncio.run(scenario())


def test_who_asks_while_others_are_served_comes_next() -> None:
    async def scenario() -> list[str]:
        order: list[str] = []
        step = Together(order.append)

        async def twice(name: str) -> None:
            await step(f"{name}1")
            await step(f"{name}2")

        await asyncio.gather(twice("a"), twice("b"))
        return order

    assert asyncio.run(scenario()) == ["a1", "b1", "a2", "b2"]


@pytest.mark.parametrize("count", [1, 3])
def test_each_gets_its_own_answer(count: int) -> None:
    async def scenario() -> list[str]:
        step = Together(str)
        return await asyncio.gather(*(step(number) for number in range(count)))

    assert asyncio.run(scenario()) == [str(number) for number in range(count)]


def test_each_step_is_done_for_all_before_the_next_and_not_for_who_failed() -> None:
    done: list[tuple[str, int]] = []

    def read(number: int) -> None:
        done.append(("read", number))
        if number == 1:
            raise ValueError(number)

    def judge(number: int) -> int:
        done.append(("judge", number))
        return -number

    async def scenario() -> list[int | BaseException]:
        walk = Together(judge, read)
        return await asyncio.gather(*(walk(number) for number in range(3)), return_exceptions=True)

    first, second, third = asyncio.run(scenario())
    assert (first, third) == (0, -2)
    assert isinstance(second, ValueError)
    assert done == [("read", 0), ("read", 1), ("read", 2), ("judge", 0), ("judge", 2)]


def test_of_very_many_some_are_done_after_what_else_the_loop_has_to_do() -> None:
    async def scenario() -> list[object]:
        order: list[object] = []
        step = Together(order.append)
        asked = [step(number) for number in range(AT_ONCE + 1)]
        asyncio.get_running_loop().call_soon(order.append, "else")
        await asyncio.gather(*asked)
        return order

    assert asyncio.run(scenario()) == [*range(AT_ONCE), "else", AT_ONCE]
