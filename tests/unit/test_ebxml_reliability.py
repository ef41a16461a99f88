"""The receiver of ebXML reliable messaging: new, copy or contradiction, and what it answers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from postroad.reliability import order
from postroad.reliability.ebxml import (
    ERRORS,
    EVENTS,
    RECEIVING,
    SERVICE,
    SERVICE_000,
    Acknowledgment,
    AckType,
    Answering,
    Case,
    Hop,
    Kind,
    Known,
    Message,
    Profile,
    Receiver,
    Response,
    Signal,
    Step,
    acknowledge,
    receive,
)
from postroad.reliability.ebxml_terms import (
    DeliverySemantics,
    Error,
    ErrorCode,
    Severity,
    Terms,
    agree,
)
from postroad.reliability.order import Limits, Sequence, SequenceNumber, Status
from tests.changing import replace

NOW: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
LATER: Final = NOW + timedelta(minutes=5)
BUYER: Final = Receiver("buyer")
SELLER: Final = Receiver("seller")
DRAFT: Final = Receiver("seller", profile=Profile.RM000)
HUB: Final = Receiver("hub", "https://hub.example")
ORDER: Final = Message(
    message_id="order-1",
    from_party="buyer",
    to_party="seller",
    conversation_id="c1",
    service="urn:orders",
    action="NewOrder",
    timestamp=NOW,
    digest="d1",
    hop=Hop("https://buyer.example", "https://seller.example"),
)
SYNC: Final[Mapping[str, str]] = {"syncReply": "true", "syncReplyMode": "signalsAndResponse"}
KNOWN: Final = Known("d1", NOW)
ACK: Final = Response("ack-1", NOW)
REPLY: Final = Response("reply-1", LATER)


def reliable(**header: str) -> Terms:
    return agree({}, {"deliverySemantics": "OnceAndOnlyOnce", **header}, timestamp=NOW)


def best_effort(**header: str) -> Terms:
    return agree({}, header, timestamp=NOW)


def numbered(value: int, status: Status = Status.CONTINUE, **changes: Any) -> Message:
    number = SequenceNumber(value, status)
    return replace(ORDER, message_id=f"order-{value}", sequence_number=number, **changes)


def signal(action: str, **changes: Any) -> Message:
    """A message of the seller's MSH to that of the buyer."""
    return replace(
        ORDER,
        message_id="signal-1",
        from_party="seller",
        to_party="buyer",
        service=SERVICE,
        action=action,
        ref_to_message_id="order-1",
        **changes,
    )


def error_of(report: Signal | None) -> Error:
    assert report is not None
    assert report.error is not None
    return report.error


# What is new


@pytest.mark.req(
    "RM000-1.1-05",
    "RM000-1.3.1.2-02",
    "RM000-1.3.1.2-05",
    "MS098-10.1.1-05",
    "MS098-10.2.1-04",
    "MS098-10.3-01",
    "MS098-10.3.1.2-04",
    "MS098-10.3.1.2-07",
    "MS098-10.3.1.3-01",
)
@pytest.mark.parametrize("receiver", [SELLER, DRAFT])
def test_a_new_message_is_stored_passed_on_and_acknowledged(receiver: Receiver) -> None:
    found = receive(ORDER, reliable(), receiver, NOW)
    assert found.case is Case.NEW
    assert found.steps == (Step.STORE, Step.DELIVER, Step.ACKNOWLEDGE)
    assert found.passed == ("order-1",)
    assert found.acknowledgment is not None
    assert found.acknowledgment.ref_to_message_id == "order-1"


@pytest.mark.req("RM000-1.3.1-02", "OV004-1-01", "OV004-1-05")
@pytest.mark.parametrize("profile", list(Profile))
def test_nothing_new_is_passed_on_or_acknowledged_before_it_is_stored(profile: Profile) -> None:
    for case, steps in RECEIVING[profile].items():
        if case not in (Case.OUTSIDE, Case.UNANSWERED) and Step.ACKNOWLEDGE in steps:
            assert steps[0] is Step.STORE
    for case in (Case.NEW, Case.NEW_AWAITED, Case.HELD):
        assert RECEIVING[profile][case][0] is Step.STORE


