"""Reading eb:UserMessage, and the rules for values that all header elements share.

A reader never stops at a deviation: it notes it in `Findings` and goes on. Where a required value
is missing, text is "" and a time is `EPOCH`, so that whatever is there can still be shown.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    Description,
    MessageInfo,
    PartInfo,
    Party,
    PartyId,
    Property,
    Schema,
    Service,
    UserMessage,
)
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import EB3, TEST_ACTION, TEST_SERVICE, XML

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a time that is missing or cannot be read."""

_BLANK: Final = " \t\r\n"
_MOST_FINDINGS: Final = 50
_CROWD: Final = 256
_LANG: Final = f"{{{XML}}}lang"
_uri: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\s<>\"{}|\\^`\x00-\x1f\x7f]*").fullmatch
_bad_percent: Final = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_message_id: Final = re.compile(r"[^\s<>@]+@[^\s<>]+").fullmatch
_blanks: Final = re.compile(r"[ \t\r\n]+")
_date_time: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-](?:0\d|1[0-3]):[0-5]\d|[+-]14:00)?", re.ASCII
).fullmatch


class Findings:
    """What a reader noticed, in the order of the document, up to a bound."""

    __slots__ = ("_hidden", "_hidden_severity", "errors")

    def __init__(self) -> None:
        self.errors: list[EbmsError] = []
        self._hidden = 0
        self._hidden_severity = Severity.WARNING

    def add(
        self, code: str, element: etree._Element, detail: str, severity: Severity | None = None
    ) -> None:
        if len(self.errors) < _MOST_FINDINGS:
            place = _place(element)
            self.errors.append(EbmsError(code, detail, location=place, severity=severity))
        else:
            self._hidden += 1
            if severity is not Severity.WARNING:
                self._hidden_severity = Severity.FAILURE

    def warn(self, code: str, element: etree._Element, detail: str) -> None:
        self.add(code, element, detail, Severity.WARNING)

    def take_as_warnings(self, errors: Sequence[EbmsError]) -> None:
        """Add what another reader noticed, as nothing that forbids processing."""
        room = max(_MOST_FINDINGS - len(self.errors), 0)
        for error in errors[:room]:
            error.severity = Severity.WARNING
            self.errors.append(error)
        self._hidden += len(errors[room:])

    def result(self) -> tuple[EbmsError, ...]:
        if not self._hidden:
            return tuple(self.errors)
        detail = f"there are {self._hidden} further deviations, not listed"
        place = self.errors[-1].location
        more = EbmsError("EBMS:0009", detail, location=place, severity=self._hidden_severity)
        return (*self.errors, more)


def _place(element: etree._Element) -> str:
    """The path; where siblings are very many their number is left out, as counting them is slow."""
    crowds = [ancestor for ancestor in element.iterancestors() if len(ancestor) > _CROWD]
    if not crowds:
        return xml.path(element)
    return f"{xml.path(crowds[-1])}/…/{xml.local(element)}"


class Model:
    """The children of an element as the schema orders them: `Role PartyId+ Schema* Service?`.

    An open model also takes elements of other namespaces at its end.
    """

    __slots__ = ("bounds", "index", "names", "open")

    def __init__(self, children: str, *, open: bool = False) -> None:
        items = children.split()
        self.names = [item.rstrip("?*+") for item in items]
        self.index: dict[object, int] = {f"{{{EB3}}}{n}": i for i, n in enumerate(self.names)}
        self.bounds = [(item[-1] not in "?*", item[-1] in "*+") for item in items]
        self.open = open


def children(
    parent: etree._Element, model: Model, findings: Findings
) -> list[list[etree._Element]]:
    """The child elements, a list for each name of the model; what breaks the model is noted."""
    found: list[list[etree._Element]] = [[] for _ in model.names]
    index_of = model.index
    last = 0
    text = parent.text
    stray = text is not None and bool(text.strip(_BLANK))
    for child in parent:
        tail = child.tail
        if tail is not None and tail.strip(_BLANK):
            stray = True
        tag = child.tag
        index = index_of.get(tag)
        if index is None:
            if isinstance(tag, str) and not (model.open and foreign(tag)):
                _unknown_child(child, parent, model, findings)
            continue
        if index < last:
            after = model.names[last]
            findings.add("EBMS:0009", child, f"eb:{model.names[index]} stands after eb:{after}")
        else:
            last = index
        found[index].append(child)
    for name, items, (required, many) in zip(model.names, found, model.bounds, strict=True):
        if required and not items:
            findings.add("EBMS:0009", parent, f"eb:{name} is required, but there is none")
        elif len(items) > 1 and not many:
            findings.add(
                "EBMS:0009", items[1], f"at most one eb:{name} is allowed, found {len(items)}"
            )
    if stray:
        findings.add("EBMS:0009", parent, "expected elements only, found text between them")
    return found


