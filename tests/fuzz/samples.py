"""Valid inputs for the readers of other things than ebMS messages; `seeds` has the messages."""

import gzip
import hashlib
import json
import zlib
from base64 import encodebytes
from datetime import timedelta
from functools import cache
from typing import Final

from postroad.node.evidence.archive import (
    EVENTS,
    FORMAT,
    MANIFEST,
    MESSAGE_SIGNER,
    README,
    TRUSTED,
    VERDICT,
    part_name,
    signal_name,
    signer_name,
)
from postroad.wire.codings import encoded
from postroad.wire.soap import SoapVersion, value_namespaces, write_body, write_envelope
from postroad.wire.soap_faults import write_fault
from postroad.wire.wsa import EndpointReference
from postroad.wire.wsreliability import (
    FaultCode,
    Poll,
    PollRequest,
    Reply,
    ReplyPattern,
    Request,
    SequenceNum,
    write_poll_request,
    write_request,
    write_response,
)
from postroad.wire.wsrm import (
    Assurance,
    Behavior,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    Offer,
    Sequence,
    SequenceAcknowledgement,
    TerminateSequence,
    TerminateSequenceResponse,
    write_ack_requested,
    write_acknowledgement,
    write_lifecycle,
    write_sequence,
)
from postroad.wire.wsrm_faults import Code, RmFault, written_fault
from tests.fuzz import seeds
from tests.fuzz.seeds import BUYER, CA, NOW, ORDER
from tests.pki import issue, pem_certificates
from tests.unit.test_importing_cpa import cpa
from tests.unit.test_importing_domibus import CONFIGURATION
from tests.unit.test_importing_holodeck import PMODE as HOLODECK

ROUTES: Final = """\
routes:
  - id: orders
    match: {to_party: urn:example:seller, service: urn:example:purchasing, action: NewOrder}
    to: {push: https://seller.example/msh}
  - id: channel
    match: {mpc: urn:example:mpc}
    to: {push: https://channel.example/msh}
  - id: rest
    to: {push: https://other.example/msh}
"""
PULL_PMODE: Final = """\
pmodes:
  - id: prices
    mep: oneWay
    mep_binding: pull
    initiator: {party: {id: buyer, type: urn:example:names}, role: Buyer}
    responder: {party: [urn:example:seller, {id: "4711", type: t}]}
    legs:
      - business_info: {service: {value: prices, type: t}, action: Send, mpc: urn:example:mpc}
        security:
          send_receipt: {reply_pattern: callback, reply_to: https://seller.example/msh}
          username_token: {username: buyer, password: secret, digest: true}
        reception_awareness: {retry: {enabled: true, parameters: {max_retries: 3, period: PT5M}}}
"""
_ACKS_TO: Final = EndpointReference("https://buyer.example/acks")
_RECEIVER: Final = issue(CA, "receiver", key="ed25519")
_HOUR: Final = timedelta(hours=1)
_LIFECYCLE: Final[tuple[Lifecycle, ...]] = (
    CreateSequence(
        _ACKS_TO,
        _HOUR,
        Offer("urn:offered", _ACKS_TO, _HOUR, Behavior.DISCARD_FOLLOWING_FIRST_GAP),
        Assurance(True, True, True),
    ),
    CreateSequenceResponse("urn:made", _HOUR, Behavior.NO_DISCARD, _ACKS_TO),
    CloseSequence("urn:made", 3),
    CloseSequenceResponse("urn:made"),
    TerminateSequence("urn:made", 3),
    TerminateSequenceResponse("urn:made"),
)


def _fault(version: SoapVersion) -> bytes:
    made = written_fault(RmFault(Code.UNKNOWN_SEQUENCE, "not known here", "urn:made"), version)
    content = write_fault(version, made.fault)
    declared = value_namespaces(content)
    body = write_body(version, content, namespaces=declared)
    return write_envelope(version, made.header_blocks, body, namespaces=declared)


@cache
def reliable_messages() -> dict[str, bytes]:
    """Return envelopes of WS-ReliableMessaging and WS-Reliability, in both versions of SOAP."""
    made = {}
    acks = SequenceAcknowledgement("urn:made", ((1, 3), (5, 7)), (), True)
    expiry = NOW + _HOUR
    number = SequenceNum(3, True, expiry)
    request = Request(
        "urn:group",
        expiry,
        ReplyPattern.CALLBACK,
        number,
        "https://buyer.example/acks",
        *[True] * 3,
    )
    poll = PollRequest((Poll("urn:group", ((1, 3),)),), "https://buyer.example/acks")
    replies = (Reply("urn:group", 1, 3), Reply("urn:other", fault=FaultCode.INVALID_MESSAGE_ID))
    for version in SoapVersion:
        blocks = {
            "rm-headers": [
                write_sequence(Sequence("urn:made", 3), version),
                write_ack_requested("urn:made", version),
                write_acknowledgement(acks, version),
                write_acknowledgement(SequenceAcknowledgement("urn:b", (), (2, 4)), version),
            ],
            "wsr-request": [write_request(request, version)],
            "wsr-response": [write_response(replies, version)],
            "wsr-poll": [write_poll_request(poll, version)],
        }
        body = write_body(version, "")
        for name, some in blocks.items():
            made[f"{name}-{version.number}"] = write_envelope(version, some, body)
        for one in _LIFECYCLE:
            content = write_body(version, write_lifecycle(one, version))
            made[f"{type(one).__name__}-{version.number}"] = write_envelope(version, [], content)
        made[f"rm-fault-{version.number}"] = _fault(version)
    return made


