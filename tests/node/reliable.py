"""Nodes on time that is made up, over a network that does what a test says.

A test is a coroutine with a `World`: it lets parties agree on something, starts their nodes, says
how the network answers, lets time pass, and looks at what was posted, recorded and told.
"""

import asyncio
import functools
import hashlib
import inspect
import json
import random
import shutil
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import patch
from urllib.parse import urlsplit

from postroad.msh.answers import error, write_answer
from postroad.node import upkeep
from postroad.node.base.requests import STATIONS
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.node.walks.receiving import Request, Response
from postroad.security.egress import Purpose
from postroad.store import commits
from postroad.store.interface import Store, StoreError, Transaction
from postroad.store.records import Event, Message, Notice, Side, State, Wanted
from postroad.store.sqlite import SqliteStore
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, TransportFailure
from postroad.wire.content import BytesContent
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion
from tests.node.auditing import audit, of_signal
from tests.node.founding import BUYER, SELLER, found
from tests.node.staging import Hand, Memory, watched
from tests.sim.loop import Process, VirtualLoop

T = TypeVar("T")

BEGIN: Final = datetime(2024, 6, 1, 12, tzinfo=UTC)
CARRIER = "carrier"
ORDERS: Final = "orders"
ORDER: Final = b"<order>paper</order>"
LARGE: Final = b"paper " * 200_000
"""Above the size up to which a message is packaged while the application waits."""
SOAP: Final = "application/soap+xml; charset=UTF-8"
STORES: Final = ("memory", "sqlite")


class Clock:
    """The time as a node sees it; somebody may set it."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return BEGIN + timedelta(seconds=asyncio.get_running_loop().time()) + self.ahead


@dataclass(frozen=True)
class Posted:
    """A request as the network sees it."""

    at: float
    """Seconds since the test began."""
    sender: str
    receiver: str
    content_type: str
    body: bytes
    soap_action: str | None = None
    stations: str | None = None
    pipelined: bool = False
    purpose: Purpose = Purpose.PARTNER

    @property
    def told(self) -> dict[str, Any]:
        """Of a call to a webhook."""
        read: dict[str, Any] = json.loads(self.body)
        return read


@dataclass(frozen=True)
class Exchanged:
    """A request and the response that its sender got, if it got one."""

    posted: Posted
    reply: Reply | None


Answering = Callable[["World", Posted], Awaitable[Reply]]


def _failure(reason: str, transmitted: bool) -> TransportFailure:
    return TransportFailure(
        "timeout" if transmitted else "refused", reason, transmitted=transmitted
    )


async def passed(world: "World", posted: Posted) -> Reply:
    """The partner gets it, and its answer comes back."""
    if posted.receiver not in world.stations:
        raise _failure("nobody listens", False)
    station = world.stations[posted.receiver]
    response = await station.receive(
        posted.content_type, posted.body, posted.soap_action, posted.stations
    )
    if response.handed is not None:
        await response.handed(True)
    body = response.body
    if response.pieces is not None:
        body = b"".join(response.pieces.read())
    if response.flow is not None:
        body = b"".join([piece async for piece in response.flow.pieces])
        await response.flow.end()
    return Reply(response.status, response.content_type or "", (), body)


async def refused(world: "World", posted: Posted) -> Reply:
    """Nobody takes the connection: not a byte leaves."""
    raise _failure("connection refused", False)


async def lost(world: "World", posted: Posted) -> Reply:
    """It leaves, and nothing is heard of it."""
    raise _failure("no answer in time", True)


async def reply_lost(world: "World", posted: Posted) -> Reply:
    """The partner gets it, and its answer is lost."""
    await passed(world, posted)
    raise _failure("the connection was closed", True)


def told(number: int, code: str, ref: str) -> Answering:
    """A partner who answers each copy with an error of its own."""

    async def answer(world: "World", posted: Posted) -> Reply:
        body = ebms_error(code, ref, f"e{len(world.wire.to(posted.receiver))}@seller")
        return Reply(number, SOAP, (), body)

    return answer


def status(number: int, body: bytes = b"", content_type: str = SOAP) -> Answering:
    """Somebody answers with that."""

    async def answer(world: "World", posted: Posted) -> Reply:
        return Reply(number, content_type if body else "", (), body)

    return answer


class Held:
    """Nothing comes back until the test says so."""

    def __init__(self, then: Answering = passed) -> None:
        self.then = then
        self._released = asyncio.Event()

    def release(self, then: Answering | None = None) -> None:
        self.then = then or self.then
        self._released.set()

    async def __call__(self, world: "World", posted: Posted) -> Reply:
        await self._released.wait()
        return await self.then(world, posted)


class Wire:
    """The network: answers in the order in which the test gave them, then as is usual there."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.posted: list[Posted] = []
        self._replies: dict[int, Reply] = {}
        self.usual: dict[str, Answering] = {}
        """By receiver, where the message is not simply passed on."""
        self._next: defaultdict[str, deque[Answering]] = defaultdict(deque)

    def will(self, *answers: Answering, at: str = SELLER) -> None:
        """What happens next to what is posted to somebody."""
        self._next[at].extend(answers)

    async def carry(self, sender: str, request: Outgoing) -> Reply:
        receiver = (urlsplit(request.url).hostname or "").removesuffix(".example")
        answers = self._next[receiver]
        answer = answers.popleft() if answers else self.usual.get(receiver, passed)
        body = await self._body(request, answer)
        now = asyncio.get_running_loop().time()
        headers = dict(request.headers)
        action, stations = headers.get("SOAPAction"), headers.get(STATIONS)
        kind, fast = request.content_type, request.pipelined
        posted = Posted(now, sender, receiver, kind, body, action, stations, fast, request.purpose)
        return await self._exchange(posted, answer)

    async def post(
        self, sender: str, receiver: str, content_type: str, body: bytes, soap_action: str | None
    ) -> Reply:
        """Post what no node wrote."""
        now = asyncio.get_running_loop().time()
        posted = Posted(now, sender, receiver, content_type, body, soap_action)
        return await self._exchange(posted, passed)

    async def _exchange(self, posted: Posted, answer: Answering) -> Reply:
        number = len(self.posted)
        self.posted.append(posted)
        reply = await answer(self._world, posted)
        self._replies[number] = reply
        return reply

    @property
    def exchanged(self) -> list[Exchanged]:
        """All requests with their responses, in the order of the requests."""
        return [
            Exchanged(posted, self._replies.get(number))
            for number, posted in enumerate(self.posted)
        ]

    async def _body(self, request: Outgoing, answer: Answering) -> bytes:
        body = request.body
        if isinstance(body, Pieces):
            return b"".join(body.read())
        if isinstance(body, bytes):
            return body
        # Where nobody takes a connection nothing is read of what is streamed.
        return b"" if answer is refused else b"".join([piece async for piece in body.read()])

    def to(self, receiver: str, about: str = "") -> list[Posted]:
        """What was posted to somebody, and names this."""
        return [
            one for one in self.posted if one.receiver == receiver and about.encode() in one.body
        ]

    def times(self, about: str, receiver: str = SELLER) -> list[float]:
        """When, in seconds since the test began, to the tenth."""
        return [round(one.at, 1) for one in self.to(receiver, about)]


