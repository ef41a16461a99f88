"""The walk out: what the application gave becomes a message that can be sent (Core 5, AS4 5.1).

`package` is the list of steps: `pack` compresses and makes the header, `package_units` writes,
signs and encrypts one unit, or a bundle of several (Part 2, 3.2). Sending itself, and what comes
back, are the node's and `answers`'.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypedDict
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from postroad.agreement.conformity import PartFacts, check_user_message
from postroad.agreement.coverage import (
    encrypted_coverage,
    listed_attachments,
    signed_coverage,
)
from postroad.agreement.matching import Header, Match, header
from postroad.agreement.pmode import Leg
from postroad.msh.compression import gzipped
from postroad.msh.expectation import Material
from postroad.msh.routing_headers import direct_blocks, message_routing
from postroad.msh.securing import encryption, signing, signs, username_tokens
from postroad.security.attachments import Attachment
from postroad.security.encrypt import Seal
from postroad.security.keyestablishment import Entropy
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block
from postroad.wire.content import BytesContent, BytesSink, Content, NewSink
from postroad.wire.ebms3 import (
    COMPRESSION_TYPE,
    GZIP,
    MIME_TYPE,
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Property,
    Reference,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging, write_user_message
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime import (
    OutgoingPart,
    multipart_bytes,
    multipart_content_type,
    multipart_heads,
    multipart_pieces,
)
from postroad.wire.mime_headers import cid_url
from postroad.wire.mime_writer import XOP, multipart_content
from postroad.wire.names import NEXT_MSH, TEST_ACTION, TEST_SERVICE
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import EndpointReference

MESSAGING_ID = "_messaging"
ROOT_ID = "envelope@postroad"
_A_MOMENT = timedelta(milliseconds=1)
_PACKED_ALREADY = (
    "application/gzip",
    "application/zip",
    "application/x-7z-compressed",
    "application/x-xz",
    "application/zstd",
    "audio/",
    "image/jpeg",
    "image/png",
    "image/webp",
    "video/",
)
"""What compression makes no smaller; AS4 3.1 lets the sender leave it."""

Named = tuple[str, str, str | None]
"""Name, value and type of a property."""


class DraftPayload(Struct, frozen=True, gc=False):
    """A payload as the application gave it."""

    content: Content
    sha256: bytes
    media_type: str
    content_id: str
    file_name: str | None = None
    properties: tuple[Named, ...] = ()
    compress: bool | None = None
    """None: as the P-Mode says."""


class Draft(Struct, frozen=True, gc=False):
    """What the application wants to send; what is None is taken from the P-Mode."""

    message_id: str
    conversation_id: str
    payloads: tuple[DraftPayload, ...] = ()
    ref_to_message_id: str | None = None
    service: str | None = None
    action: str | None = None
    properties: tuple[Named, ...] = ()
    test: bool = False
    routed_by: EndpointReference | None = None
    """Of a reply: where its request says that it is routed to."""


class PackedPart(Struct, frozen=True, gc=False):
    """A payload in its signed form, and as the application knows it."""

    payload: DraftPayload
    content: Content
    wire_type: str
    compressed: bool
    properties: tuple[Property, ...]
    sha256: bytes | None = None
    """Of the content, where it is compressed and that is known."""


class PackedUnit(Struct, frozen=True, gc=False):
    """A user message with its payloads in their signed form: to go alone, or in a bundle."""

    user_message: UserMessage
    parts: tuple[PackedPart, ...] = ()
    known: tuple[UserMessage, str] | None = None
    """What was written of which user message."""
    routed_by: EndpointReference | None = None

    @property
    def header(self) -> str:
        """The user message as it is written: once, as long as it is the same."""
        if self.known is not None and self.known[0] is self.user_message:
            return self.known[1]
        return write_user_message(self.user_message)


class Package(Struct, frozen=True):
    """A message ready to be sent, as often as it takes: always the same bytes."""

    user_message: UserMessage
    """The primary unit."""
    version: SoapVersion
    envelope: bytes
    parts: tuple[PackedPart, ...]
    """Of all units, in their order: each has as many as its header has eb:PartInfo."""
    references: tuple[Reference, ...]
    seal: Seal | None
    secondaries: tuple[UserMessage, ...] = ()
    header: str | None = None
    """The primary unit as it was written."""


def user_message(
    draft: Draft, match: Match, parts: Sequence[PartInfo], now: datetime, agreed: Header
) -> UserMessage:
    """The header of a message: what the P-Mode says (`agreed`), and the application's own."""
    service = Service(draft.service, agreed.service.type) if draft.service else agreed.service
    action = draft.action or agreed.action
    if draft.test:
        service, action = Service(TEST_SERVICE), TEST_ACTION
    return UserMessage(
        MessageInfo(now, draft.message_id, draft.ref_to_message_id),
        agreed.from_party,
        agreed.to_party,
        CollaborationInfo(service, action, draft.conversation_id, agreed.agreement_ref),
        tuple([Property(*one) for one in draft.properties]),
        tuple(parts),
        agreed.mpc if match.leg.business_info and match.leg.business_info.mpc else None,
    )


