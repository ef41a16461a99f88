"""How what came in is kept: the steps that take a message over, or refuse it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.joined import is_fragment
from postroad.msh.lens import Inspection
from postroad.msh.payloads import Payload
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place, signed, then
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.duplicates import FRAGMENT, compare, header_fields
from postroad.node.steps.exchanging import is_reply, replied, uncorrelated
from postroad.node.steps.identity import is_identified
from postroad.node.steps.notifying import notification
from postroad.node.steps.senders import about_stored, is_proven, stored_as, stored_message
from postroad.reliability.awareness import Known, Reception, received
from postroad.store.interface import Reader, Transaction
from postroad.store.records import (
    Event,
    Message,
    Offer,
    Side,
    Signal,
    State,
    Stored,
    StoredPart,
    Work,
)
from postroad.wire.content import Content
from postroad.wire.ebms3 import UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.mime import Part
from postroad.wire.mime_headers import file_name
from postroad.wire.soap import SoapVersion

T = TypeVar("T")
Keep = Callable[[bytes], Stored]
LONGEST_ID: Final = 1000
"""Characters of a message id, and of what is remembered of a header that was refused."""

_PURGED_AT_ONCE: Final = 10
"""Refused messages that make room for a new one; none needs more than a few."""


class Contradiction(Exception):
    """Another message has the same id."""


class Given(Struct, frozen=True):
    """What a message got for an answer, now or the first time it came."""

    state: State
    answer: tuple[Stored, str, int] | None
    duplicate: bool = False
    again: Signal | None = None
    """The first answer, which is to be sent to the partner's address once more."""
    contradicts: bool = False
    """Another message has the same id: nothing was done."""
    refused: EbmsError | None = None
    """What keeps it from being taken over: nothing was done."""
    held_by: int | None = None
    """The work that delivers it once the answer was handed over."""
    back: Work | None = None
    """The work that sends the receipt to the partner's address."""
    kept: Message | None = None
    """The message, where it is new."""
    received: Event | None = None
    """What the journal tells of that."""
    differs: str | None = None
    """Of a duplicate: in what its contents differ from the first message's."""
    stored_id: str = ""
    """The id under which it is stored; empty where nothing is."""


class Answering(Struct, frozen=True):
    """How a message is answered."""

    answer: Answer | None
    """The receipt, if one was agreed on."""
    as_response: bool
    back: Work | Offer | None = None
    """The work of sending the receipt to the partner's address, or its place in a channel."""
    after_delivery: bool = False
    """Only when the application acknowledged the message."""
    strict: bool = False
    """The message is held until the receipt was handed to the transport."""
    rides: bool = False
    """The receipt goes with the reply: who gives that away writes down that it left."""
    numbered: bool = False
    """It came in a sequence, which says when it is delivered."""
    holds: bool = False
    """It waits there for those before it."""


def user_message_of(found: Inspection) -> UserMessage:
    """The user message of an envelope that has one; of a bundle the primary unit."""
    assert found.messaging is not None
    return found.messaging.user_messages[0]


def unsupported(found: Inspection, responds: str | None = None) -> list[EbmsError]:
    """What holds in itself, but cannot be taken here; `responds` is the request it answers.

    Routing messages of other protocols is for intermediaries. [P2-7.1-13]
    """
    if found.messaging is None and found.routing is not None:
        said = "a routed message without eb:Messaging is of a protocol that is not supported here"
        return [EbmsError("EBMS:0008", said, location="ebint:RoutingInput")]
    if found.messaging is None:
        said = "there is no eb:Messaging header: this is not an ebMS message"
        return [EbmsError("EBMS:0009", said, location="S12:Envelope")]
    messages = found.messaging.user_messages
    if any(len(one.message_info.message_id) > LONGEST_ID for one in messages):
        said = f"a message id has at most {LONGEST_ID} characters here"
        return [EbmsError("EBMS:0009", said, location="eb:MessageInfo/eb:MessageId")]
    if any(one.pull_request is not None for one in found.messaging.signals):
        said = "a PullRequest bundled with a user message is not taken here"
    elif responds is not None and len(messages) > 1:
        said = "several user messages as the response to a request are not taken here"
    else:
        return []
    return [EbmsError("EBMS:0008", said, location="eb:Messaging")]


