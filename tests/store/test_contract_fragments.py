"""The contract of every backend: groups of fragments, and contents that are joined of theirs."""

from typing import Any

import pytest

from postroad.store.fragments import StoredFragment, StoredGroup
from postroad.store.interface import Store, Transaction
from postroad.store.records import Stored
from tests.changing import replace
from tests.store.samples import START, after, bytes_of, full_message
from tests.store.stories import Refusal, Tell

GROUP = StoredGroup("buyer", "g1", START, False, 1000, b"known")
PIECES = [bytes((number,)) * (300_000 if number == 2 else 7 * number) for number in range(1, 5)]


def taking(number: int, group_id: str = "g1", **fields: Any) -> Any:
    """A step that takes a fragment."""

    def step(tx: Transaction) -> bool:
        tx.set_fragment_group(replace(GROUP, group_id=group_id, **fields))
        stored = tx.keep(PIECES[number - 1])
        return tx.add_fragment(
            "buyer", group_id, StoredFragment(number, f"f{number}@buyer.example", stored)
        )

    return step


async def numbers(store: Store, sender: str = "buyer", group_id: str = "g1") -> list[int]:
    there = await store.look(lambda reader: reader.fragments(sender, group_id))
    return [fragment.number for fragment in there]


async def size(store: Store) -> int:
    return (await store.look(lambda reader: reader.figures())).bytes


async def to_come(store: Store) -> int:
    return await store.look(lambda reader: reader.bytes_to_come())