@pytest.mark.req("MS098-10.3.1.3-04")
def test_when_the_application_answers_at_once_its_response_acknowledges() -> None:
    found = receive(ORDER, reliable(**SYNC), SELLER, NOW)
    assert found.case is Case.NEW_AWAITED
    assert found.steps == (Step.STORE, Step.DELIVER)
    assert found.acknowledgment is None


@pytest.mark.req("RM000-1.3.1.2-04", "MS098-10.3.1.2-06")
def test_a_new_message_tells_the_message_that_it_refers_to() -> None:
    response = replace(ORDER, ref_to_message_id="request-1")
    found = receive(response, reliable(), SELLER, NOW)
    assert Step.TELL in found.steps
    assert found.tells == "request-1"


@pytest.mark.req("RM000-1.3.1.2-04")
def test_a_copy_tells_nothing_again() -> None:
    response = replace(ORDER, ref_to_message_id="request-1")
    found = receive(response, reliable(), SELLER, NOW, known=KNOWN, responses=[ACK])
    assert found.tells is None


# Copies


@pytest.mark.req(
    "RM000-1.3.1.2-01",
    "RM000-1.3.1.2-06",
    "RM000-1.3.1.2-08",
    "RM000-1.3.2-04",
    "RM000-1.3.2-05",
    "MS098-10.3.1.2-03",
    "MS098-10.3.1.2-08",
    "MS098-10.3.1.5-05",
    "MS098-10.3.1.5-06",
    "OV004-1-04",
    "OV004-1-10",
    "OV004-1-11",
)
@pytest.mark.parametrize("receiver", [SELLER, DRAFT])
@pytest.mark.parametrize("responses", [[ACK, REPLY], [REPLY, ACK]])
def test_a_copy_is_answered_with_the_first_response_and_not_passed_on(
    receiver: Receiver, responses: list[Response]
) -> None:
    found = receive(ORDER, reliable(), receiver, LATER, known=KNOWN, responses=responses)
    assert found.case is Case.ANSWERED
    assert found.steps == (Step.RESEND,)
    assert found.resend == "ack-1"
    assert found.passed == ()
    assert EVENTS[found.case] == ("duplicate",)


def test_a_copy_gets_the_latest_response_where_that_is_set() -> None:
    latest = replace(SELLER, answering=Answering.LATEST)
    found = receive(ORDER, reliable(), latest, LATER, known=KNOWN, responses=[ACK, REPLY])
    assert found.resend == "reply-1"


@pytest.mark.req("MS098-10.3.1.2-10", "OV004-1-11")
def test_a_copy_without_a_stored_response_is_acknowledged() -> None:
    found = receive(ORDER, reliable(), SELLER, LATER, known=KNOWN)
    assert found.case is Case.UNANSWERED
    assert found.steps == (Step.ACKNOWLEDGE,)
    assert found.passed == ()
    assert found.acknowledgment is not None


@pytest.mark.req("MS098-10.3.1.2-10")
def test_a_synchronous_copy_is_acknowledged_where_the_application_does_not_answer() -> None:
    terms = reliable(syncReply="true", syncReplyMode="mshSignalsOnly")
    assert receive(ORDER, terms, SELLER, LATER, known=KNOWN).case is Case.UNANSWERED


@pytest.mark.req("MS098-10.3.1.2-09")
def test_a_copy_is_ignored_while_the_application_prepares_its_response() -> None:
    found = receive(ORDER, reliable(**SYNC), SELLER, LATER, known=KNOWN)
    assert found.case is Case.AWAITED
    assert found.steps == ()
    assert (found.acknowledgment, found.resend, found.passed) == (None, None, ())