def keep(
    context: Context, arrival: Arrival, message: UserMessage, match: Match, how: Answering
) -> Callable[[Transaction], Given]:
    """The step that takes a message over: stored, delivered and answered, or known already."""
    payloads = next(iter(arrival.found.payloads.values()), ())
    return lambda tx: take_over(context, tx, arrival, message, match, how, payloads, tx.keep)


def take_over(
    context: Context,
    tx: Transaction,
    arrival: Arrival,
    message: UserMessage,
    match: Match,
    how: Answering,
    payloads: Sequence[Payload],
    keep: Keep,
) -> Given:
    """Take a unit over, whose envelope `keep` keeps."""
    stored_id, before = stored_as(context, tx, arrival, message, match)
    if stored_id != message.message_info.message_id:
        message = stored_message(message, stored_id)
        how = changed(how, back=about_stored(how.back, stored_id))
    given = _take_over(context, tx, arrival, message, match, how, payloads, keep, before)
    return changed(given, stored_id=stored_id)


def _take_over(
    context: Context,
    tx: Transaction,
    arrival: Arrival,
    message: UserMessage,
    match: Match,
    how: Answering,
    payloads: Sequence[Payload],
    keep: Keep,
    before: Message | None,
) -> Given:
    message_id = message.message_info.message_id
    if before is None or before.state is State.REJECTED:
        wrong = uncorrelated(tx, message, match)
        if wrong is not None:
            return Given(State.REJECTED, None, refused=wrong)
    if before is None:
        return _taken(context, tx, arrival, message, match, how, payloads, None, keep)
    kind, differs = compare(arrival, message, payloads, match, before)
    done = received(_known(before, how), kind)
    if done is Reception.REFUSE:
        return Given(before.state, None, contradicts=True)
    if done is Reception.TAKE_INSTEAD:
        return _taken(context, tx, arrival, message, match, how, payloads, before, keep)
    tx.record((about(before, "duplicate", arrival.now, peer=arrival.peer, detail=differs),))
    if done is Reception.FILTER:
        return Given(before.state, None, duplicate=True, differs=differs)
    first = first_answer(tx, message_id)
    if not how.as_response:
        waiting = tx.work(before.timer) if before.timer is not None else None
        if waiting is not None:
            tx.wake_work(waiting.id, arrival.now)
            return Given(before.state, None, duplicate=True, differs=differs)
        return Given(before.state, None, duplicate=True, again=first, differs=differs)
    shown = _shown(first) if first is not None else None
    held = before.state is State.HELD and not how.numbered
    held_by = _held(context, tx, message_id) if held else None
    return Given(before.state, shown, duplicate=True, held_by=held_by, differs=differs)


def _known(before: Message, how: Answering) -> Known:
    """What there is under the id of a message that comes."""
    if before.state is State.REJECTED:
        return Known.REJECTED
    if before.state is State.HELD:
        return Known.HELD
    if how.after_delivery and before.state is State.DELIVERED:
        return Known.UNANSWERED
    return Known.TAKEN


def _taken(
    context: Context,
    tx: Transaction,
    arrival: Arrival,
    message: UserMessage,
    match: Match,
    how: Answering,
    payloads: Sequence[Payload],
    before: Message | None,
    keep: Keep,
) -> Given:
    """A new message, or one in the place of what was rejected before."""
    state = State.RECEIVED if match.test else State.DELIVERED
    if (how.strict or how.holds) and state is State.DELIVERED:
        state = State.HELD
    kept = kept_message(context, tx, arrival, message, match, state, payloads, keep)
    if is_reply(match):
        replied(tx, message)
    return put(context, tx, arrival, kept, how, before)


