"""Sending: claimed work becomes an HTTP request, and its answer an outcome.

What is claimed here is sent with the bytes that were kept, the first time and every time after.
What follows from the outcome is decided and committed in `node.outcome`.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.ebxml import is_mail
from postroad.agreement.waiting import Policy, wait_after
from postroad.msh.answers import SentMessage, sent_message, sent_messages
from postroad.msh.capture import Capture, Incoming
from postroad.msh.ebxml_answers import sent_ebxml
from postroad.msh.ebxml_outbound import EbxmlPackage
from postroad.msh.inspection import Look
from postroad.msh.outbound import Package, WireForm, WirePart, wire_form
from postroad.msh.securing import signing
from postroad.msh.wsreliability import write_poll
from postroad.msh.wsrm import sent_sequence
from postroad.node.attempts import (
    Outcome,
    Step,
    attempt,
    due,
    give_up,
    on_next_way,
)
from postroad.node.bundle_hearing import hear_units, of_the_whole
from postroad.node.bundle_outcome import attempt_all, give_up_all, unit_ids, units_of
from postroad.node.carrying import Carrying
from postroad.node.catching import Catch
from postroad.node.context import Context
from postroad.node.ebxml_hearing import heard_ebxml
from postroad.node.ebxml_sending import is_for_application, own_addresses, transmitted
from postroad.node.exchanging import has_alternate
from postroad.node.forwarding import station_of
from postroad.node.fragmenting import Fragmenting, Units
from postroad.node.good_end import Ending, GoodEnd, is_good
from postroad.node.hearing import Hearing, hear, judged
from postroad.node.in_force import Sending
from postroad.node.in_one_step import InOneStep
from postroad.node.mailing import Mailing
from postroad.node.outcome import Done
from postroad.node.service import Refused
from postroad.node.together import Together
from postroad.node.turns import Turns
from postroad.node.uploading import posted
from postroad.node.wsreliability import hear_reply
from postroad.node.wsrm_asking import NoSequence
from postroad.node.wsrm_asking import sent as sent_alone
from postroad.node.wsrm_hearing import hear_response
from postroad.node.wsrm_repackaging import repackaged
from postroad.node.wsrm_source import Sequences, key_of
from postroad.node.wsrm_states import is_ready
from postroad.node.wsrm_states import packed as packed_in
from postroad.reliability.awareness import (
    ANSWERS,
    MISSING_RECEIPT,
    Answer,
    fault_said,
    status_said,
)
from postroad.reliability.delivery import Input
from postroad.reliability.schedule import ONCE, SIGNALS, ends_at
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Message, Side, State, StoredPart, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Body, Pieces, Reply, Timeouts, TransportFailure
from postroad.transport.http_outgoing import Outgoing as Request
from postroad.wire.content import Content, read_all
from postroad.wire.ebxml import Dialect
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB
from postroad.wire.soap import SoapVersion

_LEAST_WAIT: Final = 1.0
"""Seconds for an answer, however quickly a message is to be sent again."""
IN_ONE_PIECE: Final = 256 * 1024
_FRAGMENTS: Final = 4
"""Fragments on their way to a partner at once: each fills the line by itself."""
_AT_HAND: Final = 32 * MIB
"""So much that was read a moment ago is in memory still."""
_SEALED_TYPE: Final = "application/octet-stream"
_SENDABLE: Final = (State.READY, State.WAITING, State.SUSPENDED)
VERSIONS: Final = {version.number: version for version in SoapVersion}
_log = logging.getLogger("postroad.send")


class Outgoing(Struct, frozen=True):
    """A message that this process has claimed, with what is known of it."""

    message: Message
    work: Work
    sent: SentMessage | None = None
    made: Package | EbxmlPackage | None = None
    """While it is still in memory."""
    probes: bool = False
    """It goes out to a partner who is paused, to see whether it can be reached again."""
    units: tuple[Message, ...] = ()
    """All units of a bundle, the primary first, in the order of the envelope."""
    lacks_units: bool = False
    """Retention removed some of them."""
    sent_units: Mapping[str, SentMessage] | None = None
    """What was sent of each of them, while that is in memory."""
    whole: Units = ()
    """Of a fragment: the message that it is a part of."""


Good = tuple[Message, Work, Sending, Outcome, datetime, bool]
"""A message that came to a good end, its work, how it was sent, its receipt, when it was sent, and
whether that was a probe."""


class Sender:
    """Sends what is ready, so many at a time."""

    def __init__(self, context: Context, client: Client, mail: Mailing) -> None:
        self._context = context
        self._fragmenting = Fragmenting(context)
        self._client = client
        self._mail = mail
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._prepare: Together[tuple[Outgoing, Sending, str, datetime], WireForm] = Together(
            lambda given: self._form(*given)
        )
        self._end_well: InOneStep[Good, Done | None] = InOneStep(
            context.store, self._attempts_ended, lambda tx, one: self._after(*one)(tx)
        )
        self._carrying = Carrying(context, client, self._timeouts, station_of(context))
        self.sequences = Sequences(context, client)
        parallel = context.config.send.parallel
        self._turns: Turns[Outgoing] = Turns(parallel)
        self._fragments: Turns[Outgoing] = Turns(min(parallel, _FRAGMENTS))
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
        return self._turns.full() + self._fragments.full()

    def claimed(self, work: Work, now: datetime) -> Work:
        """The work as this process has it."""
        return changed(work, owner=self._context.owner, lease_until=now + self._context.lease)

    def take(self, outgoing: Outgoing) -> None:
        """Send it as soon as there is a place on the wire."""
        self._context.in_hand.add(outgoing.work.id)
        message, turns = outgoing.message, self._turns_of(outgoing)
        turns.add(message.partner, outgoing)
        self._begin(turns, message.partner)

    def _turns_of(self, outgoing: Outgoing) -> Turns[Outgoing]:
        """Fragments take turns among themselves, so that they hold up no other message."""
        return self._turns if outgoing.message.part_of is None else self._fragments

    def _begin(self, turns: Turns[Outgoing], partner: str) -> None:
        while self._open and (outgoing := turns.next(partner)) is not None:
            task = asyncio.create_task(self._send(outgoing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _end(self, outgoing: Outgoing) -> None:
        """A place is free: for the same partner, or whoever waits for one."""
        turns, partner = self._turns_of(outgoing), outgoing.message.partner
        turns.done(partner)
        self._begin(turns, partner)
        for other in turns.ready():
            self._begin(turns, other)

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
                self._end(outgoing)
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
        if message.route is not None:
            return self._carrying.after(message, outgoing.work, outcome, context.clock())
        sending = None
        with contextlib.suppress(Refused):
            sending = self._sending(message)
        if outgoing.units:
            outcomes = [outcome] * len(outgoing.units)
            return attempt_all(
                context, outgoing.units, outgoing.work, sending, outcomes, context.clock(), False
            )
        return attempt(context, message, outgoing.work, sending, outcome, context.clock(), False)

    async def _step(self, outgoing: Outgoing) -> Step | Good:
        """What is to be committed: after an attempt, or because none is due."""
        context, message, work = self._context, outgoing.message, outgoing.work
        began = context.clock()
        if message.bundle is not None:
            return await self._bundle_step(outgoing)
        if message.state not in _SENDABLE:
            return _none_due(work)
        if message.route is not None:
            return await self._carrying.step(message, work, probes=outgoing.probes)
        try:
            sending = self._sending(message)
        except Refused as refused:
            never = _never(refused.detail, message.peer, reached=True)
            return attempt(context, message, work, None, never, began, hope=False)
        return await self._one_step(outgoing, sending, began)

    async def _bundle_step(self, outgoing: Outgoing) -> Step:
        """The same for a bundle, by the P-Mode of its primary unit. [P2-3.2.2-08]"""
        context, work = self._context, outgoing.work
        began = context.clock()
        outgoing = await self._gathered(outgoing)
        units = outgoing.units
        lead = next((one for one in units if one.state in _SENDABLE), None)
        if lead is None:
            return _none_due(work)
        if outgoing.lacks_units:
            said = "a message of its bundle was removed since: submit it under another id"
            never = _never(said, lead.peer, reached=True)
            return attempt_all(context, units, work, None, [never] * len(units), began, False)
        try:
            sending = self._sending(units[0])
        except Refused as refused:
            never = _never(refused.detail, lead.peer, reached=True)
            return attempt_all(context, units, work, None, [never] * len(units), began, False)
        units = tuple([on_next_way(one, sending) for one in units])
        outgoing = changed(outgoing, message=units[0], units=units)
        address = sending.addresses[min(lead.transport, len(sending.addresses) - 1)]
        if any(due(one, sending.policy, began) for one in units if one.state in _SENDABLE):
            return give_up_all(context, units, work, sending, began)
        if context.is_paused(lead.partner) and not outgoing.probes:
            if not sending.policy.fail_fast:
                return _not_now(work, began)
            outcomes = [_never(f"{lead.to_party} cannot be reached", address, reached=True)]
            return self._all(outgoing, sending, outcomes * len(units), began)
        try:
            form = await self._prepare((outgoing, sending, address, began))
        except StoreError as lost:
            never = _never(f"it cannot be read: {lost}", address, reached=True)
            return self._all(outgoing, sending, [never] * len(units), began)
        outcomes = await self._attempt_all(outgoing, sending, form, address)
        length = form.length
        told = [changed(one, peer=address, wire_bytes=length) for one in outcomes]
        return self._all(outgoing, sending, told, began, sending.later)

    def _all(
        self,
        outgoing: Outgoing,
        sending: Sending,
        outcomes: Sequence[Outcome],
        began: datetime,
        hope: bool = False,
    ) -> Step:
        units, work = outgoing.units, outgoing.work
        args = (units, work, sending, outcomes, began, hope, outgoing.probes)
        return attempt_all(self._context, *args)

    async def _gathered(self, outgoing: Outgoing) -> Outgoing:
        """A bundle with all its units, as the store has them now."""
        if outgoing.units:
            return outgoing
        context = self._context
        ids = unit_ids(context, outgoing.message)
        units = await context.store.look(lambda reader: units_of(reader, ids))
        return changed(outgoing, units=units, lacks_units=len(units) < len(ids))

    async def _attempt_all(
        self, outgoing: Outgoing, sending: Sending, form: WireForm, address: str
    ) -> list[Outcome]:
        """What became of each unit of a bundle that was posted."""
        units = outgoing.units
        try:
            request = self._request(outgoing.message, sending, form, address, None)
            reply = await self._posted(outgoing, sending, form, request)
        except TransportFailure as failure:
            if not failure.transmitted:
                return [_never(failure.reason)] * len(units)
            one = Outcome(Input.UNANSWERED, detail=failure.reason, reached=False)
            return [one] * len(units)
        if not (reply.body and _is_soap(reply.content_type)):
            return [await self._answered(outgoing, sending, reply)] * len(units)
        reached = reply.status < 500
        try:
            capture = _captured(reply, self._context)
        except EbmsError as error:
            one = _spoken(Hearing(b"", "", (), (error,)), reply.status)
            return [changed(one, reached=reached)] * len(units)
        hearings = await hear_units(
            self._context, capture, sending.match, units, self._sent_units(outgoing)
        )
        outcomes = [_spoken(one, reply.status) for one in hearings]
        return [
            changed(one, reached=reached)
            for one in of_the_whole(self._context, units, hearings, outcomes, sending)
        ]

    def _sent_units(self, outgoing: Outgoing) -> Mapping[str, SentMessage]:
        if outgoing.sent_units is not None:
            return outgoing.sent_units
        return sent_messages(self._envelope(outgoing), self._context.limits)

    async def _one_step(self, outgoing: Outgoing, sending: Sending, began: datetime) -> Step | Good:
        context, message, work = self._context, outgoing.message, outgoing.work
        message = on_next_way(message, sending)
        if message is not outgoing.message:
            outgoing = changed(outgoing, message=message)
        address = sending.addresses[min(message.transport, len(sending.addresses) - 1)]
        given_up = due(message, sending.policy, began)
        if given_up is not None:
            return give_up(context, message, work, given_up, began)
        if work.expires_at is not None and work.expires_at <= began:
            return _other_end(work, message, sending.policy, began)
        if context.is_paused(message.partner) and not outgoing.probes:
            if not sending.policy.fail_fast:
                return _not_now(work, began)
            never = _never(f"{message.to_party} cannot be reached", address, reached=True)
            return attempt(context, message, work, sending, never, began, hope=False)
        try:
            if sending.reliable is not None:
                outgoing = await self._in_sequence(outgoing, sending)
            if message.part_of is not None:
                made = await self._made(outgoing, sending)
                if made is None:
                    return _none_due(work)
                outgoing, message = made, made.message
            form = await self._prepare((outgoing, sending, address, began))
        except StoreError as lost:
            never = _never(f"it cannot be read: {lost}", address, reached=True)
            return attempt(context, message, work, sending, never, began, hope=False)
        except NoSequence as none:
            never = changed(_never(none.detail, address, reached=True), error_code=none.code)
            return attempt(context, message, work, sending, never, began, hope=False)
        outcome = await self._attempt(outgoing, sending, form, address)
        if _is_best_effort(message, sending) and outcome.result is Input.UNANSWERED:
            outcome = changed(outcome, result=Input.LEFT)
        outcome = changed(outcome, peer=address, wire_bytes=form.length)
        good = (message, work, sending, outcome, began, outgoing.probes)
        return good if is_good(context, message, outcome) else self._after(*good)

    def _after(
        self,
        message: Message,
        work: Work,
        sending: Sending,
        outcome: Outcome,
        began: datetime,
        probes: bool,
    ) -> Step:
        """The step after an attempt."""
        args = (message, work, sending, outcome, began, sending.later, probes)
        return attempt(self._context, *args)

    def _attempts_ended(self, tx: Transaction, ended: Sequence[Good]) -> list[Done | None]:
        """What `_after` writes for each of those that came to a good end."""
        context = self._context
        endings = [Ending(message, outcome, began) for message, _, _, outcome, began, _ in ended]
        if not GoodEnd(context, endings, context.clock()).write(tx):
            return [self._after(*one)(tx) for one in ended]
        tx.finish_works([work.id for _, work, *_ in ended], context.owner)
        return [Done(State.ACKNOWLEDGED, one.outcome.peer) for one in endings]

    async def _in_sequence(self, outgoing: Outgoing, sending: Sending) -> Outgoing:
        """A message whose sequence is gone goes into the next one, under another number."""
        context, message = self._context, outgoing.message
        name, now = message.message_id, context.clock()
        if await context.store.look(lambda reader: is_ready(reader, name, now)):
            return outgoing
        sent = self._sent(outgoing).user_message
        place = await self.sequences.place(name, key_of(sending, sent), sending)
        if place.packed:
            return outgoing
        made = repackaged(context, message, sent, sending, place)

        def step(tx: Transaction) -> Message | None:
            before, stored = message.envelope, tx.keep(made.envelope)
            if not tx.change_message(
                Side.SENDING, name, _SENDABLE, envelope=stored, seal=made.seal
            ):
                tx.drop(stored)
                return None
            if before is not None:
                tx.drop(before)
            packed_in(tx, name, place, now)
            return tx.message(Side.SENDING, name)

        found = await context.store.run(step)
        if found is None:
            return outgoing
        return changed(outgoing, message=found, sent=None, made=None)

    async def _made(self, outgoing: Outgoing, sending: Sending) -> Outgoing | None:
        """A fragment with its source, signed and durable; None: nobody needs it any more."""
        found = await self._fragmenting.ready(outgoing.message, sending)
        return None if found is None else changed(outgoing, whole=found[0], message=found[1])

    def _sending(self, message: Message) -> Sending:
        in_force = self._context.in_force
        if message.side is not Side.FORWARDING:
            return in_force.sending_of(message)
        sending = in_force.forwarding(message.pmode or "", message.leg)
        if not message.best_effort:
            return sending
        # Nobody sends a signal again when it is lost on the way, so it is tried for long.
        policy = SIGNALS if message.signal else ONCE
        return dataclasses.replace(sending, policy=policy, awaits=False, later=False)

    async def _settle(self, outgoing: Outgoing, step: Step | Good) -> None:
        """Make the outcome durable, and tell those who wait for it."""
        context, message = self._context, outgoing.message
        if isinstance(step, tuple):
            done = await self._end_well(step)
        else:
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
        for one in outgoing.units or (message,):
            context.settled.tell(one.part_of or one.message_id)
        context.told()
        _log.info(
            done.state.value,
            extra={"message_id": message.message_id, "peer": done.peer, "detail": done.detail},
        )

    def _form(
        self, outgoing: Outgoing, sending: Sending, address: str, began: datetime
    ) -> WireForm:
        """The message as it goes over the wire."""
        message, store = outgoing.message, self._context.store
        assert message.envelope is not None
        if outgoing.whole:
            return self._fragmenting.form(outgoing.whole, message, sending)
        contents: list[Content]
        if outgoing.made is not None:
            envelope = outgoing.made.envelope
            contents = [part.content for part in outgoing.made.parts]
        else:
            envelope = self._envelope(outgoing)
            contents = [store.content(part.stored) for part in _parts(outgoing)]
        if sending.dialect is not None:
            # The same time whenever it is sent, so that copies are the same.
            first = message.first_sent_at or began
            envelope = transmitted(self._context, sending, envelope, address, first, message)
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
            for part, content in zip(_parts(outgoing), contents, strict=True)
        ]
        return wire_form(VERSIONS[message.soap], envelope, parts, message.boundary)

    def _request(
        self, message: Message, sending: Sending, form: WireForm, url: str, catch: Catch | None
    ) -> Request:
        """What is posted; a reply, which may be large, is caught as it comes."""
        limits = self._context.limits
        return Request(
            url,
            form.content_type,
            _body(form, at_hand=_was_just_read(message)),
            soap_action(form, sending.dialect),
            sending.tls,
            self._patience(message, sending),
            reply_bytes=limits.envelope_bytes if catch is None else limits.message_bytes,
            reader=None if catch is None else catch.reader,
            # What is sent again waits for its answer, as HTTP advises. [P2-6.3.2-01]
            pipelined=sending.pipelined and message.tries == 0,
        )

    def _patience(self, message: Message, sending: Sending) -> Timeouts:
        """How long an answer is waited for: not longer than until the next retry.

        For a reply as long as for any answer: the partner's application gives it.
        """
        policy = sending.policy
        if policy.retries == 0 or sending.asks:
            return self._timeouts
        wait = wait_after(policy, message.tries + 1).total_seconds()
        return changed(self._timeouts, answer=min(self._timeouts.answer, max(wait, _LEAST_WAIT)))

    async def _attempt(
        self, outgoing: Outgoing, sending: Sending, form: WireForm, address: str
    ) -> Outcome:
        message = outgoing.message
        catch = Catch(self._context) if sending.asks else None
        try:
            if is_mail(address):
                await self._mail.send(form, address, message.message_id)
                return Outcome(Input.UNANSWERED if sending.awaits else Input.LEFT)
            request = self._request(message, sending, form, address, catch)
            reply = await self._posted(outgoing, sending, form, request)
            if catch is not None and catch.size and _is_soap(reply.content_type):
                return await self._replied(outgoing, sending, reply, catch)
        except TransportFailure as failure:
            if not failure.transmitted:
                return _never(failure.reason)
            return Outcome(Input.UNANSWERED, detail=failure.reason, reached=False)
        finally:
            if catch is not None:
                catch.drop()
        return await self._answered(outgoing, sending, reply)

    async def _posted(
        self, outgoing: Outgoing, sending: Sending, form: WireForm, request: Request
    ) -> Reply:
        restarts, again = sending.restarts, outgoing.message.attempts > 0
        return await posted(self._client, request, form, restarts=restarts, began_before=again)

    async def _replied(
        self, outgoing: Outgoing, sending: Sending, reply: Reply, catch: Catch
    ) -> Outcome:
        """The response to a request: its reply, or what is said in the place of one."""
        context, request = self._context, outgoing.message
        match = context.in_force.match(request.pmode, 2)
        assert context.take_reply is not None
        if match is None:
            # It cannot be read. Who sends the request again gets the same.
            removed = "its P-Mode was removed while its reply was waited for"
            return Outcome(Input.UNANSWERED, detail=removed)
        try:
            capture = catch.close()
            name, peer = request.message_id, sending.address
            given = await context.take_reply(capture, catch.size, match, peer, name)
            if given is None:
                hearing = await self._heard(outgoing, sending, capture)
                moves = hearing.moves_reply and has_alternate(context, request)
                if hearing.said is None and moves:
                    return Outcome(Input.LEFT, hearing)
                return changed(_spoken(hearing, reply.status), reached=reply.status < 500)
        except EbmsError as error:
            return _spoken(Hearing(b"", "", (), (error,)), reply.status)
        found, taken = given
        if found.match is None or (found.match.pmode.id, found.match.number) != (request.pmode, 2):
            # Who signs for another P-Mode says nothing about this request.
            found.messaging = None
        hearing = judged(found, capture, sending.match, self._sent(outgoing), on_response=True)
        said = hearing.said
        if said is not None:
            return Outcome(said.input, hearing, said.error_code, said.detail)
        if taken:
            return Outcome(Input.LEFT, hearing)
        detail = "the reply to it was refused, and nothing else was said about it"
        return Outcome(Input.UNANSWERED, hearing, None, detail)

    async def _answered(self, outgoing: Outgoing, sending: Sending, reply: Reply) -> Outcome:
        """What the partner's reply makes of the message."""
        trouble = reply.status >= 500
        if reply.body and _is_soap(reply.content_type):
            hearing = await self._hear(outgoing, sending, reply)
            outcome = _spoken(hearing, reply.status)
            # In SOAP 1.1 all faults are a 500.
            there = sending.reliable is not None and bool(hearing.heard)
            return changed(outcome, reached=there or not trouble)
        answer = status_said(reply.status)
        if answer is not Answer.NOTHING:
            said = f"the partner answered HTTP {reply.status}"
            return Outcome(ANSWERS[answer], detail=said, reached=not trouble)
        if not sending.awaits:
            return Outcome(Input.LEFT)
        if sending.wsr is not None and sending.wsr.pattern == "Poll":
            return await self._polled(outgoing, sending)
        if sending.later:
            return Outcome(Input.UNANSWERED)
        said = f"the partner answered HTTP {reply.status} without a receipt"
        return Outcome(Input.UNANSWERED, None, MISSING_RECEIPT, said)

    async def _polled(self, outgoing: Outgoing, sending: Sending) -> Outcome:
        """Ask for the acknowledgment of a message that has just been sent."""
        context, message, now = self._context, outgoing.message, self._context.clock()
        how = signing(sending.match.leg, sending.material.signing)
        version = VERSIONS[message.soap]
        asking = write_poll(
            message.message_id, version, message_id=context.new_id(now), now=now, how=how
        )
        try:
            reply = await sent_alone(context, self._client, asking, sending.address, sending.tls)
        except NoSequence as unheard:
            return Outcome(Input.UNANSWERED, detail=unheard.detail)
        if not reply.body or not _is_soap(reply.content_type):
            return Outcome(Input.UNANSWERED, detail="the partner has not acknowledged it yet")
        return _spoken(await self._hear(outgoing, sending, reply), reply.status)

    async def _hear(self, outgoing: Outgoing, sending: Sending, reply: Reply) -> Hearing:
        context = self._context
        try:
            capture = _captured(reply, context)
            if sending.dialect is not None:
                return await self._hear_ebxml(outgoing, sending, capture, reply)
            return await self._heard(outgoing, sending, capture)
        except EbmsError as error:
            return Hearing(b"", "", (), (error,))

    async def _heard(self, outgoing: Outgoing, sending: Sending, capture: Capture) -> Hearing:
        context, sent = self._context, self._sent(outgoing)
        if sending.reliable is not None:
            sequence = sent_sequence(self._envelope(outgoing), context.limits)
            args = (capture, sending.match, sent, sequence, sending.address)
            return await hear_response(context, *args)
        if sending.wsr is not None:
            return await hear_reply(context, capture, sending.match, sent)
        return await hear(context, capture, sending.match, sent, context.clock(), on_response=True)

    async def _hear_ebxml(
        self, outgoing: Outgoing, sending: Sending, capture: Capture, reply: Reply
    ) -> Hearing:
        """What the response says; where it is a message for the application, it is taken in too."""
        context = self._context
        look = Look(capture, context.in_force.lens(context.clock(), context.store.new_sink))
        if await context.read(look):
            await context.judge((look, context.in_force.answer_terms(sending.match)))
        message = outgoing.message
        sent = sent_ebxml(self._envelope(outgoing), context.limits)
        hearing = heard_ebxml(
            look.found,
            capture,
            sending.match,
            sent,
            message.side,
            sending.addresses,
            own_addresses(context, sending.match),
            on_response=True,
        )
        if context.take_in is not None and is_for_application(look.found):
            await context.take_in(capture, sending.addresses[0], len(reply.body))
        elif context.pass_on is not None and message.side is Side.FORWARDING:
            await context.pass_on(capture, sending.addresses[0], len(reply.body))
        return hearing

    def _envelope(self, outgoing: Outgoing) -> bytes:
        stored = outgoing.message.envelope
        assert stored is not None
        return read_all(self._context.store.content(stored), stored.size)

    def _sent(self, outgoing: Outgoing) -> SentMessage:
        if outgoing.sent is not None:
            return outgoing.sent
        return sent_message(self._envelope(outgoing), self._context.limits)


