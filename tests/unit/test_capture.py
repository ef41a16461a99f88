"""A message is found in whatever somebody kept of it."""

import gzip
from collections.abc import Sequence
from typing import Final

import pytest

import postroad
from postroad.msh.capture import Capture, read_capture
from postroad.node.first_steps.example import http_request, order_attachment, order_message
from postroad.security.secure import secure
from postroad.security.sign import Block
from postroad.wire.content import BytesSink, read_all
from postroad.wire.ebms3 import Messaging, UserMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB, Limits
from postroad.wire.soap import SoapVersion
from tests import pki

VERSION: Final = SoapVersion.SOAP_12


def envelope_of(message: UserMessage) -> bytes:
    header = write_messaging(Messaging((message,), id="_m"), VERSION)
    return secure(VERSION, [Block("_m", header)], []).envelope


MESSAGE: Final = order_message(pki.NOW)
ENVELOPE: Final = envelope_of(MESSAGE)
REQUEST: Final = http_request(ENVELOPE, [order_attachment()])
HEAD, _, MIME = REQUEST.partition(b"\r\n\r\n")
ALONE: Final = b"Content-Type: application/soap+xml; charset=UTF-8"


def capture(data: bytes, cut: int | None = None, limits: Limits | None = None) -> Capture:
    pieces: Sequence[bytes] = [data]
    if cut:
        pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    return read_capture(pieces, new_sink=BytesSink, limits=limits or Limits())


def assert_whole(found: Capture) -> None:
    assert found.envelope == ENVELOPE
    assert found.multipart
    assert not found.envelope_only
    [part] = found.attachments
    assert part.content_id == "order@buyer.example"
    assert read_all(part.content, MIB) == order_attachment().content.data


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize("cut", [None, 1, 7, 1000])
def test_a_request_is_read_however_it_is_cut(cut: int | None) -> None:
    found = capture(REQUEST, cut)
    assert_whole(found)
    assert found.http is not None
    assert found.http.start_line == "POST /msh HTTP/1.1"
    assert found.problems == ()


def test_a_response_is_read_with_its_status() -> None:
    _, _, headers = HEAD.partition(b"\r\n")
    found = capture(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n\r\n" + MIME)
    assert_whole(found)
    assert found.http is not None
    assert found.http.status == 200


def test_headers_without_a_first_line_are_enough() -> None:
    _, _, rest = REQUEST.partition(b"\r\n")
    found = capture(rest)
    assert_whole(found)
    assert found.http is not None
    assert found.http.start_line is None


def test_line_feeds_alone_are_enough_in_the_head() -> None:
    assert_whole(capture(HEAD.replace(b"\r\n", b"\n") + b"\n\n" + MIME))


@pytest.mark.parametrize("size", [1, 10, 333, 100_000])
def test_a_chunked_body_is_put_together(size: int) -> None:
    head = HEAD + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert_whole(capture(head + chunked(MIME, size)))


def test_a_body_said_to_be_chunked_but_kept_without_chunks_is_read() -> None:
    assert_whole(capture(HEAD + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + MIME))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "unpacked already"])
def test_a_content_encoding_is_undone_where_it_is_there(packed: bool) -> None:
    head = HEAD + b"\r\nContent-Encoding: gzip\r\n\r\n"
    assert_whole(capture(head + (gzip.compress(MIME, mtime=0) if packed else MIME)))


def test_a_mime_body_without_its_content_type_is_read() -> None:
    found = capture(MIME)
    assert_whole(found)
    assert found.http is None
    assert found.content_type is None
    assert found.root_type is not None
    assert found.root_type.media_type == "application/soap+xml"


@pytest.mark.parametrize("before", [b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"a preamble\r\n"])
def test_a_mime_body_may_have_something_before_its_first_delimiter(before: bytes) -> None:
    assert_whole(capture(before + MIME))


def test_an_envelope_alone_is_read() -> None:
    found = capture(ENVELOPE)
    assert found.envelope == ENVELOPE
    assert found.attachments == ()
    assert not found.multipart
    assert found.http is None
    assert found.root_type is None


def test_white_space_around_an_envelope_does_not_matter() -> None:
    assert capture(b"\r\n \t" + ENVELOPE + b"\n\n").envelope == ENVELOPE


def test_an_envelope_in_http_has_no_attachments_and_nobody_left_any_out() -> None:
    found = capture(b"POST / HTTP/1.1\r\n" + ALONE + b"\r\n\r\n" + ENVELOPE)
    assert found.envelope == ENVELOPE
    assert not found.envelope_only
    assert not found.multipart
    assert found.root_type is not None
    assert found.root_type.get("charset") == "UTF-8"


