"""What MSHs say to each other in ebXML: acknowledgments, errors, faults, ping and status, links."""

from typing import Any

import pytest
from lxml import etree
from msgspec.structs import replace

from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import (
    SentEbxml,
    answer_problems,
    asked_by_partner,
    error_answer,
    refusal,
    ride,
    sent_ebxml,
    write_signal,
)
from postroad.msh.ebxml_faults import fault, unsupported_service
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.ebxml_link import link_message, read_link_answer, write_link_answer
from postroad.msh.ebxml_outbound import hop, via_of
from postroad.msh.ebxml_services import ping, pong, status_request, status_response
from postroad.msh.ebxml_terms import header_terms, party_name, reliable
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Inspection, Lens
from postroad.reliability import link, link_receiver
from postroad.reliability.delivery import Stage
from postroad.reliability.ebxml import (
    SERVICE_000,
    AckType,
    Hop,
    Kind,
    Known,
    Profile,
    Receiver,
    Signal,
    Step,
    receive,
)
from postroad.reliability.ebxml_sending import Word, notice, said
from postroad.reliability.ebxml_terms import Error, ErrorCode, Severity, agree
from postroad.wire import names, xml
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import MS098, MS20, EbxmlMessage, kind_of
from postroad.wire.errors import EbmsError
from postroad.wire.errors import Severity as Severe
from postroad.wire.soap import read_envelope
from postroad.wire.soap_faults import Fault, read_fault
from tests.unit.ebxml_world import (
    BUYER,
    CPA,
    MESSAGE_ID,
    NOW,
    SELLER,
    VERSIONS,
    World,
    alone,
    later,
)

ORDER = b"<order/>"
ANSWER_ID = "answer-1@seller.example"
RELIABLE = {"delivery_semantics": "OnceAndOnlyOnce"}
ASKED = {**RELIABLE, "ack_requested": "UnSigned"}
SIGNED = {**RELIABLE, "ack_requested": "Signed"}
OLDER = ("0.98b", "1.0")
BUYER_URI, SELLER_URI = "http://buyer.example/msh", "http://seller.example/msh"

every_version = pytest.mark.parametrize("version", VERSIONS)


def transmitted(world: World) -> tuple[Inspection, Any]:
    """A message as the seller finds it, and as the buyer packaged it."""
    made = world.package(ORDER)
    envelope = hop(
        made.envelope,
        world.dialect,
        sender_uri=BUYER_URI,
        receiver_uri=SELLER_URI,
        now=NOW,
        via=via_of(world.match.leg),
    )
    found = world.receive(made, envelope)
    assert found.holds, found.problems
    return found, made


def acknowledged(world: World, **given: Any) -> tuple[Answer | None, Any]:
    """The seller's acknowledgment of a message, by way of the machine."""
    found, made = transmitted(world)
    message, terms = found.ebxml, found.ebxml_terms
    assert message is not None
    assert terms is not None
    seller = Receiver(party_name(SELLER), SELLER_URI)
    reception = receive(reliable(message), terms, seller, later(5))
    assert reception.acknowledgment is not None
    references = found.verification.signed_references if found.verification else ()
    answer = write_signal(
        reception.acknowledgment,
        message.dialect,
        message_id=ANSWER_ID,
        now=later(6),
        to=message,
        signing=world.sellers_signing,
        references=references,
        **given,
    )
    return answer, made


def heard(world: World, answer: Answer | None) -> EbxmlMessage:
    """What the buyer reads."""
    assert answer is not None
    found = world.hear(answer)
    assert found.holds, found.problems
    assert found.ebxml is not None
    return found.ebxml


def failure(code: str = "Inconsistent", location: str | None = HEADER) -> EbmsError:
    return EbmsError(code, "what is wrong", location=location)


def about(world: World, *problems: EbmsError, **given: Any) -> Answer | None:
    message = world.read(world.package(ORDER))
    return error_answer(
        problems, world.dialect, about=message, message_id=ANSWER_ID, now=NOW, **given
    )


# Acknowledgments


