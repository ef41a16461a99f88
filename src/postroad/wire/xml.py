"""Reading XML that a stranger wrote, and writing XML that is canonical from the start.

Reading: one parser, one tree. No DTD, no entities, no network; depth, counts and sizes bounded.
Writing: elements are written by templates directly in exclusive canonical form (every visibly
used namespace is declared on the block's outermost element, attributes are in canonical order),
so that the digest of a block is the digest of the very bytes that are sent.
"""

import binascii
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, cast
from xml.parsers import expat

from lxml import etree

from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.names import DS, EB1, EB2, EB3, EBBP, EBINT, MF, S11, S12, WSA, WSSE, WSU, XENC

_PREFIX: Final = {
    S11: "S11",
    S12: "S12",
    EB3: "eb",
    EB2: "eb",
    EB1: "eb",
    EBINT: "ebint",
    MF: "mf",
    EBBP: "ebbp",
    WSA: "wsa",
    WSSE: "wsse",
    WSU: "wsu",
    DS: "ds",
    XENC: "xenc",
}
# How nearly every message begins: in UTF-8, and with its root element at once.
_PLAIN_START: Final = re.compile(
    rb"""<\?xml version=["']1.0["'] encoding=["'](?:UTF-8|utf-8)["']\?>\s*<[A-Za-z]"""
)
_NAMESPACE_URI: Final = etree.ErrorTypes.WAR_NS_URI
_MOST_OBJECTIONS: Final = 50
_ENCODINGS: Final = frozenset(
    ("UTF-8", "UTF8", "UTF-16", "UTF-16LE", "UTF-16BE", "US-ASCII", "ASCII", "ISO-8859-1", "LATIN1")
)


def parse(data: bytes, limits: Limits = DEFAULT, *, where: str = "envelope") -> etree._Element:
    """Parse hostile XML to its root element; EBMS:0009 for whatever is not acceptable."""
    if len(data) > limits.envelope_bytes:
        raise _refused(
            where, f"the XML is {len(data)} bytes, at most {limits.envelope_bytes} are allowed"
        )
    plain = _PLAIN_START.match(data) is not None
    if not plain:
        _refuse_doctype(data, where)
    tags = _tags(data)
    if tags > _MARKS_PER_NODE * limits.xml_elements:
        raise _refused(where, f"far more than {limits.xml_elements} elements and comments")
    try:
        root = _read(data, tags)
        if not data.isascii() or 0 in data[:4]:
            _check_by_expat(data)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise _refused(where, f"not well-formed XML: {_one_line(error)}") from None
    if not plain:
        _check_encoding(root, where)
    _check_shape(root, data, tags, limits, where)
    return root


def _parser(*, recover: bool) -> etree.XMLParser:
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        strip_cdata=False,
        recover=recover,
        collect_ids=False,
    )


class _Own(threading.local):
    """A parser for each thread, and with it a store of names for each.

    Only parsers are locked, not stores. Threads that use one parser come to use one store; one
    that writes before it reads has a store that looks things up in that of the main thread. Two
    such threads at work at once crash. A thread that first reads, by a new parser, shares nothing.
    """

    def __init__(self) -> None:
        self.strict = _parser(recover=False)
        etree.fromstring(b"<a/>", self.strict)


_own: Final = _Own()


def _tree(data: bytes) -> etree._Element:
    try:
        root = etree.fromstring(data, _own.strict)
    except etree.XMLSyntaxError:
        return _tree_on_its_own(data)
    return _tree_on_its_own(data) if len(_own.strict.error_log) else root


def _tree_on_its_own(data: bytes) -> etree._Element:
    """By a parser of its own, which can tell what it objects to.

    A namespace name that is no URI is well-formed all the same; libxml2 alone objects. After such
    an objection it may not report what is really wrong, such as text behind the root element, and
    after a hundred it reports nothing: a second parser decides whether the XML is well-formed.
    """
    parser = _parser(recover=False)
    try:
        root = etree.fromstring(data, parser)
        if len(parser.error_log):
            _check_by_expat(data)
        return root
    except etree.XMLSyntaxError:
        log = parser.error_log
        if len(log) > _MOST_OBJECTIONS or any(e.type != _NAMESPACE_URI for e in log):
            raise
    _check_by_expat(data)
    return etree.fromstring(data, _parser(recover=True))


