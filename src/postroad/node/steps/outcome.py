"""What becomes of an outgoing message: the machine is asked, and its answer written down.

Every change of an outgoing message's state passes here: after an attempt, when a signal comes by
itself, when its time has come, when somebody resends, resumes or settles. One step of the store
each: fields, timer, journal, notice and the webhook's work together.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.steps.ebxml_order import given_up
from postroad.node.steps.exchanging import moved
from postroad.node.steps.hearing import Hearing, Said, noted, without_repeats
from postroad.node.steps.notifying import EVENTS, may_be_told, notification
from postroad.node.steps.partners import halt, stopped_with
from postroad.node.steps.sender_errors import is_told
from postroad.node.steps.split_outcome import (
    Following,
    await_receipts,
    close_fragments,
    following,
    following_rejection,
    settle_row,
    whole_left,
)
from postroad.node.steps.wsrm_states import rested
from postroad.reliability.awareness import MISSING_RECEIPT
from postroad.reliability.delivery import (
    AT_WORK,
    GIVEN_UP,
    KINDS,
    Decision,
    Input,
    Life,
    Stage,
    begun_anew,
    heard,
    settled,
)
from postroad.store.interface import Transaction
from postroad.store.records import WAITS, Message, Notice, Side, State, Stored, Work
from postroad.wire.ebxml import NONE

STAGES: Final = {State(stage.value): stage for stage in Stage}
STATES: Final = {stage: State(stage.value) for stage in Stage}
_PASSED: Final = (Stage.ACKNOWLEDGED, Stage.SENT)
_DOUBT: Final = {Stage.IN_DOUBT: MISSING_RECEIPT}
CODES: Final = {**_DOUBT, Stage.FAILED: "EBMS:0005", Stage.EXPIRED: "EBMS:0202"}
SAID: Final = {
    Stage.IN_DOUBT: "no receipt came in time",
    Stage.FAILED: "it could not be sent",
    Stage.EXPIRED: "its time was over before it could be sent",
    Stage.SUSPENDED: "no retry is left",
}
NOTICED: Final = (
    State.FAILED,
    State.EXPIRED,
    State.IN_DOUBT,
    State.SUSPENDED,
    State.SETTLED,
)
"""States of which an application without a webhook finds a notice."""
_ENDING: Final = (Input.ACKNOWLEDGED, Input.REFUSED, Input.LEFT, Input.UNIT_REFUSED)
"""What a signal can say that ends a message; told to come again, it comes again anyway."""
_FORWARDING: Final = {"in_doubt": "delivery_failed", "settled": None}
"""The journal's words for the end of a message that is carried for others, where they differ."""
_WAITS_BEHIND: Final = "; what is to follow in order waits until this is resent or settled"


class Done(Struct, frozen=True):
    """What was committed, for those who wait for it."""

    state: State
    peer: str | None = None
    detail: str | None = None
    partners_changed: bool = False


Keep = Callable[[bytes], Stored]


class Reason(Struct, frozen=True):
    """Why something changed, and who said so."""

    error_code: str | None = None
    detail: str | None = None
    peer: str | None = None
    answer: str = "delivered"
    """For what is settled: delivered, received or not_received."""


def life_of(message: Message) -> Life:
    """An outgoing message as the machine sees it."""
    return Life(
        STAGES[message.state],
        message.created_at,
        message.tries,
        message.unanswered,
        message.first_sent_at,
        message.last_sent_at,
    )


def keeps_lane(context: Context, message: Message, stage: Stage) -> bool:
    """Whether what is to follow waits for a message: until somebody resends, settles or resumes.

    Nobody does that for what is carried for others. What the next MSH took over keeps its place
    too, where a receipt of the To Party is to come.
    """
    if stage is Stage.SUSPENDED:
        return True
    if stage is Stage.SENT:
        return _waits(context, message)
    return stage is Stage.IN_DOUBT and message.side is Side.SENDING


def _waits(context: Context, message: Message) -> bool:
    """Whether what follows in its conversation waits for the receipt of the To Party.

    The next MSH has it, and may still fail to pass it on: then its number is given again.
    """
    if message.sequence_number is None or message.side is not Side.SENDING:
        return False
    match = context.in_force.match(message.pmode, message.leg)
    agreed = match.leg.ebxml if match is not None else None
    return agreed is not None and agreed.delivery_receipt != NONE and agreed.profile != "rm001"