def foreign(tag: str) -> bool:
    """Whether an element is in a namespace, and not in that of ebMS."""
    return tag[0] == "{" and not tag.startswith(f"{{{EB3}}}")


def _unknown_child(
    child: etree._Element, parent: etree._Element, model: Model, findings: Findings
) -> None:
    expected = ", ".join(f"eb:{name}" for name in model.names)
    findings.add(
        "EBMS:0009",
        child,
        f"<{xml.local(child)[:80]}> is not known in {xml.local(parent)}; expected {expected}",
    )


def attributes(element: etree._Element, known: Sequence[str], findings: Findings) -> None:
    """Note attributes without a namespace that the schema does not have."""
    for name in element.keys():  # noqa: SIM118
        if name not in known and name[0] != "{":
            findings.warn("EBMS:0009", element, f"the attribute {name[:80]!r} is not known here")


def attribute(element: etree._Element, name: str, findings: Findings) -> str | None:
    """An optional attribute; one that is there must not be empty."""
    value = element.get(name)
    if value is None:
        return None
    value = value.strip(_BLANK)
    if not value:
        findings.add("EBMS:0009", element, f"the attribute {name} is empty")
        return None
    return value


def required_attribute(element: etree._Element, name: str, findings: Findings) -> str:
    value = element.get(name)
    if value is None:
        findings.add("EBMS:0009", element, f"the attribute {name} is required, but it is missing")
        return ""
    return attribute(element, name, findings) or ""


def leaf(element: etree._Element, known: Sequence[str], findings: Findings) -> str:
    """The text of an element that may hold nothing but text."""
    attributes(element, known, findings)
    if len(element):
        for child in element:
            if isinstance(child.tag, str):
                name = xml.local(child)[:80]
                findings.add("EBMS:0009", child, f"expected text only, found the element <{name}>")
        pieces = [element.text or "", *(child.tail or "" for child in element)]
        return "".join(pieces).strip(_BLANK)
    return (element.text or "").strip(_BLANK)


def filled(element: etree._Element, known: Sequence[str], findings: Findings) -> str:
    """The text of an element that must not be empty."""
    value = leaf(element, known, findings)
    if not value:
        findings.add("EBMS:0009", element, f"eb:{xml.local(element)} is empty")
    return value


def token(value: str) -> str:
    """White space collapsed, as xs:token has it."""
    # Of all blanks only the space is printable.
    if value.isprintable() and "  " not in value:
        return value
    return _blanks.sub(" ", value)


def is_uri(value: str) -> bool:
    """Scheme, colon and the rest as RFC 3986 has it; letters beyond ASCII are let pass."""
    return _uri(value) is not None and ("%" not in value or _bad_percent(value) is None)


def is_message_id(value: str) -> bool:
    """Whether it has the form of RFC 2822: left@right, without angle brackets and white space."""
    return _message_id(value) is not None


def quoted(value: str) -> str:
    return repr(value if len(value) <= 80 else value[:80] + "…")


def read_user_message(
    element: etree._Element, *, message_info_required: bool = True
) -> tuple[UserMessage, tuple[EbmsError, ...]]:
    """A user message, also one with another element name (as in routing input), and its faults."""
    findings = Findings()
    model = _USER_MESSAGE if message_info_required else _ROUTING_MESSAGE
    message = user_message(element, findings, model)
    return message, findings.result()


_USER_MESSAGE: Final = Model(
    "MessageInfo PartyInfo CollaborationInfo MessageProperties? PayloadInfo?"
)
_ROUTING_MESSAGE: Final = Model(
    "MessageInfo? PartyInfo CollaborationInfo MessageProperties? PayloadInfo?"
)
_MESSAGE_INFO: Final = Model("Timestamp MessageId RefToMessageId?")
_PARTY_INFO: Final = Model("From To")
_PARTY: Final = Model("PartyId+ Role")
_COLLABORATION_INFO: Final = Model("AgreementRef? Service Action ConversationId")
_PROPERTIES: Final = Model("Property*")
_PAYLOAD_INFO: Final = Model("PartInfo+")
_PART_INFO: Final = Model("Schema* Description? PartProperties?")
_TYPE: Final = ("type",)


def user_message(
    element: etree._Element, findings: Findings, model: Model = _USER_MESSAGE
) -> UserMessage:
    infos, parties, collaborations, properties, payloads = children(element, model, findings)
    attributes(element, ("mpc",), findings)
    sender, receiver = _party_info(parties[0], findings) if parties else (_NOBODY, _NOBODY)
    return UserMessage(
        message_info=message_info(infos[0], findings) if infos else MessageInfo(EPOCH, ""),
        from_party=sender,
        to_party=receiver,
        collaboration_info=(
            _collaboration_info(collaborations[0], findings) if collaborations else _NO_BUSINESS
        ),
        properties=message_properties(properties[0], findings) if properties else (),
        part_infos=_payload_info(payloads[0], findings) if payloads else (),
        mpc=mpc(element, findings),
    )


