"""Errors of ebXML MS 0.98b both ways: where a report goes, and what a node makes of one it gets.

Sections 8.7, 10 and 11. An acknowledgment or an error is believed only from who may say it, and is
never answered.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import pytest

from postroad.reliability import ebxml
from postroad.reliability.order import Limits
from postroad.store.records import State
from tests.node.ebxml_letters import (
    CID,
    DATA,
    HEADER,
    RELIABLY,
    SERVICES,
    SOAP_NS,
    TOP,
    XML,
    M,
    Packed,
    acknowledgment,
    acknowledgment_20,
    envelope,
    error,
    hand,
    header,
    listening,
    manifest,
    order,
    pack,
    packed,
    pointer,
    quality,
    reliable_terms,
    trace,
    via,
)
from tests.node.reliable import (
    BUYER,
    CARRIER,
    ORDER,
    SELLER,
    Station,
    World,
    address,
    party,
    played,
    status,
)

E: Final = "e@seller.example"
ACK_000: Final = "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment"
ENDED: Final = (State.ACKNOWLEDGED, State.FAILED, State.IN_DOUBT)


# --- reports that a node makes


@pytest.mark.req("MS098-11.4-01")
@played
async def test_errors_go_to_the_error_uri_of_the_cpa(world: World) -> None:
    world.speak(report={"receiver_errors_to": address(CARRIER)}, **reliable_terms())
    world.wire.usual[CARRIER] = status(204)
    outcome = await hand(world, await listening(world), order(inside=quality("Perhaps")))
    assert [one.receiver for one in outcome.posted] == [CARRIER]
    assert outcome.said.text("TraceHeaderList/TraceHeader/ReceiverURI") == address(CARRIER)
    assert not outcome.response.body


@pytest.mark.req("MS098-8.6.4-02")
@pytest.mark.parametrize(
    ("asked", "on_response"),
    [(' eb:syncReply="true"', True), (' eb:syncReply="false"', False), ("", False)],
    ids=["true", "false", "absent"],
)
@played
async def test_with_sync_reply_an_error_is_the_response(
    world: World, asked: str, on_response: bool
) -> None:
    world.speak(**reliable_terms())
    letter = order("0.98b", via(asked + ' eb:ackRequested="None"'), inside=quality("Perhaps"))
    outcome = await hand(world, await listening(world), letter)
    assert bool(outcome.response.body) is on_response
    assert bool(outcome.posted) is not on_response
    assert [code for code, _, _ in outcome.said.errors] == ["NotSupported"]


@played
async def test_without_an_address_an_error_is_the_response(world: World) -> None:
    world.speak(**reliable_terms())
    letter = envelope(header(inside=quality("Perhaps")), body=manifest())
    outcome = await hand(world, await listening(world), letter)
    assert outcome.posted == []
    assert [code for code, _, _ in outcome.said.errors] == ["NotSupported"]


@pytest.mark.parametrize("sender", ["mailto:buyer@buyer.example", "file:///orders", "urn:buyer"])
@played
async def test_where_nobody_can_be_called_the_answer_is_the_response(
    world: World, sender: str
) -> None:
    """This node has no mail."""
    world.speak(**reliable_terms())
    letter = envelope(header(inside=RELIABLY), trace(sender), body=manifest())
    outcome = await hand(world, await listening(world), letter)
    assert outcome.posted == []
    assert outcome.said.service[1] == "Acknowledgment"


@pytest.mark.req("MS098-11-04", "MS098-11.5-03")
@played
async def test_what_is_forgiven_is_not_reported(world: World) -> None:
    """A warning is neither a Fault nor an error message of its own."""
    world.speak(**reliable_terms())
    letter = order(inside=RELIABLY).replace('eb:version="0.98b"', 'eb:version="98.0"')
    outcome = await hand(world, await listening(world), letter)
    assert outcome.delivered == [M]
    assert outcome.said.fault is None
    assert outcome.said.errors == []
    assert outcome.said.service == (SERVICES["0.98b"], "Acknowledgment")


@played
async def test_where_the_p_mode_is_strict_nothing_is_forgiven(world: World) -> None:
    world.speak(lenient=False, **reliable_terms())
    letter = order(inside=RELIABLY).replace('eb:version="0.98b"', 'eb:version="98.0"')
    outcome = await hand(world, await listening(world), letter)
    assert outcome.delivered == []
    assert ("ValueNotRecognized", "Error", pointer(f"{HEADER}/@eb:version")) in outcome.said.errors


@pytest.mark.req("MS098-8.7.5.4-03", "MS098-8.7.7-01", "MS098-8.7.5.5-01", "MS098-8.7.5.1-01")
@played
async def test_a_report_says_what_is_wrong_in_words_of_its_own(world: World) -> None:
    world.speak(**reliable_terms())
    outcome = await hand(world, await listening(world), order(inside=quality("Perhaps")))
    [one] = outcome.said.find("ErrorList/Error")
    assert "Perhaps" in one.text
    assert one.get("{http://www.w3.org/XML/1998/namespace}lang") == "en"
    assert outcome.said.attribute("ErrorList/Error", "codeContext") == (
        "http://www.ebxml.org/messageServiceErrors"
    )


@pytest.mark.req("MS098-8.4.3-03")
@played
async def test_several_errors_are_one_report(world: World) -> None:
    world.speak(**reliable_terms())
    letter = order("0.98b", via(' eb:ackRequested="Maybe"'), live="soon", inside=RELIABLY)
    outcome = await hand(world, await listening(world), letter)
    assert {code for code, _, _ in outcome.said.errors} == {"ValueNotRecognized", "OtherXml"}
    assert outcome.said.attribute("ErrorList", "highestSeverity") == "Error"


@pytest.mark.req("MS098-10.3.1.2-03", "RM000-1.3.1.2-01", "RM001-2.1-01")
@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("payload", pack(order(inside=RELIABLY), (CID, b"<order>gold</order>"))),
        ("header", packed(order(inside=RELIABLY, conversation="c2"))),
    ],
)
@played
async def test_something_else_under_a_known_message_id_is_inconsistent(
    world: World, what: str, other: Packed
) -> None:
    world.speak(**reliable_terms())
    seller = await listening(world)
    assert (await hand(world, seller, order(inside=RELIABLY))).delivered == [M]
    outcome = await hand(world, seller, other)
    [(code, severity, place)] = outcome.said.errors
    assert (code, severity) == ("Inconsistent", "Error")
    assert place is not None
    assert place.startswith(f"#xpointer({HEADER}")
    story = await seller.story(M)
    assert story.count("delivered") == 1
    assert "error_raised" in story
    assert "rejected" not in story


@played
async def test_what_was_rejected_may_come_again_in_order(world: World) -> None:
    world.speak(**reliable_terms())
    seller = await listening(world)
    assert (await hand(world, seller, order(inside=quality("Perhaps")))).delivered == []
    outcome = await hand(world, seller, order(inside=RELIABLY))
    assert outcome.delivered == [M]
    assert outcome.said.service[1] == "Acknowledgment"


NUMBER: Final = '<eb:SequenceNumber eb:status="{}">{}</eb:SequenceNumber>'


def numbered(number: int, name: str | None = None, conversation: str = "c1") -> str:
    known = NUMBER.format("Continue" if number else "Reset", number)
    return order(
        id=f"{name or number}@buyer.example", inside=RELIABLY + known, conversation=conversation
    )


@pytest.mark.req("MS098-8.4.8-01", "MS098-8.4.8-06", "MS098-8.4.7.2-02")
@played
async def test_messages_are_delivered_by_their_numbers(world: World) -> None:
    world.speak(message_order="Guaranteed", **reliable_terms())
    seller = await listening(world)
    seen: list[Sequence[str]] = []
    for number in (1, 3, 0, 2):
        outcome = await hand(world, seller, numbered(number))
        assert outcome.said.service[1] == "Acknowledgment"
        seen.append([one.partition("@")[0] for one in outcome.delivered])
    assert seen == [[], [], ["0", "1"], ["0", "1", "2", "3"]]
    assert await seller.story("1@buyer.example") == [
        "received",
        "out_of_order",
        "held",
        "acked",
        "delivered",
    ]


@pytest.mark.req("MS098-8.4.8-02")
@played
async def test_each_conversation_has_numbers_of_its_own(world: World) -> None:
    world.speak(message_order="Guaranteed", **reliable_terms())
    seller = await listening(world)
    await hand(world, seller, numbered(0))
    outcome = await hand(world, seller, numbered(0, "other", "c2"))
    assert outcome.delivered == ["0@buyer.example", "other@buyer.example"]


@pytest.mark.req("MS098-8.4.8-07")
@played
async def test_when_there_is_no_room_for_more_it_is_a_delivery_failure(world: World) -> None:
    world.speak(message_order="Guaranteed", **reliable_terms())
    seller = await listening(world)
    few = partial(ebxml.Receiver, limits=Limits(held=2))
    with patch.object(ebxml, "Receiver", few):
        for number in (2, 3):
            await hand(world, seller, numbered(number))
        outcome = await hand(world, seller, numbered(4))
        assert [one[:2] for one in outcome.said.errors] == [("DeliveryFailure", "Error")]
        assert outcome.said.data("RefToMessageId") == "4@buyer.example"
        for number in (0, 1):
            await hand(world, seller, numbered(number))
        outcome = await hand(world, seller, numbered(4))
    assert [one[0] for one in outcome.delivered] == ["0", "1", "2", "3", "4"]


@pytest.mark.req("MS098-8.4.8-06")
@played
async def test_two_messages_of_one_number_are_inconsistent(world: World) -> None:
    world.speak(message_order="Guaranteed", **reliable_terms())
    seller = await listening(world)
    await hand(world, seller, numbered(0))
    outcome = await hand(world, seller, numbered(0, "twin").replace("Reset", "Continue"))
    assert outcome.delivered == ["0@buyer.example"]
    assert outcome.said.errors[0][1] == "Error"


async def signed_letter(world: World, **terms: Any) -> tuple[Station, Packed]:
    """A seller, and an order that the buyer signed."""
    world.speak(signed=True, **({"version": "0.98b"} | terms))
    world.wire.usual[SELLER] = world.wire.usual[BUYER] = status(204)
    buyer, seller = await world.both()
    buyer.node.context.msh_url = address(BUYER)
    await buyer.send(M)
    await world.wait(1)
    posted = world.wire.to(SELLER)[0]
    return seller, (posted.content_type, posted.body)


@pytest.mark.req("MS098-8.7.5.4-03")
@pytest.mark.parametrize("version", ["0.98b", "1.0", "2.0"])
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (ORDER, ORDER.replace(b"paper", b"money"), None),
        (b">orders<", b">others<", pointer(f"{TOP}/ds:Signature")),
    ],
    ids=["payload", "header"],
)
@played
async def test_what_was_changed_after_signing_is_a_security_failure(
    world: World, version: str, old: bytes, new: bytes, place: str | None
) -> None:
    """A location never points at a payload."""
    seller, (kind, body) = await signed_letter(world, version=version)
    assert old in body
    outcome = await hand(world, seller, (kind, body.replace(old, new)))
    assert outcome.delivered == []
    assert ("SecurityFailure", "Error", place) in outcome.said.errors
    assert outcome.said.data("RefToMessageId") == M
    assert (await seller.story(M))[-1] == "rejected"


@played
async def test_what_is_written_otherwise_and_says_the_same_is_still_signed(world: World) -> None:
    seller, (kind, body) = await signed_letter(world)
    outcome = await hand(world, seller, (kind, body.replace(b"<eb:Action>", b"<eb:Action >")))
    assert outcome.delivered == [M]


@pytest.mark.parametrize("version", ["0.98b", "1.0", "2.0"])
@played
async def test_a_report_about_what_the_partner_signed_is_signed(world: World, version: str) -> None:
    few = {"max_retries": 1, "timeout": "PT5S", "period": "PT5S", "time_to_live": "PT10S"}
    seller, letter = await signed_letter(world, **reliable_terms(version), retry=few)
    await world.wait(60)
    outcome = await hand(world, seller, letter)
    assert [one[0] for one in outcome.said.errors] == ["TimeToLiveExpired"]
    assert outcome.said.signed


@pytest.mark.req("MS098-8.8-04")
@played
async def test_a_missing_signature_is_a_security_failure(world: World) -> None:
    seller, (kind, body) = await signed_letter(world)
    start, end = body.index(b"<ds:Signature"), body.index(b"</ds:Signature>") + 15
    outcome = await hand(world, seller, (kind, body[:start] + body[end:]))
    assert outcome.delivered == []
    assert ("SecurityFailure", "Error") in [one[:2] for one in outcome.said.errors]


@pytest.mark.req("MS098-8.8-04")
@played
async def test_the_signature_of_somebody_else_is_a_security_failure(world: World) -> None:
    world.sign_as(BUYER, SELLER)
    seller, letter = await signed_letter(world)
    outcome = await hand(world, seller, letter)
    assert outcome.delivered == []
    assert ("SecurityFailure", "Error") in [one[:2] for one in outcome.said.errors]


@played
async def test_whom_no_signature_proves_does_not_choose_where_we_call(world: World) -> None:
    seller, (kind, body) = await signed_letter(world)
    changed = body.replace(b">http://buyer.example/msh<", b">http://carrier.example/msh<")
    changed = changed.replace(ORDER, b"<order>money</order>")
    outcome = await hand(world, seller, (kind, changed))
    assert outcome.posted == []
    assert outcome.response.body


# --- errors and acknowledgments that a node gets


def answer(action: str, *blocks: str, body: str = "", version: str = "0.98b", **named: Any) -> str:
    """A message of the seller's MSH about M."""
    given = {
        "id": E,
        "ref": M,
        "frm": party(SELLER),
        "to": party(BUYER),
        "service": SERVICES[version],
        "action": action,
    }
    said = header(version, **(given | named))
    traced = (trace(address(SELLER), address(BUYER)),) if version == "0.98b" else ()
    return envelope(said, *traced, *blocks, body=body, version=version)


