"""The steps that take an ebXML message over, as the protocol's machine says.

`reliability.ebxml.receive` tells the case and its steps; here they are carried out in one
transaction: kept, delivered or held, acknowledged, the message that it refers to told.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.payloads import Payload
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place, signed
from postroad.node.ebxml.answering import RESPONSE, Route
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.duplicates import compare
from postroad.node.steps.handing import deliver
from postroad.node.steps.hearing import Hearing
from postroad.node.steps.keeping import add_instead, kept_message, sent_signal
from postroad.node.steps.notifying import notification
from postroad.node.steps.outcome import answered
from postroad.node.steps.senders import stored_as, stored_message
from postroad.reliability import order
from postroad.reliability.awareness import Arrival as Same
from postroad.reliability.ebxml import (
    Case,
    Known,
    Message,
    Reception,
    Response,
    Step,
    receive,
)
from postroad.reliability.ebxml import Receiver as Party
from postroad.reliability.ebxml_terms import Terms
from postroad.store import records
from postroad.store.interface import Transaction
from postroad.store.records import Event, Side, Signal, State, Work
from postroad.wire.ebms3 import UserMessage

ANSWERS = ("acknowledgment", "response")
"""Kinds of signals that are the response to a message, and that a copy gets again."""


def awaits_name(message_id: str) -> str:
    """Under which it is remembered that a request waits for the application's answer."""
    return f"~awaits:{message_id}"


class Arrived(Struct, frozen=True):
    """An application's message that came, and all that is decided about it beforehand."""

    arrival: Arrival
    user_message: UserMessage
    match: Match
    message: Message
    """As the machine sees it."""
    terms: Terms
    party: Party
    acknowledgment: Answer | None = None
    """Written, in case that it is due."""
    back: Work | None = None
    """The work of sending it, where it is not the response."""
    route: Route = RESPONSE
    """Where the acknowledgment goes."""
    tells: tuple[records.Message, Hearing] | None = None
    """The message that it refers to, and what it says about that."""


class Kept(Struct, frozen=True):
    """What was done."""

    case: Case
    state: State | None = None
    answer: Signal | None = None
    """What it is answered with, now or the first time it came."""
    fresh: bool = False
    """The answer is the one that was written for this copy."""
    reception: Reception | None = None
    stored_id: str = ""
    """The id under which it is stored."""

    @property
    def awaits_response(self) -> bool:
        return self.case in (Case.NEW_AWAITED, Case.AWAITED)


def _sequence_name(from_party: str | None, to_party: str | None, conversation: str | None) -> str:
    """Under which it is remembered how far a conversation of two parties is."""
    return f"sequence:{from_party}\0{to_party}\0{conversation}"


def _decoded(data: bytes | None) -> order.Sequence | None:
    return None if data is None else msgspec.json.decode(data, type=order.Sequence)


def _name_of(message: UserMessage) -> str:
    parties = str(message.from_party), str(message.to_party)
    return _sequence_name(*parties, message.collaboration_info.conversation_id)


def release(context: Context, tx: Transaction, message: records.Message, now: datetime) -> bool:
    """Deliver a message that waits for others, which are waited for no longer; False: it waits not.

    Everything that was held up by nothing else follows it.
    """
    name = _sequence_name(message.from_party, message.to_party, message.conversation_id)
    sequence = _decoded(tx.state(name))
    if sequence is None or all(one.message_id != message.message_id for one in sequence.held):
        return False
    while any(one.message_id == message.message_id for one in sequence.held):
        after = order.skip(sequence)
        assert after is not None
        sequence = after.sequence
        tx.record([_gap(message, gap, now, "is not waited for any more") for gap in after.gaps])
        for message_id in after.passed:
            freed = tx.message(Side.RECEIVING, message_id)
            if freed is not None and freed.state is State.HELD:
                deliver(context, tx, freed, now)
    tx.set_state(name, msgspec.json.encode(sequence), now)
    return True


