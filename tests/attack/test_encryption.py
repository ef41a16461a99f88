"""Ciphertext that is cut, changed, swapped, wrapped, aimed elsewhere, or never agreed on."""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from lxml import etree

import postroad
from postroad.msh.lens import Inspection
from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.security import ciphers
from postroad.security.algorithms import DATA_CIPHERS, RSA_1_5, RSA_OAEP, RSA_OAEP_MGF1P, SHA1
from postroad.security.coverage import Coverage
from postroad.security.encrypt import encrypt
from postroad.security.keyestablishment import Encryption, Unrecoverable
from postroad.wire.content import BytesContent, read_all
from postroad.wire.names import DS, S12, WSSE, XENC, XENC11
from tests import pki
from tests.attack.forging import resigned, with_ref
from tests.attack.messages import (
    BODY,
    NOW,
    TWO,
    Package,
    assert_holds,
    assert_refused,
    ca,
    entropy,
    failures,
    for_seller,
    look,
    make,
    payload,
    seller,
    write_pmode,
)
from tests.attack.sealing import (
    DATA,
    KEY,
    body_value,
    changed,
    encryption_wrappings,
    failing,
    flip,
    key_value,
    with_part,
)
from tests.attack.wrapping import FORGED_CONTENT, FORGED_PAY, consumed_is_forged
from tests.changing import replace

CBC = XENC + "aes128-cbc"
TRIPLE_DES = XENC + "tripledes-cbc"


@cache
def _message() -> Package:
    return make(TWO, body=BODY, encryption=for_seller())


def _look(message: Package | bytes, **more: object) -> dict[str, object]:
    return look(message, keys=(seller(),), **more)  # type: ignore[arg-type]


def _told(found: dict[str, object]) -> set[tuple[str, str]]:
    return {
        (error["code"], error["detail"])
        for error in failures(found)
        if error["code"] == "EBMS:0102"
    }


def test_what_is_attacked_holds() -> None:
    assert_holds(_look(_message()))


@pytest.mark.parametrize("name", failing(_message()))
def test_whatever_fails_in_decryption_is_told_in_the_same_words(name: str) -> None:
    found = _look(failing(_message())[name])
    assert_refused(found, "EBMS:0102")
    assert _told(found) == {("EBMS:0102", "the message could not be decrypted")}


def test_plaintext_that_is_no_xml_is_told_in_the_same_words_as_a_wrong_tag() -> None:
    for inside in ("no element", "<a>", "</c><c>", "<!DOCTYPE a><a/>", "<a/>&undefined;", "\0"):
        found = _look(_sealed_body(inside.encode(), unsigned=True))
        details = _told(found)
        assert not details or details == {("EBMS:0102", "the message could not be decrypted")}
        assert inside == "no element" or details, inside


def _sealed_body(inside: bytes, *, unsigned: bool = False) -> Package:
    """A message whose Body is encrypted, holding any bytes at all."""
    message = make((), body=BODY, encryption=for_seller(), unsigned=unsigned)
    key = entropy()(16)
    cipher = DATA_CIPHERS[for_seller().data]
    value = ciphers.Sealed(cipher, key, b"\0" * 12, BytesContent(inside))
    return changed(message, body_value(lambda _: read_all(value, 1 << 20)))


@pytest.mark.parametrize("data", [CBC, TRIPLE_DES])
def test_cbc_is_refused_and_where_it_is_allowed_its_padding_is_no_oracle(data: str) -> None:
    message = make(TWO, body=BODY, encryption=for_seller(data=data))
    assert_refused(_look(message), "EBMS:0103")
    assert_holds(_look(message, allow_legacy=True))
    told = set()
    for change in (
        *(flip(at) for at in range(-24, 0)),
        lambda value: value[:-1],
        lambda value: value[:8],
        lambda value: value + b"\0" * 16,
        lambda value: b"",
    ):
        found = _look(with_part(message, change), allow_legacy=True)
        assert not found["holds"]
        told |= _told(found)
    assert told == {("EBMS:0102", "the message could not be decrypted")}


