"""From what the application gave to a message that can be sent, and how that is kept.

A small message is packaged while the application waits and kept ready; a large one is kept as it
came and packaged afterwards, by whoever claims the work.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace as changed

from postroad.agreement.ebxml import cpa_terms
from postroad.agreement.waiting import remaining, wait_after
from postroad.msh.answers import sent_messages
from postroad.msh.ebxml_outbound import EbxmlPackage, package_ebxml
from postroad.msh.outbound import (
    Draft,
    DraftPayload,
    Named,
    Package,
    PackedPart,
    package,
    soap_version,
)
from postroad.msh.securing import Unsecurable
from postroad.msh.splitting import Unsplittable
from postroad.msh.wsreliability import request_block
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.ebxml.keeping import awaits_name
from postroad.node.large.splitting import Cut, may_be_cut, package_or_cut
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.bundle_rows import share_envelope, units_of
from postroad.node.steps.ebxml_order import numbered
from postroad.node.steps.exchanging import request_of
from postroad.node.steps.outcome import unpackable
from postroad.node.steps.wsrm_states import Numbered
from postroad.node.steps.wsrm_states import packed as packed_in
from postroad.node.walks.replying import Riding, riding, routed_by
from postroad.node.walks.wsrm_repackaging import in_sequence, repackaged
from postroad.node.wsrm.asking import NoSequence
from postroad.node.wsrm.source import Sequences
from postroad.reliability.ebxml_terms import EbxmlError, agree
from postroad.reliability.order import SequenceNumber
from postroad.reliability.schedule import ends_at
from postroad.security.sign import Block
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State, StoredPart, Work
from postroad.wire.content import Content, read_all
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.ebxml import Acknowledgment
from postroad.wire.errors import EbmsError
from postroad.wire.names import TEST_ACTION, TEST_SERVICE
from postroad.wire.wsa import EndpointReference

AnyPackage = Package | EbxmlPackage
_LONG: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Plan:
    """What of a draft is not in its message: kept with the work until it is packaged."""

    service: str | None
    action: str | None
    test: bool
    compress: tuple[bool | None, ...]
    sequence: str | None = None
    """What its sequence is found by."""


def drafted(context: Context, draft: Draft, sending: Sending, now: datetime) -> Message:
    """The message of a draft, before it is packaged."""
    message = changed(
        sending.common,
        message_id=draft.message_id,
        created_at=now,
        updated_at=now,
        party=context.party,
        ref_to_message_id=draft.ref_to_message_id,
        conversation_id=draft.conversation_id,
        properties=draft.properties,
        bytes=sum([one.content.size for one in draft.payloads]),
        payload_digests=tuple([f"sha256:{one.sha256.hex()}" for one in draft.payloads]),
    )
    if draft.test:
        return changed(message, service=TEST_SERVICE, action=TEST_ACTION)
    if draft.service or draft.action:
        service, action = draft.service or message.service, draft.action or message.action
        return changed(message, service=service, action=action)
    return message


def unpacked(tx: Transaction, payload: DraftPayload) -> StoredPart:
    """A payload kept as it came."""
    return _stored(tx, payload, payload.content, payload.media_type, False, payload.properties)


def _stored(
    tx: Transaction,
    payload: DraftPayload,
    content: Content,
    wire_type: str,
    compressed: bool,
    properties: tuple[Named, ...],
) -> StoredPart:
    return StoredPart(
        payload.content_id,
        payload.media_type,
        payload.content.size,
        payload.sha256.hex(),
        tx.keep(content),
        wire_type,
        compressed,
        properties,
        payload.file_name,
    )


def packed(tx: Transaction, part: PackedPart) -> StoredPart:
    """A payload kept in its signed form."""
    named = tuple([(one.name, one.value, one.type) for one in part.properties])
    return _stored(tx, part.payload, part.content, part.wire_type, part.compressed, named)


def make_package(
    context: Context,
    draft: Draft,
    sending: Sending,
    now: datetime,
    number: SequenceNumber | None = None,
    rides: Riding | None = None,
    place: Numbered | None = None,
) -> AnyPackage:
    """Package a draft; `Refused` when keys and algorithms do not fit."""
    try:
        if sending.dialect is not None:
            assert not isinstance(rides, SignalMessage)
            return _ebxml_package(context, draft, sending, now, number, rides)
        assert not isinstance(rides, Acknowledgment)
        return package(
            draft,
            sending.match,
            sending.material,
            now=now,
            entropy=context.entropy,
            agreed=sending.agreed,
            rides=rides,
            headers=in_sequence(sending, place) + _requested(sending, draft, now),
            address=None if place is None else sending.address,
            new_sink=context.store.new_sink,
            limits=context.limits,
        )
    except (Unsecurable, EbxmlError) as error:
        raise Refused(422, str(error)) from None
    except EbmsError as error:
        raise Refused(422, error.detail, code=error.code) from None
    except ValueError as error:
        raise Refused(400, str(error)) from None


def _requested(sending: Sending, draft: Draft, now: datetime) -> list[Block]:
    """The header of WS-Reliability. A message expires when nobody sends it any more."""
    if sending.wsr is None:
        return []
    policy = sending.policy
    ends = [one for one in (policy.time_to_live, remaining(policy, 0)) if one is not None]
    expires = now + min(ends, default=_LONG) + policy.interval
    version = soap_version(sending.match.leg)
    return [request_block(sending.wsr, draft.message_id, expires, version)]


def _ebxml_package(
    context: Context,
    draft: Draft,
    sending: Sending,
    now: datetime,
    number: SequenceNumber | None,
    acknowledgment: Acknowledgment | None,
) -> EbxmlPackage:
    leg = sending.match.leg
    terms = agree(cpa_terms(leg), {}, timestamp=now)
    lasts = sending.policy.time_to_live
    if lasts is not None:
        # The receiver goes by its own clock, which may be ahead so much. [MS098-10.2.3-03]
        lasts += terms.msh_time_accuracy
    return package_ebxml(
        draft,
        sending.match,
        sending.material,
        now=now,
        terms=terms,
        agreed=sending.agreed,
        sequence_number=number,
        acknowledgment=acknowledgment,
        time_to_live=None if lasts is None else now + lasts,
        limits=context.limits,
    )


def ready(
    context: Context, tx: Transaction, message: Message, made: AnyPackage, boundary: str | None
) -> Message:
    """The message once it is packaged, with everything kept that sending it takes."""
    return changed(
        message,
        state=State.READY,
        envelope=tx.keep(made.envelope),
        parts=tuple([packed(tx, part) for part in made.parts]),
        seal=made.seal,
        boundary=boundary,
    )


def new_boundary(context: Context, made: AnyPackage) -> str | None:
    """The boundary of the MIME package; none where there is nothing beside the envelope."""
    return context.new_boundary() if made.parts else None


class Packaging:
    """Packages large messages, one after the other, off the loop; and those that need a number."""

    def __init__(self, context: Context, sequences: Sequences) -> None:
        self._context = context
        self._sequences = sequences

    async def perform(self, work: Work) -> None:
        """Do the work; what cannot be packaged has failed."""
        context = self._context
        message = await context.store.look(
            lambda reader: reader.message(Side.SENDING, work.message_id)
        )
        if message is None or message.state is not State.SUBMITTED:
            await context.store.run(lambda tx: tx.finish_work(work.id, work.owner))
            return
        try:
            sending = context.in_force.sending_of(message)
            plan = msgspec.json.decode(work.data, type=Plan)
            if message.envelope is not None:
                await self._number_units(work, message, sending, plan)
                return
            draft = _draft(message, plan, context)
            if message.leg == 2 and sending.dialect is None:
                draft = changed(draft, routed_by=await self._routed_by(message))
            number = await self._number(message, sending)
            made: AnyPackage | None = None
            if may_be_cut(sending, message.bytes):
                cut = await asyncio.to_thread(_cut, context, draft, sending, message)
                if isinstance(cut, Cut):
                    # In a sequence each fragment has a number, and the message none.
                    await self._keep_cut(work, message, cut, sending)
                    return
                made = cut
            place = None
            if sending.reliable is not None and plan.sequence is not None:
                place = await self._sequences.place(message.message_id, plan.sequence, sending)
            if made is None or place is not None:
                rides = await riding(context, message, sending) if sending.answers else None
                args = (context, draft, sending, message.created_at, number, rides, place)
                made = await asyncio.to_thread(make_package, *args)
        except NoSequence as none:
            await self._without_sequence(work, message, sending, none)
            return
        except Refused as refused:
            await context.store.run(_given_up(context, work, message, refused.detail))
            return
        made = await self._persisted(made)
        await context.store.run(self._keep(work, message, made, sending, place))
        if sending.answers:
            context.settled.tell(awaits_name(message.ref_to_message_id or ""))
        context.work_came.set()

    async def _number_units(
        self, work: Work, message: Message, sending: Sending, plan: Plan
    ) -> None:
        """Give a bundle, or a unit that goes alone, its number, and package it with that.

        The number is that of the primary unit, and durable first: whoever goes on after a crash
        finds the same. [P2-3.2.2-08] [P2-3.2.2-11]
        """
        context, envelope = self._context, message.envelope
        assert envelope is not None
        assert plan.sequence is not None
        kept = read_all(context.store.content(envelope), envelope.size)
        sent = sent_messages(kept, context.limits)
        names = tuple(sent)
        units = await context.store.look(lambda reader: units_of(reader, names))
        place = await self._sequences.place(names[0], plan.sequence, sending, names[1:])
        if place is None or len(units) < len(names):
            raise Refused(409, "a message of its bundle was removed since")
        headers = [one.user_message for one in sent.values()]
        routed = await self._routed_by(message) if message.leg == 2 else None
        try:
            args = (context, units, headers, sending, place, (), routed)
            made = await asyncio.to_thread(repackaged, *args)
        except (Unsecurable, ValueError) as error:
            raise Refused(422, str(error)) from None
        await context.store.run(
            lambda tx: self._keep_numbered(tx, work, units, made, sending, place)
        )
        context.work_came.set()

    def _keep_numbered(
        self,
        tx: Transaction,
        work: Work,
        units: Sequence[Message],
        made: Package,
        sending: Sending,
        place: Numbered,
    ) -> None:
        now = self._context.clock()
        tx.finish_work(work.id, work.owner)
        fields = {"state": State.READY, "updated_at": now, "detail": None}
        if share_envelope(tx, units, made.envelope, made.seal, **fields) is None:
            return
        packed_in(tx, units[0].message_id, place, now)
        ends = [ends_at(sending.policy, one.created_at, None) for one in units]
        end = min((one for one in ends if one is not None), default=None)
        to, name = sending.destination(units[0]), units[0].message_id
        tx.add_work(Work("send", name, now, partner=to, expires_at=end))

    async def _without_sequence(
        self, work: Work, message: Message, sending: Sending, none: NoSequence
    ) -> None:
        """No partner made a sequence: ask again as long as a message would be sent again."""
        context, now, policy = self._context, self._context.clock(), sending.policy
        rest = remaining(policy, 0)
        ends = [end for end in (policy.time_to_live, rest) if end is not None]
        over = bool(ends) and now >= message.created_at + min(ends)
        if none.refused or policy.fail_fast or over:
            step = _given_up(context, work, message, none.detail, none.code)
            for name in await context.store.run(step):
                context.settled.tell(name)
            context.told()
            return
        later = now + wait_after(policy, work.attempt + 1, context.dice())
        if ends:
            later = min(later, message.created_at + min(ends))
        detail = none.detail

        def put_off(tx: Transaction) -> None:
            tx.change_message(Side.SENDING, message.message_id, (State.SUBMITTED,), detail=detail)
            tx.postpone_work(work.id, max(later, now), owner=work.owner)

        await context.store.run(put_off)

    async def _routed_by(self, message: Message) -> EndpointReference | None:
        request = await self._context.store.look(lambda reader: request_of(reader, message))
        return routed_by(self._context, request)

    async def _number(self, message: Message, sending: Sending) -> SequenceNumber | None:
        """The number of a message where its P-Mode has some, durable before it is used."""
        if not (sending.numbered or sending.linked):
            return None
        context, now = self._context, self._context.clock()
        end = ends_at(sending.policy, message.created_at, message.first_sent_at)
        if end is not None and now >= end:
            # It never leaves, so it needs none: a number that is not used leaves a hole.
            return None
        return await context.store.run(lambda tx: numbered(context, tx, message, sending, now))

    async def _persisted(self, made: AnyPackage) -> AnyPackage:
        store = self._context.store
        parts = [
            changed(one, content=await store.persist(one.content)) if one.compressed else one
            for one in made.parts
        ]
        return changed(made, parts=tuple(parts))

    async def _keep_cut(self, work: Work, message: Message, cut: Cut, sending: Sending) -> None:
        """The message is a source from now on; its fragments are written next.

        Where these go in a sequence, what follows there does not wait for it.
        """
        context, store = self._context, self._context.store
        made, now = await self._persisted(cut.made), context.clock()
        cut = await cut.persisted(store)

        def step(tx: Transaction) -> None:
            row = work.id
            if sending.reliable is not None:
                tx.finish_work(work.id, work.owner)
                row = tx.add_work(Work("split", message.message_id, now))
            fields: dict[str, Any] = {
                "state": State.READY,
                "envelope": tx.keep(made.envelope),
                "parts": _kept(tx, message, made),
                "boundary": cut.boundary,
                "split": cut.kept(tx),
                "timer": row,
                "updated_at": now,
            }
            if tx.change_message(Side.SENDING, message.message_id, (State.SUBMITTED,), **fields):
                tx.record((about(message, "split", now, fragments=cut.count),))
                if row == work.id:
                    tx.turn_work(work.id, "split", now)
            else:
                tx.finish_work(row, work.owner if row == work.id else None)

        await store.run(step)
        context.work_came.set()

    def _keep(
        self,
        work: Work,
        message: Message,
        made: AnyPackage,
        sending: Sending,
        place: Numbered | None,
    ) -> Callable[[Transaction], None]:
        context = self._context
        boundary = new_boundary(context, made)

        def step(tx: Transaction) -> None:
            is_ours = tx.change_message(
                Side.SENDING,
                message.message_id,
                (State.SUBMITTED,),
                state=State.READY,
                envelope=tx.keep(made.envelope),
                parts=_kept(tx, message, made),
                seal=made.seal,
                boundary=boundary,
                updated_at=context.clock(),
                detail=None,
            )
            if is_ours and place is not None:
                # It keeps its number whatever becomes of those before it, and waits for none.
                packed_in(tx, message.message_id, place, context.clock())
                tx.finish_work(work.id, work.owner)
                end = ends_at(sending.policy, message.created_at, None)
                to = sending.destination(message)
                now = context.clock()
                tx.add_work(Work("send", message.message_id, now, partner=to, expires_at=end))
            elif is_ours:
                fetched = message.channel is not None or sending.answers
                kind = "offer" if fetched else "send"
                partner = sending.destination(message) if kind == "send" else ""
                tx.turn_work(work.id, kind, context.clock(), partner)
            else:
                tx.finish_work(work.id, work.owner)

        return step


def _kept(tx: Transaction, message: Message, made: AnyPackage) -> tuple[StoredPart, ...]:
    """The payloads of a message that was kept as it came, once it is packaged."""
    kept = []
    for part, before in zip(made.parts, message.parts, strict=True):
        if part.compressed:
            kept.append(packed(tx, part))
            tx.drop(before.stored)
        else:
            named = tuple((one.name, one.value, one.type) for one in part.properties)
            kept.append(changed(before, properties=named))
    return tuple(kept)


def _cut(context: Context, draft: Draft, sending: Sending, message: Message) -> Package | Cut:
    """A message that may be too large to go whole; `Refused` when it cannot go."""
    made_here = message.fingerprint is None
    try:
        return package_or_cut(context, draft, sending, message.created_at, made_here)
    except Unsplittable as error:
        raise Refused(422, f"{error}: agree on larger fragments") from None
    except EbmsError as error:
        raise Refused(422, error.detail, code=error.code) from None
    except ValueError as error:
        raise Refused(422, str(error)) from None


def _draft(message: Message, plan: Plan, context: Context) -> Draft:
    payloads = tuple(
        DraftPayload(
            context.store.content(part.stored),
            bytes.fromhex(part.sha256),
            part.media_type,
            part.content_id or "",
            part.file_name,
            part.properties,
            compress,
        )
        for part, compress in zip(message.parts, plan.compress, strict=True)
    )
    return Draft(
        message.message_id,
        message.conversation_id or "",
        payloads,
        message.ref_to_message_id,
        plan.service,
        plan.action,
        message.properties,
        plan.test,
    )


def _given_up(
    context: Context, work: Work, message: Message, detail: str, code: str | None = None
) -> Callable[[Transaction], Sequence[str]]:
    now = context.clock()

    def step(tx: Transaction) -> Sequence[str]:
        names: Sequence[str] = (message.message_id,)
        if message.envelope is not None:
            # All units of a bundle.
            kept = read_all(context.store.content(message.envelope), message.envelope.size)
            names = tuple(sent_messages(kept, context.limits))
        for found in units_of(tx, names):
            # It may have got a number meanwhile, which it gives back.
            unpackable(context, tx, found, work, detail, now, code)
        return names

    return step