def put(
    context: Context,
    tx: Transaction,
    arrival: Arrival,
    kept: Message,
    how: Answering,
    before: Message | None,
) -> Given:
    """Take a message over, in the place of what was rejected before if there is something."""
    now, checked = arrival.now, context.clock()
    message_id, state = kept.message_id, kept.state
    add_instead(tx, kept, before)
    received, events = arrived(arrival, kept, how, checked)
    given = None
    if how.answer is not None:
        stored = tx.keep(how.answer.envelope)
        given = (stored, how.answer.content_type, 200)
        tx.add_signal(sent_signal(kept, how.answer, stored, now))
        if how.as_response and not how.rides:
            events.append(receipt_left(received, how.answer, stored, checked, arrival.peer))
    tx.record(events)
    back = _send_back(tx, message_id, how.back, state, how) if how.back is not None else None
    for work in notification(context, kept, state, now):
        tx.add_work(work)
    strictly = state is State.HELD and not how.holds
    held_by = _held(context, tx, message_id) if strictly else None
    answer = given if how.as_response else None
    return Given(state, answer, held_by=held_by, back=back, kept=kept, received=received)


def add_instead(tx: Transaction, kept: Message, before: Message | None) -> None:
    """Add a message, in the place of what was rejected under its id if there is something."""
    if before is None:
        tx.add_message(kept)
        return
    tx.change_message(Side.RECEIVING, kept.message_id, (State.REJECTED,), **_fields_of(kept))
    if before.unproven:
        tx.drop_beginning(kept.message_id)
    if before.envelope is not None:
        tx.drop(before.envelope)


def arrived(
    arrival: Arrival, kept: Message, how: Answering, checked: datetime
) -> tuple[Event, list[Event]]:
    """What the journal tells of a message that is taken over: that it was received, and all."""
    now = arrival.now
    came = now if arrival.joined is None else arrival.joined.kept.began
    received = about(
        kept,
        "received",
        came,
        envelope=arrival.bundle or kept.wire_id,
        wire_bytes=arrival.size,
        peer=arrival.peer,
        evidence=signed(kept),
    )
    events = [received]
    if arrival.pulled is not None:
        events.insert(0, about(kept, "pulled", came, peer=arrival.peer))
    if arrival.joined is not None:
        events.append(about(kept, "joined", now, fragments=arrival.joined.kept.group.count))
    if how.holds and kept.state is State.HELD:
        events.append(then(received, "out_of_order", checked))
    if kept.state is not State.RECEIVED:
        events.append(then(received, kept.state._value_, checked))
    return received, events


def receipt_left(
    received: Event, answer: Answer, stored: Stored, now: datetime, peer: str | None
) -> Event:
    """A receipt goes out as the response to what was received."""
    return changed(
        received,
        at=now,
        event="receipt_sent",
        signal_id=answer.signal_id,
        envelope=None,
        wire_bytes=None,
        peer=peer,
        evidence=place(stored),
    )


def _send_back(
    tx: Transaction, message_id: str, back: Work | Offer, state: State, how: Answering
) -> Work | None:
    """The receipt goes out now, or when the application has the message; or it is pulled."""
    if isinstance(back, Offer):
        tx.add_offer(back)
        return None
    waits = how.after_delivery and state is State.DELIVERED
    number = tx.add_work(back)
    if waits:
        tx.postpone_work(number, None)
    tx.change_message(Side.RECEIVING, message_id, (state,), timer=number)
    return None if waits else changed(back, id=number)


def _held(context: Context, tx: Transaction, message_id: str) -> int:
    """The work that delivers what is held; this process has it while it answers."""
    now = context.clock()
    owned = Work("deliver", message_id, now, owner=context.owner, lease_until=now + context.lease)
    return tx.add_work(owned)


def first_answer(reader: Reader, message_id: str) -> Signal | None:
    """What the first copy was answered with: byte for byte the same again."""
    for signal in reader.signals(Side.RECEIVING, message_id):
        if not signal.incoming and signal.kind == "receipt":
            return signal
    return None


