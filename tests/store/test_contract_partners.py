"""The contract of every backend: how it stands with partners, and what applications are told."""

from datetime import timedelta
from typing import Any

import pytest

from postroad.reliability.breaker import Gate, address_name
from postroad.store.interface import Reader, Store, Transaction
from postroad.store.records import Notice, Partner, Side, State
from tests.changing import replace
from tests.store.samples import START, after, message, notice, work
from tests.store.stories import Refusal, Tell, added, claimed, due

FULL = Partner("them", Gate.PAUSED, 5, 2, after(30.000001), after(1), "no \u2028 route", True)
"""With another value than the default in every field."""


def partners(reader: Reader) -> list[Partner]:
    return reader.partners()


def notices(reader: Reader) -> list[Notice]:
    return reader.notices(0, 100)


async def noted(store: Store, *given: Partner | Notice) -> None:
    """All of it in one step."""

    def step(tx: Transaction) -> None:
        for one in given:
            if isinstance(one, Partner):
                tx.set_partner(one)
            else:
                tx.add_notice(one)

    await store.run(step)


async def work_for_three(store: Store) -> None:
    """For a, b and nobody in turn, the oldest first."""
    await added(
        store,
        work("send", "a1", due=1, partner="a"),
        work("package", "b1", due=2, partner="b"),
        work("notify", "n1", due=3),
        work("send", "a2", due=4, partner="a"),
        work("send", "b2", due=5, partner="b"),
        work("send", "n2", due=6),
    )


