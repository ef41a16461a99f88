"""What comes in and what goes back, whatever carries it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from msgspec import Struct

from postroad.msh.forwarding import Routable
from postroad.transport.http_body import Abandoned
from postroad.transport.http_outgoing import Pieces
from postroad.wire.restart import ContentRange

STATIONS: Final = "Postroad-Stations"
"""The HTTP header in which intermediaries tell where a message was, so that no circle is endless.

It is beside the message, which no intermediary changes.
"""


class Upload(Struct, frozen=True):
    """What a request says of the upload that it is of, which may have broken off before."""

    path: str
    name: str
    range: ContentRange | None = None
    """The bytes that it brings; None: all of them."""
    probe: bool = False
    """It brings none, and asks how much is there."""


class Request(Struct, frozen=True):
    """What is known of a request, or of a mail, before its body comes."""

    content_type: str | None
    peer: str | None
    body: AsyncIterator[bytes]
    client_certificate: bytes | None = None
    """What the other end showed in the TLS handshake, in DER."""
    soap_action: str | None = None
    synchronous: bool = True
    """Whether an answer can be the response; a mail has none."""
    stations: str | None = None
    """The intermediaries that a message passed before, as the last of them tells."""
    length: int | None = None
    """Of the body, where that is known before it comes."""
    found: Routable | None = None
    """What its envelope says for an intermediary, where somebody looked at it before."""
    upload: Upload | None = None
    """Where it may go on after it broke off."""
    is_gone: Callable[[], bool] | None = None
    """Tells whether who made the request has closed the connection, where that can be known."""

    def check_connected(self) -> None:
        """Raise `Abandoned` if who made the request has closed the connection.

        Call it before expensive work, as long as nothing is stored: the message comes again, and an
        overloaded node would only fall further behind by processing both.
        """
        if self.is_gone is not None and self.is_gone():
            raise Abandoned

    @property
    def speaks_ebxml(self) -> bool:
        """Whether it says so before it is read."""
        return (self.soap_action or "").strip("\"' ").lower() == "ebxml"


Handed = Callable[[bool], Awaitable[None]]


class Response(Struct, frozen=True):
    status: int
    content_type: str | None = None
    body: bytes = b""
    handed: Handed | None = None
    """To be told whether the transport took the response."""
    come_again: bool = False
    """It could not be stored, or nobody knows: the sender is to try again."""
    pieces: Pieces | None = None
    """The body, where it is too large to be held in memory."""
    flow: "Flowing | None" = None
    """The answer of another MSH, passed back as it comes."""
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None
    """What is told in the place of the body's length, to who asked for nothing else."""
    awaits: str | None = None
    """It is what the application says to this message: nobody has it yet (`walks.replying`)."""


class Flowing(Struct, frozen=True):
    """A body that comes from elsewhere while it is written; `end` it whatever happens."""

    length: int | None
    pieces: AsyncGenerator[bytes, None]
    end: Callable[[], Awaitable[None]]
    headers: tuple[tuple[str, str], ...] = ()


async def nothing() -> AsyncIterator[bytes]:
    """The body of what came whole."""
    return
    yield b""


NO_CONTENT: Final = Response(202)
