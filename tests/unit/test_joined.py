"""A whole group is its source message again, processed as if it had come whole."""

import base64
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from postroad.agreement.loading import load_pmodes
from postroad.agreement.matching import PModes
from postroad.msh.capture import Capture, Incoming
from postroad.msh.expectation import Expectation
from postroad.msh.fragment_group import Group, Terms
from postroad.msh.inspection import Look
from postroad.msh.joined import (
    arrival_of,
    capture_joined,
    header_mismatch,
    joined_content_type,
    joined_pieces,
)
from postroad.msh.joining import Decision
from postroad.msh.lens import Inspection, Lens
from postroad.wire.content import BytesContent, BytesSink, Content, Joined, Slice, read_all
from postroad.wire.ebms3 import MessageInfo, Messaging, PartInfo, Property
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import COMPRESSION_ALGORITHMS, group_id_of
from postroad.wire.limits import KIB, MIB, Limits
from postroad.wire.mime import OutgoingPart, parse_content_type, write_multipart
from postroad.wire.soap import HeaderBlock, SoapVersion
from postroad.wire.xml import parse
from tests.changing import replace
from tests.unit.splits import (
    MADE,
    MESSAGE,
    ROUTING,
    Cut,
    Receiver,
    Source,
    captured,
    cut,
    source,
)

BOTH = list(SoapVersion)
PHOTO = b"TIFF" * 100


def looked(capture: Capture) -> Inspection:
    look = Look(capture, Lens(MADE))
    assert look.read()
    look.judge(None)
    return look.found


def joined(given: Cut, **terms: object) -> tuple[Group, Content]:
    """All fragments over the wire, through the look of a receiver, into their group."""
    receiver = Receiver(Terms(timedelta(hours=1), routing_properties=ROUTING, **terms))
    for piece in reversed(given.fragments()):
        found = looked(captured(given.form(piece)))
        assert found.holds, found.problems
        assert found.kind == "fragment"
        came = arrival_of(found)
        assert came is not None
        verdict = receiver.take(came, found.attachments[piece.data_id].content)
        assert verdict.decision is Decision.STORE, verdict.errors
    return verdict.group, receiver.data(verdict.group)


@pytest.mark.req("P2-4.3.2-15", "P2-4.2.3-01")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("mtom", [False, True])
def test_the_joined_message_is_as_if_it_had_come_whole(version: SoapVersion, mtom: bool) -> None:
    given = source(PHOTO, version=version, mtom=mtom)
    group, data = joined(cut(given, 300))
    capture = capture_joined(group, data, new_sink=BytesSink)
    whole = captured(given.form)
    assert capture.problems == whole.problems == ()
    assert capture.envelope == whole.envelope
    assert capture.root_type == whole.root_type
    assert [one.headers for one in capture.attachments] == [
        one.headers for one in whole.attachments
    ]
    assert [one.sha256 for one in capture.attachments] == [one.sha256 for one in whole.attachments]
    found = looked(capture)
    assert found.messaging == looked(whole).messaging
    assert header_mismatch(group, found.messaging, version.number) is None


@pytest.mark.req("P2-4.2.3-01")
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("mtom", [False, True])
def test_the_mime_header_is_made_from_the_group(version: SoapVersion, mtom: bool) -> None:
    given = source(version=version, mtom=mtom)
    group, _ = joined(cut(given))
    kind = parse_content_type(joined_content_type(group))
    params = dict(parse_content_type(given.form.content_type).params)
    if version is SoapVersion.SOAP_12:
        params["action"] = "leasing"
    assert kind.media_type == "multipart/related"
    assert dict(kind.params) == params


@pytest.mark.req("P2-4.2.4-01", "P2-4.2.4-02", "P2-4.3.2-13")
@pytest.mark.parametrize("algorithm", COMPRESSION_ALGORITHMS)
@pytest.mark.parametrize("streamed", [False, True])
def test_what_was_compressed_is_decompressed_after_joining(algorithm: str, streamed: bool) -> None:
    given = source(PHOTO)
    group, data = joined(cut(given, 200, algorithm=algorithm, streamed=streamed))
    assert b"".join(joined_pieces(group, data)) == given.bytes
    (photo,) = capture_joined(group, data, new_sink=BytesSink).attachments
    assert read_all(photo.content, MIB) == PHOTO


def group_of(given: Source, **more: object) -> tuple[Group, Content]:
    return joined(cut(given, MIB, **more))


@pytest.mark.req("P2-4.6-17")
@pytest.mark.parametrize("algorithm", ["gzip", "deflate", "compress"])
def test_damaged_data_is_an_error_of_decompression(algorithm: str) -> None:
    group, data = group_of(source(PHOTO), algorithm=algorithm)
    octets = read_all(data, MIB)
    for broken in (octets[:-9], b"\0" + octets, b"<order/>"):
        with pytest.raises(EbmsError) as caught:
            capture_joined(group, BytesContent(broken), new_sink=BytesSink)
        assert caught.value.code == "EBMS:0055"
        assert caught.value.ref == "fragment-1@buyer.example"


