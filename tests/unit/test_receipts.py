"""Receipts are made from what was received and held against what was sent."""

from datetime import UTC, datetime

import pytest

from postroad.wire import soap, xml
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Messaging,
    NonRepudiationInformation,
    PartInfo,
    Party,
    PartyId,
    Receipt,
    Reference,
    Service,
    SignalMessage,
    Transform,
    UserMessage,
)
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.names import DEFAULT_MPC, DS, EBBP, EXC_C14N, SWA, XENC
from postroad.wire.receipts import awareness_receipt, check_receipt, nonrepudiation_receipt
from postroad.wire.soap import SoapVersion
from tests.changing import replace

NOW = datetime(2026, 11, 15, 5, 40, 37, 123456, UTC)
SENT = UserMessage(
    MessageInfo(NOW, "m1@a.example.com"),
    Party((PartyId("alice", "t"),), "buyer"),
    Party((PartyId("bob", "t"),), "seller"),
    CollaborationInfo(Service("urn:orders"), "new", "c1"),
    part_infos=(PartInfo("cid:p 1@a"),),
)
INFO = MessageInfo(NOW, "r1@b.example.com", "m1@a.example.com")
SHA256 = XENC + "sha256"
HEADER = Reference("#messaging", (Transform(EXC_C14N),), SHA256, b"h" * 32)
BODY = Reference("#body", (Transform(EXC_C14N),), SHA256, b"b" * 32)
PART = Reference(
    "cid:p%201@a", (Transform(SWA + "#Attachment-Content-Signature-Transform"),), SHA256, b"p" * 32
)
REFERENCES = (HEADER, BODY, PART)


def over_the_wire(signal: SignalMessage) -> SignalMessage:
    written = write_messaging(Messaging((signal,)), SoapVersion.SOAP_12)
    reading = read_messaging(xml.parse(written.encode()), SoapVersion.SOAP_12)
    assert reading.failures == ()
    assert reading.messaging is not None
    return reading.messaging.signals[0]


def check(signal: SignalMessage, **changes: object) -> None:
    known = {
        "sent_message_id": "m1@a.example.com",
        "sent_references": REFERENCES,
        "sent_user_message": SENT,
        **changes,
    }
    check_receipt(signal, **known)  # type: ignore[arg-type]


def refusal(signal: SignalMessage, **changes: object) -> str:
    with pytest.raises(EbmsError) as caught:
        check(signal, **changes)
    assert caught.value.code == "EBMS:0302"
    assert caught.value.ref == changes.get("sent_message_id", "m1@a.example.com")
    return caught.value.detail


def receipt(*references: Reference) -> SignalMessage:
    return nonrepudiation_receipt(references, message_info=INFO)


def test_a_non_repudiation_receipt_lists_every_reference_and_nothing_else():
    signal = receipt(*REFERENCES)
    root = xml.parse(write_messaging(Messaging((signal,)), SoapVersion.SOAP_12).encode())
    (content,) = root.iter(f"{{{EBBP}}}NonRepudiationInformation")
    parts = xml.elements(content)
    assert {part.tag for part in parts} == {f"{{{EBBP}}}MessagePartNRInformation"}
    assert [[child.tag for child in part] for part in parts] == [[f"{{{DS}}}Reference"]] * 3
    assert [part[0].get("URI") for part in parts] == ["#messaging", "#body", "cid:p%201@a"]


def test_a_receipt_for_the_sent_message_is_accepted():
    check(over_the_wire(receipt(*REFERENCES)))
    check(over_the_wire(receipt(PART, HEADER, BODY, PART)))


def test_a_receipt_needs_the_references_and_the_message_it_is_for():
    with pytest.raises(ValueError, match="references"):
        nonrepudiation_receipt((), message_info=INFO)
    with pytest.raises(ValueError, match="RefToMessageId"):
        nonrepudiation_receipt(REFERENCES, message_info=MessageInfo(NOW, "r@b"))
    with pytest.raises(ValueError, match="RefToMessageId"):
        awareness_receipt(SENT, message_info=MessageInfo(NOW, "r@b"))
    with pytest.raises(ValueError, match="MessageId of what was received"):
        awareness_receipt(SENT, message_info=MessageInfo(NOW, "r@b", "other@a"))


def test_attachments_are_compared_url_decoded():
    check(receipt(HEADER, BODY, PART._replace(uri="cid:p 1%40a")))


def test_a_missing_reference_is_named():
    assert refusal(receipt(HEADER, PART)) == "the reference to #body is missing"


def test_a_wrong_digest_is_told_from_a_missing_reference():
    detail = refusal(receipt(HEADER, BODY, PART._replace(digest_value=b"q" * 32)))
    assert detail.startswith("the digest of cid:p 1@a is 7070")
    assert "found 7171" in detail


def test_another_digest_method_is_refused():
    detail = refusal(receipt(HEADER, BODY, PART._replace(digest_method=XENC + "sha512")))
    assert f"found {XENC}sha512" in detail


def test_a_reference_to_something_never_sent_is_refused():
    extra = PART._replace(uri="cid:stranger")
    assert refusal(receipt(*REFERENCES, extra)) == "nothing was sent as cid:stranger"


