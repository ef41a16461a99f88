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
from postroad.msh.lens import Inspection
from postroad.msh.routing_headers import acks_reference, came_routed
from postroad.msh.securing import Unsecurable, answer_signing
from postroad.msh.selecting import signal_items
from postroad.msh.unbundling import ReceivedUnit
from postroad.msh.wsrm import Written, signer_of, write_message, write_rm_fault
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.base.requests import NO_CONTENT, Response
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.calling import Call
from postroad.node.steps.handing import deliver
from postroad.node.steps.keeping import Answering, Given, take_over
from postroad.node.steps.senders import stored_as
from postroad.node.steps.wsrm_states import DestinationRecord
from postroad.reliability import order, wsrm
from postroad.reliability.wsrm import Destination, Verdict
from postroad.security.sign import Signing
from postroad.store.interface import Transaction
from postroad.store.records import Message, Offer, Side, Signal, State, Work
from postroad.wire.ebms3 import CollaborationInfo, MessageInfo, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import (
    ANONYMOUS,
    EndpointReference,
    read_endpoint_reference,
)
from postroad.wire.wsrm import (
    Lifecycle,
    SequenceAcknowledgement,
)
from postroad.wire.wsrm_faults import Code, RmFault
from postroad.wire.xml import parse

_REQUIRED = "WSRMRequired: messages of this P-Mode are sent in a sequence, and this one is in none"
_NOT_TAKEN = EbmsError("EBMS:0004", "neither the message nor a part of it was taken")
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
    """As of any other message, or of the first unit of a bundle; None: it was not looked at."""
    record: DestinationRecord | None = None
    fault: RmFault | None = None
    problem: EbmsError | None = None
    back: Work | None = None
    """The work that brings the acknowledgement, where it is not the response."""
    repeats: bool = False
    """Its number was there before."""


