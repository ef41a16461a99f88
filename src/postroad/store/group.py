"""What a commit has to write beside the rows that its steps change.

Events and signals are added, and hardly any step asks for those of its own commit: they are put
off, and written together when the commit ends or when somebody asks.
"""

import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from postroad.store.contents import Batch
from postroad.store.queries import query
from postroad.store.rows import Row

_ADD_EVENT: Final = query("add_event")
_ADD_SIGNAL: Final = query("add_signal")


@dataclass(slots=True)
class Group:
    """What the steps of one commit have done so far beside their rows."""

    epoch: int
    seq: int
    """Of the last event."""
    contents: Batch
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many more there are of what."""
    kept: int = 0
    """Contents that were appended to this group's segment."""
    taken: dict[str, int] = field(default_factory=dict)
    """Contents that are not needed any more, by segment."""
    trash: list[str] = field(default_factory=list)
    """Files that can go after the commit."""
    changed: bool = False
    events: list[Row] = field(default_factory=list)
    """Rows of the journal that are to be written, all at once."""
    signals: list[Row] = field(default_factory=list)

    def flush(self, cursor: sqlite3.Cursor) -> None:
        """Write what was put off."""
        if self.events:
            rows, self.events = self.events, []
            cursor.executemany(_ADD_EVENT, rows)
        if self.signals:
            rows, self.signals = self.signals, []
            cursor.executemany(_ADD_SIGNAL, rows)

    def mark(self) -> tuple[Any, ...]:
        return (
            self.contents.mark(),
            self.seq,
            self.counts.copy(),
            self.kept,
            self.taken.copy(),
            len(self.trash),
            self.changed,
        )

    def back_to(self, mark: tuple[Any, ...]) -> None:
        """As it was at a mark, before which everything was flushed."""
        self.events.clear()
        self.signals.clear()
        contents, self.seq, self.counts, self.kept, self.taken, trash, self.changed = mark
        self.contents.back_to(contents)
        del self.trash[trash:]
