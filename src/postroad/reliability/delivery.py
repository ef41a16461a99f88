"""The life of an outgoing message, whatever the protocol.

The sender is told the truth. Two things can be certain: the partner has it (a valid receipt), and
the partner does not have it (no byte ever left, or every copy that left was refused). Everything
else is doubt, and is called so: a message that left and was never answered may have arrived. Doubt
ends when an answer comes, however late.

`ready` is a message of which nothing is in doubt, `waiting` one of which some copy left and was not
answered. Hence a refusal ends a message as failed only when no other copy is unanswered: that this
copy was refused says nothing about the one before it.

Two rules for who edits this file: all that affects the machine stands here; what is not in the
table does not happen, and an input that is not in it changes nothing (`heard` returns None).
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy, is_used_up, wait_after
from postroad.reliability.schedule import decided_by, ends_at
from postroad.reliability.tables import follow


class Stage(StrEnum):
    SUBMITTED = "submitted"
    READY = "ready"
    WAITING = "waiting"
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    EXPIRED = "expired"
    SUSPENDED = "suspended"
    SETTLED = "settled"


class Input(StrEnum):
    PACKAGED = "packaged"
    UNPACKABLE = "it cannot be packaged"
    NOT_SENT = "an attempt, and not a byte left"
    TURNED_AWAY = "an attempt, and the partner said: not taken, come again"
    UNANSWERED = "an attempt, and no answer yet"
    LEFT = "an attempt, and no receipt was agreed on"
    ACKNOWLEDGED = "a valid receipt"
    REFUSED = "the partner refused it"
    UNIT_REFUSED = "the bundle was acknowledged, but the partner refused this unit"
    OUT_OF_RETRIES = "no retry is left"
    OUT_OF_TIME = "its time is over"
    HALTED = "no retry is left, and the partner is suspended"
    RESUMED = "an administrator resumed"
    RESENT = "an operator sends it again"
    SETTLED = "somebody says what became of it"


_S, _I = Stage, Input

TABLE: Final[Mapping[Stage, Mapping[Input, Stage | tuple[Stage, Stage]]]] = {
    _S.SUBMITTED: {
        _I.PACKAGED: _S.READY,
        _I.UNPACKABLE: _S.FAILED,
    },
    _S.READY: {
        _I.NOT_SENT: _S.READY,
        _I.TURNED_AWAY: _S.READY,
        _I.UNANSWERED: _S.WAITING,
        _I.LEFT: _S.SENT,
        _I.ACKNOWLEDGED: _S.ACKNOWLEDGED,
        _I.REFUSED: _S.FAILED,
        _I.OUT_OF_RETRIES: _S.FAILED,
        _I.OUT_OF_TIME: _S.EXPIRED,
        _I.HALTED: _S.SUSPENDED,
        _I.RESENT: _S.READY,
    },
    _S.WAITING: {
        _I.NOT_SENT: _S.WAITING,
        _I.TURNED_AWAY: _S.WAITING,
        _I.UNANSWERED: _S.WAITING,
        _I.LEFT: _S.SENT,
        _I.ACKNOWLEDGED: _S.ACKNOWLEDGED,
        _I.REFUSED: (_S.FAILED, _S.IN_DOUBT),
        _I.OUT_OF_RETRIES: _S.IN_DOUBT,
        _I.OUT_OF_TIME: _S.IN_DOUBT,
        _I.HALTED: _S.SUSPENDED,
        _I.RESENT: _S.WAITING,
    },
    _S.SENT: {
        _I.ACKNOWLEDGED: _S.ACKNOWLEDGED,
        _I.REFUSED: (_S.FAILED, _S.IN_DOUBT),
        _I.RESENT: _S.WAITING,
    },
    _S.SUSPENDED: {
        _I.ACKNOWLEDGED: _S.ACKNOWLEDGED,
        _I.REFUSED: (_S.FAILED, _S.IN_DOUBT),
        _I.OUT_OF_TIME: (_S.EXPIRED, _S.IN_DOUBT),
        _I.RESUMED: (_S.READY, _S.WAITING),
        _I.RESENT: (_S.READY, _S.WAITING),
        _I.SETTLED: _S.SETTLED,
    },
    _S.IN_DOUBT: {
        _I.ACKNOWLEDGED: _S.SETTLED,
        _I.RESENT: _S.WAITING,
        _I.SETTLED: _S.SETTLED,
    },
    _S.FAILED: {
        _I.ACKNOWLEDGED: _S.SETTLED,
        _I.RESENT: _S.READY,
        _I.SETTLED: _S.SETTLED,
    },
    _S.EXPIRED: {
        _I.ACKNOWLEDGED: _S.SETTLED,
        _I.RESENT: _S.READY,
        _I.SETTLED: _S.SETTLED,
    },
    _S.SETTLED: {
        _I.ACKNOWLEDGED: _S.SETTLED,
        _I.SETTLED: _S.SETTLED,
    },
    _S.ACKNOWLEDGED: {
        _I.UNIT_REFUSED: (_S.FAILED, _S.IN_DOUBT),
    },
}

AT_WORK: Final = frozenset((Stage.READY, Stage.WAITING))
"""Stages in which a message is sent, now or later."""
GIVEN_UP: Final = frozenset((Stage.FAILED, Stage.IN_DOUBT, Stage.EXPIRED))

CLOSING: Final[Mapping[Stage, str]] = {
    Stage.FAILED: "delivery_failed",
    Stage.IN_DOUBT: "in_doubt",
    Stage.EXPIRED: "expired",
    Stage.SETTLED: "settled",
}
"""The journal's word for a stage in which nothing more is tried."""

