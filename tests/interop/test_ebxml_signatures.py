"""ebXML signatures against libxmlsec and signxml: what one makes, the other takes.

libxmlsec really runs the XPath transform, so that what is cut out here is what XPath means.
Neither knows `cid:` references; signxml knows no XPath transform and passes over it.
"""

from typing import Final

import pytest
import xmlsec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from lxml import etree
from signxml import (
    CanonicalizationMethod,
    DigestAlgorithm,
    InvalidDigest,
    SignatureConfiguration,
    SignatureConstructionMethod,
    SignatureMethod,
    XMLSigner,
    XMLVerifier,
)

from postroad.security import algorithms as alg
from postroad.security.algorithms import Algorithms
from postroad.security.ebxml_signature import sign_ebxml
from postroad.security.keys import KeyPair
from postroad.security.sign import Signing
from postroad.wire.ebxml import MS098, MS20, Dialect
from postroad.wire.names import DS, EB2_NEXT_MSH, S11_NEXT
from tests import pki
from tests.interop.test_xmlsec import key_of, xmlsec_verifies
from tests.unit.ebxml_signing import CA, Message, check, dialects, envelope_of, hop, put

T: Final = xmlsec.Transform
LEGACY: Final = Algorithms(legacy=True)
SIGNERS: Final = [("rsa", alg.RSA_SHA256), ("p256", alg.ECDSA_SHA256)]
CROWDED: Final = (
    '<x:e xmlns:x="urn:x" xmlns:u="urn:u" at="a&#10;b &quot;&lt;"  c = \'1\' ><i/><y xmlns=""'
    ' x:b="1" x:a="2" a="3">a&#13;b</y><!-- gone --><![CDATA[<&>]]></x:e>'
)


def pair_of(kind: str) -> KeyPair:
    return pki.issue(CA, f"older {kind}", key=kind)


def without_lang(envelope: bytes) -> bytes:
    """signxml forgets that Canonical XML takes over xml: attributes."""
    return envelope.replace(b' xml:lang="en"', b"")


def signed_here(
    dialect: Dialect, kind: str, algorithm: str, *, for_signxml: bool = False
) -> Message:
    """Without payloads, which the others cannot look at."""
    envelope = envelope_of(dialect, CROWDED, hrefs=())
    if for_signxml:
        envelope = without_lang(envelope)
    signing = Signing(pair_of(kind), algorithm)
    signature, references = sign_ebxml(envelope, dialect, (), signing)
    return Message(dialect, put(envelope, signature), references, (), ())


@dialects()
@pytest.mark.parametrize(("kind", "algorithm"), SIGNERS)
@pytest.mark.req("MS098-8.8-02", "MS098-8.8-03")
def test_xmlsec_verifies_what_is_signed_here_on_every_hop(
    dialect: Dialect, kind: str, algorithm: str
) -> None:
    certificate = pair_of(kind).certificate
    message = signed_here(dialect, kind, algorithm)
    assert xmlsec_verifies(message.envelope, certificate)
    for number in range(2):
        message = message.added(hop(dialect, number), before="<eb:MessageHeader")
        message = message.added(hop(dialect, number), before="<ds:Signature")
        message = message.added(hop(dialect, number))
        assert xmlsec_verifies(message.envelope, certificate)
    touched = message.replaced("NewOrder", "OldOrder")
    assert not xmlsec_verifies(touched.envelope, certificate)
    assert not xmlsec_verifies(message.added("<eb:Other/>").envelope, certificate)


@pytest.mark.parametrize(("kind", "algorithm"), SIGNERS)
def test_signxml_verifies_what_is_signed_here(kind: str, algorithm: str) -> None:
    message = signed_here(MS20, kind, algorithm, for_signxml=True)
    expected = SignatureConfiguration(location=".//")
    certificate = pair_of(kind).certificate
    XMLVerifier().verify(message.envelope, x509_cert=certificate, expect_config=expected)
    touched = message.replaced("NewOrder", "OldOrder")
    with pytest.raises(InvalidDigest):
        XMLVerifier().verify(touched.envelope, x509_cert=certificate, expect_config=expected)