def failure(code: str = "Inconsistent", severity: str = "Error", **named: Any) -> str:
    version = named.get("version", "0.98b")
    return answer("MessageError", error(code, severity, version), **named)


async def sent(world: World, **terms: Any) -> Station:
    """A buyer whose order M left, and was not answered yet."""
    world.speak(**(reliable_terms() | terms))
    world.speak("answers", frm=SELLER, to=BUYER, **reliable_terms())
    buyer = await listening(world, BUYER)
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.WAITING
    return buyer


@pytest.mark.req("MS098-8.7.8-01", "MS098-8.7.9-01", "MS098-10.3.1.2-01")
@pytest.mark.parametrize(
    "code",
    [
        "ValueNotRecognized",
        "NotRecognized",
        "NotSupported",
        "Inconsistent",
        "OtherXml",
        "TimeToLiveExpired",
        "SecurityFailure",
        "MimeProblem",
        "Unknown",
        "SomethingOfItsOwn",
    ],
)
@played
async def test_an_error_ends_the_message_that_it_is_about(world: World, code: str) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, failure(code))
    assert outcome.silent
    assert await buyer.state(M) is State.FAILED
    await world.wait(100)
    assert len(world.wire.to(SELLER)) == 1
    assert (await buyer.story(M))[-2:] == ["error_received", "delivery_failed"]
    [notice] = await buyer.notices(M)
    assert notice.severity == "Error"
    reported = [one for one in await buyer.events(M) if one.event == "error_received"]
    expected = "ValueNotRecognized" if code == "NotRecognized" else code
    assert [one.error_code for one in reported] == [expected]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@played
