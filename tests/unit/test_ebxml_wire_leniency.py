"""What readers of ebXML messages let pass, and what kinds of messages they tell apart."""

from datetime import UTC, datetime

import pytest

from postroad.wire.ebms3 import Description, Service
from postroad.wire.ebxml import (
    MS098,
    MS20,
    Manifest,
    ManifestReference,
    StatusRequest,
    Via,
    kind_of,
)
from postroad.wire.ebxml_writer import write_ebxml
from tests.changing import replace
from tests.unit.ebxml_samples import (
    BODY,
    HEADER,
    RECEIPT,
    REF,
    STATUS,
    TOP,
    VERSIONS,
    errors,
    header,
    message,
    problems,
    read,
    reliable,
    spoiled,
    told,
    trace,
    whole,
)

req = pytest.mark.req


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        pytest.param("0.98b", "98.0", None, id="version"),
        pytest.param(" eb:version", " version", None, id="unqualified version"),
        pytest.param("2026-01-31T12:00:00.000Z", "20260131T120000.000Z", None, id="basic time"),
        pytest.param("2026-01-31T12:00:00.000Z", "20260131T04:00:00.000Z-8", None, id="zone"),
        pytest.param("2026-01-31T12:00:00.000Z", "20260131120000Z", None, id="digits"),
        pytest.param("<eb:PartyId>urn:example:buyer</eb:PartyId>", "urn:example:buyer", None,
                     id="party"),
        pytest.param('<eb:To><eb:PartyId eb:type="urn:duns">1234567890123</eb:PartyId>',
                     '<eb:To type="urn:duns">1234567890123', None, id="party with type"),
        pytest.param(' xlink:href="', ' href="', None, id="href"),
    ],
)  # fmt: skip
def test_what_the_samples_do_wrong_is_forgiven_by_a_lenient_reader(old, new, value):
    data = spoiled(old, new, value)
    lenient, strict = read(data), read(data, lenient=False)
    assert lenient.message == message()
    assert [one.severity.value for one in lenient.problems] == ["warning"]
    assert [one.severity.value for one in strict.problems] == ["failure"]
    assert told(strict) == [(code, "failure", place) for code, _, place in told(lenient)]


def test_other_forgiven_forms_come_to_the_same():
    data = write_ebxml(whole(header=reliable(delivery_receipt_requested="UnSigned"))).decode()
    for old, new in (
        ('"UnSigned"', '"Unsigned"'),
        ("eb:deliverySemantics", "deliverySemantics"),
        ("eb:ackRequested", "ackRequested"),
    ):
        data = data.replace(old, new)
    reading = read(data.encode(), lenient=False)
    assert not reading.problems
    assert reading.message == whole(header=reliable(delivery_receipt_requested="UnSigned"))


def test_an_attribute_that_says_two_things_is_inconsistent():
    found = problems('eb:type="urn:duns"', 'eb:type="urn:duns" type="urn:x"')
    assert found == [("Inconsistent", "failure", f"{TOP}/eb:To/eb:PartyId/@eb:type")]


def test_attributes_of_2_0_are_qualified():
    data = spoiled('eb:type="urn:duns"', 'type="urn:duns"', message(MS20))
    assert [one.severity.value for one in read(data).problems] == ["warning"]
    assert not problems('eb:type="urn:duns"', 'type="urn:duns"')


def test_an_acknowledgment_in_the_other_place_is_forgiven():
    data = write_ebxml(RECEIPT).decode()
    start, end = data.index("<eb:Acknowledgment"), data.index("</SOAP-ENV:Body>")
    element = data[start:end]
    moved = data.replace(element, "").replace("</SOAP-ENV:Header>", f"{element}</SOAP-ENV:Header>")
    reading = read(moved.encode())
    assert reading.message == RECEIPT
    assert told(reading) == [("OtherXml", "warning", f"{HEADER}/eb:Acknowledgment")]


@pytest.mark.parametrize("spelling", ["Acknowledgment", "Acknowledgement"])
def test_both_spellings_of_the_type_are_read(spelling):
    data = spoiled('type="Acknowledgement"', f'type="{spelling}"', RECEIPT)
    assert read(data).message == RECEIPT


