"""What an intermediary does with a message for others, as far as it is thought and not done.

It acts in the nextMSH role: what is aimed at that role it reads, all else is none of its business,
and nothing is changed (Part 2, 2.4.5 and 2.5).
"""

from typing import Final

from msgspec import Struct

from postroad.agreement.routes import Destination
from postroad.agreement.routing import RoutingSource, RoutingTable
from postroad.wire import xml
from postroad.wire.ebms3 import Messaging, PullRequest, UserMessage
from postroad.wire.ebms3_reader import MESSAGING, find_messaging, read_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.multihop import (
    INTERMEDIARY_ROLES,
    ROUTING_INPUT_TAGS,
    RoutingInput,
    RoutingUserMessage,
    effective_routing_input,
    find_routing_input,
    read_routing_input,
    routing_user_message,
)
from postroad.wire.names import WSA
from postroad.wire.soap import Envelope, SoapVersion, not_understood, read_envelope
from postroad.wire.soap_faults import Fault, read_fault
from postroad.wire.wsa import Addressing, read_addressing

ROUTING_FAILURE: Final = "EBMS:0020"
_ROUTING: Final = frozenset((MESSAGING, *ROUTING_INPUT_TAGS))
_UNDERSTOOD: Final = _ROUTING | {f"{{{WSA}}}To"}
"""What an intermediary has to know."""


class Routable(Struct, frozen=True):
    """What a message says for the nextMSH role."""

    source: RoutingSource | None = None
    """None: nothing of it is aimed at an intermediary."""
    by: str | None = None
    """RoutingInput, UserMessage or PullRequest: what it is routed by."""
    messaging: Messaging | None = None
    routing_input: RoutingInput | None = None
    problems: tuple[EbmsError, ...] = ()
    """EBMS:0009: a header that is for us and cannot be read."""
    envelope: Envelope | None = None

    @property
    def input(self) -> RoutingUserMessage | PullRequest | None:
        return self.source.input if self.source is not None else None

    @property
    def user_message(self) -> UserMessage | None:
        return next(iter(self.messaging.user_messages), None) if self.messaging else None

    @property
    def pulls(self) -> bool:
        """Whether it is a PullRequest, whatever it is routed by."""
        signals = self.messaging.signals if self.messaging is not None else ()
        return any(one.pull_request is not None for one in signals)

    @property
    def version(self) -> SoapVersion:
        return self.envelope.version if self.envelope is not None else SoapVersion.SOAP_12

    @property
    def is_for_next(self) -> bool:
        """Whether some header that could route it is aimed at an intermediary."""
        blocks = self.envelope.blocks if self.envelope is not None else ()
        return any(
            block.element.tag in _ROUTING and block.role in INTERMEDIARY_ROLES for block in blocks
        )

    @property
    def message_id(self) -> str | None:
        """Of the first unit, or what WS-Addressing says where there is none."""
        for unit in self.messaging.units if self.messaging is not None else ():
            return unit.message_info.message_id or None
        addressing = self.addressing
        return addressing.message_id if addressing is not None else None

    @property
    def ref_to_message_id(self) -> str | None:
        for unit in self.messaging.units if self.messaging is not None else ():
            return unit.message_info.ref_to_message_id
        return None

    @property
    def is_error(self) -> bool:
        """Whether it tells of errors: of what becomes of it nobody is told. [P2-2.5.6-26]"""
        signals = self.messaging.signals if self.messaging is not None else ()
        return any(one.errors for one in signals) or self.fault is not None

    @property
    def fault(self) -> Fault | None:
        return read_fault(self.envelope) if self.envelope is not None else None

    @property
    def addressing(self) -> Addressing | None:
        return read_addressing(self.envelope)[0] if self.envelope is not None else None


def routable(envelope: Envelope, messaging: Messaging | None) -> Routable:
    """What an envelope is routed by: RoutingInput first, UserMessage, PullRequest.

    [P2-2.4.5-04] [P2-2.5.5-13..16]
    """
    problems: list[EbmsError] = []
    found: RoutingInput | None = None
    try:
        block = find_routing_input(envelope)
    except EbmsError as error:
        return Routable(messaging=messaging, problems=(error,), envelope=envelope)
    if block is not None and block.role in INTERMEDIARY_ROLES:
        found, problems = read_routing_input(block)
        problems = [one for one in problems if one.severity is Severity.FAILURE]
        if found is None:
            return Routable(messaging=messaging, problems=tuple(problems), envelope=envelope)
    routed = effective_routing_input(found, messaging)
    if routed is None:
        return Routable(messaging=messaging, routing_input=found, envelope=envelope)
    if found is not None:
        by = "RoutingInput"
    else:
        by = "PullRequest" if isinstance(routed, PullRequest) else "UserMessage"
    return Routable(RoutingSource(routed, envelope.root), by, messaging, found, envelope=envelope)


def read_routable(data: bytes, limits: Limits = DEFAULT) -> Routable:
    """The same from the bytes of an envelope; EBMS:0009 for what is none."""
    envelope = read_envelope(xml.parse(data, limits))
    element = find_messaging(envelope)
    if element is None:
        return routable(envelope, None)
    reading = read_messaging(element, envelope.version)
    found = routable(envelope, reading.messaging)
    # What an endpoint finds wrong with values may still be routed by.
    wrong = [
        one
        for one in reading.problems
        if one.severity is Severity.FAILURE and one.code == "EBMS:0009"
    ]
    if found.by == "RoutingInput" or not wrong:
        return found
    return Routable(messaging=reading.messaging, problems=tuple(wrong), envelope=envelope)


