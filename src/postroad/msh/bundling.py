"""Which units that wait go out now, in which bundles, and when to look again (Part 2, 3.3 to 3.5).

`plan` is a pure function. It goes through the units of each destination: first those whose time
has come, then the others. Around each it builds the bundle that promises most company. A bundle
leaves when the time of one of its units has come, or when it is full; else its units wait on.

What is kept, always:
- a secondary's P-Mode lists the primary's, and nobody of policy never has company;
- the primary's maxsize bounds the message; the maxdelay of every unit in it bounds the time from
  the oldest to the newest; Content-IDs are unique;
- units of one series leave in the order of their submission, without gaps, and their order in the
  bundle is what the primary's ordering policy makes of it; in a sequence of reliable messaging they
  go with nobody else;
- nobody waits longer than the maxdelay of its own P-Mode, but for one of its series before it.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from typing import Final

from msgspec import Struct

from postroad.agreement.bundling import (
    DOCUMENT_ORDER,
    TIMESTAMP,
    BundlingTerms,
    incompatible,
)
from postroad.wire.limits import DEFAULT, Limits

_LOOK_AHEAD: Final = 16
"""How many units that do not fit are passed over before a bundle is done: a bound on the work."""
_NO_TIME: Final = timedelta(0)


class Waiting(Struct, frozen=True, gc=False):
    """A unit that was submitted and not sent yet."""

    id: str
    pmode: str
    destination: str
    """Units with different ones never meet: the partner, and the channel if it is pulled."""
    at: datetime
    """Its eb:Timestamp."""
    size: int
    """What it adds to a message, as packaged."""
    envelope: int = 0
    """The rest of the message when it is the primary."""
    series: Hashable | None = None
    """Units of one destination and series keep their order; None: nobody cares."""
    content_ids: tuple[str, ...] = ()
    sequence: Hashable | None = None
    """The sequence of reliable messaging that it has to go in; None: that of any primary."""


Bundle = tuple[Waiting, ...]
"""The primary, then its secondaries in the order of submission; one unit alone is no bundle."""


class Plan(Struct, frozen=True):
    """What to do now."""

    bundles: tuple[Bundle, ...] = ()
    """To be sent, in this order where units of one series are in several."""
    lonely: tuple[Waiting, ...] = ()
    """Units that must be bundled and found nobody in time: EBMS:0030. [P2-3.5-06]"""
    waiting: tuple[Waiting, ...] = ()
    """What stays, in the order of submission."""
    wake: datetime | None = None
    """When to plan again, if nothing is submitted before."""


def plan(
    units: Sequence[Waiting],
    terms: Mapping[str, BundlingTerms],
    now: datetime,
    *,
    limits: Limits = DEFAULT,
    drain: bool = False,
) -> Plan:
    """The bundles to send now; `units` stand in the order of submission.

    `terms` are by P-Mode id; `limits` bound units and parts of a bundle. With `drain` everything
    goes that can, as a PullRequest wants it. [P2-3.4-04] [P2-3.7-01]
    """
    destinations: dict[str, list[Waiting]] = {}
    for unit in units:
        destinations.setdefault(unit.destination, []).append(unit)
    bundles: list[Bundle] = []
    lonely: list[Waiting] = []
    staying: set[str] = set()
    wake: datetime | None = None
    for waiting in destinations.values():
        one = _Destination(waiting, terms, now, limits, drain)
        one.settle()
        bundles += one.bundles
        lonely += one.lonely
        staying.update(unit.id for unit in one.staying)
        times = [time for unit in one.staying if (time := deadline(unit, terms)) > now]
        wake = min([*times, *([wake] if wake else [])], default=None)
    return Plan(
        tuple(bundles), tuple(lonely), tuple(unit for unit in units if unit.id in staying), wake
    )


def deadline(unit: Waiting, terms: Mapping[str, BundlingTerms]) -> datetime:
    """When a unit has waited long enough: maxdelay after it was made. [P2-3.3-10]"""
    agreed = terms[unit.pmode]
    delay = agreed.max_delay if agreed.bundled else None
    return unit.at + (delay or _NO_TIME)


class _Growing:
    """A bundle while units are added to it."""

    def __init__(self, place: int, unit: Waiting, terms: BundlingTerms, limits: Limits) -> None:
        self.places = [place]
        self.full = False
        """Somebody was left out for whom there would be room in another bundle."""
        self._primary, self._place, self._terms = unit, place, terms
        self._limits = limits
        self._size = unit.envelope + unit.size
        self._oldest = self._newest = unit.at
        self._delay = terms.max_delay
        self._content_ids = set(unit.content_ids)
        self._latest: dict[Hashable, datetime] = {}
        """The newest secondary of each series."""

    def add(self, place: int, unit: Waiting, terms: BundlingTerms) -> bool:
        """Add a unit, if all that is agreed allows it."""
        oldest, newest = min(self._oldest, unit.at), max(self._newest, unit.at)
        delays = [delay for delay in (self._delay, terms.max_delay) if delay is not None]
        if (delays and newest - oldest > min(delays)) or not self._keeps_order(place, unit):
            return False
        if unit.sequence is not None and unit.sequence != self._primary.sequence:
            return False
        if not self._content_ids.isdisjoint(unit.content_ids) or not self._has_room(unit):
            return False
        self.places.append(place)
        self.full |= self._crowded
        self._size += unit.size
        self._oldest, self._newest = oldest, newest
        self._delay = min(delays, default=None)
        self._content_ids.update(unit.content_ids)
        if unit.series is not None:
            self._latest[unit.series] = unit.at
        return True

    def _has_room(self, unit: Waiting) -> bool:
        most = self._terms.max_size
        if most is not None and self._primary.envelope + unit.size > most:
            return False
        parts = len(self._content_ids) + len(unit.content_ids) + 1
        fits = most is None or self._size + unit.size <= most
        if fits and parts <= self._limits.parts and not self._crowded:
            return True
        self.full = True
        return False

    @property
    def _crowded(self) -> bool:
        return len(self.places) >= self._limits.units

    @property
    def outsize(self) -> bool:
        """Whether the primary alone is too large for company, whoever comes. [P2-3.3-08]"""
        return self._terms.max_size is not None and self._size > self._terms.max_size

    def _keeps_order(self, place: int, unit: Waiting) -> bool:
        """Whether the receiver would put units of one series in the order of submission.

        [P2-3.10.1-05] [P2-3.10.1-08]
        """
        policy = self._terms.ordering
        if policy == DOCUMENT_ORDER:
            return place > self._place
        if unit.series is None:
            return True
        latest = self._latest.get(unit.series)
        related = unit.series == self._primary.series
        if policy != TIMESTAMP:
            return latest is None and not related
        if latest is not None and unit.at < latest:
            return False
        if not related:
            return True
        # The primary stands first, and so goes first among units of the same time.
        return unit.at < self._primary.at if place < self._place else unit.at >= self._primary.at


class _Queue:
    """The units of one P-Mode, by their places; those that are taken are passed over for good."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self._next: list[int] = []

    def append(self, place: int) -> int:
        """Put a unit last; its number in the queue."""
        self.places.append(place)
        self._next.append(len(self._next))
        return len(self._next) - 1

    def free(self, number: int) -> int:
        """The first number from this one on that is not taken; the length when there is none."""
        following = self._next
        end = len(following)
        while number < end and following[number] != number:
            step = following[number]
            if step < end:
                following[number] = following[step]
            number = step
        return number

    def take(self, number: int) -> None:
        self._next[number] = number + 1

    def give_back(self, number: int) -> None:
        self._next[number] = number
        while number and self._next[number - 1] != number - 1:
            number -= 1
            self._next[number] = min(self._next[number], number + 1)


