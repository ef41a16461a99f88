"""What a partner says about a message that we sent: receipts and errors, believed or not.

The same whether they are the response or come later, as a request of the partner's.
"""

from datetime import datetime

from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.msh.answers import SentMessage, error_problems, receipt_problems
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.node.context import Context
from postroad.node.journaling import about, place
from postroad.reliability.awareness import ANSWERS, Answer, error_said
from postroad.reliability.delivery import Input
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, Signal, Stored
from postroad.wire.ebms3 import Error, SignalMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap_faults import Fault


class Said(Struct, frozen=True):
    """What an envelope means for the message, in the words of `reliability.awareness`."""

    answer: Answer
    error_code: str | None = None
    detail: str | None = None
    signal_id: str | None = None

    @property
    def input(self) -> Input:
        return ANSWERS[self.answer]


class Heard(Struct, frozen=True):
    """One signal about one message, and why it is not believed, if so."""

    signal: SignalMessage
    problems: tuple[EbmsError, ...]

    @property
    def kind(self) -> str:
        return "receipt" if self.signal.receipt is not None else "error"

    @property
    def failure(self) -> Error | None:
        """The error that ends the message."""
        return next((one for one in self.signal.errors if one.severity == "failure"), None)


class Hearing(Struct, frozen=True):
    """An envelope with signals, looked at once for one message."""

    envelope: bytes
    content_type: str
    heard: tuple[Heard, ...]
    problems: tuple[EbmsError, ...]
    """Why there is nothing to hear in it."""
    fault: Fault | None = None

    @property
    def said(self) -> Said | None:
        """What is believed of it: a receipt first, then an error; None when nothing is."""
        for one in self.heard:
            if not one.problems and one.kind == "receipt":
                return Said(Answer.RECEIPT)
        for one in self.heard:
            if not one.problems and one.failure is not None:
                code = one.failure.error_code
                signal_id = one.signal.message_info.message_id
                return Said(error_said(code), code, told_by(one.failure), signal_id)
        return None

    @property
    def disbelieved(self) -> Said | None:
        """What is wrong with what it says."""
        for one in self.heard:
            for wrong in one.problems:
                bad = Answer.BAD_RECEIPT if one.kind == "receipt" else Answer.DISBELIEVED
                return Said(bad, wrong.code, wrong.detail)
        for wrong in self.problems:
            return Said(Answer.DISBELIEVED, wrong.code, wrong.detail)
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
    look = Look(capture, context.in_force.lens(now, context.store.new_sink))
    if await context.read(look):
        await context.judge((look, context.in_force.answer_terms(match)))
    return judged(look.found, capture, match, sent, on_response=on_response)


def judged(
    found: Inspection,
    capture: Capture,
    match: Match | None,
    sent: SentMessage,
    *,
    on_response: bool,
) -> Hearing:
    """What an envelope that was looked at says about a message."""
    wanted = sent.user_message.message_info.message_id
    signals = found.messaging.signals if found.messaging else ()
    heard = []
    for signal in signals:
        ref = signal.message_info.ref_to_message_id
        if ref == wanted or (ref is None and signal.errors and on_response):
            heard.append(_judge(found, signal, match, sent, on_response=on_response))
    problems = tuple(one for one in found.problems if one.severity is Severity.FAILURE)
    kind = str(capture.content_type) if capture.content_type else "application/soap+xml"
    return Hearing(capture.envelope, kind, tuple(heard), problems, found.fault)


def _judge(
    found: Inspection,
    signal: SignalMessage,
    match: Match | None,
    sent: SentMessage,
    *,
    on_response: bool,
) -> Heard:
    if match is None:
        gone = EbmsError("EBMS:0010", "the P-Mode of the message is no longer in force")
        return Heard(signal, (gone,))
    if signal.receipt is not None:
        return Heard(signal, tuple(receipt_problems(found, signal, sent, match)))
    return Heard(signal, tuple(error_problems(found, match, on_response=on_response)))


def noted(
    tx: Transaction, message: Message, hearing: Hearing, now: datetime, peer: str | None
) -> None:
    """Write down what was heard, believed or not: the signals with their bytes, and the events."""
    if not hearing.heard:
        return
    stored = tx.keep(hearing.envelope)
    for one in hearing.heard:
        tx.add_signal(_signal(message, one, hearing, stored, now))
        tx.record(_events(message, one, stored, now, peer))


def _signal(
    message: Message, one: Heard, hearing: Hearing, stored: Stored, now: datetime
) -> Signal:
    failure = one.failure or next(iter(one.signal.errors), None)
    wrong = next(iter(one.problems), None)
    return Signal(
        Side.SENDING,
        message.message_id,
        one.signal.message_info.message_id,
        one.kind,
        True,
        now,
        stored,
        hearing.content_type,
        valid=not one.problems,
        error_code=failure.error_code if failure else wrong.code if wrong else None,
        detail=told_by(failure) if failure else str(wrong) if wrong else None,
    )


def _events(
    message: Message, one: Heard, stored: Stored, now: datetime, peer: str | None
) -> list[Event]:
    """What the journal says: a receipt or errors received, or that they are not believed."""
    common = {
        "signal_id": one.signal.message_info.message_id,
        "peer": peer,
        "evidence": place(stored),
    }
    if one.problems:
        return [
            about(
                message,
                "error_raised",
                now,
                error_code=problem.code,
                severity=problem.severity.value,
                detail=f"{one.kind} not believed: {problem.detail}",
                **common,
            )
            for problem in one.problems[:1]
        ]
    if one.kind == "receipt":
        return [about(message, "receipt_received", now, **common)]
    return [
        about(
            message,
            "error_received",
            now,
            error_code=error.error_code,
            severity=error.severity,
            detail=told_by(error),
            **common,
        )
        for error in one.signal.errors
    ]


def told_by(error: Error) -> str:
    """What a partner's error says, for people."""
    texts = [error.short_description, error.error_detail]
    if error.error_detail is None and error.description is not None:
        texts.append(error.description.text)
    return ": ".join(filter(None, texts))[:2000] or error.error_code