async def test_an_error_of_each_version_ends_the_message(world: World, version: str) -> None:
    buyer = await sent(world, **reliable_terms(version))
    assert (await hand(world, buyer, failure(version=version))).silent
    assert await buyer.state(M) is State.FAILED


@played
async def test_a_warning_does_not_end_the_message(world: World) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, failure("NotSupported", "Warning"))
    assert outcome.silent
    assert await buyer.state(M) not in ENDED
    assert "error_received" in await buyer.story(M)
    await world.wait(10)
    assert len(world.wire.to(SELLER)) > 1


def riding(code: str, severity: str, ref: str = M) -> Packed:
    """An answer of the seller's application with an ErrorList on it."""
    letter = envelope(
        header(
            id=E, ref=ref, frm=party(SELLER), to=party(BUYER), action="answers", inside=RELIABLY
        ),
        trace(address(SELLER), address(BUYER)),
        error(code, severity),
        body=manifest(),
    )
    return pack(letter, (CID, b"yes"))


@pytest.mark.req("MS098-8.13.5-01", "MS098-11.5-01")
@played
async def test_a_warning_rides_on_a_message_for_the_application(world: World) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, riding("NotSupported", "Warning"))
    assert outcome.delivered == [E]
    assert outcome.said.service[1] == "Acknowledgment"
    assert "error_received" in await buyer.story(M)
    assert await buyer.state(M) is State.ACKNOWLEDGED


