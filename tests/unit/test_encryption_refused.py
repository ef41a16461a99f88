"""What was touched, or is built in another way, stays closed and says no more than that."""

import base64
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.attachments import COMPLETE
from postroad.security.keyestablishment import Encryption
from postroad.security.tokens import TokenReference
from postroad.wire.errors import Severity
from postroad.wire.limits import Limits
from postroad.wire.names import XENC
from postroad.wire.soap import read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace
from tests.naming import short
from tests.unit.encrypting import (
    ATTACHMENTS,
    CLOSED,
    SHAKY,
    WRAPS,
    Dice,
    find,
    opened,
    recipient,
    sealed,
    tampered,
    to_rsa,
    to_x25519,
)


@pytest.mark.parametrize("at", [0, 11, 12, 500, -17, -16, -1])
def test_a_touched_bit_anywhere_keeps_the_attachment_closed(at: int) -> None:
    sent = sealed(to_rsa(), body="")
    one, two, three = sent.attachments
    touched = [one, tampered(two, at), three]
    result = opened(sent, [recipient()], attachments=touched)
    assert result.details == [CLOSED]
    assert result.codes == {"EBMS:0102"}
    assert result.decryption.decrypted is False
    assert result.decryption.attachments["two@a"] is touched[1]
    assert result.plain["one@a"] == ("application/xml", b"<order/>")


def _with_octets(envelope: bytes, change: Callable[[bytes], bytes], *names: str) -> bytes:
    root = parse(envelope)
    element = find(root, *names)
    data = change(base64.b64decode(element.text or ""))
    element.text = base64.b64encode(data).decode()
    return etree.tostring(root)


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes((data[at] ^ 1,)) + data[at:][1:]


@pytest.mark.parametrize(
    "change",
    [_flip(0), _flip(5), _flip(100), lambda data: data[:-1], lambda data: b"", lambda d: d + b"x"],
)
@pytest.mark.parametrize("key", [alg.RSA_OAEP, alg.RSA_OAEP_MGF1P, alg.RSA_1_5], ids=short)
def test_a_touched_key_says_no_more_than_a_touched_content(
    key: str, change: Callable[[bytes], bytes]
) -> None:
    sent = sealed(to_rsa(key=key), attachments=ATTACHMENTS[:1], body="")
    envelope = _with_octets(sent.envelope, change, "EncryptedKey", "CipherValue")
    touched_key = opened(envelope, [recipient()], attachments=sent.attachments, algorithms=SHAKY)
    touched_content = opened(
        sent, [recipient()], attachments=[tampered(sent.attachments[0], 20)], algorithms=SHAKY
    )
    assert [str(problem) for problem in touched_key.decryption.problems] == [
        str(problem) for problem in touched_content.decryption.problems
    ]
    assert touched_key.details == [CLOSED]


@pytest.mark.parametrize(
    "names",
    [
        ("EncryptedKey", "CipherValue"),
        ("OriginatorKeyInfo", "DEREncodedKeyValue"),
        ("Salt",),
        ("Body", "CipherValue"),
    ],
)
def test_a_touched_bit_of_a_key_agreement_keeps_the_message_closed(names: Sequence[str]) -> None:
    sent = sealed(to_x25519(), attachments=())
    at = -1 if names[0] == "OriginatorKeyInfo" else 3
    envelope = _with_octets(sent.envelope, lambda d: _flip(len(d) - 1 if at < 0 else at)(d), *names)
    result = opened(envelope, [recipient("x25519")])
    assert result.details == [CLOSED]
    assert b"copper" not in etree.tostring(result.envelope.root)


@pytest.mark.parametrize(
    ("encryption", "kind"),
    [
        (to_rsa(), "rsa"),
        (to_rsa(), "p256"),
        (to_x25519(), "x25519"),
        (to_x25519(), "x448"),
        (to_x25519(), "p256"),
        (to_x25519(), "rsa"),
    ],
)
def test_the_key_of_somebody_else_opens_nothing_though_the_message_names_it(
    encryption: Encryption, kind: str
) -> None:
    other = recipient(kind, "somebody else")
    named = other.certificate.public_bytes(pki.Encoding.DER)
    sent = sealed(encryption)
    envelope = _with_octets(sent.envelope, lambda _: named, "BinarySecurityToken")
    result = opened(envelope, [other], attachments=sent.attachments)
    assert set(result.details) == {CLOSED}
    assert result.decryption.decrypted is False