@pytest.mark.req("RM000-1.3.1.2-07")
def test_by_the_draft_a_copy_without_a_stored_response_is_ignored() -> None:
    found = receive(ORDER, reliable(), DRAFT, LATER, known=KNOWN)
    assert found.steps == ()
    assert (found.acknowledgment, found.resend, found.passed) == (None, None, ())


def test_a_copy_is_a_copy_after_its_time_to_live_too() -> None:
    """An error would tell the sender that what was delivered was not."""
    terms = reliable(timeToLive="PT1M")
    found = receive(ORDER, terms, SELLER, LATER, known=KNOWN, responses=[ACK])
    assert found.case is Case.ANSWERED


def test_something_else_under_a_known_id_is_refused_and_the_first_stays() -> None:
    other = replace(ORDER, digest="d2")
    found = receive(other, reliable(), SELLER, LATER, known=KNOWN, responses=[ACK])
    assert found.case is Case.CONTRADICTION
    assert found.steps == (Step.REPORT,)
    assert (found.passed, found.resend, found.acknowledgment) == ((), None, None)
    assert error_of(found.report).code is ErrorCode.INCONSISTENT
    assert EVENTS[found.case] == ("rejected",)


# Best effort


@pytest.mark.req("MS098-10.2.1-05")
def test_with_best_effort_nothing_is_stored_and_nobody_is_told() -> None:
    found = receive(ORDER, best_effort(), SELLER, NOW, known=KNOWN)
    assert found.case is Case.OUTSIDE
    assert found.steps == (Step.DELIVER,)
    assert found.passed == ("order-1",)
    assert (found.acknowledgment, found.report) == (None, None)


@pytest.mark.req("RM000-1.3.2.1-01")
def test_with_best_effort_too_an_acknowledgment_may_be_asked_for() -> None:
    found = receive(ORDER, best_effort(ackRequested="Unsigned"), SELLER, NOW)
    assert found.acknowledgment is not None


def test_with_best_effort_a_response_tells_its_request_only_by_an_acknowledgment() -> None:
    response = replace(ORDER, ref_to_message_id="request-1")
    assert receive(response, best_effort(), SELLER, NOW).tells is None
    holding = replace(response, acknowledgment=Acknowledgment(NOW))
    assert receive(holding, best_effort(), SELLER, NOW).tells == "request-1"


# Time


@pytest.mark.req("MS098-10.2.3-02", "MS098-10.2.3-04", "MS098-10.2.3-05")
@pytest.mark.parametrize("terms", [reliable(timeToLive="PT1M"), best_effort(timeToLive="PT1M")])
def test_what_comes_after_its_time_to_live_is_reported_to_its_sender(terms: Terms) -> None:
    late = NOW + timedelta(minutes=1, microseconds=1)
    found = receive(ORDER, terms, SELLER, late)
    assert found.case is Case.EXPIRED
    assert found.passed == ()
    assert found.acknowledgment is None
    error = error_of(found.report)
    assert (error.code, error.severity) == (ErrorCode.TIME_TO_LIVE_EXPIRED, Severity.ERROR)
    assert found.report is not None
    assert (found.report.to_party, found.report.ref_to_message_id) == ("buyer", "order-1")


@pytest.mark.req("MS098-10.2.3-02")
def test_what_comes_at_its_time_to_live_is_in_time() -> None:
    found = receive(ORDER, reliable(timeToLive="PT1M"), SELLER, NOW + timedelta(minutes=1))
    assert found.case is Case.NEW


# Order


@pytest.mark.req("MS098-8.4.8-01", "MS098-8.4.8-06")
def test_what_is_out_of_order_is_stored_acknowledged_and_held() -> None:
    found = receive(numbered(1), reliable(), SELLER, NOW)
    assert found.case is Case.HELD
    assert found.steps == (Step.STORE, Step.HOLD, Step.ACKNOWLEDGE)
    assert found.passed == ()
    assert EVENTS[found.case] == ("received", "out_of_order", "held")
    first = receive(numbered(0, Status.RESET), reliable(), SELLER, NOW, sequence=found.sequence)
    assert first.case is Case.NEW
    assert first.passed == ("order-0", "order-1")
    assert first.sequence == Sequence(2, "order-0")


