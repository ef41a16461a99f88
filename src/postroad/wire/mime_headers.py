"""MIME header fields: blocks of header lines, Content-Type values, Content-IDs.

Reading is tolerant where no two readers could understand different things (LF alone at a line
end, folded or indented lines, blanks), and refuses what could be read in two ways.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes

from msgspec import Struct

from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT

ONLY_ONCE: Final = ("content-type", "content-id", "content-transfer-encoding")
"""Headers that say what a part is: a second one would let two readers see two different parts."""

_USUAL: Final = frozenset(
    (
        "Content-Type",
        "Content-ID",
        "Content-Id",
        "Content-Transfer-Encoding",
        "Content-Disposition",
        "Content-Description",
        "Content-Length",
    )
)
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_IS_TOKEN: Final = re.compile(_TOKEN)
_HEADER_LINE: Final = re.compile(rf"[ \t]*{_TOKEN}[ \t]*:")
_MEDIA_TYPE: Final = re.compile(rf"\s*({_TOKEN}/{_TOKEN})\s*(?=;|\s|$)")
_PARAMETER: Final = re.compile(
    rf'[;\s]*({_TOKEN})\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*)))?', re.DOTALL
)
_REST: Final = re.compile(r"[;\s]*")
_plain_name: Final = re.compile(r"[A-Za-z0-9@!$'()*+,;=:\-._~]+").fullmatch
"""A Content-ID that stands in a URL as it is, as nearly all do."""
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_SECTION: Final = re.compile(r"([^*]+)(?:\*(\d{1,3}))?(\*)?")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CONTROL_IN_BLOCK: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BOUNDARY: Final = re.compile(r"[!-~](?:[ -~]{0,68}[!-~])?")
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NO_CONTENT_ID: Final = re.compile(rf"[\s<>\x00-\x1f\x7f]|{_ENCODED.pattern}")


def is_token(value: str) -> bool:
    """Whether the value can stand in a header without quotes."""
    return _IS_TOKEN.fullmatch(value) is not None


def is_boundary(value: str) -> bool:
    """Whether it has 1 to 70 printable characters and does not begin or end with a blank."""
    return _BOUNDARY.fullmatch(value) is not None


def checked_value(value: str) -> str:
    """A header value that can be written; ValueError if it could end the header line."""
    if not value.isprintable() and _CONTROL.search(value):
        raise ValueError(f"a control character is not allowed in a header value: {value!r}")
    return value


class ContentType(Struct, frozen=True, gc=False):
    """A media type in lower case and its parameters, their names in lower case."""

    media_type: str
    params: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """The value of a parameter (its name in lower case)."""
        for key, value in self.params:
            if key == name:
                return value
        return None

    def __str__(self) -> str:
        return "; ".join([self.media_type, *(write_parameter(*param) for param in self.params)])


def write_parameter(name: str, value: str) -> str:
    """A parameter of a header, quoted or encoded where it has to be."""
    if not value.isascii():
        return f"{name}*=UTF-8''{quote(value, safe='')}"
    if is_token(value):
        return f"{name}={value}"
    escaped = checked_value(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


def parse_content_type(value: str) -> ContentType:
    """Read a Content-Type value; EBMS:0007 when it tells no media type or contradicts itself."""
    if len(value) > DEFAULT.part_header_bytes:
        raise _hopeless(value, f"it is longer than {DEFAULT.part_header_bytes} characters")
    return _parse_content_type(value)


@lru_cache(maxsize=256)
def _parse_content_type(value: str) -> ContentType:
    text = _without_comments(value) if "(" in value else value
    found = _MEDIA_TYPE.match(text)
    if found is None:
        raise _hopeless(value, "it does not begin with a media type such as text/xml")
    media_type, at = found[1].lower(), found.end()
    if at == len(text):
        return ContentType(media_type)
    params: dict[str, str] = {}
    for name, given in _parameters(text, at, value):
        if params.setdefault(name, given) != given:
            raise _hopeless(value, f"it gives the parameter {name} twice, with different values")
    return ContentType(media_type, tuple(params.items()))


def file_name(disposition: str) -> str | None:
    """The file name of a Content-Disposition, its extended form first (RFC 6266); or none."""
    text = _without_comments(disposition) if "(" in disposition else disposition
    kind, semicolon, _ = text.partition(";")
    if not semicolon:
        return None
    try:
        given = [one for name, one in _parameters(text, len(kind), text) if name == "filename"]
    except EbmsError:
        return None
    found = "".join(c for c in given[-1] if c.isprintable()) if given else ""
    return found or None


def _hopeless(value: str, why: str) -> EbmsError:
    shown = value if len(value) <= 120 else value[:120] + "…"
    detail = f"the Content-Type {shown!r} cannot be read: {why}"
    return EbmsError("EBMS:0007", detail, location="Content-Type")


def _parameters(text: str, at: int, value: str) -> Iterator[tuple[str, str]]:
    """The parameters in their order; those split over sections (RFC 2231) come last."""
    sections: dict[str, dict[int, tuple[str, bool]]] = {}
    while True:
        found = _PARAMETER.match(text, at)
        if found is None:
            break
        at = found.end()
        name, quoted, plain = found[1].lower(), found[2], found[3]
        given = quoted if plain is None else plain
        if quoted is not None and "\\" in quoted:
            given = _ESCAPE.sub(r"\1", quoted)
        if given is None:
            continue
        split = _SECTION.fullmatch(name) if "*" in name else None
        if split is None or (split[2] is None and split[3] is None):
            yield name, given
            continue
        known = sections.setdefault(split[1], {})
        section = int(split[2] or 0)
        if section in known:
            raise _hopeless(value, f"it gives the parameter {name} twice")
        known[section] = (given, split[3] is not None)
    if _REST.fullmatch(text, at) is None:
        raise _hopeless(value, f"nothing can be made of {text[at : at + 20]!r}")
    for name, known in sections.items():
        yield name, _joined(known, value)


def _joined(sections: dict[int, tuple[str, bool]], value: str) -> str:
    """One value out of its sections, percent-decoded where a section says so (RFC 2231)."""
    charset, text = "utf-8", ""
    for number in range(len(sections)):
        if number not in sections:
            raise _hopeless(value, "a section of a split parameter is missing")
        part, extended = sections[number]
        if extended:
            if number == 0 and part.count("'") >= 2:
                charset, _, part = part.split("'", 2)
            try:
                part = unquote(part, encoding=charset or "utf-8", errors="replace")
            except (LookupError, ValueError):
                raise _hopeless(value, f"its charset {charset[:40]!r} is not known") from None
        text += part
    return text


def _without_comments(value: str) -> str:
    kept: list[str] = []
    depth = 0
    quoted = escaped = False
    for c in value:
        if escaped:
            escaped = False
        elif c == "\\" and (quoted or depth):
            escaped = True
        elif c == '"' and not depth:
            quoted = not quoted
        elif c == "(" and not quoted:
            depth += 1
            continue
        elif c == ")" and depth:
            depth -= 1
            kept.append(" ")
            continue
        if not depth:
            kept.append(c)
    return "".join(kept)


class Headers(Struct, frozen=True, gc=False):
    """Header fields in their order, found by name in any case."""

    pairs: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """The first value of that name."""
        wanted = name.lower()
        for key, value in self.pairs:
            if key.lower() == wanted:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        wanted = name.lower()
        return [value for key, value in self.pairs if key.lower() == wanted]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def parse_headers(
    block: bytes,
    *,
    where: str = "MIME",
    most: int = DEFAULT.part_headers,
    most_bytes: int = DEFAULT.part_header_bytes,
) -> Headers:
    """Read header lines up to the blank line (not included); EBMS:0007 for what is no header.

    A block whose first line is indented is taken to be indented as a whole, as published samples
    are; a line in it continues the one above only when it doesn't begin with a name and a colon.
    """
    if len(block) > most_bytes:
        raise _bad_header(where, f"the headers are longer than {most_bytes} bytes")
    usual = usual_pairs(block.removesuffix(b"\r\n"), most, most_bytes)
    if usual is not None:
        return Headers(tuple(usual))
    text = as_text(block).replace("\r\n", "\n")
    if (control := _CONTROL_IN_BLOCK.search(text)) is not None:
        raise _bad_header(where, f"the control character {control[0]!r} stands in a header")
    pairs: list[tuple[str, str]] = []
    indented = text[:1] in (" ", "\t")
    for line in text.split("\n"):
        if not line:
            continue
        if (_HEADER_LINE.match(line) is None) if indented else (line[0] in " \t"):
            if not pairs:
                raise _bad_header(where, f"{_shown(line)} is not a header line")
            name, value = pairs[-1]
            pairs[-1] = (name, f"{value} {line.strip()}".strip())
            continue
        name, colon, value = line.partition(":")
        name = name.strip(" \t")
        if not colon or _IS_TOKEN.fullmatch(name) is None:
            raise _bad_header(where, f"{_shown(line)} is not a header line")
        if len(pairs) == most:
            raise _bad_header(where, f"there are more than {most} headers")
        pairs.append((name, value.strip(" \t")))
    return Headers(tuple(pairs))


def usual_pairs(block: bytes, most: int, most_bytes: int) -> list[tuple[str, str]] | None:
    """The headers of a block as nearly every sender writes it, without its last line end.

    That is: one line each, in ASCII, with a name that is often met. None for any other block,
    which is no judgement of it.
    """
    if len(block) > most_bytes or not block.isascii():
        return None
    pairs: list[tuple[str, str]] = []
    for line in block.decode("ascii").split("\r\n"):
        name, colon, value = line.partition(":")
        # What is printable has no control character, no tab and no line end.
        if name not in _USUAL or not colon or not value.isprintable():
            return None
        pairs.append((name, value.strip(" ")))
    return pairs if len(pairs) <= most else None


def _bad_header(where: str, detail: str) -> EbmsError:
    return EbmsError("EBMS:0007", detail, location=where)


def _shown(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:80] + "…")


def as_text(data: bytes) -> str:
    """Header bytes as text: UTF-8, or Latin-1 where they are not."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def write_headers(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header lines with CRLF; ValueError for a name or value that would break out of its line."""
    lines = []
    for name, value in pairs:
        if not is_token(name):
            raise ValueError(f"{name!r} is not the name of a header")
        lines.append(f"{name}: {checked_value(value)}\r\n")
    return "".join(lines).encode()


