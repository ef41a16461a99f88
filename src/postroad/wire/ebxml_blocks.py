"""Reading the ebXML elements beside the MessageHeader: of the Header, then of the Body."""

import re
from typing import Final

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3 import PartyId, Reference, Schema
from postroad.wire.ebms3_signals import read_reference
from postroad.wire.ebms3_user_messages import content_id, is_uri, quoted
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    ERROR,
    METHODS,
    MOST_LINK_NUMBER,
    NOT_RECOGNIZED,
    REQUESTS,
    SEVERITIES,
    UNAUTHORIZED,
    Acknowledgment,
    AckRequested,
    Error,
    ErrorList,
    Manifest,
    ManifestReference,
    SequenceNumber,
    StatusData,
    StatusRequest,
    TraceHeader,
    Via,
)
from postroad.wire.ebxml_findings import (
    ACTOR,
    BLANK,
    LANG,
    Findings,
    Model,
    attribute,
    attributes,
    boolean,
    children,
    extensions,
    filled,
    language,
    leaf,
    own_text,
    place,
    required,
    time,
    word,
    xml_id,
)
from postroad.wire.ebxml_header import (
    descriptions,
    extension_attributes,
    message_id,
    party,
    party_id,
    sequence_number,
    service,
)
from postroad.wire.errors import EbmsError
from postroad.wire.names import DS, EB2_NEXT_MSH, EB2_TO_PARTY_MSH, EBRM, S11_NEXT, XLINK

_TRACE_LIST: Final = Model("TraceHeader+")
_TRACE: Final = Model("SenderURI ReceiverURI Timestamp", open=True)
_TRACE_BY_PARTY: Final = Model("Sender Receiver Timestamp", open=True)
_STATION: Final = Model("PartyId* Location")
_VIA: Final = Model("CPAId? Service? Action?")
_NOTHING: Final = Model("", open=True)
_ORDER: Final = Model("SequenceNumber", open=True)
_ACKNOWLEDGMENT: Final = Model("Timestamp RefToMessageId? From?", open=True)
_ACKNOWLEDGMENT_20: Final = Model("Timestamp RefToMessageId From?", open=True)
_ERROR_LIST: Final = Model("Error+", open=True)
_ERROR: Final = Model("Description?", open=True, mixed=True)
_MANIFEST: Final = Model("Reference+", open=True)
_REFERENCE: Final = Model("Schema* Description*", open=True)
_STATUS_REQUEST: Final = Model("RefToMessageId", open=True)
_STATUS_DATA: Final = Model("RefToMessageId Timestamp?", open=True)
_LINK_NUMBER: Final = f"{{{EBRM}}}SequenceNumber"
_RETRY: Final = "MinRetrySecs"
_CODES: Final = {"NotRecognized": "ValueNotRecognized"}
"""8.4.2 names a code that the list of codes does not have."""
_DS_REFERENCE: Final = f"{{{DS}}}Reference"
_number: Final = re.compile(r"[0-9]{1,10}", re.ASCII).fullmatch


def trace_header_list(
    element: etree._Element, findings: Findings
) -> tuple[tuple[TraceHeader, ...], Via | None]:
    """The TraceHeaders; and what the last one asks of the next MSH, as section 10 has it once."""
    extension_attributes(element, findings)
    found = children(element, _TRACE_LIST, findings)
    headers = found.all("TraceHeader")
    asked = None
    if headers:
        name = "intermediateAckRequested"
        name = name if attribute(headers[-1], name, findings) else "ackRequested"
        asked = word(headers[-1], name, REQUESTS, findings, any_case=True)
    if asked is not None:
        findings.forgive(
            "OtherXml", headers[-1], "ackRequested belongs in Via", attribute="ackRequested"
        )
    traces = tuple(_trace_header(one, findings) for one in headers)
    return traces, None if asked is None else Via(ack_requested=asked)


def _trace_header(element: etree._Element, findings: Findings) -> TraceHeader:
    attributes(element, ("id", "ackRequested", "intermediateAckRequested"), findings)
    by_party = findings.dialect.trace_by_party
    found = children(element, _TRACE_BY_PARTY if by_party else _TRACE, findings)
    if by_party:
        sender, sender_uri = _station(found.first("Sender"), findings)
        receiver, receiver_uri = _station(found.first("Receiver"), findings)
    else:
        sender = receiver = None
        sender_uri = _uri(found.first("SenderURI"), findings)
        receiver_uri = _uri(found.first("ReceiverURI"), findings)
    number = None
    for one in found.foreign:
        if one.tag == _LINK_NUMBER:
            number = _link_number(one, findings)
    others = [one for one in found.foreign if one.tag != _LINK_NUMBER]
    return TraceHeader(
        sender_uri,
        receiver_uri,
        time(found.first("Timestamp"), findings),
        number,
        extensions(others, findings),
        sender,
        receiver,
    )


