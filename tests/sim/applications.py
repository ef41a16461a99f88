"""Applications and operators: they submit, consume, resend, resume and settle, at their pace."""

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from postroad.node.service import Collected, Refused, Submission, SubmittedPayload
from postroad.reliability.breaker import Gate
from postroad.store.interface import StoreError
from postroad.store.records import Message, Side, State, Wanted
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Selection
from tests.sim.books import Books
from tests.sim.faults import dice
from tests.sim.history import History
from tests.sim.loop import Died, Process
from tests.sim.plan import Planned
from tests.sim.stations import Running
from tests.sim.world import World

T = TypeVar("T")

_GIVEN_UP: Final = (State.FAILED, State.IN_DOUBT, State.EXPIRED, State.SUSPENDED)


class Unanswered(Exception):
    """Nobody knows whether it was done."""


class Applications:
    """Those who use the nodes."""

    def __init__(self, world: World, plan: Sequence[Planned], books: Books) -> None:
        self._world = world
        self._plan = plan
        self._books = books
        self._history: History = world.history
        self._process = Process("applications")
        self._contents = {(one.sender, one.message_id): one.payload for one in plan}
        self._names = {one.party.id: name for name, one in world.stations.items()}
        self._resent: set[str] = set()
        self._replies: dict[tuple[str, str], list[Planned]] = {}
        """By who asked and the request's id: what is said to it, and what somebody says later."""
        for one in plan:
            if one.answers is not None:
                key = one.answers.sender, one.answers.message_id
                self._replies.setdefault(key, []).append(one)
        self._asked = [one for one in plan if one.answers is None]
        self.open = len(self._asked)
        """Submissions of which it is not yet known that they were taken over."""

    def start(self) -> None:
        for planned in self._asked:
            self._process.spawn(self._submit(planned))
        for party in self._world.stations:
            draw = dice(self._world.seed, f"consumer/{party}")
            self._process.spawn(self._consume(party, draw))
            draw = dice(self._world.seed, f"operator/{party}")
            self._process.spawn(self._operate(party, draw))
            if self._world.stations[party].party.in_force.pulled:
                draw = dice(self._world.seed, f"collector/{party}")
                self._process.spawn(self._collect(party, draw))

    async def _ask(self, party: str, ask: Callable[[Running], Coroutine[Any, Any, T]]) -> T:
        """Have a node do something; `Unanswered` when it is not known whether it did."""
        running = self._world.stations[party].next()
        if running is None:
            raise Unanswered
        try:
            answer = await running.process.ask(ask(running))
        except (Died, StoreError) as error:
            raise Unanswered from error
        if self._world.faults.hits("answer lost"):
            raise Unanswered
        return answer

    async def _submit(self, planned: Planned) -> None:
        """As often as it takes: the same id and content is the same message."""
        await asyncio.sleep(planned.at)
        tries = 0
        while True:
            tries += 1
            try:
                done = await self._ask(planned.sender, lambda at: at.node.submit(_given(planned)))
            except Unanswered:
                await asyncio.sleep(1)
                continue
            except Refused as refused:
                if refused.code != "EBMS:0021":
                    self._history.fail(f"refused: {refused}", planned.message_id)
                self._history.mark("a channel was full")
                await asyncio.sleep(5)
                continue
            self._history.note(planned.sender, f"accepted, try {tries}", planned.message_id)
            if done.repeated:
                self._history.mark("submitted again")
            self._books.accept(planned)
            break
        self.open -= 1
        if planned.number % 5 == 0:
            await self._contradict(planned)

    async def _contradict(self, planned: Planned) -> None:
        """Something else under an id that is taken is refused."""
        other = _given(planned, b"another content")
        try:
            await self._ask(planned.sender, lambda at: at.node.submit(other))
        except Refused as refused:
            if refused.status != 409:
                self._history.fail(f"refused with {refused.status}", planned.message_id)
            self._history.mark("contradiction refused")
        except Unanswered:
            pass
        else:
            self._history.fail("another content was taken under its id", planned.message_id)

    async def _consume(self, party: str, draw: random.Random) -> None:
        """Look into the inbox now and then, and take what is there."""
        pace, diligence = draw.uniform(0.5, 20), draw.uniform(0.3, 1)
        inbox = Wanted(side=Side.RECEIVING, states=(State.DELIVERED,), limit=1000)
        while True:
            await asyncio.sleep(2 if self._world.faults.over else pace)
            try:
                found = await self._ask(party, lambda at: at.node.messages(inbox))
                for message in found:
                    if self._world.faults.over or draw.random() < diligence:
                        await self._take(party, message)
            except Unanswered:
                continue
            except Refused as refused:
                if not self._world.faults.forgetful:
                    self._history.fail(f"{party} cannot have its message: {refused}")

    async def _take(self, party: str, message: Message) -> None:
        sender = self._names.get(message.from_party or "", "")
        content = await self._ask(party, lambda at: _content(at, message))
        if content != self._contents.get((sender, message.wire_id)):
            self._history.fail(f"{party} got another content", message.wire_id)
        for reply in self._replies.get((sender, message.wire_id), ()):
            await self._reply(reply)
        await self._ask(party, lambda at: at.node.acknowledge(message.wire_id, message.key))
        self._history.note(party, "consumed", message.wire_id)

    async def _reply(self, reply: Planned) -> None:
        """The application answers; a second answer is refused, and one that nobody waits for."""
        request = reply.answers
        assert request is not None
        key = request.sender, request.message_id
        first = self._replies[key][0] is reply
        if (reply.sender, reply.message_id) in self._books.accepted:
            return
        while key not in self._books.exchanges.too_late:
            try:
                await self._ask(reply.sender, lambda at: at.node.submit(_given(reply)))
            except Unanswered:
                await asyncio.sleep(1)
                continue
            except Refused as refused:
                late = request.kind.binding == "sync" and request.kind.alternate is None
                if refused.status != 409 or (first and not late):
                    raise
                if first:
                    self._books.exchanges.too_late.add(key)
                self._history.mark("a reply too late" if first else "a second reply refused")
                return
            self._books.accept(reply)
            self._history.note(reply.sender, "answered", reply.message_id)
            return

    async def _operate(self, party: str, draw: random.Random) -> None:
        """Somebody who looks after what was given up; in the end all that waits for a word."""
        pace, zeal = draw.uniform(5, 60), draw.choice((0, 0.2, 0.5))
        while True:
            await asyncio.sleep(2 if self._world.faults.over else pace)
            try:
                if self._world.faults.over:
                    await self._resume(party)
                    await self._unblock(party)
                elif draw.random() < zeal:
                    await self._resume(party)
                elif draw.random() < zeal:
                    await self._look_after(party, draw)
            except (Unanswered, Refused):
                continue

    async def _collect(self, party: str, draw: random.Random) -> None:
        """Somebody who pulls himself: a channel, or what he looks for in it."""
        pace = draw.uniform(5, 40)
        pmodes = [one.pmode.id for one in self._world.stations[party].party.in_force.pulled]
        while True:
            await asyncio.sleep(5 if self._world.faults.over else pace)
            pmode = draw.choice(pmodes)
            sender = pmode.partition("-")[0]
            wanted = Selection(conversation_id=f"c{draw.randrange(3)}@{sender}")
            selection = wanted if draw.random() < 0.5 else None
            most = draw.choice((1, 3))
            try:
                got = await self._ask(party, partial(_pulled, pmode, selection, most))
            except Unanswered:
                continue
            if got.messages:
                how = "selected" if selection else "pulled"
                self._history.mark(f"{how} by an operator")

    async def _resume(self, party: str) -> None:
        for partner in await self._ask(party, lambda at: at.node.partners()):
            if partner.gate is Gate.SUSPENDED:
                self._history.note(party, f"the operator resumes {partner.name}")
                self._books.resuming(party, partner.name)
                await self._ask(party, partial(_resumed, partner.name))
                self._history.mark("resumed by an operator")

    async def _unblock(self, party: str) -> None:
        """What is in doubt and others wait behind in order: sent again, or settled."""
        wanted = Wanted(side=Side.SENDING, states=(State.IN_DOUBT, State.SUSPENDED), limit=1000)
        for message in await self._ask(party, lambda at: at.node.messages(wanted)):
            if message.timer is None:
                continue
            if message.message_id not in self._resent:
                self._resent.add(message.message_id)
                await self._resend(party, message.message_id)
            else:
                answer = self._books.truth(party, message.message_id)
                await self._settle(party, message.message_id, answer)

    async def _look_after(self, party: str, draw: random.Random) -> None:
        wanted = Wanted(side=Side.SENDING, states=_GIVEN_UP, limit=100)
        found = await self._ask(party, lambda at: at.node.messages(wanted))
        if not found:
            return
        message_id = draw.choice(found).message_id
        if draw.random() < 0.6:
            await self._resend(party, message_id)
        else:
            answer = draw.choice(("delivered", "received", "not_received"))
            await self._settle(party, message_id, answer)

    async def _settle(self, party: str, message_id: str, answer: str) -> None:
        self._history.note(party, f"the operator settles it: {answer}", message_id)
        await self._ask(party, lambda at: at.node.settle(message_id, answer))

    async def _resend(self, party: str, message_id: str) -> None:
        self._books.begun_anew(party, message_id)
        self._history.note(party, "the operator resends it", message_id)
        await self._ask(party, lambda at: at.node.resend(message_id))
        self._history.mark("resent by an operator")


async def _resumed(partner: str, at: Running) -> int:
    return await at.node.resume(partner)


async def _pulled(pmode: str, selection: Selection | None, most: int, at: Running) -> Collected:
    return await at.node.pull(pmode, selection, most=most)


def _given(planned: Planned, content: bytes | None = None) -> Submission:
    data = planned.payload if content is None else content
    payload = SubmittedPayload(BytesContent(data), hashlib.sha256(data).digest())
    return Submission(
        planned.pmode,
        (payload,),
        planned.message_id,
        conversation_id=planned.conversation,
        ref_to_message_id=planned.answers.message_id if planned.answers else None,
    )


async def _content(at: Running, message: Message) -> bytes:
    return b"".join(b"".join(at.node.part(message, one).chunks()) for one in message.parts)
