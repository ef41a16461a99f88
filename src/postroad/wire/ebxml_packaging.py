"""The packaging of ebXML messages: what section 7 asks for beyond MIME itself.

What the MIME reader finds (no type parameter, a start that no part has, two parts of one
Content-ID) is not told again here.
"""

import codecs
import re
from collections.abc import Sequence
from typing import Final

from postroad.wire.ebxml import Manifest
from postroad.wire.errors import EbmsError
from postroad.wire.mime_headers import ContentType, canonical_content_id, cid_url, content_id_of
from postroad.wire.mime_parts import Part

MEDIA_TYPE: Final = "text/xml"
_ENCODING: Final = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._\-]*)["']"""
)
_UTF_16: Final = {
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
    b"<\x00": "utf-16",
    b"\x00<": "utf-16",
}


def packaging_problems(
    content_type: ContentType | None,
    root_type: ContentType | None,
    envelope: bytes,
    attachments: Sequence[Part] = (),
    manifest: Manifest | None = None,
) -> list[EbmsError]:
    """What is wrong with the package: MimeProblem, with the Content-ID of the part.

    `content_type` of the whole, `root_type` of the part that holds the envelope, where known.
    """
    start = None if content_type is None else content_type.get("start")
    place = cid_url(canonical_content_id(start)) if start else "MIME"
    problems = [] if root_type is None else _root_problems(root_type, envelope, place)
    hrefs = () if manifest is None else tuple(one.href for one in manifest.references)
    listed = {name for name in map(content_id_of, hrefs) if name is not None}
    present = {part.content_id for part in attachments}
    for name in sorted(listed - present):
        sentence = f"the Manifest refers to the part {name!r}, which is not there"
        problems.append(EbmsError("MimeProblem", sentence, location=cid_url(name)))
    for part in attachments:
        if part.content_id is not None and part.content_id not in listed:
            sentence = f"the Manifest does not mention the part {part.content_id!r}"
            problems.append(EbmsError("MimeProblem", sentence, location=part.location))
    return problems


def _root_problems(root_type: ContentType, envelope: bytes, place: str) -> list[EbmsError]:
    problems = []
    if root_type.media_type != MEDIA_TYPE:
        sentence = f"the part with the envelope is {MEDIA_TYPE}, found {root_type.media_type[:80]}"
        problems.append(EbmsError("MimeProblem", sentence, location=place))
    charset, encoding = root_type.get("charset"), encoding_of(envelope)
    if charset and not _agree(charset, encoding, envelope):
        sentence = f"the charset is {charset[:80]}, but the XML is in {encoding}"
        problems.append(EbmsError("MimeProblem", sentence, location=place))
    return problems


def encoding_of(envelope: bytes) -> str:
    """The encoding of an XML document by its first bytes and its declaration."""
    utf_16 = _UTF_16.get(envelope[:2])
    if utf_16 is not None:
        return utf_16
    declared = _ENCODING.match(envelope)
    return "utf-8" if declared is None else declared[1].decode()


def _agree(charset: str, encoding: str, envelope: bytes) -> bool:
    """The same encoding, or one that is a part of the other and is all that is needed."""
    try:
        names = {codecs.lookup(charset).name, codecs.lookup(encoding).name}
    except (LookupError, ValueError):
        return False
    if len(names) == 1 or names <= {"utf-16", "utf-16-le", "utf-16-be"}:
        return True
    return names == {"utf-8", "ascii"} and envelope.isascii()
