"""The exchanges of Part 2, appendices E and F: what our endpoints send is routed as theirs."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from postroad.agreement.channels import is_below
from postroad.agreement.matching import Match
from postroad.agreement.pmode import PMode
from postroad.msh.answers import Answer, error, receipt, write_answer
from postroad.msh.expectation import Material
from postroad.msh.forwarding import Routable, no_route, read_routable
from postroad.msh.lens import Inspection
from postroad.msh.outbound import Package, PackedUnit, package_units
from postroad.msh.reporting import way_back, write_report
from postroad.msh.routing_headers import error_routing, message_routing, receipt_routing
from postroad.msh.securing import answer_signing
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Party,
    PartyId,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.errors import EbmsError
from postroad.wire.multihop import (
    ERROR,
    RECEIPT,
    RESPONSE,
    RoutingInput,
    RoutingUserMessage,
    infer_reverse,
)
from postroad.wire.names import I_CLOUD, NEXT_MSH, ONE_WAY, WSU
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import Addressing, EndpointReference, read_addressing
from tests.pki import NOW
from tests.unit.bundles import SELLER as SELLERS_KEY

LATER = NOW + timedelta(seconds=5)
BUYER = Party(
    (PartyId("123456789", "urn:oasis:names:tc:ebcore:partyid-type:iso6523:0002"),), "Buyer"
)
SELLER = Party(
    (PartyId("192837465", "urn:oasis:names:tc:ebcore:partyid-type:iso6523:0106"),), "Seller"
)
SALES = Service("Sales")
ORDERS_MPC = "e5c31ef7-d750-4db8-b4dc-13a751d80b9a"
INVOICES_MPC = "595066c0-77b6-4c0e-95db-3015e335095e"
TALK = "ecae53d4-7473-45a6-ad70-61970dd7c4b0"
ORDER = UserMessage(
    MessageInfo(NOW, "orders123@buyer.example.com"),
    BUYER,
    SELLER,
    CollaborationInfo(SALES, "ProcessPurchaseOrder", TALK),
    mpc=ORDERS_MPC,
)
INVOICE = UserMessage(
    MessageInfo(NOW, "invoice123@seller.example.com"),
    SELLER,
    BUYER,
    CollaborationInfo(SALES, "RequestForPayment", "b6ca4390-6694-419f-a2c5-c9fa161ba0aa"),
    mpc=INVOICES_MPC,
)


def agreed(routed: dict[str, Any] | None = None, *, signed: bool = False) -> Match:
    """What both sides of the appendix agreed on, as far as its messages tell."""
    pmode = PMode.model_validate(
        {
            "id": "sales",
            "responder": {"addressing": routed} if routed else {},
            "legs": [
                {
                    "protocol": {
                        "address": "http://intermediary.example.com:4081/reroute",
                        "soap_version": "1.2",
                        "add_actor_or_role_attribute": True,
                    },
                    "security": {
                        "x509": {"sign": signed},
                        "send_receipt": {"reply_pattern": "callback"},
                    },
                }
            ],
        }
    )
    return Match(pmode, pmode.legs[0], 1)


def sent(message: UserMessage, match: Match) -> Package:
    return package_units((PackedUnit(message),), match, Material(), now=NOW, entropy=bytes)


def came(package: Package) -> tuple[Routable, Inspection]:
    """A message as a hub reads it, and as its receiver does."""
    read = read_routable(package.envelope)
    found = Inspection(messaging=read.messaging, routing=read.routing_input)
    found.envelope, found.addressing = read.envelope, read.addressing
    return read, found


def headers(envelope: bytes) -> tuple[Routable, Addressing]:
    read = read_routable(envelope)
    assert read.envelope is not None
    addressing, problems = read_addressing(read.envelope)
    assert (problems, read.problems) == ([], ())
    assert addressing is not None
    return read, addressing


def back(action: str, mpc: str) -> RoutingUserMessage:
    return RoutingUserMessage(SELLER, BUYER, CollaborationInfo(SALES, action, TALK), mpc=mpc)


@pytest.mark.req("P2-2.6-01", "P2-2.4.5-03")
def test_e1_the_order_is_routed_by_its_own_header() -> None:
    read, _ = came(sent(ORDER, agreed()))
    assert read.by == "UserMessage"
    assert read.messaging is not None
    assert (read.messaging.role, read.messaging.must_understand) == (NEXT_MSH, True)
    assert (read.routing_input, read.addressing) == (None, None)
    routed = read.input
    assert isinstance(routed, RoutingUserMessage)
    assert (routed.from_party, routed.to_party) == (BUYER, SELLER)
    assert routed.collaboration_info == ORDER.collaboration_info
    assert routed.mpc == ORDERS_MPC


@pytest.mark.req("P2-2.6.2-08", "P2-2.6.2-11", "P2-2.6.3.1-04", "P2-2.6.3.2-01", "P2-2.6.3.2-03")
@pytest.mark.req("P2-2.6.3.2-07", "P2-2.7.1.2-07", "P2-2.7.1.3-01")
def test_e3_the_receipt_is_routed_by_what_follows_from_the_order() -> None:
    match = agreed(signed=True)
    _, found = came(sent(ORDER, agreed()))
    said = receipt(found, ORDER, match, signal_id="orderreceipt@seller.example.com", now=LATER)
    routing = receipt_routing(match, ORDER, found)
    how = answer_signing(match.leg, SELLERS_KEY)
    answer = write_answer(said, SoapVersion.SOAP_12, how, LATER, routing)
    read, addressing = headers(answer.envelope)
    assert (addressing.to, addressing.to_role) == (I_CLOUD, NEXT_MSH)
    assert addressing.to_must_understand
    assert addressing.action == f"{ONE_WAY}.receipt"
    expected = back("ProcessPurchaseOrder.receipt", f"{ORDERS_MPC}.receipt")
    given = read.routing_input
    assert given is not None
    assert given == RoutingInput(expected, given.id, NEXT_MSH, True, True)
    assert read.messaging is not None
    assert (read.messaging.role, read.messaging.must_understand) == (None, True)
    assert _signed(answer) == ["To", "Action", "RoutingInput", "Messaging", "Body", "Timestamp"]


def _signed(answer: Answer) -> list[str]:
    """The elements of an envelope that its signature names, in the order of the envelope."""
    read = read_routable(answer.envelope)
    assert read.envelope is not None
    root = read.envelope.root
    named = {str(one)[1:] for one in root.xpath("//*[local-name()='Reference']/@URI")}
    found = [
        one for one in root.iter("*") if one.get("id") in named or one.get(f"{{{WSU}}}Id") in named
    ]
    order = ["To", "Action", "RoutingInput", "Messaging", "Body", "Timestamp"]
    return sorted(
        (one.tag.rpartition("}")[2] for one in found if "Token" not in one.tag), key=order.index
    )


@pytest.mark.req("P2-2.6.3.2-04")
def test_e5_the_routing_error_of_the_hub_goes_back_by_what_follows_from_the_order() -> None:
    read, _ = came(sent(ORDER, agreed()))
    way = way_back(read, lambda _: False)
    told = write_report(no_route(read), read, way, signal_id="e@intermediary", now=LATER)
    error_read, addressing = headers(told.envelope)
    assert (addressing.to, addressing.to_role) == (I_CLOUD, NEXT_MSH)
    assert addressing.action == f"{ONE_WAY}.error"
    assert error_read.input == back("ProcessPurchaseOrder.error", f"{ORDERS_MPC}.error")
    assert error_read.messaging is not None
    [signal] = error_read.messaging.signals
    assert signal.message_info.ref_to_message_id == "orders123@buyer.example.com"
    assert [(one.error_code, one.short_description) for one in signal.errors] == [
        ("EBMS:0020", "RoutingFailure")
    ]


@pytest.mark.req("P2-2.6.2-08", "P2-2.6.3.2-04")
def test_an_error_of_the_seller_goes_the_way_of_its_receipt() -> None:
    match = agreed()
    _, found = came(sent(ORDER, match))
    problem = EbmsError("EBMS:0004", "it cannot be taken")
    said = error([problem], signal_id="e@seller", ref="orders123@buyer.example.com", now=LATER)
    routing = error_routing(match, ORDER, found)
    read, addressing = headers(_written(said, routing))
    assert addressing.action == f"{ONE_WAY}.error"
    assert read.input == back("ProcessPurchaseOrder.error", f"{ORDERS_MPC}.error")


def _written(said: SignalMessage, routing: Any) -> bytes:
    return write_answer(said, SoapVersion.SOAP_12, None, LATER, routing).envelope


@pytest.mark.req("P2-2.7.1.2-05", "P2-2.6.3.2-02")
def test_f1_what_goes_to_the_buyer_is_routed_by_the_relevant_parameters() -> None:
    match = agreed({"address": "icloud"})
    routing = message_routing(match, INVOICE)
    assert routing is not None
    given = routing.reference.routing_input
    assert given is not None
    assert given.user_message == RoutingUserMessage(
        SELLER, BUYER, INVOICE.collaboration_info, mpc=INVOICES_MPC
    )
    assert (routing.reference.address, routing.action) == (I_CLOUD, ONE_WAY)
    read, addressing = headers(sent(INVOICE, match).envelope)
    assert (read.by, addressing.to) == ("RoutingInput", I_CLOUD)


@pytest.mark.req("P2-2.6.2-08", "P2-2.6.2-09", "P2-2.6.2-10")
def test_f2_and_f4_what_goes_back_to_the_seller_is_the_routing_input_of_acks_to() -> None:
    assert infer_reverse(INVOICE, RESPONSE).user_message == RoutingUserMessage(
        BUYER,
        SELLER,
        CollaborationInfo(
            SALES, "RequestForPayment.response", "b6ca4390-6694-419f-a2c5-c9fa161ba0aa"
        ),
        mpc=f"{INVOICES_MPC}.response",
    )


@pytest.mark.req("P2-2.6.2-03", "P2-2.6.2-04")
def test_what_the_message_says_in_its_references_beats_what_follows_from_it() -> None:
    match = agreed()
    _, found = came(sent(ORDER, match))
    replies, faults = infer_reverse(ORDER, ".replies"), infer_reverse(ORDER, ".faults")
    found.addressing = Addressing(
        action="urn:example:process",
        reply_to=EndpointReference(I_CLOUD, (replies,)),
        fault_to=EndpointReference(I_CLOUD, (faults,)),
    )
    told, complained = receipt_routing(match, ORDER, found), error_routing(match, ORDER, found)
    assert told is not None
    assert complained is not None
    assert (told.reference.routing_input, told.action) == (replies, "urn:example:process.receipt")
    assert complained.reference.routing_input == faults


@pytest.mark.req("P2-2.6.2-03")
def test_what_is_agreed_on_beats_what_the_message_says() -> None:
    match = agreed()
    mine = {"epr": {"routing_input": {"business_info": {"action": "agreed"}}}}
    raw = match.pmode.model_dump(exclude_unset=True)
    raw["legs"][0]["security"]["send_receipt"]["addressing"] = mine
    pmode = PMode.model_validate(raw)
    _, found = came(sent(ORDER, match))
    reference = EndpointReference(I_CLOUD, (infer_reverse(ORDER, ".replies"),))
    found.addressing = Addressing(reply_to=reference)
    routing = receipt_routing(Match(pmode, pmode.legs[0], 1), ORDER, found)
    assert routing is not None
    assert routing.reference.routing_input is not None
    assert routing.reference.routing_input.user_message.collaboration_info.action == "agreed"


@pytest.mark.parametrize("suffix", [RECEIPT, ERROR])
def test_what_was_not_aimed_at_hubs_is_not_answered_through_them(suffix: str) -> None:
    routing = receipt_routing if suffix == RECEIPT else error_routing
    assert routing(agreed(), ORDER, Inspection()) is None


def test_the_receipt_of_a_message_below_a_channel_is_below_it_too() -> None:
    order = structs.replace(ORDER, mpc="http://test.example/mpc/orders")
    routed = infer_reverse(order, RECEIPT).user_message
    assert is_below(routed.effective_mpc, "http://test.example/mpc")
