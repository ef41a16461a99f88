"""What a certificate says, read once, and whether a key made its signature."""

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtensionOID, NameOID

from postroad.security.distinguished import (
    REMEMBERED,
    NameKey,
    certificate_names,
    name_key,
    readable_name,
)

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for certificates, lists and answers that it cannot read."""
SignatureParameters = padding.PSS | padding.PKCS1v15 | ec.ECDSA | None

_MIN_EC_BITS: Final = 224
_MOST_URLS: Final = 8
"""Addresses of lists and responders that are read of one certificate."""
_UNDERSTOOD: Final = frozenset(
    (
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.NAME_CONSTRAINTS,
        ExtensionOID.CERTIFICATE_POLICIES,
        ExtensionOID.POLICY_CONSTRAINTS,
        ExtensionOID.INHIBIT_ANY_POLICY,
    )
)
_USAGES: Final = (
    ("digital_signature", "digitalSignature"),
    ("content_commitment", "nonRepudiation"),
    ("key_encipherment", "keyEncipherment"),
    ("data_encipherment", "dataEncipherment"),
    ("key_agreement", "keyAgreement"),
    ("key_cert_sign", "keyCertSign"),
    ("crl_sign", "cRLSign"),
)


@dataclass(frozen=True, slots=True, eq=False)
class CertificateFacts:
    """What a certificate says; told apart by identity, which is quick to hash."""

    certificate: x509.Certificate
    serial: int
    subject: NameKey
    issuer: NameKey
    subject_text: str
    issuer_text: str
    public_key: bytes
    not_before: datetime
    not_after: datetime
    is_ca: bool | None
    path_length: int | None
    usage: frozenset[str] | None
    purposes: frozenset[str] | None
    """The OIDs of the extended key usage; None: there is none, so that every purpose is allowed."""
    constraints: x509.NameConstraints | None
    names: tuple[x509.GeneralName, ...]
    """The alternative names of the subject."""
    policies: frozenset[str]
    explicit_policy: bool
    inhibits_any_policy: bool
    crl_urls: tuple[str, ...]
    ocsp_urls: tuple[str, ...]
    not_understood: tuple[str, ...]
    weak_digest: str | None
    weakness: str | None
    key_bits: int | None

    @property
    def self_issued(self) -> bool:
        return self.subject == self.issuer


@lru_cache(maxsize=REMEMBERED)
def read_certificate(certificate: x509.Certificate) -> CertificateFacts:
    """Read a certificate; ValueError where it cannot be."""
    try:
        return _read(certificate)
    except UNREADABLE as error:
        raise ValueError(str(error)) from None


def _read(certificate: x509.Certificate) -> CertificateFacts:
    serial, issuer, subject, public_key = certificate_names(certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extensions = certificate.extensions
    basic = extension(extensions, x509.BasicConstraints)
    usage = extension(extensions, x509.KeyUsage)
    purposes = extension(extensions, x509.ExtendedKeyUsage)
    names = extension(extensions, x509.SubjectAlternativeName)
    policies = extension(extensions, x509.CertificatePolicies)
    policy_constraints = extension(extensions, x509.PolicyConstraints)
    bits, weakness = _key_strength(certificate)
    return CertificateFacts(
        certificate=certificate,
        serial=serial,
        subject=name_key(subject),
        issuer=name_key(issuer),
        subject_text=readable_name(subject),
        issuer_text=readable_name(issuer),
        public_key=public_key,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_ca=basic.ca if basic else None,
        path_length=basic.path_length if basic else None,
        usage=_usage(usage) if usage else None,
        purposes=frozenset(one.dotted_string for one in purposes) if purposes else None,
        constraints=extension(extensions, x509.NameConstraints),
        names=tuple(names or ()),
        policies=frozenset(p.policy_identifier.dotted_string for p in policies or ()),
        explicit_policy=bool(
            policy_constraints and policy_constraints.require_explicit_policy is not None
        ),
        inhibits_any_policy=extension(extensions, x509.InhibitAnyPolicy) is not None,
        crl_urls=_crl_urls(extensions),
        ocsp_urls=_ocsp_urls(extensions),
        not_understood=tuple(
            item.oid.dotted_string
            for item in extensions
            if item.critical and item.oid not in _UNDERSTOOD
        ),
        weak_digest=weak_digest(certificate),
        weakness=weakness,
        key_bits=bits,
    )


def extension(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    """The extension of a kind, or None."""
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _usage(usage: x509.KeyUsage) -> frozenset[str]:
    return frozenset(name for attribute, name in _USAGES if getattr(usage, attribute))


def _crl_urls(extensions: x509.Extensions) -> tuple[str, ...]:
    """Where complete lists are fetched; a list for some reasons or of another issuer is none."""
    points = extension(extensions, x509.CRLDistributionPoints) or ()
    found = [
        name.value
        for point in points
        if point.reasons is None and point.crl_issuer is None
        for name in point.full_name or ()
        if isinstance(name, x509.UniformResourceIdentifier)
    ]
    return _http(found)


def _ocsp_urls(extensions: x509.Extensions) -> tuple[str, ...]:
    found = [
        one.access_location.value
        for one in extension(extensions, x509.AuthorityInformationAccess) or ()
        if one.access_method == AuthorityInformationAccessOID.OCSP
        and isinstance(one.access_location, x509.UniformResourceIdentifier)
    ]
    return _http(found)


def _http(urls: list[str]) -> tuple[str, ...]:
    wanted = [one for one in urls if one.lower().startswith(("http://", "https://"))]
    return tuple(dict.fromkeys(wanted))[:_MOST_URLS]


def _key_strength(certificate: x509.Certificate) -> tuple[int | None, str | None]:
    """Bits where a minimum for RSA applies, and what is wrong with the key in any case."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None, "key is of a kind that is not supported"
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey):
        return key.key_size, None
    if isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < _MIN_EC_BITS:
        return None, f"key is on a curve of {key.key_size} bits, at least {_MIN_EC_BITS} are needed"
    return None, None


