"""Messages for others: stored, acknowledged to who brought them, and passed on (0.98b, 8.5, 8.6).

Nothing of a message is changed but what is said from hop to hop: a TraceHeader is added and Via is
renewed when it leaves. What cannot be passed on is told to its From Party (10.4).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import sent_ebxml, write_signal
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.ebxml_terms import profile_of, reliable
from postroad.msh.payloads import Payload
from postroad.msh.securing import Unsecurable, answer_signing
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, signed
from postroad.node.base.own_address import own_address
from postroad.node.base.requests import NO_CONTENT, Request, Response
from postroad.node.ebxml.answering import (
    NOWHERE,
    RESPONSE,
    Route,
    answer_route,
    call,
    first_copy,
    tell_refused,
    wants_response,
)
from postroad.node.ebxml.hearing import terms_of
from postroad.node.ebxml.linking import Linking
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.duplicates import is_copy
from postroad.node.steps.ebxml_order import forward_over_link, unacknowledged_name
from postroad.node.steps.keeping import (
    Contradiction,
    kept_message,
    sent_signal,
    user_message_of,
)
from postroad.node.steps.outcome import begin_anew, life_of, waiting_name
from postroad.reliability import ebxml
from postroad.reliability.delivery import Input
from postroad.reliability.ebxml_sending import notice
from postroad.reliability.ebxml_terms import AckRequested, Terms
from postroad.store import records
from postroad.store.interface import Transaction
from postroad.store.records import Side, State, Work
from postroad.wire.content import read_all
from postroad.wire.ebxml import EbxmlMessage, kind_of
from postroad.wire.errors import EbmsError
from postroad.wire.names import EB2_NEXT_MSH
from postroad.wire.soap import SoapVersion


class Taken(Struct, frozen=True):
    """What became of a message for others: the response, or why it is not passed on."""

    response: Response = NO_CONTENT
    problems: tuple[EbmsError, ...] = ()


_GIVEN_UP = (State.FAILED, State.IN_DOUBT, State.EXPIRED)
_HERE: Final = (State.READY, State.WAITING, State.SUSPENDED)
"""States of a message that is still to be passed on."""
_TRANSMISSIONS: Final = 100
"""So many further ones of a message are remembered, the last ones."""


def notice_name(signal_id: str) -> str:
    """Under which it is remembered what sends a notice, since it is acknowledged."""
    return f"~notice:{signal_id}"


def contradiction() -> EbmsError:
    """What is told of something else under a known id."""
    place = f"{HEADER}/eb:MessageData/eb:MessageId"
    return EbmsError("Inconsistent", "its MessageId is that of another message", location=place)


def _after_forward(match: Match) -> bool:
    return match.leg.ebxml is not None and match.leg.ebxml.ack_after_forward


class Relaying:
    """An MSH on the way."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._linking = Linking(context)

    async def take(
        self, arrival: Arrival, message: EbxmlMessage, match: Match, request: Request
    ) -> Taken:
        """Take a message over, to pass it on."""
        context = self._context
        own = own_address(context, match.leg, not request.synchronous)
        if any(one.sender_uri == own for one in message.trace):
            said = "it was here before, and comes in a circle"
            return Taken(problems=(EbmsError("DeliveryFailure", said),))
        try:
            if match.leg.ebxml is not None and match.leg.ebxml.profile == "rm001":
                return Taken(await self._linking.relay(arrival, message, match, self))
            return Taken(await self._take(arrival, message, match, request, own))
        except Contradiction:
            return Taken(problems=(contradiction(),))
        except ValueError as wrong:
            # A signed acknowledgment is asked for, and there is no key.
            return Taken(problems=(EbmsError("NotSupported", str(wrong), location=HEADER),))

    async def _take(
        self, arrival: Arrival, message: EbxmlMessage, match: Match, request: Request, own: str
    ) -> Response:
        context = self._context
        terms = terms_of(message, match, final=False)
        answer = self._acknowledgment(arrival, message, match, terms, own)
        route = RESPONSE if wants_response(message, request.synchronous) else NOWHERE
        if answer is not None:
            answer = await self._first_answer(message) or answer
            route = answer_route(
                context,
                message,
                match,
                "acknowledgment",
                synchronous=request.synchronous,
                proven=True,
                first=await first_copy(
                    context,
                    message,
                    lambda reader: reader.message(Side.FORWARDING, message.message_id),
                ),
            )
        back = None
        if answer is not None and route.url is not None:
            back = call(context, route, answer, message, match, message.message_id)

        def step(tx: Transaction) -> records.Signal | None:
            return self.keep(tx, arrival, message, match, answer, back)

        first = await context.store.run(step)
        await tell_refused(context, route, message.message_id)
        context.work_came.set()
        return self._response(first, route)

    async def _first_answer(self, message: EbxmlMessage) -> Answer | None:
        """The acknowledgment that the first copy of a message got, if there was one.

        [MS098-10.3.1.5-05] [RM000-1.3.2-04]
        """
        given = await self._context.store.look(
            lambda reader: reader.signals(Side.FORWARDING, message.message_id)
        )
        first = next((one for one in given if not one.incoming), None)
        if first is None:
            return None
        body = read_all(self._context.store.content(first.envelope), first.envelope.size)
        return Answer(first.signal_id, first.kind, SoapVersion.SOAP_11, body)

    def _response(self, first: records.Signal | None, route: Route) -> Response:
        if first is None or not route.is_response:
            return NO_CONTENT
        body = read_all(self._context.store.content(first.envelope), first.envelope.size)
        return Response(200, first.content_type, body)

    def _acknowledgment(
        self, arrival: Arrival, message: EbxmlMessage, match: Match, terms: Terms, own: str
    ) -> Answer | None:
        """To the MSH before us, where that asks for one, or sends reliably.

        [MS098-10.3.1.3-01] [RM000-1.3.2.1-04]
        """
        if kind_of(message) != "message" or not terms.is_acknowledged:
            return None
        asked = any(one.actor == EB2_NEXT_MSH for one in message.ack_requested)
        if not message.dialect.has_trace and not asked:
            # 2.0 acknowledges only where it is asked to, and mostly the To Party is.
            return None
        context, now = self._context, arrival.now
        party = ebxml.Receiver(context.party, own, profile_of(match))
        signing = None
        if terms.ack_requested is AckRequested.SIGNED:
            signing = answer_signing(match.leg, context.in_force.keyring.signing)
        check = arrival.found.verification
        return write_signal(
            ebxml.acknowledge(reliable(message), terms, party, now),
            message.dialect,
            message_id=context.new_id(now),
            now=now,
            to=message,
            signing=signing,
            references=check.signed_references if check is not None else (),
        )

    def keep(
        self,
        tx: Transaction,
        arrival: Arrival,
        message: EbxmlMessage,
        match: Match,
        answer: Answer | None,
        back: Work | None,
        *,
        after_ack: bool = False,
    ) -> records.Signal | None:
        """The step: kept and to be passed on, or known already. The acknowledgment, if any.

        `after_ack`: it is passed on when its acknowledgement has gone. [RM001-4.1-01]
        """
        context, now = self._context, arrival.now
        user_message = user_message_of(arrival.found)
        # What lies elsewhere is not a carrier's to fetch.
        payloads = [one for one in _payloads(arrival) if one.content is not None]
        before = tx.message(Side.FORWARDING, message.message_id)
        if before is not None:
            return self._again(tx, arrival, message, match, before, back)
        state = State.READY
        kept = kept_message(context, tx, arrival, user_message, match, state, payloads)
        sending = context.in_force.forwarding(match.pmode.id, match.number)
        kept = changed(
            kept,
            side=Side.FORWARDING,
            parts=tuple(_as_it_came(one, arrival) for one in kept.parts),
            boundary=f"=_{context.entropy(15).hex()}" if kept.parts else None,
            peer=sending.address,
            best_effort=not message.header.is_reliable,
            signal=kind_of(message) != "message",
        )
        tx.add_message(kept)
        context.count("messages", side="forwarding", event="received")
        tx.record(
            (
                about(
                    kept,
                    "received",
                    now,
                    envelope=kept.message_id,
                    wire_bytes=arrival.size,
                    peer=arrival.peer,
                    evidence=signed(kept),
                ),
            )
        )
        if after_ack:
            tx.set_state(unacknowledged_name(kept.message_id), b"", now)
        else:
            tx.add_work(self._work(message, match, kept, now))
        if answer is None:
            return None
        signal = sent_signal(kept, answer, tx.keep(answer.envelope), now)
        signal = changed(signal, side=Side.FORWARDING)
        tx.add_signal(signal)
        if back is not None:
            number = _acknowledge(tx, kept.message_id, back, now)
            if _after_forward(match):
                tx.postpone_work(number, None)
                tx.set_state(waiting_name(kept.message_id), str(number).encode(), now)
        return None if _after_forward(match) else signal

    def _work(
        self, message: EbxmlMessage, match: Match, kept: records.Message, now: datetime
    ) -> Work:
        """The work of passing a message on, in its lane where order is to be kept."""
        sending = self._context.in_force.forwarding(match.pmode.id, match.number)
        lane = None
        if message.header.sequence_number is not None:
            lane = f"forward:{kept.from_party}\0{kept.conversation_id}"
        if sending.linked and not kept.best_effort:
            return forward_over_link(self._context, kept, sending, now)
        partner = sending.destination(kept)
        return Work("forward", kept.message_id, now, partner=partner, lane=lane)

    def _renumber(self, tx: Transaction, match: Match, before: records.Message) -> None:
        """Over a link numbers went on meanwhile, or began anew: it gets another in its turn."""
        if self._context.in_force.forwarding(match.pmode.id, match.number).linked:
            tx.change_message(
                Side.FORWARDING, before.message_id, (before.state,), sequence_number=None
            )

    def _again(
        self,
        tx: Transaction,
        arrival: Arrival,
        message: EbxmlMessage,
        match: Match,
        before: records.Message,
        back: Work | None,
    ) -> records.Signal | None:
        """A copy: acknowledged as the first one was, unless that is still to be passed on.

        What was given up is passed on anew if somebody sends it again. A signal is passed on as
        often as it comes: it is sent again since nobody beyond us acknowledged it, and whoever
        gets it twice takes it once.
        """
        payloads = [one for one in _payloads(arrival) if one.content is not None]
        number = message.header.sequence_number
        # Over a link what is kept is the number of the next hop.
        first = changed(before, sequence_number=None if number is None else number.value)
        if not is_copy(arrival, user_message_of(arrival.found), payloads, first):
            raise Contradiction
        tx.record((about(before, "duplicate", arrival.now, peer=arrival.peer),))
        given = tx.signals(Side.FORWARDING, message.message_id)
        signal = next((one for one in given if not one.incoming), None)
        anew = self._is_sent_again(tx, message, match, before, arrival.now)
        given_up = before.state in _GIVEN_UP
        if (given_up and anew) or (before.signal and (given_up or before.state is State.SENT)):
            self._renumber(tx, match, before)
            work = self._work(message, match, before, arrival.now)
            begin_anew(tx, before, Input.RESENT, arrival.now, work)
        if signal is None:
            return None
        if _after_forward(match) and before.state not in (State.ACKNOWLEDGED, State.SENT):
            return None
        if back is not None:
            _acknowledge(tx, message.message_id, back, arrival.now)
        return signal

    def _is_sent_again(
        self,
        tx: Transaction,
        message: EbxmlMessage,
        match: Match,
        before: records.Message,
        now: datetime,
    ) -> bool:
        """Whether a copy is of a further transmission, or of one that was here already.

        Each has a TraceHeader of its own. [MS098-10.3.1.5-01] Who was told that a message failed
        relies on it: what comes late of an old transmission must not arrive after all. Over a link
        copies are the same to the byte, and 2.0 has no TraceHeader: there every copy counts.
        """
        linked = match.leg.ebxml is not None and match.leg.ebxml.profile == "rm001"
        if linked or not message.trace:
            return True
        name, sent = f"~traced:{before.message_id}", message.trace[-1].timestamp.isoformat()
        known = (tx.state(name) or b"").decode().split()
        if sent in known or sent == self._first_sent(before):
            return False
        tx.set_state(name, " ".join((*known[1 - _TRANSMISSIONS :], sent)).encode(), now)
        return True

    def _first_sent(self, kept: records.Message) -> str | None:
        """When the copy that is kept left the MSH before us, by the clock of that."""
        if kept.envelope is None:
            return None
        envelope = read_all(self._context.store.content(kept.envelope), kept.envelope.size)
        trace = sent_ebxml(envelope, self._context.limits).message.trace
        return trace[-1].timestamp.isoformat() if trace else None


