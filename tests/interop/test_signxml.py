"""Signatures against signxml: what one makes, the other takes."""

from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from lxml import etree
from signxml import (
    CanonicalizationMethod,
    DigestAlgorithm,
    InvalidDigest,
    InvalidSignature,
    SignatureConfiguration,
    SignatureConstructionMethod,
    SignatureMethod,
    XMLSigner,
    XMLVerifier,
)

from postroad.security import algorithms as alg
from postroad.security.algorithms import SIGNATURES, Scheme
from postroad.security.keys import KeyPair
from postroad.security.tokens import TokenReference
from postroad.wire.ebms3_reader import MESSAGING
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.interop.test_xmlsec import CURVES, unsigned_envelope
from tests.naming import short
from tests.unit.signing import check, key_pair, signed

KNOWN: Final = [
    (uri, kind)
    for uri, algorithm in SIGNATURES.items()
    if not algorithm.weak
    for kind in {Scheme.RSA: ("rsa",), Scheme.RSA_PSS: ("rsa",), Scheme.ECDSA: CURVES}.get(
        algorithm.scheme, ()
    )
]


def verified(envelope: bytes, signer: KeyPair) -> list[str]:
    """The tags of what signxml says is signed."""
    expected = SignatureConfiguration(expect_references=2, location=".//")
    results = XMLVerifier().verify(envelope, x509_cert=signer.certificate, expect_config=expected)
    assert isinstance(results, list)
    return [one.signed_xml.tag for one in results]


@pytest.mark.parametrize(("algorithm", "kind"), KNOWN, ids=short)
def test_signxml_verifies_what_is_signed_here(algorithm: str, kind: str) -> None:
    signer = key_pair(kind)
    sent = signed(signer, algorithm, attachments=()).envelope
    body = f"{{{SoapVersion.SOAP_12.namespace}}}Body"
    assert verified(sent, signer) == [MESSAGING, body]


@pytest.mark.parametrize("form", TokenReference)
@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
def test_signxml_verifies_in_both_soap_versions_with_every_token(
    version: SoapVersion, form: TokenReference
) -> None:
    signer = key_pair("rsa")
    sent = signed(signer, alg.RSA_SHA256, version=version, form=form, attachments=())
    assert verified(sent.envelope, signer) == [MESSAGING, f"{{{version.namespace}}}Body"]


def test_signxml_sees_what_was_touched() -> None:
    signer = key_pair("rsa")
    sent = signed(signer, alg.RSA_SHA256, attachments=()).envelope
    with pytest.raises(InvalidDigest):
        verified(sent.replace(b"copper", b"silver"), signer)
    other = pki.issue(None, "somebody else", key="rsa")
    with pytest.raises(InvalidSignature):
        verified(sent, other)


def signed_by_signxml(
    signer: KeyPair,
    method: SignatureMethod,
    digest: DigestAlgorithm,
    version: SoapVersion = SoapVersion.SOAP_12,
) -> bytes:
    root = unsigned_envelope(version)
    key = signer.private_key
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    signature = XMLSigner(
        method=SignatureConstructionMethod.detached,
        signature_algorithm=method,
        digest_algorithm=digest,
        c14n_algorithm=CanonicalizationMethod.EXCLUSIVE_XML_CANONICALIZATION_1_0,
    ).sign(root, key=key, cert=[signer.certificate], reference_uri=["#_messaging", "#_body"])
    root[0][0].append(signature)
    return etree.tostring(root)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *(
            (method, "rsa")
            for method in SignatureMethod
            if method.name.startswith(("RSA_SHA", "SHA"))
            and method.value in SIGNATURES
            and not SIGNATURES[method.value].weak
        ),
        *(
            (SignatureMethod[f"ECDSA_{name}"], kind)
            for name in ("SHA256", "SHA384", "SHA512", "SHA3_256")
            for kind in CURVES
        ),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_signxml_signs_verifies_here(method: SignatureMethod, kind: str) -> None:
    signer = key_pair(kind)
    sent = signed_by_signxml(signer, method, DigestAlgorithm.SHA256)
    checked = check(sent)
    assert checked.verification.problems == ()
    assert checked.verification.valid is True
    assert checked.verification.certificate == signer.certificate
    assert checked.verification.covers(checked.messaging)
    assert checked.verification.covers(checked.envelope.body)


@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
@pytest.mark.parametrize(
    "digest", ["SHA224", "SHA256", "SHA384", "SHA512", "SHA3_256", "SHA3_384", "SHA3_512"]
)
def test_what_signxml_signs_with_every_digest_verifies_here(
    digest: str, version: SoapVersion
) -> None:
    sent = signed_by_signxml(
        key_pair("p256"), SignatureMethod.ECDSA_SHA256, DigestAlgorithm[digest], version
    )
    assert check(sent).verification.problems == ()
    assert check(sent.replace(b"copper", b"silver")).broken == {"#_body"}
