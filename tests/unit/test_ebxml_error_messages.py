"""What is wrong with an ebXML message is told in an error message, or in a SOAP fault."""

import pytest
from msgspec.structs import replace

from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import error_answer, refusal, ride, write_signal
from postroad.msh.ebxml_faults import fault, unsupported_service
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.ebxml_terms import reliable
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Lens
from postroad.reliability.delivery import Stage
from postroad.reliability.ebxml_sending import notice
from postroad.reliability.ebxml_terms import Error, ErrorCode, Severity
from postroad.wire import names, xml
from postroad.wire.ebms3 import PartyId
from postroad.wire.ebxml import MS098, kind_of
from postroad.wire.errors import EbmsError
from postroad.wire.errors import Severity as Severe
from postroad.wire.soap import read_envelope
from postroad.wire.soap_faults import Fault, read_fault
from tests.unit.ebxml_answering import (
    ANSWER_ID,
    ASKED,
    ORDER,
    RELIABLE,
    about,
    acknowledged,
    every_version,
    failure,
    heard,
    signal_about,
    transmitted,
)
from tests.unit.ebxml_world import BUYER, MESSAGE_ID, NOW, SELLER, World, alone

# Errors


@every_version
@pytest.mark.req(
    "MS098-11.5-02", "MS098-11.5-04", "MS098-8.4.6.3-03", "MS098-11.3-01", "MS098-11.3.1-01"
)
def test_an_error_message_goes_back_to_the_from_party(version: str) -> None:
    world = World(version)
    message = heard(world, about(world, failure()))
    header = message.header
    assert kind_of(message) == "error"
    assert (header.service.value, header.action) == (world.dialect.msh_service, "MessageError")
    assert (header.from_party, header.to_party) == (SELLER, BUYER)
    assert header.ref_to_message_id == MESSAGE_ID


@every_version
@pytest.mark.req("MS098-8.7.4-01", "MS098-8.7.5.2-01", "MS098-8.7.5.3-01", "MS098-8.7.5.4-01")
def test_an_error_has_code_severity_and_an_xpointer(version: str) -> None:
    world = World(version)
    errors = heard(world, about(world, failure())).error_list
    assert errors is not None
    assert errors.highest_severity == "Error"
    (error,) = errors.errors
    assert (error.error_code, error.severity) == ("Inconsistent", "Error")
    assert error.location == f"#xpointer({HEADER})"
    assert error.text == "what is wrong"


@pytest.mark.req("MS098-8.7.5.4-02")
def test_an_error_in_a_mime_part_is_located_by_its_content_id() -> None:
    world = World()
    errors = heard(world, about(world, failure("MimeProblem", "cid:part-1@buyer.example")))
    assert errors.error_list is not None
    assert errors.error_list.errors[0].location == "cid:part-1@buyer.example"


@pytest.mark.parametrize(
    ("code", "told"), [("EBMS:0101", "SecurityFailure"), ("EBMS:0007", "MimeProblem")]
)
def test_what_the_shared_checks_find_is_told_in_the_codes_of_ebxml(code: str, told: str) -> None:
    world = World()
    errors = heard(world, about(world, failure(code, None))).error_list
    assert errors is not None
    assert errors.errors[0].error_code == told


@every_version
@pytest.mark.req("MS098-11.5-03", "MS098-11-04")
def test_warnings_alone_make_no_error_message(version: str) -> None:
    warning = EbmsError("Unknown", "odd", severity=Severe.WARNING)
    assert about(World(version), warning) is None


@every_version
@pytest.mark.req("MS098-11.3-04")
def test_nothing_is_said_about_an_error_or_an_acknowledgment(version: str) -> None:
    world = World(version, ebxml=ASKED)
    for answer in (about(world, failure()), acknowledged(world)[0]):
        message = heard(world, answer)
        told = error_answer(
            [failure()], world.dialect, about=message, message_id="x@buyer.example", now=NOW
        )
        assert told is None


