"""An agreement of another product as XML: what is read is ticked off, what is left over is told.

So nothing is dropped in silence: an element or attribute that no importer asked for becomes a note
with its line.
"""

import base64
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from lxml import etree

from postroad.security.keys import KeyStoreError, load_certificates
from postroad.wire.errors import EbmsError
from postroad.wire.xml import elements, local, parse
from postroad.wire.xml import text as content

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME: Final = 120
_XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
_XLINK: Final = "http://www.w3.org/1999/xlink"
_XML: Final = "http://www.w3.org/XML/1998/namespace"
Element = etree._Element
Plain = dict[str, Any]


class Kind(StrEnum):
    NOTE = "note"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that was not carried over, or only in part: where and why."""

    file: str
    line: int
    kind: Kind
    message: str
    more: int = 0
    """In how many further places the same is to be said."""

    @property
    def text(self) -> str:
        more = f" (and in {self.more} more places)" if self.more > 1 else ""
        more = " (and in one more place)" if self.more == 1 else more
        return f"{self.kind}: {self.message}{more}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of a file: P-Modes as they stand in YAML, and what did not come of it."""

    what: str
    """What the file is."""
    pmodes: tuple[Plain, ...] = ()
    certificates: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """PEM by the file names that the P-Modes use."""
    notes: tuple[Remark, ...] = ()
    problems: tuple[Remark, ...] = ()
    """Why the file, or a part of it, was refused."""
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Where the P-Modes come from, by their ids."""


class Refusal(Exception):
    """Nothing can come of the file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Source:
    """One file, and what was read of it."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        try:
            self.root = parse(data, where="file")
        except EbmsError as error:
            raise Refusal(1, error.detail) from None
        self._read: set[Element] = {self.root}
        self._attributes: set[tuple[Element, str]] = set()
        self._skipped: set[Element] = set()
        self._remarks: dict[tuple[Kind, str], list[int]] = {}
        self.certificates: dict[str, bytes] = {}
        self.lines: dict[str, int] = {}

    def attribute(self, element: Element, name: str) -> str | None:
        """An attribute by its local name, trimmed; None where there is none, or nothing in it."""
        for key, value in element.attrib.items():
            if _local_name(key) == name:
                self._attributes.add((element, str(key)))
                return str(value).strip() or None
        return None

    def attributes(self, element: Element) -> dict[str, str]:
        """All attributes by their local names; whoever asks tells what becomes of them."""
        self._attributes.update((element, str(key)) for key in element.attrib)
        return {_local_name(key): str(value).strip() for key, value in element.attrib.items()}

    def tick(self, element: Element, attribute: str) -> None:
        """An element was found by its id."""
        self._read.add(element)
        self.attribute(element, attribute)

    def children(self, element: Element, name: str) -> list[Element]:
        """The children of a name."""
        found = [child for child in elements(element) if local(child) == name]
        self._read.update(found)
        return found

    def child(self, element: Element | None, *names: str) -> Element | None:
        """The first child, and its first child, and so on."""
        for name in names:
            found = self.children(element, name) if element is not None else []
            element = found[0] if found else None
        return element

    def text(self, element: Element | None, *names: str) -> str | None:
        """The text of a child; None where there is none, or nothing in it."""
        found = self.child(element, *names)
        return (content(found) or None) if found is not None else None

    def skip(self, element: Element) -> None:
        """Leave out an element with all that is in it: it has been told, or it is of no matter."""
        self._skipped.add(element)

    def note(self, element: Element, message: str) -> None:
        """Something that is not carried over, or otherwise."""
        self._remark(Kind.NOTE, line_of(element), message)

    def refuse(self, line: int, message: str) -> None:
        """A part of the file of which nothing comes."""
        self._remark(Kind.REFUSED, line, message)

    def _remark(self, kind: Kind, line: int, message: str) -> None:
        message = one_line(message)
        lines = self._remarks.setdefault((kind, message), [])
        if line not in lines:
            lines.append(line)

    def certificate(self, name: str, octets: bytes) -> str:
        """Keep a certificate; the name of its file."""
        body = "\n".join(textwrap.wrap(base64.b64encode(octets).decode(), 64))
        pem = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()
        stem = self.name.replace("\\", "/").rpartition("/")[2].removesuffix(".xml")
        wanted = f"{file_safe(stem)}-{file_safe(name)}.pem"
        file = unique(wanted, self.certificates, equal=pem)
        self.certificates[file] = pem
        return file

    def result(
        self, what: str, pmodes: list[Plain], reasons: Mapping[str, str] = MappingProxyType({})
    ) -> Imported:
        """All that came of the file, and what was left over: why, by the names of elements."""
        self._leftovers(self.root, reasons)
        remarks = sorted(
            (
                Remark(self.name, lines[0], kind, message, len(lines) - 1)
                for (kind, message), lines in self._remarks.items()
            ),
            key=lambda remark: remark.line,
        )
        return Imported(
            what,
            tuple(pmodes),
            self.certificates,
            tuple(remark for remark in remarks if remark.kind is Kind.NOTE),
            tuple(remark for remark in remarks if remark.kind is Kind.REFUSED),
            self.lines,
        )

    def _leftovers(self, element: Element, reasons: Mapping[str, str]) -> None:
        if element in self._skipped:
            return
        if element not in self._read:
            reason = reasons.get(local(element), "")
            self.note(element, f"{_place(element)} is not carried over{reason and ': '}{reason}")
            return
        for key in element.attrib:
            if str(key).startswith((f"{{{_XSI}}}", f"{{{_XML}}}")) or key == f"{{{_XLINK}}}type":
                continue
            if (element, str(key)) not in self._attributes:
                self.note(element, f"{_place(element)}/@{_local_name(key)} is not carried over")
        for child in elements(element):
            self._leftovers(child, reasons)


def _local_name(key: str | bytes) -> str:
    """The name of an attribute without its namespace; a prefix that nobody declared stays."""
    return str(key).rpartition("}")[2]


def one_line(text: str) -> str:
    """What a file holds, made harmless for a terminal and for a comment."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:600])
    return clean if len(text) <= 600 else clean + "…"


