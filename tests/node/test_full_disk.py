"""A node on a full disk: it starts, lists, acknowledges and purges, and goes on by itself."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroad.api.metrics import metrics_text
from postroad.node.node import Node
from postroad.node.settings.config import load_config
from postroad.store.interface import StoreFull
from postroad.store.records import Message, Side, State, Wanted
from postroad.store.sqlite import open_sqlite
from postroad.wire.limits import MIB
from tests.store.quota import RESERVE, Quota
from tests.store.samples import START, adding


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> Quota:
    return Quota(monkeypatch)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Node]:
    file = folder / "postroad.yaml"
    file.write_text("node: station\nparty: urn:x:us\nlisten: {serve: msh}\n")
    config = load_config(file)
    node = Node(config, await open_sqlite(config.data, config.node, reserve=RESERVE))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def sent(node: Node, name: str) -> None:
    """A message that was acknowledged long ago."""
    message = Message(Side.SENDING, name, State.ACKNOWLEDGED, START, START)
    await node.context.store.run(lambda tx: tx.add_message(message))


def test_a_full_disk_lets_applications_acknowledge_and_operators_purge(
    tmp_path: Path, quota: Quota
) -> None:
    async def story() -> None:
        async with running(tmp_path) as node:
            store = node.context.store
            for name in ("m1", "m2"):
                await store.run(adding(name))
            await sent(node, "s1")
            quota.fill()
            assert (await node.acknowledge("m1")).state is State.CONSUMED
            assert await node.acknowledge_all(Wanted()) == 1
            assert await node.purge(0) == 3
            assert await node.message("s1", Side.SENDING) is None
            with pytest.raises(StoreFull):
                await store.run(adding("m3"))
            quota.make_room()
            await store.run(adding("m3"))
            assert (await node.health()).ready

    asyncio.run(story())


def test_a_node_that_was_stopped_starts_on_a_full_disk(
    tmp_path: Path, quota: Quota, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running(tmp_path) as node:
            await node.context.store.run(adding("m1"))
            await sent(node, "s1")
        quota.fill()
        async with running(tmp_path) as node:
            assert "started with a full disk" in caplog.text
            health = await node.health()
            assert not health.ready
            assert "only lists, acknowledges and purges" in health.problems[0]
            assert (await node.acknowledge("m1")).state is State.CONSUMED
            assert await node.purge(0) == 2
            quota.make_room()
            assert (await node.health()).ready
            await node.context.store.run(adding("m2"))

    asyncio.run(story())


def test_a_node_warns_before_the_disk_is_full(
    tmp_path: Path, quota: Quota, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        async with running(tmp_path) as node:
            assert (await node.health()).problems == ()
            quota.room = 200 * MIB + RESERVE
            for _ in range(3):
                await node._upkeep.watch_disk()
            health = await node.health()
            assert health.ready
            [problem] = health.problems
            assert f"Only 200 MiB are free on the disk of {tmp_path / 'data'}" in problem
            text = metrics_text(node.metrics(), health, "1")
            assert f"postroad_store_free_bytes {200 * MIB}" in text.splitlines()
            quota.make_room()
            await node._upkeep.watch_disk()
            assert (await node.health()).problems == ()

    asyncio.run(story())
    told = [one.message for one in caplog.records if "the disk" in one.message]
    assert told == ["the disk is almost full", "the disk has enough room again"]
