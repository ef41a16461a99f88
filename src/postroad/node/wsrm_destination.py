"""The destination of sequences: makes them, takes what comes in them, acknowledges, ends them.

What a message changes is committed with it: the sequence, and what it frees for the application.
Only then is it acknowledged, always with all that came so far.
"""

import base64
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match, header
from postroad.agreement.reliable import Reliable, wsrm_of
from postroad.msh.answers import Answer
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.routing_headers import acks_reference
from postroad.msh.securing import Unsecurable, answer_signing, signs
from postroad.msh.selecting import signal_items
from postroad.msh.wsrm import Written, signer_of, write_message, write_rm_fault
from postroad.node import wsrm_states as states
from postroad.node.calling import Call
from postroad.node.context import Context
from postroad.node.handing import deliver
from postroad.node.journaling import about
from postroad.node.keeping import Answering, Arrival, Given, take_over
from postroad.node.noting import note
from postroad.node.requests import NO_CONTENT, Response
from postroad.node.wsrm_hearing import took
from postroad.node.wsrm_states import DestinationRecord
from postroad.reliability import order, wsrm
from postroad.reliability.wsrm import Destination, Verdict
from postroad.security.sign import Signing
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Offer, Side, Signal, State, Work
from postroad.wire.ebms3 import CollaborationInfo, MessageInfo, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import (
    ANONYMOUS,
    EndpointReference,
    read_endpoint_reference,
    write_endpoint_reference,
)
from postroad.wire.wsrm import (
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    SequenceAcknowledgement,
    TerminateSequence,
    TerminateSequenceResponse,
    read_lifecycle,
    read_rm_headers,
)
from postroad.wire.wsrm_faults import Code, RmFault, read_rm_fault
from postroad.wire.xml import parse

_REQUIRED = "WSRMRequired: messages of this P-Mode are sent in a sequence, and this one is in none"
_UNASKED = "the header wsrm:Sequence: messages of this P-Mode are not sent in sequences"


def sequence_problems(found: Inspection, match: Match) -> list[EbmsError]:
    """Whether a message is in a sequence exactly where its P-Mode says so. [P2-6.6.1-01]"""
    numbered = found.rm is not None and found.rm.sequence is not None
    if numbered == (wsrm_of(match.leg) is not None):
        return []
    said = _UNASKED if numbered else _REQUIRED
    return [EbmsError("EBMS:0010", said, location="wsrm:Sequence")]


class InSequence(Struct, frozen=True):
    """What became of a message that came in a sequence."""

    given: Given | None = None
    """As of any other message; None: it was not looked at further."""
    record: DestinationRecord | None = None
    fault: RmFault | None = None
    problem: EbmsError | None = None
    back: Work | None = None
    """The work that brings the acknowledgement, where it is not the response."""


