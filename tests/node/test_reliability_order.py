"""In order: one after the other, per conversation or P-Mode, whatever happens to the first."""

from typing import Any, Final

import pytest

from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    ORDERS,
    SELLER,
    STORES,
    Answering,
    Held,
    Posted,
    Station,
    World,
    lost,
    party,
    passed,
    played,
    refused,
    status,
)

RETRY: Final[dict[str, Any]] = {"max_retries": 2, "period": "PT10S"}
FOR_EVER: Final[dict[str, Any]] = {"max_retries": "unlimited", "period": "PT10S"}
APPLICATION: Final = "application"
in_every_store = pytest.mark.parametrize("kept_in", STORES)


async def arrivals(seller: Station) -> list[str]:
    """What was delivered, in that order."""
    return [one.message_id or "" for one in await seller.journal("delivered")]


@pytest.mark.parametrize(
    ("scope", "free"),
    [
        ("conversation", {"b1@buyer", "c1@buyer"}),
        ("pmode", {"c1@buyer"}),
        (None, {"a2@buyer", "a3@buyer", "b1@buyer", "c1@buyer"}),
    ],
)
@played
async def test_one_is_outstanding_where_order_was_promised_and_others_pass(
    world: World, scope: str | None, free: set[str]
) -> None:
    order: dict[str, Any] = {"in_order": scope} if scope else {}
    world.agree(retry=RETRY, **order)
    world.agree("invoices", retry=RETRY, **order)
    first = Held()
    world.wire.will(first)
    buyer, seller = await world.both()
    for name in ("a1", "a2", "a3"):
        await buyer.send(f"{name}@buyer", conversation="a")
    await buyer.send("b1@buyer", conversation="b")
    await buyer.send("c1@buyer", "invoices", conversation="a")
    await world.until(5)
    assert set(await arrivals(seller)) == free
    first.release()
    await world.until(6)
    order_of = [one for one in await arrivals(seller) if one.startswith("a")]
    if scope is not None:
        assert order_of == ["a1@buyer", "a2@buyer", "a3@buyer"]
    assert len(await arrivals(seller)) == 5
    assert await buyer.work() == {}


@pytest.mark.parametrize("receipt", ["response", "callback"])
@in_every_store
@played
async def test_what_is_sent_again_keeps_its_place(world: World, kept_in: str, receipt: str) -> None:
    world.kept_in = kept_in
    world.agree(receipt=receipt, retry=FOR_EVER, in_order="conversation")
    world.wire.will(lost, refused, status(500), lost)
    buyer, seller = await world.both()
    names = [f"{number}@buyer" for number in range(5)]
    for name in names:
        await buyer.send(name, conversation="a")
    await world.until(15)
    assert not world.wire.to(SELLER, names[1])
    buyer = await world.start_again(BUYER)
    await world.until(100)
    assert await arrivals(seller) == names
    assert [await buyer.state(name) for name in names] == [State.ACKNOWLEDGED] * 5
    assert await buyer.work() == {}


