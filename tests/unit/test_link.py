"""The older draft's links: numbers, and the Sender's recovery."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.reliability import link
from postroad.reliability.link import (
    MAX_SEQUENCE_NUMBER,
    TABLE,
    TPA,
    Ack,
    AlreadySubmitted,
    DeliverySemantics,
    ErrorClass,
    ErrorMessage,
    Input,
    InvalidArgument,
    InvalidSequenceNumber,
    Link,
    MessageType,
    News,
    QueueFull,
    Report,
    Send,
    SenderState,
    Stage,
    Store,
    Triple,
    Wake,
    WrongTriple,
)
from postroad.reliability.link_receiver import (
    Rules,
)
from postroad.reliability.tables import Impossible, follow
from tests.unit.links import (
    ACME,
    GLOBEX,
    HTTP,
    HUB,
    LEFT,
    REFUSED_NUMBERS,
    SMTP,
    START,
    TERMS,
    Sender,
    ack,
    error,
    header,
    messaging_error,
    protocol_error,
    transient_error,
)

# Numbers


@pytest.mark.req("RM001-2.2.3-06", "RM001-2.1-06")
def test_numbers_begin_with_1_and_grow_by_one() -> None:
    sender = Sender()
    for name in ("a", "b", "c"):
        sender.submit(name)
        sender.hear(ack(name))
    assert sender.sent == [(0, "a", 1), (0, "b", 2), (0, "c", 3)]


@pytest.mark.req("RM001-2.1-05", "RM001-2.2.3-06")
def test_each_triple_has_its_own_numbers() -> None:
    sender = Sender()
    other = Triple(HUB, GLOBEX, "http")
    for triple in (HTTP, SMTP, other):
        sender.submit(f"{triple.sender_id.value} {triple.transport}", triple)
    assert [number for _, _, number in sender.sent] == [1, 1, 1]


@pytest.mark.req("RM001-2.2.3-07")
def test_after_the_greatest_number_comes_1() -> None:
    nearly = Link(HTTP, Stage.DONE, MAX_SEQUENCE_NUMBER - 1)
    sender = Sender(state=SenderState(GLOBEX, (nearly,)))
    for name in ("a", "b", "c"):
        sender.submit(name)
        sender.hear(ack(name))
    assert [number for _, _, number in sender.sent] == [MAX_SEQUENCE_NUMBER, 1, 2]


@pytest.mark.req("RM001-2.2.3-08", "RM001-2.2.3-09")
def test_after_long_idleness_the_number_is_forgotten_and_1_again() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(ack("a"))
    sender.wait(100)
    sender.forget(idle=100)
    assert sender.state == SenderState(GLOBEX)
    sender.submit("b")
    assert sender.sent[-1] == (100, "b", 1)


def test_a_number_is_not_forgotten_too_early() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(ack("a"))
    sender.wait(99)
    sender.forget(idle=100)
    sender.submit("b")
    assert sender.sent[-1] == (99, "b", 2)


def test_a_number_is_not_forgotten_while_a_message_is_under_way() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(ack("a"))
    sender.submit("b")
    before = sender.state
    sender.seconds = 10_000
    sender.forget(idle=1)
    assert sender.state == before


@pytest.mark.req("RM001-2.2.3-05", "RM001-2.1-06")
@given(st.integers(1, MAX_SEQUENCE_NUMBER) | st.just(MAX_SEQUENCE_NUMBER))
def test_the_number_after_a_number_is_in_the_range(last: int) -> None:
    number = link.next_number(last)
    assert link.sequence_number(number) == number
    assert number == last % MAX_SEQUENCE_NUMBER + 1


@pytest.mark.req("RM001-2.2.3-05")
@pytest.mark.parametrize("value", REFUSED_NUMBERS.values(), ids=REFUSED_NUMBERS)
def test_what_is_no_whole_number_in_the_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidSequenceNumber, match="1 to 4294967295"):
        link.sequence_number(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TPA(0, 3, 5),
        lambda: TPA(10, -1, 5),
        lambda: TPA(10, 3, 0),
        lambda: TPA(10, 3, 2**40),
        lambda: TPA(True, 3, 5),
        lambda: transient_error("a", -1),
        lambda: transient_error("a", 10**30),
        lambda: Rules(remember=0),
        lambda: Rules(min_retry_secs=-1),
    ],
)
def test_settings_and_seconds_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument):
        make()


# The Sender when all goes well


@pytest.mark.req("RM001-2.3-05", "RM001-2.2.2-01", "RM001-2.3-01")
def test_a_reliable_message_is_stored_and_then_sent() -> None:
    assert Sender().submit("a") == (
        Store("a"),
        Send("a", HTTP, 1),
        Wake(START + timedelta(seconds=TERMS.timeout)),
    )


@pytest.mark.req("RM001-2.3-04")
def test_the_next_message_leaves_when_the_last_one_is_acknowledged() -> None:
    sender = Sender()
    sender.submit("a")
    assert sender.submit("b")[0] == Store("b")
    sender.submit("c")
    assert sender.sent == [(0, "a", 1)]
    sender.hear(ack("a"))
    assert sender.sent == [(0, "a", 1), (0, "b", 2)]
    sender.hear(ack("b"))
    assert sender.sent[-1] == (0, "c", 3)


def test_another_triple_does_not_wait() -> None:
    sender = Sender()
    sender.submit("a", HTTP)
    sender.submit("b", SMTP)
    assert [name for _, name, _ in sender.sent] == ["a", "b"]


@pytest.mark.req("RM001-1.2-02", "RM001-2.6.3-07")
def test_a_fitting_acknowledgement_completes_the_transmission() -> None:
    sender = Sender()
    sender.submit("a")
    assert sender.hear(ack("a")) == (Report(News.COMPLETED, GLOBEX, "a", 1, Input.ACKNOWLEDGED),)
    sender.wait(1000)
    assert sender.sent == [(0, "a", 1)]


@pytest.mark.req("RM001-2.3-09")
@pytest.mark.parametrize(
    "answer",
    [ack("x"), ack("b"), ack("a", from_id=HUB), ack("a", to_id=HUB), transient_error("b")],
    ids=["unknown", "of a message that waits", "from another", "to another", "error"],
)
def test_an_answer_that_does_not_fit_is_reported_and_changes_nothing(
    answer: Ack | ErrorMessage,
) -> None:
    sender = Sender()
    sender.submit("a")
    sender.submit("b")
    before, alarm = sender.state, sender.wake_at
    sender.hear(answer)
    assert (sender.state, sender.wake_at) == (before, alarm)
    assert sender.news == [News.NOT_FITTING]
    assert sender.sent == [(0, "a", 1)]


def test_a_second_acknowledgement_changes_nothing() -> None:
    sender = Sender()
    sender.submit("a")
    sender.submit("b")
    sender.hear(ack("a"))
    before = sender.state
    sender.hear(ack("a"))
    assert sender.state == before
    assert sender.news == [News.COMPLETED, News.ACKNOWLEDGED_AGAIN]


def test_what_another_party_says_of_a_finished_message_is_not_believed() -> None:
    sender = Sender()
    sender.submit("a")
    sender.hear(ack("a"))
    sender.hear(ack("a", from_id=HUB))
    forged = header("a", MessageType.ERROR, from_id=HUB)
    sender.hear(ErrorMessage(forged, ErrorClass.MESSAGING_ERROR))
    assert sender.news == [News.COMPLETED, News.NOT_FITTING, News.NOT_FITTING]


def made_to_wait(stage: Stage) -> Sender:
    """A Sender with a message under way and one behind it, in the stage."""
    sender = Sender(TPA(10, 0 if stage is Stage.SUSPENDED_ADMIN else 3, 5))
    sender.submit("a")
    sender.submit("b")
    if stage is Stage.RETRY_WAIT:
        sender.fail("a")
    elif stage is Stage.SUSPENDED_TRANSIENT:
        sender.hear(transient_error("a", 60))
    elif stage is Stage.SUSPENDED_ADMIN:
        sender.wait(10)
    assert sender.stage() is stage
    return sender


UNDER_WAY = (Stage.SENT, Stage.RETRY_WAIT, Stage.SUSPENDED_TRANSIENT, Stage.SUSPENDED_ADMIN)


@pytest.mark.req("RM001-2.6.3-07", "RM001-2.6.5-05", "RM001-2.6.6-05")
@pytest.mark.parametrize("stage", UNDER_WAY)
def test_an_acknowledgement_completes_the_message_in_whatever_stage(stage: Stage) -> None:
    sender = made_to_wait(stage)
    sender.hear(ack("a"))
    assert sender.news[-1] is News.COMPLETED
    sender.wait(1000)
    assert "a" not in {name for _, name, _ in sender.sent[1:]}


@pytest.mark.parametrize("stage", [Stage.SUSPENDED_TRANSIENT, Stage.SUSPENDED_ADMIN])
def test_a_late_acknowledgement_does_not_end_the_suspension(stage: Stage) -> None:
    sender = made_to_wait(stage)
    sender.hear(ack("a"))
    assert [name for _, name, _ in sender.sent] == ["a"]


@pytest.mark.req("RM001-2.2.2-03")
def test_an_unreliable_message_has_no_number_no_store_and_no_recovery() -> None:
    sender = Sender()
    actions = sender.submit("a", semantics=DeliverySemantics.UNSPECIFIED)
    assert actions == (Send("a", HTTP, None),)
    assert sender.state == SenderState(GLOBEX)
    sender.fail("a")
    sender.wait(1000)
    assert sender.sent == [(0, "a", None)]


def test_an_unreliable_message_does_not_wait_for_a_reliable_one() -> None:
    sender = Sender()
    sender.submit("a")
    sender.submit("b", semantics=DeliverySemantics.UNSPECIFIED)
    assert sender.sent == [(0, "a", 1), (0, "b", None)]


def test_a_message_cannot_be_submitted_twice_while_it_waits_or_is_under_way() -> None:
    sender = Sender()
    sender.submit("a")
    sender.submit("b")
    for name in ("a", "b"):
        with pytest.raises(AlreadySubmitted):
            sender.submit(name, SMTP)


def test_a_message_for_another_receiver_is_refused() -> None:
    with pytest.raises(WrongTriple):
        Sender().submit("a", Triple(ACME, HUB, "http"))


@pytest.mark.parametrize("semantics", DeliverySemantics)
def test_the_queue_is_bounded(semantics: DeliverySemantics) -> None:
    sender = made_to_wait(Stage.SUSPENDED_ADMIN)
    sender.submit("c", semantics=semantics, limit=2)
    sender.submit("d", semantics=DeliverySemantics.UNSPECIFIED)
    with pytest.raises(QueueFull):
        sender.submit("e", semantics=semantics, limit=2)


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


# The machine as a whole


Act = Callable[[Sender, Triple, str, int], object]
Step = tuple[Act, Triple, int]
ACTS: list[Act] = [
    lambda sender, triple, _, __: sender.submit(next(sender.ids), triple),
    lambda sender, triple, _, __: sender.submit(
        next(sender.ids), triple, semantics=DeliverySemantics.UNSPECIFIED
    ),
    lambda sender, _, about, __: sender.hear(ack(about)),
    lambda sender, _, about, __: sender.hear(protocol_error(about)),
    lambda sender, _, about, __: sender.hear(messaging_error(about)),
    lambda sender, _, about, seconds: sender.hear(transient_error(about, seconds)),
    lambda sender, _, about, __: sender.fail(about),
    lambda sender, _, __, seconds: sender.wait(seconds),
    lambda sender, *_: sender.resume(),
    lambda sender, _, __, seconds: sender.forget(seconds),
]
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTS), st.sampled_from([HTTP, SMTP]), st.integers(0, 40)),
    max_size=60,
)


def play(steps: list[Step], check: Callable[[Sender], None]) -> Sender:
    sender = Sender(TPA(timeout=10, retries=2, retry_interval=5))
    for act, triple, seconds in steps:
        under_way = {each.triple: each.message_id for each in sender.state.links}
        act(sender, triple, under_way.get(triple) or "nothing", seconds)
        check(sender)
    return sender


@pytest.mark.req("RM001-2.3-04", "RM001-2.6.8-01")
@given(STEPS)
def test_whatever_happens_one_message_is_under_way_and_retries_are_bounded(
    steps: list[Step],
) -> None:
    def check(sender: Sender) -> None:
        for each in sender.state.links:
            assert (each.message_id is not None) == (each.stage in UNDER_WAY)
            assert each.retries <= sender.tpa.retries
            assert (each.due is None) == (
                each.stage in (Stage.IDLE, Stage.DONE, Stage.SUSPENDED_ADMIN)
            )
            free = each.stage not in UNDER_WAY and not sender.state.is_suspended(sender.now)
            assert not (free and each.queue)

    sender = play(steps, check)
    done = {each.message_id for each in sender.reports if each.news in LEFT}
    under_way = {each.message_id for each in sender.state.links}
    assert {name for _, name, number in sender.sent if number is not None} <= done | under_way


@given(STEPS)
def test_every_state_survives_being_kept_as_json(steps: list[Step]) -> None:
    def check(sender: Sender) -> None:
        kept = msgspec.json.encode(sender.state)
        assert msgspec.json.decode(kept, type=SenderState) == sender.state

    play(steps, check)


@given(STEPS)
def test_an_alarm_is_never_for_now_once_it_was_heeded(steps: list[Step]) -> None:
    def check(sender: Sender) -> None:
        actions = link.wake(sender.state, sender.now, sender.tpa).actions
        assert all(each.at > sender.now for each in actions if isinstance(each, Wake))

    play(steps, check)


def test_what_is_not_in_the_table_does_not_happen() -> None:
    with pytest.raises(Impossible):
        follow(TABLE, Stage.IDLE, Input.ACKNOWLEDGED)


def test_every_stage_can_be_reached_and_left() -> None:
    reached = {stage for row in TABLE.values() for stage in row.values()}
    assert reached == {*Stage} == {*TABLE}
    assert all(TABLE.values())
