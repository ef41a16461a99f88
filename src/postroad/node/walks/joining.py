"""Whole groups become messages; those whose time is over are given up (Part 2, 4.3.2 and 4.6).

The work of a group is its timer: it is due when the join interval is over, and at once when the
last fragment came. Then the message is read where its fragments lie, off the loop, looked at, and
handed to `node.walks.accepting` as if it had come whole.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer, error
from postroad.msh.capture import Capture
from postroad.msh.fragment_group import Standing
from postroad.msh.inspection import Look
from postroad.msh.joined import capture_joined, header_mismatch, is_fragment, lying_in
from postroad.msh.joined_receipts import part_references
from postroad.msh.joining import Verdict, out_of_space, overdue, unopened
from postroad.node.base.beside import beside
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.large.gathering import A_MOMENT, GroupKey, end_group, raised
from postroad.node.steps.answering import written
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.calling import way_back
from postroad.node.steps.fragment_groups import KeptGroup, group_there
from postroad.node.steps.joined_group import Ended, JoinedGroup
from postroad.node.steps.keeping import LONGEST_ID, sent_signal, told, user_message_of
from postroad.node.steps.senders import about_stored
from postroad.node.walks.accepting import Accepting
from postroad.store.gathered import Unopened
from postroad.store.interface import Reader, StoreDamaged, StoreFull, Transaction
from postroad.store.records import Message, Offer, Side, State, Work
from postroad.wire.content import Content, Joined, read_all
from postroad.wire.errors import EbmsError

_decode: Final = msgspec.json.Decoder(GroupKey).decode
_log = logging.getLogger("postroad.join")


class Joining:
    """Does the work of groups."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._accepting = Accepting(context)

    async def perform(self, work: Work) -> None:
        context, key = self._context, _decode(work.data)
        kept = await context.store.look(
            lambda reader: group_there(reader, (key.sender, key.group_id))
        )
        standing = kept.group.standing if kept is not None else None
        if kept is not None and standing is Standing.GATHERING:
            await self._wait(work, kept)
        elif kept is not None and standing is Standing.WHOLE:
            await self._join(work, kept)
        else:
            await context.store.run(lambda tx: tx.finish_work(work.id, work.owner))

    async def _wait(self, work: Work, kept: KeptGroup) -> None:
        """Its time is over, or the work came too early. [P2-4.6-13]"""
        now, until = self._context.clock(), kept.group.until
        verdict = overdue(kept.group, now)
        if verdict is not None:
            await self._give_up(work, kept, verdict, now)
            return

        def step(tx: Transaction) -> None:
            there = group_there(tx, kept.group.key)
            whole = there is not None and there.group.standing is not Standing.GATHERING
            due = now if whole or until is None else until + A_MOMENT
            tx.postpone_work(work.id, due, owner=work.owner)

        await self._context.store.run(step)

    async def _join(self, work: Work, kept: KeptGroup) -> None:
        """Processed as if it had come whole. [P2-4.2.1-01] [P2-4.3.2-15]"""
        context, now = self._context, self._context.clock()
        there = await context.store.look(lambda reader: reader.fragments(*kept.group.key))
        data = Joined([Unopened(context.store.content, one.stored) for one in there])
        read = await context.ahead.captured(kept.group, there)
        try:
            look, capture = await asyncio.to_thread(self._looked, kept, data, now, read)
        except (EbmsError, StoreFull, StoreDamaged) as wrong:
            await self._give_up(work, kept, _unopened(kept, wrong), now)
            return
        joined = JoinedGroup(kept, data, work, now)
        pulled = self._match(kept) if kept.pulled else None
        size = kept.group.size
        arrival = Arrival(look.found, capture, kept.peer, size, now, pulled=pulled, joined=joined)
        try:
            await self._accepting.take(arrival)
        except Ended:
            await context.store.run(lambda tx: tx.finish_work(work.id, work.owner))

    def _match(self, kept: KeptGroup) -> Match | None:
        return self._context.in_force.match(kept.pmode, kept.leg)

    def _looked(
        self, kept: KeptGroup, data: Content, now: datetime, read: Capture | None
    ) -> tuple[Look, Capture]:
        """The message under the lens; EbmsError when it is none, or contradicts its fragments.

        It is judged by the P-Mode of its fragments, and vouched for by their signatures.
        """
        context, group = self._context, kept.group
        new_sink = context.store.new_sink
        if read is None:
            capture = capture_joined(
                group, data, new_sink=new_sink, limits=context.limits, aside=beside
            )
        else:
            capture = lying_in(data, read)
        look = Look(capture, replace(context.in_force.lens(now, new_sink), joined=True))
        found = look.found
        if not look.read() or found.envelope is None:
            raise found.problems[0]
        wrong = header_mismatch(group, found.messaging, found.envelope.version.number)
        if wrong is not None:
            raise wrong
        if is_fragment(found) or found.is_ebxml:
            said = "what the fragments make is no message that could be split"
            raise EbmsError("EBMS:0053", said, ref=group.first_message_id)
        name = user_message_of(found).message_info.message_id
        if not 0 < len(name) <= LONGEST_ID:
            # Nothing could be said about it under that id.
            said = f"the joined message needs an id of 1 to {LONGEST_ID} characters"
            raise EbmsError("EBMS:0009", said, ref=group.first_message_id)
        match = self._match(kept)
        expected = context.in_force.expectation
        look.judge(look.terms() if match is None else expected.sender_terms(match))
        found.digests = part_references(found.envelope, found.attachments.values())
        return look, capture

    async def _give_up(self, work: Work, kept: KeptGroup, verdict: Verdict, now: datetime) -> None:
        """The group is rejected; its sender hears of it in the name of the first fragment."""
        context = self._context
        first = await context.store.look(lambda reader: _first(reader, kept))
        telling = None
        if first is not None:
            telling = await asyncio.to_thread(self._telling, first, kept, verdict, now)

        def step(tx: Transaction) -> None:
            there = group_there(tx, kept.group.key)
            if there is not None and there.group.standing is kept.group.standing:
                end_group(tx, there, verdict, now)
                if telling is not None:
                    telling(tx)
            else:
                tx.postpone_work(work.id, now, owner=work.owner)

        await context.store.run(step)
        context.ahead.forget(kept.group.key)
        context.count_error(verdict.errors[0].code)
        context.work_came.set()
        detail = str(verdict.errors[0])
        _log.warning("group rejected", extra={"message_id": work.message_id, "detail": detail})

    def _telling(
        self, first: Message, kept: KeptGroup, verdict: Verdict, now: datetime
    ) -> Callable[[Transaction], None]:
        """The step that tells what is wrong: signal, journal, and the fate of the fragment."""
        context, errors = self._context, verdict.errors
        assert first.envelope is not None
        envelope = read_all(context.store.content(first.envelope), first.envelope.size)
        capture = Capture(None, None, None, envelope, (), False, (), whole=True)
        look = Look(capture, context.in_force.lens(now, context.store.new_sink))
        look.read()
        look.judge(None)
        arrival = Arrival(look.found, capture, first.peer, 0, now)
        signal = error(errors, signal_id=context.new_id(now), ref=first.wire_id, now=now)
        match = self._match(kept)
        answer = written(context, arrival, signal, match)
        back = None
        if match is not None:
            back = way_back(context, match, answer, user_message_of(look.found))
            back = about_stored(back, first.message_id)
        return lambda tx: _tell(tx, first, arrival, errors, answer, back)


