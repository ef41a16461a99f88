"""What a partner says about a message that we sent: receipts and errors, believed or not.

The same whether they are the response or come later, as a request of the partner's.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import SentMessage, error_problems, receipt_problems
from postroad.msh.capture import Capture
from postroad.msh.expectation import Terms
from postroad.msh.foreseen_receipts import Sent, foreseen_receipts
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection, Lens
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place
from postroad.node.base.refusals import SECURITY_CODES
from postroad.reliability.awareness import ANSWERS, Answer, error_said
from postroad.reliability.delivery import Input
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, Signal, Stored
from postroad.wire.ebms3 import Error, SignalMessage, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap_faults import Fault

_UNPROVEN: Final = (*SECURITY_CODES, "EBMS:0010")
"""Why signals of senders who proved nothing are not believed: EBMS:0010, not on the agreed way."""
_RECEIPT: Final = ANSWERS[Answer.RECEIPT]
_ALTERNATE: Final = "EBMS:0060"


class Said(Struct, frozen=True):
    """What an envelope means for the message."""

    input: Input
    error_code: str | None = None
    detail: str | None = None
    signal_id: str | None = None
    by_error: bool = False
    """An error of the partner says so."""
    doubts: bool = False
    """Who says so does not know whether another copy arrived."""


class Reported(Struct, frozen=True):
    """One error that a partner reports, whatever the protocol."""

    code: str
    severity: str
    """failure or warning"""
    detail: str


EVENTS: Final = {
    "receipt": "receipt_received",
    "acknowledgment": "ack_received",
    "hop": "hop_acked",
}
"""What signals that are not errors are called in the journal, by their kind.

