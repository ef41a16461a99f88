"""The sender of ebXML reliable messaging: retries, protocols, answers, and the failure notice."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest

from postroad.reliability.delivery import Decision, Input, Life, Stage
from postroad.reliability.ebxml import (
    SERVICE,
    Acknowledgment,
    AckType,
    Hop,
    Message,
    Signal,
)
from postroad.reliability.ebxml_sending import (
    WORDS,
    Course,
    Word,
    attempted,
    begun_anew,
    hear,
    notice,
    number,
    said,
    woken,
)
from postroad.reliability.ebxml_terms import (
    DeliverySemantics,
    Error,
    ErrorCode,
    Severity,
    Terms,
    agree,
)
from postroad.reliability.order import Numbering, SequenceNumber, Status
from tests.changing import replace

NOW: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
ORDER: Final = Message(
    message_id="order-1",
    from_party="buyer",
    to_party="seller",
    conversation_id="c1",
    service="urn:orders",
    action="NewOrder",
    timestamp=NOW,
    hop=Hop("https://buyer.example", "https://next.example"),
)
FRESH: Final = Course(Life(Stage.READY, NOW))


def seconds(number: float) -> datetime:
    return NOW + timedelta(seconds=number)


def reliable(**cpa: str) -> Terms:
    """Timeout 10 seconds, then 2 retries with 20 seconds between, if not said otherwise."""
    usual = {"timeout": "10", "retries": "2", "retryInterval": "20"}
    given = {"deliverySemantics": "OnceAndOnlyOnce", **usual, **cpa}
    return agree(given, {}, timestamp=NOW)


def best_effort() -> Terms:
    return agree({}, {}, timestamp=NOW)


class Sender:
    """Sends one message by the machine, and notes when and over which protocol."""

    def __init__(self, terms: Terms, result: Input = Input.UNANSWERED) -> None:
        self.terms = terms
        self.result = result
        self.course = FRESH
        self.sent: list[tuple[float, int]] = []
        self.at = NOW
        self.end: Decision | None = None
        self.decided_by: list[datetime | None] = []

    def run(self, attempts: int = 100) -> "Sender":
        """Until the message is at rest, or that many attempts were made."""
        while self.end is None and len(self.sent) < attempts:
            self.course, decision = woken(self.course, self.terms, self.at)
            if decision is None:
                self.sent.append(((self.at - NOW).total_seconds(), self.course.protocol))
                self.course, decision = attempted(
                    self.course, self.result, self.terms, began=self.at, now=self.at
                )
                self.decided_by.append(decision.decided_by)
            if decision.due is None:
                self.end = decision
            else:
                self.at = decision.due
        return self

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.sent]


# Retries


@pytest.mark.req(
    "RM000-1.2.6-01",
    "RM000-1.2.7-01",
    "RM000-1.2.8-01",
    "RM000-1.3.1.4-01",
    "RM000-1.3.1.4-02",
    "MS098-10.2.6-01",
    "MS098-10.2.7-01",
    "MS098-10.2.8-01",
    "MS098-10.3.1.1-04",
    "MS098-10.3.1.4-01",
    "MS098-10.3.1.4-02",
    "OV004-1-03",
    "OV004-1-09",
)
def test_a_message_is_sent_again_after_the_timeout_and_then_after_each_interval() -> None:
    assert Sender(reliable()).run().times == [0, 10, 30]


@pytest.mark.req(
    "RM000-1.3.1.4-03", "MS098-10.3.1.4-03", "OV004-1-12", "OV004-2-06", "RM000-1.4-07"
)
def test_after_the_last_retry_the_message_is_in_doubt() -> None:
    sender = Sender(reliable()).run()
    assert sender.at == seconds(50)
    assert sender.course.life.stage is Stage.IN_DOUBT
    assert sender.decided_by == [seconds(50)] * 3


def test_without_retries_the_timeout_decides() -> None:
    sender = Sender(reliable(retries="0")).run()
    assert (sender.times, sender.at) == ([0], seconds(10))


def test_unlimited_retries_never_end() -> None:
    sender = Sender(reliable(retries="unlimited")).run(attempts=50)
    assert sender.end is None
    assert sender.decided_by == [None] * 50


@pytest.mark.req("RM000-1.3.1.4-04", "MS098-10.3.1.4-04")
def test_what_could_not_leave_is_tried_again_and_fails_for_certain() -> None:
    sender = Sender(reliable(), Input.NOT_SENT).run()
    assert sender.times == [0, 10, 30]
    assert sender.course.life.stage is Stage.FAILED


def test_when_the_reply_is_synchronous_nothing_is_waited_for_after_the_last_attempt() -> None:
    terms = replace(reliable(), sync_reply=True)
    sender = Sender(terms).run()
    assert (sender.times, sender.at) == ([0, 10, 30], seconds(30))
    assert sender.course.life.stage is Stage.IN_DOUBT


@pytest.mark.req("RM000-1.2.10-03", "MS098-10.2.9-02", "MS098-10.2.9-03")
def test_after_persist_duration_nothing_is_sent_and_the_message_is_given_up() -> None:
    sender = Sender(reliable(persistDuration="30")).run()
    assert (sender.times, sender.at) == ([0, 10], seconds(30))
    assert sender.course.life.stage is Stage.IN_DOUBT
    assert notice(ORDER, sender.terms, sender.course.life.stage, "buyer")


def test_after_its_time_to_live_nothing_is_sent() -> None:
    sender = Sender(reliable(timeToLive="PT15S"), Input.NOT_SENT).run()
    assert (sender.times, sender.at) == ([0, 10], seconds(15))
    assert sender.course.life.stage is Stage.EXPIRED


# Protocols


@pytest.mark.req("RM000-1.3.1.4-04", "RM000-1.3.1.4-05", "RM000-1.2.7-01", "MS098-10.2.7-01")
@pytest.mark.parametrize("result", [Input.NOT_SENT, Input.UNANSWERED])
def test_when_the_retries_of_a_protocol_are_over_the_next_one_is_used(result: Input) -> None:
    sender = Sender(reliable(protocols="http smtp ftp", retries="1"), result).run()
    assert sender.sent == [(0, 0), (10, 0), (30, 1), (40, 1), (60, 2), (70, 2)]


@pytest.mark.req("RM000-1.3.1.4-06", "RM000-1.4-06", "RM000-1.3.2-01", "MS098-10.3.1.5-02")
def test_when_all_protocols_fail_the_message_has_failed() -> None:
    sender = Sender(reliable(protocols="http smtp", retries="1"), Input.NOT_SENT).run()
    assert sender.course.life.stage is Stage.FAILED
    assert sender.course.protocol == 1


def test_a_copy_that_left_by_the_first_protocol_leaves_a_doubt() -> None:
    sender = Sender(reliable(protocols="http smtp", retries="0")).run(attempts=1)
    sender.result = Input.NOT_SENT
    sender.run()
    assert [protocol for _, protocol in sender.sent] == [0, 1]
    assert sender.course.life.stage is Stage.IN_DOUBT


@pytest.mark.req("OV004-2-06")
def test_the_end_is_known_from_the_start_over_all_protocols() -> None:
    sender = Sender(reliable(protocols="http smtp", retries="1")).run()
    assert sender.at == seconds(60)
    assert sender.decided_by == [seconds(60)] * 4


def test_persist_duration_ends_all_protocols() -> None:
    sender = Sender(reliable(protocols="a b c", retries="1", persistDuration="35")).run()
    assert sender.sent == [(0, 0), (10, 0), (30, 1)]
    assert sender.decided_by == [seconds(35)] * 3


def test_who_sends_it_again_begins_with_the_first_protocol_and_all_retries() -> None:
    sender = Sender(reliable(protocols="http smtp", retries="0")).run()
    course, decision = begun_anew(sender.course, Input.RESENT, sender.at)
    assert decision is not None
    assert (course.life.stage, course.life.tries, course.protocol) == (Stage.WAITING, 0, 0)
    acknowledged, _ = hear(course, Word.ACKNOWLEDGED)
    assert begun_anew(acknowledged, Input.RESENT, sender.at) == (acknowledged, None)


def test_a_course_survives_as_json() -> None:
    course = Sender(reliable(protocols="a b", retries="0")).run(attempts=2).course
    assert course.protocol == 1
    assert msgspec.json.decode(msgspec.json.encode(course), type=Course) == course


# Best effort


@pytest.mark.req("MS098-10.2.1-01", "MS098-10.2.1-06")
def test_with_best_effort_one_attempt_is_all() -> None:
    sender = Sender(best_effort()).run()
    assert sender.times == [0]
    assert sender.course.life.stage is Stage.SENT


@pytest.mark.req("MS098-10.2.1-06")
def test_with_best_effort_what_could_not_leave_is_not_tried_again_and_nobody_is_told() -> None:
    sender = Sender(best_effort(), Input.NOT_SENT).run()
    assert sender.times == [0]
    assert sender.course.life.stage is Stage.FAILED
    assert notice(ORDER, sender.terms, Stage.FAILED, "buyer") is None


def test_with_best_effort_nothing_is_waited_for_even_where_it_is_asked_for() -> None:
    asked = agree({}, {"ackRequested": "Signed"}, timestamp=NOW)
    sender = Sender(asked).run()
    assert sender.course.life.stage is Stage.SENT
    assert hear(sender.course, Word.ACKNOWLEDGED)[0].life.stage is Stage.ACKNOWLEDGED


# Answers


def answer(action: str = "Acknowledgment", by: str = "seller", **changes: Any) -> Message:
    return replace(
        ORDER,
        message_id="answer-1",
        from_party=by,
        to_party="buyer",
        service=SERVICE,
        action=action,
        ref_to_message_id="order-1",
        **changes,
    )


def error(code: ErrorCode, severity: Severity = Severity.ERROR, by: str = "seller") -> Message:
    return answer("MessageError", by, error=Error(code, "", severity))


def riding(code: ErrorCode, by: str) -> Message:
    """A warning on a message of an application."""
    return replace(error(code, Severity.WARNING, by), service="urn:orders", action="OrderResponse")


NEXT: Final = "https://next.example"
DIRECT: Final = reliable()
FAR: Final = reliable(hops="2")
ON_THE_WAY: Final = Acknowledgment(NOW, AckType.ACKNOWLEDGMENT)


@pytest.mark.parametrize(
    ("terms", "given", "word"),
    [
        (DIRECT, answer(), Word.ACKNOWLEDGED),
        (FAR, answer(), Word.ACKNOWLEDGED),
        (DIRECT, answer(acknowledgment=ON_THE_WAY), Word.ACKNOWLEDGED),
        (DIRECT, answer(by=NEXT), Word.ACKNOWLEDGED),
        (FAR, answer(by=NEXT), Word.TAKEN_OVER),
        (FAR, answer(by=NEXT, acknowledgment=Acknowledgment(NOW)), Word.ACKNOWLEDGED),
        (DIRECT, answer(by=NEXT, acknowledgment=ON_THE_WAY), Word.TAKEN_OVER),
        (DIRECT, answer(by="stranger"), Word.FOREIGN),
        (FAR, answer(by="stranger"), Word.FOREIGN),
        (DIRECT, error(ErrorCode.INCONSISTENT), Word.REFUSED),
        (DIRECT, error(ErrorCode.TIME_TO_LIVE_EXPIRED), Word.REFUSED),
        (DIRECT, error(ErrorCode.INCONSISTENT, by=NEXT), Word.REFUSED),
        (DIRECT, error(ErrorCode.INCONSISTENT, by="stranger"), Word.FOREIGN),
        (FAR, error(ErrorCode.DELIVERY_FAILURE, by="relay"), Word.REFUSED),
        (FAR, error(ErrorCode.DELIVERY_FAILURE, Severity.WARNING, "relay"), Word.DOUBTED),
        (DIRECT, error(ErrorCode.DELIVERY_FAILURE), Word.NOT_NOW),
        (DIRECT, error(ErrorCode.INCONSISTENT, Severity.WARNING), Word.NOTHING),
        (DIRECT, answer("MessageError"), Word.REFUSED),
        (DIRECT, riding(ErrorCode.DELIVERY_FAILURE, NEXT), Word.DOUBTED),
        (DIRECT, riding(ErrorCode.INCONSISTENT, "seller"), Word.ACKNOWLEDGED),
    ],
)
def test_what_an_answer_says_depends_on_what_it_is_and_whose(
    terms: Terms, given: Message, word: Word
) -> None:
    assert said(ORDER, terms, given) is word


@pytest.mark.req("RM000-1.3.1.2-04", "MS098-10.3.1.2-02", "MS098-10.3.1.2-06")
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_an_acknowledgment_ends_the_retries(attempts: int) -> None:
    sender = Sender(reliable()).run(attempts)
    course, decision = hear(sender.course, Word.ACKNOWLEDGED)
    assert course.life.stage is Stage.ACKNOWLEDGED
    assert decision is not None
    assert decision.due is None


@pytest.mark.req("OV004-2-04")
def test_a_late_acknowledgment_settles_what_was_given_up() -> None:
    sender = Sender(reliable()).run()
    course, decision = hear(sender.course, Word.ACKNOWLEDGED)
    assert course.life.stage is Stage.SETTLED
    assert decision is not None
    assert decision.closing == "settled"


@pytest.mark.req("OV004-2-05")
@pytest.mark.parametrize("attempts", [1, 100])
def test_a_second_acknowledgment_changes_nothing(attempts: int) -> None:
    course, _ = hear(Sender(reliable()).run(attempts).course, Word.ACKNOWLEDGED)
    assert hear(course, Word.ACKNOWLEDGED) == (course, None)


@pytest.mark.parametrize("word", [Word.REFUSED, Word.DOUBTED, Word.TAKEN_OVER, Word.NOT_NOW])
def test_what_is_acknowledged_stays_so(word: Word) -> None:
    course, _ = hear(Sender(reliable()).run(2).course, Word.ACKNOWLEDGED)
    assert hear(course, word) == (course, None)


def test_a_refusal_of_the_only_copy_is_a_failure() -> None:
    course, decision = hear(Sender(reliable()).run(1).course, Word.REFUSED)
    assert course.life.stage is Stage.FAILED
    assert decision is not None
    assert decision.closing == "delivery_failed"


def test_a_refusal_of_one_copy_of_two_leaves_a_doubt() -> None:
    course, _ = hear(Sender(reliable()).run(2).course, Word.REFUSED)
    assert course.life.stage is Stage.IN_DOUBT


def test_a_refusal_while_another_copy_is_under_way_leaves_a_doubt() -> None:
    course, _ = hear(Sender(reliable()).run(1).course, Word.REFUSED, under_way=True)
    assert course.life.stage is Stage.IN_DOUBT


def test_what_an_msh_on_the_way_took_over_is_sent_no_more_and_may_still_end_either_way() -> None:
    course, decision = hear(Sender(FAR).run(1).course, Word.TAKEN_OVER)
    assert course.life.stage is Stage.SENT
    assert decision is not None
    assert decision.due is None
    assert hear(course, Word.ACKNOWLEDGED)[0].life.stage is Stage.ACKNOWLEDGED
    assert hear(course, Word.REFUSED)[0].life.stage is Stage.FAILED
    assert hear(course, Word.DOUBTED)[0].life.stage is Stage.IN_DOUBT


@pytest.mark.parametrize("attempts", [1, 2])
def test_what_was_passed_on_without_an_acknowledgment_is_in_doubt(attempts: int) -> None:
    course, decision = hear(Sender(FAR).run(attempts).course, Word.DOUBTED)
    assert course.life.stage is Stage.IN_DOUBT
    assert decision is not None
    assert decision.closing == "in_doubt"
    assert hear(course, Word.DOUBTED) == (course, None)


def test_a_doubt_about_an_old_copy_does_not_stop_one_that_has_not_left() -> None:
    assert hear(FRESH, Word.DOUBTED) == (FRESH, None)


def test_for_want_of_room_the_message_comes_again_when_its_time_comes() -> None:
    sender = Sender(reliable()).run(1)
    course, decision = hear(sender.course, Word.NOT_NOW)
    assert decision is None
    assert course.life.unanswered == 1
    sender.course = course
    assert sender.run().times == [0, 10, 30]


@pytest.mark.parametrize("word", [Word.FOREIGN, Word.NOTHING])
def test_what_says_nothing_changes_nothing(word: Word) -> None:
    course = Sender(reliable()).run(1).course
    assert word not in WORDS
    assert hear(course, word) == (course, None)


# The notice


@pytest.mark.req(
    "RM000-1-01",
    "RM000-1.3.1.4-06",
    "RM000-1.4-01",
    "RM000-1.4-02",
    "RM000-1.4-03",
    "RM000-1.4-04",
    "RM000-1.4-05",
    "RM000-1.4-06",
    "RM000-1.4-08",
    "MS098-10.4-01",
    "MS098-10.4-02",
    "MS098-10.4-03",
    "MS098-10.4-04",
    "MS098-10.4-05",
    "MS098-10.4-07",
)
@pytest.mark.parametrize("stage", [Stage.FAILED, Stage.EXPIRED])
def test_what_could_not_be_transmitted_is_a_delivery_failure_of_severity_error(
    stage: Stage,
) -> None:
    assert notice(ORDER, reliable(), stage, "relay") == Signal(
        from_party="relay",
        to_party="buyer",
        conversation_id="c1",
        ref_to_message_id="order-1",
        service="uri:www.ebxml.org/messageService/",
        action="MessageError",
        delivery_semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
        error=Error(ErrorCode.DELIVERY_FAILURE, "it could not be sent", Severity.ERROR),
    )


@pytest.mark.req("RM000-1.4-07", "MS098-10.4-06", "MS098-10.4-07", "MS098-11.5-03")
def test_what_was_not_acknowledged_is_a_delivery_failure_of_severity_warning() -> None:
    found = notice(ORDER, reliable(), Stage.IN_DOUBT, "relay")
    assert found is not None
    assert found.error == Error(
        ErrorCode.DELIVERY_FAILURE, "it was not acknowledged", Severity.WARNING
    )
    assert (found.service, found.action) == (None, None)


@pytest.mark.parametrize("action", ["Acknowledgment", "MessageError"])
def test_nothing_is_said_about_the_loss_of_an_acknowledgment_or_an_error(action: str) -> None:
    assert notice(answer(action), reliable(), Stage.FAILED, "relay") is None


@pytest.mark.parametrize(
    "stage",
    [Stage.READY, Stage.WAITING, Stage.SENT, Stage.ACKNOWLEDGED, Stage.SUSPENDED, Stage.SETTLED],
)
def test_nothing_is_said_of_what_is_not_given_up(stage: Stage) -> None:
    assert notice(ORDER, reliable(), stage, "buyer") is None


# Numbers


@pytest.mark.req("MS098-8.4.8-03", "MS098-8.4.8-04")
def test_a_number_is_given_where_order_is_guaranteed_and_only_there() -> None:
    ordered = reliable(messageOrderSemantics="Guaranteed")
    assert number(ordered, Numbering(), 0) == (SequenceNumber(0, Status.RESET), Numbering(1))
    assert number(reliable(), Numbering(), 0) == (None, Numbering())
    assert number(best_effort(), Numbering(), 0) == (None, Numbering())
