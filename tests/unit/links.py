"""Parties, terms, answers and a Sender with a clock, for the tests of links."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from postroad.reliability import link
from postroad.reliability.link import (
    TPA,
    Ack,
    AnswerHeader,
    ErrorClass,
    ErrorMessage,
    MessageType,
    News,
    PartyID,
    Report,
    Send,
    SenderState,
    SenderStep,
    Stage,
    Triple,
    Wake,
)

START = datetime(2025, 1, 1, tzinfo=UTC)
ACME = PartyID("acme", "urn:msh")
GLOBEX = PartyID("globex", "urn:msh")
HUB = PartyID("hub", "urn:msh")
HTTP = Triple(ACME, GLOBEX, "http")
SMTP = Triple(ACME, GLOBEX, "smtp")
TERMS = TPA(timeout=10, retries=3, retry_interval=5)
REFUSED_NUMBERS = {
    "zero": 0,
    "negative": -1,
    "one too great": 2**32,
    "too great to print": 10**5000,
    "truth": True,
    "real": 1.0,
    "text": "1",
    "none": None,
}
LEFT: tuple[News, ...] = (News.COMPLETED, News.MESSAGING_ERROR)
UNDER_WAY = (Stage.SENT, Stage.RETRY_WAIT, Stage.SUSPENDED_TRANSIENT, Stage.SUSPENDED_ADMIN)


def header(message_id: str, kind: MessageType, **changes: Any) -> AnswerHeader:
    fields: dict[str, Any] = {"from_id": GLOBEX, "to_id": ACME}
    fields |= {"tpa_id": "tpa-1", "conversation_id": "c-1"}
    return AnswerHeader(**fields | changes, ref_to_message_id=message_id, message_type=kind)


def ack(message_id: str, **changes: Any) -> Ack:
    return Ack(header(message_id, MessageType.ACKNOWLEDGEMENT, **changes))


def error(message_id: str, error_class: ErrorClass, seconds: int | None = None) -> ErrorMessage:
    return ErrorMessage(header(message_id, MessageType.ERROR), error_class, seconds, "so it is")


def protocol_error(message_id: str) -> ErrorMessage:
    return error(message_id, ErrorClass.PROTOCOL_ERROR)


def messaging_error(message_id: str) -> ErrorMessage:
    return error(message_id, ErrorClass.MESSAGING_ERROR)


def transient_error(message_id: str, seconds: int | None = None) -> ErrorMessage:
    return error(message_id, ErrorClass.TRANSIENT_ERROR, seconds)


class Sender:
    """A Sender with a clock of its own, and a list of what it did."""

    def __init__(self, tpa: TPA = TERMS, state: SenderState | None = None) -> None:
        self.tpa = tpa
        self.state = state or SenderState(GLOBEX)
        self.seconds = 0
        self.sent: list[tuple[int, str, int | None]] = []
        self.reports: list[Report] = []
        self.wake_at: datetime | None = None
        self.ids = (f"m{number}" for number in itertools.count())

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def did(self, step: SenderStep) -> tuple[object, ...]:
        self.state = step.state
        self.wake_at = None
        for action in step.actions:
            if isinstance(action, Send):
                self.sent.append((self.seconds, action.message_id, action.sequence_number))
            elif isinstance(action, Report):
                self.reports.append(action)
            elif isinstance(action, Wake):
                self.wake_at = action.at
        return step.actions

    def submit(self, message_id: str, triple: Triple = HTTP, **options: Any) -> tuple[object, ...]:
        step = link.submit(self.state, triple, message_id, self.now, self.tpa, **options)
        return self.did(step)

    def hear(self, answer: Ack | ErrorMessage) -> tuple[object, ...]:
        return self.did(link.hear(self.state, answer, self.now, self.tpa))

    def fail(self, message_id: str) -> tuple[object, ...]:
        return self.did(link.transport_failed(self.state, message_id, self.now, self.tpa))

    def resume(self) -> tuple[object, ...]:
        return self.did(link.resume(self.state, self.now, self.tpa))

    def forget(self, idle: int) -> None:
        self.state = link.forget(self.state, self.now, timedelta(seconds=idle))

    def wait(self, seconds: int) -> None:
        """Time passes, and every alarm is heeded when it rings."""
        end = self.now + timedelta(seconds=seconds)
        while self.wake_at is not None and self.wake_at <= end:
            self.seconds = int((self.wake_at - START).total_seconds())
            self.did(link.wake(self.state, self.now, self.tpa))
        self.seconds = int((end - START).total_seconds())

    @property
    def news(self) -> list[News]:
        return [report.news for report in self.reports]

    def stage(self, triple: Triple = HTTP) -> Stage:
        found = [each.stage for each in self.state.links if each.triple == triple]
        return found[0] if found else Stage.IDLE


def made_to_wait(stage: Stage) -> Sender:
    """A Sender with a message under way and one behind it, in the stage."""
    sender = Sender(TPA(10, 0 if stage is Stage.SUSPENDED_ADMIN else 3, 5))
    sender.submit("a")
    sender.submit("b")
    if stage is Stage.RETRY_WAIT:
        sender.fail("a")
    elif stage is Stage.SUSPENDED_TRANSIENT:
        sender.hear(transient_error("a", 60))
    elif stage is Stage.SUSPENDED_ADMIN:
        sender.wait(10)
    assert sender.stage() is stage
    return sender
