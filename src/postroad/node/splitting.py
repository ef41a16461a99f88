"""A large message goes in fragments: it is cut when it is packaged, then its fragments are written.

Packaging cuts nothing off: it decides where, and the message becomes a source (`Message.split`).
The work `split` then writes a message for each fragment, a few in a step; the source remembers how
far that came, so that who takes it up goes on there. Afterwards the same work is the timer of the
source, and ends what is left of its fragments when that is at rest.
"""

import asyncio
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.msh.compression import compressed
from postroad.msh.joined_receipts import part_references
from postroad.msh.outbound import (
    Draft,
    Package,
    PackedUnit,
    WireForm,
    WirePart,
    attachment,
    pack,
    package_units,
    wire_form,
)
from postroad.msh.splitting import fragment_count, group_id, stretch
from postroad.node.context import Context
from postroad.node.fragmenting import AT_WORK, Fragmenting, SecuredFragment, secured
from postroad.node.in_force import Sending
from postroad.node.offering import offer, offer_work
from postroad.node.outcome import Reason, apply, begin_anew, life_of
from postroad.node.service import Refused
from postroad.node.split_outcome import AT_ONCE, close_fragments
from postroad.reliability.awareness import MISSING_RECEIPT
from postroad.reliability.delivery import Input, Stage, begun_anew, heard
from postroad.reliability.schedule import ends_at
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, Split, State, Work
from postroad.wire import xml
from postroad.wire.content import Content
from postroad.wire.soap import read_envelope

_LOST = "all fragments arrived, and no receipt for the message came in time"
HEADERS = 64 * 1024
"""So much may be around the payloads of a message: with it, it may be larger than a fragment."""


class Cut(Struct, frozen=True):
    """A message that is to go in fragments, before that is kept."""

    made: Package
    boundary: str
    split: Split
    data: Content | None
    """The compressed form."""


def may_be_cut(sending: Sending, size: int) -> bool:
    """Whether a message with so many bytes of payload may be too large to go whole."""
    return sending.splitting is not None and size + HEADERS > sending.splitting.cut


def package_or_cut(
    context: Context, draft: Draft, sending: Sending, now: datetime, made_here: bool
) -> Package | Cut:
    """A message as it goes: whole, or cut where it is larger than a fragment. [P2-4.4.2-01]"""
    unit = pack(
        draft, sending.match, now=now, agreed=sending.agreed, new_sink=context.store.new_sink
    )
    cut = cut_units(context, (unit,), sending, now, made_here)
    return packaged(context, (unit,), sending, now) if cut is None else cut


def packaged(
    context: Context,
    units: tuple[PackedUnit, ...],
    sending: Sending,
    now: datetime,
    *,
    bare: bool = False,
) -> Package:
    return package_units(
        units,
        sending.match,
        sending.material,
        now=now,
        entropy=context.entropy,
        bare=bare,
        limits=context.limits,
    )


def cut_units(
    context: Context,
    units: tuple[PackedUnit, ...],
    sending: Sending,
    now: datetime,
    made_here: bool,
) -> Cut | None:
    """How a message is cut; None: it fits into a fragment, and goes whole.

    `made_here`: nobody else knows its id. `Unsplittable` when it would be too many fragments.
    """
    terms = sending.splitting
    assert terms is not None
    made = packaged(context, units, sending, now, bare=True)
    boundary = context.long_boundary()
    form = _form(made, boundary)
    if not made.parts or form.length <= terms.cut:
        return None
    data, size = None, form.length
    if terms.algorithm is not None:
        data = compressed(terms.algorithm, form.content(), new_sink=context.store.new_sink)
        size = data.size
    count = fragment_count(size, terms.cut)
    references = part_references(
        read_envelope(xml.parse(made.envelope, context.limits)),
        [attachment(part) for part in made.parts],
    )
    name = made.user_message.message_info.message_id
    group = group_id(name, context.entropy, made_here=made_here)
    split = Split(
        group, terms.cut, count, size, form.length, terms.algorithm, references=references
    )
    return Cut(made, boundary, split, data)


