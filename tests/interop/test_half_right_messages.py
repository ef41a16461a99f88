"""Messages that are half right: what is legal is taken, the rest is refused by its exact code.

A scripted peer sends to a real node. What is legal is taken from ebMS 3.0 Core, the AS4 profile and
the rules of MIME; each refusal has to be in the answer and in the journal.
"""

import base64
import gzip
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from lxml import etree

from tests.as4.foreign import BOUNDARY, Letter, Part, compressed, sign
from tests.as4.reading import NS
from tests.changing import replace
from tests.interop.half_right import (
    PAYLOAD,
    SELLER,
    SERVICE,
    Told,
    Wire,
    World,
    identity,
    journal,
    letter,
    running,
)
from tests.interop.scripted_peer import SOAP


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("half_right")) as made:
        yield made


def swap(old: str | bytes, new: str | bytes, count: int = -1) -> Callable[[bytes], bytes]:
    """Replace what must be there."""
    before, after = (one.encode() if isinstance(one, str) else one for one in (old, new))

    def change(body: bytes) -> bytes:
        assert before in body, before
        return body.replace(before, after, count)

    return change


def drop(tag: str) -> Callable[[bytes], bytes]:
    """Remove the first element of that name."""

    def change(body: bytes) -> bytes:
        changed, count = re.subn(
            rf"<{tag}[ >].*?</{tag}>".encode(), b"", body, count=1, flags=re.DOTALL
        )
        assert count, tag
        return changed

    return change


BROKEN: Final[dict[str, tuple[Callable[[bytes], bytes], str]]] = {
    "no PartyInfo": (drop("eb:PartyInfo"), "EBMS:0009"),
    "no Role": (drop("eb:Role"), "EBMS:0009"),
    "no PartyId": (drop("eb:PartyId"), "EBMS:0009"),
    "no Service": (drop("eb:Service"), "EBMS:0009"),
    "no Action": (drop("eb:Action"), "EBMS:0009"),
    "no ConversationId": (drop("eb:ConversationId"), "EBMS:0009"),
    "no MessageInfo": (drop("eb:MessageInfo"), "EBMS:0009"),
    "no Timestamp": (drop("eb:Timestamp"), "EBMS:0009"),
    "Timestamp that is no time": (
        lambda body: re.sub(rb"(<eb:Timestamp>)[^<]*", rb"\1yesterday", body),
        "EBMS:0009",
    ),
    "no MessageId": (drop("eb:MessageId"), "EBMS:0009"),
    "empty MessageId": (
        lambda body: re.sub(rb"(<eb:MessageId>)[^<]*", rb"\1", body),
        "EBMS:0009",
    ),
    "wrong case": (swap("eb:Service>", "eb:service>"), "EBMS:0009"),
    "wrong case of UserMessage": (swap("eb:UserMessage>", "eb:Usermessage>"), "EBMS:0009"),
    "wrong order": (
        lambda body: re.sub(
            rb"(<eb:Service>.*?</eb:Service>)\s*(<eb:Action>.*?</eb:Action>)", rb"\2\1", body
        ),
        "EBMS:0009",
    ),
    "namespace without its slash": (swap('core/200704/"', 'core/200704"'), "EBMS:0008"),
    "unknown Service": (
        swap(f"<eb:Service>{SERVICE}", f"<eb:Service>{SERVICE}:other"),
        "EBMS:0010",
    ),
    "unknown Action": (swap("<eb:Action>plain", "<eb:Action>Plain"), "EBMS:0010"),
    "unknown party": (swap(SELLER, "urn:example:nobody"), "EBMS:0010"),
    "PartInfo without its part": (swap("cid:invoice@", "cid:invoices@"), "EBMS:0007"),
    "payload elsewhere": (
        swap("cid:invoice@seller.example", "https://seller.example/invoice"),
        "EBMS:0011",
    ),
    "unknown header that must be understood": (
        swap("<s:Header>", '<s:Header><x:Y xmlns:x="urn:x" s:mustUnderstand="true"/>'),
        "EBMS:0008",
    ),
    "XML that is not well-formed": (swap("</eb:PartyInfo>", ""), "EBMS:0009"),
}