class _Client:
    def __init__(self, wire: Wire, sender: str) -> None:
        self._wire = wire
        self._sender = sender

    async def post(self, request: Outgoing) -> Reply:
        reply = await self._wire.carry(self._sender, request)
        if request.reader is None:
            return reply
        request.reader(reply.content_type)(reply.body)
        return Reply(reply.status, reply.content_type, reply.headers, b"")

    async def close(self) -> None:
        pass


@dataclass
class Station:
    """A process of a node, as its applications, its operator and its partners use it."""

    name: str
    node: Node
    process: Process

    async def send(
        self,
        message_id: str,
        pmode: str = ORDERS,
        payload: bytes = ORDER,
        conversation: str | None = None,
        media_type: str = "text/plain",
    ) -> Message:
        content, digest = BytesContent(payload), hashlib.sha256(payload).digest()
        given = SubmittedPayload(content, digest, media_type)
        submission = Submission(pmode, (given,), message_id, conversation)
        return (await self.process.ask(self.node.submit(submission))).message

    async def answer(self, message_id: str, pmode: str, *, to: str) -> Message:
        """The application answers a message that it got."""
        given = SubmittedPayload(BytesContent(b"yes"), hashlib.sha256(b"yes").digest())
        submission = Submission(pmode, (given,), message_id, to, to)
        return (await self.process.ask(self.node.submit(submission))).message

    async def receive(
        self,
        content_type: str | None,
        body: bytes,
        soap_action: str | None = None,
        stations: str | None = None,
        is_gone: Callable[[], bool] | None = None,
    ) -> Response:
        request = Request(
            content_type,
            "192.0.2.1",
            _pieces(body),
            soap_action=soap_action,
            stations=stations,
            is_gone=is_gone,
        )
        return await self.process.ask(self.node.receive(request))

    async def message(self, message_id: str, side: Side | None = None) -> Message:
        found = await self.node.message(message_id, side)
        assert found is not None, message_id
        return found

    async def state(self, message_id: str) -> State:
        return (await self.message(message_id)).state

    async def events(self, message_id: str) -> list[Event]:
        return [one.event for one in await self.node.events(message_id)]

    async def story(self, message_id: str) -> list[str]:
        """The names of what the journal says about a message."""
        return [one.event for one in await self.events(message_id) if not of_signal(one)]

    async def journal(self, *names: str) -> list[Event]:
        """All events of these names, about whatever."""
        rows = await self.node.context.store.look(lambda reader: reader.journal(0, 100_000))
        return [one.event for one in rows if one.event.event in names]

    async def inbox(self) -> list[str]:
        wanted = Wanted(Side.RECEIVING, (State.DELIVERED, State.CONSUMED))
        return [one.message_id for one in await self.node.messages(wanted)]

    async def notices(self, message_id: str) -> list[Notice]:
        return [one for one in await self.node.notices() if one.message_id == message_id]

    async def work(self) -> dict[str, int]:
        """How much of each kind is still to be done."""
        figures = await self.node.context.store.look(lambda reader: reader.figures())
        return {kind: count for kind, count in figures.work.items() if count}

    async def stop(self) -> None:
        await self.process.ask(self.node.stop())
        self.process.kill()

    def kill(self) -> None:
        """As with kill -9: not a step more."""
        self.process.kill()


