"""One attempt: the message as it goes over the wire, and what the partner's answer makes of it.

`node.walks.sending` says what is tried and when, and commits what follows.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.ebxml import is_mail
from postroad.agreement.matching import Match
from postroad.agreement.waiting import wait_after
from postroad.msh.answers import SentMessage, sent_message, sent_messages
from postroad.msh.capture import Capture, Incoming
from postroad.msh.ebxml_answers import sent_ebxml
from postroad.msh.ebxml_outbound import EbxmlPackage
from postroad.msh.inspection import Look
from postroad.msh.outbound import Package, WireForm, WirePart, wire_form
from postroad.msh.securing import signing
from postroad.msh.wsreliability import write_poll
from postroad.msh.wsrm import sent_sequence
from postroad.node.base.context import Context
from postroad.node.base.own_address import own_addresses
from postroad.node.bundles.hearing import hear_units, of_the_whole
from postroad.node.ebxml.hearing import heard_ebxml
from postroad.node.ebxml.sending import is_for_application, transmitted
from postroad.node.hub.catching import Catch
from postroad.node.large.fragmenting import Fragmenting, Units
from postroad.node.large.uploading import posted
from postroad.node.settings.in_force import Sending
from postroad.node.steps.attempts import Outcome, is_in_time
from postroad.node.steps.exchanging import has_alternate
from postroad.node.steps.hearing import Hearing, hear, judged, unreadable
from postroad.node.steps.mailing import Mailing
from postroad.node.wsrm.asking import NoSequence
from postroad.node.wsrm.asking import sent as sent_alone
from postroad.node.wsrm.hearing import hear_response
from postroad.node.wsrm.wsreliability import hear_reply
from postroad.reliability.awareness import (
    ANSWERS,
    MISSING_RECEIPT,
    Answer,
    fault_said,
    leaves_open,
    status_said,
)
from postroad.reliability.delivery import Input
from postroad.store.records import Message, Side, StoredPart, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Body, Pieces, Reply, Timeouts, TransportFailure
from postroad.transport.http_outgoing import Outgoing as Request
from postroad.wire.content import Content, read_all
from postroad.wire.ebxml import Dialect
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB
from postroad.wire.soap import SoapVersion

_LEAST_WAIT: Final = 1.0
"""Seconds for an answer, however quickly a message is to be sent again."""
IN_ONE_PIECE: Final = 256 * 1024
_AT_HAND: Final = 32 * MIB
"""So much that was read a moment ago is in memory still."""
_DECIDED: Final = (Input.ACKNOWLEDGED, Input.REFUSED)
_VERSIONS: Final = {version.number: version for version in SoapVersion}


class Outgoing(Struct, frozen=True):
    """A message that this process has claimed, with what is known of it."""

    message: Message
    work: Work
    sent: SentMessage | None = None
    made: Package | EbxmlPackage | None = None
    """While it is still in memory."""
    probes: bool = False
    """It goes out to a partner who is paused, to see whether it can be reached again."""
    units: tuple[Message, ...] = ()
    """All units of a bundle, the primary first, in the order of the envelope."""
    lacks_units: bool = False
    """Retention removed some of them."""
    sent_units: Mapping[str, SentMessage] | None = None
    """What was sent of each of them, while that is in memory."""
    whole: Units = ()
    """Of a fragment: the message that it is a part of."""


class Posting:
    """Posts messages, one at a time, and hears what comes back."""

    def __init__(
        self,
        context: Context,
        client: Client,
        mail: Mailing,
        fragmenting: Fragmenting,
        timeouts: Timeouts,
    ) -> None:
        self._context = context
        self._client = client
        self._mail = mail
        self._fragmenting = fragmenting
        self._timeouts = timeouts

    def form(self, outgoing: Outgoing, sending: Sending, address: str, began: datetime) -> WireForm:
        """The message as it goes over the wire."""
        message, store = outgoing.message, self._context.store
        assert message.envelope is not None
        if outgoing.whole:
            return self._fragmenting.form(outgoing.whole, message, sending)
        contents: list[Content]
        if outgoing.made is not None:
            envelope = outgoing.made.envelope
            contents = [part.content for part in outgoing.made.parts]
        else:
            envelope = self._envelope(outgoing)
            contents = [store.content(part.stored) for part in _parts(outgoing)]
        if sending.dialect is not None:
            # Copies are the same, and known for old ones once somebody began anew.
            first = message.anew_at or message.first_sent_at or began
            if sending.linked:
                # Whatever became of the copies before. [RM001-2.6.3-04]
                first = message.created_at
            envelope = transmitted(self._context, sending, envelope, address, first, message)
        stored = _parts(outgoing)
        types: Sequence[str] = [part.wire_type for part in stored]
        if message.seal is not None:
            contents = list(message.seal.on(contents))
            types = message.seal.media_types(types)
        parts = [
            WirePart(part.content_id or "", media_type, content, part.file_name)
            for part, media_type, content in zip(stored, types, contents, strict=True)
        ]
        return wire_form(_VERSIONS[message.soap], envelope, parts, message.boundary)

    async def attempt(
        self, outgoing: Outgoing, sending: Sending, form: WireForm, address: str
    ) -> Outcome:
        message = outgoing.message
        catch = Catch(self._context) if sending.asks else None
        try:
            if is_mail(address):
                await self._mail.send(form, address, message.message_id)
                return Outcome(Input.UNANSWERED if sending.awaits else Input.LEFT)
            request = self._request(message, sending, form, address, catch)
            reply = await self._posted(outgoing, sending, form, request)
            if catch is not None and catch.size and _is_soap(reply.content_type):
                outcome = await self._replied(outgoing, sending, reply, catch)
                return changed(outcome, in_time=is_in_time(reply))
        except TransportFailure as failure:
            # A reply is the application's: that it takes its time does not mean overload.
            return _failed(failure, None if sending.asks else is_in_time(failure))
        finally:
            if catch is not None:
                catch.drop()
        outcome = await self._answered(outgoing, sending, reply)
        return changed(outcome, in_time=is_in_time(reply))

    async def attempt_all(
        self, outgoing: Outgoing, sending: Sending, form: WireForm, address: str
    ) -> list[Outcome]:
        """What became of each unit of a bundle that was posted."""
        units = outgoing.units
        try:
            request = self._request(outgoing.message, sending, form, address, None)
            reply = await self._posted(outgoing, sending, form, request)
        except TransportFailure as failure:
            return [_failed(failure, is_in_time(failure))] * len(units)
        outcomes = await self._units_answered(outgoing, sending, reply)
        return [changed(one, in_time=is_in_time(reply)) for one in outcomes]

    async def _units_answered(
        self, outgoing: Outgoing, sending: Sending, reply: Reply
    ) -> list[Outcome]:
        """What the partner's reply makes of each unit of a bundle."""
        units = outgoing.units
        if not (reply.body and _is_soap(reply.content_type)):
            return [await self._answered(outgoing, sending, reply)] * len(units)
        reached = reply.status < 500
        try:
            capture = _captured(reply, self._context)
        except EbmsError as error:
            one = _spoken(unreadable(error), reply.status)
            return [changed(one, reached=reached)] * len(units)
        sent, in_force = self.sent_units(outgoing), self._context.in_force
        if sending.reliable is not None:
            both = [(sent[one.message_id], in_force.match(one.pmode, one.leg)) for one in units]
            hearings = await self._heard_in_sequence(both, outgoing, sending, capture)
            # In SOAP 1.1 all faults are a 500.
            reached = reached or any(one.heard for one in hearings)
        else:
            hearings = await hear_units(self._context, capture, sending.match, units, sent)
        outcomes = [_spoken(one, reply.status) for one in hearings]
        return [
            changed(one, reached=reached)
            for one in of_the_whole(self._context, units, hearings, outcomes, sending)
        ]

    def _request(
        self, message: Message, sending: Sending, form: WireForm, url: str, catch: Catch | None
    ) -> Request:
        """What is posted; a reply, which may be large, is caught as it comes."""
        limits = self._context.limits
        return Request(
            url,
            form.content_type,
            _body(form, at_hand=_was_just_read(message)),
            soap_action(form, sending.dialect),
            sending.tls,
            self._patience(message, sending),
            reply_bytes=limits.envelope_bytes if catch is None else limits.message_bytes,
            reader=None if catch is None else catch.reader,
            # What is sent again waits for its answer, as HTTP advises. [P2-6.3.2-01]
            pipelined=sending.pipelined and message.tries == 0,
        )

    def _patience(self, message: Message, sending: Sending) -> Timeouts:
        """How long an answer is waited for: not longer than until the next retry.

        For a reply as long as for any answer: the partner's application gives it.
        """
        policy = sending.policy
        if policy.retries == 0 or sending.asks:
            return self._timeouts
        wait = wait_after(policy, message.tries + 1).total_seconds()
        return changed(self._timeouts, answer=min(self._timeouts.answer, max(wait, _LEAST_WAIT)))

    async def _posted(
        self, outgoing: Outgoing, sending: Sending, form: WireForm, request: Request
    ) -> Reply:
        restarts, again = sending.restarts, outgoing.message.attempts > 0
        return await posted(self._client, request, form, restarts=restarts, began_before=again)

    async def _replied(
        self, outgoing: Outgoing, sending: Sending, reply: Reply, catch: Catch
    ) -> Outcome:
        """The response to a request: its reply, or what is said in the place of one."""
        context, request = self._context, outgoing.message
        match = context.in_force.match(request.pmode, 2)
        assert context.take_reply is not None
        if match is None:
            # It cannot be read. Who sends the request again gets the same.
            removed = "its P-Mode was removed while its reply was waited for"
            return Outcome(Input.UNANSWERED, detail=removed)
        try:
            capture = catch.close()
            name, peer = request.message_id, sending.address
            given = await context.take_reply(capture, catch.size, match, peer, name)
            if given is None:
                hearing = await self._heard(outgoing, sending, capture)
                moves = hearing.moves_reply and has_alternate(context, request)
                if hearing.said is None and moves:
                    return Outcome(Input.LEFT, hearing)
                return changed(_spoken(hearing, reply.status), reached=reply.status < 500)
        except EbmsError as error:
            return _spoken(unreadable(error), reply.status)
        found, taken = given
        if found.match is None or (found.match.pmode.id, found.match.number) != (request.pmode, 2):
            # Who signs for another P-Mode says nothing about this request.
            found.messaging = None
        hearing = judged(found, capture, sending.match, self.sent(outgoing), on_response=True)
        said = hearing.said
        if said is not None:
            return Outcome(said.input, hearing, said.error_code, said.detail)
        if taken:
            return Outcome(Input.LEFT, hearing)
        detail = "the reply to it was refused, and nothing else was said about it"
        return Outcome(Input.UNANSWERED, hearing, None, detail)

    async def _answered(self, outgoing: Outgoing, sending: Sending, reply: Reply) -> Outcome:
        """What the partner's reply makes of the message."""
        trouble = reply.status >= 500
        if reply.body and _is_soap(reply.content_type):
            hearing = await self._hear(outgoing, sending, reply)
            if not sending.awaits and reply.status < 300 and hearing.is_silent:
                return Outcome(Input.LEFT, hearing)
            outcome = _spoken(hearing, reply.status)
            # In SOAP 1.1 all faults are a 500.
            there = outcome.result in _DECIDED or (
                sending.reliable is not None and bool(hearing.heard)
            )
            return changed(outcome, reached=there or not trouble)
        answer = status_said(reply.status)
        if answer is not Answer.NOTHING:
            said = f"the partner answered HTTP {reply.status}"
            return Outcome(ANSWERS[answer], detail=said, reached=not trouble)
        if not sending.awaits:
            return Outcome(Input.LEFT)
        if sending.wsr is not None and sending.wsr.pattern == "Poll":
            return await self._polled(outgoing, sending)
        if sending.later:
            return Outcome(Input.UNANSWERED)
        said = f"the partner answered HTTP {reply.status} without a receipt"
        return Outcome(Input.UNANSWERED, None, MISSING_RECEIPT, said)

    async def _polled(self, outgoing: Outgoing, sending: Sending) -> Outcome:
        """Ask for the acknowledgment of a message that has just been sent."""
        context, message, now = self._context, outgoing.message, self._context.clock()
        how = signing(sending.match.leg, sending.material.signing)
        version = _VERSIONS[message.soap]
        asking = write_poll(
            message.message_id, version, message_id=context.new_id(now), now=now, how=how
        )
        try:
            reply = await sent_alone(context, self._client, asking, sending.address, sending.tls)
        except NoSequence as unheard:
            return Outcome(Input.UNANSWERED, detail=unheard.detail)
        if not reply.body or not _is_soap(reply.content_type):
            return Outcome(Input.UNANSWERED, detail="the partner has not acknowledged it yet")
        return _spoken(await self._hear(outgoing, sending, reply), reply.status)

    async def _hear(self, outgoing: Outgoing, sending: Sending, reply: Reply) -> Hearing:
        context = self._context
        try:
            capture = _captured(reply, context)
            if sending.dialect is not None:
                return await self._hear_ebxml(outgoing, sending, capture, reply)
            return await self._heard(outgoing, sending, capture)
        except EbmsError as error:
            return unreadable(error)

    async def _heard(self, outgoing: Outgoing, sending: Sending, capture: Capture) -> Hearing:
        context, sent = self._context, self.sent(outgoing)
        if sending.reliable is not None:
            [hearing] = await self._heard_in_sequence(
                [(sent, sending.match)], outgoing, sending, capture
            )
            return hearing
        if sending.wsr is not None:
            return await hear_reply(context, capture, sending.match, sent)
        return await hear(context, capture, sending.match, sent, context.clock(), on_response=True)

    async def _heard_in_sequence(
        self,
        sent: Sequence[tuple[SentMessage, Match | None]],
        outgoing: Outgoing,
        sending: Sending,
        capture: Capture,
    ) -> list[Hearing]:
        """What the response says about a message in a sequence, or about each unit of a bundle."""
        context = self._context
        sequence = sent_sequence(self._envelope(outgoing), context.limits)
        args = (capture, sending.match, sent, sequence, sending.address)
        return await hear_response(context, *args)

    async def _hear_ebxml(
        self, outgoing: Outgoing, sending: Sending, capture: Capture, reply: Reply
    ) -> Hearing:
        """What the response says; where it is a message for the application, it is taken in too."""
        context = self._context
        look = Look(capture, context.in_force.lens(context.clock(), context.store.new_sink))
        if await context.read(look):
            await context.judge((look, context.in_force.answer_terms(sending.match)))
        message = outgoing.message
        sent = sent_ebxml(self._envelope(outgoing), context.limits)
        hearing = heard_ebxml(
            look.found,
            capture,
            sending.match,
            sent,
            message.side,
            sending.addresses,
            own_addresses(context, sending.match),
            on_response=True,
        )
        if context.take_in is not None and is_for_application(look.found):
            await context.take_in(capture, sending.addresses[0], len(reply.body))
        elif context.pass_on is not None and message.side is Side.FORWARDING:
            await context.pass_on(capture, sending.addresses[0], len(reply.body))
        return hearing

    def sent(self, outgoing: Outgoing) -> SentMessage:
        if outgoing.sent is not None:
            return outgoing.sent
        return sent_message(self._envelope(outgoing), self._context.limits)

    def sent_units(self, outgoing: Outgoing) -> Mapping[str, SentMessage]:
        """What was sent of each unit of an envelope, in their order."""
        if outgoing.sent_units is not None:
            return outgoing.sent_units
        return sent_messages(self._envelope(outgoing), self._context.limits)

    def _envelope(self, outgoing: Outgoing) -> bytes:
        stored = outgoing.message.envelope
        assert stored is not None
        return read_all(self._context.store.content(stored), stored.size)


