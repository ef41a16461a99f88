"""Whatever is recorded, by whatever clock, and whoever dies: the segments are the journal."""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.store.chain import verify
from postroad.store.interface import Store, StoreFull
from postroad.store.memory import open_memory
from postroad.store.records import Event, Shipped, Side
from postroad.store.shipping import Shipper
from tests.store import segments_read as read

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TIMES = st.one_of(
    st.integers(-3, 3).map(lambda us: MIDNIGHT + timedelta(microseconds=us)),
    st.integers(-200_000, 200_000).map(lambda seconds: MIDNIGHT + timedelta(seconds=seconds)),
)
EVENTS = st.builds(
    Event,
    TIMES,
    TEXT,
    st.sampled_from(["sent", "heartbeat", "something new"]),
    st.none() | st.sampled_from(list(Side)),
    st.none() | TEXT,
    bytes=st.none() | st.integers(0, 2**63 - 1),
    payload_digests=st.none() | st.lists(TEXT, max_size=2).map(tuple),
    detail=st.none() | TEXT,
)
STEPS = st.one_of(
    st.lists(EVENTS, max_size=12),
    st.sampled_from(["ship", "ship all", "die before it is noted", "start anew"]),
)


class Forgetful(Shipper):
    """Dies between the segment and the note."""

    async def _note(self, before: Shipped, now: Shipped) -> bool:
        raise StoreFull("no room")


async def play(store: Store, folder: Path, steps: list[list[Event] | str], size: int) -> None:
    shipper = Shipper(store, folder, size=size)
    for step in [*steps, "ship all"]:
        if isinstance(step, list):
            await store.run(lambda tx, step=step: tx.record(step))  # type: ignore[misc]
        elif step == "start anew":
            shipper.close()
            shipper = Shipper(store, folder, size=size)
        elif step == "die before it is noted":
            dying = Forgetful(store, folder, size=size)
            try:
                await dying.ship(everything=True)
            except StoreFull:
                dying.close()
        else:
            await shipper.ship(everything=step == "ship all")
    shipper.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=6), st.sampled_from([80, 240, 10_000]))
def test_the_segments_are_the_journal(steps: list[list[Event] | str], size: int) -> None:
    async def story(folder: Path) -> None:
        store = await open_memory(folder, "station")
        await play(store, folder, steps, size)
        journal = await store.look(lambda reader: reader.journal(0, 1000))
        assert read.journal(folder) == journal
        for path in read.files(folder):
            there = read.events(path)
            assert {f"date={one.event.at:%Y-%m-%d}" for one in there} == {path.parent.name}
            assert len(there) <= size // 80
            assert path.name == f"station-1-{there[0].seq:020}.parquet"
        assert verify(folder).findings == ()
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder)))
