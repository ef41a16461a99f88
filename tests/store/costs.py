"""What a step costs the database, counted in its instructions."""

import contextlib
from collections.abc import Callable

from postroad.store.interface import Transaction
from postroad.store.sqlite import SqliteStore
from tests.store.stories import Refusal

Step = Callable[[Transaction], object]


async def instructions(
    store: SqliteStore, step: Step, expected: object, *, after: Step | None = None
) -> int:
    """How many a step takes; its work, and what is done before it (`after`), is then undone."""
    spent = 0

    def count() -> int:
        nonlocal spent
        spent += 1
        return 0

    def counted(tx: Transaction) -> None:
        if after is not None:
            after(tx)
        database = store._writer._database
        database.set_progress_handler(count, 1)
        try:
            assert step(tx) == expected
        finally:
            database.set_progress_handler(None, 0)
        raise Refusal

    with contextlib.suppress(Refusal):
        await store.run(counted)
    return spent
