"""The walk in: receive, check, store, and only then answer.

`Receiver.receive` reads from top to bottom: the body is read as it comes, looked at, held against
its P-Mode, and committed together with its receipt. Whatever is wrong is answered by an ebMS error
and leaves an event in the journal.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from postroad.agreement.channels import collected_at
from postroad.agreement.matching import Match
from postroad.agreement.places import alternate_of, is_pulled, is_response
from postroad.msh.answers import (
    Answer,
    error,
    errors_are_response,
    receipt,
    receipt_is_response,
    wants_receipt,
    write_answer,
)
from postroad.msh.capture import Capture, Incoming
from postroad.msh.ebxml_faults import client_fault, fault
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.pulling import riding_on
from postroad.msh.routing_headers import error_routing, receipt_routing
from postroad.msh.securing import answer_signing, signs
from postroad.msh.unbundling import ReceivedUnit, Unbundled, unbundle
from postroad.node.calling import SOON, Riding, way_back
from postroad.node.collecting import Collecting
from postroad.node.context import Context
from postroad.node.ebxml_receiving import EbxmlReceiver
from postroad.node.forwarding import Body, Forwarding, Recording, body_of
from postroad.node.handing import Handing
from postroad.node.keeping import (
    LONGEST_ID,
    Answering,
    Arrival,
    Given,
    about_nothing,
    keep,
    unsupported,
    user_message_of,
)
from postroad.node.listening import hear_all
from postroad.node.offering import Offering, Withheld, nothing
from postroad.node.replying import Replying
from postroad.node.requests import NO_CONTENT, Handed, Request, Response
from postroad.node.streaming import Streaming
from postroad.node.together import Together
from postroad.node.unbundling import (
    CONTRADICTS,
    Taken,
    Unbundling,
    bundle_references,
    reject_all,
)
from postroad.reliability.agreed import awareness_of
from postroad.store.interface import StoreBusy, StoreError, StoreFull, Transaction
from postroad.store.records import INBOX, Event, Offer, Side, Signal, State, Work
from postroad.transport.http_body import TooLarge, Truncated
from postroad.wire.content import read_all
from postroad.wire.ebms3 import Reference, SignalMessage, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import PUSH_AND_PUSH
from postroad.wire.soap import SoapVersion, UnknownEnvelope
from postroad.wire.soap_faults import Fault, read_fault, version_mismatch_fault
from postroad.wire.xml import mentions

AT_ONCE: Final = 1 << 20
"""Bodies up to this size are looked at on the loop, larger ones beside it."""
_IN_ONE_PIECE: Final = 64 * 1024
_MAY_GROW: Final = 16 * 1024
"""Bytes of payloads that could become a hundred milliseconds' worth by decompression."""
_LEAST_MEMORY: Final = timedelta(days=1)
_SECURITY: Final = ("EBMS:0101", "EBMS:0103")
_log = logging.getLogger("postroad.receive")


