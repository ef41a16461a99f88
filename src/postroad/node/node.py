"""A running node: everything wired together, and the one door to it."""

import asyncio
import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from postroad.agreement.matching import header
from postroad.msh.compression import Unzipped
from postroad.msh.forwarding import RouteReport
from postroad.node.base.choice import one_of
from postroad.node.base.context import WEBHOOK, Context, utc_now
from postroad.node.base.requests import Request, Response
from postroad.node.bundles.outcome import bundle_left_behind, unit_ids
from postroad.node.ebxml.asking import Asker
from postroad.node.ebxml.keeping import Gaps, release
from postroad.node.ebxml.relaying import Reporting
from postroad.node.evidence.making import evidence_zip
from postroad.node.health import Doors, NodeHealth
from postroad.node.hub.fetching import Fetching
from postroad.node.hub.reporting import ForwardingReports
from postroad.node.hub.route_explaining import explain_message
from postroad.node.hub.streaming import Streaming
from postroad.node.large.restarting import Restarting
from postroad.node.large.splitting import Splitting, cut_anew, resume_fragments
from postroad.node.service import (
    ANSWERS,
    ON_ITS_WAY,
    Arriving,
    Asking,
    Collected,
    Health,
    PModeSummary,
    Refused,
    Reloaded,
    Submission,
    Submitted,
    Transfer,
)
from postroad.node.settings.config import Config
from postroad.node.settings.in_force import InForce
from postroad.node.shipping import Shipping
from postroad.node.steps.attempts import left_behind
from postroad.node.steps.bundle_rows import close_rows
from postroad.node.steps.calling import Calling
from postroad.node.steps.exchanging import no_reply, reply_to
from postroad.node.steps.fragment_groups import arriving
from postroad.node.steps.handing import Handing
from postroad.node.steps.mailing import Mailing, Mails
from postroad.node.steps.notifying import Notifier
from postroad.node.steps.noting import record_refusals
from postroad.node.steps.outcome import begin_anew, settle, shares_row
from postroad.node.steps.partners import (
    halt,
    links_to,
    resume,
    show_life,
    stopped_with,
    suspended_for,
)
from postroad.node.steps.revocation_status import RevocationStatus
from postroad.node.steps.sender_errors import SenderErrors
from postroad.node.steps.split_outcome import transfer_of
from postroad.node.steps.split_units import source_id
from postroad.node.upkeep import Upkeep
from postroad.node.walks.bundling import Bundling
from postroad.node.walks.joining import Joining
from postroad.node.walks.mail_in import MailIn
from postroad.node.walks.packaging import Packaging
from postroad.node.walks.pulling import Puller
from postroad.node.walks.receiving import Receiver
from postroad.node.walks.sending import Sender
from postroad.node.walks.submitting import Submitting, send_work
from postroad.node.working import JUMP, SIDES, STOPPED, WorkLoop, set_back
from postroad.node.wsrm.destination import free
from postroad.reliability.breaker import Party, by_party, is_of
from postroad.reliability.delivery import Input
from postroad.store.interface import Reader, Store, StoreError, StoreFull, Transaction
from postroad.store.records import (
    INBOX,
    Extent,
    Message,
    Notice,
    Recorded,
    Side,
    Signal,
    State,
    StoredPart,
    Total,
    Wanted,
    Work,
)
from postroad.transport.http_client import Client, HttpClient
from postroad.wire.content import Content, Sink
from postroad.wire.ebms3 import Selection

_AT_ONCE: Final = 1000
_NEVER_ARRIVED: Final = (State.FAILED, State.EXPIRED)
_TOGETHER: Final = 200
"""Messages that one step acknowledges: more would hold up the others."""
_log = logging.getLogger("postroad.node")


