"""A node that ships its journal while it runs."""

import asyncio
import contextlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroad.api.metrics import metrics_text
from postroad.api.workers import serve
from postroad.node import shipping
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.node import Node
from postroad.node.settings.can_ship import check_shipping
from postroad.node.settings.config import ConfigError, load_config
from postroad.store.chain import verify
from postroad.store.records import Recorded
from postroad.store.shipping import Shipper
from postroad.store.sqlite import open_sqlite
from tests.store import segments_read as read
from tests.store.samples import START

PMODE = """
id: orders
mep: oneWay
mep_binding: push
initiator: {party: urn:x:us, role: buyer}
responder: {party: urn:x:them, role: seller}
legs:
  - protocol: {address: "http://127.0.0.1:9/msh"}
    business_info: {service: urn:x:trade, action: order}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A node whose journal goes to the folder `journal` beside it."""
    settings = "journal: {ship_to: journal, segment_age: PT1H}"
    (tmp_path / "pmodes").mkdir()
    (tmp_path / "pmodes" / "orders.yaml").write_text(PMODE)
    (tmp_path / "postroad.yaml").write_text(
        f"node: station\nparty: urn:x:us\nlisten: {{serve: msh}}\n{settings}\n"
    )
    return tmp_path


@contextlib.asynccontextmanager
async def running(folder: Path, **given: Any) -> AsyncIterator[Node]:
    config = load_config(folder / "postroad.yaml")
    node = Node(config, await open_sqlite(config.data, config.node), **given)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def journal(folder: Path) -> list[Recorded]:
    store = await open_sqlite(folder / "data", "station")
    try:
        return await store.look(lambda reader: reader.journal(0, 1000))
    finally:
        await store.close()


async def becomes(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


def set_age(folder: Path, age: str) -> None:
    file = folder / "postroad.yaml"
    file.write_text(file.read_text().replace("PT1H", age))


def test_a_node_that_stops_has_shipped_everything(folder: Path) -> None:
    async def story() -> None:
        for _ in range(2):
            async with running(folder):
                pass
        assert read.journal(folder / "journal") == await journal(folder)

    asyncio.run(story())
    assert len(read.files(folder / "journal")) == 2
    assert verify(folder / "journal").findings == ()


def test_what_gets_old_is_shipped_while_the_node_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "LOOK", 0.01)
    set_age(folder, "PT0.05S")

    async def story() -> None:
        async with running(folder) as node:
            await becomes(lambda: len(read.files(folder / "journal")) == 1)
            await node._upkeep.heartbeat()
            await becomes(lambda: len(read.files(folder / "journal")) == 2)

    asyncio.run(story())


def test_only_what_is_full_is_shipped_before_its_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "LOOK", 0.01)
    file = folder / "postroad.yaml"
    file.write_text(file.read_text().replace("journal,", "journal, segment_size: 160 B,"))

    async def story() -> None:
        async with running(folder) as node:
            for _ in range(4):
                await node._upkeep.heartbeat()
            await becomes(lambda: len(read.files(folder / "journal")) == 2)
        assert [len(read.events(path)) for path in read.files(folder / "journal")] == [2, 2, 1]

    asyncio.run(story())