def draft_problems(draft: Draft, match: Match, message: UserMessage) -> list[EbmsError]:
    """In what a draft, and the header made of it, breaks its P-Mode."""
    facts = [
        PartFacts(info.href, one.media_type, one.content.size)
        for info, one in zip(message.part_infos, draft.payloads, strict=True)
    ]
    if match.test is not draft.test:
        match = replace(match, test=draft.test)
    return [*check_user_message(match, message, facts), *_missing_attachments(draft, match)]


def _missing_attachments(draft: Draft, match: Match) -> list[EbmsError]:
    """The attachments that the P-Mode lists to be signed or encrypted, and the draft has not."""
    given = {one.content_id for one in draft.payloads}
    return [
        EbmsError(
            "EBMS:0103",
            f"the P-Mode lists the attachment {name}, and no payload has this content_id",
            location=cid_url(name),
            ref=draft.message_id,
        )
        for name in (() if draft.test else listed_attachments(match.leg))
        if name not in given
    ]


def check_draft(
    draft: Draft, match: Match, now: datetime, agreed: Header | None = None
) -> list[EbmsError]:
    """In what a draft breaks its P-Mode, before it is packaged; ValueError if it cannot be sent."""
    infos = [
        PartInfo(cid_url(one.content_id), (Property(MIME_TYPE, one.media_type),))
        for one in draft.payloads
    ]
    said = agreed or header(match.pmode, match.number)
    message = user_message(draft, match, infos, now, said)
    write_messaging(Messaging((message,), id=MESSAGING_ID), soap_version(match.leg))
    return draft_problems(draft, match, message)


def package(
    draft: Draft,
    match: Match,
    material: Material,
    *,
    now: datetime,
    entropy: Entropy,
    agreed: Header | None = None,
    rides: SignalMessage | None = None,
    headers: Sequence[Block] = (),
    address: str | None = None,
    new_sink: NewSink = BytesSink,
    limits: Limits = DEFAULT,
) -> Package:
    """The message as it goes over the wire. ValueError when keys and algorithms do not fit.

    `agreed` is `header` of the P-Mode's leg, where that is known already; `rides` a signal that
    stands before the message, and `headers` further blocks, all under the same signature. With an
    `address` the message has WS-Addressing headers also where nothing routes it.
    """
    unit = pack(draft, match, now=now, agreed=agreed, new_sink=new_sink)
    signals = () if rides is None else (rides,)
    return package_units(
        (unit,),
        match,
        material,
        now=now,
        entropy=entropy,
        signals=signals,
        headers=headers,
        address=address,
        limits=limits,
    )


def pack(
    draft: Draft,
    match: Match,
    *,
    now: datetime,
    agreed: Header | None = None,
    new_sink: NewSink = BytesSink,
) -> PackedUnit:
    """A unit that was made just now, whenever it will be sent. [P2-3.2.1-07]"""
    parts = tuple([_compress(payload, match.leg, new_sink) for payload in draft.payloads])
    infos = [_part_info(part) for part in parts]
    said = agreed or header(match.pmode, match.number)
    message = user_message(draft, match, infos, now, said)
    known = message, write_user_message(message)
    return PackedUnit(message, parts, known, draft.routed_by)


