"""multipart/related, read in pieces of any size with constant memory; the door of all MIME.

The reader looks for delimiter lines only: a line feed, two hyphens, the boundary, blanks, a line
end. The line feed (with a CR before it) belongs to the delimiter, so each step of the reader keeps
the line feed that ended the line before: a part without content then needs no special case.

A boundary from the Content-Type is matched exactly. Where there is no Content-Type the bytes are a
dump, its first delimiter tells the boundary, and the delimiters may be indented: people publish
samples like that. What makes no sense raises; what can be read although it is wrong is a problem
of the result.

A small message that is fed in one piece and is as usual is cut without steps, by `mime_whole`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from postroad.wire.content import BytesContent, BytesSink, NewSink, read_all
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, KIB, Limits
from postroad.wire.mime_headers import (
    ONLY_ONCE,
    ContentType,
    Headers,
    canonical_content_id,
    cid_url,
    content_id_of,
    is_boundary,
    parse_content_type,
    parse_headers,
)
from postroad.wire.mime_parts import OpenPart, Part, mime_error, root_too_large
from postroad.wire.mime_whole import MEMORY_PARTS, is_small, whole_parts
from postroad.wire.mime_writer import (
    OutgoingPart,
    boundary_is_free,
    multipart_bytes,
    multipart_content_type,
    multipart_heads,
    multipart_length,
    multipart_pieces,
    write_multipart,
)

__all__ = [
    "ROOT_TYPES",
    "ContentType",
    "Headers",
    "Multipart",
    "MultipartReader",
    "OutgoingPart",
    "Part",
    "boundary_is_free",
    "cid_url",
    "content_id_of",
    "multipart_bytes",
    "multipart_content_type",
    "multipart_heads",
    "multipart_length",
    "multipart_pieces",
    "parse_content_type",
    "write_multipart",
]

ROOT_TYPES: Final = frozenset(("text/xml", "application/soap+xml", "application/xop+xml"))

_AROUND_BYTES: Final = 64 * KIB
_BLANKS: Final = 256
_INDENT: Final = 16
_LOOK_ALIKES: Final = 10_000
_LARGE: Final = 16 * KIB
"""A piece of content from this size on is worth a look of its own."""
_FIRST_DELIMITER: Final = re.compile(
    rb"\n(?:\xef\xbb\xbf)?[ \t]{0,16}--([!-~](?:[ -~]{0,68}[!-~])?)[ \t]{0,256}\r?\n"
)
_AFTER: Final = re.compile(rb"(--)?[ \t]{0,256}\r?\n")
_AFTER_AT_END: Final = re.compile(rb"(--)?[ \t]{0,256}\r?\Z")
_UNDECIDED: Final = re.compile(rb"(?:-|(?:--)?[ \t]{0,256}\r?)\Z")
_TOO_BLANK: Final = re.compile(rb"(?:--)?[ \t]{257}")


class Multipart(Struct, frozen=True):
    """A message package: its parts, the one that holds the SOAP envelope, and what is wrong."""

    content_type: ContentType
    parts: tuple[Part, ...]
    root: Part
    problems: tuple[EbmsError, ...] = ()

    def part(self, content_id: str) -> Part | None:
        """The first part with this Content-ID."""
        wanted = canonical_content_id(content_id)
        for part in self.parts:
            if part.content_id == wanted:
                return part
        return None

    def attachments(self) -> tuple[Part, ...]:
        """All parts but the root."""
        return tuple([part for part in self.parts if part is not self.root])


_Step = Callable[["MultipartReader", bytes, int, bool], int]
"""Unbound: a reader that held its own method would be garbage that only a search finds."""


class MultipartReader:
    """Cuts a multipart body into parts as its bytes come: `feed` them, then `close`.

    Parts above `limits.memory_bytes` (and all further parts once sixteen times that is held in
    memory) go to a sink from `new_sink`. The root part always stays in memory.
    """

    def __init__(
        self,
        content_type: ContentType | None,
        *,
        limits: Limits = DEFAULT,
        new_sink: NewSink = BytesSink,
    ) -> None:
        self._limits = limits
        self._new_sink = new_sink
        self._content_type = content_type
        self._problems: list[EbmsError] = []
        self._parts: list[Part] = []
        self._root: int | None = None
        self._open: OpenPart | None = None
        self._memory_left = MEMORY_PARTS * limits.memory_bytes
        self._fed = 0
        self._passed_over = 0
        self._look_alikes = 0
        self._indented = content_type is None
        self._rest = b"\n"
        self._base = -1
        """Where in the body the rest begins; before it stands the line feed that was added."""
        self._step: _Step = MultipartReader._preamble
        self._hungry = False
        self._ended = False
        self._saw_indent = False
        self._whole = b""
        self._line = b""
        start = content_type.get("start") if content_type else None
        self._start = canonical_content_id(start) if start else None
        boundary = content_type.get("boundary") if content_type else None
        if content_type is not None:
            self._check_outer(content_type, boundary)
        if boundary is None:
            self._step = MultipartReader._unknown_preamble
        else:
            self._set_boundary(boundary)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        self._fed += len(data)
        try:
            if self._fed > self._limits.message_bytes:
                raise mime_error(f"the message is larger than {self._limits.message_bytes} bytes")
            if self._fed == len(data) and self._takes_whole(data):
                return
            if self._whole:
                data = self._in_steps() + data
            if not self._is_content(data):
                self._rest = self._advance(self._rest + data, False)
        except BaseException:
            self.abort()
            raise

    @property
    def root(self) -> Part | None:
        """The root part, as soon as all of it came."""
        if self._root is None or self._root >= len(self._parts):
            return None
        return self._parts[self._root]

    def close(self) -> Multipart:
        """All bytes were fed: the parts and what is wrong with them."""
        try:
            if not self._whole:
                self._advance(self._rest, True)
                if self._open is not None:
                    self._end_part()
            return self._result()
        finally:
            # What it holds on to, a file too, is not to outlive its use.
            self.abort()

    def abort(self) -> None:
        """Give up: nothing of a half-read message stays behind, and `close` will raise."""
        if self._open is not None:
            self._open.discard()
            self._open = None
        self._parts.clear()
        self._step = MultipartReader._nothing
        self._rest = self._whole = self._line = b""

    def _takes_whole(self, data: bytes) -> bool:
        """Take the first bytes for the whole of a small message, if they can be that."""
        if self._indented or not self._line or not is_small(len(data), self._limits):
            return False
        parts = whole_parts(data, self._line, self._limits)
        if parts is None:
            return False
        root = 0 if self._start is None else None
        for part in parts:
            if root is None and part.content_id == self._start:
                root = part.index
        most = self._limits.memory_bytes
        if len(data) > most and any(one.size > most for one in parts if one.index != root):
            return False
        self._parts, self._root = parts, root
        self._ended = True
        self._whole = data
        return True

    def _in_steps(self) -> bytes:
        """More came after what seemed to be the whole: begin again, in steps."""
        data, self._whole = self._whole, b""
        self._parts.clear()
        self._root = None
        self._ended = False
        return data

    def _is_content(self, data: bytes) -> bool:
        """Take a large piece in the midst of a part's content as it is, without a copy of it."""
        if len(data) < _LARGE or self._step is not MultipartReader._content or self._indented:
            return False
        needle, carry, part = self._needle, self._carry, self._open
        if needle in self._rest + data[:carry] or data.find(needle) >= 0:
            return False
        assert part is not None
        end = len(data) - carry
        part.write(self._rest)
        part.write(memoryview(data)[:end])
        self._base += len(self._rest) + end
        self._rest = bytes(data[end:])
        return True

    def _check_outer(self, content_type: ContentType, boundary: str | None) -> None:
        if not content_type.media_type.startswith("multipart/"):
            raise mime_error(f"{content_type.media_type} is not a multipart media type")
        if content_type.media_type != "multipart/related":
            self._problems.append(
                mime_error(f"the package is {content_type.media_type} instead of multipart/related")
            )
        if boundary is None:
            self._problems.append(mime_error("the Content-Type has no boundary parameter"))

    def _set_boundary(self, boundary: str) -> None:
        if not is_boundary(boundary):
            raise mime_error(
                f"the boundary {boundary[:80]!r} is not 1 to 70 printable characters "
                "without a blank at either end"
            )
        line = b"--" + boundary.encode()
        self._line = line
        self._needle = line if self._indented else b"\n" + line
        self._carry = len(self._needle) + (_INDENT + 2 if self._indented else 0)

    def _advance(self, buffer: bytes, final: bool) -> bytes:
        at = 0
        self._hungry = False
        while not self._hungry:
            at = self._step(self, buffer, at, final)
        self._base += at
        return buffer[at:]

    def _nothing(self, buffer: bytes, _at: int, _final: bool) -> int:
        self._hungry = True
        return len(buffer)

    def _unknown_preamble(self, buffer: bytes, at: int, _final: bool) -> int:
        found = _FIRST_DELIMITER.search(buffer, at)
        if found is None:
            self._hungry = True
            self._passed_over = 0
            self._pass_over(len(buffer) - at, "before the first delimiter")
            return at
        self._set_boundary(found[1].decode())
        return self._next(found.end(), False)

    def _preamble(self, buffer: bytes, at: int, final: bool) -> int:
        line_feed, after, last = self._find(buffer, at, final)
        self._pass_over(line_feed - at, "before the first delimiter")
        if not after:
            self._hungry = True
            return line_feed
        return self._next(after, last)

    def _epilogue(self, buffer: bytes, at: int, _final: bool) -> int:
        self._hungry = True
        self._pass_over(len(buffer) - at, "after the last delimiter")
        return len(buffer)

    def _pass_over(self, count: int, where: str) -> None:
        self._passed_over += count
        if self._passed_over > _AROUND_BYTES:
            raise mime_error(f"there are more than {_AROUND_BYTES} bytes {where}")

    def _headers(self, buffer: bytes, at: int, _final: bool) -> int:
        """`at` is the line feed of the delimiter line, so that an empty block ends at once."""
        most = self._limits.part_header_bytes
        index = len(self._parts)
        horizon = at + most + 4
        crlf = buffer.find(b"\n\r\n", at, horizon)
        lf = buffer.find(b"\n\n", at, horizon if crlf < 0 else crlf + 1)
        end = lf if lf >= 0 else crlf
        if end < 0:
            if len(buffer) >= horizon:
                raise mime_error(
                    f"the headers are longer than {most} bytes", f"MIME part {index + 1}"
                )
            self._hungry = True
            return at
        if index == self._limits.parts:
            raise mime_error(f"there are more than {self._limits.parts} parts")
        self._begin_part(index, buffer[at + 1 : end + 1])
        self._step = MultipartReader._content_start
        return end + (1 if end == lf else 2)

    def _begin_part(self, index: int, block: bytes) -> None:
        where = f"MIME part {index + 1}"
        if block.startswith(self._line) or b"\n" + self._line in block:
            raise mime_error("the part ends before the blank line after its headers", where)
        headers = parse_headers(
            block,
            where=where,
            most=self._limits.part_headers,
            most_bytes=self._limits.part_header_bytes,
        )
        # Reversed, so that the first of two equal names stays.
        fields = {name.lower(): value for name, value in reversed(headers.pairs)}
        given = fields.get("content-id")
        content_id = (canonical_content_id(given) or None) if given else None
        is_root = self._root is None and (
            index == 0 if self._start is None else content_id == self._start
        )
        if is_root:
            self._root = index
        memory = min(self._limits.memory_bytes, self._memory_left)
        self._open = OpenPart(
            index,
            headers,
            fields,
            content_id,
            limits=self._limits,
            new_sink=self._new_sink,
            memory=memory,
            is_root=is_root,
        )
        if len(fields) < len(headers):
            self._problems += _repeated(headers, self._open.location)

    def _content_start(self, buffer: bytes, at: int, final: bool) -> int:
        """`at` is the line feed of the blank line: it can be that of a delimiter at once."""
        if self._open is not None:
            self._open.begin = self._base + at + 1
        return self._take(buffer, at, at + 1, final)

    def _content(self, buffer: bytes, at: int, final: bool) -> int:
        return self._take(buffer, at, at, final)

    def _take(self, buffer: bytes, at: int, begin: int, final: bool) -> int:
        part = self._open
        assert part is not None
        line_feed, after, last = self._find(buffer, at, final)
        end = line_feed
        if after and end > begin and buffer[end - 1] == 0x0D:
            end -= 1
        if end > begin:
            part.write(memoryview(buffer)[begin:end])
            self._step = MultipartReader._content
        if not after:
            self._hungry = True
            return end if end > begin else at
        self._end_part()
        return self._next(after, last)

    def _next(self, after: int, last: bool) -> int:
        self._passed_over = 0
        self._ended = last
        self._step = MultipartReader._epilogue if last else MultipartReader._headers
        return after - 1

    def _find(self, buffer: bytes, at: int, final: bool) -> tuple[int, int, bool]:
        """The next delimiter: its line feed, what comes after its line, whether it is the last.

        Without one, the place up to which there is none for certain, 0 and False.
        """
        needle = self._needle
        found = buffer.find(needle, at)
        while found >= 0:
            line_feed = self._line_feed_before(buffer, at, found) if self._indented else found
            if line_feed >= 0:
                end = found + len(needle)
                match = _AFTER.match(buffer, end)
                if match is None and final:
                    match = _AFTER_AT_END.match(buffer, end)
                if match is not None:
                    self._saw_indent |= self._indented and line_feed + 1 < found
                    return line_feed, match.end(), match[1] is not None
                if not final and _UNDECIDED.match(buffer, end):
                    return max(at, line_feed - 1), 0, False
                if _TOO_BLANK.match(buffer, end):
                    raise mime_error(f"more than {_BLANKS} blanks follow a delimiter")
                self._look_alikes += 1
                if self._look_alikes > _LOOK_ALIKES:
                    raise mime_error(
                        f"more than {_LOOK_ALIKES} lines of content begin with the boundary"
                    )
            found = buffer.find(needle, found + 1)
        return (len(buffer) if final else max(at, len(buffer) - self._carry)), 0, False

    def _line_feed_before(self, buffer: bytes, at: int, found: int) -> int:
        begin = found
        while begin > at and found - begin < _INDENT and buffer[begin - 1] in b" \t":
            begin -= 1
        return begin - 1 if begin > at and buffer[begin - 1] == 0x0A else -1

    def _end_part(self) -> None:
        assert self._open is not None
        self._parts.append(self._open.finish())
        if self._root != self._open.index:
            self._memory_left -= self._open.in_memory
        self._open = None

    def _result(self) -> Multipart:
        if not self._parts:
            raise mime_error("there is no part: no delimiter line with headers after it was found")
        if not self._ended:
            self._problems.append(mime_error("the message ends before its last delimiter"))
        if self._saw_indent:
            self._problems.append(
                mime_error("the delimiter lines are indented", severity=Severity.WARNING)
            )
        root = self._find_root()
        self._problems += _duplicates(self._parts)
        self._problems += _root_problems(root, self._content_type)
        content_type = self._content_type or ContentType("multipart/related")
        if content_type.get("boundary") is None:
            boundary = ("boundary", self._line[2:].decode())
            content_type = replace(content_type, params=(*content_type.params, boundary))
        return Multipart(content_type, tuple(self._parts), root, tuple(self._problems))

    def _find_root(self) -> Part:
        if self._root is not None:
            return self._parts[self._root]
        self._problems.append(
            mime_error(f"no part has the Content-ID {self._start!r} that the start parameter names")
        )
        first = self._parts[0]
        try:
            envelope = read_all(first.content, self._limits.envelope_bytes)
        except ValueError:
            raise root_too_large(self._limits.envelope_bytes, first.location) from None
        self._parts[0] = replace(first, content=BytesContent(envelope))
        return self._parts[0]


def _repeated(headers: Headers, location: str) -> Iterator[EbmsError]:
    for name in ONLY_ONCE:
        if len(set(headers.get_all(name))) > 1:
            yield mime_error(f"the part has more than one {name} header", location)


def _duplicates(parts: Iterable[Part]) -> Iterator[EbmsError]:
    seen: set[str] = set()
    told: set[str] = set()
    for part in parts:
        if part.content_id is None:
            continue
        if part.content_id in seen and part.content_id not in told:
            told.add(part.content_id)
            yield mime_error(
                f"more than one part has the Content-ID {part.content_id!r}", part.location
            )
        seen.add(part.content_id)


def _root_problems(root: Part, outer: ContentType | None) -> Iterator[EbmsError]:
    actual = root.content_type.media_type
    if actual not in ROOT_TYPES:
        yield mime_error(
            f"the root part is {actual}, which cannot be a SOAP message", root.location
        )
    if outer is None:
        return
    stated = outer.get("type")
    if stated is None:
        yield mime_error("the Content-Type has no type parameter to tell what the root part is")
    elif stated.partition(";")[0].strip().lower() != actual:
        yield mime_error(f"the type parameter is {stated!r}, but the root part is {actual}")
