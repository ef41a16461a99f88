"""Disk full, database locked or damaged: a clear error, nothing half kept, and it goes on."""

import asyncio
import contextlib
import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroad.store import contents
from postroad.store.failures import busy
from postroad.store.interface import StoreBusy, StoreDamaged, StoreError, StoreFull, Transaction
from postroad.store.locks import TurnLock
from postroad.store.records import Side, Wanted
from postroad.store.sqlite import SqliteStore, open_sqlite
from tests.conftest import PROJECT
from tests.store.leftovers import assert_nothing_is_left_over
from tests.store.samples import Pattern, adding, bytes_of, event, message, written


@contextlib.contextmanager
def connected(folder: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(folder / "postroad.db", isolation_level=None, timeout=0)
    with contextlib.closing(database):
        yield database


async def names(store: SqliteStore) -> list[str]:
    """Of the messages that are there; each must have its content, and the journal no holes."""
    messages = await store.look(lambda reader: reader.messages(Wanted(limit=10_000)))
    for one in messages:
        assert one.envelope is not None
        assert bytes_of(store.content(one.envelope))
    journal = await store.look(lambda reader: reader.journal(0, 10_000))
    assert [one.seq for one in journal] == list(range(1, len(messages) + 1))
    return [one.message_id for one in messages]


# No room


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("call", "failing"),
    [
        ("pwrite", no_room),
        ("pwrite", lambda fd, data, at: os.write(fd, bytes(data)[:5]) and no_room()),
        ("fdatasync", no_room),
    ],
    ids=["nothing written", "a piece written", "not flushed"],
)
def test_a_full_disk_fails_the_whole_group_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, failing: Callable[..., int]
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(adding("before"))
        with monkeypatch.context() as patch:
            patch.setattr(contents.os, call, failing)
            results = await asyncio.gather(
                *[store.run(adding(f"m{n}")) for n in range(5)], return_exceptions=True
            )
            with pytest.raises(StoreFull):
                await store.check() if call == "pwrite" else await store.run(adding("m5"))
        for result in results:
            assert isinstance(result, StoreFull)
            assert "free disk space" in str(result)
        assert len(set(map(id, results))) == 5, "each caller has an error of his own"
        assert await names(store) == ["before"]
        assert await asyncio.gather(*[store.run(adding(f"m{n}")) for n in range(5)]) == [True] * 5
        await store.check()
        assert await names(store) == ["before", *(f"m{n}" for n in range(5))]
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_a_failed_commit_leaves_nothing_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its room may be what is missing; and nobody knows what a failed flush has written."""

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        before = await store.run(lambda tx: tx.keep(b"before"))
        with monkeypatch.context() as patch:
            patch.setattr(contents.os, "fsync", no_room)
            with pytest.raises(StoreFull):
                await store.run(lambda tx: (tx.keep(b"small"), tx.keep(bytes(400_000))))
        [own] = (tmp_path / "incoming").iterdir()
        left = {path.name: path.stat().st_size for path in own.iterdir()}
        assert left == {"lock": 0, before.place: len(b"before")}
        after = await store.run(lambda tx: tx.keep(b"after"))
        assert after.place != before.place
        assert bytes_of(store.content(before)) == b"before"
        assert bytes_of(store.content(after)) == b"after"
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_a_step_that_refused_is_told_of_the_full_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reason may be a message of the same group, which is not there after all."""

    def refusing(tx: Transaction) -> None:
        if tx.message(Side.RECEIVING, "m1"):
            raise ValueError("there is one already")

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        with monkeypatch.context() as patch:
            patch.setattr(contents.os, "fdatasync", no_room)
            results = await asyncio.gather(
                store.run(adding("m1")), store.run(refusing), return_exceptions=True
            )
        assert [type(result) for result in results] == [StoreFull, StoreFull]
        await store.run(refusing)
        await store.close()

    asyncio.run(story())


