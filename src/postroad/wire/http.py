"""Captured HTTP messages as bytes: where the head ends, and what the body was before transport.

A capture is what somebody kept: often without the first line, often with headers that are no
longer true because the body was stored without its chunks or already inflated. So a body is only
treated as its headers say when it looks that way.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from postroad.wire.content import CHUNK
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, KIB, Limits
from postroad.wire.mime_headers import (
    ContentType,
    Headers,
    as_text,
    parse_content_type,
    parse_headers,
)

_START_LINE: Final = re.compile(
    rb"(?:[A-Z]{1,20} \S{1,8192} HTTP/\d(?:\.\d)?|HTTP/\d(?:\.\d)? \d{3}(?: [^\r\n]{0,1024})?)\r?\n"
)
_HEADER_LINE: Final = re.compile(rb"(?!--)[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}[ \t]*:[^\n]*\n")
_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_LEADING: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]{0,64}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]{0,512})?\r?\n")
_CHUNK_LINE_BYTES: Final = KIB
_GATHERED_BYTES: Final = 64 * KIB
_GZIP_MEMBERS: Final = 1000
_SEVERAL: Final = 4
"""An HTTP head may have this many times the headers and bytes that a MIME part may."""


@dataclass(frozen=True, slots=True)
class HttpHead:
    """The head of a captured message; the body begins at `body_offset`."""

    start_line: str | None
    headers: Headers
    body_offset: int

    @property
    def status(self) -> int | None:
        """The status code, if it is the head of a response with its first line."""
        if self.start_line is None or not self.start_line.startswith("HTTP/"):
            return None
        return int(self.start_line.split(" ", 2)[1])

    @property
    def content_type(self) -> ContentType | None:
        value = self.headers.get("content-type")
        return parse_content_type(value) if value else None


def read_head(data: bytes, limits: Limits = DEFAULT) -> HttpHead | None:
    """Read the head of a capture; None when the data begins with the body itself."""
    leading = _LEADING.match(data)
    begin = leading.end() if leading else 0
    first = _START_LINE.match(data, begin)
    at = first.end() if first else begin
    if first is None and _HEADER_LINE.match(data, at) is None:
        return None
    most_bytes = _SEVERAL * limits.part_header_bytes
    # The line feed before the headers counts, for a head that has none.
    blank = _BLANK_LINE.search(data, at - 1 if first else at, at + most_bytes + 4)
    if blank is None:
        if len(data) - at > most_bytes:
            raise _wrong(f"the HTTP head is longer than {most_bytes} bytes")
        if first is None:
            return None
    headers = parse_headers(
        data[at : blank.start() + 1 if blank else len(data)],
        where="HTTP",
        most=_SEVERAL * limits.part_headers,
        most_bytes=most_bytes,
    )
    start_line = as_text(first[0]).rstrip("\r\n") if first else None
    return HttpHead(start_line, headers, blank.end() if blank else len(data))


def body_chunks(
    head: HttpHead, chunks: Iterable[bytes], limits: Limits = DEFAULT
) -> Iterator[bytes]:
    """The body as it was before transport: without chunks, inflated within the limits."""
    body: Iterator[bytes] = iter(chunks)
    for coding in reversed(_codings(head, "transfer-encoding")):
        if coding == "chunked":
            body = _gathered(_without_chunks(body))
        else:
            body = _decoded(coding, body, limits)
    for coding in reversed(_codings(head, "content-encoding")):
        body = _decoded(coding, body, limits)
    return body


def _wrong(detail: str) -> EbmsError:
    return EbmsError("EBMS:0007", detail, location="HTTP")


def _codings(head: HttpHead, name: str) -> list[str]:
    values = ",".join(head.headers.get_all(name)).lower().split(",")
    codings = [value.strip() for value in values if value.strip()]
    if len(codings) > 4:
        raise _wrong(f"{name} names {len(codings)} codings, at most 4 are allowed")
    return codings


def _decoded(coding: str, body: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    if coding == "identity":
        return body
    if coding in ("gzip", "x-gzip", "deflate"):
        return _inflated(body, limits)
    raise _wrong(f"the coding {coding[:40]!r} of the body is not supported")


def _opening(body: Iterator[bytes], count: int) -> bytes:
    opening = b""
    for piece in body:
        opening += piece
        if len(opening) >= count:
            break
    return opening


def _without_chunks(body: Iterator[bytes]) -> Iterator[bytes]:
    buffer = _opening(body, _CHUNK_LINE_BYTES)
    if _CHUNK_SIZE.match(buffer) is None:
        yield buffer
        yield from body
        return
    at = 0
    while True:
        line = _CHUNK_SIZE.match(buffer, at)
        while line is None:
            if len(buffer) - at > _CHUNK_LINE_BYTES or b"\n" in buffer[at:]:
                raise _wrong("a chunk of the body does not begin with its size")
            buffer, at = buffer[at:] + _next(body), 0
            line = _CHUNK_SIZE.match(buffer)
        at = line.end()
        left = int(line[1], 16)
        if left == 0:
            return
        while left:
            if at == len(buffer):
                buffer, at = _next(body), 0
            piece = buffer[at : at + left]
            yield piece
            at += len(piece)
            left -= len(piece)
        while len(buffer) - at < 2 and buffer[at:] != b"\n":
            buffer, at = buffer[at:] + _next(body), 0
        if buffer.startswith(b"\r\n", at):
            at += 2
        elif buffer.startswith(b"\n", at):
            at += 1
        else:
            raise _wrong("a chunk of the body is longer than its size tells")


def _gathered(body: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces: many tiny chunks cost no more than few."""
    held = bytearray()
    for piece in body:
        held += piece
        if len(held) >= _GATHERED_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _next(body: Iterator[bytes]) -> bytes:
    for piece in body:
        if piece:
            return piece
    raise _wrong("the chunked body ends before its last chunk")


