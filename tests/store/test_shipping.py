"""Shipping the journal of each backend: segments that are the journal, no more and no less."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from postroad.store.chain import verify
from postroad.store.interface import Store
from postroad.store.records import Event, Recorded, Shipped, Side
from postroad.store.shipping import OtherJournal, Shipper, ShippingError
from tests.store import segments_read as read
from tests.store.samples import START, after, event, full_event
from tests.store.stories import Tell

MIDNIGHT = datetime(2026, 3, 2, tzinfo=START.tzinfo)


def at(*times: datetime) -> list[Event]:
    """A heartbeat at each of these times."""
    return [Event(time, "urn:x::us", "heartbeat") for time in times]


async def record(store: Store, events: Iterable[Event]) -> None:
    given = list(events)
    await store.run(lambda tx: tx.record(given))


async def journal(store: Store) -> list[Recorded]:
    return await store.look(lambda reader: reader.journal(0, 100_000, 0))


async def ship(store: Store, folder: Path, *, everything: bool = True, **given: int) -> int:
    """As a new process would."""
    shipper = Shipper(store, folder, **given)
    try:
        return await shipper.ship(everything=everything)
    finally:
        shipper.close()


def names(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in read.files(folder)]


def test_what_is_shipped_is_the_journal(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, [full_event(), event("received", None), *at(START, after(1))])
        assert await ship(store, tmp_path) == 1
        assert read.journal(tmp_path) == await journal(store)
        assert names(tmp_path) == ["date=2026-03-01/station-1-00000000000000000001.parquet"]

    tell(story)


def test_what_was_shipped_is_not_shipped_again(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START, START))
        assert await ship(store, tmp_path) == 1
        assert await ship(store, tmp_path) == 0
        await record(store, at(START))
        assert await ship(store, tmp_path) == 1
        assert read.journal(tmp_path) == await journal(store)

    tell(story)


def test_each_segment_names_the_one_before_it(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        for _ in range(3):
            await record(store, at(START))
            await ship(store, tmp_path)
        first, second, third = read.files(tmp_path)
        assert read.said(first)["postroad.previous"] == ""
        assert read.said(second)["postroad.previous"] == read.digest(first)
        assert read.said(third)["postroad.previous"] == read.digest(second)
        assert {name: read.said(third)[name] for name in read.said(third) if "p" in name[:1]} == {
            "postroad.schema": "1",
            "postroad.node": "station",
            "postroad.epoch": "1",
            "postroad.previous": read.digest(second),
        }

    tell(story)


def test_how_far_it_was_shipped_is_noted_with_the_segment(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START, START))
        await ship(store, tmp_path)
        [segment] = read.files(tmp_path)
        assert await store.look(lambda reader: reader.shipped(str(tmp_path))) == Shipped(
            str(tmp_path), 1, 2, read.digest(segment), names(tmp_path)[0]
        )
        assert await store.look(lambda reader: reader.shipped("elsewhere")) == Shipped("elsewhere")

    tell(story)


def test_each_place_gets_the_whole_journal(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START))
        await ship(store, tmp_path / "a")
        await record(store, at(START))
        await ship(store, tmp_path / "b")
        assert len(read.journal(tmp_path / "a")) == 1
        assert read.journal(tmp_path / "b") == await journal(store)

    tell(story)


def test_events_are_removed_once_they_are_old_and_every_place_has_them(
    tell: Tell, tmp_path: Path
) -> None:
    async def story(store: Store) -> None:
        await record(store, at(*(after(one) for one in range(6))))
        whole = await journal(store)
        later, a = after(1000), str(tmp_path / "a")
        assert await store.run(lambda tx: tx.purge_events(a, later, 100)) == 0
        await ship(store, tmp_path / "a")
        await record(store, at(after(6)))
        await ship(store, tmp_path / "b")
        whole += (await journal(store))[6:]
        assert await store.run(lambda tx: tx.purge_events(a, after(2), 100)) == 2
        assert await store.run(lambda tx: tx.purge_events(a, later, 3)) == 3
        # The last event is at one of the two places only.
        assert await store.run(lambda tx: tx.purge_events(a, later, 100)) == 1
        assert await store.run(lambda tx: tx.purge_events(a, later, 100)) == 0
        assert await journal(store) == whole[6:]
        await record(store, at(after(7)))
        whole += (await journal(store))[1:]
        assert [one.seq for one in whole] == [1, 2, 3, 4, 5, 6, 7, 8]
        for place in ("a", "b"):
            await ship(store, tmp_path / place)
            assert read.journal(tmp_path / place) == whole
            assert verify(tmp_path / place).findings == ()
        assert await store.run(lambda tx: tx.purge_events(a, later, 100)) == 2
        assert (await store.look(lambda reader: reader.figures())).last_seq == 8

    tell(story)


def test_a_place_that_is_forgotten_holds_back_no_events(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START))
        await ship(store, tmp_path / "a")
        await record(store, at(START))
        await ship(store, tmp_path / "b")
        places = await store.look(lambda reader: reader.shipped_positions())
        assert [Path(one.target).name for one in places] == ["a", "b"]
        assert await store.run(lambda tx: tx.forget_shipped(str(tmp_path / "a")))
        assert not await store.run(lambda tx: tx.forget_shipped(str(tmp_path / "a")))
        assert await store.run(lambda tx: tx.purge_events(str(tmp_path / "a"), after(1), 9)) == 0
        assert await store.run(lambda tx: tx.purge_events(str(tmp_path / "b"), after(1), 100)) == 2

    tell(story)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param((-1, 1), id="midnight"),
        pytest.param((1, -1), id="a clock that is set back"),
        pytest.param((-0.000001, 0), id="a microsecond"),
    ],
)
def test_a_segment_does_not_cross_midnight(
    tell: Tell, tmp_path: Path, seconds: tuple[float, float]
) -> None:
    async def story(store: Store) -> None:
        await record(store, at(*(MIDNIGHT + timedelta(seconds=one) for one in seconds)))
        assert await ship(store, tmp_path) == 2
        for path in read.files(tmp_path):
            [one] = read.events(path)
            assert path.parent.name == f"date={one.event.at:%Y-%m-%d}"
        assert read.journal(tmp_path) == await journal(store)

    tell(story)


def test_a_clock_that_goes_back_within_the_day_cuts_nothing(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(after(60), after(0), after(30)))
        assert await ship(store, tmp_path) == 1

    tell(story)


def test_only_full_segments_are_shipped_before_their_time(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(*[START] * 25))
        assert await ship(store, tmp_path, everything=False, size=800) == 2
        assert [len(read.events(path)) for path in read.files(tmp_path)] == [10, 10]
        assert await ship(store, tmp_path, everything=False, size=800) == 0
        assert await ship(store, tmp_path, size=800) == 1
        assert read.journal(tmp_path) == await journal(store)

    tell(story)


def test_what_can_grow_no_more_is_full(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START))
        assert await ship(store, tmp_path, everything=False) == 0
        await record(store, at(MIDNIGHT))
        assert await ship(store, tmp_path, everything=False) == 1
        assert len(read.journal(tmp_path)) == 1

    tell(story)


def test_a_large_segment_is_about_as_large_as_it_should_be(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        size = 200_000
        for first in range(0, 40_000, 4000):
            await record(
                store,
                [event("sent", f"{n * 7919 % 10**9:09}@here") for n in range(first, first + 4000)],
            )
        await ship(store, tmp_path, size=size)
        sizes = [path.stat().st_size for path in read.files(tmp_path)]
        assert len(sizes) > 2
        assert all(size / 2 < one < size * 2 for one in sizes[1:-1])
        assert read.journal(tmp_path) == await journal(store)

    tell(story)


def test_a_segment_that_was_not_noted_is_adopted(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START, START))
        with monkeypatch.context() as patch:
            patch.setattr(Shipper, "_note", dying)
            with pytest.raises(Died):
                await ship(store, tmp_path)
        [segment] = read.files(tmp_path)
        before = segment.stat().st_mtime_ns
        await record(store, at(START))
        assert await ship(store, tmp_path) == 2
        assert segment.stat().st_mtime_ns == before
        assert read.journal(tmp_path) == await journal(store)
        assert verify(tmp_path).findings == ()

    tell(story)


class Died(BaseException):
    pass


async def dying(*_: object) -> bool:
    raise Died


def test_what_lies_half_written_is_removed(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        folder = tmp_path / "date=2026-02-28"
        folder.mkdir()
        mine = folder / ".station-1-00000000000000000009.parquet"
        others = [
            folder / ".station-1-1-00000000000000000001.parquet",
            folder / ".station-1-00000000000000000009.parquet.txt",
        ]
        for path in (mine, *others):
            path.write_bytes(b"PAR1")
        await record(store, at(START))
        await ship(store, tmp_path)
        assert not mine.exists()
        assert all(path.exists() for path in others)

    tell(story)


@pytest.mark.parametrize("damage", ["other events", "truncated", "another chain"])
def test_a_file_in_the_way_that_tells_something_else_is_not_touched(
    tell: Tell, tmp_path: Path, damage: str
) -> None:
    async def story(store: Store) -> None:
        await record(store, at(START, START))
        other = tmp_path / "other"
        await ship(store, other)
        [made] = read.files(other)
        there = tmp_path / "place" / made.relative_to(other)
        there.parent.mkdir(parents=True)
        if damage == "other events":
            there.write_bytes(_rewritten(made, seq=2))
        elif damage == "truncated":
            there.write_bytes(made.read_bytes()[:-100])
        else:
            there.write_bytes(_rewritten(made, previous="0" * 64))
        before = there.read_bytes()
        with pytest.raises(OtherJournal, match="in the way"):
            await ship(store, tmp_path / "place")
        assert there.read_bytes() == before
        assert read.files(tmp_path / "place") == [there]

    tell(story)


def _rewritten(path: Path, *, seq: int = 1, previous: str = "") -> bytes:
    """The same segment with another party in one event, or another link."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from postroad.store.journal_columns import COLUMNS
    from postroad.store.segments import write_segment

    rows = pq.ParquetFile(path).read().to_pylist()
    if seq > 1:
        rows[seq - 1]["party"] = "somebody else"
    made = path.parent / "other"
    table = pa.Table.from_pylist(rows, COLUMNS)
    written = write_segment(made, table, node="station", epoch=1, previous=previous)
    return Path(written.path).read_bytes()