def _station(element: etree._Element | None, findings: Findings) -> tuple[PartyId | None, str]:
    if element is None:
        return None, ""
    found = children(element, _STATION, findings)
    ids = [party_id(one, findings) for one in found.all("PartyId")]
    return (ids[0] if ids else None), _uri(found.first("Location"), findings)


def _uri(element: etree._Element | None, findings: Findings) -> str:
    value = filled(element, findings)
    if element is not None and value and not is_uri(value):
        sentence = f"{xml.local(element)} must be a URI, found {quoted(value)}"
        findings.add("OtherXml", element, sentence)
    return value


def _link_number(element: etree._Element, findings: Findings) -> int | None:
    """Draft 001's number. [RM001-2.2.3-05]"""
    text = leaf(element, findings)
    if _number(text) and 1 <= int(text) <= MOST_LINK_NUMBER:
        return int(text)
    sentence = f"expected a number of 1 to {MOST_LINK_NUMBER}, found {quoted(text)}"
    findings.add("OtherXml", element, sentence)
    return None


def via(element: etree._Element, findings: Findings) -> Via:
    extension_attributes(
        element, findings, ("syncReply", "reliableMessagingMethod", "ackRequested")
    )
    _actor(element, (S11_NEXT,), findings)
    found = children(element, _VIA, findings)
    cpa_id, services, action = (found.first(name) for name in ("CPAId", "Service", "Action"))
    if (services is None) is not (action is None):
        sentence = "Service and Action stand in a Via both or not at all"
        findings.add("Inconsistent", services if action is None else action, sentence)  # type: ignore[arg-type]
    value = Via(
        sync_reply=boolean(element, "syncReply", findings),
        reliable_messaging_method=word(
            element, "reliableMessagingMethod", METHODS, findings, exact=True
        ),
        ack_requested=word(element, "ackRequested", REQUESTS, findings, any_case=True),
        cpa_id=None if cpa_id is None else filled(cpa_id, findings),
        service=None if services is None else service(services, findings, forgiven=True),
        action=None if action is None else filled(action, findings),
    )
    said = ("syncReply", "reliableMessagingMethod", "ackRequested")
    if cpa_id is None and not any(attribute(element, name, findings) for name in said):
        sentence = f"a Via must have {', '.join(said)} or a CPAId"
        findings.add("OtherXml", element, sentence)
    return value


def _actor(element: etree._Element, allowed: tuple[str, ...], findings: Findings) -> str | None:
    """The SOAP actor, where there must be one of these. [MS098-8.6-02]"""
    actor = element.get(ACTOR)
    value = None if actor is None else actor.strip(BLANK)
    if value not in allowed:
        found = "it is missing" if value is None else f"found {quoted(value)}"
        findings.add(
            "OtherXml",
            element,
            f"the actor of {xml.local(element)} must be {' or '.join(allowed)}, {found}",
            attribute="" if value is None else "SOAP-ENV:actor",
        )
    return value


def sync_reply(element: etree._Element, findings: Findings) -> None:
    extension_attributes(element, findings)
    _actor(element, (S11_NEXT,), findings)
    children(element, _NOTHING, findings)


def message_order(element: etree._Element, findings: Findings) -> SequenceNumber | None:
    extension_attributes(element, findings)
    number = children(element, _ORDER, findings).first("SequenceNumber")
    return None if number is None else sequence_number(number, findings)


def ack_requested(element: etree._Element, findings: Findings) -> AckRequested:
    extension_attributes(element, findings, ("signed",))
    children(element, _NOTHING, findings)
    required(element, "signed", findings)
    return AckRequested(bool(boolean(element, "signed", findings)), _msh_actor(element, findings))


def _msh_actor(element: etree._Element, findings: Findings) -> str | None:
    """None means the MSH of the To Party; 0.98b and 1.0 know no actors."""
    if element.get(ACTOR) is None or findings.dialect.has_trace:
        return None
    return _actor(element, (EB2_TO_PARTY_MSH, EB2_NEXT_MSH), findings)


