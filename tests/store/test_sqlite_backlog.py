"""A backlog that cannot be worked off now is in nobody's way, however long it is."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from postroad.store.interface import Transaction
from postroad.store.sqlite import SqliteStore, open_sqlite
from tests.store.costs import Step, instructions
from tests.store.samples import after, work

FEW, MANY = 100, 20_000
KINDS = ("send", "package")
NOW, LEASE = after(100), after(200)


def due(tx: Transaction) -> None:
    """What can be done now."""
    tx.add_work(work("send", "due", due=50, partner="a"))


async def cost(store: SqliteStore, step: Step) -> int:
    return await instructions(store, step, ANSWERS[step], after=due)


def paused(tx: Transaction, number: int) -> None:
    """Due, and older than all else, for a partner that is paused."""
    tx.add_work(work("send", f"m{number}", due=1, partner="paused"))


def in_a_lane(tx: Transaction, number: int) -> None:
    """Behind the first, which somebody else has claimed."""
    claim = {"owner": "other", "lease_until": after(1000)}
    tx.add_work(work("send", f"m{number}", due=1, partner="b", lane="talk", **claim))


def asleep(tx: Transaction, number: int) -> None:
    """Until somebody wakes it."""
    tx.postpone_work(tx.add_work(work("send", f"m{number}", due=1, partner="b")), None)


def not_due_yet(tx: Transaction, number: int) -> None:
    """Retries that wait for their time."""
    tx.add_work(work("send", f"m{number}", due=1000, partner="b"))


def claim_without(tx: Transaction) -> object:
    given = tx.claim_work(KINDS, NOW, "me", LEASE, 10, without=["paused"])
    return [one.message_id for one in given]


def claim_for_one(tx: Transaction) -> object:
    given = tx.claim_work(KINDS, NOW, "me", LEASE, 10, partner="a")
    return [one.message_id for one in given]


def claim(tx: Transaction) -> object:
    return [one.message_id for one in tx.claim_work(KINDS, NOW, "me", LEASE, 10)]


def next_due(tx: Transaction) -> object:
    return min(tx.due_by_kind(KINDS, ["paused"]).values(), default=None)


def next_in_lane(tx: Transaction) -> object:
    """One is added to the long lane, and the first is finished."""
    tx.add_work(work("send", "last", lane="talk"))
    [first] = tx.claim_work(KINDS, after(1000), "me", after(2000), 1, partner="b")
    tx.finish_work(first.id)
    return [one.message_id for one in tx.claim_work(KINDS, NOW, "me", LEASE, 1, partner="b")]


def wake(tx: Transaction) -> object:
    """One is put to sleep, woken, turned and finished."""
    id = tx.add_work(work("send", partner="a"))
    tx.postpone_work(id, None)
    tx.wake_work(id, NOW)
    tx.turn_work(id, "package", NOW)
    tx.finish_work(id)
    return tx.work(id)


ANSWERS: dict[Step, object] = {
    claim_without: ["due"],
    claim_for_one: ["due"],
    claim: ["due"],
    next_due: after(50),
    next_in_lane: ["m1"],
    wake: None,
}


@pytest.mark.parametrize(
    ("backlog", "steps"),
    [
        (paused, (claim_without, claim_for_one, next_due, wake)),
        (in_a_lane, (claim_without, claim_for_one, claim, next_due, next_in_lane, wake)),
        (asleep, (claim_without, claim_for_one, claim, next_due, wake)),
        (not_due_yet, (claim_without, claim_for_one, claim, next_due, wake)),
    ],
    ids=["paused", "in_a_lane", "asleep", "not_due_yet"],
)
def test_a_backlog_makes_nothing_else_slower(
    tmp_path: Path, backlog: Callable[[Transaction, int], None], steps: tuple[Step, ...]
) -> None:
    async def story() -> None:
        store = await open_sqlite(tmp_path, "station")

        def adding(start: int, end: int) -> Callable[[Transaction], None]:
            def step(tx: Transaction) -> None:
                for number in range(start, end):
                    backlog(tx, number)

            return step

        await store.run(adding(0, FEW))
        few = {step: await cost(store, step) for step in steps}
        await store.run(adding(FEW, MANY))
        for step, spent in few.items():
            assert spent > 20
            assert await cost(store, step) <= spent * 1.05, step.__name__
        await store.close()

    asyncio.run(story())
