"""The content codings of HTTP: what other programs write is read, and the other way round."""

import gzip
import hashlib
import shutil
import subprocess
import tracemalloc
import zlib
from collections.abc import Iterable

import pytest

from postroad.msh.compression import begun, compressed, decoded_within, gzipped, next_portion
from postroad.wire.codings import CODINGS, Damaged, decoded, decoded_at_most, encoded
from postroad.wire.content import BytesContent, BytesSink, Joined, read_all
from postroad.wire.fragments import COMPRESSION_ALGORITHMS
from postroad.wire.limits import KIB, MIB, Limits

TEXT = b"".join(b"line %d: %d\n" % (n, n * n) for n in range(20_000))
NOISE = hashlib.shake_256(b"noise").digest(300 * KIB)
CHANGING = TEXT + NOISE + TEXT
SAMPLES = {
    "nothing": b"",
    "one byte": b"a",
    "one byte again and again": b"a" * 300_000,
    "text": TEXT,
    "noise": NOISE,
    "text, then noise, then text": CHANGING,
}
GZIP = shutil.which("gzip")
COMPRESS = shutil.which("compress")


def cut(data: bytes, size: int = 64 * KIB) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def encode(coding: str, data: bytes) -> bytes:
    return b"".join(encoded(coding, cut(data)))


def decode(coding: str, data: bytes, size: int = 64 * KIB) -> bytes:
    return b"".join(decoded(coding, cut(data, size)))


def test_the_codings_are_those_that_a_fragment_can_name() -> None:
    assert set(CODINGS) == set(COMPRESSION_ALGORITHMS)


@pytest.mark.req("P2-4.2.4-02")
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_encoded_is_decoded_to_the_same(coding: str, sample: str) -> None:
    data = SAMPLES[sample]
    assert decode(coding, encode(coding, data)) == data


@pytest.mark.parametrize("coding", CODINGS)
def test_how_the_bytes_are_cut_does_not_matter_to_the_reader(coding: str) -> None:
    data = TEXT[:5000]
    coded = encode(coding, data)
    for size in (1, 2, 3, 7, 1000):
        assert decode(coding, coded, size) == data


@pytest.mark.parametrize("size", [1, 40, 300])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "compress"])
def test_a_short_text_is_made_smaller_however_it_is_cut(coding: str, size: int) -> None:
    data = b"the same again and again, " * 400
    assert len(b"".join(encoded(coding, cut(data, size)))) < len(data) / 4


@pytest.mark.req("P2-4.2.4-02")
def test_gzip_and_deflate_are_the_formats_of_their_rfcs() -> None:
    assert gzip.decompress(encode("gzip", TEXT)) == TEXT
    assert zlib.decompress(encode("deflate", TEXT)) == TEXT
    assert decode("gzip", gzip.compress(TEXT)) == TEXT
    assert decode("deflate", zlib.compress(TEXT, 9)) == TEXT
    assert encode("identity", TEXT) == TEXT


@pytest.mark.parametrize("level", [0, 1, 9])
def test_deflate_without_the_head_that_http_asks_for_is_read(level: int) -> None:
    packer = zlib.compressobj(level, wbits=-15)
    raw = packer.compress(TEXT) + packer.flush()
    assert decode("deflate", raw) == TEXT
    assert decode("deflate", raw, 1) == TEXT


@pytest.mark.skipif(GZIP is None, reason="there is no gzip here to read .Z files")
@pytest.mark.req("P2-4.2.4-02")
@pytest.mark.parametrize("sample", SAMPLES)
def test_gzip_reads_what_compress_writes(sample: str) -> None:
    coded = encode("compress", SAMPLES[sample])
    assert GZIP is not None
    read = subprocess.run([GZIP, "-dc"], input=coded, capture_output=True, check=True)
    assert read.stdout == SAMPLES[sample]


@pytest.mark.skipif(COMPRESS is None, reason="there is no compress here to write .Z files")
@pytest.mark.parametrize("bits", range(10, 17))
def test_what_the_program_compress_writes_is_read(bits: int) -> None:
    assert COMPRESS is not None
    command = [COMPRESS, "-c", "-f", "-b", str(bits)]
    written = subprocess.run(command, input=CHANGING, capture_output=True, check=True)
    assert decode("compress", written.stdout) == CHANGING


