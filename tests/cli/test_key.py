"""`postroad key`: from a private key to a certificate that partners accept."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroad.cli.showing import print_facts, print_table
from postroad.node.settings.config import load_config
from postroad.node.settings.keyring import load_keyring, load_tls
from postroad.security.keys import KeyPair
from tests.cli.conftest import Run, one_line
from tests.pki import authority, issue, key_usage, p12, pem_certificates, pem_key

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def node(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a node without keys; the tests work beside its folder."""
    monkeypatch.chdir(tmp_path)
    made = run("init", "acme", "--own-keys", "--with-tls")
    assert made.exit_code == 0, made.output
    return Path("acme/postroad.yaml")


@pytest.fixture
def root() -> KeyPair:
    return authority("Example authority", not_before=NOW - DAY, not_after=NOW + 100 * DAY)


def issued(
    request: Path,
    ca: KeyPair,
    *,
    begin: datetime = NOW - DAY,
    end: datetime = NOW + 90 * DAY,
    usage: x509.KeyUsage | None = None,
) -> x509.Certificate:
    """The certificate that an authority issues for a request, with what it asks for."""
    asked = x509.load_pem_x509_csr(request.read_bytes())
    assert asked.is_signature_valid
    builder = x509.CertificateBuilder(
        ca.certificate.subject, asked.subject, asked.public_key(), 4711, begin, end
    )
    for one in asked.extensions:
        replaced = usage is not None and isinstance(one.value, x509.KeyUsage)
        builder = builder.add_extension(usage if replaced and usage else one.value, one.critical)
    assert isinstance(ca.private_key, ec.EllipticCurvePrivateKey)
    return builder.sign(ca.private_key, hashes.SHA256())


def saved(name: str, *certificates: x509.Certificate) -> Path:
    path = Path(name)
    path.write_bytes(pem_certificates(*certificates))
    return path


def requested(run: Run, node: Path, *options: str) -> Path:
    assert run("key", "new", "-c", node, "--kind", "ec-p256", *options).exit_code == 0
    assert run("key", "csr", "-c", node, *options, "--subject", "CN=acme,O=ACME Ltd").exit_code == 0
    return Path("acme/keys/acme.csr")


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


# key new


def test_a_new_key_can_be_read_by_its_owner_only_and_is_never_replaced(
    run: Run, node: Path
) -> None:
    done = run("key", "new", "-c", node)
    assert done.exit_code == 0
    assert "postroad key csr -c acme/postroad.yaml" in done.stdout
    assert (mode("acme/keys"), mode("acme/keys/acme.key")) == (0o700, 0o600)
    before = Path("acme/keys/acme.key").read_bytes()
    assert "acme.key exists" in one_line(run("key", "new", "-c", node))
    assert Path("acme/keys/acme.key").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("rsa-3072", "RSA, 3072 bits"),
        ("rsa-4096", "RSA, 4096 bits"),
        ("ec-p256", "EC, secp256r1"),
        ("ec-p384", "EC, secp384r1"),
        ("ed25519", "Ed25519"),
    ],
)
def test_a_self_signed_certificate_is_in_force_at_once(
    run: Run, node: Path, kind: str, shown: str
) -> None:
    done = run("key", "new", "-c", node, "--kind", kind, "--self-signed", "--days", "90")
    assert done.exit_code == 0, done.output
    assert mode("acme/keys/acme.p12") == 0o600
    tls = run(
        "key", "new", "-c", node, "--use", "tls", "--kind", "ec-p256", "--self-signed",
        "--san", "msh.acme.example", "--san", "192.0.2.7",
    )  # fmt: skip
    assert tls.exit_code == 0, tls.output
    signing, transport = json.loads(run("key", "show", "-c", node, "--json").stdout)
    assert signing["key"] == shown
    assert signing["settings"] == ["keys.signing", "keys.decryption"]
    assert signing["sha256"] in done.stdout
    assert transport["names"] == ["msh.acme.example", "192.0.2.7"]
    assert transport["settings"] == ["listen.0.tls"]


