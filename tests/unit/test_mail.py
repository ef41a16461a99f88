"""A mail and the message in it: header, kind, transfer encodings, and what is written."""

import base64
import quopri
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any

import pytest

from postroad.msh.capture import Capture, Incoming
from postroad.msh.outbound import WirePart, wire_form
from postroad.wire.content import BytesContent, BytesSink
from postroad.wire.errors import EbmsError
from postroad.wire.mail import (
    HEAD_BYTES,
    Mail,
    MailHead,
    MailReader,
    decoded_words,
    is_address,
    kind_of_mail,
    mail_address,
    read_mail_head,
)
from postroad.wire.soap import SoapVersion

ENVELOPE = "<a>é</a>".encode()
ALL_BYTES = bytes(range(256)) * 3
XML = "MIME-Version: 1.0\r\nContent-Type: text/xml\r\n"


def mail(*parts: bytes, boundary: str | None = "b", **fields: Any) -> Mail:
    attached = [
        WirePart(f"{number}@x", "application/octet-stream", BytesContent(part), "a.bin")
        for number, part in enumerate(parts)
    ]
    said: dict[str, Any] = {
        "sender": "msh@buyer.example",
        "to": "msh@seller.example",
        "subject": "ebXML",
        "date": datetime(2026, 6, 1, 12, tzinfo=UTC),
        "message_id": "1@buyer.example",
    }
    form = wire_form(SoapVersion.SOAP_11, ENVELOPE, attached, boundary)
    return Mail(form, **{**said, **fields})


def written(one: Mail) -> bytes:
    return b"".join(one.pieces())


def head(text: str) -> MailHead:
    return read_mail_head(text.encode())


def read(data: bytes, size: int = 7) -> tuple[MailHead, bytes]:
    """A mail read in small pieces."""
    reader = MailReader()
    body = b"".join(reader.feed(data[at : at + size]) for at in range(0, len(data), size))
    body += reader.close()
    assert reader.head is not None
    return reader.head, body


def captured(data: bytes) -> Capture:
    found, body = read(data)
    incoming = Incoming(found.content_type, new_sink=BytesSink)
    incoming.feed(body)
    return incoming.close()


# The header


def test_folded_lines_are_one_value() -> None:
    found = head("Content-Type: multipart/related;\r\n\tboundary=b;\r\n type=text/xml\r\n")
    assert found.content_type == "multipart/related; boundary=b; type=text/xml"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=?UTF-8?B?R3LDvMOfZQ==?=", "Grüße"),
        ("=?iso-8859-1?q?Gr=FC=DFe_an?= alle", "Grüße an alle"),
        ("=?utf-8?q?a?=\t=?utf-8?q?b?= c", "ab c"),
        ("=?utf-8*de?q?a?=", "a"),
        ("=?punycode?q?a?=", "=?punycode?q?a?="),
        ("=?utf-8?b?###?=", "=?utf-8?b?###?="),
        ("2 =? 3", "2 =? 3"),
    ],
)
def test_encoded_words_are_decoded_where_they_can_be(value: str, text: str) -> None:
    assert decoded_words(value) == text
    assert head(f"Subject: {value}\r\n").text("subject") == text


@pytest.mark.parametrize("name", ["Content-Type", "Content-Transfer-Encoding"])
def test_a_mail_that_says_two_things_at_once_is_refused(name: str) -> None:
    with pytest.raises(EbmsError, match="more than one content-"):
        head(f"{name}: text/xml\r\n{name}: text/html\r\n")


