"""What is written of ebXML 0.98b: each rule of section 8 for senders, read without Postroad."""

from datetime import timedelta

import pytest
from lxml import etree

from postroad.wire.ebms3 import (
    Description,
    Party,
    PartyId,
    Schema,
    Service,
)
from postroad.wire.ebxml import (
    ACKNOWLEDGMENT,
    DELIVERY_RECEIPT,
    MS098,
    MS20,
    Acknowledgment,
    Error,
    ErrorList,
    Extension,
    Manifest,
    ManifestReference,
    SequenceNumber,
    StatusData,
    Via,
)
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.names import EB1, S11
from tests.changing import replace
from tests.unit.ebxml_samples import (
    NOW,
    SELLER,
    about,
    find,
    header,
    message,
    refused,
    reliable,
    trace,
    whole,
    written,
)

req = pytest.mark.req
CONTEXT = MS098.error_code_context


def error(**changes):
    given = Error(error_code="Inconsistent", code_context=CONTEXT, text="two and two are five")
    return replace(given, **changes)


EXTENSIONS = {
    "MessageHeader": whole(),
    "TraceHeaderList": whole(),
    "Via": whole(),
    "Manifest": whole(),
    "ErrorList": about(error_list=ErrorList((error(),))),
    "StatusData": about(status_data=StatusData("0@seller.example", "Received", NOW)),
    "Acknowledgment": about(acknowledgment=Acknowledgment(timestamp=NOW)),
}


@req("MS098-8.1.2-04", "MS098-8.1.1-01", "MS098-8.1.1-02")
def test_the_declaration_tells_version_and_encoding():
    assert write_ebxml(message()).startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n')


@req("MS098-8.2-03", "MS098-8.2.1-01")
def test_the_namespace_is_declared_on_the_envelope():
    assert written(message()).nsmap["eb"] == "http://www.ebxml.org/namespaces/messageHeader"


@req("MS098-8.2-01")
def test_all_that_ebxml_defines_is_in_its_namespace():
    for value in EXTENSIONS.values():
        for element in written(value).iter("*"):
            assert etree.QName(element).namespace in (EB1, S11)


@req("MS098-8.3-01", "MS098-8.9-01", "MS098-8.2.2-01", "MS098-8.4-01", "MS098-8.13.2-01")
@pytest.mark.parametrize("name", EXTENSIONS)
def test_every_message_has_a_message_header_in_the_header_and_then_the_body(name):
    tree = written(EXTENSIONS[name])
    assert [etree.QName(child).localname for child in tree] == ["Header", "Body"]
    find(tree, "/S:Envelope/S:Header/eb:MessageHeader")


@req(
    *("MS098-8.4-02", "MS098-8.4.10-01", "MS098-8.4.10-02", "MS098-8.4.11-01"),
    *("MS098-8.5-03", "MS098-8.5.1-01", "MS098-8.5.2-01", "MS098-8.5.2-02"),
    *("MS098-8.6-01", "MS098-8.6-03", "MS098-8.6.3-01", "MS098-8.6.3-02"),
    *("MS098-8.7.2-01", "MS098-8.7.3-01", "MS098-8.7.3-02"),
    *("MS098-8.10-02", "MS098-8.10.2-01", "MS098-8.10.3-01", "MS098-8.10.3-02"),
    *("MS098-8.11-01", "MS098-8.11.3-01", "MS098-8.11.4-01", "MS098-8.11.4-02"),
    *("MS098-8.12-01", "MS098-8.12.3-01", "MS098-8.12.4-01", "MS098-8.12.4-02"),
)
@pytest.mark.parametrize("name", EXTENSIONS)
def test_every_extension_has_its_version_and_must_be_understood(name):
    element = find(written(EXTENSIONS[name]), f"//eb:{name}")
    assert element.get(f"{{{EB1}}}version") == "0.98b"
    assert element.get(f"{{{S11}}}mustUnderstand") == "1"


