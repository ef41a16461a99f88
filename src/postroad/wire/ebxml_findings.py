"""What the reader of ebXML elements goes by: places, children, attributes, values, and findings.

A reader never stops at a deviation: it notes it in `Findings` and goes on. What the text of the
specification breaks itself in its samples is forgiven: a warning, and a failure only for a reader
that is not lenient.
"""

import re
from collections.abc import Container, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from lxml import etree

from postroad.wire import xml
from postroad.wire.ebms3_user_messages import EPOCH, is_uri, parse_timestamp, quoted
from postroad.wire.ebxml import Dialect, Extension
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import DS, EB1, EB2, S11, S12, XLINK, XML

BLANK: Final = " \t\r\n"
LANG: Final = f"{{{XML}}}lang"
MUST_UNDERSTAND: Final = f"{{{S11}}}mustUnderstand"
ACTOR: Final = f"{{{S11}}}actor"
TRUE: Final = ("1", "true")
_FALSE: Final = ("0", "false")
_MOST_FINDINGS: Final = 50
_CROWD: Final = 256
_PREFIX: Final = {
    S11: "SOAP-ENV:",
    S12: "SOAP-ENV:",
    EB1: "eb:",
    EB2: "eb:",
    DS: "ds:",
    XLINK: "xlink:",
    XML: "xml:",
    "": "",
}
_name: Final = re.compile(r"[^\W\d][\w.\-\u00b7]*").fullmatch
_language: Final = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*").fullmatch
_odd_time: Final = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)T?(\d\d):?(\d\d):?(\d\d)(\.\d+)?Z?(?:([+-])(\d\d?)(?::?(\d\d))?)?",
    re.ASCII,
).fullmatch


class Findings:
    """What a reader noticed, in the order of the document, up to a bound."""

    def __init__(self, dialect: Dialect, *, lenient: bool, known: Container[str]) -> None:
        self.dialect = dialect
        self.lenient = lenient
        self.known = known
        """Foreign namespaces whose elements somebody here understands."""
        self._errors: list[EbmsError] = []
        self._hidden = 0
        self._hidden_severity = Severity.WARNING

    def add(
        self,
        code: str,
        element: etree._Element,
        detail: str,
        *,
        attribute: str = "",
        severity: Severity = Severity.FAILURE,
    ) -> None:
        """`attribute`: the one that is wrong, as the place shows it: `eb:version`."""
        if len(self._errors) >= _MOST_FINDINGS:
            self._hidden += 1
            if severity is Severity.FAILURE:
                self._hidden_severity = severity
            return
        where = path(element) + (f"/@{attribute}" if attribute else "")
        self._errors.append(EbmsError(code, detail, location=where, severity=severity))

    def warn(self, code: str, element: etree._Element, detail: str, *, attribute: str = "") -> None:
        self.add(code, element, detail, attribute=attribute, severity=Severity.WARNING)

    def forgive(
        self, code: str, element: etree._Element, detail: str, *, attribute: str = ""
    ) -> None:
        severity = Severity.WARNING if self.lenient else Severity.FAILURE
        self.add(code, element, detail, attribute=attribute, severity=severity)

    def result(self) -> tuple[EbmsError, ...]:
        if not self._hidden:
            return tuple(self._errors)
        detail = f"there are {self._hidden} further deviations, not listed"
        place = self._errors[-1].location
        more = EbmsError("OtherXml", detail, location=place, severity=self._hidden_severity)
        return (*self._errors, more)


def path(element: etree._Element) -> str:
    """The XPath of an element, with the prefixes SOAP-ENV and eb; foreign names by local-name().

    Among very many siblings it is not counted which one it is, as that is slow.
    """
    steps = [_step(one) for one in (element, *element.iterancestors())]
    return "/" + "/".join(reversed(steps))


