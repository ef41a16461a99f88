"""Key and trust stores as people have them, through `postroad.security.keys`."""

import base64
import contextlib
import copy
import hashlib
import pickle
import shutil
import subprocess
import warnings
from pathlib import Path
from unittest.mock import patch

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    pkcs7,
    pkcs12,
)
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from postroad.security.distinguished import issuer_matches
from postroad.security.keys import (
    KeyPair,
    KeyStoreError,
    load_certificates,
    load_key_pair,
    load_key_pairs,
    load_trusted,
)
from tests.pki import (
    authority,
    der,
    issue,
    p12,
    p12_trust,
    pem,
    pem_certificates,
    pem_key,
    private_key,
)

ROOT = authority("Root")
MIDDLE = authority("Middle", issuer=ROOT)
ALICE = issue(MIDDLE, "alice")
BOB = issue(ROOT, "bob")
SECRET = b"open sesame"

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool here")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


def _key_bytes(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _same(pair: KeyPair, other: KeyPair) -> bool:
    return pair == other and _key_bytes(pair.private_key) == _key_bytes(other.private_key)


# PEM


def test_key_certificate_and_chain_come_from_one_pem_file() -> None:
    assert _same(load_key_pair(pem(ALICE)), ALICE)


def test_an_encrypted_pem_key_opens_with_its_password() -> None:
    assert _same(load_key_pair(pem(ALICE, SECRET), SECRET), ALICE)


def test_a_password_for_a_key_that_has_none_does_no_harm() -> None:
    assert _same(load_key_pair(pem(ALICE), SECRET), ALICE)


@pytest.mark.parametrize("kind", ["p384", "brainpool", "rsa", "ed25519", "ed448", "x25519", "dsa"])
def test_a_key_of_every_kind_is_read(kind: str) -> None:
    pair = issue(ROOT, f"of kind {kind}", key=kind)
    assert _same(load_key_pair(pem(pair)), pair)


@pytest.mark.parametrize("password", [None, SECRET])
def test_the_older_pem_form_is_read(password: bytes | None) -> None:
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    key = ALICE.private_key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, protection
    )
    assert b"EC PRIVATE KEY" in key
    data = b"some words before\n" + key + pem_certificates(ALICE.certificate)
    assert load_key_pair(data, password).certificate == ALICE.certificate


def test_the_chain_is_put_in_order_and_others_are_left_out() -> None:
    data = pem_certificates(
        ROOT.certificate, BOB.certificate, MIDDLE.certificate, ALICE.certificate
    ) + pem_key(ALICE)
    assert load_key_pair(data).chain == (MIDDLE.certificate, ROOT.certificate)


def test_several_pem_keys_are_named_by_their_common_names() -> None:
    data = pem(ALICE) + pem(BOB)
    assert [named.alias for named in load_key_pairs(data)] == ["alice", "bob"]
    assert _same(load_key_pair(data, alias="Bob"), BOB)


def test_keys_without_common_names_are_named_by_their_places() -> None:
    nameless = [
        issue(ROOT, "", label=label, subject=x509.Name([x509.NameAttribute(NameOID.TITLE, label)]))
        for label in ("first", "second")
    ]
    data = b"".join(map(pem, nameless))
    assert [named.alias for named in load_key_pairs(data)] == ["1", "2"]
    assert _same(load_key_pair(data, alias="2"), nameless[1])


def test_a_pem_block_of_a_kind_that_nobody_knows_is_passed_over() -> None:
    other = "-----BEGIN SCHLÜSSEL-----\nAAAA\n-----END SCHLÜSSEL-----\n".encode()
    assert _same(load_key_pair(other + pem(ALICE)), ALICE)
    assert load_certificates(other + pem_certificates(BOB.certificate)) == (BOB.certificate,)


def test_a_windows_file_with_its_line_ends_and_mark_is_read() -> None:
    data = b"\xef\xbb\xbf" + pem(ALICE).replace(b"\n", b"\r\n")
    assert _same(load_key_pair(data), ALICE)


# what is wrong, said so that one can go on


@pytest.mark.parametrize("data", [pem(ALICE, SECRET), p12(ALICE, SECRET)])
def test_a_wrong_password_is_said(data: bytes) -> None:
    with pytest.raises(KeyStoreError, match="password is wrong"):
        load_key_pair(data, b"wrong")


@pytest.mark.parametrize("data", [pem(ALICE, SECRET), p12(ALICE, SECRET)])
def test_a_missing_password_is_said(data: bytes) -> None:
    with pytest.raises(KeyStoreError, match="password"):
        load_key_pair(data)


