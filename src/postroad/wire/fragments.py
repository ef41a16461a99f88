"""The mf:MessageFragment header of a split message, both ways (Part 2 sections 4.2 and 4.4.2).

A fragment's header holds what is needed to build the source message's MIME header again, so
nothing that could break out of a header line gets through. The same rules are held against what
is read and what is written: they are about the texts of the elements, by name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lxml import etree

from postroad.wire.ebms3_user_messages import Findings
from postroad.wire.errors import EbmsError
from postroad.wire.names import MF, S12_ULTIMATE_RECEIVER, WSU
from postroad.wire.soap import Envelope, HeaderBlock, SoapVersion
from postroad.wire.xml import elements, escape, escape_attribute, is_xml_text, local, path, text

MESSAGE_FRAGMENT: Final = f"{{{MF}}}MessageFragment"
MULTIPART_RELATED: Final = "Multipart/Related"
TYPES: Final = ("application/soap+xml", "application/xop+xml", "text/xml")
"""The schema lists the last two; SOAP 1.2 with attachments needs the first."""
COMPRESSION_ALGORITHMS: Final = ("gzip", "compress", "deflate", "identity")
MAX_COUNT: Final = 2**31 - 1
MAX_SIZE: Final = 2**63 - 1
LONGEST_GROUP_ID: Final = 1000


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """The parameters of the source's Content-Type, and its description. [P2-4.2.3-01]"""

    boundary: str
    type: str
    start: str
    """The Content-ID of the source's SOAP part, without angle brackets."""
    start_info: str | None = None
    content_description: str | None = None
    content_type: str = MULTIPART_RELATED


@dataclass(frozen=True, slots=True)
class MessageFragment:
    href: str
    """`cid:` URL of the MIME part that holds the fragment."""
    group_id: str
    fragment_num: int
    fragment_count: int | None = None
    message_size: int | None = None
    message_header: MessageHeader | None = None
    action: str | None = None
    """SOAPAction header or action parameter of the source message."""
    compression_algorithm: str | None = None
    compressed_message_size: int | None = None
    must_understand: bool = True
    role: str | None = None
    """SOAP role or actor; None is the ultimate receiver."""
    id: str | None = None
    """The value of `@wsu:Id`, by which a signature refers to it."""


_FRAGMENT: Final = (
    "GroupId",
    "MessageSize",
    "FragmentCount",
    "FragmentNum",
    "MessageHeader",
    "Action",
    "CompressionAlgorithm",
    "CompressedMessageSize",
)
_HEADER: Final = (
    "Content-Type",
    "Boundary",
    "Type",
    "Start",
    "StartInfo",
    "Content-Description",
)
"""The children in the order of the schema."""
_REQUIRED: Final = frozenset(("GroupId", "FragmentNum", "Boundary", "Type", "Start"))

_PRINTABLE: Final = "[!#-[\\]-~]"  # no space, quote or backslash
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]*")
_RULES: Final = {
    "href": (re.compile(r"cid:[!-~]+"), "a cid: URL"),
    "GroupId": (
        re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{LONGEST_GROUP_ID}}}"),
        f"a group id of at most {LONGEST_GROUP_ID} characters in one line",
    ),
    "Content-Type": (re.compile(MULTIPART_RELATED, re.I), MULTIPART_RELATED),
    "Boundary": (
        re.compile(rf"{_PRINTABLE}(?:(?: |{_PRINTABLE}){{0,68}}{_PRINTABLE})?"),
        "a MIME boundary of at most 70 characters",
    ),
    "Type": (re.compile("|".join(map(re.escape, TYPES))), f"one of {', '.join(TYPES)}"),
    "Start": (re.compile(r"[!#-;=?-\[\]-~]+"), "a Content-ID without angle brackets"),
    "StartInfo": (re.compile(rf"(?: |{_PRINTABLE})+"), "the value of a MIME parameter"),
    "Content-Description": (_LINE, "text in one line"),
    "Action": (_LINE, "text in one line"),
    "CompressionAlgorithm": (
        re.compile("|".join(COMPRESSION_ALGORITHMS)),
        f"one of {', '.join(COMPRESSION_ALGORITHMS)}",
    ),
}
_INTEGER: Final = re.compile(r"\+?0{0,40}[1-9][0-9]{0,18}")
_MOST: Final = {
    "MessageSize": MAX_SIZE,
    "FragmentCount": MAX_COUNT,
    "FragmentNum": MAX_COUNT,
    "CompressedMessageSize": MAX_SIZE,
}
_CODES: Final = {"href": "EBMS:0047", "CompressionAlgorithm": "EBMS:0001"}


