"""The reserve: on a full disk there is room for those steps that make room, and for no others."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from postroad.store.interface import StoreFull, Transaction
from postroad.store.records import Side, State, Wanted
from postroad.store.reserve import Reserve
from postroad.store.sqlite import SqliteStore, open_sqlite
from tests.store.quota import RESERVE, Quota
from tests.store.samples import START, adding


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> Quota:
    return Quota(monkeypatch)


def consuming(name: str) -> Callable[[Transaction], bool]:
    def step(tx: Transaction) -> bool:
        return tx.change_message(
            Side.RECEIVING, name, (State.DELIVERED,), state=State.CONSUMED, updated_at=START
        )

    return step


async def opened(folder: Path, reserve: int = RESERVE) -> SqliteStore:
    return await open_sqlite(folder, "station", reserve=reserve)


async def states(store: SqliteStore) -> dict[str, State]:
    found = await store.look(lambda reader: reader.messages(Wanted()))
    return {one.message_id: one.state for one in found}


def test_a_reserve_takes_room_on_the_disk_and_gives_it_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, RESERVE)
    reserve.open()
    [file] = tmp_path.iterdir()
    assert file.stat().st_blocks * 512 >= RESERVE
    assert file.stat().st_mode & 0o077 == 0
    assert reserve.is_whole
    reserve.release()
    assert not reserve.is_whole
    assert list(tmp_path.iterdir()) == []
    assert reserve.restore()
    Reserve(tmp_path, RESERVE // 2).open()
    assert file.stat().st_size == RESERVE // 2


def test_room_is_made_on_a_full_disk_and_everything_goes_on_afterwards(
    tmp_path: Path, quota: Quota
) -> None:
    async def story() -> None:
        store = await opened(tmp_path)
        await store.run(adding("m1"))
        await store.run(adding("m2"))
        quota.fill()
        with pytest.raises(StoreFull, match="free disk space"):
            await store.run(adding("m3"))
        assert await store.run_with_reserve(consuming("m1"))
        with pytest.raises(StoreFull, match=r"only lists, acknowledges and purges.* 8 MiB"):
            await store.run(adding("m3"))
        with pytest.raises(StoreFull):
            await store.check()
        assert await store.run_with_reserve(consuming("m2"))
        assert await states(store) == {"m1": State.CONSUMED, "m2": State.CONSUMED}
        quota.make_room()
        await store.run(adding("m3"))
        await store.check()
        assert (tmp_path / "reserve").stat().st_size == RESERVE
        await store.close()

    asyncio.run(story())


def test_what_is_left_of_the_reserve_is_kept_from_other_programs(
    tmp_path: Path, quota: Quota
) -> None:
    async def story() -> None:
        store = await opened(tmp_path)
        for name in ("m1", "m2", "m3"):
            await store.run(adding(name))
        for name in ("m1", "m2", "m3"):
            quota.fill()
            assert await store.run_with_reserve(consuming(name))
        assert 0 < (tmp_path / "reserve").stat().st_size < RESERVE
        await store.close()

    asyncio.run(story())


def test_a_store_on_a_full_disk_is_opened_to_make_room(tmp_path: Path, quota: Quota) -> None:
    async def story() -> None:
        store = await opened(tmp_path)
        await store.run(adding("m1"))
        await store.close()
        quota.fill()
        store = await opened(tmp_path)
        with pytest.raises(StoreFull, match="only lists, acknowledges and purges"):
            await store.run(adding("m2"))
        assert await store.run_with_reserve(consuming("m1"))
        quota.make_room()
        await store.run(adding("m2"))
        assert await states(store) == {"m1": State.CONSUMED, "m2": State.DELIVERED}
        await store.close()

    asyncio.run(story())


def test_another_process_does_not_use_a_reserve_that_was_given_up(
    tmp_path: Path, quota: Quota
) -> None:
    async def story() -> None:
        store, neighbour = await opened(tmp_path), await opened(tmp_path)
        await store.run(adding("m1"))
        quota.fill()
        assert await store.run_with_reserve(consuming("m1"))
        with pytest.raises(StoreFull, match="only lists, acknowledges and purges"):
            await neighbour.run(adding("m2"))
        await neighbour.close()
        await store.close()

    asyncio.run(story())


def test_without_a_reserve_a_full_disk_fails_every_step(tmp_path: Path, quota: Quota) -> None:
    async def story() -> None:
        store = await opened(tmp_path, reserve=0)
        await store.run(adding("m1"))
        assert store.free()
        quota.fill()
        with pytest.raises(StoreFull, match="free disk space"):
            await store.run_with_reserve(consuming("m1"))
        assert not (tmp_path / "reserve").exists()
        await store.close()

    asyncio.run(story())
