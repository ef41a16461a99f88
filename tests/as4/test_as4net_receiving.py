"""AS4.NET 8.3 and 8.4: what a receiving MSH does with a stranger's messages, good and bad."""

import gzip
import re
from collections.abc import Callable
from typing import Final

import pytest

from postroad.api.client import Payload
from tests.as4.bench import Answer, Bench
from tests.as4.foreign import Identity, Letter, Part, compressed
from tests.as4.reading import EB3, Seen, check_nonrepudiation, read
from tests.changing import replace

XML: Final = b'<order xmlns="urn:example:order">' + b"<line>paper</line>" * 50 + b"</order>"
TEXT: Final = b"sealing wax, red\r\n" * 100
Harm = Callable[[tuple[str, bytes]], tuple[str, bytes]]
MATRIX: Final = {
    1: "plain",
    2: "plain",
    3: "compressed",
    4: "signed",
    5: "encrypted",
    6: "compressed-signed",
    7: "compressed-encrypted",
    8: "edelivery",
    9: "signed-encrypted",
}
"""The P-Mode that shows a case."""


def letter_by(
    bench: Bench, partner: Identity, pmode: str, message_id: str, *payloads: bytes
) -> Letter:
    """A message that is compressed, signed and encrypted as its P-Mode says."""
    zips = pmode.startswith("compressed") or pmode == "edelivery"
    signs = "signed" in pmode or pmode == "edelivery"
    seals = "encrypted" in pmode or pmode == "edelivery"
    kinds = ("application/xml", "text/plain")
    parts = tuple(
        compressed(f"{kind}@stranger", content, kind)
        if zips
        else Part(f"{kind}@stranger", content, kind)
        for kind, content in zip(kinds, payloads, strict=False)
    )
    return Letter(
        message_id,
        pmode,
        parts,
        signed_by=partner if signs else None,
        sealed_for=bench.c3.certificate if seals else None,
    )


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"8_3_{case}")
def test_as4net_8_3_1_to_8_3_9_a_strangers_message_is_delivered(
    bench: Bench, partner: Identity, case: int
) -> None:
    """AS4.NET 8.3.1 to 8.3.9: one payload or several, in every combination of security."""
    payloads = (XML,) if case == 1 else (XML, TEXT)
    message_id = f"8.3.{case}@stranger"
    answer = bench.post(letter_by(bench, partner, MATRIX[case], message_id, *payloads))
    assert answer.status == 200
    assert not answer.codes
    assert answer.ref == message_id
    assert bench.c3.payloads(message_id) == list(payloads)
    received = bench.c3.delivered(message_id)
    assert received is not None
    kinds = ["application/xml", "text/plain"][: len(payloads)]
    assert [one.media_type for one in received.parts] == kinds
    assert bench.c3.journal(message_id) == ["received", "delivered", "receipt_sent"]


def test_as4net_8_3_1_the_consumer_is_told_of_the_message(bench: Bench, partner: Identity) -> None:
    """AS4.NET 8.3.1: the application hears that there is a message, and what is in it."""
    bench.post(letter_by(bench, partner, "edelivery", "8.3.1-told@stranger", XML, TEXT))
    told = bench.c3.application.told("8.3.1-told@stranger")
    assert (told["event"], told["state"]) == ("received", "delivered")
    assert [one["size"] for one in told["parts"]] == [len(XML), len(TEXT)]


def test_as4net_8_3_10_the_receipt_is_the_response(bench: Bench, partner: Identity) -> None:
    """AS4.NET 8.3.10: the receipt for an unsigned message comes back at once."""
    answer = bench.post(letter_by(bench, partner, "plain", "8.3.10@stranger", XML))
    assert answer.status == 200
    copied = answer.seen.one("//eb:SignalMessage/eb:Receipt/*[local-name()='UserMessage']")
    assert copied.findtext(f"{{{EB3}}}MessageInfo/{{{EB3}}}MessageId") == "8.3.10@stranger"
    assert copied.findtext(f"{{{EB3}}}CollaborationInfo/{{{EB3}}}Action") == "plain"


@pytest.mark.parametrize("pmode", ["signed", "edelivery"])
def test_as4net_8_3_11_8_3_13_the_receipt_has_the_digests_and_is_signed(
    bench: Bench, partner: Identity, pmode: str
) -> None:
    """AS4.NET 8.3.11, 8.3.13: non-repudiation information for all that was signed, signed."""
    message_id = f"8.3.13-{pmode}@stranger"
    wire = letter_by(bench, partner, pmode, message_id, XML, TEXT).wire()
    answer = bench.deliver(wire)
    check_nonrepudiation(answer.seen, read(*wire), message_id, bench.c3.certificate)


