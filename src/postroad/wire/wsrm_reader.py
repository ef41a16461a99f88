"""WS-ReliableMessaging, read: header blocks and life-cycle messages; what is wrong is collected."""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Final

from lxml import etree

from postroad.wire.ebms3_user_messages import Findings
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import WSRM, WSRM10, WSSE
from postroad.wire.soap import Envelope, SoapVersion
from postroad.wire.wsa import EndpointReference, read_endpoint_reference
from postroad.wire.wsrm import (
    ASSURANCES,
    BROKEN,
    LONGEST,
    MOST_HEADERS,
    MOST_NUMBER,
    MOST_RANGES,
    WSRMP,
    Assurance,
    Behavior,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    Offer,
    RmHeaders,
    Sequence,
    SequenceAcknowledgement,
    TerminateSequence,
    TerminateSequenceResponse,
    is_identifier,
    ordered,
)
from postroad.wire.xml import elements, local, namespace, text


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
    failed = any(one.severity is Severity.FAILURE for one in problems)
    if failed or not (sequences or asked or acknowledged):
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
    if elements(element) or not is_identifier(value):
        findings.add(BROKEN, element, f"{value[:80]!r} is no identifier of a sequence")
    return value


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
    if ranges and none is not None and not nacks:
        # Apache CXF writes None into every acknowledgement; the ranges say what came.
        findings.warn(BROKEN, none, "None stands beside ranges; the ranges are taken")
        none = None
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


def _identifier_or_none(element: etree._Element, findings: Findings) -> str:
    """Return the Identifier of an answer about the end of a sequence; empty if it names none.

    Apache CXF leaves it out for a sequence that it does not know.
    """
    if not _children(element, "Identifier"):
        findings.warn(BROKEN, element, "the element Identifier is missing")
        return ""
    return _identifier_of(element, findings)


_READERS: Final[dict[str, _Reader]] = {
    "CreateSequence": _create,
    "CreateSequenceResponse": _created,
    "CloseSequence": lambda one, _, f: CloseSequence(_identifier_of(one, f), _last(one, f)),
    "CloseSequenceResponse": lambda one, _, f: CloseSequenceResponse(_identifier_or_none(one, f)),
    "TerminateSequence": lambda one, _, f: TerminateSequence(_identifier_of(one, f), _last(one, f)),
    "TerminateSequenceResponse": lambda one, _, f: TerminateSequenceResponse(
        _identifier_or_none(one, f)
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
    return span if timedelta(0) < span < LONGEST else None


def _assurance(element: etree._Element, findings: Findings) -> Assurance | None:
    """In the form of Part 2 (F.1) and WS-RM Policy 1.1, or in that of Core B.2."""
    for child in elements(element):
        if namespace(child) != WSRMP:
            continue
        name = local(child).removesuffix("Delivery")
        if name in ASSURANCES:
            in_order = child.get("InOrder", "").strip() in ("true", "1")
            return ordered(ASSURANCES[name], in_order)
        if local(child) == "DeliveryAssurance":
            named = [one for one in child.iter() if isinstance(one.tag, str)]
            said = {local(one) for one in named if namespace(one) == WSRMP}
            once = [one for one in ASSURANCES if one in said]
            if len(once) == 1:
                return ordered(ASSURANCES[once[0]], "InOrder" in said)
            findings.add(BROKEN, child, "it names one of AtLeastOnce, AtMostOnce, ExactlyOnce")
    return None
