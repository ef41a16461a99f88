"""eDelivery Common Profile, AS4_CP_TA23 to TA38: compression, alone and with security."""

import gzip
from typing import Final

import pytest

from postroad.api.client import Payload, Property
from tests.as4.bench import Answer, Bench
from tests.as4.foreign import Identity, Letter, Named, Part, compressed
from tests.as4.reading import check_nonrepudiation, decrypted, read, signed
from tests.changing import replace

XML: Final = b'<order xmlns="urn:example:order">' + b"<line>paper</line>" * 50 + b"</order>"
TEXT: Final = b"sealing wax, red\n" * 100
GZIP: Final = "application/gzip"


def assert_refused(bench: Bench, answer: Answer, message_id: str, *codes: str) -> None:
    """The sender is told on the response, and nothing is delivered."""
    assert answer.status == 200
    assert set(answer.codes) & set(codes), answer.seen.errors
    assert not answer.seen.all("//eb:Receipt")
    assert {one["refToMessageInError"] for one in answer.seen.errors} == {message_id}
    assert bench.c3.delivered(message_id) is None
    journal = bench.c3.journal(message_id)
    assert "rejected" in journal
    assert not {"delivered", "receipt_sent"} & set(journal)


def assert_accepted(bench: Bench, letter: Letter, *payloads: bytes) -> None:
    """The sender gets its proof, and the consumer the payloads as they were before all."""
    wire = letter.wire()
    answer = bench.deliver(wire)
    assert answer.status == 200
    assert not answer.codes
    if letter.signed_by is not None:
        seen = read(*wire)
        check_nonrepudiation(answer.seen, seen, letter.message_id, bench.c3.certificate)
    assert answer.ref == letter.message_id
    assert bench.c3.payloads(letter.message_id) == list(payloads)


def test_as4_cp_ta23_a_payload_is_compressed_with_gzip(bench: Bench) -> None:
    """AS4_CP_TA23: the sending MSH compresses the payload in GZIP format (RFC 1952)."""
    sent = bench.c2.send("compressed-signed", Payload(XML, "application/xml"))
    [part] = bench.exchange(sent.message_id).seen.parts
    assert part.media_type == GZIP
    assert part.content.startswith(b"\x1f\x8b\x08")
    assert len(part.content) < len(XML)
    assert gzip.decompress(part.content) == XML


def test_as4_cp_ta24_the_header_says_that_a_part_is_compressed(bench: Bench) -> None:
    """AS4_CP_TA24: a compressed part has the property CompressionType=application/gzip."""
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml", content_id="a@c2"))
    seen = bench.exchange(sent.message_id).seen
    assert seen.part_properties("a@c2")["CompressionType"] == GZIP


@pytest.mark.parametrize("kind", ["application/xml", "text/plain", "application/pdf"])
def test_as4_cp_ta25_the_header_keeps_the_type_before_compression(bench: Bench, kind: str) -> None:
    """AS4_CP_TA25: the property MimeType tells the type of the payload before compression."""
    sent = bench.c2.send("edelivery", Payload(XML, kind, content_id="a@c2"))
    seen = bench.exchange(sent.message_id).seen
    assert seen.part_properties("a@c2")["MimeType"] == kind
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert received.parts[0].media_type == kind


