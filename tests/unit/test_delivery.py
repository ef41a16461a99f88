"""The life of an outgoing message: the timeline, the truth about its end, and every input."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from postroad.agreement.waiting import Policy
from postroad.reliability.delivery import (
    AT_WORK,
    CLOSING,
    GIVEN_UP,
    KINDS,
    TABLE,
    Decision,
    Input,
    Life,
    Stage,
    attempted,
    begun_anew,
    heard,
    interrupted,
    settled,
    woken,
)
from postroad.reliability.schedule import ONCE
from postroad.reliability.tables import Impossible

T0: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)
POLICY: Final = Policy(10 * SECOND, 3 * SECOND, retries=2)
READY: Final = Life(Stage.READY, T0)
WAITING: Final = Life(Stage.WAITING, T0, 1, 1, T0, T0)
DOUBTFUL: Final = Life(Stage.IN_DOUBT, T0, 3, 3, T0, T0)
FAILED: Final = Life(Stage.FAILED, T0, 3)
EXPIRED: Final = Life(Stage.EXPIRED, T0, 3)
SENT: Final = Life(Stage.SENT, T0, 1, 1, T0, T0)
ENDED: Final = (DOUBTFUL, FAILED, EXPIRED)


def tried(
    life: Life, result: Input, policy: Policy = POLICY, at: datetime = T0, *, hope: bool = False
) -> Decision:
    """After an attempt that took no time."""
    return attempted(life, result, policy, began=at, now=at, hope=hope)


def given_up(life: Life, result: Input, policy: Policy = POLICY, *, hope: bool = False) -> Decision:
    """The end of a message of which every attempt comes to the same."""
    decision = tried(life, result, policy, hope=hope)
    while decision.due is not None:
        found = woken(decision.life, policy, decision.due)
        if found is not None:
            return found
        decision = tried(decision.life, result, policy, decision.due, hope=hope)
    return decision


def after(decision: Decision | None) -> tuple[Stage, int]:
    assert decision is not None
    return decision.life.stage, decision.life.unanswered


# The timeline


@pytest.mark.req(
    "RM000-1.2.6-01",
    "RM000-1.2.8-01",
    "RM000-1.3.1.4-01",
    "RM000-1.3.1.4-02",
    "MS098-10.2.6-01",
    "MS098-10.2.8-01",
    "MS098-10.3.1.4-01",
    "MS098-10.3.1.4-02",
    "RM001-5-01",
    "RM001-5-02",
    "RM001-5-04",
    "OV004-1-09",
)
def test_without_an_answer_it_is_sent_after_the_timeout_and_after_each_interval() -> None:
    life, at = READY, [T0]
    for _ in range(POLICY.retries or 0):
        decision = tried(life, Input.UNANSWERED, at=at[-1])
        assert decision.due is not None
        assert woken(decision.life, POLICY, decision.due) is None
        life = decision.life
        at.append(decision.due)
    assert at == [T0, T0 + 10 * SECOND, T0 + 13 * SECOND]


@pytest.mark.req(
    "RM000-1.2.7-01", "MS098-10.2.7-01", "OV004-1-12", "RM000-1.3.1.4-03", "MS098-10.3.1.4-03"
)
def test_one_interval_after_the_last_retry_it_is_given_up() -> None:
    life = Life(Stage.WAITING, T0, 2, 2, T0, T0 + 10 * SECOND)
    last = tried(life, Input.UNANSWERED, at=T0 + 13 * SECOND, hope=True)
    assert last.due == last.decided_by == T0 + 16 * SECOND
    over = woken(last.life, POLICY, T0 + 16 * SECOND)
    assert after(over) == (Stage.IN_DOUBT, 3)
    assert over is not None
    assert over.due is None
    assert over.closing == "in_doubt"


def test_when_no_answer_can_come_any_more_the_last_retry_is_the_end() -> None:
    life = Life(Stage.WAITING, T0, 2, 2, T0, T0)
    assert after(tried(life, Input.UNANSWERED)) == (Stage.IN_DOUBT, 3)
    assert after(tried(Life(Stage.READY, T0, 2), Input.NOT_SENT)) == (Stage.FAILED, 0)


def test_without_retries_one_attempt_is_all() -> None:
    assert after(tried(READY, Input.NOT_SENT, ONCE)) == (Stage.FAILED, 0)
    assert after(tried(READY, Input.UNANSWERED, ONCE)) == (Stage.IN_DOUBT, 1)


def test_the_interval_counts_from_when_an_attempt_began() -> None:
    decision = attempted(READY, Input.UNANSWERED, POLICY, began=T0, now=T0 + 4 * SECOND)
    assert decision.due == T0 + 10 * SECOND


def test_after_a_long_attempt_the_next_one_is_due_at_once() -> None:
    now = T0 + HOUR
    decision = attempted(READY, Input.UNANSWERED, POLICY, began=T0, now=now)
    assert decision.due == now
    assert decision.decided_by is not None
    assert decision.decided_by >= now


def test_a_clock_that_was_set_back_during_an_attempt_delays_nothing() -> None:
    decision = attempted(READY, Input.UNANSWERED, POLICY, began=T0 + HOUR, now=T0)
    assert decision.due == T0 + 10 * SECOND


@pytest.mark.req("OV004-2-06")
def test_it_is_told_until_when_its_fate_is_known() -> None:
    assert tried(READY, Input.UNANSWERED).decided_by == T0 + 16 * SECOND
    second = tried(WAITING, Input.UNANSWERED, at=T0 + 10 * SECOND)
    assert second.decided_by == T0 + 16 * SECOND


def test_dice_stretch_the_wait() -> None:
    policy = changed(POLICY, jitter=0.5)
    decision = attempted(READY, Input.UNANSWERED, policy, began=T0, now=T0, dice=1.0)
    assert decision.due == T0 + 15 * SECOND


def test_unlimited_retries_go_on() -> None:
    policy = changed(POLICY, retries=None)
    life = Life(Stage.WAITING, T0, 10**6, 10**6, T0, T0)
    decision = tried(life, Input.UNANSWERED, policy)
    assert decision.due == T0 + 3 * SECOND
    assert decision.decided_by is None


def test_unlimited_retries_end_with_the_time_to_live() -> None:
    policy = changed(POLICY, retries=None, time_to_live=HOUR)
    assert tried(READY, Input.UNANSWERED, policy).decided_by == T0 + HOUR


def test_absurdly_many_retries_have_no_date() -> None:
    """The calendar ends with the year 9999."""
    policy = Policy(SECOND, SECOND, 1_000_000, growth=2.0)
    assert tried(READY, Input.UNANSWERED, policy).due == T0 + SECOND


# Time that is over


def test_what_was_not_sent_before_its_time_to_live_expires() -> None:
    policy = changed(POLICY, time_to_live=HOUR)
    assert woken(READY, policy, T0 + HOUR - SECOND) is None
    over = woken(READY, policy, T0 + HOUR)
    assert after(over) == (Stage.EXPIRED, 0)
    assert over is not None
    assert over.closing == "expired"


def test_what_left_before_its_time_to_live_is_in_doubt() -> None:
    policy = changed(POLICY, time_to_live=HOUR)
    assert after(woken(WAITING, policy, T0 + HOUR)) == (Stage.IN_DOUBT, 1)


def test_it_is_looked_at_when_its_time_is_over_not_later() -> None:
    policy = changed(POLICY, time_to_live=12 * SECOND)
    decision = tried(WAITING, Input.UNANSWERED, policy, T0 + 10 * SECOND)
    assert decision.due == decision.decided_by == decision.ends_at == T0 + 12 * SECOND


@pytest.mark.req("RM000-1.2.10-03", "MS098-10.2.9-02", "MS098-10.2.9-03")
def test_after_persist_duration_nothing_is_sent_under_the_same_id() -> None:
    policy = changed(POLICY, retries=None, persist_duration=HOUR)
    late = changed(WAITING, created_at=T0 - 10 * HOUR)
    assert woken(late, policy, T0 + HOUR - SECOND) is None
    assert after(woken(late, policy, T0 + HOUR)) == (Stage.IN_DOUBT, 1)


@pytest.mark.req("MS098-10.2.9-02")
def test_persist_duration_of_an_interrupted_attempt_counts_from_when_it_can_have_left() -> None:
    policy = changed(POLICY, persist_duration=HOUR)
    life = interrupted(READY, T0 + SECOND)
    assert life.first_sent_at == T0 + SECOND
    assert woken(life, policy, T0 + HOUR) is None
    assert after(woken(life, policy, T0 + HOUR + SECOND)) == (Stage.IN_DOUBT, 1)


def test_persist_duration_counts_from_the_first_sending_not_from_the_last() -> None:
    second = tried(WAITING, Input.UNANSWERED, at=T0 + 10 * SECOND).life
    assert (second.first_sent_at, second.last_sent_at) == (T0, T0 + 10 * SECOND)


def test_an_attempt_that_did_not_leave_is_no_sending() -> None:
    life = tried(READY, Input.NOT_SENT).life
    assert (life.first_sent_at, life.last_sent_at, life.tries) == (None, None, 1)


# Error or Warning


@pytest.mark.req("RM000-1.4-06", "MS098-10.4-05")
@pytest.mark.parametrize("hope", [False, True])
def test_what_never_left_ends_as_an_error(hope: bool) -> None:
    decision = given_up(READY, Input.NOT_SENT, hope=hope)
    assert after(decision) == (Stage.FAILED, 0)
    assert KINDS[decision.life.stage] == "Error"
    assert decision.closing == "delivery_failed"


@pytest.mark.req("RM000-1.4-07", "MS098-10.4-06")
@pytest.mark.parametrize("hope", [False, True])
def test_what_left_and_was_not_answered_ends_as_a_warning(hope: bool) -> None:
    decision = given_up(READY, Input.UNANSWERED, hope=hope)
    assert after(decision) == (Stage.IN_DOUBT, 3)
    assert KINDS[decision.life.stage] == "Warning"


def test_what_left_once_stays_a_warning_although_later_attempts_did_not_leave() -> None:
    assert after(given_up(WAITING, Input.NOT_SENT)) == (Stage.IN_DOUBT, 1)


def test_what_was_turned_away_each_time_certainly_did_not_arrive() -> None:
    assert after(given_up(READY, Input.TURNED_AWAY)) == (Stage.FAILED, 0)


def test_what_was_turned_away_after_an_unanswered_copy_is_in_doubt() -> None:
    assert after(given_up(WAITING, Input.TURNED_AWAY)) == (Stage.IN_DOUBT, 1)


def test_every_failure_has_a_kind_and_a_word_for_the_journal() -> None:
    assert GIVEN_UP == set(KINDS) == set(CLOSING) - {Stage.SETTLED}


def test_where_no_receipt_was_agreed_on_leaving_is_all() -> None:
    decision = tried(READY, Input.LEFT)
    assert after(decision) == (Stage.SENT, 1)
    assert decision.due is None


# Refusals


def test_a_refusal_of_the_only_copy_ends_it_as_failed() -> None:
    assert after(tried(READY, Input.REFUSED)) == (Stage.FAILED, 0)
    assert after(heard(WAITING, Input.REFUSED)) == (Stage.FAILED, 0)


def test_a_refusal_while_an_earlier_copy_is_unanswered_is_doubt() -> None:
    assert after(tried(WAITING, Input.REFUSED)) == (Stage.IN_DOUBT, 1)


def test_a_refusal_that_calls_back_while_another_copy_is_under_way_is_doubt() -> None:
    assert after(heard(WAITING, Input.REFUSED, under_way=True)) == (Stage.IN_DOUBT, 1)
    assert after(heard(READY, Input.REFUSED, under_way=True)) == (Stage.FAILED, 0)


def test_a_refusal_answers_one_copy_only() -> None:
    assert after(heard(changed(WAITING, unanswered=3), Input.REFUSED)) == (Stage.IN_DOUBT, 2)


def test_further_refusals_do_not_make_doubt_a_certainty() -> None:
    """The same refusal may come twice, and nobody knows which copy it is about."""
    assert heard(DOUBTFUL, Input.REFUSED) is None
    assert heard(changed(DOUBTFUL, unanswered=1), Input.REFUSED) is None


@pytest.mark.parametrize("life", [FAILED, EXPIRED])
def test_a_refusal_of_what_failed_says_nothing_new(life: Life) -> None:
    assert heard(life, Input.REFUSED) is None


def test_a_message_without_an_agreed_receipt_may_still_be_refused() -> None:
    assert after(heard(SENT, Input.REFUSED)) == (Stage.FAILED, 0)
    assert after(heard(changed(SENT, unanswered=2), Input.REFUSED)) == (Stage.IN_DOUBT, 1)


def test_a_receipt_that_nobody_asked_for_is_believed_too() -> None:
    assert after(heard(SENT, Input.ACKNOWLEDGED)) == (Stage.ACKNOWLEDGED, 0)


def test_a_refusal_ends_a_suspended_message() -> None:
    stopped = changed(WAITING, stage=Stage.SUSPENDED)
    assert after(heard(stopped, Input.REFUSED)) == (Stage.FAILED, 0)
    assert after(heard(changed(stopped, unanswered=2), Input.REFUSED)) == (Stage.IN_DOUBT, 1)


# Receipts


@pytest.mark.req("MS098-10.3.1.2-02", "RM001-2.6.3-07")
@pytest.mark.parametrize("life", [READY, WAITING], ids=["ready", "waiting"])
def test_a_receipt_ends_it(life: Life) -> None:
    decision = tried(life, Input.ACKNOWLEDGED)
    assert after(decision) == (Stage.ACKNOWLEDGED, 0)
    assert decision.due is None
    assert decision.closing is None


@pytest.mark.req("OV004-2-04")
@pytest.mark.parametrize("life", ENDED, ids=["in doubt", "failed", "expired"])
def test_a_receipt_that_comes_after_it_was_given_up_settles_it(life: Life) -> None:
    decision = heard(life, Input.ACKNOWLEDGED)
    assert after(decision) == (Stage.SETTLED, 0)
    assert decision is not None
    assert decision.closing == "settled"


@pytest.mark.req("OV004-2-04")
def test_a_receipt_that_comes_between_two_attempts_ends_it() -> None:
    assert after(heard(WAITING, Input.ACKNOWLEDGED)) == (Stage.ACKNOWLEDGED, 0)


@pytest.mark.req("OV004-2-05")
def test_further_receipts_change_nothing() -> None:
    done = changed(WAITING, stage=Stage.ACKNOWLEDGED, unanswered=0)
    assert heard(done, Input.ACKNOWLEDGED) is None
    again = changed(WAITING, stage=Stage.SETTLED, unanswered=0)
    assert after(heard(again, Input.ACKNOWLEDGED)) == (Stage.SETTLED, 0)


def test_a_unit_of_an_acknowledged_envelope_may_still_be_refused() -> None:
    done = changed(WAITING, stage=Stage.ACKNOWLEDGED, unanswered=0)
    assert after(heard(done, Input.UNIT_REFUSED, attempts=1)) == (Stage.FAILED, 0)
    assert heard(WAITING, Input.UNIT_REFUSED) is None


def test_a_refusal_leaves_doubt_where_another_copy_may_be_the_acknowledged_one() -> None:
    done = changed(WAITING, stage=Stage.ACKNOWLEDGED, unanswered=0)
    assert after(heard(done, Input.UNIT_REFUSED, attempts=2)) == (Stage.IN_DOUBT, 0)
    decision = heard(done, Input.UNIT_REFUSED, attempts=1, under_way=True)
    assert after(decision) == (Stage.IN_DOUBT, 0)


@pytest.mark.parametrize("said", sorted({*Input} - {Input.UNIT_REFUSED}))
def test_acknowledged_never_changes_again(said: Input) -> None:
    done = changed(WAITING, stage=Stage.ACKNOWLEDGED, unanswered=0)
    assert heard(done, said) is None
    assert begun_anew(done, said, T0) is None
    assert settled(done) is None


def test_a_receipt_that_came_late_is_not_taken_back_by_a_resend() -> None:
    late = heard(DOUBTFUL, Input.ACKNOWLEDGED)
    assert late is not None
    assert begun_anew(late.life, Input.RESENT, T0) is None


def test_a_receipt_for_what_was_never_packaged_says_nothing() -> None:
    assert heard(Life(Stage.SUBMITTED, T0), Input.ACKNOWLEDGED) is None


def test_a_suspended_message_that_is_answered_is_acknowledged() -> None:
    stopped = changed(WAITING, stage=Stage.SUSPENDED)
    assert after(heard(stopped, Input.ACKNOWLEDGED)) == (Stage.ACKNOWLEDGED, 0)


# Interruption


@pytest.mark.req("RM000-1.1-04", "MS098-10.1.1-04")
@pytest.mark.parametrize("life", [READY, WAITING], ids=["ready", "waiting"])
def test_an_interrupted_attempt_may_have_left_and_uses_up_no_retry(life: Life) -> None:
    found = interrupted(life, T0)
    assert (found.stage, found.unanswered) == (Stage.WAITING, life.unanswered + 1)
    assert found.tries == life.tries
    assert woken(found, POLICY, T0) is None


# Partners that cannot be reached


def test_with_fail_fast_a_partner_that_is_not_reached_ends_it_at_once() -> None:
    fast = changed(POLICY, fail_fast=True)
    assert after(tried(READY, Input.NOT_SENT, fast)) == (Stage.FAILED, 0)
    assert after(tried(WAITING, Input.NOT_SENT, fast)) == (Stage.IN_DOUBT, 1)


def test_fail_fast_does_not_end_what_was_reached() -> None:
    fast = changed(POLICY, fail_fast=True)
    assert after(tried(READY, Input.UNANSWERED, fast)) == (Stage.WAITING, 1)
    assert after(tried(READY, Input.TURNED_AWAY, fast)) == (Stage.READY, 0)


def test_a_probe_of_a_partner_that_is_down_uses_up_no_retry() -> None:
    decision = attempted(READY, Input.NOT_SENT, POLICY, began=T0, now=T0, probe=True)
    assert decision.life.tries == 0
    assert decision.due is not None
    left = attempted(READY, Input.UNANSWERED, POLICY, began=T0, now=T0, probe=True)
    assert left.life.tries == 1


# Suspension


@pytest.mark.req("RM001-2.6.8-01")
@pytest.mark.parametrize(("life", "result"), [(READY, Input.NOT_SENT), (WAITING, Input.UNANSWERED)])
def test_after_the_last_retry_the_partner_is_suspended(life: Life, result: Input) -> None:
    policy = changed(POLICY, suspend=True)
    decision = given_up(life, result, policy)
    assert decision.life.stage is Stage.SUSPENDED
    assert decision.halted
    assert decision.due is None


def test_what_is_suspended_is_looked_at_again_when_its_time_is_over() -> None:
    policy = changed(POLICY, suspend=True, time_to_live=HOUR)
    decision = tried(changed(READY, tries=POLICY.retries), Input.NOT_SENT, policy)
    assert decision.life.stage is Stage.SUSPENDED
    assert (decision.due, decision.decided_by, decision.ends_at) == (T0 + HOUR,) * 3


@pytest.mark.req("RM001-2.6.8-03")
def test_resuming_sends_it_again_with_all_its_retries() -> None:
    stopped = Life(Stage.SUSPENDED, T0, 3, 0)
    resumed = begun_anew(stopped, Input.RESUMED, T0 + HOUR)
    assert resumed is not None
    assert (resumed.life.stage, resumed.life.tries) == (Stage.READY, 0)
    assert resumed.due == T0 + HOUR
    doubtful = begun_anew(changed(stopped, unanswered=2), Input.RESUMED, T0)
    assert after(doubtful) == (Stage.WAITING, 2)


@pytest.mark.parametrize(("unanswered", "end"), [(0, Stage.EXPIRED), (2, Stage.IN_DOUBT)])
def test_a_suspended_message_still_ends_with_its_time(unanswered: int, end: Stage) -> None:
    policy = changed(POLICY, suspend=True, time_to_live=HOUR)
    stopped = Life(Stage.SUSPENDED, T0, 3, unanswered)
    waits = woken(stopped, policy, T0)
    assert waits is not None
    assert (waits.life, waits.due) == (stopped, T0 + HOUR)
    assert after(woken(stopped, policy, T0 + HOUR)) == (end, unanswered)


# Operators


@pytest.mark.parametrize(
    ("life", "stage"),
    [
        (FAILED, Stage.READY),
        (EXPIRED, Stage.READY),
        (DOUBTFUL, Stage.WAITING),
        (READY, Stage.READY),
        (WAITING, Stage.WAITING),
        (SENT, Stage.WAITING),
        (Life(Stage.SUSPENDED, T0, 3), Stage.READY),
        (Life(Stage.SUSPENDED, T0, 3, 1), Stage.WAITING),
    ],
)
def test_a_resend_begins_anew_and_forgets_no_copy(life: Life, stage: Stage) -> None:
    decision = begun_anew(life, Input.RESENT, T0)
    assert after(decision) == (stage, life.unanswered)
    assert decision is not None
    assert (decision.life.tries, decision.due) == (0, T0)


@pytest.mark.parametrize(
    "life", [*ENDED, Life(Stage.SUSPENDED, T0), Life(Stage.SETTLED, T0)], ids=lambda one: one.stage
)
def test_an_operator_settles_what_is_not_sent_any_more(life: Life) -> None:
    decision = settled(life)
    assert decision is not None
    assert decision.life.stage is Stage.SETTLED


@pytest.mark.parametrize("life", [READY, WAITING], ids=["ready", "waiting"])
def test_what_is_still_sent_cannot_be_settled(life: Life) -> None:
    assert settled(life) is None


@pytest.mark.parametrize("result", [Input.NOT_SENT, Input.UNANSWERED, Input.LEFT])
@pytest.mark.parametrize("stage", sorted(set(Stage) - AT_WORK))
def test_what_is_at_rest_is_not_attempted(stage: Stage, result: Input) -> None:
    with pytest.raises(Impossible):
        tried(Life(stage, T0), result)


def test_what_was_submitted_is_packaged_or_fails() -> None:
    assert TABLE[Stage.SUBMITTED] == {
        Input.PACKAGED: Stage.READY,
        Input.UNPACKABLE: Stage.FAILED,
    }


# Whatever happens


def test_every_stage_has_its_row() -> None:
    assert set(TABLE) == set(Stage)


RESULTS: Final = (
    Input.NOT_SENT,
    Input.TURNED_AWAY,
    Input.UNANSWERED,
    Input.LEFT,
    Input.ACKNOWLEDGED,
    Input.REFUSED,
)
SPANS: Final = st.timedeltas(SECOND, HOUR)
POLICIES: Final = st.builds(
    Policy,
    timeout=SPANS,
    interval=SPANS,
    retries=st.none() | st.integers(0, 4),
    growth=st.floats(1, 3),
    longest=SPANS,
    jitter=st.floats(0, 1),
    time_to_live=st.none() | SPANS,
    persist_duration=st.none() | SPANS,
    fail_fast=st.booleans(),
    suspend=st.booleans(),
)


class Story:
    """A message that somebody plays with."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.life = READY
        self.now = T0
        self.was: Decision | None = None
        self.attempts = 0
        """Since it began, or began anew."""

    def attempt(self, result: Input, took: timedelta, dice: float, hope: bool) -> None:
        if self.life.stage not in AT_WORK:
            return
        over = woken(self.life, self.policy, self.now)
        if over is not None:
            self._follow(over)
            return
        began, self.now = self.now, self.now + took
        self.attempts += 1
        self._follow(
            attempted(
                self.life, result, self.policy, began=began, now=self.now, dice=dice, hope=hope
            )
        )

    def hear(self, said: Input, under_way: bool) -> None:
        self._follow(heard(self.life, said, under_way=under_way))

    def interrupt(self) -> None:
        if self.life.stage in AT_WORK:
            self.life = interrupted(self.life, self.now)

    def begin_anew(self, given: Input) -> None:
        decision = begun_anew(self.life, given, self.now)
        if decision is not None:
            self.attempts = 0
        self._follow(decision)

    def settle(self) -> None:
        self._follow(settled(self.life))

    def wait(self, span: timedelta) -> None:
        self.now += span

    def _follow(self, decision: Decision | None) -> None:
        if decision is not None:
            self.was, self.life = decision, decision.life


