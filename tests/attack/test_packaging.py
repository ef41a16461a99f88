"""Bombs, floods and broken packages: refused with their code, in bounded memory."""

import gzip
import io
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import pytest

import postroad
from postroad.security.attachments import Attachment
from postroad.wire.ebms3 import COMPRESSION_TYPE, GZIP, MIME_TYPE, PartInfo, Property
from postroad.wire.limits import KIB, MIB, Limits
from tests.attack.messages import (
    BOUNDARY,
    NOW,
    ROOT_ID,
    TWO,
    VERSION,
    Package,
    Part,
    Report,
    assert_holds,
    assert_refused,
    ca,
    for_seller,
    http,
    look,
    make,
    payload,
    seller,
    write_mime,
)
from tests.changing import replace

BOUND = 30 * MIB


@cache
def _bomb(megabytes: int, members: int = 1) -> bytes:
    """Zeros, packed a thousandfold."""
    packer = zlib.compressobj(9, wbits=31)
    block = bytes(MIB)
    one = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    return one * members


def _measured(look_at: Callable[[], Report]) -> tuple[Report, int]:
    tracemalloc.start()
    try:
        found = look_at()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Bombs


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("100 MB in one member", lambda: _bomb(100)),
        ("many members", lambda: _bomb(1, 100)),
        ("more members than anybody writes", lambda: gzip.compress(b"", mtime=0) * 2000),
        ("a bomb behind a small member", lambda: gzip.compress(b"small", mtime=0) + _bomb(100)),
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_compressed_payload_that_grows_too_much_is_refused(
    name: str, content: Callable[[], bytes], sealed: bool
) -> None:
    message = make([payload("one", content(), GZIP)], encryption=for_seller() if sealed else None)
    data = message.wire()
    found, peak = _measured(lambda: look(data, keys=(seller(),)))
    assert_refused(found, "EBMS:0303")
    assert peak < BOUND, f"{name}: {peak / MIB:.0f} MiB"
    assert [one["size"] for one in found["units"][0]["payloads"]] == [None]


def _text(lines: int) -> bytes:
    return b"".join(b"line %d of the order\n" % number for number in range(lines))


def test_the_limits_of_decompression_are_those_that_were_asked_for() -> None:
    message = make([payload("one", gzip.compress(_text(2000), mtime=0), GZIP)])
    assert_holds(look(message))
    assert_refused(look(message, limits=Limits(decompressed_bytes=KIB)), "EBMS:0303")
    tight = Limits(decompression_ratio=2, decompression_floor=KIB)
    assert_refused(look(message, limits=tight), "EBMS:0303")


def test_each_part_is_bounded_by_itself() -> None:
    good = payload("good", gzip.compress(b"pay 100", mtime=0), GZIP)
    message = make([good, payload("bomb", _bomb(100), GZIP)])
    found = look(message)
    assert_refused(found, "EBMS:0303")
    assert [one["size"] for one in found["units"][0]["payloads"]] == [7, None]


def test_a_bomb_inside_of_a_payload_is_not_opened() -> None:
    """The payload is one GZIP file in another: only the outer one is AS4's."""
    inner = _bomb(100)
    found = look(make([payload("one", gzip.compress(inner, mtime=0), GZIP)]))
    assert_holds(found)
    assert found["units"][0]["payloads"][0]["size"] == len(inner)


def test_a_bomb_that_nobody_asked_to_open_is_no_failure_and_no_harm() -> None:
    listed = [PartInfo("cid:one@buyer.example", (Property(MIME_TYPE, GZIP),))]
    data = make([payload("one", _bomb(100), GZIP)], listed=listed).wire()
    found, peak = _measured(lambda: look(data))
    assert_holds(found)
    assert found["units"][0]["payloads"][0]["unpacked"] is None
    assert peak < BOUND


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "gzip, gzip"])
def test_a_compressed_request_that_grows_too_much_is_refused(coding: str) -> None:
    bomb = {"deflate": zlib.compress(bytes(50 * MIB), 9)}.get(coding, _bomb(100))
    data = http("application/soap+xml", bomb, head=f"Content-Encoding: {coding}\r\n")
    found, peak = _measured(lambda: look(data))
    assert_refused(found, "EBMS:0007", "EBMS:0009")
    assert peak < BOUND, f"{peak / MIB:.0f} MiB"


def test_a_compressed_request_with_a_good_message_is_read() -> None:
    message = make(TWO).wire()
    head, _, body = message.partition(b"\r\n\r\n")
    packed = head + b"\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(body, mtime=0)
    assert_holds(look(packed))
    assert_refused(look(packed[:-20]), "EBMS:0007")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, " * 20, "compress", "chunked, gzip"])