def test_an_acknowledgment_asked_for_in_the_trace_is_read_as_in_a_via():
    value = whole(via=None)
    data = spoiled("<eb:TraceHeader>", '<eb:TraceHeader ackRequested="Signed">', value)
    reading = read(data)
    assert reading.message.via == Via(ack_requested="Signed")
    assert [one.severity.value for one in reading.problems] == ["warning"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('errorCode="Inconsistent"', 'errorCode="NotRecognized"', "ValueNotRecognized"),
        ('highestSeverity="Error"', 'highestSeverity="error"', "Inconsistent"),
        ('severity="Error" ', 'severity="error" ', "Inconsistent"),
    ],
)
def test_errors_are_read_in_the_spellings_of_the_text(old, new, expected):
    reading = read(spoiled(old, new, errors(location="#xpointer(/a)")))
    (one,) = reading.message.error_list.errors
    assert (one.error_code, one.severity) == (expected, "Error")
    assert not reading.problems


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        (' eb:highestSeverity="Error"', "", "OtherXml", ""),
        (
            'highestSeverity="Error"',
            'highestSeverity="Warning"',
            "Inconsistent",
            "/@eb:highestSeverity",
        ),
        ('xml:lang="en"', 'xml:lang="us en"', "OtherXml", "/eb:Error/@xml:lang"),
        (
            f'codeContext="{MS098.error_code_context}"',
            'codeContext="mine"',
            "OtherXml",
            "/eb:Error/@eb:codeContext",
        ),
    ],
)
def test_an_error_list_that_is_not_quite_right_is_heard_all_the_same(old, new, code, place):
    reading = read(spoiled(old, new, errors()))
    assert told(reading) == [(code, "warning", f"{HEADER}/eb:ErrorList{place}")]
    assert reading.message.error_list.errors[0].text == "so"


@pytest.mark.parametrize("new", ['MinRetrySecs="30" ', 'eb:MinRetrySecs="30" '])
def test_the_time_to_wait_is_read_from_an_attribute(new):
    reading = read(spoiled("<eb:Error ", f"<eb:Error {new}", errors()))
    assert reading.message.error_list.errors[0].min_retry_secs == 30


def test_the_time_to_wait_is_read_from_an_element():
    foreign = '<MinRetrySecs xmlns="urn:x">30</MinRetrySecs></eb:Error>'
    (one,) = read(spoiled("</eb:Error>", foreign, errors())).message.error_list.errors
    assert (one.min_retry_secs, one.text) == (30, "so")


@req("RM001-2.2.3-05")
def test_a_number_of_the_draft_is_read_and_checked():
    value = whole(trace=(trace(sequence_number=7),))
    assert read(write_ebxml(value)).message == value
    place = f"{HEADER}/eb:TraceHeaderList/eb:TraceHeader/*[local-name()='SequenceNumber']"
    for wrong in ("0", "4294967296", "-1", "x"):
        assert problems(">7<", f">{wrong}<", value) == [("OtherXml", "failure", place)]


def test_data_in_the_body_is_told_as_not_passed_on():
    found = problems("</SOAP-ENV:Body>", '<o xmlns="urn:o"/></SOAP-ENV:Body>')
    assert found == [("NotSupported", "warning", f"{BODY}/*[local-name()='o']")]


def test_two_references_to_one_part_are_not_supported():
    one = ManifestReference(href="cid:a@b", id="a")
    value = message(manifest=Manifest((one, replace(one, href="cid:b@b", id="b"))))
    found = problems("cid:b@b", "cid:a%40b", value)
    assert found == [("NotSupported", "failure", f"{BODY}/eb:Manifest/eb:Reference[2]")]


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("Ping", "ping"),
        ("Pong", "pong"),
        ("StatusRequest", "status_request"),
        ("StatusResponse", "status_response"),
        ("Acknowledgment", "acknowledgment"),
        ("MessageError", "error"),
    ],
)
@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda one: one.name)
def test_messages_between_mshs_are_known_by_service_and_action(action, kind, dialect):
    top = header(service=Service(dialect.msh_service), action=action, ref_to_message_id=REF)
    found = read(write_ebxml(message(dialect, header=top, manifest=None)))
    assert kind_of(found.message) == kind
    assert not found.problems


@pytest.mark.parametrize(
    "service",
    [
        "uri:www.ebxml.org/messageService",
        "uri:www.ebxml.org/messageService/MessageAcknowledgment",
        "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgement",
    ],
)
def test_the_service_of_mshs_is_known_in_all_spellings(service):
    top = header(service=Service(service), action="Acknowledgment", ref_to_message_id=REF)
    assert kind_of(read(write_ebxml(message(header=top, manifest=None))).message) == (
        "acknowledgment"
    )


def test_an_unknown_action_of_the_msh_is_not_recognized():
    value = message(header=header(service=Service(MS098.msh_service), action="Ping"), manifest=None)
    found = problems(">Ping<", ">Juggle<", value)
    assert found == [("ValueNotRecognized", "failure", f"{TOP}/eb:Action")]


@req("MS098-9.1.1-01", "MS098-9.2.1-01")
def test_a_ping_and_a_status_request_have_no_payload():
    for action in ("Ping", "StatusRequest"):
        top = header(service=Service(MS098.msh_service), action=action, ref_to_message_id=REF)
        with pytest.raises(ValueError, match="no Manifest"):
            write_ebxml(message(header=top))