def test_rsa_1_5_is_refused_and_where_it_is_allowed_its_padding_is_no_oracle() -> None:
    message = make(TWO, encryption=for_seller(key=RSA_1_5))
    assert_refused(_look(message), "EBMS:0103")
    assert_holds(_look(message, allow_legacy=True))
    told = set()
    for change in (flip(0), flip(100), flip(-1), lambda value: b"\0" * len(value)):
        found = _look(changed(message, key_value(change)), allow_legacy=True)
        assert_refused(found, "EBMS:0102")
        told |= _told(found)
    assert told == {("EBMS:0102", "the message could not be decrypted")}


def test_oaep_with_its_old_defaults_is_taken() -> None:
    assert_holds(_look(make(TWO, encryption=for_seller(key=RSA_OAEP_MGF1P, digest=SHA1))))


@pytest.mark.parametrize(
    "uri", ["", "none", "urn:x", XENC + "kw-aes128", XENC + "aes128", RSA_OAEP, XENC + "rsa-1_5x"]
)
def test_an_unknown_cipher_or_key_transport_is_refused(uri: str) -> None:
    for own in (XENC11 + "aes128-gcm", RSA_OAEP):
        if uri == own:
            continue
        found = _look(_message().replaced(f'Algorithm="{own}"', f'Algorithm="{uri}"'))
        assert_refused(found, "EBMS:0102")


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:9/x",
        "https://attacker.example/x",
        "file:///etc/passwd",
        "ftp://attacker.example/x",
        "",
        "#_body",
        "one@buyer.example",
        "cid:",
        "cid:nobody@buyer.example",
        "cid:two@buyer.example",
    ],
)
def test_a_cipher_reference_reads_parts_of_this_message_only(uri: str) -> None:
    found = _look(
        _message().replaced(
            '<xenc:CipherReference URI="cid:one@buyer.example"',
            f'<xenc:CipherReference URI="{uri}"',
        )
    )
    assert_refused(found, "EBMS:0102")


@pytest.mark.parametrize(
    "transform",
    [
        "",
        f'<ds:Transform xmlns:ds="{DS}" Algorithm="http://www.w3.org/TR/1999/REC-xslt-19991116"/>',
        f'<ds:Transform xmlns:ds="{DS}" Algorithm="{DS}base64"/>',
    ],
)
def test_a_cipher_reference_with_another_transform_is_refused(transform: str) -> None:
    def change(root: etree._Element) -> None:
        for steps in root.iter(f"{{{XENC}}}Transforms"):
            for step in list(steps):
                steps.remove(step)
            if transform:
                steps.append(etree.fromstring(transform))

    assert_refused(_look(changed(_message(), change)), "EBMS:0102")


def test_swapped_ciphertexts_are_refused() -> None:
    """Both open, as they are under one key: the signature is what tells them apart."""
    one, two = _message().parts
    swapped = _message().with_parts(
        replace(one, content=two.content), replace(two, content=one.content)
    )
    assert_refused(_look(swapped), "EBMS:0101")


def test_a_ciphertext_of_another_message_is_refused() -> None:
    other = make((payload("one", FORGED_CONTENT),), encryption=for_seller())
    moved = _message().with_parts(other.parts[0], _message().parts[1])
    assert_refused(_look(moved), "EBMS:0101", "EBMS:0102")


# Encrypting is not signing


def test_content_that_somebody_encrypted_for_us_is_not_signed(tmp_path: Path) -> None:
    """Anyone has the recipient's certificate."""
    message = make((payload("one", FORGED_CONTENT),), unsigned=True, encryption=for_seller())
    found = _look(message)
    assert found["signature"]["present"] is False
    assert [part["signed"] for part in found["parts"]] == [False]
    strict = postroad.inspect(
        message.wire(), trust=[ca().certificate], key=seller(), at=NOW, pmode=write_pmode(tmp_path)
    )
    assert_refused(strict, "EBMS:0103")


def test_an_encrypted_part_that_is_not_signed_is_refused_in_a_signed_message() -> None:
    message = make(TWO, encryption=for_seller())
    left_out = resigned(message, with_ref(message, "cid:two@buyer.example", None))
    found = _look(left_out)
    assert found["signature"]["valid"] is True
    assert [part["signed"] for part in found["parts"]] == [True, False]
    assert_refused(found, "EBMS:0103")


