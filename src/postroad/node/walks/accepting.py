"""User messages, once they were looked at: refused with errors, or taken over and answered.

What is taken over is committed together with its receipt; a bundle is, with those of all its units.
"""

import logging
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from postroad.agreement.channels import collected_at
from postroad.agreement.matching import Match
from postroad.agreement.places import alternate_of, is_pulled, is_response
from postroad.agreement.reliable import Reliable, wsr_of, wsrm_of
from postroad.msh.answers import (
    Answer,
    error,
    errors_are_response,
    receipt,
    wants_receipt,
)
from postroad.msh.joined import group_ids, is_fragment
from postroad.msh.securing import signs
from postroad.msh.unbundling import ReceivedUnit, Unbundled, unbundle
from postroad.node.base.context import Context
from postroad.node.base.requests import NO_CONTENT, Handed, Response
from postroad.node.bundles.unbundling import (
    CONTRADICTS,
    Taken,
    Unbundling,
    bundle_references,
    reject_all,
)
from postroad.node.large.gathering import Gathering, Outcome
from postroad.node.steps.answering import written
from postroad.node.steps.arrival import Arrival, is_too_old
from postroad.node.steps.calling import SOON, Riding, way_back
from postroad.node.steps.fragment_groups import new_group, terms_of
from postroad.node.steps.handing import Handing
from postroad.node.steps.identity import is_signed_by_partner
from postroad.node.steps.keeping import (
    LONGEST_ID,
    Answering,
    Given,
    keep,
    unsupported,
    user_message_of,
)
from postroad.node.steps.noting import note_problems, note_refusal
from postroad.node.steps.partners import show_life
from postroad.node.steps.senders import about_stored
from postroad.node.walks.listening import listen
from postroad.node.wsrm.destination import Destinations, InSequence, sequence_problems
from postroad.node.wsrm.hearing import took
from postroad.node.wsrm.wsreliability import ReliableReceiving, request_problems
from postroad.store.interface import StoreFull, Transaction
from postroad.store.records import INBOX, Offer, Side, Signal, State, Work
from postroad.wire.content import read_all
from postroad.wire.ebms3 import Reference, SignalMessage, UserMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import PUSH_AND_PUSH
from postroad.wire.soap import SoapVersion
from postroad.wire.wsreliability import ESCALATED

_log = logging.getLogger("postroad.receive")


