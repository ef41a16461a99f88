"""What is read of ebXML messages: each broken rule with its code, severity and place."""

import pytest

from postroad.msh.ebxml_terms import header_terms
from postroad.reliability.ebxml_terms import Method, agree
from postroad.wire import xml
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    HOP_ROLES,
    MS098,
    MS10,
    MS20,
    Acknowledgment,
    AckRequested,
    Error,
    Extension,
    Manifest,
    ManifestReference,
    SequenceNumber,
    StatusData,
    Via,
    kind_of,
)
from postroad.wire.ebxml_reader import dialect_of, must_understand_problems, read_ebxml
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.names import DS, EB1, EB2, EB2_NEXT_MSH, S11, S11_NEXT, S12
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.soap_faults import must_understand_fault
from tests.changing import replace
from tests.unit.ebxml_samples import (
    BODY,
    HEADER,
    NOW,
    RECEIPT,
    REF,
    STATUS,
    TOP,
    VERSIONS,
    about,
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


@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda one: one.name)
def test_a_message_is_of_the_version_that_its_header_says(dialect):
    envelope = read_envelope(xml.parse(write_ebxml(message(dialect))))
    assert dialect_of(envelope) is dialect


def test_without_a_known_version_the_namespace_tells():
    for version in ("98.0", "7.0", ""):
        envelope = read_envelope(xml.parse(spoiled("0.98b", version)))
        assert dialect_of(envelope) is MS098


def test_another_soap_message_is_none_of_ebxml():
    root = xml.parse(f'<a:Envelope xmlns:a="{S11}"><a:Body><Order/></a:Body></a:Envelope>'.encode())
    assert dialect_of(read_envelope(root)) is None


@req("MS098-8.2-02")
@pytest.mark.parametrize(
    "places", [("<SOAP-ENV:Header", "<SOAP-ENV:Body"), ("<eb:MessageHeader", "<eb:Manifest")]
)
def test_the_namespace_may_be_declared_anywhere(places):
    data = write_ebxml(message()).decode().replace(f' xmlns:eb="{EB1}"', "")
    for place in places:
        data = data.replace(place, f'{place} xmlns:eb="{EB1}"')
    assert read(data.encode()).message == message()


@req("MS098-8.4.7.1-02", "MS098-8.4.7.2-01", "MS098-8.6.4-02", "MS098-8.6.5-02", "MS098-8.6.6-02")
def test_what_is_not_said_has_its_default():
    reading = read(write_ebxml(whole(via=Via(cpa_id="hop"), header=header())))
    found = reading.message
    assert found.header.delivery_receipt_requested is None
    assert found.header.message_order_semantics is None
    terms = agree({}, header_terms(found), timestamp=NOW)
    assert (terms.sync_reply, terms.ack_requested) == (False, "None")
    assert terms.reliable_messaging_method is Method.EBXML
    assert not reading.problems


@req("MS098-8.12.5-02", "MS098-8.12.6-02")
def test_an_acknowledgment_that_says_little_is_an_unsigned_receipt_of_the_from_party():
    data = spoiled(' eb:type="Acknowledgement" eb:signed="false"', "", RECEIPT)
    found = read(data).message
    assert (found.acknowledgment.type, found.acknowledgment.signed) == (DELIVERY_RECEIPT, False)
    assert found.acknowledged == REF