@pytest.mark.req("P2-4.6-17")
@pytest.mark.parametrize("algorithm", ["gzip", "deflate", "compress"])
def test_a_bomb_is_an_error_of_decompression(algorithm: str) -> None:
    group, data = group_of(source(bytes(400 * KIB)), algorithm=algorithm)
    limits = Limits(decompression_ratio=20, decompression_floor=10 * KIB)
    with pytest.raises(EbmsError, match="grows to more than") as caught:
        capture_joined(group, data, new_sink=BytesSink, limits=limits)
    assert caught.value.code == "EBMS:0055"
    small = Limits(message_bytes=300 * KIB)
    with pytest.raises(EbmsError, match=f"more than {300 * KIB}"):
        capture_joined(group, data, new_sink=BytesSink, limits=small)


def test_a_size_that_does_not_fit_is_an_error_of_decompression() -> None:
    group, data = group_of(source(PHOTO), algorithm="gzip")
    with pytest.raises(EbmsError, match="MessageSize says 5") as caught:
        list(joined_pieces(replace(group, message_size=5), data))
    assert caught.value.code == "EBMS:0055"


def test_message_size_may_be_that_of_all_fragments_together() -> None:
    """The schema says so, the text otherwise."""
    group, data = group_of(source(PHOTO), algorithm="gzip")
    assert list(joined_pieces(replace(group, message_size=data.size), data))


def test_large_parts_are_read_where_the_fragments_lie() -> None:
    photo = bytes(range(256)) * (2 * KIB)
    group, data = group_of(source(photo))
    sinks: list[BytesSink] = []

    def new_sink() -> BytesSink:
        sinks.append(BytesSink())
        return sinks[-1]

    (part,) = capture_joined(group, data, new_sink=new_sink).attachments
    assert isinstance(part.content, Slice)
    assert part.content.content is data
    assert read_all(part.content, MIB) == photo
    assert sinks == []


def test_large_parts_in_a_transfer_encoding_are_written_decoded() -> None:
    photo = bytes(range(256)) * (2 * KIB)
    parts = [
        OutgoingPart("plain@x", "a/b", BytesContent(photo)),
        OutgoingPart("coded@x", "a/b", BytesContent(base64.encodebytes(photo))),
    ]
    body = b"".join(write_multipart(b"<e/>", parts, boundary="source-boundary", root_id="r@x"))
    head, _, tail = body.rpartition(b"Content-Transfer-Encoding: binary\r\nContent-ID: <coded@x>")
    body = head + b"Content-Transfer-Encoding: base64\r\nContent-ID: <coded@x>" + tail
    group, _ = group_of(source(PHOTO))
    assert group.message_header is not None
    group = replace(group, message_header=replace(group.message_header, start="r@x"))
    plain, coded = capture_joined(group, BytesContent(body), new_sink=BytesSink).attachments
    assert read_all(plain.content, MIB) == read_all(coded.content, MIB) == photo