@req(
    *("MS098-8.4.1-01", "MS098-8.4.1-02", "MS098-8.4.1-03", "MS098-8.4.2-01", "MS098-8.4.3-01"),
    *("MS098-8.4.4-01", "MS098-8.4.5-01", "MS098-8.4.6-01", "MS098-8.4.6.3-02"),
)
def test_the_message_header_has_all_that_it_must_have_and_nothing_more():
    top = find(written(message()), "//eb:MessageHeader")
    assert [(etree.QName(one).localname, "".join(one.itertext())) for one in top] == [
        ("From", "urn:example:buyer"),
        ("To", "1234567890123"),
        ("CPAId", "http://cpa.example/1"),
        ("ConversationId", "20260131-1"),
        ("Service", "urn:example:orders"),
        ("Action", "NewOrder"),
        ("MessageData", "1@buyer.example2026-01-31T12:00:00.000Z"),
    ]
    assert len(find(top, "eb:From")) == len(find(top, "eb:To")) == 1
    assert find(top, "eb:To/eb:PartyId/@eb:type") == "urn:duns"


@req("MS098-8.4.6.2-01", "MS098-8.5.3.3-01", "MS098-8.12.1-01")
def test_times_are_written_in_utc():
    value = whole(
        header=reliable(time_to_live=NOW + timedelta(days=1), ref_to_message_id="0@seller.example"),
        acknowledgment=Acknowledgment(timestamp=NOW),
    )
    tree = written(value)
    assert tree.xpath("//*[local-name()='Timestamp']/text()") == ["2026-01-31T12:00:00.000Z"] * 3
    assert find(tree, "//eb:TimeToLive/text()") == "2026-02-01T12:00:00.000Z"
    refused(message(header=header(timestamp=NOW.replace(tzinfo=None))), "no time zone")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"from_party": Party((), "")}, "From needs a PartyId", id="no From"),
        pytest.param({"to_party": Party((), "")}, "To needs a PartyId", id="no To"),
        pytest.param({"cpa_id": ""}, "CPAId is empty", id="no CPAId"),
        pytest.param({"conversation_id": " "}, "ConversationId has white space", id="blank"),
        pytest.param({"service": Service("")}, "Service", id="no Service"),
        pytest.param({"action": ""}, "Action is empty", id="no Action"),
        pytest.param({"message_id": ""}, "MessageId is empty", id="no MessageId"),
        pytest.param({"action": "a\x00b"}, "XML forbids", id="no XML"),
    ],
)
@req("MS098-8.4.1-01", "MS098-8.4.1-02", "MS098-8.4.2-01", "MS098-8.4.3-01", "MS098-8.4.4-01")
@req("MS098-8.4.5-01")
def test_a_header_without_a_required_value_is_refused(changes, why):
    refused(message(header=header(**changes)), why)


@req("MS098-8.4.6.1-01")
@pytest.mark.parametrize("id", ["plain", "a b@c", "<a@b>", "a@b>", "@b"])
def test_a_message_id_has_the_form_of_rfc_2392(id):
    refused(message(header=header(message_id=id)), "MessageId")


@req("MS098-8.4.1-06")
def test_a_party_id_without_a_type_is_a_uri():
    refused(message(header=header(to_party=Party((PartyId("4711"),), ""))), "must be a URI")


@req("MS098-8.4.1-03")
def test_a_party_of_0_98b_has_one_party_id():
    two = Party((PartyId("urn:a"), PartyId("urn:b")), "")
    refused(message(header=header(from_party=two)), "second PartyId")
    assert len(written(message(MS20, header=header(from_party=two))).xpath("//*[.='urn:b']")) == 1


@req("MS098-8.4.4.1-02")
def test_a_service_without_a_type_is_a_uri():
    refused(message(header=header(service=Service("orders"))), "must be a URI")
    tree = written(message(header=header(service=Service("orders", "example"))))
    assert find(tree, "//eb:Service/@eb:type") == "example"


@req("MS098-8.4.6.3-01")
def test_a_message_does_not_refer_to_itself():
    own = header().message_id
    refused(message(header=header(ref_to_message_id=own)), "an earlier message")


@req("MS098-8.4.4-02")
@pytest.mark.parametrize("rest", ["", "Orders"])
def test_services_of_the_specification_are_for_mshs_alone(rest):
    service = Service(f"uri:www.ebxml.org/messageService/{rest}")
    refused(message(header=header(service=service)), "is for MSHs")


