"""The walk in for ebXML messages: whatever the dialect, and by whatever way they come.

An application's message is held against its P-Mode, committed together with its acknowledgment,
and then answered; a signal is heard; a message for others is passed on; the MSH's own services
answer. Whatever is wrong is reported as sections 8.7 and 11 say, never about an error.
"""

import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.capture import Capture
from postroad.msh.ebxml_answers import asked_by_partner, write_signal
from postroad.msh.ebxml_faults import unsupported_service
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.ebxml_terms import profile_of, reliable
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.securing import answer_signing, signs
from postroad.node.base.context import Context
from postroad.node.base.own_address import own_address, own_addresses
from postroad.node.base.requests import NO_CONTENT, Request, Response
from postroad.node.ebxml.answering import (
    NOWHERE,
    Route,
    answer_route,
    call,
    first_copy,
    tell_refused,
)
from postroad.node.ebxml.keeping import Arrived, Kept, keep_ebxml
from postroad.node.ebxml.linking import Linking
from postroad.node.ebxml.refusing import PLACES, Refusing, failures, too_long, unlinked
from postroad.node.ebxml.relaying import Relaying, contradiction
from postroad.node.ebxml.services import Services
from postroad.node.ebxml.signals import Signals, first_said
from postroad.node.steps.arrival import Arrival, is_too_old
from postroad.node.steps.hearing import Hearing
from postroad.node.steps.keeping import Contradiction, user_message_of
from postroad.node.steps.outcome import answered
from postroad.node.steps.partners import show_life
from postroad.node.steps.senders import stored_as
from postroad.reliability import ebxml, order
from postroad.reliability.ebxml_terms import AckRequested, Terms
from postroad.security.sign import Signing
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, Signal, State, Work
from postroad.wire.content import read_all
from postroad.wire.ebxml import EbxmlMessage, kind_of
from postroad.wire.ebxml_errors import ebxml_code
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.soap import SoapVersion

_SIGNALS: Final = ("acknowledgment", "error")
_REPLIES: Final = ("pong", "status_response")
_ADDRESSES: Final = ("http://", "https://", "mailto:")
_log = logging.getLogger("postroad.receive")


