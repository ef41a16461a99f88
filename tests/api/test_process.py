"""One of several processes of a node: whose work it takes up, and what it counts."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroad.api.process import Place, Process, SharedCounters, forget_counters
from postroad.node.settings.config import Config
from postroad.store.interface import Transaction
from postroad.store.records import Work
from postroad.store.sqlite import open_sqlite

NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("place", "free"),
    [
        (Place(0), {"dead", "older", "alive"}),
        (Place(1), set()),
        (Place(0, (123,)), {"dead"}),
        (Place(1, (7, 123)), {"dead", "older"}),
        (Place(1, (12,)), set()),
    ],
    ids=["first", "second", "first again", "second again", "another's"],
)
def test_a_process_takes_up_what_its_predecessors_left(
    tmp_path: Path, place: Place, free: set[str]
) -> None:
    owners = {"dead": "n/123-ab", "older": "n/7-cd", "alive": "n/456-ef"}
    served = {"serve": "msh"}
    config = Config.model_validate(
        {"node": "n", "party": "urn:n", "data": str(tmp_path), "listen": served}
    )

    def claim(tx: Transaction) -> None:
        for name, owner in owners.items():
            tx.add_work(Work("something", name, NOW, owner=owner, lease_until=LATER))

    def claim_rest(tx: Transaction) -> list[Work]:
        return tx.claim_work(("something",), NOW, "me", LATER, 10)

    async def scenario() -> None:
        forget_counters(tmp_path)
        store = await open_sqlite(tmp_path, "n")
        await store.run(claim)
        process = Process(config, store, place)
        await process.start()
        found = await store.run(claim_rest)
        await process.stop()
        assert {work.message_id for work in found} == free

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_whoever_is_asked_counts_for_all(tmp_path: Path) -> None:
    forget_counters(tmp_path)
    first, second = Counter[str](), Counter[str]()
    one, two = SharedCounters(tmp_path, 0, first), SharedCounters(tmp_path, 1, second)
    first["a"] += 2
    second.update(a=3, b=1)
    assert one.total() == {"a": 2}
    two.write()
    assert one.total() == {"a": 5, "b": 1}
    assert two.total() == {"a": 3, "b": 1}


def test_a_successor_counts_on(tmp_path: Path) -> None:
    forget_counters(tmp_path)
    dead = Counter[str]()
    shared = SharedCounters(tmp_path, 1, dead)
    dead["a"] += 2
    shared.write()
    successor = Counter[str]()
    after = SharedCounters(tmp_path, 1, successor)
    successor["a"] += 1
    assert after.total() == {"a": 3}
    assert SharedCounters(tmp_path, 0, Counter()).total() == {"a": 2}
    after.write()
    assert SharedCounters(tmp_path, 0, Counter()).total() == {"a": 3}


def test_a_new_start_counts_from_zero(tmp_path: Path) -> None:
    forget_counters(tmp_path)
    shared = SharedCounters(tmp_path, 0, counter := Counter[str]())
    counter["a"] += 1
    shared.write()
    forget_counters(tmp_path)
    assert SharedCounters(tmp_path, 1, Counter()).total() == {}


def test_half_a_file_counts_nothing(tmp_path: Path) -> None:
    forget_counters(tmp_path)
    (tmp_path / "counters" / "3.json").write_text('{"a": ')
    assert SharedCounters(tmp_path, 0, Counter()).total() == {}