def test_as4net_8_3_12_the_receipt_is_called_back(bench: Bench) -> None:
    """AS4.NET 8.3.12: the response is empty, and the receipt comes as a request of its own."""
    sent = bench.c2.send("receipt-called-back", Payload(XML, "application/xml"))
    exchange = bench.exchange(sent.message_id)
    assert (exchange.answer.status, exchange.answer.body) == (202, b"")
    assert sent.state == "acknowledged"
    [signal] = bench.c2.client.signals(sent.message_id)
    receipt = Seen(bench.c2.client.signal(sent.message_id, signal.signal_id))
    check_nonrepudiation(receipt, exchange.seen, sent.message_id, bench.c3.certificate)
    assert bench.c3.payloads(sent.message_id) == [XML]
    assert bench.c3.journal(sent.message_id)[:2] == ["received", "delivered"]


def test_as4net_8_3_14_a_test_message_is_answered_and_not_delivered(
    bench: Bench, partner: Identity
) -> None:
    """AS4.NET 8.3.14: the test service of Core answers, and delivers nothing."""
    letter = letter_by(bench, partner, "edelivery", "8.3.14@stranger", XML).but(
        service=f"{EB3}service", action=f"{EB3}test"
    )
    wire = letter.wire()
    answer = bench.deliver(wire)
    check_nonrepudiation(answer.seen, read(*wire), "8.3.14@stranger", bench.c3.certificate)
    assert bench.c3.delivered("8.3.14@stranger") is None
    assert "delivered" not in bench.c3.journal("8.3.14@stranger")
    assert bench.c3.application.about("8.3.14@stranger") == []


def test_as4net_8_3_15_a_duplicate_is_answered_and_not_delivered(
    bench: Bench, partner: Identity
) -> None:
    """AS4.NET 8.3.15: the same message three times: one delivery, and each time its receipt."""
    wire = letter_by(bench, partner, "signed", "8.3.15@stranger", XML).wire()
    answers = [bench.deliver(wire) for _ in range(3)]
    assert len(set(answers)) == 1
    assert answers[0].seen.all("//ebbp:NonRepudiationInformation")
    journal = bench.c3.journal("8.3.15@stranger")
    assert (journal.count("delivered"), journal.count("duplicate")) == (1, 2)


def assert_refused(bench: Bench, answer: Answer, message_id: str, code: str, *more: str) -> None:
    """The sender is told on the response, the journal tells, and nothing is delivered."""
    assert answer.status == 200
    assert answer.codes == [code, *more], answer.seen.errors
    assert answer.ref == message_id
    assert not answer.seen.all("//eb:Receipt")
    assert bench.c3.delivered(message_id) is None
    events = bench.c3.events(message_id)
    assert [one.error_code for one in events if one.event == "error_raised"] == [code, *more]
    names = {one.event for one in events}
    assert "rejected" in names
    assert not {"delivered", "receipt_sent"} & names


def test_as4net_8_4_1_without_a_pmode_a_message_is_refused(bench: Bench, partner: Identity) -> None:
    """AS4.NET 8.4.1: no P-Mode fits; EBMS:0010, and nobody learns which ones there are."""
    letter = letter_by(bench, partner, "signed", "8.4.1@stranger", XML).but(action="no-such-action")
    answer = bench.post(letter)
    assert_refused(bench, answer, "8.4.1@stranger", "EBMS:0010")
    assert "edelivery" not in answer.body.decode()


def test_as4net_8_4_2_an_external_payload_is_refused(bench: Bench, partner: Identity) -> None:
    """AS4.NET 8.4.2: a payload outside the message is never fetched; EBMS:0011."""
    linked = Part("", b"", href="https://www.example.com/payload.xml")
    answer = bench.post(Letter("8.4.2@stranger", "signed", (linked,), signed_by=partner))
    assert_refused(bench, answer, "8.4.2@stranger", "EBMS:0011")


def test_as4net_8_4_3_a_compressed_part_without_its_type_is_refused(
    bench: Bench, partner: Identity
) -> None:
    """AS4.NET 8.4.3: CompressionType without MimeType; EBMS:0303, and against the P-Mode too."""
    good = compressed("order@stranger", XML)
    part = replace(good, properties=good.properties[1:])
    answer = bench.post(Letter("8.4.3@stranger", "compressed-signed", (part,), signed_by=partner))
    assert_refused(bench, answer, "8.4.3@stranger", "EBMS:0303", "EBMS:0010")


