"""Nodes that speak ebXML over HTTP and mail, in this process, with sockets like everybody's."""

import asyncio
import shutil
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import uvloop
import yaml

from postroad.api.async_client import AsyncClient
from postroad.api.client_values import Event, Message
from postroad.api.running import RunningNode
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.settings.config import load_config
from tests.ports import free_port

HOST: Final = "127.0.0.1"
_LOOK_AGAIN: Final = 0.05
_ENDS: Final = ("acknowledged", "failed", "in_doubt", "expired")
TOKEN: Final = "the-token-of-a-node-in-these-tests"
NAMED_BY_MESSAGES: Final = {
    "callback_hosts": [HOST, "*.example"],
    "callback_networks": ["127.0.0.0/8"],
}
"""Partners of these tests may name their addresses in their messages alone."""
PATIENCE: Final = 60.0
"""Seconds after which a test is taken to hang."""
SOON: Final = {"max_retries": 20, "period": "PT0.3S"}
"""Retries that lose no time."""
CPA: Final = "urn:example:cpa:1"
_SOME: Final = 1000
"""So many bytes are a greeting and the beginning of a mail."""
_LAST: Final = b"\r\n.\r\n"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, PATIENCE))


@dataclass
class Talk:
    """What both ends of a connection said."""

    up: bytes = b""
    down: bytes = b""