def _check_by_expat(data: bytes) -> None:
    """Refuse names with characters that only the fifth edition of XML 1.0 allows.

    libxml2 takes them; most partners' parsers do not, nor does expat, which finds the places at
    which a relay cuts an envelope. Prefixes that nobody declared are refused, too: libxml2 does not
    report them where a namespace name after them is no URI.
    """
    try:
        expat.ParserCreate(namespace_separator="\n").Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None


class _Vocabulary:
    """Keeps strangers from filling the memory with names.

    lxml remembers every element and attribute name that it ever read until the thread ends, so
    messages full of new names would grow the process for ever. One in `_SAMPLE` messages, of those
    with many tags one in `_LARGE_SAMPLE`, is looked at; which ones nobody outside can foresee. Once
    too many new names came by, unfamiliar messages are read in a thread of their own, whose names
    go when the tree goes; so are very large ones at any time.
    """

    def __init__(self) -> None:
        self._names: set[bytes] = set()
        self._bytes = 0
        self._count = 0

    @property
    def full(self) -> bool:
        return self._bytes > _MOST_NAME_BYTES

    def is_safe(self, data: bytes, tags: int) -> bool:
        """Whether reading this here adds nothing, or little enough, to what is remembered."""
        self._count += 1
        if not self.full:
            if len(data) > _LARGE:
                return False
            sample = _SAMPLE if tags <= _MANY_TAGS else _LARGE_SAMPLE
            if hash((self._count, data[-64:])) % sample:
                return True
        names = {*_ELEMENT_NAMES.findall(data), *_ATTRIBUTE_NAMES.findall(data)}
        if names <= self._names:
            return True
        if self.full:
            return False
        self._bytes += sum(len(name) + 64 for name in names - self._names)
        self._names |= names
        return True


_MARKS_PER_NODE: Final = 3
"""A node is opened and closed by two `<` at most; a third of them may stand in CDATA."""
_SAMPLE: Final = 64
_LARGE_SAMPLE: Final = 16
_LARGE: Final = 512 * 1024
"""Bytes of a message that could bring too many names at once."""
_MANY_TAGS: Final = 4096
_MOST_NAME_BYTES: Final = 256 * 1024
_ELEMENT_NAMES: Final = re.compile(rb"<([^\s/>?!]+)")
_ATTRIBUTE_NAMES: Final = re.compile(rb"""\s([^\s=<>"'/]+)\s*=\s*["']""")
_vocabulary: Final = _Vocabulary()


def _read(data: bytes, tags: int) -> etree._Element:
    if _vocabulary.is_safe(data, tags):
        return _tree(data)
    with ThreadPoolExecutor(1) as own_thread:
        return own_thread.submit(_tree_on_its_own, data).result()


