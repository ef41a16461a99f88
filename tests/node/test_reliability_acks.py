"""When a message is for the application, and when its receipt is sent: the two options."""

from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.node.walks.receiving import Response
from postroad.store.interface import StoreFull
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import (
    BUYER,
    SELLER,
    STORES,
    Posted,
    Station,
    World,
    failing,
    lost,
    passed,
    played,
    refused,
    status,
)

M: Final = "m@buyer"
RETRY: Final = {"max_retries": 5, "period": "PT10S"}
SLOW: Final = {"max_retries": 2, "period": "PT1H"}
APPLICATION: Final = "application"
COMPARED: Final[dict[str, Any]] = {"duplicate_detection": {"compare": "contents"}}
"""Other contents under a known id are refused."""
in_every_store = pytest.mark.parametrize("kept_in", STORES)


async def strict(world: World, **awareness: Any) -> tuple[Station, Posted]:
    """A seller who holds messages back, and a message that the buyer sent."""
    world.agree(retry=RETRY, strict_ack=True, **awareness)
    world.configure(
        SELLER, webhook={"url": f"http://{APPLICATION}.example/"}, send={"lease": "PT20S"}
    )
    world.wire.usual[APPLICATION] = status(204)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = lost
    await buyer.send(M)
    await world.wait(0.1)
    buyer.kill()
    return seller, world.wire.to(SELLER, M)[0]


async def brought(seller: Station, posted: Posted) -> Response:
    return await seller.receive(posted.content_type, posted.body)


async def handed(response: Response, taken: bool) -> None:
    assert response.handed is not None
    await response.handed(taken)


