"""Doing the same thing for all that wait for it, one after the other.

A message passes through far more code than a processor keeps at hand. When many messages are under
way, it is much quicker to read them all, then to judge them all, than to do everything for each in
turn: whatever a step needs is loaded once for all of them.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from postroad.wire.errors import EbmsError

A = TypeVar("A")
R = TypeVar("R")


class Together(Generic[A, R]):
    """A step: `await step(item)` gives what the step's function makes of the item.

    The function is called once everybody who is ready now has asked, for each in their order.
    """

    def __init__(self, function: Callable[[A], R]) -> None:
        self._function = function
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []

    async def __call__(self, item: A) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._run)
        return await future

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        for item, future in waiting:
            if future.done():
                continue
            try:
                result = self._function(item)
            except EbmsError as error:
                # A traceback would hold on to everything that waited here.
                future.set_exception(error.with_traceback(None))
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)