class Endless:
    """Zeros that nobody holds in memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        return self.span(0, self.size)

    def span(self, _begin: int, size: int, /) -> Iterator[bytes]:
        for at in range(0, size, 256 * KIB):
            yield bytes(min(256 * KIB, size - at))


def test_a_large_message_is_split_and_joined_in_small_memory() -> None:
    given = source(b"")
    (part,) = given.form.parts
    form = replace(given.form, parts=(replace(part, content=Endless(96 * MIB)),))
    made = cut(replace(given, form=form), 8 * MIB)
    group, _ = joined(cut(source(PHOTO), MIB))
    tracemalloc.start()
    try:
        data = Joined([piece.data for piece in made.fragments()])
        (photo,) = capture_joined(group, data, new_sink=BytesSink).attachments
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert photo.size == 96 * MIB
    assert peak < 8 * MIB


@pytest.mark.req("P2-4.3.2-14", "P2-4.6-15")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mpc": "urn:example:other"}, "@mpc"),
        ({"from_party": MESSAGE.to_party}, "eb:From"),
        ({"to_party": MESSAGE.from_party}, "eb:To"),
        ({"properties": (Property("region", "south"),)}, "eb:MessageProperties"),
        ({"properties": ()}, "eb:MessageProperties"),
        (
            {"collaboration_info": replace(MESSAGE.collaboration_info, action="Other")},
            "eb:CollaborationInfo",
        ),
        ({"message_info": MessageInfo(MADE, "source@buyer.example")}, "eb:MessageInfo"),
        (
            {"message_info": replace(MESSAGE.message_info, timestamp=MADE + timedelta(seconds=1))},
            "eb:MessageInfo",
        ),
    ],
)
def test_a_joined_message_that_contradicts_its_fragments_is_refused(
    changes: dict[str, object], named: str
) -> None:
    group, _ = group_of(source(PHOTO))
    error = header_mismatch(group, Messaging((replace(MESSAGE, **changes),)), "1.2")
    assert error is not None
    assert error.code == "EBMS:0053"
    assert error.detail.endswith(f"in {named}")


@pytest.mark.req("P2-4.3.2-14")
def test_ids_payloads_and_other_properties_need_not_match() -> None:
    group, _ = group_of(source(PHOTO))
    info = replace(MESSAGE.message_info, message_id="any@buyer.example")
    source_message = replace(
        MESSAGE,
        message_info=info,
        part_infos=(PartInfo("cid:a@b"),),
        properties=(*MESSAGE.properties, Property("more", "1")),
    )
    assert header_mismatch(group, Messaging((source_message,)), "1.2") is None
    assert header_mismatch(group, Messaging((source_message,)), "1.1") is not None
    assert header_mismatch(group, None, "1.2") is not None


def structure(given: Cut, change: tuple[bytes, bytes]) -> list[str]:
    """What is wrong with the structure of a fragment that was tampered with."""
    form = given.form(given.fragment(2))
    body = b"".join(form.pieces())
    assert change[0] in body
    incoming = Incoming(form.content_type, new_sink=BytesSink)
    incoming.feed(body.replace(*change))
    came = arrival_of(looked(incoming.close()))
    assert came is not None
    assert {problem.code for problem in came.problems} <= {"EBMS:0047"}
    return [problem.detail for problem in came.problems]


@pytest.mark.req("P2-4.6-09")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((b'href="cid:', b'href="cid:other-'), "no part has this Content-ID"),
        ((b"application/octet-stream", b"text/xml"), "not application/octet-stream"),
        ((b"></S12:Body>", b"><x/></S12:Body>"), "Body of a fragment is not empty"),
        ((b"></S12:Body>", b">x</S12:Body>"), "Body of a fragment is not empty"),
        (
            (
                b"\r\n--boundary-2--",
                b"\r\n--boundary-2\r\nContent-ID: <more@x>\r\n\r\nmore\r\n--boundary-2--",
            ),
            "other parts",
        ),
    ],
)
def test_a_fragment_is_an_empty_envelope_and_its_data(
    change: tuple[bytes, bytes], said: str
) -> None:
    given = cut()
    assert structure(given, (b"S12:Body", b"S12:Body")) == []
    assert any(said in problem for problem in structure(given, change))


def test_a_message_without_a_fragment_is_no_arrival() -> None:
    assert arrival_of(looked(captured(source().form))) is None


def test_the_group_of_a_bad_fragment_is_known_where_it_can_be_read() -> None:
    mf = "http://docs.oasis-open.org/ebxml-msg/ns/v3.0/mf/2010/04/"
    for inner, known in (
        ("<mf:GroupId>a</mf:GroupId>", "a"),
        ("<mf:FragmentNum>0</mf:FragmentNum><mf:GroupId> a </mf:GroupId>", "a"),
        ("", None),
        ("<mf:GroupId>a</mf:GroupId><mf:GroupId>b</mf:GroupId>", None),
        ("<mf:GroupId><x/></mf:GroupId>", None),
        ("<mf:GroupId/>", None),
    ):
        text = f'<mf:MessageFragment xmlns:mf="{mf}">{inner}</mf:MessageFragment>'
        assert group_id_of(HeaderBlock(parse(text.encode()), None, True)) == known


AGREED = """\
id: large
initiator: {party: {id: buyer, type: urn:example}, role: Buyer}
responder: {party: {id: seller, type: urn:example}, role: Seller}
agreement: urn:agreement
legs:
  - business_info:
      service: {value: Leasing, type: urn:services}
      action: Offer
      mpc: urn:example:large
      properties: [{name: secret, required: true}]
      payload_profile: {payloads: [{mime_type: image/tiff, required: true}]}
    security: {x509: {sign: true, encryption: {encrypt: true}}}
"""


def agreed(capture: Capture, **lens: Any) -> list[str]:
    """What a P-Mode that signs, encrypts and wants a property says of a message."""
    pmodes = PModes(load_pmodes(AGREED, "large.yaml").pmodes)
    look = Look(capture, Lens(MADE, expectation=Expectation(pmodes), receiving=True, **lens))
    assert look.read()
    look.judge(look.terms())
    return sorted(problem.detail for problem in look.found.problems)


def test_a_fragment_is_held_to_security_and_not_to_what_only_the_whole_has() -> None:
    given = cut()
    assert agreed(captured(given.form(given.fragment(2)))) == [
        "the P-Mode asks for a signature, and the message is not signed",
        "the P-Mode asks for encryption, and the message is not encrypted",
    ]


def test_a_joined_message_is_held_to_what_only_the_whole_has_and_not_to_security() -> None:
    lacking = replace(MESSAGE, properties=MESSAGE.properties[:1])
    group, data = group_of(source(PHOTO, units=(lacking,)))
    (said,) = agreed(capture_joined(group, data, new_sink=BytesSink), joined=True)
    assert "secret" in said
    group, data = group_of(source(PHOTO))
    capture = capture_joined(group, data, new_sink=BytesSink)
    assert agreed(capture, joined=True) == []
    assert len(agreed(capture)) == 2