def test_an_unknown_coding_of_the_request_is_refused(coding: str) -> None:
    message = make(TWO).wire()
    head, _, body = message.partition(b"\r\n\r\n")
    coded = head + f"\r\nContent-Encoding: {coding}\r\n\r\n".encode() + body
    assert_refused(look(coded), "EBMS:0007")


@pytest.mark.parametrize("kind", ["text/gzip", "application/zip", "GZIP", "application/gzip;x", ""])
def test_an_unknown_compression_is_refused(kind: str) -> None:
    listed = [
        PartInfo(
            "cid:one@buyer.example",
            (Property(MIME_TYPE, "text/plain"), Property(COMPRESSION_TYPE, kind)),
        )
    ]
    message = make([payload("one", gzip.compress(b"x", mtime=0), GZIP)], listed=listed)
    assert_refused(look(message), "EBMS:0303", "EBMS:0009")


# Memory


class _Stream(io.RawIOBase):
    """A file that is made as it is read, and is nowhere whole."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        out, self._rest = self._rest[:size], self._rest[size:]
        self.given += len(out)
        return out


def _endless(begin: bytes, fill: bytes, total: int, end: bytes) -> _Stream:
    def pieces() -> Iterator[bytes]:
        yield begin
        block = fill * (KIB * 64 // len(fill))
        for _ in range(total // len(block)):
            yield block
        yield end

    return _Stream(pieces())


def _split(message: Package) -> tuple[bytes, bytes]:
    """The message as it is sent, cut within its SOAP header."""
    before, mark, after = message.wire().partition(b"</S12:Header>")
    return before, mark + after


_HUNDRED = 100 * MIB


def _streams() -> dict[str, Callable[[], _Stream]]:
    message = make(TWO)
    before, after = _split(message)
    alone = make((), unsigned=True).envelope.partition(b"</S12:Header>")
    return {
        "a header of 100 MB": lambda: _endless(before, b'<x:a xmlns:x="urn:x"/>', _HUNDRED, after),
        "a header of 100 MB without MIME": lambda: _endless(
            alone[0], b'<x:a xmlns:x="urn:x"/>', _HUNDRED, alone[1] + alone[2]
        ),
        "one text of 100 MB": lambda: _endless(before, b"x" * 64, _HUNDRED, after),
        "one comment of 100 MB": lambda: _endless(before + b"<!--", b"x" * 64, _HUNDRED, b"-->"),
        "one part header of 100 MB": lambda: _endless(
            before + after.partition(b"Content-ID")[0] + b"X-Flood: ", b"x" * 64, _HUNDRED, b"\r\n"
        ),
        "part headers without end": lambda: _endless(
            before + after.partition(b"Content-ID")[0], b"X-Flood: x\r\n", _HUNDRED, b"\r\n"
        ),
        "HTTP headers without end": lambda: _endless(
            b"POST / HTTP/1.1\r\n", b"X-Flood: x\r\n", _HUNDRED, b"\r\n"
        ),
        "one HTTP header of 100 MB": lambda: _endless(
            b"POST / HTTP/1.1\r\nX-Flood: ", b"x" * 64, _HUNDRED, b"\r\n\r\n"
        ),
        "a preamble of 100 MB": lambda: _endless(
            b"".join(before.partition(b"\r\n\r\n")[:2]), b"x\r\n", _HUNDRED, b"\r\n"
        ),
        "an epilogue of 100 MB": lambda: _endless(message.wire(), b"x\r\n", _HUNDRED, b""),
        "parts without end": lambda: _endless(
            message.wire()[: -len(f"--{BOUNDARY}--\r\n")],
            f"--{BOUNDARY}\r\nContent-ID: <x>\r\n\r\n\r\n".encode(),
            _HUNDRED,
            b"",
        ),
        "delimiters without end": lambda: _endless(
            message.wire()[: -len(f"--{BOUNDARY}--\r\n")],
            f"--{BOUNDARY}x\r\n".encode(),
            _HUNDRED,
            b"",
        ),
        "blanks before anything": lambda: _endless(b"", b" \r\n", _HUNDRED, b"<a/>"),
    }


@pytest.mark.parametrize("name", sorted(_streams()))
def test_a_message_without_end_is_refused_in_bounded_memory(name: str) -> None:
    stream = _streams()[name]()
    found, peak = _measured(
        lambda: postroad.inspect(stream, trust=[ca().certificate], at=NOW)  # type: ignore[arg-type]
    )
    assert_refused(found, "EBMS:0009", "EBMS:0007")
    assert peak < BOUND, f"{peak / MIB:.0f} MiB"
    assert stream.given < _HUNDRED // 4, "it was read to its end"


def test_a_large_attachment_passes_in_bounded_memory() -> None:
    size = 64 * MIB
    message = make([Attachment("one@buyer.example", _Zeros(size), "application/octet-stream")])
    data = _Stream(_pieces(message, size))
    found, peak = _measured(
        lambda: postroad.inspect(data, trust=[ca().certificate], at=NOW)  # type: ignore[arg-type]
    )
    assert_holds(found)
    assert found["parts"][0]["size"] == size
    assert peak < BOUND, f"{peak / MIB:.0f} MiB"


class _Zeros:
    def __init__(self, size: int) -> None:
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self.size // MIB):
            yield bytes(MIB)


def _pieces(message: Package, size: int) -> Iterator[bytes]:
    [part] = message.parts
    marked = message.with_parts(replace(part, content=b"@@@HERE@@@")).wire()
    before, _, after = marked.partition(b"@@@HERE@@@")
    yield before
    yield from _Zeros(size).chunks()
    yield after


# Packages


def _envelope(message: Package) -> Part:
    return Part(ROOT_ID, f"{VERSION.media_type}; charset=UTF-8", message.envelope)


@pytest.fixture(scope="module")
def message() -> Package:
    return make(TWO)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/related",
        'multipart/related; type="application/soap+xml"',
        "multipart/related; boundary=",
        'multipart/related; boundary=""',
        'multipart/related; boundary="other"',
        f'multipart/related; boundary="{"x" * 71}"',
        f"multipart/related; boundary={BOUNDARY}; boundary=other",
        f'multipart/mixed; boundary="{BOUNDARY}"',
        f'multipart/related; boundary="{BOUNDARY}"; type="text/html"',
        f'multipart/related; boundary="{BOUNDARY}"; start="<nobody@buyer.example>"',
        "multipart",
        "multipart/",
    ],
)
def test_a_package_whose_type_does_not_fit_is_refused(message: Package, content_type: str) -> None:
    body = message.wire().partition(b"\r\n\r\n")[2]
    assert_refused(look(http(content_type, body)), "EBMS:0007")


def test_a_package_that_ends_too_early_is_refused(message: Package) -> None:
    data = message.wire()
    end = len(f"\r\n--{BOUNDARY}--\r\n")
    for cut in (end, end + 1, end + 20, len(message.parts[1].content) + end + 60):
        assert_refused(look(data[:-cut]), "EBMS:0007", "EBMS:0101")


def test_ten_thousand_parts_are_refused(message: Package) -> None:
    extra = [Part(f"p{n}@buyer.example", "text/plain", b"x") for n in range(10_000)]
    found = look(message.with_parts(*message.parts, *extra))
    assert_refused(found, "EBMS:0007")


def test_as_many_parts_as_are_allowed_are_told_of_in_bounded_words(message: Package) -> None:
    extra = [Part(f"p{n}@buyer.example", "text/plain", b"x") for n in range(990)]
    assert_refused(look(message.with_parts(*message.parts, *extra)), "EBMS:0007")


def test_a_part_that_the_header_lists_and_nobody_sent_is_refused(message: Package) -> None:
    assert_refused(look(message.with_parts()), "EBMS:0007")
    assert_refused(look(write_mime([_envelope(message)])), "EBMS:0007")


def test_an_envelope_of_another_type_is_refused(message: Package) -> None:
    for kind in ("text/html", "application/octet-stream", "image/svg+xml", "text/xml"):
        root = replace(_envelope(message), content_type=kind)
        assert_refused(look(write_mime([root, *message.parts])), "EBMS:0007")


@pytest.mark.parametrize(
    "header",
    [
        ("X-Long", "x" * 20_000),
        ("X-Null", "a\0b"),
        ("X-Return", "a\rb"),
        ("X Space", "a"),
        ("", "a"),
        ("Content-Type", "text/html"),
    ],
)
def test_a_part_with_a_hostile_header_is_refused(message: Package, header: tuple[str, str]) -> None:
    one, two = message.parts
    hostile = replace(one, headers=(*one.headers, header))
    assert_refused(look(message.with_parts(hostile, two)), "EBMS:0007")


def test_http_headers_that_nobody_signed_choose_nothing(message: Package) -> None:
    """SOAPAction spoofing: what the message is about is in the signed header alone."""
    plain = look(message)
    for head in (
        'SOAPAction: "urn:example:SendMoney"\r\n',
        "X-Forwarded-For: 127.0.0.1\r\nX-Action: SendMoney\r\n",
        'Content-Description: "SendMoney"\r\n',
    ):
        found = look(message.wire(head=head))
        assert found["units"] == plain["units"]
        assert found["holds"] == plain["holds"]
    action = message.wire().replace(b"; boundary=", b'; action="SendMoney"; boundary=')
    assert look(action)["units"] == plain["units"]
