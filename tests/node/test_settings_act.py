"""Settings do what they say."""

import stat
from pathlib import Path

import pytest

from postroad.store.memory import open_memory
from postroad.store.records import Side, State
from postroad.store.sqlite import open_sqlite
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties, run


@pytest.mark.parametrize(("skew", "taken"), [("PT1M", False), ("PT5M", True)])
def test_a_message_may_come_from_a_clock_that_is_ahead_as_far_as_is_said(
    tmp_path: Path, skew: str, taken: bool
) -> None:
    make_parties(tmp_path)
    config = tmp_path / SELLER / "postroad.yaml"
    config.write_text(config.read_text() + f"\nclock_skew: {skew}\n")

    async def scenario() -> State | None:
        stores = {name: await open_memory(tmp_path, name) for name in (BUYER, SELLER)}
        exchange = Exchange(tmp_path, stores)
        message = await exchange.send("early@buyer.example", ("text/plain", b"hello"))
        exchange.clock.wait(-120)
        await exchange.receive(message)
        kept = await stores[SELLER].look(lambda r: r.message(Side.RECEIVING, message.message_id))
        return kept.state if kept else None

    assert run(scenario()) is (State.DELIVERED if taken else State.REJECTED)


def test_what_a_node_keeps_is_nobody_elses_business(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    async def opened() -> None:
        store = await open_sqlite(folder, "buyer")
        await store.close()

    run(opened())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
