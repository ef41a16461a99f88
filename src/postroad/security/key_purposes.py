"""Extended key usage: what a certificate may be used for, by name and by OID.

A certificate without the extension may be used for everything. One with it may sign messages if it
is for one of `SIGNING`. What it may not be is limited to another purpose: a certificate of a web
server (serverAuth) or of an OCSP responder is issued by other rules, often to other people.

clientAuth is among them because that is what the certificates of most AS4 networks carry, those of
Peppol access points as their only purpose.
"""

from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroad.security.certificates import CertificateFacts, read_certificate

ANY: Final = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE.dotted_string
OCSP_SIGNING: Final = ExtendedKeyUsageOID.OCSP_SIGNING.dotted_string
NAMES: Final = {
    "anyExtendedKeyUsage": ANY,
    "serverAuth": ExtendedKeyUsageOID.SERVER_AUTH.dotted_string,
    "clientAuth": ExtendedKeyUsageOID.CLIENT_AUTH.dotted_string,
    "codeSigning": ExtendedKeyUsageOID.CODE_SIGNING.dotted_string,
    "emailProtection": ExtendedKeyUsageOID.EMAIL_PROTECTION.dotted_string,
    "timeStamping": ExtendedKeyUsageOID.TIME_STAMPING.dotted_string,
    "OCSPSigning": OCSP_SIGNING,
    "documentSigning": "1.3.6.1.5.5.7.3.36",
    "msDocumentSigning": "1.3.6.1.4.1.311.10.3.12",
}
_TRANSPORT: Final = frozenset(("keyEncipherment", "dataEncipherment"))
_AGREEMENT: Final = frozenset(("keyAgreement",))
_BY_OID: Final = {oid: name for name, oid in NAMES.items()}
SIGNING: Final = frozenset(
    NAMES[one] for one in ("clientAuth", "emailProtection", "documentSigning", "msDocumentSigning")
)


def signing_remark(certificate: x509.Certificate) -> str | None:
    """What is odd about a certificate that is pinned to sign messages; None if nothing is."""
    facts = _facts(certificate)
    if facts is None or facts.purposes is None or ANY in facts.purposes or facts.purposes & SIGNING:
        return None
    return (
        f"the pinned certificate {facts.subject_text} is for another purpose "
        f"({purpose_names(facts.purposes)}), and its signatures count all the same"
    )


def encryption_remark(certificate: x509.Certificate) -> str | None:
    """What is odd about a certificate that messages are encrypted for; None if nothing is."""
    facts = _facts(certificate)
    if facts is None or facts.usage is None:
        return None
    needed = _TRANSPORT if isinstance(certificate.public_key(), rsa.RSAPublicKey) else _AGREEMENT
    if facts.usage & needed:
        return None
    stated = ", ".join(sorted(facts.usage)) or "none"
    return (
        f"the certificate {facts.subject_text} is not for encryption (key usage {stated}), "
        "and its owner may refuse what is encrypted for it"
    )


def _facts(certificate: x509.Certificate) -> CertificateFacts | None:
    """What a certificate says; None where it cannot be read: that is told when it is used."""
    try:
        certificate.public_key()
        return read_certificate(certificate)
    except (ValueError, UnsupportedAlgorithm):
        return None


def purpose_oid(text: str) -> str:
    """The OID of a purpose that is given by name or by OID; ValueError if it is neither."""
    if text in NAMES:
        return NAMES[text]
    parts = text.split(".")
    if len(parts) > 2 and all(part.isascii() and part.isdigit() for part in parts):
        return text
    raise ValueError(f"{text!r} is no purpose. Write an OID, or one of: {', '.join(NAMES)}")


def purpose_names(oids: Iterable[str]) -> str:
    """Purposes as errors show them."""
    return ", ".join(sorted(_BY_OID.get(one, one) for one in oids)) or "none"
