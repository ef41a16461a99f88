"""AS4.NET 8.1 and 8.2: what a sending MSH does, well and badly."""

import base64
import gzip
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cryptography import x509
from typer.testing import CliRunner

from postroad.api.client import ApiError, Payload, Property, SentMessage
from postroad.cli.main import app
from tests.as4.bench import C2, Answer, Bench, Terms
from tests.as4.reading import (
    Seen,
    check_nonrepudiation,
    decrypted,
    must_be_signed,
    signed,
    signer,
    xmlsec_verifies,
)

XML: Final = b'<order xmlns="urn:example:order">' + b"<line>paper</line>" * 50 + b"</order>"
TEXT: Final = b"sealing wax, red\r\n" * 100
SECURED: Final = {
    3: "compressed",
    4: "signed",
    5: "encrypted",
    6: "compressed-signed",
    7: "compressed-encrypted",
    8: "edelivery",
    9: "signed-encrypted",
}
"""The P-Mode that shows a case."""


def payload() -> Payload:
    return Payload(XML, "application/xml", content_id="order@c2")


def check_awareness(answer: Answer, message: Seen, message_id: str) -> None:
    """The receipt for an unsigned message: a copy of its eb:UserMessage, which the schema wants in
    an element of another namespace."""
    assert answer.status == 200
    assert answer.ref == message_id
    copied = answer.seen.one("//eb:SignalMessage/eb:Receipt/*[local-name()='UserMessage']")
    for path in ("eb:MessageInfo/eb:MessageId", "eb:CollaborationInfo/eb:Action"):
        there = message.text(f"//eb:UserMessage/{path}")
        assert copied.findtext(path, None, {"eb": _EB}) == there


_EB: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"


@pytest.mark.parametrize("count", [pytest.param(1, id="8_1_1"), pytest.param(3, id="8_1_2")])
def test_as4net_8_1_1_8_1_2_payloads_are_sent_and_a_receipt_comes_back(
    bench: Bench, count: int
) -> None:
    """AS4.NET 8.1.1, 8.1.2: one payload, or several, unsecured; a receipt is the answer."""
    payloads = [Payload(b"%d" % n, "text/plain", content_id=f"{n}@c2") for n in range(count)]
    sent = bench.c2.send("plain", *payloads)
    exchange = bench.exchange(sent.message_id)
    seen = exchange.seen
    assert [one.content for one in seen.parts] == [b"%d" % n for n in range(count)]
    assert not seen.all("//wsse:Security")
    check_awareness(exchange.answer, seen, sent.message_id)
    assert sent.state == "acknowledged"
    assert bench.c2.journal(sent.message_id)[-1] == "receipt_received"


@pytest.mark.parametrize("case", SECURED, ids=lambda case: f"8_1_{case}")
def test_as4net_8_1_3_to_8_1_9_a_message_is_compressed_signed_and_encrypted_as_agreed(
    bench: Bench, case: int
) -> None:
    """AS4.NET 8.1.3 to 8.1.9: every combination of compression, signature and encryption."""
    pmode = SECURED[case]
    zips = pmode.startswith("compressed") or pmode == "edelivery"
    signs = "signed" in pmode or pmode == "edelivery"
    seals = "encrypted" in pmode or pmode == "edelivery"
    sent = bench.c2.send(pmode, payload(), Payload(TEXT, "text/plain", content_id="note@c2"))
    exchange = bench.exchange(sent.message_id)
    seen = exchange.seen
    opened = decrypted(seen, bench.c3.key) if seals else {}
    assert bool(seen.all("//xenc:EncryptedData")) == seals
    found = opened or {one.content_id: one.content for one in seen.parts}
    plain = {name: gzip.decompress(one) if zips else one for name, one in found.items()}
    assert plain == {"order@c2": XML, "note@c2": TEXT}
    assert bool(seen.all("//ds:Signature")) == signs
    if signs:
        assert signed(seen, opened).keys() >= must_be_signed(seen)
        assert signer(seen) == bench.c2.certificate
        certificate = bench.c3.certificate
        check_nonrepudiation(exchange.answer.seen, seen, sent.message_id, certificate)
    else:
        check_awareness(exchange.answer, seen, sent.message_id)
    assert sent.state == "acknowledged"
    assert bench.c3.payloads(sent.message_id) == [XML, TEXT]


