"""Scripts that run the product, and recordings of what it did: the kit of the conformance tests.

A `Script` is data: what buyer, carrier and seller agree on, and what happens to them, step by step.
`record` runs it on nodes with a virtual clock and returns a `Recording`: every message on the wire
with its time, what became of each message, inboxes, journals and notices. A script is run once,
however many tests look at its recording:

    ORDER = Script(
        terms=(Ebxml(version="0.98b", delivery_semantics="OnceAndOnlyOnce"),),
        steps=(Network(SELLER, lost), Send("m@buyer.example"), Wait(20)),
    )

    @pytest.mark.req("MS098-8.4.1-01")
    def test_from_names_the_originating_party() -> None:
        assert record(ORDER).sent_by(BUYER)[0].text("eb:MessageHeader/eb:From/eb:PartyId") == ...

For the many requirements that ask for one thing in one message there are tables: `shows` makes a
row of requirement ids, script, message, XPath and expected value; `check` checks it. A row reads
like the sentence of the specification. Tests that need more than a script are coroutines with a
`World` (tests/node/reliable.py); `wire` gives them the same view of their messages.
"""

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message as MimePart
from email.parser import BytesParser
from email.policy import HTTP
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import pytest
from lxml import etree

from postroad.store.records import Event, Message, Notice, Side
from tests.node.reliable import (
    BUYER,
    CARRIER,
    ORDER,
    ORDERS,
    SELLER,
    Answering,
    Exchanged,
    Station,
    World,
    address,
    lost,
    passed,
    played,
    refused,
    reply_lost,
    status,
)

__all__ = [
    "BUYER",
    "CARRIER",
    "ORDER",
    "ORDERS",
    "SELLER",
    "As4",
    "Call",
    "Ebxml",
    "Network",
    "PMode",
    "Post",
    "Recording",
    "Restart",
    "Row",
    "Script",
    "Send",
    "Settings",
    "Start",
    "Stop",
    "Wait",
    "WireMessage",
    "World",
    "address",
    "check",
    "lost",
    "passed",
    "played",
    "record",
    "refused",
    "reply_lost",
    "shows",
    "status",
    "wire",
]

_EBMS3: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
_HEADERS: Final = (
    "http://www.ebxml.org/namespaces/messageHeader",
    "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd",
    _EBMS3,
)
"""The namespaces that the prefix `eb` may stand for; a message uses one of them."""
NAMESPACES: Final[Mapping[str, str]] = {
    "s11": "http://schemas.xmlsoap.org/soap/envelope/",
    "s12": "http://www.w3.org/2003/05/soap-envelope",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
    "xenc": "http://www.w3.org/2001/04/xmlenc#",
    "wsse": "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd",
    "wsu": "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd",
    "wsa": "http://www.w3.org/2005/08/addressing",
    "wsrm": "http://docs.oasis-open.org/ws-rx/wsrm/200702",
    "ebint": "http://docs.oasis-open.org/ebxml-msg/ns/ebms/v3.0/multihop/200902/",
    "mf": "http://docs.oasis-open.org/ebxml-msg/ns/v3.0/mf/2010/04/",
    "ebbp": "http://docs.oasis-open.org/ebxml-bp/ebbp-signals-2.0",
    "rm": "http://www.ebxml.org/namespaces/reliableMessaging",
    "xlink": "http://www.w3.org/1999/xlink",
    "xml": "http://www.w3.org/XML/1998/namespace",
}


@dataclass(frozen=True)
class WireMessage:
    """A request or a response as it stands on the wire, read without the product's code."""

    at: float
    """Seconds since the beginning; of a response, the time of its request."""
    sender: str
    receiver: str
    content_type: str
    body: bytes
    status: int | None = None
    """The HTTP status of a response; None for a request."""
    soap_action: str | None = None

    @cached_property
    def package(self) -> MimePart:
        """The MIME package with its headers, or the only part."""
        head = f"Content-Type: {self.content_type}\r\n\r\n".encode()
        return BytesParser(policy=HTTP).parsebytes(head + self.body)

    @cached_property
    def parts(self) -> list[MimePart]:
        """The parts of the package, the root part first."""
        content = self.package.get_payload()
        return content if isinstance(content, list) else [self.package]

    @cached_property
    def root(self) -> Any:
        """The SOAP envelope."""
        content = self.parts[0].get_payload(decode=True)
        assert isinstance(content, bytes)
        return etree.fromstring(content, etree.XMLParser(resolve_entities=False))

    @cached_property
    def namespaces(self) -> dict[str, str]:
        """The prefixes of `xpath`: `s` and `eb` stand for what this message uses."""
        used = {etree.QName(one).namespace for one in self.root.iter(etree.Element)}
        header = next((one for one in _HEADERS if one in used), _EBMS3)
        return {**NAMESPACES, "s": str(etree.QName(self.root).namespace), "eb": header}

    def xpath(self, path: str) -> Any:
        """Evaluate an XPath; one that starts with a name is searched at any depth."""
        where = path if path[:1] in "/(" or path.startswith(_FUNCTIONS) else f"//{path}"
        return self.root.xpath(where, namespaces=self.namespaces)

    def count(self, path: str) -> int:
        return len(self.xpath(path))

    def text(self, path: str) -> str | None:
        """Return the text of the one element or attribute at a path, None where there is none."""
        found = self.xpath(path)
        if not isinstance(found, list):
            return str(found)
        assert len(found) <= 1, (path, len(found))
        if not found:
            return None
        return found[0].text if isinstance(found[0], etree._Element) else str(found[0])


