"""How many messages a node sends to a partner at once, as the partner answers."""

import asyncio
import logging
from unittest.mock import patch

import pytest

from postroad.node.base import windows
from postroad.node.base.windows import Windows
from tests.node.asking import PRICES, Q, ask
from tests.node.reliable import (
    BUYER,
    CARRIER,
    SELLER,
    Answering,
    Held,
    World,
    address,
    lost,
    party,
    passed,
    played,
    refused,
    status,
)

AGAIN = {"max_retries": "unlimited", "timeout": "PT5S", "period": "PT5S"}
LIMIT = 'postroad_send_limit{partner="%s",address="%s"}'


def limit(world: World, partner: str = SELLER) -> float | None:
    """The metric, where the window is smaller than it could be."""
    return world.stations[BUYER].node.metrics().get(LIMIT % (party(partner), address(partner)))


@pytest.mark.parametrize("answer", [lost, status(503), status(429)])
@played
async def test_a_partner_that_is_overloaded_gets_less_at_once(
    world: World, answer: Answering
) -> None:
    world.agree(retry=AGAIN)
    buyer, _ = await world.both()
    assert limit(world) is None
    world.wire.will(answer)
    await buyer.send("m@buyer")
    await world.wait(1)
    assert limit(world) == 1


@pytest.mark.parametrize("answer", [passed, refused, status(500), status(404)])
@played
async def test_other_ends_of_an_attempt_leave_the_window_as_it_is(
    world: World, answer: Answering
) -> None:
    world.agree(retry=AGAIN)
    buyer, _ = await world.both()
    world.wire.will(answer)
    await buyer.send("m@buyer")
    await world.wait(1)
    assert limit(world) is None


@played
async def test_a_reply_that_stays_out_is_the_application_s_and_not_overload(world: World) -> None:
    ask(world, "sync")
    buyer, _ = await world.both()
    world.wire.will(lost)
    await buyer.send(Q, PRICES)
    await world.wait(1)
    assert limit(world) is None


@played
async def test_no_more_are_under_way_than_the_window_allows(world: World) -> None:
    world.agree(retry=AGAIN)
    world.agree("parcels", to=CARRIER)
    buyer, _ = await world.both()
    await world.start(CARRIER)
    world.wire.will(lost)
    await buyer.send("late@buyer")
    await world.wait(1)
    held = Held()
    world.wire.usual[SELLER] = held
    for number in range(20):
        await buyer.send(f"m{number}@buyer")
        await buyer.send(f"p{number}@buyer", "parcels")
    await world.wait(1)
    assert len(world.wire.to(SELLER)) == 2
    # Who is slow holds up nobody else.
    assert len(world.wire.to(CARRIER)) == 20
    assert limit(world, CARRIER) is None
    held.release()
    await world.wait(60)
    assert await buyer.work() == {}


@played
async def test_the_log_tells_when_a_window_shrinks_and_when_it_is_open_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postroad")
    world.agree(retry=AGAIN)
    world.configure(BUYER, send={"parallel": 4})
    buyer, _ = await world.both()
    world.wire.will(lost)
    for number in range(30):
        await buyer.send(f"m{number}@buyer")
    await world.wait(60)
    told = [one for one in caplog.records if "partner answers" in one.getMessage()]
    assert [(one.levelname, one.partner, one.detail) for one in told] == [  # type: ignore[attr-defined]
        ("WARNING", party(SELLER), "1 at once"),
        ("INFO", party(SELLER), "4 at once"),
    ]
    assert limit(world) is None


@played
async def test_windows_of_partners_that_are_not_sent_to_are_forgotten_in_time(world: World) -> None:
    world.agree()
    buyer, _ = await world.both()
    found = Windows(buyer.node.context, 8)

    def late(partner: str) -> None:
        with found.attempt(partner) as timed:
            timed.in_time = False

    with patch.object(windows, "_MOST_IDLE", 3):
        for number in range(5):
            late(f"p{number}")
            await asyncio.sleep(0)
    assert [found.limit(f"p{number}") for number in range(5)] == [8, 8, 1, 1, 1]
    shown = [one for one in buyer.node.metrics() if "send_limit" in one]
    assert shown == [LIMIT % (f"p{number}", "") for number in (2, 3, 4)]