def _step(element: etree._Element) -> str:
    tag = element.tag
    if not isinstance(tag, str):
        return "node()"
    prefix = _PREFIX.get(xml.namespace(element))
    name = xml.local(element)
    step = f"*[local-name()='{name}']" if prefix is None else prefix + name
    parent = element.getparent()
    if parent is None or len(parent) > _CROWD:
        return step
    alike = [one for one in parent.iterchildren("*") if _same_step(one, element, prefix)]
    return step if len(alike) == 1 else f"{step}[{alike.index(element) + 1}]"


def _same_step(one: etree._Element, element: etree._Element, prefix: str | None) -> bool:
    if prefix is None:
        return xml.local(one) == xml.local(element)
    return one.tag == element.tag


class Model:
    """The children of an ebXML element: `From To CPAId Service? Description* Reference+`.

    An open model has room for foreign elements, a mixed one for text.
    """

    __slots__ = ("bounds", "mixed", "open")

    def __init__(self, children: str, *, open: bool = False, mixed: bool = False) -> None:
        self.bounds = {
            item.rstrip("?*+"): (item[-1] not in "?*", item[-1] in "*+")
            for item in children.split()
        }
        self.open = open
        self.mixed = mixed


class Children:
    """The children of one element, by name; and the foreign ones."""

    __slots__ = ("_by_name", "foreign")

    def __init__(self, by_name: dict[str, list[etree._Element]], foreign: list[etree._Element]):
        self._by_name = by_name
        self.foreign = foreign

    def all(self, name: str) -> list[etree._Element]:
        return self._by_name.get(name, [])

    def first(self, name: str) -> etree._Element | None:
        return next(iter(self.all(name)), None)


def children(element: etree._Element, model: Model, findings: Findings) -> Children:
    """The child elements; what breaks the model is noted. Another order is forgiven."""
    names = tuple(model.bounds)
    found: dict[str, list[etree._Element]] = {name: [] for name in names}
    foreign: list[etree._Element] = []
    last = 0
    if not model.mixed and _has_text(element):
        findings.add("OtherXml", element, "expected elements only, found text between them")
    for child in element.iterchildren("*"):
        namespace, name = xml.namespace(child), xml.local(child)
        if namespace != findings.dialect.namespace:
            if namespace:
                foreign.append(child)
            else:
                findings.add("OtherXml", child, f"<{name[:80]}> is in no namespace")
            continue
        if name not in found:
            findings.add(
                "OtherXml",
                child,
                f"<{name[:80]}> is not known in {xml.local(element)}; "
                f"expected {', '.join(names) or 'no ebXML element'}",
            )
            continue
        index = names.index(name)
        if index < last:
            findings.forgive("OtherXml", child, f"{name} stands after {names[last]}")
        last = max(index, last)
        found[name].append(child)
    for name, (required, many) in model.bounds.items():
        items = found[name]
        if required and not items:
            findings.add("OtherXml", element, f"{name} is required, but there is none")
        elif len(items) > 1 and not many:
            findings.add("OtherXml", items[1], f"at most one {name} is allowed, found {len(items)}")
    for child in foreign:
        must_know(child, findings)
        if not model.open and xml.namespace(child) not in findings.known:
            findings.forgive(
                "OtherXml", child, f"{xml.local(element)} has no room for foreign elements"
            )
    return Children(found, foreign)


def _has_text(element: etree._Element) -> bool:
    pieces = (element.text, *(child.tail for child in element))
    return any(piece is not None and piece.strip(BLANK) for piece in pieces)


def must_know(element: etree._Element, findings: Findings) -> None:
    """A foreign element that must be understood is of a namespace that somebody here knows.

    [MS098-8.2.3-04] [MS098-8.2.3-05]
    """
    if understood(element) and xml.namespace(element) not in findings.known:
        findings.add(
            "NotSupported",
            element,
            f"{xml.local(element)[:80]} of {xml.namespace(element)[:200]} must be understood, "
            "but is not known here",
        )


def understood(element: etree._Element) -> bool:
    """Whether an element says that it must be understood."""
    return element.get(MUST_UNDERSTAND, "").strip(BLANK) in TRUE