@req("MS098-8.4.7-01")
def test_quality_of_service_is_written_when_something_is_said():
    assert not written(message()).xpath("//*[local-name()='QualityOfServiceInfo']")
    top = find(
        written(
            message(
                header=reliable(
                    message_order_semantics="Guaranteed", delivery_receipt_requested="UnSigned"
                )
            )
        ),
        "//eb:MessageHeader/eb:QualityOfServiceInfo",
    )
    assert dict(top.attrib) == {
        f"{{{EB1}}}deliverySemantics": "OnceAndOnlyOnce",
        f"{{{EB1}}}messageOrderSemantics": "Guaranteed",
        f"{{{EB1}}}deliveryReceiptRequested": "UnSigned",
    }


@req("MS098-8.4.7.1-02")
@pytest.mark.parametrize(
    "name",
    ["delivery_semantics", "message_order_semantics", "delivery_receipt_requested"],
)
def test_words_that_are_none_of_the_enumeration_are_refused(name):
    refused(message(header=header(**{name: "Perhaps"})), "is one of")


@req("MS098-8.4.7.2-03")
def test_order_is_guaranteed_only_with_once_and_only_once():
    refused(message(header=header(message_order_semantics="Guaranteed")), "guarantees order")


@req("MS098-8.4.8-04")
def test_a_sequence_number_needs_once_and_only_once():
    refused(message(header=header(sequence_number=SequenceNumber(0, "Reset"))), "OnceAndOnlyOnce")
    best = header(sequence_number=SequenceNumber(0, "Reset"), delivery_semantics="BestEffort")
    refused(message(header=best), "OnceAndOnlyOnce")


@req("MS098-8.4.8-08", "MS098-8.4.8-09", "MS098-8.4.8-10")
@pytest.mark.parametrize(
    "number",
    [
        SequenceNumber(-1),
        SequenceNumber(100_000_000),
        SequenceNumber(1, "Reset"),
        SequenceNumber(1, "Again"),
    ],
)
def test_a_sequence_number_out_of_range_or_with_a_wrong_status_is_refused(number):
    refused(message(header=reliable(sequence_number=number)), "SequenceNumber|status")


def test_a_sequence_number_tells_its_status():
    tree = written(message(header=reliable(sequence_number=SequenceNumber(99_999_999))))
    number = find(tree, "//eb:MessageHeader/eb:SequenceNumber")
    assert (number.text, number.get(f"{{{EB1}}}status")) == ("99999999", "Continue")


@req("MS098-8.4.9-01", "MS098-8.4.9-02", "MS098-8.10.5.2-02", "MS098-8.10.5.2-03")
def test_descriptions_tell_their_language_each_another():
    texts = (Description("An order", "en"), Description("Ein Auftrag", "de-AT"))
    value = message(
        header=header(descriptions=texts),
        manifest=Manifest((ManifestReference(href="cid:a@b", descriptions=texts),)),
    )
    langs = written(value).xpath("//*[local-name()='Description']/@xml:lang")
    assert langs == ["en", "de-AT"] * 2
    refused(message(header=header(descriptions=texts[:1] * 2)), "another language")
    refused(message(header=header(descriptions=(Description("x", "no language"),))), "language")


@req("MS098-8.2.3-01", "MS098-8.2.3-02")
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a", "<a/>", "not in a foreign namespace"),
        (f"{{{EB1}}}a", f'<a xmlns="{EB1}"/>', "not in a foreign namespace"),
        ("{urn:x}a", "<a xmlns='urn:x'>", "cannot be sent"),
        ("{urn:x}a", "<b xmlns='urn:x'/>", "called otherwise"),
        ("{urn:x}a", "<a xmlns='urn:x'><?b c?></a>", "processing instruction"),
        ("{urn:x}a", f"<a xmlns='urn:x'><Via xmlns='{EB1}'/></a>", "not all of it"),
    ],
)
def test_foreign_elements_are_qualified_and_really_foreign(name, text, why):
    references = (ManifestReference(href="cid:a@b", extensions=(Extension(name, text),)),)
    refused(message(manifest=Manifest(references)), why)


@req("MS098-8.2.3-03")
def test_the_foreign_element_that_postroad_adds_says_whether_it_must_be_understood():
    tree = written(whole(trace=(trace(sequence_number=7),)))
    number = find(tree, "//eb:TraceHeader/rm:SequenceNumber")
    assert (number.text, number.get(f"{{{S11}}}mustUnderstand")) == ("7", "0")


