"""Reading multipart/related: parts, boundary, root, and what is wrong with them."""

import gc
import hashlib
import weakref

import pytest

from postroad.wire.content import BytesContent, BytesSink
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime import (
    ContentType,
    Multipart,
    MultipartReader,
    OutgoingPart,
    Part,
    write_multipart,
)
from postroad.wire.mime_whole import is_small, whole_parts
from tests.changing import replace
from tests.unit.multiparts import OUTER, ROOT, SOAP, data_of, only_problem, part_with, read, refused

NOTHING = BytesContent(b"")


class TestWhole:
    """Messages that are read without steps; what is read is tested with everything else."""

    USUAL = (
        b"--b\r\nContent-Type: application/soap+xml; charset=UTF-8\r\n"
        b"Content-Transfer-Encoding: binary\r\nContent-ID: <root@a>\r\n\r\n<e/>\r\n"
        b"--b\r\nContent-Type: a/b\r\nContent-ID: <x@a>\r\n"
        b'Content-Disposition: attachment; filename="x"\r\n\r\nX\r\nX\r\n'
        b"--b\r\nContent-Transfer-Encoding: 8BIT\r\nContent-Id: <y@a>\r\n\r\n\r\n--b--"
    )

    @pytest.mark.parametrize("end", [b"", b"\r\n"])
    def test_the_usual_message_needs_no_steps(self, end: bytes) -> None:
        parts = whole_parts(self.USUAL + end, b"--b", DEFAULT)
        assert parts is not None
        assert [(part.index, part.content_id, data_of(part)) for part in parts] == [
            (0, "root@a", b"<e/>"),
            (1, "x@a", b"X\r\nX"),
            (2, "y@a", b""),
        ]
        assert [part.content_type.media_type for part in parts] == [SOAP, "a/b", "text/plain"]
        assert [part.transfer_encoding for part in parts] == ["binary", "binary", "8bit"]
        assert list(map(seen, parts)) == list(map(seen, in_steps(self.USUAL + end).parts))

    def test_what_is_written_here_needs_no_steps(self) -> None:
        parts = [OutgoingPart("p@a", "a/b", BytesContent(b"\r\n--c"))]
        body = b"".join(write_multipart(b"<e/>", parts, boundary="b", root_id="r@a"))
        assert whole_parts(body, b"--b", DEFAULT) is not None

    @pytest.mark.parametrize(
        ("usual", "other"),
        [
            (b"--b--", b"--b-- \r\n"),
            (b"--b--", b"--b"),
            (b"--b\r\n", b"--b \r\n"),
            (b"--b\r\n", b"\r\n--b\r\n"),
            (b"--b\r\n", b"--b\n"),
            (b"X\r\nX\r\n", b"X\n"),
            (b"X\r\nX", b"X\n--bX"),
            (b"binary", b"base64"),
            (b"Content-Type: a/b\r\n", b"Content-Type: a/b\n"),
            (b"Content-Type: a/b", b"Content-Type"),
            (b"Content-Type: a/b", b"Content-Type: nonsense"),
            (b"Content-Type: a/b", b"Content-ID: <z@a>"),
            (b"attachment;", b"attachment;\r\n"),
            (b"Content-ID: <x@a>", b"Content-ID: <\xc3\xa4>"),
        ],
    )
    def test_whatever_is_unusual_is_left_to_the_steps(self, usual: bytes, other: bytes) -> None:
        assert usual in self.USUAL
        assert whole_parts(self.USUAL.replace(usual, other, 1), b"--b", DEFAULT) is None

    @pytest.mark.parametrize("limit", ["part", "envelope", "message"])
    def test_nothing_is_small_that_could_break_a_limit(self, limit: str) -> None:
        limits = replace(DEFAULT, **{f"{limit}_bytes": 100})
        assert is_small(100, limits)
        assert not is_small(101, limits)

    def test_what_could_not_be_held_in_memory_is_not_small(self) -> None:
        limits = replace(DEFAULT, memory_bytes=100)
        assert is_small(1600, limits)
        assert not is_small(1601, limits)

    @pytest.mark.parametrize(
        ("sizes", "sinks"), [((101, 100, 100), 0), ((101, 100, 101), 1), ((50, 101, 200), 2)]
    )
    def test_a_large_attachment_goes_to_a_sink_and_the_root_never(
        self, sizes: tuple[int, ...], sinks: int
    ) -> None:
        made: list[BytesSink] = []

        def new_sink() -> BytesSink:
            made.append(BytesSink())
            return made[-1]

        head = b"--b\r\nContent-Type: text/xml\r\n\r\n"
        body = b"".join(head + b"x" * size + b"\r\n" for size in sizes) + b"--b--\r\n"
        limits = replace(DEFAULT, memory_bytes=100)
        reader = MultipartReader(OUTER, limits=limits, new_sink=new_sink)
        reader.feed(body)
        assert [part.size for part in reader.close().parts] == list(sizes)
        assert len(made) == sinks

    @pytest.mark.parametrize(
        "limits",
        [
            replace(DEFAULT, parts=2),
            replace(DEFAULT, part_headers=2),
            replace(DEFAULT, part_header_bytes=60),
        ],
    )
    def test_what_breaks_a_limit_is_left_to_the_steps(self, limits: Limits) -> None:
        assert whole_parts(self.USUAL, b"--b", limits) is None


