"""Attachments that are doubled, renamed, swapped, added, cut, or typed anew on the way."""

import base64
import gzip
from collections.abc import Callable

import pytest

from postroad.security.attachments import Attachment
from postroad.wire.ebms3 import MIME_TYPE, PartInfo, Property
from tests.attack.forging import attachment_ref, refs, resigned, with_ref
from tests.attack.messages import (
    BODY,
    ROOT_ID,
    TWO,
    VERSION,
    Package,
    Part,
    assert_holds,
    assert_refused,
    look,
    make,
    part_info,
    payload,
    write_mime,
)
from tests.attack.wrapping import FORGED_CONTENT
from tests.changing import replace

XML = b'<o:Order xmlns:o="urn:example:order"><o:Pay>100</o:Pay></o:Order>'


@pytest.fixture(scope="module")
def message() -> Package:
    return make(TWO)


@pytest.fixture(scope="module")
def xml_message() -> Package:
    return make([payload("one", XML, "application/xml")])


def _one(message: Package) -> Part:
    return message.parts[0]


@pytest.mark.parametrize("forged_first", [True, False])
def test_two_parts_with_one_content_id_are_refused(message: Package, forged_first: bool) -> None:
    forged = replace(_one(message), content=FORGED_CONTENT)
    pair = (forged, _one(message)) if forged_first else (_one(message), forged)
    found = look(message.with_parts(*pair, message.parts[1]))
    assert_refused(found, "EBMS:0007")
    forgeries = [part for part in found["parts"] if part["size"] == len(FORGED_CONTENT)]
    assert [part["signed"] for part in forgeries] == [False]


@pytest.mark.parametrize(
    "name",
    [
        "one%40buyer.example",
        "one%2540buyer.example",
        "%6Fne@buyer.example",
        " one@buyer.example ",
    ],
)
@pytest.mark.parametrize("forged_first", [True, False])
def test_two_spellings_of_one_content_id_are_one_content_id(
    message: Package, name: str, forged_first: bool
) -> None:
    forged = replace(_one(message), content_id=name, content=FORGED_CONTENT)
    pair = (forged, _one(message)) if forged_first else (_one(message), forged)
    assert_refused(look(message.with_parts(*pair, message.parts[1])), "EBMS:0007")
    alone = replace(_one(message), content_id=name)
    assert_holds(look(message.with_parts(alone, message.parts[1])))


@pytest.mark.parametrize("name", ["ONE@buyer.example", "one@BUYER.example", "one@buyer.example."])
def test_a_content_id_in_other_letters_is_another_one(message: Package, name: str) -> None:
    other = replace(_one(message), content_id=name)
    assert_refused(look(message.with_parts(other, message.parts[1])), "EBMS:0007", "EBMS:0101")
    extra = replace(other, content=FORGED_CONTENT)
    assert_refused(look(message.with_parts(*message.parts, extra)), "EBMS:0007", "EBMS:0103")


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("name", ["extra@buyer.example", None, "part-2", "part-3", "part-4"])
def test_a_part_that_nobody_signed_or_listed_is_refused(
    message: Package, at: int, name: str | None
) -> None:
    parts = list(message.parts)
    parts.insert(at, Part(name, "text/plain", FORGED_CONTENT))
    found = look(message.with_parts(*parts))
    assert_refused(found, "EBMS:0007")
    [extra] = [one for one in found["parts"] if one["size"] == len(FORGED_CONTENT)]
    assert extra["signed"] is False


@pytest.mark.parametrize("number", [2, 3])
def test_a_part_without_content_id_does_not_pass_for_a_signed_one(number: int) -> None:
    """Nor where the signed one is called what readers call those without a name."""
    own = Attachment(f"part-{number}", payload("x", b"pay 100").content, "text/plain")
    message = make([own])
    assert_holds(look(message))
    nameless = Part(None, "text/plain", FORGED_CONTENT)
    for parts in ((message.parts[0], nameless), (nameless, message.parts[0]), (nameless,)):
        found = look(message.with_parts(*parts))
        assert_refused(found, "EBMS:0007", "EBMS:0101")
        for part in found["parts"]:
            assert part["cid"] or not part["signed"]


def test_a_listed_part_that_the_signature_leaves_out_is_refused(message: Package) -> None:
    found = look(resigned(message, with_ref(message, "cid:two@buyer.example", None)))
    assert found["signature"]["valid"] is True
    assert_refused(found, "EBMS:0103")
    assert [part["signed"] for part in found["parts"]] == [True, False]


def test_a_signed_part_that_nobody_lists_is_refused() -> None:
    message = make(TWO, listed=[part_info(TWO[0])])
    assert_refused(look(message), "EBMS:0007")