@pytest.mark.req("MS098-8.4.8-07")
def test_without_room_to_hold_it_the_sender_is_told_of_the_failure() -> None:
    small = replace(SELLER, limits=Limits(held=1))
    held = receive(numbered(1), reliable(), small, NOW).sequence
    found = receive(numbered(2), reliable(), small, NOW, sequence=held)
    assert found.case is Case.NO_ROOM
    assert found.steps == (Step.REPORT,)
    assert found.sequence == held
    error = error_of(found.report)
    assert (error.code, error.severity) == (ErrorCode.DELIVERY_FAILURE, Severity.ERROR)


@pytest.mark.req("MS098-8.4.8-05")
def test_a_sequence_number_without_once_and_only_once_is_inconsistent() -> None:
    found = receive(numbered(0, Status.RESET), best_effort(), SELLER, NOW)
    assert found.case is Case.UNORDERED
    assert found.passed == ()
    error = error_of(found.report)
    assert (error.code, error.severity) == (ErrorCode.INCONSISTENT, Severity.ERROR)


@pytest.mark.parametrize("value", [1, 3])
def test_a_number_of_another_message_is_inconsistent(value: int) -> None:
    sequence = Sequence(2, "order-0", (order.Held(3, "order-3", NOW),))
    other = replace(numbered(value), message_id="other")
    found = receive(other, reliable(), SELLER, NOW, sequence=sequence)
    assert found.case is Case.DISORDER
    assert found.sequence == sequence
    assert found.passed == ()
    assert error_of(found.report).code is ErrorCode.INCONSISTENT


def test_what_has_a_number_and_an_awaited_response_is_acknowledged_by_the_response() -> None:
    found = receive(numbered(0, Status.RESET), reliable(**SYNC), SELLER, NOW)
    assert found.case is Case.NEW_AWAITED
    assert found.passed == ("order-0",)


def test_a_reset_tells_which_numbers_are_waited_for_no_longer() -> None:
    sequence = Sequence(1, "order-0", (order.Held(3, "order-3", NOW),))
    again = replace(numbered(0, Status.RESET), message_id="again")
    found = receive(again, reliable(), SELLER, LATER, sequence=sequence)
    assert found.passed == ("order-3", "again")
    assert found.gaps == (order.Gap(1, 2, NOW),)


def test_a_copy_of_a_held_message_is_answered_and_still_held() -> None:
    held = receive(numbered(1), reliable(), SELLER, NOW).sequence
    found = receive(
        numbered(1), reliable(), SELLER, LATER, known=KNOWN, responses=[ACK], sequence=held
    )
    assert found.case is Case.ANSWERED
    assert found.sequence == held


@pytest.mark.req("MS098-8.4.8-02")
def test_each_sender_has_an_order_of_its_own_in_a_conversation() -> None:
    assert ORDER.stream != replace(ORDER, from_party="hub").stream
    assert ORDER.stream != replace(ORDER, conversation_id="c2").stream
    assert ORDER.stream == replace(ORDER, to_party="hub").stream


def test_an_msh_on_the_way_passes_on_what_is_out_of_order() -> None:
    found = receive(numbered(5), reliable(), HUB, NOW)
    assert found.case is Case.NEW
    assert found.passed == ("order-5",)
    assert found.sequence is None


# Acknowledgments that come


