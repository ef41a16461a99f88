"""Count the requirements of `requirements.csv` that have a passing test: a pytest plugin.

A test names what it would see broken: `@pytest.mark.req("P2-2.5.5-03")`. A requirement is *shown*
when a test of the running product passed: one that goes through a public door (a running node,
REST, the command line, bytes on the wire), in the protocol that the requirement is about. It is
*unit only* when just tests of inner functions passed. Neither holds if a test with its mark failed;
a skipped or xfailed test shows nothing. The folder of a test tells its door (`PRODUCT`), its file
name the older protocol (`_OLDER`). With `--conformance=FILE` both counts are printed and written as
JSON.
"""

import csv
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

REQUIREMENTS: Final = Path(__file__).with_name("requirements.csv")
LEVELS: Final = ("MUST", "SHOULD", "MAY")
PRODUCT: Final = frozenset(
    (
        *("api", "as4", "attack", "chaos", "cli", "crash", "docs", "e2e", "interop", "node"),
        *("pipeline", "sim", "spec"),
    )
)
"""Folders of tests that run the product through a public door."""
_OLDER: Final = frozenset(("RM000", "RM001", "MS098"))
"""Documents about the older ebXML messages, which AS4 messages cannot show."""
_OLDER_FILE: Final = re.compile(r"ebxml|rm000|rm001|ms098")
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
        self._passed_on_product: set[str] = set()
        self._failed: set[str] = set()

    def add(self, report: pytest.TestReport) -> None:
        ids = [i for name, value in report.user_properties if name == _PROPERTY for i in value]
        if report.failed:
            self._failed.update(ids)
        elif report.passed and report.when == "call" and not hasattr(report, "wasxfail"):
            self._passed.update(ids)
            file = report.nodeid.partition("::")[0]
            self._passed_on_product.update(i for i in ids if is_on_product(file, i))

    @property
    def shown(self) -> set[str]:
        """The requirements that hold on the running product."""
        return self._passed_on_product - self._failed

    @property
    def unit_only(self) -> set[str]:
        """The requirements that only tests of inner functions show."""
        return self._passed - self._passed_on_product - self._failed

    @property
    def missing(self) -> set[str]:
        """The requirements without a passing test."""
        return set(self._requirements) - self.shown - self.unit_only

    def _musts(self, among: set[str]) -> list[Requirement]:
        return [
            one for one in self._requirements.values() if one.level == "MUST" and one.id in among
        ]

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        shown, unit_only = self.shown, self.unit_only
        counts: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        for one in self._requirements.values():
            level = counts[one.document].setdefault(
                one.level, {"total": 0, "testable": 0, "shown": 0, "unit_only": 0}
            )
            level["total"] += 1
            level["testable"] += one.testable
            level["shown"] += one.id in shown
            level["unit_only"] += one.id in unit_only
        return dict(counts)

    def as_json(self) -> str:
        unit_only = self.unit_only
        result: dict[str, object] = {
            **self.counts(),
            "missing": [one.id for one in self._musts(self.missing)],
            "unit_only": [one for one in self._requirements if one in unit_only],
        }
        return json.dumps(result, indent=1) + "\n"

    def lines(self) -> list[str]:
        """The table, then the MUSTs that are not shown, by document."""
        counts = self.counts()
        lines = [
            "Shown on the product + unit only / all requirements",
            "document " + "".join(f"{level:>18}" for level in LEVELS),
        ]
        for document, levels in counts.items():
            cells = [_cell(levels[level]) if level in levels else "-" for level in LEVELS]
            lines.append(f"{document:<9}" + "".join(f"{cell:>18}" for cell in cells))
        testable = [one.id for one in self._musts(set(self._requirements)) if one.testable]
        shown = len(self.shown & set(testable))
        lines.append(f"{shown} of {len(testable)} testable MUSTs are shown on the product.")
        lines += _listed("MUSTs with unit tests only", self._musts(self.unit_only))
        return lines + _listed("MUSTs without a passing test", self._musts(self.missing))


def _listed(title: str, found: list[Requirement]) -> list[str]:
    lines = [f"{title}: {len(found)}"]
    for document in dict.fromkeys(one.document for one in found):
        lines += textwrap.wrap(
            " ".join(one.id for one in found if one.document == document),
            width=100,
            initial_indent=f"{document:<9}",
            subsequent_indent=" " * 9,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _cell(counts: dict[str, int]) -> str:
    return f"{counts['shown']} + {counts['unit_only']} / {counts['total']}"


def is_on_product(file: str, requirement: str) -> bool:
    """Whether a test in this file runs the product, in the protocol of this requirement."""
    parts = Path(file).parts
    folder = parts[parts.index("tests") + 1] if "tests" in parts[:-1] else ""
    if folder not in PRODUCT:
        return False
    return requirement.partition("-")[0] not in _OLDER or bool(_OLDER_FILE.search(parts[-1]))


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
