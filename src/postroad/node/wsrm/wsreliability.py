"""WS-Reliability 1.1 at both ends: messages taken and acknowledged, replies heard, polls answered.

Which message had which identity is a named state, kept with the message that it tells of.
"""

import base64
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.agreement.reliable import Reliable, wsr_of
from postroad.msh.answers import SentMessage
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.securing import Unsecurable, answer_signing, signs
from postroad.msh.wsreliability import group_of, message_of, write_replies
from postroad.msh.wsrm import Written, rm_problems, signer_of, way_problems
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.base.requests import NO_CONTENT, Response
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.calling import Call
from postroad.node.steps.hearing import Heard, Hearing, Reported, judged
from postroad.node.steps.keeping import Answering, Given, keep
from postroad.node.steps.noting import note, note_refusal
from postroad.node.steps.outcome import answered
from postroad.node.steps.wsrm_states import read_state, write_state
from postroad.node.wsrm.destination import version_of
from postroad.reliability.wsreliability import RECEIVING, REPLIES, Agreed, Done, coming
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, Work
from postroad.wire.ebms3 import UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion
from postroad.wire.wsreliability import (
    ESCALATED,
    FaultCode,
    PollRequest,
    Reply,
    ReplyPattern,
    Request,
    read_wsr_headers,
    stated_group,
)

_KIND = "acknowledgment"
_REQUIRED = "messages of this P-Mode are sent with WS-Reliability, and this one has no wsr:Request"
_UNASKED = "the header wsr:Request: messages of this P-Mode are not sent with WS-Reliability"


class Known(Struct, frozen=True):
    """A message that was taken, by its identity."""

    message_id: str
    signer: str
    pmode: str
    leg: int


class Reliably(Struct, frozen=True):
    """What became of a message."""

    reply: Reply
    given: Given | None = None
    back: Work | None = None
    """The work that brings the acknowledgment, where it calls back."""


def _name(signer: str, group_id: str, number: int | None) -> str:
    """Under which a message of a group is remembered; each signer has groups of its own."""
    by = f"{signer}\0" if signer else ""
    return f"~wsr:{by}{group_id}\0{'' if number is None else number}"


def request_problems(found: Inspection, match: Match) -> list[EbmsError]:
    """Whether a message asks for reliability exactly where its P-Mode says so. [P2-6.6.1-02]"""
    if found.wsr_broken:
        return [found.wsr_broken[0].problem]
    asks = found.wsr is not None and found.wsr.request is not None
    if asks == (wsr_of(match.leg) is not None):
        return []
    said = _REQUIRED if not asks else _UNASKED
    return [EbmsError("EBMS:0010", said, location="wsr:Request")]


def agreed_way(agreed: Reliable) -> Agreed:
    pattern = ReplyPattern(agreed.pattern)
    return Agreed(pattern, agreed.acks_to if pattern is ReplyPattern.CALLBACK else None)


