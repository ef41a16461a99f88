"""Where the payloads of a user message are, and whether header, MIME and compression agree."""

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Final

from lxml import etree
from msgspec import Struct

from postroad.msh.compression import Measured, Zipped, gunzip
from postroad.security.attachments import Attachment, signed_form
from postroad.security.ids import Ids
from postroad.wire.content import BytesContent, Content
from postroad.wire.ebms3 import (
    CHARACTER_SET,
    COMPRESSION_TYPE,
    GZIP,
    MIME_TYPE,
    PartInfo,
    UserMessage,
)
from postroad.wire.ebms3_user_messages import is_uri
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import content_id_of
from postroad.wire.names import XENC
from postroad.wire.xml import canonical

_encoding_name: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*").fullmatch


class Payload(Struct, frozen=True):
    """One payload as its consumer gets it: decrypted and decompressed."""

    part_info: PartInfo
    content_id: str | None
    """None for a payload in the Body."""
    media_type: str | None
    content: Content | None
    """None when it could not be opened; canonical XML where it stands in the Body."""
    sha256: bytes | None = None
    compressed: bool = False
    unpacked: Zipped | None = None
    """What is inside a GZIP file that was sent as such, without AS4 compression."""


class Opening:
    """What all units of one message share while their payloads are opened.

    The ids of the Body are found once, and no attachment is inflated twice: a small header could
    name one thousands of times. What they grow to is counted over all of them: many small bombs
    are a large one.
    """

    def __init__(
        self,
        body: etree._Element,
        attachments: Mapping[str, Attachment],
        limits: Limits = DEFAULT,
    ) -> None:
        self.body = body
        self.ids = Ids(body)
        self._limits = limits
        self._attachments = attachments
        self._allowed: int | None = None
        self._inflated: dict[str, Zipped | EbmsError] = {}
        self._written: dict[etree._Element, Zipped] = {}

    @property
    def _left(self) -> int:
        """What attachments may still grow to, all of them together."""
        if self._allowed is None:
            size = sum(one.content.size for one in self._attachments.values())
            limits = self._limits
            self._allowed = max(size * limits.decompression_ratio, limits.decompression_floor)
        return self._allowed

    def inflate(self, attachment: Attachment) -> Zipped:
        """The attachment decompressed; EBMS:0303 when that cannot be done."""
        name = attachment.content_id
        if name not in self._inflated:
            sink = Measured(attachment.content)
            left = self._left
            most = min(self._limits.decompressed_bytes, left)
            try:
                self._inflated[name] = gunzip(
                    attachment.content,
                    new_sink=lambda: sink,
                    location=f"cid:{name}",
                    limits=replace(self._limits, decompressed_bytes=most),
                )
            except EbmsError as error:
                self._inflated[name] = error
            self._allowed = left - sink.size
        outcome = self._inflated[name]
        if isinstance(outcome, EbmsError):
            raise EbmsError(outcome.code, outcome.detail, location=outcome.location)
        return outcome

    def written(self, element: etree._Element) -> Zipped | None:
        """An element of the Body as canonical XML; None while it is encrypted."""
        if element.tag == f"{{{XENC}}}EncryptedData":
            return None
        if element not in self._written:
            octets = canonical(element)
            self._written[element] = Zipped(BytesContent(octets), sha256(octets).digest())
        return self._written[element]


def open_payloads(
    message: UserMessage,
    where: str,
    attachments: Mapping[str, Attachment],
    body: etree._Element,
    *,
    limits: Limits = DEFAULT,
    opening: Opening | None = None,
    closed: frozenset[str] = frozenset(),
    envelope_only: bool = False,
) -> tuple[tuple[Payload, ...], list[EbmsError]]:
    """The payloads that a user message lists, opened, and what is wrong with them.

    `where` is the path of its eb:UserMessage; `closed` are attachments that are still encrypted,
    which cannot be looked into. With `envelope_only` attachments were not captured, so that their
    absence says nothing. Units of one message share an `opening`.
    """
    payloads: list[Payload] = []
    problems: list[EbmsError] = []
    if opening is None:
        opening = Opening(body, attachments, limits)
    for number, part_info in enumerate(message.part_infos, 1):
        place = f"{where}/eb:PayloadInfo/eb:PartInfo[{number}]"
        try:
            payloads.append(_open(part_info, place, attachments, opening, closed, problems))
        except EbmsError as error:
            if envelope_only and error.code == "EBMS:0007":
                error.severity = Severity.WARNING
            problems.append(error)
            payloads.append(
                Payload(part_info, content_id_of(part_info.href or ""), None, None, None)
            )
    return tuple(payloads), problems