@pytest.mark.req("MS098-10.3.1.2-01")
@pytest.mark.parametrize(
    ("service", "action"),
    [
        (SERVICE, "Acknowledgment"),
        ("uri:www.ebxml.org/messageService", "Acknowledgement"),
        ("http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment", "Acknowledgment"),
        ("http://www.ebxml.org/namespaces/messageService/MessageAcknowledgement", "Acknowledgment"),
        (SERVICE_000, "DeliveryReceipt"),
        (SERVICE_000, "IntermediateAcknowledgment"),
        ("urn:oasis:names:tc:ebxml-msg:service", "Acknowledgment"),
    ],
)
def test_just_an_acknowledgment_tells_its_message_and_nothing_else(
    service: str, action: str
) -> None:
    message = replace(signal(action), service=service)
    found = receive(message, best_effort(), BUYER, NOW)
    assert found.case is Case.ACKNOWLEDGMENT
    assert (found.steps, found.tells, found.passed) == ((Step.TELL,), "order-1", ())


def test_an_acknowledgment_is_never_acknowledged() -> None:
    terms = reliable(ackRequested="Signed")
    assert receive(signal("Acknowledgment"), terms, BUYER, NOW).acknowledgment is None


def test_an_acknowledgment_for_somebody_else_is_passed_on() -> None:
    found = receive(signal("Acknowledgment"), best_effort(), HUB, NOW)
    assert found.passed == ("signal-1",)


def test_an_acknowledgment_may_be_addressed_to_a_uri() -> None:
    to_hub = replace(signal("Acknowledgment"), to_party="https://hub.example")
    assert receive(to_hub, best_effort(), HUB, NOW).case is Case.ACKNOWLEDGMENT


def test_a_status_response_tells_nothing_about_delivery() -> None:
    status = signal("StatusResponse")
    assert status.kind is Kind.SERVICE
    assert receive(status, reliable(), BUYER, NOW).tells is None


def test_an_error_message_tells_its_message() -> None:
    error = signal("MessageError", error=Error(ErrorCode.INCONSISTENT, "no"))
    assert error.kind is Kind.ERROR
    assert receive(error, best_effort(), BUYER, NOW).tells == "order-1"


def test_a_warning_that_rides_on_another_message_tells_its_message_too() -> None:
    error = Error(ErrorCode.DELIVERY_FAILURE, "lost", Severity.WARNING)
    riding = replace(ORDER, ref_to_message_id="request-1", error=error)
    assert receive(riding, best_effort(), SELLER, NOW).tells == "request-1"


def test_a_message_of_an_application_is_not_taken_for_a_signal() -> None:
    assert replace(ORDER, action="Acknowledgment").kind is Kind.APPLICATION
    assert replace(ORDER, service=SERVICE + "x", action="MessageError").kind is Kind.APPLICATION


# Acknowledgments that go


@pytest.mark.req(
    "RM000-1.3.1-03",
    "MS098-8.4.6.3-04",
    "MS098-10.3-02",
    "MS098-10.3.1.3-02",
    "MS098-10.3.1.3-05",
    "MS098-10.3.1.3-06",
    "MS098-10.3.1.3-07",
    "MS098-10.3.1.3-08",
    "MS098-10.3.1.3-09",
)
def test_the_acknowledgment_of_the_to_party() -> None:
    assert acknowledge(ORDER, reliable(), SELLER, NOW) == Signal(
        from_party="seller",
        to_party="buyer",
        conversation_id="c1",
        ref_to_message_id="order-1",
        service="uri:www.ebxml.org/messageService/",
        action="Acknowledgment",
        delivery_semantics=DeliverySemantics.BEST_EFFORT,
    )


@pytest.mark.req("RM000-1.3.1.3-02", "RM000-1.3.1.3-03")
def test_the_acknowledgment_of_the_draft_has_its_service_and_its_type_as_action() -> None:
    found = acknowledge(ORDER, reliable(ackRequested="Unsigned"), DRAFT, NOW)
    assert found.service == ("http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment")
    assert found.acknowledgment is not None
    assert found.action == found.acknowledgment.type


@pytest.mark.req("MS098-10.3.1.3-03")
@pytest.mark.parametrize(("asked", "signed"), [("Signed", True), ("Unsigned", False)])
def test_the_element_is_there_when_it_is_asked_for(asked: str, signed: bool) -> None:
    found = acknowledge(ORDER, reliable(ackRequested=asked), SELLER, LATER)
    assert found.acknowledgment == Acknowledgment(LATER, AckType.DELIVERY_RECEIPT, signed)