def _shown(signal: Signal) -> tuple[Stored, str, int]:
    return signal.envelope, signal.content_type, signal.status


def sent_signal(message: Message, answer: Answer, stored: Stored, now: datetime) -> Signal:
    return Signal(
        Side.RECEIVING,
        message.message_id,
        answer.signal_id,
        answer.kind,
        False,
        now,
        stored,
        answer.content_type,
    )


def kept_message(
    context: Context,
    tx: Transaction,
    arrival: Arrival,
    message: UserMessage,
    match: Match | None,
    state: State,
    payloads: Sequence[Payload],
    keep: Keep | None = None,
) -> Message:
    """The message as it is kept: its envelope as it came, its payloads opened."""
    capture = arrival.capture
    parts = tuple([_part(tx, arrival, one) for one in payloads])
    version = arrival.found.envelope.version if arrival.found.envelope else SoapVersion.SOAP_12
    return Message(
        Side.RECEIVING,
        message.message_info.message_id,
        state,
        arrival.now,
        arrival.now,
        pmode=match.pmode.id if match else None,
        leg=match.number if match else 1,
        party=context.party,
        bytes=sum([one.size for one in parts]),
        wire_bytes=arrival.size,
        payload_digests=tuple([f"sha256:{one.sha256}" for one in parts]),
        envelope=(keep or tx.keep)(capture.envelope),
        bundle=arrival.bundle,
        soap=version.number,
        parts=parts,
        peer=arrival.peer,
        unproven=match is not None and not is_proven(context, arrival, match),
        **header_fields(arrival, message),
    )


def _refused(
    context: Context,
    arrival: Arrival,
    message: UserMessage,
    match: Match | None,
    problem: EbmsError,
) -> Message:
    """What is remembered of a message that was not taken: little, since anybody can send some."""
    version = arrival.found.envelope.version if arrival.found.envelope else SoapVersion.SOAP_12
    said: dict[str, Any] = {
        name: value[:LONGEST_ID] if isinstance(value, str) else value
        for name, value in header_fields(arrival, message).items()
    }
    said["properties"] = ()
    return Message(
        Side.RECEIVING,
        message.message_info.message_id,
        State.REJECTED,
        arrival.now,
        arrival.now,
        pmode=match.pmode.id if match else None,
        leg=match.number if match else 1,
        kind=FRAGMENT if is_fragment(arrival.found) else "message",
        party=context.party,
        wire_bytes=arrival.size,
        soap=version.number,
        peer=arrival.peer,
        error_code=problem.code,
        detail=told(problem),
        **said,
    )


def _part(tx: Transaction, arrival: Arrival, payload: Payload) -> StoredPart:
    """One payload: kept in the form that was signed, described as its consumer sees it."""
    plain = payload.content
    assert plain is not None
    assert payload.sha256 is not None
    name = payload.content_id
    signed: Content = plain
    wire_type = payload.media_type or "application/octet-stream"
    file_name = None
    if name is not None:
        attachment = arrival.found.attachments[name]
        signed, wire_type = attachment.content, attachment.media_type
        part = arrival.attached.get(name)
        file_name = _file_name(part) if part is not None else None
    properties = tuple([(one.name, one.value, one.type) for one in payload.part_info.properties])
    return StoredPart(
        name,
        payload.media_type or "application/octet-stream",
        plain.size,
        payload.sha256.hex(),
        tx.keep(signed) if arrival.joined is None else arrival.joined.keep(tx, signed),
        wire_type,
        payload.compressed,
        properties,
        file_name,
    )


_CHANGED: Final = (
    "state",
    "created_at",
    "updated_at",
    "pmode",
    "leg",
    "kind",
    "party",
    "bytes",
    "wire_bytes",
    "payload_digests",
    "envelope",
    "unproven",
    "beginning",
    "envelope_bytes",
    "bundle",
    "fragment",
    "fragments",
    "soap",
    "parts",
    "peer",
    "ref_to_message_id",
    "conversation_id",
    "from_party",
    "to_party",
    "from_role",
    "to_role",
    "service",
    "action",
    "mpc",
    "agreement",
    "properties",
    "protocol",
    "sequence_number",
    "error_code",
    "detail",
)


