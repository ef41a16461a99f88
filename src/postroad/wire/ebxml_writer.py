"""Writing ebXML messages by templates.

What must not be sent is refused with a ValueError: values that are missing or that no reader would
get back as they are, elements that the version does not have, combinations that the specification
forbids (`ebxml_sendable`). Text for people (Description, the text of an Error) is never refused:
there, what XML cannot hold is replaced and white space is trimmed.

Nothing but elements stands between the elements of the Header, so that what is added and taken
away on the way (`ebxml_hops`) leaves no trace in what a signature covers.
"""

from typing import Final

from postroad.wire.ebms3 import Description, Party, PartyId, Reference, Schema, Service
from postroad.wire.ebms3_writer import write_reference, write_timestamp
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    DELIVERY_SEMANTICS,
    MESSAGE_TYPES,
    METHODS,
    ORDER_SEMANTICS,
    REQUESTS,
    SEVERITIES,
    STATUSES,
    Acknowledgment,
    AckRequested,
    Dialect,
    EbxmlMessage,
    Error,
    ErrorList,
    Manifest,
    ManifestReference,
    MessageHeader,
    SequenceNumber,
    StatusData,
    TraceHeader,
    Via,
)
from postroad.wire.ebxml_extensions import write_extensions
from postroad.wire.ebxml_findings import BLANK
from postroad.wire.ebxml_sendable import (
    check_error,
    check_link_number,
    check_sendable,
    check_via,
    language,
    one_of,
    text,
    uri,
    value,
    xml_id,
)
from postroad.wire.names import EB2_NEXT_MSH, EBRM, S11, S11_NEXT, XLINK, XPATH
from postroad.wire.soap import legible
from postroad.wire.xml import escape, escape_attribute

_SOAP: Final = f' xmlns:SOAP-ENV="{S11}"'
_MUST: Final = ' SOAP-ENV:mustUnderstand="1"'
_NEXT: Final = f' SOAP-ENV:actor="{S11_NEXT}"'


def write_ebxml(message: EbxmlMessage) -> bytes:
    """The envelope of a message; ValueError for what must not be sent."""
    check_sendable(message)
    dialect = message.dialect
    blocks = [_header(message.header, dialect)]
    if message.trace:
        blocks.append(write_trace_header_list(message.trace, dialect))
    if message.via is not None:
        blocks.append(write_via(message.via, dialect))
    if message.sync_reply:
        blocks.append(f"<eb:SyncReply{_common(dialect)}{_NEXT}></eb:SyncReply>")
    if message.header.sequence_number is not None and not dialect.has_quality_of_service:
        number = _sequence_number(message.header.sequence_number)
        blocks.append(f"<eb:MessageOrder{_common(dialect)}>{number}</eb:MessageOrder>")
    blocks += [_ack_requested(one, dialect) for one in message.ack_requested]
    if message.error_list is not None:
        blocks.append(_error_list(message.error_list, dialect))
    body = [] if message.manifest is None else [_manifest(message.manifest, dialect)]
    if message.status_request is not None:
        ref = _ref(message.status_request.ref_to_message_id)
        body.append(f"<eb:StatusRequest{_body(dialect)}>{ref}</eb:StatusRequest>")
    if message.status_data is not None:
        body.append(_status_data(message.status_data, dialect))
    if message.acknowledgment is not None:
        _acknowledge(message, message.acknowledgment, blocks, body)
    xlink = "" if message.manifest is None else f' xmlns:xlink="{XLINK}"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<SOAP-ENV:Envelope{_SOAP} xmlns:eb="{dialect.namespace}"{xlink}>'
        f"<SOAP-ENV:Header>{''.join(blocks)}</SOAP-ENV:Header>"
        f"<SOAP-ENV:Body>{''.join(body)}</SOAP-ENV:Body>"
        "</SOAP-ENV:Envelope>"
    ).encode()


def _common(dialect: Dialect) -> str:
    return f'{_MUST} eb:version="{dialect.version}"'


def _body(dialect: Dialect) -> str:
    return f'{_MUST if dialect.body_must_understand else ""} eb:version="{dialect.version}"'


