"""What signals are routed by: ebint:RoutingInput from the P-Mode's EPR (Part 2, 2.7.1.2, 6.7.1)."""

from dataclasses import replace
from typing import Final

from msgspec import Struct, structs

from postroad.agreement.addressing import Addressing as Agreed
from postroad.agreement.addressing import RoutingParty
from postroad.agreement.matching import Match
from postroad.agreement.reply_patterns import error_addressing, receipt_addressing
from postroad.security.sign import Block
from postroad.wire.ebms3 import Party, PartyId, Property, Service, UserMessage
from postroad.wire.multihop import ERROR, RECEIPT, RoutingInput, infer_reverse, write_routing_input
from postroad.wire.names import I_CLOUD
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import (
    Addressing,
    default_action,
    error_action,
    receipt_action,
    write_addressing,
)

_INPUT_ID: Final = "_routing"
_ADDRESSING_ID: Final = "_addressing"


class Routing(Struct, frozen=True):
    """The headers of a signal that is routed, or pulled."""

    input: RoutingInput
    action: str
    """wsa:Action"""

    def blocks(self, version: SoapVersion) -> list[Block]:
        """A reference parameter never stands without wsa:To and wsa:Action. [P2-2.6.3.2-01]"""
        to = Addressing(I_CLOUD, self.action)
        written = write_addressing(to, version, id_prefix=_ADDRESSING_ID)
        found = [Block(f"{_ADDRESSING_ID}-{n}", one) for n, one in enumerate(written, 1)]
        return [*found, Block(_INPUT_ID, write_routing_input(self.input, version))]


def receipt_routing(match: Match, message: UserMessage) -> Routing | None:
    """What the receipt of a message is routed by; None where the P-Mode has no EPR for it.

    [P2-6.7.1-01] [P2-6.7.1-03]
    """
    agreed = receipt_addressing(match.leg)
    return _routing(agreed, message, RECEIPT, receipt_action(_action(match)))


def error_routing(match: Match, message: UserMessage) -> Routing | None:
    """What an error about a message is routed by; None where the P-Mode has no EPR for it.

    [P2-6.5-02]
    """
    agreed = error_addressing(match.leg)
    return _routing(agreed, message, ERROR, error_action(_action(match)))


def _action(match: Match) -> str:
    return default_action(match.pmode.mep, reply=match.number == 2)


def _routing(
    agreed: Agreed | None, message: UserMessage, suffix: str, action: str
) -> Routing | None:
    """What the EPR says, and for what it leaves open what follows from the message.

    Signals go to the Initiator, so it is their To. [P2-2.7.1.2-02] [P2-2.7.1.2-07]
    """
    if agreed is None or agreed.epr is None:
        return None
    given = agreed.epr.routing_input
    inferred = infer_reverse(message, suffix)
    routed = inferred.user_message
    business, info = given.business_info, routed.collaboration_info
    mpc, properties = routed.mpc, routed.properties
    if business is not None:
        service = business.service
        info = structs.replace(
            info,
            service=Service(service.value, service.type) if service else info.service,
            action=business.action or info.action,
        )
        mpc = business.mpc or mpc
        named = tuple(Property(one.name, one.value, one.type) for one in business.properties)
        properties = named or properties
    said = replace(
        routed,
        from_party=_party(given.responder, routed.from_party),
        to_party=_party(given.initiator, routed.to_party),
        collaboration_info=info,
        properties=properties,
        mpc=mpc,
    )
    return Routing(replace(inferred, id=_INPUT_ID, user_message=said), agreed.action or action)


def _party(given: RoutingParty | None, inferred: Party) -> Party:
    if given is None:
        return inferred
    ids = tuple(PartyId(one.id, one.type) for one in given.party or ())
    return Party(ids or inferred.party_ids, given.role or inferred.role)