def test_shipped_events_are_removed_when_their_time_is_over(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What another place has not got stays, and the log says whose fault that is."""
    times = [datetime.now(UTC)]

    async def story() -> None:
        async with running(folder, clock=lambda: times[0]) as node:
            store, upkeep = node.context.store, node._upkeep
            for _ in range(3):
                await upkeep.heartbeat()
            elsewhere = Shipper(store, folder / "elsewhere")
            await elsewhere.ship(everything=True)
            elsewhere.close()
            await upkeep.heartbeat()
            whole = await journal(folder)
            times[0] += timedelta(days=100)
            await upkeep.heartbeat()
            assert await upkeep.purge_events() == 0
            assert node._shipping is not None
            await node._shipping.ship(everything=True)
            assert await upkeep.purge_events() == 4
            assert str(folder / "elsewhere") in caplog.records[-1].__dict__["detail"]
            await store.run(lambda tx: tx.forget_shipped(str(folder / "elsewhere")))
            assert await upkeep.purge_events() == 1
            whole += (await journal(folder))[-1:]
            await upkeep.heartbeat()
            whole += (await journal(folder))[-1:]
        assert await journal(folder) == whole[-2:]
        assert read.journal(folder / "journal") == whole

    asyncio.run(story())
    assert verify(folder / "journal").findings == ()


def test_only_the_process_that_leads_ships(folder: Path) -> None:
    async def story() -> None:
        async with running(folder, leads=False) as node:
            await node._upkeep.heartbeat()

    asyncio.run(story())
    assert not (folder / "journal").exists()


def test_without_the_setting_nothing_is_shipped(folder: Path) -> None:
    (folder / "postroad.yaml").write_text("node: station\nparty: urn:x:us\nlisten: {serve: msh}\n")

    async def story() -> None:
        async with running(folder):
            pass

    asyncio.run(story())
    assert {path.name for path in folder.iterdir()} == {"postroad.yaml", "pmodes", "data"}


def test_a_place_that_cannot_be_written_is_told_and_counted_and_nothing_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shipping, "LOOK", 0.01)
    set_age(folder, "PT0.05S")
    (folder / "journal").write_text("in the way")

    async def story() -> None:
        async with running(folder) as node:
            failures = "postroad_journal_shipping_failures_total"
            await becomes(lambda: node.metrics().get(failures, 0) >= 2)
            (folder / "journal").unlink()
            await becomes(lambda: "postroad_journal_shipped_seq" in node.metrics())
            text = metrics_text(node.metrics(), await node.health(), "1")
            assert "\npostroad_journal_shipped_seq 1\n" in text
        assert read.journal(folder / "journal") == await journal(folder)

    asyncio.run(story())
    told = [one for one in caplog.records if one.message == "the journal is not shipped"]
    assert told[0].levelno == logging.ERROR
    assert "is shipped then" in told[0].__dict__["detail"]


def test_a_place_that_does_not_answer_does_not_keep_the_node_from_stopping(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hanging(*_: object, **__: object) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(shipping, "LAST", 0.05)
    monkeypatch.setattr(Shipper, "ship", hanging)

    async def story() -> None:
        async with running(folder):
            pass
        assert len(await journal(folder)) == 1

    asyncio.run(story())
    assert "the journal is shipped on at the next start" in caplog.text


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """A library is not installed."""
    found = importlib.util.find_spec

    def spec(name: str) -> Any:
        return None if name == missing else found(name)

    monkeypatch.setattr(importlib.util, "find_spec", spec)


def test_without_the_libraries_a_node_that_should_ship_does_not_start_and_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "pyarrow")
    with pytest.raises(ConfigError) as told:
        serve(folder / "postroad.yaml")
    assert str(told.value).count("\n") == 0
    assert "postroad.yaml:4: journal.ship_to:" in str(told.value)
    assert "pip install 'postroad[lake]'" in str(told.value)


@pytest.mark.parametrize("there", [True, False])
def test_a_new_node_ships_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if not there:
        without(monkeypatch, "fsspec")
    buyer = Station("buyer", tmp_path / "buyer", 18080)
    initialize(Plan(buyer, Station("seller", tmp_path / "seller", 18081)), now=START)
    config = load_config(tmp_path / "buyer" / "postroad.yaml")
    assert config.journal.ship_to == (str(tmp_path / "buyer" / "journal") if there else None)
    check_shipping(config)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("journal", "{folder}/journal"),
        ("/srv/journal", "/srv/journal"),
        ("s3://lake/journal", "s3://lake/journal"),
        ("file:///srv/journal", "file:///srv/journal"),
    ],
)
def test_a_folder_is_relative_to_the_file_and_a_url_is_a_url(
    folder: Path, written: str, meant: str
) -> None:
    file = folder / "postroad.yaml"
    file.write_text(file.read_text().replace("ship_to: journal", f"ship_to: '{written}'"))
    assert load_config(file).journal.ship_to == meant.format(folder=folder)
