"""Reading ebXML messages: everything that can be read, and every deviation from the rules.

Deviations are collected, not raised: each is an `EbmsError` with an ebXML code, an XPath and a
sentence on what was expected and what was found. Failures forbid processing; warnings tell of
what is let pass, also of what the specification's own samples do wrong.

A signature covers the envelope without what changes from hop to hop. So what is read here stands
where it must stand, and nothing else may look as if it changed from hop to hop: otherwise a relay
could put something into a signed message, or take it out.
"""

from collections import Counter
from collections.abc import Container
from typing import Final

from lxml import etree
from msgspec.structs import replace

from postroad.wire import xml
from postroad.wire.ebms3_user_messages import quoted
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    DIALECTS,
    ERROR,
    MS098,
    MS10,
    MS20,
    ROLES,
    Acknowledgment,
    AckRequested,
    Dialect,
    EbxmlMessage,
    MessageHeader,
    Reading,
    TraceHeader,
    Via,
    is_msh_service,
    kind_of,
)
from postroad.wire.ebxml_blocks import (
    ack_requested,
    acknowledgment,
    error_list,
    manifest,
    message_order,
    status_data,
    status_request,
    sync_reply,
    trace_header_list,
    via,
)
from postroad.wire.ebxml_findings import ACTOR, BLANK, Findings, understood
from postroad.wire.ebxml_header import message_header
from postroad.wire.names import DS, EB1, EB2, EB2_NEXT_MSH, EB2_TO_PARTY_MSH, EBRM, S11_NEXT
from postroad.wire.soap import Envelope, HeaderBlock, SoapVersion, not_understood

KNOWN: Final = frozenset((EBRM,))
"""Foreign namespaces that Postroad itself understands: draft 001's numbers."""
_SIGNATURE: Final = f"{{{DS}}}Signature"
_WITHOUT_PAYLOAD: Final = ("ping", "pong", "status_request", "status_response")
_HOP_ACTORS: Final = (S11_NEXT, EB2_NEXT_MSH)
_VERSIONS: Final = frozenset(version for one in DIALECTS.values() for version in one.versions)
_HEADER_OLD: Final = ("MessageHeader", "TraceHeaderList", "Via", "ErrorList", "Acknowledgment")
_HEADER_20: Final = (
    "MessageHeader",
    "SyncReply",
    "MessageOrder",
    "AckRequested",
    "Acknowledgment",
    "ErrorList",
)


def dialect_of(envelope: Envelope) -> Dialect | None:
    """The version that a message is of, by namespace and version; None: it is no ebXML message.

    Without a MessageHeader any other ebXML element tells.
    """
    header = () if envelope.header is None else envelope.header.iterchildren("*")
    elements = [*header, *envelope.body.iterchildren("*")]
    ours = [one for one in elements if xml.namespace(one) in (EB1, EB2)]
    if not ours:
        return None
    found = next((one for one in ours if xml.local(one) == "MessageHeader"), ours[0])
    if xml.namespace(found) == EB2:
        return MS20
    version = found.get(MS10.tag("version"), found.get("version", "")).strip(BLANK)
    return MS10 if version in MS10.versions else MS098


def header_names(dialect: Dialect) -> tuple[str, ...]:
    """The header blocks that the version has."""
    return _HEADER_OLD if dialect.has_trace else _HEADER_20


def body_names(dialect: Dialect) -> tuple[str, ...]:
    """What may stand in the Body; an Acknowledgment in the other place than due is read too."""
    names = ["Manifest", dialect.status_data]
    if dialect.has_status_request:
        names.append("StatusRequest")
    if dialect.has_delivery_receipt:
        names.append("DeliveryReceipt")
    if dialect.has_trace:
        names.append("Acknowledgment")
    return tuple(names)