@req("MS098-8.7.5.1-02")
def test_the_code_context_has_a_default():
    data = spoiled(f' eb:codeContext="{MS098.error_code_context}"', "", errors())
    (one,) = read(data).message.error_list.errors
    assert one.code_context == "http://www.ebxml.org/messageServiceErrors"


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        pytest.param('eb:version="0.98b"', 'eb:version="7.0"', *("ValueNotRecognized",),
                     f"{TOP}/@eb:version", id="version"),
        pytest.param(' eb:version="0.98b"', "", "OtherXml", TOP, id="no version"),
        pytest.param(' SOAP-ENV:mustUnderstand="1"', "", "OtherXml", TOP, id="not mandatory"),
        pytest.param('Understand="1"', 'Understand="0"', "OtherXml",
                     f"{TOP}/@SOAP-ENV:mustUnderstand", id="mustUnderstand 0"),
        pytest.param("<eb:From><eb:PartyId>urn:example:buyer</eb:PartyId></eb:From>", "",
                     "OtherXml", TOP, id="no From"),
        pytest.param("<eb:PartyId>urn:example:buyer</eb:PartyId>", "", "OtherXml",
                     f"{TOP}/eb:From", id="no PartyId"),
        pytest.param("</eb:From>", "<eb:PartyId>urn:b</eb:PartyId></eb:From>", "OtherXml",
                     f"{TOP}/eb:From/eb:PartyId[2]", id="two PartyIds"),
        pytest.param("urn:example:buyer", "", "OtherXml", f"{TOP}/eb:From/eb:PartyId", id="empty"),
        pytest.param("urn:example:buyer", "a<eb:b/>", "OtherXml",
                     f"{TOP}/eb:From/eb:PartyId/eb:b", id="element in text"),
        pytest.param("<eb:CPAId>http://cpa.example/1</eb:CPAId>", "", "OtherXml", TOP, id="CPAId"),
        pytest.param("<eb:Action>NewOrder</eb:Action>", "", "OtherXml", TOP, id="no Action"),
        pytest.param("<eb:Action>", "text<eb:Action>", "OtherXml", TOP, id="text"),
        pytest.param("<eb:Action>", "<Action/><eb:Action>", "OtherXml", f"{TOP}/Action", id="bare"),
        pytest.param("<eb:Action>", "<eb:Via/><eb:Action>", "OtherXml", f"{TOP}/eb:Via", id="Via"),
        pytest.param("<eb:Action>", "<eb:Action>A</eb:Action><eb:Action>", "OtherXml",
                     f"{TOP}/eb:Action[2]", id="two Actions"),
        pytest.param("1@buyer.example", "a b@c", "OtherXml",
                     f"{TOP}/eb:MessageData/eb:MessageId", id="MessageId"),
        pytest.param("2026-01-31T", "2026-02-31T", "OtherXml",
                     f"{TOP}/eb:MessageData/eb:Timestamp", id="no such day"),
        pytest.param("2026-01-31T12:00:00.000Z", "noon", "OtherXml",
                     f"{TOP}/eb:MessageData/eb:Timestamp", id="no time"),
        pytest.param(' id="manifest"', "", "OtherXml", f"{BODY}/eb:Manifest", id="no id"),
        pytest.param('id="manifest"', 'id="1"', "OtherXml", f"{BODY}/eb:Manifest/@id", id="id"),
        pytest.param('id="order"', 'id="manifest"', "OtherXml",
                     f"{BODY}/eb:Manifest/eb:Reference", id="id twice"),
        pytest.param("simple", "extended", "OtherXml",
                     f"{BODY}/eb:Manifest/eb:Reference/@xlink:type", id="link"),
        pytest.param("cid:order@buyer.example", "order", "OtherXml",
                     f"{BODY}/eb:Manifest/eb:Reference/@xlink:href", id="href"),
        pytest.param(' xlink:href="cid:order@buyer.example"', "", "OtherXml",
                     f"{BODY}/eb:Manifest/eb:Reference", id="no href"),
        pytest.param("cid:order@buyer.example", 'cid:a@b" xlink:role="r', "OtherXml",
                     f"{BODY}/eb:Manifest/eb:Reference/@xlink:role", id="role"),
        pytest.param("</eb:Reference>", "<eb:Schema/></eb:Reference>", "OtherXml",
                     f"{BODY}/eb:Manifest/eb:Reference/eb:Schema", id="no location"),
    ],
)  # fmt: skip
def test_a_header_or_manifest_that_breaks_a_rule_fails(old, new, code, place):
    assert (code, "failure", place) in problems(old, new)


@req("MS098-8.4.1-07")
def test_a_party_id_without_a_type_that_is_no_uri_is_inconsistent():
    found = problems("urn:example:buyer", "4711")
    assert found == [("Inconsistent", "failure", f"{TOP}/eb:From/eb:PartyId")]


