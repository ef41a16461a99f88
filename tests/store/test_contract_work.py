"""The contract of every backend: work and the journal."""

import asyncio

import pytest
from msgspec import structs

from postroad.store.interface import Store, Transaction
from postroad.store.records import Event
from tests.store.samples import (
    START,
    after,
    event,
    full_event,
    work,
)
from tests.store.stories import KINDS, Refusal, Tell, claimed


def test_due_work_is_claimed_oldest_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_work(work("send", "late", due=30))
            tx.add_work(work("package", "early", due=10))
            tx.add_work(work("send", "middle", due=20))
            tx.add_work(work("send", "middle too", due=20))
            tx.add_work(work("send", "not yet", due=101))

        await store.run(step)
        assert await claimed(store, limit=3) == ["early", "middle", "middle too"]
        assert await claimed(store) == ["late"]
        assert await claimed(store) == []
        assert await claimed(store, now=101) == ["not yet"]

    tell(story)


def test_work_comes_back_as_it_was_added(tell: Tell) -> None:
    async def story(store: Store) -> None:
        given = work("signal", "m1@here", data=b'{"a":1}', attempt=4)
        id = await store.run(lambda tx: tx.add_work(given))
        [back] = await store.run(lambda tx: tx.claim_work(KINDS, START, "me", after(9), 1))
        assert back == structs.replace(given, id=id, owner="me", lease_until=after(9))

    tell(story)


def test_only_the_kinds_that_are_asked_for_are_claimed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: [tx.add_work(work(kind, kind)) for kind in KINDS])
        assert await claimed(store, kinds=["send"]) == ["send"]
        assert await claimed(store, kinds=[]) == []
        assert await claimed(store, kinds=["signal", "package", "signal"]) == ["package", "signal"]

    tell(story)


def test_claimed_work_is_given_to_another_only_when_the_lease_is_over(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_work(work()))
        assert await claimed(store, now=0, lease=60, owner="a") == ["m1@here"]
        assert await claimed(store, now=59, owner="b") == []
        assert await claimed(store, now=60, lease=120, owner="b") == ["m1@here"]
        assert await claimed(store, now=119, owner="c") == []

    tell(story)


def test_expired_and_free_work_are_claimed_in_one_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_work(work("send", "third", due=3))
            tx.add_work(work("send", "first", due=1, owner="gone", lease_until=after(5)))
            tx.add_work(work("send", "second", due=2))
            tx.add_work(work("send", "fourth", due=4, owner="gone", lease_until=after(5)))

        await store.run(step)
        assert await claimed(store, limit=3) == ["first", "second", "third"]
        assert await claimed(store) == ["fourth"]

    tell(story)


def test_work_can_be_claimed_from_the_start(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_work(work(owner="me", lease_until=after(60))))
        assert await claimed(store, now=10) == []
        assert await store.look(lambda reader: reader.next_due(KINDS)) is None
        assert await claimed(store, now=60) == ["m1@here"]

    tell(story)


def test_notifications_about_a_message_are_given_one_at_a_time_in_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> list[int]:
            return [
                tx.add_work(work("notify", "a", due=5, data=b"1")),
                tx.add_work(work("notify", "a", due=1, data=b"2")),
                tx.add_work(work("notify", "b", due=9, data=b"3")),
                tx.add_work(work("notify", "a", due=0, data=b"4")),
            ]

        first, second, other, third = await store.run(step)

        async def next_ids(now: float) -> list[int]:
            given = await store.run(
                lambda tx: tx.claim_work(["notify"], after(now), "me", after(1000), 10)
            )
            return [one.id for one in given]

        # The second is due, but behind the first, which is not.
        assert await next_ids(4) == []
        assert await store.look(lambda reader: reader.next_due(["notify"])) == after(5)
        assert await next_ids(10) == [first, other]
        # The first is being done: nothing of this message is due for anybody.
        assert await next_ids(10) == []
        assert await store.look(lambda reader: reader.next_due(["notify"])) is None
        # It failed and is tried again later: still nothing.
        await store.run(lambda tx: tx.postpone_work(first, after(50)))
        assert await next_ids(49) == []
        assert await next_ids(50) == [first]
        await store.run(lambda tx: tx.finish_work(first))
        assert await next_ids(50) == [second]
        await store.run(lambda tx: tx.finish_work(second))
        assert await next_ids(50) == [third]

    tell(story)


def test_the_lease_of_a_notification_can_be_over_too(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for data in (b"1", b"2"):
                tx.add_work(work("notify", "a", data=data, owner="gone", lease_until=after(5)))

        await store.run(step)
        given = await store.run(lambda tx: tx.claim_work(KINDS, after(9), "me", after(99), 10))
        assert [one.data for one in given] == [b"1"]

    tell(story)


def test_other_work_for_one_message_needs_no_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: [tx.add_work(work()), tx.add_work(work())])
        assert await claimed(store) == ["m1@here", "m1@here"]

    tell(story)


def test_finished_work_is_gone(tell: Tell) -> None:
    async def story(store: Store) -> None:
        id = await store.run(lambda tx: tx.add_work(work()))
        await store.run(lambda tx: tx.finish_work(id))
        await store.run(lambda tx: tx.finish_work(id))
        assert await claimed(store) == []
        assert (await store.look(lambda reader: reader.figures())).work == {}

    tell(story)


