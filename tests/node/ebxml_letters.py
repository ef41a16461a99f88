"""ebXML messages written by hand, and the answers to them read by hand.

Nothing here comes from the product: what a node says about a message, and what a test believes that
it says, have no code in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from lxml import etree

from postroad.node.base.requests import Response
from postroad.store.records import Event
from tests.node.reliable import (
    BUYER,
    CPA,
    ORDER,
    ORDERS,
    SELLER,
    Posted,
    Station,
    World,
    address,
    party,
    status,
)

M: Final = "m@buyer.example"
CID: Final = "order@buyer.example"
TIME: Final = "2024-06-01T12:00:00.000Z"
SOAP_NS: Final = "http://schemas.xmlsoap.org/soap/envelope/"
OLD_NS: Final = "http://www.ebxml.org/namespaces/messageHeader"
NEXT: Final = "http://schemas.xmlsoap.org/soap/actor/next"
NAMESPACES: Final = {
    "0.98b": OLD_NS,
    "1.0": OLD_NS,
    "2.0": "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd",
}
SERVICES: Final = {
    "0.98b": "uri:www.ebxml.org/messageService/",
    "1.0": "uri:www.ebxml.org/messageService/",
    "2.0": "urn:oasis:names:tc:ebxml-msg:service",
}
VERSIONS: Final = tuple(NAMESPACES)
CONTEXTS: Final = {
    "0.98b": "http://www.ebxml.org/messageServiceErrors",
    "1.0": "http://www.ebxml.org/messageServiceErrors",
    "2.0": "urn:oasis:names:tc:ebxml-msg:service:errors",
}
TOP: Final = "/SOAP-ENV:Envelope/SOAP-ENV:Header"
HEADER: Final = f"{TOP}/eb:MessageHeader"
DATA: Final = f"{HEADER}/eb:MessageData"
BODY: Final = "/SOAP-ENV:Envelope/SOAP-ENV:Body"
MANIFEST: Final = f"{BODY}/eb:Manifest"
XML: Final = "text/xml; charset=UTF-8"

Packed = tuple[str, bytes]
"""A Content-Type and a body."""


def block(name: str, content: str, version: str = "0.98b", more: str = "") -> str:
    """An extension element with the attributes that all of them have."""
    return (
        f'<eb:{name} SOAP-ENV:mustUnderstand="1" eb:version="{version}"{more}>{content}</eb:{name}>'
    )


def header(
    version: str = "0.98b",
    *,
    id: str = M,
    ref: str | None = None,
    frm: str = party(BUYER),
    to: str = party(SELLER),
    service: str = "urn:example:trade",
    action: str = ORDERS,
    conversation: str = "c1",
    live: str | None = None,
    inside: str = "",
) -> str:
    """A MessageHeader; `inside` follows MessageData."""
    data = f"<eb:MessageId>{id}</eb:MessageId><eb:Timestamp>{TIME}</eb:Timestamp>"
    data += f"<eb:RefToMessageId>{ref}</eb:RefToMessageId>" if ref is not None else ""
    data += f"<eb:TimeToLive>{live}</eb:TimeToLive>" if live is not None else ""
    return block(
        "MessageHeader",
        f"<eb:From><eb:PartyId>{frm}</eb:PartyId></eb:From>"
        f"<eb:To><eb:PartyId>{to}</eb:PartyId></eb:To>"
        f"<eb:CPAId>{CPA}</eb:CPAId><eb:ConversationId>{conversation}</eb:ConversationId>"
        f"<eb:Service>{service}</eb:Service><eb:Action>{action}</eb:Action>"
        f"<eb:MessageData>{data}</eb:MessageData>{inside}",
        version,
    )


def quality(
    delivery: str | None = None, order: str | None = None, receipt: str | None = None
) -> str:
    """QualityOfServiceInfo."""
    said = {
        "deliverySemantics": delivery,
        "messageOrderSemantics": order,
        "deliveryReceiptRequested": receipt,
    }
    attributes = "".join(f' eb:{name}="{value}"' for name, value in said.items() if value)
    return f"<eb:QualityOfServiceInfo{attributes}/>"


RELIABLY: Final = quality("OnceAndOnlyOnce")


def trace(sender: str = address(BUYER), receiver: str = address(SELLER)) -> str:
    """A TraceHeaderList of 0.98b, for one hop."""
    return block(
        "TraceHeaderList",
        f"<eb:TraceHeader><eb:SenderURI>{sender}</eb:SenderURI>"
        f"<eb:ReceiverURI>{receiver}</eb:ReceiverURI>"
        f"<eb:Timestamp>{TIME}</eb:Timestamp></eb:TraceHeader>",
    )


def via(attributes: str = "", content: str = "", version: str = "0.98b") -> str:
    """A Via with these attributes, and what stands in it."""
    return block("Via", content, version, f' SOAP-ENV:actor="{NEXT}"{attributes}')


def manifest(version: str = "0.98b", *, hrefs: Sequence[str] = (f"cid:{CID}",)) -> str:
    old = version != "2.0"
    listed = "".join(
        f'<eb:Reference {"id" if old else "eb:id"}="p{number}" xlink:type="simple" '
        f'xlink:href="{href}"/>'
        for number, href in enumerate(hrefs)
    )
    name = 'id="all"' if old else 'eb:id="all"'
    understood = ' SOAP-ENV:mustUnderstand="1"' if old else ""
    return f'<eb:Manifest{understood} eb:version="{version}" {name}>{listed}</eb:Manifest>'


def error(
    code: str = "Inconsistent", severity: str = "Error", version: str = "0.98b", text: str = "so"
) -> str:
    """An ErrorList with one error."""
    inner = f'<eb:Description xml:lang="en">{text}</eb:Description>' if version == "2.0" else text
    q = "eb:" if version == "2.0" else ""
    lang = "" if version == "2.0" else ' xml:lang="en"'
    return block(
        "ErrorList",
        f'<eb:Error {q}codeContext="{CONTEXTS[version]}" {q}errorCode="{code}" '
        f'{q}severity="{severity}"{lang}>{inner}</eb:Error>',
        version,
        f' {q}id="errors" {q}highestSeverity="{severity}"',
    )


def acknowledgment(type: str | None = None, signed: str = "false") -> str:
    """An Acknowledgment of 0.98b."""
    kind = f' eb:type="{type}"' if type else ""
    return block(
        "Acknowledgment",
        f"<eb:Timestamp>{TIME}</eb:Timestamp>",
        more=f'{kind} eb:signed="{signed}"',
    )


def acknowledgment_20(ref: str) -> str:
    return block(
        "Acknowledgment",
        f"<eb:Timestamp>{TIME}</eb:Timestamp><eb:RefToMessageId>{ref}</eb:RefToMessageId>",
        "2.0",
    )


def envelope(*blocks: str, body: str = "", version: str = "0.98b") -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<SOAP-ENV:Envelope xmlns:SOAP-ENV="{SOAP_NS}" xmlns:eb="{NAMESPACES[version]}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"<SOAP-ENV:Header>{''.join(blocks)}</SOAP-ENV:Header>"
        f"<SOAP-ENV:Body>{body}</SOAP-ENV:Body></SOAP-ENV:Envelope>"
    )


def order(version: str = "0.98b", *blocks: str, body: str | None = None, **named: Any) -> str:
    """An order with one payload; `named` is what its MessageHeader says."""
    traced = (trace(),) if version == "0.98b" else ()
    listed = manifest(version) if body is None else body
    return envelope(header(version, **named), *traced, *blocks, body=listed, version=version)


def spoiled(text: str, old: str, new: str) -> str:
    """A good message with the one place that says `old` changed."""
    assert text.count(old) == 1, (text.count(old), old)
    return text.replace(old, new)


def pack(
    root: str | bytes,
    *payloads: tuple[str, bytes],
    outer: str = 'multipart/related; type="text/xml"; boundary="b"; start="<root@buyer.example>"',
    inner: str = XML,
) -> Packed:
    """A Message Package."""
    data = root.encode() if isinstance(root, str) else root
    written = [_part("root@buyer.example", inner, data)]
    written += [_part(name, "text/plain", content) for name, content in payloads]
    return outer, b"".join((*written, b"--b--\r\n"))


def _part(name: str, kind: str, content: bytes) -> bytes:
    return (
        f"--b\r\nContent-ID: <{name}>\r\nContent-Type: {kind}\r\n\r\n".encode() + content + b"\r\n"
    )


def packed(root: str) -> Packed:
    """With the payload that the Manifest lists, where it does."""
    return pack(root, (CID, ORDER)) if f"cid:{CID}" in root else (XML, root.encode())


def reliable_terms(version: str = "0.98b") -> dict[str, Any]:
    """Parameters of a P-Mode with once-and-only-once delivery."""
    terms: dict[str, Any] = {"version": version, "delivery_semantics": "OnceAndOnlyOnce"}
    if version == "2.0":
        terms |= {"ack_requested": "UnSigned"}
    return terms


async def listening(world: World, at: str = SELLER) -> Station:
    """Start a node whose partner takes whatever is posted to it, and says nothing."""
    for name in (BUYER, SELLER):
        world.wire.usual.setdefault(name, status(204))
    station = await world.start(at)
    station.node.context.msh_url = address(at)
    return station


@dataclass(frozen=True)
class Said:
    """A message of a node's, as its partner reads it."""

    tree: Any
    signed: bool

    @classmethod
    def read(cls, body: bytes) -> "Said":
        tree: Any = etree.fromstring(body)
        return cls(tree, bool(tree.xpath("//*[local-name()='Signature']")))

    def find(self, path: str) -> list[Any]:
        """By names without namespaces, below Header or Body."""
        steps = "/".join(f"*[local-name()='{one}']" for one in path.split("/"))
        found: list[Any] = self.tree.xpath(f"/*/*/{steps}")
        return found

    def text(self, path: str) -> str | None:
        found = self.find(path)
        assert len(found) <= 1, path
        return found[0].text if found else None

    def attribute(self, path: str, name: str) -> str | None:
        [found] = self.find(path)
        values: list[str] = found.xpath(f"@*[local-name()='{name}']")
        return values[0] if values else None

    @property
    def names(self) -> list[str]:
        """The extension elements, without those of the hop."""
        names = [etree.QName(one).localname for one in self.tree.xpath("/*/*/*")]
        return [one for one in names if one not in ("TraceHeaderList", "Via", "Signature")]

    @property
    def namespace(self) -> str | None:
        [found] = self.find("MessageHeader")
        return etree.QName(found).namespace

    def data(self, name: str) -> str | None:
        return self.text(f"MessageHeader/MessageData/{name}")

    @property
    def service(self) -> tuple[str | None, str | None]:
        return self.text("MessageHeader/Service"), self.text("MessageHeader/Action")

    @property
    def parties(self) -> tuple[str | None, str | None]:
        """From and To."""
        return self.text("MessageHeader/From/PartyId"), self.text("MessageHeader/To/PartyId")

    @property
    def errors(self) -> list[tuple[str, str, str | None]]:
        """Code, severity and place of each error."""
        return [
            (_value(one, "errorCode") or "", _value(one, "severity") or "", _value(one, "location"))
            for one in self.find("ErrorList/Error")
        ]

    @property
    def fault(self) -> tuple[str, str] | None:
        """faultcode, without its prefix, and faultstring."""
        found = self.tree.xpath("/s:Envelope/s:Body/s:Fault", namespaces={"s": SOAP_NS})
        if not found:
            return None
        code, said = found[0].findtext("faultcode"), found[0].findtext("faultstring")
        prefix, _, name = code.rpartition(":")
        assert found[0].nsmap[prefix] == SOAP_NS
        return name, said


