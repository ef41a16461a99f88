"""A certificate authority for development: good for a demo and a first try, never for business."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from postroad.security.keys import KeyPair

_Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def make_authority(name: str, *, now: datetime, days: int = 3650) -> KeyPair:
    """A self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key, now, now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(sign=False), critical=True)
    return KeyPair(key, builder.sign(key, hashes.SHA256()))


def issue(
    authority: KeyPair, name: str, *, begin: datetime, end: datetime, key: _Key | None = None
) -> KeyPair:
    """A party's key pair for signing and decrypting, its certificate issued by the authority."""
    own = key or rsa.generate_private_key(65537, 2048)
    builder = _builder(_name(name), authority.certificate.subject, own, begin, end)
    return _issued(authority, own, builder.add_extension(_usage(sign=True), critical=True))


def issue_tls(
    authority: KeyPair, name: str, *, begin: datetime, end: datetime, hosts: Sequence[str]
) -> KeyPair:
    """A key pair for TLS, as server under these host names and addresses and as client."""
    own = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.certificate.subject, own, begin, end)
    usages = x509.ExtendedKeyUsage(
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )
    builder = builder.add_extension(_usage(sign=True), critical=True)
    builder = builder.add_extension(usages, critical=False)
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    return _issued(authority, own, builder.add_extension(names, critical=False))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issued(authority: KeyPair, own: _Key, builder: x509.CertificateBuilder) -> KeyPair:
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(
            authority.certificate.public_key()  # type: ignore[arg-type]
        ),
        critical=False,
    )
    signer = authority.private_key
    assert isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    return KeyPair(own, builder.sign(signer, hashes.SHA256()), (authority.certificate,))


def _name(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Postroad development"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    """Signing and key encipherment for a party, issuing for an authority."""
    return x509.KeyUsage(
        digital_signature=sign,
        content_commitment=sign,
        key_encipherment=sign,
        data_encipherment=False,
        key_agreement=sign,
        key_cert_sign=not sign,
        crl_sign=not sign,
        encipher_only=False,
        decipher_only=False,
    )
