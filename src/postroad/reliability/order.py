"""In-order delivery by SequenceNumber, per conversation and sending MSH (0.98b 8.4.8).

Each MSH numbers what it sends in a conversation: 0, 1, 2 … 99999999, and on with 0. The first
number has status Reset, as has the first after the sender reset its numbers; every other one, that
after the wraparound included, has Continue. What a Reset begins is a run.

A receiver passes a run on without holes. What comes early is held; when the hole closes, everything
that it held up follows. There is room for so many messages and no more, and a hole that stays open
is reported. Numbers are compared by their position in the run, which wraps nowhere; of the two
positions that a number may mean the nearer one counts.

A sender resets only when all that it sent is acknowledged. Hence a hole that is still open when a
Reset comes was never sent and never closes: what it held up is passed on first, in its order. A
receiver cannot tell an early message of a new run from one of the run before; so our numbering
gives no number after that of a Reset until the message with the Reset is acknowledged. A message
that certainly did not arrive gives its number back, if none was given after it, and leaves no hole.

Copies are known by their MessageId and taken away before they come here. A number that was passed
on is therefore a copy of which the id was forgotten, or a number that was used twice: `DUPLICATE`,
and who knows the ids tells which.

Two rules for who edits this file: all that affects these decisions stands here; what is not in the
table does not happen.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

LAST: Final = 99_999_999
_COUNT: Final = LAST + 1
_NUMERALS: Final = re.compile(r"[0-9]{1,8}")


class BadSequenceNumber(ValueError):
    """Not a whole number from 0 to 99999999, or a status that is neither Reset nor Continue."""


class Unacknowledged(Exception):
    """The numbers go on only when everything that was sent is acknowledged."""


class Status(StrEnum):
    RESET = "Reset"
    CONTINUE = "Continue"


class SequenceNumber(Struct, frozen=True):
    """A number with its status. [MS098-8.4.8-08] [MS098-8.4.8-09]"""

    value: int
    status: Status = Status.CONTINUE

    def __post_init__(self) -> None:
        if type(self.value) is not int or not 0 <= self.value <= LAST:
            raise BadSequenceNumber(f"{self.value!r} is not a whole number from 0 to {LAST}")


def read_number(value: str, status: str = Status.CONTINUE) -> SequenceNumber:
    """The number that a message carries: ASCII numerals, and one of the two statuses."""
    if not _NUMERALS.fullmatch(value):
        raise BadSequenceNumber(f"{value!r} is not a whole number from 0 to {LAST}")
    try:
        return SequenceNumber(int(value), Status(status))
    except ValueError:
        raise BadSequenceNumber(f"the status {status!r} is neither Reset nor Continue") from None


class Stream(Struct, frozen=True):
    """What has numbers of its own: a conversation, and the MSH that sends. [MS098-8.4.8-02]"""

    conversation_id: str
    msh: str


class Numbering(Struct, frozen=True):
    """How far a sender has numbered a stream; durable with what it numbered."""

    position: int = 0
    """Of the next message in its run."""


def number_next(numbering: Numbering, unacknowledged: int) -> tuple[SequenceNumber, Numbering]:
    """The number of the next message, and the numbering after it.

    `unacknowledged` counts what has a number in the stream, not withdrawn, and no acknowledgment.
    [MS098-8.4.8-03] [MS098-8.4.8-08] [MS098-8.4.8-10] [MS098-8.4.8-11]
    """
    if numbering.position == 1 and unacknowledged:
        raise Unacknowledged("the message with the Reset is not acknowledged yet")
    status = Status.CONTINUE if numbering.position else Status.RESET
    number = SequenceNumber(numbering.position % _COUNT, status)
    return number, Numbering(numbering.position + 1)


def withdraw(numbering: Numbering, number: SequenceNumber) -> Numbering:
    """The numbering when a message certainly did not arrive: the next one gets its number.

    Only the last number is given back; the message is not sent again under it.
    """
    last = numbering.position - 1
    if last < 0 or number.value != last % _COUNT:
        return numbering
    return Numbering(last)


def reset(numbering: Numbering, unacknowledged: int) -> Numbering:
    """The numbers begin again with 0, once all that was sent is acknowledged.

    `unacknowledged` counts what left and was not, whatever became of it. [MS098-8.4.8-12]
    """
    if unacknowledged:
        raise Unacknowledged(f"{unacknowledged} messages of the conversation are unacknowledged")
    return Numbering()


class Place(StrEnum):
    """Where a number lies, as the receiver sees it."""

    BEGINS = "it begins a run"
    BEGAN = "the message that began this run"
    NOT_ZERO = "another number than 0"
    NO_RUN = "0, and no run has begun"
    NEXT = "the next one"
    AHEAD = "ahead of a hole, and there is room"
    TOO_MANY = "ahead of a hole, and there is no room"
    HELD = "the number of this very message, which is held"
    TAKEN = "the number of another message, which is held"
    PASSED = "a number that was passed on"


class Verdict(StrEnum):
    DELIVER = "deliver it, and what it held up"
    HOLD = "hold it"
    DUPLICATE = "it was here before"
    NO_ROOM = "refuse it for want of room"
    INCONSISTENT = "refuse it as inconsistent"


_P, _V = Place, Verdict

TABLE: Final[Mapping[Status, Mapping[Place, Verdict]]] = {
    Status.RESET: {
        _P.BEGINS: _V.DELIVER,
        _P.BEGAN: _V.DUPLICATE,
        _P.NOT_ZERO: _V.INCONSISTENT,
    },
    Status.CONTINUE: {
        _P.NEXT: _V.DELIVER,
        _P.AHEAD: _V.HOLD,
        _P.TOO_MANY: _V.NO_ROOM,
        _P.HELD: _V.DUPLICATE,
        _P.TAKEN: _V.INCONSISTENT,
        _P.PASSED: _V.DUPLICATE,
        _P.NO_RUN: _V.INCONSISTENT,
    },
}

EVENTS: Final[Mapping[Verdict, tuple[str, ...]]] = {
    Verdict.DELIVER: (),
    Verdict.HOLD: ("out_of_order", "held"),
    Verdict.DUPLICATE: ("duplicate",),
    Verdict.NO_ROOM: ("out_of_order", "rejected"),
    Verdict.INCONSISTENT: ("rejected",),
}
"""The journal's words, besides that something was received and delivered."""


