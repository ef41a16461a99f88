"""Asking a partner: whether it is there, and what became of a message."""

import asyncio
from dataclasses import replace
from datetime import datetime

import msgspec

from postroad.agreement.ebxml import is_mail
from postroad.msh.answers import Answer
from postroad.msh.capture import Incoming
from postroad.msh.ebxml_services import ping, status_request
from postroad.msh.inspection import Look
from postroad.msh.outbound import wire_form
from postroad.msh.securing import Unsecurable, signing
from postroad.node.base.context import Context
from postroad.node.ebxml.sending import transmitted
from postroad.node.ebxml.services import Asked, Services, asked_name
from postroad.node.service import Asking, Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.mailing import Mailing
from postroad.security.sign import Signing
from postroad.store.records import Message
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Reply, Timeouts, TransportFailure
from postroad.wire.ebxml import NOT_RECOGNIZED, kind_of
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion


class Asker:
    """Sends questions and waits for their answers, wherever they come in."""

    def __init__(self, context: Context, client: Client, mail: Mailing, services: Services) -> None:
        self._context = context
        self._client = client
        self._mail = mail
        self._services = services

    async def ping(self, pmode: str, timeout: float) -> Asking:
        """Whether the partner of a P-Mode answers."""
        sending = self._sending(pmode)
        now = self._context.clock()
        message_id = self._context.new_id(now)
        assert sending.dialect is not None
        question = ping(
            sending.dialect,
            from_party=sending.agreed.from_party,
            to_party=sending.agreed.to_party,
            cpa_id=_cpa_id(sending),
            conversation_id=message_id,
            message_id=message_id,
            now=now,
            signing=self._signing(sending),
        )
        return await self._ask(question, sending, Asked(pmode), timeout)

    async def query(self, message: Message, timeout: float) -> Asking:
        """What the partner knows of a message that was sent to it."""
        sending = self._sending(message.pmode or "")
        now = self._context.clock()
        message_id = self._context.new_id(now)
        assert sending.dialect is not None
        question = status_request(
            sending.dialect,
            about=message.message_id,
            from_party=sending.agreed.from_party,
            to_party=sending.agreed.to_party,
            cpa_id=_cpa_id(sending),
            conversation_id=message.conversation_id or message_id,
            message_id=message_id,
            now=now,
            receiver_uri=message.peer if sending.dialect.has_trace else None,
            signing=self._signing(sending),
        )
        asked = Asked(message.pmode or "", message.message_id)
        asking = await self._ask(question, sending, asked, timeout)
        if asking.answer == NOT_RECOGNIZED and _may_be_forgotten(message, sending, now):
            return replace(asking, detail="its persistDuration is over: the partner may forget it")
        return asking

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    def _sending(self, pmode: str) -> Sending:
        sending = self._context.in_force.sending(pmode)
        if sending.dialect is None:
            raise Refused(422, f"{pmode} speaks ebMS 3.0, which has no such question")
        return sending

    def _signing(self, sending: Sending) -> Signing | None:
        try:
            return signing(sending.match.leg, sending.material.signing)
        except Unsecurable as error:
            raise Refused(422, str(error)) from None

    async def _ask(
        self, question: Answer, sending: Sending, asked: Asked, timeout: float
    ) -> Asking:
        context = self._context
        name, began = asked_name(question.signal_id), self._time()
        now = context.clock()
        await context.store.run(lambda tx: tx.set_state(name, msgspec.json.encode(asked), now))
        try:
            address = sending.addresses[0]
            trouble = await self._sent(question, sending, address, timeout)
            if trouble is not None:
                return Asking(None, None, address, self._time() - began, trouble)
            found = await self._awaited(name, timeout - (self._time() - began))
            said = None if found.answer is not None else "no answer came in time"
            return Asking(found.answer, found.timestamp, address, self._time() - began, said)
        finally:
            await context.store.run(lambda tx: tx.set_state(name, None, now))

    async def _sent(
        self, question: Answer, sending: Sending, address: str, timeout: float
    ) -> str | None:
        """Why the question did not reach the partner, if so."""
        context = self._context
        envelope = transmitted(context, sending, question.envelope, address, context.clock())
        try:
            if is_mail(address):
                form = wire_form(SoapVersion.SOAP_11, envelope, (), None)
                await self._mail.send(form, address, question.signal_id)
                return None
            reply = await self._client.post(
                Outgoing(
                    address,
                    question.content_type,
                    envelope,
                    (("SOAPAction", '"ebXML"'),),
                    sending.tls,
                    Timeouts(connect=timeout, answer=timeout),
                )
            )
        except TransportFailure as failure:
            return failure.reason
        if reply.body and "xml" in (reply.content_type or ""):
            trouble = await self._response(reply, address)
            if trouble is not None:
                return trouble
        return None if reply.status < 400 else f"the partner answered HTTP {reply.status}"

    async def _response(self, reply: Reply, address: str) -> str | None:
        """The answer as the response, or what the partner says instead."""
        context = self._context
        now = context.clock()
        try:
            incoming = Incoming(
                reply.content_type, new_sink=context.store.new_sink, limits=context.limits
            )
            incoming.feed(reply.body)
            capture = incoming.close()
        except EbmsError as error:
            return f"the partner's answer cannot be read: {error.detail}"
        look = Look(capture, context.in_force.lens(now, context.store.new_sink))
        if not await context.read(look):
            return "the partner's answer cannot be read"
        found = look.found
        if found.fault is not None:
            return f"the partner answered with a SOAP fault: {found.fault.reason}"
        if found.ebxml is None:
            return "the partner does not answer in ebXML"
        if found.ebxml.error_list is not None:
            first = found.ebxml.error_list.errors[0]
            return f"the partner answered {first.error_code}: {first.text}"
        if kind_of(found.ebxml) in ("pong", "status_response"):
            arrival = Arrival(found, capture, address, len(reply.body), now)
            await self._services.heard(look, arrival, found.ebxml)
        return None

    async def _awaited(self, name: str, timeout: float) -> Asked:
        """What was heard, as soon as it was."""
        context = self._context

        async def look() -> Asked | None:
            known = await context.store.look(lambda reader: reader.state(name))
            found = Asked("") if known is None else msgspec.json.decode(known, type=Asked)
            return found if found.answer is not None else None

        return await context.settled.until(name, look, timeout) or Asked("")


def _cpa_id(sending: Sending) -> str:
    ref = sending.agreed.agreement_ref
    return ref.value if ref is not None else ""


def _may_be_forgotten(message: Message, sending: Sending, now: datetime) -> bool:
    """Whether a partner that had the message need not know it any more. [MS098-8.11.5-02]"""
    kept = sending.policy.persist_duration
    return kept is not None and now >= (message.first_sent_at or message.created_at) + kept