class Accepting:
    """Takes over what holds, and refuses the rest."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handing = Handing(context)
        self.destinations = Destinations(context)
        self.reliably = ReliableReceiving(context)

    async def take(self, arrival: Arrival) -> Response:
        """A user message: refused with errors, or accepted and answered by its receipt."""
        found = arrival.found
        problems = [one for one in found.problems if one.severity is Severity.FAILURE]
        messages = found.messaging.user_messages if found.messaging else ()
        bundle: Unbundled | None = None
        fragment = is_fragment(found)
        if found.messaging is not None and len(found.messaging.units) > 1 and not fragment:
            await self._hear_beside(arrival)
            bundle = unbundle(found)
            problems = list(bundle.failures)
        if not problems:
            problems = unsupported(found, arrival.responds)
        match = found.match
        taking = self._context.in_force.taking(match) if match is not None else None
        if not problems and taking is not None and not taking.ours:
            problem = self._not_for_us(messages[0])
            # Who is not the receiver does not speak for it: no call-back, no signature.
            return await self._refuse(arrival, None, [problem])
        if not problems and match is not None and taking is not None:
            if not (taking.usual and _is_usual(arrival)):
                judged = await self._unusual(arrival, match, messages)
                if isinstance(judged, Response):
                    return judged
                problems = judged
            elif len(messages) == 1:
                problems = self._too_old(messages[0], arrival.now)
        if fragment and match is not None and (not problems or _proven(arrival)):
            return await self._fragment(arrival, messages[0], match, problems)
        if problems or match is None:
            return await self._refuse(arrival, match if _proven(arrival) else None, problems)
        if bundle is not None and len(messages) > 1:
            return await self._accept_bundle(arrival, bundle, match)
        return await self._accept(arrival, messages[0], match)

    async def _unusual(
        self, arrival: Arrival, match: Match, messages: Sequence[UserMessage]
    ) -> Response | list[EbmsError]:
        """Where the way that a message comes matters, or a protocol beside: what is wrong."""
        found = arrival.found
        problems = _way(arrival, match)
        if problems and arrival.pulled is None:
            return await self._refuse(arrival, None, problems)
        if problems and await self._is_taken(messages):
            # Somebody on the way gave it to another request as well: a copy is no failure.
            problems = []
        if not problems and len(messages) == 1:
            problems = self._too_old(messages[0], arrival.now)
        if not problems and found.wsr_broken:
            broken = await self.reliably.broken(arrival, match)
            if broken is not None:
                return broken
        if not problems and arrival.joined is None:
            problems = sequence_problems(found, match) or request_problems(found, match)
        if not problems and arrival.on_connection:
            expectation, shown = self._context.in_force.expectation, arrival.client_certificate
            revocation = self._context.in_force.revocation
            problems = expectation.check_client(match, shown, arrival.now, revocation)
        return problems

    async def _hear_beside(self, arrival: Arrival) -> None:
        """Receipts and errors beside user messages: judged by the terms of what they are about."""
        messaging = arrival.found.messaging
        refs = [
            one.message_info.ref_to_message_id
            for one in (messaging.signals if messaging else ())
            if one.pull_request is None
        ]
        # Who waits for the response to a request hears what is said about that.
        refs = [ref for ref in refs if ref is None or ref != arrival.responds]
        if refs:
            await listen(
                self._context,
                None,
                arrival.capture,
                refs,
                arrival.peer,
                arrival.now,
                pulled=arrival.pulled is not None,
            )

    def _not_for_us(self, message: UserMessage) -> EbmsError:
        said = f"this is {self._context.party}, not the receiver {message.to_party}"
        return EbmsError("EBMS:0010", said, location="eb:To")

    async def _is_taken(self, messages: Sequence[UserMessage]) -> bool:
        """Whether there is a message under the same id already."""
        name = messages[0].message_info.message_id
        known = await self._context.store.look(
            lambda reader: reader.messages_of_id(Side.RECEIVING, name)
        )
        return len(messages) == 1 and any(one.state is not State.REJECTED for one in known)

    def _too_old(self, message: UserMessage, now: datetime) -> list[EbmsError]:
        made = message.message_info.timestamp
        if not is_too_old(self._context, made, now):
            return []
        said = f"the message was made at {made:%Y-%m-%d}, longer ago than messages are kept here"
        return [EbmsError("EBMS:0003", said, location="eb:MessageInfo/eb:Timestamp")]

    async def _accept(self, arrival: Arrival, message: UserMessage, match: Match) -> Response:
        context = self._context
        usual = context.in_force.taking(match).usual
        # What was joined came in fragments, and these had the numbers. [P2-4.4.2-05]
        agreed = None if usual or arrival.joined is not None else wsrm_of(match.leg)
        if agreed is not None:
            return await self._accept_in_sequence(arrival, message, match, agreed)
        reliably = None if usual else wsr_of(match.leg)
        if reliably is not None:
            return await self._accept_reliably(arrival, message, match, reliably)
        how, signal = await self._prepared(arrival, message, match)
        step = keep(context, arrival, message, match, how)
        given = await arrival.run(context.store, step, _is_taken)
        if given.contradicts:
            # Who brought fragments proved itself, and has no response to read it in.
            to = match if arrival.joined is not None else None
            return await self._refuse(arrival, to, [CONTRADICTS])
        if given.refused is not None:
            proven = match if _proven(arrival) else None
            return await self._refuse(arrival, proven, [given.refused])
        await self._settled(arrival, message, match, how, given, signal)
        if not usual and is_response(match.pmode, match.number) and given.state in INBOX:
            return Response(202, awaits=given.stored_id)
        if given.answer is None:
            return NO_CONTENT
        stored, content_type, status = given.answer
        if how.answer is not None and not given.duplicate:
            body = how.answer.envelope
        else:
            body = read_all(context.store.content(stored), stored.size)
        return Response(status, content_type, body, self._handed(given))

    async def _accept_reliably(
        self, arrival: Arrival, message: UserMessage, match: Match, agreed: Reliable
    ) -> Response:
        """A message with WS-Reliability: acknowledged once it is stored, or refused by a fault."""
        context = self._context
        how, signal = await self._prepared(arrival, message, match)
        taken = await context.store.run(self.reliably.keep(arrival, message, match, agreed, how))
        if taken.reply.fault is not None:
            detail = f"WS-Reliability: {taken.reply.fault.value}"
            await note_refusal(context, ESCALATED[taken.reply.fault], detail, arrival)
        elif taken.given is not None:
            await self._settled(arrival, message, match, how, taken.given, signal)
        if taken.back is not None and context.begin is not None:
            context.begin(taken.back)
        return self.reliably.response(taken, arrival, match, agreed)

    async def _accept_in_sequence(
        self, arrival: Arrival, message: UserMessage, match: Match, agreed: Reliable
    ) -> Response:
        """A message in a sequence: the sequence is acknowledged, as far as it came."""
        context = self._context
        how, signal = await self._prepared(arrival, message, match)
        step = self.destinations.keep(arrival, message, match, agreed, how)
        taken = await context.store.run(step)
        given, proven = taken.given, match if _proven(arrival) else None
        if taken.problem is not None:
            return await self._refuse(arrival, proven, [taken.problem])
        if given is not None and given.contradicts:
            return await self._refuse(arrival, None, [CONTRADICTS])
        if given is not None and given.refused is not None:
            return await self._refuse(arrival, proven, [given.refused])
        if given is not None:
            await self._settled(arrival, message, match, how, given, signal)
        return await self._in_sequence_response(taken, arrival, match)

    async def _prepared(
        self, arrival: Arrival, message: UserMessage, match: Match
    ) -> tuple[Answering, SignalMessage | None]:
        """What is made before the step: the receipt, if one was agreed on; large parts on disk."""
        answer = signal = None
        if self._context.in_force.taking(match).wants_receipt:
            now = arrival.now
            named = self._context.new_id(now)
            signal = receipt(arrival.found, message, match, signal_id=named, now=now)
            answer = written(self._context, arrival, signal, match)
        await arrival.persist(self._context.store)
        return self._answering(answer, arrival, message, match), signal

    async def _fragment(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        problems: Sequence[EbmsError],
    ) -> Response:
        """A part of a larger message: its group decides. Nothing of it is the response."""
        context, now = self._context, arrival.now
        terms = terms_of(context, match)
        if terms is None:
            said = "this is a fragment, and the P-Mode has no splitting"
            wrong = EbmsError("EBMS:0010", said, location="mf:MessageFragment")
            return await self._refuse(arrival, match if _proven(arrival) else None, [wrong])
        answer = signal = None
        if wants_receipt(match.leg) and not problems:
            signal = receipt(arrival.found, message, match, signal_id=context.new_id(now), now=now)
            answer = written(context, arrival, signal, match)
        how = self._answering(answer, arrival, message, match)
        gathering = Gathering(context, arrival, match, terms, how)
        agreed, in_sequence = wsrm_of(match.leg), InSequence()
        try:
            if problems:
                outcome = await gathering.refuse(problems)
            else:
                await arrival.persist(context.store)
                if agreed is None:
                    outcome = await gathering.take()
                else:
                    in_sequence, outcome = await self._fragment_in_sequence(
                        arrival, message, match, agreed, gathering
                    )
        except StoreFull:
            outcome = await gathering.no_room()
        if outcome.contradicts:
            return await self._refuse(arrival, match, [CONTRADICTS])
        if in_sequence.problem is not None:
            proven = match if _proven(arrival) else None
            return await self._refuse(arrival, proven, [in_sequence.problem])
        if in_sequence.fault is not None:
            return await self.destinations.response(in_sequence, arrival, match)
        if outcome.given is not None:
            if outcome.group is not None and outcome.stored is not None:
                await context.ahead.came(outcome.group, outcome.stored, terms)
            await self._settled(arrival, message, match, how, outcome.given, signal)
        else:
            for group_id in group_ids(arrival.found):
                context.ahead.forget(new_group(message, match, group_id).key)
            self._tell_refused(message.message_info.message_id, arrival.peer, outcome.errors)
        context.work_came.set()
        if agreed is None:
            return NO_CONTENT
        return await self._in_sequence_response(in_sequence, arrival, match)

    async def _fragment_in_sequence(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        agreed: Reliable,
        gathering: Gathering,
    ) -> tuple[InSequence, Outcome]:
        """A fragment in a sequence: taken or known by its number, and acknowledged."""
        outcome = Outcome()

        def take(tx: Transaction) -> Given | None:
            nonlocal outcome
            outcome = gathering.step(tx)
            return outcome.given

        step = self.destinations.keep_fragment(arrival, message, match, agreed, take)
        found = await self._context.store.run(step)
        if found.repeats:
            outcome = Outcome(found.given)
        if found.given is not None and found.given.refused is not None:
            found = InSequence()
        return found, outcome

    async def _settled(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        how: Answering,
        given: Given,
        signal: SignalMessage | None,
    ) -> None:
        """What follows once a message is taken over, or found to be a copy."""
        if given.again is not None:
            await self._answer_again(given.again, message, match)
        self._settle(arrival, message, how, given, signal)
        event = "duplicate" if given.duplicate else given.state.value
        self._tell_taken(event, [message.message_info.message_id])
        self._tell_differing(message, arrival, given)
        await show_life(self._context, str(message.from_party))

    def _settle(
        self,
        arrival: Arrival,
        message: UserMessage,
        how: Answering,
        given: Given,
        signal: SignalMessage | None,
    ) -> None:
        context = self._context
        if given.duplicate and how.back is not None:
            context.work_came.set()
        if given.back is not None:
            if arrival.ride is not None and signal is not None:
                arrival.ride(Riding(given.back.id, given.back.message_id, signal))
            elif context.begin is not None:
                context.begin(given.back)
        if message.message_info.ref_to_message_id is not None:
            context.settled.tell(message.message_info.ref_to_message_id)

    def _tell_differing(self, message: UserMessage, arrival: Arrival, given: Given) -> None:
        """Warn that a partner sent other contents under a known id: they are dropped."""
        if given.differs is not None:
            ref = message.message_info.message_id
            extra = {"message_id": ref, "peer": arrival.peer, "detail": given.differs}
            _log.warning("duplicate with other contents", extra=extra)

    def _tell_taken(self, event: str, ids: Sequence[str]) -> None:
        """What became of some messages, for who counts and who reads the log."""
        self._context.count("messages", len(ids), side="receiving", event=event)
        self._context.told()
        if _log.isEnabledFor(logging.INFO):
            for one in ids:
                _log.info(event, extra={"message_id": one})

    async def _accept_bundle(self, arrival: Arrival, bundle: Unbundled, primary: Match) -> Response:
        """The units of a bundle: each taken over, known or refused; all answered together."""
        context = self._context
        await arrival.persist(self._context.store)
        arrival.bundle = bundle.units[0].message.message_info.message_id
        later: dict[int, EbmsError] = {}
        hows: list[Answering | None] = []
        signals: list[SignalMessage | None] = []
        references = bundle_references(arrival.found, bundle)
        taking = context.in_force.taking(primary)
        on_response = taking.responds and arrival.on_connection
        with_all = self._answering(None, arrival, bundle.units[0].message, primary)
        for number, unit in enumerate(bundle.units):
            how: Answering | None = with_all
            signal: SignalMessage | None = None
            if unit.match is None:
                how = None
            else:
                problem = self._unit_problem(unit, unit.match, arrival.now)
                if problem is not None:
                    later[number] = problem
                if not on_response and context.in_force.taking(unit.match).wants_receipt:
                    given = (arrival, unit.message, unit.match, primary, references[number])
                    how, signal = self._unit_answering(*given)
            hows.append(how)
            signals.append(signal)
        unbundling = Unbundling(context, arrival, bundle, hows, later, references)
        single = not taking.usual and arrival.joined is None
        agreed = wsrm_of(primary.leg) if single else None
        if agreed is not None:
            in_sequence, taken = await self._units_in_sequence(arrival, bundle, agreed, unbundling)
            if in_sequence.problem is not None:
                proven = primary if _proven(arrival) else None
                return await self._refuse(arrival, proven, [in_sequence.problem])
        else:
            taken = await unbundling.take()
        events: dict[str, list[str]] = {}
        for number, one in taken.given.items():
            message, how, signal = bundle.units[number].message, hows[number], signals[number]
            assert how is not None
            if one.again is not None:
                await self._answer_again(one.again, message, primary)
            if one.kept is None or how is not with_all or message.message_info.ref_to_message_id:
                self._settle(arrival, message, how, one, signal)
            event = "duplicate" if one.duplicate else one.state._value_
            events.setdefault(event, []).append(message.message_info.message_id)
            self._tell_differing(message, arrival, one)
        for event, ids in events.items():
            self._tell_taken(event, ids)
        if events:
            await show_life(context, str(bundle.units[0].message.from_party))
        for number, problems in taken.failed.items():
            ref = bundle.units[number].message.message_info.message_id
            self._tell_refused(ref, arrival.peer, problems)
        if taken.back:
            context.work_came.set()
        if agreed is not None:
            return await self._in_sequence_response(in_sequence, arrival, primary)
        if taken.again is not None:
            stored, content_type, status = taken.again
            body = read_all(context.store.content(stored), stored.size)
        elif taken.answer is not None:
            body, content_type, status = taken.answer.envelope, taken.answer.content_type, 200
        else:
            return NO_CONTENT
        return Response(status, content_type, body, self._handed_all(taken))

    async def _units_in_sequence(
        self, arrival: Arrival, bundle: Unbundled, agreed: Reliable, unbundling: Unbundling
    ) -> tuple[InSequence, Taken]:
        """A bundle in a sequence: one message of it, taken or known by its number. [P2-3.2.2-08]"""
        taken = Taken({}, {})

        def take(tx: Transaction, holds: bool) -> list[Given]:
            nonlocal taken
            taken = unbundling.step_in_sequence(tx, holds)
            return list(taken.given.values())

        step = self.destinations.keep_units(arrival, bundle.units, agreed, take)
        found = await self._context.store.run(step)
        if found.repeats:
            ids = [one.message.message_info.message_id for one in bundle.units]
            self._tell_taken("duplicate", ids)
        if found.given is not None and found.given.refused is not None:
            # Its number is not taken: it may come again, as a whole.
            found = InSequence()
        return found, taken

    async def _in_sequence_response(
        self, taken: InSequence, arrival: Arrival, match: Match
    ) -> Response:
        """What follows for the sequence once a message in it was taken, or was known."""
        context = self._context
        if taken.back is not None and context.begin is not None:
            context.begin(taken.back)
        rm = arrival.found.rm
        if rm is not None and rm.acknowledgements and arrival.pulled is None:
            # What rides along is about messages of ours.
            speaker = str(user_message_of(arrival.found).from_party)
            await took(
                context, arrival.found, match, arrival.peer, speaker=speaker, in_request=True
            )
        return await self.destinations.response(taken, arrival, match)

    def _unit_problem(self, unit: ReceivedUnit, match: Match, now: datetime) -> EbmsError | None:
        """What keeps a unit of a bundle from being taken, and not its neighbours."""
        if unit.failures:
            return None
        taking = self._context.in_force.taking(match)
        if not taking.ours:
            return self._not_for_us(unit.message)
        if not taking.usual and is_response(match.pmode, match.number):
            said = "a request that waits for its reply on the connection is not taken in a bundle"
            return EbmsError("EBMS:0008", said, location="eb:Messaging")
        return next(iter(self._too_old(unit.message, now)), None)

    def _unit_answering(
        self,
        arrival: Arrival,
        message: UserMessage,
        match: Match,
        primary: Match,
        references: Sequence[Reference],
    ) -> tuple[Answering, SignalMessage]:
        """How a unit is answered whose receipt goes where the primary's receipts go."""
        named, now = self._context.new_id(arrival.now), arrival.now
        signal = receipt(
            arrival.found, message, match, signal_id=named, now=now, references=references
        )
        answer = written(self._context, arrival, signal, match)
        return self._answering(answer, arrival, message, primary), signal

    def _handed_all(self, taken: Taken) -> Handed | None:
        """Whom to tell whether the answer was handed over, for all units that wait for it."""
        handed = [one for given in taken.given.values() if (one := self._handed(given)) is not None]
        if not handed:
            return None

        async def tell(taken: bool) -> None:
            for one in handed:
                await one(taken)

        return tell

    def _answering(
        self, answer: Answer | None, arrival: Arrival, message: UserMessage, match: Match
    ) -> Answering:
        """How the P-Mode has a message answered."""
        context = self._context
        taking = context.in_force.taking(match)
        as_response = taking.responds and arrival.on_connection
        back = None
        if answer is not None and not as_response:
            back = way_back(context, match, answer, message)
        waits = not taking.usual and is_response(match.pmode, match.number)
        rides, aware = waits and not match.test, taking.aware
        if isinstance(back, Work) and not (aware and aware.ack_after_delivery):
            later = arrival.ride is not None
            back = replace(back, due_at=arrival.now + SOON) if later else context.claimed(back)
        if aware is None:
            return Answering(answer, as_response, back, rides=rides)
        after, strict = aware.ack_after_delivery, aware.strict_ack
        return Answering(answer, as_response, back, after, strict, rides)

    def _handed(self, given: Given) -> Handed | None:
        """Whom to tell whether the answer was handed over."""
        number = given.held_by
        if number is None:
            return None
        self._context.in_hand.add(number)
        return lambda taken: self._handing.handed(given.stored_id, number, taken)

    async def _answer_again(self, first: Signal, message: UserMessage, match: Match) -> None:
        """The receipt that is not the response may have been lost: it is sent once more."""
        context = self._context
        envelope = read_all(context.store.content(first.envelope), first.envelope.size)
        version = next(one for one in SoapVersion if first.content_type.startswith(one.media_type))
        answer = Answer(first.signal_id, first.kind, version, envelope)
        message_id = first.message_id
        back = about_stored(way_back(context, match, answer, message), message_id)
        if back is None:
            return

        def step(tx: Transaction) -> None:
            if isinstance(back, Offer):
                tx.add_offer(back)
                return
            known = tx.message(Side.RECEIVING, message_id)
            if known is None or (known.timer is not None and tx.work(known.timer) is not None):
                return
            number = tx.add_work(back)
            tx.change_message(Side.RECEIVING, message_id, (known.state,), timer=number)

        await context.store.run(step)

    async def _refuse(
        self, arrival: Arrival, match: Match | None, problems: Sequence[EbmsError]
    ) -> Response:
        """Nothing is delivered; the sender is told why, and the journal too.

        `match` says how the error is signed and where it goes. A sender who proved nothing gets
        it unsigned and at once: what we sign could be shown to who really sent under that id.
        """
        context, found, now = self._context, arrival.found, arrival.now
        messages = found.messaging.user_messages if found.messaging else ()
        ref = messages[0].message_info.message_id or None if messages else None
        signal = error(problems, signal_id=context.new_id(now), ref=ref, now=now)
        answer = written(context, arrival, signal, match)
        if not ref or len(ref) > LONGEST_ID:
            await note_problems(context, problems, arrival)
            return Response(400, answer.content_type, answer.envelope)
        as_response = errors_are_response(match.leg if match else None) and arrival.on_connection
        back, to = None, match or arrival.pulled
        if not as_response and to is not None:
            back = way_back(context, to, answer, messages[0])
        # Of who proved nothing the primary unit is remembered, and no more.
        units = messages if match is not None else messages[:1]
        refuse = reject_all(context, arrival, units, match, problems, answer, back)
        await arrival.run(context.store, refuse)
        if back is not None:
            context.work_came.set()
        self._tell_refused(ref, arrival.peer, problems)
        if back is not None:
            return NO_CONTENT
        # What may be taken later is sent again by who retries.
        later = all(one.code == "EBMS:0202" for one in problems)
        status = 503 if later else 200
        return Response(status, answer.content_type, answer.envelope, come_again=later)

    def _tell_refused(self, ref: str, peer: str | None, problems: Sequence[EbmsError]) -> None:
        context = self._context
        context.count("messages", side="receiving", event="rejected")
        context.count_error(problems[0].code)
        context.told()
        detail = str(problems[0])
        _log.warning("rejected", extra={"message_id": ref, "peer": peer, "detail": detail})