def keep_ebxml(context: Context, arrived: Arrived) -> Callable[[Transaction], Kept]:
    """The step for an application's message that holds in itself."""
    arrival = arrived.arrival
    payloads: Sequence[Payload] = next(iter(arrival.found.payloads.values()), ())
    now = arrival.now
    name = _name_of(arrived.user_message)

    def step(tx: Transaction) -> Kept:
        args = (arrival, arrived.user_message, arrived.match)
        stored_id, before = stored_as(context, tx, *args)
        return changed(_step(tx, _stored(arrived, stored_id), before), stored_id=stored_id)

    def _step(tx: Transaction, arrived: Arrived, before: records.Message | None) -> Kept:
        message = arrived.message
        rejected = before is not None and before.state is State.REJECTED
        first = None if rejected else before
        known = differs = None
        if first is not None:
            kind, differs = compare(
                arrival,
                arrived.user_message,
                payloads,
                arrived.match,
                first,
                best_effort=not arrived.terms.is_reliable,
            )
            digest = "another" if kind is Same.OTHER else message.digest
            known = Known(digest, first.created_at)
        given = _answers(tx, message.message_id) if first is not None else []
        reception = receive(
            message,
            arrived.terms,
            arrived.party,
            now,
            known=known,
            responses=[Response(one.signal_id, one.at) for one in given],
            sequence=_decoded(tx.state(name)),
        )
        if Step.REPORT in reception.steps:
            return Kept(reception.case, reception=reception)
        if first is not None:
            # BestEffort may be delivered twice, and is not: it is known all the same.
            tx.record((about(first, "duplicate", now, peer=arrival.peer, detail=differs),))
            return _again(context, tx, arrived, reception, first, given)
        return _taken(context, tx, arrived, reception, payloads, before)

    return step


def _stored(arrived: Arrived, stored_id: str) -> Arrived:
    """Return what arrived under the id under which it is stored."""
    if arrived.message.message_id == stored_id:
        return arrived
    back = arrived.back
    return changed(
        arrived,
        user_message=stored_message(arrived.user_message, stored_id),
        message=changed(arrived.message, message_id=stored_id),
        back=None if back is None else changed(back, message_id=stored_id),
    )


def _answers(tx: Transaction, message_id: str) -> list[Signal]:
    signals = tx.signals(Side.RECEIVING, message_id)
    return [one for one in signals if not one.incoming and one.kind in ANSWERS]


def _again(
    context: Context,
    tx: Transaction,
    arrived: Arrived,
    reception: Reception,
    before: records.Message,
    given: Sequence[Signal],
) -> Kept:
    """A copy: what the first one got, or an acknowledgment where nothing was said yet."""
    if reception.case is Case.AWAITED and tx.state(awaits_name(before.message_id)) is None:
        tx.set_state(awaits_name(before.message_id), b"", arrived.arrival.now)
    if reception.resend is not None or (given and Step.ACKNOWLEDGE in reception.steps):
        wanted = reception.resend or given[0].signal_id
        answer = next(one for one in given if one.signal_id == wanted)
        return Kept(reception.case, before.state, answer, reception=reception)
    if Step.ACKNOWLEDGE not in reception.steps or arrived.acknowledgment is None:
        return Kept(reception.case, before.state, reception=reception)
    events: list[Event] = []
    answer = _acknowledge(tx, arrived, before, arrived.acknowledgment, events)
    tx.record(events)
    return Kept(reception.case, before.state, answer, True, reception)


