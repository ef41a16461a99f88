"""What the parts of a running node share."""

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeVar

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.capture import Capture
from postroad.msh.expectation import Terms
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.node.base.identifiers import host_name, new_message_id
from postroad.node.base.reading_ahead import ReadingAhead
from postroad.node.base.refusals import Refusals
from postroad.node.base.together import Together
from postroad.node.base.unfinished import UnfinishedBodies
from postroad.node.settings.config import Config
from postroad.node.settings.in_force import InForce
from postroad.node.settings.listeners import configured_listeners
from postroad.reliability.breaker import Gate, address_of, is_served, party_of, receiver_name
from postroad.security.egress import EgressPolicy
from postroad.store.interface import Store
from postroad.store.records import Partner, Work
from postroad.transport.admission import AddressRules
from postroad.wire.errors import ERRORS
from postroad.wire.limits import Limits

TakeReply = Callable[[Capture, int, Match, str, str], Awaitable[tuple[Inspection, bool] | None]]
"""What was found, and whether it is taken; None: it is no reply."""
T = TypeVar("T")
ON_LOOP: Final = 1 << 20
"""Messages up to this size are looked at, or packaged, on the loop; larger ones beside it."""
_LOOK_AGAIN: Final = 0.5
"""Seconds: another process may be told, and cannot tell this one."""
WEBHOOK: Final = "(webhook)"
"""The name under which the store keeps the breaker of the webhook, beside those of partners."""

_log = logging.getLogger("postroad.partners")


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
    unwell: dict[str, Partner] = field(default_factory=dict)
    """Partners with whom not all is well, as the store knew them a moment ago."""
    in_hand: set[int] = field(default_factory=set)
    """Claimed work that is being done, or waits for its turn here: its lease is renewed."""
    let_go: dict[int, bool] = field(default_factory=dict)
    """Claimed work whose outcome could not be stored: to be given back, and done again.

    True: a message may have left meanwhile.
    """
    learn: Callable[[Look], Awaitable[None]] | None = None
    """Learns whether the certificates of a message that was read are revoked; None: not asked."""
    learn_client: Callable[[bytes], Awaitable[None]] | None = None
    """Learns whether the TLS client certificate of a request is revoked; None: not asked."""
    _read: Together[Look, bool] = field(default_factory=lambda: Together(Look.read))
    judge: Together[tuple[Look, Terms | None], None] = field(
        default_factory=lambda: Together(lambda both: both[0].judge(both[1]))
    )
    settled: "Waiting" = field(default_factory=lambda: Waiting())
    take_in: Callable[[Capture, str, int], Awaitable[None]] | None = None
    """Takes in a message that came as the response to one of ours."""
    claimed: Callable[[Work], Work] = lambda work: work
    """Work that is about to be added: as this process has it, where it can begin at once."""
    begin: Callable[[Work], None] | None = None
    """Begins with it once it is durable."""
    pass_on: Callable[[Capture, str, int], Awaitable[None]] | None = None
    """Passes on a signal for others that came as the response to what was passed on."""
    stopping: bool = False
    """Nobody is to wait for the application any longer."""
    take_reply: TakeReply | None = None
    """Takes in the reply that came as the response to a request of ours, if it is one."""
    msh_url: str | None = None
    """Where partners reach this node; known when its doors are open."""
    egress: EgressPolicy = field(init=False)
    """Whom this node contacts; its own listeners are added when its doors are open."""
    host: str = ""
    ahead: ReadingAhead = field(init=False)
    """Reads messages whose fragments are still coming."""

    unfinished: UnfinishedBodies = field(init=False)
    """What is held of messages that are still coming."""
    refusals: Refusals = field(init=False)
    """What senders who proved nothing were refused."""
    party: str = field(init=False)
    """This node's own, as the journal names it."""

    def __post_init__(self) -> None:
        self.party = self.config.party_name
        self.host = self.host or host_name(self.config.node)
        self.ahead = ReadingAhead(self.store, self.limits)
        security = self.config.security
        rules = AddressRules(security.exempt_networks, security.ipv6_prefix)
        self.unfinished = UnfinishedBodies(self.config.http, rules)
        self.refusals = Refusals(self.config.limits.refused, self.count)
        policy = self.config.security.egress.policy
        self.egress = changed(policy, listeners=configured_listeners(self.config))

    async def read(self, look: Look) -> bool:
        """Read a message, and learn what is needed to judge it; False when it cannot be read."""
        readable = await self._read(look)
        if readable and self.learn is not None:
            await self.learn(look)
        return readable

    @property
    def lease(self) -> timedelta:
        """How long what this process claims stays its own without a sign of life.

        Others look every third of it, so that they take it over within what is configured.
        """
        return self.config.send.lease * 3 / 4

    def new_id(self, now: datetime) -> str:
        return new_message_id(now, self.entropy, self.host)

    def new_boundary(self) -> str:
        return f"=_{self.entropy(15).hex()}"

    def long_boundary(self) -> str:
        """For large content: who reads it looks for a long one faster."""
        return f"=_{self.entropy(32).hex()}"

    def dice(self) -> float:
        """From 0 to 1."""
        return int.from_bytes(self.entropy(4), "big") / 2**32

    def stopped(self, partner: str) -> Partner | None:
        """The breaker because of which nothing is sent to a partner, or to its address, now."""
        names = (party_of(partner), partner, receiver_name(address_of(partner) or ""))
        known = [self.unwell.get(name) for name in names]
        stopped = (one for one in known if one is not None and one.gate is not Gate.FLOWING)
        return next(stopped, None)

    def is_paused(self, partner: str) -> bool:
        """Whether nothing is sent to a partner, or to its address, now."""
        return self.stopped(partner) is not None

    def is_well(self, partner: str) -> bool:
        """Whether nothing is known against a partner and its address."""
        return is_served(partner, self.unwell)

    async def look_at_partners(self) -> None:
        """Learn how it stands with partners; other processes change it too."""
        known = await self.store.look(lambda reader: reader.partners())
        before, self.unwell = self.unwell, {one.name: one for one in known}
        for name in (before.keys() | self.unwell.keys()) - {WEBHOOK}:
            was, now = before.get(name), self.unwell.get(name)
            if _gate(was) is not _gate(now):
                _tell_partner(name, now)

    def told(self) -> None:
        """Something happened that the application may want to know: its call is due now."""
        if self.config.webhook is not None:
            self.work_came.set()

    def count_error(self, code: str) -> None:
        """One more error that this node raised; a code that only a partner knows has no label."""
        known = code if code in ERRORS else "other"
        self.count("ebms_errors", code=known, direction="raised")

    def count(self, name: str, /, times: int = 1, **labels: str) -> None:
        """One more of something, or several, under its Prometheus name."""
        self.counters[_counter(name, *labels.items())] += times

    def gauge(self, name: str, value: int | None, /, **labels: str) -> None:
        """Show how large something is now; None: there is nothing to show."""
        sample = f"postroad_{name}{_labels(labels.items())}"
        if value is None:
            self.counters.pop(sample, None)
        else:
            self.counters[sample] = value


