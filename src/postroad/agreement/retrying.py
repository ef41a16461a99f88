"""What a leg says about sending again, with the defaults filled in."""

from datetime import timedelta

from msgspec.structs import replace

from postroad.agreement.awareness import RetryParameters
from postroad.agreement.pmode import Leg
from postroad.agreement.pmode_ebxml import Ebxml
from postroad.agreement.values import LONGEST_WAIT, UNLIMITED
from postroad.agreement.waiting import Policy, remaining


def retry_of(leg: Leg) -> Policy | None:
    """How messages of a leg are sent again; None: they are sent once. [OV004-2-01]

    An ebXML leg with OnceAndOnlyOnce sends again also where nothing is said about it, with
    BestEffort never. [MS098-10.2.1-06] Each MSH on the way gives the answer a timeout more.
    A protocol of reliable messaging has parameters of its own.
    """
    reliability = leg.reliability
    if reliability is not None and reliability.protocol is not None:
        return retries_by(reliability.retry or RetryParameters())
    aware = leg.reception_awareness
    retry = aware.retry if aware and aware.enabled else None
    ebxml = leg.ebxml
    if ebxml is not None:
        if not is_reliable(ebxml) or (retry is not None and not retry.enabled):
            return None
    elif retry is None or not retry.enabled:
        return None
    given = (retry.parameters if retry else None) or RetryParameters()
    policy = retries_by(given)
    return replace(
        policy,
        timeout=policy.timeout * (ebxml.hops + 1 if ebxml else 1),
        suspend=policy.suspend or _suspends(ebxml, given),
    )


def retries_by(given: RetryParameters) -> Policy:
    """What parameters of retries say, wherever they stand."""
    return Policy(
        timeout=given.timeout or given.period,
        interval=given.period,
        growth=given.backoff,
        longest=given.max_period or LONGEST_WAIT,
        jitter=given.jitter,
        retries=None if given.max_retries == UNLIMITED else given.max_retries,
        time_to_live=given.time_to_live,
        persist_duration=given.persist_duration,
        fail_fast=given.fail_fast,
        suspend=given.then == "suspend",
    )


def is_reliable(ebxml: Ebxml) -> bool:
    """Whether messages are acknowledged and sent again by this protocol. [MS098-10.3-01]

    A relay that says nothing about it leaves that to the header: its messages may be.
    """
    open_ = ebxml.relay and "delivery_semantics" not in ebxml.model_fields_set
    return open_ or ebxml.delivery_semantics == "OnceAndOnlyOnce"


def _suspends(ebxml: Ebxml | None, given: RetryParameters) -> bool:
    """Draft 001 suspends the receiver unless something else is said."""
    return ebxml is not None and ebxml.profile == "rm001" and "then" not in given.model_fields_set


def resent_within(retrying: Policy, ways: int = 1) -> timedelta | None:
    """How long after its first sending a message may be sent again; None: no end.

    While a partner cannot be reached no retries are used up, so that only TimeToLive and
    persistDuration are a firm end. `ways` is the number of addresses, each with its retries.
    """
    ends = [end for end in (retrying.time_to_live, retrying.persist_duration) if end is not None]
    if ends:
        return min(ends)
    one = remaining(retrying, 1)
    return None if one is None else one * max(ways, 1)
