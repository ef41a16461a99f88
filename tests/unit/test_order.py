"""SequenceNumber: how a sender counts, and how a receiver keeps the order."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.reliability.order import (
    EVENTS,
    LAST,
    TABLE,
    Arrival,
    BadSequenceNumber,
    Gap,
    Held,
    Limits,
    Numbering,
    Place,
    Sequence,
    SequenceNumber,
    Status,
    Stream,
    Unacknowledged,
    Verdict,
    arrive,
    gaps,
    number_next,
    read_number,
    report,
    report_due,
    reset,
    skip,
    withdraw,
)

NOW: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
COUNT: Final = LAST + 1
RESET: Final = SequenceNumber(0, Status.RESET)


def continued(value: int) -> SequenceNumber:
    return SequenceNumber(value, Status.CONTINUE)


def number_at(position: int) -> SequenceNumber:
    """The number of the message at that position of its run."""
    return continued(position % COUNT) if position else RESET


def numbers(numbering: Numbering, how_many: int) -> tuple[list[SequenceNumber], Numbering]:
    given = []
    for _ in range(how_many):
        number, numbering = number_next(numbering, 0)
        given.append(number)
    return given, numbering


def received(positions: Iterable[int], sequence: Sequence = Sequence()) -> Arrival:  # noqa: B008
    """The last of these arrivals."""
    arrival = Arrival(Verdict.DELIVER, sequence)
    for position in positions:
        arrival = arrive(arrival.sequence, number_at(position), f"m{position}", NOW)
    return arrival


# The sender


@pytest.mark.req("MS098-8.4.8-03", "MS098-8.4.8-10", "MS098-8.4.8-11")
def test_numbers_begin_with_0_and_reset_and_go_on_by_one() -> None:
    given, _ = numbers(Numbering(), 4)
    assert given == [RESET, continued(1), continued(2), continued(3)]


@pytest.mark.req("MS098-8.4.8-08", "MS098-8.4.8-11")
def test_after_99999999_comes_0_with_continue() -> None:
    given, _ = numbers(Numbering(position=LAST), 3)
    assert given == [continued(99999999), continued(0), continued(1)]


@pytest.mark.req("MS098-8.4.8-10")
def test_after_a_reset_the_numbers_begin_again_with_0_and_reset() -> None:
    _, numbering = numbers(Numbering(), 3)
    given, _ = numbers(reset(numbering, 0), 2)
    assert given == [RESET, continued(1)]


@pytest.mark.req("MS098-8.4.8-12")
def test_nothing_is_reset_while_a_message_is_unacknowledged() -> None:
    _, numbering = numbers(Numbering(), 3)
    with pytest.raises(Unacknowledged, match="1 messages"):
        reset(numbering, 1)


@pytest.mark.parametrize("start", [Numbering(), reset(Numbering(5), 0)])
def test_the_message_with_the_reset_is_acknowledged_before_another_gets_a_number(
    start: Numbering,
) -> None:
    _, numbering = number_next(start, 0)
    with pytest.raises(Unacknowledged, match="Reset"):
        number_next(numbering, 1)
    number, numbering = number_next(numbering, 0)
    assert number == continued(1)
    assert number_next(numbering, 1)[0] == continued(2)


@pytest.mark.parametrize("position", [0, 1, 5, LAST, COUNT, COUNT + 1])
def test_the_number_of_a_message_that_did_not_arrive_is_given_again(position: int) -> None:
    number, numbering = number_next(Numbering(position), 0)
    again, _ = number_next(withdraw(numbering, number), 0)
    assert again == number


def test_a_number_is_not_given_again_when_another_followed_it() -> None:
    given, numbering = numbers(Numbering(), 3)
    assert withdraw(numbering, given[1]) == numbering
    assert withdraw(Numbering(), given[0]) == Numbering()


def test_each_conversation_and_each_sender_has_numbers_of_its_own() -> None:
    streams = [Stream(conversation, msh) for conversation in "ab" for msh in ("buyer", "seller")]
    numberings = dict.fromkeys(streams, Numbering())
    for how_many, stream in enumerate(streams, 1):
        _, numberings[stream] = numbers(numberings[stream], how_many)
    assert [numberings[stream].position for stream in streams] == [1, 2, 3, 4]


# What a number may be


@pytest.mark.parametrize("value", [-1, COUNT, True, 1.0, "1", None])
def test_a_number_out_of_range_or_not_whole_is_refused(value: object) -> None:
    with pytest.raises(BadSequenceNumber, match="whole number from 0 to 99999999"):
        SequenceNumber(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1.0", "1e3", "0x1", "100000000", "000000001", "٣", "one"]
)
def test_what_is_not_up_to_eight_ascii_numerals_is_refused(text: str) -> None:
    with pytest.raises(BadSequenceNumber, match="whole number from 0 to 99999999"):
        read_number(text)


@pytest.mark.req("MS098-8.4.8-09")
@pytest.mark.parametrize("status", ["", "reset", "Continued", "RESET"])
def test_a_status_is_reset_or_continue(status: str) -> None:
    with pytest.raises(BadSequenceNumber, match="neither Reset nor Continue"):
        read_number("0", status)


def test_a_number_is_read_as_it_is_written() -> None:
    assert read_number("0", "Reset") == RESET
    assert read_number("99999999") == continued(LAST)


# The receiver


@pytest.mark.req("MS098-8.4.8-01")
def test_what_comes_in_order_is_delivered_at_once() -> None:
    sequence = Sequence()
    for position in range(4):
        arrival = received([position], sequence)
        sequence = arrival.sequence
        assert arrival.passed == (f"m{position}",)
    assert sequence == Sequence(4, "m0")


@pytest.mark.req("MS098-8.4.8-06")
def test_what_comes_early_is_held() -> None:
    arrival = received([0, 2])
    assert arrival.verdict is Verdict.HOLD
    assert arrival.passed == ()
    assert arrival.sequence.held == (Held(2, "m2", NOW),)
    assert EVENTS[arrival.verdict] == ("out_of_order", "held")


@pytest.mark.req("MS098-8.4.8-01", "MS098-8.4.8-06", "MS098-8.4.7.2-02")
def test_when_the_hole_closes_what_it_held_up_follows_in_order() -> None:
    arrival = received([0, 4, 2, 3, 6, 1])
    assert arrival.passed == ("m1", "m2", "m3", "m4")
    assert [held.message_id for held in arrival.sequence.held] == ["m6"]


@pytest.mark.req("MS098-8.4.8-06")
def test_nothing_is_delivered_before_the_first_message_came() -> None:
    early = received([2, 1])
    assert early.verdict is Verdict.HOLD
    assert received([0], early.sequence).passed == ("m0", "m1", "m2")


def test_a_held_message_is_not_held_twice() -> None:
    arrival = received([0, 2, 2])
    assert arrival.verdict is Verdict.DUPLICATE
    assert len(arrival.sequence.held) == 1


def test_a_number_that_was_passed_on_is_not_delivered_again() -> None:
    sequence = received(range(4)).sequence
    for position in range(1, 4):
        arrival = arrive(sequence, number_at(position), "another", NOW)
        assert arrival == Arrival(Verdict.DUPLICATE, sequence)


def test_the_message_that_began_the_run_begins_no_other() -> None:
    sequence = received(range(4)).sequence
    assert arrive(sequence, RESET, "m0", NOW) == Arrival(Verdict.DUPLICATE, sequence)


def test_two_messages_with_one_number_are_inconsistent() -> None:
    sequence = received([0, 2]).sequence
    arrival = arrive(sequence, continued(2), "another", NOW)
    assert arrival == Arrival(Verdict.INCONSISTENT, sequence)


def test_a_reset_with_another_number_than_0_is_inconsistent() -> None:
    arrival = arrive(Sequence(), SequenceNumber(1, Status.RESET), "m1", NOW)
    assert arrival == Arrival(Verdict.INCONSISTENT, Sequence())


def test_a_conversation_does_not_begin_with_0_and_continue() -> None:
    arrival = arrive(Sequence(), continued(0), "m0", NOW)
    assert arrival == Arrival(Verdict.INCONSISTENT, Sequence())


@pytest.mark.req("MS098-8.4.8-01")
def test_the_order_is_kept_over_the_wraparound() -> None:
    start = Sequence(LAST, "m0")
    early = received([LAST + 3, LAST + 1], start)
    assert [held.position for held in early.sequence.held] == [LAST + 1, LAST + 3]
    assert received([LAST], early.sequence).passed == (f"m{LAST}", f"m{LAST + 1}")


def test_after_the_wraparound_the_numbers_before_it_are_old() -> None:
    sequence = Sequence(COUNT + 2, "m0")
    assert arrive(sequence, continued(LAST), "late", NOW).verdict is Verdict.DUPLICATE
    assert arrive(sequence, continued(0), "late", NOW).verdict is Verdict.DUPLICATE


def test_before_the_wraparound_no_number_is_old_that_was_not_there() -> None:
    sequence = Sequence(5, "m0")
    assert arrive(sequence, continued(LAST), "early", NOW).verdict is Verdict.HOLD


def test_a_reset_begins_a_new_run() -> None:
    sequence = received(range(4)).sequence
    arrival = arrive(sequence, RESET, "again", NOW)
    assert arrival.passed == ("again",)
    assert arrival.sequence == Sequence(1, "again")
    assert arrive(arrival.sequence, continued(1), "next", NOW).passed == ("next",)


def test_what_an_old_hole_held_up_goes_before_the_new_run() -> None:
    """All that was sent is acknowledged before a reset: what is missing was never sent."""
    sequence = received([0, 2, 3, 5]).sequence
    arrival = arrive(sequence, RESET, "again", NOW)
    assert arrival.passed == ("m2", "m3", "m5", "again")
    assert arrival.gaps == (Gap(1, 1, NOW), Gap(4, 4, NOW))
    assert arrival.sequence == Sequence(1, "again")


# Limits


@pytest.mark.req("MS098-8.4.8-07")
def test_when_the_room_is_full_an_early_message_is_refused_and_forgotten() -> None:
    full = received([0, 2, 3]).sequence
    arrival = arrive(full, continued(4), "m4", NOW, Limits(held=2))
    assert arrival == Arrival(Verdict.NO_ROOM, full)


def test_when_the_room_is_full_the_message_that_is_waited_for_is_delivered() -> None:
    full = received([0, 2, 3]).sequence
    assert arrive(full, continued(1), "m1", NOW, Limits(held=2)).passed == ("m1", "m2", "m3")


def test_a_hole_is_reported_once_when_patience_is_over() -> None:
    limits = Limits(patience=timedelta(minutes=5))
    sequence = received([0, 3]).sequence
    due = report_due(sequence, limits)
    assert due == NOW + limits.patience
    assert report(sequence, limits, due - timedelta(microseconds=1)) is None
    found = report(sequence, limits, due)
    assert found is not None
    gap, reported = found
    assert gap == Gap(1, 2, NOW)
    assert report_due(reported, limits) is None
    assert report(reported, limits, due) is None


def test_the_next_hole_is_reported_as_well() -> None:
    limits = Limits(patience=timedelta(0))
    found = report(received([0, 2, 4]).sequence, limits, NOW)
    assert found is not None
    closed = received([1], found[1]).sequence
    found = report(closed, limits, NOW)
    assert found is not None
    assert found[0] == Gap(3, 3, NOW)


def test_where_nothing_is_held_nothing_is_reported() -> None:
    sequence = received([0, 1]).sequence
    assert gaps(sequence) == ()
    assert report_due(sequence, Limits()) is None


def test_a_hole_over_the_wraparound_is_told_in_numbers() -> None:
    assert gaps(received([LAST + 3], Sequence(LAST, "m0")).sequence) == (Gap(LAST, 1, NOW),)


def test_a_hole_that_is_given_up_lets_go_what_it_held_up() -> None:
    skipped = skip(received([0, 3, 4, 6]).sequence)
    assert skipped is not None
    assert skipped.passed == ("m3", "m4")
    assert skipped.gaps == (Gap(1, 2, NOW),)
    assert arrive(skipped.sequence, continued(1), "late", NOW).verdict is Verdict.DUPLICATE
    assert received([5], skipped.sequence).passed == ("m5", "m6")


def test_a_beginning_that_is_given_up_is_over_and_a_reset_begins_another_run() -> None:
    skipped = skip(received([2, 5]).sequence)
    assert skipped is not None
    assert skipped.passed == ("m2",)
    assert received([3], skipped.sequence).passed == ("m3",)
    assert received([0], skipped.sequence).passed == ("m5", "m0")


def test_where_there_is_no_hole_none_is_given_up() -> None:
    assert skip(received([0, 1]).sequence) is None


# The table and the state


def test_each_place_has_its_verdict() -> None:
    assert {place for row in TABLE.values() for place in row} == set(Place)
    assert {verdict for row in TABLE.values() for verdict in row.values()} == set(Verdict)
    assert EVENTS.keys() == set(Verdict)


@pytest.mark.parametrize("state", [Sequence(), received([0, 3, 2]).sequence, Sequence(7, "", ())])
def test_what_a_receiver_knows_survives_as_json(state: Sequence) -> None:
    assert msgspec.json.decode(msgspec.json.encode(state), type=Sequence) == state


def test_what_a_sender_knows_survives_as_json() -> None:
    state = Numbering(COUNT + 3)
    assert msgspec.json.decode(msgspec.json.encode(state), type=Numbering) == state


# Any order


STARTS: Final = st.sampled_from([0, 1, 5, COUNT // 2, LAST - 2, LAST, COUNT, COUNT + 4, 3 * COUNT])


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, int, set[int], list[int]]:
    """Where a run stands, how many follow, which of those are lost, and what arrives when."""
    start = draw(STARTS)
    length = draw(st.integers(1, 12))
    lost = draw(st.sets(st.integers(start, start + length - 1), max_size=3))
    come = [position for position in range(start, start + length) if position not in lost]
    twice = draw(st.lists(st.sampled_from(come), max_size=6)) if come else []
    return start, length, lost, draw(st.permutations(come + twice))


@pytest.mark.req("MS098-8.4.8-01", "MS098-8.4.8-06")
@given(arrivals())
def test_whatever_the_order_each_is_delivered_once_and_in_order_up_to_the_first_hole(
    case: tuple[int, int, set[int], list[int]],
) -> None:
    start, length, lost, order = case
    sequence = Sequence(start, "m0") if start else Sequence()
    passed: list[str] = []
    for position in order:
        arrival = arrive(sequence, number_at(position), f"m{position}", NOW)
        sequence = arrival.sequence
        passed += arrival.passed
    hole = min(lost, default=start + length)
    assert passed == [f"m{position}" for position in range(start, hole)]
    assert [held.position for held in sequence.held] == sorted(set(order) - set(range(start, hole)))


@pytest.mark.req("MS098-8.4.8-07")
@given(arrivals(), st.integers(0, 3))
def test_never_is_more_held_than_there_is_room_for(
    case: tuple[int, int, set[int], list[int]], room: int
) -> None:
    start, _, lost, order = case
    sequence = Sequence(start, "m0") if start else Sequence()
    passed: list[str] = []
    for position in order:
        arrival = arrive(sequence, number_at(position), f"m{position}", NOW, Limits(held=room))
        sequence = arrival.sequence
        passed += arrival.passed
        assert len(sequence.held) <= room
    assert passed == [f"m{position}" for _, position in zip(passed, count(start), strict=False)]
    for position in sorted(set(order) | lost):
        sequence = arrive(sequence, number_at(position), f"m{position}", NOW).sequence
    assert not sequence.held


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_over_resets_the_order_is_kept_when_the_sender_keeps_to_its_rules(
    runs: list[int], data: st.DataObject
) -> None:
    """Within a run anything may overtake anything, except that a Reset is waited for."""
    numbering, sequence = Numbering(), Sequence()
    sent: list[str] = []
    passed: list[str] = []
    for run, length in enumerate(runs):
        numbering = reset(numbering, 0)
        given, numbering = numbers(numbering, length)
        ids = [f"{run}-{n}" for n in range(length)]
        for n in [0, *data.draw(st.permutations(range(1, length)))]:
            arrival = arrive(sequence, given[n], ids[n], NOW)
            sequence = arrival.sequence
            passed += arrival.passed
        sent += ids
    assert passed == sent
