"""The headers by which messages of an endpoint are routed: WS-Addressing and ebint:RoutingInput.

A user message has them where its P-Mode has an EPR for the receiver. A signal has them where the
P-Mode has an EPR for it, where the message that it is about says whither, and where that message
came by way of intermediaries (Part 2, 2.6 and 2.7.1).
"""

from dataclasses import replace
from typing import Final

from msgspec import Struct, structs

from postroad.agreement.addressing import Addressing as Agreed
from postroad.agreement.addressing import RoutingParty
from postroad.agreement.matching import Match, header
from postroad.agreement.places import initiator_sends, report_of, sides
from postroad.agreement.reliable import reliable_of
from postroad.agreement.reply_patterns import error_addressing, receipt_addressing
from postroad.msh.lens import Inspection
from postroad.security.sign import Block
from postroad.wire.ebms3 import CollaborationInfo, Party, PartyId, Property, Service, UserMessage
from postroad.wire.multihop import (
    ERROR,
    INTERMEDIARY_ROLES,
    PULL,
    RECEIPT,
    RoutingInput,
    RoutingUserMessage,
    infer_pull,
    infer_reverse,
    routing_user_message,
)
from postroad.wire.names import I_CLOUD
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import (
    ANONYMOUS,
    Addressing,
    EndpointReference,
    default_action,
    error_action,
    receipt_action,
    write_addressing,
    write_reference_parameters,
    wsa_id,
)

_INPUT_ID: Final = "_routing"
_ADDRESSING_ID: Final = "_addressing"


class Routing(Struct, frozen=True):
    """The headers of a message that is routed, or of a signal that is pulled."""

    reference: EndpointReference
    action: str
    """wsa:Action"""
    message_id: str | None = None
    """wsa:MessageID, of user messages."""

    def blocks(self, version: SoapVersion) -> list[Block]:
        """A reference parameter never stands without wsa:To and wsa:Action.

        [P2-2.6.3.2-01] [P2-2.6.3.1-04]
        """
        to = Addressing(I_CLOUD, self.action, self.message_id, to_must_understand=True)
        headers = write_addressing(to, version, id_prefix=_ADDRESSING_ID)
        parameters = write_reference_parameters(self.reference, version, id_prefix=_INPUT_ID)
        return [
            Block(f"{prefix}-{n}", one)
            for prefix, written in ((_ADDRESSING_ID, headers), (_INPUT_ID, parameters))
            for n, one in enumerate(written, 1)
        ]


def message_routing(
    match: Match, message: UserMessage, named: EndpointReference | None = None
) -> Routing | None:
    """What a user message is routed by; None where its header is enough. [P2-2.7.1.2-05]

    Of a reply it is what its request `named`, if that did so. [P2-2.6.2-01] Its wsa:MessageID is
    its eb:MessageId as a URI, as in a message that goes directly.
    """
    receiver = sides(match.pmode, match.number - 1)[1]
    agreed = receiver.addressing if receiver else None
    action = (agreed.action if agreed else None) or _action(match)
    name = wsa_id(message.message_info.message_id)
    if named is not None:
        return Routing(named, action, name)
    if agreed is None or not _is_routed(agreed):
        return None
    own = replace(routing_user_message(message), message_info=None, part_infos=())
    said = _said(agreed, own, initiator_sends(match.pmode, match.number - 1))
    return Routing(EndpointReference(I_CLOUD, (RoutingInput(said),)), action, name)


def direct_blocks(
    match: Match, message: UserMessage, address: str, version: SoapVersion
) -> list[Block]:
    """Return the WS-Addressing headers of a message that goes directly to its receiver.

    WS-ReliableMessaging leaves them to the sender; its implementations expect them on every
    message of a sequence. [P2-2.6.3.2-02]
    """
    receiver = sides(match.pmode, match.number - 1)[1]
    agreed = receiver.addressing if receiver else None
    action = (agreed.action if agreed else None) or _action(match)
    said = Addressing(address, action, wsa_id(message.message_info.message_id))
    headers = write_addressing(said, version, id_prefix=_ADDRESSING_ID)
    return [Block(f"{_ADDRESSING_ID}-{n}", one) for n, one in enumerate(headers, 1)]