def codes(*groups: tuple[int, Iterable[int]]) -> bytes:
    """Codes of a width each, every group filled up to eight as a change of width does it."""
    written = bytearray()
    for bits, group in groups:
        numbers = list(group)
        for at in range(0, len(numbers), 8):
            packed = sum(code << bits * n for n, code in enumerate(numbers[at : at + 8]))
            written += packed.to_bytes(bits, "little")
    return bytes(written)


def test_a_code_may_be_the_very_entry_that_it_makes() -> None:
    assert decode("compress", b"\x1f\x9d\x90" + codes((9, [97, 257, 258]))[:4]) == b"aaaaaa"


def test_the_table_is_cleared_by_code_256_and_the_rest_of_its_group_left_out() -> None:
    coded = b"\x1f\x9d\x90" + codes((9, [97, 98, 257, 256]), (9, [99, 257]))[: 9 + 3]
    assert decode("compress", coded) == b"ababccc"


def test_without_blocks_code_256_is_an_entry_like_others() -> None:
    assert decode("compress", b"\x1f\x9d\x10" + codes((9, [97, 98, 256]))[:4]) == b"abab"


def test_the_table_stays_when_it_is_full() -> None:
    """With nine bits there are 255 entries; after that codes mean what they meant."""
    literals = [n % 256 for n in range(300)]
    coded = b"\x1f\x9d\x89" + codes((9, [*literals, 511, 511]))
    assert decode("compress", coded)[:302].startswith(bytes(literals))
    assert decode("compress", coded)[300:304] == bytes((254, 255)) * 2


@pytest.mark.parametrize(
    ("coding", "data", "said"),
    [
        ("compress", b"", "does not begin"),
        ("compress", b"\x1f\x9d", "does not begin"),
        ("compress", b"\x1f\x8b\x90" + bytes(9), "does not begin"),
        ("compress", b"\x1f\x9d\x88" + bytes(9), "up to 8 bits"),
        ("compress", b"\x1f\x9d\x91" + bytes(9), "up to 17 bits"),
        ("compress", b"\x1f\x9d\xf0" + bytes(9), "bits"),
        ("compress", b"\x1f\x9d\x90" + codes((9, [300])), "stands for nothing"),
        ("compress", b"\x1f\x9d\x90" + codes((9, [97, 258])), "stands for nothing"),
        ("compress", b"\x1f\x9d\x90" + codes((9, [97, 256]), (9, [257])), "stands for nothing"),
        ("deflate", b"", "too early"),
        ("deflate", b"\x78", "too early"),
        ("deflate", zlib.compress(TEXT)[:-1], "too early"),
        ("deflate", zlib.compress(TEXT) + b"\0", "goes on after its end"),
        ("deflate", b"<order/>", "damaged"),
        ("gzip", gzip.compress(TEXT)[:-1], "too early"),
        ("gzip", b"<order/>", "damaged"),
        ("gzip", gzip.compress(TEXT)[:-8] + bytes(4) + gzip.compress(TEXT)[-4:], "damaged"),
    ],
)
def test_what_is_not_of_the_coding_is_refused(coding: str, data: bytes, said: str) -> None:
    with pytest.raises(Damaged, match=said):
        decode(coding, data)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "compress"])
def test_a_bomb_is_stopped_before_it_grows(coding: str) -> None:
    bomb = BytesContent(encode(coding, bytes(MIB)))
    limits = Limits(decompression_ratio=10, decompression_floor=64 * KIB)
    most = decoded_at_most(bomb.size, limits)
    pieces: list[bytes] = []
    with pytest.raises(Damaged, match=f"grows to more than {most} bytes"):
        pieces.extend(decoded_within(coding, bomb, most))
    assert sum(map(len, pieces)) <= most


def test_the_limits_say_how_much_may_come_of_what() -> None:
    limits = Limits(decompressed_bytes=1000, decompression_ratio=10, decompression_floor=50)
    assert [decoded_at_most(size, limits) for size in (1, 20, 500)] == [50, 200, 1000]


