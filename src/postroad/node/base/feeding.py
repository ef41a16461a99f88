"""Large pieces of what comes in are taken beside the loop: it does not wait for digest and disk.

The connection reads on meanwhile, into its buffer: the next piece is there when one is done.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from postroad.wire.limits import KIB

_LARGE: Final = 128 * KIB
"""Smaller pieces are done before a thread would begin with them."""
_THREADS: Final = 4


class Feeder:
    """The threads that do it, for all bodies that come in."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "postroad-feed")

    async def feed(self, take: Callable[[bytes], None], piece: bytes) -> None:
        """Let a piece be taken; when this ends nobody is at it any more, come what may."""
        if len(piece) < _LARGE:
            take(piece)
            return
        taking = asyncio.get_running_loop().run_in_executor(self._pool, take, piece)
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.wait({taking})
            raise
