"""WSS4J verifies and opens what Postroad writes, and the reverse; Santuario does so for ebXML.

Every message of a family is tried, and a tampered copy of each; a failure names the message.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Inspection
from postroad.node.evidence.inspecting import Tools
from postroad.security.keys import KeyPair
from postroad.wire.ebxml import DIALECTS
from postroad.wire.errors import Severity
from tests import pki
from tests.interop import java, santuario_messages, wss4j_messages, wss4j_requests
from tests.interop.recordings import Recorder
from tests.interop.wss4j_keys import (
    ISSUING,
    NOW,
    RECIPIENTS,
    ROOT,
    KeyFiles,
    known_signers,
    recipient,
    write_key_files,
)
from tests.interop.wss4j_messages import AES_192, EMBEDDED, HKDF_SHA2, MD5, USERS, Written

WSS4J: Final = "WSS4J 4.0.1"
SANTUARIO: Final = "Santuario 4.0.4"
LEAST_MESSAGES: Final = 200
TRUSTED: Final = (ROOT.certificate, ISSUING.certificate, *known_signers())

TO_PEER: Final = (
    "signature algorithms",
    "digest algorithms",
    "token references",
    "payloads and compression",
    "encryption with RSA",
    "encryption with key agreement",
    "recipient references",
    "receipts and errors",
    "pull requests",
    "user name tokens",
    "bundles",
    "fragments",
    "multi-hop messages and signals",
    "WS-ReliableMessaging",
    "WS-Reliability",
    "Body content and expiry",
)
REFUSED_BY_PEER: Final = {
    EMBEDDED: (
        ("Unsupported KeyInfo type", "No certificates were found for decryption"),
        "WSS4J takes no certificate in wsse:Embedded, which WSS SOAP Message Security 1.1 has "
        "under Embedded References",
    ),
    AES_192: (
        ("BSP:R5620",),
        "WSS4J enforces Basic Security Profile 1.1 R5620, which has no AES-192; XML Encryption "
        "1.1 has it",
    ),
    HKDF_SHA2: (
        ("Integrity check failed", "checksum failed"),
        "Santuario looks for the PRF of HKDFParams in the namespace of XML Encryption 1.1, "
        "writes it in that of RFC 9231bis, and so always derives with HMAC-SHA-256",
    ),
    MD5: (
        ("unsupported SignatureMethod algorithm",),
        "No deviation: Santuario does not verify RSA with MD5, which is broken; Postroad writes it "
        "only where the P-Mode names it",
    ),
}
FROM_PEER: Final = (
    "signature algorithms",
    "digest algorithms",
    "token references",
    "recipient references",
    "attachments with Attachment-Content",
    "encryption with RSA",
    "encryption with key agreement",
    "Body content",
    "user name tokens",
)
COMPLETE: Final = "attachments with Attachment-Complete"


@dataclass(frozen=True)
class World:
    """The running peer, its key files, and a folder for messages."""

    peer: java.Peer
    files: KeyFiles
    folder: Path

    def call(self, path: str, messages: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """Run one batch and return the peer's report of each message, by its name."""
        answer = self.peer.call(path, **self.files.call(), messages=messages, **more)
        reports: dict[str, Any] = answer["messages"]
        return reports

    def keep(self, name: str, body: bytes) -> str:
        file = self.folder / name
        file.write_bytes(body)
        return str(file)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    java.build("wss4j")
    folder = tmp_path_factory.mktemp("wss4j")
    files = write_key_files(folder)
    peer = java.start("wss4j", "Main", log=folder / "peer.log")
    try:
        yield World(peer, files, folder)
    finally:
        peer.stop()


# What Postroad writes


@dataclass(frozen=True)
class Verified:
    """What WSS4J says of a message of ours, and of its tampered copy."""

    message: Written
    report: dict[str, Any]
    tampered: dict[str, Any]


@pytest.fixture(scope="module")
def verified(world: World) -> dict[str, list[Verified]]:
    """All families, checked in one call."""
    messages = wss4j_messages.written()
    calls = []
    for number, one in enumerate(messages):
        for kind, body in (("sent", one.body), ("tampered", one.tampered)):
            calls.append(
                {
                    "name": f"{kind} {one.name}",
                    "file": world.keep(f"{number:03}.{kind}", body),
                    "content_type": one.content_type,
                    "roles": one.roles,
                    "allow_rsa15": one.allow_rsa15,
                    "bouncy_castle": one.bouncy_castle,
                }
            )
    reports = world.call("verify", calls, users=USERS)
    found: dict[str, list[Verified]] = {}
    for one in messages:
        report, tampered = reports[f"sent {one.name}"], reports[f"tampered {one.name}"]
        found.setdefault(one.family, []).append(Verified(one, report, tampered))
    return found


