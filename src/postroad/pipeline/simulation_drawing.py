"""Drawing the messages of a stretch of time: who writes whom, when, and what becomes of it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from postroad.pipeline.simulation_network import (
    DAY,
    HOUR,
    MANNERS,
    MINUTE,
    NEVER,
    SECOND,
    Ints,
    Network,
)
from postroad.pipeline.simulation_stories import (
    BUNDLED,
    FRAGMENT,
    IN_ORDER,
    PLAIN,
    PULLED,
    SPLIT,
    STORIES,
    TROUBLES,
    Story,
)
from postroad.pipeline.simulation_telling import UNKNOWN, Bools, Events, Messages, Seen, Telling

REPLIES: Final = 0.2
"""How many of all messages answer another."""
_HOURS: Final = np.array(
    [1, 1, 1, 1, 1, 2, 4, 9, 16, 20, 21, 19, 14, 17, 20, 19, 16, 11, 6, 4, 3, 2, 2, 1], float
)
_WEEKEND: Final = 0.15
_FRAGMENT: Final = 16 << 20
_BUNDLE, _RUN = 4, 8
"""So many messages go in one envelope, or follow each other in one conversation."""
_EARLIER: Final = 10**13
"""More than any two times of a stretch lie apart."""
_INDEX: Final = {story.name: index for index, story in enumerate(STORIES)}
_GOOD: Final = {"bundled": BUNDLED, "ordered": IN_ORDER, "pulled": PULLED, "large": SPLIT}
_USUAL: Final = np.array([_INDEX[_GOOD.get(manner, PLAIN).name] for manner in MANNERS])
_LARGE: Final = 0.15
_UNWELL: Final = {4: 3.0, 7: 2.0}
"""Some receivers, by their rank, have more trouble than others."""
_AGAIN: Final = 0.1


def hourly(total: int, start: int, hours: int) -> Ints:
    """How many messages each hour has: business hours, quiet weekends, `total` in all."""
    begins = start + np.arange(hours) * HOUR
    weight = _HOURS[(begins // HOUR) % 24]
    weekday = (begins // DAY + 3) % 7
    weight = np.where(weekday >= 5, weight * _WEEKEND, weight)
    weight[-1] = 0
    edges = np.round(np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum() * total)
    counts: Ints = np.diff(edges).astype(np.int64)
    return counts


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages and fragments of a stretch of time, with what happened to them."""

    messages: Messages
    seen: Seen
    events: list[Events]
    delivered: Ints
    """When first delivered, in true time, where all went well; else 0."""

    @staticmethod
    def of(parts: list["Stretch"]) -> "Stretch":
        return Stretch(
            Messages.of([part.messages for part in parts]),
            Seen.of([part.seen for part in parts]),
            [events for part in parts for events in part.events],
            np.concatenate([part.delivered for part in parts]),
        )