def package_units(
    units: Sequence[PackedUnit],
    match: Match,
    material: Material,
    *,
    now: datetime,
    entropy: Entropy,
    signals: Sequence[SignalMessage] = (),
    headers: Sequence[Block] = (),
    address: str | None = None,
    bare: bool = False,
    limits: Limits = DEFAULT,
) -> Package:
    """One message of one or more units, the primary first, and of signals that ride along.

    `match` and `material` are the primary's: they rule envelope, signature and encryption of all
    units. Every payload is an attachment. ValueError where units cannot share a message. `bare`:
    nothing is signed or encrypted, since it goes in fragments that are. [P2-4.4.2-05]

    [P2-3.2.1-01] [P2-3.2.1-04] [P2-3.2.1-06] [P2-3.2.2-01] [P2-3.2.2-02] [P2-3.2.2-03]
    """
    leg = match.leg
    version = soap_version(leg)
    messages = tuple([unit.user_message for unit in units])
    parts = units[0].parts
    made = max(now, messages[0].message_info.timestamp)
    if len(units) > 1:
        parts = tuple([part for unit in units for part in unit.parts])
        made = max(now, *(one.message_info.timestamp for one in messages))
        _refuse_twins(messages, parts)
    if len(units) + len(signals) > limits.units:
        raise ValueError(f"a message holds at most {limits.units} units")
    routing = message_routing(match, messages[0], units[0].routed_by)
    role = None
    if routing is None and leg.protocol and leg.protocol.add_actor_or_role_attribute:
        # Where there is routing input, that alone is for intermediaries. [P2-2.4.5-06]
        role = NEXT_MSH
    messaging = Messaging((*signals, *messages), id=MESSAGING_ID, role=role)
    headers_of = [unit.header for unit in units]
    block = write_messaging(messaging, version, written=headers_of)
    blocks = routing.blocks(version) if routing is not None else []
    if routing is None and address:
        blocks = direct_blocks(match, messages[0], address, version)
    secured = secure(
        version,
        [*blocks, *headers, Block(MESSAGING_ID, block)],
        [attachment(part) for part in parts],
        signing=None if bare else signing(leg, material.signing),
        encryption=None if bare else encryption(leg, material),
        entropy=entropy,
        lifetime=secured_at(made) if signs(leg) and not bare else None,
        tokens=() if bare else username_tokens(leg, now, entropy),
        signed=signed_coverage(leg),
        encrypted=encrypted_coverage(leg),
        limits=limits,
    )
    return Package(
        messages[0],
        version,
        secured.envelope,
        parts,
        secured.references,
        secured.seal,
        messages[1:],
        headers_of[0],
    )


def _refuse_twins(messages: Sequence[UserMessage], parts: Sequence[PackedPart]) -> None:
    ids = [one.message_info.message_id for one in messages]
    names = [one.payload.content_id for one in parts]
    for what, values in (("MessageId", ids), ("Content-ID", names)):
        twin = next((one for one, count in Counter(values).items() if count > 1), None)
        if twin is not None:
            raise ValueError(f"two units of the bundle have the {what} {twin!r}")


def secured_at(made: datetime) -> Lifetime:
    """A message is secured after its units were made, and says so. [P2-3.2.1-09]"""
    return Lifetime(made + _A_MOMENT)


def _compress(payload: DraftPayload, leg: Leg, new_sink: NewSink) -> PackedPart:
    """AS4 compression, where the P-Mode asks for it and it makes sense (AS4 3.1)."""
    agreed = leg.payload_service.compression_type if leg.payload_service else None
    wanted = payload.compress
    if wanted is None:
        wanted = not payload.media_type.startswith(_PACKED_ALREADY)
    properties = [Property(*one) for one in payload.properties if one[0] not in _OURS]
    properties.append(Property(MIME_TYPE, payload.media_type))
    if not (agreed and wanted):
        return PackedPart(payload, payload.content, payload.media_type, False, tuple(properties))
    packed = gzipped(payload.content, new_sink=new_sink)
    properties.append(Property(COMPRESSION_TYPE, GZIP))
    return PackedPart(payload, packed.content, GZIP, True, tuple(properties), packed.sha256)


