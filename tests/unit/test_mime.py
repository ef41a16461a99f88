"""Reading and writing multipart/related."""

import email
import email.policy
import hashlib
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from postroad.wire.content import BytesContent, BytesSink, Content, Joined, read_all
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, KIB, MIB, Limits
from postroad.wire.mime import (
    ContentType,
    Multipart,
    MultipartReader,
    OutgoingPart,
    Part,
    boundary_is_free,
    cid_url,
    content_id_of,
    multipart_bytes,
    multipart_content_type,
    multipart_heads,
    multipart_length,
    parse_content_type,
    write_multipart,
)
from postroad.wire.mime_headers import parse_headers
from postroad.wire.mime_whole import is_small, whole_parts
from tests.changing import replace

SOAP = "application/soap+xml"
OUTER = ContentType("multipart/related", (("boundary", "b"), ("type", SOAP)))
NOTHING = BytesContent(b"")
ROOT = b"--b\r\nContent-Type: application/soap+xml\r\n\r\n<e/>\r\n"


def read(
    body: bytes,
    content_type: ContentType | None = OUTER,
    limits: Limits = DEFAULT,
    **more: Any,
) -> Multipart:
    reader = MultipartReader(content_type, limits=limits, **more)
    reader.feed(body)
    return reader.close()


def data_of(part: Part) -> bytes:
    return read_all(part.content, 1 << 30)


def part_with(headers: bytes, content: bytes) -> Part:
    return read(ROOT + b"--b\r\n" + headers + b"\r\n" + content + b"\r\n--b--\r\n").parts[1]


def refused(body: bytes, content_type: ContentType | None = OUTER, **more: Any) -> EbmsError:
    with pytest.raises(EbmsError) as caught:
        read(body, content_type, **more)
    assert caught.value.location is not None
    return caught.value


def feed_often(reader: MultipartReader, piece: bytes, times: int) -> None:
    for _ in range(times):
        reader.feed(piece)


def only_problem(package: Multipart) -> EbmsError:
    (problem,) = package.problems
    assert problem.code == "EBMS:0007"
    return problem


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

    @pytest.mark.parametrize("limit", ["memory", "part", "envelope", "message"])
    def test_nothing_is_small_that_could_break_a_limit(self, limit: str) -> None:
        limits = replace(DEFAULT, **{f"{limit}_bytes": 100})
        assert is_small(100, limits)
        assert not is_small(101, limits)

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


class TestContentType:
    @pytest.mark.parametrize(
        "value",
        [
            'Multipart/Related; Type="text/xml"; START="<a@b>"; boundary="x y"',
            'multipart/related;type="text/xml";start="<a@b>";boundary="x y"',
            'multipart/related;\r\n\ttype="text/xml"\r\n ; start=<a@b> ;\r\n boundary="x y";',
            'multipart/related (a (b) "?") ; type="text/xml"; start="<a@b>"; boundary="x\\ y"',
            'multipart/related; type="text/xml" start="<a@b>" boundary="x y"',
            'multipart/related; type=text/xml; start=<a@b>; boundary*0="x"; boundary*1*=%20y',
            "multipart/related; type=text/xml; start=<a@b>; boundary*=utf-8'en'x%20y",
        ],
    )
    def test_all_spellings_of_a_content_type_are_one(self, value: str) -> None:
        read = parse_content_type(value)
        assert read.media_type == "multipart/related"
        assert dict(read.params) == {"type": "text/xml", "start": "<a@b>", "boundary": "x y"}

    def test_an_unquoted_boundary_may_hold_equal_signs(self) -> None:
        assert parse_content_type("multipart/related; boundary==-6s==").get("boundary") == "=-6s=="

    def test_a_quoted_value_keeps_its_parentheses_and_escapes(self) -> None:
        read = parse_content_type(r'a/b; name="x (y) \"z\" \\"')
        assert read.get("name") == r'x (y) "z" \ '.strip()

    def test_a_word_without_value_is_passed_over(self) -> None:
        assert parse_content_type("text/xml; UTF-8; a=b").params == (("a", "b"),)

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "xml",
            "/xml",
            "text/xml,text/plain",
            'a/b; c="d',
            'a/b; c="d"; c="e"',
            "a/b; =c",
            "a/b; c*0=x; c*2=y",
            "a/b; c*0=x; c*0=y",
            "a/b; c*=nonsense''%78",
            "a/b; c=" + "d" * 20_000,
        ],
    )
    def test_a_hopeless_content_type_is_refused(self, value: str) -> None:
        with pytest.raises(EbmsError) as caught:
            parse_content_type(value)
        assert caught.value.code == "EBMS:0007"
        assert len(caught.value.detail) < 300

    def test_a_parameter_may_be_said_twice_in_the_same_words(self) -> None:
        assert parse_content_type("a/b; c=d; C=d").params == (("c", "d"),)

    def test_it_is_written_with_the_quotes_it_needs(self) -> None:
        value = ContentType("a/b", (("c", "d"), ("e", 'f "g" \\'), ("h", "<i@j>")))
        assert str(value) == r'a/b; c=d; e="f \"g\" \\"; h="<i@j>"'

    def test_a_line_end_in_a_parameter_is_not_written(self) -> None:
        with pytest.raises(ValueError, match="control character"):
            str(ContentType("a/b", (("c", "d\r\nX: y"),)))


