"""Reading the MessageHeader of an ebXML message, and what its elements share with others."""

import re
from datetime import datetime
from typing import Final

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import Description, Party, PartyId, Service
from postroad.wire.ebms3_user_messages import EPOCH, is_message_id, quoted
from postroad.wire.ebxml import (
    CONTINUE,
    DELIVERY_SEMANTICS,
    GUARANTEED,
    MESSAGE_TYPES,
    MOST_SEQUENCE_NUMBER,
    ORDER_SEMANTICS,
    RELIABLE,
    REQUESTS,
    RESET,
    STATUSES,
    MessageHeader,
    SequenceNumber,
)
from postroad.wire.ebxml_findings import (
    BLANK,
    MUST_UNDERSTAND,
    TRUE,
    Children,
    Findings,
    Model,
    attribute,
    attributes,
    children,
    extensions,
    filled,
    language,
    leaf,
    must_be_uri,
    place,
    time,
    word,
)
from postroad.wire.names import EBRM

_OLD_HEADER: Final = Model(
    "From To CPAId ConversationId Service Action MessageData QualityOfServiceInfo? "
    "SequenceNumber? Description*"
)
_LINK_ANSWER: Final = Model(
    "From To CPAId ConversationId MessageData QualityOfServiceInfo? Description*", open=True
)
"""An acknowledgement or error of draft 001: it has MessageType, and neither Service nor Action."""
_MESSAGE_TYPE: Final = f"{{{EBRM}}}MessageType"
_HEADER_20: Final = Model(
    "From To CPAId ConversationId Service Action MessageData DuplicateElimination? Description*",
    open=True,
)
_MESSAGE_DATA: Final = Model("MessageId Timestamp RefToMessageId? TimeToLive?")
_ONE_PARTY: Final = Model("PartyId")
_PARTIES: Final = Model("PartyId+")
_PARTIES_20: Final = Model("PartyId+ Role?")
_NO_CHILDREN: Final = Model("")
_QUALITIES: Final = ("deliverySemantics", "messageOrderSemantics", "deliveryReceiptRequested")
_NOBODY: Final = Party((), "")
_number: Final = re.compile(r"[0-9]{1,20}", re.ASCII).fullmatch


def extension_attributes(
    element: etree._Element,
    findings: Findings,
    known: tuple[str, ...] = (),
    *,
    must_understand: bool = True,
) -> None:
    """The attributes that ebXML elements share: version and mustUnderstand.

    [MS098-8.4.10-02] [MS098-8.4.11-01]
    """
    attributes(element, ("id", "version", *known), findings)
    _version(element, findings)
    if not must_understand:
        return
    value = element.get(MUST_UNDERSTAND)
    if value is None or value.strip(BLANK) not in TRUE:
        found = "it is missing" if value is None else f"found {quoted(value)}"
        findings.add(
            "OtherXml",
            element,
            f"mustUnderstand of {xml.local(element)} must be 1, {found}",
            attribute="" if value is None else "SOAP-ENV:mustUnderstand",
        )


def _version(element: etree._Element, findings: Findings) -> None:
    dialect = findings.dialect
    name = xml.local(element)
    version = attribute(element, "version", findings, qualified=True)
    if version is None:
        findings.add("OtherXml", element, f"{name} must have the attribute version")
    elif version in dialect.versions[1:]:
        findings.forgive(
            "ValueNotRecognized",
            element,
            f"the version is written {dialect.version}, found {quoted(version)}",
            attribute="eb:version",
        )
    elif version != dialect.version:
        first = name == "MessageHeader"
        findings.add(
            "ValueNotRecognized" if first else "Inconsistent",
            element,
            f"the version of {name} is {quoted(version)}, expected {dialect.version}",
            attribute="eb:version",
        )


def message_header(element: etree._Element, findings: Findings) -> MessageHeader:
    old = findings.dialect.has_quality_of_service
    typed = element.find(_MESSAGE_TYPE) if findings.dialect.has_trace else None
    model = _OLD_HEADER if old else _HEADER_20
    found = children(element, model if typed is None else _LINK_ANSWER, findings)
    extension_attributes(element, findings)
    senders, receivers = found.first("From"), found.first("To")
    services, duplicates = found.first("Service"), found.first("DuplicateElimination")
    message_id, timestamp, ref, live = _message_data(found.first("MessageData"), findings)
    delivery, order, receipt = _quality(found.first("QualityOfServiceInfo"), findings)
    if duplicates is not None and leaf(duplicates, findings):
        findings.forgive("OtherXml", duplicates, "DuplicateElimination must be empty")
    return MessageHeader(
        from_party=_NOBODY if senders is None else party(senders, findings),
        to_party=_NOBODY if receivers is None else party(receivers, findings),
        cpa_id=filled(found.first("CPAId"), findings),
        conversation_id=filled(found.first("ConversationId"), findings),
        service=Service("") if services is None else service(services, findings),
        action="" if typed is not None else filled(found.first("Action"), findings),
        message_id=message_id,
        timestamp=timestamp,
        ref_to_message_id=ref,
        time_to_live=live,
        delivery_semantics=delivery,
        message_order_semantics=order,
        delivery_receipt_requested=receipt,
        sequence_number=_numbered(found.first("SequenceNumber"), delivery, findings),
        duplicate_elimination=duplicates is not None,
        descriptions=descriptions(found, findings),
        extensions=extensions([one for one in found.foreign if one is not typed], findings),
        message_type=None if typed is None else _message_type(typed, findings),
    )