def _differences(one: Verified) -> list[str]:
    """In what WSS4J's report is not what it should be."""
    if "error" in one.report:
        return [f"{one.message.name}: refused: {one.report['error']}"]
    wanted = {
        "signed": list(one.message.signed),
        "attachments": one.message.attachments,
        "users": list(one.message.users),
        "body": one.message.content,
    }
    got = {name: one.report[name] for name in wanted} | {"signed": sorted(one.report["signed"])}
    return [
        f"{one.message.name}: {name} is {got[name]!r}, expected {wanted[name]!r}"
        for name in wanted
        if got[name] != wanted[name]
    ]


def _case(case: str, direction: str, peer: str = WSS4J, deviation: str | None = None) -> Any:
    mark = pytest.mark.interop(peer=peer, case=case, direction=direction, deviation=deviation)
    return pytest.param(case, marks=mark, id=case)


@pytest.mark.parametrize("family", [_case(one, "to peer") for one in TO_PEER])
def test_wss4j_accepts_what_we_write_and_refuses_it_tampered(
    verified: dict[str, list[Verified]], family: str
) -> None:
    assert [said for one in verified[family] for said in _differences(one)] == []
    accepted = [one.message.name for one in verified[family] if "error" not in one.tampered]
    assert accepted == []


@pytest.mark.parametrize(
    "family",
    [_case(name, "to peer", deviation=why) for name, (_, why) in REFUSED_BY_PEER.items()],
)
def test_wss4j_still_refuses_what_it_does_not_know(
    verified: dict[str, list[Verified]], family: str
) -> None:
    expected = REFUSED_BY_PEER[family][0]
    for one in verified[family]:
        said = one.report.get("error", "accepted")
        assert any(reason in said for reason in expected), f"{one.message.name}: {said}"


def test_every_generated_message_is_in_a_row_of_the_matrix() -> None:
    messages = wss4j_messages.written()
    assert len(messages) >= LEAST_MESSAGES
    assert {one.family for one in messages} == {*TO_PEER, *REFUSED_BY_PEER}


# What WSS4J writes


@dataclass(frozen=True)
class Received:
    """A message that WSS4J wrote."""

    request: wss4j_requests.Request
    http: bytes


@pytest.fixture(scope="module")
def received(world: World) -> dict[str, list[Received]]:
    """All families, written in one call."""
    asked = wss4j_requests.requests(world.folder)
    reports = world.call("write", [one.call for one in asked])
    found: dict[str, list[Received]] = {}
    for one in asked:
        report = reports[one.name]
        assert "error" not in report, f"{one.name}: {report['error']}"
        http = _http(report["content_type"], one.file.read_bytes())
        found.setdefault(one.family, []).append(Received(one, http))
    return found


def _http(content_type: str, body: bytes) -> bytes:
    return f"POST /msh HTTP/1.1\r\nContent-Type: {content_type}\r\n\r\n".encode() + body


def _look(http: bytes, *, legacy: bool) -> Inspection:
    keys: tuple[KeyPair, ...] = tuple(recipient(kind) for kind in RECIPIENTS)
    tools = Tools(trust=TRUSTED, keys=keys, at=NOW, allow_legacy=legacy)
    return inspect_message([http], tools.lens())


def _failures(found: Inspection) -> list[str]:
    return [str(one) for one in found.problems if one.severity is Severity.FAILURE]


def _signed(found: Inspection) -> list[str]:
    """Local names of the elements that a valid signature covers, and `cid:` URLs."""
    check = found.verification
    if check is None or not check.valid:
        return []
    return sorted(
        one.reference.uri if one.element is None else str(one.element.tag).rpartition("}")[2]
        for one in check.references
    )


def _digests(found: Inspection) -> dict[str, str]:
    return {
        name: hashlib.sha256(b"".join(one.content.chunks())).hexdigest()
        for name, one in found.attachments.items()
    }


def _tampered(http: bytes) -> bytes:
    """The message with another value in its signed header."""
    old = b"conversation-1<"
    assert http.count(old) == 1
    return http.replace(old, b"conversation-2<")


@pytest.mark.parametrize("family", [_case(one, "from peer") for one in FROM_PEER])
def test_we_accept_what_wss4j_writes_and_refuse_it_tampered(
    received: dict[str, list[Received]], family: str
) -> None:
    for one in received[family]:
        found = _look(one.http, legacy=one.request.legacy)
        assert _failures(found) == [], one.request.name
        assert _signed(found) == sorted(one.request.signed), one.request.name
        assert _digests(found) == one.request.attachments, one.request.name
        if one.request.signed:
            assert found.trusted, one.request.name
            touched = _look(_tampered(one.http), legacy=one.request.legacy)
            assert any("EBMS:0101" in said for said in _failures(touched)), one.request.name


