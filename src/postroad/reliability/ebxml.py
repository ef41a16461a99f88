"""The ebXML Reliable Messaging protocol (draft 000; 0.98b, section 10): messages and receiver.

OnceAndOnlyOnce: the receiver stores a message, passes it on once and acknowledges it; the sender
sends the identical message again until it hears that, or gives up and says so. A copy is answered
with what the first was answered with. BestEffort: one attempt, nothing stored, nobody told.

A receiver decides in three looks. What is it: an acknowledgment, or something outside this
protocol? Is its MessageId known: then it is a copy, or a contradiction, whatever the time? Is it
new: then its time and its SequenceNumber (`order`) count. `receive` tells the case, the table its
steps, in this order; what is acknowledged has been stored.

Terms are in `ebxml_terms`, the sender in `ebxml_sending`. Two profiles differ in little: `rm000`,
the draft, ignores a copy that has no stored response and has a Service of its own for
acknowledgments; `ms098` is 0.98b.

Two rules for who edits this file: all that affects these decisions stands here; what is not in a
table does not happen.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from postroad.reliability import order
from postroad.reliability.ebxml_terms import (
    AckRequested,
    DeliverySemantics,
    Error,
    ErrorCode,
    Severity,
    Terms,
)

SERVICE: Final = "uri:www.ebxml.org/messageService/"
SERVICE_000: Final = "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment"
ACKNOWLEDGMENT: Final = "Acknowledgment"
MESSAGE_ERROR: Final = "MessageError"

_SERVICES: Final = re.compile(
    r"(uri:www\.ebxml\.org|http://www\.ebxml\.org/namespaces)/messageService"
    r"(/MessageAcknowledge?ment)?/?|urn:oasis:names:tc:ebxml-msg:service"
)
_ACKNOWLEDGMENTS: Final = frozenset(
    ("Acknowledgment", "Acknowledgement", "DeliveryReceipt", "IntermediateAcknowledgment")
)


class Profile(StrEnum):
    RM000 = "rm000"
    MS098 = "ms098"


class Kind(StrEnum):
    APPLICATION = "a message of an application"
    ACKNOWLEDGMENT = "just an acknowledgment"
    ERROR = "an error message"
    SERVICE = "a status request, a ping, and their answers"


class AckType(StrEnum):
    DELIVERY_RECEIPT = "DeliveryReceipt"
    """By the To Party."""
    ACKNOWLEDGMENT = "Acknowledgment"
    """By an MSH on the way."""


class Acknowledgment(Struct, frozen=True):
    """The element of that name."""

    timestamp: datetime
    """When the message was received. [MS098-8.12.1-01]"""
    type: AckType = AckType.DELIVERY_RECEIPT
    signed: bool = False


class Hop(Struct, frozen=True):
    """The last RoutingHeader, or TraceHeader, of a message."""

    sender_uri: str
    receiver_uri: str


class Message(Struct, frozen=True, kw_only=True):
    """What the protocol looks at in a message."""

    message_id: str
    from_party: str
    to_party: str
    conversation_id: str
    service: str
    action: str
    timestamp: datetime
    digest: str = ""
    """Of all that makes two messages identical: header and payloads, but no TraceHeader."""
    ref_to_message_id: str | None = None
    sequence_number: order.SequenceNumber | None = None
    hop: Hop | None = None
    acknowledgment: Acknowledgment | None = None
    error: Error | None = None

    @property
    def kind(self) -> Kind:
        if not _SERVICES.fullmatch(self.service):
            return Kind.APPLICATION
        if self.action in _ACKNOWLEDGMENTS:
            return Kind.ACKNOWLEDGMENT
        return Kind.ERROR if self.action == MESSAGE_ERROR else Kind.SERVICE

    @property
    def stream(self) -> order.Stream:
        return order.Stream(self.conversation_id, self.from_party)


class Signal(Struct, frozen=True, kw_only=True):
    """What an MSH says about a message: an acknowledgment, an error, a delivery failure."""

    from_party: str
    to_party: str
    conversation_id: str
    ref_to_message_id: str
    service: str | None
    action: str | None
    """Both None: the signal rides on another message. [MS098-11.5-03]"""
    delivery_semantics: DeliverySemantics = DeliverySemantics.BEST_EFFORT
    acknowledgment: Acknowledgment | None = None
    error: Error | None = None


class Case(StrEnum):
    ACKNOWLEDGMENT = "just an acknowledgment"
    OUTSIDE = "BestEffort"
    NEW = "new"
    NEW_AWAITED = "new, and the application answers at once"
    HELD = "new, and out of order"
    ANSWERED = "a copy, and a response is stored"
    AWAITED = "a copy, no response yet, and the application answers at once"
    UNANSWERED = "a copy, and no response is stored"
    CONTRADICTION = "something else under a known MessageId"
    EXPIRED = "new, and its TimeToLive is over"
    NO_ROOM = "new, out of order, and there is no room to hold it"
    DISORDER = "new, and its SequenceNumber was used before or cannot be"
    UNORDERED = "a SequenceNumber without OnceAndOnlyOnce"


class Step(StrEnum):
    STORE = "save it with its MessageId"
    TELL = "tell the message that it refers to"
    DELIVER = "pass it on"
    """To the application, to the MSH's own services, from an MSH on the way to the next."""
    HOLD = "hold it until its turn comes"
    ACKNOWLEDGE = "acknowledge it, where that is due"
    RESEND = "send the stored response again"
    REPORT = "report the error"


