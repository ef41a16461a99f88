"""Answers about sequences that come by themselves, where intermediaries store and forward.

What was asked is kept under its wsa:MessageID. Who asked waits for the answer a while; one that
comes later is taken all the same, and serves the next message (Part 2, D.1 and F.2).
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.agreement.reliable import wsrm_of
from postroad.node.base.context import Context
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.wsrm_states import SourceRecord, read_state, write_state
from postroad.reliability import wsrm
from postroad.reliability.wsrm import Source, SourceStage
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Work
from postroad.wire.soap import Envelope
from postroad.wire.wsa import message_id_of, read_addressing
from postroad.wire.wsrm import (
    CloseSequenceResponse,
    CreateSequenceResponse,
    Lifecycle,
    TerminateSequenceResponse,
)
from postroad.wire.wsrm_faults import RmFault

ANSWERS: Final = (CreateSequenceResponse, CloseSequenceResponse, TerminateSequenceResponse)
_ASK_AGAIN: Final = timedelta(minutes=5)
"""So long nobody asks for a sequence that was asked for: the question is on its way."""


class Question(Struct, frozen=True):
    """What was asked about the sequence of a key, and what came of it."""

    message_id: str
    key: str
    pmode: str
    leg: int
    at: datetime
    answered: bool = False
    fault: RmFault | None = None


def name_of(message_id: str) -> str:
    """By what those who wait for the answer are told."""
    return f"~wsrm:question:{message_id}"


def _pending(key: str) -> str:
    return f"~wsrm:asking for:{key}"


def question_of(reader: Reader, message_id: str) -> Question | None:
    return read_state(reader, name_of(message_id), Question)


def question_about(reader: Reader, envelope: Envelope) -> Question | None:
    """What a message answers, by its wsa:RelatesTo."""
    addressing, _ = read_addressing(envelope)
    for one in addressing.relates_to if addressing is not None else ():
        question = question_of(reader, message_id_of(one.uri))
        if question is not None:
            return question
    return None


def pending(reader: Reader, key: str, now: datetime) -> Question | None:
    """The question for a sequence that is still to be answered."""
    asked = reader.state(_pending(key))
    found = question_of(reader, asked.decode()) if asked is not None else None
    if found is None or found.answered or now >= found.at + _ASK_AGAIN:
        return None
    return found


def keep(tx: Transaction, question: Question, now: datetime) -> None:
    """A question is about to be asked."""
    write_state(tx, name_of(question.message_id), question, now)


def await_sequence(tx: Transaction, question: Question, now: datetime) -> None:
    """A sequence was asked for, and the answer comes later: nobody else asks meanwhile.

    Not before that is known. Who dies while it asks may be answered by the response, which nobody
    hears any more: then the next one asks again.
    """
    tx.set_state(_pending(question.key), question.message_id.encode(), now)


def forget(tx: Transaction, question: Question, now: datetime) -> None:
    """Its answer was the response, or nobody heard it."""
    write_state(tx, name_of(question.message_id), None, now)
    tx.set_state(_pending(question.key), None, now)


async def awaited(context: Context, message_id: str, patience: float) -> Question | None:
    """The question as soon as it is answered; None: it was not in time."""

    async def look() -> Question | None:
        found = await context.store.look(lambda reader: question_of(reader, message_id))
        return found if found is not None and found.answered else None

    return await context.settled.until(name_of(message_id), look, patience)


def answered(
    question: Question,
    match: Match,
    answer: Lifecycle | None,
    fault: RmFault | None,
    now: datetime,
) -> Callable[[Transaction], None]:
    """The step that takes an answer: a sequence is made, or closed, or none is."""

    def step(tx: Transaction) -> None:
        known = question_of(tx, question.message_id)
        if known is None or known.answered:
            return
        if isinstance(answer, CreateSequenceResponse):
            opened(tx, question.key, match, answer, now)
        write_state(
            tx, name_of(question.message_id), changed(known, answered=True, fault=fault), now
        )
        tx.set_state(_pending(question.key), None, now)

    return step


def opened(
    tx: Transaction, key: str, match: Match, answer: CreateSequenceResponse, now: datetime
) -> None:
    """The partner made a sequence; what the one before left behind begins it."""
    agreed, known = wsrm_of(match.leg), states.source_of(tx, key)
    assert agreed is not None
    if known is not None and known.source.stage is SourceStage.OPEN:
        # Another one was quicker: this one is never used, and forgotten.
        return
    source = wsrm.created(wsrm.asked(Source(), "", now), answer.identifier, answer.expires, now)
    if known is not None and known.timer is not None:
        tx.finish_work(known.timer)
    timer = tx.add_work(Work("sequence_end", key, now + agreed.max_idle))
    made = SourceRecord(source, match.pmode.id, match.number, agreed.in_order, timer)
    states.opened(tx, key, known, made, now)