def xmlsec_signs(
    envelope: bytes,
    dialect: Dialect,
    signer: KeyPair,
    method: object,
    digest: object,
    *,
    xpath: bool = True,
    c14n: bool = True,
) -> bytes:
    """Signed by libxmlsec with the transforms of the specification, in the Header."""
    root = etree.fromstring(envelope)
    signature = xmlsec.template.create(root, T.C14N, method, ns="ds")
    root[0].insert(1, signature)  # lxml would drop a prefix from what is put in later
    reference = xmlsec.template.add_reference(signature, digest, uri="")
    xmlsec.template.add_transform(reference, T.ENVELOPED)
    if xpath:
        step = xmlsec.template.add_transform(reference, T.XPATH)
        expression = etree.SubElement(step, f"{{{DS}}}XPath", nsmap=dict(dialect.hop_namespaces))
        expression.text = dialect.hop_xpath
    if c14n:
        xmlsec.template.add_transform(reference, T.C14N)
    data = xmlsec.template.add_x509_data(xmlsec.template.ensure_key_info(signature))
    xmlsec.template.x509_data_add_certificate(data)
    context = xmlsec.SignatureContext()
    context.key = key_of(signer)
    context.key.load_cert_from_memory(
        signer.certificate.public_bytes(pki.Encoding.PEM), xmlsec.KeyFormat.CERT_PEM
    )
    context.sign(signature)
    return etree.tostring(root.getroottree())


@dialects()
@pytest.mark.parametrize(
    ("kind", "method", "digest"),
    [
        ("rsa", T.RSA_SHA256, T.SHA256),
        ("rsa", T.RSA_SHA1, T.SHA1),
        ("p256", T.ECDSA_SHA256, T.SHA256),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_xmlsec_signs_verifies_here_on_every_hop(
    dialect: Dialect, kind: str, method: object, digest: object
) -> None:
    signer = pair_of(kind)
    blocks = f"{CROWDED} {hop(dialect, 0)}\n<!-- c -->{hop(dialect, 1)} "
    envelope = envelope_of(dialect, blocks, hrefs=())
    sent = xmlsec_signs(envelope, dialect, signer, method, digest)
    message = Message(dialect, sent, (), (), ())
    for _ in range(2):
        checked = check(message, algorithms=LEGACY)
        assert checked.verification.problems == ()
        assert checked.verification.certificate == signer.certificate
        assert checked.covers("MessageHeader")
        message = message.added(hop(dialect, 0), before="<ds:Signature").added(hop(dialect, 1))
    assert not check(message.replaced("NewOrder", "OldOrder"), algorithms=LEGACY).holds


@dialects(MS098, MS20)
@pytest.mark.parametrize("c14n", [True, False])
def test_what_xmlsec_signs_whole_verifies_here_and_covers_the_hops(
    dialect: Dialect, c14n: bool
) -> None:
    """Without an XPath nothing but the Signature is left out."""
    envelope = envelope_of(dialect, hop(dialect, 0), hrefs=())
    sent = xmlsec_signs(
        envelope, dialect, pair_of("p256"), T.ECDSA_SHA256, T.SHA256, xpath=False, c14n=c14n
    )
    message = Message(dialect, sent, (), (), ())
    checked = check(message)
    assert checked.holds
    assert checked.covers("Via" if dialect.has_trace else "AckRequested")
    assert not check(message.added(hop(dialect, 1))).holds


@pytest.mark.parametrize(
    ("kind", "method"),
    [("rsa", SignatureMethod.RSA_SHA256), ("p256", SignatureMethod.ECDSA_SHA256)],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_signxml_signs_whole_verifies_here(kind: str, method: SignatureMethod) -> None:
    signer = pair_of(kind)
    assert isinstance(signer.private_key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    place = f'<ds:Signature xmlns:ds="{DS}" Id="placeholder"/>'
    root = etree.fromstring(without_lang(envelope_of(MS20, CROWDED + place, hrefs=())))
    sent = XMLSigner(
        method=SignatureConstructionMethod.enveloped,
        signature_algorithm=method,
        digest_algorithm=DigestAlgorithm.SHA256,
        c14n_algorithm=CanonicalizationMethod.CANONICAL_XML_1_0,
    ).sign(root, key=signer.private_key, cert=[signer.certificate])
    message = Message(MS20, etree.tostring(sent), (), (), ())
    checked = check(message)
    assert checked.verification.problems == ()
    assert checked.verification.certificate == signer.certificate
    assert not check(message.replaced("NewOrder", "OldOrder")).holds


@pytest.mark.parametrize("actor", [EB2_NEXT_MSH, S11_NEXT])
def test_xmlsec_too_leaves_out_whatever_is_for_the_next_hop(actor: str) -> None:
    """So a block with such an actor says nothing, whatever it is; here it is not covered."""
    message = signed_here(MS20, "p256", alg.ECDSA_SHA256)
    foreign = message.added(f'<z:z xmlns:z="urn:z" SOAP-ENV:actor="{actor}">new</z:z>')
    assert xmlsec_verifies(foreign.envelope, pair_of("p256").certificate)
    checked = check(foreign)
    assert checked.holds
    assert not checked.covers("z")
