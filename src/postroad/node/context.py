"""What the parts of a running node share."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from postroad.msh.expectation import Terms
from postroad.msh.inspection import Look
from postroad.node.config import Config
from postroad.node.identifiers import host_name, new_message_id
from postroad.node.in_force import InForce
from postroad.node.together import Together
from postroad.store.interface import Store
from postroad.wire.limits import Limits


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Context:
    """The store, what is in force, the clock and the dice; handed to every part of the node."""

    config: Config
    store: Store
    in_force: InForce
    limits: Limits
    owner: str
    """Who claims work: this process, this time."""
    clock: Callable[[], datetime] = utc_now
    entropy: Callable[[int], bytes] = os.urandom
    counters: Counter[str] = field(default_factory=Counter)
    work_came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when work was added that nobody has claimed yet."""
    let_go: set[int] = field(default_factory=set)
    """Claimed work whose outcome could not be stored: to be given back, and done again."""
    read: Together[Look, bool] = field(default_factory=lambda: Together(Look.read))
    judge: Together[tuple[Look, Terms | None], None] = field(
        default_factory=lambda: Together(lambda both: both[0].judge(both[1]))
    )
    settled: "Waiting" = field(default_factory=lambda: Waiting())
    host: str = ""

    def __post_init__(self) -> None:
        self.host = self.host or host_name(self.config.node)

    @property
    def party(self) -> str:
        return self.config.party_name

    def new_id(self, now: datetime) -> str:
        return new_message_id(now, self.entropy, self.host)

    def told(self) -> None:
        """Something happened that the application may want to know: its call is due now."""
        if self.config.webhook is not None:
            self.work_came.set()

    def count(self, name: str, **labels: str) -> None:
        """One more of something, under its Prometheus name."""
        said = ",".join(f'{key}="{value}"' for key, value in labels.items())
        self.counters[f"postroad_{name}_total" + (f"{{{said}}}" if said else "")] += 1


class Waiting:
    """Those who wait for a message to come to rest."""

    def __init__(self) -> None:
        self._events: dict[str, list[asyncio.Event]] = {}

    def tell(self, message_id: str) -> None:
        for event in self._events.get(message_id, ()):
            event.set()

    def enter(self, message_id: str) -> asyncio.Event:
        event = asyncio.Event()
        self._events.setdefault(message_id, []).append(event)
        return event

    def leave(self, message_id: str, event: asyncio.Event) -> None:
        waiting = self._events[message_id]
        waiting.remove(event)
        if not waiting:
            del self._events[message_id]
