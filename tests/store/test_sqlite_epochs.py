"""The journal's epoch grows when the database is not the one that wrote the last events."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from postroad.store.sqlite import open_sqlite
from tests.store.samples import event, full_event


async def recorded(folder: Path, events: int) -> tuple[int, list[int]]:
    """Record some events; the epoch, and the numbers of its events."""
    store = await open_sqlite(folder, "station")
    for _ in range(events):
        await store.run(lambda tx: tx.record([event()]))
    journal = await store.look(lambda reader: reader.journal(0, 100))
    assert {one.epoch for one in journal} <= {store.epoch}
    await store.close()
    return store.epoch, [one.seq for one in journal]


def test_a_store_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    assert asyncio.run(recorded(tmp_path, 0)) == (1, [])
    assert asyncio.run(recorded(tmp_path, 2)) == (1, [1, 2])
    assert asyncio.run(recorded(tmp_path, 1)) == (1, [1, 2, 3])


def test_a_database_made_anew_starts_the_next_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        assert asyncio.run(recorded(tmp_path, 2)) == (epoch, [1, 2])
        (tmp_path / "postroad.db").unlink()


def test_a_restored_database_starts_the_next_epoch(tmp_path: Path) -> None:
    asyncio.run(recorded(tmp_path, 2))
    shutil.copy(tmp_path / "postroad.db", tmp_path / "backup")
    assert asyncio.run(recorded(tmp_path, 2)) == (1, [1, 2, 3, 4])
    shutil.copy(tmp_path / "backup", tmp_path / "postroad.db")
    assert asyncio.run(recorded(tmp_path, 1)) == (2, [1])
    assert asyncio.run(recorded(tmp_path, 1)) == (2, [1, 2])
    # The same backup once more: the second epoch is not written twice.
    shutil.copy(tmp_path / "backup", tmp_path / "postroad.db")
    assert asyncio.run(recorded(tmp_path, 1)) == (3, [1])


def test_a_database_from_elsewhere_starts_the_next_epoch(tmp_path: Path) -> None:
    """Of a node of the same name, and with more events than the mark tells."""
    asyncio.run(recorded(tmp_path / "here", 2))
    asyncio.run(recorded(tmp_path / "there", 5))
    shutil.copy(tmp_path / "there" / "postroad.db", tmp_path / "here" / "postroad.db")
    assert asyncio.run(recorded(tmp_path / "here", 1)) == (2, [1])


def test_the_history_of_a_message_spans_epochs(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        history = await store.look(lambda reader: reader.events("m1@here"))
        assert [(one.epoch, one.seq) for one in history] == [(1, 1), (1, 2), (2, 1)]
        await store.close()

    asyncio.run(recorded(tmp_path, 2))
    (tmp_path / "journal.mark").unlink()
    asyncio.run(recorded(tmp_path, 1))
    asyncio.run(story())


@pytest.mark.parametrize("mark", [None, b"{}", b"", b"\xff"])
def test_a_database_without_a_mark_came_from_elsewhere(tmp_path: Path, mark: bytes | None) -> None:
    asyncio.run(recorded(tmp_path, 2))
    (tmp_path / "journal.mark").unlink()
    if mark is not None:
        (tmp_path / "journal.mark").write_bytes(mark)
    assert asyncio.run(recorded(tmp_path, 1)) == (2, [1])


def test_an_epoch_without_events_is_used_again(tmp_path: Path) -> None:
    """As after a crash between the database and its mark."""
    asyncio.run(recorded(tmp_path, 2))
    mark = (tmp_path / "journal.mark").read_bytes()
    (tmp_path / "postroad.db").unlink()
    assert asyncio.run(recorded(tmp_path, 0)) == (2, [])
    (tmp_path / "journal.mark").write_bytes(mark)
    assert asyncio.run(recorded(tmp_path, 1)) == (2, [1])


def test_a_mark_during_the_run_is_enough_to_see_a_restored_database(tmp_path: Path) -> None:
    async def crash() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(lambda tx: tx.record([event()]))
        with (
            contextlib.closing(sqlite3.connect(tmp_path / "postroad.db")) as database,
            contextlib.closing(sqlite3.connect(tmp_path / "backup")) as backup,
        ):
            database.backup(backup)
        await store.run(lambda tx: tx.record([event()]))
        await store.mark()
        marked = (tmp_path / "journal.mark").read_bytes()
        await store.close()
        (tmp_path / "journal.mark").write_bytes(marked)

    asyncio.run(crash())
    shutil.copy(tmp_path / "backup", tmp_path / "postroad.db")
    assert asyncio.run(recorded(tmp_path, 1)) == (2, [1])


def test_the_journal_can_be_read_by_its_columns(tmp_path: Path) -> None:
    async def write() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(lambda tx: tx.record([event(message_id=None), full_event()]))
        await store.close()

    asyncio.run(write())
    with contextlib.closing(sqlite3.connect(tmp_path / "postroad.db")) as database:
        database.row_factory = sqlite3.Row
        heartbeat, sent = database.execute("SELECT * FROM journal ORDER BY epoch, seq").fetchall()
    assert (sent["node"], sent["epoch"], sent["seq"]) == ("station", 1, 2)
    expected = full_event()
    for name in sent.keys()[4:]:
        if name != "payload_digests":
            assert sent[name] == getattr(expected, name), name
    assert sent["at"] == 1772366400123457
    assert sent["payload_digests"] == '["sha256:00","sha256:ff"]'
    assert heartbeat["message_id"] is None