def extensions(elements: Sequence[etree._Element], findings: Findings) -> tuple[Extension, ...]:
    found = []
    for element in elements:
        try:
            text = xml.canonical(element).decode()
        except EbmsError as error:
            findings.add("OtherXml", element, error.detail)
            continue
        found.append(Extension(str(element.tag), text, understood(element)))
    return tuple(found)


def attributes(element: etree._Element, known: Sequence[str], findings: Findings) -> None:
    """Note attributes that are not known; those of foreign namespaces may be there."""
    for key in map(str, element.keys()):
        namespace, _, name = key[1:].rpartition("}") if key[0] == "{" else ("", "", key)
        if namespace in ("", findings.dialect.namespace) and name not in known:
            findings.warn("OtherXml", element, f"the attribute {name[:80]!r} is not known here")


def attribute(
    element: etree._Element, name: str, findings: Findings, *, qualified: bool | None = None
) -> str | None:
    """An attribute of the ebXML namespace, or of none: the samples have both.

    `qualified`: it must be of that namespace; None: as the version has it.
    """
    value, plain = element.get(findings.dialect.tag(name)), element.get(name)
    where = place(element, name, findings)
    if value is None and plain is not None:
        value = plain
        if not findings.dialect.has_quality_of_service if qualified is None else qualified:
            sentence = f"the attribute {name} must be of the ebXML namespace"
            findings.forgive("OtherXml", element, sentence, attribute=where)
    elif plain is not None and plain != value:
        sentence = f"there are two attributes {name}, {quoted(value or '')} and {quoted(plain)}"
        findings.add("Inconsistent", element, sentence, attribute=where)
    if value is None:
        return None
    value = value.strip(BLANK)
    if not value:
        findings.add("OtherXml", element, f"the attribute {name} is empty", attribute=where)
    return value or None


def required(element: etree._Element, name: str, findings: Findings) -> str | None:
    value = attribute(element, name, findings)
    if value is None and element.get(findings.dialect.tag(name), element.get(name)) is None:
        findings.add("OtherXml", element, f"the attribute {name} is required, but it is missing")
    return value


def word(
    element: etree._Element,
    name: str,
    words: Sequence[str],
    findings: Findings,
    *,
    code: str = "ValueNotRecognized",
    any_case: bool = False,
    exact: bool = False,
) -> str | None:
    """An attribute that is one of a few words; None where it is missing or none of them.

    `any_case`: the specification itself has several spellings. `exact`: it says that case counts.
    """
    value = attribute(element, name, findings)
    if value is None or value in words:
        return value
    folded = None if exact else {one.lower(): one for one in words}.get(value.lower())
    expected = ", ".join(words)
    if folded is None:
        findings.add(
            code,
            element,
            f"{name} is one of {expected}, found {quoted(value)}",
            attribute=place(element, name, findings),
        )
    elif not any_case:
        findings.forgive(
            "ValueNotRecognized",
            element,
            f"{name} is spelled {folded}, found {quoted(value)}",
            attribute=place(element, name, findings),
        )
    return folded


def boolean(element: etree._Element, name: str, findings: Findings) -> bool | None:
    value = attribute(element, name, findings)
    if value is None:
        return None
    if value.lower() in TRUE or value.lower() in _FALSE:
        if value not in TRUE and value not in _FALSE:
            findings.forgive(
                "ValueNotRecognized",
                element,
                f"{name} is spelled {value.lower()}",
                attribute=place(element, name, findings),
            )
        return value.lower() in TRUE
    findings.add(
        "ValueNotRecognized",
        element,
        f"{name} is true or false, found {quoted(value)}",
        attribute=place(element, name, findings),
    )
    return None


def place(element: etree._Element, name: str, findings: Findings) -> str:
    """How an attribute is called in a place: with the prefix, where it has one."""
    return name if element.get(findings.dialect.tag(name)) is None else f"eb:{name}"


