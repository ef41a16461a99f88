"""Messages about sequences: CreateSequence and its kin answered, acknowledgements heard.

They hold no eb:Messaging. Who asked for a sequence is who speaks about it later: the same signer.
"""

from datetime import datetime

from msgspec.structs import replace as changed

from postroad.agreement.channels import collected_at
from postroad.agreement.matching import Match
from postroad.agreement.reliable import pulled_in_sequence, wsrm_of
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.routing_headers import acks_reference
from postroad.msh.securing import signs
from postroad.msh.wsrm import rm_problems, signer_of, way_problems
from postroad.node.base.context import Context
from postroad.node.base.requests import NO_CONTENT, Response
from postroad.node.steps import wsrm_pull_states as pulls
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.noting import note
from postroad.node.steps.wsrm_pull_states import Asked
from postroad.node.steps.wsrm_states import DestinationRecord
from postroad.node.wsrm.awaiting import ANSWERS, Question, answered, name_of, question_about
from postroad.node.wsrm.destination import (
    Destinations,
    called_back,
    like,
    reference,
    version_of,
)
from postroad.node.wsrm.hearing import faulted, took
from postroad.reliability import wsrm
from postroad.reliability.wsrm import Destination
from postroad.store.interface import Reader, Transaction
from postroad.wire.errors import Severity
from postroad.wire.soap import Envelope
from postroad.wire.wsa import ANONYMOUS, EndpointReference, write_endpoint_reference
from postroad.wire.wsrm import (
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    Offer,
    TerminateSequence,
    TerminateSequenceResponse,
)
from postroad.wire.wsrm_faults import Code, RmFault, read_rm_fault
from postroad.wire.wsrm_reader import read_lifecycle, read_rm_headers


