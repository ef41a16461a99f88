"""Fragments on the disk: which files there are, what a restart finds, what damage is told."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from postroad.store import contents
from postroad.store.fragments import StoredFragment
from postroad.store.interface import Store, StoreDamaged, Transaction
from postroad.store.records import Stored
from postroad.store.sqlite import open_sqlite
from postroad.wire.content import Spanned, span
from tests.conftest import PROJECT
from tests.descriptors import open_files
from tests.store.leftovers import assert_nothing_is_left_over
from tests.store.samples import bytes_of
from tests.store.test_contract_fragments import GROUP, PIECES, numbers, size, taking
from tests.store.test_sqlite_files import files, removals

LARGE = contents.SMALL + 1


async def gathered(store: Store, count: int = 4) -> Stored:
    for number in range(1, count + 1):
        await store.run(taking(number))
    return await store.run(lambda tx: tx.join_fragments("buyer", "g1"))


def test_a_restart_finds_the_fragments_that_were_taken(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(taking(2))
        await store.run(taking(4))
        await store.close()
        store = await open_sqlite(tmp_path, "station")
        assert await numbers(store) == [2, 4]
        for number in (1, 3):
            await store.run(taking(number))
        joined = await store.run(lambda tx: tx.join_fragments("buyer", "g1"))
        await store.close()
        store = await open_sqlite(tmp_path, "station")
        assert bytes_of(store.content(joined)) == b"".join(PIECES)
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


KILLED = """
import asyncio, os, sys
from pathlib import Path
from postroad.store.sqlite import open_sqlite
from tests.store.test_contract_fragments import taking

async def main():
    store = await open_sqlite(Path(sys.argv[1]), "station")
    for number in (4, 2, 1):
        await store.run(taking(number))
    if sys.argv[2] == "joined":
        await store.run(taking(3))
        print((await store.run(lambda tx: tx.join_fragments("buyer", "g1"))).place, flush=True)
    else:
        # Content that no step took over: what came of a fragment when the process died.
        sink = store.new_sink()
        sink.write(bytes(1_000_000))
        held = await store.persist(sink.finish())
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["gathering", "joined"])
def test_fragments_outlive_kill_9(tmp_path: Path, when: str) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), when]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr

    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        if when == "joined":
            joined = Stored(done.stdout.strip(), 0, sum(map(len, PIECES)))
        else:
            assert await numbers(store) == [1, 2, 4]
            await store.run(taking(3))
            joined = await store.run(lambda tx: tx.join_fragments("buyer", "g1"))
        assert bytes_of(store.content(joined)) == b"".join(PIECES)
        await store.close()
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_a_joined_content_that_could_not_be_finished_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        with monkeypatch.context() as trouble:
            trouble.setattr(contents.Contents, "finish", lambda _self, _place: None)
            joined = await gathered(store)
            assert bytes_of(store.content(joined)) == b"".join(PIECES)
        await store.close()
        assert joined.place in files(tmp_path, "payloads")
        assert_nothing_is_left_over(tmp_path)

    asyncio.run(story())


def test_joining_copies_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(taking(2))
        [data] = files(tmp_path, "payloads")
        [path] = (tmp_path / "payloads").rglob(data)
        before = path.stat()
        joined = await store.run(lambda tx: tx.join_fragments("buyer", "g1"))
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        [small] = [name for name in files(tmp_path, "payloads") if name != data]
        assert small == joined.place
        [manifest] = (tmp_path / "payloads").rglob(small)
        assert manifest.stat().st_size < 200
        await store.close()

    asyncio.run(story())


def test_what_is_dropped_takes_all_its_pieces_along(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        joined = await gathered(store)
        held = await size(store)
        await store.run(lambda tx: tx.drop(Stored(joined.place, 5, 10)))
        await store.run(lambda tx: tx.drop(Stored(joined.place, 50, 10)))
        assert held - await size(store) > 200_000
        await removals(store)
        assert files(tmp_path, "payloads") == []
        await store.close()
        await (await open_sqlite(tmp_path, "station")).close()
        assert files(tmp_path, "segments") == []

    asyncio.run(story())


def test_joined_and_dropped_in_one_step_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        await store.run(taking(2))

        def step(tx: Transaction) -> None:
            tx.drop(tx.join_fragments("buyer", "g1"))

        await store.run(step)
        await removals(store)
        assert files(tmp_path, "payloads") == []
        await store.close()

    asyncio.run(story())


def test_joined_data_is_read_from_any_place_with_few_open_files(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")

        def step(tx: Transaction) -> None:
            tx.set_fragment_group(GROUP)
            for number in range(1, 301):
                stored = tx.keep(bytes((number % 251,)) * LARGE)
                tx.add_fragment("buyer", "g1", StoredFragment(number, f"{number}@x", stored))

        await store.run(step)
        joined = await store.run(lambda tx: tx.join_fragments("buyer", "g1"))
        content = store.content(joined)
        assert isinstance(content, Spanned)
        for number in (1, 150, 300):
            at = (number - 1) * LARGE - (number > 1)
            piece = b"".join(span(content, at, 2))
            assert piece[-1] == number % 251
        assert open_files(tmp_path) < 150
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("what", ["a piece is gone", "a piece is short", "the list is damaged"])
def test_joined_data_that_is_not_whole_is_told(tmp_path: Path, what: str) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")
        joined = await gathered(store)
        await store.close()
        paths = {path.name[0]: path for path in (tmp_path / "payloads").rglob("*-*")}
        if what == "a piece is gone":
            paths["f"].unlink()
        elif what == "a piece is short":
            paths["f"].write_bytes(b"short")
        else:
            paths["j"].write_bytes(b"[")
        store = await open_sqlite(tmp_path, "station")
        with pytest.raises(StoreDamaged):
            store.content(joined)
        await store.run(lambda tx: tx.drop(joined))
        await store.close()

    asyncio.run(story())
