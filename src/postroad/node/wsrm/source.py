"""The source of sequences: asks for them, gives numbers, hears acknowledgements, ends them.

Messages of one key share a sequence. Who wants a number while none is open asks the partner for
one, or first closes the one before it; the others wait for that.
"""

import asyncio
import hashlib
import logging
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace as changed

from postroad.agreement.reliable import Reliable
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.outbound import soap_version
from postroad.msh.resign import expired
from postroad.msh.routing_headers import acks_reference, lifecycle_reference, shared_routing
from postroad.msh.securing import Unsecurable, signing
from postroad.msh.wsrm import write_message
from postroad.node.base.context import Context
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.wsrm_states import Numbered, SourceRecord
from postroad.node.wsrm.asking import UNANSWERED, NoSequence, answer_in, post
from postroad.node.wsrm.awaiting import (
    Question,
    await_sequence,
    awaited,
    forget,
    keep,
    opened,
    pending,
)
from postroad.node.wsrm.hearing import took
from postroad.reliability import wsrm
from postroad.reliability.wsrm import FAULTS, Source, SourceInput, SourceStage
from postroad.store.interface import Transaction
from postroad.store.records import Work
from postroad.transport.http_client import Client
from postroad.wire.ebms3 import CollaborationInfo, MessageInfo, UserMessage
from postroad.wire.unit_paths import unit_values, written_unit
from postroad.wire.wsa import ANONYMOUS, EndpointReference
from postroad.wire.wsrm import (
    Assurance,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    TerminateSequence,
)
from postroad.wire.wsrm_faults import ESCALATED, Code, RmFault

_AGAIN: Final = timedelta(seconds=30)
"""After which a sequence that could not be ended is tried to be ended again."""
_MOST_ENDINGS: Final = 10
_PATIENCE: Final = 10.0
"""Seconds for which a message waits while the answer to a CreateSequence is on its way."""
_log = logging.getLogger("postroad.send")


def key_of(sending: Sending, message: UserMessage) -> str:
    """What messages that share a sequence have in common. [P2-2.8.1-05] [P2-2.8.1-11]

    With a Correlation that is what it selects, whatever the P-Mode; the contract, the channel and
    what messages are routed by are the same in any case.
    [P2-2.8.1-06] [P2-2.8.1-07] [P2-2.8.1-10]
    """
    assert sending.reliable is not None
    correlation = sending.reliable.correlation
    shared: list[object] = [sending.match.pmode.id, sending.match.number]
    if correlation:
        shared = [*correlation, *unit_values([written_unit(message)], correlation)[0]]
    agreed = sending.match.leg.reliability
    parties = [str(message.from_party), str(message.to_party)]
    routing = shared_routing(sending.match, message)
    way = [*parties, *sending.addresses, message.mpc, *routing]
    said = agreed.model_dump(mode="json") if agreed is not None else None
    if said is not None:
        # Messages of several P-Modes form a group, which one begins and another one ends. Null is
        # what stood there before groups were supported, so that older sequences go on.
        said |= {"start_group": None, "terminate_group": None}
    return hashlib.sha256(msgspec.json.encode([shared, way, said])).hexdigest()