FOLLOWING: Final = {
    "EBMS:0007": ("EBMS:0007",),
    "EBMS:0008": ("EBMS:0009",),
    "EBMS:0009": ("EBMS:0009", "EBMS:0010"),
    "EBMS:0011": ("EBMS:0007",),
    "EBMS:0303": ("EBMS:0007", "EBMS:0010"),
}
"""What may be said beside the error that counts: a header without Action fits no P-Mode either."""


def refused(world: World, wire: Wire, message_id: str, code: str) -> Told:
    """The answer says so, and so does the journal; nothing is delivered."""
    told = world.post(*wire)
    assert told.codes[0] == code, told.reasons
    assert set(told.codes[1:]) <= set(FOLLOWING.get(code, ())), told.reasons
    [severity] = {one["severity"] for one in told.seen.errors}
    assert severity == "failure"
    assert not told.seen.all("//eb:Receipt")
    assert not world.is_delivered(message_id)
    return told


@pytest.mark.parametrize("mpc", ["urn:example:channel", "urn:example:other", None])
def test_a_message_in_another_channel_than_agreed_fits_no_p_mode(
    world: World, mpc: str | None
) -> None:
    sent = letter("channelled")
    kind, body = sent.wire()
    if mpc is not None:
        body = swap("<eb:UserMessage>", f'<eb:UserMessage mpc="{mpc}">')(body)
    if mpc == "urn:example:channel":
        taken(world, (kind, body), sent.message_id)
    else:
        refused(world, (kind, body), sent.message_id, "EBMS:0010")
        assert ("rejected", "EBMS:0010") in world.story(sent.message_id)


def test_a_message_without_payloads_needs_no_multipart(world: World) -> None:
    """Core 5.1: without payloads a message is plain SOAP, or a multipart of one part."""
    for kind in ("application/soap+xml", f'{SOAP}; action=""'):
        sent = replace(letter("plain"), parts=())
        _, body = sent.wire()
        taken(world, (kind, body), sent.message_id, payloads=0)


def written_down(world: World, told: Told, code: str) -> None:
    """The last event of the journal about no message is what the peer was told."""
    assert told.ref == []
    rows = [one for one in journal(world) if one["message_id"] is None and one["error_code"]]
    count = len(told.codes)
    assert [one["event"] for one in rows[-count:]] == ["error_raised"] * count
    assert [one["error_code"] for one in rows[-count:]] == told.codes
    assert code in told.codes


@pytest.mark.parametrize("name", BROKEN)
def test_a_header_that_is_half_right_is_refused_by_its_code(world: World, name: str) -> None:
    change, code = BROKEN[name]
    sent = letter("plain")
    kind, body = sent.wire()
    changed = change(body)
    assert changed != body
    told = refused(world, (kind, changed), sent.message_id, code)
    readable = b"<eb:MessageId>" + sent.message_id.encode() in changed
    if readable and name not in UNREADABLE:
        assert told.ref == [sent.message_id]
        assert any(one[1] == code for one in world.story(sent.message_id))
        listed = world.node.run("trace", sent.message_id)
        assert code in listed.stdout
    else:
        assert told.ref == []
        written_down(world, told, code)


UNREADABLE: Final = frozenset(
    ("namespace without its slash", "XML that is not well-formed", "wrong case of UserMessage")
)


def told_to_be(mime_type: str | None, compression: str | None, charset: str | None = None) -> Any:
    named = (("MimeType", mime_type), ("CompressionType", compression), ("CharacterSet", charset))
    return tuple((name, value, None) for name, value in named if value is not None)


