"""AS4 payload compression (AS4 3.1): GZIP, in constant memory, and never a bomb."""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from postroad.wire.content import Content, NewSink, Sink
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits

_PIECE = 256 * 1024
_MEMBERS = 1000


@dataclass(frozen=True, slots=True)
class Inflated:
    content: Content
    sha256: bytes


def gunzip(
    content: Content, *, new_sink: NewSink, location: str, limits: Limits = DEFAULT
) -> Inflated:
    """Decompress; EBMS:0303 when it is not whole GZIP or grows beyond the limits."""
    sink = new_sink()
    try:
        digest = _inflate(content, sink, location, limits)
    except BaseException:
        sink.discard()
        raise
    return Inflated(sink.finish(), digest)


def _inflate(content: Content, sink: Sink, location: str, limits: Limits) -> bytes:
    digest = hashlib.sha256()
    most = min(
        limits.decompressed_bytes,
        max(content.size * limits.decompression_ratio, limits.decompression_floor),
    )
    written = 0
    try:
        for piece in _pieces(content, location):
            written += len(piece)
            if written > most:
                raise _failed(f"it grows to more than {most} bytes from {content.size}", location)
            digest.update(piece)
            sink.write(piece)
    except zlib.error:
        raise _failed("it is damaged, or was never compressed", location) from None
    return digest.digest()


def _pieces(content: Content, location: str) -> Iterator[bytes]:
    """The decompressed bytes of all GZIP members, in pieces of bounded size."""
    inflate, members = zlib.decompressobj(wbits=31), 1
    for chunk in content.chunks():
        data = chunk
        while data:
            if inflate.eof:
                if not data.strip(b"\0"):
                    break
                if members == _MEMBERS:
                    raise _failed(f"it has more than {_MEMBERS} members", location)
                inflate, members = zlib.decompressobj(wbits=31), members + 1
            yield inflate.decompress(data, _PIECE)
            data = inflate.unconsumed_tail or inflate.unused_data
    while not inflate.eof:
        piece = inflate.decompress(b"", _PIECE)
        if not piece:
            raise _failed("it ends too early", location)
        yield piece


def _failed(why: str, location: str) -> EbmsError:
    return EbmsError("EBMS:0303", f"the GZIP payload cannot be opened: {why}", location=location)
