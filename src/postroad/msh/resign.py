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
from postroad.security.coverage import (
    AS4_COVERAGE,
    BINARY_SECURITY_TOKEN,
    USERNAME_TOKEN,
    Coverage,
)
from postroad.security.ebxml_signature import sign_ebxml, write_key_info
from postroad.security.encrypt import KEY_ID, Seal
from postroad.security.keyestablishment import Encryption, Entropy
from postroad.security.keys import KeyPair
from postroad.security.secure import BODY_ID, Lifetime, secure
from postroad.security.sign import TOKEN_ID, Block, Signing
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
    how = signing(leg, material.signing)
    whom = encryption(leg, material) if dialect is None else None
    hides = attached and _encrypts_something(encrypted_coverage(leg))
    encrypted = _encryption_marks(whom) if whom is not None and hides else []
    if not all(one.encode() in envelope for one in (*_signature_marks(how, dialect), *encrypted)):
        return False
    if not _fits_unsigned(envelope, how) or dialect is not None:
        return _fits_unsigned(envelope, how)
    if whom is None and b"<xenc:EncryptedKey" in envelope:
        return False
    return _covers_as_agreed(envelope, leg, material)


def _encrypts_something(coverage: Coverage) -> bool:
    """Whether anything of a message with payloads is encrypted."""
    return coverage.covers_all_attachments or bool(
        coverage.attachments or coverage.names(USERNAME_TOKEN)
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


def is_answer_current(envelope: bytes, how: Signing | None) -> bool:
    """Whether a receipt or an error is signed as keys and P-Mode say now.

    An error that was not signed stays so: its receiver was not to be told more.
    """
    if not is_signed(envelope) and b"<eb:Error " in envelope:
        return True
    return _fits_unsigned(envelope, how) and all(
        one.encode() in envelope for one in _signature_marks(how, None)
    )


def is_signed(envelope: bytes) -> bool:
    """Whether an envelope that we wrote has a signature."""
    return b"<ds:SignedInfo" in envelope


def _fits_unsigned(envelope: bytes, how: Signing | None) -> bool:
    return how is not None or not is_signed(envelope)


def _signature_marks(how: Signing | None, dialect: Dialect | None) -> list[str]:
    """What keys and P-Mode write into the signature of an envelope."""
    if how is None:
        return []
    methods = SIGNATURES[how.algorithm].uri, DIGESTS[how.digest].uri
    found = [f' Algorithm="{one}"' for one in methods]
    if dialect is not None:
        return [write_key_info(how.reference, how.key), *found]
    return [*write_signer_reference(how.reference, how.key, TOKEN_ID), *found]


def _encryption_marks(whom: Encryption) -> list[str]:
    name = f"{KEY_ID}-token"
    reference = write_token_reference(whom.reference, whom.certificate, (), name)
    return [*reference, f' Algorithm="{whom.data}"']


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
    return _secured_again(
        envelope,
        attachments,
        signing(leg, material.signing),
        encryption(leg, material),
        username_tokens(leg, now, entropy),
        signed=signed_coverage(leg),
        encrypted=encrypted_coverage(leg),
        now=now,
        entropy=entropy,
        limits=limits,
    )


def sign_answer_again(
    envelope: bytes,
    how: Signing | None,
    *,
    now: datetime,
    entropy: Entropy,
    limits: Limits = DEFAULT,
) -> bytes:
    """A receipt or an error with the signature of now."""
    return _secured_again(
        envelope, (), how, None, (), now=now, entropy=entropy, limits=limits
    ).envelope


def _secured_again(
    envelope: bytes,
    attachments: Sequence[Attachment],
    how: Signing | None,
    whom: Encryption | None,
    tokens: Sequence[Block],
    *,
    now: datetime,
    entropy: Entropy,
    limits: Limits,
    signed: Coverage = AS4_COVERAGE,
    encrypted: Coverage = AS4_COVERAGE,
) -> Resigned:
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
        signing=how,
        encryption=whom,
        entropy=entropy,
        lifetime=lifetime if how is not None else None,
        tokens=tokens,
        signed=signed,
        encrypted=encrypted,
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