@req("MS098-8.4.4.1-03")
def test_a_service_without_a_type_that_is_no_uri_is_inconsistent():
    found = problems("urn:example:orders", "orders")
    assert found == [("Inconsistent", "failure", f"{TOP}/eb:Service")]


@req("MS098-8.4.8-05")
def test_a_sequence_number_without_once_and_only_once_is_inconsistent():
    value = message(header=reliable(sequence_number=SequenceNumber(3)))
    found = problems("OnceAndOnlyOnce", "BestEffort", value)
    assert found == [("Inconsistent", "failure", f"{TOP}/eb:SequenceNumber")]


@req("MS098-8.4.7.2-04")
def test_guaranteed_order_without_once_and_only_once_is_inconsistent():
    value = message(header=reliable(message_order_semantics="Guaranteed"))
    place = f"{TOP}/eb:QualityOfServiceInfo/@eb:messageOrderSemantics"
    found = problems("OnceAndOnlyOnce", "BestEffort", value)
    assert found == [("Inconsistent", "failure", place)]


def test_where_the_header_does_not_say_how_a_message_is_delivered_the_cpa_does():
    value = message(header=reliable(message_order_semantics="Guaranteed"))
    assert not problems(' eb:deliverySemantics="OnceAndOnlyOnce"', "", value)


@req("MS098-8.4.7.2-05")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("deliverySemantics", "Twice", "NotSupported"),
        ("messageOrderSemantics", "Perhaps", "NotSupported"),
        ("deliveryReceiptRequested", "Perhaps", "ValueNotRecognized"),
    ],
)
def test_unknown_words_for_the_quality_of_service_fail(name, value, code):
    changes = {"message_order_semantics": "Guaranteed", "delivery_receipt_requested": "Signed"}
    given = message(header=reliable(**changes))
    words = {"deliverySemantics": "OnceAndOnlyOnce", "messageOrderSemantics": "Guaranteed"}
    found = problems(f'{name}="{words.get(name, "Signed")}"', f'{name}="{value}"', given)
    assert (code, "failure", f"{TOP}/eb:QualityOfServiceInfo/@eb:{name}") in found


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        (">3<", ">100000000<", "OtherXml", f"{TOP}/eb:SequenceNumber"),
        (">3<", ">three<", "OtherXml", f"{TOP}/eb:SequenceNumber"),
        (">3<", "><", "OtherXml", f"{TOP}/eb:SequenceNumber"),
        ("Continue", "Again", "ValueNotRecognized", f"{TOP}/eb:SequenceNumber/@eb:status"),
        ("Continue", "Reset", "Inconsistent", f"{TOP}/eb:SequenceNumber/@eb:status"),
    ],
)
def test_a_sequence_number_that_is_none_fails(old, new, code, place):
    value = message(header=reliable(sequence_number=SequenceNumber(3)))
    assert problems(old, new, value) == [(code, "failure", place)]


@req("MS098-8.2.3-05", "MS098-8.2.3-04", "MS098-8.2.3-06")
@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (' SOAP-ENV:mustUnderstand="1"', "NotSupported"),
        (' SOAP-ENV:mustUnderstand="0"', None),
        ("", None),
    ],
)
@pytest.mark.parametrize(
    ("before", "place"),
    [
        ("</eb:TraceHeader>", f"{HEADER}/eb:TraceHeaderList/eb:TraceHeader/*[local-name()='a']"),
        ("</eb:Reference>", f"{BODY}/eb:Manifest/eb:Reference/*[local-name()='a']"),
        ("</eb:Manifest>", f"{BODY}/eb:Manifest/*[local-name()='a']"),
    ],
)
def test_a_foreign_element_counts_only_if_it_must_be_understood(attribute, expected, before, place):
    foreign = f'<x:a xmlns:x="urn:x"{attribute}/>'
    reading = read(spoiled(before, foreign + before, whole()))
    assert told(reading) == ([(expected, "failure", place)] if expected else [])
    understood = read(spoiled(before, foreign + before, whole()), known={"urn:x"})
    assert not understood.problems


