"""The contract of every backend: messages, lists, signals and purging."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import NODEFAULT, structs

from postroad.store.interface import Store, Transaction
from postroad.store.qualified import qualified_id
from postroad.store.records import Load, Message, Side, State, Total, Wanted
from tests.changing import replace
from tests.store.samples import (
    START,
    Pattern,
    after,
    bytes_of,
    event,
    full_message,
    message,
    signal,
    work,
)
from tests.store.stories import Refusal, Tell, asking, found, listed


def test_a_message_comes_back_as_it_was_added(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> Message:
            one = full_message(tx.keep(b"envelope"), tx.keep(b"part"))
            assert tx.add_message(one)
            return one

        added = await store.run(step)
        kept = await found(store, added.message_id, Side.SENDING)
        assert kept is not None
        assert kept.key > 0
        assert structs.replace(kept, key=0) == added
        for one in structs.fields(Message):
            default = None if one.default is NODEFAULT else one.default
            assert getattr(kept, one.name) != default, f"the sample leaves {one.name} as it is"

    tell(story)


def test_a_message_can_be_in_any_state(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: [tx.add_message(message(one, state=one)) for one in State])
        for state in State:
            kept = await found(store, state)
            assert kept is not None
            assert kept.state is state
            assert await listed(store, states=(state,)) == [state]

    tell(story)


def test_a_second_message_of_the_same_side_and_id_changes_nothing(tell: Tell) -> None:
    async def story(store: Store) -> None:
        assert await store.run(lambda tx: tx.add_message(message(action="first")))
        assert not await store.run(lambda tx: tx.add_message(message(action="second")))
        kept = await found(store, "m1@here")
        assert kept is not None
        assert kept.action == "first"
        assert await store.run(lambda tx: tx.add_message(message(side=Side.SENDING)))

    tell(story)


def test_messages_of_several_senders_under_one_id_are_stored_beside_each_other(tell: Tell) -> None:
    def purge(tx: Transaction) -> list[str]:
        return [one.message_id for one in tx.purge(after(1), [State.CONSUMED], 10)]

    async def story(store: Store) -> None:
        others = sorted(qualified_id("m1@here", one) for one in ("urn:x::one", "urn:x::two"))
        names = ["m1@here", *others]

        def step(tx: Transaction) -> None:
            for name in reversed(names):
                assert tx.add_message(message(name))
                tx.add_signal(signal(tx.keep(b"<e/>"), name))
            assert tx.add_message(message("m1@here.example"))
            assert not tx.add_message(message(others[0]))
            tx.change_message(Side.RECEIVING, "m1@here", State, state=State.CONSUMED)

        await store.run(step)

        async def known() -> list[str]:
            of_id = await store.look(
                lambda reader: reader.messages_of_id(Side.RECEIVING, "m1@here")
            )
            by_id = await store.look(lambda one: one.messages_by_id(Side.RECEIVING, ["m1@here"]))
            assert {one.message_id: one for one in of_id} == by_id
            assert {one.wire_id for one in of_id} == {"m1@here"}
            return [one.message_id for one in of_id]

        assert await known() == names
        for name in names:
            signals = await store.look(lambda one, name=name: one.signals(Side.RECEIVING, name))  # type: ignore[misc]
            assert [one.message_id for one in signals] == [name]
        assert await store.run(purge) == ["m1@here"]
        assert await known() == others
        one = await found(store, others[1])
        assert one is not None
        assert one.state is State.DELIVERED
        with pytest.raises(Refusal):
            await store.run(_and_refuse(lambda tx: tx.add_message(message("m1@here"))))
        assert await known() == others

    tell(story)


def _and_refuse(step: Callable[[Transaction], Any]) -> Callable[[Transaction], None]:
    def whole(tx: Transaction) -> None:
        step(tx)
        raise Refusal

    return whole


def test_a_message_that_is_not_there_is_none(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message()))
        assert await found(store, "m2@here") is None
        assert await found(store, "m1@here", Side.SENDING) is None

    tell(story)


def test_a_message_changes_only_from_an_expected_state(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message()))

        def change(*expected: State) -> Callable[[Transaction], bool]:
            return lambda tx: tx.change_message(
                Side.RECEIVING,
                "m1@here",
                expected,
                state=State.CONSUMED,
                updated_at=after(5),
                attempts=2,
                pmode="orders",
            )

        assert not await store.run(change(State.RECEIVED, State.CONSUMED))
        unchanged = await found(store, "m1@here")
        assert unchanged is not None
        assert (unchanged.state, unchanged.updated_at) == (State.DELIVERED, START)
        assert await store.run(change(State.RECEIVED, State.DELIVERED))
        changed = await found(store, "m1@here")
        assert changed == structs.replace(
            unchanged, state=State.CONSUMED, updated_at=after(5), attempts=2, pmode="orders"
        )
        assert not await store.run(change(State.DELIVERED))
        assert not await store.run(
            lambda tx: tx.change_message(Side.RECEIVING, "m2@here", State, attempts=1)
        )

    tell(story)


def test_a_field_of_a_message_can_be_cleared(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def changing(**changes: Any) -> Callable[[Transaction], bool]:
            return lambda tx: tx.change_message(Side.RECEIVING, "m1@here", State, **changes)

        await store.run(lambda tx: tx.add_message(message()))
        before = await found(store, "m1@here")
        given = {"pmode": "p", "due_at": after(5), "timer": 7, "tries": 3, "detail": "why"}
        await store.run(changing(**given))
        kept = await found(store, "m1@here")
        assert kept == replace(before, **given)
        await store.run(changing(pmode=None, due_at=None, timer=None, tries=0, detail=None))
        assert await found(store, "m1@here") == before

    tell(story)


@pytest.mark.parametrize("name", ["side", "message_id", "key"])
def test_what_a_message_is_known_by_never_changes(tell: Tell, name: str) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message()))
        with pytest.raises(ValueError, match=name):
            await store.run(
                lambda tx: tx.change_message(Side.RECEIVING, "m1@here", State, **{name: "x"})
            )

    tell(story)


def test_a_field_that_no_message_has_cannot_be_changed(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message()))
        with pytest.raises(TypeError, match="colour"):
            await store.run(
                lambda tx: tx.change_message(Side.RECEIVING, "m1@here", State, colour="red")
            )

    tell(story)


def test_a_step_sees_what_it_has_done(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_message(message())
            assert tx.message(Side.RECEIVING, "m1@here") is not None
            assert len(tx.messages(Wanted())) == 1
            tx.record([event()])
            assert len(tx.events("m1@here")) == 1
            tx.add_work(work())
            assert tx.due_by_kind(["send"]) == {"send": START}

        await store.run(step)

    tell(story)


async def ten_messages(store: Store) -> None:
    """m0 … m9, one second apart, the even ones consumed, every fifth on the sending side."""

    def step(tx: Transaction) -> None:
        for n in range(10):
            tx.add_message(
                message(
                    f"m{n}",
                    side=Side.SENDING if n % 5 == 0 else Side.RECEIVING,
                    state=State.CONSUMED if n % 2 == 0 else State.DELIVERED,
                    created_at=after(n),
                    pmode=f"p{n % 3}",
                    from_party=f"f{n % 3}",
                    to_party=f"t{n % 3}",
                    service=f"s{n % 3}",
                    action=f"a{n % 3}",
                    conversation_id=f"c{n % 3}",
                    error_code=f"EBMS:{n}" if n % 4 == 1 else None,
                )
            )

    await store.run(step)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, "0123456789"),
        ({"side": Side.SENDING}, "05"),
        ({"states": (State.CONSUMED,)}, "02468"),
        ({"states": (State.CONSUMED, State.DELIVERED, State.CONSUMED)}, "0123456789"),
        ({"states": (State.FAILED,)}, ""),
        ({"side": Side.RECEIVING, "states": (State.DELIVERED,)}, "1379"),
        ({"side": Side.RECEIVING, "states": (State.DELIVERED,), "limit": 2}, "13"),
        ({"side": Side.RECEIVING, "limit": 3}, "123"),
        ({"pmode": "p1"}, "147"),
        ({"from_party": "f1"}, "147"),
        ({"to_party": "t1"}, "147"),
        ({"service": "s1"}, "147"),
        ({"action": "a1"}, "147"),
        ({"conversation_id": "c1"}, "147"),
        ({"conversation_id": "c1", "states": (State.DELIVERED,)}, "17"),
        ({"error_code": "EBMS:5"}, "5"),
        ({"error_code": "EBMS:9", "side": Side.SENDING}, ""),
        ({"error_code": "EBMS:1", "partner": "f1"}, "1"),
        ({"error_code": "EBMS:1", "partner": "t1"}, ""),
        ({"partner": "f1"}, "147"),
        ({"partner": "t1"}, ""),
        ({"partner": "t2"}, "5"),
        ({"partner": "f0", "states": (State.DELIVERED,)}, "39"),
        ({"partner": "f0", "newest_first": True, "limit": 2}, "96"),
        ({"partner": "f1", "pmode": "p1", "since": after(4)}, "47"),
        ({"since": after(3), "until": after(6)}, "345"),
        ({"limit": 4}, "0123"),
        ({"limit": 0}, ""),
        ({"newest_first": True, "limit": 4}, "9876"),
        ({"newest_first": True, "side": Side.RECEIVING, "limit": 4}, "9876"),
        ({"newest_first": True, "side": Side.SENDING}, "50"),
    ],
    ids=str,
)
def test_a_list_shows_what_is_wanted_in_order(
    tell: Tell, wanted: dict[str, Any], expected: str
) -> None:
    async def story(store: Store) -> None:
        await ten_messages(store)
        assert await listed(store, **wanted) == [f"m{n}" for n in expected]
        in_step = await store.run(lambda tx: tx.messages(Wanted(**wanted)))
        assert [one.message_id for one in in_step] == [f"m{n}" for n in expected]

    tell(story)


@pytest.mark.parametrize("side", [None, Side.RECEIVING])
def test_keys_are_cursors_in_both_directions(tell: Tell, side: Side | None) -> None:
    async def story(store: Store) -> None:
        await ten_messages(store)
        keys = [one.key for one in await store.look(lambda reader: reader.messages(Wanted()))]
        assert keys == sorted(set(keys))
        expected = [f"m{n}" for n in range(10) if side is None or n % 5]

        async def pages(wanted: Wanted, cursor: str) -> list[str]:
            seen: list[str] = []
            while page := await store.look(asking(wanted)):
                assert len(page) <= wanted.limit
                seen += [one.message_id for one in page]
                wanted = replace(wanted, **{cursor: page[-1].key})
            return seen

        assert await pages(Wanted(side=side, limit=3), "after") == expected
        newest_first = Wanted(side=side, limit=3, newest_first=True)
        assert await pages(newest_first, "before") == expected[::-1]

    tell(story)


def test_both_partners_of_a_message_that_is_passed_on_find_it_once(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for name, ends in {"ab": "ab", "ba": "ba", "aa": "aa", "bb": "bb"}.items():
                parties = {"from_party": ends[0], "to_party": ends[1]}
                tx.add_message(message(name, side=Side.FORWARDING, state=State.SENT, **parties))

        await store.run(step)
        assert await listed(store, partner="a") == ["ab", "ba", "aa"]
        total = await store.look(lambda reader: reader.total(Wanted(partner="a"), 10))
        assert total == Total(3)

    tell(story)


def test_the_error_code_that_a_list_goes_by_is_that_of_the_message_now(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def change(**changes: Any) -> Callable[[Transaction], bool]:
            return lambda tx: tx.change_message(Side.RECEIVING, "m1@here", State, **changes)

        await store.run(lambda tx: tx.add_message(message(error_code="EBMS:0001")))
        assert await listed(store, error_code="EBMS:0001") == ["m1@here"]
        await store.run(change(error_code="EBMS:0002"))
        assert await listed(store, error_code="EBMS:0001") == []
        assert await listed(store, error_code="EBMS:0002") == ["m1@here"]
        before = await found(store, "m1@here")
        assert before is not None
        after_it = structs.replace(before, error_code="EBMS:0003")
        assert await store.run(lambda tx: tx.replace_messages([(before, after_it)]))
        assert await listed(store, error_code="EBMS:0002") == []
        assert await listed(store, error_code="EBMS:0003") == ["m1@here"]

    tell(story)


@pytest.mark.parametrize(
    ("wanted", "most", "expected"),
    [
        ({}, 10, Total(10)),
        ({}, 9, Total(9, more=True)),
        ({"limit": 1, "after": 3, "newest_first": True, "before": 5}, 10, Total(10)),
        ({"side": Side.SENDING}, 10, Total(2)),
        ({"states": (State.CONSUMED,)}, 4, Total(4, more=True)),
        ({"states": (State.FAILED,)}, 4, Total(0)),
        ({"pmode": "p1"}, 3, Total(3)),
        ({"partner": "f1"}, 10, Total(3)),
        ({"partner": "f1"}, 2, Total(2, more=True)),
        ({"error_code": "EBMS:5"}, 10, Total(1)),
        ({"since": after(3), "until": after(6)}, 10, Total(3)),
    ],
    ids=str,
)
def test_the_total_of_a_list_is_counted_up_to_a_bound(
    tell: Tell, wanted: dict[str, Any], most: int, expected: Total
) -> None:
    async def story(store: Store) -> None:
        await ten_messages(store)
        assert await store.look(lambda reader: reader.total(Wanted(**wanted), most)) == expected

    tell(story)


def test_messages_are_counted_by_agreement(tell: Tell) -> None:
    async def counted(store: Store) -> dict[tuple[str, str, str], int]:
        figures = await store.look(lambda reader: reader.figures())
        return {place: count for place, count in figures.agreements.items() if count}

    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            tx.add_message(message("m1", pmode="or.ders"))
            tx.add_message(message("m2", pmode="or.ders"))
            tx.add_message(message("m3", pmode=None))
            tx.add_message(message("m4", side=Side.FORWARDING, pmode=None, route="to them"))
            tx.change_message(Side.RECEIVING, "m2", State, state=State.CONSUMED)

        await store.run(step)
        assert await counted(store) == {
            ("receiving", "delivered", "or.ders"): 1,
            ("receiving", "consumed", "or.ders"): 1,
            ("receiving", "delivered", ""): 1,
            ("forwarding", "delivered", "to them"): 1,
        }
        await store.run(lambda tx: tx.purge(after(99), State, 99))
        assert await counted(store) == {}

    tell(story)


def test_a_key_is_not_used_again_when_its_message_is_gone(tell: Tell) -> None:
    """Who reads the inbox by cursor would never see the new message."""

    async def story(store: Store) -> None:
        await ten_messages(store)
        [last] = await store.look(lambda r: r.messages(Wanted(newest_first=True, limit=1)))
        await store.run(lambda tx: tx.purge(after(99), State, 99))
        await store.run(lambda tx: tx.add_message(message("new")))
        assert await listed(store, after=last.key) == ["new"]

    tell(story)


def test_signals_come_back_in_the_order_in_which_they_came(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> list[Any]:
            given = [
                signal(tx.keep(b"one"), signal_id="z"),
                signal(
                    tx.keep(b"two"),
                    signal_id="a",
                    kind="error",
                    incoming=True,
                    at=after(-9),
                    status=500,
                    valid=False,
                    error_code="EBMS:0303",
                    detail="broken",
                ),
                signal(tx.keep(b"three"), signal_id="m"),
            ]
            for one in given:
                tx.add_signal(one)
            tx.add_signal(signal(tx.keep(b"four"), side=Side.SENDING))
            tx.add_signal(signal(tx.keep(b"five"), "m2@here"))
            return given

        given = await store.run(step)
        assert await store.look(lambda r: r.signals(Side.RECEIVING, "m1@here")) == given
        assert await store.look(lambda r: r.signals(Side.RECEIVING, "m3@here")) == []
        contents = [bytes_of(store.content(one.envelope)) for one in given]
        assert contents == [b"one", b"two", b"three"]

    tell(story)


def test_a_signal_takes_the_place_of_another(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> list[Any]:
            names = ("z", "a", "m")
            given = [signal(tx.keep(name.encode()), signal_id=name) for name in names]
            for one in given:
                tx.add_signal(one)
            other = signal(tx.keep(b"other"), "m2@here", signal_id="a")
            tx.add_signal(other)
            after = signal(tx.keep(b"again"), signal_id="a")
            tx.change_signal(given[1], after)
            return [given[0], after, given[2], other]

        *expected, other = await store.run(step)
        assert await store.look(lambda r: r.signals(Side.RECEIVING, "m1@here")) == expected
        assert await store.look(lambda r: r.signals(Side.RECEIVING, "m2@here")) == [other]

    tell(story)


def test_messages_that_did_not_change_for_long_are_purged_with_all_they_have(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def add(tx: Transaction, name: str, **given: Any) -> list[Any]:
            parts = full_message(tx.keep(b"x"), tx.keep(b"y")).parts
            kept = [tx.keep(Pattern(size)) for size in (10, 300_000, 300_001, 11)]
            tx.add_message(
                message(
                    name,
                    envelope=kept[0],
                    parts=(
                        structs.replace(parts[0], stored=kept[1]),
                        structs.replace(parts[1], stored=kept[2]),
                    ),
                    **given,
                )
            )
            tx.add_signal(signal(kept[3], name))
            return kept

        def step(tx: Transaction) -> dict[str, list[Any]]:
            return {
                "old": add(tx, "old", state=State.CONSUMED, updated_at=after(9)),
                "changed": add(tx, "changed", state=State.CONSUMED, updated_at=after(10)),
                "waiting": add(tx, "waiting", state=State.DELIVERED, updated_at=after(1)),
            }

        kept = await store.run(step)
        before = await found(store, "old")
        purged = await store.run(lambda tx: tx.purge(after(10), [State.CONSUMED], 10))
        assert purged == [before]
        assert await listed(store) == ["changed", "waiting"]
        assert await store.look(lambda r: r.signals(Side.RECEIVING, "old")) == []
        assert len(await store.look(lambda r: r.signals(Side.RECEIVING, "changed"))) == 1
        for stored in kept["changed"] + kept["waiting"]:
            assert len(bytes_of(store.content(stored))) == stored.size
        assert (await store.look(lambda r: r.figures())).messages == {
            "receiving.consumed": 1,
            "receiving.delivered": 1,
        }

    tell(story)


def test_a_purge_is_bounded_and_takes_the_oldest_first(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            for n in (3, 1, 2, 0):
                tx.add_message(message(f"m{n}", state=State.FAILED, updated_at=after(n)))
            tx.add_message(message("r", state=State.REJECTED, updated_at=after(9)))

        await store.run(step)
        states = (State.FAILED, State.REJECTED)

        async def purged(limit: int) -> list[str]:
            gone = await store.run(lambda tx: tx.purge(after(10), states, limit))
            return [one.message_id for one in gone]

        assert await purged(2) == ["m0", "m1"]
        assert await purged(0) == []
        assert await purged(9) == ["m2", "m3", "r"]
        assert await purged(9) == []

    tell(story)


def test_a_purge_leaves_the_journal(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: (tx.add_message(message()), tx.record([event()])))
        await store.run(lambda tx: tx.purge(after(1), [State.DELIVERED], 1))
        assert len(await store.look(lambda reader: reader.events("m1@here"))) == 1

    tell(story)


def test_what_waits_to_be_passed_on_counts_in_the_names_of_who_brought_it(tell: Tell) -> None:
    async def story(store: Store) -> None:
        async def loads() -> list[Load]:
            return await store.look(lambda reader: [reader.load("a"), reader.load("b")])

        def letter(name: str, *accounts: str) -> Message:
            fields = {"side": Side.FORWARDING, "state": State.READY, "wire_bytes": 10}
            return message(name, accounts=accounts, **fields)

        await store.run(lambda tx: tx.add_message(letter("1", "a", "b")))
        await store.run(lambda tx: tx.add_message(letter("2", "a")))
        assert await loads() == [Load(2, 20), Load(1, 10)]

        def change(name: str, **changes: Any) -> Callable[[Transaction], bool]:
            return lambda tx: tx.change_message(Side.FORWARDING, name, tuple(State), **changes)

        await store.run(change("1", state=State.WAITING, attempts=1))
        assert await loads() == [Load(2, 20), Load(1, 10)]
        await store.run(change("1", state=State.SENT))
        assert await loads() == [Load(1, 10), Load()]
        await store.run(change("1", state=State.READY))
        await store.run(change("1", wire_bytes=30, accounts=("b",)))
        assert await loads() == [Load(1, 10), Load(1, 30)]
        await store.run(lambda tx: tx.purge(after(60), (State.READY,), 10))
        assert await loads() == [Load(), Load()]

    tell(story)


def test_a_step_that_fails_counts_in_nobodys_name(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def step(tx: Transaction) -> None:
            fields = {"side": Side.FORWARDING, "state": State.READY}
            tx.add_message(message("1", accounts=("a",), wire_bytes=10, **fields))
            assert tx.load("a") == Load(1, 10)
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(step)
        assert await store.look(lambda reader: reader.load("a")) == Load()

    tell(story)
