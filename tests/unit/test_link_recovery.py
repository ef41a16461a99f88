"""The older draft's links: how the Sender recovers, and when it waits to be resumed."""

from datetime import timedelta

import pytest

from postroad.reliability import link
from postroad.reliability.link import (
    MAX_SEQUENCE_NUMBER,
    TPA,
    DeliverySemantics,
    ErrorClass,
    Input,
    News,
    Report,
    Send,
    Stage,
    Triple,
    Wake,
)
from tests.unit.links import (
    GLOBEX,
    HTTP,
    HUB,
    SMTP,
    START,
    TERMS,
    UNDER_WAY,
    Sender,
    ack,
    error,
    made_to_wait,
    messaging_error,
    protocol_error,
    transient_error,
)

# Recovery


@pytest.mark.req(
    "RM001-2.1-12",
    "RM001-2.1-13",
    "RM001-2.4-01",
    "RM001-2.6.5-01",
    "RM001-2.6.5-02",
    "RM001-2.6.5-03",
    "RM001-2.6.5-04",
    "RM001-5-01",
    "RM001-5-02",
    "RM001-5-04",
)
def test_without_an_answer_it_is_sent_again_after_timeout_and_then_each_retry_interval() -> None:
    sender = Sender(TPA(timeout=10, retries=3, retry_interval=5))
    sender.submit("a")
    sender.wait(1000)
    assert sender.sent == [(0, "a", 1), (10, "a", 1), (15, "a", 1), (20, "a", 1)]


@pytest.mark.req("RM001-1.2-02", "RM001-2.1-13", "RM001-2.6.8-02", "RM001-5-03")
def test_the_last_retry_without_an_answer_is_reported_when_its_interval_is_over() -> None:
    sender = Sender(TPA(timeout=10, retries=3, retry_interval=5))
    sender.submit("a")
    sender.wait(24)
    assert sender.reports == []
    sender.wait(1)
    assert sender.reports == [Report(News.SUSPENDED_ADMIN, GLOBEX, "a", 4, Input.TIMEOUT)]


def test_without_retries_the_timeout_is_the_end() -> None:
    sender = Sender(TPA(timeout=10, retries=0, retry_interval=5))
    sender.submit("a")
    sender.wait(1000)
    assert sender.sent == [(0, "a", 1)]
    assert sender.news == [News.SUSPENDED_ADMIN]


@pytest.mark.req("RM001-2.6.3-02", "RM001-2.6.3-03", "RM001-2.6.3-05", "RM001-2.6.8-01")
@pytest.mark.parametrize("told", [False, True], ids=["noticed", "told by the Receiver"])
def test_a_protocol_error_makes_it_leave_again_after_the_retry_interval(told: bool) -> None:
    sender = Sender(TPA(timeout=10, retries=3, retry_interval=5))
    sender.submit("a")
    for _ in range(4):
        sender.wait(1)
        if told:
            sender.hear(protocol_error("a"))
        else:
            sender.fail("a")
        sender.wait(5)
    assert [when for when, _, _ in sender.sent] == [0, 6, 12, 18]
    [report] = sender.reports
    assert (report.news, report.cause) == (News.SUSPENDED_ADMIN, Input.PROTOCOL_ERROR)


@pytest.mark.req("RM001-2.6.3-04", "RM001-2.6.6-04", "RM001-2.6.1-01")
@pytest.mark.parametrize("what", [Input.PROTOCOL_ERROR, Input.TIMEOUT, Input.TRANSIENT_ERROR])
def test_what_is_sent_again_is_what_was_sent_first(what: Input) -> None:
    sender = Sender()
    [first] = [each for each in sender.submit("a") if isinstance(each, Send)]
    if what is not Input.TIMEOUT:
        sender.hear(error("a", ErrorClass(what.value)))
    assert sender.wake_at is not None
    step = link.wake(sender.state, sender.wake_at, TERMS)
    assert [each for each in step.actions if isinstance(each, Send)] == [first]


def test_a_second_error_about_the_same_copy_does_not_make_the_wait_longer() -> None:
    sender = Sender()
    sender.submit("a")
    sender.fail("a")
    sender.wait(4)
    sender.hear(protocol_error("a"))
    sender.wait(1)
    assert [when for when, _, _ in sender.sent] == [0, 5]


@pytest.mark.req("RM001-2.6.6-02", "RM001-2.6.6-03")
@pytest.mark.parametrize(("seconds", "when"), [(60, 61), (0, 1), (None, 6)])
def test_a_transient_error_suspends_for_what_it_says_or_else_the_retry_interval(
    seconds: int | None, when: int
) -> None:
    sender = Sender()
    sender.submit("a")
    sender.wait(1)
    sender.hear(transient_error("a", seconds))
    [report] = sender.reports
    assert report.news is News.SUSPENDED_TRANSIENT
    assert report.until == START + timedelta(seconds=when)
    sender.wait(when - 1)
    assert sender.sent == [(0, "a", 1), (when, "a", 1)]


