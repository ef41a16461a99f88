"""The machines of WS-ReliableMessaging, alone and over a line that loses, doubles and mixes up."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.reliability import ranges, wsrm
from postroad.reliability.tables import Impossible
from postroad.reliability.wsrm import (
    Destination,
    DestinationStage,
    Limits,
    Source,
    SourceInput,
    SourceStage,
    Verdict,
)
from postroad.wire.wsrm import MOST_NUMBER

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def opened(identifier: str = "urn:s", expires: timedelta | None = None) -> Source:
    return wsrm.created(wsrm.asked(Source(), "urn:m", NOW), identifier, expires, NOW)


def sent(count: int) -> Source:
    source = opened()
    for _ in range(count):
        _, source = wsrm.numbered(source, NOW)
    return source


@given(st.lists(st.integers(1, 40)), st.lists(st.integers(1, 40)))
def test_ranges_are_sets(one: list[int], other: list[int]) -> None:
    made: ranges.Ranges = ()
    for number in one:
        made = ranges.added(made, number)
    second: ranges.Ranges = ()
    for number in other:
        second = ranges.added(second, number)
    assert list(ranges.numbers(made)) == sorted(set(one))
    assert set(ranges.numbers(ranges.union(made, second))) == set(one) | set(other)
    assert set(ranges.numbers(ranges.beyond(made, second))) == set(one) - set(other)
    assert set(ranges.numbers(ranges.missing(made, 5, 30))) == set(range(5, 31)) - set(one)
    assert all(ranges.holds(made, n) == (n in one) for n in range(42))
    assert all(a[1] + 1 < b[0] for a, b in pairwise(made))


def test_numbers_begin_with_one_and_have_no_hole() -> None:
    source, given_ = opened(), []
    for _ in range(3):
        number, source = wsrm.numbered(source, NOW)
        given_.append(number)
    assert given_ == [1, 2, 3]
    assert source.outstanding == ((1, 3),)


def test_the_last_number_leaves_none() -> None:
    number, source = wsrm.numbered(Source(SourceStage.OPEN, "urn:s", MOST_NUMBER), NOW)
    assert number == MOST_NUMBER
    assert source.stage is SourceStage.FULL
    with pytest.raises(Impossible):
        wsrm.numbered(source, NOW)


def test_an_acknowledgement_tells_what_was_not_known() -> None:
    first = wsrm.acknowledged(sent(5), ((1, 1), (3, 4)))
    assert first.fresh == ((1, 1), (3, 4))
    again = wsrm.acknowledged(first.source, ((1, 4),))
    assert again.fresh == ((2, 2),)
    assert again.source.outstanding == ((5, 5),)


def test_what_was_acknowledged_is_never_taken_back() -> None:
    known = wsrm.acknowledged(sent(3), ((1, 3),)).source
    assert wsrm.acknowledged(known, ((1, 1),)).source.acked == ((1, 3),)
    assert wsrm.acknowledged(known, ()).source.acked == ((1, 3),)


def test_an_acknowledgement_of_what_was_never_sent_changes_nothing() -> None:
    source = sent(2)
    said = wsrm.acknowledged(source, ((1, 3),))
    assert said.invalid
    assert said.source == source
    assert wsrm.acknowledged(source, (), (3,)).invalid


def test_a_nack_asks_for_what_is_not_acknowledged() -> None:
    source = wsrm.acknowledged(sent(3), ((2, 2),)).source
    assert wsrm.acknowledged(source, (), (1, 2)).again == ((1, 1),)


def test_a_final_acknowledgement_closes() -> None:
    assert wsrm.acknowledged(sent(1), ((1, 1),), final=True).source.stage is SourceStage.CLOSED


def test_a_message_that_is_given_up_closes_an_ordered_sequence() -> None:
    assert wsrm.rested(sent(2), 1, in_order=True).stage is SourceStage.CLOSING
    plain = wsrm.rested(sent(2), 1, in_order=False)
    assert plain.stage is SourceStage.OPEN
    assert plain.outstanding == ((2, 2),)
    assert wsrm.revived(plain, 1).outstanding == ((1, 2),)


def test_a_late_fault_changes_nothing() -> None:
    assert wsrm.told(Source(), SourceInput.ENDED) == Source()
    asked = wsrm.asked(Source(), "urn:m", NOW)
    assert wsrm.told(asked, SourceInput.SEQUENCE_CLOSED) == asked


def test_a_source_knows_when_its_sequence_is_over() -> None:
    source = opened(expires=timedelta(hours=1))
    assert not wsrm.is_over(source, NOW)
    assert wsrm.is_over(source, NOW + timedelta(hours=1))


def taken(numbers: list[int], **how: bool) -> tuple[Destination, list[int], list[Verdict]]:
    destination, passed, verdicts = Destination("urn:s"), [], []
    for number in numbers:
        arrival = wsrm.arrive(destination, number, in_order=how.get("in_order", True))
        destination = arrival.destination
        passed += arrival.passed
        verdicts.append(arrival.verdict)
    return destination, passed, verdicts


def test_what_is_ahead_of_a_hole_is_held_and_acknowledged() -> None:
    destination, passed, verdicts = taken([1, 3, 4])
    assert passed == [1]
    assert verdicts[1:] == [Verdict.HOLD, Verdict.HOLD]
    assert destination.received == ((1, 1), (3, 4))


def test_what_closes_a_hole_frees_what_it_held_up() -> None:
    assert taken([2, 4, 1, 3])[1] == [1, 2, 3, 4]


def test_without_order_each_is_delivered_as_it_comes() -> None:
    assert taken([2, 4, 1, 4], in_order=False)[1] == [2, 4, 1]


def test_a_closed_sequence_takes_nothing_and_says_what_it_has() -> None:
    destination, _, _ = taken([1, 3])
    end = wsrm.closed(destination, 4, in_order=True)
    assert end.passed == (3,)
    assert end.holes == ((2, 2), (4, 4))
    assert wsrm.arrive(end.destination, 2, in_order=True).verdict is Verdict.CLOSED
    assert end.destination.received == ((1, 1), (3, 3))
    assert not wsrm.closed(end.destination, 4, in_order=True).passed


def test_where_the_last_number_is_not_told_holes_are_those_before_what_came() -> None:
    destination, _, _ = taken([1, 3])
    assert wsrm.closed(destination, None, in_order=False).holes == ((2, 2),)
    assert wsrm.closed(Destination("urn:s"), None, in_order=False).holes == ()


def test_there_is_room_for_so_much_and_no_more() -> None:
    destination = Destination("urn:s")
    few = Limits(held=2, holes=10)
    for number in (2, 3):
        destination = wsrm.arrive(destination, number, in_order=True, limits=few).destination
    assert wsrm.arrive(destination, 4, in_order=True, limits=few).verdict is Verdict.NO_ROOM
    first = wsrm.arrive(destination, 1, in_order=True, limits=few)
    assert first.passed == (1, 2, 3)
    apart = Limits(holes=2)
    destination = Destination("urn:s", received=((1, 1), (3, 3)))
    assert wsrm.arrive(destination, 5, in_order=False, limits=apart).verdict is Verdict.NO_ROOM


def test_a_sequence_past_its_time_is_as_good_as_unknown() -> None:
    destination = Destination("urn:s", expires_at=NOW)
    assert wsrm.has_expired(destination, NOW)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_over_a_bad_line_everything_comes_once_and_in_order(seed: int, in_order: bool) -> None:
    """Messages and acknowledgements are lost, doubled and turned round; some are given up."""
    dice = random.Random(seed)
    source, destination = opened(), Destination("urn:s")
    line: list[tuple[str, object]] = []
    delivered: list[int] = []
    count, gives_up = 25, dice.random() < 0.5
    lost: set[int] = set()
    for _ in range(4000):
        choice = dice.random()
        if source.stage is SourceStage.OPEN and source.next <= count and choice < 0.2:
            number, source = wsrm.numbered(source, NOW)
            line.append(("message", number))
        elif choice < 0.4 and source.outstanding:
            line.append(("message", dice.choice(list(ranges.numbers(source.outstanding)))))
        elif choice < 0.42 and gives_up and not lost and source.outstanding:
            number = dice.choice(list(ranges.numbers(source.outstanding)))
            lost.add(number)
            source = wsrm.rested(source, number, in_order=in_order)
        elif line:
            kind, what = line.pop(dice.randrange(len(line)))
            if dice.random() < 0.3:
                continue
            if dice.random() < 0.3:
                line.append((kind, what))
            if kind == "ack":
                said = wsrm.acknowledged(source, *what)
                assert not said.invalid
                assert not set(ranges.numbers(said.fresh)) & set(ranges.numbers(source.acked))
                source = said.source
                continue
            before = destination.received
            arrival = wsrm.arrive(destination, what, in_order=in_order)
            destination = arrival.destination
            delivered += arrival.passed
            assert not ranges.beyond(before, destination.received)
            line.append(("ack", (destination.received,)))
    end = wsrm.closed(destination, source.next - 1, in_order=in_order)
    delivered += end.passed
    assert len(delivered) == len(set(delivered))
    assert set(ranges.numbers(source.acked)) <= set(delivered)
    assert set(delivered) == set(ranges.numbers(end.destination.received))
    assert not in_order or delivered == sorted(delivered)
    assert not source.outstanding
    if not lost:
        assert len(delivered) == count
    assert end.destination.stage is DestinationStage.CLOSED
