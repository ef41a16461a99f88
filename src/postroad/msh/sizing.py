"""How large a bundle becomes, before it is made (Part 2, 3.3: maxsize).

A message is what a unit adds, for each unit, and the rest, which hardly depends on them. What a
unit adds is never underrated, so a bundle within maxsize by this reckoning is within it.
"""

from typing import Final

from postroad.agreement.pmode import Leg
from postroad.msh.outbound import PackedPart, PackedUnit, WirePart, wire_form
from postroad.msh.securing import signs
from postroad.security.algorithms import DIGESTS, SHA256
from postroad.security.attachments import CONTENT_TRANSFORM
from postroad.security.sign import write_reference
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Reference, Transform
from postroad.wire.ebms3_writer import write_user_message
from postroad.wire.mime_headers import cid_url
from postroad.wire.soap import SoapVersion

_BOUNDARY: Final = "=_" + 30 * "0"
_SEALED: Final = 1400
"""More than encryption says of an attachment beside its name and type, and adds to its content."""
_OCTETS: Final = "application/octet-stream"
_NOTHING: Final = BytesContent(b"")
_FRAME: Final = wire_form(SoapVersion.SOAP_12, b"", (), _BOUNDARY).length


def added_size(unit: PackedUnit, primary: Leg) -> int:
    """What a unit adds at most to a message that is secured by the primary's P-Mode."""
    return len(write_user_message(unit.user_message).encode()) + sum(
        [_part_size(part, primary) for part in unit.parts]
    )


def rest_size(whole: int, unit: PackedUnit, leg: Leg) -> int:
    """The rest of a message, from the size of one that holds this unit alone."""
    return max(whole - added_size(unit, leg), 0)


def _part_size(part: PackedPart, leg: Leg) -> int:
    name = part.payload.content_id
    size = part.content.size + _head_size(part)
    if signs(leg):
        size += len(write_reference(_reference(name, leg)))
    if _encrypts(leg):
        size += _SEALED + len(cid_url(name)) + len(part.wire_type) + len(_OCTETS)
    return size


def _head_size(part: PackedPart) -> int:
    """What MIME needs for a part beside its content."""
    name, kind = part.payload.content_id, part.wire_type
    outgoing = WirePart(name, kind, _NOTHING, part.payload.file_name)
    return wire_form(SoapVersion.SOAP_12, b"", (outgoing,), _BOUNDARY).length - _FRAME


def _reference(name: str, leg: Leg) -> Reference:
    agreed = leg.security.x509.signature if leg.security and leg.security.x509 else None
    digest = DIGESTS[(agreed.hash_function if agreed else None) or SHA256]
    value = bytes(digest.new().digest_size)
    return Reference(cid_url(name), (Transform(CONTENT_TRANSFORM),), digest.uri, value)


def _encrypts(leg: Leg) -> bool:
    agreed = leg.security.x509.encryption if leg.security and leg.security.x509 else None
    return bool(agreed and agreed.encrypt and agreed.encrypt.enabled)
