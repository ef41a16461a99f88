"""Apache CXF and real nodes: WS-ReliableMessaging 1.1 and WS-Security signatures, both ways."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.nodes import make_pair, until
from tests.interop.cxf_world import PATIENCE, World, is_kind, kind
from tests.interop.java import PeerError, start
from tests.interop.recordings import Recorder
from tests.interop.relay import Relay
from tests.ports import free_port

pytestmark = pytest.mark.xdist_group("cxf")

PEER: Final = "Apache CXF 4.2.3"
NONE_BESIDE_RANGES: Final = (
    "CXF writes wsrm:None into every SequenceAcknowledgement, also beside ranges; the ranges are "
    "taken, with a warning. The schema of WS-RM 1.1 has either AcknowledgementRange or None."
)


RETRANSMISSION: Final = (
    'CXF cannot send a message again whose SOAP Body is empty ("No body content present"), and '
    "when it sends again it doubles headers that are not its own, or leaves them out. Here the "
    "payload stands in the Body, and the client removes the doubled eb:Messaging. WS-RM 1.1: "
    "the RM Source sends the same message again."
)


NO_FINAL: Final = (
    "CXF answers CloseSequence and TerminateSequence without a final acknowledgment. WS-RM 1.1: "
    "the response to both carries a SequenceAcknowledgement with Final."
)
SILENT: Final = (
    "CXF answers a one-way message of a sequence that it does not know with an empty response, and "
    "CloseSequence with a CloseSequenceResponse that has no Identifier. WS-RM 1.1: an "
    "unknown identifier is answered with the fault UnknownSequence; its schema requires "
    "CloseSequenceResponse/Identifier."
)


def cxf(case: str, direction: str, deviation: str | None = None) -> Any:
    return pytest.mark.interop(peer=PEER, case=case, direction=direction, deviation=deviation)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("cxf")
    peer = start("cxf", "Peer", log=folder / "cxf.log")
    pair = make_pair(folder)
    try:
        # What the relays lose is not to pause the partner for the next test.
        with pair.buyer.config.open("a") as config:
            config.write("\nsend: {breaker: {failures: 1000}}\n")
        pair.buyer.start()
        yield World(pair, peer, recorder)
    finally:
        pair.end()
        peer.stop()


def kinds(relay: Relay) -> list[str]:
    return [kind(one.request) for one in relay.exchanges]


TO, FROM = "to peer", "from peer"


@pytest.mark.parametrize(
    "soap",
    [
        pytest.param("1.2", marks=cxf("acknowledgments in responses", TO, NONE_BESIDE_RANGES)),
        pytest.param("1.1", marks=cxf("SOAP 1.1", TO, NONE_BESIDE_RANGES)),
    ],
)
def test_cxf_takes_a_sequence_of_ours(world: World, soap: str, tmp_path: Path) -> None:
    name = f"taken-{soap}"
    with world.relay(world.receiver(name, reliable=True, in_order=True, soap=soap)) as relay:
        world.agree(name, "buyer", relay.url, soap=soap)
        ids = world.submit(name, 4, tmp_path / "order.xml")
        world.acknowledged(ids)
        found = world.received(name)
        assert [one["message_id"] for one in found] == ids
        assert [one["number"] for one in found] == [1, 2, 3, 4]
        for one in found:
            [attachment] = one["attachments"]
            assert base64.b64decode(attachment["content"]) == b"<order>1</order>"
        acks = [one.response for one in relay.exchanges if kind(one.request).isdigit()]
        assert any(b"AcknowledgementRange" in one and b":None" in one for one in acks)
        assert kinds(relay)[0] == "CreateSequence"
        if soap == "1.2":
            world.record("create-sequence", "postroad", relay.exchanges[0])
            world.record("create-sequence-response", "peer", relay.exchanges[0], response=True)
            world.record("message-in-sequence", "postroad", relay.exchanges[1])


@cxf("end of a sequence: CloseSequence and TerminateSequence", TO, NO_FINAL)
def test_cxf_answers_the_end_of_a_sequence_of_ours(world: World, tmp_path: Path) -> None:
    with world.relay(world.receiver("ended", reliable=True)) as relay:
        world.agree("ended", "buyer", relay.url, max_idle="PT0.5S")
        world.acknowledged(world.submit("ended", 2, tmp_path / "order.xml"))
        ends = ["CloseSequence", "TerminateSequence"]
        until(lambda: kinds(relay)[-2:] == ends and len(relay.exchanges) == 5, "it ended", PATIENCE)
        for name, exchange in zip(ends, relay.exchanges[-2:], strict=True):
            assert f":{name}Response".encode() in exchange.response
            assert b"SequenceAcknowledgement" not in exchange.response


@cxf("lost messages and lost acknowledgments", TO, NONE_BESIDE_RANGES)
def test_cxf_delivers_once_and_in_order_what_was_lost_on_the_way(
    world: World, tmp_path: Path
) -> None:
    with world.relay(world.receiver("lossy", reliable=True, in_order=True)) as relay:
        world.agree("lossy", "buyer", relay.url)
        relay.lose("request", is_kind("CreateSequence"))
        relay.lose("request", is_kind("2"), times=2)
        relay.lose("response", is_kind("3"))
        relay.lose("response", is_kind("5"), times=2)
        ids = world.submit("lossy", 6, tmp_path / "order.xml")
        world.acknowledged(ids)
        assert [one["message_id"] for one in world.received("lossy")] == ids
        assert kinds(relay).count("CreateSequence") == 2
        assert kinds(relay).count("2") >= 3


@cxf("acknowledgments called back (addressable AcksTo)", TO, NONE_BESIDE_RANGES)
def test_cxf_calls_back_with_acknowledgments(world: World, tmp_path: Path) -> None:
    target = world.receiver("called", reliable=True, in_order=True)
    with world.relay(target) as relay, world.relay(world.url) as back:
        world.agree("called", "buyer", relay.url, acks_to=back.url)
        relay.lose("request", is_kind("2"))
        back.lose("request", is_kind("SequenceAcknowledgement"))
        ids = world.submit("called", 3, tmp_path / "order.xml")
        world.acknowledged(ids)
        assert [one["message_id"] for one in world.received("called")] == ids
        assert "SequenceAcknowledgement" in kinds(back)
        [sequence] = world.peer.call("sequences", name="called")["destination"]
        assert sequence["acks_to"] == back.url
        world.record("acknowledgement", "peer", back.exchanges[-1])


@cxf("restart that loses the sequence", TO, SILENT)
def test_messages_go_into_a_new_sequence_when_cxf_has_forgotten_theirs(
    world: World, tmp_path: Path
) -> None:
    target = world.receiver("forgetful", reliable=True)
    with world.relay(target) as relay:
        world.agree("forgetful", "buyer", relay.url, max_retries=1)
        world.acknowledged(world.submit("forgetful", 2, tmp_path / "order.xml"))
        world.peer.call("stop", name="forgetful")
        world.receiver("forgetful", target, reliable=True)

        def send(message_id: str) -> None:
            with world.node.client() as client:
                client.send(
                    pmode="forgetful", payloads=[tmp_path / "order.xml"], message_id=message_id
                )

        send("3.forgetful@buyer.example")
        ids = ["3.forgetful@buyer.example"]
        until(lambda: world.states(ids) == {"in_doubt"}, "it is given up", PATIENCE)
        assert {one.response for one in relay.exchanges if kind(one.request) == "3"} == {b""}
        send("4.forgetful@buyer.example")
        world.acknowledged(["4.forgetful@buyer.example"])
        [found] = world.received("forgetful")
        assert (found["message_id"], found["number"]) == ("4.forgetful@buyer.example", 1)

        def closed() -> list[bytes]:
            closes = [one for one in relay.exchanges if kind(one.request) == "CloseSequence"]
            return [one.response for one in closes if b"CloseSequenceResponse" in one.response]

        # It is sent again if its answer takes longer than the retry interval.
        until(lambda: bool(closed()), "the old sequence is closed", PATIENCE)
        assert all(b"Identifier" not in one for one in closed())


@cxf("CreateSequenceRefused", TO)
def test_a_sequence_that_cxf_refuses_is_reported(world: World, tmp_path: Path) -> None:
    with world.relay(world.receiver("full", reliable=True, max_sequences=1)) as relay:
        for name in ("full", "refused"):
            world.agree(name, "buyer", relay.url)
        world.acknowledged(world.submit("full", 1, tmp_path / "order.xml"))
        ids = world.submit("refused", 1, tmp_path / "order.xml")
        until(lambda: world.states(ids) == {"failed"}, "it is reported", PATIENCE)
        with world.node.client() as client:
            told = [one.detail or "" for one in client.events(ids[0])]
        assert any("the partner made no sequence" in one for one in told)
        assert b"CreateSequenceRefused" in relay.exchanges[-1].response


@cxf("signed sequence", TO, NONE_BESIDE_RANGES)
def test_wss4j_verifies_a_signed_sequence_of_ours(world: World, tmp_path: Path) -> None:
    target = world.receiver("signed-sequence", reliable=True, security=world.security)
    with world.relay(target) as relay:
        world.agree("signed-sequence", "buyer", relay.url, signed=True)
        relay.lose("request", is_kind("1"))
        relay.lose("response", is_kind("2"))
        ids = world.submit("signed-sequence", 3, tmp_path / "order.xml")
        world.acknowledged(ids)
        found = world.received("signed-sequence")
        assert sorted(one["message_id"] for one in found) == ids
        for one in found:
            assert "CN=buyer" in one["security"]["signer"]
            names = {part.partition("}")[2] for part in one["security"]["covered"]}
            assert names >= {"Messaging", "Body", "Sequence", "AckRequested", "To", "Action"}


@cxf("plain WS-Security signature with attachments", TO)
def test_wss4j_verifies_a_signed_message_of_ours(world: World, tmp_path: Path) -> None:
    with world.relay(world.receiver("signed", security=world.security)) as relay:
        world.agree("signed", "buyer", relay.url, signed=True, reliable=False)
        [message_id] = world.submit("signed", 1, tmp_path / "order.xml")
        until(lambda: bool(world.received("signed")), "it came", PATIENCE)
        [found] = world.received("signed")
        assert found["message_id"] == message_id
        assert "CN=buyer" in found["security"]["signer"]
        covered = {part.partition("}")[2] or part[:4] for part in found["security"]["covered"]}
        assert covered == {"Messaging", "Body", "Timestamp", "cid:"}
        world.record("signed-message", "postroad", relay.exchanges[0])


@cxf("tampered message", TO)
def test_wss4j_refuses_a_message_of_ours_that_was_changed_on_the_way(
    world: World, tmp_path: Path
) -> None:
    with world.relay(world.receiver("tampered", security=world.security)) as relay:
        relay.change_request = lambda body: body.replace(b"<order>1<", b"<order>9<")
        world.agree("tampered", "buyer", relay.url, signed=True, reliable=False)
        ids = world.submit("tampered", 1, tmp_path / "order.xml")
        until(lambda: world.states(ids) == {"failed"}, "it is reported", PATIENCE)
        assert b":Fault>" in relay.exchanges[0].response
        assert world.received("tampered") == []


@pytest.mark.parametrize(
    ("soap", "body", "mtom"),
    [
        pytest.param("1.2", False, False, marks=cxf("acknowledgments in responses", FROM)),
        pytest.param("1.1", False, False, marks=cxf("SOAP 1.1", FROM)),
        pytest.param("1.2", True, False, marks=cxf("payload in the SOAP Body", FROM)),
        pytest.param("1.2", False, True, marks=cxf("attachments in a package of MTOM", FROM)),
    ],
)
def test_a_sequence_of_cxf_is_taken_to_its_end(
    world: World, soap: str, body: bool, mtom: bool
) -> None:
    name = f"from-{soap}-{body}-{mtom}".lower()
    world.agree(name, "seller", world.url, soap=soap)
    with (
        world.relay(world.url) as relay,
        world.sender(name, relay, reliable=True, soap=soap, mtom=mtom),
    ):
        ids = world.send(name, name, 3, soap=soap, body=body)
        world.finished(name)
        assert world.inbox(name) == ids
        expected = ["CreateSequence", "1", "2", "3", "CloseSequence", "TerminateSequence"]
        assert kinds(relay) == expected
        headers = {key.lower(): value for key, value in relay.exchanges[1].headers.items()}
        assert ("application/xop+xml" in headers["content-type"]) is mtom
        assert b":Offer" in relay.exchanges[0].request
        assert b"Accept" not in relay.exchanges[0].response
        assert b"CloseSequenceResponse" in relay.exchanges[4].response
        assert b"Final" in relay.exchanges[4].response
        assert b"TerminateSequenceResponse" in relay.exchanges[5].response
        if name == "from-1.2-false-false":
            world.record("create-sequence-with-offer", "peer", relay.exchanges[0])
            world.record("message-in-sequence-of-peer", "peer", relay.exchanges[1])
            world.record("acknowledgement-response", "postroad", relay.exchanges[1], response=True)
            world.record("close-sequence", "peer", relay.exchanges[4])


@cxf("lost messages and lost acknowledgments", FROM, RETRANSMISSION)
def test_what_cxf_sends_again_is_delivered_once_and_in_order(world: World) -> None:
    world.agree("lossy-back", "seller", world.url)
    with (
        world.relay(world.url) as relay,
        world.sender("lossy-back", relay, reliable=True, whole=False),
    ):
        relay.lose("request", is_kind("2"), times=2)
        relay.lose("response", is_kind("1"))
        relay.lose("response", is_kind("4"), times=2)
        ids = world.send("lossy-back", "lossy-back", 5, body=True)
        world.finished("lossy-back")
        assert world.inbox("lossy-back") == ids
        assert kinds(relay).count("2") >= 3


@cxf("acknowledgments called back (addressable AcksTo)", FROM, RETRANSMISSION)
def test_cxf_takes_acknowledgments_that_call_back(world: World) -> None:
    door = f"http://127.0.0.1:{free_port()}/decoupled"
    with (
        world.relay(world.url) as relay,
        world.sender("called-back", relay, reliable=True, whole=False, decoupled=door),
    ):
        world.agree("called-back", "seller", world.url, acks_to=door)
        relay.lose("request", is_kind("2"))
        ids = world.send("called-back", "called-back", 3, body=True)
        world.finished("called-back")
        assert world.inbox("called-back") == ids


@cxf("AcksTo that is not agreed on", FROM)
def test_cxf_hears_that_its_sequence_is_refused(world: World) -> None:
    door = f"http://127.0.0.1:{free_port()}/decoupled"
    world.agree("refused-back", "seller", world.url)
    with (
        world.relay(world.url) as relay,
        world.sender("refused-back", relay, reliable=True, decoupled=door),
    ):
        with pytest.raises(PeerError, match="CreateSequence"):
            world.send("refused-back", "refused-back", 1)
        assert b"CreateSequenceRefused" in relay.exchanges[0].response
        assert world.inbox("refused-back") == []


@cxf("WS-ReliableMessaging 1.0", FROM)
def test_the_older_protocol_of_cxf_is_refused_by_name(world: World) -> None:
    world.agree("old", "seller", world.url)
    with (
        world.relay(world.url) as relay,
        world.sender(
            "old", relay, reliable=True, namespace="http://schemas.xmlsoap.org/ws/2005/02/rm"
        ),
    ):
        with pytest.raises(PeerError, match="CreateSequence"):
            world.send("old", "old", 1)
        assert b"must be understood and is not known here" in relay.exchanges[0].response


@cxf("signed sequence", FROM, RETRANSMISSION)
def test_a_sequence_that_wss4j_signs_is_taken(world: World) -> None:
    world.agree("signed-back", "seller", world.url, signed=True)
    with (
        world.relay(world.url) as relay,
        world.sender("signed-back", relay, reliable=True, whole=False, security=world.security),
    ):
        relay.lose("request", is_kind("1"))
        relay.lose("response", is_kind("2"))
        ids = world.send("signed-back", "signed-back", 3, body=True)
        world.finished("signed-back")
        assert world.inbox("signed-back") == ids
        world.record("signed-message-in-sequence", "peer", relay.exchanges[1])


@cxf("plain WS-Security signature with attachments", FROM)
def test_a_message_that_wss4j_signs_gets_a_receipt_that_wss4j_verifies(world: World) -> None:
    world.agree("receipted", "seller", world.url, signed=True, receipt=True, reliable=False)
    with world.relay(world.url) as relay, world.sender("receipted", relay, security=world.security):
        answer = world.send_one("receipted", "receipted", "1.receipted@seller.example")
        assert world.inbox("receipted") == ["1.receipted@seller.example"]
        assert "NonRepudiationInformation" in answer["envelope"]
        assert "CN=buyer" in answer["security"]["signer"]
        world.record("signed-message-of-peer", "peer", relay.exchanges[0])
        world.record("receipt", "postroad", relay.exchanges[0], response=True)
