"""PKCS#12 stores of every kind of key, and the reason given for each one that does not open."""

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import PrivateFormat, pkcs12

from postroad.security.der import der_elements
from postroad.security.keys import (
    KeyPair,
    KeyStoreError,
    load_key_pair,
    load_key_pairs,
    load_opening_keys,
    load_trusted,
)
from tests.pki import authority, der, issue, p12, p12_trust, pem, pem_certificates, pem_key

ROOT = authority("Root")
ALICE = issue(ROOT, "alice")
SECRET = b"open sesame"
AES_256_CBC = bytes.fromhex("060960864801650304012a")
OTHER_CIPHER = bytes.fromhex("0609608648016503040163")
DATA = bytes.fromhex("06092a864886f70d010701")
SIGNED_DATA = bytes.fromhex("06092a864886f70d010702")

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


def _exported(folder: Path, content: bytes, *options: str) -> bytes:
    """Make a PKCS#12 store of a PEM file with openssl."""
    (folder / "in.pem").write_bytes(content)
    command = ["openssl", "pkcs12", "-export", "-in", str(folder / "in.pem")]
    command += ["-out", str(folder / "out.p12"), "-passout", "pass:" + SECRET.decode(), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return (folder / "out.p12").read_bytes()


@needs_openssl
@pytest.mark.parametrize(
    "kind", ["x25519", "x448", "ed25519", "ed448", "brainpool", "p384", "p521", "rsa"]
)
def test_a_key_of_every_kind_is_read_from_a_store_that_openssl_wrote(
    tmp_path: Path, kind: str
) -> None:
    pair = issue(ROOT, f"of kind {kind}", key=kind)
    data = _exported(tmp_path, pem(pair), "-name", "the key")
    [named] = load_key_pairs(data, SECRET)
    assert named.alias == "the key"
    assert named.pair == pair
    assert type(named.pair.private_key) is type(pair.private_key)
    assert [key.private_key for key in load_opening_keys(data, SECRET)] == [named.pair.private_key]
    assert load_trusted(data, SECRET) == (ROOT.certificate,)


@needs_openssl
@pytest.mark.parametrize("options", [(), ("-nomac",), ("-macalg", "sha512")])
def test_an_x25519_key_needs_the_right_password(tmp_path: Path, options: tuple[str, ...]) -> None:
    pair = issue(ROOT, "of kind x25519", key="x25519")
    data = _exported(tmp_path, pem(pair), *options)
    assert load_key_pair(data, SECRET) == pair
    with pytest.raises(KeyStoreError, match="does not open: the password is wrong"):
        load_key_pair(data, b"another")
    with pytest.raises(KeyStoreError, match="needs a password"):
        load_key_pair(data)


@pytest.mark.parametrize("digest", [hashes.SHA1(), hashes.SHA256(), hashes.SHA512()])
def test_a_wrong_password_is_not_taken_for_damage(digest: hashes.HashAlgorithm) -> None:
    protection = (
        PrivateFormat.PKCS12.encryption_builder().kdf_rounds(50).hmac_hash(digest).build(SECRET)
    )
    data = pkcs12.serialize_key_and_certificates(
        None, ALICE.private_key, ALICE.certificate, None, protection
    )
    with pytest.raises(KeyStoreError, match=r"the password is wrong\. Check the password"):
        load_key_pair(data, b"another")
    assert load_key_pair(data, SECRET) == KeyPair(ALICE.private_key, ALICE.certificate)


@pytest.mark.parametrize("end", [-1, -40, 500, 60, 12])
def test_a_store_that_was_cut_off_is_damaged(end: int) -> None:
    data = p12(ALICE, SECRET)[:end]
    for load in (load_key_pair, load_trusted):
        with pytest.raises(KeyStoreError, match=r"file is damaged: .*beyond the data.*\. Copy it"):
            load(data, SECRET)


def test_a_store_with_broken_lengths_inside_is_damaged() -> None:
    data = p12(ALICE, SECRET)
    at = data.index(DATA, 40) + len(DATA)
    with pytest.raises(KeyStoreError, match="file is damaged: its structure is broken"):
        load_key_pair(data[:at] + b"\xa0\x80" + data[at + 2 :], SECRET)


@needs_openssl
def test_a_cipher_that_is_not_supported_is_named(tmp_path: Path) -> None:
    data = _exported(tmp_path, pem(ALICE), "-nomac")
    assert AES_256_CBC in data
    said = r"uses encryption by 2\.16\.840\.1\.101\.3\.4\.1\.99, which is not supported\. Export"
    with pytest.raises(KeyStoreError, match=said):
        load_key_pair(data.replace(AES_256_CBC, OTHER_CIPHER), SECRET)


def test_a_store_that_is_protected_by_a_signature_is_not_supported() -> None:
    data = p12(ALICE, SECRET).replace(DATA, SIGNED_DATA, 1)
    with pytest.raises(KeyStoreError, match=r"uses integrity by a signature \(SignedData\)"):
        load_key_pair(data, SECRET)


@needs_openssl
def test_a_key_on_a_curve_that_is_not_supported_is_not_a_wrong_password(tmp_path: Path) -> None:
    command = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt")
    made = subprocess.run(
        [*command, "ec_paramgen_curve:brainpoolP320r1", "-nodes", "-keyout", "-", "-subj", "/CN=x"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    with pytest.raises(KeyStoreError, match=r"Curve 1\.3\.36\.3\.3\.2\.8\.1\.1\.9 is not supp"):
        load_key_pair(_exported(tmp_path, made.stdout), SECRET)


@needs_openssl
def test_a_store_without_a_key_or_without_a_certificate_says_so(tmp_path: Path) -> None:
    for data in (
        p12_trust([ROOT.certificate], SECRET),
        _exported(tmp_path, pem_certificates(ALICE.certificate), "-nokeys"),
    ):
        with pytest.raises(KeyStoreError, match="there is no private key inside"):
            load_key_pair(data, SECRET)
    with pytest.raises(KeyStoreError, match="private key but no certificate"):
        load_key_pair(_exported(tmp_path, pem_key(ALICE), "-nocerts"), SECRET)


@pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool here")
def test_a_java_store_of_several_keys_asks_for_an_alias(tmp_path: Path) -> None:
    store, password = tmp_path / "keys.p12", SECRET.decode()
    common = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass", password)
    for alias, *of_key in (
        ("sign", "-keyalg", "EC", "-groupname", "secp256r1"),
        ("agree", "-keyalg", "X25519", "-signer", "sign"),
    ):
        command = ["keytool", "-genkeypair", "-alias", alias, "-dname", f"CN={alias}", *of_key]
        subprocess.run([*command, *common], check=True, capture_output=True, timeout=60)
    data = store.read_bytes()
    with pytest.raises(KeyStoreError, match="2 private keys inside; name one by its alias"):
        load_key_pair(data, SECRET)
    agree = load_key_pair(data, SECRET, "agree")
    assert agree.certificate.subject.rfc4514_string() == "CN=agree"
    assert agree.chain == (load_key_pair(data, SECRET, "sign").certificate,)
    assert len(load_opening_keys(data, SECRET)) == 2


@needs_openssl
def test_a_key_with_another_password_than_its_store_is_named(tmp_path: Path) -> None:
    first = _exported(tmp_path, pem(ALICE), "-nomac", "-name", "first")
    second = _exported(
        tmp_path, pem_key(issue(ROOT, "bob")), "-nomac", "-nocerts", "-name", "second",
        "-passout", "pass:another",
    )  # fmt: skip
    safes = b"".join(_safe(data) for data in (first, second))
    content = der(0x30, DATA + der(0xA0, der(0x04, der(0x30, safes))))
    data = der(0x30, b"\2\1\3" + content)
    assert load_key_pair(data, SECRET, "first") == ALICE
    with pytest.raises(KeyStoreError, match=r"not the private key 'second'\. Give the key"):
        load_key_pair(data, SECRET, "second")


def _safe(data: bytes) -> bytes:
    """Return the content of the authenticated safe of a store."""
    content = der_elements(der_elements(data)[0][1])[1][1]
    explicit = der_elements(content)[1][1]
    return der_elements(der_elements(explicit)[0][1])[0][1]