def test_two_who_ship_at_once_write_nothing_twice(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        shippers = [Shipper(store, tmp_path / "j", size=800, folder=tmp_path) for _ in range(3)]
        await record(store, at(*[START] * 100))
        counts = await asyncio.gather(*(one.ship(everything=True) for one in shippers))
        for one in shippers:
            one.close()
        assert sum(counts) == 10
        assert read.journal(tmp_path / "j") == await journal(store)
        assert verify(tmp_path / "j").findings == ()

    tell(story)


def test_the_number_of_events_that_wait_is_known(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        shipper = Shipper(store, tmp_path)
        await record(store, at(START, START))
        assert await shipper.waiting() == 2
        await shipper.ship(everything=True)
        await record(store, at(START))
        assert await shipper.waiting() == 1
        shipper.close()

    tell(story)


def test_a_place_that_cannot_be_written_is_told_and_tried_again(tell: Tell, tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        place = tmp_path / "place"
        place.write_text("no folder")
        await record(store, at(START))
        with pytest.raises(ShippingError, match="what is not shipped stays in the database"):
            await ship(store, place)
        place.unlink()
        assert await ship(store, place) == 1
        assert read.journal(place) == await journal(store)

    tell(story)


def test_an_object_store_gets_segments_whole(tell: Tell, request: pytest.FixtureRequest) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    request.addfinalizer(fs.store.clear)

    async def story(store: Store) -> None:
        await record(store, at(START, MIDNIGHT))
        assert await ship(store, "memory://lake/journal") == 2  # type: ignore[arg-type]
        assert sorted(fs.find("/lake/journal")) == [
            "/lake/journal/date=2026-03-01/station-1-00000000000000000001.parquet",
            "/lake/journal/date=2026-03-02/station-1-00000000000000000002.parquet",
        ]
        assert verify("memory://lake/journal").findings == ()

    tell(story)


def test_sides_are_words(tell: Tell, tmp_path: Path) -> None:
    """Not names of an enumeration: other readers know nothing of it."""
    import pyarrow.parquet as pq

    async def story(store: Store) -> None:
        await record(store, [event(side=side) for side in Side])
        await ship(store, tmp_path)
        column = pq.ParquetFile(read.files(tmp_path)[0]).read()["side"].to_pylist()
        assert column == ["sending", "receiving", "forwarding"]

    tell(story)