def _fields_of(message: Message) -> dict[str, Any]:
    """What a good copy puts in the place of one that was rejected."""
    return {name: getattr(message, name) for name in _CHANGED}


def reject(
    context: Context,
    arrival: Arrival,
    message: UserMessage,
    match: Match | None,
    problems: Sequence[EbmsError],
    answer: Answer,
    back: Work | Offer | None,
    shared: Keep | None = None,
) -> Callable[[Transaction], None]:
    """The step that refuses: a row to be found by, the events, and the answer.

    Of a sender who proved nothing the beginning of the envelope is kept, and its events are
    written, within the limits of `limits.refused`.
    """
    now = arrival.now
    first = problems[0]
    refused = _refused(context, arrival, message, match, first)
    unproven = not is_identified(context, arrival)
    pmode = arrival.found.match.pmode.id if arrival.found.match is not None else None
    journaled = not unproven or context.refusals.admit(
        first.code, told(first), now, arrival.peer, pmode
    )

    def step(tx: Transaction) -> None:
        keep = shared or tx.keep
        before = tx.message(Side.RECEIVING, refused.message_id)
        known = before is not None and before.state is not State.REJECTED
        if before is None and unproven:
            _keep_beginning(context, tx, refused, arrival.capture.envelope)
        elif not unproven and (before is None or (before.unproven and not known)):
            # What a stranger left under its id must not hide it.
            add_instead(tx, changed(refused, envelope=keep(arrival.capture.envelope)), before)
        if isinstance(back, Offer) or not (known or unproven):
            tx.add_signal(
                changed(
                    sent_signal(refused, answer, keep(answer.envelope), now),
                    error_code=first.code,
                    detail=told(first),
                )
            )
        if journaled:
            tx.record(
                [
                    about(
                        refused,
                        "error_raised",
                        now,
                        error_code=one.code,
                        severity=one.severity.value,
                        detail=told(one),
                        signal_id=answer.signal_id,
                        peer=arrival.peer,
                    )
                    for one in problems[:5]
                ]
            )
        if journaled and not known:
            tx.record((about(refused, "rejected", now, error_code=first.code, detail=told(first)),))
        if isinstance(back, Offer):
            tx.add_offer(back)
        elif back is not None:
            tx.add_work(back)
        if before is None:
            for work in notification(context, refused, State.REJECTED, now):
                tx.add_work(work)

    return step


def _keep_beginning(context: Context, tx: Transaction, refused: Message, envelope: bytes) -> None:
    """Keep a refused message of a sender who proved nothing, as far as there is room for it."""
    limits = context.config.limits.refused
    beginning = envelope[: limits.message_bytes]
    told_of = {"beginning": len(beginning), "envelope_bytes": len(envelope)}
    tx.add_refused(changed(refused, unproven=True, **told_of), beginning)
    tx.purge_refused(refused.created_at - limits.retention, limits.total_bytes, _PURGED_AT_ONCE)


def told(problem: EbmsError) -> str:
    """What is wrong and where, for people; the code stands beside it."""
    place = f" ({problem.location})" if problem.location else ""
    return f"{problem.detail}{place}"[:2000]


def about_nothing(context: Context, problem: EbmsError, arrival: Arrival) -> Event:
    return Event(
        arrival.now,
        context.party,
        "error_raised",
        error_code=problem.code,
        severity=problem.severity.value,
        detail=told(problem),
        peer=arrival.peer,
    )


def _file_name(part: Part) -> str | None:
    """The name that the sender gave a file; only ever shown, never used as one."""
    value = part.headers.get("content-disposition")
    name = file_name(value) if value else None
    return name[:255] if name else None