def must_understand_problems(
    envelope: Envelope, dialect: Dialect, *, roles: Container[str] = ROLES
) -> list[HeaderBlock]:
    """The elements that must be understood and are not: the answer is a SOAP Fault.

    Header blocks that are for one of `roles`, and elements of the Body, which in 0.98b say it
    too. An element of an unknown version is not understood, whatever its name.
    [MS098-8.5.1-02] [MS098-8.6.1-02] [MS098-8.7.2-02] [MS098-8.10.2-02] [MS098-8.11.3-02]
    [MS098-8.12.3-02]
    """
    blocks = {dialect.tag(name) for name in header_names(dialect)} | {_SIGNATURE}
    parts = {dialect.tag(name) for name in body_names(dialect)}
    for block in envelope.blocks:
        if _is_of_unknown_version(block.element, dialect):
            blocks.discard(str(block.element.tag))
    missed = not_understood(envelope, blocks, roles)
    for child in envelope.body.iterchildren("*"):
        unknown = child.tag not in parts or _is_of_unknown_version(child, dialect)
        if unknown and understood(child):
            missed.append(HeaderBlock(child, None, True))
    return missed


def _is_of_unknown_version(element: etree._Element, dialect: Dialect) -> bool:
    """Whether an ebXML element names a version of the specification that nobody here knows."""
    version = element.get(dialect.tag("version"), "").strip(BLANK)
    return bool(version) and version not in _VERSIONS


def read_ebxml(
    envelope: Envelope,
    dialect: Dialect,
    *,
    lenient: bool = True,
    known: Container[str] = KNOWN,
) -> Reading:
    """The message, and all that is wrong with it. `known`: foreign namespaces that are understood.

    Lenient: what the specification's samples do wrong is a warning, not a failure.
    """
    findings = Findings(dialect, lenient=lenient, known=known)
    if envelope.version is not SoapVersion.SOAP_11:
        findings.add("OtherXml", envelope.root, "ebXML messages are SOAP 1.1 messages")
    signatures = tuple(b.element for b in envelope.blocks if b.element.tag == _SIGNATURE)
    elements = _Elements(envelope, findings)
    _hop_elements(envelope, elements, findings)
    header = elements.one("MessageHeader")
    found_manifest = elements.one("Manifest")
    if header is None:
        if envelope.header is None or not elements.all("MessageHeader"):
            findings.add(
                "OtherXml", envelope.root, "the Header must hold a MessageHeader, but there is none"
            )
        return Reading(None, findings.result(), None, found_manifest, signatures)
    message = _message(header, elements, findings)
    _combinations(message, elements, findings)
    _references(message, header, findings)
    _ids(envelope, findings)
    return Reading(message, findings.result(), header, found_manifest, signatures)


class _Elements:
    """The ebXML elements of an envelope by name, where they may stand."""

    def __init__(self, envelope: Envelope, findings: Findings) -> None:
        self._found: dict[str, list[etree._Element]] = {}
        self._findings = findings
        dialect = findings.dialect
        self.in_header = {element.element for element in envelope.blocks}
        places = (
            ([block.element for block in envelope.blocks], header_names(dialect), "Header"),
            (xml.elements(envelope.body), body_names(dialect), "Body"),
        )
        for elements, names, place in places:
            for element in elements:
                self._sort(element, names, place)

    def _sort(self, element: etree._Element, names: tuple[str, ...], place: str) -> None:
        name, findings = xml.local(element), self._findings
        namespace = xml.namespace(element)
        if namespace != findings.dialect.namespace:
            if place == "Body":
                self._beside(element, namespace, name)
            return
        if name not in names:
            findings.add(
                "OtherXml",
                element,
                f"{name[:80]} has no place in the {place} of a message of version "
                f"{findings.dialect.name}",
            )
            return
        if name == "Acknowledgment" and (place == "Header") is not (
            findings.dialect.acknowledgment_in_header
        ):
            findings.forgive("OtherXml", element, f"the Acknowledgment stands in the {place}")
        self._found.setdefault(name, []).append(element)

    def _beside(self, element: etree._Element, namespace: str, name: str) -> None:
        if not namespace and name in body_names(self._findings.dialect):
            self._findings.add("OtherXml", element, f"{name} is in no namespace")
            return
        self._findings.warn(
            "NotSupported",
            element,
            "data in the Body is not passed on; it belongs in a part of its own",
        )

    def all(self, name: str) -> list[etree._Element]:
        return self._found.get(name, [])

    def one(self, name: str) -> etree._Element | None:
        """The only one; a second one is wrong wherever only one may be. [MS098-8.13.8-01]"""
        found = self._found.get(name, [])
        if len(found) > 1:
            self._findings.add(
                "OtherXml", found[1], f"at most one {name} is allowed, found {len(found)}"
            )
            self._found[name] = found[:1]
        return found[0] if found else None


