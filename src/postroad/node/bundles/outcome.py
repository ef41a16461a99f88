"""What becomes of the units of a bundle that was sent: each has its own life, one row sends all.

The row stays as long as a unit needs it: `Message.timer` names it as long as that is so.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from postroad.msh.answers import sent_messages
from postroad.msh.bundle_rules import BUNDLING_ERROR
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.steps.attempts import (
    AfterAttempt,
    Attempt,
    Outcome,
    Step,
    due,
    give_up,
    left_behind,
)
from postroad.node.steps.bundle_rows import settle_row, units_of
from postroad.node.steps.good_end import GoodEnd, is_good
from postroad.node.steps.hearing import Said
from postroad.node.steps.outcome import Done, ended
from postroad.node.steps.sharing import Shared
from postroad.store.interface import Transaction
from postroad.store.records import Message, State, Work
from postroad.wire.content import read_all

_AT_WORK: Final = (State.READY, State.WAITING, State.SUSPENDED)
_AT_REST: Final = (State.ACKNOWLEDGED, State.SENT, State.FAILED)
"""Nobody waits for what is so."""


def unit_ids(context: Context, message: Message) -> tuple[str, ...]:
    """The units of the bundle that a message is in, the primary first."""
    assert message.envelope is not None
    kept = read_all(context.store.content(message.envelope), message.envelope.size)
    return tuple(sent_messages(kept, context.limits))


def attempt_all(
    context: Context,
    units: Sequence[Message],
    work: Work,
    sending: Sending | None,
    outcomes: Sequence[Outcome],
    began: datetime,
    hope: bool,
    probe: bool = False,
) -> Step:
    """The step after an attempt with a bundle, which counts for each of its units."""
    now = context.clock()
    tried = [
        Attempt(unit, work, sending, outcome, began, hope, probe)
        for unit, outcome in zip(units, outcomes, strict=True)
    ]

    def step(tx: Transaction) -> Done | None:
        all_good = all(is_good(context, one) for one in tried)
        if all_good and GoodEnd(context, tried, now).write(tx):
            tx.finish_work(work.id, work.owner)
            return Done(State.ACKNOWLEDGED, outcomes[0].peer)
        keep = Shared(tx).keep
        done = []
        for one in tried:
            # Whether the partner was there counts once.
            counts = one is tried[0]
            became = AfterAttempt(context, one, alone=False, counts=counts)(tx, keep)
            if became is not None:
                done.append(became)
        if len(done) == len(units) and all(one.state in _AT_REST for one in done):
            tx.finish_work(work.id, work.owner)
        else:
            settle_row(tx, units, work, sending)
        return done[0] if done else None

    return step


def give_up_all(
    context: Context, units: Sequence[Message], work: Work, sending: Sending, now: datetime
) -> Step:
    """The step that ends those units whose retries or time are over."""
    steps = []
    for unit in units:
        decision = due(unit, sending.policy, now) if unit.state in _AT_WORK else None
        if decision is not None:
            steps.append(give_up(context, unit, work, decision, now))

    def step(tx: Transaction) -> Done | None:
        done = [one for each in steps if (one := each(tx)) is not None]
        settle_row(tx, units, work, sending)
        return done[0] if done else None

    return step


def refused_whole(
    context: Context,
    tx: Transaction,
    others: Sequence[str],
    said: Said | None,
    now: datetime,
    peer: str | None,
) -> None:
    """EBMS:0030 about the primary unit means the others too. [P2-3.5-02]"""
    if said is not None and said.by_error and said.error_code == BUNDLING_ERROR:
        for unit in units_of(tx, others):
            ended(context, tx, unit, said, now, peer)


def bundle_left_behind(
    context: Context, tx: Transaction, message: Message, work: Work, now: datetime, why: str
) -> Message | None:
    """Nobody knows what came of an attempt with a bundle; None when all its units are at rest."""
    units = units_of(tx, unit_ids(context, message))
    found = [left_behind(context, tx, unit, work, now, why) for unit in units]
    left = [one for one in found if one is not None]
    if not left:
        tx.finish_work(work.id, work.owner)
        return None
    return tx.message(message.side, message.message_id)