@pytest.mark.parametrize("number", [0, 4_294_967_296])
def test_a_number_of_the_draft_out_of_range_is_refused(number):
    refused(whole(trace=(trace(sequence_number=number),)), "1 to 4294967295")


@req("MS098-8.2.2-02", "MS098-8.13.3-01", "MS098-8.5-02")
def test_a_trace_is_written_if_there_is_one():
    assert not written(message()).xpath("//eb:TraceHeaderList", namespaces={"eb": EB1})
    one = find(written(whole()), "//eb:TraceHeaderList/eb:TraceHeader")
    assert [(etree.QName(child).localname, child.text) for child in one] == [
        ("SenderURI", "https://buyer.example/msh"),
        ("ReceiverURI", "https://hub.example/msh"),
        ("Timestamp", "2026-01-31T12:00:00.000Z"),
    ]
    refused(whole(trace=(trace(sender_uri="buyer"),)), "SenderURI must be a URI")


@req("MS098-8.6-02", "MS098-8.6-05", "MS098-8.6.5-01", "MS098-8.6.6-01", "MS098-8.6.8-01")
def test_a_via_is_for_the_next_msh():
    via = Via(
        sync_reply=False,
        reliable_messaging_method="Transport",
        ack_requested="UnSigned",
        cpa_id="hop",
        service=Service("urn:proxy"),
        action="Log",
    )
    element = find(written(whole(via=via)), "/S:Envelope/S:Header/eb:Via")
    assert element.get(f"{{{S11}}}actor") == "http://schemas.xmlsoap.org/soap/actor/next"
    assert element.get(f"{{{EB1}}}syncReply") == "false"
    assert element.get(f"{{{EB1}}}reliableMessagingMethod") == "Transport"
    assert element.get(f"{{{EB1}}}ackRequested") == "UnSigned"
    assert [child.text for child in element] == ["hop", "urn:proxy", "Log"]


@req("MS098-8.6-04", "MS098-8.6.8-02", "MS098-8.6.5-01", "MS098-8.6.6-01")
@pytest.mark.parametrize(
    ("via", "why"),
    [
        (Via(), "a Via has"),
        (Via(service=Service("urn:s"), action="A"), "a Via has"),
        (Via(cpa_id="c", service=Service("urn:s")), "both or not at all"),
        (Via(cpa_id="c", action="A"), "both or not at all"),
        (Via(reliable_messaging_method="ebxml"), "is one of"),
        (Via(ack_requested="signed"), "is one of"),
    ],
)
def test_a_via_that_says_too_little_or_nonsense_is_refused(via, why):
    refused(whole(via=via), why)


@req(
    *("MS098-8.7.1-01", "MS098-8.7.5.1-01", "MS098-8.7.5.2-01", "MS098-8.7.5.3-01"),
    *("MS098-8.7.5.5-01",),
)
def test_an_error_has_all_that_it_must_have():
    given = error(location="#xpointer(/a)", severity="Warning", lang="en-GB")
    top = find(written(about(error_list=ErrorList((given,)))), "/S:Envelope/S:Header/eb:ErrorList")
    assert top.get("id") == "errors"
    one = find(top, "eb:Error")
    assert one.text == "two and two are five"
    assert dict(one.attrib) == {
        f"{{{EB1}}}codeContext": "http://www.ebxml.org/messageServiceErrors",
        f"{{{EB1}}}errorCode": "Inconsistent",
        f"{{{EB1}}}severity": "Warning",
        f"{{{EB1}}}location": "#xpointer(/a)",
        "{http://www.w3.org/XML/1998/namespace}lang": "en-GB",
    }