@in_every_store
@played
async def test_a_large_message_that_is_packaged_later_keeps_its_place(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(retry=RETRY, in_order="conversation")
    buyer, seller = await world.both()
    await buyer.send("1@buyer", conversation="a")
    await buyer.send("2@buyer", payload=LARGE, conversation="a")
    await buyer.send("3@buyer", conversation="a")
    await buyer.send("4@buyer", payload=LARGE, conversation="a")
    await buyer.send("5@buyer", conversation="a")
    await world.until(10)
    assert await arrivals(seller) == [f"{number}@buyer" for number in range(1, 6)]
    assert await buyer.work() == {}


@in_every_store
@played
async def test_several_processes_keep_the_order(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    world.agree(retry=FOR_EVER, in_order="pmode")
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    world.wire.will(lost, refused)
    names = [f"{number}@buyer" for number in range(12)]
    for number, name in enumerate(names):
        await (buyer, other)[number % 2].send(name, payload=LARGE if number % 5 == 3 else b"x")
    await world.until(60)
    assert await arrivals(seller) == names


async def in_doubt(world: World, **terms: Any) -> tuple[Station, Station]:
    """The first of two is in doubt."""
    world.agree(retry=RETRY, in_order="conversation", **terms)
    world.configure(BUYER, send={"breaker": {"failures": 0}})
    world.wire.will(lost, lost, lost)
    buyer, seller = await world.both()
    await buyer.send("1@buyer", conversation="a")
    await buyer.send("2@buyer", conversation="a")
    await world.until(50)
    assert await buyer.state("1@buyer") is State.IN_DOUBT
    await world.until(100)
    assert not world.wire.to(SELLER, "2@buyer")
    assert await buyer.state("2@buyer") is State.READY
    return buyer, seller


@played
async def test_what_is_in_doubt_holds_up_those_behind_it_and_the_application_is_told_so(
    world: World,
) -> None:
    buyer, _ = await in_doubt(world)
    [told] = await buyer.notices("1@buyer")
    assert told.severity == "Warning"
    assert "waits" in (told.detail or "")


@pytest.mark.parametrize("answer", ["delivered", "received", "not_received"])
@played
async def test_when_it_is_settled_the_next_goes(world: World, answer: str) -> None:
    buyer, seller = await in_doubt(world)
    await buyer.node.settle("1@buyer", answer)
    await world.wait(1)
    assert await arrivals(seller) == ["2@buyer"]
    assert await buyer.work() == {}


@in_every_store
@played
async def test_when_it_is_sent_again_it_goes_before_those_behind_it(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    buyer, seller = await in_doubt(world)
    buyer = await world.start_again(BUYER)
    await world.wait(30)
    assert not await arrivals(seller)
    await buyer.node.resend("1@buyer")
    await world.wait(1)
    assert await arrivals(seller) == ["1@buyer", "2@buyer"]
    assert await buyer.work() == {}


@played
async def test_when_its_receipt_comes_late_the_next_goes(world: World) -> None:
    buyer, seller = await in_doubt(world, signed=True)
    posted = world.wire.to(SELLER, "1@buyer")[0]
    answer = await seller.receive(posted.content_type, posted.body)
    await buyer.receive(answer.content_type, answer.body)
    await world.wait(1)
    assert await buyer.state("1@buyer") is State.SETTLED
    assert await arrivals(seller) == ["1@buyer", "2@buyer"]
    assert await buyer.work() == {}


@played
async def test_when_it_is_sent_again_in_vain_it_holds_the_place_as_before(world: World) -> None:
    buyer, seller = await in_doubt(world)
    world.wire.will(refused, refused, refused)
    await buyer.node.resend("1@buyer")
    await world.wait(50)
    assert await buyer.state("1@buyer") is State.IN_DOUBT
    assert not world.wire.to(SELLER, "2@buyer")
    await buyer.node.settle("1@buyer", "not_received")
    await world.wait(1)
    assert await arrivals(seller) == ["2@buyer"]


@pytest.mark.parametrize(
    ("terms", "trouble", "state"),
    [
        (RETRY, refused, State.FAILED),
        (RETRY, status(404), State.FAILED),
        (RETRY | {"time_to_live": "PT15S"}, refused, State.EXPIRED),
    ],
    ids=["never left", "refused by the partner", "expired"],
)
@played
async def test_what_certainly_did_not_arrive_lets_the_next_go(
    world: World, terms: dict[str, Any], trouble: Answering, state: State
) -> None:
    world.agree(retry=terms, in_order="conversation")

    async def not_the_first(world: World, posted: Posted) -> Reply:
        return await (trouble if b"1@buyer" in posted.body else passed)(world, posted)

    world.wire.usual[SELLER] = not_the_first
    buyer, seller = await world.both()
    await buyer.send("1@buyer", conversation="a")
    await world.until(10)
    await buyer.send("2@buyer", conversation="a")
    await world.until(100)
    assert await buyer.state("1@buyer") is state
    assert await arrivals(seller) == ["2@buyer"]
    assert await buyer.work() == {}


@played
async def test_a_failed_message_that_is_sent_again_comes_after_those_that_passed_it(
    world: World,
) -> None:
    world.agree(retry=RETRY, in_order="conversation")
    world.wire.will(status(404))
    buyer, seller = await world.both()
    await buyer.send("1@buyer", conversation="a")
    await world.until(1)
    slow = Held()
    world.wire.will(slow)
    await buyer.send("2@buyer", conversation="a")
    await world.until(2)
    await buyer.node.resend("1@buyer")
    await buyer.send("3@buyer", conversation="a")
    await world.until(3)
    assert len(world.wire.to(SELLER, "1@buyer")) == 1
    slow.release()
    await world.until(5)
    assert await arrivals(seller) == ["2@buyer", "1@buyer", "3@buyer"]


@played
async def test_a_suspended_message_goes_first_when_its_partner_is_resumed(world: World) -> None:
    world.agree(retry=RETRY | {"then": "suspend"}, in_order="pmode")
    world.wire.usual[SELLER] = lost
    buyer, seller = await world.both()
    for number in range(3):
        await buyer.send(f"{number}@buyer")
    await world.until(60)
    assert await buyer.state("0@buyer") is State.SUSPENDED
    del world.wire.usual[SELLER]
    await buyer.node.resume(party(SELLER))
    await world.wait(1)
    assert await arrivals(seller) == ["0@buyer", "1@buyer", "2@buyer"]


@played
async def test_a_partner_that_is_paused_gets_them_in_order_when_it_is_back(world: World) -> None:
    world.agree(retry=FOR_EVER, in_order="conversation")
    world.configure(BUYER, send={"breaker": {"failures": 2, "pause": "PT30S"}})
    world.wire.usual[SELLER] = refused
    buyer, seller = await world.both()
    names = [f"{number}@buyer" for number in range(6)]
    for name in names:
        await buyer.send(name, conversation="a")
    await world.until(35)
    del world.wire.usual[SELLER]
    await world.until(100)
    assert await arrivals(seller) == names


@played
async def test_conversations_with_different_partners_are_not_one(world: World) -> None:
    world.agree(retry=FOR_EVER, in_order="conversation")
    world.agree("freight", to=CARRIER, retry=FOR_EVER, in_order="conversation")
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    carrier = await world.start(CARRIER)
    await buyer.send("1@buyer", ORDERS, conversation="a")
    await buyer.send("2@buyer", "freight", conversation="a")
    await world.until(5)
    assert await arrivals(carrier) == ["2@buyer"]


@played
async def test_a_head_that_is_purged_lets_the_next_go(world: World) -> None:
    buyer, seller = await in_doubt(world)
    assert await buyer.node.purge(0) == 1
    await world.wait(5)
    assert await arrivals(seller) == ["2@buyer"]


# The webhook


async def told(world: World) -> list[str]:
    return [one.told["message_id"] for one in world.wire.to(APPLICATION)]


@pytest.mark.parametrize("order", [None, "conversation", "pmode"])
@played
async def test_the_webhook_is_called_in_order_where_order_was_promised(
    world: World, order: str | None
) -> None:
    promised: dict[str, Any] = {"in_order": order} if order else {}
    world.agree(retry=RETRY, **promised)
    world.configure(SELLER, webhook={"url": f"http://{APPLICATION}.example/"})
    buyer, seller = await world.both()
    world.wire.will(status(500), at=APPLICATION)
    world.wire.usual[APPLICATION] = status(204)
    await buyer.send("1@buyer", conversation="a")
    await world.until(1)
    await buyer.send("2@buyer", conversation="a")
    await buyer.send("3@buyer", conversation="b")
    await world.until(2)
    early = {"1@buyer"} if order == "pmode" else {"1@buyer", "3@buyer"}
    assert set(await told(world)) == (early if order else {"1@buyer", "2@buyer", "3@buyer"})
    await world.until(20)
    calls = await told(world)
    if order is not None:
        assert calls.index("2@buyer") > 1
        assert [one for one in calls if one != "3@buyer"] == ["1@buyer", "1@buyer", "2@buyer"]
    assert calls.count("1@buyer") == 2
    assert await seller.work() == {}


# Time that runs out in a lane

MORTAL: Final = FOR_EVER | {"time_to_live": "PT1M"}


@in_every_store
@played
async def test_time_to_live_ends_also_what_waits_for_its_turn(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    world.agree(retry=MORTAL, in_order="conversation")
    first = Held()
    world.wire.will(first)
    buyer, seller = await world.both()
    await buyer.send("1@buyer", conversation="a")
    for number in range(2, 5):
        await world.until(5 * number)
        await buyer.send(
            f"{number}@buyer", conversation="a", payload=LARGE if number == 3 else b"x"
        )
    await world.until(71)
    assert await buyer.state("2@buyer") is State.EXPIRED
    assert [one.severity for one in await buyer.notices("2@buyer")] == ["Error"]
    assert await buyer.state("4@buyer") is State.READY
    await world.until(76)
    assert await buyer.state("3@buyer") in (State.EXPIRED, State.FAILED)
    assert not world.wire.to(SELLER, "2@buyer")
    first.release()
    await world.until(77)
    assert await arrivals(seller) == ["1@buyer", "4@buyer"]
    await world.until(200)
    assert await buyer.work() == {}


@played
async def test_a_head_whose_time_is_over_after_it_left_holds_its_place_in_doubt(
    world: World,
) -> None:
    world.agree(retry=MORTAL, in_order="conversation")
    world.configure(BUYER, send={"breaker": {"failures": 0}})
    world.wire.usual[SELLER] = lost
    buyer, seller = await world.both()
    await buyer.send("1@buyer", conversation="a")
    await world.until(30)
    await buyer.send("2@buyer", conversation="a")
    await world.until(61)
    assert await buyer.state("1@buyer") is State.IN_DOUBT
    await world.until(80)
    assert not world.wire.to(SELLER, "2@buyer")
    del world.wire.usual[SELLER]
    await buyer.node.settle("1@buyer", "received")
    await world.until(82)
    assert await arrivals(seller) == ["2@buyer"]
    await world.until(200)
    assert await buyer.work() == {}


@played
async def test_what_expires_behind_a_suspended_head_leaves_the_order_of_the_others(
    world: World,
) -> None:
    world.agree(retry=RETRY | {"then": "suspend"}, in_order="pmode")
    world.wire.usual[SELLER] = refused
    buyer, seller = await world.both()
    for number in range(4):
        await buyer.send(f"{number}@buyer")
    await world.until(40)
    buyer = await world.start_again(BUYER)
    await world.until(50)
    assert await buyer.state("0@buyer") is State.SUSPENDED
    del world.wire.usual[SELLER]
    await buyer.node.settle("0@buyer", "not_received")
    await world.until(60)
    assert await arrivals(seller) == []
    await buyer.node.resume(party(SELLER))
    await world.until(61)
    assert await arrivals(seller) == ["1@buyer", "2@buyer", "3@buyer"]