def _open(
    part_info: PartInfo,
    place: str,
    attachments: Mapping[str, Attachment],
    opening: Opening,
    closed: frozenset[str],
    problems: list[EbmsError],
) -> Payload:
    href = part_info.href
    content_id = content_id_of(href) if href else None
    if content_id is None:
        inside = _elsewhere(href, place, opening)
        if inside is None:
            return Payload(part_info, None, part_info.property(MIME_TYPE), None)
        media_type = part_info.property(MIME_TYPE) or "application/xml"
        return Payload(part_info, None, media_type, inside.content, inside.sha256)
    attachment = attachments.get(content_id)
    if attachment is None:
        raise EbmsError(
            "EBMS:0007", f"the message has no part with Content-ID {content_id}", location=place
        )
    compression = part_info.property(COMPRESSION_TYPE)
    if compression is None and content_id in closed:
        return Payload(part_info, content_id, part_info.property(MIME_TYPE), None)
    if compression is None:
        media_type = part_info.property(MIME_TYPE) or attachment.media_type
        problems += _type_problems(media_type, attachment)
        unpacked = None
        if attachment.media_type == GZIP:
            unpacked = _peek(attachment, opening, problems)
        return Payload(
            part_info,
            content_id,
            media_type,
            attachment.content,
            attachment.sha256,
            unpacked=unpacked,
        )
    problems += _compression_problems(part_info, compression, attachment, place, closed)
    if compression != GZIP or content_id in closed:
        return Payload(part_info, content_id, part_info.property(MIME_TYPE), None, None, True)
    inflated = opening.inflate(attachment)
    media_type = part_info.property(MIME_TYPE) or "application/octet-stream"
    return Payload(part_info, content_id, media_type, inflated.content, inflated.sha256, True)


def _type_problems(media_type: str, attachment: Attachment) -> list[EbmsError]:
    """The MIME type says what of a part is signed, and nobody signs it: the header's word counts.

    Octets declared XML or text on the way could be changed as far as canonical form allows.
    """
    form = signed_form(attachment.media_type)
    if form == "octets" or form == signed_form(media_type):
        return []
    return [
        EbmsError(
            "EBMS:0007",
            f"the header says that it is {media_type}, the MIME part {attachment.media_type}",
            location=f"cid:{attachment.content_id}",
        )
    ]


def _peek(attachment: Attachment, opening: Opening, problems: list[EbmsError]) -> Zipped | None:
    """Look into a GZIP file that nobody asked to decompress; damage there is only a warning."""
    try:
        return opening.inflate(attachment)
    except EbmsError as error:
        error.severity = Severity.WARNING
        problems.append(error)
        return None


def _compression_problems(
    part_info: PartInfo,
    compression: str,
    attachment: Attachment,
    place: str,
    closed: frozenset[str],
) -> list[EbmsError]:
    """The rules of AS4 3.1 for a compressed part."""
    found = []
    if compression != GZIP:
        found.append(
            EbmsError(
                "EBMS:0303",
                f"{COMPRESSION_TYPE} is {compression!r}, only {GZIP} exists",
                location=place,
            )
        )
    if not part_info.property(MIME_TYPE):
        found.append(
            EbmsError(
                "EBMS:0303",
                f"a compressed part needs a {MIME_TYPE} property that tells what it was before",
                location=place,
            )
        )
    if attachment.media_type != GZIP and attachment.content_id not in closed:
        found.append(
            EbmsError(
                "EBMS:0007",
                f"a compressed part has Content-Type {GZIP}, here it is {attachment.media_type}",
                location=f"cid:{attachment.content_id}",
            )
        )
    charset = part_info.property(CHARACTER_SET)
    if charset is not None and not _is_charset(charset):
        found.append(
            EbmsError(
                "EBMS:0003",
                f"{CHARACTER_SET} is {charset!r}, which is no character set",
                location=place,
            )
        )
    return found


