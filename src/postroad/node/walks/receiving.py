"""The walk in: receive, check, store, and only then answer.

`Receiver.receive` reads from top to bottom: the body is read as it comes, looked at, held against
its P-Mode, and committed together with its receipt. Whatever is wrong is answered by an ebMS error
and leaves an event in the journal.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from lxml import etree
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import (
    error,
    write_answer,
)
from postroad.msh.capture import Capture, Incoming
from postroad.msh.ebxml_faults import client_fault, fault
from postroad.msh.inspection import Kind, Look
from postroad.msh.lens import Inspection
from postroad.msh.pulling import riding_on
from postroad.node.base.context import ON_LOOP, Context
from postroad.node.base.feeding import Feeder
from postroad.node.base.requests import NO_CONTENT, Request, Response
from postroad.node.base.together import Together
from postroad.node.ebxml.receiving import EbxmlReceiver
from postroad.node.hub.collecting import Collecting
from postroad.node.hub.forwarding import Body, Forwarding, Recording, body_of
from postroad.node.hub.streaming import Streaming
from postroad.node.steps.answering import written
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.calling import Riding
from postroad.node.steps.noting import note
from postroad.node.walks.accepting import Accepting
from postroad.node.walks.listening import listen
from postroad.node.walks.offering import Offering, Withheld, nothing
from postroad.node.walks.replying import Replying
from postroad.node.walks.wsrm_offering import SequencedOffering, by_sequence, sequence_in
from postroad.node.wsrm.serving import SequenceRequests
from postroad.store.interface import StoreBusy, StoreError, StoreFull
from postroad.store.records import Side, State
from postroad.transport.http_body import Abandoned, TooLarge, Truncated
from postroad.wire.ebms3 import GZIP, SignalMessage, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion, UnknownEnvelope
from postroad.wire.soap_faults import Fault, read_fault, version_mismatch_fault
from postroad.wire.xml import mentions

_IN_ONE_PIECE: Final = 512 * 1024
"""Bodies up to this size are cut when all of it came."""
_TOGETHER: Final = 64 * 1024
"""Bodies up to this size are cut, read and judged without a pause in between."""
_MAY_GROW: Final = 16 * 1024
"""Bytes of payloads that could become a hundred milliseconds' worth by decompression."""
_UNKNOWN: Final = datetime.min.replace(tzinfo=UTC)
_NOT_TAKEN: Final = 503
"""The status that says that a message was certainly not taken."""
_log = logging.getLogger("postroad.receive")


class _Coming:
    """A request on its way through the first steps, which are done for many at once."""

    __slots__ = (
        "at",
        "body",
        "capture",
        "judged",
        "kind",
        "look",
        "readable",
        "request",
        "size",
        "whole",
    )

    def __init__(self, request: Request, body: bytes, size: int) -> None:
        self.request = request
        self.body = body
        self.size = size
        self.whole: Body | None = None
        """The body as it came, where it may be for others."""
        self.capture: Capture | None = None
        self.look: Look | None = None
        self.at = _UNKNOWN
        """When it was looked at."""
        self.readable: bool | None = None
        """None: nobody has read it yet."""
        self.kind: Kind | None = None
        self.judged = False


class _Large:
    """A body that is cut as it comes, and kept whole where it may be for others."""

    def __init__(self, incoming: Incoming, recording: Recording | None) -> None:
        self._incoming = incoming
        self._recording = recording

    def take(self, piece: bytes) -> None:
        self._incoming.feed(piece)
        if self._recording is not None:
            self._recording.write(piece)

    def close(self) -> tuple[Capture, Body | None]:
        whole = self._recording
        return self._incoming.close(), None if whole is None else whole.finish()

    def abort(self) -> None:
        self._incoming.abort()
        if self._recording is not None:
            self._recording.discard()


