"""How many messages may be under way to one address at once: a window that follows the answers.

A partner that is short of time answers late. A sender that gives up waiting and sends as much again
makes it worse: the partner works for requests that nobody waits for. So the window is cut when an
answer stays out or the partner says that it is overloaded, and grows again with each answer, as
TCP's congestion window does:

- A cut leaves half of what was answered while the attempt waited, and at most half of the window:
  so much would be answered in half of the time. Never less than one.
- Attempts that began before a cut do not cut again: a whole window of them fails together.
- An answer adds one place up to the threshold, and beyond it one place for a window of answers.
  The threshold is the size after the cut, or half of the size before it if nothing was answered,
  which is all that is known then.

The window does not read a clock. It counts, so the same attempts give the same window.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

LEAST: Final = 1
"""One message is always allowed: its answer is what lets the window grow again."""


class Window(Struct, frozen=True, gc=False):
    """The window of one address; as large as allowed unless something else is known."""

    ceiling: int
    size: float = 0
    """0: the ceiling."""
    threshold: float = 0
    begun: int = 0
    ended: int = 0
    answered: int = 0
    cut_at: int = 0
    """How many attempts had begun when the window was last cut."""

    @property
    def limit(self) -> int:
        """How many messages may be under way now."""
        return int(self.size) if self.size else self.ceiling

    @property
    def is_open(self) -> bool:
        """Whether nothing is held back."""
        return self.limit >= self.ceiling

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is under way."""
        return self.begun == self.ended


class Ticket(Struct, frozen=True, gc=False):
    """What an attempt remembers of the window in which it began."""

    number: int
    answered: int


def begun(window: Window) -> tuple[Window, Ticket]:
    """An attempt begins."""
    number = window.begun + 1
    return changed(window, begun=number), Ticket(number, window.answered)


def ended(window: Window) -> Window:
    """An attempt ended in a way that says nothing about how busy the partner is."""
    return changed(window, ended=window.ended + 1)


def answered(window: Window) -> Window:
    """An attempt was answered in time."""
    ended_now, answers = window.ended + 1, window.answered + 1
    size = window.size
    if size:
        grown = size + (1 if size < window.threshold else 1 / size)
        size = 0 if grown >= window.ceiling else grown
    return changed(window, ended=ended_now, answered=answers, size=size)


def overloaded(window: Window, ticket: Ticket) -> Window:
    """An attempt was not answered in time, or the partner said that it is overloaded."""
    window = ended(window)
    if ticket.number <= window.cut_at:
        return window
    before = window.size or window.ceiling
    came = window.answered - ticket.answered
    size = float(max(LEAST, min(before / 2, came / 2)))
    threshold = size if came else max(size, before / 2)
    return changed(window, size=size, threshold=threshold, cut_at=window.begun)