def _hop_elements(envelope: Envelope, elements: _Elements, findings: Findings) -> None:
    """What no signature covers stands in the Header and is nothing that a signature must cover."""
    dialect = findings.dialect
    if dialect.has_trace:
        for name in ("TraceHeaderList", "Via"):
            for element in envelope.root.iter(dialect.tag(name)):
                if element not in elements.in_header:
                    findings.add(
                        "OtherXml", element, f"{name} may stand nowhere but in the SOAP Header"
                    )
        return
    free = {dialect.tag(name) for name in ("SyncReply", "AckRequested", "Acknowledgment")}
    for element in envelope.root.iter("*"):
        if element.get(ACTOR) not in _HOP_ACTORS:
            continue
        namespace = xml.namespace(element)
        foreign = namespace not in (dialect.namespace, DS)
        if element not in elements.in_header or not (foreign or element.tag in free):
            findings.add(
                "OtherXml",
                element,
                f"{xml.local(element)[:80]} may not be for the next MSH alone",
                attribute="SOAP-ENV:actor",
            )


def _message(header: etree._Element, elements: _Elements, findings: Findings) -> EbxmlMessage:
    dialect = findings.dialect
    values = message_header(header, findings)
    trace: tuple[TraceHeader, ...] = ()
    hop: Via | None = None
    requests: tuple[AckRequested, ...] = ()
    synchronous = False
    if dialect.has_trace:
        if (element := elements.one("TraceHeaderList")) is not None:
            trace, hop = trace_header_list(element, findings)
        if (element := elements.one("Via")) is not None:
            hop = via(element, findings)
    else:
        synchronous = _sync_reply(elements, findings)
        requests = _ack_requested(elements, findings)
        values = _ordered(values, elements, synchronous, findings)
    element = elements.one("ErrorList")
    errors = None if element is None else error_list(element, findings)
    element = elements.one("Manifest")
    listed = None if element is None else manifest(element, findings)
    element = elements.one("StatusRequest")
    asked = None if element is None else status_request(element, findings)
    element = elements.one(dialect.status_data)
    status = None if element is None else status_data(element, findings)
    return EbxmlMessage(
        dialect=dialect,
        header=values,
        trace=trace,
        via=hop,
        ack_requested=requests,
        sync_reply=synchronous,
        error_list=errors,
        acknowledgment=_acknowledgment(elements, findings),
        manifest=listed,
        status_request=asked,
        status_data=status,
    )


def _sync_reply(elements: _Elements, findings: Findings) -> bool:
    element = elements.one("SyncReply")
    if element is not None:
        sync_reply(element, findings)
    return element is not None


def _ordered(
    header: MessageHeader, elements: _Elements, synchronous: bool, findings: Findings
) -> MessageHeader:
    """The header with what MessageOrder says, which 2.0 has as a block of its own."""
    element = elements.one("MessageOrder")
    if element is None:
        return header
    if not header.duplicate_elimination:
        findings.add("Inconsistent", element, "MessageOrder needs DuplicateElimination")
    if synchronous:
        findings.add("Inconsistent", element, "MessageOrder and SyncReply exclude each other")
    return replace(header, sequence_number=message_order(element, findings))


