"""What a leg that speaks ebXML says: its dialect, its terms, its addresses, its order."""

from datetime import timedelta
from typing import Literal

from postroad.agreement.pmode import Leg
from postroad.agreement.pmode_ebxml import Ebxml as Ebxml
from postroad.agreement.retrying import is_reliable, retry_of
from postroad.agreement.values import UNLIMITED, format_duration


def speaks(leg: Leg) -> str | None:
    """The dialect of a leg's messages; None: it speaks ebMS 3.0."""
    return leg.ebxml.version if leg.ebxml else None


def order_scope(leg: Leg) -> Literal["conversation", "pmode"] | None:
    """Which messages of a leg are sent one after the other; None: none wait for others.

    Messages of a WS-ReliableMessaging sequence do not wait: its receiver puts them in order.
    """
    if leg.ebxml is not None:
        return "conversation" if leg.ebxml.message_order == "Guaranteed" else None
    aware = leg.reception_awareness
    return aware.in_order if aware and aware.enabled else None


def addresses(leg: Leg) -> tuple[str, ...]:
    """Where messages of a leg go: one address after the other, as each uses up its retries."""
    first = leg.protocol.address if leg.protocol else None
    further = leg.ebxml.transports if leg.ebxml else ()
    return (first, *further) if first else further


def acknowledgment(leg: Leg) -> Literal["Signed", "UnSigned", "None"]:
    """The acknowledgment that a leg's messages ask for: in 2.0 reliable ones always ask for one."""
    if leg.ebxml is None:
        return "None"
    asked = leg.ebxml.ack_requested
    reliable = leg.ebxml.version == "2.0" and is_reliable(leg.ebxml)
    return "UnSigned" if asked == "None" and reliable else asked


def is_mail(address: str) -> bool:
    """Whether an address is reached by SMTP."""
    return address.lower().startswith("mailto:")


def time_to_live(leg: Leg) -> timedelta | None:
    """From submission to the TimeToLive of the header."""
    aware = leg.reception_awareness
    retry = aware.retry if aware and aware.enabled else None
    return retry.parameters.time_to_live if retry and retry.parameters else None


def cpa_terms(leg: Leg) -> dict[str, str]:
    """What the agreement says, by the specification's names: for `reliability.ebxml_terms.agree`.

    What is unset is not agreed on, so that the header counts. TimeToLive is not here: it is the
    sender's to set for each message, and the header has it.
    """
    ebxml = leg.ebxml
    if ebxml is None:
        return {}
    terms = {
        name: str(getattr(ebxml, field))
        for field, name in _NAMES.items()
        if field in ebxml.model_fields_set and getattr(ebxml, field) is not None
    }
    if "methods_supported" in ebxml.model_fields_set:
        terms["reliableMessagingSupported"] = " ".join(ebxml.methods_supported)
    policy = retry_of(leg)
    if policy is not None:
        terms["timeout"] = format_duration(policy.timeout / (ebxml.hops + 1))
        terms["retries"] = UNLIMITED if policy.retries is None else str(policy.retries)
        terms["retryInterval"] = format_duration(policy.interval)
        if policy.persist_duration is not None:
            terms["persistDuration"] = format_duration(policy.persist_duration)
    ways = ["SMTP" if is_mail(address) else "HTTP" for address in addresses(leg)]
    if len(ways) > 1:
        terms["protocols"] = " ".join(ways)
    return terms


_NAMES = {
    "delivery_semantics": "deliverySemantics",
    "message_order": "messageOrderSemantics",
    "sync_reply": "syncReplyMode",
    "msh_time_accuracy": "mshTimeAccuracy",
    "hops": "hops",
}
