"""Private keys, and what is asked of an authority for them: PKCS#10 requests, or no authority."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroad.security.keys import KeyPair

SigningKey = (
    rsa.RSAPrivateKey
    | ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)
_EARLIER: Final = timedelta(minutes=5)
"""A self-signed certificate begins so much earlier, for partners whose clocks are late."""


class KeyKind(StrEnum):
    """Algorithm and size of a key."""

    RSA_3072 = "rsa-3072"
    RSA_4096 = "rsa-4096"
    EC_P256 = "ec-p256"
    EC_P384 = "ec-p384"
    ED25519 = "ed25519"


class KeyUse(StrEnum):
    """What a key is for."""

    MESSAGES = "messages"
    """Signs messages and receipts, and opens what is encrypted for us."""
    SIGNING = "signing"
    ENCRYPTION = "encryption"
    TLS = "tls"
    """Shows who a listener is, or who calls."""

    @property
    def signs(self) -> bool:
        return self in (KeyUse.MESSAGES, KeyUse.SIGNING)

    @property
    def decrypts(self) -> bool:
        return self in (KeyUse.MESSAGES, KeyUse.ENCRYPTION)


_PURPOSES: Final = {
    KeyUse.MESSAGES: (ExtendedKeyUsageOID.CLIENT_AUTH,),
    KeyUse.SIGNING: (ExtendedKeyUsageOID.CLIENT_AUTH,),
    KeyUse.ENCRYPTION: (),
    KeyUse.TLS: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
}
"""Extended key usages. clientAuth is what certificates of most AS4 networks carry."""


@dataclass(frozen=True, slots=True)
class RequestedCertificate:
    """What a certificate is to say."""

    subject: x509.Name
    use: KeyUse = KeyUse.MESSAGES
    names: tuple[x509.GeneralName, ...] = ()
    """The alternative names of the subject."""


def generate_key(kind: KeyKind) -> SigningKey:
    """Generate a private key."""
    match kind:
        case KeyKind.RSA_3072:
            return rsa.generate_private_key(65537, 3072)
        case KeyKind.RSA_4096:
            return rsa.generate_private_key(65537, 4096)
        case KeyKind.EC_P256:
            return ec.generate_private_key(ec.SECP256R1())
        case KeyKind.EC_P384:
            return ec.generate_private_key(ec.SECP384R1())
        case KeyKind.ED25519:
            return ed25519.Ed25519PrivateKey.generate()


def can_decrypt(key: object) -> bool:
    """Whether messages can be encrypted for a key of this kind."""
    return isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)


def parse_subject(text: str) -> x509.Name:
    """Read a distinguished name such as `CN=acme,O=ACME Ltd,C=GB`; ValueError if it is none."""
    try:
        subject = x509.Name.from_rfc4514_string(text)
    except ValueError as error:
        reason = f" ({error})" if str(error) else ""
        raise ValueError(
            f"{text!r} is no distinguished name{reason}. Write it like CN=acme,O=ACME Ltd,C=GB"
        ) from None
    if not list(subject):
        raise ValueError("The subject is empty. Write it like CN=acme,O=ACME Ltd,C=GB")
    return subject


def parse_name(text: str) -> x509.GeneralName:
    """Read an alternative name: IP address, URI, e-mail address or host; ValueError if none."""
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        pass
    try:
        if ":" in text:
            return x509.UniformResourceIdentifier(text)
        if "@" in text:
            return x509.RFC822Name(text)
        return x509.DNSName(text)
    except ValueError:
        raise ValueError(
            f"{text!r} cannot stand in a certificate. Write a host, an IP address, a URI or an"
            " e-mail address in ASCII"
        ) from None


def make_request(
    key: SigningKey, requested: RequestedCertificate
) -> x509.CertificateSigningRequest:
    """Make the PKCS#10 request for a certificate."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(requested.subject)
    for extension, critical in _extensions(key, requested):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, _digest(key))


def self_sign(
    key: SigningKey, requested: RequestedCertificate, *, now: datetime, days: int
) -> KeyPair:
    """Make a certificate that no authority vouches for: partners pin it."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(requested.subject)
        .issuer_name(requested.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in _extensions(key, requested):
        builder = builder.add_extension(extension, critical)
    return KeyPair(key, builder.sign(key, _digest(key)))


def _digest(key: SigningKey) -> hashes.SHA256 | None:
    return (
        hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) else None
    )


def _extensions(
    key: SigningKey, requested: RequestedCertificate
) -> Sequence[tuple[x509.ExtensionType, bool]]:
    """The extensions of a certificate, and whether each is critical."""
    use, is_rsa = requested.use, isinstance(key, rsa.RSAPrivateKey)
    opens = use.decrypts and can_decrypt(key)
    usage = x509.KeyUsage(
        digital_signature=use.signs or use is KeyUse.TLS,
        content_commitment=use.signs,
        key_encipherment=is_rsa and (opens or use is KeyUse.TLS),
        data_encipherment=False,
        key_agreement=opens and not is_rsa,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    found: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (usage, True),
    ]
    if purposes := _PURPOSES[use]:
        found.append((x509.ExtendedKeyUsage(purposes), False))
    if requested.names:
        found.append((x509.SubjectAlternativeName(requested.names), False))
    return found
