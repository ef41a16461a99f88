"""What a party has: a disk that stays, a clock of its own, and one or more processes."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroad.node.base.requests import Request, Response
from postroad.node.node import Node
from postroad.node.settings.config import Config
from postroad.node.settings.config_groups import Webhook
from tests.sim.agreements import BEGIN, Party
from tests.sim.faults import SHORT_MEMORY, Faults, dice
from tests.sim.loop import Process
from tests.sim.store import Disk


class Clock:
    """What a node believes the time is: it drifts, and somebody may set it."""

    def __init__(self, rate: float, ahead: float) -> None:
        self._rate = rate
        self._first = ahead
        self.ahead = ahead

    def set_right(self) -> None:
        """As it would be if nobody had set it."""
        self.ahead = self._first

    def __call__(self) -> datetime:
        passed = asyncio.get_running_loop().time() * self._rate
        return BEGIN + timedelta(seconds=passed + self.ahead)


@dataclass
class Running:
    """A process of a node that can be talked to."""

    process: Process
    node: Node

    async def receive(self, request: Request) -> Response:
        return await self.node.receive(request)


@dataclass
class Station:
    party: Party
    config: Config
    disk: Disk
    clock: Clock
    entropy: random.Random
    places: int
    """How many processes share the work."""
    running: dict[int, Running] = field(default_factory=dict)
    """Those that can be talked to, by their place."""
    turn: int = 0

    @property
    def name(self) -> str:
        return self.party.name

    def leave(self, running: Running) -> None:
        """No more is asked of a process."""
        self.running = {place: one for place, one in self.running.items() if one is not running}

    def next(self) -> Running | None:
        """Each of its processes in its turn, as a load balancer does it; None: all are down."""
        if not self.running:
            return None
        self.turn += 1
        up = sorted(self.running)
        return self.running[up[self.turn % len(up)]]


def make_station(seed: int, party: Party, faults: Faults) -> Station:
    """A station as a seed wants it."""
    draw = dice(seed, f"station/{party.name}")
    drift = faults.rates.get("drift", 0.0)
    return Station(
        party,
        _config(party.config, draw, faults, dice(seed, f"patience/{party.name}")),
        Disk(party.name),
        Clock(1 + draw.uniform(-drift, drift), draw.uniform(-60, 60) if drift else 0.0),
        dice(seed, f"entropy/{party.name}"),
        draw.choice((1, 1, 2)),
    )


def _config(config: Config, draw: random.Random, faults: Faults, patience: random.Random) -> Config:
    """Everything that is a matter of minutes or hours is one of seconds here."""
    http = {"connect_timeout": draw.choice((1, 3)), "answer_timeout": draw.choice((2, 5, 15))}
    http["reply_timeout"] = patience.choice((1, 4, 10))
    breaker = {"pause": draw.choice((1, 5)), "longest_pause": draw.choice((10, 40))}
    send = {
        "parallel": draw.choice((1, 2, 16)),
        "lease": timedelta(seconds=draw.choice((5, 20, 60))),
        "breaker": config.send.breaker.model_copy(
            update={"failures": draw.choice((0, 1, 3, 5)), **_durations(breaker)}
        ),
    }
    webhook = Webhook(
        url=f"http://application.example:9000/{config.node}",
        attempts=1000,
        first_interval=timedelta(seconds=1),
        longest_interval=timedelta(seconds=20),
    )
    kept = timedelta(seconds=SHORT_MEMORY) if faults.forgetful else None
    return config.model_copy(
        update={
            "retention": config.retention.model_copy(update={"messages": kept}),
            "http": config.http.model_copy(update=_durations(http)),
            "send": config.send.model_copy(update=send),
            "webhook": webhook if draw.random() < 0.3 else None,
        }
    )


def _durations(seconds: dict[str, int]) -> dict[str, timedelta]:
    return {name: timedelta(seconds=value) for name, value in seconds.items()}