def seen(part: Part) -> tuple[Part, bytes]:
    """A part that compares with another by its bytes."""
    return replace(part, content=NOTHING), data_of(part)


def in_steps(body: bytes) -> Multipart:
    reader = MultipartReader(OUTER)
    for at in range(len(body)):
        reader.feed(body[at : at + 1])
    return reader.close()


class TestReading:
    def test_parts_come_with_headers_content_and_digest(self) -> None:
        part = part_with(b"Content-Type: text/plain; charset=x\r\nContent-Id: <p@q>\r\n", b"hello")
        assert (part.index, part.content_id, part.size) == (1, "p@q", 5)
        assert part.content_type == ContentType("text/plain", (("charset", "x"),))
        assert part.transfer_encoding == "binary"
        assert part.sha256 == hashlib.sha256(b"hello").digest()
        assert part.location == "cid:p@q"

    def test_lf_alone_ends_lines_as_well(self) -> None:
        package = read(ROOT.replace(b"\r\n", b"\n") + b"--b\n\nx\n--b--\n")
        assert [data_of(part) for part in package.parts] == [b"<e/>", b"x"]
        assert package.problems == ()

    def test_line_ends_may_be_mixed(self) -> None:
        package = read(
            b"--b\nContent-Type: text/xml\r\n\n<e/>\r\n--b\r\n\r\n1\n--b\r\n\n2\r\n--b--"
        )
        assert [data_of(part) for part in package.parts] == [b"<e/>", b"1", b"2"]

    def test_preamble_and_epilogue_are_passed_over(self) -> None:
        package = read(
            b"This is MIME\r\n--bc\r\n -- b\r\n" + ROOT + b"--b--\r\nbye\r\n--b\r\n\r\nx"
        )
        assert len(package.parts) == 1
        assert package.problems == ()

    def test_blanks_may_follow_a_boundary(self) -> None:
        package = read(ROOT.replace(b"--b", b"--b \t") + b"--b--  \r\n")
        assert data_of(package.root) == b"<e/>"

    def test_a_last_delimiter_needs_no_line_end(self) -> None:
        assert read(ROOT + b"--b--").problems == ()

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"--b",
            b"x--b--",
            b"\r\n--a",
            b"\r\n--",
            b"\r\n--bX\r\n",
            b"\r\n--b-\r\n",
            b"\r\n--b--X",
            b"\r\n--b \rx",
            b"\r\n --b\r\n",
            b"\r\n",
            b"\r",
            b"\n",
            b"\n\n\r\r\n",
            b"\r\n\r\n--bb--\r\n",
        ],
    )
    def test_what_only_looks_like_a_delimiter_is_content(self, content: bytes) -> None:
        content = b"x" + content + b"x"
        assert data_of(part_with(b"", content)) == content

    @pytest.mark.req("MS098-7.4-05")
    def test_a_nested_multipart_is_just_content(self) -> None:
        inner = b"--b2\r\nContent-Type: text/plain\r\n\r\ninner\r\n--b2--\r\n"
        part = part_with(b"Content-Type: multipart/mixed; boundary=b2\r\n", inner)
        assert data_of(part) == inner

    def test_a_part_may_be_empty(self) -> None:
        package = read(ROOT + b"--b\r\n\r\n--b\r\nA: b\r\n\r\n--b\r\n\r\n\r\n--b--")
        assert [part.size for part in package.parts] == [4, 0, 0, 0]

    def test_a_part_without_content_type_is_plain_text(self) -> None:
        assert part_with(b"", b"x").content_type == ContentType("text/plain")

    @pytest.mark.req("MS098-7.5-02", "MS098-7.5-03")
    def test_unknown_headers_do_no_harm(self) -> None:
        part = part_with(b"X-Strange: ;;;=\r\nContent-Nonsense: (\r\n", b"x")
        assert part.headers.get("x-strange") == ";;;="

    @pytest.mark.parametrize("encoding", [b"7bit", b"8bit", b"BINARY"])
    def test_identity_encodings_change_nothing(self, encoding: bytes) -> None:
        part = part_with(b"Content-Transfer-Encoding: " + encoding + b"\r\n", b"=41\xff")
        assert data_of(part) == b"=41\xff"

    def test_base64_and_quoted_printable_are_decoded_and_digested_decoded(self) -> None:
        for encoding, content in (
            (b"base64", b"aGV s\r\nbG8=\r\n"),
            (b"quoted-printable", b"h=\r\n=65llo"),
        ):
            part = part_with(b"Content-Transfer-Encoding: " + encoding + b"\r\n", content)
            assert data_of(part) == b"hello"
            assert part.sha256 == hashlib.sha256(b"hello").digest()

    @pytest.mark.parametrize(
        "content", [b"aGVsbG8", b"a===", b"aGV*", b"aGVsbG8=aGVs", b"=aaa", b"YQ==\r\nYQ"]
    )
    def test_broken_base64_is_refused_at_its_part(self, content: bytes) -> None:
        error = refused(
            ROOT
            + b"--b\r\nContent-ID: <p>\r\nContent-Transfer-Encoding: base64\r\n\r\n"
            + content
            + b"\r\n--b--"
        )
        assert (error.code, error.location) == ("EBMS:0007", "cid:p")

    def test_an_unknown_transfer_encoding_is_refused(self) -> None:
        error = refused(ROOT + b"--b\r\nContent-Transfer-Encoding: uu\r\n\r\nx\r\n--b--")
        assert (error.code, error.location) == ("EBMS:0007", "MIME part 2")
        assert "'uu'" in error.detail


