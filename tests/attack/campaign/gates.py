"""Taps that hold back what passes between the nodes, with P-Modes of their own that lead there."""

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from postroad.api.client import Client
from postroad.api.client_values import Message
from tests.attack.campaign.model import Breach
from tests.attack.campaign.target import PATIENCE, Target
from tests.e2e.nodes import until
from tests.e2e.taps import Tap
from tests.fuzz.stateful_nodes import Sent, pmodes

SOAP12: Final = "application/soap+xml; charset=UTF-8"
SOAP11: Final = "text/xml; charset=UTF-8"
_SOON: Final = {"max_retries": "unlimited", "timeout": "PT0.3S", "period": "PT0.3S"}
_ENDS: Final = ("acknowledged", "sent", "failed", "expired", "in_doubt", "settled", "suspended")
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a gate answers by itself."""

    status: int
    body: bytes = b""
    content_type: str = SOAP12
    headers: tuple[tuple[str, str], ...] = ()


NOTHING: Final = Reply(202)
"""Says nothing about a message, so it is sent again; the partner is not paused for that."""


class Gate(Tap):
    """Passes requests on to a node, unless it is told to answer them itself."""

    def __init__(self, target: str, name: str) -> None:
        super().__init__(target)
        self.name = name
        self.requests: list[Sent] = []
        self.answers: list[tuple[bytes, bytes]] = []
        """Requests that were passed on, and what the node answered."""
        self.reply: Callable[[bytes], Reply | None] = lambda _: None

    def note_request(self, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        self.requests.append(Sent(self.name, headers, body))

    def note_answer(self, request: bytes, answer: bytes) -> None:
        self.answers.append((request, answer))

    def answer(self, body: bytes) -> tuple[int, tuple[tuple[str, str], ...], bytes] | None:
        own = self.reply(body)
        if own is None:
            return None
        return own.status, (("Content-Type", own.content_type), *own.headers), own.body

    def about(self, message_id: str) -> list[Sent]:
        """Return the requests that name a message."""
        return [one for one in list(self.requests) if message_id.encode() in one.body]


@dataclass
class Gates:
    """A gate before each node, and P-Modes of every kind that lead through them."""

    target: Target
    prefix: str
    pmodes: dict[str, dict[str, Any]]
    buyer: Gate
    seller: Gate

    def pmode(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    def shut(self, seller: Callable[[bytes], Reply | None] = lambda _: NOTHING) -> None:
        """Let nothing pass; requests to the seller are answered as told."""
        self.buyer.reply = lambda _: NOTHING
        self.seller.reply = seller

    def open(self) -> None:
        self.buyer.reply = self.seller.reply = lambda _: None

    def send(self, kind: str, message_id: str | None = None, payload: bytes = b"honest") -> str:
        """Let the buyer's application send a message on a P-Mode; its id."""
        pmode = self.pmode(kind)
        sent = client(self.target, "buyer").send(
            pmode=pmode, payloads=[payload], message_id=message_id
        )
        self.target.sent[sent.message_id] = pmode
        return sent.message_id

    def attempted(self, message_id: str, times: int = 1) -> list[Sent]:
        """Wait until a message was brought to the seller's gate so many times; these requests."""
        wait_for(
            lambda: len(self.seller.about(message_id)) >= times,
            f"{message_id} is sent {times} times",
        )
        return self.seller.about(message_id)

    def acknowledged(self, message_id: str) -> Message:
        """Open the gates; the message must be acknowledged soon."""
        self.open()
        pmode = self.target.sent[message_id]
        if pmode.endswith("pulled"):
            client(self.target, "seller").pull(pmode, most=10)
        found = client(self.target, "buyer").wait(message_id, PATIENCE)
        if found.state != "acknowledged":
            raise Breach(f"{message_id} on {pmode} is {found.state} in the end: {found.detail}")
        return found

    def unsettled(self, message_id: str) -> Message:
        """Raise Breach if something has settled the message, or a fragment of it."""
        found = client(self.target, "buyer").status(message_id)
        if found.state in _ENDS:
            raise Breach(f"{message_id} is {found.state}, nobody answered it: {found.detail}")
        if found.transfer is not None and found.transfer.arrived:
            raise Breach(f"{found.transfer.arrived} fragments of {message_id} are acknowledged")
        return found

    def close(self) -> None:
        for gate in (self.buyer, self.seller):
            gate.stop()


