"""Authorities, certificates and keys of every kind, for all tests.

Keys are drawn from their label wherever the kind allows it, so that a run is like the one before;
RSA and DSA keys are made once a session. Everything is remembered: asking twice gives the same.

    ca = authority("Test CA")
    alice = issue(ca, "alice")
    alice.private_key, alice.certificate, alice.chain
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import (
    dsa,
    ec,
    ed448,
    ed25519,
    padding,
    rsa,
    x448,
    x25519,
)
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from postroad.security.keys import KeyPair

NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
YEAR: Final = timedelta(days=365)
USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "ec": ec.SECP256R1(),
    "p192": ec.SECP192R1(),
    "p256": ec.SECP256R1(),
    "p384": ec.SECP384R1(),
    "p521": ec.SECP521R1(),
    "brainpool": ec.BrainpoolP256R1(),
}
KINDS: Final = (*_CURVES, "rsa", "rsa1024", "rsa3072", "dsa", "ed25519", "ed448", "x25519", "x448")


DIGESTS: Final[dict[str, hashes.HashAlgorithm]] = {
    "md5": hashes.MD5(),
    "sha1": hashes.SHA1(),
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}


@cache
def private_key(kind: str, label: str = "") -> PrivateKeyTypes:
    """A private key: `rsa` has 2048 bits, `ec` is on P-256; see `KINDS`."""
    seed = hashlib.shake_256(f"{kind} {label}".encode()).digest(64)
    if kind in _CURVES:
        return ec.derive_private_key(int.from_bytes(seed[:23]), _CURVES[kind])
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, int(kind[3:] or 2048))
    if kind == "dsa":
        return dsa.generate_private_key(2048)
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.from_private_bytes(seed[:32])
    if kind == "ed448":
        return ed448.Ed448PrivateKey.from_private_bytes(seed[:57])
    if kind == "x25519":
        return x25519.X25519PrivateKey.from_private_bytes(seed[:32])
    if kind == "x448":
        return x448.X448PrivateKey.from_private_bytes(seed[:56])
    raise AssertionError(f"no such kind of key: {kind}")


def distinguished_name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "NL"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Postroad Tests"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def key_usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in usages for usage in USAGES})


@cache
def authority(
    name: str,
    *,
    key: str = "ec",
    label: str | None = None,
    issuer: KeyPair | None = None,
    usage: tuple[str, ...] | None = ("key_cert_sign", "crl_sign"),
    is_ca: bool | None = True,
    path_length: int | None = None,
    not_before: datetime = NOW - 5 * YEAR,
    not_after: datetime = NOW + 15 * YEAR,
    digest: str = "sha256",
    policies: tuple[str, ...] = (),
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (),
) -> KeyPair:
    """A certificate authority: a root, or one below `issuer`. Another `label` is another key."""
    return _issued(
        issuer,
        distinguished_name(name),
        private_key(key, f"authority {name if label is None else label}"),
        usage=usage,
        is_ca=is_ca,
        path_length=path_length,
        not_before=not_before,
        not_after=not_after,
        digest=digest,
        policies=policies,
        extensions=extensions,
    )


@cache
def issue(
    ca: KeyPair | None,
    cn: str,
    *,
    key: str = "ec",
    label: str | None = None,
    usage: tuple[str, ...] | None = ("digital_signature", "key_encipherment", "key_agreement"),
    is_ca: bool | None = False,
    path_length: int | None = None,
    not_before: datetime = NOW - YEAR,
    not_after: datetime = NOW + 2 * YEAR,
    digest: str = "sha256",
    policies: tuple[str, ...] = (),
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (),
    serial: int | None = None,
    subject: x509.Name | None = None,
    issuer_name: x509.Name | None = None,
    key_identifier: bool = True,
    pss: bool = False,
) -> KeyPair:
    """A certificate with its key, issued by `ca`, or self-signed where that is None.

    `usage` None leaves the key usage out, `is_ca` None the basic constraints; `issuer_name`
    writes another issuer into the certificate than the one that signs.
    """
    return _issued(
        ca,
        subject or distinguished_name(cn),
        private_key(key, cn if label is None else label),
        usage=usage,
        is_ca=is_ca,
        path_length=path_length,
        not_before=not_before,
        not_after=not_after,
        digest=digest,
        policies=policies,
        extensions=extensions,
        serial=serial,
        issuer_name=issuer_name,
        key_identifier=key_identifier,
        pss=pss,
    )


def _issued(
    ca: KeyPair | None,
    subject: x509.Name,
    key: PrivateKeyTypes,
    *,
    usage: tuple[str, ...] | None,
    is_ca: bool | None,
    path_length: int | None,
    not_before: datetime,
    not_after: datetime,
    digest: str,
    policies: tuple[str, ...],
    extensions: tuple[tuple[x509.ExtensionType, bool], ...],
    serial: int | None = None,
    issuer_name: x509.Name | None = None,
    key_identifier: bool = True,
    pss: bool = False,
) -> KeyPair:
    signer = key if ca is None else ca.private_key
    issuer = issuer_name or (subject if ca is None else ca.certificate.subject)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial or _serial(subject, issuer, not_before))
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )
    if is_ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(is_ca, path_length), critical=True)
    if usage is not None:
        builder = builder.add_extension(key_usage(*usage), critical=True)
    if policies:
        informations = [x509.PolicyInformation(x509.ObjectIdentifier(p), None) for p in policies]
        builder = builder.add_extension(x509.CertificatePolicies(informations), critical=False)
    if key_identifier:
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    certificate = _signed(builder, signer, digest, pss=pss)
    return KeyPair(key, certificate, () if ca is None else (ca.certificate, *ca.chain))


def _serial(subject: x509.Name, issuer: x509.Name, not_before: datetime) -> int:
    seed = subject.public_bytes() + issuer.public_bytes() + not_before.isoformat().encode()
    return int.from_bytes(hashlib.sha256(seed).digest()[:8]) | 1


def _signed(
    builder: x509.CertificateBuilder,
    signer: PrivateKeyTypes,
    digest: str,
    *,
    pss: bool,
) -> x509.Certificate:
    if isinstance(signer, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey):
        return builder.sign(signer, None)
    algorithm = DIGESTS[digest]
    if isinstance(signer, rsa.RSAPrivateKey) and isinstance(algorithm, hashes.SHA1 | hashes.MD5):
        return _weakly_signed(builder, signer, algorithm)
    if isinstance(signer, rsa.RSAPrivateKey) and pss:
        scheme = padding.PSS(padding.MGF1(algorithm), algorithm.digest_size)
        return builder.sign(signer, algorithm, rsa_padding=scheme)
    if isinstance(signer, ec.EllipticCurvePrivateKey):
        return builder.sign(signer, algorithm, ecdsa_deterministic=True)
    return builder.sign(signer, algorithm)


def _weakly_signed(
    builder: x509.CertificateBuilder, signer: rsa.RSAPrivateKey, digest: hashes.HashAlgorithm
) -> x509.Certificate:
    """Signed with a digest that the library no longer writes: made good, then re-signed."""
    sha256 = bytes.fromhex("2a864886f70d01010b")
    weak = sha256[:-1] + (b"\x05" if isinstance(digest, hashes.SHA1) else b"\x04")
    tbs = builder.sign(signer, hashes.SHA256()).tbs_certificate_bytes.replace(sha256, weak)
    signature = signer.sign(tbs, padding.PKCS1v15(), digest)
    algorithm = der(0x30, der(0x06, weak) + der(0x05, b""))
    return x509.load_der_x509_certificate(der(0x30, tbs + algorithm + der(0x03, b"\0" + signature)))


def der(tag: int, content: bytes) -> bytes:
    """One DER element."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def revocation_list(
    ca: KeyPair,
    revoked: Iterable[x509.Certificate] = (),
    *,
    on: datetime = NOW - timedelta(days=30),
    this_update: datetime = NOW - timedelta(days=1),
    next_update: datetime = NOW + timedelta(days=7),
    digest: str = "sha256",
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (),
) -> x509.CertificateRevocationList:
    """A list of what the authority revoked."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(this_update)
        .next_update(next_update)
    )
    for certificate in revoked:
        entry = x509.RevokedCertificateBuilder(certificate.serial_number, on)
        builder = builder.add_revoked_certificate(entry.build())
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    signer = ca.private_key
    if isinstance(signer, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey):
        return builder.sign(signer, None)
    return builder.sign(signer, DIGESTS[digest])


def pem_key(pair: KeyPair, password: bytes | None = None) -> bytes:
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    return pair.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)


def pem_certificates(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def pem(pair: KeyPair, password: bytes | None = None) -> bytes:
    """Key, certificate and chain in one PEM file."""
    return pem_key(pair, password) + pem_certificates(pair.certificate, *pair.chain)


def p12_trust(certificates: Iterable[x509.Certificate], password: bytes | None = None) -> bytes:
    """A trust store as Java writes it."""
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    listed = [pkcs12.PKCS12Certificate(one, b"%d" % n) for n, one in enumerate(certificates)]
    return pkcs12.serialize_java_truststore(listed, protection)


def p12(pair: KeyPair, password: bytes | None = None, alias: str | None = None) -> bytes:
    """Key, certificate and chain as PKCS#12."""
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    name = None if alias is None else alias.encode()
    return pkcs12.serialize_key_and_certificates(
        name, pair.private_key, pair.certificate, pair.chain, protection
    )