def test_the_id_of_finished_work_is_not_used_again(tell: Tell) -> None:
    """A worker that is late would finish the work of another."""

    async def story(store: Store) -> None:
        first = await store.run(lambda tx: tx.add_work(work()))
        await store.run(lambda tx: tx.finish_work(first))
        assert await store.run(lambda tx: tx.add_work(work())) != first

    tell(story)


def test_postponed_work_is_free_later_and_counts_the_attempt(tell: Tell) -> None:
    async def story(store: Store) -> None:
        id = await store.run(lambda tx: tx.add_work(work(data=b"old")))
        await claimed(store, now=1)
        await store.run(lambda tx: tx.postpone_work(id, after(50)))
        assert await claimed(store, now=49) == []
        [again] = await store.run(lambda tx: tx.claim_work(KINDS, after(50), "b", after(60), 9))
        assert (again.attempt, again.data, again.due_at) == (1, b"old", after(50))
        await store.run(lambda tx: tx.postpone_work(id, after(51), b"new"))
        [again] = await store.run(lambda tx: tx.claim_work(KINDS, after(51), "b", after(60), 9))
        assert (again.attempt, again.data) == (2, b"new")
        await store.run(lambda tx: tx.postpone_work(id + 1, after(51)))

    tell(story)


def test_the_leases_of_owners_that_are_gone_are_given_back(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for owner in ("node/1", "node/2", "node%1", "other"):
                tx.add_work(work("send", owner, owner=owner, lease_until=after(60)))
            tx.add_work(work("send", "free", due=77))

        await store.run(step)
        released = await store.run(lambda tx: tx.release_work("node/"))
        assert [one.message_id for one in released] == ["node/1", "node/2"]
        assert all((one.owner, one.lease_until) == (None, None) for one in released)
        assert await store.run(lambda tx: tx.release_work("node/")) == []
        assert await claimed(store, now=1) == ["node/1", "node/2"]
        assert len(await store.run(lambda tx: tx.release_work(""))) == 4

    tell(story)


def test_an_owner_that_is_still_at_it_keeps_all_that_it_has_claimed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for name, owner in (("a", "node/1"), ("b", "node/1"), ("c", "node/10")):
                tx.add_work(work("send", name, owner=owner, lease_until=after(60)))
            tx.add_work(work("send", "free", due=70))

        await store.run(step)
        await store.run(lambda tx: tx.renew_work("node/1", after(200)))
        assert await claimed(store, now=199, lease=999, owner="other") == ["c", "free"]
        assert await claimed(store, now=200, lease=999, owner="other") == ["a", "b"]

    tell(story)


def test_it_is_told_when_the_next_unclaimed_work_is_due(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_work(work("send", due=20))
            tx.add_work(work("package", due=10))
            tx.add_work(work("signal", due=5, owner="me", lease_until=after(9)))

        assert await store.look(lambda reader: reader.next_due(KINDS)) is None
        await store.run(step)
        assert await store.look(lambda reader: reader.next_due(KINDS)) == after(10)
        assert await store.look(lambda reader: reader.next_due(["send", "signal"])) == after(20)
        assert await store.look(lambda reader: reader.next_due([])) is None

    tell(story)


def test_an_event_comes_back_as_it_was_recorded(tell: Tell) -> None:
    async def story(store: Store) -> None:
        given = [full_event(), Event(START, "us", "heartbeat")]
        await store.run(lambda tx: tx.record(given))
        [sent, heartbeat] = await store.look(lambda reader: reader.journal(0, 10))
        assert [sent.event, heartbeat.event] == given
        assert (sent.node, sent.epoch, sent.seq) == ("station", 1, 1)
        assert heartbeat.seq == 2
        assert all(getattr(sent.event, name) is not None for name in Event.__struct_fields__)

    tell(story)


def test_the_journal_is_in_order_and_has_no_holes(tell: Tell) -> None:
    async def story(store: Store) -> None:
        async def write(n: int) -> None:
            events = [event(f"{n}.{k}", f"m{n}") for k in range(3)]

            def step(tx: Transaction) -> None:
                tx.record(events[:2])
                if n % 3 == 0:
                    raise Refusal
                tx.record(iter(events[2:]))
                tx.record([])

            if n % 3 == 0:
                with pytest.raises(Refusal):
                    await store.run(step)
            else:
                await store.run(step)

        await asyncio.gather(*[write(n) for n in range(30)])
        journal = await store.look(lambda reader: reader.journal(0, 1000))
        assert [one.seq for one in journal] == list(range(1, 61))
        names = [one.event.event for one in journal]
        for n in range(30):
            mine = [name for name in names if name.startswith(f"{n}.")]
            assert mine == ([] if n % 3 == 0 else [f"{n}.{k}" for k in range(3)])
        assert store.epoch == 1

    tell(story)


def test_a_stretch_of_the_journal_can_be_read(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.record([event(str(n)) for n in range(1, 8)]))
        stretch = await store.look(lambda reader: reader.journal(2, 3))
        assert [one.event.event for one in stretch] == ["3", "4", "5"]
        assert await store.look(lambda reader: reader.journal(7, 3)) == []

    tell(story)


def test_the_history_of_a_message_is_all_its_events_in_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.record([event("a"), event("b", "m2"), event("c")]))
        await store.run(lambda tx: tx.record([event("d"), event("beat", None)]))
        history = await store.look(lambda reader: reader.events("m1@here"))
        assert [(one.seq, one.event.event) for one in history] == [(1, "a"), (3, "c"), (4, "d")]
        assert await store.look(lambda reader: reader.events("m3")) == []

    tell(story)
