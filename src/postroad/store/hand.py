"""A thread that does what would block the loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Hand:
    """Does one call after the other, in a thread of its own.

    The thread is a daemon: a call that waits for another process does not keep this one from
    ending.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def tell(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result, problem = None, None
            try:
                result = call()
            except BaseException as error:
                problem = error
            # Nobody is left to be told when the loop was closed meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, result, problem)
            # An error and the frame that it came through hold on to each other, and to contents.
            del result, problem

        self._calls.put(work)
        return future

    def end(self) -> None:
        """No more calls; the thread ends after those that were given."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call
