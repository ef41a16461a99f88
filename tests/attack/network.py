"""Two nodes on real sockets, and clients that send them whatever bytes they like.

The buyer and the seller run on a loop in a thread of their own; a test talks to them from outside
over plain blocking sockets. `Town.refuses` is what must hold after each attack: the peer was told
why, the journal too, nothing was delivered, and the next good message passes.
"""

import asyncio
import contextlib
import hashlib
import http.client
import itertools
import shutil
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from postroad.api.app import create_app
from postroad.api.endpoint import msh_app
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import Config, load_config
from postroad.security.algorithms import ECDSA_SHA256, RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.store.records import Message, Recorded, Side, Signal, State, Wanted
from postroad.store.sqlite import SqliteStore, open_sqlite
from postroad.transport.http_body import ASGIApp, Receive, Scope, Send
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_server import HttpServer, listening_socket
from postroad.wire import xml
from postroad.wire.content import read_all
from postroad.wire.ebms3 import (
    CollaborationInfo,
    Error,
    MessageInfo,
    Messaging,
    Party,
    PartyId,
    Property,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE
from postroad.wire.soap import read_envelope
from tests import pki
from tests.attack.messages import (
    NOW,
    VERSION,
    Package,
    Part,
    buyer,
    ca,
    entropy,
    part_info,
    payload,
    seller,
)
from tests.changing import replace

T = TypeVar("T")

PATIENCE: Final = 20.0
"""Seconds after which a test is taken to hang; nothing waits for it when all is well."""
BUYER, SELLER, RIVAL = "urn:example:buyer", "urn:example:seller", "urn:example:rival"
SERVICE: Final = "urn:example:purchasing"
TOKEN: Final = "the-token-of-the-attacked"
ORDER, STATUS, PRICES, LATER, ANYBODY = "NewOrder", "Status", "PriceList", "Later", "Anybody"
"""Actions; each has a P-Mode: signed, signed, unsigned, signed with call-backs, without pins."""


def rival() -> KeyPair:
    """Another partner, of the same authority."""
    return pki.issue(ca(), RIVAL, label="attack rival")


def stranger() -> KeyPair:
    """Somebody with the buyer's names, and a certificate of an authority that nobody trusts."""
    return pki.issue(pki.authority("Nobody"), "buyer", label="attack stranger")


# What the nodes are told


def _config(name: str, party: str, more: str) -> str:
    return f"""\
node: {name}
party: {party}
data: data
pmodes: pmodes
keys: {{signing: keys/{name}.pem}}
trust: [keys/authority.pem]
listen: [{{address: "127.0.0.1:0", serve: [msh]}}]
{more}"""


def pmode(
    name: str,
    action: str,
    address: str,
    *,
    sender: str = BUYER,
    pin: str | None = "buyer.pem",
    signed: bool = True,
    reply_to: str | None = None,
) -> str:
    pinned = f"\n          certificate: ../keys/{pin}" if pin else " {}"
    x509 = f"""
      x509:
        sign: true
        signature:{pinned}"""
    back = f"\n        reply_pattern: callback\n        reply_to: {reply_to}"
    proof = "\n        non_repudiation: true\n        certificate: ../keys/seller.pem"
    reports = f"""
    error_handling:
      report: {{as_response: {"false" if reply_to else "true"}}}"""
    return f"""\
id: {name}
mep: oneWay
mep_binding: push
initiator: {{party: "{sender}", role: "{INITIATOR_ROLE}"}}
responder: {{party: "{SELLER}", role: "{RESPONDER_ROLE}"}}
legs:
  - protocol: {{address: "{address}", soap_version: 1.2}}
    business_info: {{service: "{SERVICE}", action: {action}}}{reports}
    security:
      wss_version: 1.1{x509 if signed else ""}
      send_receipt:
        enabled: true{back if reply_to else ""}{proof if signed else ""}
"""


def write_folders(folder: Path, doors: dict[str, str], more: str = "") -> None:
    """Configuration, keys and P-Modes of buyer and seller, with the addresses of their doors."""
    to = f"{doors['seller']}/msh"
    pmodes = {
        "order": pmode("order", ORDER, to),
        "status": pmode("status", STATUS, to),
        "prices": pmode("prices", PRICES, to, signed=False),
        "later": pmode("later", LATER, to, reply_to=f"{doors['buyer']}/msh"),
        "rival": pmode("rival", ORDER, to, sender=RIVAL, pin="rival.pem"),
        "anybody": pmode("anybody", ANYBODY, to, pin=None),
    }
    for name, party, pair in (("buyer", BUYER, buyer()), ("seller", SELLER, seller())):
        keys = folder / name / "keys"
        keys.mkdir(parents=True)
        (keys / "authority.pem").write_bytes(pki.pem_certificates(ca().certificate))
        for other, own in (("buyer", buyer()), ("seller", seller()), ("rival", rival())):
            (keys / f"{other}.pem").write_bytes(pki.pem_certificates(own.certificate))
        (keys / f"{name}.pem").write_bytes(pki.pem(pair))
        (folder / name / "pmodes").mkdir()
        for file, text in pmodes.items():
            (folder / name / "pmodes" / f"{file}.yaml").write_text(text)
        (folder / name / "postroad.yaml").write_text(_config(name, party, more))


# The nodes


class Passing:
    """The time of the nodes: that of the certificates, and it goes on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return NOW + timedelta(seconds=time.monotonic() - self._began) + self.ahead


@dataclass
class Seconds:
    """The time of the doors' patience, which passes when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """One node with its door."""

    node: Node
    store: SqliteStore
    server: HttpServer
    seconds: Seconds
    clock: Passing

    @property
    def url(self) -> str:
        return self.server.url


def _app(node: Node) -> ASGIApp:
    msh, rest = msh_app(node), create_app(node, token=TOKEN)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (msh if scope["path"] == "/msh" else rest)(scope, receive, send)

    return app


async def _open(config: Config, sock: socket.socket, limits: ServerLimits) -> House:
    store = await open_sqlite(config.data, config.node)
    clock = Passing()
    node = Node(config, store, clock=clock)
    await node.start()
    seconds = Seconds()
    server = HttpServer(_app(node), sock=sock, limits=limits, clock=seconds)
    await server.start()
    return House(node, store, server, seconds, clock)


@dataclass(frozen=True)
class Answer:
    """What a client hears."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def messaging(self) -> Messaging:
        envelope = read_envelope(xml.parse(self.body))
        element = find_messaging(envelope)
        assert element is not None, self.body
        found = read_messaging(element, envelope.version)
        assert found.messaging is not None, found.problems
        return found.messaging

    @property
    def signal(self) -> SignalMessage:
        [signal] = self.messaging.signals
        return signal

    @property
    def errors(self) -> tuple[Error, ...]:
        return self.signal.errors

    @property
    def codes(self) -> list[str]:
        return [one.error_code for one in self.errors]

    @property
    def is_receipt(self) -> bool:
        return self.status == 200 and self.signal.receipt is not None

    @property
    def is_signed(self) -> bool:
        return b"SignatureValue" in self.body


@dataclass
class Town:
    """Buyer and seller, running."""

    folder: Path
    loop: asyncio.AbstractEventLoop
    houses: dict[str, House] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop of the nodes."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    @property
    def seller(self) -> House:
        return self.houses["seller"]

    @property
    def buyer(self) -> House:
        return self.houses["buyer"]

    # What a client does

    def connect(self, who: str = "seller") -> socket.socket:
        server = self.houses[who].server
        return socket.create_connection((server.host, server.port), timeout=PATIENCE)

    def say(self, raw: bytes, who: str = "seller") -> Answer:
        """One request on a connection of its own, and what is answered."""
        with self.connect(who) as connection:
            # It may be answered before all of it was sent.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(raw)
            return hear(connection)

    def post(self, package: Package, who: str = "seller", head: str = "") -> Answer:
        return self.say(package.wire(head=head), who)

    def new_id(self) -> str:
        return f"message-{next(self.numbers)}@buyer.example"

    def good(self) -> str:
        """A good message passes; its id."""
        name = self.new_id()
        answer = self.post(order(name))
        assert answer.is_receipt, answer
        assert answer.signal.message_info.ref_to_message_id == name
        assert self.events(name) == ["received", "delivered", "receipt_sent"]
        return name

    def submit(self, name: str, content: bytes = b"one hundred apples", **more: Any) -> str:
        """The buyer's application sends a message; its id."""
        node = self.buyer.node

        async def give() -> str:
            sink = node.new_sink()
            sink.write(content)
            one = SubmittedPayload(sink.finish(), hashlib.sha256(content).digest())
            return (await node.submit(Submission(name, (one,), **more))).message.message_id

        return self.run(give())

    def settled(self, message_id: str) -> Message:
        """The buyer's message once it is no longer on its way."""
        found = self.run(self.buyer.node.settled(message_id, PATIENCE / 2))
        assert found is not None
        return found

    # What the nodes know

    def message(self, message_id: str, side: Side = Side.RECEIVING) -> Message | None:
        house = self.seller if side is Side.RECEIVING else self.buyer
        return self.run(house.node.message(message_id, side))

    def events(self, message_id: str, who: str = "seller") -> list[str]:
        found = self.run(self.houses[who].node.events(message_id))
        return [one.event.event for one in found]

    def recorded(self, message_id: str, who: str = "seller") -> list[Recorded]:
        return self.run(self.houses[who].node.events(message_id))

    def journal(self, after: int = 0, who: str = "seller") -> list[Recorded]:
        store = self.houses[who].store
        return self.run(store.look(lambda reader: reader.journal(after, 100_000)))

    def mark(self, who: str = "seller") -> int:
        """Where the journal is now."""
        journal = self.journal(0, who)
        return journal[-1].seq if journal else 0

    def told(self, mark: int, who: str = "seller") -> list[Recorded]:
        """What the journal says since then, heartbeats aside."""
        return [one for one in self.journal(mark, who) if one.event.event != "heartbeat"]

    def signals(self, message_id: str, side: Side) -> list[Signal]:
        house = self.seller if side is Side.RECEIVING else self.buyer
        message = self.message(message_id, side)
        assert message is not None
        return self.run(house.node.signals(message))

    def inbox(self) -> set[str]:
        wanted = Wanted(side=Side.RECEIVING, states=(State.DELIVERED, State.CONSUMED), limit=10_000)
        return {one.message_id for one in self.run(self.seller.node.messages(wanted))}

    # What must hold

    @contextlib.contextmanager
    def harmless(self, *codes: str, who: str = "seller") -> Iterator[None]:
        """Whatever is done inside: an error event with one of the codes, and nothing delivered."""
        inbox, mark = self.inbox(), self.mark(who)
        yield
        told = self.told(mark, who)
        raised = [one.event for one in told if one.event.event == "error_raised"]
        assert raised, "the journal says nothing"
        assert not codes or {one.error_code for one in raised} & set(codes), raised
        assert all(one.detail and one.peer == "127.0.0.1" for one in raised), raised
        quiet = {"delivered", "received", "receipt_sent", "receipt_received"}
        assert not quiet & {one.event.event for one in told}, told
        assert self.inbox() == inbox
        self.good()

    def refuses(self, raw: bytes | Package, *codes: str, status: int | None = None) -> Answer:
        """The attack is answered with one of the codes and a sentence, and does no harm."""
        data = raw.wire() if isinstance(raw, Package) else raw
        with self.harmless(*codes):
            answer = self.say(data)
            assert set(answer.codes) & set(codes), answer.errors
            assert all(one.error_detail for one in answer.errors), answer.errors
            assert status is None or answer.status == status, answer
        return answer


def hear(connection: socket.socket) -> Answer:
    """One answer, 100 Continue aside."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it never came")


def closed(connection: socket.socket) -> bytes:
    """What still comes until the other end closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found


@contextlib.contextmanager
def town(folder: Path, more: str = "", limits: ServerLimits | None = None) -> Iterator[Town]:
    """Buyer and seller in service; `more` stands in both configurations."""
    sockets = {name: listening_socket("127.0.0.1", 0) for name in ("buyer", "seller")}
    doors = {name: f"http://127.0.0.1:{sock.getsockname()[1]}" for name, sock in sockets.items()}
    write_folders(folder, doors, more)
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = Town(folder, loop)
    try:
        for name, sock in sockets.items():
            config = load_config(folder / name / "postroad.yaml")
            made.houses[name] = made.run(_open(config, sock, limits or ServerLimits()))
        yield made
    finally:
        for house in made.houses.values():
            made.run(house.server.close())
            made.run(house.node.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)


class Partner:
    """A server that answers the buyer's messages with whatever a test likes."""

    def __init__(self, place: Town) -> None:
        self._place = place
        self.requests: list[tuple[bytes, bytes]] = []
        self.answer: Callable[[bytes], bytes] = lambda _: http_answer(202)
        self._writers: list[asyncio.StreamWriter] = []
        self._server = place.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                writer.write(self.answer(self.requests[-1][1]))
                await writer.drain()
        writer.close()

    def agree(self, name: str, *, called_back: bool = False, signed: bool = True) -> None:
        """The buyer sends to this server with a P-Mode of that name."""
        back = f"{self._place.buyer.url}/msh" if called_back else None
        text = pmode(name, name.title(), f"{self.url}/msh", reply_to=back, signed=signed)
        (self._place.folder / "buyer" / "pmodes" / f"{name}.yaml").write_text(text)
        assert self._place.run(self._place.buyer.node.reload()).ok

    def hang_up(self) -> None:
        """Break all connections off."""

        async def end() -> None:
            for writer in self._writers:
                writer.transport.abort()

        self._place.run(end())

    def close(self) -> None:
        self.hang_up()
        self._place.loop.call_soon_threadsafe(self._server.close)


def http_answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """The bytes of an answer; a SOAP envelope unless a header says otherwise."""
    kind = (
        []
        if any(one.lower().startswith("content-type") for one in headers) or not body
        else [f"Content-Type: {VERSION.media_type}; charset=UTF-8"]
    )
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *kind, *headers, "", ""]
    return "\r\n".join(lines).encode() + body


