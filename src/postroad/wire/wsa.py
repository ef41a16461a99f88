"""WS-Addressing 1.0 headers as values, both ways (Part 2 section 2.6.3). Nothing is ever fetched.

What a stranger puts into the reference parameters of his wsa:ReplyTo becomes header blocks of our
answer. So no header of a protocol that we speak is taken as a reference parameter.
"""

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote

from lxml import etree

from postroad.wire import names
from postroad.wire.ebms3_user_messages import Findings
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.multihop import (
    IS_REFERENCE_PARAMETER,
    ROUTING_INPUT_TAGS,
    RoutingInput,
    is_reference_parameter,
    read_routing_input,
    target_attributes,
    write_routing_input,
)
from postroad.wire.names import I_CLOUD, NEXT_MSH, ONE_WAY, TWO_WAY, WSA, WSU
from postroad.wire.soap import Envelope, HeaderBlock, SoapVersion
from postroad.wire.xml import (
    canonical,
    elements,
    escape,
    escape_attribute,
    is_xml_text,
    local,
    namespace,
    parse,
    text,
)

ANONYMOUS: Final = WSA + "/anonymous"
NONE: Final = WSA + "/none"
REPLY: Final = WSA + "/reply"

_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`\x7f-\x9f]+")
_REFERENCE: Final = re.compile(r"[^\x00-\x20<>\"{}|\\^`\x7f-\x9f]+")
_OURS: Final = frozenset(
    (
        names.S11,
        names.S12,
        names.EB3,
        names.MF,
        names.WSA,
        names.WSRM,
        names.WSRM10,
        names.WSMC,
        names.WSR,
        names.WSSE,
        names.WSSE11,
        names.WSU,
        names.DS,
        names.XENC,
        names.XENC11,
    )
)

ReferenceParameter = RoutingInput | bytes
"""Routing input as a value; whatever else there is as exclusive canonical XML."""


@dataclass(frozen=True, slots=True)
class EndpointReference:
    address: str
    reference_parameters: tuple[ReferenceParameter, ...] = ()
    address_role: str | None = None
    """The role or actor that the address is meant for: nextmsh when it is the I-Cloud."""

    @property
    def routing_input(self) -> RoutingInput | None:
        return next((p for p in self.reference_parameters if isinstance(p, RoutingInput)), None)

    @property
    def reachable(self) -> bool:
        """Whether the address alone says where to connect to."""
        return self.address not in (ANONYMOUS, NONE, I_CLOUD)


@dataclass(frozen=True, slots=True)
class RelatesTo:
    uri: str
    relationship_type: str = REPLY


@dataclass(frozen=True, slots=True)
class Addressing:
    """The message addressing properties of one message."""

    to: str = ANONYMOUS
    action: str | None = None
    message_id: str | None = None
    relates_to: tuple[RelatesTo, ...] = ()
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    from_: EndpointReference | None = None
    to_role: str | None = None
    """Role or actor of wsa:To; when written to the I-Cloud it is nextmsh. [P2-2.4.5-10]"""
    to_must_understand: bool = False

    @property
    def errors_to(self) -> EndpointReference | None:
        """Where errors go: FaultTo beats ReplyTo. [P2-2.6.2-04]"""
        return self.fault_to or self.reply_to


def is_iri(value: str) -> bool:
    """Whether this is an absolute IRI, as wsa:Action must be. [P2-2.6.3.2-05]"""
    return _ABSOLUTE.fullmatch(value) is not None and is_xml_text(value)


def wsa_id(message_id: str) -> str:
    """Return a message id as a URI (RFC 2392), as WS-Addressing has it."""
    return "mid:" + quote(message_id, safe="@!$&'()*+,;=:/?-._~")


def message_id_of(uri: str) -> str:
    """Return the message id that a `mid:` URI names; any other URI as it is."""
    return unquote(uri.removeprefix("mid:")) if uri.startswith("mid:") else uri


def default_action(mep: str, *, reply: bool = False) -> str:
    """The wsa:Action of a user message in its MEP. [P2-2.6.3.2-02]"""
    if mep == ONE_WAY:
        if reply:
            raise ValueError("a One-Way exchange has no reply")
        return ONE_WAY
    if mep == TWO_WAY:
        return TWO_WAY + (".reply" if reply else ".request")
    raise ValueError(f"no default action for the MEP {mep!r}")


def receipt_action(action: str) -> str:
    """The wsa:Action of a receipt, from that of the received message. [P2-2.6.3.2-03]"""
    return action + ".receipt"


def error_action(action: str) -> str:
    """The wsa:Action of an error, from that of the message in error. [P2-2.6.3.2-04]"""
    return action + ".error"