Step = Callable[[Story], None]
STEPS: Final = st.lists(
    st.one_of(
        st.builds(
            lambda result, took, dice, hope: lambda story: story.attempt(result, took, dice, hope),
            st.sampled_from(RESULTS),
            st.sampled_from((timedelta(0), SECOND, HOUR)),
            st.floats(0, 1),
            st.booleans(),
        ),
        st.builds(
            lambda said, under_way: lambda story: story.hear(said, under_way),
            st.sampled_from((Input.ACKNOWLEDGED, Input.REFUSED)),
            st.booleans(),
        ),
        st.builds(lambda span: lambda story: story.wait(span), SPANS),
        st.sampled_from((Input.RESENT, Input.RESUMED)).map(
            lambda given: lambda story: story.begin_anew(given)
        ),
        st.just(Story.interrupt),
        st.just(Story.settle),
    ),
    max_size=25,
)


@given(POLICIES, STEPS)
def test_whatever_happens_the_counts_agree_with_the_stage(
    policy: Policy, steps: list[Step]
) -> None:
    story = Story(policy)
    for step in steps:
        step(story)
        life = story.life
        if life.stage in AT_WORK:
            assert (life.stage is Stage.WAITING) == (life.unanswered > 0)
        if life.stage in (Stage.FAILED, Stage.EXPIRED, Stage.ACKNOWLEDGED):
            assert life.unanswered == 0
        if life.stage in (Stage.IN_DOUBT, Stage.SENT):
            assert life.unanswered > 0
        assert life.created_at == T0


