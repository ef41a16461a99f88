"""Sign a message again, from the envelope that was kept, when keys or security terms changed.

Header blocks, payloads and wsu:Timestamp stay the same byte for byte. With the same digest
algorithm all digests stay the same too, so a receipt for an earlier copy still fits.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from xml.sax.saxutils import unescape

from msgspec import Struct

from postroad.agreement.coverage import encrypted_coverage, signed_coverage
from postroad.agreement.pmode import Leg
from postroad.msh.expectation import Material
from postroad.msh.outbound import secured_at
from postroad.msh.securing import USERNAME_ID, encryption, signing, signs, username_tokens
from postroad.security.algorithms import DIGESTS, SIGNATURES
from postroad.security.attachments import Attachment
from postroad.security.coverage import BINARY_SECURITY_TOKEN, USERNAME_TOKEN, Coverage
from postroad.security.ebxml_signature import sign_ebxml, write_key_info
from postroad.security.encrypt import KEY_ID, Seal
from postroad.security.keyestablishment import Entropy
from postroad.security.keys import KeyPair
from postroad.security.secure import BODY_ID, Lifetime, secure
from postroad.security.sign import TOKEN_ID, Block
from postroad.security.timestamps import read_security_timestamp
from postroad.security.tokens import write_signer_reference, write_token_reference
from postroad.security.verify import references_of, security_headers
from postroad.wire import xml
from postroad.wire.ebms3 import Reference
from postroad.wire.ebxml import Dialect
from postroad.wire.ebxml_hops import insert_signature
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import content_id_of
from postroad.wire.names import WSSE, WSU, XENC
from postroad.wire.soap import SoapVersion, read_envelope

_SECURITY: Final = f"{{{WSSE}}}Security"
_ID: Final = f"{{{WSU}}}Id"
_PART_INFO: Final = re.compile(rb'<eb:PartInfo href="([^"]*)"')
_REFERENCE: Final = re.compile(rb'<ds:Reference URI="([^"]*)"')
_CIPHER_REFERENCE: Final = re.compile(rb'<xenc:CipherReference URI="([^"]*)"')
_EBXML_SIGNATURE: Final = re.compile(rb"<ds:Signature [^>]*>.*?</ds:Signature>", re.DOTALL)


class Resigned(Struct, frozen=True):
    envelope: bytes
    seal: Seal | None
    same_digests: bool
    """A receipt for an earlier copy fits this one too."""


def expired(leg: Leg, key: KeyPair | None, now: datetime) -> str | None:
    """Why nothing of a leg can be signed now: the certificate of the key is past its time."""
    if not signs(leg) or key is None or now <= key.certificate.not_valid_after_utc:
        return None
    subject = key.certificate.subject.rfc4514_string() or "without a name"
    end = f"{key.certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"it is not sent: our certificate {subject} expired at {end}. "
        "Put a new one in its place, and it is signed again and sent"
    )


def is_current(
    envelope: bytes,
    leg: Leg,
    material: Material,
    *,
    dialect: Dialect | None = None,
    attached: bool = True,
) -> bool:
    """Whether an envelope is signed and encrypted as keys and P-Mode say now.

    `attached`: it has payloads, without which nothing is encrypted. What we write is the same each
    time but for random values, so it is enough to search for the text.
    """
    return (
        all(one.encode() in envelope for one in _expected(leg, material, dialect, attached))
        and not any(one in envelope for one in _unexpected(leg, material, dialect))
        and (dialect is not None or _covers_as_agreed(envelope, leg, material))
    )


def _covers_as_agreed(envelope: bytes, leg: Leg, material: Material) -> bool:
    """Whether an envelope has signed and encrypted what the P-Mode lists now, and nothing else."""
    parts = _cids(_PART_INFO, envelope)
    signed, encrypted = signed_coverage(leg), encrypted_coverage(leg)
    if signs(leg):
        found = _cids(_REFERENCE, envelope)
        elements = (
            (BODY_ID, any(signed.covers_body(one.body_tag) for one in SoapVersion)),
            (USERNAME_ID, signed.names(USERNAME_TOKEN)),
            (TOKEN_ID, signed.names(BINARY_SECURITY_TOKEN)),
        )
        if not _as_listed(signed, parts, found) or any(
            (f"#{id}".encode() in found) is not wanted for id, wanted in elements
        ):
            return False
    if encryption(leg, material) is None:
        return True
    hidden = f' Type="{XENC}Element"'.encode() in envelope
    return hidden is encrypted.names(USERNAME_TOKEN) and _as_listed(
        encrypted, parts, _cids(_CIPHER_REFERENCE, envelope)
    )


def _cids(pattern: re.Pattern[bytes], envelope: bytes) -> set[bytes]:
    return set(pattern.findall(envelope))


def _as_listed(coverage: Coverage, parts: set[bytes], found: set[bytes]) -> bool:
    """Whether of these parts of a message those are found that are to be covered."""
    wanted = {
        uri
        for uri in parts
        if (name := content_id_of(unescape(uri.decode()))) is not None
        and coverage.covers_attachment(name)
    }
    return wanted == found & parts


def _expected(leg: Leg, material: Material, dialect: Dialect | None, attached: bool) -> list[str]:
    """What keys and P-Mode write into an envelope."""
    found: list[str] = []
    how = signing(leg, material.signing)
    if how is not None and dialect is not None:
        found.append(write_key_info(how.reference, how.key))
    elif how is not None:
        found += write_signer_reference(how.reference, how.key, TOKEN_ID)
    if how is not None:
        methods = SIGNATURES[how.algorithm].uri, DIGESTS[how.digest].uri
        found += [f' Algorithm="{one}"' for one in methods]
    whom = encryption(leg, material) if dialect is None and attached else None
    if whom is not None:
        name = f"{KEY_ID}-token"
        found += write_token_reference(whom.reference, whom.certificate, (), name)
        found.append(f' Algorithm="{whom.data}"')
    return found


def _unexpected(leg: Leg, material: Material, dialect: Dialect | None) -> list[bytes]:
    found = [] if signs(leg) else [b"<ds:SignedInfo"]
    if dialect is None and encryption(leg, material) is None:
        found.append(b"<xenc:EncryptedKey")
    return found


def sign_again(
    envelope: bytes,
    attachments: Sequence[Attachment],
    leg: Leg,
    material: Material,
    *,
    now: datetime,
    entropy: Entropy,
    dialect: Dialect | None = None,
    limits: Limits = DEFAULT,
) -> Resigned:
    """A message with the signature and encryption of now; ValueError when keys do not fit."""
    if dialect is not None:
        return _ebxml_again(envelope, attachments, leg, material, dialect, limits)
    read = read_envelope(xml.parse(envelope, limits))
    security = security_headers(read.header).get(None)
    blocks = [
        Block(str(one.element.get(_ID, "")), xml.canonical(one.element).decode())
        for one in read.blocks
        if one.element.tag != _SECURITY
    ]
    timestamp = read_security_timestamp(security)[0] if security is not None else None
    created = timestamp.created if timestamp is not None else None
    lifetime = secured_at(now) if created is None else Lifetime(created)
    secured = secure(
        read.version,
        blocks,
        attachments,
        signing=signing(leg, material.signing),
        encryption=encryption(leg, material),
        entropy=entropy,
        lifetime=lifetime if signs(leg) else None,
        tokens=username_tokens(leg, now, entropy),
        signed=signed_coverage(leg),
        encrypted=encrypted_coverage(leg),
        limits=limits,
    )
    before = references_of(security, limits)
    return Resigned(
        secured.envelope, secured.seal, _digests(before) == _digests(secured.references)
    )


def _ebxml_again(
    envelope: bytes,
    attachments: Sequence[Attachment],
    leg: Leg,
    material: Material,
    dialect: Dialect,
    limits: Limits,
) -> Resigned:
    before = references_of(read_envelope(xml.parse(envelope, limits)).header, limits)
    bare = _EBXML_SIGNATURE.sub(b"", envelope, count=1)
    how = signing(leg, material.signing)
    if how is None:
        return Resigned(bare, None, not before)
    signature, references = sign_ebxml(bare, dialect, attachments, how, limits=limits)
    made = insert_signature(bare, signature)
    return Resigned(made, None, _digests(before) == _digests(references))


def _digests(references: Sequence[Reference]) -> dict[str, tuple[str, bytes]]:
    return {one.uri: (one.digest_method, one.digest_value) for one in references}
