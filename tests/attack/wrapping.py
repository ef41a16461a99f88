"""Signature wrapping: every way to put a forged piece where the signed one stood.

The classes of the literature (XSW 1 to 10, the weaknesses that WS-Attacker looks for) are points
in a product of a few choices. The whole product is enumerated, so that each variant has a number
and can be made again: `n_variants()`, `variant(i)`, `variants(message)`.
"""

import base64
import hashlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Final

from lxml import etree

from postroad.wire.names import DS, EB3, S12, WSSE, WSU
from tests.attack.messages import FORGED_ACTION, Package, Part
from tests.changing import replace

FORGED_PAY: Final = "999999"
FORGED_CONTENT: Final = b"pay 999999 to Eve"
FORGED_CREATED: Final = "2026-06-02T12:00:00.000Z"
FORGED_EXPIRES: Final = "2026-06-02T13:00:00.000Z"

_XML_ID: Final = "{http://www.w3.org/XML/1998/namespace}id"
_WSU_ID: Final = f"{{{WSU}}}Id"
_ID_KINDS: Final = (_WSU_ID, "id", "Id", "ID", _XML_ID)
_WRAPPER: Final = "{urn:example:wrapper}Wrapper"


class Target(Enum):
    """The signed thing that is forged."""

    MESSAGING = f"{{{EB3}}}Messaging"
    BODY = f"{{{S12}}}Body"
    TIMESTAMP = f"{{{WSU}}}Timestamp"


class Moved(Enum):
    """Which of the two leaves the rightful place."""

    ORIGINAL = "the original goes"
    FORGED = "the forged one goes"


class Place(Enum):
    """Where the one that leaves goes."""

    REMOVED = "nowhere"
    SIBLING_BEFORE = "before the other"
    SIBLING_AFTER = "after the other"
    HEADER_FIRST = "first in the Header"
    HEADER_LAST = "last in the Header"
    IN_SECURITY_FIRST = "first in wsse:Security"
    IN_SECURITY_LAST = "last in wsse:Security"
    IN_SIGNATURE = "in ds:Signature"
    IN_OBJECT = "in a ds:Object"
    IN_KEY_INFO = "in ds:KeyInfo"
    IN_WRAPPER = "in a foreign header"
    IN_BODY = "in the Body"
    NESTED = "under the other"
    NESTED_DEEP = "in a wrapper under the other"
    AFTER_BODY = "after the Body"
    SECOND_HEADER = "in a second Header"
    OTHER_SECURITY = "in a wsse:Security for another role"


class Ids(Enum):
    """What becomes of the id of the forged one; the signed one cannot change its own."""

    SAME = "same id"
    NEW = "new id"
    NONE = "no id"
    AS_WSU_ID = "same id as wsu:Id"
    AS_LOWER_ID = "same id as id"
    AS_ID = "same id as Id"
    AS_UPPER_ID = "same id as ID"
    AS_XML_ID = "same id as xml:id"
    OTHER_CASE = "id in other case"
    PADDED = "id with blanks around it"


class Order(Enum):
    """Where in its parent the forged one stands."""

    FIRST = "forged first"
    LAST = "forged last"


class Signature(Enum):
    """What becomes of the signature."""

    KEPT = "signature kept"
    TO_HEADER = "signature moved to the Header"
    TO_BODY = "signature moved to the Body"
    TO_ROOT = "signature moved to the Envelope"
    TO_OTHER_ROLE = "signature moved to another role's Security"
    TWICE = "two signatures"
    FORGED_INFO_FIRST = "two SignedInfo, forged first"
    FORGED_INFO_LAST = "two SignedInfo, forged last"
    TWO_VALUES = "two SignatureValue"