def apply(
    context: Context,
    tx: Transaction,
    message: Message,
    decision: Decision,
    now: datetime,
    reason: Reason,
    timer: int | None,
    note: Callable[[], None] | None = None,
    owner: str | None = None,
    *,
    alone: bool = True,
    **more: Any,
) -> bool:
    """Write down what follows; False, and nothing done, when the message is not as it was.

    `timer` is the work that waits for the message, if there is any, and `owner` who claimed it;
    not `alone`: for others too, so that it stays as it is. `note` writes down what happened before.
    """
    life = decision.life
    stage = life.stage
    state = STATES[stage]
    code, detail = _why(stage, reason)
    lane = None
    if timer is not None and keeps_lane(context, message, stage):
        waiting = tx.work(timer)
        lane = waiting.lane if waiting is not None else None
    if lane is not None and stage is Stage.IN_DOUBT:
        detail = f"{detail}{_WAITS_BEHIND}"
    stays = decision.due is not None or lane is not None or stage is Stage.SUSPENDED
    if not tx.change_message(
        message.side,
        message.message_id,
        (message.state,),
        state=state,
        updated_at=now,
        tries=life.tries,
        unanswered=life.unanswered,
        first_sent_at=life.first_sent_at,
        last_sent_at=life.last_sent_at,
        due_at=decision.due,
        decided_by=decision.decided_by,
        timer=timer if stays else None,
        error_code=code,
        detail=detail,
        **more,
    ):
        return False
    if note is not None:
        note()
    if message.channel is not None:
        _offer(tx, message, decision)
    if timer is not None and alone:
        if stays:
            tx.postpone_work(timer, decision.due, owner=owner)
            if decision.ends_at is not None or lane is not None:
                tx.expire_work(timer, decision.ends_at)
        else:
            tx.finish_work(timer, owner)
    if decision.halted:
        for name in stopped_with(context, message):
            halt(context, tx, name, now, detail or "")
    if state is not message.state or (stage is Stage.SETTLED and detail != message.detail):
        _tell(context, tx, message, decision, now, Reason(code, detail, reason.peer, reason.answer))
    if message.part_of is not None:
        _follow(context, tx, message, decision, now, Reason(code, detail, reason.peer))
    elif message.split is not None and stage not in AT_WORK and stage is not Stage.SUSPENDED:
        close_fragments(tx, message, now)
    return True


def _follow(
    context: Context,
    tx: Transaction,
    fragment: Message,
    decision: Decision,
    now: datetime,
    reason: Reason,
) -> None:
    """What became of a fragment moves the message that it is a part of."""
    life = decision.life
    whole_left(tx, fragment, life, now)
    if life.stage in AT_WORK:
        return
    found = following(context, tx, fragment, life.stage, reason.detail)
    _follow_all(context, tx, found, now, reason)
    await_receipts(context, tx, fragment, now)


def _follow_all(
    context: Context, tx: Transaction, found: Sequence[Following], now: datetime, reason: Reason
) -> None:
    """A message, or all units of a bundle, after what became of a fragment."""
    for one in found:
        follows = heard(life_of(one.whole), one.said)
        if follows is None:
            continue
        why = Reason(reason.error_code, one.detail, reason.peer)
        whole, alone = one.whole, not shares_row(one.whole)
        apply(context, tx, whole, follows, now, why, whole.timer, alone=alone)
    for row in {one.whole.timer for one in found if shares_row(one.whole)}:
        if row is not None:
            settle_row(tx, row)


def _group_refused(
    context: Context, tx: Transaction, fragment: Message, now: datetime, reason: Reason
) -> None:
    """A fragment was taken, and later its group rejected: its message cannot be joined any more.

    Errors about a group (EBMS:0051, 0053, 0055) name a fragment that was acknowledged before.
    """
    _follow_all(context, tx, following_rejection(tx, fragment, reason.detail), now, reason)


def _offer(tx: Transaction, message: Message, decision: Decision) -> None:
    """What is at work is offered again when it is due, what is at rest no more."""
    if decision.life.stage not in AT_WORK:
        tx.remove_offer(message.message_id)
    elif decision.due is not None:
        tx.postpone_offer(message.message_id, decision.due)


def _why(stage: Stage, reason: Reason) -> tuple[str | None, str | None]:
    """Code and sentence of a stage: what is well needs none."""
    if stage in (Stage.ACKNOWLEDGED, Stage.SENT):
        return None, None
    if stage is Stage.SETTLED:
        return None, reason.answer
    if reason.detail is not None:
        return reason.error_code or _DOUBT.get(stage), reason.detail
    return reason.error_code or CODES.get(stage), SAID.get(stage)


