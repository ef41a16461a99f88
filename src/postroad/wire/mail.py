"""A mail and the message in it: its header read, its kind told, its body decoded; and written.

A message travels by mail as it does over HTTP: the same Content-Type, the same parts. Only the
transfer encodings differ, since no mail server need let eight bits or long lines pass: all that
is written here is base64 in lines of 76. What is read may have any encoding.
"""

import re
from binascii import Error as BadBase64
from binascii import a2b_base64, a2b_qp, b2a_base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from email.utils import format_datetime
from typing import Final, Literal, Protocol
from urllib.parse import unquote

from msgspec import Struct

from postroad.wire.content import BytesContent, Content
from postroad.wire.errors import EbmsError
from postroad.wire.limits import KIB
from postroad.wire.mime_headers import (
    ONLY_ONCE,
    Headers,
    canonical_content_id,
    checked_value,
    content_id_header,
    is_token,
    parse_content_type,
    parse_headers,
)
from postroad.wire.mime_parts import UNENCODED, Base64, QuotedPrintable
from postroad.wire.mime_writer import OutgoingPart

HEAD_BYTES: Final = 64 * KIB
"""A longer header is refused: those that mail servers add on the way fit in many times."""
HEADERS: Final = 500

MailKind = Literal["message", "bounce", "auto_reply", "not_mime", "other"]

_CARRIERS: Final = ("multipart/related", "text/xml", "application/soap+xml")
_WHERE: Final = "mail"
_ENCODED_WORD: Final = re.compile(r"=\?([^?*\s]+)(?:\*[^?\s]*)?\?([BbQq])\?([^?\s]*)\?=")
_BETWEEN_WORDS: Final = re.compile(r"(\?=)[ \t]+(?==\?)")
_CHARSET: Final = re.compile(
    r"utf-8|us-ascii|iso-8859-\d\d?|windows-125\d|koi8-[ru]|gb\d+|big5|shift_jis|euc-(?:jp|kr)",
    re.IGNORECASE,
)
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_VERSION: Final = re.compile(r"1\s*\.\s*0")
_COMMENT: Final = re.compile(r"\([^()]*\)")
_ATOMS: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_ADDRESS: Final = re.compile(
    rf"(?=[^@]{{1,64}}@){_ATOMS}@(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Za-z.:]+\])"
)
_LONGEST_ADDRESS: Final = 254
_MESSAGE_ID: Final = re.compile(r"[!-;=?-~]{1,900}")
_LINE: Final = 998
_WORD_BYTES: Final = 39
_BASE64_LINE: Final = 57
_BLOCK: Final = _BASE64_LINE * 1024


# Addresses


def is_address(text: str) -> bool:
    """Whether a text is a plain mail address, such as msh@buyer.example."""
    return len(text) <= _LONGEST_ADDRESS and _ADDRESS.fullmatch(text) is not None


def mail_address(uri: str) -> str:
    """The one address that a `mailto:` URI names; ValueError when it names none or several."""
    scheme, colon, rest = uri.partition(":")
    address = unquote(rest.partition("?")[0])
    if scheme.lower() != "mailto" or not colon or not is_address(address):
        raise ValueError(f"{uri[:200]!r} names no mail address; write mailto:name@host")
    return address


# Reading


class MailHead(Struct, frozen=True):
    """The header of a mail. Values are as they stand there, unfolded; `text` decodes them."""

    headers: Headers

    def get(self, name: str) -> str | None:
        """The first value of that name."""
        return self.headers.get(name)

    def text(self, name: str) -> str | None:
        """The same for people, its encoded words decoded (RFC 2047)."""
        value = self.headers.get(name)
        return None if value is None else decoded_words(value)

    @property
    def message_id(self) -> str | None:
        """Message-ID without <>."""
        value = (self.get("message-id") or "").strip()
        return value.removeprefix("<").removesuffix(">") or None

    @property
    def content_type(self) -> str | None:
        return self.get("content-type")

    @property
    def transfer_encoding(self) -> str:
        value = _COMMENT.sub("", self.get("content-transfer-encoding") or "")
        return value.strip().lower() or "7bit"

    @property
    def is_ebxml(self) -> bool:
        """Whether SOAPAction says that this is an ebXML message."""
        return (self.get("soapaction") or "").strip().strip("\"'").lower() == "ebxml"


def read_mail_head(block: bytes) -> MailHead:
    """Read the header lines of a mail; EBMS:0007 for what is none, or says two things at once."""
    headers = parse_headers(block, where=_WHERE, most=HEADERS, most_bytes=HEAD_BYTES)
    for name in ONLY_ONCE:
        if len(set(headers.get_all(name))) > 1:
            raise _wrong(f"the mail has more than one {name} header")
    return MailHead(headers)