KINDS: Final[Mapping[Stage, str]] = {
    Stage.FAILED: "Error",
    Stage.EXPIRED: "Error",
    Stage.IN_DOUBT: "Warning",
}
"""Which kind of failure: it could not be transmitted, or it was and no answer came. [RM000-1.4-06]
[RM000-1.4-07]"""


class Life(Struct, frozen=True):
    """All that the machine knows of a message; durable with it."""

    stage: Stage
    created_at: datetime
    tries: int = 0
    """Attempts since it was first sent, or since somebody began anew."""
    unanswered: int = 0
    """Copies that left and of which nothing was heard."""
    first_sent_at: datetime | None = None
    last_sent_at: datetime | None = None


class Decision(Struct, frozen=True):
    """What follows."""

    life: Life
    due: datetime | None = None
    """When to look at it again: the next attempt, or the time to give up. None: it is at rest."""
    decided_by: datetime | None = None
    """Until when its fate is known; None when it is, or when there is no end."""
    halted: bool = False
    """The partner is to be suspended."""
    ends_at: datetime | None = None
    """When it is over whatever happens: TimeToLive, or persistDuration."""

    @property
    def closing(self) -> str | None:
        """The event that tells the end."""
        return CLOSING.get(self.life.stage)


def attempted(
    life: Life,
    result: Input,
    policy: Policy,
    *,
    began: datetime,
    now: datetime,
    dice: float = 0.0,
    hope: bool = False,
    probe: bool = False,
) -> Decision:
    """What follows from an attempt that `began` then and came to an end `now`.

    `probe`: it was to see whether a partner known to be down can be reached; if not, that uses up
    no retry.

    `hope`: an answer may still come by itself, because receipts are not the response; or there is
    another way to send it.
    """
    began = min(began, now)
    tried = _counted(life, result, began)
    if tried.stage not in AT_WORK:
        return Decision(tried)
    if probe and result is Input.NOT_SENT:
        tried = changed(tried, tries=life.tries)
    if policy.fail_fast and result is Input.NOT_SENT:
        return Decision(_moved(tried, Input.OUT_OF_RETRIES))
    if is_used_up(policy, tried.tries) and not hope:
        return _no_more(tried, policy)
    end = ends_at(policy, tried.created_at, tried.first_sent_at)
    # What calls back has its time from when the message was all there, however long that took.
    due = (now if hope else began) + wait_after(policy, tried.tries, dice)
    due = max(due if end is None else min(due, end), now)
    if probe and result is Input.NOT_SENT:
        # Its partner is paused again: it goes when that is over, whatever its own waits are.
        due = now
    known = decided_by(policy, tried.tries, began, end)
    return Decision(tried, due, None if known is None else max(known, due), ends_at=end)


