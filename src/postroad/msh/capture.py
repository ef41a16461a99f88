"""A message as somebody kept it: an HTTP message, a bare MIME body, or an envelope alone."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from postroad.wire.content import NewSink, read_all
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.http import HttpHead, body_chunks, read_head
from postroad.wire.limits import DEFAULT, KIB, Limits
from postroad.wire.mime import MultipartReader, Part
from postroad.wire.mime_headers import ContentType, parse_content_type

_HEAD_BYTES = 128 * KIB
_BARE = ("application/soap+xml", "text/xml")
_DELIMITER = re.compile(rb"(?:^|\n)(?:\xef\xbb\xbf)?[ \t]*--[!-~]")


class Capture(Struct, frozen=True):
    """The bytes of a message cut into envelope and attachments, not looked into yet."""

    http: HttpHead | None
    content_type: ContentType | None
    """Of the whole: the HTTP header's, or none where the capture has no head."""
    root_type: ContentType | None
    """Of the envelope itself, where something tells it."""
    envelope: bytes
    attachments: tuple[Part, ...]
    multipart: bool
    problems: tuple[EbmsError, ...]
    whole: bool = False
    """This is all that came: nothing can have been left out by who kept it."""

    @property
    def envelope_only(self) -> bool:
        """Somebody kept the envelope and nothing else: attachments may have been there."""
        return self.http is None and not self.multipart and not self.whole


def read_capture(
    chunks: Iterable[bytes], *, new_sink: NewSink, limits: Limits = DEFAULT
) -> Capture:
    """Cut a captured message into its parts; EbmsError when that cannot be done."""
    source = iter(chunks)
    begin = _at_least(source, _HEAD_BYTES)
    if not begin.strip():
        raise EbmsError("EBMS:0009", "there is nothing here: the message is empty", location="file")
    head = read_head(begin, limits)
    if head is None:
        return _body(None, None, chain([begin], source), begin, new_sink, limits)
    received = _Counted(chain([begin[head.body_offset :]], source))
    rest = body_chunks(head, received, limits)
    inside = _at_least(rest, _HEAD_BYTES)
    if not inside.strip():
        raise EbmsError("EBMS:0009", "the HTTP message has no body", location="HTTP")
    found = _body(head, head.content_type, chain([inside], rest), inside, new_sink, limits)
    return replace(found, problems=(*found.problems, *_length_problems(head, received.size)))


class _Counted:
    """Passes pieces on and counts their bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            yield chunk


def _length_problems(head: HttpHead, size: int) -> list[EbmsError]:
    """Whether the body is as long as its Content-Length says."""
    said = (head.headers.get("content-length") or "").strip()
    if not said or said == str(size) or head.headers.get("transfer-encoding"):
        return []
    return [
        EbmsError(
            "EBMS:0007",
            f"Content-Length is {said[:40]}, the body has {size} bytes",
            location="HTTP",
            severity=Severity.WARNING,
        )
    ]


def _at_least(source: Iterator[bytes], size: int) -> bytes:
    begin = bytearray()
    for chunk in source:
        begin += chunk
        if len(begin) >= size:
            break
    return bytes(begin)


def _body(
    head: HttpHead | None,
    content_type: ContentType | None,
    chunks: Iterable[bytes],
    begin: bytes,
    new_sink: NewSink,
    limits: Limits,
) -> Capture:
    said = content_type is not None and content_type.media_type.startswith("multipart/")
    if said or (not _looks_like_xml(begin) and _DELIMITER.search(begin)):
        outer = content_type if said else None
        reader = MultipartReader(outer, limits=limits, new_sink=new_sink)
        for chunk in chunks:
            reader.feed(chunk)
        package = reader.close()
        return Capture(
            head,
            content_type,
            package.root.content_type,
            read_all(package.root.content, limits.envelope_bytes),
            package.attachments(),
            True,
            package.problems,
        )
    envelope = bytearray()
    for chunk in chunks:
        envelope += chunk
        if len(envelope) > limits.envelope_bytes:
            raise EbmsError(
                "EBMS:0009",
                f"the envelope is larger than {limits.envelope_bytes} bytes",
                location="envelope",
            )
    whole = bytes(envelope)
    if 0 not in whole[:4]:
        whole = whole.strip()
    return Capture(head, content_type, content_type, whole, (), False, ())


def _looks_like_xml(begin: bytes) -> bool:
    if begin.startswith((b"\xff\xfe", b"\xfe\xff", b"<\x00", b"\x00<")):
        return True
    return begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<")


class Incoming:
    """A message as it comes in over HTTP, piece by piece: `feed` it, then `close`.

    EBMS:0007 for a media type that carries no ebMS message, EBMS:0009 for an envelope that is
    too large.
    """

    def __init__(
        self, content_type: str | None, *, new_sink: NewSink, limits: Limits = DEFAULT
    ) -> None:
        if not content_type:
            raise _not_taken("there is no Content-Type")
        self._type = parse_content_type(content_type)
        self._limits = limits
        self._reader: MultipartReader | None = None
        self._envelope = bytearray()
        if self._type.media_type == "multipart/related":
            self._reader = MultipartReader(self._type, limits=limits, new_sink=new_sink)
        elif self._type.media_type not in _BARE:
            raise _not_taken(f"the Content-Type is {self._type.media_type[:80]}")

    def feed(self, data: bytes) -> None:
        if self._reader is not None:
            self._reader.feed(data)
            return
        self._envelope += data
        if len(self._envelope) > self._limits.envelope_bytes:
            raise EbmsError(
                "EBMS:0009",
                f"the envelope is larger than {self._limits.envelope_bytes} bytes",
                location="envelope",
            )

    @property
    def root(self) -> bytes | None:
        """The envelope, if it is a part that came before the others ended; else None."""
        part = self._reader.root if self._reader is not None else None
        return read_all(part.content, self._limits.envelope_bytes) if part is not None else None

    def close(self) -> Capture:
        """All of it came."""
        if self._reader is None:
            envelope = bytes(self._envelope)
            if not envelope:
                raise EbmsError("EBMS:0009", "the HTTP message has no body", location="HTTP")
            return Capture(None, self._type, self._type, envelope, (), False, (), whole=True)
        package = self._reader.close()
        return Capture(
            None,
            self._type,
            package.root.content_type,
            read_all(package.root.content, self._limits.envelope_bytes),
            package.attachments(),
            True,
            package.problems,
            whole=True,
        )

    def abort(self) -> None:
        """No more comes: nothing of it stays behind."""
        if self._reader is not None:
            self._reader.abort()


def _not_taken(why: str) -> EbmsError:
    return EbmsError(
        "EBMS:0007",
        f"{why}; a message travels as multipart/related, application/soap+xml or text/xml",
        location="HTTP",
    )