def kind_of_mail(head: MailHead, sender: str | None = None) -> MailKind:
    """What a mail is; `sender` is that of the SMTP envelope, empty for a bounce.

    Programs mark what they send as automatic, so such a mark alone turns no ebXML message into an
    automatic reply. A reply is one that says so.
    """
    media_type = _media_type(head)
    if sender == "" or media_type == "multipart/report":
        return "bounce"
    if _is_reply(head) or (_is_automatic(head) and not head.is_ebxml):
        return "auto_reply"
    version = _COMMENT.sub("", head.get("mime-version") or "").strip()
    if not _VERSION.fullmatch(version):
        return "not_mime"
    return "message" if media_type in _CARRIERS else "other"


def _media_type(head: MailHead) -> str | None:
    try:
        return parse_content_type(head.content_type or "").media_type
    except EbmsError:
        return None


def _is_reply(head: MailHead) -> bool:
    said = _word(head, "auto-submitted")
    marked = head.get("x-autoreply") or head.get("x-autorespond")
    return said == "auto-replied" or bool(marked) or _word(head, "precedence") == "auto_reply"


def _is_automatic(head: MailHead) -> bool:
    return _word(head, "auto-submitted") not in ("", "no") or _word(head, "precedence") in (
        "bulk",
        "junk",
        "list",
    )


def _word(head: MailHead, name: str) -> str:
    value = _COMMENT.sub("", head.get(name) or "")
    return value.partition(";")[0].strip().lower()


def decoded_words(value: str) -> str:
    """A header value with its encoded words decoded; what cannot be decoded stays (RFC 2047)."""
    if "=?" not in value:
        return value
    return _ENCODED_WORD.sub(_decoded_word, _BETWEEN_WORDS.sub(r"\1", value))


def _decoded_word(found: re.Match[str]) -> str:
    charset, encoding, text = found.groups()
    if _CHARSET.fullmatch(charset) is None:
        return found[0]
    try:
        data = text.encode("ascii")
        plain = (
            a2b_qp(data, header=True) if encoding in "Qq" else a2b_base64(data, strict_mode=True)
        )
        return plain.decode(charset, "replace")
    except (BadBase64, LookupError, ValueError):
        return found[0]


