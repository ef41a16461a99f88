"""What the store keeps, as values: messages, their signals, outgoing work and journal events.

These are made several times for every message, so they are structs of msgspec: many times quicker
to make and to change than dataclasses. `msgspec.structs.replace` makes a copy with
other fields. No cycle can lead through them, so the collector of garbage need not look (`gc`).
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from postroad.reliability.breaker import Partner as Partner
from postroad.security.encrypt import Seal
from postroad.store.qualified import wire_id
from postroad.wire.codings import Coded
from postroad.wire.ebms3 import Reference


class Side(StrEnum):
    SENDING = "sending"
    RECEIVING = "receiving"
    FORWARDING = "forwarding"


class State(StrEnum):
    """Where a message stands. The first group is of outgoing messages, the second of incoming."""

    SUBMITTED = "submitted"
    """Accepted from the application, not packaged yet."""
    READY = "ready"
    """Packaged, to be sent; no copy of it is in doubt."""
    WAITING = "waiting"
    """It left; a receipt is still to come."""
    SENT = "sent"
    """It left, and no receipt was agreed on."""
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """It never left, or the partner said that it was not taken."""
    IN_DOUBT = "in_doubt"
    """It left, and no answer came."""
    EXPIRED = "expired"
    """Its time was over before it left."""
    SUSPENDED = "suspended"
    """No retry is left, and somebody has to resume."""
    SETTLED = "settled"
    """Given up, and answered later."""

    RECEIVED = "received"
    """Kept, and never to be delivered: a message to the test service."""
    HELD = "held"
    """Kept, and not yet for the application."""
    DELIVERED = "delivered"
    """In the inbox."""
    CONSUMED = "consumed"
    """The application said that it has it."""
    REJECTED = "rejected"


class Stored(Struct, frozen=True, gc=False):
    """Where durable content lies."""

    place: str
    """`s` and the number of a segment, or the name of a file of its own."""
    offset: int
    size: int


class StoredPart(Struct, frozen=True, gc=False):
    """One payload of a message, as it is signed: decrypted, and still compressed if it came so."""

    content_id: str | None
    """None for a payload in the Body."""
    media_type: str
    """As the application sees it."""
    size: int
    """Bytes as the application sees them."""
    sha256: str
    """Hex digest of those bytes."""
    stored: Stored
    wire_type: str
    """Media type of the signed form, as it stands in the MIME header before encryption."""
    compressed: bool = False
    properties: tuple[tuple[str, str, str | None], ...] = ()
    """Name, value and type of each part property, those of compression included."""
    file_name: str | None = None


class Split(Struct, frozen=True, gc=False, omit_defaults=True):
    """How an outgoing message was cut: beside its parts, all that fragments are made of."""

    group_id: str
    fragment_size: int
    count: int
    """0 as long as nobody knows, because it is still being compressed."""
    size: int
    """Of what is cut: compressed, if it is, and as far as it is."""
    message_size: int
    """Before compression."""
    algorithm: str | None = None
    stored: Stored | None = None
    """The compressed form; None: it is in pieces, or the message is cut as it is."""
    written: int = 0
    """How many fragments are messages of their own by now; the others are still to be written."""
    left: bool = False
    """Some fragment left."""
    references: tuple[Reference, ...] = ()
    """The digests that a receipt has to name; of the primary unit of a bundle, those of all."""
    units: tuple[str, ...] = ()
    """Of the primary unit of a bundle that was cut: the other units, in their order."""
    streamed: bool = False
    """Fragments leave while it is compressed: the last one tells how many there are."""
    pieces: tuple[Stored, ...] = ()
    """The compressed form, as far as it is."""
    coded: Coded | None = None
    """How far the message is compressed; None: that is done, or is not to be."""

    @property
    def is_written(self) -> bool:
        """Whether all fragments are messages of their own."""
        return self.coded is None and self.written >= self.count


class Message(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message on one side. What lists are filtered by is a field, the rest is in `parts`."""

    side: Side
    message_id: str
    """The id that is unique on its side: its MessageId, or a qualified id (`store.qualified`)."""
    state: State
    created_at: datetime
    updated_at: datetime
    pmode: str | None = None
    leg: int = 1
    kind: str = "message"
    protocol: str = "as4"
    party: str = ""
    ref_to_message_id: str | None = None
    conversation_id: str | None = None
    from_party: str | None = None
    to_party: str | None = None
    from_role: str | None = None
    to_role: str | None = None
    service: str | None = None
    action: str | None = None
    mpc: str | None = None
    agreement: str | None = None
    properties: tuple[tuple[str, str, str | None], ...] = ()
    attempts: int = 0
    bytes: int = 0
    wire_bytes: int = 0
    payload_digests: tuple[str, ...] = ()
    """`sha256:hex` of each payload as the application gave or gets it."""
    envelope: Stored | None = None
    unproven: bool = False
    """Of a received message: nothing proved who sent it, such as a signature. If it was rejected,
    at most its beginning is kept."""
    beginning: int = 0
    """How many bytes of the envelope are kept of a rejected one (`Reader.beginning`)."""
    envelope_bytes: int = 0
    """How many bytes the envelope of such a message had."""
    soap: str = "1.2"
    boundary: str | None = None
    """Of the MIME package in which an outgoing message travels; None when it travels bare."""
    seal: Seal | None = None
    parts: tuple[StoredPart, ...] = ()
    fingerprint: str | None = None
    """Of what the application submitted: the same again is answered with the first answer."""
    peer: str | None = None
    error_code: str | None = None
    detail: str | None = None
    tries: int = 0
    """Attempts since it was first sent, or since somebody began anew (`reliability.delivery`)."""
    unanswered: int = 0
    """Copies that left and of which nothing was heard."""
    first_sent_at: datetime | None = None
    last_sent_at: datetime | None = None
    due_at: datetime | None = None
    """When it is looked at again: the next attempt, or the time to give up."""
    decided_by: datetime | None = None
    """Until when its fate is known."""
    timer: int | None = None
    """The work that waits for that time, or that keeps its place in its lane."""
    transport: int = 0
    """Over which of the partner's addresses it goes: 0 is the first."""
    sequence_number: int | None = None
    """In its conversation, where order is guaranteed."""
    best_effort: bool = False
    """Carried for others, once, and nobody is told what becomes of it."""
    signal: bool = False
    """It is a signal that is carried for others; the journal tells of the message it is about."""
    anew: bool = False
    """Somebody began anew after the application was told that it had failed."""
    anew_at: datetime | None = None
    """When somebody began anew, whatever the application was told."""
    channel: str | None = None
    """The channel from which its receiver pulls it; None: it is pushed."""
    route: str | None = None
    """The rule by which an intermediary passes it on."""
    hop: str | None = None
    """Where that leads: the next MSH, for whom turns and pauses count, not for its receiver."""
    stations: tuple[str, ...] = ()
    """The intermediaries that it passed before."""
    copies: int = 0
    """How often it came to be passed on."""
    expires_at: datetime | None = None
    """When it is passed on no more, as its own headers say."""
    accounts: tuple[str, ...] = ()
    """In whose names it counts as long as it waits to be passed on (`agreement.quotas`)."""
    reply_message_id: str | None = None
    """Of a request in a two-way exchange: what answered it."""
    late: bool = False
    """Of a request: its reply was not there in time to be the response. Of a reply: it goes by the
    alternate binding."""
    bundle: str | None = None
    """The primary unit of the bundle that it is a unit of, which may be itself; None: of none."""
    part_of: str | None = None
    """Of a fragment that is sent: the message that it is a part of. Of one that was received: its
    GroupId, since more is not known. Lists of messages leave it out."""
    fragment: int | None = None
    """Its number, from 1."""
    fragments: int | None = None
    """How many there are; of one that was received None where it does not say so."""
    split: Split | None = None
    """Of a message that goes out in fragments."""
    key: int = 0
    """Grows with time; the order of lists, and their cursor. A new one is given when the message is
    delivered, so that nothing appears in the inbox behind what was read from it."""

    @property
    def is_ebxml(self) -> bool:
        """Whether it is a message of ebXML, whichever version; else one of ebMS 3.0."""
        return self.protocol.startswith("ebxml-")

    @property
    def wire_id(self) -> str:
        """Its MessageId, as it stands in the message, in the journal and in all that users see."""
        return wire_id(self.message_id)

    @property
    def agreed_by(self) -> str:
        """Its P-Mode, or the rule that passes it on; empty where there is none."""
        return self.pmode or self.route or ""

    @property
    def partner(self) -> str:
        """Whom it goes to next: in turns with others, and not while that one is paused."""
        return self.hop or self.to_party or ""