def _form(made: Package, boundary: str) -> WireForm:
    parts = [
        WirePart(one.payload.content_id, one.wire_type, one.content, one.payload.file_name)
        for one in made.parts
    ]
    return wire_form(made.version, made.envelope, parts, boundary)


class Splitting:
    """Writes the fragments of messages that were cut, and is their timer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fragmenting = Fragmenting(context)

    async def perform(self, work: Work) -> None:
        """Do what is due for a source."""
        context, store = self._context, self._context.store
        whole = await store.look(lambda reader: reader.message(Side.SENDING, work.message_id))
        if whole is None or whole.split is None:
            await store.run(lambda tx: tx.finish_work(work.id, work.owner))
        elif whole.state not in AT_WORK:
            await store.run(lambda tx: _closed(tx, work, context.clock()))
        elif whole.split.written < whole.split.count:
            await self._write(whole, work)
        else:
            await store.run(lambda tx: _look(context, tx, work, context.clock()))
            context.settled.tell(whole.message_id)
            context.told()

    async def _write(self, whole: Message, work: Work) -> None:
        """Write all fragments that are missing, in the order of their numbers. [P2-4.4.2-15]"""
        context = self._context
        try:
            sending = context.in_force.sending_of(whole)
        except Refused as refused:
            detail = refused.detail
            await context.store.run(lambda tx: _given_up(context, tx, work, detail))
            return
        going: Message | None = whole
        if whole.split is not None and not whole.split.written:
            await self._forget(whole)
        while going is not None and going.split is not None:
            if going.split.written >= going.split.count:
                await context.store.run(lambda tx: _look(context, tx, work, context.clock()))
                return
            going = await self._write_some(going, sending)
            context.work_came.set()
        await context.store.run(lambda tx: tx.finish_work(work.id, work.owner))

    async def _forget(self, whole: Message) -> None:
        """The fragments of a group that was given up make room for those of the next."""

        def step(tx: Transaction) -> int:
            removed = tx.remove_fragment_messages(Side.SENDING, whole.message_id, AT_ONCE)
            for one in removed:
                if one.timer is not None:
                    tx.finish_work(one.timer)
                tx.remove_offer(one.message_id)
            return len(removed)

        while await self._context.store.run(step) == AT_ONCE:
            pass

    async def _write_some(self, whole: Message, sending: Sending) -> Message | None:
        """Some fragments more; the source after that, or None when it is at rest by now."""
        context, now = self._context, self._context.clock()
        assert whole.split is not None
        cut = whole.split
        begin = cut.written + 1
        numbers = range(begin, min(begin + AT_ONCE, cut.count + 1))
        fragments = [_fragment(context, whole, number, now) for number in numbers]
        made: list[SecuredFragment | None] = [None] * len(fragments)
        if whole.channel is not None:
            # Who pulls does not wait for a signature.
            source = self._fragmenting.source(whole, sending)
            made = [
                await asyncio.to_thread(secured, context, source, one, sending, now)
                for one in fragments
            ]
            header = source.splitting.messaging.user_messages[0]

        def step(tx: Transaction) -> Message | None:
            found = tx.message(Side.SENDING, whole.message_id)
            if found is None or found.split is None or found.state not in AT_WORK:
                return None
            if (found.split.group_id, found.split.written) != (cut.group_id, cut.written):
                return None
            for one, ready in zip(fragments, made, strict=True):
                if ready is None:
                    timer: int | None = tx.add_work(_send_work(one, sending, now))
                else:
                    ends = offer_work(one, sending)
                    timer = None if ends is None else tx.add_work(ends)
                fields = {} if ready is None else ready.fields(tx)
                kept = changed(one, timer=timer, **fields)
                tx.add_message(kept)
                if kept.channel is not None:
                    offer(tx, kept, header, now)
            split = changed(found.split, written=numbers[-1])
            tx.change_message(Side.SENDING, found.message_id, (found.state,), split=split)
            return changed(found, split=split)

        return await context.store.run(step)


def _fragment(context: Context, whole: Message, number: int, now: datetime) -> Message:
    """A fragment as a message of its own, still to be made. [P2-4.4.2-08]"""
    cut = whole.split
    assert cut is not None
    return Message(
        Side.SENDING,
        context.new_id(now),
        State.READY,
        whole.created_at,
        now,
        pmode=whole.pmode,
        leg=whole.leg,
        kind="fragment",
        protocol=whole.protocol,
        party=whole.party,
        ref_to_message_id=whole.ref_to_message_id,
        conversation_id=whole.conversation_id,
        from_party=whole.from_party,
        to_party=whole.to_party,
        from_role=whole.from_role,
        to_role=whole.to_role,
        service=whole.service,
        action=whole.action,
        mpc=whole.mpc,
        agreement=whole.agreement,
        bytes=stretch(cut.size, cut.fragment_size, number)[1],
        soap=whole.soap,
        peer=whole.peer,
        channel=whole.channel,
        late=whole.late,
        part_of=whole.message_id,
        fragment=number,
        fragments=cut.count,
    )


def _send_work(fragment: Message, sending: Sending, now: datetime) -> Work:
    end = ends_at(sending.policy, fragment.created_at, None)
    return Work("send", fragment.message_id, now, partner=fragment.partner, expires_at=end)


def _look(context: Context, tx: Transaction, work: Work, now: datetime) -> None:
    """The timer of a source: it is given up, or looked at again later."""
    whole = tx.message(Side.SENDING, work.message_id)
    if whole is None or whole.state not in AT_WORK:
        tx.finish_work(work.id, work.owner)
        return
    if whole.due_at is None or whole.due_at > now:
        tx.postpone_work(work.id, whole.due_at, owner=work.owner)
        return
    decision = heard(life_of(whole), Input.OUT_OF_RETRIES)
    assert decision is not None
    reason = Reason(MISSING_RECEIPT, _LOST, whole.peer)
    apply(context, tx, whole, decision, now, reason, work.id, owner=work.owner)


def _closed(tx: Transaction, work: Work, now: datetime) -> None:
    """Go on ending the fragments of a source that is at rest."""
    whole = tx.message(Side.SENDING, work.message_id)
    if whole is not None and whole.state not in AT_WORK:
        close_fragments(tx, whole, Stage(whole.state.value), now, int(work.data or b"0"))
    tx.finish_work(work.id, work.owner)


def _given_up(context: Context, tx: Transaction, work: Work, detail: str) -> None:
    whole = tx.message(Side.SENDING, work.message_id)
    decision = None if whole is None else heard(life_of(whole), Input.REFUSED)
    if whole is None or decision is None:
        tx.finish_work(work.id, work.owner)
        return
    reason = Reason("EBMS:0010", detail, whole.peer)
    apply(context, tx, whole, decision, context.clock(), reason, work.id, owner=work.owner)


def cut_anew(context: Context, tx: Transaction, whole: Message, now: datetime) -> bool:
    """Send a message that is at rest once more, as a new group; False when it is not at rest.

    The receiver remembers a group that it rejected, so it gets another id. [P2-4.3.2-17]
    """
    assert whole.split is not None
    decision = begun_anew(life_of(whole), Input.RESENT, now)
    if decision is None or whole.state in AT_WORK:
        return False
    timer = whole.timer
    if timer is None or not tx.wake_work(timer, now):
        timer = tx.add_work(Work("split", whole.message_id, now))
    group = context.entropy(16).hex()
    return tx.change_message(
        Side.SENDING,
        whole.message_id,
        (whole.state,),
        state=State(decision.life.stage.value),
        split=changed(whole.split, group_id=group, written=0, left=False),
        tries=0,
        due_at=None,
        decided_by=None,
        timer=timer,
        anew=True,
        updated_at=now,
    )


def resume_fragments(tx: Transaction, whole: Message, now: datetime) -> None:
    """Those that were suspended with their partner go on with it, and are waited for."""
    tx.change_message(Side.SENDING, whole.message_id, AT_WORK, due_at=None, decided_by=None)
    after = 0
    while found := tx.fragment_messages(Side.SENDING, whole.message_id, after, AT_ONCE):
        for one in found:
            if one.state is State.SUSPENDED:
                work = Work("send", one.message_id, now, partner=one.partner)
                begin_anew(tx, one, Input.RESUMED, now, work)
        after = found[-1].key