GZIP: Final = "application/gzip"
ZIPPED: Final = gzip.compress(PAYLOAD)
PAYLOADS: Final[dict[str, tuple[Part, str | None]]] = {
    "compressed": (Part("a@b", ZIPPED, GZIP, told_to_be("text/xml", GZIP)), None),
    "not compressed, with MimeType": (
        Part("a@b", PAYLOAD, "application/xml", told_to_be("application/xml", None)),
        None,
    ),
    "neither property": (Part("a@b", PAYLOAD), None),
    "compressed without MimeType": (
        Part("a@b", ZIPPED, GZIP, told_to_be(None, GZIP)),
        "EBMS:0303",
    ),
    "compressed in another way": (
        Part("a@b", ZIPPED, "application/zip", told_to_be("text/xml", "application/zip")),
        "EBMS:0303",
    ),
    "said to be compressed and not": (
        Part("a@b", PAYLOAD, GZIP, told_to_be("text/xml", GZIP)),
        "EBMS:0303",
    ),
    "half a GZIP": (Part("a@b", ZIPPED[:20], GZIP, told_to_be("text/xml", GZIP)), "EBMS:0303"),
    "GZIP with a wrong checksum": (
        Part("a@b", ZIPPED[:-8] + bytes(8), GZIP, told_to_be("text/xml", GZIP)),
        "EBMS:0303",
    ),
    "GZIP with more behind it": (
        Part("a@b", ZIPPED + b"more", GZIP, told_to_be("text/xml", GZIP)),
        "EBMS:0303",
    ),
    "nothing instead of a GZIP": (
        Part("a@b", b"", GZIP, told_to_be("text/xml", GZIP)),
        "EBMS:0303",
    ),
    "unknown character set": (
        Part("a@b", ZIPPED, GZIP, told_to_be("text/xml", GZIP, "utf-9")),
        "EBMS:0003",
    ),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_compression_is_undone_or_refused(world: World, name: str) -> None:
    """The receiver goes by the part properties; what it cannot open is EBMS:0303 (AS4 3.1)."""
    part, code = PAYLOADS[name]
    sent = letter("plain", part)
    if code is None:
        taken(world, sent.wire(), sent.message_id)
    else:
        refused(world, sent.wire(), sent.message_id, code)
        assert any(one[1] == code for one in world.story(sent.message_id))


def taken(world: World, wire: Wire, message_id: str, *, payloads: int = 1) -> None:
    """It is delivered once, and a receipt says so."""
    told = world.post(*wire)
    assert (told.status, told.codes) == (200, []), told.reasons
    assert told.ref == [message_id]
    assert told.seen.all("//eb:Receipt")
    assert [one for one, _ in world.story(message_id)].count("delivered") == 1
    assert len(world.client.received(message_id).parts) == payloads
    if payloads:
        assert world.client.part(message_id, 1) == PAYLOAD


SECURED: Final[dict[str, tuple[Callable[[World], Letter], str | None]]] = {
    "signed": (lambda w: letter("signed").but(signed_by=w.seller), None),
    "not signed": (lambda w: letter("signed"), "EBMS:0103"),
    "signed by another": (lambda w: letter("signed").but(signed_by=w.relative), "EBMS:0101"),
    "signed by a stranger": (lambda w: letter("signed").but(signed_by=w.stranger), "EBMS:0101"),
    "payload changed after signing": (
        lambda w: letter(
            "signed", Part("a@b", PAYLOAD, after=lambda content: content.replace(b"12", b"13"))
        ).but(signed_by=w.seller),
        "EBMS:0101",
    ),
    "compressed after signing": (
        lambda w: letter(
            "signed", Part("a@b", PAYLOAD, GZIP, told_to_be("text/xml", GZIP), gzip.compress)
        ).but(signed_by=w.seller),
        "EBMS:0101",
    ),
    "signed and encrypted": (
        lambda w: letter("sealed", compressed("a@b", PAYLOAD)).but(
            signed_by=w.seller, sealed_for=certificate_of(w)
        ),
        None,
    ),
    "encrypted for another": (
        lambda w: letter("sealed").but(signed_by=w.seller, sealed_for=w.relative.certificate),
        "EBMS:0102",
    ),
    "damaged after encryption": (
        lambda w: letter(
            "sealed", Part("a@b", PAYLOAD, after=lambda content: content[:-1] + b"?")
        ).but(signed_by=w.seller, sealed_for=certificate_of(w)),
        "EBMS:0102",
    ),
    "not encrypted": (lambda w: letter("sealed").but(signed_by=w.seller), "EBMS:0103"),
    "encrypted and not signed": (
        lambda w: letter("sealed").but(sealed_for=certificate_of(w)),
        "EBMS:0103",
    ),
}


def certificate_of(world: World) -> Any:
    return identity(world.node.folder / "keys" / "buyer.p12").certificate


@pytest.mark.parametrize("name", SECURED)
def test_security_that_is_half_right_is_refused_by_its_code(world: World, name: str) -> None:
    """FailedAuthentication, FailedDecryption or PolicyNoncompliance (Core 6.7.2)."""
    made, code = SECURED[name]
    sent = made(world)
    if code is None:
        taken(world, sent.wire(), sent.message_id)
    else:
        refused(world, sent.wire(), sent.message_id, code)
        assert any(one[1] == code for one in world.story(sent.message_id))


def test_a_signature_that_leaves_a_payload_out_is_refused(world: World) -> None:
    """All payload parts are signed (AS4 5.1.4): EBMS:0103 for one that is not."""
    sent = letter("signed", Part("a@b", PAYLOAD)).but(signed_by=world.seller)
    kind, body = sent.wire()
    unsigned = sent.but(signed_by=None)
    root = etree.fromstring(between(unsigned.wire()[1], b"<s:Envelope", b"</s:Envelope>"))
    etree.SubElement(root[0], f"{{{NS['wsse']}}}Security")
    bare = etree.tostring(sign(root, (), world.seller))
    whole = between(body, b"<s:Envelope", b"</s:Envelope>")
    told = refused(world, (kind, swap(whole, bare)(body)), sent.message_id, "EBMS:0103")
    assert ("rejected", "EBMS:0103") in world.story(sent.message_id)
    assert "cid:a@b" in told.reasons


def between(data: bytes, begin: bytes, end: bytes) -> bytes:
    return data[data.index(begin) : data.index(end) + len(end)]


def mime(*changes: Callable[[bytes], bytes], kind: Callable[[str], str] = str) -> Any:
    """A good message in another package."""

    def make(sent: Letter) -> Wire:
        content_type, body = sent.wire()
        for change in changes:
            body = change(body)
        return kind(content_type), body

    return make


def within(first: str, second: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert first in text
        return text.replace(first, second)

    return change


def encoded(name: str, content: bytes) -> Callable[[bytes], bytes]:
    """The payload in another transfer encoding."""

    def change(body: bytes) -> bytes:
        head, binary, rest = body.rpartition(b"Content-Transfer-Encoding: binary")
        assert binary
        return head + b"Content-Transfer-Encoding: " + name.encode() + swap(PAYLOAD, content)(rest)

    return change


def reversed_parts(body: bytes) -> bytes:
    before, first, second, after = body.split(f"--{BOUNDARY}".encode())
    edge = f"--{BOUNDARY}".encode()
    return before + edge + second + edge + first + edge + after


def without_type(text: str) -> str:
    return within('type="application/soap+xml"; ', "")(text)


def envelope_in(encoding: str) -> Callable[[bytes], bytes]:
    """The SOAP envelope in another character encoding, as its XML declaration says."""

    def change(body: bytes) -> bytes:
        start = body.index(b"<s:Envelope")
        end = body.index(b"</s:Envelope>") + len(b"</s:Envelope>")
        text = f'<?xml version="1.0" encoding="{encoding}"?>' + body[start:end].decode()
        return body[:start] + text.encode(encoding) + body[end:]

    return change


FIRST_CHARSET: Final = "Content-Type: application/soap+xml; charset=UTF-8"
PACKAGES: Final[dict[str, tuple[Callable[[Letter], Wire], str | None]]] = {
    "as it should be": (mime(), None),
    "preamble and epilogue": (
        mime(lambda body: b"This is MIME.\r\n" + body + b"That was all.\r\n"),
        None,
    ),
    "start without angle brackets": (
        mime(kind=within("<envelope@stranger.example>", "envelope@stranger.example")),
        None,
    ),
    "no start": (mime(kind=within('start="<envelope@stranger.example>"; ', "")), None),
    "start names the second part": (mime(reversed_parts), None),
    "start names no part": (mime(kind=within("envelope@", "nothing@")), "EBMS:0007"),
    "no type": (mime(kind=without_type), "EBMS:0007"),
    "type that is another": (
        mime(kind=within('type="application/soap+xml"', 'type="text/xml"')),
        "EBMS:0007",
    ),
    "Content-ID without angle brackets": (
        mime(swap("<invoice@seller.example>", "invoice@seller.example")),
        None,
    ),
    "Content-ID in another case": (
        mime(swap("Content-ID: <invoice@", "Content-ID: <Invoice@")),
        "EBMS:0007",
    ),
    "percent-encoded cid": (mime(swap("cid:invoice@", "cid:invoice%40")), None),
    "header names in lower case": (
        mime(
            swap("Content-ID:", "content-id:"),
            swap("Content-Type:", "content-type:"),
            swap("Content-Transfer-Encoding:", "content-transfer-encoding:"),
        ),
        None,
    ),
    "header names in upper case": (mime(swap("Content-ID:", "CONTENT-ID:")), None),
    "folded header": (mime(swap("Content-ID: <", "Content-ID:\r\n <")), None),
    "no space after the colon": (mime(swap("Content-ID: <", "Content-ID:<")), None),
    "boundary that is not quoted": (mime(kind=within(f'"{BOUNDARY}"', BOUNDARY)), None),
    "space behind the boundary": (mime(swap(f"--{BOUNDARY}\r\n", f"--{BOUNDARY} \t\r\n")), None),
    "media type in upper case": (mime(kind=within("multipart/related", "Multipart/RELATED")), None),
    "base64": (mime(encoded("base64", base64.b64encode(PAYLOAD))), None),
    "quoted-printable": (mime(encoded("Quoted-Printable", PAYLOAD.replace(b">", b"=3E"))), None),
    "8bit": (mime(encoded("8bit", PAYLOAD)), None),
    "base64 that is none": (mime(encoded("base64", b"****")), "EBMS:0007"),
    "unknown transfer encoding": (mime(encoded("x-uuencode", PAYLOAD)), "EBMS:0007"),
    "no end": (mime(swap(f"\r\n--{BOUNDARY}--\r\n", "")), "EBMS:0007"),
    "no line end behind the end": (mime(swap(f"--{BOUNDARY}--\r\n", f"--{BOUNDARY}--")), None),
    "another boundary": (mime(kind=within(BOUNDARY, "another")), "EBMS:0007"),
    "no boundary": (mime(kind=within(f'; boundary="{BOUNDARY}"', "")), "EBMS:0007"),
    "part twice": (
        mime(
            swap(
                f"--{BOUNDARY}--",
                f"--{BOUNDARY}\r\nContent-ID: <invoice@seller.example>\r\n\r\nx\r\n--{BOUNDARY}--",
            )
        ),
        "EBMS:0007",
    ),
    "part that no PartInfo names": (
        mime(
            swap(
                f"--{BOUNDARY}--",
                f"--{BOUNDARY}\r\nContent-ID: <more@seller.example>\r\n\r\nx\r\n--{BOUNDARY}--",
            )
        ),
        "EBMS:0007",
    ),
    "no charset": (mime(swap("; charset=UTF-8", "", 1)), None),
    "charset in lower case and quotes": (mime(swap("charset=UTF-8", 'charset="utf-8"', 1)), None),
    "byte order mark": (mime(swap("<s:Envelope", b"\xef\xbb\xbf<s:Envelope")), None),
    "UTF-16": (mime(envelope_in("utf-16"), swap("charset=UTF-8", "charset=UTF-16", 1)), None),
    "charset that contradicts the XML": (mime(envelope_in("utf-16")), "EBMS:0007"),
    "SOAP 1.2 declared as 1.1": (
        mime(
            swap("application/soap+xml", "text/xml", 1),
            kind=within("application/soap+xml", "text/xml"),
        ),
        "EBMS:0007",
    ),
    "lines that end without a carriage return": (mime(swap("\r\n", "\n")), None),
    "Messaging without mustUnderstand": (
        mime(swap('eb:Messaging s:mustUnderstand="true"', "eb:Messaging")),
        None,
    ),
    "mustUnderstand 1": (mime(swap('mustUnderstand="true"', 'mustUnderstand="1"')), None),
    "Timestamp without its zone": (mime(swap(".000Z<", ".000<")), None),
    "Timestamp in another zone": (mime(swap(".000Z<", ".000+00:00<")), None),
    "RefToMessageId, which a push need not have": (
        mime(swap("</eb:MessageId>", "</eb:MessageId><eb:RefToMessageId>a@b</eb:RefToMessageId>")),
        None,
    ),
    "empty ConversationId": (
        mime(swap("<eb:ConversationId>1</eb:ConversationId>", "<eb:ConversationId/>")),
        None,
    ),
    "channel that nobody agreed on": (
        mime(swap("<eb:UserMessage>", '<eb:UserMessage mpc="urn:example:channel">')),
        None,
    ),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_taken_when_it_is_legal(world: World, name: str) -> None:
    """Core 5.1 and the rules of MIME; EBMS:0007 where they are broken.

    RFC 2387 3.1: "The type parameter must be specified". Core: all payloads are listed in
    eb:PayloadInfo, so a part that is not listed is inconsistent with the header.
    """
    make, code = PACKAGES[name]
    sent = letter("plain")
    if code is None:
        taken(world, make(sent), sent.message_id)
        return
    told = refused(world, make(sent), sent.message_id, code)
    if told.ref:
        assert any(one[1] == code for one in world.story(sent.message_id))
    else:
        written_down(world, told, code)


def test_a_message_in_another_soap_version_than_agreed_is_refused_in_its_own(world: World) -> None:
    sent = letter("plain")
    change = mime(
        swap(NS["s"], "http://schemas.xmlsoap.org/soap/envelope/"),
        swap("application/soap+xml", "text/xml", 1),
        swap('mustUnderstand="true"', 'mustUnderstand="1"'),
        kind=within("application/soap+xml", "text/xml"),
    )
    told = world.post(*change(sent))
    assert told.content_type.startswith("text/xml")
    assert re.findall(rb'errorCode="([^"]+)"', told.body) == [b"EBMS:0010"]
    assert ("rejected", "EBMS:0010") in world.story(sent.message_id)
    assert not world.is_delivered(sent.message_id)


STATUSES: Final[dict[str, Wire]] = {
    "no Content-Type": (None, b"<a/>"),
    "HTML": ("text/html", b"<html></html>"),
    "JSON": ("application/json", b"{}"),
    "no body": (SOAP, b""),
    "SOAP without ebMS": (SOAP, f'<s:Envelope xmlns:s="{NS["s"]}"><s:Body/></s:Envelope>'.encode()),
    "a document type": (SOAP, b"<!DOCTYPE a><a/>"),
}


@pytest.mark.parametrize("name", STATUSES)
def test_what_is_no_message_is_refused_as_a_client_error(world: World, name: str) -> None:
    told = world.post(*STATUSES[name])
    assert 400 <= told.status < 500
    [code] = told.codes
    assert code in ("EBMS:0007", "EBMS:0008", "EBMS:0009")
    assert told.ref == []
