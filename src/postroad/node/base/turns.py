"""Whose turn it is: places on the wire, shared so that one who hangs keeps nobody else out."""

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_PARTNERS: Final = 4
"""So many partners can have all their places at once."""
_AT_HAND: Final = 32
"""At least so many are fetched at a time: who has few places is not to wait for each message."""


class Turns(Generic[T]):
    """What waits to be sent, for each partner in the order in which it came."""

    def __init__(self, parallel: int, limit: Callable[[str], int] | None = None) -> None:
        """`limit` says how many of the `parallel` places a partner has now; None: all."""
        self._parallel = parallel
        self._limit = limit
        self._fetched = max(parallel, _AT_HAND)
        self._queues: dict[str, deque[T]] = {}
        self._sending: Counter[str] = Counter()
        self._waiting = 0
        self._on_the_wire = 0

    def add(self, partner: str, item: T) -> None:
        self._queues.setdefault(partner, deque()).append(item)
        self._waiting += 1

    def next(self, partner: str) -> T | None:
        """The next for a partner, if there is a place; the place is taken then."""
        queue = self._queues.get(partner)
        if queue is None or not self._has_place(partner):
            return None
        item = queue.popleft()
        if not queue:
            del self._queues[partner]
        self._waiting -= 1
        self._sending[partner] += 1
        self._on_the_wire += 1
        return item

    def following(self, partner: str, count: int) -> list[T]:
        """The first of those that wait for a place with a partner."""
        return list(islice(self._queues.get(partner, ()), count))

    def done(self, partner: str) -> None:
        """A place is free again."""
        self._on_the_wire -= 1
        self._sending[partner] -= 1
        if not self._sending[partner]:
            del self._sending[partner]

    def ready(self) -> list[str]:
        """Partners for whom something waits and who have a place."""
        return [partner for partner in self._queues if self._has_place(partner)]

    def _has_place(self, partner: str) -> bool:
        if self._on_the_wire >= _PARTNERS * self._parallel:
            return False
        sending = self._sending[partner]
        return sending < self._parallel and (self._limit is None or sending < self._limit(partner))

    def has_room(self, partner: str) -> bool:
        """Whether one more may wait."""
        queue = self._queues.get(partner)
        mine = 0 if queue is None else len(queue)
        return mine < 4 * self._fetched and self._waiting < 2 * _PARTNERS * self._fetched

    def room(self) -> int:
        """How many may be fetched now."""
        return min(self._fetched, max(0, 2 * _PARTNERS * self._fetched - self._waiting))

    def full(self) -> tuple[str, ...]:
        """Partners for whom enough waits here: more may wait where it is."""
        return tuple(
            [name for name, queue in self._queues.items() if len(queue) >= 2 * self._fetched]
        )