class MailReader:
    """A mail as it comes, piece by piece: `feed` gives its decoded body, `head` is there early.

    A body in one part is decoded here. The parts of a multipart are decoded by who cuts them.
    """

    def __init__(self) -> None:
        self.head: MailHead | None = None
        self._begin = bytearray()
        self._decoder: Base64 | QuotedPrintable | None = None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; what they add to the body, once the header is over."""
        if self.head is not None:
            return data if self._decoder is None else self._decoder.decode(data)
        known = len(self._begin)
        self._begin += data
        end = _head_end(self._begin, known)
        if end is None:
            if len(self._begin) > HEAD_BYTES:
                raise _wrong(f"the header of the mail is longer than {HEAD_BYTES} bytes")
            return b""
        block, body = bytes(self._begin[: end[0]]), bytes(self._begin[end[1] :])
        self._begin.clear()
        self._read_head(block)
        return self.feed(body)

    def close(self) -> bytes:
        """All of it came; the last bytes of the body."""
        if self.head is None:
            self._read_head(bytes(self._begin))
        return b"" if self._decoder is None else self._decoder.finish()

    def _read_head(self, block: bytes) -> None:
        head = read_mail_head(block)
        self._decoder = _decoder(head)
        self.head = head


def _head_end(data: bytearray, known: int) -> tuple[int, int] | None:
    """Where the header ends and the body begins; in the first `known` bytes is no blank line."""
    if data.startswith(b"\r\n"):
        return 0, 2
    found = _BLANK_LINE.search(data, max(0, known - 2))
    return None if found is None else (found.start() + 1, found.end())


def _decoder(head: MailHead) -> Base64 | QuotedPrintable | None:
    encoding = head.transfer_encoding
    if encoding in UNENCODED:
        return None
    if (_media_type(head) or "").startswith("multipart/"):
        raise _wrong(f"a multipart as a whole cannot be encoded as {encoding[:80]}")
    if encoding == "base64":
        return Base64(_WHERE)
    if encoding == "quoted-printable":
        return QuotedPrintable(_WHERE)
    raise _wrong(f"the Content-Transfer-Encoding {encoding[:80]!r} is not known")


def _wrong(detail: str) -> EbmsError:
    return EbmsError("EBMS:0007", detail, location=_WHERE)


# Writing


class Form(Protocol):
    """A message as it goes over the wire, such as `msh.outbound.WireForm`."""

    @property
    def content_type(self) -> str: ...
    @property
    def envelope(self) -> bytes: ...
    @property
    def parts(self) -> Sequence[OutgoingPart]: ...
    @property
    def boundary(self) -> str | None: ...
    @property
    def media_type(self) -> str: ...


class Mail(Struct, frozen=True):
    """A message in a mail of its own, one recipient each. [RM001-3.2-01]

    The same values always give the same bytes; ValueError for what the header of no mail can say.
    """

    form: Form
    sender: str
    to: str
    subject: str
    date: datetime
    message_id: str

    @property
    def length(self) -> int:
        """How many bytes `pieces` gives."""
        sizes = sum(_encoded_size(content.size) for content in self._contents())
        return sizes + sum(map(len, self._heads()))

    def pieces(self) -> Iterator[bytes]:
        """The mail from its first line, in pieces of bounded size, with CRLF."""
        heads = self._heads()
        return _pieces(heads, self._contents())

    def _contents(self) -> list[Content]:
        return [BytesContent(self.form.envelope), *(part.content for part in self.form.parts)]

    def _heads(self) -> list[bytes]:
        """What stands before each content, and after the last."""
        form = self.form
        if form.boundary is None:
            if form.parts:
                raise ValueError("a message with attachments needs a boundary")
            return [self._header() + _BASE64_HEADER + b"\r\n", b"\r\n"]
        line = b"\r\n--" + form.boundary.encode("ascii")
        start = parse_content_type(form.content_type).get("start")
        if start is None:
            raise ValueError("the Content-Type does not tell where the message starts")
        kind = f"{form.media_type}; charset=UTF-8"
        first = _part_head(canonical_content_id(start), kind, ())
        rest = [_part_head(one.content_id, one.content_type, one.headers) for one in form.parts]
        heads = [line + b"\r\n" + head for head in (first, *rest)]
        return [self._header() + heads[0], *heads[1:], line + b"--\r\n"]

    def _header(self) -> bytes:
        for address in (self.sender, self.to):
            if not is_address(address):
                raise ValueError(f"{address[:200]!r} is no mail address")
        if _MESSAGE_ID.fullmatch(self.message_id) is None:
            raise ValueError(f"{self.message_id[:80]!r} cannot be the Message-ID of a mail")
        return _lines(
            ("From", self.sender),
            ("To", self.to),
            ("Date", format_datetime(self.date)),
            ("Message-ID", f"<{self.message_id}>"),
            ("Subject", _encoded_words(self.subject)),
            ("MIME-Version", "1.0"),
            ("SOAPAction", '"ebXML"'),
            ("Content-Type", self.form.content_type),
        )


_BASE64_HEADER: Final = b"Content-Transfer-Encoding: base64\r\n"


def _part_head(content_id: str, content_type: str, more: Sequence[tuple[str, str]]) -> bytes:
    try:
        parse_content_type(content_type)
    except EbmsError as error:
        raise ValueError(error.detail) from None
    for name, _ in more:
        if not is_token(name) or name.lower() in ONLY_ONCE:
            raise ValueError(f"{name!r} cannot be a further header of a part")
    known = (("Content-Type", content_type), ("Content-ID", content_id_header(content_id)))
    return _BASE64_HEADER + _lines(*known, *more) + b"\r\n"


def _lines(*fields: tuple[str, str]) -> bytes:
    """Header lines, folded between parameters and encoded words."""
    lines = []
    for name, value in fields:
        if not value.isascii():
            raise ValueError(f"{name} is not ASCII, which is all that the header of a mail takes")
        mark = "?= =?" if name == "Subject" else "; "
        folded = checked_value(value).replace(mark, mark.replace(" ", "\r\n "))
        lines.append(f"{name}: {folded}\r\n")
    written = "".join(lines).encode("ascii")
    if max(map(len, written.split(b"\r\n"))) > _LINE:
        raise ValueError(f"a header line is longer than the {_LINE} characters that a mail takes")
    return written


def _encoded_words(text: str) -> str:
    """A text as a header takes it: as it is, or in encoded words (RFC 2047)."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and "=?" not in text and len(text) < _LINE - 20:
        return text
    words: list[bytes] = [b""]
    for character in text:
        data = character.encode("utf-8", "replace")
        if len(words[-1]) + len(data) > _WORD_BYTES:
            words.append(b"")
        words[-1] += data
    return " ".join(f"=?UTF-8?B?{b2a_base64(w, newline=False).decode()}?=" for w in words)


def _pieces(heads: Sequence[bytes], contents: Sequence[Content]) -> Iterator[bytes]:
    pending = b""
    for head, content in zip(heads, contents, strict=False):
        pending += head
        for block in _blocks(content):
            encoded = _encoded(block)
            yield pending + encoded if encoded else pending
            pending = b"\r\n"
        if pending == b"\r\n":
            # The line end before the delimiter belongs to that.
            pending = b""
    yield pending + heads[-1]


def _blocks(content: Content) -> Iterator[bytes]:
    """The content in blocks that each fill whole lines, but for the last."""
    rest = bytearray()
    left = content.size
    for chunk in content.chunks():
        left -= len(chunk)
        rest += chunk
        while len(rest) >= _BLOCK:
            yield bytes(rest[:_BLOCK])
            del rest[:_BLOCK]
    if left:
        raise ValueError(f"the content has {-left:+} bytes against its size {content.size}")
    if rest:
        yield bytes(rest)


def _encoded(block: bytes) -> bytes:
    text = b2a_base64(block, newline=False)
    return b"\r\n".join([text[at : at + 76] for at in range(0, len(text), 76)])


def _encoded_size(size: int) -> int:
    """How long content becomes: its characters, and a line end between two lines."""
    characters = (size + 2) // 3 * 4
    lines = (characters + 75) // 76
    return characters + 2 * max(lines - 1, 0)