def test_as4net_8_1_9_the_signer_is_named_by_issuer_and_serial_number(bench: Bench) -> None:
    """AS4.NET 8.1.9, without number: the token reference is an X509IssuerSerial."""
    sent = bench.c2.send("by-issuer-serial", payload())
    seen = bench.exchange(sent.message_id).seen
    number = seen.text(
        "//ds:Signature/ds:KeyInfo/wsse:SecurityTokenReference/ds:X509Data/ds:X509IssuerSerial"
        "/ds:X509SerialNumber"
    )
    assert int(number) == bench.c2.certificate.serial_number
    assert sent.state == "acknowledged"


def test_as4net_8_1_9_the_signer_is_named_by_its_key_identifier(bench: Bench) -> None:
    """AS4.NET 8.1.9, without number: the token reference is a subject key identifier."""
    sent = bench.c2.send("by-key-identifier", payload())
    seen = bench.exchange(sent.message_id).seen
    found = base64.b64decode(
        seen.text("//ds:Signature/ds:KeyInfo/wsse:SecurityTokenReference/wsse:KeyIdentifier")
    )
    own = bench.c2.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert found == own.value.digest
    assert sent.state == "acknowledged"


def test_as4net_8_1_10_message_properties_are_sent(bench: Bench) -> None:
    """AS4.NET 8.1.10: the application's message properties stand in the header."""
    given = [Property("Important", "Yes"), Property("OriginalSender", "unregistered:C1", "urn:t")]
    sent = bench.c2.send("edelivery", payload(), properties=given)
    expected = [(one.name, one.value, one.type) for one in given]
    assert bench.exchange(sent.message_id).seen.properties == expected


def test_as4net_8_1_11_the_applications_own_message_id_is_kept(bench: Bench) -> None:
    """AS4.NET 8.1.11: the id given by the application is sent, and the receipt refers to it."""
    sent = bench.c2.send("edelivery", payload(), message_id="my-own-id@c1.example")
    assert sent.message_id == "my-own-id@c1.example"
    exchange = bench.exchange("my-own-id@c1.example")
    assert exchange.seen.text("//eb:UserMessage/eb:MessageInfo/eb:MessageId") == sent.message_id
    assert exchange.answer.ref == sent.message_id
    assert sent.state == "acknowledged"


def test_as4net_8_1_12_a_signed_non_repudiation_receipt_is_believed_and_kept(bench: Bench) -> None:
    """AS4.NET 8.1.12: the sender checks the signed NRR, and has it byte for byte."""
    sent = bench.c2.send("signed", payload())
    exchange = bench.exchange(sent.message_id)
    check_nonrepudiation(exchange.answer.seen, exchange.seen, sent.message_id, bench.c3.certificate)
    [signal] = bench.c2.client.signals(sent.message_id)
    assert (signal.kind, signal.valid) == ("receipt", True)
    kept = bench.c2.client.signal(sent.message_id, signal.signal_id)
    assert kept == exchange.answer.body


def changed_digest(answer: Answer) -> Answer:
    """Another digest than that of the message, where the receipt repeats it."""
    octets = answer.body
    value = Seen(octets).texts("//ebbp:MessagePartNRInformation/ds:Reference/ds:DigestValue")[0]
    return Answer(
        answer.status, answer.content_type, octets.replace(value.encode(), b"A" * 43 + b"=")
    )


def without_signature(answer: Answer) -> Answer:
    start, end = (answer.body.index(mark) for mark in (b"<wsse:Security", b"</wsse:Security>"))
    octets = answer.body[:start] + answer.body[end + len(b"</wsse:Security>") :]
    return Answer(answer.status, answer.content_type, octets)


