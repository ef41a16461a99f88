"""Taking a message over from the application: checked, durable, and only then answered."""

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.msh.answers import SentMessage
from postroad.msh.bundle_rules import BUNDLING_ERROR, bundle_problems
from postroad.msh.ebxml_outbound import check_ebxml_draft
from postroad.msh.outbound import (
    Draft,
    DraftPayload,
    Package,
    check_draft,
    draft_problems,
    user_message,
)
from postroad.msh.securing import Unsecurable
from postroad.node.base.context import ON_LOOP, Context
from postroad.node.base.in_one_step import InOneStep
from postroad.node.base.journaling import about, signed
from postroad.node.base.together import Together
from postroad.node.bundles.units import may_share_number, packed_unit, whole_size
from postroad.node.ebxml.keeping import awaits_name
from postroad.node.large.splitting import may_be_cut
from postroad.node.service import Refused, Submission, Submitted, SubmittedPayload
from postroad.node.settings.in_force import Sending
from postroad.node.steps.ebxml_order import conversation_of, link_lane
from postroad.node.steps.exchanging import Overtaken, answer, leg_of, partner_of
from postroad.node.steps.notifying import order_of
from postroad.node.steps.offers import check_room, offer, offer_work, reserve
from postroad.node.walks.bundling import Bundling, Unit, members
from postroad.node.walks.packaging import (
    AnyPackage,
    Plan,
    drafted,
    make_package,
    new_boundary,
    packed,
    ready,
    unpacked,
)
from postroad.node.walks.posting import Outgoing
from postroad.node.walks.replying import Riding, for_request, riding, routed_by
from postroad.node.walks.sending import Sender
from postroad.node.wsrm.source import key_of
from postroad.reliability.schedule import ends_at
from postroad.store.interface import Transaction
from postroad.store.records import Event, Message, Side, Work
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.mime_headers import parse_content_type

_MOST_PROPERTIES: Final = 256
_MOST_PROPERTY: Final = 64 * 1024
_MOST_ID: Final = 255
_message_id: Final = re.compile(r"[!-;=?-~]{1,128}@[!-;=?A-~]{1,126}").fullmatch

Kept = tuple[Message, int | None]
"""The message, and the number of the work that sends it; None when it was there before."""


class New(Struct, frozen=True):
    """A message that is to be taken over, and the work that goes on with it."""

    keep: Callable[[Transaction], Message]
    """Keeps its contents; the message with them."""
    work: Work


