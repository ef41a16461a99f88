"""Errors and acknowledgments that a node gets: what it makes of them, and whom it believes.

Sections 8.7, 8.12, 10 and 11 of ebXML MS 0.98b. None of them is ever answered with an error.
"""

from typing import Any, Final

import pytest

from postroad.security.secure import secure
from postroad.security.sign import Block
from postroad.store.records import State
from postroad.wire.ebms3 import Error, MessageInfo, Messaging, SignalMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.soap import SoapVersion
from tests.attack.messages import NOW
from tests.node.ebxml_letters import (
    CID,
    DATA,
    RELIABLY,
    SERVICES,
    SOAP_NS,
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
    pointer,
    reliable_terms,
    trace,
)
from tests.node.reliable import (
    BUYER,
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


@pytest.mark.req("MS098-8.7.8-01", "MS098-8.7.9-01")
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


@pytest.mark.parametrize("version", ["0.98b", "1.0", "2.0"])
@played
async def test_ebms3_signal_about_an_ebxml_message_changes_nothing(
    world: World, version: str
) -> None:
    buyer = await sent(world, **reliable_terms(version))
    refused = Error("EBMS:0004", "failure", "Content", "ebMS", "Other", ref_to_message_in_error=M)
    said = SignalMessage(MessageInfo(NOW, E, M), errors=(refused,))
    block = write_messaging(Messaging((said,), id="_messaging"), SoapVersion.SOAP_12)
    body = secure(SoapVersion.SOAP_12, [Block("_messaging", block)], ()).envelope
    assert (await buyer.receive("application/soap+xml", body)).status == 202
    assert await buyer.state(M) is State.WAITING
    assert [one.error_code for one in await buyer.journal("error_raised")] == ["EBMS:0003"]


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


@pytest.mark.req("MS098-8.13.5-01")
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


@pytest.mark.req("MS098-10.3.1.3-01")
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


@played
async def test_an_error_that_rides_on_a_payload_is_neither_delivered_nor_answered(
    world: World,
) -> None:
    buyer = await sent(world)
    outcome = await hand(world, buyer, riding("NotSupported", "Error"))
    assert outcome.silent
    assert outcome.delivered == []
    assert {one.error_code for one in outcome.raised} == {"Inconsistent"}


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


@pytest.mark.parametrize("version", ["0.98b", "2.0"])
@played
async def test_an_unsigned_answer_by_a_request_is_not_believed_where_the_response_is_agreed_on(
    world: World, version: str
) -> None:
    """Whoever knows the id could have written it."""
    buyer = await sent(world, sync_reply="mshSignalsOnly", **reliable_terms(version))
    about = (acknowledgment_20(M),) if version == "2.0" else (acknowledgment(),)
    for letter in (
        failure(version=version),
        answer("Acknowledgment", *about, version=version, id="a@stranger.example"),
    ):
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


@played
async def test_a_second_acknowledgment_changes_nothing(world: World) -> None:
    buyer = await sent(world)
    await hand(world, buyer, answer("Acknowledgment"))
    assert (await hand(world, buyer, answer("Acknowledgment", id="f@seller.example"))).silent
    assert (await hand(world, buyer, failure(id="g@seller.example"))).silent
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("MS098-10.3.1.2-06")
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