def test_which_p_mode_nearly_fitted_is_not_told() -> None:
    world = World()
    made = world.package(ORDER)
    found = world.receive(made, made.envelope.replace(b">NewOrder<", b">OldOrder<"))
    assert found.ebxml is not None
    answer = refusal(found, message_id=ANSWER_ID, now=NOW)
    assert isinstance(answer, Answer)
    assert b"OldOrder" not in answer.envelope
    assert b"no P-Mode fits this message" in answer.envelope


@every_version
def test_a_signed_p_mode_signs_its_errors(version: str) -> None:
    world = World(version, signed=True)
    answer = about(world, failure(), signing=world.sellers_signing)
    assert answer is not None
    assert world.hear(answer).trusted


@every_version
@pytest.mark.req(
    "MS098-10.4-02", "MS098-10.4-03", "MS098-10.4-04", "MS098-10.4-05", "MS098-10.4-06",
    "MS098-10.4-07",
)  # fmt: skip
@pytest.mark.parametrize(
    ("stage", "severity"), [(Stage.FAILED, "Error"), (Stage.IN_DOUBT, "Warning")]
)
def test_a_delivery_failure_notice_goes_to_the_from_party(
    version: str, stage: Stage, severity: str
) -> None:
    world = World(version, ebxml=RELIABLE)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    signal = notice(reliable(found.ebxml), world.terms, stage, "urn:example:relay")
    assert signal is not None
    answer = write_signal(signal, world.dialect, message_id=ANSWER_ID, now=NOW, to=found.ebxml)
    message = heard(world, answer)
    assert message.header.from_party.party_ids == (PartyId("urn:example:relay"),)
    assert message.header.to_party == BUYER
    assert message.header.action == "MessageError"
    assert message.header.is_reliable
    assert message.error_list is not None
    assert [(one.error_code, one.severity) for one in message.error_list.errors] == [
        ("DeliveryFailure", severity)
    ]


@pytest.mark.req("MS098-11.5-03")
def test_a_warning_about_something_else_rides() -> None:
    world = World("0.98b", ebxml=RELIABLE)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    error = Error(ErrorCode.NOT_SUPPORTED, "odd", Severity.WARNING)
    signal = replace(signal_about(found.ebxml), acknowledgment=None, service=None, error=error)
    with pytest.raises(ValueError, match="rides"):
        write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)
    _, errors = ride(signal, MS098, to=found.ebxml, now=NOW)
    assert errors is not None
    assert errors.highest_severity == "Warning"


# Faults


def read(envelope: bytes) -> Fault | None:
    return read_fault(read_envelope(xml.parse(envelope)))


@pytest.mark.req("MS098-11-03", "MS098-9-02")
def test_a_fault_is_soaps_own() -> None:
    world = World()
    message = world.read(world.package())
    found = read(fault(unsupported_service(message)))
    assert found is not None
    assert found.code == f"{{{names.S11}}}MustUnderstand"


@pytest.mark.req("MS098-7.6-01", "MS098-11-03")
def test_what_cannot_be_read_is_refused_with_a_fault() -> None:
    found = inspect_message([b"<SOAP-ENV:Envelope>"], Lens(NOW, receiving=True))
    refused = refusal(found, message_id=ANSWER_ID, now=NOW)
    assert isinstance(refused, Fault)
    assert refused.code == f"{{{names.S11}}}Client"
    again = read(fault(refused))
    assert again is not None
    assert again.reason == refused.reason


@every_version
@pytest.mark.req("MS098-11.3-01")
def test_what_can_be_read_is_refused_with_an_error_message(version: str) -> None:
    world = World(version)
    made = world.package(ORDER)
    found = world.look(alone(made.envelope))
    refused = refusal(found, message_id=ANSWER_ID, now=NOW)
    assert isinstance(refused, Answer)
    errors = heard(world, refused).error_list
    assert errors is not None
    assert errors.errors[0].error_code == "MimeProblem"


def test_a_party_that_cannot_be_written_is_told_by_a_fault() -> None:
    world = World()
    made = world.package()
    found = world.receive(made, made.envelope.replace(b"urn:example:buyer", b"1234567890123"))
    refused = refusal(found, message_id=ANSWER_ID, now=NOW)
    assert isinstance(refused, Fault)