def test_a_header_that_never_ends_is_refused_before_it_is_kept() -> None:
    reader = MailReader()
    line = b"X-A: b\r\n"
    for _ in range(HEAD_BYTES // len(line)):
        reader.feed(line)
    with pytest.raises(EbmsError, match=f"longer than {HEAD_BYTES} bytes"):
        reader.feed(line)


@pytest.mark.parametrize("block", ["no header\r\n", "A\0: b\r\n", ": b\r\n"])
def test_what_is_no_header_is_refused(block: str) -> None:
    with pytest.raises(EbmsError):
        head(block)


@pytest.mark.parametrize("blank", [b"\r\n\r\n", b"\n\n", b"\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_the_body_begins_after_the_first_blank_line(blank: bytes, size: int) -> None:
    found, body = read(b"Subject: a" + blank + b"b\r\n\r\nc", size)
    assert (found.get("subject"), body) == ("a", b"b\r\n\r\nc")


def test_a_mail_may_have_no_body_or_no_header() -> None:
    assert read(b"Subject: a\r\n")[1] == b""
    assert read(b"\r\nbody")[1] == b"body"


# What it is


@pytest.mark.parametrize(
    ("text", "sender", "kind"),
    [
        (XML, "a@b.example", "message"),
        (XML.replace("text/xml", "multipart/related; type=text/xml; boundary=b"), "a@b", "message"),
        (XML.replace("1.0", "1.0 (made by hand)"), "a@b.example", "message"),
        (XML, "", "bounce"),
        (XML.replace("text/xml", "multipart/report; boundary=b"), "a@b.example", "bounce"),
        ("Auto-Submitted: auto-replied (vacation)\r\n" + XML, "a@b.example", "auto_reply"),
        ("Auto-Submitted: auto-generated\r\n" + XML, "a@b.example", "auto_reply"),
        ("Auto-Submitted: no\r\n" + XML, "a@b.example", "message"),
        ("Precedence: bulk\r\n" + XML, "a@b.example", "auto_reply"),
        ("X-Autoreply: yes\r\n" + XML, "a@b.example", "auto_reply"),
        ('SOAPAction: "ebXML"\r\nPrecedence: bulk\r\n' + XML, "a@b.example", "message"),
        ('SOAPAction: "ebXML"\r\nAuto-Submitted: auto-generated\r\n' + XML, "a@b", "message"),
        ('SOAPAction: "ebXML"\r\nAuto-Submitted: auto-replied\r\n' + XML, "a@b", "auto_reply"),
        ("Content-Type: text/xml\r\n", "a@b.example", "not_mime"),
        (XML.replace("1.0", "2.0"), "a@b.example", "not_mime"),
        (XML.replace("text/xml", "text/html"), "a@b.example", "other"),
        (XML.replace("text/xml", "?"), "a@b.example", "other"),
        ("MIME-Version: 1.0\r\n", "a@b.example", "other"),
    ],
)
def test_the_header_tells_what_a_mail_is(text: str, sender: str, kind: str) -> None:
    assert kind_of_mail(head(text), sender) == kind


# The body


@pytest.mark.parametrize("size", [1, 3, 64, 100_000])
@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("base64", base64.encodebytes(ALL_BYTES).replace(b"\n", b"\r\n")),
        ("Quoted-Printable", quopri.encodestring(ALL_BYTES).replace(b"\n", b"\r\n")),
        ("BINARY", ALL_BYTES),
    ],
)
def test_a_body_in_one_part_is_decoded_as_it_comes(encoding: str, body: bytes, size: int) -> None:
    data = f"{XML}Content-Transfer-Encoding: {encoding} (so)\r\n\r\n".encode() + body
    decoded = read(data, size)[1]
    assert decoded.replace(b"\r\n", b"\n") == ALL_BYTES.replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (XML + "Content-Transfer-Encoding: uuencode\r\n", "'uuencode' is not known"),
        (
            XML.replace("text/xml", "multipart/related; boundary=b")
            + "Content-Transfer-Encoding: base64\r\n",
            "a multipart as a whole",
        ),
    ],
)
def test_an_encoding_that_cannot_be_undone_is_refused(header: str, said: str) -> None:
    with pytest.raises(EbmsError, match=said):
        read(header.encode() + b"\r\nabc")


def test_broken_base64_is_refused() -> None:
    with pytest.raises(EbmsError, match="base64"):
        read(f"{XML}Content-Transfer-Encoding: base64\r\n\r\nabc*".encode())


# Writing


