"""What the clients give and take: frozen values, and the error that they raise."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import IO, Any, Final, Generic, TypeVar

T = TypeVar("T")

Properties = Mapping[str, str] | Sequence["Property"]
Content = bytes | str | PathLike[str] | IO[bytes]
"""Bytes, the path of a file, or a file opened for reading bytes."""
Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and all of them."""

_ON_THE_WAY: Final = frozenset({"submitted", "ready", "waiting", "suspended"})
_TIMES: Final = (
    "at",
    "created_at",
    "updated_at",
    "first_sent_at",
    "last_sent_at",
    "due_at",
    "decided_by",
    "since",
    "until",
    "began",
    "oldest_work",
    "timestamp",
    "begins_at",
    "expires_at",
)


class ApiError(Exception):
    """The node did not do what was asked, or could not be reached (status 0)."""

    def __init__(
        self,
        status: int,
        detail: str,
        code: str | None = None,
        errors: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"{status}: {detail}" if status else detail)
        self.status = status
        self.detail = detail
        self.code = code
        """An ebMS error code where one fits."""
        self.errors = errors
        """Path and sentence for each field that is wrong."""


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload to be sent, with what is to be said about it."""

    content: Content
    media_type: str | None = None
    """Guessed from the file name where it is left out."""
    file_name: str | None = None
    """That of the file where it is left out."""
    content_id: str | None = None
    properties: Properties = ()
    compress: bool | None = None
    """None: as the P-Mode says."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A message to be sent in a bundle; what is left out is taken from the P-Mode."""

    pmode: str
    payloads: Sequence[Content | Payload] = ()
    message_id: str | None = None
    conversation_id: str | None = None
    ref_to_message_id: str | None = None
    service: str | None = None
    action: str | None = None
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A payload of a message."""

    number: int
    """Counted from 1."""
    content_id: str | None
    media_type: str
    size: int
    sha256: str
    compressed: bool
    properties: tuple[Property, ...]
    file_name: str | None
    """As the sender says; do not trust it as a path."""


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
class Message:
    """One message on one side."""

    side: str
    message_id: str
    state: str
    severity: str | None
    """Which kind of failure: Error, the partner does not have it; Warning, it may have it."""
    created_at: datetime
    updated_at: datetime
    pmode: str | None
    kind: str
    protocol: str
    party: str
    ref_to_message_id: str | None
    reply_message_id: str | None
    """Of a request in a two-way exchange: what answers it."""
    conversation_id: str | None
    from_party: str | None
    to_party: str | None
    from_role: str | None
    to_role: str | None
    service: str | None
    action: str | None
    mpc: str | None
    agreement: str | None
    properties: tuple[Property, ...]
    attempts: int
    tries: int
    """Attempts since it was first sent, or last sent anew."""
    unanswered: int
    """Copies that left and of which nothing was heard."""
    first_sent_at: datetime | None
    last_sent_at: datetime | None
    due_at: datetime | None
    """When it is looked at again: the next attempt, or the time to give up."""
    decided_by: datetime | None
    """Until when its fate is known, if its partner is not paused meanwhile."""
    bytes: int
    wire_bytes: int
    parts: tuple[Part, ...]
    peer: str | None
    error_code: str | None
    detail: str | None
    part_of: str | None
    """Of a fragment: the message that it is a part of, or its group."""
    fragment: int | None
    fragments: int | None
    """How many fragments there are, where that is known."""
    transfer: Transfer | None
    """How far it is, where it goes in fragments; not told in lists."""
    cursor: str
    """Its place in lists: give it as `cursor` to go on after it."""
    no_reply: str | None = None
    """Why no reply to it will come; told where one message is asked for."""
    unproven: bool = False
    """It was rejected, and its sender did not prove who it is."""
    beginning: int = 0
    """How many bytes of the envelope of such a message are kept."""
    envelope_bytes: int = 0
    """How many bytes the envelope of such a message had."""

    @property
    def settled(self) -> bool:
        """Whether it is no longer on its way: nothing follows by itself."""
        return self.state not in _ON_THE_WAY


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a node's inbox is."""

    node: str
    epoch: int
    """Grows when the node's database was restored or made anew: cursors begin again then."""
    last: int
    """The greatest cursor that a message in the inbox has or had."""
    purged: int
    """The greatest cursor of those that retention removed; 0 for none."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """A message that comes in fragments, as far as it is here."""

    group_id: str
    """Of its fragments; often, not always, its message id."""
    from_party: str
    pmode: str
    conversation_id: str
    fragments: int | None
    """How many there are, where one that came says so."""
    arrived: int
    bytes: int | None
    """Of all together, where that is known."""
    arrived_bytes: int
    began: datetime
    until: datetime | None
    """When it is given up."""
    peer: str | None


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that the node took over."""

    message: Message
    repeated: bool
    """The same was submitted before, perhaps by an attempt whose answer was lost."""

    @property
    def message_id(self) -> str:
        return self.message.message_id

    @property
    def state(self) -> str:
        return self.message.state

    @property
    def settled(self) -> bool:
        return self.message.settled


