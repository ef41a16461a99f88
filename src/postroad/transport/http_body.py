"""The body of an HTTP request, piece by piece, for whoever answers it."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyError(Exception):
    """The body of a request cannot be read to its end."""


class TooLarge(BodyError):
    """The body is larger than it may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes, which is the limit here")
        self.limit = limit


class Truncated(BodyError):
    """The client went away before the end of the body."""

    def __init__(self, received: int) -> None:
        super().__init__(f"the client went away after {received} bytes of the body")
        self.received = received


class Abandoned(Truncated):
    """The client went away while its request waited to be processed."""

    def __init__(self) -> None:
        BodyError.__init__(self, "the client went away before its request was processed")
        self.received = 0


async def body_chunks(
    receive: Receive, *, limit: int, arrived: Callable[[], None] | None = None
) -> AsyncIterator[bytes]:
    """The body as it comes; `TooLarge` beyond the limit, `Truncated` when it breaks off.

    The next piece is taken from the network only when it is asked for. `arrived` is told when all
    of it did.
    """
    received = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Truncated(received)
        piece: bytes = message.get("body", b"")
        received += len(piece)
        if received > limit:
            raise TooLarge(limit)
        if piece:
            yield piece
        if not message.get("more_body", False):
            break
    if arrived is not None:
        arrived()
