"""A large message is read while its fragments come; what is wrong with that is nobody's loss."""

import hashlib
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from postroad.node.base import reading_ahead
from postroad.node.walks import joining
from postroad.store.interface import StoreBusy
from postroad.store.records import Side, State
from postroad.wire.limits import KIB, MIB
from tests.node.joining import GROUP, SOURCE, agree_on_splitting, bring, large, payloads, receipts
from tests.node.reliable import World, played

NOISE = hashlib.shake_256(b"a drawing").digest(3 * MIB)
"""Nothing that compression makes smaller."""
PATIENCE = 60


async def at_the_seller(world: World, algorithm: str | None, *numbers: int) -> tuple[Any, Any]:
    """The seller, to whom some fragments of a message of four came."""
    world.kept_in = "sqlite"
    compression = {"algorithm": algorithm} if algorithm else False
    agree_on_splitting(world, fragment_size="1 MiB", compression=compression)
    buyer, seller = await world.both()
    given = large(buyer, NOISE, size=MIB, algorithm=algorithm)
    assert given.count == 4
    await bring(seller, given, *numbers)
    return seller, given


def read_again(*_: Any, **__: Any) -> None:
    raise AssertionError("it was read again")


async def is_delivered(world: World, seller: Any) -> None:
    """All fragments came, so their reader ends soon; the made-up clock would not wait for it."""
    for thread in threading.enumerate():
        if thread.name == "postroad-ahead":
            thread.join(PATIENCE)
    await world.wait(5)
    message = await seller.message(SOURCE, Side.RECEIVING)
    assert message.state is State.DELIVERED
    assert await payloads(seller) == [NOISE]
    assert len(receipts(world, SOURCE)) == 1


@pytest.mark.parametrize("algorithm", [None, "gzip"])
@played
async def test_a_message_whose_fragments_were_read_as_they_came_is_not_read_again(
    world: World, algorithm: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "capture_joined", read_again)
    seller, _ = await at_the_seller(world, algorithm, 2, 1, 4, 3)
    await is_delivered(world, seller)


@played
async def test_it_is_read_as_it_comes_though_the_last_fragment_tells_that_it_is_compressed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "capture_joined", read_again)
    world.kept_in = "sqlite"
    agree_on_splitting(world, fragment_size="1 MiB", compression={"algorithm": "gzip"})
    buyer, seller = await world.both()
    given = large(buyer, NOISE, size=MIB, algorithm="gzip", streamed=True)
    size = given.whole.message_size
    given = replace(given, splitting=replace(given.splitting, message_size=size))
    await bring(seller, given, 1, 2, 3, 4)
    await is_delivered(world, seller)


@played
async def test_a_stored_fragment_is_answered_as_taken_although_nothing_can_be_read_ahead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 would say that it was not taken, and its sender would report the message as failed."""
    world.kept_in = "sqlite"
    agree_on_splitting(world, fragment_size="1 MiB", compression=False)
    buyer, seller = await world.both()
    given = large(buyer, NOISE, size=MIB, algorithm=None)
    store = seller.node.context.store
    look, failed = store.look, []

    async def broken(ask: Any) -> Any:
        if ".came." in ask.__qualname__:
            failed.append(ask)
            raise StoreBusy("The database is locked by another process.")
        return await look(ask)

    monkeypatch.setattr(store, "look", broken)
    await bring(seller, given, 1, 2, 3, 4)
    assert failed
    await is_delivered(world, seller)


@pytest.mark.parametrize("algorithm", [None, "gzip"])
@played
async def test_a_message_that_could_not_be_read_ahead_is_read_when_it_is_whole(
    world: World, algorithm: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the disk has its own mind")

    monkeypatch.setattr(reading_ahead, "capture_joined", broken)
    seller, _ = await at_the_seller(world, algorithm, 1, 2, 3, 4)
    await is_delivered(world, seller)


@played
async def test_fragments_that_came_before_the_first_are_read_with_it(world: World) -> None:
    seller, given = await at_the_seller(world, None, 3, 2)
    await bring(seller, given, 4, 1)
    await is_delivered(world, seller)


@played
async def test_a_rejected_group_is_not_read_on(world: World) -> None:
    seller, given = await at_the_seller(world, None, 1)
    ahead = seller.node.context.ahead
    [reading] = ahead._under_way.values()
    await seller.receive(*given.fragment(1, "another@buyer.example"))
    reading._thread.join()
    assert reading.is_over


@played
async def test_small_messages_are_not_read_ahead(world: World) -> None:
    world.kept_in = "sqlite"
    agree_on_splitting(world, fragment_size="512 KiB")
    buyer, seller = await world.both()
    given = large(buyer, NOISE, size=512 * KIB)
    await bring(seller, given, 1, 2)
    assert given.splitting.group_id == GROUP
    assert not seller.node.context.ahead._under_way


@played
async def test_a_node_that_stops_reads_no_further(world: World) -> None:
    seller, _ = await at_the_seller(world, None, 1, 2)
    [reading] = seller.node.context.ahead._under_way.values()
    seller.node.context.ahead.close()
    assert reading.is_over
    assert not reading._thread.is_alive()