# What is sent


def write(
    name: str,
    attachments: Sequence[Attachment] = (),
    *,
    sender: str = BUYER,
    receiver: str = SELLER,
    action: str = ORDER,
    signer: KeyPair | None = None,
    signed: bool = True,
    at: datetime = NOW,
    lifetime: timedelta | None = None,
    properties: tuple[Property, ...] = (),
    change: Callable[[UserMessage], UserMessage] = lambda one: one,
    **security: Any,
) -> Package:
    """A message that a P-Mode of the town takes, unless it is told otherwise."""
    message = change(
        UserMessage(
            MessageInfo(at, name),
            Party((PartyId(sender),), INITIATOR_ROLE),
            Party((PartyId(receiver),), RESPONDER_ROLE),
            CollaborationInfo(Service(SERVICE), action, "conversation-1"),
            properties,
            tuple(part_info(one) for one in attachments),
        )
    )
    made = secure(
        VERSION,
        [Block("_messaging", write_messaging(Messaging((message,), id="_messaging"), VERSION))],
        attachments,
        signing=Signing(signer or buyer(), ECDSA_SHA256) if signed else None,
        lifetime=Lifetime(at, lifetime) if signed else None,
        entropy=entropy(),
        **security,
    )
    parts = tuple(
        Part(one.content_id, one.media_type, read_all(one.content, 1 << 30))
        for one in made.attachments
    )
    return Package(made.envelope, parts, made.references, message)


def order(name: str, content: bytes = b"one hundred apples", **more: Any) -> Package:
    return write(name, (payload("one", content),), **more)


def signal_message(signal: SignalMessage, signer: KeyPair | None, *, at: datetime = NOW) -> bytes:
    """A receipt or an error as a request of its own, signed by whom one likes or not at all."""
    how = None
    if signer is not None:
        is_rsa = isinstance(signer.private_key, RSAPrivateKey)
        how = Signing(signer, RSA_SHA256 if is_rsa else ECDSA_SHA256)
    made = secure(
        VERSION,
        [Block("_messaging", write_messaging(Messaging((signal,), id="_messaging"), VERSION))],
        (),
        signing=how,
        lifetime=Lifetime(at) if how else None,
    )
    return made.envelope


def renamed(signal: SignalMessage, **changes: Any) -> SignalMessage:
    return replace(signal, message_info=replace(signal.message_info, **changes))
