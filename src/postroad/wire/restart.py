"""The headers by which a broken upload goes on: ETag and Content-Range of a request (AS2 restart).

A client names its transfer by an ETag, and says with Content-Range which bytes it sends. The first
draft has no unit before the range; it is read too, and never written.
"""

import re
from typing import Final

from msgspec import Struct

_RANGE: Final = re.compile(r"(?:bytes[ \t]+)?(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.I)
_ETAG: Final = re.compile(r'"([!#-~]{1,255})"')


class ContentRange(Struct, frozen=True):
    """The bytes of a whole that a request brings."""

    start: int
    last: int
    total: int | None
    """None while nobody knows it."""

    def __str__(self) -> str:
        return f"bytes {self.start}-{self.last}/{'*' if self.total is None else self.total}"

    @property
    def size(self) -> int:
        return self.last - self.start + 1


def read_content_range(value: str) -> ContentRange | None:
    """The value of a Content-Range; None when it makes no sense."""
    found = _RANGE.fullmatch(value.strip())
    if found is None:
        return None
    start, last = int(found[1]), int(found[2])
    total = None if found[3] == "*" else int(found[3])
    if last < start or (total is not None and last >= total):
        return None
    return ContentRange(start, last, total)


def unsatisfied(stored: int) -> str:
    """The Content-Range that says how much is there, to who went on elsewhere."""
    return f"bytes */{stored}"


def read_transfer_id(etag: str) -> str | None:
    """The name of a transfer from its ETag; None when it is none, or a weak one."""
    found = _ETAG.fullmatch(etag.strip())
    return found[1] if found else None


def write_transfer_id(name: str) -> str:
    """The ETag that names a transfer; ValueError when it cannot."""
    etag = f'"{name}"'
    if not _ETAG.fullmatch(etag):
        raise ValueError(f"{name!r} cannot name a transfer")
    return etag
