"""The older draft's links: numbers, the Sender when all goes well, the machine as a whole."""

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
from postroad.reliability.link_receiver import Rules
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
    UNDER_WAY,
    Sender,
    ack,
    header,
    made_to_wait,
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
