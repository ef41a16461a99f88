"""What happened in one run, in order: for comparing two runs, and for people."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from postroad.store.records import Event, Recorded


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    who: str
    what: str
    message_id: str | None = None

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.who:<10} {self.message_id or '-':<18} {self.what}"


class Violation(Exception):
    """Something that must never happen did."""

    def __init__(self, what: str, message_id: str | None = None) -> None:
        super().__init__(what if message_id is None else f"{message_id}: {what}")
        self.what = what
        self.message_id = message_id


@dataclass
class History:
    """The entries, and the marks of rare things that were reached."""

    time: Callable[[], float]
    entries: list[Entry] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    broken: Violation | None = None
    """The first thing that went wrong; what follows it is of no interest."""

    def note(self, who: str, what: str, message_id: str | None = None) -> None:
        self.entries.append(Entry(self.time(), who, what, message_id))

    def event(self, who: str, recorded: Recorded) -> None:
        """An event of a journal."""
        event = recorded.event
        self.note(who, f"#{recorded.seq} {event.event}{_details(event)}", event.message_id)

    def mark(self, name: str) -> None:
        self.marks[name] += 1

    def fail(self, what: str, message_id: str | None = None) -> None:
        if self.broken is None:
            self.note("oracle", f"VIOLATION: {what}", message_id)
            self.broken = Violation(what, message_id)

    def digest(self) -> str:
        """The same for two runs in which the same happened."""
        text = "\n".join(map(str, self.entries))
        return hashlib.sha256(text.encode()).hexdigest()

    def about(self, message_id: str | None) -> Iterator[Entry]:
        """What concerns a message, and what befell the nodes meanwhile."""
        for entry in self.entries:
            if message_id is None or entry.message_id in (message_id, None):
                yield entry


def _details(event: Event) -> str:
    """What tells one event from another; sizes on the wire hang on the keys of the day."""
    shown = (
        ("at", f"{event.at:%H:%M:%S.%f}"[:-3]),
        ("attempt", event.attempt),
        ("to", event.to_party if event.message_id is None else None),
        ("code", event.error_code),
        ("peer", event.peer),
        ("detail", event.detail),
    )
    return "".join(f" {name}={value}" for name, value in shown if value is not None)