class Line:
    """A line to a port: its connections fail as a test says, one after the other; then none does.

    `refused`: nobody is there. `cut`: it breaks in the middle of a mail. `unheard`: the mail
    arrives, and the answer to it does not.
    """

    def __init__(self, target: int, *fates: str) -> None:
        self.port = free_port()
        self.failed = 0
        self.talks: list[Talk] = []
        """What was said on each connection that was not refused."""
        self._target = target
        self._fates = deque(fates)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, HOST, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hang_up(self) -> None:
        """End all connections; new ones can be made."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        fate = self._fates.popleft() if self._fates else "fine"
        self.failed += fate != "fine"
        try:
            if fate != "refused":
                await self._carry(fate, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(
        self, fate: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, onward = await asyncio.open_connection(HOST, self._target)
        talk = Talk()
        self.talks.append(talk)

        async def up() -> None:
            while piece := await reader.read(65536):
                if fate == "cut" and len(talk.up) + len(piece) > _SOME:
                    return
                talk.up += piece
                onward.write(piece)
                await onward.drain()

        async def down() -> None:
            while piece := await there.read(65536):
                if fate == "unheard" and _LAST in talk.up:
                    return
                talk.down += piece
                writer.write(piece)
                await writer.drain()

        ways = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            onward.transport.abort()


@dataclass
class Company:
    """A party with a node: where it listens, and what it agreed on."""

    name: str
    folder: Path
    http: int = field(default_factory=free_port)
    smtp: int = field(default_factory=free_port)
    line: int | None = None
    """Where its partners find it, if not at its own door."""
    settings: dict[str, Any] = field(default_factory=dict)
    mail: dict[str, Any] = field(default_factory=dict)
    pmodes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def party(self) -> str:
        return f"urn:example:{self.name}"

    @property
    def url(self) -> str:
        """Where partners reach it: its door, or the line before that."""
        return f"http://{HOST}:{self.line or self.http}/msh"

    @property
    def mailbox(self) -> str:
        return f"msh@{self.name}.example"

    @property
    def mailto(self) -> str:
        return f"mailto:{self.mailbox}"

    def mails_through(self, port: int, **relay: Any) -> None:
        """Hand what goes by mail to whoever listens there."""
        self.mail["relay"] = {"host": HOST, "port": port, "starttls": "never"} | relay

    def write(self) -> Path:
        """Its files."""
        (self.folder / "pmodes").mkdir(parents=True, exist_ok=True)
        agreed = yaml.safe_dump({"pmodes": self.pmodes}, sort_keys=False)
        (self.folder / "pmodes" / "all.yaml").write_text(agreed)
        settings = {
            "node": self.name,
            "party": self.party,
            "listen": [{"address": f"{HOST}:{self.http}", "public_url": self.url}],
            "mail": {"address": self.mailbox, "listen": f"{HOST}:{self.smtp}"} | self.mail,
            "send": {"breaker": {"failures": 0}},
            "api": {"token_file": "api.token"},
            "security": {"egress": NAMED_BY_MESSAGES},
        }
        (self.folder / "api.token").write_text(TOKEN)
        file = self.folder / "postroad.yaml"
        file.write_text(yaml.safe_dump(settings | self.settings))
        return file


def make_keys(first: Company, second: Company) -> None:
    """Keys for both, to sign with and for TLS, by one authority."""
    stations = [Station(one.name, one.folder, one.http) for one in (first, second)]
    initialize(Plan(stations[0], stations[1], tls=True), now=datetime.now(UTC))
    for one in (first, second):
        shutil.rmtree(one.folder / "pmodes")
        one.settings["keys"] = {"signing": f"keys/{one.name}.p12"}


def speaks(
    at: Iterable[Company],
    name: str,
    sender: Company,
    receiver: Company,
    address: str,
    *,
    retry: dict[str, Any] | None = None,
    reply_to: str | None = None,
    signed: bool = False,
    **ebxml: Any,
) -> None:
    """A P-Mode that some have: `sender` sends to `receiver`, by way of an address."""
    leg: dict[str, Any] = {"protocol": {"address": address}, "ebxml": ebxml}
    if not ebxml.get("relay"):
        leg["business_info"] = {"service": "urn:example:trade", "action": "Order"}
    if ebxml.get("delivery_semantics") == "OnceAndOnlyOnce":
        leg["reception_awareness"] = {"retry": {"parameters": retry or SOON}}
    receipt = {} if reply_to is None else {"reply_to": reply_to}
    if signed:
        receipt["certificate"] = f"../keys/{receiver.name}.pem"
        signature = {"certificate": f"../keys/{sender.name}.pem"}
        leg["security"] = {"x509": {"sign": True, "signature": signature}}
    if receipt:
        leg.setdefault("security", {})["send_receipt"] = receipt
    pmode = {
        "id": name,
        "agreement": CPA,
        "initiator": {"party": sender.party},
        "responder": {"party": receiver.party},
        "legs": [leg],
    }
    for one in at:
        one.pmodes.append(pmode)


@dataclass
class Running:
    """A node that runs, as its application sees it; and its journal."""

    company: Company
    node: RunningNode
    client: AsyncClient

    async def events(self, message_id: str) -> tuple[Event, ...]:
        return await self.client.events(message_id)

    async def story(self, message_id: str) -> list[str]:
        return [one.event for one in await self.events(message_id)]

    async def journal(self, *names: str) -> list[Any]:
        """All events of these names, about whatever."""
        rows = await self.node.node.context.store.look(lambda reader: reader.journal(0, 100_000))
        return [one.event for one in rows if one.event.event in names]

    async def delivered(self) -> list[str]:
        """What the application got, in the order in which it got it."""
        return [one.message_id for one in await self.journal("delivered")]

    async def comes_to(self, message_id: str, state: str) -> Message:
        """The message once it is there."""
        while True:
            found = await self.client.status(message_id)
            if found.state == state:
                return found
            assert found.state not in _ENDS, f"{message_id} is {found.state}: {found.detail}"
            await asyncio.sleep(_LOOK_AGAIN)

    async def inbox(self) -> list[str]:
        return [one.message_id async for one in self.client.inbox()]


@asynccontextmanager
async def running(*companies: Company) -> AsyncIterator[list[Running]]:
    """Their nodes, until the block is left."""
    async with AsyncExitStack() as stack:
        found = []
        for one in companies:
            node = await stack.enter_async_context(RunningNode(load_config(one.write())))
            url = node.serving.api_url or ""
            client = await stack.enter_async_context(AsyncClient(url, token=TOKEN))
            found.append(Running(one, node, client))
        yield found
