"""Errors that a node reports: where a report goes, what it says, when there is none.

Sections 8.7, 10 and 11 of ebXML MS 0.98b; order, copies and signatures among them.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.store.records import State
from tests.node.ebxml_letters import (
    CID,
    DATA,
    HEADER,
    RELIABLY,
    SERVICES,
    TOP,
    M,
    Packed,
    envelope,
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
    played,
    status,
)


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


OTHERS: Final = [
    ("payload", pack(order(inside=RELIABLY), (CID, b"<order>gold</order>"))),
    ("header", packed(order(inside=RELIABLY, conversation="c2"))),
]


@pytest.mark.parametrize(("what", "other"), OTHERS)
@pytest.mark.req("MS098-10.3.1.2-03", "MS098-10.3.1.2-08")
@played
async def test_other_contents_under_a_known_message_id_get_the_first_acknowledgment(
    world: World, what: str, other: Packed
) -> None:
    world.speak(**reliable_terms())
    seller = await listening(world)
    first = await hand(world, seller, order(inside=RELIABLY))
    again = await hand(world, seller, other)
    assert again.said.service[1] == "Acknowledgment"
    assert again.said.data("MessageId") == first.said.data("MessageId")
    events = await seller.events(M)
    assert [one.event for one in events].count("delivered") == 1
    [told] = [one.detail or "" for one in events if one.event == "duplicate"]
    assert told.startswith("its contents differ from those of the first message: ")


@pytest.mark.parametrize(("what", "other"), OTHERS)
@played
async def test_something_else_under_a_known_message_id_is_inconsistent_where_contents_are_compared(
    world: World, what: str, other: Packed
) -> None:
    world.speak(**reliable_terms())
    for pmode in world._pmodes[SELLER]:
        aware = pmode["legs"][0].setdefault("reception_awareness", {})
        aware["duplicate_detection"] = {"compare": "contents"}
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
    world.configure(SELLER, limits={"out_of_order": 2})
    seller = await listening(world)
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


@played
async def test_a_missing_signature_is_a_security_failure(world: World) -> None:
    seller, (kind, body) = await signed_letter(world)
    start, end = body.index(b"<ds:Signature"), body.index(b"</ds:Signature>") + 15
    outcome = await hand(world, seller, (kind, body[:start] + body[end:]))
    assert outcome.delivered == []
    assert ("SecurityFailure", "Error") in [one[:2] for one in outcome.said.errors]


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


@played
async def test_an_operator_releases_what_waits_for_a_message_that_never_comes(
    world: World,
) -> None:
    world.speak(message_order="Guaranteed", **reliable_terms())
    seller = await listening(world)
    for number in (0, 2, 3, 6):
        await hand(world, seller, numbered(number))
    assert await seller.inbox() == ["0@buyer.example"]
    found = await seller.process.ask(seller.node.release("3@buyer.example"))
    assert found.state is State.DELIVERED
    assert await seller.inbox() == ["0@buyer.example", "2@buyer.example", "3@buyer.example"]
    raised = [one.detail or "" for one in await seller.journal("error_raised")]
    assert any("number 1 " in one and "not waited for" in one for one in raised)
    late = await hand(world, seller, numbered(1))
    assert [one[0] for one in late.said.errors] == ["Inconsistent"]
    with pytest.raises(Refused, match="is held until others come"):
        await seller.process.ask(seller.node.release("3@buyer.example"))
    await hand(world, seller, numbered(4))
    await hand(world, seller, numbered(5))
    assert (await seller.inbox())[-3:] == ["4@buyer.example", "5@buyer.example", "6@buyer.example"]
