"""Tells who sent a message that an intermediary could not pass it on (Part 2, 2.5.6).

By the configured pattern where `routes.yaml` says `errors`, else whither the message itself tells.
Nobody is told of errors about errors.
"""

import base64
import logging
from datetime import datetime
from typing import Final

import msgspec

from postroad.agreement.routes import LOG, Route
from postroad.msh.answers import Answer
from postroad.msh.capture import Capture
from postroad.msh.forwarding import Routable, read_routable
from postroad.msh.reporting import way_back, write_report
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.hub.forwarding import Forwarding, Letter, body_of, put
from postroad.node.steps.calling import Call
from postroad.node.steps.keeping import told
from postroad.node.steps.outcome import drop_carried
from postroad.reliability.awareness import MISSING_RECEIPT
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State, Work
from postroad.wire.content import read_all
from postroad.wire.errors import ERRORS, EbmsError
from postroad.wire.mime_headers import parse_content_type

CONNECTION_FAILURE: Final = "EBMS:0005"
_log = logging.getLogger("postroad.forward")


class Report(msgspec.Struct, frozen=True):
    """An error about a message that was given up, and how it leaves."""

    answer: Answer | None = None
    call: Work | None = None
    """Sent to an address."""
    letter: Letter | None = None
    made: Message | None = None
    route: Route | None = None
    """Passed on by the rules, like what comes from others."""
    said: str = ""


class ForwardingReports:
    """Reports messages that were given up on the way."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._forwarding = Forwarding(context)

    async def perform(self, work: Work) -> None:
        """Make the report and the work of sending it durable."""
        context, now = self._context, self._context.clock()
        message = await context.store.look(
            lambda reader: reader.message(Side.FORWARDING, work.message_id)
        )
        found = report = None
        if message is not None and message.envelope is not None:
            envelope = read_all(context.store.content(message.envelope), message.envelope.size)
            found = read_routable(envelope, context.limits)
            report = self._report(found, problem_of(message), message.message_id, now)

        def step(tx: Transaction) -> None:
            tx.finish_work(work.id, work.owner)
            if message is not None and report is not None:
                _send(tx, message, report, problem_of(message), now)
            if message is not None:
                drop_carried(context, tx, message)

        await context.store.run(step)
        context.work_came.set()

    async def report(self, letter: Letter, problem: EbmsError) -> None:
        """Of a message that was not taken, where nobody waits for the response."""
        now, nobody = letter.now, self._forwarding.refused(letter)
        report = Report(said=told(problem))
        if not letter.found.is_error:
            report = self._report(letter.found, problem, nobody.message_id, now)
        await self._context.store.run(lambda tx: _send(tx, nobody, report, problem, now))
        self._context.work_came.set()

    def _report(
        self, found: Routable, problem: EbmsError, message_id: str, now: datetime
    ) -> Report:
        context = self._context
        routing = context.in_force.routing
        if routing.file.errors == LOG:
            return Report(said=f"logged only, as routes.yaml has it: {problem.detail}")
        fixed = routing.file.errors
        back = None if fixed is not None else way_back(found, self._may_be_told)
        if fixed is None and back is None:
            return Report(said=f"nobody can be told: {problem.detail}")
        signal_id = context.new_id(now)
        answer = write_report(problem, found, back, signal_id=signal_id, now=now)
        url = fixed or (back.url if back is not None else None)
        if url is not None:
            named = fixed is None and not routing.pushes_to(url)
            call = _call(url, answer, message_id, now, named_by_message=named)
            return Report(answer, call, said=f"told to {url}: {problem.detail}")
        return self._routed(answer, problem, now)

    def _may_be_told(self, url: str) -> bool:
        """Whether an error goes to an address that the message names; a refusal is counted."""
        allowed = self._context.in_force.routing.may_be_told(url)
        if not allowed:
            self._context.count("callbacks_refused", by="host")
        return allowed

    def _routed(self, answer: Answer, problem: EbmsError, now: datetime) -> Report:
        """Into the I-Cloud, as if it had come from the next MSH. [P2-2.5.6-05]"""
        context = self._context
        found: Routable = read_routable(answer.envelope, context.limits)
        assert found.source is not None
        route = context.in_force.routing.table.route(found.source)
        if route is None:
            said = f"no rule leads the error back: {problem.detail}"
            _log.warning("not told", extra={"detail": said})
            return Report(answer, said=said)
        kind = parse_content_type(answer.content_type)
        capture = Capture(None, kind, kind, answer.envelope, (), False, (), whole=True)
        body = body_of(answer.envelope)
        letter = Letter(found, capture, body, answer.content_type, None, now)
        made = self._forwarding.message_of(letter, route)
        said = f"told by the rule {route.id}: {problem.detail}"
        return Report(answer, None, letter, made, route, said)


def problem_of(message: Message) -> EbmsError:
    """Why a message was given up, as its sender is told. [P2-2.5.6-08]"""
    code = message.error_code
    over = message.expires_at is not None and message.updated_at >= message.expires_at
    if message.channel is not None and message.state is State.EXPIRED and not over:
        return EbmsError("EBMS:0022", f"nobody pulled it from {message.channel} in time")
    if message.state is State.EXPIRED:
        return EbmsError("EBMS:0023", "its time was over before the next MSH took it")
    if code is None or code == MISSING_RECEIPT or code not in ERRORS:
        code = CONNECTION_FAILURE
    return EbmsError(code, message.detail or "the next MSH cannot be reached")


def _call(
    url: str, answer: Answer, message_id: str, now: datetime, *, named_by_message: bool
) -> Work:
    envelope = base64.b64encode(answer.envelope).decode()
    call = Call(
        url,
        "error",
        answer.signal_id,
        answer.content_type,
        envelope,
        "",
        named_by_message=named_by_message,
    )
    return Work("signal", message_id, now, msgspec.json.encode(call))


def _send(
    tx: Transaction, message: Message, report: Report, problem: EbmsError, now: datetime
) -> None:
    """What sends the report, and the event that tells of it."""
    if report.call is not None:
        tx.add_work(report.call)
    if report.letter and report.made and report.route:
        put(tx, report.letter, report.made, report.route, "an error of this node")
    event = about(
        message,
        "error_raised",
        now,
        error_code=problem.code,
        severity=problem.severity.value,
        detail=report.said[:2000],
        signal_id=report.answer.signal_id if report.answer is not None else None,
    )
    tx.record((event,))
