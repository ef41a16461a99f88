"""Message ids: unique, unguessable, and growing with time, so that new ones are stored together."""

from collections.abc import Callable
from datetime import datetime


def new_message_id(now: datetime, entropy: Callable[[int], bytes], host: str) -> str:
    """A UUID of version 7 at a host: `018f2c3e-….@host` (RFC 9562, RFC 2822)."""
    milliseconds = int(now.timestamp() * 1000)
    value = bytearray(milliseconds.to_bytes(6) + entropy(10))
    value[6] = value[6] & 0x0F | 0x70
    value[8] = value[8] & 0x3F | 0x80
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}@{host}"


def host_name(node: str) -> str:
    """A node's name as the right side of its message ids."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in node)
    return plain.strip("-.").lower() or "postroad"
