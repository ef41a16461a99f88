"""WS-ReliableMessaging 1.1 and 1.2 as values, both ways: header blocks and life-cycle messages.

Both versions have one namespace and one form. 1.0 has others, and is told by name. Readers
collect what is wrong; what cannot be read is EBMS:0201.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from lxml import etree
from msgspec import Struct

from postroad.wire.ebms3_user_messages import Findings
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import WSRM, WSRM10, WSSE, WSU
from postroad.wire.soap import Envelope, SoapVersion
from postroad.wire.wsa import (
    EndpointReference,
    read_endpoint_reference,
    write_endpoint_reference,
)
from postroad.wire.xml import (
    elements,
    escape,
    escape_attribute,
    is_xml_text,
    local,
    namespace,
    text,
)

WSRMP: Final = "http://docs.oasis-open.org/ws-rx/wsrmp/200702"
BROKEN: Final = "EBMS:0201"
MOST_NUMBER: Final = 9_223_372_036_854_775_807
MOST_RANGES: Final = 1000
"""Of one acknowledgement; with more holes its first ones are told, which is still true."""
MOST_HEADERS: Final = 20
"""Acknowledgements, or requests for them, on one message."""
LONGEST_IDENTIFIER: Final = 1000


class Behavior(StrEnum):
    """IncompleteSequenceBehavior: what becomes of a sequence with holes when it ends."""

    NO_DISCARD = "NoDiscard"
    DISCARD_ENTIRE_SEQUENCE = "DiscardEntireSequence"
    DISCARD_FOLLOWING_FIRST_GAP = "DiscardFollowingFirstGap"


class Assurance(Struct, frozen=True):
    """wsrmp:DeliveryAssurance, as CreateSequence may name it (Part 2, F.1)."""

    at_least_once: bool = False
    at_most_once: bool = False
    in_order: bool = False


class Sequence(Struct, frozen=True):
    """The wsrm:Sequence header: of which sequence a message is, and its number there."""

    identifier: str
    message_number: int


class SequenceAcknowledgement(Struct, frozen=True):
    """What of a sequence has come; without ranges and Nacks nothing has (wsrm:None)."""

    identifier: str
    ranges: tuple[tuple[int, int], ...] = ()
    """Lower and upper, ascending, each apart from the next."""
    nacks: tuple[int, ...] = ()
    final: bool = False


class RmHeaders(Struct, frozen=True):
    """All header blocks of WS-ReliableMessaging on one message."""

    sequence: Sequence | None = None
    ack_requested: tuple[str, ...] = ()
    """Identifiers of the sequences that are asked about."""
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A sequence for the other direction."""

    identifier: str
    endpoint: EndpointReference
    expires: timedelta | None = None
    behavior: Behavior = Behavior.NO_DISCARD


@dataclass(frozen=True, slots=True)
class CreateSequence:
    acks_to: EndpointReference
    expires: timedelta | None = None
    """None: never."""
    offer: Offer | None = None
    assurance: Assurance | None = None
    secured: bool = False
    """It names a security token to which the sequence is bound; read only."""


@dataclass(frozen=True, slots=True)
class CreateSequenceResponse:
    identifier: str
    expires: timedelta | None = None
    behavior: Behavior = Behavior.NO_DISCARD
    accept: EndpointReference | None = None
    """AcksTo of the offered sequence; None: the offer was not taken."""


@dataclass(frozen=True, slots=True)
class CloseSequence:
    identifier: str
    last: int | None = None
    """LastMsgNumber; 0: nothing was ever sent."""


@dataclass(frozen=True, slots=True)
class CloseSequenceResponse:
    identifier: str


@dataclass(frozen=True, slots=True)
class TerminateSequence:
    identifier: str
    last: int | None = None


@dataclass(frozen=True, slots=True)
class TerminateSequenceResponse:
    identifier: str


Lifecycle = (
    CreateSequence
    | CreateSequenceResponse
    | CloseSequence
    | CloseSequenceResponse
    | TerminateSequence
    | TerminateSequenceResponse
)
"""What stands in a Body."""

ACK_ACTION: Final = WSRM + "/SequenceAcknowledgement"
ACK_REQUESTED_ACTION: Final = WSRM + "/AckRequested"


def action_of(message: Lifecycle) -> str:
    """The wsa:Action that the specification fixes. [P2-2.6.3.2-08]"""
    return f"{WSRM}/{type(message).__name__}"