def test_a_listed_and_signed_part_that_is_not_there_is_refused(message: Package) -> None:
    found = look(message.with_parts(message.parts[0]))
    assert_refused(found, "EBMS:0007")
    assert_refused(found, "EBMS:0101")


def test_signed_parts_that_were_swapped_are_refused(message: Package) -> None:
    one, two = message.parts
    assert len(one.content) == len(two.content)
    swapped = message.with_parts(
        replace(one, content=two.content), replace(two, content=one.content)
    )
    assert_refused(look(swapped), "EBMS:0101")


def test_the_order_of_the_parts_means_nothing(message: Package) -> None:
    found = look(message.with_parts(*reversed(message.parts)))
    assert_holds(found)
    assert [one["sha256"] for one in found["units"][0]["payloads"]] == [
        one["sha256"] for one in look(message)["units"][0]["payloads"]
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content[1:],
        lambda content: b"",
        lambda content: content + b"\0",
        lambda content: content + b"\n",
        lambda content: content + b"\r\n",
        lambda content: b"\r\n" + content,
        lambda content: content.replace(b"100", b"900"),
    ],
)
def test_a_part_that_was_cut_or_lengthened_is_refused(
    message: Package, change: Callable[[bytes], bytes]
) -> None:
    other = replace(_one(message), content=change(_one(message).content))
    assert_refused(look(message.with_parts(other, message.parts[1])), "EBMS:0101")


@pytest.mark.parametrize(
    "new_type",
    [
        "application/octet-stream",
        "text/plain",
        "text/xml",
        "application/x+xml",
        "application/gzip",
        "multipart/mixed; boundary=x",
        "message/rfc822",
    ],
)
@pytest.mark.parametrize("media_type", ["application/octet-stream", "application/xml"])
@pytest.mark.parametrize("change", [b"", b"<!-- 900 -->", b"\n"])
def test_another_content_type_makes_no_changed_content_hold(
    media_type: str, new_type: str, change: bytes
) -> None:
    """The MIME type chooses how a part is digested, and nobody signs it."""
    message = make([payload("one", XML, media_type)])
    content = XML.replace(b"<o:Pay>", change + b"<o:Pay>")
    found = look(message.with_parts(replace(_one(message), content_type=new_type, content=content)))
    means_the_same = not change or (
        change.startswith(b"<!--") and media_type.endswith("xml") and new_type.endswith("xml")
    )
    if not means_the_same:
        assert_refused(found, "EBMS:0101", "EBMS:0007")
    if found["holds"]:
        [told] = found["units"][0]["payloads"]
        assert told["content_type"] == media_type


@pytest.mark.parametrize("ends", [b"\r\n", b"\n", b"\r"])
def test_text_is_digested_with_its_line_ends_as_mime_has_them(ends: bytes) -> None:
    message = make([payload("one", b"pay 100\r\nto Alice\r\n", "text/plain")])
    other = replace(_one(message), content=b"pay 100\r\nto Alice\r\n".replace(b"\r\n", ends))
    assert_holds(look(message.with_parts(other)))
    worse = replace(other, content=other.content.replace(b"100", b"900"))
    assert_refused(look(message.with_parts(worse)), "EBMS:0101")


def test_another_transfer_encoding_is_undone_before_anything_is_digested(message: Package) -> None:
    content = _one(message).content
    for encoding, written in (
        ("base64", base64.encodebytes(content)),
        ("quoted-printable", content.replace(b"=", b"=3D")),
        ("8bit", content),
    ):
        header = (("Content-Transfer-Encoding", encoding),)
        other = replace(_one(message), headers=header, content=written)
        assert_holds(look(message.with_parts(other, message.parts[1])))
        forged = replace(other, content=written.replace(written[:4], b"cGF4"))
        assert_refused(look(message.with_parts(forged, message.parts[1])), "EBMS:0101", "EBMS:0007")


@pytest.mark.parametrize("encoding", ["base64", "gzip", "x-uuencode", "binary, base64", "7bit;x"])
def test_a_transfer_encoding_that_does_not_fit_is_refused(message: Package, encoding: str) -> None:
    other = replace(_one(message), headers=(("Content-Transfer-Encoding", encoding),))
    assert_refused(look(message.with_parts(other, message.parts[1])), "EBMS:0007", "EBMS:0101")


@pytest.mark.parametrize(
    "headers",
    [
        (("Content-Type", "text/plain"),),
        (("Content-ID", "<forged@buyer.example>"),),
        (("Content-Transfer-Encoding", "binary"), ("content-transfer-encoding", "base64")),
    ],
)
def test_a_header_given_twice_with_two_values_is_refused(
    message: Package, headers: tuple[tuple[str, str], ...]
) -> None:
    other = replace(_one(message), headers=headers)
    assert_refused(look(message.with_parts(other, message.parts[1])), "EBMS:0007")