_C, _S = Case, Step

_RECEIVING: Final[Mapping[Case, tuple[Step, ...]]] = {
    _C.ACKNOWLEDGMENT: (_S.TELL,),
    _C.OUTSIDE: (_S.TELL, _S.DELIVER, _S.ACKNOWLEDGE),
    _C.NEW: (_S.STORE, _S.TELL, _S.DELIVER, _S.ACKNOWLEDGE),
    _C.NEW_AWAITED: (_S.STORE, _S.TELL, _S.DELIVER),
    _C.HELD: (_S.STORE, _S.TELL, _S.HOLD, _S.ACKNOWLEDGE),
    _C.ANSWERED: (_S.RESEND,),
    _C.AWAITED: (),
    _C.UNANSWERED: (_S.ACKNOWLEDGE,),
    _C.CONTRADICTION: (_S.REPORT,),
    _C.EXPIRED: (_S.REPORT,),
    _C.NO_ROOM: (_S.REPORT,),
    _C.DISORDER: (_S.REPORT,),
    _C.UNORDERED: (_S.REPORT,),
}

RECEIVING: Final[Mapping[Profile, Mapping[Case, tuple[Step, ...]]]] = {
    Profile.MS098: _RECEIVING,
    Profile.RM000: {**_RECEIVING, _C.UNANSWERED: ()},
}

ERRORS: Final[Mapping[Case, tuple[ErrorCode, str]]] = {
    _C.CONTRADICTION: (ErrorCode.INCONSISTENT, "its MessageId is that of another message"),
    _C.EXPIRED: (ErrorCode.TIME_TO_LIVE_EXPIRED, "it came after its TimeToLive"),
    _C.NO_ROOM: (ErrorCode.DELIVERY_FAILURE, "too many messages wait for those before them"),
    _C.DISORDER: (ErrorCode.INCONSISTENT, "its SequenceNumber contradicts what came before"),
    _C.UNORDERED: (ErrorCode.INCONSISTENT, "it has a SequenceNumber and not OnceAndOnlyOnce"),
}

EVENTS: Final[Mapping[Case, tuple[str, ...]]] = {
    _C.ACKNOWLEDGMENT: (),
    _C.OUTSIDE: ("received",),
    _C.NEW: ("received",),
    _C.NEW_AWAITED: ("received",),
    _C.HELD: ("received", *order.EVENTS[order.Verdict.HOLD]),
    _C.ANSWERED: ("duplicate",),
    _C.AWAITED: ("duplicate",),
    _C.UNANSWERED: ("duplicate",),
    _C.CONTRADICTION: ("rejected",),
    _C.EXPIRED: ("rejected",),
    _C.NO_ROOM: order.EVENTS[order.Verdict.NO_ROOM],
    _C.DISORDER: ("rejected",),
    _C.UNORDERED: ("rejected",),
}
"""The journal's words for what came; `delivered`, `acked` and the rest follow from the steps."""