def business_error() -> str:
    """A reply of the seller's application that has no payload, but says what is wrong."""
    said = header(
        id=E, ref=M, frm=party(SELLER), to=party(BUYER), action="answers", inside=RELIABLY
    )
    return envelope(said, trace(address(SELLER), address(BUYER)), error())


@pytest.mark.req("MS098-11.5-01")
@played
async def test_an_error_on_an_answer_of_the_application_ends_the_message(world: World) -> None:
    """The answer itself is delivered, and acknowledged, as any other."""
    buyer = await sent(world)
    outcome = await hand(world, buyer, business_error())
    assert await buyer.state(M) is State.FAILED
    assert "error_received" in await buyer.story(M)
    assert outcome.delivered == [E]
    assert outcome.said.service[1] == "Acknowledgment"
    assert outcome.said.data("RefToMessageId") == E


@played
async def test_an_acknowledgment_with_an_error_is_an_error(world: World) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, answer("Acknowledgment", error(), body=acknowledgment()))
    assert outcome.silent
    assert await buyer.state(M) is State.FAILED


@played
async def test_an_acknowledgment_with_a_warning_is_both(world: World) -> None:
    buyer = await sent(world)
    letter = answer("Acknowledgment", error("NotSupported", "Warning"), body=acknowledgment())
    assert (await hand(world, buyer, letter)).silent
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert {"ack_received", "error_received"} <= set(await buyer.story(M))


