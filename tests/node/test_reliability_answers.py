"""What comes back, on the response or by a call: what it makes of a message that is retried."""

import re
from typing import Any, Final

import pytest

from postroad.store.interface import StoreError, StoreFull
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from postroad.wire.names import EB3, RECEIPT_COPY
from postroad.wire.soap import read_envelope
from postroad.wire.xml import parse
from tests.node.reliable import (
    BEGIN,
    BUYER,
    SELLER,
    SOAP,
    Answering,
    Held,
    Posted,
    World,
    ebms_error,
    failing,
    passed,
    played,
    refused,
    status,
    told,
)

M: Final = "m@buyer"
FEW: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}
FAULT: Final = (
    '<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><s:Fault><s:Code>'
    "<s:Value>s:{}</s:Value></s:Code><s:Reason><s:Text xml:lang='en'>no paper</s:Text></s:Reason>"
    "</s:Fault></s:Body></s:Envelope>"
)


@pytest.mark.parametrize(
    ("answer", "times", "state"),
    [
        (told(503, "EBMS:0202", M), [0, 5, 15, 25], State.FAILED),
        (told(200, "EBMS:0202", M), [0, 5, 15, 25], State.FAILED),
        (status(429), [0, 5, 15, 25], State.FAILED),
        (status(500), [0, 5, 15, 25], State.IN_DOUBT),
        (status(503), [0, 5, 15, 25], State.IN_DOUBT),
        (told(500, "EBMS:0004", M), [0, 5, 15, 25], State.IN_DOUBT),
        (told(500, "EBMS:0103", M), [0], State.FAILED),
        (status(500, FAULT.format("Receiver").encode()), [0, 5, 15, 25], State.IN_DOUBT),
        (status(400, FAULT.format("Sender").encode()), [0], State.FAILED),
        (status(404), [0], State.FAILED),
        (told(200, "EBMS:0004", M), [0], State.FAILED),
        (told(200, "EBMS:0004", "other@buyer"), [0, 5, 15, 25], State.IN_DOUBT),
        (status(202), [0, 5, 15, 25], State.IN_DOUBT),
        (status(200, b"thank you", "text/plain"), [0, 5, 15, 25], State.IN_DOUBT),
    ],
    ids=[
        "503 not now",
        "200 not now",
        "429",
        "500",
        "503",
        "500 error that says nothing",
        "500 error",
        "receiver's fault",
        "sender's fault",
        "404",
        "error",
        "error about another",
        "202",
        "chatter",
    ],
)
@played
async def test_what_an_answer_says_is_what_becomes_of_it(
    world: World, answer: Answering, times: list[float], state: State
) -> None:
    world.agree(retry=FEW)
    world.wire.usual[SELLER] = answer
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(200)
    assert world.wire.times(M) == times
    assert await buyer.state(M) is state
    [told] = await buyer.notices(M)
    assert told.severity == ("Error" if state is State.FAILED else "Warning")


@played
async def test_a_receiver_without_room_turns_it_away_and_takes_it_later(world: World) -> None:
    world.agree(retry=FEW)
    buyer, seller = await world.both()
    with failing(seller.node.context.store, StoreFull("no room"), about="keep"):
        await buyer.send(M)
        await world.until(1)
    assert await buyer.state(M) is State.READY
    await world.until(10)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.story(M) == ["received", "delivered", "receipt_sent"]


@played
async def test_a_receiver_that_does_not_know_whether_it_took_it_leaves_it_open(
    world: World,
) -> None:
    world.agree(retry=FEW)
    buyer, seller = await world.both()
    with failing(seller.node.context.store, StoreError("interrupted"), kept=True, about="keep"):
        await buyer.send(M)
        await world.until(1)
    assert await buyer.state(M) is State.WAITING
    world.wire.usual[SELLER] = refused
    await world.until(100)
    assert await buyer.state(M) is State.IN_DOUBT
    assert await seller.inbox() == [M]


