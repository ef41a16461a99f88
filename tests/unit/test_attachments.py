"""What of an attachment is digested: by its media type, in constant memory."""

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from lxml import etree

from postroad.security.algorithms import DIGESTS, SHA256, SHA512
from postroad.security.attachments import Attachment, content_digest
from postroad.wire.content import CHUNK, BytesContent
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB, Limits

XML = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<!-- before --><a xmlns="urn:a" z="1"\n b=\'2\'>'
    b"<?pi x?><b/>&#x20ac;\r\n<!-- inside --></a>\n"
)


class Pieces:
    """Content that comes in pieces of one's own cut."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    @property
    def size(self) -> int:
        return sum(map(len, self._pieces))

    def chunks(self) -> Iterator[bytes]:
        yield from self._pieces


def digest(data: bytes, media_type: str, *, raw: bool = False, uri: str = SHA256) -> bytes:
    return content_digest(Attachment("a", BytesContent(data), media_type), DIGESTS[uri], raw=raw)


@pytest.mark.parametrize(
    "media_type",
    [
        "text/xml",
        "application/xml",
        "TEXT/XML",
        "application/soap+xml",
        "image/svg+xml",
        "application/vnd.example.order.v1+xml",
        "application/xml-dtd",
    ],
)
def test_xml_is_digested_in_exclusive_canonical_form(media_type: str) -> None:
    tree = etree.fromstring(XML)
    expected = etree.tostring(tree, method="c14n", exclusive=True, with_comments=False)
    assert b"<!--" not in expected
    assert digest(XML, media_type) == hashlib.sha256(expected).digest()
    assert digest(XML, media_type) != hashlib.sha256(XML).digest()


@pytest.mark.parametrize(
    "media_type",
    [
        "application/octet-stream",
        "application/gzip",
        "application/pdf",
        "application/json",
        "audio/x+xml",
        "multipart/related",
        "",
    ],
)
def test_everything_else_is_digested_as_it_is(media_type: str) -> None:
    assert digest(XML, media_type) == hashlib.sha256(XML).digest()


@pytest.mark.parametrize("media_type", ["text/plain", "text/csv", "text/html", "Text/Plain"])
def test_text_is_digested_with_crlf_line_ends(media_type: str) -> None:
    expected = hashlib.sha256(b"a\r\n\r\nb\r\n\r\n\r\nc\r\n").digest()
    assert digest(b"a\n\nb\r\n\r\r\nc\r", media_type) == expected


@pytest.mark.parametrize("media_type", ["application/xml", "text/plain", "application/pdf"])
def test_raw_takes_every_type_as_it_is(media_type: str) -> None:
    assert digest(b"<a>\n", media_type, raw=True) == hashlib.sha256(b"<a>\n").digest()


def test_line_ends_that_are_cut_apart_count_once() -> None:
    text = b"one\r\ntwo\rthree\n\nfour\r\n\r"
    expected = hashlib.sha256(b"one\r\ntwo\r\nthree\r\n\r\nfour\r\n\r\n").digest()
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            content = Pieces(text[:first], text[first:second], b"", text[second:])
            cut = Attachment("a", content, "text/plain")
            assert content_digest(cut, DIGESTS[SHA256]) == expected


def test_a_known_digest_is_used_for_content_taken_as_it_is_only() -> None:
    known = b"k" * 32
    for media_type, uri, raw, used in (
        ("application/pdf", SHA256, False, True),
        ("application/pdf", SHA512, False, False),
        ("text/plain", SHA256, False, False),
        ("text/plain", SHA256, True, True),
        ("application/xml", SHA256, False, False),
    ):
        one = Attachment("a", BytesContent(b"<a/>"), media_type, known)
        assert (content_digest(one, DIGESTS[uri], raw=raw) == known) is used


def test_an_empty_attachment_has_the_digest_of_nothing() -> None:
    for media_type in ("text/plain", "application/octet-stream"):
        assert digest(b"", media_type) == hashlib.sha256(b"").digest()


@pytest.mark.parametrize(
    "data",
    [b"", b"<a>", b"no xml", b"<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>", b"<a/><b/>"],
)
def test_what_is_declared_as_xml_and_is_none_is_an_error_at_its_place(data: bytes) -> None:
    with pytest.raises(EbmsError) as caught:
        digest(data, "text/xml")
    assert caught.value.location == "cid:a"


def test_xml_beyond_the_limit_cannot_be_canonicalised() -> None:
    large = Attachment("a", BytesContent(b"<a>" + b" " * 100 + b"</a>"), "text/xml")
    with pytest.raises(EbmsError, match="too large") as caught:
        content_digest(large, DIGESTS[SHA256], limits=Limits(canonical_xml_bytes=100))
    assert caught.value.code == "EBMS:0101"


@pytest.mark.parametrize("media_type", ["application/octet-stream", "text/plain"])
def test_large_content_is_digested_in_small_memory(media_type: str) -> None:
    class Large:
        size = 16 * MIB

        def chunks(self) -> Iterator[bytes]:
            piece = (b"x" * 63 + b"\n") * (CHUNK // 64)
            for _ in range(self.size // CHUNK):
                yield piece

    tracemalloc.start()
    try:
        content_digest(Attachment("a", Large(), media_type), DIGESTS[SHA256])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB
