"""A small package that lies in memory as a whole: cut by searching, without steps in between.

Nearly every message is one. This reader knows only what nearly every sender writes: delimiter
lines and header lines with CRLF and nothing else on them, the usual headers once each, content
that is not encoded. Where there is anything else, good or bad, it says nothing: the message is
then read in steps, which knows every case and tells what is wrong.
"""

import hashlib
from typing import Final

from postroad.wire.content import BytesContent
from postroad.wire.errors import EbmsError
from postroad.wire.limits import Limits
from postroad.wire.mime_headers import (
    Headers,
    canonical_content_id,
    parse_content_type,
    usual_pairs,
)
from postroad.wire.mime_parts import PLAIN, UNENCODED, Part

MEMORY_PARTS: Final = 16
"""So many parts of the size that stays in memory are held there at once."""


def is_small(size: int, limits: Limits) -> bool:
    """Whether a package of this size can be held in memory, and no part be beyond a limit."""
    return (
        size <= MEMORY_PARTS * limits.memory_bytes
        and size <= limits.part_bytes
        and size <= limits.envelope_bytes
        and size <= limits.message_bytes
    )


def whole_parts(data: bytes, line: bytes, limits: Limits) -> list[Part] | None:
    """The parts of a package that `is_small`; None if it is not as usual.

    `line` is the delimiter: two hyphens and the boundary.
    """
    if not data.startswith(line) or not data.endswith((line + b"--\r\n", line + b"--")):
        return None
    needle = b"\n" + line
    parts: list[Part] = []
    at = len(line)
    while data.startswith(b"\r\n", at):
        after = data.find(needle, at)
        if after < 0 or len(parts) == limits.parts:
            return None
        blank = data.find(b"\r\n\r\n", at, after)
        if blank <= at or data[after - 1] != 0x0D:
            return None
        begin = blank + 4
        part = _part(len(parts), data[at + 2 : blank], data[begin : after - 1], begin, limits)
        if part is None:
            return None
        parts.append(part)
        at = after + len(needle)
    return parts if data[at:] in (b"--\r\n", b"--") else None


def _part(index: int, block: bytes, content: bytes, begin: int, limits: Limits) -> Part | None:
    pairs = usual_pairs(block, limits.part_headers, limits.part_header_bytes)
    if pairs is None:
        return None
    fields = {name.lower(): value for name, value in pairs}
    encoding = (fields.get("content-transfer-encoding") or "binary").lower()
    if len(fields) < len(pairs) or encoding not in UNENCODED:
        return None
    stated = fields.get("content-type")
    try:
        content_type = parse_content_type(stated) if stated else PLAIN
    except EbmsError:
        return None
    given = fields.get("content-id")
    return Part(
        index,
        Headers(tuple(pairs)),
        content_type,
        (canonical_content_id(given) or None) if given else None,
        encoding,
        BytesContent(content),
        hashlib.sha256(content).digest(),
        begin,
    )
