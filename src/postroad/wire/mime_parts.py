"""One body part: its value, its transfer encoding undone, its content kept and digested."""

import binascii
import hashlib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from postroad.wire.content import BytesContent, Content, NewSink, Sink
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import KIB, Limits
from postroad.wire.mime_headers import (
    ContentType,
    Headers,
    cid_url,
    parse_content_type,
)

_LINE_BYTES: Final = 64 * KIB
PLAIN: Final = ContentType("text/plain")
UNENCODED: Final = frozenset(("7bit", "8bit", "binary"))


class Part(Struct, frozen=True):
    """One body part, its content decoded. `index` counts from 0."""

    index: int
    headers: Headers
    content_type: ContentType
    content_id: str | None
    """Without <> and percent-decoded: compare it with `content_id_of(href)`."""
    transfer_encoding: str
    content: Content
    sha256: bytes
    begin: int | None = None
    """Where in the body the content stands as it is; None where it was encoded."""

    @property
    def size(self) -> int:
        return self.content.size

    @property
    def location(self) -> str:
        return _location(self.index, self.content_id)


def _location(index: int, content_id: str | None) -> str:
    return cid_url(content_id) if content_id else f"MIME part {index + 1}"


def mime_error(detail: str, location: str = "MIME", severity: Severity | None = None) -> EbmsError:
    return EbmsError("EBMS:0007", detail, location=location, severity=severity)


def root_too_large(most: int, location: str) -> EbmsError:
    return EbmsError(
        "EBMS:0009", f"the SOAP envelope is larger than {most} bytes", location=location
    )


class Base64:
    """Base64 in pieces. Nothing but white space may stand between the characters."""

    __slots__ = ("_ended", "_rest", "_where")

    def __init__(self, where: str) -> None:
        self._rest = b""
        self._ended = False
        self._where = where

    def decode(self, data: bytes | memoryview) -> bytes:
        text = self._rest + bytes(data).translate(None, b" \t\r\n")
        if not text:
            return b""
        if self._ended:
            raise self._broken("there is more after its end")
        whole = len(text) & ~3
        self._rest = text[whole:]
        text = text[:whole]
        self._ended = text.endswith(b"=")
        if self._ended and self._rest:
            raise self._broken("there is more after its end")
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error as error:
            raise self._broken(str(error)) from None

    def finish(self) -> bytes:
        if self._rest:
            raise self._broken("it ends within a group of four characters")
        return b""

    def _broken(self, why: str) -> EbmsError:
        return mime_error(f"the base64 content cannot be decoded: {why}", self._where)


class QuotedPrintable:
    """Quoted-printable in pieces: whole lines are decoded, the last one waits for its end."""

    __slots__ = ("_rest", "_where")

    def __init__(self, where: str) -> None:
        self._rest = b""
        self._where = where

    def decode(self, data: bytes | memoryview) -> bytes:
        text = self._rest + data
        whole = text.rfind(b"\n") + 1
        self._rest = text[whole:]
        if len(self._rest) > _LINE_BYTES:
            raise mime_error(
                f"a line of quoted-printable content is longer than {_LINE_BYTES} bytes",
                self._where,
            )
        return binascii.a2b_qp(text[:whole])

    def finish(self) -> bytes:
        return binascii.a2b_qp(self._rest)


class OpenPart:
    """The part whose content is coming in. `fields` are its headers by name in lower case."""

    def __init__(
        self,
        index: int,
        headers: Headers,
        fields: Mapping[str, str],
        content_id: str | None,
        *,
        limits: Limits,
        new_sink: NewSink,
        memory: int,
        is_root: bool,
    ) -> None:
        self.index = index
        self.in_memory = 0
        self.begin = 0
        """Where its content begins in the body."""
        self._headers = headers
        self._content_id = content_id
        self._content_type = self._read_content_type(fields.get("content-type"))
        self._transfer_encoding = (fields.get("content-transfer-encoding") or "binary").lower()
        self._decoder = self._new_decoder(self._transfer_encoding)
        self._is_root = is_root
        self._most = limits.envelope_bytes if is_root else limits.part_bytes
        self._memory = limits.envelope_bytes if is_root else memory
        self._size = 0
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._new_sink = new_sink
        self._sink: Sink | None = None

    @property
    def location(self) -> str:
        return _location(self.index, self._content_id)

    def _read_content_type(self, value: str | None) -> ContentType:
        if not value:
            return PLAIN
        try:
            return parse_content_type(value)
        except EbmsError as error:
            raise mime_error(error.detail, self.location) from None

    def _new_decoder(self, encoding: str) -> Base64 | QuotedPrintable | None:
        if encoding in UNENCODED:
            return None
        if encoding == "base64":
            return Base64(self.location)
        if encoding == "quoted-printable":
            return QuotedPrintable(self.location)
        raise mime_error(
            f"the Content-Transfer-Encoding {encoding[:80]!r} is not known", self.location
        )

    def write(self, data: bytes | memoryview) -> None:
        self._keep(data if self._decoder is None else self._decoder.decode(data))

    def _keep(self, data: bytes | memoryview) -> None:
        self._size += len(data)
        if self._size > self._most:
            if self._is_root:
                raise root_too_large(self._most, self.location)
            raise mime_error(f"the part is larger than {self._most} bytes", self.location)
        self._digest.update(data)
        if self._sink is not None:
            self._sink.write(data)
        elif self._size <= self._memory:
            self._buffer += data
        else:
            self._sink = self._new_sink()
            if self._buffer:
                self._sink.write(bytes(self._buffer))
                self._buffer = bytearray()
            self._sink.write(data)

    def finish(self) -> Part:
        if self._decoder is not None:
            self._keep(self._decoder.finish())
        content: Content
        if self._sink is None:
            content = BytesContent(bytes(self._buffer))
            self.in_memory = self._size
        else:
            content = self._sink.finish()
            self._sink = None
        return Part(
            self.index,
            self._headers,
            self._content_type,
            self._content_id,
            self._transfer_encoding,
            content,
            self._digest.digest(),
            self.begin if self._decoder is None else None,
        )

    def discard(self) -> None:
        if self._sink is not None:
            self._sink.discard()
            self._sink = None
