"""When a sender tries again: not sooner, not more often and not longer than agreed.

Part of the second oracle: it follows from the events of the journal alone, as long as the node's
clock is not set and nobody else took the message over in the midst of an attempt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from postroad.agreement.waiting import Policy
from postroad.store.records import Event
from tests.sim.replay import ATTEMPTS, Untrue

_HAIR: Final = timedelta(milliseconds=2)
_MOST_GROWN: Final = 20


@dataclass
class _Life:
    submitted: datetime
    policy: Policy
    tries: int = 0
    last: datetime | None = None
    first_left: datetime | None = None
    peer: str | None = None
    disturbed: bool = False
    """Which of its attempts count is no longer known."""


@dataclass
class _Pause:
    """A time in which a partner was left alone."""

    begin: datetime
    end: datetime | None = None

    def overlaps(self, since: datetime, until: datetime) -> bool:
        return self.begin <= until and (self.end is None or since <= self.end)


class Timing:
    """The attempts of one party."""

    def __init__(self, policy_of: Callable[[Event], Policy | None]) -> None:
        self._policy_of = policy_of
        self._lives: dict[str, _Life] = {}
        self._pauses: dict[tuple[str | None, str | None], list[_Pause]] = {}
        """By party and address; without an address those of the party itself."""

    def anew(self, message_id: str) -> None:
        """An operator gives it all its retries again."""
        life = self._lives.get(message_id)
        if life is not None:
            life.tries, life.last = 0, None

    def partner(self, event: Event) -> None:
        """A partner is left alone, or served again; what was suspended begins anew then."""
        pauses = self._pauses.setdefault((event.to_party, event.peer), [])
        if pauses and pauses[-1].end is None:
            pauses[-1].end = event.at
        if event.event == "suspended":
            pauses.append(_Pause(event.at))
            return
        for life in self._lives.values():
            life.disturbed |= life.policy.suspend

    def _may_probe(self, life: _Life, event: Event) -> bool:
        """Whether it may only have shown that a partner who is left alone is still away.

        Such an attempt uses up no retry, even when it waited for its turn longer than the pause.
        """
        since = life.last or life.submitted
        pauses = [
            one
            for address in (event.peer, None)
            for one in self._pauses.get((event.to_party, address), ())
        ]
        return event.event == "send_failed" and any(one.overlaps(since, event.at) for one in pauses)

    def take(self, event: Event) -> None:
        """An event of a sender; `Untrue` when it comes at the wrong time."""
        if event.message_id is None:
            if event.event in ("suspended", "resumed"):
                self.partner(event)
            return
        if event.event == "submitted":
            policy = self._policy_of(event)
            if policy is not None:
                self._lives[event.message_id] = _Life(event.at, policy)
            return
        life = self._lives.get(event.message_id)
        if event.event not in ATTEMPTS or life is None or life.disturbed:
            return
        unknown = event.event != "send_failed" and event.detail is not None
        if unknown or self._may_probe(life, event):
            life.disturbed = True
            return
        if event.peer != life.peer:
            # Another transport has retries of its own.
            life.peer, life.tries, life.last = event.peer, 0, None
        _check(life, event.at)
        life.tries += 1
        life.last = event.at
        if event.event != "send_failed" and life.first_left is None:
            life.first_left = event.at


def _check(life: _Life, at: datetime) -> None:
    policy = life.policy
    if policy.retries is not None and life.tries > policy.retries:
        raise Untrue(f"attempt {life.tries + 1}, and there are {policy.retries} retries")
    if life.last is not None and at - life.last < _wait(policy, life.tries) - _HAIR:
        raise Untrue(f"sent again after {at - life.last}, too soon")
    if policy.time_to_live is not None and at > life.submitted + policy.time_to_live:
        raise Untrue("sent after its time to live")
    persists = policy.persist_duration
    if persists is not None and life.first_left and at > life.first_left + persists:
        raise Untrue("sent when its receiver need no longer know it")


def _wait(policy: Policy, tries: int) -> timedelta:
    """The least wait after so many attempts."""
    if tries <= 1:
        return policy.timeout
    grown = policy.growth ** min(tries - 2, _MOST_GROWN)
    return min(policy.interval * grown, policy.longest)