# Reading


def read_rm_headers(envelope: Envelope) -> tuple[RmHeaders | None, list[EbmsError]]:
    """The header blocks; None when there are none, or something is wrong with one of them."""
    findings = Findings()
    sequences: list[Sequence] = []
    asked: list[str] = []
    acknowledged: list[SequenceAcknowledgement] = []
    for block in envelope.blocks:
        element = block.element
        if namespace(element) == WSRM10:
            said = "this is WS-ReliableMessaging 1.0; 1.1 and 1.2 are spoken here"
            findings.add(BROKEN, element, said)
        if namespace(element) != WSRM:
            continue
        name = local(element)
        if name == "Sequence":
            sequences.append(_sequence(element, findings))
            if len(sequences) > 1:
                findings.add(BROKEN, element, "a message is of one sequence, and here are two")
        elif name == "AckRequested":
            asked.append(_identifier_of(element, findings))
        elif name == "SequenceAcknowledgement":
            acknowledged.append(_acknowledgement(element, findings))
        if max(len(asked), len(acknowledged)) > MOST_HEADERS:
            findings.add(BROKEN, element, f"there are more than {MOST_HEADERS} headers like this")
            break
    problems = list(findings.result())
    if problems or not (sequences or asked or acknowledged):
        return None, problems
    sequence = sequences[0] if sequences else None
    return RmHeaders(sequence, tuple(dict.fromkeys(asked)), tuple(acknowledged)), problems


def read_lifecycle(envelope: Envelope) -> tuple[Lifecycle | None, list[EbmsError]]:
    """The message in the Body; None when there is none, or it cannot be read."""
    first = next(iter(elements(envelope.body)), None)
    if first is None or namespace(first) not in (WSRM, WSRM10):
        return None, []
    findings = Findings()
    if namespace(first) == WSRM10:
        said = "this is WS-ReliableMessaging 1.0; 1.1 and 1.2 are spoken here"
        findings.add(BROKEN, first, said)
        return None, list(findings.result())
    read = _READERS.get(local(first))
    if read is None:
        findings.add(BROKEN, first, f"no message of WS-ReliableMessaging is {local(first)[:80]}")
        return None, list(findings.result())
    message = read(first, envelope.version, findings)
    problems = list(findings.result())
    if any(one.severity is Severity.FAILURE for one in problems):
        return None, problems
    return message, problems


def _children(element: etree._Element, name: str) -> list[etree._Element]:
    return [one for one in elements(element) if one.tag == f"{{{WSRM}}}{name}"]


def _one(
    element: etree._Element, name: str, findings: Findings, *, required: bool = False
) -> etree._Element | None:
    found = _children(element, name)
    if len(found) > 1:
        findings.add(BROKEN, found[1], f"there is more than one {name}")
    if required and not found:
        findings.add(BROKEN, element, f"the element {name} is missing")
    return found[0] if found else None


def _identifier(element: etree._Element | None, findings: Findings) -> str:
    """Part 2 itself has identifiers that are no IRI (F.2), so they need only be text."""
    if element is None:
        return ""
    value = text(element)
    if elements(element) or not _is_identifier(value):
        findings.add(BROKEN, element, f"{value[:80]!r} is no identifier of a sequence")
    return value


def _is_identifier(value: str) -> bool:
    short = 0 < len(value) <= LONGEST_IDENTIFIER
    return short and not re.search(r"\s", value) and is_xml_text(value)


def _identifier_of(element: etree._Element, findings: Findings) -> str:
    return _identifier(_one(element, "Identifier", findings, required=True), findings)


_INTEGER: Final = re.compile(r"\+?0{0,40}([0-9]{1,19})", re.ASCII)


def _number(value: str, least: int = 1) -> int | None:
    """A message number; None when it is none."""
    found = _INTEGER.fullmatch(value.strip())
    number = int(found[1]) if found else -1
    return number if least <= number <= MOST_NUMBER else None


def _number_in(element: etree._Element | None, findings: Findings, least: int = 1) -> int | None:
    if element is None:
        return None
    number = None if elements(element) else _number(text(element), least)
    if number is None:
        said = f"{text(element)[:80]!r} is no number from {least} to {MOST_NUMBER}"
        findings.add(BROKEN, element, said)
    return number