def test_only_a_transient_error_is_reported_with_its_end() -> None:
    sender = Sender()
    sender.submit("a")
    sender.submit("b", SMTP)
    sender.hear(transient_error("a", 60))
    sender.hear(messaging_error("b"))
    assert [(one.news, one.until) for one in sender.reports] == [
        (News.SUSPENDED_TRANSIENT, START + timedelta(seconds=60)),
        (News.MESSAGING_ERROR, None),
    ]


@pytest.mark.req("RM001-2.6.6-01")
def test_a_transient_error_suspends_all_that_goes_to_the_receiver() -> None:
    sender = Sender()
    sender.submit("a", HTTP)
    sender.submit("b", SMTP)
    sender.hear(transient_error("a", 60))
    sender.submit("c", Triple(HUB, GLOBEX, "http"))
    sender.submit("d", semantics=DeliverySemantics.UNSPECIFIED)
    sender.wait(59)
    assert sender.sent == [(0, "a", 1), (0, "b", 1)]
    assert sender.stage(SMTP) is Stage.SUSPENDED_TRANSIENT
    sender.wait(1)
    again = sorted(name for when, name, _ in sender.sent if when == 60)
    assert again == ["a", "b", "c", "d"]


def test_waiting_for_another_triples_suspension_uses_up_no_retry() -> None:
    sender = Sender(TPA(timeout=10, retries=1, retry_interval=5))
    sender.submit("a", HTTP)
    sender.submit("b", SMTP)
    sender.hear(transient_error("a", 60))
    sender.wait(60)
    sender.hear(ack("a"))
    assert (60, "b", 1) in sender.sent
    assert sender.news == [News.SUSPENDED_TRANSIENT, News.COMPLETED]


def test_what_another_triple_still_waits_for_may_come_while_the_receiver_is_suspended() -> None:
    sender = Sender()
    sender.submit("a", HTTP)
    sender.submit("b", SMTP)
    sender.hear(transient_error("a", 60))
    sender.hear(ack("b"))
    assert sender.stage(SMTP) is Stage.DONE


@pytest.mark.req("RM001-2.6.6-05")
def test_a_further_transient_error_suspends_again() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(transient_error("a", 20))
    sender.wait(21)
    sender.hear(transient_error("a", 30))
    sender.wait(1000)
    assert [when for when, _, _ in sender.sent[:3]] == [0, 20, 51]


def test_a_suspension_can_get_longer_and_not_shorter() -> None:
    sender = Sender()
    sender.submit("a", HTTP)
    sender.submit("b", SMTP)
    sender.hear(transient_error("a", 20))
    sender.hear(transient_error("b", 60))
    sender.hear(transient_error("a", 5))
    sender.wait(60)
    assert [when for when, _, _ in sender.sent] == [0, 0, 60, 60]


@pytest.mark.req("RM001-2.6.3-06", "RM001-2.6.5-05", "RM001-2.6.6-05")
def test_another_error_starts_the_recovery_of_that_error() -> None:
    sender = Sender(TPA(timeout=10, retries=9, retry_interval=5))
    sender.submit("a")
    sender.fail("a")
    sender.hear(transient_error("a", 60))
    assert sender.stage() is Stage.SUSPENDED_TRANSIENT
    sender.wait(60)
    sender.fail("a")
    assert sender.stage() is Stage.RETRY_WAIT
    sender.wait(5 + 5)
    sender.hear(transient_error("a", 30))
    sender.wait(30)
    assert [when for when, _, _ in sender.sent] == [0, 60, 65, 70, 100]


@pytest.mark.req("RM001-2.6.8-01", "RM001-5-02")
def test_the_retries_of_all_classes_are_counted_together() -> None:
    sender = Sender(TPA(timeout=10, retries=3, retry_interval=5))
    sender.submit("a")
    sender.fail("a")
    sender.wait(5)
    sender.hear(transient_error("a", 20))
    sender.wait(20)
    sender.wait(5)
    assert len(sender.sent) == 4
    sender.hear(transient_error("a", 20))
    sender.wait(1000)
    assert len(sender.sent) == 4
    assert sender.news == [News.SUSPENDED_TRANSIENT, News.SUSPENDED_ADMIN]


def test_each_transmission_has_all_retries() -> None:
    sender = Sender(TPA(timeout=10, retries=1, retry_interval=5))
    for name in ("a", "b"):
        sender.submit(name)
        sender.wait(10)
        sender.hear(ack(name))
    assert sender.news == [News.COMPLETED, News.COMPLETED]


