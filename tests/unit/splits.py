"""Large messages for tests: a source of any size and kind, and its fragments as they travel."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from postroad.msh.capture import Capture, Incoming
from postroad.msh.compression import compressed
from postroad.msh.fragment_group import Arrival, Group, Terms, sender_of
from postroad.msh.joining import Decision, Verdict, receive
from postroad.msh.outbound import WireForm, WirePart, wire_form
from postroad.msh.splitting import (
    Fragment,
    Splitting,
    Whole,
    fragment,
    fragment_count,
    mime_head,
    split,
)
from postroad.security.secure import secure
from postroad.wire.content import BytesContent, BytesSink, Content, Joined
from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    Service,
    Unit,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.soap import SoapVersion, write_body, write_envelope

MADE = datetime(2026, 5, 19, 10, 0, tzinfo=UTC)
MESSAGE = UserMessage(
    MessageInfo(MADE, "source@buyer.example", "before@seller.example"),
    Party((PartyId("buyer", "urn:example"),), "Buyer"),
    Party((PartyId("seller", "urn:example"),), "Seller"),
    CollaborationInfo(
        Service("Leasing", "urn:services"), "Offer", "conversation-1", AgreementRef("urn:agreement")
    ),
    (Property("region", "north"), Property("secret", "x"), Property("lane", "7", "string")),
    (PartInfo("cid:photo@buyer.example"),),
    "urn:example:large",
)
ROUTING = frozenset(("region", "lane"))


class Source(Struct, frozen=True):
    """A message before it is split: how it would travel whole."""

    form: WireForm
    version: SoapVersion
    messaging: Messaging

    @property
    def body(self) -> Content:
        return self.form.content()

    @property
    def bytes(self) -> bytes:
        return b"".join(self.form.pieces())


def source(
    photo: bytes = b"TIFF" * 100,
    *,
    version: SoapVersion = SoapVersion.SOAP_12,
    mtom: bool = False,
    units: Sequence[Unit] = (MESSAGE,),
) -> Source:
    messaging = Messaging(tuple(units), id="_messaging")
    block = write_messaging(messaging, version, keep_order=True)
    envelope = write_envelope(version, [block], write_body(version))
    part = WirePart("photo@buyer.example", "image/tiff", BytesContent(photo))
    form = wire_form(
        version, envelope, [part], "source-boundary", root_id="source@buyer.example", mtom=mtom
    )
    return Source(form, version, messaging)


class Cut(Struct, frozen=True):
    """A source with all that its fragments are made of."""

    splitting: Splitting
    data: Content
    whole: Whole

    @property
    def count(self) -> int:
        return fragment_count(self.whole.size, self.splitting.fragment_size)

    def fragment(self, number: int, message_id: str | None = None) -> Fragment:
        name = message_id or f"fragment-{number}@buyer.example"
        return fragment(self.splitting, number, name, self.data, self.whole)

    def fragments(self) -> list[Fragment]:
        return [self.fragment(number) for number in range(1, self.count + 1)]

    def form(self, piece: Fragment) -> WireForm:
        """A fragment as it travels, unsigned."""
        version = self.splitting.version
        secured = secure(version, piece.blocks, [piece.attachment])
        parts = [WirePart(piece.data_id, piece.attachment.media_type, piece.data)]
        return wire_form(
            version,
            secured.envelope,
            parts,
            f"boundary-{piece.number}",
            root_id=piece.root_id,
            mtom=self.splitting.mtom,
        )


def cut(given: Source | None = None, size: int = 300, **more: Any) -> Cut:
    made = given or source()
    head = mime_head({"content-type": made.form.content_type, "soapaction": '"leasing"'})
    terms = {"group_id": "group-1", "fragment_size": size, "routing_properties": ROUTING} | more
    splitting = split(made.messaging, head, made.version, **terms)
    data = made.body
    if splitting.algorithm is not None:
        data = compressed(splitting.algorithm, data, new_sink=BytesSink)
    return Cut(splitting, data, Whole(data.size, made.body.size))


def captured(form: WireForm) -> Capture:
    incoming = Incoming(form.content_type, new_sink=BytesSink)
    for piece in form.pieces():
        incoming.feed(piece)
    return incoming.close()


def arrival(piece: Fragment, version: SoapVersion = SoapVersion.SOAP_12) -> Arrival:
    """A fragment as it comes out of the look at it."""
    return Arrival(piece.user_message, piece.message_fragment, version.number, piece.data.size)


class Receiver:
    """The node around the pure part: what it keeps of groups, and where their data lies."""

    def __init__(self, terms: Terms, room: int | None = None) -> None:
        self.terms = terms
        self.room = room
        self.now = MADE
        self.groups: dict[tuple[str, str], Group] = {}
        self.there: dict[tuple[str, str], dict[int, tuple[str, Content]]] = {}

    def take(self, came: Arrival, data: Content) -> Verdict:
        key = (sender_of(came.message), came.fragment.group_id)
        there = self.there.setdefault(key, {})
        earlier, _ = there.get(came.fragment.fragment_num, (None, None))
        verdict = receive(
            self.groups.get(key), came, earlier, now=self.now, terms=self.terms, room=self.room
        )
        self.groups[key] = verdict.group
        if verdict.decision is Decision.STORE:
            there[came.fragment.fragment_num] = (came.message_id, data)
        if verdict.erases:
            there.clear()
        return verdict

    def data(self, group: Group) -> Content:
        there = self.there[group.key]
        return Joined([there[number][1] for number in sorted(there)])
