"""The older draft's links: numbers, and what follows from each class of errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.reliability.link import (
    MAX_SEQUENCE_NUMBER,
    RECOVERIES,
    ErrorClass,
    InvalidSequenceNumber,
    next_number,
    sequence_number,
)
from tests.unit.test_link_receiver import REFUSED_NUMBERS


@pytest.mark.req("RM001-2.2.3-06", "RM001-2.2.3-07", "RM001-2.2.3-08")
@pytest.mark.parametrize("last", [None, MAX_SEQUENCE_NUMBER])
def test_the_first_number_is_1_and_so_is_that_after_the_greatest(last: int | None) -> None:
    assert next_number(last) == 1


@pytest.mark.req("RM001-2.2.3-05", "RM001-2.1-06")
@given(st.integers(1, MAX_SEQUENCE_NUMBER) | st.just(MAX_SEQUENCE_NUMBER))
def test_the_number_after_a_number_is_in_the_range(last: int) -> None:
    number = next_number(last)
    assert sequence_number(number) == number
    assert number == last % MAX_SEQUENCE_NUMBER + 1


@pytest.mark.req("RM001-2.2.3-05")
@pytest.mark.parametrize("value", REFUSED_NUMBERS.values(), ids=REFUSED_NUMBERS)
def test_what_is_no_whole_number_in_the_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidSequenceNumber, match="1 to 4294967295"):
        sequence_number(value)


def test_each_class_of_errors_has_a_recovery() -> None:
    assert set(RECOVERIES) == set(ErrorClass)