def _parts(outgoing: Outgoing) -> list[StoredPart]:
    """Of a message, or of all units of a bundle."""
    return [part for one in outgoing.units or (outgoing.message,) for part in one.parts]


def _is_best_effort(message: Message, sending: Sending) -> bool:
    """Whether it is sent once and nobody asks what became of it. [MS098-10.2.1-06]"""
    return sending.dialect is not None and not sending.awaits and not message.signal


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
    refused = said is not None and said.by_error and said.input is Input.REFUSED
    if said is not None and refused and status >= 500:
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


def _body(form: WireForm, *, at_hand: bool) -> Body:
    length = form.length
    if length <= IN_ONE_PIECE:
        return form.whole()
    return Pieces(length, form.pieces, at_hand and length <= _AT_HAND)


def _was_just_read(message: Message) -> bool:
    """A fragment is digested right before it is sent, the first time; encrypting takes longer."""
    return message.part_of is not None and message.attempts == 0 and message.seal is None


def soap_action(form: WireForm, dialect: Dialect | None) -> tuple[tuple[str, str], ...]:
    """SOAP 1.1 asks for a SOAPAction, even an empty one; ebXML has its own."""
    if dialect is not None:
        return (("SOAPAction", '"ebXML"'),)
    return (("SOAPAction", '""'),) if form.media_type == "text/xml" else ()


def _is_soap(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind in ("application/soap+xml", "text/xml", "multipart/related")
