"""The rules that a P-Mode keeps by itself: one function a rule, all of them in `RULES`.

Each takes a P-Mode whose values are well-formed and yields what breaks the rule.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from postroad.agreement.addressing import PartyIdentifier, Service
from postroad.agreement.breach import Breach, warning
from postroad.agreement.coverage import COVERAGE_RULES
from postroad.agreement.delivery_rules import DELIVERY_RULES
from postroad.agreement.ebxml_rules import EBXML_RULES
from postroad.agreement.parameters import Path
from postroad.agreement.places import (
    ONE_WAY_BINDINGS,
    PULLED_FIRST,
    Rule,
    addressings,
    numbered,
    partners,
    short_uri,
)
from postroad.agreement.pmode import PMode
from postroad.agreement.pulling_rules import PULLING_RULES
from postroad.agreement.restarting import restart_needs_a_signature
from postroad.agreement.security_rules import SECURITY_RULES
from postroad.agreement.two_way_rules import TWO_WAY_RULES
from postroad.agreement.values import is_uri
from postroad.wire.names import (
    ONE_WAY,
    PULL,
    PULL_AND_PULL,
    PUSH,
    SYNC,
    TEST_ACTION,
    TEST_SERVICE,
    TWO_WAY,
)

_WAITED_FOR: Final = frozenset({PULL, PULL_AND_PULL, SYNC})
"""The bindings in which each message needs an answer of its own before the next one."""


def untyped_identifiers_are_uris(pmode: PMode) -> Iterator[Breach]:
    """A party id, service or agreement without a type is a URI (Core 5.2.2.4, 5.2.2.7-8).

    A warning, since whole networks agreed on values that are neither. In ebXML it is an error,
    which a receiver has to report [MS098-8.4.1-07] [MS098-8.4.4.1-03]; a CPAId there is any text.
    """
    ebxml = any(leg.ebxml for leg in pmode.legs)
    for path, value, type_ in _identifiers(pmode):
        if type_ is not None or is_uri(value):
            continue
        message = f"{value!r} has no type and is not a URI"
        if ebxml:
            yield Breach(path, message, "give it a type, or write it as a URI")
        else:
            hint = "give it a type, or write it as a URI, unless your partner uses this very value"
            yield warning(path, message, hint)


def _identifiers(pmode: PMode) -> Iterator[tuple[Path, str, str | None]]:
    if pmode.agreement and not any(leg.ebxml for leg in pmode.legs):
        yield ("agreement",), pmode.agreement.value, pmode.agreement.type
    for path, party in _parties(pmode):
        for index, identifier in enumerate(party):
            yield (*path, index), identifier.id, identifier.type
    for path, service in _services(pmode):
        yield path, service.value, service.type


def _parties(pmode: PMode) -> Iterator[tuple[Path, tuple[PartyIdentifier, ...]]]:
    for side, partner in partners(pmode):
        yield (side, "party"), partner.party or ()
    for path, addressing in addressings(pmode):
        routing = addressing.epr.routing_input if addressing.epr else None
        place = (*path, "epr", "routing_input")
        if routing and routing.initiator:
            yield (*place, "initiator", "party"), routing.initiator.party or ()
        if routing and routing.responder:
            yield (*place, "responder", "party"), routing.responder.party or ()


def _services(pmode: PMode) -> Iterator[tuple[Path, Service]]:
    for path, leg in numbered(pmode):
        if leg.business_info and leg.business_info.service:
            yield (*path, "business_info", "service"), leg.business_info.service
    for path, addressing in addressings(pmode):
        info = addressing.epr.routing_input.business_info if addressing.epr else None
        if info and info.service:
            yield (*path, "epr", "routing_input", "business_info", "service"), info.service


def party_types_are_distinct(pmode: PMode) -> Iterator[Breach]:
    """The ids of one party have different types (Core 5.2.2.4)."""
    for path, party in _parties(pmode):
        for (_, one), (second, two) in combinations(enumerate(party), 2):
            if one.type == two.type:
                yield Breach(
                    (*path, second),
                    f"{two.id!r} has the same type as {one.id!r}",
                    "a party has one identifier of each type",
                )


def some_partner_is_named(pmode: PMode) -> Iterator[Breach]:
    """At most one of Initiator and Responder is left out (Core D.3.1), but for a relay."""
    if any(leg.ebxml and leg.ebxml.relay for leg in pmode.legs):
        return
    if not any(partner.party for _, partner in partners(pmode)):
        yield warning(
            (),
            "neither Initiator nor Responder has a Party: messages of anyone match",
            "name at least one of them",
        )


def binding_fits_the_pattern(pmode: PMode) -> Iterator[Breach]:
    """push and pull bind One-Way, sync and the others bind Two-Way (Core 2.2)."""
    if pmode.binding is None:
        yield Breach(
            ("mep",),
            "a two-way exchange needs its binding",
            "add mep_binding: sync, pushAndPush, pushAndPull or pullAndPush",
        )
    elif (pmode.binding in ONE_WAY_BINDINGS) != (pmode.mep == ONE_WAY):
        other = "twoWay" if pmode.mep == ONE_WAY else "oneWay"
        yield Breach(
            ("mep_binding",),
            f"{short_uri(pmode.binding)} does not bind {short_uri(pmode.mep)}",
            f"write mep: {other}, or another binding",
        )


def pipelining_is_for_what_is_pushed(pmode: PMode) -> Iterator[Breach]:
    """What is pulled, or answered in the response, is waited for. [P2-6.3.2-02]"""
    if pmode.mep_binding is None or not pmode.mep_binding.pipelining:
        return
    path: Path = ("mep_binding", "pipelining")
    if pmode.binding in _WAITED_FOR:
        said = f"{short_uri(pmode.binding)} is not pipelined: each request waits for its answer"
        yield Breach(path, said, "remove it, or push the messages")
    elif any(leg.ebxml for leg in pmode.legs):
        yield Breach(path, "ebXML messages are not pipelined", "remove it")


def legs_fit_the_pattern(pmode: PMode) -> Iterator[Breach]:
    """One-Way has one leg, Two-Way has two (Core D.2)."""
    wanted = 1 if pmode.mep == ONE_WAY else 2
    if len(pmode.legs) != wanted:
        yield Breach(
            ("legs",),
            f"{short_uri(pmode.mep)} has {wanted} leg{'s' * (wanted > 1)}, not {len(pmode.legs)}",
            "write one item in `legs` for each message of the exchange",
        )


def alternate_binding_changes_the_response_only(pmode: PMode) -> Iterator[Breach]:
    """An alternate is for Two-Way and leaves the request's binding as it is. [P2-5.2-01]"""
    alternate = pmode.mep_binding.alternate if pmode.mep_binding else None
    if alternate is None:
        return
    path: Path = ("mep_binding", "alternate")
    if pmode.mep != TWO_WAY or alternate in ONE_WAY_BINDINGS:
        yield Breach(path, "an alternate binding is for two-way exchanges only", "remove it")
    elif alternate == pmode.binding:
        yield Breach(path, "the alternate is the binding itself", "remove it")
    elif (alternate in PULLED_FIRST) != (pmode.binding in PULLED_FIRST):
        yield Breach(
            path,
            f"{short_uri(alternate)} changes the request too, not just the response",
            "choose one whose first half is the same",
        )


