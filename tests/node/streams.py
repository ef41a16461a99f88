"""A hub that streams, over real sockets: what is before it and behind it is up to the test."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from postroad.api.endpoint import msh_app
from postroad.msh.outbound import WirePart, wire_form
from postroad.node.node import Node
from postroad.node.settings.config import load_config
from postroad.store.memory import MemoryStore
from postroad.transport.http_body import Receive, Scope, Send, body_chunks
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Flow, Outgoing
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Service,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import NEXT_MSH
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from tests.transport.wires import serving

M = "m@buyer"
HERE = "http://127.0.0.1"


def letter(payload: bytes, message_id: str = M, blocks: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """Content-Type and body of a message for the seller."""
    sides = [Party((PartyId(f"urn:example:{one}"),), one) for one in ("buyer", "seller")]
    message = UserMessage(
        MessageInfo(datetime.now(UTC), message_id),
        sides[0],
        sides[1],
        CollaborationInfo(Service("urn:example:trade"), "Order", "talk"),
        part_infos=(PartInfo("cid:order@buyer"),),
    )
    version = SoapVersion.SOAP_12
    block = write_messaging(Messaging((message,), role=NEXT_MSH), version)
    envelope = write_envelope(version, [block, *blocks], write_body(version))
    part = WirePart("order@buyer", "application/octet-stream", BytesContent(payload), None)
    form = wire_form(version, envelope, [part], "=_stream")
    return form.content_type, b"".join(form.pieces())


@dataclass
class Next:
    """The next MSH: what it was sent, by digest, and an answer."""

    status: int = 200
    answer: bytes = b"<receipt/>"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    heads: list[dict[bytes, bytes]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    broken: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.heads.append(dict(scope["headers"]))
        digest = hashlib.sha256()
        try:
            async for piece in body_chunks(receive, limit=1 << 30):
                digest.update(piece)
        except Exception:
            self.broken.set()
            return
        self.digests.append(digest.hexdigest())
        head = [(b"content-type", b"application/soap+xml"), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        await send({"type": "http.response.body", "body": self.answer})


@dataclass
class Hub:
    node: Node
    url: str
    client: HttpClient

    async def post(self, kind: str, body: bytes | Flow, *headers: tuple[str, str]) -> Any:
        return await self.client.post(Outgoing(self.url, kind, body, headers))

    async def story(self, message_id: str = M) -> list[str]:
        return [one.event.event for one in await self.node.events(message_id)]

    async def until(self, event: str, message_id: str = M) -> None:
        while event not in await self.story(message_id):
            await asyncio.sleep(0)


@asynccontextmanager
async def streaming(
    folder: Path, to: Any, *, errors: str | None = None, **settings: Any
) -> AsyncIterator[Hub]:
    """A hub by whose only rule messages for the seller go on; `errors` as in routes.yaml."""
    config = {
        "node": "hub",
        "party": "urn:example:hub",
        "listen": [{"address": "127.0.0.1:0", "serve": ["msh"]}],
    }
    (folder / "postroad.yaml").write_text(yaml.safe_dump(config | settings))
    rule = {"id": "seller", "match": {"to_party": "urn:example:seller"}, "to": to}
    rules = {"routes": [rule]} | ({} if errors is None else {"errors": errors})
    (folder / "routes.yaml").write_text(yaml.safe_dump(rules))
    node = Node(load_config(folder / "postroad.yaml"), MemoryStore("hub"))
    await node.start()
    try:
        async with serving(msh_app(node)) as server, HttpClient() as client:
            yield Hub(node, f"{server.url}/msh", client)
    finally:
        await node.stop()


def flowing(*pieces: bytes, broken: bool = False) -> Flow:
    """A body without a length; `broken`: it never ends."""

    async def read() -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece
        if broken:
            raise ConnectionError("the sender stops")

    return Flow(None, read)
