"""The older Reliable Messaging draft (001): one link per Sender, Receiver and transport.

The Sender numbers its reliable messages 1, 2, 3 … and has only one of them under way: the next one
leaves when the Receiver has acknowledged the last. Hence the Receiver needs little memory to know a
repetition, and the order is kept. What goes wrong belongs to one of four classes, each with its own
recovery; the retries of all classes are counted together, and after the last one the Receiver is
suspended until an administrator resumes. A suspension is of the Receiver, so it holds up all links
to it. Only answers (acknowledgements, errors) are never held up.

What the draft leaves open, and how it is read here:

- `idle` is a link without sequence number information: its next message has the number 1.
- An ebXML Messaging Error ends the transmission, and the next message leaves. Whether the Receiver
  counted the refused number nobody knows; 1 is what every Receiver takes, so numbering begins anew.
- A retry is a copy that leaves again. A further error about a copy that is known to have failed
  neither counts nor makes its wait longer, unless it asks for a suspension.
- Resuming ends every suspension, that for MinRetrySecs too. Nothing else ends one of the
  administrator's: a late acknowledgement completes its message, and the next one still waits.
- Case (2) looks at numbers alone. Two messages under one number would then lose the second behind
  an acknowledgement, so the same number on another MessageId is case (4), or (3) when it is 1.
- A MessageId that is remembered is a repetition whatever its number says. That is the only guard
  against a late copy of a message that had the number 1, so `Rules.remember` must not be small.

Two rules for who edits this file: all that affects the machines stands here; what is not in a
table does not happen (`Impossible`). An answer that fits nothing under way is reported and changes
nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.reliability.tables import follow

MAX_SEQUENCE_NUMBER: Final = 2**32 - 1
QUEUE_LIMIT: Final = 1000


class Stage(StrEnum):
    """Where the transmission over one link stands."""

    IDLE = "idle"
    SENT = "sent"
    RETRY_WAIT = "retry_wait"
    SUSPENDED_TRANSIENT = "suspended_transient"
    SUSPENDED_ADMIN = "suspended_admin"
    DONE = "done"


class Input(StrEnum):
    """What happens to a link; the first four are the draft's classes of errors. [RM001-2.6.1-01]"""

    PROTOCOL_ERROR = "Communication Protocol Error"
    MESSAGING_ERROR = "ebXML Messaging Error"
    TIMEOUT = "Timeout"
    TRANSIENT_ERROR = "Transient Error"
    NEXT = "the next message may leave"
    ACKNOWLEDGED = "Acknowledgement"
    ELAPSED = "the wait is over"
    HELD = "it would leave, and the Receiver is suspended for a time"
    STOPPED = "it would leave, and the Receiver waits for the administrator"
    EXHAUSTED = "an error, and no retry is left"
    RESUMED = "the administrator resumed"
    FORGOTTEN = "nothing was sent for a long time"


_S, _I = Stage, Input

TABLE: Final[Mapping[Stage, Mapping[Input, Stage]]] = {
    _S.IDLE: {_I.NEXT: _S.SENT},
    _S.DONE: {_I.NEXT: _S.SENT, _I.FORGOTTEN: _S.IDLE},
    _S.SENT: {
        _I.ACKNOWLEDGED: _S.DONE,
        _I.PROTOCOL_ERROR: _S.RETRY_WAIT,
        _I.MESSAGING_ERROR: _S.IDLE,
        _I.TIMEOUT: _S.SENT,
        _I.TRANSIENT_ERROR: _S.SUSPENDED_TRANSIENT,
        _I.HELD: _S.SUSPENDED_TRANSIENT,
        _I.STOPPED: _S.SUSPENDED_ADMIN,
        _I.EXHAUSTED: _S.SUSPENDED_ADMIN,
    },
    _S.RETRY_WAIT: {
        _I.ACKNOWLEDGED: _S.DONE,
        _I.PROTOCOL_ERROR: _S.RETRY_WAIT,
        _I.MESSAGING_ERROR: _S.IDLE,
        _I.TRANSIENT_ERROR: _S.SUSPENDED_TRANSIENT,
        _I.ELAPSED: _S.SENT,
        _I.HELD: _S.SUSPENDED_TRANSIENT,
        _I.STOPPED: _S.SUSPENDED_ADMIN,
    },
    _S.SUSPENDED_TRANSIENT: {
        _I.ACKNOWLEDGED: _S.DONE,
        _I.PROTOCOL_ERROR: _S.SUSPENDED_TRANSIENT,
        _I.MESSAGING_ERROR: _S.IDLE,
        _I.TRANSIENT_ERROR: _S.SUSPENDED_TRANSIENT,
        _I.ELAPSED: _S.SENT,
        _I.HELD: _S.SUSPENDED_TRANSIENT,
        _I.STOPPED: _S.SUSPENDED_ADMIN,
        _I.RESUMED: _S.SENT,
    },
    _S.SUSPENDED_ADMIN: {
        _I.ACKNOWLEDGED: _S.DONE,
        _I.PROTOCOL_ERROR: _S.SUSPENDED_ADMIN,
        _I.MESSAGING_ERROR: _S.IDLE,
        _I.TRANSIENT_ERROR: _S.SUSPENDED_ADMIN,
        _I.RESUMED: _S.SENT,
    },
}


