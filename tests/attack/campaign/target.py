"""The nodes that are attacked, what attackers do to them, and what must hold afterwards.

`buyer` and `seller` are partners with P-Modes of every kind (tests.fuzz.stateful_nodes). The seller
listens for plain HTTP, for TLS, for TLS with client certificates, and for mail. Honest clients come
from 127.0.0.1, attackers from ATTACKER; both are addresses of this machine's loopback.
"""

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from postroad.api.client import Client
from tests.attack.campaign.model import Breach
from tests.e2e.nodes import Pair, Served, make_pair
from tests.fuzz.stateful_nodes import (
    Recorder,
    Requests,
    Resources,
    Sent,
    is_signed,
    pmodes,
    resources,
    trouble_in,
)
from tests.ports import free_port

HOST: Final = "127.0.0.1"
ATTACKER: Final = "127.0.0.66"
PATIENCE: Final = 30.0
"""Seconds after which an answer is taken not to come."""
MIB: Final = 2**20
_MOST_MEMORY: Final = 700 * MIB
"""How much a node may grow during the whole campaign. 14 floods of 2,500 TLS handshakes left 445
MiB more; whether the allocator keeps that or something leaks is not known."""
_MOST_FILES: Final = 200
_MOST_DISK: Final = 256 * MIB
_HONEST_SECONDS: Final = 10.0
_OF_HTTP: Final = (405, 411, 413, 414, 415, 417, 421, 426, 431, 501, 505)
SETTINGS: Final[dict[str, Any]] = {
    "log": {"format": "json"},
    "security": {
        "exempt_networks": [],
        "egress": {"callback_hosts": ["127.0.0.1", "localhost", "169.254.169.254", "*.example"]},
    },
    "http": {
        "header_timeout": "PT5S",
        "body_timeout": "PT5S",
        "write_timeout": "PT5S",
        "unfinished_bytes": "256 MiB",
        "unfinished_bytes_per_address": "48 MiB",
    },
    "joining": {"groups": 60},
    "limits": {"refused": {"total_bytes": "1 MiB"}},
}
"""Loopback is limited like any network here, and slow clients do not take the campaign's time.

Callbacks to hosts of this machine are allowed by name, so that their addresses have to be refused.
"""
MAIL: Final = {"timeout": "PT5S", "max_size": "4 MiB"}
THIRD: Final = "urn:example:third"
"""A party for which P-Modes name no address; it may send ebXML 1.0 to the seller."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client was answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def codes(self) -> list[str]:
        """The ebMS error codes in it, in their order."""
        return [one[:9].decode() for one in self.body.split(b'errorCode="')[1:]]


class Canary:
    """A listener that nobody has a reason to contact; it counts who does."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self._socket = socket.create_server((HOST, 0))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://{HOST}:{self.port}/canary"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                said = b"(connected)"
                with contextlib.suppress(OSError):
                    said += connection.recv(4096)
                self.calls.append(said)

    def close(self) -> None:
        self._socket.close()


