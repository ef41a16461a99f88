"""What is encrypted opens for its recipient, here and by hand."""

import base64
import hashlib
import hmac
from typing import Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap, aes_key_wrap
from cryptography.hazmat.primitives.serialization import load_der_public_key
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.algorithms import DATA_CIPHERS, Algorithms
from postroad.security.attachments import CONTENT_ONLY, Attachment
from postroad.security.ids import Ids
from postroad.security.keyestablishment import Encryption
from postroad.security.secure import Secured, secure
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.security.verify import security_headers, signatures, verify
from postroad.wire.content import BytesContent, read_all
from postroad.wire.limits import MIB
from postroad.wire.names import DS, DSIG11, DSIG_MORE_2001, DSIG_MORE_2021, WSSE, XENC, XENC11
from postroad.wire.soap import SoapVersion
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace
from tests.naming import short
from tests.unit.encrypting import (
    ATTACHMENTS,
    BODY,
    BRAINPOOL,
    CA,
    CBC,
    SHAKY,
    WRAPS,
    Dice,
    assert_open,
    find,
    opened,
    recipient,
    sealed,
    to_rsa,
    to_x25519,
)

GCM: Final = [uri for uri, cipher in DATA_CIPHERS.items() if cipher.mode == "GCM"]
AGREEING: Final = [
    *((alg.ECDH_ES, kind) for kind in ("p256", "p384", "p521", "brainpool", *BRAINPOOL)),
    (alg.X25519, "x25519"),
    (alg.X448, "x448"),
]


@pytest.mark.parametrize("mgf", alg.MGFS, ids=short)
@pytest.mark.parametrize("digest", [alg.SHA1, alg.SHA256, alg.SHA384, alg.SHA512], ids=short)
@pytest.mark.parametrize("data", GCM, ids=short)
def test_rsa_oaep_opens_with_every_digest_and_mask(data: str, digest: str, mgf: str) -> None:
    sent = sealed(to_rsa(data=data, digest=digest, mgf=mgf))
    result = opened(sent, [recipient()])
    assert_open(result)
    assert {data, alg.RSA_OAEP, digest, mgf} == set(result.decryption.algorithms)


@pytest.mark.parametrize("digest", [alg.SHA1, alg.SHA256, alg.SHA384, alg.SHA512], ids=short)
@pytest.mark.parametrize("data", GCM, ids=short)
def test_rsa_oaep_with_the_fixed_mask_opens(data: str, digest: str) -> None:
    sent = sealed(to_rsa(key=alg.RSA_OAEP_MGF1P, data=data, digest=digest))
    assert b"xenc11:MGF" not in sent.envelope
    assert_open(opened(sent, [recipient()]))


@pytest.mark.parametrize("data", GCM, ids=short)
@pytest.mark.parametrize("wrap", WRAPS, ids=short)
@pytest.mark.parametrize("derivation", [alg.CONCAT_KDF, alg.HKDF], ids=short)
@pytest.mark.parametrize(("key", "kind"), AGREEING, ids=short)
def test_key_agreement_opens(key: str, kind: str, derivation: str, wrap: str, data: str) -> None:
    pair = recipient(kind)
    sent = sealed(
        Encryption(pair.certificate, data=data, key=key, derivation=derivation, wrap=wrap)
    )
    result = opened(sent, [pair])
    assert_open(result)
    assert {data, key, derivation, wrap} <= set(result.decryption.algorithms)


@pytest.mark.parametrize("derivation", [alg.CONCAT_KDF, alg.HKDF], ids=short)
@pytest.mark.parametrize("digest", [alg.SHA256, alg.SHA384, alg.SHA512], ids=short)
def test_key_derivation_takes_every_digest(digest: str, derivation: str) -> None:
    sent = sealed(to_x25519(digest=digest, derivation=derivation))
    result = opened(sent, [recipient("x25519")])
    assert_open(result)
    assert digest in result.decryption.algorithms


@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
@pytest.mark.parametrize("form", TokenReference)
def test_the_recipient_is_named_in_every_form(form: TokenReference, version: SoapVersion) -> None:
    sent = sealed(replace(to_rsa(), reference=form), version=version)
    result = opened(sent, [recipient("x25519"), recipient()])
    assert_open(result)
    assert result.decryption.recipients == (recipient().certificate,)
    assert result.decryption.forms == (form,)
    assert result.decryption.content_ids == ("one@a", "two@a", "empty@a")
    assert result.decryption.body is True


@pytest.mark.parametrize("data", CBC, ids=short)
def test_cbc_opens_only_where_it_is_allowed(data: str) -> None:
    sent = sealed(to_rsa(data=data))
    assert_open(opened(sent, [recipient()], algorithms=SHAKY))
    named = Algorithms(named=frozenset([data]))
    assert_open(opened(sent, [recipient()], algorithms=named))
    refused = opened(sent, [recipient()])
    assert refused.decryption.decrypted is False
    assert "EBMS:0103" in refused.codes
    assert refused.plain["one@a"][1] == read_all(sent.attachments[0].content, MIB)