def test_large_content_that_finds_no_room_is_told_to_who_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        sink = store.new_sink()
        sink.write(b"x" * 200_000)
        with monkeypatch.context() as patch:
            patch.setattr(contents.os, "pwrite", no_room)
            with pytest.raises(StoreFull, match="free disk space"):
                sink.write(b"x" * 200_000)
            with pytest.raises(StoreFull):
                await store.persist(Pattern(400_000))
            with pytest.raises(StoreFull):
                await store.run(lambda tx: tx.keep(Pattern(400_000)))
        sink.discard()
        content = written(store, Pattern(400_000))
        with monkeypatch.context() as patch:
            patch.setattr(contents.os, "fsync", no_room)
            with pytest.raises(StoreFull):
                await store.persist(content)
            with pytest.raises(StoreFull):
                await store.run(lambda tx: tx.keep(content))
        stored = await store.run(
            lambda tx: (
                tx.add_message(message(envelope=(kept := tx.keep(content)))),
                kept,
            )[1]
        )
        assert bytes_of(store.content(stored)) == bytes_of(Pattern(400_000))
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_a_full_database_keeps_what_was_acknowledged_and_goes_on_with_more_room(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        database = store._writer._database
        [(pages,)] = database.execute("PRAGMA page_count").fetchall()
        database.execute(f"PRAGMA max_page_count = {pages + 20}")
        kept: list[str] = []

        async def fill() -> None:
            for n in range(1000):
                await store.run(adding(f"m{n}"))
                kept.append(f"m{n}")

        with pytest.raises(StoreFull, match=r"postroad\.db.*free disk space"):
            await fill()
        assert kept
        assert await names(store) == kept
        database.execute("PRAGMA max_page_count = 1000000")
        await store.run(adding("more"))
        assert await names(store) == [*kept, "more"]
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


FILES_OF_LIMITED_SIZE = """
import asyncio, resource, sys
from pathlib import Path
from postroad.store.interface import StoreFull
from postroad.store.sqlite import open_sqlite
from tests.store.samples import adding

async def main():
    store = await open_sqlite(Path(sys.argv[1]), "station")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
    failed = 0
    for number in range(40):
        if number == 30:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        steps = [store.run(adding(f"m{number}.{n}", b"x" * int(sys.argv[3]))) for n in range(5)]
        results = await asyncio.gather(*steps, return_exceptions=True)
        assert len(set(map(type, results))) == 1, results
        if results[0] is True:
            print("\\n".join(f"m{number}.{n}" for n in range(5)))
        else:
            assert isinstance(results[0], StoreFull), results
            failed += 1
    assert 0 < failed < 30, failed
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("limit", "size"), [(600_000, 10), (600_000, 20_000)], ids=["database", "contents"]
)
def test_files_that_cannot_grow_are_a_full_disk(tmp_path: Path, limit: int, size: int) -> None:
    """With a limit of the system, which hits every file as a full disk would."""
    done = subprocess.run(
        [sys.executable, "-c", FILES_OF_LIMITED_SIZE, str(tmp_path), str(limit), str(size)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    acknowledged = done.stdout.split()
    assert "m39.4" in acknowledged

    async def look() -> None:
        store = await open_sqlite(tmp_path, "station")
        assert await names(store) == acknowledged
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(look())


# Locked


def test_a_database_locked_by_a_stranger_is_busy_until_it_is_free(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station", patience=0.1)
        await store.run(adding("before"))
        with connected(tmp_path) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy, match=r"postroad\.db has been locked .* 0\.1 seconds"):
                await store.run(adding("m1"))
            with pytest.raises(StoreBusy):
                await store.check()
            assert await names(store) == ["before"]
            stranger.execute("COMMIT")
        store._writer.patience = 60
        await store.run(adding("m1"))
        assert await names(store) == ["before", "m1"]
        await store.close()

    asyncio.run(story())


def test_steps_wait_for_a_stranger_who_is_quick(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station", patience=60)
        with connected(tmp_path) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            step = asyncio.ensure_future(store.run(adding("m1")))
            for _ in range(20):
                await store.look(lambda reader: reader.figures())
            assert not step.done()
            stranger.execute("COMMIT")
            assert await step
        await store.close()

    asyncio.run(story())


def test_who_has_not_waited_long_is_not_told_that_the_database_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait that ends may have begun for a step that came long before."""

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station", patience=60)
        begin, tries = store._writer.begin, iter([True, False])

        def busy_once() -> None:
            if next(tries):
                raise busy(tmp_path, 60)
            begin()

        monkeypatch.setattr(store._writer, "try_begin", lambda: False)
        monkeypatch.setattr(store._writer, "begin", busy_once)
        assert await store.run(adding("m1"))
        await store.close()

    asyncio.run(story())


def test_a_neighbour_that_holds_the_lock_too_long_is_told_and_outlasted(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station", patience=0.1)
        neighbour = TurnLock(tmp_path)
        assert neighbour.try_take()
        results = await asyncio.gather(
            *[store.run(adding(f"m{n}")) for n in range(3)], return_exceptions=True
        )
        assert [type(result) for result in results] == [StoreBusy] * 3
        store._writer.patience = 60
        late = asyncio.ensure_future(store.run(adding("late")))
        await asyncio.sleep(0)
        neighbour.give_back()
        assert await late
        assert await names(store) == ["late"]
        assert neighbour.try_take(), "the lock is given back after each group"
        neighbour.give_back()
        await store.close()
        neighbour.close()

    asyncio.run(story())


def test_a_store_can_be_closed_while_a_neighbour_holds_the_lock(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station", patience=0.05)
        neighbour = TurnLock(tmp_path)
        assert neighbour.try_take()
        with pytest.raises(StoreBusy):
            await store.run(adding("m1"))
        await store.close()
        with pytest.raises(StoreBusy, match="has been locked"):
            await open_sqlite(tmp_path, "station", patience=0.05)
        neighbour.close()
        again = await open_sqlite(tmp_path, "station", patience=60)
        await again.run(adding("m2"))
        assert await names(again) == ["m2"]
        await again.close()

    asyncio.run(story())


# Damaged


def test_a_file_that_is_no_database_is_damage_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "postroad.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreDamaged, match=r"postroad\.db is damaged .* restore a backup"):
        asyncio.run(open_sqlite(tmp_path, "station"))


def test_a_damaged_page_is_told_to_who_needs_it(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(adding("m1"))
        await store.close()

    async def meet() -> None:
        store = await open_sqlite(tmp_path, "station")
        with pytest.raises(StoreDamaged, match=r"postroad\.db is damaged"):
            await store.look(lambda reader: reader.message(Side.RECEIVING, "m1"))
        with pytest.raises(StoreDamaged, match=r"postroad\.db is damaged"):
            await store.look(lambda reader: reader.messages(Wanted()))
        with pytest.raises(StoreDamaged, match=r"postroad\.db is damaged"):
            await store.run(adding("m2"))
        await store.run(lambda tx: tx.record([event()]))
        await store.close()

    asyncio.run(fill())
    with connected(tmp_path) as database:
        [(page_size,)] = database.execute("PRAGMA page_size").fetchall()
        roots = database.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'messages'")
        pages = [page for (page,) in roots]
    with (tmp_path / "postroad.db").open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * page_size)
            file.write(b"\xa5" * page_size)
    asyncio.run(meet())


def test_content_that_is_cut_off_or_gone_is_damage(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        small, large = await store.run(lambda tx: (tx.keep(b"x" * 500), tx.keep(Pattern(400_000))))
        await store.close()
        [segment] = (tmp_path / "segments").iterdir()
        [file] = (path for path in (tmp_path / "payloads").rglob("*") if path.is_file())
        os.truncate(segment, 499)
        os.truncate(file, 399_000)
        store = await open_sqlite(tmp_path, "station")
        with pytest.raises(StoreDamaged, match=f"'{small.place}' is not whole, 1 bytes"):
            store.content(small)
        with pytest.raises(StoreDamaged, match=f"'{large.place}' is not whole, 1000 bytes"):
            store.content(large)
        segment.unlink()
        file.unlink()
        await store.close()
        store = await open_sqlite(tmp_path, "station")
        for stored in (small, large):
            with pytest.raises(StoreDamaged, match=f"'{stored.place}' is not there"):
                store.content(stored)
        await store.close()

    asyncio.run(story())


# Not ours


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    async def make() -> None:
        await (await open_sqlite(tmp_path, "station")).close()

    asyncio.run(make())
    with connected(tmp_path) as database:
        database.execute("INSERT INTO migrations VALUES (9999, '9999_future.sql', 0)")
    before = (tmp_path / "postroad.db").read_bytes()
    with pytest.raises(StoreError, match=r"newer version .*9999.*install that version"):
        asyncio.run(open_sqlite(tmp_path, "station"))
    assert (tmp_path / "postroad.db").read_bytes() == before


def test_the_store_of_another_node_is_refused(tmp_path: Path) -> None:
    async def make() -> None:
        await (await open_sqlite(tmp_path, "station")).close()

    asyncio.run(make())
    with pytest.raises(StoreError, match="belongs to the node 'station', not to 'other'"):
        asyncio.run(open_sqlite(tmp_path, "other"))
    asyncio.run(make())


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file cannot be used"):
        asyncio.run(open_sqlite(tmp_path / "file", "station"))
