"""Captured HTTP messages."""

import gzip
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError
from postroad.wire.http import HttpHead, body_chunks, read_head
from postroad.wire.limits import DEFAULT, KIB, MIB, Limits
from postroad.wire.mime import Multipart, MultipartReader
from postroad.wire.mime_headers import Headers
from tests.changing import replace

XML = b"<?xml version='1.0'?><e/>"


def head_with(**headers: str) -> HttpHead:
    return HttpHead(None, Headers(tuple((k.replace("_", "-"), v) for k, v in headers.items())), 0)


def body(head: HttpHead, chunks: Iterable[bytes], limits: Limits = DEFAULT) -> bytes:
    return b"".join(body_chunks(head, chunks, limits))


class TestHead:
    @pytest.mark.parametrize("end", ["\r\n", "\n"])
    def test_a_request_is_read(self, end: str) -> None:
        data = f"POST /msh HTTP/1.1{end}Host: x{end}Content-Type: text/xml{end}{end}<e/>".encode()
        head = read_head(data)
        assert head is not None
        assert (head.start_line, head.status) == ("POST /msh HTTP/1.1", None)
        assert head.headers.get("host") == "x"
        assert str(head.content_type) == "text/xml"
        assert data[head.body_offset :] == b"<e/>"

    def test_a_response_is_read(self) -> None:
        head = read_head(b"HTTP/1.1 202 Accepted\r\n\r\n")
        assert head is not None
        assert (head.status, len(head.headers), head.content_type) == (202, 0, None)

    def test_the_first_line_may_be_missing(self) -> None:
        data = b"Date: today\r\nMessage-ID: <a@b>\r\nX:\r\n folded\r\n\r\n\r\n--b"
        head = read_head(data)
        assert head is not None
        assert head.start_line is None
        assert head.headers.get("x") == "folded"
        assert data[head.body_offset :] == b"\r\n--b"

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            XML,
            b"\xef\xbb\xbf" + XML,
            b"\r\n  <e/>",
            b"--b\r\nContent-Type: text/xml\r\n\r\nx",
            b"--uuid:1-2\r\nContent-Type: text/xml\r\n\r\nx",
            b"\xef\xbb\xbf\n--b\r\nA: b\r\n\r\n",
            b"\r\n--b\r\nA: b\r\n\r\n",
            b"\x1f\x8b\x08",
            b"just text\r\n\r\n",
            b"no: end",
            b"no: blank line\r\n",
        ],
    )
    def test_a_bare_body_has_no_head(self, data: bytes) -> None:
        assert read_head(data) is None

    def test_a_head_without_a_body_may_lack_its_blank_line(self) -> None:
        head = read_head(b"HTTP/1.1 204 No Content\r\nDate: x\r\n")
        assert head is not None
        assert head.headers.get("date") == "x"

    @pytest.mark.parametrize(
        ("data", "limit"),
        [
            (b"A: b\r\n" * 200 + b"\r\n", "more than 128 headers"),
            (b"A: " + b"b" * (65 * KIB) + b"\r\n\r\n", f"longer than {64 * KIB} bytes"),
            (b"A: b\r\n" + b" c\r\n" * 30_000, f"longer than {64 * KIB} bytes"),
        ],
    )
    def test_a_flood_of_headers_is_refused(self, data: bytes, limit: str) -> None:
        with pytest.raises(EbmsError, match=limit) as caught:
            read_head(data)
        assert (caught.value.code, caught.value.location) == ("EBMS:0007", "HTTP")

    def test_a_line_that_is_no_header_is_refused(self) -> None:
        with pytest.raises(EbmsError, match="EBMS:0007"):
            read_head(b"POST / HTTP/1.1\r\nnonsense\r\n\r\n")