class Limits(Struct, frozen=True):
    """How much is held, and how long a hole may stay open before it is reported."""

    held: int = 1000
    patience: timedelta = timedelta(hours=1)


LIMITS: Final = Limits()


class Held(Struct, frozen=True):
    """A message that came early."""

    position: int
    message_id: str
    since: datetime


class Gap(Struct, frozen=True):
    """Numbers that are missing, from the first to the last, and since when that is known."""

    first: int
    last: int
    since: datetime


class Sequence(Struct, frozen=True):
    """What a receiver knows of a stream; durable with what it holds and passes on."""

    position: int = 0
    """Of the message that is to be passed on next."""
    began: str | None = None
    """The MessageId that began the run; empty when that was skipped, None when none has begun."""
    held: tuple[Held, ...] = ()
    """By position."""
    reported: int | None = None
    """The position at which a hole was reported."""


class Arrival(Struct, frozen=True):
    """What follows from an arrival, or from giving up a hole."""

    verdict: Verdict
    sequence: Sequence
    passed: tuple[str, ...] = ()
    """MessageIds that go to the application now, in this order."""
    gaps: tuple[Gap, ...] = ()
    """Numbers that are waited for no longer."""


def arrive(
    sequence: Sequence,
    number: SequenceNumber,
    message_id: str,
    now: datetime,
    limits: Limits = LIMITS,
) -> Arrival:
    """What becomes of a message, by its number. [MS098-8.4.8-01] [MS098-8.4.8-06]"""
    position = _position(sequence, number.value)
    verdict = TABLE[number.status][_place(sequence, number, position, message_id, limits)]
    if verdict is Verdict.HOLD:
        here = _index(sequence, position)
        early = Held(position, message_id, now)
        held = (*sequence.held[:here], early, *sequence.held[here:])
        return Arrival(verdict, changed(sequence, held=held))
    if verdict is not Verdict.DELIVER:
        return Arrival(verdict, sequence)
    if number.status is Status.RESET:
        return _begun(sequence, message_id)
    return _passed_on(changed(sequence, position=position + 1), (message_id,))