class Node:
    """One process of a node. `start` it, use it, `stop` it.

    One of several `leads`: it beats, cleans and ships for all. `left_by` are the owners that are
    gone and whose work is taken up; without it the one that leads takes up everything.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        leads: bool = True,
        left_by: Sequence[str] | None = None,
        clock: Callable[[], datetime] = utc_now,
        entropy: Callable[[int], bytes] = os.urandom,
        client: Client | None = None,
        mail: Mailing | None = None,
    ) -> None:
        limits = config.limits.wire
        self.config = config
        self.name = config.node
        self.party = config.party_name
        self._leads = leads
        everybody = (f"{config.node}/",) if leads else ()
        self._left_by = everybody if left_by is None else tuple(left_by)
        self.context = Context(
            config,
            store,
            InForce(config, limits),
            limits,
            f"{config.node}/{os.getpid()}-{entropy(4).hex()}",
            clock,
            entropy,
        )
        self._health = NodeHealth(self.context)
        parallel = config.send.parallel
        self._client: Client = client or HttpClient(
            per_host=parallel,
            total=4 * parallel,
            egress=lambda: self.context.egress,
            revocation=lambda: self.context.in_force.revocation,
        )
        self._mail: Mailing = mail or Mails(self.context)
        self._sender = Sender(self.context, self._client, self._mail)
        self._bundling = Bundling(self.context, self._sender)
        self._submitting = Submitting(self.context, self._sender, self._bundling)
        self._receiver = Receiver(self.context)
        self._restarting = Restarting(self.context, self._receiver.receive)
        self._streaming = self._receiver.streaming = Streaming(self.context, client)
        spoken = self._receiver.ebxml
        self.context.take_in = spoken.take_response
        self.context.pass_on = spoken.pass_on_response
        self.context.take_reply = self._receiver.take_response
        self._asker = Asker(self.context, self._client, self._mail, spoken.services)
        self.mail_in = MailIn(self._receiver)
        self._puller = Puller(self.context, self._client, self._receiver)
        self._fetching = Fetching(self.context, self._client)
        self._revocation = RevocationStatus(self.context, self._client)
        if self._revocation.is_on:
            self.context.learn = self._revocation.learn
            self.context.learn_client = self._revocation.learn_client
        self._upkeep = Upkeep(self.context, leads=leads)
        target = config.journal.ship_to if leads else None
        self._shipping = None if target is None else Shipping(self.context, target)
        packaging = Packaging(self.context, self._sender.sequences)
        self._loop = WorkLoop(
            self.context,
            self._sender,
            {
                "package": packaging.perform,
                "sequence": packaging.perform,
                "sequence_end": self._sender.sequences.perform,
                "held": self._receiver.destinations.perform,
                "split": Splitting(self.context).perform,
                "signal": Calling(self.context, self._client, self._mail).perform,
                "report": Reporting(self.context).perform,
                "inform": ForwardingReports(self.context).perform,
                "complain": SenderErrors(self.context).perform,
                "gap": Gaps(self.context).perform,
                "notify": Notifier(self.context, self._client, self.reply).perform,
                "deliver": Handing(self.context).perform,
                "offer": self._receiver.offering.perform,
                "collect": self._puller.perform,
                "bundle": self._bundling.perform,
                "join": Joining(self.context).perform,
            },
            leads=leads,
        )
        self.context.claimed, self.context.begin = self._loop.claimed, self._loop.begin
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take up what was left behind, then begin."""
        await self._recover()
        if self._leads:
            try:
                await self._upkeep.heartbeat()
            except StoreFull as error:
                _log.warning("started with a full disk", extra={"detail": str(error)})
            await self._upkeep.watch_disk()
        self._sender.start()
        self._tasks = [
            asyncio.create_task(self._loop.run()),
            asyncio.create_task(self._upkeep.run()),
            asyncio.create_task(self._revocation.run()),
        ]
        if self._leads:
            self._tasks.append(asyncio.create_task(self._puller.run()))
            self._tasks.append(asyncio.create_task(self._fetching.run()))
        if self._shipping is not None:
            self._tasks.append(asyncio.create_task(self._shipping.run()))

    def hurry(self) -> None:
        """Let those go who wait in their requests: the node is about to stop."""
        self.context.stopping = True
        self.context.settled.tell_all()

    async def stop(self) -> None:
        """Finish what is under way; everything else is durable and waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._puller.stop()
        await self._bundling.stop()
        await self._sender.stop()
        with contextlib.suppress(StoreError):
            await self._loop.stop()
            await self.context.store.run(lambda tx: tx.release_work(self.context.owner))
        await self._client.close()
        await self._streaming.close()
        await self._mail.close()
        await record_refusals(self.context, everything=True)
        if self._shipping is not None:
            await self._shipping.finish()
        await asyncio.to_thread(self.context.ahead.close)
        await self.context.store.close()

    async def _recover(self) -> None:
        """What a process that is gone was sending may have left: say so, and send it again."""

        def step(tx: Transaction) -> None:
            # Not before: while the store is slow, other processes write events, which would then
            # be ahead of the clock.
            now = self.context.clock()
            last = tx.journal(tx.figures().last_seq - 1, 1) if self._leads else []
            if last and last[0].event.at - now > JUMP:
                set_back(tx, last[0].event.at - now)
            for owner in self._left_by:
                tx.release_transfers(owner)
            for work in (one for owner in self._left_by for one in tx.release_work(owner)):
                side = SIDES.get(work.kind)
                message = tx.message(side, work.message_id) if side is not None else None
                if message is not None and message.bundle is not None:
                    bundle_left_behind(self.context, tx, message, work, now, STOPPED)
                elif message is not None:
                    left_behind(self.context, tx, message, work, now)

        await self.context.store.run_with_reserve(step)
        await self.context.look_at_partners()

    def receive(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self._restarting.receive(request)

    async def note(self, code: str, detail: str, peer: str | None) -> None:
        await self._receiver.note(code, detail, peer)

    def new_sink(self) -> Sink:
        return self.context.store.new_sink()

    async def submit(self, submission: Submission) -> Submitted:
        return await self._submitting.submit(submission)

    async def submit_bundle(self, submissions: Sequence[Submission]) -> list[Submitted]:
        return await self._submitting.submit_bundle(submissions)

    async def reply(
        self, message_id: str, submission: Submission, cursor: int | None = None
    ) -> Submitted:
        message = await self.message(message_id, Side.RECEIVING, cursor)
        if message is None or message.state not in INBOX:
            raise Refused(404, f"there is no message {message_id} in the inbox")
        return await self.submit(reply_to(self.context, message, submission))

    async def message(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> Message | None:
        sides = (side,) if side else (Side.SENDING, Side.RECEIVING, Side.FORWARDING)

        def ask(reader: Reader) -> Message | None:
            found = (one_of(reader, each, message_id, cursor) for each in sides)
            return next((one for one in found if one is not None), None)

        return await self.context.store.look(ask)

    async def received(self, message_id: str) -> list[Message]:
        return await self.context.store.look(
            lambda reader: reader.messages_of_id(Side.RECEIVING, message_id)
        )

    async def messages(self, wanted: Wanted) -> list[Message]:
        return await self.context.store.look(lambda reader: reader.messages(wanted))

    async def total(self, wanted: Wanted, most: int) -> Total:
        return await self.context.store.look(lambda reader: reader.total(wanted, most))

    async def signals(self, message: Message) -> list[Signal]:
        return await self.context.store.look(
            lambda reader: reader.signals(message.side, message.message_id)
        )

    async def beginning(self, message_id: str) -> bytes | None:
        return await self.context.store.look(lambda reader: reader.beginning(message_id))

    def signal(self, signal: Signal) -> Content:
        return self.context.store.content(signal.envelope)

    async def events(self, message_id: str) -> list[Recorded]:
        return await self.context.store.look(lambda reader: reader.events(message_id))

    async def transfer(self, message: Message) -> Transfer | None:
        if message.split is None:
            return None
        states = await self.context.store.look(
            lambda reader: reader.fragment_states(message.side, source_id(message))
        )
        return transfer_of(message.split, states)

    async def fragments(self, message: Message, after: int = 0, limit: int = 100) -> list[Message]:
        return await self.context.store.look(
            lambda reader: reader.fragment_messages(message.side, source_id(message), after, limit)
        )

    async def settled(self, message_id: str, timeout: float) -> Message | None:
        return await self._once(message_id, timeout, lambda one: one.state not in ON_ITS_WAY)

    async def replied(self, message_id: str, timeout: float) -> Message | None:
        return await self._once(
            message_id,
            timeout,
            lambda one: (
                one.reply_message_id is not None
                or one.state in _NEVER_ARRIVED
                or no_reply(self.context, one) is not None
            ),
        )

    def no_reply(self, message: Message) -> str | None:
        return no_reply(self.context, message) if message.side is Side.SENDING else None

    async def _once(
        self, message_id: str, timeout: float, done: Callable[[Message], bool]
    ) -> Message | None:
        """An outgoing message once it is so far; another process may do that, so look again."""
        event = self.context.settled.enter(message_id)
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            while True:
                event.clear()
                found = await self.message(message_id, Side.SENDING)
                left = deadline - asyncio.get_running_loop().time()
                if found is None or done(found) or left <= 0 or self.context.stopping:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, 0.5)):
                        await event.wait()
        finally:
            self.context.settled.leave(message_id, event)

    def part(self, message: Message, part: StoredPart) -> Content:
        content = self.context.store.content(part.stored)
        return Unzipped(content, part.size) if part.compressed else content

    async def acknowledge(self, message_id: str, cursor: int | None = None) -> Message:
        now = self.context.clock()

        def step(tx: Transaction) -> Message | None:
            message = one_of(tx, Side.RECEIVING, message_id, cursor)
            if message is None or message.state is not State.DELIVERED:
                return message
            _consume(tx, message, now)
            return tx.message(Side.RECEIVING, message.message_id)

        message = await self.context.store.run_with_reserve(step)
        if message is None or message.state is not State.CONSUMED:
            raise Refused(404, f"there is no message {message_id} in the inbox")
        self.context.work_came.set()
        return message

    async def release(self, message_id: str, cursor: int | None = None) -> Message:
        context, now = self.context, self.context.clock()

        def step(tx: Transaction) -> Message | None:
            message = one_of(tx, Side.RECEIVING, message_id, cursor)
            if message is None or message.state is not State.HELD:
                return None
            if not (release(context, tx, message, now) or free(context, tx, message, now)):
                return None
            return tx.message(Side.RECEIVING, message.message_id)

        message = await context.store.run(step)
        if message is None:
            raise Refused(404, f"no message {message_id} is held until others come")
        context.told()
        return message

    async def acknowledge_all(self, wanted: Wanted) -> int:
        waiting = dataclasses.replace(
            wanted, side=Side.RECEIVING, states=(State.DELIVERED,), limit=_TOGETHER
        )
        now = self.context.clock()

        def step(tx: Transaction) -> int:
            found = tx.messages(waiting)
            for message in found:
                _consume(tx, message, now)
            return len(found)

        acknowledged = 0
        while True:
            count = await self.context.store.run_with_reserve(step)
            acknowledged += count
            self.context.work_came.set()
            if count < _TOGETHER:
                return acknowledged

    async def inbox(self) -> Extent:
        return await self.context.store.look(lambda reader: reader.inbox())

    async def arriving(self, limit: int = 100) -> list[Arriving]:
        return await self.context.store.look(lambda reader: arriving(reader, limit))

    async def evidence(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> Iterator[bytes]:
        message = await self.message(message_id, side, cursor)
        if message is None:
            raise Refused(404, f"there is no message {message_id}")
        signals = await self.signals(message)
        events = await self.events(message.wire_id)
        if message.side is Side.RECEIVING and len(await self.received(message.wire_id)) > 1:
            events = [one for one in events if _tells_of(one, message)]
        return evidence_zip(self.context, message, signals, events)

    async def route(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> RouteReport:
        message = await self.message(message_id, side, cursor)
        if message is None:
            raise Refused(404, f"there is no message {message_id}")
        return await asyncio.to_thread(explain_message, self.context, message)

    async def resend(self, message_id: str) -> Message:
        now = self.context.clock()

        def step(tx: Transaction) -> tuple[Message | None, bool]:
            message = tx.message(Side.SENDING, message_id)
            if message is None or message.state is State.SUBMITTED:
                return message, False
            if message.envelope is None:
                raise Refused(422, f"{message_id} was never packaged: {message.detail}")
            if message.part_of is not None:
                raise Refused(409, f"{message_id} is a fragment: resend {message.part_of}")
            if message.sequence_number is not None and message.state in _NEVER_ARRIVED:
                said = "its number in the conversation was given back; submit it under another id"
                raise Refused(409, f"{message_id} is {message.state.value}: {said}")
            work = self._send_work(message)
            if work.expires_at is not None and now >= work.expires_at:
                over = f"{work.expires_at:%Y-%m-%dT%H:%M:%SZ}"
                raise Refused(
                    409, f"the time of {message_id} was over at {over}; submit it under another id"
                )
            if message.split is not None:
                return message, cut_anew(self.context, tx, message, now)
            return message, begin_anew(tx, message, Input.RESENT, now, work)

        message, begun = await self.context.store.run(step)
        if message is None:
            raise Refused(404, f"there is no message {message_id}")
        if not begun:
            raise Refused(409, f"{message_id} is {message.state.value}: there is nothing to resend")
        self.context.work_came.set()
        return await self._now(message_id)

    def _send_work(self, message: Message) -> Work:
        """The work of sending a message that is there; `Refused` when its P-Mode is not."""
        sending = self.context.in_force.sending_of(message)
        return send_work(self.context, "send", message, sending)

    async def _now(self, message_id: str) -> Message:
        found = await self.message(message_id, Side.SENDING)
        assert found is not None
        return found

    async def settle(self, message_id: str, answer: str, who: str = "operator") -> Message:
        if answer not in ANSWERS:
            raise Refused(400, f"{answer[:50]!r} is no answer; write {', '.join(ANSWERS)}")
        context, now = self.context, self.context.clock()

        def step(tx: Transaction) -> tuple[Message | None, bool]:
            message = tx.message(Side.SENDING, message_id)
            if message is None:
                return None, False
            if message.part_of is not None:
                raise Refused(409, f"{message_id} is a fragment: settle {message.part_of}")
            done = settle(context, tx, message, answer, who, now)
            if done and message.timer is not None and shares_row(message):
                close_rows(tx, unit_ids(context, message), [message.timer])
            return message, done

        message, done = await context.store.run(step)
        if message is None:
            raise Refused(404, f"there is no message {message_id}")
        if not done:
            raise Refused(409, f"{message_id} is {message.state.value}: there is nothing to settle")
        context.settled.tell(message_id)
        context.work_came.set()
        return await self._now(message_id)

    async def ping(self, pmode: str, timeout: float) -> Asking:
        sending = self.context.in_force.sending(pmode)
        to = str(sending.agreed.to_party), sending.address or None
        if sending.dialect is not None:
            pong = await self._asker.ping(pmode, timeout)
            if pong.answer is not None:
                await show_life(self.context, *to)
            return pong
        # A test message waits while its partner is paused, unless a message may probe.
        await show_life(self.context, *to)
        # ebMS 3.0 has a test service instead, whose answer is a receipt.
        loop = asyncio.get_running_loop()
        began = loop.time()
        sent = (await self.submit(Submission(pmode, test=True))).message
        found = await self.settled(sent.message_id, timeout) or sent
        answer = "Pong" if found.state is State.ACKNOWLEDGED else None
        why = None if answer else found.detail or f"the test message is {found.state.value}"
        return Asking(answer, None, sending.address, loop.time() - began, why)

    async def query(self, message_id: str, timeout: float) -> Asking:
        message = await self.message(message_id, Side.SENDING)
        if message is None:
            raise Refused(404, f"no message {message_id} was sent from here")
        return await self._asker.query(message, timeout)

    async def pull(
        self, pmode: str, selection: Selection | None = None, *, most: int = 1
    ) -> Collected:
        return await self._puller.pull(pmode, selection, most=most)

    async def partners(self) -> list[Party]:
        found = await self.context.store.look(lambda reader: reader.partners())
        return by_party(one for one in found if one.name != WEBHOOK)

    async def suspend(self, partner: str, why: str) -> Party:
        context, now = self.context, self.context.clock()
        if partner not in self._receivers():
            raise Refused(404, f"no P-Mode sends anything to {partner}")

        def step(tx: Transaction) -> Party:
            halt(context, tx, partner, now, why)
            return by_party(one for one in tx.partners() if is_of(one.name, partner))[0]

        found = await context.store.run(step)
        await context.look_at_partners()
        return found

    def _receivers(self) -> set[str]:
        """Those to whom P-Modes let this node send, or pass messages on."""
        in_force = self.context.in_force
        matches = [in_force.match(one.id, leg) for one in self.pmodes() for leg in (1, 2)]
        return {
            str(header(one.pmode, one.number).to_party)
            for one in matches
            if one is not None and in_force.serves(one)
        } - {""}

    async def resume(self, partner: str) -> int:
        context, now = self.context, self.context.clock()
        receivers, parties = links_to(context, partner)

        def step(tx: Transaction) -> tuple[bool, int]:
            begun, others = 0, {*receivers, *parties}
            for kind, side in SIDES.items():
                found = suspended_for(context, tx, side, partner)
                for message in list(islice(found, _AT_ONCE - begun)):
                    with_receiver = stopped_with(context, message)
                    others.update(with_receiver if len(with_receiver) > 1 else ())
                    work = Work(kind, message.message_id, now, partner=message.partner)
                    begun += begin_anew(tx, message, Input.RESUMED, now, work)
                    if message.split is not None:
                        resume_fragments(tx, message, now)
            return resume(context, tx, partner, now, others), begun

        lifted, begun = await context.store.run(step)
        if not lifted and not begun:
            raise Refused(409, f"nothing waits for {partner} to be resumed")
        count = begun
        while begun == _AT_ONCE:
            _, begun = await context.store.run(step)
            count += begun
        await context.look_at_partners()
        context.work_came.set()
        return count

    async def notices(self, after: int = 0, limit: int = 100) -> list[Notice]:
        return await self.context.store.look(lambda reader: reader.notices(after, limit))

    async def acknowledge_notice(self, id: int) -> None:
        store = self.context.store
        if not await store.run_with_reserve(lambda tx: tx.remove_notice(id)):
            raise Refused(404, f"there is no notice {id}")

    async def purge(self, days: float | None = None) -> int:
        return await self._upkeep.purge(None if days is None else timedelta(days=days))

    async def reload(self) -> Reloaded:
        return await asyncio.to_thread(self.context.in_force.refresh)

    def pmodes(self) -> list[PModeSummary]:
        return self.context.in_force.summaries()

    async def health(self) -> Health:
        return await self._health.ask(await self.partners())

    def show_doors(self, doors: Doors) -> None:
        """Tell of the certificates of the listeners, too, how they are."""
        self._health.doors = doors

    def metrics(self) -> Mapping[str, float]:
        return dict(self.context.counters)


def _tells_of(recorded: Recorded, message: Message) -> bool:
    """Whether an event is about a message, and not about another sender's of the same id."""
    event = recorded.event
    sender = (event.side, event.from_party, event.pmode)
    return sender == (message.side, message.from_party, message.pmode)


def _consume(tx: Transaction, message: Message, now: datetime) -> None:
    """The application has it; a receipt that waited for that goes out."""
    if message.timer is not None:
        tx.wake_work(message.timer, now)
    tx.change_message(
        Side.RECEIVING,
        message.message_id,
        (State.DELIVERED,),
        state=State.CONSUMED,
        updated_at=now,
    )
