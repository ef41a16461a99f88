"""What this version can carry out of reliable messaging by a protocol, and what it refuses.

Rules of one P-Mode like all others; they are not held against P-Modes that are only read.
"""

from collections.abc import Iterator
from typing import Final

from postroad.agreement.breach import Breach
from postroad.agreement.parameters import Path
from postroad.agreement.places import (
    Rule,
    contract_of,
    initiator_sends,
    is_pulled,
    is_response,
    numbered,
)
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.reliable import Reliable, reliable_of
from postroad.agreement.reply_patterns import error_pattern, receipt_pattern
from postroad.wire.names import WSRM
from postroad.wire.unit_paths import unit_path


def contracts_need_a_protocol(pmode: PMode) -> Iterator[Breach]:
    """A contract is kept by a protocol, and a protocol keeps at least delivery at least once."""
    for path, leg in numbered(pmode):
        agreed, contract = leg.reliability, contract_of(leg)
        if agreed is None:
            continue
        place: Path = (*path, "reliability")
        if agreed.protocol is None:
            yield Breach(
                place,
                "it names no protocol that could keep it",
                "add protocol: wsrm, or use reception_awareness",
            )
        elif contract is None or not contract.enabled:
            yield Breach(
                (*place, "protocol"),
                "a protocol is named, and nothing is agreed on that it has to keep",
                "add at_least_once.contract: true",
            )


def _reliable(pmode: PMode) -> Iterator[tuple[int, Path, Leg, Reliable]]:
    for index, (path, leg) in enumerate(numbered(pmode)):
        agreed = reliable_of(leg)
        if agreed is not None:
            yield index, (*path, "reliability"), leg, agreed


def reliability_stands_alone(pmode: PMode) -> Iterator[Breach]:
    """One protocol sends a message again; and what it cannot carry yet is told here."""
    for index, path, leg, agreed in _reliable(pmode):
        place: Path = (*path, "protocol")
        aware = leg.reception_awareness
        if aware is not None and aware.enabled:
            yield Breach(
                place,
                "reception_awareness sends messages again too",
                "remove reception_awareness, or reliability",
            )
        if leg.ebxml is not None:
            yield Breach(place, "ebXML has reliable messaging of its own", "remove reliability")
        if leg.splitting is not None and leg.splitting.enabled:
            yield from _split(pmode, index, path, agreed)
        if leg.bundling is not None and leg.bundling.policy != "never":
            yield from _bundled(pmode, index, path, leg, agreed)
        if is_pulled(pmode, index, late=True) and not is_pulled(pmode, index):
            yield Breach(
                place,
                "late replies that are pulled are not sent with it",
                "remove mep_binding.alternate, or use reception_awareness",
            )
        elif is_response(pmode, index) or is_response(pmode, index + 1):
            yield Breach(
                place,
                "requests and replies of Two-Way/Sync are not sent with it",
                "write MEPbinding pushAndPush, or use reception_awareness",
            )
        receipt = leg.security.send_receipt if leg.security else None
        wanted = receipt is not None and receipt.enabled and receipt_pattern(leg) == "response"
        if wanted and agreed.pattern == "Response":
            yield Breach(
                place,
                "acknowledgments and receipts would both be the response",
                "let receipts call back, or remove security.send_receipt",
            )


def _split(pmode: PMode, index: int, path: Path, agreed: Reliable) -> Iterator[Breach]:
    """Each fragment is a message of the sequence; what they make is delivered when it is joined.

    [P2-4.4.2-05] [P2-4.4.2-18]
    """
    place: Path = (*path, "protocol")
    if agreed.protocol != WSRM or is_pulled(pmode, index):
        what = "split messages that are pulled" if agreed.protocol == WSRM else "split messages"
        yield Breach(
            place, f"{what} are not sent with it", "remove splitting, or use reception_awareness"
        )
        return
    if agreed.in_order:
        yield Breach(
            (*path, "in_order"),
            "a message that is split is delivered when it is joined, in no order",
            "remove in_order, or splitting",
        )
    if agreed.pattern == "Response":
        yield Breach(
            (*path, "at_least_once"),
            "acknowledgments of fragments are not the response",
            "write reply_pattern: Callback, with contract.acks_to",
        )


def _bundled(pmode: PMode, index: int, path: Path, leg: Leg, agreed: Reliable) -> Iterator[Breach]:
    """A bundle is one message of a sequence, which is acknowledged whatever becomes of its units.

    What is said about a unit has to arrive by itself: an acknowledgement of a later message covers
    the bundle too, and nobody asks for its response again. [P2-3.2.2-08]
    """
    place: Path = (*path, "protocol")
    if agreed.protocol != WSRM or is_pulled(pmode, index):
        what = "bundles that are pulled" if agreed.protocol == WSRM else "bundles"
        yield Breach(
            place,
            f"{what} are not sent with it",
            "write bundling.policy: never, or use reception_awareness",
        )
        return
    receipt = leg.security.send_receipt if leg.security else None
    if error_pattern(leg) == "response":
        yield Breach(
            place,
            "errors about units of a bundle in a sequence cannot be the response",
            "write error_handling.report.as_response: false, with receiver_errors_to",
        )
    if (
        receipt is not None
        and receipt.enabled
        and receipt_pattern(leg) == "response"
        and agreed.pattern != "Response"
    ):
        yield Breach(
            place,
            "receipts of units of a bundle in a sequence cannot be the response",
            "let receipts call back, or remove security.send_receipt",
        )