def _way(arrival: Arrival, match: Match) -> list[EbmsError]:
    """A message comes the way that is agreed on: who pulls it knows whom it asked."""
    pmode, index = match.pmode, match.number - 1
    pulled = is_pulled(pmode, index)
    if arrival.responds is not None:
        ref = user_message_of(arrival.found).message_info.ref_to_message_id
        ours = arrival.pulled is not None and arrival.pulled.pmode.id == pmode.id
        if ours and is_response(pmode, index) and ref == arrival.responds:
            return []
        said = "it came as the response to a request that it does not answer"
        return [EbmsError("EBMS:0010", said, location="eb:Messaging")]
    if arrival.pulled is None:
        if is_response(pmode, index) and alternate_of(pmode) != PUSH_AND_PUSH:
            said = "replies of this P-Mode are responses, and this one was pushed"
            return [EbmsError("EBMS:0010", said, location="eb:Messaging")]
        said = "messages of this P-Mode are pulled, and this one was pushed"
        return [EbmsError("EBMS:0010", said, location="eb:Messaging")] if pulled else []
    places = {collected_at(one.pmode, one.leg) for one in (match, arrival.pulled)}
    if (pulled or is_pulled(pmode, index, late=True)) and len(places) == 1:
        return []
    said = "it was pulled where no messages of its P-Mode are"
    return [EbmsError("EBMS:0010", said, location="eb:Messaging")]


def _is_usual(arrival: Arrival) -> bool:
    """Whether a message was pushed, and asks for no reliability beside AS4."""
    found = arrival.found
    return (
        arrival.pulled is None
        and arrival.responds is None
        and found.rm is None
        and found.wsr is None
        and not found.wsr_broken
    )


def _is_taken(given: Given) -> bool:
    """Whether the step is all there is to do: what it refuses is told by another."""
    return not given.contradicts and given.refused is None


def _proven(arrival: Arrival) -> bool:
    """Whether the partner signed what is refused now, or nothing is signed in the first place."""
    found = arrival.found
    if arrival.joined is not None:
        # Its fragments were.
        return True
    if found.match is not None and not signs(found.match.leg):
        return True
    return is_signed_by_partner(arrival)
