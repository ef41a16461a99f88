"""Doing the same thing for all that wait for it, one after the other.

A message passes through far more code than a processor keeps at hand. When many messages are under
way, it is much quicker to read them all, then to judge them all, than to do everything for each in
turn: whatever a step needs is loaded once for all of them.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from postroad.wire.errors import EbmsError

A = TypeVar("A")
R = TypeVar("R")


AT_ONCE: Final = 64
"""More are not done without a pause, in which the loop sees to other things."""


class Together(Generic[A, R]):
    """A step: `await step(item)` gives what the step's function makes of the item.

    The function is called once everybody who is ready now has asked, for each in their order. What
    stands `before` it is a step of its own: done with all items before the next is begun.
    """

    def __init__(self, function: Callable[[A], R], *before: Callable[[A], object]) -> None:
        self._function = function
        self._before = before
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []

    def __call__(self, item: A) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._run)
        return future

    def _run(self) -> None:
        waiting, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        waiting = [one for one in waiting if not one[1].done()]
        for step in self._before:
            waiting = [one for one in waiting if self._done(step, *one)]
        for item, future in waiting:
            try:
                result = self._function(item)
            except Exception as error:
                _fail(future, error)
            else:
                future.set_result(result)

    def _done(self, step: Callable[[A], object], item: A, future: asyncio.Future[R]) -> bool:
        try:
            step(item)
        except Exception as error:
            _fail(future, error)
            return False
        return True


def _fail(future: asyncio.Future[R], error: Exception) -> None:
    # A traceback would hold on to everything that waited here.
    named = isinstance(error, EbmsError)
    future.set_exception(error.with_traceback(None) if named else error)
