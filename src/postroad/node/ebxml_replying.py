"""The application's answer as the response to a message: syncReply (0.98b, 8.6.4).

Who brought the message waits in the request. A reply that is submitted meanwhile is handed to that
request; its work of sending stays, a little later, for the case that nobody takes it.
"""

import asyncio
import contextlib
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct

from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import ride, sent_ebxml
from postroad.msh.ebxml_terms import reliable
from postroad.msh.outbound import WirePart, wire_form
from postroad.msh.securing import answer_signing
from postroad.node.context import Context
from postroad.node.ebxml_hearing import terms_of
from postroad.node.ebxml_keeping import awaits_name
from postroad.node.journaling import about, signed
from postroad.node.keeping import sent_signal
from postroad.node.requests import NO_CONTENT, Response
from postroad.node.service import Refused
from postroad.reliability import ebxml
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, State, Work
from postroad.wire.content import read_all
from postroad.wire.ebxml import Acknowledgment
from postroad.wire.soap import SoapVersion

_LOOK_AGAIN: Final = 0.1
"""Seconds: another process may take the application's answer."""
_MARGIN: Final = timedelta(seconds=10)


class Reply(Struct, frozen=True):
    """What the application answered, where somebody waits for it."""

    message_id: str
    work: int


def for_request(tx: Transaction, reply: Message, work: Work, context: Context) -> int | None:
    """Hand a reply to the request that waits for it; its work, or None when none waits."""
    name = awaits_name(reply.ref_to_message_id or "")
    request = tx.message(Side.RECEIVING, reply.ref_to_message_id or "")
    if tx.state(name) != b"" or request is None or not _is_reply(reply, request):
        return None
    now = context.clock()
    later = msgspec.structs.replace(
        work, due_at=now + _MARGIN, owner=None, lease_until=None, lane=None
    )
    number = tx.add_work(later)
    tx.set_state(name, msgspec.json.encode(Reply(reply.message_id, number)), now)
    return number


def _is_reply(reply: Message, request: Message) -> bool:
    """Whether it goes back to who sent the request, in the same tongue."""
    return (reply.to_party, reply.protocol) == (request.from_party, request.protocol)


async def riding(context: Context, message: Message) -> Acknowledgment | None:
    """The acknowledgment that rides on the reply to a message whose request waits, if any."""
    message_id = message.ref_to_message_id or ""
    name = awaits_name(message_id)

    def ask(reader: Reader) -> Message | None:
        waits = reader.state(name) == b""
        return reader.message(Side.RECEIVING, message_id) if waits else None

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
    party = ebxml.Receiver(by_machine.to_party)
    signal = ebxml.acknowledge(by_machine, terms, party, request.created_at)
    to, now = received.message, context.clock()
    try:
        signing = answer_signing(match.leg, context.in_force.keyring.signing)
        references = received.references
        return ride(signal, to.dialect, to=to, now=now, signing=signing, references=references)[0]
    except ValueError as wrong:
        raise Refused(422, f"the reply would acknowledge {message_id}: {wrong}") from None


class Replying:
    """Waits for what the application says to a message."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def awaited(self, message_id: str) -> Response:
        """The application's answer as the response; an empty one when none came in time."""
        context, name = self._context, awaits_name(message_id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + context.config.http.reply_timeout.total_seconds()
        event = context.settled.enter(name)
        try:
            while True:
                event.clear()
                known = await context.store.look(lambda reader: reader.state(name))
                left = deadline - loop.time()
                if known != b"" or left <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _LOOK_AGAIN)):
                        await event.wait()
            return await context.store.run(lambda tx: self._given(tx, message_id))
        finally:
            context.settled.leave(name, event)

    def _given(self, tx: Transaction, message_id: str) -> Response:
        """The step that gives the reply away, or stops waiting."""
        context, name = self._context, awaits_name(message_id)
        now, known = context.clock(), tx.state(name)
        tx.set_state(name, None, now)
        if not known:
            return self._given_before(tx, message_id)
        given = msgspec.json.decode(known, type=Reply)
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
        tx.add_signal(msgspec.structs.replace(signal, content_type=content_type))