class EbxmlReceiver:
    """What becomes of an ebXML message that came."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._relaying = Relaying(context)
        self._linking = Linking(context)
        self._refusing = Refusing(context)
        self._signals = Signals(context)
        self.services = Services(context)

    async def receive(
        self,
        look: Look,
        capture: Capture,
        request: Request,
        size: int,
        now: datetime,
        *,
        judged: bool = False,
        is_response: bool = False,
    ) -> Response:
        """Take one message in; the response is given when everything is durable.

        `judged`: by its own P-Mode, as a large one is in the thread that read it. `is_response`: it
        is the response to a message of ours.
        """
        found = look.found
        message = found.ebxml
        arrival = Arrival(
            found,
            capture,
            request.peer,
            size,
            now,
            request.client_certificate,
            by_mail=not request.synchronous,
            is_response=is_response,
        )
        if message is None or found.soap_fault is not None:
            return await self._refusing.fault(arrival, request)
        kind = kind_of(message)
        if kind in _SIGNALS:
            return await self._signal(look, arrival, request, message)
        if kind in _REPLIES and await self.services.heard(look, arrival, message):
            return NO_CONTENT
        request.check_connected()
        if not judged:
            await self._context.judge((look, look.terms()))
            request.check_connected()
        if found.soap_fault is not None:
            return await self._refusing.fault(arrival, request)
        if kind != "message":
            return await self._service(arrival, request, message)
        return await self._message(arrival, request, message)

    async def pass_on_response(self, capture: Capture, peer: str, size: int) -> None:
        """A signal for others that came as the response to what was passed on."""
        context, now = self._context, self._context.clock()
        look = Look(capture, context.in_force.lens(now, context.store.new_sink))
        message = look.found.ebxml if await context.read(look) else None
        terms = look.terms() if message is not None else None
        if message is None or terms is None or terms.match is None or not _relays(terms.match):
            return
        await context.judge((look, terms))
        arrival = Arrival(look.found, capture, peer, size, now)
        request = Request(None, peer, _nothing(), synchronous=False)
        if not self._not_passed_on(arrival, terms.match) and not too_long(message):
            await self._relaying.take(arrival, message, terms.match, request)

    async def take_response(self, capture: Capture, peer: str, size: int) -> None:
        """A message that came as the response to one of ours. It gets no response itself."""
        now = self._context.clock()
        look = Look(capture, self._context.in_force.lens(now, self._context.store.new_sink))
        if await self._context.read(look):
            request = Request(None, peer, _nothing(), synchronous=False)
            await self.receive(look, capture, request, size, now, is_response=True)

    async def _message(self, arrival: Arrival, request: Request, message: EbxmlMessage) -> Response:
        """A message of an application: for us, or for somebody to whom it is passed on."""
        found = arrival.found
        match = found.match
        problems = failures(found) or too_long(message)
        if match is not None and _relays(match):
            return await self._pass_on(arrival, request, message, match)
        if match is None or problems:
            return await self._refusing.refuse(arrival, request, message, problems)
        problems = self._not_for_us(arrival, message, match) or unlinked(message, match)
        problems = problems or await self._too_old(arrival, message, match)
        if problems:
            return await self._refusing.refuse(arrival, request, message, problems)
        terms = found.ebxml_terms
        assert terms is not None
        if match.leg.ebxml is not None and match.leg.ebxml.profile == "rm001":
            if terms.time_to_live is not None and arrival.now > terms.time_to_live:
                code, said = ebxml.ERRORS[ebxml.Case.EXPIRED]
                late = EbmsError(code.value, said, location=PLACES[ebxml.Case.EXPIRED])
                return await self._refusing.refuse(arrival, request, message, [late])
            try:
                return await self._linking.receive(arrival, message, match)
            except Contradiction:
                return await self._refusing.refuse(arrival, request, message, [contradiction()])
        try:
            arrived = await self._arrived(arrival, request, message, match, terms)
        except ValueError as wrong:
            # Signed acknowledgments are asked for, and there is no key. [MS098-8.4.7.1-05]
            return await self._refusing.refuse(
                arrival, request, message, [EbmsError("NotSupported", str(wrong))]
            )
        await arrival.persist(self._context.store)
        kept = await self._context.store.run(keep_ebxml(self._context, arrived))
        return await self._kept(arrival, request, message, arrived, kept)

    def _not_for_us(self, arrival: Arrival, message: EbxmlMessage, match: Match) -> list[EbmsError]:
        context = self._context
        if not context.in_force.receives(match):
            said = f"this is {context.party}, not the receiver {message.header.to_party}"
            return [EbmsError("ValueNotRecognized", said, location=f"{HEADER}/eb:To")]
        shown = arrival.client_certificate
        in_force = context.in_force
        return in_force.expectation.check_client(match, shown, arrival.now, in_force.revocation)

    async def _too_old(
        self, arrival: Arrival, message: EbxmlMessage, match: Match
    ) -> list[EbmsError]:
        """Too old to tell whether it came before; one that is known is a copy."""
        made = message.header.timestamp
        if not is_too_old(self._context, made, arrival.now):
            return []
        known = await self._context.store.look(self._first(arrival, match))
        if known is not None and known.state is not State.REJECTED:
            return []
        said = f"it was made at {made:%Y-%m-%d}, longer ago than messages are kept here"
        place = f"{HEADER}/eb:MessageData/eb:Timestamp"
        return [EbmsError("Inconsistent", said, location=place)]

    def _first(self, arrival: Arrival, match: Match) -> Callable[[Reader], Message | None]:
        """Return what finds the message that a new one is a copy of."""
        args = (arrival, user_message_of(arrival.found), match)
        return lambda reader: stored_as(self._context, reader, *args)[1]

    async def _arrived(
        self,
        arrival: Arrival,
        request: Request,
        message: EbxmlMessage,
        match: Match,
        terms: Terms,
    ) -> Arrived:
        """All that the step needs, written and signed before it."""
        context = self._context
        if not request.synchronous:
            # [MS098-8.6.4-01]
            terms = replace(terms, sync_reply=False)
        payloads = next(iter(arrival.found.payloads.values()), ())
        by_machine = reliable(message, [one.sha256 for one in payloads if one.sha256])
        party = ebxml.Receiver(
            by_machine.to_party,
            own_address(context, None, not request.synchronous),
            profile_of(match),
            limits=order.Limits(held=context.config.limits.out_of_order),
        )
        acknowledgment = None
        if terms.is_acknowledged:
            acknowledgment = self._acknowledgment(arrival, message, match, terms, party)
        back, route = None, NOWHERE
        if acknowledgment is not None:
            route = answer_route(
                context,
                message,
                match,
                "acknowledgment",
                synchronous=request.synchronous,
                proven=True,
                first=await first_copy(context, message, self._first(arrival, match)),
            )
            if route.url is not None:
                back = call(context, route, acknowledgment, message, match, message.message_id)
        user_message = user_message_of(arrival.found)
        tells = await self._tells(arrival, message)
        return Arrived(
            arrival=arrival,
            user_message=user_message,
            match=match,
            message=by_machine,
            terms=terms,
            party=party,
            acknowledgment=acknowledgment,
            back=back,
            route=route,
            tells=tells,
        )

    def _acknowledgment(
        self,
        arrival: Arrival,
        message: EbxmlMessage,
        match: Match,
        terms: Terms,
        party: ebxml.Receiver,
    ) -> Answer | None:
        """The acknowledgment of a message, in case that it is due."""
        now, by_machine = arrival.now, reliable(message)
        check = arrival.found.verification
        return write_signal(
            ebxml.acknowledge(by_machine, terms, party, now),
            message.dialect,
            message_id=self._context.new_id(now),
            now=now,
            to=message,
            signing=self._signing(match) if terms.ack_requested is AckRequested.SIGNED else None,
            references=check.signed_references if check is not None else (),
        )

    def _signing(self, match: Match) -> Signing | None:
        return answer_signing(match.leg, self._context.in_force.keyring.signing)

    async def _tells(
        self, arrival: Arrival, message: EbxmlMessage
    ) -> tuple[Message, Hearing] | None:
        """What a message says about the one that it refers to.

        It is judged once more for that, by the P-Mode of what was sent: that its sender is who it
        says does not make it somebody who has a say in the other message.
        """
        context, ref = self._context, message.header.ref_to_message_id
        sent = await self._signals.sent(ref) if ref else None
        if sent is None or sent.side is not Side.SENDING or sent.to_party is None:
            return None
        if sent.to_party != str(message.header.from_party):
            return None
        look = Look(arrival.capture, context.in_force.lens(arrival.now, context.store.new_sink))
        if not await context.read(look):
            return None
        match = context.in_force.match(sent.pmode, sent.leg)
        await context.judge((look, context.in_force.answer_terms(match)))
        return sent, self._signals.heard(_looked_at(arrival, look.found), sent)

    async def _kept(
        self,
        arrival: Arrival,
        request: Request,
        message: EbxmlMessage,
        arrived: Arrived,
        kept: Kept,
    ) -> Response:
        """The answer, after the commit."""
        context = self._context
        report = kept.reception.report if kept.reception is not None else None
        if kept.state is None:
            error = report.error if report is not None else None
            code, detail = (error.code.value, error.detail) if error else ("Unknown", "refused")
            problem = EbmsError(code, detail, location=PLACES.get(kept.case))
            return await self._refusing.refuse(arrival, request, message, [problem])
        duplicate = kept.case not in (ebxml.Case.NEW, ebxml.Case.NEW_AWAITED, ebxml.Case.HELD)
        event = "duplicate" if duplicate else kept.state.value
        context.count("messages", side="receiving", event=event)
        context.told()
        context.work_came.set()
        await tell_refused(context, arrived.route, kept.stored_id)
        await show_life(context, str(message.header.from_party))
        if arrived.tells is not None:
            context.settled.tell(arrived.tells[0].message_id)
        _log.info(event, extra={"message_id": message.message_id})
        if kept.awaits_response and request.synchronous:
            return Response(202, awaits=kept.stored_id)
        if kept.answer is None:
            return NO_CONTENT
        return await self._answer(request, message, arrived, kept)

    async def _answer(
        self, request: Request, message: EbxmlMessage, arrived: Arrived, kept: Kept
    ) -> Response:
        """The acknowledgment as the response, or, for a copy, on its way once more."""
        context, first = self._context, kept.answer
        assert first is not None
        body = read_all(context.store.content(first.envelope), first.envelope.size)
        route = arrived.route
        if arrived.acknowledgment is None:
            route = answer_route(
                context,
                message,
                arrived.match,
                first.kind,
                synchronous=request.synchronous,
                proven=True,
                first=await first_copy(
                    context, message, self._first(arrived.arrival, arrived.match)
                ),
            )
        if first.kind == "response" and request.synchronous:
            return Response(200, first.content_type, body)
        if route.is_response:
            return Response(200, first.content_type, body)
        if route.url is None or kept.fresh or first.kind == "response":
            return NO_CONTENT
        again = _answer_of(first, body)
        work = call(context, route, again, message, arrived.match, kept.stored_id)
        await context.store.run(_again(kept.stored_id, work, arrived.arrival.now))
        context.work_came.set()
        return NO_CONTENT

    async def _pass_on(
        self, arrival: Arrival, request: Request, message: EbxmlMessage, match: Match
    ) -> Response:
        """A message for others, from who may use this way, and whole."""
        problems = self._not_passed_on(arrival, match) or unlinked(message, match)
        problems = problems or too_long(message)
        if problems:
            return await self._refusing.refuse(
                arrival, request, message, problems, remembered=False
            )
        taken = await self._relaying.take(arrival, message, match, request)
        if taken.problems:
            return await self._refusing.refuse(
                arrival, request, message, taken.problems, remembered=False
            )
        return taken.response

    def _not_passed_on(self, arrival: Arrival, match: Match) -> list[EbmsError]:
        """Why a message of others is not taken here: who sends it, or how it is made.

        Its signature is its receiver's to judge, unless this way is for those who sign.
        """
        grave = [
            one
            for one in failures(arrival.found)
            if signs(match.leg) or ebxml_code(one) != "SecurityFailure"
        ]
        shown = arrival.client_certificate
        expectation = self._context.in_force.expectation
        revocation = self._context.in_force.revocation
        return grave or expectation.check_client(match, shown, arrival.now, revocation)

    async def _service(self, arrival: Arrival, request: Request, message: EbxmlMessage) -> Response:
        """A ping or a status request: for us, or to be passed on."""
        match = arrival.found.match
        if match is not None and _relays(match) and not self._names_us(message, match):
            return await self._pass_on(arrival, request, message, match)
        if match is not None and _is_relay(match) and not self._names_us(message, match):
            return await self._without_way(arrival, message)
        if kind_of(message) in _REPLIES:
            await self._refusing.note(
                "ValueNotRecognized", "an answer to what nobody asked here", arrival
            )
            return NO_CONTENT
        if not self.services.offers(message, match):
            return await self._refusing.fault(arrival, request, unsupported_service(message))
        problems = [one for one in arrival.found.problems if one.severity is Severity.FAILURE]
        answer = await self.services.answer(arrival, message, match)
        if answer is None and problems:
            return await self._refusing.refuse(arrival, request, message, problems)
        if answer is None:
            # Who is no partner is not told that somebody is here. [MS098-9.2.3-02]
            await self._refusing.note(
                "SecurityFailure", "a stranger asked whether we are here", arrival
            )
            return NO_CONTENT
        proven = asked_by_partner(arrival.found)
        route = answer_route(
            self._context,
            message,
            match,
            answer.kind,
            synchronous=request.synchronous,
            proven=proven,
        )
        if route.refused is not None:
            await self._refusing.note("SecurityFailure", route.refused, arrival)
        return await self._by(route, answer, message, match)

    def _names_us(self, message: EbxmlMessage, match: Match) -> bool:
        """Whether a question is for this very MSH, by its address. [MS098-9.1.1-04]"""
        own = own_addresses(self._context, match)
        return any(one.value in own for one in message.header.to_party.party_ids)

    async def _by(
        self, route: Route, answer: Answer, message: EbxmlMessage, match: Match | None
    ) -> Response:
        """An answer that nobody has to remember, on its way."""
        if route.is_response:
            return Response(200, answer.content_type, answer.envelope)
        if route.url is None:
            return NO_CONTENT
        work = call(self._context, route, answer, message, match, message.message_id)
        await self._context.store.run(lambda tx: tx.add_work(work))
        self._context.work_came.set()
        return NO_CONTENT

    async def _signal(
        self, look: Look, arrival: Arrival, request: Request, message: EbxmlMessage
    ) -> Response:
        """An acknowledgment or an error: about a message that we sent or passed on, or for others.

        Never answered but by the acknowledgment of an error that was sent reliably.
        [RM001-2.6.7-03] [MS098-11.3-04]
        """
        context, now = self._context, arrival.now
        ref = message.acknowledged or message.header.ref_to_message_id
        sent = await self._signals.sent(ref) if ref and ref != message.message_id else None
        terms = look.terms()
        onward = terms.match if terms is not None else None
        if onward is not None and not _relays(onward):
            onward = None
        if sent is None and onward is None and await self._signals.is_about_notice(ref):
            return NO_CONTENT
        if onward is None and self._is_for_others(message, sent) and not arrival.is_response:
            return await self._without_way(arrival, message)
        if sent is None and onward is None:
            detail = f"an ebXML signal about {ref or 'no message'}, which was not sent from here"
            await self._refusing.note("ValueNotRecognized", detail, arrival)
            return NO_CONTENT
        if sent is None:
            await context.judge((look, terms))
        else:
            match = context.in_force.match(sent.pmode, sent.leg)
            await context.judge((look, context.in_force.answer_terms(match)))
            hearing = self._signals.heard(arrival, sent)
            believed = bool(hearing.heard) and all(not one.problems for one in hearing.heard)
            recovery = self._linking.recovery(message, sent) if believed else None
            back = self._signals.acknowledgment(arrival, message, match) if believed else None
            about = sent

            def step(tx: Transaction) -> None:
                before = tx.signals(about.side, about.message_id)
                if not any(one.signal_id == message.message_id and one.valid for one in before):
                    answered(context, tx, about, hearing, now, arrival.peer)
                    if recovery is not None:
                        recovery(tx)
                if back is not None:
                    tx.add_work(first_said(tx, message.message_id, back, now))

            await context.store.run(step)
            context.settled.tell(sent.message_id)
            if recovery is not None:
                await context.look_at_partners()
            context.work_came.set()
        if onward is not None and not self._not_passed_on(arrival, onward):
            await self._relaying.take(arrival, message, onward, request)
        return NO_CONTENT

    async def _without_way(self, arrival: Arrival, message: EbxmlMessage) -> Response:
        """Refuse for now a signal for others that no P-Mode says how to pass on."""
        to = message.header.to_party
        said = f"no P-Mode says how to pass on a signal for {to}: load it, or send it elsewhere"
        return await self._refusing.come_again(arrival, EbmsError("DeliveryFailure", said))

    def _is_for_others(self, message: EbxmlMessage, about: Message | None) -> bool:
        """Whether an acknowledgment is only passed on here: it must not be taken for delivered.

        Errors are not refused: those about messages that went astray have nowhere to go.
        """
        in_force, to = self._context.in_force, message.header.to_party
        # What names an address is for the next MSH, by whatever name that is known.
        addressed = any(one.value.lower().startswith(_ADDRESSES) for one in to.party_ids)
        if kind_of(message) != "acknowledgment" or in_force.is_own(to) or addressed:
            return False
        if about is None:
            return True
        # In 2.0 the acknowledgment of a hop names the sender of the message, too.
        gone = in_force.match(about.pmode, about.leg) is None
        return about.side is Side.FORWARDING and (message.dialect.has_trace or gone)


def _answer_of(signal: Signal, envelope: bytes) -> Answer:
    return Answer(signal.signal_id, signal.kind, SoapVersion.SOAP_11, envelope)


def _again(message_id: str, work: Work, now: datetime) -> Callable[[Transaction], None]:
    """The step that sends an answer once more; one that is still to be sent goes at once."""

    def step(tx: Transaction) -> None:
        known = tx.message(Side.RECEIVING, message_id)
        if known is None:
            return
        if known.timer is not None and tx.work(known.timer) is not None:
            tx.wake_work(known.timer, now)
            return
        tx.change_message(Side.RECEIVING, message_id, (known.state,), timer=tx.add_work(work))

    return step


def _looked_at(arrival: Arrival, found: Inspection) -> Arrival:
    """The same arrival, looked at in another way."""
    return dataclasses.replace(arrival, found=found)


def _relays(match: Match) -> bool:
    """Whether what matched is passed on: to the receiver of the leg, so never against it."""
    return _is_relay(match) and not match.against


def _is_relay(match: Match) -> bool:
    return match.leg.ebxml is not None and match.leg.ebxml.relay


async def _nothing() -> AsyncIterator[bytes]:
    """A body of which everything came."""
    nothing: tuple[bytes, ...] = ()
    for piece in nothing:
        yield piece
