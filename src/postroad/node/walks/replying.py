"""The application's answer as the response to a message: Two-Way/Sync, and syncReply of ebXML.

Who brought the message waits in the request, and so do those who bring a copy of it. What is
submitted meanwhile is the response to all of them, the same bytes each time. (0.98b, 8.6.4)

In ebXML a reply may also be sent by itself: it is handed to the request that waits, and its work of
sending stays, a little later, for the case that nobody takes it. A reply in Two-Way/Sync is nothing
but the response; when it is late, the sender of the request is told so (EBMS:0060), and it goes by
the alternate binding.
"""

import asyncio
import contextlib
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.places import alternate_of
from postroad.msh.answers import Answer, error, kept_signal, receipt_is_response, write_answer
from postroad.msh.ebxml_answers import ride, sent_ebxml
from postroad.msh.ebxml_terms import profile_of, reliable
from postroad.msh.outbound import WirePart, wire_form
from postroad.msh.securing import answer_signing
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place, signed
from postroad.node.base.requests import NO_CONTENT, Response
from postroad.node.ebxml.hearing import terms_of
from postroad.node.ebxml.keeping import awaits_name
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.exchanging import request_of
from postroad.node.steps.keeping import sent_signal
from postroad.node.walks.offering import Offering
from postroad.reliability import ebxml
from postroad.store.interface import Reader, Transaction
from postroad.store.qualified import wire_id
from postroad.store.records import Message, Side, Signal, State, Stored, Work
from postroad.wire.content import read_all
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.ebxml import Acknowledgment
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.wsa import EndpointReference, read_addressing
from postroad.wire.xml import mentions, parse

_LATE: Final = EbmsError(
    "EBMS:0060", "the reply is not there yet, and comes by the alternate binding"
)
_LOOK_AGAIN: Final = 2.0
"""Seconds: another process may take the application's answer, and cannot tell."""
MOST_WAITING: Final = 400
"""Requests of a process that wait at once. Each takes a place at the door, which has 500."""
_MARGIN: Final = timedelta(seconds=10)
_NOT_YET: Final = (State.SUBMITTED,)
_NEVER: Final = (State.FAILED, State.EXPIRED)
_COME_AGAIN: Final = Response(500, come_again=True)
"""The message was taken, so that 503 would be wrong."""
_VERSIONS: Final = {version.number: version for version in SoapVersion}

Riding = Acknowledgment | SignalMessage
"""What stands in a reply about its request."""


class Handed(Struct, frozen=True):
    """What the application answered, where somebody waits for it."""

    message_id: str
    work: int


def for_request(tx: Transaction, reply: Message, work: Work, context: Context) -> int | None:
    """Hand a reply to the request that waits for it; its work, or None when none waits."""
    request = request_of(tx, reply)
    if request is None or not _is_reply(reply, request):
        return None
    name = awaits_name(request.message_id)
    if tx.state(name) != b"":
        return None
    now = context.clock()
    later = changed(work, due_at=now + _MARGIN, owner=None, lease_until=None, lane=None)
    number = tx.add_work(later)
    tx.set_state(name, msgspec.json.encode(Handed(reply.message_id, number)), now)
    return number


def _is_reply(reply: Message, request: Message) -> bool:
    """Whether it goes back to who sent the request, in the same tongue."""
    return (reply.to_party, reply.protocol) == (request.from_party, request.protocol)


async def riding(context: Context, message: Message, sending: Sending) -> Riding | None:
    """What is said about a request in its reply, which is the response, if anything."""
    if sending.answers:
        request = await context.store.look(lambda reader: request_of(reader, message))
        name = request.message_id if request is not None else ""
        return await _receipt(context, message.pmode, name)
    if sending.dialect is not None and message.ref_to_message_id is not None:
        return await _acknowledgment(context, message)
    return None


def routed_by(context: Context, request: Message | None) -> EndpointReference | None:
    """Where a request says that its reply is routed to, if it does. [P2-2.6.2-01]"""
    if request is None or request.envelope is None:
        return None
    kept = read_all(context.store.content(request.envelope), request.envelope.size)
    if not mentions(kept, b"ReplyTo"):
        return None
    addressing, _ = read_addressing(read_envelope(parse(kept, context.limits)))
    named = addressing.reply_to if addressing is not None else None
    return named if named is not None and named.routing_input is not None else None


