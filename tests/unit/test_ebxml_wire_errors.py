"""Problems told in the older tongue: codes, severities, places, and back."""

import pytest

from postroad.wire.ebxml import MS098, MS20
from postroad.wire.ebxml_errors import MOST_ERRORS, ebxml_code, to_wire
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.errors import EBXML_CODES, ERRORS, EbmsError, Severity
from tests.unit.ebxml_samples import VERSIONS, about, problems, read

req = pytest.mark.req
PLACE = "/SOAP-ENV:Envelope/SOAP-ENV:Header/eb:MessageHeader/eb:CPAId"


def problem(code="Inconsistent", detail="two and two are five", **more):
    return EbmsError(code, detail, **more)


@req("MS098-8.7.8-01", "MS098-8.7.9-01")
def test_every_code_of_the_specification_is_known():
    assert set(EBXML_CODES) == {
        *("ValueNotRecognized", "NotSupported", "Inconsistent", "OtherXml", "DeliveryFailure"),
        *("TimeToLiveExpired", "SecurityFailure", "MimeProblem", "Unknown"),
    }
    assert {ERRORS[code].origin for code in EBXML_CODES} == {"ebXML"}


@req("MS098-8.7.8-01", "MS098-8.7.9-01")
@pytest.mark.parametrize("dialect", VERSIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("code", EBXML_CODES)
def test_a_problem_goes_over_the_wire_and_comes_back(code, dialect):
    sent = to_wire([problem(code, location=PLACE)], dialect)
    found = read(write_ebxml(about(dialect, error_list=sent)))
    assert not found.problems
    assert found.message.error_list == sent
    (one,) = found.message.error_list.errors
    assert (one.error_code, one.text) == (code, "two and two are five")
    assert one.location == f"#xpointer({PLACE})"
    assert one.severity == "Error"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("EBMS:0001", "ValueNotRecognized"),
        ("EBMS:0002", "NotSupported"),
        ("EBMS:0003", "Inconsistent"),
        ("EBMS:0004", "Unknown"),
        ("EBMS:0007", "MimeProblem"),
        ("EBMS:0008", "NotSupported"),
        ("EBMS:0009", "OtherXml"),
        ("EBMS:0010", "Inconsistent"),
        ("EBMS:0101", "SecurityFailure"),
        ("EBMS:0102", "SecurityFailure"),
        ("EBMS:0103", "SecurityFailure"),
        ("EBMS:0202", "DeliveryFailure"),
        ("TimeToLiveExpired", "TimeToLiveExpired"),
    ],
)
def test_codes_of_ebms_3_have_their_counterpart(code, expected):
    assert ebxml_code(problem(code)) == expected


@req("MS098-8.7.4-01", "MS098-8.7.5.3-01")
def test_failures_are_errors_and_come_first():
    given = [problem(severity=Severity.WARNING), problem("OtherXml")]
    sent = to_wire(given, MS098)
    assert [one.severity for one in sent.errors] == ["Error", "Warning"]
    assert sent.highest_severity == "Error"
    assert to_wire(given[:1], MS098).highest_severity == "Warning"


@req("MS098-8.7.5.4-01")
def test_the_place_of_an_element_is_an_xpointer():
    (one,) = to_wire([problem(location=PLACE)], MS098).errors
    assert one.location == f"#xpointer({PLACE})"
    shared = "S11:Envelope/S11:Header/eb:MessageHeader"
    (one,) = to_wire([problem(location=shared)], MS098).errors
    assert one.location == "#xpointer(/SOAP-ENV:Envelope/SOAP-ENV:Header/eb:MessageHeader)"


@req("MS098-8.7.5.4-02")
def test_the_place_of_a_mime_part_is_its_content_id():
    (one,) = to_wire([problem("MimeProblem", location="cid:order@buyer.example")], MS098).errors
    assert one.location == "cid:order@buyer.example"


@req("MS098-8.7.5.4-03")
def test_no_location_points_into_a_payload():
    (one,) = to_wire([problem("EBMS:0003", location="cid:order@buyer.example")], MS098).errors
    assert one.location is None


@pytest.mark.parametrize("place", ["MIME", "HTTP", "envelope", None, "MIME part 2", "a:b/…/c"])
def test_a_place_that_is_none_in_the_message_is_left_out(place):
    (one,) = to_wire([problem(location=place)], MS098).errors
    assert one.location is None


@req("MS098-8.7.7-01")
@pytest.mark.parametrize("code", EBXML_CODES)
def test_the_short_description_of_the_table_is_never_the_text(code):
    (one,) = to_wire([problem(code, ERRORS[code].short_description)], MS098).errors
    assert one.text == ""


@req("MS098-8.7-01")
def test_without_a_problem_there_is_no_error_list():
    with pytest.raises(ValueError, match="at least one error"):
        to_wire([], MS098)


def test_a_list_is_not_endless():
    assert len(to_wire([problem()] * 1000, MS098).errors) == MOST_ERRORS


def test_the_context_of_the_codes_is_that_of_the_version():
    (one,) = to_wire([problem()], MS20).errors
    assert one.code_context == "urn:oasis:names:tc:ebxml-msg:service:errors"


def test_the_place_of_a_problem_that_was_read_leads_back_to_the_element():
    ((_, _, place),) = problems("urn:example:buyer", "4711")
    (one,) = to_wire([problem(location=place)], MS098).errors
    assert one.location == (
        "#xpointer(/SOAP-ENV:Envelope/SOAP-ENV:Header/eb:MessageHeader/eb:From/eb:PartyId)"
    )
