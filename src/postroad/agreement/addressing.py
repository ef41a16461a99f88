"""Who the parties are, what the business is, and the Addressing parameter of multi-hop P-Modes.

Addressing stands in many places of a P-Mode (Part 2, 2.7.1.4); its sub-parameters repeat the
general ones and are mapped to the children of RoutingInput alike.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from postroad.agreement.groups import REQUIRED, Group, Valued, parameter
from postroad.agreement.values import EprAddress, Mpc, Text, Uri, one_or_many


class PartyIdentifier(Valued):
    """One identifier of a party; without a type it is a URI."""

    own: ClassVar[str] = "id"

    id: Text = parameter("", "An identifier of the party (eb:PartyId).", REQUIRED)
    type: Text | None = parameter("type", "The domain of the identifier (eb:PartyId/@type).")


PartyIdentifiers = Annotated[tuple[PartyIdentifier, ...], one_or_many, Field(min_length=1)]


class Service(Valued):
    """The service that a message is for; without a type it is a URI."""

    value: Text = parameter("", "The service (eb:Service).", REQUIRED)
    type: Text | None = parameter("type", "How the service is named (eb:Service/@type).")


class RoutingParty(Group):
    """A party as the routing function sees it."""

    party: PartyIdentifiers | None = parameter("Party", "Identifiers of the party.")
    role: Text | None = parameter("Role", "The party's role.")


class RoutingProperty(Group):
    """A message property for the routing function."""

    name: Text = parameter("name", "The property's name.", REQUIRED)
    value: Text = parameter("value", "The property's value.", REQUIRED)
    type: Text | None = parameter("type", "The property's type.")


class RoutingBusinessInfo(Group):
    """The business that routes to the destination; all or some of it."""

    service: Service | None = parameter("Service", "The service to route by.")
    action: Text | None = parameter("Action", "The action to route by.")
    properties: tuple[RoutingProperty, ...] = parameter("Properties", "Properties.", ())
    mpc: Mpc | None = parameter("MPC", "The channel of the routed message.")


class RoutingInput(Group):
    """The content of ebint:RoutingInput; what is unset is inferred from the message."""

    initiator: RoutingParty | None = parameter("Initiator", "The initiator of the exchange.")
    responder: RoutingParty | None = parameter("Responder", "The responder of the exchange.")
    business_info: RoutingBusinessInfo | None = parameter("BusinessInfo", "The business.")


class EndpointReference(Group):
    """A WS-Addressing endpoint reference with its reference parameter."""

    routing_input: RoutingInput = parameter("RoutingInput", "What to route by.", REQUIRED)


class Addressing(Group):
    """Where a message is routed to (Part 2, 2.7.1)."""

    address: EprAddress | None = parameter(
        "Address", "The endpoint's address; `icloud` when intermediaries route."
    )
    epr: EndpointReference | None = parameter("EPR", "The endpoint reference.")
    action: Uri | None = parameter("Action", "The value of wsa:Action; unset: the default.")
