"""What a client sends over HTTP, what comes back, and what can go wrong between."""

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Literal, Protocol

import msgspec

from postroad.security.egress import Purpose
from postroad.transport.tls import TlsProfile
from postroad.wire.limits import MIB

Kind = Literal[
    "address",
    "dns",
    "egress",
    "refused",
    "unreachable",
    "tls",
    "timeout",
    "closed",
    "protocol",
    "too_large",
    "body",
]


class TransportFailure(Exception):
    """No answer came; `transmitted` tells whether a byte of the body may have left."""

    def __init__(self, kind: Kind, reason: str, *, transmitted: bool) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.transmitted = transmitted


class Timeouts(msgspec.Struct, frozen=True):
    """How many seconds a partner may take."""

    connect: float = 10
    """Until there is a connection, its TLS handshake included."""
    answer: float = 60
    """From the last byte of the body to the first of the answer."""
    stall: float = 60
    """Without a byte moving, while one side sends."""
    total: float | None = None


DEFAULT_TIMEOUTS = Timeouts()


class Pieces(msgspec.Struct, frozen=True):
    """A body that is read piece by piece while it is sent: `length` bytes in all."""

    length: int
    read: Callable[[], Iterator[bytes]]
    at_hand: bool = False
    """It was read a moment ago: reading it again does not wait for the disk."""


class Flow(msgspec.Struct, frozen=True):
    """A body that is sent while it comes, and held nowhere; without a length it goes in chunks.

    `read` is called again only if nothing of it was sent.
    """

    length: int | None
    read: Callable[[], AsyncGenerator[bytes, None]]


Body = bytes | Pieces | Flow


class Reading(Protocol):
    """A connection from which no more is read for a while."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Outgoing(msgspec.Struct, frozen=True):
    """A POST request, a HEAD that asks what is said of what was posted, or a GET."""

    url: str
    content_type: str
    body: Body
    headers: tuple[tuple[str, str], ...] = ()
    tls: TlsProfile | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    reply_bytes: int = 16 * MIB
    """A larger answer is a failure."""
    progress: Callable[[int], None] | None = None
    """Told how many bytes of the body were given to the network so far."""
    pipelined: bool = False
    """It may go before earlier ones are answered, over a connection where all may."""
    reader: Callable[[str], Callable[[bytes], None]] | None = None
    """Given the answer's Content-Type it says who takes its body, piece by piece.

    `Reply.body` is empty then. Neither may raise.
    """
    tap: "Callable[[Reply, Reading], Callable[[bytes], None]] | None" = None
    """The same, given the whole head of the answer, for who passes it on (`http_passage`)."""
    expects: bool = False
    """The body waits a moment for the server to ask for it: it may have an answer without."""
    method: Literal["POST", "HEAD", "GET"] = "POST"
    """A HEAD or GET has neither body nor Content-Type; the answer to a HEAD has no body."""
    purpose: Purpose = Purpose.PARTNER
    """Why the address is contacted, which the egress policy judges it by."""


class Reply(msgspec.Struct, frozen=True):
    """The answer, whatever its status; names of headers are in lower case."""

    status: int
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