_ORDERED: Final = {
    order.Verdict.DELIVER: Case.NEW,
    order.Verdict.HOLD: Case.HELD,
    order.Verdict.NO_ROOM: Case.NO_ROOM,
    order.Verdict.INCONSISTENT: Case.DISORDER,
    order.Verdict.DUPLICATE: Case.DISORDER,
}
"""By its MessageId it is new; so a number that was there before was used twice."""


class Answering(StrEnum):
    """Which of several responses a copy gets, by their Timestamp."""

    FIRST = "first"
    LATEST = "latest"


class Receiver(Struct, frozen=True):
    """Who receives, and how."""

    party: str
    uri: str | None = None
    """By which MSHs on the way address it."""
    profile: Profile = Profile.MS098
    answering: Answering = Answering.FIRST
    limits: order.Limits = order.LIMITS

    def is_to_party(self, message: Message) -> bool:
        return message.to_party in (self.party, self.uri)


class Known(Struct, frozen=True):
    """What a receiver keeps of a message."""

    digest: str
    received_at: datetime


class Response(Struct, frozen=True):
    """A stored message with a RefToMessageId."""

    message_id: str
    timestamp: datetime


class Reception(Struct, frozen=True, kw_only=True):
    """What follows from an arrival. All of it is one transaction, before anything is answered."""

    case: Case
    steps: tuple[Step, ...]
    sequence: order.Sequence | None = None
    """Of the message's stream, from now on."""
    passed: tuple[str, ...] = ()
    """MessageIds that are passed on now, in this order."""
    gaps: tuple[order.Gap, ...] = ()
    """Numbers that are waited for no longer."""
    tells: str | None = None
    """The MessageId of the message that is told (`said`, `hear`)."""
    acknowledgment: Signal | None = None
    """To be stored too: it is the response that a copy gets."""
    resend: str | None = None
    """The MessageId of the stored response."""
    report: Signal | None = None


def receive(
    message: Message,
    terms: Terms,
    receiver: Receiver,
    now: datetime,
    *,
    known: Known | None = None,
    responses: Sequence[Response] = (),
    sequence: order.Sequence | None = None,
) -> Reception:
    """What is done with a message that came.

    `known` is what is stored under its MessageId, `responses` what refers to that, `sequence` the
    state of its stream. [RM000-1.3.1.2-01] [MS098-10.3.1.2-03]
    """
    case, after = _look(message, terms, receiver, now, known, responses, sequence)
    steps = tuple(
        step
        for step in RECEIVING[receiver.profile][case]
        if (step is not Step.ACKNOWLEDGE or terms.is_acknowledged)
        and (step is not Step.TELL or _tells(message, terms))
    )
    passed = after.passed if after else (message.message_id,)
    return Reception(
        case=case,
        steps=steps,
        sequence=after.sequence if after and Step.STORE in steps else sequence,
        passed=passed if Step.DELIVER in steps else (),
        gaps=after.gaps if after else (),
        tells=message.ref_to_message_id if Step.TELL in steps else None,
        acknowledgment=acknowledge(message, terms, receiver, known.received_at if known else now)
        if Step.ACKNOWLEDGE in steps
        else None,
        resend=_response(responses, receiver.answering) if Step.RESEND in steps else None,
        report=report(message, receiver.party, Error(*ERRORS[case]))
        if Step.REPORT in steps
        else None,
    )


