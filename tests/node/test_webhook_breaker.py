"""An application that takes no calls is left alone, and told everything when it is back."""

import logging

import pytest
from msgspec.json import decode

from postroad.api.metrics import metrics_text
from postroad.transport.http_outgoing import Reply
from tests.node.reliable import SELLER, Posted, Station, World, played, refused, status

URL = "http://shop.example/told?key=secret"
MANY = [f"m{number}@buyer" for number in range(12)]


class Shop:
    """An application that takes every call."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def __call__(self, world: World, posted: Posted) -> Reply:
        self.told.append(decode(posted.body)["message_id"])
        return Reply(204, None, (), b"")


async def told_to(world: World, **webhook: object) -> tuple[Station, Station]:
    """Both nodes; the seller tells the application in the shop what comes in."""
    world.agree()
    world.configure(SELLER, webhook={"url": URL, "events": "received", **webhook})
    return await world.both()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.message
        for one in caplog.records
        if one.levelno >= logging.INFO and one.name == "postroad.webhook"
    ]


@pytest.mark.parametrize("down", [refused, status(503)], ids=["no connection", "HTTP 503"])
@pytest.mark.parametrize("kept_in", ["memory", "sqlite"])
@played
async def test_an_outage_is_two_lines_and_few_calls_and_loses_nothing(
    world: World, caplog: pytest.LogCaptureFixture, down: object, kept_in: str
) -> None:
    caplog.set_level(logging.INFO)
    world.kept_in = kept_in
    buyer, seller = await told_to(world, attempts=3)
    world.wire.usual["shop"] = down  # type: ignore[assignment]
    for name in MANY:
        await buyer.send(name)
        await world.wait(1)
    await world.wait(1800)
    assert lines(caplog) == ["the webhook takes no calls, notices wait in the store"]
    # One call a minute, and those before the pause.
    assert len(world.wire.to("shop")) < 60
    assert (await seller.work())["notify"] == len(MANY)

    world.wire.usual["shop"] = shop = Shop()
    await world.wait(180)
    assert sorted(shop.told) == sorted(MANY)
    assert await seller.work() == {}
    assert lines(caplog)[1:] == ["the webhook takes calls again"]


@played
async def test_readiness_and_metrics_tell_that_the_webhook_is_paused(world: World) -> None:
    buyer, seller = await told_to(world)
    assert "postroad_webhook_paused 0" in await figures(seller)
    world.wire.usual["shop"] = refused
    for name in MANY[:8]:
        await buyer.send(name)
    await world.wait(60)
    health = await seller.node.health()
    [problem] = health.problems
    assert health.ready
    assert "The webhook http://shop.example/told has taken no calls since 2" in problem
    assert "8 calls wait in the store" in problem
    assert "postroad_webhook_paused 1" in await figures(seller)
    assert await seller.node.partners() == []

    world.wire.usual["shop"] = Shop()
    await world.wait(120)
    assert (await seller.node.health()).problems == ()
    assert "postroad_webhook_paused 0" in await figures(seller)


async def figures(station: Station) -> list[str]:
    node = station.node
    text = metrics_text(node.metrics(), await node.health(), "1", partners=await node.partners())
    return text.splitlines()


@played
async def test_one_call_that_is_never_taken_is_given_up_and_pauses_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    buyer, seller = await told_to(world, attempts=3)
    shop = Shop()

    async def picky(world: World, posted: Posted) -> Reply:
        bad = decode(posted.body)["message_id"] == "bad@buyer"
        return await (status(500) if bad else shop)(world, posted)

    world.wire.usual["shop"] = picky
    await buyer.send("bad@buyer")
    for name in MANY:
        await buyer.send(name)
        await world.wait(2)
    assert shop.told == MANY
    assert lines(caplog) == ["given up telling of received after 3 attempts"]
    assert (await seller.node.health()).problems == ()


@played
async def test_a_pause_outlives_a_restart_and_ends_when_there_is_no_webhook(world: World) -> None:
    buyer, seller = await told_to(world)
    world.wire.usual["shop"] = refused
    for name in MANY[:8]:
        await buyer.send(name)
    await world.wait(60)
    await seller.stop()
    calls = len(world.wire.to("shop"))
    seller = await world.start(SELLER)
    assert len((await seller.node.health()).problems) == 1
    await world.wait(30)
    assert len(world.wire.to("shop")) <= calls + 1
    await seller.stop()
    del world._settings[SELLER]["webhook"]
    seller = await world.start(SELLER)
    await world.wait(120)
    assert await seller.work() == {}
    assert (await seller.node.health()).problems == ()


@played
async def test_a_call_that_the_application_always_refuses_is_given_up_in_a_pause_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    buyer, seller = await told_to(world, attempts=7)
    world.wire.usual["shop"] = status(500)
    await buyer.send("bad@buyer")
    await world.wait(1800)
    assert lines(caplog)[-1] == "given up telling of received after 7 attempts"
    assert await seller.work() == {}
    world.wire.usual["shop"] = shop = Shop()
    await buyer.send(MANY[0])
    await world.wait(120)
    assert shop.told == MANY[:1]
