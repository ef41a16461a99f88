"""Fuzz the readers with atheris (libFuzzer): `make fuzz`, `make fuzz RUNS=1000000`.

Each target runs in a process of its own, from seeds that this project writes itself, from the
corpus in tests/fuzz/corpus and from what earlier runs found (build/fuzz/corpus). The tally is
printed and written to build/fuzz/report.json.

The exit code is 1 only on a finding: an input that makes a target raise, take too long, take too
much memory or end its process. It is saved in build/fuzz/found. A target that could not run is
reported, and is not a finding.

    python -m tests.fuzz.run [--seconds 20] [--runs N] [--target NAME] [--jobs 2]
    python -m tests.fuzz.run --target NAME --input FILE    runs one input
    python -m tests.fuzz.run --keep                        writes tests/fuzz/corpus
    python -m tests.fuzz.run --record                      adds the tally to docs/security.md
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fuzz import corpora
from tests.fuzz.corpora import BUILD, PROJECT, last_input_file
from tests.fuzz.targets import TARGETS

_PROCESS: Final = (sys.executable, "-m", "tests.fuzz.process")
_LARGEST_INPUT: Final = 16 * 1024
_MOST_MIB: Final = 2048
_SLOWEST_SECONDS: Final = 10
_START_SECONDS: Final = 300
"""Time for a process to import everything and to run its corpus, on a busy machine."""
_PROGRESS_SECONDS: Final = 15.0
_STATUS: Final = re.compile(
    r"^#(\d+)\s.*?cov: (\d+) ft: (\d+)(?: corp: (\d+)/(\S+))?", re.MULTILINE
)
_PAGE: Final = PROJECT / "docs" / "security.md"
_TALLY: Final = re.compile(r"(?<=<!-- table: fuzz -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
_EXECUTED: Final = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)


@dataclass
class Result:
    """What came of one target."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    edges: int = 0
    features: int = 0
    corpus: int = 0
    findings: list[str] = field(default_factory=list)
    problem: str | None = None
    """Why it could not run, or ended too early; not a finding."""

    def read(self, log: str) -> None:
        """Take the numbers from what libFuzzer has printed so far."""
        for number, edges, features, corpus, _ in _STATUS.findall(log)[-1:]:
            self.executions, self.edges, self.features = int(number), int(edges), int(features)
            self.corpus = int(corpus or self.corpus)
        if told := _EXECUTED.search(log):
            self.executions = int(told[1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Fuzz readers.")
    parser.add_argument("--runs", type=int, help="executions per target")
    parser.add_argument("--seconds", type=int, help="time per target (default: 20 without --runs)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (default: 1)")
    parser.add_argument("--input", type=Path, help="run this file only, in this process")
    parser.add_argument("--keep", action="store_true", help="write tests/fuzz/corpus, do not fuzz")
    parser.add_argument("--record", action="store_true", help="add the last tally to the docs")
    given = parser.parse_args(arguments)
    names = given.target or list(TARGETS)
    seconds = given.seconds or (0 if given.runs else 20)
    if given.input is not None:
        if len(names) != 1:
            parser.error("--input needs one --target. Name the target that the file is for.")
        TARGETS[names[0]](given.input.read_bytes())
        return 0
    if given.keep:
        corpora.write(names)
        return 0
    if given.record:
        report_file = BUILD / "report.json"
        text = _PAGE.read_text(encoding="utf-8")
        tally = added_tally(text, json.loads(report_file.read_text()))
        _PAGE.write_text(_TALLY.sub(lambda _: f"{tally}\n", text), encoding="utf-8")
        # It counts once.
        report_file.unlink()
        return 0
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda name: run(name, given.runs, seconds), names))
    return report(results, BUILD)


def report(results: Sequence[Result], build: Path) -> int:
    """Print and write the tally; the exit code is 1 on a finding."""
    write_json(results, build / "report.json")
    print(table(list(map(asdict, results))))
    for result in results:
        if result.problem:
            print(f"NOT FUZZED: {result.target}: {result.problem}", file=sys.stderr)
        for finding in result.findings:
            print(f"FINDING: {result.target}: {finding}", file=sys.stderr)
    return 1 if any(result.findings for result in results) else 0


# In the process that starts the others


