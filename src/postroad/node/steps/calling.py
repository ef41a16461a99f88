"""Receipts and errors that are not the response: sent to the partner as requests of their own."""

import base64
import logging
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace as changed

from postroad.agreement.channels import collected_at
from postroad.agreement.ebxml import is_mail
from postroad.agreement.matching import Match
from postroad.agreement.places import direct_address, is_pulled, is_response
from postroad.agreement.reply_patterns import errors_channel, receipts_channel
from postroad.msh.answers import Answer
from postroad.msh.outbound import wire_form
from postroad.msh.selecting import signal_items
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, place
from postroad.node.steps.ebxml_order import acknowledgement_gone
from postroad.node.steps.hearing import told_by
from postroad.node.steps.mailing import Mailing
from postroad.security.egress import Purpose
from postroad.store.interface import Transaction
from postroad.store.records import Message, Offer, Side, State, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Reply, Timeouts, TransportFailure
from postroad.transport.tls import TlsProfile
from postroad.wire.ebms3 import Error, SignalMessage, UserMessage
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import Limits
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.xml import parse

SOON: Final = timedelta(seconds=5)
"""A receipt for which no PullRequest comes by in that time calls back."""
_FIRST_WAIT: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(hours=1)
_MOST_ATTEMPTS: Final = 20
_FIRST_SILENCE: Final = timedelta(seconds=15)
"""How long the acknowledgment of a signal is waited for; then twice as long each time."""
_MOST_COPIES: Final = 8
SENT: Final = {"receipt": "receipt_sent", "acknowledgment": "acked"}
"""The journal's words for signals that left."""
_log = logging.getLogger("postroad.call")


class Call(msgspec.Struct, frozen=True):
    """A signal to be sent, as the work keeps it."""

    url: str
    kind: str
    signal_id: str
    content_type: str
    envelope: str
    pmode: str
    soap_action: str | None = None
    leg: int = 1
    copies: int | None = None
    """How many were taken of what is to be acknowledged; None: nobody acknowledges it."""
    named_by_message: bool = False
    """Only a message names the address, no P-Mode: the egress policy judges it as a callback."""


class Riding(msgspec.Struct, frozen=True):
    """A receipt that may ride on the next PullRequest."""

    work: int
    """What sends it if it does not."""
    message_id: str
    signal: SignalMessage


def way_back(
    context: Context, match: Match, answer: Answer, message: UserMessage
) -> Work | Offer | None:
    """What brings a signal to who sent the message: a call, or its place in a channel.

    None when no P-Mode says where to. [P2-6.5-02] [P2-6.7.1-01]
    """
    channel = (receipts_channel if answer.kind == "receipt" else errors_channel)(match.leg)
    if channel is None:
        return call_back(context, match, answer, message)
    ref = message.message_info.message_id
    place = (channel, match.pmode.id)
    return Offer(*place, answer.signal_id, context.clock(), signal_items(ref), about=ref)


def call_back(context: Context, match: Match, answer: Answer, message: UserMessage) -> Work | None:
    """The work of sending a signal to the partner; None when no P-Mode says where to."""
    url = _receipts_to(match) if answer.kind == "receipt" else _errors_to(match)
    if url is None:
        _log.error(
            "a signal has no way back: set SendReceipt.ReplyTo or ReceiverErrorsTo",
            extra={"message_id": message.message_info.message_id, "pmode": match.pmode.id},
        )
        return None
    call = Call(
        url,
        answer.kind,
        answer.signal_id,
        answer.content_type,
        base64.b64encode(answer.envelope).decode(),
        match.pmode.id,
        leg=match.number,
    )
    now = context.clock()
    data = msgspec.json.encode(call)
    return Work("signal", message.message_info.message_id, now, data)


def _receipts_to(match: Match) -> str | None:
    """ReplyTo, the sender's own address, or where the message was fetched from. [P2-6.7.1-04]"""
    asked = match.leg.security.send_receipt if match.leg.security else None
    if asked is not None and asked.reply_to:
        return asked.reply_to
    pmode, index = match.pmode, match.number - 1
    direct = direct_address(pmode, index)
    if direct is not None:
        return direct
    fetched = is_pulled(pmode, index) or is_response(pmode, index)
    return collected_at(pmode, match.leg) if fetched else None


def _errors_to(match: Match) -> str | None:
    report = match.leg.error_handling.report if match.leg.error_handling else None
    named = report.receiver_errors_to.value if report and report.receiver_errors_to else ()
    return named[0] if named else _receipts_to(match)


def gone(
    tx: Transaction, message: Message, event: str, signal_id: str, peer: str | None, now: datetime
) -> None:
    """A signal about a message left, and was taken: the journal is told."""
    kept = [
        one.envelope
        for one in tx.signals(Side.RECEIVING, message.message_id)
        if one.signal_id == signal_id
    ]
    evidence = place(kept[0]) if kept else None
    tx.record((about(message, event, now, signal_id=signal_id, peer=peer, evidence=evidence),))


def ridden(tx: Transaction, one: Riding, peer: str, now: datetime) -> None:
    """A receipt was taken with a PullRequest: nobody need call back."""
    message = tx.message(Side.RECEIVING, one.message_id)
    if message is None or tx.work(one.work) is None:
        return
    gone(tx, message, SENT["receipt"], one.signal.message_info.message_id, peer, now)
    tx.finish_work(one.work)


