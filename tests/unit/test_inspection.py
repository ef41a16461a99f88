"""What an inspection makes of messages that it can only see in part."""

from datetime import UTC, datetime
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import postroad
from postroad.msh.inspection import Look, inspect_message
from postroad.msh.lens import Lens
from postroad.node.first_steps.example import http_request, order_attachment, order_message
from postroad.security.algorithms import ECDSA_SHA256, SHA256
from postroad.security.keyestablishment import Encryption
from postroad.security.secure import Secured, secure
from postroad.security.sign import Block, Signing
from postroad.wire.ebms3 import MessageInfo, Messaging, PartInfo, Reference, Transform
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.fragments import MessageFragment, write_message_fragment
from postroad.wire.multihop import (
    RoutingInput,
    infer_reverse,
    routing_user_message,
    write_routing_input,
)
from postroad.wire.names import EXC_C14N, XENC
from postroad.wire.receipts import nonrepudiation_receipt
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from tests import pki
from tests.changing import replace

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def entropy(size: int) -> bytes:
    return bytes(range(7, 7 + size))


@pytest.fixture(scope="module")
def parties():
    authority = pki.authority("Inspection CA")
    return (
        authority,
        pki.issue(authority, "signer"),
        pki.issue(authority, "reader", key="rsa"),
    )


def sent(parties, *, body: str = "", encrypted: bool = True) -> Secured:
    _, signer, reader = parties
    message = order_message(NOW)
    if body:
        message = replace(message, part_infos=(*message.part_infos, PartInfo()))
    header = write_messaging(Messaging((message,), id="_messaging"), SoapVersion.SOAP_12)
    return secure(
        SoapVersion.SOAP_12,
        [Block("_messaging", header)],
        [order_attachment()],
        signing=Signing(signer, ECDSA_SHA256),
        encryption=Encryption(reader.certificate) if encrypted else None,
        entropy=entropy,
        body_content=body,
    )


def verdicts(report) -> dict[str, bool | None]:
    return {one["uri"]: one["valid"] for one in report["signature"]["references"]}


BODY = '<o:Order xmlns:o="urn:o">1</o:Order>'


def test_without_the_key_an_encrypted_message_holds_as_far_as_one_can_see(parties):
    made = sent(parties, body=BODY)
    report = postroad.inspect(http_request(made.envelope, list(made.attachments)))
    assert report["holds"]
    assert report["signature"]["valid"] is True
    assert verdicts(report) == {
        "#_messaging": True,
        "#_body": None,
        "cid:order@buyer.example": None,
    }
    assert report["encryption"] == report["encryption"] | {"present": True, "decrypted": False}


def test_with_the_key_everything_is_checked(parties):
    made = sent(parties, body=BODY)
    report = postroad.inspect(
        http_request(made.envelope, list(made.attachments)), key=parties[2], trust=[pki_ca(parties)]
    )
    assert report["holds"]
    assert set(verdicts(report).values()) == {True}
    assert report["encryption"]["decrypted"] is True


def pki_ca(parties):
    return parties[0].certificate


def test_with_the_wrong_key_it_does_not_hold(parties):
    made = sent(parties)
    other = pki.issue(parties[0], "other", key="rsa", label="other")
    report = postroad.inspect(http_request(made.envelope, list(made.attachments)), key=other)
    assert not report["holds"]
    assert "EBMS:0102" in {e["code"] for e in report["errors"] if e["severity"] == "failure"}


def test_an_envelope_alone_is_not_blamed_for_what_was_not_captured(parties):
    made = sent(parties)
    report = postroad.inspect(made.envelope, key=parties[2])
    assert report["holds"]
    assert verdicts(report)["cid:order@buyer.example"] is None
    assert {e["severity"] for e in report["errors"]} == {"warning"}


def test_an_http_message_without_its_attachments_is_blamed(parties):
    made = sent(parties, encrypted=False)
    head = b"POST /msh HTTP/1.1\r\nContent-Type: application/soap+xml\r\n\r\n"
    report = postroad.inspect(head + made.envelope)
    assert not report["holds"]
    assert "EBMS:0007" in {e["code"] for e in report["errors"]}


def test_a_signature_that_lost_its_name_is_noticed(parties):
    made = sent(parties, encrypted=False)
    renamed = made.envelope.replace(b"ds:Signature>", b"ds:Signaturf>").replace(
        b"<ds:Signature ", b"<ds:Signaturf "
    )
    report = postroad.inspect(http_request(renamed, list(made.attachments)))
    assert not report["signature"]["present"]
    told = [e for e in report["errors"] if "Signaturf" in e["detail"]]
    assert [(e["code"], e["severity"]) for e in told] == [("EBMS:0103", "warning")]


def test_a_private_key_alone_opens_what_is_encrypted_for_it(parties, tmp_path):
    made = sent(parties, body=BODY)
    wire = http_request(made.envelope, list(made.attachments))
    key = parties[2].private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "key.pem"
    path.write_bytes(key)
    report = postroad.inspect(wire, key=path)
    assert report["encryption"]["decrypted"] is True
    assert set(verdicts(report).values()) == {True}
    other = pki.private_key("rsa", "somebody else").private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    assert not postroad.inspect(wire, key=other)["holds"]


