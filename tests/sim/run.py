"""One seed, one history: a time in which anything may fail, then a time in which all must heal."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.sim.agreements import Party
from tests.sim.applications import Applications
from tests.sim.books import Books
from tests.sim.faults import Faults
from tests.sim.history import History, Violation
from tests.sim.knobs import rest, turned
from tests.sim.loop import Runaway, Stuck, VirtualLoop
from tests.sim.plan import SAFETY, Planned, make_plan
from tests.sim.world import World

HEALING: Final = 2 * 3600.0
"""Seconds after which everything must be at rest."""

_LOOK: Final = 5.0
"""Seconds from one look at what must not happen to the next, while anything may fail."""
_TOO_MUCH: Final = 20_000
"""Entries of a history."""


@dataclass(frozen=True)
class Smaller:
    """How a history is made smaller: fewer messages, fewer kinds of faults."""

    messages: int | None = None
    faults: tuple[str, ...] | None = None
    """Only these kinds."""


WHOLE: Final = Smaller()


@dataclass(frozen=True)
class Result:
    seed: int
    history: History
    faults: Mapping[str, float]
    messages: int
    seconds: float
    """Of the time that was made up."""

    @property
    def broken(self) -> Violation | None:
        return self.history.broken


def simulate(seed: int, parties: Mapping[str, Party], smaller: Smaller = WHOLE) -> Result:
    """Run the history of a seed to its end, or to the first thing that must not happen."""
    loop = VirtualLoop()
    history = History(loop.time)
    faults = Faults(seed, smaller.faults)
    plan = make_plan(seed, smaller.messages)
    books = Books(plan, parties, faults, history)
    try:
        used = {one.pmode for one in plan}
        with turned(seed, parties, faults, used), _watched(history):
            loop.set_exception_handler(lambda _, told: _unexpected(history, told))
            asyncio.set_event_loop(loop)
            world = World(seed, parties, faults, history, books)
            loop.run_until_complete(_live(world, books, plan))
    except (Stuck, Runaway) as error:
        history.fail(f"{type(error).__name__}: {error}")
    finally:
        seconds = loop.time()
        loop.bury()
        loop.close()
        asyncio.set_event_loop(None)
    history.marks.update(faults.hit)
    return Result(seed, history, faults.rates, len(plan), seconds)


async def _live(world: World, books: Books, plan: Sequence[Planned]) -> None:
    history = world.history
    applications = Applications(world, plan, books)
    await world.start()
    applications.start()
    while asyncio.get_running_loop().time() < SAFETY and history.broken is None:
        await asyncio.sleep(_LOOK)
        _alarm(world)
    world.heal()
    rest()
    until = asyncio.get_running_loop().time() + HEALING
    while history.broken is None:
        await asyncio.sleep(1)
        _alarm(world)
        left = [] if world.is_up() else ["somebody is down"]
        left += [f"{applications.open} submissions"] if applications.open else []
        left += ["something on the network"] if world.network.on_the_way else []
        left = left or books.unsettled()
        if not left:
            break
        if asyncio.get_running_loop().time() > until:
            history.fail(f"not at rest: {'; '.join(left[:5])}")
    if history.broken is None:
        books.close(world.network, world.listener)


def _alarm(world: World) -> None:
    """A part of a node that ended with an exception does nothing any more; one may do too much."""
    if len(world.history.entries) > _TOO_MUCH:
        world.history.fail("there is no end of it")
    for station in world.stations.values():
        for running in station.running.values():
            for error in running.process.failures():
                world.history.fail(f"{running.process.name} stumbled: {error!r}")


def _unexpected(history: History, told: Mapping[str, object]) -> None:
    history.fail(f"unexpected: {told.get('message')} {told.get('exception')!r}")


class _Alarm(logging.Handler):
    """An exception in the log of a node is one that nobody thought of."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            named = getattr(record, "message_id", None)
            self._history.fail(f"{record.getMessage()}: {record.exc_info[1]!r}", named)


@contextmanager
def _watched(history: History) -> Iterator[None]:
    log = logging.getLogger("postroad")
    alarm, level, spread = _Alarm(history), log.level, log.propagate
    log.addHandler(alarm)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(alarm)
        log.setLevel(level)
        log.propagate = spread
