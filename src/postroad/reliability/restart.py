"""Broken uploads that go on: what a receiver does with each request of a transfer (AS2 restart).

A transfer is known by who sends it, where to, and its ETag: nobody goes on with the transfer of
another. What came of it is kept for a time; a request goes on where that ends, and nowhere else. A
transfer that is done is remembered as long, so that who missed the answer gets it again. Who asks
how much is there has given up what it was sending: a line can be dead without the receiver knowing.

Two rules for who edits this file: all that affects a transfer stands here; what is not in the table
does not happen.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from postroad.wire.limits import MIB
from postroad.wire.restart import ContentRange

LEAST: Final = MIB
"""A message up to this size is sent again as a whole."""


class Known(StrEnum):
    """What a receiver has of a transfer."""

    NOTHING = "nothing"
    PART = "a part"
    OPEN = "a part that is just being written"
    ALL = "all of it, and its answer"


class Asked(StrEnum):
    """What a request wants."""

    PROBE = "to know how much is there"
    WHOLE = "to send everything"
    REST = "to go on where the part ends"
    ELSEWHERE = "to go on somewhere else"
    ANOTHER = "to go on with something of another size"


class Done(StrEnum):
    """What is done."""

    SAY = "say how much is there"
    END = "end what is being written, and say how much is there"
    BEGIN = "write it from the beginning"
    GO_ON = "write behind what is there"
    CORRECT = "refuse it (416) and say how much is there"
    WAIT = "refuse it (409): somebody is writing"
    FORGET = "refuse it (409) and forget the part"
    REFUSE = "refuse it (409)"
    REPEAT = "give the first answer again"


_K, _A, _D = Known, Asked, Done

TABLE: Final[Mapping[Known, Mapping[Asked, Done]]] = {
    _K.NOTHING: {
        _A.PROBE: _D.SAY,
        _A.WHOLE: _D.BEGIN,
        _A.REST: _D.BEGIN,
        _A.ELSEWHERE: _D.CORRECT,
        _A.ANOTHER: _D.CORRECT,
    },
    _K.PART: {
        _A.PROBE: _D.SAY,
        _A.WHOLE: _D.BEGIN,
        _A.REST: _D.GO_ON,
        _A.ELSEWHERE: _D.CORRECT,
        _A.ANOTHER: _D.FORGET,
    },
    _K.OPEN: {
        _A.PROBE: _D.END,
        _A.WHOLE: _D.WAIT,
        _A.REST: _D.WAIT,
        _A.ELSEWHERE: _D.WAIT,
        _A.ANOTHER: _D.WAIT,
    },
    _K.ALL: {
        _A.PROBE: _D.SAY,
        _A.WHOLE: _D.REPEAT,
        _A.REST: _D.REPEAT,
        _A.ELSEWHERE: _D.CORRECT,
        _A.ANOTHER: _D.REFUSE,
    },
}


class Transfer(Struct, frozen=True):
    """What is kept of one transfer."""

    sender: str
    path: str
    name: str
    """From its ETag."""
    stored: int
    total: int | None
    expires_at: datetime
    """It is forgotten then. [P2-6.4.3-03]"""
    open: bool = False
    done: bool = False


class Room(Struct, frozen=True):
    """How much is kept of transfers: of one sender, or of all."""

    most: int
    """At a time."""
    most_bytes: int
    """Together."""


def known(transfer: Transfer | None, now: datetime) -> Known:
    """What there is of a transfer; when its time is over that is nothing any more."""
    if transfer is None:
        return Known.NOTHING
    if transfer.open:
        return Known.OPEN
    if now >= transfer.expires_at:
        return Known.NOTHING
    return Known.ALL if transfer.done else Known.PART


def asked(transfer: Transfer | None, given: ContentRange | None, *, probe: bool) -> Asked:
    """What a request wants of a transfer, by its Content-Range."""
    if probe:
        return Asked.PROBE
    if given is None:
        return Asked.WHOLE
    if transfer is None:
        return Asked.REST if given.start == 0 else Asked.ELSEWHERE
    if None not in (given.total, transfer.total) and given.total != transfer.total:
        return Asked.ANOTHER
    return Asked.REST if given.start == transfer.stored else Asked.ELSEWHERE


def decide(
    transfer: Transfer | None,
    given: ContentRange | None,
    now: datetime,
    *,
    probe: bool = False,
) -> Done:
    """What is done with a request."""
    has = known(transfer, now)
    return TABLE[has][asked(None if has is Known.NOTHING else transfer, given, probe=probe)]


def has_room(others: int, held: int, more: int, room: Room) -> bool:
    """Whether one more transfer is kept beside so many others, of so many bytes."""
    return others < room.most and held + more <= room.most_bytes


def going_on(there: int | None, total: int) -> ContentRange | None:
    """Which bytes a sender sends next, from what the receiver says is there; None: all of them.

    None is there where the receiver does not know restarting. Where all is there the answer was
    lost: the message is sent again as a whole, and known as a copy.
    """
    if there is None or not 0 < there < total:
        return None
    return ContentRange(there, total - 1, total)