def test_a_trace_header_may_have_an_id_and_no_attribute_that_nobody_knows():
    for attribute in ('id="t"', 'eb:id="t"'):
        reading = read(spoiled("<eb:TraceHeader>", f"<eb:TraceHeader {attribute}>", whole()))
        assert told(reading) == []
    place = f"{HEADER}/eb:TraceHeaderList/eb:TraceHeader"
    assert problems("<eb:TraceHeader>", '<eb:TraceHeader colour="red">', whole()) == [
        ("OtherXml", "warning", place)
    ]


def test_foreign_elements_are_kept_as_they_are():
    text = '<x:a xmlns:x="urn:x"><x:b c="d"></x:b></x:a>'
    extension = Extension("{urn:x}a", text)
    value = whole(
        trace=(trace(extensions=(extension,)),),
        manifest=Manifest(
            (ManifestReference(href="cid:a@b", id="p", extensions=(extension,)),),
            extensions=(extension,),
        ),
    )
    assert read(write_ebxml(value)).message == value


@req("MS098-8.10.5-06", "MS098-8.10.5-07")
def test_foreign_attributes_are_ignored():
    assert not problems("<eb:Reference ", '<eb:Reference xmlns:x="urn:x" x:y="z" ')


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        pytest.param(f' SOAP-ENV:actor="{S11_NEXT}"', "", "OtherXml", f"{HEADER}/eb:Via", id="no"),
        pytest.param(S11_NEXT, "urn:x", "OtherXml", f"{HEADER}/eb:Via/@SOAP-ENV:actor", id="actor"),
        pytest.param(' eb:ackRequested="Signed"', "", "OtherXml", f"{HEADER}/eb:Via", id="empty"),
        pytest.param('"Signed"', '"Perhaps"', "ValueNotRecognized",
                     f"{HEADER}/eb:Via/@eb:ackRequested", id="ackRequested"),
        pytest.param('eb:ackRequested="Signed"', 'eb:syncReply="perhaps"', "ValueNotRecognized",
                     f"{HEADER}/eb:Via/@eb:syncReply", id="syncReply"),
        pytest.param('eb:ackRequested="Signed"', 'eb:reliableMessagingMethod="x"',
                     "ValueNotRecognized", f"{HEADER}/eb:Via/@eb:reliableMessagingMethod",
                     id="method"),
        pytest.param("</eb:Via>", "<eb:Action>A</eb:Action></eb:Via>", "Inconsistent",
                     f"{HEADER}/eb:Via/eb:Action", id="no Service"),
        pytest.param("</eb:Via>", "<eb:Service>urn:s</eb:Service></eb:Via>", "Inconsistent",
                     f"{HEADER}/eb:Via/eb:Service", id="no Action"),
        pytest.param("</eb:TraceHeader>", "</eb:TraceHeader>x", "OtherXml",
                     f"{HEADER}/eb:TraceHeaderList", id="text"),
        pytest.param("https://buyer.example/msh", "buyer", "OtherXml",
                     f"{HEADER}/eb:TraceHeaderList/eb:TraceHeader/eb:SenderURI", id="no URI"),
    ],
)  # fmt: skip
def test_a_via_or_trace_that_breaks_a_rule_fails(old, new, code, place):
    assert (code, "failure", place) in problems(old, new, whole())


@req("MS098-8.13.8-01")
def test_a_second_via_fails():
    found = problems("<eb:Via", "<eb:Via/><eb:Via", whole())
    assert ("OtherXml", "failure", f"{HEADER}/eb:Via[2]") in found