def _tell(
    context: Context,
    tx: Transaction,
    message: Message,
    decision: Decision,
    now: datetime,
    reason: Reason,
) -> None:
    """The journal, the application's notices and its webhook, where the message is at rest."""
    stage = decision.life.stage
    state = STATES[stage]
    closing = decision.closing
    if message.side is Side.FORWARDING and closing is not None:
        closing = _FORWARDING.get(closing, closing)
    if _is_refusal_unheard(tx, message, decision, reason):
        tx.record(
            (
                about(
                    message,
                    "error_received",
                    now,
                    error_code=reason.error_code,
                    severity="failure",
                    detail=reason.detail,
                    peer=reason.peer,
                ),
            )
        )
    if closing is not None:
        failure = stage in GIVEN_UP
        tx.record(
            (
                about(
                    message,
                    closing,
                    now,
                    error_code=reason.error_code,
                    severity="failure" if failure else None,
                    detail=reason.detail,
                    peer=reason.peer,
                ),
            )
        )
    never_left = decision.life.first_sent_at is None
    given_up(context, tx, message, stage, reason.answer == "not_received", never_left, now)
    if stage in GIVEN_UP or stage is Stage.SETTLED:
        rested(tx, message, now)
    if message.side is Side.FORWARDING:
        _passed_on(tx, message, stage, now)
        if stage in _PASSED or (stage in GIVEN_UP and message.best_effort):
            drop_carried(context, tx, message)
        return
    if message.part_of is not None:
        # The application knows nothing of fragments.
        return
    if stage in GIVEN_UP and is_told(context, message, reason.error_code):
        tx.add_work(Work("complain", message.message_id, now))
    # Who was told of a failure before somebody began anew is told of the good end too.
    good_end = stage is Stage.ACKNOWLEDGED and message.anew
    if (good_end or state in NOTICED) and may_be_told(context, message, state):
        tx.add_notice(
            Notice(
                message.message_id,
                now,
                EVENTS[state],
                state,
                KINDS.get(stage),
                reason.error_code,
                reason.detail,
            )
        )
    for work in notification(context, message, state, now):
        tx.add_work(work)


def _is_refusal_unheard(
    tx: Transaction, message: Message, decision: Decision, reason: Reason
) -> bool:
    """Return whether the partner refused all that left without an error that the journal has.

    It answered HTTP 4xx or a SOAP fault, or refused a fragment. Without an event that says so, who
    has only the journal takes a certain failure for doubt.
    """
    life = decision.life
    return (
        life.stage is Stage.FAILED
        and message.side is Side.SENDING
        and life.first_sent_at is not None
        and not life.unanswered
        and reason.peer is not None
        and not any(
            one.kind == "error" and one.incoming and one.valid
            for one in tx.signals(message.side, message.message_id)
        )
    )


def waiting_name(message_id: str) -> str:
    """Under which an acknowledgment is remembered that waits until its message was passed on."""
    return f"acknowledge:{message_id}"


def drop_carried(context: Context, tx: Transaction, message: Message) -> None:
    """Drop the contents of a message of a stranger that was carried, and is needed no more."""
    if not context.in_force.routing.file.quotas.drops(message.accounts):
        return
    found = tx.message(message.side, message.message_id)
    if found is None or found.state in WAITS:
        return
    for one in (found.envelope, *(part.stored for part in found.parts)):
        if one is not None:
            tx.drop(one)
    tx.change_message(found.side, found.message_id, (found.state,), envelope=None, parts=())


def _passed_on(tx: Transaction, message: Message, stage: Stage, now: datetime) -> None:
    """Who brought a message learns that it was passed on, who sent it that it could not be."""
    waits = tx.state(waiting_name(message.message_id))
    if waits is not None and stage in (Stage.ACKNOWLEDGED, Stage.SENT, *GIVEN_UP):
        if stage in GIVEN_UP:
            tx.finish_work(int(waits))
        else:
            tx.wake_work(int(waits), now)
        tx.set_state(waiting_name(message.message_id), None, now)
    if stage in GIVEN_UP and not message.best_effort:
        kind = "report" if message.route is None else "inform"
        tx.add_work(Work(kind, message.message_id, now))


def answered(
    context: Context,
    tx: Transaction,
    message: Message,
    hearing: Hearing,
    now: datetime,
    peer: str | None,
    keep: Keep | None = None,
) -> State | None:
    """A signal that came by itself: what it says is written down, and what follows from it."""
    said = hearing.said
    again = said is not None and said.input is Input.REFUSED and is_known(tx, message, said)
    doubted = any(one.problems for one in hearing.heard)
    ends = said is not None and said.input in _ENDING and message.state is State.WAITING
    is_new = ends and not doubted
    kept = hearing if is_new else without_repeats(context, tx, message, hearing, now, peer)
    noted(tx, message, kept, now, peer, keep)
    moved(context, tx, message, hearing, now)
    return None if said is None or again else ended(context, tx, message, said, now, peer)