class Destinations:
    """The sequences that this node receives in."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def keep(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        agreed: Reliable,
        how: Answering,
    ) -> Callable[[Transaction], InSequence]:
        """The step for a message that holds in itself: taken, held, or known already."""
        payloads = next(iter(arrival.found.payloads.values()), ())

        def take(tx: Transaction, holds: bool) -> Sequence[Given]:
            numbered = changed(how, holds=holds, numbered=True)
            args = (self._context, tx, arrival, message, match, numbered, payloads, tx.keep)
            return (take_over(*args),)

        def again(tx: Transaction) -> Sequence[Given]:
            return (self._repeated(tx, arrival, message, match),)

        return self._keep_by_number(arrival, match, agreed, take, again)

    def keep_units(
        self,
        arrival: Arrival,
        units: Sequence[ReceivedUnit],
        agreed: Reliable,
        take: Callable[[Transaction, bool], Sequence[Given]],
    ) -> Callable[[Transaction], InSequence]:
        """The step for a bundle, which is one message of the sequence. [P2-3.2.2-08]

        `take` takes its units over, held or not: what became of those that did not fail, in the
        order in which they are delivered. A bundle of which no unit is taken has no number.
        """
        primary = units[0].match
        assert primary is not None

        def take_any(tx: Transaction, holds: bool) -> Sequence[Given]:
            return take(tx, holds) or (Given(State.REJECTED, None, refused=_NOT_TAKEN),)

        def again(tx: Transaction) -> Sequence[Given]:
            matched = [(one.message, one.match) for one in units if one.match is not None]
            return [self._repeated(tx, arrival, message, match) for message, match in matched]

        return self._keep_by_number(arrival, primary, agreed, take_any, again)

    def keep_fragment(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        agreed: Reliable,
        take: Callable[[Transaction], Given | None],
    ) -> Callable[[Transaction], InSequence]:
        """The step for a fragment, which is a message of the sequence by itself. [P2-4.4.2-05]

        `take` takes it with its group: what became of it, None if it was refused.
        """

        def take_it(tx: Transaction, holds: bool) -> Sequence[Given]:
            given = take(tx)
            if given is None:
                return (Given(State.REJECTED, None, refused=_NOT_TAKEN),)
            return (changed(given, stored_id=given.stored_id or message.message_info.message_id),)

        def again(tx: Transaction) -> Sequence[Given]:
            return (self._repeated(tx, arrival, message, match),)

        return self._keep_by_number(arrival, match, agreed, take_it, again)

    def _keep_by_number(
        self,
        arrival: Arrival,
        match: Match,
        agreed: Reliable,
        take: Callable[[Transaction, bool], Sequence[Given]],
        again: Callable[[Transaction], Sequence[Given]],
    ) -> Callable[[Transaction], InSequence]:
        """The step for what has a number: taken, held, or known already.

        `take` takes it over, held or not; `again` finds what came before under its number. Each
        tells what became of the message, or of the units of a bundle in their order.
        """
        found, now = arrival.found, arrival.now
        assert found.rm is not None
        assert found.rm.sequence is not None
        identifier, number = found.rm.sequence.identifier, found.rm.sequence.message_number

        def step(tx: Transaction) -> InSequence:
            record = self.known(tx, identifier, found, now)
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
                taken = self._acknowledged(tx, arrival, match, record, again(tx))
                return changed(taken, repeats=True)
            holds = arrived.verdict is Verdict.HOLD
            given = take(tx, holds)
            if given[0].contradicts or given[0].refused is not None:
                return InSequence(given[0], record)
            record = changed(record, destination=arrived.destination)
            states.keep_destination(tx, record, now)
            fresh = [one for one in given if one.state is State.HELD and not one.duplicate]
            waits = [one.stored_id for one in fresh]
            if holds and waits:
                self._hold(tx, record, number, waits, now)
            self.release(tx, identifier, arrived.passed, now)
            return self._acknowledged(tx, arrival, match, record, given)

        return step

    def known(
        self, tx: Transaction, identifier: str, found: Inspection, now: datetime
    ) -> DestinationRecord | None:
        """A sequence of who speaks; that of somebody else is as good as unknown."""
        record = states.destination_of(tx, identifier, now)
        return record if record is not None and record.creator == signer_of(found) else None

    def _repeated(
        self, tx: Transaction, arrival: Arrival, message: UserMessage, match: Match
    ) -> Given:
        """A number that was there before: a copy, whatever it says."""
        stored_id, before = stored_as(self._context, tx, arrival, message, match)
        if before is None or before.state is State.REJECTED:
            return Given(State.REJECTED, None, duplicate=True, stored_id=stored_id)
        tx.record((about(before, "duplicate", arrival.now, peer=arrival.peer),))
        return Given(before.state, None, duplicate=True, stored_id=stored_id)

    def _hold(
        self,
        tx: Transaction,
        record: DestinationRecord,
        number: int,
        names: Sequence[str],
        now: datetime,
    ) -> None:
        """It waits for those before it; if these don't come, somebody is told."""
        identifier = record.destination.identifier
        states.hold(tx, identifier, number, names, now)
        if wsrm.held(record.destination) == ((number, number),):
            due = now + order.LIMITS.patience
            tx.add_work(Work("held", names[0], due, identifier.encode()))

    def release(
        self, tx: Transaction, identifier: str, passed: Sequence[int], now: datetime
    ) -> None:
        """What waited is for the application, in its order."""
        for message_id in states.freed(tx, identifier, tuple(passed), now):
            freed = tx.message(Side.RECEIVING, message_id)
            if freed is not None and freed.state is State.HELD:
                deliver(self._context, tx, freed, now)

    def _acknowledged(
        self,
        tx: Transaction,
        arrival: Arrival,
        match: Match,
        record: DestinationRecord,
        every: Sequence[Given],
    ) -> InSequence:
        """An acknowledgement that is not the response goes out as work, or into a channel.

        It is one for all units of a bundle. [P2-3.2.2-01]
        """
        context, now = self._context, arrival.now
        given = next((one for one in every if one.state is not State.REJECTED), every[0])
        name, agreed = given.stored_id, wsrm_of(match.leg)
        kept = tx.message(Side.RECEIVING, name)
        if not record.acks_to or agreed is None:
            for one in every:
                taken = tx.message(Side.RECEIVING, one.stored_id)
                if taken is not None and taken.state is not State.REJECTED:
                    tx.record((about(taken, "acked", context.clock(), peer=arrival.peer),))
            return InSequence(given, record)
        version = version_of(arrival.found)
        ack = self.written(None, record, match, version, to=reference(record, version))
        if agreed.channel is not None:
            self._offered(tx, kept, ack, agreed.channel, match, now)
            return InSequence(given, record)
        if agreed.acks_to is None:
            return InSequence(given, record)
        work = self.call(name, ack, agreed.acks_to, match, now)
        return InSequence(given, record, back=changed(work, id=tx.add_work(work)))

    def call(self, name: str, sent: Written, url: str, match: Match, now: datetime) -> Work:
        """The work that brings a message of the protocol to where the P-Mode says."""
        call = Call(
            url,
            "acknowledgment",
            sent.message_id,
            sent.content_type,
            base64.b64encode(sent.envelope).decode(),
            match.pmode.id,
            f'"{sent.action}"' if sent.version is SoapVersion.SOAP_11 else None,
            match.number,
        )
        return self._context.claimed(Work("signal", name, now, msgspec.json.encode(call)))

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
        items = signal_items(kept.wire_id)
        tx.add_offer(Offer(channel, match.pmode.id, answer.signal_id, now, items, about=name))

    def written(
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

    async def response(self, taken: InSequence, arrival: Arrival, match: Match) -> Response:
        """What a message in a sequence is answered with on its connection."""
        found, version = arrival.found, version_of(arrival.found)
        if taken.fault is not None:
            final = _ack(taken.record.destination) if taken.record is not None else None
            return await self.fault(taken.fault, found, final=final, match=match)
        if taken.record is None or taken.record.acks_to:
            return NO_CONTENT
        related = found.addressing.message_id if found.addressing else None
        ack = self.written(None, taken.record, match, version, relates_to=related)
        return Response(200, ack.content_type, ack.envelope)

    async def fault(
        self,
        fault: RmFault | str,
        found: Inspection,
        *,
        final: SequenceAcknowledgement | None = None,
        match: Match | None = None,
        to: EndpointReference | None = None,
    ) -> Response:
        """A fault of the protocol, as SOAP tells it; where nobody waits for it, it calls back."""
        version, now = version_of(found), self._context.clock()
        url = called_back(match, found)
        if match is not None and url is not None and to is None:
            to = acks_reference(match, like(match, now))
        written = write_rm_fault(
            fault,
            version,
            message_id=self._context.new_id(now),
            to=to or EndpointReference(ANONYMOUS),
            relates_to=found.addressing.message_id if found.addressing else None,
            final=final,
            now=now,
            how=self._how(match) if url is not None else None,
        )
        if match is not None and url is not None:
            await self.send(written, url, match)
            return NO_CONTENT
        status = 500 if version is SoapVersion.SOAP_11 else 400
        return Response(status, written.content_type, written.envelope)

    async def send(
        self,
        sent: Written,
        url: str,
        match: Match,
        also: Callable[[Transaction], None] | None = None,
    ) -> None:
        """Durable first, together with what it tells of, then called back."""
        context, now = self._context, self._context.clock()
        work = self.call(sent.message_id, sent, url, match, now)

        def step(tx: Transaction) -> Work:
            if also is not None:
                also(tx)
            return changed(work, id=tx.add_work(work))

        added = await context.store.run(step)
        if context.begin is not None:
            context.begin(added)

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


def version_of(found: Inspection) -> SoapVersion:
    """The SOAP version in which an answer is given."""
    return found.envelope.version if found.envelope else SoapVersion.SOAP_12


def called_back(match: Match | None, found: Inspection) -> str | None:
    """Where the answer to a routed message about a sequence is sent; None: it is the response.

    Intermediaries that store and forward bring no response, so it goes where acknowledgements go
    (Part 2, D.1). [P2-2.6.2-06]
    """
    agreed = wsrm_of(match.leg) if match is not None else None
    if agreed is None or not came_routed(found) or agreed.pattern != "Callback":
        return None
    return agreed.acks_to


def like(match: Match, now: datetime) -> UserMessage:
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


def reference(record: DestinationRecord, version: SoapVersion) -> EndpointReference:
    found, _ = read_endpoint_reference(parse(record.acks_to.encode()), version)
    return found or EndpointReference(ANONYMOUS)
