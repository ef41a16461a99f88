"""The contract of every backend: what is done for many messages at once."""

import asyncio

import pytest
from msgspec import structs

from postroad.store.interface import Store, Transaction
from postroad.store.records import Message, Side, State
from tests.store.samples import after, event, full_message, message, signal, work
from tests.store.stories import Tell, found, listed

THREE = ("a@here", "b@here", "c@here")


def sent(name: str, **fields: object) -> Message:
    return message(name, **{"side": Side.SENDING, "state": State.READY} | fields)


def test_many_messages_are_added_in_their_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_messages([sent(one) for one in THREE]))
        assert await listed(store) == list(THREE)
        figures = await store.look(lambda reader: reader.figures())
        assert figures.messages == {"sending.ready": 3}

    tell(story)


def test_many_messages_are_added_or_none(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(sent("b@here")))
        with pytest.raises(ValueError, match="already"):
            await store.run(lambda tx: tx.add_messages([sent(one) for one in THREE]))
        assert await listed(store) == ["b@here"]
        figures = await store.look(lambda reader: reader.figures())
        assert figures.messages == {"sending.ready": 1}

    tell(story)


def test_those_messages_are_found_that_there_are(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_messages([sent(one) for one in THREE[:2]]))
        known = await store.look(lambda reader: reader.messages_by_id(Side.SENDING, THREE))
        assert known.keys() == {"a@here", "b@here"}
        assert known["a@here"] == await found(store, "a@here", Side.SENDING)
        assert not await store.look(lambda reader: reader.messages_by_id(Side.RECEIVING, THREE))
        assert not await store.look(lambda reader: reader.messages_by_id(Side.SENDING, ()))

    tell(story)


def pairs(messages: list[Message]) -> list[tuple[Message, Message]]:
    done = {"state": State.ACKNOWLEDGED, "updated_at": after(5), "attempts": 1}
    return [(one, structs.replace(one, **done)) for one in messages]


def test_many_messages_are_replaced(tell: Tell) -> None:
    async def story(store: Store) -> None:
        messages = [sent(one) for one in THREE]
        await store.run(lambda tx: tx.add_messages(messages))
        assert await store.run(lambda tx: tx.replace_messages(pairs(messages)))
        for one in THREE:
            kept = await found(store, one, Side.SENDING)
            assert kept is not None
            assert (kept.state, kept.attempts) == (State.ACKNOWLEDGED, 1)
            assert kept.updated_at == after(5)
        assert await listed(store, states=(State.ACKNOWLEDGED,)) == list(THREE)
        figures = await store.look(lambda reader: reader.figures())
        assert {name: n for name, n in figures.messages.items() if n} == {"sending.acknowledged": 3}

    tell(story)


