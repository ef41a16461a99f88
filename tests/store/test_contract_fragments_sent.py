"""The contract of every backend: messages that are fragments of another."""

from typing import Any

from postroad.store.interface import Store, Transaction
from postroad.store.records import Message, Side, Split, State, Stored, Wanted
from tests.store.samples import after, message
from tests.store.stories import Tell

WHOLE = "whole@here"


def fragment(number: int, **fields: Any) -> Message:
    given = {
        "side": Side.SENDING,
        "state": State.READY,
        "part_of": WHOLE,
        "fragment": number,
        "fragments": 5,
        "created_at": after(10),
        "updated_at": after(10),
    }
    return message(f"f{number}@here", **given | fields)


def whole(stored: Stored | None = None, **fields: Any) -> Message:
    split = Split("g1", 16, 5, 70, 80, "gzip", stored, 5)
    given = {"side": Side.SENDING, "state": State.WAITING, "split": split}
    return message(WHOLE, **given | fields)


async def kept(store: Store, *messages: Message) -> None:
    await store.run(lambda tx: [tx.add_message(one) for one in messages])


async def numbers(store: Store, side: Side = Side.SENDING, limit: int = 9) -> list[int | None]:
    found = await store.look(lambda reader: reader.fragment_messages(side, WHOLE, 0, limit))
    return [one.fragment for one in found]


def test_fragments_are_found_by_their_message_in_the_order_in_which_they_were_added(
    tell: Tell,
) -> None:
    async def story(store: Store) -> None:
        await kept(store, whole(), *(fragment(number) for number in range(1, 6)))
        await kept(store, fragment(7, part_of="other@here"), fragment(8, side=Side.RECEIVING))
        assert await numbers(store) == [1, 2, 3, 4, 5]
        first = await store.look(lambda one: one.fragment_messages(Side.SENDING, WHOLE, 0, 2))
        assert [one.fragment for one in first] == [1, 2]
        key = first[-1].key
        rest = await store.look(lambda one: one.fragment_messages(Side.SENDING, WHOLE, key, 2))
        assert [one.fragment for one in rest] == [3, 4]

    tell(story)


def test_fragments_are_counted_by_state(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await kept(store, whole(), *(fragment(number) for number in range(1, 4)))

        def settle(tx: Transaction) -> bool:
            changes = {"state": State.ACKNOWLEDGED}
            return tx.change_message(Side.SENDING, "f2@here", (State.READY,), **changes)

        assert await store.run(settle)
        states = await store.look(lambda reader: reader.fragment_states(Side.SENDING, WHOLE))
        assert states == {State.READY: 2, State.ACKNOWLEDGED: 1}
        assert await store.look(lambda reader: reader.fragment_states(Side.SENDING, "none")) == {}

    tell(story)


def test_lists_of_messages_leave_fragments_out(tell: Tell) -> None:
    async def story(store: Store) -> None:
        waiting = State.WAITING
        await kept(store, whole(), fragment(1, state=waiting), fragment(2, side=Side.RECEIVING))
        for wanted in (Wanted(), Wanted(Side.SENDING), Wanted(states=(waiting,))):
            found = await store.look(lambda reader, wanted=wanted: reader.messages(wanted))  # type: ignore[misc]
            assert [one.message_id for one in found] == [WHOLE]

    tell(story)


def test_fragments_go_with_their_message_and_not_before(tell: Tell) -> None:
    async def story(store: Store) -> None:
        done = State.ACKNOWLEDGED
        stored = await store.run(lambda tx: tx.keep(b"compressed" * 50_000))
        await kept(store, whole(stored, state=State.IN_DOUBT, updated_at=after(100)))
        await kept(store, *(fragment(number, state=done) for number in range(1, 4)))
        assert await store.run(lambda tx: tx.purge(after(50), (done, State.IN_DOUBT), 9)) == []
        held = (await store.look(lambda reader: reader.figures())).bytes
        gone = await store.run(lambda tx: tx.purge(after(200), (State.IN_DOUBT,), 9))
        assert [one.message_id for one in gone] == ["f1@here", "f2@here", "f3@here", WHOLE]
        assert await numbers(store) == []
        assert held - (await store.look(lambda reader: reader.figures())).bytes > 300_000

    tell(story)


def test_many_fragments_go_a_few_at_a_time_and_their_message_last(tell: Tell) -> None:
    async def story(store: Store) -> None:
        done = State.ACKNOWLEDGED
        await kept(store, whole(state=done))
        await kept(store, *(fragment(number, state=done) for number in range(1, 5)))
        sizes = []
        while gone := await store.run(lambda tx: tx.purge(after(50), (done,), 2)):
            sizes.append([one.fragment for one in gone])
        assert sizes == [[1, 2], [3, 4], [None]]

    tell(story)


def test_a_fragment_that_was_received_goes_by_itself(tell: Tell) -> None:
    async def story(store: Store) -> None:
        received = State.RECEIVED
        await kept(store, fragment(1, side=Side.RECEIVING, state=received))
        gone = await store.run(lambda tx: tx.purge(after(50), (received,), 9))
        assert [one.fragment for one in gone] == [1]

    tell(story)