def test_a_copy_is_acknowledged_with_the_time_of_the_first() -> None:
    found = receive(ORDER, reliable(ackRequested="Signed"), SELLER, LATER, known=KNOWN)
    assert found.acknowledgment is not None
    assert found.acknowledgment.acknowledgment == Acknowledgment(NOW, signed=True)


@pytest.mark.req(
    "RM000-1.3.2.1-02",
    "RM000-1.3.2.1-03",
    "RM000-1.3.2.1-04",
    "RM000-1.3.2.1-05",
    "RM000-1.3.2.1-06",
    "RM000-1.3.2.1-07",
)
def test_the_acknowledgment_of_an_msh_on_the_way() -> None:
    found = receive(
        ORDER, best_effort(ackRequested="Unsigned"), replace(HUB, profile=Profile.RM000), NOW
    )
    assert found.acknowledgment == Signal(
        from_party="https://seller.example",
        to_party="https://buyer.example",
        conversation_id="c1",
        ref_to_message_id="order-1",
        service="http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment",
        action="Acknowledgment",
        delivery_semantics=DeliverySemantics.BEST_EFFORT,
        acknowledgment=Acknowledgment(NOW, AckType.ACKNOWLEDGMENT),
    )


def test_an_msh_on_the_way_acknowledges_only_what_asks_for_it() -> None:
    assert receive(ORDER, best_effort(), HUB, NOW).acknowledgment is None


@pytest.mark.parametrize(
    ("receiver", "kind"), [(SELLER, AckType.DELIVERY_RECEIPT), (HUB, AckType.ACKNOWLEDGMENT)]
)
def test_the_type_tells_who_acknowledges(receiver: Receiver, kind: AckType) -> None:
    found = acknowledge(ORDER, reliable(ackRequested="Signed"), receiver, NOW)
    assert found.acknowledgment is not None
    assert found.acknowledgment.type is kind


# Errors


@pytest.mark.req("MS098-11.5-02", "MS098-8.4.6.3-03")
def test_an_error_is_reported_to_the_sender_by_the_msh() -> None:
    found = receive(replace(ORDER, digest="d2"), reliable(), SELLER, NOW, known=KNOWN)
    code, why = ERRORS[Case.CONTRADICTION]
    assert found.report == Signal(
        from_party="seller",
        to_party="buyer",
        conversation_id="c1",
        ref_to_message_id="order-1",
        service=SERVICE,
        action="MessageError",
        error=Error(code, why, Severity.ERROR),
    )


@pytest.mark.req("MS098-11.3-04")
def test_no_error_is_reported_about_an_error() -> None:
    error = signal("MessageError", error=Error(ErrorCode.INCONSISTENT, "no"))
    found = receive(error, reliable(timeToLive="PT1M"), BUYER, LATER)
    assert found.case is Case.EXPIRED
    assert found.report is None


def test_an_error_that_is_sent_reliably_is_acknowledged_once() -> None:
    error = signal("MessageError", error=Error(ErrorCode.DELIVERY_FAILURE, "lost"))
    found = receive(error, reliable(), BUYER, NOW)
    assert found.steps == (Step.STORE, Step.TELL, Step.DELIVER, Step.ACKNOWLEDGE)
    copy = receive(error, reliable(), BUYER, NOW, known=KNOWN, responses=[ACK])
    assert copy.steps == (Step.RESEND,)


# The tables


def test_each_case_has_its_steps_and_its_words() -> None:
    for profile in Profile:
        assert RECEIVING[profile].keys() == set(Case)
    assert EVENTS.keys() == set(Case)


def test_what_is_reported_has_its_error() -> None:
    reporting = {case for case, steps in RECEIVING[Profile.MS098].items() if Step.REPORT in steps}
    assert ERRORS.keys() == reporting