class TestFindingTheBoundary:
    @pytest.mark.parametrize(
        "before", [b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\r\n\r\n", b"Hello\r\n-- \r\n"]
    )
    def test_without_a_content_type_the_first_delimiter_tells_it(self, before: bytes) -> None:
        package = read(before + ROOT + b"--b--\r\n", None)
        assert data_of(package.root) == b"<e/>"
        assert package.content_type.get("boundary") == "b"
        assert package.problems == ()

    @pytest.mark.parametrize("blanks", [b" ", b"\t", b"   "])
    def test_a_dump_may_be_indented(self, blanks: bytes) -> None:
        lines = b"--b\n>Content-Type: text/xml\n\n<e/>\n>--b\n>Content-ID: p\n\nx\n>--b--\n"
        package = read(lines.replace(b"\n>", b"\n" + blanks), None)
        assert [data_of(part) for part in package.parts] == [b"<e/>", b"x"]
        assert only_problem(package).severity is Severity.WARNING

    def test_a_content_type_without_boundary_is_a_problem_but_readable(self) -> None:
        package = read(ROOT + b"--b--", ContentType("multipart/related", (("type", SOAP),)))
        assert "no boundary" in only_problem(package).detail
        assert package.content_type.get("boundary") == "b"

    @pytest.mark.parametrize(
        "body", [b"", b"<e/>", b"--\r\n", b"--b", b"--b--", b"--b\r\nA: b", b"x" * 70_000]
    )
    @pytest.mark.parametrize("content_type", [None, OUTER])
    def test_a_body_without_a_part_is_refused(
        self, body: bytes, content_type: ContentType | None
    ) -> None:
        assert refused(body, content_type).code == "EBMS:0007"

    @pytest.mark.parametrize("boundary", ["", "x" * 71, "x ", " x", "a\r\nb", "ü"])
    def test_an_impossible_boundary_is_refused(self, boundary: str) -> None:
        with pytest.raises(EbmsError, match=r"EBMS:0007.*boundary"):
            MultipartReader(ContentType("multipart/related", (("boundary", boundary),)))

    def test_a_boundary_of_70_characters_is_read(self) -> None:
        boundary = "x" * 70
        outer = ContentType("multipart/related", (("boundary", boundary), ("type", SOAP)))
        body = (ROOT + b"--b--").replace(b"--b", b"--" + boundary.encode())
        assert read(body, outer).problems == ()

    def test_a_content_type_that_is_no_multipart_is_refused(self) -> None:
        with pytest.raises(EbmsError, match="text/xml is not a multipart"):
            MultipartReader(ContentType("text/xml"))


class TestRoot:
    body = (
        b"--b\r\nContent-ID: <a%40x>\r\n\r\none\r\n"
        b"--b\r\nContent-Type: text/xml\r\nContent-ID: <r@x>\r\n\r\n<e/>\r\n--b--\r\n"
    )

    def outer(self, start: str) -> ContentType:
        return ContentType(
            "multipart/related", (("boundary", "b"), ("type", "text/xml"), ("start", start))
        )

    @pytest.mark.parametrize("start", ["<r@x>", "r@x", "<r%40x>"])
    def test_the_start_parameter_names_the_root(self, start: str) -> None:
        package = read(self.body, self.outer(start))
        assert package.root.index == 1
        assert package.attachments() == (package.parts[0],)
        assert package.problems == ()

    def test_without_start_the_first_part_is_the_root(self) -> None:
        assert read(ROOT + b"--b\r\n\r\nx\r\n--b--").root.index == 0

    def test_a_start_that_names_nothing_is_a_problem(self) -> None:
        limits = replace(DEFAULT, memory_bytes=0)
        package = read(
            self.body.replace(b"\r\n\r\none", b"\r\nContent-Type: text/xml\r\n\r\none"),
            self.outer("R@x"),
            limits,
            new_sink=BytesSink,
        )
        assert "'R@x'" in only_problem(package).detail
        assert package.root is package.parts[0]
        assert isinstance(package.root.content, BytesContent)

    def test_a_part_before_the_root_may_be_larger_than_an_envelope(self) -> None:
        limits = replace(DEFAULT, envelope_bytes=4, memory_bytes=1)
        large = self.body.replace(b"one", b"x" * 100)
        assert read(large, self.outer("r@x"), limits).parts[0].size == 100
        assert refused(large, self.outer("nobody"), limits=limits).code == "EBMS:0009"

    def test_a_root_that_is_no_soap_is_a_problem(self) -> None:
        outer = ContentType("multipart/related", (("boundary", "b"), ("type", "text/html")))
        package = read(b"--b\r\nContent-Type: text/html\r\n\r\nx\r\n--b--", outer)
        assert only_problem(package).location == "MIME part 1"

    @pytest.mark.req("MS098-7.2-02")
    @pytest.mark.parametrize("stated", [None, "text/xml", ""])
    def test_a_type_parameter_must_tell_what_the_root_is(self, stated: str | None) -> None:
        params = (("boundary", "b"),) + ((("type", stated),) if stated is not None else ())
        problem = only_problem(read(ROOT + b"--b--", ContentType("multipart/related", params)))
        assert problem.location == "MIME"
        assert "type parameter" in problem.detail

    def test_a_type_parameter_with_a_charset_is_compared_without_it(self) -> None:
        params = (("boundary", "b"), ("type", "Application/SOAP+xml; charset=utf-8"))
        assert read(ROOT + b"--b--", ContentType("multipart/related", params)).problems == ()

    def test_another_kind_of_multipart_is_a_problem(self) -> None:
        package = read(ROOT + b"--b--", replace(OUTER, media_type="multipart/mixed"))
        assert "multipart/mixed" in only_problem(package).detail


class TestProblems:
    @pytest.mark.parametrize(
        "rest", [b"", b"--b\r\n", b"--b\r\nContent-ID: x", b"--b\r\n\r\nhalf", b"--b"]
    )
    def test_a_missing_last_delimiter_is_a_problem_and_the_rest_is_there(self, rest: bytes) -> None:
        package = read(ROOT + rest)
        problem = only_problem(package)
        assert (problem.location, problem.severity) == ("MIME", Severity.FAILURE)
        assert data_of(package.root).strip() == b"<e/>"
        if rest.endswith(b"half"):
            assert data_of(package.parts[1]) == b"half"

    @pytest.mark.parametrize("second", [b"<p@q>", b"p@q", b"<p%40q>", b"p%2540q"])
    def test_two_parts_with_one_content_id_are_a_problem(self, second: bytes) -> None:
        one, two = (
            b"--b\r\nContent-ID: <p@q>\r\n\r\n1\r\n",
            b"--b\r\nContent-ID: " + second + b"\r\n\r\n2\r\n",
        )
        package = read(ROOT + one + two + two + b"--b--")
        problem = only_problem(package)
        assert problem.location == "cid:p@q"
        assert "'p@q'" in problem.detail
        found = package.part("p%40q")
        assert found is not None
        assert found.index == 1

    def test_ids_that_differ_by_case_are_two(self) -> None:
        package = read(
            ROOT + b"--b\r\nContent-ID: <P>\r\n\r\n1\r\n--b\r\nContent-ID: <p>\r\n\r\n2\r\n--b--"
        )
        assert package.problems == ()
        assert package.part("q") is None

    def test_two_different_content_ids_on_one_part_are_a_problem(self) -> None:
        package = read(ROOT + b"--b\r\nContent-ID: <p>\r\nContent-Id: <q>\r\n\r\n1\r\n--b--")
        assert only_problem(package).location == "cid:p"

    def test_a_part_that_ends_in_its_headers_is_refused(self) -> None:
        error = refused(b"--b\r\nContent-Type: text/xml\r\n--b\r\n\r\nx\r\n--b--")
        assert (error.code, error.location) == ("EBMS:0007", "MIME part 1")

    def test_a_hopeless_content_type_is_told_with_its_part(self) -> None:
        assert refused(ROOT + b"--b\r\nContent-Type: ?\r\n\r\n").location == "MIME part 2"

    @pytest.mark.parametrize("pieces", [1, 2])
    def test_a_reader_that_is_through_goes_without_a_search_for_garbage(self, pieces: int) -> None:
        reader = MultipartReader(OUTER)
        gone = weakref.ref(reader)
        body = ROOT + b"--b--"
        gc.disable()
        try:
            for piece in (body[: len(body) // pieces], body[len(body) // pieces :]):
                reader.feed(piece)
            reader.close()
            del reader
            assert gone() is None
        finally:
            gc.enable()