def _header(header: MessageHeader, dialect: Dialect) -> str:
    ref, live = header.ref_to_message_id, header.time_to_live
    data = (
        f"<eb:MessageId>{value(header.message_id, 'MessageId')}</eb:MessageId>"
        f"{_timestamp(header)}"
        f"{'' if ref is None else _ref(ref)}"
    )
    if live is not None:
        data += f"<eb:TimeToLive>{write_timestamp(live)}</eb:TimeToLive>"
    quality = _quality(header)
    if dialect.has_quality_of_service and header.sequence_number is not None:
        quality += _sequence_number(header.sequence_number)
    if header.duplicate_elimination:
        quality += "<eb:DuplicateElimination></eb:DuplicateElimination>"
    return (
        f"<eb:MessageHeader{_common(dialect)}>"
        f"<eb:From>{_party(header.from_party)}</eb:From><eb:To>{_party(header.to_party)}</eb:To>"
        f"<eb:CPAId>{value(header.cpa_id, 'CPAId')}</eb:CPAId>"
        f"<eb:ConversationId>{value(header.conversation_id, 'ConversationId')}</eb:ConversationId>"
        f"{_about(header)}"
        f"<eb:MessageData>{data}</eb:MessageData>{quality}"
        f"{_descriptions(header.descriptions)}{write_extensions(header.extensions, dialect)}"
        "</eb:MessageHeader>"
    )


def _about(header: MessageHeader) -> str:
    """Service and Action; in an answer of draft 001 its MessageType instead."""
    if header.message_type is None:
        action = value(header.action, "Action")
        return f"{_service(header.service)}<eb:Action>{action}</eb:Action>"
    kind = one_of(header.message_type, tuple(MESSAGE_TYPES), "MessageType")
    return f'<rm:MessageType xmlns:rm="{EBRM}">{kind}</rm:MessageType>'


def _timestamp(of: MessageHeader | TraceHeader | Acknowledgment) -> str:
    return f"<eb:Timestamp>{write_timestamp(of.timestamp)}</eb:Timestamp>"


def _ref(ref: str) -> str:
    return f"<eb:RefToMessageId>{value(ref, 'RefToMessageId')}</eb:RefToMessageId>"


def _party(party: Party) -> str:
    role = f"<eb:Role>{value(party.role, 'Role')}</eb:Role>" if party.role else ""
    return "".join(map(_party_id, party.party_ids)) + role


def _party_id(party_id: PartyId) -> str:
    return f"<eb:PartyId{_type(party_id)}>{value(party_id.value, 'PartyId')}</eb:PartyId>"


def _service(service: Service) -> str:
    return f"<eb:Service{_type(service)}>{value(service.value, 'Service')}</eb:Service>"


def _type(of: PartyId | Service) -> str:
    """What tells by itself what it is, is a URI. [MS098-8.4.1-06] [MS098-8.4.4.1-02]"""
    if of.type is None:
        uri(of.value, f"{type(of).__name__} without a type")
        return ""
    return f' eb:type="{_attribute(of.type, "type")}"'


def _quality(header: MessageHeader) -> str:
    """[MS098-8.4.7-01]"""
    words = (
        ("deliverySemantics", header.delivery_semantics, DELIVERY_SEMANTICS),
        ("messageOrderSemantics", header.message_order_semantics, ORDER_SEMANTICS),
        ("deliveryReceiptRequested", header.delivery_receipt_requested, REQUESTS),
    )
    said = "".join(
        f' eb:{name}="{one_of(given, allowed, name)}"'
        for name, given, allowed in words
        if given is not None
    )
    return f"<eb:QualityOfServiceInfo{said}></eb:QualityOfServiceInfo>" if said else ""


def _sequence_number(number: SequenceNumber) -> str:
    status = one_of(number.status, STATUSES, "status")
    return f'<eb:SequenceNumber eb:status="{status}">{number.value}</eb:SequenceNumber>'


def _descriptions(descriptions: tuple[Description, ...]) -> str:
    return "".join(
        f'<eb:Description xml:lang="{language(one.lang)}">{_words(one.text)}</eb:Description>'
        for one in descriptions
    )


def _words(said: str) -> str:
    return escape(legible(said).strip(BLANK))


def write_trace_header_list(
    traces: tuple[TraceHeader, ...], dialect: Dialect, *, alone: bool = False
) -> str:
    """A TraceHeaderList. `alone`: it declares its own namespaces, to stand anywhere."""
    actor = _NEXT if dialect.trace_by_party else ""
    inner = "".join(write_trace_header(one, dialect) for one in traces)
    return (
        f"<eb:TraceHeaderList{_declared(dialect, alone)}{_common(dialect)}{actor}>"
        f"{inner}</eb:TraceHeaderList>"
    )


def _declared(dialect: Dialect, alone: bool) -> str:
    return f'{_SOAP} xmlns:eb="{dialect.namespace}"' if alone else ""


