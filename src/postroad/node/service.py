"""What a node does for those who use it: the REST interface, the commands, the demo.

`Service` is the one door; `postroad.node.node.Node` is behind it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Struct

from postroad.msh.forwarding import RouteReport
from postroad.reliability.breaker import Party
from postroad.store.records import (
    Extent,
    Figures,
    Message,
    Notice,
    Recorded,
    Side,
    Signal,
    State,
    StoredPart,
    Total,
    Wanted,
)
from postroad.wire.content import Content, Sink
from postroad.wire.ebms3 import Selection

ON_ITS_WAY: Final = (State.SUBMITTED, State.READY, State.WAITING, State.SUSPENDED)
"""States of an outgoing message whose fate is not decided yet."""
ANSWERS: Final = ("delivered", "received", "not_received")
"""What can be said of a message that was given up (JOURNAL, event settled)."""


class Refused(Exception):
    """The node does not do what was asked; `status` is the HTTP status that says so.

    400 what was asked makes no sense, 404 there is no such thing, 409 it contradicts what is
    there, 413 too large, 422 the agreement does not allow it, 503 not now (try again).
    """

    def __init__(self, status: int, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        """An EBMS code where one fits."""


class SubmittedPayload(Struct, frozen=True, gc=False):
    """A payload as the application gives it."""

    content: Content
    """From `Service.new_sink`, so that any size fits."""
    sha256: bytes
    media_type: str = "application/octet-stream"
    content_id: str | None = None
    """Ours is made where none is given."""
    file_name: str | None = None
    properties: tuple[tuple[str, str, str | None], ...] = ()
    """Name, value and type of part properties."""
    compress: bool | None = None
    """None: as the P-Mode says."""


class Submission(Struct, frozen=True, gc=False):
    """A message as the application gives it. What is None is taken from the P-Mode."""

    pmode: str
    """Empty only in a reply."""
    payloads: tuple[SubmittedPayload, ...] = ()
    message_id: str | None = None
    """The application's own id: submitted again with the same content it gets the same answer."""
    conversation_id: str | None = None
    ref_to_message_id: str | None = None
    service: str | None = None
    action: str | None = None
    properties: tuple[tuple[str, str, str | None], ...] = ()
    """Name, value and type of message properties."""
    test: bool = False
    """To the partner's test service: checked and acknowledged there, and not delivered."""
    answers: str | None = None
    """Of a reply: the id under which its request is stored, where that is known."""


class Submitted(Struct, frozen=True, gc=False):
    message: Message
    repeated: bool
    """The same was submitted before; this is what became of it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that the node works with."""

    use: str
    """signing, decryption and tls are the node's own; partner, trust"""
    name: str
    """The setting that names it, or the P-Mode."""
    subject: str
    begins: datetime
    expires: datetime
    fingerprint: str
    """SHA-256, in hex."""
    partner: str | None = None
    """Whose it is, where it is a partner's."""


@dataclass(frozen=True, slots=True)
class NotInForce:
    """Something in the node's files by which it does not work."""

    what: str
    detail: str
    to_do: str


@dataclass(frozen=True, slots=True)
class Health:
    ready: bool
    problems: tuple[str, ...]
    """What to see to; a node may be ready all the same."""
    figures: Figures
    webhook_paused: bool | None = None
    """Whether the application takes no calls; None: there is no webhook."""
    free: int | None = None
    """Bytes that are free on the disk; None: nobody counts."""
    reserve: int = 0
    """Bytes that are set aside on it, for purging and acknowledging."""
    certificates: tuple[Certificate, ...] = ()
    """That first which expires first."""
    not_in_force: tuple[NotInForce, ...] = ()
    partner_of: Mapping[str, str] = field(default_factory=dict)
    """The partner of each P-Mode, and where each rule leads that passes messages on."""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When that was so, by the node's clock."""


@dataclass(frozen=True, slots=True)
class PModeSummary:
    id: str
    mep: str
    binding: str | None
    initiator: str | None
    responder: str | None
    service: str | None
    action: str | None
    address: str | None
    sends: bool
    """Whether this node is the one that sends with it."""
    pulls: bool = False
    """Whether this node pulls with it: messages, or what is said about those that it sent."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What a partner answered to a question."""

    answer: str | None
    """Pong, or the status of the message; None: nothing."""
    timestamp: datetime | None
    """When the partner received the message that was asked about."""
    address: str
    seconds: float
    detail: str | None = None
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a pull brought."""

    messages: tuple[str, ...]
    """Ids of what came, taken over or refused."""
    channel: str
    address: str
    detail: str | None = None
    """Why no more came, where the channel is not simply empty."""
    answered: tuple[str, ...] = ()
    """Ids of messages of this node about which a receipt or an error came."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a message is that goes in fragments."""

    fragments: int | None
    """None while it is still being compressed."""
    sent: int
    """Those that left, at least once."""
    arrived: int
    """Those that were acknowledged, or sent where no receipts are agreed on."""
    bytes: int
    """Of all fragments together, without their envelopes."""
    arrived_bytes: int


