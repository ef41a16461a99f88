"""The parties of the simulation: configuration, keys and P-Modes, made once and used by all seeds.

Every kind of P-Mode goes from each party to each other one; only buyer and seller have keys, so
only they agree on signatures. Times are short: what takes minutes elsewhere takes seconds here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import yaml

from postroad.agreement.matching import PModes
from postroad.msh.expectation import Expectation
from postroad.node.config import Config, load_config
from postroad.node.in_force import InForce
from postroad.node.initializing import Plan, Station, initialize
from postroad.node.service import Reloaded

BEGIN: Final = datetime(2024, 6, 1, 12, tzinfo=UTC)
PARTIES: Final = ("buyer", "seller", "carrier")
PORTS: Final = {name: 18080 + number for number, name in enumerate(PARTIES)}
SIGNERS: Final = frozenset(("buyer", "seller"))
_NOTHING_AGREED: Final = Expectation(PModes(()))
_SERVICE: Final = "urn:example:simulation"


@dataclass(frozen=True)
class Kind:
    """A kind of P-Mode: how it is answered, and how hard the sender tries."""

    name: str
    receipt: str | None = "response"
    """response, callback, or None where no receipt is agreed on."""
    retry: Mapping[str, Any] | None = None
    awareness: Mapping[str, Any] = field(default_factory=dict)
    """What else stands below reception_awareness."""
    signed: bool = False
    errors_call_back: bool = False

    @property
    def order(self) -> str | None:
        found = self.awareness.get("in_order")
        return str(found) if found else None

    @property
    def endless(self) -> bool:
        """Whether the sender goes on until there is an answer."""
        return self.retry is not None and self.retry.get("max_retries") == "unlimited"


_FEW: Final = {"max_retries": 3, "period": "PT4S"}
_MANY: Final = {"max_retries": 12, "period": "PT3S", "backoff": 1.5, "max_period": "PT20S"}
_FOR_EVER: Final = {
    "max_retries": "unlimited",
    "timeout": "PT2S",
    "period": "PT3S",
    "backoff": 2,
    "max_period": "PT30S",
    "jitter": 0.5,
}

KINDS: Final = (
    Kind("once"),
    Kind("few", retry=_FEW),
    Kind("many", retry=_MANY),
    Kind("stubborn", retry=_FOR_EVER),
    Kind("silent", None),
    Kind("back-once", "callback"),
    Kind("back-few", "callback", {**_FEW, "timeout": "PT15S"}),
    Kind("back-stubborn", "callback", {**_FOR_EVER, "timeout": "PT15S"}),
    Kind("back-errors", "callback", {**_FEW, "timeout": "PT10S"}, errors_call_back=True),
    Kind("mortal", retry={**_MANY, "time_to_live": "PT15S"}),
    Kind("remembered", retry={**_MANY, "persist_duration": "PT20S"}),
    Kind("halting", retry={**_FEW, "then": "suspend"}),
    Kind("back-halting", "callback", {**_FEW, "timeout": "PT10S", "then": "suspend"}),
    Kind("hasty", retry={**_FEW, "fail_fast": True}),
    Kind("ordered", retry=_FOR_EVER, awareness={"in_order": "conversation"}),
    Kind("ordered-few", retry=_FEW, awareness={"in_order": "pmode"}),
    Kind("ordered-back", "callback", {**_FEW, "timeout": "PT10S"}, {"in_order": "conversation"}),
    Kind("strict", retry=_MANY, awareness={"strict_ack": True}),
    Kind("afterwards", "callback", {**_FOR_EVER, "timeout": "PT20S"}, {"ack_after_delivery": True}),
    Kind("signed", retry=_MANY, signed=True),
    Kind("signed-back", "callback", {**_MANY, "timeout": "PT15S"}, signed=True),
)
KIND: Final = {kind.name: kind for kind in KINDS}


class Fixed(InForce):
    """P-Modes and keys that never change, so that nobody need look at their files."""

    missing = False
    """Somebody has taken the P-Modes away for a while: nothing that comes fits any."""

    def refresh(self) -> Reloaded:
        return Reloaded(True, 0, ())

    @property
    def expectation(self) -> Expectation:
        return _NOTHING_AGREED if self.missing else super().expectation


@dataclass(frozen=True)
class Party:
    name: str
    config: Config
    in_force: Fixed

    @property
    def id(self) -> str:
        return self.config.party_name


def pmode_id(sender: str, receiver: str, kind: Kind) -> str:
    return f"{sender}-{receiver}-{kind.name}"


def address(party: str) -> str:
    return f"http://{party}.example:{PORTS[party]}/msh"


def make_parties(folder: Path) -> dict[str, Party]:
    """Write the files of all parties, and load them."""
    stations = {name: Station(name, folder / name, port) for name, port in PORTS.items()}
    initialize(Plan(stations["buyer"], stations["seller"]), now=BEGIN)
    initialize(Plan(stations["carrier"]), now=BEGIN)
    return {name: _make_party(folder / name, name) for name in PARTIES}


def _make_party(folder: Path, name: str) -> Party:
    for sample in (folder / "pmodes").iterdir():
        sample.unlink()
    pmodes = [
        _pmode(sender, receiver, kind, at=name)
        for sender, receiver, kind in agreed()
        if name in (sender, receiver)
    ]
    text = yaml.safe_dump({"pmodes": pmodes}, sort_keys=False)
    (folder / "pmodes" / "all.yaml").write_text(text)
    config = load_config(folder / "postroad.yaml")
    return Party(name, config, Fixed(config, config.limits.wire))


def agreed() -> Iterator[tuple[str, str, Kind]]:
    """Who may send what to whom."""
    for sender, receiver in permutations(PARTIES, 2):
        for kind in KINDS:
            if not kind.signed or {sender, receiver} <= SIGNERS:
                yield sender, receiver, kind


def _pmode(sender: str, receiver: str, kind: Kind, *, at: str) -> dict[str, Any]:
    leg: dict[str, Any] = {
        "protocol": {"address": address(receiver), "soap_version": "1.2"},
        "business_info": {"service": _SERVICE, "action": kind.name},
        "error_handling": {"report": _errors(sender, kind)},
        "security": {"send_receipt": _receipt(sender, receiver, kind)},
    }
    if kind.signed:
        leg["security"] |= _signature(sender, at=at)
    awareness = _awareness(kind)
    if awareness:
        leg["reception_awareness"] = awareness
    return {
        "id": pmode_id(sender, receiver, kind),
        "mep": "oneWay",
        "mep_binding": "push",
        "initiator": {"party": f"urn:example:{sender}", "role": "urn:example:sender"},
        "responder": {"party": f"urn:example:{receiver}", "role": "urn:example:receiver"},
        "legs": [leg],
    }


def _errors(sender: str, kind: Kind) -> dict[str, Any]:
    if kind.errors_call_back:
        return {"as_response": False, "receiver_errors_to": [address(sender)]}
    return {"as_response": True}


def _receipt(sender: str, receiver: str, kind: Kind) -> dict[str, Any]:
    if kind.receipt is None:
        return {"enabled": False}
    receipt: dict[str, Any] = {"reply_pattern": kind.receipt}
    if kind.receipt == "callback":
        receipt["reply_to"] = address(sender)
    if kind.signed:
        receipt |= {"non_repudiation": True, "certificate": f"../keys/{receiver}.pem"}
    return receipt


def _signature(sender: str, *, at: str) -> dict[str, Any]:
    signature = {
        "certificate": f"../keys/{sender}.pem",
        "algorithm": "rsa-sha256",
        "hash_function": "sha256",
        "key_reference": "binary_security_token",
    }
    if at == sender:
        signature["key"] = f"../keys/{sender}.p12"
    return {"wss_version": "1.1", "x509": {"sign": True, "signature": signature}}


def _awareness(kind: Kind) -> dict[str, Any]:
    found = dict(kind.awareness)
    if kind.retry is not None:
        found["retry"] = {"parameters": dict(kind.retry)}
    return found
