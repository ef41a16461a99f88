"""Text that breaks careless programs, put into every field of an XML document."""

from collections.abc import Iterable, Iterator
from typing import Final

from lxml import etree

TEXTS: Final = (
    "",
    " ",
    "a b@c",
    "a\tb@c",
    "a@b\nSubject: x",
    "a@b\r\n\r\nx",
    "<a@b>",
    "a<b@c",
    "a]]>b&amp;\"'@c",
    "a\x7fb@c",
    "a\x85b@c",
    "a\xa0b@c",
    "a\u2028b@c",
    "a\u3000b@c",
    "a\u200bb@c",
    "\u202ea@b",
    "a\ufffdb@c",
    "a\U0010fffd@c",
    "a\u0301\u00e9@c",
    "\u0663\u0664",
    "../../../etc/passwd",
    "%00%n%s{0}{a.b}$(x)`x`",
    "'; drop table message; --",
    "=cmd|' /C x'!A1",
    "\x9b2J",
    "urn:x:" + "y" * 70_000,
    "-1",
    "1e999",
    "9" * 5000,
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-14:00",
    "2026-02-30T25:61:61Z",
    "P9999999999999Y",
    "cid:",
    "cid:%00%ff",
    "#",
    "http://[::1",
    "http://x:99999999/",
    "http://\u2100.example/",
)
"""What XML can hold."""
FEW: Final = (*TEXTS[:8:2], *TEXTS[25:])
"""Where many documents are tried."""
FORBIDDEN: Final = ("&#0;", "&#xD800;", "&#xFFFF;", "\0", "\ud800", "&x;", "&#x110000;")
"""What a parser refuses; written as it stands."""
_MARK: Final = "A-FIELD"


def variants(document: bytes, texts: Iterable[str] = TEXTS) -> Iterator[tuple[str, bytes]]:
    """A document with each text in each of its fields: what was changed, and the document."""
    root = etree.fromstring(document)
    for element, name in list(_fields(root)):
        before = (element.text if name is None else element.get(name)) or ""
        where = etree.QName(element).localname
        if name is not None:
            where += f"/@{etree.QName(name).localname}"
        for text in texts:
            _put(element, name, text)
            yield f"{where} = {text[:40]!r}", etree.tostring(root, method="c14n")
        _put(element, name, _MARK)
        for text in FORBIDDEN:
            raw = etree.tostring(root, method="c14n").decode().replace(_MARK, text)
            yield f"{where} = {text!r}", raw.encode("utf-8", "surrogatepass")
        _put(element, name, before)


def _fields(root: etree._Element) -> Iterator[tuple[etree._Element, str | None]]:
    """Elements that hold text, and attributes."""
    for element in root.iter("{*}*"):
        if not len(element):
            yield element, None
        for name in element.attrib:
            yield element, str(name)


def _put(element: etree._Element, name: str | None, text: str) -> None:
    if name is None:
        element.text = text
    else:
        element.set(name, text)