class Drawing:
    """Draws messages for a network, so many of them with `trouble`."""

    def __init__(self, network: Network, trouble: float) -> None:
        self.network = network
        self.trouble = trouble
        routes = network.routes
        self._reply = np.array([route.reply for route in routes])
        self._hub = np.array([bool(route.hubs) for route in routes])
        self._manner = np.array([MANNERS.index(route.manner) for route in routes])
        self._unwell = np.array([_UNWELL.get(route.receiver, 1.0) for route in routes])
        weight = np.array([route.weight for route in routes])
        self._routes = np.cumsum(weight / weight.sum())
        # Who finds a route not in use takes this one.
        always = (network.opens == network.opens.min()) & (network.closes == NEVER)
        self._fallback = int(np.argmax(np.where(always, weight, 0)))
        troubles = np.array([story.weight for story in TROUBLES], float)
        self._troubles = np.cumsum(troubles / troubles.sum())

    def stretch(self, rng: np.random.Generator, at: Ints, unknown: int = 0) -> Stretch:
        """As many messages as there are times, replies among them.

        `unknown` of them have an event that this version does not know.
        """
        at = rng.permutation(at)
        asked = int(len(at) * REPLIES)
        first = self._told(rng, self._drawn(rng, np.sort(at[asked:]), 0), 0, unknown)
        count = len(first.messages)
        replies = self._replies(rng, first, asked)
        more = self._drawn(rng, np.sort(at[: asked - len(replies)]), count + len(replies))
        return Stretch.of(
            [
                first,
                self._told(rng, replies, count),
                self._told(rng, more, count + len(replies)),
            ]
        )

    def _drawn(self, rng: np.random.Generator, at: Ints, first_row: int) -> Messages:
        """Messages that answer none, with the fragments of the large ones behind them."""
        count = len(at)
        route = np.searchsorted(self._routes, rng.random(count), side="right")
        unused = (at < self.network.opens[route]) | (at >= self.network.closes[route])
        route = np.where(unused, self._fallback, route)
        story = self._stories(rng, route)
        rows = np.arange(first_row, first_row + count)
        none = np.full(count, -1)
        zero = np.zeros(count, np.int64)
        sizes = np.exp(rng.normal(9.4, 1.3, count)).astype(np.int64) + 200
        messages = Messages(at, route, story, sizes, rng.integers(0, 4, count), none, rows,
                            rows.copy(), none.copy(), zero, zero.copy(), zero.copy())  # fmt: skip
        self._bundle(messages, first_row)
        self._number(messages, first_row)
        fragments = self._fragments(messages, first_row)
        return Messages.of([messages, fragments]) if len(fragments) else messages

    def _stories(self, rng: np.random.Generator, route: Ints) -> Ints:
        """The good one of its route, or trouble."""
        story = _USUAL[self._manner[route]]
        large = (story == _INDEX["split"]) & (rng.random(len(route)) >= _LARGE)
        story = np.where(large, _INDEX["plain"], story)
        drawn = np.searchsorted(self._troubles, rng.random(len(route)), side="right")
        troubled = rng.random(len(route)) < self.trouble * self._unwell[route]
        story = np.where(troubled, drawn + _INDEX[TROUBLES[0].name], story)
        astray = (story == _INDEX["refused_by_relay"]) & ~self._hub[route]
        return np.where(astray, _INDEX["vanished"], story)

    def _bundle(self, messages: Messages, first_row: int) -> None:
        """Some that come together go in one envelope, from one node to another."""
        rows, first, _ = self._runs(messages, messages.story == _INDEX["bundled"], _BUNDLE, 7)
        messages.envelope[rows] = first + first_row
        messages.choice[rows] = messages.choice[first]

    def _number(self, messages: Messages, first_row: int) -> None:
        ordered = self._manner[messages.route] == MANNERS.index("ordered")
        rows, first, rank = self._runs(messages, ordered, _RUN, 20)
        messages.conversation[rows] = first + first_row
        messages.sequence_number[rows] = rank + 1

    @staticmethod
    def _runs(messages: Messages, which: Bools, length: int, apart: int) -> tuple[Ints, Ints, Ints]:
        """Let messages of a route come in runs; the rows, the first of their runs, their places."""
        rows = np.flatnonzero(which)
        if not len(rows):
            return rows, rows, rows
        grouped = Groups.by(messages.route[rows])
        rows = rows[grouped.order]
        rank = grouped.rank % length
        first = rows[np.arange(len(rows)) - rank]
        messages.at[rows] = messages.at[first] + rank * (apart * SECOND)
        return rows, first, rank

    def _fragments(self, messages: Messages, first_row: int) -> Messages:
        rows = np.flatnonzero(messages.story == _INDEX["split"])
        messages.bytes[rows] = messages.bytes[rows] * 2000 % (100 << 20) + (20 << 20)
        messages.envelope[rows] = -1
        counts = -(-messages.bytes[rows] // _FRAGMENT)
        whole = np.repeat(rows, counts)
        number = np.arange(len(whole)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        fragments = messages.take(whole)
        fragments.at = fragments.at + SECOND * 5 // 2 + (number - 1) * (SECOND * 3 // 2)
        fragments.story = np.full(len(whole), _INDEX["fragment"])
        fragments.bytes = np.minimum(fragments.bytes - (number - 1) * _FRAGMENT, _FRAGMENT)
        fragments.group = whole + first_row
        fragments.envelope = np.arange(len(whole)) + len(messages) + first_row
        fragments.fragment, fragments.fragments = number, np.repeat(counts, counts)
        return fragments

    def _replies(self, rng: np.random.Generator, first: Stretch, most: int) -> Messages:
        asked = first.messages
        answers = self._reply[asked.route]
        rows = np.flatnonzero((first.delivered > 0) & (answers >= 0))
        rows = np.sort(rng.permutation(rows)[:most])
        wait = (np.exp(rng.normal(0, 1, len(rows))) * 4 * MINUTE).astype(np.int64)
        at, route = first.delivered[rows] + wait, answers[rows]
        used = at < self.network.closes[route]
        rows, at, route = rows[used], at[used], route[used]
        none, zero = np.full(len(rows), -1), np.zeros(len(rows), np.int64)
        sizes = np.exp(rng.normal(8.5, 0.8, len(rows))).astype(np.int64) + 200
        mine = np.arange(len(rows)) + len(asked)
        return Messages(at, route, self._stories(rng, route), sizes,
                        rng.integers(0, 4, len(rows)), rows, asked.conversation[rows], mine,
                        none, zero, zero.copy(), zero.copy())  # fmt: skip

    def _told(
        self, rng: np.random.Generator, messages: Messages, first_row: int, unknown: int = 0
    ) -> Stretch:
        telling = Telling(self.network, rng, messages, first_row)
        delivered = np.zeros(len(messages), np.int64)
        order = np.argsort(messages.story, kind="stable")
        edges = np.searchsorted(messages.story[order], np.arange(len(STORIES) + 1))
        for index, story in enumerate(STORIES):
            rows = order[edges[index] : edges[index + 1]]
            if not len(rows) or story is FRAGMENT:
                continue
            given, only = self._agreed(telling, story, rows)
            times = telling.tell(story, rows, given, only)
            if story.both.named == "confirmed":
                events = [step.event for step in story.steps]
                delivered[rows] = times[events.index("delivered")]
                if unknown and story is PLAIN:
                    told = slice(0, unknown)
                    telling.extra(UNKNOWN, rows[told], times[events.index("received")][told] + 500)
        return Stretch(messages, telling.seen, telling.events, delivered)

    def _agreed(
        self, telling: Telling, story: Story, rows: Ints
    ) -> tuple[dict[int, Ints], dict[int, Bools]]:
        """The times of steps that messages share, and which steps a message has."""
        if story is BUNDLED:
            return self._together(telling, rows), {}
        if story is IN_ORDER:
            return self._in_order(telling, rows)
        if story is SPLIT:
            return self._in_fragments(telling, rows), {}
        return {}, {}

    def _together(self, telling: Telling, rows: Ints) -> dict[int, Ints]:
        messages = telling.messages
        first = messages.envelope[rows] - telling.first_row
        closed = messages.at[first] + 10 * _BUNDLE * SECOND
        # What is drawn for the first holds for all.
        drawn = np.exp(telling.rng.normal(0, 0.4, len(messages)))[first]
        sent = closed + (drawn * 0.4 * SECOND).astype(np.int64) + 2000
        return {1: closed + 1000, 2: sent, 3: sent + (drawn * 0.6 * SECOND).astype(np.int64)}

    def _in_order(self, telling: Telling, rows: Ints) -> tuple[dict[int, Ints], dict[int, Bools]]:
        """Delivered as numbered: what comes too early is held until the ones before are there."""
        messages, rng = telling.messages, telling.rng
        sent = messages.at[rows] + rng.integers(SECOND // 5, SECOND, len(rows))
        again = rng.random(len(rows)) < _AGAIN
        resent = sent + 5 * MINUTE
        received = np.where(again, resent, sent) + rng.integers(SECOND // 3, SECOND, len(rows))
        grouped = Groups.by(messages.conversation[rows])
        order, begin = grouped.order, messages.at[rows].min()
        ready = received[order] + SECOND // 5 - begin + grouped.number * _EARLIER
        ready = np.maximum.accumulate(ready) - grouped.number * _EARLIER + begin
        ready += grouped.rank * 2000
        early = np.zeros(len(rows), bool)
        early[order[1:]] = (grouped.rank[1:] > 0) & (received[order[1:]] < ready[:-1])
        delivered = np.empty(len(rows), np.int64)
        delivered[order] = ready
        given = {1: sent, 2: resent, 3: received, 4: received + 5000, 5: received + 10000}
        return {**given, 6: delivered}, {2: again, 4: early, 5: early}

    def _in_fragments(self, telling: Telling, rows: Ints) -> dict[int, Ints]:
        """Tells the fragments; the whole is sent and received with the first, then joined."""
        messages = telling.messages
        fragments = np.flatnonzero(messages.group >= 0)
        times = telling.tell(FRAGMENT, fragments)
        whole = np.searchsorted(rows, messages.group[fragments] - telling.first_row)
        sent, came = (np.full(len(rows), NEVER) for _ in range(2))
        last = np.zeros(len(rows), np.int64)
        np.minimum.at(sent, whole, times[0])
        np.minimum.at(came, whole, times[1])
        np.maximum.at(last, whole, times[1])
        split = messages.at[rows] + SECOND
        return {1: split, 2: sent + 1000, 3: came + 1000, 4: last + SECOND // 2}


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in the order of their groups."""

    order: Ints
    number: Ints
    first: Ints
    """For each the first of its group, as a place in `order`."""
    rank: Ints

    @staticmethod
    def by(key: Ints) -> "Groups":
        order = np.argsort(key, kind="stable")
        sorted_ = key[order]
        starts = np.flatnonzero(np.append(True, sorted_[1:] != sorted_[:-1]))
        counts = np.diff(np.append(starts, len(key)))
        first = np.repeat(starts, counts)
        return Groups(order, np.repeat(np.arange(len(starts)), counts), first,
                      np.arange(len(key)) - first)  # fmt: skip
