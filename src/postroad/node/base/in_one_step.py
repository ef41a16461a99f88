"""Taking steps of the store together: all that is ready in the same moment is one step."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from postroad.store.interface import Store, StoreError, Transaction

A = TypeVar("A")
R = TypeVar("R")


class InOneStep(Generic[A, R]):
    """`await step(item)` gives what came of an item, once that is durable.

    `together` writes all items that wait; it is for every day. If it cannot, each item is written
    by `alone` in a step of its own, so that none of them stands in the way of the others.
    """

    def __init__(
        self,
        store: Store,
        together: Callable[[Transaction, Sequence[A]], Sequence[R]],
        alone: Callable[[Transaction, A], R],
    ) -> None:
        self._store = store
        self._together = together
        self._alone = alone
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, item: A) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        return await future

    def _begin(self) -> None:
        # Who left before anything was written is passed over.
        waiting = [one for one in self._waiting if not one[1].done()]
        self._waiting = []
        task = asyncio.get_running_loop().create_task(self._write(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, waiting: Sequence[tuple[A, asyncio.Future[R]]]) -> None:
        items = [item for item, _ in waiting]

        def step(tx: Transaction) -> Sequence[R]:
            return self._together(tx, items)

        # Who watches the steps of a store knows them by their names.
        step.__qualname__ = self._together.__qualname__
        try:
            results = await self._store.run(step)
        except StoreError as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        except Exception:
            for item, future in waiting:
                await self._write_alone(item, future)
            return
        for (_, future), result in zip(waiting, results, strict=True):
            if not future.done():
                future.set_result(result)

    async def _write_alone(self, item: A, future: "asyncio.Future[R]") -> None:
        try:
            result = await self._store.run(lambda tx: self._alone(tx, item))
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