@pytest.mark.parametrize("pmode", ["compressed", "edelivery"])
@pytest.mark.parametrize("harm", ["never compressed", "cut short"])
def test_as4net_8_4_4_bad_gzip_is_refused(
    bench: Bench, partner: Identity, pmode: str, harm: str
) -> None:
    """AS4.NET 8.4.4: what cannot be decompressed; EBMS:0303, also when signed and encrypted."""
    message_id = f"8.4.4-{pmode}-{harm.replace(' ', '-')}@stranger"
    good = letter_by(bench, partner, pmode, message_id, XML)
    bad = XML if harm == "never compressed" else gzip.compress(XML)[:-20]
    answer = bench.post(good.but(parts=(replace(good.parts[0], content=bad),)))
    assert_refused(bench, answer, message_id, "EBMS:0303")


def other_payload(wire: tuple[str, bytes]) -> tuple[str, bytes]:
    return wire[0], wire[1].replace(b"<line>paper</line>", b"<line>money</line>", 1)


def other_header(wire: tuple[str, bytes]) -> tuple[str, bytes]:
    return wire[0], wire[1].replace(b">1</eb:ConversationId>", b">2</eb:ConversationId>")


def other_value(wire: tuple[str, bytes]) -> tuple[str, bytes]:
    start = b"<ds:SignatureValue>"
    at = wire[1].index(start) + len(start)
    other = b"B" if wire[1][at : at + 1] == b"A" else b"A"
    return wire[0], wire[1][:at] + other + wire[1][at + 1 :]


@pytest.mark.parametrize("harm", [other_payload, other_header, other_value])
def test_as4net_8_4_5_a_bad_signature_is_refused(
    bench: Bench, partner: Identity, harm: Harm
) -> None:
    """AS4.NET 8.4.5: payload, header or signature are not what was signed; EBMS:0101."""
    message_id = f"8.4.5-{harm.__name__}@stranger"
    wire = letter_by(bench, partner, "signed", message_id, XML).wire()
    broken = harm(wire)
    assert broken != wire
    assert_refused(bench, bench.deliver(broken), message_id, "EBMS:0101")


def test_as4net_8_4_5_an_unsigned_message_is_refused_where_a_signature_is_agreed(
    bench: Bench, partner: Identity
) -> None:
    """AS4.NET 8.4.5, without any signature: EBMS:0103."""
    letter = letter_by(bench, partner, "signed", "8.4.5@stranger", XML).but(signed_by=None)
    assert_refused(bench, bench.post(letter), "8.4.5@stranger", "EBMS:0103")


def other_ciphertext(wire: tuple[str, bytes]) -> tuple[str, bytes]:
    """One bit of the last part, which is followed by the closing boundary."""
    octets = bytearray(wire[1])
    octets[octets.rindex(b"\r\n--the-boundary") - 1] ^= 1
    return wire[0], bytes(octets)


def other_key(wire: tuple[str, bytes]) -> tuple[str, bytes]:
    value = re.search(rb"<xenc:CipherValue>([^<]+)<", wire[1])
    assert value is not None
    return wire[0], wire[1].replace(value[1], value[1][::-1].lstrip(b"=") + b"==")


@pytest.mark.parametrize("harm", [other_ciphertext, other_key])
def test_as4net_8_4_6_bad_encryption_is_refused(
    bench: Bench, partner: Identity, harm: Harm
) -> None:
    """AS4.NET 8.4.6: payload or key cannot be decrypted; EBMS:0102."""
    message_id = f"8.4.6-{harm.__name__}@stranger"
    wire = letter_by(bench, partner, "encrypted", message_id, XML).wire()
    broken = harm(wire)
    assert broken != wire
    assert_refused(bench, bench.deliver(broken), message_id, "EBMS:0102")


def test_as4net_8_4_6_a_message_for_somebody_else_is_refused(
    bench: Bench, partner: Identity
) -> None:
    """AS4.NET 8.4.6: encrypted for a certificate whose key the receiver does not have."""
    letter = letter_by(bench, partner, "edelivery", "8.4.6@stranger", XML).but(
        sealed_for=partner.certificate
    )
    answer = bench.post(letter)
    assert "EBMS:0102" in answer.codes
    assert not answer.seen.all("//eb:Receipt")
    assert bench.c3.delivered("8.4.6@stranger") is None