# Receipts that call back


@played
async def test_a_receipt_that_calls_back_is_waited_for_and_ends_the_timer(world: World) -> None:
    world.agree(receipt="callback", retry=FEW)
    way_back = Held()
    world.wire.will(way_back, at=BUYER)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.until(4)
    assert await buyer.state(M) is State.WAITING
    way_back.release()
    await world.until(200)
    assert world.wire.times(M) == [0]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await buyer.work() == {}


@played
async def test_an_error_in_the_answer_to_a_receipt_is_in_the_journal(world: World) -> None:
    """phase4 answers a signed receipt that calls back so. The message stays received."""
    world.agree(receipt="callback", retry=FEW)
    world.wire.will(told(200, "EBMS:0004", "receipt@seller"), at=BUYER)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(4)
    events = {one.event: one for one in await seller.events(M)}
    assert "receipt_sent" in events
    raised = events["error_raised"]
    assert (raised.error_code, raised.severity) == ("EBMS:0004", "warning")
    assert "the partner answered the receipt with an error" in (raised.detail or "")
    assert await seller.inbox() == [M]


@pytest.mark.req("OV004-2-06")
@played
async def test_without_a_receipt_that_calls_back_it_is_given_up_one_interval_after_the_last_retry(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=FEW)
    world.wire.usual[SELLER] = status(202)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(34)
    assert await buyer.state(M) is State.WAITING
    await world.until(500)
    assert world.wire.times(M) == [0, 5, 15, 25]
    [end] = [one for one in await buyer.events(M) if one.event == "in_doubt"]
    assert end.error_code == "EBMS:0301"
    assert (end.at - BEGIN).total_seconds() == pytest.approx(35, abs=0.1)
    [told] = await buyer.notices(M)
    assert (told.severity, told.error_code) == ("Warning", "EBMS:0301")
    assert await buyer.work() == {}


@pytest.mark.parametrize("moment", [34.9, 34.99, 35, 35.01, 35.1])
@played
async def test_there_is_a_receipt_or_a_missing_receipt_whichever_comes_first(
    world: World, moment: float
) -> None:
    world.agree(receipt="callback", retry=FEW)
    buyer, seller = await world.both()
    world.wire.usual[BUYER] = way_back = Held()
    await buyer.send(M)
    await world.until(moment)
    way_back.release()
    await world.until(500)
    story = await buyer.story(M)
    missing, late = story.count("in_doubt"), story.count("settled")
    assert (missing, late) in ((0, 0), (1, 1))
    if missing:
        assert story.index("in_doubt") < story.index("receipt_received") < story.index("settled")
        assert await buyer.state(M) is State.SETTLED
    else:
        assert await buyer.state(M) is State.ACKNOWLEDGED
        assert not await buyer.notices(M)
    assert await seller.inbox() == [M]
    assert await buyer.work() == {}


@pytest.mark.parametrize(
    "trouble", [refused, told(503, "EBMS:0202", M)], ids=["refused", "not now"]
)
@played
async def test_what_nobody_took_is_not_waited_for_though_receipts_call_back(
    world: World, trouble: Answering
) -> None:
    world.agree(receipt="callback")
    world.wire.will(trouble)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(10)
    assert await buyer.state(M) is State.FAILED
    assert await buyer.work() == {}


@played
async def test_an_error_that_calls_back_ends_it(world: World) -> None:
    world.agree(receipt="callback", retry=FEW)
    world.wire.usual[SELLER] = status(202)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.until(1)
    answer = await buyer.receive(SOAP, ebms_error("EBMS:0004", M))
    assert answer.status == 202
    assert await buyer.state(M) is State.FAILED
    await world.until(100)
    assert world.wire.times(M) == [0]
    assert (await buyer.story(M)).count("delivery_failed") == 1


@played
async def test_an_error_that_calls_back_and_says_not_now_leaves_the_retries_to_come(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=FEW)
    world.wire.will(status(202))
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(1)
    await buyer.receive(SOAP, ebms_error("EBMS:0202", M))
    await world.until(100)
    assert world.wire.times(M) == [0, 5]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