def test_messages_are_replaced_as_they_are_read(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_message(full_message(tx.keep(b"envelope"), tx.keep(b"part")))

        await store.run(step)
        for number in (1, 2):
            kept = await found(store, "full@here", Side.SENDING)
            assert kept is not None
            other = structs.replace(kept, attempts=number, state=State.SENT)
            assert await store.run(lambda tx, one=(kept, other): tx.replace_messages([one]))
            assert await found(store, "full@here", Side.SENDING) == other

    tell(story)


@pytest.mark.parametrize("other", ["state", "timer", "gone"])
def test_no_message_is_replaced_when_one_is_not_as_it_was(tell: Tell, other: str) -> None:
    async def story(store: Store) -> None:
        messages = [sent(one) for one in THREE]
        there = messages if other != "gone" else messages[:2]
        await store.run(lambda tx: tx.add_messages(there))
        last, was = THREE[len(there) - 1], (State.READY,)
        if other == "state":
            await store.run(lambda tx: tx.change_message(Side.SENDING, last, was, state=State.SENT))
        if other == "timer":
            await store.run(lambda tx: tx.change_message(Side.SENDING, last, was, timer=7))
        assert not await store.run(lambda tx: tx.replace_messages(pairs(messages)))
        assert not await listed(store, states=(State.ACKNOWLEDGED,))

    tell(story)


@pytest.mark.parametrize("lane", [None, "l"])
def test_much_work_is_added_as_each_alone_would_be(tell: Tell, lane: str | None) -> None:
    async def story(store: Store) -> None:
        given = [work("send", one, owner="me", lease_until=after(60), lane=lane) for one in THREE]
        first = await store.run(lambda tx: tx.add_work(work("notify")))
        ids = await store.run(lambda tx: tx.add_works(given))
        assert first not in ids
        kept = await store.look(lambda reader: [reader.work(one) for one in ids])
        assert [one and (one.id, one.message_id) for one in kept] == list(
            zip(ids, THREE, strict=True)
        )
        # In a lane only the first is claimed.
        claimed = ["me"] * 3 if lane is None else ["me", None, None]
        assert [one and one.owner for one in kept] == claimed
        figures = await store.look(lambda reader: reader.figures())
        assert figures.work == {"notify": 1, "send": 3}
        assert await store.run(lambda tx: tx.add_works([])) == []

    tell(story)


def test_much_work_is_finished_by_its_owner_only(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> list[int]:
            mine = [
                tx.add_work(work("send", one, owner="me", lease_until=after(60))) for one in THREE
            ]
            return [*mine, tx.add_work(work("send", "d@here", owner="you", lease_until=after(60)))]

        ids = await store.run(step)
        await store.run(lambda tx: tx.finish_works(ids, "me"))
        left = await store.look(lambda reader: [reader.work(one) for one in ids])
        assert [one is not None for one in left] == [False, False, False, True]
        await store.run(lambda tx: tx.finish_works(ids))
        assert await store.look(lambda reader: reader.work(ids[-1])) is None
        figures = await store.look(lambda reader: reader.figures())
        assert not any(figures.work.values())

    tell(story)


def test_what_follows_in_a_lane_begins_when_many_are_finished(tell: Tell) -> None:
    async def story(store: Store) -> None:
        ids = await store.run(
            lambda tx: [tx.add_work(work("send", one, lane="l")) for one in THREE]
        )
        await store.run(lambda tx: tx.finish_works(ids[:2]))

        def claim(tx: Transaction) -> list[int]:
            claimed = tx.claim_work(("send",), after(9), "me", after(60), 5)
            return [one.id for one in claimed]

        assert await store.run(claim) == ids[2:]

    tell(story)


def test_a_step_sees_the_events_and_signals_that_it_wrote(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> tuple[list[str], list[str], int]:
            tx.add_message(message())
            for name in ("s1", "s2"):
                tx.add_signal(signal(tx.keep(b"x"), signal_id=name))
                tx.record([event(name)])
            events = [one.event.event for one in tx.events("m1@here")]
            signals = [one.signal_id for one in tx.signals(Side.RECEIVING, "m1@here")]
            return events, signals, len(tx.journal(0, 10))

        assert await store.run(step) == (["s1", "s2"], ["s1", "s2"], 2)

    tell(story)


def test_a_step_that_fails_leaves_no_event_and_no_signal(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def good(tx: Transaction) -> None:
            tx.record([event("good")])
            tx.add_signal(signal(tx.keep(b"x"), signal_id="good"))

        def bad(tx: Transaction) -> None:
            tx.record([event("bad")])
            tx.add_signal(signal(tx.keep(b"x"), signal_id="bad"))
            raise KeyError

        steps = (good, bad, good)
        done = await asyncio.gather(*map(store.run, steps), return_exceptions=True)
        assert [type(one) for one in done] == [type(None), KeyError, type(None)]
        events = await store.look(lambda reader: reader.journal(0, 10))
        assert [(one.seq, one.event.event) for one in events] == [(1, "good"), (2, "good")]
        signals = await store.look(lambda reader: reader.signals(Side.RECEIVING, "m1@here"))
        assert [one.signal_id for one in signals] == ["good", "good"]

    tell(story)
