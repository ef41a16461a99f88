"""Sending: claimed work becomes an HTTP request, and its answer an outcome.

What is claimed here is sent with the bytes that were kept, the first time and every time after.
What follows from the outcome is decided and committed in `node.outcome`.
"""

import asyncio
import contextlib
import logging
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy, wait_after
from postroad.msh.answers import SentMessage, receipt_is_response, sent_message, wants_receipt
from postroad.msh.capture import Capture, Incoming
from postroad.msh.outbound import Package, WireForm, WirePart, wire_form
from postroad.node.context import Context
from postroad.node.hearing import Hearing, hear
from postroad.node.in_force import Sending
from postroad.node.outcome import Outcome, Step, attempt, due, give_up
from postroad.node.service import Refused
from postroad.node.together import Together
from postroad.node.turns import Turns
from postroad.reliability.awareness import (
    ANSWERS,
    MISSING_RECEIPT,
    Answer,
    fault_said,
    status_said,
)
from postroad.reliability.delivery import Input
from postroad.reliability.schedule import ends_at
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, State, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Body, Pieces, Reply, Timeouts, TransportFailure
from postroad.transport.http_outgoing import Outgoing as Request
from postroad.wire.content import Content, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion

_LEAST_WAIT: Final = 1.0
"""Seconds for an answer, however quickly a message is to be sent again."""
IN_ONE_PIECE: Final = 256 * 1024
_SEALED_TYPE: Final = "application/octet-stream"
_SENDABLE: Final = (State.READY, State.WAITING, State.SUSPENDED)
VERSIONS: Final = {version.number: version for version in SoapVersion}
_log = logging.getLogger("postroad.send")


class Outgoing(Struct, frozen=True):
    """A message that this process has claimed, with what is known of it."""

    message: Message
    work: Work
    sent: SentMessage | None = None
    made: Package | None = None
    """While it is still in memory."""
    probes: bool = False
    """It goes out to a partner who is paused, to see whether it can be reached again."""


