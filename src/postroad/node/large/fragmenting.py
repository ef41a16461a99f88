"""Fragments as messages: each is made of its source when it is first sent.

A fragment is signed and encrypted then, not before: its digest takes a read of its data, which is
at hand when it is sent right after that. What was made is durable before a byte of it leaves, so
that it is sent again with the same bytes. Its data is never copied: it is a slice of the source.
"""

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from postroad.agreement.coverage import encrypted_coverage, signed_coverage
from postroad.msh.outbound import WireForm, WirePart, secured_at, wire_form
from postroad.msh.routing_headers import direct_blocks
from postroad.msh.securing import encryption, signing, signs, username_tokens
from postroad.msh.splitting import DATA_TYPE, Fragment, Splitting, Whole, fragment, mime_head, split
from postroad.msh.wsrm import sequence_blocks
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Sending
from postroad.node.steps.split_units import are_all, at_work, split_units
from postroad.node.steps.wsrm_states import Numbered, packed
from postroad.security.encrypt import Seal
from postroad.security.secure import secure
from postroad.security.sign import Block
from postroad.store.fragments import compressed_form
from postroad.store.gathered import Unopened
from postroad.store.interface import Store, StoreDamaged, Transaction
from postroad.store.records import Message, Side
from postroad.wire import xml
from postroad.wire.codings import Coded
from postroad.wire.content import Content, Joined, read_all
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.limits import Limits
from postroad.wire.multihop import find_routing_input, read_routing_input
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.wsa import read_addressing
from postroad.wire.wsrm import Sequence as RmSequence

_KNOWN: Final = 32
"""Sources that are remembered: who sends many fragments reads the header of each once."""
Units = tuple[Message, ...]
"""A message that goes in fragments; of a bundle all units, the primary first."""
_VERSIONS: Final = {version.number: version for version in SoapVersion}


class Source(Struct, frozen=True):
    """A message that goes in fragments, with all that these are made of."""

    splitting: Splitting
    data: Content
    """What is cut."""
    whole: Whole | None
    """None as long as more of it comes."""

    def piece(self, message: Message) -> Fragment:
        """A fragment, always the same for the same message."""
        assert message.fragment is not None
        number, name = message.fragment, message.message_id
        return fragment(self.splitting, number, name, self.data, self.whole)


