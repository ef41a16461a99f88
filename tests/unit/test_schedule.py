"""When a message is sent again, and until when its fate is known (rm-drafts, section 6)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.agreement.values import LONGEST_WAIT as LONGEST
from postroad.agreement.waiting import Policy, is_used_up, remaining, wait_after
from postroad.reliability.schedule import ONCE, decided_by, ends_at

T0 = datetime(2001, 3, 9, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PLAIN = Policy(10 * SECOND, 3 * SECOND, retries=4)

spans = st.timedeltas(timedelta(seconds=1), LONGEST)
policies = st.builds(
    Policy,
    timeout=spans,
    interval=spans,
    retries=st.integers(0, 40),
    growth=st.floats(1, 4),
    longest=spans,
    jitter=st.floats(0, 1),
)


def attempts(policy: Policy) -> list[datetime]:
    """When each attempt is made, if none is answered, and last when it is given up."""
    at = [T0]
    while not is_used_up(policy, len(at)):
        at.append(at[-1] + wait_after(policy, len(at)))
    return [*at, at[-1] + wait_after(policy, len(at))]


@pytest.mark.req("RM000-1.2.6-01", "MS098-10.2.6-01", "RM001-5-01")
def test_the_first_retry_waits_for_the_timeout() -> None:
    assert attempts(PLAIN)[1] == T0 + 10 * SECOND


@pytest.mark.req("RM000-1.2.8-01", "MS098-10.2.8-01", "RM001-5-04")
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_retry_k_follows_after_timeout_and_k_less_one_intervals(k: int) -> None:
    assert attempts(PLAIN)[k] == T0 + PLAIN.timeout + (k - 1) * PLAIN.interval


@pytest.mark.req("OV004-2-06", "OV004-1-12")
@pytest.mark.parametrize("retries", [0, 1, 4])
def test_it_is_given_up_after_timeout_and_all_intervals(retries: int) -> None:
    policy = Policy(10 * SECOND, 3 * SECOND, retries)
    assert attempts(policy)[-1] == T0 + policy.timeout + retries * policy.interval
    assert decided_by(policy, 1, T0, None) == attempts(policy)[-1]


@pytest.mark.req("RM000-1.2.7-01", "MS098-10.2.7-01", "RM001-5-02")
def test_so_many_retries_and_no_more() -> None:
    assert [is_used_up(PLAIN, tries) for tries in range(7)] == [False] * 5 + [True] * 2


def test_unlimited_retries_are_never_used_up_and_end_nowhere() -> None:
    for_ever = Policy(SECOND, SECOND, None)
    assert not is_used_up(for_ever, 10**9)
    assert remaining(for_ever, 7) is None
    assert decided_by(for_ever, 7, T0, None) is None
    assert decided_by(for_ever, 7, T0, T0 + SECOND) == T0 + SECOND


def test_an_interval_grows_up_to_the_longest() -> None:
    policy = Policy(10 * SECOND, SECOND, 6, growth=2.0, longest=6 * SECOND)
    waits = [wait_after(policy, tries) / SECOND for tries in range(1, 8)]
    assert waits == [10, 1, 2, 4, 6, 6, 6]


def test_an_interval_is_cut_to_the_longest_although_it_does_not_grow() -> None:
    assert wait_after(Policy(SECOND, 9 * SECOND, 3, longest=4 * SECOND), 2) == 4 * SECOND


def test_jitter_only_adds_and_at_most_its_share() -> None:
    policy = Policy(10 * SECOND, 4 * SECOND, 3, jitter=0.5)
    assert [wait_after(policy, 1, dice) / SECOND for dice in (0, 0.5, 1)] == [10, 12.5, 15]
    assert wait_after(policy, 2, 1.0) == 6 * SECOND


def test_without_jitter_dice_do_nothing() -> None:
    assert wait_after(PLAIN, 2, 1.0) == wait_after(PLAIN, 2)


@given(policies, st.integers(1, 50), st.floats(0, 1))
def test_no_retry_comes_before_its_interval(policy: Policy, tries: int, dice: float) -> None:
    least = min(policy.interval, policy.longest) if tries > 1 else policy.timeout
    plain = wait_after(policy, tries)
    assert least <= plain <= max(policy.longest, policy.timeout)
    stretched = wait_after(policy, tries, dice)
    assert plain <= stretched <= plain * (1 + policy.jitter) + timedelta(milliseconds=1)


@given(policies)
def test_intervals_never_shrink(policy: Policy) -> None:
    waits = [wait_after(policy, tries) for tries in range(2, 30)]
    assert waits == sorted(waits)


@pytest.mark.req("OV004-2-06")
@given(policies, st.integers(1, 45))
def test_what_remains_is_the_sum_of_all_waits(policy: Policy, tries: int) -> None:
    assert policy.retries is not None
    last = policy.retries + 2
    one_by_one = sum((wait_after(policy, n, 1.0) for n in range(tries, last)), timedelta())
    found = remaining(policy, tries)
    assert found is not None
    assert abs(found - one_by_one) <= timedelta(seconds=1)


def test_what_remains_of_very_many_retries_is_found_at_once() -> None:
    """One by one it would take longer than any test may."""
    for growth in (1.0, 1.0000001, 1.001, 2.0):
        assert remaining(Policy(SECOND, SECOND, 1_000_000, growth), 1) is not None


@pytest.mark.parametrize("retries", [100_000, 1_000_000])
def test_an_end_that_no_calendar_has_is_no_end(retries: int) -> None:
    policy = Policy(SECOND, SECOND, retries, growth=2.0)
    assert decided_by(policy, 1, T0, None) is None
    assert decided_by(policy, 1, T0, T0 + SECOND) == T0 + SECOND
    assert wait_after(policy, retries) == LONGEST


def test_time_to_live_counts_from_the_submission() -> None:
    policy = Policy(time_to_live=timedelta(hours=1))
    assert ends_at(policy, T0, None) == T0 + timedelta(hours=1)
    assert ends_at(policy, T0, T0 + timedelta(minutes=5)) == T0 + timedelta(hours=1)


@pytest.mark.req("RM000-1.2.10-03", "MS098-10.2.9-02")
def test_persist_duration_counts_from_the_first_sending() -> None:
    policy = Policy(persist_duration=timedelta(hours=1))
    assert ends_at(policy, T0, None) is None
    assert ends_at(policy, T0, T0 + 5 * SECOND) == T0 + timedelta(hours=1) + 5 * SECOND


def test_the_earlier_of_both_ends_it() -> None:
    policy = Policy(time_to_live=timedelta(hours=2), persist_duration=timedelta(hours=1))
    assert ends_at(policy, T0, T0) == T0 + timedelta(hours=1)
    assert ends_at(policy, T0, T0 + timedelta(minutes=90)) == T0 + timedelta(hours=2)


def test_nothing_ends_it_where_nothing_is_agreed_on() -> None:
    assert ends_at(PLAIN, T0, T0) is None


def test_once_is_one_attempt_and_a_day_for_a_receipt_that_calls_back() -> None:
    assert is_used_up(ONCE, 1)
    assert wait_after(ONCE, 1) == timedelta(days=1)
