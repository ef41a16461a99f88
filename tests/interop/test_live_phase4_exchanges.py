"""Pulling and two-way exchanges between phase4 and Postroad, as far as phase4 goes."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from postroad.api.client import Client
from tests.e2e.nodes import until
from tests.interop.phase4_lab import (
    AGREEMENT,
    PATIENCE,
    PEER,
    PHASE4,
    POSTROAD,
    ROLES,
    SERVICE,
    Case,
    Lab,
)
from tests.interop.relay import Relay, relay

pytestmark = pytest.mark.xdist_group("phase4")

ORDER: Final = b"<Order xmlns='urn:example:order'><ID>PO-4711</ID></Order>"
REPLY: Final = "<Confirmation xmlns='urn:example:order'>PO-4711</Confirmation>"
CORNERS: Final = {"originalSender": "urn:example:c1", "finalRecipient": "urn:example:c4"}
"""phase4 copies these properties of a request into its reply, and needs both to write one."""
_PULLED_BARE: Final = (
    "phase4 answers a PullRequest with an unsigned message without payloads, whatever its P-Mode "
    "says. ebMS 3.0 Core, One-Way/Pull: what is pulled is a user message like any other."
)
_SIGNED_RECEIPT: Final = (
    "phase4 does not take a signed receipt in a request of its own: it finds no P-Mode for it and "
    "answers EBMS:0004. ebMS 3.0 Core: with SendReceipt.ReplyPattern = callback receipts "
    "are sent so."
)
_PROPERTIES: Final = (
    "phase4 fails to build a reply to a request without the properties originalSender and "
    "finalRecipient. ebMS 3.0 Core: eb:MessageProperties occurs zero or one times."
)
_LOST_PAYLOAD: Final = (
    "phase4 pushes a reply whose header names a payload that it left out. ebMS 3.0 Core: "
    "eb:PartInfo/@href names a payload of the message."
)
_NO_RECEIPT: Final = (
    "phase4 answers a synchronous request with the reply alone, never with a receipt for the "
    "request, so Postroad's P-Mode asks for none. AS4 1.0 lets a receipt be bundled with the "
    "reply, and does not demand it."
)


def to_peer(case: str, deviation: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.interop(peer=PEER, case=case, direction="to peer", deviation=deviation)


def from_peer(case: str, deviation: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.interop(peer=PEER, case=case, direction="from peer", deviation=deviation)


def _side(party: str, role: str) -> dict[str, str]:
    return {"party": party, "role": f"{ROLES}{role}"}


@pytest.fixture(scope="module")
def lab(phase4: Lab) -> Lab:
    return phase4


@pytest.fixture(scope="module")
def between() -> Iterator[Relay]:
    with relay("http://127.0.0.1:9/") as made:
        yield made


def errors_of(client: Client, message_id: str) -> list[str | None]:
    return [one.error_code for one in client.events(message_id)]


def pulled(lab: Lab, name: str, sender: str, *, sign: bool) -> str:
    """Agree on messages that the receiver pulls; return their channel."""
    case, channel = Case(name, sign=sign), f"http://{name}.example/channel"
    receiver = PHASE4 if sender == POSTROAD else POSTROAD
    security = lab.security(case, sender, receiver)
    security["send_receipt"]["reply_pattern"] = "callback"
    anchors = {"anchor_certificates": ["../keys/authority.pem"]}
    protocol: dict[str, Any] = {"address": lab.url()}
    if sender == PHASE4:
        client = anchors | {"certificate": "../keys/tls.p12"}
        tls = {"protocol": "TLS", "server": anchors, "client": client}
        protocol = {"address": lab.peer_url("rsa", tls=True), "security": tls}
    pmode = {
        "id": name,
        "agreement": AGREEMENT,
        "mep_binding": "pull",
        "initiator": _side(receiver, "responder"),
        "responder": _side(sender, "initiator"),
        "legs": [
            {
                "protocol": protocol,
                "business_info": {"service": SERVICE, "action": name, "mpc": channel},
                "security": security,
                "pulling": {"scheduled": False},
            }
        ],
    }
    lab.add(pmode, lab.peer_mode(case) | {"binding": "pull", "mpc": channel})
    return channel


@to_peer("pull, signed, with receipt")
def test_phase4_pulls_a_message_and_its_receipt_arrives(lab: Lab) -> None:
    channel = pulled(lab, "collected", POSTROAD, sign=True)
    request = {"keys": "rsa", "url": lab.url(), "mpc": channel, "sign": "rsa-sha-256"}
    request |= {"service": SERVICE, "action": "collected"}
    empty = lab.peer.call("pull", **request)
    assert [one["code"] for one in empty["signal"]["errors"]] == ["EBMS:0006"]
    with lab.client() as client:
        sent = client.send(pmode="collected", payloads=[ORDER])
        answer = lab.peer.call("pull", **request, receipt=True)
        assert client.wait(sent.message_id, PATIENCE).state == "acknowledged"
        [receipt] = client.signals(sent.message_id)
        assert receipt.valid
    message = answer["message"]
    assert (message["messageId"], message["signed"]) == (sent.message_id, True)
    [payload] = message["payloads"]
    assert payload["sha256"] == hashlib.sha256(ORDER).hexdigest()


@from_peer("pull, signed, with receipt", _PULLED_BARE)
def test_a_message_of_phase4_is_pulled_without_signature_and_payload(lab: Lab) -> None:
    channel = pulled(lab, "offered", PHASE4, sign=False)
    nothing = lab.node.run("pull", "offered", "--json")
    assert json.loads(nothing.stdout)[0]["messages"] == [], nothing.output
    name = "offered@phase4.example"
    offer = {"from": PHASE4, "fromRole": f"{ROLES}initiator"}
    offer |= {"to": POSTROAD, "toRole": f"{ROLES}responder"}
    offer |= {"agreement": AGREEMENT, "service": SERVICE, "action": "offered"}
    lab.peer.call("offer", mpc=channel, messageId=name, conversationId="offered", **offer)
    found = lab.node.run("pull", "offered", "--json")
    [message] = json.loads(found.stdout)[0]["messages"]
    assert (message["message_id"], message["state"]) == (name, "delivered")
    [receipt] = lab.peer.call("signals", refToMessageId=name, timeout=30)["signals"]
    assert (receipt["receipt"], receipt["signed"]) == (True, False)


def two_way(
    lab: Lab,
    name: str,
    asks: str,
    *,
    sync: bool = False,
    reply: str | None = None,
    reply_url: str | None = None,
    receipts_to: str | None = None,
) -> None:
    """Agree on requests and replies; phase4 gives a reply the action of its request."""
    case, answers = Case(name), PHASE4 if asks == POSTROAD else POSTROAD
    addresses = {POSTROAD: lab.url(), PHASE4: lab.peer_url("rsa")}
    business = {"service": SERVICE, "action": name}
    legs: list[dict[str, Any]] = [
        {
            "protocol": {"address": addresses[receiver]},
            "business_info": business,
            "security": lab.security(case, sender, receiver),
        }
        for sender, receiver in ((asks, answers), (answers, asks))
    ]
    if sync:
        del legs[0]["security"]["send_receipt"], legs[1]["protocol"]
        receipt = legs[1]["security"].pop("send_receipt")
        if answers == PHASE4:
            address = receipts_to or addresses[PHASE4]
            callback = {"reply_pattern": "callback", "reply_to": address}
            legs[1]["security"]["send_receipt"] = receipt | callback
    pmode = {
        "id": name,
        "agreement": AGREEMENT,
        "mep": "twoWay",
        "mep_binding": "sync" if sync else "pushAndPush",
        "initiator": _side(asks, "initiator"),
        "responder": _side(answers, "responder"),
        "legs": legs,
    }
    mode = lab.peer_mode(case) | {"binding": "sync" if sync else "pushpush"}
    if not sync:
        mode["replyUrl"] = reply_url or lab.url()
    lab.add(pmode, mode | ({"replyPayload": reply} if reply else {}))


@to_peer("two-way push-and-push, reply without payload", _PROPERTIES)
def test_phase4_pushes_a_reply(lab: Lab) -> None:
    two_way(lab, "asked", POSTROAD)
    with lab.client() as client:
        asked = client.send(pmode="asked", payloads=[ORDER], properties=CORNERS, wait=PATIENCE)
        assert asked.state == "acknowledged", asked.message.detail
        reply = client.wait_reply(asked.message_id, 30)
        assert reply is not None
        assert (reply.ref_to_message_id, reply.state) == (asked.message_id, "delivered")
        properties = {one.name: one.value for one in reply.properties}
        assert properties == dict(zip(CORNERS, reversed(CORNERS.values()), strict=True))


@to_peer("two-way push-and-push, reply with payload", _LOST_PAYLOAD)
def test_a_reply_of_phase4_without_the_payload_that_it_names_is_refused(
    lab: Lab, between: Relay
) -> None:
    between.target, seen = lab.url(), len(between.exchanges)
    two_way(lab, "asked-for-payload", POSTROAD, reply=REPLY, reply_url=between.url)
    with lab.client() as client:
        asked = client.send(
            pmode="asked-for-payload", payloads=[ORDER], properties=CORNERS, wait=PATIENCE
        )
        assert asked.state == "acknowledged", asked.message.detail
        until(lambda: len(between.exchanges) > seen, "phase4 pushes its reply")
        [reply] = between.exchanges[seen:]
        assert b"cid:" in reply.request
        assert REPLY.encode() not in reply.request
        assert b'errorCode="EBMS:0007"' in reply.response, reply.response
        assert client.status(asked.message_id).reply_message_id is None


@from_peer("two-way push-and-push, reply with payload")
def test_phase4_takes_a_pushed_reply(lab: Lab) -> None:
    two_way(lab, "answered", PHASE4)
    lab.cases["answered"] = Case("answered")
    request = lab.peer_send("answered", ORDER)
    assert (request["result"], request["comparison"]) == ("SUCCESS", "equal"), request
    with lab.client() as client:
        given = client.reply(request["messageId"], payloads=[REPLY.encode()], wait=PATIENCE)
        assert given.state == "acknowledged", given.message.detail
    reply = lab.peer_received(given.message_id)
    assert (reply["refToMessageId"], reply["signed"]) == (request["messageId"], True)
    assert reply["payloads"][0]["sha256"] == hashlib.sha256(REPLY.encode()).hexdigest()


@to_peer("two-way sync", _NO_RECEIPT)
def test_phase4_replies_in_the_response(lab: Lab) -> None:
    two_way(lab, "sync-asked", POSTROAD, sync=True, reply=REPLY)
    with lab.client() as client:
        asked = client.send(pmode="sync-asked", payloads=[ORDER], properties=CORNERS, wait=PATIENCE)
        reply = client.wait_reply(asked.message_id, 30)
        assert reply is not None
        assert (asked.state, reply.ref_to_message_id) == ("sent", asked.message_id)
        assert client.part(reply.message_id) == REPLY.encode()


@to_peer("two-way sync, request without message properties", _PROPERTIES)
def test_phase4_fails_at_a_sync_request_without_properties(lab: Lab) -> None:
    two_way(lab, "sync-bare", POSTROAD, sync=True, reply=REPLY)
    with lab.client() as client:
        asked = client.send(pmode="sync-bare", payloads=[ORDER], wait=PATIENCE).message
    assert (asked.state, asked.detail) == ("in_doubt", "the partner answered HTTP 500")


@to_peer("two-way sync, signed receipt for the reply", _SIGNED_RECEIPT)
def test_phase4_does_not_take_a_signed_receipt_for_its_reply(lab: Lab, between: Relay) -> None:
    between.target, seen = lab.peer_url("rsa"), len(between.exchanges)
    two_way(lab, "sync-receipt", POSTROAD, sync=True, reply=REPLY, receipts_to=between.url)
    with lab.client() as client:
        asked = client.send(
            pmode="sync-receipt", payloads=[ORDER], properties=CORNERS, wait=PATIENCE
        )
        reply = client.wait_reply(asked.message_id, 30)
    assert reply is not None
    until(lambda: len(between.exchanges) > seen, "the receipt is sent")
    [receipt] = between.exchanges[seen:]
    assert b"NonRepudiationInformation" in receipt.request
    assert b'errorCode="EBMS:0004"' in receipt.response
    assert lab.peer.call("signals", refToMessageId=reply.message_id)["signals"] == []
    with lab.client() as client:
        until(lambda: "EBMS:0004" in errors_of(client, reply.message_id), "the journal says so")


@from_peer("two-way sync")
def test_phase4_gets_the_reply_in_the_response(lab: Lab) -> None:
    """phase4's sender looks for a signal in the response; its reader of user messages finds it."""
    two_way(lab, "sync-answered", PHASE4, sync=True)
    lab.cases["sync-answered"] = Case("sync-answered")
    name = "sync-answered@phase4.example"

    def answer() -> None:
        with lab.client() as client:
            until(lambda: any(one.message_id == name for one in client.inbox()), "it was asked")
            client.reply(name, payloads=[REPLY.encode()])

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        found = lab.peer_send("sync-answered", ORDER, messageId=name, replyExpected=True)
        answering.result()
    reply = found["message"]
    assert (reply["refToMessageId"], reply["signed"]) == (name, True)
    assert reply["payloads"][0]["sha256"] == hashlib.sha256(REPLY.encode()).hexdigest()
