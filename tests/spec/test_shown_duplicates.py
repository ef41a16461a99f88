"""Duplicates, acknowledgments and what comes first: one node's walk in, with a real store."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest

from postroad.store.interface import Store, StoreFull
from postroad.store.records import Side
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties, run
from tests.transport.wires import in_loop, read_request, talking

ORDER: Final = ("application/xml", b"<order>paper</order>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("parties")
    make_parties(made)
    return made


Scenario = Callable[[Exchange], Awaitable[None]]


@pytest.fixture
def exchanged(folder: Path, tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario with fresh stores for both parties."""

    async def whole(scenario: Scenario) -> None:
        stores: dict[str, Store] = {
            name: await open_sqlite(tmp_path / name, name) for name in (BUYER, SELLER)
        }
        try:
            await scenario(Exchange(folder, stores))
        finally:
            for store in stores.values():
                await store.close()

    return lambda scenario: run(whole(scenario))


async def events(exchange: Exchange, message_id: str) -> list[str]:
    store = exchange.contexts[SELLER].store
    return [one.event.event for one in await store.look(lambda r: r.events(message_id))]


@pytest.mark.req(
    "OV004-1-10",
    "OV004-1-11",
    "RM000-1.3.1.2-01",
    "RM000-1.3.1.2-05",
    "RM000-1.3.1.2-06",
    "RM000-1.3.1.2-08",
    "RM000-1.3.2-04",
    "RM000-1.3.2-05",
    "MS098-10.3.1.2-03",
    "MS098-10.3.1.2-08",
    "MS098-10.3.1.5-05",
    "MS098-10.3.1.5-06",
)
def test_a_duplicate_is_delivered_once_and_answered_as_the_first(
    exchanged: Callable[[Scenario], None],
) -> None:
    async def scenario(exchange: Exchange) -> None:
        message = await exchange.send("twice@buyer", ORDER)
        first = await exchange.receive(message)
        exchange.clock.wait(5)
        second = await exchange.receive(message)
        assert b"Receipt>" in first.body
        assert b"twice@buyer" in first.body
        assert (second.status, second.body) == (first.status, first.body)
        other = await exchange.receive(await exchange.send("another@buyer", ORDER))
        assert b"another@buyer" in other.body
        told = await events(exchange, "twice@buyer")
        assert (told.count("delivered"), told.count("duplicate")) == (1, 1)
        store = exchange.contexts[SELLER].store
        sent = await store.look(lambda r: r.signals(Side.RECEIVING, "twice@buyer"))
        assert len([one for one in sent if not one.incoming]) == 1

    exchanged(scenario)


@pytest.mark.req("OV004-1-05", "OV004-1-01", "RM000-1.3.1-02")
def test_a_receipt_is_given_only_for_what_is_stored(
    exchanged: Callable[[Scenario], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(exchange: Exchange) -> None:
        message = await exchange.send("stored@buyer", ORDER)
        store = exchange.contexts[SELLER].store

        async def full(_step: object) -> None:
            raise StoreFull("no room")

        with monkeypatch.context() as broken:
            broken.setattr(store, "run", full)
            refused = await exchange.receive(message)
        assert refused.status == 503
        assert b"Receipt>" not in refused.body
        given = await exchange.receive(message)
        assert b"Receipt>" in given.body
        # Another connection sees only what was committed.
        file = tmp_path / SELLER / "postroad.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as beside:
            found = beside.execute(
                "SELECT count(*) FROM messages WHERE message_id = 'stored@buyer'"
            ).fetchone()
        assert found == (1,)

    exchanged(scenario)


@pytest.mark.req("P2-6.3.1-01", "P2-6.3.2-01", "P2-6.3.2-02")
@in_loop
async def test_the_next_post_waits_for_the_status_of_the_one_before() -> None:
    early: list[bytes] = []
    posted = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal posted
        while posted < 3:
            await read_request(reader)
            posted += 1
            with suppress(TimeoutError):
                early.append(await asyncio.wait_for(reader.read(1), 0.1))
            writer.write(b"HTTP/1.1 202 -\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

    async with talking(talk) as url, HttpClient(per_host=1) as client:
        order = Outgoing(url, "text/xml", b"<order/>")
        # Only a server that has kept its connection open could be sent several at once.
        first = await client.post(order)
        replies = [first, *await asyncio.gather(client.post(order), client.post(order))]
    assert [one.status for one in replies] == [202] * 3
    assert posted == 3
    assert not early
