"""The world of one seed: the parties' nodes with their disks and clocks, and what befalls them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import combinations
from typing import Final

from postroad.node.node import Node
from postroad.store.interface import StoreError
from tests.sim.agreements import Party
from tests.sim.books import Books
from tests.sim.clients import Client, Mails
from tests.sim.ebxml_agreements import address
from tests.sim.faults import Faults
from tests.sim.history import History
from tests.sim.loop import Died, Process
from tests.sim.network import Network
from tests.sim.plan import asks, bundles, pulls
from tests.sim.stations import Running, Station, make_station
from tests.sim.store import SimStore
from tests.sim.webhook import NAME, Listener

_AN_HOUR: Final = 3600.0
_PATIENCE: Final = 300.0
"""Seconds in which a process that is told to stop must have done so."""


class World:
    """All stations of a seed, and the network between them."""

    def __init__(
        self,
        seed: int,
        parties: Mapping[str, Party],
        faults: Faults,
        history: History,
        books: Books,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.history = history
        self.network = Network(self, faults, history, books)
        self._books = books
        self._chaos = Process("chaos")
        self.stations = {name: make_station(seed, one, faults) for name, one in parties.items()}
        for station in self.stations.values():
            books.know(station.disk, station.config.send.breaker.failures)
        called = (name for name, one in self.stations.items() if one.config.webhook)
        self.listener = Listener(frozenset(called))

    def endpoint(self, party: str) -> Running | Listener | None:
        """Who answers under an address now."""
        return self.listener if party == NAME else self.stations[party].next()

    async def start(self) -> None:
        """Start all nodes, and let things happen to them."""
        for station in self.stations.values():
            for place in range(station.places):
                await self._start(station, place)
        for name, happen in (
            ("kill", self._kill_somebody),
            ("restart", self._restart_somebody),
            ("partition", self._part_somebody),
            ("full disk", self._fill_a_disk),
            ("clock set", self._set_a_clock),
            ("nothing agreed", self._take_agreements_away),
        ):
            self._chaos.spawn(self._now_and_then(name, happen))

    async def _now_and_then(self, name: str, happen: Callable[[str], Awaitable[None]]) -> None:
        while (wait := self.faults.wait(name)) is not None:
            await asyncio.sleep(wait)
            if self.faults.over:
                return
            self.faults.hit[name] += 1
            await happen(name)

    def heal(self) -> None:
        """From now on nothing fails."""
        self.faults.over = True
        self.network.heal()
        for station in self.stations.values():
            station.disk.full = False
            station.party.in_force.missing = False
            if pulls(self.seed) or asks(self.seed) or bundles(self.seed):
                # Who pulls shows a token with a time: a clock that is off by an hour shuts it out.
                station.clock.set_right()
        self.history.note("world", "no more faults")

    def is_up(self) -> bool:
        return all(len(one.running) == one.places for one in self.stations.values())

    # Starting and ending

    async def _start(self, station: Station, place: int) -> None:
        """Start a process; one that cannot, because its disk does not let it, ends at once."""
        process = Process(f"{station.name}.{place}")
        self._chaos.spawn(self._watch(station, place, process))
        try:
            node = await process.ask(self._begun(station, place, process))
        except Died:
            return
        except StoreError as error:
            self.history.note(process.name, f"cannot start: {error}")
            process.kill()
            return
        station.running[place] = Running(process, node)
        process.up = True
        self.history.note(process.name, "is up")

    async def _begun(self, station: Station, place: int, process: Process) -> Node:
        """In the process itself: what `postroad serve` does."""
        store = SimStore(station.disk, process, self.faults, self._books)
        node = Node(
            station.config,
            store,
            leads=place == 0,
            left_by=None if station.places == 1 else [f"{station.name}/{place}-"],
            clock=station.clock,
            entropy=station.entropy.randbytes,
            client=Client(self.network, station.name, process),
            mail=Mails(self.network, station.name, process),
        )
        node.context.msh_url = address(station.name)
        node.context.owner = f"{station.name}/{place}-{station.entropy.randbytes(4).hex()}"
        await node.start()
        return node

    async def _watch(self, station: Station, place: int, process: Process) -> None:
        """What a supervisor does: when a process is gone, start it again, sooner or later."""
        try:
            await process.ask(_for_ever())
        except Died:
            station.running.pop(place, None)
            station.disk.deaths += 1
            self.history.note(process.name, "is gone")
            self.history.mark("crash")
        down = 0.5
        if not self.faults.over:
            low, high = ((0.1, 3), (5, 60))[self.faults.chosen("kill", 2)]
            down = self.faults.between("kill", low, high)
        await self._sleep_but_not_over(down)
        await self._start(station, place)

    async def _sleep_but_not_over(self, seconds: float) -> None:
        """Wait, though not longer than there are faults."""
        while seconds > 0 and not self.faults.over:
            await asyncio.sleep(min(seconds, 1))
            seconds -= 1

    # What befalls them

    def _somebody(self, name: str) -> Station:
        stations = list(self.stations.values())
        return stations[self.faults.chosen(name, len(stations))]

    def _a_process(self, name: str) -> Running | None:
        running = list(self._somebody(name).running.values())
        return running[self.faults.chosen(name, len(running))] if running else None

    async def _kill_somebody(self, name: str) -> None:
        running = self._a_process(name)
        if running is not None:
            self.history.note(running.process.name, "is killed")
            running.process.kill()

    async def _restart_somebody(self, name: str) -> None:
        """An operator stops a process in good order; the supervisor starts it again."""
        running = self._a_process(name)
        if running is None:
            return
        for station in self.stations.values():
            station.leave(running)
        self.history.note(running.process.name, "is stopped")
        try:
            async with asyncio.timeout(_PATIENCE):
                await running.process.ask(running.node.stop())
        except TimeoutError:
            self.history.fail(f"{running.process.name} does not stop")
        except Died:
            return
        running.process.kill()

    async def _part_somebody(self, name: str) -> None:
        pairs = [frozenset(pair) for pair in combinations(self.stations, 2)]
        pair = pairs[self.faults.chosen(name, len(pairs))]
        self.network.part(pair, apart=True)
        self._chaos.spawn(self._joined(pair, self.faults.between(name, 1, 60)))

    async def _joined(self, pair: frozenset[str], after: float) -> None:
        await self._sleep_but_not_over(after)
        if not self.faults.over:
            self.network.part(pair, apart=False)

    async def _fill_a_disk(self, name: str) -> None:
        station = self._somebody(name)
        station.disk.full = True
        self.history.note(station.name, "the disk is full")
        await self._sleep_but_not_over(self.faults.between(name, 0.5, 30))
        station.disk.full = False
        self.history.note(station.name, "there is room again")

    async def _take_agreements_away(self, name: str) -> None:
        station = self._somebody(name)
        station.party.in_force.missing = True
        self.history.note(station.name, "the P-Modes are gone")
        await self._sleep_but_not_over(self.faults.between(name, 0.5, 20))
        station.party.in_force.missing = False
        self.history.note(station.name, "the P-Modes are there again")

    async def _set_a_clock(self, name: str) -> None:
        station = self._somebody(name)
        amounts = (-_AN_HOUR, -30, -1, 1, 30)
        by = amounts[self.faults.chosen(name, len(amounts))]
        station.clock.ahead += by
        self.history.note(station.name, f"the clock is set by {by:+g} s")
        if by == -_AN_HOUR:
            self.history.mark("clock set back an hour")


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