_OURS = frozenset((MIME_TYPE, COMPRESSION_TYPE))


def _part_info(part: PackedPart) -> PartInfo:
    return PartInfo(cid_url(part.payload.content_id), part.properties)


def attachment(part: PackedPart) -> Attachment:
    """A payload as it is signed."""
    known = part.sha256 if part.compressed else part.payload.sha256
    return Attachment(part.payload.content_id, part.content, part.wire_type, known)


def soap_version(leg: Leg) -> SoapVersion:
    agreed = leg.protocol.soap_version if leg.protocol else None
    return SoapVersion.SOAP_11 if agreed == "1.1" else SoapVersion.SOAP_12


class WirePart(Struct, frozen=True, gc=False):
    """An attachment as it is sent."""

    content_id: str
    media_type: str
    content: Content
    file_name: str | None = None


class WireForm(Struct, frozen=True):
    """A message as it goes over the wire: its Content-Type, its length, and its bytes in pieces."""

    content_type: str
    envelope: bytes
    parts: tuple[OutgoingPart, ...]
    boundary: str | None
    media_type: str
    root_id: str = ROOT_ID
    start_info: str | None = None
    """In a package of MTOM: the media type of the SOAP version."""

    heads: tuple[bytes, ...] = ()
    """What stands before each part of the package, and after the last."""
    length: int = 0

    def pieces(self) -> Iterator[bytes]:
        if self.boundary is None:
            return iter((self.envelope,))
        return multipart_pieces(self.heads, self.envelope, self.parts)

    def whole(self) -> bytes:
        """The same in one piece, where it is small."""
        if self.boundary is None:
            return self.envelope
        return multipart_bytes(self.heads, self.envelope, self.parts)

    def content(self) -> Content:
        """The same bytes, to be read from their middle too."""
        if self.boundary is None:
            return BytesContent(self.envelope)
        return multipart_content(self.envelope, self.parts, **self._frame())

    def _frame(self) -> "_Frame":
        assert self.boundary is not None
        return {
            "boundary": self.boundary,
            "root_id": self.root_id,
            "root_type": self.media_type,
            "start_info": self.start_info,
        }


class _Frame(TypedDict):
    boundary: str
    root_id: str
    root_type: str
    start_info: str | None


def wire_form(
    version: SoapVersion,
    envelope: bytes,
    parts: Sequence[WirePart],
    boundary: str | None,
    *,
    root_id: str = ROOT_ID,
    mtom: bool = False,
) -> WireForm:
    """How an envelope travels: alone, or first in a multipart with its attachments (Core 5.1)."""
    if boundary is None:
        kind = f"{version.media_type}; charset=UTF-8"
        size = len(envelope)
        return WireForm(kind, envelope, (), None, version.media_type, length=size)
    media_type, start_info = (XOP, version.media_type) if mtom else (version.media_type, None)
    kind = multipart_content_type(
        boundary=boundary, root_id=root_id, root_type=media_type, start_info=start_info
    )
    outgoing = tuple(
        [
            OutgoingPart(one.content_id, one.media_type, one.content, _disposition(one.file_name))
            for one in parts
        ]
    )
    heads = multipart_heads(
        outgoing, boundary=boundary, root_id=root_id, root_type=media_type, start_info=start_info
    )
    contents = sum([part.content.size for part in outgoing])
    length = len(envelope) + contents + sum(map(len, heads))
    return WireForm(
        kind, envelope, outgoing, boundary, media_type, root_id, start_info, heads, length
    )


def _disposition(file_name: str | None) -> tuple[tuple[str, str], ...]:
    """Content-Disposition, with what cannot stand in a quoted string in the form of RFC 5987."""
    if file_name is None:
        return ()
    plain = "".join(
        c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in file_name
    )
    value = f'attachment; filename="{plain}"'
    if plain != file_name:
        value += f"; filename*=UTF-8''{quote(file_name, safe='')}"
    return (("Content-Disposition", value),)
