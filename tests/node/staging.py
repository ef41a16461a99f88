"""What nodes on made-up time stand on: a store that outlives them, no thread, an ear for alarms."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from postroad.store.memory import MemoryStore

T = TypeVar("T")


class Memory(MemoryStore):
    """Survives the nodes that use it."""

    async def close(self) -> None:
        pass


class Hand:
    """Does at once what a thread does elsewhere, so that time that is made up can pass."""

    def __init__(self, name: str) -> None:
        pass

    def do(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        return future

    def end(self) -> None:
        pass


class _Alarm(logging.Handler):
    def __init__(self, stumbled: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._stumbled = stumbled

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self._stumbled.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def watched(stumbled: list[str]) -> Iterator[None]:
    """Meanwhile exceptions that nobody thought of are noted, as the log tells them."""
    log, alarm = logging.getLogger("postroad"), _Alarm(stumbled)
    log.addHandler(alarm)
    try:
        yield
    finally:
        log.removeHandler(alarm)
