"""Who pulls: asks partners for messages by a schedule, or when somebody says so.

A message that was pulled takes the same walk in as one that was pushed (`Receiver.keep_pulled`);
its receipt calls back. While a message is stored the next one is asked for already. Signals about
messages that were pushed are asked for as long as such messages wait for them. Where that is agreed
on, the receipt of a message rides on the next request; what finds none calls back after all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, islice
from typing import Final

from msgspec import Struct

from postroad.agreement.channels import collected_at, pulling_of
from postroad.agreement.matching import Match
from postroad.agreement.pmode_pulling import Pulling
from postroad.agreement.reliable import wsrm_of
from postroad.msh.answers import wants_receipt
from postroad.msh.capture import Capture
from postroad.msh.inspection import Kind, Look
from postroad.msh.lens import Inspection
from postroad.msh.pulling import Channel, message_channel, pull_request
from postroad.msh.securing import Unsecurable
from postroad.node.base.context import Context
from postroad.node.hub.catching import Catch
from postroad.node.service import Collected, Refused
from postroad.node.steps.calling import Riding, ridden
from postroad.node.steps.hearing import told_by
from postroad.node.steps.noting import note_problem
from postroad.node.walks.receiving import Receiver
from postroad.node.wsrm.asking import NoSequence
from postroad.node.wsrm.pulling import PullSequences, Turn, is_sequenced
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Side, State, Wanted, Work
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Timeouts, TransportFailure
from postroad.wire.ebms3 import Selection, SignalMessage
from postroad.wire.errors import EbmsError
from postroad.wire.multihop import find_routing_input
from postroad.wire.soap import Envelope, SoapVersion
from postroad.wire.wsrm_faults import read_rm_fault
from postroad.wire.xml import mentions

_EMPTY: Final = "EBMS:0006"
_FOR_A_SEQUENCE: Final = (State.SUBMITTED, State.READY)
"""A message in these may wait for its sequence, and the answer about that for a request."""
_LOOK: Final = 1.0
"""Seconds until P-Modes that changed are noticed."""
_MOST_GROWTH: Final = 64
"""How often an interval grows at most."""
_UNSTORED: Final = 32
"""Messages that are taken in while further ones are asked for."""
_IN_ONE_GO: Final = 1000
"""Messages after which it is looked what is in force, and their ids are forgotten."""
_TOGETHER: Final = 8
"""Receipts that rode, written down in one step."""
_log = logging.getLogger("postroad.pull")


class Got(Struct, frozen=True):
    """What one PullRequest brought."""

    taking: "asyncio.Task[tuple[str, ...]] | None" = None
    """A message, which is being stored; its result is the id, if it is one."""
    answered: str | None = None
    """The message of ours that a signal was about."""
    trouble: str | None = None

    @property
    def something(self) -> bool:
        return self.taking is not None or self.answered is not None


@dataclass(slots=True)
class _Haul:
    """What a channel brought."""

    taken: list["asyncio.Task[tuple[str, ...]]"] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    riding: deque[Riding] = field(default_factory=deque)
    """Receipts for the next requests."""
    rode: list[Riding] = field(default_factory=list)
    """Receipts that were taken with a request, and of which that is not written down yet."""
    over: bool = False
    """What came last was neither a message nor a signal about one."""

    def add(self, got: Got) -> None:
        if got.taking is not None:
            self.taken.append(got.taking)
        if got.answered is not None:
            self.answered.append(got.answered)
        if got.trouble is not None:
            self.troubles.append(got.trouble)


class _Brought(Struct, frozen=True):
    """The same, once everything is stored."""

    messages: tuple[str, ...]
    answered: tuple[str, ...]
    trouble: str | None


@dataclass(slots=True)
class _Turn:
    """When a channel is asked again."""

    due: float
    wait: timedelta
    """For how long, when nothing is there."""
    task: "asyncio.Task[None] | None" = None


class Puller:
    """Pulls the channels of a node's P-Modes."""

    def __init__(self, context: Context, client: Client, receiver: Receiver) -> None:
        self._context = context
        self._client = client
        self._receiver = receiver
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._sequences = PullSequences(context, client, receiver.destinations)
        self._turns: dict[tuple[str, str, bool], _Turn] = {}
        self._taking: set[asyncio.Task[tuple[str, ...]]] = set()
        self._room = asyncio.Semaphore(_UNSTORED)

    async def run(self) -> None:
        """Until cancelled: ask each channel when its time has come."""
        try:
            while True:
                await asyncio.sleep(self._round())
        finally:
            tasks = [one.task for one in self._turns.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """What came is still stored."""
        if self._taking:
            await asyncio.wait(self._taking)

    def _round(self) -> float:
        """Begin what is due; seconds until the next look."""
        now, scheduled = asyncio.get_running_loop().time(), self._scheduled()
        for gone in self._turns.keys() - scheduled:
            turn = self._turns[gone]
            if turn.task is None:
                del self._turns[gone]
        for place, channel in scheduled.items():
            agreed = pulling_of(channel.match.leg)
            turn = self._turns.setdefault(place, _Turn(now, agreed.interval))
            turn.due = min(turn.due, now + _longest(agreed).total_seconds())
            if turn.task is None and turn.due <= now:
                turn.task = asyncio.create_task(self._take_turn(turn, channel))
        waits = [one.due - now for one in self._turns.values() if one.task is None]
        return max(min([_LOOK, *waits]), 0.001)

    def _channels(self) -> list[Channel]:
        """All that this node pulls from."""
        in_force = self._context.in_force
        return [*map(message_channel, in_force.pulled), *in_force.pulled_signals]

    def _scheduled(self) -> dict[tuple[str, str, bool], Channel]:
        """Those that are asked without being told to."""
        return {
            (*one.place, one.signals): one
            for one in self._channels()
            if pulling_of(one.match.leg).scheduled
        }

    async def _take_turn(self, turn: _Turn, channel: Channel) -> None:
        """Empty a channel; how soon it is asked again depends on what was there."""
        pmode, agreed = channel.match.pmode.id, pulling_of(channel.match.leg)
        wait, longer = turn.wait, True
        try:
            if channel.signals and not await self._awaits(channel.match):
                wait, longer = agreed.interval, False
                return
            full: Channel | None = channel
            while full is not None:
                brought = await self._drain(full, None, _IN_ONE_GO)
                came = len(brought.messages) + len(brought.answered)
                if came:
                    wait = agreed.interval
                if brought.trouble is not None:
                    _log.warning("not pulled", extra={"pmode": pmode, "detail": brought.trouble})
                # What is agreed on may have changed since.
                place = (*full.place, full.signals)
                full = self._scheduled().get(place) if came >= _IN_ONE_GO else None
        except StoreError as error:
            # Nothing was written down of what came: it comes again.
            _log.error("not pulled", extra={"pmode": pmode, "detail": str(error)})
        except Exception:
            _log.exception("pulling failed", extra={"pmode": pmode})
        finally:
            turn.due = asyncio.get_running_loop().time() + wait.total_seconds()
            turn.wait = _longer(wait, agreed) if longer else wait
            turn.task = None

    async def _awaits(self, match: Match) -> bool:
        """Whether messages of a P-Mode wait for a receipt; where none is sent, errors may come."""
        reliable = wsrm_of(match.leg) is not None
        if not wants_receipt(match.leg) and not reliable:
            return True
        states = (State.WAITING, *_FOR_A_SEQUENCE) if reliable else (State.WAITING,)
        wanted = Wanted(Side.SENDING, states, match.pmode.id, limit=1)
        return bool(await self._context.store.look(lambda reader: reader.messages(wanted)))

    async def pull(
        self, pmode: str, selection: Selection | None = None, *, most: int = 1
    ) -> Collected:
        """Pull so many messages, or as many as there are; `Refused` says why it cannot be."""
        if selection is not None and selection.ref_to_message_id and selection.conversation_id:
            # [P2-7.3-02]
            said = "RefToMessageId and ConversationId are not used together in one PullRequest"
            raise Refused(400, f"{said}: name one of them")
        late = map(message_channel, self._context.in_force.alternates.values())
        channels = [one for one in (*self._channels(), *late) if one.match.pmode.id == pmode]
        if not channels:
            raise Refused(422, f"nothing of {pmode} is pulled by {self._context.party}")
        brought = [await self._drain(one, selection, most) for one in channels]
        return Collected(
            tuple(name for one in brought for name in one.messages),
            channels[0].mpc,
            _address(channels[0].match),
            next((one.trouble for one in brought if one.trouble is not None), None),
            tuple(name for one in brought for name in one.answered),
        )

    async def perform(self, work: Work) -> None:
        """Ask for the late reply to a request, again and again until it is there. [P2-5.2-09]"""
        context, name = self._context, work.message_id
        request = await context.store.look(lambda reader: reader.message(Side.SENDING, name))
        if request is None or request.reply_message_id is not None:
            await context.store.run(lambda tx: tx.finish_work(work.id, work.owner))
            return
        match = context.in_force.alternates.get(request.pmode or "")
        agreed = pulling_of(match.leg) if match is not None else Pulling()
        if match is not None and agreed.scheduled:
            selection = Selection(ref_to_message_id=name)
            brought = await self._drain(message_channel(match), selection, 1)
            if brought.trouble is not None:
                detail = {"message_id": name, "detail": brought.trouble}
                _log.warning("its reply is not there yet", extra=detail)
        wait = agreed.interval
        for _ in range(min(work.attempt, _MOST_GROWTH)):
            wait = _longer(wait, agreed)
        due = context.clock() + wait

        def step(tx: Transaction) -> None:
            found = tx.message(Side.SENDING, name)
            if found is None or found.reply_message_id is not None:
                tx.finish_work(work.id, work.owner)
            else:
                tx.postpone_work(work.id, due, owner=work.owner)

        await context.store.run(step)

    async def _drain(
        self, channel: Channel, selection: Selection | None, most: int | None = None
    ) -> _Brought:
        """Ask until nothing is left, or so many came."""
        asked = iter(range(most)) if most is not None else count()
        several = min(pulling_of(channel.match.leg).parallel, most or _UNSTORED)
        haul = _Haul()
        if await self._ask_on(channel, selection, islice(asked, 1), haul):
            others = [self._ask_on(channel, selection, asked, haul) for _ in range(several)]
            await asyncio.gather(*others)
        taken = await asyncio.gather(*haul.taken, return_exceptions=True)
        await self._note_rides(haul, channel)
        await self._call_back(haul.riding)
        if is_sequenced(channel):
            await self._sequences.acknowledge(channel)
        lost = [one for one in taken if isinstance(one, BaseException)]
        unstored = [f"it could not be stored: {one}" for one in lost]
        return _Brought(
            tuple(name for one in taken if isinstance(one, tuple) for name in one),
            tuple(haul.answered),
            next(iter(haul.troubles + unstored), None),
        )

    async def _ask_on(
        self, channel: Channel, selection: Selection | None, asked: Iterator[int], haul: _Haul
    ) -> bool:
        """One request after the other, as long as something comes; whether the last brought it."""
        something = False
        for _ in asked:
            got = await self._ask(channel, selection, haul)
            haul.add(got)
            something = got.something
            if not something or haul.over:
                break
        return something

    async def _call_back(self, left: Sequence[Riding]) -> None:
        """No further request is going to take these along."""
        if not left:
            return
        now = self._context.clock()

        def step(tx: Transaction) -> None:
            for one in left:
                tx.wake_work(one.work, now)

        await self._context.store.run(step)
        self._context.work_came.set()

    async def _note_rides(self, haul: _Haul, channel: Channel) -> None:
        """The partner has heard these receipts: nobody need call back."""
        rode, haul.rode = haul.rode, []
        url, now = _address(channel.match), self._context.clock()

        def step(tx: Transaction) -> None:
            for one in rode:
                ridden(tx, one, url, now)

        try:
            if rode:
                await self._context.store.run(step)
        except StoreError as full:
            # They call back as well, and the partner takes each once.
            _log.error("receipts that rode are sent again", extra={"detail": str(full)})

    async def _ask(self, channel: Channel, selection: Selection | None, haul: _Haul) -> Got:
        """One PullRequest, and what came back; in its sequence where that is agreed on."""
        if not is_sequenced(channel):
            return await self._request(channel, selection, haul)
        try:
            turn = await self._sequences.turn(channel)
        except NoSequence as none:
            return await self._trouble(none.code, none.detail, _address(channel.match))
        got = Got()
        try:
            got = await self._request(channel, selection, haul, turn)
            return got
        finally:
            if got.taking is None:
                self._sequences.over(turn)
            else:
                got.taking.add_done_callback(lambda _: self._sequences.over(turn))

    async def _request(
        self, channel: Channel, selection: Selection | None, haul: _Haul, turn: Turn | None = None
    ) -> Got:
        context, now = self._context, self._context.clock()
        match = channel.match
        url = _address(match)
        riding = haul.riding.popleft() if haul.riding else None
        try:
            asking = pull_request(
                channel,
                selection,
                signal_id=context.new_id(now),
                now=now,
                entropy=context.entropy,
                key=context.in_force.keyring.signing,
                riding=riding.signal if riding else None,
                headers=turn.headers(channel) if turn else (),
            )
        except (Unsecurable, ValueError) as wrong:
            return Got(trouble=str(wrong))
        catch = Catch(context)
        soap_11 = asking.version is SoapVersion.SOAP_11
        request = Outgoing(
            url,
            asking.content_type,
            asking.envelope,
            (("SOAPAction", '""'),) if soap_11 else (),
            context.in_force.tls(match.pmode.id, match.number),
            self._timeouts,
            reply_bytes=context.limits.message_bytes,
            reader=catch.reader,
        )
        try:
            reply = await self._client.post(request)
            if not catch.size:
                said = f"{url} answered HTTP {reply.status} and nothing else"
                return await self._trouble("EBMS:0005", said, url)
            capture = catch.close()
        except TransportFailure as failure:
            return await self._trouble("EBMS:0005", failure.reason, url)
        except EbmsError as wrong:
            said = f"{url} answered HTTP {reply.status}: {wrong.detail}"
            return await self._trouble(wrong.code, said, url)
        except (StoreError, OSError) as full:
            return Got(trouble=f"what {url} answered cannot be kept: {full}")
        finally:
            catch.drop()
        if channel.signals or not mentions(capture.envelope, b"UserMessage"):
            look = await self._receiver.read_pulled(capture, catch.size)
            fault = await self._sequences.heard(channel, turn, look.found) if turn else None
            if fault is not None:
                return await self._trouble("EBMS:0201", f"{url} answered {fault}", url)
            got = await self._signal(look, capture, asking.signal_id, url)
        else:
            await self._room.acquire()
            taking = self._take_in(channel, capture, catch.size, asking.signal_id, haul, turn)
            task = asyncio.create_task(taking)
            self._taking.add(task)
            task.add_done_callback(self._taken)
            got = Got(task)
        if riding is not None and got.trouble is None:
            haul.rode.append(riding)
            if len(haul.rode) >= _TOGETHER:
                await self._note_rides(haul, channel)
        return got

    async def _take_in(
        self,
        channel: Channel,
        capture: Capture,
        size: int,
        asked: str,
        haul: _Haul,
        turn: Turn | None,
    ) -> tuple[str, ...]:
        """What seems to be a message: read and stored while the next one is asked for."""
        match, url = channel.match, _address(channel.match)
        look = await self._receiver.read_pulled(capture, size)
        messaging = look.found.messaging
        if messaging is None or not messaging.user_messages:
            got = await self._signal(look, capture, asked, url)
            haul.add(got)
            haul.over |= not got.something
            return ()
        ride = haul.riding.append if pulling_of(match.leg).piggyback else None
        taken = await self._receiver.keep_pulled(look, capture, size, match, url, ride)
        if turn is not None:
            await self._sequences.heard(channel, turn, look.found)
        return taken

    def _taken(self, task: "asyncio.Task[tuple[str, ...]]") -> None:
        self._taking.discard(task)
        self._room.release()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError):
            # Nothing was acknowledged: the partner offers it again.
            _log.error("a pulled message was not stored", extra={"detail": str(error)})
        elif error is not None:
            _log.error("a pulled message was not taken in", exc_info=error)

    async def _signal(self, look: Look, capture: Capture, asked: str, url: str) -> Got:
        """What is said about a message of ours; or that nothing is there, or what is wrong."""
        found = look.found
        envelope = found.envelope
        if envelope is not None and look.kind is Kind.SEQUENCES and _is_for_us(envelope):
            acked = await self._receiver.reliable.pulled(look, url, self._context.clock())
            return Got(answered=acked[0] if acked else asked)
        refs = [one.message_info.ref_to_message_id for one in _signals(found)]
        if any(ref and ref != asked for ref in refs):
            ref = await self._receiver.hear(look, capture, url, self._context.clock(), pulled=True)
            said = f"{url} handed out a signal about {refs[0]}, which was not sent from here"
            return Got(answered=ref) if ref is not None else Got(trouble=said)
        errors = [one for signal in _signals(found) for one in signal.errors]
        if errors and all(one.error_code == _EMPTY for one in errors):
            return Got()
        for one in errors:
            said = f"{url} answered {one.error_code}: {told_by(one)}"
            return await self._trouble(one.error_code, said, url)
        fault = found.fault.reason if found.fault is not None else None
        wrong = fault or next((one.detail for one in found.problems), "no message and no error")
        return await self._trouble("EBMS:0004", f"{url} answered: {wrong}", url)

    async def _trouble(self, code: str, said: str, url: str) -> Got:
        """The journal is told too; the partner keeps what it has."""
        context, detail = self._context, f"nothing could be pulled: {said}"
        await note_problem(context, code, detail, context.clock(), url)
        return Got(trouble=said)


def _is_for_us(envelope: Envelope) -> bool:
    """Whether it is about a sequence in which this node sends; not a fault about its request."""
    return read_rm_fault(envelope) is None or find_routing_input(envelope) is not None


def _signals(found: Inspection) -> tuple[SignalMessage, ...]:
    return found.messaging.signals if found.messaging is not None else ()


def _address(match: Match) -> str:
    return collected_at(match.pmode, match.leg) or ""


def _longer(wait: timedelta, agreed: Pulling) -> timedelta:
    """How long to wait after the next time that nothing is there."""
    return min(wait * agreed.growth, _longest(agreed))


def _longest(agreed: Pulling) -> timedelta:
    return max(agreed.longest, agreed.interval)
