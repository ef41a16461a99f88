"""docs/reliability.md shows what the code does."""

import re

from postroad.reliability.delivery import CLOSING, Stage
from tests.docs.reliability_tables import PAGE, TABLES, drawn

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    """If not: `python -m tests.docs.reliability_tables` draws them anew."""
    assert drawn(TEXT) == TEXT


def test_every_table_is_on_the_page_once() -> None:
    assert sorted(re.findall(r"<!-- table: (\w+) -->", TEXT)) == sorted(TABLES)


def test_every_state_of_a_message_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert {stage.value for stage in Stage} <= explained


def test_every_event_of_an_end_is_named() -> None:
    assert all(f"`{event}`" in TEXT for event in CLOSING.values())
