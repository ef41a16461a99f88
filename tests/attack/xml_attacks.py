"""XML that reads files, calls servers, expands without end, or asks for much work: the vectors."""

import base64
import re
from collections.abc import Iterator
from itertools import islice, product
from typing import Final

HIDING_ENCODINGS: Final = (
    "UTF-7",
    "IBM037",
    "EBCDIC-US",
    "UTF-32",
    "ISO-2022-JP",
    "SHIFT_JIS",
    "x-user",
)
"""Encodings that hide markup from whoever looks at the bytes; none is read."""
ENCODINGS: Final = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")


def doctypes(
    url: str, far_url: str = "http://127.0.0.1:9/evil.dtd"
) -> dict[str, tuple[str, str, str]]:
    """Of each vector: the document type declaration, and what refers to it from text and value."""
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
    percent = "".join(
        f"<!ENTITY &#37; p{n} '{f'&#37;p{n - 1};' * 10}'>" for n in range(1, 10)
    ).replace("&#37; ", "% ")
    vectors: dict[str, tuple[str, str, str]] = {}
    for kind in ("SYSTEM", "PUBLIC"):
        at = f'SYSTEM "{url}"' if kind == "SYSTEM" else f'PUBLIC "-//x//y//EN" "{url}"'
        far = at.replace(url, far_url)
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


def with_doctype(envelope: bytes, vector: tuple[str, str, str], encoding: str) -> bytes:
    """Return an envelope with a declaration, and a header block that refers to it."""
    doctype, in_text, in_value = vector
    text = envelope.decode().partition("?>\n")[2]
    at = re.search("</[^:>]+:Header>", text).start()
    block = f"<x:a xmlns:x='urn:x' a='{in_value}'>{in_text}</x:a>"
    name = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be").upper()
    head = f'<?xml version="1.0" encoding="{name}"?>\n{doctype}'
    return f"{head}{text[:at]}{block}{text[at:]}".encode(encoding)


def in_encoding(text: str, encoding: str) -> bytes:
    """Return a document that says it has that encoding, and has it where Python knows it."""
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    if encoding == "UTF-7":
        return head.encode() + utf7(text)
    if encoding in ("IBM037", "EBCDIC-US"):
        return (head + text).encode("cp037")
    return (head + text).encode("utf-32" if encoding == "UTF-32" else "utf-8")


def pointers(url: str, far: str) -> list[str]:
    """Return elements that point at something outside; one must be content like any other."""
    schema = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    include = "http://www.w3.org/2001/XInclude"
    xop = "http://www.w3.org/2004/08/xop/include"
    return [
        f'<xi:include xmlns:xi="{include}" href="{url}" parse="text"/>',
        f'<xi:include xmlns:xi="{include}" href="{far}"/>',
        f'<r {schema} xsi:noNamespaceSchemaLocation="{far}.xsd"/>',
        f'<r {schema} xsi:schemaLocation="urn:x {url} urn:y {far}.xsd"/>',
        f'<xop:Include xmlns:xop="{xop}" href="{url}"/>',
        f'<xop:Include xmlns:xop="{xop}" href="{far}"/>',
    ]


def utf7(text: str) -> bytes:
    """ASCII outside of markup; the markup itself is hidden from whoever reads bytes."""
    return "".join(
        c if c.isalnum() or c in " \n:/.-'(),?" else "+" + _utf7_unit(c) + "-" for c in text
    ).encode()


def _utf7_unit(c: str) -> str:
    return base64.b64encode(c.encode("utf-16-be")).decode().rstrip("=")


ORDER: Final = b'<r a="1">the-signed-text</r>'


def evil_attachments(url: str) -> Iterator[tuple[str, bytes]]:
    yield "entity", b'<!DOCTYPE r [<!ENTITY t "the-signed-text">]><r a="1">&t;</r>'
    yield "default attribute", b'<!DOCTYPE r [<!ATTLIST r a CDATA "1">]><r>the-signed-text</r>'
    yield "empty doctype", b'<!DOCTYPE r><r a="1">the-signed-text</r>'
    for name, (doctype, in_text, in_value) in sorted(doctypes(url).items()):
        yield name, f'{doctype}<r a="{in_value or 1}">{in_text}the-signed-text</r>'.encode()
    text = '<!DOCTYPE r [<!ENTITY t "the-signed-text">]><r a="1">&t;</r>'
    yield "UTF-7", in_encoding(text, "UTF-7")
    yield "UTF-16", '<!DOCTYPE r [<!ENTITY t "x">]><r a="1">&t;</r>'.encode("utf-16")
    yield "EBCDIC", '<!DOCTYPE r><r a="1">the-signed-text</r>'.encode("cp037")
    yield "no XML", b"the-signed-text"
    yield "two roots", ORDER * 2
    yield "cut", ORDER[:-3]
    yield "deep", b"<r>" * 300 + b"</r>" * 300
    yield "null", b"<r>\0</r>"
    yield "not UTF-8", b"<r>\xff\xfe\xfd</r>"


def _many(count: int, written: str) -> str:
    """That many pieces, each with its number in the place of `#`."""
    return " ".join(written.replace("#", str(number)) for number in range(count))


def _wrapped(xml: str, attributes: str = "") -> str:
    return f"<x:a xmlns:x='urn:x' {attributes}>{xml}</x:a>"


def shapes() -> dict[str, str]:
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


def colliding(pairs: tuple[str, str], length: int, count: int) -> list[str]:
    return ["".join(letters) for letters in islice(product(pairs, repeat=length), count)]
