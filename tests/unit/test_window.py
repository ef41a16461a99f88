"""How many messages are under way to an address at once, as it answers."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from postroad.reliability.window import Ticket, Window, answered, begun, ended, overloaded

CEILING: Final = 128
OPEN: Final = Window(CEILING)


def begin(window: Window, attempts: int) -> tuple[Window, list[Ticket]]:
    tickets = []
    for _ in range(attempts):
        window, ticket = begun(window)
        tickets.append(ticket)
    return window, tickets


def exchange(window: Window, attempts: int) -> Window:
    """Attempts that begin and are answered one after the other."""
    for _ in range(attempts):
        window = answered(begun(window)[0])
    return window


def cut(window: Window, came: int) -> Window:
    """An attempt fails that began before so many answers came."""
    window, [ticket] = begin(window, 1)
    return overloaded(exchange(window, came), ticket)


def test_a_partner_that_answers_has_all_places() -> None:
    window = exchange(OPEN, 1000)
    assert (window.limit, window.is_open, window.is_idle) == (CEILING, True, True)


def test_a_cut_leaves_half_of_what_was_answered_meanwhile() -> None:
    assert cut(OPEN, came=20).limit == 10


def test_a_cut_leaves_at_most_half_of_the_window() -> None:
    assert cut(OPEN, came=10_000).limit == CEILING // 2


def test_one_place_is_left_when_nothing_was_answered() -> None:
    window = cut(cut(OPEN, came=0), came=0)
    assert window.limit == 1


def test_attempts_that_fail_together_cut_once() -> None:
    window, tickets = begin(OPEN, CEILING)
    window = exchange(window, 40)
    for ticket in tickets:
        window = overloaded(window, ticket)
    assert (window.limit, window.is_idle) == (20, True)


def test_an_attempt_that_began_after_a_cut_cuts_again() -> None:
    window = cut(OPEN, came=40)
    assert cut(window, came=10).limit == 5


def test_beyond_the_threshold_a_window_of_answers_adds_one_place() -> None:
    window = cut(OPEN, came=20)
    assert exchange(window, 9).limit == 10
    assert exchange(window, 11).limit == 11


def test_after_silence_the_window_doubles_up_to_half_of_what_it_was() -> None:
    window = cut(OPEN, came=0)
    assert exchange(window, 1).limit == 2
    assert exchange(window, 3).limit == 4
    assert exchange(window, 63).limit == 64
    assert exchange(window, 64).limit == 64


def test_a_partner_that_answers_again_gets_all_places_back() -> None:
    window = exchange(cut(OPEN, came=0), CEILING * CEILING)
    assert (window.limit, window.is_open) == (CEILING, True)


def test_what_says_nothing_of_the_partner_changes_nothing() -> None:
    for window in (OPEN, cut(OPEN, came=20)):
        after = ended(begun(window)[0])
        assert (after.limit, after.is_idle) == (window.limit, True)


@given(st.integers(1, 200), st.lists(st.sampled_from(("begin", "answer", "late", "end"))))
def test_the_limit_stays_between_one_and_the_ceiling(ceiling: int, happens: list[str]) -> None:
    window, under_way = Window(ceiling), list[Ticket]()
    for what in happens:
        before = window.limit
        if what == "begin":
            window, ticket = begun(window)
            under_way.append(ticket)
        elif under_way:
            ticket = under_way.pop(0)
            if what == "late":
                window = overloaded(window, ticket)
                assert window.limit <= before
            else:
                window = answered(window) if what == "answer" else ended(window)
                assert before <= window.limit <= before + 1
        assert 1 <= window.limit <= ceiling
        assert window.is_idle == (not under_way)
