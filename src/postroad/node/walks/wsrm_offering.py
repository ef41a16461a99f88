"""Messages that are pulled reliably: PullRequests come in a sequence, messages go in the one that
it offered (Core B.2.3, Part 2 2.8.3).

A request is answered once: the same number gets the same message again, as long as that is not
acknowledged. Acknowledgements of messages ride on the next request, those of requests on messages.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.agreement.reliable import pulled_in_sequence, wsrm_of
from postroad.msh.answers import sent_message
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.outbound import WireForm
from postroad.msh.pulling import Allowed
from postroad.msh.securing import Unsecurable
from postroad.msh.selecting import items_asked
from postroad.msh.wsrm import signer_of
from postroad.node.base.context import Context
from postroad.node.base.requests import Response
from postroad.node.steps import wsrm_pull_states as pulls
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.wsrm_pull_states import Asked
from postroad.node.steps.wsrm_states import Numbered, SourceRecord
from postroad.node.walks.offering import CAME_BEFORE, WAITING, Offering, Withheld, nothing, refused
from postroad.node.walks.wsrm_repackaging import repackaged
from postroad.node.wsrm.serving import SequenceRequests
from postroad.reliability import wsrm
from postroad.reliability.wsrm import Source, SourceStage, Verdict
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side
from postroad.wire.content import read_all
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.errors import EbmsError
from postroad.wire.wsrm import Sequence as RmSequence
from postroad.wire.wsrm import SequenceAcknowledgement
from postroad.wire.wsrm_faults import Code, RmFault

_REMEMBERED: Final = 64
"""Requests of which it is known how they were answered."""
_AT_ONCE: Final = 100
_REQUIRED: Final = "WSRMRequired: PullRequests for this channel are sent in a sequence"
_UNASKED: Final = "the header wsrm:Sequence: PullRequests for this channel are in no sequence"


class _Found(Struct, frozen=True):
    """What a request in a sequence gets."""

    record: Asked | None = None
    message: Message | None = None
    place: Numbered | None = None
    fault: RmFault | None = None
    problem: EbmsError | None = None


def by_sequence(found: Inspection, may: Allowed) -> Allowed | Withheld:
    """Only the channels whose requests are in a sequence exactly where this one is."""
    numbered = sequence_in(found) is not None
    matches = tuple(one for one in may.matches if _is_sequenced(one) == numbered)
    if may.matches and not matches:
        said = _UNASKED if numbered else _REQUIRED
        wrong = EbmsError("EBMS:0010", said, location="wsrm:Sequence")
        return Withheld((wrong,), may.matches[0], said)
    places = tuple(one for one in may.places if one.signals or _is_sequenced(one.match) == numbered)
    return changed(may, matches=matches, places=places)


def sequence_in(found: Inspection) -> RmSequence | None:
    return found.rm.sequence if found.rm is not None else None


def _is_sequenced(match: Match) -> bool:
    return pulled_in_sequence(match.pmode, match.leg, match.number - 1)


class SequencedOffering:
    """Answers PullRequests that come in sequences."""

    def __init__(self, context: Context, offering: Offering, reliable: SequenceRequests) -> None:
        self._context = context
        self._offering = offering
        self._reliable = reliable

    async def answer(
        self,
        look: Look,
        capture: Capture,
        request: SignalMessage,
        may: Allowed,
        peer: str | None,
        now: datetime,
    ) -> Response | Withheld:
        """The message that a request gets, or what keeps it from one; acknowledged in any case."""
        context, found = self._context, look.found
        if not may.matches:
            return refused(request, may.why)
        if found.rm is not None and found.rm.acknowledgements:
            # By the terms of the messages that they are about, whoever pulls.
            anew = Look(capture, context.in_force.lens(now, context.store.new_sink))
            if await context.read(anew):
                await self._reliable.hear(anew, peer, now)
        got = await context.store.run(self._taken(found, request, may, now))
        if got is None:
            return refused(request, CAME_BEFORE)
        if got.fault is not None:
            return await self._reliable.destinations.fault(got.fault, found)
        match = may.matches[0]
        if got.problem is not None:
            return Withheld((got.problem,), match, got.problem.detail)
        assert got.record is not None
        acks = (_ack(got.record),)
        form = None
        if got.message is not None and got.place is not None:
            form = await self._handed(got.message, got.place, acks, peer, now)
        if form is None:
            return Withheld((nothing(),), match, acks=acks)
        context.count("send_attempts", outcome="pulled")
        return self._offering.response(form)

    def _taken(
        self, found: Inspection, request: SignalMessage, may: Allowed, now: datetime
    ) -> Callable[[Transaction], _Found | None]:
        """The step that gives a request its message, and that message its number.

        None: the request came before, as it is, which is not how it comes again.
        """
        sequence = sequence_in(found)
        assert sequence is not None
        assert request.pull_request is not None
        items = items_asked(request.pull_request.selection)
        identifier, number, match = sequence.identifier, sequence.message_number, may.matches[0]

        def step(tx: Transaction) -> _Found | None:
            if not all(tx.first_time(name, now, until) for name, until in may.once):
                return None
            record = pulls.asked_of(tx, identifier, now)
            if record is None or record.creator != signer_of(found):
                said = "no such sequence is known here"
                return _Found(fault=RmFault(Code.UNKNOWN_SEQUENCE, said, identifier))
            bound = self._bound(tx, record, match, now)
            if isinstance(bound, str):
                pulls.forget_asked(tx, identifier, now)
                return _Found(fault=RmFault(Code.SEQUENCE_TERMINATED, bound, identifier))
            record = bound
            arrived = wsrm.arrive(record.destination, number, in_order=False)
            if arrived.verdict is Verdict.NO_ROOM:
                said = "too many requests of its sequence are missing; send them again"
                return _Found(problem=EbmsError("EBMS:0202", said, location="wsrm:Sequence"))
            record = changed(record, destination=arrived.destination)
            before = dict(record.answers).get(number)
            if before is not None:
                message = tx.message(Side.SENDING, before)
                if message is not None and message.state not in WAITING:
                    message = None
            else:
                message = self._next(tx, may, items, now)
            place = None
            if message is not None:
                place = states.number(tx, _key(match), message.message_id, now)
                answers = (*record.answers, (number, message.message_id))
                record = changed(record, answers=answers[-_REMEMBERED:])
            pulls.keep_asked(tx, record, now)
            return _Found(record, message, place)

        return step

    def _bound(self, tx: Transaction, record: Asked, match: Match, now: datetime) -> Asked | str:
        """The sequence as that of a P-Mode; or why it cannot be used any more.

        What the one before it left unacknowledged comes first.
        """
        key, offered = _key(match), record.offered
        agreed = wsrm_of(match.leg)
        assert agreed is not None
        known = states.source_of(tx, key)
        if record.pmode is None:
            if record.in_order not in (None, agreed.in_order):
                return "another order is agreed on than the one that it was made for"
            if states.key_of(tx, offered) is not None:
                return "the sequence that it offered is in use"
            asked = wsrm.asked(Source(), "", now)
            source = wsrm.created(asked, offered, None, now)
            made = SourceRecord(source, match.pmode.id, match.number, agreed.in_order)
            states.opened(tx, key, known, made, now)
            return changed(record, pmode=match.pmode.id)
        if record.pmode != match.pmode.id:
            return "it was made for another channel"
        if known is None or known.source.identifier != offered:
            return "another sequence took its place"
        if known.source.stage is not SourceStage.OPEN:
            return "a message of it was given up, and others wait for that"
        return record

    def _next(
        self, tx: Transaction, may: Allowed, items: Sequence[str], now: datetime
    ) -> Message | None:
        """What came first and is still to be had."""
        offering, pmode = self._offering, may.matches[0].pmode.id
        served = [
            one.place
            for one in may.places
            if not one.signals and one.match.pmode.id == pmode
            if not (offering.is_held(one, now) or offering.is_suspended(tx, one))
        ]
        for _ in range(_AT_ONCE):
            offer = tx.first_offer(served, now, items) if served else None
            if offer is None:
                return None
            message = tx.message(Side.SENDING, offer.message_id)
            if message is None or message.state not in WAITING:
                tx.remove_offer(offer.message_id)
                continue
            policy = self._context.in_force.sending_of(message).policy
            if not offering.is_over(tx, message, policy, now):
                return message
        return None

    async def _handed(
        self,
        message: Message,
        place: Numbered,
        acks: Sequence[SequenceAcknowledgement],
        peer: str | None,
        now: datetime,
    ) -> WireForm | None:
        """The message under its number, once it is written down that it left."""
        context, offering, name = self._context, self._offering, message.message_id
        sending = context.in_force.sending_of(message)
        dice = context.dice()
        try:
            stored = message.envelope
            assert stored is not None
            kept = read_all(context.store.content(stored), stored.size)
            sent = sent_message(kept, context.limits).user_message
            args = (context, (message,), (sent,), sending, place, acks)
            made = await asyncio.to_thread(repackaged, *args)
        except (StoreError, Unsecurable) as lost:
            said = f"it cannot be read: {lost}"
            await context.store.run(
                lambda tx: offering.note_attempt(
                    tx, message, sending, sending.policy, said, now, peer, dice
                )
            )
            return None

        def step(tx: Transaction) -> WireForm | None:
            found = tx.message(Side.SENDING, name)
            if found is None or found.state not in WAITING:
                return None
            envelope = tx.keep(made.envelope)
            tx.change_message(Side.SENDING, name, WAITING, envelope=envelope, seal=made.seal)
            if found.envelope is not None:
                tx.drop(found.envelope)
            states.packed(tx, name, place, now)
            found = changed(found, envelope=envelope, seal=made.seal)
            form = offering.form(found, [found], made.envelope)
            offering.note_attempt(tx, found, sending, sending.policy, form, now, peer, dice)
            return form

        form = await context.store.run(step)
        context.settled.tell(name)
        return form


def _key(match: Match) -> str:
    """By what the sequence of a P-Mode's pulled messages is found."""
    return f"pulled:{match.pmode.id}:{match.number}"


def _ack(record: Asked) -> SequenceAcknowledgement:
    return SequenceAcknowledgement(record.destination.identifier, record.destination.received)