@pytest.mark.req("RM001-2.6.1-02", "RM001-2.6.4-01")
@pytest.mark.parametrize("stage", UNDER_WAY)
def test_a_messaging_error_is_passed_up_and_nothing_is_sent_again(stage: Stage) -> None:
    sender = made_to_wait(stage)
    sender.hear(messaging_error("a"))
    report = sender.reports[-1]
    assert (report.news, report.message_id) == (News.MESSAGING_ERROR, "a")
    assert (report.copies, report.detail) == (1, "so it is")
    sender.wait(1000)
    assert "a" not in {name for _, name, _ in sender.sent[1:]}


@pytest.mark.req("RM001-2.6.4-01")
def test_after_a_messaging_error_the_next_message_leaves_with_a_number_any_receiver_takes() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(ack("a"))
    sender.submit("b")
    sender.submit("c")
    sender.hear(messaging_error("b"))
    assert sender.sent == [(0, "a", 1), (0, "b", 2), (0, "c", 1)]


def test_a_messaging_error_about_a_message_that_is_done_is_passed_up() -> None:
    sender = Sender()
    sender.submit("a", semantics=DeliverySemantics.UNSPECIFIED)
    sender.hear(messaging_error("a"))
    assert sender.news == [News.MESSAGING_ERROR]


# Suspension until the administrator resumes


@pytest.mark.req("RM001-2.6.8-01")
def test_after_the_last_retry_nothing_is_sent_to_the_receiver() -> None:
    sender = Sender(TPA(timeout=10, retries=0, retry_interval=5))
    sender.submit("a", HTTP)
    sender.wait(5)
    sender.submit("b", SMTP)
    sender.wait(5)
    sender.submit("c", Triple(HUB, GLOBEX, "http"))
    sender.submit("d", semantics=DeliverySemantics.UNSPECIFIED)
    sender.hear(ack("b"))
    sender.submit("e", SMTP)
    sender.wait(100_000)
    assert sender.sent == [(0, "a", 1), (5, "b", 1)]
    assert sender.wake_at is None


@pytest.mark.req("RM001-2.6.8-03")
def test_when_resumed_the_unfinished_message_goes_first_and_all_retries_are_there_again() -> None:
    sender = Sender(TPA(timeout=10, retries=1, retry_interval=5))
    sender.submit("a")
    sender.submit("b")
    sender.wait(100)
    sender.resume()
    assert sender.sent[2:] == [(100, "a", 1)]
    sender.wait(10)
    assert sender.sent[3:] == [(110, "a", 1)]
    sender.hear(ack("a"))
    assert sender.sent[4:] == [(110, "b", 2)]
    assert sender.news == [News.SUSPENDED_ADMIN, News.RESUMED, News.COMPLETED]


def test_resuming_lets_everything_go_that_was_held_up() -> None:
    sender = Sender(TPA(timeout=10, retries=0, retry_interval=5))
    sender.submit("a")
    sender.wait(10)
    sender.submit("b", SMTP)
    sender.submit("c", semantics=DeliverySemantics.UNSPECIFIED)
    sender.resume()
    assert sorted(name for when, name, _ in sender.sent if when == 10) == ["a", "b", "c"]


def test_a_message_whose_wait_ends_in_another_ones_suspension_is_resumed_with_it() -> None:
    sender = Sender(TPA(timeout=10, retries=1, retry_interval=5))
    sender.submit("a", HTTP)
    sender.wait(10)
    sender.submit("b", SMTP)
    sender.wait(40)
    assert sender.stage(SMTP) is Stage.SUSPENDED_ADMIN
    assert sender.news == [News.SUSPENDED_ADMIN]
    sender.resume()
    assert {name for when, name, _ in sender.sent if when == 50} == {"a", "b"}


def test_an_administrator_can_end_a_transient_suspension() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(transient_error("a", MAX_SEQUENCE_NUMBER))
    sender.resume()
    assert sender.sent == [(0, "a", 1), (0, "a", 1)]
    assert not sender.state.is_suspended(sender.now)


def test_resuming_what_is_not_suspended_changes_nothing() -> None:
    sender = made_to_wait(Stage.RETRY_WAIT)
    before = sender.state
    sender.resume()
    assert (sender.state, sender.news) == (before, [])


def test_a_clock_that_is_set_back_only_makes_it_wait() -> None:
    sender = Sender()
    sender.submit("a")
    early = sender.now - timedelta(hours=1)
    step = link.wake(sender.state, early, TERMS)
    assert step.state == sender.state
    assert step.actions == (Wake(START + timedelta(seconds=10)),)
