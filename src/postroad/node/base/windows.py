"""The windows of all partners: how many messages go to each address at once, as it answers.

What is decided stands in `reliability.window`. Windows are kept in memory: a process that starts
begins with full windows. They differ from process to process, as what each of them sends does.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from postroad.node.base.context import Context
from postroad.reliability.breaker import address_of, party_of
from postroad.reliability.window import Ticket, Window, answered, begun, ended, overloaded

_MOST_IDLE: Final = 1000
"""Partners with a smaller window to whom nothing is under way; the oldest are forgotten."""
_log = logging.getLogger("postroad.send")


class Timed:
    """An attempt that is under way."""

    __slots__ = ("in_time",)

    def __init__(self) -> None:
        self.in_time: bool | None = None
        """As `Outcome.in_time`."""


class Windows:
    """A window for each partner to whom something is under way, or who was slow to answer."""

    def __init__(self, context: Context, ceiling: int) -> None:
        self._context = context
        self._new = Window(ceiling)
        self._windows: dict[str, Window] = {}
        self._told: dict[str, int] = {}
        """The limits that the log knows."""

    def limit(self, partner: str) -> int:
        """Return how many messages may be under way to a partner at once."""
        return self._windows.get(partner, self._new).limit

    @contextmanager
    def attempt(self, partner: str) -> Iterator[Timed]:
        """Count an attempt; who makes it says whether it was answered in time."""
        self._windows[partner], ticket = begun(self._windows.get(partner, self._new))
        timed = Timed()
        try:
            yield timed
        finally:
            self._end(partner, ticket, timed.in_time)

    def _end(self, partner: str, ticket: Ticket, in_time: bool | None) -> None:
        window = self._windows[partner]
        if in_time is None:
            window = ended(window)
        else:
            window = answered(window) if in_time else overloaded(window, ticket)
        self._windows[partner] = window
        if window.is_open and window.is_idle:
            del self._windows[partner]
        if partner in self._told or not window.is_open:
            self._tell(partner, window)
            self._forget_oldest()

    def _tell(self, partner: str, window: Window) -> None:
        """Show the limit to who watches; the log has large changes only."""
        known = self._told.get(partner, window.ceiling)
        who, peer = party_of(partner), address_of(partner)
        told = {"partner": who, "peer": peer, "detail": f"{window.limit} at once"}
        if window.is_open:
            self._told.pop(partner, None)
            _log.info("partner answers in time again", extra=told)
        elif window.limit <= known / 2:
            self._told[partner] = window.limit
            _log.warning("partner answers late, fewer messages are sent at once", extra=told)
        self._show(partner, None if window.is_open else window.limit)

    def _show(self, partner: str, limit: int | None) -> None:
        labels = {"partner": party_of(partner), "address": address_of(partner) or ""}
        self._context.gauge("send_limit", limit, **labels)

    def _forget_oldest(self) -> None:
        if len(self._windows) <= _MOST_IDLE:
            return
        idle = [name for name, one in self._windows.items() if one.is_idle]
        for name in idle[:-_MOST_IDLE]:
            del self._windows[name]
            self._told.pop(name, None)
            self._show(name, None)
