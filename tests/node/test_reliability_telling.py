"""The application is told: by notices and by its webhook, once, in time, and with the kind."""

from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.store.records import State
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    Answering,
    Station,
    World,
    lost,
    party,
    played,
    refused,
    status,
)

M: Final = "m@buyer"
RETRY: Final = {"max_retries": 1, "period": "PT10S"}
APPLICATION: Final = "application"
in_every_store = pytest.mark.parametrize("kept_in", STORES)


async def troubled(
    world: World, trouble: Answering | None, *, webhook: bool = True, **terms: Any
) -> Station:
    """A buyer with a webhook, whose message meets this trouble."""
    world.agree(ORDERS, **({"retry": RETRY} | terms))
    if webhook:
        world.configure(BUYER, webhook={"url": f"http://{APPLICATION}.example/"})
    world.wire.usual[APPLICATION] = status(204)
    buyer, _ = await world.both()
    if trouble is not None:
        world.wire.usual[SELLER] = trouble
    await buyer.send(M)
    return buyer


def calls(world: World) -> list[dict[str, Any]]:
    return [one.told for one in world.wire.to(APPLICATION)]


@pytest.mark.req(
    "OV004-1-14",
    "RM000-1.3.1.4-03",
    "RM000-1.4-06",
    "RM000-1.4-07",
    "MS098-10.3.1.4-03",
    "MS098-10.4-05",
    "MS098-10.4-06",
)
@pytest.mark.parametrize(
    ("trouble", "terms", "told"),
    [
        (refused, {}, ("failed", "failed", "Error", "EBMS:0005")),
        (lost, {}, ("in_doubt", "in_doubt", "Warning", "EBMS:0301")),
        (status(202), {"receipt": "callback"}, ("in_doubt", "in_doubt", "Warning", "EBMS:0301")),
        (status(404), {}, ("failed", "failed", "Error", None)),
        (
            refused,
            {"retry": RETRY | {"time_to_live": "PT5S"}},
            ("failed", "expired", "Error", None),
        ),
    ],
    ids=["never left", "no answer", "no receipt", "refused", "expired"],
)
@in_every_store
@played
async def test_a_failure_is_told_once_with_its_kind(
    world: World,
    kept_in: str,
    trouble: Answering,
    terms: dict[str, Any],
    told: tuple[str, str, str, str | None],
) -> None:
    world.kept_in = kept_in
    buyer = await troubled(world, trouble, **terms)
    await world.until(100)
    [call] = calls(world)
    assert (call["event"], call["state"], call["severity"]) == told[:3]
    assert call["message_id"] == M
    [notice] = await buyer.notices(M)
    assert (notice.event, notice.state.value, notice.severity) == told[:3]
    assert call["error_code"] == notice.error_code
    assert call["detail"] == notice.detail
    assert notice.detail
    if told[3]:
        assert notice.error_code == told[3]


@played
async def test_a_message_that_arrives_is_told_by_a_call_and_needs_no_notice(world: World) -> None:
    buyer = await troubled(world, None)
    await world.until(10)
    [call] = calls(world)
    assert (call["event"], call["severity"], call["error_code"]) == ("receipt", None, None)
    assert await buyer.node.notices() == []


@played
async def test_what_was_in_doubt_and_is_settled_later_is_told_twice_in_that_order(
    world: World,
) -> None:
    buyer = await troubled(world, lost, signed=True)
    await world.until(30)
    posted = world.wire.to(SELLER, M)[0]
    answer = await world.stations[SELLER].receive(posted.content_type, posted.body)
    await buyer.receive(answer.content_type, answer.body)
    await world.until(40)
    first, second = calls(world)
    assert (first["event"], first["severity"]) == ("in_doubt", "Warning")
    assert (second["event"], second["detail"], second["severity"]) == ("settled", "delivered", None)
    assert [one.event for one in await buyer.notices(M)] == ["in_doubt", "settled"]