@pytest.mark.parametrize("body_is_open", [False, True])
def test_a_body_in_the_clear_beside_encrypted_parts_is_refused(
    tmp_path: Path, body_is_open: bool
) -> None:
    """AS4 5.1.7: with encryption all that is payload is encrypted, also the content of the Body."""
    only = Coverage((), None, only=body_is_open)
    message = make(TWO, body=BODY, encryption=for_seller(), encrypted=only)
    assert (BODY.encode() in message.envelope) is body_is_open
    pmode = write_pmode(tmp_path)
    pmode.write_text(
        pmode.read_text().replace("sign: true", "sign: true\n        encryption: {encrypt: true}")
    )
    found = postroad.inspect(
        message.wire(), trust=[ca().certificate], key=seller(), at=NOW, pmode=pmode
    )
    if not body_is_open:
        assert_holds(found)
        return
    assert_refused(found, "EBMS:0103")
    assert [one["detail"] for one in failures(found)] == [
        "the content of the Body is not encrypted"
    ]


def test_a_signed_part_that_was_encrypted_again_by_somebody_is_still_what_was_signed() -> None:
    """Whoever strips the encryption and puts another around other content changes the digest."""
    plain = make(TWO)
    sealed = encrypt(
        [payload("one", FORGED_CONTENT)], for_seller(), entropy=entropy(), id="_attacker"
    )
    forged = plain.replaced("<ds:Signature ", "".join(sealed.pieces) + "<ds:Signature ", 1)
    content = read_all(sealed.attachments[0].content, 1 << 20)
    found = _look(forged.with_parts(replace(plain.parts[0], content=content), plain.parts[1]))
    assert_refused(found, "EBMS:0101")


def test_a_forged_part_that_only_says_it_is_encrypted_is_not_shown_as_the_payload() -> None:
    """Who has no key cannot check its digest: then there is no content, and it is not signed."""
    stranger = pki.issue(ca(), "stranger", key="rsa", label="attack seller 2")
    sealed = encrypt(
        [payload("one", b"x")], Encryption(stranger.certificate), entropy=entropy(), id="_decoy"
    )
    plain = make(TWO)
    marked = plain.replaced("<ds:Signature ", "".join(sealed.pieces) + "<ds:Signature ", 1)
    forged = marked.with_parts(replace(plain.parts[0], content=FORGED_CONTENT), plain.parts[1])
    without_key = look(forged)
    shown = without_key["units"][0]["payloads"][0]
    assert (shown["size"], shown["sha256"]) == (None, None)
    assert without_key["parts"][0]["signed"] is False
    assert without_key["signature"]["references"][-2]["valid"] is None
    assert_refused(_look(forged), "EBMS:0102")


# Whose key


def test_a_message_for_another_recipient_is_refused() -> None:
    other = pki.issue(ca(), "other", key="rsa", label="attack other seller")
    message = make(TWO, encryption=Encryption(other.certificate))
    assert_refused(_look(message), "EBMS:0102")


def test_the_name_of_the_recipient_on_a_key_for_another_opens_nothing() -> None:
    other = pki.issue(ca(), "other", key="rsa", label="attack other seller")
    theirs = make(TWO, encryption=Encryption(other.certificate))
    ours = _message()
    token = _token(ours)
    swapped = theirs.replaced(_token(theirs), token)
    found = _look(swapped)
    assert _told(found) == {("EBMS:0102", "the message could not be decrypted")}


def _token(message: Package) -> str:
    root = etree.fromstring(message.envelope)
    tokens = root.findall(f".//{{{WSSE}}}BinarySecurityToken")
    return str(tokens[-1].text)


@pytest.mark.parametrize("count", [17, 1000])
def test_many_encrypted_keys_are_refused(count: int) -> None:
    def change(root: etree._Element) -> None:
        key, data = root.find(f".//{KEY}"), root.find(f".//{DATA}")
        for number in range(count):
            extra_key, extra_data = deepcopy(key), deepcopy(data)
            extra_key.set("Id", f"k{number}")
            extra_data.set("Id", f"d{number}")
            reference = extra_data.find(f".//{{{WSSE}}}Reference")
            reference.set("URI", f"#k{number}")
            key.addnext(extra_key)
            data.addnext(extra_data)

    assert_refused(_look(changed(_message(), change)), "EBMS:0102")


def test_encrypted_keys_that_nothing_uses_are_refused() -> None:
    def change(root: etree._Element) -> None:
        key = root.find(f".//{KEY}")
        for number in range(1000):
            extra = deepcopy(key)
            extra.set("Id", f"k{number}")
            key.addnext(extra)

    found = _look(changed(_message(), change))
    assert_refused(found, "EBMS:0102")
    assert len(found["errors"]) < 200


