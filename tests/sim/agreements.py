"""The parties of the simulation: configuration, keys and P-Modes, made once and used by all seeds.

Every kind of P-Mode goes from each party to each other one; only buyer and seller have keys, so
only they agree on signatures, and only theirs goes through the carrier where a kind is relayed.
Times are short: what takes minutes elsewhere takes seconds here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any, Final

from postroad.agreement.matching import PModes
from postroad.msh.expectation import Expectation
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.service import Reloaded
from postroad.node.settings.config import Config, load_config
from postroad.node.settings.config_groups import Journal, Mail, MailRelay
from postroad.node.settings.in_force import InForce
from tests.sim.asked_agreements import ASKED_KINDS, asked_pmode
from tests.sim.bundled_agreements import (
    BUNDLED_KINDS,
    SEQUENCED_KINDS,
    bundling_terms,
    reliable_terms,
)
from tests.sim.ebxml_agreements import EBXML_KINDS, address, ebxml_pmode, mailbox, relay_pmode
from tests.sim.kinds import FEW, FOR_EVER, MANY, PARTIES, RELAY, SERVICE, SIGNERS, Kind
from tests.sim.pulled_agreements import PULLED_KINDS, credentials, pulled_info, pulled_terms

BEGIN: Final = datetime(2024, 6, 1, 12, tzinfo=UTC)
PORTS: Final = {name: 18080 + number for number, name in enumerate(PARTIES)}
_NOTHING_AGREED: Final = Expectation(PModes(()))

KINDS: Final = (
    Kind("once"),
    Kind("few", retry=FEW),
    Kind("many", retry=MANY),
    Kind("stubborn", retry=FOR_EVER),
    Kind("silent", None),
    Kind("back-once", "callback"),
    Kind("back-few", "callback", {**FEW, "timeout": "PT15S"}),
    Kind("back-stubborn", "callback", {**FOR_EVER, "timeout": "PT15S"}),
    Kind("back-errors", "callback", {**FEW, "timeout": "PT10S"}, errors_call_back=True),
    Kind("mortal", retry={**MANY, "time_to_live": "PT15S"}),
    Kind("remembered", retry={**MANY, "persist_duration": "PT20S"}),
    Kind("halting", retry={**FEW, "then": "suspend"}),
    Kind("back-halting", "callback", {**FEW, "timeout": "PT10S", "then": "suspend"}),
    Kind("hasty", retry={**FEW, "fail_fast": True}),
    Kind("ordered", retry=FOR_EVER, awareness={"in_order": "conversation"}),
    Kind("ordered-few", retry=FEW, awareness={"in_order": "pmode"}),
    Kind("ordered-back", "callback", {**FEW, "timeout": "PT10S"}, {"in_order": "conversation"}),
    Kind("strict", retry=MANY, awareness={"strict_ack": True}),
    Kind("afterwards", "callback", {**FOR_EVER, "timeout": "PT20S"}, {"ack_after_delivery": True}),
    Kind("signed", retry=MANY, signed=True),
    Kind("signed-back", "callback", {**MANY, "timeout": "PT15S"}, signed=True),
)


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
        if name in (sender, receiver) or (kind.relay is not None and name == RELAY)
    ]
    # JSON is YAML, and is written in a hundredth of the time.
    (folder / "pmodes" / "all.yaml").write_text(json.dumps({"pmodes": pmodes}))
    config = load_config(folder / "postroad.yaml")
    relay = MailRelay(host="mail.example")
    mail = Mail(address=mailbox(name).removeprefix("mailto:"), relay=relay)
    # Shipping has a thread of its own, and that would make two histories of one seed.
    config = config.model_copy(update={"mail": mail, "journal": Journal()})
    return Party(name, config, Fixed(config, config.limits.wire))


def agreed() -> Iterator[tuple[str, str, Kind]]:
    """Who may send what to whom."""
    for sender, receiver in permutations(PARTIES, 2):
        bundled = (*BUNDLED_KINDS, *SEQUENCED_KINDS)
        for kind in (*KINDS, *EBXML_KINDS, *PULLED_KINDS, *ASKED_KINDS, *bundled):
            if not kind.only_two or {sender, receiver} <= SIGNERS:
                yield sender, receiver, kind


def _pmode(sender: str, receiver: str, kind: Kind, *, at: str) -> dict[str, Any]:
    name = pmode_id(sender, receiver, kind)
    if kind.ebxml is not None:
        make = ebxml_pmode if at in (sender, receiver) else relay_pmode
        return make(name, sender, receiver, kind)
    if kind.reply is not None:
        return _asked(name, sender, receiver, kind, at=at)
    leg = _leg(sender, receiver, kind, at=at)
    if kind.pulling is not None:
        return _pulled(name, sender, receiver, kind, leg)
    return {
        "id": name,
        "mep": "oneWay",
        "mep_binding": "push",
        "initiator": {"party": f"urn:example:{sender}", "role": "urn:example:sender"},
        "responder": {"party": f"urn:example:{receiver}", "role": "urn:example:receiver"},
        "legs": [leg],
    }


def _leg(sender: str, receiver: str, kind: Kind, *, at: str) -> dict[str, Any]:
    """How messages go from one to the other when they are pushed."""
    leg: dict[str, Any] = {
        "protocol": {"address": address(receiver), "soap_version": "1.2"},
        "business_info": {"service": SERVICE, "action": kind.name},
        "error_handling": {"report": _errors(sender, kind)},
        "security": {"send_receipt": _receipt(sender, receiver, kind)},
    }
    if kind.signed:
        leg["security"] |= _signature(sender, at=at)
    awareness = _awareness(kind)
    if awareness:
        leg["reception_awareness"] = awareness
    if kind.reliability is not None:
        leg["reliability"] = reliable_terms(kind)
    if kind.bundling is not None:
        leg["bundling"] = bundling_terms(pmode_id(sender, receiver, kind), kind)
    return leg


def _asked(name: str, sender: str, receiver: str, kind: Kind, *, at: str) -> dict[str, Any]:
    """Requests, and the replies to them."""
    assert kind.reply is not None
    request, reply = (
        _leg(sender, receiver, kind, at=at),
        _leg(receiver, sender, kind.reply, at=at),
    )
    reply["business_info"]["action"] += "-reply"
    asks: dict[str, Any] = {"party": f"urn:example:{sender}", "role": "urn:example:asks"}
    answers: dict[str, Any] = {"party": f"urn:example:{receiver}", "role": "urn:example:answers"}
    if kind.pulling is not None:
        answers["authorization"] = credentials(sender, receiver)
    if kind.reply.pulling is not None and not kind.signed:
        asks["authorization"] = credentials(receiver, sender)
    for leg, one, at_sender in ((request, kind, sender), (reply, kind.reply, receiver)):
        if one.pulling is not None:
            leg["protocol"]["address"] = address(at_sender)
            leg["pulling"] = pulled_terms(one)
            del leg["error_handling"]
    if kind.binding == "sync" and kind.alternate != "pushAndPush":
        del reply["protocol"]["address"]
    if kind.binding == "sync":
        reply["security"]["send_receipt"].pop("reply_to", None)
    return asked_pmode(name, kind, [asks, answers], [request, reply])


def _pulled(
    name: str, sender: str, receiver: str, kind: Kind, leg: dict[str, Any]
) -> dict[str, Any]:
    """The same for who pulls: it is the initiator, and knows where the sender is."""
    leg["protocol"]["address"] = address(sender)
    leg["business_info"] |= pulled_info(sender, kind)
    leg["pulling"] = pulled_terms(kind)
    del leg["error_handling"]
    puller = {"party": f"urn:example:{receiver}", "role": "urn:example:receiver"}
    if not kind.signed:
        puller["authorization"] = credentials(sender, receiver)
    return {
        "id": name,
        "mep": "oneWay",
        "mep_binding": "pull",
        "initiator": puller,
        "responder": {"party": f"urn:example:{sender}", "role": "urn:example:sender"},
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
    if kind.retry is not None and kind.reliability is None:
        found["retry"] = {"parameters": dict(kind.retry)}
    return found