@dataclass(frozen=True, slots=True)
class Missed:
    """A rule that nearly matched, and what differs."""

    rule: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Where the rules of an intermediary lead a message, and why."""

    routed_by: str | None
    """RoutingInput, UserMessage or PullRequest."""
    input: tuple[tuple[str, str], ...]
    rule: str | None
    because: tuple[tuple[str, str], ...]
    to: tuple[str, ...]
    also: tuple[str, ...]
    """Rules that match too, and stand later."""
    nearly: tuple[Missed, ...]
    notes: tuple[str, ...]
    error: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the journal."""

    node: str
    epoch: int
    seq: int
    at: datetime
    party: str
    event: str
    side: str | None
    message_id: str | None
    signal_id: str | None
    kind: str | None
    ref_to_message_id: str | None
    conversation_id: str | None
    group_id: str | None
    envelope: str | None
    from_party: str | None
    to_party: str | None
    service: str | None
    action: str | None
    mpc: str | None
    pmode: str | None
    protocol: str | None
    attempt: int | None
    sequence_number: int | None
    fragment: int | None
    fragments: int | None
    bytes: int | None
    wire_bytes: int | None
    payload_digests: tuple[str, ...] | None
    peer: str | None
    error_code: str | None
    severity: str | None
    detail: str | None
    evidence: str | None


@dataclass(frozen=True, slots=True)
class Signal:
    """A receipt or an error about a message."""

    signal_id: str
    kind: str
    incoming: bool
    at: datetime
    content_type: str
    size: int
    valid: bool
    error_code: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Notice:
    """What became of a message that was sent, until it is acknowledged."""

    id: int
    message_id: str
    at: datetime
    event: str
    """failed, in_doubt, suspended or settled"""
    state: str
    severity: str | None
    """Of a failure: Error, the partner does not have it; Warning, it may have it."""
    error_code: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class PartnerAddress:
    """How it stands with one address of a partner."""

    address: str
    gate: str
    """flowing, paused or probing"""
    failures: int
    """Attempts in a row that did not reach it."""
    until: datetime | None
    """Of a pause: when one message tries again."""
    since: datetime | None
    """When it was paused."""
    detail: str | None


@dataclass(frozen=True, slots=True)
class Partner:
    """How it stands with a partner: as the party itself, or else its worst address."""

    name: str
    gate: str
    """flowing, paused, probing or suspended"""
    failures: int
    """Attempts in a row that did not reach it."""
    until: datetime | None
    """Of a pause: when one message tries again."""
    since: datetime | None
    """When it was paused or suspended."""
    detail: str | None
    addresses: tuple[PartnerAddress, ...]
    """Those of its addresses with which not all is well; others are served."""