def run(
    name: str,
    runs: int | None,
    seconds: int,
    *,
    process: Sequence[str] = _PROCESS,
    build: Path = BUILD,
) -> Result:
    """Fuzz one target in a process of its own; what it leaves is in the folder `build`."""
    result = Result(name)
    if process is _PROCESS and importlib.util.find_spec("atheris") is None:
        version = ".".join(map(str, sys.version_info[:3]))
        result.problem = f"atheris is not installed for Python {version}. Run: make fuzz"
        return result
    found = build / "found"
    found.mkdir(parents=True, exist_ok=True)
    log, before = build / f"{name}.log", set(found.glob(f"{name}-*"))
    options = [
        f"-runs={runs or -1}",
        f"-max_total_time={seconds}",
        f"-timeout={_SLOWEST_SECONDS}",
        f"-rss_limit_mb={_MOST_MIB}",
        f"-max_len={_LARGEST_INPUT}",
        f"-artifact_prefix={found / name}-",
        "-print_final_stats=1",
    ]
    begun = time.monotonic()
    with log.open("wb") as file:
        child = subprocess.Popen(
            [*process, name, *options],
            cwd=PROJECT,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        ended = _watch(child, result, log, seconds + _START_SECONDS if seconds else None)
    result.seconds = round(time.monotonic() - begun, 1)
    text = log.read_text(errors="replace")
    result.read(text)
    if child.returncode != 0 and set(found.glob(f"{name}-*")) == before:
        if result.executions == 0 and ended:
            last = text.strip().splitlines()[-1:] or ["it printed nothing"]
            result.problem = f"its process ended before the first execution: {last[0]}"
            return result
        _save_last_input(build, name, "died" if ended else "hung")
    new = sorted(set(found.glob(f"{name}-*")) - before)
    result.findings = [os.path.relpath(path, PROJECT) for path in new if not _is_quick(name, path)]
    if result.findings:
        print(text[-3000:], file=sys.stderr)
    if not result.findings and result.executions == 0:
        result.problem = "the time was too short for a single execution. Give it more --seconds."
    return result


def _watch(child: "subprocess.Popen[bytes]", result: Result, log: Path, most: float | None) -> bool:
    """Print progress until the process ends; False when it took too long and was killed."""
    begun = time.monotonic()
    while True:
        try:
            child.wait(_PROGRESS_SECONDS)
            return True
        except subprocess.TimeoutExpired:
            result.read(log.read_text(errors="replace"))
            speed = result.executions / (time.monotonic() - begun)
            print(
                f"{result.target}: {result.executions:,} executions ({speed:,.0f}/s), "
                f"{result.edges:,} edges, {result.corpus:,} inputs in the corpus",
                flush=True,
            )
        if most is not None and time.monotonic() - begun > most:
            child.kill()
            child.wait()
            return False


def _is_quick(name: str, path: Path) -> bool:
    """Whether an input that took too long does not when it is run again: the machine was busy."""
    if not path.name.startswith(f"{name}-timeout-"):
        return False
    command = [sys.executable, "-m", "tests.fuzz.run", "--target", name, "--input", str(path)]
    try:
        done = subprocess.run(command, cwd=PROJECT, timeout=6 * _SLOWEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode == 0:
        path.rename(path.with_name(f"slow-{path.name}"))
    return done.returncode == 0


def _save_last_input(build: Path, name: str, how: str) -> None:
    """Save the input that the process was running when it ended without a word."""
    data = last_input_file(build, name).read_bytes()
    content = data[4 : 4 + int.from_bytes(data[:4], "little")]
    digest = hashlib.sha256(content).hexdigest()[:40]
    (build / "found" / f"{name}-{how}-{digest}").write_bytes(content)


def write_json(results: Sequence[Result], path: Path) -> None:
    """Write the tally; targets that did not run keep the numbers of their last run."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= {result.target: asdict(result) for result in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=2) + "\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the tally as a table."""
    return _table({row["target"]: _cells(row) for row in rows})


def added_tally(page: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of a page with new runs: executions and findings add up."""
    known = {
        name: [int(cell.replace(",", "")) for cell in cells.split("|")]
        for name, cells in re.findall(r"^\| (\w+) \| ([\d, |]+) \|$", page, re.MULTILINE)
        if name in TARGETS
    }
    for name, row in rows.items():
        cells = _cells(row)
        before = known.get(name, [0] * len(cells))
        known[name] = [cells[0] + before[0], *cells[1:4], cells[4] + before[4]]
    return _table({name: known[name] for name in TARGETS if name in known})


def _cells(row: Mapping[str, Any]) -> list[int]:
    numbers = [row[name] for name in ("executions", "edges", "features", "corpus")]
    return [*numbers, len(row["findings"])]


def _table(rows: Mapping[str, Sequence[int]]) -> str:
    lines = ["| target | executions | edges | features | corpus | findings |"]
    lines.append("| --- " + "| ---: " * 5 + "|")
    for name, cells in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
