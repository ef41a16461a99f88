"""What a leg says about reliable messaging by a protocol of its own (Core D.3.5, Part 2 6.6)."""

from datetime import timedelta
from typing import Final

from msgspec import Struct

from postroad.agreement.addressing import Addressing
from postroad.agreement.places import contract_of, is_pulled
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.reply_patterns import acks_channel
from postroad.wire.names import WSR, WSRM

_ROOTS: Final = ("ebint:UserMessage/", "eb3:UserMessage/", "eb:UserMessage/")


class Reliable(Struct, frozen=True):
    """The contract of a leg, with the defaults filled in."""

    protocol: str
    """The URI of Reliability.Protocol. [P2-6.6.1-01]"""
    in_order: bool
    at_most_once: bool
    pattern: str
    """Response, Callback or Pull."""
    acks_to: str | None
    """The URL that acknowledgments are sent to."""
    channel: str | None
    """Where they are pulled from."""
    addressing: Addressing | None
    """How they are routed."""
    correlation: tuple[str, ...]
    """XPaths from eb:UserMessage; messages of equal values share a sequence. [P2-2.8.1-11]"""
    max_idle: timedelta
    reliable_pull: bool = True
    """Where messages are pulled, PullRequests go in a sequence too. [P2-6.6.2-01]"""
    starts_group: bool | None = None
    """Each message begins a group (True), joins one that is open (False), or either (None)."""
    ends_group: bool = False
    """Each message is the last of its group."""


def reliable_of(leg: Leg) -> Reliable | None:
    """The contract of a leg; None where none is agreed on."""
    agreed, contract = leg.reliability, contract_of(leg)
    if agreed is None or agreed.protocol is None or contract is None or not contract.enabled:
        return None
    least = agreed.at_least_once
    pattern = (least.reply_pattern if least else None) or "Response"
    to = contract.acks_to
    addressing = to.addressing if to else None
    direct = addressing.address if addressing is not None and addressing.epr is None else None
    return Reliable(
        agreed.protocol,
        agreed.in_order is not None and agreed.in_order.contract,
        agreed.at_most_once is not None and agreed.at_most_once.contract,
        pattern,
        (to.value if to else None) or direct,
        acks_channel(leg),
        addressing,
        tuple(_from_unit(one) for one in agreed.correlation or ()),
        agreed.max_idle,
        contract.reliable_pull,
        agreed.start_group,
        bool(agreed.terminate_group),
    )


def wsrm_of(leg: Leg) -> Reliable | None:
    """The same where the protocol is WS-ReliableMessaging."""
    found = reliable_of(leg)
    return found if found is not None and found.protocol == WSRM else None


def wsr_of(leg: Leg) -> Reliable | None:
    """The same where the protocol is WS-Reliability. [P2-6.6.1-02]"""
    found = reliable_of(leg)
    return found if found is not None and found.protocol == WSR else None


def pulled_in_sequence(pmode: PMode, leg: Leg, index: int) -> bool:
    """Whether messages of a leg are pulled by requests that are sent reliably. [P2-2.8.3-03]"""
    agreed = wsrm_of(leg)
    return agreed is not None and agreed.reliable_pull and is_pulled(pmode, index)


def _from_unit(expression: str) -> str:
    """Correlation starts at eb:Messaging, what is compared at the user message."""
    for root in _ROOTS:
        if expression.startswith(root):
            return expression[len(root) :]
    return expression
