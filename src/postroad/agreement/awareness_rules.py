"""The rules about retries, duplicates and when receipts are sent of one P-Mode."""

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from postroad.agreement.awareness import ReceptionAwareness, RetryParameters
from postroad.agreement.breach import Breach, warning
from postroad.agreement.duplicates import is_relayed, number_decides
from postroad.agreement.ebxml import addresses
from postroad.agreement.parameters import Path
from postroad.agreement.places import Rule, numbered
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.reply_patterns import receipt_pattern
from postroad.agreement.retrying import resent_within, retry_of
from postroad.agreement.values import format_duration
from postroad.agreement.waiting import Policy, remaining


def _aware(pmode: PMode) -> Iterator[tuple[Path, Leg, ReceptionAwareness]]:
    for path, leg in numbered(pmode):
        if leg.reception_awareness and leg.reception_awareness.enabled:
            yield (*path, "reception_awareness"), leg, leg.reception_awareness


def _retried(pmode: PMode) -> Iterator[tuple[Path, Leg, RetryParameters, Policy]]:
    for path, leg, aware in _aware(pmode):
        retrying = retry_of(leg)
        if aware.retry and aware.retry.parameters and retrying:
            yield (*path, "retry", "parameters"), leg, aware.retry.parameters, retrying


def _shown(duration: timedelta) -> str:
    return format_duration(timedelta(seconds=math.ceil(duration.total_seconds())))


def awareness_needs_receipts(pmode: PMode) -> Iterator[Breach]:
    """ReceptionAwareness waits for the receipts that SendReceipt asks for (AS4 3.2).

    With ebXML it waits for the acknowledgments that `ebxml` asks for.
    """
    for path, leg, _ in _aware(pmode):
        receipt = leg.security.send_receipt if leg.security else None
        if leg.ebxml is None and (receipt is None or not receipt.enabled):
            yield Breach(
                path,
                "it waits for receipts, but SendReceipt is not true",
                "add security.send_receipt: true",
            )


def duplicates_are_always_recognised(pmode: PMode) -> Iterator[Breach]:
    """Nothing is delivered twice here, whatever is agreed on."""
    for path, _, aware in _aware(pmode):
        if aware.duplicate_detection and not aware.duplicate_detection.enabled:
            yield Breach(
                (*path, "duplicate_detection"),
                "duplicates are always recognised",
                "write true, or remove it",
            )


def acknowledgment_options_suit_the_receipts(pmode: PMode) -> Iterator[Breach]:
    """A strict receipt is the response; one after delivery comes later, thus calls back."""
    for path, leg, aware in _aware(pmode):
        pattern = receipt_pattern(leg)
        if aware.strict_ack and aware.ack_after_delivery:
            yield Breach(
                (*path, "ack_after_delivery"),
                "the receipt would wait for delivery, and with strict_ack delivery for the receipt",
                "choose one of them",
            )
        elif aware.strict_ack and aware.in_order is not None:
            yield Breach(
                (*path, "strict_ack"),
                "what is held back until its receipt has left can be overtaken by what follows",
                "remove in_order, or strict_ack",
            )
        elif aware.strict_ack and pattern != "response":
            yield Breach(
                (*path, "strict_ack"),
                f"it needs the receipt in the response, but SendReceipt.ReplyPattern is {pattern}",
                "write security.send_receipt.reply_pattern: response",
            )
        elif aware.ack_after_delivery and pattern != "callback":
            yield Breach(
                (*path, "ack_after_delivery"),
                "the response does not wait for the application, "
                f"but SendReceipt.ReplyPattern is {pattern}",
                "write security.send_receipt.reply_pattern: callback",
            )


def retries_come_to_an_end(pmode: PMode) -> Iterator[Breach]:
    """Without a number of retries only time ends them."""
    for path, _, _, retrying in _retried(pmode):
        if resent_within(retrying) is None:
            yield warning(
                (*path, "max_retries"),
                "nothing ends the retries, and the application is never told of a failure",
                "add time_to_live or persist_duration",
            )


