"""The contract of every backend: who reads the inbox by its keys misses nothing."""

import pytest

from postroad.store.interface import Store
from postroad.store.records import Extent, Side, State
from tests.store.samples import after, message
from tests.store.stories import Tell, found, listed


async def extent(store: Store) -> Extent:
    return await store.look(lambda reader: reader.inbox())


@pytest.mark.parametrize("before", [State.HELD, State.REJECTED])
def test_what_is_delivered_later_stands_behind_what_was_read_before(
    tell: Tell, before: State
) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message("slow", state=before, action="a")))
        await store.run(lambda tx: tx.add_message(message("quick")))
        read = (await extent(store)).last
        await store.run(
            lambda tx: tx.change_message(
                Side.RECEIVING, "slow", (before,), state=State.DELIVERED, detail="now"
            )
        )
        assert await listed(store, states=(State.DELIVERED,), after=read) == ["slow"]
        kept = await found(store, "slow")
        assert kept is not None
        assert (kept.action, kept.detail) == ("a", "now")
        figures = await store.look(lambda reader: reader.figures())
        assert figures.messages == {"receiving.delivered": 2}

    tell(story)


def test_what_is_acknowledged_keeps_its_place(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for name in ("m1", "m2"):
            await store.run(lambda tx, name=name: tx.add_message(message(name)))  # type: ignore[misc]
        await store.run(
            lambda tx: tx.change_message(
                Side.RECEIVING, "m1", (State.DELIVERED,), state=State.CONSUMED
            )
        )
        assert await listed(store, states=(State.DELIVERED, State.CONSUMED)) == ["m1", "m2"]

    tell(story)


def test_the_inbox_is_as_far_as_its_last_message(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await extent(store) == Extent(epoch=1, last=0, purged=0)
        await store.run(lambda tx: tx.add_message(message("m1")))
        await store.run(lambda tx: tx.add_message(message("held", state=State.HELD)))
        await store.run(lambda tx: tx.add_message(message("out", side=Side.SENDING)))
        kept = await found(store, "m1")
        assert kept is not None
        assert await extent(store) == Extent(epoch=1, last=kept.key, purged=0)

    tell(story)


def test_the_inbox_remembers_how_far_it_was_when_its_messages_are_gone(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message("m1", state=State.CONSUMED)))
        await store.run(lambda tx: tx.add_message(message("m2")))
        await store.run(lambda tx: tx.add_message(message("m3", state=State.REJECTED)))
        kept = await found(store, "m2")
        assert kept is not None
        for states in ([State.DELIVERED], [State.REJECTED], [State.CONSUMED]):
            await store.run(lambda tx, states=states: tx.purge(after(1), states, 9))  # type: ignore[misc]
        assert await extent(store) == Extent(epoch=1, last=kept.key, purged=kept.key)

    tell(story)