def test_a_key_that_cannot_decrypt_is_not_made_for_encryption(run: Run, node: Path) -> None:
    wrong = run("key", "new", "-c", node, "--use", "encryption", "--kind", "ed25519")
    assert "cannot decrypt" in one_line(wrong)
    assert not Path("acme/keys/acme-encryption.key").exists()


def test_keys_have_the_password_of_the_node(
    run: Run, node: Path, root: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = node.read_text()
    node.write_text(text.replace("keys:  ", "keys:\n  password_env: ACME_KEYS\n#"))
    assert "ACME_KEYS" in one_line(run("key", "new", "-c", node))
    monkeypatch.setenv("ACME_KEYS", "a secret")
    request = requested(run, node)
    assert b"ENCRYPTED" in Path("acme/keys/acme.key").read_bytes()
    files = saved("acme.crt", issued(request, root)), saved("root.pem", root.certificate)
    done = run("key", "import", *files, "-c", node)
    assert done.exit_code == 0, done.output
    monkeypatch.setenv("ACME_KEYS", "another")
    assert "password is wrong" in one_line(run("key", "show", "-c", node))


# key csr


@pytest.mark.parametrize(
    ("use", "usages", "purposes"),
    [
        (
            "messages",
            {"digital_signature", "content_commitment", "key_encipherment"},
            [ExtendedKeyUsageOID.CLIENT_AUTH],
        ),
        (
            "signing",
            {"digital_signature", "content_commitment"},
            [ExtendedKeyUsageOID.CLIENT_AUTH],
        ),
        ("encryption", {"key_encipherment"}, []),
        (
            "tls",
            {"digital_signature", "key_encipherment"},
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        ),
    ],
)
def test_a_request_asks_for_what_the_key_is_for(
    run: Run, node: Path, use: str, usages: set[str], purposes: list[x509.ObjectIdentifier]
) -> None:
    key = ("-c", node, "--use", use, "--name", "one")
    assert run("key", "new", *key).exit_code == 0
    done = run("key", "csr", *key, "--subject", "CN=acme,O=ACME Ltd,C=GB", "--san", "acme.example")
    assert done.exit_code == 0, done.output
    asked = x509.load_pem_x509_csr(Path("acme/keys/one.csr").read_bytes())
    assert asked.subject.rfc4514_string() == "CN=acme,O=ACME Ltd,C=GB"
    found = asked.extensions.get_extension_for_class(x509.KeyUsage).value
    assert found == key_usage(*usages)
    extended = [one.value for one in asked.extensions if one.oid.dotted_string == "2.5.29.37"]
    assert extended == ([x509.ExtendedKeyUsage(purposes)] if purposes else [])
    names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["acme.example"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--subject", "acme"), "CN=acme,O=ACME Ltd,C=GB"),
        (("--san", "bücher.example"), "in ASCII"),
        (("--use", "tls"), "--san HOST"),
        (("--name", "../acme"), "letters, digits"),
    ],
)
def test_a_request_that_cannot_be_is_refused_in_one_line(
    run: Run, node: Path, options: tuple[str, ...], said: str
) -> None:
    assert run("key", "new", "-c", node, "--kind", "ec-p256").exit_code == 0
    assert said in one_line(run("key", "csr", "-c", node, *options))


def test_without_a_key_there_is_no_request(run: Run, node: Path) -> None:
    assert "postroad key new" in one_line(run("key", "csr", "-c", node))


# key import


def test_the_certificate_of_a_request_is_imported_with_its_chain(
    run: Run, node: Path, root: KeyPair
) -> None:
    middle = authority(
        "Issuing authority", issuer=root, not_before=NOW - DAY, not_after=NOW + 100 * DAY
    )
    certificate = issued(requested(run, node), middle)
    files = saved("acme.crt", certificate), saved("ca.pem", root.certificate, middle.certificate)
    done = run("key", "import", *files, "-c", node)
    assert done.exit_code == 0, done.output
    assert not Path("acme/keys/acme.key").exists()
    assert mode("acme/keys/acme.p12") == 0o600
    assert Path("acme/keys/acme.pem").read_bytes() == pem_certificates(certificate)
    signing = load_keyring(load_config(node)).signing
    assert signing is not None
    assert signing.certificate == certificate
    assert signing.chain == (middle.certificate, root.certificate)