class DeliverySemantics(StrEnum):
    AT_MOST_ONCE = "AtMostOnce"
    """A reliable message. [RM001-2.1-02]"""
    UNSPECIFIED = "Unspecified"


class MessageType(StrEnum):
    NORMAL = "Normal"
    ACKNOWLEDGEMENT = "Acknowledgement"
    ERROR = "Error"


class ErrorClass(StrEnum):
    """The classes that an error message can tell of; each is an `Input` of the same name."""

    PROTOCOL_ERROR = "Communication Protocol Error"
    MESSAGING_ERROR = "ebXML Messaging Error"
    TRANSIENT_ERROR = "Transient Error"


class LinkError(ValueError):
    """What this discipline refuses."""


class InvalidSequenceNumber(LinkError):
    """No whole number from 1 to 4294967295."""


class InvalidArgument(LinkError):
    """A setting, or a number of seconds in a message, that makes no sense."""


class WrongTriple(LinkError):
    """The message belongs to another link."""


class AlreadySubmitted(LinkError):
    """A message with this MessageId waits or is under way."""


class QueueFull(LinkError):
    """As many messages wait as may wait."""


def sequence_number(value: object) -> int:
    """The value, if it can be a SequenceNumber. [RM001-2.2.3-05]"""
    if type(value) is int and 1 <= value <= MAX_SEQUENCE_NUMBER:
        return value
    raise InvalidSequenceNumber(f"SequenceNumber is no integer from 1 to {MAX_SEQUENCE_NUMBER}")


def next_number(last: int | None) -> int:
    """The number after `last`; 1 when none is known, and after the greatest.

    [RM001-2.1-06] [RM001-2.2.3-06] [RM001-2.2.3-07] [RM001-2.2.3-08]
    """
    if last is None or sequence_number(last) == MAX_SEQUENCE_NUMBER:
        return 1
    return last + 1


def check_least(name: str, value: object, least: int) -> None:
    if type(value) is not int or not least <= value <= MAX_SEQUENCE_NUMBER:
        raise InvalidArgument(f"{name} is no integer from {least} to {MAX_SEQUENCE_NUMBER}")


class TPA(Struct, frozen=True):
    """The arguments of the Trading Partner Agreement (section 5), in seconds."""

    timeout: int
    """How long to wait for any response before the first retry. [RM001-5-01]"""
    retries: int
    retry_interval: int
    """How long to wait for any response after a retry. [RM001-5-04]"""

    def __post_init__(self) -> None:
        check_least("Timeout", self.timeout, 1)
        check_least("Retries", self.retries, 0)
        check_least("RetryInterval", self.retry_interval, 1)


class PartyID(Struct, frozen=True):
    """The logical address of a Messaging Service Handler."""

    value: str
    context: str | None = None
    message_service_id: str | None = None
    """Where a party has several (Editor Note 5)."""


class Triple(Struct, frozen=True):
    """What a link is between, and over which transport."""

    sender_id: PartyID
    receiver_id: PartyID
    transport: str


class AnswerHeader(Struct, frozen=True):
    """What stands in the header of an acknowledgement or error; no ServiceInterface, no Action."""

    from_id: PartyID
    to_id: PartyID
    tpa_id: str
    conversation_id: str
    ref_to_message_id: str
    message_type: MessageType
    delivery_semantics: DeliverySemantics = DeliverySemantics.UNSPECIFIED


class Ack(Struct, frozen=True):
    header: AnswerHeader


class ErrorMessage(Struct, frozen=True):
    header: AnswerHeader
    error_class: ErrorClass
    min_retry_secs: int | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        if self.min_retry_secs is not None:
            check_least("MinRetrySecs", self.min_retry_secs, 0)


