"""The bench: two nodes, corners two and three, a relay between them, and their applications."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import uvloop
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
from cryptography.x509.oid import NameOID

from postroad.api.client import ApiError, Client, Event, Message, SentMessage
from postroad.api.running import RunningNode, listen
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.settings.config import load_config
from postroad.security.keys import KeyPair
from tests.as4.foreign import Identity, Letter
from tests.as4.reading import Seen, read

T = TypeVar("T")
PATIENCE: Final = 30.0
"""Seconds after which a test is taken to hang; nothing waits for it when all is well."""
C2, C3 = "c2", "c3"
PARTIES: Final = {name: f"urn:example:{name}" for name in (C2, C3)}
SERVICE: Final = "urn:example:as4"
EIC_TYPE: Final = "http://www.entsoe.eu/eic-codes/eic-party-codes-x"
EIC: Final = {
    C2: [{"id": "21X000000001083S", "type": EIC_TYPE}],
    C3: [{"id": "21X-NL-A-A0A0A-Z", "type": EIC_TYPE}],
}


class Loop:
    """An event loop in a thread of its own, so that tests are ordinary code."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(scenario, self._loop).result(PATIENCE)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    content_type: str
    body: bytes

    @property
    def seen(self) -> Seen:
        return read(self.content_type, self.body)

    @property
    def codes(self) -> list[str]:
        """The error codes in it."""
        return [one["errorCode"] for one in self.seen.errors]

    @property
    def ref(self) -> str:
        """The message that it is about."""
        return self.seen.text("//eb:SignalMessage/eb:MessageInfo/eb:RefToMessageId")


NOTHING: Final = Answer(202, "", b"")


@dataclass(frozen=True)
class Exchange:
    """One request and its response, as they went over the wire."""

    content_type: str
    body: bytes
    answer: Answer

    @property
    def seen(self) -> Seen:
        return read(self.content_type, self.body)


Serve = Callable[[dict[str, str], bytes], Awaitable[Answer]]


class Listener:
    """A plain HTTP server that hands requests to a function."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:-2]
                fields = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head)
                }
                body = await reader.readexactly(int(fields["content-length"]))
                answer = await self._serve(fields, body)
                kind = f"Content-Type: {answer.content_type}\r\n" if answer.content_type else ""
                writer.write(
                    f"HTTP/1.1 {answer.status} -\r\n{kind}"
                    f"Content-Length: {len(answer.body)}\r\n\r\n".encode()
                    + answer.body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@dataclass
class Intercepted:
    """What the relay does to the messages that hold a mark."""

    request: Callable[[bytes], bytes] | None = None
    answer: Callable[[Answer], Answer] | None = None


class Relay(Listener):
    """Passes everything on, keeps a copy, and alters what it is told to."""

    def __init__(self) -> None:
        super().__init__(self._pass_on)
        self.target = ""
        self.http = httpx.AsyncClient(trust_env=False, timeout=PATIENCE, verify=False)
        self.exchanges: list[Exchange] = []
        self._intercepted: dict[bytes, Intercepted] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/msh"

    def intercept(
        self,
        mark: str,
        *,
        request: Callable[[bytes], bytes] | None = None,
        answer: Callable[[Answer], Answer] | None = None,
    ) -> None:
        """Alter messages in whose bytes the mark stands, or the answers to them."""
        self._intercepted[mark.encode()] = Intercepted(request, answer)

    def let_pass(self, mark: str) -> None:
        del self._intercepted[mark.encode()]

    def about(self, message_id: str) -> list[Exchange]:
        """The exchanges in whose request the id stands, in their order."""
        return [one for one in self.exchanges if message_id.encode() in one.body]

    async def _pass_on(self, fields: dict[str, str], body: bytes) -> Answer:
        what = next((w for mark, w in self._intercepted.items() if mark in body), Intercepted())
        if what.request is not None:
            body = what.request(body)
        answer = await post(self.http, self.target, fields["content-type"], body)
        if what.answer is not None:
            answer = what.answer(answer)
        self.exchanges.append(Exchange(fields["content-type"], body, answer))
        return answer


class Application(Listener):
    """An application that is told by webhook what became of its messages."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self._told: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    async def _take(self, _fields: dict[str, str], body: bytes) -> Answer:
        with self._changed:
            self._told.append(json.loads(body))
            self._changed.notify_all()
        return Answer(204, "", b"")

    def about(self, message_id: str) -> list[dict[str, Any]]:
        with self._changed:
            return [one for one in self._told if one["message_id"] == message_id]

    def told(self, message_id: str) -> dict[str, Any]:
        """The first thing that it is told about a message; waits for it."""
        with self._changed:
            self._changed.wait_for(
                lambda: any(one["message_id"] == message_id for one in self._told), PATIENCE
            )
        found = self.about(message_id)
        assert found, f"the application was not told about {message_id} within {PATIENCE:g} s"
        return found[0]