class Reporting:
    """Tells the From Party that its message could not be passed on. [MS098-10.4-01]

    The previous Sender of a link is told that it cannot be passed on now. [RM001-4.3-01]
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._linking = Linking(context)

    async def perform(self, work: Work) -> None:
        context = self._context
        message = await context.store.look(
            lambda reader: reader.message(Side.FORWARDING, work.message_id)
        )
        given = None if message is None else self._notice(message)
        now = context.clock()

        def step(tx: Transaction) -> None:
            if given is not None:
                signal_id, back = given
                number = tx.add_work(back)
                if signal_id is not None:
                    tx.set_state(notice_name(signal_id), str(number).encode(), now)
            tx.finish_work(work.id, work.owner)

        await context.store.run(step)
        context.work_came.set()

    def _notice(self, message: records.Message) -> tuple[str | None, Work] | None:
        """The delivery failure notification, on its way to who brought the message.

        With its id where it is acknowledged, which the draft of links does not do.
        """
        context = self._context
        match = context.in_force.match(message.pmode, message.leg)
        if message.envelope is None or match is None or message.best_effort:
            return None
        kept = read_all(context.store.content(message.envelope), message.envelope.size)
        sent = sent_ebxml(kept, context.limits).message
        terms = terms_of(sent, match)
        linked = match.leg.ebxml is not None and match.leg.ebxml.profile == "rm001"
        now = context.clock()
        route = answer_route(context, sent, match, "error", synchronous=False, proven=True)
        if linked and message.state in _HERE and route.url is not None:
            transient = self._linking.transient(sent, match, now)
            return None, call(context, route, transient, sent, match, message.message_id)
        signal = notice(reliable(sent), terms, life_of(message).stage, context.party)
        if signal is None or route.url is None:
            return None
        try:
            signing = answer_signing(match.leg, context.in_force.keyring.signing)
        except Unsecurable:
            signing = None
        answer = write_signal(
            signal,
            sent.dialect,
            message_id=context.new_id(now),
            now=now,
            to=sent,
            signing=signing,
            over_link=linked,
        )
        if answer is None:
            return None
        name = message.message_id
        work = call(context, route, answer, sent, match, name, reliably=not linked)
        return None if linked else answer.signal_id, work


def _acknowledge(tx: Transaction, message_id: str, back: Work, now: datetime) -> int:
    """The work of acknowledging a hop: one at a time, however many copies come."""
    name = f"~acknowledging:{message_id}"
    known = tx.state(name)
    if known is not None and tx.work(int(known)) is not None:
        tx.wake_work(int(known), now)
        return int(known)
    number = tx.add_work(back)
    tx.set_state(name, str(number).encode(), now)
    return number


def _payloads(arrival: Arrival) -> Sequence[Payload]:
    return next(iter(arrival.found.payloads.values()), ())


def _as_it_came(part: records.StoredPart, arrival: Arrival) -> records.StoredPart:
    """A payload with the Content-Type that it had, parameters included."""
    for one in arrival.capture.attachments:
        said = one.headers.get("content-type")
        if one.content_id == part.content_id and said:
            return changed(part, wire_type=" ".join(said.split()))
    return part