def _inflated(body: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    opening = _opening(body, 2)
    if not _is_deflated(opening):
        yield opening
        yield from body
        return
    inflater = zlib.decompressobj(32 + zlib.MAX_WBITS)
    taken = given = 0
    members = 1
    for data in _bounded(chain((opening,), body)):
        taken += len(data)
        while data or not inflater.eof:
            if inflater.eof:
                members += 1
                if members > _GZIP_MEMBERS:
                    raise _wrong(f"the body is more than {_GZIP_MEMBERS} gzip members")
                inflater = zlib.decompressobj(32 + zlib.MAX_WBITS)
            try:
                out = inflater.decompress(data, CHUNK)
            except zlib.error as error:
                raise _wrong(f"the compressed body cannot be inflated: {error}") from None
            given += len(out)
            _refuse_bomb(taken, given, limits)
            if out:
                yield out
            if not inflater.eof and not inflater.unconsumed_tail and len(out) < CHUNK:
                break
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            if inflater.eof and not data.strip(b"\0\r\n"):
                break
    if not inflater.eof:
        raise _wrong("the compressed body ends too early")


def _is_deflated(opening: bytes) -> bool:
    if opening[:2] == b"\x1f\x8b":
        return True
    return len(opening) > 1 and opening[0] == 0x78 and int.from_bytes(opening[:2]) % 31 == 0


def _bounded(body: Iterable[bytes]) -> Iterator[bytes]:
    for piece in body:
        for at in range(0, len(piece), CHUNK):
            yield piece[at : at + CHUNK]


def _refuse_bomb(taken: int, given: int, limits: Limits) -> None:
    if given > limits.decompressed_bytes:
        raise _wrong(f"the inflated body is larger than {limits.decompressed_bytes} bytes")
    if given > limits.decompression_floor and given > limits.decompression_ratio * taken:
        raise _wrong(f"the body inflates to more than {limits.decompression_ratio} times its size")