@pytest.mark.parametrize(
    "family",
    [
        _case(
            COMPLETE,
            "from peer",
            deviation="No deviation: AS4 secures attachments by content only; here more is asked",
        )
    ],
)
def test_attachments_secured_with_their_mime_headers_are_refused_with_the_reason(
    received: dict[str, list[Received]], family: str
) -> None:
    for one in received[family]:
        said = " ".join(_failures(_look(one.http, legacy=False)))
        assert "signing MIME headers with the attachment is not supported" in said, one.request.name


def test_every_requested_message_is_in_a_row_of_the_matrix(tmp_path: Path) -> None:
    asked = wss4j_requests.requests(tmp_path)
    assert len(asked) >= LEAST_MESSAGES
    assert {one.family for one in asked} == {*FROM_PEER, COMPLETE}


def test_a_few_messages_of_a_green_run_are_kept(
    verified: dict[str, list[Verified]], received: dict[str, list[Received]], recorder: Recorder
) -> None:
    """One of each family that the recipient with the RSA key can open."""
    shared = {
        "trust": pki.pem_certificates(*TRUSTED),
        "key": pki.pem(recipient("rsa")),
        "at": NOW.isoformat(),
    }
    ours = {name: one[0] for name, one in verified.items() if name in _KEPT}
    for name, sent in ours.items():
        http = _http(sent.message.content_type, sent.message.body)
        recorder.keep("wss4j", f"postroad-{_slug(name)}", "postroad", http, **shared)
    for name, came in ((name, one[0]) for name, one in received.items() if name in _KEPT):
        recorder.keep("wss4j", f"peer-{_slug(name)}", "peer", came.http, **shared)
    assert ours


_KEPT: Final = (
    "signature algorithms",
    "token references",
    "attachments with Attachment-Content",
    "encryption with RSA",
    "receipts and errors",
    "bundles",
    "multi-hop messages and signals",
    "Body content",
)


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


# ebXML


@pytest.fixture(scope="module")
def ebxml(world: World) -> list[tuple[santuario_messages.SignedEbxml, Any, Any]]:
    """Each message with what Santuario says of it and of its tampered copy."""
    messages = santuario_messages.signed_messages()
    calls = []
    for number, one in enumerate(messages):
        for kind, body in (("sent", one.body), ("tampered", one.tampered)):
            calls.append(
                {
                    "name": f"{kind} {one.name}",
                    "file": world.keep(f"ebxml-{number:03}.{kind}", body),
                    "content_type": one.content_type,
                    "signer": one.signer,
                }
            )
    reports = world.call("ebxml/verify", calls)
    return [(one, reports[f"sent {one.name}"], reports[f"tampered {one.name}"]) for one in messages]


def _ebxml_cases(direction: str) -> list[Any]:
    return [
        pytest.param(
            version,
            marks=pytest.mark.interop(
                peer=SANTUARIO, case=f"signature of ebXML {version}", direction=direction
            ),
        )
        for version in DIALECTS
    ]


@pytest.mark.parametrize("version", _ebxml_cases("to peer"))
def test_santuario_verifies_our_ebxml_signatures_and_refuses_tampered_messages(
    ebxml: list[tuple[santuario_messages.SignedEbxml, Any, Any]], version: str
) -> None:
    rows = [row for row in ebxml if row[0].version == version]
    assert rows
    for message, report, tampered in rows:
        assert report.get("valid") is True, f"{message.name}: {report}"
        held = [(one["uri"], one["valid"]) for one in report["references"]]
        assert held == [(uri, True) for uri in message.references], message.name
        assert tampered.get("valid") is False, f"{message.name}: {tampered}"


@pytest.fixture(scope="module")
def santuario_signed(world: World) -> list[tuple[santuario_messages.EbxmlRequest, bytes]]:
    asked = santuario_messages.requests(world.folder)
    reports = world.call("ebxml/sign", [one.call for one in asked])
    found = []
    for one in asked:
        report = reports[one.name]
        assert "error" not in report, f"{one.name}: {report['error']}"
        found.append((one, _http(report["content_type"], Path(one.call["file"]).read_bytes())))
    return found


@pytest.mark.parametrize("version", _ebxml_cases("from peer"))
def test_we_verify_ebxml_messages_that_santuario_signed(
    santuario_signed: list[tuple[santuario_messages.EbxmlRequest, bytes]], version: str
) -> None:
    rows = [row for row in santuario_signed if row[0].version == version]
    assert rows
    for request, http in rows:
        found = _look(http, legacy=request.legacy)
        assert _failures(found) == [], request.name
        assert "Envelope" in _signed(found), request.name
        assert found.trusted, request.name
        assert _failures(_look(_tampered(http), legacy=request.legacy)), request.name
