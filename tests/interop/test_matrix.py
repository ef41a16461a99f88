"""The matrix of live cases and the page that is written from it."""

import pytest

from tests.conftest import PROJECT
from tests.interop.matrix import Cell, cells
from tests.interop.page import render

PAGE = PROJECT / "docs" / "interoperability.md"


def row(**values: object) -> dict[str, object]:
    plain = {"peer": "phase4", "case": "signed push", "direction": "to peer"}
    return plain | {"deviation": None, "result": "passed"} | values


def test_a_direction_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown direction 'sideways'"):
        Cell("phase4", "signed push", "sideways")


def test_the_page_shows_both_directions_and_a_deviation_once() -> None:
    rows = [
        row(),
        row(direction="from peer", deviation="phase4 does it differently."),
        row(case="pull", deviation="phase4 does it differently."),
        row(case="two-way", result="failed", deviation="phase4 does it differently."),
    ]
    page = render(rows)
    assert "| signed push | passed | differs (1) |" in page
    assert "| pull | differs (1) |  |" in page
    assert "| two-way | failed |  |" in page
    assert page.count("phase4 does it differently.") == 1


def test_every_live_case_is_on_the_page(request: pytest.FixtureRequest) -> None:
    """The page is written by `make interop`; a case that is new or renamed makes it outdated."""
    page = PAGE.read_text(encoding="utf-8")
    for item in request.session.items:
        for cell in cells(item):
            assert f"| {cell.case} |" in page, f"{cell}: run make interop"
            assert cell.deviation is None or cell.deviation in page, f"{cell}: run make interop"