class World:
    """Buyer, seller and carrier, what they agreed on, and the network between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.wire = Wire(self)
        self.stations: dict[str, Station] = {}
        """Who is reached under a name."""
        self.kept_in = "memory"
        self._pmodes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._settings: dict[str, dict[str, Any]] = defaultdict(dict)
        self._memories: dict[str, Memory] = {}
        self._opened: list[SqliteStore] = []
        self._entropy = random.Random(4711)
        self._with_keys = False
        self._signers: dict[str, str] = {}
        self.stumbled: list[str] = []
        """Exceptions that nobody thought of, as the log tells them."""

    def agree(
        self,
        name: str = ORDERS,
        *,
        to: str = SELLER,
        receipt: str = "response",
        retry: dict[str, Any] | None = None,
        retry_enabled: bool = True,
        signed: bool = False,
        report: dict[str, Any] | None = None,
        binding: str | dict[str, Any] = "push",
        bundling: dict[str, Any] | None = None,
        splitting: dict[str, Any] | None = None,
        receipts: bool = True,
        soap: str = "1.2",
        agreement: str | dict[str, Any] | None = None,
        service: str | dict[str, Any] = "urn:example:trade",
        action: str | None = None,
        url: str | None = None,
        **awareness: Any,
    ) -> None:
        """A P-Mode of the buyer's with somebody; its action is its name, unless there is another.

        `url` is where messages go, if not to the usual address; `retry` are its parameters,
        `awareness` what else stands in reception_awareness.
        """
        for at in (BUYER, to):
            answer: dict[str, Any] = {"reply_pattern": receipt, "enabled": receipts}
            if receipt == "callback":
                answer["reply_to"] = address(BUYER)
            security: dict[str, Any] = {"send_receipt": answer}
            if signed:
                self._with_keys = True
                security |= _signature(at)
                answer |= {"non_repudiation": True, "certificate": f"../keys/{to}.pem"}
            leg: dict[str, Any] = {
                "protocol": {"address": url or address(to), "soap_version": soap},
                "business_info": {"service": service, "action": action or name},
                "error_handling": {"report": {"as_response": receipt == "response"}},
                "security": security,
            }
            leg["error_handling"]["report"] |= report or {}
            if bundling is not None:
                leg["bundling"] = bundling
            if splitting is not None:
                leg["splitting"] = splitting
            aware = dict(awareness)
            if retry is not None:
                aware["retry"] = {"parameters": retry, "enabled": retry_enabled}
            if aware:
                leg["reception_awareness"] = aware
            agreed = {} if agreement is None else {"agreement": agreement}
            self._pmodes[at].append(
                {
                    "id": name,
                    **agreed,
                    "mep": "oneWay",
                    "mep_binding": binding,
                    "initiator": {"party": party(BUYER), "role": "urn:example:sender"},
                    "responder": {"party": party(to), "role": "urn:example:receiver"},
                    "legs": [leg],
                }
            )

    def speak(
        self,
        name: str = ORDERS,
        *,
        frm: str = BUYER,
        to: str = SELLER,
        at: tuple[str, ...] | None = None,
        url: str | None = None,
        retry: dict[str, Any] | None = None,
        signed: bool = False,
        service: dict[str, Any] | None = None,
        security: dict[str, Any] | None = None,
        report: dict[str, Any] | None = None,
        **ebxml: Any,
    ) -> None:
        """A P-Mode that speaks ebXML; `ebxml` are its parameters.

        `at` has it (else both ends), `url` is where messages go.
        """
        reliably = ebxml.get("delivery_semantics") == "OnceAndOnlyOnce"
        for station in at or (frm, to):
            given: dict[str, Any] = {} if security is None else dict(security)
            if signed:
                self._with_keys = True
                signature = {"certificate": f"../keys/{frm}.pem", "algorithm": "rsa-sha256"}
                given |= {"x509": {"sign": True, "signature": signature}}
                given |= {"send_receipt": {"certificate": f"../keys/{to}.pem"}}
            leg: dict[str, Any] = {"protocol": {"address": url or address(to)}, "ebxml": ebxml}
            if service is not None:
                leg["business_info"] = service
            elif not ebxml.get("relay"):
                leg["business_info"] = {"service": "urn:example:trade", "action": name}
            if given:
                leg["security"] = given
            if report is not None:
                leg["error_handling"] = {"report": report}
            if reliably or retry is not None:
                leg["reception_awareness"] = {"retry": {"parameters": retry or RETRY}}
            self._pmodes[station].append(
                {
                    "id": name,
                    "agreement": CPA,
                    "initiator": {"party": party(frm)},
                    "responder": {"party": party(to)},
                    "legs": [leg],
                }
            )

    async def agree_only(self, at: str, name: str, **terms: Any) -> None:
        """From now on this is all that somebody agreed on."""
        self._pmodes[at].clear()
        self.agree(name, **terms)
        self._write(at)
        assert (await self.stations[at].node.reload()).ok

    def sign_as(self, name: str, signer: str) -> None:
        """Let a node sign with the key of another one."""
        self._signers[name] = signer

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Whoever is started meanwhile has a store of its own, and is not who is reached."""
        memories, stations, kept_in = self._memories, dict(self.stations), self.kept_in
        self._memories, self.kept_in = {}, "memory"
        try:
            yield
        finally:
            self._memories, self.stations, self.kept_in = memories, stations, kept_in

    def add_pmode(self, at: str, content: dict[str, Any]) -> None:
        """Give a party a P-Mode as it stands in a file."""
        self._pmodes[at].append(content)

    def configure(self, name: str, **settings: Any) -> None:
        self._settings[name] |= settings

    async def start(self, name: str, *, beside: bool = False) -> Station:
        """Start a node; `beside`: as another process of one that runs."""
        if self._with_keys and not (self.folder / BUYER / "keys").exists():
            found(self.folder, BEGIN)
        config = load_config(self._write(name))
        process = Process(name)
        node = Node(
            config,
            self._store(name),
            leads=not beside,
            clock=self.clock,
            entropy=self._entropy.randbytes,
            client=_Client(self.wire, name),
        )
        await process.ask(node.start())
        started = Station(name, node, process)
        if not beside:
            self.stations[name] = started
        return started

    async def both(self) -> tuple[Station, Station]:
        return await self.start(BUYER), await self.start(SELLER)

    async def start_again(self, name: str) -> Station:
        """Kill what there is of a node, and start it again."""
        self.stations[name].kill()
        return await self.start(name)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, seconds: float) -> None:
        """Let time pass until so many seconds after the beginning."""
        await asyncio.sleep(seconds - asyncio.get_running_loop().time())

    def _write(self, name: str) -> Path:
        """The files of a node; nothing of a signature where none is agreed on."""
        folder = self.folder / name
        (folder / "pmodes").mkdir(parents=True, exist_ok=True)
        for sample in (folder / "pmodes").iterdir():
            sample.unlink()
        # JSON is YAML, and is written in a hundredth of the time.
        (folder / "pmodes" / "all.yaml").write_text(json.dumps({"pmodes": self._pmodes[name]}))
        if not self._pmodes[name]:
            # Who only passes messages on needs none.
            shutil.rmtree(folder / "pmodes")
        settings: dict[str, Any] = {
            "node": name,
            "party": party(name),
            "listen": [{"serve": ["msh"]}],
            "security": {"egress": {"callback_hosts": ["*.example"]}},
        } | self._settings[name]
        if self._with_keys and name in PAIR:
            signer = self._signers.get(name, name)
            settings["keys"] = {"signing": str(self.folder / signer / f"keys/{signer}.p12")}
        file = folder / "postroad.yaml"
        file.write_text(json.dumps(settings))
        return file

    def _store(self, name: str) -> Store:
        if self.kept_in == "memory":
            if name not in self._memories:
                self._memories[name] = Memory(name)
            return self._memories[name]
        opened = SqliteStore(self.folder / name / "data", name, 10.0)
        self._opened.append(opened)
        return opened

    async def audit(self) -> None:
        """What holds whatever happened."""
        for name, station in self.stations.items():
            await audit(name, station.node.context.store)

    def close(self) -> None:
        for opened in self._opened:
            if not opened._closed:
                opened._close()


