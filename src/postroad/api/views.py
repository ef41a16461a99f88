"""What the interface shows of messages, signals, events and the node: the bodies of answers.

Keys, envelopes and places in the store are not shown.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import msgspec
from pydantic import BaseModel, Field

from postroad.node.service import PModeSummary, Transfer
from postroad.reliability.breaker import Gate, Party
from postroad.reliability.delivery import KINDS
from postroad.store.qualified import wire_id
from postroad.store.records import (
    Extent,
    Message,
    Notice,
    Partner,
    Recorded,
    Side,
    Signal,
    State,
    StoredPart,
)

_SENT: Final[dict[str, Any]] = {
    "side": "sending",
    "message_id": "order-4711@buyer.example",
    "state": "submitted",
    "created_at": "2026-11-15T08:57:00Z",
    "updated_at": "2026-11-15T08:57:00Z",
    "pmode": "orders",
    "kind": "message",
    "protocol": "as4",
    "party": "buyer",
    "conversation_id": "2026-4711",
    "from_party": "buyer",
    "to_party": "seller",
    "service": "urn:example:orders",
    "action": "submit",
    "properties": [{"name": "originalSender", "value": "C1", "type": None}],
    "attempts": 0,
    "tries": 0,
    "unanswered": 0,
    "bytes": 1024,
    "wire_bytes": 0,
    "parts": [
        {
            "number": 1,
            "content_id": "order@buyer.example",
            "media_type": "application/xml",
            "size": 1024,
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "compressed": True,
            "properties": [],
            "file_name": "order.xml",
        }
    ],
    "cursor": "17",
}

_SEVERITIES: Final = {State(stage.value): kind for stage, kind in KINDS.items()}


class PropertyView(BaseModel):
    name: str
    value: str
    type: str | None = None


class PartView(BaseModel):
    """One payload."""

    number: int = Field(description="Counted from 1.")
    content_id: str | None
    media_type: str
    size: int = Field(description="Bytes as the application gave or gets them.")
    sha256: str = Field(description="Hex digest of those bytes.")
    compressed: bool = Field(description="Whether it travels compressed.")
    properties: list[PropertyView]
    file_name: str | None = Field(description="As the sender says; do not trust it as a path.")


class TransferView(BaseModel):
    """How far a message is that goes in fragments."""

    fragments: int | None = Field(
        description="How many there are; null while it is still being compressed."
    )
    sent: int = Field(description="Those that left, at least once.")
    arrived: int = Field(
        description="Those that were acknowledged, or sent where no receipts are agreed on."
    )
    bytes: int = Field(description="Of all fragments together, without their envelopes.")
    arrived_bytes: int = Field(description="Of those that arrived.")


class MessageView(BaseModel):
    """One message on one side."""

    model_config = {"json_schema_extra": {"examples": [_SENT]}}

    side: Side
    message_id: str
    state: State = Field(
        description="Outgoing: submitted, ready, waiting and suspended are on the way; sent and "
        "acknowledged have arrived; failed, expired and in_doubt were given up; settled were "
        "given up and answered later. Incoming: received, held, delivered (in the inbox), "
        "consumed (acknowledged by the application), rejected."
    )
    severity: str | None = Field(
        description="Which kind of failure: `Error`, the partner does not have it (failed, "
        "expired); `Warning`, it may have it (in_doubt)."
    )
    created_at: datetime
    updated_at: datetime
    pmode: str | None
    kind: str
    protocol: str
    party: str
    ref_to_message_id: str | None
    reply_message_id: str | None = Field(
        description="Of a request in a two-way exchange: the message that answers it."
    )
    no_reply: str | None = Field(
        default=None,
        description="Why no reply to it will come; told where one message is asked for.",
    )
    conversation_id: str | None
    from_party: str | None
    to_party: str | None
    from_role: str | None
    to_role: str | None
    service: str | None
    action: str | None
    mpc: str | None
    agreement: str | None
    properties: list[PropertyView]
    attempts: int
    tries: int = Field(description="Attempts since it was first sent, or last sent anew.")
    unanswered: int = Field(description="Copies that left and of which nothing was heard.")
    first_sent_at: datetime | None
    last_sent_at: datetime | None
    due_at: datetime | None = Field(
        description="When it is looked at again: the next attempt, or the time to give up."
    )
    decided_by: datetime | None = Field(
        description="Until when its fate is known, if its partner is not paused meanwhile; null "
        "when it is known, or when there is no end."
    )
    bytes: int = Field(description="Of all payloads, as the application gave or gets them.")
    wire_bytes: int = Field(description="What went over the wire.")
    parts: list[PartView]
    unproven: bool = Field(
        default=False,
        description="It was received, and nothing proved who sent it. If it was rejected, only the "
        "beginning of its envelope is kept, for a short time.",
    )
    beginning: int = Field(
        default=0, description="How many bytes of the envelope of such a message are kept."
    )
    envelope_bytes: int = Field(
        default=0, description="How many bytes the envelope of such a message had."
    )
    peer: str | None
    error_code: str | None
    detail: str | None = Field(description="Why it failed, or what is to be known about it.")
    part_of: str | None = Field(
        description="Of a fragment: the message that it is a part of, or its group."
    )
    fragment: int | None = Field(description="Of a fragment: its number, from 1.")
    fragments: int | None = Field(description="How many fragments there are, where that is known.")
    transfer: TransferView | None = Field(
        description="How far it is, where it goes in fragments. Null in lists."
    )
    cursor: str = Field(description="Its place in lists: give it as `cursor` to go on after it.")


class SubmittedView(MessageView):
    """The message that was taken over."""

    model_config = {"json_schema_extra": {"examples": [{**_SENT, "repeated": False}]}}

    repeated: bool = Field(description="The same was submitted before; this is what became of it.")


class BundleView(BaseModel):
    """The messages of a bundle that were taken over, the primary unit first."""

    messages: list[SubmittedView]


class TotalView(BaseModel):
    """How many messages a list has, on all its pages."""

    count: int
    more: bool = Field(
        description="There may be more: `count` ends at 10,000, and with filters that no index "
        "serves only the newest messages are looked at."
    )


class MessagesView(BaseModel):
    """One page of a list."""

    messages: list[MessageView]
    next: str | None = Field(description="The `cursor` of the next page; null on the last.")
    total: TotalView | None = Field(default=None, description="Where `total` was asked for.")


class ExtentView(BaseModel):
    """How far the inbox is."""

    node: str
    epoch: int = Field(description="Grows when the node's database was restored or made anew.")
    last: str = Field(description="The greatest cursor that a message in the inbox has or had.")
    purged: str = Field(
        description="The greatest cursor of those that retention removed; 0 for none. Who read "
        "that far has missed nothing."
    )


class ArrivingView(BaseModel):
    """A message that comes in fragments, as far as it is here."""

    group_id: str = Field(description="Of its fragments; often, not always, its message id.")
    from_party: str
    pmode: str
    conversation_id: str
    fragments: int | None = Field(description="How many there are, where one that came says so.")
    arrived: int = Field(description="Those that are here.")
    bytes: int | None = Field(description="Of all together, without their envelopes, where known.")
    arrived_bytes: int = Field(description="Of those that are here.")
    began: datetime
    until: datetime | None = Field(description="When it is given up.")
    peer: str | None


class ArrivingsView(BaseModel):
    arriving: list[ArrivingView]


class AcknowledgedView(BaseModel):
    acknowledged: int = Field(description="How many the application had not before.")


class EventView(BaseModel):
    """One event of the journal."""

    node: str
    epoch: int
    seq: int
    at: datetime
    party: str
    event: str
    side: Side | None
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
    payload_digests: list[str] | None
    peer: str | None
    error_code: str | None
    severity: str | None
    detail: str | None
    evidence: str | None


class EventsView(BaseModel):
    """All that the journal says about a message, in order."""

    events: list[EventView]


class SignalView(BaseModel):
    """A receipt or an error about a message."""

    signal_id: str
    kind: str = Field(examples=["receipt"])
    incoming: bool
    at: datetime
    content_type: str
    size: int
    valid: bool
    error_code: str | None
    detail: str | None


class SignalsView(BaseModel):
    """In the order in which they came."""

    signals: list[SignalView]


class NoticeView(BaseModel):
    """What became of a message that the application sent."""

    id: int
    message_id: str
    at: datetime
    event: str = Field(
        description="failed, in_doubt, suspended or settled; reply_refused of a received message, "
        "where the webhook's answer cannot be its reply",
        examples=["failed"],
    )
    state: State
    severity: str | None = Field(
        description="Of a failure: `Error`, the partner does not have it; `Warning`, it may."
    )
    error_code: str | None
    detail: str | None = Field(description="Why; for settled: delivered, received or not_received.")


class NoticesView(BaseModel):
    """One page of what the application was not told yet, oldest first."""

    notices: list[NoticeView]
    next: str | None = Field(description="The `cursor` of the next page; null on the last.")


class AddressView(BaseModel):
    """How it stands with one address of a partner."""

    address: str
    gate: Gate
    failures: int = Field(description="Attempts in a row that did not reach it.")
    until: datetime | None = Field(description="Of a pause: when one message tries again.")
    since: datetime | None = Field(description="When it was paused.")
    detail: str | None = Field(description="What happened last.")


class PartnerView(BaseModel):
    """How it stands with a partner: as the party itself, or else its worst address."""

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "name": "urn:example:seller",
                    "gate": "paused",
                    "failures": 5,
                    "until": "2026-11-15T08:57:30Z",
                    "since": "2026-11-15T08:57:00Z",
                    "detail": "seller.example:443 refused the connection",
                    "addresses": [
                        {
                            "address": "https://seller.example/msh",
                            "gate": "paused",
                            "failures": 5,
                            "until": "2026-11-15T08:57:30Z",
                            "since": "2026-11-15T08:57:00Z",
                            "detail": "seller.example:443 refused the connection",
                        }
                    ],
                }
            ]
        }
    }

    name: str
    gate: Gate = Field(
        description="flowing: it is served; paused: nothing is sent until then; probing: one "
        "message tries; suspended: nothing is sent until it is resumed."
    )
    failures: int = Field(description="Attempts in a row that did not reach it.")
    until: datetime | None = Field(description="Of a pause: when one message tries again.")
    since: datetime | None = Field(description="When it was paused or suspended.")
    detail: str | None = Field(description="What happened last, or why it is suspended.")
    addresses: list[AddressView] = Field(
        description="Those of its addresses with which not all is well; others are served."
    )


class PartnersView(BaseModel):
    """Those with whom not all is well, by name."""

    partners: list[PartnerView]


class ResumedView(BaseModel):
    partner: str
    messages: int = Field(description="Suspended messages that go on.")


class PModeView(BaseModel):
    """A P-Mode in short."""

    id: str
    mep: str
    binding: str | None
    initiator: str | None
    responder: str | None
    service: str | None
    action: str | None
    address: str | None
    sends: bool = Field(description="Whether this node is the one that sends with it.")
    pulls: bool = Field(
        description="Whether this node pulls with it: messages, or signals about those it sent."
    )


class PModesView(BaseModel):
    pmodes: list[PModeView]


class ReloadedView(BaseModel):
    pmodes: int = Field(description="P-Modes that are in force now.")


class PurgedView(BaseModel):
    purged: int = Field(description="Messages that were removed.")


class AliveView(BaseModel):
    status: str = Field(examples=["alive"])


class ReadyView(BaseModel):
    ready: bool
    problems: list[str] = Field(
        description="Why it is not ready, and what to see to while it goes on."
    )


def properties_view(properties: tuple[tuple[str, str, str | None], ...]) -> list[PropertyView]:
    return [PropertyView(name=name, value=value, type=type) for name, value, type in properties]


def part_view(number: int, part: StoredPart) -> PartView:
    return PartView(
        number=number,
        content_id=part.content_id,
        media_type=part.media_type,
        size=part.size,
        sha256=part.sha256,
        compressed=part.compressed,
        properties=properties_view(part.properties),
        file_name=part.file_name,
    )


def message_view(
    message: Message, transfer: Transfer | None = None, no_reply: str | None = None
) -> MessageView:
    shown = None if transfer is None else TransferView(**asdict(transfer))
    return MessageView(**_shown(message) | {"transfer": shown, "no_reply": no_reply})


def submitted_view(message: Message, repeated: bool) -> SubmittedView:
    return SubmittedView(**_shown(message), repeated=repeated)


def _shown(message: Message) -> dict[str, Any]:
    special = {"severity", "properties", "parts", "cursor", "fragments", "transfer", "no_reply"}
    shown = {name: getattr(message, name) for name in MessageView.model_fields.keys() - special}
    reply = message.reply_message_id
    return shown | {
        "message_id": message.wire_id,
        "reply_message_id": None if reply is None else wire_id(reply),
        "severity": _SEVERITIES.get(message.state),
        "properties": properties_view(message.properties),
        "parts": [part_view(number, part) for number, part in enumerate(message.parts, 1)],
        "fragments": message.fragments if message.split is None else message.split.count or None,
        "transfer": None,
        "cursor": str(message.key),
    }


def event_view(recorded: Recorded) -> EventView:
    return EventView(
        node=recorded.node,
        epoch=recorded.epoch,
        seq=recorded.seq,
        **msgspec.structs.asdict(recorded.event),
    )


def signal_view(signal: Signal) -> SignalView:
    return SignalView(
        signal_id=signal.signal_id,
        kind=signal.kind,
        incoming=signal.incoming,
        at=signal.at,
        content_type=signal.content_type,
        size=signal.envelope.size,
        valid=signal.valid,
        error_code=signal.error_code,
        detail=signal.detail,
    )


def notice_view(notice: Notice) -> NoticeView:
    return NoticeView(**msgspec.structs.asdict(notice))


def partner_view(party: Party) -> PartnerView:
    addresses = [AddressView(address=one.name, **_standing(one)) for one in party.addresses]
    return PartnerView(name=party.name, addresses=addresses, **_standing(party))


def _standing(partner: Partner) -> dict[str, Any]:
    names = AddressView.model_fields.keys() - {"address"}
    return {name: getattr(partner, name) for name in names}


def pmode_view(pmode: PModeSummary) -> PModeView:
    return PModeView(**asdict(pmode))


def extent_view(node: str, extent: Extent) -> ExtentView:
    return ExtentView(
        node=node, epoch=extent.epoch, last=str(extent.last), purged=str(extent.purged)
    )
