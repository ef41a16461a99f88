"""Sending: claimed work becomes an HTTP request, and its answer a new state.

What is claimed here is sent with the bytes that were kept. Its outcome, the answer's bytes and the
journal's events are committed together.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.msh.answers import SentMessage, receipt_is_response, sent_message, wants_receipt
from postroad.msh.capture import Capture, Incoming
from postroad.msh.outbound import Package, WireForm, WirePart, wire_form
from postroad.node.context import Context
from postroad.node.hearing import Hearing, hear, settle, told_by
from postroad.node.in_force import Sending
from postroad.node.journaling import about
from postroad.node.notifying import notification
from postroad.node.service import Refused
from postroad.node.together import Together
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Event, Message, Side, State, Work
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Body, Pieces, Reply, Timeouts, TransportFailure
from postroad.transport.http_outgoing import Outgoing as Request
from postroad.wire.content import Content, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion

LEASE: Final = timedelta(minutes=15)
_AFTER_TROUBLE: Final = timedelta(minutes=1)
IN_ONE_PIECE: Final = 256 * 1024
_SEALED_TYPE: Final = "application/octet-stream"
VERSIONS: Final = {version.number: version for version in SoapVersion}
_log = logging.getLogger("postroad.send")


class Outgoing(Struct, frozen=True):
    """A message that this process has claimed, with what is known of it."""

    message: Message
    work: Work
    sent: SentMessage | None = None
    made: Package | None = None
    """While it is still in memory."""


class Outcome(Struct, frozen=True):
    """What became of an attempt."""

    event: str
    """sent, resent or send_failed"""
    state: State
    hearing: Hearing | None = None
    error_code: str | None = None
    detail: str | None = None
    closing: str | None = None
    """The event that ends the message: delivery_failed or in_doubt."""
    peer: str | None = None
    wire_bytes: int = 0


class Sender:
    """Sends what is ready, so many at a time."""

    def __init__(self, context: Context, client: HttpClient) -> None:
        self._context = context
        self._client = client
        self._parallel = context.config.send.parallel
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._prepare: Together[tuple[Outgoing, Sending], tuple[Request, int]] = Together(
            lambda given: self._request(*given)
        )
        self._waiting: deque[Outgoing] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_the_wire = 0
        self._open = False

    def start(self) -> None:
        self._open = True

    async def stop(self) -> None:
        """Finish what is being sent; what was not begun stays for the next start."""
        self._open = False
        if self._tasks:
            await asyncio.wait(self._tasks)

    def has_room(self) -> bool:
        return self._open and len(self._waiting) < 4 * self._parallel

    def room(self) -> int:
        """How many more messages could be taken now."""
        return max(0, 2 * self._parallel - len(self._waiting)) if self._open else 0

    def claimed(self, work: Work, now: datetime) -> Work:
        """The work as this process has it."""
        return changed(work, owner=self._context.owner, lease_until=now + LEASE)

    def take(self, outgoing: Outgoing) -> None:
        """Send it as soon as there is a place on the wire."""
        self._waiting.append(outgoing)
        self._next()

    def _next(self) -> None:
        while self._open and self._waiting and self._on_the_wire < self._parallel:
            self._on_the_wire += 1
            task = asyncio.create_task(self._send(self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, outgoing: Outgoing) -> None:
        """One message: the place on the wire is free again before the outcome is durable."""
        began = self._context.clock()
        try:
            try:
                outcome = await self._outcome(outgoing)
            finally:
                self._on_the_wire -= 1
                self._next()
            await self._settle(outgoing, outcome, began)
        except StoreError as error:
            _log.error(
                "not recorded, it will be sent again",
                extra={"message_id": outgoing.message.message_id, "detail": str(error)},
            )
            self._context.let_go.add(outgoing.work.id)
        except Exception:
            _log.exception("sending failed", extra={"message_id": outgoing.message.message_id})
            await self._later(outgoing.work)

    async def _later(self, work: Work) -> None:
        """Something went wrong that should not: the message stays, and is tried again."""
        due = self._context.clock() + _AFTER_TROUBLE
        try:
            await self._context.store.run(lambda tx: tx.postpone_work(work.id, due))
        except StoreError:
            self._context.let_go.add(work.id)

    async def _outcome(self, outgoing: Outgoing) -> Outcome | None:
        """One attempt, from the bytes that were kept to what comes back; None if none is due."""
        message = outgoing.message
        if message.state is not State.READY:
            return None
        try:
            sending = self._context.in_force.sending(message.pmode or "")
        except Refused as refused:
            return _never(refused.detail, message.peer)
        request, length = await self._prepare((outgoing, sending))
        outcome = await self._attempt(outgoing, sending, request)
        return changed(outcome, peer=sending.address, wire_bytes=length)

    async def _settle(self, outgoing: Outgoing, outcome: Outcome | None, began: datetime) -> None:
        """Make the outcome durable, and tell those who wait for it."""
        context, message = self._context, outgoing.message
        if outcome is None:
            await context.store.run(lambda tx: tx.finish_work(outgoing.work.id))
            return
        await context.store.run(self._record(outgoing, outcome, began))
        context.count("send_attempts", outcome=outcome.state.value)
        context.settled.tell(message.message_id)
        context.told()
        _log.info(
            outcome.state.value,
            extra={
                "message_id": message.message_id,
                "peer": outcome.peer,
                "detail": outcome.detail,
            },
        )

    def _form(self, outgoing: Outgoing) -> WireForm:
        message, store = outgoing.message, self._context.store
        assert message.envelope is not None
        contents: list[Content]
        if outgoing.made is not None:
            envelope = outgoing.made.envelope
            contents = [part.content for part in outgoing.made.parts]
        else:
            envelope = read_all(store.content(message.envelope), message.envelope.size)
            contents = [store.content(part.stored) for part in message.parts]
        sealed = message.seal is not None
        if message.seal is not None:
            contents = list(message.seal.on(contents))
        parts = [
            WirePart(
                part.content_id or "",
                _SEALED_TYPE if sealed else part.wire_type,
                content,
                part.file_name,
            )
            for part, content in zip(message.parts, contents, strict=True)
        ]
        return wire_form(VERSIONS[message.soap], envelope, parts, message.boundary)

    def _request(self, outgoing: Outgoing, sending: Sending) -> tuple[Request, int]:
        """What is posted, and how many bytes of it."""
        form = self._form(outgoing)
        request = Request(
            sending.address,
            form.content_type,
            _body(form),
            _headers(form),
            sending.tls,
            self._timeouts,
            reply_bytes=self._context.limits.envelope_bytes,
        )
        return request, form.length

    async def _attempt(self, outgoing: Outgoing, sending: Sending, request: Request) -> Outcome:
        attempt = outgoing.message.attempts + 1
        name = "sent" if attempt == 1 else "resent"
        try:
            reply = await self._client.post(request)
        except TransportFailure as failure:
            if not failure.transmitted:
                return _never(failure.reason)
            return Outcome(name, State.IN_DOUBT, detail=failure.reason, closing="in_doubt")
        return await self._answered(outgoing, sending, name, reply)

    async def _answered(
        self, outgoing: Outgoing, sending: Sending, name: str, reply: Reply
    ) -> Outcome:
        """What the partner's reply makes of the message."""
        if reply.body and _is_soap(reply.content_type):
            return _spoken(name, await self._hear(outgoing, sending, reply), reply.status)
        if reply.status >= 400:
            said = f"the partner answered HTTP {reply.status}"
            told = reply.status < 500
            return Outcome(
                name,
                State.FAILED if told else State.IN_DOUBT,
                detail=said,
                closing="delivery_failed" if told else "in_doubt",
            )
        leg = sending.match.leg
        if not wants_receipt(leg):
            return Outcome(name, State.SENT)
        if not receipt_is_response(leg):
            return Outcome(name, State.WAITING)
        said = f"the partner answered HTTP {reply.status} without a receipt"
        return Outcome(name, State.IN_DOUBT, None, "EBMS:0301", said, "in_doubt")

    async def _hear(self, outgoing: Outgoing, sending: Sending, reply: Reply) -> Hearing:
        context = self._context
        try:
            capture = _captured(reply, context)
            return await hear(
                context,
                capture,
                sending.match,
                self._sent(outgoing),
                context.clock(),
                on_response=True,
            )
        except EbmsError as error:
            return Hearing(b"", "", (), (error,))

    def _sent(self, outgoing: Outgoing) -> SentMessage:
        if outgoing.sent is not None:
            return outgoing.sent
        stored = outgoing.message.envelope
        assert stored is not None
        envelope = read_all(self._context.store.content(stored), stored.size)
        return sent_message(envelope, self._context.limits)

    def _record(
        self, outgoing: Outgoing, outcome: Outcome, began: datetime
    ) -> Callable[[Transaction], None]:
        context, message, peer = self._context, outgoing.message, outcome.peer
        attempt = message.attempts + 1
        left = outcome.event != "send_failed"
        now = context.clock()
        events: list[Event] = [
            about(
                message,
                outcome.event,
                began,
                attempt=attempt,
                peer=peer,
                envelope=message.message_id if left else None,
                wire_bytes=outcome.wire_bytes if left else None,
                detail=None if left else outcome.detail,
            )
        ]
        closing = (
            [
                about(
                    message,
                    outcome.closing,
                    now,
                    error_code=outcome.error_code,
                    severity="failure",
                    detail=outcome.detail,
                    peer=peer,
                )
            ]
            if outcome.closing
            else []
        )

        def step(tx: Transaction) -> None:
            tx.record(events)
            state: State | None = None
            tried = {"attempts": attempt, "wire_bytes": outcome.wire_bytes}
            if outcome.hearing is not None and outcome.hearing.heard:
                state = settle(tx, message, outcome.hearing, now, peer, **tried)
            if state is None and tx.change_message(
                Side.SENDING,
                message.message_id,
                (State.READY,),
                state=outcome.state,
                error_code=outcome.error_code,
                detail=outcome.detail,
                updated_at=now,
                **tried,
            ):
                # Else a receipt came by another way meanwhile, and the message is at rest.
                state = outcome.state
                tx.record(closing)
            tx.finish_work(outgoing.work.id)
            for work in notification(context, message, state, now) if state else ():
                tx.add_work(work)

        return step


