"""Messages for others, taken by an intermediary (Part 2, 2.5): stored as they came, then passed on.

A node is an endpoint or an intermediary for each message. What is aimed at the nextMSH role and not
for this node's party is routed by `routes.yaml`, kept byte for byte together with the work of
passing it on, and only then answered. No P-Mode has a say in it. `node.carrying` passes it on.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.routes import Route
from postroad.msh.answers import error, write_answer
from postroad.msh.capture import Capture
from postroad.msh.forwarding import (
    ROUTING_FAILURE,
    Routable,
    contradictions,
    no_route,
    read_routable,
    unknown_headers,
)
from postroad.node.context import Context
from postroad.node.journaling import about, signed
from postroad.node.keeping import LONGEST_ID, told
from postroad.node.outcome import begin_anew, life_of
from postroad.node.requests import NO_CONTENT, Request, Response
from postroad.reliability.delivery import AT_WORK, Input, Stage
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State, StoredPart, Work
from postroad.wire.content import BytesContent, Content, Sink
from postroad.wire.ebms3 import PullRequest
from postroad.wire.errors import EbmsError

PROTOCOL: Final = "ebms3"
_MOST_STATIONS: Final = 32
"""Intermediaries on the way of a message: more are taken for a circle."""
_MOST_COPIES: Final = 64
"""How often one message is passed on: more are taken for a circle, too."""
_log = logging.getLogger("postroad.forward")


class Body(Struct, frozen=True):
    """The body of a request, byte for byte as it came."""

    content: Content
    sha256: str


class Recording:
    """Keeps a body while it comes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._sink.write(data)
        self._digest.update(data)

    def finish(self) -> Body:
        return Body(self._sink.finish(), self._digest.hexdigest())

    def discard(self) -> None:
        self._sink.discard()


def body_of(data: bytes) -> Body:
    return Body(BytesContent(data), hashlib.sha256(data).hexdigest())


class Letter(Struct, frozen=True):
    """A message for others that came in."""

    found: Routable
    capture: Capture
    body: Body
    content_type: str
    peer: str | None
    now: datetime
    stations: tuple[str, ...] = ()


def station_of(context: Context) -> str:
    """This node, as the header tells it."""
    return quote(f"{context.party}/{context.config.node}", safe="")