@pytest.mark.parametrize(
    ("data", "envelope_only"),
    [
        (ENVELOPE, True),
        (MIME, False),
        (REQUEST, False),
        (ALONE + b"\r\n\r\n" + ENVELOPE, False),
    ],
    ids=["envelope", "MIME body", "HTTP request", "envelope with its HTTP headers"],
)
def test_attachments_may_be_missing_only_where_the_envelope_was_kept_alone(
    data: bytes, envelope_only: bool
) -> None:
    assert capture(data).envelope_only is envelope_only
    report = postroad.inspect(data, at=pki.NOW)
    alone = b"Content-Type: multipart" not in data and not data.startswith(b"--")
    missing = [error["severity"] for error in report["errors"] if error["code"] == "EBMS:0007"]
    assert missing == ((["warning"] if envelope_only else ["failure"]) if alone else [])
    assert report["holds"] is (envelope_only or not alone)


def test_a_byte_order_mark_before_the_envelope_is_no_obstacle() -> None:
    report = postroad.inspect(b"\xef\xbb\xbf" + ENVELOPE, at=pki.NOW)
    assert report["kind"] == "user_message"
    assert report["holds"]


@pytest.mark.parametrize("tail", ["", "\n", "\r\n\r\n"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
)
def test_an_envelope_in_utf_16_is_read(encoding: str, mark: bytes, tail: str) -> None:
    text = ENVELOPE.decode().replace("UTF-8", "UTF-16") + tail
    report = postroad.inspect(mark + text.encode(encoding), at=pki.NOW)
    assert report["kind"] == "user_message"
    assert report["holds"]
    assert report["units"][0]["message_id"] == MESSAGE.message_info.message_id


@pytest.mark.parametrize("data", [b"", b" ", b"\r\n\r\n", b"\n" * 5000])
def test_nothing_is_told_as_nothing(data: bytes) -> None:
    with pytest.raises(EbmsError, match="empty") as caught:
        capture(data)
    assert caught.value.code == "EBMS:0009"
    assert postroad.inspect(data)["kind"] == "unreadable"


def test_an_http_message_without_a_body_cannot_be_read() -> None:
    for data in (b"HTTP/1.1 202 Accepted\r\n\r\n", b"HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n"):
        with pytest.raises(EbmsError):
            capture(data)
        assert postroad.inspect(data)["kind"] == "unreadable"


@pytest.mark.parametrize(
    "data",
    [b"hello", b"\0\1\2\3" * 100, b"{}", b"--", b"--b\r\n", b"a: b\r\n\r\nc"],
)
def test_what_is_no_message_is_refused_with_a_code(data: bytes) -> None:
    report = postroad.inspect(data)
    assert report["kind"] == "unreadable"
    assert not report["holds"]
    assert report["errors"][0]["code"].startswith("EBMS:")


def test_a_mime_body_that_was_cut_off_is_told() -> None:
    report = postroad.inspect(REQUEST[:-30], at=pki.NOW)
    assert not report["holds"]
    assert "EBMS:0007" in {error["code"] for error in report["errors"]}


def test_an_envelope_beyond_the_limit_is_refused() -> None:
    limits = Limits(envelope_bytes=len(ENVELOPE) - 1)
    for data in (ENVELOPE, REQUEST):
        with pytest.raises(EbmsError, match="larger than"):
            capture(data, limits=limits)
    exact = Limits(envelope_bytes=len(ENVELOPE))
    assert capture(ENVELOPE, limits=exact).envelope == ENVELOPE


def test_a_multipart_type_without_boundary_is_read_and_told() -> None:
    head = b"Content-Type: multipart/related\r\n\r\n"
    found = capture(head + MIME)
    assert found.envelope == ENVELOPE
    assert any("boundary" in problem.detail for problem in found.problems)


def test_the_root_is_the_part_that_start_names() -> None:
    kind = b'multipart/related; type="application/soap+xml"; start="<root@x>"; boundary=b'
    body = (
        b"--b\r\nContent-ID: <order@buyer.example>\r\nContent-Type: application/gzip\r\n\r\n"
        + order_attachment().content.data
        + b"\r\n--b\r\nContent-ID: <root@x>\r\nContent-Type: application/soap+xml\r\n\r\n"
        + ENVELOPE
        + b"\r\n--b--\r\n"
    )
    assert_whole(capture(b"Content-Type: " + kind + b"\r\n\r\n" + body))