@played
async def test_a_message_that_waits_for_an_administrator_is_told_with_the_reason(
    world: World,
) -> None:
    buyer = await troubled(world, refused, retry=RETRY | {"then": "suspend"})
    await world.until(30)
    [notice] = await buyer.notices(M)
    assert (notice.event, notice.state) == ("suspended", State.SUSPENDED)
    assert "connection refused" in (notice.detail or "")
    [call] = calls(world)
    assert (call["event"], call["state"]) == ("suspended", "suspended")
    assert call["detail"] == notice.detail


@played
async def test_what_is_resumed_and_arrives_is_told_as_well(world: World) -> None:
    buyer = await troubled(world, refused, retry=RETRY | {"then": "suspend"})
    await world.until(30)
    del world.wire.usual[SELLER]
    await buyer.node.resume(party(SELLER))
    await world.until(40)
    assert [one["event"] for one in calls(world)] == ["suspended", "receipt"]
    assert [one.event for one in await buyer.notices(M)] == ["suspended", "receipt"]


@in_every_store
@played
async def test_calls_that_are_not_taken_are_made_again_in_order_also_after_a_restart(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer = await troubled(world, lost)
    world.wire.usual[APPLICATION] = status(500)
    await world.until(30)
    await buyer.node.settle(M, "received", "the clerk")
    await world.until(40)
    buyer = await world.start_again(BUYER)
    assert {one["event"] for one in calls(world)} == {"in_doubt"}
    tried = len(calls(world))
    world.wire.usual[APPLICATION] = status(204)
    await world.until(200)
    assert [one["event"] for one in calls(world)[tried:]] == ["in_doubt", "settled"]
    assert len({one["delivery_id"] for one in calls(world)}) == 2
    assert await buyer.work() == {}


@in_every_store
@played
async def test_notices_stay_until_the_application_says_that_it_knows(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    await troubled(world, lost, webhook=False)
    await world.until(30)
    buyer = await world.start_again(BUYER)
    [notice] = await buyer.node.notices()
    assert await buyer.node.notices(after=notice.id) == []
    await buyer.node.acknowledge_notice(notice.id)
    assert await buyer.node.notices() == []
    with pytest.raises(Refused) as no:
        await buyer.node.acknowledge_notice(notice.id)
    assert no.value.status == 404
    assert await buyer.state(M) is State.IN_DOUBT


@played
async def test_what_is_tried_again_is_no_news(world: World) -> None:
    buyer = await troubled(world, lost, retry={"max_retries": 50, "period": "PT10S"})
    await world.until(100)
    assert calls(world) == []
    assert await buyer.node.notices() == []


@played
async def test_a_missing_receipt_is_not_told_where_that_was_agreed(world: World) -> None:
    silent = {"missing_receipt_notify_producer": False}
    buyer = await troubled(world, lost, report=silent)
    await world.until(100)
    assert await buyer.state(M) is State.IN_DOUBT
    assert (await buyer.story(M)).count("in_doubt") == 1
    assert calls(world) == []
    assert await buyer.notices(M) == []


@pytest.mark.parametrize("agreed", [True, None])
@played
async def test_a_missing_receipt_is_told_unless_something_else_was_agreed(
    world: World, agreed: bool | None
) -> None:
    report = {} if agreed is None else {"missing_receipt_notify_producer": agreed}
    buyer = await troubled(world, lost, report=report)
    await world.until(100)
    assert [one["error_code"] for one in calls(world)] == ["EBMS:0301"]
    assert [one.error_code for one in await buyer.notices(M)] == ["EBMS:0301"]


@played
async def test_an_expired_message_is_told_to_have_run_out_of_time(world: World) -> None:
    buyer = await troubled(world, refused, retry={"period": "PT10S", "time_to_live": "PT25S"})
    await world.until(100)
    assert await buyer.state(M) is State.EXPIRED
    [notice] = await buyer.notices(M)
    assert "time" in (notice.detail or "")


@played
async def test_who_waits_for_a_message_is_told_when_it_is_at_rest(world: World) -> None:
    buyer = await troubled(world, lost)
    found = await buyer.node.settled(M, 5)
    assert found is not None
    assert found.state is State.WAITING
    found = await buyer.node.settled(M, 60)
    assert found is not None
    assert found.state is State.IN_DOUBT
