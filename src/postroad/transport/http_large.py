"""A large body that comes in: read from the network straight into the memory it is handed over in.

The parser gets the head and the first bytes. From then on it would only copy what comes: the length
is known, so the connection's transport writes into a buffer here until the body ends. What is
counted and watched stays with the connection.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from postroad.transport.http_body import Message
from postroad.wire.limits import MIB

LARGE: Final = MIB
"""Bodies from this size on are worth it."""
_BUFFER: Final = MIB


class LargeBody(asyncio.BufferedProtocol):
    """Who is told of the network while the rest of a body comes.

    `heard` is told how many bytes came, and `ended` when that is all; `connection` hears the rest.
    """

    def __init__(
        self,
        connection: asyncio.Protocol,
        cycle: RequestResponseCycle,
        length: int,
        heard: Callable[[int], None],
        ended: Callable[[], None],
    ) -> None:
        self.length = length
        self._connection = connection
        self._cycle = cycle
        self._heard = heard
        self._ended = ended
        self._left = 0
        self._buffer = bytearray()
        self._filled = 0
        self._usual = cycle.receive
        cycle.receive = self._receive  # type: ignore[method-assign]

    def begin(self, left: int) -> None:
        """From now on what comes is the rest of the body."""
        self._left = left
        self._buffer = bytearray(min(_BUFFER, left))

    # What the network says

    def get_buffer(self, _: int) -> memoryview:
        if self._cycle.response_complete:
            # Nobody takes it any more.
            self._filled = 0
        return memoryview(self._buffer)[self._filled : self._filled + self._left]

    def buffer_updated(self, count: int) -> None:
        self._left -= count
        self._heard(count)
        if not self._cycle.response_complete:
            self._filled += count
            if self._filled == len(self._buffer):
                self._cycle.flow.pause_reading()
            self._cycle.message_event.set()
        if not self._left:
            self._ended()

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # What the application asks for

    async def _receive(self) -> Any:
        """The next piece, as ASGI has it; what came before a line broke is handed over too."""
        cycle = self._cycle
        first = bytes(cycle.body)
        if cycle.response_complete or not (first or self._filled):
            message: Message = await self._usual()  # type: ignore[assignment]
            if cycle.response_complete or not self._filled:
                return message
            first = message.get("body", b"")
        if first:
            # What the parser took.
            cycle.body = bytearray()
            if self._filled < len(self._buffer):
                cycle.flow.resume_reading()
            more = cycle.more_body or self._filled > 0
            return {"type": "http.request", "body": first, "more_body": more}
        more = cycle.more_body
        return {"type": "http.request", "body": self._taken(), "more_body": more}

    def _taken(self) -> bytes | bytearray:
        size, self._filled = self._filled, 0
        piece: bytes | bytearray
        if size < len(self._buffer) // 4:
            piece = bytes(memoryview(self._buffer)[:size])
        else:
            piece, self._buffer = self._buffer, bytearray(min(_BUFFER, self._left))
            del piece[size:]
        self._cycle.flow.resume_reading()
        return piece