@pytest.mark.parametrize(
    "data",
    [
        pem_certificates(ALICE.certificate),
        ALICE.certificate.public_bytes(Encoding.DER),
        pkcs7.serialize_certificates([ALICE.certificate], Encoding.DER),
    ],
)
def test_a_file_without_a_key_is_said(data: bytes) -> None:
    said = "^there is no private key inside; use the file that was made when the certificate was re"
    with pytest.raises(KeyStoreError, match=said):
        load_key_pair(data)


def test_a_key_without_certificate_is_said() -> None:
    with pytest.raises(KeyStoreError, match="but no certificate"):
        load_key_pair(pem_key(ALICE))


def test_a_key_alone_in_der_is_said() -> None:
    with pytest.raises(KeyStoreError, match="without its certificate"):
        load_key_pair(_key_bytes(ALICE.private_key))


def test_a_key_that_does_not_fit_its_certificate_is_said() -> None:
    with pytest.raises(KeyStoreError, match=r"does not fit the certificate inside .*CN=bob"):
        load_key_pair(pem_key(ALICE) + pem_certificates(BOB.certificate))


def test_a_pair_cannot_be_made_of_what_does_not_fit() -> None:
    with pytest.raises(KeyStoreError, match="does not fit"):
        KeyPair(ALICE.private_key, BOB.certificate)


def test_several_keys_and_no_alias_is_said_with_the_aliases() -> None:
    with pytest.raises(KeyStoreError, match=r"2 private keys .*'alice', 'bob'"):
        load_key_pair(pem(ALICE) + pem(BOB))


def test_an_unknown_alias_is_said_with_the_known_ones() -> None:
    with pytest.raises(KeyStoreError, match=r"no private key has the alias 'carol'.*'alice'"):
        load_key_pair(pem(ALICE), alias="carol")


def test_an_alias_that_two_keys_have_is_said() -> None:
    twin = issue(ROOT, "alice", label="another alice")
    with pytest.raises(KeyStoreError, match="more than one"):
        load_key_pair(pem(ALICE) + pem(twin), alias="alice")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\xce\xce\xce\xce\0\0\0\2\0\0\0\1", "JCEKS .* -deststoretype PKCS12"),
        (b"\0\0\0\2\0\0\0\x14" + bytes(40), "BKS .* -deststoretype PKCS12"),
        (b"", "no key or trust store of a known kind"),
        (b"PK\3\4", "no key or trust store of a known kind"),
        (b"\x30", "cannot be read"),
        (b"\x30\x80", "cannot be read"),
        (b"-----BEGIN CERTIFICATE-----\nMIIB", "begun and not ended"),
        (b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "certificate 1"),
        (b"-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----", "base64"),
        (bytes(17 * 1024 * 1024), "larger than"),
    ],
)
@pytest.mark.parametrize("load", [load_key_pair, load_certificates])
def test_what_cannot_be_read_is_said(load: object, data: bytes, sentence: str) -> None:
    assert callable(load)
    with pytest.raises(KeyStoreError, match=sentence):
        load(data)


@pytest.mark.parametrize("algorithm", ["X25519", "X448", "Ed25519", "Ed448"])
def test_a_key_of_the_wrong_length_is_an_error_of_the_store(algorithm: str) -> None:
    """OpenSSL calls that an internal error."""
    last = {"X25519": 0x6E, "X448": 0x6F, "Ed25519": 0x70, "Ed448": 0x71}[algorithm]
    key = bytes([0x04, 9, 0x04, 7]) + bytes(7)
    inner = bytes([0x02, 1, 0, 0x30, 5, 0x06, 3, 0x2B, 0x65, last]) + key
    written = base64.b64encode(bytes([0x30, len(inner)]) + inner).decode()
    text = f"-----BEGIN PRIVATE KEY-----\n{written}\n-----END PRIVATE KEY-----\n"
    with pytest.raises(KeyStoreError, match="wrong length"):
        load_key_pair(text.encode())


def test_an_openssh_key_is_said_with_the_way_out() -> None:
    key = ALICE.private_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    with pytest.raises(KeyStoreError, match="ssh-keygen -p -m PKCS8"):
        load_key_pair(key)


def test_a_damaged_key_is_said() -> None:
    block = b"-----BEGIN PRIVATE KEY-----\nMAMCAQA=\n-----END PRIVATE KEY-----\n"
    with pytest.raises(KeyStoreError, match="does not open"):
        load_key_pair(block + pem_certificates(ALICE.certificate))