class Sender:
    """Sends what is ready, so many at a time."""

    def __init__(self, context: Context, client: Client) -> None:
        self._context = context
        self._client = client
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._prepare: Together[tuple[Outgoing, Sending], tuple[Request, int]] = Together(
            lambda given: self._request(*given)
        )
        self._turns: Turns[Outgoing] = Turns(context.config.send.parallel)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = False

    def start(self) -> None:
        self._open = True

    async def stop(self) -> None:
        """Finish what is being sent; what was not begun stays for the next start."""
        self._open = False
        if self._tasks:
            await asyncio.wait(self._tasks)

    def has_room(self, partner: str) -> bool:
        return self._open and self._turns.has_room(partner)

    def room(self) -> int:
        """How many more messages could be taken now."""
        return self._turns.room() if self._open else 0

    def full(self) -> tuple[str, ...]:
        """Partners for whom no more is to be fetched now."""
        return self._turns.full()

    def claimed(self, work: Work, now: datetime) -> Work:
        """The work as this process has it."""
        return changed(work, owner=self._context.owner, lease_until=now + self._context.lease)

    def take(self, outgoing: Outgoing) -> None:
        """Send it as soon as there is a place on the wire."""
        self._context.in_hand.add(outgoing.work.id)
        partner = outgoing.message.to_party or ""
        self._turns.add(partner, outgoing)
        self._begin(partner)

    def _begin(self, partner: str) -> None:
        while self._open and (outgoing := self._turns.next(partner)) is not None:
            task = asyncio.create_task(self._send(outgoing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _end(self, partner: str) -> None:
        """A place is free: for the same partner, or whoever waits for one."""
        self._turns.done(partner)
        self._begin(partner)
        for other in self._turns.ready():
            self._begin(other)

    async def _send(self, outgoing: Outgoing) -> None:
        """One message: the place on the wire is free again before the outcome is durable."""
        try:
            try:
                step = await self._step(outgoing)
            except StoreError:
                raise
            except Exception:
                _log.exception("sending failed", extra={"message_id": outgoing.message.message_id})
                step = self._unexpected(outgoing)
            finally:
                self._end(outgoing.message.to_party or "")
            await self._settle(outgoing, step)
        except StoreError as error:
            _log.error(
                "not recorded, it will be sent again",
                extra={"message_id": outgoing.message.message_id, "detail": str(error)},
            )
            self._context.let_go[outgoing.work.id] = True
        finally:
            self._context.in_hand.discard(outgoing.work.id)

    def _unexpected(self, outgoing: Outgoing) -> Step:
        """Something went wrong that should not: an attempt like others, and it may have left."""
        context, message = self._context, outgoing.message
        said = "sending it failed unexpectedly; the log tells how"
        outcome = Outcome(Input.UNANSWERED, None, "EBMS:0004", said, message.peer)
        sending = None
        with contextlib.suppress(Refused):
            sending = context.in_force.sending(message.pmode or "")
        return attempt(context, message, outgoing.work, sending, outcome, context.clock(), False)

    async def _step(self, outgoing: Outgoing) -> Step:
        """What is to be committed: after an attempt, or because none is due."""
        context, message, work = self._context, outgoing.message, outgoing.work
        began = context.clock()
        if message.state not in _SENDABLE:
            return _none_due(work)
        try:
            sending = context.in_force.sending(message.pmode or "")
        except Refused as refused:
            never = _never(refused.detail, message.peer, reached=True)
            return attempt(context, message, work, None, never, began, hope=False)
        given_up = due(message, sending.policy, began)
        if given_up is not None:
            return give_up(context, message, work, given_up, began)
        if work.expires_at is not None and work.expires_at <= began:
            return _other_end(work, message, sending.policy, began)
        if context.is_paused(message.to_party or "") and not outgoing.probes:
            if not sending.policy.fail_fast:
                return _not_now(work, began)
            never = _never(f"{message.to_party} cannot be reached", sending.address, reached=True)
            return attempt(context, message, work, sending, never, began, hope=False)
        try:
            request, length = await self._prepare((outgoing, sending))
        except StoreError as lost:
            never = _never(f"it cannot be read: {lost}", sending.address, reached=True)
            return attempt(context, message, work, sending, never, began, hope=False)
        outcome = await self._attempt(outgoing, sending, request)
        outcome = changed(outcome, peer=sending.address, wire_bytes=length)
        hope = wants_receipt(sending.match.leg) and not receipt_is_response(sending.match.leg)
        return attempt(context, message, work, sending, outcome, began, hope, outgoing.probes)

    async def _settle(self, outgoing: Outgoing, step: Step) -> None:
        """Make the outcome durable, and tell those who wait for it."""
        context, message = self._context, outgoing.message
        done = await context.store.run(step)
        if done is None:
            return
        if done.partners_changed:
            await context.look_at_partners()
            context.work_came.set()
        if outgoing.work.lane is not None or done.state in _SENDABLE:
            # Somebody has to look when it, or what follows it, is due.
            context.work_came.set()
        context.count("send_attempts", outcome=done.state.value)
        context.settled.tell(message.message_id)
        context.told()
        _log.info(
            done.state.value,
            extra={"message_id": message.message_id, "peer": done.peer, "detail": done.detail},
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
            self._patience(outgoing.message, sending.policy),
            reply_bytes=self._context.limits.envelope_bytes,
        )
        return request, form.length

    def _patience(self, message: Message, policy: Policy) -> Timeouts:
        """How long an answer is waited for: not longer than until the next retry."""
        if policy.retries == 0:
            return self._timeouts
        wait = wait_after(policy, message.tries + 1).total_seconds()
        return changed(self._timeouts, answer=min(self._timeouts.answer, max(wait, _LEAST_WAIT)))

    async def _attempt(self, outgoing: Outgoing, sending: Sending, request: Request) -> Outcome:
        try:
            reply = await self._client.post(request)
        except TransportFailure as failure:
            if not failure.transmitted:
                return _never(failure.reason)
            return Outcome(Input.UNANSWERED, detail=failure.reason, reached=False)
        return await self._answered(outgoing, sending, reply)

    async def _answered(self, outgoing: Outgoing, sending: Sending, reply: Reply) -> Outcome:
        """What the partner's reply makes of the message."""
        trouble = reply.status >= 500
        if reply.body and _is_soap(reply.content_type):
            outcome = _spoken(await self._hear(outgoing, sending, reply), reply.status)
            return changed(outcome, reached=not trouble)
        answer = status_said(reply.status)
        if answer is not Answer.NOTHING:
            said = f"the partner answered HTTP {reply.status}"
            return Outcome(ANSWERS[answer], detail=said, reached=not trouble)
        leg = sending.match.leg
        if not wants_receipt(leg):
            return Outcome(Input.LEFT)
        if not receipt_is_response(leg):
            return Outcome(Input.UNANSWERED)
        said = f"the partner answered HTTP {reply.status} without a receipt"
        return Outcome(Input.UNANSWERED, None, MISSING_RECEIPT, said)

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


def _none_due(work: Work) -> Step:
    """The message came to rest by another way."""

    def step(tx: Transaction) -> None:
        tx.finish_work(work.id, work.owner)

    return step


def _not_now(work: Work, now: datetime) -> Step:
    """The partner is paused: the message keeps its place, and no retry is used up."""

    def step(tx: Transaction) -> None:
        tx.postpone_work(work.id, now, owner=work.owner)

    return step


def _other_end(work: Work, message: Message, policy: Policy, now: datetime) -> Step:
    """It was to end now, and the P-Mode says otherwise by now: it goes back to where it stood."""
    end = ends_at(policy, message.created_at, message.first_sent_at)

    def step(tx: Transaction) -> None:
        tx.expire_work(work.id, end)
        tx.postpone_work(work.id, now, owner=work.owner)

    return step


def _never(detail: str, peer: str | None = None, *, reached: bool = False) -> Outcome:
    """Not a byte left."""
    return Outcome(Input.NOT_SENT, None, "EBMS:0005", detail, peer, reached=reached)


def _spoken(hearing: Hearing, status: int) -> Outcome:
    """The partner answered in SOAP: with a receipt, with errors, or with something else."""
    said = hearing.said
    if said is not None and said.answer is Answer.ERROR and status >= 500:
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