def test_a_certificate_without_its_issuer_is_imported_only_when_that_is_said(
    run: Run, node: Path, root: KeyPair
) -> None:
    file = saved("acme.crt", issued(requested(run, node), root))
    told = one_line(run("key", "import", file, "-c", node))
    assert "CN=Example authority" in told
    assert "--without-chain" in told
    assert run("key", "import", file, "-c", node, "--without-chain").exit_code == 0


def test_a_chain_without_its_root_is_not_taken_for_whole(
    run: Run, node: Path, root: KeyPair
) -> None:
    middle = authority(
        "Issuing authority", issuer=root, not_before=NOW - DAY, not_after=NOW + 100 * DAY
    )
    files = (
        saved("acme.crt", issued(requested(run, node), middle)),
        saved("middle.pem", middle.certificate),
    )
    assert "ends without a root" in one_line(run("key", "import", *files, "-c", node))


def test_the_issuer_may_be_among_those_that_the_node_trusts(
    run: Run, node: Path, root: KeyPair
) -> None:
    node.write_text(f"{node.read_text()}\ntrust: [keys/root.pem]\n")
    saved("acme/keys/root.pem", root.certificate)
    file = saved("acme.crt", issued(requested(run, node), root))
    assert run("key", "import", file, "-c", node).exit_code == 0


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("of another key", "No certificate fits the private key of acme"),
        ("expired", "expired"),
        ("not yet", "not valid before"),
        ("to issue", "does not allow it to sign"),
        ("of an impostor", "signature was not made by the key"),
        ("no certificate", "cannot be used"),
        ("not there", "cannot be read"),
    ],
)
def test_a_certificate_that_partners_would_refuse_is_refused(
    run: Run, node: Path, root: KeyPair, what: str, said: str
) -> None:
    request = requested(run, node)
    other = authority("Example authority", label="x", not_before=NOW - DAY, not_after=NOW + DAY)
    usage = key_usage("key_cert_sign")
    certificate = {
        "of another key": lambda: issue(root, "acme", label="another").certificate,
        "expired": lambda: issued(request, root, begin=NOW - 9 * DAY, end=NOW - DAY),
        "not yet": lambda: issued(request, root, begin=NOW + DAY),
        "to issue": lambda: issued(request, root, usage=usage),
        "of an impostor": lambda: issued(request, other),
    }.get(what)
    file = saved("acme.crt", certificate()) if certificate else Path("acme.crt")
    if what == "no certificate":
        file.write_text("Your request was received.")
    done = run("key", "import", file, saved("root.pem", root.certificate), "-c", node)
    assert said in one_line(done)
    assert Path("acme/keys/acme.key").exists()
    assert not Path("acme/keys/acme.p12").exists()


def test_a_renewed_certificate_of_the_same_key_replaces_the_old_one_when_asked(
    run: Run, node: Path, root: KeyPair
) -> None:
    first = issued(requested(run, node), root, end=NOW + 10 * DAY)
    top = saved("root.pem", root.certificate)
    assert run("key", "import", saved("1.crt", first), top, "-c", node).exit_code == 0
    [facts] = json.loads(run("key", "show", "acme/keys/acme.pem", "-c", node, "--json").stdout)
    assert "expires in" in facts["warning"]
    assert "acme.csr exists" in one_line(run("key", "csr", "-c", node))
    assert run("key", "csr", "-c", node, "--force").exit_code == 0
    second = saved("2.crt", issued(Path("acme/keys/acme.csr"), root))
    assert "--replace" in one_line(run("key", "import", second, top, "-c", node))
    done = run("key", "import", second, top, "-c", node, "--replace")
    assert done.exit_code == 0, done.output
    assert not list(Path("acme/keys").glob("*former*"))
    [facts] = json.loads(run("key", "show", "acme/keys/acme.pem", "-c", node, "--json").stdout)
    assert facts["warning"] is None


