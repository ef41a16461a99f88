"""Reading plainly written units from the text of eb:Messaging, many times quicker than by elements.

Most products write eb:Messaging without white space between elements, and repeat parties, service
and the digests that are of all units. Here a unit is one match of a pattern, and what is repeated
is read once. The patterns know no comments, entities, CDATA or declarations beside the usual ones:
where anything else stands in an eb:Messaging all of it is left to the readers of elements
(`ebms3_usual`, `ebms3_user_messages`, `ebms3_signals`). So what is read here is the very value
that those would read, without a finding.
"""

import binascii
import re
from datetime import datetime
from functools import lru_cache
from typing import Final

from lxml import etree

from postroad.wire import xml
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
    Reference,
    Service,
    SignalMessage,
    Transform,
    Unit,
    UserMessage,
)
from postroad.wire.ebms3_user_messages import content_id, is_message_id, is_uri
from postroad.wire.names import DS, EBBP, TEST_ACTION, TEST_SERVICE

_REMEMBERED: Final = 512
_SHORT: Final = 2048
"""Longer texts are not remembered."""
_VALUE: Final = "([!-%'-;=?-~]+)"
_QUOTED: Final = '"([!#-%\'-;=?-~]+)"'
_TIME: Final = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z)"
_prefix: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,15}").fullmatch


class _Unusual(ValueError):
    """To be read by elements."""


class _Patterns:
    """How units look where their namespace has this prefix; `<~` and `</~` stand for it."""

    def __init__(self, prefix: str) -> None:
        def made(pattern: str) -> re.Pattern[str]:
            return re.compile(pattern.replace("<~", f"<{prefix}:").replace("</~", f"</{prefix}:"))

        info = (
            f"<~MessageInfo><~Timestamp>{_TIME}</~Timestamp><~MessageId>{_VALUE}</~MessageId>"
            f"(?:<~RefToMessageId>{_VALUE}</~RefToMessageId>)?</~MessageInfo>"
        )
        party = f"<~PartyId(?: type={_QUOTED})?>{_VALUE}</~PartyId><~Role>{_VALUE}</~Role>"
        self.user_message = made(f"<~UserMessage(?: mpc={_QUOTED})?>{info}<~PartyInfo>")
        self.conversation = made(
            f"<~ConversationId>{_VALUE}</~ConversationId></~CollaborationInfo>"
            "(?:(</~UserMessage>)|(<~MessageProperties>)|<~PayloadInfo>)"
        )
        self.after_properties = made("(</~UserMessage>)|<~PayloadInfo>")
        self.receipt = made(
            f'<~SignalMessage>{info}<~Receipt><ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}">'
        )
        self.parties = made(f"<~From>{party}</~From><~To>{party}</~To>")
        self.business = made(
            f"(?:<~AgreementRef(?: pmode={_QUOTED})?(?: type={_QUOTED})?>{_VALUE}</~AgreementRef>)?"
            f"<~Service(?: type={_QUOTED})?>{_VALUE}</~Service><~Action>{_VALUE}</~Action>"
        )
        self.property = made(
            f"<~Property name={_QUOTED}(?: type={_QUOTED})?>([ !-%'-;=?-~]+)</~Property>"
        )
        self.part = made(f"<~PartInfo(?: href={_QUOTED})?(?:/>|(><~PartProperties>))")
        self.user = f"<{prefix}:UserMessage"
        self.end_of_messaging = f"</{prefix}:Messaging>"
        self.end_of_parties = f"</{prefix}:PartyInfo><{prefix}:CollaborationInfo>"
        self.conversation_start = f"<{prefix}:ConversationId>"
        self.end_of_properties = f"</{prefix}:MessageProperties>"
        self.end_of_payload = f"</{prefix}:PayloadInfo></{prefix}:UserMessage>"
        self.end_of_part = f"</{prefix}:PartProperties></{prefix}:PartInfo>"
        self.end_of_receipt = (
            f"</ebbp:NonRepudiationInformation></{prefix}:Receipt></{prefix}:SignalMessage>"
        )


_patterns: Final = lru_cache(maxsize=16)(_Patterns)
_reference_form: Final = re.compile(
    f'<ds:Reference xmlns:ds="{DS}" URI="([!#-%\'-;=?-~]*)">'
    f"(?:<ds:Transforms>((?:<ds:Transform Algorithm={_QUOTED}/>)+)</ds:Transforms>)?"
    f"<ds:DigestMethod Algorithm={_QUOTED}/><ds:DigestValue>{_VALUE}</ds:DigestValue>"
)
_transform_form: Final = re.compile(f"<ds:Transform Algorithm={_QUOTED}/>")
_PART_START: Final = "<ebbp:MessagePartNRInformation>"
_PART_END: Final = "</ds:Reference></ebbp:MessagePartNRInformation>"


def plain_units(messaging: etree._Element) -> list[Unit] | None:
    """The units of an eb:Messaging, in document order, if all are written plainly."""
    prefix = messaging.prefix
    if prefix is None or not _prefix(prefix):
        return None
    try:
        return _units(xml.written(messaging), _patterns(prefix))
    except ValueError:
        return None


def _units(text: str, like: _Patterns) -> list[Unit]:
    at = text.index(">") + 1
    units: list[Unit] = []
    while not text.startswith(like.end_of_messaging, at):
        unit: Unit
        if text.startswith(like.user, at):
            unit, at = _user_message(text, at, like)
        else:
            unit, at = _receipt(text, at, like)
        units.append(unit)
    return units


