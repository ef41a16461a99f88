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
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.multihop import (
    INTERMEDIARY_ROLES,
    RoutingInput,
    RoutingUserMessage,
    effective_routing_input,
    find_routing_input,
    read_routing_input,
    routing_user_message,
)
from postroad.wire.soap import Envelope, read_envelope

ROUTING_FAILURE: Final = "EBMS:0020"


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

    @property
    def input(self) -> RoutingUserMessage | PullRequest | None:
        return self.source.input if self.source is not None else None

    @property
    def user_message(self) -> UserMessage | None:
        return next(iter(self.messaging.user_messages), None) if self.messaging else None


def routable(envelope: Envelope, messaging: Messaging | None) -> Routable:
    """What an envelope is routed by: RoutingInput first, UserMessage, PullRequest.

    [P2-2.4.5-04] [P2-2.5.5-13..16]
    """
    problems: list[EbmsError] = []
    found: RoutingInput | None = None
    try:
        block = find_routing_input(envelope)
    except EbmsError as error:
        return Routable(messaging=messaging, problems=(error,))
    if block is not None and block.role in INTERMEDIARY_ROLES:
        found, problems = read_routing_input(block)
        problems = [one for one in problems if one.severity is Severity.FAILURE]
        if found is None:
            return Routable(messaging=messaging, problems=tuple(problems))
    routed = effective_routing_input(found, messaging)
    if routed is None:
        return Routable(messaging=messaging, routing_input=found)
    if found is not None:
        by = "RoutingInput"
    else:
        by = "PullRequest" if isinstance(routed, PullRequest) else "UserMessage"
    return Routable(RoutingSource(routed, envelope.root), by, messaging, found)


def read_routable(data: bytes, limits: Limits = DEFAULT) -> Routable:
    """The same from the bytes of an envelope; EBMS:0009 for what is none."""
    envelope = read_envelope(xml.parse(data, limits))
    element = find_messaging(envelope)
    if element is None:
        return routable(envelope, None)
    reading = read_messaging(element, envelope.version)
    wrong = [one for one in reading.problems if one.severity is Severity.FAILURE]
    found = routable(envelope, reading.messaging)
    if found.by == "RoutingInput" or not wrong:
        return found
    return Routable(messaging=reading.messaging, problems=tuple(wrong))


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


def no_route(found: Routable, table: RoutingTable) -> EbmsError:
    """EBMS:0020, with what came nearest. [P2-2.5.6-12]"""
    assert found.source is not None
    if not len(table):
        return EbmsError(ROUTING_FAILURE, "no rule is loaded", location=_place(found))
    nearest = table.explain(found.source).nearest[0]
    said = "; ".join(map(str, nearest.differences))
    detail = f"no rule matches; nearest is {nearest.route.id!r}, where {said}"
    return EbmsError(ROUTING_FAILURE, detail, location=_place(found))


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
        None if route is not None else str(no_route(found, table)),
    )


def destinations(to: Destination) -> tuple[str, ...]:
    """Where a rule leads, in order."""
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