def test_a_start_parameter_cannot_make_an_attachment_the_envelope(message: Package) -> None:
    evil = make(TWO, unsigned=True).envelope.replace(b"NewOrder", b"SendMoney")
    root = Part(ROOT_ID, f"{VERSION.media_type}; charset=UTF-8", message.envelope)
    forged = Part("evil@buyer.example", VERSION.media_type, evil)
    for start in ("evil@buyer.example", "one@buyer.example", "nobody@buyer.example"):
        found = look(write_mime([root, *message.parts, forged], start=start))
        assert not (found["holds"] and found["signature"]["valid"])
        assert_refused(found)
    for parts in ([forged, root, *message.parts], [root, forged, *message.parts]):
        found = look(write_mime(parts, start=ROOT_ID))
        assert_refused(found, "EBMS:0007")
        assert [unit["action"] for unit in found["units"]] == ["NewOrder"]
    swapped = look(write_mime([forged, root, *message.parts], start=None))
    assert_refused(swapped)
    assert swapped["signature"]["present"] is False


def test_an_attachment_with_the_name_of_the_envelope_is_refused(message: Package) -> None:
    twin = Part(ROOT_ID, VERSION.media_type, message.envelope)
    assert_refused(look(message.with_parts(*message.parts, twin)), "EBMS:0007")


def test_the_envelope_is_no_payload() -> None:
    listed = [PartInfo(f"cid:{ROOT_ID}", (Property(MIME_TYPE, "text/xml"),))]
    assert_refused(look(make((), listed=listed)), "EBMS:0007")


@pytest.mark.parametrize(
    "href", ["http://127.0.0.1:9/x", "file:///etc/passwd", "#nobody", "//host/x", "cid:"]
)
def test_a_payload_that_is_elsewhere_is_not_fetched(href: str) -> None:
    listed = [PartInfo(href, (Property(MIME_TYPE, "text/xml"),))]
    assert_refused(look(make((), listed=listed)), "EBMS:0011", "EBMS:0007", "EBMS:0009")


def test_a_payload_in_the_body_must_be_one_element_that_is_signed() -> None:
    body = '<o:a xmlns:o="urn:o" xml:id="p1">100</o:a>'
    listed = [PartInfo("#p1", (Property(MIME_TYPE, "text/xml"),))]
    good = make((), body=body, listed=listed)
    assert_holds(look(good))
    twice = good.replaced("</S12:Body>", '<o:a xmlns:o="urn:o" id="p1">900</o:a></S12:Body>')
    assert_refused(look(twice), "EBMS:0007")
    outside = good.replaced("<S12:Header>", '<S12:Header><o:a xmlns:o="urn:o" id="p1">900</o:a>')
    found = look(outside)
    assert found["signature"]["valid"] is True
    assert [one["href"] for one in found["units"][0]["payloads"]] == ["#p1"]


def test_a_payload_that_is_not_compressed_although_it_says_so_is_refused() -> None:
    for content in (
        b"not gzip",
        gzip.compress(b"x", mtime=0)[:-3],
        gzip.compress(b"x", mtime=0) + b"tail",
    ):
        message = make([payload("one", content, "application/gzip")])
        assert_refused(look(message), "EBMS:0303")


@pytest.mark.parametrize("extra", [b"\0", b"\0" * 512])
def test_bytes_after_a_compressed_payload_are_signed_too(extra: bytes) -> None:
    message = make([payload("one", gzip.compress(b"pay 100", mtime=0), "application/gzip")])
    assert_holds(look(message))
    longer = replace(_one(message), content=_one(message).content + extra)
    assert_refused(look(message.with_parts(longer)), "EBMS:0101")


def test_a_whole_message_cannot_be_grafted_onto_the_signature_of_another() -> None:
    first, second = make(TWO, body=BODY), make(TWO, body=BODY, id="order-2@buyer.example")
    start = second.envelope.index(b"<wsse:Security ")
    stop = second.envelope.index(b"</wsse:Security>")
    own = first.envelope[
        first.envelope.index(b"<wsse:Security ") : first.envelope.index(b"</wsse:Security>")
    ]
    grafted = replace(second, envelope=second.envelope[:start] + own + second.envelope[stop:])
    assert_refused(look(grafted), "EBMS:0101")


def test_a_reference_to_an_extra_part_does_not_list_it(message: Package) -> None:
    """A trusted signer who signs a part and forgets to list it gets it refused all the same."""
    extra = Part("extra@buyer.example", "text/plain", FORGED_CONTENT)
    signed = resigned(
        message, [*refs(message), attachment_ref("cid:extra@buyer.example", FORGED_CONTENT)]
    )
    found = look(signed.with_parts(*message.parts, extra))
    assert found["signature"]["valid"] is True
    assert_refused(found, "EBMS:0007")