A hop is an acknowledgment of the next station, which says nothing about the receiver.
"""


class Heard(Struct, frozen=True):
    """One signal about one message, and why it is not believed, if so."""

    signal_id: str
    kind: str
    """One of `EVENTS`, or error."""
    problems: tuple[EbmsError, ...] = ()
    meaning: Input | None = None
    """What it does to the message, if it is believed; None: nothing."""
    errors: tuple[Reported, ...] = ()
    doubts: bool = False
    about_number: bool = False
    """It is about the number of the envelope in its sequence, not about this message."""
    unsigned: tuple[str, ...] = ()
    """Unsigned routing headers that the P-Mode allows."""

    @property
    def note(self) -> str | None:
        """What the journal says about a signal that is believed."""
        if not self.unsigned:
            return None
        return f"its signature does not cover {', '.join(self.unsigned)}; the P-Mode accepts that"

    @property
    def failure(self) -> Reported | None:
        """The error that ends the message."""
        return next((one for one in self.errors if one.severity == "failure"), None)


class Hearing(Struct, frozen=True):
    """An envelope with signals, looked at once for one message."""

    envelope: bytes
    content_type: str
    heard: tuple[Heard, ...]
    problems: tuple[EbmsError, ...]
    """Why there is nothing to hear in it."""
    fault: Fault | None = None
    unusable: EbmsError | None = None
    """Why a response is no answer to the message: it cannot be read, or is about something else."""

    @property
    def said(self) -> Said | None:
        """What is believed of it: a receipt first, then an error; None when nothing is."""
        refusal: Said | None = None
        for one in self.heard:
            if one.problems or one.meaning is None:
                continue
            if one.kind != "error":
                return Said(one.meaning)
            if refusal is None:
                told = one.failure or next(iter(one.errors), None)
                code, detail = (told.code, told.detail) if told is not None else (None, None)
                refusal = Said(one.meaning, code, detail, one.signal_id, True, one.doubts)
        return refusal

    @property
    def is_silent(self) -> bool:
        """Whether it neither takes the message nor refuses it, believed or not."""
        doubted = any(one.problems for one in self.heard)
        return self.said is None and self.fault is None and not doubted

    @property
    def moves_reply(self) -> bool:
        """Whether it says that the reply comes by the alternate binding."""
        return any(
            (error.code, error.severity) == (_ALTERNATE, "warning")
            for one in self.heard
            if not one.problems
            for error in one.errors
        )

    @property
    def disbelieved(self) -> Said | None:
        """What is wrong with what it says."""
        for one in self.heard:
            for wrong in one.problems:
                bad = Answer.DISBELIEVED if one.kind == "error" else Answer.BAD_RECEIPT
                return Said(ANSWERS[bad], wrong.code, _not_believed(one, wrong))
        if self.unusable is not None:
            return Said(ANSWERS[Answer.DISBELIEVED], self.unusable.code, self.unusable.detail)
        for wrong in self.problems:
            return Said(ANSWERS[Answer.DISBELIEVED], wrong.code, wrong.detail)
        return None


async def hear(
    context: Context,
    capture: Capture,
    match: Match | None,
    sent: SentMessage,
    now: datetime,
    *,
    on_response: bool,
) -> Hearing:
    """Judge what an envelope says about a message that was sent."""
    lens, terms = (
        context.in_force.lens(now, context.store.new_sink),
        context.in_force.answer_terms(match),
    )
    if match is not None:
        foreseen = heard_as_foreseen(capture, lens, terms, [(sent, match)])
        if foreseen is not None:
            return foreseen[0]
    look = Look(capture, lens)
    if await context.read(look):
        await context.judge((look, terms))
    hearing = judged(look.found, capture, match, sent, on_response=on_response)
    if hearing.heard or not on_response:
        return hearing
    return changed(hearing, unusable=_no_answer(look.found, hearing.problems))


def unreadable(error: EbmsError) -> Hearing:
    """A response that could not even be taken apart."""
    said = f"the partner's answer cannot be read: {error.detail}"
    return Hearing(b"", "", (), (error,), unusable=EbmsError(error.code, said))


def _no_answer(found: Inspection, problems: Sequence[EbmsError]) -> EbmsError | None:
    """Why a response in which nothing is about the message is no answer; None: it says nothing."""
    units = found.messaging.units if found.messaging is not None else ()
    for unit in units:
        if isinstance(unit, UserMessage):
            name = unit.message_info.message_id
            said = f"the partner's answer is the user message {name!r}, which was not asked for"
            return EbmsError("EBMS:0010", said)
        ref = unit.message_info.ref_to_message_id
        if unit.receipt is not None:
            said = f"the partner's answer is a receipt for {ref!r}, not for this message"
            return EbmsError("EBMS:0302", said)
        if unit.errors:
            told = f"{unit.errors[0].error_code} {told_by(unit.errors[0])}"
            said = f"the partner's answer is an error about {ref!r}, not about this message: {told}"
            return EbmsError("EBMS:0003", said)
    for wrong in problems[:1]:
        return EbmsError(wrong.code, f"the partner's answer is not valid: {wrong.detail}")
    return None


def heard_as_foreseen(
    capture: Capture, lens: Lens, terms: Terms, sent: Sequence[Sent]
) -> list[Hearing] | None:
    """What `judged` says of an envelope that holds the receipts for these messages and no more.

    None where it is anything else, or not to be believed.
    """
    ids = foreseen_receipts(capture, lens, terms, sent)
    if ids is None:
        return None
    kind = str(capture.content_type)
    return [
        Hearing(capture.envelope, kind, (Heard(one, "receipt", (), _RECEIPT),), ()) for one in ids
    ]


def judged(
    found: Inspection,
    capture: Capture,
    match: Match | None,
    sent: SentMessage,
    *,
    on_response: bool,
    signals: Sequence[SignalMessage] | None = None,
    wrong_way: Callable[[SignalMessage], list[EbmsError]] | None = None,
) -> Hearing:
    """What an envelope that was looked at says about a message; `signals` are those about it.

    `wrong_way` tells why one is not believed for the way it came.
    """
    wanted = sent.user_message.message_info.message_id
    if signals is None:
        signals = found.messaging.signals if found.messaging else ()
    heard = []
    for signal in signals:
        ref = signal.message_info.ref_to_message_id
        if ref == wanted or (ref is None and signal.errors and on_response):
            wrong = wrong_way(signal) if wrong_way is not None else []
            heard.append(_judge(found, signal, match, sent, wrong, on_response=on_response))
    problems = tuple(one for one in found.problems if one.severity is Severity.FAILURE)
    kind = str(capture.content_type) if capture.content_type else "application/soap+xml"
    return Hearing(capture.envelope, kind, tuple(heard), problems, found.fault)


def _judge(
    found: Inspection,
    signal: SignalMessage,
    match: Match | None,
    sent: SentMessage,
    wrong_way: list[EbmsError],
    *,
    on_response: bool,
) -> Heard:
    if match is None:
        problems = [EbmsError("EBMS:0010", "the P-Mode of the message is no longer in force")]
    elif signal.receipt is not None:
        problems = [*wrong_way, *receipt_problems(found, signal, sent, match)]
    else:
        problems = [*wrong_way, *error_problems(found, match, on_response=on_response)]
    signal_id = signal.message_info.message_id
    if signal.receipt is not None:
        return Heard(
            signal_id, "receipt", tuple(problems), _RECEIPT, unsigned=found.unsigned_routing
        )
    errors = tuple(Reported(one.error_code, one.severity, told_by(one)) for one in signal.errors)
    failure = next((one for one in errors if one.severity == "failure"), None)
    meaning = None if failure is None else ANSWERS[error_said(failure.code)]
    return Heard(
        signal_id, "error", tuple(problems), meaning, errors, unsigned=found.unsigned_routing
    )


def without_repeats(
    context: Context,
    tx: Transaction,
    message: Message,
    hearing: Hearing,
    now: datetime,
    peer: str | None,
) -> Hearing:
    """What was heard, without what is not to be kept once more.

    A signal that is believed is kept once. Only so many are kept for a message, of those that are
    believed and of those that are not, because anybody who knows its id can send some: where
    nothing is signed they are believed. The first of its kind always is kept. Of an envelope that
    proves nothing the beginning is kept.
    """
    limits = context.config.limits.refused
    most = limits.signals
    known = [one for one in tx.signals(message.side, message.message_id) if one.incoming]
    believed = {one.signal_id: one.kind for one in known if one.valid}
    room = most - sum(not one.valid for one in known)
    heard: list[Heard] = []
    for one in hearing.heard:
        if not one.problems:
            if one.signal_id in believed:
                continue
            if len(believed) < most or one.kind not in believed.values():
                believed[one.signal_id] = one.kind
                heard.append(one)
            else:
                detail = f"{one.kind} {one.signal_id}: there are {most} signals about its message"
                context.refusals.count("EBMS:0003", detail, now, peer, message.pmode)
        elif room > 0:
            room -= 1
            heard.append(one)
        else:
            wrong = one.problems[0]
            context.refusals.count(wrong.code, wrong.detail, now, peer, message.pmode)
    if all(one.problems and one.problems[0].code in _UNPROVEN for one in heard):
        hearing = changed(hearing, envelope=hearing.envelope[: limits.message_bytes])
    return changed(hearing, heard=tuple(heard))


def noted(
    tx: Transaction,
    message: Message,
    hearing: Hearing,
    now: datetime,
    peer: str | None,
    keep: Callable[[bytes], Stored] | None = None,
) -> None:
    """Write down what was heard, believed or not: the signals with their bytes, and the events."""
    wrong = hearing.unusable
    if wrong is not None:
        tx.record((_raised(message, wrong, wrong.detail, now, peer=peer),))
    if not hearing.heard:
        return
    stored = (keep or tx.keep)(hearing.envelope)
    for one in hearing.heard:
        tx.add_signal(heard_signal(message, one, hearing, stored, now))
        tx.record(heard_events(message, one, stored, now, peer))


def heard_signal(
    message: Message, one: Heard, hearing: Hearing, stored: Stored, now: datetime
) -> Signal:
    """The signal as it is kept."""
    failure = (one.failure or one.errors[0]) if one.errors else None
    wrong = one.problems[0] if one.problems else None
    return Signal(
        message.side,
        message.message_id,
        one.signal_id,
        one.kind,
        True,
        now,
        stored,
        hearing.content_type,
        valid=not one.problems,
        error_code=failure.code if failure else wrong.code if wrong else None,
        detail=failure.detail if failure else str(wrong) if wrong else None,
        refusal=(
            one.kind == "error"
            and not one.problems
            and one.meaning is Input.REFUSED
            and not one.about_number
        ),
    )


def heard_events(
    message: Message, one: Heard, stored: Stored, now: datetime, peer: str | None
) -> list[Event]:
    """What the journal says: a receipt or errors received, or that they are not believed."""
    common = {
        "signal_id": one.signal_id,
        "peer": peer,
        "evidence": place(stored),
    }
    if one.problems:
        return [
            _raised(message, problem, _not_believed(one, problem), now, **common)
            for problem in one.problems[:1]
        ]
    known = []
    if one.kind in EVENTS:
        known.append(about(message, EVENTS[one.kind], now, detail=one.note, **common))
    return known + [
        about(
            message,
            # Only who sent a message receives errors about it; who carries it finds that there are.
            "error_received" if message.side is Side.SENDING else "error_raised",
            now,
            error_code=error.code,
            severity=error.severity,
            detail="; ".join(filter(None, (error.detail, one.note))),
            **common,
        )
        for error in one.errors
    ]


def _raised(message: Message, problem: EbmsError, detail: str, now: datetime, **more: Any) -> Event:
    code, severity = problem.code, problem.severity.value
    return about(
        message, "error_raised", now, error_code=code, severity=severity, detail=detail, **more
    )


def _not_believed(one: Heard, problem: EbmsError) -> str:
    """Why a signal is not believed; one that holds neither a receipt nor an error is no error."""
    kind = "signal" if one.kind == "error" and not one.errors else one.kind
    return f"{kind} not believed: {problem.detail}"


def told_by(error: Error) -> str:
    """What a partner's error says, for people."""
    texts = [error.short_description, error.error_detail]
    if error.error_detail is None and error.description is not None:
        texts.append(error.description.text)
    return ": ".join(filter(None, texts))[:2000] or error.error_code


def by_reference(found: Inspection) -> dict[str | None, list[SignalMessage]]:
    """The signals of an envelope, by what they are about."""
    signals: dict[str | None, list[SignalMessage]] = {}
    for one in found.messaging.signals if found.messaging is not None else ():
        signals.setdefault(one.message_info.ref_to_message_id, []).append(one)
    return signals
