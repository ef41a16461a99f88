"""Attempts to send a message: what follows from each, and when there are no more.

One step of the store each, as `node.steps.outcome` writes it down.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy, is_used_up
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, signed
from postroad.node.settings.in_force import Sending
from postroad.node.steps.exchanging import moved
from postroad.node.steps.hearing import Hearing, noted
from postroad.node.steps.outcome import (
    CODES,
    SAID,
    STAGES,
    STATES,
    Done,
    Keep,
    Reason,
    apply,
    is_known,
    is_refused_unit,
    keeps_lane,
    life_of,
    shares_row,
    waiting_name,
)
from postroad.node.steps.partners import not_reached, note_unsent, reached, suspension_over
from postroad.node.steps.split_outcome import whole_left
from postroad.node.steps.wsrm_states import leave
from postroad.reliability.delivery import (
    AT_WORK,
    Decision,
    Input,
    Stage,
    attempted,
    heard,
    interrupted,
    woken,
)
from postroad.reliability.schedule import ONCE
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, State, Work
from postroad.transport.http_outgoing import Reply, TransportFailure

Step = Callable[[Transaction], Done | None]
_OVERLOADED: Final = (429, 503)
"""HTTP statuses by which a partner says that it has too much to do."""


_PROTOCOL_ERRORS: Final = (Input.NOT_SENT, Input.TURNED_AWAY)
"""What is a Communication Protocol Error of draft 001, besides that nobody answers."""


class Outcome(Struct, frozen=True):
    """What became of an attempt."""

    result: Input
    hearing: Hearing | None = None
    error_code: str | None = None
    detail: str | None = None
    peer: str | None = None
    wire_bytes: int = 0
    reached: bool = True
    """Whether somebody was at the other end."""
    in_time: bool | None = None
    """Whether it answered in time, and not that it is overloaded; None: that is not known."""


def is_in_time(ended: Reply | TransportFailure) -> bool | None:
    """Return what the end of an exchange says about how busy the partner is."""
    if isinstance(ended, Reply):
        return ended.status not in _OVERLOADED
    return False if ended.kind == "timeout" else None


class Attempt(Struct, frozen=True):
    """One attempt to send a message, and what became of it."""

    message: Message
    work: Work
    sending: Sending | None
    """None: it is sent without a P-Mode, or its P-Mode is gone."""
    outcome: Outcome
    began: datetime
    hope: bool = False
    """A receipt is not the response, and may come later."""
    probe: bool = False
    policy: Policy | None = None
    """For what is sent without a P-Mode."""


class AfterAttempt:
    """The step after an attempt.

    For a unit of a bundle, not `alone`, the work is not touched. It `counts` whether the partner
    was reached.
    """

    def __init__(
        self, context: Context, tried: Attempt, *, alone: bool = True, counts: bool = True
    ) -> None:
        self._context = context
        self._tried = tried
        self._alone = alone
        self._counts = counts
        self._now, self._dice = context.clock(), context.dice()

    def __call__(self, tx: Transaction, keep: Keep | None = None) -> Done | None:
        """`keep` keeps the answer, which units of a bundle have in common."""
        context, tried = self._context, self._tried
        message = tried.message
        changed_partner = self._counts and _partner(context, tx, tried, self._now)
        result = _believed(tx, tried)
        done = self._done(tx, message, result, keep)
        if done is None:
            fresh = tx.message(message.side, message.message_id)
            if fresh is None:
                if self._alone:
                    tx.finish_work(tried.work.id, tried.work.owner)
                return None
            done = self._done(tx, on_next_way(fresh, tried.sending), result, keep)
            assert done is not None
        if result is Input.ACKNOWLEDGED and _is_of_number(tried):
            leave(tx, message.bundle or message.message_id, self._now)
        return changed(done, partners_changed=True) if changed_partner else done

    def _done(
        self, tx: Transaction, found: Message, result: Input, keep: Keep | None
    ) -> Done | None:
        """What follows if the message is still as it was found."""
        context, tried, now = self._context, self._tried, self._now
        outcome, work = tried.outcome, tried.work
        number = found.attempts + 1
        decision = self._decide(found, result)
        if decision is not None and decision.due is not None and _is_linked(tried):
            decision = self._as_told(tx, found, decision)

        def note() -> None:
            tx.record((attempt_event(tried, number),))
            if outcome.hearing is not None:
                noted(tx, tried.message, outcome.hearing, now, outcome.peer, keep)
                moved(context, tx, tried.message, outcome.hearing, now)

        fields: dict[str, Any] = {
            "attempts_were": found.attempts,
            "attempts": number,
            "wire_bytes": outcome.wire_bytes,
            "transport": found.transport,
        }
        if decision is None:
            if not tx.change_message(found.side, found.message_id, (found.state,), **fields):
                return None
            note()
            if self._alone:
                _leave(context, tx, found, work)
            return Done(found.state, outcome.peer, outcome.detail)
        reason = Reason(outcome.error_code, outcome.detail, outcome.peer)
        args = (context, tx, found, decision, now, reason, work.id, note, work.owner)
        if not apply(*args, alone=self._alone, **fields):
            return None
        if not found.tries and _is_not_forwarded(tx, tried, decision):
            tx.add_work(Work("report", found.message_id, now))
        return Done(STATES[decision.life.stage], outcome.peer, outcome.detail, decision.halted)

    def _as_told(self, tx: Transaction, found: Message, decision: Decision) -> Decision:
        """What follows if an error message of the link came before the response to this attempt."""
        fresh = tx.message(found.side, found.message_id)
        if fresh is None or fresh.due_at is None or fresh.due_at in (found.due_at, decision.due):
            return decision
        return changed(decision, due=max(fresh.due_at, self._now))

    def _decide(self, found: Message, result: Input) -> Decision | None:
        tried, life = self._tried, life_of(found)
        if life.stage not in AT_WORK:
            # It came to rest while this copy was under way.
            return heard(life, result)
        out = result is Input.UNANSWERED or life.unanswered > 0
        return attempted(
            life,
            result,
            _policy(tried),
            began=tried.began,
            now=self._now,
            dice=self._dice,
            hope=(tried.hope and out) or _ways_left(found, tried.sending) > 0,
            probe=tried.probe and not _is_linked(tried),
        )


def _is_linked(tried: Attempt) -> bool:
    return tried.sending is not None and tried.sending.linked


def _is_not_forwarded(tx: Transaction, tried: Attempt, decision: Decision) -> bool:
    """Whether a Router has to tell the previous Sender that it cannot forward its message now.

    That is not acknowledged before the next one has acknowledged it. [RM001-4.3-01]
    """
    message = tried.message
    waits = message.side is Side.FORWARDING and _is_linked(tried) and _is_protocol_error(tried)
    at_work = decision.life.stage in (*AT_WORK, Stage.SUSPENDED)
    return waits and at_work and tx.state(waiting_name(message.message_id)) is not None


def _is_protocol_error(tried: Attempt) -> bool:
    return not tried.outcome.reached or tried.outcome.result in _PROTOCOL_ERRORS


def _policy(tried: Attempt) -> Policy:
    """When it is sent again.

    Over a link an error of the transport is followed by RetryInterval, also the first time; Timeout
    is for the answer to what was taken. [RM001-2.6.3-02]
    """
    policy = tried.policy or (tried.sending.policy if tried.sending is not None else ONCE)
    if not _is_linked(tried) or not _is_protocol_error(tried):
        return policy
    return changed(policy, timeout=policy.interval)


def attempt_event(tried: Attempt, number: int) -> Event:
    """What the journal says of an attempt."""
    message, outcome, began = tried.message, tried.outcome, tried.began
    if outcome.result is Input.NOT_SENT:
        more = {"peer": outcome.peer, "detail": outcome.detail}
        return about(message, "send_failed", began, attempt=number, **more)
    return about(
        message,
        left_as(message, number),
        began,
        attempt=number,
        peer=outcome.peer,
        envelope=message.bundle or message.message_id,
        wire_bytes=outcome.wire_bytes,
        evidence=signed(message),
    )


def left_as(message: Message, number: int) -> str:
    """What the journal calls an attempt in which something left."""
    if message.side is Side.FORWARDING:
        return "forwarded"
    return "sent" if number == 1 else "resent"


def on_next_way(message: Message, sending: Sending | None) -> Message:
    """A message whose retries over one transport are used up goes over the next one.

    Retries count for each of them. [MS098-10.2.7-01] [RM000-1.3.1.4-05]
    """
    if sending is None or not _ways_left(message, sending):
        return message
    if life_of(message).stage not in AT_WORK or not is_used_up(sending.policy, message.tries):
        return message
    return changed(message, transport=message.transport + 1, tries=0)


def _ways_left(message: Message, sending: Sending | None) -> int:
    """How many further addresses of the partner there are."""
    return 0 if sending is None else max(len(sending.addresses) - message.transport - 1, 0)


def _believed(tx: Transaction, tried: Attempt) -> Input:
    """What came of an attempt; an error that was heard before is no answer to this copy.

    Nor is the acknowledgement of its envelope one for a unit that was refused meanwhile.
    """
    message, outcome = tried.message, tried.outcome
    if outcome.result is Input.ACKNOWLEDGED and _is_of_number(tried):
        found = tx.message(message.side, message.message_id)
        refused = found is not None and is_refused_unit(tx, found)
        return Input.UNANSWERED if refused else outcome.result
    if outcome.result not in (Input.REFUSED, Input.TURNED_AWAY) or outcome.hearing is None:
        return outcome.result
    said = outcome.hearing.said
    again = said is not None and said.by_error and is_known(tx, message, said)
    return Input.UNANSWERED if again else outcome.result


def _is_of_number(tried: Attempt) -> bool:
    """Whether what was heard is the acknowledgement of a number, and so about a whole envelope."""
    hearing, sending = tried.outcome.hearing, tried.sending
    if hearing is None or sending is None or sending.reliable is None:
        return False
    return any(one.kind == "acknowledgment" for one in hearing.heard)


def _leave(context: Context, tx: Transaction, message: Message, work: Work) -> None:
    """The work of a message at rest: done, unless it keeps others in its lane from passing."""
    if work.lane is None or not keeps_lane(context, message, STAGES[message.state]):
        tx.finish_work(work.id, work.owner)
        return
    tx.postpone_work(work.id, None, owner=work.owner)
    tx.expire_work(work.id, None)
    tx.change_message(message.side, message.message_id, (message.state,), timer=work.id)


def _partner(context: Context, tx: Transaction, tried: Attempt, now: datetime) -> bool:
    """Whether the partner was there changes how it stands with it."""
    name, outcome = tried.work.partner, tried.outcome
    if _is_linked(tried):
        # Its retries decide when a Receiver is suspended, and an error message may do it now.
        return tried.probe and suspension_over(context, tx, name, now)
    if not outcome.reached:
        not_reached(context, tx, name, now, outcome.detail or "", outcome.peer)
        if tried.probe and outcome.result is Input.NOT_SENT:
            note_unsent(tx, name, tried.work.id, now)
        return True
    if not context.is_well(name) and outcome.result is not Input.NOT_SENT:
        reached(context, tx, name, now)
        return True
    return False


def due(message: Message, policy: Policy, now: datetime) -> Decision | None:
    """Whether its time is over; None: it is to be sent."""
    return woken(life_of(message), policy, now)


def give_up(
    context: Context, message: Message, work: Work, decision: Decision, now: datetime
) -> Step:
    """The step that ends a message for want of retries or time."""
    stage = decision.life.stage
    said = SAID.get(stage, "")
    detail = f"{said}; at last: {message.detail}" if message.detail else said
    code = message.error_code if stage is Stage.FAILED else CODES.get(stage)
    reason = Reason(code, detail, message.peer)

    def step(tx: Transaction) -> Done | None:
        args = (context, tx, message, decision, now, reason, work.id)
        alone = not shares_row(message)
        if not apply(*args, owner=work.owner, alone=alone):
            if not alone:
                return None
            # A receipt came meanwhile, or somebody began anew.
            fresh = tx.message(message.side, message.message_id)
            if fresh is None:
                tx.finish_work(work.id, work.owner)
            elif life_of(fresh).stage not in AT_WORK:
                _leave(context, tx, fresh, work)
            else:
                tx.postpone_work(work.id, now, owner=work.owner)
            return None
        state = STATES[decision.life.stage]
        return Done(state, message.peer, message.detail, decision.halted)

    return step


def left_behind(
    context: Context,
    tx: Transaction,
    message: Message,
    work: Work,
    now: datetime,
    why: str = "the node stopped while it was sending",
) -> Message | None:
    """Nobody knows what came of an attempt: the journal says that it may have left.

    The message if it is to be sent again, by whoever has the work; None: it is at rest.
    """
    if message.part_of is not None and message.envelope is None:
        # A fragment that was not made yet.
        return message
    number = message.attempts + 1
    tx.record(
        (
            about(
                message,
                left_as(message, number),
                now,
                attempt=number,
                envelope=message.bundle or message.message_id,
                peer=message.peer,
                detail=why,
                evidence=signed(message),
            ),
        )
    )
    if message.state not in (State.READY, State.WAITING):
        tx.change_message(message.side, message.message_id, (message.state,), attempts=number)
        if message.bundle is None:
            _leave(context, tx, message, work)
        return None
    life = interrupted(life_of(message), min(work.due_at, now))
    tx.change_message(
        message.side,
        message.message_id,
        (message.state,),
        state=STATES[life.stage],
        attempts=number,
        unanswered=life.unanswered,
        first_sent_at=life.first_sent_at,
        last_sent_at=life.last_sent_at,
        timer=work.id,
    )
    if message.part_of is not None:
        whole_left(tx, message, life, now)
    return tx.message(message.side, message.message_id)
