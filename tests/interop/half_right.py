"""A real node between scripted peers that are half right, for the tests of both directions."""

import http.client
import signal as signals
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow.dataset
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from postroad.api.client import ApiError, Client
from postroad.security.keys import KeyPair
from tests.as4.bench import issued
from tests.as4.foreign import Identity, Letter, Part
from tests.as4.reading import EB3, Seen, read
from tests.e2e.nodes import PATIENCE, Served, make_pair
from tests.interop.scripted_peer import Request, ScriptedPeer

BUYER, SELLER = "urn:example:buyer", "urn:example:seller"
SERVICE: Final = "urn:example:half-right"


@dataclass
class World:
    """The node under test, which is the buyer's, and the seller's peers."""

    node: Served
    client: Client
    peer: ScriptedPeer
    seller: Identity
    relative: Identity
    """Somebody else, of the authority that the node trusts."""
    stranger: Identity

    @property
    def url(self) -> str:
        door = next(one for one in self.node.serving.doors if "msh" in one.serve)
        return door.url + door.path

    def post(self, content_type: str | None, body: bytes) -> "Told":
        """Send a request to the node."""
        to = urlsplit(self.url)
        connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=PATIENCE)
        fields = {} if content_type is None else {"Content-Type": content_type}
        try:
            connection.request("POST", to.path, body, fields)
            answer = connection.getresponse()
            return Told(answer.status, answer.headers.get("Content-Type", ""), answer.read())
        finally:
            connection.close()

    def send(self, pmode: str, *answers: "Scripted") -> str:
        """Send a message to the peer, which answers as scripted; the id once it is decided."""
        message_id = self.submit(pmode, *answers)
        self.client.wait(message_id, PATIENCE)
        return message_id

    def submit(self, pmode: str, *answers: "Scripted") -> str:
        message_id = f"{uuid.uuid4()}@buyer.example"
        self.peer.script(message_id, *(lambda request, a=a: a(self, request) for a in answers))
        self.client.send(pmode=pmode, payloads=[b"<order/>"], message_id=message_id)
        return message_id

    def story(self, message_id: str) -> list[tuple[str, str | None]]:
        """The events about a message, each with its error code."""
        try:
            return [(one.event, one.error_code) for one in self.client.events(message_id)]
        except ApiError as unknown:
            if unknown.status == 404:
                return []
            raise

    def is_delivered(self, message_id: str) -> bool:
        try:
            return self.client.received(message_id).message_id == message_id
        except ApiError as unknown:
            if unknown.status == 404:
                return False
            raise

    def notices(self, message_id: str) -> list[str]:
        """What the application is told about the end of a message."""
        return [one.event for one in self.client.notices() if one.message_id == message_id]


Scripted = Callable[[World, Request], bytes]


@dataclass(frozen=True)
class Told:
    """What the node answered."""

    status: int
    content_type: str
    body: bytes

    @property
    def seen(self) -> Seen:
        return read(self.content_type, self.body)

    @property
    def codes(self) -> list[str]:
        return [one["errorCode"] for one in self.seen.errors] if self.body else []

    @property
    def reasons(self) -> str:
        """The codes with what is said about them."""
        return "; ".join(f"{one['errorCode']} {one['detail']}" for one in self.seen.errors)

    @property
    def ref(self) -> list[str]:
        return self.seen.texts("//eb:SignalMessage/eb:MessageInfo/eb:RefToMessageId")


def identity(path: Path) -> Identity:
    pair = _key_pair(path)
    assert isinstance(pair.private_key, rsa.RSAPrivateKey)
    return Identity(pair.private_key, pair.certificate)


def _key_pair(path: Path) -> KeyPair:
    key, certificate, _ = pkcs12.load_key_and_certificates(path.read_bytes(), None)
    assert key is not None
    assert certificate is not None
    return KeyPair(key, certificate)


def _pmode(name: str, address: str, **leg: Any) -> dict[str, Any]:
    """From the buyer to the seller where the address is that of the peer, else the reverse."""
    sender, receiver = leg.pop("parties")
    return {
        "id": name,
        "mep": "oneWay",
        "mep_binding": "push",
        "initiator": {"party": sender, "role": f"{EB3}initiator"},
        "responder": {"party": receiver, "role": f"{EB3}responder"},
        "legs": [
            {
                "protocol": {"address": address, "soap_version": "1.2"},
                "business_info": {"service": SERVICE, "action": name},
                "error_handling": {"report": {"as_response": True}},
                **leg,
            }
        ],
    }