def test_rsa_1_5_opens_only_where_it_is_allowed() -> None:
    sent = sealed(to_rsa(key=alg.RSA_1_5))
    assert_open(opened(sent, [recipient()], algorithms=SHAKY))
    refused = opened(sent, [recipient()])
    assert refused.decryption.decrypted is False
    assert refused.codes == {"EBMS:0103"}


@pytest.mark.parametrize("encryption", [to_rsa(), to_x25519()], ids=["RSA", "X25519"])
def test_signed_and_then_encrypted_verifies_after_opening(encryption: Encryption) -> None:
    signer = pki.issue(CA, "signer")
    sent = sealed(encryption, signing=Signing(signer, alg.ECDSA_SHA256))
    result = opened(sent, [recipient(), recipient("x25519")])
    assert_open(result)
    [signature] = signatures(security_headers(result.envelope.header)[None])
    verification = verify(signature, Ids(result.envelope.root), result.decryption.attachments)
    assert verification.problems == ()
    assert verification.valid is True
    assert verification.covers(result.envelope.body)
    assert all(verification.covers_attachment(one.content_id) for one in ATTACHMENTS)


def test_a_message_without_content_is_not_encrypted() -> None:
    sent = sealed(to_rsa(), attachments=(), body="")
    assert b"EncryptedKey" not in sent.envelope
    plain = sealed(to_rsa(), attachments=(), body="", signing=Signing(CA, alg.ECDSA_SHA256))
    result = opened(plain, [recipient()])
    assert result.decryption.present is False
    assert result.decryption.decrypted is False
    assert result.details == []


def test_a_body_alone_is_encrypted() -> None:
    sent = sealed(to_rsa(), attachments=())
    assert b"copper" not in sent.envelope
    assert_open(opened(sent, [recipient()]), ())


def _octets(root: etree._Element, *names: str) -> bytes:
    return base64.b64decode(find(root, *names).text or "")


def _hkdf_sha256(secret: bytes, salt: bytes, size: int, info: bytes = b"") -> bytes:
    """RFC 5869 in four lines; one block is enough for what is asked here."""
    assert size <= 32
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")[:size]


def _assert_plain(key: bytes, sent: Secured) -> None:
    for original, encrypted in zip(ATTACHMENTS, sent.attachments, strict=True):
        blob = read_all(encrypted.content, MIB)
        assert encrypted.media_type == "application/octet-stream"
        assert len(blob) == 12 + original.content.size + 16
        assert AESGCM(key).decrypt(blob[:12], blob[12:], None) == original.content.data
    root = parse(sent.envelope)
    blob = _octets(root, "Body", "CipherValue")
    assert AESGCM(key).decrypt(blob[:12], blob[12:], None).decode() == BODY


def test_rsa_oaep_opens_by_hand() -> None:
    sent = sealed(to_rsa(digest=alg.SHA384, mgf=XENC11 + "mgf1sha512", data=alg.AES256_GCM))
    private = recipient().private_key
    assert isinstance(private, rsa.RSAPrivateKey)
    key = private.decrypt(
        _octets(parse(sent.envelope), "EncryptedKey", "CipherValue"),
        padding.OAEP(padding.MGF1(hashes.SHA512()), hashes.SHA384(), None),
    )
    assert len(key) == 32
    _assert_plain(key, sent)


def test_x25519_with_hkdf_opens_by_hand() -> None:
    sent = sealed(to_x25519())
    root, private = parse(sent.envelope), recipient("x25519").private_key
    assert isinstance(private, x25519.X25519PrivateKey)
    public = load_der_public_key(_octets(root, "OriginatorKeyInfo", "DEREncodedKeyValue"))
    assert isinstance(public, x25519.X25519PublicKey)
    assert find(root, "PRF").get("Algorithm") == DSIG_MORE_2001 + "hmac-sha256"
    assert find(root, "KeyLength").text == "16"
    wrapping = _hkdf_sha256(private.exchange(public), _octets(root, "Salt"), 16)
    wrapped = _octets(root, "EncryptedKey", "CipherValue")
    _assert_plain(aes_key_unwrap(wrapping, wrapped), sent)


