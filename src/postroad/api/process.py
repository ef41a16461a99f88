"""One of several processes of a node: what it takes up when it starts, and its share of figures."""

import asyncio
import contextlib
import logging
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from postroad.node.node import Node
from postroad.node.settings.config import Config
from postroad.store.interface import Store
from postroad.store.private import create_private_folder

_FOLDER: Final = "counters"
_EVERY: Final = 1.0
"""Seconds between two looks at what is to be shared."""
_log = logging.getLogger("postroad.serve")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands among the others."""

    number: int = 0
    predecessors: tuple[int, ...] = ()
    """Processes that died in this place, and whose work nobody has taken up yet."""

    @property
    def leads(self) -> bool:
        """One recovers, beats and cleans for all."""
        return self.number == 0


class Process(Node):
    """A node's process beside others."""

    def __init__(self, config: Config, store: Store, place: Place) -> None:
        left_by = [f"{config.node}/{pid}-" for pid in place.predecessors]
        super().__init__(config, store, leads=place.leads, left_by=left_by or None)
        self._shared = SharedCounters(config.data, place.number, self.context.counters)
        self._sharing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._sharing = asyncio.create_task(self._share())

    async def stop(self) -> None:
        if self._sharing is not None:
            self._sharing.cancel()
        await super().stop()

    def metrics(self) -> Mapping[str, float]:
        """Of all processes, whichever is asked."""
        return self._shared.total()

    async def _share(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                self._shared.write()
            except OSError as error:
                _log.warning("counters are not shared", extra={"detail": str(error)})


class SharedCounters:
    """The counters of this process and, about a second late, those of the others.

    Each has a file. Whoever takes the place of one that died counts on from there.
    """

    def __init__(self, data: Path, number: int, own: Counter[str]) -> None:
        self._folder = data / _FOLDER
        self._file = self._folder / f"{number}.json"
        self._own = own
        own.update(_read(self._file))
        self._written: dict[str, int] = dict(own)

    def write(self) -> None:
        """Let the others know, if there is something new."""
        if self._own == self._written:
            return
        self._written = dict(self._own)
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:
            file.write(msgspec.json.encode(self._written))
        Path(file.name).replace(self._file)

    def total(self) -> dict[str, float]:
        found = Counter(self._own)
        for file in self._folder.glob("*.json"):
            if file != self._file:
                found.update(_read(file))
        return dict(found)


def forget_counters(data: Path) -> None:
    """Before the first process starts: all count from zero."""
    folder = data / _FOLDER
    create_private_folder(folder)
    for file in (*folder.glob("*.json"), *folder.glob(".*")):
        file.unlink(missing_ok=True)


def _read(file: Path) -> dict[str, int]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    return {}
