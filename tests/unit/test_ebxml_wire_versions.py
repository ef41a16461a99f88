"""How the versions of ebXML messages differ in what is written."""

import pytest
from lxml import etree

from postroad.wire.ebms3 import (
    Party,
    PartyId,
    Reference,
    Service,
    Transform,
)
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    MS098,
    MS10,
    MS20,
    Acknowledgment,
    AckRequested,
    SequenceNumber,
    StatusData,
    StatusRequest,
    Via,
)
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.names import C14N, DS, EB2_NEXT_MSH, S11, S11_NEXT, XENC, XPATH
from tests.changing import replace
from tests.unit.ebxml_samples import (
    NOW,
    OLD,
    VERSIONS,
    about,
    find,
    header,
    message,
    read,
    refused,
    reliable,
    trace,
    whole,
    written,
)


@pytest.mark.parametrize(
    ("dialect", "content", "why"),
    [
        (MS20, {"via": Via(cpa_id="c")}, "2.0 has no Via"),
        (MS20, {"trace": (trace(),)}, "2.0 has no TraceHeaderList"),
        (MS20, {"header": reliable()}, "2.0 has no QualityOfServiceInfo"),
        (MS098, {"sync_reply": True}, "0.98b has no SyncReply"),
        (MS10, {"ack_requested": (AckRequested(True),)}, "1.0 has no AckRequested"),
        (MS098, {"header": header(duplicate_elimination=True)}, "no DuplicateElimination"),
        (MS098, {"status_request": StatusRequest("0@a")}, "0.98b has no StatusRequest"),
        (MS10, {"header": header(to_party=Party((PartyId("urn:a"),), "buyer"))}, "no Role"),
        (MS20, {"ack_requested": (AckRequested(True), AckRequested(False))}, "the same MSH"),
        (MS20, {"ack_requested": (AckRequested(True, S11_NEXT),)}, "the actor is one of"),
        (
            MS20,
            {"header": header(sequence_number=SequenceNumber(1))},
            "needs DuplicateElimination",
        ),
    ],
)
def test_what_a_version_does_not_have_is_refused(dialect, content, why):
    refused(message(dialect, **content), why)


def test_version_2_0_has_blocks_of_its_own_for_what_is_asked():
    value = message(
        MS20,
        header=header(
            duplicate_elimination=True,
            sequence_number=SequenceNumber(0, "Reset"),
            from_party=Party((PartyId("urn:a"),), "buyer"),
        ),
        ack_requested=(AckRequested(True), AckRequested(False, EB2_NEXT_MSH)),
    )
    tree = written(value)
    names = [etree.QName(one).localname for one in find(tree, "/S:Envelope/S:Header")]
    assert names == ["MessageHeader", "MessageOrder", "AckRequested", "AckRequested"]
    assert find(tree, "//eb2:MessageOrder/eb2:SequenceNumber/@eb2:status") == "Reset"
    assert tree.xpath("//*[local-name()='AckRequested']/@*[local-name()='signed']") == [
        "true",
        "false",
    ]
    assert find(tree, "//eb2:From/eb2:Role/text()") == "buyer"
    assert find(tree, "//eb2:Manifest/@eb2:id") == "manifest"


def test_an_acknowledgment_of_2_0_refers_itself_and_by_the_next_msh_says_so():
    value = about(acknowledgment=Acknowledgment(timestamp=NOW, type=ACKNOWLEDGMENT))
    tree = written(replace(value, dialect=MS20))
    top = find(tree, "/S:Envelope/S:Header/eb2:Acknowledgment")
    assert top.get(f"{{{S11}}}actor") == EB2_NEXT_MSH
    assert find(top, "eb2:RefToMessageId/text()") == "0@seller.example"


def test_a_receipt_of_1_0_is_an_element_of_the_body():
    value = about(acknowledgment=Acknowledgment(timestamp=NOW, signed=True))
    tree = written(replace(value, dialect=MS10))
    assert find(tree, "/S:Envelope/S:Body/eb:DeliveryReceipt/@eb:signed") == "true"
    hop = replace(value.acknowledgment, type=ACKNOWLEDGMENT)
    find(written(replace(value, dialect=MS10, acknowledgment=hop)), "//S:Header/eb:Acknowledgment")


@pytest.mark.parametrize("dialect", OLD, ids=lambda one: one.name)
def test_nothing_but_elements_stands_in_the_header(dialect):
    top = find(written(whole(dialect=dialect)), "/S:Envelope/S:Header")
    assert top.text is None
    assert [child.tail for child in top] == [None] * len(top)


@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda one: one.name)
def test_the_first_spelling_of_a_version_is_written(dialect):
    top = written(message(dialect)).xpath("//*[local-name()='MessageHeader']")[0]
    assert top.get(dialect.tag("version")) == dialect.name


def test_an_acknowledgment_repeats_what_the_signature_refers_to_with_its_xpath():
    transforms = (Transform(f"{DS}enveloped-signature"), Transform(XPATH), Transform(C14N))
    reference = Reference("", transforms, XENC + "sha256", b"digest")
    receipt = Acknowledgment(timestamp=NOW, references=(reference,), signed=True)
    value = replace(about(acknowledgment=receipt), dialect=MS20)
    xpath = find(written(value), "//eb2:Acknowledgment/ds:Reference//ds:XPath")
    assert xpath.text == MS20.hop_xpath
    assert xpath.nsmap["SOAP"] == S11
    assert read(write_ebxml(value)).message.acknowledgment.references == (reference,)
    refused(replace(value, dialect=MS098), "no ds:Reference")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            message(
                header=header(service=Service(MS098.msh_service), action="Pong"), manifest=None
            ),
            "it is a pong",
        ),
        (
            message(
                MS20,
                header=header(duplicate_elimination=True, sequence_number=SequenceNumber(1)),
                sync_reply=True,
            ),
            "exclude each other",
        ),
        (
            replace(
                about(status_data=StatusData("0@a", "Received")),
                dialect=MS20,
                status_request=StatusRequest("0@a"),
            ),
            "asks for a status or tells one",
        ),
        (whole(trace=(replace(trace(), sender=PartyId("urn:a")),)), "no PartyId in a TraceHeader"),
    ],
)
def test_other_contradictions_are_refused(value, why):
    refused(value, why)


def test_version_2_0_asks_for_a_reply_at_once_by_a_block():
    element = find(written(message(MS20, sync_reply=True)), "/S:Envelope/S:Header/eb2:SyncReply")
    assert element.get(f"{{{S11}}}actor") == S11_NEXT


def test_every_version_has_a_name_as_a_protocol():
    assert [one.protocol for one in VERSIONS] == ["ebxml-0.98b", "ebxml-1.0", "ebxml-2.0"]