class ReliableReceiving:
    """The receiver of messages, and who is asked about them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def keep(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        agreed: Reliable,
        how: Answering,
    ) -> Callable[[Transaction], Reliably]:
        """The step for a message that holds in itself: taken, known already, or refused."""
        found, now = arrival.found, arrival.now
        assert found.wsr is not None
        assert found.wsr.request is not None
        request, message_id = found.wsr.request, message.message_info.message_id
        number = request.sequence_num.number if request.sequence_num else None
        name = _name(signer_of(found), request.group_id, number)
        taking = keep(self._context, arrival, message, match, how)

        def step(tx: Transaction) -> Reliably:
            known = read_state(tx, name, Known)
            before = known.message_id if known is not None else None
            verdict = RECEIVING[coming(request, agreed_way(agreed), message_id, before, now)]
            if verdict.done is Done.REFUSE:
                return Reliably(_reply(request, verdict.fault))
            given = taking(tx)
            if given.contradicts or given.refused is not None:
                return Reliably(_reply(request, FaultCode.PERMANENT_PROCESSING_FAILURE), given)
            taken = Known(message_id, signer_of(found), match.pmode.id, match.number)
            write_state(tx, name, taken, now)
            return self._acknowledged(tx, arrival, match, agreed, request, given)

        return step

    def _acknowledged(
        self,
        tx: Transaction,
        arrival: Arrival,
        match: Match,
        agreed: Reliable,
        request: Request,
        given: Given,
    ) -> Reliably:
        context, now, reply = self._context, arrival.now, _reply(request, None)
        message_id = given.stored_id
        kept = tx.message(Side.RECEIVING, message_id)
        pattern = ReplyPattern(agreed.pattern)
        if pattern is not ReplyPattern.CALLBACK:
            if kept is not None and pattern is ReplyPattern.RESPONSE:
                tx.record((about(kept, "acked", now, peer=arrival.peer),))
            return Reliably(reply, given)
        assert agreed.acks_to is not None
        version = version_of(arrival.found)
        ack = self._written((reply,), match, version)
        call = Call(
            agreed.acks_to,
            _KIND,
            ack.message_id,
            ack.content_type,
            base64.b64encode(ack.envelope).decode(),
            match.pmode.id,
            '""' if version is SoapVersion.SOAP_11 else None,
            match.number,
        )
        work = context.claimed(Work("signal", message_id, now, msgspec.json.encode(call)))
        return Reliably(reply, given, changed(work, id=tx.add_work(work)))

    async def broken(self, arrival: Arrival, match: Match) -> Response | None:
        """The fault for a header that cannot be; None where nobody knows whose it would be."""
        found = arrival.found
        group = stated_group(found.envelope) if found.envelope is not None else None
        if not found.wsr_broken or group is None or wsr_of(match.leg) is None:
            return None
        fault, problem = found.wsr_broken[0].fault, found.wsr_broken[0].problem
        await note_refusal(self._context, ESCALATED[fault], problem.detail, arrival)
        written = self._written((Reply(group, fault=fault),), match, version_of(found))
        return Response(200, written.content_type, written.envelope)

    def response(
        self, taken: Reliably, arrival: Arrival, match: Match, agreed: Reliable
    ) -> Response:
        """What a message is answered with on its connection; a fault always is."""
        if taken.reply.fault is None and agreed.pattern != ReplyPattern.RESPONSE.value:
            return NO_CONTENT
        written = self._written((taken.reply,), match, version_of(arrival.found))
        return Response(200, written.content_type, written.envelope)

    def _written(
        self, replies: tuple[Reply, ...], match: Match | None, version: SoapVersion
    ) -> Written:
        context, now = self._context, self._context.clock()
        how = None
        try:
            if match is not None:
                how = answer_signing(match.leg, context.in_force.keyring.signing)
        except Unsecurable:
            how = None
        return write_replies(replies, version, message_id=context.new_id(now), now=now, how=how)

    async def receive(self, look: Look, peer: str | None, now: datetime) -> Response:
        """Replies that call back, or a question for some; neither holds a message."""
        context, envelope = self._context, look.found.envelope
        assert envelope is not None
        headers, broken = read_wsr_headers(envelope)
        if headers is not None and headers.response:
            await self._hear(look, headers.response, peer, now)
            return NO_CONTENT
        if headers is not None and headers.poll_request is not None:
            await context.judge((look, look.terms()))
            return await self._polled(look.found, headers.poll_request, now)
        wrong = broken[0].problem.detail if broken else "nothing is said in it"
        await note(context, "EBMS:0201", f"a message of WS-Reliability: {wrong}", now, peer)
        return NO_CONTENT

    async def _hear(
        self, look: Look, replies: tuple[Reply, ...], peer: str | None, now: datetime
    ) -> None:
        """Replies are believed by the terms of the first message, and only about its P-Mode."""
        context = self._context
        names = [message_of(one.group_id) for one in replies]

        def sent(reader: Reader) -> list[Message | None]:
            return [reader.message(Side.SENDING, name) for name in names]

        match: Match | None = None
        for message, reply in zip(await context.store.look(sent), replies, strict=True):
            its = context.in_force.match(message.pmode, message.leg) if message else None
            reliable = its is not None and wsr_of(its.leg) is not None
            if message is None or its is None or not reliable or its != (match or its):
                said = f"a reply about {reply.group_id[:200]}, which was not sent from here"
                await note(context, "EBMS:0201", said, now, peer)
                continue
            if match is None:
                match = its
                await context.judge((look, context.in_force.answer_terms(match)))
            await self._told(look.found, message, match, reply, peer, now)

    async def _told(
        self,
        found: Inspection,
        message: Message,
        match: Match,
        reply: Reply,
        peer: str | None,
        now: datetime,
    ) -> None:
        context, capture = self._context, found.capture
        assert capture is not None
        kind = str(capture.content_type) if capture.content_type else "application/soap+xml"
        hearing = Hearing(
            capture.envelope, kind, (_heard(found, match, reply, in_request=True),), ()
        )

        def step(tx: Transaction) -> None:
            kept = tx.message(Side.SENDING, message.message_id)
            if kept is not None:
                answered(context, tx, kept, hearing, now, peer)

        await context.store.run(step)
        context.settled.tell(message.message_id)
        context.work_came.set()
        context.told()

    async def _polled(self, found: Inspection, asked: PollRequest, now: datetime) -> Response:
        """What came of what is asked about; of what did not, nothing is said."""
        context = self._context
        names = [
            (one.group_id, number)
            for one in asked.polls[:_MOST_POLLS]
            for number in (_numbers(one.ranges) or [None])
        ][:_MOST_POLLS]

        signer = signer_of(found)

        def look(reader: Reader) -> list[tuple[str, int | None, Known]]:
            known = [
                (*one, read_state(reader, _name(by, *one), Known))
                for one in names
                for by in dict.fromkeys((signer, ""))
            ]
            return [(group, number, one) for group, number, one in known if one is not None]

        replies, match = [], None
        for group, number, known in await context.store.look(look):
            its = context.in_force.match(known.pmode, known.leg)
            if its is None or (signs(its.leg) and known.signer != signer):
                continue
            match = match or its
            replies.append(Reply(group, number, number))
        if not replies:
            return NO_CONTENT
        written = self._written(tuple(replies), match, version_of(found))
        return Response(200, written.content_type, written.envelope)


_MOST_POLLS = 100


def _numbers(ranges: tuple[tuple[int, int], ...]) -> list[int | None]:
    found: list[int | None] = []
    for first, last in ranges:
        found += range(first, min(last, first + _MOST_POLLS) + 1)
    return found


def _reply(request: Request, fault: FaultCode | None) -> Reply:
    number = request.sequence_num.number if request.sequence_num else None
    return Reply(request.group_id, number, number, fault)


def _heard(found: Inspection, match: Match, reply: Reply, *, in_request: bool) -> Heard:
    """What a reply says about its message, and why it is not believed, if so."""
    meaning, fault = REPLIES[reply.fault], reply.fault
    wrong = tuple(rm_problems(found, match, faulty=fault is not None and not in_request))
    wrong += tuple(way_problems(match, in_request=in_request))
    if fault is None:
        return Heard("acknowledgment", _KIND, wrong, meaning)
    error = Reported(ESCALATED[fault], "failure", fault.value)
    return Heard("fault", "error", wrong, meaning, (error,))


async def hear_reply(
    context: Context, capture: Capture, match: Match, sent: SentMessage
) -> Hearing:
    """Judge the response to a message: its acknowledgment or fault, and what else it says."""
    look = Look(capture, context.in_force.lens(context.clock(), context.store.new_sink))
    if await context.read(look):
        await context.judge((look, context.in_force.answer_terms(match)))
    found = look.found
    hearing = judged(found, capture, match, sent, on_response=True)
    group = group_of(sent.user_message.message_info.message_id)
    replies = found.wsr.response if found.wsr is not None else ()
    said = tuple(
        _heard(found, match, one, in_request=False) for one in replies if one.group_id == group
    )
    return changed(hearing, heard=(*hearing.heard, *said))