def test_a_message_for_somebody_else_is_told_with_the_name() -> None:
    result = opened(sealed(to_rsa()), [recipient("x25519")])
    assert result.decryption.present
    assert not result.decryption.decrypted
    assert "recipient rsa" in result.details[0]
    assert all(p.severity is Severity.FAILURE for p in result.decryption.problems)


def test_without_any_key_an_encrypted_message_is_no_failure() -> None:
    for form, said in (
        (
            TokenReference.BINARY_SECURITY_TOKEN,
            "it is encrypted for CN=recipient rsa,O=Postroad Tests,C=NL, whose key was not given",
        ),
        (TokenReference.THUMBPRINT, "it is encrypted, and no key to open it was given"),
    ):
        result = opened(sealed(replace(to_rsa(), reference=form)), [])
        assert result.details == [said]
        assert result.decryption.present
        assert not result.decryption.decrypted
        assert {p.severity for p in result.decryption.problems} == {Severity.WARNING}


def _changed(change: Callable[[etree._Element], None], encryption: Encryption | None = None) -> str:
    sent = sealed(encryption or to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    change(root)
    pairs = [recipient(), recipient("x25519"), recipient("p256")]
    result = opened(etree.tostring(root), pairs, attachments=sent.attachments)
    assert result.decryption.decrypted is False
    assert result.codes == {"EBMS:0102"}
    assert all(problem.location for problem in result.decryption.problems), "where it is"
    return "; ".join(result.details)


def _set(value: str, attribute: str, *names: str) -> Callable[[etree._Element], None]:
    return lambda root: find(root, *names).set(attribute, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("http://example.com/a", "URI", "CipherReference"), "no attachment of this message"),
        (_set("file:///a", "URI", "CipherReference"), "no attachment of this message"),
        (_set("cid:other@a", "URI", "CipherReference"), "no attachment of this message"),
        (_set("", "URI", "CipherReference"), "no attachment of this message"),
        (_set(COMPLETE, "Type", "EncryptedData"), f"encrypted as {COMPLETE!r} is not supported"),
        (_set(XENC + "Content", "Type", "EncryptedData"), "is not supported"),
        (_set("urn:x", "Algorithm", "Transforms", "Transform"), "transforms"),
        (_set("urn:x", "Algorithm", "EncryptedData", "EncryptionMethod"), "not supported"),
        (_set("urn:x", "Algorithm", "EncryptedKey", "EncryptionMethod"), "not supported"),
        (_set("urn:x", "Algorithm", "DigestMethod"), "unknown digest"),
        (_set("urn:x", "Algorithm", "MGF"), "unknown digest or mask"),
        (_set("#nowhere", "URI", "EncryptedData", "Reference"), "nowhere"),
        (_set("#_key-token", "URI", "EncryptedData", "Reference"), "names no EncryptedKey"),
    ],
)
def test_encrypted_data_of_another_build_is_not_opened(
    change: Callable[[etree._Element], None], said: str
) -> None:
    assert said in _changed(change)


def _p256() -> Encryption:
    return Encryption(recipient("p256").certificate, key=alg.ECDH_ES, derivation=alg.CONCAT_KDF)