class Calling:
    """Sends signals, again and again until the partner takes them, or acknowledges them."""

    def __init__(self, context: Context, client: Client, mail: Mailing) -> None:
        self._context = context
        self._client = client
        self._mail = mail
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )

    async def perform(self, work: Work) -> None:
        call = msgspec.json.decode(work.data, type=Call)
        if call.copies == _MOST_COPIES:
            said = f"the {call.kind} was not acknowledged"
            await self._context.store.run(lambda tx: self._give_up(tx, work, call, said))
            return
        errors: tuple[Error, ...] = ()
        try:
            trouble, errors = await self._send(call)
        except TransportFailure as failure:
            if failure.kind == "egress" and call.named_by_message:
                await self._refuse(work, call, failure.reason)
                return
            trouble = failure.reason
        if trouble is not None:
            await self._again(work, call, trouble)
            return
        if call.copies is not None:
            await self._until_heard(work, call, call.copies)
            return
        await self._context.store.run(lambda tx: self._done(tx, work, call, errors))

    async def _send(self, call: Call) -> tuple[str | None, tuple[Error, ...]]:
        """Return why the partner did not take the signal, if so, and the errors in its response."""
        envelope = base64.b64decode(call.envelope)
        if is_mail(call.url):
            form = wire_form(SoapVersion.SOAP_11, envelope, (), None)
            await self._mail.send(form, call.url, call.signal_id)
            return None, ()
        reply = await self._client.post(
            Outgoing(
                call.url,
                call.content_type,
                envelope,
                () if call.soap_action is None else (("SOAPAction", call.soap_action),),
                tls=self._tls(call),
                timeouts=self._timeouts,
                purpose=Purpose.CALLBACK if call.named_by_message else Purpose.PARTNER,
            )
        )
        trouble = None if reply.status < 400 else f"the partner answered HTTP {reply.status}"
        return trouble, _errors_in(reply, self._context.limits)

    def _tls(self, call: Call) -> TlsProfile | None:
        return self._context.in_force.tls(call.pmode, call.leg)

    def _done(self, tx: Transaction, work: Work, call: Call, errors: tuple[Error, ...]) -> None:
        message = tx.message(Side.RECEIVING, work.message_id)
        if message is not None and errors:
            # The signal was sent and the message is received, whatever the partner makes of it.
            said = f"the partner answered the {call.kind} with an error: {told_by(errors[0])}"
            event = about(
                message,
                "error_raised",
                self._context.clock(),
                error_code=errors[0].error_code,
                severity=Severity.WARNING.value,
                detail=said,
                signal_id=call.signal_id,
                peer=call.url,
            )
            tx.record((event,))
        refused = message is not None and message.state is State.REJECTED
        if message is not None and not refused and call.kind in SENT:
            now = self._context.clock()
            gone(tx, message, SENT[call.kind], call.signal_id, call.url, now)
        self._passed_on(tx, work, call)
        tx.finish_work(work.id, work.owner)

    def _passed_on(self, tx: Transaction, work: Work, call: Call) -> None:
        if call.kind == "acknowledgment":
            acknowledgement_gone(self._context, tx, work.message_id, self._context.clock())

    async def _refuse(self, work: Work, call: Call, why: str) -> None:
        """Drop a callback that the egress policy refuses: a retry would be refused too."""
        self._context.count("callbacks_refused", by="network")
        _log.warning(
            "callback refused",
            extra={"message_id": work.message_id, "peer": call.url, "detail": why},
        )
        said = f"the {call.kind} was not sent to {call.url}: {why}"
        await self._context.store.run(lambda tx: self._give_up(tx, work, call, said))

    async def _again(self, work: Work, call: Call, why: str) -> None:
        """Try later; after many times give up, and say so."""
        now = self._context.clock()
        _log.warning(
            "signal not taken",
            extra={"message_id": work.message_id, "peer": call.url, "detail": why},
        )
        wait = min(_FIRST_WAIT * 2 ** min(work.attempt, _MOST_ATTEMPTS), _LONGEST_WAIT)

        def step(tx: Transaction) -> None:
            if work.attempt + 1 < _MOST_ATTEMPTS:
                tx.postpone_work(work.id, now + wait, owner=work.owner)
            else:
                self._give_up(tx, work, call, f"the {call.kind} could not be sent: {why}")

        await self._context.store.run(step)

    async def _until_heard(self, work: Work, call: Call, copies: int) -> None:
        """Send it again unless it is acknowledged, which ends the work. [MS098-10.3.1.4-01]"""
        due = self._context.clock() + _FIRST_SILENCE * 2**copies
        data = msgspec.json.encode(changed(call, copies=copies + 1))
        await self._context.store.run(
            lambda tx: tx.postpone_work(work.id, due, data, owner=work.owner)
        )

    def _give_up(self, tx: Transaction, work: Work, call: Call, detail: str) -> None:
        sides = (Side.RECEIVING, Side.FORWARDING, Side.SENDING)
        rows = (tx.message(side, work.message_id) for side in sides)
        message = next((one for one in rows if one is not None), None)
        if message is not None:
            tx.record(
                (
                    about(
                        message,
                        "error_raised",
                        self._context.clock(),
                        error_code="EBMS:0005",
                        severity="failure",
                        detail=detail,
                        signal_id=call.signal_id,
                        peer=call.url,
                    ),
                )
            )
        self._passed_on(tx, work, call)
        tx.finish_work(work.id, work.owner)


def _errors_in(reply: Reply, limits: Limits) -> tuple[Error, ...]:
    """Return the ebMS errors in the response to a signal; most responses are empty."""
    if not reply.body:
        return ()
    try:
        envelope = read_envelope(parse(reply.body, limits))
    except EbmsError:
        return ()
    element = find_messaging(envelope)
    reading = read_messaging(element, envelope.version, limits) if element is not None else None
    if reading is None or reading.messaging is None:
        return ()
    return tuple(error for signal in reading.messaging.signals for error in signal.errors)
