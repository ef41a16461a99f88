"""What becomes of a message that went in fragments, or of the units of a bundle that did.

Each fragment has its own life. The message follows: it left when the first of them did; it failed
when one of them did, because it cannot be joined any more; when all arrived its own receipt is
waited for, where one was agreed on. When it comes to rest, so do the fragments that are left; those
of a bundle when its last unit does.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.splitting import USUAL_INTERVAL
from postroad.agreement.waiting import Policy
from postroad.msh.answers import wants_receipt
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, signed
from postroad.node.service import Refused, Transfer
from postroad.node.steps.split_units import AT_WORK, at_work, source_id, split_units, with_others
from postroad.reliability.delivery import Input, Life, Stage
from postroad.reliability.schedule import ONCE
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, Split, State, Work

AT_ONCE: Final = 200
"""Fragments that one step writes or ends: more would hold up the others."""
_ARRIVED: Final = (Stage.ACKNOWLEDGED, Stage.SETTLED, Stage.SENT)
ARRIVED: Final = (State.ACKNOWLEDGED, State.SETTLED, State.SENT)
_OPEN: Final = (*AT_WORK, State.SENT)
"""States in which something can follow from what becomes of a fragment."""
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
    """The first fragment of a message left, and so did the message, or all units of a bundle."""
    source = _source(tx, fragment)
    cut = source.split if source is not None else None
    if source is None or cut is None or life.first_sent_at is None:
        return
    if cut.left and source.detail is None:
        return
    units = with_others(tx, source)
    if cut.left:
        # What kept the other fragments from being sent is over.
        for one in _open(units):
            tx.change_message(Side.SENDING, one.message_id, (one.state,), detail=None)
        return
    if not _open(units):
        return
    at = life.last_sent_at or life.first_sent_at
    for one in units:
        number = one.attempts + 1
        fields: dict[str, Any] = {"attempts": number}
        if one.state in _OPEN:
            fields |= {
                "state": State.WAITING if one.state is State.READY else one.state,
                "unanswered": 1,
                "first_sent_at": one.first_sent_at or at,
                "last_sent_at": at,
                "detail": None,
                "updated_at": now,
            }
        if one is source:
            fields["split"] = changed(cut, left=True)
        tx.change_message(Side.SENDING, one.message_id, (one.state,), **fields)
        event = "sent" if number == 1 else "resent"
        said = {"attempt": number, "envelope": fragment.message_id, "evidence": signed(one)}
        tx.record((about(one, event, at, **said),))


def following(
    context: Context, tx: Transaction, fragment: Message, stage: Stage, detail: str | None
) -> list[Following]:
    """What follows from the stage that a fragment came to, for its message or for some units."""
    source = _source(tx, fragment)
    cut = source.split if source is not None else None
    if source is None or cut is None:
        return []
    if stage in _FOLLOWS:
        of = f" of {cut.count}" if cut.count else ""
        said = f"fragment {fragment.fragment}{of}: {detail or stage.value}"
        never_left = stage is Stage.EXPIRED and not cut.left
        given = Input.OUT_OF_TIME if never_left else _FOLLOWS[stage]
        return [Following(one, given, said) for one in _open(with_others(tx, source))]
    if stage not in _ARRIVED or not _all_arrived(tx, source):
        return []
    sent = tx.any_fragment(Side.SENDING, source.message_id, (State.SENT,))
    # What a protocol acknowledges are the fragments; only a receipt is about what they make.
    given = Input.LEFT if sent or _is_sequenced(context, source) else Input.ACKNOWLEDGED
    units = _open(with_others(tx, source))
    return [Following(one, given) for one in units if not _awaits(context, one)]


def following_rejection(tx: Transaction, fragment: Message, detail: str | None) -> list[Following]:
    """What follows when the group of a fragment is rejected after this one arrived."""
    source = _source(tx, fragment)
    cut = source.split if source is not None else None
    if source is None or cut is None or fragment.state not in ARRIVED:
        return []
    if cut.written < (fragment.fragment or 0):
        # It is of an earlier group.
        return []
    said = f"the group of its fragments was rejected: {detail}"
    return [Following(one, Input.REFUSED, said) for one in _open(with_others(tx, source))]


def await_receipts(context: Context, tx: Transaction, fragment: Message, now: datetime) -> None:
    """Where all fragments arrived, the receipts for the whole have their time from now on."""
    source = _source(tx, fragment)
    if source is None or not _all_arrived(tx, source):
        return
    policy, interval = _terms(context, source)
    due = now + interval + policy.timeout
    waiting = [
        one
        for one in with_others(tx, source)
        if one.state in AT_WORK and one.due_at is None and _awaits(context, one)
    ]
    for one in waiting:
        times: dict[str, Any] = {"due_at": due, "decided_by": due, "updated_at": now}
        tx.change_message(Side.SENDING, one.message_id, (one.state,), **times)
    for row in {one.timer for one in waiting if one.timer is not None}:
        tx.postpone_work(row, due)


def settle_row(tx: Transaction, row: int, owner: str | None = None) -> None:
    """The row of a source waits for who is due first, or is done. Who writes fragments keeps it."""
    work = tx.work(row)
    if work is None:
        return
    units = split_units(tx, work.message_id)
    staying = [one for one in units if one.timer == row]
    cut = units[0].split if units else None
    if cut is None or not staying:
        tx.finish_work(row)
    elif work.owner == owner and (cut.is_written or not at_work(units)):
        times = [one.due_at for one in staying if one.due_at is not None]
        tx.postpone_work(row, min(times, default=None), owner=owner)
        # From now on it is the fragments that expire.
        tx.expire_work(row, None)


def close_fragments(tx: Transaction, message: Message, now: datetime, after: int = 0) -> None:
    """Nothing more is sent of a message at rest, when all that go with it are.

    A few fragments are ended now, the others as work.
    """
    units = split_units(tx, source_id(message))
    if not units or at_work(units):
        return
    source, arrived = units[0].message_id, any(one.state in ARRIVED for one in units)
    found = tx.fragment_messages(Side.SENDING, source, after, AT_ONCE)
    for one in found:
        if one.state in AT_WORK:
            _close(tx, one, arrived, now)
    if len(found) == AT_ONCE:
        cursor = str(found[-1].key).encode()
        tx.add_work(Work("split", source, now, cursor))


def _close(tx: Transaction, fragment: Message, arrived: bool, now: datetime) -> None:
    state = State.IN_DOUBT if fragment.unanswered else State.FAILED
    if arrived:
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
        cut.count or None,
        sum(states.values()) - never,
        arrived,
        # While it is compressed nobody knows; it hardly becomes more than it was.
        cut.size if cut.coded is None else cut.message_size,
        cut.size if arrived == cut.count > 0 else arrived * cut.fragment_size,
    )


def _source(tx: Transaction, fragment: Message) -> Message | None:
    return tx.message(Side.SENDING, fragment.part_of or "")


def _open(units: Iterable[Message]) -> list[Message]:
    """Those for whom something can follow."""
    return [one for one in units if one.state in _OPEN]


def _all_arrived(tx: Transaction, source: Message) -> bool:
    cut = source.split
    if cut is None or not cut.is_written:
        return False
    return not tx.any_fragment(Side.SENDING, source.message_id, _UNFINISHED)


def _awaits(context: Context, unit: Message) -> bool:
    """Whether a receipt was agreed on."""
    try:
        return wants_receipt(context.in_force.sending_of(unit).match.leg)
    except Refused:
        # Without its P-Mode nobody believes a receipt: what is known is that all arrived.
        return False


def _is_sequenced(context: Context, source: Message) -> bool:
    """Whether its fragments go in a sequence."""
    try:
        return context.in_force.sending_of(source).reliable is not None
    except Refused:
        return False


def _terms(context: Context, source: Message) -> tuple[Policy, timedelta]:
    """When a receipt is given up, and how long joining may take."""
    try:
        sending = context.in_force.sending_of(source)
    except Refused:
        return ONCE, USUAL_INTERVAL
    terms = sending.splitting
    return sending.policy, terms.join_interval if terms is not None else USUAL_INTERVAL