@pytest.mark.req("MS098-10.3.1.3-01", "RM000-1.4-05")
@played
async def test_a_notice_that_was_sent_reliably_is_acknowledged(world: World) -> None:
    """Once and only once: a copy gets the same acknowledgment, and is not heard again."""
    buyer = await sent(world, hops=1)
    letter = failure("DeliveryFailure", frm=address(SELLER), inside=RELIABLY)
    first = await hand(world, buyer, letter)
    assert first.said.service[1] == "Acknowledgment"
    assert first.said.data("RefToMessageId") == E
    again = await hand(world, buyer, letter)
    assert again.said.data("MessageId") == first.said.data("MessageId")
    assert (await buyer.story(M)).count("error_received") == 1


@pytest.mark.req("MS098-8.7.5.4-01")
@pytest.mark.parametrize(
    ("at", "letter", "place"),
    [
        (BUYER, order(inside=RELIABLY), f"{HEADER}/eb:To"),
        (SELLER, order(id="x" * 2000 + "@buyer.example", inside=RELIABLY), f"{DATA}/eb:MessageId"),
        (SELLER, order(inside=RELIABLY).replace("2024-", "1999-"), f"{DATA}/eb:Timestamp"),
    ],
    ids=["for somebody else", "a long id", "long ago"],
)
@played
async def test_what_this_node_does_not_take_is_reported_at_its_place(
    world: World, at: str, letter: str, place: str
) -> None:
    world.speak(**reliable_terms())
    outcome = await hand(world, await listening(world, at), letter)
    assert outcome.delivered == []
    [(_, severity, location)] = outcome.said.errors
    assert (severity, location) == ("Error", pointer(place))


@played
async def test_a_copy_that_comes_after_its_time_is_a_copy_all_the_same(world: World) -> None:
    world.speak(**reliable_terms())
    seller = await listening(world)
    letter = order(inside=RELIABLY, live="2024-06-01T12:00:10Z")
    first = await hand(world, seller, letter)
    await world.wait(20)
    again = await hand(world, seller, letter)
    assert again.said.service[1] == "Acknowledgment"
    assert again.said.data("MessageId") == first.said.data("MessageId")
    assert again.delivered == [M]


