"""Large messages of the buyer's, cut into fragments by a test, which brings them to the seller."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from postroad.msh.compression import compressed
from postroad.msh.outbound import Draft, DraftPayload, WirePart, pack, secured_at, wire_form
from postroad.msh.securing import encryption, signing, signs
from postroad.msh.splitting import (
    Fragment,
    Splitting,
    Whole,
    fragment,
    fragment_count,
    mime_head,
    split,
)
from postroad.node.base.requests import Response
from postroad.security.secure import secure
from postroad.security.sign import Block
from postroad.store.records import Message, Side
from postroad.wire.content import BytesContent, BytesSink, Content
from postroad.wire.ebms3 import Error, Messaging, SignalMessage, UserMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.fragments import MessageFragment, write_message_fragment
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from tests.node.collecting import said
from tests.node.reliable import BUYER, ORDERS, SELLER, Posted, Station, World

SOURCE: Final = "source@buyer.example"
GROUP: Final = "group-1"
DRAWING: Final = bytes(range(256)) * 40
"""Ten KiB."""


def agree_on_splitting(
    world: World, name: str = ORDERS, *, to: str = SELLER, signed: bool = False, **splitting: Any
) -> None:
    """Messages of a P-Mode may be split; `splitting` are the parameters of that."""
    world.agree(name, to=to, receipt="callback", signed=signed)
    for at in (BUYER, to):
        leg = world._pmodes[at][-1]["legs"][0]
        leg["splitting"] = {"fragment_size": "4 KiB", "join_interval": "PT1H"} | splitting


Change = Callable[[MessageFragment], MessageFragment]


class Large(Struct, frozen=True):
    """A message with all that its fragments are made of."""

    station: Station
    pmode: str
    splitting: Splitting
    data: Content
    whole: Whole
    body: bytes
    """Of the source, as it would travel whole."""

    @property
    def count(self) -> int:
        return fragment_count(self.whole.size, self.splitting.fragment_size)

    def piece(self, number: int, message_id: str | None = None) -> Fragment:
        name = message_id or f"{number}.{self.splitting.group_id}@buyer.example"
        return fragment(self.splitting, number, name, self.data, self.whole)

    def fragment(
        self,
        number: int,
        message_id: str | None = None,
        *,
        change: Change | None = None,
        data: bytes | None = None,
        parts: Sequence[WirePart] = (),
        body: str = "",
        header: Callable[[UserMessage], UserMessage] | None = None,
        signed: bool = True,
    ) -> tuple[str, bytes]:
        """A fragment as it travels; a test may change what its header says, or its data."""
        piece, version = self.piece(number, message_id), self.splitting.version
        if change is not None or header is not None:
            piece = self._changed(piece, change, header)
        if data is not None:
            piece = replace(piece, data=BytesContent(data))
        context = self.station.node.context
        sending = context.in_force.sending(self.pmode)
        leg, material, now = sending.match.leg, sending.material, context.clock()
        secured = secure(
            version,
            piece.blocks,
            [piece.attachment],
            signing=signing(leg, material.signing) if signed else None,
            encryption=encryption(leg, material),
            entropy=context.entropy,
            lifetime=secured_at(now) if signs(leg) and signed else None,
        )
        envelope = secured.envelope.replace(b"></S12:Body>", f">{body}</S12:Body>".encode())
        sent = WirePart(piece.data_id, piece.attachment.media_type, piece.data)
        form = wire_form(
            version,
            envelope,
            [sent, *parts],
            f"boundary-{number}",
            root_id=piece.root_id,
            mtom=self.splitting.mtom,
        )
        return form.content_type, b"".join(form.pieces())

    def _changed(
        self,
        piece: Fragment,
        change: Change | None,
        header: Callable[[UserMessage], UserMessage] | None,
    ) -> Fragment:
        message, said = piece.user_message, piece.message_fragment
        message = message if header is None else header(message)
        said = said if change is None else change(said)
        version = self.splitting.version
        messaging = replace(self.splitting.messaging, units=(message,))
        blocks = (
            Block("_messaging", write_messaging(messaging, version)),
            Block("_fragment", write_message_fragment(said, version)),
        )
        return replace(piece, blocks=blocks)


def large(
    station: Station,
    *payloads: bytes,
    message_id: str = SOURCE,
    group_id: str = GROUP,
    size: int = 4096,
    pmode: str = ORDERS,
    properties: tuple[tuple[str, str, str | None], ...] = (),
    others: Sequence[Draft] = (),
    version: SoapVersion = SoapVersion.SOAP_12,
    mtom: bool = False,
    **more: Any,
) -> Large:
    """A message of the buyer's, to be split; `others` are further units of it."""
    context = station.node.context
    sending = context.in_force.sending(pmode)
    contents = payloads or (DRAWING,)
    draft = Draft(message_id, "conversation-1", drafts(message_id, *contents), None, None, None)
    draft = replace(draft, properties=properties)
    now = context.clock()
    units = [pack(one, sending.match, now=now) for one in (draft, *others)]
    messaging = Messaging(tuple(one.user_message for one in units), id="_messaging")
    block = write_messaging(messaging, version)
    envelope = write_envelope(version, [block], write_body(version))
    parts = [
        WirePart(part.payload.content_id, part.wire_type, part.content)
        for unit in units
        for part in unit.parts
    ]
    root = "root@buyer.example"
    form = wire_form(version, envelope, parts, "source-boundary", root_id=root, mtom=mtom)
    head = mime_head({"content-type": form.content_type})
    terms = {"group_id": group_id, "fragment_size": size} | more
    splitting = split(messaging, head, version, **terms)
    body = form.content()
    data: Content = body
    if splitting.algorithm is not None:
        data = compressed(splitting.algorithm, body, new_sink=BytesSink)
    whole = Whole(data.size, body.size)
    return Large(station, pmode, splitting, data, whole, b"".join(body.chunks()))


