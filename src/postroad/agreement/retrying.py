"""What a leg says about sending again, as plain values with the defaults filled in.

A message is sent, then again after the timeout and after each interval, until a receipt comes or
one interval after the last retry is over. The interval grows up to the longest; up to the share
`jitter` is added to each wait.
"""

from datetime import timedelta

from msgspec import Struct

from postroad.agreement.awareness import RetryParameters
from postroad.agreement.pmode import Leg
from postroad.agreement.values import LONGEST_WAIT, UNLIMITED


class Retrying(Struct, frozen=True, kw_only=True):
    """How a message is sent again."""

    timeout: timedelta
    """How long a receipt is waited for before the first retry."""
    interval: timedelta
    growth: float
    """Each interval is so many times the one before it."""
    longest: timedelta
    """No interval grows beyond it."""
    jitter: float
    retries: int | None
    """None: unlimited."""
    time_to_live: timedelta | None
    """From submission."""
    persist_duration: timedelta | None
    """From the first sending."""
    fail_fast: bool
    suspend: bool
    """After the last retry the partner is suspended; else the message is given up."""


def retry_of(leg: Leg) -> Retrying | None:
    """How messages of a leg are sent again; None: they are sent once. [OV004-2-01]"""
    aware = leg.reception_awareness
    retry = aware.retry if aware and aware.enabled else None
    if retry is None or not retry.enabled:
        return None
    given = retry.parameters or RetryParameters()
    return Retrying(
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


def whole_period(retrying: Retrying) -> timedelta | None:
    """From the first sending until the message is given up, at the longest; None: no end.

    [OV004-2-06]
    """
    if retrying.retries is None:
        return None
    total, wait = retrying.timeout, min(retrying.interval, retrying.longest)
    for done in range(retrying.retries):
        if retrying.growth == 1 or wait == retrying.longest:
            total += wait * (retrying.retries - done)
            break
        total += wait
        wait = min(wait * retrying.growth, retrying.longest)
    return total * (1 + retrying.jitter)


def resent_within(retrying: Retrying) -> timedelta | None:
    """How long after its first sending a message may be sent again; None: no end.

    While a partner cannot be reached no retries are used up, so that only TimeToLive and
    persistDuration are a firm end.
    """
    ends = [end for end in (retrying.time_to_live, retrying.persist_duration) if end is not None]
    return min(ends) if ends else whole_period(retrying)