@given(st.binary(max_size=200))
def test_any_bytes_give_nothing_but_the_one_error(data: bytes) -> None:
    for start in (b"", b"\x30", b"\x30\x82\1\0\2\1\3", b"-----BEGIN CERTIFICATE-----"):
        with pytest.raises(KeyStoreError):
            load_key_pairs(start + data, SECRET)
        with pytest.raises(KeyStoreError):
            load_certificates(start + data, SECRET)


# secrets stay inside


def test_no_text_shows_key_material() -> None:
    pair = load_key_pair(pem(ALICE))
    assert repr(pair) == str(pair) == f"KeyPair({ALICE.certificate.subject.rfc4514_string()})"
    assert "private" not in repr(load_key_pairs(pem(ALICE)))


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_key_pair_does_not_leave_its_process(leave: object) -> None:
    assert callable(leave)
    with pytest.raises(TypeError, match="stays in its process"):
        leave(ALICE)


# PKCS#12


def test_a_pkcs12_store_gives_key_certificate_and_chain() -> None:
    assert _same(load_key_pair(p12(ALICE, SECRET), SECRET), ALICE)


def test_a_pkcs12_store_without_password_is_read() -> None:
    assert _same(load_key_pair(p12(ALICE)), ALICE)


def test_a_pkcs12_key_has_the_alias_of_its_store() -> None:
    [named] = load_key_pairs(p12(ALICE, SECRET, "Signing Key"), SECRET)
    assert named.alias == "Signing Key"


def test_a_pkcs12_key_without_alias_is_named_by_its_common_name() -> None:
    assert load_key_pairs(p12(ALICE, SECRET), SECRET)[0].alias == "alice"


def test_a_pkcs12_store_is_opened_once_however_often_it_is_asked() -> None:
    """Whether an RSA key is sound takes long to find out."""
    data = p12(ALICE, SECRET, "asked twice")
    with (
        patch.object(pkcs12, "load_pkcs12", wraps=pkcs12.load_pkcs12) as opened,
        patch("postroad.security.pkcs12.load_der_private_key") as opened_again,
    ):
        first, second = (load_key_pair(data, SECRET) for _ in range(2))
    assert opened.call_count == 1
    assert not opened_again.called
    assert _same(first, second)


def test_a_pkcs12_store_that_was_opened_stays_shut_for_other_passwords() -> None:
    data = p12(ALICE, SECRET, "guarded")
    load_key_pair(data, SECRET)
    for password in (b"another", None):
        with pytest.raises(KeyStoreError, match="password"):
            load_key_pair(data, password)


def test_a_pkcs12_trust_store_gives_its_certificates() -> None:
    data = p12_trust([ROOT.certificate, BOB.certificate], SECRET)
    assert load_certificates(data, SECRET) == (ROOT.certificate, BOB.certificate)
    with pytest.raises(KeyStoreError, match="no private key"):
        load_key_pair(data, SECRET)


def test_what_is_trusted_opens_with_the_password_of_the_keys_or_has_none() -> None:
    roots = [ROOT.certificate]
    for own in (SECRET, None):
        assert load_trusted(p12_trust(roots, own), SECRET) == (ROOT.certificate,)
    assert load_trusted(p12_trust(roots)) == (ROOT.certificate,)
    assert load_trusted(pem_certificates(*roots), SECRET) == (ROOT.certificate,)
    for own in (SECRET, b""):
        jks = _jks({}, {"root": ROOT.certificate}, own)
        for password in (SECRET, None):
            assert load_trusted(jks, password) == (ROOT.certificate,)


@pytest.mark.parametrize(
    ("password", "sentence"), [(None, "needs a password"), (b"another", "the password is wrong")]
)
def test_a_trust_store_that_does_not_open_says_why(password: bytes | None, sentence: str) -> None:
    with pytest.raises(KeyStoreError, match=sentence):
        load_trusted(p12_trust([ROOT.certificate], SECRET), password)


@needs_keytool
def test_a_java_trust_store_with_another_password_or_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(pem_certificates(ROOT.certificate))
    store = tmp_path / "roots.jks"
    named = ("-storetype", "JKS", "-alias", "root", "-file", tmp_path / "root.pem")
    _keytool(store, "-importcert", "-noprompt", *named)
    data = store.read_bytes()
    assert data.startswith(b"\xfe\xed\xfe\xed")
    assert load_trusted(data, SECRET) == (ROOT.certificate,)
    changed = data.replace(b"root", b"toor")
    for store_bytes, password in ((data, b"another"), (data, b""), (changed, SECRET)):
        with pytest.raises(KeyStoreError, match=r"JKS .* the password is wrong or .* damaged"):
            load_trusted(store_bytes, password)


