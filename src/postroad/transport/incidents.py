"""Incidents that clients cause: each is counted, and logged at a bounded rate.

A stranger can cause any number of them. So the log has the first of a kind, and then at most one
line a minute with the number of those since; all of them are in the log at level debug.
"""

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

_LOG_EVERY: Final = 60.0


class Incident(StrEnum):
    """What was done about a client, as the reason in the metric."""

    EVICTED_ADDRESS = "evicted_address"
    EVICTED_TOTAL = "evicted_total"
    REFUSED_ADDRESS = "refused_address"
    REFUSED_TOTAL = "refused_total"
    BUSY_ADDRESS = "busy_address"
    BUSY_TOTAL = "busy_total"
    HEAD_TIMEOUT = "head_timeout"
    HANDSHAKE = "handshake"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"
    CLIENT_GONE = "client_gone"
    TIMEOUT = "timeout"
    LOGIN = "login"


EVENTS: Final = {
    Incident.EVICTED_ADDRESS: "closed a waiting connection for a newer one of its address",
    Incident.EVICTED_TOTAL: "closed a waiting connection for a newer one",
    Incident.REFUSED_ADDRESS: "refused a connection: its address has as many as it may",
    Incident.REFUSED_TOTAL: "refused a connection: there are as many as there may be",
    Incident.BUSY_ADDRESS: "refused a request: its address has as many in progress as it may",
    Incident.BUSY_TOTAL: "refused a request: there are as many in progress as there may be",
    Incident.HEAD_TIMEOUT: "closed a connection: no complete request head in time",
    Incident.HANDSHAKE: "TLS handshake failed",
    Incident.SLOW_BODY: "closed a connection: its request body came too slowly",
    Incident.SLOW_READER: "closed a connection: its response was read too slowly",
    Incident.CLIENT_GONE: "the client closed its connection before the end of its request",
    Incident.TIMEOUT: "closed a connection: nothing came in time",
    Incident.LOGIN: "login failed",
}
"""How the log names them."""
_SERIOUS: Final = frozenset(
    (
        Incident.EVICTED_ADDRESS,
        Incident.EVICTED_TOTAL,
        Incident.REFUSED_ADDRESS,
        Incident.REFUSED_TOTAL,
        Incident.BUSY_ADDRESS,
        Incident.BUSY_TOTAL,
        Incident.LOGIN,
    )
)
"""Logged as warnings: others may have been kept out."""


def _ignore(_: str) -> None:
    """Count nothing."""


class _Kind:
    """The incidents of one kind since the last line in the log."""

    __slots__ = ("detail", "logged_at", "peer", "unlogged")

    def __init__(self) -> None:
        self.logged_at = float("-inf")
        self.unlogged = 0
        self.peer: str | None = None
        self.detail = ""


class Incidents:
    """The incidents of a listener, or of several; `count` is called with the reason of each."""

    def __init__(
        self,
        logger: logging.Logger,
        count: Callable[[str], None] = _ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = logger
        self._count = count
        self._clock = clock
        self._kinds: dict[Incident, _Kind] = {}

    def note(self, incident: Incident, peer: str | None = None, detail: str = "") -> None:
        """Count an incident, and log it unless one of its kind was logged just now."""
        self._count(incident.value)
        kind = self._kinds.setdefault(incident, _Kind())
        kind.unlogged += 1
        kind.peer, kind.detail = peer, detail
        if not self._tell(incident, kind):
            self._log.debug(EVENTS[incident], extra=_extra(peer, detail))

    def flush(self) -> None:
        """Log what has not been logged yet, where a minute has passed."""
        for incident, kind in self._kinds.items():
            if kind.unlogged:
                self._tell(incident, kind)

    def _tell(self, incident: Incident, kind: _Kind) -> bool:
        now = self._clock()
        if now - kind.logged_at < _LOG_EVERY:
            return False
        extra = _extra(kind.peer, kind.detail)
        if kind.unlogged > 1:
            extra["count"] = kind.unlogged
        kind.logged_at, kind.unlogged = now, 0
        level = logging.WARNING if incident in _SERIOUS else logging.INFO
        self._log.log(level, EVENTS[incident], extra=extra)
        return True


def _extra(peer: str | None, detail: str) -> dict[str, object]:
    told: dict[str, object] = {}
    if peer is not None:
        told["peer"] = peer
    if detail:
        told["detail"] = detail
    return told