def xml_id(element: etree._Element, findings: Findings, *, needed: bool) -> str:
    """The id of an element; "" where it has none."""
    value = attribute(element, "id", findings, qualified=False)
    if value is None:
        if needed:
            findings.add("OtherXml", element, "the attribute id is required, but it is missing")
        return ""
    if not _name(value):
        findings.add(
            "OtherXml",
            element,
            f"an id is a name without a colon, found {quoted(value)}",
            attribute=place(element, "id", findings),
        )
    return value


def leaf(element: etree._Element, findings: Findings, known: Sequence[str] = ()) -> str:
    """The text of an element that may hold nothing but text."""
    attributes(element, known, findings)
    for child in element.iterchildren("*"):
        findings.add("OtherXml", child, f"expected text only, found <{xml.local(child)[:80]}>")
    return own_text(element)


def own_text(element: etree._Element) -> str:
    """All character data directly below the element; a comment does not hide half of it."""
    pieces = [element.text or "", *(child.tail or "" for child in element)]
    return "".join(pieces).strip(BLANK)


def filled(element: etree._Element | None, findings: Findings, known: Sequence[str] = ()) -> str:
    """The text of an element that must not be empty; "" where there is no element."""
    if element is None:
        return ""
    value = leaf(element, findings, known)
    if not value:
        findings.add("OtherXml", element, f"{xml.local(element)} is empty")
    return value


def time(element: etree._Element | None, findings: Findings) -> datetime:
    """A time in UTC; `EPOCH` where it is missing or cannot be read."""
    value = filled(element, findings)
    if element is None or not value:
        return EPOCH
    try:
        return parse_timestamp(value)[0]
    except ValueError as error:
        odd = parse_odd_time(value)
        if odd is None:
            findings.add("OtherXml", element, str(error))
            return EPOCH
    findings.forgive(
        "OtherXml",
        element,
        f"expected a date and time like 2026-01-31T12:00:00.000Z, found {quoted(value)}",
    )
    return odd


@lru_cache(maxsize=64)
def parse_odd_time(value: str) -> datetime | None:
    """A time as the samples have it: `20000725T121905.000Z`, `20001216T21:19:35.145Z-8`."""
    match = _odd_time(value)
    if match is None:
        return None
    fraction = (match[7] or ".0")[1:7].ljust(6, "0")
    offset = timedelta(hours=int(match[9] or 0), minutes=int(match[10] or 0))
    if match[8] == "-":
        offset = -offset
    try:
        year, month, day, hour, minute, second = (int(match[n]) for n in range(1, 7))
        moment = datetime(year, month, day, hour, minute, second, int(fraction), UTC)
        return moment - offset
    except (ValueError, OverflowError):
        return None


def must_be_uri(
    value: str, element: etree._Element, findings: Findings, *, forgiven: bool = False
) -> None:
    """A value that has no type tells by itself what it is. [MS098-8.4.1-07] [MS098-8.4.4.1-03]"""
    if value and not is_uri(value):
        note = findings.forgive if forgiven else findings.add
        note(
            "Inconsistent",
            element,
            f"{xml.local(element)} without the attribute type must be a URI, found {quoted(value)}",
        )


def language(element: etree._Element, findings: Findings) -> str:
    """The xml:lang of an element; `en` where it is missing."""
    value = element.get(LANG)
    if value is None:
        findings.forgive("OtherXml", element, "the attribute xml:lang is missing")
        return "en"
    value = value.strip(BLANK)
    if not is_language(value):
        findings.forgive(
            "OtherXml", element, f"{quoted(value)} names no language", attribute="xml:lang"
        )
        return "en"
    return value


def is_language(value: str) -> bool:
    """Whether it has the form of a language tag. [MS098-8.4.9-01]"""
    return _language(value) is not None


def is_xml_name(value: str) -> bool:
    """Whether it can be an XML ID."""
    return _name(value) is not None
