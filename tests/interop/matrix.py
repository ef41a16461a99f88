"""The interoperability matrix: a pytest plugin that collects what live tests showed.

A test is one cell:
`@pytest.mark.interop(peer="phase4 4.4.1", case="signed push", direction="to peer")`. Where the peer deviates from the specification, the test asserts what the peer really does and
`deviation` says whose it is and quotes the rule. With `--interop=FILE` the results are written as
JSON, from which `python -m tests.interop.page` writes docs/interoperability.md.
"""

import json
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pytest

DIRECTIONS: Final = ("to peer", "from peer")
_PROPERTY: Final = "interop"


@dataclass(frozen=True, slots=True)
class Cell:
    """One case with one peer in one direction."""

    peer: str
    case: str
    direction: str
    deviation: str | None = None

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise ValueError(f"Unknown direction {self.direction!r}. Choose one of: {DIRECTIONS}")


def cells(item: pytest.Item) -> list[Cell]:
    """Return the cells that a test fills."""
    return [Cell(*mark.args, **mark.kwargs) for mark in item.iter_markers("interop")]


class Matrix:
    """Results of one run."""

    def __init__(self, target: Path | None) -> None:
        self._target = target
        self._results: dict[Cell, set[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.user_properties += [(_PROPERTY, asdict(cell)) for cell in cells(item)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and (report.when == "call" or not report.passed):
                self._results.setdefault(Cell(**value), set()).add(report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._target is not None and not hasattr(session.config, "workerinput"):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._target.write_text(json.dumps(self.rows(), indent=1) + "\n", encoding="utf-8")

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per cell, with its result: passed, failed or skipped."""
        found = [{**asdict(cell), "result": _worst(all)} for cell, all in self._results.items()]
        return sorted(found, key=lambda row: (row["peer"], row["case"], row["direction"]))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        rows = self.rows()
        if not rows:
            return
        counts = {name: sum(row["result"] == name for row in rows) for name in _ORDER}
        terminalreporter.section("interoperability with live peers")
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        terminalreporter.line(f"{len(rows)} cases: {told}")
        if counts["skipped"]:
            terminalreporter.line(
                "LIVE PEERS WERE SKIPPED: the product was not tried against other software. "
                "Install a JDK (17 or later) and Maven, then run: make interop",
                red=True,
            )


_ORDER: Final = ("failed", "skipped", "passed")


def _worst(outcomes: set[str]) -> str:
    return next(name for name in _ORDER if name in outcomes)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--interop",
        metavar="FILE",
        help="Write the results of the live interoperability tests to FILE as JSON.",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="Keep the messages of the live interoperability tests below tests/interop/recorded.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "interop(peer, case, direction, deviation): one cell of docs/interoperability.md"
    )
    target = config.getoption("--interop")
    config.pluginmanager.register(Matrix(Path(target) if target else None), "interop-matrix")