@pytest.mark.req("RM001-3.2-01")
@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 114, 57 * 1024, 57 * 1024 + 1, 200_000])
def test_what_is_written_is_read_again_byte_for_byte(size: int) -> None:
    data = (ALL_BYTES * (size // len(ALL_BYTES) + 1))[:size]
    found = captured(written(mail(data, ALL_BYTES)))
    assert found.envelope == ENVELOPE
    assert [b"".join(one.content.chunks()) for one in found.attachments] == [data, ALL_BYTES]
    assert found.problems == ()


def test_an_envelope_alone_travels_as_text_xml() -> None:
    found = captured(written(mail(boundary=None)))
    assert (found.envelope, found.multipart) == (ENVELOPE, False)


@pytest.mark.parametrize("parts", [(), (b"",), (b"", b"a"), (ALL_BYTES * 300, b"")])
def test_the_length_is_known_beforehand(parts: tuple[bytes, ...]) -> None:
    for one in (mail(*parts), mail(boundary=None)):
        assert one.length == len(written(one))


def test_a_mail_has_the_header_that_ebxml_asks_for() -> None:
    found = read(written(mail(b"x", subject="Grüße, " * 20)))[0]
    assert kind_of_mail(found, "msh@buyer.example") == "message"
    assert found.is_ebxml
    assert found.get("soapaction") == '"ebXML"'
    assert found.get("mime-version") == "1.0"
    assert (found.get("from"), found.get("to")) == ("msh@buyer.example", "msh@seller.example")
    assert found.get("date") == "Mon, 01 Jun 2026 12:00:00 +0000"
    assert found.message_id == "1@buyer.example"
    assert found.text("subject") == ("Grüße, " * 20)
    assert found.get("auto-submitted") is None


def test_a_mail_is_seven_bits_and_short_lines_and_no_line_begins_with_a_dot() -> None:
    data = written(mail(ALL_BYTES, subject="é" * 100))
    lines = data.split(b"\r\n")
    assert data.isascii()
    assert max(map(len, lines)) <= 78
    assert not any(line.startswith(b".") for line in lines)
    assert b"\n" not in data.replace(b"\r\n", b"")


def test_other_programs_read_the_same() -> None:
    parsed: Any = message_from_bytes(written(mail(ALL_BYTES, subject="Grüße")), policy=policy.SMTP)
    assert parsed["subject"] == "Grüße"
    root, attached = parsed.iter_parts()
    assert root.get_payload(decode=True) == ENVELOPE
    assert (attached.get_filename(), attached.get_payload(decode=True)) == ("a.bin", ALL_BYTES)


def test_a_large_part_is_written_in_pieces_of_bounded_size() -> None:
    assert max(map(len, mail(bytes(3_000_000)).pieces())) < 100_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sender", "msh@buyer.example\r\nBcc: all@seller.example"),
        ("to", "a@b, c@d"),
        ("message_id", "a b"),
        ("message_id", "a>\r\nX: b"),
        ("message_id", ""),
    ],
)
def test_what_would_break_out_of_the_header_is_not_written(field: str, value: str) -> None:
    with pytest.raises(ValueError):
        written(mail(b"x", **{field: value}))


def test_a_subject_cannot_break_out_of_its_line() -> None:
    found = read(written(mail(subject="a\r\nBcc: b@c.example")))[0]
    assert found.get("bcc") is None
    assert found.text("subject") == "a\r\nBcc: b@c.example"


# Addresses


@pytest.mark.parametrize("text", ["a@b", "a.b+c@x-y.example", "a@[127.0.0.1]"])
def test_what_is_a_mail_address(text: str) -> None:
    assert is_address(text)
    assert mail_address(f"mailto:{text}") == text


@pytest.mark.parametrize(
    "text", ["", "a", "a@", "@b", "a@b@c", "a b@c", "a@b c", "<a@b>", "a@b\r\n", "é@b", "a@-b"]
)
def test_what_is_none(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize("uri", ["http://a@b", "a@b", "mailto:", "mailto:a@b,c@d", "mailto:a%0a@b"])
def test_a_uri_that_names_no_single_address_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="names no mail address"):
        mail_address(uri)


def test_a_mailto_uri_may_have_more_than_the_address() -> None:
    assert mail_address("MAILTO:a%2Bb@c.example?subject=x") == "a+b@c.example"
