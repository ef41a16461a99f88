"""Mails of any content and cut in any way: what goes in comes out."""

from collections.abc import Iterator
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from postroad.msh.capture import Incoming
from postroad.msh.outbound import WirePart, wire_form
from postroad.transport.smtp_data import LAST, DataReader, stuffed
from postroad.wire.content import BytesContent, BytesSink
from postroad.wire.errors import EbmsError
from postroad.wire.mail import Mail, MailReader, decoded_words, kind_of_mail
from postroad.wire.soap import SoapVersion

NASTY = st.text("\r\n.ab", max_size=40).map(str.encode)
CUTS = st.lists(st.integers(1, 12), min_size=1, max_size=6)


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, over and over."""
    at = turn = 0
    while at < len(data):
        yield data[at : at + sizes[turn % len(sizes)]]
        at += sizes[turn % len(sizes)]
        turn += 1


@given(NASTY, CUTS, CUTS)
def test_dots_are_put_in_and_taken_out_whatever_the_pieces(
    content: bytes, there: list[int], here: list[int]
) -> None:
    sent = b"".join(stuffed(cut(content, there))) + LAST
    reader = DataReader(line_bytes=1000)
    came, rest = b"", b""
    for piece in cut(sent + b"NOOP", here):
        if reader.ended:
            rest += piece
        else:
            came += reader.feed(piece)
            rest = reader.rest
    assert reader.ended
    assert came == (content if content.endswith(b"\r\n") or not content else content + b"\r\n")
    assert rest == b"NOOP"


@given(st.lists(st.binary(max_size=300), max_size=3), st.text(max_size=80), CUTS)
def test_a_message_survives_its_mail(parts: list[bytes], subject: str, sizes: list[int]) -> None:
    attached = [
        WirePart(f"{number}@x", "application/octet-stream", BytesContent(part))
        for number, part in enumerate(parts)
    ]
    form = wire_form(SoapVersion.SOAP_11, b"<a/>", attached, "b" if parts else None)
    day = datetime(2026, 6, 1, tzinfo=UTC)
    mail = Mail(form, "a@b.example", "c@d.example", subject, day, "1@b.example")
    data = b"".join(mail.pieces())
    assert len(data) == mail.length
    reader = MailReader()
    body = b"".join([reader.feed(piece) for piece in cut(data, sizes)]) + reader.close()
    assert reader.head is not None
    assert reader.head.text("subject") == subject.encode("utf-8", "replace").decode()
    assert kind_of_mail(reader.head, "a@b.example") == "message"
    incoming = Incoming(reader.head.content_type, new_sink=BytesSink)
    incoming.feed(body)
    found = incoming.close()
    assert found.envelope == b"<a/>"
    assert [b"".join(one.content.chunks()) for one in found.attachments] == parts


@given(st.binary(max_size=400), CUTS)
def test_bytes_of_any_kind_are_read_or_refused(data: bytes, sizes: list[int]) -> None:
    reader = MailReader()
    try:
        for piece in cut(data, sizes):
            reader.feed(piece)
        reader.close()
    except EbmsError:
        return
    assert reader.head is not None
    kind_of_mail(reader.head, "a@b.example")
    decoded_words(reader.head.get("subject") or "")


@given(st.text(max_size=200))
def test_decoding_words_never_fails(value: str) -> None:
    assert isinstance(decoded_words(value + "=?utf-8?q?" + value + "?="), str)
