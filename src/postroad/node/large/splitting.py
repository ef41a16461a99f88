"""A large message goes in fragments: it is cut when it is packaged, then its fragments are written.

Packaging cuts nothing off: it decides where, and the message becomes a source (`Message.split`).
The work `split` then writes a message for each fragment, a few in a step; the source remembers how
far that came, so that who takes it up goes on there. A large message is compressed by the same
work, in portions that are kept one by one, and its first fragments leave meanwhile. Afterwards the
work is the timer of the source, and ends what is left of its fragments when that is at rest.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.splitting import SplittingTerms
from postroad.msh.compression import Portion, begun, compressed, next_portion
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
from postroad.msh.splitting import fragment_count, group_id, ready, stretch
from postroad.node.base.context import Context
from postroad.node.large.fragmenting import Fragmenting, SecuredFragment, Units, secured, whole_form
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.offers import offer, offer_work
from postroad.node.steps.outcome import Reason, apply, begin_anew, life_of, shares_row
from postroad.node.steps.split_outcome import AT_ONCE, close_fragments, settle_row
from postroad.node.steps.split_units import AT_WORK, are_all, at_work, source_id, split_units
from postroad.reliability.awareness import MISSING_RECEIPT
from postroad.reliability.delivery import Input, begun_anew, heard
from postroad.reliability.schedule import ends_at
from postroad.store.interface import Store, StoreDamaged, Transaction
from postroad.store.records import Message, Side, Split, State, Work
from postroad.wire import xml
from postroad.wire.codings import Coded
from postroad.wire.content import Content
from postroad.wire.limits import MIB
from postroad.wire.receipts import unit_references
from postroad.wire.soap import read_envelope

_LOST = "all fragments arrived, and no receipt for the message came in time"
_IN_PORTIONS: Final = 64 * MIB
"""A message from this size on leaves while it is compressed; others take but a moment."""
_PORTION: Final = 8 * MIB
"""At least so much is compressed in a step, or two fragments: one that can leave."""
HEADERS: Final = 64 * 1024
"""So much may be around the payloads of a message: with it, it may be larger than a fragment."""


class Cut(Struct, frozen=True):
    """A message that is to go in fragments, before that is kept."""

    made: Package
    boundary: str
    split: Split
    data: Content | None
    """The compressed form."""

    @property
    def count(self) -> int | None:
        """How many fragments there are; None: that turns out when it is compressed."""
        return self.split.count or None

    async def persisted(self, store: Store) -> "Cut":
        """With the compressed form on the disk."""
        return self if self.data is None else changed(self, data=await store.persist(self.data))

    def kept(self, tx: Transaction) -> Split:
        """What the source remembers of it."""
        return changed(self.split, stored=None if self.data is None else tx.keep(self.data))

    def of_secondaries(self) -> list[Split]:
        """What the other units of a bundle remember: their fragments are those of the source."""
        units = self.made.secondaries
        bare = changed(self.split, units=())
        parts = unit_references(self.split.references, units, None)
        return [changed(bare, references=own) for own in parts]


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
    data, size, coded = None, form.length, None
    if terms.algorithm is not None:
        coded = _in_portions(form, terms, made)
    if terms.algorithm is not None and coded is None:
        data = compressed(terms.algorithm, form.content(), new_sink=context.store.new_sink)
        size = data.size
    count = fragment_count(size, terms.cut)
    references = part_references(
        read_envelope(xml.parse(made.envelope, context.limits)),
        [attachment(part) for part in made.parts],
    )
    name = made.user_message.message_info.message_id
    split = Split(
        group_id(name, context.entropy, made_here=made_here),
        terms.cut,
        count if coded is None else 0,
        size if coded is None else 0,
        form.length,
        terms.algorithm,
        references=references,
        units=tuple([one.message_info.message_id for one in made.secondaries]),
        streamed=coded is not None,
        coded=coded,
    )
    return Cut(made, boundary, split, data)


def _in_portions(form: WireForm, terms: SplittingTerms, made: Package) -> Coded | None:
    """How compressing begins that goes on while fragments leave; None: it is done before.

    The other units of a bundle would not know how far it is.
    """
    if form.length < _IN_PORTIONS or made.secondaries or terms.algorithm is None:
        return None
    return begun(terms.algorithm)


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
        units = await store.look(lambda reader: split_units(reader, work.message_id))
        cut = units[0].split if units else None
        if cut is None:
            await store.run(lambda tx: tx.finish_work(work.id, work.owner))
        elif work.data or not at_work(units):
            await store.run(lambda tx: _closed(tx, work, context.clock()))
        elif not cut.is_written:
            await self._write(units, work)
        else:
            await store.run(lambda tx: _look(context, tx, work, context.clock()))
            for one in units:
                context.settled.tell(one.message_id)
            context.told()

    async def _write(self, units: Units, work: Work) -> None:
        """Write all fragments that are missing, in the order of their numbers. [P2-4.4.2-15]"""
        context, whole = self._context, units[0]
        try:
            sending = context.in_force.sending_of(whole)
            if whole.split is not None and not whole.split.written:
                await self._forget(whole)
            await self._write_all(units, sending, work)
            return
        except Refused as refused:
            detail = refused.detail
        except StoreDamaged as lost:
            detail = f"it cannot be read: {lost}"
        await context.store.run(lambda tx: _given_up(context, tx, work, detail))
        context.settled.tell(whole.message_id)

    async def _write_all(self, units: Units, sending: Sending, work: Work) -> None:
        context = self._context
        going: Message | None = units[0]
        while going is not None and going.split is not None:
            if going.split.is_written:
                await context.store.run(lambda tx: _look(context, tx, work, context.clock()))
                return
            if _to_write(going.split):
                going = await self._write_some((going, *units[1:]), sending)
                context.work_came.set()
            else:
                going = await self._compress_some(going)
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

    async def _compress_some(self, whole: Message) -> Message | None:
        """Some more of it is compressed, and durable; the source after that, as below."""
        context, cut = self._context, whole.split
        assert cut is not None
        portion = await asyncio.to_thread(_next_portion, context, whole, cut)
        content = await context.store.persist(portion.content)

        def step(tx: Transaction) -> Message | None:
            found = _as_it_was(tx, whole)
            if found is None or found.split is None:
                return None
            size = cut.size + content.size
            split = changed(
                found.split,
                size=size,
                pieces=(*cut.pieces, tx.keep(content)),
                coded=None if portion.last else portion.coded,
                count=fragment_count(size, cut.fragment_size) if portion.last else 0,
            )
            tx.change_message(Side.SENDING, found.message_id, (found.state,), split=split)
            return changed(found, split=split)

        return await context.store.run(step)

    async def _write_some(self, units: Units, sending: Sending) -> Message | None:
        """Some fragments more; the source after that, or None when it is at rest by now."""
        context, whole, now = self._context, units[0], self._context.clock()
        assert whole.split is not None
        cut = whole.split
        numbers = _to_write(cut)
        oldest = min(one.created_at for one in units)
        fragments = [_fragment(context, whole, oldest, number, now) for number in numbers]
        made: list[SecuredFragment | None] = [None] * len(fragments)
        if whole.channel is not None:
            # Who pulls does not wait for a signature.
            source = self._fragmenting.source(units, sending)
            made = [
                await asyncio.to_thread(secured, context, source, one, sending, now)
                for one in fragments
            ]
            header = source.splitting.messaging.user_messages[0]

        def step(tx: Transaction) -> Message | None:
            found = _as_it_was(tx, whole)
            if found is None or found.split is None:
                return None
            for one, signed in zip(fragments, made, strict=True):
                if signed is None:
                    timer: int | None = tx.add_work(_send_work(one, sending, now))
                else:
                    ends = offer_work(one, sending)
                    timer = None if ends is None else tx.add_work(ends)
                fields = {} if signed is None else signed.fields(tx)
                kept = changed(one, timer=timer, **fields)
                tx.add_message(kept)
                if kept.channel is not None:
                    offer(tx, kept, header, now)
            split = changed(found.split, written=numbers[-1])
            tx.change_message(Side.SENDING, found.message_id, (found.state,), split=split)
            return changed(found, split=split)

        return await context.store.run(step)


def _to_write(cut: Split) -> range:
    """The fragments that can be written now, or the first of them."""
    there = cut.count if cut.coded is None else ready(cut.size, cut.fragment_size)
    begin = cut.written + 1
    return range(begin, min(begin + AT_ONCE, there + 1))


def _next_portion(context: Context, whole: Message, cut: Split) -> Portion:
    assert cut.algorithm is not None
    content, new_sink = whole_form(context, (whole,)).content(), context.store.new_sink
    size = max(_PORTION, 2 * cut.fragment_size)
    return next_portion(cut.algorithm, content, cut.coded, size=size, new_sink=new_sink)


def _as_it_was(tx: Transaction, whole: Message) -> Message | None:
    """The source, if its fragments are still sent and nobody else went on with it."""
    units = split_units(tx, whole.message_id)
    found = units[0] if at_work(units) else None
    if found is None or found.split is None or whole.split is None:
        return None
    same = changed(found.split, left=whole.split.left) == whole.split
    return found if same else None


def _fragment(
    context: Context, whole: Message, created_at: datetime, number: int, now: datetime
) -> Message:
    """A fragment as a message of its own, still to be made. [P2-4.4.2-08]"""
    cut = whole.split
    assert cut is not None
    return Message(
        Side.SENDING,
        context.new_id(now),
        State.READY,
        created_at,
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
        fragments=cut.count or None,
    )


def _send_work(fragment: Message, sending: Sending, now: datetime) -> Work:
    end = ends_at(sending.policy, fragment.created_at, None)
    to = sending.destination(fragment)
    return Work("send", fragment.message_id, now, partner=to, expires_at=end)


def _look(context: Context, tx: Transaction, work: Work, now: datetime) -> None:
    """The timer of a source: it is given up, or looked at again later."""
    units = split_units(tx, work.message_id)
    if not at_work(units):
        tx.finish_work(work.id, work.owner)
        return
    late = [
        one
        for one in units
        if one.state in AT_WORK and one.due_at is not None and one.due_at <= now
    ]
    _end(context, tx, late, work, Input.OUT_OF_RETRIES, MISSING_RECEIPT, _LOST)
    if len(units) > 1 or not late:
        settle_row(tx, work.id, work.owner)


def _end(
    context: Context,
    tx: Transaction,
    units: Iterable[Message],
    work: Work,
    given: Input,
    code: str,
    detail: str,
) -> None:
    """Units of a source come to their end by its row, which stays while others need it."""
    for one in units:
        decision = heard(life_of(one), given)
        if decision is not None:
            reason, alone = Reason(code, detail, one.peer), not shares_row(one)
            args = (context, tx, one, decision, context.clock(), reason, work.id)
            apply(*args, owner=work.owner, alone=alone)


def _closed(tx: Transaction, work: Work, now: datetime) -> None:
    """Go on ending the fragments of a source that is at rest."""
    whole = tx.message(Side.SENDING, work.message_id)
    if whole is not None:
        close_fragments(tx, whole, now, int(work.data or b"0"))
    tx.finish_work(work.id, work.owner)


def _given_up(context: Context, tx: Transaction, work: Work, detail: str) -> None:
    units = split_units(tx, work.message_id)
    _end(context, tx, units, work, Input.REFUSED, "EBMS:0010", detail)
    settle_row(tx, work.id, work.owner)


def cut_anew(context: Context, tx: Transaction, message: Message, now: datetime) -> bool:
    """Send a message that is at rest once more, as a new group; False when it is not at rest.

    A unit of a bundle goes again with the others, whatever became of these. The receiver remembers
    a group that it rejected, so it gets another id. [P2-4.3.2-17]
    """
    decision = begun_anew(life_of(message), Input.RESENT, now)
    if decision is None or message.state in AT_WORK:
        return False
    units = split_units(tx, source_id(message))
    if not are_all(units):
        said = "a message of its bundle was removed since: submit it under another id"
        raise Refused(409, f"{message.message_id}: {said}")
    if at_work(units):
        said = "others of its bundle are on their way: resend it when these are at rest"
        raise Refused(409, f"{message.message_id}: {said}")
    source = units[0]
    assert source.split is not None
    timer = next((one.timer for one in units if one.timer is not None), None)
    if timer is None or not tx.wake_work(timer, now):
        timer = tx.add_work(Work("split", source.message_id, now))
    cut = source.split
    streamed = cut.coded is not None
    cut = changed(cut, group_id=context.entropy(16).hex(), written=0, left=False, streamed=streamed)
    tx.change_message(Side.SENDING, source.message_id, (source.state,), split=cut)
    return tx.change_message(
        Side.SENDING,
        message.message_id,
        (message.state,),
        state=State(decision.life.stage.value),
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
    while found := tx.fragment_messages(Side.SENDING, source_id(whole), after, AT_ONCE):
        for one in found:
            if one.state is State.SUSPENDED:
                work = Work("send", one.message_id, now, partner=one.partner)
                begin_anew(tx, one, Input.RESUMED, now, work)
        after = found[-1].key