@dataclass(frozen=True, slots=True)
class Arriving:
    """A message that comes in fragments, as far as it is here."""

    group_id: str
    """Of its fragments; often its message id, which is known for sure when all are there."""
    from_party: str
    pmode: str
    conversation_id: str
    fragments: int | None
    """How many there are; None: none of those that came says it."""
    arrived: int
    bytes: int | None
    """Of all fragments together, where that was said."""
    arrived_bytes: int
    began: datetime
    until: datetime | None
    """When it is given up."""
    peer: str | None
    """Who brought the first of them."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    ok: bool
    pmodes: int
    problems: tuple[str, ...]
    """Why the new files are not used: the old ones stay in force."""


class Service(Protocol):
    """A running node."""

    name: str
    party: str

    def new_sink(self) -> Sink: ...

    async def submit(self, submission: Submission) -> Submitted:
        """Take a message over: durable when this returns. `Refused` when it is not taken."""
        ...

    async def submit_bundle(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Take the units of a bundle over, the primary first: all of them, or none (`Refused`)."""
        ...

    async def reply(
        self, message_id: str, submission: Submission, cursor: int | None = None
    ) -> Submitted:
        """Answer a message of the inbox; without a P-Mode by that of the message, if it is two-way.

        `Refused` when it is not taken.
        """
        ...

    async def message(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> Message | None:
        """Return the message; of both sides the sending one unless said otherwise.

        `cursor` chooses among received messages of several senders that have one id; where none is
        chosen they are `Refused`.
        """
        ...

    async def received(self, message_id: str) -> list[Message]:
        """Return all received messages with this MessageId: several senders may have used it."""
        ...

    async def messages(self, wanted: Wanted) -> list[Message]: ...

    async def total(self, wanted: Wanted, most: int) -> Total:
        """How many messages a list has, counted up to `most`."""
        ...

    async def signals(self, message: Message) -> list[Signal]: ...

    async def beginning(self, message_id: str) -> bytes | None:
        """What was kept of a rejected message whose sender proved nothing; None: nothing."""
        ...

    async def events(self, message_id: str) -> list[Recorded]: ...

    async def transfer(self, message: Message) -> Transfer | None:
        """How far a message is that goes in fragments; None: it goes whole."""
        ...

    async def fragments(self, message: Message, after: int = 0, limit: int = 100) -> list[Message]:
        """The fragments of a message that was sent from here, by number."""
        ...

    async def settled(self, message_id: str, timeout: float) -> Message | None:
        """The outgoing message once it is no longer on its way, or as it is after `timeout`."""
        ...

    async def replied(self, message_id: str, timeout: float) -> Message | None:
        """The request once its reply is there or cannot come, or as it is after `timeout`."""
        ...

    def no_reply(self, message: Message) -> str | None:
        """Why no reply to a message will come; None: one may come, or is there."""
        ...

    def part(self, message: Message, part: StoredPart) -> Content:
        """The payload as the application sees it."""
        ...

    def signal(self, signal: Signal) -> Content:
        """The bytes of a receipt or an error, as they came or went."""
        ...

    async def acknowledge(self, message_id: str, cursor: int | None = None) -> Message:
        """The application has a message of the inbox; again is no error."""
        ...

    async def release(self, message_id: str, cursor: int | None = None) -> Message:
        """Deliver a message that is held until others come, which are waited for no longer."""
        ...

    async def acknowledge_all(self, wanted: Wanted) -> int:
        """The application has all messages of the inbox that fit; how many it had not before."""
        ...

    async def inbox(self) -> Extent:
        """How far the inbox is."""
        ...

    async def arriving(self, limit: int = 100) -> list[Arriving]:
        """The messages of which fragments came and more are to come, by sender."""
        ...

    async def evidence(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> Iterator[bytes]:
        """A zip with message, receipt, certificates and verdict, in pieces."""
        ...

    async def route(
        self, message_id: str, side: Side | None = None, cursor: int | None = None
    ) -> RouteReport:
        """Where the rules for messages of others would lead it now, and why."""
        ...

    async def resend(self, message_id: str) -> Message:
        """Send an outgoing message again that failed, is in doubt or waits, under the same id."""
        ...

    async def settle(self, message_id: str, answer: str, who: str = "operator") -> Message:
        """Note what became of an outgoing message that was given up: one of `ANSWERS`."""
        ...

    async def ping(self, pmode: str, timeout: float) -> Asking:
        """Ask the partner of a P-Mode whether it is there; `Refused` where that cannot be asked."""
        ...

    async def query(self, message_id: str, timeout: float) -> Asking:
        """Ask the partner what became of a message that was sent to it."""
        ...

    async def pull(
        self, pmode: str, selection: Selection | None = None, *, most: int = 1
    ) -> Collected:
        """Pull so many messages of a P-Mode's channel, or as many as there are."""
        ...

    async def partners(self) -> list[Party]:
        """Those with whom not all is well, by name."""
        ...

    async def suspend(self, partner: str, why: str) -> Party:
        """Send nothing to a partner until it is resumed; again is no error."""
        ...

    async def resume(self, partner: str) -> int:
        """Serve a partner again; how many suspended messages go on."""
        ...

    async def notices(self, after: int = 0, limit: int = 100) -> list[Notice]:
        """What the application was not told yet about messages that it sent, in order."""
        ...

    async def acknowledge_notice(self, id: int) -> None:
        """The application knows."""
        ...

    async def purge(self, days: float | None = None) -> int:
        """Remove what is past its retention now; how many messages that were."""
        ...

    async def reload(self) -> Reloaded: ...

    def pmodes(self) -> list[PModeSummary]: ...

    async def health(self) -> Health: ...

    def metrics(self) -> Mapping[str, float]:
        """Counters since the start, by Prometheus name with labels."""
        ...
