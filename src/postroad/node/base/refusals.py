"""Refusals of senders who proved nothing: counted, and journaled within bounds.

Anybody can send as many bad requests as the line carries. Of each reason the first few in an
interval have journal events of their own, so that a mistake of a partner can be followed up. The
others are counted: by a metric, and by one event at the end of the interval.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from postroad.node.settings.config_groups import RefusedLimits
from postroad.store.records import Event

SECURITY_CODES: Final = ("EBMS:0101", "EBMS:0103", "SecurityFailure")
"""Errors with which a sender is told that it did not prove itself."""
_MOST_REASONS: Final = 1000
_OTHER: Final = "other"
_MOST_DETAIL: Final = 500


class _Reason(Struct, frozen=True):
    code: str
    pmode: str | None


class _Tally(Struct):
    """What was refused for one reason since a time."""

    since: datetime
    own: int = 0
    """Refusals that had events of their own."""
    counted: int = 0
    """Those that had none."""
    detail: str = ""
    """Of the last of these."""
    peer: str | None = None
    """Where they came from; None: from several places."""


class Refusals:
    """The refusals of one process since it started."""

    def __init__(self, limits: RefusedLimits, count: Callable[..., None]) -> None:
        self._limits = limits
        self._count = count
        self._tallies: dict[_Reason, _Tally] = {}

    def admit(
        self, code: str, detail: str, now: datetime, peer: str | None, pmode: str | None = None
    ) -> bool:
        """Count a refusal, and return whether it may have journal events of its own."""
        tally = self._tally(code, now, pmode)
        if tally.own >= self._limits.events:
            self._add(tally, detail, peer)
            return False
        tally.own += 1
        return True

    def count(
        self, code: str, detail: str, now: datetime, peer: str | None, pmode: str | None = None
    ) -> None:
        """Count a refusal that never has a journal event of its own."""
        self._add(self._tally(code, now, pmode), detail, peer)

    def _tally(self, code: str, now: datetime, pmode: str | None) -> _Tally:
        self._count("unproven_refusals", reason=code)
        reason = _Reason(code, pmode)
        tally = self._tallies.get(reason)
        if tally is None and len(self._tallies) >= _MOST_REASONS:
            reason = _Reason(_OTHER, None)
            tally = self._tallies.get(reason)
        if tally is None or (not tally.counted and self._is_over(tally, now)):
            tally = self._tallies[reason] = _Tally(now)
        return tally

    @staticmethod
    def _add(tally: _Tally, detail: str, peer: str | None) -> None:
        tally.peer = peer if tally.peer == peer or not tally.counted else None
        tally.counted += 1
        tally.detail = detail[:_MOST_DETAIL]

    def take(self, now: datetime, party: str, *, everything: bool = False) -> list[Event]:
        """Take the events that tell of what was counted; intervals that are over begin anew."""
        over = [
            reason for reason, one in self._tallies.items() if everything or self._is_over(one, now)
        ]
        tallies = [(reason, self._tallies.pop(reason)) for reason in over]
        return [_event(reason, one, now, party) for reason, one in tallies if one.counted]

    def _is_over(self, tally: _Tally, now: datetime) -> bool:
        # A clock that was set back ends an interval too.
        return not tally.since <= now < tally.since + self._limits.interval


def _event(reason: _Reason, tally: _Tally, now: datetime, party: str) -> Event:
    more = "more " if tally.own else ""
    return Event(
        now,
        party,
        "error_raised",
        pmode=reason.pmode,
        peer=tally.peer,
        error_code=None if reason.code == _OTHER else reason.code,
        severity="failure",
        detail=(
            f"{tally.counted} {more}requests of senders who proved nothing were refused since "
            f"{tally.since:%Y-%m-%dT%H:%M:%SZ}; the last: {tally.detail}"
        ),
    )
