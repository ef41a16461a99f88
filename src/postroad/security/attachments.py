"""Attachments as WS-Security sees them (SwA profile 1.1): content and media type, by Content-ID."""

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from postroad.security.algorithms import SHA256, Digest
from postroad.wire.content import Content, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.names import SWA
from postroad.wire.xml import canonical, parse

CONTENT_TRANSFORM: Final = SWA + "#Attachment-Content-Signature-Transform"
COMPLETE_TRANSFORM: Final = SWA + "#Attachment-Complete-Signature-Transform"
CIPHERTEXT_TRANSFORM: Final = SWA + "#Attachment-Ciphertext-Transform"
CONTENT_ONLY: Final = SWA + "#Attachment-Content-Only"
COMPLETE: Final = SWA + "#Attachment-Complete"

_XML_TYPE: Final = re.compile(r"(text|application)/xml|(application|image)/[^;]+\+xml")
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


class Attachment(Struct, frozen=True):
    content_id: str
    content: Content
    media_type: str
    """Lower case, without parameters; what it was before encryption."""
    sha256: bytes | None = None
    """The digest of the content where it is known already."""


@lru_cache(maxsize=1024)
def signed_form(media_type: str) -> str:
    """What of a content is digested: its `xml`, its `text` with any line ends, or its `octets`."""
    media = media_type.partition(";")[0].strip().lower()
    if _XML_TYPE.match(media):
        return "xml"
    return "text" if media.startswith("text/") else "octets"


def content_digest(
    attachment: Attachment, digest: Digest, *, raw: bool = False, limits: Limits = DEFAULT
) -> bytes:
    """The digest after the Attachment-Content-Signature-Transform (SwA 5.4.2).

    XML is canonicalised, other text gets CRLF line ends, everything else is taken as it is;
    with `raw` everything is.
    """
    form = "octets" if raw else signed_form(attachment.media_type)
    if form == "xml":
        return digest.new(_canonical_xml(attachment, limits)).digest()
    if form == "text":
        return _text_digest(attachment.content, digest)
    if digest.uri == SHA256 and attachment.sha256 is not None:
        return attachment.sha256
    state = digest.new()
    for chunk in attachment.content.chunks():
        state.update(chunk)
    return state.digest()


def _canonical_xml(attachment: Attachment, limits: Limits) -> bytes:
    place = f"cid:{attachment.content_id}"
    try:
        data = read_all(attachment.content, limits.canonical_xml_bytes)
    except ValueError as error:
        raise EbmsError(
            "EBMS:0101", f"XML attachment too large to canonicalise: {error}", location=place
        ) from None
    bounds = Limits(
        envelope_bytes=limits.canonical_xml_bytes,
        xml_depth=250,
        xml_elements=limits.canonical_xml_elements,
        xml_attributes=512,
    )
    return canonical(parse(data, bounds, where=place))


def _text_digest(content: Content, digest: Digest) -> bytes:
    state = digest.new()
    held = b""
    for chunk in content.chunks():
        data = held + chunk
        held = b"\r" if data.endswith(b"\r") else b""
        state.update(_LINE_END.sub(b"\r\n", data[: len(data) - len(held)]))
    if held:
        state.update(b"\r\n")
    return state.digest()
