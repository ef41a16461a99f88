"""GZIP payloads open whole or not at all, in small memory, whatever they grow to."""

import gzip
import hashlib
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from postroad.msh.compression import Zipped, gunzip
from postroad.store.spool import SpoolSink
from postroad.wire.content import CHUNK, BytesContent, BytesSink, Content, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, KIB, MIB, Limits

PLAIN: Final = b"".join(f"line {n}: {n * n}\n".encode() for n in range(5000))
PACKED: Final = gzip.compress(PLAIN, mtime=0)


class Pieces:
    """Content that comes in pieces of one's own cut."""

    def __init__(self, data: bytes, cut: int) -> None:
        self.size = len(data)
        self._pieces = [data[at : at + cut] for at in range(0, len(data), cut)]

    def chunks(self) -> Iterator[bytes]:
        yield from self._pieces


class Watched(BytesSink):
    """A sink that tells what became of it."""

    __slots__ = ("discarded", "finished", "written")

    def __init__(self) -> None:
        super().__init__()
        self.finished = self.discarded = False
        self.written = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self.written += len(data)
        super().write(data)

    def finish(self) -> Content:
        self.finished = True
        return super().finish()

    def discard(self) -> None:
        self.discarded = True
        super().discard()


def inflate(data: bytes, limits: Limits = DEFAULT) -> Zipped:
    return gunzip(BytesContent(data), new_sink=BytesSink, location="cid:a", limits=limits)


def refused(data: bytes, limits: Limits = DEFAULT) -> str:
    """What is said of content that does not open."""
    sink = Watched()
    with pytest.raises(EbmsError) as caught:
        gunzip(BytesContent(data), new_sink=lambda: sink, location="cid:a", limits=limits)
    assert caught.value.code == "EBMS:0303"
    assert caught.value.location == "cid:a"
    assert sink.discarded
    assert not sink.finished
    return caught.value.detail


def test_a_payload_opens_with_its_digest() -> None:
    inflated = inflate(PACKED)
    assert read_all(inflated.content, MIB) == PLAIN
    assert inflated.sha256 == hashlib.sha256(PLAIN).digest()


@pytest.mark.parametrize("level", range(10))
def test_every_level_of_compression_opens(level: int) -> None:
    assert read_all(inflate(gzip.compress(PLAIN, level, mtime=0)).content, MIB) == PLAIN


def test_nothing_compressed_is_nothing() -> None:
    assert inflate(gzip.compress(b"", mtime=0)).content.size == 0


def test_optional_header_fields_are_skipped() -> None:
    body = PACKED[10:]
    named = b"\x1f\x8b\x08\x18" + PACKED[4:10] + b"order.xml\0a comment\0" + body
    extra = b"\x1f\x8b\x08\x04" + PACKED[4:10] + b"\x04\x00abcd" + body
    for data in (named, extra):
        assert read_all(inflate(data).content, MIB) == PLAIN


@pytest.mark.parametrize("cut", [1, 2, 7, 9, 10, 11, 64, 1000])
def test_how_the_content_is_cut_does_not_matter(cut: int) -> None:
    data = PACKED + gzip.compress(b"and more", mtime=0) + bytes(20)
    inflated = gunzip(Pieces(data, cut), new_sink=BytesSink, location="cid:a")
    assert read_all(inflated.content, MIB) == PLAIN + b"and more"


def test_several_members_are_one_payload() -> None:
    data = (
        gzip.compress(b"one ", mtime=0)
        + gzip.compress(b"", mtime=0)
        + gzip.compress(b"two", mtime=0)
    )
    inflated = inflate(data)
    assert read_all(inflated.content, MIB) == b"one two"
    assert inflated.sha256 == hashlib.sha256(b"one two").digest()


def test_zeros_after_the_end_are_padding() -> None:
    for count in (1, 3, 512, 70_000):
        assert read_all(inflate(PACKED + bytes(count)).content, MIB) == PLAIN


def test_the_number_of_members_is_bounded() -> None:
    member = gzip.compress(b"", mtime=0)
    assert inflate(member * 1000).content.size == 0
    assert "members" in refused(member * 1001)