async def post(http: httpx.AsyncClient, url: str, content_type: str, body: bytes) -> Answer:
    reply = await http.post(url, content=body, headers={"Content-Type": content_type})
    return Answer(reply.status_code, reply.headers.get("content-type", ""), reply.content)


@dataclass
class Corner:
    """A running node, as its applications and operators see it."""

    name: str
    folder: Path
    application: Application = field(default_factory=Application)
    running: RunningNode | None = None

    @property
    def url(self) -> str:
        assert self.running is not None
        return self.running.serving.doors[0].url + "/msh"

    @cached_property
    def client(self) -> Client:
        assert self.running is not None
        token = (self.folder / "keys" / "api.token").read_text().strip()
        return Client(self.running.serving.api_url or "", token=token)

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.folder / f"keys/{self.name}.pem").read_bytes())

    @property
    def key(self) -> rsa.RSAPrivateKey:
        return self.identity.key

    @cached_property
    def identity(self) -> Identity:
        pair = _pair(self.folder / f"keys/{self.name}.p12")
        assert isinstance(pair.private_key, rsa.RSAPrivateKey)
        return Identity(pair.private_key, pair.certificate)

    def send(self, pmode: str, *payloads: Any, **more: Any) -> SentMessage:
        """Submit a message, and wait until it is settled."""
        return self.client.send(pmode=pmode, payloads=payloads, wait=PATIENCE, **more)

    def status(self, message_id: str) -> Message:
        return self.client.status(message_id)

    def events(self, message_id: str) -> list[Event]:
        return list(self.client.events(message_id))

    def journal(self, message_id: str) -> list[str]:
        """The names of the events about a message; nothing when it is not known."""
        return [one.event for one in _there(self.client.events, message_id) or ()]

    def delivered(self, message_id: str) -> Message | None:
        """The message in the inbox, if it is there."""
        return _there(self.client.received, message_id)

    def payloads(self, message_id: str) -> list[bytes]:
        """The payloads as the application gets them, in their order."""
        count = len(self.client.received(message_id).parts)
        return [self.client.part(message_id, number) for number in range(1, count + 1)]


def _there(ask: Callable[[str], T], message_id: str) -> T | None:
    """What the node says of a message; None when it knows of none."""
    try:
        return ask(message_id)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _pair(path: Path) -> KeyPair:
    key, certificate, more = pkcs12.load_key_and_certificates(path.read_bytes(), None)
    assert key is not None
    assert certificate is not None
    return KeyPair(key, certificate, tuple(more))


@dataclass
class Bench:
    """Everything that a test needs."""

    loop: Loop
    c2: Corner
    c3: Corner
    relay: Relay
    homeward: Relay
    """What corner three sends to corner two."""

    def post(self, letter: Letter) -> Answer:
        """Send a stranger's message straight to corner three."""
        return self.deliver(letter.wire())

    def deliver(self, wire: tuple[str, bytes]) -> Answer:
        """The same with the message written down already."""
        return self.loop.run(post(self.relay.http, self.c3.url, *wire))

    def exchange(self, message_id: str) -> Exchange:
        """The one exchange about a message that corner two sent."""
        [found] = self.relay.about(message_id)
        return found

    def stranger(self, name: str, *policies: str) -> Identity:
        """Somebody whose certificate the authority of both corners issued."""
        return issued(_pair(self.c2.folder / "keys" / "authority.p12"), name, *policies)


