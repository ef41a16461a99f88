"""An order that is routed, and its routing input."""

from datetime import UTC, datetime

from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    PartInfo,
    Party,
    PartyId,
    Property,
    Service,
    UserMessage,
)
from postroad.wire.multihop import RoutingInput, routing_user_message

BUYER = Party((PartyId("123456789", "urn:duns"), PartyId("b", "urn:gln")), "Buyer")
SELLER = Party((PartyId("192837465", "urn:duns"),), "Seller")
INFO = MessageInfo(datetime(2026, 5, 1, 12, 30, tzinfo=UTC), "orders123@buyer.example.com")
ORDER = UserMessage(
    INFO,
    BUYER,
    SELLER,
    CollaborationInfo(Service("Sales", "urn:s"), "Process", "c1", AgreementRef("urn:agreement")),
    properties=(Property("originalSender", "a & b"),),
    part_infos=(PartInfo("cid:a@b", (Property("MimeType", "text/xml"),)),),
    mpc="urn:mpc:abc123",
)
ROUTING_INPUT = RoutingInput(routing_user_message(ORDER), id="routing-1")