def _matched(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        raise _Unusual
    return found


def _user_message(text: str, at: int, like: _Patterns) -> tuple[UserMessage, int]:
    """A user message, and where it ends."""
    head = _matched(like.user_message, text, at)
    mpc, time, id, ref = head.groups()
    if mpc is not None and not is_uri(mpc):
        raise _Unusual
    end = text.index(like.conversation_start, head.end())
    sender, receiver, service, action, agreement = _terms(_short(text, head.end(), end), like)
    found = _matched(like.conversation, text, end)
    conversation, ended, has_properties = found.groups()
    at = found.end()
    properties: tuple[Property, ...] = ()
    parts: tuple[PartInfo, ...] = ()
    if has_properties:
        end = text.index(like.end_of_properties, at)
        properties = _properties(text[at:end], like)
        at = end + len(like.end_of_properties)
        found = _matched(like.after_properties, text, at)
        ended, at = found[1], found.end()
    if not ended:
        end = text.index(like.end_of_payload, at)
        parts = _payload_info(text[at:end], like)
        at = end + len(like.end_of_payload)
    business = CollaborationInfo(service, action, conversation, agreement)
    info = _message_info(time, id, ref)
    return UserMessage(info, sender, receiver, business, properties, parts, mpc), at


def _short(text: str, at: int, end: int) -> str:
    """What is going to be remembered, unless it is long."""
    if end - at > _SHORT:
        raise _Unusual
    return text[at:end]


def _message_info(time: str, id: str, ref: str | None) -> MessageInfo:
    if not is_message_id(id) or not (ref is None or is_message_id(ref)):
        raise _Unusual
    return MessageInfo(datetime.fromisoformat(time), id, ref)


@lru_cache(_REMEMBERED)
def _terms(text: str, like: _Patterns) -> tuple[Party, Party, Service, str, AgreementRef | None]:
    """Parties, service and agreement: those of a P-Mode are the same in all its messages."""
    end = text.index(like.end_of_parties)
    business = text[end + len(like.end_of_parties) :]
    return *_parties(text[:end], like), *_business(business, like)


def _parties(text: str, like: _Patterns) -> tuple[Party, Party]:
    found = like.parties.fullmatch(text)
    if found is None:
        raise _Unusual
    kind, value, role, other_kind, other_value, other_role = found.groups()
    for type, id in ((kind, value), (other_kind, other_value)):
        if type is None and not is_uri(id):
            raise _Unusual
    sender, receiver = PartyId(value, kind), PartyId(other_value, other_kind)
    return Party((sender,), role), Party((receiver,), other_role)


def _business(text: str, like: _Patterns) -> tuple[Service, str, AgreementRef | None]:
    found = like.business.fullmatch(text)
    if found is None:
        raise _Unusual
    pmode, kind, agreement, type, service, action = found.groups()
    if (type is None and not is_uri(service)) or (
        action == TEST_ACTION and service != TEST_SERVICE
    ):
        raise _Unusual
    if agreement is None:
        return Service(service, type), action, None
    if kind is None and not is_uri(agreement):
        raise _Unusual
    return Service(service, type), action, AgreementRef(agreement, kind, pmode)


def _properties(text: str, like: _Patterns) -> tuple[Property, ...]:
    found, at = [], 0
    while at < len(text):
        one = _matched(like.property, text, at)
        name, type, value = one.groups()
        if value[0] == " " or value[-1] == " ":
            raise _Unusual
        found.append(Property(name, value, type))
        at = one.end()
    if not found:
        raise _Unusual
    return tuple(found)


_part_properties: Final = lru_cache(_REMEMBERED)(_properties)


def _payload_info(text: str, like: _Patterns) -> tuple[PartInfo, ...]:
    found, at = [], 0
    while at < len(text):
        one = _matched(like.part, text, at)
        href, has_properties = one.groups()
        if href is not None and not is_uri(href):
            raise _Unusual
        at = one.end()
        properties: tuple[Property, ...] = ()
        if has_properties:
            end = text.index(like.end_of_part, at)
            properties = _part_properties(_short(text, at, end), like)
            at = end + len(like.end_of_part)
        found.append(PartInfo(href, properties))
    if len(found) != 1 and len({content_id(one.href or "") for one in found}) < len(found):
        raise _Unusual
    if not found:
        raise _Unusual
    return tuple(found)


def _receipt(text: str, at: int, like: _Patterns) -> tuple[SignalMessage, int]:
    """A receipt that lists digests, and where it ends."""
    head = _matched(like.receipt, text, at)
    time, id, ref = head.groups()
    end = text.index(like.end_of_receipt, head.end())
    *pieces, rest = text[head.end() : end].split(_PART_END)
    if ref is None or rest or not pieces or max(map(len, pieces)) > _SHORT:
        raise _Unusual
    information = NonRepudiationInformation(tuple([_reference(one) for one in pieces]))
    signal = SignalMessage(_message_info(time, id, ref), None, Receipt(information))
    return signal, end + len(like.end_of_receipt)


@lru_cache(_REMEMBERED)
def _reference(text: str) -> Reference:
    if not text.startswith(_PART_START):
        raise _Unusual
    found = _reference_form.fullmatch(text, len(_PART_START))
    if found is None:
        raise _Unusual
    uri, transforms, _, method, value = found.groups()
    digest = binascii.a2b_base64(value, strict_mode=True)
    if not digest:
        raise _Unusual
    applied = _transform_form.findall(transforms) if transforms else ()
    return Reference(uri, tuple([_transform(one) for one in applied]), method, digest)


_transform: Final = lru_cache(maxsize=64)(Transform)