class TestChunked:
    head = head_with(Transfer_Encoding="chunked")

    def test_chunks_are_taken_away(self) -> None:
        sent = b"5\r\nhello\r\n1;x=y\r\n \r\n005 \r\nworld\r\n0\r\nTrailer: x\r\n\r\n"
        assert body(self.head, [sent]) == b"hello world"
        assert body(self.head, [bytes([c]) for c in sent]) == b"hello world"

    @pytest.mark.parametrize("sent", [XML, b"\r\n--b\r\n\r\nx", b"", b"abcdefg\r\n"])
    def test_a_body_stored_without_chunks_is_left_alone(self, sent: bytes) -> None:
        assert body(self.head, [sent[:3], sent[3:]]) == sent

    @pytest.mark.parametrize(
        "sent",
        [
            b"5\r\n",
            b"5\r\nhel",
            b"5\r\nhello",
            b"5\r\nhello\r\n",
            b"5\r\nhelloX\r\n",
            b"1\r\na\r\nx\r\n",
            b"1\r\na\r\n" + b"1" * 2000,
        ],
    )
    def test_broken_chunks_are_refused(self, sent: bytes) -> None:
        with pytest.raises(EbmsError, match="EBMS:0007") as caught:
            body(self.head, [sent])
        assert "chunk" in caught.value.detail

    def test_many_small_chunks_take_linear_time(self) -> None:
        assert len(body(self.head, [b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"])) == 100_000


class TestInflating:
    head = head_with(Content_Encoding="gzip")

    @pytest.mark.parametrize("size", [1, 7, MIB])
    def test_gzip_is_inflated(self, size: int) -> None:
        packed = gzip.compress(XML * 100, mtime=0) + gzip.compress(b"more", mtime=0)
        chunks = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert body(self.head, chunks) == XML * 100 + b"more"

    def test_deflate_is_inflated_and_identity_is_nothing(self) -> None:
        head = head_with(Content_Encoding="identity, deflate")
        assert body(head, [zlib.compress(XML)]) == XML

    def test_chunks_go_before_gzip(self) -> None:
        packed = gzip.compress(XML, mtime=0)
        sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
        head = head_with(Content_Encoding="gzip", Transfer_Encoding="chunked")
        assert body(head, [sent]) == XML
        assert body(head_with(Transfer_Encoding="gzip, chunked"), [sent]) == XML

    @pytest.mark.parametrize("sent", [XML, b"", b"x", b"\r\n--b"])
    def test_a_body_stored_inflated_is_left_alone(self, sent: bytes) -> None:
        assert body(self.head, [sent]) == sent

    @pytest.mark.parametrize(
        "sent",
        [gzip.compress(XML, mtime=0)[:-1], gzip.compress(XML, mtime=0)[:12], b"\x1f\x8bnonsense"],
    )
    def test_broken_gzip_is_refused(self, sent: bytes) -> None:
        with pytest.raises(EbmsError, match="EBMS:0007"):
            body(self.head, [sent])

    def test_zeros_after_the_end_are_passed_over_but_not_garbage(self) -> None:
        assert body(self.head, [gzip.compress(XML, mtime=0) + b"\0\0\r\n"]) == XML
        with pytest.raises(EbmsError, match="cannot be inflated"):
            body(self.head, [gzip.compress(XML, mtime=0) + b"garbage"])

    def test_a_bomb_is_refused_by_its_ratio_before_it_fills_memory(self) -> None:
        bomb = gzip.compress(bytes(64 * MIB), mtime=0)
        tracemalloc.start()
        try:
            with pytest.raises(EbmsError, match="more than 200 times its size"):
                sum(map(len, body_chunks(self.head, [bomb])))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * MIB

    def test_a_large_body_is_refused_by_its_size(self) -> None:
        limits = replace(DEFAULT, decompressed_bytes=1000)
        with pytest.raises(EbmsError, match="larger than 1000 bytes"):
            body(self.head, [gzip.compress(bytes(range(256)) * 10, mtime=0)], limits)

    def test_a_flood_of_gzip_members_is_refused(self) -> None:
        with pytest.raises(EbmsError, match="more than 1000 gzip members"):
            body(self.head, [gzip.compress(b"", mtime=0) * 2000])

    def test_an_unknown_coding_is_refused(self) -> None:
        with pytest.raises(EbmsError, match="'br'"):
            body(head_with(Content_Encoding="br"), [b"x"])

    def test_a_tower_of_codings_is_refused(self) -> None:
        with pytest.raises(EbmsError, match="names 5 codings"):
            body(head_with(Content_Encoding="gzip," * 5), [b"x"])


def package_in(file: Path) -> Multipart:
    data = file.read_bytes()
    head = read_head(data)
    reader = MultipartReader(head.content_type if head else None)
    chunks = body_chunks(head, [data[head.body_offset :]]) if head else iter([data])
    for chunk in chunks:
        reader.feed(chunk)
    return reader.close()


class TestMessagesOfOthers:
    @pytest.mark.parametrize(
        ("name", "sizes"),
        [
            ("as4net/as4-encrypted-compressed-message.as4", [5899, 290189, 114]),
            ("as4net/as4-multihop-usermessage.as4", [1276]),
            ("as4net/signed_holodeck_message.as4", [5393, 296385, 164]),
            ("phase4/peppol-verify/dump-raw.as4out", [11863, 2263]),
            ("phase4/cef-samples/sample1.txt", [3287, 28, 48]),
            ("phase4/cef-samples/sample2.txt", [11523, 173, 152]),
            ("phase4/cef-samples/sample4.txt", [3226, 28, 48]),
            ("phase4/cef-samples/sample5.txt", [11645, 173, 152]),
            ("phase4/cef-samples/sample_entsog.txt", [2469, 2775]),
        ],
    )
    def test_a_package_is_cut_into_its_parts(
        self, vectors: Path, name: str, sizes: list[int]
    ) -> None:
        package = package_in(vectors / name)
        assert [part.size for part in package.parts] == sizes
        assert read_all(package.root.content, MIB).rstrip().endswith(b"Envelope>")
        assert all("indented" in problem.detail for problem in package.problems)

    def test_an_indented_sample_with_a_folded_content_id_is_understood(self, vectors: Path) -> None:
        package = package_in(vectors / "phase4/cef-samples/sample2.txt")
        assert [part.content_id for part in package.parts] == [
            "root.message@cxf.apache.org",
            "custompayload@minder",
            "xmlpayload@minder",
        ]

    def test_a_response_that_lost_its_chunks_is_understood(self, vectors: Path) -> None:
        data = (vectors / "phase4/peppol-verify/helger.as4in").read_bytes()
        head = read_head(data)
        assert head is not None
        assert head.headers.get("transfer-encoding") == "chunked"
        stored = data[head.body_offset :]
        assert stored.startswith(b"<?xml")
        assert body(head, [stored]) == stored