# Receipts for unsigned messages: the forms that products write

COPY: Final = re.compile(rb"<copy:UserMessage xmlns:copy=\"[^\"]*\"(.*)</copy:UserMessage>")

COPIED: Final = rb"<eb:UserMessage\1</eb:UserMessage>"


def _rewritten(form: bytes) -> Answering:
    """A receiver that writes the copy of the user message into its receipt in another form."""

    async def answer(world: World, posted: Posted) -> Reply:
        reply = await passed(world, posted)
        body, count = COPY.subn(form, reply.body)
        assert count == 1, reply.body
        return Reply(reply.status, reply.content_type, reply.headers, body)

    return answer


@pytest.mark.parametrize(
    ("form", "taken"),
    [
        (COPIED, True),
        (
            rb'<Original xmlns="urn:x:wrapper"><eb:UserMessage\1</eb:UserMessage></Original>'
            rb'<marker xmlns="urn:x:info" version="1"></marker>',
            True,
        ),
        (rb'<x:Copy xmlns:x="urn:x"\1</x:Copy>', True),
        (rb'<x:Copy xmlns:x="urn:x"><x:a/><eb:UserMessage\1</eb:UserMessage></x:Copy>', True),
        (
            rb'<x:Two xmlns:x="urn:x">' + 2 * rb"<eb:UserMessage\1</eb:UserMessage>" + rb"</x:Two>",
            False,
        ),
        (rb'<marker xmlns="urn:x:info"></marker>', False),
    ],
    ids=["Holodeck, Domibus, AS4.NET", "phase4", "renamed", "with more", "two copies", "no copy"],
)
@played
async def test_the_copy_of_an_unsigned_message_is_read_in_every_form(
    world: World, form: bytes, taken: bool
) -> None:
    world.agree()
    world.wire.usual[SELLER] = _rewritten(form)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(5)
    assert (await buyer.state(M) is State.ACKNOWLEDGED) is taken
    raised = [one for one in await buyer.events(M) if one.event == "error_raised"]
    assert [one.error_code for one in raised] == ([] if taken else ["EBMS:0302"])


@played
async def test_a_wrapped_copy_of_another_message_proves_nothing(world: World) -> None:
    world.agree()

    async def other(world: World, posted: Posted) -> Reply:
        reply = await passed(world, posted)
        body = reply.body.replace(b"<eb:Action>orders<", b"<eb:Action>invoices<")
        assert body != reply.body
        return Reply(reply.status, reply.content_type, reply.headers, body)

    world.wire.usual[SELLER] = other
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(5)
    assert await buyer.state(M) is not State.ACKNOWLEDGED
    [raised] = [one for one in await buyer.events(M) if one.event == "error_raised"]
    assert raised.detail == "receipt not believed: Action was orders, found invoices"


@pytest.mark.parametrize("element", ["extension", "core"])
@played
async def test_the_pmode_says_in_which_element_the_copy_stands(world: World, element: str) -> None:
    """By default in one of another namespace: the schema of Core allows no other."""
    world.agree()
    for name in (BUYER, SELLER):
        [leg] = world._pmodes[name][0]["legs"]
        if element == "core":
            leg["security"]["send_receipt"]["copy_element"] = element
    replies = []

    async def recorded(world: World, posted: Posted) -> Reply:
        replies.append(await passed(world, posted))
        return replies[-1]

    world.wire.usual[SELLER] = recorded
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(5)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    envelope = read_envelope(parse(replies[0].body))
    [receipt] = envelope.root.iter(f"{{{EB3}}}Receipt")
    [copy] = receipt
    wanted = EB3 if element == "core" else RECEIPT_COPY
    assert copy.tag == f"{{{wanted}}}UserMessage"
    assert copy[0].tag == f"{{{EB3}}}MessageInfo"