def test_a_group_is_known_by_sender_and_id(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await store.look(lambda reader: reader.fragment_group("buyer", "g1")) is None
        await store.run(lambda tx: tx.set_fragment_group(GROUP))
        other = replace(GROUP, sender="thief", details=b"other", to_come=5)
        await store.run(lambda tx: tx.set_fragment_group(other))
        assert await store.look(lambda reader: reader.fragment_group("buyer", "g1")) == GROUP
        assert await store.look(lambda reader: reader.fragment_group("thief", "g1")) == other
        assert await store.look(lambda reader: reader.fragment_group("buyer", "g2")) is None

    tell(story)


def test_what_is_known_last_counts(tell: Tell) -> None:
    async def story(store: Store) -> None:
        later = replace(GROUP, changed_at=after(5), details=b"more", to_come=10)
        await store.run(lambda tx: tx.set_fragment_group(GROUP))
        await store.run(lambda tx: tx.set_fragment_group(later))
        assert await store.look(lambda reader: reader.fragment_group("buyer", "g1")) == later

    tell(story)


@pytest.mark.req("P2-4.3.2-05")
def test_fragments_are_found_by_number_in_whichever_order_they_came(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in (3, 1, 2):
            assert await store.run(taking(number))
        await store.run(taking(1, "g2"))
        assert await numbers(store) == [1, 2, 3]
        found = await store.look(lambda reader: reader.fragment("buyer", "g1", 2))
        assert found is not None
        assert found.message_id == "f2@buyer.example"
        assert bytes_of(store.content(found.stored)) == PIECES[1]
        assert await store.look(lambda reader: reader.fragment("buyer", "g1", 4)) is None

    tell(story)


def test_a_number_is_there_once(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(taking(1))

        def again(tx: Transaction) -> bool:
            other = StoredFragment(1, "other@buyer.example", Stored("s", 0, 0))
            return tx.add_fragment("buyer", "g1", other)

        assert not await store.run(again)
        found = await store.look(lambda reader: reader.fragment("buyer", "g1", 1))
        assert found is not None
        assert found.message_id == "f1@buyer.example"

    tell(story)


def test_a_fragment_has_a_group(tell: Tell) -> None:
    async def story(store: Store) -> None:
        lonely = StoredFragment(1, "f1@buyer.example", Stored("s", 0, 0))
        assert not await store.run(lambda tx: tx.add_fragment("buyer", "g1", lonely))

    tell(story)


def test_a_step_that_fails_takes_nothing(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(taking(1))

        def failing(tx: Transaction) -> None:
            taking(2, to_come=7)(tx)
            tx.join_fragments("buyer", "g1")
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(failing)
        assert await numbers(store) == [1]
        assert await to_come(store) == 1000
        [found] = await store.look(lambda reader: reader.fragments("buyer", "g1"))
        assert bytes_of(store.content(found.stored)) == PIECES[0]

    tell(story)


@pytest.mark.req("P2-4.3.2-09")
def test_room_is_needed_for_what_is_to_come_of_all_groups(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await to_come(store) == 0
        await store.run(lambda tx: tx.set_fragment_group(GROUP))
        await store.run(lambda tx: tx.set_fragment_group(replace(GROUP, group_id="g2", to_come=5)))
        assert await to_come(store) == 1005
        await store.run(lambda tx: tx.set_fragment_group(replace(GROUP, to_come=400)))
        assert await to_come(store) == 405
        assert await store.run(_reserving) == 805
        await store.run(lambda tx: tx.set_fragment_group(replace(GROUP, ended=True)))
        assert await to_come(store) == 405

    tell(story)


def _reserving(tx: Transaction) -> int:
    """A step sees what it reserved itself."""
    tx.set_fragment_group(replace(GROUP, group_id="g3", to_come=400))
    return tx.bytes_to_come()


@pytest.mark.req("P2-4.3.2-16", "P2-4.3.2-17")
def test_a_rejected_group_loses_its_data_and_is_remembered(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in (1, 2):
            await store.run(taking(number))
        await store.run(taking(3, "g2"))
        held = await size(store)
        rejected = replace(GROUP, ended=True, details=b"rejected")

        def reject(tx: Transaction) -> None:
            tx.set_fragment_group(rejected)
            tx.remove_fragments("buyer", "g1")

        await store.run(reject)
        assert await numbers(store) == []
        known = await store.look(lambda reader: reader.fragment_group("buyer", "g1"))
        assert known == replace(rejected, to_come=0)
        assert await numbers(store, group_id="g2") == [3]
        assert held - await size(store) > 200_000

    tell(story)


@pytest.mark.req("P2-4.3.2-15")
def test_the_data_of_a_whole_group_is_joined_in_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in (4, 2, 1, 3):
            await store.run(taking(number))
        joined = await store.run(lambda tx: tx.join_fragments("buyer", "g1"))
        whole = b"".join(PIECES)
        assert joined.size == len(whole)
        assert bytes_of(store.content(joined)) == whole
        assert await numbers(store) == []
        for begin, size in ((0, 1), (5, 10), (6, 300_010), (300_000, 20), (len(whole) - 1, 1)):
            part = Stored(joined.place, joined.offset + begin, size)
            assert bytes_of(store.content(part)) == whole[begin : begin + size]

    tell(story)


def test_there_is_something_to_join(tell: Tell) -> None:
    async def story(store: Store) -> None:
        with pytest.raises(ValueError, match="no fragments"):
            await store.run(lambda tx: tx.join_fragments("buyer", "g1"))

    tell(story)


def test_a_message_whose_parts_lie_in_joined_data_is_purged_with_it(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in (1, 2):
            await store.run(taking(number))

        def deliver(tx: Transaction) -> Stored:
            joined = tx.join_fragments("buyer", "g1")
            envelope = tx.keep(b"<envelope/>")
            parts = [Stored(joined.place, at, 100_000) for at in (7, 100_007)]
            message = full_message(envelope, parts[0])
            first, *_ = message.parts
            with_both = (first, replace(first, content_id="p2@here", stored=parts[1]))
            tx.add_message(replace(message, parts=with_both, part_of=None))
            return joined

        joined = await store.run(deliver)
        held = await size(store)
        state = full_message(joined, joined).state
        await store.run(lambda tx: tx.purge(after(10**9), [state], 10))
        assert held - await size(store) > 200_000

    tell(story)


def test_groups_that_ended_long_ago_are_forgotten(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for number in range(4):
            ended = replace(
                GROUP, group_id=f"g{number}", changed_at=after(number), ended=number != 1
            )
            await store.run(lambda tx, ended=ended: tx.set_fragment_group(ended))
        assert await store.run(lambda tx: tx.forget_fragment_groups(after(3), 1)) == 1
        assert await store.run(lambda tx: tx.forget_fragment_groups(after(3), 10)) == 1

        async def known(number: int) -> bool:
            name = f"g{number}"
            found = await store.look(lambda reader: reader.fragment_group("buyer", name))
            return found is not None

        assert [await known(number) for number in range(4)] == [False, True, False, True]

    tell(story)


def test_groups_that_did_not_end_are_listed_the_oldest_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        others = [replace(GROUP, sender="thief", group_id=name) for name in ("g3", "g2")]
        for group in (GROUP, *others, replace(GROUP, group_id="g9", ended=True)):
            await store.run(lambda tx, group=group: tx.set_fragment_group(group))  # type: ignore[misc]

        async def listed(sender: str | None, limit: int = 10) -> list[str]:
            found = await store.look(lambda reader: reader.fragment_groups(sender, limit))
            return [one.group_id for one in found]

        assert await listed(None) == ["g1", "g3", "g2"]
        assert await listed(None, 2) == ["g1", "g3"]
        assert await listed("thief") == ["g3", "g2"]
        assert await listed("nobody") == []

    tell(story)


def test_a_store_tells_how_much_room_there_is_or_that_nobody_counts(tell: Tell) -> None:
    async def story(store: Store) -> None:
        free = store.free()
        assert free is None or free > 0

    tell(story)
