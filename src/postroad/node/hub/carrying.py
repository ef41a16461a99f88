"""Passing on what an intermediary took over: the same bytes, to the next MSH, until that has them.

A rule may name several addresses. Where nobody takes a connection the next one is tried at once;
where an answer stayed away the next attempt begins with the next one.
"""

import logging
from datetime import datetime
from typing import Final

from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy, wait_after
from postroad.msh.capture import Capture
from postroad.msh.forwarding import Routable, read_routable
from postroad.node.base.context import Context
from postroad.node.base.requests import STATIONS, Request, nothing
from postroad.node.base.windows import Windows
from postroad.node.hub.catching import Caught, WholeCatch
from postroad.node.hub.forwarding import Forwarding
from postroad.node.hub.reporting import ForwardingReports
from postroad.node.service import Refused
from postroad.node.settings.routes import Road
from postroad.node.steps.attempts import (
    AfterAttempt,
    Attempt,
    Outcome,
    Step,
    due,
    give_up,
    is_in_time,
)
from postroad.node.steps.hearing import Heard, Hearing, Reported, told_by
from postroad.reliability.awareness import ANSWERS, Answer, error_said, fault_said, status_said
from postroad.reliability.delivery import Input
from postroad.reliability.schedule import SIGNALS, ends_at
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import (
    Body,
    Outgoing,
    Pieces,
    Reply,
    Timeouts,
    TransportFailure,
)
from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError
from postroad.wire.xml import mentions

_IN_ONE_PIECE: Final = 256 * 1024
_LEAST_WAIT: Final = 1.0
_log = logging.getLogger("postroad.forward")