def _gate(partner: Partner | None) -> Gate:
    """How it stands with a partner, whether or not one message is trying just now."""
    if partner is None:
        return Gate.FLOWING
    return Gate.PAUSED if partner.gate is Gate.PROBING else partner.gate


def _tell_partner(name: str, partner: Partner | None) -> None:
    """That a partner is left alone from now on, or served again, for who reads the log."""
    who = {"partner": party_of(name), "peer": address_of(name)}
    if partner is None or partner.gate is Gate.FLOWING:
        _log.info("served again", extra=who)
        return
    until = f"{partner.until:%Y-%m-%dT%H:%M:%SZ}" if partner.until is not None else None
    _log.warning(partner.gate.value, extra=who | {"detail": partner.detail, "until": until})


@lru_cache(maxsize=1024)
def _counter(name: str, *labels: tuple[str, str]) -> str:
    return f"postroad_{name}_total{_labels(labels)}"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    said = ",".join(f'{key}="{escaped_label(value)}"' for key, value in labels)
    return f"{{{said}}}" if said else ""


def escaped_label(value: str) -> str:
    """A value as it stands in the text format of Prometheus."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Waiting:
    """Those who wait for a message to come to rest, or for an answer."""

    def __init__(self) -> None:
        self._events: dict[str, list[asyncio.Event]] = {}

    def tell(self, message_id: str) -> None:
        for event in self._events.get(message_id, ()):
            event.set()

    def tell_all(self) -> None:
        for name in self._events:
            self.tell(name)

    def enter(self, message_id: str) -> asyncio.Event:
        event = asyncio.Event()
        self._events.setdefault(message_id, []).append(event)
        return event

    def leave(self, message_id: str, event: asyncio.Event) -> None:
        waiting = self._events[message_id]
        waiting.remove(event)
        if not waiting:
            del self._events[message_id]

    async def until(
        self, name: str, look: Callable[[], Awaitable[T | None]], patience: float
    ) -> T | None:
        """What somebody looks for, as soon as it is there; None: it was not in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        event = self.enter(name)
        try:
            while True:
                event.clear()
                found = await look()
                left = deadline - loop.time()
                if found is not None or left <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_AGAIN)):
                        await event.wait()
        finally:
            self.leave(name, event)