WAITS: Final = frozenset((State.READY, State.WAITING, State.SUSPENDED))
"""The states of what an intermediary still has to pass on."""
INBOX: Final = (State.DELIVERED, State.CONSUMED)
"""The states of what is, or was, for the application."""


class Extent(Struct, frozen=True, gc=False):
    """How far the inbox is: what came to it, and what retention removed from it."""

    epoch: int
    last: int
    """The greatest key that a message in the inbox has or had."""
    purged: int
    """The greatest key of those that were removed; 0 for none."""


class Signal(Struct, frozen=True, gc=False):
    """A receipt or an error about a message, with its bytes."""

    side: Side
    """Which side of the message it is about: sending for those that came back to us."""
    message_id: str
    """The user message."""
    signal_id: str
    kind: str
    """receipt, acknowledgment, hop, response or error"""
    incoming: bool
    at: datetime
    envelope: Stored
    content_type: str
    status: int = 200
    """HTTP status with which it was sent, where it was the response."""
    valid: bool = True
    error_code: str | None = None
    detail: str | None = None
    refusal: bool = False
    """An error by which the partner refused this very message, for good."""


class Work(Struct, frozen=True, gc=False):
    """Something that is still to be done, by whoever claims it."""

    kind: str
    """package, split, sequence, sequence_end, send, forward, signal, report, inform, complain,
    notify, deliver, gap, held, offer, collect, bundle or join"""
    message_id: str
    due_at: datetime
    data: bytes = b""
    """JSON of what the worker needs beside the message."""
    attempt: int = 0
    owner: str | None = None
    lease_until: datetime | None = None
    id: int = 0
    partner: str = ""
    """Whom it needs, or which of its addresses: when that is paused, so is this."""
    lane: str | None = None
    """What has the same lane is done one after the other, in the order in which it was added."""
    left_by: str | None = None
    """The owner who had claimed it before and did not finish it."""
    expires_at: datetime | None = None
    """Then somebody has to look at it, whomever it needs and wherever it stands in its lane."""


