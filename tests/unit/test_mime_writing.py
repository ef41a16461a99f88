"""Writing multipart/related."""

import email
import email.policy
from typing import Any

import pytest

from postroad.wire.content import BytesContent, Joined
from postroad.wire.limits import MIB
from postroad.wire.mime import (
    OutgoingPart,
    boundary_is_free,
    multipart_bytes,
    multipart_content_type,
    multipart_heads,
    multipart_length,
    parse_content_type,
    write_multipart,
)
from tests.unit.multiparts import SOAP, data_of, read


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