class Fragmenting:
    """Makes the fragments of a node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: OrderedDict[tuple[str, str, Coded | None], Source] = OrderedDict()
        self._begun: dict[str, asyncio.Task[SecuredFragment | None]] = {}
        """Fragments that are made before their turn comes."""

    def begin(self, message: Message, sending: Sending) -> "asyncio.Task[Any] | None":
        """Sign a fragment before there is a place for it; None: that was done, or begun.

        Nothing of it is kept, so that what is durable is still what may have left.
        """
        if message.envelope is not None or message.message_id in self._begun:
            return None
        task = asyncio.create_task(self._made_ahead(message, sending))
        self._begun[message.message_id] = task
        return task

    async def _made_ahead(self, message: Message, sending: Sending) -> "SecuredFragment | None":
        """None where it cannot be made: its turn tells why."""
        name = message.part_of or ""
        try:
            units = await self._context.store.look(lambda reader: split_units(reader, name))
            if at_work(units):
                return await self._made(self.source(units, sending), message, sending)
        except Exception:
            pass
        return None

    def forget(self, message_id: str) -> None:
        """The turn of a fragment is over."""
        self._begun.pop(message_id, None)

    async def ready(
        self, message: Message, sending: Sending, place: Numbered | None = None
    ) -> tuple[Units, Message] | None:
        """The source and the fragment, its envelope durable; None: it is not to be sent any more.

        `place` is its new number in a sequence. `StoreError` when the source cannot be read.
        """
        context, name = self._context, message.part_of or ""
        units = await context.store.look(lambda reader: split_units(reader, name))
        if not at_work(units):
            return None
        source = self.source(units, sending)
        if message.envelope is not None and place is None:
            return units, message
        begun = self._begun.get(message.message_id)
        ahead = await begun if begun is not None and place is None else None
        made = ahead or await self._made(source, message, sending, place)

        def step(tx: Transaction) -> Message | None:
            if not tx.change_message(
                Side.SENDING, message.message_id, (message.state,), **made.fields(tx)
            ):
                return None
            if message.envelope is not None:
                tx.drop(message.envelope)
            if place is not None:
                packed(tx, message.message_id, place, context.clock())
            return tx.message(Side.SENDING, message.message_id)

        made_ready = await context.store.run(step)
        return None if made_ready is None else (units, made_ready)

    async def _made(
        self, source: Source, message: Message, sending: Sending, place: Numbered | None = None
    ) -> "SecuredFragment":
        context = self._context
        args = (context, source, message, sending, context.clock(), place)
        return await asyncio.to_thread(secured, *args)

    def source(self, units: Units, sending: Sending) -> Source:
        """What the fragments of a message, or of the units of a bundle, are made of."""
        whole = units[0]
        assert whole.split is not None
        # What is still compressed grows, and is known anew each time.
        key = (whole.message_id, whole.split.group_id, whole.split.coded)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = source_of(self._context, units, sending)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known

    def form(self, units: Units, message: Message, sending: Sending) -> WireForm:
        """A fragment as it goes over the wire: the same bytes each time."""
        assert message.envelope is not None
        source = self.source(units, sending)
        piece = source.piece(message)
        contents: tuple[Content, ...] = (piece.data,)
        if message.seal is not None:
            contents = message.seal.on(contents)
        store, stored = self._context.store, message.envelope
        return wire_form(
            _VERSIONS[message.soap],
            read_all(store.content(stored), stored.size),
            [WirePart(piece.data_id, DATA_TYPE, one) for one in contents],
            message.boundary,
            root_id=piece.root_id,
            mtom=source.splitting.mtom,
        )


def source_of(context: Context, units: Units, sending: Sending) -> Source:
    """A message that is split, from what is kept of it; `StoreDamaged` when a unit is gone."""
    if not are_all(units):
        raise StoreDamaged("a message of its bundle was removed since")
    whole = units[0]
    cut = whole.split
    assert cut is not None
    form = whole_form(context, units)
    parsed = read_envelope(xml.parse(form.envelope, context.limits))
    # Of a reply these may be what its request asked for: they are copied. [P2-4.4.1-01]
    addressing, _ = read_addressing(parsed)
    routed = find_routing_input(parsed)
    terms = sending.splitting
    return Source(
        split(
            messaging_of(parsed, context.limits),
            mime_head({"content-type": form.content_type}),
            _VERSIONS[whole.soap],
            group_id=cut.group_id,
            fragment_size=cut.fragment_size,
            routing_properties=terms.routing_properties if terms is not None else frozenset(),
            algorithm=cut.algorithm,
            addressing=addressing,
            routing=None if routed is None else read_routing_input(routed)[0],
            streamed=cut.streamed,
            message_size=cut.message_size if cut.streamed else None,
        ),
        form.content() if cut.algorithm is None else _compressed(context.store, whole),
        Whole(cut.size, cut.message_size) if cut.coded is None else None,
    )


def _compressed(store: Store, whole: Message) -> Content:
    return Joined([Unopened(store.content, one) for one in compressed_form(whole)])


def whole_form(context: Context, units: Units) -> WireForm:
    """A message as it would go whole: what is cut, or compressed first."""
    whole, store = units[0], context.store
    assert whole.envelope is not None
    envelope = read_all(store.content(whole.envelope), whole.envelope.size)
    parts = [
        WirePart(one.content_id or "", one.wire_type, store.content(one.stored), one.file_name)
        for unit in units
        for one in unit.parts
    ]
    return wire_form(_VERSIONS[whole.soap], envelope, parts, whole.boundary)


def messaging_of(envelope: Envelope, limits: Limits) -> Messaging:
    """The eb:Messaging of an envelope that was kept."""
    element = find_messaging(envelope)
    reading = read_messaging(element, envelope.version, limits) if element is not None else None
    if reading is None or reading.messaging is None:
        raise ValueError("the envelope that was kept holds no eb:Messaging")
    return reading.messaging


def _numbered(
    source: Source, message: Message, sending: Sending, place: Numbered | None
) -> list[Block]:
    """The headers of a fragment in a sequence, as any message there has them."""
    if place is None:
        return []
    splitting, version = source.splitting, source.splitting.version
    blocks = sequence_blocks(RmSequence(place.identifier, place.number), version)
    if splitting.routing is not None:
        return blocks
    like = splitting.messaging.user_messages[0]
    info = replace(like.message_info, message_id=message.message_id)
    own = replace(like, message_info=info)
    return [*direct_blocks(sending.match, own, sending.address, version), *blocks]


class SecuredFragment(Struct, frozen=True):
    """What is kept of a fragment beside its source."""

    envelope: bytes
    boundary: str
    seal: Seal | None

    def fields(self, tx: Transaction) -> dict[str, Any]:
        """The fields of its message, once the envelope is kept."""
        return {
            "envelope": tx.keep(self.envelope),
            "boundary": self.boundary,
            "seal": self.seal,
        }


def secured(
    context: Context,
    source: Source,
    message: Message,
    sending: Sending,
    now: datetime,
    place: Numbered | None = None,
) -> SecuredFragment:
    """A fragment signed and encrypted as its P-Mode says: its data is read once.

    `place` is its number in a sequence, of which it is a message of its own. [P2-4.4.2-05]
    """
    piece = source.piece(message)
    leg, material = sending.match.leg, sending.material
    made = secure(
        source.splitting.version,
        [*_numbered(source, message, sending, place), *piece.blocks],
        [piece.attachment],
        signing=signing(leg, material.signing),
        encryption=encryption(leg, material),
        entropy=context.entropy,
        lifetime=secured_at(now) if signs(leg) else None,
        tokens=username_tokens(leg, now, context.entropy),
        signed=signed_coverage(leg),
        encrypted=encrypted_coverage(leg),
        limits=context.limits,
    )
    boundary = context.long_boundary()
    return SecuredFragment(made.envelope, boundary, made.seal)