class TestHeaders:
    def test_names_are_found_in_any_case_and_order_is_kept(self) -> None:
        headers = parse_headers(b"B: 1\r\na: 2\r\nb: 3\r\n")
        assert headers.get("b") == "1"
        assert headers.get_all("B") == ["1", "3"]
        assert headers.get("c") is None
        assert list(headers) == [("B", "1"), ("a", "2"), ("b", "3")]

    @pytest.mark.parametrize("end", [b"\r\n", b"\n"])
    def test_folded_lines_are_unfolded(self, end: bytes) -> None:
        headers = parse_headers(end.join([b"A: one;", b"\ttwo;", b"  three", b"B:", b" x", b""]))
        assert headers.pairs == (("A", "one; two; three"), ("B", "x"))

    def test_an_indented_block_is_read_as_if_it_were_not(self) -> None:
        headers = parse_headers(b"    A: one\n    Content-ID:\n<x@y>\n    B: two\n")
        assert headers.pairs == (("A", "one"), ("Content-ID", "<x@y>"), ("B", "two"))

    def test_a_blank_before_the_colon_is_no_part_of_the_name(self) -> None:
        assert parse_headers(b"A : b\r\n").pairs == (("A", "b"),)

    def test_bytes_that_are_not_utf_8_are_latin_1(self) -> None:
        assert parse_headers(b"A: caf\xe9\r\n").get("a") == "café"
        assert parse_headers("A: café\r\n".encode()).get("a") == "café"

    @pytest.mark.parametrize(
        "block",
        [b"no colon\r\n", b": x\r\n", b"a b: x\r\n", b"a: b\rc: d\r\n", b"a: \0\r\n", b"  x\n"],
    )
    def test_what_is_no_header_line_is_refused(self, block: bytes) -> None:
        with pytest.raises(EbmsError, match="EBMS:0007"):
            parse_headers(block)


