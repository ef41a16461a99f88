"""The sender of ebXML reliable messaging (draft 000; 0.98b, section 10).

The life of what is sent is that of `delivery`. Here is added over which of the agreed protocols it
goes, as retries count for each of them; what an answer means, which depends on who gives it; and
the delivery failure notification. An MSH on the way that acknowledges has taken a message over;
that says nothing about the To Party.

Two rules for who edits this file: all that affects these decisions stands here; what is not in a
table does not happen.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy, is_used_up, remaining
from postroad.reliability import delivery, order
from postroad.reliability.delivery import AT_WORK, KINDS, Decision, Input, Life, Stage
from postroad.reliability.ebxml import AckType, Kind, Message, Signal, report
from postroad.reliability.ebxml_terms import (
    Error,
    ErrorCode,
    OrderSemantics,
    Severity,
    Terms,
    retrying,
)
from postroad.reliability.schedule import ends_at
from postroad.reliability.tables import follow


class Course(Struct, frozen=True):
    """The life of a message, and over which of the agreed protocols it goes; durable with it."""

    life: Life
    protocol: int = 0


def policy(terms: Terms, created_at: datetime) -> Policy:
    """The terms as the schedule of a message that was created then."""
    time_to_live = None if terms.time_to_live is None else terms.time_to_live - created_at
    return changed(retrying(terms), time_to_live=time_to_live)


def number(
    terms: Terms, numbering: order.Numbering, unacknowledged: int
) -> tuple[order.SequenceNumber | None, order.Numbering]:
    """The SequenceNumber of the next message, where order is guaranteed. [MS098-8.4.8-04]"""
    if not terms.is_reliable or terms.message_order_semantics is OrderSemantics.NOT_GUARANTEED:
        return None, numbering
    return order.number_next(numbering, unacknowledged)


def attempted(
    course: Course,
    result: Input,
    terms: Terms,
    *,
    began: datetime,
    now: datetime,
    dice: float = 0.0,
) -> tuple[Course, Decision]:
    """What follows from an attempt; retries count for each protocol. [MS098-10.2.7-01]"""
    life = course.life
    if result is Input.UNANSWERED and not terms.is_protocol_followed:
        result = Input.LEFT
    rules = policy(terms, life.created_at)
    others = _protocols_left(course, terms)
    hope = not terms.sync_reply and (result is Input.UNANSWERED or life.unanswered > 0)
    decision = delivery.attempted(
        life, result, rules, began=began, now=now, dice=dice, hope=hope or others > 0
    )
    if others and decision.decided_by and (more := remaining(rules, 1)) is not None:
        end = ends_at(rules, life.created_at, decision.life.first_sent_at)
        later = decision.decided_by + more * others
        decision = changed(decision, decided_by=later if end is None else min(later, end))
    return changed(course, life=decision.life), decision


def _protocols_left(course: Course, terms: Terms) -> int:
    """How many other protocols the CPA allows after this one. [RM000-1.3.1.4-05]"""
    return max(len(terms.protocols) - course.protocol - 1, 0) if terms.is_protocol_followed else 0


def woken(course: Course, terms: Terms, now: datetime) -> tuple[Course, Decision | None]:
    """Its time has come: None to send it, by the next protocol if need be; else it is given up.

    [RM000-1.3.1.4-04] [RM000-1.3.1.4-05]
    """
    rules = policy(terms, course.life.created_at)
    if (
        course.life.stage in AT_WORK
        and is_used_up(rules, course.life.tries)
        and _protocols_left(course, terms)
    ):
        course = Course(changed(course.life, tries=0), course.protocol + 1)
    decision = delivery.woken(course.life, rules, now)
    return (course if decision is None else changed(course, life=decision.life)), decision


def begun_anew(course: Course, given: Input, now: datetime) -> tuple[Course, Decision | None]:
    """Somebody resends or resumes: from the first protocol, with all retries; None: nothing to."""
    decision = delivery.begun_anew(course.life, given, now)
    return (course, None) if decision is None else (Course(decision.life), decision)


class Word(StrEnum):
    """What an answer says about a message."""

    ACKNOWLEDGED = "the To Party has it"
    TAKEN_OVER = "the next MSH has it"
    REFUSED = "it was refused"
    NOT_NOW = "the To Party has no room for it now"
    DOUBTED = "it was passed on, and nobody acknowledged it"
    NOTHING = "nothing about its delivery"
    FOREIGN = "nothing, as somebody says it who has no part in the message"


WORDS: Final[Mapping[Word, Input]] = {
    Word.ACKNOWLEDGED: Input.ACKNOWLEDGED,
    Word.TAKEN_OVER: Input.LEFT,
    Word.REFUSED: Input.REFUSED,
    Word.NOT_NOW: Input.TURNED_AWAY,
    Word.DOUBTED: Input.REFUSED,
}
"""What it does to the message (`delivery`); DOUBTED is a refusal that leaves a doubt."""


def said(sent: Message, terms: Terms, answer: Message) -> Word:
    """What an answer says about the message to which it refers, by what it is and whose it is."""
    by_to_party = answer.from_party == sent.to_party
    by_next = sent.hop is not None and answer.from_party == sent.hop.receiver_uri
    if answer.kind is Kind.ERROR or _is_error(answer.error):
        if not (by_to_party or by_next or terms.hops):
            return Word.FOREIGN
        word = _error_said(answer.error, by_to_party)
        # MSHs on the way may have sent several copies, of which one was refused.
        doubtful = word is Word.REFUSED and by_to_party and terms.hops
        return Word.DOUBTED if doubtful else word
    if by_to_party:
        return Word.ACKNOWLEDGED
    if not by_next:
        return Word.FOREIGN
    if answer.acknowledgment is None:
        return Word.TAKEN_OVER if terms.hops else Word.ACKNOWLEDGED
    final = answer.acknowledgment.type is AckType.DELIVERY_RECEIPT
    return Word.ACKNOWLEDGED if final else Word.TAKEN_OVER


def _is_error(error: Error | None) -> bool:
    """Whether it says more than that something could be better, on whatever message it rides."""
    return error is not None and (error.severity is Severity.ERROR or _is_failure(error))


def _is_failure(error: Error | None) -> bool:
    """Whether it is a delivery failure; one of severity Warning rides on any message."""
    return error is not None and error.code is ErrorCode.DELIVERY_FAILURE


def _error_said(error: Error | None, by_to_party: bool) -> Word:
    if error is not None and error.severity is Severity.WARNING:
        return Word.DOUBTED if _is_failure(error) else Word.NOTHING
    return Word.NOT_NOW if _is_failure(error) and by_to_party else Word.REFUSED


def hear(course: Course, word: Word, *, under_way: bool = False) -> tuple[Course, Decision | None]:
    """What an answer does to a message, however late it comes, and however often.

    None: it is no nearer to its end, and its timer goes on. `under_way`: so is another copy.
    [OV004-2-04] [OV004-2-05]
    """
    life, given = course.life, WORDS.get(word)
    decision = None if given is None else delivery.heard(life, given, under_way=under_way)
    if decision is None:
        return course, None
    if word is Word.DOUBTED:
        if follow(delivery.TABLE, life.stage, Input.REFUSED, doubt=True) is not Stage.IN_DOUBT:
            return course, None
        decision = changed(decision, life=changed(life, stage=Stage.IN_DOUBT))
    stage = decision.life.stage
    same = stage is life.stage or stage in AT_WORK
    return changed(course, life=decision.life), None if same else decision


def notice(message: Message, terms: Terms, stage: Stage, party: str) -> Signal | None:
    """The delivery failure notification of a message that `party` gave up.

    None for what is not given up, with BestEffort, and about an acknowledgment or an error, a
    notification included. [RM000-1.4-02] [RM000-1.4-05] [MS098-10.4-01]
    """
    if stage not in KINDS or not terms.is_reliable:
        return None
    severity = Severity(KINDS[stage])
    why = "it could not be sent" if severity is Severity.ERROR else "it was not acknowledged"
    error = Error(ErrorCode.DELIVERY_FAILURE, why, severity)
    return report(message, party, error, terms.delivery_semantics)
