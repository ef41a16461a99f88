"""Reading the usual user message and the usual receipt, quickly.

Nearly every message breaks no rule and uses few of the schema's liberties: one PartyId a party, no
Schema or Description, no attributes of other namespaces, no comments. Here such units are read
straight away. Whatever else there is, good or bad, makes a unit unusual; it is then read as a
whole by `ebms3_user_messages` and `ebms3_signals`, which know every case and tell what is wrong.
So a unit that is read here is the very value that those would read, without a finding.
"""

from functools import lru_cache
from typing import Final

from lxml import etree

from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    NonRepudiationInformation,
    PartInfo,
    Party,
    PartyId,
    Property,
    Receipt,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_signals import read_reference
from postroad.wire.ebms3_user_messages import (
    content_id,
    is_message_id,
    is_uri,
    parse_timestamp,
    token,
)
from postroad.wire.errors import EbmsError
from postroad.wire.names import DS, EB3, EBBP, RECEIPT_COPY, TEST_ACTION, TEST_SERVICE

_BLANK: Final = " \t\r\n"
_REMEMBERED: Final = 512
_SHORT: Final = 1024
_USER: Final = f"{{{EB3}}}UserMessage"
_PARTY: Final = [f"{{{EB3}}}PartyId", f"{{{EB3}}}Role"]
_PARTY_INFO: Final = [f"{{{EB3}}}From", f"{{{EB3}}}To"]
_AGREEMENT_REF: Final = f"{{{EB3}}}AgreementRef"
_BUSINESS: Final = [f"{{{EB3}}}{name}" for name in ("Service", "Action", "ConversationId")]
_MESSAGE_INFO: Final = [f"{{{EB3}}}Timestamp", f"{{{EB3}}}MessageId"]
_REFERRING_INFO: Final = [*_MESSAGE_INFO, f"{{{EB3}}}RefToMessageId"]
_USER_MESSAGE: Final = [
    f"{{{EB3}}}{name}" for name in ("MessageInfo", "PartyInfo", "CollaborationInfo")
]
_MESSAGE_PROPERTIES: Final = f"{{{EB3}}}MessageProperties"
_PAYLOAD_INFO: Final = f"{{{EB3}}}PayloadInfo"
_PROPERTY: Final = f"{{{EB3}}}Property"
_PART_INFO: Final = f"{{{EB3}}}PartInfo"
_PART_PROPERTIES: Final = [f"{{{EB3}}}PartProperties"]
_RECEIPT_SIGNAL: Final = [f"{{{EB3}}}MessageInfo", f"{{{EB3}}}Receipt"]
_NON_REPUDIATION: Final = f"{{{EBBP}}}NonRepudiationInformation"
_USER_COPY: Final = f"{{{RECEIPT_COPY}}}UserMessage"
_MESSAGE_PART: Final = f"{{{EBBP}}}MessagePartNRInformation"
_REFERENCE: Final = f"{{{DS}}}Reference"


class _Unusual(ValueError):
    """To be read in full."""


def usual_user_message(element: etree._Element) -> UserMessage | None:
    """The user message, if nothing about it is unusual."""
    try:
        return _user_message(element)
    except ValueError:
        return None


def usual_receipt(element: etree._Element) -> SignalMessage | None:
    """The signal, if it is a receipt and nothing about it is unusual."""
    try:
        return _receipt_signal(element)
    except (ValueError, EbmsError):
        return None


def _user_message(element: etree._Element) -> UserMessage:
    parts, tags = _children(element)
    if tags[:3] != _USER_MESSAGE:
        raise _Unusual
    properties: tuple[Property, ...] = ()
    part_infos: tuple[PartInfo, ...] = ()
    rest = tags[3:]
    if rest[-1:] == [_PAYLOAD_INFO]:
        part_infos = _payload_info(parts[len(rest) + 2])
        rest.pop()
    if rest == [_MESSAGE_PROPERTIES]:
        properties = _properties(parts[3])
    elif rest:
        raise _Unusual
    sender, receiver = _children_like(parts[1], _PARTY_INFO)
    return UserMessage(
        _message_info(parts[0]),
        _party(sender),
        _party(receiver),
        _collaboration_info(parts[2]),
        properties,
        part_infos,
        _mpc(element),
    )


def _mpc(element: etree._Element) -> str | None:
    names = element.keys()
    if not names:
        return None
    value = _attribute(element, "mpc")
    if names != ["mpc"] or not is_uri(value):
        raise _Unusual
    return value


def _message_info(element: etree._Element) -> MessageInfo:
    leaves, tags = _children(element)
    if tags == _MESSAGE_INFO:
        ref = None
    elif tags == _REFERRING_INFO:
        ref = _message_id(leaves[2])
    else:
        raise _Unusual
    time, other_zone = parse_timestamp(_plain(leaves[0]))
    if other_zone:
        raise _Unusual
    return MessageInfo(time, _message_id(leaves[1]), ref)


def _message_id(element: etree._Element) -> str:
    value = _plain(element)
    if not is_message_id(value):
        raise _Unusual
    return value


def _party(element: etree._Element) -> Party:
    party_id, role = _children_like(element, _PARTY)
    return _known_party(_text(party_id), _type(party_id), _plain(role))


@lru_cache(_REMEMBERED)
def _known_party(value: str, type: str | None, role: str) -> Party:
    _refuse_long(value, type, role)
    if type is None and not is_uri(value):
        raise _Unusual
    return Party((PartyId(value, type),), role)


