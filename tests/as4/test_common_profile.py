"""eDelivery Common Profile, AS4_CP_TA01 to TA22, TA44 and TA45: messages, receipts, header."""

from typing import Final, NamedTuple

import pytest

from postroad.api.client import ApiError, Payload, Property
from tests.as4.bench import NOTHING, PATIENCE, Answer, Bench, Exchange
from tests.as4.foreign import Identity, Letter, Named, Part, compressed
from tests.as4.reading import (
    EB3,
    check_nonrepudiation,
    decrypted,
    must_be_signed,
    read,
    signed,
    signer,
)

XML: Final = b'<order xmlns="urn:example:order"><id>1</id></order>'
XML_2: Final = b'<invoice xmlns="urn:example:invoice"><id>2</id></invoice>'
BINARY: Final = bytes(range(256)) * 40


def leading_xml() -> list[Payload]:
    """Several payloads, XML first."""
    return [
        Payload(XML, "application/xml", content_id="leading@c2"),
        Payload(BINARY, "application/octet-stream", content_id="binary@c2"),
        Payload(b"a note", "text/plain", content_id="note@c2"),
    ]


def test_as4_cp_ta01_one_way_push_is_answered_with_a_non_repudiation_receipt(bench: Bench) -> None:
    """AS4_CP_TA01: a pushed message is answered on the response, HTTP 2xx, by a signed NRR."""
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml"))
    exchange = bench.exchange(sent.message_id)
    assert 200 <= exchange.answer.status < 300
    check_nonrepudiation(exchange.answer.seen, exchange.seen, sent.message_id, bench.c3.certificate)
    assert sent.state == "acknowledged"
    assert bench.c2.journal(sent.message_id) == ["submitted", "sent", "receipt_received"]
    assert bench.c3.journal(sent.message_id) == ["received", "delivered", "receipt_sent"]


def test_as4_cp_ta03_from_and_to_have_one_party_id_each(bench: Bench) -> None:
    """AS4_CP_TA03: eb:From and eb:To hold exactly one PartyId."""
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml"))
    seen = bench.exchange(sent.message_id).seen
    assert seen.texts("//eb:UserMessage/eb:PartyInfo/eb:From/eb:PartyId") == ["urn:example:c2"]
    assert seen.texts("//eb:UserMessage/eb:PartyInfo/eb:To/eb:PartyId") == ["urn:example:c3"]


