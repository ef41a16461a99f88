"""A node that keeps everything in memory and sends nothing: the other side of the contract."""

import asyncio
import dataclasses
import hashlib
import itertools
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, Final

from msgspec import structs

from postroad.msh.forwarding import Missed, RouteReport
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
from postroad.node.steps.outcome import life_of
from postroad.node.steps.split_outcome import transfer_of
from postroad.reliability.breaker import Party, by_party, halted, is_of, resumed
from postroad.reliability.delivery import KINDS, Input, begun_anew, settled
from postroad.store.memory_reading import fits
from postroad.store.records import (
    INBOX,
    Event,
    Extent,
    Figures,
    Message,
    Notice,
    Partner,
    Recorded,
    Side,
    Signal,
    State,
    Stored,
    StoredPart,
    Total,
    Wanted,
)
from postroad.store.spool import SpoolSink
from postroad.wire.content import BytesContent, Content, Sink
from postroad.wire.ebms3 import Selection
from tests.changing import replace

PARTNERS: Final = ("seller", "urn:example:a/b", "iso::4711")
"""To whom P-Modes send."""
ORDERS: Final = PModeSummary(
    id="buyer-to-seller-order",
    mep="one-way",
    binding="push",
    initiator="buyer",
    responder="seller",
    service="urn:example:orders",
    action="submit",
    address="http://seller.example/msh",
    sends=True,
)