class Receiver:
    """The protocol endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._accepting = Accepting(context)
        self.destinations = self._accepting.destinations
        self.reliable = SequenceRequests(context, self.destinations)
        self.ebxml = EbxmlReceiver(context)
        self.offering = Offering(context)
        self._sequenced = SequencedOffering(context, self.offering, self.reliable)
        self._replying = Replying(context, self.offering)
        self._forwarding = Forwarding(context)
        self._collecting = Collecting(context)
        self.streaming: Streaming | None = None
        self._feeder = Feeder()
        self._cut: Together[_Coming, None] = Together(self._capture)
        self._walk: Together[_Coming, None] = Together(self._judge, self._capture, self._look_at)

    async def receive(self, request: Request) -> Response:
        """Take one message in; the response is sent when everything is durable."""
        learn = self._context.learn_client
        if learn is not None and request.client_certificate is not None:
            await learn(request.client_certificate)
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
            coming = await self._read(request)
        except Abandoned:
            # Nothing was done, so there is nothing to record.
            raise
        except Truncated as cut:
            await note(
                self._context, "EBMS:0007", f"the body was cut short: {cut}", now, request.peer
            )
            raise
        except TooLarge as large:
            return await self._unreadable(
                EbmsError("EBMS:0007", str(large), location="HTTP"), now, request, 413
            )
        except EbmsError as wrong:
            status = 415 if wrong.location == "HTTP" and wrong.code == "EBMS:0007" else 400
            return await self._unreadable(wrong, now, request, status)
        capture, look, size, body = coming.capture, coming.look, coming.size, coming.whole
        assert capture is not None
        if look is None:
            now = self._context.clock()
            if body is not None and request.found is None:
                request = changed(request, found=self._forwarding.found(capture))
            lens = self._context.in_force.lens(now, self._context.store.new_sink)
            look = Look(capture, lens, _parsed(request, size))
        else:
            now = coming.at
        request.check_connected()
        try:
            if body is not None:
                passed_on = await self._forwarding.take(capture, body, request)
                if passed_on is not None:
                    return passed_on
                coming.whole = body = None
            return await self._look(look, coming, request, now)
        except StoreError as full:
            # What a traceback holds on to, the parts of the message too, would outlive it.
            return await self._not_stored(look, full.with_traceback(None), now, request)

    async def _read(self, request: Request) -> "_Coming":
        """The body cut into its parts as it comes, and kept whole where it may be for others."""
        large: _Large | None = None
        may_pass = self._forwarding.is_on
        size = 0
        pieces: list[bytes] = []
        unfinished = self._context.unfinished.begin(request.peer, request.client_certificate)
        try:
            async for chunk in request.body:
                size += len(chunk)
                unfinished.add(len(chunk))
                if size <= _IN_ONE_PIECE:
                    # Most messages are cut quickest in one piece, together with others.
                    pieces.append(chunk)
                    continue
                if large is None:
                    incoming = self._incoming(request.content_type)
                    sink = self._context.store.new_sink() if may_pass else None
                    large = _Large(incoming, None if sink is None else Recording(sink))
                    for piece in pieces:
                        large.take(piece)
                    pieces.clear()
                await self._feeder.feed(large.take, chunk)
        except BaseException:
            if large is not None:
                large.abort()
            raise
        finally:
            unfinished.end()
        small = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        coming = _Coming(request, small, size)
        if large is not None:
            coming.capture, coming.whole = large.close()
        elif may_pass or size > _TOGETHER:
            coming.whole = body_of(small) if may_pass else None
            await self._cut(coming)
        else:
            await self._walk(coming)
        return coming

    def _incoming(self, content_type: str | None) -> Incoming:
        context = self._context
        return Incoming(content_type, new_sink=context.store.new_sink, limits=context.limits)

    def _capture(self, coming: "_Coming") -> None:
        """A body that came whole, cut into its parts."""
        coming.request.check_connected()
        incoming = self._incoming(coming.request.content_type)
        try:
            incoming.feed(coming.body)
        except BaseException:
            incoming.abort()
            raise
        coming.capture = incoming.close()
        coming.body = b""

    def _look_at(self, coming: "_Coming") -> None:
        """What a message says of itself, where nobody else is to see it first."""
        assert coming.capture is not None
        coming.at = self._context.clock()
        lens = self._context.in_force.lens(coming.at, self._context.store.new_sink)
        coming.look = Look(coming.capture, lens)
        coming.readable = coming.look.read()

    def _judge(self, coming: "_Coming") -> None:
        """Whether it is to be believed, where that is quickly told of a user message."""
        look = coming.look
        assert look is not None
        assert coming.capture is not None
        if self._context.learn is not None:
            # That may take its time: it is judged once its certificates are looked up.
            return
        if coming.readable and look.has_user_message and not _may_grow(coming.capture):
            look.judge(look.terms())
            coming.kind, coming.judged = Kind.MESSAGE, True

    async def _look(
        self, look: Look, coming: "_Coming", request: Request, now: datetime
    ) -> Response:
        """Look at a message, if nobody has, and give it to who takes its kind."""
        readable = coming.readable
        if coming.size > ON_LOOP:
            # Digests and decryption take their time, so elsewhere.
            readable = await asyncio.to_thread(_looked, look, self._learning(), request)
            coming.judged = True
        elif readable is None:
            readable = await self._context.read(look)
        elif readable and self._context.learn is not None:
            await self._context.learn(look)
        if not readable:
            return await self._unreadable(look.found.problems[0], now, request, 400)
        assert coming.capture is not None
        found, capture, size = look.found, coming.capture, coming.size
        kind = coming.kind or look.kind
        if kind is Kind.EBXML:
            judged = coming.judged
            return await self.ebxml.receive(look, capture, request, size, now, judged=judged)
        if request.speaks_ebxml and found.messaging is None:
            return await self._headless(found, now, request)
        if kind is Kind.SEQUENCES:
            return await self.reliable.receive(look, request.peer, request.client_certificate, now)
        if kind is Kind.RELIABILITY:
            return await self._accepting.reliably.receive(look, request.peer, now)
        if kind is Kind.SIGNALS:
            return await self._signals(look, capture, request, now)
        if not coming.judged:
            request.check_connected()
            if _may_grow(capture):
                await asyncio.to_thread(_judged, look, request)
            else:
                await self._context.judge((look, look.terms()))
        # The receipt is still to be signed.
        request.check_connected()
        return await self._accepting.take(
            Arrival(found, capture, request.peer, size, now, request.client_certificate)
        )

    async def read_pulled(self, capture: Capture, size: int) -> Look:
        """What a partner answered to a PullRequest, looked at as if it had been pushed."""
        now = self._context.clock()
        look = Look(capture, self._context.in_force.lens(now, self._context.store.new_sink))
        if size <= ON_LOOP and not _may_grow(capture):
            if await self._context.read(look) and look.kind is Kind.MESSAGE:
                await self._context.judge((look, look.terms()))
        else:
            await asyncio.to_thread(_looked, look, self._learning())
        return look

    def _learning(self) -> Callable[[Look], None] | None:
        """For another thread: have the loop learn about the certificates of a message."""
        learn, loop = self._context.learn, asyncio.get_running_loop()
        if learn is None:
            return None

        async def learned(look: Look) -> None:
            await learn(look)

        return lambda look: asyncio.run_coroutine_threadsafe(learned(look), loop).result()

    async def keep_pulled(
        self,
        look: Look,
        capture: Capture,
        size: int,
        match: Match,
        peer: str,
        ride: Callable[[Riding], None] | None = None,
    ) -> tuple[str, ...]:
        """Take a pulled message over, or refuse it: its id, or those of a bundle's units.

        Receipts and errors call back; `ride` takes along what need not call back.
        """
        found, now = look.found, self._context.clock()
        assert found.messaging is not None
        await self._accepting.take(
            Arrival(found, capture, peer, size, now, pulled=match, ride=ride)
        )
        return tuple(one.message_info.message_id for one in found.messaging.user_messages)

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
        await self._accepting.take(arrival)
        name = found.messaging.user_messages[0].message_info.message_id
        known = await self._context.store.look(
            lambda reader: reader.messages_of_id(Side.RECEIVING, name)
        )
        taken = [one for one in known if one.state is not State.REJECTED]
        return found, any(
            (one.pmode, one.ref_to_message_id) == (match.pmode.id, request) for one in taken
        )

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
            await note(self._context, given.problems[0].code, given.why, now, request.peer)
        ref = signal.message_info.message_id or None
        said = error(given.problems, signal_id=self._context.new_id(now), ref=ref, now=now)
        arrival = Arrival(look.found, capture, request.peer, 0, now)
        answer = written(self._context, arrival, said, given.match, given.acks)
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
        may = by_sequence(look.found, self.offering.judge(look, signal, request, now))
        if isinstance(may, Withheld):
            return may
        if sequence_in(look.found) is None:
            answering = self.offering.answer(signal, may, request.peer, now)
        else:
            answering = self._sequenced.answer(look, capture, signal, may, request.peer, now)
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
        pulled: bool = False,
    ) -> str | None:
        """Signals that come by themselves or were pulled; the message of ours they are about."""
        signals = look.found.messaging.signals if look.found.messaging is not None else ()
        refs = [one.message_info.ref_to_message_id for one in signals] if ref is None else [ref]
        return await listen(
            self._context,
            look,
            capture,
            refs,
            peer,
            now,
            judged_already=judged_already,
            pulled=pulled,
        )

    async def _unreadable(
        self, wrong: EbmsError, now: datetime, request: Request, status: int
    ) -> Response:
        """What is no ebMS message is answered by an error about no message."""
        await note(self._context, wrong.code, wrong.detail, now, request.peer)
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
            await note(self._context, "Unknown", f"a SOAP Fault: {came.reason}", now, request.peer)
            return NO_CONTENT
        said = "there is no ebXML MessageHeader in a SOAP 1.1 Header"
        newer = found.envelope is not None and found.envelope.version is SoapVersion.SOAP_12
        kind = UnknownEnvelope if newer else EbmsError
        wrong = kind("OtherXml", said, location="/SOAP-ENV:Envelope/SOAP-ENV:Header")
        await note(self._context, wrong.code, wrong.detail, now, request.peer)
        return _fault([wrong, *found.problems])

    async def note(self, code: str, detail: str, peer: str | None) -> None:
        """Write down what was refused before it could be a message."""
        await note(self._context, code, detail, self._context.clock(), peer)

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
        if status == _NOT_TAKEN and await self._may_be_stored(messages):
            # What failed came after the commit, or is about a copy.
            status, problem = not_stored(StoreError(str(why)), ref)
        if look.found.is_ebxml or not request.synchronous:
            said = fault(Fault(SoapVersion.SOAP_11.receiver, problem.detail))
            return Response(status, "text/xml; charset=UTF-8", said, come_again=True)
        signal = error([problem], signal_id=self._context.new_id(now), ref=ref, now=now)
        answer = write_answer(signal, _spoken(request.content_type), None, now)
        return Response(status, answer.content_type, answer.envelope)

    async def _may_be_stored(self, messages: Sequence[UserMessage]) -> bool:
        ids = [one.message_info.message_id for one in messages]
        sides = (Side.RECEIVING, Side.FORWARDING)
        try:
            return await self._context.store.look(
                lambda reader: any(
                    reader.messages_of_id(side, one) for side in sides for one in ids
                )
            )
        except StoreError:
            return True


def _parsed(request: Request, size: int) -> etree._Element | None:
    """The envelope, where it was read for the rules; a large one is looked at in another thread."""
    envelope = request.found.envelope if request.found is not None else None
    return envelope.root if envelope is not None and size <= ON_LOOP else None


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


def _may_grow(capture: Capture) -> bool:
    """Whether opening the payloads could take long, however small they came.

    Which of them are compressed is known for sure only after decryption.
    """
    if sum([one.content.size for one in capture.attachments]) <= _MAY_GROW:
        return False
    envelope = capture.envelope
    # An entity could hide the name; what is encrypted has its type in the header all the same.
    named = mentions(envelope, b"gzip") or b"&" in envelope
    return named or any(one.content_type.media_type == GZIP for one in capture.attachments)


def _spoken(content_type: str | None) -> SoapVersion:
    """The SOAP version of a request that nobody could read: that of its media type."""
    kind = (content_type or "").lower()
    return SoapVersion.SOAP_11 if "text/xml" in kind else SoapVersion.SOAP_12


def _judged(look: Look, request: Request) -> None:
    """For another thread, for which the message may have waited."""
    request.check_connected()
    look.judge(look.terms())


def _looked(
    look: Look, learn: Callable[[Look], None] | None, request: Request | None = None
) -> bool:
    """Read and judge in one go: a tree is best used in the thread that read it."""
    if request is not None:
        request.check_connected()
    readable = look.read()
    if readable and learn is not None:
        learn(look)
    if readable and look.kind in (Kind.MESSAGE, Kind.EBXML):
        look.judge(look.terms())
    return readable
