"""Shipping when something goes wrong: killed processes, full disks, restored databases."""

import asyncio
import contextlib
import errno
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroad.store.chain import verify
from postroad.store.locks import FileLock
from postroad.store.places import Written
from postroad.store.records import Recorded, Shipped
from postroad.store.shipping import LOCK, OtherJournal, Shipper, ShippingError
from postroad.store.sqlite import SqliteStore, open_sqlite
from tests.conftest import PROJECT
from tests.store import segments_read as read
from tests.store.samples import START
from tests.store.test_shipping import MIDNIGHT, at, journal, record, ship


@contextlib.asynccontextmanager
async def opened(folder: Path) -> Any:
    store = await open_sqlite(folder, "station")
    try:
        yield store
    finally:
        await store.close()


async def record_and_ship(folder: Path, events: int, *places: Path) -> list[Recorded]:
    """A short life of a node; its journal."""
    async with opened(folder) as store:
        await record(store, at(*[START] * events))
        for place in places:
            await ship(store, place, size=240)
        return await journal(store)


def no_dots(folder: Path) -> bool:
    return not list(folder.rglob(".*"))


# Killed


@contextlib.contextmanager
def shipping(folder: Path, place: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.store.shipping_process", str(folder), str(place)]
    process = subprocess.Popen([*command, *more], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def assert_all_is_shipped(folder: Path, place: Path, at_least: int) -> None:
    async def look() -> None:
        async with opened(folder) as store:
            await ship(store, place, size=2000)
            assert store.epoch == 1
            there = await journal(store)
            assert len(there) >= at_least
            assert read.journal(place) == there

    asyncio.run(look())
    assert verify(place).findings == ()
    assert no_dots(place)


def test_by_hand_and_by_a_running_process_nothing_is_shipped_twice(tmp_path: Path) -> None:
    folder, place = tmp_path / "store", tmp_path / "journal"

    async def by_hand() -> int:
        async with opened(folder) as store:
            shipper = Shipper(store, place, size=2000, folder=folder)
            try:
                # The other process may be quicker for a while: until each has shipped something.
                shipped = 0
                while not shipped:
                    shipped = sum([await shipper.ship(everything=True) for _ in range(20)])
                return shipped
            finally:
                shipper.close()

    with shipping(folder, place) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert asyncio.run(by_hand()) > 0
        assert process.stdout.readline(), "it goes on"
    assert_all_is_shipped(folder, place, 1)


def test_kill_9_at_any_moment_leaves_neither_gap_nor_repeat(tmp_path: Path) -> None:
    folder, place = tmp_path / "store", tmp_path / "journal"
    moments = random.Random(20260301)
    shipped = 0
    for _ in range(3):
        with shipping(folder, place) as process:
            assert process.stdout is not None
            for _ in range(moments.randrange(1, 25)):
                shipped = int(process.stdout.readline())
            process.kill()
        assert shipped <= verify(place).events
    assert_all_is_shipped(folder, place, shipped)


@pytest.mark.parametrize("moment", ["half_written", "renamed"])
def test_a_death_around_the_rename_leaves_neither_gap_nor_repeat(
    tmp_path: Path, moment: str
) -> None:
    folder, place = tmp_path / "store", tmp_path / "journal"
    with shipping(folder, place, moment) as process:
        assert process.stdout is not None
        told = process.stdout.read().split()
        assert process.wait() == -9
    if moment == "half_written":
        assert not no_dots(place), "the process had something under its hands"
    else:
        assert verify(place).events > int(told[-1])
    assert_all_is_shipped(folder, place, int(told[-1]) + 1)


# No room, no place


def test_a_full_disk_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        place = tmp_path / "journal"
        async with opened(tmp_path / "store") as store:
            await record(store, at(START))
            await ship(store, place)
            await record(store, at(START, MIDNIGHT))
            with monkeypatch.context() as patch:
                patch.setattr(Written, "write", no_room)
                for _ in range(2):
                    with pytest.raises(ShippingError, match=r"no room.*free disk space"):
                        await ship(store, place)
            assert len(read.journal(place)) == 1
            assert no_dots(place)
            await ship(store, place)
            assert read.journal(place) == await journal(store)
            assert verify(place).findings == ()

    asyncio.run(story())


def test_who_ships_by_hand_waits_for_the_one_who_is_at_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(tmp_path / "store") as store:
            await record(store, at(START))
            lock = FileLock(tmp_path / "store" / LOCK)
            lock.take()
            shipper = Shipper(store, tmp_path / "journal", folder=tmp_path / "store")
            waiting = asyncio.create_task(shipper.ship(everything=True))
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
            lock.close()
            assert await waiting == 1
            shipper.close()

    asyncio.run(story())


# Databases that are not what they were


def test_a_restored_database_starts_a_new_chain(tmp_path: Path) -> None:
    folder, place = tmp_path / "store", tmp_path / "journal"

    async def story() -> None:
        await record_and_ship(folder, 5, place)
        shutil.copy(folder / "postroad.db", tmp_path / "backup")
        await record_and_ship(folder, 4, place)
        shutil.copy(tmp_path / "backup", folder / "postroad.db")
        await record_and_ship(folder, 2, place)

    asyncio.run(story())
    first = [read.said(path)["postroad.previous"] for path in read.files(place)]
    assert [(one.epoch, one.seq) for one in read.journal(place)] == [
        *[(1, seq) for seq in range(1, 10)],
        (2, 1),
        (2, 2),
    ]
    assert first[-1] == ""
    assert first.count("") == 2
    assert verify(place).findings == ()


def test_what_an_earlier_epoch_has_not_shipped_is_shipped_first(tmp_path: Path) -> None:
    folder, place = tmp_path / "store", tmp_path / "journal"

    async def story() -> list[Recorded]:
        await record_and_ship(folder, 5, place)
        await record_and_ship(folder, 4)
        (folder / "journal.mark").unlink()
        await record_and_ship(folder, 3)
        (folder / "journal.mark").unlink()
        return await record_and_ship(folder, 2, place)

    there = asyncio.run(story())
    assert {one.epoch for one in there} == {1, 2, 3}
    assert read.journal(place) == there
    assert verify(place).findings == ()


def test_a_backup_that_is_behind_what_was_shipped_finds_its_own_segments(tmp_path: Path) -> None:
    """It has events that it has not noted as shipped; the other life of the node shipped them."""
    folder, place = tmp_path / "store", tmp_path / "journal"

    async def story() -> None:
        await record_and_ship(folder, 2, place)
        await record_and_ship(folder, 1)
        shutil.copy(folder / "postroad.db", tmp_path / "backup")
        await record_and_ship(folder, 6, place)
        shutil.copy(tmp_path / "backup", folder / "postroad.db")
        await record_and_ship(folder, 2, place)

    asyncio.run(story())
    assert [(one.epoch, one.seq) for one in read.journal(place)] == [
        *[(1, seq) for seq in range(1, 10)],
        (2, 1),
        (2, 2),
    ]
    assert verify(place).findings == ()


def test_a_whole_folder_that_was_restored_is_noticed_and_goes_on_in_a_new_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, place = tmp_path / "store", tmp_path / "journal"

    async def story() -> None:
        await record_and_ship(folder, 2, place)
        shutil.copytree(folder, tmp_path / "backup")
        await record_and_ship(folder, 3, place)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup", folder)
        async with opened(folder) as store:
            await record(store, at(MIDNIGHT.replace(day=1)))
            with pytest.raises(OtherJournal, match=r"remove journal\.mark"):
                await ship(store, place)
        (folder / "journal.mark").unlink()
        await record_and_ship(folder, 2, place)

    asyncio.run(story())
    there = [(one.epoch, one.seq) for one in read.journal(place)]
    assert there == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 1), (2, 2)]
    assert verify(place).findings == ()
    assert "an earlier epoch is not shipped on" in caplog.text


def test_a_place_that_was_moved_is_recognized(tmp_path: Path) -> None:
    """What lies there is compared with the journal, not written again."""

    async def story() -> list[Recorded]:
        await record_and_ship(tmp_path / "store", 7, tmp_path / "a")
        shutil.move(tmp_path / "a", tmp_path / "b")
        return await record_and_ship(tmp_path / "store", 1, tmp_path / "b")

    there = asyncio.run(story())
    assert read.journal(tmp_path / "b") == there
    assert verify(tmp_path / "b").findings == ()


def test_a_database_of_an_older_version_has_shipped_nothing(tmp_path: Path) -> None:
    from postroad.store.opening import DATABASE, connect, migrate
    from postroad.store.queries import migrations

    with contextlib.closing(connect(tmp_path / DATABASE)) as database:
        migrate(database, tmp_path / DATABASE, migrations()[:2])

    async def story() -> None:
        async with opened(tmp_path) as store:
            assert isinstance(store, SqliteStore)
            assert await store.look(lambda reader: reader.shipped("x")) == Shipped("x")

    asyncio.run(story())