def _taken(
    context: Context,
    tx: Transaction,
    arrived: Arrived,
    reception: Reception,
    payloads: Sequence[Payload],
    before: records.Message | None,
) -> Kept:
    """A new message: kept, and what it frees is delivered in its order."""
    arrival, own = arrived.arrival, arrived.message.message_id
    now = arrival.now
    state = State.HELD if Step.HOLD in reception.steps else State.DELIVERED
    events: list[Event] = []

    def add() -> records.Message:
        kept = kept_message(
            context, tx, arrival, arrived.user_message, arrived.match, state, payloads
        )
        add_instead(tx, kept, before)
        events.append(
            about(
                kept,
                "received",
                now,
                envelope=kept.wire_id,
                wire_bytes=arrival.size,
                peer=arrival.peer,
                evidence=signed(kept),
            )
        )
        names = ("out_of_order", "held") if state is State.HELD else ("delivered",)
        events.extend(about(kept, name, context.clock()) for name in names)
        for work in notification(context, kept, state, now):
            tx.add_work(work)
        return kept

    if state is State.HELD:
        kept = add()
    for message_id in reception.passed:
        if message_id == own:
            kept = add()
            continue
        tx.record(events)
        events.clear()
        freed = tx.message(Side.RECEIVING, message_id)
        if freed is not None and freed.state is State.HELD:
            deliver(context, tx, freed, now)
    if reception.case is Case.NEW_AWAITED:
        tx.set_state(awaits_name(own), b"", now)
    answer = None
    if Step.ACKNOWLEDGE in reception.steps and arrived.acknowledgment is not None:
        answer = _acknowledge(tx, arrived, kept, arrived.acknowledgment, events)
    tx.record(events)
    _ordered(context, tx, arrived, reception, kept, now)
    if reception.tells is not None and arrived.tells is not None:
        sent, hearing = arrived.tells
        answered(context, tx, sent, hearing, now, arrival.peer)
    return Kept(reception.case, state, answer, answer is not None, reception)


def _acknowledge(
    tx: Transaction,
    arrived: Arrived,
    kept: records.Message,
    answer: Answer,
    events: list[Event],
) -> Signal:
    """The acknowledgment is kept, since a copy gets the same; and sent, now or as work."""
    now = arrived.arrival.now
    stored = tx.keep(answer.envelope)
    signal = sent_signal(kept, answer, stored, now)
    tx.add_signal(signal)
    if arrived.back is not None:
        number = tx.add_work(arrived.back)
        tx.change_message(Side.RECEIVING, kept.message_id, (kept.state,), timer=number)
        return signal
    if not arrived.route.is_response:
        said = "the acknowledgment has no way back: neither P-Mode nor message tell where to"
        events.append(about(kept, "error_raised", now, severity="warning", detail=said))
        return signal
    events.append(
        about(
            kept,
            "acked",
            now,
            signal_id=answer.signal_id,
            peer=arrived.arrival.peer,
            evidence=place(stored),
        )
    )
    return signal


def _ordered(
    context: Context,
    tx: Transaction,
    arrived: Arrived,
    reception: Reception,
    kept: records.Message,
    now: datetime,
) -> None:
    """How far the conversation is, which numbers are not waited for any more, and till when."""
    for gap in reception.gaps:
        tx.record((_gap(kept, gap, now, "is not waited for any more"),))
    sequence = reception.sequence
    if arrived.message.sequence_number is None or sequence is None:
        return
    name = _name_of(arrived.user_message)
    tx.set_state(name, msgspec.json.encode(sequence), now)
    due = order.report_due(sequence, arrived.party.limits)
    if due is not None and len(sequence.held) == 1:
        tx.add_work(Work("gap", kept.message_id, due, name.encode()))


def _gap(message: records.Message, gap: order.Gap, now: datetime, what: str) -> Event:
    numbers = f"{gap.first}" if gap.first == gap.last else f"{gap.first} to {gap.last}"
    return about(
        message,
        "error_raised",
        now,
        error_code="DeliveryFailure",
        severity="warning",
        detail=f"number {numbers} of conversation {message.conversation_id} {what}",
    )


class Gaps:
    """Says, once for each, that a message of a conversation is missing for too long."""

    def __init__(self, context: Context, limits: order.Limits = order.LIMITS) -> None:
        self._context = context
        self._limits = limits

    async def perform(self, work: Work) -> None:
        context, now, limits = self._context, self._context.clock(), self._limits
        name = work.data.decode()

        def step(tx: Transaction) -> None:
            sequence = _decoded(tx.state(name))
            message = tx.message(Side.RECEIVING, work.message_id)
            if sequence is not None:
                found = order.report(sequence, limits, now)
                if found is not None:
                    gap, sequence = found
                    tx.set_state(name, msgspec.json.encode(sequence), now)
                    if message is not None:
                        tx.record((_gap(message, gap, now, "is missing, and others wait for it"),))
                if sequence.held:
                    due = order.report_due(sequence, limits) or now + limits.patience
                    tx.postpone_work(work.id, due, owner=work.owner)
                    return
            tx.finish_work(work.id, work.owner)

        await context.store.run(step)