def test_as4_cp_ta26_a_compressed_part_without_its_type_is_refused(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA26: a compressed part without the property MimeType gets an ebMS error."""
    good = compressed("order@stranger", XML)
    part = replace(good, properties=(("CompressionType", GZIP, None),))
    letter = Letter("ta26@stranger", "compressed-signed", (part,), signed_by=partner)
    assert_refused(bench, bench.post(letter), "ta26@stranger", "EBMS:0303")


@pytest.mark.parametrize(
    ("case", "charset"),
    [
        pytest.param("ta27", "UTF-16", id="ta27-utf16"),
        pytest.param("ta28", "UTF-8", id="ta28-utf8"),
    ],
)
def test_as4_cp_ta27_ta28_the_character_set_is_kept(
    bench: Bench, partner: Identity, case: str, charset: str
) -> None:
    """AS4_CP_TA27, TA28: a part with CharacterSet UTF-16, or UTF-8, is sent and delivered so."""
    octets = f'<?xml version="1.0" encoding="{charset}"?><a>ä</a>'.encode(charset)
    payload = Payload(
        octets, "application/xml", content_id="a@c2", properties={"CharacterSet": charset}
    )
    sent = bench.c2.send("edelivery", payload)
    seen = bench.exchange(sent.message_id).seen
    assert seen.part_properties("a@c2")["CharacterSet"] == charset
    assert bench.c3.payloads(sent.message_id) == [octets]
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert Property("CharacterSet", charset) in received.parts[0].properties

    good = compressed("order@stranger", octets)
    part = replace(good, properties=(*good.properties, ("CharacterSet", charset, None)))
    letter = Letter(f"{case}@stranger", "compressed-signed", (part,), signed_by=partner)
    assert_accepted(bench, letter, octets)


@pytest.mark.parametrize("charset", ["!utf*8", "no such set"])
def test_as4_cp_ta29_a_bad_character_set_is_refused(
    bench: Bench, partner: Identity, charset: str
) -> None:
    """AS4_CP_TA29: a CharacterSet that XML 1.0, 4.3.3 does not know gets an ebMS error."""
    good = compressed("order@stranger", XML)
    told: tuple[Named, ...] = (*good.properties, ("CharacterSet", charset, None))
    message_id = f"ta29-{len(charset)}@stranger"
    part = replace(good, properties=told)
    letter = Letter(message_id, "compressed-signed", (part,), signed_by=partner)
    assert_refused(bench, bench.post(letter), message_id, "EBMS:0003", "EBMS:0303")


def damaged(bench: Bench, partner: Identity, message_id: str) -> Answer:
    """Send a payload whose GZIP is broken, signed as it is."""
    good = compressed("order@stranger", XML)
    octets = bytearray(good.content)
    octets[len(octets) // 2] ^= 0xFF
    part = replace(good, content=bytes(octets))
    return bench.post(Letter(message_id, "compressed-signed", (part,), signed_by=partner))


def test_as4_cp_ta30_damaged_gzip_is_a_decompression_failure(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA30: GZIP that cannot be opened gets EBMS:0303, failure, Communication."""
    answer = damaged(bench, partner, "ta30@stranger")
    assert_refused(bench, answer, "ta30@stranger", "EBMS:0303")
    [error] = answer.seen.errors
    assert error["shortDescription"] == "DecompressionFailure"
    assert error["severity"] == "failure"
    assert error["category"] == "Communication"


def test_as4_cp_ta31_the_consumer_is_told_of_a_decompression_failure(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA31: the receiving application is notified of the failure, and the journal tells."""
    damaged(bench, partner, "ta31@stranger")
    told = bench.c3.application.told("ta31@stranger")
    assert (told["event"], told["state"], told["error_code"]) == ("failed", "rejected", "EBMS:0303")
    codes = {one.event: one.error_code for one in bench.c3.events("ta31@stranger")}
    assert codes["error_raised"] == "EBMS:0303"
    assert "rejected" in codes


def test_as4_cp_ta32_a_compressed_part_is_delivered_decompressed(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA32: the consumer gets the payload as it was before compression, with its type."""
    letter = Letter(
        "ta32@stranger", "compressed-signed", (compressed("a@stranger", XML),), signed_by=partner
    )
    assert_accepted(bench, letter, XML)
    received = bench.c3.delivered("ta32@stranger")
    assert received is not None
    [part] = received.parts
    assert (part.media_type, part.size) == ("application/xml", len(XML))


def test_as4_cp_ta33_several_compressed_parts_are_delivered_decompressed(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA33: the same for several parts, XML and other."""
    parts = (
        compressed("a@stranger", XML),
        compressed("b@stranger", TEXT, "text/plain"),
        compressed("c@stranger", bytes(range(256)), "application/octet-stream"),
    )
    letter = Letter("ta33@stranger", "compressed-signed", parts, signed_by=partner)
    assert_accepted(bench, letter, XML, TEXT, bytes(range(256)))


def test_as4_cp_ta34_compressed_then_signed_is_accepted(bench: Bench, partner: Identity) -> None:
    """AS4_CP_TA34: the signature is over the compressed octets; both ways it holds."""
    letter = Letter(
        "ta34@stranger", "compressed-signed", (compressed("a@stranger", XML),), signed_by=partner
    )
    assert_accepted(bench, letter, XML)
    sent = bench.c2.send("compressed-signed", Payload(XML, "application/xml", content_id="a@c2"))
    seen = bench.exchange(sent.message_id).seen
    assert "cid:a@c2" in signed(seen)
    assert gzip.decompress(seen.part("a@c2").content) == XML
    assert sent.state == "acknowledged"


def test_as4_cp_ta35_signed_then_compressed_is_refused(bench: Bench, partner: Identity) -> None:
    """AS4_CP_TA35: a signature over the payload before compression gets an ebMS error."""
    told = compressed("", b"").properties
    part = Part("a@stranger", XML, GZIP, told, after=gzip.compress)
    letter = Letter("ta35@stranger", "compressed-signed", (part,), signed_by=partner)
    assert_refused(bench, bench.post(letter), "ta35@stranger", "EBMS:0101")


def test_as4_cp_ta36_compressed_then_encrypted_is_accepted(bench: Bench) -> None:
    """AS4_CP_TA36: what is encrypted are the compressed octets; both ways it opens."""
    letter = Letter(
        "ta36@stranger",
        "compressed-encrypted",
        (compressed("a@stranger", XML),),
        sealed_for=bench.c3.certificate,
    )
    assert_accepted(bench, letter, XML)
    sent = bench.c2.send("compressed-encrypted", Payload(XML, "application/xml", content_id="a@c2"))
    opened = decrypted(bench.exchange(sent.message_id).seen, bench.c3.key)
    assert gzip.decompress(opened["a@c2"]) == XML
    assert sent.state == "acknowledged"


def test_as4_cp_ta37_encrypted_then_compressed_is_refused(bench: Bench) -> None:
    """AS4_CP_TA37: an encrypted part that was compressed afterwards gets an ebMS error."""
    told = compressed("", b"").properties
    part = Part("a@stranger", XML, GZIP, told, after=gzip.compress)
    letter = Letter(
        "ta37@stranger", "compressed-encrypted", (part,), sealed_for=bench.c3.certificate
    )
    assert_refused(bench, bench.post(letter), "ta37@stranger", "EBMS:0102")


def test_as4_cp_ta38_compressed_signed_and_encrypted_is_accepted(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA38: compressed, then signed, then encrypted; both ways."""
    letter = Letter(
        "ta38@stranger",
        "edelivery",
        (compressed("a@stranger", XML), compressed("b@stranger", TEXT, "text/plain")),
        signed_by=partner,
        sealed_for=bench.c3.certificate,
    )
    assert_accepted(bench, letter, XML, TEXT)
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml", content_id="a@c2"))
    seen = bench.exchange(sent.message_id).seen
    opened = decrypted(seen, bench.c3.key)
    assert "cid:a@c2" in signed(seen, opened)
    assert gzip.decompress(opened["a@c2"]) == XML
    assert sent.state == "acknowledged"