def test_a_pkcs12_key_store_as_trust_store_gives_the_chain() -> None:
    assert load_certificates(p12(ALICE, SECRET), SECRET) == ALICE.chain


@pytest.mark.parametrize(
    ("name", "password", "subject"),
    [
        ("partyC.p12", b"ExampleC", "CN=PartyC,"),
        ("holodeck-partya-certificate.pfx", b"secrets", "CN=PartyA,"),
    ],
)
def test_stores_of_other_gateways_open(
    vectors: Path, name: str, password: bytes, subject: str
) -> None:
    data = (vectors / "as4net" / name).read_bytes()
    [named] = load_key_pairs(data, password)
    assert named.pair.certificate.subject.rfc4514_string().startswith(subject)
    assert named.alias in ("partyc", "partya")
    with pytest.raises(KeyStoreError, match="password is wrong"):
        load_key_pair(data, b"wrong")


def _run(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=60)


@needs_openssl
@pytest.mark.parametrize("cipher", ["PBE-SHA1-RC2-40", "PBE-SHA1-3DES", "AES-256-CBC"])
def test_old_and_new_ciphers_of_pkcs12_open(tmp_path: Path, cipher: str) -> None:
    (tmp_path / "in.pem").write_bytes(pem(ALICE))
    try:
        _run(
            *("openssl", "pkcs12", "-export", "-legacy", "-in", tmp_path / "in.pem"),
            *("-out", tmp_path / "out.p12", "-passout", "pass:" + SECRET.decode()),
            *("-keypbe", cipher, "-certpbe", cipher, "-macalg", "sha1", "-name", "old"),
        )
    except subprocess.CalledProcessError:
        pytest.skip("this openssl has no legacy provider")
    [named] = load_key_pairs((tmp_path / "out.p12").read_bytes(), SECRET)
    assert named.alias == "old"
    assert _same(named.pair, ALICE)


def _keytool(store: Path, *options: str | Path) -> None:
    _run("keytool", *options, "-keystore", store, "-storepass", SECRET.decode())


@needs_keytool
def test_every_key_of_a_java_pkcs12_store_is_found_by_its_alias(tmp_path: Path) -> None:
    store = tmp_path / "two.p12"
    for alias in ("sign", "decrypt"):
        _keytool(
            store,
            *("-genkeypair", "-storetype", "PKCS12", "-alias", alias, "-keyalg", "EC"),
            *("-groupname", "secp256r1", "-dname", f"CN={alias}"),
        )
    data = store.read_bytes()
    assert sorted(named.alias for named in load_key_pairs(data, SECRET)) == ["decrypt", "sign"]
    for alias in ("sign", "decrypt"):
        pair = load_key_pair(data, SECRET, alias)
        assert pair.certificate.subject.rfc4514_string() == f"CN={alias}"


# certificates alone


def test_a_pem_bundle_gives_each_certificate_once() -> None:
    data = pem_certificates(ROOT.certificate, BOB.certificate, ROOT.certificate)
    assert load_certificates(data) == (ROOT.certificate, BOB.certificate)


def test_a_key_in_the_bundle_is_not_opened() -> None:
    assert load_certificates(pem(BOB, SECRET)) == (BOB.certificate, ROOT.certificate)


def test_a_der_certificate_is_read() -> None:
    assert load_certificates(BOB.certificate.public_bytes(Encoding.DER)) == (BOB.certificate,)


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_pkcs7_bundle_is_read(encoding: Encoding) -> None:
    data = pkcs7.serialize_certificates([ROOT.certificate, BOB.certificate], encoding)
    assert set(load_certificates(data)) == {ROOT.certificate, BOB.certificate}


def test_a_file_without_certificate_is_said() -> None:
    for data in (pem_key(ALICE), _key_bytes(ALICE.private_key)):
        with pytest.raises(KeyStoreError, match="no certificate inside"):
            load_certificates(data)