@played
async def test_a_report_is_not_longer_than_anybody_reads(world: World) -> None:
    world.speak(**reliable_terms())
    foreign = '<x:a xmlns:x="urn:example:x" SOAP-ENV:mustUnderstand="1"/>'
    outcome = await hand(world, await listening(world), order(inside=RELIABLY + foreign * 1000))
    assert 1 <= len(outcome.said.errors) <= 50
    assert outcome.said.errors[0][0] == "NotSupported"


@pytest.mark.req("MS098-8.13.5-02")
@played
async def test_an_error_that_rides_on_a_payload_is_neither_delivered_nor_answered(
    world: World,
) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, riding("NotSupported", "Error"))
    assert outcome.silent
    assert outcome.delivered == []
    assert {one.error_code for one in outcome.raised} == {"Inconsistent"}


@pytest.mark.req("MS098-8.13.4-02", "MS098-8.13.5-03")
@played
async def test_an_error_with_a_status_is_not_answered(world: World) -> None:
    buyer = await sent(world)
    known = (
        '<eb:StatusData SOAP-ENV:mustUnderstand="1" eb:version="0.98b" '
        f'eb:messageStatus="Received"><eb:RefToMessageId>{M}</eb:RefToMessageId></eb:StatusData>'
    )
    outcome = await hand(world, buyer, answer("MessageError", error(), body=known))
    assert outcome.silent
    assert outcome.raised


@pytest.mark.req("MS098-11.3-02", "MS098-11.3-04")
@pytest.mark.parametrize(
    "letter",
    [
        failure(ref="other@buyer.example"),
        failure(ref=None),
        failure(ref="").replace("<eb:RefToMessageId></eb:RefToMessageId>", ""),
        answer("MessageError"),
        answer("Acknowledgment", ref="other@buyer.example"),
        answer("Acknowledgment", ref=None),
        failure().replace('eb:version="0.98b"', 'eb:version="0.97"'),
        failure(conversation="").replace("<eb:ConversationId></eb:ConversationId>", ""),
        failure(frm="the seller"),
    ],
    ids=[
        "an error about a message that nobody sent",
        "an error about nothing",
        "an error that refers to nothing",
        "an error without an ErrorList",
        "an acknowledgment of a message that nobody sent",
        "an acknowledgment of nothing",
        "an error of an unknown version",
        "an error without a conversation",
        "an error of nobody",
    ],
)
@played
async def test_a_bad_error_or_acknowledgment_is_logged_and_not_answered(
    world: World, letter: str
) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, letter)
    assert outcome.silent
    assert outcome.raised
    assert await buyer.state(M) is State.WAITING


@pytest.mark.req("MS098-11.3-04")
@played
async def test_a_block_that_is_not_understood_in_an_error_is_not_answered(world: World) -> None:
    buyer = await sent(world)
    block = '<x:a xmlns:x="urn:example:x" SOAP-ENV:mustUnderstand="1"/>'
    outcome = await hand(world, buyer, answer("MessageError", error(), block))
    assert not outcome.posted
    assert await buyer.state(M) is State.WAITING


@played
async def test_a_message_is_not_its_own_acknowledgment(world: World) -> None:
    """Neither to who sent it, nor to who gets it."""
    buyer = await sent(world)
    letter = answer("Acknowledgment", body=acknowledgment(), id=M)
    outcome = await hand(world, buyer, letter)
    assert outcome.silent
    assert await buyer.state(M) is State.WAITING
    own = order(ref=M, inside=RELIABLY)
    assert (await hand(world, buyer, own)).delivered == []
    assert await buyer.state(M) is State.WAITING


@pytest.mark.req("MS098-8.4.6.3-01")
@played
async def test_a_message_that_refers_to_itself_is_inconsistent(world: World) -> None:
    """RefToMessageId names an earlier message (8.4.6.3)."""
    world.speak(**reliable_terms())
    outcome = await hand(world, await listening(world), order(ref=M, inside=RELIABLY))
    assert outcome.delivered == []
    assert set(outcome.said.errors) == {
        ("Inconsistent", "Error", pointer(f"{DATA}/eb:RefToMessageId"))
    }