class Carrying:
    """Sends on what is for others."""

    def __init__(self, context: Context, client: Client, timeouts: Timeouts, station: str) -> None:
        self._context = context
        self._client = client
        self._timeouts = timeouts
        self._station = station
        self._forwarding = Forwarding(context)
        self._reports = ForwardingReports(context)

    async def step(self, message: Message, work: Work, windows: Windows, *, probes: bool) -> Step:
        """What is to be committed: after an attempt, or because none is due."""
        context, began = self._context, self._context.clock()
        try:
            road = self._road(message)
        except Refused as refused:
            never = _never(refused.detail, message.peer)
            return AfterAttempt(context, Attempt(message, work, None, never, began))
        policy = _until_expiry(message, road.policy)
        over = due(message, policy, began)
        if over is not None:
            return give_up(context, message, work, over, began)
        paused = context.is_paused(work.partner) and not probes
        if message.channel is not None or paused:
            return _later(work, message, policy, began)
        try:
            body = self._body(message)
        except StoreError as lost:
            never = _never(f"it cannot be read: {lost}", message.peer)
            return AfterAttempt(context, Attempt(message, work, None, never, began))
        with windows.attempt(work.partner) as timed:
            outcome = await self._attempt(message, road, body)
            timed.in_time = outcome.in_time
        return self.after(message, work, outcome, began, probes=probes)

    def after(
        self,
        message: Message,
        work: Work,
        outcome: Outcome,
        began: datetime,
        *,
        probes: bool = False,
    ) -> Step:
        """The step after an attempt."""
        policy = SIGNALS
        try:
            policy = self._road(message).policy
        except Refused:
            _log.warning("its rule is gone", extra={"message_id": message.wire_id})
        outcome = changed(outcome, wire_bytes=message.parts[0].size)
        tried = Attempt(message, work, None, outcome, began, probe=probes, policy=policy)
        return AfterAttempt(self._context, tried)

    def _road(self, message: Message) -> Road:
        """By the rule that it matched; where that is gone, by what it matches now."""
        context = self._context
        table = context.in_force.routing.table
        if message.route is not None and message.route in table:
            return context.in_force.road(table[message.route])
        assert message.envelope is not None
        try:
            envelope = read_all(context.store.content(message.envelope), message.envelope.size)
            source = read_routable(envelope, context.limits).source
        except (EbmsError, StoreError) as wrong:
            raise Refused(422, str(wrong)) from None
        route = table.route(source) if source is not None else None
        if route is None:
            raise Refused(422, f"the rule {message.route} is gone, and no other leads it anywhere")
        return context.in_force.road(route)

    def _body(self, message: Message) -> Body:
        [part] = message.parts
        content = self._context.store.content(part.stored)
        if part.size <= _IN_ONE_PIECE:
            return read_all(content, part.size)
        return Pieces(part.size, content.chunks)

    async def _attempt(self, message: Message, road: Road, body: Body) -> Outcome:
        """One attempt: over the first address that takes it. [P2-2.5.6-08]"""
        first = message.unanswered % len(road.addresses)
        addresses = road.addresses[first:] + road.addresses[:first]
        outcome = _never("the rule names no address", None)
        silent: list[str] = []
        for address in addresses:
            catch = WholeCatch(self._context)
            try:
                request = self._request(message, road, body, address)
                reply = await self._client.post(changed(request, reader=catch.reader))
            except TransportFailure as failure:
                catch.drop()
                said, in_time = failure.reason, is_in_time(failure)
                if failure.transmitted:
                    args = (Input.UNANSWERED, None, "EBMS:0005", said, address)
                    return Outcome(*args, reached=False, in_time=in_time)
                silent.append(f"{address}: {said}")
                outcome = _never("; ".join(silent), address, reached=False)
                outcome = changed(outcome, in_time=in_time)
                continue
            outcome, caught = self.heard(message, reply, catch)
            outcome = changed(outcome, peer=address, in_time=is_in_time(reply))
            if outcome.result is not Input.TURNED_AWAY:
                if caught is not None:
                    await self.pass_back(caught, reply.content_type, address)
                return outcome
        return outcome

    async def pass_back(self, caught: Caught, content_type: str, address: str) -> None:
        """A response that has a way of its own goes it, as if it had been pushed here.

        That is a reply, and what else has routing input; errors are told by this node.

        [P2-2.4.8.2-01]
        """
        if not mentions(caught.capture.envelope, b"UserMessage"):
            return
        came = Request(content_type, address, nothing())
        letter = await self._forwarding.read(caught.capture, caught.body, came)
        if letter is None or not _has_a_way(letter.found):
            return
        letter = changed(letter, accounts=())
        problem = await self._forwarding.keep(letter)
        if problem is not None:
            _log.warning("not passed on", extra={"peer": address, "detail": str(problem)})
            if letter.found.user_message is not None:
                await self._reports.report(letter, problem)

    def _request(self, message: Message, road: Road, body: Body, url: str) -> Outgoing:
        stations = ", ".join((*message.stations, self._station))
        headers: tuple[tuple[str, str], ...] = ((STATIONS, stations),)
        if message.soap == "1.1":
            headers += (("SOAPAction", '""'),)
        wait = wait_after(road.policy, message.tries + 1).total_seconds()
        patience = self._timeouts
        if road.policy.retries != 0:
            patience = changed(patience, answer=min(patience.answer, max(wait, _LEAST_WAIT)))
        return Outgoing(
            url,
            message.parts[0].wire_type,
            body,
            headers,
            road.tls,
            patience,
            reply_bytes=self._context.limits.message_bytes,
        )

    def heard(
        self, message: Message, reply: Reply, catch: WholeCatch
    ) -> tuple[Outcome, Caught | None]:
        """What the next MSH says: it has it, it refuses it, or neither; and its answer as it is."""
        trouble = reply.status >= 500
        caught: Caught | None = None
        try:
            caught = catch.close()
        except (StoreError, OSError) as full:
            said = f"what the next MSH answered cannot be kept: {full}"
            return Outcome(Input.UNANSWERED, None, "EBMS:0202", said), None
        except EbmsError:
            # Nothing that anybody could use: its status says it.
            pass
        finally:
            catch.drop()
        if caught is not None:
            spoken = self._spoken(message, reply, caught.capture)
            if spoken is not None:
                return changed(spoken, reached=not trouble), caught
        answer = status_said(reply.status)
        if answer is Answer.NOTHING:
            return Outcome(Input.LEFT), caught
        said = f"the next MSH answered HTTP {reply.status}"
        return Outcome(ANSWERS[answer], None, "EBMS:0005", said, reached=not trouble), caught

    def _spoken(self, message: Message, reply: Reply, capture: Capture) -> Outcome | None:
        """What its signals say about the message; None: nothing that anybody could use."""
        try:
            found = read_routable(capture.envelope, self._context.limits)
        except EbmsError:
            return None
        if found.messaging is None and _has_a_way(found):
            # It was understood: what is said about it, a fault even, is for who asked.
            return Outcome(Input.LEFT)
        fault = found.fault
        if fault is not None:
            detail = f"the next MSH answered with a SOAP fault: {fault.reason}"
            return Outcome(ANSWERS[fault_said(fault.code)], None, "EBMS:0005", detail)
        heard: list[Heard] = []
        for signal in found.messaging.signals if found.messaging is not None else ():
            ref = signal.message_info.ref_to_message_id
            if ref not in (None, message.wire_id):
                continue
            errors = tuple(Reported(e.error_code, e.severity, told_by(e)) for e in signal.errors)
            failure = next((one for one in errors if one.severity == "failure"), None)
            meaning = Input.LEFT if failure is None else ANSWERS[error_said(failure.code)]
            kind = "error" if errors else "hop"
            heard.append(Heard(signal.message_info.message_id, kind, (), meaning, errors))
        if not heard:
            return None
        hearing = Hearing(capture.envelope, reply.content_type, tuple(heard), ())
        said = hearing.said
        assert said is not None
        if said.input is Input.REFUSED and reply.status >= 500:
            return Outcome(Input.UNANSWERED, hearing, said.error_code, said.detail)
        return Outcome(said.input, hearing, said.error_code, said.detail)


def _has_a_way(found: Routable) -> bool:
    """Whether a response goes on by itself."""
    signals = found.messaging.signals if found.messaging is not None else ()
    told = any(one.errors for one in signals)
    return found.user_message is not None or (found.by == "RoutingInput" and not told)


def _never(detail: str, peer: str | None, *, reached: bool = True) -> Outcome:
    """Not a byte left."""
    return Outcome(Input.NOT_SENT, None, "EBMS:0005", detail, peer, reached=reached)


def _until_expiry(message: Message, policy: Policy) -> Policy:
    """What expires by its own headers is not passed on after that. [P2-2.5.6-20]"""
    if message.expires_at is None:
        return policy
    left = message.expires_at - message.created_at
    lives = left if policy.time_to_live is None else min(left, policy.time_to_live)
    return changed(policy, time_to_live=lives)


def _later(work: Work, message: Message, policy: Policy, now: datetime) -> Step:
    """It waits to be pulled, or the next MSH is paused: no retry is used up."""
    end = ends_at(policy, message.created_at, message.first_sent_at)

    def step(tx: Transaction) -> None:
        if message.channel is not None:
            tx.postpone_work(work.id, end, owner=work.owner)
            return
        tx.expire_work(work.id, end)
        tx.postpone_work(work.id, now, owner=work.owner)

    return step
