"""What is written at once for messages that came to a good end, and one by one: the same."""

from pathlib import Path
from typing import Any

import pytest

from postroad.node.steps.attempts import AfterAttempt, Attempt, Outcome
from postroad.node.steps.good_end import GoodEnd, is_good
from postroad.reliability.delivery import Input
from postroad.store.interface import Transaction
from postroad.store.records import Side, State, Work
from postroad.store.sqlite import open_sqlite
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties, run


class Undone(Exception):
    """Nothing of a step is to stay."""


def _looked(tx: Transaction, names: list[str], works: list[int]) -> list[Any]:
    """All that a step left of some messages."""
    found: list[Any] = [tx.work(one) for one in works]
    for name in names:
        events = [one.event for one in tx.events(name)]
        found += [tx.message(Side.SENDING, name), tx.signals(Side.SENDING, name), events]
    return found


@pytest.mark.parametrize("kind", ["plain", "signed"])
def test_messages_that_end_well_together_leave_what_each_would_leave(
    tmp_path: Path, kind: str
) -> None:
    async def scenario() -> None:
        make_parties(tmp_path)
        stores = {name: await open_sqlite(tmp_path / name / "d", name) for name in (BUYER, SELLER)}
        exchange = Exchange(tmp_path, stores)
        context = exchange.contexts[BUYER]
        began = exchange.clock()
        both: list[Attempt] = []
        for name in ("a@x", "b@x"):
            message = await exchange.send(name, ("text/plain", b"1"), kind=kind)
            work = Work("send", name, began, owner=context.owner)
            number = await context.store.run(lambda tx, work=work: tx.add_work(work))
            exchange.clock.wait(1)
            hearing = await exchange.judge(message, await exchange.receive(message))
            outcome = Outcome(Input.ACKNOWLEDGED, hearing, None, None, "http://x", 700)
            work = Work("send", name, began, owner=context.owner, id=number)
            sending = context.in_force.sending_of(message)
            both.append(Attempt(message, work, sending, outcome, began))
            assert is_good(context, both[-1])
        names, works = ["a@x", "b@x"], [one.work.id for one in both]
        left: list[list[Any]] = []

        def each(tx: Transaction) -> None:
            for one in both:
                AfterAttempt(context, one)(tx)

        def together(tx: Transaction) -> None:
            assert GoodEnd(context, both, exchange.clock()).write(tx)
            tx.finish_works(works, context.owner)

        for write in (each, together):

            def step(tx: Transaction, write: Any = write) -> None:
                write(tx)
                left.append(_looked(tx, names, works))
                raise Undone

            with pytest.raises(Undone):
                await context.store.run(step)
        # A step that fails is run twice.
        assert left[0] == left[-1]
        assert left[0][2].state is State.ACKNOWLEDGED
        for store in stores.values():
            await store.close()

    run(scenario())
