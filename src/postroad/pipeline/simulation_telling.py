"""Telling stories: from messages and their stories to events, and what each journal saw of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from postroad.pipeline.simulation_network import SECOND, Ints, Network, acknowledges
from postroad.pipeline.simulation_stories import (
    ACKNOWLEDGMENTS,
    OPERATOR,
    OTHER,
    STORIES,
    Step,
    Story,
)
from postroad.store.journal_columns import FORWARDING, RECEIVING, SENDING

Bools = npt.NDArray[np.bool_]
FAR: Final = 1 << 62

ACKNOWLEDGED, FAILED, EXPIRED, IN_DOUBT, REFUSED, TRANSMITTED, RECEIVED, REJECTED = (
    1 << n for n in range(8)
)
SENDER_SEEN, RECEIVER_SEEN, CUT = (1 << n for n in range(8, 11))
"""CUT: something of it lies behind the end of a journal."""
_MARKS: Final = {
    "ack_received": ACKNOWLEDGED, "receipt_received": ACKNOWLEDGED, "delivery_failed": FAILED,
    "expired": EXPIRED, "in_doubt": IN_DOUBT, "sent": TRANSMITTED, "resent": TRANSMITTED,
    "received": RECEIVED, "rejected": REJECTED,
}  # fmt: skip
ANSWERS: Final = (None, "delivered", "received", "not_received")


@dataclass(frozen=True, slots=True)
class Look:
    """What is the same in all events of a step."""

    event: str
    side: str | None
    attempt: int | None = None
    detail: str | None = None
    error_code: str | None = None
    severity: str | None = None
    signal: bool = False
    on_wire: bool = False
    """Has an envelope; `wire_bytes` too, as has `forwarded`."""


_SIGNALS: Final = {
    "receipt_sent", "receipt_received", "acked", "ack_received", "error_received", "error_raised",
}  # fmt: skip
_HOP: Final = (
    Look("received", FORWARDING, on_wire=True), Look("queued", FORWARDING),
    Look("forwarded", FORWARDING), Look("hop_acked", FORWARDING),
)  # fmt: skip
_SIGNAL_HOP: Final = (
    Look("received", FORWARDING, signal=True), Look("forwarded", FORWARDING, signal=True),
)  # fmt: skip
_HOP_ACKED: Final = Look("hop_acked", SENDING)
HEARTBEAT: Final = Look("heartbeat", None)
RETIRED: Final = Look("heartbeat", None, detail="retired")
SUSPENDED: Final = Look("suspended", SENDING, detail="the operator halted it")
RESUMED: Final = Look("resumed", SENDING)
UNKNOWN: Final = Look("archived", RECEIVING)
"""An event of a later version."""


def _look(step: Step, name: str) -> Look:
    on_wire = name in ("sent", "resent", "received")
    return Look(name, step.side, step.attempt, step.detail, step.error_code, step.severity,
                name in _SIGNALS, on_wire)  # fmt: skip


_TOLD: Final = {
    _look(step, name): None
    for story in STORIES
    for step in story.steps
    for name in (step.event, ACKNOWLEDGMENTS.get(step.event, step.event))
}
LOOKS: Final = tuple(
    dict.fromkeys(
        (*_TOLD, *_HOP, *_SIGNAL_HOP, _HOP_ACKED, HEARTBEAT, RETIRED, SUSPENDED, RESUMED, UNKNOWN)
    )
)
LOOK: Final = {look: index for index, look in enumerate(LOOKS)}


@dataclass(slots=True)
class Messages:
    """Messages and fragments of a stretch of time, column by column."""

    at: Ints
    """When submitted, in true time."""
    route: Ints
    story: Ints
    bytes: Ints
    choice: Ints
    """Which of two nodes acts: 1 for the sender's second, 2 for the receiver's."""
    refers: Ints
    conversation: Ints
    envelope: Ints
    group: Ints
    """Rows, -1 for none."""
    sequence_number: Ints
    fragment: Ints
    fragments: Ints

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Any) -> "Messages":
        return Messages(*(getattr(self, name)[rows] for name in self.__slots__))

    @staticmethod
    def of(parts: list["Messages"]) -> "Messages":
        return Messages(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in Messages.__slots__)
        )


EVENT_DTYPE: Final = np.dtype(
    [("at", "i8"), ("row", "i4"), ("node", "i2"), ("look", "i2"), ("peer", "i2"), ("party", "i2")]
)
Events = npt.NDArray[np.void]


@dataclass(slots=True)
class Seen:
    """What the journals show of each message when they end."""

    marks: Ints
    deliveries: Ints
    settled: Ints
    settled_by: Ints
    first_at: Ints
    last_at: Ints
    first_sent: Ints
    last_sent: Ints
    submitted: Ints
    """By the sender's clock, as are first_sent and last_sent."""

    @staticmethod
    def of(parts: list["Seen"]) -> "Seen":
        return Seen(*(np.concatenate([getattr(p, name) for p in parts]) for name in Seen.__slots__))

    @staticmethod
    def nothing(count: int) -> "Seen":
        zero, far = np.zeros(count, np.int64), np.full(count, FAR, np.int64)
        return Seen(zero, zero.copy(), zero.copy(), zero - 1, far, zero.copy(), far.copy(),
                    zero.copy(), far.copy())  # fmt: skip


