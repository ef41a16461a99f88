"""Copies: filtered, answered as the first was, remembered long enough; and impostors."""

import asyncio
from datetime import timedelta
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.node.walks.receiving import Response
from postroad.store.interface import StoreBusy, StoreError, StoreFull
from postroad.store.records import Side, State
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    Held,
    Posted,
    Station,
    World,
    failing,
    lost,
    played,
    refused,
    status,
)

M: Final = "m@buyer"
RETRY: Final = {"max_retries": 5, "period": "PT10S"}
COMPARED: Final[dict[str, Any]] = {"duplicate_detection": {"compare": "contents"}}
"""Other contents under a known id are refused."""
in_every_store = pytest.mark.parametrize("kept_in", STORES)


async def captured(
    world: World, message_id: str = M, pmode: str = ORDERS, payload: bytes = b"<order/>"
) -> Posted:
    """A message as it left the buyer; by itself no copy of it gets anywhere."""
    world.wire.usual[SELLER] = lost
    await world.stations[BUYER].send(message_id, pmode, payload)
    await world.wait(0.1)
    return world.wire.to(SELLER, message_id)[-1]


async def brought(seller: Station, posted: Posted) -> Response:
    return await seller.receive(posted.content_type, posted.body)


@pytest.mark.req(
    "OV004-1-04",
    "OV004-1-10",
    "OV004-1-11",
    "RM000-1.1-05",
    "RM000-1.3.1.2-08",
    "RM000-1.3.2-04",
    "RM000-1.3.2-05",
    "MS098-10.3.1.2-08",
    "MS098-10.3.1.5-05",
    "MS098-10.3.1.5-06",
)
@in_every_store
@played
async def test_a_copy_gets_the_first_answer_to_the_last_byte_also_after_a_restart(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(signed=True, retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    first = await brought(seller, posted)
    assert b"Receipt>" in first.body
    await world.wait(100)
    second = await brought(seller, posted)
    seller = await world.start_again(SELLER)
    await world.wait(100)
    third = await brought(seller, posted)
    for again in (second, third):
        answer = (again.status, again.content_type, again.body)
        assert answer == (first.status, first.content_type, first.body)
    story = await seller.story(M)
    assert story == ["received", "delivered", "receipt_sent", "duplicate", "duplicate"]
    assert await seller.inbox() == [M]


@played
async def test_copies_that_come_at_the_same_moment_are_one_message(world: World) -> None:
    world.agree(retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    answers = await asyncio.gather(*(brought(seller, posted) for _ in range(5)))
    assert len({one.body for one in answers}) == 1
    story = await seller.story(M)
    assert (story.count("delivered"), story.count("duplicate")) == (1, 4)


@played
async def test_a_copy_in_another_envelope_of_http_is_a_copy(world: World) -> None:
    """MIME may be written anew on the way: what counts is what the message says."""
    world.agree(retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    first = await brought(seller, posted)
    mark = posted.content_type.partition('boundary="')[2].partition('"')[0]
    other = posted.body.replace(mark.encode(), b"another-boundary")
    again = await seller.receive(posted.content_type.replace(mark, "another-boundary"), other)
    assert again.body == first.body
    assert (await seller.story(M)).count("duplicate") == 1


@pytest.mark.parametrize("kept", [False, True], ids=["certainly not stored", "nobody knows"])
@played
async def test_only_what_was_completed_makes_a_copy(world: World, kept: bool) -> None:
    """A copy of what was never taken is the message itself."""
    world.agree(retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    trouble = StoreError("interrupted") if kept else StoreFull("no room")
    with failing(seller.node.context.store, trouble, kept=kept, about="keep"):
        failed = await brought(seller, posted)
    assert b"Receipt>" not in failed.body
    assert failed.status == (500 if kept else 503)
    given = await brought(seller, posted)
    assert b"Receipt>" in given.body
    story = await seller.story(M)
    assert story.count("delivered") == 1
    assert story.count("duplicate") == kept


@played
async def test_what_was_refused_before_is_no_copy_when_it_comes_again(world: World) -> None:
    """Its P-Mode was not in force yet: the same message is refused, then taken."""
    world.agree(retry=RETRY)
    _, seller = await world.both()
    await world.agree_only(SELLER, "invoices")
    posted = await captured(world)
    for _ in range(2):
        error = await brought(seller, posted)
        assert b"EBMS:0010" in error.body
    assert await seller.inbox() == []
    await world.agree_only(SELLER, ORDERS, retry=RETRY)
    assert b"Receipt>" in (await brought(seller, posted)).body
    assert await seller.inbox() == [M]
    story = await seller.story(M)
    assert story.count("rejected") == 2
    assert story.count("delivered") == 1
    assert "duplicate" not in story
    assert b"Receipt>" in (await brought(seller, posted)).body


# Other contents under a known id


@pytest.mark.parametrize("consumed", [False, True], ids=["in the inbox", "consumed"])
@in_every_store
@played
async def test_a_message_that_its_sender_built_anew_gets_the_first_receipt(
    world: World, kept_in: str, consumed: bool
) -> None:
    """AS4 knows duplicates by MessageId (3.2): some products write each attempt anew."""
    world.kept_in = kept_in
    world.agree(signed=True, retry=RETRY)
    world.configure(SELLER, webhook={"url": "http://application.example/"})
    world.wire.usual["application"] = status(204)
    _, seller = await world.both()
    first = await brought(seller, await captured(world))
    if consumed:
        await seller.node.acknowledge(M)
    await world.wait(1)
    before = await seller.message(M)
    with world.elsewhere():
        builder = await world.start(BUYER)
    await builder.send(M, payload=b"<order>more paper</order>", conversation="another")
    await world.wait(0.1)
    rebuilt = world.wire.to(SELLER, M)[-1]
    assert b"another" in rebuilt.body
    again = await brought(seller, rebuilt)
    assert (again.status, again.content_type, again.body) == (
        first.status,
        first.content_type,
        first.body,
    )
    await world.wait(10)
    assert await seller.message(M) == before
    assert b"".join(seller.node.part(before, before.parts[0]).chunks()) == b"<order/>"
    assert [one.told["event"] for one in world.wire.to("application")] == ["received"]
    events = await seller.events(M)
    assert [one.event for one in events].count("delivered") == 1
    assert (events[-1].event, events[-1].detail) == (
        "duplicate",
        "its contents differ from those of the first message: ConversationId, payloads",
    )
    assert events[-1].conversation_id == before.conversation_id
    await builder.stop()


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        (b"urn:example:sender", b"urn:example:other", None),
        (b"<eb:ConversationId>", b"<eb:ConversationId>x", "ConversationId"),
        (b"<order/>", b"<forged/>", "payloads"),
        (b"<eb:Timestamp>2024", b"<eb:Timestamp>2023", "nothing"),
    ],
    ids=["role", "conversation", "payload", "timestamp"],
)
@played
async def test_the_journal_says_in_what_a_duplicate_differs(
    world: World, old: bytes, new: bytes, differs: str | None
) -> None:
    world.agree(retry=RETRY)
    world.configure(SELLER, retention={"messages": "P800D"})
    _, seller = await world.both()
    posted = await captured(world)
    first = await brought(seller, posted)
    body = posted.body.replace(old, new)
    assert body != posted.body
    answer = await seller.receive(posted.content_type, body)
    last = (await seller.events(M))[-1]
    if differs is None:
        # The P-Mode names the role: it is a message of no P-Mode.
        assert b"EBMS:0010" in answer.body
        assert last.event == "error_raised"
        return
    assert answer.body == first.body
    said = f"its contents differ from those of the first message: {differs}"
    expected = None if differs == "nothing" else said
    assert (last.event, last.detail) == ("duplicate", expected)


@played
async def test_the_message_of_another_pmode_under_a_known_id_is_no_duplicate(world: World) -> None:
    """Another P-Mode may ask for less, and its receipt may go elsewhere."""
    world.agree(signed=True, retry=RETRY)
    world.agree("invoices", retry=RETRY)
    _, seller = await world.both()
    first = await brought(seller, await captured(world))
    with world.elsewhere():
        builder = await world.start(BUYER)
    await builder.send(M, "invoices")
    await world.wait(0.1)
    answer = await brought(seller, world.wire.to(SELLER, M)[-1])
    assert b"EBMS:0003" in answer.body
    assert answer.body != first.body
    assert (await seller.story(M)).count("duplicate") == 0
    await builder.stop()


@played
async def test_other_contents_that_the_partner_did_not_sign_get_no_receipt(world: World) -> None:
    world.agree(signed=True, retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    forged = posted.body.replace(b"<order/>", b"<forge/>")
    answer = await seller.receive(posted.content_type, forged)
    assert b"EBMS:0101" in answer.body
    assert b"Receipt>" not in answer.body
    assert (await seller.story(M)).count("duplicate") == 0


# Other contents where contents are compared


@pytest.mark.parametrize("consumed", [False, True], ids=["in the inbox", "consumed"])
@in_every_store
@played
async def test_something_else_under_a_known_id_is_refused_and_the_first_is_untouched(
    world: World, kept_in: str, consumed: bool
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY, **COMPARED)
    world.configure(SELLER, webhook={"url": "http://application.example/"})
    world.wire.usual["application"] = status(204)
    _, seller = await world.both()
    posted = await captured(world)
    other = posted.body.replace(b"<order/>", b"<forged/>")
    first = await brought(seller, posted)
    if consumed:
        await seller.node.acknowledge(M)
    await world.wait(1)
    before = await seller.message(M)
    signals = await seller.node.signals(before)
    told = len(world.wire.to("application"))
    seen = len(await seller.events(M))

    answer = await seller.receive(posted.content_type, other)
    assert b"EBMS:0003" in answer.body
    assert b"Receipt>" not in answer.body
    await world.wait(10)
    assert await seller.message(M) == before
    assert await seller.node.signals(before) == signals
    part = seller.node.part(before, before.parts[0])
    assert b"".join(part.chunks()) == b"<order/>"
    [event] = (await seller.events(M))[seen:]
    assert (event.event, event.error_code) == ("error_raised", "EBMS:0003")
    assert event.severity == "failure"
    assert len(world.wire.to("application")) == told
    assert (await brought(seller, posted)).body == first.body


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"urn:example:sender", b"urn:example:other"),
        (b"<eb:ConversationId>", b"<eb:ConversationId>x"),
    ],
    ids=["another role", "another conversation"],
)
@played
async def test_what_says_something_else_in_its_header_is_no_copy(
    world: World, old: bytes, new: bytes
) -> None:
    world.agree(retry=RETRY, **COMPARED)
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    answer = await seller.receive(posted.content_type, posted.body.replace(old, new))
    assert b"Receipt>" not in answer.body
    assert (await seller.story(M)).count("duplicate") == 0


@played
async def test_the_sender_of_something_else_under_a_known_id_is_told_the_truth(
    world: World,
) -> None:
    """The seller has another message of that id: what this buyer sent did not arrive."""
    world.agree(retry=RETRY, **COMPARED)
    _, seller = await world.both()
    await brought(seller, await captured(world))
    world.wire.usual.clear()
    with world.elsewhere():
        stranger = await world.start(BUYER)
    await stranger.send(M, payload=b"<another/>")
    await world.wait(1)
    found = await stranger.message(M)
    assert (found.state, found.error_code) == (State.FAILED, "EBMS:0003")


# Memory


@pytest.mark.req("OV004-1-08")
@in_every_store
@played
async def test_ids_are_remembered_within_the_check_window_whatever_is_purged(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    window = {"parameters": {"check_window": "P7D"}}
    world.agree(retry=RETRY, duplicate_detection=window)
    world.configure(SELLER, retention={"messages": "P30D"})
    buyer, seller = await world.both()
    posted = await captured(world)
    first = await brought(seller, posted)
    await seller.node.acknowledge(M)
    world.clock.ahead += timedelta(days=6)
    await buyer.node.purge(0)
    assert await seller.node.purge(0) == 0
    assert (await brought(seller, posted)).body == first.body
    assert (await seller.story(M)).count("delivered") == 1
    world.clock.ahead += timedelta(days=2)
    assert await seller.node.purge(0) == 1
    assert await seller.node.message(M, Side.RECEIVING) is None
    assert "purged" in await seller.story(M)


@pytest.mark.req("OV004-1-08")
@played
async def test_ids_are_remembered_as_long_as_the_sender_may_send_again_whatever_is_purged(
    world: World,
) -> None:
    """Both have the same P-Mode: the receiver knows how long copies may come. [OV004-1-08]"""
    world.agree(retry={"max_retries": 10, "period": "PT1H"})
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    await seller.node.acknowledge(M)
    world.clock.ahead += timedelta(hours=2)
    await seller.node.purge(0)
    await brought(seller, posted)
    assert (await seller.story(M)).count("delivered") == 1


@played
async def test_what_is_older_than_the_memory_is_not_taken_for_new(world: World) -> None:
    world.agree(retry=RETRY)
    world.configure(SELLER, retention={"messages": "P10D"})
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    world.clock.ahead += timedelta(days=11)
    assert await seller.node.purge() == 1
    answer = await brought(seller, posted)
    assert b"Receipt>" not in answer.body
    assert (await seller.story(M)).count("delivered") == 1


@pytest.mark.req("RM000-1.1-06", "MS098-10.1.1-06")
@played
async def test_a_message_is_kept_whole_until_it_was_passed_on_and_its_copy_at_the_sender_may_go(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    await buyer.send(M, payload=b"<order/>")
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    world.clock.ahead += timedelta(days=30)
    assert await buyer.node.purge(1) == 1
    assert await buyer.node.message(M) is None
    seller = await world.start_again(SELLER)
    found = await seller.message(M)
    assert found.state is State.DELIVERED
    assert b"".join(seller.node.part(found, found.parts[0]).chunks()) == b"<order/>"
    assert found.envelope is not None


@played
async def test_what_waits_to_be_sent_again_is_not_purged(world: World) -> None:
    world.agree(retry={"max_retries": "unlimited", "period": "P1D"})
    world.wire.will(refused)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.node.purge(0) == 0
    world.clock.ahead += timedelta(days=1)
    await world.wait(2)
    assert await seller.inbox() == [M]


# Receipts that call back


@played
async def test_a_copy_wakes_the_receipt_that_waits_instead_of_adding_another(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=RETRY)
    world.wire.usual[BUYER] = refused
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    await world.until(1)
    assert len(world.wire.to(BUYER)) == 1
    assert (await brought(seller, posted)).status == 202
    await world.until(1.5)
    assert len(world.wire.to(BUYER)) == 2
    for _ in range(3):
        await brought(seller, posted)
    await world.until(1.6)
    assert await seller.work() == {"signal": 1}
    del world.wire.usual[BUYER]
    await brought(seller, posted)
    await world.until(2)
    assert await seller.work() == {}
    assert len({one.body for one in world.wire.to(BUYER)}) == 1
    assert (await seller.story(M)).count("receipt_sent") == 1


@played
async def test_a_copy_that_comes_while_its_receipt_is_on_the_way_adds_none(world: World) -> None:
    world.agree(receipt="callback", retry=RETRY)
    slow = Held()
    world.wire.will(slow, at=BUYER)
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    await world.wait(1)
    await brought(seller, posted)
    assert await seller.work() == {"signal": 1}
    slow.release()
    await world.wait(1)
    assert len(world.wire.to(BUYER)) == 1
    assert await seller.work() == {}


@played
async def test_a_copy_of_what_was_answered_gets_the_same_receipt_once_more(world: World) -> None:
    world.agree(receipt="callback", retry=RETRY)
    buyer, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    await world.wait(1)
    await brought(seller, posted)
    await world.wait(1)
    first, second = world.wire.to(BUYER)
    assert (first.content_type, first.body) == (second.content_type, second.body)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.work() == {}


@played
async def test_copies_of_what_was_answered_that_come_together_get_one_receipt(
    world: World,
) -> None:
    world.agree(receipt="callback", retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    await brought(seller, posted)
    await world.wait(1)
    slow = Held()
    world.wire.will(slow, slow, slow, at=BUYER)
    await asyncio.gather(*(brought(seller, posted) for _ in range(3)))
    assert await seller.work() == {"signal": 1}
    slow.release()
    await world.wait(1)
    assert await seller.work() == {}


# Submissions


@played
async def test_the_same_submission_twice_is_one_message(world: World) -> None:
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    for _ in range(3):
        await buyer.send(M)
    await world.wait(1)
    assert len(world.wire.to(SELLER, M)) == 1
    assert await seller.inbox() == [M]
    with pytest.raises(Refused) as no:
        await buyer.send(M, payload=b"another")
    assert no.value.status == 409


@played
async def test_the_application_is_told_of_a_message_once_however_often_it_comes(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    world.configure(SELLER, webhook={"url": "http://application.example/"})
    world.wire.usual["application"] = status(204)
    _, seller = await world.both()
    posted = await captured(world)
    for _ in range(3):
        await brought(seller, posted)
    await world.wait(5)
    seller = await world.start_again(SELLER)
    await brought(seller, posted)
    await world.wait(5)
    assert [one.told["event"] for one in world.wire.to("application")] == ["received"]


@pytest.mark.parametrize(("copy", "answer"), [(False, 503), (True, 500)])
@played
async def test_only_what_is_certainly_not_stored_is_answered_as_not_taken(
    world: World, copy: bool, answer: int
) -> None:
    """Its sender believes 503, and would report a message as failed that was delivered."""
    world.agree(retry=RETRY)
    _, seller = await world.both()
    posted = await captured(world)
    if copy:
        await brought(seller, posted)
    busy = StoreBusy("The database is locked by another process.")
    with failing(seller.node.context.store, busy):
        said = await brought(seller, posted)
    assert said.status == answer
    assert ("EBMS:0202" if answer == 503 else "EBMS:0004").encode() in said.body


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_ids_are_kept_within_maxsize_and_the_oldest_go_first(
    world: World, kept_in: str
) -> None:
    """AS4 5.2.4, `maxsize=…,checkwindow=…`: of messages that are kept for their ids alone."""
    world.kept_in = kept_in
    detection = {"parameters": "maxsize=12kB,checkwindow=90D"}
    world.agree(duplicate_detection=detection)
    world.agree("others", duplicate_detection={"parameters": "checkwindow=90D"})
    world.configure(SELLER, retention={"messages": "P30D"})
    buyer, seller = await world.both()
    for number in range(4):
        await buyer.send(f"{number}@buyer", payload=b"x" * 4000)
        await buyer.send(f"other-{number}@buyer", "others", payload=b"x" * 4000)
        await world.wait(60)
    [copy] = world.wire.to(SELLER, ">0@buyer<")
    assert await seller.node.purge() == 0, "they are not kept for their ids alone"
    world.clock.ahead += timedelta(days=31)
    assert await seller.node.purge() == 2
    assert sorted(await seller.inbox()) == ["2@buyer", "3@buyer"] + [
        f"other-{number}@buyer" for number in range(4)
    ]
    forgotten = await seller.receive(copy.content_type, copy.body)
    assert b"EBMS:0003" in forgotten.body, "what is forgotten is refused, not delivered again"
    assert [one.message_id for one in await seller.journal("purged")] == ["1@buyer", "0@buyer"]