def _is_charset(name: str) -> bool:
    """Whether XML could declare it (XML 1.0, 4.3.3) and it is known; codecs are more lenient."""
    if not _encoding_name(name):
        return False
    try:
        return codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        return False


def _elsewhere(href: str | None, place: str, opening: Opening) -> Zipped | None:
    """A payload that is no attachment: the Body, an element in it, or outside the message."""
    if not href:
        content = next(opening.body.iterchildren("*"), None)
        if content is None:
            raise EbmsError(
                "EBMS:0007",
                "a PartInfo without href is the Body, but the Body is empty",
                location=place,
            )
        return opening.written(content)
    if not href.startswith("#"):
        if not is_uri(href):
            return None
        raise EbmsError(
            "EBMS:0011",
            f"the payload {href!r} is outside the message and is not fetched",
            location=place,
        )
    count = opening.ids.count(href[1:])
    if count != 1:
        raise EbmsError(
            "EBMS:0007",
            f"{href} names {count} elements of the Body, exactly one is expected",
            location=place,
        )
    return opening.written(opening.ids.one(href[1:]))


def unlisted(attachments: Sequence[str], listed: Sequence[str | None]) -> list[EbmsError]:
    """Attachments that no PartInfo names: they are never processed (Core 5.2.2.12)."""
    known = {content_id_of(href) for href in listed if href}
    return [
        EbmsError(
            "EBMS:0007",
            "no PartInfo names this attachment, so it is not part of the message",
            location=f"cid:{content_id}",
        )
        for content_id in attachments
        if content_id not in known
    ]


def misplaced_parts(messages: Sequence[UserMessage]) -> list[EbmsError]:
    """Payloads that a secondary unit of a bundle has no right to: the Body, and another's parts.

    [P2-3.2.1-03] [P2-3.2.1-04]
    """
    found = []
    owners: dict[str, str] = {}
    for number, message in enumerate(messages, 1):
        own = message.message_info.message_id
        for part_info in message.part_infos:
            name = content_id_of(part_info.href or "")
            if name is not None:
                said = f"the part cid:{name} belongs to the unit {owners.setdefault(name, own)}"
                misplaced = owners[name] != own
            else:
                said = "only the primary unit of a bundle may have its payload in the Body"
                misplaced = number > 1 and (part_info.href or "#").startswith("#")
            if misplaced:
                place = f"eb:Messaging/eb:UserMessage[{number}]/eb:PayloadInfo"
                found.append(EbmsError("EBMS:0007", said, location=place, ref=own))
    return found


def root_type_problems(
    media_type: str | None, expected: str, charset: str | None, encoding: str | None, where: str
) -> list[EbmsError]:
    """Whether the envelope's media type and charset are those of its SOAP version and XML."""
    found = []
    if media_type not in (None, expected, "application/xop+xml"):
        found.append(
            EbmsError(
                "EBMS:0007",
                f"this SOAP version travels as {expected}, the envelope is declared {media_type}",
                location=where,
            )
        )
    if charset and encoding and not _same_charset(charset, encoding):
        found.append(
            EbmsError(
                "EBMS:0007",
                f"the MIME charset is {charset}, the XML is in {encoding}",
                location=where,
                severity=Severity.FAILURE,
            )
        )
    return found


@lru_cache(maxsize=64)
def _same_charset(one: str, other: str) -> bool:
    try:
        names = {codecs.lookup(one).name, codecs.lookup(other).name}
    except (LookupError, ValueError):
        return False
    return len(names) == 1 or names == {"utf-8", "ascii"}