def test_the_same_reference_twice_with_two_digests_is_refused():
    assert "the digest of #body" in refusal(
        receipt(*REFERENCES, BODY._replace(digest_value=b"x" * 32))
    )


def test_everything_that_differs_is_told_at_once():
    detail = refusal(receipt(HEADER._replace(digest_value=b"x"), BODY._replace(uri="#other")))
    assert detail.count(";") == 3


def test_a_receipt_for_another_message_is_refused():
    assert "'m2@a.example.com', found 'm1@a.example.com'" in refusal(
        receipt(*REFERENCES), sent_message_id="m2@a.example.com"
    )
    nowhere = SignalMessage(MessageInfo(NOW, "r@b"), receipt=receipt(*REFERENCES).receipt)
    assert "found none" in refusal(nowhere)


def test_the_references_of_one_message_do_not_do_for_another():
    theirs = tuple(reference._replace(digest_value=b"z" * 32) for reference in REFERENCES)
    assert refusal(receipt(*REFERENCES), sent_references=theirs).count("the digest of") == 3


def test_message_part_identifiers_are_refused():
    information = NonRepudiationInformation(REFERENCES, ("body",))
    signal = SignalMessage(INFO, receipt=Receipt(information))
    assert "MessagePartIdentifier" in refusal(signal)


def test_a_signed_message_is_not_satisfied_by_a_copy():
    assert "was signed" in refusal(awareness_receipt(SENT, message_info=INFO))


@pytest.mark.req("P2-3.2.2-06")
def test_references_to_other_units_of_the_bundle_are_allowed():
    neighbour = PART._replace(uri="cid:neighbour")
    check(receipt(*REFERENCES, neighbour), also_sent=(neighbour,))
    check(receipt(*REFERENCES), also_sent=(neighbour,))
    wrong = neighbour._replace(digest_value=b"x")
    assert "cid:neighbour" in refusal(receipt(*REFERENCES, wrong), also_sent=(neighbour,))


def test_a_signal_without_a_receipt_is_refused():
    assert "no eb:Receipt" in refusal(SignalMessage(INFO))


def test_a_copy_of_the_unsigned_message_is_accepted():
    signal = awareness_receipt(SENT, message_info=INFO)
    assert signal.receipt == Receipt(user_message=SENT)
    check(signal, sent_references=None)


def test_a_copy_may_differ_in_form_but_not_in_meaning():
    copy = replace(
        SENT,
        mpc=DEFAULT_MPC,
        message_info=replace(SENT.message_info, timestamp=NOW.replace(microsecond=123000)),
        part_infos=(PartInfo("cid:p%201@a"),),
    )
    check(awareness_receipt(copy, message_info=INFO), sent_references=None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"message_info": MessageInfo(NOW, "m9@a.example.com")}, "MessageId was m1@a.example.com"),
        ({"from_party": Party((PartyId("mallory", "t"),), "buyer")}, "From was"),
        ({"to_party": Party((PartyId("bob", "t"),), "judge")}, "To/Role was seller, found judge"),
        ({"part_infos": ()}, "PayloadInfo was"),
        ({"mpc": "urn:other"}, "@mpc was"),
        (
            {"collaboration_info": CollaborationInfo(Service("urn:orders"), "cancel", "c1")},
            "Action was new, found cancel",
        ),
    ],
)
def test_a_copy_of_another_message_is_refused(change, says):
    signal = SignalMessage(INFO, receipt=Receipt(user_message=replace(SENT, **change)))
    assert refusal(signal, sent_references=None).startswith(says)


def test_an_unsigned_message_cannot_have_a_receipt_with_references():
    assert "was not signed" in refusal(receipt(*REFERENCES), sent_references=None)


def test_an_empty_receipt_is_refused():
    empty = SignalMessage(INFO, receipt=Receipt())
    assert "no ebbp:NonRepudiationInformation" in refusal(empty)
    assert "no copy" in refusal(empty, sent_references=None)


def test_without_the_sent_message_the_copy_is_taken_at_its_word():
    signal = awareness_receipt(SENT, message_info=INFO)
    check(signal, sent_references=None, sent_user_message=None)


def test_the_receipt_of_another_product_holds_against_its_own_references(vectors):
    envelope = soap.read_envelope(
        xml.parse((vectors / "phase4/testfiles/TestReceipt12.xml").read_bytes())
    )
    element = find_messaging(envelope)
    assert element is not None
    messaging = read_messaging(element, envelope.version).messaging
    assert messaging is not None
    (signal,) = messaging.signals
    assert signal.receipt is not None
    assert signal.receipt.non_repudiation is not None
    references = signal.receipt.non_repudiation.references
    assert references[0].transforms[0].prefixes == ("S12",)
    sent = signal.message_info.ref_to_message_id
    assert sent is not None
    check_receipt(signal, sent_message_id=sent, sent_references=references)
    changed = (references[0]._replace(digest_value=b"x" * 32), *references[1:])
    with pytest.raises(EbmsError, match="the digest of"):
        check_receipt(signal, sent_message_id=sent, sent_references=changed)
