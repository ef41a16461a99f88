"""Faults that come and go: outages of links, processes that die or stand still, full disks."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from tests.chaos.agreements import BUYER, SELLER
from tests.chaos.applications import Hook
from tests.chaos.links import OUTAGES, Network
from tests.chaos.nodes import Disk, Node

PAUSE = 3.5
"""Seconds between two faults on average."""


class Weather:
    """Draws one fault after the other, and ends each before the next begins."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        network: Network,
        hook: Hook,
        disks: Mapping[str, Disk],
        seed: int,
    ) -> None:
        self.met: Counter[str] = Counter()
        self._nodes = nodes
        self._network = network
        self._hook = hook
        self._disks = disks
        self._dice = random.Random(f"{seed} weather")
        self._quiet = threading.Event()
        self._faults: dict[Callable[[], None], float] = {
            self._outage: 5,
            self._kill: 4,
            self._kill_two: 1,
            self._kill_worker: 3,
            self._freeze: 2,
            self._restart: 1,
            self._webhook: 1.5,
        }
        if disks:
            self._faults[self._fill] = 2

    def summary(self) -> str:
        return f"{sum(n for k, n in self.met.items() if k.startswith('kill'))} kills"

    def rage(self, quiet: threading.Event) -> None:
        """Go on until it is to be quiet; all nodes run then."""
        self._quiet = quiet
        while not quiet.wait(self._dice.expovariate(1 / PAUSE)):
            (fault,) = self._dice.choices(list(self._faults), list(self._faults.values()))
            fault()
            for node in self._nodes.values():
                node.look()

    def _hold(self, low: float, high: float) -> None:
        self._quiet.wait(self._dice.uniform(low, high))

    def _any(self) -> Node:
        return self._dice.choice(list(self._nodes.values()))

    def _outage(self) -> None:
        name = self._dice.choice(list(self._network.links))
        mode = self._dice.choice(OUTAGES)
        self.met[f"outage of a link ({mode})"] += 1
        self._network.begin_outage(name, mode)
        self._hold(1, 9)
        self._network.end_outage(name)

    def _kill(self) -> None:
        self._kill_all([self._any()])

    def _kill_two(self) -> None:
        self._kill_all(self._dice.sample(list(self._nodes.values()), 2))

    def _kill_all(self, victims: list[Node]) -> None:
        for node in victims:
            node.lock.acquire()
        try:
            for node in victims:
                self.met["kill -9 of a node"] += 1
                node.kill()
            if self._dice.random() < 0.3:
                self._hold(0, 4)
            for node in victims:
                node.begin()
            if self._dice.random() < 0.15:
                self._hold(0, 2.5)
                for node in victims:
                    self.met["kill -9 of a node that starts"] += 1
                    node.kill()
                    node.begin()
        finally:
            for node in victims:
                node.lock.release()

    def _kill_worker(self) -> None:
        children = self._nodes[SELLER].children()
        if children:
            pid = self._dice.choice(children)
            self.met["kill -9 of a worker"] += 1
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _freeze(self) -> None:
        node = self._any()
        self.met["standstill of a node"] += 1
        node.freeze()
        self._hold(1, 10)
        node.thaw()

    def _restart(self) -> None:
        node = self._any()
        self.met["restart of a node"] += 1
        with node.lock:
            node.stop()
            node.begin()

    def _webhook(self) -> None:
        self.met["outage of the webhook"] += 1
        self._hook.down = True
        self._hold(2, 10)
        self._hook.down = False

    def _fill(self) -> None:
        name = self._dice.choice([BUYER, SELLER])
        disk = self._disks[name]
        if disk.fill():
            self.met["full disk"] += 1
            self._hold(2, 9)
            disk.free()
