"""Units of bundles: packed, packaged together, and as the planner sees them."""

import asyncio
from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace as changed

from postroad.agreement.bundling import UNDEFINED
from postroad.msh.bundling import Waiting
from postroad.msh.outbound import (
    Draft,
    DraftPayload,
    Package,
    PackedPart,
    PackedUnit,
    WirePart,
    pack,
    package_units,
    soap_version,
    wire_form,
)
from postroad.msh.sizing import added_size
from postroad.msh.wsrm import sequence_blocks
from postroad.node.base.context import Context
from postroad.node.large.splitting import Cut, cut_units, may_be_cut
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.node.steps.notifying import order_of
from postroad.node.wsrm.source import key_of
from postroad.store.records import Message
from postroad.wire.ebms3 import Property, UserMessage
from postroad.wire.ebms3_writer import write_user_message
from postroad.wire.unit_paths import unit_values, written_unit
from postroad.wire.wsrm import MOST_NUMBER
from postroad.wire.wsrm import Sequence as RmSequence

LONELY: Final = "it is to be bundled, and nobody came to go with it in time"
_ASIDE: Final = 1 << 20
"""Bytes above which units are packed beside the loop."""
_PART_HEADERS: Final = 512
"""So much may stand around a payload in the MIME package."""
_SOME_NUMBER: Final = RmSequence("urn:uuid:" + 100 * "0", MOST_NUMBER)
"""As long as identifier and number of a sequence may be, or longer."""
_BOUNDARY: Final = "=_" + 30 * "0"


async def packed_unit(
    context: Context, draft: Draft, sending: Sending, now: datetime
) -> PackedUnit:
    """A draft as a unit with its payloads in their signed form; `Refused` when it cannot be."""

    def make() -> PackedUnit:
        sink = context.store.new_sink
        return pack(draft, sending.match, now=now, agreed=sending.agreed, new_sink=sink)

    try:
        if sum([one.content.size for one in draft.payloads]) <= _ASIDE:
            return make()
        unit = await asyncio.to_thread(make)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    parts = [changed(one, content=await context.store.persist(one.content)) for one in unit.parts]
    return changed(unit, parts=tuple(parts))


async def packaged_or_cut(
    context: Context, units: Sequence[PackedUnit], primary: Sending, *, made_here: bool
) -> Package | Cut:
    """Units in one message, by the P-Mode of the first; cut where it is larger than a fragment.

    `made_here`: nobody else knows the id of the first. [P2-4.4.2-01]
    """
    if primary.splitting is not None and may_be_cut(primary, _about(units)):
        args = (context, tuple(units), primary, context.clock(), made_here)
        cut = await asyncio.to_thread(cut_units, *args)
        if cut is not None:
            return await cut.persisted(context.store)
    return await packaged(context, units, primary)


def _about(units: Sequence[PackedUnit]) -> int:
    """How large units are in a message, or a little less."""
    around = sum(len(one.header) + len(one.parts) * _PART_HEADERS for one in units)
    return around + sum(part.content.size for one in units for part in one.parts)


async def packaged(context: Context, units: Sequence[PackedUnit], primary: Sending) -> Package:
    """Units in one message, by the P-Mode of the first; beside the loop where they are large."""
    if sum(part.content.size for one in units for part in one.parts) <= _ASIDE:
        return package_at_once(context, units, primary)
    return await asyncio.to_thread(package_at_once, context, units, primary)


def package_at_once(context: Context, units: Sequence[PackedUnit], primary: Sending) -> Package:
    """The same on the spot.

    Where bundles go in sequences its number is not known yet, and something as long stands there:
    it is packaged again when it is.
    """
    numbered = primary.reliable is not None
    version = soap_version(primary.match.leg)
    return package_units(
        units,
        primary.match,
        primary.material,
        now=context.clock(),
        entropy=context.entropy,
        headers=sequence_blocks(_SOME_NUMBER, version) if numbered else (),
        address=primary.address if numbered else None,
        limits=context.limits,
    )


def whole_size(made: Package | Cut) -> int:
    """How large a message is as it is sent, envelope and attachments; or before it is cut."""
    if isinstance(made, Cut):
        return made.split.message_size
    contents = [part.content for part in made.parts]
    if made.seal is not None:
        contents = list(made.seal.on(contents))
    parts = [
        WirePart(part.payload.content_id, part.wire_type, content, part.payload.file_name)
        for part, content in zip(made.parts, contents, strict=True)
    ]
    return wire_form(made.version, made.envelope, parts, _BOUNDARY).length


def waiting_unit(message: Message, packed: PackedUnit, sending: Sending, rest: int) -> Waiting:
    """A unit as the planner sees it."""
    return Waiting(
        message.message_id,
        sending.match.pmode.id,
        message.partner,
        packed.user_message.message_info.timestamp,
        added_size(packed, sending.match.leg),
        rest,
        series_of(message, packed, sending),
        tuple([part.payload.content_id for part in packed.parts]),
        sequence_of(packed, sending) if _keeps_sequence(sending) else None,
    )


def sequence_of(packed: PackedUnit, sending: Sending) -> str:
    """What the units that go in one sequence of WS-ReliableMessaging have in common."""
    return key_of(sending, packed.user_message)


def _keeps_sequence(sending: Sending) -> bool:
    """Whether units go in the sequence of their own P-Mode, also in a bundle."""
    return sending.reliable is not None and sending.reliable.in_order


def may_share_number(
    unit: PackedUnit, sending: Sending, primary: PackedUnit, leading: Sending
) -> bool:
    """Whether a unit may be in the envelope of a primary, as far as sequences are concerned.

    [P2-3.6.3-04]
    """
    if not _keeps_sequence(sending):
        return True
    return leading.reliable is not None and sequence_of(unit, sending) == sequence_of(
        primary, leading
    )


def series_of(message: Message, packed: PackedUnit, sending: Sending) -> Hashable | None:
    """With whom a unit keeps its order; None: with nobody."""
    if sending.in_order is not None:
        return order_of(message, sending.in_order)
    if _keeps_sequence(sending):
        return sequence_of(packed, sending)
    terms = sending.bundling
    if terms is None or terms.ordering == UNDEFINED:
        return None
    return unit_values([written_unit(packed.user_message)], terms.scope)[0]


def restored(context: Context, message: Message, user_message: UserMessage) -> PackedUnit:
    """The unit as it was packed when it was submitted."""
    parts = []
    for part in message.parts:
        payload = DraftPayload(
            context.store.content(part.stored),
            bytes.fromhex(part.sha256),
            part.media_type,
            part.content_id or "",
            part.file_name,
        )
        named = tuple(Property(*one) for one in part.properties)
        content = payload.content
        parts.append(PackedPart(payload, content, part.wire_type, part.compressed, named))
    known = (user_message, write_user_message(user_message))
    return PackedUnit(user_message, tuple(parts), known)