def test_a_partner_comes_back_as_it_was_set(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await noted(store, FULL)
        assert await store.look(lambda reader: reader.partner("them")) == FULL
        assert await store.look(partners) == [FULL]
        for name in Partner.__struct_fields__:
            assert getattr(FULL, name) != getattr(Partner(""), name)

    tell(story)


def test_all_is_well_with_a_partner_of_whom_nothing_is_kept(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await store.look(lambda reader: reader.partner("them")) == Partner("them")
        assert await store.look(partners) == []

    tell(story)


def test_nothing_is_kept_of_a_partner_with_whom_all_is_well(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await noted(store, Partner("never"), FULL, replace(FULL, name="b"))
        await noted(store, Partner("them", detail="it was bad once"))
        assert await store.look(partners) == [replace(FULL, name="b")]
        assert await store.look(lambda reader: reader.partner("them")) == Partner("them")

    tell(story)


def test_partners_are_told_by_name_each_as_it_was_set_last(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for name, failures in (("c", 1), ("a", 2), ("b", 3), ("c", 4)):
                tx.set_partner(Partner(name, failures=failures))
            assert tx.partner("c").failures == 4

        await store.run(step)
        given = await store.look(partners)
        assert [(one.name, one.failures) for one in given] == [("a", 2), ("b", 3), ("c", 4)]

    tell(story)


def test_work_for_partners_that_are_left_out_is_not_claimed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await work_for_three(store)
        assert await claimed(store, without={"b", "unknown"}, limit=3) == ["a1", "n1", "a2"]
        assert await claimed(store, without={"b"}) == ["n2"]
        assert await claimed(store, without={"a", "b"}) == []
        assert await claimed(store) == ["b1", "b2"]

    tell(story)


def test_a_party_stands_for_all_its_addresses(tell: Tell) -> None:
    async def story(store: Store) -> None:
        first, second = address_name("a", "http://1.example"), address_name("a", "http://2.example")
        await added(
            store,
            work("send", "one", due=1, partner=first),
            work("send", "two", due=2, partner=second),
            work("send", "other", due=3, partner=address_name("ab", "http://1.example")),
            work("send", "old", due=4, partner="a"),
        )
        assert await due(store, ["send"], ["a"]) == after(3)
        assert await due(store, ["send"], [first]) == after(2)
        assert await claimed(store, without={"a"}) == ["other"]
        assert await claimed(store, without={first}, partner="a") == ["two", "old"]
        assert await claimed(store, partner=second) == []
        assert await claimed(store, partner=first) == ["one"]

    tell(story)


def test_work_that_needs_no_partner_can_be_left_out_too(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await work_for_three(store)
        assert await due(store, ["notify"], [""]) is None
        assert await claimed(store, without=[""]) == ["a1", "b1", "a2", "b2"]

    tell(story)


def test_work_for_one_partner_can_be_claimed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await work_for_three(store)
        assert await claimed(store, partner="b", limit=1) == ["b1"]
        assert await claimed(store, partner="b", kinds=["package"]) == []
        assert await claimed(store, partner="b", without=["b"]) == []
        assert await claimed(store, partner="b", without=["a"]) == ["b2"]
        assert await claimed(store, partner="unknown") == []
        assert await claimed(store, partner="") == ["n1", "n2"]
        assert await claimed(store, now=0, partner="a") == []
        assert await claimed(store) == ["a1", "a2"]

    tell(story)


def test_it_is_told_when_work_is_due_for_those_who_are_not_left_out(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await due(store, without=["a"]) is None
        await work_for_three(store)
        assert await due(store, without=["unknown"]) == after(1)
        assert await due(store, without=["a"]) == after(2)
        assert await due(store, without=["a", "b"]) == after(3)
        assert await due(store, ["send"], without=["a"]) == after(5)
        assert await due(store, ["package"], without=["b"]) is None
        assert await due(store, ["send"], ["a", "b"]) == after(6)

    tell(story)


def test_work_that_sleeps_is_due_for_nobody(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await added(
            store,
            work("send", "first", due=9, partner="a", lane="l"),
            work("send", "second", due=1, partner="b", lane="l"),
        )
        assert await due(store, without=["a"]) is None
        assert await claimed(store, without=["a"]) == []
        assert await claimed(store, partner="b") == []

    tell(story)


@pytest.mark.parametrize("who", [{"without": ["a"]}, {"partner": "b"}], ids=str)
def test_leases_that_are_over_count_only_for_partners_that_are_served(
    tell: Tell, who: dict[str, Any]
) -> None:
    async def story(store: Store) -> None:
        gone = {"owner": "gone", "lease_until": after(10)}
        await added(
            store,
            work("send", "a1", due=1, partner="a", **gone),
            work("send", "a2", due=2, partner="a", **gone),
            work("send", "b1", due=3, partner="b", **gone),
            work("send", "b2", due=4, partner="b"),
            work("send", "b3", due=5, partner="b", **gone),
        )
        # Those of a are older, and must not take the places of b.
        assert await claimed(store, limit=1, **who) == ["b1"]
        assert await claimed(store, limit=2, **who) == ["b2", "b3"]
        assert await claimed(store, limit=2, **who) == []
        assert await claimed(store, limit=2) == ["a1", "a2"]

    tell(story)


def test_a_step_that_fails_changes_no_partner_and_no_notice(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await noted(store, FULL, notice())
        [kept] = await store.look(notices)

        def step(tx: Transaction) -> None:
            tx.set_partner(Partner("them"))
            tx.set_partner(Partner("other", failures=1))
            tx.remove_notice(kept.id)
            tx.add_notice(notice("m2@here"))
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(step)
        assert await store.look(partners) == [FULL]
        assert await store.look(notices) == [kept]

    tell(story)


def test_notices_come_back_as_they_were_added_in_order(tell: Tell) -> None:
    async def story(store: Store) -> None:
        full = Notice(
            "m1@here", after(0.000001), "in_doubt", State.IN_DOUBT, "Warning", "EBMS:0301", "\u2028"
        )
        given = [full, notice("m0@here"), notice("m1@here", "settled")]
        await noted(store, *given)
        told = await store.look(notices)
        assert [replace(one, id=0) for one in told] == given
        ids = [one.id for one in told]
        assert ids == sorted(set(ids))
        assert ids[0] > 0

    tell(story)


def test_notices_are_read_page_by_page(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await noted(store, *[notice(f"m{n}") for n in range(5)])
        told = await store.look(notices)
        assert await store.look(lambda reader: reader.notices(0, 2)) == told[:2]
        assert await store.look(lambda reader: reader.notices(told[1].id, 2)) == told[2:4]
        assert await store.look(lambda reader: reader.notices(told[-1].id, 2)) == []
        assert await store.look(lambda reader: reader.notices(0, 0)) == []

    tell(story)


def test_a_notice_is_removed_once(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await noted(store, *[notice(f"m{n}") for n in range(3)])
        first, second, third = await store.look(notices)
        assert await store.run(lambda tx: tx.remove_notice(second.id))
        assert not await store.run(lambda tx: tx.remove_notice(second.id))
        assert not await store.run(lambda tx: tx.remove_notice(10**6))
        assert await store.look(notices) == [first, third]

    tell(story)


def test_the_id_of_a_notice_is_not_used_again(tell: Tell) -> None:
    """Who reads by cursor would never see the new one."""

    async def story(store: Store) -> None:
        await noted(store, notice("old"))
        [old] = await store.look(notices)
        await store.run(lambda tx: tx.remove_notice(old.id))
        await noted(store, notice("new"))
        [new] = await store.look(lambda reader: reader.notices(old.id, 9))
        assert new.message_id == "new"

    tell(story)


def test_notices_go_with_the_sent_message_that_is_purged(tell: Tell) -> None:
    """And with no other: a node that sends to itself has two messages of one id."""

    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            old = START - timedelta(days=1)
            failed = {"side": Side.SENDING, "state": State.FAILED}
            tx.add_message(message("gone", updated_at=old, **failed))
            tx.add_message(message("stays", **failed))
            tx.add_message(message("stays", updated_at=old))
            for name in ("gone", "stays", "gone"):
                tx.add_notice(notice(name))

        await store.run(step)
        purged = await store.run(lambda tx: tx.purge(START, list(State), 9))
        assert [one.message_id for one in purged] == ["gone", "stays"]
        assert [one.message_id for one in await store.look(notices)] == ["stays"]

    tell(story)
