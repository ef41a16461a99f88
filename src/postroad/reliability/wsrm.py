"""WS-ReliableMessaging 1.1 and 1.2: the life of a sequence at its source and at its destination.

The source gives numbers from 1, without a hole of its own making, and sends each message again with
the same number until an acknowledgement covers it; when, is for `delivery` and `schedule`. The
destination acknowledges what it has taken for good, always all of it. Between the two everything
may be lost, doubled and turned round.

A destination that promises order holds what is ahead of a hole. A source that gives a message up
closes the sequence: then the destination waits for it no longer, and passes on what it holds. What
was not acknowledged goes into the next sequence, which begins only when the one before it is
closed, so that nothing is overtaken.

Two rules for who edits this file: all that affects these machines stands here; what is not in a
table does not happen.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.reliability.ranges import Ranges, added, beyond, holds, missing, numbers, union
from postroad.reliability.tables import Table, follow
from postroad.wire.wsrm import MOST_NUMBER
from postroad.wire.wsrm_faults import Code


class SourceStage(StrEnum):
    NONE = "no sequence"
    CREATING = "asked for"
    OPEN = "open"
    FULL = "no number is left"
    CLOSING = "to be closed"
    CLOSED = "closed"


class SourceInput(StrEnum):
    ASKED = "CreateSequence was sent"
    CREATED = "CreateSequenceResponse"
    REFUSED = "CreateSequenceRefused"
    NUMBERED = "a message gets a number"
    LAST_NUMBER = "a message gets the last number"
    GIVEN_UP = "a message is given up"
    IDLE = "idle, and nothing is unacknowledged"
    CLOSED = "CloseSequenceResponse, or a Final acknowledgement"
    SEQUENCE_CLOSED = "SequenceClosed"
    ROLLOVER = "MessageNumberRollover"
    ENDED = "SequenceTerminated, UnknownSequence, or it expired"
    TERMINATED = "TerminateSequenceResponse"


_S, _I = SourceStage, SourceInput

SOURCE: Final[Table[SourceStage, SourceInput]] = {
    _S.NONE: {_I.ASKED: _S.CREATING},
    _S.CREATING: {
        _I.ASKED: _S.CREATING,
        _I.CREATED: _S.OPEN,
        _I.REFUSED: _S.NONE,
    },
    _S.OPEN: {
        _I.NUMBERED: _S.OPEN,
        _I.LAST_NUMBER: _S.FULL,
        _I.GIVEN_UP: _S.CLOSING,
        _I.IDLE: _S.CLOSING,
        _I.SEQUENCE_CLOSED: _S.CLOSING,
        _I.CLOSED: _S.CLOSED,
        _I.ROLLOVER: _S.FULL,
        _I.ENDED: _S.CLOSED,
    },
    _S.FULL: {
        _I.GIVEN_UP: _S.CLOSING,
        _I.IDLE: _S.CLOSING,
        _I.SEQUENCE_CLOSED: _S.CLOSING,
        _I.CLOSED: _S.CLOSED,
        _I.ROLLOVER: _S.FULL,
        _I.ENDED: _S.CLOSED,
    },
    _S.CLOSING: {
        _I.GIVEN_UP: _S.CLOSING,
        _I.IDLE: _S.CLOSING,
        _I.SEQUENCE_CLOSED: _S.CLOSING,
        _I.ROLLOVER: _S.CLOSING,
        _I.CLOSED: _S.CLOSED,
        _I.ENDED: _S.CLOSED,
    },
    _S.CLOSED: {
        _I.GIVEN_UP: _S.CLOSED,
        _I.IDLE: _S.CLOSED,
        _I.SEQUENCE_CLOSED: _S.CLOSED,
        _I.ROLLOVER: _S.CLOSED,
        _I.CLOSED: _S.CLOSED,
        _I.ENDED: _S.CLOSED,
        _I.TERMINATED: _S.NONE,
    },
}

FAULTS: Final[Mapping[Code, SourceInput]] = {
    Code.SEQUENCE_TERMINATED: SourceInput.ENDED,
    Code.UNKNOWN_SEQUENCE: SourceInput.ENDED,
    Code.SEQUENCE_CLOSED: SourceInput.SEQUENCE_CLOSED,
    Code.MESSAGE_NUMBER_ROLLOVER: SourceInput.ROLLOVER,
    Code.CREATE_SEQUENCE_REFUSED: SourceInput.REFUSED,
}
"""What a fault of the destination does to the sequence."""


class Source(Struct, frozen=True):
    """All that a source knows of a sequence; durable with what it numbers."""

    stage: SourceStage = SourceStage.NONE
    identifier: str = ""
    next: int = 1
    acked: Ranges = ()
    given_up: Ranges = ()
    """Numbers of messages that are at rest without an acknowledgement."""
    asked_as: str = ""
    """wsa:MessageID of the CreateSequence that is to be answered."""
    at: datetime | None = None
    """When it was asked for, or last used."""
    expires_at: datetime | None = None
    is_last: bool = False
    """The message with the last number ends its group (Core D.3.5, TerminateGroup)."""

    @property
    def sent(self) -> Ranges:
        """All numbers that were given."""
        return ((1, self.next - 1),) if self.next > 1 else ()

    @property
    def outstanding(self) -> Ranges:
        """Numbers of messages that are still to be acknowledged."""
        return beyond(self.sent, union(self.acked, self.given_up))


def _moved(source: Source, given: SourceInput) -> Source:
    return changed(source, stage=follow(SOURCE, source.stage, given))


def told(source: Source, given: SourceInput) -> Source:
    """What follows from an input without further data; nothing where the table has none."""
    return _moved(source, given) if given in SOURCE[source.stage] else source


def asked(source: Source, message_id: str, now: datetime) -> Source:
    """CreateSequence goes out."""
    return changed(_moved(source, SourceInput.ASKED), asked_as=message_id, at=now)


def created(source: Source, identifier: str, expires: timedelta | None, now: datetime) -> Source:
    """The destination made the sequence; numbers begin anew."""
    ends = None if expires is None else now + expires
    stage = follow(SOURCE, source.stage, SourceInput.CREATED)
    return Source(stage, identifier, at=now, expires_at=ends)


def numbered(source: Source, now: datetime, *, last: bool = False) -> tuple[int, Source]:
    """The next number. Only an open sequence has one; `last`: there is none after it."""
    full = last or source.next >= MOST_NUMBER
    after = _moved(source, SourceInput.LAST_NUMBER if full else SourceInput.NUMBERED)
    return source.next, changed(after, next=source.next + 1, at=now, is_last=last)


def is_over(source: Source, now: datetime) -> bool:
    """Whether a sequence has come to the end of its life by itself."""
    return source.expires_at is not None and now >= source.expires_at


class Acked(Struct, frozen=True):
    """What an acknowledgement says that was not known before."""

    source: Source
    fresh: Ranges = ()
    again: Ranges = ()
    """Nacks of numbers that are not acknowledged: to be sent now."""
    invalid: bool = False
    """It covers numbers that were never given: InvalidAcknowledgement, and nothing changes."""


def acknowledged(
    source: Source, ranges: Ranges, nacks: tuple[int, ...] = (), *, final: bool = False
) -> Acked:
    """An acknowledgement for the sequence. What was said once is never taken back."""
    top = source.next - 1
    if (ranges and ranges[-1][1] > top) or (nacks and nacks[-1] > top):
        return Acked(source, invalid=True)
    fresh = beyond(ranges, source.acked)
    after = changed(source, acked=union(source.acked, ranges))
    if final:
        after = told(after, SourceInput.CLOSED)
    wanted: Ranges = ()
    for number in nacks:
        if not holds(after.acked, number):
            wanted = added(wanted, number)
    return Acked(after, fresh, wanted)


def rested(source: Source, number: int, *, in_order: bool) -> Source:
    """A message is given up. Where order was promised, others are held up by it: it is closed."""
    if holds(source.acked, number) or number >= source.next:
        return source
    after = changed(source, given_up=added(source.given_up, number))
    return told(after, SourceInput.GIVEN_UP) if in_order else after


def revived(source: Source, number: int) -> Source:
    """A message that was given up is sent again."""
    return changed(source, given_up=beyond(source.given_up, ((number, number),)))


class DestinationStage(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class Place(StrEnum):
    """Where the number of a message lies."""

    NEXT = "a new number, and all before it are there"
    AHEAD = "a new number ahead of a hole"
    TOO_FAR = "a new number for which there is no room"
    KNOWN = "a number that is there"


class Verdict(StrEnum):
    DELIVER = "deliver it, and what it held up; acknowledge"
    HOLD = "hold it; acknowledge"
    DUPLICATE = "drop it; acknowledge"
    CLOSED = "SequenceClosed, with the final acknowledgement"
    NO_ROOM = "say that there is no room"


_D, _P, _V = DestinationStage, Place, Verdict

IN_ORDER: Final[Mapping[DestinationStage, Mapping[Place, Verdict]]] = {
    _D.OPEN: {
        _P.NEXT: _V.DELIVER,
        _P.AHEAD: _V.HOLD,
        _P.TOO_FAR: _V.NO_ROOM,
        _P.KNOWN: _V.DUPLICATE,
    },
    _D.CLOSED: {
        _P.NEXT: _V.CLOSED,
        _P.AHEAD: _V.CLOSED,
        _P.TOO_FAR: _V.CLOSED,
        _P.KNOWN: _V.CLOSED,
    },
}
AS_IT_COMES: Final[Mapping[DestinationStage, Mapping[Place, Verdict]]] = {
    **IN_ORDER,
    _D.OPEN: {**IN_ORDER[_D.OPEN], _P.AHEAD: _V.DELIVER},
}
"""Where no order was promised."""


class Limits(Struct, frozen=True):
    """What a destination keeps at most."""

    held: int = 1000
    holes: int = 500


LIMITS: Final = Limits()


class Destination(Struct, frozen=True):
    """All that a destination knows of a sequence; durable with what it takes."""

    identifier: str
    stage: DestinationStage = DestinationStage.OPEN
    received: Ranges = ()
    passed: int = 0
    """The number up to which everything was passed on, where order was promised."""
    expires_at: datetime | None = None

    @property
    def final(self) -> bool:
        return self.stage is DestinationStage.CLOSED


def held(destination: Destination) -> Ranges:
    """Numbers of messages that wait for those before them, where order was promised."""
    passed = ((1, destination.passed),) if destination.passed else ()
    return beyond(destination.received, passed)


class Arrival(Struct, frozen=True):
    """What becomes of a message."""

    verdict: Verdict
    destination: Destination
    passed: tuple[int, ...] = ()
    """Numbers that go to the application now, in this order."""


def arrive(
    destination: Destination, number: int, *, in_order: bool, limits: Limits = LIMITS
) -> Arrival:
    """What becomes of a message, by its number."""
    table = IN_ORDER if in_order else AS_IT_COMES
    verdict = table[destination.stage][_place(destination, number, in_order, limits)]
    if verdict not in (Verdict.DELIVER, Verdict.HOLD):
        return Arrival(verdict, destination)
    after = changed(destination, received=added(destination.received, number))
    if not in_order:
        return Arrival(verdict, after, (number,))
    if verdict is Verdict.HOLD:
        return Arrival(verdict, after)
    lower, upper = after.received[0]
    top = max(upper if lower == 1 else 0, destination.passed)
    passed = tuple(range(destination.passed + 1, top + 1))
    if number <= destination.passed:
        passed = (number, *passed)
    return Arrival(verdict, changed(after, passed=top), passed)


def _place(destination: Destination, number: int, in_order: bool, limits: Limits) -> Place:
    received = destination.received
    if holds(received, number):
        return Place.KNOWN
    if number == (received[0][1] + 1 if received and received[0][0] == 1 else 1):
        return Place.NEXT
    if in_order and number <= destination.passed:
        # Somebody waited for it no longer.
        return Place.NEXT
    waiting = sum(upper - lower + 1 for lower, upper in held(destination)) if in_order else 0
    if len(added(received, number)) > limits.holes or waiting >= limits.held:
        return Place.TOO_FAR
    return Place.AHEAD


class Ended(Struct, frozen=True):
    """What the end of a sequence brings."""

    destination: Destination
    passed: tuple[int, ...] = ()
    """Numbers that were held, and go to the application now: nothing is discarded."""
    holes: Ranges = ()
    """Numbers that never came, as far as is known."""


def closed(destination: Destination, last: int | None, *, in_order: bool) -> Ended:
    """CloseSequence, TerminateSequence, or its time is over: nothing more is waited for."""
    received = destination.received
    top = max(last or 0, received[-1][1] if received else 0)
    after = changed(destination, stage=DestinationStage.CLOSED)
    holes = missing(received, 1, min(top, MOST_NUMBER))[: LIMITS.holes]
    if not in_order:
        return Ended(after, (), holes)
    waiting = tuple(numbers(held(destination)))
    if received:
        after = changed(after, passed=max(destination.passed, received[-1][1]))
    return Ended(after, waiting, holes)


def has_expired(destination: Destination, now: datetime) -> bool:
    """Whether its time is over: then it is as if it were not known."""
    return destination.expires_at is not None and now >= destination.expires_at