def _collaboration_info(element: etree._Element) -> CollaborationInfo:
    leaves, tags = _children(element)
    agreement_ref = None
    if tags[:1] == [_AGREEMENT_REF]:
        agreement_ref = _agreement_ref(leaves.pop(0))
        del tags[0]
    if tags != _BUSINESS:
        raise _Unusual
    service, action, conversation = leaves
    return CollaborationInfo(
        *_known_business(_text(service), _type(service), _plain(action)),
        token(_plain(conversation)),
        agreement_ref,
    )


@lru_cache(_REMEMBERED)
def _known_business(service: str, type: str | None, action: str) -> tuple[Service, str]:
    _refuse_long(service, type, action)
    action = token(action)
    if (type is None and not is_uri(service)) or (
        action == TEST_ACTION and service != TEST_SERVICE
    ):
        raise _Unusual
    return Service(service, type), action


def _agreement_ref(element: etree._Element) -> AgreementRef:
    type = pmode = None
    for name in element.keys():  # noqa: SIM118
        if name == "type":
            type = _attribute(element, name)
        elif name == "pmode":
            pmode = _attribute(element, name)
        else:
            raise _Unusual
    return _known_agreement(_text(element), type, pmode)


@lru_cache(_REMEMBERED)
def _known_agreement(value: str, type: str | None, pmode: str | None) -> AgreementRef:
    _refuse_long(value, type, pmode)
    if type is None and not is_uri(value):
        raise _Unusual
    return AgreementRef(value, type, pmode)


def _properties(element: etree._Element) -> tuple[Property, ...]:
    items, tags = _children(element)
    if not items or tags.count(_PROPERTY) < len(tags):
        raise _Unusual
    return tuple([_property(item) for item in items])


def _property(element: etree._Element) -> Property:
    names = element.keys()
    if names == ["name"]:
        return Property(_attribute(element, "name"), _text(element))
    if names not in (["name", "type"], ["type", "name"]):
        raise _Unusual
    return Property(_attribute(element, "name"), _text(element), _attribute(element, "type"))


def _payload_info(element: etree._Element) -> tuple[PartInfo, ...]:
    items, tags = _children(element)
    if not items or tags.count(_PART_INFO) < len(tags):
        raise _Unusual
    parts = tuple([_part_info(item) for item in items])
    if len(parts) > 1 and len({content_id(part.href or "") for part in parts}) < len(parts):
        raise _Unusual
    return parts


def _part_info(element: etree._Element) -> PartInfo:
    names = element.keys()
    href = None
    if names:
        href = _attribute(element, "href")
        if names != ["href"] or not is_uri(href):
            raise _Unusual
    if len(element) == 0 and not element.text:
        return PartInfo(href)
    (properties,) = _children_like(element, _PART_PROPERTIES)
    return PartInfo(href, _properties(properties))


def _receipt_signal(element: etree._Element) -> SignalMessage:
    first, second = _children_like(element, _RECEIPT_SIGNAL)
    info = _message_info(first)
    if element.keys() or second.keys() or info.ref_to_message_id is None:
        raise _Unusual
    (content,) = second
    if content.tag in (_USER, _USER_COPY):
        receipt = Receipt(None, _user_message(content), content.tag == _USER)
    elif content.tag == _NON_REPUDIATION and len(content):
        receipt = Receipt(_non_repudiation(content))
    else:
        raise _Unusual
    return SignalMessage(info, None, receipt)


def _non_repudiation(element: etree._Element) -> NonRepudiationInformation:
    references = []
    for part in element:
        (reference,) = part
        if part.tag != _MESSAGE_PART or reference.tag != _REFERENCE:
            raise _Unusual
        references.append(read_reference(reference))
    return NonRepudiationInformation(tuple(references))


def _children(parent: etree._Element) -> tuple[list[etree._Element], list[object]]:
    """The children, with nothing but blanks between them, and their names."""
    text = parent.text
    if text is not None and text.strip(_BLANK):
        raise _Unusual
    found = list(parent)
    tags: list[object] = []
    for child in found:
        tags.append(child.tag)
        tail = child.tail
        if tail is not None and tail.strip(_BLANK):
            raise _Unusual
    return found, tags


def _children_like(parent: etree._Element, names: list[str]) -> list[etree._Element]:
    found, tags = _children(parent)
    if tags != names:
        raise _Unusual
    return found


def _plain(element: etree._Element) -> str:
    """The text of an element without attributes."""
    if element.keys():
        raise _Unusual
    return _text(element)


def _text(element: etree._Element) -> str:
    """The text of an element that has nothing below it; never empty."""
    text = element.text
    if text is None or len(element):
        raise _Unusual
    text = text.strip(_BLANK)
    if not text:
        raise _Unusual
    return text


def _type(element: etree._Element) -> str | None:
    names = element.keys()
    if not names:
        return None
    if names != ["type"]:
        raise _Unusual
    return _attribute(element, "type")


def _attribute(element: etree._Element, name: str) -> str:
    """An attribute that is there and not empty."""
    value = (element.get(name) or "").strip(_BLANK)
    if not value:
        raise _Unusual
    return value


def _refuse_long(*values: str | None) -> None:
    """Long values are not remembered: a bound on what all remembered ones take together."""
    if sum([len(value) for value in values if value is not None]) > _SHORT:
        raise _Unusual