def write_trace_header(trace: TraceHeader, dialect: Dialect, *, alone: bool = False) -> str:
    number = ""
    if trace.sequence_number is not None:
        check_link_number(trace.sequence_number)
        number = (
            f'<rm:SequenceNumber{_SOAP} xmlns:rm="{EBRM}" SOAP-ENV:mustUnderstand="0">'
            f"{trace.sequence_number}</rm:SequenceNumber>"
        )
    declared = f' xmlns:eb="{dialect.namespace}"' if alone else ""
    return (
        f"<eb:TraceHeader{declared}>"
        f"{_station('Sender', trace.sender_uri, trace.sender, dialect)}"
        f"{_station('Receiver', trace.receiver_uri, trace.receiver, dialect)}"
        f"{_timestamp(trace)}{number}{write_extensions(trace.extensions, dialect)}"
        "</eb:TraceHeader>"
    )


def _station(name: str, location: str, party_id: PartyId | None, dialect: Dialect) -> str:
    place = escape(uri(location, f"{name}URI"))
    if dialect.trace_by_party:
        id = _party_id(party_id or PartyId(location))
        return f"<eb:{name}>{id}<eb:Location>{place}</eb:Location></eb:{name}>"
    if party_id is not None:
        raise ValueError(f"version {dialect.name} has no PartyId in a TraceHeader")
    return f"<eb:{name}URI>{place}</eb:{name}URI>"


def write_via(via: Via, dialect: Dialect, *, alone: bool = False) -> str:
    """A Via. `alone`: it declares its own namespaces, to stand anywhere."""
    check_via(via, dialect)
    said = ""
    if via.sync_reply is not None:
        said += f' eb:syncReply="{_boolean(via.sync_reply)}"'
    if via.reliable_messaging_method is not None:
        method = one_of(via.reliable_messaging_method, METHODS, "reliableMessagingMethod")
        said += f' eb:reliableMessagingMethod="{method}"'
    if via.ack_requested is not None:
        said += f' eb:ackRequested="{one_of(via.ack_requested, REQUESTS, "ackRequested")}"'
    inner = "" if via.cpa_id is None else f"<eb:CPAId>{value(via.cpa_id, 'CPAId')}</eb:CPAId>"
    if via.service is not None and via.action is not None:
        inner += f"{_service(via.service)}<eb:Action>{value(via.action, 'Action')}</eb:Action>"
    return f"<eb:Via{_declared(dialect, alone)}{_common(dialect)}{_NEXT}{said}>{inner}</eb:Via>"


def _boolean(truth: bool) -> str:
    return "true" if truth else "false"


def _ack_requested(request: AckRequested, dialect: Dialect) -> str:
    return (
        f"<eb:AckRequested{_common(dialect)}{_actor(request.actor)}"
        f' eb:signed="{_boolean(request.signed)}"></eb:AckRequested>'
    )


def _actor(actor: str | None) -> str:
    return "" if actor is None else f' SOAP-ENV:actor="{_attribute(actor, "actor")}"'


def _acknowledge(
    message: EbxmlMessage, acknowledgment: Acknowledgment, blocks: list[str], body: list[str]
) -> None:
    """The Acknowledgment, where the version has it.

    The type of one by an MSH on the way is spelled as the text of 0.98b has it [MS098-8.12.5-01];
    its sample, and the Action, have Acknowledgment. In draft 000 the type is that of the Action
    [RM000-1.3.1.3-03].
    """
    dialect = message.dialect
    references = "".join(_reference(one, dialect) for one in acknowledgment.references)
    signed = f' eb:signed="{_boolean(acknowledgment.signed)}"'
    if dialect.acknowledgment_refers:
        ref = acknowledgment.ref_to_message_id or message.header.ref_to_message_id or ""
        away = acknowledgment.type == ACKNOWLEDGMENT
        actor = _actor(acknowledgment.actor or (EB2_NEXT_MSH if away else None))
        blocks.append(
            f"<eb:Acknowledgment{_common(dialect)}{actor}>"
            f"{_timestamp(acknowledgment)}{_ref(ref)}{references}</eb:Acknowledgment>"
        )
    elif dialect.has_delivery_receipt and acknowledgment.type == DELIVERY_RECEIPT:
        body.append(
            f"<eb:DeliveryReceipt{_body(dialect)}{signed}>"
            f"{_timestamp(acknowledgment)}{references}</eb:DeliveryReceipt>"
        )
    else:
        word = DELIVERY_RECEIPT
        if acknowledgment.type == ACKNOWLEDGMENT:
            of_draft = message.header.service.value.endswith("/MessageAcknowledgment")
            word = ACKNOWLEDGMENT if of_draft else "Acknowledgement"
        kind = "" if dialect.has_delivery_receipt else f' eb:type="{word}"'
        (blocks if dialect.acknowledgment_in_header else body).append(
            f"<eb:Acknowledgment{_common(dialect)}{kind}{signed}>"
            f"{_timestamp(acknowledgment)}{references}</eb:Acknowledgment>"
        )