@pytest.mark.parametrize("forge", [changed_digest, without_signature])
def test_as4net_8_1_12_a_forged_receipt_is_not_believed(
    bench: Bench, forge: Callable[[Answer], Answer]
) -> None:
    """AS4.NET 8.1.12, turned around: what proves nothing does not acknowledge the message."""
    message_id = f"{forge.__name__}@c2"
    bench.relay.intercept(message_id, answer=forge)
    sent = bench.c2.send("signed", payload(), message_id=message_id)
    assert sent.state == "in_doubt"
    journal = bench.c2.journal(message_id)
    assert "receipt_received" not in journal
    assert "error_raised" in journal
    [signal] = bench.c2.client.signals(message_id)
    assert not signal.valid


@pytest.mark.parametrize("pmode", ["wrongly-signed", "wrongly-signed-called-back"])
def test_as4net_8_1_13_a_wrongly_signed_message_is_refused_and_the_producer_told(
    bench: Bench, pmode: str
) -> None:
    """AS4.NET 8.1.13: the receiver's error about the signature reaches the producer.

    It is the response even where errors are to be called back: who proved nothing is not called.
    """
    sent = bench.c2.send(pmode, payload())
    assert bench.exchange(sent.message_id).answer.codes == ["EBMS:0101"]
    check_failed(bench, sent, "EBMS:0101")


def test_as4net_8_1_13_an_error_that_is_called_back_is_told_to_the_producer(bench: Bench) -> None:
    """AS4.NET 8.1.13, the way back: the error comes later, as a request of the receiver's."""
    sent = bench.c2.send("refused-called-back", payload())
    exchange = bench.exchange(sent.message_id)
    assert (exchange.answer.status, exchange.answer.body) == (202, b"")
    check_failed(bench, sent, "EBMS:0010")
    [signal] = bench.c2.client.signals(sent.message_id)
    assert (signal.kind, signal.valid) == ("error", True)
    error = Seen(bench.c2.client.signal(sent.message_id, signal.signal_id))
    assert error.text("//eb:SignalMessage/eb:MessageInfo/eb:RefToMessageId") == sent.message_id
    assert xmlsec_verifies(error, bench.c3.certificate)


def check_failed(bench: Bench, sent: SentMessage, code: str) -> None:
    """The message has failed with this code, and everybody knows."""
    assert (sent.state, sent.message.error_code) == ("failed", code)
    assert bench.c2.journal(sent.message_id)[-2:] == ["error_received", "delivery_failed"]
    told = bench.c2.application.told(sent.message_id)
    assert (told["event"], told["error_code"]) == ("failed", code)
    assert bench.c3.delivered(sent.message_id) is None


