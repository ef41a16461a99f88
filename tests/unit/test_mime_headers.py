"""What stands in the headers of parts: content types, folded lines, Content-IDs."""

import pytest

from postroad.wire.errors import EbmsError
from postroad.wire.mime import ContentType, cid_url, content_id_of, parse_content_type
from postroad.wire.mime_headers import parse_headers


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
