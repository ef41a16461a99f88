"""The answer of the webhook is the reply."""

import asyncio
from typing import Any

import pytest

from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from tests.node.asking import PRICES, Q, ask
from tests.node.reliable import SELLER, Posted, Station, World, played

YES = (("postroad-reply", "yes"),)


class Application:
    """Who answers what it is told."""

    def __init__(self, body: bytes = b"12 a piece", headers: Any = YES, status: int = 200) -> None:
        self.given = Reply(status, "text/plain; charset=utf-8", headers, body)
        self.told: list[str] = []

    async def __call__(self, world: World, posted: Posted) -> Reply:
        if posted.told["event"] == "received":
            self.told.append(posted.told["message_id"])
            return self.given
        return Reply(204, "", (), b"")


async def asked(world: World, app: Application, binding: str) -> tuple[Station, Station]:
    ask(world, binding)
    world.configure(SELLER, webhook={"url": "http://shop.example/told"})
    world.wire.usual["shop"] = app
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(5)
    return buyer, seller


@pytest.mark.parametrize("binding", ["sync", "pushAndPush"])
@played
async def test_what_the_webhook_answers_is_the_reply(world: World, binding: str) -> None:
    app = Application()
    buyer, seller = await asked(world, app, binding)
    [name] = await buyer.inbox()
    given = await buyer.message(name)
    assert (given.ref_to_message_id, given.bytes) == (Q, 10)
    assert given.parts[0].media_type == "text/plain"
    assert await buyer.state(Q) is await seller.state(name) is State.ACKNOWLEDGED
    assert app.told == [Q]
    assert await seller.notices(Q) == []


@played
async def test_a_reply_may_be_empty(world: World) -> None:
    buyer, _ = await asked(world, Application(b""), "pushAndPush")
    [name] = await buyer.inbox()
    assert (await buyer.message(name)).parts == ()


@pytest.mark.parametrize(
    ("headers", "status"), [((), 200), ((("postroad-reply", "no"),), 200), (YES, 500)]
)
@played
async def test_other_answers_are_no_reply(world: World, headers: Any, status: int) -> None:
    app = Application(b"thanks", headers, status)
    buyer, seller = await asked(world, app, "pushAndPush")
    assert await buyer.inbox() == []
    assert (await seller.message(Q)).reply_message_id is None
    assert await seller.notices(Q) == []


@played
async def test_a_reply_to_what_is_one_way_is_refused_and_told(world: World) -> None:
    world.agree()
    world.configure(SELLER, webhook={"url": "http://shop.example/told"})
    world.wire.usual["shop"] = app = Application()
    buyer, seller = await world.both()
    await buyer.send("o@buyer")
    await world.wait(30)
    [notice] = await seller.notices("o@buyer")
    assert (notice.event, notice.state) == ("reply_refused", State.DELIVERED)
    assert "is one-way" in (notice.detail or "")
    assert app.told == ["o@buyer"], "it is not asked again"


@played
async def test_a_reply_that_is_too_large_is_refused_and_told(world: World) -> None:
    app = Application(bytes((1 << 20) + 1))
    buyer, seller = await asked(world, app, "pushAndPush")
    assert await buyer.inbox() == []
    [notice] = await seller.notices(Q)
    assert notice.event == "reply_refused"
    assert "larger than 1 MiB" in (notice.detail or "")
    await world.wait(600)
    assert app.told == [Q], "it is not asked again"


@played
async def test_a_call_that_is_made_again_gives_one_reply(world: World) -> None:
    """The seller dies when the reply is taken over, and before the call is written off."""
    world.kept_in = "sqlite"
    ask(world, "pushAndPush")
    world.configure(SELLER, webhook={"url": "http://shop.example/told"})
    app = Application()
    world.wire.usual["shop"] = app
    buyer, seller = await world.both()
    first = seller
    notifier: Any = seller.node._loop._performers["notify"].__self__  # type: ignore[attr-defined]

    async def taken_and_dead(name: str, submission: Any) -> Any:
        await first.node.reply(name, submission)
        first.kill()
        await asyncio.Event().wait()

    notifier._reply = taken_and_dead
    await buyer.send(Q, PRICES)
    await world.wait(5)
    seller = await world.start(SELLER)
    app.given = Reply(200, "text/plain", YES, b"13 a piece")
    await world.wait(2000)
    [name] = await buyer.inbox()
    assert (await buyer.message(name)).bytes == 10
    assert await seller.notices(Q) == []
    assert app.told == [Q, Q]