def _sequence(element: etree._Element, findings: Findings) -> Sequence:
    number = _number_in(_one(element, "MessageNumber", findings, required=True), findings)
    return Sequence(_identifier_of(element, findings), number or 0)


def _acknowledgement(element: etree._Element, findings: Findings) -> SequenceAcknowledgement:
    identifier = _identifier_of(element, findings)
    ranges = _children(element, "AcknowledgementRange")
    nacks = _children(element, "Nack")
    none = _one(element, "None", findings)
    final = _one(element, "Final", findings)
    if max(len(ranges), len(nacks)) > MOST_RANGES:
        findings.add(BROKEN, element, f"there are more than {MOST_RANGES} ranges")
        return SequenceAcknowledgement(identifier)
    if [bool(ranges), bool(nacks), none is not None].count(True) != 1 or (
        nacks and final is not None
    ):
        said = "it holds ranges, or None, each perhaps with Final, or Nacks; and nothing else"
        findings.add(BROKEN, element, said)
        return SequenceAcknowledgement(identifier)
    found = sorted(_range(one, findings) for one in ranges)
    for (_, upper), (lower, _) in pairwise(found):
        if lower <= upper:
            findings.add(BROKEN, element, "its ranges overlap")
            break
    numbers = [_number_in(one, findings) for one in nacks]
    return SequenceAcknowledgement(
        identifier,
        _joined(found),
        tuple(sorted({one for one in numbers if one is not None})),
        final is not None,
    )


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges without neighbours that touch."""
    joined: list[tuple[int, int]] = []
    for lower, upper in ranges:
        if joined and lower <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], upper)
        else:
            joined.append((lower, upper))
    return tuple(joined)


def _range(element: etree._Element, findings: Findings) -> tuple[int, int]:
    lower, upper = (_number(element.get(name, "")) for name in ("Lower", "Upper"))
    if lower is None or upper is None or lower > upper:
        findings.add(BROKEN, element, "Lower and Upper are numbers, and Lower is not above Upper")
        return 0, 0
    return lower, upper


def _reference(
    element: etree._Element | None, version: SoapVersion, findings: Findings
) -> EndpointReference | None:
    if element is None:
        return None
    found, problems = read_endpoint_reference(element, version)
    for one in problems:
        findings.add(BROKEN, element, one.detail, one.severity)
    return found


def _create(
    element: etree._Element, version: SoapVersion, findings: Findings
) -> CreateSequence | None:
    to = _one(element, "AcksTo", findings, required=True)
    acks_to = _reference(to, version, findings)
    offered = _one(element, "Offer", findings)
    offer = None
    if offered is not None:
        endpoint = _reference(_one(offered, "Endpoint", findings, required=True), version, findings)
        if endpoint is not None:
            offer = Offer(
                _identifier_of(offered, findings),
                endpoint,
                _expires(offered, findings),
                _behavior(offered, findings),
            )
    if acks_to is None:
        return None
    return CreateSequence(
        acks_to,
        _expires(element, findings),
        offer,
        _assurance(element, findings),
        any(one.tag == f"{{{WSSE}}}SecurityTokenReference" for one in elements(element)),
    )


def _created(
    element: etree._Element, version: SoapVersion, findings: Findings
) -> CreateSequenceResponse:
    accepted = _one(element, "Accept", findings)
    accept = None
    if accepted is not None:
        to = _one(accepted, "AcksTo", findings, required=True)
        accept = _reference(to, version, findings)
    return CreateSequenceResponse(
        _identifier_of(element, findings),
        _expires(element, findings),
        _behavior(element, findings),
        accept,
    )


def _last(element: etree._Element, findings: Findings) -> int | None:
    return _number_in(_one(element, "LastMsgNumber", findings), findings, 0)


_Reader = Callable[[etree._Element, SoapVersion, Findings], Lifecycle | None]
_READERS: Final[dict[str, _Reader]] = {
    "CreateSequence": _create,
    "CreateSequenceResponse": _created,
    "CloseSequence": lambda one, _, f: CloseSequence(_identifier_of(one, f), _last(one, f)),
    "CloseSequenceResponse": lambda one, _, f: CloseSequenceResponse(_identifier_of(one, f)),
    "TerminateSequence": lambda one, _, f: TerminateSequence(_identifier_of(one, f), _last(one, f)),
    "TerminateSequenceResponse": lambda one, _, f: TerminateSequenceResponse(
        _identifier_of(one, f)
    ),
}


def _behavior(element: etree._Element, findings: Findings) -> Behavior:
    found = _one(element, "IncompleteSequenceBehavior", findings)
    if found is None:
        return Behavior.NO_DISCARD
    try:
        return Behavior(text(found))
    except ValueError:
        findings.add(BROKEN, found, f"{text(found)[:80]!r} is no behavior of a sequence")
        return Behavior.NO_DISCARD


_DURATION: Final = re.compile(
    r"P(?:(\d{1,6})Y)?(?:(\d{1,6})M)?(?:(\d{1,6})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)
_LONGEST: Final = timedelta(days=36_525)


def _expires(element: etree._Element, findings: Findings) -> timedelta | None:
    """How long a sequence lives; PT0S, like nothing at all, means for ever."""
    found = _one(element, "Expires", findings)
    if found is None:
        return None
    value = text(found)
    parts = _DURATION.fullmatch(value)
    if parts is None or value[-1:] in ("P", "T"):
        findings.add(BROKEN, found, f"{value[:80]!r} is no duration")
        return None
    years, months, days, hours, minutes, seconds = (int(one or 0) for one in parts.groups()[:6])
    micros = int((parts[7] or "0")[:6].ljust(6, "0"))
    try:
        # A year has 365 days here and a month 30: it is only about forgetting.
        span = timedelta(
            days=years * 365 + months * 30 + days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            microseconds=micros,
        )
    except OverflowError:
        return None
    return span if timedelta(0) < span < _LONGEST else None


_ASSURANCES: Final = {
    "AtLeastOnce": Assurance(at_least_once=True),
    "AtMostOnce": Assurance(at_most_once=True),
    "ExactlyOnce": Assurance(at_least_once=True, at_most_once=True),
}


def _assurance(element: etree._Element, findings: Findings) -> Assurance | None:
    """In the form of Part 2 (F.1) and WS-RM Policy 1.1, or in that of Core B.2."""
    for child in elements(element):
        if namespace(child) != WSRMP:
            continue
        name = local(child).removesuffix("Delivery")
        if name in _ASSURANCES:
            in_order = child.get("InOrder", "").strip() in ("true", "1")
            return _ordered(_ASSURANCES[name], in_order)
        if local(child) == "DeliveryAssurance":
            named = [one for one in child.iter() if isinstance(one.tag, str)]
            said = {local(one) for one in named if namespace(one) == WSRMP}
            once = [one for one in _ASSURANCES if one in said]
            if len(once) == 1:
                return _ordered(_ASSURANCES[once[0]], "InOrder" in said)
            findings.add(BROKEN, child, "it names one of AtLeastOnce, AtMostOnce, ExactlyOnce")
    return None


def _ordered(assurance: Assurance, in_order: bool) -> Assurance:
    return Assurance(assurance.at_least_once, assurance.at_most_once, in_order)


# Writing


def _checked(identifier: str) -> str:
    if not _is_identifier(identifier):
        raise ValueError(f"{identifier[:80]!r} cannot be the identifier of a sequence")
    return escape(identifier)


def _checked_number(number: int, least: int = 1) -> int:
    if not least <= number <= MOST_NUMBER:
        raise ValueError(f"{number} is no message number")
    return number


def _block(name: str, content: str, version: SoapVersion, id: str | None, must: bool) -> str:
    soap = f' xmlns:{version.prefix}="{version.namespace}"' if must else ""
    wsu = f' xmlns:wsu="{WSU}"' if id is not None else ""
    named = f' wsu:Id="{escape_attribute(id)}"' if id is not None else ""
    target = f' {version.prefix}:mustUnderstand="{version.must_understand}"' if must else ""
    start = f'<wsrm:{name}{soap} xmlns:wsrm="{WSRM}"{wsu}{named}{target}>'
    return f"{start}{content}</wsrm:{name}>"


def _named(identifier: str) -> str:
    return f"<wsrm:Identifier>{_checked(identifier)}</wsrm:Identifier>"


def write_sequence(sequence: Sequence, version: SoapVersion, *, id: str | None = None) -> str:
    """The header block in canonical form; it must be understood."""
    number = _checked_number(sequence.message_number)
    content = f"{_named(sequence.identifier)}<wsrm:MessageNumber>{number}</wsrm:MessageNumber>"
    return _block("Sequence", content, version, id, must=True)


def write_ack_requested(identifier: str, version: SoapVersion, *, id: str | None = None) -> str:
    """The header block in canonical form."""
    return _block("AckRequested", _named(identifier), version, id, must=False)


def write_acknowledgement(
    ack: SequenceAcknowledgement, version: SoapVersion, *, id: str | None = None
) -> str:
    """The header block in canonical form; ValueError for ranges that cannot be."""
    content = _named(ack.identifier)
    if ack.nacks:
        if ack.ranges or ack.final:
            raise ValueError("Nacks stand alone")
        content += "".join(f"<wsrm:Nack>{_checked_number(one)}</wsrm:Nack>" for one in ack.nacks)
        return _block("SequenceAcknowledgement", content, version, id, must=False)
    before = 0
    for lower, upper in ack.ranges[:MOST_RANGES]:
        if not before < _checked_number(lower) <= _checked_number(upper):
            raise ValueError("ranges ascend and do not overlap")
        before = upper
        attributes = f'Lower="{lower}" Upper="{upper}"'
        content += f"<wsrm:AcknowledgementRange {attributes}></wsrm:AcknowledgementRange>"
    if not ack.ranges:
        content += "<wsrm:None></wsrm:None>"
    if ack.final:
        content += "<wsrm:Final></wsrm:Final>"
    return _block("SequenceAcknowledgement", content, version, id, must=False)


def write_lifecycle(message: Lifecycle, version: SoapVersion) -> str:
    """The message as content of a Body; ValueError when it cannot be sent."""
    match message:
        case CreateSequence():
            content = _acks_to(message.acks_to, version) + _duration(message.expires)
            if message.offer is not None:
                content += _offer(message.offer, version)
            if message.assurance is not None:
                content += _written_assurance(message.assurance)
        case CreateSequenceResponse():
            content = _named(message.identifier) + _duration(message.expires)
            if message.behavior is not Behavior.NO_DISCARD:
                content += _written_behavior(message.behavior)
            if message.accept is not None:
                content += f"<wsrm:Accept>{_acks_to(message.accept, version)}</wsrm:Accept>"
        case CloseSequence() | TerminateSequence():
            content = _named(message.identifier)
            if message.last is not None:
                last = _checked_number(message.last, 0)
                content += f"<wsrm:LastMsgNumber>{last}</wsrm:LastMsgNumber>"
        case CloseSequenceResponse() | TerminateSequenceResponse():
            content = _named(message.identifier)
    name = type(message).__name__
    return f'<wsrm:{name} xmlns:wsrm="{WSRM}">{content}</wsrm:{name}>'


def _acks_to(reference: EndpointReference, version: SoapVersion) -> str:
    return write_endpoint_reference(
        reference, version, name="AcksTo", prefix="wsrm", namespace=WSRM
    )


def _offer(offer: Offer, version: SoapVersion) -> str:
    endpoint = write_endpoint_reference(
        offer.endpoint, version, name="Endpoint", prefix="wsrm", namespace=WSRM
    )
    content = _named(offer.identifier) + endpoint + _duration(offer.expires)
    if offer.behavior is not Behavior.NO_DISCARD:
        content += _written_behavior(offer.behavior)
    return f"<wsrm:Offer>{content}</wsrm:Offer>"


def _written_behavior(behavior: Behavior) -> str:
    name = "IncompleteSequenceBehavior"
    return f"<wsrm:{name}>{behavior.value}</wsrm:{name}>"


def _duration(expires: timedelta | None) -> str:
    if expires is None:
        return ""
    if not timedelta(0) < expires < _LONGEST:
        raise ValueError("a sequence expires within a hundred years, or never")
    seconds = expires.days * 86_400 + expires.seconds
    micros = f".{expires.microseconds:06d}" if expires.microseconds else ""
    return f"<wsrm:Expires>PT{seconds}{micros}S</wsrm:Expires>"


def _written_assurance(assurance: Assurance) -> str:
    name = next(
        (
            name
            for name, one in _ASSURANCES.items()
            if _ordered(one, assurance.in_order) == assurance
        ),
        None,
    )
    if name is None:
        raise ValueError("an assurance is at least once, at most once, or both")
    order = "<wsrmp:InOrder/>" if assurance.in_order else ""
    return (
        f'<wsrmp:DeliveryAssurance xmlns:wsrmp="{WSRMP}"><wsrmp:{name}/>{order}'
        "</wsrmp:DeliveryAssurance>"
    )
