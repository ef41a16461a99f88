"""Reliability.StartGroup and TerminateGroup (Core D.3.5): which sequence a message goes in."""

from typing import Final

import pytest

from postroad.store.records import State
from tests.node.reliable import SELLER, STORES, Posted, World, lost, passed, played
from tests.node.sequences import agree, kind_of, kinds, numbers, unless

M: Final = [f"m{n}@buyer" for n in range(6)]
CONVERSATION: Final = {"correlation": ["eb3:CollaborationInfo/eb3:ConversationId"]}


def message(posted: Posted) -> bool:
    return kind_of(posted) == "message"


async def sent(world: World, *ids: str, pmode: str = "orders") -> None:
    for one in ids:
        await world.stations["buyer"].send(one, pmode, conversation="c-1")
        await world.wait(1)


@played
async def test_every_message_that_starts_a_group_has_a_sequence_of_its_own(world: World) -> None:
    agree(world, start_group=True)
    buyer, seller = await world.both()
    await sent(world, *M[:3])
    assert len({name for name, _ in numbers(world)}) == 3
    assert [number for _, number in numbers(world)] == [1, 1, 1]
    ended = ["CloseSequence", "TerminateSequence"]
    begun = ["CreateSequence", "message"]
    assert kinds(world) == [*begun, *ended, *begun, *ended, *begun]
    assert await seller.inbox() == M[:3]
    assert [await buyer.state(one) for one in M[:3]] == [State.ACKNOWLEDGED] * 3


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_message_that_ends_its_group_ends_the_sequence(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world, terminate_group=True)
    _, seller = await world.both()
    await sent(world, M[0])
    assert kinds(world) == ["CreateSequence", "message", "CloseSequence", "TerminateSequence"]
    await sent(world, M[1])
    assert [number for _, number in numbers(world)] == [1, 1]
    assert len({name for name, _ in numbers(world)}) == 2
    assert await seller.inbox() == M[:2]


@played
async def test_a_group_of_several_pmodes_begins_and_ends_where_they_say(world: World) -> None:
    agree(world, "first", start_group=True, **CONVERSATION)
    agree(world, "line", start_group=False, **CONVERSATION)
    agree(world, "last", terminate_group=True, **CONVERSATION)
    _, seller = await world.both()
    await sent(world, M[0], pmode="first")
    await sent(world, M[1], M[2], pmode="line")
    await sent(world, M[3], pmode="last")
    assert [number for _, number in numbers(world)] == [1, 2, 3, 4]
    assert len({name for name, _ in numbers(world)}) == 1
    assert kinds(world)[-2:] == ["CloseSequence", "TerminateSequence"]
    await sent(world, M[4], pmode="first")
    assert len({name for name, _ in numbers(world)}) == 2
    assert await seller.inbox() == M[:5]


@played
async def test_a_message_that_belongs_to_no_group_is_not_sent(world: World) -> None:
    agree(world, start_group=False)
    buyer, seller = await world.both()
    await sent(world, M[0])
    assert kinds(world) == []
    await world.wait(3600)
    found = await buyer.message(M[0])
    assert found.state is State.FAILED
    assert found.detail is not None
    assert "no message has begun the group" in found.detail
    assert await seller.inbox() == []


@pytest.mark.parametrize("role", ["start_group", "terminate_group"])
@played
async def test_the_next_group_begins_when_the_one_before_is_acknowledged(
    world: World, role: str
) -> None:
    agree(world, **{role: True})
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = unless(message, lost)
    await sent(world, M[0], M[1])
    assert [number for _, number in numbers(world)] == [1]
    del world.wire.usual[SELLER]
    await world.wait(60)
    assert {number for _, number in numbers(world)} == {1}
    assert len({name for name, _ in numbers(world)}) == 2
    assert await seller.inbox() == M[:2]
    assert [await buyer.state(one) for one in M[:2]] == [State.ACKNOWLEDGED] * 2


@played
async def test_the_last_message_of_a_group_is_the_last_of_the_sequence_that_it_moves_to(
    world: World,
) -> None:
    """The partner forgot the sequence that the message was in."""
    agree(world, terminate_group=True)
    buyer, _ = await world.both()
    world.wire.will(passed, lost)
    await buyer.send(M[0])
    await world.wait(1)
    with world.elsewhere():
        forgetful = await world.start(SELLER)
    world.stations[SELLER] = forgetful
    await world.wait(60)
    assert await forgetful.inbox() == [M[0]]
    await sent(world, M[1])
    assert await forgetful.inbox() == M[:2]
    assert [number for _, number in numbers(world)][-1] == 1
    assert len({name for name, _ in numbers(world)}) == 3
