"""Signatures and encryption against libxmlsec: what one makes, the other takes.

libxmlsec knows nothing of `cid:` references and of tokens, so attachments are checked by plain
`cryptography`, and keys are put where libxmlsec looks for them.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

import pytest
import xmlsec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from lxml import etree

from postroad.node.first_steps.example import order_message
from postroad.security import algorithms as alg
from postroad.security.algorithms import DATA_CIPHERS, SIGNATURES, Algorithms, Scheme
from postroad.security.decrypt import Decryption, decrypt
from postroad.security.ids import Ids
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import secure
from postroad.security.sign import write_security
from postroad.security.tokens import TokenReference, write_token_reference
from postroad.security.verify import security_headers
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import DS, XENC, XENC11, XML
from postroad.wire.soap import Envelope, SoapVersion, read_envelope, write_body, write_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.naming import short
from tests.unit.signing import ATTACHMENTS, BODY, BRAINPOOL, CA, check, key_pair, signed

CURVES: Final = ("p256", "p384", "p521", *BRAINPOOL)
LEGACY: Final = Algorithms(legacy=True)


def known_to_xmlsec() -> list[tuple[str, str]]:
    """All RSA and ECDSA algorithms, each with every kind of key."""
    kinds = {Scheme.RSA: ("rsa",), Scheme.RSA_PSS: ("rsa",), Scheme.ECDSA: CURVES}
    return [
        (uri, kind)
        for uri, algorithm in SIGNATURES.items()
        if algorithm.digest is not None and algorithm.digest.name != "md5"
        for kind in kinds.get(algorithm.scheme, ())
    ]


def xmlsec_verifies(envelope: bytes, certificate: x509.Certificate) -> bool:
    root = etree.fromstring(envelope)
    xmlsec.tree.add_ids(root, ["Id", "id"])
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(
        certificate.public_bytes(pki.Encoding.PEM), xmlsec.KeyFormat.CERT_PEM, None
    )
    try:
        context.verify(xmlsec.tree.find_node(root, xmlsec.Node.SIGNATURE))
    except xmlsec.VerificationError:
        return False
    return True


@pytest.mark.parametrize(("algorithm", "kind"), known_to_xmlsec(), ids=short)
def test_xmlsec_verifies_what_is_signed_here(algorithm: str, kind: str) -> None:
    signer = key_pair(kind)
    sent = signed(signer, algorithm, attachments=()).envelope
    assert xmlsec_verifies(sent, signer.certificate)
    assert not xmlsec_verifies(sent.replace(b"copper", b"silver"), signer.certificate)
    assert not xmlsec_verifies(sent, pki.issue(CA, "other", key=_of_pki(kind)).certificate)


def _of_pki(kind: str) -> str:
    return "brainpool" if kind in BRAINPOOL else kind


@pytest.mark.parametrize("form", TokenReference)
@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
def test_xmlsec_verifies_in_both_soap_versions_with_every_token(
    version: SoapVersion, form: TokenReference
) -> None:
    signer = key_pair("rsa")
    sent = signed(signer, alg.RSA_SHA256, version=version, form=form, attachments=())
    assert xmlsec_verifies(sent.envelope, signer.certificate)


@pytest.mark.parametrize("digest", [alg.SHA1, alg.SHA256, alg.SHA384, alg.SHA512], ids=short)
def test_xmlsec_verifies_with_every_digest(digest: str) -> None:
    signer = key_pair("p256")
    sent = signed(signer, alg.ECDSA_SHA256, digest=digest, attachments=())
    assert xmlsec_verifies(sent.envelope, signer.certificate)


@pytest.mark.parametrize("kind", ["rsa", "p256"])
def test_the_signature_over_attachments_is_verified_by_plain_cryptography(kind: str) -> None:
    signer = key_pair(kind)
    algorithm = alg.RSA_SHA256 if kind == "rsa" else alg.ECDSA_SHA256
    root = etree.fromstring(signed(signer, algorithm).envelope)
    signature = xmlsec.tree.find_node(root, xmlsec.Node.SIGNATURE)
    ds = {"ds": DS}
    info, value = (
        signature.find("ds:SignedInfo", ds),
        signature.findtext("ds:SignatureValue", "", ds),
    )
    octets = base64.b64decode(value)
    data = etree.tostring(info, method="c14n", exclusive=True, with_comments=False)
    public = signer.certificate.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        public.verify(octets, data, PKCS1v15(), hashes.SHA256())
    else:
        assert isinstance(public, ec.EllipticCurvePublicKey)
        pair = int.from_bytes(octets[:32]), int.from_bytes(octets[32:])
        public.verify(encode_dss_signature(*pair), data, ec.ECDSA(hashes.SHA256()))
    digests = {
        one.get("URI"): base64.b64decode(one.findtext("ds:DigestValue", "", ds))
        for one in info.iterfind("ds:Reference", ds)
    }
    drawing, order, note = (one.content.data for one in ATTACHMENTS)
    tree = etree.fromstring(order)
    canonical = etree.tostring(tree, method="c14n", exclusive=True, with_comments=False)
    assert digests["cid:drawing@a"] == hashlib.sha256(drawing).digest()
    assert digests["cid:order@a"] == hashlib.sha256(canonical).digest()
    assert digests["cid:note@a"] == hashlib.sha256(note.replace(b"\n", b"\r\n")).digest()


def unsigned_envelope(version: SoapVersion = SoapVersion.SOAP_12) -> etree._Element:
    messaging = write_messaging(Messaging((order_message(pki.NOW),), id="_messaging"), version)
    security = write_security(version, [])
    body = write_body(version, BODY, id="_body")
    return etree.fromstring(write_envelope(version, [security, messaging], body))


def xmlsec_signs(
    root: etree._Element,
    signer: KeyPair,
    method: object,
    canonicalisation: object,
    digest: object,
    uris: Sequence[str] = ("#_messaging", "#_body"),
) -> bytes:
    """Sign with libxmlsec; the certificate goes into a token of the Security header."""
    signature = xmlsec.template.create(root, canonicalisation, method, ns="ds")
    for uri in uris:
        reference = xmlsec.template.add_reference(signature, digest, uri=uri)
        xmlsec.template.add_transform(reference, canonicalisation)
    token, named = write_token_reference(
        TokenReference.BINARY_SECURITY_TOKEN, signer.certificate, (), "_token"
    )
    key_info = xmlsec.template.ensure_key_info(signature)
    security = root[0][0]
    security.append(etree.fromstring(token))
    security.append(signature)
    xmlsec.tree.add_ids(root, ["Id", "id"])
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(pki.pem_key(signer), xmlsec.KeyFormat.PEM, None)
    context.sign(signature)
    key_info.append(etree.fromstring(named))
    return etree.tostring(root)


T: Final = xmlsec.Transform


@pytest.mark.parametrize("canonicalisation", [T.EXCL_C14N, T.C14N], ids=lambda t: t.name)
@pytest.mark.parametrize("digest", [T.SHA1, T.SHA256, T.SHA384, T.SHA512], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((method, "rsa") for method in (T.RSA_SHA1, T.RSA_SHA256, T.RSA_SHA384, T.RSA_SHA512)),
        *((T.ECDSA_SHA256, kind) for kind in CURVES),
        (T.ECDSA_SHA384, "p384"),
        (T.ECDSA_SHA512, "p521"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_xmlsec_signs_verifies_here(
    method: object, kind: str, digest: object, canonicalisation: object
) -> None:
    sent = xmlsec_signs(unsigned_envelope(), key_pair(kind), method, canonicalisation, digest)
    checked = check(sent, algorithms=LEGACY)
    assert checked.verification.problems == ()
    assert checked.verification.valid is True
    assert checked.verification.covers(checked.messaging)
    assert checked.verification.covers(checked.envelope.body)
    touched = check(sent.replace(b"copper", b"silver"), algorithms=LEGACY)
    assert touched.broken == {"#_body"}


@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
def test_what_xmlsec_signs_in_a_crowded_document_verifies_here(version: SoapVersion) -> None:
    """Namespaces that are inherited, undeclared, default and unused; entities; odd white space."""
    plain = etree.tostring(unsigned_envelope(version)).decode()
    crowded = plain.replace(
        f"<{version.prefix}:Envelope ",
        f'<{version.prefix}:Envelope xmlns:x="urn:x" xmlns="urn:default" xmlns:q="urn:q" ',
    ).replace(
        "copper",
        'a&#13;b&#x9;<x:e xmlns:unused="urn:u" at="a&#10;b &quot;&lt;"  c = \'1\' ><i/><y xmlns=""'
        ' q:b="1" q:a="2" a="3"/><!-- gone --><![CDATA[<&>]]></x:e>',
    )
    for canonicalisation in (T.EXCL_C14N, T.C14N):
        root = etree.fromstring(crowded)
        root.set(f"{{{XML}}}lang", "en")
        root.set(f"{{{XML}}}space", "default")
        root[1].set(f"{{{XML}}}space", "preserve")
        sent = xmlsec_signs(root, key_pair("p256"), T.ECDSA_SHA256, canonicalisation, T.SHA256)
        assert check(sent).verification.problems == ()


def key_of(pair: KeyPair) -> object:
    return xmlsec.Key.from_memory(pki.pem_key(pair), xmlsec.KeyFormat.PEM, None)


def xmlsec_opens(envelope: bytes, pair: KeyPair) -> etree._Element:
    """Let libxmlsec decrypt our Body: the EncryptedKey is put inside the EncryptedData for it."""
    root = etree.fromstring(envelope)
    [data], [key] = root.iter(f"{{{XENC}}}EncryptedData"), root.iter(f"{{{XENC}}}EncryptedKey")
    info, recipient = data.find(f"{{{DS}}}KeyInfo"), key.find(f"{{{DS}}}KeyInfo")
    references = key.find(f"{{{XENC}}}ReferenceList")
    assert info is not None
    assert recipient is not None
    assert references is not None
    info.clear()
    info.append(key)
    key.remove(recipient)
    key.remove(references)
    manager = xmlsec.KeysManager()
    manager.add_key(key_of(pair))
    xmlsec.EncryptionContext(manager).decrypt(data)
    return root


OAEP: Final = [
    *(
        (alg.RSA_OAEP, digest, mgf)
        for digest in (alg.SHA1, alg.SHA256, alg.SHA512)
        for mgf in (alg.MGF1_SHA1, alg.MGF1_SHA256, XENC11 + "mgf1sha512")
    ),
    (alg.RSA_OAEP_MGF1P, alg.SHA1, alg.MGF1_SHA1),
    (alg.RSA_OAEP_MGF1P, alg.SHA256, alg.MGF1_SHA1),
    (alg.RSA_1_5, alg.SHA1, alg.MGF1_SHA1),
]


def entropy(size: int) -> bytes:
    return hashlib.shake_256(b"entropy").digest(size)


@pytest.mark.parametrize("data", DATA_CIPHERS, ids=short)
@pytest.mark.parametrize(("key", "digest", "mgf"), OAEP, ids=short)
def test_xmlsec_opens_a_body_that_is_encrypted_here(
    key: str, digest: str, mgf: str, data: str
) -> None:
    pair = key_pair("rsa")
    sent = secure(
        SoapVersion.SOAP_12,
        [],
        [],
        encryption=Encryption(pair.certificate, data, key, digest, mgf),
        entropy=entropy,
        body_content=BODY,
    )
    assert b"copper" not in sent.envelope
    body = xmlsec_opens(sent.envelope, pair)[1]
    assert BODY in etree.tostring(body, method="c14n", exclusive=True).decode()


def opened(sent: bytes, pair: KeyPair) -> tuple[Decryption, Envelope]:
    envelope = read_envelope(parse(sent))
    result = decrypt(
        security_headers(envelope.header).get(None),
        envelope.body,
        {},
        [pair],
        ids=Ids(envelope.root),
        algorithms=LEGACY,
    )
    return result, envelope


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (T.AES128_GCM, 128),
        (T.AES192_GCM, 192),
        (T.AES256_GCM, 256),
        (T.AES128, 128),
        (T.AES192, 192),
        (T.AES256, 256),
        (T.DES3, 192),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.parametrize("transport", [T.RSA_OAEP, T.RSA_PKCS1], ids=lambda t: t.name)
def test_a_body_that_xmlsec_encrypts_opens_here(data: object, size: int, transport: object) -> None:
    pair = key_pair("rsa")
    root = unsigned_envelope()
    body = root[1]
    template = xmlsec.template.encrypted_data_create(
        root, data, type=xmlsec.EncryptionType.CONTENT, ns="xenc"
    )
    xmlsec.template.encrypted_data_ensure_cipher_value(template)
    info = xmlsec.template.encrypted_data_ensure_key_info(template, ns="ds")
    key = xmlsec.template.add_encrypted_key(info, transport)
    xmlsec.template.encrypted_data_ensure_cipher_value(key)
    manager = xmlsec.KeysManager()
    manager.add_key(key_of(pair))
    context = xmlsec.EncryptionContext(manager)
    kind = xmlsec.KeyData.DES if size == 192 and data is T.DES3 else xmlsec.KeyData.AES
    context.key = xmlsec.Key.generate(kind, size, xmlsec.KeyDataType.SESSION)
    encrypted = context.encrypt_xml(template, body)
    assert b"copper" not in etree.tostring(root)
    [key] = encrypted.iter(f"{{{XENC}}}EncryptedKey")
    named = etree.SubElement(key, f"{{{DS}}}KeyInfo")
    named.append(
        etree.fromstring(
            write_token_reference(TokenReference.ISSUER_SERIAL, pair.certificate, (), "_")[1]
        )
    )
    key.insert(1, named)
    result, envelope = opened(etree.tostring(root), pair)
    assert result.problems == ()
    assert result.decrypted
    assert BODY in etree.tostring(envelope.body, method="c14n", exclusive=True).decode()
