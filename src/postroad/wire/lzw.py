"""The coding `compress` of HTTP/1.1: LZW as in .Z files, both ways, in constant memory.

Three bytes of head: the magic, then the widest code and whether code 256 clears the table. Codes
follow, lowest bits first, in groups of eight: a group is as many bytes as a code has bits. When the
width changes, or the table is cleared, the rest of the group is left out. There is neither an end
mark nor a check sum; how long the whole must be is said elsewhere.

The strings of a hostile table would add up to gigabytes. So an entry is a tail of bounded length,
and the code of what comes before it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

MAGIC: Final = b"\x1f\x9d"

_CLEAR: Final = 256
_BLOCKS: Final = 0x80
_RESERVED: Final = 0x60
_FEWEST: Final = 9
_MOST: Final = 16
_TAIL: Final = 64
_NOTHING: Final = -1
_PIECE: Final = 64 * 1024
_CHECK: Final = 64 * 1024
"""How many bytes go by between two looks whether a full table still serves."""


class Damaged(ValueError):
    """The bytes are not what they are said to be; the sentence goes on after `it`."""


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes in this coding, in pieces."""
    yield MAGIC + bytes((_BLOCKS | _MOST,))
    writer = _Writer()
    codes: dict[int, int] = {}
    free, most = _CLEAR + 1, 1 << _MOST
    prefix = _NOTHING
    taken, ratio, begun = 0, 0.0, (0, 0)
    for chunk in chunks:
        for byte in chunk:
            if prefix < 0:
                prefix = byte
                continue
            key = prefix << 8 | byte
            found = codes.get(key)
            if found is not None:
                prefix = found
                continue
            writer.write(prefix)
            prefix = byte
            if free < most:
                codes[key] = free
                free += 1
        taken += len(chunk)
        if free == most and taken - begun[0] >= _CHECK:
            now = (taken - begun[0]) / max(writer.written - begun[1], 1)
            begun = (taken, writer.written)
            if now < ratio:
                writer.write(prefix)
                writer.clear()
                codes.clear()
                free, prefix, now = _CLEAR + 1, _NOTHING, 0.0
            ratio = now
        if len(writer.done) >= _PIECE:
            yield writer.take()
    if prefix >= 0:
        writer.write(prefix)
    yield writer.finish()


class _Writer:
    """Codes into bytes. It counts the entries of the reader's table to know the width."""

    def __init__(self) -> None:
        self.done = bytearray()
        self.written = 0
        self._begin()

    def _begin(self) -> None:
        self._bits = _FEWEST
        self._free = _CLEAR
        self._group = 0
        self._held = 0

    def write(self, code: int) -> None:
        self._group |= code << self._held * self._bits
        self._held += 1
        if self._free < 1 << _MOST:
            self._free += 1
        wider = self._bits < _MOST and self._free == 1 << self._bits
        if wider or self._held == 8:
            self._flush(self._bits)
            self._bits += wider

    def clear(self) -> None:
        """Say that the table is empty again."""
        self._group |= _CLEAR << self._held * self._bits
        self._flush(self._bits)
        self._begin()

    def _flush(self, size: int) -> None:
        self.done += self._group.to_bytes(self._bits, "little")[:size]
        self.written += size
        self._group = self._held = 0

    def take(self) -> bytes:
        done, self.done = bytes(self.done), bytearray()
        return done

    def finish(self) -> bytes:
        self._flush(-(-self._held * self._bits // 8))
        return self.take()


def decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes from this coding, in pieces of bounded size; `Damaged` when they make no sense."""
    source = _Bytes(chunks)
    head = source.read(3)
    if len(head) < 3 or not head.startswith(MAGIC):
        raise Damaged("it does not begin as the coding compress does")
    widest, blocks = head[2] & 0x1F, bool(head[2] & _BLOCKS)
    if head[2] & _RESERVED or not _FEWEST <= widest <= _MOST:
        raise Damaged(f"its codes have up to {widest} bits, from {_FEWEST} to {_MOST} are known")
    table = _Table(widest, blocks)
    pieces = bytearray()
    while group := source.read(table.bits):
        table.expand(group, pieces)
        if len(pieces) >= _PIECE:
            yield bytes(pieces)
            pieces.clear()
    if pieces:
        yield bytes(pieces)


class _Table:
    """What the codes stand for at this place."""

    def __init__(self, widest: int, blocks: bool) -> None:
        self._widest = widest
        self._most = 1 << widest
        self._clear = _CLEAR if blocks else _NOTHING
        self._literals = [bytes((byte,)) for byte in range(256)] + [b""] * blocks
        self._begin()

    def _begin(self) -> None:
        self.bits = _FEWEST
        self._tails = list(self._literals)
        self._before = [_NOTHING] * len(self._tails)
        self._firsts = list(self._literals)
        self._previous = _NOTHING

    def expand(self, group: bytes, into: bytearray) -> None:
        """Append what a group of up to eight codes stands for."""
        bits = self.bits
        mask = (1 << bits) - 1
        packed = int.from_bytes(group, "little")
        for _ in range(len(group) * 8 // bits):
            code = packed & mask
            packed >>= bits
            if code == self._clear:
                self._begin()
                return
            self._learn(code)
            self._append(code, into)
            self._previous = code
            if len(self._tails) > mask and bits < self._widest:
                self.bits = bits + 1
                return

    def _learn(self, code: int) -> None:
        """The entry that follows from the previous code and this one, which may be that entry."""
        previous, size = self._previous, len(self._tails)
        if previous < 0:
            if code > 255:
                raise Damaged("it begins with a code that stands for nothing yet")
            return
        if code > size or (code == size and size == self._most):
            raise Damaged("a code stands for nothing yet")
        if size == self._most:
            return
        last = self._firsts[previous if code == size else code]
        tail = self._tails[previous]
        if len(tail) < _TAIL:
            self._tails.append(tail + last)
            self._before.append(self._before[previous])
        else:
            self._tails.append(last)
            self._before.append(previous)
        self._firsts.append(self._firsts[previous])

    def _append(self, code: int, into: bytearray) -> None:
        tails, before = self._tails, self._before
        if before[code] < 0:
            into += tails[code]
            return
        pieces = []
        while code >= 0:
            pieces.append(tails[code])
            code = before[code]
        pieces.reverse()
        into += b"".join(pieces)


class _Bytes:
    """Chunks of any size, read by number of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        end = self._at + size
        while end > len(self._held):
            more = next(self._chunks, None)
            if more is None:
                break
            self._held, self._at, end = self._held[self._at :] + more, 0, size
        piece = self._held[self._at : end]
        self._at += len(piece)
        return piece