class Sequences:
    """The sequences that this node sends in."""

    def __init__(self, context: Context, client: Client) -> None:
        self._context = context
        self._client = client
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def place(
        self, message_id: str, key: str, sending: Sending, units: tuple[str, ...] = ()
    ) -> Numbered | None:
        """The number of a message in a sequence that is open, durable; `NoSequence` if none is.

        None if the message needs no number any more. One that nobody sends would be a hole, and
        where order was promised the receiver would hold back all that follows. `units` are the
        other units of a bundle, of which the message is the primary.
        """
        context, agreed = self._context, sending.reliable
        assert agreed is not None

        def step(tx: Transaction) -> tuple[bool, Numbered | None]:
            if not states.are_at_work(tx, (message_id, *units)):
                return True, None
            given = states.number(
                tx, key, message_id, context.clock(), units, first=bool(agreed.starts_group),
                last=agreed.ends_group,
            )  # fmt: skip
            return given is not None, given

        for _ in range(3):
            decided, given = await context.store.run(step)
            if decided:
                return given
            async with self._locks[key]:
                await self._ensure(key, sending)
            if not self._locks[key].locked():
                self._locks.pop(key, None)
        raise NoSequence("its sequence ended as soon as it was made")

    async def _ensure(self, key: str, sending: Sending) -> None:
        """See to it that a sequence is open."""
        context = self._context
        record = await context.store.look(lambda reader: states.source_of(reader, key))
        if record is not None and wsrm.is_over(record.source, context.clock()):
            record = await self._told(key, record, SourceInput.ENDED)
        record = await self._begun(key, record, sending)
        if record is not None and record.source.stage is SourceStage.OPEN:
            return
        if record is not None and record.source.stage is SourceStage.CLOSING:
            record = await self._close(key, record, sending)
        if record is not None and record.source.stage is SourceStage.CLOSED:
            await self._terminate(key, record, sending)
        await self._create(key, sending)

    async def _begun(
        self, key: str, record: SourceRecord | None, sending: Sending
    ) -> SourceRecord | None:
        """Close a sequence to which nothing can be added: a message that begins a group, or that
        follows the end of one, waits until the group before it is acknowledged (Core D.3.5).
        """
        agreed = sending.reliable
        assert agreed is not None
        if record is None:
            if agreed.starts_group is False:
                raise NoSequence("no message has begun the group that it belongs to")
            return None
        source = record.source
        follows = agreed.starts_group and source.next > 1
        if source.stage is not SourceStage.FULL and not (
            source.stage is SourceStage.OPEN and follows
        ):
            return record
        if source.outstanding and (follows or source.is_last):
            raise NoSequence("the group before it has messages that are not acknowledged yet")
        return await self._told(key, record, SourceInput.IDLE)

    async def _told(self, key: str, record: SourceRecord, given: SourceInput) -> SourceRecord:
        """An input without data, unless another process was quicker."""
        now = self._context.clock()

        def step(tx: Transaction) -> SourceRecord:
            found = states.source_of(tx, key)
            if found is None or found.source.identifier != record.source.identifier:
                return found or record
            found = changed(found, source=wsrm.told(found.source, given))
            states.keep_source(tx, key, found, now)
            return found

        return await self._context.store.run(step)

    async def _create(self, key: str, sending: Sending) -> None:
        """Ask for a sequence; what the one before left behind begins it."""
        assert sending.reliable is not None
        match, now = sending.match, self._context.clock()
        acks_to = acks_reference(match, _like(sending, now))
        asking = CreateSequence(acks_to, assurance=_assurance(sending.reliable))
        found, fault = await self._ask(key, asking, sending)
        if fault is not None:
            said = f"the partner made no sequence: {fault.reason}"
            refused = fault.code is Code.CREATE_SEQUENCE_REFUSED
            raise NoSequence(said, ESCALATED[fault.code], refused=refused)
        if found is not None:
            answer = answer_in(found, match, CreateSequenceResponse)
            assert isinstance(answer, CreateSequenceResponse)
            if answer.accept is not None:
                raise NoSequence("the partner accepted an offer that was not made", "EBMS:0201")
            now = self._context.clock()
            await self._context.store.run(lambda tx: opened(tx, key, match, answer, now))
        self._context.work_came.set()

    async def _close(self, key: str, record: SourceRecord, sending: Sending) -> SourceRecord:
        """Say that nothing more is coming, and hear what came."""
        source = record.source
        asking = CloseSequence(source.identifier, source.next - 1)
        found, fault = await self._ask(key, asking, sending)
        if fault is not None:
            given = FAULTS.get(fault.code, SourceInput.ENDED)
            if given is SourceInput.SEQUENCE_CLOSED:
                given = SourceInput.CLOSED
            return await self._told(key, record, given)
        if found is not None:
            answer = answer_in(found, sending.match, CloseSequenceResponse)
            assert isinstance(answer, CloseSequenceResponse)
            if not answer.identifier:
                # The partner closed nothing: it does not know the sequence.
                return await self._told(key, record, SourceInput.ENDED)
            await took(self._context, found, sending.match, sending.address)
        return await self._told(key, record, SourceInput.CLOSED)

    async def _terminate(self, key: str, record: SourceRecord, sending: Sending) -> None:
        """Let the partner forget the sequence. If it does not hear it, that is its loss alone."""
        source = record.source
        try:
            await self._ask(key, TerminateSequence(source.identifier, source.next - 1), sending)
        except NoSequence as unheard:
            _log.info("a sequence was not terminated", extra={"detail": unheard.detail})

    async def _ask(
        self, key: str, message: Lifecycle, sending: Sending
    ) -> tuple[Inspection | None, RmFault | None]:
        """Send a life-cycle message: the response, and the fault of the partner, if it is one.

        Without a response the answer came by itself, and was taken. [P2-2.8.1-02]
        """
        context, match, now = self._context, sending.match, self._context.clock()
        asked: Question | None = None
        if acks_reference(match, _like(sending, now)).address == ANONYMOUS:
            capture = await self._sent(message, context.new_id(now), sending)
        else:
            asked, capture = await self._question(key, message, sending)
        if capture is None and isinstance(message, TerminateSequence):
            return None, None
        if capture is None and asked is None:
            raise NoSequence(UNANSWERED)
        if capture is None:
            assert asked is not None
            return None, await self._awaited(asked)
        look = Look(capture, context.in_force.lens(now, context.store.new_sink))
        if await context.read(look):
            await context.judge((look, context.in_force.answer_terms(match)))
        return look.found, look.found.rm_fault

    async def _question(
        self, key: str, message: Lifecycle, sending: Sending
    ) -> tuple[Question, Capture | None]:
        """Ask what may be answered later; kept first, so that no answer is missed."""
        context, match, now = self._context, sending.match, self._context.clock()
        creates = isinstance(message, CreateSequence)
        known = await context.store.look(lambda reader: pending(reader, key, now))
        if known is not None and creates:
            return known, None
        asked = Question(context.new_id(now), key, match.pmode.id, match.number, now)
        await context.store.run(lambda tx: keep(tx, asked, now))
        try:
            capture = await self._sent(message, asked.message_id, sending)
        except NoSequence:
            await context.store.run(lambda tx: forget(tx, asked, now))
            raise
        if capture is not None:
            await context.store.run(lambda tx: forget(tx, asked, now))
        elif creates:
            await context.store.run(lambda tx: await_sequence(tx, asked, now))
        return asked, capture

    async def _awaited(self, asked: Question) -> RmFault | None:
        """Wait for an answer that comes by itself."""
        patience = self._context.config.http.answer_timeout.total_seconds()
        found = await awaited(self._context, asked.message_id, min(patience, _PATIENCE))
        if found is None:
            raise NoSequence("the partner was asked for a sequence, and has not answered yet")
        return found.fault

    async def _sent(self, message: Lifecycle, message_id: str, sending: Sending) -> Capture | None:
        """Post a life-cycle message; the response, None if that says nothing."""
        context, match, now = self._context, sending.match, self._context.clock()
        held = expired(match.leg, sending.material.signing, now)
        if held is not None:
            raise NoSequence(held)
        try:
            written = write_message(
                message,
                soap_version(match.leg),
                message_id=message_id,
                now=now,
                how=signing(match.leg, sending.material.signing),
                to=self._towards(sending, now),
            )
        except (Unsecurable, ValueError) as wrong:
            raise NoSequence(str(wrong), "EBMS:0103", refused=True) from None
        return await post(context, self._client, written, sending.address, sending.tls)

    def _towards(self, sending: Sending, now: datetime) -> EndpointReference:
        return lifecycle_reference(sending.match, _like(sending, now), sending.address)

    async def perform(self, work: Work) -> None:
        """End a sequence: one that is to be closed, or in which nothing is sent any more."""
        context, key, now = self._context, work.message_id, self._context.clock()
        due = await context.store.run(lambda tx: self._due(tx, key, work, now))
        if due is None:
            return
        record, done = due, True
        try:
            sending = context.in_force.sending(record.pmode, record.leg)
            async with self._locks[key]:
                if record.source.stage is SourceStage.CLOSING:
                    record = await self._close(key, record, sending)
                if not record.source.outstanding:
                    await self._terminate(key, record, sending)
        except NoSequence as unheard:
            done = work.attempt + 1 >= _MOST_ENDINGS
            _log.warning("a sequence was not closed", extra={"detail": unheard.detail})
        except Refused:
            # Its P-Mode is gone: nobody knows how to speak of it.
            pass
        await context.store.run(lambda tx: self._ended(tx, key, record, work, done))
        context.work_came.set()

    def _due(self, tx: Transaction, key: str, work: Work, now: datetime) -> SourceRecord | None:
        """The sequence if it is to be ended now; else the work is put off, or over."""
        record = states.source_of(tx, key)
        if record is None or record.timer != work.id:
            tx.finish_work(work.id, work.owner)
            return None
        source = self._at_rest(tx, record)
        ends_group = source.stage is SourceStage.FULL and source.is_last
        if source.stage is SourceStage.OPEN or ends_group:
            match = self._context.in_force.match(record.pmode, record.leg)
            agreed = match.leg.reliability if match is not None else None
            idle = agreed.max_idle if agreed is not None else timedelta(0)
            ends = (source.at or now) + (timedelta(0) if ends_group else idle)
            if source.outstanding or now < ends:
                record = changed(record, source=source)
                states.keep_source(tx, key, record, now)
                later = max(ends, now + _AGAIN) if source.outstanding else ends
                tx.postpone_work(work.id, later, owner=work.owner)
                return None
            source = wsrm.told(source, SourceInput.IDLE)
        record = changed(record, source=source)
        states.keep_source(tx, key, record, now)
        return record

    def _at_rest(self, tx: Transaction, record: SourceRecord) -> Source:
        """The sequence without numbers of messages that nobody sends any more."""
        source = record.source
        for number, names in states.waiting(tx, source):
            if not states.are_at_work(tx, names):
                source = wsrm.rested(source, number, in_order=False)
        return source

    def _ended(
        self, tx: Transaction, key: str, record: SourceRecord, work: Work, done: bool
    ) -> None:
        now = self._context.clock()
        found = states.source_of(tx, key)
        if found is None or found.source.identifier != record.source.identifier:
            tx.finish_work(work.id, work.owner)
            return
        if not done:
            tx.postpone_work(work.id, now + _AGAIN, owner=work.owner)
            return
        if found.source.outstanding:
            # What it left behind goes into the next one, which its sender asks for.
            left = changed(found, source=wsrm.told(found.source, SourceInput.CLOSED), timer=None)
            states.keep_source(tx, key, left, now)
        else:
            states.ended(tx, key, found, now)
        tx.finish_work(work.id, work.owner)


def _like(sending: Sending, now: datetime) -> UserMessage:
    """A message as all of a sequence are, for routing."""
    agreed = sending.agreed
    info = CollaborationInfo(agreed.service, agreed.action, "1", agreed.agreement_ref)
    return UserMessage(
        MessageInfo(now, "sequence@postroad"),
        agreed.from_party,
        agreed.to_party,
        info,
        mpc=agreed.mpc if _names_mpc(sending) else None,
    )


def _names_mpc(sending: Sending) -> bool:
    info = sending.match.leg.business_info
    return info is not None and info.mpc is not None


def _assurance(agreed: Reliable) -> Assurance:
    return Assurance(True, agreed.at_most_once, agreed.in_order)