PAIR: Final = (BUYER, SELLER)
CPA: Final = "urn:example:cpa:trade"
RETRY: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}


def party(name: str) -> str:
    return f"urn:example:{name}"


def address(name: str) -> str:
    return f"http://{name}.example/msh"


def answers(world: World) -> None:
    """The seller sends to the buyer, too."""
    leg = {
        "protocol": {"address": address(BUYER), "soap_version": "1.2"},
        "business_info": {"service": "urn:example:trade", "action": "answers"},
        "security": {"send_receipt": {"reply_pattern": "response"}},
    }
    for at in (BUYER, SELLER):
        world._pmodes[at].append(
            {
                "id": "answers",
                "mep": "oneWay",
                "mep_binding": "push",
                "initiator": {"party": party(SELLER), "role": "urn:example:sender"},
                "responder": {"party": party(BUYER), "role": "urn:example:receiver"},
                "legs": [leg],
            }
        )


def _signature(at: str) -> dict[str, Any]:
    signature = {
        "certificate": "../keys/buyer.pem",
        "algorithm": "rsa-sha256",
        "hash_function": "sha256",
        "key_reference": "binary_security_token",
    }
    if at == BUYER:
        signature["key"] = "../keys/buyer.p12"
    return {"wss_version": "1.1", "x509": {"sign": True, "signature": signature}}