def test_a_key_is_recovered_once_however_many_parts_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two thousand parts that name one broken key are not two thousand private operations."""
    asked = 0

    def count(*_: object) -> bytes:
        nonlocal asked
        asked += 1
        raise Unrecoverable

    monkeypatch.setattr("postroad.security.decrypt.recover_key", count)

    def change(root: etree._Element) -> None:
        data = root.find(f".//{DATA}")
        for number in range(300):
            extra = deepcopy(data)
            extra.set("Id", f"d{number}")
            extra.find(f".//{{{XENC}}}CipherReference").set("URI", f"cid:{number}")
            data.addnext(extra)

    assert_refused(_look(changed(_message(), change)), "EBMS:0102")
    assert asked == 1


def test_two_keys_or_two_data_with_one_id_are_refused() -> None:
    for tag in (KEY, DATA):

        def change(root: etree._Element, tag: str = tag) -> None:
            own = root.find(f".//{tag}")
            own.addnext(deepcopy(own))

        assert_refused(_look(changed(_message(), change)), "EBMS:0102")


@pytest.mark.parametrize(
    "place", ["Messaging", "Header", "wrapper", "deep in the Body", "Signature"]
)
def test_encrypted_data_in_an_odd_place_is_refused(place: str) -> None:
    def change(root: etree._Element) -> None:
        data = deepcopy(root.find(f".//{DATA}"))
        data.set("Id", "odd")
        header, body = root.find(f"{{{S12}}}Header"), root.find(f"{{{S12}}}Body")
        wrapper = etree.Element("{urn:example:w}Wrapper")
        if place == "Messaging":
            header[-1].append(data)
        elif place == "Header":
            header.append(data)
        elif place == "wrapper":
            header.append(wrapper)
            wrapper.append(data)
        elif place == "Signature":
            next(root.iter(f"{{{DS}}}Signature")).append(data)
        else:
            body.append(wrapper)
            wrapper.append(data)

    assert_refused(_look(changed(_message(), change)), "EBMS:0102", "EBMS:0101", "EBMS:0009")


def test_encrypted_data_inside_of_encrypted_data_is_not_passed_over() -> None:
    """The Body opens to another EncryptedData: that is not an open Body."""
    inner = _message().envelope
    start = inner.index(b"<xenc:EncryptedData", inner.index(b"<S12:Body"))
    stop = inner.index(b"</xenc:EncryptedData>", start) + len(b"</xenc:EncryptedData>")
    found = _look(_sealed_body(inner[start:stop], unsigned=True))
    assert_refused(found, "EBMS:0102")
    assert found["encryption"]["decrypted"] is False


# Encryption wrapping: four modes by four weaknesses


def _consumed(found: Inspection) -> Iterator[bytes]:
    assert found.envelope is not None
    yield etree.tostring(found.envelope.body)
    for payloads in found.payloads.values():
        for one in payloads:
            if one.content is not None:
                yield read_all(one.content, 1 << 20)


def test_no_wrapping_of_encrypted_parts_gets_forged_content_through() -> None:
    tools = Tools(trust=(ca().certificate,), keys=(seller(),), at=NOW)
    fooled, looked = [], 0
    for name, message in encryption_wrappings(_message(), for_seller()):
        looked += 1
        found = inspect_source(message.wire(), tools)
        if found.holds and consumed_is_forged(list(_consumed(found))):
            fooled.append(name)
    assert looked == 160
    assert not fooled, "\n".join(fooled)


def test_a_forged_body_sealed_in_the_place_of_the_signed_one_is_refused() -> None:
    """The attacker's key and Body, whole, around the rightful header and signature."""
    forged = make(TWO, body=BODY.replace("100", FORGED_PAY), encryption=for_seller())
    own, other = (etree.fromstring(one.envelope) for one in (_message(), forged))
    for tag in (KEY, f"{{{S12}}}Body"):
        old, new = next(own.iter(tag)), next(other.iter(tag))
        old.getparent().replace(old, new)
    found = _look(replace(forged, envelope=etree.tostring(own)))
    assert found["encryption"]["decrypted"] is True
    assert_refused(found, "EBMS:0101")
