"""Messages for others, taken by an intermediary (Part 2, 2.5): stored as they came, then passed on.

A node is an endpoint or an intermediary for each message. What is aimed at the nextMSH role and not
for this node's party is routed by `routes.yaml`, kept byte for byte together with the work of
passing it on, and only then answered. No P-Mode has a say in it. `node.hub.carrying` passes it on.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.quotas import STRANGERS, Account, Quotas, accounts_of
from postroad.agreement.routes import Route
from postroad.msh.answers import error, write_answer
from postroad.msh.capture import Capture
from postroad.msh.expiry import expires_at
from postroad.msh.forwarding import (
    ROUTING_FAILURE,
    Routable,
    contradictions,
    no_route,
    read_routable,
    unknown_headers,
)
from postroad.msh.selecting import items_of
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, signed
from postroad.node.base.requests import NO_CONTENT, Request, Response
from postroad.node.steps.keeping import LONGEST_ID, told
from postroad.node.steps.outcome import begin_anew, life_of
from postroad.reliability.delivery import AT_WORK, Input, Stage
from postroad.store.interface import Transaction
from postroad.store.qualified import qualified_id
from postroad.store.records import Message, Offer, Side, State, StoredPart, Work
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
    accounts: tuple[Account, ...] = ()
    """In whose names it counts as long as it waits here; none for what this node asked for."""
    certificate: bytes | None = None
    """What its sender showed in the TLS handshake; None: it is a stranger."""


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
        letter = await self.read(capture, body, request)
        if letter is None:
            return None
        problem = await self.keep(letter)
        return NO_CONTENT if problem is None else await self.refuse(letter, problem)

    def found(self, capture: Capture) -> Routable | None:
        """What a message says for an intermediary; None: nobody can read it."""
        try:
            return read_routable(capture.envelope, self._context.limits)
        except EbmsError:
            return None

    async def read(self, capture: Capture, body: Body, request: Request) -> Letter | None:
        """A message that is for others; None: it is for this node, or for nobody."""
        found = request.found or self.found(capture)
        if found is None or await self.is_for_us(found):
            return None
        return self.letter(found, capture, body, request)

    def letter(self, found: Routable, capture: Capture, body: Body, request: Request) -> Letter:
        return Letter(
            found,
            capture,
            body,
            request.content_type or "",
            request.peer,
            self._context.clock(),
            _stations(request.stations),
            self._accounts(found, request),
            request.client_certificate,
        )

    def _accounts(self, found: Routable, request: Request) -> tuple[Account, ...]:
        routed = found.input
        if routed is None or isinstance(routed, PullRequest):
            return ()
        return accounts_of(str(routed.from_party), request.peer, request.client_certificate)

    @property
    def _quotas(self) -> Quotas:
        return self._context.in_force.routing.file.quotas

    async def keep(self, letter: Letter) -> EbmsError | None:
        """Durable first, then answered; why it is not taken, if so. [P2-2.5.2-01]"""
        context, found = self._context, letter.found
        problem = self.wrong(letter)
        if problem is not None:
            return problem
        assert found.source is not None
        route = context.in_force.routing.table.route(found.source)
        if route is None or route.to.relay is not None:
            return no_route(found)
        content = await context.store.persist(letter.body.content)
        letter = changed(letter, body=changed(letter.body, content=content))
        made = self.message_of(letter, route)
        problem = await context.store.run(self._step(letter, made, route))
        if problem is None:
            context.work_came.set()
            context.count("messages", side="forwarding", event="received")
            said = {"message_id": made.message_id, "peer": letter.peer, "rule": route.id}
            _log.info("received", extra=said)
        return problem

    async def is_for_us(self, found: Routable) -> bool:
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

    def wrong(self, letter: Letter) -> EbmsError | None:
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
        return self._expired(found, letter.now)

    def _expired(self, found: Routable, now: datetime) -> EbmsError | None:
        """EBMS:0023 for what its receiver would not take any more. [P2-2.5.6-23] [P2-2.5.6-24]"""
        end = self._end(found)
        if end is None or now <= end:
            return None
        return EbmsError("EBMS:0023", f"it expired at {end.isoformat()}")

    def _end(self, found: Routable) -> datetime | None:
        """Until when it is passed on; clocks need not agree to the second."""
        end = expires_at(found.envelope) if found.envelope is not None else None
        return None if end is None else end + self._context.config.clock_skew

    def _step(
        self, letter: Letter, made: Message, route: Route
    ) -> Callable[[Transaction], EbmsError | None]:
        """What takes a message over; the error of one that is not taken."""
        now, quotas = letter.now, self._quotas

        def step(tx: Transaction) -> EbmsError | None:
            before = _first_copy(tx, letter, made)
            if before is None:
                full = _full(tx, letter, made, route, quotas)
                if full is None:
                    said = "; ".join((f"by the rule {route.id}", *contradictions(letter.found)))
                    put(tx, letter, _stored(tx, made), route, said)
                return full
            stage = life_of(before).stage
            same = _is_same(before, letter)
            waits = stage in AT_WORK or stage is Stage.SUSPENDED or before.route is None
            if waits and not same:
                said = "a message of this id waits here and says something else; come again"
                return EbmsError("EBMS:0202", said)
            tx.record((about(before, "duplicate", now, peer=letter.peer),))
            if waits:
                return None
            if before.copies >= _MOST_COPIES:
                said = f"it was passed on {before.copies} times; that must be a circle"
                return EbmsError(ROUTING_FAILURE, said)
            full = _full(tx, letter, made, route, quotas)
            if full is None:
                _again(tx, letter, before, made, route)
            return full

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
            channel=_channel(found, route),
            stations=letter.stations,
            copies=1,
            expires_at=self._end(found),
            accounts=tuple(one.name for one in letter.accounts),
            **said,
        )

    def refused(self, letter: Letter) -> Message:
        """What the journal calls a message that was not taken."""
        context, found, now = self._context, letter.found, letter.now
        ref = found.message_id
        return Message(
            Side.FORWARDING,
            ref if ref and len(ref) <= LONGEST_ID else context.new_id(now),
            State.REJECTED,
            now,
            now,
            party=context.party,
            protocol=PROTOCOL,
            ref_to_message_id=found.ref_to_message_id,
            signal=found.user_message is None,
        )

    async def refuse(self, letter: Letter, problem: EbmsError) -> Response:
        """Told at once, while who brought it still listens. [P2-2.5.6-01] [P2-2.5.6-15]"""
        context, now, nobody = self._context, letter.now, self.refused(letter)
        ref = letter.found.message_id
        ref = ref if ref == nobody.message_id else None
        signal = error([problem], signal_id=context.new_id(now), ref=ref, now=now)
        answer = write_answer(signal, letter.found.version, None, now)
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
        stranger = letter.certificate is None
        if not stranger or context.refusals.admit(problem.code, told(problem), now, letter.peer):
            await context.store.run(lambda tx: tx.record((event,)))
        context.count_error(problem.code)
        said = {"message_id": ref, "peer": letter.peer, "detail": str(problem)}
        _log.warning("not passed on", extra=said)
        status = 503 if problem.code == "EBMS:0202" else 200
        if isinstance(problem, QuotaExceeded):
            # It says something about this sender, not about how it stands with this node.
            status = 429
        return Response(status, answer.content_type, answer.envelope)


def _first_copy(tx: Transaction, letter: Letter, made: Message) -> Message | None:
    """Return the message that a new one is a copy of.

    A MessageId is no secret. So what a sender with a certificate brings is compared with what that
    sender brought, and with the same bytes from others, unless these used up all copies. Nobody
    keeps its message from being forwarded by using its id first. All who show no certificate
    count as one sender.
    """
    known = tx.messages_of_id(Side.FORWARDING, made.message_id)
    for one in known:
        if _sender(one) == _sender(made):
            return one
    for one in known:
        if _is_same(one, letter) and one.copies < _MOST_COPIES:
            return one
    return None


def _sender(message: Message) -> str:
    if STRANGERS.name in message.accounts:
        return STRANGERS.name
    return message.accounts[0] if message.accounts else ""


def _is_same(message: Message, letter: Letter) -> bool:
    return bool(message.parts) and message.parts[0].sha256 == letter.body.sha256


def _stored(tx: Transaction, made: Message) -> Message:
    """Return a new message under the id under which it is stored."""
    if tx.message(Side.FORWARDING, made.message_id) is None:
        return made
    return changed(made, message_id=qualified_id(made.message_id, _sender(made)))


def put(tx: Transaction, letter: Letter, made: Message, route: Route, said: str) -> None:
    """Keep a message, and pass it on: by the work of doing so, or in a channel."""
    kept = changed(made, **_contents(tx, letter))
    tx.add_message(kept)
    event = about(
        kept,
        "received",
        letter.now,
        envelope=kept.wire_id,
        wire_bytes=kept.wire_bytes,
        peer=letter.peer,
        detail=said[:2000],
        evidence=signed(kept),
    )
    tx.record((event,))
    if kept.channel is None:
        tx.add_work(Work("forward", kept.message_id, letter.now, partner=kept.partner))
    else:
        queue(tx, kept, letter.found, route, letter.now)


def _again(tx: Transaction, letter: Letter, before: Message, made: Message, route: Route) -> None:
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
        "created_at": letter.now,
        "route": made.route,
        "hop": made.hop,
        "channel": made.channel,
        "stations": made.stations,
        "copies": before.copies + 1,
        "wire_bytes": made.wire_bytes,
        "accounts": made.accounts,
        "expires_at": made.expires_at,
        **_contents(tx, letter),
    }
    tx.change_message(Side.FORWARDING, before.message_id, (fresh.state,), **changes)
    if made.channel is not None and fresh.timer is not None:
        tx.finish_work(fresh.timer)
        queue(tx, changed(fresh, **changes), letter.found, route, letter.now)


def place_of(route: Route) -> str:
    """Under which messages of a rule stand in a channel, beside those of P-Modes."""
    return f"route {route.id}"


def queue(tx: Transaction, message: Message, found: Routable, route: Route, now: datetime) -> None:
    """Put a message into its channel, and see to its end where it does not wait for ever."""
    assert message.channel is not None
    sent = found.user_message
    items = items_of(sent) if sent is not None else ()
    tx.add_offer(Offer(message.channel, place_of(route), message.message_id, now, items))
    tx.record((about(message, "queued", now),))
    keep = route.to.channel.keep if route.to.channel is not None else None
    kept_until = None if keep is None else now + keep
    ends = [one for one in (kept_until, message.expires_at) if one is not None]
    timer = None
    if ends:
        timer = tx.add_work(Work("forward", message.message_id, min(ends)))
    tx.change_message(Side.FORWARDING, message.message_id, (message.state,), timer=timer)


class QuotaExceeded(EbmsError):
    """As much of a sender waits as may: EBMS:0021 of a channel, else EBMS:0202, come again."""


def _full(
    tx: Transaction, letter: Letter, made: Message, route: Route, quotas: Quotas
) -> EbmsError | None:
    """EBMS:0021 when a channel holds as much as it may, in all or of a sender. [P2-2.5.6-16]"""
    most = route.to.channel.capacity if route.to.channel is not None else None
    if made.channel is not None and most is not None and tx.queue(made.channel).count >= most:
        said = f"{most} messages wait in the channel {made.channel}, and it holds no more"
        return EbmsError("EBMS:0021", said)
    for account in letter.accounts:
        allowed, load = account.allowance(quotas), tx.load(account.name)
        if allowed is None or allowed.holds(load.messages + 1, load.bytes + made.wire_bytes):
            continue
        said = (
            f"{load.messages} messages of {account.said} wait here, {load.bytes} bytes, and no "
            "more are taken until some have left"
        )
        return QuotaExceeded("EBMS:0202" if made.channel is None else "EBMS:0021", said)
    return None


def _channel(found: Routable, route: Route) -> str | None:
    """The channel in which it waits to be pulled; None: it is pushed. [P2-2.5.4-07]"""
    to, routed = route.to.channel, found.input
    return None if to is None or routed is None else to.of(routed.effective_mpc)


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


def _stations(said: str | None) -> tuple[str, ...]:
    """The names in the header; of one that cannot be true as many as are needed to see that."""
    names = (one.strip()[:500] for one in (said or "").split(",", _MOST_STATIONS + 1))
    return tuple(one for one in names if one)
