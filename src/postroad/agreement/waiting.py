"""What is agreed about sending again, and how long that takes: durations, no clock.

The first retry waits for the timeout, each further one for an interval, and one interval after the
last retry is the end. The interval may grow, and may be stretched at random so that messages which
failed together don't come back together. [MS098-10.2.6-01] [MS098-10.2.8-01] [OV004-2-06]
"""

import math
from datetime import timedelta
from typing import Final

from msgspec import Struct

from postroad.agreement.values import LONGEST_WAIT

_NOTHING: Final = timedelta(0)


class Policy(Struct, frozen=True):
    """What is agreed about sending again."""

    timeout: timedelta = _NOTHING
    """How long an answer is waited for before the first retry."""
    interval: timedelta = _NOTHING
    """How long between two retries."""
    retries: int | None = 0
    """None: for ever."""
    growth: float = 1.0
    """Each interval is so many times the one before it."""
    longest: timedelta = LONGEST_WAIT
    """No interval grows beyond it."""
    jitter: float = 0.0
    """So much of an interval is added at most, at random."""
    time_to_live: timedelta | None = None
    """From submission. What has not been sent by then is not sent any more."""
    persist_duration: timedelta | None = None
    """From the first sending: so long the receiver knows the id. Later nothing is sent under it."""
    fail_fast: bool = False
    """A partner that cannot be reached ends the message at once."""
    suspend: bool = False
    """After the last retry the partner is suspended until somebody resumes, and nothing is lost."""


def wait_after(policy: Policy, tries: int, dice: float = 0.0) -> timedelta:
    """How long to wait after so many attempts; `dice` is from 0 to 1."""
    wait = policy.timeout if tries <= 1 else _interval(policy, tries - 1)
    return wait + wait * (policy.jitter * dice) if policy.jitter else wait


def _interval(policy: Policy, number: int) -> timedelta:
    """The nth interval between retries, counted from 1."""
    if number >= _first_longest(policy):
        return policy.longest
    return min(policy.interval * policy.growth ** (number - 1), policy.longest)


def _first_longest(policy: Policy) -> float:
    """The number of the first interval that has grown to the longest."""
    if not policy.interval:
        return math.inf
    times = policy.longest / policy.interval
    if times <= 1:
        return 1
    return math.inf if policy.growth == 1 else 1 + math.log(times) / math.log(policy.growth)


def is_used_up(policy: Policy, tries: int) -> bool:
    """Whether so many attempts are all there may be."""
    return policy.retries is not None and tries > policy.retries


def remaining(policy: Policy, tries: int) -> timedelta | None:
    """From the last attempt to giving up, at the longest; None: for ever."""
    if policy.retries is None:
        return None
    first, last = max(tries, 2) - 1, policy.retries
    growing = max(min(last, math.ceil(min(_first_longest(policy), last + 1)) - 1) - first + 1, 0)
    total = policy.longest * max(last - first + 1 - growing, 0)
    if growing:
        total += _interval(policy, first) * _sum(policy.growth, growing)
    if tries <= 1:
        total += policy.timeout
    return total * (1 + policy.jitter)


def _sum(growth: float, count: int) -> float:
    """1 + growth + growth² …, so many times."""
    return float(count) if growth == 1 else (growth**count - 1) / (growth - 1)