def _never(detail: str, peer: str | None = None) -> Outcome:
    """Not a byte left: the message has failed, and that is certain."""
    closing = "delivery_failed"
    return Outcome("send_failed", State.FAILED, None, "EBMS:0005", detail, closing, peer)


def _spoken(name: str, hearing: Hearing, status: int) -> Outcome:
    """The partner answered in SOAP: with a receipt, with errors, or with something else."""
    for one in hearing.heard:
        if not one.problems and one.kind == "receipt":
            return Outcome(name, State.ACKNOWLEDGED, hearing)
    for one in hearing.heard:
        if not one.problems and one.failure is not None:
            said = told_by(one.failure)
            return Outcome(name, State.FAILED, hearing, one.failure.error_code, said)
    wrong = next((p for one in hearing.heard for p in one.problems), None)
    wrong = wrong or next(iter(hearing.problems), None)
    if wrong is not None:
        return Outcome(name, State.IN_DOUBT, hearing, wrong.code, wrong.detail, "in_doubt")
    if hearing.fault is not None:
        said = f"the partner answered with a SOAP fault: {hearing.fault}"
        return Outcome(name, State.FAILED, hearing, None, said, "delivery_failed")
    said = f"the partner's answer (HTTP {status}) says nothing about this message"
    return Outcome(name, State.IN_DOUBT, hearing, "EBMS:0301", said, "in_doubt")


def _captured(reply: Reply, context: Context) -> Capture:
    incoming = Incoming(reply.content_type, new_sink=context.store.new_sink, limits=context.limits)
    incoming.feed(reply.body)
    return incoming.close()


def _body(form: WireForm) -> Body:
    length = form.length
    if length <= IN_ONE_PIECE:
        return b"".join(form.pieces())
    return Pieces(length, form.pieces)


def _headers(form: WireForm) -> tuple[tuple[str, str], ...]:
    """SOAP 1.1 asks for a SOAPAction, even an empty one."""
    return (("SOAPAction", '""'),) if form.media_type == "text/xml" else ()


def _is_soap(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind in ("application/soap+xml", "text/xml", "multipart/related")
