"""SOAP 1.1 and 1.2 envelopes: read with every rule checked, written so that digests hold.

An `Envelope` keeps the very lxml elements that were parsed, so that what a signature covers and
what is acted upon are the same nodes. Written blocks and the Body are self-contained and in
exclusive canonical form: the digest of each is the digest of its bytes, alone or in the envelope.

Exclusive canonical form drops a namespace declaration that no element or attribute name uses,
although a value (a QName in a Fault, `xsi:type`) may need it. Such declarations are kept on the
Envelope, outside of the Body: `value_namespaces` finds them, `write_body` refuses to lose them.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from lxml import etree

from postroad.wire import xml
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.names import (
    S11,
    S11_NEXT,
    S12,
    S12_NEXT,
    S12_NONE,
    S12_ULTIMATE_RECEIVER,
    WSSE,
    WSU,
)

EBMS_ROLE: Final = "ebms"
"""The actor or role of the second wsse:Security header, which authorizes a pull (Core 7.10)."""
ENDPOINT_ROLES: Final = frozenset((S12_ULTIMATE_RECEIVER, EBMS_ROLE))

_BLANK: Final = " \t\r\n"
_TRUTH: Final = {"1": True, "true": True, "0": False, "false": False}
_NCNAME: Final = re.compile(r"[^\W\d][\w.\-\u00b7]*", re.UNICODE)
_SECURITY: Final = f"{{{WSSE}}}Security"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class SoapVersion(Enum):
    SOAP_11 = ("1.1", S11, "S11", "text/xml", "actor", "1", "Client", "Server")
    SOAP_12 = ("1.2", S12, "S12", "application/soap+xml", "role", "true", "Sender", "Receiver")

    def __init__(
        self,
        number: str,
        namespace: str,
        prefix: str,
        media_type: str,
        role_name: str,
        must_understand: str,
        sender: str,
        receiver: str,
    ) -> None:
        self.number = number
        self.namespace = namespace
        self.prefix = prefix
        self.media_type = media_type
        self.role_name = role_name
        """The local name of the attribute that targets a header block: `actor` or `role`."""
        self.must_understand = must_understand
        """How a true mustUnderstand is spelled when written."""
        self.role_attribute = f"{{{namespace}}}{role_name}"
        self.must_understand_attribute = f"{{{namespace}}}mustUnderstand"
        self.header_tag = f"{{{namespace}}}Header"
        self.body_tag = f"{{{namespace}}}Body"
        self.sender = f"{{{namespace}}}{sender}"
        """The fault code that blames the sender, as a Clark name."""
        self.receiver = f"{{{namespace}}}{receiver}"


_BY_ENVELOPE: Final = {f"{{{version.namespace}}}Envelope": version for version in SoapVersion}


class HeaderBlock(NamedTuple):
    element: etree._Element
    role: str | None
    """The value of `actor` or `role`; None is the ultimate receiver."""
    must_understand: bool


class Envelope(NamedTuple):
    version: SoapVersion
    root: etree._Element
    header: etree._Element | None
    body: etree._Element
    blocks: tuple[HeaderBlock, ...]


class UnknownEnvelope(EbmsError):
    """The document is no Envelope of a version of SOAP that is known here."""


def version_of(root: etree._Element) -> SoapVersion | None:
    """The SOAP version of an Envelope element; None when it is not one that is known here."""
    tag = root.tag
    return _BY_ENVELOPE.get(tag) if isinstance(tag, str) else None


def read_envelope(root: etree._Element) -> Envelope:
    """The parts of a SOAP envelope; EBMS:0009 when it breaks a rule of its SOAP version."""
    version = version_of(root)
    if version is None:
        raise UnknownEnvelope(
            "EBMS:0009",
            f"expected a SOAP 1.1 or 1.2 Envelope, found <{xml.local(root)[:80]}> "
            f"in namespace {xml.namespace(root)[:200] or '(none)'}",
            location=xml.path(root),
        )
    _refuse_instructions(root)
    header, body = _header_and_body(root, version)
    blocks = () if header is None else tuple(_blocks(header, version))
    return Envelope(version, root, header, body, blocks)


def _header_and_body(
    root: etree._Element, version: SoapVersion
) -> tuple[etree._Element | None, etree._Element]:
    header_tag, body_tag = version.header_tag, version.body_tag
    header: etree._Element | None = None
    body: etree._Element | None = None
    _refuse_text(root, root.text)
    for child in root:
        tag, tail = child.tag, child.tail
        if tail is not None:
            _refuse_text(root, tail)
        if not isinstance(tag, str):
            continue
        if tag == header_tag:
            if header is not None:
                _refuse(child, "the Envelope has more than one Header")
            if body is not None:
                _refuse(child, "the Header stands after the Body")
            header = child
        elif tag == body_tag:
            if body is not None:
                _refuse(child, "the Envelope has more than one Body")
            body = child
        elif body is None:
            _refuse(child, f"<{xml.local(child)[:80]}> stands where only Header and Body may stand")
        elif version is SoapVersion.SOAP_12:
            _refuse(child, f"<{xml.local(child)[:80]}> stands after the Body")
    if body is None:
        _refuse(root, "the Envelope has no Body")
    return header, body


def _blocks(header: etree._Element, version: SoapVersion) -> list[HeaderBlock]:
    _refuse_text(header, header.text)
    blocks = []
    for child in header:
        tag, tail = child.tag, child.tail
        if tail is not None:
            _refuse_text(header, tail)
        if not isinstance(tag, str):
            continue
        if tag[0] != "{":
            _refuse(child, f"the header block <{tag[:80]}> is in no namespace")
        blocks.append(HeaderBlock(child, _role(child, version), _must_understand(child, version)))
    return blocks


def _role(block: etree._Element, version: SoapVersion) -> str | None:
    role = block.get(version.role_attribute)
    if role is None and block.tag == _SECURITY:
        # The example in Core 7.11 writes the attribute without a prefix.
        role = block.get("role", block.get("actor"))
    return (role.strip(_BLANK) or None) if role is not None else None


def _must_understand(block: etree._Element, version: SoapVersion) -> bool:
    value = block.get(version.must_understand_attribute)
    if value is None:
        return False
    truth = _TRUTH.get(value.strip(_BLANK))
    if truth is None:
        _refuse(block, f"mustUnderstand must be 0, 1, true or false, found {value[:80]!r}")
    return truth


def _refuse_instructions(root: etree._Element) -> None:
    """Neither SOAP version allows processing instructions in a message."""
    found = next(root.iter(etree.PI), None)
    sibling = root.getprevious()
    while found is None and sibling is not None:
        if isinstance(sibling, etree._ProcessingInstruction):
            found = sibling
        sibling = sibling.getprevious()
    if found is not None:
        _refuse(root, "a SOAP message must not hold processing instructions")


def _refuse_text(parent: etree._Element, piece: str | None) -> None:
    if piece is not None and piece.strip(_BLANK):
        _refuse(parent, f"text is not allowed here, found {piece.strip(_BLANK)[:80]!r}")


def _refuse(element: etree._Element, detail: str) -> NoReturn:
    raise EbmsError("EBMS:0009", detail, location=xml.path(element))


def not_understood(
    envelope: Envelope, understood: Container[str], roles: Container[str] = ENDPOINT_ROLES
) -> list[HeaderBlock]:
    """The mandatory header blocks for one of `roles` whose Clark name is not understood.

    Every node acts as `next` and none as `none`; a block without a role is for the ultimate
    receiver. A forwarding MSH acts as nextmsh and not as the ultimate receiver.
    """
    missed = []
    for block in envelope.blocks:
        if not block.must_understand or block.role == S12_NONE:
            continue
        role = block.role or S12_ULTIMATE_RECEIVER
        acting = role in (S12_NEXT, S11_NEXT) or role in roles
        if acting and block.element.tag not in understood:
            missed.append(block)
    return missed


def write_envelope(
    version: SoapVersion,
    header_blocks: Sequence[str],
    body: str,
    *,
    namespaces: Mapping[str, str] = _NONE,
) -> bytes:
    """An envelope around blocks and a Body that were written before; they stay as they are.

    `namespaces` (prefix to URI) are declared on the Envelope for the sake of values in the Body.
    """
    soap = version.prefix
    if namespaces.get(soap, version.namespace) != version.namespace:
        raise ValueError(f"the prefix {soap!r} is SOAP's own; send the document as an attachment")
    declared = "".join(
        f' xmlns:{prefix}="{xml.escape_attribute(uri)}"'
        for prefix, uri in namespaces.items()
        if prefix != soap
    )
    header = f"<{soap}:Header>{''.join(header_blocks)}</{soap}:Header>" if header_blocks else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{soap}:Envelope xmlns:{soap}="{version.namespace}"{declared}>'
        f"{header}{body}</{soap}:Envelope>"
    ).encode()


def write_body(
    version: SoapVersion,
    content: str = "",
    *,
    id: str | None = None,
    namespaces: Mapping[str, str] = _NONE,
    limits: Limits = DEFAULT,
) -> str:
    """The Body in exclusive canonical form, with `wsu:Id` when a signature is to refer to it.

    `content` is the XML of what stands in the Body. ValueError when it is not well-formed, holds
    a processing instruction, or needs namespaces that are not among those of the Envelope.
    """
    soap = version.prefix
    if id is None:
        start = f'<{soap}:Body xmlns:{soap}="{version.namespace}">'
    else:
        start = (
            f'<{soap}:Body xmlns:{soap}="{version.namespace}" xmlns:wsu="{WSU}" '
            f'wsu:Id="{_checked_id(id)}">'
        )
    if not content:
        return f"{start}</{soap}:Body>"
    body = _parse_content(content, start, f"</{soap}:Body>", limits)
    canonical = _canonical(body)
    if "&" in content:
        _refuse_unsound(canonical, limits)
    for prefix, uri in _lost(body, canonical, limits).items():
        if namespaces.get(prefix) != uri and not (prefix == soap and uri == version.namespace):
            raise ValueError(
                f"a value in the Body uses the prefix {prefix!r} of {uri}; "
                "it must be among the namespaces of the Envelope"
            )
    return canonical.decode()


def value_namespaces(content: str, *, limits: Limits = DEFAULT) -> dict[str, str]:
    """The namespaces that only values in the content use: to be declared on the Envelope.

    ValueError when one prefix stands for two namespaces there, which one Envelope cannot declare.
    """
    if not content:
        return {}
    body = _parse_content(content, "<Body>", "</Body>", limits)
    canonical = _canonical(body)
    if "&" in content:
        _refuse_unsound(canonical, limits)
    return _lost(body, canonical, limits)


def _parse_content(content: str, start: str, end: str, limits: Limits) -> etree._Element:
    content = content.removeprefix("\ufeff")
    if content.startswith("<?xml") and content[5:6] in _BLANK:
        content = content.partition("?>")[2]
    try:
        body = xml.parse(f"{start}{content}{end}".encode(), limits, where="Body")
    except EbmsError as error:
        raise ValueError(f"the content of the Body cannot be sent: {error.detail}") from None
    except UnicodeEncodeError:
        raise ValueError("the content of the Body holds characters that XML forbids") from None
    if next(body.iter(etree.PI), None) is not None:
        raise ValueError("the content of the Body holds a processing instruction; SOAP forbids it")
    return body


def _canonical(body: etree._Element) -> bytes:
    try:
        return xml.canonical(body)
    except EbmsError:
        raise ValueError(
            "a namespace name in the Body is no absolute URI, so it has no canonical form; "
            "send the document as an attachment"
        ) from None


def _refuse_unsound(canonical: bytes, limits: Limits) -> None:
    """libxml2 does not escape `&` in namespace names: such a document cannot be canonicalised."""
    try:
        if xml.canonical(_reparsed(canonical, limits)) == canonical:
            return
    except EbmsError:
        pass
    raise ValueError("a namespace name in the Body holds '&'; send the document as an attachment")


def _reparsed(canonical: bytes, limits: Limits) -> etree._Element:
    return xml.parse(canonical, replace(limits, envelope_bytes=len(canonical)), where="Body")


def _lost(body: etree._Element, canonical: bytes, limits: Limits) -> dict[str, str]:
    """Prefixes that values below use although canonical form no longer declares them there."""
    if canonical == xml.canonical(body, exclusive=False):
        return {}
    lost: dict[str, str] = {}
    sent = _reparsed(canonical, limits)
    for before, after in zip(body.iter("*"), sent.iter("*"), strict=True):
        values = [value for value in (xml.text(before), *before.values()) if ":" in value]
        if not values:
            continue
        kept = after.nsmap
        for prefix, uri in before.nsmap.items():
            if prefix is None or kept.get(prefix) == uri:
                continue
            if not any(f"{prefix}:" in value for value in values):
                continue
            if lost.setdefault(prefix, uri) != uri:
                raise ValueError(
                    f"the prefix {prefix!r} stands for {lost[prefix]} and for {uri} in values of "
                    "the Body; send the document as an attachment"
                )
    return lost


def _checked_id(id: str) -> str:
    if not _NCNAME.fullmatch(id):
        raise ValueError(f"an XML id must be a name without a colon, not {id!r}")
    return id


def legible(text: str) -> str:
    """Text for people to read: what XML cannot hold is replaced, not refused."""
    return xml.UNWRITABLE.sub("\ufffd", text)