def issued(authority: KeyPair | None, name: str, *policies: str) -> Identity:
    """A key with its certificate, from an authority or signed by itself."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = authority.private_key if authority else key
    assert isinstance(signer, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(
            issuer_name=authority.certificate.subject if authority else subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=1),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if policies:
        held = [x509.PolicyInformation(x509.ObjectIdentifier(one), None) for one in policies]
        builder = builder.add_extension(x509.CertificatePolicies(held), critical=False)
    return Identity(key, builder.sign(signer, hashes.SHA256()))


@dataclass(frozen=True)
class Terms:
    """A P-Mode in the words of the tests; each has an action, or a service, of its own."""

    name: str
    sign: bool = True
    encrypt: bool = False
    compress: bool = False
    non_repudiation: bool | None = None
    """None: where the message is signed."""
    receipt: str = "response"
    errors_to_callback: bool = False
    key: str = C2
    """Whose key the sender signs with."""
    anchored: bool = False
    """The receiver trusts an authority instead of a certificate, and takes any initiator."""
    policies: tuple[str, ...] = ()
    """Certificate policies that the receiver then asks for."""
    demands: str | None = None
    """A message property that the receiver asks for, and the sender does not know of."""
    agreement: str | None = None
    service: str | None = SERVICE
    action: str | None = ""
    """Empty: the name."""
    roles: tuple[str, str] | None = None
    known_to: tuple[str, ...] = (C2, C3)
    address: str | None = None
    key_reference: str | None = None
    retry: str | None = None
    """The parameters of AS4's reception awareness."""
    eic: bool = False
    """The parties are named by their EIC codes."""
    business: Mapping[str, Any] | None = None
    """What else stands in business_info."""
    replies: bool = False
    """Two-Way/Push-and-Push: corner three answers, by the same terms."""

    def pmode(self, corner: str, relay: str, back: str) -> dict[str, Any]:
        """The P-Mode for a corner's folder."""
        sends = corner == C2
        initiator: dict[str, Any] = {"party": EIC[C2] if self.eic else PARTIES[C2]}
        responder: dict[str, Any] = {"party": EIC[C3] if self.eic else PARTIES[C3]}
        if self.roles is not None:
            initiator["role"], responder["role"] = self.roles
        if self.anchored and not sends:
            del initiator["party"]
        business: dict[str, Any] = {}
        if self.service is not None:
            business["service"] = self.service
        if self.action is not None:
            business["action"] = self.action or self.name
        if self.demands is not None and not sends:
            business["properties"] = [{"name": self.demands, "required": True}]
        business |= self.business or {}
        report: dict[str, Any] = {"as_response": True, "process_error_notify_consumer": True}
        if self.errors_to_callback:
            report |= {"as_response": False, "receiver_errors_to": [back]}
        leg: dict[str, Any] = {
            "protocol": {"address": self.address or relay, "soap_version": "1.2"},
            "business_info": business,
            "error_handling": {"report": report},
            "security": self._security(sends, back),
        }
        if self.compress:
            leg["payload_service"] = {"compression_type": "gzip"}
        if self.retry is not None:
            leg["reception_awareness"] = {"retry": {"parameters": self.retry}}
            report["missing_receipt_notify_producer"] = True
        whole: dict[str, Any] = {"id": self.name, "mep": "oneWay", "mep_binding": "push"}
        whole |= {"initiator": initiator, "responder": responder, "legs": [leg]}
        if self.replies:
            answer = leg | {
                "protocol": {"address": back, "soap_version": "1.2"},
                "business_info": business | {"action": f"{self.name}-reply"},
                "security": self._security(not sends, back, C3, C2),
            }
            whole |= {"mep": "twoWay", "mep_binding": "pushAndPush", "legs": [leg, answer]}
        if self.agreement is not None:
            whole["agreement"] = {"value": self.agreement}
        return {key: value for key, value in whole.items() if value}

    def _security(
        self, sends: bool, back: str, sender: str = C2, receiver: str = C3
    ) -> dict[str, Any]:
        asked: dict[str, Any] = {"reply_pattern": self.receipt}
        if self.receipt == "callback":
            asked["reply_to"] = back
        proof = self.sign if self.non_repudiation is None else self.non_repudiation
        security: dict[str, Any] = {"send_receipt": asked}
        if self.sign or self.encrypt:
            security |= {"wss_version": "1.1", "x509": {}}
        if self.sign:
            signature: dict[str, Any] = {
                "algorithm": "rsa-sha256",
                "hash_function": "sha256",
                "certificate": f"../keys/{sender}.pem",
            }
            if self.key_reference is not None:
                signature["key_reference"] = self.key_reference
            if self.anchored:
                del signature["certificate"]
                signature["trust_anchors"] = ["../keys/authority.pem"]
                if self.policies:
                    signature["policies"] = list(self.policies)
            if sends:
                signature["key"] = f"../keys/{self.key if sender == C2 else sender}.p12"
            security["x509"] |= {"sign": True, "signature": signature}
            asked["certificate"] = f"../keys/{receiver}.pem"
            asked["non_repudiation"] = proof
        if self.encrypt:
            security["x509"]["encryption"] = {
                "encrypt": True,
                "certificate": f"../keys/{receiver}.pem",
                "algorithm": "aes128-gcm",
                "key_transport": "rsa-oaep",
                "digest": "sha256",
                "mgf": "mgf1sha256",
            }
        return security