class Destinations:
    """The sequences that this node receives in."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # Messages in a sequence

    def keep(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        agreed: Reliable,
        how: Answering,
    ) -> Callable[[Transaction], InSequence]:
        """The step for a message that holds in itself: taken, held, or known already."""
        found, now = arrival.found, arrival.now
        assert found.rm is not None
        assert found.rm.sequence is not None
        identifier, number = found.rm.sequence.identifier, found.rm.sequence.message_number
        payloads = next(iter(found.payloads.values()), ())
        name = message.message_info.message_id

        def step(tx: Transaction) -> InSequence:
            record = self._known(tx, identifier, found, now)
            if record is None:
                said = "no such sequence is known here"
                return InSequence(fault=RmFault(Code.UNKNOWN_SEQUENCE, said, identifier))
            if record.in_order != agreed.in_order:
                said = "its sequence was made for another contract than that of its P-Mode"
                return InSequence(problem=EbmsError("EBMS:0201", said, location="wsrm:Sequence"))
            arrived = wsrm.arrive(record.destination, number, in_order=record.in_order)
            if arrived.verdict is Verdict.CLOSED:
                said = "the sequence is closed"
                fault = RmFault(Code.SEQUENCE_CLOSED, said, identifier)
                return InSequence(record=record, fault=fault)
            if arrived.verdict is Verdict.NO_ROOM:
                said = "too much waits in its sequence for what is missing; send it again later"
                return InSequence(problem=EbmsError("EBMS:0202", said, location="wsrm:Sequence"))
            if arrived.verdict is Verdict.DUPLICATE:
                given = self._repeated(tx, name, arrival)
                return self._acknowledged(tx, arrival, message, match, record, given)
            holds = arrived.verdict is Verdict.HOLD
            numbered = changed(how, holds=holds, numbered=True)
            given = take_over(
                self._context, tx, arrival, message, match, numbered, payloads, tx.keep
            )
            if given.contradicts or given.refused is not None:
                return InSequence(given, record)
            record = changed(record, destination=arrived.destination)
            states.keep_destination(tx, record, now)
            if holds and given.state is State.HELD and not given.duplicate:
                self._hold(tx, record, number, name, now)
            self._release(tx, identifier, arrived.passed, now)
            return self._acknowledged(tx, arrival, message, match, record, given)

        return step

    def _known(
        self, tx: Transaction, identifier: str, found: Inspection, now: datetime
    ) -> DestinationRecord | None:
        """A sequence of who speaks; that of somebody else is as good as unknown."""
        record = states.destination_of(tx, identifier, now)
        return record if record is not None and record.creator == signer_of(found) else None

    def _repeated(self, tx: Transaction, name: str, arrival: Arrival) -> Given:
        """A number that was there before: a copy, whatever it says."""
        before = tx.message(Side.RECEIVING, name)
        if before is None:
            return Given(State.REJECTED, None, duplicate=True)
        tx.record((about(before, "duplicate", arrival.now, peer=arrival.peer),))
        return Given(before.state, None, duplicate=True)

    def _hold(
        self, tx: Transaction, record: DestinationRecord, number: int, name: str, now: datetime
    ) -> None:
        """It waits for those before it; if these don't come, somebody is told."""
        identifier = record.destination.identifier
        states.hold(tx, identifier, number, name, now)
        if wsrm.held(record.destination) == ((number, number),):
            due = now + order.LIMITS.patience
            tx.add_work(Work("held", name, due, identifier.encode()))

    def _release(
        self, tx: Transaction, identifier: str, passed: Sequence[int], now: datetime
    ) -> None:
        """What waited is for the application, in its order."""
        for message_id in states.freed(tx, identifier, tuple(passed), now):
            freed = tx.message(Side.RECEIVING, message_id)
            if freed is not None and freed.state is State.HELD:
                deliver(self._context, tx, freed, now)

    # Acknowledgements

    def _acknowledged(
        self,
        tx: Transaction,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        record: DestinationRecord,
        given: Given,
    ) -> InSequence:
        """An acknowledgement that is not the response goes out as work, or into a channel."""
        context, name, now = self._context, message.message_info.message_id, arrival.now
        agreed = wsrm_of(match.leg)
        kept = tx.message(Side.RECEIVING, name)
        if not record.acks_to or agreed is None:
            if kept is not None:
                tx.record((about(kept, "acked", context.clock(), peer=arrival.peer),))
            return InSequence(given, record)
        version = _version(arrival.found)
        ack = self._written(None, record, match, version, to=_reference(record, version))
        if agreed.channel is not None:
            self._offered(tx, kept, ack, agreed.channel, match, now)
            return InSequence(given, record)
        if agreed.acks_to is None:
            return InSequence(given, record)
        call = Call(
            agreed.acks_to,
            "acknowledgment",
            ack.message_id,
            ack.content_type,
            base64.b64encode(ack.envelope).decode(),
            match.pmode.id,
            f'"{ack.action}"' if version is SoapVersion.SOAP_11 else None,
            match.number,
        )
        work = context.claimed(Work("signal", name, now, msgspec.json.encode(call)))
        return InSequence(given, record, back=changed(work, id=tx.add_work(work)))

    def _offered(
        self,
        tx: Transaction,
        kept: Message | None,
        ack: Written,
        channel: str,
        match: Match,
        now: datetime,
    ) -> None:
        """It waits until the sender of the message pulls it. [P2-6.6.3-01]"""
        if kept is None:
            return
        name = kept.message_id
        answer = Answer(ack.message_id, "acknowledgment", ack.version, ack.envelope)
        tx.add_signal(
            Signal(
                Side.RECEIVING,
                name,
                answer.signal_id,
                answer.kind,
                False,
                now,
                tx.keep(answer.envelope),
                answer.content_type,
            )
        )
        items = signal_items(name)
        tx.add_offer(Offer(channel, match.pmode.id, answer.signal_id, now, items, about=name))

    def _written(
        self,
        body: Lifecycle | None,
        record: DestinationRecord,
        match: Match | None,
        version: SoapVersion,
        *,
        to: EndpointReference | None = None,
        relates_to: str | None = None,
        acks: bool = True,
    ) -> Written:
        now = self._context.clock()
        return write_message(
            body,
            version,
            message_id=self._context.new_id(now),
            now=now,
            how=self._how(match),
            to=to or EndpointReference(ANONYMOUS),
            relates_to=relates_to,
            acks=(_ack(record.destination),) if acks else (),
        )

    def _how(self, match: Match | None) -> Signing | None:
        key = self._context.in_force.keyring.signing
        try:
            return answer_signing(match.leg, key) if match is not None else None
        except Unsecurable:
            return None

    def response(self, taken: InSequence, arrival: Arrival, match: Match) -> Response:
        """What a message in a sequence is answered with on its connection."""
        found, version = arrival.found, _version(arrival.found)
        if taken.fault is not None:
            final = _ack(taken.record.destination) if taken.record is not None else None
            return self.fault(taken.fault, found, final)
        if taken.record is None or taken.record.acks_to:
            return NO_CONTENT
        related = found.addressing.message_id if found.addressing else None
        ack = self._written(None, taken.record, match, version, relates_to=related)
        return Response(200, ack.content_type, ack.envelope)

    def fault(
        self,
        fault: RmFault | str,
        found: Inspection,
        final: SequenceAcknowledgement | None = None,
    ) -> Response:
        """A fault of the protocol, as SOAP tells it."""
        version, now = _version(found), self._context.clock()
        related = found.addressing.message_id if found.addressing else None
        written = write_rm_fault(
            fault,
            version,
            message_id=self._context.new_id(now),
            relates_to=related,
            final=final,
        )
        status = 500 if version is SoapVersion.SOAP_11 else 400
        return Response(status, written.content_type, written.envelope)

    # Messages about sequences

    async def receive(
        self, look: Look, peer: str | None, certificate: bytes | None, now: datetime
    ) -> Response:
        """A message of the protocol alone: about a sequence of ours, or one that we receive in."""
        context, envelope = self._context, look.found.envelope
        assert envelope is not None
        headers, _ = read_rm_headers(envelope)
        if (headers is not None and headers.acknowledgements) or read_rm_fault(envelope):
            await self.hear(look, peer, now)
            return NO_CONTENT
        await context.judge((look, look.terms()))
        found = look.found
        body, wrong = read_lifecycle(envelope)
        failures = [one for one in found.problems if one.severity is Severity.FAILURE]
        failures += wrong
        if failures:
            await note(context, failures[0].code, failures[0].detail, now, peer)
            said = failures[0].detail
            if isinstance(body, CreateSequence):
                return self.fault(RmFault(Code.CREATE_SEQUENCE_REFUSED, said), found)
            return self.fault(said, found)
        if isinstance(body, CreateSequence):
            return await self._create(body, found, peer, certificate, now)
        if isinstance(body, CloseSequence | TerminateSequence):
            return await self._end(body, found, now)
        if body is None and found.rm is not None and found.rm.ack_requested:
            return await self._asked(found.rm.ack_requested[0], found, now)
        detail = "a message of WS-ReliableMessaging that nobody asked for"
        await note(context, "EBMS:0201", detail, now, peer)
        return NO_CONTENT

    async def hear(self, look: Look, peer: str | None, now: datetime) -> tuple[str, ...]:
        """Acknowledgements of what this node sent, that came by themselves or were pulled."""
        context, envelope = self._context, look.found.envelope
        assert envelope is not None
        headers, _ = read_rm_headers(envelope)
        acks = headers.acknowledgements if headers is not None else ()
        names = [one.identifier for one in acks]
        match = await self._match_of(names[0]) if names else None
        if match is None:
            detail = "an acknowledgement, or a fault, of no sequence that this node sends in"
            await note(context, "EBMS:0201", detail, now, peer)
            return ()
        await context.judge((look, context.in_force.answer_terms(match)))
        told = await took(context, look.found, match, peer)
        if told is None:
            wrong = next((one.detail for one in look.found.problems), "it is not signed")
            await note(context, "EBMS:0201", f"an acknowledgement not believed: {wrong}", now, peer)
        return told or ()

    async def _match_of(self, identifier: str) -> Match | None:
        def ask(reader: Reader) -> tuple[str, int] | None:
            key = states.key_of(reader, identifier)
            record = states.source_of(reader, key) if key is not None else None
            return None if record is None else (record.pmode, record.leg)

        found = await self._context.store.look(ask)
        return None if found is None else self._context.in_force.match(*found)

    async def _create(
        self,
        asked: CreateSequence,
        found: Inspection,
        peer: str | None,
        certificate: bytes | None,
        now: datetime,
    ) -> Response:
        """A sequence for who asks, if some P-Mode has one for it."""
        context = self._context
        matches = [
            Match(one.pmode, one.leg, one.index + 1)
            for one in context.in_force.expectation.pmodes.legs
            if wsrm_of(one.leg) is not None
        ]
        ours = [one for one in matches if context.in_force.receives(one)]
        why = "no P-Mode here has messages in sequences"
        for match in ours:
            wrong = self._unfit(asked, found, match, certificate, now)
            if wrong is None:
                break
            why = wrong
        else:
            await note(context, "EBMS:0201", f"CreateSequenceRefused: {why}", now, peer)
            return self.fault(RmFault(Code.CREATE_SEQUENCE_REFUSED, why), found)
        agreed = wsrm_of(match.leg)
        assert agreed is not None
        identifier = f"urn:uuid:{context.new_id(now).partition('@')[0]}"
        ends = None if asked.expires is None else now + asked.expires
        to = asked.acks_to
        version = _version(found)
        xml = "" if to.address == ANONYMOUS else write_endpoint_reference(to, version)
        record = DestinationRecord(
            Destination(identifier, expires_at=ends),
            signer_of(found),
            match.pmode.id,
            match.number,
            agreed.in_order,
            xml,
        )
        await context.store.run(lambda tx: states.keep_destination(tx, record, now))
        related = found.addressing.message_id if found.addressing else None
        made = CreateSequenceResponse(identifier, asked.expires)
        answer = self._written(made, record, match, version, relates_to=related, acks=False)
        return Response(200, answer.content_type, answer.envelope)

    def _unfit(
        self,
        asked: CreateSequence,
        found: Inspection,
        match: Match,
        certificate: bytes | None,
        now: datetime,
    ) -> str | None:
        """Why a sequence cannot be made by a P-Mode."""
        agreed = wsrm_of(match.leg)
        assert agreed is not None
        if asked.secured:
            return "sequences are not bound to security tokens here"
        if signs(match.leg) and not signer_of(found):
            return "it is not signed, or nobody vouches for who signed"
        if self._context.in_force.expectation.check_client(match, certificate, now):
            return "the TLS client certificate is not the one that is agreed on"
        wanted = acks_reference(match, _like(match, now))
        named = asked.acks_to
        if named.address != wanted.address or _mpc(named) != _mpc(wanted):
            return f"AcksTo is not as agreed on: {wanted.address}"
        assurance = asked.assurance
        if assurance is not None and assurance.in_order != agreed.in_order:
            return "another order is agreed on than the one that it asks for"
        return None

    async def _end(
        self, body: CloseSequence | TerminateSequence, found: Inspection, now: datetime
    ) -> Response:
        """Nothing more is coming: what waits is delivered, and the final acknowledgement given."""
        context, closes = self._context, isinstance(body, CloseSequence)

        def step(tx: Transaction) -> DestinationRecord | None:
            record = self._known(tx, body.identifier, found, now)
            if record is None:
                return None
            return self._closed(tx, record, body.last, now, forget=not closes)

        record = await context.store.run(step)
        if record is None:
            said = "no such sequence is known here"
            return self.fault(RmFault(Code.UNKNOWN_SEQUENCE, said, body.identifier), found)
        context.told()
        answer: Lifecycle = TerminateSequenceResponse(body.identifier)
        if closes:
            answer = CloseSequenceResponse(body.identifier)
        match = context.in_force.match(record.pmode, record.leg)
        related = found.addressing.message_id if found.addressing else None
        written = self._written(answer, record, match, _version(found), relates_to=related)
        return Response(200, written.content_type, written.envelope)

    def _closed(
        self,
        tx: Transaction,
        record: DestinationRecord,
        last: int | None,
        now: datetime,
        *,
        forget: bool,
    ) -> DestinationRecord:
        end = wsrm.closed(record.destination, last, in_order=record.in_order)
        record = changed(record, destination=end.destination)
        self._release(tx, end.destination.identifier, end.passed, now)
        if forget:
            states.forget_destination(tx, end.destination.identifier, now)
        else:
            states.keep_destination(tx, record, now)
        return record

    async def _asked(self, identifier: str, found: Inspection, now: datetime) -> Response:
        """AckRequested alone: what came so far."""
        context = self._context
        record = await context.store.run(lambda tx: self._known(tx, identifier, found, now))
        if record is None:
            said = "no such sequence is known here"
            return self.fault(RmFault(Code.UNKNOWN_SEQUENCE, said, identifier), found)
        match = context.in_force.match(record.pmode, record.leg)
        related = found.addressing.message_id if found.addressing else None
        written = self._written(None, record, match, _version(found), relates_to=related)
        return Response(200, written.content_type, written.envelope)

    # What waits too long

    async def perform(self, work: Work) -> None:
        """Look at what waits in a sequence for long."""
        now = self._context.clock()
        await self._context.store.run(lambda tx: self._overdue(tx, work, now))
        self._context.told()

    def _overdue(self, tx: Transaction, work: Work, now: datetime) -> None:
        """Messages wait for one of a sequence: told once; past its time they wait no longer."""
        message = tx.message(Side.RECEIVING, work.message_id)
        identifier = work.data.decode()
        record = states.destination_of(tx, identifier, now)
        if message is None or message.state is not State.HELD:
            tx.finish_work(work.id, work.owner)
            waiting = states.first_held(tx, record) if record is not None else None
            if waiting is not None:
                due = now + order.LIMITS.patience
                tx.add_work(Work("held", waiting, due, work.data))
            return
        if record is None:
            free(self._context, tx, message, now)
            tx.finish_work(work.id, work.owner)
            return
        if not work.attempt:
            said = f"messages of the sequence {identifier} are missing, and others wait for them"
            event = about(message, "error_raised", now, severity="warning", detail=said)
            tx.record((event,))
        tx.postpone_work(work.id, now + order.LIMITS.patience, owner=work.owner)


