"""What a P-Mode lets go before earlier messages are answered, and what not."""

from typing import Final

import pytest

from postroad.store.records import State
from tests.node.collecting import collect
from tests.node.reliable import BUYER, ORDERS, SELLER, World, lost, played, reply_lost

M: Final = "m@buyer"
PIPELINED: Final = {"value": "push", "pipelining": True}
FEW: Final = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}


@pytest.mark.req("P2-6.3.1-01")
@pytest.mark.parametrize("binding", ["push", {"value": "push"}])
@played
async def test_nothing_is_pipelined_unless_it_was_agreed_on(
    world: World, binding: str | dict[str, str]
) -> None:
    world.agree(binding=binding)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert [one.pipelined for one in world.wire.to(SELLER, M)] == [False]


@pytest.mark.req("P2-6.3.2-01")
@played
async def test_a_message_is_pipelined_once_and_not_when_it_is_sent_again(world: World) -> None:
    world.agree(binding=PIPELINED, retry=FEW)
    world.wire.will(reply_lost, lost)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.until(100)
    assert [one.pipelined for one in world.wire.to(SELLER, M)] == [True, False, False]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@pytest.mark.req("P2-6.3.2-01")
@played
async def test_requests_to_pull_are_never_pipelined(world: World) -> None:
    collect(world)
    world.agree("PushedToo", binding=PIPELINED)
    buyer, seller = await world.both()
    await buyer.send(M)
    await seller.process.ask(seller.node.pull(ORDERS))
    await world.wait(1)
    pulls = world.wire.to(BUYER, "PullRequest")
    assert pulls
    assert not any(one.pipelined for one in pulls)