def unknown_headers(found: Routable) -> EbmsError | None:
    """A header that an intermediary must understand and does not (SOAP 1.2, 2.4)."""
    if found.envelope is None:
        return None
    for block in not_understood(found.envelope, _UNDERSTOOD, INTERMEDIARY_ROLES):
        said = f"the header <{xml.local(block.element)}> must be understood and is not known here"
        return EbmsError("EBMS:0009", said, location=xml.path(block.element))
    return None


def contradictions(found: Routable) -> tuple[str, ...]:
    """Where a RoutingInput says something else than the user message; the RoutingInput counts."""
    message, routed = found.user_message, found.input
    if message is None or found.by != "RoutingInput" or not isinstance(routed, RoutingUserMessage):
        return ()
    own = routing_user_message(message)
    pairs = (
        ("From", str(routed.from_party), str(own.from_party)),
        ("To", str(routed.to_party), str(own.to_party)),
        ("Service", str(routed.collaboration_info.service), str(own.collaboration_info.service)),
        ("Action", routed.collaboration_info.action, own.collaboration_info.action),
        ("mpc", routed.effective_mpc, own.effective_mpc),
    )
    return tuple(
        f"{name} is {one} in RoutingInput and {other} in UserMessage"
        for name, one, other in pairs
        if one != other
    )


def no_route(found: Routable) -> EbmsError:
    """EBMS:0020. Which rules nearly match is nobody's business but ours. [P2-2.5.6-12]"""
    return EbmsError(ROUTING_FAILURE, "no rule leads it anywhere", location=_place(found))


def _place(found: Routable) -> str:
    return {
        "RoutingInput": "ebint:RoutingInput/ebint:UserMessage",
        "PullRequest": "eb:Messaging/eb:SignalMessage/eb:PullRequest",
    }.get(found.by or "", "eb:Messaging/eb:UserMessage")


class Missed(Struct, frozen=True):
    """A rule that nearly matched."""

    rule: str
    differences: tuple[str, ...]


class RouteReport(Struct, frozen=True):
    """Where the rules lead a message, for people."""

    routed_by: str | None
    input: tuple[tuple[str, str], ...] = ()
    rule: str | None = None
    because: tuple[tuple[str, str], ...] = ()
    to: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Rules that match too; an earlier one was taken."""
    nearly: tuple[Missed, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    """The code and sentence with which it would be refused."""


def route_report(found: Routable, table: RoutingTable) -> RouteReport:
    """Which rule a message matches, why, and what else nearly matched."""
    if found.problems:
        return RouteReport(None, error=str(found.problems[0]))
    if found.source is None:
        return RouteReport(None, error=f"EBMS:0009 {_not_for_us(found)}")
    told = table.explain(found.source)
    route = told.route
    return RouteReport(
        found.by,
        _shown(found.source.input),
        None if route is None else route.id,
        told.because,
        () if route is None else destinations(route.to),
        tuple(one.id for one in told.also),
        tuple(Missed(one.route.id, tuple(map(str, one.differences))) for one in told.nearest),
        contradictions(found),
        None if route is not None else str(no_route(found)),
    )


def destinations(to: Destination) -> tuple[str, ...]:
    """Where a rule leads, in order."""
    if to.channel is not None:
        below = f"/{to.channel.extension}" if to.channel.extension else ""
        return (f"channel of its mpc{below}, pulled by {to.channel.authorization.username}",)
    if to.relay is not None:
        return tuple(f"relay PullRequests to {url}" for url in to.relay)
    return tuple(f"push {url}" for url in to.push or ())


def _not_for_us(found: Routable) -> str:
    """Why nobody on the way may route it."""
    messaging = found.messaging
    if messaging is None:
        return "there is neither ebint:RoutingInput nor eb:Messaging to route it by"
    if messaging.role not in INTERMEDIARY_ROLES:
        aimed = messaging.role or "the ultimate receiver"
        return (
            f"eb:Messaging is for {aimed}, not for the nextMSH role, and there is no RoutingInput"
        )
    return "it is a signal without ebint:RoutingInput"


def _shown(routed: RoutingUserMessage | PullRequest) -> tuple[tuple[str, str], ...]:
    """The routing input as people read it."""
    if isinstance(routed, PullRequest):
        return (("mpc", routed.effective_mpc),)
    info = routed.collaboration_info
    agreement = info.agreement_ref
    shown = [
        ("mpc", routed.effective_mpc),
        ("from_party", str(routed.from_party)),
        ("from_role", routed.from_party.role),
        ("to_party", str(routed.to_party)),
        ("to_role", routed.to_party.role),
        ("service", str(info.service)),
        ("action", info.action),
        ("agreement", agreement.value if agreement else ""),
        ("conversation_id", info.conversation_id),
        *((f"properties.{one.name}", one.value) for one in routed.properties),
        *(
            (f"part_properties.{one.name}", one.value)
            for part in routed.part_infos
            for one in part.properties
        ),
    ]
    return tuple((name, value) for name, value in shown if value)