def test_a_payload_in_the_body_has_its_type_size_and_digest(parties):
    made = sent(parties, body=BODY)
    report = postroad.inspect(http_request(made.envelope, list(made.attachments)), key=parties[2])
    payload = report["units"][0]["payloads"][1]
    assert payload["content_type"] == "application/xml"
    assert payload["size"] == len(BODY)
    assert payload["sha256"] == sha256(BODY.encode()).hexdigest()


def test_trust_and_time_are_taken_as_people_give_them(parties, tmp_path):
    made = sent(parties, encrypted=False)
    wire = http_request(made.envelope, list(made.attachments))
    path = tmp_path / "ca.pem"
    path.write_bytes(pki.pem_certificates(pki_ca(parties)))
    for trust in (path, str(path), path.read_bytes(), pki_ca(parties), [path]):
        for at in ("2026-06-01", "2026-06-01T12:00:00Z", NOW.replace(tzinfo=None), NOW):
            assert postroad.inspect(wire, trust=trust, at=at)["signature"]["trusted"] is True


@pytest.mark.parametrize("said", [b"5", b"99999"])
def test_a_wrong_content_length_is_told(parties, said):
    made = sent(parties, encrypted=False)
    wire = http_request(made.envelope, list(made.attachments))
    head, length, rest = wire.partition(b"Content-Length: ")
    report = postroad.inspect(head + length + said + rest[rest.index(b"\r\n") :])
    assert next(e["detail"] for e in report["errors"] if e["location"] == "HTTP").startswith(
        f"Content-Length is {said.decode()}"
    )


def test_a_certificate_out_of_its_time_fails_where_the_time_was_asked_for(parties):
    made = sent(parties, encrypted=False)
    wire = http_request(made.envelope, list(made.attachments))
    assert postroad.inspect(wire)["holds"]
    assert not postroad.inspect(wire, at="1999-01-01")["holds"]


def test_weak_encryption_that_is_refused_is_not_called_tampering(parties):
    _, signer, reader = parties
    header = write_messaging(Messaging((order_message(NOW),), id="_messaging"), SoapVersion.SOAP_12)
    made = secure(
        SoapVersion.SOAP_12,
        [Block("_messaging", header)],
        [order_attachment()],
        signing=Signing(signer, ECDSA_SHA256),
        encryption=Encryption(reader.certificate, data=XENC + "aes128-cbc"),
        entropy=entropy,
    )
    report = postroad.inspect(http_request(made.envelope, list(made.attachments)), key=reader)
    assert not report["holds"]
    assert {e["code"] for e in report["errors"] if e["severity"] == "failure"} == {"EBMS:0103"}
    assert verdicts(report)["cid:order@buyer.example"] is None


def test_proof_of_receipt_without_a_signature_is_warned_of():
    reference = Reference("#a", (Transform(EXC_C14N),), SHA256, b"d" * 32)
    signal = nonrepudiation_receipt([reference], message_info=MessageInfo(NOW, "r@x", "m@x"))
    envelope = write_envelope(
        SoapVersion.SOAP_12,
        [write_messaging(Messaging((signal,)), SoapVersion.SOAP_12)],
        write_body(SoapVersion.SOAP_12),
    )
    report = postroad.inspect(envelope)
    assert (report["kind"], report["holds"]) == ("receipt", True)
    assert [e["code"] for e in report["errors"]] == ["EBMS:0103"]


@pytest.mark.parametrize("year", ["2190", "9999"])
def test_a_time_of_the_message_from_nowhere_is_refused(parties, year):
    made = sent(parties, encrypted=False)
    changed = made.envelope.replace(b"<eb:Timestamp>2026", f"<eb:Timestamp>{year}".encode())
    found = {e["code"] for e in postroad.inspect(changed)["errors"] if e["severity"] == "failure"}
    assert "EBMS:0003" in found
    assert "EBMS:0003" not in {e["code"] for e in postroad.inspect(made.envelope)["errors"]}


def test_a_header_of_which_there_is_one_is_refused_when_there_are_two():
    version, message = SoapVersion.SOAP_12, order_message(NOW)
    routes = [RoutingInput(routing_user_message(message)), infer_reverse(message)]
    fragments = [MessageFragment("cid:a@b", "group", number) for number in (1, 2)]
    for name, blocks in (
        ("RoutingInput", [write_routing_input(one, version) for one in routes]),
        ("MessageFragment", [write_message_fragment(one, version) for one in fragments]),
    ):
        header = write_messaging(Messaging((message,)), version)
        report = postroad.inspect(write_envelope(version, [*blocks, header], write_body(version)))
        assert not report["holds"]
        told = [e for e in report["errors"] if "more than one" in e["detail"]]
        assert [(e["code"], name in e["location"]) for e in told] == [("EBMS:0009", True)]
        assert (report["routing"], report["fragment"]) == (None, None)


@pytest.mark.parametrize("version", list(SoapVersion))
@pytest.mark.parametrize("body", ["", "<a/>"])
def test_a_message_that_nothing_protects_is_judged_as_if_somebody_had_looked(
    version: SoapVersion, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = write_messaging(Messaging((order_message(NOW),)), version)
    envelope = write_envelope(version, [header], write_body(version, body))
    quickly = inspect_message([envelope], Lens(NOW))
    monkeypatch.setattr(Look, "_is_bare", lambda _: False)
    slowly = inspect_message([envelope], Lens(NOW))
    assert [str(one) for one in quickly.problems] == [str(one) for one in slowly.problems]
    for name in ("decryption", "verification", "trusted", "timestamp", "username_tokens", "kind"):
        assert getattr(quickly, name) == getattr(slowly, name)