def _replaced_text(text: str, *names: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        find(root, *names).text = text

    return change


def _removed(*names: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        element = find(root, *names)
        parent = element.getparent()
        assert parent is not None
        parent.remove(element)

    return change


UNKNOWN_KEY: Final = base64.b64encode(
    pki.der(0x30, pki.der(0x30, pki.der(0x06, b"\x2b\x65\x01")) + pki.der(0x03, bytes(33)))
).decode()


@pytest.mark.parametrize(
    ("encryption", "change", "said"),
    [
        (to_x25519(), _set("urn:x", "Algorithm", "KeyDerivationMethod"), "key derivation by"),
        (to_x25519(), _set("urn:x", "Algorithm", "PRF"), "unknown PRF"),
        (to_x25519(), _replaced_text("32", "KeyLength"), "lengths that do not fit"),
        (to_x25519(), _replaced_text("A" * 1400, "Salt"), "lengths that do not fit"),
        (to_x25519(), _removed("PRF"), "PRF"),
        (to_x25519(), _removed("OriginatorKeyInfo"), "exactly one OriginatorKeyInfo"),
        (to_x25519(), _removed("RecipientKeyInfo"), "exactly one RecipientKeyInfo"),
        (to_x25519(), _removed("DEREncodedKeyValue"), "no key value that is supported"),
        (to_x25519(), _replaced_text("AAAA", "DEREncodedKeyValue"), CLOSED),
        (to_x25519(), _replaced_text(UNKNOWN_KEY, "DEREncodedKeyValue"), CLOSED),
        (to_x25519(), _replaced_text("*", "DEREncodedKeyValue"), "not base64"),
        (_p256(), _set("urn:oid:1.2.3", "URI", "NamedCurve"), "the curve '1.2.3'"),
        (_p256(), _set("urn:oid:1.3.132.0.34", "URI", "NamedCurve"), CLOSED),
        (_p256(), _replaced_text("AAAA", "ECKeyValue", "PublicKey"), CLOSED),
        (_p256(), _set("zz", "PartyUInfo", "ConcatKDFParams"), "not hexadecimal"),
        (_p256(), _set("0100", "PartyUInfo", "ConcatKDFParams"), "whole octets"),
        (_p256(), _set("00" * 2000, "PartyUInfo", "ConcatKDFParams"), "too long"),
        (_p256(), _set("0001", "PartyUInfo", "ConcatKDFParams"), CLOSED),
        (_p256(), _set("urn:x", "Algorithm", "ConcatKDFParams", "DigestMethod"), "unknown digest"),
        (
            _p256(),
            _set(XENC + "kw-aes256", "Algorithm", "EncryptedKey", "EncryptionMethod"),
            CLOSED,
        ),
    ],
)
def test_a_key_agreement_of_another_build_is_not_opened(
    encryption: Encryption, change: Callable[[etree._Element], None], said: str
) -> None:
    assert said in _changed(change, encryption)


def test_a_key_wrap_without_key_agreement_is_not_supported() -> None:
    change = _set(WRAPS[0], "Algorithm", "EncryptedKey", "EncryptionMethod")
    assert "not supported" in _changed(change)


def test_the_point_at_infinity_and_small_orders_open_nothing() -> None:
    zero = bytes.fromhex("302a300506032b656e032100") + bytes(32)
    text = base64.b64encode(zero).decode()
    assert _changed(_replaced_text(text, "DEREncodedKeyValue"), to_x25519()) == CLOSED


def test_encrypted_data_in_another_place_is_reported_and_left_closed() -> None:
    sent = sealed(to_rsa(), attachments=())
    root = parse(sent.envelope)
    body = read_envelope(root).body
    aside = etree.SubElement(body, "{urn:aside}aside")
    aside.append(body[0])
    result = opened(etree.tostring(root), [recipient()])
    assert "EncryptedData is not expected here and was not opened" in result.details
    assert not result.decryption.decrypted
    assert result.decryption.present


def test_a_key_that_opens_nothing_is_reported() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    _removed("EncryptedData")(root)
    result = opened(etree.tostring(root), [recipient()], attachments=sent.attachments)
    assert result.details == ["this EncryptedKey is not used by any EncryptedData"]
    assert result.decryption.present


def test_an_attachment_cannot_be_encrypted_twice() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    data = find(root, "EncryptedData")
    again = parse(etree.tostring(data))
    again.set("Id", "again")
    data.addnext(again)
    result = opened(etree.tostring(root), [recipient()], attachments=sent.attachments)
    assert result.details == ["the attachment is encrypted more than once"]
    assert not result.decryption.decrypted


def test_the_number_of_keys_is_limited() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:2], body="")
    root = parse(sent.envelope)
    key, second = find(root, "EncryptedKey"), list(root.iter(f"{{{XENC}}}EncryptedData"))[1]
    other = parse(etree.tostring(key))
    other.set("Id", "other")
    key.addnext(other)
    find(second, "Reference").set("URI", "#other")
    envelope = etree.tostring(root)
    assert opened(envelope, [recipient()], attachments=sent.attachments).decryption.decrypted
    limited = opened(
        envelope, [recipient()], attachments=sent.attachments, limits=Limits(encrypted_keys=1)
    )
    assert "more than 1 EncryptedKeys" in limited.details


def test_the_number_of_encrypted_parts_is_limited() -> None:
    result = opened(sealed(to_rsa()), [recipient()], limits=Limits(references=3))
    assert "too many encrypted parts" in result.details
    assert not result.decryption.decrypted


def test_a_body_that_decrypts_to_something_else_than_xml_stays_closed() -> None:
    dice = Dice()
    sent = sealed(to_rsa(), attachments=(), entropy=dice)
    for plain in (b"<a>", b"</c><c>", b"\xff", b"<!DOCTYPE a><a/>", b"&x;"):
        blob = dice.given[1] + AESGCM(dice.given[0]).encrypt(dice.given[1], plain, None)
        envelope = _with_octets(sent.envelope, lambda _, blob=blob: blob, "Body", "CipherValue")
        result = opened(envelope, [recipient()])
        assert result.details == [CLOSED]