def ended(
    context: Context, tx: Transaction, message: Message, said: Said, now: datetime, peer: str | None
) -> State | None:
    """What follows for a message from what was said; None: nothing."""
    found = tx.message(message.side, message.message_id)
    if found is None or said.input not in _ENDING:
        return None
    if said.input is Input.REFUSED and _was_acknowledged_by_envelope_only(tx, found):
        said = changed(said, input=Input.UNIT_REFUSED)
    under_way = _is_under_way(tx, found)
    decision = heard(life_of(found), said.input, under_way=under_way, attempts=found.attempts)
    if decision is not None and said.doubts and decision.life.stage is Stage.FAILED:
        decision = Decision(changed(decision.life, stage=Stage.IN_DOUBT))
    reason = Reason(said.error_code, said.detail, peer)
    if decision is None:
        if said.input is Input.REFUSED and found.part_of is not None:
            _group_refused(context, tx, found, now, reason)
        return None
    # Who is sending a copy writes down that attempt, and ends the work.
    timer = None if under_way else found.timer
    apply(context, tx, found, decision, now, reason, timer, alone=not shares_row(found))
    return STATES[decision.life.stage]


def shares_row(message: Message) -> bool:
    """Whether the row that sends it is that of a bundle; in a channel each unit has its own.

    Fragments of a bundle are written by one row in any case.
    """
    return message.bundle is not None and (message.channel is None or message.split is not None)


def is_known(tx: Transaction, message: Message, said: Said) -> bool:
    """Whether an error was heard before: told twice it still answers one copy."""
    heard_before = tx.signals(message.side, message.message_id)
    return any(one.signal_id == said.signal_id for one in heard_before)


def _was_acknowledged_by_envelope_only(tx: Transaction, message: Message) -> bool:
    """Whether all that was heard of a unit is that the envelope of its bundle came.

    An acknowledgement may be quicker than the error about one of the units.
    """
    if message.state is not State.ACKNOWLEDGED or message.bundle is None:
        return False
    signals = tx.signals(message.side, message.message_id)
    kinds = {one.kind for one in signals if one.incoming and one.valid}
    return "acknowledgment" in kinds and "receipt" not in kinds


def is_refused_unit(tx: Transaction, message: Message) -> bool:
    """Return whether a unit of a bundle was given up and the partner refused it by an error.

    An acknowledgement of the number of its envelope then says nothing about the unit. Warnings,
    errors that ask to try later, and faults about the sequence are no refusal.
    """
    given_up = message.bundle is not None and STAGES.get(message.state) in GIVEN_UP
    return given_up and any(
        signal.incoming and signal.refusal
        for signal in tx.signals(message.side, message.message_id)
    )


def _is_under_way(tx: Transaction, message: Message) -> bool:
    """Whether somebody may be sending a copy right now."""
    if message.state is State.READY:
        return message.channel is None
    waiting = tx.work(message.timer) if message.timer is not None else None
    return waiting is not None and waiting.owner is not None


def unpackable(
    context: Context,
    tx: Transaction,
    message: Message,
    work: Work,
    detail: str,
    now: datetime,
    code: str | None = None,
) -> None:
    """It cannot be packaged as it is: nothing of it ever leaves."""
    if not fail(context, tx, message, now, Reason(code, detail), work.id, work.owner):
        tx.finish_work(work.id, work.owner)


def fail(
    context: Context,
    tx: Transaction,
    message: Message,
    now: datetime,
    reason: Reason,
    timer: int | None,
    owner: str | None = None,
) -> bool:
    """A message that cannot be sent has failed; False when it is not as it was."""
    decision = Decision(changed(life_of(message), stage=Stage.FAILED))
    return apply(context, tx, message, decision, now, reason, timer, owner=owner)


def begin_anew(tx: Transaction, message: Message, given: Input, now: datetime, work: Work) -> bool:
    """Resend or resume: due at once, with all its retries; False when there is nothing to.

    `work` sends it where none is left of its own.
    """
    decision = begun_anew(life_of(message), given, now)
    if decision is None:
        return False
    timer = message.timer
    if timer is None or tx.work(timer) is None:
        if message.state is State.READY:
            return False
        timer = tx.add_work(changed(work, due_at=now))
    elif not tx.wake_work(timer, now):
        return False
    if message.channel is not None:
        # What is with somebody who pulled it is offered now, in its old place.
        tx.postpone_offer(message.message_id, now)
    life = decision.life
    return tx.change_message(
        message.side,
        message.message_id,
        (message.state,),
        state=STATES[life.stage],
        tries=life.tries,
        updated_at=now,
        due_at=now,
        decided_by=None,
        timer=timer,
        transport=0,
        anew=message.anew or message.state in NOTICED,
        anew_at=now,
    )


def settle(
    context: Context, tx: Transaction, message: Message, answer: str, who: str, now: datetime
) -> bool:
    """Somebody says what became of a message that was given up; False when it is no question."""
    decision = settled(life_of(message))
    if decision is None:
        return False
    reason, alone = Reason(None, None, who, answer), not shares_row(message)
    return apply(context, tx, message, decision, now, reason, message.timer, alone=alone)
