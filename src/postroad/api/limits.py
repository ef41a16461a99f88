"""What a request may cost before it is refused."""

from dataclasses import dataclass
from typing import Final

from postroad.wire.limits import GIB, KIB, MIB

PAGE: Final = 1000
"""Messages of one page of a list, at most."""
TOTAL: Final = 10_000
"""Messages that are counted for the total of a list, at most."""
WAIT: Final = 60.0
"""Seconds for which a status or an answer can be waited for in one request, at most."""
ASK: Final = 10.0
"""Seconds for which a partner's answer is waited for, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Bounds of one submission; beyond one of them there is a clear error."""

    upload_bytes: int = 16 * GIB
    """The whole request body."""
    parts: int = 1000
    """Payloads of one message."""
    metadata_bytes: int = 1 * MIB
    part_headers: int = 16
    part_header_bytes: int = 8 * KIB
    """One header line of a part."""
    idle_seconds: float = 60.0
    """An upload from which nothing came for so long is given up."""
