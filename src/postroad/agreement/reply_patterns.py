"""How receipts and errors about messages of a leg come back: response, callback or pull.

Where nothing is said they are the response; where messages are split they call back, because what
is said about fragments must not be the response (Part 2, 4.4.2).
"""

from postroad.agreement.addressing import Addressing
from postroad.agreement.pmode import Leg
from postroad.wire.multihop import RESPONSE
from postroad.wire.names import DEFAULT_MPC


def _usual(leg: Leg) -> str:
    """[P2-4.4.2-17] [P2-4.4.2-19]"""
    return "callback" if leg.splitting is not None and leg.splitting.enabled else "response"


def receipt_pattern(leg: Leg) -> str:
    """How receipts come back."""
    asked = leg.security.send_receipt if leg.security else None
    return (asked.reply_pattern if asked else None) or _usual(leg)


def error_pattern(leg: Leg) -> str:
    """How the receiver's errors come back: what replaces AsResponse comes first. [P2-6.5-01]"""
    report = leg.error_handling.report if leg.error_handling else None
    said = report.receiver_errors.reply_pattern if report and report.receiver_errors else None
    if said is not None:
        return said
    if report is not None and report.as_response is not None:
        return "response" if report.as_response else "callback"
    return _usual(leg)


def answers_are_response(leg: Leg) -> bool:
    """Whether all that is said about a message is the response; else it may come later."""
    return receipt_pattern(leg) == "response" and error_pattern(leg) != "pull"


def receipt_addressing(leg: Leg) -> Addressing | None:
    """Where receipts are routed to."""
    asked = leg.security.send_receipt if leg.security else None
    return asked.addressing if asked else None


def error_addressing(leg: Leg) -> Addressing | None:
    """Where the receiver's errors are routed to."""
    report = leg.error_handling.report if leg.error_handling else None
    return report.receiver_errors_to.addressing if report and report.receiver_errors_to else None


def routed_mpc(addressing: Addressing | None) -> str | None:
    """The channel that an endpoint reference names."""
    info = addressing.epr.routing_input.business_info if addressing and addressing.epr else None
    return info.mpc if info else None


def receipts_channel(leg: Leg) -> str | None:
    """The channel that receipts are pulled from; None: they are not pulled. [P2-6.7.1-01]"""
    asked = leg.security.send_receipt if leg.security else None
    if asked is None or not asked.enabled or asked.reply_pattern != "pull":
        return None
    return routed_mpc(asked.addressing)


def errors_channel(leg: Leg) -> str | None:
    """The channel that errors are pulled from; None: they are not pulled. [P2-6.5-02]"""
    return routed_mpc(error_addressing(leg)) if error_pattern(leg) == "pull" else None


def acks_channel(leg: Leg) -> str | None:
    """The channel that acknowledgments are pulled from; None: they are not pulled.

    Where no EPR names one it is inferred. [P2-6.6.3-01] [P2-6.6.3-02] [P2-2.6.2-10]
    """
    agreed = leg.reliability
    least = agreed.at_least_once if agreed is not None else None
    if agreed is None or agreed.protocol is None or least is None or least.reply_pattern != "Pull":
        return None
    to = least.contract.acks_to if least.contract else None
    named = routed_mpc(to.addressing if to else None)
    info = leg.business_info
    return named or ((info.mpc if info else None) or DEFAULT_MPC) + RESPONSE


def signal_channels(leg: Leg) -> tuple[str, ...]:
    """The channels from which the sender of messages pulls what is said about them."""
    found = (receipts_channel(leg), errors_channel(leg), acks_channel(leg))
    return tuple(dict.fromkeys(one for one in found if one is not None))