def _place(element: Element) -> str:
    """An element with its parent, as it is called in the file."""
    parent = element.getparent()
    return f"{local(parent)}/{local(element)}" if parent is not None else local(element)


def line_of(element: Element) -> int:
    """The line on which an element begins."""
    return int(str(element.sourceline or 1))


def file_safe(text: str) -> str:
    """A text that may be the name of a file anywhere."""
    return _UNSAFE.sub("-", text).strip("-.")[:_LONGEST_NAME] or "unnamed"


def unique(name: str, taken: Mapping[str, object], *, equal: object = None) -> str:
    """A name that is not taken, or only for the very same."""
    stem, dot, ending = name.rpartition(".") if name.endswith(".pem") else (name, "", "")
    number = 1
    while name in taken and (equal is None or taken[name] != equal):
        number += 1
        name = f"{stem}-{number}{dot}{ending}"
    return name


def decoded(text: str) -> bytes | None:
    """A certificate in base64, or None where it is something else."""
    try:
        octets = base64.b64decode("".join(text.split()), validate=True)
        load_certificates(octets)
    except (ValueError, KeyStoreError):
        return None
    return octets


def typed(value: str, type_: str | None) -> str | Plain:
    """A party id, service or agreement; a URI may stand alone."""
    return {"value": value, "type": type_} if type_ else value


def party_id(value: str, type_: str | None) -> str | Plain:
    return {"id": value, "type": type_} if type_ else value


def pruned(value: Any) -> Any:
    """Without what is unset, and groups that hold nothing."""
    if isinstance(value, dict):
        kept = {key: pruned(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [], ())}
    if isinstance(value, list | tuple):
        return [pruned(item) for item in value]
    return value