def free(context: Context, tx: Transaction, message: Message, now: datetime) -> bool:
    """Deliver a message that waits in a sequence, and all that wait before it; False: it waits not.

    What it waited for is not missed any more; should it still come, it is delivered late.
    """
    identifier = states.waits_in(tx, message.message_id)
    if identifier is None:
        return False
    record = states.destination_of(tx, identifier, now)
    if record is None:
        deliver(context, tx, message, now)
        return True
    end = wsrm.closed(record.destination, None, in_order=record.in_order)
    for message_id in states.freed(tx, identifier, end.passed, now):
        freed = tx.message(Side.RECEIVING, message_id)
        if freed is not None and freed.state is State.HELD:
            deliver(context, tx, freed, now)
    open_ = changed(end.destination, stage=record.destination.stage)
    states.keep_destination(tx, changed(record, destination=open_), now)
    return True


def _ack(destination: Destination) -> SequenceAcknowledgement:
    return SequenceAcknowledgement(
        destination.identifier, destination.received, final=destination.final
    )


def _version(found: Inspection) -> SoapVersion:
    return found.envelope.version if found.envelope else SoapVersion.SOAP_12


def _reference(record: DestinationRecord, version: SoapVersion) -> EndpointReference:
    found, _ = read_endpoint_reference(parse(record.acks_to.encode()), version)
    return found or EndpointReference(ANONYMOUS)


def _mpc(reference: EndpointReference) -> str | None:
    routing = reference.routing_input
    return routing.user_message.mpc if routing is not None else None


def _like(match: Match, now: datetime) -> UserMessage:
    """A message as all of the P-Mode are, for routing."""
    agreed = header(match.pmode, match.number)
    info = CollaborationInfo(agreed.service, agreed.action, "1", agreed.agreement_ref)
    business = match.leg.business_info
    named = business is not None and business.mpc is not None
    return UserMessage(
        MessageInfo(now, "sequence@postroad"),
        agreed.from_party,
        agreed.to_party,
        info,
        mpc=agreed.mpc if named else None,
    )
