"""Fragments that come in: each is taken with its group in one step, or refused with all of it.

A fragment is a message of its own: it is known by its id, answered by its own receipt, and a copy
of it gets that again. Its data belongs to its group (Part 2, 4.3.2). What nobody proved to be the
partner's never touches a group.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer, error
from postroad.msh.fragment_group import Arrival as Came
from postroad.msh.fragment_group import Group, Standing, Terms
from postroad.msh.joined import arrival_of, group_ids
from postroad.msh.joining import Decision, Verdict, out_of_space, receive, reject
from postroad.msh.payloads import Payload
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.steps import keeping
from postroad.node.steps.answering import written
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.calling import way_back
from postroad.node.steps.duplicates import FRAGMENT
from postroad.node.steps.fragment_groups import (
    KeptGroup,
    group_there,
    is_crowded,
    keep_group,
    new_group,
    room_for,
)
from postroad.node.steps.keeping import (
    Answering,
    Given,
    kept_message,
    put,
    take_over,
    told,
)
from postroad.node.steps.senders import about_stored, stored_as, stored_message
from postroad.security.attachments import Attachment
from postroad.store.fragments import StoredFragment
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Offer, State, Work
from postroad.wire.ebms3 import PartInfo, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.mime_headers import content_id_of

A_MOMENT: Final = timedelta(milliseconds=1)


class GroupKey(Struct, frozen=True):
    """Which group a `join` is about, as the store knows it."""

    sender: str
    group_id: str


class Outcome(Struct, frozen=True):
    """What became of a fragment."""

    given: Given | None = None
    """It was taken over, or came before."""
    errors: tuple[EbmsError, ...] = ()
    """It was refused."""
    contradicts: bool = False
    """Another message has the same id; nothing was done."""
    group: Group | None = None
    """Its group, where it was not there before."""
    stored: StoredFragment | None = None


class Gathering:
    """Takes one fragment in. Ids are drawn before the step, which may run twice."""

    def __init__(
        self, context: Context, arrival: Arrival, match: Match, terms: Terms, how: Answering
    ) -> None:
        self._context = context
        self._arrival = arrival
        self._match = match
        self._terms = terms
        self._how = how
        self._message: UserMessage = keeping.user_message_of(arrival.found)
        self._signal_id = context.new_id(arrival.now)
        self._free = context.store.free()

    async def take(self) -> Outcome:
        """A fragment that holds in itself."""
        return await self._context.store.run(self.step)

    def step(self, tx: Transaction) -> Outcome:
        """What `take` does."""
        came = arrival_of(self._arrival.found)
        assert came is not None
        return self._taken(tx, came)

    async def refuse(self, problems: Sequence[EbmsError]) -> Outcome:
        """One that does not hold in itself, and whose group is rejected for it. [P2-4.3.2-16]"""
        came = arrival_of(self._arrival.found)
        structure = came.problems if came is not None else ()
        said = tuple({one.code: one for one in (*structure, *problems)}.values())
        return await self._context.store.run(lambda tx: self._reject_all(tx, said))

    async def no_room(self) -> Outcome:
        """The disk was full before it could be kept. [P2-4.6-16]"""

        def step(tx: Transaction) -> Outcome:
            [group_id] = group_ids(self._arrival.found)
            there, group = self._group(tx, group_id)
            return self._refused(tx, there, out_of_space(group, self._message_id))

        return await self._context.store.run(step)

    @property
    def _message_id(self) -> str:
        return self._message.message_info.message_id

    def _group(self, tx: Transaction, group_id: str) -> tuple[KeptGroup | None, Group]:
        """A group as it is kept, if it is, and what is known of it."""
        new = new_group(self._message, self._match, group_id)
        there = group_there(tx, new.key)
        return there, new if there is None else there.group

    def _taken(self, tx: Transaction, came: Came) -> Outcome:
        data = self._data(came)
        stored_id, before = self._stored_as(tx)
        if before is not None and before.state is not State.REJECTED:
            if (before.part_of, before.fragment) != _place(came):
                return Outcome(contradicts=True)
            return self._known(tx, came, data)
        there, group = self._group(tx, came.fragment.group_id)
        if there is None and is_crowded(self._context, tx, group):
            return self._refused(tx, None, self._crowded(group))
        known = tx.fragment(*group.key, came.fragment.fragment_num)
        room = room_for(self._context, tx, group, came, self._free)
        verdict = receive(
            group,
            came,
            known.message_id if known is not None else None,
            now=self._arrival.now,
            terms=self._terms,
            room=room,
        )
        if verdict.decision is Decision.REFUSE:
            return self._refused(tx, there, verdict)
        if verdict.decision is Decision.AGAIN or data is None:
            # It is there, and the message that brought it is so long ago that nobody knows it.
            return Outcome(Given(State.RECEIVED, None, duplicate=True))
        return self._stored(tx, came, data, there, verdict, stored_id, before)

    def _stored_as(self, tx: Transaction) -> tuple[str, Message | None]:
        return stored_as(self._context, tx, self._arrival, self._message, self._match)

    def _data(self, came: Came) -> Attachment | None:
        name = content_id_of(came.fragment.href) or ""
        return self._arrival.found.attachments.get(name)

    def _known(self, tx: Transaction, came: Came, data: Attachment | None) -> Outcome:
        """A message of this id came before: a retry is answered again. [P2-4.4.2-05]"""
        payloads = () if data is None else (_payload(came, data),)
        args = (self._arrival, self._message, self._match, self._how, payloads, tx.keep)
        given = take_over(self._context, tx, *args)
        return Outcome(contradicts=True) if given.contradicts else Outcome(given)

    def _crowded(self, group: Group) -> Verdict:
        most = self._context.config.joining.groups
        said = f"{most} messages of this sender wait for fragments already"
        return reject(group, EbmsError("EBMS:0054", said, ref=self._message_id))

    def _stored(
        self,
        tx: Transaction,
        came: Came,
        data: Attachment,
        there: KeptGroup | None,
        verdict: Verdict,
        stored_id: str,
        before: Message | None,
    ) -> Outcome:
        """The fragment is kept, and what brought it. [P2-4.3.2-05] [P2-4.3.2-11]"""
        context, arrival, match, group = self._context, self._arrival, self._match, verdict.group
        stored = tx.keep(data.content)
        if there is None:
            pulled = arrival.pulled is not None
            there = KeptGroup(
                group, arrival.now, match.pmode.id, match.number, arrival.peer, pulled
            )
            assert group.until is not None
            key = msgspec.json.encode(GroupKey(*group.key))
            work = Work("join", came.message_id, group.until + A_MOMENT, key)
            there = replace(there, work=tx.add_work(work))
        keep_group(tx, replace(there, group=group), arrival.now)
        number = came.fragment.fragment_num
        fragment = StoredFragment(number, came.message_id, stored)
        tx.add_fragment(*group.key, fragment)
        if group.standing is Standing.WHOLE:
            tx.wake_work(there.work, arrival.now)
        kept = replace(
            kept_message(
                context,
                tx,
                arrival,
                stored_message(self._message, stored_id),
                match,
                State.RECEIVED,
                (),
            ),
            kind=FRAGMENT,
            bytes=came.size,
            payload_digests=_digests(data),
            part_of=group.group_id,
            fragment=number,
            fragments=group.count,
        )
        how = replace(self._how, back=about_stored(self._how.back, stored_id))
        given = replace(put(context, tx, arrival, kept, how, before), stored_id=stored_id)
        if verdict.errors and group.first_message_id == came.message_id:
            # All fragments of a group have the same properties: the first is told of them.
            self._warned(tx, kept, verdict.errors)
        return Outcome(given, group=group, stored=fragment)

    def _warned(self, tx: Transaction, kept: Message, errors: Sequence[EbmsError]) -> None:
        """What is wrong and does no harm. [P2-4.6-14]"""
        answer, back = self._error(errors)
        back = about_stored(back, kept.message_id)
        stored = tx.keep(answer.envelope)
        signal = keeping.sent_signal(kept, answer, stored, self._arrival.now)
        tx.add_signal(replace(signal, error_code=errors[0].code, detail=told(errors[0])))
        tx.record([raised(kept, one, self._arrival, answer) for one in errors])
        if isinstance(back, Offer):
            tx.add_offer(back)
        elif back is not None:
            tx.add_work(back)

    def _error(self, errors: Sequence[EbmsError]) -> tuple[Answer, Work | Offer | None]:
        context, arrival = self._context, self._arrival
        ref = self._message_id
        signal = error(errors, signal_id=self._signal_id, ref=ref, now=arrival.now)
        answer = written(context, arrival, signal, self._match)
        return answer, way_back(context, self._match, answer, self._message)

    def _reject_all(self, tx: Transaction, problems: tuple[EbmsError, ...]) -> Outcome:
        """The groups that it names are rejected, and it is told what is wrong with it."""
        _, before = self._stored_as(tx)
        known = before is not None and before.state is not State.REJECTED
        for group_id in group_ids(self._arrival.found) if not known else ():
            there, group = self._group(tx, group_id)
            self._end(tx, there, reject(group, problems[0]))
        return self._told(tx, problems)

    def _refused(self, tx: Transaction, there: KeptGroup | None, verdict: Verdict) -> Outcome:
        self._end(tx, there, verdict)
        return self._told(tx, verdict.errors)

    def _end(self, tx: Transaction, there: KeptGroup | None, verdict: Verdict) -> None:
        match, arrival = self._match, self._arrival
        if there is None:
            there = KeptGroup(verdict.group, arrival.now, match.pmode.id, match.number)
        end_group(tx, there, verdict, arrival.now)

    def _told(self, tx: Transaction, errors: tuple[EbmsError, ...]) -> Outcome:
        answer, back = self._error(errors)
        args = (self._arrival, self._message, self._match, errors, answer, back)
        keeping.reject(self._context, *args)(tx)
        return Outcome(errors=errors)


def end_group(tx: Transaction, there: KeptGroup, verdict: Verdict, now: datetime) -> None:
    """A group is rejected: its data goes, and it is remembered. [P2-4.3.2-16] [P2-4.3.2-17]"""
    if verdict.erases:
        tx.remove_fragments(*verdict.group.key)
        if there.work:
            tx.finish_work(there.work)
        keep_group(tx, replace(there, group=verdict.group, work=0), now)


def raised(message: Message, problem: EbmsError, arrival: Arrival, answer: Answer) -> Event:
    """What the journal says of an error that is told to the sender."""
    return about(
        message,
        "error_raised",
        arrival.now,
        error_code=problem.code,
        severity=problem.severity.value,
        detail=told(problem),
        signal_id=answer.signal_id,
        peer=arrival.peer,
    )


def _place(came: Came) -> tuple[str, int]:
    """Which fragment of which group it is."""
    return came.fragment.group_id, came.fragment.fragment_num


def _payload(came: Came, data: Attachment) -> Payload:
    """The data as what a copy is compared by."""
    part = PartInfo(came.fragment.href)
    return Payload(part, data.content_id, data.media_type, data.content, data.sha256)


def _digests(data: Attachment) -> tuple[str, ...]:
    return () if data.sha256 is None else (f"sha256:{data.sha256.hex()}",)