def test_as4_cp_ta04_an_uncompressed_payload_is_accepted_and_delivered(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA04: though the P-Mode says gzip, a payload that is not compressed is taken."""
    kept_plain = Payload(XML, "application/xml", compress=False)
    sent = bench.c2.send("edelivery", kept_plain)
    seen = bench.exchange(sent.message_id).seen
    assert not seen.all("//eb:Property[@name='CompressionType']")
    assert decrypted(seen, bench.c3.key) == {seen.content_ids[0]: XML}
    assert bench.c3.payloads(sent.message_id) == [XML]

    part = Part("order@stranger", XML, properties=(("MimeType", "application/xml", None),))
    foreign = Letter("ta04@stranger", "compressed-signed", (part,), signed_by=partner)
    answer = bench.post(foreign)
    assert answer.status == 200
    assert not answer.codes
    assert bench.c3.payloads("ta04@stranger") == [XML]


@pytest.mark.parametrize("pmode", ["plain", "signed", "edelivery"])
def test_as4_cp_ta05_xml_travels_in_a_mime_part_and_the_body_is_empty(
    bench: Bench, pmode: str
) -> None:
    """AS4_CP_TA05: an XML payload goes into a MIME part of its own; soap:Body has no content."""
    sent = bench.c2.send(pmode, Payload(XML, "application/xml", content_id="xmlpayload@c2"))
    seen = bench.exchange(sent.message_id).seen
    body = seen.one("/s:Envelope/s:Body")
    assert len(body) == 0
    assert not (body.text or "").strip()
    assert seen.hrefs == ["cid:xmlpayload@c2"]
    assert seen.content_ids == ["xmlpayload@c2"]


def test_as4_cp_ta06_the_leading_xml_is_the_first_part(bench: Bench) -> None:
    """AS4_CP_TA06: with several payloads the leading XML is the first PartInfo, all are in MIME."""
    sent = bench.c2.send("edelivery", *leading_xml())
    seen = bench.exchange(sent.message_id).seen
    assert seen.hrefs == ["cid:leading@c2", "cid:binary@c2", "cid:note@c2"]
    assert set(seen.content_ids) == {"leading@c2", "binary@c2", "note@c2"}
    assert seen.part_properties("leading@c2")["MimeType"] == "application/xml"
    assert len(seen.one("/s:Envelope/s:Body")) == 0


def test_as4_cp_ta07_a_message_with_a_leading_xml_is_delivered_with_all_its_parts(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA07: such a message is answered by an NRR, and every part is delivered."""
    parts = (
        compressed("leading@stranger", XML),
        compressed("binary@stranger", BINARY, "application/octet-stream"),
    )
    letter = Letter(
        "ta07@stranger",
        "edelivery",
        parts,
        signed_by=partner,
        sealed_for=bench.c3.certificate,
    )
    answer = bench.post(letter)
    assert answer.status == 200
    assert answer.ref == "ta07@stranger"
    assert len(answer.seen.all("//ebbp:MessagePartNRInformation/ds:Reference")) == 4
    assert bench.c3.payloads("ta07@stranger") == [XML, BINARY]


def test_as4_cp_ta08_a_payload_by_hyperlink_is_refused_on_the_response(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA08: a PartInfo that points outside the message gets a synchronous ebMS error."""
    linked = Part("", b"", href="http://example.com/payload.xml")
    answer = bench.post(Letter("ta08@stranger", "signed", (linked,), signed_by=partner))
    assert answer.status == 200
    [error] = answer.seen.errors
    assert error["errorCode"] == "EBMS:0011"
    assert error["severity"] == "failure"
    assert error["refToMessageInError"] == "ta08@stranger"
    assert answer.ref == "ta08@stranger"
    assert bench.c3.delivered("ta08@stranger") is None
    assert "delivered" not in bench.c3.journal("ta08@stranger")


def test_as4_cp_ta10_the_same_message_twice_is_delivered_once_and_has_one_receipt(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA10, without the retrying: a repeated message gets its receipt, and one delivery."""
    letter = Letter(
        "ta10@stranger",
        "edelivery",
        (compressed("order@stranger", XML),),
        signed_by=partner,
        sealed_for=bench.c3.certificate,
    )
    wire = letter.wire()
    first, second = (bench.deliver(wire) for _ in range(2))
    assert first == second
    assert first.seen.all("//ebbp:NonRepudiationInformation")
    journal = bench.c3.journal("ta10@stranger")
    assert journal.count("delivered") == 1
    assert journal[-1] == "duplicate"
    inbox = [one.message_id for one in bench.c3.client.inbox()]
    assert inbox.count("ta10@stranger") == 1


def test_as4_cp_ta10_a_lost_receipt_is_sent_again_and_the_message_delivered_once(
    bench: Bench,
) -> None:
    """AS4_CP_TA10, an operator retrying: the receipt is lost on its way, then it comes through."""
    bench.relay.intercept("ta10@c2", answer=lambda _: NOTHING)
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml"), message_id="ta10@c2")
    assert (sent.state, sent.message.error_code) == ("in_doubt", "EBMS:0301")
    bench.relay.let_pass("ta10@c2")
    bench.c2.client.resend("ta10@c2")
    assert bench.c2.client.wait("ta10@c2", PATIENCE).state == "acknowledged"
    lost, answered = bench.relay.about("ta10@c2")
    assert lost.body == answered.body
    check_nonrepudiation(answered.answer.seen, answered.seen, "ta10@c2", bench.c3.certificate)
    assert bench.c3.journal("ta10@c2").count("delivered") == 1
    assert bench.c3.payloads("ta10@c2") == [XML]


class Silence:
    """Answers that do not come: the first few, or all."""

    def __init__(self, most: int | None = None) -> None:
        self._left = most

    def __call__(self, answer: Answer) -> Answer:
        if self._left == 0:
            return answer
        if self._left is not None:
            self._left -= 1
        return NOTHING


def test_as4_cp_ta09_without_a_receipt_the_message_is_sent_again(bench: Bench) -> None:
    """AS4_CP_TA09: S retries at least once; here as often as its P-Mode says, the same bytes."""
    bench.relay.intercept("ta09@c2", answer=Silence())
    bench.c2.send("timed-out", Payload(XML, "application/xml"), message_id="ta09@c2")
    copies = bench.relay.about("ta09@c2")
    assert len(copies) == 3
    assert len({one.body for one in copies}) == 1
    assert bench.c2.journal("ta09@c2")[:3] == ["submitted", "sent", "resent"]
    assert bench.c3.journal("ta09@c2").count("delivered") == 1


@pytest.mark.parametrize("lost", [1, 4])
def test_as4_cp_ta10_retries_stop_with_the_receipt_and_the_message_is_delivered_once(
    bench: Bench, lost: int
) -> None:
    """AS4_CP_TA10, and Minder's OneWayRetry: the receipt comes through before the time-out."""
    message_id = f"ta10-retried-{lost}@c2"
    bench.relay.intercept(message_id, answer=Silence(lost))
    sent = bench.c2.send("ONEWAY_RETRY", Payload(XML, "application/xml"), message_id=message_id)
    assert sent.state == "acknowledged"
    copies = bench.relay.about(message_id)
    assert len(copies) == lost + 1
    answer = copies[-1].answer.seen
    check_nonrepudiation(answer, copies[-1].seen, message_id, bench.c3.certificate)
    assert bench.c3.journal(message_id).count("delivered") == 1
    assert bench.c3.payloads(message_id) == [XML]


def test_as4_cp_ta11_errors_of_the_sender_need_no_address(bench: Bench) -> None:
    """AS4_CP_TA11, not testable by its own account: SenderErrorsTo is not set in any P-Mode here.

    What can be seen: a message that S cannot send is told to the producer, and nobody else.
    """
    with pytest.raises(ApiError, match="EDIGASDocumentType"):
        bench.c2.send("gas", Payload(XML, "application/xml"), message_id="ta11@c2")
    assert not bench.relay.about("ta11@c2")
    assert not bench.homeward.about("ta11@c2")


def test_as4_cp_ta12_header_body_and_all_parts_are_signed_with_rsa_sha256(bench: Bench) -> None:
    """AS4_CP_TA12: RSA-SHA256 and SHA-256, the sender's certificate, over everything."""
    sent = bench.c2.send("edelivery", *leading_xml())
    seen = bench.exchange(sent.message_id).seen
    covered = signed(seen, decrypted(seen, bench.c3.key))
    assert covered.keys() >= must_be_signed(seen)
    assert signer(seen) == bench.c2.certificate


def test_as4_cp_ta13_all_parts_are_encrypted_with_aes128_gcm_for_the_receiver(bench: Bench) -> None:
    """AS4_CP_TA13: AES128-GCM for R's certificate, all attachments, and nothing but these."""
    sent = bench.c2.send("signed-encrypted", *leading_xml())
    seen = bench.exchange(sent.message_id).seen
    opened = decrypted(seen, bench.c3.key)
    assert opened == {"leading@c2": XML, "binary@c2": BINARY, "note@c2": b"a note"}
    assert {one.media_type for one in seen.parts} == {"application/octet-stream"}
    assert not seen.all("//eb:Messaging//xenc:EncryptedData | //s:Body//xenc:EncryptedData")


def test_as4_cp_ta15_a_missing_receipt_is_told_to_the_producer(bench: Bench) -> None:
    """AS4_CP_TA15: after the last retry S reports EBMS:0301 MissingReceipt to its producer."""
    bench.relay.intercept("ta15@c2", answer=Silence())
    sent = bench.c2.send("timed-out", Payload(XML, "application/xml"), message_id="ta15@c2")
    assert (sent.state, sent.message.error_code) == ("in_doubt", "EBMS:0301")
    notified = bench.c2.application.told("ta15@c2")
    assert (notified["state"], notified["error_code"]) == ("in_doubt", "EBMS:0301")


class Conversation(NamedTuple):
    """A request and its reply, as they went over the wire."""

    asked: Exchange
    answered: Exchange


def converse(bench: Bench, name: str) -> Conversation:
    """Two-Way/Push-and-Push: corner two asks, corner three answers."""
    request, reply = f"{name}-request@c2", f"{name}-reply@c3"
    sent = bench.c2.send(
        "two-way",
        Payload(XML, "application/xml"),
        message_id=request,
        conversation_id=f"{name}-conversation",
    )
    assert sent.state == "acknowledged", sent.message.detail
    answer = bench.c3.client.reply(
        request, payloads=[Payload(XML_2, "application/xml")], reply_id=reply, wait=PATIENCE
    )
    assert answer.state == "acknowledged", answer.message.detail
    assert bench.c3.payloads(request) == [XML]
    assert bench.c2.payloads(reply) == [XML_2]
    [answered] = bench.homeward.about(f"<eb:MessageId>{reply}<")
    return Conversation(bench.exchange(request), answered)


def test_as4_cp_ta02_a_reply_refers_to_its_request(bench: Bench) -> None:
    """AS4_CP_TA02: RefToMessageId of the reply is the MessageId of the request."""
    asked, answered = converse(bench, "ta02")
    info = "//eb:UserMessage/eb:MessageInfo"
    assert not asked.seen.all(f"{info}/eb:RefToMessageId")
    assert answered.seen.text(f"{info}/eb:RefToMessageId") == asked.seen.text(
        f"{info}/eb:MessageId"
    )


def test_as4_cp_ta14_request_and_reply_each_get_a_non_repudiation_receipt(bench: Bench) -> None:
    """AS4_CP_TA14: in Two-Way/Push-and-Push both receivers answer with a signed NRR."""
    asked, answered = converse(bench, "ta14")
    check_nonrepudiation(asked.answer.seen, asked.seen, "ta14-request@c2", bench.c3.certificate)
    check_nonrepudiation(answered.answer.seen, answered.seen, "ta14-reply@c3", bench.c2.certificate)


def test_as4_cp_ta19_both_legs_have_one_conversation(bench: Bench) -> None:
    """AS4_CP_TA19: the ConversationId of the request is that of the reply."""
    path = "//eb:CollaborationInfo/eb:ConversationId"
    assert [one.seen.text(path) for one in converse(bench, "ta19")] == ["ta19-conversation"] * 2


def test_as4_cp_ta16_a_ping_goes_to_the_test_service(bench: Bench) -> None:
    """AS4_CP_TA16: service and action of a test message are those that Core 5.2.2 reserves."""
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml"), test=True)
    seen = bench.exchange(sent.message_id).seen
    assert seen.text("//eb:CollaborationInfo/eb:Service") == f"{EB3}service"
    assert seen.text("//eb:CollaborationInfo/eb:Action") == f"{EB3}test"


def test_as4_cp_ta17_a_ping_is_acknowledged_and_not_delivered(bench: Bench) -> None:
    """AS4_CP_TA17: a test message gets its NRR, and the consumer never sees it."""
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml"), test=True)
    assert sent.state == "acknowledged"
    exchange = bench.exchange(sent.message_id)
    check_nonrepudiation(exchange.answer.seen, exchange.seen, sent.message_id, bench.c3.certificate)
    assert bench.c3.delivered(sent.message_id) is None
    assert bench.c3.journal(sent.message_id) == ["received", "receipt_sent"]
    assert bench.c3.application.about(sent.message_id) == []


def test_as4_cp_ta17_every_pmode_of_a_partner_can_be_pinged(twinless: Bench) -> None:
    """AS4_CP_TA17: eDelivery gives each P-Mode a twin for the test service, with its security."""
    states = {
        pmode: twinless.c2.send(pmode, Payload(XML, "application/xml"), test=True).state
        for pmode in ("plain", "signed", "edelivery")
    }
    assert set(states.values()) == {"acknowledged"}, states


def test_as4_cp_ta18_a_conversation_id_is_made_where_none_is_given(bench: Bench) -> None:
    """AS4_CP_TA18: the sending MSH makes a ConversationId when the producer gives none."""
    made, other = (
        bench.exchange(bench.c2.send("plain", Payload(XML)).message_id).seen for _ in range(2)
    )
    given = bench.c2.send("plain", Payload(XML), conversation_id="talk-7")
    path = "//eb:CollaborationInfo/eb:ConversationId"
    assert made.text(path)
    assert made.text(path) != other.text(path)
    assert bench.exchange(given.message_id).seen.text(path) == "talk-7"
    received = bench.c3.delivered(given.message_id)
    assert received is not None
    assert received.conversation_id == "talk-7"


def test_as4_cp_ta20_message_properties_are_kept_with_and_without_a_type(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA20: a message property may have a type or none; both arrive as they were given."""
    given = [Property("urgency", "high"), Property("count", "3", "integer")]
    plain: list[tuple[str, str, str | None]] = [
        ("urgency", "high", None),
        ("count", "3", "integer"),
    ]
    sent = bench.c2.send("edelivery", Payload(XML), properties=given)
    assert bench.exchange(sent.message_id).seen.properties == plain
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert received.properties == tuple(given)

    letter = Letter("ta20@stranger", "signed", properties=tuple(plain), signed_by=partner)
    assert not bench.post(letter).codes
    foreign = bench.c3.delivered("ta20@stranger")
    assert foreign is not None
    assert foreign.properties == tuple(given)


def test_as4_cp_ta21_a_signed_user_message_gets_a_signed_receipt_with_its_digests(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA21: the receiver answers a user message by an NRR over all that was signed."""
    letter = Letter("ta21@stranger", "signed", (Part("order@stranger", XML),), signed_by=partner)
    wire = letter.wire()
    answer = bench.deliver(wire)
    assert answer.status == 200
    check_nonrepudiation(answer.seen, read(*wire), "ta21@stranger", bench.c3.certificate)
    told = answer.seen.attributes("//ebbp:MessagePartNRInformation/ds:Reference/@URI")
    assert sorted(told) == ["#body-1", "#header-1", "cid:order@stranger"]


def test_as4_cp_ta22_the_producer_is_told_of_the_receipt(bench: Bench) -> None:
    """AS4_CP_TA22: when the receipt has come, the sending MSH tells its producer."""
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml"))
    told = bench.c2.application.told(sent.message_id)
    assert (told["event"], told["state"], told["side"]) == ("receipt", "acknowledged", "sending")
    assert bench.c2.status(sent.message_id).state == "acknowledged"


def test_as4_cp_ta44_part_properties_are_kept_with_and_without_a_type(
    bench: Bench, partner: Identity
) -> None:
    """AS4_CP_TA44: a part property may have a type or none; both arrive as they were given."""
    given = [Property("pages", "3", "integer"), Property("language", "en")]
    sent = bench.c2.send("edelivery", Payload(XML, "application/xml", properties=given))
    seen = bench.exchange(sent.message_id).seen
    told = {
        (one.get("name"), one.text, one.get("type"))
        for one in seen.all("//eb:PartInfo/eb:PartProperties/eb:Property")
    }
    assert told >= {("pages", "3", "integer"), ("language", "en", None)}
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert set(received.parts[0].properties) >= set(given)

    properties: tuple[Named, ...] = (("pages", "3", "integer"), ("language", "en", None))
    part = Part("order@stranger", XML, properties=properties)
    assert not bench.post(Letter("ta44@stranger", "signed", (part,), signed_by=partner)).codes
    foreign = bench.c3.delivered("ta44@stranger")
    assert foreign is not None
    assert set(foreign.parts[0].properties) >= set(given)


def test_as4_cp_ta45_the_order_of_parts_is_the_submitted_one(bench: Bench) -> None:
    """AS4_CP_TA45: PartInfo elements stand in the order of submission, and are delivered so."""
    names = [f"{name}@c2" for name in ("zebra", "ant", "monkey", "bear")]
    payloads = [Payload(name.encode(), "text/plain", content_id=name) for name in names]
    sent = bench.c2.send("edelivery", *payloads)
    assert bench.exchange(sent.message_id).seen.hrefs == [f"cid:{name}" for name in names]
    received = bench.c3.delivered(sent.message_id)
    assert received is not None
    assert [one.content_id for one in received.parts] == names
    assert bench.c3.payloads(sent.message_id) == [name.encode() for name in names]
