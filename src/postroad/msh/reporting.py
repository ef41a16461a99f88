"""Errors of an intermediary, told to who sent the message (Part 2, 2.5.6 and 2.6.2).

Where the message says whither, by wsa:FaultTo or wsa:ReplyTo, the error goes there: to a URL, or
through the I-Cloud by the routing input in that reference. Else the way back is inferred.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from msgspec import Struct

from postroad.msh.answers import Answer, error
from postroad.msh.forwarding import Routable
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.multihop import ERROR, RoutingUserMessage, infer_reverse
from postroad.wire.names import I_CLOUD, ONE_WAY
from postroad.wire.soap import write_body, write_envelope
from postroad.wire.wsa import (
    Addressing,
    EndpointReference,
    RelatesTo,
    error_action,
    is_iri,
    write_addressing,
    write_reference_parameters,
)


class Return(Struct, frozen=True):
    """Where an error about a message goes."""

    reference: EndpointReference
    url: str | None = None
    """Where it is sent directly; None: it is routed by the routing input in the reference."""


def way_back(found: Routable, may_be_told: Callable[[str], bool]) -> Return | None:
    """Where the message itself tells that errors go; None: nowhere.

    FaultTo beats ReplyTo, a URL that may be told beats routing input. [P2-2.5.6-02..07]
    """
    addressing = found.addressing
    named = addressing.errors_to if addressing is not None else None
    if named is not None:
        if named.reachable and _is_web(named.address) and may_be_told(named.address):
            return Return(named, named.address)
        if named.routing_input is not None:
            return Return(replace(named, address=I_CLOUD))
    routed = found.input
    if not isinstance(routed, RoutingUserMessage):
        return None
    inferred = infer_reverse(routed, ERROR)
    return Return(EndpointReference(I_CLOUD, (inferred,)))


def write_report(
    problem: EbmsError, found: Routable, back: Return | None, *, signal_id: str, now: datetime
) -> Answer:
    """An error about a message, with the headers that its way back needs.

    eb:Messaging is for who sent the message; only routing input is for the nextMSH role.
    """
    ref = found.message_id
    signal = error([problem], signal_id=signal_id, ref=ref, now=now)
    version = found.version
    blocks: list[str] = []
    if back is not None and back.reference.reference_parameters:
        addressing = found.addressing
        action = (addressing.action if addressing is not None else None) or ONE_WAY
        related = ref is not None and is_iri(ref)
        headers = Addressing(
            to=back.reference.address,
            action=error_action(action),
            relates_to=(RelatesTo(ref),) if ref is not None and related else (),
        )
        blocks += write_addressing(headers, version)
        blocks += write_reference_parameters(back.reference, version)
    blocks.append(write_messaging(Messaging((signal,)), version))
    return Answer(signal_id, "error", version, write_envelope(version, blocks, write_body(version)))


def _is_web(address: str) -> bool:
    return address.lower().startswith(("http://", "https://"))
