"""What a message may cost before it is refused. Every reader takes these as an argument."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on size, count and depth; beyond one of them there is a clear error."""

    envelope_bytes: int = 4 * MIB
    xml_depth: int = 64
    xml_elements: int = 50_000
    xml_attributes: int = 128
    parts: int = 1000
    part_headers: int = 32
    part_header_bytes: int = 16 * KIB
    part_bytes: int = 16 * GIB
    message_bytes: int = 64 * GIB
    memory_bytes: int = 256 * KIB
    """A part above this size goes to a sink instead of memory."""
    units: int = 500
    """User messages and signals in one eb:Messaging."""
    references: int = 2000
    encrypted_keys: int = 16
    decompressed_bytes: int = 16 * GIB
    decompression_ratio: int = 200
    """Output beyond this many times the input, and beyond `decompression_floor`, is a bomb."""
    decompression_floor: int = 32 * MIB
    canonical_xml_bytes: int = 32 * MIB
    """An XML attachment above this cannot be canonicalised (it must be parsed whole)."""
    canonical_xml_elements: int = 500_000


DEFAULT: Final = Limits()