_NOBODY: Final = Party((), "")
_NO_BUSINESS: Final = CollaborationInfo(Service(""), "", "")


def mpc(element: etree._Element, findings: Findings) -> str | None:
    value = attribute(element, "mpc", findings)
    if value is not None and not is_uri(value):
        findings.warn("EBMS:0009", element, f"@mpc must be a URI, found {quoted(value)}")
    return value


def message_info(element: etree._Element, findings: Findings) -> MessageInfo:
    timestamps, ids, refs = children(element, _MESSAGE_INFO, findings)
    return MessageInfo(
        _timestamp(timestamps[0], findings) if timestamps else EPOCH,
        message_id(ids[0], findings) if ids else "",
        (message_id(refs[0], findings) or None) if refs else None,
    )


def message_id(element: etree._Element, findings: Findings) -> str:
    """A message id in the form of RFC 2822 without angle brackets; only a missing @ is excused."""
    value = filled(element, (), findings)
    if is_message_id(value):
        return value
    if "<" in value or ">" in value or len(value.split(None, 1)) > 1:
        findings.add(
            "EBMS:0009",
            element,
            f"a message id has no angle brackets and no white space, found {quoted(value)}",
        )
    elif value:
        findings.warn("EBMS:0009", element, f"expected the form left@right, found {quoted(value)}")
    return value


def _timestamp(element: etree._Element, findings: Findings) -> datetime:
    value = filled(element, (), findings)
    if not value:
        return EPOCH
    try:
        time, zone = parse_timestamp(value)
    except ValueError as error:
        findings.add("EBMS:0009", element, str(error))
        return EPOCH
    if zone:
        findings.warn("EBMS:0009", element, f"expected a time in UTC, found {quoted(value)}")
    return time


def parse_timestamp(value: str) -> tuple[datetime, bool]:
    """An xs:dateTime in UTC, and whether it was written with another zone.

    Without a zone it is UTC already. Digits beyond microseconds are cut off, a leap second is the
    second after it.
    """
    match = _date_time(value)
    if match is None:
        raise ValueError(
            f"expected a date and time like 2026-01-31T12:00:00.000Z, found {quoted(value)}"
        )
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = _unusual_time(value, *match.groups(""))
    if time.tzinfo is UTC:
        return time, False
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC), False
    try:
        return time.astimezone(UTC), bool(time.utcoffset())
    except OverflowError:
        raise ValueError(f"the time {quoted(value)} is out of range in UTC") from None


def _unusual_time(value: str, date: str, clock: str, fraction: str, zone: str) -> datetime:
    """24:00:00 and leap seconds, which xs:dateTime and UTC have and Python has not."""
    try:
        if clock == "24:00:00" and not fraction.strip(".0"):
            return datetime.fromisoformat(f"{date}T00:00:00{zone}") + timedelta(days=1)
        if clock.endswith(":60"):
            return datetime.fromisoformat(f"{date}T{clock[:-2]}59{zone}") + timedelta(seconds=1)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{quoted(value)} is no date and time that exists")


def _party_info(element: etree._Element, findings: Findings) -> tuple[Party, Party]:
    senders, receivers = children(element, _PARTY_INFO, findings)
    return (
        _party(senders[0], findings) if senders else _NOBODY,
        _party(receivers[0], findings) if receivers else _NOBODY,
    )


def _party(element: etree._Element, findings: Findings) -> Party:
    ids, roles = children(element, _PARTY, findings)
    party_ids = tuple([party_id(item, findings) for item in ids])
    for item, one in zip(ids, party_ids, strict=True):
        if one.type is None:
            _should_be_uri(one.value, "PartyId", item, findings)
    if len(party_ids) > 1:
        types = Counter(one.type for one in party_ids if one.type is not None)
        for repeated in sorted(type for type, count in types.items() if count > 1):
            findings.add("EBMS:0003", element, f"two PartyIds have the type {quoted(repeated)}")
    return Party(party_ids, filled(roles[0], (), findings) if roles else "")


def _should_be_uri(value: str, what: str, element: etree._Element, findings: Findings) -> None:
    """Warn of an untyped value that is not a URI (Core 5.2.2.4, 5.2.2.7, 5.2.2.8).

    Core makes it an error. Whole networks, EU customs among them, agreed on such values, and they
    are compared like any other: nothing is ambiguous about them.
    """
    if value and not is_uri(value):
        findings.warn(
            "EBMS:0003",
            element,
            f"eb:{what} without the attribute type must be a URI, found {quoted(value)}",
        )


