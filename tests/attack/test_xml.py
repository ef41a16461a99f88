"""XML that reads files, calls servers, expands without end, or is no XML at all."""

import json
from itertools import islice
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
from tests.attack.xml_attacks import (
    ENCODINGS,
    HIDING_ENCODINGS,
    ORDER,
    colliding,
    doctypes,
    evil_attachments,
    in_encoding,
    pointers,
    shapes,
)
from tests.changing import replace

SECRET = "the-secret-of-the-file"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """The URL of a file that must not be read."""
    path = tmp_path / "secret.txt"
    path.write_text(SECRET)
    return path.as_uri()


_DTD_NAMES = sorted(doctypes("file:///x"))


def _with_doctype(message: Package, vector: tuple[str, str, str], encoding: str) -> bytes:
    doctype, in_text, in_value = vector
    text = message.envelope.decode().partition("?>\n")[2]
    text = text.replace("<o:Pay>100", f"<o:Pay a='{in_value}'>{in_text}", 1)
    name = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be").upper()
    return f'<?xml version="1.0" encoding="{name}"?>\n{doctype}{text}'.encode(encoding)


@pytest.mark.parametrize("name", _DTD_NAMES)
def test_a_document_type_declaration_is_refused_in_every_encoding(name: str, secret: str) -> None:
    vector = doctypes(secret)[name]
    for encoding in ENCODINGS:
        found = look(soap(_with_doctype(make((), body=BODY), vector, encoding)))
        assert_refused(found, "EBMS:0009")
        assert found["kind"] == "unreadable"
        assert SECRET not in json.dumps(found)


@pytest.mark.parametrize("name", ["XXE SYSTEM", "billion laughs", "external DTD SYSTEM"])
@pytest.mark.parametrize("encoding", HIDING_ENCODINGS)
def test_an_encoding_that_hides_markup_is_refused(name: str, encoding: str, secret: str) -> None:
    doctype, _, _ = doctypes(secret)[name]
    text = make((), body=BODY).envelope.decode().partition("?>\n")[2]
    data = in_encoding(doctype + text, encoding)
    found = look(soap(data))
    assert_refused(found, "EBMS:0009", "EBMS:0007")
    assert SECRET not in json.dumps(found)


@pytest.mark.parametrize("inside", pointers("{url}", "http://127.0.0.1:9/x"))
def test_nothing_that_a_document_points_at_is_read(inside: str, secret: str) -> None:
    """Such markup is content like any other: it may stand there and does nothing."""
    message = make((), body=inside.replace("{url}", secret))
    found = inspect_source(message.wire(), Tools(trust=(ca().certificate,), at=NOW))
    assert found.holds, found.problems
    assert found.envelope is not None
    assert found.envelope.body[0].text is None
    assert SECRET not in repr(found.problems)


# The same on an attachment that must be canonicalised to check its digest


def test_an_xml_attachment_with_a_declaration_never_passes_for_the_signed_one(
    secret: str,
) -> None:
    """Expanded, some of these would be the very document that was signed."""
    message = make([payload("one", ORDER, "application/xml")])
    assert_holds(look(message))
    for name, content in evil_attachments(secret):
        [part] = message.parts
        found = look(message.with_parts(replace(part, content=content)))
        assert_refused(found, "EBMS:0101")
        assert SECRET not in json.dumps(found), name


def test_an_attachment_that_was_signed_as_it_is_stays_as_it_is(secret: str) -> None:
    """A partner may sign any bytes: they are handed on, and nobody parses or expands them."""
    raw = Signing(buyer(), ECDSA_SHA256, raw_attachments=True)
    tools = Tools(trust=(ca().certificate,), at=NOW)
    for name, content in islice(evil_attachments(secret), 0, None, 3):
        message = make([payload("one", content, "application/xml")], signing=raw)
        found = inspect_source(message.wire(), tools)
        for one in found.payloads[0]:
            assert one.content is not None
            assert read_all(one.content, 1 << 24) == content, name


# Shapes and sizes


def _in_header(xml: str) -> bytes:
    message = make((), unsigned=True, body=BODY)
    return soap(message.replaced("</S12:Header>", f"{xml}</S12:Header>").envelope)


_SHAPE_NAMES = sorted(shapes())


@pytest.mark.parametrize("name", _SHAPE_NAMES)
def test_an_envelope_of_a_hostile_shape_is_refused(name: str) -> None:
    found = look(_in_header(shapes()[name]))
    assert_refused(found, "EBMS:0009")
    assert found["kind"] == "unreadable"
    assert len(json.dumps(found)) < 20_000


@pytest.mark.parametrize(
    ("family", "pairs"),
    [("DJBX31A", ("Aa", "BB")), ("DJBX33A", ("Ez", "FY")), ("33X", ("0a", "1B"))],
)
def test_names_that_collide_in_weak_hashes_are_refused_by_number(
    family: str, pairs: tuple[str, str]
) -> None:
    names = colliding(pairs, 12, 4000)
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
