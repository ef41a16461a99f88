"""What a pull costs the database does not depend on how much waits in a channel."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from postroad.store.interface import Transaction
from postroad.store.records import Offer
from postroad.store.sqlite import open_sqlite
from tests.store.costs import instructions
from tests.store.samples import after

FEW, MANY = 200, 10_000
HERE = ("urn:mpc", "orders")
NOW = after(100)

Step = Callable[[Transaction], str | None]


def offer(name: str, *items: str) -> Offer:
    return Offer(*HERE, name, after(0), ("service=s", "action=a", *items))


def first(tx: Transaction) -> str | None:
    found = tx.first_offer([HERE], NOW)
    return found and found.message_id


def by_reference(tx: Transaction) -> str | None:
    found = tx.first_offer([HERE], NOW, ["ref=7", "service=s", "action=a"])
    return found and found.message_id


def by_what_nobody_has(tx: Transaction) -> str | None:
    found = tx.first_offer([HERE], NOW, ["ref=none", "service=s"])
    return found and found.message_id


def by_what_all_have(tx: Transaction) -> str | None:
    found = tx.first_offer([HERE], NOW, ["service=s", "action=a"])
    return found and found.message_id


def by_what_all_have_and_nobody_has(tx: Transaction) -> str | None:
    found = tx.first_offer([HERE], NOW, ["service=s", "ref=none"])
    return found and found.message_id


def by_what_never_stands_together(tx: Transaction) -> str | None:
    found = tx.first_offer([HERE], NOW, ["half=0", "half=1"])
    return found and found.message_id


def put_in(tx: Transaction) -> str | None:
    """Something comes that has both."""
    tx.add_offer(offer("both", "half=0", "half=1"))
    found = tx.first_offer([HERE], NOW, ["half=1", "half=0"])
    return found and found.message_id


def handed_out(tx: Transaction) -> str | None:
    """One is handed out, comes back, is removed and put in again."""
    tx.postpone_offer("7", after(50))
    assert by_reference(tx) == "7"
    tx.remove_offer("7")
    tx.add_offer(offer("7", "ref=7"))
    return by_reference(tx)


def counted(tx: Transaction) -> str | None:
    return str(tx.queue(HERE[0]).oldest == after(0))


EXPECTED: dict[Step, str | None] = {
    first: "0",
    by_reference: "7",
    by_what_nobody_has: None,
    by_what_all_have: "0",
    by_what_all_have_and_nobody_has: None,
    by_what_never_stands_together: None,
    put_in: "both",
    handed_out: "7",
    counted: "True",
}


@pytest.mark.parametrize("waits", ["offered", "with others"])
def test_a_pull_takes_as_many_instructions_from_a_full_channel(waits: str, tmp_path: Path) -> None:
    async def cost(count: int) -> dict[str, int]:
        store = await open_sqlite(tmp_path / str(count), "station")

        def fill(tx: Transaction) -> None:
            for number in range(count):
                name = str(number)
                items = (f"ref={number}", f"conversation={number // 10}", f"half={number % 2}")
                tx.add_offer(offer(name, *items))
                if waits == "with others" and number > 7:
                    tx.postpone_offer(name, after(1000))

        await store.run(fill)
        # The first time all are looked at.
        await store.run(by_what_never_stands_together)
        spent = {
            step.__name__: await instructions(store, step, expected)
            for step, expected in EXPECTED.items()
        }
        await store.close()
        return spent

    async def story() -> None:
        few, many = await cost(FEW), await cost(MANY)
        assert all(few.values())
        for name, spent in few.items():
            assert many[name] <= spent * 1.2, name

    asyncio.run(story())


def test_no_count_stays_of_a_channel_in_which_nothing_waits(tmp_path: Path) -> None:
    """A hub has a channel for each MPC that messages name, and strangers name any number."""

    async def story() -> list[str]:
        store = await open_sqlite(tmp_path / "store", "station")
        try:
            for number in range(3):
                one = Offer(f"urn:mpc:{number}", "orders", f"m{number}", after(0))
                await store.run(lambda tx, one=one: tx.add_offer(one))  # type: ignore[misc]
            for number in range(3):
                await store.run(lambda tx, number=number: tx.remove_offer(f"m{number}"))  # type: ignore[misc]
            rows = store._writer._database.execute("SELECT name FROM counts")
            return [name for (name,) in rows.fetchall() if name.startswith("offer.")]
        finally:
            await store.close()

    assert asyncio.run(story()) == []