@req("MS098-8.7.4-01")
@pytest.mark.parametrize(
    ("severities", "highest"),
    [(("Warning",), "Warning"), (("Warning", "Error"), "Error"), (("Error",), "Error")],
)
def test_the_highest_severity_is_that_of_the_worst_error(severities, highest):
    errors = ErrorList(tuple(error(severity=one) for one in severities))
    tree = written(about(error_list=errors))
    assert find(tree, "//eb:ErrorList/@eb:highestSeverity") == highest


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"error_code": ""}, "errorCode is empty", id="no code"),
        pytest.param({"severity": "error"}, "severity is one of", id="severity"),
        pytest.param({"code_context": "mine"}, "codeContext must be a URI", id="context"),
        pytest.param({"lang": "us_en"}, "language", id="lang"),
        pytest.param({"location": "/a/b"}, "XPointer or a Content-ID", id="location"),
        pytest.param({"text": "Unknown error"}, "no text for an Error", id="short description"),
        pytest.param({"min_retry_secs": -1}, "seconds", id="retry"),
    ],
)
@req("MS098-8.7.5.1-01", "MS098-8.7.5.2-01", "MS098-8.7.5.3-01", "MS098-8.7.5.5-01")
@req("MS098-8.7.5.4-01", "MS098-8.7.7-01")
def test_an_error_that_breaks_a_rule_is_refused(changes, why):
    refused(about(error_list=ErrorList((error(**changes),))), why)


@req("MS098-8.7-01")
def test_an_error_list_without_errors_is_refused():
    refused(about(error_list=ErrorList(())), "at least one error")


@req("MS098-8.2.2-03", "MS098-8.4.6.3-03", "MS098-8.4.6.3-04")
@pytest.mark.parametrize(
    "content",
    [
        {"error_list": ErrorList((error(severity="Warning"),))},
        {"acknowledgment": Acknowledgment(timestamp=NOW)},
    ],
)
def test_errors_and_acknowledgments_tell_which_message_they_are_about(content):
    tree = written(about(**content))
    assert find(tree, "//eb:MessageData/eb:RefToMessageId/text()") == "0@seller.example"
    refused(message(**content), "needs a RefToMessageId")


def test_a_text_for_people_is_never_refused():
    errors = ErrorList((error(text=" two\x00and \ud800 "),))
    assert find(written(about(error_list=errors)), "//eb:Error/text()") == "two\ufffdand \ufffd"


def test_a_transient_error_tells_how_long_to_wait():
    errors = ErrorList((error(min_retry_secs=30),))
    assert find(written(about(error_list=errors)), "//eb:Error/@rm:MinRetrySecs") == "30"


@req(
    *("MS098-8.10-02", "MS098-8.10.1-01", "MS098-8.10.5-02", "MS098-8.10.5-03"),
    *("MS098-8.10.5-04", "MS098-8.10.5-05", "MS098-8.10.5.1-02", "MS098-8.10.5.2-01"),
)
def test_a_manifest_refers_to_the_payloads():
    reference = ManifestReference(
        href="cid:order@buyer.example",
        role="http://role.example/order",
        schemas=(Schema("http://schema.example/order.xsd", "2.1"),),
        descriptions=(Description("An order", "en"),),
    )
    top = find(written(message(manifest=Manifest((reference,)))), "/S:Envelope/S:Body/eb:Manifest")
    assert top.get("id") == "manifest"
    one = find(top, "eb:Reference")
    assert one.get("id") == "payload-1"
    xlink = {key.rpartition("}")[2]: value for key, value in one.attrib.items() if "xlink" in key}
    assert xlink == {
        "type": "simple",
        "href": "cid:order@buyer.example",
        "role": "http://role.example/order",
    }
    assert find(one, "eb:Schema/@eb:location") == "http://schema.example/order.xsd"
    assert find(one, "eb:Schema/@eb:version") == "2.1"


@req("MS098-8.10-02", "MS098-8.10.1-01", "MS098-8.10.5-02", "MS098-8.10.5-04", "MS098-8.10.5-05")
@req("MS098-8.10.5.1-02")
@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (Manifest(()), "at least one Reference"),
        (Manifest((ManifestReference(href="cid:a@b"),), id=""), "XML id"),
        (Manifest((ManifestReference(href="cid:a@b"),), id="1 b"), "XML id"),
        (Manifest((ManifestReference(href="cid:a@b", id="a:b"),)), "XML id"),
        (Manifest((ManifestReference(href="order"),)), "href must be a URI"),
        (Manifest((ManifestReference(href=""),)), "href is empty"),
        (Manifest((ManifestReference(href="cid:a@b", role="order"),)), "role must be a URI"),
        (
            Manifest((ManifestReference(href="cid:a@b", schemas=(Schema("order"),)),)),
            "location must be a URI",
        ),
        (Manifest((ManifestReference(href="cid:a@b", id="manifest"),)), "stands twice"),
    ],
)
def test_a_manifest_that_breaks_a_rule_is_refused(manifest, why):
    refused(message(manifest=manifest), why)


