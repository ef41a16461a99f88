"""Events about no message: what came could not be one, or is about none that is known."""

import logging
from collections.abc import Sequence
from datetime import datetime

from postroad.node.base.context import Context
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.identity import is_identified
from postroad.node.steps.keeping import about_nothing, told
from postroad.store.interface import StoreError
from postroad.store.records import Event
from postroad.wire.errors import EbmsError

_log = logging.getLogger("postroad.receive")


async def note(context: Context, code: str, detail: str, now: datetime, peer: str | None) -> None:
    """Record that a request was refused that was no message: by its own event, or counted."""
    context.count_error(code)
    if context.refusals.admit(code, detail, now, peer):
        await _record(context, [_problem(context, code, detail, now, peer)])


async def note_refusal(context: Context, code: str, detail: str, arrival: Arrival) -> None:
    """Record that a message was refused: of a partner always by its own event."""
    record = note_problem if is_identified(context, arrival) else note
    await record(context, code, detail, arrival.now, arrival.peer)


def is_journaled(context: Context, problem: EbmsError, arrival: Arrival) -> bool:
    """Return whether a refusal has journal events: always of a partner, else it is counted."""
    return is_identified(context, arrival) or context.refusals.admit(
        problem.code, told(problem), arrival.now, arrival.peer
    )


async def note_problems(context: Context, problems: Sequence[EbmsError], arrival: Arrival) -> None:
    """Record all problems of something that is not remembered, or count it."""
    context.count_error(problems[0].code)
    if is_journaled(context, problems[0], arrival):
        await _record(context, [about_nothing(context, one, arrival) for one in problems[:5]])


async def note_problem(
    context: Context, code: str, detail: str, now: datetime, peer: str | None
) -> None:
    """Record what went wrong with a partner, always by its own event."""
    context.count_error(code)
    await _record(context, [_problem(context, code, detail, now, peer)])


async def record_refusals(context: Context, *, everything: bool = False) -> None:
    """Record how many requests were refused without an event of their own.

    Of the intervals that are over or, with `everything`, of all.
    """
    events = context.refusals.take(context.clock(), context.party, everything=everything)
    if events:
        await _record(context, events)


def _problem(context: Context, code: str, detail: str, now: datetime, peer: str | None) -> Event:
    return Event(
        now,
        context.party,
        "error_raised",
        error_code=code,
        severity="failure",
        detail=detail[:2000],
        peer=peer,
    )


async def _record(context: Context, events: Sequence[Event]) -> None:
    """Write events to the journal; where that cannot be, the log says it."""
    try:
        await context.store.run(lambda tx: tx.record(events))
    except StoreError as full:
        for one in events:
            _log.error("not recorded", extra={"detail": f"{one.detail} ({full})"})