def acknowledgment(element: etree._Element, findings: Findings) -> Acknowledgment:
    dialect = findings.dialect
    receipt = xml.local(element) == DELIVERY_RECEIPT
    extension_attributes(element, findings, ("type", "signed"))
    model = _ACKNOWLEDGMENT_20 if dialect.acknowledgment_refers else _ACKNOWLEDGMENT
    found = children(element, model, findings)
    ref, sender = found.first("RefToMessageId"), found.first("From")
    references = _ds_references(found.foreign, findings)
    actor = _msh_actor(element, findings)
    if dialect.has_trace:
        type = DELIVERY_RECEIPT if receipt else _type(element, findings)
        signed = bool(boolean(element, "signed", findings))
    else:
        type = ACKNOWLEDGMENT if actor == EB2_NEXT_MSH else DELIVERY_RECEIPT
        signed = bool(references)
    return Acknowledgment(
        timestamp=time(found.first("Timestamp"), findings),
        type=type,
        signed=signed,
        from_party=None if sender is None else party(sender, findings),
        ref_to_message_id=None if ref is None else message_id(ref, findings) or None,
        references=references,
        actor=actor,
    )


def _type(element: etree._Element, findings: Findings) -> str:
    """Who acknowledges; the To Party where nothing is said, or not what 1.0 says by the element."""
    words = (DELIVERY_RECEIPT, ACKNOWLEDGMENT, "Acknowledgement", "IntermediateAcknowledgment")
    value = word(element, "type", words, findings)
    if value is None:
        return ACKNOWLEDGMENT if findings.dialect.has_delivery_receipt else DELIVERY_RECEIPT
    return DELIVERY_RECEIPT if value == DELIVERY_RECEIPT else ACKNOWLEDGMENT


def _ds_references(elements: list[etree._Element], findings: Findings) -> tuple[Reference, ...]:
    references = []
    for element in elements:
        if element.tag != _DS_REFERENCE:
            continue
        try:
            references.append(read_reference(element))
        except EbmsError as error:
            findings.add("OtherXml", element, error.detail)
    return tuple(references)


def error_list(element: etree._Element, findings: Findings) -> ErrorList:
    extension_attributes(element, findings, ("highestSeverity",))
    found = children(element, _ERROR_LIST, findings)
    errors = tuple(_error(one, findings) for one in found.all("Error"))
    value = ErrorList(errors, xml_id(element, findings, needed=False))
    said = word(element, "highestSeverity", SEVERITIES, findings, any_case=True)
    if said is None:
        sentence = "the attribute highestSeverity is missing"
        findings.forgive("OtherXml", element, sentence)
    elif errors and said != value.highest_severity:
        findings.forgive(
            "Inconsistent",
            element,
            f"the highest severity is {value.highest_severity}, highestSeverity says {said}",
            attribute=place(element, "highestSeverity", findings),
        )
    return value


def _error(element: etree._Element, findings: Findings) -> Error:
    names = ("id", "codeContext", "errorCode", "severity", "location", _RETRY)
    attributes(element, names, findings)
    found = children(element, _ERROR, findings)
    description = found.first("Description")
    context = attribute(element, "codeContext", findings)
    if context is not None and not is_uri(context):
        sentence = f"codeContext must be a URI, found {quoted(context)}"
        findings.forgive("OtherXml", element, sentence, attribute="eb:codeContext")
    code = required(element, "errorCode", findings) or ""
    severity = word(element, "severity", SEVERITIES, findings, any_case=True)
    if severity is None:
        findings.forgive("OtherXml", element, "the severity is not told; it counts as Error")
    return Error(
        error_code=_CODES.get(code, code),
        severity=severity or ERROR,
        code_context=context or findings.dialect.error_code_context,
        location=attribute(element, "location", findings),
        text=own_text(element) if description is None else leaf(description, findings),
        lang=_lang(element, findings) if description is None else language(description, findings),
        min_retry_secs=_retry(element, found.foreign, findings),
    )


def _lang(element: etree._Element, findings: Findings) -> str:
    """The language of an Error, which need not say it."""
    return "en" if element.get(LANG) is None else language(element, findings)