class Store(Struct, frozen=True):
    """Put it in persistent storage, before anything that follows in the same step."""

    message_id: str


class Send(Struct, frozen=True):
    """Let a copy of the message leave. Triple and number are its Routing Header."""

    message_id: str
    triple: Triple
    sequence_number: int | None = None
    """None for an unreliable message. [RM001-2.2.2-03]"""


class Wake(Struct, frozen=True):
    """Call `wake` at this time. It takes the place of every earlier one."""

    at: datetime


class News(StrEnum):
    """What can be told of a message or a Receiver."""

    COMPLETED = "the Receiver has it"
    ACKNOWLEDGED_AGAIN = "a further acknowledgement of the message before"
    NOT_FITTING = "an answer or a failure that belongs to nothing under way"
    MESSAGING_ERROR = "the Receiver found an error in it"
    SUSPENDED_TRANSIENT = "the Receiver wants nothing for a time"
    SUSPENDED_ADMIN = "the last retry failed; an administrator is needed"
    RESUMED = "sending goes on"


class Report(Struct, frozen=True):
    """What a Sender tells the level above: the application, or the administrator."""

    news: News
    receiver_id: PartyID
    message_id: str | None = None
    copies: int = 0
    """How many left. When one of several was refused, another may still have been taken."""
    cause: Input | None = None
    until: datetime | None = None
    detail: str = ""


class Link(Struct, frozen=True):
    """What a Sender knows of one triple."""

    triple: Triple
    stage: Stage = Stage.IDLE
    sequence_number: int | None = None
    """Of the last message."""
    message_id: str | None = None
    """Of the message under way."""
    copies: int = 0
    retries: int = 0
    """Of all error classes, since it was first sent or the administrator resumed."""
    due: datetime | None = None
    """Until when it waits: for an answer, for the retry, or for the end of the suspension."""
    completed: str | None = None
    """MessageId of the last message that was acknowledged."""
    completed_at: datetime | None = None
    """When that was; None while another one is under way."""
    queue: tuple[str, ...] = ()
    """MessageIds of those that wait, in order."""


class SenderState(Struct, frozen=True):
    """What a Sender knows of one Receiver: the links to it, and whether it is suspended."""

    receiver_id: PartyID
    links: tuple[Link, ...] = ()
    """Those of which there is something to know."""
    suspended_until: datetime | None = None
    suspended: bool = False
    """Until an administrator resumes."""
    held: tuple[Send, ...] = ()
    """Unreliable messages that wait for the end of the suspension."""

    def is_suspended(self, now: datetime) -> bool:
        return self.suspended or (self.suspended_until is not None and now < self.suspended_until)


class SenderStep(NamedTuple):
    """The state to commit and then, in this order, what to do."""

    state: SenderState
    actions: tuple[Store | Send | Report | Wake, ...]


def submit(
    state: SenderState,
    triple: Triple,
    message_id: str,
    now: datetime,
    tpa: TPA,
    *,
    semantics: DeliverySemantics = DeliverySemantics.AT_MOST_ONCE,
    limit: int = QUEUE_LIMIT,
) -> SenderStep:
    """A message is to be sent: it leaves, or waits for its turn. [RM001-2.3-04] [RM001-2.3-05]"""
    if triple.receiver_id != state.receiver_id:
        raise WrongTriple("the message goes to another Receiver")
    if any(message_id == link.message_id or message_id in link.queue for link in state.links):
        raise AlreadySubmitted(f"{message_id} waits or is under way")
    link = next((link for link in state.links if link.triple == triple), Link(triple))
    reliable = semantics is DeliverySemantics.AT_MOST_ONCE
    if len(link.queue if reliable else state.held) >= limit:
        raise QueueFull(f"{limit} messages wait already")
    if reliable:
        state = _with(state, changed(link, queue=(*link.queue, message_id)))
        return _go_on(SenderStep(state, (Store(message_id),)), now, tpa)
    held = (*state.held, Send(message_id, triple))
    return _go_on(SenderStep(changed(state, held=held), ()), now, tpa)


