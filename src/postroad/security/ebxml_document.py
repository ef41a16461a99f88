"""What an ebXML signature is over: the whole document, but not what changes from hop to hop.

What the XPath transform of a signature takes out is found here by our own code, in the very tree
that was read: no XPath of a stranger is ever run. Only known forms are taken, so that what is
taken out is known too: direct children of the Header, of names or with actors that the version
leaves to hops.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from lxml import etree

from postroad.security.verify import failed
from postroad.wire.ebxml import Dialect
from postroad.wire.errors import EbmsError
from postroad.wire.names import EB2_NEXT_MSH, S11, S11_NEXT
from postroad.wire.soap import Envelope
from postroad.wire.xml import canonical, local

_ACTOR: Final = f"{{{S11}}}actor"
_HOP_NAMES: Final = ("TraceHeaderList", "Via")
_HOP_ACTORS: Final = (EB2_NEXT_MSH, S11_NEXT)
_FOR_HOPS: Final = frozenset(("SyncReply", "AckRequested", "Acknowledgment"))
"""The elements of 2.0 that may be for the next MSH; others of its namespace never are."""
_LONGEST_XPATH: Final = 4096
_with_actor: Final = etree.XPath("//*[@soap:actor]", namespaces={"soap": S11})


class Hops(NamedTuple):
    """What an XPath transform takes out: elements with these names, or with these actors."""

    names: frozenset[str]
    actors: frozenset[str]


NOTHING: Final = Hops(frozenset(), frozenset())
_TOKEN: Final = re.compile(
    r"""\s*(?: "(?P<double>[^"]*)" | '(?P<single>[^']*)'
           | (?P<name>[^\W\d][\w.-]*) (?: :(?P<local>[^\W\d][\w.-]*) )?
           | (?P<sign> :: | [()\[\]@|=*] ) )\s*""",
    re.VERBOSE,
)


def hops_of(dialect: Dialect) -> Hops:
    """What the XPath transform of a version takes out."""
    if dialect.has_trace:
        return Hops(frozenset(map(dialect.tag, _HOP_NAMES)), frozenset())
    return Hops(frozenset(), frozenset(_HOP_ACTORS))


def read_xpath(element: etree._Element, dialect: Dialect) -> Hops:
    """What a ds:XPath takes out, where it is one of the version; an error where it is another."""
    expression = element.text or ""
    known = _known_terms(hops_of(dialect))
    names: set[str] = set()
    actors: set[str] = set()
    if len(element) or len(expression) > _LONGEST_XPATH:
        raise _unknown_xpath(element, expression, dialect)
    tokens = list(_tokens(expression, element.nsmap))
    for condition in _split(tokens, "and"):
        if condition[:2] != ["not", "("] or condition[-1:] != [")"]:
            raise _unknown_xpath(element, expression, dialect)
        for term in _split(condition[2:-1], "|", "or"):
            hop = known.get(tuple(term))
            if hop is None:
                raise _unknown_xpath(element, expression, dialect)
            (names if hop.startswith("{") else actors).add(hop)
    return Hops(frozenset(names), frozenset(actors))


def _tokens(expression: str, namespaces: Mapping[str | None, str]) -> Iterator[str]:
    """The words of an XPath: names as Clark names, literals after a quote, `?` for all else."""
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            yield "?"
            return
        at = found.end()
        name, local_name = found["name"], found["local"]
        if local_name is not None:
            yield f"{{{namespaces.get(name, '?')}}}{local_name}"
        else:
            literal = found["double"] if found["single"] is None else found["single"]
            yield name or found["sign"] or f'"{literal}'


def _split(tokens: Sequence[str], *separators: str) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    for token in tokens:
        if token in separators:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def _known_terms(hops: Hops) -> dict[tuple[str, ...], str]:
    """`ancestor-or-self::eb:Via`, or `ancestor-or-self::node()[@SOAP:actor="…"]`, as words."""
    axis = ("ancestor-or-self", "::")
    terms: dict[tuple[str, ...], str] = {(*axis, name): name for name in hops.names}
    for node in (("node", "(", ")"), ("*",)):
        for actor in hops.actors:
            terms[(*axis, *node, "[", "@", _ACTOR, "=", f'"{actor}', "]")] = actor
    return terms


def _unknown_xpath(element: etree._Element, expression: str, dialect: Dialect) -> EbmsError:
    shown = " ".join(expression[:400].split())
    return failed(
        element,
        f"the XPath {shown!r} is not the one of ebXML {dialect.name}, which is {dialect.hop_xpath}",
    )


def hop_elements(envelope: Envelope, hops: Hops, dialect: Dialect) -> list[etree._Element]:
    """What the XPath takes out of the document, in its order; an error where that may hide more."""
    found = list(envelope.root.iter(*hops.names)) if hops.names else []
    if hops.actors:
        having = cast(list[etree._Element], _with_actor(envelope.root))
        found += [element for element in having if element.get(_ACTOR) in hops.actors]
    for element in found:
        if element.getparent() is not envelope.header:
            raise failed(
                element,
                f"<{local(element)}> here would be outside of the signature; what changes from "
                "hop to hop must be a child of the SOAP Header",
            )
        own = element.tag not in hops.names and element.tag.startswith(dialect.tag(""))
        if own and local(element) not in _FOR_HOPS:
            raise failed(
                element,
                f"<{local(element)}> must not be for the next MSH, outside of the signature",
            )
    return found


def document(envelope: Envelope, left_out: Sequence[etree._Element]) -> bytes:
    """Canonical XML 1.0 of the document without some children of the Header.

    They are cut out of the canonical form between marks, since a copy of the tree, or taking
    elements out of it, would change it or what lxml remembers. A mark is the digest of the whole,
    which the whole cannot hold.
    """
    root, header = envelope.root, envelope.header
    if any(isinstance(after, etree._ProcessingInstruction) for after in root.itersiblings()):
        raise failed(root, "a processing instruction after the Envelope is not covered here")
    whole = canonical(root, exclusive=False)
    if header is None or not left_out:
        return whole
    mark = hashlib.sha256(whole).hexdigest()
    text, tails = header.text, [(child, child.tail) for child in header]
    try:
        for element in left_out:
            element.tail = mark + (element.tail or "")
            before = element.getprevious()
            if before is None:
                header.text = (header.text or "") + mark
            else:
                before.tail = (before.tail or "") + mark
        return b"".join(canonical(root, exclusive=False).split(mark.encode())[::2])
    finally:
        header.text = text
        for child, tail in tails:
            child.tail = tail