class Receiver:
    """The protocol endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handing = Handing(context)
        self.ebxml = EbxmlReceiver(context)
        self.offering = Offering(context)
        self._replying = Replying(context, self.offering)
        self._forwarding = Forwarding(context)
        self._collecting = Collecting(context)
        self.streaming: Streaming | None = None
        self._cut: Together[tuple[str | None, bytes], Capture] = Together(
            lambda given: self._captured(*given)
        )
        self._write: Together[tuple[Arrival, SignalMessage, Match | None], Answer] = Together(
            lambda given: self._written(*given)
        )

    async def receive(self, request: Request) -> Response:
        """Take one message in; the response is sent when everything is durable."""
        response = await self._receive(request)
        if response.awaits is None:
            return response
        # Nothing of the message is held while its answer is waited for.
        return await self._replying.awaited(response.awaits, request.peer)

    async def _receive(self, request: Request) -> Response:
        now = self._context.clock()
        try:
            if self.streaming is not None and self.streaming.is_on:
                taken = await self.streaming.take(request)
                if isinstance(taken, Response):
                    return taken
                request = taken
            capture, size, body = await self._read(request)
        except Truncated as cut:
            await self._note("EBMS:0007", f"the body was cut short: {cut}", now, request.peer)
            raise
        except TooLarge as large:
            return await self._unreadable(
                EbmsError("EBMS:0007", str(large), location="HTTP"), now, request, 413
            )
        except EbmsError as wrong:
            status = 415 if wrong.location == "HTTP" and wrong.code == "EBMS:0007" else 400
            return await self._unreadable(wrong, now, request, status)
        now = self._context.clock()
        look = Look(capture, self._context.in_force.lens(now, self._context.store.new_sink))
        try:
            if body is not None:
                passed_on = await self._forwarding.take(capture, body, request)
                if passed_on is not None:
                    return passed_on
                body = None
            if size <= AT_ONCE:
                return await self._look(look, capture, request, size, now)
            return await self._look_aside(look, capture, request, size, now)
        except StoreError as full:
            # What a traceback holds on to, the parts of the message too, would outlive it.
            return await self._not_stored(look, full.with_traceback(None), now, request)

    async def _read(self, request: Request) -> tuple[Capture, int, Body | None]:
        """The body cut into its parts as it comes, and kept whole where it may be for others."""
        incoming: Incoming | None = None
        recording: Recording | None = None
        may_pass = self._forwarding.is_on
        size = 0
        small = b""
        try:
            async for chunk in request.body:
                size += len(chunk)
                if size <= _IN_ONE_PIECE:
                    # Most messages are cut quickest in one piece, together with others.
                    small = small + chunk if small else chunk
                    continue
                if incoming is None:
                    incoming = self._incoming(request.content_type)
                    incoming.feed(small)
                    if may_pass:
                        recording = Recording(self._context.store.new_sink())
                        recording.write(small)
                incoming.feed(chunk)
                if recording is not None:
                    recording.write(chunk)
        except BaseException:
            if incoming is not None:
                incoming.abort()
            if recording is not None:
                recording.discard()
            raise
        if incoming is None:
            whole = body_of(small) if may_pass else None
            return await self._cut((request.content_type, small)), size, whole
        return incoming.close(), size, recording.finish() if recording is not None else None

    def _incoming(self, content_type: str | None) -> Incoming:
        context = self._context
        return Incoming(content_type, new_sink=context.store.new_sink, limits=context.limits)

    def _captured(self, content_type: str | None, body: bytes) -> Capture:
        """A body that came whole, cut into its parts."""
        incoming = self._incoming(content_type)
        try:
            incoming.feed(body)
        except BaseException:
            incoming.abort()
            raise
        return incoming.close()

    async def _look(
        self, look: Look, capture: Capture, request: Request, size: int, now: datetime
    ) -> Response:
        if not await self._context.read(look):
            return await self._unreadable(look.found.problems[0], now, request, 400)
        found = look.found
        if found.is_ebxml:
            return await self.ebxml.receive(look, capture, request, size, now)
        if request.speaks_ebxml and found.messaging is None:
            return await self._headless(found, now, request)
        if _is_message(found):
            if _may_grow(capture):
                await asyncio.to_thread(look.judge, look.terms())
            else:
                await self._context.judge((look, look.terms()))
            return await self._user_message(
                Arrival(found, capture, request.peer, size, now, request.client_certificate)
            )
        return await self._signals(look, capture, request, now)

    async def _look_aside(
        self, look: Look, capture: Capture, request: Request, size: int, now: datetime
    ) -> Response:
        """The same for a large message: digests and decryption take their time elsewhere."""
        if not await asyncio.to_thread(_looked, look):
            return await self._unreadable(look.found.problems[0], now, request, 400)
        if look.found.is_ebxml:
            return await self.ebxml.receive(look, capture, request, size, now, judged=True)
        if request.speaks_ebxml and look.found.messaging is None:
            return await self._headless(look.found, now, request)
        if not _is_message(look.found):
            return await self._signals(look, capture, request, now)
        return await self._user_message(
            Arrival(look.found, capture, request.peer, size, now, request.client_certificate)
        )

    async def read_pulled(self, capture: Capture, size: int) -> Look:
        """What a partner answered to a PullRequest, looked at as if it had been pushed."""
        now = self._context.clock()
        look = Look(capture, self._context.in_force.lens(now, self._context.store.new_sink))
        if size <= AT_ONCE and not _may_grow(capture):
            readable = await self._context.read(look)
            if readable and not look.found.is_ebxml and _is_message(look.found):
                await self._context.judge((look, look.terms()))
        else:
            await asyncio.to_thread(_looked, look)
        return look

    async def keep_pulled(
        self,
        look: Look,
        capture: Capture,
        size: int,
        match: Match,
        peer: str,
        ride: Callable[[Riding], None] | None = None,
    ) -> str:
        """Take a pulled message over, or refuse it; its id. Receipt and errors call back.

        `ride` takes along what need not call back.
        """
        found, now = look.found, self._context.clock()
        assert found.messaging is not None
        await self._user_message(Arrival(found, capture, peer, size, now, pulled=match, ride=ride))
        return found.messaging.user_messages[0].message_info.message_id

    async def take_response(
        self, capture: Capture, size: int, match: Match, peer: str, request: str
    ) -> tuple[Inspection, bool] | None:
        """Take over, or refuse, the reply that a request of ours was answered with.

        What was found, and whether it is taken; None: there is no reply in it. `match` is the leg
        of replies.
        """
        look = await self.read_pulled(capture, size)
        found, now = look.found, self._context.clock()
        if found.messaging is None or not found.messaging.user_messages:
            return None
        arrival = Arrival(found, capture, peer, size, now, pulled=match, responds=request)
        await self._user_message(arrival)
        name = found.messaging.user_messages[0].message_info.message_id
        kept = await self._context.store.look(lambda reader: reader.message(Side.RECEIVING, name))
        if kept is None or kept.state is State.REJECTED:
            return found, False
        return found, kept.ref_to_message_id == request

    async def _user_message(self, arrival: Arrival) -> Response:
        """A user message: refused with errors, or accepted and answered by its receipt."""
        found = arrival.found
        problems = [one for one in found.problems if one.severity is Severity.FAILURE]
        messages = found.messaging.user_messages if found.messaging else ()
        bundle: Unbundled | None = None
        if found.messaging is not None and len(found.messaging.units) > 1:
            await self._hear_beside(arrival)
            bundle = unbundle(found)
            problems = list(bundle.failures)
        if not problems:
            problems = unsupported(found, arrival.responds)
        match = found.match
        if not problems and match is not None and not self._context.in_force.receives(match):
            problem = self._not_for_us(messages[0])
            # Who is not the receiver does not speak for it: no call-back, no signature.
            return await self._refuse(arrival, None, [problem])
        if not problems and match is not None:
            problems = _way(arrival, match)
            if problems and arrival.pulled is None:
                return await self._refuse(arrival, None, problems)
        if not problems and match is not None and len(messages) == 1:
            problems = self._too_old(messages[0], arrival.now)
        if not problems and match is not None and arrival.pulled is None:
            expectation, shown = self._context.in_force.expectation, arrival.client_certificate
            problems = expectation.check_client(match, shown, arrival.now)
        if problems or match is None:
            return await self._refuse(arrival, match if _proven(found) else None, problems)
        if bundle is not None and len(messages) > 1:
            return await self._accept_bundle(arrival, bundle, match)
        return await self._accept(arrival, messages[0], match)

    async def _hear_beside(self, arrival: Arrival) -> None:
        """Receipts and errors beside user messages: judged by the terms of what they are about."""
        messaging = arrival.found.messaging
        refs = [
            one.message_info.ref_to_message_id
            for one in (messaging.signals if messaging else ())
            if one.pull_request is None
        ]
        # Who waits for the response to a request hears what is said about that.
        refs = [ref for ref in refs if ref is None or ref != arrival.responds]
        if refs:
            await self._hear(None, arrival.capture, arrival.peer, arrival.now, refs)

    def _not_for_us(self, message: UserMessage) -> EbmsError:
        said = f"this is {self._context.party}, not the receiver {message.to_party}"
        return EbmsError("EBMS:0010", said, location="eb:To")

    def _too_old(self, message: UserMessage, now: datetime) -> list[EbmsError]:
        """What is older than our memory may be a copy of a message that was removed since."""
        memory = self._context.config.retention.messages
        made = message.message_info.timestamp
        if memory is None or now - made <= max(memory, _LEAST_MEMORY):
            return []
        said = f"the message was made at {made:%Y-%m-%d}, longer ago than messages are kept here"
        return [EbmsError("EBMS:0003", said, location="eb:MessageInfo/eb:Timestamp")]

    async def _accept(self, arrival: Arrival, message: UserMessage, match: Match) -> Response:
        context, now = self._context, arrival.now
        answer = signal = None
        if wants_receipt(match.leg):
            signal = receipt(arrival.found, message, match, signal_id=context.new_id(now), now=now)
            answer = await self._write((arrival, signal, match))
        arrival = await self._persisted(arrival)
        how = self._answering(answer, arrival, message, match)
        given = await context.store.run(keep(context, arrival, message, match, how))
        if given.contradicts:
            return await self._refuse(arrival, None, [CONTRADICTS])
        if given.refused is not None:
            proven = match if _proven(arrival.found) else None
            return await self._refuse(arrival, proven, [given.refused])
        await self._settled(arrival, message, match, how, given, signal)
        if is_response(match.pmode, match.number) and given.state in INBOX:
            return Response(202, awaits=message.message_info.message_id)
        if given.answer is None:
            return NO_CONTENT
        stored, content_type, status = given.answer
        if answer is not None and not given.duplicate:
            body = answer.envelope
        else:
            body = read_all(context.store.content(stored), stored.size)
        return Response(status, content_type, body, self._handed(message, given))

    async def _settled(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        how: Answering,
        given: Given,
        signal: SignalMessage | None,
    ) -> None:
        """What follows once a message is taken over, or found to be a copy."""
        context = self._context
        if given.again is not None:
            await self._answer_again(given.again, message, match)
        if given.duplicate and how.back is not None:
            context.work_came.set()
        if given.back is not None:
            if arrival.ride is not None and signal is not None:
                arrival.ride(Riding(given.back.id, message.message_info.message_id, signal))
            elif context.begin is not None:
                context.begin(given.back)
        if message.message_info.ref_to_message_id is not None:
            context.settled.tell(message.message_info.ref_to_message_id)
        event = "duplicate" if given.duplicate else given.state.value
        context.count("messages", side="receiving", event=event)
        context.told()
        _log.info(event, extra={"message_id": message.message_info.message_id})

    async def _accept_bundle(self, arrival: Arrival, bundle: Unbundled, primary: Match) -> Response:
        """The units of a bundle: each taken over, known or refused; all answered together."""
        context = self._context
        arrival = await self._persisted(arrival)
        arrival.bundle = bundle.units[0].message.message_info.message_id
        later: dict[int, EbmsError] = {}
        hows: list[Answering | None] = []
        signals: list[SignalMessage | None] = []
        references = bundle_references(arrival.found, bundle)
        for number, unit in enumerate(bundle.units):
            problem = self._unit_problem(unit, arrival.now)
            if problem is not None:
                later[number] = problem
            how, signal = await self._unit_answering(arrival, unit, primary, references[number])
            hows.append(how)
            signals.append(signal)
        taken = await Unbundling(context, arrival, bundle, hows, later, references).take()
        for number, given in taken.given.items():
            message, how, signal = bundle.units[number].message, hows[number], signals[number]
            assert how is not None
            await self._settled(arrival, message, primary, how, given, signal)
        for number, problems in taken.failed.items():
            ref = bundle.units[number].message.message_info.message_id
            self._tell_refused(ref, arrival.peer, problems)
        if taken.back:
            context.work_came.set()
        if taken.again is not None:
            stored, content_type, status = taken.again
            body = read_all(context.store.content(stored), stored.size)
        elif taken.answer is not None:
            body, content_type, status = taken.answer.envelope, taken.answer.content_type, 200
        else:
            return NO_CONTENT
        return Response(status, content_type, body, self._handed_all(bundle, taken))

    def _unit_problem(self, unit: ReceivedUnit, now: datetime) -> EbmsError | None:
        """What keeps a unit of a bundle from being taken, and not its neighbours."""
        match, message = unit.match, unit.message
        if match is None or unit.failures:
            return None
        if not self._context.in_force.receives(match):
            return self._not_for_us(message)
        if is_response(match.pmode, match.number):
            said = "a request that waits for its reply on the connection is not taken in a bundle"
            return EbmsError("EBMS:0008", said, location="eb:Messaging")
        return next(iter(self._too_old(message, now)), None)

    async def _unit_answering(
        self,
        arrival: Arrival,
        unit: ReceivedUnit,
        primary: Match,
        references: Sequence[Reference],
    ) -> tuple[Answering | None, SignalMessage | None]:
        """How a unit is answered: in the response of all, or where the primary's receipts go."""
        context, match, now = self._context, unit.match, arrival.now
        if match is None:
            return None, None
        answer = signal = None
        on_response = receipt_is_response(primary.leg) and arrival.pulled is None
        if wants_receipt(match.leg) and not on_response:
            signal = receipt(
                arrival.found,
                unit.message,
                match,
                signal_id=context.new_id(now),
                now=now,
                references=references,
            )
            answer = await self._write((arrival, signal, match))
        return self._answering(answer, arrival, unit.message, primary), signal

    def _handed_all(self, bundle: Unbundled, taken: Taken) -> Handed | None:
        """Whom to tell whether the answer was handed over, for all units that wait for it."""
        handed = [
            one
            for number, given in taken.given.items()
            if (one := self._handed(bundle.units[number].message, given)) is not None
        ]
        if not handed:
            return None

        async def tell(taken: bool) -> None:
            for one in handed:
                await one(taken)

        return tell

    def _answering(
        self, answer: Answer | None, arrival: Arrival, message: UserMessage, match: Match
    ) -> Answering:
        """How the P-Mode has a message answered."""
        context = self._context
        as_response = receipt_is_response(match.leg) and arrival.pulled is None
        back = None
        if answer is not None and not as_response:
            back = way_back(context, match, answer, message)
        rides = is_response(match.pmode, match.number) and not match.test
        aware = awareness_of(match.leg)
        if isinstance(back, Work) and not (aware and aware.ack_after_delivery):
            later = arrival.ride is not None
            back = replace(back, due_at=arrival.now + SOON) if later else context.claimed(back)
        if aware is None:
            return Answering(answer, as_response, back, rides=rides)
        after, strict = aware.ack_after_delivery, aware.strict_ack
        return Answering(answer, as_response, back, after, strict, rides)

    def _handed(self, message: UserMessage, given: Given) -> Handed | None:
        """Whom to tell whether the answer was handed over."""
        number = given.held_by
        if number is None:
            return None
        self._context.in_hand.add(number)
        return lambda taken: self._handing.handed(message.message_info.message_id, number, taken)

    async def _answer_again(self, first: Signal, message: UserMessage, match: Match) -> None:
        """The receipt that is not the response may have been lost: it is sent once more."""
        context = self._context
        envelope = read_all(context.store.content(first.envelope), first.envelope.size)
        version = next(one for one in SoapVersion if first.content_type.startswith(one.media_type))
        answer = Answer(first.signal_id, first.kind, version, envelope)
        back = way_back(context, match, answer, message)
        if back is None:
            return
        message_id = message.message_info.message_id

        def step(tx: Transaction) -> None:
            if isinstance(back, Offer):
                tx.add_offer(back)
                return
            known = tx.message(Side.RECEIVING, message_id)
            if known is None or (known.timer is not None and tx.work(known.timer) is not None):
                return
            number = tx.add_work(back)
            tx.change_message(Side.RECEIVING, message_id, (known.state,), timer=number)

        await context.store.run(step)

    async def _persisted(self, arrival: Arrival) -> Arrival:
        """Large parts are flushed before the step, so that the step need not wait for the disk."""
        if arrival.size <= AT_ONCE:
            return arrival
        store = self._context.store
        kept = {
            name: replace(one, content=await store.persist(one.content))
            for name, one in arrival.found.attachments.items()
        }
        arrival.found.attachments = kept
        return arrival

    def _written(self, arrival: Arrival, signal: SignalMessage, match: Match | None) -> Answer:
        """A signal in its envelope; unsigned where nobody could say how to sign it."""
        found = arrival.found
        version = found.envelope.version if found.envelope else SoapVersion.SOAP_12
        how = routing = None
        if match is not None:
            key = self._context.in_force.keyring.signing
            if key is not None or signal.receipt is not None:
                how = answer_signing(match.leg, key)
            messages = found.messaging.user_messages if found.messaging else ()
            if messages:
                routed = receipt_routing if signal.receipt is not None else error_routing
                routing = routed(match, messages[0], found)
        return write_answer(signal, version, how, arrival.now, routing)

    async def _refuse(
        self, arrival: Arrival, match: Match | None, problems: Sequence[EbmsError]
    ) -> Response:
        """Nothing is delivered; the sender is told why, and the journal too.

        `match` says how the error is signed and where it goes. A sender who proved nothing gets
        it unsigned and at once: what we sign could be shown to who really sent under that id.
        """
        context, found, now = self._context, arrival.found, arrival.now
        messages = found.messaging.user_messages if found.messaging else ()
        ref = messages[0].message_info.message_id or None if messages else None
        signal = error(problems, signal_id=context.new_id(now), ref=ref, now=now)
        answer = self._written(arrival, signal, match)
        if not ref or len(ref) > LONGEST_ID:
            await context.store.run(
                lambda tx: tx.record([about_nothing(context, one, arrival) for one in problems[:5]])
            )
            return Response(400, answer.content_type, answer.envelope)
        as_response = errors_are_response(match.leg if match else None) and arrival.pulled is None
        back, to = None, match or arrival.pulled
        if not as_response and to is not None:
            back = way_back(context, to, answer, messages[0])
        # Of who proved nothing the primary unit is remembered, and no more.
        units = messages if match is not None else messages[:1]
        await context.store.run(reject_all(context, arrival, units, match, problems, answer, back))
        if back is not None:
            context.work_came.set()
        self._tell_refused(ref, arrival.peer, problems)
        if back is not None:
            return NO_CONTENT
        return Response(200, answer.content_type, answer.envelope)

    def _tell_refused(self, ref: str, peer: str | None, problems: Sequence[EbmsError]) -> None:
        context = self._context
        context.count("messages", side="receiving", event="rejected")
        context.count("ebms_errors", code=problems[0].code, direction="raised")
        context.told()
        detail = str(problems[0])
        _log.warning("rejected", extra={"message_id": ref, "peer": peer, "detail": detail})

    async def _pull(
        self, look: Look, capture: Capture, signal: SignalMessage, request: Request, now: datetime
    ) -> Response:
        """A PullRequest: answered by a message, or by what keeps it from one."""
        given = self.offering.malformed(look.found)
        if given is None:
            handed = await self._handed_out(look, capture, signal, request, now)
            if isinstance(handed, Response):
                return handed
            given = handed
            carried = await self._collecting.answer(look.found, signal, now, request.peer)
            if isinstance(carried, Response):
                return carried
            if carried:
                given = Withheld((nothing(),), given.match)
        if given.why is not None:
            await self._note(given.problems[0].code, given.why, now, request.peer)
        ref = signal.message_info.message_id or None
        said = error(given.problems, signal_id=self._context.new_id(now), ref=ref, now=now)
        arrival = Arrival(look.found, capture, request.peer, 0, now)
        answer = self._written(arrival, said, given.match)
        return Response(200, answer.content_type, answer.envelope)

    async def _signals(
        self, look: Look, capture: Capture, request: Request, now: datetime
    ) -> Response:
        """Receipts and errors that come as a request: each about a message that we sent."""
        assert look.found.messaging is not None
        pulls = [one for one in look.found.messaging.signals if one.pull_request is not None]
        if pulls:
            return await self._pull(look, capture, pulls[0], request, now)
        await self.hear(look, capture, request.peer, now)
        return NO_CONTENT

    async def _handed_out(
        self, look: Look, capture: Capture, signal: SignalMessage, request: Request, now: datetime
    ) -> Response | Withheld:
        """Receipts and errors that ride on a PullRequest are heard as if they came by themselves.

        They are so first, in the same moment: who waits for the disk, waits once.
        """
        may = self.offering.judge(look, signal, request, now)
        answering = self.offering.answer(signal, may, request.peer, now)
        riding = riding_on(look.found.messaging)
        if not riding:
            return await answering
        hearing = self._hear_riding(riding, look, capture, request.peer, now)
        _, given = await asyncio.gather(hearing, answering)
        return given

    async def _hear_riding(
        self,
        riding: Sequence[SignalMessage],
        look: Look,
        capture: Capture,
        peer: str | None,
        now: datetime,
    ) -> None:
        """Each is judged by the terms of the message that it is about, whoever pulls."""
        for one in riding:
            ref = one.message_info.ref_to_message_id
            if look.found.verification is None and not mentions(capture.envelope, b"Signature"):
                # Where nothing is signed it makes no difference by whose terms.
                await self.hear(look, capture, peer, now, ref, judged_already=True)
                continue
            lens = self._context.in_force.lens(now, self._context.store.new_sink)
            anew = Look(capture, lens)
            if await self._context.read(anew):
                await self.hear(anew, capture, peer, now, ref)

    async def hear(
        self,
        look: Look,
        capture: Capture,
        peer: str | None,
        now: datetime,
        ref: str | None = None,
        *,
        judged_already: bool = False,
    ) -> str | None:
        """Signals that come by themselves or were pulled; the message of ours they are about."""
        signals = look.found.messaging.signals if look.found.messaging is not None else ()
        refs = [one.message_info.ref_to_message_id for one in signals] if ref is None else [ref]
        return await self._hear(look, capture, peer, now, refs, judged_already=judged_already)

    async def _hear(
        self,
        look: Look | None,
        capture: Capture,
        peer: str | None,
        now: datetime,
        refs: Sequence[str | None],
        *,
        judged_already: bool = False,
    ) -> str | None:
        context = self._context
        known, unknown = await hear_all(
            context, look, capture, refs, peer, now, judged_already=judged_already
        )
        for name in unknown[:5]:
            detail = f"a signal about {name or 'no message'}, which was not sent from here"
            await self._note("EBMS:0003", detail, now, peer)
        for message in known:
            context.settled.tell(message.message_id)
        if known:
            context.told()
        if any(one.channel is None for one in known):
            # What follows them in their order may be due.
            context.work_came.set()
        return known[0].message_id if known else None

    async def _unreadable(
        self, wrong: EbmsError, now: datetime, request: Request, status: int
    ) -> Response:
        """What is no ebMS message is answered by an error about no message."""
        await self._note(wrong.code, wrong.detail, now, request.peer)
        if request.speaks_ebxml:
            # SOAP itself answers what cannot be read. [MS098-7.6-01]
            return _fault([wrong])
        signal = error([wrong], signal_id=self._context.new_id(now), ref=None, now=now)
        answer = write_answer(signal, _spoken(request.content_type), None, now)
        return Response(status, answer.content_type, answer.envelope)

    async def _headless(self, found: Inspection, now: datetime, request: Request) -> Response:
        """It says that it is ebXML and has no MessageHeader, or not in SOAP 1.1. [MS098-8.4-01]"""
        came = read_fault(found.envelope) if found.envelope is not None else None
        if came is not None:
            # A Fault that comes by itself tells of nothing, and is not answered.
            await self._note("Unknown", f"a SOAP Fault: {came.reason}", now, request.peer)
            return NO_CONTENT
        said = "there is no ebXML MessageHeader in a SOAP 1.1 Header"
        newer = found.envelope is not None and found.envelope.version is SoapVersion.SOAP_12
        kind = UnknownEnvelope if newer else EbmsError
        wrong = kind("OtherXml", said, location="/SOAP-ENV:Envelope/SOAP-ENV:Header")
        await self._note(wrong.code, wrong.detail, now, request.peer)
        return _fault([wrong, *found.problems])

    async def note(self, code: str, detail: str, peer: str | None) -> None:
        """Write down what was refused before it could be a message."""
        await self._note(code, detail, self._context.clock(), peer)

    async def _note(self, code: str, detail: str, now: datetime, peer: str | None) -> None:
        """An event about no message."""
        context = self._context
        context.count("ebms_errors", code=code, direction="raised")
        event = Event(
            now,
            context.party,
            "error_raised",
            error_code=code,
            severity="failure",
            detail=detail[:2000],
            peer=peer,
        )
        try:
            await context.store.run(lambda tx: tx.record((event,)))
        except StoreError as full:
            _log.error("not recorded", extra={"detail": f"{detail} ({full})"})

    async def _not_stored(
        self, look: Look, why: StoreError, now: datetime, request: Request
    ) -> Response:
        """What could not be stored is not acknowledged: the sender may try again."""
        _log.error("not stored", extra={"detail": str(why)})
        self._context.count("store_errors", kind=type(why).__name__)
        messaging = look.found.messaging
        messages = messaging.user_messages if messaging else ()
        ref = messages[0].message_info.message_id if messages else None
        status, problem = not_stored(why, ref)
        if look.found.is_ebxml or not request.synchronous:
            said = fault(Fault(SoapVersion.SOAP_11.receiver, problem.detail))
            return Response(status, "text/xml; charset=UTF-8", said, come_again=True)
        signal = error([problem], signal_id=self._context.new_id(now), ref=ref, now=now)
        answer = write_answer(signal, _spoken(request.content_type), None, now)
        return Response(status, answer.content_type, answer.envelope)


