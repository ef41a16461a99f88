"""docs/errors.md is what the code says."""

import re

import pytest

from postroad.wire.errors import ERRORS
from postroad.wire.wsrm_faults import Code
from tests.docs.error_advice import CODES, FAULTS
from tests.docs.error_sentences import Call, sentences
from tests.docs.errors_page import PAGE, page


def test_the_page_is_what_the_code_says() -> None:
    """If not: `python -m tests.docs.errors_page` writes it anew."""
    assert PAGE.read_text() == page()


def test_every_code_and_fault_has_an_advice_and_no_other() -> None:
    assert set(CODES) == set(ERRORS)
    assert set(FAULTS) == {one.value for one in Code}


@pytest.mark.parametrize(
    "said",
    [
        "| EBMS:0020 | RoutingFailure |",
        "- … is served already (process …, …); stop that one first",
        "| acknowledgments call back, and nothing says where | add contract.acks_to with",
        "| it matches the same messages as the rule … | remove one of them",
        "| 409 | another message was submitted as …; give this one an id of its own |",
        "| 2 | say either --once or --every, not both |",
        "- Spark needs Java 17 or later",
    ],
)
def test_what_a_user_meets_is_on_it(said: str) -> None:
    assert said.lower() in PAGE.read_text().lower()


def test_a_name_stands_for_all_that_may_have_been_given_to_it() -> None:
    found = sentences("api/serving.py", {"ServeError": Call(0)})
    assert len([one for one in found if "cannot be written" in one.message]) == 2


def test_a_value_that_is_not_there_yet_is_left_open() -> None:
    """A name that is None at first and something when it is said."""
    assert re.findall(r"\bNone\b.*", PAGE.read_text()) == []