@pytest.mark.parametrize(
    "letter",
    [
        answer("Acknowledgment", frm="urn:example:stranger"),
        answer("Acknowledgment", body=acknowledgment(), frm="urn:example:stranger"),
        failure(frm="urn:example:stranger"),
        failure("DeliveryFailure", frm="urn:example:stranger"),
        answer("Acknowledgment", frm=party(BUYER)),
        answer("Acknowledgment", to="urn:example:stranger"),
    ],
    ids=["ack", "acknowledgment", "error", "failure", "of the sender", "for somebody else"],
)
@played
async def test_who_has_no_part_in_a_message_says_nothing_about_it(
    world: World, letter: str
) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, letter)
    assert outcome.silent
    assert outcome.raised
    assert await buyer.state(M) is State.WAITING


@pytest.mark.req(
    "MS098-10.3.1.2-01",
    "MS098-10.3.1.2-02",
    "MS098-8.12.2-01",
    "MS098-8.12.5-02",
    "RM000-1.3.1.3-02",
)
@pytest.mark.parametrize(
    "letter",
    [
        answer("Acknowledgment"),
        answer("Acknowledgment", body=acknowledgment()),
        answer("Acknowledgment", body=acknowledgment("DeliveryReceipt")),
        answer("Acknowledgment", service=ACK_000),
        answer("DeliveryReceipt", service=ACK_000, body=acknowledgment("DeliveryReceipt")),
        answer("Acknowledgment", service=ACK_000.replace("Acknowledgment", "Acknowledgement")),
        answer("Acknowledgment", service=SERVICES["0.98b"].rstrip("/")),
        answer("Acknowledgment", acknowledgment()),
    ],
    ids=[
        "bare",
        "type absent",
        "DeliveryReceipt",
        "Service of 10.3.1.2",
        "Action of draft 000",
        "Acknowledgement",
        "no slash",
        "in the Header",
    ],
)
@played
async def test_each_spelling_of_an_acknowledgment_is_one(world: World, letter: str) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, letter)
    assert outcome.silent
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await buyer.story(M)).count("ack_received") == 1


@played
async def test_an_acknowledgment_of_2_0_says_what_it_acknowledges(world: World) -> None:
    buyer = await sent(world, **reliable_terms("2.0"))
    other = answer("Acknowledgment", acknowledgment_20("other@buyer.example"), version="2.0")
    assert (await hand(world, buyer, other)).silent
    assert await buyer.state(M) is State.WAITING
    own = answer("Acknowledgment", acknowledgment_20(M), version="2.0")
    assert (await hand(world, buyer, own)).silent
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.parametrize("word", ["ack_requested", "delivery_receipt"])
@pytest.mark.parametrize("claims", ["true", "false"])
@played
async def test_an_unsigned_acknowledgment_is_not_believed_where_a_signed_one_was_asked_for(
    world: World, word: str, claims: str
) -> None:
    buyer = await sent(world, signed=True, **{word: "Signed"})
    letter = answer("Acknowledgment", body=acknowledgment("DeliveryReceipt", claims))
    outcome = await hand(world, buyer, letter)
    assert outcome.silent
    assert "SecurityFailure" in {one.error_code for one in outcome.raised}
    assert await buyer.state(M) is State.WAITING


@played
async def test_an_unsigned_error_by_a_request_is_not_believed_where_all_is_signed(
    world: World,
) -> None:
    buyer = await sent(world, signed=True, ack_requested="Signed")
    assert (await hand(world, buyer, failure())).silent
    assert await buyer.state(M) is State.WAITING


@pytest.mark.req("MS098-10.4-05", "MS098-10.4-06", "RM000-1.4-06", "RM000-1.4-07")
@pytest.mark.parametrize(
    ("severity", "state"), [("Error", State.FAILED), ("Warning", State.IN_DOUBT)]
)
@played
async def test_a_delivery_failure_notice_of_the_next_msh_tells_how_it_ended(
    world: World, severity: str, state: State
) -> None:
    buyer = await sent(world, hops=1)
    letter = failure("DeliveryFailure", severity, frm=address(SELLER))
    assert (await hand(world, buyer, letter)).silent
    assert await buyer.state(M) is state
    [notice] = await buyer.notices(M)
    assert notice.severity == severity


