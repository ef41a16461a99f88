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

T = TypeVar("T")

STEPS_AT_ONE_TIME: Final = 100_000
STEPS_IN_ALL: Final = 3_000_000
_MANY_TASKS: Final = 200


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
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = _MANY_TASKS
        self._context = contextvars.copy_context()
        self._context.run(_CURRENT.set, self)
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._remains: list[asyncio.Task[Any]] = []

    def add(self, task: asyncio.Task[Any]) -> None:
        """Take note of a task; those that ended well are forgotten now and then."""
        self._tasks.append(task)
        if len(self._tasks) > self._most_tasks:
            failed = self._failed()
            self._tasks = [one for one in self._tasks if not one.done()] + failed
            self._most_tasks = 2 * len(self._tasks) + _MANY_TASKS

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
        self._remains = list(self._tasks)
        for answer in list(self._asked):
            refuse(answer, Died(self.name))

    def failures(self) -> list[BaseException]:
        """Of tasks that ended with an exception which nobody asked for."""
        return [error for task in self._failed() if (error := task.exception()) is not None]

    def _failed(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if task._log_traceback]

    def remains(self) -> list[asyncio.Task[Any]]:
        return [*self._remains, *self._tasks]


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


class _Handle:
    """Something to call, now or later; with less in it than asyncio's, since there are so many."""

    __slots__ = ("_when", "args", "callback", "cancelled_", "context", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when: float,
    ) -> None:
        self.callback = callback
        self.args = args
        if context is None:
            self.context = contextvars.copy_context()
            self.process = _CURRENT.get()
        else:
            self.context = context
            self.process = context.get(_CURRENT)
        self._when = when
        self.cancelled_ = False

    def cancel(self) -> None:
        self.cancelled_ = True

    def cancelled(self) -> bool:
        return self.cancelled_

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready in the order in which it became so; timers by time, then by age."""

    get_debug = bool
    """False. Asked for every future and task, so it is answered without a call into Python."""

    def __init__(self) -> None:
        super().__init__()
        self._time = 0.0
        self._numbers = count()
        self._soon: deque[_Handle] = deque()
        self._later: list[tuple[float, int, _Handle]] = []
        self._steps = 0
        self._steps_now = 0
        self._processes: dict[Process, None] = {}

    def time(self) -> float:
        return self._time

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context, 0.0)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        handle = _Handle(callback, args, context, when)
        heapq.heappush(self._later, (when, next(self._numbers), handle))
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

    def create_task(  # type: ignore[override]
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coroutine, loop=self, name=name or "task", context=context)
        # A process that was killed leaves tasks behind that were never finished: on purpose.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        if process is not None:
            process.add(task)
            self._processes[process] = None
        return task

    def _run_once(self) -> None:
        """Run what is ready, and then what is due, until the loop is stopped."""
        soon = self._soon
        while not self._stopping:  # type: ignore[attr-defined]
            if not soon:
                self._jump()
            self._steps_now += 1
            self._steps += 1
            if self._steps_now > STEPS_AT_ONE_TIME or self._steps > STEPS_IN_ALL:
                raise Runaway(f"{self._steps} steps, {self._steps_now} of them at {self._time:.3f}")
            handle = soon.popleft()
            if handle.cancelled_ or not (handle.process is None or handle.process.alive):
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except Exception as error:
                told = f"Exception in callback {handle.callback}"
                self.call_exception_handler({"message": told, "exception": error})

    def _jump(self) -> None:
        """To the next timer that is still of interest to somebody."""
        while self._later:
            when, _, handle = heapq.heappop(self._later)
            if handle.cancelled_ or not (handle.process is None or handle.process.alive):
                continue
            if when > self._time:
                self._time = when
                self._steps_now = 0
            self._soon.append(handle)
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
