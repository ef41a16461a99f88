"""WS-Reliability 1.1 as values, both ways: the header blocks Request, Response and PollRequest.

All of the protocol stands in headers. Readers collect what is wrong, each with the fault that the
protocol has for it.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from lxml import etree
from msgspec import Struct

from postroad.wire.ebms3_user_messages import Findings, parse_timestamp
from postroad.wire.errors import EbmsError
from postroad.wire.names import WSR, WSU
from postroad.wire.soap import Envelope, SoapVersion
from postroad.wire.wsa import is_iri
from postroad.wire.xml import (
    elements,
    escape,
    escape_attribute,
    is_xml_text,
    local,
    namespace,
    text,
)

REFERENCE: Final = "http://docs.oasis-open.org/wsrm/2004/06/reference-1.1.xsd"
BROKEN: Final = "EBMS:0201"
MOST_NUMBER: Final = 18_446_744_073_709_551_615
MOST_RANGES: Final = 1000
"""In one header, over all of its groups."""
LONGEST_ID: Final = 1000


class FaultCode(StrEnum):
    INVALID_REQUEST = "InvalidRequest"
    INVALID_POLL_REQUEST = "InvalidPollRequest"
    INVALID_MESSAGE_ID = "InvalidMessageId"
    INVALID_MESSAGE_PARAMETERS = "InvalidMessageParameters"
    INVALID_REPLY_PATTERN = "InvalidReplyPattern"
    INVALID_EXPIRY_TIME = "InvalidExpiryTime"
    FEATURE_NOT_SUPPORTED = "FeatureNotSupported"
    PERMANENT_PROCESSING_FAILURE = "PermanentProcessingFailure"
    MESSAGE_PROCESSING_FAILURE = "MessageProcessingFailure"
    GROUP_ABORTED = "GroupAborted"


_F = FaultCode
ESCALATED: Final[Mapping[FaultCode, str]] = {
    _F.INVALID_REQUEST: "EBMS:0202",
    _F.INVALID_POLL_REQUEST: "EBMS:0202",
    _F.INVALID_MESSAGE_ID: "EBMS:0202",
    _F.INVALID_MESSAGE_PARAMETERS: "EBMS:0202",
    _F.INVALID_REPLY_PATTERN: "EBMS:0202",
    _F.INVALID_EXPIRY_TIME: "EBMS:0202",
    _F.FEATURE_NOT_SUPPORTED: "EBMS:0201",
    _F.PERMANENT_PROCESSING_FAILURE: "EBMS:0201",
    _F.MESSAGE_PROCESSING_FAILURE: "EBMS:0202",
    _F.GROUP_ABORTED: "EBMS:0201",
}
"""What a fault is called by those who know only errors of ebMS (Core B.1)."""


class ReplyPattern(StrEnum):
    RESPONSE = "Response"
    CALLBACK = "Callback"
    POLL = "Poll"


class SequenceNum(Struct, frozen=True):
    number: int
    last: bool = False
    group_expiry_time: datetime | None = None
    group_max_idle: timedelta | None = None


class Request(Struct, frozen=True):
    """wsrm:Request, on every message that is sent reliably."""

    group_id: str
    expiry_time: datetime
    reply_pattern: ReplyPattern
    sequence_num: SequenceNum | None = None
    """None: the message is the only one of its group."""
    reply_to: str | None = None
    ack_requested: bool = False
    duplicate_elimination: bool = False
    message_order: bool = False


class Reply(Struct, frozen=True):
    """An acknowledgment, or a fault, for a message or a range of them."""

    group_id: str
    first: int | None = None
    """None: for the only message of its group."""
    last: int | None = None
    fault: FaultCode | None = None


class Poll(Struct, frozen=True):
    """What a PollRequest asks about: some numbers of a group, or all of it."""

    group_id: str
    ranges: tuple[tuple[int, int], ...] = ()


class PollRequest(Struct, frozen=True):
    polls: tuple[Poll, ...]
    reply_to: str | None = None


class WsrHeaders(Struct, frozen=True):
    """All header blocks of WS-Reliability on one message."""

    request: Request | None = None
    response: tuple[Reply, ...] = ()
    poll_request: PollRequest | None = None


class Broken(Struct, frozen=True):
    """What is wrong with a header, as the protocol names it."""

    fault: FaultCode
    problem: EbmsError


class _Findings:
    def __init__(self) -> None:
        self.found: list[Broken] = []

    def add(self, fault: FaultCode, element: etree._Element, detail: str) -> None:
        if len(self.found) >= 20:
            return
        told = Findings()
        told.add(BROKEN, element, f"{fault.value}: {detail}")
        self.found.append(Broken(fault, told.errors[0]))


def read_wsr_headers(envelope: Envelope) -> tuple[WsrHeaders | None, list[Broken]]:
    """The header blocks; None when there are none, or something is wrong with one of them."""
    findings = _Findings()
    found: dict[str, etree._Element] = {}
    for block in envelope.blocks:
        element = block.element
        if namespace(element) != WSR:
            continue
        name = local(element)
        if name not in ("Request", "Response", "PollRequest"):
            findings.add(_F.INVALID_REQUEST, element, f"no header of the protocol is {name[:80]}")
        elif name in found:
            findings.add(_F.INVALID_REQUEST, element, f"there is more than one {name}")
        else:
            found[name] = element
    asked, answered, polled = (found.get(one) for one in ("Request", "Response", "PollRequest"))
    headers = WsrHeaders(
        _request(asked, findings) if asked is not None else None,
        _response(answered, findings) if answered is not None else (),
        _poll_request(polled, findings) if polled is not None else None,
    )
    return (headers if found and not findings.found else None), findings.found


def stated_group(envelope: Envelope) -> str | None:
    """The groupId of a Request, where it has one, whatever else is wrong with it."""
    for block in envelope.blocks:
        if block.element.tag == f"{{{WSR}}}Request":
            found = block.element.find(f"{{{WSR}}}MessageId")
            group = found.get("groupId", "").strip() if found is not None else ""
            return group if _is_group(group) else None
    return None


def _child(
    element: etree._Element,
    name: str,
    findings: _Findings,
    fault: FaultCode,
    *,
    required: bool = False,
) -> etree._Element | None:
    found = [one for one in elements(element) if one.tag == f"{{{WSR}}}{name}"]
    if len(found) > 1:
        findings.add(fault, found[1], f"there is more than one {name}")
    if required and not found:
        findings.add(fault, element, f"the element {name} is missing")
    return found[0] if found else None


def _is_group(value: str) -> bool:
    return len(value) <= LONGEST_ID and is_iri(value)


def _group(element: etree._Element, findings: _Findings, fault: FaultCode) -> str:
    value = element.get("groupId", "").strip()
    if not _is_group(value):
        findings.add(fault, element, f"{value[:80]!r} is no groupId: it is a URI")
    return value


def _number(value: str | None) -> int | None:
    found = re.fullmatch(r"\+?0{0,40}([0-9]{1,20})", (value or "").strip(), re.ASCII)
    number = int(found[1]) if found else -1
    return number if 0 <= number <= MOST_NUMBER else None


def _time(value: str) -> datetime | None:
    try:
        return parse_timestamp(value)[0]
    except ValueError:
        return None


def _request(element: etree._Element, findings: _Findings) -> Request:
    message_id = _child(element, "MessageId", findings, _F.INVALID_MESSAGE_ID, required=True)
    group, number = "", None
    if message_id is not None:
        group = _group(message_id, findings, _F.INVALID_MESSAGE_ID)
        numbered = _child(message_id, "SequenceNum", findings, _F.INVALID_MESSAGE_ID)
        if numbered is not None:
            number = _sequence_num(numbered, findings)
    wrong = _F.INVALID_EXPIRY_TIME
    expires = _child(element, "ExpiryTime", findings, wrong, required=True)
    expiry = _time(text(expires)) if expires is not None else None
    if expires is not None and expiry is None:
        findings.add(wrong, expires, f"{text(expires)[:80]!r} is no time")
    pattern, reply_to = _pattern(element, findings)
    flags = [
        _child(element, name, findings, _F.INVALID_MESSAGE_PARAMETERS) is not None
        for name in ("AckRequested", "DuplicateElimination", "MessageOrder")
    ]
    request = Request(
        group, expiry or datetime.max.replace(tzinfo=UTC), pattern, number, reply_to, *flags
    )
    said = conflict(request)
    if said is not None and not findings.found:
        findings.add(_F.INVALID_MESSAGE_PARAMETERS, element, said)
    return request


def conflict(request: Request) -> str | None:
    """Values that are right alone but not together."""
    number = request.sequence_num
    if request.message_order:
        if number is None:
            return "order needs a SequenceNum"
        if not (request.ack_requested and request.duplicate_elimination):
            return "order needs AckRequested and DuplicateElimination"
    if number is not None and number.group_expiry_time is not None:
        if number.group_max_idle is not None:
            return "groupExpiryTime and groupMaxIdleDuration exclude each other"
        if number.group_expiry_time < request.expiry_time:
            return "a group does not end before its messages"
    if request.reply_pattern is ReplyPattern.CALLBACK and request.reply_to is None:
        return "Callback needs a ReplyTo"
    return None


def _sequence_num(element: etree._Element, findings: _Findings) -> SequenceNum | None:
    wrong = _F.INVALID_MESSAGE_ID
    number = _number(element.get("number"))
    last = element.get("last", "false").strip()
    if number is None or last not in ("true", "false", "1", "0"):
        findings.add(wrong, element, f"number is one from 0 to {MOST_NUMBER}, last true or false")
        return None
    ends, idle = element.get("groupExpiryTime"), element.get("groupMaxIdleDuration")
    expiry = _time(ends.strip()) if ends is not None else None
    span = _duration(idle.strip()) if idle is not None else None
    if (ends is not None and expiry is None) or (idle is not None and span is None):
        findings.add(
            _F.INVALID_MESSAGE_PARAMETERS, element, "the end of the group cannot be understood"
        )
    return SequenceNum(number, last in ("true", "1"), expiry, span)


_DURATION: Final = re.compile(
    r"P(?:(\d{1,4})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})(?:\.(\d{1,6}))?S)?)?", re.ASCII
)


def _duration(value: str) -> timedelta | None:
    found = _DURATION.fullmatch(value)
    if found is None or value[-1:] in ("P", "T"):
        return None
    days, hours, minutes, seconds = (int(one or 0) for one in found.groups()[:4])
    micros = int((found[5] or "0").ljust(6, "0"))
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)


def _pattern(element: etree._Element, findings: _Findings) -> tuple[ReplyPattern, str | None]:
    wrong = _F.INVALID_REPLY_PATTERN
    found = _child(element, "ReplyPattern", findings, wrong, required=True)
    if found is None:
        return ReplyPattern.RESPONSE, None
    value = _child(found, "Value", findings, wrong, required=True)
    reply_to = _reply_to(found, findings, wrong)
    try:
        return ReplyPattern(text(value) if value is not None else ""), reply_to
    except ValueError:
        findings.add(wrong, found, "its Value is Response, Callback or Poll")
        return ReplyPattern.RESPONSE, reply_to


def _reply_to(element: etree._Element, findings: _Findings, fault: FaultCode) -> str | None:
    """A service reference; the scheme that everybody knows is BareURI."""
    found = _child(element, "ReplyTo", findings, fault)
    if found is None:
        return None
    inner = [one for one in found.iter() if isinstance(one.tag, str) and local(one) == "BareURI"]
    value = text(inner[0]) if inner and not len(inner[0]) else ""
    if not is_iri(value) or len(value) > LONGEST_ID:
        findings.add(fault, found, "its reference is a BareURI with a URI")
        return None
    return value


def _fault_of(element: etree._Element, findings: _Findings) -> FaultCode | None:
    value = element.get("fault")
    if value is None:
        return None
    try:
        return FaultCode(value.strip().rpartition(":")[2])
    except ValueError:
        findings.add(_F.INVALID_REQUEST, element, f"{value[:80]!r} is no fault of the protocol")
        return None


def _response(element: etree._Element, findings: _Findings) -> tuple[Reply, ...]:
    wrong = _F.INVALID_REQUEST
    replies: list[Reply] = []
    for child in elements(element):
        if child.tag == f"{{{WSR}}}NonSequenceReply":
            group = _group(child, findings, wrong)
            replies.append(Reply(group, fault=_fault_of(child, findings)))
        elif child.tag == f"{{{WSR}}}SequenceReplies":
            group = _group(child, findings, wrong)
            for one in elements(child):
                if one.tag == f"{{{WSR}}}ReplyRange":
                    first, last = _span(one, findings, wrong)
                    replies.append(Reply(group, first, last, _fault_of(one, findings)))
                if len(replies) > MOST_RANGES:
                    break
        if len(replies) > MOST_RANGES:
            findings.add(wrong, element, f"there are more than {MOST_RANGES} replies")
            return ()
    if not replies:
        findings.add(wrong, element, "there is no reply in it")
    return tuple(replies)


def _span(element: etree._Element, findings: _Findings, fault: FaultCode) -> tuple[int, int]:
    first, last = _number(element.get("from")), _number(element.get("to"))
    if first is None or last is None or first > last:
        findings.add(fault, element, "from and to are numbers, and from is not above to")
        return 0, 0
    return first, last


def _poll_request(element: etree._Element, findings: _Findings) -> PollRequest:
    wrong = _F.INVALID_POLL_REQUEST
    polls: list[Poll] = []
    count = 0
    for child in elements(element):
        if child.tag != f"{{{WSR}}}RefToMessageIds":
            continue
        ranges = [one for one in elements(child) if one.tag == f"{{{WSR}}}SequenceNumRange"]
        count += 1 + len(ranges)
        if count > MOST_RANGES:
            findings.add(wrong, element, f"it asks about more than {MOST_RANGES} ranges")
            break
        spans = tuple(_span(one, findings, wrong) for one in ranges)
        polls.append(Poll(_group(child, findings, wrong), spans))
    if not polls:
        findings.add(wrong, element, "it asks about nothing")
    return PollRequest(tuple(polls), _reply_to(element, findings, wrong))


# Writing


def _block(name: str, content: str, version: SoapVersion, id: str | None) -> str:
    wsu = f' xmlns:wsu="{WSU}"' if id is not None else ""
    named = f' wsu:Id="{escape_attribute(id)}"' if id is not None else ""
    must = f' {version.prefix}:mustUnderstand="{version.must_understand}"'
    start = f'<wsr:{name} xmlns:{version.prefix}="{version.namespace}" xmlns:wsr="{WSR}"{wsu}'
    return f"{start}{named}{must}>{content}</wsr:{name}>"


def _written_group(group_id: str) -> str:
    if not _is_group(group_id) or not is_xml_text(group_id):
        raise ValueError(f"{group_id[:80]!r} cannot be a groupId")
    return escape_attribute(group_id)


def _checked(number: int) -> int:
    if not 0 <= number <= MOST_NUMBER:
        raise ValueError(f"{number} is no number of a message")
    return number


def _written_time(value: datetime) -> str:
    said = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="auto")
    return f"{said}Z"


def write_request(request: Request, version: SoapVersion, *, id: str | None = None) -> str:
    """The header block in canonical form; ValueError for what cannot be."""
    said = conflict(request)
    if said is not None:
        raise ValueError(said)
    inner = ""
    number = request.sequence_num
    if number is not None:
        ends = idle = ""
        if number.group_expiry_time is not None:
            ends = f' groupExpiryTime="{_written_time(number.group_expiry_time)}"'
        if number.group_max_idle is not None:
            idle = f' groupMaxIdleDuration="{_written_duration(number.group_max_idle)}"'
        last = ' last="true"' if number.last else ""
        attributes = f'{ends}{idle}{last} number="{_checked(number.number)}"'
        inner = f"<wsr:SequenceNum{attributes}></wsr:SequenceNum>"
    group = _written_group(request.group_id)
    flags = "".join(
        f"<wsr:{name}></wsr:{name}>"
        for name, wanted in (
            ("AckRequested", request.ack_requested),
            ("DuplicateElimination", request.duplicate_elimination),
            ("MessageOrder", request.message_order),
        )
        if wanted
    )
    content = (
        f'<wsr:MessageId groupId="{group}">{inner}</wsr:MessageId>'
        f"<wsr:ExpiryTime>{_written_time(request.expiry_time)}</wsr:ExpiryTime>"
        f"<wsr:ReplyPattern><wsr:Value>{request.reply_pattern.value}</wsr:Value>"
        f"{_written_reply_to(request.reply_to)}</wsr:ReplyPattern>{flags}"
    )
    return _block("Request", content, version, id)


def _written_duration(span: timedelta) -> str:
    if not timedelta(0) <= span <= timedelta(days=9999):
        raise ValueError("a group is not idle for longer than 9999 days")
    seconds = span.days * 86_400 + span.seconds
    micros = f".{span.microseconds:06d}" if span.microseconds else ""
    return f"PT{seconds}{micros}S"


def _written_reply_to(uri: str | None) -> str:
    if uri is None:
        return ""
    if not is_iri(uri) or len(uri) > LONGEST_ID:
        raise ValueError(f"{uri[:80]!r} cannot be replied to")
    inner = f'<wsrr:BareURI xmlns:wsrr="{REFERENCE}">{escape(uri)}</wsrr:BareURI>'
    return f"<wsr:ReplyTo>{inner}</wsr:ReplyTo>"


def write_response(
    replies: tuple[Reply, ...], version: SoapVersion, *, id: str | None = None
) -> str:
    """The header block in canonical form."""
    if not replies:
        raise ValueError("a Response holds a reply")
    content = ""
    for one in replies[:MOST_RANGES]:
        group = _written_group(one.group_id)
        fault = "" if one.fault is None else f' fault="wsr:{one.fault.value}"'
        if one.first is None or one.last is None:
            # Attributes in the order of canonical XML: fault, groupId.
            content += f'<wsr:NonSequenceReply{fault} groupId="{group}"></wsr:NonSequenceReply>'
            continue
        span = f' from="{_checked(one.first)}" to="{_checked(one.last)}"'
        content += (
            f'<wsr:SequenceReplies groupId="{group}"><wsr:ReplyRange{fault}{span}>'
            "</wsr:ReplyRange></wsr:SequenceReplies>"
        )
    return _block("Response", content, version, id)


def write_poll_request(request: PollRequest, version: SoapVersion, *, id: str | None = None) -> str:
    """The header block in canonical form."""
    if not request.polls:
        raise ValueError("a PollRequest asks about something")
    content = ""
    for one in request.polls:
        spans = "".join(
            f'<wsr:SequenceNumRange from="{_checked(first)}" to="{_checked(last)}">'
            "</wsr:SequenceNumRange>"
            for first, last in one.ranges
        )
        group = _written_group(one.group_id)
        content += f'<wsr:RefToMessageIds groupId="{group}">{spans}</wsr:RefToMessageIds>'
    content += _written_reply_to(request.reply_to)
    return _block("PollRequest", content, version, id)
