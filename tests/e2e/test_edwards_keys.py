"""Two real nodes whose keys are Ed25519 and X25519, out of PKCS#12 files that openssl wrote."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from postroad.security.keys import KeyPair
from tests.e2e.nodes import PATIENCE, make_pair, started
from tests.pki import authority, issue, pem, pem_certificates

ROOT = authority("Edwards CA", key="ed25519")


def _store(file: Path, pair: KeyPair, password: str) -> None:
    source = file.with_suffix(".in")
    source.write_bytes(pem(pair))
    command = ["openssl", "pkcs12", "-export", "-in", str(source), "-out", str(file)]
    subprocess.run(
        [*command, "-passout", f"pass:{password}"],
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    source.unlink()
    file.chmod(0o600)


def _changed(file: Path, change: Any) -> None:
    content = yaml.safe_load(file.read_text())
    change(content)
    file.write_text(yaml.safe_dump(content))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_a_message_is_signed_with_ed25519_and_encrypted_for_the_x25519_key_of_a_pkcs12_file(
    tmp_path: Path,
) -> None:
    pair = make_pair(tmp_path)
    password = "of both nodes"
    signing = {name: issue(ROOT, name, key="ed25519") for name in ("buyer", "seller")}
    opening = issue(ROOT, "seller opens", key="x25519", usage=("key_agreement",))

    def agreed(content: dict[str, Any]) -> None:
        security = content["legs"][0]["security"]
        security["x509"] = {
            "sign": True,
            "signature": {"certificate": "../keys/buyer-signs.pem", "algorithm": "eddsa-ed25519"},
            "encryption": {
                "encrypt": True,
                "certificate": "../keys/opening.pem",
                "algorithm": "aes128-gcm",
                "key_agreement": "x25519",
            },
        }
        security["send_receipt"]["certificate"] = "../keys/seller-signs.pem"

    def configured(content: dict[str, Any]) -> None:
        content["keys"] = {
            "signing": "keys/signing.p12",
            "decryption": ["keys/opening.p12"],
            "password_file": "keys/password",
        }

    for node in (pair.buyer, pair.seller):
        keys = node.folder / "keys"
        _store(keys / "signing.p12", signing[node.name], password)
        _store(keys / "opening.p12", opening, password)
        (keys / "password").write_text(password)
        (keys / "password").chmod(0o600)
        (keys / "opening.pem").write_bytes(pem_certificates(opening.certificate))
        for name, one in signing.items():
            (keys / f"{name}-signs.pem").write_bytes(pem_certificates(one.certificate))
        _changed(node.config, configured)
        _changed(node.folder / "pmodes" / "buyer-to-seller-order.yaml", agreed)
        for file in (node.folder / "pmodes").iterdir():
            if file.name != "buyer-to-seller-order.yaml":
                file.unlink()
    try:
        started(pair)
        order = tmp_path / "order.xml"
        order.write_text("<order/>")
        sent = pair.send(order, "--wait")
        assert sent.exit_code == 0, sent.output
        with pair.seller.client() as client:
            [received] = client.inbox()
            assert client.part(received.message_id) == b"<order/>"
    finally:
        pair.end()
