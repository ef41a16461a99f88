"""What goes wrong between phase4 and Postroad, and what each says about it.

Both sides are asked, since an error is only as good as what the sender learns from it.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from postroad.api.client_values import Message
from tests.interop.phase4_lab import PEER, Case, Lab
from tests.interop.relay import Relay, relay

pytestmark = pytest.mark.xdist_group("phase4")

ORDER: Final = b"<Order xmlns='urn:example:order'><ID>PO-4711</ID></Order>"
STRANGER: Final = "urn:example:stranger"
THIRD: Final = "urn:example:third"
_GZIP: Final = b"\x1f\x8b\x08"
_SECURITY_ERRORS: Final = (
    "phase4 reports every failure of the Security header as EBMS:0102 (FailedDecryption). ebMS 3.0 "
    "Core: EBMS:0101 (FailedAuthentication) is for a signature that could not be verified, "
    "EBMS:0102 for an element that could not be decrypted."
)
_DUPLICATES: Final = (
    "phase4 answers a duplicate with EBMS:0004 instead of a receipt, so that a receipt that was "
    "lost never arrives. AS4 1.0: a message is sent again until its receipt arrives, so a "
    "duplicate gets a receipt too."
)
_REBUILT: Final = (
    "An application that sends again through phase4 has the message rebuilt: the same MessageId "
    "with other ids and digests. AS4 1.0: it is the same message that is sent again. The "
    "receipt of the first one is the answer, and phase4 reports that its digests differ."
)


@pytest.fixture(scope="module")
def between() -> Iterator[Relay]:
    with relay("http://127.0.0.1:9/") as made:
        yield made


@pytest.fixture(scope="module")
def lab(phase4: Lab, between: Relay) -> Lab:
    phase4.give_keys("rsa", name="stranger", signer=STRANGER)
    phase4.give_keys("rsa", name="third", reader=THIRD)
    phase4.agree(
        Case("wrong-signer", signer=STRANGER),
        Case("unknown", known_to_peer=False),
        Case("wrong-reader", encrypt=True, peer_keys="third"),
        Case("changed", compress=True, address=between.url),
        Case("damaged", sign=False, compress=True, address=between.url),
        Case("lost", address=between.url, retries={"max_retries": 2, "period": "PT1S"}),
        Case("expected-signed"),
    )
    return phase4


@pytest.fixture(autouse=True)
def _unchanged(between: Relay) -> Iterator[None]:
    yield
    between.reset()


def to_peer(case: str, deviation: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.interop(peer=PEER, case=case, direction="to peer", deviation=deviation)


def from_peer(case: str, deviation: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.interop(peer=PEER, case=case, direction="from peer", deviation=deviation)


def assert_refused(lab: Lab, message: Message, code: str, detail: str) -> None:
    """The sender knows that phase4 does not have the message, and why."""
    assert (message.state, message.error_code) == ("failed", code), message.detail
    assert detail in (message.detail or "")
    with lab.client() as client:
        events = [(one.event, one.error_code) for one in client.events(message.message_id)]
        assert ("error_received", code) in events
    assert lab.peer.call("received", messageId=message.message_id)["messages"] == []


def codes(answer: dict[str, Any]) -> list[str]:
    """Return the error codes that phase4 got; it must have understood the answer."""
    assert answer["result"] == "AS4_ERROR_MESSAGE_RECEIVED", answer
    assert answer["signal"]["refToMessageId"] == answer["messageId"]
    return [one["code"] for one in answer["signal"]["errors"]]


def assert_noted(lab: Lab, answer: dict[str, Any], code: str) -> None:
    """The refusal of a message of phase4 is in the journal."""
    with lab.client() as client:
        events = [(one.event, one.error_code) for one in client.events(answer["messageId"])]
    assert ("rejected", code) in events, events


def flip_payload(body: bytes) -> bytes:
    at = body.index(_GZIP) + 12
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def change_conversation(body: bytes) -> bytes:
    return body.replace(b"ConversationId>", b"ConversationId>x", 1)


def damage_gzip(body: bytes) -> bytes:
    return body.replace(_GZIP, b"not")


@to_peer("error: untrusted certificate", _SECURITY_ERRORS)
def test_phase4_refuses_an_untrusted_signer(lab: Lab) -> None:
    message = lab.send("wrong-signer", ORDER)
    assert_refused(lab, message, "EBMS:0102", "certificate path validation")


@from_peer("error: untrusted certificate")
def test_an_untrusted_signer_is_refused(lab: Lab) -> None:
    answer = lab.peer_send("expected-signed", ORDER, keys="stranger")
    assert codes(answer) == ["EBMS:0101"]
    assert_noted(lab, answer, "EBMS:0101")


@to_peer("error: header changed on the way", _SECURITY_ERRORS)
def test_phase4_refuses_a_changed_header(lab: Lab, between: Relay) -> None:
    between.target, between.change_request = lab.peer_url("rsa"), change_conversation
    assert_refused(lab, lab.send("changed", ORDER), "EBMS:0102", "signature or decryption")


@from_peer("error: header changed on the way")
def test_a_changed_header_is_refused(lab: Lab, between: Relay) -> None:
    between.target, between.change_request = lab.url(), change_conversation
    answer = lab.peer_send("changed", ORDER, url=between.url)
    assert codes(answer) == ["EBMS:0101"]
    assert_noted(lab, answer, "EBMS:0101")


@to_peer("error: payload changed on the way", _SECURITY_ERRORS)
def test_phase4_refuses_a_changed_payload(lab: Lab, between: Relay) -> None:
    between.target, between.change_request = lab.peer_url("rsa"), flip_payload
    assert_refused(lab, lab.send("changed", ORDER), "EBMS:0102", "signature or decryption")


@from_peer("error: payload changed on the way")
def test_a_changed_payload_is_refused(lab: Lab, between: Relay) -> None:
    between.target, between.change_request = lab.url(), flip_payload
    answer = lab.peer_send("changed", ORDER, url=between.url)
    assert codes(answer)[0] == "EBMS:0101"
    assert_noted(lab, answer, "EBMS:0101")


@to_peer("error: unknown P-Mode")
def test_phase4_refuses_what_is_not_agreed(lab: Lab) -> None:
    assert_refused(lab, lab.send("unknown", ORDER), "EBMS:0010", "Failed to resolve PMode")


@from_peer("error: unknown P-Mode")
def test_what_is_not_agreed_is_refused(lab: Lab) -> None:
    lab.peer.call("pmode", **lab.peer_mode(Case("agreed-by-nobody")))
    answer = lab.peer_send("expected-signed", ORDER, action="agreed-by-nobody")
    assert codes(answer) == ["EBMS:0010"]
    assert_noted(lab, answer, "EBMS:0010")


@to_peer("error: encrypted for another key")
def test_phase4_refuses_what_it_cannot_decrypt(lab: Lab) -> None:
    assert_refused(lab, lab.send("wrong-reader", ORDER), "EBMS:0102", "")


@from_peer("error: encrypted for another key")
def test_what_cannot_be_decrypted_is_refused(lab: Lab) -> None:
    another = lab.folder / "pmodes" / lab.certificate(THIRD, "rsa", "encryption")
    answer = lab.peer_send("wrong-reader", ORDER, encryptFor=str(another))
    assert codes(answer)[0] == "EBMS:0102"
    assert_noted(lab, answer, "EBMS:0102")


@to_peer("error: damaged compression")
def test_phase4_refuses_a_payload_that_it_cannot_decompress(lab: Lab, between: Relay) -> None:
    between.target, between.change_request = lab.peer_url("rsa"), damage_gzip
    assert_refused(lab, lab.send("damaged", ORDER), "EBMS:0303", "")


@from_peer("error: damaged compression")
def test_a_payload_that_cannot_be_decompressed_is_refused(lab: Lab, between: Relay) -> None:
    between.target, between.change_request = lab.url(), damage_gzip
    answer = lab.peer_send("damaged", ORDER, url=between.url)
    assert codes(answer) == ["EBMS:0303"]
    assert_noted(lab, answer, "EBMS:0303")


@from_peer("error: unsigned although a signature is agreed")
def test_an_unsigned_message_is_refused_where_a_signature_is_agreed(lab: Lab) -> None:
    unsigned = lab.peer_mode(Case("expected-signed", sign=False))
    signed = lab.peer_mode(Case("expected-signed"))
    lab.peer.call("pmode", **unsigned)
    try:
        answer = lab.peer_send("expected-signed", ORDER)
    finally:
        lab.peer.call("pmode", **signed)
    assert codes(answer) == ["EBMS:0103"]
    assert_noted(lab, answer, "EBMS:0103")


@to_peer("receipt changed on the way")
def test_a_changed_receipt_of_phase4_proves_nothing(lab: Lab, between: Relay) -> None:
    between.target = lab.peer_url("rsa")
    between.change_response = lambda body: body.replace(b"RefToMessageId>", b"RefToMessageId> ", 1)
    message = lab.send("changed", ORDER)
    assert (message.state, message.error_code) == ("in_doubt", "EBMS:0101"), message.detail
    lab.peer_received(message.message_id)


@from_peer("receipt changed on the way")
def test_phase4_does_not_take_a_changed_receipt(lab: Lab, between: Relay) -> None:
    between.target = lab.url()
    between.change_response = lambda body: body.replace(b"RefToMessageId>", b"RefToMessageId> ", 1)
    answer = lab.peer_send("changed", ORDER, url=between.url)
    assert answer["result"] == "TRANSPORT_ERROR_NO_RETRY", answer
    with lab.client() as client:
        assert client.received(answer["messageId"]).state == "delivered"


@to_peer("lost receipt", _DUPLICATES)
def test_a_receipt_of_phase4_that_is_lost_leaves_the_message_in_doubt(
    lab: Lab, between: Relay
) -> None:
    between.target = lab.peer_url("rsa")
    between.lose("response")
    message = lab.send("lost", ORDER)
    assert (message.state, message.error_code) == ("in_doubt", "EBMS:0004")
    assert "this is a duplicate" in (message.detail or "")
    lab.peer_received(message.message_id)
    with lab.client() as client:
        events = [one.event for one in client.events(message.message_id)]
    assert events == ["submitted", "sent", "resent", "error_received", "in_doubt"]


@from_peer("lost receipt")
def test_phase4_gets_the_first_receipt_when_it_sends_again(lab: Lab, between: Relay) -> None:
    between.target = lab.url()
    between.lose("response")
    seen = len(between.exchanges)
    answer = lab.peer_send("lost", ORDER, url=between.url, retries=2)
    assert (answer["result"], answer["comparison"]) == ("SUCCESS", "equal"), answer
    first, second = between.exchanges[seen:]
    assert second.request == first.request
    assert second.response == first.response
    with lab.client() as client:
        events = [one.event for one in client.events(answer["messageId"])]
    assert events.count("delivered") == 1
    assert "duplicate" in events


@from_peer("the same MessageId in a rebuilt message", _REBUILT)
def test_a_message_that_phase4_built_anew_gets_the_first_receipt(lab: Lab) -> None:
    name = "rebuilt@phase4.example"
    first = lab.peer_send("expected-signed", ORDER, messageId=name)
    again = lab.peer_send("expected-signed", ORDER, messageId=name)
    assert (first["result"], first["comparison"]) == ("SUCCESS", "equal"), first
    assert (again["result"], again["comparison"]) == ("SUCCESS", "different"), again
    assert again["signal"]["messageId"] == first["signal"]["messageId"]
    with lab.client() as client:
        events = [one.event for one in client.events(name)]
    assert events.count("delivered") == 1


@from_peer("another party than agreed on")
def test_a_message_in_the_name_of_another_party_is_refused(lab: Lab) -> None:
    answer = lab.peer_send("expected-signed", ORDER, **{"from": THIRD})
    assert codes(answer) == ["EBMS:0010"]