def _look(
    message: Message,
    terms: Terms,
    receiver: Receiver,
    now: datetime,
    known: Known | None,
    responses: Sequence[Response],
    sequence: order.Sequence | None,
) -> tuple[Case, order.Arrival | None]:
    """The case; for a new message with a SequenceNumber also what the order says."""
    if message.kind is Kind.ACKNOWLEDGMENT and receiver.is_to_party(message):
        return Case.ACKNOWLEDGMENT, None
    if known is not None and (terms.is_reliable or known.digest != message.digest):
        return _known(message, terms, known, responses), None
    if terms.time_to_live is not None and now > terms.time_to_live:
        return Case.EXPIRED, None
    if not terms.is_reliable:
        return Case.OUTSIDE if message.sequence_number is None else Case.UNORDERED, None
    if message.sequence_number is None or not receiver.is_to_party(message):
        return Case.NEW_AWAITED if terms.is_response_awaited else Case.NEW, None
    arrival = order.arrive(
        sequence or order.Sequence(),
        message.sequence_number,
        message.message_id,
        now,
        receiver.limits,
    )
    case = _ORDERED[arrival.verdict]
    if case is Case.NEW and terms.is_response_awaited:
        case = Case.NEW_AWAITED
    return case, arrival


def _known(message: Message, terms: Terms, known: Known, responses: Sequence[Response]) -> Case:
    if message.digest != known.digest:
        return Case.CONTRADICTION
    if responses:
        return Case.ANSWERED
    return Case.AWAITED if terms.is_response_awaited else Case.UNANSWERED


def _tells(message: Message, terms: Terms) -> bool:
    """Whether it says something about the message that it refers to.

    A reliable response proves that the request arrived. A status response proves nothing.
    [MS098-10.3.1.2-06] [RM000-1.3.1.2-04]
    """
    if message.ref_to_message_id is None:
        return False
    if message.acknowledgment is not None or message.error is not None:
        return True
    if message.kind is Kind.APPLICATION:
        return terms.is_reliable
    return message.kind is not Kind.SERVICE


def _response(responses: Sequence[Response], answering: Answering) -> str:
    """[RM000-1.3.2-04] [MS098-10.3.1.5-05]"""
    choose = min if answering is Answering.FIRST else max
    return choose(responses, key=lambda response: response.timestamp).message_id


def report(
    message: Message,
    party: str,
    error: Error,
    semantics: DeliverySemantics = DeliverySemantics.BEST_EFFORT,
) -> Signal | None:
    """What `party` says about a message in error; nothing about an error or an acknowledgment.

    [MS098-11.3-04] [MS098-11.5-02] [MS098-11.5-03]
    """
    if message.kind in (Kind.ERROR, Kind.ACKNOWLEDGMENT):
        return None
    alone = error.severity is Severity.ERROR
    return Signal(
        from_party=party,
        to_party=message.from_party,
        conversation_id=message.conversation_id,
        ref_to_message_id=message.message_id,
        service=SERVICE if alone else None,
        action=MESSAGE_ERROR if alone else None,
        delivery_semantics=semantics,
        error=error,
    )


def acknowledge(
    message: Message, terms: Terms, receiver: Receiver, received_at: datetime
) -> Signal:
    """The acknowledgment of a message, by the To Party or by an MSH on the way.

    [RM000-1.3.1-03] [RM000-1.3.1.3-02] [MS098-10.3.1.3-05] [RM000-1.3.2.1-04] [RM000-1.3.2.1-05]
    """
    by_uri = None if receiver.is_to_party(message) else message.hop
    return Signal(
        from_party=by_uri.receiver_uri if by_uri else receiver.party,
        to_party=by_uri.sender_uri if by_uri else message.from_party,
        conversation_id=message.conversation_id,
        ref_to_message_id=message.message_id,
        service=SERVICE_000 if receiver.profile is Profile.RM000 else SERVICE,
        action=ACKNOWLEDGMENT,
        acknowledgment=_element(message, terms, receiver, received_at),
    )


def _element(
    message: Message, terms: Terms, receiver: Receiver, received_at: datetime
) -> Acknowledgment | None:
    """The element, if it is asked for. The draft has but one type. [MS098-10.3.1.3-03]"""
    if terms.ack_requested is AckRequested.NONE:
        return None
    final = receiver.is_to_party(message) and receiver.profile is not Profile.RM000
    return Acknowledgment(
        received_at,
        AckType.DELIVERY_RECEIPT if final else AckType.ACKNOWLEDGMENT,
        terms.ack_requested is AckRequested.SIGNED,
    )
