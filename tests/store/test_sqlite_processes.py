"""Processes that are killed, and processes that share a store."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.store.records import Message, Side, State, Wanted
from postroad.store.sqlite import SqliteStore, open_sqlite
from tests.conftest import PROJECT
from tests.store.leftovers import assert_nothing_is_left_over
from tests.store.samples import Pattern, bytes_of, event, message
from tests.store.writing_process import size_of


@contextlib.contextmanager
def writing(folder: Path, name: str, messages: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.store.writing_process"]
    process = subprocess.Popen(
        [*command, str(folder), name, str(messages), *more],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next lines that it prints, as far as there are any."""
    assert process.stdout is not None
    return [line.strip() for _, line in zip(range(count), process.stdout, strict=False)]


async def everything(store: SqliteStore) -> dict[str, Message]:
    """All messages, after a look at everything that must be true of a store."""
    messages = await store.look(lambda reader: reader.messages(Wanted(limit=100_000)))
    for one in messages:
        assert one.envelope is not None
        content = bytes_of(store.content(one.envelope))
        assert content == bytes_of(Pattern(size_of(one.bytes))), one.message_id
        history = await store.look(lambda reader, one=one: reader.events(one.message_id))  # type: ignore[misc]
        assert [entry.event.event for entry in history] == ["received", "delivered"]
    journal = await store.look(lambda reader: reader.journal(0, 1_000_000))
    assert [entry.seq for entry in journal] == list(range(1, 2 * len(messages) + 1))
    assert {entry.epoch for entry in journal} <= {1}
    figures = await store.look(lambda reader: reader.figures())
    assert sum(figures.messages.values()) == len(messages)
    assert sum(figures.work.values()) == len(messages)
    return {one.message_id: one for one in messages}


def test_what_was_acknowledged_outlives_kill_9(tmp_path: Path) -> None:
    acknowledged: set[str] = set()

    async def look() -> None:
        store = await open_sqlite(tmp_path, "station")
        there = await everything(store)
        assert acknowledged <= there.keys()
        assert store.epoch == 1
        for one in there.values():
            if one.message_id in acknowledged and one.bytes % 5 == 3:
                assert one.state is State.CONSUMED
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    for round, killed_after in enumerate((0, 1, 23, 60, 111)):
        with writing(tmp_path, f"r{round}", 10_000) as process:
            acknowledged.update(lines(process, killed_after))
            process.kill()
            assert process.stdout is not None
            # The last line may be cut off.
            acknowledged.update(process.stdout.read().split("\n")[:-1])
        asyncio.run(look())
    assert len(acknowledged) >= 195


@pytest.mark.parametrize("place", ["before_commit", "after_commit"])
def test_a_death_around_the_commit_leaves_all_or_nothing(tmp_path: Path, place: str) -> None:
    with writing(tmp_path, "a", 100, place) as process:
        acknowledged = set(lines(process, 1000))
        assert process.wait() == -9
    assert acknowledged
    assert "done" not in acknowledged
    [own] = (tmp_path / "incoming").iterdir()
    assert len(list(own.iterdir())) > 1, "the process had something under its hands"

    async def look() -> None:
        store = await open_sqlite(tmp_path, "station")
        there = await everything(store)
        assert there.keys() >= acknowledged
        # Those whose second step was still to come were not acknowledged.
        others = {one for one in there.keys() - acknowledged if there[one].bytes % 5 != 3}
        assert bool(others) == (place == "after_commit")
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(look())


def test_three_processes_write_at_once_and_a_fourth_reads(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(writing(tmp_path, n, 60)) for n in "abc"]
            printed = [lines(process, 61) for process in processes]
            for name, told in zip("abc", printed, strict=True):
                assert told[-1] == "done"
                assert set(told[:-1]) == {f"{name}-{n}" for n in range(60)}
            # The processes still have their segments open; their contents can be read.
            assert len(await everything(store)) == 180
            for process in processes:
                process.communicate()
                assert process.returncode == 0
        assert len(await everything(store)) == 180
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_what_a_killed_process_left_is_cleared_while_others_work(tmp_path: Path) -> None:
    async def story() -> None:
        alive = await open_sqlite(tmp_path, "station")
        unkept = alive.new_sink()
        unkept.write(b"x" * 400_000)
        with writing(tmp_path, "a", 30) as process:
            assert lines(process, 31)[-1] == "done"
            process.kill()
        assert len(list((tmp_path / "incoming").iterdir())) == 2
        again = await open_sqlite(tmp_path, "station")
        assert len(list((tmp_path / "incoming").iterdir())) == 2
        assert len(await everything(again)) == 30
        stored = await alive.run(lambda tx: tx.keep(unkept.finish()))
        assert bytes_of(again.content(stored)) == b"x" * 400_000
        await again.close()
        await alive.close()

    asyncio.run(story())
    assert_nothing_is_left_over(tmp_path)


def test_two_stores_in_one_process_do_not_know_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        one = await open_sqlite(tmp_path / "one", "one")
        two = await open_sqlite(tmp_path / "two", "two")
        await asyncio.gather(
            one.run(lambda tx: (tx.add_message(message("m1")), tx.record([event()]))),
            two.run(lambda tx: tx.add_message(message("m2"))),
        )
        assert await two.look(lambda reader: reader.message(Side.RECEIVING, "m1")) is None
        assert await one.look(lambda reader: reader.message(Side.RECEIVING, "m2")) is None
        await one.close()
        assert (await two.look(lambda reader: reader.figures())).last_seq == 0
        await two.close()

    asyncio.run(story())
