"""A process that records and ships in a loop, until it is killed.

    python -m tests.store.shipping_process STORE JOURNAL [DIES_AT]

It prints the seq of the last event once that is shipped. DIES_AT is where it kills itself:
`half_written` in the middle of its third segment, `renamed` when that has its name and nothing was
noted.
"""

import asyncio
import itertools
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from postroad.store.places import Place, Written
from postroad.store.records import Event
from postroad.store.shipping import Shipper
from postroad.store.sqlite import open_sqlite
from tests.store.samples import START


async def main(folder: Path, journal: Path) -> None:
    store = await open_sqlite(folder, "station")
    shipper = Shipper(store, journal, size=2000, folder=folder)
    last = (await store.look(lambda reader: reader.figures())).last_seq
    for number in itertools.count(last):
        hours = timedelta(hours=number % 50)
        events = [Event(START + hours, "us", "heartbeat", detail=str(n)) for n in range(17)]
        await store.run(lambda tx, events=events: tx.record(events))  # type: ignore[misc]
        await shipper.ship(everything=number % 3 == 0)
        shipped = await store.look(lambda reader: reader.shipped(str(journal)))
        print(shipped.seq, flush=True)


def die_at(place: str) -> None:
    """At the third segment."""
    segments = 0
    exists, write, rename = Place.exists, Written.write, Path.rename

    def asked(self: Place, name: str) -> bool:
        nonlocal segments
        segments += 1
        return exists(self, name)

    def written(self: Written, chunk: Any) -> int:
        done = write(self, chunk)
        if place == "half_written" and segments >= 3 and self.size > 500:
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def renamed(path: Path, target: Path) -> Path:
        done = rename(path, target)
        if place == "renamed" and segments >= 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    Place.exists = asked  # type: ignore[method-assign]
    Written.write = written  # type: ignore[method-assign]
    Path.rename = renamed  # type: ignore[method-assign]


if __name__ == "__main__":
    if len(sys.argv) > 3:
        die_at(sys.argv[3])
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