@pytest.mark.parametrize(
    ("old", "new", "value", "code", "place"),
    [
        pytest.param(' eb:version="0.98b"', ' eb:version="1.0"', whole(), "Inconsistent",
                     f"{BODY}/eb:Manifest/@eb:version", id="another version"),
        pytest.param('errorCode="Inconsistent"', 'code="x"', errors(), "OtherXml",
                     f"{HEADER}/eb:ErrorList/eb:Error", id="no errorCode"),
        pytest.param("Received", "Lost", STATUS, "ValueNotRecognized",
                     f"{BODY}/eb:StatusData/@eb:messageStatus", id="status"),
        pytest.param(' eb:messageStatus="Received"', "", STATUS, "OtherXml",
                     f"{BODY}/eb:StatusData", id="no status"),
        pytest.param(f"<eb:RefToMessageId>{REF}</eb:RefToMessageId><eb:Timestamp>",
                     "<eb:Timestamp>", STATUS, "OtherXml", f"{BODY}/eb:StatusData", id="no ref"),
        pytest.param('type="Acknowledgement"', 'type="x"', RECEIPT, "ValueNotRecognized",
                     f"{BODY}/eb:Acknowledgment/@eb:type", id="type"),
        pytest.param('signed="false"', 'signed="no"', RECEIPT, "ValueNotRecognized",
                     f"{BODY}/eb:Acknowledgment/@eb:signed", id="signed"),
    ],
)  # fmt: skip
def test_other_elements_that_break_a_rule_fail(old, new, value, code, place):
    data = write_ebxml(value).decode()
    before, _, after = data.rpartition(old)
    assert (code, "failure", place) in told(read((before + new + after).encode()))


@req("MS098-8.13.4-01", "MS098-8.13.4-02", "MS098-8.13.5-02", "MS098-8.13.5-03")
@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        (STATUS, "manifest", f"{BODY}/eb:Manifest"),
        (errors(), "manifest", f"{BODY}/eb:Manifest"),
        (errors(), "status", f"{BODY}/eb:StatusData"),
    ],
)
def test_elements_that_exclude_each_other_are_inconsistent(one, other, place):
    whole_other = write_ebxml(message() if other == "manifest" else STATUS).decode()
    name = place.rpartition(":")[2]
    start, end = whole_other.index(f"<eb:{name}"), whole_other.index(f"</eb:{name}>")
    element = whole_other[start:end].replace("<eb:Manifest", '<eb:Manifest xmlns:xlink="x"')
    element = element.replace('"x"', '"http://www.w3.org/1999/xlink"') + f"</eb:{name}>"
    found = problems("</SOAP-ENV:Body>", f"{element}</SOAP-ENV:Body>", one)
    assert found == [("Inconsistent", "failure", place)]


@req("MS098-8.13.5-01")
def test_a_warning_is_with_everything():
    value = message(
        header=header(ref_to_message_id=REF),
        error_list=replace(
            errors().error_list,
            errors=(Error(error_code="Unknown", severity="Warning", code_context="urn:x"),),
        ),
    )
    reading = read(write_ebxml(value))
    assert not reading.problems
    assert kind_of(reading.message) == "message"


@req("MS098-8.4.6.3-03", "MS098-8.4.6.3-04")
@pytest.mark.parametrize("value", [errors(), RECEIPT], ids=["error", "acknowledgment"])
def test_errors_and_acknowledgments_without_a_reference_are_inconsistent(value):
    found = problems(f"<eb:RefToMessageId>{REF}</eb:RefToMessageId>", "", value)
    assert found == [("Inconsistent", "failure", f"{TOP}/eb:MessageData")]


def test_a_message_without_a_message_header_is_no_message():
    data = write_ebxml(message())
    start, end = data.index(b"<eb:MessageHeader"), data.index(b"</SOAP-ENV:Header>")
    reading = read(data[:start] + data[end:])
    assert reading.message is None
    assert told(reading) == [("OtherXml", "failure", "/SOAP-ENV:Envelope")]
    assert reading.manifest_element is not None


def test_a_second_message_header_fails():
    data = write_ebxml(message())
    start, end = data.index(b"<eb:MessageHeader"), data.index(b"</SOAP-ENV:Header>")
    reading = read(data[:end] + data[start:end] + data[end:])
    assert ("OtherXml", "failure", f"{TOP}[2]") in told(reading)