@dataclass(frozen=True, slots=True)
class PingAnswer:
    """Whether a partner is there."""

    pmode: str
    answer: str | None
    """Pong; None when no answer came in time."""
    address: str
    """Where it was asked."""
    seconds: float
    detail: str | None
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class PulledMessage:
    message_id: str
    state: str
    """delivered, or rejected where it was not as agreed."""
    detail: str | None


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought."""

    pmode: str
    channel: str
    address: str
    """Where it was asked."""
    messages: tuple[PulledMessage, ...]
    detail: str | None
    """Why no more came, where the channel is not simply empty."""
    answered: tuple[PulledMessage, ...] = ()
    """Own messages about which a receipt or an error was pulled."""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What a partner says of a message that was sent to it."""

    message_id: str
    answer: str | None
    """Received, Processed, Forwarded, NotRecognized or UnAuthorized; None: no answer in time."""
    means: str | None
    """The same as `settle` takes it: delivered, received or not_received; None: nothing."""
    timestamp: datetime | None
    """When the partner received the message, if it says so."""
    address: str
    """Where it was asked."""
    seconds: float
    settled: str | None
    """What was written down now."""
    detail: str | None
    """Why there is no answer, why it proves nothing, or why nothing could be written down."""


@dataclass(frozen=True, slots=True)
class PMode:
    id: str
    mep: str
    binding: str | None
    initiator: str | None
    responder: str | None
    service: str | None
    action: str | None
    address: str | None
    sends: bool
    pulls: bool


@dataclass(frozen=True, slots=True)
class Health:
    ready: bool
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Total:
    """How many messages a list has."""

    count: int
    more: bool
    """There may be more: not all were looked at."""


def total(data: Mapping[str, Any]) -> Total:
    return value_of(Total, data["total"])


def message(data: Mapping[str, Any]) -> Message:
    parts = tuple(
        value_of(Part, part | {"properties": _properties(part.get("properties", ()))})
        for part in data.get("parts", ())
    )
    shown = {**data, "parts": parts, "properties": _properties(data.get("properties", ()))}
    if (transfer := data.get("transfer")) is not None:
        shown["transfer"] = value_of(Transfer, transfer)
    return value_of(Message, shown)


def extent(data: Mapping[str, Any]) -> Extent:
    return Extent(data["node"], int(data["epoch"]), int(data["last"]), int(data["purged"]))


def arriving(data: Mapping[str, Any]) -> Arriving:
    return value_of(Arriving, data)


def event(data: Mapping[str, Any]) -> Event:
    digests = data.get("payload_digests")
    return value_of(Event, {**data, "payload_digests": None if digests is None else tuple(digests)})


def route(data: Mapping[str, Any]) -> Route:
    def pairs(key: str) -> tuple[tuple[str, str], ...]:
        return tuple((one["criterion"], one["value"]) for one in data[key])

    return Route(
        data["routed_by"],
        pairs("input"),
        data["rule"],
        pairs("because"),
        tuple(data["to"]),
        tuple(data["also"]),
        tuple(Missed(one["rule"], tuple(one["differences"])) for one in data["nearly"]),
        tuple(data["notes"]),
        data["error"],
    )


def signal(data: Mapping[str, Any]) -> Signal:
    return value_of(Signal, data)


def notice(data: Mapping[str, Any]) -> Notice:
    return value_of(Notice, data)


def partner(data: Mapping[str, Any]) -> Partner:
    return value_of(Partner, {**data, "addresses": partner_addresses(data)})


def partner_addresses(data: Mapping[str, Any]) -> tuple[PartnerAddress, ...]:
    """Those of a partner; a node of an older version tells nothing of them."""
    return tuple(value_of(PartnerAddress, one) for one in data.get("addresses", ()))


def ping_answer(data: Mapping[str, Any]) -> PingAnswer:
    return value_of(PingAnswer, data)


def pulled(data: Mapping[str, Any]) -> Pulled:
    kinds = ("messages", "answered")
    came = {kind: tuple(value_of(PulledMessage, one) for one in data[kind]) for kind in kinds}
    return value_of(Pulled, {**data, **came})


def query_answer(data: Mapping[str, Any]) -> QueryAnswer:
    return value_of(QueryAnswer, data)


def pmode(data: Mapping[str, Any]) -> PMode:
    return value_of(PMode, data)


def _properties(given: Any) -> tuple[Property, ...]:
    return tuple(value_of(Property, one) for one in given)


def value_of(kind: type[T], data: Mapping[str, Any]) -> T:
    """A value from JSON; a field that an older node does not know is None, a new one is left."""
    fields = {field.name: data.get(field.name) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in _TIMES:
        if (told := fields.get(name)) is not None:
            fields[name] = datetime.fromisoformat(told)
    return kind(**fields)
