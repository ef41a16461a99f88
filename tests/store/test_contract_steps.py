"""The contract of every backend: steps, contents and all else."""

import asyncio

import pytest
from msgspec import structs

from postroad.store.interface import Store, StoreDamaged, StoreError, Transaction
from postroad.store.records import Figures, Message, Side, State, Wanted
from postroad.wire.content import BytesContent
from tests.changing import replace
from tests.store.samples import (
    START,
    Pattern,
    after,
    bytes_of,
    event,
    message,
    signal,
    work,
    written,
)
from tests.store.stories import KINDS, Refusal, Tell, claimed, found, listed

SIZES = [0, 1, 12_288, 256 * 1024, 256 * 1024 + 1, 1_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_content_of_any_size_and_origin_comes_back(tell: Tell, size: int) -> None:
    async def story(store: Store) -> None:
        expected = bytes_of(Pattern(size))
        origins = {
            "bytes": expected,
            "memory": BytesContent(expected),
            "sink": written(store, Pattern(size)),
            "persisted": await store.persist(written(store, Pattern(size))),
            "foreign, persisted": await store.persist(Pattern(size)),
            "foreign": Pattern(size),
        }
        kept = await store.run(
            lambda tx: {name: tx.keep(content) for name, content in origins.items()}
        )
        for name, stored in kept.items():
            content = store.content(stored)
            assert (content.size, stored.size) == (size, size), name
            assert bytes_of(content) == expected, name
            assert bytes_of(content) == expected, f"{name}, read again"
            assert all(len(chunk) <= max(size, 1) for chunk in content.chunks()), name

    tell(story)


@pytest.mark.parametrize("size", SIZES)
def test_a_step_reads_what_an_earlier_one_of_the_same_commit_kept(tell: Tell, size: int) -> None:
    async def story(store: Store) -> None:
        expected, kept = bytes_of(Pattern(size)), []

        def keep(tx: Transaction) -> None:
            tx.keep(b"a neighbour")
            kept.append(tx.keep(expected))

        def read(tx: Transaction) -> bytes:
            return bytes_of(store.content(kept[0]))

        _, there = await asyncio.gather(store.run(keep), store.run(read))
        assert there == expected
        assert bytes_of(store.content(kept[0])) == expected

    tell(story)


def test_what_is_in_a_sink_can_be_read_before_it_is_kept_and_after(tell: Tell) -> None:
    async def story(store: Store) -> None:
        content = written(store, Pattern(700_000))
        expected = bytes_of(Pattern(700_000))
        assert bytes_of(content) == expected
        first = await store.run(lambda tx: tx.keep(content))
        assert bytes_of(content) == expected
        second = await store.run(lambda tx: tx.keep(content))
        await store.run(lambda tx: tx.drop(first))
        assert bytes_of(store.content(second)) == expected

    tell(story)


def test_a_sink_can_be_discarded(tell: Tell) -> None:
    async def story(store: Store) -> None:
        sink = store.new_sink()
        sink.write(b"x" * 300_000)
        sink.write(memoryview(b"y"))
        sink.discard()

    tell(story)


@pytest.mark.parametrize("size", [100, 300_000])
def test_content_of_a_step_that_failed_can_be_kept_again(tell: Tell, size: int) -> None:
    async def story(store: Store) -> None:
        content = written(store, Pattern(size))

        def fail(tx: Transaction) -> None:
            tx.keep(content)
            raise Refusal

        with pytest.raises(Refusal):
            await store.run(fail)
        stored = await store.run(lambda tx: tx.keep(content))
        assert bytes_of(store.content(stored)) == bytes_of(Pattern(size))

    tell(story)


@pytest.mark.parametrize("size", [100, 300_000])
def test_shared_content_stays_until_all_its_owners_dropped_it(tell: Tell, size: int) -> None:
    async def story(store: Store) -> None:
        kept = await store.run(lambda tx: tx.share(tx.keep(bytes(size))))
        await store.run(lambda tx: tx.drop(kept))
        assert bytes_of(store.content(kept)) == bytes(size)
        await store.run(lambda tx: tx.drop(tx.share(kept)))
        assert bytes_of(store.content(kept)) == bytes(size)

        def drop_one_less(tx: Transaction) -> None:
            tx.share(kept, 3)
            for _ in range(3):
                tx.drop(kept)

        await store.run(drop_one_less)
        assert bytes_of(store.content(kept)) == bytes(size)

    tell(story)


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_content_can_be_dropped_and_its_neighbours_stay(tell: Tell, size: int) -> None:
    async def story(store: Store) -> None:
        kept = await store.run(lambda tx: [tx.keep(Pattern(size)) for _ in range(3)])
        await store.run(lambda tx: tx.drop(kept[1]))
        for stored in (kept[0], kept[2]):
            assert bytes_of(store.content(stored)) == bytes_of(Pattern(size))

    tell(story)


def test_content_that_is_not_there_is_damage(tell: Tell) -> None:
    async def story(store: Store) -> None:
        stored = await store.run(lambda tx: tx.keep(b"here"))
        for place in ("s0123456789ab-9", "f0123456789ab-9", "nonsense"):
            with pytest.raises(StoreDamaged, match=place):
                store.content(structs.replace(stored, place=place))

    tell(story)


def test_a_step_that_fails_leaves_nothing_and_its_caller_gets_its_error(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message("before", envelope=tx.keep(b"e"))))
        id = await store.run(lambda tx: tx.add_work(work()))
        earlier = await store.look(lambda reader: reader.figures())

        def step(tx: Transaction) -> None:
            tx.add_message(message(envelope=tx.keep(b"content")))
            tx.change_message(Side.RECEIVING, "before", State, state=State.CONSUMED)
            tx.add_signal(signal(tx.keep(b"receipt")))
            tx.add_work(work("package"))
            tx.claim_work(KINDS, after(5), "me", after(9), 5)
            tx.postpone_work(id, after(7))
            tx.finish_work(id)
            tx.record([event(), event()])
            tx.keep(Pattern(300_000))
            tx.purge(after(99), State, 99)
            raise Refusal("no")

        with pytest.raises(Refusal, match="no"):
            await store.run(step)
        figures = await store.look(lambda reader: reader.figures())
        assert replace(figures, bytes=0) == replace(earlier, bytes=0)
        assert await listed(store) == ["before"]
        kept = await found(store, "before")
        assert kept is not None
        assert kept.envelope is not None
        assert kept.state is State.DELIVERED
        assert bytes_of(store.content(kept.envelope)) == b"e"
        assert await store.look(lambda r: r.signals(Side.RECEIVING, "m1@here")) == []
        assert await claimed(store) == ["m1@here"]

    tell(story)


