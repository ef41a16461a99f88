"""Tells who sent a message that an intermediary could not pass it on (Part 2, 2.5.6).

By the configured pattern where `routes.yaml` says `errors`, else whither the message itself tells.
Nobody is told of errors about errors.
"""

import base64
import logging
from datetime import datetime
from typing import Final

import msgspec

from postroad.agreement.routes import LOG
from postroad.msh.answers import Answer
from postroad.msh.capture import Capture
from postroad.msh.forwarding import Routable, read_routable
from postroad.msh.reporting import way_back, write_report
from postroad.node.calling import Call
from postroad.node.context import Context
from postroad.node.forwarding import Forwarding, Letter, body_of, put
from postroad.node.journaling import about
from postroad.reliability.awareness import MISSING_RECEIPT
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, Work
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
        report = None if message is None else self._report(message, now)

        def step(tx: Transaction) -> None:
            tx.finish_work(work.id, work.owner)
            if message is None or report is None:
                return
            if report.call is not None:
                tx.add_work(report.call)
            if report.letter is not None and report.made is not None:
                put(tx, report.letter, report.made)
            tx.record((_told(message, report, now),))

        await context.store.run(step)
        context.work_came.set()

    def _report(self, message: Message, now: datetime) -> Report | None:
        context = self._context
        routing = context.in_force.routing
        problem = problem_of(message)
        if message.envelope is None or routing.file.errors == LOG:
            return Report(said=f"logged only, as routes.yaml has it: {problem.detail}")
        envelope = read_all(context.store.content(message.envelope), message.envelope.size)
        found = read_routable(envelope, context.limits)
        fixed = routing.file.errors
        back = None if fixed is not None else way_back(found, routing.may_be_told)
        if fixed is None and back is None:
            return Report(said=f"nobody can be told: {problem.detail}")
        signal_id = context.new_id(now)
        answer = write_report(problem, found, back, signal_id=signal_id, now=now)
        url = fixed or (back.url if back is not None else None)
        if url is not None:
            call = _call(url, answer, message, now)
            return Report(answer, call, said=f"told to {url}: {problem.detail}")
        return self._routed(answer, problem, now)

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
        return Report(answer, None, letter, made, said)


def problem_of(message: Message) -> EbmsError:
    """Why a message was given up, as its sender is told. [P2-2.5.6-08]"""
    code = message.error_code
    if code is None or code == MISSING_RECEIPT or code not in ERRORS:
        code = CONNECTION_FAILURE
    return EbmsError(code, message.detail or "the next MSH cannot be reached")


def _call(url: str, answer: Answer, message: Message, now: datetime) -> Work:
    envelope = base64.b64encode(answer.envelope).decode()
    call = Call(url, "error", answer.signal_id, answer.content_type, envelope, "")
    return Work("signal", message.message_id, now, msgspec.json.encode(call))


def _told(message: Message, report: Report, now: datetime) -> Event:
    problem = problem_of(message)
    return about(
        message,
        "error_raised",
        now,
        error_code=problem.code,
        severity=problem.severity.value,
        detail=report.said[:2000],
        signal_id=report.answer.signal_id if report.answer is not None else None,
    )