def holding(given: Large, *changes: tuple[str, str]) -> Large:
    """A message whose body says something else, once it is joined."""
    body = given.body
    for old, new in changes:
        assert old.encode() in body
        body = body.replace(old.encode(), new.encode())
    whole = Whole(len(body), len(body))
    return replace(given, data=BytesContent(body), whole=whole, body=body)


def drafts(message_id: str, *contents: bytes) -> tuple[DraftPayload, ...]:
    return tuple(
        DraftPayload(
            BytesContent(one),
            hashlib.sha256(one).digest(),
            "application/octet-stream",
            f"{number}.{message_id}",
            compress=False,
        )
        for number, one in enumerate(contents, 1)
    )


async def bring(seller: Station, given: Large, *numbers: int) -> None:
    """Fragments come to the seller, in this order; without numbers all of them."""
    for number in numbers or range(1, given.count + 1):
        response = await seller.receive(*given.fragment(number))
        assert silent(response), response.body


def silent(response: Response) -> bool:
    """Whether nothing is said on the response."""
    return (response.status, response.body) == (202, b"")


def signals(world: World, about: str | None = None) -> list[SignalMessage]:
    """What the seller told the buyer, by calls of its own."""
    found = []
    for one in world.wire.to(BUYER):
        found += [
            signal
            for signal in said(_response(one)).signals
            if about in (None, signal.message_info.ref_to_message_id)
        ]
    return found


def _response(posted: Posted) -> Response:
    return Response(200, posted.content_type, posted.body)


def errors(world: World, about: str | None = None) -> list[str]:
    return [one.error_code for one in told(world, about)]


def told(world: World, about: str | None = None) -> list[Error]:
    return [one for signal in signals(world, about) for one in signal.errors]


def receipts(world: World, about: str | None = None) -> list[SignalMessage]:
    return [one for one in signals(world, about) if one.receipt is not None]


async def payloads(seller: Station, message_id: str = SOURCE) -> list[bytes]:
    message: Message = await seller.message(message_id, Side.RECEIVING)
    return [b"".join(seller.node.part(message, part).chunks()) for part in message.parts]


def saying(**fields: Any) -> Change:
    """The same header with other values."""
    return lambda said: dataclasses.replace(said, **fields)