@functools.cache
def kept_client(folder: Path, name: str, url: str) -> Client:
    token = (folder / name / "keys" / "api.token").read_text().strip()
    return Client(url, token=token)


def client(target: Target, name: str) -> Client:
    """Return a client that is kept: making one for each look takes longer than the look."""
    return kept_client(target.folder, name, target.node(name).serving.api_url or "")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    try:
        until(condition, what, PATIENCE)
    except AssertionError as error:
        raise Breach(str(error)) from None


def agree(
    target: Target,
    name: str,
    made: Sequence[dict[str, Any]],
    nodes: Sequence[str] = ("buyer", "seller"),
) -> None:
    """Put P-Modes among those of some nodes, by a file and a reload."""
    for one in nodes:
        text = json.dumps({"pmodes": list(made)})
        (target.node(one).folder / "pmodes" / f"{name}.yaml").write_text(text)
        client(target, one).reload()
    target.pmodes.update({one["id"]: one for one in made})


@contextlib.contextmanager
def gated(
    target: Target, prefix: str, kinds: Sequence[str], more: Sequence[dict[str, Any]] = ()
) -> Iterator[Gates]:
    """Agree on P-Modes of these kinds by way of gates, in an agreement of their own."""
    buyer = Gate(f"http://127.0.0.1:{target.port('buyer')}/msh", "buyer")
    seller = Gate(f"http://127.0.0.1:{target.port('seller')}/msh", "seller")
    buyer.start()
    seller.start()
    try:
        made = {}
        known = pmodes(buyer.url, seller.url) | _more_kinds(buyer.url, seller.url)
        for kind in kinds:
            made[kind] = _renamed(known[kind], prefix, kind)
        agree(target, prefix, [*made.values(), *more])
        yield Gates(target, prefix, made, buyer, seller)
    finally:
        buyer.stop()
        seller.stop()


def _more_kinds(buyer: str, seller: str) -> dict[str, dict[str, Any]]:
    known = pmodes(buyer, seller)
    made = {}
    for version in ("1.0", "2.0"):
        made[f"ebxml-{version}-sync"] = pmode = deepcopy(known[f"ebxml-{version}"])
        pmode["legs"][0]["ebxml"] |= {"sync_reply": "mshSignalsOnly", "ack_requested": "UnSigned"}
    made["ebxml-signed"] = pmode = deepcopy(known["ebxml-signed"])
    pmode["legs"][0]["ebxml"] |= {"ack_requested": "Signed"}
    made["wsreliability-response"] = pmode = deepcopy(known["wsreliability"])
    least = {"contract": {"enabled": True}, "reply_pattern": "Response"}
    pmode["legs"][0]["reliability"]["at_least_once"] = least
    return made


def _renamed(pmode: dict[str, Any], prefix: str, kind: str) -> dict[str, Any]:
    made = deepcopy(pmode)
    [leg] = made["legs"]
    name = f"{prefix}-{kind}"
    made |= {"id": name, "agreement": f"urn:example:agreed:{prefix}"}
    leg["business_info"]["action"] = name
    if kind == "pulled":
        leg["business_info"]["mpc"] = f"urn:example:channels:{prefix}"
    if "bundling" in leg:
        leg["bundling"] |= {"compatibility": {"pmode_list": [name]}, "max_delay": "PT0.1S"}
    for where in ("reliability", "reception_awareness"):
        if where in leg:
            leg[where]["retry"] = _SOON if where == "reliability" else {"parameters": _SOON}
    return made


def new_id(what: str) -> str:
    return f"{what}-{next(_numbers)}@campaign.example"


def ids_in(body: bytes) -> list[str]:
    """Return the message ids that a request names."""
    return [one.decode() for one in dict.fromkeys(re.findall(rb"MessageId>([^<\s]+)<", body))]