async def _receipt(context: Context, pmode: str | None, request: str) -> SignalMessage | None:
    """The receipt for a request, where it goes with the response."""
    match = context.in_force.match(pmode, 1)
    if match is None or not receipt_is_response(match.leg):
        return None
    kept = await context.store.look(lambda reader: _kept_receipt(reader, request))
    if kept is None:
        return None
    content = context.store.content(kept.envelope)
    return kept_signal(read_all(content, kept.envelope.size), context.limits)


def _kept_receipt(reader: Reader, message_id: str) -> Signal | None:
    signals = reader.signals(Side.RECEIVING, message_id)
    return next((one for one in signals if not one.incoming and one.kind == "receipt"), None)


async def _acknowledgment(context: Context, message: Message) -> Acknowledgment | None:
    """The acknowledgment that rides on the reply to a message whose request waits, if any."""

    def ask(reader: Reader) -> Message | None:
        request = request_of(reader, message)
        waits = request is not None and reader.state(awaits_name(request.message_id)) == b""
        return request if waits else None

    request = await context.store.look(ask)
    match = None if request is None else context.in_force.match(request.pmode, request.leg)
    if request is None or request.envelope is None or match is None:
        return None
    if not _is_reply(message, request):
        return None
    kept = read_all(context.store.content(request.envelope), request.envelope.size)
    received = sent_ebxml(kept, context.limits)
    terms = terms_of(received.message, match)
    if not terms.is_acknowledged:
        return None
    by_machine = reliable(received.message)
    party = ebxml.Receiver(by_machine.to_party, profile=profile_of(match))
    signal = ebxml.acknowledge(by_machine, terms, party, request.created_at)
    to, now = received.message, context.clock()
    try:
        signing = answer_signing(match.leg, context.in_force.keyring.signing)
        references = received.references
        return ride(signal, to.dialect, to=to, now=now, signing=signing, references=references)[0]
    except ValueError as wrong:
        said = f"the reply would acknowledge {message.ref_to_message_id}: {wrong}"
        raise Refused(422, said) from None


class Standing(Enum):
    """What there is to be said to a request."""

    NOTHING = "nothing yet"
    COMING = "a reply, which is being packaged"
    THERE = "all that will be said"


def _standing(reader: Reader, message_id: str) -> Standing:
    request = reader.message(Side.RECEIVING, message_id)
    if request is None or request.late:
        return Standing.THERE
    if request.protocol != "as4":
        waits = reader.state(awaits_name(message_id)) == b""
        return Standing.NOTHING if waits else Standing.THERE
    reply = _reply(reader, request)
    if reply is None:
        return Standing.NOTHING
    return Standing.COMING if reply.state in _NOT_YET else Standing.THERE


def _reply(reader: Reader, request: Message) -> Message | None:
    """The reply that goes as the response; None when there is none, or it could not be made."""
    name = request.reply_message_id
    reply = reader.message(Side.SENDING, name) if name is not None else None
    if reply is None or reply.late or reply.state in _NEVER:
        return None
    return reply