@dataclass(slots=True)
class Telling:
    """Tells messages their stories; collects the events and what the journals saw."""

    network: Network
    rng: np.random.Generator
    messages: Messages
    first_row: int = 0
    """The number of the first of these messages among all of the stretch."""
    seen: Seen = field(init=False)
    events: list[Events] = field(default_factory=list)
    _sender: Ints = field(init=False)
    _receiver: Ints = field(init=False)
    _hubs: Ints = field(init=False)
    _acknowledged: Bools = field(init=False)

    def __post_init__(self) -> None:
        routes, route = self.network.routes, self.messages.route
        self.seen = Seen.nothing(len(self.messages))
        self._sender = np.array([one.sender for one in routes])[route]
        self._receiver = np.array([one.receiver for one in routes])[route]
        self._hubs = np.array([(*one.hubs, -1, -1)[:2] for one in routes])[route]
        self._acknowledged = np.array([acknowledges(one) for one in routes])[route]

    def tell(
        self,
        story: Story,
        rows: Ints,
        given: Mapping[int, Ints] | None = None,
        only: Mapping[int, Bools] | None = None,
    ) -> list[Ints]:
        """The true times of each step; `given` fixes those of some, `only` says who has some."""
        given, only = given or {}, only or {}
        times: list[Ints] = []
        last: dict[str, Ints] = {}
        draw = self.rng.random(len(rows))
        for index, step in enumerate(story.steps):
            mask = only.get(index, draw < step.share if step.share < 1 else None)
            before = times[step.follows] if times else self.messages.at[rows]
            at = given[index] if index in given else before + self._gap(step, len(rows))
            if step.over == "astray":
                self._astray(rows, at, mask)
                times.append(at)
                continue
            if step.over == "road":
                at = self._road(rows, before, at)
            elif step.over == "back":
                at = self._back(rows, before, at)
            if step.side in last:
                at = np.maximum(at, last[step.side] + 1000)
            at = self._write(step, rows, at, mask)
            last[step.side] = at
            times.append(at)
        return times

    def extra(self, look: Look, rows: Ints, at: Ints) -> None:
        """An event of the receiver that no story knows."""
        node, clock = self.network.placed(self._receiver[rows], self.messages.choice[rows] >> 1, at)
        self._add(look, rows, node, clock, self._receiver[rows], self._sender[rows], None)

    def _gap(self, step: Step, count: int) -> Ints:
        if step.after == 0:
            return np.full(count, 1000)
        drawn = self.rng.standard_normal(count, np.float32)
        gap: Ints = (np.exp(drawn * step.spread) * (step.after * SECOND)).astype(np.int64) + 1000
        return gap

    def _write(self, step: Step, rows: Ints, at: Ints, mask: Bools | None) -> Ints:
        sending = step.side == SENDING
        here, there = self._sender[rows], self._receiver[rows]
        if not sending:
            here, there = there, here
        choice = self.messages.choice[rows]
        node, clock = self.network.placed(here, choice & 1 if sending else choice >> 1, at)
        look: Look | Ints = _look(step, step.event)
        if step.event in ACKNOWLEDGMENTS:
            other = _look(step, ACKNOWLEDGMENTS[step.event])
            look = np.where(self._acknowledged[rows], LOOK[other], LOOK[_look(step, step.event)])
        peer = self._peer(step, rows, there)
        shown = self._add(look, rows, node, clock, here, peer, mask, step.event != "purged")
        self._see(step, rows, clock, peer, shown)
        return clock - self.network.offset[node]

    def _peer(self, step: Step, rows: Ints, there: Ints) -> Ints:
        if step.peer == OPERATOR:
            return np.full(len(rows), self.network.operator)
        if step.peer != OTHER:
            return np.full(len(rows), -1)
        if step.attempt is not None:
            station = self._hubs[rows, 0]
        elif step.event in ("received", "duplicate"):
            hubs = self._hubs[rows]
            station = np.where(hubs[:, 1] >= 0, hubs[:, 1], hubs[:, 0])
        else:
            return there
        return np.where(station >= 0, station, there)

    def _see(self, step: Step, rows: Ints, clock: Ints, peer: Ints, shown: Bools) -> None:
        seen, rows, clock = self.seen, rows[shown], clock[shown]
        mark = SENDER_SEEN if step.side == SENDING else RECEIVER_SEEN
        mark |= _MARKS.get(step.event, 0)
        if step.event == "error_received" and step.severity == "failure":
            mark |= REFUSED
        seen.marks[rows] |= mark
        if step.event == "delivered":
            seen.deliveries[rows] += 1
        elif step.event == "submitted":
            seen.submitted[rows] = clock
        elif step.event == "settled":
            seen.settled[rows] = ANSWERS.index(step.detail)
            seen.settled_by[rows] = peer[shown]
        elif mark & TRANSMITTED:
            seen.first_sent[rows] = np.minimum(seen.first_sent[rows], clock)
            seen.last_sent[rows] = np.maximum(seen.last_sent[rows], clock)

    def _road(self, rows: Ints, before: Ints, at: Ints) -> Ints:
        """When messages arrive that left before; relays on their way take them and hand them on."""
        for leg in range(2):
            over = np.flatnonzero(self._hubs[rows, leg] >= 0)
            if not len(over):
                break
            mine = rows[over]
            hub = self._hubs[mine, leg]
            onward = self._hubs[mine, 1] if leg == 0 else np.full(len(over), -1)
            onward = np.where(onward >= 0, onward, self._receiver[mine])
            behind = self._sender[mine] if leg == 0 else self._hubs[mine, 0]
            travelled = (at - before)[over]
            came = before[over] + travelled
            dwelt = np.exp(self.rng.standard_normal(len(over), np.float32) * 1.2) * 1.5
            left = came + (np.minimum(dwelt, 300) * SECOND).astype(np.int64) + 3000
            queued = dwelt > 2
            self._hop(_HOP[0], mine, hub, came, behind, None)
            self._hop(_HOP[1], mine, hub, came + 1000, np.full(len(over), -1), queued)
            self._hop(_HOP[2], mine, hub, left, onward, None)
            self._hop(_HOP[3], mine, hub, left + travelled, onward, None)
            if leg == 0:
                self._hop_acked(mine, came + travelled, hub)
            before, at = before.copy(), at.copy()
            before[over], at[over] = left, left + travelled
        return at

    def _back(self, rows: Ints, before: Ints, at: Ints) -> Ints:
        """When signals arrive; they take the same relays in the other direction."""
        for leg in (1, 0):
            over = np.flatnonzero(self._hubs[rows, leg] >= 0)
            if not len(over):
                continue
            mine, travelled = rows[over], (at - before)[over]
            came = before[over] + travelled
            hub = self._hubs[mine, leg]
            self._hop(_SIGNAL_HOP[0], mine, hub, came, np.full(len(over), -1), None)
            self._hop(_SIGNAL_HOP[1], mine, hub, came + 400_000, self._sender[mine], None)
            before, at = before.copy(), at.copy()
            before[over], at[over] = came + 400_000, came + 400_000 + travelled
        return at

    def _astray(self, rows: Ints, at: Ints, mask: Bools | None) -> None:
        over = self._hubs[rows, 0] >= 0
        if mask is not None:
            over &= mask
        mine = rows[over]
        self._hop(_HOP[0], mine, self._hubs[mine, 0], at[over] + SECOND, self._sender[mine], None)

    def _hop(
        self, look: Look, rows: Ints, hub: Ints, at: Ints, peer: Ints, mask: Bools | None
    ) -> None:
        node, clock = self.network.placed(hub, np.zeros_like(hub), at)
        self._add(look, rows, node, clock, hub, peer, mask)

    def _hop_acked(self, rows: Ints, at: Ints, hub: Ints) -> None:
        here = self._sender[rows]
        node, clock = self.network.placed(here, self.messages.choice[rows] & 1, at)
        self._add(_HOP_ACKED, rows, node, clock, here, hub, None)

    def _add(
        self,
        look: Look | Ints,
        rows: Ints,
        node: Ints,
        clock: Ints,
        party: Ints,
        peer: Ints,
        mask: Bools | None,
        lasting: bool = True,
    ) -> Bools:
        """Write it into the journals that are there and last so long; which those are."""
        written = node >= 0
        if mask is not None:
            written &= mask
        shown: Bools = written & (clock < self.network.ends[node])
        count = int(shown.sum())
        events = np.empty(count, EVENT_DTYPE)
        events["at"] = clock[shown]
        events["row"] = rows[shown] + self.first_row
        events["node"] = node[shown]
        events["look"] = LOOK[look] if isinstance(look, Look) else look[shown]
        events["peer"] = peer[shown]
        events["party"] = party[shown]
        self.events.append(events)
        if lasting:
            seen, mine, at = self.seen, rows[shown], events["at"]
            seen.first_at[mine] = np.minimum(seen.first_at[mine], at)
            seen.last_at[mine] = np.maximum(seen.last_at[mine], at)
            if count != int(written.sum()):
                seen.marks[rows[written & ~shown]] |= CUT
        return shown
