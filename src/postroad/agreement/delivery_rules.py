"""The rules about errors, acknowledgments, routing, bundling and splitting of one P-Mode."""

from collections.abc import Iterator
from typing import Final

from postroad.agreement.awareness_rules import AWARENESS_RULES
from postroad.agreement.breach import Breach, warning
from postroad.agreement.bundling_rules import BUNDLING_RULES
from postroad.agreement.parameters import Path
from postroad.agreement.places import (
    Rule,
    addressings,
    contract_of,
    direct_address,
    is_pulled,
    is_response,
    numbered,
    partners,
    report_of,
    sender_pulls,
)
from postroad.agreement.pmode import PMode
from postroad.agreement.reply_patterns import (
    error_addressing,
    error_pattern,
    receipt_addressing,
    routed_mpc,
    signal_channels,
)
from postroad.wire.fragments import COMPRESSION_ALGORITHMS
from postroad.wire.names import I_CLOUD, SYNC, WSR, WSRM


def error_patterns_agree(pmode: PMode) -> Iterator[Breach]:
    """ReceiverErrors.ReplyPattern replaces AsResponse: response is true, callback false.

    [P2-6.5-01]
    """
    for path, leg in numbered(pmode):
        report = report_of(leg)
        pattern = report.receiver_errors.reply_pattern if report.receiver_errors else None
        if pattern is None or report.as_response is None:
            continue
        if report.as_response != (pattern == "response"):
            yield Breach(
                (*path, "error_handling", "report", "as_response"),
                f"it contradicts ReceiverErrors.ReplyPattern {pattern}",
                "keep only receiver_errors.reply_pattern",
            )


def called_back_errors_have_an_address(pmode: PMode) -> Iterator[Breach]:
    """Errors that are not the response go to ReceiverErrorsTo, or where receipts go."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        report = report_of(leg)
        receipt = leg.security.send_receipt if leg.security else None
        to = report.receiver_errors_to
        named = (to and to.value) or (receipt and receipt.reply_to) or direct_address(pmode, index)
        fetched = is_pulled(pmode, index) or is_response(pmode, index)
        said = "receiver_errors" if report.receiver_errors else "as_response"
        asked = report.receiver_errors or report.as_response is not None
        if asked and error_pattern(leg) == "callback" and not named and not fetched:
            yield warning(
                (*path, "error_handling", "report", said),
                "errors have no way back: neither ReceiverErrorsTo nor SendReceipt.ReplyTo is set",
                "add receiver_errors_to, or write as_response: true",
            )


def pulled_errors_have_a_channel(pmode: PMode) -> Iterator[Breach]:
    """Errors that are pulled wait in the channel of their EPR, for the Initiator. [P2-6.5-02]"""
    for index, (path, leg) in enumerate(numbered(pmode)):
        if error_pattern(leg) != "pull":
            continue
        place = (*path, "error_handling", "report", "receiver_errors", "reply_pattern")
        if routed_mpc(error_addressing(leg)) is None:
            yield Breach(
                place,
                "pull needs ReceiverErrorsTo.Addressing.EPR with the channel to pull errors from",
                "add receiver_errors_to.addressing.epr.routing_input.business_info.mpc",
            )
        if not sender_pulls(pmode, index):
            yield Breach(
                place,
                "only the Initiator pulls, so only errors about what it pushes can be pulled",
                "use callback",
            )
        receipt = leg.security.send_receipt if leg.security else None
        if not (receipt and receipt.enabled):
            yield warning(
                place,
                "without receipts nobody waits for an answer, so errors are pulled only when "
                "somebody says so",
                "add security.send_receipt",
            )


def sender_errors_go_somewhere(pmode: PMode) -> Iterator[Breach]:
    """They have an address, or are routed from the sender's own hub. [P2-2.7.1.4-02]"""
    for path, leg in numbered(pmode):
        to = report_of(leg).sender_errors_to
        place = (*path, "error_handling", "report", "sender_errors_to")
        if to is None:
            continue
        if to.addressing is not None and to.addressing.epr is None:
            yield Breach(
                (*place, "addressing"),
                "an Addressing of signals without EPR says nothing",
                "add epr.routing_input, or write the address itself",
            )
            continue
        hub = leg.protocol.address if leg.protocol else None
        if not to.value and (to.addressing is None or hub is None):
            said = "it names no address, and there is no hub that could route errors"
            yield Breach(place, said, "write the URL that errors go to")