@dataclass
class Target:
    """Running nodes, and what is known of them before the attacks."""

    folder: Path
    pair: Pair
    pmodes: dict[str, dict[str, Any]]
    captured: Requests
    """Requests that passed between the nodes on the line, as an eavesdropper has them."""
    taps: dict[str, Recorder]
    canary: Canary
    tls_port: int
    client_tls_port: int
    smtp_port: int
    requests: int = 0
    sent: dict[str, str] = field(default_factory=dict)
    """The P-Mode of each message that the buyer's application sent, by id."""
    _first: dict[str, Resources] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)
    _calls: int = 0

    # What attackers do

    @property
    def nodes(self) -> tuple[Served, Served]:
        return self.pair.buyer, self.pair.seller

    def node(self, name: str) -> Served:
        return self.pair.buyer if name == "buyer" else self.pair.seller

    def port(self, name: str = "seller") -> int:
        """Return the port of a node's plain HTTP listener."""
        door = next(one for one in self.node(name).serving.doors if one.url.startswith("http:"))
        return int(door.url.rpartition(":")[2])

    def connect(
        self, to: str = "seller", *, tls: bool = False, source: str = ATTACKER
    ) -> socket.socket:
        """Open a connection; over TLS to the seller only, without a client certificate."""
        port = self.tls_port if tls else self.port(to)
        connection = socket.create_connection((HOST, port), PATIENCE, (source, 0))
        if not tls:
            return connection
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(connection)

    def exchange(
        self,
        data: bytes,
        to: str = "seller",
        *,
        tls: bool = False,
        source: str = ATTACKER,
        half_close: bool = False,
    ) -> Answer | None:
        """Send bytes on a connection of their own; None if it was closed without an answer."""
        self.requests += 1
        with self.connect(to, tls=tls, source=source) as connection:
            with contextlib.suppress(OSError):  # It may be answered before all of it was sent.
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            return read_answer(connection)

    def post(self, request: Sent, *, tls: bool = False, path: str = "/msh") -> Answer:
        """Send a request; an answer must come, and say by name what is wrong if anything is."""
        answer = self.exchange(head(request, path) + request.body, request.to, tls=tls)
        if answer is None:
            raise Breach("the connection was closed without an answer")
        judge(answer)
        return answer

    def recorded(self, pmode: str, *marks: bytes, to: str = "seller") -> list[Sent]:
        """Return captured requests of a P-Mode (by its action) that contain all of the marks."""
        action = f">{pmode}<".encode()
        return [
            one
            for one in self.captured.all()
            if one.to == to and action in one.body and all(mark in one.body for mark in marks)
        ]

    # What honest clients do

    def client(self, name: str = "seller") -> Client:
        return self.node(name).client()

    def send(self, pmode: str, payload: bytes = b"an honest payload") -> str:
        """Let the buyer's application send a message; its id."""
        with self.client("buyer") as buyer:
            message_id = buyer.send(pmode=pmode, payloads=[payload]).message_id
        self.sent[message_id] = pmode
        if pmode == "pulled":
            with self.client("seller") as seller:
                seller.pull(pmode)
        return message_id

    def honest(self, pmode: str = "signed") -> str:
        """Send a message that must be acknowledged soon; its id."""
        message_id = self.send(pmode)
        with self.client("buyer") as buyer:
            found = buyer.wait(message_id, PATIENCE)
        if found.state != "acknowledged":
            raise Breach(f"an honest message is {found.state} after {PATIENCE:g} s: {found.detail}")
        return message_id

    # What must hold

    def check(self, expected: Sequence[str] = ()) -> None:
        """Raise Breach if a node is not in service, or something happened that must not."""
        for node in self.nodes:
            process = node.process
            if process is None or process.poll() is not None:
                raise Breach(f"{node.name} ended: {node.log[-1000:]}")
            self._check_health(node)
            self._check_log(node, expected)
            self._check_resources(node)
        calls = self.canary.calls[self._calls :]
        self._calls = len(self.canary.calls)
        if calls:
            raise Breach(f"a node called an address that a stranger named: {calls[0]!r}")

    def _check_health(self, node: Served) -> None:
        begun = time.monotonic()
        port = self.port(node.name)
        connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise Breach(f"{node.name} does not answer /healthz: {error}") from None
        finally:
            connection.close()
        took = time.monotonic() - begun
        if status != 200 or took > _HONEST_SECONDS:
            raise Breach(f"{node.name} answers /healthz with {status} after {took:.1f} s")

    def _check_log(self, node: Served, expected: Sequence[str]) -> None:
        with (node.folder / "log").open("rb") as log:
            log.seek(self._read.get(node.name, 0))
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[node.name] = self._read.get(node.name, 0) + len(whole)
        for line in whole.splitlines():
            trouble = trouble_in(line)
            if trouble and not any(text in trouble for text in expected):
                raise Breach(f"{node.name} logged: {trouble}")

    def _check_resources(self, node: Served) -> None:
        now = resources(node)
        first = self._first.setdefault(node.name, now)
        if now.memory > first.memory + _MOST_MEMORY:
            raise Breach(f"{node.name} grew from {first} to {now}")
        if now.files > first.files + _MOST_FILES:
            raise Breach(f"{node.name} has {now.files} open files, it had {first.files}")
        if now.disk > first.disk + _MOST_DISK:
            raise Breach(f"{node.name} grew from {first} to {now}")

    def check_deliveries(self) -> None:
        """Raise Breach if something was delivered that the buyer did not send, or twice."""
        signed = {name for name, pmode in self.pmodes.items() if is_signed(pmode)}
        with self.client("seller") as seller:
            inbox = list(seller.inbox())
        for (message_id, pmode), count in Counter(
            (one.message_id, one.pmode) for one in inbox
        ).items():
            if count > 1 and message_id in self.sent and pmode in signed:
                raise Breach(f"{message_id} was delivered {count} times")
        for one in inbox:
            if one.pmode in signed and one.message_id not in self.sent:
                raise Breach(f"{one.message_id} was delivered on {one.pmode}, nobody sent it")

    def recover(self) -> None:
        """Start what ended, so that the next case finds both nodes in service."""
        for node in self.nodes:
            if node.process is None or node.process.poll() is not None:
                node.process = None
                node.start()
            with contextlib.suppress(Breach):
                self._check_log(node, ())
        self._calls = len(self.canary.calls)
        self._first.clear()  # Growth is told once.