async def start(
    folder: Path, terms: tuple[Terms, ...], stack: AsyncExitStack
) -> tuple[Corner, Corner, Relay, Relay]:
    """Both corners with their files, running until the stack is closed."""
    initialize(
        Plan(Station(C2, folder / C2, 18080), Station(C3, folder / C3, 18081)),
        now=datetime.now(UTC),
    )
    corners = (Corner(C2, folder / C2), Corner(C3, folder / C3))
    relay, homeward = Relay(), Relay()
    for listener in (relay, homeward, *(one.application for one in corners)):
        await listener.start()
        stack.push_async_callback(listener.stop)
    for one in (relay, homeward):
        stack.push_async_callback(one.http.aclose)
    _strange_key(folder / C2 / "keys")
    sockets = {}
    for corner in corners:
        file = corner.folder / "postroad.yaml"
        settings = yaml.safe_load(file.read_text())
        settings["listen"] = [{"address": "127.0.0.1:0", "path": "/msh"}]
        settings["party"] = [{"id": PARTIES[corner.name]}, *EIC[corner.name]]
        settings["webhook"] = {"url": f"http://127.0.0.1:{corner.application.port}/"}
        file.write_text(yaml.safe_dump(settings))
        sockets[corner.name] = listen(load_config(file))
    ports = {name: found[0].getsockname()[1] for name, found in sockets.items()}
    relay.target = f"http://127.0.0.1:{ports[C3]}/msh"
    homeward.target = f"http://127.0.0.1:{ports[C2]}/msh"
    for corner in corners:
        for sample in (corner.folder / "pmodes").iterdir():
            sample.unlink()
        mine = [one for one in terms if corner.name in one.known_to]
        made = [one.pmode(corner.name, relay.url, homeward.url) for one in mine]
        (corner.folder / "pmodes" / "all.yaml").write_text(yaml.safe_dump({"pmodes": made}))
        config = load_config(corner.folder / "postroad.yaml")
        corner.running = RunningNode(config, sockets[corner.name])
        await stack.enter_async_context(corner.running)
        stack.callback(corner.client.close)
    return corners[0], corners[1], relay, homeward


def _strange_key(folder: Path) -> None:
    """A key that the authority issued, and no P-Mode knows: `wrong.p12`."""
    wrong = issued(_pair(folder / "authority.p12"), "wrong")
    octets = pkcs12.serialize_key_and_certificates(
        b"wrong", wrong.key, wrong.certificate, None, NoEncryption()
    )
    (folder / "wrong.p12").write_bytes(octets)
