"""Limits of multipart/related: what is too much is refused, the rest passes in little memory."""

import tracemalloc
from collections.abc import Iterator

import pytest

from postroad.wire.content import BytesContent, BytesSink, Content
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, KIB, MIB
from postroad.wire.mime import ContentType, MultipartReader
from tests.changing import replace
from tests.unit.multiparts import OUTER, ROOT, data_of, read, refused


def feed_often(reader: MultipartReader, piece: bytes, times: int) -> None:
    for _ in range(times):
        reader.feed(piece)


class RecordingSink(BytesSink):
    opened = 0
    discarded = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).opened += 1

    def discard(self) -> None:
        super().discard()
        type(self).discarded += 1


@pytest.fixture
def sink() -> type[RecordingSink]:
    return type("FreshSink", (RecordingSink,), {"opened": 0, "discarded": 0})


class TestLimits:
    def test_a_part_above_the_memory_limit_goes_to_a_sink(self, sink: type[RecordingSink]) -> None:
        limits = replace(DEFAULT, memory_bytes=10)
        body = ROOT + b"--b\r\n\r\n" + b"x" * 10 + b"\r\n--b\r\n\r\n" + b"y" * 11 + b"\r\n--b--"
        package = read(body, OUTER, limits, new_sink=sink)
        assert sink.opened == 1
        assert [data_of(part) for part in package.parts[1:]] == [b"x" * 10, b"y" * 11]

    def test_many_parts_do_not_fill_memory_together(self, sink: type[RecordingSink]) -> None:
        limits = replace(DEFAULT, memory_bytes=10)
        read(
            ROOT + (b"--b\r\n\r\n" + b"x" * 10 + b"\r\n") * 20 + b"--b--",
            OUTER,
            limits,
            new_sink=sink,
        )
        assert sink.opened == 4

    def test_the_root_stays_in_memory(self, sink: type[RecordingSink]) -> None:
        limits = replace(DEFAULT, memory_bytes=1)
        package = read(ROOT + b"--b--", OUTER, limits, new_sink=sink)
        assert isinstance(package.root.content, BytesContent)
        assert sink.opened == 0

    def test_an_envelope_above_its_limit_is_an_invalid_header(self) -> None:
        assert read(ROOT + b"--b--", limits=replace(DEFAULT, envelope_bytes=4)).problems == ()
        error = refused(ROOT + b"--b--", limits=replace(DEFAULT, envelope_bytes=3))
        assert error.code == "EBMS:0009"
        assert "larger than 3 bytes" in error.detail

    def test_a_part_above_its_limit_is_refused_and_its_sink_discarded(
        self, sink: type[RecordingSink]
    ) -> None:
        limits = replace(DEFAULT, memory_bytes=1, part_bytes=100)
        reader = MultipartReader(OUTER, limits=limits, new_sink=sink)
        reader.feed(ROOT + b"--b\r\n\r\n" + b"x" * 90)
        with pytest.raises(EbmsError, match=r"EBMS:0007.*larger than 100 bytes"):
            reader.feed(b"x" * 90)
        assert (sink.opened, sink.discarded) == (1, 1)

    def test_giving_up_discards_what_was_half_read(self, sink: type[RecordingSink]) -> None:
        reader = MultipartReader(OUTER, limits=replace(DEFAULT, memory_bytes=1), new_sink=sink)
        reader.feed(ROOT + b"--b\r\n\r\n" + b"x" * 90)
        reader.abort()
        assert sink.discarded == 1
        with pytest.raises(EbmsError):
            reader.close()

    def test_after_giving_up_nothing_is_taken_any_more(self) -> None:
        reader = MultipartReader(OUTER)
        reader.abort()
        reader.feed(ROOT + b"--b--\r\n")
        with pytest.raises(EbmsError, match="there is no part"):
            reader.close()

    def test_giving_up_forgets_a_message_that_was_read_as_a_whole(self) -> None:
        reader = MultipartReader(OUTER)
        reader.feed(ROOT + b"--b--\r\n")
        reader.abort()
        with pytest.raises(EbmsError, match="there is no part"):
            reader.close()

    def test_a_message_above_its_limit_is_refused(self) -> None:
        error = refused(ROOT + b"--b--", limits=replace(DEFAULT, message_bytes=40))
        assert "message is larger than 40 bytes" in error.detail

    def test_ten_thousand_parts_are_refused(self) -> None:
        error = refused(ROOT + b"--b\r\n\r\n\r\n" * 10_000 + b"--b--")
        assert "more than 1000 parts" in error.detail

    def test_a_flood_of_headers_is_refused(self) -> None:
        error = refused(b"--b\r\n" + b"A: b\r\n" * 33 + b"\r\nx\r\n--b--")
        assert "more than 32 headers" in error.detail

    @pytest.mark.parametrize("end", [b"", b"\r\n\r\nx\r\n--b--"])
    def test_an_overlong_header_is_refused(self, end: bytes) -> None:
        error = refused(b"--b\r\nA: " + b"b" * (17 * KIB) + end)
        assert f"longer than {16 * KIB} bytes" in error.detail
        assert error.location == "MIME part 1"

    def test_a_never_ending_folded_header_is_refused(self) -> None:
        reader = MultipartReader(OUTER)
        reader.feed(b"--b\r\nA: b\r\n")
        with pytest.raises(EbmsError, match="longer than"):
            feed_often(reader, b" folded\r\n", 10_000)

    @pytest.mark.parametrize("content_type", [None, OUTER])
    @pytest.mark.parametrize("piece", [b"no delimiter here ", b"\r\n--", b"\n", b"--x"])
    def test_a_never_ending_preamble_is_refused(
        self, content_type: ContentType | None, piece: bytes
    ) -> None:
        reader = MultipartReader(content_type)
        with pytest.raises(EbmsError, match="before the first delimiter"):
            feed_often(reader, piece * KIB, 100)

    def test_a_never_ending_epilogue_is_refused(self) -> None:
        reader = MultipartReader(OUTER)
        reader.feed(ROOT + b"--b--\r\n")
        with pytest.raises(EbmsError, match="after the last delimiter"):
            feed_often(reader, b"x" * KIB, 100)

    def test_never_ending_blanks_after_a_boundary_are_refused(self) -> None:
        reader = MultipartReader(OUTER)
        reader.feed(b"--b")
        with pytest.raises(EbmsError, match="more than 256 blanks"):
            feed_often(reader, b" ", 300)

    def test_a_flood_of_lines_that_look_like_delimiters_is_refused(self) -> None:
        reader = MultipartReader(OUTER)
        reader.feed(ROOT + b"--b\r\n\r\n")
        with pytest.raises(EbmsError, match="more than 10000 lines"):
            feed_often(reader, b"\n--bX" * 1000, 11)

    def test_a_quoted_printable_line_without_end_is_refused(self) -> None:
        reader = MultipartReader(OUTER)
        reader.feed(ROOT + b"--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n")
        with pytest.raises(EbmsError, match="quoted-printable"):
            feed_often(reader, b"x" * KIB, 100)

    @pytest.mark.parametrize("encoding", [b"binary", b"base64"])
    def test_64_mib_pass_through_in_little_memory(self, encoding: bytes) -> None:
        class Nowhere:
            size = 0

            def write(self, data: bytes | memoryview, /) -> None:
                self.size += len(data)

            def finish(self) -> Content:
                return self

            def discard(self) -> None: ...

            def chunks(self) -> Iterator[bytes]:
                yield b""

        piece = b"QUJD" * (64 * KIB)
        tracemalloc.start()
        try:
            reader = MultipartReader(OUTER, new_sink=Nowhere)
            reader.feed(ROOT + b"--b\r\nContent-Transfer-Encoding: " + encoding + b"\r\n\r\n")
            for _ in range(64 * MIB // len(piece)):
                reader.feed(piece)
            reader.feed(b"\r\n--b--")
            package = reader.close()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert package.parts[1].size == (64 * MIB if encoding == b"binary" else 48 * MIB)
        assert peak < 8 * MIB
