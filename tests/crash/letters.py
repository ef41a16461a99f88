"""What is sent in a storm: messages of several kinds, and the P-Modes by which they travel."""

import hashlib
import random
from dataclasses import dataclass
from typing import Any, Final

from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE

LARGE: Final = 1_500_000
"""Bytes of some payloads: such a message is packaged after it was accepted."""
LARGE_EVERY: Final = 50
PERIOD: Final = "PT0.3S"
DELAY: Final = "PT0.4S"
"""How long a unit waits for others to go with."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A kind of message."""

    name: str
    share: int
    signed: bool = True
    encrypted: bool = False
    called_back: bool = False
    """The receipt is not the response."""
    in_order: str | None = None
    strict_ack: bool = False
    after_delivery: bool = False
    """The receipt waits for the receiving application."""
    retries: int | None = None
    time_to_live: str | None = None
    fail_fast: bool = False
    bundled: bool = False
    """Several go in one envelope."""

    @property
    def gives_up(self) -> bool:
        """Whether there is an end to sending, else it goes on until a receipt comes."""
        return self.retries is not None or self.time_to_live is not None or self.fail_fast

    @property
    def pmode_id(self) -> str:
        return f"storm-{self.name}"

    def pmode(self, *, sends: bool, to: str, back: str) -> dict[str, Any]:
        """The P-Mode in the folder of the party that sends or of the one that receives."""
        leg: dict[str, Any] = {
            "protocol": {"address": to, "soap_version": "1.2"},
            "business_info": {"service": "urn:example:storm", "action": self.name},
            "error_handling": {"report": {"as_response": True}},
            "security": self._security(sends, back),
            "payload_service": {"compression_type": "gzip"},
            "reception_awareness": self._awareness(),
        }
        if self.bundled:
            company = {"pmode_list": [self.pmode_id]}
            leg["bundling"] = {"policy": "optional", "compatibility": company, "max_delay": DELAY}
            if self.in_order is not None:
                leg["bundling"]["ordering"] = {"policy": "documentorder"}
        return {
            "id": self.pmode_id,
            "mep": "oneWay",
            "mep_binding": "push",
            "initiator": {"party": "urn:example:buyer", "role": INITIATOR_ROLE},
            "responder": {"party": "urn:example:seller", "role": RESPONDER_ROLE},
            "legs": [leg],
        }

    def _security(self, sends: bool, back: str) -> dict[str, Any]:
        receipt: dict[str, Any] = {"reply_pattern": "response"}
        if self.called_back:
            receipt = {"reply_pattern": "callback", "reply_to": back}
        if not self.signed:
            return {"send_receipt": receipt}
        receipt |= {"non_repudiation": True, "certificate": "../keys/seller.pem"}
        signature = {"certificate": "../keys/buyer.pem", "algorithm": "rsa-sha256"}
        signature["hash_function"] = "sha256"
        if sends:
            signature["key"] = "../keys/buyer.p12"
        x509: dict[str, Any] = {"sign": True, "signature": signature}
        if self.encrypted:
            x509["encryption"] = {
                "encrypt": True,
                "certificate": "../keys/seller.pem",
                "algorithm": "aes128-gcm",
                "key_transport": "rsa-oaep",
                "digest": "sha256",
                "mgf": "mgf1sha256",
            }
        return {"wss_version": "1.1", "x509": x509, "send_receipt": receipt}

    def _awareness(self) -> dict[str, Any]:
        retries = "unlimited" if self.retries is None else self.retries
        parameters = {"max_retries": retries, "period": PERIOD, "jitter": 0.5}
        if self.time_to_live is not None:
            parameters["time_to_live"] = self.time_to_live
        if self.fail_fast:
            parameters["fail_fast"] = True
        aware: dict[str, Any] = {"enabled": True, "retry": {"parameters": parameters}}
        if self.in_order is not None:
            aware["in_order"] = self.in_order
        if self.strict_ack:
            aware["strict_ack"] = True
        if self.after_delivery:
            aware["ack_after_delivery"] = True
        return aware


TERMS: Final = (
    Terms("signed", 4),
    Terms("sealed", 3, encrypted=True),
    Terms("plain", 3, signed=False),
    Terms("called-back", 3, called_back=True),
    Terms("in-order", 3, in_order="conversation"),
    Terms("strict", 1, strict_ack=True),
    Terms("after-delivery", 1, called_back=True, after_delivery=True),
    Terms("hasty", 1, retries=1),
    Terms("hasty-called-back", 1, called_back=True, retries=1),
    Terms("perishable", 1, time_to_live="PT1S"),
    Terms("fail-fast", 1, signed=False, fail_fast=True),
    Terms("bundled", 4, bundled=True),
    Terms("bundled-sealed", 2, encrypted=True, bundled=True),
    Terms("bundled-called-back", 3, called_back=True, bundled=True),
    Terms("bundled-in-order", 3, in_order="conversation", bundled=True),
    Terms("bundled-hasty", 1, retries=1, bundled=True),
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to be submitted; its number tells its content."""

    number: int
    terms: Terms
    conversation: str

    @property
    def message_id(self) -> str:
        return f"storm-{self.number}@buyer"

    @property
    def content(self) -> bytes:
        large = self.number % LARGE_EVERY == LARGE_EVERY - 1
        dice = random.Random(self.number)
        return dice.randbytes(LARGE if large else dice.randrange(1, 4000))

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"


def write_letters(count: int, clients: int, dice: random.Random) -> list[Letter]:
    """So many messages, every nth of a client; each has a conversation for each kind of message."""
    kinds = dice.choices(TERMS, [terms.share for terms in TERMS], k=count)
    return [
        Letter(number, terms, f"{terms.name}-{number % clients}")
        for number, terms in enumerate(kinds)
    ]