def persist_duration_covers_the_retries(pmode: PMode) -> Iterator[Breach]:
    """persistDuration is at least timeout and all intervals together (rm-drafts, section 6)."""
    for path, leg, given, retrying in _retried(pmode):
        one = remaining(retrying, 1)
        whole = one * max(len(addresses(leg)), 1) if one else None
        if whole and given.persist_duration and given.persist_duration < whole:
            yield warning(
                (*path, "persist_duration"),
                f"it cuts the retries short, which with their timeout take {_shown(whole)}",
                "make it longer, or the retries fewer",
            )


def check_window_covers_the_retries(pmode: PMode) -> Iterator[Breach]:
    """An id is remembered for as long as the sender may send again. [OV004-1-08]"""
    for path, leg, aware in _aware(pmode):
        detection, retrying = aware.duplicate_detection, retry_of(leg)
        window = detection.parameters.check_window if detection and detection.parameters else None
        if window is None or retrying is None:
            continue
        within = resent_within(retrying, len(addresses(leg)))
        if within is None or window < within:
            how_long = "without end" if within is None else f"for {_shown(within)}"
            yield warning(
                (*path, "duplicate_detection", "parameters", "check_window"),
                f"a copy that comes later is taken for new, and the sender sends again {how_long}",
                "make it longer, or the retries end earlier with persist_duration",
            )


def time_to_live_leaves_time(pmode: PMode) -> Iterator[Breach]:
    """A message whose TimeToLive is over is not sent again."""
    for path, _, given, retrying in _retried(pmode):
        if given.time_to_live and given.time_to_live <= retrying.timeout:
            yield warning(
                (*path, "time_to_live"),
                f"it ends before the timeout of {_shown(retrying.timeout)}: nothing is sent again",
                "make it longer, or timeout shorter (where unset, it is period)",
            )


def retry_parameters_agree(pmode: PMode) -> Iterator[Breach]:
    """Retry parameters that rule each other out, or have no effect."""
    for path, _, given, retrying in _retried(pmode):
        if given.fail_fast and retrying.suspend:
            yield Breach(
                (*path, "then"),
                "with fail_fast a message fails at once, so there is nothing to suspend",
                "remove one of them",
            )
        if given.max_period and given.max_period < given.period:
            yield Breach(
                (*path, "max_period"), "it is shorter than period", "make it longer, or remove it"
            )
        for field, why in _idle(given, retrying):
            if field in given.model_fields_set:
                yield warning((*path, field), f"it has no effect: {why}", "remove it")


def _idle(given: RetryParameters, retrying: Policy) -> Iterator[tuple[str, str]]:
    """The parameters that would do nothing, and why."""
    if retrying.retries == 0:
        for field in ("backoff", "max_period", "jitter"):
            yield field, "there are no retries"
    elif given.backoff == 1:
        yield "max_period", "the period does not grow"
    if retrying.retries is None:
        yield "then", "unlimited retries are never used up"


def message_ids_are_compared_where_they_decide(pmode: PMode) -> Iterator[Breach]:
    """Draft 001 knows duplicates by number, and a relay cannot tell who sent what it passes on."""
    for path, leg, aware in _aware(pmode):
        detection = aware.duplicate_detection
        if detection is None or detection.compare != "message_id":
            continue
        place = (*path, "duplicate_detection", "compare")
        if is_relayed(leg):
            yield Breach(place, "a relay compares contents", "remove it")
        elif number_decides(leg):
            yield Breach(place, "with profile rm001 the SequenceNumber decides", "remove it")


AWARENESS_RULES: Final[tuple[Rule, ...]] = (
    awareness_needs_receipts,
    duplicates_are_always_recognised,
    message_ids_are_compared_where_they_decide,
    acknowledgment_options_suit_the_receipts,
    retries_come_to_an_end,
    persist_duration_covers_the_retries,
    check_window_covers_the_retries,
    time_to_live_leaves_time,
    retry_parameters_agree,
)