def _retry(
    element: etree._Element, foreign: list[etree._Element], findings: Findings
) -> int | None:
    """Draft 001's MinRetrySecs, which has no place in any schema: an attribute or an element."""
    values = [element.get(name) for name in (f"{{{EBRM}}}{_RETRY}", _RETRY)]
    values += [element.get(findings.dialect.tag(_RETRY))]
    values += [own_text(one) for one in foreign if xml.local(one) == _RETRY]
    text = next((value.strip(BLANK) for value in values if value is not None), None)
    if text is None or _number(text):
        return None if text is None else int(text)
    findings.forgive("OtherXml", element, f"{_RETRY} is a number of seconds, found {quoted(text)}")
    return None


def manifest(element: etree._Element, findings: Findings) -> Manifest:
    dialect = findings.dialect
    extension_attributes(element, findings, must_understand=dialect.body_must_understand)
    found = children(element, _MANIFEST, findings)
    references = tuple(_reference(one, findings) for one in found.all("Reference"))
    seen: set[str] = set()
    for one, value in zip(found.all("Reference"), references, strict=True):
        target = content_id(value.href)
        if target in seen:
            findings.add("NotSupported", one, f"two References name {quoted(value.href)}")
        seen.add(target)
    return Manifest(
        references,
        xml_id(element, findings, needed=dialect.ids_required),
        extensions(found.foreign, findings),
    )


def _reference(element: etree._Element, findings: Findings) -> ManifestReference:
    attributes(element, ("id", "href", "role", "type"), findings)
    found = children(element, _REFERENCE, findings)
    kind = _xlink(element, "type", findings)
    if kind not in (None, "simple"):
        sentence = f"a Reference is a simple link, xlink:type is {quoted(kind or '')}"
        findings.add("OtherXml", element, sentence, attribute="xlink:type")
    href, role = _xlink(element, "href", findings), _xlink(element, "role", findings)
    if href is None:
        findings.add("OtherXml", element, "a Reference must have an xlink:href")
    for name, value in (("href", href), ("role", role)):
        if value is not None and not is_uri(value):
            sentence = f"xlink:{name} must be a URI, found {quoted(value)}"
            findings.add("OtherXml", element, sentence, attribute=f"xlink:{name}")
    return ManifestReference(
        href=href or "",
        id=xml_id(element, findings, needed=findings.dialect.ids_required),
        role=role,
        schemas=tuple(_schema(one, findings) for one in found.all("Schema")),
        descriptions=descriptions(found, findings),
        extensions=extensions(found.foreign, findings),
    )


def _xlink(element: etree._Element, name: str, findings: Findings) -> str | None:
    """An attribute of XLink; of another draft's namespace, or of none, it is forgiven."""
    value = element.get(f"{{{XLINK}}}{name}")
    if value is None:
        for key, other in ((str(one), str(value)) for one, value in element.items()):
            if key == name or (key.endswith(f"/xlink}}{name}") and key[0] == "{"):
                sentence = f"the attribute {name} must be of the namespace {XLINK}"
                findings.forgive("OtherXml", element, sentence)
                value = other
    return None if value is None else value.strip(BLANK)


def _schema(element: etree._Element, findings: Findings) -> Schema:
    attributes(element, ("location", "version", "namespace"), findings)
    if leaf(element, findings, ("location", "version", "namespace")):
        findings.add("OtherXml", element, "a Schema must be empty, found text in it")
    return Schema(
        required(element, "location", findings) or "", attribute(element, "version", findings)
    )


def status_request(element: etree._Element, findings: Findings) -> StatusRequest:
    must_understand = findings.dialect.body_must_understand
    extension_attributes(element, findings, must_understand=must_understand)
    found = children(element, _STATUS_REQUEST, findings)
    return StatusRequest(message_id(found.first("RefToMessageId"), findings))


def status_data(element: etree._Element, findings: Findings) -> StatusData:
    dialect = findings.dialect
    extension_attributes(
        element, findings, ("messageStatus",), must_understand=dialect.body_must_understand
    )
    found = children(element, _STATUS_DATA, findings)
    required(element, "messageStatus", findings)
    status = word(element, "messageStatus", dialect.message_statuses, findings) or ""
    received = found.first("Timestamp")
    if received is not None and status in (UNAUTHORIZED, NOT_RECOGNIZED):
        findings.forgive("Inconsistent", received, f"with {status} there is no Timestamp")
    return StatusData(
        message_id(found.first("RefToMessageId"), findings),
        status,
        None if received is None else time(received, findings),
    )