def party_id(element: etree._Element, findings: Findings) -> PartyId:
    return PartyId(filled(element, _TYPE, findings), attribute(element, "type", findings))


def _collaboration_info(element: etree._Element, findings: Findings) -> CollaborationInfo:
    agreements, services, actions, conversations = children(element, _COLLABORATION_INFO, findings)
    of_service = service(services[0], findings) if services else Service("")
    if of_service.type is None and services:
        _should_be_uri(of_service.value, "Service", services[0], findings)
    of_agreement = agreement_ref(agreements[0], findings) if agreements else None
    if of_agreement is not None and of_agreement.type is None:
        _should_be_uri(of_agreement.value, "AgreementRef", agreements[0], findings)
    action = token(filled(actions[0], (), findings)) if actions else ""
    if action == TEST_ACTION and of_service.value != TEST_SERVICE:
        findings.add(
            "EBMS:0003",
            actions[0],
            f"the test action needs the Service {TEST_SERVICE}, found {quoted(of_service.value)}",
        )
    conversation = token(leaf(conversations[0], (), findings)) if conversations else ""
    return CollaborationInfo(of_service, action, conversation, of_agreement)


def service(element: etree._Element, findings: Findings) -> Service:
    return Service(filled(element, _TYPE, findings), attribute(element, "type", findings))


def agreement_ref(element: etree._Element, findings: Findings) -> AgreementRef:
    return AgreementRef(
        filled(element, ("type", "pmode"), findings),
        attribute(element, "type", findings),
        attribute(element, "pmode", findings),
    )


def message_properties(element: etree._Element, findings: Findings) -> tuple[Property, ...]:
    (items,) = children(element, _PROPERTIES, findings)
    if not items:
        findings.warn("EBMS:0009", element, "eb:Property is required, but there is none")
    return tuple([_property(item, findings) for item in items])


def _property(element: etree._Element, findings: Findings) -> Property:
    value = leaf(element, ("name", "type"), findings)
    if not value:
        findings.warn("EBMS:0009", element, "the Property has no value")
    return Property(
        required_attribute(element, "name", findings),
        value,
        attribute(element, "type", findings),
    )


def _payload_info(element: etree._Element, findings: Findings) -> tuple[PartInfo, ...]:
    (items,) = children(element, _PAYLOAD_INFO, findings)
    parts = tuple([_part_info(item, findings) for item in items])
    if len(parts) > 1:
        seen: set[str | None] = set()
        for item, part in zip(items, parts, strict=True):
            target = content_id(part.href) if part.href else part.href
            if target in seen:
                attached = target is not None and target.startswith("cid:")
                findings.add(
                    "EBMS:0007" if attached else "EBMS:0003",
                    item,
                    f"two PartInfos refer to {'the Body' if part.href is None else part.href}",
                )
            seen.add(target)
    return parts


def content_id(href: str) -> str:
    """A `cid:` URL in the form in which two of them compare: URL-decoded, the scheme small."""
    if "%" not in href and (href[:4] == "cid:" or ":" not in href[:4]):
        return href
    return f"cid:{unquote(href[4:])}" if href[:4].lower() == "cid:" else href


def _part_info(element: etree._Element, findings: Findings) -> PartInfo:
    schemas, descriptions, properties = children(element, _PART_INFO, findings)
    attributes(element, ("href",), findings)
    href = element.get("href")
    if href is not None:
        href = token(href.strip(_BLANK))
        fragment = len(href) > 1 and href[0] == "#" and " " not in href
        if not (fragment or is_uri(href)):
            findings.add(
                "EBMS:0009", element, f"@href must be cid:…, #… or a URL, found {quoted(href)}"
            )
    return PartInfo(
        href=href,
        properties=message_properties(properties[0], findings) if properties else (),
        schemas=tuple([_schema(item, findings) for item in schemas]),
        description=description(descriptions[0], findings) if descriptions else None,
    )


def _schema(element: etree._Element, findings: Findings) -> Schema:
    if leaf(element, ("location", "version", "namespace"), findings):
        findings.add("EBMS:0009", element, "eb:Schema must be empty, found text in it")
    return Schema(
        required_attribute(element, "location", findings),
        attribute(element, "version", findings),
        attribute(element, "namespace", findings),
    )


def description(element: etree._Element, findings: Findings) -> Description:
    lang = element.get(_LANG)
    if lang is None:
        findings.warn("EBMS:0009", element, "the attribute xml:lang is missing")
    text = leaf(element, (), findings)
    if not text:
        findings.warn("EBMS:0009", element, "eb:Description is empty")
    return Description(text, (lang or "").strip(_BLANK))
