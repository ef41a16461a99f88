"""The content codings of HTTP/1.1 (RFC 2616, 3.5) as streams: gzip, deflate, compress, identity.

Each coding is two functions from chunks to chunks, in constant memory. How much may come out is
for the caller to count: `decoded_at_most` is what limits allow.

ISA-L writes the formats of zlib several times as fast. It is zlib that reads them: ISA-L is little
faster there, and passes over bytes that follow the end.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from isal import isal_zlib

from postroad.wire import lzw
from postroad.wire.limits import Limits
from postroad.wire.lzw import Damaged

__all__ = ["CODINGS", "Coding", "Damaged", "decoded", "decoded_at_most", "encoded"]

_PIECE: Final = 256 * 1024
_MEMBERS: Final = 1000
_LEVEL: Final = 1
"""As small as zlib at four; the next one that is smaller takes three times as long."""
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
_FIRST: Final = 1024
_NEVER: Final = "it is damaged, or was never compressed"

Stream = Callable[[Iterable[bytes]], Iterator[bytes]]


class Coding(NamedTuple):
    """Both directions of a content coding."""

    encode: Stream
    decode: Stream


def encoded(name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks in a coding of `CODINGS`; the same bytes, cut in the same way, give the same."""
    return CODINGS[name].encode(chunks)


def decoded(name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks without their coding, in pieces of bounded size; `Damaged` when not whole."""
    return CODINGS[name].decode(chunks)


def decoded_at_most(size: int, limits: Limits) -> int:
    """How much may come of so many bytes before it is a bomb."""
    grown = max(size * limits.decompression_ratio, limits.decompression_floor)
    return min(limits.decompressed_bytes, grown)


def _deflated(chunks: Iterable[bytes], wbits: int) -> Iterator[bytes]:
    deflate = isal_zlib.compressobj(_LEVEL, wbits=wbits)
    for chunk in _with_first(chunks):
        if piece := deflate.compress(chunk):
            yield piece
    yield deflate.flush()


def _with_first(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The first chunks as one: what begins with a few bytes and is short ISA-L leaves as it is."""
    first, rest = bytearray(), iter(chunks)
    for chunk in rest:
        first += chunk
        if len(first) >= _FIRST:
            break
    yield bytes(first)
    yield from rest


def _gzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return _deflated(chunks, _GZIP)


def _deflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return _deflated(chunks, _ZLIB)


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """All members of the file; zeros after the last are padding."""
    inflate, members = zlib.decompressobj(wbits=_GZIP), 1
    try:
        for chunk in chunks:
            data = chunk
            while data:
                if inflate.eof:
                    if not data.strip(b"\0"):
                        break
                    if members == _MEMBERS:
                        raise Damaged(f"it has more than {_MEMBERS} members")
                    inflate, members = zlib.decompressobj(wbits=_GZIP), members + 1
                yield inflate.decompress(data, _PIECE)
                data = inflate.unconsumed_tail or inflate.unused_data
        yield from _rest(inflate)
    except zlib.error:
        raise Damaged(_NEVER) from None


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The zlib format; without its head where a sender took the name at its word."""
    source = iter(chunks)
    head = b""
    while len(head) < 2 and (more := next(source, None)) is not None:
        head += more
    inflate = zlib.decompressobj(wbits=_ZLIB if _is_zlib(head) else _RAW)
    try:
        data = head
        while True:
            while data:
                if inflate.eof:
                    raise Damaged("it goes on after its end")
                yield inflate.decompress(data, _PIECE)
                data = inflate.unconsumed_tail or inflate.unused_data
            following = next(source, None)
            if following is None:
                break
            data = following
        yield from _rest(inflate)
    except zlib.error:
        raise Damaged(_NEVER) from None


def _is_zlib(head: bytes) -> bool:
    """Whether it begins as RFC 1950 has it: the method, and a check of the two bytes."""
    return len(head) > 1 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0


def _rest(inflate: "zlib._Decompress") -> Iterator[bytes]:
    while not inflate.eof:
        piece = inflate.decompress(b"", _PIECE)
        if not piece:
            raise Damaged("it ends too early")
        yield piece


def _same(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return iter(chunks)


CODINGS: Final[Mapping[str, Coding]] = MappingProxyType(
    {
        "gzip": Coding(_gzip, _gunzip),
        "deflate": Coding(_deflate, _inflate),
        "compress": Coding(lzw.compress, lzw.decompress),
        "identity": Coding(_same, _same),
    }
)
"""By their names in HTTP."""