def lifecycle_reference(match: Match, message: UserMessage, address: str) -> EndpointReference:
    """Whither messages about the sequence of a message go: routed as it is, or to an address.

    [P2-2.6.1-07] [P2-2.8.1-02] [P2-2.8.1-03]
    """
    routing = message_routing(match, message)
    return EndpointReference(address) if routing is None else routing.reference


def shared_routing(match: Match, message: UserMessage) -> list[object]:
    """Return what intermediaries can route by and all messages of a sequence have in common.

    Conversation and message properties may differ, unless the EPR sets the properties. Empty where
    messages go directly to their receiver. [P2-2.8.1-10]
    """
    routing = message_routing(match, structs.replace(message, properties=()))
    found = routing.reference.routing_input if routing is not None else None
    if found is None:
        return []
    said = found.user_message
    info = said.collaboration_info
    parties = said.from_party, said.to_party
    return [*parties, info.service, info.action, said.mpc, said.properties]


def acks_reference(match: Match, message: UserMessage) -> EndpointReference:
    """wsrm:AcksTo: whither acknowledgements of messages like this go, as the P-Mode says.

    [P2-2.6.2-05] [P2-2.6.2-06] [P2-2.7.1.4-08] [P2-6.6.3-01] [P2-6.6.3-02]
    """
    agreed = reliable_of(match.leg)
    if agreed is None or agreed.pattern == "Response":
        return EndpointReference(ANONYMOUS)
    sender = sides(match.pmode, match.number - 1)[0]
    addressing = agreed.addressing or (sender.addressing if sender else None)
    routed = addressing is not None and _is_routed(addressing)
    if agreed.channel is None and not routed:
        return EndpointReference(agreed.acks_to or ANONYMOUS)
    inferred = infer_reverse(message).user_message
    if addressing is not None and routed:
        to_initiator = initiator_sends(match.pmode, match.number - 1)
        inferred = _said(addressing, inferred, not to_initiator)
    routing_input = RoutingInput(replace(inferred, mpc=agreed.channel or inferred.mpc))
    return EndpointReference(I_CLOUD, (routing_input,))


def receipt_routing(match: Match, message: UserMessage, found: Inspection) -> Routing | None:
    """What the receipt of a message is routed by; None: it is not routed.

    [P2-6.7.1-01] [P2-6.7.1-03] [P2-2.6.2-03]
    """
    named = found.addressing.reply_to if found.addressing else None
    action = receipt_action(_action_of(match, found))
    return _back(match, message, found, receipt_addressing(match.leg), named, RECEIPT, action)


def error_routing(match: Match, message: UserMessage, found: Inspection) -> Routing | None:
    """What an error about a message is routed by; None: it is not routed.

    [P2-6.5-02] [P2-2.6.2-03] [P2-2.6.2-04]
    """
    named = found.addressing.errors_to if found.addressing else None
    action = error_action(_action_of(match, found))
    return _back(match, message, found, error_addressing(match.leg), named, ERROR, action)


def sender_error_routing(match: Match, message: UserMessage) -> Routing | None:
    """What an error of the sender about its own message is routed by; None: it is not routed.

    [P2-2.7.1.4-02]
    """
    sender = sides(match.pmode, match.number - 1)[0]
    to = report_of(match.leg).sender_errors_to
    agreed = (to.addressing if to else None) or (sender.addressing if sender else None)
    if agreed is None or not _is_routed(agreed):
        return None
    inferred = infer_reverse(message, ERROR).user_message
    said = _said(agreed, inferred, not initiator_sends(match.pmode, match.number - 1))
    return _routing(RoutingInput(said), agreed.action or error_action(_action(match)))


