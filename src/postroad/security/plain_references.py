"""The references of a signature, read from the text that was signed.

The canonical form of a ds:SignedInfo is at hand where its signature is verified. What is written
plainly there is one match of a pattern; whatever else there is goes to the reader of elements,
whose values these equal.
"""

import binascii
import re
from functools import lru_cache
from typing import Final

from postroad.wire.ebms3 import Reference
from postroad.wire.ebms3_signals import plain_transform

_URI: Final = "([!#-%'-;=?-~]*)"
_ALGORITHM: Final = "([!#-%'-;=?-~]+)"


@lru_cache(maxsize=16)
def _pattern(prefix: str) -> re.Pattern[str]:
    form = (
        f'<~Reference URI="{_URI}">'
        f'<~Transforms><~Transform Algorithm="{_ALGORITHM}"></~Transform></~Transforms>'
        f'<~DigestMethod Algorithm="{_ALGORITHM}"></~DigestMethod>'
        "<~DigestValue>([A-Za-z0-9+/=]+)</~DigestValue></~Reference>"
    )
    name = re.escape(prefix)
    return re.compile(form.replace("<~", f"<{name}:").replace("</~", f"</{name}:"))


def plain_references(signed: bytes, prefix: str | None) -> tuple[Reference, ...] | None:
    """The references of a canonical ds:SignedInfo without comments, if all are written plainly."""
    if prefix is None or len(prefix) > 16 or not signed.isascii():
        return None
    text = signed.decode("ascii")
    at = text.find(f"<{prefix}:Reference ")
    found: list[Reference] = []
    try:
        for one in _pattern(prefix).finditer(text, max(at, 0)):
            if one.start() != at:
                return None
            at = one.end()
            uri, transform, method, value = one.groups()
            digest = binascii.a2b_base64(value, strict_mode=True)
            found.append(Reference(uri, (plain_transform(transform),), method, digest))
    except ValueError:
        return None
    return tuple(found) if text[at:] == f"</{prefix}:SignedInfo>" else None
