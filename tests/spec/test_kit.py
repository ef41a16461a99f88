"""The kit of the conformance tests records what happens and can fail."""

import pytest

from tests.node.ebxml_letters import RELIABLY, order, packed
from tests.spec.kit import (
    BUYER,
    SELLER,
    As4,
    Ebxml,
    Network,
    Post,
    Restart,
    Script,
    Send,
    Wait,
    address,
    check,
    lost,
    record,
    shows,
)

_M = "m@buyer.example"
_RELIABLE = Ebxml(version="0.98b", delivery_semantics="OnceAndOnlyOnce")
_LOSS = Script((_RELIABLE,), (Network(SELLER, lost), Send(_M), Wait(30)))
_AS4 = Script((As4(),), (Send(_M), Wait(1)))
_POSTED = Script(
    (_RELIABLE,),
    (Post(SELLER, *packed(order(inside=RELIABLY, id=_M))), Restart(SELLER), Wait(1)),
    nodes=(SELLER,),
)


def test_a_recording_has_requests_and_responses_with_their_times() -> None:
    recording = record(_LOSS)
    first, second = recording.requests(BUYER, SELLER, "eb:Manifest")
    assert first.at < second.at
    assert first.body == second.body
    assert first.text("eb:MessageHeader/eb:MessageData/eb:MessageId") == _M
    assert [one.status for one in recording.messages].count(None) == len(recording.requests())
    assert recording.inboxes[SELLER] == [_M]
    assert recording.state(BUYER, _M) == "acknowledged"
    assert recording.events(BUYER, _M)[0] == "submitted"


def test_a_recording_reads_as4_messages_and_their_parts() -> None:
    [message] = record(_AS4).requests(BUYER)
    assert message.count("eb:UserMessage/eb:PayloadInfo/eb:PartInfo") == 1
    assert len(message.parts) == 2
    [receipt] = record(_AS4).sent_by(SELLER)
    assert receipt.text("eb:SignalMessage/eb:MessageInfo/eb:RefToMessageId") == _M


def test_a_posted_message_survives_a_restart() -> None:
    recording = record(_POSTED)
    assert recording.inboxes[SELLER] == [_M]
    assert recording.requests(BUYER)[0].receiver == SELLER


def test_a_row_fails_when_the_message_says_something_else() -> None:
    right = shows("MS098-8.4.1-01", _LOSS, "eb:SenderURI", [address(BUYER)])
    check(right.values[0])
    for path, expected in (
        ("eb:SenderURI", "http://other.example"),
        ("eb:SenderURI", 2),
        ("count(//eb:SenderURI)", 2.0),
        ("eb:SenderURI", lambda found: not found),
    ):
        with pytest.raises(AssertionError):
            check(shows("MS098-8.4.1-01", _LOSS, path, expected).values[0])
    with pytest.raises(AssertionError, match="no such message"):
        check(shows("MS098-8.4.1-01", _LOSS, "*", 1, containing="eb:ErrorList").values[0])