def _parts(outgoing: Outgoing) -> list[StoredPart]:
    """Of a message, or of all units of a bundle."""
    return [part for one in outgoing.units or (outgoing.message,) for part in one.parts]


def not_sent(detail: str, peer: str | None = None, *, reached: bool = False) -> Outcome:
    """Not a byte left."""
    return Outcome(Input.NOT_SENT, None, "EBMS:0005", detail, peer, reached=reached)


def _failed(failure: TransportFailure, in_time: bool | None) -> Outcome:
    """No answer came, whether or not anything left."""
    if not failure.transmitted:
        return changed(not_sent(failure.reason), in_time=in_time)
    return Outcome(Input.UNANSWERED, detail=failure.reason, reached=False, in_time=in_time)


def _spoken(hearing: Hearing, status: int) -> Outcome:
    """The partner answered in SOAP: with a receipt, with errors, or with something else."""
    said = hearing.said
    refused = said is not None and said.by_error and said.input is Input.REFUSED
    if said is not None and refused and leaves_open(said.error_code, status):
        # It failed while it processed the message: nobody knows how far it came.
        return Outcome(ANSWERS[Answer.TROUBLE], hearing, said.error_code, said.detail)
    said = said or hearing.disbelieved
    if said is not None:
        return Outcome(said.input, hearing, said.error_code, said.detail)
    if hearing.fault is not None:
        detail = f"the partner answered with a SOAP fault: {hearing.fault.reason}"
        return Outcome(ANSWERS[fault_said(hearing.fault.code)], hearing, None, detail)
    detail = f"the partner's answer (HTTP {status}) says nothing about this message"
    return Outcome(ANSWERS[Answer.NOTHING], hearing, MISSING_RECEIPT, detail)


def _captured(reply: Reply, context: Context) -> Capture:
    incoming = Incoming(reply.content_type, new_sink=context.store.new_sink, limits=context.limits)
    incoming.feed(reply.body)
    return incoming.close()


def _body(form: WireForm, *, at_hand: bool) -> Body:
    length = form.length
    if length <= IN_ONE_PIECE:
        return form.whole()
    return Pieces(length, form.pieces, at_hand and length <= _AT_HAND)


def _was_just_read(message: Message) -> bool:
    """A fragment is digested right before it is sent, the first time; encrypting takes longer."""
    return message.part_of is not None and message.attempts == 0 and message.seal is None


def soap_action(form: WireForm, dialect: Dialect | None) -> tuple[tuple[str, str], ...]:
    """SOAP 1.1 asks for a SOAPAction, even an empty one; ebXML has its own."""
    if dialect is not None:
        return (("SOAPAction", '"ebXML"'),)
    return (("SOAPAction", '""'),) if form.media_type == "text/xml" else ()


def _is_soap(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind in ("application/soap+xml", "text/xml", "multipart/related")