def hear(state: SenderState, answer: Ack | ErrorMessage, now: datetime, tpa: TPA) -> SenderStep:
    """An acknowledgement or error came; it is not answered. [RM001-2.3-09] [RM001-2.6.7-03]"""
    link = _answered(state, answer.header)
    if link is None:
        return _go_on(SenderStep(state, (_stray(state, answer),)), now, tpa)
    if isinstance(answer, Ack):
        return _go_on(_after(state, link, Input.ACKNOWLEDGED, now, tpa), now, tpa)
    if answer.error_class is ErrorClass.TRANSIENT_ERROR:
        state = _suspended(state, answer.min_retry_secs, now, tpa)
    what = Input(answer.error_class.value)
    return _go_on(_after(state, link, what, now, tpa, answer.detail), now, tpa)


def transport_failed(
    state: SenderState, message_id: str, now: datetime, tpa: TPA, detail: str = ""
) -> SenderStep:
    """The transport met an error from which it cannot recover by itself. [RM001-2.6.3-02]"""
    report = Report(News.NOT_FITTING, state.receiver_id, message_id, detail=detail)
    step = SenderStep(state, (report,))
    for link in state.links:
        if link.message_id == message_id:
            step = _after(state, link, Input.PROTOCOL_ERROR, now, tpa, detail)
    return _go_on(step, now, tpa)


def wake(state: SenderState, now: datetime, tpa: TPA) -> SenderStep:
    """Time has passed: answers are missing, waits and suspensions are over. [RM001-2.4-01]"""
    if state.suspended_until is not None and state.suspended_until <= now:
        state = changed(state, suspended_until=None)
    step = SenderStep(state, ())
    for link in state.links:
        if link.due is not None and link.due <= now:
            what = Input.TIMEOUT if link.stage is Stage.SENT else Input.ELAPSED
            step = _and(step, _after(step.state, link, what, now, tpa))
    return _go_on(step, now, tpa)


def resume(state: SenderState, now: datetime, tpa: TPA) -> SenderStep:
    """The administrator resolved it: retries count from zero, the unfinished message goes first.

    [RM001-2.6.8-03]
    """
    if not state.is_suspended(now):
        return _go_on(SenderStep(state, ()), now, tpa)
    open_again = changed(state, suspended=False, suspended_until=None)
    step = SenderStep(open_again, (Report(News.RESUMED, state.receiver_id),))
    for link in state.links:
        if Input.RESUMED in TABLE[link.stage]:
            step = _and(step, _after(step.state, link, Input.RESUMED, now, tpa))
    return _go_on(step, now, tpa)


def forget(state: SenderState, now: datetime, idle: timedelta) -> SenderState:
    """Without the numbers of links over which nothing was sent for so long. [RM001-2.2.3-09]"""
    for link in state.links:
        if link.completed_at is not None and not link.queue and link.completed_at + idle <= now:
            state = _with(state, Link(link.triple, follow(TABLE, link.stage, Input.FORGOTTEN)))
    return state


def _and(first: SenderStep, second: SenderStep) -> SenderStep:
    return SenderStep(second.state, first.actions + second.actions)


_NEWS: Final = {
    Input.ACKNOWLEDGED: News.COMPLETED,
    Input.MESSAGING_ERROR: News.MESSAGING_ERROR,
    Input.TRANSIENT_ERROR: News.SUSPENDED_TRANSIENT,
    Input.EXHAUSTED: News.SUSPENDED_ADMIN,
}
_FAILURES: Final = frozenset((Input.PROTOCOL_ERROR, Input.TIMEOUT, Input.TRANSIENT_ERROR))
_AGAIN: Final = frozenset((Input.TIMEOUT, Input.ELAPSED))


def _after(
    state: SenderState, link: Link, what: Input, now: datetime, tpa: TPA, detail: str = ""
) -> SenderStep:
    """One input to one link, and what it means for the Receiver. [RM001-2.6.8-02]"""
    given = _meaning(state, link, what, tpa)
    moved = _moved(link, given, state.suspended_until, now, tpa)
    if given is Input.EXHAUSTED:
        state = changed(state, suspended=True)
    actions: tuple[Report | Send, ...] = ()
    if given in _NEWS:
        until = state.suspended_until if given is Input.TRANSIENT_ERROR else None
        report = Report(
            _NEWS[given], state.receiver_id, link.message_id, link.copies, what, until, detail
        )
        actions = (report,)
    if moved.stage is Stage.SENT:
        actions = (*actions, _copy(moved))
    return SenderStep(_with(state, moved), actions)