def _fault(name: str, value: str) -> str | None:
    """What is wrong with the text of this attribute or element, as a sentence."""
    shown = repr(value if len(value) <= 80 else value[:80] + "…")
    most = _MOST.get(name)
    if most is not None:
        if _INTEGER.fullmatch(value) and int(value) <= most:
            return None
        return f"{shown} is not an integer from 1 to {most}"
    pattern, meaning = _RULES[name]
    if pattern.fullmatch(value) and is_xml_text(value):
        return None
    return f"{shown} is not {meaning}"


def _conflict(values: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Values that are right alone but not together: the name, the code, a sentence."""
    number, count = int(values["FragmentNum"]), values.get("FragmentCount")
    if count is not None and number > int(count):
        return "FragmentNum", "EBMS:0048", f"this is fragment {number} of only {int(count)}"
    if ("CompressionAlgorithm" in values) != ("CompressedMessageSize" in values):
        there = "CompressionAlgorithm"
        absent = "CompressedMessageSize"
        if absent in values:
            there, absent = absent, there
        return there, "EBMS:0009", f"it stands there without {absent}"
    return None


def find_message_fragment(envelope: Envelope) -> HeaderBlock | None:
    """The one mf:MessageFragment among the header blocks; EBMS:0009 for a second one."""
    found = [block for block in envelope.blocks if block.element.tag == MESSAGE_FRAGMENT]
    if len(found) > 1:
        sentence = "the Header holds more than one mf:MessageFragment"
        raise EbmsError("EBMS:0009", sentence, location=path(found[1].element))
    return found[0] if found else None


def group_id_of(block: HeaderBlock) -> str | None:
    """The GroupId of an mf:MessageFragment, whatever else may be wrong with it."""
    found = [one for one in elements(block.element) if one.tag == f"{{{MF}}}GroupId"]
    if len(found) != 1 or elements(found[0]):
        return None
    value = text(found[0])
    return value if _fault("GroupId", value) is None else None


def read_message_fragment(
    block: HeaderBlock,
) -> tuple[MessageFragment | None, list[EbmsError]]:
    """Read an mf:MessageFragment; the value is there only when nothing is wrong with it.

    EBMS:0047 for the href, EBMS:0048 for a number above the count, EBMS:0001 for an unknown
    compression, EBMS:0009 for the rest. [P2-4.2.2-04, P2-4.6-10]
    """
    element = block.element
    findings = Findings()
    values: dict[str, str] = {}
    places: dict[str, etree._Element] = {}
    href = element.get("href")
    if href is None:
        findings.add("EBMS:0047", element, "the attribute href is missing")
    else:
        values["href"] = href
        places["href"] = element
    _children(element, _FRAGMENT, values, places, findings)
    header = places.get("MessageHeader")
    if header is not None:
        _children(header, _HEADER, values, places, findings)
    for name, value in values.items():
        sentence = _fault(name, value)
        if sentence is not None:
            findings.add(_CODES.get(name, "EBMS:0009"), places[name], sentence)
    if not findings.errors:
        conflict = _conflict(values)
        if conflict is None:
            return _value(block, values, with_header=header is not None), []
        name, code, sentence = conflict
        findings.add(code, places[name], sentence)
    return None, list(findings.result())


def _children(
    parent: etree._Element,
    order: tuple[str, ...],
    values: dict[str, str],
    places: dict[str, etree._Element],
    findings: Findings,
) -> None:
    """Sort the children into values by name; elements of other namespaces are extensions."""
    last = 0
    for child in elements(parent):
        if not str(child.tag).startswith(f"{{{MF}}}"):
            continue
        name = local(child)
        if name not in order:
            findings.add("EBMS:0009", child, f"no {name[:80]} is foreseen here")
        elif name in places:
            findings.add("EBMS:0009", child, f"there is more than one {name}")
        elif order.index(name) < last:
            sentence = f"{name} must stand before {order[last]}"
            findings.add("EBMS:0009", child, sentence)
        else:
            last = order.index(name)
            places[name] = child
            if name == "MessageHeader":
                continue
            if elements(child):
                findings.add("EBMS:0009", child, f"{name} may hold only text")
            values[name] = text(child)
    for name in order:
        if name in _REQUIRED and name not in places:
            findings.add("EBMS:0009", parent, f"the element {name} is missing")


def _value(block: HeaderBlock, values: Mapping[str, str], *, with_header: bool) -> MessageFragment:
    header = None
    if with_header:
        header = MessageHeader(
            boundary=values["Boundary"],
            type=values["Type"],
            start=values["Start"],
            start_info=values.get("StartInfo"),
            content_description=values.get("Content-Description"),
            content_type=values.get("Content-Type", MULTIPART_RELATED),
        )
    numbers = {name: int(values[name]) for name in _MOST if name in values}
    return MessageFragment(
        href=values["href"],
        group_id=values["GroupId"],
        fragment_num=numbers["FragmentNum"],
        fragment_count=numbers.get("FragmentCount"),
        message_size=numbers.get("MessageSize"),
        message_header=header,
        action=values.get("Action"),
        compression_algorithm=values.get("CompressionAlgorithm"),
        compressed_message_size=numbers.get("CompressedMessageSize"),
        must_understand=block.must_understand,
        role=block.role,
        id=block.element.get(f"{{{WSU}}}Id"),
    )


def write_message_fragment(fragment: MessageFragment, version: SoapVersion) -> str:
    """The header block in canonical form; ValueError when the value breaks a rule.

    It must be understood, and by the ultimate receiver, who is named by naming none.
    [P2-4.4.2-02]
    """
    if not fragment.must_understand or fragment.role not in (None, S12_ULTIMATE_RECEIVER):
        raise ValueError("a MessageFragment must be understood by the ultimate receiver")
    outer, inner = _texts(fragment)
    texts = {"href": fragment.href, **outer, **inner}
    for name, value in texts.items():
        sentence = _fault(name, value)
        if sentence is not None:
            raise ValueError(f"{name}: {sentence}")
    conflict = _conflict(texts)
    if conflict is not None:
        raise ValueError(f"{conflict[0]}: {conflict[2]}")
    soap, id = version.prefix, fragment.id
    return (
        f'<mf:MessageFragment xmlns:{soap}="{version.namespace}" xmlns:mf="{MF}"'
        + (f' xmlns:wsu="{WSU}"' if id is not None else "")
        + f' href="{escape_attribute(fragment.href)}"'
        + (f' wsu:Id="{escape_attribute(id)}"' if id is not None else "")
        + f' {soap}:mustUnderstand="{version.must_understand}">'
        + "".join(_written(name, outer, inner) for name in _FRAGMENT)
        + "</mf:MessageFragment>"
    )


def _texts(fragment: MessageFragment) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of the children of MessageFragment and of MessageHeader, by name."""
    outer = {
        "GroupId": fragment.group_id,
        "MessageSize": fragment.message_size,
        "FragmentCount": fragment.fragment_count,
        "FragmentNum": fragment.fragment_num,
        "Action": fragment.action,
        "CompressionAlgorithm": fragment.compression_algorithm,
        "CompressedMessageSize": fragment.compressed_message_size,
    }
    header = fragment.message_header
    inner = {}
    if header is not None:
        inner = {
            "Content-Type": header.content_type,
            "Boundary": header.boundary,
            "Type": header.type,
            "Start": header.start,
            "StartInfo": header.start_info,
            "Content-Description": header.content_description,
        }
    return (
        {name: str(value).strip() for name, value in outer.items() if value is not None},
        {name: value.strip() for name, value in inner.items() if value is not None},
    )


def _written(name: str, outer: Mapping[str, str], inner: Mapping[str, str]) -> str:
    if name == "MessageHeader" and inner:
        content = "".join(_written(each, inner, {}) for each in _HEADER)
    elif name in outer:
        content = escape(outer[name])
    else:
        return ""
    return f"<mf:{name}>{content}</mf:{name}>"
