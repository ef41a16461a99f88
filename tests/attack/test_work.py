"""A small message must not ask for much work: floods cost what honest messages of that size cost.

Work is measured in processor time beside an honest message of the same size in the same run, so
that nothing here depends on how fast or how busy the machine is.
"""

import gzip
import time
from collections.abc import Callable
from functools import cache

import pytest

from postroad.wire.limits import Limits
from postroad.wire.names import DS, EXC_C14N, SMS11, WSSE, WSU, XENC
from tests.attack.forging import Ref, refs, resigned, sha256
from tests.attack.messages import (
    BODY,
    TWO,
    Package,
    assert_holds,
    assert_refused,
    look,
    make,
    payload,
    seller,
)
from tests.changing import replace

MANY = 30_000
FACTOR = 60
"""How many times an honest message of that size. Quadratic work would be thousands of times."""

_XENC = f'xmlns:e="{XENC}"'


def _cost(data: bytes) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        look(data, keys=(seller(),))
        best = min(best, time.process_time() - start)
    return best


@cache
def _message() -> Package:
    return make(TWO, body=BODY)


def _honest(size: int) -> bytes:
    """A message that holds, of about that size: elements, attributes and text."""
    line = '<o:Line n="1"><o:Item>Copper wire</o:Item><o:Quantity>2500</o:Quantity></o:Line>'
    lines = min(size // len(line) + 1, 12_000)
    body = f'<o:Order xmlns:o="urn:example:order">{line * lines}</o:Order>'
    return make(TWO, body=body).wire()


@cache
def _honest_cost(megabytes: int) -> float:
    """What an honest message costs, by the size rounded up."""
    return _cost(_honest(megabytes << 19))


def _in_header(xml: str) -> Package:
    return _message().replaced("</S12:Header>", f"{xml}</S12:Header>")


def _in_security(xml: str) -> Package:
    return _message().replaced("</wsse:Security>", f"{xml}</wsse:Security>")


def _in_body(xml: str) -> Package:
    return _message().replaced("<o:Pay>", f"{xml}<o:Pay>")


def _in_messaging(xml: str) -> Package:
    return _message().replaced("</eb:Messaging>", f"{xml}</eb:Messaging>")


def _numbered(count: int, xml: str) -> str:
    return "".join(xml.replace("@", str(number)) for number in range(count))


def _in_wrapper(xml: str) -> Package:
    return _in_header(f'<w:w xmlns:w="urn:example:w" xmlns:ds="{DS}">{xml}</w:w>')


def _big_body_referred_to(count: int) -> Package:
    message = make((), body=f'<o:Order xmlns:o="urn:o">{"<o:a/>" * MANY}</o:Order>')
    [own] = [one for one in refs(message) if one.uri == "#_body"]
    return resigned(message, [*refs(message), *[own] * count])


def _prefix_list() -> Package:
    names = "".join(f"<o:p{n}/>" for n in range(MANY))
    message = make((), body=f'<o:Order xmlns:o="urn:o">{names}</o:Order>')
    listed = " ".join(f"p{n}" for n in range(MANY))
    step = (
        f'<ds:Transform Algorithm="{EXC_C14N}"><c:InclusiveNamespaces xmlns:c="{EXC_C14N}" '
        f'PrefixList="{listed}"/></ds:Transform>'
    )
    return resigned(message, [Ref("#_body", sha256(b"x"), (step,))])


def _token_references() -> Package:
    """Many references that each stand for one large token (STR-Transform)."""
    step = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0"
    strs = _numbered(
        1500,
        f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" wsu:Id="s@">'
        '<wsse:Reference URI="#big"/></wsse:SecurityTokenReference>',
    )
    big = f'<o:big xmlns:o="urn:o" xmlns:wsu="{WSU}" wsu:Id="big">{"<o:a/>" * 20_000}</o:big>'
    message = make((), body=f'<o:Order xmlns:o="urn:o">{big}{strs}</o:Order>')
    return resigned(
        message,
        [Ref(f"#s{n}", sha256(b"x"), (f"{step}#STR-Transform",)) for n in range(1500)],
    )


def _encrypted_data(count: int, key: str) -> str:
    return _numbered(
        count,
        f'<e:EncryptedData {_XENC} Id="d@"><e:EncryptionMethod Algorithm="http://www.w3.org/2009/'
        f'xmlenc11#aes128-gcm"/>{key}<e:CipherData><e:CipherValue>AAAA</e:CipherValue>'
        "</e:CipherData></e:EncryptedData>",
    )


def _one_broken_key() -> str:
    return (
        f'<e:EncryptedKey {_XENC} Id="k"><e:EncryptionMethod Algorithm="http://www.w3.org/2009/'
        f'xmlenc11#rsa-oaep"/><ds:KeyInfo xmlns:ds="{DS}"><wsse:SecurityTokenReference>'
        f'<wsse:KeyIdentifier ValueType="{SMS11}#ThumbprintSHA1">AAAA</wsse:KeyIdentifier>'
        "</wsse:SecurityTokenReference></ds:KeyInfo><e:CipherData><e:CipherValue>AAAA"
        f"</e:CipherValue></e:CipherData><e:ReferenceList>{'<e:DataReference/>' * 20_000}"
        "</e:ReferenceList></e:EncryptedKey>"
    )


_NAMED_KEY = (
    f'<ds:KeyInfo xmlns:ds="{DS}"><wsse:SecurityTokenReference><wsse:Reference URI="#k"/>'
    "</wsse:SecurityTokenReference></ds:KeyInfo>"
)

_FLOODS: dict[str, Callable[[], Package]] = {
    "header blocks to be understood": lambda: _in_header(
        '<x:a xmlns:x="urn:x" S12:mustUnderstand="true"/>' * MANY
    ),
    "signatures": lambda: _in_wrapper("<ds:Signature/>" * MANY),
    "signatures in the Security header": lambda: _in_security(
        f'<ds:Signature xmlns:ds="{DS}"/>' * MANY
    ),
    "second Bodies": lambda: _in_body("<S12:Body/>" * MANY),
    "second Envelopes": lambda: _in_body("<S12:Envelope/>" * MANY),
    "second Messagings": lambda: _in_body(
        '<eb:Messaging xmlns:eb="http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"/>'
        * 20_000
    ),
    "EncryptedData in the Body": lambda: _in_body(f"<e:EncryptedData {_XENC}/>" * MANY),
    "EncryptedData in the Security header": lambda: _in_security(
        f"<e:EncryptedData {_XENC}/>" * MANY
    ),
    "EncryptedKeys": lambda: _in_security(f"<e:EncryptedKey {_XENC}/>" * MANY),
    "EncryptedData that look for their key": lambda: _in_security(
        f"<e:EncryptedKey {_XENC}>{'<e:DataReference/>' * 20_000}</e:EncryptedKey>"
        + _encrypted_data(1500, "")
    ),
    "EncryptedData that name one broken key": lambda: _in_security(
        _one_broken_key() + _encrypted_data(1500, _NAMED_KEY)
    ),
    "user messages": lambda: _in_messaging("<eb:UserMessage/>" * MANY),
    "signal messages": lambda: _in_messaging("<eb:SignalMessage/>" * MANY),
    "unknown units": lambda: _in_messaging("<eb:Unknown/>" * MANY),
    "parts of the payload": lambda: _message().replaced(
        "<eb:PayloadInfo>", "<eb:PayloadInfo>" + _numbered(MANY, '<eb:PartInfo href="cid:@"/>')
    ),
    "parts of the payload with one name": lambda: _message().replaced(
        "<eb:PayloadInfo>",
        "<eb:PayloadInfo>" + '<eb:PartInfo href="cid:one@buyer.example"/>' * MANY,
    ),
    "payloads in the Body": lambda: (
        _message()
        .replaced(
            "<eb:PayloadInfo>",
            "<eb:PayloadInfo>" + _numbered(MANY // 2, '<eb:PartInfo href="#p@"/>'),
        )
        .replaced("<o:Pay>", _numbered(MANY // 2, '<o:p id="p@"/>') + "<o:Pay>")
    ),
    "properties": lambda: _message().replaced(
        "<eb:MessageProperties>",
        "<eb:MessageProperties>" + _numbered(MANY, '<eb:Property name="p@">v</eb:Property>'),
    ),
    "party ids": lambda: _message().replaced(
        "<eb:From>", "<eb:From>" + "<eb:PartyId>urn:example:buyer</eb:PartyId>" * MANY
    ),
    "username tokens": lambda: _in_security("<wsse:UsernameToken/>" * MANY),
    "timestamps": lambda: _in_security(f'<u:Timestamp xmlns:u="{WSU}"/>' * MANY),
    "times in a timestamp": lambda: _message().replaced(
        "<wsu:Created>", "<wsu:Created>never</wsu:Created>" * MANY + "<wsu:Created>"
    ),
    "addresses": lambda: _in_header(
        '<x:To xmlns:x="http://www.w3.org/2005/08/addressing"/>' * MANY
    ),
    "relations": lambda: _in_header(
        '<x:RelatesTo xmlns:x="http://www.w3.org/2005/08/addressing"/>' * MANY
    ),
    "Security headers of other roles": lambda: _in_header(
        _numbered(MANY, f'<w:Security xmlns:w="{WSSE}" S12:role="urn:r:@"/>')
    ),
    "ids": lambda: _in_body(_numbered(MANY, '<o:a id="i@"/>')),
    "one id many times": lambda: _in_body('<o:a id="_messaging"/>' * MANY),
    "comments": lambda: _in_body("<!-- -->" * MANY),
    "comments in one value": lambda: _message().replaced(
        ">NewOrder<", ">New" + "<!---->O" * MANY + "rder<"
    ),
    "character references": lambda: _in_body("&#x41;" * 300_000),
    "references": lambda: resigned(
        _message(), [Ref(f"#nobody{n}", b"\0" * 32) for n in range(1990)]
    ),
    "more references than allowed": lambda: resigned(
        _message(), [Ref(f"#nobody{n}", b"\0" * 32) for n in range(5000)]
    ),
    "references to one large Body": lambda: _big_body_referred_to(1900),
    "references that stand for one large token": _token_references,
    "prefixes of an inclusive list": _prefix_list,
    "a long signature value": lambda: _message().replaced(
        "<ds:SignatureValue>", "<ds:SignatureValue>" + "AAAA" * 500_000
    ),
    "a long token": lambda: _message().replaced("MIIB", "MIIB" * 500_000, 1),
    "a long issuer name": lambda: resigned(
        _message(),
        key_info="<ds:X509Data><ds:X509IssuerSerial><ds:X509IssuerName>"
        f"{'CN=a,' * 200_000}</ds:X509IssuerName><ds:X509SerialNumber>1</ds:X509SerialNumber>"
        "</ds:X509IssuerSerial></ds:X509Data>",
    ),
    "blanks before the envelope": lambda: Package(
        b" " * 3_000_000 + _message().envelope.partition(b"?>\n")[2], _message().parts
    ),
    "comments before the envelope": lambda: Package(
        b"<!---->" * MANY + _message().envelope.partition(b"?>\n")[2], _message().parts
    ),
}

_HARMLESS = (
    "comments",
    "Security headers of other roles",
    "blanks before the envelope",
    "comments before the envelope",
)
"""Floods that change nothing of what was signed: they need not be refused, only be cheap."""


@pytest.mark.parametrize("name", _FLOODS)
def test_a_flood_costs_no_more_than_an_honest_message_of_its_size(name: str) -> None:
    data = _FLOODS[name]().wire()
    found = look(data, keys=(seller(),))
    if name in _HARMLESS:
        assert_holds(found)
    else:
        assert_refused(found)
    assert len(found["errors"]) <= 1001
    cost, honest = _cost(data), _honest_cost(max(len(data) >> 19, 1))
    assert cost < FACTOR * honest, f"{cost / honest:.0f} times an honest message"


@pytest.mark.parametrize("units", [False, True], ids=["in one unit", "in many units"])
def test_a_compressed_part_is_inflated_once_however_often_it_is_named(units: bool) -> None:
    """Else a header of some kilobytes could fill a disk."""
    message = make([payload("one", gzip.compress(bytes(5_000_000), mtime=0), "application/gzip")])
    start = message.envelope.index(b"<eb:UserMessage>" if units else b"<eb:PartInfo ")
    end = b"</eb:UserMessage>" if units else b"</eb:PartInfo>"
    stop = message.envelope.index(end) + len(end)
    named = message.envelope[start:stop]
    flood = replace(
        message, envelope=message.envelope[:stop] + named * 300 + message.envelope[stop:]
    )
    assert_refused(look(flood))
    limits = Limits(decompression_ratio=5000)
    costs = []
    for one in (message, flood):
        data = one.wire()
        begin = time.process_time()
        look(data, limits=limits)
        costs.append(time.process_time() - begin)
    assert costs[1] < FACTOR * costs[0]


def test_chunks_of_one_byte_cost_no_more_than_their_number() -> None:
    head, _, body = _message().wire().partition(b"\r\n\r\n")
    filled = body.replace(b"<o:Pay>", b"<o:Pay>" + b"x" * 200_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in filled) + b"0\r\n\r\n"
    flood = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    [flooded], [honest] = look(flood)["units"], look(_message())["units"]
    assert flooded["message_id"] == honest["message_id"]
    assert _cost(flood) < 4 * FACTOR * _honest_cost(len(flood) >> 19)


def test_a_flood_of_references_to_one_attachment_digests_it_once() -> None:
    message = make([payload("one", b"<r>" + b"<a/>" * 50_000 + b"</r>", "application/xml")])
    [own] = [one for one in refs(message) if one.uri.startswith("cid:")]
    flood = resigned(message, [*refs(message), *[own] * 1900])
    assert_refused(look(flood), "EBMS:0101")
    assert _cost(flood.wire()) < FACTOR * _cost(message.wire())


@pytest.mark.parametrize("namespaces", [120, 3000])
def test_namespaces_above_an_inclusively_signed_body_cost_no_square(namespaces: int) -> None:
    c14n = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
    message = make((), body=f'<o:Order xmlns:o="urn:o">{"<o:a/>" * 1000}</o:Order>')
    declared = " ".join(f'xmlns:n{n}="urn:{n}"' for n in range(namespaces))
    signed = resigned(message, [Ref("#_body", sha256(b"x"), (c14n,))])
    flood = signed.replaced("<S12:Envelope ", f"<S12:Envelope {declared} ")
    assert_refused(look(flood), "EBMS:0009", "EBMS:0101")
    assert _cost(flood.wire()) < 100 * _cost(message.wire())


@pytest.mark.parametrize("attributes", [500, 10_000])
def test_attributes_of_an_xml_attachment_cost_no_square(attributes: int) -> None:
    """Canonical form sorts them; in rising order that is what costs most."""
    message = make([payload("one", b"<r/>", "application/xml")])
    written = b" ".join(b'a%05d=""' % number for number in range(attributes))
    flood = b"<r>" + b"<e %s/>" % written * (1_000_000 // len(written)) + b"</r>"
    line = b'<Line n="1"><Item>Copper wire</Item><Quantity>2500</Quantity></Line>'
    honest = b"<r>" + line * (len(flood) // len(line)) + b"</r>"
    costs = []
    for content in (honest, flood):
        data = message.with_parts(replace(message.parts[0], content=content))
        assert_refused(look(data), "EBMS:0101")
        costs.append(_cost(data.wire()))
    assert costs[1] < FACTOR * costs[0]
