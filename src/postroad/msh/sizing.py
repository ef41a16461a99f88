"""How large a bundle becomes, before it is made (Part 2, 3.3: maxsize).

A message is what a unit adds, for each unit, and the rest, which hardly depends on them. What a
unit adds is never underrated, so a bundle within maxsize by this reckoning is within it.
"""

from functools import lru_cache
from typing import Final

from postroad.agreement.pmode import Leg
from postroad.msh.outbound import PackedPart, PackedUnit, WirePart, wire_form
from postroad.msh.securing import signs
from postroad.security.algorithms import DIGESTS, SHA256
from postroad.security.attachments import CONTENT_TRANSFORM
from postroad.security.sign import write_reference
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Reference, Transform
from postroad.wire.mime_headers import cid_url
from postroad.wire.soap import SoapVersion
from postroad.wire.xml import escape_attribute

_BOUNDARY: Final = "=_" + 30 * "0"
_SEALED: Final = 1400
"""More than encryption says of an attachment beside its name and type, and adds to its content."""
_OCTETS: Final = "application/octet-stream"
_NAME: Final = "x"
_NOTHING: Final = BytesContent(b"")
_FRAME: Final = wire_form(SoapVersion.SOAP_12, b"", (), _BOUNDARY).length


def added_size(unit: PackedUnit, primary: Leg) -> int:
    """What a unit adds at most to a message that is secured by the primary's P-Mode."""
    return len(unit.header.encode()) + sum([_part_size(part, primary) for part in unit.parts])


def rest_size(whole: int, unit: PackedUnit, leg: Leg) -> int:
    """The rest of a message, from the size of one that holds this unit alone."""
    return max(whole - added_size(unit, leg), 0)


def _part_size(part: PackedPart, leg: Leg) -> int:
    name = part.payload.content_id
    size = (
        part.content.size + len(name.encode()) + _head_size(part.wire_type, part.payload.file_name)
    )
    if signs(leg):
        size += _reference_size(_hash_function(leg)) + len(escape_attribute(cid_url(name)))
    if _encrypts(leg):
        size += _SEALED + len(cid_url(name)) + len(part.wire_type) + len(_OCTETS)
    return size


@lru_cache(maxsize=256)
def _head_size(kind: str, file_name: str | None) -> int:
    """What MIME needs for a part beside its content and its name."""
    outgoing = WirePart(_NAME, kind, _NOTHING, file_name)
    form = wire_form(SoapVersion.SOAP_12, b"", (outgoing,), _BOUNDARY)
    return form.length - _FRAME - len(_NAME)


def _hash_function(leg: Leg) -> str:
    agreed = leg.security.x509.signature if leg.security and leg.security.x509 else None
    return (agreed.hash_function if agreed else None) or SHA256


@lru_cache(maxsize=16)
def _reference_size(hash_function: str) -> int:
    """What a signature says of a part beside its name."""
    digest = DIGESTS[hash_function]
    value = bytes(digest.new().digest_size)
    transforms = (Transform(CONTENT_TRANSFORM),)
    return len(write_reference(Reference("", transforms, digest.uri, value)))


def _encrypts(leg: Leg) -> bool:
    agreed = leg.security.x509.encryption if leg.security and leg.security.x509 else None
    return bool(agreed and agreed.encrypt and agreed.encrypt.enabled)