_FUNCTIONS: Final = ("count(", "string(", "boolean(", "not(", "local-name(", "namespace-uri(")


# What parties agree on


@dataclass(frozen=True)
class Ebxml:
    """An ebXML P-Mode: the arguments of `World.speak`."""

    terms: Mapping[str, Any]

    def __init__(self, name: str = ORDERS, **terms: Any) -> None:
        object.__setattr__(self, "terms", {"name": name, **terms})

    def add(self, world: World) -> None:
        world.speak(**self.terms)


@dataclass(frozen=True)
class As4:
    """An AS4 P-Mode: the arguments of `World.agree`."""

    terms: Mapping[str, Any]

    def __init__(self, name: str = ORDERS, **terms: Any) -> None:
        object.__setattr__(self, "terms", {"name": name, **terms})

    def add(self, world: World) -> None:
        world.agree(**self.terms)


@dataclass(frozen=True)
class PMode:
    """A P-Mode as it stands in a file, at some of the parties."""

    at: Sequence[str]
    content: Mapping[str, Any]

    def add(self, world: World) -> None:
        for name in self.at:
            world.add_pmode(name, dict(self.content))


@dataclass(frozen=True)
class Settings:
    """What a party has in its postroad.yaml besides."""

    at: str
    content: Mapping[str, Any]

    def add(self, world: World) -> None:
        world.configure(self.at, **self.content)


Term = Ebxml | As4 | PMode | Settings


# What happens


@dataclass(frozen=True)
class Start:
    """Start a node. Without such a step all parties start first."""

    name: str

    async def run(self, world: World) -> None:
        await start(world, self.name)


@dataclass(frozen=True)
class Send:
    """The application of a party submits a message."""

    message_id: str
    pmode: str = ORDERS
    by: str = BUYER
    payload: bytes = ORDER
    conversation: str | None = None
    media_type: str = "text/plain"

    async def run(self, world: World) -> None:
        await world.stations[self.by].send(
            self.message_id, self.pmode, self.payload, self.conversation, self.media_type
        )


@dataclass(frozen=True)
class Post:
    """Somebody posts these bytes to a party; the response is part of the recording."""

    to: str
    content_type: str
    body: bytes
    soap_action: str | None = '"ebXML"'
    sender: str = BUYER

    async def run(self, world: World) -> None:
        await world.wire.post(self.sender, self.to, self.content_type, self.body, self.soap_action)


@dataclass(frozen=True)
class Network:
    """What happens to the next requests to a party: `lost`, `reply_lost`, `refused`, `passed`."""

    to: str
    faults: tuple[Answering, ...]

    def __init__(self, to: str, *faults: Answering) -> None:
        object.__setattr__(self, "to", to)
        object.__setattr__(self, "faults", faults)

    async def run(self, world: World) -> None:
        world.wire.will(*self.faults, at=self.to)


@dataclass(frozen=True)
class Wait:
    """Let virtual time pass."""

    seconds: float

    async def run(self, world: World) -> None:
        await world.wait(self.seconds)


@dataclass(frozen=True)
class Restart:
    """Kill a node as with kill -9, and start it again."""

    name: str

    async def run(self, world: World) -> None:
        world.stations[self.name].kill()
        await start(world, self.name)


@dataclass(frozen=True)
class Stop:
    """Stop a node in order."""

    name: str

    async def run(self, world: World) -> None:
        await world.stations[self.name].stop()


@dataclass(frozen=True)
class Call:
    """Whatever else: a coroutine that gets the world."""

    action: Callable[[World], Awaitable[object]]

    async def run(self, world: World) -> None:
        await self.action(world)


Step = Start | Send | Post | Network | Wait | Restart | Stop | Call


async def start(world: World, name: str) -> Station:
    """Start a node that knows its own address, as one that listens does."""
    station = await world.start(name)
    station.node.context.msh_url = address(name)
    return station


@dataclass(frozen=True, eq=False)
class Script:
    """Who agrees on what, and what happens."""

    terms: tuple[Term, ...]
    steps: tuple[Step, ...]
    nodes: tuple[str, ...] = (BUYER, SELLER)
    store: str = "memory"