def canonical_content_id(value: str) -> str:
    """A Content-ID without <>, percent-decoded: ids are the same when these strings are equal."""
    value = value.strip()
    if value.startswith("<") and value.endswith(">"):
        value = value[1:-1].strip()
    if "%" not in value:
        return value
    # Some senders encode the id in the header too, so that its URL is encoded twice.
    for _ in range(3):
        if _ENCODED.search(value) is None:
            break
        value = as_text(unquote_to_bytes(value))
    return value


_plain_cid: Final = re.compile(r"cid:[!#-$'*-;=?-~]+").fullmatch
"""What stands as it is: no blank, no quote, no bracket, nothing encoded."""


def content_id_of(href: str) -> str | None:
    """The Content-ID that a `cid:` URL refers to; None for any other reference."""
    if _plain_cid(href):
        return href[4:]
    href = href.strip()
    if href[:4].lower() != "cid:":
        return None
    return canonical_content_id(href[4:]) or None


def cid_url(content_id: str) -> str:
    """The `cid:` URL of a Content-ID (RFC 2392)."""
    if _plain_name(content_id):
        return "cid:" + content_id
    return "cid:" + quote(content_id, safe="@!$&'()*+,;=:-._~")


def content_id_header(content_id: str) -> str:
    """The Content-ID as a header value; ValueError if it would not be read back as the same."""
    if not content_id or _NO_CONTENT_ID.search(content_id):
        raise ValueError(
            f"{content_id!r} cannot be a Content-ID: it must be there, without blanks, control "
            "characters, < and >, and not percent-encoded"
        )
    return f"<{content_id}>"
