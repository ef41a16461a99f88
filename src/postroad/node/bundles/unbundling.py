"""The walk in of a bundle: its units taken over in one step, and answered together.

Each unit is kept, known or refused as if it had come alone; the primary's P-Mode says where the
answers go (Part 2, 3.2.2, 3.8). A unit that fails stops those that are related to it, and nobody
else (3.10.3).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.answers import (
    Answer,
    error,
    errors_are_response,
    kept_signals,
    receipt,
    write_answers,
)
from postroad.msh.lens import Inspection
from postroad.msh.routing_headers import error_routing, receipt_routing
from postroad.msh.securing import answer_signing
from postroad.msh.unbundling import ReceivedUnit, Unbundled, related_failed, unit_failures
from postroad.node.base.context import Context
from postroad.node.bundles.newcomers import Newcomers
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.calling import way_back
from postroad.node.steps.keeping import (
    Answering,
    Given,
    first_answer,
    receipt_left,
    reject,
    sent_signal,
    take_over,
)
from postroad.node.steps.senders import stored_as
from postroad.node.steps.sharing import Shared
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Offer, Signal, Stored, Work
from postroad.wire.content import read_all
from postroad.wire.ebms3 import Reference, SignalMessage, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.receipts import unit_references
from postroad.wire.soap import SoapVersion

CONTRADICTS: Final = EbmsError(
    "EBMS:0003",
    "another message was received under this id; give this one an id of its own",
    location="eb:MessageInfo/eb:MessageId",
)
Failures = dict[int, tuple[EbmsError, ...]]


class _Copies(Exception):
    """Some units came before: what they were answered with has to be read first."""


class Taken(Struct, frozen=True):
    """What became of a bundle."""

    given: Mapping[int, Given]
    """Of the units that were taken over, or were known."""
    failed: Mapping[int, tuple[EbmsError, ...]]
    answer: Answer | None = None
    """What goes back at once, whatever signals are in it."""
    again: tuple[Stored, str, int] | None = None
    """What the first copy of the whole bundle was answered with."""
    back: bool = False
    """Errors call back."""


class Unbundling:
    """Takes one bundle over. Ids are drawn before the step, which may run twice."""

    def __init__(
        self,
        context: Context,
        arrival: Arrival,
        bundle: Unbundled,
        hows: Sequence[Answering | None],
        later: Mapping[int, EbmsError],
        references: Sequence[Sequence[Reference]],
    ) -> None:
        """`hows` says how units are answered, `later` what else is wrong with some.

        `references` are those of the signature that are about each unit.
        """
        self._references = references
        self._context = context
        self._arrival = arrival
        self._bundle = bundle
        self._hows = hows
        self._failed = unit_failures(bundle, later)
        primary = bundle.units[0].match
        assert primary is not None
        self._primary: Match = primary
        self._ids = [context.new_id(arrival.now) for _ in bundle.units]
        self._copies: dict[str, SignalMessage] = {}
        self._holds: bool | None = None
        """In a sequence: whether its units wait for those before the bundle."""
        self._errors_respond = errors_are_response(primary.leg) and arrival.on_connection
        taking = context.in_force.taking
        self._respond = taking(primary).responds and arrival.on_connection
        """Receipts are part of the response."""
        self._receipts = [
            unit.match is not None and taking(unit.match).wants_receipt for unit in bundle.units
        ]
        """Which units get one."""

    async def take(self) -> Taken:
        """One step for all units; again where it finds that some came before."""
        while True:
            try:
                return await self._arrival.run(self._context.store, self.step)
            except _Copies:
                self._copies = await self._answered_before()

    def step_in_sequence(self, tx: Transaction, holds: bool) -> Taken:
        """The step for a bundle with a number in a sequence, which says whether its units wait."""
        self._holds = holds
        return self.step(tx)

    async def _answered_before(self) -> dict[str, SignalMessage]:
        """The receipts that units got when they came first."""
        store = self._context.store
        firsts = await store.look(self._first_answers)
        read: dict[Stored, dict[str | None, SignalMessage]] = {}
        found = {}
        for name, first in firsts.items():
            if first is None:
                continue
            stored = first.envelope
            if stored not in read:
                envelope = read_all(store.content(stored), stored.size)
                read[stored] = kept_signals(envelope, self._context.limits)
            found[name] = read[stored][name]
        return found

    def _first_answers(self, reader: Reader) -> dict[str, Signal | None]:
        """What each unit was answered with when it came first, by its MessageId."""
        found = {}
        for unit in self._bundle.units:
            if unit.match is not None:
                args = (self._arrival, unit.message, unit.match)
                stored_id, _ = stored_as(self._context, reader, *args)
                found[unit.message.message_info.message_id] = first_answer(reader, stored_id)
        return found

    def step(self, tx: Transaction) -> Taken:
        """What `take` does."""
        keep = Shared(tx).keep
        given, failed = self._taken_over(tx, keep)
        copies = {one.answer for one in given.values() if one.duplicate}
        if len(given) == len(self._bundle.units) and len(copies) == 1 and _all_copies(given):
            # The whole bundle came before, and is answered as it was then.
            return Taken(given, failed, again=copies.pop())
        responses = self._responses(given, failed)
        answers = self._write(list(responses.values()))
        by_unit = dict(zip(responses, answers, strict=True))
        arrival, now, left = self._arrival, self._context.clock(), []
        for number, one in given.items():
            answer = by_unit.get(number)
            if one.received is not None and answer is not None and self._on_response(number):
                assert one.kept is not None
                stored = keep(answer.envelope)
                tx.add_signal(sent_signal(one.kept, answer, stored, arrival.now))
                left.append(receipt_left(one.received, answer, stored, now, arrival.peer))
        tx.record(left)
        back = self._refused(tx, keep, failed, by_unit)
        return Taken(given, failed, answers[0] if answers else None, back=back)

    def _taken_over(
        self, tx: Transaction, keep: Callable[[bytes], Stored]
    ) -> tuple[dict[int, Given], Failures]:
        """Partition after partition; who fails stops the rest of its own.

        [P2-3.10.3-01] [P2-3.10.3-02]
        """
        given: dict[int, Given] = {}
        failed = dict(self._failed)
        ids = [unit.message.message_info.message_id for unit in self._bundle.units]
        newcomers = Newcomers(self._context, tx, self._arrival, keep, ids)
        for partition in self._bundle.partitions:
            culprit: ReceivedUnit | None = None
            for number in partition:
                unit = self._bundle.units[number]
                if number in failed:
                    culprit = unit
                elif culprit is not None:
                    failed[number] = (related_failed(unit.message, culprit.message),)
                else:
                    one = self._unit(tx, number, unit, keep, newcomers)
                    if isinstance(one, EbmsError):
                        failed[number], culprit = (one,), unit
                    else:
                        given[number] = one
        newcomers.write()
        return given, failed

    def _unit(
        self,
        tx: Transaction,
        number: int,
        unit: ReceivedUnit,
        keep: Callable[[bytes], Stored],
        newcomers: Newcomers,
    ) -> Given | EbmsError:
        how, match = self._hows[number], unit.match
        assert how is not None
        if self._holds is not None:
            how = changed(how, numbered=True, holds=self._holds)
        assert match is not None
        new = newcomers.take(unit.message, match, how, unit.payloads)
        if new is not None:
            return new
        args = (self._arrival, unit.message, match, how, unit.payloads, keep)
        given = take_over(self._context, tx, *args)
        if given.contradicts:
            return CONTRADICTS
        if given.refused is not None:
            return given.refused
        if given.answer is not None and unit.message.message_info.message_id not in self._copies:
            raise _Copies
        return given

    def _responses(
        self, given: Mapping[int, Given], failed: Mapping[int, tuple[EbmsError, ...]]
    ) -> dict[int, SignalMessage]:
        """What is said on the connection, in the order of the units. [P2-3.8-03] [P2-3.5-01]"""
        said: dict[int, SignalMessage] = {}
        for number, unit in enumerate(self._bundle.units):
            if number in failed:
                if self._errors_respond:
                    said[number] = self._error(number, failed[number])
                continue
            one = given[number]
            if one.answer is not None:
                said[number] = self._copies[unit.message.message_info.message_id]
            elif one.kept is not None and self._on_response(number):
                assert unit.match is not None
                said[number] = receipt(
                    self._arrival.found,
                    unit.message,
                    unit.match,
                    signal_id=self._ids[number],
                    now=self._arrival.now,
                    references=self._references[number],
                )
        return said

    def _on_response(self, number: int) -> bool:
        """Whether the receipt of a unit is part of the response.

        Its own P-Mode says whether it gets one, the primary's where it goes.
        [P2-3.2.2-04] [P2-3.8-02]
        """
        return self._respond and self._receipts[number]

    def _error(self, number: int, problems: Sequence[EbmsError]) -> SignalMessage:
        ref = self._bundle.units[number].message.message_info.message_id
        return error(problems, signal_id=self._ids[number], ref=ref, now=self._arrival.now)

    def _refused(
        self,
        tx: Transaction,
        keep: Callable[[bytes], Stored],
        failed: Mapping[int, tuple[EbmsError, ...]],
        answers: Mapping[int, Answer],
    ) -> bool:
        """What is kept of units that failed; True where what is said of them calls back."""
        if not failed:
            return False
        back: Work | Offer | None = None
        if not self._errors_respond:
            written = self._write([self._error(number, failed[number]) for number in failed])
            answers = dict(zip(failed, written, strict=True))
            back = way_back(self._context, self._primary, written[0], self._bundle.units[0].message)
        once = back
        for number, problems in failed.items():
            unit = self._bundle.units[number]
            args = (unit.message, unit.match, problems, answers[number], once, keep)
            reject(self._context, self._arrival, *args)(tx)
            once = None
        return back is not None

    def _write(self, signals: Sequence[SignalMessage]) -> tuple[Answer, ...]:
        """All in one envelope, signed as the primary's P-Mode says. [P2-3.8-04]"""
        if not signals:
            return ()
        envelope = self._arrival.found.envelope
        version = envelope.version if envelope else SoapVersion.SOAP_12
        key = self._context.in_force.keyring.signing
        receipts = any(one.receipt is not None for one in signals)
        how = answer_signing(self._primary.leg, key) if key is not None or receipts else None
        routed = receipt_routing if receipts else error_routing
        routing = routed(self._primary, self._bundle.units[0].message, self._arrival.found)
        return write_answers(signals, version, how, self._arrival.now, routing)


def bundle_references(found: Inspection, bundle: Unbundled) -> list[tuple[Reference, ...]]:
    """What of the signature is about each unit; nothing where there is none. [P2-3.2.2-05]"""
    header = found.messaging.id if found.messaging is not None else None
    return unit_references(found.proof, [unit.message for unit in bundle.units], header)


def reject_all(
    context: Context,
    arrival: Arrival,
    messages: Sequence[UserMessage],
    match: Match | None,
    problems: Sequence[EbmsError],
    answer: Answer,
    back: Work | Offer | None,
) -> Callable[[Transaction], None]:
    """The step that refuses a message with all its units, of which any may come again."""
    primary, *others = {one.message_info.message_id: one for one in messages}.values()
    refuse = reject(context, arrival, primary, match, problems, answer, back)
    if not others:
        return refuse

    def step(tx: Transaction) -> None:
        keep = Shared(tx).keep
        reject(context, arrival, primary, match, problems, answer, back, keep)(tx)
        for one in others:
            reject(context, arrival, one, match, problems[:1], answer, None, keep)(tx)

    return step


def _all_copies(given: Mapping[int, Given]) -> bool:
    return all(one.duplicate and one.answer is not None for one in given.values())
