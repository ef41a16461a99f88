"""Buyer and seller, and the evidence that both have of their messages; made once."""

from pathlib import Path

import pytest

from postroad.store.sqlite import open_sqlite
from tests.node.evidence.zips import PAYLOADS, Made
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties, run


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the two parties agreed on, with their keys."""
    folder = tmp_path_factory.mktemp("parties")
    make_parties(folder)
    return folder


@pytest.fixture(scope="session")
def made(folder: Path) -> Made:
    """Evidence of both sides about two messages of each kind."""

    async def scenario() -> Made:
        stores = {name: await open_sqlite(folder / name / "data", name) for name in (BUYER, SELLER)}
        exchange = Exchange(folder, stores)
        zips = {}
        for kind in ("order", "signed", "plain"):
            for number in (1, 2):
                await exchange.carry(f"{kind}-{number}@buyer.example", *PAYLOADS, kind=kind)
                for party in (BUYER, SELLER):
                    pieces = await exchange.evidence(party, f"{kind}-{number}@buyer.example")
                    zips[party, f"{kind}-{number}"] = b"".join(pieces)
        for store in stores.values():
            await store.close()
        return Made(folder, exchange.authority, zips)

    return run(scenario())