class SequenceRequests:
    """The door for messages of WS-ReliableMessaging alone."""

    def __init__(self, context: Context, destinations: Destinations) -> None:
        self._context = context
        self.destinations = destinations

    async def receive(
        self, look: Look, peer: str | None, certificate: bytes | None, now: datetime
    ) -> Response:
        """A message of the protocol alone: about a sequence of ours, or one that we receive in."""
        context, envelope = self._context, look.found.envelope
        assert envelope is not None
        body, wrong = read_lifecycle(envelope)
        if _is_answer(envelope, body):
            await self.hear(look, peer, now)
            return NO_CONTENT
        offers = isinstance(body, CreateSequence) and body.offer is not None and self._pulled()
        # Who offers a sequence may be somebody who pulls.
        terms = context.in_force.channels.terms if offers else look.terms()
        await context.judge((look, terms))
        found = look.found
        failures = [one for one in found.problems if one.severity is Severity.FAILURE]
        failures += wrong
        if failures:
            await note(context, failures[0].code, failures[0].detail, now, peer)
            said = failures[0].detail
            if isinstance(body, CreateSequence):
                fault = RmFault(Code.CREATE_SEQUENCE_REFUSED, said)
                return await self.destinations.fault(fault, found, to=body.acks_to)
            return await self.destinations.fault(said, found)
        if isinstance(body, CreateSequence):
            return await self._create(body, found, peer, certificate, now)
        if isinstance(body, CloseSequence | TerminateSequence):
            return await self._end(body, found, now, peer)
        if body is None and found.rm is not None and found.rm.ack_requested:
            return await self._asked(found.rm.ack_requested[0], found, now, peer)
        detail = "a message of WS-ReliableMessaging that nobody asked for"
        await note(context, "EBMS:0201", detail, now, peer)
        return NO_CONTENT

    async def pulled(self, look: Look, peer: str, now: datetime) -> tuple[str, ...]:
        """The same from a channel of a hub: the messages that it acknowledges, if any."""
        envelope = look.found.envelope
        assert envelope is not None
        if _is_answer(envelope, read_lifecycle(envelope)[0]):
            return await self.hear(look, peer, now, in_request=False)
        response = await self.receive(look, peer, None, now)
        if response is not NO_CONTENT:
            detail = "an answer about a sequence that was pulled has no way: write Callback"
            await note(self._context, "EBMS:0201", detail, now, peer)
        return ()

    async def hear(
        self, look: Look, peer: str | None, now: datetime, *, in_request: bool = True
    ) -> tuple[str, ...]:
        """What is said of a sequence in which this node sends, by itself or pulled: the messages
        that it acknowledges."""
        context, envelope = self._context, look.found.envelope
        assert envelope is not None
        body, _ = read_lifecycle(envelope)
        if isinstance(body, TerminateSequenceResponse):
            # The sequence was over when this was asked for.
            return ()
        headers, _ = read_rm_headers(envelope)
        acks = headers.acknowledgements if headers is not None else ()
        fault = read_rm_fault(envelope)
        question = await context.store.look(lambda reader: question_about(reader, envelope))
        names = [one.identifier for one in acks]
        if fault is not None and fault.identifier is not None:
            names.append(fault.identifier)
        if question is not None:
            match = context.in_force.match(question.pmode, question.leg)
        else:
            match = await self._match_of(names[0]) if names else None
        if match is None:
            detail = "an acknowledgement, or a fault, of no sequence that this node sends in"
            if isinstance(body, ANSWERS):
                detail = "an answer about a sequence that nobody asked for"
            await note(context, "EBMS:0201", detail, now, peer)
            return ()
        await context.judge((look, context.in_force.answer_terms(match)))
        problems = rm_problems(look.found, match) or way_problems(match, in_request=in_request)
        if problems:
            said = f"what is said of a sequence is not believed: {problems[0].detail}"
            await note(context, "EBMS:0201", said, now, peer)
            return ()
        told = await took(context, look.found, match, peer, in_request=in_request) or ()
        if fault is not None and fault.identifier is not None:
            of = fault.identifier
            await context.store.run(lambda tx: faulted(tx, fault, of, now))
            context.work_came.set()
        if question is not None:
            await self._answered(question, match, envelope, fault, peer, now)
        return told

    async def _answered(
        self,
        question: Question,
        match: Match,
        envelope: Envelope,
        fault: RmFault | None,
        peer: str | None,
        now: datetime,
    ) -> None:
        """The answer to what this node asked about a sequence came by itself."""
        context = self._context
        body, wrong = read_lifecycle(envelope)
        if fault is None and (wrong or not isinstance(body, ANSWERS)):
            said = wrong[0].detail if wrong else "an answer about a sequence that says nothing"
            await note(context, "EBMS:0201", said, now, peer)
            return
        await context.store.run(answered(question, match, body, fault, now))
        context.settled.tell(name_of(question.message_id))
        context.work_came.set()

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
        if asked.offer is not None and self._pulled():
            return await self._create_pulled(asked, asked.offer, found, now)
        matches = [
            Match(one.pmode, one.leg, one.index + 1)
            for one in context.in_force.expectation.pmodes.legs
            if wsrm_of(one.leg) is not None
        ]
        ours = [one for one in matches if context.in_force.receives(one)]
        # Who signs expects a signed answer: P-Modes that sign come first for it.
        ours.sort(key=lambda one: signs(one.leg) is not bool(signer_of(found)))
        why = "no P-Mode here has messages in sequences"
        for match in ours:
            wrong = self._unfit(asked, found, match, certificate, now)
            if wrong is None:
                break
            why = wrong
        else:
            await note(context, "EBMS:0201", f"CreateSequenceRefused: {why}", now, peer)
            fault = RmFault(Code.CREATE_SEQUENCE_REFUSED, why)
            return await self.destinations.fault(fault, found, match=_only(ours), to=asked.acks_to)
        agreed = wsrm_of(match.leg)
        assert agreed is not None
        identifier = f"urn:uuid:{context.new_id(now).partition('@')[0]}"
        ends = None if asked.expires is None else now + asked.expires
        to = asked.acks_to
        version = version_of(found)
        xml = "" if to.address == ANONYMOUS else write_endpoint_reference(to, version)
        record = DestinationRecord(
            Destination(identifier, expires_at=ends),
            signer_of(found),
            match.pmode.id,
            match.number,
            agreed.in_order,
            xml,
        )
        related = found.addressing.message_id if found.addressing else None
        made = CreateSequenceResponse(identifier, asked.expires)
        back = called_back(match, found)
        answer = self.destinations.written(
            made,
            record,
            match,
            version,
            to=to if back is not None else None,
            relates_to=related,
            acks=False,
        )

        def keep(tx: Transaction) -> None:
            states.keep_new_destination(tx, record, now)

        if back is not None:
            await self.destinations.send(answer, back, match, keep)
            return NO_CONTENT
        await context.store.run(keep)
        return Response(200, answer.content_type, answer.envelope)

    def _pulled(self) -> list[Match]:
        """The P-Modes whose messages are pulled from here by reliable requests."""
        return [
            one.match
            for one in self._context.in_force.channels.offered
            if not one.signals
            and pulled_in_sequence(one.match.pmode, one.match.leg, one.match.number - 1)
        ]

    async def _create_pulled(
        self, asked: CreateSequence, offer: Offer, found: Inspection, now: datetime
    ) -> Response:
        """A sequence for PullRequests. Whose it is, is seen when the first of them comes."""
        context, match = self._context, self._pulled()[0]
        if asked.secured:
            said = "sequences are not bound to security tokens here"
            return await self.destinations.fault(RmFault(Code.CREATE_SEQUENCE_REFUSED, said), found)
        identifier = f"urn:uuid:{context.new_id(now).partition('@')[0]}"
        ends = None if asked.expires is None else now + asked.expires
        destination, signer = Destination(identifier, expires_at=ends), signer_of(found)
        order = None if asked.assurance is None else asked.assurance.in_order
        record = Asked(destination, offer.identifier, signer, order)
        await context.store.run(lambda tx: pulls.keep_new_asked(tx, record, now))
        related = found.addressing.message_id if found.addressing else None
        here = EndpointReference(collected_at(match.pmode, match.leg) or ANONYMOUS)
        made = CreateSequenceResponse(identifier, asked.expires, accept=here)
        like = DestinationRecord(destination, signer, match.pmode.id, match.number)
        answer = self.destinations.written(
            made, like, match, version_of(found), relates_to=related, acks=False
        )
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
        in_force = self._context.in_force
        if in_force.expectation.check_client(match, certificate, now, in_force.revocation):
            return "the TLS client certificate is not the one that is agreed on"
        wanted = acks_reference(match, like(match, now))
        named = asked.acks_to
        if named.address != wanted.address or _mpc(named) != _mpc(wanted):
            return f"AcksTo is not as agreed on: {wanted.address}"
        assurance = asked.assurance
        if assurance is not None and assurance.in_order != agreed.in_order:
            return "another order is agreed on than the one that it asks for"
        return None

    async def _end(
        self,
        body: CloseSequence | TerminateSequence,
        found: Inspection,
        now: datetime,
        peer: str | None,
    ) -> Response:
        """Nothing more is coming: what waits is delivered, and the final acknowledgement given."""
        context, closes = self._context, isinstance(body, CloseSequence)

        def step(tx: Transaction) -> DestinationRecord | None:
            record = self.destinations.known(tx, body.identifier, found, now)
            if record is None:
                return None
            return self._closed(tx, record, body.last, now, forget=not closes)

        record = await context.store.run(step)
        if record is None:
            return await self._unknown(body.identifier, found, now, peer)
        context.told()
        answer: Lifecycle = TerminateSequenceResponse(body.identifier)
        if closes:
            answer = CloseSequenceResponse(body.identifier)
        return await self._said(answer, record, found)

    async def _said(
        self, answer: Lifecycle | None, record: DestinationRecord, found: Inspection
    ) -> Response:
        """An answer about a sequence with all that came: the response, or it is called back."""
        version = version_of(found)
        match = self._context.in_force.match(record.pmode, record.leg)
        back = called_back(match, found) if record.acks_to else None
        written = self.destinations.written(
            answer,
            record,
            match,
            version,
            to=reference(record, version) if back is not None else None,
            relates_to=found.addressing.message_id if found.addressing else None,
        )
        if match is not None and back is not None:
            await self.destinations.send(written, back, match)
            return NO_CONTENT
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
        self.destinations.release(tx, end.destination.identifier, end.passed, now)
        if forget:
            states.forget_destination(tx, end.destination.identifier, now)
        else:
            states.keep_destination(tx, record, now)
        return record

    async def _asked(
        self, identifier: str, found: Inspection, now: datetime, peer: str | None
    ) -> Response:
        """AckRequested alone: what came so far."""
        context = self._context
        record = await context.store.run(
            lambda tx: self.destinations.known(tx, identifier, found, now)
        )
        if record is None:
            return await self._unknown(identifier, found, now, peer)
        return await self._said(None, record, found)

    async def _unknown(
        self, identifier: str, found: Inspection, now: datetime, peer: str | None
    ) -> Response:
        """Answer a request about a sequence that is not known, and count it: anybody can make it.

        It has no journal event of its own: an honest sender asks again when an answer is lost.
        """
        fault = RmFault(Code.UNKNOWN_SEQUENCE, "no such sequence is known here", identifier)
        self._context.refusals.count("EBMS:0201", fault.reason, now, peer)
        return await self.destinations.fault(fault, found)


def _mpc(reference: EndpointReference) -> str | None:
    routing = reference.routing_input
    return routing.user_message.mpc if routing is not None else None


def _only(matches: list[Match]) -> Match | None:
    """The P-Mode by which a refusal goes back, where there is no doubt about it."""
    return matches[0] if len(matches) == 1 else None


def _is_answer(envelope: Envelope, body: Lifecycle | None) -> bool:
    """Whether a message is about a sequence in which its receiver sends."""
    headers, _ = read_rm_headers(envelope)
    acks = headers.acknowledgements if headers is not None else ()
    return bool(acks) or read_rm_fault(envelope) is not None or isinstance(body, ANSWERS)