@every_version
@pytest.mark.req(
    "MS098-10.3.1.3-02", "MS098-10.3.1.3-05", "MS098-10.3.1.3-06", "MS098-10.3.1.3-09",
    "MS098-8.4.6.3-04",
)  # fmt: skip
def test_an_acknowledgment_goes_alone_with_the_service_of_the_msh(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, _ = acknowledged(world)
    message = heard(world, answer)
    header = message.header
    assert kind_of(message) == "acknowledgment"
    assert header.service.value == world.dialect.msh_service
    assert header.action == "Acknowledgment"
    assert header.ref_to_message_id == MESSAGE_ID
    assert (header.message_id, header.conversation_id, header.cpa_id) == (ANSWER_ID, "c-1", CPA)
    assert answer is not None
    assert answer.kind == "acknowledgment"


@every_version
@pytest.mark.req("MS098-10.3.1.3-07", "MS098-10.3.1.3-08")
def test_an_acknowledgment_goes_back_from_the_to_party(version: str) -> None:
    world = World(version, ebxml=ASKED)
    header = heard(world, acknowledged(world)[0]).header
    assert (header.from_party, header.to_party) == (SELLER, BUYER)


@every_version
@pytest.mark.req("MS098-10.3.1.3-03", "MS098-8.12.1-01", "MS098-8.12.5-01", "MS098-8.4.7.1-04")
def test_who_asks_gets_the_element_with_the_time_of_receipt(version: str) -> None:
    world = World(version, ebxml=ASKED)
    said = heard(world, acknowledged(world)[0]).acknowledgment
    assert said is not None
    assert said.timestamp == later(5)
    assert said.type == "DeliveryReceipt"
    assert not said.signed


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.req("MS098-10.3.1.3-01", "MS098-10.3.1.3-03")
def test_who_asks_for_no_element_gets_none_and_yet_an_acknowledgment(version: str) -> None:
    world = World(version, ebxml=RELIABLE)
    message = heard(world, acknowledged(world)[0])
    assert message.acknowledgment is None
    assert message.acknowledged == MESSAGE_ID


def test_two_point_zero_acknowledges_only_what_asks_for_it() -> None:
    world = World("2.0", ebxml=RELIABLE)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    unasked = replace(found.ebxml, ack_requested=())
    signal = signal_about(unasked)
    answer = write_signal(signal, MS20, message_id=ANSWER_ID, now=NOW, to=unasked)
    assert answer is None


@pytest.mark.req("MS098-8.9-01")
def test_the_element_stands_in_the_body_of_old_messages_and_in_the_header_of_new() -> None:
    for version, place in (("0.98b", "Body"), ("2.0", "Header")):
        answer, _ = acknowledged(World(version, ebxml=ASKED))
        assert answer is not None
        root = etree.fromstring(answer.envelope)
        assert root.find(f"{{{names.S11}}}{place}/{{*}}Acknowledgment") is not None


@every_version
@pytest.mark.req("MS098-8.12.6-01")
def test_a_signed_acknowledgment_is_signed_and_says_so(version: str) -> None:
    world = World(version, signed=True, ebxml=SIGNED)
    answer, made = acknowledged(world)
    assert answer is not None
    found = world.hear(answer)
    assert found.trusted
    assert found.ebxml is not None
    assert found.ebxml.acknowledgment is not None
    assert found.ebxml.acknowledgment.signed
    sent = SentEbxml(made.message, made.references)
    assert answer_problems(found, sent, world.match, on_response=True) == []


def test_a_signed_acknowledgment_of_two_point_zero_repeats_the_digests() -> None:
    world = World("2.0", signed=True, ebxml=SIGNED)
    answer, made = acknowledged(world)
    said = heard(world, answer).acknowledgment
    assert said is not None
    assert [(one.uri, one.digest_value) for one in said.references] == [
        (one.uri, one.digest_value) for one in made.references
    ]


def test_a_signature_cannot_be_promised_without_a_key() -> None:
    world = World("0.98b", signed=True, ebxml=SIGNED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    signal = signal_about(found.ebxml, signed=True)
    with pytest.raises(ValueError, match="signed acknowledgment"):
        write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)


def signal_about(message: EbxmlMessage, *, signed: bool = False, **given: Any) -> Signal:
    terms = agree({}, {"ackRequested": "Signed" if signed else "Unsigned"}, timestamp=NOW)
    receiver = Receiver(**{"party": party_name(SELLER), **given})
    reception = receive(reliable(message), terms, receiver, NOW)
    assert reception.acknowledgment is not None
    return reception.acknowledgment


@pytest.mark.req("MS098-10.3.1.3-07", "MS098-10.3.1.3-08", "MS098-8.12.5-01")
def test_an_msh_on_the_way_acknowledges_by_the_uris_of_the_last_hop() -> None:
    world = World("0.98b", ebxml=ASKED)
    found, made = transmitted(world)
    assert found.ebxml is not None
    signal = signal_about(found.ebxml, party="urn:example:relay")
    answer = write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)
    message = heard(world, answer)
    assert message.header.from_party.party_ids == (PartyId(SELLER_URI),)
    assert message.header.to_party.party_ids == (PartyId(BUYER_URI),)
    assert message.acknowledgment is not None
    assert message.acknowledgment.type == "Acknowledgment"
    sent = reliable(made.message, hop=Hop(BUYER_URI, SELLER_URI))
    word = said(sent, world.terms, reliable(message, about=made.message))
    assert word is Word.TAKEN_OVER


