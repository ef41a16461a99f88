"""The page about ebXML tells what the code does."""

from postroad.wire.ebxml import Dialect
from tests.docs.ebxml_tables import PAGE, ROWS, TABLES, drawn


def test_the_page_shows_the_tables_of_the_code() -> None:
    """If not: `python -m tests.docs.ebxml_tables` draws them anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page) == page
    for name in TABLES:
        assert f"<!-- table: {name} -->" in page


def test_everything_that_differs_between_dialects_is_told() -> None:
    told = {field for fields, _ in ROWS.values() for field in fields}
    assert told == set(Dialect.__struct_fields__) - {"name"}
