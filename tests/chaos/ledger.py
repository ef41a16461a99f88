"""The harness's own book: one line for each thing that an application did or was told.

Lines are only added. `write` returns when the line is on the disk, so that an application which
acknowledges a message afterwards can never have forgotten it.
"""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self


class Ledger:
    """An append-only file of JSON lines. Several threads share one fsync."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lock = threading.Condition()
        self._written = 0
        self._durable = 0
        self._syncing = False

    def write(self, event: str, **values: Any) -> None:
        """Add a line, and return when it is on the disk."""
        line = json.dumps({"event": event, **values}).encode() + b"\n"
        with self._lock:
            self._file.write(line)
            self._written += 1
            mine = self._written
            while self._durable < mine:
                if self._syncing:
                    self._lock.wait()
                    continue
                self._file.flush()
                upto = self._written
                self._syncing = True
                self._lock.release()
                try:
                    os.fsync(self._file.fileno())
                finally:
                    self._lock.acquire()
                    self._syncing = False
                    self._lock.notify_all()
                self._durable = upto

    @property
    def lines(self) -> int:
        """How many lines were written."""
        return self._written

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_ledger(path: Path) -> Iterator[dict[str, Any]]:
    """Give the lines of a ledger, in their order."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
