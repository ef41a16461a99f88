"""What changes in an ebXML message on its way: a TraceHeader more, another Via, a signature.

An envelope is changed by cutting its bytes at the places that expat tells; every other byte stays
as it was written, by whomever. So signatures hold, which cover all but TraceHeaderList and Via.
"""

from collections.abc import Iterator
from typing import Final
from xml.parsers import expat

from msgspec import Struct

from postroad.wire.ebxml import Dialect, TraceHeader, Via
from postroad.wire.ebxml_writer import write_trace_header, write_trace_header_list, write_via
from postroad.wire.names import DS, S11

_SEPARATOR: Final = "\x1f"
"""Stands between namespace and local name. Expat refuses a namespace that contains it, so it is a
character that XML does not allow: a name with a space in it is well-formed."""
_HEADER: Final = f"{S11}{_SEPARATOR}Header"
_SIGNATURE: Final = f"{DS}{_SEPARATOR}Signature"
_HEADER_DEPTH: Final = 2
_BLOCK_DEPTH: Final = 3


class _Span(Struct):
    """Where an element stands: its first byte, the byte of its end tag, the byte after it."""

    name: str
    """Namespace, `_SEPARATOR`, local name."""
    start: int
    inner_end: int = -1
    end: int = -1


class _Places:
    """The Header of an envelope and its blocks, with their places in the bytes."""

    def __init__(self, envelope: bytes) -> None:
        self.header: _Span | None = None
        self.blocks: list[_Span] = []
        self._open: list[_Span] = []
        self._ended: list[_Span] = []
        self._depth = 0
        self.encoding = "utf-8"
        self._parser = parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.StartDoctypeDeclHandler = self._refuse
        parser.XmlDeclHandler = self._declaration
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.DefaultHandler = self._other
        try:
            parser.Parse(envelope, True)
        except expat.ExpatError as error:
            raise ValueError(f"the envelope is not well-formed XML: {error}") from None
        if envelope[:2] in (b"\xff\xfe", b"<\x00"):
            self.encoding = "utf-16-le"
        elif envelope[:2] in (b"\xfe\xff", b"\x00<"):
            self.encoding = "utf-16-be"

    def _refuse(self, *_: object) -> None:
        raise ValueError("a document type declaration (DTD) is not allowed in a message")

    def _declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        self._settle()
        self.encoding = encoding or "utf-8"

    def _settle(self) -> None:
        """What ended before this event ends where it begins."""
        for span in self._ended:
            span.end = self._parser.CurrentByteIndex
        self._ended.clear()

    def _start(self, name: str, _attributes: object) -> None:
        self._settle()
        self._depth += 1
        span = _Span(name, self._parser.CurrentByteIndex)
        if self._depth == _HEADER_DEPTH and name == _HEADER and self.header is None:
            self.header = span
        elif self._depth == _BLOCK_DEPTH and self._in_header():
            self.blocks.append(span)
        self._open.append(span)

    def _in_header(self) -> bool:
        return self.header is not None and self.header.inner_end < 0

    def _end(self, _name: str) -> None:
        self._settle()
        self._depth -= 1
        span = self._open.pop()
        span.inner_end = self._parser.CurrentByteIndex
        self._ended.append(span)

    def _other(self, _data: str) -> None:
        self._settle()

    def named(self, name: str) -> Iterator[_Span]:
        return (block for block in self.blocks if block.name == name)

    def encoded(self, text: str) -> bytes:
        return text.encode(self.encoding, "xmlcharrefreplace")


def add_trace(envelope: bytes, dialect: Dialect, trace: TraceHeader) -> bytes:
    """The envelope with one TraceHeader more, after those that are there. [MS098-8.5-01]

    Without a TraceHeaderList there is one then, behind the MessageHeader.
    """
    if not dialect.has_trace:
        raise ValueError(f"version {dialect.name} has no TraceHeaderList")
    places = _Places(envelope)
    found = next(places.named(_name(dialect, "TraceHeaderList")), None)
    if found is not None and _is_closed(envelope, found, places):
        text = places.encoded(write_trace_header(trace, dialect, alone=True))
        return _spliced(envelope, found.inner_end, found.inner_end, text)
    list_ = places.encoded(write_trace_header_list((trace,), dialect, alone=True))
    if found is not None:
        return _spliced(envelope, found.start, found.end, list_)
    at = _after(places, _name(dialect, "MessageHeader"))
    return _spliced(envelope, at, at, list_)


def renew_trace(envelope: bytes, dialect: Dialect, trace: TraceHeader) -> bytes:
    """The envelope with this TraceHeader in the place of all that it came with. [RM001-4.2-02]"""
    places = _Places(envelope)
    found = next(places.named(_name(dialect, "TraceHeaderList")), None)
    if found is None:
        return add_trace(envelope, dialect, trace)
    text = places.encoded(write_trace_header_list((trace,), dialect, alone=True))
    return _spliced(envelope, found.start, found.end, text)


def renew_via(envelope: bytes, dialect: Dialect, via: Via | None) -> bytes:
    """The envelope with this Via in place of the one it came with. [MS098-8.6.2-02]"""
    places = _Places(envelope)
    new = b"" if via is None else places.encoded(write_via(via, dialect, alone=True))
    old = list(places.named(_name(dialect, "Via")))
    if not old:
        if not new:
            return envelope
        names = ("TraceHeaderList", "MessageHeader")
        at = _after(places, *(_name(dialect, name) for name in names))
        return _spliced(envelope, at, at, new)
    kept, at = [], 0
    for span in old:
        kept.append(envelope[at : span.start])
        at = span.end
    return kept[0] + new + b"".join(kept[1:]) + envelope[at:]


def insert_signature(envelope: bytes, signature: str) -> bytes:
    """The envelope with a ds:Signature before all others, else at the end of the Header.

    [MS098-8.8-04]
    """
    places = _Places(envelope)
    first = next(places.named(_SIGNATURE), None)
    at = _header(envelope, places).inner_end if first is None else first.start
    return _spliced(envelope, at, at, places.encoded(signature))


def _name(dialect: Dialect, local: str) -> str:
    return f"{dialect.namespace}{_SEPARATOR}{local}"


def _header(envelope: bytes, places: _Places) -> _Span:
    header = places.header
    if header is None or not _is_closed(envelope, header, places):
        raise ValueError("the envelope has no SOAP Header with something in it")
    return header


def _is_closed(envelope: bytes, span: _Span, places: _Places) -> bool:
    """Whether an element has an end tag: expat ends one without it where its tag ends."""
    return envelope.startswith(places.encoded("</"), span.inner_end) and span.inner_end < span.end


def _after(places: _Places, *names: str) -> int:
    """The place behind the first of these blocks that is there."""
    for name in names:
        for block in places.named(name):
            return block.end
    raise ValueError("the Header holds no MessageHeader")


def _spliced(envelope: bytes, start: int, end: int, text: bytes) -> bytes:
    return envelope[:start] + text + envelope[end:]