@dataclass(frozen=True)
class Recording:
    """What came of a script."""

    messages: tuple[WireMessage, ...]
    """Requests, each followed by its response, in the order of the requests."""
    stored: Mapping[tuple[str, str, Side], Message]
    """By node, message id and side."""
    inboxes: Mapping[str, Sequence[str]]
    journals: Mapping[str, Sequence[Event]]
    notices: Mapping[str, Sequence[Notice]] = field(default_factory=dict)

    def requests(
        self, sender: str | None = None, receiver: str | None = None, containing: str = ""
    ) -> list[WireMessage]:
        """Return the requests of a sender to a receiver in which an XPath finds something."""
        return [
            one
            for one in self.messages
            if one.status is None
            and sender in (None, one.sender)
            and receiver in (None, one.receiver)
            and (not containing or bool(one.xpath(containing)))
        ]

    def sent_by(self, sender: str, containing: str = "") -> list[WireMessage]:
        """Return what a node sent, in requests and in responses that have a body."""
        return [
            one
            for one in self.messages
            if one.sender == sender and one.body and (not containing or bool(one.xpath(containing)))
        ]

    def events(self, node: str, message_id: str) -> list[str]:
        """Return the names of what a node's journal says about a message."""
        return [one.event for one in self.journals[node] if one.message_id == message_id]

    def state(self, node: str, message_id: str, side: Side = Side.SENDING) -> str:
        return self.stored[node, message_id, side].state.value


@cache
def record(script: Script) -> Recording:
    """Run a script, once, and return what came of it."""
    found: list[Recording] = []

    @played
    async def run(world: World) -> None:
        world.kept_in = script.store
        for term in script.terms:
            term.add(world)
        if not any(isinstance(step, Start) for step in script.steps):
            for name in script.nodes:
                await start(world, name)
        for step in script.steps:
            await step.run(world)
        found.append(await _recorded(world))

    with tempfile.TemporaryDirectory(prefix="postroad-script-") as folder:
        run(tmp_path=Path(folder))
    return found[0]


async def _recorded(world: World) -> Recording:
    stored: dict[tuple[str, str, Side], Message] = {}
    inboxes, journals, notices = {}, {}, {}
    for name, station in world.stations.items():
        store = station.node.context.store
        rows = await store.look(lambda reader: reader.journal(0, 100_000))
        journals[name] = [one.event for one in rows]
        inboxes[name] = await station.inbox()
        notices[name] = list(await station.node.notices())
        for event in journals[name]:
            for side in Side:
                if event.message_id is None:
                    continue
                message = await station.node.message(event.message_id, side)
                if message is not None:
                    stored[name, event.message_id, side] = message
    return Recording(tuple(wire(world)), stored, inboxes, journals, notices)


def wire(world: World) -> list[WireMessage]:
    """Return everything that went over the wire of a world, requests and responses."""
    return [message for one in world.wire.exchanged for message in _messages(one)]


def _messages(one: Exchanged) -> list[WireMessage]:
    posted, reply = one.posted, one.reply
    request = WireMessage(
        posted.at,
        posted.sender,
        posted.receiver,
        posted.content_type,
        posted.body,
        soap_action=posted.soap_action,
    )
    if reply is None:
        return [request]
    response = WireMessage(
        posted.at, posted.receiver, posted.sender, reply.content_type, reply.body, reply.status
    )
    return [request, response]


# Tables


@dataclass(frozen=True)
class Row:
    """One thing that a requirement asks for in messages of a recording."""

    script: Script
    sender: str
    containing: str
    path: str
    expected: object


def shows(
    ids: str,
    script: Script,
    path: str,
    expected: object,
    *,
    sender: str = BUYER,
    containing: str = "",
    name: str | None = None,
) -> Any:
    """Make a row: in what `sender` sends, `path` gives `expected`, for all messages that match.

    `expected` is a number of nodes, a text, a list of texts, or a function of what XPath returns.
    """
    row = Row(script, sender, containing, path, expected)
    return pytest.param(row, id=name or f"{ids} {path}", marks=pytest.mark.req(*ids.split()))


def check(row: Row) -> None:
    """Check a row on every message that it is about; there must be at least one."""
    messages = record(row.script).sent_by(row.sender, row.containing)
    assert messages, "the script made no such message"
    for message in messages:
        found = message.xpath(row.path)
        if callable(row.expected):
            assert row.expected(found), (row.path, found)
        elif isinstance(row.expected, bool | float):
            assert found == row.expected, (row.path, found)
        elif isinstance(row.expected, int):
            assert (len(found) if isinstance(found, list) else found) == row.expected, row.path
        else:
            texts = [one.text if isinstance(one, etree._Element) else str(one) for one in found]
            wanted = [row.expected] if isinstance(row.expected, str) else row.expected
            assert texts == wanted, (row.path, texts)
