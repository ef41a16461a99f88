"""Telling the application what happened: arrivals, receipts and failures, as calls to its webhook.

A call is work like any other: written in the step that it tells of, tried until it is taken, and
in order for each message. What it tells is what the journal said at that time, however late the
call is made.

What the application answers to the call may be its reply to a request of a two-way exchange.

An application that takes no calls is left alone by a breaker, as a partner is: the work waits in
the store, a single call probes now and then, and when one is taken all the others follow.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace as changed

from postroad.agreement.ebxml import order_scope
from postroad.agreement.pmode import Report
from postroad.agreement.reliable import Reliable, reliable_of
from postroad.node.base.context import WEBHOOK, Context
from postroad.node.service import Refused, Submission, Submitted, SubmittedPayload
from postroad.node.settings.config_groups import Webhook
from postroad.node.steps.webhook_signature import HEADER, sign_webhook
from postroad.reliability.breaker import Breaker, Gate, Partner, failed, reached
from postroad.reliability.delivery import KINDS, Stage
from postroad.security.egress import Purpose
from postroad.store.interface import Transaction
from postroad.store.qualified import wire_id
from postroad.store.records import Message, Notice, Recorded, Side, State, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Reply, Timeouts, TransportFailure
from postroad.wire.content import BytesContent
from postroad.wire.limits import MIB

EVENTS: Final = {
    State.DELIVERED: "received",
    State.ACKNOWLEDGED: "receipt",
    State.FAILED: "failed",
    State.EXPIRED: "failed",
    State.IN_DOUBT: "in_doubt",
    State.SUSPENDED: "suspended",
    State.SETTLED: "settled",
    State.REJECTED: "failed",
}
"""What the application is told when a message comes to a state."""
_PROCESS_ERRORS: Final = ("error_received", "error_raised")
"""Events of errors that a partner or this node found, rather than of a connection that failed."""
_TROUBLES: Final = ("failed", "in_doubt", "suspended", "settled")
_LONGEST_CALL: Final = 30.0
"""Seconds. An application that takes longer should answer first and work afterwards."""
_MOST_DOUBLINGS: Final = 40
_FAILURES: Final = 5
"""Calls in a row that are not taken until the webhook is paused."""
_LONGEST_PAUSE: Final = timedelta(minutes=1)
_OUTAGE: Final = (429, 502, 503, 504)
"""By these the application, or what is in front of it, says that it takes no calls now."""
REPLY_HEADER: Final = "Postroad-Reply"
"""With `yes` in it the body of an answer is the reply to the message that was told."""
REPLY_REFUSED: Final = "reply_refused"
_MOST_REPLY: Final = MIB
_log = logging.getLogger("postroad.webhook")


SendReply = Callable[[str, Submission], Awaitable[Submitted]]
"""Answers a message of the inbox."""


class Notification(msgspec.Struct, frozen=True):
    """What is to be told, as the work keeps it; the rest is with the message and the journal."""

    delivery_id: str
    event: str
    at: datetime
    side: Side
    state: State
    uncounted: int = 0
    """Attempts that failed while the webhook was paused: none of those for which it is given up."""


class _NotTaken(msgspec.Struct, frozen=True):
    """A call that was not taken."""

    reason: str
    is_outage: bool = False
    """Nobody can take calls now; else the application refused this one."""
    is_taken_later: bool = False
    """The application took the call, and its reply cannot be sent now."""


def notification(context: Context, message: Message, state: State, now: datetime) -> list[Work]:
    """The work of telling, if the application wants to know."""
    webhook = context.config.webhook
    event = EVENTS.get(state)
    if webhook is None or event is None or event not in webhook.events:
        return []
    if not may_be_told(context, message, state):
        return []
    told = Notification(
        _delivery_id(context.config.node, message, state, now), event, now, message.side, state
    )
    return [
        Work(
            "notify",
            message.message_id,
            now,
            msgspec.json.encode(told),
            partner=WEBHOOK,
            lane=f"notify:{_ordered(context, message)}",
        )
    ]


def _ordered(context: Context, message: Message) -> str:
    """What is told in order: all of a message, or of what the P-Mode delivers in order."""
    match = context.in_force.match(message.pmode, message.leg)
    if match is None or message.side is not Side.RECEIVING:
        return message.message_id
    reliable = reliable_of(match.leg)
    if reliable is not None and reliable.in_order:
        return _order_of_sequences(message, reliable)
    scope = order_scope(match.leg)
    if scope is None:
        return message.message_id
    if match.leg.ebxml is not None:
        return f"{message.from_party}\0{message.conversation_id}"
    return order_of(message, scope)


def _order_of_sequences(message: Message, reliable: Reliable) -> str:
    """What messages have in common that share a sequence, now or in the next one.

    With a Correlation messages of several P-Modes may: all that a sender correlates in the same
    way keep their order.
    """
    shared = reliable.correlation or (f"{message.pmode}",)
    return "\0".join((f"{message.from_party}", *shared))


def order_of(message: Message, scope: str) -> str:
    """What messages have in common that keep their order: a P-Mode, or a conversation in it."""
    if scope == "pmode":
        return f"{message.pmode}"
    return f"{message.pmode}\0{message.from_party}\0{message.conversation_id}"


def _delivery_id(node: str, message: Message, state: State, now: datetime) -> str:
    """The same in every attempt, and when a step is run again."""
    said = (node, message.side.value, message.message_id, state.value, now.isoformat())
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:32]


def _report(context: Context, message: Message) -> Report | None:
    match = context.in_force.match(message.pmode, message.leg)
    handling = match.leg.error_handling if match else None
    return handling.report if handling else None


def may_be_told(context: Context, message: Message, state: State) -> bool:
    """Whether the P-Mode has the application told of a state."""
    return _may_be_told(_report(context, message), state)


def _may_be_told(report: Report | None, state: State) -> bool:
    """What the P-Mode says about telling of errors (Core D.3.4).

    A sender is told unless it is agreed otherwise. What was refused never became a message for the
    receiving application, so it is told only where that is asked for.
    """
    if state is State.REJECTED:
        return report is not None and report.process_error_notify_consumer is True
    if report is None or state not in (State.FAILED, State.EXPIRED, State.IN_DOUBT):
        return True
    deliveries = report.delivery_failures_notify_producer is not False
    if state is State.IN_DOUBT:
        return deliveries and report.missing_receipt_notify_producer is not False
    processes = report.process_error_notify_producer is not False
    return deliveries or (processes and state is State.FAILED)


class _Kept:
    """The body of an answer, as much as a reply may have of it and a little more."""

    def __init__(self) -> None:
        self.body = b""

    def reader(self, content_type: str) -> "_Kept":
        self.body = b""
        return self

    def __call__(self, data: bytes) -> None:
        if len(self.body) <= _MOST_REPLY:
            self.body += data[: _MOST_REPLY + 1]


class Notifier:
    """Calls the webhook, again and again until the application takes it."""

    def __init__(self, context: Context, client: Client, reply: SendReply | None = None) -> None:
        self._context = context
        self._client = client
        self._reply = reply

    async def perform(self, work: Work) -> None:
        """One call: taken, tried again later, or given up."""
        context = self._context
        webhook = context.config.webhook
        told = msgspec.json.decode(work.data, type=Notification)
        message = await context.store.look(
            lambda reader: reader.message(told.side, work.message_id)
        )
        name = wire_id(work.message_id)
        then = [
            one
            for one in await context.store.look(lambda reader: reader.events(name))
            if one.event.at == told.at and one.event.side == told.side
            if message is None or one.event.pmode == message.pmode
        ]
        if webhook is None or (message and not self._is_wanted(message, told, then)):
            await self._finish(work, is_back=webhook is None)
            return
        body = msgspec.json.encode(_facts(context.config.node, work, told, message, then))
        answer = await self._call(webhook, body)
        if isinstance(answer, _NotTaken):
            await self._again(webhook, work, told, answer)
        elif (why := await self._replied(work, told, answer)) is not None:
            await self._again(webhook, work, told, _NotTaken(why, is_taken_later=True))
        else:
            await self._finish(work, is_back=True)
            context.count("webhook_calls", outcome="taken")

    async def _finish(self, work: Work, *, is_back: bool) -> None:
        """The call was taken, or is not wanted; what waits for the webhook can go if it is back."""

        def step(tx: Transaction) -> Partner | None:
            tx.finish_work(work.id, work.owner)
            return self._is_back(tx) if is_back else None

        self._log_change(await self._context.store.run(step))

    def _is_wanted(self, message: Message, told: Notification, then: list[Recorded]) -> bool:
        """Of failures, the P-Mode tells apart what a connection did and what a partner found."""
        report = _report(self._context, message)
        if told.state is not State.FAILED or report is None:
            return True
        if any(one.event.event in _PROCESS_ERRORS for one in then):
            return report.process_error_notify_producer is not False
        return report.delivery_failures_notify_producer is not False

    async def _replied(self, work: Work, told: Notification, answer: Reply) -> str | None:
        """Send what the application answered, where it says that this is its reply.

        Why it cannot be sent now, if so: the call is made again. A reply that is refused is told as
        a notice. The same call gives the same reply, however often it is made.
        """
        context, name = self._context, work.message_id
        said = dict(answer.headers).get(REPLY_HEADER.lower(), "")
        if said.strip().lower() != "yes" or self._reply is None:
            return None
        reply_id = f"{told.delivery_id}@{context.host}"
        kind = answer.content_type or "application/octet-stream"
        payload = SubmittedPayload(
            BytesContent(answer.body), hashlib.sha256(answer.body).digest(), kind
        )
        given = Submission("", (payload,) if answer.body else (), reply_id)
        try:
            if len(answer.body) > _MOST_REPLY:
                raise Refused(413, "it is larger than 1 MiB; give such a reply through REST")
            await self._reply(name, given)
        except Refused as refused:
            before = await context.store.look(lambda reader: reader.message(told.side, name))
            if before is not None and before.reply_message_id == reply_id:
                return None
            if refused.status >= 500:
                return f"the reply cannot be sent now: {refused.detail}"
            extra = {"message_id": wire_id(name), "detail": str(refused)}
            _log.error("the reply is refused", extra=extra)
            event = (REPLY_REFUSED, told.state, "Error", refused.code)
            detail = f"the reply to it is refused: {refused.detail}"
            notice = Notice(wire_id(name), context.clock(), *event, detail)
            await context.store.run(lambda tx: tx.add_notice(notice))
        return None

    async def _call(self, webhook: Webhook, body: bytes) -> _NotTaken | Reply:
        """Make the call: what the application answered, or why it was not taken."""
        context = self._context
        secret = context.in_force.keyring.webhook_secret
        headers = ((HEADER, sign_webhook(body, secret, context.clock())),) if secret else ()
        timeouts = Timeouts(
            connect=context.config.http.connect_timeout.total_seconds(),
            answer=_LONGEST_CALL,
            total=_LONGEST_CALL,
        )
        kept = _Kept()
        request = Outgoing(
            webhook.url,
            "application/json",
            body,
            headers,
            timeouts=timeouts,
            reader=kept.reader,
            purpose=Purpose.WEBHOOK,
        )
        try:
            reply = await self._client.post(request)
        except TransportFailure as failure:
            return _NotTaken(failure.reason, is_outage=True)
        if 200 <= reply.status < 300:
            return changed(reply, body=kept.body)
        said = f"the application answered HTTP {reply.status}"
        return _NotTaken(said, is_outage=reply.status in _OUTAGE)

    async def _again(
        self, webhook: Webhook, work: Work, told: Notification, failure: _NotTaken
    ) -> None:
        """Later once more; after the last time never.

        An outage while the webhook is paused is no attempt, so that no outage uses them up. A call
        that the application refuses is one, so that it does not hold up those behind it for good.
        """
        context, now = self._context, self._context.clock()
        about = {
            "message_id": wire_id(work.message_id),
            "delivery_id": told.delivery_id,
            "peer": _peer(webhook),
            "detail": failure.reason,
        }
        tried = work.attempt + 1 - told.uncounted
        breaker = Breaker(_FAILURES, webhook.first_interval, _LONGEST_PAUSE)

        def step(tx: Transaction) -> tuple[bool, Partner | None]:
            before = tx.partner(WEBHOOK)
            paused = before.gate is not Gate.FLOWING
            if failure.is_taken_later:
                change = self._is_back(tx)
            else:
                after = failed(before, breaker, now, failure.reason)
                tx.set_partner(after)
                change = None if paused or after.gate is Gate.FLOWING else after
            excused = paused and failure.is_outage
            if tried >= webhook.attempts and not excused:
                tx.finish_work(work.id, work.owner)
                return True, change
            data = changed(told, uncounted=told.uncounted + 1) if excused else told
            due = now + _wait(webhook, tried - 1)
            tx.postpone_work(work.id, due, msgspec.json.encode(data), owner=work.owner)
            return False, change

        given_up, change = await context.store.run(step)
        if given_up:
            _log.error(f"given up telling of {told.event} after {tried} attempts", extra=about)
        else:
            _log.debug(f"not told of {told.event} yet", extra=about)
        context.count("webhook_calls", outcome="given_up" if given_up else "failed")
        self._log_change(change)
        await context.look_at_partners()

    def _is_back(self, tx: Transaction) -> Partner | None:
        """Note that the application answers; the webhook as it is now, if it was paused."""
        if WEBHOOK not in self._context.unwell:
            return None
        before = tx.partner(WEBHOOK)
        after = reached(before)
        if after == before:
            return None
        tx.set_partner(after)
        return None if before.gate is Gate.FLOWING else after

    def _log_change(self, change: Partner | None) -> None:
        """One line when calls stop, and one when they go on."""
        webhook = self._context.config.webhook
        if change is None or webhook is None:
            return
        extra = {"peer": _peer(webhook)}
        if change.gate is Gate.FLOWING:
            _log.info("the webhook takes calls again", extra=extra)
        else:
            extra["detail"] = f"{_FAILURES} calls in a row failed, the last one: {change.detail}"
            _log.warning("the webhook takes no calls, notices wait in the store", extra=extra)


def webhook_problem(webhook: Webhook, state: Partner, waiting: int) -> str | None:
    """Say that the application takes no calls; None: it does."""
    if state.gate is Gate.FLOWING or state.since is None:
        return None
    return (
        f"The webhook {_peer(webhook)} has taken no calls since {state.since:%Y-%m-%dT%H:%M:%SZ}"
        f" ({state.detail}); {waiting} calls wait in the store. See to the application: the node"
        " goes on by itself when it answers."
    )


def _peer(webhook: Webhook) -> str:
    """The address of the application, without what may be secret in it."""
    return webhook.url.partition("?")[0]


def _wait(webhook: Webhook, failures: int) -> timedelta:
    """Doubling from the first interval to the longest."""
    first, longest = (
        one.total_seconds() for one in (webhook.first_interval, webhook.longest_interval)
    )
    return timedelta(seconds=min(first * 2.0 ** min(failures, _MOST_DOUBLINGS), longest))


def _facts(
    node: str, work: Work, told: Notification, message: Message | None, then: list[Recorded]
) -> dict[str, Any]:
    """The body of a call. The message may be gone by now: then only what the work kept is told."""
    wrong = next((one.event for one in reversed(then) if one.event.error_code), None)
    wrong = wrong or next((one.event for one in reversed(then) if one.event.detail), None)
    failed = told.event in _TROUBLES and wrong is not None
    kind = KINDS.get(Stage(told.state)) if told.side is Side.SENDING and failed else None
    return {
        "delivery_id": told.delivery_id,
        "attempt": work.attempt + 1,
        "event": told.event,
        "at": told.at,
        "node": node,
        "message_id": wire_id(work.message_id),
        "cursor": str(message.key) if message else None,
        "side": told.side.value,
        "state": told.state.value,
        "severity": kind,
        "pmode": message.pmode if message else None,
        "from": message.from_party if message else None,
        "to": message.to_party if message else None,
        "service": message.service if message else None,
        "action": message.action if message else None,
        "conversation_id": message.conversation_id if message else None,
        "ref_to_message_id": message.ref_to_message_id if message else None,
        "error_code": wrong.error_code if failed and wrong else None,
        "detail": wrong.detail if failed and wrong else None,
        "parts": [
            {
                "content_id": part.content_id,
                "media_type": part.media_type,
                "size": part.size,
                "sha256": part.sha256,
                "file_name": part.file_name,
            }
            for part in (message.parts if message else ())
        ],
    }