@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda one: one.name)
def test_the_id_that_a_status_request_is_about_is_found_in_every_version(dialect):
    top = header(
        service=Service(dialect.msh_service), action="StatusRequest", ref_to_message_id=REF
    )
    asked = StatusRequest(REF) if dialect.has_status_request else None
    value = message(dialect, header=top, manifest=None, status_request=asked)
    assert read(write_ebxml(value)).message.asked_about == REF


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20000725T121905.000Z", datetime(2000, 7, 25, 12, 19, 5, tzinfo=UTC)),
        ("20001216T21:19:35.145Z-8", datetime(2000, 12, 17, 5, 19, 35, 145000, tzinfo=UTC)),
        ("20010309T122230.105Z", datetime(2001, 3, 9, 12, 22, 30, 105000, tzinfo=UTC)),
        ("2001-03-09T12:22:30+01:00", datetime(2001, 3, 9, 11, 22, 30, tzinfo=UTC)),
        ("2001-03-09T12:22:30", datetime(2001, 3, 9, 12, 22, 30, tzinfo=UTC)),
    ],
)
def test_times_are_read_as_the_samples_and_the_schema_have_them(text, expected):
    reading = read(spoiled("2026-01-31T12:00:00.000Z", text))
    assert reading.message.header.timestamp == expected
    assert not reading.failures


def test_a_crowd_of_deviations_is_bounded_and_its_end_is_told():
    reading = read(spoiled("<eb:Action>", "<eb:x/>" * 5000 + "<eb:Action>"))
    assert len(reading.problems) == 51
    assert reading.problems[-1].detail.startswith("there are 4950 further")
    assert reading.problems[-1].location == reading.problems[-2].location
    assert len(reading.failures) == 51


def test_a_description_without_a_language_is_english():
    top = header(descriptions=(Description("An order", "de"),))
    reading = read(spoiled(' xml:lang="de"', "", message(header=top)))
    assert reading.message.header.descriptions == (Description("An order", "en"),)
    assert [one.severity.value for one in reading.problems] == ["warning"]


SAMPLE = """\
<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:eb="http://www.ebxml.org/namespaces/messageHeader"
 xmlns:xlink="http://www.w3.org/1999/xlink">
 <SOAP-ENV:Header>
  <eb:MessageHeader id="h" eb:version="98.0" SOAP-ENV:mustUnderstand="1">
   <eb:From>uri:example.com</eb:From>
   <eb:To type="someType">QRS543</eb:To>
   <eb:CPAId>http://www.ebxml.org/cpa/123456</eb:CPAId>
   <eb:ConversationId>987654321</eb:ConversationId>
   <eb:Service type="myservicetypes">QuoteToCollect</eb:Service>
   <eb:Action>NewPurchaseOrder</eb:Action>
   <eb:MessageData>
    <eb:MessageId>mid:UUID-2</eb:MessageId>
    <eb:RefToMessageId>mid:UUID-1</eb:RefToMessageId>
    <eb:Timestamp>20000725T121905.000Z</eb:Timestamp>
   </eb:MessageData>
   <eb:QualityOfServiceInfo deliverySemantics="OnceAndOnlyOnce"
    deliveryReceiptRequested="Signed"/>
  </eb:MessageHeader>
  <eb:TraceHeaderList id="t" eb:version="98.0" SOAP-ENV:mustUnderstand="1">
   <eb:TraceHeader>
    <eb:SenderURI>url:PartyA.com/PartyAMsh</eb:SenderURI>
    <eb:ReceiverURI>url:PartyB.com/PartyBMsh</eb:ReceiverURI>
    <eb:Timestamp>20001216T21:19:35.145Z-8</eb:Timestamp>
   </eb:TraceHeader>
  </eb:TraceHeaderList>
  <eb:Via SOAP-ENV:mustUnderstand="1" eb:version="98.0" eb:syncReply="false"
   SOAP-ENV:actor="http://schemas.xmlsoap.org/soap/actor/next">
   <eb:CPAId>yaddaydda</eb:CPAId>
   <eb:Service>Proxy</eb:Service>
   <eb:Action>LogActivity</eb:Action>
  </eb:Via>
 </SOAP-ENV:Header>
 <SOAP-ENV:Body>
  <eb:Manifest id="Manifest" eb:version="98.0" SOAP-ENV:mustUnderstand="1">
   <eb:Reference id="pay01" xlink:href="cid:payload-1"
    xlink:role="http://regrep.org/gci/purchaseOrder">
    <eb:Description>Purchase Order for 100,000 widgets</eb:Description>
    <eb:Schema location="http://regrep.org/gci/purchaseOrder/po.xsd" version="98.0"/>
   </eb:Reference>
  </eb:Manifest>
 </SOAP-ENV:Body>
</SOAP-ENV:Envelope>
"""


