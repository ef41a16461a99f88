"""What becomes of a message that went in fragments.

Each fragment has its own life. The message follows: it left when the first of them did; it failed
when one of them did, because it cannot be joined any more; when all arrived its own receipt is
waited for, where one was agreed on. When it comes to rest, so do the fragments that are left.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.splitting import USUAL_INTERVAL
from postroad.agreement.waiting import Policy
from postroad.node.context import Context
from postroad.node.fragmenting import AT_WORK
from postroad.node.journaling import about, signed
from postroad.node.service import Refused, Transfer
from postroad.reliability.delivery import Input, Life, Stage
from postroad.reliability.schedule import ONCE
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, Split, State, Work

AT_ONCE: Final = 200
"""Fragments that one step writes or ends: more would hold up the others."""
_ARRIVED: Final = (Stage.ACKNOWLEDGED, Stage.SETTLED, Stage.SENT)
ARRIVED: Final = (State.ACKNOWLEDGED, State.SETTLED, State.SENT)
_UNFINISHED: Final = tuple(state for state in State if state not in ARRIVED)
_NEVER_LEFT: Final = (State.READY, State.FAILED, State.EXPIRED)
_FOLLOWS: Final = {
    Stage.FAILED: Input.REFUSED,
    Stage.EXPIRED: Input.REFUSED,
    Stage.IN_DOUBT: Input.OUT_OF_RETRIES,
    Stage.SUSPENDED: Input.HALTED,
}
"""What the end of a fragment is for its message."""
_ENDS: Final = {
    State.ACKNOWLEDGED: ("settled", "delivered"),
    State.FAILED: ("delivery_failed", "the message that it is a part of was given up"),
    State.IN_DOUBT: ("in_doubt", "the message that it is a part of was given up"),
}


class Following(Struct, frozen=True):
    """What follows for a message from what happened to one of its fragments."""

    whole: Message
    said: Input
    detail: str | None = None


def whole_left(tx: Transaction, fragment: Message, life: Life, now: datetime) -> None:
    """The first fragment of a message left, and so did the message."""
    whole = _whole(tx, fragment)
    if whole is None or whole.split is None or whole.split.left or life.first_sent_at is None:
        return
    number, at = whole.attempts + 1, life.last_sent_at or life.first_sent_at
    tx.change_message(
        Side.SENDING,
        whole.message_id,
        (whole.state,),
        state=State.WAITING if whole.state is State.READY else whole.state,
        split=changed(whole.split, left=True),
        attempts=number,
        unanswered=1,
        first_sent_at=whole.first_sent_at or at,
        last_sent_at=at,
        updated_at=now,
    )
    event = "sent" if number == 1 else "resent"
    said = {"attempt": number, "envelope": fragment.message_id, "evidence": signed(whole)}
    tx.record((about(whole, event, at, **said),))


def following(
    context: Context, tx: Transaction, fragment: Message, stage: Stage, detail: str | None
) -> Following | None:
    """What follows for the message from the stage that a fragment came to; None: nothing yet."""
    whole = _whole(tx, fragment)
    if whole is None or whole.split is None:
        return None
    if stage in _FOLLOWS:
        said = f"fragment {fragment.fragment} of {fragment.fragments}: {detail or stage.value}"
        never_left = stage is Stage.EXPIRED and not whole.split.left
        return Following(whole, Input.OUT_OF_TIME if never_left else _FOLLOWS[stage], said)
    if stage not in _ARRIVED or whole.split.written < whole.split.count:
        return None
    if tx.any_fragment(Side.SENDING, whole.message_id, _UNFINISHED):
        return None
    if _terms(context, whole)[0]:
        return None
    sent = tx.any_fragment(Side.SENDING, whole.message_id, (State.SENT,))
    return Following(whole, Input.LEFT if sent else Input.ACKNOWLEDGED)


def following_rejection(tx: Transaction, fragment: Message, detail: str | None) -> Following | None:
    """What follows for the message when its group is rejected after this fragment arrived."""
    whole = _whole(tx, fragment)
    if whole is None or whole.split is None or fragment.state not in ARRIVED:
        return None
    if whole.split.written < (fragment.fragment or 0):
        # It is of an earlier group.
        return None
    said = f"the group of its fragments was rejected: {detail}"
    return Following(whole, Input.REFUSED, said)


def await_receipt(context: Context, tx: Transaction, fragment: Message, now: datetime) -> None:
    """Where all fragments arrived, the receipt for the whole has its time from now on."""
    whole = _whole(tx, fragment)
    if whole is None or whole.split is None or whole.due_at is not None:
        return
    if whole.split.written < whole.split.count:
        return
    if tx.any_fragment(Side.SENDING, whole.message_id, _UNFINISHED):
        return
    awaits, policy, interval = _terms(context, whole)
    if not awaits:
        return
    due = now + interval + policy.timeout
    tx.change_message(
        Side.SENDING, whole.message_id, (whole.state,), due_at=due, decided_by=due, updated_at=now
    )
    if whole.timer is not None:
        tx.postpone_work(whole.timer, due)


def close_fragments(
    tx: Transaction, whole: Message, stage: Stage, now: datetime, after: int = 0
) -> None:
    """Nothing more is sent of a message at rest: a few fragments now, the others as work."""
    found = tx.fragment_messages(Side.SENDING, whole.message_id, after, AT_ONCE)
    for one in found:
        if one.state in AT_WORK:
            _close(tx, one, stage, now)
    if len(found) == AT_ONCE:
        cursor = str(found[-1].key).encode()
        tx.add_work(Work("split", whole.message_id, now, cursor))


def _close(tx: Transaction, fragment: Message, stage: Stage, now: datetime) -> None:
    state = State.IN_DOUBT if fragment.unanswered else State.FAILED
    if stage in _ARRIVED:
        state = State.ACKNOWLEDGED
    event, detail = _ENDS[state]
    tx.change_message(
        Side.SENDING,
        fragment.message_id,
        (fragment.state,),
        state=state,
        due_at=None,
        decided_by=None,
        timer=None,
        detail=None if state is State.ACKNOWLEDGED else detail,
        updated_at=now,
    )
    if fragment.timer is not None:
        tx.finish_work(fragment.timer)
    if fragment.channel is not None:
        tx.remove_offer(fragment.message_id)
    tx.record((about(fragment, event, now, detail=detail),))


def transfer_of(cut: Split, states: Mapping[State, int]) -> Transfer:
    """How far a message is, from the states of its fragments."""
    never = sum(states.get(one, 0) for one in _NEVER_LEFT)
    arrived = sum(states.get(one, 0) for one in ARRIVED)
    return Transfer(
        cut.count,
        sum(states.values()) - never,
        arrived,
        cut.size,
        cut.size if arrived == cut.count else arrived * cut.fragment_size,
    )


def _whole(tx: Transaction, fragment: Message) -> Message | None:
    """The message of a fragment, as long as something can follow for it."""
    found = tx.message(Side.SENDING, fragment.part_of or "")
    return found if found is not None and found.state in (*AT_WORK, State.SENT) else None


def _terms(context: Context, whole: Message) -> tuple[bool, Policy, timedelta]:
    """Whether a receipt was agreed on, when it is sent again, and how long joining may take."""
    try:
        sending = context.in_force.sending_of(whole)
    except Refused:
        # Without its P-Mode nobody believes a receipt: what is known is that all arrived.
        return False, ONCE, USUAL_INTERVAL
    terms = sending.splitting
    interval = terms.join_interval if terms is not None else USUAL_INTERVAL
    return sending.awaits, sending.policy, interval
