"""Two nodes for the stateful fuzzer: P-Modes of every kind, recorded requests, resources."""

import json
import os
import re
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from tests.e2e.nodes import Pair, Served, make_pair, started
from tests.e2e.taps import Tap

HOST: Final = "127.0.0.1"
_RETRY: Final = {"max_retries": "unlimited", "timeout": "PT1S", "period": "PT1S"}
_KEPT_OF_A_KIND: Final = 20
_MARKS: Final = re.compile(
    rb"[<:](UserMessage|Receipt|Error|PullRequest|MessageFragment|Sequence|SequenceAcknowledgement"
    rb"|CreateSequence|CreateSequenceResponse|CloseSequence|TerminateSequence|Request|Response"
    rb"|Acknowledgment|ErrorList|Manifest|StatusRequest|StatusResponse|TraceHeader|Via"
    rb"|SignatureValue|EncryptedData|Action)[ />]"
)


def pmodes(buyer: str, seller: str) -> dict[str, dict[str, Any]]:
    """Return P-Modes by name; all messages go from the buyer to the seller, at these addresses."""
    aware = {"retry": {"parameters": _RETRY}}
    signature = {
        "x509": {"sign": True, "signature": {"certificate": "../keys/buyer.pem"}},
    }
    encryption = {"encrypt": True, "certificate": "../keys/seller.pem"}
    proof = {"non_repudiation": True, "certificate": "../keys/seller.pem"}
    response = {"reply_pattern": "response"}
    callback = {"reply_pattern": "callback", "reply_to": buyer}
    separate = {"report": {"as_response": False}}
    split = {"fragment_size": "2000 B", "join_interval": "PT1M"}

    def reliable(protocol: str, pattern: str) -> dict[str, Any]:
        contract = {"enabled": True} | ({"acks_to": buyer} if pattern == "Callback" else {})
        return {
            "protocol": protocol,
            "at_least_once": {"contract": contract, "reply_pattern": pattern},
            "at_most_once": True,
            "in_order": protocol == "wsrm",
            "retry": _RETRY,
        }

    def ebxml(version: str) -> dict[str, Any]:
        return {
            "ebxml": {"version": version, "delivery_semantics": "OnceAndOnlyOnce"},
            "reception_awareness": {"retry": {"parameters": _RETRY}},
        }

    x509 = signature["x509"]
    legs: dict[str, dict[str, Any]] = {
        "plain": {"security": {"send_receipt": response}, "reception_awareness": aware},
        "signed": {
            "security": signature | {"send_receipt": response | proof},
            "reception_awareness": aware,
        },
        "encrypted": {
            "security": {
                "x509": x509 | {"encryption": encryption},
                "send_receipt": response | proof,
            },
            "payload_service": {"compression_type": "gzip"},
            "reception_awareness": aware,
        },
        "called": {
            "security": signature | {"send_receipt": callback | proof},
            "error_handling": separate,
            "reception_awareness": aware,
        },
        "split": {
            "security": {"send_receipt": callback},
            "error_handling": separate,
            "splitting": split,
            "reception_awareness": aware,
        },
        "split-signed": {
            "security": signature | {"send_receipt": callback | proof},
            "error_handling": separate,
            "splitting": split,
            "reception_awareness": aware,
        },
        "bundled": {
            "security": signature | {"send_receipt": response | proof},
            "bundling": {
                "policy": "optional",
                "compatibility": {"pmode_list": ["bundled"]},
                "max_size": "64 KiB",
                "max_delay": "PT1S",
            },
            "reception_awareness": aware,
        },
        "wsrm": {
            "security": {"send_receipt": {"enabled": False}},
            "reliability": reliable("wsrm", "Response"),
        },
        "wsrm-signed": {
            "security": signature
            | {"send_receipt": {"enabled": False, "certificate": "../keys/seller.pem"}},
            "reliability": reliable("wsrm", "Callback"),
        },
        "wsreliability": {
            "security": {"send_receipt": {"enabled": False}},
            "reliability": reliable("ws-reliability", "Callback"),
        },
        "pulled": {
            "security": signature | {"send_receipt": {"reply_pattern": "callback"} | proof},
            "pulling": {"scheduled": False, "piggyback": True},
        },
        **{f"ebxml-{version}": ebxml(version) for version in ("0.98b", "1.0", "2.0")},
        "ebxml-signed": ebxml("2.0")
        | {"security": {"x509": x509, "send_receipt": {"certificate": "../keys/seller.pem"}}},
    }
    made = {}
    for name, leg in legs.items():
        pulled = name == "pulled"
        parties = [{"party": "urn:example:buyer"}, {"party": "urn:example:seller"}]
        first, second = reversed(parties) if pulled else parties
        made[name] = {
            "id": name,
            "agreement": "urn:example:agreed",
            "mep_binding": "pull" if pulled else "push",
            "initiator": first,
            "responder": second,
            "legs": [
                {
                    "protocol": {"address": buyer if pulled else seller},
                    "business_info": {"service": "urn:example:trade", "action": name},
                    **leg,
                }
            ],
        }
    return made