class _Destination:
    """The units that wait for one destination, while they are planned."""

    def __init__(
        self,
        units: Sequence[Waiting],
        terms: Mapping[str, BundlingTerms],
        now: datetime,
        limits: Limits,
        drain: bool,
    ) -> None:
        self.bundles: list[Bundle] = []
        self.lonely: list[Waiting] = []
        self.staying: list[Waiting] = []
        self._units, self._terms = units, terms
        self._now, self._limits, self._drain = now, limits, drain
        self._queues: dict[str, _Queue] = {}
        self._series: dict[Hashable, int] = {}
        """How many of each series are taken: the next one's rank."""
        self._blocked: set[Hashable] = set()
        """Series one of whose units stays: those behind it stay too."""
        self._left = len(units)
        self._numbers: list[int] = []
        self._ranks: list[int] = []
        lengths: dict[Hashable, int] = {}
        for place, unit in enumerate(units):
            queue = self._queues.setdefault(unit.pmode, _Queue())
            self._numbers.append(queue.append(place))
            rank = 0
            if unit.series is not None:
                rank = lengths[unit.series] = lengths.get(unit.series, -1) + 1
            self._ranks.append(rank)
        self._joining = self._who_joins()
        self._known_ways: dict[str, list[str]] = {}

    def _who_joins(self) -> dict[str, list[str]]:
        """Whose units may be secondary, by the primary's P-Mode."""
        joining: dict[str, list[str]] = {pmode: [] for pmode in self._queues}
        for pmode in self._queues:
            terms = self._terms[pmode]
            for primary in terms.primaries & joining.keys():
                if incompatible(terms, self._terms[primary]) is None:
                    joining[primary].append(pmode)
        return joining

    def settle(self) -> None:
        """Go through all units: those whose time has come first."""
        due_at = self._due_at()
        due = [place for place, time in enumerate(due_at) if self._drain or time <= self._now]
        for place in sorted(due, key=due_at.__getitem__):
            self._send(place)
        for place in range(len(self._units)):
            self._fill(place)

    def _due_at(self) -> list[datetime]:
        """When each unit should leave: also in time for those of its series behind it."""
        times = [deadline(unit, self._terms) for unit in self._units]
        behind: dict[Hashable, datetime] = {}
        for place in reversed(range(len(times))):
            series = self._units[place].series
            if series is not None:
                times[place] = behind[series] = min(times[place], behind.get(series, times[place]))
        return times

    def _send(self, place: int) -> None:
        """A unit whose time has come leaves with whom it finds."""
        if self._is_taken(place):
            return
        unit = self._units[place]
        if not self._is_next(unit, place):
            self._take(place)
            self._stay([place])
            return
        made = self._bundle_around(place)
        terms = self._terms[unit.pmode]
        if len(made.places) > 1 or terms.policy != "always":
            self._leave(made)
        elif terms.max_delay is not None and unit.at + terms.max_delay <= self._now:
            self.lonely.append(unit)
        else:
            self._stay(made.places)

    def _fill(self, place: int) -> None:
        """A unit whose time has not come leaves only in a bundle that is full."""
        if self._is_taken(place):
            return
        if not self._is_next(self._units[place], place):
            self._take(place)
            self._stay([place])
            return
        made = self._bundle_around(place)
        alone = len(made.places) == 1
        needs_company = self._terms[self._units[place].pmode].policy == "always"
        if (made.full and not alone) or (made.outsize and not needs_company):
            self._leave(made)
        else:
            self._stay(made.places)

    def _leave(self, made: _Growing) -> None:
        primary, *others = made.places
        self.bundles.append(tuple(self._units[one] for one in (primary, *sorted(others))))

    def _stay(self, places: Sequence[int]) -> None:
        for place in places:
            unit = self._units[place]
            self.staying.append(unit)
            if unit.series is not None:
                self._blocked.add(unit.series)

    def _bundle_around(self, seed: int) -> _Growing:
        """The bundle that takes a unit: its units are taken. Alone, when nobody goes with it."""
        unit = self._units[seed]
        self._take(seed)
        for pmode in self._ways(unit.pmode):
            made = self._alone(seed) if pmode == unit.pmode else self._paired(seed, pmode)
            if made is None:
                continue
            self._extend(made)
            if len(made.places) > 1:
                return made
        return self._alone(seed)

    def _ways(self, pmode: str) -> list[str]:
        """The P-Modes of the primary that a unit can travel with, most company first."""
        ways = self._known_ways.get(pmode)
        if ways is None:
            found = {pmode, *(one for one in self._joining if pmode in self._joining[one])}
            company = {
                one: sum(len(self._queues[other].places) for other in self._joining[one])
                for one in found
            }
            ways = sorted(found, key=lambda one: (-company[one], one != pmode, one))
            self._known_ways[pmode] = ways
        return ways

    def _alone(self, place: int) -> _Growing:
        unit = self._units[place]
        return _Growing(place, unit, self._terms[unit.pmode], self._limits)

    def _paired(self, seed: int, pmode: str) -> _Growing | None:
        """A bundle of two, with a unit of this P-Mode as primary; None when none fits."""
        unit, queue, number = self._units[seed], self._queues[pmode], 0
        for _ in range(_LOOK_AHEAD):
            number = queue.free(number)
            if number == len(queue.places):
                return None
            primary = queue.places[number]
            made = self._alone(primary)
            if self._is_next(self._units[primary], primary) and made.add(
                seed, unit, self._terms[unit.pmode]
            ):
                self._take(primary)
                return made
            number += 1
        return None

    def _extend(self, made: _Growing) -> None:
        """Take along all that fits, oldest first."""
        units = self._units
        passed_over = 0
        for place in self._candidates(units[made.places[0]].pmode):
            unit = units[place]
            if self._is_next(unit, place) and made.add(place, unit, self._terms[unit.pmode]):
                self._take(place)
                continue
            passed_over += 1
            if passed_over > _LOOK_AHEAD:
                break
        self._keep_company(made)

    def _keep_company(self, made: _Growing) -> None:
        """Where a full bundle leaves one unit behind that needs company, one more stays with it."""
        if not (made.full and self._left == 1 and len(made.places) > 2):
            return
        [last] = [
            queue.places[number]
            for queue in self._queues.values()
            if (number := queue.free(0)) < len(queue.places)
        ]
        if self._terms[self._units[last].pmode].policy == "always":
            self._give_back(made.places.pop())

    def _candidates(self, pmode: str) -> Iterator[int]:
        """The places of all that may be secondary to a P-Mode's unit, in order."""
        heads = []
        for one in self._joining[pmode]:
            queue = self._queues[one]
            number = queue.free(0)
            if number < len(queue.places):
                heads.append((queue.places[number], number, one))
        heapify(heads)
        while heads:
            place, number, one = heads[0]
            yield place
            queue = self._queues[one]
            number = queue.free(number + 1)
            if number < len(queue.places):
                heapreplace(heads, (queue.places[number], number, one))
            else:
                heappop(heads)

    def _is_taken(self, place: int) -> bool:
        number = self._numbers[place]
        return self._queues[self._units[place].pmode].free(number) != number

    def _is_next(self, unit: Waiting, place: int) -> bool:
        """Whether all of its series before it are taken, and none of them stays."""
        series = unit.series
        if series is None:
            return True
        return series not in self._blocked and self._series.get(series, 0) == self._ranks[place]

    def _take(self, place: int) -> None:
        self._count(place, 1)
        self._queues[self._units[place].pmode].take(self._numbers[place])

    def _give_back(self, place: int) -> None:
        self._count(place, -1)
        self._queues[self._units[place].pmode].give_back(self._numbers[place])

    def _count(self, place: int, change: int) -> None:
        self._left -= change
        series = self._units[place].series
        if series is not None:
            self._series[series] = self._series.get(series, 0) + change