def test_a_certificate_with_a_negative_serial_number_is_read_without_a_word() -> None:
    plain = issue(ROOT, "negative", serial=0x71E5DA3FEC427453).certificate
    odd = plain.public_bytes(Encoding.DER).replace(
        bytes.fromhex("71e5da3fec427453"), bytes.fromhex("f1e5da3fec427453")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [certificate] = load_certificates(odd)
    assert issuer_matches(certificate, "CN=Root,O=Postroad Tests,C=NL", -0x0E1A25C013BD8BAD)
    assert issuer_matches(certificate, "CN=Root,O=Postroad Tests,C=NL", 0xF1E5DA3FEC427453)


def test_real_certificates_in_der_are_read(vectors: Path) -> None:
    for name in ("AccessPointA", "AccessPointB"):
        [certificate] = load_certificates((vectors / "as4net" / f"{name}.cer").read_bytes())
        assert certificate.subject.rfc4514_string() == f"CN={name}"


# JKS


def _utf16(password: bytes) -> bytes:
    return password.decode().encode("utf-16-be")


def _text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2) + raw


def _block(value: bytes) -> bytes:
    return len(value).to_bytes(4) + value


def _hidden(key: bytes, password: bytes) -> bytes:
    secret, salt = _utf16(password), hashlib.sha1(key).digest()
    stream, link = b"", salt
    while len(stream) < len(key):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    cipher = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    content = salt + cipher + hashlib.sha1(secret + key).digest()
    algorithm = der(0x30, der(0x06, bytes.fromhex("2b060104012a02110101")) + der(0x05, b""))
    return der(0x30, algorithm + der(0x04, content))


def _jks(
    keys: dict[str, KeyPair],
    trusted: dict[str, x509.Certificate],
    password: bytes = SECRET,
    key_password: bytes | None = None,
    version: int = 2,
) -> bytes:
    def certificate(value: x509.Certificate) -> bytes:
        kind = _text("X.509") if version == 2 else b""
        return kind + _block(value.public_bytes(Encoding.DER))

    body = b"\xfe\xed\xfe\xed" + version.to_bytes(4) + (len(keys) + len(trusted)).to_bytes(4)
    for alias, pair in keys.items():
        chain = (pair.certificate, *pair.chain)
        hidden = _hidden(_key_bytes(pair.private_key), key_password or password)
        body += (1).to_bytes(4) + _text(alias) + bytes(8) + _block(hidden)
        body += len(chain).to_bytes(4) + b"".join(map(certificate, chain))
    for alias, value in trusted.items():
        body += (2).to_bytes(4) + _text(alias) + bytes(8) + certificate(value)
    return body + hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + body).digest()


STORE = _jks({"alice": ALICE, "bob": BOB}, {"root": ROOT.certificate})


@pytest.mark.parametrize("version", [1, 2])
def test_a_jks_key_store_gives_its_keys(version: int) -> None:
    data = _jks({"alice": ALICE, "bob": BOB}, {"root": ROOT.certificate}, version=version)
    alice, bob = load_key_pairs(data, SECRET)
    assert (alice.alias, bob.alias) == ("alice", "bob")
    assert _same(alice.pair, ALICE)
    assert _same(bob.pair, BOB)


def test_a_jks_alias_is_found_in_any_case() -> None:
    assert _same(load_key_pair(STORE, SECRET, "BOB"), BOB)


def test_an_rsa_key_comes_out_of_jks_whole() -> None:
    pair = issue(ROOT, "rsa in jks", key="rsa")
    assert _same(load_key_pair(_jks({"r": pair}, {}), SECRET), pair)


def test_a_jks_trust_store_gives_its_certificates_with_or_without_password() -> None:
    assert load_certificates(STORE, SECRET) == (ROOT.certificate,)
    assert load_certificates(STORE) == (ROOT.certificate,)


def test_a_jks_with_keys_only_gives_their_certificates() -> None:
    data = _jks({"bob": BOB}, {})
    assert load_certificates(data, SECRET) == (BOB.certificate, ROOT.certificate)


def test_a_wrong_jks_password_is_said() -> None:
    said = "password is wrong or the file is damaged; check it with keytool -list -keystore FILE"
    with pytest.raises(KeyStoreError, match=said):
        load_key_pair(STORE, b"wrong", "alice")


def test_a_jks_key_without_password_is_said() -> None:
    with pytest.raises(KeyStoreError, match="'alice' is protected; give its password"):
        load_key_pair(STORE, None, "alice")


def test_a_jks_key_with_its_own_password_is_opened_by_it() -> None:
    data = _jks({"alice": ALICE}, {}, key_password=b"another")
    with pytest.raises(KeyStoreError, match="another password than its store"):
        load_key_pair(data, SECRET)
    assert _same(load_key_pair(data, SECRET, key_password=b"another"), ALICE)