def is_signed(pmode: dict[str, Any]) -> bool:
    return "x509" in pmode["legs"][0].get("security", {})


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it went over the line."""

    to: str
    """The name of the node that it went to."""
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Requests:
    """The last requests of each kind; a kind is made of the elements in a message."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, frozenset[bytes]], deque[Sent]] = {}

    def add(self, request: Sent) -> None:
        kind = request.to, frozenset(_MARKS.findall(request.body))
        self._kinds.setdefault(kind, deque(maxlen=_KEPT_OF_A_KIND)).append(request)

    def all(self) -> list[Sent]:
        """Return the requests that are kept, by kind, in the order in which they came."""
        return [one for kind in self._kinds.values() for one in kind]

    def choose(self, random: Random) -> Sent:
        return random.choice(random.choice(list(self._kinds.values())))


class Recorder(Tap):
    """Passes requests on to a node and records them."""

    def __init__(self, target: str, name: str, requests: Requests) -> None:
        super().__init__(target)
        self._name = name
        self._requests = requests

    def note_request(self, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        self._requests.add(Sent(self._name, headers, body))


@dataclass
class Nodes:
    """A running buyer and seller, with what went between them."""

    pair: Pair
    pmodes: dict[str, dict[str, Any]]
    requests: Requests

    def node(self, name: str) -> Served:
        return self.pair.buyer if name == "buyer" else self.pair.seller

    def address(self, name: str) -> tuple[str, int]:
        door = next(one for one in self.node(name).serving.doors if "msh" in one.serve)
        return HOST, int(door.url.rpartition(":")[2])


@contextmanager
def running(folder: Path) -> Iterator[Nodes]:
    """Start both nodes; whatever is left of them is killed in the end."""
    pair = make_pair(folder, "--unsigned")
    requests = Requests()
    ports = {}
    for one in (pair.buyer, pair.seller):
        text = one.config.read_text().replace("log: {format: text}", "log: {format: json}")
        one.config.write_text(text)
        ports[one.name] = yaml.safe_load(text)["listen"][0]["address"]
    taps = {
        name: Recorder(f"http://{at}/msh", name, requests).start() for name, at in ports.items()
    }
    agreed = pmodes(taps["buyer"].url, taps["seller"].url)
    try:
        for one in (pair.buyer, pair.seller):
            shutil.rmtree(one.folder / "pmodes")
            (one.folder / "pmodes").mkdir()
            text = json.dumps({"pmodes": list(agreed.values())})
            (one.folder / "pmodes" / "all.yaml").write_text(text)
        yield Nodes(started(pair), agreed, requests)
    finally:
        pair.end()
        for tap in taps.values():
            tap.stop()


@dataclass(frozen=True, slots=True)
class Resources:
    """What a node takes of the machine."""

    memory: int
    files: int
    disk: int

    def __str__(self) -> str:
        return f"{self.memory >> 20} MiB, {self.files} files, {self.disk >> 20} MiB on disk"


def resources(node: Served) -> Resources:
    """Measure a node: resident memory, open files, and the bytes of its data folder."""
    assert node.process is not None
    process = Path("/proc") / str(node.process.pid)
    pages = int((process / "statm").read_text().split()[1])
    disk = 0
    for folder, _, files in os.walk(node.data):
        for file in files:
            try:
                disk += (Path(folder) / file).stat().st_size
            except FileNotFoundError:
                continue
    memory = pages * os.sysconf("SC_PAGE_SIZE")
    return Resources(memory, len(list((process / "fd").iterdir())), disk)


def trouble_in(line: bytes) -> str | None:
    """Return what a line of the log says, if it is about an error that has no name."""
    try:
        told: dict[str, Any] = json.loads(line)
    except ValueError:
        return line.decode(errors="replace")
    return str(told)[:3000] if told["level"] in ("error", "critical") or "error" in told else None
