"""The contract of every backend: refused messages whose senders proved nothing."""

import pytest

from postroad.store.interface import Store, Transaction
from postroad.store.records import Message, Side, State
from tests.store.samples import after, message
from tests.store.stories import Refusal, Tell

BEGINNING = b"<beginning>" * 100
LONG_AGO = after(-1e6)


def refused(name: str, at: float = 0) -> Message:
    given = {"state": State.REJECTED, "unproven": True, "beginning": len(BEGINNING)}
    return message(name, created_at=after(at), updated_at=after(at), **given)


async def add(store: Store, *names: str) -> None:
    for at, name in enumerate(names):
        one = refused(name, at)
        assert await store.run(lambda tx, one=one: tx.add_refused(one, BEGINNING))  # type: ignore[misc]


async def left(store: Store, *names: str) -> list[str]:
    """Those of which both the message and its beginning are there; never one without the other."""
    found = []
    for name in names:
        row = await store.look(lambda reader, name=name: reader.message(Side.RECEIVING, name))  # type: ignore[misc]
        kept = await store.look(lambda reader, name=name: reader.beginning(name))  # type: ignore[misc]
        assert (row is None) == (kept is None)
        found += [name] if row is not None else []
    return found


def test_the_beginning_of_a_refused_message_is_kept(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await add(store, "a")
        assert await store.look(lambda reader: reader.beginning("a")) == BEGINNING
        assert await store.look(lambda reader: reader.beginning("b")) is None
        assert not await store.run(lambda tx: tx.add_refused(refused("a"), b"other"))
        assert await store.look(lambda reader: reader.beginning("a")) == BEGINNING

    tell(story)


def test_beyond_their_room_the_oldest_refused_messages_go(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await add(store, "a", "b", "c")
        assert await store.run(lambda tx: tx.purge_refused(LONG_AGO, 1 << 20, 100)) == 0
        # One takes the beginning, its row twice, and what indexes take.
        assert await store.run(lambda tx: tx.purge_refused(LONG_AGO, 6000, 100)) == 1
        assert await left(store, "a", "b", "c") == ["b", "c"]
        assert await store.run(lambda tx: tx.purge_refused(LONG_AGO, 0, 1)) == 1
        assert await left(store, "b", "c") == ["c"]
        await store.run(lambda tx: tx.purge_refused(LONG_AGO, 0, 100))
        figures = await store.look(lambda reader: reader.figures())
        assert figures.messages == {}

    tell(story)


def test_old_refused_messages_go_however_much_room_there_is(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await add(store, "a", "b", "c")
        assert await store.run(lambda tx: tx.purge_refused(after(2), 1 << 20, 100)) == 2
        assert await left(store, "a", "b", "c") == ["c"]

    tell(story)


def test_a_good_copy_takes_the_place_of_a_refused_message_and_stays(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await add(store, "a", "b")

        def taken(tx: Transaction) -> None:
            changes = {"state": State.DELIVERED, "unproven": False, "beginning": 0}
            tx.change_message(Side.RECEIVING, "a", (State.REJECTED,), **changes)
            tx.drop_beginning("a")

        await store.run(taken)
        assert await store.run(lambda tx: tx.purge_refused(after(10), 0, 100)) == 1
        found = await store.look(lambda reader: reader.message(Side.RECEIVING, "a"))
        assert found is not None
        assert found.state is State.DELIVERED

    tell(story)


def test_retention_of_messages_takes_the_beginning_along(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await add(store, "a")
        await store.run(lambda tx: tx.purge(after(10), (State.REJECTED,), 100))
        assert await left(store, "a") == []
        await add(store, "a")
        assert await left(store, "a") == ["a"]

    tell(story)


def test_a_step_that_fails_neither_adds_nor_removes_refused_messages(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await add(store, "a")

        def step(tx: Transaction) -> None:
            tx.add_refused(refused("b"), BEGINNING)
            tx.purge_refused(after(10), 0, 100)
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(step)
        assert await left(store, "a", "b") == ["a"]

    tell(story)