def alternate_mpc_needs_an_alternate_binding(pmode: PMode) -> Iterator[Breach]:
    """MPC.Alternate may be added for an alternate MEP (Part 2, 6.12)."""
    if pmode.mep_binding and pmode.mep_binding.alternate:
        return
    for path, leg in numbered(pmode):
        if leg.business_info and leg.business_info.mpc_alternate:
            yield Breach(
                (*path, "business_info", "mpc_alternate"),
                "there is no alternate binding that would use it",
                "add mep_binding.alternate, or remove it",
            )


def transport_security_names_its_protocol(pmode: PMode) -> Iterator[Breach]:
    """ProtocolVersion, and all that goes with it, only with a Protocol. [P2-6.4.1-03]"""
    for path, leg in numbered(pmode):
        security = leg.protocol.security if leg.protocol else None
        if security is None:
            continue
        if security.protocol is None:
            for field in sorted(security.model_fields_set - {"protocol"}):
                yield Breach(
                    (*path, "protocol", "security", field),
                    "no security protocol is specified that it could belong to",
                    "add protocol: TLS beside it",
                )
        elif leg.protocol and (leg.protocol.address or "").lower().startswith("http:"):
            yield Breach(
                (*path, "protocol", "security", "protocol"),
                "the address is http:, which is without TLS",
                "write the address with https:",
            )


def restart_needs_push(pmode: PMode) -> Iterator[Breach]:
    """AS2 restart goes with the binding push. [P2-6.4.3-05]"""
    for path, leg in numbered(pmode):
        restart = leg.protocol.restart if leg.protocol else None
        if restart and restart.enabled and pmode.binding != PUSH:
            yield Breach(
                (*path, "protocol", "restart"),
                f"{restart.protocol} needs the binding push, not {short_uri(pmode.binding)}",
                "remove it, or use push",
            )


def test_action_needs_the_test_service(pmode: PMode) -> Iterator[Breach]:
    """The action `test` is for the test service only (Core 5.2.2.9)."""
    for path, leg in numbered(pmode):
        info = leg.business_info
        if info and info.action == TEST_ACTION:
            service = info.service.value if info.service else None
            if service != TEST_SERVICE:
                yield Breach(
                    (*path, "business_info", "action"),
                    "the test action belongs to the test service",
                    f"write service: {TEST_SERVICE}",
                )


def profile_names_are_distinct(pmode: PMode) -> Iterator[Breach]:
    """A property or payload is described once."""
    for path, leg in numbered(pmode):
        info = leg.business_info
        if info is None:
            continue
        names = [item.name for item in info.properties]
        yield from _repeated((*path, "business_info", "properties"), names)
        profile = info.payload_profile
        payloads = [item.name for item in profile.payloads] if profile else []
        yield from _repeated((*path, "business_info", "payload_profile", "payloads"), payloads)


def _repeated(path: Path, names: Sequence[str | None]) -> Iterator[Breach]:
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            yield Breach((*path, index), f"{name!r} is described twice", "remove one of them")


RULES: Final[tuple[Rule, ...]] = (
    untyped_identifiers_are_uris,
    party_types_are_distinct,
    some_partner_is_named,
    binding_fits_the_pattern,
    pipelining_is_for_what_is_pushed,
    legs_fit_the_pattern,
    alternate_binding_changes_the_response_only,
    alternate_mpc_needs_an_alternate_binding,
    transport_security_names_its_protocol,
    restart_needs_push,
    restart_needs_a_signature,
    test_action_needs_the_test_service,
    profile_names_are_distinct,
    *DELIVERY_RULES,
    *SECURITY_RULES,
    *COVERAGE_RULES,
    *EBXML_RULES,
    *PULLING_RULES,
    *TWO_WAY_RULES,
)