@pytest.mark.parametrize("left", [0, 1, 2, 5, 9, 10, 11, 200, len(PACKED) - 9, len(PACKED) - 1])
def test_a_payload_that_was_cut_off_does_not_open(left: int) -> None:
    assert "too early" in refused(PACKED[:left])


def test_a_second_member_that_was_cut_off_does_not_open() -> None:
    for left in (1, 10, 15):
        assert "too early" in refused(PACKED + PACKED[:left])


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        b"<order/>",
        zlib.compress(PLAIN),
        zlib.compress(PLAIN)[2:-4],
        b"PK\x03\x04" + bytes(60),
        b"\x1f\x8b\x07" + PACKED[3:],
        PACKED + b"garbage",
        PACKED + b"\0\0garbage",
        b"\0" + PACKED,
    ],
    ids=[
        "text",
        "XML",
        "zlib",
        "deflate",
        "zip",
        "another method",
        "garbage after the end",
        "garbage after the padding",
        "a zero before the beginning",
    ],
)
def test_what_is_not_gzip_does_not_open(data: bytes) -> None:
    assert "damaged, or was never compressed" in refused(data)


def test_every_damaged_byte_of_the_checksum_and_size_is_seen() -> None:
    for at in range(len(PACKED) - 8, len(PACKED)):
        damaged = PACKED[:at] + bytes((PACKED[at] ^ 1,)) + PACKED[at + 1 :]
        assert "damaged" in refused(damaged)


def test_damage_anywhere_never_yields_another_payload() -> None:
    for at in range(0, len(PACKED), 97):
        damaged = PACKED[:at] + bytes((PACKED[at] ^ 0x20,)) + PACKED[at + 1 :]
        with suppress(EbmsError):
            assert read_all(inflate(damaged).content, MIB) == PLAIN


def test_a_bomb_is_stopped_at_its_ratio() -> None:
    bomb = gzip.compress(bytes(20 * MIB), mtime=0)
    limits = Limits(decompression_ratio=100, decompression_floor=64 * KIB)
    sink = Watched()
    with pytest.raises(EbmsError, match="grows to more than") as caught:
        gunzip(BytesContent(bomb), new_sink=lambda: sink, location="cid:a", limits=limits)
    assert caught.value.code == "EBMS:0303"
    assert sink.discarded
    assert sink.written <= 100 * len(bomb)


def test_a_small_payload_may_compress_as_well_as_it_likes() -> None:
    packed = gzip.compress(bytes(200 * KIB), mtime=0)
    assert inflate(packed, Limits(decompression_ratio=1)).content.size == 200 * KIB


def test_the_absolute_limit_holds_whatever_the_ratio() -> None:
    limits = Limits(decompressed_bytes=len(PLAIN) - 1, decompression_ratio=10**9)
    assert "grows to more than" in refused(PACKED, limits)
    exact = Limits(decompressed_bytes=len(PLAIN))
    assert inflate(PACKED, exact).content.size == len(PLAIN)


def test_members_together_are_held_to_the_limit() -> None:
    data = gzip.compress(bytes(60), mtime=0) * 2
    assert "grows" in refused(data, Limits(decompressed_bytes=100))


def test_a_large_payload_opens_in_small_memory() -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    block = hashlib.shake_256(b"block").digest(1000) + bytes(CHUNK - 1000)
    pieces = [packer.compress(block) for _ in range(128)]
    data = b"".join([*pieces, packer.flush()])
    tracemalloc.start()
    try:
        inflated = gunzip(BytesContent(data), new_sink=SpoolSink, location="cid:a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inflated.content.size == 128 * CHUNK
    assert peak < 4 * MIB


def test_a_failing_disk_leaves_nothing_behind() -> None:
    class Failing(Watched):
        __slots__ = ()

        def write(self, data: bytes | memoryview, /) -> None:
            raise OSError("disk full")

    sink = Failing()
    with pytest.raises(OSError, match="disk full"):
        gunzip(BytesContent(PACKED), new_sink=lambda: sink, location="cid:a")
    assert sink.discarded