_CHOICES: Final = (Target, Moved, Place, Ids, Order, Signature)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to wrap, with its number."""

    index: int
    target: Target
    moved: Moved
    place: Place
    ids: Ids
    order: Order
    signature: Signature

    def __str__(self) -> str:
        names = [self.target.name, self.moved, self.place, self.ids, self.order, self.signature]
        told = "; ".join(n if isinstance(n, str) else n.value for n in names)
        known = self.known_as
        return f"variant({self.index}) [{told}]{f' {known}' if known else ''}"

    @property
    def known_as(self) -> str | None:
        """The name of the class in the literature, for the plainest member of it."""
        choices = (self.target, self.moved, self.place, self.ids, self.order, self.signature)
        return next((name for name, known in XSW.items() if known == choices), None)


_M, _FIRST, _LAST, _KEPT = Target.MESSAGING, Order.FIRST, Order.LAST, Signature.KEPT
_GOES, _STAYS = Moved.ORIGINAL, Moved.FORGED
XSW: Final = {
    "XSW1": (_M, _GOES, Place.IN_SIGNATURE, Ids.NEW, _FIRST, _KEPT),
    "XSW2": (_M, _GOES, Place.IN_SECURITY_FIRST, Ids.NEW, _FIRST, _KEPT),
    "XSW3": (_M, _STAYS, Place.SIBLING_BEFORE, Ids.NEW, _FIRST, _KEPT),
    "XSW4": (_M, _GOES, Place.NESTED, Ids.NEW, _FIRST, _KEPT),
    "XSW5": (_M, _GOES, Place.HEADER_LAST, Ids.NEW, _FIRST, _KEPT),
    "XSW6": (_M, _GOES, Place.IN_SIGNATURE, Ids.SAME, _FIRST, _KEPT),
    "XSW7": (_M, _STAYS, Place.IN_WRAPPER, Ids.SAME, _FIRST, _KEPT),
    "XSW8": (_M, _GOES, Place.IN_OBJECT, Ids.SAME, _FIRST, _KEPT),
    "XSW9": (_M, _GOES, Place.REMOVED, Ids.SAME, _FIRST, Signature.FORGED_INFO_FIRST),
    "XSW10": (_M, _GOES, Place.IN_OBJECT, Ids.NEW, _FIRST, Signature.TO_ROOT),
}


def n_variants() -> int:
    return prod(len(choice) for choice in _CHOICES)


def variant(index: int) -> Variant:
    """The variant of that number."""
    if not 0 <= index < n_variants():
        raise IndexError(index)
    picked = []
    left = index
    for choice in reversed(_CHOICES):
        left, at = divmod(left, len(choice))
        picked.append(list(choice)[at])
    return Variant(index, *reversed(picked))


def named(name: str) -> Variant:
    """The plainest member of a class of the literature."""
    index = 0
    for choice, picked in zip(_CHOICES, XSW[name], strict=True):
        index = index * len(choice) + list(choice).index(picked)
    return variant(index)


def variants(message: Package) -> Iterator[tuple[Variant, Package]]:
    """All variants of a signed message."""
    for index in range(n_variants()):
        yield variant(index), wrap(message, variant(index))


def wrap(message: Package, how: Variant, action: str = FORGED_ACTION) -> Package:
    """The message, attacked in this way; a forged header asks for that action."""
    root = etree.fromstring(message.envelope)
    tree = _Tree(root, how, action)
    tree.attack()
    return replace(message, envelope=etree.tostring(root, encoding="UTF-8", xml_declaration=True))


class _Tree:
    """One envelope under attack."""

    def __init__(self, root: etree._Element, how: Variant, action: str) -> None:
        self.root = root
        self.how = how
        self.header = root.find(f"{{{S12}}}Header")
        self.body = root.find(f"{{{S12}}}Body")
        self.security = self.header.find(f"{{{WSSE}}}Security")
        self.signature = self.security.find(f"{{{DS}}}Signature")
        self.original = next(root.iter(how.target.value))
        self.parent = self.original.getparent()
        self.id = self.original.get(_WSU_ID) or self.original.get("id")
        self.forged = _forged(self.original, how.target, action)

    def attack(self) -> None:
        self._name()
        self._stand()
        stays = self.forged if self.how.moved is Moved.ORIGINAL else self.original
        goes = self.original if self.how.moved is Moved.ORIGINAL else self.forged
        self._go(goes, stays)
        self._sign()

    def _name(self) -> None:
        forged, id = self.forged, self.id
        own = _WSU_ID if self.original.get(_WSU_ID) else "id"
        for kind in _ID_KINDS:
            forged.attrib.pop(kind, None)
        given = {
            Ids.SAME: {own: id},
            Ids.NEW: {own: "_forged"},
            Ids.NONE: {},
            Ids.AS_WSU_ID: {_WSU_ID: id},
            Ids.AS_LOWER_ID: {"id": id},
            Ids.AS_ID: {"Id": id},
            Ids.AS_UPPER_ID: {"ID": id},
            Ids.AS_XML_ID: {_XML_ID: id},
            Ids.OTHER_CASE: {own: id.upper()},
            Ids.PADDED: {own: f" {id} "},
        }[self.how.ids]
        forged.attrib.update(given)

    def _stand(self) -> None:
        """Put the forged one beside the original, first or last among its like."""
        if self.how.order is Order.FIRST:
            self.original.addprevious(self.forged)
        else:
            self.original.addnext(self.forged)

    def _go(self, goes: etree._Element, stays: etree._Element) -> None:
        match self.how.place:
            case Place.REMOVED:
                goes.getparent().remove(goes)
            case Place.SIBLING_BEFORE:
                stays.addprevious(goes)
            case Place.SIBLING_AFTER:
                stays.addnext(goes)
            case Place.HEADER_FIRST:
                self.header.insert(0, goes)
            case Place.HEADER_LAST:
                self.header.append(goes)
            case Place.IN_SECURITY_FIRST:
                self.security.insert(0, goes)
            case Place.IN_SECURITY_LAST:
                self.security.append(goes)
            case Place.IN_SIGNATURE:
                self.signature.append(goes)
            case Place.IN_OBJECT:
                etree.SubElement(self.signature, f"{{{DS}}}Object").append(goes)
            case Place.IN_KEY_INFO:
                self.signature.find(f"{{{DS}}}KeyInfo").append(goes)
            case Place.IN_WRAPPER:
                wrapper = etree.Element(_WRAPPER)
                self.header.insert(0, wrapper)
                wrapper.append(goes)
            case Place.IN_BODY:
                (stays if self.how.target is Target.BODY else self.body).append(goes)
            case Place.NESTED:
                stays.append(goes)
            case Place.NESTED_DEEP:
                etree.SubElement(stays, _WRAPPER).append(goes)
            case Place.AFTER_BODY:
                self.root.append(goes)
            case Place.SECOND_HEADER:
                second = etree.Element(f"{{{S12}}}Header")
                self.header.addnext(second)
                second.append(goes)
            case Place.OTHER_SECURITY:
                self._other_security().append(goes)

    def _other_security(self) -> etree._Element:
        other = etree.Element(f"{{{WSSE}}}Security")
        other.set(f"{{{S12}}}role", "urn:example:another-role")
        self.header.append(other)
        return other

    def _sign(self) -> None:
        signature = self.signature
        signed_info = signature.find(f"{{{DS}}}SignedInfo")
        match self.how.signature:
            case Signature.KEPT:
                pass
            case Signature.TO_HEADER:
                self.header.append(signature)
            case Signature.TO_BODY:
                body = self.root.find(f"{{{S12}}}Body")
                (self.header if body is None else body).append(signature)
            case Signature.TO_ROOT:
                self.root.append(signature)
            case Signature.TO_OTHER_ROLE:
                self._other_security().append(signature)
            case Signature.TWICE:
                second = deepcopy(signature)
                second.set("Id", "_second")
                info = second.find(f"{{{DS}}}SignedInfo")
                info.getparent().replace(info, self._forged_info(info))
                signature.addprevious(second)
            case Signature.FORGED_INFO_FIRST:
                signed_info.addprevious(self._forged_info(signed_info))
            case Signature.FORGED_INFO_LAST:
                signed_info.addnext(self._forged_info(signed_info))
            case Signature.TWO_VALUES:
                value = signature.find(f"{{{DS}}}SignatureValue")
                value.addnext(deepcopy(value))

    def _forged_info(self, signed_info: etree._Element) -> etree._Element:
        """A SignedInfo whose digest is that of the forged one."""
        forged = deepcopy(signed_info)
        canonical = etree.tostring(self.forged, method="c14n", exclusive=True, with_tail=False)
        digest = base64.b64encode(hashlib.sha256(canonical).digest()).decode()
        for reference in forged.iter(f"{{{DS}}}Reference"):
            if reference.get("URI") == f"#{self.id}":
                reference.find(f"{{{DS}}}DigestValue").text = digest
                if self.how.ids is Ids.NEW:
                    reference.set("URI", "#_forged")
        return forged


def _forged(original: etree._Element, target: Target, action: str) -> etree._Element:
    forged = deepcopy(original)
    forged.tail = None
    if target is Target.MESSAGING:
        next(forged.iter(f"{{{EB3}}}Action")).text = action
    elif target is Target.BODY:
        next(forged.iter("{urn:example:order}Pay")).text = FORGED_PAY
    else:
        next(forged.iter(f"{{{WSU}}}Created")).text = FORGED_CREATED
        next(forged.iter(f"{{{WSU}}}Expires")).text = FORGED_EXPIRES
    return forged


class PartPlace(Enum):
    """Where the signed MIME part goes when another takes its place."""

    REMOVED = "original gone"
    BEFORE = "original before the forged"
    AFTER = "original after the forged"
    LAST = "original last"
    NESTED = "original in a multipart of its own"


class PartName(Enum):
    """What the forged part calls itself."""

    SAME = "same Content-ID"
    NEW = "new Content-ID"
    NONE = "no Content-ID"
    OTHER_CASE = "Content-ID in other case"
    ENCODED = "Content-ID percent-encoded"
    ENCODED_TWICE = "Content-ID percent-encoded twice"
    PADDED = "Content-ID with blanks inside"
    TWO_HEADERS_FIRST = "two Content-ID headers, the signed one first"
    TWO_HEADERS_LAST = "two Content-ID headers, the signed one last"


class PartDigest(Enum):
    """What is done about the digest."""

    KEPT = "SignedInfo kept"
    CHANGED = "digest changed"
    ADDED = "a second Reference"
    FORGED_INFO_FIRST = "two SignedInfo, forged first"
    FORGED_INFO_LAST = "two SignedInfo, forged last"


_PART_CHOICES: Final = (PartPlace, PartName, PartDigest)


def n_part_variants(message: Package) -> int:
    return len(message.parts) * prod(len(choice) for choice in _PART_CHOICES)


def part_variant(message: Package, index: int) -> tuple[str, Package]:
    """The variant of that number, with its name."""
    picked = []
    left = index
    for choice in reversed(_PART_CHOICES):
        left, at = divmod(left, len(choice))
        picked.append(list(choice)[at])
    digest, name, place = picked
    told = f"part_variant({index}) [{left}; {place.value}; {name.value}; {digest.value}]"
    return told, _wrap_part(message, left, place, name, digest)


def _wrap_part(
    message: Package, which: int, place: PartPlace, name: PartName, digest: PartDigest
) -> Package:
    parts = list(message.parts)
    original = parts[which]
    forged = _named(replace(original, content=FORGED_CONTENT), name)
    if place is PartPlace.REMOVED:
        parts[which : which + 1] = [forged]
    elif place is PartPlace.BEFORE:
        parts[which : which + 1] = [original, forged]
    elif place is PartPlace.AFTER:
        parts[which : which + 1] = [forged, original]
    elif place is PartPlace.LAST:
        parts[which : which + 1] = [forged]
        parts.append(original)
    else:
        inside = b"--inner\r\n" + original.write() + b"\r\n--inner--\r\n"
        parts[which : which + 1] = [forged]
        parts.append(Part("nested@buyer.example", 'multipart/related; boundary="inner"', inside))
    root = etree.fromstring(message.envelope)
    _redigest(root, original, digest)
    envelope = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return replace(message, envelope=envelope, parts=tuple(parts))


def _named(part: Part, name: PartName) -> Part:
    id = part.content_id
    assert id is not None
    match name:
        case PartName.SAME:
            return part
        case PartName.NEW:
            return replace(part, content_id="forged@buyer.example")
        case PartName.NONE:
            return replace(part, content_id=None)
        case PartName.OTHER_CASE:
            return replace(part, content_id=id.upper())
        case PartName.ENCODED:
            return replace(part, content_id=id.replace("@", "%40"))
        case PartName.ENCODED_TWICE:
            return replace(part, content_id=id.replace("@", "%2540"))
        case PartName.PADDED:
            return replace(part, content_id=f" {id} ")
        case PartName.TWO_HEADERS_FIRST:
            given = ("Content-ID", f"<{id}>")
            return replace(part, content_id="forged@buyer.example", headers=(*part.headers, given))
        case PartName.TWO_HEADERS_LAST:
            given = ("Content-ID", "<forged@buyer.example>")
            return replace(part, headers=(*part.headers, given))


def _redigest(root: etree._Element, original: Part, how: PartDigest) -> None:
    signed_info = next(root.iter(f"{{{DS}}}SignedInfo"))
    value = base64.b64encode(hashlib.sha256(FORGED_CONTENT).digest()).decode()
    forged = deepcopy(signed_info)
    uri = f"cid:{original.content_id}"
    own, other = (
        next(r for r in info.iter(f"{{{DS}}}Reference") if r.get("URI") == uri)
        for info in (signed_info, forged)
    )
    other.find(f"{{{DS}}}DigestValue").text = value
    match how:
        case PartDigest.KEPT:
            pass
        case PartDigest.CHANGED:
            own.getparent().replace(own, other)
        case PartDigest.ADDED:
            own.addnext(other)
        case PartDigest.FORGED_INFO_FIRST:
            signed_info.addprevious(forged)
        case PartDigest.FORGED_INFO_LAST:
            signed_info.addnext(forged)


def consumed_is_forged(texts: list[bytes]) -> bool:
    """Whether what a receiver would work with holds anything that was forged."""
    marks = (FORGED_ACTION.encode(), FORGED_PAY.encode(), FORGED_CONTENT, FORGED_CREATED.encode())
    return any(mark in text for text in texts for mark in marks)