def test_an_ebxml_message_is_a_soap_1_1_message():
    found = told(read(write_ebxml(message()).replace(S11.encode(), S12.encode())))
    assert ("OtherXml", "failure", "/SOAP-ENV:Envelope") in found


HOP_TRICKS = [
    pytest.param(message(), "</eb:Manifest>", "<eb:Via/></eb:Manifest>", id="Via in the Manifest"),
    pytest.param(message(), "</SOAP-ENV:Body>",
                 '<x xmlns=""><eb:TraceHeaderList/></x></SOAP-ENV:Body>', id="trace in a payload"),
    pytest.param(message(MS20), "<eb:Manifest", f'<eb:Manifest SOAP-ENV:actor="{S11_NEXT}"',
                 id="the Manifest for the next"),
    pytest.param(message(MS20), "<eb:From>", f'<eb:From SOAP-ENV:actor="{EB2_NEXT_MSH}">',
                 id="From for the next"),
    pytest.param(message(MS20), "<eb:MessageHeader",
                 f'<eb:MessageHeader SOAP-ENV:actor="{S11_NEXT}"', id="the header for the next"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "old", "new"), HOP_TRICKS)
def test_nothing_that_a_signature_must_cover_looks_like_an_element_for_a_hop(value, old, new):
    reading = read(spoiled(old, new, value))
    assert any(one.code == "OtherXml" for one in reading.failures)


NAMES = {
    "MessageHeader": "Header",
    "TraceHeaderList": "Header",
    "Via": "Header",
    "ErrorList": "Header",
    "Manifest": "Body",
    "StatusData": "Body",
    "Acknowledgment": "Body",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_element_that_must_be_understood_gets_a_fault(name):
    actor = f' SOAP-ENV:actor="{S11_NEXT}"' if name == "Via" else ""
    unknown = f'<x:{name} xmlns:x="urn:x" SOAP-ENV:mustUnderstand="1"{actor}/>'
    end = f"</SOAP-ENV:{NAMES[name]}>"
    envelope = read_envelope(xml.parse(spoiled(end, unknown + end)))
    (missed,) = must_understand_problems(envelope, MS098)
    fault = must_understand_fault(SoapVersion.SOAP_11, [str(missed.element.tag)]).fault
    assert (fault.code, fault.reason) == (
        f"{{{S11}}}MustUnderstand",
        f"not understood: {{urn:x}}{name}",
    )


@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda one: one.name)
def test_what_a_version_has_is_understood(dialect):
    value = about(
        dialect,
        acknowledgment=Acknowledgment(timestamp=NOW),
        status_data=StatusData(REF, "Received"),
    )
    envelope = read_envelope(xml.parse(write_ebxml(value)))
    assert not must_understand_problems(envelope, dialect)


def test_an_element_of_another_version_is_not_understood():
    data = write_ebxml(message(MS20, ack_requested=(AckRequested(True),)))
    data = data.replace(EB2.encode(), EB1.encode()).replace(b'"2.0"', b'"0.98b"')
    envelope = read_envelope(xml.parse(data))
    (missed,) = must_understand_problems(envelope, MS098)
    assert missed.element.tag == f"{{{EB1}}}AckRequested"
    place = f"{HEADER}/eb:AckRequested"
    assert ("OtherXml", "failure", place) in told(read_ebxml(envelope, MS098))