def _reference(reference: Reference, dialect: Dialect) -> str:
    """A ds:Reference; the XPath, which the value does not hold, is the only one there may be."""
    empty = f'<ds:Transform Algorithm="{XPATH}">'
    declared = "".join(f' xmlns:{prefix}="{name}"' for prefix, name in dialect.hop_namespaces)
    xpath = f"<ds:XPath{declared}>{escape(dialect.hop_xpath)}</ds:XPath>"
    return write_reference(reference).replace(empty, empty + xpath)


def _error_list(error_list: ErrorList, dialect: Dialect) -> str:
    id = _id(error_list.id, dialect) if error_list.id else ""
    inner = "".join(_error(one, dialect) for one in error_list.errors)
    return (
        f"<eb:ErrorList{id}{_common(dialect)}"
        f' eb:highestSeverity="{error_list.highest_severity}">{inner}</eb:ErrorList>'
    )


def _id(id: str, dialect: Dialect) -> str:
    return f' {dialect.id_attribute}="{xml_id(id)}"'


def _error(error: Error, dialect: Dialect) -> str:
    check_error(error)
    said = (
        f' eb:codeContext="{escape_attribute(uri(error.code_context, "codeContext"))}"'
        f' eb:errorCode="{_attribute(error.error_code, "errorCode")}"'
        f' eb:severity="{one_of(error.severity, SEVERITIES, "severity")}"'
    )
    if error.location is not None:
        said += f' eb:location="{_attribute(error.location, "location")}"'
    if error.min_retry_secs is not None:
        said += f' xmlns:rm="{EBRM}" rm:MinRetrySecs="{error.min_retry_secs}"'
    words, lang = _words(error.text), f' xml:lang="{language(error.lang)}"'
    if not dialect.error_has_description:
        return f"<eb:Error{said}{lang}>{words}</eb:Error>"
    inner = f"<eb:Description{lang}>{words}</eb:Description>" if words else ""
    return f"<eb:Error{said}>{inner}</eb:Error>"


def _manifest(manifest: Manifest, dialect: Dialect) -> str:
    id = _id(manifest.id, dialect) if manifest.id or dialect.ids_required else ""
    inner = "".join(
        _manifest_reference(one, number, dialect)
        for number, one in enumerate(manifest.references, 1)
    )
    return (
        f"<eb:Manifest{id}{_body(dialect)}>"
        f"{inner}{write_extensions(manifest.extensions, dialect)}</eb:Manifest>"
    )


def _manifest_reference(reference: ManifestReference, number: int, dialect: Dialect) -> str:
    href = escape_attribute(uri(reference.href, "xlink:href"))
    role = ""
    if reference.role is not None:
        role = f' xlink:role="{escape_attribute(uri(reference.role, "xlink:role"))}"'
    return (
        f"<eb:Reference{_id(reference.id or f'payload-{number}', dialect)}"
        f' xlink:type="simple" xlink:href="{href}"{role}>'
        f"{''.join(map(_schema, reference.schemas))}{_descriptions(reference.descriptions)}"
        f"{write_extensions(reference.extensions, dialect)}</eb:Reference>"
    )


def _schema(schema: Schema) -> str:
    location = escape_attribute(uri(schema.location, "Schema/@location"))
    version = ""
    if schema.version is not None:
        version = f' eb:version="{_attribute(schema.version, "Schema/@version")}"'
    return f'<eb:Schema eb:location="{location}"{version}></eb:Schema>'


def _status_data(data: StatusData, dialect: Dialect) -> str:
    status = one_of(data.message_status, dialect.message_statuses, "messageStatus")
    when = ""
    if data.timestamp is not None:
        when = f"<eb:Timestamp>{write_timestamp(data.timestamp)}</eb:Timestamp>"
    name = dialect.status_data
    return (
        f'<eb:{name}{_body(dialect)} eb:messageStatus="{status}">'
        f"{_ref(data.ref_to_message_id)}{when}</eb:{name}>"
    )


def _attribute(given: str, what: str) -> str:
    return escape_attribute(text(given, what))
