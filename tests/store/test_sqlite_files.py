"""Which files there are, and when they go."""

import asyncio
import contextlib
import gc
import sqlite3
from pathlib import Path

import pytest

from postroad.store import contents
from postroad.store.interface import Store, Transaction
from postroad.store.records import State, Stored
from postroad.store.sqlite import SqliteStore, open_sqlite
from postroad.wire.content import Content
from tests.descriptors import open_files
from tests.store.leftovers import assert_nothing_is_left_over
from tests.store.samples import Pattern, adding, after, bytes_of, event, message, written


def files(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (folder / kind).rglob("*") if path.is_file())


def unfinished(folder: Path) -> list[str]:
    return [name for name in files(folder, "incoming") if name != "lock"]


async def kept(store: Store, content: bytes | Content) -> Stored:
    return await store.run(lambda tx: tx.keep(content))


async def removals(store: SqliteStore) -> None:
    """Wait until the files that can go are gone."""
    await asyncio.to_thread(store._pool.shutdown)


def test_small_contents_share_a_segment_and_a_large_one_has_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        for n in range(5):
            await store.run(adding(f"m{n}"))
        large = await store.run(lambda tx: tx.keep(b"x" * (contents.SMALL + 1)))
        assert files(tmp_path, "payloads") == [large.place]
        [segment] = unfinished(tmp_path)
        await store.close()
        assert files(tmp_path, "segments") == [segment]
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_a_full_segment_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "SEGMENT_BYTES", 1000)

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        kept = [await store.run(lambda tx: tx.keep(bytes(400))) for _ in range(10)]
        assert len({stored.place for stored in kept}) == 4
        assert len(files(tmp_path, "segments")) == 3
        assert all(bytes_of(store.content(stored)) == bytes(400) for stored in kept)
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_a_segment_goes_when_nothing_lives_in_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "SEGMENT_BYTES", 500_000)

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        kept = [await store.run(lambda tx: tx.keep(bytes(250_000))) for _ in range(5)]
        first, second, third, fourth, fifth = kept
        assert first.place == second.place
        assert third.place == fourth.place
        full = (await store.look(lambda reader: reader.figures())).bytes
        await store.run(lambda tx: tx.drop(first))
        await store.run(lambda tx: tx.drop(third))
        assert files(tmp_path, "segments") == sorted({first.place, third.place})
        await store.run(lambda tx: tx.drop(second))
        # Nothing lives in the last one either, but it is still written to.
        await store.run(lambda tx: tx.drop(fifth))
        again = await store.run(lambda tx: tx.keep(b"again"))
        assert again.place == fifth.place
        assert (await store.look(lambda reader: reader.figures())).bytes < full
        await removals(store)
        assert files(tmp_path, "segments") == [third.place]
        assert bytes_of(store.content(fourth)) == bytes(250_000)
        assert bytes_of(store.content(again)) == b"again"
        await store.close()
        await (await open_sqlite(tmp_path, "station")).close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_purged_messages_free_the_disk(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        for n in range(4):
            await store.run(adding(f"m{n}", bytes(1000 if n % 2 else 400_000)))
        assert len(files(tmp_path, "payloads")) == 2
        await store.run(lambda tx: tx.purge(after(1), [State.DELIVERED], 100))
        await removals(store)
        assert files(tmp_path, "payloads") == []
        await store.close()
        await (await open_sqlite(tmp_path, "station")).close()
        assert files(tmp_path, "segments") == []
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


@pytest.mark.parametrize("size", [1000, 400_000])
def test_what_was_shared_is_gone_with_its_last_owner(tmp_path: Path, size: int) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        stored = await store.run(lambda tx: tx.share(tx.keep(bytes(size))))
        await store.run(lambda tx: tx.drop(stored))
        await store.run(lambda tx: tx.drop(stored))
        await removals(store)
        await store.close()
        await (await open_sqlite(tmp_path, "station")).close()
        assert files(tmp_path, "segments") == files(tmp_path, "payloads") == []

    asyncio.run(story())


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        stored = await store.run(lambda tx: tx.keep(Pattern(400_000)))
        await store.run(lambda tx: tx.drop(stored))
        with contextlib.closing(sqlite3.connect(tmp_path / "postroad.db")) as database:
            trash = "SELECT place FROM trash"
            assert database.execute(trash).fetchall() == [(stored.place,)]
            await removals(store)
            await store.run(adding("m1"))
            assert database.execute(trash).fetchall() == []
        await store.close()

    asyncio.run(story())


def test_files_that_could_not_be_removed_go_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        stored = await store.run(lambda tx: tx.keep(Pattern(400_000)))
        with monkeypatch.context() as patch:
            patch.setattr(contents.Contents, "remove", lambda *_: False)
            await store.run(lambda tx: tx.drop(stored))
            await store.close()
        assert files(tmp_path, "payloads") == [stored.place]
        await (await open_sqlite(tmp_path, "station")).close()
        assert files(tmp_path, "payloads") == []
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_content_that_is_never_kept_vanishes(tmp_path: Path) -> None:
    async def story() -> None:
        store: Store = await open_sqlite(tmp_path, "station")
        content = written(store, Pattern(400_000))
        sink = store.new_sink()
        sink.write(b"x" * 400_000)
        assert len(unfinished(tmp_path)) == 2
        sink.discard()
        assert len(unfinished(tmp_path)) == 1
        content = await store.persist(content)
        del content
        gc.collect()
        async with asyncio.timeout(30):
            while unfinished(tmp_path):  # The thread that flushed it lets it go in its own time.
                await asyncio.sleep(0.001)
        await store.close()

    asyncio.run(story())


def test_kept_content_outlives_the_one_it_was_made_from(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        stored = await kept(store, written(store, Pattern(400_000)))
        gc.collect()
        assert unfinished(tmp_path) == []
        assert bytes_of(store.content(stored)) == bytes_of(Pattern(400_000))
        await store.close()

    asyncio.run(story())


def test_content_is_read_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        stored = await store.run(lambda tx: tx.keep(Pattern(1_000_000)))
        sizes = [len(chunk) for chunk in store.content(stored).chunks()]
        assert max(sizes) == 256 * 1024
        assert sum(sizes) == 1_000_000
        await store.close()

    asyncio.run(story())


def test_content_that_is_being_read_can_be_read_to_its_end(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        stored = await store.run(lambda tx: tx.keep(Pattern(1_000_000)))
        reading = store.content(stored).chunks()
        head = next(reading)
        await store.run(lambda tx: tx.drop(stored))
        await removals(store)
        assert files(tmp_path, "payloads") == []
        assert head + b"".join(reading) == bytes_of(Pattern(1_000_000))
        await store.close()

    asyncio.run(story())


def test_many_contents_need_few_open_files(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        data = bytes(contents.SMALL + 1)
        kept = await store.run(lambda tx: [tx.keep(data) for _ in range(contents._OPENED + 20)])
        before = open_files(tmp_path)
        for stored in kept:
            assert len(next(iter(store.content(stored).chunks()))) > 0
        opened = open_files(tmp_path) - before
        assert opened <= contents._OPENED + 5
        await store.close()

    asyncio.run(story())


def test_a_closed_store_holds_no_file_open(tmp_path: Path) -> None:
    def failing(tx: Transaction) -> None:
        tx.record([event()])
        tx.keep(b"x")
        raise ValueError("no")

    def opened() -> set[str]:
        paths = Path("/proc/self/fd").iterdir()
        return {str(path.readlink()) for path in paths if path.is_symlink()}

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        for content in (b"small", Pattern(400_000)):
            stored = await kept(store, content)
            assert bytes_of(store.content(stored))
        await store.look(lambda reader: reader.figures())
        with pytest.raises(ValueError, match="no"):
            await store.run(failing)
        assert {path for path in opened() if str(tmp_path) in path}
        await store.close()
        assert {path for path in opened() if str(tmp_path) in path} == set()

    asyncio.run(story())


def test_an_empty_store_leaves_nothing_but_its_database(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path / "a" / "b", "station")
        await store.run(lambda tx: tx.add_message(message(envelope=tx.keep(b""))))
        await store.close()
        assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {
            "incoming",
            "journal.mark",
            "next.lock",
            "postroad.db",
            "write.lock",
        }

    asyncio.run(story())