def test_a_message_of_the_specification_s_own_samples_is_read():
    reading = read(SAMPLE.encode())
    found = reading.message
    assert not reading.failures
    assert {one.code for one in reading.problems} == {
        "OtherXml",
        "ValueNotRecognized",
        "Inconsistent",
    }
    assert (str(found.header.from_party), str(found.header.to_party)) == (
        "uri:example.com",
        "someType::QRS543",
    )
    assert found.header.is_reliable
    assert found.header.ref_to_message_id == "mid:UUID-1"
    assert found.trace[0].sender_uri == "url:PartyA.com/PartyAMsh"
    assert found.via.service == Service("Proxy")
    assert found.manifest.references[0].schemas[0].version == "98.0"
    assert read(SAMPLE.encode(), lenient=False).failures


ORDERED = message(MS20, header=header(duplicate_elimination=True))
SLOW = errors(min_retry_secs=30)
BAD_NAMES = '<a xmlns="relative"/></eb:Manifest>'


@pytest.mark.parametrize(
    ("old", "new", "value", "code", "severity"),
    [
        pytest.param("1@buyer.example", "plain", None, "OtherXml", "warning", id="id without @"),
        pytest.param("<eb:Action>", '<x:a xmlns:x="urn:x"/><eb:Action>', None, "OtherXml",
                     "warning", id="foreign in a closed header"),
        pytest.param("OnceAndOnlyOnce", "onceandonlyonce", whole(), "ValueNotRecognized",
                     "warning", id="case"),
        pytest.param('eb:ackRequested="Signed"', 'eb:syncReply="TRUE"', whole(),
                     "ValueNotRecognized", "warning", id="case of a boolean"),
        pytest.param(' eb:severity="Error"', "", errors(), "OtherXml", "warning", id="severity"),
        pytest.param('Secs="30"', 'Secs="soon"', SLOW, "OtherXml", "warning", id="retry"),
        pytest.param('Status="Received"', 'Status="NotRecognized"', STATUS, "Inconsistent",
                     "warning", id="time of an unknown message"),
        pytest.param("<eb:DuplicateElimination>", "<eb:DuplicateElimination>x", ORDERED,
                     "OtherXml", "warning", id="DuplicateElimination"),
        pytest.param("<eb:Manifest ", '<eb:Manifest eb:x="y" ', None, "OtherXml", "warning",
                     id="unknown attribute"),
        pytest.param('eb:type="urn:duns"', 'eb:type=""', None, "OtherXml", "failure", id="empty"),
        pytest.param("</eb:Manifest>", BAD_NAMES, None, "OtherXml", "failure", id="namespace"),
        pytest.param("</SOAP-ENV:Body>", "<Manifest/></SOAP-ENV:Body>", None, "OtherXml",
                     "failure", id="no namespace"),
    ],
)  # fmt: skip
def test_smaller_deviations_are_told_by_their_weight(old, new, value, code, severity):
    found = told(read(spoiled(old, new, value)))
    assert (code, severity) in [one[:2] for one in found]
    assert severity == "failure" or all(one[1] == "warning" for one in found)


def test_another_order_of_elements_is_forgiven():
    data = spoiled("<eb:Action>NewOrder</eb:Action>", "")
    data = data.replace(b"<eb:From>", b"<eb:Action>NewOrder</eb:Action><eb:From>")
    reading = read(data)
    assert reading.message == message()
    assert {one.severity.value for one in reading.problems} == {"warning"}


def test_a_message_without_message_data_has_neither_id_nor_time():
    data = write_ebxml(message()).decode()
    start, end = data.index("<eb:MessageData>"), data.index("</eb:MessageHeader>")
    reading = read((data[:start] + data[end:]).encode())
    assert reading.message.message_id == ""
    assert told(reading) == [("OtherXml", "failure", TOP)]


def test_a_payload_with_a_ping_is_inconsistent():
    data = spoiled("urn:example:orders", MS098.msh_service)
    found = told(read(data.replace(b">NewOrder<", b">Ping<")))
    assert found == [("Inconsistent", "failure", f"{BODY}/eb:Manifest")]


def test_a_description_in_one_language_twice_is_told():
    top = header(descriptions=(Description("An order", "en"), Description("Auftrag", "de")))
    found = problems('xml:lang="de"', 'xml:lang="en"', message(header=top))
    assert found == [("OtherXml", "warning", f"{TOP}/eb:Description[2]")]