@pytest.mark.parametrize("kind", ["pkcs12", "pem", "two pem files"])
def test_a_key_from_elsewhere_is_imported(
    run: Run, node: Path, root: KeyPair, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = issue(root, "acme", not_before=NOW - DAY, not_after=NOW + DAY)
    files = [Path("theirs"), Path("theirs.crt")]
    if kind == "pkcs12":
        files = files[:1]
        files[0].write_bytes(p12(pair, b"secret"))
    elif kind == "pem":
        files = files[:1]
        together = pem_key(pair, b"secret") + pem_certificates(pair.certificate, root.certificate)
        files[0].write_bytes(together)
    else:
        files[0].write_bytes(pem_key(pair, b"secret"))
        files[1].write_bytes(pem_certificates(pair.certificate, root.certificate))
    assert "--password-env" in one_line(run("key", "import", *files, "-c", node))
    monkeypatch.setenv("THEIRS", "secret")
    done = run("key", "import", *files, "-c", node, "--password-env", "THEIRS")
    assert done.exit_code == 0, done.output
    signing = load_keyring(load_config(node)).signing
    assert signing is not None
    assert signing.certificate == pair.certificate


def test_another_key_in_place_of_the_old_one_leaves_the_old_one_for_decryption(
    run: Run, node: Path, root: KeyPair
) -> None:
    assert run("key", "new", "-c", node, "--self-signed", "--kind", "ec-p256").exit_code == 0
    before = Path("acme/keys/acme.p12").read_bytes()
    pair = issue(root, "acme", not_before=NOW - DAY, not_after=NOW + DAY)
    Path("new.p12").write_bytes(p12(pair))
    done = run("key", "import", "new.p12", "-c", node, "--replace")
    assert done.exit_code == 0, done.output
    assert "add it to keys.decryption" in done.stdout
    assert Path("acme/keys/acme-former-1.p12").read_bytes() == before
    assert mode("acme/keys/acme-former-1.p12") == 0o600


def test_a_key_for_tls_is_what_the_listener_shows(run: Run, node: Path, root: KeyPair) -> None:
    tls = ("--use", "tls", "-c", node)
    assert run("key", "new", *tls, "--kind", "ec-p256").exit_code == 0
    assert run("key", "csr", *tls, "--san", "msh.acme.example").exit_code == 0
    certificate = issued(Path("acme/keys/tls.csr"), root)
    files = saved("tls.crt", certificate), saved("root.pem", root.certificate)
    assert run("key", "import", *files, *tls).exit_code == 0
    [identity, _] = load_tls(load_config(node))
    assert identity is not None
    assert identity.pair.certificate == certificate


def test_another_name_is_for_a_key_that_is_not_in_force_yet(run: Run, node: Path) -> None:
    next_year = ("--name", "acme-next", "--self-signed", "--kind", "ec-p256")
    done = run("key", "new", "-c", node, *next_year)
    told = "Set it as keys.signing in acme/postroad.yaml: acme/keys/acme-next.p12"
    assert told in done.stdout


# key show


def test_a_fingerprint_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The library takes `:AB:` and `:CD:` for pictures, unless it is told not to."""
    print_facts([("SHA-1", "12:AB:34:CD:56")])
    print_table(["SHA-1"], [["12:AB:34:CD:56"]])
    assert capsys.readouterr().out.count("12:AB:34:CD:56") == 2


def test_without_keys_it_is_told_how_to_make_one(run: Run, node: Path) -> None:
    assert "postroad key new" in one_line(run("key", "show", "-c", node))


def test_a_certificate_is_shown_without_a_node(
    run: Run, tmp_path: Path, root: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTROAD_CONFIG", raising=False)
    file = Path("root.der")
    file.write_bytes(root.certificate.public_bytes(Encoding.DER))
    shown = run("key", "show", file).stdout
    for digest in (hashes.SHA1(), hashes.SHA256()):
        assert root.certificate.fingerprint(digest).hex(":").upper() in shown
    assert "keyCertSign" in shown
    assert "itself (self-signed)" in shown