class Replying:
    """Waits for what the application says to a message."""

    def __init__(self, context: Context, offering: Offering) -> None:
        self._context = context
        self._offering = offering
        self._waiting = 0

    async def awaited(self, message_id: str, peer: str | None) -> Response:
        """The application's answer as the response; what is said when none came in time.

        Where too many wait none is waited for, so that others find a place.
        """
        # Who submits a reply tells by the MessageId that there is one.
        context, name = self._context, awaits_name(wire_id(message_id))
        crowded = self._waiting >= MOST_WAITING
        loop = asyncio.get_running_loop()
        patience = context.config.http.reply_timeout.total_seconds()
        deadline = loop.time() + patience
        event = context.settled.enter(name)
        self._waiting += 1
        try:
            while True:
                event.clear()
                found = await context.store.look(lambda reader: _standing(reader, message_id))
                # What was given in time may take its time to be packaged.
                left = deadline - loop.time() + (patience if found is Standing.COMING else 0)
                if found is Standing.THERE or left <= 0 or crowded:
                    break
                if context.stopping:
                    return _COME_AGAIN
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_AGAIN)):
                        await event.wait()
        finally:
            self._waiting -= 1
            context.settled.leave(name, event)
        request = await context.store.look(
            lambda reader: reader.message(Side.RECEIVING, message_id)
        )
        if request is None:
            return NO_CONTENT
        if request.protocol != "as4":
            return await context.store.run(lambda tx: self._given_ebxml(tx, message_id))
        return await self._given(request, peer, crowded)

    async def _given(self, request: Message, peer: str | None, crowded: bool) -> Response:
        """The reply, once it is written down that it left; or that it is late."""
        context, now = self._context, self._context.clock()
        if context.in_force.match(request.pmode, request.leg) is None:
            # Nobody can say how its reply goes until the P-Mode is back.
            return _COME_AGAIN
        late, dice = await self._late(request, now), context.dice()

        def step(tx: Transaction) -> Message | Signal | Response:
            found = tx.message(Side.RECEIVING, request.message_id)
            if found is None:
                return NO_CONTENT
            reply = _reply(tx, found)
            if reply is not None and reply.state in _NOT_YET:
                return _COME_AGAIN
            if reply is not None and self._hand_out(tx, found, reply, now, peer, dice):
                return reply
            if not found.late and late is None and crowded:
                return _COME_AGAIN
            if not found.late:
                self._be_late(tx, found, late, now, peer)
            return self._said(tx, found)

        given = await context.store.run(step)
        context.settled.tell(awaits_name(request.wire_id))
        if isinstance(given, Response):
            return given
        if isinstance(given, Message):
            context.work_came.set()
            context.settled.tell(given.message_id)
            return self._offering.respond(given)
        body = read_all(context.store.content(given.envelope), given.envelope.size)
        return Response(200, given.content_type, body)

    async def _late(self, request: Message, now: datetime) -> Answer | None:
        """What tells that the reply goes by the alternate binding; None: there is no such binding.

        The receipt, where it is the response, stands before it. [P2-5.2-05]
        """
        context = self._context
        match = context.in_force.match(request.pmode, request.leg)
        if match is None or request.late or alternate_of(match.pmode) is None:
            return None
        receipt = await _receipt(context, request.pmode, request.message_id)
        signal = error([_LATE], signal_id=context.new_id(now), ref=request.wire_id, now=now)
        how = answer_signing(match.leg, context.in_force.keyring.signing)
        return write_answer(signal, _VERSIONS[request.soap], how, now, before=receipt)

    def _hand_out(
        self,
        tx: Transaction,
        request: Message,
        reply: Message,
        now: datetime,
        peer: str | None,
        dice: float,
    ) -> bool:
        """Write down that a reply leaves, for the first time or again; False: not any more."""
        if reply.tries:
            number = reply.attempts + 1
            tx.change_message(
                Side.SENDING,
                reply.message_id,
                (reply.state,),
                attempts=number,
                unanswered=reply.unanswered + 1,
            )
            again = about(
                reply,
                "resent",
                now,
                attempt=number,
                peer=peer,
                envelope=reply.message_id,
                wire_bytes=reply.wire_bytes,
                evidence=signed(reply),
            )
            tx.record((again,))
            return True
        assert reply.envelope is not None
        if self._offering.hand_out(tx, reply, now, peer, dice) is None:
            return False
        self._receipt_left(tx, request, reply.envelope, now, peer)
        return True

    def _receipt_left(
        self, tx: Transaction, request: Message, envelope: Stored, now: datetime, peer: str | None
    ) -> None:
        """The receipt for a request went with what was said to it, where that is agreed on."""
        match = self._context.in_force.match(request.pmode, request.leg)
        kept = _kept_receipt(tx, request.message_id)
        if kept is None or match is None or not receipt_is_response(match.leg):
            return
        left = {"signal_id": kept.signal_id, "peer": peer, "evidence": place(envelope)}
        tx.record((about(request, "receipt_sent", now, **left),))

    def _be_late(
        self,
        tx: Transaction,
        request: Message,
        answer: Answer | None,
        now: datetime,
        peer: str | None,
    ) -> None:
        """Nobody waits any longer: the reply goes by the alternate binding, or not at all."""
        tx.change_message(Side.RECEIVING, request.message_id, (request.state,), late=True)
        kept = _kept_receipt(tx, request.message_id)
        if answer is None:
            if kept is not None:
                self._receipt_left(tx, request, kept.envelope, now, peer)
            return
        stored = tx.keep(answer.envelope)
        signal = sent_signal(request, answer, stored, now)
        tx.add_signal(changed(signal, error_code=_LATE.code, detail=_LATE.detail))
        raised = about(
            request,
            "error_raised",
            now,
            error_code=_LATE.code,
            severity=_LATE.severity.value,
            detail=_LATE.detail,
            signal_id=answer.signal_id,
            peer=peer,
        )
        tx.record((raised,))
        self._receipt_left(tx, request, stored, now, peer)

    def _said(self, tx: Transaction, request: Message) -> Signal | Response:
        """What who asked is told in the place of a reply, the same each time."""
        for one in tx.signals(Side.RECEIVING, request.message_id):
            if not one.incoming and one.error_code == _LATE.code:
                return one
        match = self._context.in_force.match(request.pmode, request.leg)
        kept = _kept_receipt(tx, request.message_id)
        rides = match is not None and receipt_is_response(match.leg)
        return kept if kept is not None and rides else NO_CONTENT

    def _given_ebxml(self, tx: Transaction, message_id: str) -> Response:
        """The step that gives the reply away, or stops waiting."""
        context, name = self._context, awaits_name(message_id)
        now, known = context.clock(), tx.state(name)
        tx.set_state(name, None, now)
        if not known:
            return self._given_before(tx, message_id)
        given = msgspec.json.decode(known, type=Handed)
        reply = tx.message(Side.SENDING, given.message_id)
        if reply is None or reply.state is not State.READY or reply.envelope is None:
            return NO_CONTENT
        content_type, body = self._form(reply)
        tx.finish_work(given.work)
        tx.change_message(
            Side.SENDING,
            reply.message_id,
            (State.READY,),
            state=State.SENT,
            updated_at=now,
            attempts=reply.attempts + 1,
            tries=reply.tries + 1,
            first_sent_at=now,
            last_sent_at=now,
            wire_bytes=len(body),
            timer=None,
        )
        tx.record(
            (
                about(
                    reply,
                    "sent",
                    now,
                    attempt=reply.attempts + 1,
                    envelope=reply.message_id,
                    wire_bytes=len(body),
                    evidence=signed(reply),
                ),
            )
        )
        self._remember(tx, message_id, reply, content_type, body)
        return Response(200, content_type, body)

    def _given_before(self, tx: Transaction, message_id: str) -> Response:
        """What another request got for the same message, if any."""
        for one in tx.signals(Side.RECEIVING, message_id):
            if not one.incoming and one.kind == "response":
                content = self._context.store.content(one.envelope)
                return Response(200, one.content_type, read_all(content, one.envelope.size))
        return NO_CONTENT

    def _form(self, reply: Message) -> tuple[str, bytes]:
        store = self._context.store
        assert reply.envelope is not None
        envelope = read_all(store.content(reply.envelope), reply.envelope.size)
        parts = [
            WirePart(one.content_id or "", one.wire_type, store.content(one.stored), one.file_name)
            for one in reply.parts
        ]
        form = wire_form(SoapVersion.SOAP_11, envelope, parts, reply.boundary)
        return form.content_type, b"".join(form.pieces())

    def _remember(
        self, tx: Transaction, message_id: str, reply: Message, content_type: str, body: bytes
    ) -> None:
        """A copy of the message gets the same response."""
        request = tx.message(Side.RECEIVING, message_id)
        if request is None:
            return
        answer = Answer(reply.message_id, "response", SoapVersion.SOAP_11, body)
        signal = sent_signal(request, answer, tx.keep(body), self._context.clock())
        tx.add_signal(changed(signal, content_type=content_type))