def _counted(life: Life, result: Input, began: datetime) -> Life:
    """The attempt is counted, and what it left behind."""
    left = result is not Input.NOT_SENT
    open_now = life.unanswered
    stage = follow(TABLE, life.stage, result, doubt=open_now > 0)
    if result is Input.UNANSWERED or result is Input.LEFT:
        open_now += 1
    elif result is Input.ACKNOWLEDGED:
        open_now = 0
    return Life(
        stage,
        life.created_at,
        life.tries + 1,
        open_now,
        life.first_sent_at or began if left else life.first_sent_at,
        began if left else life.last_sent_at,
    )


def _moved(life: Life, given: Input) -> Life:
    return changed(life, stage=follow(TABLE, life.stage, given, doubt=life.unanswered > 0))


def _no_more(life: Life, policy: Policy) -> Decision:
    """The last retry is over: given up, or suspended for an administrator. [RM001-2.6.8-01]"""
    if not policy.suspend:
        return Decision(_moved(life, Input.OUT_OF_RETRIES))
    end = ends_at(policy, life.created_at, life.first_sent_at)
    return Decision(_moved(life, Input.HALTED), end, end, halted=True, ends_at=end)


def interrupted(life: Life, began: datetime) -> Life:
    """Who was sending it is gone: it may have left, at the earliest when that could have begun.

    It is sent again, and no retry is used up. [RM000-1.1-04] [MS098-10.1.1-04]
    """
    return changed(_counted(life, Input.UNANSWERED, began), tries=life.tries)


def woken(life: Life, policy: Policy, now: datetime) -> Decision | None:
    """Its time has come: None to send it, else it is given up.

    [RM000-1.3.1.4-02] [MS098-10.3.1.4-02]
    """
    end = ends_at(policy, life.created_at, life.first_sent_at)
    if end is not None and now >= end:
        return Decision(_moved(life, Input.OUT_OF_TIME))
    if life.stage is Stage.SUSPENDED:
        return Decision(life, end, end)
    if is_used_up(policy, life.tries):
        return _no_more(life, policy)
    return None


def heard(
    life: Life, said: Input, *, under_way: bool = False, attempts: int = 0
) -> Decision | None:
    """A receipt or a refusal that came by itself; None: it changes nothing, or not any more.

    A refusal answers one copy; one that is `under_way` is not counted among the unanswered yet.
    What is in doubt stays so: nobody knows which copy a further refusal is about. Of a message that
    is still at work there is nothing to wait for but what was waited for before.

    `attempts` counts for a unit that is refused after its bundle was acknowledged: of several
    copies of the bundle, the refused one need not be the acknowledged one.
    [OV004-2-04] [OV004-2-05]
    """
    if said not in TABLE[life.stage]:
        return None
    copies = life.unanswered
    if said is Input.ACKNOWLEDGED:
        copies = 0
    elif said is Input.REFUSED:
        copies = max(copies + under_way - 1, 0)
    doubt = attempts + under_way > 1 if said is Input.UNIT_REFUSED else copies > 0
    stage = follow(TABLE, life.stage, said, doubt=doubt)
    return Decision(changed(life, stage=stage, unanswered=copies))


def begun_anew(life: Life, given: Input, now: datetime) -> Decision | None:
    """Somebody resends or resumes: the retries count from the start; None: there is nothing to.

    [RM001-2.6.8-03]
    """
    if given not in TABLE[life.stage]:
        return None
    return Decision(changed(_moved(life, given), tries=0), now)


def settled(life: Life) -> Decision | None:
    """The partner or an operator says what became of it; None: it is not in question."""
    if Input.SETTLED not in TABLE[life.stage]:
        return None
    return Decision(_moved(life, Input.SETTLED))
