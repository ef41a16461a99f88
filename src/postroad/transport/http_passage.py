"""A request whose answer is passed on while it comes: the head first, then the body in pieces.

No more of the answer is read from the network than somebody takes.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec

from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Reading, Reply
from postroad.wire.limits import KIB

_MOST_HELD: Final = 256 * KIB


class Passage:
    """One request under way. `close` it whatever happens."""

    def __init__(self, client: Client, request: Outgoing) -> None:
        self._head: Reply | None = None
        self._reading: Reading | None = None
        self._paused = False
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._moved = asyncio.Event()
        posting = client.post(msgspec.structs.replace(request, tap=self._begins))
        self._posting = asyncio.get_running_loop().create_task(posting)
        self._posting.add_done_callback(self._ended)

    async def head(self) -> Reply:
        """Status and headers of the answer; `TransportFailure` when none comes."""
        while self._head is None:
            if self._posting.done():
                self._head = reply = self._posting.result()
                if reply.body:
                    self._pieces.append(reply.body)
            else:
                await self._more()
        return self._head

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes; `TransportFailure` when it breaks off."""
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._held -= len(piece)
                yield piece
                if self._paused and self._held < _MOST_HELD and self._reading is not None:
                    self._paused = False
                    self._reading.resume_reading()
            if self._posting.done():
                self._posting.result()
                return
            await self._more()

    async def close(self) -> None:
        """End it, if it is still under way."""
        self._posting.cancel()
        await asyncio.gather(self._posting, return_exceptions=True)

    async def _more(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _begins(self, head: Reply, reading: Reading) -> Callable[[bytes], None]:
        self._head, self._reading = head, reading
        self._moved.set()
        return self._take

    def _ended(self, _: object) -> None:
        """All of it came, or nothing more does: the connection may serve others."""
        if self._paused and self._reading is not None:
            self._paused = False
            self._reading.resume_reading()
        self._moved.set()

    def _take(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held >= _MOST_HELD and not self._paused and self._reading is not None:
            self._paused = True
            self._reading.pause_reading()
        self._moved.set()