def pull_routing(match: Match, conversation_id: str, *, signals: bool = False) -> Routing | None:
    """What a PullRequest is routed by; None: by its channel, or not at all.

    It goes to who sends what is pulled: messages of the leg, or `signals` about them.

    [P2-2.6.1-03] [P2-2.6.1-04] [P2-2.6.1-05] [P2-2.7.1.4-02]
    """
    agreed = match.leg.addressing
    if agreed is None:
        return None
    said = header(match.pmode, match.number)
    info = CollaborationInfo(said.service, said.action, conversation_id, said.agreement_ref)
    pulled = RoutingUserMessage(said.from_party, said.to_party, info)
    if signals:
        pulled = replace(pulled, from_party=said.to_party, to_party=said.from_party)
    asked = infer_pull(pulled)[0].user_message
    from_initiator = initiator_sends(match.pmode, match.number - 1) == signals
    routed = RoutingInput(_said(agreed, asked, from_initiator))
    return _routing(routed, agreed.action or _action(match) + PULL)


def pulling_reference(match: Match, conversation_id: str, address: str) -> EndpointReference:
    """Whither messages about a sequence of PullRequests go: to who has the messages.

    They are routed as PullRequests are, but as no request for a message. [P2-2.8.1-03]
    """
    routing = pull_routing(match, conversation_id)
    found = routing.reference.routing_input if routing is not None else None
    if found is None:
        return EndpointReference(address)
    asked = found.user_message
    action = asked.collaboration_info.action.removesuffix(PULL)
    info = structs.replace(asked.collaboration_info, action=action)
    routed = RoutingInput(replace(asked, collaboration_info=info))
    return EndpointReference(I_CLOUD, (routed,))


def _back(
    match: Match,
    message: UserMessage,
    found: Inspection,
    agreed: Agreed | None,
    named: EndpointReference | None,
    suffix: str,
    action: str,
) -> Routing | None:
    """What is agreed on comes first, then what the message says, then what follows from it.

    [P2-2.6.2-07] [P2-2.7.1.2-02] [P2-2.7.1.2-07] [P2-2.7.1.4-03]
    """
    sender = sides(match.pmode, match.number - 1)[0]
    agreed = agreed or (sender.addressing if sender else None)
    if agreed is None and named is not None and named.routing_input is not None:
        return Routing(named, action)
    if not (_is_routed(agreed) if agreed else came_routed(found)):
        # An address without routing input is reached directly. [P2-2.7.1.4-01]
        return None
    inferred = infer_reverse(found.routing.user_message if found.routing else message, suffix)
    if agreed is None:
        return _routing(inferred, action)
    to_initiator = initiator_sends(match.pmode, match.number - 1)
    said = _said(agreed, inferred.user_message, not to_initiator)
    return _routing(RoutingInput(said), agreed.action or action)


def _routing(routing_input: RoutingInput, action: str) -> Routing:
    return Routing(EndpointReference(I_CLOUD, (routing_input,)), action)


def came_routed(found: Inspection) -> bool:
    """Whether a message was for intermediaries too."""
    messaging = found.messaging
    aimed = messaging is not None and messaging.role in INTERMEDIARY_ROLES
    return aimed or found.routing is not None


def _is_routed(agreed: Agreed) -> bool:
    return agreed.epr is not None or agreed.address == I_CLOUD


def _action(match: Match) -> str:
    return default_action(match.pmode.mep, reply=match.number == 2)


def _action_of(match: Match, found: Inspection) -> str:
    return (found.addressing.action if found.addressing else None) or _action(match)


def _said(agreed: Agreed, routed: RoutingUserMessage, from_initiator: bool) -> RoutingUserMessage:
    """What the EPR says, and for what it leaves open what follows from the message."""
    given = agreed.epr.routing_input if agreed.epr else None
    if given is None:
        return routed
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
    parties = (given.initiator, given.responder)
    sender, receiver = parties if from_initiator else parties[::-1]
    return replace(
        routed,
        from_party=_party(sender, routed.from_party),
        to_party=_party(receiver, routed.to_party),
        collaboration_info=info,
        properties=properties,
        mpc=mpc,
    )


def _party(given: RoutingParty | None, own: Party) -> Party:
    if given is None:
        return own
    ids = tuple(PartyId(one.id, one.type) for one in given.party or ())
    return Party(ids or own.party_ids, given.role or own.role)