class TestContentIds:
    @pytest.mark.parametrize(
        "href",
        [
            "cid:a b/c@d",
            "cid:a%20b%2Fc@d",
            "CID:a%20b%2fc%40d",
            " cid:a%2520b/c@d ",
            "cid:<a b/c@d>",
        ],
    )
    def test_an_id_is_the_same_however_its_url_is_encoded(self, href: str) -> None:
        assert content_id_of(href) == "a b/c@d"

    def test_an_id_in_other_case_is_another_id(self) -> None:
        assert content_id_of("cid:A@b") != content_id_of("cid:a@b")

    @pytest.mark.parametrize("href", ["", "#id", "http://x/cid:", "cid:", "cid", "ci%64:x"])
    def test_other_references_are_not_content_ids(self, href: str) -> None:
        assert content_id_of(href) is None

    def test_the_url_of_an_id_leads_back_to_it(self) -> None:
        assert cid_url("a b<ü>%@c") == "cid:a%20b%3C%C3%BC%3E%25@c"
        assert content_id_of(cid_url("a b/ü@c")) == "a b/ü@c"

    def test_bytes_that_are_no_utf_8_stay_apart(self) -> None:
        assert content_id_of("cid:%fe") != content_id_of("cid:%ff")


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

    def test_a_dump_may_be_indented(self) -> None:
        body = b"--b\n   Content-Type: text/xml\n\n<e/>\n   --b\n   Content-ID: p\n\nx\n   --b--\n"
        package = read(body, None)
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

    def test_a_start_that_names_nothing_is_a_problem(self, sink: type[RecordingSink]) -> None:
        limits = replace(DEFAULT, memory_bytes=0)
        package = read(
            self.body.replace(b"\r\n\r\none", b"\r\nContent-Type: text/xml\r\n\r\none"),
            self.outer("R@x"),
            limits,
            new_sink=sink,
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


def outgoing(content: bytes, content_id: str = "p@q", **more: Any) -> OutgoingPart:
    return OutgoingPart(content_id, "application/octet-stream", BytesContent(content), **more)


class TestWriting:
    at: dict[str, Any] = {"boundary": "=_b", "root_id": "root@x"}  # noqa: RUF012

    def written(self, *parts: OutgoingPart, **more: Any) -> bytes:
        return b"".join(write_multipart(b"<e/>", parts, **self.at, **more))

    def test_what_is_written_is_read_back(self) -> None:
        disposition = ("Content-Disposition", 'attachment; filename="a b.xml"')
        body = self.written(outgoing(b"\r\n1\r\n", headers=(disposition,)), outgoing(b"", "ü/1"))
        package = read(body, parse_content_type(multipart_content_type(**self.at)))
        assert package.problems == ()
        assert [data_of(part) for part in package.parts] == [b"<e/>", b"\r\n1\r\n", b""]
        assert [part.content_id for part in package.parts] == ["root@x", "p@q", "ü/1"]
        assert package.parts[1].headers.get("content-disposition") == disposition[1]

    @pytest.mark.req("MS098-7.1.1-02", "MS098-7.2-01", "MS098-7.2-04", "MS098-7.2-05")
    def test_another_mime_reader_finds_the_same_parts(self) -> None:
        head = f"MIME-Version: 1.0\r\nContent-Type: {multipart_content_type(**self.at)}\r\n\r\n"
        message = email.message_from_bytes(
            head.encode() + self.written(outgoing(b"abc")), policy=email.policy.HTTP
        )
        assert message.get_content_type() == "multipart/related"
        assert message.get_param("start") == "<root@x>"
        root, payload = message.iter_parts()
        assert (root["content-id"], root.get_content_type()) == ("<root@x>", SOAP)
        assert (payload["content-id"], payload.get_payload(decode=True)) == ("<p@q>", b"abc")

    @pytest.mark.req("MS098-7.2-02")
    def test_a_soap_1_1_root_is_text_xml_outside_and_inside(self) -> None:
        outer = parse_content_type(multipart_content_type(**self.at, root_type="text/xml"))
        package = read(self.written(root_type="text/xml"), outer)
        assert outer.get("type") == package.root.content_type.media_type == "text/xml"
        assert package.root.content_type.get("charset") == "UTF-8"

    def test_a_message_without_payload_has_one_part(self) -> None:
        assert self.written() == (
            b"--=_b\r\nContent-Type: application/soap+xml; charset=UTF-8\r\n"
            b"Content-Transfer-Encoding: binary\r\nContent-ID: <root@x>\r\n\r\n<e/>\r\n--=_b--\r\n"
        )

    @pytest.mark.req("MS098-7.5-01")
    def test_a_part_may_carry_further_headers(self) -> None:
        assert b"\r\nX-More: yes\r\n" in self.written(outgoing(b"", headers=(("X-More", "yes"),)))

    def test_action_and_start_info_can_be_told(self) -> None:
        value = multipart_content_type(**self.at, action="urn:a b", start_info="text/xml")
        assert value == (
            'multipart/related; type="application/soap+xml"; start="<root@x>"; boundary="=_b"; '
            'start-info="text/xml"; action="urn:a b"'
        )

    def test_the_length_is_known_before(self) -> None:
        parts = (outgoing(b"x" * 1000), outgoing(b"", "r"), outgoing(b"y" * MIB, "s"))
        assert multipart_length(b"<e/>", parts, **self.at) == len(self.written(*parts))

    def test_a_small_message_is_one_piece_and_a_large_content_is_not_copied(self) -> None:
        assert len(list(write_multipart(b"<e/>", (outgoing(b"x" * 10_000),), **self.at))) == 1
        large = b"x" * MIB
        assert any(
            piece is large for piece in write_multipart(b"<e/>", (outgoing(large),), **self.at)
        )

    @pytest.mark.parametrize(
        "part",
        [
            outgoing(b"", "a\r\nX: y"),
            outgoing(b"", "a>b"),
            outgoing(b"", "a b"),
            outgoing(b"", ""),
            outgoing(b"", "a%40b"),
            outgoing(b"", "a\0"),
            outgoing(b"", headers=(("X", "a\nb"),)),
            outgoing(b"", headers=(("X", "a\rb"),)),
            outgoing(b"", headers=(("X:", "a"),)),
            outgoing(b"", headers=(("", "a"),)),
            outgoing(b"", headers=(("content-id", "a"),)),
            OutgoingPart("a", "text/xml\r\nX: y", BytesContent(b"")),
            OutgoingPart("a", "xml", BytesContent(b"")),
        ],
    )
    def test_a_value_that_would_break_out_of_its_header_is_refused(
        self, part: OutgoingPart
    ) -> None:
        with pytest.raises(ValueError):
            write_multipart(b"<e/>", (part,), **self.at)

    @pytest.mark.parametrize("boundary", ["", "x" * 71, "a\r\nb", "a ", "ü"])
    def test_an_impossible_boundary_is_not_written(self, boundary: str) -> None:
        with pytest.raises(ValueError, match="boundary"):
            write_multipart(b"<e/>", boundary=boundary, root_id="r")
        with pytest.raises(ValueError, match="boundary"):
            multipart_content_type(boundary=boundary, root_id="r")

    def test_a_root_that_is_no_soap_is_not_written(self) -> None:
        with pytest.raises(ValueError, match="text/html"):
            self.written(root_type="text/html")

    def test_content_that_is_not_as_long_as_it_says_is_told(self) -> None:
        short = BytesContent(b"1234")
        short.size = 5
        part = OutgoingPart("a", "text/plain", short)
        with pytest.raises(ValueError, match="-1 bytes"):
            self.written(part)
        with pytest.raises(ValueError, match="4 bytes against its size 5"):
            multipart_bytes(multipart_heads((part,), **self.at), b"<e/>", (part,))

    def test_a_small_package_in_one_piece_is_what_its_pieces_are(self) -> None:
        parts = [
            OutgoingPart("a", "text/plain", BytesContent(b"1234")),
            OutgoingPart("b", "text/plain", Joined([BytesContent(b"5"), BytesContent(b"6")])),
        ]
        for some in (parts, parts[:1], []):
            heads = multipart_heads(some, **self.at)
            whole = multipart_bytes(heads, b"<e/>", some)
            assert whole == b"".join(write_multipart(b"<e/>", some, **self.at))

    def test_a_boundary_is_free_unless_a_line_begins_with_it(self) -> None:
        assert boundary_is_free("b", b"x--b\r\n --b")
        assert not boundary_is_free("b", b"--b")
        assert not boundary_is_free("b", b"x\n--b")