def routed_pulls_are_between_known_parties(pmode: PMode) -> Iterator[Breach]:
    """Routing input of a PullRequest is inferred from the P-Mode alone. [P2-2.6.1-04]"""
    for index, (path, leg) in enumerate(numbered(pmode)):
        agreed, place = leg.addressing, (*path, "addressing")
        if agreed is None:
            continue
        pulled = is_pulled(pmode, index) or is_pulled(pmode, index, late=True)
        if not pulled and not signal_channels(leg):
            yield Breach(place, "nothing of this leg is pulled", "remove it")
        if agreed.epr is None and agreed.address != I_CLOUD:
            said = "it says nothing that PullRequests could be routed by"
            yield Breach(place, said, "add epr.routing_input, or write address: icloud")
        if not all(one is not None and one.party for one in (pmode.initiator, pmode.responder)):
            said = "PullRequests are routed between parties that are known"
            yield Breach(place, said, "add initiator.party and responder.party")


def routed_signals_have_an_epr(pmode: PMode) -> Iterator[Breach]:
    """Addressing says how receipts and errors are routed; where they go is said elsewhere."""
    for path, leg in numbered(pmode):
        for place, agreed, hint in (
            ("security", receipt_addressing(leg), "security.send_receipt.reply_to"),
            ("error_handling", error_addressing(leg), "the address itself"),
        ):
            if agreed is not None and agreed.epr is None:
                yield Breach(
                    (*path, place),
                    "an Addressing of signals without EPR says nothing",
                    f"add epr.routing_input, or write {hint}",
                )


def acks_to_names_the_right_place(pmode: PMode) -> Iterator[Breach]:
    """AcksTo and AcksTo.Addressing go together as Part 2 says.

    [P2-2.7.1.4-07] [P2-2.7.1.4-09]
    """
    for path, leg in numbered(pmode):
        contract = contract_of(leg)
        acks_to = contract.acks_to if contract else None
        if acks_to is None or acks_to.addressing is None:
            continue
        place = (*path, "reliability", "at_least_once", "contract", "acks_to")
        if acks_to.addressing.address == I_CLOUD and acks_to.value is None:
            yield Breach(
                place,
                "with an I-Cloud address AcksTo is the URI of the intermediary that routes",
                "add value: with that URI",
            )
        elif acks_to.addressing.address != I_CLOUD and acks_to.value is not None:
            yield warning(
                (*place, "value"),
                "AcksTo should have no value beside an address that is reached directly",
                "remove it",
            )


def acknowledgments_suit_the_protocol(pmode: PMode) -> Iterator[Breach]:
    """Poll is WS-Reliability's; with Pull AcksTo.Addressing, if given, has an EPR.

    WS-ReliableMessaging acknowledges on receipt, never on delivery (Core B.2). [P2-6.6.3-01]
    """
    for path, leg in numbered(pmode):
        reliability = leg.reliability
        if reliability is None or reliability.at_least_once is None:
            continue
        at_least_once = reliability.at_least_once
        contract = at_least_once.contract
        place = (*path, "reliability", "at_least_once")
        if at_least_once.reply_pattern == "Poll" and reliability.protocol != WSR:
            yield Breach(
                (*place, "reply_pattern"),
                "Poll is limited to WS-Reliability",
                "use Response, Callback or Pull, or protocol: ws-reliability",
            )
        if at_least_once.reply_pattern == "Pull" and contract and contract.acks_to:
            addressing = contract.acks_to.addressing
            if addressing and addressing.epr is None:
                yield Breach(
                    (*place, "contract", "acks_to", "addressing"),
                    "acknowledgments are pulled, but this has no EPR to route them by",
                    "add epr.routing_input, or remove the addressing to have it inferred",
                )
        if contract and contract.ack_on_delivery and reliability.protocol == WSRM:
            yield Breach(
                (*place, "contract", "ack_on_delivery"),
                "WS-ReliableMessaging acknowledges receipt, not delivery",
                "write false",
            )


