"""Faults: which kinds there are, and which of them a seed has (a swarm: some never, some often).

An injection point has a name and dice of its own, so that a history hardly changes when another
kind of fault is left out: that is what makes shrinking possible.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

RATES: Final[Mapping[str, float]] = {
    # Of each exchange on the network.
    "refuse": 0.4,
    "lose request": 0.3,
    "lose reply": 0.4,
    "cut": 0.2,
    "copy": 0.3,
    "late copy": 0.1,
    "misdirected copy": 0.1,
    "slow": 0.3,
    "proxy says 503": 0.2,
    "proxy says 504": 0.2,
    "answers mixed up": 0.1,
    "forged receipt": 0.1,
    # Of each commit.
    "crash before commit": 0.02,
    "crash after commit": 0.02,
    "commit unknown": 0.02,
    "busy": 0.04,
    "slow disk": 0.1,
    "step runs twice": 0.3,
    # Of each question to the store.
    "unreadable": 0.01,
    # Of each answer to an application.
    "answer lost": 0.3,
    # Per minute.
    "partition": 2.0,
    "kill": 2.0,
    "restart": 1.0,
    "full disk": 1.0,
    "clock set": 1.0,
    "nothing agreed": 1.0,
    # Of each node.
    "drift": 0.05,
}
"""How often each happens at most. What is drawn for a seed lies below."""
_ABSENT: Final = 0.55
SHORT_MEMORY: Final = 60.0
"""Seconds after which messages are removed where nodes are forgetful."""


def dice(seed: int, name: str) -> random.Random:
    """Dice of their own for a purpose; the same for the same seed, whatever else is thrown."""
    return random.Random(f"{seed}/{name}")


class Faults:
    """What goes wrong in the history of a seed."""

    def __init__(self, seed: int, only: Collection[str] | None = None) -> None:
        draw = dice(seed, "swarm")
        self._dice = {name: dice(seed, f"fault/{name}") for name in RATES}
        self.rates: dict[str, float] = {}
        for name, most in RATES.items():
            absent, share = draw.random() < _ABSENT, draw.random()
            if not absent and (only is None or name in only):
                self.rates[name] = most * share
        clocks_agree = not {"clock set", "drift"} & self.rates.keys()
        self.forgetful = draw.random() < 0.5 and clocks_agree
        """Messages are removed soon. What comes later is told by its age from a new one, and for
        that the clocks must agree."""
        self.hit: Counter[str] = Counter()
        """How often each happened."""
        self.over = False
        """Once it is set nothing fails any more."""

    def hits(self, name: str) -> bool:
        """Whether it happens here and now."""
        rate = self.rates.get(name)
        if rate is None or self.over or self._dice[name].random() >= rate:
            return False
        self.hit[name] += 1
        return True

    def wait(self, name: str) -> float | None:
        """Seconds until something that happens by itself does so again; None: never."""
        rate = self.rates.get(name)
        return None if not rate or self.over else self._dice[name].expovariate(rate / 60)

    def between(self, name: str, low: float, high: float) -> float:
        """How long or how much, with the dice of that fault."""
        return self._dice[name].uniform(low, high)

    def chosen(self, name: str, below: int) -> int:
        return self._dice[name].randrange(below)