def _position(sequence: Sequence, value: int) -> int:
    """The position in the run that a number means: the nearest one that there can be."""
    ahead = (value - sequence.position) % _COUNT
    behind = _COUNT - ahead
    if behind <= min(ahead, sequence.position):
        return sequence.position - behind
    return sequence.position + ahead


def _index(sequence: Sequence, position: int) -> int:
    return bisect_left(sequence.held, position, key=lambda held: held.position)


def _place(
    sequence: Sequence, number: SequenceNumber, position: int, message_id: str, limits: Limits
) -> Place:
    if number.status is Status.RESET:
        if number.value:
            return Place.NOT_ZERO
        return Place.BEGAN if message_id == sequence.began else Place.BEGINS
    if position < sequence.position:
        return Place.PASSED
    if sequence.began is None and not number.value:
        return Place.NO_RUN
    if position == sequence.position:
        return Place.NEXT
    here = _index(sequence, position)
    if here < len(sequence.held) and sequence.held[here].position == position:
        return Place.HELD if sequence.held[here].message_id == message_id else Place.TAKEN
    return Place.AHEAD if len(sequence.held) < limits.held else Place.TOO_MANY


def _begun(sequence: Sequence, message_id: str) -> Arrival:
    """A run begins. What an open hole of the run before held up goes first; it never closes."""
    if sequence.began is None:
        return _passed_on(changed(sequence, position=1, began=message_id), (message_id,))
    last = tuple(held.message_id for held in sequence.held)
    begun = Sequence(position=1, began=message_id)
    return Arrival(Verdict.DELIVER, begun, (*last, message_id), gaps(sequence))


def _passed_on(sequence: Sequence, passed: tuple[str, ...]) -> Arrival:
    """What was passed on, and all that was held up by nothing else."""
    position, count = sequence.position, 0
    for held in sequence.held:
        if held.position != position:
            break
        position, count = position + 1, count + 1
    freed = tuple(held.message_id for held in sequence.held[:count])
    rest = changed(sequence, position=position, held=sequence.held[count:])
    return Arrival(Verdict.DELIVER, rest, passed + freed)


def gaps(sequence: Sequence) -> tuple[Gap, ...]:
    """The holes in what has come, the first of them first."""
    since = min((held.since for held in sequence.held), default=None)
    if since is None:
        return ()
    ends = (sequence.position - 1, *(held.position for held in sequence.held))
    return tuple(
        Gap((before + 1) % _COUNT, (after - 1) % _COUNT, since)
        for before, after in pairwise(ends)
        if after - before > 1
    )


def report_due(sequence: Sequence, limits: Limits) -> datetime | None:
    """When the first hole is to be reported; None: there is none, or it was reported."""
    if not sequence.held or sequence.reported == sequence.position:
        return None
    return gaps(sequence)[0].since + limits.patience


def report(sequence: Sequence, limits: Limits, now: datetime) -> tuple[Gap, Sequence] | None:
    """The first hole when it has been open too long; each is reported once."""
    due = report_due(sequence, limits)
    if due is None or now < due:
        return None
    return gaps(sequence)[0], changed(sequence, reported=sequence.position)


def skip(sequence: Sequence) -> Arrival | None:
    """Somebody gives the first hole up: what it held up is passed on; None: there is none."""
    if not sequence.held:
        return None
    beyond = changed(sequence, position=sequence.held[0].position, began=sequence.began or "")
    freed = _passed_on(beyond, ())
    return changed(freed, gaps=gaps(sequence)[:1])
