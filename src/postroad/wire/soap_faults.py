"""SOAP faults of both versions as one value, read from a Body and written as its content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lxml import etree

from postroad.wire import xml
from postroad.wire.errors import EbmsError
from postroad.wire.names import EB3, S11, S12, WSRM, WSSE, XML
from postroad.wire.soap import Envelope, SoapVersion, legible


@dataclass(frozen=True, slots=True)
class Fault:
    """A SOAP fault of either version; codes are Clark names (`{namespace}local`)."""

    code: str
    reason: str
    lang: str = "en"
    subcodes: tuple[str, ...] = ()
    """SOAP 1.1 knows none: there the last subcode is written in place of the code."""
    role: str | None = None
    """The role (1.2) or actor (1.1) of the node that gives the fault."""
    node: str | None = None
    detail: tuple[str, ...] = ()
    """The XML of each child of the detail element."""


@dataclass(frozen=True, slots=True)
class FaultMessage:
    """A fault together with the header blocks that belong to it."""

    fault: Fault
    header_blocks: tuple[str, ...] = ()


_CODE_PREFIX: Final = {S11: "S11", S12: "S12", EB3: "eb", WSSE: "wsse", WSRM: "wsrm"}
_LANG: Final = f"{{{XML}}}lang"


def read_fault(envelope: Envelope) -> Fault | None:
    """The fault in the Body, as far as it can be read; None when there is none."""
    first = next(iter(xml.elements(envelope.body)), None)
    if first is None or first.tag != f"{{{envelope.version.namespace}}}Fault":
        return None
    parts = {xml.local(child): child for child in reversed(xml.elements(first))}
    detail_name = "detail" if envelope.version is SoapVersion.SOAP_11 else "Detail"
    detail = tuple(
        _text_of(child)
        for child in (xml.elements(parts[detail_name]) if detail_name in parts else ())
    )
    if envelope.version is SoapVersion.SOAP_11:
        code, reason = parts.get("faultcode"), parts.get("faultstring")
        return Fault(
            code="" if code is None else _clark(code),
            reason="" if reason is None else _words(reason),
            lang="en" if reason is None else reason.get(_LANG, "en"),
            role=_optional(parts.get("faultactor")),
            detail=detail,
        )
    codes = _codes(parts.get("Code"))
    reason = _reason(parts.get("Reason"))
    return Fault(
        code=codes[0] if codes else "",
        reason="" if reason is None else _words(reason),
        lang="en" if reason is None else reason.get(_LANG, "en"),
        subcodes=tuple(codes[1:]),
        role=_optional(parts.get("Role")),
        node=_optional(parts.get("Node")),
        detail=detail,
    )


def _text_of(element: etree._Element) -> str:
    try:
        return xml.canonical(element).decode()
    except EbmsError:
        # A relative namespace name has no canonical form; here any form will do.
        return etree.tostring(element, encoding="unicode", with_tail=False)


def _codes(code: etree._Element | None) -> list[str]:
    codes = []
    while code is not None:
        value = code.find(f"{{{S12}}}Value")
        if value is not None:
            codes.append(_clark(value))
        code = code.find(f"{{{S12}}}Subcode")
    return codes


def _reason(reason: etree._Element | None) -> etree._Element | None:
    """The English text where there is one, else the first."""
    texts = [] if reason is None else reason.findall(f"{{{S12}}}Text")
    english = (text for text in texts if text.get(_LANG, "").lower().startswith("en"))
    return next(english, texts[0] if texts else None)


def _words(element: etree._Element) -> str:
    pieces = [element.text or "", *(child.tail or "" for child in element)]
    return "".join(pieces).strip(" \t\r\n")


def _optional(element: etree._Element | None) -> str | None:
    return None if element is None else (xml.text(element) or None)


def _clark(element: etree._Element) -> str:
    """The QName that an element holds, as a Clark name; as it stands if its prefix is unknown."""
    value = xml.text(element)
    prefix, colon, name = value.partition(":")
    uri = element.nsmap.get(prefix if colon else None)
    return f"{{{uri}}}{name if colon else value}" if uri else value


def write_fault(version: SoapVersion, fault: Fault) -> str:
    """The fault as content for `write_body`; its code prefixes are found by `value_namespaces`."""
    declared: dict[str, str] = {version.prefix: version.namespace}
    soap, escape = version.prefix, xml.escape
    lang = xml.escape_attribute(fault.lang)
    reason = escape(legible(fault.reason))
    if version is SoapVersion.SOAP_11:
        code = _qname(fault.subcodes[-1] if fault.subcodes else fault.code, declared)
        inner = (
            f'<faultcode>{code}</faultcode><faultstring xml:lang="{lang}">{reason}</faultstring>'
        )
        if fault.role is not None:
            inner += f"<faultactor>{escape(fault.role)}</faultactor>"
        if fault.detail:
            inner += f"<detail>{''.join(fault.detail)}</detail>"
    else:
        if not fault.code.startswith(f"{{{S12}}}"):
            raise ValueError(f"a SOAP 1.2 fault code is one of SOAP's own, not {fault.code!r}")
        nested = ""
        for code in reversed(fault.subcodes):
            value = f"<S12:Value>{_qname(code, declared)}</S12:Value>"
            nested = f"<S12:Subcode>{value}{nested}</S12:Subcode>"
        inner = (
            f"<S12:Code><S12:Value>{_qname(fault.code, declared)}</S12:Value>{nested}</S12:Code>"
            f'<S12:Reason><S12:Text xml:lang="{lang}">{reason}</S12:Text></S12:Reason>'
        )
        if fault.node is not None:
            inner += f"<S12:Node>{escape(fault.node)}</S12:Node>"
        if fault.role is not None:
            inner += f"<S12:Role>{escape(fault.role)}</S12:Role>"
        if fault.detail:
            inner += f"<S12:Detail>{''.join(fault.detail)}</S12:Detail>"
    return f"<{soap}:Fault{_declarations(declared)}>{inner}</{soap}:Fault>"


def must_understand_fault(version: SoapVersion, qnames: Sequence[str]) -> FaultMessage:
    """The answer to mandatory header blocks that are not understood, given as Clark names."""
    names = ", ".join(qnames)
    fault = Fault(f"{{{version.namespace}}}MustUnderstand", f"not understood: {names}")
    if version is SoapVersion.SOAP_11:
        return FaultMessage(fault)
    blocks = []
    for qname in qnames:
        declared = {"S12": S12}
        name = _qname(qname, declared)
        blocks.append(
            f'<S12:NotUnderstood{_declarations(declared)} qname="{name}"></S12:NotUnderstood>'
        )
    return FaultMessage(fault, tuple(blocks))


def version_mismatch_fault(version: SoapVersion) -> FaultMessage:
    """The answer, in `version`, to an Envelope of an unknown one; it names those that are known."""
    fault = Fault(
        f"{{{version.namespace}}}VersionMismatch",
        "the Envelope is in a namespace that is neither SOAP 1.2 nor SOAP 1.1",
    )
    upgrade = (
        f'<S12:Upgrade xmlns:S11="{S11}" xmlns:S12="{S12}">'
        '<S12:SupportedEnvelope qname="S12:Envelope"></S12:SupportedEnvelope>'
        '<S12:SupportedEnvelope qname="S11:Envelope"></S12:SupportedEnvelope>'
        "</S12:Upgrade>"
    )
    return FaultMessage(fault, (upgrade,))


def _qname(clark: str, declared: dict[str, str]) -> str:
    """A Clark name as prefix and local name; the prefix is added to those declared."""
    if not clark.startswith("{"):
        return xml.escape_attribute(clark)
    uri, _, name = clark[1:].rpartition("}")
    prefix = _CODE_PREFIX.get(uri) or next((p for p, u in declared.items() if u == uri), None)
    if prefix is None:
        prefix = f"q{len(declared)}"
    declared[prefix] = uri
    return f"{prefix}:{xml.escape_attribute(name)}"


def _declarations(declared: Mapping[str, str]) -> str:
    return "".join(
        f' xmlns:{prefix}="{xml.escape_attribute(uri)}"' for prefix, uri in sorted(declared.items())
    )