def _ack_requested(elements: _Elements, findings: Findings) -> tuple[AckRequested, ...]:
    """One for the next MSH and one for that of the To Party."""
    found = elements.all("AckRequested")
    values = tuple(ack_requested(one, findings) for one in found)
    seen = set()
    for element, value in zip(found, values, strict=True):
        actor = value.actor or EB2_TO_PARTY_MSH
        if actor in seen:
            findings.add("Inconsistent", element, f"two AckRequested are for {actor}")
        seen.add(actor)
    return values


def _acknowledgment(elements: _Elements, findings: Findings) -> Acknowledgment | None:
    """What is acknowledged; of several the word of the To Party counts."""
    found = [*elements.all(DELIVERY_RECEIPT), *elements.all(ACKNOWLEDGMENT)]
    values = [acknowledgment(one, findings) for one in found]
    if not values:
        return None
    chosen = next((one for one in values if one.type == DELIVERY_RECEIPT), values[0])
    types = Counter(one.type for one in values)
    for element, value in zip(found, values, strict=True):
        if types[value.type] > 1:
            findings.add("OtherXml", element, f"at most one {value.type} is allowed")
        elif value is not chosen:
            sentence = "beside the receipt of the To Party it says nothing new"
            findings.warn("NotSupported", element, sentence)
    return chosen


def _combinations(message: EbxmlMessage, elements: _Elements, findings: Findings) -> None:
    """What excludes each other (8.13; 9.1 and 9.2)."""
    errors, name = message.error_list, findings.dialect.status_data
    alone = [name, "StatusRequest"]
    if errors is not None and errors.highest_severity == ERROR:
        alone.append("ErrorList")
    pairs = [(one, "Manifest") for one in alone]
    pairs += [("ErrorList", name)] if len(alone) > 2 else []
    pairs += [("StatusRequest", name)]
    for one, other in pairs:
        first, second = elements.one(one), elements.one(other)
        if first is not None and second is not None:
            what = f"{one} of severity {ERROR}" if one == "ErrorList" else one
            findings.add("Inconsistent", second, f"{other} must not be with {what}")
    header, kind = message.header, kind_of(message)
    element = elements.one("MessageHeader")
    assert element is not None
    if is_msh_service(header.service) and kind == "message":
        place = element.find(findings.dialect.tag("Action"))
        findings.add(
            "ValueNotRecognized",
            element if place is None else place,
            f"the Service of the MSH has no Action {quoted(header.action)}",
        )
    listed = elements.one("Manifest")
    if listed is not None and kind in _WITHOUT_PAYLOAD:
        findings.add(
            "Inconsistent", listed, f"a message with Action {header.action} has no payload"
        )


def _references(message: EbxmlMessage, element: etree._Element, findings: Findings) -> None:
    """A message about another one says which. [MS098-8.4.6.3-03] [MS098-8.4.6.3-04]"""
    if message.header.ref_to_message_id is not None:
        return
    kind = kind_of(message)
    dialect = findings.dialect
    about = {
        "an ErrorList": message.error_list is not None or kind == "error",
        "an Acknowledgment": not dialect.acknowledgment_refers
        and (message.acknowledgment is not None or kind == "acknowledgment"),
        "a Pong": kind == "pong",
        "a StatusRequest": kind == "status_request" and not dialect.has_status_request,
        "a StatusResponse": kind == "status_response",
    }
    place = element.find(dialect.tag("MessageData"))
    for what, needed in about.items():
        if needed:
            sentence = f"{what} needs a RefToMessageId to tell what it is about"
            findings.add("Inconsistent", element if place is None else place, sentence)
            return


def _ids(envelope: Envelope, findings: Findings) -> None:
    """An id stands once in a document. [MS098-8.7.1-01]"""
    names = ("id", findings.dialect.tag("id"))
    seen: set[str] = set()
    for element in envelope.root.iter(findings.dialect.tag("*")):
        for value in {element.get(name) for name in names} - {None}:
            if value in seen:
                findings.add("OtherXml", element, f"the id {quoted(value or '')} stands here twice")
            seen.add(value or "")