class Submitting:
    """The door for applications."""

    def __init__(self, context: Context, sender: Sender, bundling: Bundling) -> None:
        self._context = context
        self._sender = sender
        self._bundling = bundling
        self._package: Together[
            tuple[Draft, Sending, datetime, None, Riding | None], AnyPackage
        ] = Together(lambda given: make_package(context, *given))
        self._keep: InOneStep[New, Kept] = InOneStep(context.store, _add_all, _add)

    async def submit(self, submission: Submission) -> Submitted:
        """Take a message over; `Refused` says why it is not taken."""
        mark = None
        if submission.message_id:
            mark = fingerprint(submission)
            before = await self._before(submission.message_id)
            if before is not None:
                return _again(before, mark)
        try:
            return await self._take(submission, mark)
        except Overtaken:
            return await self._take(submission, mark)

    async def submit_bundle(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Take the units of a bundle over, the primary first: all or none, and sent at once.

        [P2-3.1.3-04] [P2-3.4-01]
        """
        if len(submissions) > self._context.limits.units:
            raise Refused(413, f"a bundle has at most {self._context.limits.units} units here")
        while True:
            known = await self._bundle_before(submissions)
            if known:
                return known
            try:
                return await self._take_bundle(submissions)
            except Overtaken:
                continue

    async def _bundle_before(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """What became of a bundle that was submitted before; nothing when it was not."""
        names = [one.message_id for one in submissions if one.message_id]
        twin = next((one for one, count in Counter(names).items() if count > 1), None)
        if twin is not None:
            raise Refused(400, f"two units have the id {twin}; give each its own")
        found = []
        for one in submissions:
            before = await self._before(one.message_id) if one.message_id else None
            if before is not None:
                found.append(_again(before, fingerprint(one)))
        if found and len(found) < len(submissions):
            said = "was submitted before, and others of this bundle were not; leave it out"
            raise Refused(409, f"{found[0].message.message_id} {said}")
        return found

    async def _take_bundle(self, submissions: Sequence[Submission]) -> list[Submitted]:
        context, bundling = self._context, self._bundling
        now = context.clock()
        units = [await self._unit(one, now) for one in submissions]
        self._check_company(units)
        _refuse(bundle_problems(members(units), 0))
        await bundling.let_go_first(units)
        try:
            made = await bundling.package_or_cut(units)
        except (Unsecurable, ValueError) as error:
            raise Refused(422, str(error)) from None
        _refuse(bundle_problems(members(units), whole_size(made)))

        def take(tx: Transaction) -> list[Message]:
            if tx.messages_by_id(Side.SENDING, [one.message.message_id for one in units]):
                raise Overtaken
            kept = [_with_parts(tx, one) for one in units]
            for one in kept:
                if one.leg == 2:
                    answer(tx, one)
            return kept

        taken = await bundling.send_at_once(units, made, take)
        for _ in taken:
            context.count("messages", side="sending", event="submitted")
        return [Submitted(one, False) for one in taken]

    async def _unit(self, submission: Submission, now: datetime) -> Unit:
        """A unit of a bundle that an application put together."""
        mark = fingerprint(submission) if submission.message_id else None
        message, draft, sending = await self._drafted(submission, mark, now)
        if sending.channel is not None:
            said = "is pulled, and bundled then with what waits: submit it by itself"
            raise Refused(422, f"{message.message_id} {said}", code=BUNDLING_ERROR)
        if sending.bundling is None or sending.asks:
            said = f"messages of P-Mode {submission.pmode!r} go alone: submit it by itself"
            raise Refused(422, f"{message.message_id}: {said}", code=BUNDLING_ERROR)
        packed = await packed_unit(self._context, draft, sending, now)
        _refuse(draft_problems(draft, sending.match, packed.user_message))
        work = self._bundling.work(message, packed)
        return Unit(message, work, packed, sending, sending.bundling)

    def _check_company(self, units: Sequence[Unit]) -> None:
        """What of a bundle no P-Mode says, and no message can hold."""
        first, most = units[0], self._context.limits.parts
        if len(units) == 1 and first.terms.policy == "always":
            said = "is always bundled: submit others with it"
            raise Refused(422, f"{first.message.message_id} {said}", code=BUNDLING_ERROR)
        for one in units:
            if one.message.partner != first.message.partner:
                said = f"goes to {one.message.partner}, the primary to {first.message.partner}"
                raise Refused(422, f"{one.message.message_id} {said}", code=BUNDLING_ERROR)
            if not may_share_number(one.packed, one.sending, first.packed, first.sending):
                said = "goes in another sequence than the primary, and keeps its order there"
                raise Refused(422, f"{one.message.message_id} {said}", code=BUNDLING_ERROR)
        if sum(len(one.packed.parts) for one in units) >= most:
            raise Refused(413, f"there are more than {most - 1} payloads in the bundle")

    async def _drafted(
        self, submission: Submission, mark: str | None, now: datetime
    ) -> tuple[Message, Draft, Sending]:
        sending, request = await leg_of(self._context, submission)
        draft = self._draft(submission, now)
        if request is not None:
            sending, draft = self._answering(sending, draft, request)
        message = changed(drafted(self._context, draft, sending, now), fingerprint=mark)
        if request is not None:
            message = changed(message, late=request.late)
        return message, draft, sending

    async def _take(self, submission: Submission, mark: str | None) -> Submitted:
        now = self._context.clock()
        message, draft, sending = await self._drafted(submission, mark, now)
        alone = sending.channel is not None or sending.asks or _goes_alone(message, sending)
        if sending.bundling is not None and not alone:
            return await self._keep_waiting(message, draft, sending, now)
        later = message.bytes > ON_LOOP or may_be_cut(sending, message.bytes)
        if later or sending.numbered or sending.linked or _is_numbered_here(sending):
            # What has a number gets it when its turn comes.
            self._check(draft, sending, now)
            return await self._keep_for_later(message, draft, sending)
        return await self._keep_ready(message, draft, sending, now)

    def _answering(self, sending: Sending, draft: Draft, request: Message) -> tuple[Sending, Draft]:
        """A reply goes to who sent the request, in the same conversation."""
        draft = changed(
            draft,
            conversation_id=request.conversation_id or draft.conversation_id,
            routed_by=routed_by(self._context, request) if sending.dialect is None else None,
        )
        if sending.agreed.to_party.party_ids:
            return sending, draft
        partner = partner_of(self._context, request)
        agreed = changed(sending.agreed, to_party=partner)
        return dataclasses.replace(sending, agreed=agreed), draft

    async def _before(self, message_id: str) -> Message | None:
        return await self._context.store.look(
            lambda reader: reader.message(Side.SENDING, message_id)
        )

    async def _keep_ready(
        self, message: Message, draft: Draft, sending: Sending, now: datetime
    ) -> Submitted:
        """Package, keep, and hand over to the sender in one go."""
        context, sender = self._context, self._sender
        # A reply may be wanted by a request that waits for it: who knows is the step.
        replies = sending.dialect is not None and draft.ref_to_message_id is not None
        rides = await riding(context, message, sending)
        made = await self._package((draft, sending, now, None, rides))
        _refuse(draft_problems(draft, sending.match, made.user_message))
        boundary = new_boundary(context, made)
        if sending.channel is not None or sending.answers:
            return await self._keep_offered(message, made, sending, boundary)
        work = send_work(context, "send", message, sending)
        taken = (
            work.lane is None
            and not replies
            and sender.has_room(work.partner)
            and _goes_now(context, work, sending)
        )
        if taken:
            work = sender.claimed(work, now)

        def step(tx: Transaction) -> Message:
            return ready(context, tx, message, made, boundary)

        new = New(step, work)
        if replies:
            kept, number = await context.store.run(
                lambda tx: _add(tx, new, lambda kept: for_request(tx, kept, work, context))
            )
        else:
            kept, number = await self._keep(new)
        if number is None:
            return _again(kept, message.fingerprint)
        if replies:
            context.settled.tell(awaits_name(draft.ref_to_message_id or ""))
        context.count("messages", side="sending", event="submitted")
        if taken:
            sent = None
            if isinstance(made, Package):
                sent = SentMessage(made.user_message, made.references, written=made.header)
            sender.take(Outgoing(kept, changed(work, id=number), sent, made))
        else:
            context.work_came.set()
        return Submitted(kept, False)

    async def _keep_waiting(
        self, message: Message, draft: Draft, sending: Sending, now: datetime
    ) -> Submitted:
        """Keep it as a unit that waits for others to be bundled with."""
        context, bundling = self._context, self._bundling
        unit = await packed_unit(context, draft, sending, now)
        _refuse(draft_problems(draft, sending.match, unit.user_message))
        assert sending.bundling is not None
        work = bundling.work(message, unit)
        given = Unit(message, work, unit, sending, sending.bundling)
        kept, number = await self._keep(New(lambda tx: _with_parts(tx, given), given.work))
        if number is None:
            return _again(kept, message.fingerprint)
        context.count("messages", side="sending", event="submitted")
        bundling.take(changed(given, message=kept, work=changed(given.work, id=number)))
        return Submitted(kept, False)

    async def _keep_offered(
        self, message: Message, made: AnyPackage, sending: Sending, boundary: str | None
    ) -> Submitted:
        """Keep it, and put it into its channel; or let those have it whose request waits."""
        context, now = self._context, message.created_at
        ends = offer_work(message, sending)

        def step(tx: Transaction) -> Kept:
            kept = ready(context, tx, message, made, boundary)
            if not tx.add_message(kept):
                return _there(tx, message), None
            check_room(tx, sending)
            if kept.leg == 2:
                answer(tx, kept)
            # What is pulled in a bundle, or in a sequence, goes in another envelope.
            alone = sending.bundling is None and sending.reliable is None
            evidence = signed(kept) if alone else None
            tx.record((about(kept, "submitted", now, evidence=evidence),))
            if sending.channel is not None:
                offer(tx, kept, made.user_message, now)
            if ends is not None:
                number = tx.add_work(ends)
                tx.change_message(Side.SENDING, kept.message_id, (kept.state,), timer=number)
            return kept, 0

        kept, number = await context.store.run(step)
        if number is None:
            return _again(kept, message.fingerprint)
        context.count("messages", side="sending", event="submitted")
        if sending.answers:
            context.settled.tell(awaits_name(message.ref_to_message_id or ""))
        if ends is not None:
            context.work_came.set()
        return Submitted(kept, False)

    async def _keep_for_later(self, message: Message, draft: Draft, sending: Sending) -> Submitted:
        """Keep it as it came: packaging takes its time, and the application need not wait."""
        context = self._context
        payloads = [
            changed(one, content=await context.store.persist(one.content)) for one in draft.payloads
        ]
        compress = tuple(one.compress for one in payloads)
        plan = Plan(draft.service, draft.action, draft.test, compress)
        work = send_work(context, "package", message, sending)
        if _is_numbered_here(sending):
            # Numbers are given in the order in which messages were submitted.
            said = user_message(draft, sending.match, (), message.created_at, sending.agreed)
            plan = dataclasses.replace(plan, sequence=key_of(sending, said))
            work = changed(work, kind="sequence", lane=f"sequence:{plan.sequence}")
        work = changed(work, data=msgspec.json.encode(plan))

        def step(tx: Transaction) -> Kept:
            kept = changed(message, parts=tuple([unpacked(tx, one) for one in payloads]))
            if not tx.add_message(kept):
                for part in kept.parts:
                    tx.drop(part.stored)
                return _there(tx, message), None
            check_room(tx, sending)
            if kept.leg == 2:
                answer(tx, kept)
            if sending.channel is not None:
                reserve(tx, kept)
            tx.record((about(kept, "submitted", message.created_at),))
            return kept, tx.add_work(work)

        kept, number = await context.store.run(step)
        if number is None:
            return _again(kept, message.fingerprint)
        context.count("messages", side="sending", event="submitted")
        context.work_came.set()
        return Submitted(kept, False)

    def _draft(self, submission: Submission, now: datetime) -> Draft:
        message_id = submission.message_id or self._context.new_id(now)
        if len(message_id) > _MOST_ID or not _message_id(message_id):
            raise Refused(
                400, f"{message_id[:100]!r} is no message id: write it like 4711@buyer.example"
            )
        if len(submission.payloads) >= self._context.limits.parts:
            raise Refused(413, f"there are more than {self._context.limits.parts - 1} payloads")
        payloads = tuple(
            [
                self._payload(one, number, message_id)
                for number, one in enumerate(submission.payloads, 1)
            ]
        )
        if len(payloads) > 1 and len({one.content_id for one in payloads}) < len(payloads):
            raise Refused(400, "two payloads have the same content_id")
        _check_properties(submission)
        return Draft(
            message_id,
            message_id if submission.conversation_id is None else submission.conversation_id,
            payloads,
            submission.ref_to_message_id,
            submission.service,
            submission.action,
            submission.properties,
            submission.test,
        )

    def _payload(self, given: SubmittedPayload, number: int, message_id: str) -> DraftPayload:
        limit = self._context.limits.part_bytes
        if given.content.size > limit:
            raise Refused(413, f"payload {number} is larger than {limit} bytes")
        try:
            media_type = parse_content_type(given.media_type).media_type
        except EbmsError as error:
            raise Refused(400, f"payload {number}: {error.detail}") from None
        return DraftPayload(
            given.content,
            given.sha256,
            media_type,
            given.content_id or self._content_id(number, message_id),
            given.file_name,
            given.properties,
            given.compress,
        )

    def _content_id(self, number: int, message_id: str) -> str:
        """Of a payload without one: the same whenever the same message is submitted."""
        mark = hashlib.sha256(message_id.encode()).hexdigest()[:32]
        return f"{number}.{mark}@{self._context.host}"

    def _check(self, draft: Draft, sending: Sending, now: datetime) -> None:
        try:
            check = check_draft if sending.dialect is None else check_ebxml_draft
            _refuse(check(draft, sending.match, now, sending.agreed))
        except ValueError as error:
            raise Refused(400, str(error)) from None


def _with_parts(tx: Transaction, unit: Unit) -> Message:
    """The message of a unit, its parts kept in their signed form."""
    return changed(unit.message, parts=tuple([packed(tx, part) for part in unit.packed.parts]))


def _add(
    tx: Transaction, new: New, hand_out: Callable[[Message], int | None] = lambda kept: None
) -> Kept:
    """The step after which a message is taken over; `hand_out` may give it to who waits for it."""
    kept = new.keep(tx)
    if not tx.add_message(kept):
        for part in kept.parts:
            tx.drop(part.stored)
        if kept.envelope is not None:
            tx.drop(kept.envelope)
        return _there(tx, kept), None
    if kept.leg == 2:
        answer(tx, kept)
    tx.record((_submitted(kept),))
    handed = hand_out(kept)
    return kept, tx.add_work(new.work) if handed is None else handed


def _add_all(tx: Transaction, news: Sequence[New]) -> list[Kept]:
    """The same for many that are all new; else an error."""
    kept = [one.keep(tx) for one in news]
    tx.add_messages(kept)
    for one in kept:
        if one.leg == 2:
            answer(tx, one)
    tx.record([_submitted(one) for one in kept])
    return list(zip(kept, tx.add_works([one.work for one in news]), strict=True))


def _submitted(kept: Message) -> Event:
    return about(kept, "submitted", kept.created_at, evidence=signed(kept))


def send_work(context: Context, kind: str, message: Message, sending: Sending) -> Work:
    """The work of packaging or sending a message, in its lane where order was promised."""
    if (sending.channel is not None or sending.answers) and kind == "send":
        end = ends_at(sending.policy, message.created_at, message.first_sent_at)
        return Work("offer", message.message_id, message.created_at, expires_at=end)
    scope = sending.in_order
    lane = None if scope is None else f"send:{order_of(message, scope)}"
    if sending.numbered:
        # Numbers are those of the conversation, whatever P-Mode its messages have.
        lane = f"send:{conversation_of(message)}"
    if sending.linked:
        lane = link_lane(context, sending)
    return Work(
        kind,
        message.message_id,
        message.created_at,
        partner=sending.destination(message) if kind == "send" else "",
        lane=lane,
        expires_at=ends_at(sending.policy, message.created_at, message.first_sent_at),
    )


def _goes_now(context: Context, work: Work, sending: Sending) -> bool:
    """Whether the sender takes it over at once: not for a partner who is paused."""
    return sending.policy.fail_fast or not context.is_paused(work.partner)


def _is_numbered_here(sending: Sending) -> bool:
    """Whether it gets its number in a sequence before it is sent; what is pulled, when it is."""
    return sending.reliable is not None and sending.channel is None


def _goes_alone(message: Message, sending: Sending) -> bool:
    """Whether it is too large for company, which it may have: it goes in fragments at once."""
    terms, bundling = sending.splitting, sending.bundling
    if terms is None or bundling is None or bundling.in_order:
        return False
    most = bundling.max_size or max(terms.cut, ON_LOOP)
    return bundling.policy == "optional" and message.bytes > most


def _refuse(problems: list[EbmsError]) -> None:
    """The application is told what breaks the P-Mode, before anything is taken over."""
    failures = [one for one in problems if one.severity is Severity.FAILURE]
    if failures:
        said = "; ".join(one.detail for one in failures)
        raise Refused(422, said, code=failures[0].code)


def _check_properties(submission: Submission) -> None:
    every = [*submission.properties, *[p for one in submission.payloads for p in one.properties]]
    if len(every) > _MOST_PROPERTIES:
        raise Refused(413, f"there are more than {_MOST_PROPERTIES} properties")
    for name, value, _ in every:
        if len(name) + len(value) > _MOST_PROPERTY:
            raise Refused(
                413, f"the property {name[:80]!r} is longer than {_MOST_PROPERTY} characters"
            )


def fingerprint(submission: Submission) -> str:
    """A digest of all that the application gave: the same again is the same message."""
    payloads = [
        (
            one.sha256.hex(),
            one.content.size,
            one.media_type,
            one.content_id,
            one.file_name,
            one.properties,
            one.compress,
        )
        for one in submission.payloads
    ]
    given = (
        submission.pmode,
        submission.conversation_id,
        submission.ref_to_message_id,
        submission.service,
        submission.action,
        submission.properties,
        submission.test,
        payloads,
    )
    return hashlib.sha256(msgspec.json.encode(given)).hexdigest()


def _there(tx: Transaction, message: Message) -> Message:
    known = tx.message(Side.SENDING, message.message_id)
    assert known is not None
    return known


def _again(known: Message, mark: str | None) -> Submitted:
    """The same submission gets the first answer, another one under the same id is refused."""
    if known.fingerprint != mark:
        raise Refused(
            409,
            f"another message was submitted as {known.message_id}; give this one an id of its own",
        )
    return Submitted(known, True)