class Forwarding:
    """The nextMSH role of a node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._name = station_of(context)

    @property
    def is_on(self) -> bool:
        """Whether there are rules at all."""
        return len(self._context.in_force.routing.table) > 0

    async def take(self, capture: Capture, body: Body, request: Request) -> Response | None:
        """Take a message over that is for others, or refuse it; None: it is for this node."""
        try:
            found = read_routable(capture.envelope, self._context.limits)
        except EbmsError:
            return None
        if await self._is_for_us(found):
            return None
        now = self._context.clock()
        letter = Letter(
            found,
            capture,
            body,
            request.content_type or "",
            request.peer,
            now,
            _stations(request.stations),
        )
        problem = self._wrong(letter)
        if problem is not None:
            return await self._refuse(letter, problem)
        assert found.source is not None
        route = self._context.in_force.routing.table.route(found.source)
        if route is None:
            return await self._refuse(letter, no_route(found))
        return await self._keep(letter, route)

    async def _is_for_us(self, found: Routable) -> bool:
        """Whether this node is the endpoint of a message, not one on its way."""
        context, routed = self._context, found.input
        if routed is None or isinstance(routed, PullRequest):
            return not (found.problems and found.is_for_next)
        if context.in_force.is_own(routed.to_party):
            return True
        message = found.user_message
        if message is not None:
            match = context.in_force.expectation.terms(message).match
            return match is not None and context.in_force.receives(match)
        ref = found.ref_to_message_id
        if ref is None:
            return False
        sent = await context.store.look(lambda reader: reader.message(Side.SENDING, ref))
        return sent is not None

    def _wrong(self, letter: Letter) -> EbmsError | None:
        """Why a message is not even routed. [P2-2.5.6-09]"""
        found = letter.found
        if found.problems:
            return found.problems[0]
        missed = unknown_headers(found)
        if missed is not None:
            return missed
        if len(found.message_id or "") > LONGEST_ID:
            said = f"a message id has at most {LONGEST_ID} characters here"
            return EbmsError("EBMS:0009", said, location="eb:MessageInfo/eb:MessageId")
        if self._name in letter.stations:
            where = ", ".join(map(unquote, letter.stations))
            return EbmsError(ROUTING_FAILURE, f"it was here before, and comes in a circle: {where}")
        if len(letter.stations) > _MOST_STATIONS:
            said = f"it passed {len(letter.stations)} intermediaries; that must be a circle"
            return EbmsError(ROUTING_FAILURE, said)
        return None

    async def _keep(self, letter: Letter, route: Route) -> Response:
        """Durable first, then answered. [P2-2.5.2-01]"""
        context = self._context
        content = await context.store.persist(letter.body.content)
        letter = changed(letter, body=changed(letter.body, content=content))
        made = self.message_of(letter, route)
        problem = await context.store.run(self._step(letter, made))
        if problem is not None:
            return await self._refuse(letter, problem, 503 if problem.code == "EBMS:0202" else 200)
        context.work_came.set()
        context.count("messages", side="forwarding", event="received")
        _log.info(
            "received", extra={"message_id": made.message_id, "peer": letter.peer, "rule": route.id}
        )
        return NO_CONTENT

    def _step(self, letter: Letter, made: Message) -> Callable[[Transaction], EbmsError | None]:
        """What takes a message over; the error of a copy that is not taken."""
        now = letter.now

        def step(tx: Transaction) -> EbmsError | None:
            before = tx.message(Side.FORWARDING, made.message_id)
            if before is None:
                kept = put(tx, letter, made)
                said = "; ".join((f"by the rule {made.route}", *contradictions(letter.found)))
                tx.record((_received(kept, letter, said),))
                return None
            stage = life_of(before).stage
            same = bool(before.parts) and before.parts[0].sha256 == letter.body.sha256
            if stage in AT_WORK or stage is Stage.SUSPENDED or before.route is None:
                if not same:
                    said = "a message of this id waits here and says something else; come again"
                    return EbmsError("EBMS:0202", said)
                tx.record((about(before, "duplicate", now, peer=letter.peer),))
                return None
            tx.record((about(before, "duplicate", now, peer=letter.peer),))
            if before.copies >= _MOST_COPIES:
                said = f"it was passed on {before.copies} times; that must be a circle"
                return EbmsError(ROUTING_FAILURE, said)
            again(tx, letter, before, made)
            return None

        return step

    def message_of(self, letter: Letter, route: Route) -> Message:
        """The row of a message that is carried; its contents are not kept yet."""
        context, found, now = self._context, letter.found, letter.now
        routed = found.input
        said: dict[str, Any] = {}
        if routed is not None and not isinstance(routed, PullRequest):
            info = routed.collaboration_info
            said = {
                "conversation_id": info.conversation_id,
                "from_party": str(routed.from_party),
                "to_party": str(routed.to_party),
                "from_role": routed.from_party.role,
                "to_role": routed.to_party.role,
                "service": str(info.service),
                "action": info.action,
                "mpc": routed.effective_mpc,
            }
        return Message(
            Side.FORWARDING,
            found.message_id or context.new_id(now),
            State.READY,
            now,
            now,
            protocol=PROTOCOL,
            party=context.party,
            ref_to_message_id=found.ref_to_message_id,
            wire_bytes=letter.body.content.size,
            peer=letter.peer,
            signal=found.user_message is None,
            best_effort=found.is_error,
            route=route.id,
            hop=next(iter(route.to.push or ()), None),
            stations=letter.stations,
            copies=1,
            **said,
        )

    async def _refuse(self, letter: Letter, problem: EbmsError, status: int = 200) -> Response:
        """Told at once, while who brought it still listens. [P2-2.5.6-01] [P2-2.5.6-15]"""
        context, now = self._context, letter.now
        ref = letter.found.message_id
        ref = ref if ref and len(ref) <= LONGEST_ID else None
        signal = error([problem], signal_id=context.new_id(now), ref=ref, now=now)
        answer = write_answer(signal, letter.found.version, None, now)
        nobody = Message(
            Side.FORWARDING,
            ref or context.new_id(now),
            State.REJECTED,
            now,
            now,
            party=context.party,
            protocol=PROTOCOL,
            ref_to_message_id=letter.found.ref_to_message_id,
            signal=letter.found.user_message is None,
        )
        event = about(
            nobody,
            "error_raised",
            now,
            error_code=problem.code,
            severity=problem.severity.value,
            detail=told(problem),
            signal_id=answer.signal_id,
            peer=letter.peer,
        )
        await context.store.run(lambda tx: tx.record((event,)))
        context.count("ebms_errors", code=problem.code, direction="raised")
        _log.warning(
            "not passed on",
            extra={"message_id": ref, "peer": letter.peer, "detail": str(problem)},
        )
        return Response(status, answer.content_type, answer.envelope)


def put(tx: Transaction, letter: Letter, made: Message) -> Message:
    """Keep a message, and the work of passing it on."""
    kept = changed(made, **_contents(tx, letter))
    tx.add_message(kept)
    tx.add_work(Work("forward", kept.message_id, letter.now, partner=kept.partner))
    return kept


def again(tx: Transaction, letter: Letter, before: Message, made: Message) -> None:
    """A copy of what was passed on, or given up: its sender wants it to arrive, so it goes again.

    The copy takes the place of the first: it may have been signed anew.
    """
    work = Work("forward", before.message_id, letter.now, partner=made.partner)
    if not begin_anew(tx, before, Input.RESENT, letter.now, work):
        return
    fresh = tx.message(Side.FORWARDING, before.message_id)
    assert fresh is not None
    for one in (before.envelope, *(part.stored for part in before.parts)):
        if one is not None:
            tx.drop(one)
    changes: dict[str, Any] = {
        "route": made.route,
        "hop": made.hop,
        "stations": made.stations,
        "copies": before.copies + 1,
        "wire_bytes": made.wire_bytes,
        **_contents(tx, letter),
    }
    tx.change_message(Side.FORWARDING, before.message_id, (fresh.state,), **changes)


def _contents(tx: Transaction, letter: Letter) -> dict[str, Any]:
    body, kind = letter.body, letter.capture.content_type
    part = StoredPart(
        None,
        kind.media_type if kind is not None else "",
        body.content.size,
        body.sha256,
        tx.keep(body.content),
        letter.content_type,
    )
    return {
        "envelope": tx.keep(letter.capture.envelope),
        "parts": (part,),
        "soap": letter.found.version.number,
    }


def _received(kept: Message, letter: Letter, said: str) -> Any:
    return about(
        kept,
        "received",
        letter.now,
        envelope=kept.message_id,
        wire_bytes=kept.wire_bytes,
        peer=letter.peer,
        detail=said[:2000],
        evidence=signed(kept),
    )


def _stations(said: str | None) -> tuple[str, ...]:
    """The names in the header; of one that cannot be true as many as are needed to see that."""
    names = (one.strip()[:500] for one in (said or "").split(",", _MOST_STATIONS + 1))
    return tuple(one for one in names if one)