def read_addressing(envelope: Envelope) -> tuple[Addressing | None, list[EbmsError]]:
    """The WS-Addressing headers; None when there are none or one of them cannot be used.

    With a reference parameter both wsa:To and wsa:Action are required. [P2-2.6.3.2-01]
    """
    findings = Findings()
    found: dict[str, HeaderBlock] = {}
    relates_to: list[RelatesTo] = []
    parameter: HeaderBlock | None = None
    for block in envelope.blocks:
        element = block.element
        name = local(element)
        if namespace(element) != WSA:
            if element.tag in ROUTING_INPUT_TAGS or is_reference_parameter(element):
                parameter = block
        elif name == "RelatesTo":
            uri = _uri(element, _REFERENCE, findings)
            kind = element.get("RelationshipType", "").strip() or REPLY
            relates_to.append(RelatesTo(uri or "", kind))
        elif name in found:
            findings.add("EBMS:0009", element, "this header is there more than once")
        else:
            found[name] = block
    if parameter is not None:
        for name in ("To", "Action"):
            if name not in found:
                sentence = f"a reference parameter stands there without wsa:{name}"
                findings.add("EBMS:0009", parameter.element, sentence)
    addressing = _addressing(envelope.version, found, tuple(relates_to), findings)
    problems = list(findings.result())
    if _useless(problems) or not (found or relates_to):
        return None, problems
    return addressing, problems


def _useless(problems: list[EbmsError]) -> bool:
    return any(problem.severity is Severity.FAILURE for problem in problems)


def _addressing(
    version: SoapVersion,
    found: dict[str, HeaderBlock],
    relates_to: tuple[RelatesTo, ...],
    findings: Findings,
) -> Addressing:
    def uri(name: str, pattern: re.Pattern[str]) -> str | None:
        block = found.get(name)
        return None if block is None else _uri(block.element, pattern, findings)

    def reference(name: str) -> EndpointReference | None:
        block = found.get(name)
        return None if block is None else _endpoint_reference(block.element, version, findings)

    action, to = found.get("Action"), found.get("To")
    if action is not None and action.role == NEXT_MSH:
        sentence = "wsa:Action is for the ultimate receiver, not for the nextmsh role"
        findings.add("EBMS:0009", action.element, sentence)
    return Addressing(
        to=uri("To", _ABSOLUTE) or ANONYMOUS,
        action=uri("Action", _ABSOLUTE),
        message_id=uri("MessageID", _REFERENCE),
        relates_to=relates_to,
        reply_to=reference("ReplyTo"),
        fault_to=reference("FaultTo"),
        from_=reference("From"),
        to_role=None if to is None else to.role,
        to_must_understand=to is not None and to.must_understand,
    )


def _uri(element: etree._Element, pattern: re.Pattern[str], findings: Findings) -> str | None:
    value = text(element)
    if elements(element) or not pattern.fullmatch(value):
        kind = "an absolute IRI" if pattern is _ABSOLUTE else "an IRI"
        findings.add("EBMS:0009", element, f"{value[:200]!r} is not {kind}")
        return None
    return value


def read_endpoint_reference(
    element: etree._Element, version: SoapVersion
) -> tuple[EndpointReference | None, list[EbmsError]]:
    """Read an element of the type of wsa:EndpointReference, whatever its name is."""
    findings = Findings()
    value = _endpoint_reference(element, version, findings)
    problems = list(findings.result())
    return (None if _useless(problems) else value), problems


def _endpoint_reference(
    element: etree._Element, version: SoapVersion, findings: Findings
) -> EndpointReference:
    addresses = element.findall(f"{{{WSA}}}Address")
    holders = element.findall(f"{{{WSA}}}ReferenceParameters")
    if len(addresses) != 1:
        sentence = f"an endpoint reference has one wsa:Address, here are {len(addresses)}"
        findings.add("EBMS:0009", element, sentence)
        return EndpointReference(NONE)
    if len(holders) > 1:
        findings.add("EBMS:0009", holders[1], "this element is there more than once")
    parameters: list[ReferenceParameter] = []
    for child in (child for holder in holders[:1] for child in elements(holder)):
        if child.tag in ROUTING_INPUT_TAGS:
            if any(isinstance(parameter, RoutingInput) for parameter in parameters):
                findings.add("EBMS:0009", child, "this element is there more than once")
                continue
            value, problems = read_routing_input(_as_block(child, version))
            findings.errors += problems
            if value is None:
                break
            parameters.append(value)
        elif namespace(child) in _OURS:
            sentence = "a header of a messaging protocol cannot be a reference parameter"
            findings.add("EBMS:0009", child, sentence)
        else:
            try:
                parameters.append(canonical(child))
            except EbmsError as error:
                findings.errors.append(error)
    address = _uri(addresses[0], _ABSOLUTE, findings)
    return EndpointReference(address or NONE, tuple(parameters), _role(addresses[0], version))


def _as_block(element: etree._Element, version: SoapVersion) -> HeaderBlock:
    understood = element.get(version.must_understand_attribute, "").strip() in ("1", "true")
    return HeaderBlock(element, _role(element, version), understood)


def _role(element: etree._Element, version: SoapVersion) -> str | None:
    return element.get(version.role_attribute, "").strip() or None


