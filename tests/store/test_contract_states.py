"""The contract of every backend: what protocols remember beside messages."""

import pytest

from postroad.store.interface import Store, Transaction
from tests.store.samples import START, after
from tests.store.stories import Refusal, Tell

NAME = "numbers:c1"


async def remember(store: Store, name: str, value: bytes | None, at: float = 0) -> None:
    await store.run(lambda tx: tx.set_state(name, value, after(at)))


async def remembered(store: Store, name: str = NAME) -> bytes | None:
    return await store.look(lambda reader: reader.state(name))


def test_nothing_is_remembered_under_a_name_that_was_never_used(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await remembered(store) is None

    tell(story)


def test_what_was_remembered_last_counts(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await remember(store, NAME, b"1")
        await remember(store, NAME, b"2", 1)
        await remember(store, "numbers:c2", b"other", 1)
        assert await remembered(store) == b"2"

    tell(story)


def test_a_step_sees_what_it_remembered_itself(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> bytes | None:
            tx.set_state(NAME, b"\x00now", START)
            return tx.state(NAME)

        assert await store.run(step) == b"\x00now"

    tell(story)


def test_what_is_forgotten_is_gone(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await remember(store, NAME, b"1")
        await remember(store, NAME, None)
        assert await remembered(store) is None

    tell(story)


def test_a_step_that_fails_remembers_nothing(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await remember(store, NAME, b"1")

        def step(tx: Transaction) -> None:
            tx.set_state(NAME, b"2", START)
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(step)
        assert await remembered(store) == b"1"

    tell(story)


def test_only_what_is_passing_and_was_not_changed_for_long_is_forgotten_by_age(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in range(5):
            await remember(store, f"~asked:{number}", b"1", number)
        await remember(store, "~asked:0", b"2", 10)
        await remember(store, NAME, b"for ever", 0)
        assert await store.run(lambda tx: tx.forget_states(after(3), 1)) == 1
        assert await store.run(lambda tx: tx.forget_states(after(3), 10)) == 1
        left = [await remembered(store, f"~asked:{number}") for number in range(5)]
        assert left == [b"2", None, None, b"1", b"1"]
        assert await remembered(store) == b"for ever", "what a conversation needs stays"

    tell(story)
