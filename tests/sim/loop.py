"""An event loop whose time is made up, and processes on it that can be killed.

When nothing can be done now, the clock jumps to the next timer. There are no sockets, threads or
signals; what is given to an executor is done at once. So one seed gives one history.

Everything runs on behalf of a `Process`. When that is killed not one step of it is run any more,
not even a `finally`: as with kill -9 all that is left of it is what it had stored.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, Final, TypeVar
from weakref import WeakSet

T = TypeVar("T")

STEPS_AT_ONE_TIME: Final = 100_000
STEPS_IN_ALL: Final = 3_000_000


class Stuck(Exception):
    """Nothing is ready and nothing is due: whoever waits will wait for ever."""


class Runaway(Exception):
    """The loop runs and runs and comes to no end."""


class Died(Exception):
    """Who was asked to do something was killed before it was done."""


class Process:
    """What lives and dies together: tasks, and the timers that they set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.up = False
        """Whether it has done all that comes before its first request."""
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._context = contextvars.copy_context()
        self._context.run(_CURRENT.set, self)
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._remains: list[asyncio.Task[Any]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin something on behalf of this process, whoever asks for it."""
        context = self._context.copy()
        return asyncio.get_running_loop().create_task(coroutine, context=context)

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function on behalf of this process."""
        return self._context.run(function, *args)

    async def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have it do something for another process; `Died` when it does not live to do it."""
        if not self.alive:
            coroutine.close()
            raise Died(self.name)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked[answer] = None
        self.spawn(_answered(coroutine, answer))
        try:
            return await answer
        finally:
            self._asked.pop(answer, None)

    def kill(self) -> None:
        """Not a step more. What it held is kept, so that nothing is cleaned up behind it."""
        if not self.alive:
            return
        self.alive = False
        self._remains = list(self.tasks)
        for answer in list(self._asked):
            refuse(answer, Died(self.name))

    def failures(self) -> list[BaseException]:
        """Of tasks that ended with an exception which nobody asked for."""
        failed = [task for task in self.tasks if task.done() and task._log_traceback]
        return [error for task in failed if (error := task.exception()) is not None]

    def remains(self) -> list[asyncio.Task[Any]]:
        return [*self._remains, *self.tasks]


async def _answered(coroutine: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    try:
        result = await coroutine
    except Exception as error:
        refuse(answer, error)
    else:
        if not answer.done():
            answer.set_result(result)


def refuse(answer: asyncio.Future[Any], error: Exception) -> None:
    """An error for an answer; nobody may be left to hear of it."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


_CURRENT: Final[ContextVar[Process | None]] = ContextVar("process", default=None)


def current_process() -> Process | None:
    return _CURRENT.get()


def _owner(context: Context | None) -> Process | None:
    return _CURRENT.get() if context is None else context.get(_CURRENT)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready in the order in which it became so; timers by time, then by age."""

    def __init__(self) -> None:
        super().__init__()
        self._time = 0.0
        self._numbers = count()
        self._soon: deque[tuple[Process | None, asyncio.Handle]] = deque()
        self._later: list[tuple[float, int, Process | None, asyncio.TimerHandle]] = []
        self._steps = 0
        self._steps_now = 0
        self._processes: dict[Process, None] = {}
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._time

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append((_owner(context), handle))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._later, (when, next(self._numbers), _owner(context), handle))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: object, function: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Done at once: a thread of its own would make two histories of one seed."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coroutine, loop=loop, context=context)
        # A process that was killed leaves tasks behind that were never finished: on purpose.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        process = _owner(context)
        if process is not None:
            process.tasks.add(task)
            self._processes[process] = None
        return task

    def _run_once(self) -> None:
        """One round, as the base class asks for it: all that is ready now."""
        if not self._soon:
            self._jump()
        self._steps_now += len(self._soon)
        self._steps += len(self._soon)
        if self._steps_now > STEPS_AT_ONE_TIME or self._steps > STEPS_IN_ALL:
            raise Runaway(f"{self._steps} steps, {self._steps_now} of them at {self._time:.3f}")
        for _ in range(len(self._soon)):
            process, handle = self._soon.popleft()
            if not handle.cancelled() and (process is None or process.alive):
                handle._run()

    def _jump(self) -> None:
        """To the next timer that is still of interest to somebody."""
        while self._later:
            when, _, process, handle = heapq.heappop(self._later)
            if handle.cancelled() or (process is not None and not process.alive):
                continue
            if when > self._time:
                self._time = when
                self._steps_now = 0
            self._soon.append((process, handle))
            return
        raise Stuck("nothing is ready, and nothing is due")

    def bury(self) -> None:
        """Close what is left of all processes, while nothing can run any more."""
        grave = Process("grave")
        processes = [*self._processes, grave]
        for process in processes:
            process.alive = False
        asyncio._set_running_loop(self)
        try:
            grave.run(self._close, processes)
        finally:
            asyncio._set_running_loop(None)
        self._soon.clear()
        self._later.clear()

    def _close(self, processes: list[Process]) -> None:
        """Closing may begin something new: that is closed too."""
        closed: set[asyncio.Task[Any]] = set()
        while True:
            left = {task for process in processes for task in process.remains() if not task.done()}
            left -= closed
            if not left:
                return
            for task in left:
                with suppress(Exception):
                    task.get_coro().close()
            closed |= left