def ws_reliability_is_for_single_messages(pmode: PMode) -> Iterator[Breach]:
    """What this version leaves out of WS-Reliability: groups of several messages, and pulling."""
    for index, path, leg, agreed in _reliable(pmode):
        if agreed.protocol == WSRM:
            continue
        if agreed.in_order:
            yield Breach(
                (*path, "in_order"),
                "with WS-Reliability each message is a group of its own, without order",
                "write protocol: wsrm, or remove in_order",
            )
        if agreed.correlation:
            yield Breach(
                (*path, "correlation"),
                "with WS-Reliability each message is a group of its own",
                "write protocol: wsrm, or remove correlation",
            )
        for key, said in (("start_group", "begins"), ("terminate_group", "ends")):
            if getattr(leg.reliability, key) is False:
                yield Breach(
                    (*path, key),
                    f"with WS-Reliability each message {said} a group of its own",
                    "write protocol: wsrm, or remove it",
                )
        if is_pulled(pmode, index) or agreed.pattern == "Pull":
            yield Breach(
                (*path, "protocol"),
                "with WS-Reliability neither messages nor acknowledgments are pulled",
                "write protocol: wsrm",
            )


def acknowledgments_have_a_way(pmode: PMode) -> Iterator[Breach]:
    """Acknowledgments that call back need an address, and only the Initiator pulls some."""
    for index, path, _, agreed in _reliable(pmode):
        place: Path = (*path, "at_least_once")
        if is_pulled(pmode, index) and agreed.protocol == WSRM:
            yield from _pulled(place, agreed)
            continue
        if agreed.pattern == "Callback" and agreed.acks_to is None:
            yield Breach(
                (*place, "reply_pattern"),
                "acknowledgments call back, and nothing says where",
                "add contract.acks_to with the sender's URL",
            )
        if agreed.pattern == "Pull" and not initiator_sends(pmode, index):
            yield Breach(
                (*place, "reply_pattern"),
                "only the Initiator pulls, so only acknowledgments of what it pushes can be pulled",
                "write Callback",
            )


def _pulled(place: Path, agreed: Reliable) -> Iterator[Breach]:
    """Who pulls acknowledges with its next request; from a store nobody hears that."""
    if agreed.pattern in ("Pull", "Poll"):
        yield Breach(
            (*place, "reply_pattern"),
            "who pulls messages acknowledges them with its next request",
            "remove reply_pattern",
        )
    elif not agreed.reliable_pull and (agreed.pattern != "Callback" or agreed.acks_to is None):
        yield Breach(
            (*place, "contract", "reliable_pull"),
            "without reliable PullRequests acknowledgments have to call back",
            "add reply_pattern: Callback and contract.acks_to, or remove reliable_pull",
        )
    elif agreed.reliable_pull and agreed.correlation:
        yield Breach(
            (*place, "contract", "reliable_pull"),
            "all messages that are pulled from a channel share a sequence",
            "remove reliability.correlation",
        )


def groups_are_pushed(pmode: PMode) -> Iterator[Breach]:
    """Messages that are pulled share the sequence of their channel: none begins or ends it."""
    for index, path, leg, _ in _reliable(pmode):
        for key in ("start_group", "terminate_group"):
            if getattr(leg.reliability, key) is not None and is_pulled(pmode, index):
                yield Breach(
                    (*path, key),
                    "all messages that are pulled from a channel share a sequence",
                    "remove it",
                )


def responses_are_not_acknowledged(pmode: PMode) -> Iterator[Breach]:
    """Only Two-Way/Sync has a response that could be acknowledged, and it is not sent reliably."""
    for _, path, leg, _ in _reliable(pmode):
        contract = contract_of(leg)
        if contract is not None and contract.ack_response:
            yield Breach(
                (*path, "at_least_once", "contract", "ack_response"),
                "only Two-Way/Sync has a response, and that is not sent with it",
                "write false, or MEPbinding pushAndPush with reliability in both legs",
            )


def correlations_are_xpaths(pmode: PMode) -> Iterator[Breach]:
    """What tells which messages share a sequence is something that can be looked up."""
    for _, path, _, agreed in _reliable(pmode):
        for expression in agreed.correlation:
            try:
                unit_path(expression)
            except ValueError as wrong:
                yield Breach(
                    (*path, "correlation"), str(wrong), "write paths that start at eb3:UserMessage"
                )


ABILITY_RULES: Final[tuple[Rule, ...]] = (
    contracts_need_a_protocol,
    reliability_stands_alone,
    ws_reliability_is_for_single_messages,
    acknowledgments_have_a_way,
    groups_are_pushed,
    responses_are_not_acknowledged,
    correlations_are_xpaths,
)
