"""The link discipline of draft 001 where messages come in: numbers per sender and transport.

Each message, acknowledgement and error travels by itself; a response has no body. [RM001-3.1-02]
What is sent over a link waits in its lane until what went before is acknowledged.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from postroad.agreement.matching import Match
from postroad.agreement.retrying import retry_of
from postroad.agreement.waiting import is_used_up
from postroad.msh.answers import Answer
from postroad.msh.ebxml_link import link_message, read_link_answer, write_link_answer
from postroad.msh.securing import Unsecurable, answer_signing
from postroad.node.base.context import Context
from postroad.node.base.journaling import about, signed
from postroad.node.base.requests import NO_CONTENT, Response
from postroad.node.ebxml.answering import answer_route, call, first_copy, tell_refused
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.duplicates import is_copy
from postroad.node.steps.keeping import (
    Contradiction,
    about_nothing,
    add_instead,
    kept_message,
    sent_signal,
    user_message_of,
)
from postroad.node.steps.notifying import notification
from postroad.node.steps.noting import is_journaled
from postroad.node.steps.outcome import waiting_name
from postroad.node.steps.partners import left_alone, stopped_with
from postroad.node.steps.senders import stored_as, stored_message
from postroad.reliability import link, link_receiver
from postroad.reliability.breaker import address_name
from postroad.reliability.link_receiver import Onward, ReceiverState, ReceiverStep, Rules
from postroad.store import records
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Side, State
from postroad.wire.ebxml import EbxmlMessage
from postroad.wire.errors import EbmsError

if TYPE_CHECKING:
    from postroad.node.ebxml.relaying import Relaying


_AT_WORK: Final = (State.READY, State.WAITING)
_LONGEST_WAIT: Final = 86_400
"""Seconds. Who wants to be left alone for longer is asked again once a day."""


def _name(message: link_receiver.Message) -> str:
    triple = message.triple
    return f"linked:{triple.sender_id.value}\0{triple.receiver_id.value}\0{triple.transport}"


class Linking:
    """The Receiver, and the Router."""

    def __init__(self, context: Context, rules: Rules | None = None) -> None:
        self._context = context
        self._rules = rules or Rules(min_retry_secs=30)

    async def receive(self, arrival: Arrival, message: EbxmlMessage, match: Match) -> Response:
        """A message for this party."""

        def keep(tx: Transaction, answer: Answer | None, after_ack: bool) -> None:
            self._keep(tx, arrival, match, answer)

        return await self._by_number(arrival, message, match, Onward.NOWHERE, keep)

    async def relay(
        self, arrival: Arrival, message: EbxmlMessage, match: Match, relaying: "Relaying"
    ) -> Response:
        """A message for others; none is taken for whom the next one is known to be down."""
        sending = self._context.in_force.forwarding(match.pmode.id, match.number)
        to = str(message.header.to_party)
        known = self._context.stopped(address_name(to, sending.address))
        paused = known is not None
        if known is not None and known.until is not None and known.until <= arrival.now:
            # The pause is over: it needs a message to see whether somebody is there.
            paused = False

        def keep(tx: Transaction, answer: Answer | None, after_ack: bool) -> None:
            relaying.keep(tx, arrival, message, match, answer, None, after_ack=after_ack)

        onward = Onward.DOWN if paused else Onward.OPEN
        return await self._by_number(arrival, message, match, onward, keep)

    async def _by_number(
        self,
        arrival: Arrival,
        message: EbxmlMessage,
        match: Match,
        onward: Onward,
        keep: Callable[[Transaction, Answer | None, bool], None],
    ) -> Response:
        context, now = self._context, arrival.now
        transport = "SMTP" if arrival.by_mail else "HTTP"
        seen = link_message(message, transport)
        name = _name(seen)
        side = Side.RECEIVING if onward is Onward.NOWHERE else Side.FORWARDING

        def stored(reader: Reader) -> tuple[str, records.Message | None]:
            if side is Side.FORWARDING:
                return message.message_id, reader.message(side, message.message_id)
            return stored_as(context, reader, arrival, user_message_of(arrival.found), match)

        first = await first_copy(context, message, lambda reader: stored(reader)[1])
        route = answer_route(
            context, message, match, "acknowledgment", synchronous=False, proven=True, first=first
        )

        def step(tx: Transaction) -> None:
            stored_id, known_before = stored(tx)
            self._same(arrival, message, known_before)
            known = tx.state(name)
            state = (
                ReceiverState(seen.triple)
                if known is None
                else msgspec.json.decode(known, type=ReceiverState)
            )
            after: ReceiverStep = link_receiver.receive(state, seen, self._rules, onward)
            tx.set_state(name, msgspec.json.encode(after.state), now)
            kept = any(
                isinstance(one, link_receiver.Store | link_receiver.Deliver | link_receiver.Forward)
                for one in after.actions
            )
            said = [one for one in after.actions if isinstance(one, link.Ack | link.ErrorMessage)]
            answer = self._written(said[0], message, match, now) if said else None
            acknowledged = answer is not None and answer.kind == "acknowledgment"
            later = _after_forward(match)
            if kept or (onward is not Onward.NOWHERE and known_before is not None):
                keep(tx, answer, acknowledged and route.url is not None and not later)
            else:
                self._discarded(tx, arrival, known_before, said)
            waits = tx.state(waiting_name(message.message_id)) is not None
            if waits and not kept and acknowledged:
                # The first one is still to be passed on.
                tried = known_before is not None and known_before.tries
                answer = self.transient(message, match, now) if tried else None
            if answer is not None and route.url is not None:
                back = call(context, route, answer, message, match, stored_id)
                number = tx.add_work(back)
                if kept and onward is Onward.OPEN and later:
                    tx.postpone_work(number, None)
                    tx.set_state(waiting_name(message.message_id), str(number).encode(), now)

        await context.store.run(step)
        await tell_refused(context, route, message.message_id)
        context.work_came.set()
        context.told()
        return NO_CONTENT

    def _same(
        self, arrival: Arrival, message: EbxmlMessage, before: records.Message | None
    ) -> None:
        """A link knows copies by their number; another message under a known id is none."""
        if before is None or before.state is State.REJECTED:
            return
        number = message.header.sequence_number
        first = msgspec.structs.replace(
            before, sequence_number=None if number is None else number.value
        )
        payloads = next(iter(arrival.found.payloads.values()), ())
        if not is_copy(arrival, user_message_of(arrival.found), payloads, first):
            raise Contradiction

    def transient(self, message: EbxmlMessage, match: Match, now: datetime) -> Answer:
        """The Transient Error about a message that cannot be forwarded now. [RM001-4.3-01]"""
        said = link_receiver.come_again(link_message(message, ""), self._rules)
        return self._written(said, message, match, now)

    def _written(
        self,
        said: link.Ack | link.ErrorMessage,
        message: EbxmlMessage,
        match: Match,
        now: datetime,
    ) -> Answer:
        context = self._context
        try:
            signing = answer_signing(match.leg, context.in_force.keyring.signing)
        except Unsecurable:
            signing = None
        return write_link_answer(
            said,
            message.dialect,
            message_id=context.new_id(now),
            now=now,
            signing=signing,
        )

    def _keep(self, tx: Transaction, arrival: Arrival, match: Match, answer: Answer | None) -> None:
        """Kept and delivered, with the acknowledgement that it gets."""
        context, now = self._context, arrival.now
        user_message = user_message_of(arrival.found)
        stored_id, before = stored_as(context, tx, arrival, user_message, match)
        user_message = stored_message(user_message, stored_id)
        if before is not None and before.state is not State.REJECTED:
            tx.record((about(before, "duplicate", now, peer=arrival.peer),))
            return
        payloads = next(iter(arrival.found.payloads.values()), ())
        kept = kept_message(context, tx, arrival, user_message, match, State.DELIVERED, payloads)
        number = arrival.found.ebxml.trace[-1].sequence_number if arrival.found.ebxml else None
        kept = msgspec.structs.replace(kept, sequence_number=number)
        add_instead(tx, kept, before)
        tx.record(
            (
                about(
                    kept,
                    "received",
                    now,
                    envelope=kept.wire_id,
                    wire_bytes=arrival.size,
                    peer=arrival.peer,
                    evidence=signed(kept),
                ),
                about(kept, "delivered", context.clock()),
            )
        )
        if answer is not None:
            tx.add_signal(sent_signal(kept, answer, tx.keep(answer.envelope), now))
        for work in notification(context, kept, State.DELIVERED, now):
            tx.add_work(work)

    def _discarded(
        self,
        tx: Transaction,
        arrival: Arrival,
        known: records.Message | None,
        said: list[link.Ack | link.ErrorMessage],
    ) -> None:
        """A copy, or a number that cannot be: the journal says so."""
        error = next((one for one in said if isinstance(one, link.ErrorMessage)), None)
        if error is not None:
            context, problem = self._context, EbmsError("Inconsistent", error.detail)
            if is_journaled(context, problem, arrival):
                tx.record((about_nothing(context, problem, arrival),))
            return
        if known is not None:
            tx.record((about(known, "duplicate", arrival.now, peer=arrival.peer),))

    def recovery(
        self, message: EbxmlMessage, sent: records.Message
    ) -> Callable[[Transaction], None] | None:
        """What an error message about a message of ours sets in motion; None: nothing.

        The message is sent again after RetryInterval, or after the suspension of its Receiver that
        a Transient Error asks for. An ebXML Messaging Error ends it. [RM001-2.6.1-01]
        [RM001-2.6.6-01] [RM001-2.6.6-02]
        """
        said = read_link_answer(message)
        match = self._context.in_force.match(sent.pmode, sent.leg)
        policy = retry_of(match.leg) if match is not None else None
        if match is None or policy is None or not isinstance(said, link.ErrorMessage):
            return None
        linked = match.leg.ebxml is not None and match.leg.ebxml.profile == "rm001"
        resends, suspends = link.RECOVERIES[said.error_class]
        if not linked or not resends:
            return None
        context, now, wait = self._context, self._context.clock(), policy.interval
        if suspends and said.min_retry_secs is not None:
            wait = timedelta(seconds=min(said.min_retry_secs, _LONGEST_WAIT))
        why = said.detail or "the partner wants nothing for a time"

        def step(tx: Transaction) -> None:
            found = tx.message(sent.side, sent.message_id)
            at_work = found is not None and found.state in _AT_WORK
            # If the last retry failed too, its Receiver is suspended for longer at once.
            over = found is not None and at_work and is_used_up(policy, found.tries)
            if suspends and not over:
                for name in stopped_with(context, sent):
                    left_alone(context, tx, name, now, wait, why)
            if found is None or not at_work:
                return
            due = now if over else now + wait
            tx.change_message(
                found.side, found.message_id, (found.state,), due_at=due, detail=said.detail
            )
            timer = None if found.timer is None else tx.work(found.timer)
            if timer is not None and timer.owner is None:
                tx.postpone_work(timer.id, due)

        return step


def _after_forward(match: Match) -> bool:
    return match.leg.ebxml is not None and match.leg.ebxml.ack_after_forward