def test_the_info_of_an_hkdf_goes_into_the_key() -> None:
    sent = sealed(to_x25519())
    root, private = parse(sent.envelope), recipient("x25519").private_key
    assert isinstance(private, x25519.X25519PrivateKey)
    public = load_der_public_key(_octets(root, "OriginatorKeyInfo", "DEREncodedKeyValue"))
    assert isinstance(public, x25519.X25519PublicKey)
    secret, salt = private.exchange(public), _octets(root, "Salt")
    value = find(root, "EncryptedKey", "CipherValue")
    key = aes_key_unwrap(_hkdf_sha256(secret, salt, 16), base64.b64decode(value.text or ""))
    info = etree.Element(f"{{{DSIG_MORE_2021}}}Info")
    info.text = base64.b64encode(b"what it is for").decode()
    find(root, "Salt").addnext(info)
    other = _hkdf_sha256(secret, salt, 16, b"what it is for")
    value.text = base64.b64encode(aes_key_wrap(other, key)).decode()
    assert_open(opened(etree.tostring(root), [recipient("x25519")], attachments=sent.attachments))


def test_ecdh_with_concat_kdf_opens_by_hand() -> None:
    pair = recipient("p256")
    sent = sealed(
        Encryption(
            pair.certificate,
            key=alg.ECDH_ES,
            derivation=alg.CONCAT_KDF,
            wrap=XENC + "kw-aes256",
        )
    )
    root, private = parse(sent.envelope), pair.private_key
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert find(root, "NamedCurve").get("URI") == "urn:oid:1.2.840.10045.3.1.7"
    public = ec.EllipticCurvePublicKey.from_encoded_point(
        ec.SECP256R1(), _octets(root, "ECKeyValue", "PublicKey")
    )
    parameters = find(root, "ConcatKDFParams")
    other = b"".join(
        bytes.fromhex(parameters.get(name, ""))[1:]
        for name in ("AlgorithmID", "PartyUInfo", "PartyVInfo")
    )
    secret = private.exchange(ec.ECDH(), public)
    wrapping = hashlib.sha256((1).to_bytes(4) + secret + other).digest()
    wrapped = _octets(root, "EncryptedKey", "CipherValue")
    _assert_plain(aes_key_unwrap(wrapping, wrapped), sent)


def test_all_that_a_sender_says_of_a_concat_kdf_goes_into_the_key_in_its_order() -> None:
    pair = recipient("p256")
    sent = sealed(
        Encryption(
            pair.certificate, key=alg.ECDH_ES, derivation=alg.CONCAT_KDF, wrap=XENC + "kw-aes256"
        )
    )
    root, private = parse(sent.envelope), pair.private_key
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    public = ec.EllipticCurvePublicKey.from_encoded_point(
        ec.SECP256R1(), _octets(root, "ECKeyValue", "PublicKey")
    )
    secret = private.exchange(ec.ECDH(), public)
    usual = hashlib.sha256((1).to_bytes(4) + secret + bytes(3)).digest()
    value = find(root, "EncryptedKey", "CipherValue")
    key = aes_key_unwrap(usual, base64.b64decode(value.text or ""))
    # XML Encryption 1.1, 5.4.1: OtherInfo is these five, one after the other.
    info = {
        "AlgorithmID": b"algorithm",
        "PartyUInfo": b"sender",
        "PartyVInfo": b"recipient",
        "SuppPubInfo": b"public",
        "SuppPrivInfo": b"private",
    }
    for name, said in reversed(info.items()):
        find(root, "ConcatKDFParams").set(name, "00" + said.hex())
    other = hashlib.sha256((1).to_bytes(4) + secret + b"".join(info.values())).digest()
    value.text = base64.b64encode(aes_key_wrap(other, key)).decode()
    assert_open(opened(etree.tostring(root), [pair], attachments=sent.attachments))


def test_a_message_made_by_hand_with_an_oaep_label_and_listed_data_opens() -> None:
    sent = sealed(to_rsa())
    root = parse(sent.envelope)
    dice = Dice()
    key = dice(16)
    public = recipient().certificate.public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"label")
    value = base64.b64encode(public.encrypt(key, oaep)).decode()
    find(root, "EncryptedKey", "CipherValue").text = value
    label = etree.Element(f"{{{XENC}}}OAEPparams")
    label.text = base64.b64encode(b"label").decode()
    find(root, "EncryptedKey", "EncryptionMethod").insert(0, label)
    for data in root.iter(f"{{{XENC}}}EncryptedData"):
        data.remove(find(data, "KeyInfo"))
    assert_open(opened(etree.tostring(root), [recipient()], attachments=sent.attachments))


def test_a_renewed_certificate_with_the_same_key_still_opens() -> None:
    renewed = pki.issue(CA, "renewed", key="rsa", label="recipient rsa")
    sent = sealed(Encryption(renewed.certificate))
    assert renewed.certificate != recipient().certificate
    assert_open(opened(sent, [recipient()]))


