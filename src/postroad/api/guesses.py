"""Wrong tokens: counted, logged, and answered ever more slowly.

A right token is never delayed, so nobody can lock its owner out.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

FREE: Final = 10
"""How many consecutive wrong tokens of one address are answered without delay."""
LONGEST: Final = 8.0
"""The longest delay of an answer, in seconds."""
FORGOTTEN: Final = 300.0
"""Seconds without a wrong token after which an address starts anew."""
_FIRST: Final = 0.25
_ADDRESSES: Final = 10_000
_DELAYED: Final = 500
"""Answers that are delayed at once; more are given without a delay, each with a 401."""
_LOG_EVERY: Final = 60.0
_log = logging.getLogger("postroad.api")


class _Guesser(Struct):
    """An address that sent wrong tokens."""

    count: int = 0
    last: float = 0.0
    logged: float = float("-inf")


class Guesses:
    """The wrong tokens of all addresses; `counted` is called for each of them."""

    def __init__(
        self,
        counted: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._counted = counted
        self._clock = clock
        self._pause = pause
        self._known: OrderedDict[str, _Guesser] = OrderedDict()
        self._delayed = 0

    async def wrong(self, peer: str) -> None:
        """Note a wrong token, and return when it may be answered."""
        self._counted()
        delay = self._noted(peer, self._clock())
        if delay <= 0 or self._delayed >= _DELAYED:
            return
        self._delayed += 1
        try:
            await self._pause(delay)
        finally:
            self._delayed -= 1

    def _noted(self, peer: str, now: float) -> float:
        """Count one more; the seconds by which its answer is delayed."""
        found = self._known.pop(peer, None)
        if found is None or now - found.last > FORGOTTEN:
            found = _Guesser()
        self._known[peer] = found
        if len(self._known) > _ADDRESSES:
            self._known.popitem(last=False)
        found.count += 1
        found.last = now
        if now - found.logged >= _LOG_EVERY:
            found.logged = now
            detail = f"{found.count} in a row"
            _log.warning(
                "wrong token for the REST interface", extra={"peer": peer, "detail": detail}
            )
        late = found.count - FREE
        return 0.0 if late <= 0 else min(LONGEST, _FIRST * 2.0 ** min(late - 1, 10))