@pytest.mark.parametrize("changing", [False, True])
def test_the_neighbours_of_a_step_that_fails_are_unharmed(tell: Tell, changing: bool) -> None:
    async def story(store: Store) -> None:
        async def add(n: int) -> str:
            def step(tx: Transaction) -> str:
                if n % 4 == 2 and not changing:
                    raise Refusal(n)
                tx.add_message(message(f"m{n}", envelope=tx.keep(f"content {n}".encode())))
                tx.add_work(work("send", f"m{n}"))
                tx.record([event("received", f"m{n}")])
                if n % 4 == 2:
                    raise Refusal(n)
                return f"m{n}"

            return await store.run(step)

        results = await asyncio.gather(*[add(n) for n in range(40)], return_exceptions=True)
        good = [n for n in range(40) if n % 4 != 2]
        for n, result in enumerate(results):
            if n in good:
                assert result == f"m{n}"
            else:
                assert isinstance(result, Refusal)
                assert result.args == (n,)
        assert await listed(store) == [f"m{n}" for n in good]
        for n in good:
            kept = await found(store, f"m{n}")
            assert kept is not None
            assert kept.envelope is not None
            assert bytes_of(store.content(kept.envelope)) == f"content {n}".encode()
        assert await claimed(store, limit=99) == [f"m{n}" for n in good]
        journal = await store.look(lambda reader: reader.journal(0, 99))
        assert [one.seq for one in journal] == list(range(1, len(good) + 1))
        figures = await store.look(lambda reader: reader.figures())
        assert figures.messages == {"receiving.delivered": len(good)}
        assert figures.work == {"send": len(good)}

    tell(story)


