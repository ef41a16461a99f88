"""Compressed content, in constant memory, and never a bomb; GZIP for payloads (AS4 3.1)."""

import hashlib
from collections.abc import Iterator

from msgspec import Struct

from postroad.wire.codings import (
    Coded,
    Damaged,
    decoded,
    decoded_at_most,
    encoded,
    gathered,
    interruptible,
)
from postroad.wire.content import Content, NewSink, span
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, MIB, Limits

_GZIP = "gzip"
_STRETCH = MIB
"""So much is compressed between two looks at how much came of it."""


class Zipped(Struct, frozen=True):
    """Content that went through GZIP, one way or the other."""

    content: Content
    sha256: bytes


def gzipped(content: Content, *, new_sink: NewSink) -> Zipped:
    """Compress, with the digest of what comes out; the same content gives the same bytes."""
    return _written(encoded(_GZIP, content.chunks()), new_sink)


def compressed(coding: str, content: Content, *, new_sink: NewSink) -> Content:
    """The same in any of the content codings of HTTP, and without a digest."""
    sink = new_sink()
    try:
        for piece in encoded(coding, content.chunks()):
            sink.write(piece)
    except BaseException:
        sink.discard()
        raise
    return sink.finish()


class Portion(Struct, frozen=True):
    """Some of the compressed form of a content."""

    content: Content
    coded: Coded
    """How far it is after that."""
    last: bool


def begun(coding: str) -> Coded | None:
    """How far compressing is that begins; None: this coding has to be done in one go."""
    stream = interruptible(coding)
    return None if stream is None else stream.coded


def next_portion(
    coding: str, content: Content, coded: Coded | None, *, size: int, new_sink: NewSink
) -> Portion:
    """Compress on from where it was left, until there are so many bytes more or it is done."""
    stream, sink, written = interruptible(coding, coded), new_sink(), 0
    if stream is None:
        raise ValueError(f"{coding} has to be done in one go")
    try:
        while written < size and (left := content.size - stream.coded.size):
            for chunk in gathered(span(content, stream.coded.size, min(left, _STRETCH))):
                for piece in stream.of(chunk):
                    sink.write(piece)
                    written += len(piece)
        last = stream.coded.size == content.size
        sink.write(stream.end() if last else stream.interrupted())
    except BaseException:
        sink.discard()
        raise
    return Portion(sink.finish(), stream.coded, last)


def gunzip(
    content: Content, *, new_sink: NewSink, location: str, limits: Limits = DEFAULT
) -> Zipped:
    """Decompress; EBMS:0303 when it is not whole GZIP or grows beyond the limits."""
    most = decoded_at_most(content.size, limits)
    try:
        return _written(decoded_within(_GZIP, content, most), new_sink)
    except Damaged as damage:
        said = f"the GZIP payload cannot be opened: {damage}"
        raise EbmsError("EBMS:0303", said, location=location) from None


def decoded_within(coding: str, content: Content, most: int) -> Iterator[bytes]:
    """The content without its coding; `Damaged` where it is not whole, or more comes of it."""
    size = 0
    for piece in decoded(coding, content.chunks()):
        size += len(piece)
        if size > most:
            raise Damaged(f"it grows to more than {most} bytes from {content.size}")
        yield piece


def _written(pieces: Iterator[bytes], new_sink: NewSink) -> Zipped:
    sink = new_sink()
    digest = hashlib.sha256()
    try:
        for piece in pieces:
            digest.update(piece)
            sink.write(piece)
    except BaseException:
        sink.discard()
        raise
    return Zipped(sink.finish(), digest.digest())


class Unzipped:
    """Content that is kept compressed and read decompressed; it was checked when it came."""

    def __init__(self, content: Content, size: int) -> None:
        self._content = content
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        return decoded(_GZIP, self._content.chunks())


class Measured:
    """A sink for what is inflated that keeps none of it: it can be inflated again."""

    def __init__(self, compressed: Content) -> None:
        self._compressed = compressed
        self.size = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self.size += len(data)

    def finish(self) -> Content:
        return Unzipped(self._compressed, self.size)

    def discard(self) -> None:
        pass
