"""When a message is sent again, and until when its fate is known.

A message is sent at t0. Retry k follows at t0 + timeout + (k-1) intervals, and when no answer came
one interval after the last retry the sender gives up: at t0 + timeout + retries intervals. The
interval counts from the last time the message was sent. TimeToLive and persistDuration end it
earlier. [OV004-2-06]
"""

from datetime import datetime, timedelta
from typing import Final

from postroad.agreement.waiting import Policy, remaining

_CENTURY: Final = timedelta(days=36_525)

ONCE: Final = Policy(timeout=timedelta(days=1))
"""One attempt, where nothing else is agreed on; a receipt that calls back has a day to come."""
SIGNALS: Final = Policy(
    timeout=timedelta(seconds=1),
    interval=timedelta(seconds=2),
    growth=2.0,
    longest=timedelta(hours=1),
    retries=19,
)
"""For what nobody acknowledges and nobody sends again: until the next one takes it."""


def ends_at(
    policy: Policy, created_at: datetime, first_sent_at: datetime | None
) -> datetime | None:
    """When sending ends whatever happens: TimeToLive, or persistDuration after the first sending.

    [MS098-10.2.9-02] [RM000-1.2.10-03]
    """
    ends = []
    if policy.time_to_live is not None:
        ends.append(created_at + policy.time_to_live)
    if policy.persist_duration is not None and first_sent_at is not None:
        ends.append(first_sent_at + policy.persist_duration)
    return min(ends, default=None)


def decided_by(policy: Policy, tries: int, at: datetime, end: datetime | None) -> datetime | None:
    """Until when the fate of a message is known, if its partner is not paused meanwhile."""
    rest = remaining(policy, tries)
    if rest is None or rest > _CENTURY:
        return end
    return at + rest if end is None else min(at + rest, end)