def weak_digest(signed: x509.Certificate | x509.CertificateRevocationList) -> str | None:
    """The name of the digest of a signature where that is weak, else None."""
    try:
        digest = signed.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        return "an unknown digest"
    return weak_name(digest)


def weak_name(digest: hashes.HashAlgorithm | None) -> str | None:
    """The name of a digest where it is weak, else None."""
    if isinstance(digest, hashes.SHA1 | hashes.MD5):
        return digest.name.upper().replace("SHA1", "SHA-1")
    return None


@lru_cache(maxsize=REMEMBERED)
def signed_by(below: CertificateFacts, issuer: CertificateFacts) -> bool:
    """Whether the key of the issuer made the signature of the certificate below."""
    certificate = below.certificate
    try:
        return is_signature_of(
            issuer.certificate.public_key(),
            certificate.signature,
            certificate.tbs_certificate_bytes,
            certificate.signature_algorithm_parameters,
            certificate.signature_hash_algorithm,
        )
    except (UnsupportedAlgorithm, ValueError, TypeError):
        return False


def is_signature_of(
    key: CertificatePublicKeyTypes,
    signature: bytes,
    signed: bytes,
    parameters: SignatureParameters,
    digest: hashes.HashAlgorithm | None,
) -> bool:
    """Whether a key made a signature of the kind that its algorithm identifier names."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            if not isinstance(parameters, padding.PKCS1v15 | padding.PSS) or digest is None:
                return False
            key.verify(signature, signed, parameters, digest)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            if not isinstance(parameters, ec.ECDSA):
                return False
            key.verify(signature, signed, parameters)
        elif isinstance(key, dsa.DSAPublicKey):
            if digest is None:
                return False
            key.verify(signature, signed, digest)
        elif isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            key.verify(signature, signed)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def stamp(moment: datetime) -> str:
    """A time as errors show it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=1024)
def subject_names(certificate: x509.Certificate) -> frozenset[str]:
    """All names of a certificate's subject."""
    subject = certificate.subject
    found = {subject.rfc4514_string()}
    found |= {str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset(found)
    for kind in (x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name):
        found |= set(others.get_values_for_type(kind))
    return frozenset(found)


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether others may chain to it: it says so, or is a root too old to say."""
    try:
        basic = extension(certificate.extensions, x509.BasicConstraints)
    except ValueError:
        return False
    if basic is None:
        return certificate.issuer == certificate.subject
    return basic.ca


def subject_key_identifier(certificate: x509.Certificate) -> bytes | None:
    """What the SubjectKeyIdentifier extension says; None where there is none."""
    try:
        found = extension(certificate.extensions, x509.SubjectKeyIdentifier)
    except ValueError:
        return None
    return None if found is None else found.digest


def thumbprint_sha1(certificate: x509.Certificate) -> bytes:
    """The SHA-1 digest of the certificate, as WS-Security 1.1 names it by (ThumbprintSHA1)."""
    return certificate.fingerprint(hashes.SHA1())