@pytest.mark.parametrize(
    ("encryption", "said"),
    [
        (Encryption(recipient("p256").certificate), "RSA"),
        (Encryption(recipient("p256").certificate, key=alg.RSA_1_5), "RSA"),
        (Encryption(recipient().certificate, key=alg.ECDH_ES), "does not fit"),
        (Encryption(recipient("x448").certificate, key=alg.X25519), "does not fit"),
        (Encryption(recipient("x25519").certificate, key=alg.X448), "does not fit"),
        (Encryption(recipient("ed25519").certificate, key=alg.X25519), "does not fit"),
        (Encryption(recipient("p192").certificate, key=alg.ECDH_ES), "curve"),
        (
            Encryption(recipient("x25519").certificate, key=alg.X25519, digest=alg.SHA1),
            "HKDF",
        ),
        (
            Encryption(
                pki.issue(CA, "no identifier", key="rsa", key_identifier=False).certificate,
                reference=TokenReference.SUBJECT_KEY_IDENTIFIER,
            ),
            "no subject key identifier",
        ),
    ],
)
def test_algorithms_that_do_not_fit_the_certificate_are_a_value_error(
    encryption: Encryption, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        sealed(encryption)


def test_encryption_without_entropy_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="entropy"):
        secure(SoapVersion.SOAP_12, [], ATTACHMENTS, encryption=to_rsa())


def test_the_same_entropy_gives_the_same_bytes() -> None:
    for key, kind in AGREEING:
        encryption = Encryption(recipient(kind).certificate, key=key)
        one, other = sealed(encryption), sealed(encryption)
        assert one.envelope == other.envelope
        assert [read_all(a.content, MIB) for a in one.attachments] == [
            read_all(a.content, MIB) for a in other.attachments
        ]


def test_with_rsa_only_the_wrapped_key_differs_under_the_same_entropy() -> None:
    one, other = sealed(to_rsa()), sealed(to_rsa())
    roots = [parse(made.envelope) for made in (one, other)]
    values = [find(root, "EncryptedKey", "CipherValue") for root in roots]
    assert values[0].text != values[1].text
    for value in values:
        value.text = ""
    assert etree.tostring(roots[0]) == etree.tostring(roots[1])


def test_every_iv_and_the_key_come_from_the_entropy() -> None:
    dice = Dice()
    sent = sealed(to_rsa(), entropy=dice)
    key, *ivs = dice.given
    assert len(key) == 16
    assert [read_all(one.content, MIB)[:12] for one in sent.attachments] == ivs[:3]
    assert _octets(parse(sent.envelope), "Body", "CipherValue")[:12] == ivs[3]
    assert len(set(ivs)) == 4
    _assert_plain(key, sent)


def test_other_entropy_gives_other_bytes() -> None:
    second = Dice()
    second(1)
    one, other = sealed(to_x25519()), sealed(to_x25519(), entropy=second)
    assert read_all(one.attachments[2].content, MIB) != read_all(other.attachments[2].content, MIB)


def test_the_media_type_of_an_encrypted_part_is_restored_without_parameters() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    assert find(root, "EncryptedData").get("Type") == CONTENT_ONLY
    find(root, "EncryptedData").set("MimeType", "Text/XML; charset=UTF-8")
    result = opened(etree.tostring(root), [recipient()], attachments=sent.attachments)
    assert result.decryption.attachments["one@a"].media_type == "text/xml"


def test_what_is_not_encrypted_is_handed_on_as_it_is() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1])
    other = Attachment("plain@a", BytesContent(b"plain"), "text/plain")
    result = opened(sent, [recipient()], attachments=[*sent.attachments, other])
    assert result.decryption.attachments["plain@a"] is other
    assert result.decryption.content_ids == ("one@a",)


def test_the_names_in_the_message_are_those_of_the_specifications() -> None:
    root = parse(sealed(to_x25519()).envelope)
    agreement = find(root, "AgreementMethod")
    assert [one.tag for one in agreement] == [
        f"{{{XENC11}}}KeyDerivationMethod",
        f"{{{XENC}}}OriginatorKeyInfo",
        f"{{{XENC}}}RecipientKeyInfo",
    ]
    assert find(agreement, "HKDFParams").tag == f"{{{DSIG_MORE_2021}}}HKDFParams"
    assert find(agreement, "DEREncodedKeyValue").tag == f"{{{DSIG11}}}DEREncodedKeyValue"
    key = find(root, "EncryptedKey")
    assert [etree.QName(one).localname for one in key] == [
        "EncryptionMethod",
        "KeyInfo",
        "CipherData",
        "ReferenceList",
    ]
    listed = {one.get("URI") for one in key.iter(f"{{{XENC}}}DataReference")}
    assert listed == {f"#{one.get('Id')}" for one in root.iter(f"{{{XENC}}}EncryptedData")}
    security = key.getparent()
    assert security is not None
    assert security.tag == f"{{{WSSE}}}Security"
    assert find(root, "KeyInfo").tag == f"{{{DS}}}KeyInfo"
