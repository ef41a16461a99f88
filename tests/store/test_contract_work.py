"""The contract of every backend: work and the journal."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from postroad.store.interface import Store, Transaction
from postroad.store.records import Event
from tests.store.samples import START, after, event, full_event, work
from tests.store.stories import KINDS, Refusal, Tell, added, claimed, due, finish, kept_work, taken


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
        given = work("signal", data=b'{"a":1}', attempt=4, partner="urn:x::them", lane="talk")
        [id] = await added(store, given)
        assert await kept_work(store, id) == structs.replace(given, id=id)
        [back] = await taken(store, now=0, owner="me", lease=9)
        assert back == structs.replace(given, id=id, owner="me", lease_until=after(9))
        assert await kept_work(store, id) == back

    tell(story)


def test_only_the_kinds_that_are_asked_for_are_claimed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: [tx.add_work(work(kind, kind)) for kind in KINDS])
        assert await claimed(store, kinds=["send"]) == ["send"]
        assert await claimed(store, kinds=[]) == []
        assert await claimed(store, kinds=["signal", "package", "signal"]) == ["package", "signal"]

    tell(story)


def test_what_others_have_claimed_or_nobody_is_told_in_its_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for name, owner in (("a", "x"), ("b", "me"), ("c", None), ("d", "y"), ("e", "x")):
                tx.add_work(work("send", name, owner=owner, lease_until=owner and after(5)))
            tx.add_work(work("package", "f", owner="x", lease_until=after(5)))

        await store.run(step)

        async def others(most: int, **limits: int) -> list[str]:
            found = await store.look(lambda one: one.others_work("send", "me", most, **limits))
            return [f"{one.message_id} {one.owner}" for one in found]

        assert await others(9) == ["a x", "c None", "d y", "e x"]
        assert await others(2) == ["a x", "c None"]
        [*_, c, _, _] = await store.look(lambda one: one.others_work("send", "", 9))
        assert await others(9, before=c.id) == ["a x", "b me", "c None", "d y", "e x"]
        assert await others(9, before=c.id - 1) == ["a x", "c None", "d y", "e x"]
        assert await others(2, after=c.id, before=99) == ["d y", "e x"]

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
        assert await due(store) is None
        assert await claimed(store, now=60) == ["m1@here"]

    tell(story)


def test_work_for_one_message_needs_no_order_without_a_lane(tell: Tell) -> None:
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
        assert await store.look(lambda reader: reader.work(id)) is None
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


def test_who_takes_work_over_is_told_who_left_it(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await added(store, work("send", "left"), work("send", "free", due=60))
        [first] = await taken(store, now=0, lease=60, owner="a")
        assert first.left_by is None
        left, free = await taken(store, now=60, lease=90, owner="b")
        assert (left.message_id, left.left_by, free.left_by) == ("left", "a", None)
        [left, _] = await taken(store, now=90, lease=99, owner="c")
        assert left.left_by == "b"

    tell(story)


def test_work_that_was_given_back_was_left_by_nobody(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [postponed, released] = await added(store, work("send", "p"), work("send", "r", due=1))
        await claimed(store, owner="a")
        await store.run(lambda tx: tx.postpone_work(postponed, START))
        [back] = await store.run(lambda tx: tx.release_work("a"))
        assert (back.id, back.left_by) == (released, None)
        assert [one.left_by for one in await taken(store, owner="b")] == [None, None]

    tell(story)


def test_work_can_be_put_off_until_it_is_woken(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work(data=b"old"))
        await claimed(store, now=1)
        await store.run(lambda tx: tx.postpone_work(id, None, b"new"))
        assert await claimed(store, now=10**9) == []
        assert await due(store) is None
        asleep = await kept_work(store, id)
        assert (asleep.attempt, asleep.owner, asleep.lease_until) == (1, None, None)
        assert await store.run(lambda tx: tx.wake_work(id, after(50)))
        assert await due(store) == after(50)
        assert await claimed(store, now=49) == []
        [woken] = await taken(store, now=50)
        assert (woken.id, woken.attempt, woken.data, woken.due_at) == (id, 1, b"new", after(50))

    tell(story)


def test_work_that_is_not_due_yet_can_be_woken(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work(due=50))
        assert await store.run(lambda tx: tx.wake_work(id, after(5)))
        assert await due(store) == after(5)
        assert await claimed(store, now=5) == ["m1@here"]

    tell(story)


def test_claimed_work_is_not_woken(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work())
        [mine] = await taken(store, now=1, lease=60)
        assert not await store.run(lambda tx: tx.wake_work(id, after(50)))
        assert await kept_work(store, id) == mine
        assert await claimed(store, now=59) == []

    tell(story)


def test_work_that_is_not_there_is_neither_woken_nor_turned(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work())
        await finish(store, id)
        assert not await store.run(lambda tx: tx.wake_work(id, START))
        await store.run(lambda tx: tx.turn_work(id, "send", START))
        await store.run(lambda tx: tx.postpone_work(id, None))
        assert await claimed(store) == []
        assert (await store.look(lambda reader: reader.figures())).work == {}

    tell(story)


def test_work_turns_into_work_of_another_kind(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work("package", data=b"plan", attempt=3, lane="l"))
        await claimed(store, now=1)
        await store.run(lambda tx: tx.turn_work(id, "send", after(7), "p"))
        assert await kept_work(store, id) == work("send", due=7, id=id, partner="p", lane="l")
        assert (await store.look(lambda reader: reader.figures())).work == {"send": 1}
        assert await claimed(store, kinds=["package"]) == []
        assert await due(store, ["send"]) == after(7)
        assert await claimed(store, now=7, kinds=["send"]) == ["m1@here"]

    tell(story)


def test_work_that_sleeps_is_awake_when_it_was_turned(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work("package"))
        await store.run(lambda tx: tx.postpone_work(id, None))
        await store.run(lambda tx: tx.turn_work(id, "send", START))
        assert await claimed(store, kinds=["send"]) == ["m1@here"]

    tell(story)


def test_the_oldest_work_is_that_which_does_not_sleep(tell: Tell) -> None:
    """Work that sleeps keeps nobody waiting: the age of the oldest would alarm for nothing."""

    async def story(store: Store) -> None:
        [first, asleep, *_] = await added(
            store,
            work("send", due=30, lane="l"),
            work("send", due=20),
            work("send", due=10, lane="l"),
        )

        async def oldest() -> object:
            return (await store.look(lambda reader: reader.figures())).oldest_work

        assert await oldest() == after(20)
        await store.run(lambda tx: tx.postpone_work(asleep, None))
        assert await oldest() == after(30)
        await store.run(lambda tx: tx.postpone_work(first, None))
        assert await oldest() is None

    tell(story)


def test_work_is_moved_with_a_clock_that_was_set_back(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [free, mine, behind, asleep] = await added(
            store,
            work("send", due=3600),
            work("send", due=3601, lane="l", owner="me", lease_until=after(3700)),
            work("send", due=3602, lane="l"),
            work("send", due=3603),
        )
        await store.run(lambda tx: tx.postpone_work(asleep, None))
        await store.run(lambda tx: tx.shift_work(timedelta(hours=1)))
        assert (await kept_work(store, free)).due_at == after(0)
        moved = await kept_work(store, mine)
        assert (moved.due_at, moved.lease_until) == (after(1), after(100))
        assert (await kept_work(store, behind)).due_at == after(2)
        # What sleeps goes on sleeping.
        assert [one.id for one in await taken(store, now=100)] == [free, mine]
        await finish(store, mine)
        assert [one.id for one in await taken(store, now=2)] == [behind]
        assert await due(store) is None
        assert await store.run(lambda tx: tx.wake_work(asleep, after(5)))
        assert [one.id for one in await taken(store, now=5)] == [asleep]

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


def test_an_owner_that_is_still_at_it_keeps_what_it_names(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def claim(owner: str) -> dict[str, Any]:
            return {"owner": owner, "lease_until": after(60)}

        [mine, _, anothers, free] = await added(
            store,
            work("send", "mine", **claim("node/1")),
            work("send", "forgotten", **claim("node/1")),
            work("send", "another's", **claim("node/10")),
            work("send", "free", due=70),
        )
        ids = [mine, anothers, free, 10**6]
        await store.run(lambda tx: tx.renew_work("node/1", ids, after(200)))
        given = await claimed(store, now=199, lease=999, owner="other")
        assert given == ["forgotten", "another's", "free"]
        assert await claimed(store, now=200, lease=999, owner="other") == ["mine"]
        await store.run(lambda tx: tx.renew_work("other", [], after(2000)))
        assert len(await claimed(store, now=999)) == 4

    tell(story)


def test_it_is_told_when_the_next_unclaimed_work_is_due(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_work(work("send", due=20))
            tx.add_work(work("package", due=10))
            tx.add_work(work("signal", due=5, owner="me", lease_until=after(9)))

        assert await due(store) is None
        await store.run(step)
        assert await due(store) == after(10)
        assert await due(store, ["send", "signal"]) == after(20)
        assert await due(store, []) is None

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


def test_who_lost_its_claim_ends_nothing(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [id] = await added(store, work("send"))
        assert await claimed(store, now=0, lease=5, owner="slow") == ["m1@here"]
        assert await claimed(store, now=5, lease=99, owner="quick") == ["m1@here"]
        await store.run(lambda tx: tx.finish_work(id, "slow"))
        await store.run(lambda tx: tx.postpone_work(id, after(7), owner="slow"))
        assert (await kept_work(store, id)).owner == "quick"
        await store.run(lambda tx: tx.postpone_work(id, after(50), owner="quick"))
        assert await due(store, ["send"]) == after(50)
        assert await claimed(store, now=50, owner="quick") == ["m1@here"]
        await store.run(lambda tx: tx.finish_work(id, "quick"))
        assert await store.look(lambda reader: reader.work(id)) is None

    tell(story)