def _value(element: Any, name: str) -> str | None:
    found: list[str] = element.xpath(f"@*[local-name()='{name}']")
    return found[0] if found else None


def pointer(place: str) -> str:
    """An XPath as the location of an error."""
    return f"#xpointer({place})"


@dataclass(frozen=True)
class Outcome:
    """What became of a letter: the response to it, and what was posted because of it."""

    response: Response
    posted: list[Posted]
    raised: list[Event]
    """error_raised, as the journal has them."""
    delivered: list[str]

    @property
    def said(self) -> Said:
        """The one thing that the node said, wherever."""
        bodies = [one.body for one in self.posted]
        if self.response.body:
            bodies.append(self.response.body)
        [body] = bodies
        return Said.read(body)

    @property
    def silent(self) -> bool:
        return not self.posted and not self.response.body and self.response.status < 300


async def hand(world: World, station: Station, letter: str | Packed) -> Outcome:
    """Bring a letter to a node, and see what it does."""
    kind, body = packed(letter) if isinstance(letter, str) else letter
    before = len(world.wire.posted)
    response = await station.receive(kind, body, '"ebXML"')
    await world.wait(1)
    return Outcome(
        response,
        [one for one in world.wire.posted[before:] if one.sender == station.name],
        await station.journal("error_raised"),
        await station.inbox(),
    )


GOOD: Final = order(inside=RELIABLY)


def without(start: str, end: str) -> str:
    """The good letter without what stands from here to there."""
    first, last = GOOD.index(start), GOOD.index(end) + len(end)
    return GOOD[:first] + GOOD[last:]


def case(name: str, letter: str | Packed, *expected: str, req: str = "") -> Any:
    """One rule broken: what is expected, and the requirements that say so."""
    marks = [pytest.mark.req(*req.split())] if req else []
    return pytest.param(letter, *expected, id=name, marks=marks)


def agreed(world: World) -> None:
    """Orders go once and only once; two more kinds of message have other terms."""
    world.speak(**reliable_terms())
    world.speak("besteffort", version="0.98b", delivery_semantics="BestEffort")
    world.speak("unordered", message_order="NotGuaranteed", **reliable_terms())
