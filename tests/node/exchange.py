"""Two parties that exchange messages, for tests: real files, keys and stores, no network."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from postroad.msh.answers import sent_message
from postroad.msh.capture import Incoming
from postroad.msh.outbound import Draft, DraftPayload, WirePart, package, wire_form
from postroad.node.base.context import Context
from postroad.node.evidence.making import evidence_zip
from postroad.node.settings.config import Config, load_config
from postroad.node.settings.in_force import InForce
from postroad.node.steps.hearing import Hearing, hear
from postroad.node.steps.outcome import answered
from postroad.node.walks.packaging import drafted, new_boundary, ready
from postroad.node.walks.receiving import Receiver, Request, Response
from postroad.store.interface import Store
from postroad.store.records import Message, Side, State
from postroad.wire.content import BytesContent
from postroad.wire.limits import DEFAULT
from postroad.wire.soap import SoapVersion
from tests.node.founding import BUYER, SELLER, found

T = TypeVar("T")

BEGIN = datetime(2024, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
"""Long ago: the certificates of that day are no longer valid."""


@dataclass
class Clock:
    """Time that passes when a test says so."""

    now: datetime = BEGIN

    def __call__(self) -> datetime:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def make_parties(folder: Path, now: datetime = BEGIN) -> None:
    """The folders of buyer and seller, with keys, configuration, and P-Modes for one direction."""
    found(folder, now)
    for party in (BUYER, SELLER):
        for unused in (folder / party / "pmodes").glob(f"{SELLER}-to-*"):
            unused.unlink()


def context_of(config: Config, store: Store, clock: Callable[[], datetime]) -> Context:
    in_force = InForce(config, DEFAULT)
    return Context(config, store, in_force, DEFAULT, f"{config.node}/test", clock)


@dataclass
class Exchange:
    """Buyer and seller, each with a store."""

    folder: Path
    stores: dict[str, Store]
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.contexts = {
            name: context_of(load_config(self.folder / name / "postroad.yaml"), store, self.clock)
            for name, store in self.stores.items()
        }

    @property
    def authority(self) -> Path:
        return self.folder / BUYER / "keys" / "authority.pem"

    async def send(
        self, message_id: str, *payloads: tuple[str, bytes], kind: str = "order"
    ) -> Message:
        """The buyer packages a message and keeps it, as a submission does."""
        context = self.contexts[BUYER]
        now = self.clock()
        sending = context.in_force.sending(f"{BUYER}-to-{SELLER}-{kind}")
        draft = Draft(
            message_id,
            "conversation@buyer.example",
            tuple(
                DraftPayload(
                    BytesContent(data),
                    hashlib.sha256(data).digest(),
                    media_type,
                    f"part-{number}@buyer.example",
                )
                for number, (media_type, data) in enumerate(payloads, 1)
            ),
        )
        made = package(draft, sending.match, sending.material, now=now, entropy=context.entropy)
        message = drafted(context, draft, sending, now)

        def step(tx: Any) -> Message:
            kept = ready(context, tx, message, made, new_boundary(context, made))
            tx.add_message(kept)
            return kept

        return await context.store.run(step)

    def wire(self, message: Message) -> tuple[str, bytes]:
        """The message as it goes over the wire: content type and body."""
        store = self.contexts[BUYER].store
        assert message.envelope is not None
        contents = [store.content(part.stored) for part in message.parts]
        if message.seal is not None:
            contents = list(message.seal.on(contents))
        sealed = "application/octet-stream" if message.seal else None
        parts = [
            WirePart(part.content_id or "", sealed or part.wire_type, content)
            for part, content in zip(message.parts, contents, strict=True)
        ]
        envelope = b"".join(store.content(message.envelope).chunks())
        version = sent_version(message)
        form = wire_form(version, envelope, parts, message.boundary)
        return form.content_type, b"".join(form.pieces())

    async def receive(self, message: Message) -> Response:
        """The seller takes the message in."""
        content_type, body = self.wire(message)
        return await Receiver(self.contexts[SELLER]).receive(
            Request(content_type, "127.0.0.1", _pieces(body))
        )

    async def hear(self, message: Message, response: Response) -> State | None:
        """The buyer judges what came back, and keeps it."""
        context = self.contexts[BUYER]
        hearing = await self.judge(message, response)
        return await context.store.run(
            lambda tx: answered(context, tx, message, hearing, self.clock(), "127.0.0.1")
        )

    async def judge(self, message: Message, response: Response) -> Hearing:
        context = self.contexts[BUYER]
        assert message.envelope is not None
        incoming = Incoming(response.content_type, new_sink=context.store.new_sink)
        incoming.feed(response.body)
        envelope = b"".join(context.store.content(message.envelope).chunks())
        return await hear(
            context,
            incoming.close(),
            context.in_force.match(message.pmode, message.leg),
            sent_message(envelope),
            self.clock(),
            on_response=True,
        )

    async def carry(
        self, message_id: str, *payloads: tuple[str, bytes], kind: str = "order"
    ) -> Message:
        """The whole way: sent, received, acknowledged."""
        message = await self.send(message_id, *payloads, kind=kind)
        self.clock.wait(1)
        response = await self.receive(message)
        self.clock.wait(1)
        state = await self.hear(message, response)
        assert state is State.ACKNOWLEDGED
        return structs.replace(message, state=state)

    async def evidence(self, party: str, message_id: str) -> Iterator[bytes]:
        """As the node's door gives it."""
        context = self.contexts[party]
        side = Side.SENDING if party == BUYER else Side.RECEIVING
        message = await context.store.look(lambda reader: reader.message(side, message_id))
        assert message is not None
        signals = await context.store.look(lambda reader: reader.signals(side, message_id))
        events = await context.store.look(lambda reader: reader.events(message_id))
        return evidence_zip(context, message, signals, events)


def sent_version(message: Message) -> SoapVersion:
    return next(one for one in SoapVersion if one.number == message.soap)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario to its end."""

    async def bounded() -> T:
        return await asyncio.wait_for(scenario, 60)

    return asyncio.run(bounded())