def _first(reader: Reader, kept: KeptGroup) -> Message | None:
    """Return the message that brought the first fragment of a group."""
    known = reader.messages_of_id(Side.RECEIVING, kept.group.first_message_id or "")
    by = (kept.pmode, kept.leg, kept.group.group_id)
    return next((one for one in known if (one.pmode, one.leg, one.part_of) == by), None)


def _unopened(kept: KeptGroup, wrong: EbmsError | StoreFull | StoreDamaged) -> Verdict:
    """What becomes of a group that cannot be opened. [P2-4.6-15] [P2-4.6-16] [P2-4.6-17]"""
    if isinstance(wrong, StoreFull):
        return out_of_space(kept.group)
    if isinstance(wrong, StoreDamaged):
        said = "what was stored of the fragments is damaged; send the message again"
        wrong = EbmsError("EBMS:0004", said, ref=kept.group.first_message_id)
    return unopened(kept.group, wrong)


def _tell(
    tx: Transaction,
    first: Message,
    arrival: Arrival,
    errors: tuple[EbmsError, ...],
    answer: Answer,
    back: Work | Offer | None,
) -> None:
    problem, now = errors[0], arrival.now
    said: dict[str, Any] = {"error_code": problem.code, "detail": told(problem)}
    tx.change_message(
        Side.RECEIVING,
        first.message_id,
        (first.state,),
        state=State.REJECTED,
        updated_at=now,
        **said,
    )
    tx.add_signal(replace(sent_signal(first, answer, tx.keep(answer.envelope), now), **said))
    tx.record([raised(first, one, arrival, answer) for one in errors])
    tx.record((about(first, "rejected", now, **said),))
    if isinstance(back, Offer):
        tx.add_offer(back)
    elif back is not None:
        tx.add_work(back)