def _message_type(element: etree._Element, findings: Findings) -> str:
    """The MessageType of draft 001, which only its answers have here. [RM001-2.6.7-01]"""
    text = leaf(element, findings)
    if text not in MESSAGE_TYPES:
        expected = " or ".join(MESSAGE_TYPES)
        findings.add("OtherXml", element, f"MessageType is {expected}, found {quoted(text)}")
    return text


def _message_data(
    element: etree._Element | None, findings: Findings
) -> tuple[str, datetime, str | None, datetime | None]:
    if element is None:
        return "", EPOCH, None, None
    found = children(element, _MESSAGE_DATA, findings)
    attributes(element, (), findings)
    live, ref = found.first("TimeToLive"), found.first("RefToMessageId")
    return (
        message_id(found.first("MessageId"), findings),
        time(found.first("Timestamp"), findings),
        None if ref is None else message_id(ref, findings) or None,
        None if live is None else time(live, findings),
    )


def message_id(element: etree._Element | None, findings: Findings) -> str:
    """A message id in the form of RFC 2392; only a missing @ is excused. [MS098-8.4.6.1-01]"""
    value = filled(element, findings)
    if element is None or not value or is_message_id(value):
        return value
    if "<" in value or ">" in value or len(value.split(None, 1)) > 1:
        findings.add(
            "OtherXml",
            element,
            f"a message id has no angle brackets and no white space, found {quoted(value)}",
        )
    else:
        findings.warn("OtherXml", element, f"expected the form left@right, found {quoted(value)}")
    return value


def party(element: etree._Element, findings: Findings) -> Party:
    """From or To. The samples have the id at once in it, without a PartyId."""
    dialect = findings.dialect
    bare = next(element.iterchildren("*"), None) is None and leaf(element, findings, ("type",))
    if bare:
        findings.forgive("OtherXml", element, f"{xml.local(element)} must hold a PartyId, not text")
        return Party((party_id(element, findings),), "")
    attributes(element, (), findings)
    if dialect.has_role:
        found = children(element, _PARTIES_20, findings)
    else:
        found = children(element, _PARTIES if dialect.many_party_ids else _ONE_PARTY, findings)
    role = found.first("Role")
    ids = tuple(party_id(one, findings) for one in found.all("PartyId"))
    return Party(ids, "" if role is None else filled(role, findings))


def party_id(element: etree._Element, findings: Findings) -> PartyId:
    value = filled(element, findings, ("type",))
    type = attribute(element, "type", findings)
    if type is None:
        must_be_uri(value, element, findings)
    return PartyId(value, type)


def service(element: etree._Element, findings: Findings, *, forgiven: bool = False) -> Service:
    """`forgiven`: the sample of a Via has a Service that is no URI."""
    value = filled(element, findings, ("type",))
    type = attribute(element, "type", findings)
    if type is None:
        must_be_uri(value, element, findings, forgiven=forgiven)
    return Service(value, type)


def _quality(
    element: etree._Element | None, findings: Findings
) -> tuple[str | None, str | None, str | None]:
    """deliverySemantics, messageOrderSemantics, deliveryReceiptRequested.

    Where the header does not say how a message is delivered, the CPA does: it is not judged here.
    [MS098-8.4.7.2-04]
    """
    if element is None:
        return None, None, None
    children(element, _NO_CHILDREN, findings)
    attributes(element, _QUALITIES, findings)
    delivery = word(element, "deliverySemantics", DELIVERY_SEMANTICS, findings, code="NotSupported")
    order = word(element, "messageOrderSemantics", ORDER_SEMANTICS, findings, code="NotSupported")
    receipt = word(element, "deliveryReceiptRequested", REQUESTS, findings, any_case=True)
    if order == GUARANTEED and delivery is not None and delivery not in RELIABLE:
        findings.add(
            "Inconsistent",
            element,
            f"only OnceAndOnlyOnce guarantees order, deliverySemantics is {delivery}",
            attribute=place(element, "messageOrderSemantics", findings),
        )
    return delivery, order, receipt


def _numbered(
    element: etree._Element | None, delivery: str | None, findings: Findings
) -> SequenceNumber | None:
    """[MS098-8.4.8-05]"""
    if element is None:
        return None
    if delivery is not None and delivery not in RELIABLE:
        findings.add(
            "Inconsistent",
            element,
            f"a SequenceNumber needs OnceAndOnlyOnce, deliverySemantics is {delivery}",
        )
    return sequence_number(element, findings)


def sequence_number(element: etree._Element, findings: Findings) -> SequenceNumber | None:
    """None where it is no number at all."""
    text = filled(element, findings, ("status",))
    status = word(element, "status", STATUSES, findings) or CONTINUE
    if not text:
        return None
    if not _number(text) or int(text) > MOST_SEQUENCE_NUMBER:
        findings.add(
            "OtherXml",
            element,
            f"a SequenceNumber is one of 0 to {MOST_SEQUENCE_NUMBER}, found {quoted(text)}",
        )
        return None
    if status == RESET and int(text):
        findings.add(
            "Inconsistent",
            element,
            f"after a Reset the SequenceNumber is 0, found {text}",
            attribute=place(element, "status", findings),
        )
    return SequenceNumber(int(text), status)


def descriptions(found: Children, findings: Findings) -> tuple[Description, ...]:
    """The Descriptions of an element, each in another language. [MS098-8.4.9-02]"""
    values = []
    languages: set[str] = set()
    for element in found.all("Description"):
        lang = language(element, findings)
        if lang in languages:
            findings.warn("OtherXml", element, f"there are two Descriptions in {lang}")
        languages.add(lang)
        values.append(Description(leaf(element, findings), lang))
    return tuple(values)