def head(request: Sent, path: str = "/msh") -> bytes:
    """Return the head of a request with its recorded headers, but the length of its body."""
    own = ("content-length", "host", "connection", "transfer-encoding", "expect")
    lines = [f"POST {path} HTTP/1.1", "Host: node.example", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in request.headers if name.lower() not in own]
    lines += [f"Content-Length: {len(request.body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def read_answer(connection: socket.socket) -> Answer | None:
    """Read one answer; None if the connection was closed without one."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        body = response.read()
    except TimeoutError:
        raise Breach(f"no answer within {PATIENCE:g} s") from None
    except (OSError, http.client.HTTPException):
        return None
    return Answer(response.status, tuple(response.getheaders()), body)


def judge(answer: Answer) -> None:
    """Raise Breach unless an answer is a named one: no bare 500, no traceback, no empty refusal."""
    named = (b"EBMS:", b":Fault", b"ErrorList", b"wsrm:", b"wsr:Response", b"application/problem")
    if b"Traceback" in answer.body or b"could not process the message" in answer.body:
        raise Breach(f"answered {answer.status} with an internal error: {answer.body[:300]!r}")
    kind = {name.lower(): value for name, value in answer.headers}.get("content-type", "")
    is_named = any(one in answer.body for one in named) or "problem+json" in kind
    if answer.status >= 500 and answer.status not in _OF_HTTP and not is_named:
        raise Breach(f"answered {answer.status} without a name for it: {answer.body[:300]!r}")
    if answer.status >= 400 and not answer.body:
        raise Breach(f"answered {answer.status} without a word")


def _third(agreed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a P-Mode of the third party, like that of the buyer for ebXML 1.0."""
    like = agreed["ebxml-1.0"]
    leg = {**like["legs"][0], "business_info": {"service": "urn:example:trade", "action": "third"}}
    del leg["reception_awareness"]
    return {**like, "id": "third", "initiator": {"party": THIRD}, "legs": [leg]}


def _configure(node: Served, **settings: Any) -> None:
    config: dict[str, Any] = yaml.safe_load(node.config.read_text())
    for name, value in {**SETTINGS, **settings}.items():
        old = config.get(name)
        config[name] = {**old, **value} if isinstance(old, dict) else value
    node.config.write_text(yaml.safe_dump(config, sort_keys=False))


@contextlib.contextmanager
def target(folder: Path) -> Iterator[Target]:
    """Start the nodes, and send a message on each P-Mode; in the end all are killed."""
    pair = make_pair(folder, "--unsigned", "--with-tls")
    captured, canary = Requests(), Canary()
    plain, tls, client_tls, smtp = {}, free_port(), free_port(), free_port()
    for one in (pair.buyer, pair.seller):
        made: dict[str, Any] = yaml.safe_load(one.config.read_text())
        [door] = [door for door in made["listen"] if "tls" in door]
        plain[one.name] = f"{HOST}:{free_port()}"
        listen = [{"address": plain[one.name], "serve": ["msh", "api"]}]
        if one is pair.seller:
            shown = {"client_certificates": "required", "client_authorities": made["trust"]}
            with_client = {**door["tls"], **shown}
            listen.append({"address": f"{HOST}:{tls}", "serve": ["msh"], "tls": door["tls"]})
            listen.append({"address": f"{HOST}:{client_tls}", "serve": ["msh"], "tls": with_client})
        mail = {"address": f"msh@{one.name}.example", "listen": f"{HOST}:{smtp}"}
        mail_settings = {"mail": {**mail, **MAIL, "tls": door["tls"]}} if one is pair.seller else {}
        _configure(one, listen=listen, **mail_settings)
    taps = {
        name: Recorder(f"http://{at}/msh", name, captured).start() for name, at in plain.items()
    }
    agreed = pmodes(taps["buyer"].url, taps["seller"].url)
    for one in (pair.buyer, pair.seller):
        shutil.rmtree(one.folder / "pmodes")
        (one.folder / "pmodes").mkdir()
        known = [*agreed.values(), *([_third(agreed)] if one is pair.seller else [])]
        text = json.dumps({"pmodes": known})
        (one.folder / "pmodes" / "all.yaml").write_text(text)
    made_target = Target(folder, pair, agreed, captured, taps, canary, tls, client_tls, smtp)
    try:
        for one in made_target.nodes:
            one.begin()
        for one in made_target.nodes:
            one.ready()
        for name in agreed:
            made_target.honest(name)
        made_target.check()
        yield made_target
    finally:
        pair.end()
        canary.close()
        for tap in taps.values():
            tap.stop()