class Offer(Struct, frozen=True, gc=False):
    """A message, or a signal, that waits in a channel until somebody pulls it."""

    channel: str
    pmode: str
    message_id: str
    """Its own id."""
    added_at: datetime
    items: tuple[str, ...] = ()
    """All that a selection can ask for; not told by those who are asked for an offer."""
    due_at: datetime | None = None
    """It was handed out, and is offered again then; None: it is offered."""
    about: str | None = None
    """Of a signal: the message that it is about, which this node received."""


class Queue(Struct, frozen=True, gc=False):
    """How much waits in a channel."""

    count: int = 0
    oldest: datetime | None = None
    """When that came which waits longest."""


class Load(Struct, frozen=True, gc=False):
    """How much waits to be passed on in somebody's name."""

    messages: int = 0
    bytes: int = 0


class Notice(Struct, frozen=True, gc=False, omit_defaults=True):
    """What an application is told about a message that it sent, until it says that it knows."""

    message_id: str
    at: datetime
    event: str
    """failed, in_doubt, suspended, settled, or receipt where it was sent anew after that; of a
    received message reply_refused"""
    state: State
    severity: str | None = None
    """Of a failure: Error, it did not arrive; Warning, it may have."""
    error_code: str | None = None
    detail: str | None = None
    id: int = 0


class Event(Struct, frozen=True, gc=False):
    """One event of the journal; node, epoch and seq are the store's. Names are those of JOURNAL."""

    at: datetime
    party: str
    event: str
    side: Side | None = None
    message_id: str | None = None
    signal_id: str | None = None
    kind: str | None = None
    ref_to_message_id: str | None = None
    conversation_id: str | None = None
    group_id: str | None = None
    envelope: str | None = None
    from_party: str | None = None
    to_party: str | None = None
    service: str | None = None
    action: str | None = None
    mpc: str | None = None
    pmode: str | None = None
    protocol: str | None = None
    attempt: int | None = None
    sequence_number: int | None = None
    fragment: int | None = None
    fragments: int | None = None
    bytes: int | None = None
    wire_bytes: int | None = None
    payload_digests: tuple[str, ...] | None = None
    peer: str | None = None
    error_code: str | None = None
    severity: str | None = None
    detail: str | None = None
    evidence: str | None = None


class Recorded(Struct, frozen=True, gc=False):
    """An event as it stands in the journal."""

    node: str
    epoch: int
    seq: int
    event: Event


class Shipped(Struct, frozen=True, gc=False):
    """How far the journal was shipped to a place."""

    target: str
    """The folder or URL of the segments."""
    epoch: int = 0
    seq: int = 0
    """Of the last event that lies there."""
    digest: str = ""
    """SHA-256, in hex, of the last segment."""
    name: str = ""
    """Of that segment, below the target."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages a list shows, newest last; None is no constraint."""

    side: Side | None = None
    states: tuple[State, ...] = ()
    pmode: str | None = None
    from_party: str | None = None
    to_party: str | None = None
    service: str | None = None
    action: str | None = None
    conversation_id: str | None = None
    partner: str | None = None
    """The party that it is sent or passed on to, or that sent what is received or passed on."""
    error_code: str | None = None
    since: datetime | None = None
    """Made at this time or later."""
    until: datetime | None = None
    """Made before this time."""
    after: int = 0
    """Only messages whose key is greater."""
    limit: int = 100
    newest_first: bool = False
    before: int | None = None
    """Only messages whose key is smaller."""


class Total(Struct, frozen=True, gc=False):
    """How many messages a list has."""

    count: int
    more: bool = False
    """There may be more: not all were looked at."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What there is, for people and metrics."""

    messages: dict[str, int] = field(default_factory=dict)
    """By `side.state`."""
    agreements: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """The same by P-Mode, or rule that passes them on: side, state, its id (empty for none)."""
    work: dict[str, int] = field(default_factory=dict)
    """By kind."""
    offers: dict[str, int] = field(default_factory=dict)
    """What waits in channels, by P-Mode."""
    oldest_work: datetime | None = None
    last_seq: int = 0
    bytes: int = 0
    """Of database and contents on disk."""
