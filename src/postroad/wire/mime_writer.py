"""multipart/related written in pieces: the envelope, then each part as it is (binary).

Boundary and Content-IDs are given, so the same arguments always give the same bytes, and how many
there will be is known before the first is written.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from postroad.wire.content import CHUNK, BytesContent, Content, Joined, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.mime_headers import (
    ONLY_ONCE,
    ContentType,
    checked_value,
    content_id_header,
    is_boundary,
    parse_content_type,
    write_headers,
    write_parameter,
)

XOP = "application/xop+xml"
"""The media type of the envelope in a package of MTOM; its `type` is that of the SOAP version."""


class OutgoingPart(Struct, frozen=True):
    """A part to be written: the content goes out as it is (binary)."""

    content_id: str
    content_type: str
    content: Content
    headers: tuple[tuple[str, str], ...] = ()
    """Further header fields, such as Content-Disposition."""


def multipart_content_type(
    *,
    boundary: str,
    root_id: str,
    root_type: str = "application/soap+xml",
    start_info: str | None = None,
    action: str | None = None,
) -> str:
    """The Content-Type of the package."""
    params = [_start(root_id, root_type), write_parameter("boundary", _checked_boundary(boundary))]
    if start_info is not None:
        params.append(write_parameter("start-info", start_info))
    if action is not None:
        params.append(write_parameter("action", action))
    return "; ".join(params)


@lru_cache(maxsize=64)
def _start(root_id: str, root_type: str) -> str:
    """The Content-Type before its boundary."""
    params = ("type", _root_type(root_type)), ("start", content_id_header(root_id))
    return str(ContentType("multipart/related", params))


def write_multipart(
    envelope: bytes,
    parts: Sequence[OutgoingPart] = (),
    *,
    boundary: str,
    root_id: str,
    root_type: str = "application/soap+xml",
    start_info: str | None = None,
) -> Iterator[bytes]:
    """The package in pieces, the envelope (UTF-8) first. Small pieces are sent as one.

    In a package of MTOM the root type is `XOP`, and `start_info` that of the SOAP version.
    """
    heads = _heads(parts, boundary, root_id, root_type, start_info)
    return multipart_pieces(heads, envelope, parts)


def multipart_heads(
    parts: Sequence[OutgoingPart] = (),
    *,
    boundary: str,
    root_id: str,
    root_type: str = "application/soap+xml",
    start_info: str | None = None,
) -> tuple[bytes, ...]:
    """What stands before the envelope and each part of a package, and after the last."""
    return tuple(_heads(parts, boundary, root_id, root_type, start_info))


def multipart_pieces(
    heads: Sequence[bytes], envelope: bytes, parts: Sequence[OutgoingPart]
) -> Iterator[bytes]:
    """What `write_multipart` gives, where its `multipart_heads` are known."""
    return _pieces(heads, [BytesContent(envelope), *(part.content for part in parts)])


def multipart_bytes(
    heads: Sequence[bytes], envelope: bytes, parts: Sequence[OutgoingPart]
) -> bytes:
    """The same in one piece, for a package that is small."""
    pieces = [heads[0], envelope]
    for head, part in zip(heads[1:], parts, strict=False):
        data, size = read_all(part.content, part.content.size), part.content.size
        if len(data) != size:
            raise ValueError(f"the content has {len(data)} bytes against its size {size}")
        pieces += (head, data)
    return b"".join((*pieces, heads[-1]))


def multipart_length(
    envelope: bytes,
    parts: Sequence[OutgoingPart] = (),
    *,
    boundary: str,
    root_id: str,
    root_type: str = "application/soap+xml",
    start_info: str | None = None,
) -> int:
    """How many bytes `write_multipart` gives for the same arguments."""
    heads = sum(map(len, _heads(parts, boundary, root_id, root_type, start_info)))
    return heads + len(envelope) + sum(part.content.size for part in parts)


def multipart_content(
    envelope: bytes,
    parts: Sequence[OutgoingPart] = (),
    *,
    boundary: str,
    root_id: str,
    root_type: str = "application/soap+xml",
    start_info: str | None = None,
) -> Content:
    """The package of `write_multipart` as content that can be read from its middle too."""
    heads = _heads(parts, boundary, root_id, root_type, start_info)
    contents = [BytesContent(envelope), *(part.content for part in parts)]
    pieces: list[Content] = []
    for head, content in zip(heads, contents, strict=False):
        pieces += (BytesContent(head), content)
    return Joined([*pieces, BytesContent(heads[-1])])


def boundary_is_free(boundary: str, data: bytes) -> bool:
    """Whether the data can stand in a package with this boundary."""
    line = b"--" + boundary.encode()
    return not data.startswith(line) and b"\n" + line not in data


def _pieces(heads: Sequence[bytes], contents: Sequence[Content]) -> Iterator[bytes]:
    pending: list[bytes] = []
    waiting = 0
    for head, content in zip(heads, contents, strict=False):
        pending.append(head)
        waiting += len(head)
        left = content.size
        for chunk in content.chunks():
            left -= len(chunk)
            if waiting + len(chunk) > CHUNK:
                yield b"".join(pending)
                pending.clear()
                waiting = 0
            if len(chunk) > CHUNK // 4:
                if pending:
                    yield b"".join(pending)
                    pending.clear()
                    waiting = 0
                yield chunk
            else:
                pending.append(chunk)
                waiting += len(chunk)
        if left:
            raise ValueError(f"the content has {-left:+} bytes against its size {content.size}")
    pending.append(heads[-1])
    yield b"".join(pending)


def _heads(
    parts: Sequence[OutgoingPart],
    boundary: str,
    root_id: str,
    root_type: str,
    start_info: str | None,
) -> list[bytes]:
    """What stands before each part, and after the last."""
    line = b"--" + _checked_boundary(boundary).encode()
    heads = [line + b"\r\n" + _root_head(root_id, root_type, start_info)]
    heads += [
        b"\r\n" + line + b"\r\n" + _head(part.content_id, part.content_type, part.headers)
        for part in parts
    ]
    heads.append(b"\r\n" + line + b"--\r\n")
    return heads


@lru_cache(maxsize=64)
def _root_head(root_id: str, root_type: str, start_info: str | None) -> bytes:
    """The header of the envelope."""
    kind = _root_type(root_type) + "; charset=UTF-8"
    if root_type == XOP:
        kind += f'; type="{start_info or "application/soap+xml"}"'
    return _head(root_id, kind, ())


def _head(content_id: str, content_type: str, more: tuple[tuple[str, str], ...]) -> bytes:
    before, after = _around_id(content_type, more)
    return b"%sContent-ID: %s\r\n%s" % (before, content_id_header(content_id).encode(), after)


@lru_cache(maxsize=64)
def _around_id(content_type: str, more: tuple[tuple[str, str], ...]) -> tuple[bytes, bytes]:
    """The header of a part before and after its Content-ID."""
    try:
        parse_content_type(content_type)
    except EbmsError as error:
        raise ValueError(error.detail) from None
    for name, _ in more:
        if name.lower() in ONLY_ONCE:
            raise ValueError(f"the header {name} is written already")
    first = f"Content-Type: {checked_value(content_type)}\r\nContent-Transfer-Encoding: binary\r\n"
    return first.encode(), write_headers(more) + b"\r\n"


def _root_type(value: str) -> str:
    if value not in ("text/xml", "application/soap+xml", XOP):
        raise ValueError(f"{value!r} is neither text/xml nor application/soap+xml nor {XOP}")
    return value


@lru_cache(maxsize=16)
def _checked_boundary(boundary: str) -> str:
    if not is_boundary(boundary):
        raise ValueError(f"{boundary!r} cannot be a boundary: 1 to 70 printable characters")
    return boundary