def routed_addresses_are_the_icloud(pmode: PMode) -> Iterator[Breach]:
    """An EPR with RoutingInput has the I-Cloud address; without, it is reached directly.

    [P2-2.7.1.1-01] [P2-2.7.1.4-01]
    """
    for path, addressing in addressings(pmode):
        if addressing.epr and addressing.address not in (None, I_CLOUD):
            yield Breach(
                (*path, "address"),
                "there is a RoutingInput, yet the address is not the I-Cloud's",
                "write address: icloud",
            )
        bare = addressing.epr is None and addressing.address == I_CLOUD
        if bare and path == ("initiator", "addressing"):
            yield Breach(
                (*path, "address"),
                "without RoutingInput the address must reach the Initiator directly",
                "add epr.routing_input, or write the Initiator's URL",
            )


def direct_addresses_are_for_answers(pmode: PMode) -> Iterator[Breach]:
    """An address without EPR is where signals go; user messages go to Protocol.Address."""
    answered = {direct_address(pmode, index) for index in range(len(pmode.legs))}
    for side, partner in partners(pmode):
        agreed = partner.addressing
        if agreed is None or agreed.epr is not None or agreed.address == I_CLOUD:
            continue
        if agreed.address is None or agreed.address not in answered:
            yield Breach(
                (side, "addressing"),
                "without EPR it says where signals go, and none go there",
                "add epr.routing_input, or write protocol.address",
            )


def splitting_is_asynchronous(pmode: PMode) -> Iterator[Breach]:
    """Fragments are answered later, never in the response.

    [P2-4.4.2-16] [P2-4.4.2-17] [P2-4.4.2-18] [P2-4.4.2-19]
    """
    for path, leg in numbered(pmode):
        if leg.splitting is None or not leg.splitting.enabled:
            continue
        hint = "use callback, or remove splitting"
        if pmode.binding == SYNC:
            yield Breach(("mep_binding",), "a message that is split cannot use sync", hint)
        report = report_of(leg)
        place: Path = (*path, "error_handling", "report")
        if report.as_response:
            message = "errors about a message that is split cannot be the response"
            yield Breach((*place, "as_response"), message, hint)
        if report.receiver_errors and report.receiver_errors.reply_pattern == "response":
            message = "errors about a message that is split cannot be the response"
            yield Breach((*place, "receiver_errors", "reply_pattern"), message, hint)
        at_least_once = leg.reliability.at_least_once if leg.reliability else None
        if at_least_once and at_least_once.reply_pattern == "Response":
            yield Breach(
                (*path, "reliability", "at_least_once", "reply_pattern"),
                "acknowledgments of a message that is split cannot be the response",
                hint,
            )
        receipt = leg.security.send_receipt if leg.security else None
        if receipt and receipt.reply_pattern == "response":
            yield Breach(
                (*path, "security", "send_receipt", "reply_pattern"),
                "the receipt of a message that is split cannot be the response",
                hint,
            )


def splitting_is_possible(pmode: PMode) -> Iterator[Breach]:
    """A fragment holds something, and the coding of the whole is one of HTTP's. [P2-4.2.4-02]"""
    for path, leg in numbered(pmode):
        if leg.splitting is None:
            continue
        place: Path = (*path, "splitting")
        if leg.splitting.fragment_size == 0:
            message = "a fragment holds at least one byte"
            yield Breach((*place, "fragment_size"), message, "write a size such as 16 MiB")
        compression = leg.splitting.compression
        algorithm = compression.algorithm if compression else None
        if algorithm is not None and algorithm not in COMPRESSION_ALGORITHMS:
            yield Breach(
                (*place, "compression", "algorithm"),
                f"{algorithm!r} is no compression that fragments can name",
                f"write one of {', '.join(COMPRESSION_ALGORITHMS)}",
            )


DELIVERY_RULES: Final[tuple[Rule, ...]] = (
    error_patterns_agree,
    called_back_errors_have_an_address,
    pulled_errors_have_a_channel,
    sender_errors_go_somewhere,
    routed_pulls_are_between_known_parties,
    routed_signals_have_an_epr,
    acks_to_names_the_right_place,
    acknowledgments_suit_the_protocol,
    routed_addresses_are_the_icloud,
    direct_addresses_are_for_answers,
    *BUNDLING_RULES,
    splitting_is_asynchronous,
    splitting_is_possible,
    *AWARENESS_RULES,
)
