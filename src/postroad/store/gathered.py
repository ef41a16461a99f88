"""One content in several pieces: a small file says where these lie, so that nothing is copied."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from postroad.store.failures import lost
from postroad.store.records import Stored
from postroad.wire.content import Content, Joined, Slice, span

KIND: Final = "j"
"""How the names of such places begin."""
_decode: Final = msgspec.json.Decoder(tuple[Stored, ...]).decode


class Unopened:
    """A piece whose file is opened only while it is read: there may be thousands of them."""

    __slots__ = ("_open", "_stored", "size")

    def __init__(self, open: Callable[[Stored], Content], stored: Stored) -> None:
        self._open = open
        self._stored = stored
        self.size = stored.size

    def chunks(self) -> Iterator[bytes]:
        return self._open(self._stored).chunks()

    def span(self, begin: int, size: int, /) -> Iterator[bytes]:
        return span(self._open(self._stored), begin, size)


def written(pieces: Sequence[Stored]) -> bytes:
    """What the small file says."""
    return msgspec.json.encode(pieces)


def read(place: str, data: bytes) -> tuple[Stored, ...]:
    """Where the pieces lie; `StoreDamaged` when the file does not say it."""
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise lost(place, "does not say where its pieces are") from error


def gathered(
    stored: Stored, pieces: Sequence[Stored], open: Callable[[Stored], Content]
) -> Content:
    """The stretch of all pieces together that is asked for."""
    whole = Joined([Unopened(open, piece) for piece in pieces])
    if whole.size < stored.offset + stored.size:
        missing = stored.offset + stored.size - whole.size
        raise lost(stored.place, f"is not whole, {missing} bytes are missing")
    return Slice(whole, stored.offset, stored.size)