def _channelled(pmode: dict[str, Any]) -> dict[str, Any]:
    pmode["legs"][0]["business_info"]["mpc"] = "urn:example:channel"
    return pmode


def _proof(signer: str, receiver: str, **receipts: Any) -> dict[str, Any]:
    asked = {"non_repudiation": True, "certificate": f"../keys/{receiver}.pem"} | receipts
    x509 = {"sign": True, "signature": {"certificate": f"../keys/{signer}.pem"}}
    return {"wss_version": "1.1", "x509": x509, "send_receipt": asked}


def _retry(times: int, period: str) -> dict[str, Any]:
    return {
        "reception_awareness": {"retry": {"parameters": {"max_retries": times, "period": period}}}
    }


def _pmodes(peer: str, node: str) -> list[dict[str, Any]]:
    out: dict[str, Any] = {"parties": (BUYER, SELLER)}
    inward: dict[str, Any] = {"parties": (SELLER, BUYER)}
    once = {"send_receipt": {"reply_pattern": "response"}}
    proof = _proof("buyer", "seller")
    called_back = _proof("buyer", "seller", reply_pattern="callback", reply_to=node)
    sealed = _proof("seller", "buyer")
    sealed["x509"]["encryption"] = {"encrypt": True, "certificate": "../keys/buyer.pem"}
    return [
        _pmode("proof", peer, security=proof, **out),
        _pmode("retried", peer, security=proof, **_retry(1, "PT2S"), **out),
        _pmode("impatient", peer, security=proof, **_retry(1, "PT0.1S"), **out),
        _pmode("later", peer, security=called_back, **out),
        _pmode("later-soon-given-up", peer, security=called_back, **_retry(0, "PT0.5S"), **out),
        _pmode("unsigned", peer, security=once, **out),
        _pmode("silent", peer, **out),
        _pmode("plain", node, security=once, **inward),
        _channelled(_pmode("channelled", node, security=once, **inward)),
        _pmode("signed", node, security=_proof("seller", "buyer"), **inward),
        _pmode("sealed", node, security=sealed, **inward),
    ]


@contextmanager
def running(folder: Path) -> Iterator[World]:
    """The node and its peer; when they end, the node's log must hold no traceback."""
    pair = make_pair(folder)
    node, keys = pair.buyer, pair.buyer.folder / "keys"
    settings = yaml.safe_load(node.config.read_text())
    settings["send"] = {"breaker": {"failures": 10_000}}
    settings["limits"] = {"refused": {"events": 1_000_000}}  # each refusal is looked for
    node.config.write_text(yaml.safe_dump(settings))
    for sample in (node.folder / "pmodes").iterdir():
        sample.unlink()
    peer = ScriptedPeer()
    address = f"http://{settings['listen'][0]['address']}/msh"
    made = yaml.safe_dump({"pmodes": _pmodes(peer.url, address)})
    (node.folder / "pmodes" / "all.yaml").write_text(made)
    authority = _key_pair(keys / "authority.p12")
    try:
        node.start()
        with node.client() as client:
            yield World(
                node,
                client,
                peer,
                identity(pair.seller.folder / "keys" / "seller.p12"),
                issued(authority, "somebody else"),
                issued(None, "seller"),
            )
        assert node.end() == 0
        assert "Traceback" not in node.log
    finally:
        if node.process is not None:
            node.end(signals.SIGKILL)
        peer.close()


def journal(world: World) -> list[dict[str, Any]]:
    """All that the node has written down so far."""
    shipped = world.node.run("journal", "ship", "--json")
    assert shipped.exit_code == 0, shipped.output
    found = pyarrow.dataset.dataset(world.node.folder / "journal", format="parquet").to_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


Wire = tuple[str | None, bytes]
"""Content-Type and body of a request."""
PAYLOAD: Final = b"<invoice><total>12</total></invoice>"


def letter(action: str, *parts: Part) -> Letter:
    """A message of the seller's, by the P-Mode of that name."""
    return Letter(
        f"{uuid.uuid4()}@seller.example",
        action,
        parts or (Part("invoice@seller.example", PAYLOAD),),
        SERVICE,
        SELLER,
        receiver=BUYER,
    )
