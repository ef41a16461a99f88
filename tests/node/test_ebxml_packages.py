"""Each rule of section 7 of ebXML MS 0.98b, packaging, broken once: what a whole node answers."""

from typing import Final

import pytest

from tests.node.ebxml_letters import (
    CID,
    GOOD,
    OLD_NS,
    RELIABLY,
    SOAP_NS,
    XML,
    M,
    Packed,
    agreed,
    case,
    hand,
    listening,
    order,
    pack,
    spoiled,
    without,
)
from tests.node.reliable import (
    ORDER,
    World,
    played,
)


def outer(**changes: str | None) -> str:
    """The Content-Type of the package with parameters changed, or left out."""
    given = {"type": "text/xml", "boundary": "b", "start": "<root@buyer.example>"} | changes
    return "; ".join(
        ["multipart/related", *(f'{name}="{value}"' for name, value in given.items() if value)]
    )


def latin(text: str) -> bytes:
    return text.replace(">c1<", ">caf\u00e9<").encode("latin-1")


PACKAGES: Final = [
    case(
        "no type",
        pack(GOOD, (CID, ORDER), outer=outer(type=None)),
        "Client",
        "type",
    ),
    case(
        "another type",
        pack(GOOD, (CID, ORDER), outer=outer(type="application/xml")),
        "Client",
        "type",
    ),
    case(
        "root that is not text/xml",
        pack(GOOD, (CID, ORDER), outer=outer(type="application/xml"), inner="application/xml"),
        "Client",
        "text/xml",
    ),
    case(
        "root of SOAP 1.2's type",
        pack(
            GOOD,
            (CID, ORDER),
            outer=outer(type="application/soap+xml"),
            inner="application/soap+xml",
        ),
        "Client",
        "text/xml",
    ),
    case(
        "charset against the declaration",
        pack(GOOD, (CID, ORDER), inner='text/xml; charset="ISO-8859-1"'),
        "Client",
        "charset",
    ),
    case(
        "charset against the declaration, alone",
        ("text/xml; charset=ISO-8859-1", order(body="", inside=RELIABLY).encode()),
        "Client",
        "charset",
    ),
    case(
        "charset against the encoding",
        pack(GOOD.encode("utf-16"), (CID, ORDER)),
        "Client",
        "",
    ),
    case(
        "declaration against the encoding",
        pack(latin(GOOD), (CID, ORDER), inner="text/xml"),
        "Client",
        "well-formed",
    ),
    case("no boundary", pack(GOOD, (CID, ORDER), outer=outer(boundary=None)), "Client", "boundary"),
    case("another boundary", pack(GOOD, (CID, ORDER), outer=outer(boundary="c")), "Client", "part"),
    case(
        "start that is nowhere",
        pack(GOOD, (CID, ORDER), outer=outer(start="<gone@buyer.example>")),
        "Client",
        "start",
    ),
    case(
        "multipart/mixed",
        pack(GOOD, (CID, ORDER), outer='multipart/mixed; boundary="b"'),
        "Client",
        "multipart/mixed",
        req="MS098-7.1.1-02",
    ),
    case("cut off", (outer(), pack(GOOD, (CID, ORDER))[1][:-9]), "Client", "delimiter"),
    case(
        "two parts of one name", pack(GOOD, (CID, ORDER), (CID, b"other")), "Client", "Content-ID"
    ),
    case("nothing", (XML, b""), "Client", ""),
    case(
        "not well-formed",
        pack(spoiled(GOOD, "</eb:Action>", ""), (CID, ORDER)),
        "Client",
        "well-formed",
        req="MS098-7.1.1-01",
    ),
    case(
        "a DTD",
        pack(GOOD.replace("?>\n", '?><!DOCTYPE x [<!ENTITY e "x">]>', 1), (CID, ORDER)),
        "Client",
        "DTD",
    ),
    case(
        "no SOAP Body",
        pack(without("<SOAP-ENV:Body>", "</SOAP-ENV:Body>"), (CID, ORDER)),
        "Client",
        "Body",
    ),
    case(
        "Body before Header",
        pack(
            without("<SOAP-ENV:Header>", "</SOAP-ENV:Header>").replace(
                "</SOAP-ENV:Body>",
                "</SOAP-ENV:Body>"
                + GOOD[GOOD.index("<SOAP-ENV:Header>") : GOOD.index("<SOAP-ENV:Body>")],
            ),
            (CID, ORDER),
        ),
        "Client",
        "Header",
    ),
    case(
        "no SOAP Header",
        pack(without("<SOAP-ENV:Header>", "</SOAP-ENV:Header>"), (CID, ORDER)),
        "Client",
        "MessageHeader",
    ),
    case(
        "no MessageHeader",
        pack(without("<eb:MessageHeader ", "</eb:MessageHeader>"), (CID, ORDER)),
        "Client",
        "MessageHeader",
    ),
    case(
        "an Envelope of another SOAP",
        pack(GOOD.replace(SOAP_NS, "urn:example:soap"), (CID, ORDER)),
        "VersionMismatch",
        "",
        req="MS098-7.1.1-01 MS098-11-03",
    ),
    case(
        "SOAP 1.2",
        pack(GOOD.replace(SOAP_NS, "http://www.w3.org/2003/05/soap-envelope"), (CID, ORDER)),
        "VersionMismatch",
        "",
        req="MS098-7.1.1-01",
    ),
]


@pytest.mark.req("MS098-7.6-01", "MS098-11-03", "MS098-11-01")
@pytest.mark.parametrize(("letter", "code", "what"), PACKAGES)
@played
async def test_a_broken_package_gets_a_soap_fault(
    world: World, letter: Packed, code: str, what: str
) -> None:
    agreed(world)
    outcome = await hand(world, await listening(world), letter)
    assert outcome.response.status == 500
    assert outcome.response.content_type is not None
    assert outcome.response.content_type.startswith("text/xml")
    fault = outcome.said.fault
    assert fault is not None
    assert fault[0] == code
    assert what in fault[1]
    assert outcome.posted == []
    assert outcome.delivered == []
    assert outcome.raised


@pytest.mark.req("MS098-7.3.1.1-04", "MS098-7.5-03")
@pytest.mark.parametrize(
    "letter",
    [
        pack(GOOD, (CID, ORDER), inner="text/xml"),
        pack(GOOD, (CID, ORDER), inner="text/xml\r\nX-Mood: good\r\nContent-Length: 1"),
        pack(
            latin(GOOD.replace("UTF-8", "ISO-8859-1")),
            (CID, ORDER),
            inner="text/xml; charset=iso-8859-1",
        ),
        pack(
            GOOD.replace("UTF-8", "UTF-16").encode("utf-16"),
            (CID, ORDER),
            inner="text/xml; charset=UTF-16",
        ),
        pack(GOOD.partition("?>\n")[2], (CID, ORDER), inner="text/xml"),
        pack(GOOD, (CID, ORDER), outer=outer(start=None)),
    ],
    ids=["no charset", "unknown MIME headers", "latin-1", "UTF-16", "no declaration", "no start"],
)
@played
async def test_what_section_7_leaves_open_is_taken(world: World, letter: Packed) -> None:
    agreed(world)
    assert (await hand(world, await listening(world), letter)).delivered == [M]


@pytest.mark.req("MS098-8.2.1-01")
@played
async def test_elements_of_another_namespace_are_no_ebxml_message(world: World) -> None:
    agreed(world)
    letter = pack(GOOD.replace(OLD_NS, "urn:example:other"), (CID, ORDER))
    outcome = await hand(world, await listening(world), letter)
    assert outcome.response.status >= 400
    assert outcome.delivered == []