def test_draft_000_has_a_service_of_its_own_for_acknowledgments() -> None:
    world = World("0.98b", ebxml=ASKED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    signal = signal_about(found.ebxml, profile=Profile.RM000)
    answer = write_signal(signal, MS098, message_id=ANSWER_ID, now=NOW, to=found.ebxml)
    message = heard(world, answer)
    assert message.header.service.value == SERVICE_000
    assert kind_of(message) == "acknowledgment"


@every_version
def test_the_machine_of_the_sender_hears_the_acknowledgment(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    message = reliable(heard(world, answer), about=made.message)
    assert said(reliable(made.message), world.terms, message) is Word.ACKNOWLEDGED


@every_version
@pytest.mark.req("MS098-10.3.1.3-04")
def test_a_response_of_the_application_may_acknowledge(version: str) -> None:
    world = World(version, ebxml=ASKED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    acknowledgment, errors = ride(signal_about(found.ebxml), world.dialect, to=found.ebxml, now=NOW)
    assert errors is None
    reply = world.draft(ORDER, message_id="reply@seller.example", ref_to_message_id=MESSAGE_ID)
    message = world.package(draft=reply, acknowledgment=acknowledgment).message
    assert message.acknowledged == MESSAGE_ID
    assert kind_of(message) == "message"


# What is believed


def sent_of(made: Any) -> SentEbxml:
    return SentEbxml(made.message, made.references)


@every_version
@pytest.mark.parametrize("signed", [False, True])
def test_what_was_sent_is_known_from_the_envelope_that_was_kept(version: str, signed: bool) -> None:
    made = World(version, signed=signed).package(ORDER)
    assert sent_ebxml(made.envelope) == sent_of(made)


def test_an_envelope_of_something_else_was_not_sent() -> None:
    with pytest.raises(ValueError, match="no ebXML message"):
        sent_ebxml(fault(Fault(f"{{{names.S11}}}Client", "no")))


@every_version
def test_an_acknowledgment_that_should_be_signed_and_is_not_is_not_believed(version: str) -> None:
    world = World(version, signed=True, ebxml=SIGNED)
    found, made = transmitted(world)
    assert found.ebxml is not None
    answer = write_signal(
        signal_about(found.ebxml), world.dialect, message_id=ANSWER_ID, now=NOW, to=found.ebxml
    )
    assert answer is not None
    problems = answer_problems(world.hear(answer), sent_of(made), world.match, on_response=True)
    assert "SecurityFailure" in [one.code for one in problems]


def test_an_acknowledgment_signed_by_its_receiver_proves_nothing() -> None:
    world = World("2.0", signed=True, ebxml=SIGNED)
    assert world.expectation
    world.seller = world.buyer
    answer, made = acknowledged(world)
    assert answer is not None
    problems = answer_problems(world.hear(answer), sent_of(made), world.match, on_response=True)
    assert problems != []


def test_an_acknowledgment_with_other_digests_is_not_believed() -> None:
    world = World("2.0", signed=True, ebxml=SIGNED)
    answer, made = acknowledged(world)
    assert answer is not None
    other = SentEbxml(made.message, made.references[:1])
    problems = answer_problems(world.hear(answer), other, world.match, on_response=True)
    assert [one.code for one in problems] == ["SecurityFailure"]


@every_version
def test_an_acknowledgment_of_another_message_is_not_believed(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    assert answer is not None
    header = replace(made.message.header, message_id="order-2@buyer.example")
    other = SentEbxml(replace(made.message, header=header), ())
    problems = answer_problems(world.hear(answer), other, world.match, on_response=True)
    assert [one.code for one in problems] == ["Inconsistent"]


@every_version
@pytest.mark.req("MS098-10.3.1.3-08")
def test_an_acknowledgment_for_somebody_else_is_not_believed(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    assert answer is not None
    other = answer.envelope.replace(b"urn:example:buyer", b"urn:example:stranger")
    found = world.look(alone(other), answering=True)
    problems = answer_problems(found, sent_of(made), world.match, on_response=True)
    assert [(one.code, one.location) for one in problems] == [("Inconsistent", f"{HEADER}/eb:To")]


def test_an_acknowledgment_of_another_version_is_not_believed_and_an_error_is() -> None:
    old, new = World("0.98b", ebxml=ASKED), World("2.0", ebxml=ASKED)
    sent = sent_of(new.package(ORDER))
    acknowledgment, error = acknowledged(old)[0], about(old, failure())
    assert acknowledgment is not None
    assert error is not None
    said = answer_problems(new.hear(acknowledgment), sent, new.match, on_response=True)
    assert [one.code for one in said] == ["Inconsistent"]
    assert answer_problems(new.hear(error), sent, new.match, on_response=True) == []


@every_version
@pytest.mark.parametrize("on_response", [True, False])
def test_an_unsigned_error_is_believed_on_the_response_only_where_the_p_mode_signs(
    version: str, on_response: bool
) -> None:
    world = World(version, signed=True)
    answer = about(world, failure())
    assert answer is not None
    made = world.package(ORDER)
    problems = answer_problems(
        world.hear(answer), sent_of(made), world.match, on_response=on_response
    )
    assert (problems == []) is on_response


@every_version
@pytest.mark.req("MS098-8.12.2-01")
def test_who_acknowledges_is_the_from_of_the_element_or_of_the_message(version: str) -> None:
    world = World(version, ebxml=ASKED)
    answer, made = acknowledged(world)
    message = heard(world, answer)
    assert reliable(message, about=made.message).from_party == party_name(SELLER)
    assert message.acknowledgment is not None
    relay = Party((PartyId("urn:example:relay"),), "")
    other = replace(message, acknowledgment=replace(message.acknowledgment, from_party=relay))
    assert reliable(other, about=made.message).from_party == "urn:example:relay"


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


# Ping and status


def asking(world: World, **given: Any) -> dict[str, Any]:
    parties = {"from_party": BUYER, "to_party": SELLER, "cpa_id": CPA, "conversation_id": "c-1"}
    return {**parties, "message_id": "ask-1@buyer.example", "now": NOW, **given}


@every_version
@pytest.mark.req(
    "MS098-9.2.1-01", "MS098-9.2.1-02", "MS098-9.2.1-03", "MS098-9.2.1-04", "MS098-9.2.1-05",
    "MS098-9.2.1-06",
)  # fmt: skip
def test_a_ping_asks_a_party(version: str) -> None:
    world = World(version)
    message = world.look(alone(ping(world.dialect, **asking(world)).envelope)).ebxml
    assert message is not None
    header = message.header
    assert kind_of(message) == "ping"
    assert (header.from_party, header.to_party) == (BUYER, SELLER)
    assert (header.service.value, header.action) == (world.dialect.msh_service, "Ping")
    assert message.manifest is None


@every_version
@pytest.mark.req(
    "MS098-9.2.2-02", "MS098-9.2.2-03", "MS098-9.2.2-04", "MS098-9.2.2-05", "MS098-9.2.2-06",
    "MS098-9.2.2-07",
)  # fmt: skip
def test_a_pong_answers_it(version: str) -> None:
    world = World(version)
    asked = world.look(alone(ping(world.dialect, **asking(world)).envelope)).ebxml
    assert asked is not None
    message = heard(world, pong(asked, message_id=ANSWER_ID, now=NOW))
    header = message.header
    assert kind_of(message) == "pong"
    assert (header.from_party, header.to_party) == (SELLER, BUYER)
    assert (header.service.value, header.action) == (world.dialect.msh_service, "Pong")
    assert header.ref_to_message_id == "ask-1@buyer.example"


@every_version
@pytest.mark.req(
    "MS098-9.1.1-01", "MS098-9.1.1-02", "MS098-9.1.1-03", "MS098-9.1.1-05", "MS098-9.1.1-06",
    "MS098-9.1.1-07",
)  # fmt: skip
def test_a_status_request_asks_about_a_message(version: str) -> None:
    world = World(version)
    answer = status_request(world.dialect, about=MESSAGE_ID, **asking(world))
    message = world.look(alone(answer.envelope)).ebxml
    assert message is not None
    header = message.header
    assert (header.service.value, header.action) == (world.dialect.msh_service, "StatusRequest")
    assert header.from_party == BUYER
    assert message.asked_about == MESSAGE_ID
    assert message.manifest is None


@pytest.mark.req("MS098-9.1.1-04")
def test_a_status_request_goes_to_where_the_message_went() -> None:
    world = World("0.98b")
    answer = status_request(MS098, about=MESSAGE_ID, receiver_uri=SELLER_URI, **asking(world))
    message = world.look(alone(answer.envelope)).ebxml
    assert message is not None
    assert message.header.to_party.party_ids == (PartyId(SELLER_URI),)


def status(world: World, word: str) -> EbxmlMessage:
    request = status_request(world.dialect, about=MESSAGE_ID, **asking(world))
    asked = world.look(alone(request.envelope)).ebxml
    assert asked is not None
    answer = status_response(
        asked, status=word, received_at=later(-60), message_id=ANSWER_ID, now=NOW
    )
    return heard(world, answer)


@every_version
@pytest.mark.req(
    "MS098-9.1.2-01", "MS098-9.1.2-02", "MS098-9.1.2-03", "MS098-9.1.2-04", "MS098-9.1.2-05",
    "MS098-9.1.2-06", "MS098-9.1.2-07", "MS098-8.11.1-01",
)  # fmt: skip
def test_a_status_response_tells_when_a_message_came(version: str) -> None:
    world = World(version)
    message = status(world, "Received")
    header, told = message.header, message.status_data
    assert (header.from_party, header.to_party) == (SELLER, BUYER)
    assert (header.service.value, header.action) == (world.dialect.msh_service, "StatusResponse")
    assert header.ref_to_message_id == "ask-1@buyer.example"
    assert told is not None
    assert (told.ref_to_message_id, told.message_status) == (MESSAGE_ID, "Received")
    assert told.timestamp == later(-60)


@every_version
@pytest.mark.parametrize("word", ["NotRecognized", "UnAuthorized"])
@pytest.mark.req("MS098-8.11.2-01")
def test_a_stranger_is_not_told_when_a_message_came(version: str, word: str) -> None:
    told = status(World(version), word).status_data
    assert told is not None
    assert told.message_status == word
    assert told.timestamp is None


@pytest.mark.req("MS098-8.11.5-01")
def test_only_two_point_zero_knows_more_than_three_statuses() -> None:
    assert status(World("2.0"), "Processed").status_data is not None
    with pytest.raises(ValueError, match="none of"):
        status(World("0.98b"), "Processed")


@every_version
@pytest.mark.req("MS098-9.1.3-02", "MS098-9.2.3-02")
def test_who_asks_is_a_partner_when_the_p_mode_knows_and_trusts_it(version: str) -> None:
    plain, signing = World(version), World(version, signed=True)
    asked = ping(plain.dialect, **asking(plain))
    stranger = ping(
        plain.dialect, **asking(plain, from_party=Party((PartyId("urn:example:x"),), ""))
    )
    signed = ping(plain.dialect, **asking(plain), signing=signing_of(signing))
    assert asked_by_partner(plain.look(alone(asked.envelope)))
    assert not asked_by_partner(plain.look(alone(stranger.envelope)))
    assert not asked_by_partner(signing.look(alone(asked.envelope)))
    assert asked_by_partner(signing.look(alone(signed.envelope)))


def signing_of(world: World) -> Any:
    how = world.sellers_signing
    assert how is not None
    return type(how)(world.buyer, how.algorithm, how.digest, how.reference)


# What the machines look at


@every_version
def test_two_messages_are_identical_whatever_way_they_took(version: str) -> None:
    world = World(version, ebxml=ASKED)
    found, made = transmitted(world)
    assert found.ebxml is not None
    assert reliable(found.ebxml, [b"1"]).digest == reliable(made.message, [b"1"]).digest


@every_version
def test_another_header_or_payload_is_another_message(version: str) -> None:
    message = World(version).package(ORDER).message
    other = replace(message, header=replace(message.header, conversation_id="c-2"))
    digests = {
        reliable(message, [b"1"]).digest,
        reliable(message, [b"2"]).digest,
        reliable(other, [b"1"]).digest,
    }
    assert len(digests) == 3


@every_version
def test_a_copy_is_known_by_its_digest(version: str) -> None:
    world = World(version, ebxml=ASKED)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    assert found.ebxml_terms is not None
    message = reliable(found.ebxml)
    seller = Receiver(party_name(SELLER))
    known = Known(message.digest, NOW)
    again = receive(message, found.ebxml_terms, seller, later(60), known=known)
    assert Step.DELIVER not in again.steps
    assert Step.REPORT not in again.steps


def test_a_party_is_known_by_all_its_ids_in_any_order() -> None:
    one, two = PartyId("1", "urn:duns"), PartyId("urn:example:seller")
    assert party_name(Party((one, two), "")) == party_name(Party((two, one), "Seller"))


def test_one_of_its_ids_is_enough_to_answer_for_a_party() -> None:
    world = World("2.0", ebxml=ASKED)
    answer, made = acknowledged(world)
    both = Party((*SELLER.party_ids, PartyId("1", "urn:duns")), "")
    sent = replace(made.message, header=replace(made.message.header, to_party=both))
    heard_of = reliable(heard(world, answer), about=sent)
    assert said(reliable(sent), world.terms, heard_of) is Word.ACKNOWLEDGED


@pytest.mark.parametrize("version", OLDER)
def test_the_to_party_takes_a_wish_for_a_receipt_as_one_for_an_acknowledgment(version: str) -> None:
    world = World(version, ebxml={"delivery_receipt": "UnSigned"})
    message = world.package(ORDER).message
    assert header_terms(message)["ackRequested"] == "UnSigned"
    assert "ackRequested" not in header_terms(message, final=False)


@pytest.mark.req("MS098-8.4.7.1-04")
def test_a_delivery_receipt_is_given_without_reliable_messaging_too() -> None:
    world = World("0.98b", ebxml={"delivery_receipt": "UnSigned"})
    message = heard(world, acknowledged(world)[0])
    assert message.acknowledgment is not None
    assert message.acknowledgment.type == "DeliveryReceipt"


def test_the_stronger_wish_counts() -> None:
    both = {"delivery_receipt": "Signed", "ack_requested": "UnSigned"}
    world = World("0.98b", signed=True, ebxml=both)
    found, _ = transmitted(world)
    assert found.ebxml is not None
    assert header_terms(found.ebxml)["ackRequested"] == "Signed"
    assert header_terms(found.ebxml, final=False)["ackRequested"] == "UnSigned"


def test_the_machine_sees_error_and_kind() -> None:
    world = World()
    message = reliable(heard(world, about(world, failure("TimeToLiveExpired"))))
    assert message.kind is Kind.ERROR
    assert message.error is not None
    assert message.error.code is ErrorCode.TIME_TO_LIVE_EXPIRED


def test_the_type_of_an_acknowledgment_reaches_the_machine() -> None:
    world = World("0.98b", ebxml=ASKED)
    message = reliable(heard(world, acknowledged(world)[0]))
    assert message.acknowledgment is not None
    assert message.acknowledgment.type is AckType.DELIVERY_RECEIPT


# The link discipline of draft 001

SENDER, RECEIVER = link.PartyID(BUYER_URI), link.PartyID(SELLER_URI)
LINK = link_receiver.ReceiverState(link.Triple(SENDER, RECEIVER, "HTTP"))


def linked(number: int | None, **ebxml: Any) -> tuple[World, link_receiver.Message]:
    world = World("0.98b", ebxml=ebxml or RELIABLE)
    made = world.package(ORDER)
    envelope = hop(
        made.envelope,
        MS098,
        sender_uri=BUYER_URI,
        receiver_uri=SELLER_URI,
        now=NOW,
        sequence_number=number,
    )
    return world, link_message(world.read(made, envelope), "HTTP")


def test_triple_and_number_of_a_link_stand_in_the_last_trace_header() -> None:
    _, message = linked(1)
    assert message.triple == LINK.triple
    assert message.sequence_number == 1
    assert message.delivery_semantics is link.DeliverySemantics.AT_MOST_ONCE
    _, unreliable = linked(None, delivery_semantics="BestEffort")
    assert unreliable.sequence_number is None
    assert unreliable.delivery_semantics is link.DeliverySemantics.UNSPECIFIED


def answers(number: int, onward: link_receiver.Onward) -> tuple[Any, EbxmlMessage]:
    """What the machine answers, and what the other side reads of it."""
    world, message = linked(number)
    rules = link_receiver.Rules(min_retry_secs=90)
    step = link_receiver.receive(LINK, message, rules, onward)
    (answer,) = [a for a in step.actions if isinstance(a, link.Ack | link.ErrorMessage)]
    written = write_link_answer(answer, MS098, message_id=ANSWER_ID, now=NOW)
    return answer, heard(world, written)


@pytest.mark.parametrize(
    ("number", "onward"),
    [
        pytest.param(1, link_receiver.Onward.NOWHERE, id="acknowledgement"),
        pytest.param(7, link_receiver.Onward.NOWHERE, id="messaging error"),
        pytest.param(1, link_receiver.Onward.DOWN, id="transient error"),
    ],
)
@pytest.mark.req(
    "RM001-2.6.2-01", "RM001-2.6.2-02", "RM001-2.6.2-03", "RM001-2.6.2-05", "RM001-2.6.2-06",
    "RM001-2.6.7-02", "RM001-2.6.6-01",
)  # fmt: skip
def test_an_answer_of_a_link_is_written_and_read(number: int, onward: link_receiver.Onward) -> None:
    answer, message = answers(number, onward)
    assert read_link_answer(message) == answer
    assert message.manifest is None
    assert not message.header.is_reliable


def test_a_message_of_an_application_answers_nothing_on_a_link() -> None:
    world = World("0.98b")
    assert read_link_answer(world.read(world.package(ORDER))) is None


def test_without_a_trace_header_there_is_no_link() -> None:
    with pytest.raises(ValueError, match="no TraceHeader"):
        link_message(World("0.98b").package(ORDER).message, "HTTP")


@pytest.mark.parametrize(("code", "wait"), [("Transient Errors", None), ("Busy", 30)])
def test_a_transient_error_is_known_by_the_words_of_the_draft_or_by_its_wait(
    code: str, wait: int | None
) -> None:
    _, message = answers(1, link_receiver.Onward.DOWN)
    assert message.error_list is not None
    spelt = replace(message.error_list.errors[0], error_code=code, min_retry_secs=wait)
    other = replace(message, error_list=replace(message.error_list, errors=(spelt,)))
    answer = read_link_answer(other)
    assert isinstance(answer, link.ErrorMessage)
    assert answer.error_class is link.ErrorClass.TRANSIENT_ERROR
    assert answer.min_retry_secs == wait
