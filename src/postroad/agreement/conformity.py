"""Whether a user message keeps to the P-Mode that it matched: properties, payloads, envelope."""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from msgspec import Struct

from postroad.agreement.matching import LOCATION, Match
from postroad.agreement.pmode import BusinessInfo, PayloadDefinition, PayloadProfile, Protocol
from postroad.agreement.values import PROPERTY_TYPES, format_size
from postroad.wire.ebms3 import COMPRESSION_TYPE, MIME_TYPE, PartInfo, UserMessage
from postroad.wire.errors import EbmsError

Said = tuple[str, str]
"""Where, and what is wrong there."""


class PartFacts(Struct, frozen=True):
    """What is known of a payload: its reference in the header, its type and its size."""

    href: str | None
    mime_type: str | None = None
    """The type before compression."""
    size: int | None = None
    """The size before compression, in bytes."""


def check_user_message(
    match: Match,
    message: UserMessage,
    parts: Sequence[PartFacts] = (),
    *,
    soap_version: str | None = None,
    for_next_msh: bool | None = None,
    fragment: bool = False,
) -> list[EbmsError]:
    """All that in a message breaks its P-Mode; what is not told about it is not checked.

    `for_next_msh` says whether eb:Messaging has the role or actor of the next MSH. A `fragment`
    has no payloads of its own, and only the properties by which it is routed.
    """
    info, protocol = match.leg.business_info, match.leg.protocol
    found: list[Said] = []
    if protocol is not None:
        found += _envelope(protocol, soap_version, for_next_msh)
    if info is not None and not match.test and not fragment:
        found += _properties(info, message)
        found += _payloads(info.payload_profile, message, parts)
    for part in message.part_infos:
        if part.properties:
            found += _compression(match, part)
    return [
        EbmsError("EBMS:0010", said, location=place, ref=message.message_info.message_id)
        for place, said in found
    ]


def _envelope(
    protocol: Protocol, soap_version: str | None, for_next_msh: bool | None
) -> Iterator[Said]:
    agreed = protocol.soap_version
    if soap_version and agreed and soap_version != agreed:
        yield "soap:Envelope", f"SOAP {soap_version} is used, the P-Mode says {agreed}"
    routed = protocol.add_actor_or_role_attribute
    if for_next_msh is not None and routed is not None and for_next_msh != routed:
        has, wants = ("has", "forbids") if for_next_msh else ("lacks", "asks for")
        said = f"it {has} the role or actor of the next MSH, which the P-Mode {wants}"
        yield "eb:Messaging", said


def _properties(info: BusinessInfo, message: UserMessage) -> Iterator[Said]:
    place = f"{LOCATION}/eb:MessageProperties"
    for agreed in info.properties:
        value = message.property(agreed.name)
        if value is None:
            if agreed.required:
                yield place, f"the property {agreed.name!r} is missing, which the P-Mode requires"
        elif agreed.type and not PROPERTY_TYPES[agreed.type].fullmatch(value):
            yield (
                place,
                f"the property {agreed.name!r} is {value[:200]!r}, not of type {agreed.type}",
            )


def _payloads(
    profile: PayloadProfile | None, message: UserMessage, parts: Sequence[PartFacts]
) -> Iterator[Said]:
    if profile is None:
        return
    facts = {part.href: part for part in parts}
    known = [(info, facts.get(info.href, PartFacts(info.href))) for info in message.part_infos]
    total = sum(part.size or 0 for _, part in known)
    if profile.max_size is not None and total > profile.max_size:
        said = f"the payloads have {total} bytes, more than {format_size(profile.max_size)}"
        yield f"{LOCATION}/eb:PayloadInfo", said
    if profile.payloads:
        yield from _profile(profile.payloads, known)


def _profile(
    agreed: Sequence[PayloadDefinition], parts: Sequence[tuple[PartInfo, PartFacts]]
) -> Iterator[Said]:
    place = f"{LOCATION}/eb:PayloadInfo"
    if len(parts) > len(agreed):
        yield place, f"there are {len(parts)} payloads, the P-Mode knows {len(agreed)}"
    free = list(parts)
    taken: list[tuple[PayloadDefinition, tuple[PartInfo, PartFacts]]] = []
    for payload in sorted(agreed, key=_generality):
        fitting = [part for part in free if _fits(payload, *part)]
        if fitting:
            free.remove(fitting[0])
            taken.append((payload, fitting[0]))
        elif payload.required:
            yield place, f"the payload {_called(payload)} is missing, which the P-Mode requires"
    for payload, (info, part) in taken:
        mime_type = _mime_type(info, part)
        if payload.mime_type and mime_type and not _same_type(payload.mime_type, mime_type):
            yield _at(info), f"its type is {mime_type!r}, the P-Mode says {payload.mime_type!r}"
        if payload.max_size is not None and part.size is not None and part.size > payload.max_size:
            yield _at(info), f"it has {part.size} bytes, more than {format_size(payload.max_size)}"
    for info, _ in free:
        yield _at(info), "the P-Mode knows no such payload"


def _generality(payload: PayloadDefinition) -> tuple[bool, bool, bool]:
    return payload.name is None, payload.mime_type is None, not payload.required


def _fits(payload: PayloadDefinition, info: PartInfo, part: PartFacts) -> bool:
    if payload.name is not None:
        href = info.href or ""
        name = unquote(href.removeprefix("cid:")) if href.startswith("cid:") else href
        return payload.name in (name, name.removeprefix("#"))
    mime_type = _mime_type(info, part)
    return not payload.mime_type or not mime_type or _same_type(payload.mime_type, mime_type)


def _mime_type(info: PartInfo, part: PartFacts) -> str | None:
    return info.property(MIME_TYPE) or part.mime_type


def _same_type(one: str, other: str) -> bool:
    return one.partition(";")[0].strip().lower() == other.partition(";")[0].strip().lower()


def _called(payload: PayloadDefinition) -> str:
    return repr(payload.name or payload.mime_type or "of any type")


def _at(info: PartInfo) -> str:
    return info.href or "soap:Body"


def _compression(match: Match, info: PartInfo) -> list[Said]:
    used = info.property(COMPRESSION_TYPE)
    if not used:
        return []
    found = []
    service = match.leg.payload_service
    agreed = service.compression_type if service else None
    if agreed and used != agreed:
        said = f"it is compressed as {used[:200]!r}, the P-Mode says {agreed!r}"
        found.append((_at(info), said))
    if info.property(MIME_TYPE) is None:
        found.append((_at(info), f"it is compressed, but has no part property {MIME_TYPE}"))
    return found