class MemoryService:
    """`Service`, held to the same tests as the real one."""

    name = "n1"
    party = "buyer"
    coming: Sequence[Arriving] = ()

    def __init__(self) -> None:
        self._messages: dict[tuple[Side, str], Message] = {}
        self._contents: dict[str, Content] = {}
        self._signals: list[Signal] = []
        self._events: list[Recorded] = []
        self._partners: dict[str, Partner] = {}
        self._notices: dict[int, Notice] = {}
        self._keys = itertools.count(1)
        self._purged = 0
        self._changed = asyncio.Condition()
        self._says = Asking("Pong", None, ORDERS.address or "", 0.04)
        self.pulls: list[tuple[Selection | None, int]] = []
        """What was pulled, and how much at most."""
        self.to_pull: list[str] = []
        self.trouble: str | None = None
        self.unanswerable: str | None = None
        """Why no reply comes to anything."""
        self.healthy = Health(True, (), Figures(), partner_of={ORDERS.id: "seller"})
        """How it is, but for the figures."""
        self.patience: float | None = None
        """For how long the last answer was waited for."""

    def new_sink(self) -> Sink:
        return SpoolSink()

    async def submit(self, submission: Submission) -> Submitted:
        if submission.pmode != ORDERS.id:
            raise Refused(422, f"There is no P-Mode {submission.pmode}.", code="EBMS:0010")
        number = next(self._keys)
        message_id = submission.message_id or f"{number}@{self.name}"
        fingerprint = _fingerprint(submission)
        known = self._messages.get((Side.SENDING, message_id))
        if known and known.fingerprint == fingerprint:
            return Submitted(known, repeated=True)
        if known:
            raise Refused(409, f"There is a message {message_id} with other content.")
        parts = tuple(
            StoredPart(
                content_id=one.content_id or f"{at}.{number}@{self.name}",
                media_type=one.media_type,
                size=one.content.size,
                sha256=one.sha256.hex(),
                stored=self._keep(one.content),
                wire_type=one.media_type,
                compressed=bool(one.compress),
                properties=one.properties,
                file_name=one.file_name,
            )
            for at, one in enumerate(submission.payloads)
        )
        return Submitted(
            self._add(
                "submitted",
                key=number,
                side=Side.SENDING,
                message_id=message_id,
                state=State.SUBMITTED,
                from_party="buyer",
                to_party="seller",
                conversation_id=submission.conversation_id or message_id,
                ref_to_message_id=submission.ref_to_message_id,
                service=submission.service or ORDERS.service,
                action=submission.action or ORDERS.action,
                properties=submission.properties,
                fingerprint=fingerprint,
                parts=parts,
            ),
            repeated=False,
        )

    async def submit_bundle(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Here a bundle has no terms; a unit that cannot be submitted comes first, or none."""
        return [await self.submit(one) for one in submissions]

    async def reply(
        self, message_id: str, submission: Submission, cursor: int | None = None
    ) -> Submitted:
        found = self._messages.get((Side.RECEIVING, message_id))
        if found is None or found.state not in INBOX:
            raise Refused(404, f"there is no message {message_id} in the inbox")
        given = structs.replace(
            submission, pmode=submission.pmode or ORDERS.id, ref_to_message_id=message_id
        )
        submitted = await self.submit(given)
        await self.change(found, reply_message_id=submitted.message.message_id)
        return submitted

    async def message(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> Message | None:
        for one in [side] if side else [Side.SENDING, Side.RECEIVING]:
            if found := self._messages.get((one, message_id)):
                return found
        return None

    async def received(self, message_id: str) -> list[Message]:
        found = self._messages.get((Side.RECEIVING, message_id))
        return [] if found is None else [found]

    async def messages(self, wanted: Wanted) -> list[Message]:
        found = sorted(
            (one for one in self._messages.values() if fits(one, wanted)),
            key=lambda one: one.key,
            reverse=wanted.newest_first,
        )
        return found[: wanted.limit]

    async def total(self, wanted: Wanted, most: int) -> Total:
        whole = dataclasses.replace(wanted, after=0, before=None, limit=most + 1)
        count = len(await self.messages(whole))
        return Total(min(count, most), count > most)

    async def signals(self, message: Message) -> list[Signal]:
        about = (message.side, message.message_id)
        return [one for one in self._signals if (one.side, one.message_id) == about]

    async def events(self, message_id: str) -> list[Recorded]:
        return [one for one in self._events if one.event.message_id == message_id]

    async def transfer(self, message: Message) -> Transfer | None:
        if message.split is None:
            return None
        states = Counter(one.state for one in await self.fragments(message, limit=10_000))
        return transfer_of(message.split, states)

    async def fragments(self, message: Message, after: int = 0, limit: int = 100) -> list[Message]:
        found = [
            one
            for one in self._messages.values()
            if (one.side, one.part_of) == (message.side, message.message_id) and one.key > after
        ]
        return sorted(found, key=lambda one: one.key)[:limit]

    async def settled(self, message_id: str, timeout: float) -> Message | None:
        def is_settled() -> bool:
            message = self._messages.get((Side.SENDING, message_id))
            return message is None or message.state not in ON_ITS_WAY

        try:
            async with self._changed, asyncio.timeout(timeout):
                await self._changed.wait_for(is_settled)
        except TimeoutError:
            pass
        return self._messages.get((Side.SENDING, message_id))

    async def replied(self, message_id: str, timeout: float) -> Message | None:
        def is_replied() -> bool:
            message = self._messages.get((Side.SENDING, message_id))
            return (
                message is None
                or message.reply_message_id is not None
                or self.unanswerable is not None
                or message.state in (State.FAILED, State.EXPIRED)
            )

        try:
            async with self._changed, asyncio.timeout(timeout):
                await self._changed.wait_for(is_replied)
        except TimeoutError:
            pass
        return self._messages.get((Side.SENDING, message_id))

    def no_reply(self, message: Message) -> str | None:
        return self.unanswerable

    def part(self, message: Message, part: StoredPart) -> Content:
        return self._contents[part.stored.place]

    def signal(self, signal: Signal) -> Content:
        return self._contents[signal.envelope.place]

    async def acknowledge(self, message_id: str, cursor: int | None = None) -> Message:
        message = self._messages.get((Side.RECEIVING, message_id))
        if message is None:
            raise Refused(404, f"There is no message {message_id} in the inbox.")
        return await self.change(message, state=State.CONSUMED)

    async def release(self, message_id: str, cursor: int | None = None) -> Message:
        raise Refused(404, f"no message {message_id} is held until others come")

    async def acknowledge_all(self, wanted: Wanted) -> int:
        found = await self.messages(dataclasses.replace(wanted, limit=10_000))
        for message in found:
            await self.acknowledge(message.message_id)
        return len(found)

    async def arriving(self, limit: int = 100) -> list[Arriving]:
        return self.coming[:limit]

    async def inbox(self) -> Extent:
        keys = [one.key for one in self._messages.values() if one.state in INBOX]
        return Extent(1, max([self._purged, *keys]), self._purged)

    async def evidence(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> Iterator[bytes]:
        message = await self.message(message_id, side)
        if message is None:
            raise Refused(404, f"There is no message {message_id} here.")
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("verdict.json", "{}")
        return iter([packed.getvalue()[:10], packed.getvalue()[10:]])

    async def resend(self, message_id: str) -> Message:
        message = self.outgoing(message_id)
        decision = begun_anew(life_of(message), Input.RESENT, datetime.now(UTC))
        if decision is None:
            raise Refused(409, f"{message_id} is {message.state}: there is nothing to resend")
        return await self.change(message, state=State(decision.life.stage.value), tries=0)

    async def settle(self, message_id: str, answer: str, who: str = "operator") -> Message:
        assert answer in ANSWERS
        message = self.outgoing(message_id)
        if settled(life_of(message)) is None:
            raise Refused(409, f"{message_id} is {message.state}: there is nothing to settle")
        changed = await self.change(message, state=State.SETTLED, detail=answer, error_code=None)
        self._record("settled", message_id, detail=answer, peer=who)
        return changed

    async def ping(self, pmode: str, timeout: float) -> Asking:
        if pmode != ORDERS.id:
            raise Refused(422, f"There is no P-Mode {pmode}.", code="EBMS:0010")
        self.patience = timeout
        return self._says

    async def query(self, message_id: str, timeout: float) -> Asking:
        message = self.outgoing(message_id)
        if message.protocol == "as4":
            raise Refused(422, f"{message.pmode} speaks ebMS 3.0, which has no such question")
        self.patience = timeout
        return self._says

    async def pull(
        self, pmode: str, selection: Selection | None = None, *, most: int = 1
    ) -> Collected:
        if pmode != ORDERS.id:
            raise Refused(422, f"messages of {pmode} are not pulled by {self.party}")
        self.pulls.append((selection, most))
        waiting, self.to_pull = self.to_pull[:most], self.to_pull[most:]
        came = [self.receive([(b"x", "text/plain", None)], message_id=one) for one in waiting]
        names = tuple(one.message_id for one in came)
        return Collected(names, "urn:mpc", "http://seller.example/msh", self.trouble)

    async def partners(self) -> list[Party]:
        return by_party(one for one in self._partners.values() if not one.is_well)

    async def suspend(self, partner: str, why: str) -> Party:
        if partner not in PARTNERS:
            raise Refused(404, f"no P-Mode sends anything to {partner}")
        known = self._partners.get(partner, Partner(partner))
        self._partners[partner] = halted(known, datetime.now(UTC), why)
        return next(one for one in await self.partners() if one.name == partner)

    async def resume(self, partner: str) -> int:
        stopped = [one for name, one in self._partners.items() if is_of(name, partner)]
        lifted = [one.name for one in stopped if resumed(one) is not None]
        wanted = Wanted(side=Side.SENDING, states=(State.SUSPENDED,), to_party=partner)
        waiting = await self.messages(wanted)
        if not lifted and not waiting:
            raise Refused(409, f"nothing waits for {partner} to be resumed")
        for name in lifted:
            del self._partners[name]
        for message in waiting:
            decision = begun_anew(life_of(message), Input.RESUMED, datetime.now(UTC))
            assert decision is not None
            await self.change(message, state=State(decision.life.stage.value))
        return len(waiting)

    async def notices(self, after: int = 0, limit: int = 100) -> list[Notice]:
        return [one for id, one in sorted(self._notices.items()) if id > after][:limit]

    async def acknowledge_notice(self, id: int) -> None:
        if self._notices.pop(id, None) is None:
            raise Refused(404, f"there is no notice {id}")

    async def purge(self, days: float | None = None) -> int:
        gone = [key for key, one in self._messages.items() if one.state not in ON_ITS_WAY]
        for key in gone:
            removed = self._messages.pop(key)
            if removed.state in INBOX:
                self._purged = max(self._purged, removed.key)
        return len(gone)

    async def route(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> RouteReport:
        if await self.message(message_id, side) is None:
            raise Refused(404, f"there is no message {message_id}")
        nearly = (Missed("invoices", ("action is submit, not invoice",)),)
        found = (("to_party", "seller"),)
        return RouteReport("UserMessage", found, "orders", found, ("push x",), ("all",), nearly)

    async def reload(self) -> Reloaded:
        return Reloaded(ok=True, pmodes=1, problems=())

    def pmodes(self) -> list[PModeSummary]:
        return [ORDERS]

    async def health(self) -> Health:
        kept = self._messages.values()
        figures = Figures(
            messages=Counter(f"{one.side}.{one.state}" for one in kept),
            agreements=Counter((one.side, one.state, one.agreed_by) for one in kept),
            work={"send": 0},
            last_seq=len(self._events),
        )
        return replace(self.healthy, figures=figures)

    def metrics(self) -> Mapping[str, float]:
        return {'postroad_messages_total{side="sending"}': len(self._messages)}

    def receive(self, parts: list[tuple[bytes, str, str | None]], **fields: Any) -> Message:
        """As if a partner's message had come."""
        number = next(self._keys)
        kept = tuple(
            StoredPart(
                content_id=f"{at}.{number}@seller",
                media_type=media_type,
                size=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                stored=self._keep(BytesContent(data)),
                wire_type=media_type,
                file_name=file_name,
            )
            for at, (data, media_type, file_name) in enumerate(parts)
        )
        fields = {"message_id": f"{number}@seller", "conversation_id": f"c{number}"} | fields
        return self._add(
            "delivered",
            key=number,
            side=Side.RECEIVING,
            state=State.DELIVERED,
            from_party="seller",
            to_party="buyer",
            service=ORDERS.service,
            action=ORDERS.action,
            parts=kept,
            **fields,
        )

    async def answer(self, message_id: str, state: State, receipt: bytes | None) -> None:
        """As if the partner had answered."""
        message = self._messages[Side.SENDING, message_id]
        if receipt is not None:
            self._signals.append(
                Signal(
                    side=Side.SENDING,
                    message_id=message_id,
                    signal_id=f"r-{message_id}",
                    kind="receipt",
                    incoming=True,
                    at=datetime.now(UTC),
                    envelope=self._keep(BytesContent(receipt)),
                    content_type="application/soap+xml; charset=UTF-8",
                )
            )
        await self.change(message, state=state)

    def outgoing(self, message_id: str) -> Message:
        message = self._messages.get((Side.SENDING, message_id))
        if message is None:
            raise Refused(404, f"there is no message {message_id}")
        return message

    def will_say(
        self, answer: str | None, timestamp: datetime | None = None, detail: str | None = None
    ) -> None:
        """As if the partner answered that when it is asked."""
        self._says = Asking(answer, timestamp, ORDERS.address or "", 0.04, detail)

    def unwell(self, partner: Partner) -> None:
        """As if a partner had not been reached."""
        self._partners[partner.name] = partner

    def notice(self, message_id: str, event: str) -> Notice:
        """As if the application were to be told."""
        message = self._messages[Side.SENDING, message_id]
        kind = KINDS.get(life_of(message).stage)
        code, detail = message.error_code, message.detail
        id, now = next(self._keys), datetime.now(UTC)
        self._notices[id] = Notice(message_id, now, event, message.state, kind, code, detail, id)
        self._record({"failed": "delivery_failed"}.get(event, event), message_id, at=now)
        return self._notices[id]

    async def change(self, message: Message, **changes: Any) -> Message:
        changed = structs.replace(message, **changes, updated_at=datetime.now(UTC))
        async with self._changed:
            self._messages[message.side, message.message_id] = changed
            self._changed.notify_all()
        return changed

    def _add(self, event: str, *, parts: tuple[StoredPart, ...], **fields: Any) -> Message:
        now = datetime.now(UTC)
        message = Message(
            pmode=ORDERS.id,
            party=self.party,
            created_at=now,
            updated_at=now,
            parts=parts,
            bytes=sum(part.size for part in parts),
            payload_digests=tuple(f"sha256:{part.sha256}" for part in parts),
            **fields,
        )
        self._messages[message.side, message.message_id] = message
        self._record(event, message.message_id, message.side, now)
        return message

    def _record(
        self,
        event: str,
        message_id: str,
        side: Side = Side.SENDING,
        at: datetime | None = None,
        **more: Any,
    ) -> None:
        told = Event(
            at or datetime.now(UTC), self.party, event, side, message_id, pmode=ORDERS.id, **more
        )
        self._events.append(Recorded(self.name, 1, len(self._events) + 1, told))

    def _keep(self, content: Content) -> Stored:
        place = str(len(self._contents))
        self._contents[place] = content
        return Stored(place, 0, content.size)


def _fingerprint(submission: Submission) -> str:
    payloads = [
        (one.sha256, one.media_type, one.content_id, one.file_name, one.properties, one.compress)
        for one in submission.payloads
    ]
    return hashlib.sha256(repr((replace(submission, payloads=()), payloads)).encode()).hexdigest()