@cache
def mails() -> dict[str, bytes]:
    """Return mails of each kind."""
    push = seeds.messages()["push"]
    head, _, body = push.partition(b"\r\n\r\n")
    content_type = next(
        line for line in head.split(b"\r\n") if line.lower().startswith(b"content-type:")
    )
    begin = (
        b"From: msh@buyer.example\r\nTo: msh@seller.example\r\nMIME-Version: 1.0\r\n"
        b"Message-ID: <1@buyer.example>\r\nSubject: =?utf-8?b?w6k=?= =?iso-8859-1?q?=E9_x?=\r\n"
        b'SOAPAction: "ebXML"\r\n'
    )
    envelope = seeds.ebxml_messages()["order-2.0"]
    return {
        "multipart": begin + content_type + b"\r\n\r\n" + body,
        "base64": begin
        + b"Content-Type: text/xml\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        + encodebytes(envelope).replace(b"\n", b"\r\n"),
        "quoted": begin
        + b"Content-Type: text/xml\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
        + envelope.replace(b"=", b"=3D").replace(b">", b">=\r\n"),
        "reply": begin + b"Auto-Submitted: auto-replied (away)\r\n\r\nGone.\r\n.\r\n..\r\n",
        "bounce": begin + b"Content-Type: multipart/report; boundary=b\r\n\r\n--b--\r\n",
    }


@cache
def coded() -> dict[str, bytes]:
    """Return the order in each content coding."""
    return {
        "gzip": gzip.compress(ORDER, mtime=0),
        "members": gzip.compress(ORDER, mtime=0) + gzip.compress(b"more", mtime=0),
        "zlib": zlib.compress(ORDER),
        "raw": zlib.compress(ORDER)[2:-4],
        "compress": b"".join(encoded("compress", [ORDER * 40])),
        "identity": ORDER,
    }


@cache
def submissions() -> dict[str, bytes]:
    """Return submissions to the REST interface."""
    one = {
        "pmode": "orders",
        "message_id": "order-4711@buyer.example",
        "conversation_id": "2026",
        "properties": [{"name": "originalSender", "value": "C1", "type": "urn:t"}],
        "payloads": [{"part": "order", "media_type": "text/xml", "properties": {"a": "b"}}],
    }
    made = {}
    for name, metadata in {"message": one, "bundle": {"messages": [one, one]}}.items():
        made[name] = (
            b"multipart/form-data; boundary=b\n--b\r\n"
            b'Content-Disposition: form-data; name="metadata"\r\n'
            b"Content-Type: application/json\r\n\r\n"
            + json.dumps(metadata).encode()
            + b"\r\n--b\r\n"
            b'Content-Disposition: form-data; name="order"; filename="a/b%22.xml"\r\n'
            b"Content-Type: text/xml\r\n\r\n" + ORDER + b"\r\n--b--\r\n"
        )
    return made


@cache
def agreements() -> dict[str, bytes]:
    """Return agreements of other products."""
    return {"cpa": cpa(), "holodeck": HOLODECK.encode(), "domibus": CONFIGURATION.encode()}


@cache
def evidence_files() -> dict[str, bytes]:
    """Return the files of an evidence: an order, its receipt, and what the node says of them."""
    sent = seeds.secured(encrypt=False)
    receipt = seeds.secured(seeds.receipt(sent), [], encrypt=False, signer=_RECEIVER)
    time = NOW.isoformat()
    names = {"part": part_name(1), "receipt": signal_name(1, "receipt")}
    files = {
        "message/envelope.xml": sent.envelope,
        names["part"]: gzip.compress(ORDER, mtime=0),
        names["receipt"]: receipt.envelope,
        MESSAGE_SIGNER: pem_certificates(BUYER.certificate),
        signer_name(names["receipt"]): pem_certificates(_RECEIVER.certificate),
        TRUSTED: pem_certificates(CA.certificate),
        EVENTS: b"[]",
        VERDICT: b"{}",
        README: b"An evidence.",
    }
    manifest = {
        "format": FORMAT,
        "message_id": seeds.order().message_info.message_id,
        "side": "sending",
        "node": "buyer",
        "party": "urn:example:buyer",
        "state": "acknowledged",
        "from": "urn:example:buyer",
        "to": "urn:example:seller",
        **dict.fromkeys(("created_at", "updated_at", "made_at"), time),
        "parts": [
            {
                "file": names["part"],
                "content_id": seeds.CONTENT_ID,
                "media_type": "application/gzip",
                "compressed": True,
            }
        ],
        "signals": [
            {
                "file": names["receipt"],
                "signal_id": "receipt-1@seller.example",
                "kind": "receipt",
                "at": time,
                "incoming": True,
                "believed": True,
            }
        ],
        "files": [
            {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ],
    }
    return {MANIFEST: json.dumps(manifest).encode(), **files}