@played
async def test_a_late_acknowledgment_settles_what_was_in_doubt(world: World) -> None:
    buyer = await sent(world)
    await world.wait(100)
    assert await buyer.state(M) is State.IN_DOUBT
    assert (await hand(world, buyer, answer("Acknowledgment"))).silent
    assert await buyer.state(M) in (State.SETTLED, State.ACKNOWLEDGED)


@pytest.mark.req("RM001-2.3-09")
@played
async def test_a_second_acknowledgment_changes_nothing(world: World) -> None:
    buyer = await sent(world)
    await hand(world, buyer, answer("Acknowledgment"))
    assert (await hand(world, buyer, answer("Acknowledgment", id="f@seller.example"))).silent
    assert (await hand(world, buyer, failure(id="g@seller.example"))).silent
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("MS098-10.3.1.2-06", "RM000-1.3.1.2-04")
@played
async def test_an_answer_of_the_application_acknowledges_what_it_refers_to(world: World) -> None:
    buyer = await sent(world)
    letter = envelope(
        header(id=E, ref=M, frm=party(SELLER), to=party(BUYER), action="answers", inside=RELIABLY),
        trace(address(SELLER), address(BUYER)),
        body=manifest(),
    )
    outcome = await hand(world, buyer, pack(letter, (CID, b"yes")))
    assert outcome.delivered == [E]
    assert await buyer.state(M) is State.ACKNOWLEDGED


FAULT: Final = (
    f'<s:Envelope xmlns:s="{SOAP_NS}"><s:Body><s:Fault><faultcode>s:{{}}</faultcode>'
    "<faultstring>the order book is closed</faultstring></s:Fault></s:Body></s:Envelope>"
)


@pytest.mark.req("MS098-11-02")
@pytest.mark.parametrize(
    ("code", "times", "state"),
    [
        ("Client", 1, State.FAILED),
        ("MustUnderstand", 1, State.FAILED),
        ("VersionMismatch", 1, State.FAILED),
        ("Server", 4, State.IN_DOUBT),
    ],
)
@played
async def test_a_soap_fault_in_answer_is_understood(
    world: World, code: str, times: int, state: State
) -> None:
    world.speak(**reliable_terms())
    world.wire.usual[SELLER] = status(500, FAULT.format(code).encode(), XML)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.wait(200)
    assert len(world.wire.to(SELLER)) == times
    assert await buyer.state(M) is state
    [notice] = await buyer.notices(M)
    assert "the order book is closed" in (notice.detail or "")


@pytest.mark.req("MS098-11-02")
@played
async def test_a_soap_fault_that_comes_by_itself_changes_nothing(world: World) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, (XML, FAULT.format("Client").encode()))
    assert not outcome.posted
    assert not outcome.response.body
    assert await buyer.state(M) is State.WAITING


@played
async def test_an_error_on_the_response_ends_the_message(world: World) -> None:
    world.speak(**reliable_terms())
    world.wire.usual[SELLER] = status(200, failure().encode(), XML)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.FAILED
    assert "error_received" in await buyer.story(M)


@pytest.mark.req("RM001-2.3-09")
@played
async def test_an_error_about_another_message_on_the_response_does_not(world: World) -> None:
    world.speak(**reliable_terms())
    letter = failure(ref="other@buyer.example")
    world.wire.usual[SELLER] = status(200, letter.encode(), XML)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.WAITING


@pytest.mark.req("MS098-11.2-01")
@pytest.mark.parametrize("number", [404, 503])
@played
async def test_what_http_refuses_is_told_to_nobody_by_an_error_list(
    world: World, number: int
) -> None:
    world.speak(**reliable_terms())
    world.wire.usual[SELLER] = status(number)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.wait(200)
    assert all(b"ErrorList" not in one.body for one in world.wire.posted)
    assert await buyer.state(M) in (State.FAILED, State.IN_DOUBT)
