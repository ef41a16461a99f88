"""The row that sends a bundle, which is the timer of all its units as long as one needs it."""

from collections.abc import Iterable, Sequence
from typing import Any

from postroad.node.settings.in_force import Sending
from postroad.node.steps.split_outcome import settle_row as settle_split
from postroad.reliability.schedule import ends_at
from postroad.security.encrypt import Seal
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, Work


def units_of(reader: Reader, ids: Sequence[str]) -> tuple[Message, ...]:
    """Those of them that are still kept."""
    found = reader.messages_by_id(Side.SENDING, ids)
    return tuple([found[one] for one in ids if one in found])


def settle_row(
    tx: Transaction, units: Sequence[Message], work: Work, sending: Sending | None
) -> None:
    """The row waits for the unit that is due first, or is done."""
    fresh = units_of(tx, [one.message_id for one in units])
    staying = [one for one in fresh if one.timer == work.id]
    if not staying:
        tx.finish_work(work.id, work.owner)
        return
    times = [one.due_at for one in staying if one.due_at is not None]
    tx.postpone_work(work.id, min(times, default=None), owner=work.owner)
    if sending is not None:
        ends = [ends_at(sending.policy, one.created_at, one.first_sent_at) for one in staying]
        tx.expire_work(work.id, min((one for one in ends if one is not None), default=None))


def share_envelope(
    tx: Transaction, units: Sequence[Message], envelope: bytes, seal: Seal | None, **more: Any
) -> tuple[Message, ...] | None:
    """Replace the kept envelope, which all units share; None when one is not as it was.

    Its seal is kept with the primary; `more` are fields that change with it.
    """
    names = [one.message_id for one in units]
    found = tx.messages_by_id(Side.SENDING, names)
    for unit in units:
        now = found.get(unit.message_id)
        if now is None or now.state is not unit.state or now.envelope != unit.envelope:
            # Somebody else replaced the envelope meanwhile, and dropped the one that was there.
            return None
    stored = tx.keep(envelope)
    for unit in units:
        first = unit is units[0]
        if not first:
            tx.share(stored)
        fields = {"envelope": stored, "seal": seal if first else None, **more}
        tx.change_message(Side.SENDING, unit.message_id, (unit.state,), **fields)
        if unit.envelope is not None:
            tx.drop(unit.envelope)
    return units_of(tx, names)


def rows_of(tx: Transaction, ids: Sequence[str]) -> set[int]:
    """The rows that units wait for: one that sends them all."""
    return {one.timer for one in units_of(tx, ids) if one.timer is not None}


def close_rows(tx: Transaction, ids: Sequence[str], rows: Iterable[int]) -> None:
    """After units were answered by call-back: rows that no unit needs any more are done.

    Who is sending a copy right now sees to it afterwards.
    """
    units = units_of(tx, ids)
    for number in rows:
        work = tx.work(number)
        if work is not None and work.kind == "split":
            settle_split(tx, number)
        elif work is not None and work.kind == "send" and work.owner is None:
            settle_row(tx, units, work, None)
