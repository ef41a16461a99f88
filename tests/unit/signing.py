"""Messages that are signed by signers of every kind, and looked at."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec
from lxml import etree

from postroad.node.first_steps.example import order_message
from postroad.security.algorithms import ECDSA_SHA256, SHA256, STRONG, Algorithms
from postroad.security.attachments import Attachment
from postroad.security.ids import Ids
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, Secured, secure
from postroad.security.sign import Block, Signing
from postroad.security.tokens import TokenReference
from postroad.security.verify import Verification, security_headers, signatures, verify
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_reader import MESSAGING
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.limits import Limits
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests import pki

CA: Final = pki.authority("Signers")
ALICE: Final = pki.issue(CA, "alice")
DRAWING: Final = bytes(range(256)) * 3
ORDER_XML: Final = (
    b'<?xml version="1.0"?><a:order xmlns:a="urn:a" c="3" b="2">\n<!-- x -->5</a:order>'
)
NOTE: Final = b"first\nsecond\nthird"
ATTACHMENTS: Final = (
    Attachment("drawing@a", BytesContent(DRAWING), "application/octet-stream"),
    Attachment("order@a", BytesContent(ORDER_XML), "application/xml"),
    Attachment("note@a", BytesContent(NOTE), "text/plain"),
)
BODY: Final = '<d:doc xmlns:d="urn:d"><d:item n="1">copper</d:item></d:doc>'
BRAINPOOL: Final = {
    "brainpool256": ec.BrainpoolP256R1(),
    "brainpool384": ec.BrainpoolP384R1(),
    "brainpool512": ec.BrainpoolP512R1(),
}
LIFETIME: Final = Lifetime(pki.NOW, timedelta(minutes=10))


@cache
def key_pair(kind: str) -> KeyPair:
    """A pair of any kind that `pki` makes, and on the larger Brainpool curves too."""
    if kind in BRAINPOOL:
        seed = int.from_bytes(hashlib.sha256(kind.encode()).digest()[:30])
        return certified(ec.derive_private_key(seed, BRAINPOOL[kind]), kind)
    return pki.issue(CA, f"signer {kind}", key=kind)


def certified(key: ec.EllipticCurvePrivateKey | dsa.DSAPrivateKey, name: str) -> KeyPair:
    """A pair of a key that `pki` does not make, with a certificate of `CA`."""
    subject = pki.distinguished_name(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(CA.certificate.subject)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(name.encode()) + 1)
        .not_valid_before(pki.NOW - pki.YEAR)
        .not_valid_after(pki.NOW + pki.YEAR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(CA.private_key, hashes.SHA256())
    )
    return KeyPair(key, certificate, (CA.certificate,))


@dataclass(frozen=True)
class Checked:
    """A message after its signature was looked at."""

    envelope: Envelope
    verification: Verification

    @property
    def messaging(self) -> etree._Element:
        assert self.envelope.header is not None
        [found] = self.envelope.header.iterchildren(MESSAGING)
        return found

    @property
    def broken(self) -> set[str]:
        return {one.reference.uri for one in self.verification.references if not one.valid}


def signed(
    signer: KeyPair = ALICE,
    algorithm: str = ECDSA_SHA256,
    *,
    version: SoapVersion = SoapVersion.SOAP_12,
    form: TokenReference = TokenReference.BINARY_SECURITY_TOKEN,
    digest: str = SHA256,
    attachments: Sequence[Attachment] = ATTACHMENTS,
    raw: bool = False,
    lifetime: Lifetime | None = None,
    body: str = BODY,
) -> Secured:
    """A message that is signed as a test says."""
    header = write_messaging(Messaging((order_message(pki.NOW),), id="_messaging"), version)
    return secure(
        version,
        [Block("_messaging", header)],
        attachments,
        signing=Signing(signer, algorithm, digest, form, raw),
        lifetime=lifetime,
        body_content=body,
    )


def check(
    message: Secured | bytes,
    attachments: Sequence[Attachment] | None = None,
    *,
    known: Sequence[x509.Certificate] = (),
    algorithms: Algorithms = STRONG,
    raw: bool | None = None,
    unseen: Callable[[str], str | None] = lambda content_id: None,
    limits: Limits | None = None,
) -> Checked:
    """A message after its one signature was verified."""
    sent = message.envelope if isinstance(message, Secured) else message
    if attachments is None:
        attachments = message.attachments if isinstance(message, Secured) else ()
    envelope = read_envelope(parse(sent))
    [signature] = signatures(security_headers(envelope.header)[None])
    verification = verify(
        signature,
        Ids(envelope.root),
        {one.content_id: one for one in attachments},
        known=known,
        algorithms=algorithms,
        raw_attachments=raw,
        unseen=unseen,
        limits=limits or Limits(),
    )
    assert all(one.detail for one in verification.problems), "each says what is wrong"
    return Checked(envelope, verification)


def details(verification: Verification) -> str:
    """All that is wrong, as it is told."""
    return "; ".join(problem.detail for problem in verification.problems)


def exclusive(element: etree._Element, prefixes: Sequence[str] = ()) -> bytes:
    """The exclusive canonical form of an element."""
    return etree.tostring(
        element,
        method="c14n",
        exclusive=True,
        with_comments=False,
        inclusive_ns_prefixes=list(prefixes) or None,
        with_tail=False,
    )


def only(root: etree._Element, name: str) -> etree._Element:
    """The one element of that name."""
    [found] = (one for one in root.iter("*") if etree.QName(one).localname == name)
    return found


def replace_token(root: etree._Element, certificate: x509.Certificate) -> None:
    """Another certificate in the place of the one that came with the message."""
    token = only(root, "BinarySecurityToken")
    token.text = base64.b64encode(certificate.public_bytes(pki.Encoding.DER)).decode()