@given(POLICIES, STEPS)
def test_whatever_happens_it_is_looked_at_again_while_it_is_at_work(
    policy: Policy, steps: list[Step]
) -> None:
    story = Story(policy)
    for step in steps:
        story.was = None
        step(story)
        if story.was is None:
            continue
        at_work = story.life.stage in AT_WORK
        assert (story.was.due is not None) == at_work or story.life.stage is Stage.SUSPENDED
        if story.was.due is not None and at_work:
            assert story.was.due >= story.now
            assert story.was.decided_by is None or story.was.decided_by >= story.was.due


@given(POLICIES, STEPS)
def test_whatever_happens_a_receipt_is_final(policy: Policy, steps: list[Step]) -> None:
    story = Story(policy)
    received = False
    for step in steps:
        step(story)
        received = received or story.life.stage is Stage.ACKNOWLEDGED
        assert not received or story.life.stage is Stage.ACKNOWLEDGED


@pytest.mark.req("RM000-1.2.7-01", "MS098-10.2.7-01", "RM001-5-02")
@given(POLICIES, STEPS)
def test_whatever_happens_there_are_no_more_attempts_than_agreed(
    policy: Policy, steps: list[Step]
) -> None:
    story = Story(policy)
    for step in steps:
        step(story)
        if policy.retries is not None:
            assert story.attempts <= policy.retries + 1


@given(POLICIES, st.sampled_from(RESULTS), st.booleans())
def test_left_alone_every_message_with_an_end_comes_to_rest(
    policy: Policy, result: Input, hope: bool
) -> None:
    bounded = policy if policy.retries is not None else changed(policy, time_to_live=HOUR)
    end = given_up(READY, result, bounded, hope=hope)
    assert end.life.stage not in AT_WORK