def refused(bench: Bench, pmode: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        bench.c2.client.send(pmode=pmode, payloads=[payload()], message_id=f"{pmode}@refused")
    assert bench.c2.journal(f"{pmode}@refused") == []
    assert bench.relay.about(f"{pmode}@refused") == []
    return caught.value


def test_as4net_8_2_2_an_unknown_pmode_is_refused_at_submission(bench: Bench) -> None:
    """AS4.NET 8.2.2: nothing is sent by a P-Mode that does not exist."""
    error = refused(bench, "no-such-pmode")
    assert (error.status, error.code) == (422, "EBMS:0010")
    assert "no-such-pmode" in error.detail


def write_pmode(bench: Bench, name: str, pmode: dict[str, Any]) -> Path:
    path = bench.c2.folder / "pmodes" / f"{name}.yaml"
    path.write_text(yaml.safe_dump(pmode))
    return path


def with_(bench: Bench, terms: Terms) -> dict[str, Any]:
    return terms.pmode(C2, bench.relay.url, bench.c2.url)


def test_as4net_8_2_3_an_invalid_pmode_is_refused(bench: Bench) -> None:
    """AS4.NET 8.2.3: an invalid P-Mode is told with its line, never used, and harms no other."""
    path = write_pmode(bench, "invalid", {**with_(bench, Terms("invalid")), "mep_binding": "sync"})
    try:
        checked = CliRunner().invoke(app, ["pmode", "check", str(path)])
        assert checked.exit_code != 0
        assert "PMode.MEPbinding" in checked.output
        for _ in range(2):
            with pytest.raises(ApiError, match=r"PMode\.MEPbinding"):
                bench.c2.client.reload()
        assert "invalid" not in {one.id for one in bench.c2.client.pmodes()}
        assert refused(bench, "invalid").status == 422
        assert bench.c2.send("plain", payload()).state == "acknowledged"
    finally:
        path.unlink()
        bench.c2.client.reload()


def test_as4net_8_2_4_a_payload_file_that_is_missing_is_told(bench: Bench, tmp_path: Path) -> None:
    """AS4.NET 8.2.4: without its payload a message is not submitted."""
    before = len(list(bench.c2.client.messages(side="sending")))
    missing = tmp_path / "missing.xml"
    token = (bench.c2.folder / "keys" / "api.token").read_text().strip()
    said = CliRunner(env={"POSTROAD_TOKEN": token}).invoke(
        app, ["send", "--url", _api(bench), "--pmode", "plain", "--payload", str(missing)]
    )
    assert said.exit_code != 0
    assert "missing.xml" in said.output
    assert len(list(bench.c2.client.messages(side="sending"))) == before


def _api(bench: Bench) -> str:
    assert bench.c2.running is not None
    return bench.c2.running.serving.api_url or ""


def test_as4net_8_2_5_without_the_key_to_sign_with_nothing_is_sent(bench: Bench) -> None:
    """AS4.NET 8.2.5: the P-Mode names a key that is not there."""
    file = write_pmode(bench, "keyless", with_(bench, Terms("keyless", key="gone")))
    try:
        with pytest.raises(ApiError, match=r"gone\.p12"):
            bench.c2.client.reload()
        assert refused(bench, "keyless").status == 422
    finally:
        file.unlink()
        bench.c2.client.reload()


def test_as4net_8_2_6_without_the_certificate_to_encrypt_for_nothing_is_sent(bench: Bench) -> None:
    """AS4.NET 8.2.6: the P-Mode encrypts, and says for nobody."""
    pmode = with_(bench, Terms("certless", encrypt=True))
    del pmode["legs"][0]["security"]["x509"]["encryption"]["certificate"]
    file = write_pmode(bench, "certless", pmode)
    try:
        bench.c2.client.reload()
        error = refused(bench, "certless")
        assert error.status == 422
        assert "Encryption.Certificate" in error.detail
    finally:
        file.unlink()
        bench.c2.client.reload()


def test_as4net_8_2_7_a_dead_address_fails_the_message_and_the_producer_is_told(
    bench: Bench,
) -> None:
    """AS4.NET 8.2.7: nobody listens there; the message fails, and that is certain."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/msh"
        file = write_pmode(bench, "dead", with_(bench, Terms("dead", address=address)))
        try:
            bench.c2.client.reload()
            sent = bench.c2.send("dead", payload())
        finally:
            file.unlink()
            bench.c2.client.reload()
    assert (sent.state, sent.message.error_code) == ("failed", "EBMS:0005")
    assert bench.c2.journal(sent.message_id) == ["submitted", "send_failed", "delivery_failed"]
    told = bench.c2.application.told(sent.message_id)
    assert (told["event"], told["error_code"]) == ("failed", "EBMS:0005")


def test_as4net_8_2_8_a_receiver_without_the_pmode_answers_an_error_that_is_told(
    bench: Bench,
) -> None:
    """AS4.NET 8.2.8: the receiver knows no such P-Mode; its error reaches the producer."""
    sent = bench.c2.send("unknown-to-c3", payload())
    assert bench.exchange(sent.message_id).answer.codes == ["EBMS:0010"]
    assert (sent.state, sent.message.error_code) == ("failed", "EBMS:0010")
    told = bench.c2.application.told(sent.message_id)
    assert (told["event"], told["error_code"]) == ("failed", "EBMS:0010")
