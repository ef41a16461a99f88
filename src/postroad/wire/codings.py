"""The content codings of HTTP/1.1 (RFC 2616, 3.5) as streams: gzip, deflate, compress, identity.

Each coding is two functions from chunks to chunks, in constant memory. How much may come out is
for the caller to count: `decoded_at_most` is what limits allow.

ISA-L writes the formats of zlib several times as fast, and reads gzip so. What looks like noise,
because it was compressed or encrypted before, is stored as it is: it would become no smaller, and
take long to read.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import pack
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from isal import isal_zlib

from postroad.wire import lzw
from postroad.wire.limits import Limits
from postroad.wire.lzw import Damaged

__all__ = [
    "CODINGS",
    "Coded",
    "Coding",
    "Damaged",
    "Interruptible",
    "decoded",
    "decoded_at_most",
    "encoded",
    "gathered",
    "interruptible",
]

_PIECE: Final = 256 * 1024
_MEMBERS: Final = 1000
_LEVEL: Final = 1
"""As small as zlib at four; the next one that is smaller takes three times as long."""
_GATHERED: Final = 128 * 1024
_UNIT: Final = 128 * 1024
"""So much at a time is looked at, and compressed or not."""
_STRIDE: Final = 127
"""Every so many bytes one is looked at. It is prime: records of most sizes do not hide in it."""
_NOISE: Final = 246
"""Of a thousand bytes of noise this many are different, or more."""
_SAMPLE: Final = 2048
"""So many bytes in a row are tried where it looks like noise."""
_STORED: Final = 0xFFFF
_LAST: Final = b"\x03\x00"
"""A last block with nothing in it."""
_GZIP_MARK: Final = b"\x1f"
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15
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


class _Deflating:
    """Deflate without a head: for each chunk what there is of it by then, then the end."""

    def __init__(self) -> None:
        self._deflate: Any = None
        """What compresses, from the last noise on."""

    def of(self, chunk: bytes) -> Iterator[bytes]:
        for begin in range(0, len(chunk), _UNIT):
            end = begin + _UNIT
            if _is_noise(chunk, begin, end):
                yield self.ended()
                yield b"".join(_stored(memoryview(chunk)[begin:end]))
            else:
                self._deflate = self._deflate or isal_zlib.compressobj(_LEVEL, wbits=_RAW)
                yield self._deflate.compress(memoryview(chunk)[begin:end])

    def ended(self) -> bytes:
        """What was compressed ends with a whole byte."""
        deflate, self._deflate = self._deflate, None
        return deflate.flush(isal_zlib.Z_SYNC_FLUSH) if deflate is not None else b""

    def end(self) -> bytes:
        return _LAST if self._deflate is None else self._deflate.flush()


def _is_noise(chunk: bytes, begin: int, end: int) -> bool:
    """Whether a stretch of it would not become smaller, as far as a glance tells."""
    if len(set(chunk[begin:end:_STRIDE])) < _NOISE:
        return False
    # From the middle: at its edges there may be what stands around the noise.
    middle = (begin + min(end, len(chunk))) // 2
    sample = chunk[middle : middle + _SAMPLE]
    return len(isal_zlib.compress(sample, _LEVEL, wbits=_RAW)) > len(sample) * 0.98


def _stored(data: memoryview) -> Iterator[bytes | memoryview]:
    """Blocks of deflate that hold the data as it is (RFC 1951, 3.2.4)."""
    for begin in range(0, len(data), _STORED):
        piece = data[begin : begin + _STORED]
        yield pack("<BHH", 0, len(piece), len(piece) ^ _STORED)
        yield piece


def gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Small chunks together: ISA-L hardly compresses what begins with a few bytes."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _GATHERED:
            yield held[0] if len(held) == 1 else b"".join(held)
            held, size = [], 0
    yield b"".join(held)


class Coded(NamedTuple):
    """How far a coding is: all that it takes to go on with it."""

    size: int = 0
    """Bytes that were coded."""
    check: int = 0
    """Their checksum."""


class Interruptible:
    """A coding that can be gone on with later, by who knows how far it is.

    `of` each chunk come some bytes; they are whole after `interrupted`, and the last after `end`.
    """

    def __init__(self, format: "_Format", coded: Coded) -> None:
        self._format = format
        self._head = b"" if coded.size else format.head
        self._deflating = _Deflating()
        self.coded = coded

    def of(self, chunk: bytes) -> Iterator[bytes]:
        size, check = self.coded
        self.coded = Coded(size + len(chunk), self._format.checked(chunk, check))
        head, self._head = self._head, b""
        yield from filter(None, (head, *self._deflating.of(chunk)))

    def interrupted(self) -> bytes:
        return self._deflating.ended()

    def end(self) -> bytes:
        return self._head + self._deflating.end() + self._format.tail(self.coded)


class _Format(NamedTuple):
    """What stands around the compressed bytes."""

    head: bytes
    begin: int
    """The checksum of nothing."""
    checked: Callable[[bytes, int], int]
    tail: Callable[[Coded], bytes]

    def encode(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        coding = Interruptible(self, Coded(0, self.begin))
        for chunk in gathered(chunks):
            yield from coding.of(chunk)
        yield coding.end()


_FORMATS: Final = MappingProxyType(
    {
        # RFC 1952
        "gzip": _Format(
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
            0,
            isal_zlib.crc32,
            lambda coded: pack("<II", coded.check, coded.size & 0xFFFFFFFF),
        ),
        # RFC 1950
        "deflate": _Format(
            b"\x78\x01", 1, isal_zlib.adler32, lambda coded: pack(">I", coded.check)
        ),
    }
)


def interruptible(name: str, coded: Coded | None = None) -> Interruptible | None:
    """A coding to go on with, or to begin; None: this one has to be done in one go."""
    format = _FORMATS.get(name)
    if format is None:
        return None
    return Interruptible(format, coded or Coded(0, format.begin))


def _gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """All members of the file; zeros after the last are padding."""
    member, members = _Member(), 1
    padded = False
    try:
        for chunk in chunks:
            data = chunk
            while data:
                if member.eof:
                    padded = padded or data.startswith(b"\0")
                    if padded and data.strip(b"\0"):
                        raise Damaged(_NEVER)
                    if padded:
                        break
                    if members == _MEMBERS:
                        raise Damaged(f"it has more than {_MEMBERS} members")
                    member, members = _Member(), members + 1
                yield member.decompress(data, _PIECE)
                data = member.left
        yield from _rest(member)
    except isal_zlib.error:  # type: ignore[misc]
        raise Damaged(_NEVER) from None


class _Member:
    """One member of a gzip file, inflated by ISA-L."""

    def __init__(self) -> None:
        self._inflate = isal_zlib.decompressobj(wbits=_GZIP)
        self._begun = False

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    def decompress(self, data: bytes, most: int) -> bytes:
        if data and not self._begun and not data.startswith(_GZIP_MARK):
            raise Damaged(_NEVER)
        self._begun = True
        return self._inflate.decompress(data, most)

    @property
    def left(self) -> bytes:
        """What is not read yet of the data."""
        return self._inflate.unconsumed_tail or self._inflate.unused_data


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


def _rest(inflate: "zlib._Decompress | _Member") -> Iterator[bytes]:
    while not inflate.eof:
        piece = inflate.decompress(b"", _PIECE)
        if not piece:
            raise Damaged("it ends too early")
        yield piece


def _same(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return iter(chunks)


CODINGS: Final[Mapping[str, Coding]] = MappingProxyType(
    {
        "gzip": Coding(_FORMATS["gzip"].encode, _gunzip),
        "deflate": Coding(_FORMATS["deflate"].encode, _inflate),
        "compress": Coding(lzw.compress, lzw.decompress),
        "identity": Coding(_same, _same),
    }
)
"""By their names in HTTP."""
