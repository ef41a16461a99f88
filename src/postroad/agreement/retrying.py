"""What a leg says about sending again, with the defaults filled in."""

from datetime import timedelta

from postroad.agreement.awareness import RetryParameters
from postroad.agreement.pmode import Leg
from postroad.agreement.values import LONGEST_WAIT, UNLIMITED
from postroad.agreement.waiting import Policy, remaining


def retry_of(leg: Leg) -> Policy | None:
    """How messages of a leg are sent again; None: they are sent once. [OV004-2-01]"""
    aware = leg.reception_awareness
    retry = aware.retry if aware and aware.enabled else None
    if retry is None or not retry.enabled:
        return None
    given = retry.parameters or RetryParameters()
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


def resent_within(retrying: Policy) -> timedelta | None:
    """How long after its first sending a message may be sent again; None: no end.

    While a partner cannot be reached no retries are used up, so that only TimeToLive and
    persistDuration are a firm end.
    """
    ends = [end for end in (retrying.time_to_live, retrying.persist_duration) if end is not None]
    return min(ends) if ends else remaining(retrying, 1)
