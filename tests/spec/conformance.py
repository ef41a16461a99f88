"""Which requirements of `requirements.csv` have a passing test: a pytest plugin.

A test names what it would see broken: `@pytest.mark.req("P2-2.5.5-03")`. A requirement is shown
when at least one test with its mark passed and none with its mark failed. A skipped or xfailed
test shows nothing. With `--conformance=FILE` the count is printed and written as JSON.
"""

import csv
import json
import textwrap
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

REQUIREMENTS: Final = Path(__file__).with_name("requirements.csv")
LEVELS: Final = ("MUST", "SHOULD", "MAY")
_PROPERTY: Final = "req"


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    level: str
    testable: bool

    @property
    def document(self) -> str:
        return self.id.partition("-")[0]


def load(path: Path = REQUIREMENTS) -> dict[str, Requirement]:
    """The requirements by id, in the order of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            Requirement(row["id"], row["level"], row["testable"] == "yes")
            for row in csv.DictReader(file)
        ]
    return {row.id: row for row in rows}


class Tally:
    """What the tests of one run said about each requirement."""

    def __init__(self, requirements: dict[str, Requirement]) -> None:
        self._requirements = requirements
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def add(self, report: pytest.TestReport) -> None:
        ids = [i for name, value in report.user_properties if name == _PROPERTY for i in value]
        if report.failed:
            self._failed.update(ids)
        elif report.passed and report.when == "call" and not hasattr(report, "wasxfail"):
            self._passed.update(ids)

    @property
    def shown(self) -> set[str]:
        return self._passed - self._failed

    @property
    def missing(self) -> list[Requirement]:
        """The MUSTs without a passing test."""
        shown = self.shown
        return [
            one
            for one in self._requirements.values()
            if one.level == "MUST" and one.id not in shown
        ]

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        shown = self.shown
        totals = Counter((one.document, one.level) for one in self._requirements.values())
        proven = Counter(
            (one.document, one.level) for one in self._requirements.values() if one.id in shown
        )
        counts: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        for document in dict.fromkeys(one.document for one in self._requirements.values()):
            for level in LEVELS:
                key = (document, level)
                if totals[key]:
                    counts[document][level] = {"total": totals[key], "shown": proven[key]}
        return dict(counts)

    def as_json(self) -> str:
        result: dict[str, object] = {**self.counts(), "missing": [one.id for one in self.missing]}
        return json.dumps(result, indent=1) + "\n"

    def lines(self) -> list[str]:
        """The table, then the MUSTs that no test shows, by document."""
        counts = self.counts()
        lines = ["document " + "".join(f"{level:>12}" for level in LEVELS)]
        for document, levels in counts.items():
            cells = [
                f"{levels[level]['shown']}/{levels[level]['total']}" if level in levels else "-"
                for level in LEVELS
            ]
            lines.append(f"{document:<9}" + "".join(f"{cell:>12}" for cell in cells))
        missing = self.missing
        lines.append(f"MUSTs without a passing test: {len(missing)}")
        for document in counts:
            ids = [one.id for one in missing if one.document == document]
            if ids:
                lines += textwrap.wrap(
                    " ".join(ids),
                    width=100,
                    initial_indent=f"{document:<9}",
                    subsequent_indent=" " * 9,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
        return lines


class _Conformance:
    def __init__(self, target: Path) -> None:
        self._target = target
        self._tally = Tally(load())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tally.add(report)

    def pytest_sessionfinish(self) -> None:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._target.write_text(self._tally.as_json(), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("conformance")
        for line in self._tally.lines():
            terminalreporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        metavar="FILE",
        help="count the requirements that have a passing test; print it and write it as JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*ids): the requirements that this test shows")
    target = config.getoption("conformance")
    if target and not hasattr(config, "workerinput"):
        path = config.invocation_params.dir / str(target)
        config.pluginmanager.register(_Conformance(path), "postroad-conformance")


def _ids(item: pytest.Item) -> list[str]:
    return [str(i) for mark in item.iter_markers("req") for i in mark.args]


def _unknown(items: Iterable[object], known: dict[str, Requirement]) -> list[str]:
    wrong: dict[str, None] = {}
    for item in items:
        if isinstance(item, pytest.Item):
            for i in _ids(item):
                if i not in known:
                    wrong[f"{item.nodeid.partition('[')[0]}: no requirement has the id {i!r}"] = (
                        None
                    )
    return list(wrong)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail the collection of a file whose marks name a requirement that does not exist."""
    report = yield
    if report.passed:
        wrong = _unknown(report.result, _known())
        if wrong:
            report.outcome = "failed"
            report.longrepr = "\n".join(wrong)
            report.result = []
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test's requirements to its reports, which travel from worker to controller."""
    for item in items:
        ids = _ids(item)
        if ids:
            item.user_properties.append((_PROPERTY, ids))


_cache: dict[str, Requirement] = {}


def _known() -> dict[str, Requirement]:
    if not _cache:
        _cache.update(load())
    return _cache
