"""docs/pipeline.md shows the tables of the code."""

from tests.docs.lake_tables import PAGE, page


def test_the_tables_are_those_of_the_code() -> None:
    """If not: `python -m tests.docs.lake_tables` writes them anew."""
    assert page() == PAGE.read_text(encoding="utf-8")