def _meaning(state: SenderState, link: Link, what: Input, tpa: TPA) -> Input:
    """What it comes to, with so many retries and the Receiver as it is. [RM001-2.6.8-01]"""
    if what in _FAILURES and link.stage is Stage.SENT and link.retries >= tpa.retries:
        return Input.EXHAUSTED
    if what in _AGAIN and state.suspended:
        return Input.STOPPED
    if what in _AGAIN and state.suspended_until is not None:
        return Input.HELD
    return what


def _moved(link: Link, given: Input, until: datetime | None, now: datetime, tpa: TPA) -> Link:
    """The link in its next stage."""
    stage = follow(TABLE, link.stage, given)
    interval = timedelta(seconds=tpa.retry_interval)
    match stage:
        case Stage.IDLE:
            return Link(link.triple, queue=link.queue)
        case Stage.DONE:
            done = changed(link, stage=stage, message_id=None, due=None)
            return changed(done, completed=link.message_id, completed_at=now)
        case Stage.SENT if given in _AGAIN:
            again = changed(link, stage=stage, copies=link.copies + 1, due=now + interval)
            return changed(again, retries=link.retries + 1)
        case Stage.SENT:
            due = now + timedelta(seconds=tpa.timeout)
            return changed(link, stage=stage, copies=link.copies + 1, due=due, retries=0)
        case Stage.RETRY_WAIT if link.stage is Stage.RETRY_WAIT:
            return link
        case Stage.RETRY_WAIT:
            return changed(link, stage=stage, due=now + interval)
        case Stage.SUSPENDED_TRANSIENT:
            return changed(link, stage=stage, due=until)
        case Stage.SUSPENDED_ADMIN:
            return changed(link, stage=stage, due=None)


def _suspended(state: SenderState, seconds: int | None, now: datetime, tpa: TPA) -> SenderState:
    """All sending to the Receiver is suspended for as long as it says, or for RetryInterval.

    [RM001-2.6.6-01] [RM001-2.6.6-02]
    """
    until = now + timedelta(seconds=tpa.retry_interval if seconds is None else seconds)
    return changed(state, suspended_until=max(until, state.suspended_until or until))


def _go_on(step: SenderStep, now: datetime, tpa: TPA) -> SenderStep:
    """Lets everything leave that may, and asks to be woken for the rest."""
    state, actions = step
    if not state.is_suspended(now):
        actions += state.held
        state = changed(state, held=())
        for link in state.links:
            if link.message_id is None and link.queue:
                number = next_number(link.sequence_number)
                first = changed(link, message_id=link.queue[0], queue=link.queue[1:], copies=0)
                first = changed(first, sequence_number=number, completed_at=None)
                sent = _moved(first, Input.NEXT, None, now, tpa)
                state = _with(state, sent)
                actions = (*actions, _copy(sent))
    times = [link.due for link in state.links if link.due is not None]
    if state.suspended_until is not None and not state.suspended:
        times.append(state.suspended_until)
    return SenderStep(state, (*actions, *(Wake(at) for at in sorted(times)[:1])))


def _copy(link: Link) -> Send:
    """The message under way, the same each time. [RM001-2.6.3-04] [RM001-2.6.6-04]"""
    assert link.message_id is not None
    return Send(link.message_id, link.triple, link.sequence_number)


def _with(state: SenderState, link: Link) -> SenderState:
    """The state with this link in the place of what was known of its triple."""
    known = {each.triple: each for each in state.links} | {link.triple: link}
    links = tuple(each for each in known.values() if each != Link(each.triple))
    return changed(state, links=links)


def _answered(state: SenderState, header: AnswerHeader) -> Link | None:
    """The link whose message is answered, if the answer comes from where that went."""
    for link in state.links:
        ends = (link.triple.receiver_id, link.triple.sender_id)
        if link.message_id == header.ref_to_message_id and ends == (header.from_id, header.to_id):
            return link
    return None


def _stray(state: SenderState, answer: Ack | ErrorMessage) -> Report:
    """What is told of an answer to nothing under way; the Receiver's own errors are passed up."""
    about = answer.header.ref_to_message_id
    theirs = answer.header.from_id == state.receiver_id
    if isinstance(answer, Ack):
        again = theirs and any(link.completed == about for link in state.links)
        news = News.ACKNOWLEDGED_AGAIN if again else News.NOT_FITTING
        return Report(news, state.receiver_id, about)
    passed = theirs and answer.error_class is ErrorClass.MESSAGING_ERROR
    news = News.MESSAGING_ERROR if passed else News.NOT_FITTING
    return Report(news, state.receiver_id, about, detail=answer.detail)