@pytest.mark.req("OV004-1-05", "OV004-1-06")
@in_every_store
@played
async def test_a_message_is_held_until_its_receipt_was_handed_to_the_transport(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    seller, posted = await strict(world)
    answer = await brought(seller, posted)
    assert b"Receipt>" in answer.body
    await world.wait(1)
    assert await seller.inbox() == []
    found = await seller.message(M)
    assert found.state is State.HELD
    assert not world.wire.to(APPLICATION)
    assert {"received", "held"} < set(await seller.story(M))
    assert "delivered" not in await seller.story(M)
    with pytest.raises(Refused):
        await seller.node.acknowledge(M)

    await handed(answer, True)
    await world.wait(1)
    assert await seller.inbox() == [M]
    assert (await seller.story(M)).count("delivered") == 1
    assert [one.told["event"] for one in world.wire.to(APPLICATION)] == ["received"]
    assert await seller.work() == {}


@pytest.mark.req("OV004-1-06")
@in_every_store
@played
async def test_when_the_receipt_could_not_be_handed_over_it_stays_held_until_it_comes_again(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    seller, posted = await strict(world)
    first = await brought(seller, posted)
    await handed(first, False)
    await world.wait(100)
    assert await seller.inbox() == []
    seller = await world.start_again(SELLER)
    await world.wait(100)
    assert await seller.inbox() == []
    assert not world.wire.to(APPLICATION)

    again = await brought(seller, posted)
    assert again.body == first.body
    assert await seller.inbox() == []
    await handed(again, True)
    await world.wait(1)
    assert await seller.inbox() == [M]
    assert (await seller.message(M)).detail is None
    assert (await seller.story(M)).count("delivered") == 1
    assert await seller.work() == {}


@in_every_store
@played
async def test_when_nobody_can_say_any_more_whether_the_receipt_left_it_is_delivered(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    seller, posted = await strict(world)
    await brought(seller, posted)
    seller = await world.start_again(SELLER)
    await world.wait(1)
    assert await seller.inbox() == [M]
    assert (await seller.story(M)).count("delivered") == 1


@played
async def test_another_process_delivers_what_one_that_died_had_held(world: World) -> None:
    seller, posted = await strict(world)
    other = await world.start(SELLER, beside=True)
    await brought(seller, posted)
    seller.kill()
    await world.wait(2 * 20)
    assert await other.inbox() == [M]


@played
async def test_what_is_still_being_handed_over_is_not_delivered_meanwhile(world: World) -> None:
    """A slow client takes its time; in the end it is gone, and did not get the receipt."""
    seller, posted = await strict(world)
    answer = await brought(seller, posted)
    await world.wait(3 * 20)
    assert await seller.inbox() == []
    await handed(answer, False)
    await world.wait(60)
    assert await seller.inbox() == []


@pytest.mark.parametrize("outcomes", [(True, True), (False, True), (True, False)])
@played
async def test_copies_that_are_answered_at_the_same_time_make_one_delivery(
    world: World, outcomes: tuple[bool, bool]
) -> None:
    seller, posted = await strict(world)
    answers = [await brought(seller, posted) for _ in outcomes]
    assert answers[0].body == answers[1].body
    for answer, taken in zip(answers, outcomes, strict=True):
        await handed(answer, taken)
    await world.wait(1)
    assert await seller.inbox() == [M]
    assert (await seller.story(M)).count("delivered") == 1
    assert await seller.work() == {}
    assert len(world.wire.to(APPLICATION)) == 1


@played
async def test_a_store_that_fails_just_then_delays_the_delivery_and_does_not_lose_it(
    world: World,
) -> None:
    seller, posted = await strict(world)
    answer = await brought(seller, posted)
    with failing(seller.node.context.store, StoreFull("no room"), about="handed", times=3):
        await handed(answer, True)
        await world.wait(5)
    await world.wait(60)
    assert await seller.inbox() == [M]
    assert (await seller.story(M)).count("delivered") == 1


@played
async def test_other_contents_under_the_id_of_what_is_held_get_its_receipt(world: World) -> None:
    seller, posted = await strict(world)
    answer = await brought(seller, posted)
    await handed(answer, False)
    rebuilt = posted.body.replace(b"<order>", b"<ORDER>")
    again = await seller.receive(posted.content_type, rebuilt)
    assert again.body == answer.body
    await handed(again, True)
    found = await seller.message(M)
    assert found.state is State.DELIVERED
    assert b"".join(seller.node.part(found, found.parts[0]).chunks()).startswith(b"<order>")


@played
async def test_something_else_under_the_id_of_what_is_held_is_refused_where_contents_are_compared(
    world: World,
) -> None:
    seller, posted = await strict(world, **COMPARED)
    answer = await brought(seller, posted)
    await handed(answer, False)
    before = await seller.message(M)
    forged = posted.body.replace(b"<order>", b"<forge>")
    other = await seller.receive(posted.content_type, forged)
    assert b"EBMS:0003" in other.body
    assert other.handed is None
    assert await seller.message(M) == before


@played
async def test_sender_and_receiver_agree_although_the_first_receipt_was_not_handed_over(
    world: World,
) -> None:
    world.agree(retry=RETRY, strict_ack=True)
    buyer, seller = await world.both()

    async def gone(world: World, posted: Posted) -> Reply:
        await handed(await brought(seller, posted), False)
        return await lost(world, posted)

    world.wire.will(gone, gone)
    await buyer.send(M)
    await world.until(15)
    assert await seller.inbox() == []
    await world.until(30)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


# After delivery


async def patient(
    world: World, retry: dict[str, object] = SLOW, **awareness: Any
) -> tuple[Station, Station]:
    world.agree(receipt="callback", retry=retry, ack_after_delivery=True, **awareness)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(5)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.WAITING
    return buyer, seller


@in_every_store
@played
async def test_the_receipt_is_sent_only_when_the_application_has_the_message(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer, seller = await patient(world)
    await world.wait(60)
    assert not world.wire.to(BUYER)
    assert "receipt_sent" not in await seller.story(M)
    seller = await world.start_again(SELLER)
    await world.wait(60)
    assert not world.wire.to(BUYER)
    await seller.node.acknowledge(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await seller.story(M)).count("receipt_sent") == 1
    assert await seller.work() == {}


@played
async def test_until_then_copies_are_filtered_and_get_nothing(world: World) -> None:
    _, seller = await patient(world)
    posted = world.wire.to(SELLER, M)[0]
    for _ in range(3):
        answer = await brought(seller, posted)
        assert (answer.status, answer.body) == (202, b"")
    await world.wait(60)
    assert not world.wire.to(BUYER)
    story = await seller.story(M)
    assert (story.count("delivered"), story.count("duplicate")) == (1, 3)


@played
async def test_afterwards_copies_get_the_receipt_again(world: World) -> None:
    _, seller = await patient(world)
    posted = world.wire.to(SELLER, M)[0]
    await seller.node.acknowledge(M)
    await world.wait(1)
    await brought(seller, posted)
    await world.wait(1)
    first, second = world.wire.to(BUYER)
    assert first.body == second.body
    assert (await seller.story(M)).count("delivered") == 1


@played
async def test_an_application_that_says_it_twice_sends_one_receipt(world: World) -> None:
    _, seller = await patient(world)
    for _ in range(3):
        await seller.node.acknowledge(M)
    await world.wait(5)
    await seller.node.acknowledge(M)
    await world.wait(5)
    assert len(world.wire.to(BUYER)) == 1


@played
async def test_a_receipt_that_cannot_be_sent_is_tried_again(world: World) -> None:
    buyer, seller = await patient(world)
    world.wire.will(refused, status(500), passed, at=BUYER)
    await seller.node.acknowledge(M)
    await world.wait(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert len(world.wire.to(BUYER)) == 3


@played
async def test_an_application_that_takes_too_long_leaves_the_sender_in_doubt_until_it_has_it(
    world: World,
) -> None:
    buyer, seller = await patient(world, {"max_retries": 2, "period": "PT10S"})
    await world.until(60)
    assert await buyer.state(M) is State.IN_DOUBT
    assert (await seller.story(M)).count("duplicate") == 2
    await seller.node.acknowledge(M)
    await world.wait(1)
    assert await buyer.state(M) is State.SETTLED
    assert await seller.work() == {}


@played
async def test_something_else_under_the_id_of_what_is_not_answered_yet_is_refused(
    world: World,
) -> None:
    _, seller = await patient(world, **COMPARED)
    posted = world.wire.to(SELLER, M)[0]
    before = await seller.message(M)
    await seller.receive(posted.content_type, posted.body.replace(b"<order>", b"<forge>"))
    assert await seller.message(M) == before
    assert (await seller.story(M)).count("duplicate") == 0
    [told] = [one for one in await seller.events(M) if one.event == "error_raised"]
    assert told.error_code == "EBMS:0003"


@played
async def test_other_contents_under_the_id_of_what_is_not_answered_yet_wait_for_its_receipt(
    world: World,
) -> None:
    buyer, seller = await patient(world)
    posted = world.wire.to(SELLER, M)[0]
    before = await seller.message(M)
    await seller.receive(posted.content_type, posted.body.replace(b"<order>", b"<ORDER>"))
    assert await seller.message(M) == before
    assert world.wire.to(BUYER) == []
    await seller.node.acknowledge(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await seller.story(M)).count("duplicate") == 1