def _refused(where: str, detail: str) -> EbmsError:
    return EbmsError("EBMS:0009", detail, location=where)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _refuse_doctype(data: bytes, where: str) -> None:
    """Refuse a document type declaration before the parser sees it, in any encoding we accept."""
    head = data[:4]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or 0 in head:
        if head in (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff") or head[:2] == b"\x00\x00":
            raise _refused(where, "the XML is in UTF-32; use UTF-8")
        little = head[:2] == b"\xff\xfe" or head[1:2] == b"\x00"
        data = data.decode("utf-16-le" if little else "utf-16-be", "replace").encode()
    at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    while True:
        while data[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
            at += 1
        if data.startswith(b"<?", at):
            end, skip = data.find(b"?>", at), 2
        elif data.startswith(b"<!--", at):
            end, skip = data.find(b"-->", at + 4), 3
        else:
            break
        if end < 0:
            break
        at = end + skip
    if data[at : at + 2] == b"<!":
        raise _refused(where, "a document type declaration (DTD) is not allowed in a message")


def _check_encoding(root: etree._Element, where: str) -> None:
    encoding = root.getroottree().docinfo.encoding
    if encoding is not None and encoding.upper() not in _ENCODINGS:
        raise _refused(where, f"the XML is in {encoding}; use UTF-8 (or UTF-16, US-ASCII)")


_deeper: dict[int, etree.XPath] = {}
_nodes: Final = etree.XPath("count(//node()[not(self::text())])")
_widest: Final = etree.XPath("/descendant::*[count(@*) > $most][1]")
_is_wide: Final = etree.XPath("boolean(//@*[$most + 1])")
"""The same ten times as quickly, where there is none."""


def _deeper_than(depth: int) -> etree.XPath:
    found = _deeper.get(depth)
    if found is None:
        found = _deeper[depth] = etree.XPath("boolean(" + "/*" * (depth + 1) + ")")
    return found


def _is_one_byte(data: bytes) -> bool:
    """Whether the marks of XML are a byte each, so that they can be counted."""
    return 0 not in data[:4]


def _tags(data: bytes) -> int:
    """At least as many as there are tags and comments."""
    return data.count(b"<") if _is_one_byte(data) else len(data) // 4


def _check_shape(root: etree._Element, data: bytes, tags: int, limits: Limits, where: str) -> None:
    """Bound depth and counts. What a count over the raw bytes rules out is not looked for."""
    # Every element but the innermost one has a start tag and an end tag.
    if tags > 2 * limits.xml_depth and _deeper_than(limits.xml_depth)(root):
        raise _refused(where, f"elements are nested more than {limits.xml_depth} levels deep")
    if tags > limits.xml_elements and cast(float, _nodes(root)) > limits.xml_elements:
        raise _refused(where, f"more than {limits.xml_elements} elements and comments")
    most = limits.xml_attributes
    one_byte = _is_one_byte(data)
    if one_byte and data.count(b"=") <= most:
        return
    if not (one_byte and _few_namespaces(root, data, most)) and _too_many_namespaces(root, most):
        raise _refused(where, f"more than {most} namespaces are declared at once")
    if _is_wide(root, most=most):
        wide = cast(list[etree._Element], _widest(root, most=most))
        raise _refused(
            where,
            f"<{local(wide[0])[:80]}> has {len(wide[0].attrib)} attributes, "
            f"at most {most} are allowed",
        )


def _few_namespaces(root: etree._Element, data: bytes, most: int) -> bool:
    """Whether certainly no more are in scope anywhere, which is quick to tell.

    An element declares a prefix once at most: there are no more than prefixes times levels.
    """
    declared = data.split(b"xmlns")[1:]
    if len(declared) <= most:
        return True
    prefixes = len({one.partition(b"=")[0] for one in declared})
    return not _deeper_than(most // prefixes)(root)


def _too_many_namespaces(root: etree._Element, most: int) -> bool:
    """Whether so many are in scope somewhere: canonical form costs their square."""
    in_scope = 0
    for event, _ in etree.iterwalk(root, events=("start-ns", "end-ns")):
        in_scope += 1 if event == "start-ns" else -1
        if in_scope > most:
            return True
    return False


def local(element: etree._Element) -> str:
    """The local name; a comment or processing instruction has none."""
    tag = element.tag
    if not isinstance(tag, str):
        return ""
    return tag.rpartition("}")[2]


def namespace(element: etree._Element) -> str:
    """The namespace name; empty when there is none."""
    tag = element.tag
    return tag[1:].rpartition("}")[0] if isinstance(tag, str) and tag[:1] == "{" else ""


def elements(parent: etree._Element) -> list[etree._Element]:
    """The child elements, without comments, processing instructions and entities."""
    return list(parent.iterchildren("*"))


def text(element: etree._Element) -> str:
    """All character data directly below the element, with surrounding white space removed.

    Comments split text in the tree but not in the canonical form: all pieces count, so that a
    comment cannot hide half of a value.
    """
    if len(element) == 0:
        return (element.text or "").strip()
    return "".join([element.text or "", *(child.tail or "" for child in element)]).strip()


def octets(element: etree._Element, code: str) -> bytes:
    """The element's base64 content, decoded; an error with that code when it is not base64."""
    try:
        if len(element) == 0 and element.text is not None:
            return binascii.a2b_base64(element.text, strict_mode=True)
    except ValueError:
        pass
    try:
        return binascii.a2b_base64("".join(text(element).split()), strict_mode=True)
    except ValueError:
        raise EbmsError(
            code, f"the content of {local(element)} is not base64", location=path(element)
        ) from None


def path(element: etree._Element) -> str:
    """A readable place in the message: `eb:Messaging/eb:UserMessage[2]/eb:PartyInfo`."""
    steps: list[str] = []
    current: etree._Element | None = element
    while current is not None:
        tag = current.tag
        if isinstance(tag, str):
            steps.append(_step(current, tag))
        current = current.getparent()
    return "/".join(reversed(steps))


def _step(element: etree._Element, tag: str) -> str:
    namespace, _, name = tag[1:].rpartition("}") if tag[0] == "{" else ("", "", tag)
    prefix = _PREFIX.get(namespace, element.prefix)
    label = f"{prefix}:{name}" if prefix else name
    parent = element.getparent()
    if parent is not None:
        before = sum(1 for _ in element.itersiblings(tag, preceding=True))
        if before or next(element.itersiblings(tag), None) is not None:
            label += f"[{before + 1}]"
    return label


_plainest: Final = cast(
    Callable[[etree._Element], bytes],
    partial(etree.tostring, method="c14n", exclusive=True, with_comments=False, with_tail=False),
)


def canonical(
    element: etree._Element,
    *,
    exclusive: bool = True,
    with_comments: bool = False,
    prefixes: tuple[str, ...] = (),
) -> bytes:
    """Canonical XML of an element and what is below it, as its digest is taken over.

    EBMS:0009 when it has none: a namespace name that is relative or no URI.
    """
    _own.strict  # noqa: B018
    try:
        if exclusive and not prefixes and not with_comments:
            return _plainest(element)
        write = cast(
            Callable[[], bytes],
            partial(
                etree.tostring,
                element,
                method="c14n",
                exclusive=exclusive,
                with_comments=with_comments,
                inclusive_ns_prefixes=list(filter(None, prefixes)) if exclusive else None,
                with_tail=False,
            ),
        )
        return _knowing(prefixes, write) if exclusive and prefixes else write()
    except etree.C14NError as error:
        raise EbmsError(
            "EBMS:0009", f"it has no canonical form: {_one_line(error)}", location=path(element)
        ) from None


def written(element: etree._Element) -> str:
    """An element and what is below it as text, escaped where XML has to be."""
    _own.strict  # noqa: B018
    return etree.tostring(element, encoding="unicode", with_tail=False)


class _Prefixes:
    """The inclusive prefixes that every thread may remember, and about what room they take."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.bytes = 0

    def is_safe(self, prefixes: tuple[str, ...]) -> bool:
        new = set(prefixes) - self.names
        size = sum(4 * len(prefix) + 64 for prefix in new)
        if self.bytes + size > _MOST_PREFIX_BYTES:
            return not new
        self.names |= new
        self.bytes += size
        return True


_MOST_PREFIX_BYTES: Final = 64 * 1024
_prefixes: Final = _Prefixes()


def _knowing(prefixes: tuple[str, ...], write: Callable[[], bytes]) -> bytes:
    """Write where lxml knows these prefixes.

    It silently passes over an inclusive prefix that is no name it ever met in the thread that
    writes: the element may have been read in another, and `#default` is no name at all. What it
    is told of it keeps until the thread ends; once that is too much, another thread writes.
    """
    if _prefixes.is_safe(prefixes):
        _tell(prefixes)
        return write()
    with ThreadPoolExecutor(1) as own_thread:
        own_thread.submit(_tell, prefixes).result()
        return own_thread.submit(write).result()


def _tell(prefixes: Iterable[str]) -> None:
    """A parser that is to look out for some tags has lxml keep them as names."""
    names = [prefix for prefix in prefixes if prefix and "{" not in prefix]
    parser = etree.XMLPullParser(events=("start",), tag=names)
    parser.feed(b"<a/>")
    parser.close()


_TEXT: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#xD;"})
_ATTRIBUTE: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", '"': "&quot;", "\t": "&#x9;", "\n": "&#xA;", "\r": "&#xD;"}
)


def escape(value: str) -> str:
    """Character data as canonical XML writes it."""
    return value.translate(_TEXT)


def escape_attribute(value: str) -> str:
    """An attribute value as canonical XML writes it (the quotes are the template's)."""
    return value.translate(_ATTRIBUTE)


def mentions(data: bytes, name: bytes) -> bool:
    """Whether a name can stand in a document at all; True where its encoding hides it."""
    return name in data or 0 in data[:4]


UNWRITABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""A character that no XML document can hold."""


def is_xml_text(value: str) -> bool:
    """Whether the string can stand in an XML document at all."""
    return UNWRITABLE.search(value) is None
