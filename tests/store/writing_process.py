"""A process that writes to a store and tells what it was told is durable.

    python -m tests.store.writing_process FOLDER NAME MESSAGES [DIES_AT]

It prints the id of each message once its step is through. At the end it waits for its input to
be closed before it closes the store. DIES_AT is where it kills itself: `before_commit` when the
contents are written and the rows are not, `after_commit` when the rows are there and nothing else
was done about them; both at the third group.
"""

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

from postroad.store.contents import Batch
from postroad.store.interface import Store, Transaction
from postroad.store.records import State
from postroad.store.sqlite import open_sqlite
from tests.store.samples import Pattern, after, event, message, work, written

CONCURRENT = 8
LARGE = 300_000


def size_of(number: int) -> int:
    """Every ninth message is so large that it has a file of its own."""
    return LARGE + number if number % 9 == 4 else 1000 + number


async def write(store: Store, name: str, number: int) -> str:
    message_id = f"{name}-{number}"
    content = await store.persist(written(store, Pattern(size_of(number))))

    def step(tx: Transaction) -> None:
        tx.add_message(message(message_id, envelope=tx.keep(content), bytes=number))
        tx.add_work(work("send", message_id))
        tx.record([event("received", message_id), event("delivered", message_id)])

    await store.run(step)
    if number % 5 == 3:
        await store.run(
            lambda tx: tx.change_message(
                message().side, message_id, State, state=State.CONSUMED, updated_at=after(1)
            )
        )
    return message_id


async def main(folder: Path, name: str, messages: int) -> None:
    store = await open_sqlite(folder, "station", patience=60)
    numbers = iter(range(messages))

    async def write_some() -> None:
        for number in numbers:
            print(await write(store, name, number), flush=True)

    await asyncio.gather(*[write_some() for _ in range(CONCURRENT)])
    print("done", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()


def die_at(place: str) -> None:
    groups = itertools.count(1)
    method = {"before_commit": "write", "after_commit": "settle"}[place]
    original = getattr(Batch, method)

    def last_words(batch: Batch) -> None:
        if next(groups) == 3:
            if place == "before_commit":
                original(batch)
            os.kill(os.getpid(), signal.SIGKILL)
        original(batch)

    setattr(Batch, method, last_words)


if __name__ == "__main__":
    if len(sys.argv) > 4:
        die_at(sys.argv[4])
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
