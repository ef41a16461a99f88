"""What an inspection makes of messages that it can only see in part."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

import postroad
from postroad.node.example import http_request, order_attachment, order_message
from postroad.security.algorithms import ECDSA_SHA256
from postroad.security.keyestablishment import Encryption
from postroad.security.secure import Secured, secure
from postroad.security.sign import Block, Signing
from postroad.wire.ebms3 import Messaging, PartInfo
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.soap import SoapVersion
from tests import pki

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
