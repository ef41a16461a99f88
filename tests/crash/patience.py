"""When to give up: not after a fixed time or number of tries, but when nothing moves any more.

A busy machine makes everything slow and stops nothing, so a fixed limit would fail there without
a fault of the nodes.
"""

import time
from collections.abc import Callable
from typing import Final

STANDSTILL: Final = 300.0
"""Seconds without any progress after which a storm is given up."""


class Patience:
    """Bears any duration as long as something moves."""

    def __init__(
        self, seconds: float = STANDSTILL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sign: object = None
        self._moved = clock()

    def look(self, sign: object, doing: str) -> None:
        """Raise AssertionError if the sign of progress has been the same for too long."""
        now = self._clock()
        if sign != self._sign:
            self._sign, self._moved = sign, now
        elif now - self._moved > self._seconds:
            raise AssertionError(f"{doing}: nothing moved for {self._seconds:g} s, at {sign}")