def ebms_error(code: str, ref: str, signal_id: str = "e@seller") -> bytes:
    """An error signal of a partner's, about one of our messages."""
    signal = error([EbmsError(code, "not today")], signal_id=signal_id, ref=ref, now=BEGIN)
    return write_answer(signal, SoapVersion.SOAP_12, None, BEGIN).envelope


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


@contextmanager
def failing(
    store: Store, error: StoreError, *, kept: bool = False, about: str = "", times: int = 1
) -> Iterator[list[str]]:
    """The next steps of a store fail; `kept`: only their outcome is unknown.

    With `about` only steps that have this in their name. Yields what failed.
    """
    run = store.run
    failed: list[str] = []

    async def broken(step: Callable[[Transaction], T]) -> T:
        name = getattr(step, "__qualname__", type(step).__qualname__)
        if about.lower() not in name.lower() or len(failed) >= times:
            return await run(step)
        failed.append(name)
        if kept:
            await run(step)
        raise error

    with patch.object(store, "run", broken):
        yield failed


def played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine with a `World` first, on time that is made up."""

    @functools.wraps(test)
    def run(*, tmp_path: Path, **values: Any) -> None:
        loop, world = VirtualLoop(), World(tmp_path)

        async def whole() -> None:
            await test(world, **values)
            await world.audit()

        with (
            patch.object(upkeep, "RELOAD", 3600.0),
            patch.object(commits, "Hand", Hand),
            watched(world.stumbled),
        ):
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(whole())
            finally:
                loop.bury()
                loop.close()
                asyncio.set_event_loop(None)
                world.close()
        assert not world.stumbled

    first, *others = inspect.signature(test).parameters.values()
    assert first.annotation in (World, "World")
    tmp = inspect.Parameter("tmp_path", inspect.Parameter.KEYWORD_ONLY)
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in others]
    run.__signature__ = inspect.Signature([tmp, *named])  # type: ignore[attr-defined]
    return run
