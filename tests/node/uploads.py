"""A buyer that uploads to a seller over a line that is cut, both real nodes on real sockets."""

import asyncio
import hashlib
import random
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from postroad.api.endpoint import msh_app
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.store.interface import Store
from postroad.store.memory import MemoryStore
from postroad.store.records import Message, Side, State, Wanted
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_body import ASGIApp, Receive, Scope, Send
from postroad.transport.http_limits import ServerLimits
from postroad.wire.content import BytesContent
from postroad.wire.limits import MIB
from tests.node.exchange import BUYER, SELLER, make_parties
from tests.transport.lines import Cut, CutLine, line
from tests.transport.wires import serving

PMODE: Final = "buyer-to-seller-signed"
ENCRYPTED: Final = "buyer-to-seller-order"
PAYLOAD: Final = random.Random(6).randbytes(3 * MIB // 2)
M: Final = "large@buyer.example"
ONE_REQUEST: Final = ServerLimits(requests_per_connection=1)
"""So that each request meets the cut that is meant for it."""
AGAIN: Final = {"max_retries": 8, "period": "PT0.05S"}


def agreed(
    folder: Path,
    pmode: str,
    restart: Any,
    address: str | None = None,
    *,
    gzip: bool = False,
    split: tuple[str, str] | None = None,
) -> None:
    """Write into a party's P-Mode whether uploads go on, where to, and what they are.

    `split`: the size of fragments, and where receipts go.
    """
    path = folder / "pmodes" / f"{pmode}.yaml"
    said = yaml.safe_load(path.read_text())
    [leg] = said["legs"]
    leg["protocol"]["restart"] = restart
    if address is not None:
        leg["protocol"]["address"] = address
    leg["reception_awareness"]["retry"]["parameters"] = AGAIN
    if not gzip:
        leg.pop("payload_service", None)
    if split is not None:
        size, back = split
        leg["splitting"] = {"fragment_size": size, "join_interval": "PT10M"}
        leg["error_handling"]["report"] = {"receiver_errors_to": back}
        leg["security"]["send_receipt"] |= {"reply_pattern": "callback", "reply_to": back}
    path.write_text(yaml.safe_dump(said))


@dataclass
class Parties:
    buyer: Node
    seller: Node
    line: CutLine
    url: str
    """Of the seller itself."""

    async def send(self, payload: bytes = PAYLOAD, pmode: str = PMODE, name: str = M) -> Message:
        """Submit a message, and wait until it is at rest."""
        given = SubmittedPayload(BytesContent(payload), hashlib.sha256(payload).digest())
        await self.buyer.submit(Submission(pmode, (given,), name))
        found = await self.buyer.settled(name, 20)
        assert found is not None
        return found

    async def delivered(self) -> list[str]:
        """The messages that the seller's application gets."""
        wanted = Wanted(Side.RECEIVING, (State.DELIVERED, State.CONSUMED))
        return [one.message_id for one in await self.seller.messages(wanted)]

    async def payload(self, name: str = M) -> bytes:
        message = await self.seller.message(name, Side.RECEIVING)
        assert message is not None
        return b"".join(self.seller.part(message, message.parts[0]).chunks())


def make(folder: Path) -> Path:
    """The folders of both parties, to be copied."""
    make_parties(folder, datetime.now(UTC))
    return folder


async def a_store(folder: Path, name: str, kind: str) -> Store:
    if kind == "memory":
        return MemoryStore(name)
    return await open_sqlite(folder / name / "data", name)


@asynccontextmanager
async def parties(
    made: Path,
    folder: Path,
    cuts: Iterable[Cut | None] = (),
    *,
    restart: Any = True,
    at_seller: Any = None,
    store: str = "memory",
    pmode: str = PMODE,
    gzip: bool = False,
    fragment: str | None = None,
    **settings: Any,
) -> AsyncIterator[Parties]:
    """Both nodes, with a line between them; `settings` are the seller's."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    config = folder / SELLER / "postroad.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | settings))
    doors: dict[str, ASGIApp] = {}

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        await doors[BUYER](scope, receive, send)

    async with AsyncExitStack() as stack:
        back = await stack.enter_async_context(serving(door))
        split = None if fragment is None else (fragment, f"{back.url}/msh")
        told = restart if at_seller is None else at_seller
        agreed(folder / SELLER, pmode, told, gzip=gzip, split=split)
        seller = Node(load_config(config), await a_store(folder, SELLER, store))
        await seller.start()
        server = await stack.enter_async_context(serving(msh_app(seller), ONE_REQUEST))
        cutting = await stack.enter_async_context(line(server.port, cuts))
        agreed(folder / BUYER, pmode, restart, f"{cutting.url}/msh", gzip=gzip, split=split)
        buyer = Node(
            load_config(folder / BUYER / "postroad.yaml"), await a_store(folder, BUYER, store)
        )
        doors[BUYER] = msh_app(buyer)
        await buyer.start()
        try:
            yield Parties(buyer, seller, cutting, server.url)
        finally:
            await buyer.stop()
            await seller.stop()


async def until(condition: Any) -> None:
    """Wait for something that another task does."""
    while not condition():
        await asyncio.sleep(0)