def test_values_that_do_not_fit_harm_only_their_own_step(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def no_time_zone(tx: Transaction) -> None:
            tx.add_work(work())
            tx.add_message(message("wrong"))
            tx.claim_work(KINDS, START.replace(tzinfo=None), "me", after(1), 1)

        results = await asyncio.gather(
            store.run(lambda tx: tx.add_message(message("a"))),
            store.run(no_time_zone),
            store.run(lambda tx: tx.add_message(message("b"))),
            return_exceptions=True,
        )
        assert [results[0], results[2]] == [True, True]
        assert isinstance(results[1], TypeError)
        assert await listed(store) == ["a", "b"]

    tell(story)


def test_steps_see_those_before_them(tell: Tell) -> None:
    async def story(store: Store) -> None:
        results = await asyncio.gather(
            *[store.run(lambda tx: tx.add_message(message("same"))) for _ in range(20)]
        )
        assert results == [True] + [False] * 19

    tell(story)


def test_who_looks_does_not_see_a_step_that_is_not_through(tell: Tell) -> None:
    async def story(store: Store) -> None:
        seen: list[Message | None] = []

        def step(tx: Transaction) -> None:
            tx.add_message(message())
            raise Refusal

        async def look_meanwhile() -> None:
            for _ in range(20):
                seen.append(await found(store, "m1@here"))
                await asyncio.sleep(0)

        await asyncio.gather(store.run(step), look_meanwhile(), return_exceptions=True)
        assert seen == [None] * 20

    tell(story)


def test_an_error_of_who_looks_is_his(tell: Tell) -> None:
    async def story(store: Store) -> None:
        def ask(reader: object) -> None:
            raise Refusal("mine")

        with pytest.raises(Refusal, match="mine"):
            await store.look(ask)
        assert await found(store, "m1@here") is None

    tell(story)


def test_one_look_may_ask_several_things(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: (tx.add_message(message()), tx.record([event()])))
        one, many, history = await store.look(
            lambda r: (
                r.message(Side.RECEIVING, "m1@here"),
                r.messages(Wanted()),
                r.events("m1@here"),
            )
        )
        assert many == [one]
        assert len(history) == 1

    tell(story)


def test_the_figures_tell_what_there_is(tell: Tell) -> None:
    async def story(store: Store) -> None:
        empty = await store.look(lambda reader: reader.figures())
        assert replace(empty, bytes=0) == Figures()

        def step(tx: Transaction) -> None:
            for n in range(3):
                tx.add_message(message(f"m{n}", side=Side.SENDING, state=State.READY))
            tx.add_message(message("r"))
            tx.change_message(Side.SENDING, "m0", State, state=State.SENT)
            tx.add_work(work("send", due=7))
            tx.add_work(work("send", due=5, owner="me", lease_until=after(9)))
            tx.add_work(work("notify", due=6))
            tx.record([event(), event()])
            tx.keep(b"x" * 10_000)

        await store.run(step)
        figures = await store.look(lambda reader: reader.figures())
        assert figures.messages == {
            "sending.ready": 2,
            "sending.sent": 1,
            "receiving.delivered": 1,
        }
        assert figures.work == {"send": 2, "notify": 1}
        assert figures.oldest_work == after(5)
        assert figures.last_seq == 2
        assert figures.bytes >= empty.bytes + 10_000

    tell(story)


def test_a_store_that_works_passes_its_check_and_takes_a_mark(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.check()
        await store.mark()
        assert store.node == "station"

    tell(story)


def test_a_closed_store_takes_no_steps(tell: Tell) -> None:
    async def story(store: Store) -> None:
        await store.run(lambda tx: tx.add_message(message()))
        await store.close()
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.run(lambda tx: tx.add_message(message("m2")))
        with pytest.raises(StoreError, match="closed"):
            await store.look(lambda reader: reader.figures())

    tell(story)


def test_steps_that_were_given_before_closing_are_done(tell: Tell) -> None:
    async def story(store: Store) -> None:
        steps = [
            asyncio.ensure_future(store.run(lambda tx, n=n: tx.add_message(message(f"m{n}"))))  # type: ignore[misc]
            for n in range(20)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*steps) == [True] * 20

    tell(story)
