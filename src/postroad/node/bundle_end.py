"""The good end of a bundle: every unit has its receipt, and all rows are written at once.

What `node.outcome` would write for each unit, where nothing about any of them is special.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy
from postroad.node.attempts import Outcome, attempt_event
from postroad.node.context import Context
from postroad.node.hearing import heard_events, heard_signal
from postroad.node.notifying import notification
from postroad.node.outcome import (
    life_of,
)
from postroad.reliability.delivery import Input, Life, attempted
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, State

_AT_WORK: Final = (State.READY, State.WAITING)


class GoodEnd:
    """All units of a bundle, acknowledged by one response."""

    def __init__(
        self,
        context: Context,
        units: Sequence[Message],
        outcomes: Sequence[Outcome],
        policy: Policy,
        began: datetime,
        now: datetime,
    ) -> None:
        self._context = context
        self._units = units
        self._outcomes = outcomes
        self._policy = policy
        self._began = began
        self._now = now
        self._lives: dict[tuple[object, ...], Life] = {}

    @property
    def is_for_all(self) -> bool:
        """Whether each unit was at work, and got one receipt that is believed."""
        unwell = self._context.unwell
        return all(
            outcome.result is Input.ACKNOWLEDGED
            and outcome.reached
            and outcome.hearing is not None
            and len(outcome.hearing.heard) == 1
            and outcome.hearing.heard[0].kind == "receipt"
            and not outcome.hearing.heard[0].problems
            and unit.state in _AT_WORK
            and unit.sequence_number is None
            and unit.channel is None
            and not unit.anew
            and unit.partner not in unwell
            for unit, outcome in zip(self._units, self._outcomes, strict=True)
        )

    def write(self, tx: Transaction) -> bool:
        """False, and nothing is written, where a unit is not as it was."""
        both = list(zip(self._units, self._outcomes, strict=True))
        if not tx.replace_messages([(unit, self._ended(unit, one)) for unit, one in both]):
            return False
        now, events = self._now, list[Event]()
        stored = None
        for unit, outcome in both:
            hearing = outcome.hearing
            assert hearing is not None
            stored = tx.keep(hearing.envelope) if stored is None else tx.share(stored)
            (heard,) = hearing.heard
            tx.add_signal(heard_signal(unit, heard, hearing, stored, now))
            events.append(attempt_event(unit, outcome, self._began, unit.attempts + 1))
            events += heard_events(unit, heard, stored, now, outcome.peer)
            for work in notification(self._context, unit, State.ACKNOWLEDGED, now):
                tx.add_work(work)
        tx.record(events)
        return True

    def _ended(self, unit: Message, outcome: Outcome) -> Message:
        life = self._life(unit)
        return changed(
            unit,
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
            attempts=unit.attempts + 1,
            wire_bytes=outcome.wire_bytes,
        )

    def _life(self, unit: Message) -> Life:
        """What the machine says; the same for units that had the same life."""
        before = (unit.state, unit.tries, unit.unanswered, unit.first_sent_at, unit.last_sent_at)
        known = self._lives.get(before)
        if known is None:
            acknowledged, began = Input.ACKNOWLEDGED, self._began
            args = (life_of(unit), acknowledged, self._policy)
            known = attempted(*args, began=began, now=self._now).life
            self._lives[before] = known
        return known