@req("MS098-8.11.1-01", "MS098-8.11.5-01")
@pytest.mark.parametrize("status", ["Received", "NotRecognized", "UnAuthorized"])
def test_a_status_tells_of_which_message_it_is(status):
    when = NOW if status == "Received" else None
    tree = written(about(status_data=StatusData("0@seller.example", status, when)))
    top = find(tree, "/S:Envelope/S:Body/eb:StatusData")
    assert find(top, "@eb:messageStatus") == status
    assert find(top, "eb:RefToMessageId/text()") == "0@seller.example"
    assert len(top) == (2 if when else 1)


@req("MS098-8.11.2-01", "MS098-8.11.5-01")
@pytest.mark.parametrize(
    ("status", "why"),
    [
        (StatusData("0@seller.example", "NotRecognized", NOW), "no Timestamp"),
        (StatusData("0@seller.example", "UnAuthorized", NOW), "no Timestamp"),
        (StatusData("0@seller.example", "Forwarded", NOW), "messageStatus is one of"),
        (StatusData("", "Received", NOW), "RefToMessageId is empty"),
    ],
)
def test_a_status_that_breaks_a_rule_is_refused(status, why):
    refused(about(status_data=status), why)


@req("MS098-8.12.5-01", "MS098-8.12.6-01")
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("type", "said"),
    [(DELIVERY_RECEIPT, "DeliveryReceipt"), (ACKNOWLEDGMENT, "Acknowledgement")],
)
def test_an_acknowledgment_tells_its_type_and_whether_it_is_signed(type, said, signed):
    receipt = Acknowledgment(timestamp=NOW, type=type, signed=signed)
    top = find(written(about(acknowledgment=receipt)), "/S:Envelope/S:Body/eb:Acknowledgment")
    assert find(top, "@eb:type") == said
    assert find(top, "@eb:signed") == ("true" if signed else "false")


def test_who_acknowledges_is_said_by_the_message_alone():
    receipt = Acknowledgment(timestamp=NOW, from_party=SELLER)
    refused(about(acknowledgment=receipt), "the From of the message")


@req("MS098-8.12.5-01")
def test_an_acknowledgment_of_an_unknown_type_is_refused():
    refused(about(acknowledgment=Acknowledgment(timestamp=NOW, type="Perhaps")), "is one of")


@req("MS098-8.13.4-01", "MS098-8.13.4-02", "MS098-8.13.5-02", "MS098-8.13.5-03")
@pytest.mark.parametrize(
    "content",
    [
        {"manifest": message().manifest, "status_data": StatusData("0@a", "NotRecognized")},
        {"error_list": ErrorList((error(),)), "status_data": StatusData("0@a", "NotRecognized")},
        {"error_list": ErrorList((error(),)), "manifest": message().manifest},
    ],
)
def test_elements_that_exclude_each_other_are_refused(content):
    given = {"manifest": None} | content
    value = message(header=header(ref_to_message_id="0@seller.example"), **given)
    refused(value, "excludes a Manifest|no Manifest")


@req("MS098-8.13.5-01", "MS098-8.13.6-01")
def test_a_warning_and_an_acknowledgment_may_be_with_everything():
    value = whole(
        header=reliable(ref_to_message_id="0@seller.example"),
        error_list=ErrorList((error(severity="Warning"),)),
        acknowledgment=Acknowledgment(timestamp=NOW),
    )
    names = [etree.QName(one).localname for one in written(value).xpath("/*/*/*")]
    header_names = ["MessageHeader", "TraceHeaderList", "Via", "ErrorList"]
    assert names == [*header_names, "Manifest", "Acknowledgment"]


@req("MS098-8.7.1-01")
def test_an_id_stands_once_in_a_message():
    value = message(
        header=header(ref_to_message_id="0@seller.example"),
        error_list=ErrorList((error(severity="Warning"),), id="manifest"),
    )
    refused(value, "stands twice")