def not_stored(why: StoreError, ref: str | None = None) -> tuple[int, EbmsError]:
    """How a sender is told that the store failed, and what it may believe.

    With 503 the message was certainly not taken; with 500 nobody knows.
    """
    if isinstance(why, StoreFull):
        said = "there is no room to store the message; send it again later"
        return 503, EbmsError("EBMS:0202", said, ref=ref)
    if isinstance(why, StoreBusy):
        said = "the message cannot be stored at the moment; send it again later"
        return 503, EbmsError("EBMS:0202", said, ref=ref)
    said = "it is not known whether the message was stored; send it again later"
    return 500, EbmsError("EBMS:0004", said, ref=ref)


def _fault(problems: Sequence[EbmsError]) -> Response:
    """SOAP 1.1 answers what ebXML cannot."""
    what = client_fault(problems)
    if isinstance(problems[0], UnknownEnvelope):
        what = version_mismatch_fault(SoapVersion.SOAP_11).fault
    return Response(500, "text/xml; charset=UTF-8", fault(what))


def _way(arrival: Arrival, match: Match) -> list[EbmsError]:
    """A message comes the way that is agreed on: who pulls it knows whom it asked."""
    pmode, index = match.pmode, match.number - 1
    pulled = is_pulled(pmode, index)
    if arrival.responds is not None:
        ref = user_message_of(arrival.found).message_info.ref_to_message_id
        ours = arrival.pulled is not None and arrival.pulled.pmode.id == pmode.id
        if ours and is_response(pmode, index) and ref == arrival.responds:
            return []
        said = "it came as the response to a request that it does not answer"
        return [EbmsError("EBMS:0010", said, location="eb:Messaging")]
    if arrival.pulled is None:
        if is_response(pmode, index) and alternate_of(pmode) != PUSH_AND_PUSH:
            said = "replies of this P-Mode are responses, and this one was pushed"
            return [EbmsError("EBMS:0010", said, location="eb:Messaging")]
        said = "messages of this P-Mode are pulled, and this one was pushed"
        return [EbmsError("EBMS:0010", said, location="eb:Messaging")] if pulled else []
    places = {collected_at(one.pmode, one.leg) for one in (match, arrival.pulled)}
    if (pulled or is_pulled(pmode, index, late=True)) and len(places) == 1:
        return []
    said = "it was pulled where no messages of its P-Mode are"
    return [EbmsError("EBMS:0010", said, location="eb:Messaging")]


def _may_grow(capture: Capture) -> bool:
    """Whether opening the payloads could take long, however small they came.

    Which of them are compressed is known for sure only after decryption.
    """
    return sum(one.content.size for one in capture.attachments) > _MAY_GROW


def _proven(found: Inspection) -> bool:
    """Whether the partner signed what is refused now, or nothing is signed in the first place."""
    if found.match is not None and not signs(found.match.leg):
        return True
    return found.trusted is True and not any(
        one.code in _SECURITY and one.severity is Severity.FAILURE for one in found.problems
    )


def _spoken(content_type: str | None) -> SoapVersion:
    """The SOAP version of a request that nobody could read: that of its media type."""
    kind = (content_type or "").lower()
    return SoapVersion.SOAP_11 if "text/xml" in kind else SoapVersion.SOAP_12


def _looked(look: Look) -> bool:
    """Read and judge in one go: a tree is best used in the thread that read it."""
    readable = look.read()
    if readable and (look.found.is_ebxml or _is_message(look.found)):
        look.judge(look.terms())
    return readable


def _is_message(found: Inspection) -> bool:
    """Whether it is to be taken for a user message: whatever is not signals alone."""
    return found.messaging is None or bool(found.messaging.user_messages)
