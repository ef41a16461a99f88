"""phase4 and Postroad exchange messages by one-way push, in both directions.

Receipts are checked on both sides: Postroad's message is acknowledged by a receipt that it verified
and that its evidence proves; phase4 compares the digests of the receipt with those it signed.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from postroad.api.client_values import Message
from tests import pki
from tests.e2e.nodes import postroad
from tests.interop.matrix import DIRECTIONS
from tests.interop.phase4_lab import PEER, PHASE4, POSTROAD, TOKENS, Case, Lab, digests, pair_of
from tests.interop.recordings import Recorder
from tests.interop.relay import relay

pytestmark = pytest.mark.xdist_group("phase4")

ORDER: Final = b"<Order xmlns='urn:example:order'><ID>PO-4711</ID></Order>"
INVOICE: Final = b"<Invoice xmlns='urn:example:invoice'><ID>I-1</ID></Invoice>"
LARGE: Final = 100 * 1024 * 1024
BINARY: Final = "application/octet-stream"

_PUSHES: Final = {
    "unsigned push": Case("plain", sign=False),
    "signed push": Case("signed"),
    "signed and compressed push": Case("compressed", compress=True),
    "signed and encrypted push": Case("encrypted", encrypt=True),
    "signed, encrypted and compressed push": Case("all", encrypt=True, compress=True),
    "signed push over TLS with client certificates": Case("tls", tls=True),
    "signed, encrypted and compressed push over TLS with client certificates": Case(
        "tls-all", tls=True, encrypt=True, compress=True
    ),
    **{
        f"token reference: {token.replace('_', ' ')}": Case(token.replace("_", "-"), token=token)
        for token in TOKENS
    },
}
_SUITE_NAMES: Final = {
    "rsa": "RSA-SHA256, RSA-OAEP",
    "rsa-pss": "RSA-PSS, RSA-OAEP",
    "p256": "ECDSA and ECDH-ES on P-256",
    "brainpool": "ECDSA and ECDH-ES on brainpoolP256r1",
    "ed25519": "Ed25519, X25519",
}
_SUITES: Final = {
    f"algorithms: {name}": Case(f"suite-{suite}", suite=suite, encrypt=True)
    for suite, name in _SUITE_NAMES.items()
}
_CASES: Final = _PUSHES | _SUITES
_REFERENCES: Final = {
    "binary_security_token": "DIRECT_REF",
    "pki_path": "DIRECT_REF",
    "issuer_serial": "ISSUER_SERIAL",
    "subject_key_identifier": "KEY_IDENTIFIER",
    "thumbprint": "THUMBPRINT_SHA1",
}


def _both(direction: str) -> list[Any]:
    return [
        pytest.param(
            case,
            id=case.name,
            marks=pytest.mark.interop(peer=PEER, case=name, direction=direction),
        )
        for name, case in _CASES.items()
    ]


@pytest.fixture(scope="module")
def lab(phase4: Lab) -> Lab:
    phase4.agree(*_CASES.values())
    return phase4


def subject(party: str, suite: str) -> str:
    return pair_of(party, suite).certificate.subject.rfc4514_string()


def assert_proven(lab: Lab, message: Message, *, signed: bool) -> None:
    """The message was acknowledged, and the evidence says by what."""
    assert message.state == "acknowledged", message.detail
    with lab.client() as client:
        [receipt] = client.signals(message.message_id)
        assert (receipt.kind, receipt.incoming, receipt.valid) == ("receipt", True, True)
        proof = client.evidence_to(message.message_id, lab.folder / "payloads" / "proof.zip")
    shown = postroad("inspect", proof, "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["holds"] is True
    [receipt_found] = found["receipts"]
    assert all(one["equal"] for one in receipt_found["digests"])
    assert bool(receipt_found["digests"]) is signed


def assert_peer_has(lab: Lab, message: Message, case: Case, payloads: Sequence[bytes]) -> None:
    """phase4 received what was sent, secured as agreed."""
    received = lab.peer_received(message.message_id)
    assert [one["sha256"] for one in received["payloads"]] == digests(payloads)
    assert [one["compressed"] for one in received["payloads"]] == [case.compress] * len(payloads)
    assert (received["signed"], received["encrypted"]) == (case.sign, case.encrypt)
    if case.sign:
        assert received["signer"] == subject(POSTROAD, case.suite)
        assert received["reference"] == _REFERENCES[case.token]
    assert ("tlsClient" in received) is case.tls


@pytest.mark.parametrize("case", _both("to peer"))
def test_phase4_takes_a_message_and_its_receipt_is_proof(lab: Lab, case: Case) -> None:
    message = lab.send(case.name, ORDER)
    assert_proven(lab, message, signed=case.sign)
    assert_peer_has(lab, message, case, [ORDER])


@pytest.mark.parametrize("case", _both("from peer"))
def test_a_message_of_phase4_is_delivered_and_its_receipt_compared(
    lab: Lab, case: Case, request: pytest.FixtureRequest
) -> None:
    if case.suite != "rsa":
        lab.sign_receipts_with(case.suite)
        request.addfinalizer(lambda: lab.sign_receipts_with("rsa"))
    answer = lab.peer_send(case.name, ORDER)
    assert answer["result"] == "SUCCESS", answer
    assert answer["comparison"] == ("equal" if case.sign else "not applicable"), answer
    assert answer["signal"]["signed"] is case.sign
    if case.sign:
        assert answer["signal"]["signer"] == subject(POSTROAD, case.suite)
    with lab.client() as client:
        received = client.received(answer["messageId"])
        assert client.part(answer["messageId"]) == ORDER
    assert received.state == "delivered"
    assert received.from_party == PHASE4
    assert [one.compressed for one in received.parts] == [case.compress]


@pytest.mark.interop(peer=PEER, case="several payloads", direction="to peer")
def test_phase4_takes_several_payloads(lab: Lab) -> None:
    case, payloads = lab.cases["all"], [ORDER, INVOICE, bytes(range(256)) * 40]
    message = lab.send(case.name, *payloads)
    assert_proven(lab, message, signed=True)
    assert_peer_has(lab, message, case, payloads)


@pytest.mark.interop(peer=PEER, case="several payloads", direction="from peer")
def test_several_payloads_of_phase4_are_delivered(lab: Lab) -> None:
    payloads = [ORDER, INVOICE, bytes(range(256)) * 40]
    answer = lab.peer_send("all", *payloads)
    assert (answer["result"], answer["comparison"]) == ("SUCCESS", "equal"), answer
    with lab.client() as client:
        received = client.received(answer["messageId"])
    assert [one.sha256 for one in received.parts] == digests(payloads)


@pytest.fixture(scope="module")
def large(lab: Lab) -> tuple[Path, str]:
    """A file of 100 MB, and its digest."""
    path = lab.folder / "payloads" / "large"
    block = bytes(range(256)) * 4096
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(LARGE // len(block)):
            file.write(block)
            digest.update(block)
    return path, digest.hexdigest()


@pytest.mark.interop(peer=PEER, case="100 MB, signed", direction="to peer")
def test_phase4_takes_a_large_message(lab: Lab, large: tuple[Path, str]) -> None:
    path, digest = large
    message = lab.send("signed", path, media_type=BINARY)
    assert_proven(lab, message, signed=True)
    [payload] = lab.peer_received(message.message_id)["payloads"]
    assert (payload["size"], payload["sha256"]) == (LARGE, digest)


@pytest.mark.interop(peer=PEER, case="100 MB, signed", direction="from peer")
def test_a_large_message_of_phase4_is_delivered(lab: Lab, large: tuple[Path, str]) -> None:
    path, digest = large
    answer = lab.peer_send("signed", path, media_type=BINARY)
    assert (answer["result"], answer["comparison"]) == ("SUCCESS", "equal"), answer
    with lab.client() as client:
        [part] = client.received(answer["messageId"]).parts
    assert (part.size, part.sha256) == (LARGE, digest)


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(
            suite,
            marks=[
                pytest.mark.interop(peer=PEER, case=f"algorithms: {name}", direction=direction)
                for direction in DIRECTIONS
            ],
        )
        for suite, name in _SUITE_NAMES.items()
    ],
)
def test_compressed_messages_of_each_suite_are_recorded(
    lab: Lab, recorder: Recorder, suite: str
) -> None:
    """Both directions with their receipts; kept for machines without Java with --record."""
    keys = [pair_of(party, suite, "encryption") for party in (POSTROAD, PHASE4)]
    authority = pair_of(POSTROAD, suite).chain[-1]
    with relay(lab.peer_url(suite)) as tap:
        case = Case(f"recorded-{suite}", suite=suite, encrypt=True, compress=True, address=tap.url)
        lab.agree(case)
        assert lab.send(case.name, ORDER).state == "acknowledged"
        tap.target = lab.url()
        lab.sign_receipts_with(suite)
        assert lab.peer_send(case.name, ORDER, url=tap.url)["result"] == "SUCCESS"
        lab.sign_receipts_with("rsa")
    ours, theirs = tap.exchanges
    for name, writer, message in (
        ("message-to-peer", "postroad", ours.as_request()),
        ("receipt-of-peer", "peer", ours.as_response()),
        ("message-of-peer", "peer", theirs.as_request()),
        ("receipt-to-peer", "postroad", theirs.as_response()),
    ):
        recorder.keep(
            f"phase4-{suite}",
            name,
            writer,
            message,
            trust=pki.pem_certificates(authority),
            key=b"".join(pki.pem(one) for one in keys),
            at=ours.at,
        )