def test_a_changed_jks_is_seen_by_its_digest() -> None:
    changed = bytearray(STORE)
    changed[100] ^= 1
    with pytest.raises(KeyStoreError, match="damaged"):
        load_key_pairs(bytes(changed), SECRET)


def test_a_jks_without_key_is_said() -> None:
    with pytest.raises(KeyStoreError, match="no private key"):
        load_key_pair(_jks({}, {"root": ROOT.certificate}), SECRET)


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        (b"", "ends within its header"),
        (b"\0\0\0\3\0\0\0\0" + bytes(20), "version is 3"),
        (b"\0\0\0\2\xff\xff\xff\xff" + bytes(20), "claims 4294967295 entries"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\7\0\0" + bytes(28), "unknown kind 7"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\1\0\0" + bytes(8) + b"\xff" * 4 + bytes(20), "4294967295 bytes"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\1\0\0" + bytes(12) + b"\0\1\0\0" + bytes(20), "65536 certif"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\2\0\0" + bytes(8) + b"\0\3PGP" + bytes(24), "'PGP'"),
        (b"\0\0\0\2\0\0\0\0" + b"more" + bytes(20), "4 bytes follow"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\2\0\1\xff" + bytes(28), "Java's UTF-8"),
    ],
)
def test_a_jks_that_claims_what_it_has_not_is_refused(tail: bytes, sentence: str) -> None:
    with pytest.raises(KeyStoreError, match=sentence):
        load_certificates(b"\xfe\xed\xfe\xed" + tail)


@given(st.binary(max_size=120))
@example(b"\0\0\0\2\0\0\0\0" + bytes(20))
def test_hostile_jks_bytes_give_nothing_but_the_one_error(data: bytes) -> None:
    with pytest.raises(KeyStoreError):
        load_key_pairs(b"\xfe\xed\xfe\xed" + data, SECRET)
    with pytest.raises(KeyStoreError):
        load_certificates(b"\xfe\xed\xfe\xed" + data)


@given(st.data())
def test_a_damaged_jks_gives_nothing_but_the_one_error(data: st.DataObject) -> None:
    at = data.draw(st.integers(4, len(STORE) - 21))
    end = data.draw(st.integers(at, len(STORE) - 20))
    body = STORE[:at] + data.draw(st.binary(max_size=8)) + STORE[end:-20]
    resealed = body + hashlib.sha1(_utf16(SECRET) + b"Mighty Aphrodite" + body).digest()
    for load in (load_key_pairs, load_certificates):
        with contextlib.suppress(KeyStoreError):
            load(resealed, SECRET)


@needs_keytool
def test_a_jks_that_java_wrote_is_read_as_java_reads_it(tmp_path: Path) -> None:
    (tmp_path / "alice.p12").write_bytes(p12(ALICE, SECRET, "alice"))
    (tmp_path / "root.pem").write_bytes(pem_certificates(ROOT.certificate))
    store = tmp_path / "store.jks"
    _run(
        *("keytool", "-importkeystore", "-noprompt", "-srckeystore", tmp_path / "alice.p12"),
        *("-srcstoretype", "PKCS12", "-srcstorepass", SECRET.decode(), "-destkeystore", store),
        *("-deststoretype", "JKS", "-deststorepass", SECRET.decode()),
        *("-destkeypass", "for the key only", "-srcalias", "alice"),
    )
    _keytool(store, "-importcert", "-noprompt", "-alias", "root", "-file", tmp_path / "root.pem")
    data = store.read_bytes()
    assert data.startswith(b"\xfe\xed\xfe\xed")
    assert _same(load_key_pair(data, SECRET, key_password=b"for the key only"), ALICE)
    assert load_certificates(data, SECRET) == (ROOT.certificate,)


@needs_keytool
def test_java_reads_the_jks_that_these_tests_write(tmp_path: Path) -> None:
    store = tmp_path / "ours.jks"
    store.write_bytes(STORE)
    _keytool(store, "-exportcert", "-alias", "bob", "-file", tmp_path / "bob.der")
    assert load_certificates((tmp_path / "bob.der").read_bytes()) == (BOB.certificate,)


def test_equal_parameters_give_equal_keys() -> None:
    one, two = private_key("ec", "x"), private_key("ec", "y")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert one.public_key().public_bytes(*form) != two.public_key().public_bytes(*form)
    assert private_key("ec", "x") is one