def test_the_longest_strings_need_little_memory() -> None:
    """Each code stands for one byte more than the one before, and is used once."""
    wider = [(bits, range(1 << bits - 1, 1 << bits)) for bits in range(10, 15)]
    coded = b"\x1f\x9d\x90" + codes((9, [97, *range(257, 512)]), *wider)
    tracemalloc.start()
    try:
        size = sum(map(len, decoded("compress", [coded])))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    count = (1 << 14) - 256
    assert size == count * (count + 1) // 2
    assert peak < 8 * MIB


@pytest.mark.parametrize("coding", CODINGS)
def test_content_is_compressed_as_a_stream(coding: str) -> None:
    packed = compressed(coding, BytesContent(TEXT), new_sink=BytesSink)
    assert decode(coding, read_all(packed, MIB)) == TEXT


def test_a_gzip_payload_comes_with_the_digest_of_what_it_became() -> None:
    packed = gzipped(BytesContent(TEXT), new_sink=BytesSink)
    data = read_all(packed.content, MIB)
    assert gzip.decompress(data) == TEXT
    assert packed.sha256 == hashlib.sha256(data).digest()


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_what_comes_in_small_chunks_becomes_as_small_as_in_one(name: str) -> None:
    given = bytes(range(256)) * 40
    whole = sum(map(len, encoded(name, [given])))
    chunks = [given[:100], given[100:1000], given[1000:]]
    assert sum(map(len, encoded(name, chunks))) == whole < 1000


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_noise_is_stored_as_it_is_between_what_becomes_smaller(name: str) -> None:
    packed = encode(name, CHANGING)
    assert NOISE[100_000:101_000] in packed
    assert len(packed) < len(NOISE) + len(TEXT)
    assert zlib.decompressobj(wbits=47).decompress(packed) == CHANGING


def test_noise_is_known_though_something_else_stands_before_it() -> None:
    noise = hashlib.shake_256(b"noise").digest(126 * KIB)
    assert noise[: 32 * KIB] in b"".join(encoded("gzip", [b"text " * 400 + noise]))


def test_what_is_compressed_in_portions_is_cut_like_its_chunks() -> None:
    """Where noise and text take turns a shifted cut would take both for text."""
    noise, text = hashlib.shake_256(b"noise").digest(128 * KIB), b"order " * 22_000
    turns = [BytesContent(noise + text[: 128 * KIB]) for _ in range(20)]
    whole = Joined([BytesContent(b"a head of its own " * 100), *turns])
    coded, pieces, last = begun("gzip"), [], False
    while not last:
        portion = next_portion("gzip", whole, coded, size=300 * KIB, new_sink=BytesSink)
        pieces.append(read_all(portion.content, MIB))
        coded, last = portion.coded, portion.last
    assert len(pieces) > 5
    assert b"".join(pieces).count(noise[64 * KIB : 96 * KIB]) == 20
    assert b"".join(decoded("gzip", pieces)) == b"".join(whole.chunks())


def test_all_kinds_of_bytes_in_turn_are_no_noise() -> None:
    given = bytes(range(256)) * 2000
    assert len(encode("gzip", given)) < len(given) // 20


SHORT = TEXT[:200]


@pytest.mark.parametrize("between", [b"", NOISE[:9], SHORT])
def test_members_are_read_wherever_the_chunks_end(between: bytes) -> None:
    given = SHORT, between, NOISE[:50]
    packed = b"".join(map(gzip.compress, given)) + bytes(5)
    for at in range(1, len(packed)):
        assert b"".join(decoded("gzip", [packed[:at], packed[at:]])) == b"".join(given)


@pytest.mark.parametrize(
    "rubbish", [b"x", b"rubbish", b"much more of it", bytes(3) + gzip.compress(SHORT)]
)
def test_what_follows_the_end_of_gzip_is_not_passed_over(rubbish: bytes) -> None:
    packed = gzip.compress(SHORT) + rubbish
    for at in range(1, len(packed)):
        with pytest.raises(Damaged):
            list(decoded("gzip", [packed[:at], packed[at:]]))