@req("MS098-8.6.2-01")
def test_an_msh_on_the_way_must_understand_what_is_for_the_next_alone():
    blocks = "".join(
        f'<x:{name} xmlns:x="urn:x" SOAP-ENV:mustUnderstand="1"{actor}/>'
        for name, actor in (("end", ""), ("hop", f' SOAP-ENV:actor="{S11_NEXT}"'))
    )
    end = "</SOAP-ENV:Header>"
    envelope = read_envelope(xml.parse(spoiled(end, blocks + end)))
    missed = must_understand_problems(envelope, MS098, roles=HOP_ROLES)
    assert [one.element.tag for one in missed] == ["{urn:x}hop"]
    assert len(must_understand_problems(envelope, MS098)) == 2


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        pytest.param(' eb:signed="true"', "", "OtherXml", f"{HEADER}/eb:AckRequested", id="signed"),
        pytest.param(' eb:signed="true"', f' eb:signed="true" SOAP-ENV:actor="{S11_NEXT}"',
                     "OtherXml", f"{HEADER}/eb:AckRequested/@SOAP-ENV:actor", id="actor"),
        pytest.param("<eb:DuplicateElimination></eb:DuplicateElimination>", "", "Inconsistent",
                     f"{HEADER}/eb:MessageOrder", id="MessageOrder"),
        pytest.param("</SOAP-ENV:Header>", f'<eb:SyncReply SOAP-ENV:mustUnderstand="1" eb:version='
                     f'"2.0" SOAP-ENV:actor="{S11_NEXT}"/></SOAP-ENV:Header>', "Inconsistent",
                     f"{HEADER}/eb:MessageOrder", id="SyncReply"),
    ],
)  # fmt: skip
def test_blocks_of_2_0_that_break_a_rule_fail(old, new, code, place):
    value = message(
        MS20,
        header=header(duplicate_elimination=True, sequence_number=SequenceNumber(1)),
        ack_requested=(AckRequested(True),),
    )
    assert (code, "failure", place) in problems(old, new, value)


def test_of_a_receipt_and_a_hop_s_acknowledgment_the_receipt_counts():
    receipt = about(MS10, acknowledgment=Acknowledgment(timestamp=NOW, signed=True))
    hop = write_ebxml(
        about(MS10, acknowledgment=Acknowledgment(timestamp=NOW, type=ACKNOWLEDGMENT))
    ).decode()
    element = hop[hop.index("<eb:Acknowledgment") : hop.index("</SOAP-ENV:Header>")]
    reading = read(spoiled("</SOAP-ENV:Header>", f"{element}</SOAP-ENV:Header>", receipt))
    assert reading.message == receipt
    assert told(reading) == [("NotSupported", "warning", f"{HEADER}/eb:Acknowledgment")]


def test_a_party_of_2_0_has_a_role():
    party = Party((PartyId("urn:a"), PartyId("4711", "urn:duns")), "Buyer")
    value = message(MS20, header=header(from_party=party))
    assert read(write_ebxml(value)).message == value


def test_one_part_of_a_value_is_not_hidden_by_a_comment():
    reading = read(spoiled("urn:example:buyer", "urn:exam<!-- x -->ple:buyer"))
    assert reading.message == message()


TWO_ACTORS = message(MS20, ack_requested=(AckRequested(True), AckRequested(True, EB2_NEXT_MSH)))
RECEIPT_20 = about(MS20, acknowledgment=Acknowledgment(timestamp=NOW))


@pytest.mark.parametrize(
    ("old", "new", "value", "code", "place"),
    [
        pytest.param(f' SOAP-ENV:actor="{EB2_NEXT_MSH}"', "", TWO_ACTORS, "Inconsistent",
                     f"{HEADER}/eb:AckRequested[2]", id="two requests of one MSH"),
        pytest.param("</eb:Acknowledgment>", "</eb:Acknowledgment><eb:Acknowledgment/>", RECEIPT_20,
                     "OtherXml", f"{HEADER}/eb:Acknowledgment[1]", id="two acknowledgments"),
        pytest.param("</eb:Acknowledgment>", f'<ds:Reference xmlns:ds="{DS}"/></eb:Acknowledgment>',
                     RECEIPT_20, "OtherXml", f"{HEADER}/eb:Acknowledgment/ds:Reference",
                     id="a reference to nothing"),
        pytest.param("</eb:Reference>", '<eb:Schema location="urn:s">x</eb:Schema></eb:Reference>',
                     message(), "OtherXml", f"{BODY}/eb:Manifest/eb:Reference/eb:Schema",
                     id="text in a Schema"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_fails(old, new, value, code, place):
    assert (code, "failure", place) in problems(old, new, value)
