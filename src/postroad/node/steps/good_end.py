"""The good end: messages that each got their receipt in the response, all written at once.

What `steps.outcome` would write for each of them, where nothing about any of them is special: the
units of a bundle, and messages that were answered in the same moment.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace as changed

from postroad.node.base.context import Context
from postroad.node.steps.attempts import Attempt, attempt_event
from postroad.node.steps.hearing import Hearing, heard_events, heard_signal
from postroad.node.steps.notifying import notification
from postroad.node.steps.outcome import life_of
from postroad.reliability.delivery import Input, Life, attempted
from postroad.reliability.schedule import ONCE
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, State, Stored

_AT_WORK: Final = (State.READY, State.WAITING)


def is_good(context: Context, tried: Attempt) -> bool:
    """Whether a message was at work, and got one receipt that is believed; and no more."""
    message, outcome, hearing = tried.message, tried.outcome, tried.outcome.hearing
    return (
        outcome.result is Input.ACKNOWLEDGED
        and outcome.reached
        and hearing is not None
        and len(hearing.heard) == 1
        and hearing.heard[0].kind == "receipt"
        and not hearing.heard[0].problems
        and message.state in _AT_WORK
        and message.side is Side.SENDING
        and message.sequence_number is None
        and message.channel is None
        and message.part_of is None
        and message.split is None
        and not message.anew
        and context.is_well(tried.work.partner)
    )


class GoodEnd:
    """Messages that all came to a good end."""

    def __init__(self, context: Context, endings: Sequence[Attempt], now: datetime) -> None:
        self._context = context
        self._endings = endings
        self._now = now
        self._lives: dict[tuple[object, ...], Life] = {}

    def write(self, tx: Transaction) -> bool:
        """False, and nothing is written, where a message is not as it was."""
        pairs = [(one.message, self._ended(one)) for one in self._endings]
        if not tx.replace_messages(pairs):
            return False
        now, events = self._now, list[Event]()
        answers = self._answers(tx)
        for one in self._endings:
            message, outcome = one.message, one.outcome
            hearing = _hearing(one)
            stored = answers[hearing.envelope]
            (heard,) = hearing.heard
            tx.add_signal(heard_signal(message, heard, hearing, stored, now))
            events.append(attempt_event(one, message.attempts + 1))
            events += heard_events(message, heard, stored, now, outcome.peer)
            for work in notification(self._context, message, State.ACKNOWLEDGED, now):
                tx.add_work(work)
        tx.record(events)
        return True

    def _answers(self, tx: Transaction) -> dict[bytes, Stored]:
        """The envelopes that came, each kept once; the receipts of a bundle are in one."""
        kept = {}
        for envelope, owners in Counter([_hearing(one).envelope for one in self._endings]).items():
            kept[envelope] = tx.keep(envelope)
            if owners > 1:
                tx.share(kept[envelope], owners - 1)
        return kept

    def _ended(self, one: Attempt) -> Message:
        life, message = self._life(one), one.message
        return changed(
            message,
            state=State.ACKNOWLEDGED,
            updated_at=self._now,
            tries=life.tries,
            unanswered=life.unanswered,
            first_sent_at=life.first_sent_at,
            last_sent_at=life.last_sent_at,
            due_at=None,
            decided_by=None,
            timer=None,
            error_code=None,
            detail=None,
            attempts=message.attempts + 1,
            wire_bytes=one.outcome.wire_bytes,
        )

    def _life(self, one: Attempt) -> Life:
        """What the machine says; the same for messages that had the same life."""
        message = one.message
        before = (
            message.state,
            message.tries,
            message.unanswered,
            message.first_sent_at,
            message.last_sent_at,
            one.began,
        )
        known = self._lives.get(before)
        if known is None:
            # What is acknowledged is at rest, whatever was agreed on about sending it again.
            args = (life_of(message), Input.ACKNOWLEDGED, ONCE)
            known = attempted(*args, began=one.began, now=self._now).life
            self._lives[before] = known
        return known


def _hearing(one: Attempt) -> Hearing:
    assert one.outcome.hearing is not None
    return one.outcome.hearing
