"""The contract of every backend: work in lanes, one after the other."""

from typing import Any

import pytest

from postroad.store.interface import Store, Transaction
from tests.store.samples import START, after, work
from tests.store.stories import Refusal, Tell, added, claimed, due, finish, kept_work, taken


def test_work_of_a_lane_is_given_one_at_a_time_in_the_order_in_which_it_was_added(
    tell: Tell,
) -> None:
    async def story(store: Store) -> None:
        ids = await added(
            store,
            work("send", "first", due=5, lane="talk"),
            work("send", "second", due=1, lane="talk"),
            work("send", "third", due=0, lane="talk"),
        )
        # The second and the third are due, but behind the first, which is not.
        assert await claimed(store, now=4) == []
        assert await due(store) == after(5)
        for id, name in zip(ids, ("first", "second", "third"), strict=True):
            assert await claimed(store, now=10) == [name]
            await finish(store, id)
        assert await claimed(store) == []

    tell(story)


def test_a_lane_holds_up_no_other(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await added(
            store,
            work("send", "a1", due=1, lane="a"),
            work("send", "a2", due=2, lane="a"),
            work("send", "b1", due=3, lane="b"),
            work("send", "free", due=4),
            work("send", "free too", due=5),
        )
        assert await claimed(store) == ["a1", "b1", "free", "free too"]

    tell(story)


def test_a_lane_spans_the_kinds_of_work(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, second, _] = await added(
            store,
            work("package", "first", lane="talk"),
            work("send", "second", lane="talk"),
            work("notify", "third", lane="talk"),
        )
        assert await claimed(store, kinds=["send", "notify"]) == []
        assert await due(store, ["send", "notify"]) is None
        await finish(store, first)
        assert await claimed(store, kinds=["notify"]) == []
        assert await claimed(store, kinds=["send"]) == ["second"]
        await finish(store, second)
        assert await claimed(store, kinds=["notify"]) == ["third"]

    tell(story)


def test_work_keeps_its_own_time_when_its_turn_comes(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, second] = await added(store, work(lane="l"), work(due=50, lane="l"))
        assert (await kept_work(store, second)).due_at == after(50)
        await finish(store, first)
        assert await due(store) == after(50)
        assert await claimed(store, now=49) == []
        assert await claimed(store, now=50) == ["m1@here"]

    tell(story)


def test_what_is_claimed_holds_up_its_lane(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await added(store, work("send", "first", lane="l"), work("send", "second", lane="l"))
        assert await claimed(store, now=1, lease=60) == ["first"]
        assert await claimed(store, now=59) == []
        assert await due(store) is None

    tell(story)


def test_when_a_lease_is_over_the_first_of_the_lane_is_still_the_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await added(
            store,
            work("send", "first", lane="l", owner="gone", lease_until=after(5)),
            work("send", "second", lane="l"),
        )
        [again] = await taken(store, now=9)
        assert (again.message_id, again.left_by) == ("first", "gone")

    tell(story)


def test_when_a_lease_is_given_back_the_first_of_the_lane_is_still_the_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await added(store, work("send", "first", lane="l"), work("send", "second", lane="l"))
        await claimed(store, owner="gone")
        await store.run(lambda tx: tx.release_work("gone"))
        assert await claimed(store) == ["first"]

    tell(story)


def test_what_is_postponed_holds_up_its_lane(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, _] = await added(
            store, work("send", "first", lane="l"), work("send", "second", lane="l")
        )
        await claimed(store, now=1)
        await store.run(lambda tx: tx.postpone_work(first, after(50)))
        assert await due(store) == after(50)
        assert await claimed(store, now=49) == []
        assert await claimed(store, now=50) == ["first"]
        await finish(store, first)
        assert await claimed(store, now=50) == ["second"]

    tell(story)


def test_what_sleeps_until_it_is_woken_holds_up_its_lane(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, _] = await added(
            store, work("send", "first", lane="l"), work("send", "second", lane="l")
        )
        await claimed(store, now=1)
        await store.run(lambda tx: tx.postpone_work(first, None))
        assert await claimed(store, now=10**9) == []
        assert await due(store) is None
        assert await store.run(lambda tx: tx.wake_work(first, after(3)))
        assert await claimed(store, now=3) == ["first"]
        await finish(store, first)
        assert await claimed(store, now=3) == ["second"]

    tell(story)


def test_what_sleeps_and_is_finished_frees_its_lane(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, _] = await added(
            store, work("send", "first", lane="l"), work("send", "second", lane="l")
        )
        await store.run(lambda tx: tx.postpone_work(first, None))
        await finish(store, first)
        assert await claimed(store) == ["second"]

    tell(story)


def test_to_finish_a_later_one_of_a_lane_does_not_wake_the_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, second, _] = await added(
            store,
            work("send", "first", lane="l"),
            work("send", "second", lane="l"),
            work("send", "third", lane="l"),
        )
        await store.run(lambda tx: tx.postpone_work(first, None))
        await finish(store, second)
        assert await claimed(store) == []
        await finish(store, first)
        assert await claimed(store) == ["third"]

    tell(story)


def test_the_lane_goes_on_behind_several_that_are_finished_at_once(tell: Tell) -> None:
    async def story(store: Store) -> None:
        ids = await added(store, *[work("send", f"m{n}", lane="l") for n in range(4)])

        def step(tx: Transaction) -> None:
            for n in (1, 0, 2):
                tx.finish_work(ids[n])

        await store.run(step)
        assert await claimed(store) == ["m3"]

    tell(story)


@pytest.mark.parametrize("how", ["woken", "postponed", "turned"])
def test_nothing_overtakes_what_is_before_it_in_its_lane(tell: Tell, how: str) -> None:
    async def story(store: Store) -> None:
        [first, second, _] = await added(
            store,
            work("send", "first", due=60, lane="l"),
            work("send", "second", lane="l"),
            work("send", "third", lane="l"),
        )

        def step(tx: Transaction) -> None:
            if how == "woken":
                assert tx.wake_work(second, after(70))
            elif how == "postponed":
                tx.postpone_work(second, after(70))
            else:
                tx.turn_work(second, "send", after(70))

        await store.run(step)
        assert (await kept_work(store, second)).due_at == after(70)
        assert await due(store) == after(60)
        assert await claimed(store, now=70) == ["first"]
        await finish(store, first)
        assert await claimed(store, now=69) == []
        assert await claimed(store, now=70) == ["second"]

    tell(story)


def test_what_is_turned_keeps_its_place_in_its_lane(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, _] = await added(
            store, work("package", "first", lane="l"), work("package", "second", lane="l")
        )
        await claimed(store)
        await store.run(lambda tx: tx.turn_work(first, "send", START))
        assert await claimed(store, kinds=["package"]) == []
        assert await claimed(store, kinds=["send"]) == ["first"]
        await finish(store, first)
        assert await claimed(store, kinds=["package"]) == ["second"]

    tell(story)


def test_an_empty_lane_starts_anew(tell: Tell) -> None:
    async def story(store: Store) -> None:
        for name in ("before", "after"):
            [id] = await added(store, work("send", name, lane="l"))
            assert await claimed(store) == [name]
            await finish(store, id)
        mine = work("send", "mine", lane="l", owner="me", lease_until=after(60))
        [id] = await added(store, mine)
        assert (await kept_work(store, id)).owner == "me"

    tell(story)


def test_work_in_a_taken_lane_is_not_claimed_from_the_start(tell: Tell) -> None:
    async def story(store: Store) -> None:
        mine: dict[str, Any] = {"lane": "l", "owner": "me", "lease_until": after(60)}
        [first, second] = await added(
            store, work("send", "first", **mine), work("send", "second", **mine)
        )
        assert (await kept_work(store, first)).owner == "me"
        waiting = await kept_work(store, second)
        assert (waiting.owner, waiting.lease_until) == (None, None)
        await finish(store, first)
        assert await claimed(store, now=1, owner="other") == ["second"]

    tell(story)


def test_a_step_that_fails_leaves_lanes_as_they_were(tell: Tell) -> None:
    async def story(store: Store) -> None:
        [first, asleep, second] = await added(
            store,
            work("send", "first", due=1, lane="l"),
            work("send", "asleep", lane="k"),
            work("send", "second", lane="l"),
        )
        await store.run(lambda tx: tx.postpone_work(asleep, None))

        def step(tx: Transaction) -> None:
            tx.wake_work(asleep, START)
            tx.turn_work(first, "package", START)
            tx.finish_work(first)
            tx.postpone_work(second, None)
            tx.add_work(work("send", "third", lane="l"))
            tx.add_work(work("send", "new", lane="new"))
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(step)
        assert await claimed(store) == ["first"]
        await finish(store, first)
        assert await claimed(store) == ["second"]
        await finish(store, second)
        assert await claimed(store) == []
        await added(store, work("send", "fresh", lane="new"))
        assert await claimed(store) == ["fresh"]

    tell(story)


def test_a_step_sees_whose_turn_it_is(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            first = tx.add_work(work("send", "first", lane="l"))
            second = tx.add_work(work("send", "second", due=7, lane="l"))
            assert tx.due_by_kind(["send"]) == {"send": START}
            tx.finish_work(first)
            assert tx.due_by_kind(["send"]) == {"send": after(7)}
            tx.postpone_work(second, None)
            assert tx.due_by_kind(["send"]) == {}

        await store.run(step)

    tell(story)
