"""Steps of the same moment share a commit."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from postroad.store import commits, writing
from postroad.store.interface import Transaction
from postroad.store.records import Side, State, Wanted
from postroad.store.sqlite import SqliteStore, open_sqlite
from tests.store.samples import adding, after, bytes_of, event, message, work


def test_steps_of_the_same_moment_share_a_commit(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await asyncio.gather(*[store.run(adding(f"m{n}")) for n in range(commits.GROUP_STEPS)])
        assert store.commits == 1
        await asyncio.gather(*[store.run(adding(f"n{n}")) for n in range(commits.GROUP_STEPS + 1)])
        assert store.commits == 3
        await store.close()

    asyncio.run(story())


def test_steps_that_come_during_a_commit_make_up_the_next_group(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        numbers = iter(range(400))

        async def client() -> None:
            for n in numbers:
                await store.run(adding(f"m{n}"))

        await asyncio.gather(*[client() for _ in range(40)])
        assert store.commits <= 40
        await store.close()

    asyncio.run(story())


def test_a_group_ends_when_much_content_waits_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_FULL_GROUP_BYTES", 1000)

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await asyncio.gather(*[store.run(adding(f"m{n}", b"x" * 400)) for n in range(9)])
        assert store.commits == 3
        await store.close()

    asyncio.run(story())


def test_steps_that_fail_do_not_end_a_group(tmp_path: Path) -> None:
    def failing(tx: Transaction) -> None:
        adding("wrong", b"w" * 77)(tx)
        raise ValueError("no")

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        steps = [failing if n % 3 else adding(f"m{n}", b"%d" % n) for n in range(30)]
        await asyncio.gather(*[store.run(step) for step in steps], return_exceptions=True)
        assert store.commits == 1
        messages = await store.look(lambda reader: reader.messages(Wanted()))
        assert [one.message_id for one in messages] == [f"m{n}" for n in range(0, 30, 3)]
        contents = [bytes_of(store.content(one.envelope)) for one in messages if one.envelope]
        assert contents == [b"%d" % n for n in range(0, 30, 3)]
        await store.close()

    asyncio.run(story())


def test_steps_that_change_nothing_need_no_commit(tmp_path: Path) -> None:
    def refusing(tx: Transaction) -> None:
        raise ValueError("no")

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(adding("m1"))
        assert store.commits == 1
        await store.run(lambda tx: tx.message(Side.RECEIVING, "m1"))
        await store.run(lambda tx: tx.claim_work(["send"], after(0), "me", after(9), 5))
        await store.run(lambda tx: tx.release_work("me"))
        await store.run(lambda tx: tx.purge(after(-9), State, 5))
        await store.run(lambda tx: tx.renew_work("me", [7], after(9)))
        await store.run(lambda tx: tx.turn_work(7, "send", after(9)))
        await store.run(lambda tx: tx.wake_work(7, after(9)))
        await store.run(lambda tx: tx.remove_notice(7))
        assert not await store.run(lambda tx: tx.add_message(message("m1")))
        with pytest.raises(ValueError, match="no"):
            await store.run(refusing)
        assert store.commits == 1
        await store.close()

    asyncio.run(story())


def test_nothing_is_told_or_seen_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        loop = asyncio.get_running_loop()
        reached, go_on = asyncio.Event(), threading.Event()
        commit = store._writer.commit

        def held_up() -> list[str]:
            loop.call_soon_threadsafe(reached.set)
            go_on.wait()
            return commit()

        monkeypatch.setattr(store._writer, "commit", held_up)
        first = asyncio.ensure_future(store.run(adding("m1")))
        await reached.wait()
        second = asyncio.ensure_future(store.run(adding("m2")))
        for _ in range(10):
            assert await store.look(lambda reader: reader.message(Side.RECEIVING, "m1")) is None
            assert await store.look(lambda reader: reader.messages(Wanted())) == []
        assert not first.done()
        assert not second.done()
        go_on.set()
        assert await asyncio.gather(first, second) == [True, True]
        assert len(await store.look(lambda reader: reader.messages(Wanted()))) == 2
        await store.close()

    asyncio.run(story())


def test_a_caller_who_is_gone_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        steps = [asyncio.ensure_future(store.run(adding(f"m{n}"))) for n in range(5)]
        await asyncio.sleep(0)
        steps[2].cancel()
        results = await asyncio.gather(*steps, return_exceptions=True)
        assert [type(result) for result in results].count(bool) == 4
        assert isinstance(results[2], asyncio.CancelledError)
        names = [one.message_id for one in await store.look(lambda r: r.messages(Wanted()))]
        assert names == ["m0", "m1", "m3", "m4"]
        await store.close()

    asyncio.run(story())


def test_the_store_works_on_uvloop(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await asyncio.gather(*[store.run(adding(f"m{n}")) for n in range(50)])
        assert len(await store.look(lambda reader: reader.messages(Wanted()))) == 50
        await store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


async def work_of_steps(store: SqliteStore, first: int) -> dict[str, int]:
    """How many instructions the database takes for everything that is done to a message."""
    spent: dict[str, int] = {}
    name = ""

    def count() -> int:
        spent[name] = spent.get(name, 0) + 1
        return 0

    def receive(tx: Transaction) -> None:
        adding(f"m{first:09}")(tx)
        tx.add_work(work("send", f"m{first:09}"))

    def claim(tx: Transaction) -> None:
        given = tx.claim_work(["send", "notify"], after(9), "me", after(99), 1)
        tx.finish_work(given[0].id)

    def change(tx: Transaction) -> None:
        tx.change_message(Side.RECEIVING, f"m{first:09}", [message().state], attempts=1)

    def purge(tx: Transaction) -> None:
        assert len(tx.purge(after(9), [message().state], 1)) == 1

    def ask(tx: Transaction) -> Any:
        inbox = Wanted(side=Side.RECEIVING, states=(message().state,), after=first, limit=1)
        tx.figures()
        tx.messages(Wanted(newest_first=True, limit=1))
        return tx.messages(inbox), tx.events(f"m{first:09}"), tx.journal(first, 1)

    store._writer._database.set_progress_handler(count, 1)
    for step in (receive, claim, change, ask, purge):
        name = step.__name__
        await store.run(step)
    store._writer._database.set_progress_handler(None, 0)
    return spent


def test_a_message_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")

        async def fill(start: int, end: int) -> None:
            def step(tx: Transaction) -> None:
                for n in range(start, end):
                    tx.record([event("received", f"m{n:09}")])
                    tx.add_message(message(f"m{n:09}"))
                    tx.add_work(work("send", f"m{n:09}", due=1))

            await store.run(step)

        await fill(0, 50)
        await work_of_steps(store, 50)  # What happens only once is not counted.
        few = await work_of_steps(store, 51)
        await fill(52, 5000)
        many = await work_of_steps(store, 5000)
        assert few.keys() == many.keys()
        for name, spent in few.items():
            assert spent > 20
            assert many[name] <= spent * 1.05, name
        await store.close()

    asyncio.run(story())