def write_addressing(
    addressing: Addressing, version: SoapVersion, *, id_prefix: str | None = None
) -> list[str]:
    """The header blocks, each self-contained and in canonical form; ValueError for a bad value.

    With `id_prefix` the n-th block has the wsu:Id `{id_prefix}-{n}`, counted from 1, so that each
    can be signed. wsa:Action never has a role, wsa:To to the I-Cloud always has nextmsh.
    [P2-2.4.5-10, P2-2.6.3.2-07, P2-2.6.3.1-03]
    """
    role = NEXT_MSH if addressing.to == I_CLOUD else addressing.to_role
    target = target_attributes(version, role, must_understand=addressing.to_must_understand)
    contents = [("To", _checked(addressing.to, _ABSOLUTE), "", target)]
    if addressing.action is not None:
        contents.append(("Action", _checked(addressing.action, _ABSOLUTE), "", ""))
    if addressing.message_id is not None:
        contents.append(("MessageID", _checked(addressing.message_id, _REFERENCE), "", ""))
    for related in addressing.relates_to:
        kind = ""
        if related.relationship_type != REPLY:
            kind = f' RelationshipType="{_checked(related.relationship_type, _REFERENCE)}"'
        contents.append(("RelatesTo", _checked(related.uri, _REFERENCE), kind, ""))
    blocks = [
        _block(name, content, version, _id(id_prefix, n), plain=plain, target=target)
        for n, (name, content, plain, target) in enumerate(contents, 1)
    ]
    for name, reference in (
        ("From", addressing.from_),
        ("ReplyTo", addressing.reply_to),
        ("FaultTo", addressing.fault_to),
    ):
        if reference is not None:
            id = _id(id_prefix, len(blocks) + 1)
            blocks.append(write_endpoint_reference(reference, version, name=name, id=id))
    return blocks


def write_endpoint_reference(
    reference: EndpointReference,
    version: SoapVersion,
    *,
    name: str = "EndpointReference",
    prefix: str = "wsa",
    namespace: str = WSA,
    id: str | None = None,
) -> str:
    """An element of that name and the type of wsa:EndpointReference, in canonical form."""
    role = NEXT_MSH if reference.address == I_CLOUD else reference.address_role
    target = target_attributes(version, role)
    address = _block("Address", _checked(reference.address, _ABSOLUTE), version, target=target)
    parameters = b"".join(
        write_routing_input(parameter, version).encode()
        if isinstance(parameter, RoutingInput)
        else parameter
        for parameter in reference.reference_parameters
    )
    holder = f'<wsa:ReferenceParameters xmlns:wsa="{WSA}">'.encode()
    closing = b"</wsa:ReferenceParameters>"
    wsu = "" if id is None else f' xmlns:wsu="{WSU}" wsu:Id="{escape_attribute(id)}"'
    written = (
        f'<{prefix}:{name} xmlns:{prefix}="{namespace}"{wsu}>{address}'.encode()
        + (holder + parameters + closing if parameters else b"")
        + f"</{prefix}:{name}>".encode()
    )
    return canonical(_parsed(written)).decode()


def write_reference_parameters(
    reference: EndpointReference, version: SoapVersion, *, id_prefix: str | None = None
) -> list[str]:
    """The header blocks that a message to this endpoint carries for its reference parameters.

    Numbered like the blocks of `write_addressing`. Routing input is for nextmsh. [P2-2.5.5-10]
    """
    blocks = []
    for n, parameter in enumerate(reference.reference_parameters, 1):
        id = _id(id_prefix, n)
        if isinstance(parameter, RoutingInput):
            header = replace(
                parameter, id=id, role=NEXT_MSH, must_understand=True, is_reference_parameter=True
            )
            blocks.append(write_routing_input(header, version))
            continue
        wrapped = f'<x xmlns:wsa="{WSA}" xmlns:wsu="{WSU}">'.encode() + parameter + b"</x>"
        element = elements(_parsed(wrapped))[0]
        element.set(IS_REFERENCE_PARAMETER, "true")
        if id is not None:
            element.set(f"{{{WSU}}}Id", id)
        blocks.append(canonical(element).decode())
    return blocks


def _id(prefix: str | None, n: int) -> str | None:
    return None if prefix is None else f"{prefix}-{n}"


def _checked(value: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(value) or not is_xml_text(value):
        kind = "an absolute IRI" if pattern is _ABSOLUTE else "an IRI"
        raise ValueError(f"{value[:200]!r} is not {kind}")
    return escape(value)


def _block(
    name: str,
    content: str,
    version: SoapVersion,
    id: str | None = None,
    *,
    plain: str = "",
    target: str = "",
) -> str:
    soap = f' xmlns:{version.prefix}="{version.namespace}"' if target else ""
    wsu = "" if id is None else f' xmlns:wsu="{WSU}"'
    named = "" if id is None else f' wsu:Id="{escape_attribute(id)}"'
    return f'<wsa:{name}{soap} xmlns:wsa="{WSA}"{wsu}{plain}{named}{target}>{content}</wsa:{name}>'


def _parsed(data: bytes) -> etree._Element:
    try:
        return parse(data, where="wsa:ReferenceParameters")
    except EbmsError as error:
        raise ValueError(f"a reference parameter cannot be sent: {error.detail}") from None
