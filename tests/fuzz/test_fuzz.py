"""The fuzzers: what they found stays found, and their reports say what happened."""

import json
import sys
from pathlib import Path

import pytest

from tests.fuzz import corpora
from tests.fuzz.run import added_tally, report, run
from tests.fuzz.stateful import fuzz
from tests.fuzz.targets import TARGETS

_STATUS = "#5000\tDONE cov: 120 ft: 340 corp: 17/4Kb lim: 475 exec/s: 10 rss: 50Mb"


@pytest.mark.parametrize("name", TARGETS)
def test_the_kept_corpus_is_answered(name: str) -> None:
    inputs = corpora.read(name)
    assert inputs
    for data in inputs.values():
        TARGETS[name](data)


def _process(build: Path, code: str) -> list[str]:
    """Return a command for a process that stands for the one that fuzzes."""
    last = corpora.last_input_file(build, "http")
    script = f"""
import os, pathlib, signal, sys
build, last = pathlib.Path({str(build)!r}), pathlib.Path({str(last)!r})
last.write_bytes((5).to_bytes(4, "little") + b"input" + bytes(100))
{code}
"""
    return [sys.executable, "-c", script]


def test_a_run_without_a_finding_reports_executions_and_coverage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run("http", 5000, 1, process=_process(tmp_path, f"print({_STATUS!r})"), build=tmp_path)
    assert report([result], tmp_path) == 0
    assert "| http | 5,000 | 120 | 340 | 17 | 0 |" in capsys.readouterr().out
    [told] = json.loads((tmp_path / "report.json").read_text()).values()
    assert (told["executions"], told["edges"], told["findings"]) == (5000, 120, [])


@pytest.mark.parametrize(
    "code",
    ["", "sys.exit('no module named x')"],
    ids=["time is up", "nothing could be imported"],
)
def test_a_target_that_never_ran_is_no_finding(
    tmp_path: Path, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run("http", None, 1, process=_process(tmp_path, code), build=tmp_path)
    assert report([result], tmp_path) == 0
    assert "NOT FUZZED: http: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("(build / 'found' / 'http-crash-1').write_bytes(b'bad'); sys.exit(77)", b"bad"),
        ("os.kill(os.getpid(), signal.SIGKILL)", b"input"),
    ],
    ids=["an exception", "a killed process"],
)
def test_a_finding_is_saved_and_fails_the_run(
    tmp_path: Path, code: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"print({_STATUS!r}, flush=True)\n{code}"
    result = run("http", None, 1, process=_process(tmp_path, code), build=tmp_path)
    assert report([result], tmp_path) == 1
    assert "FINDING: http: " in capsys.readouterr().err
    [kept] = (tmp_path / "found").iterdir()
    assert kept.read_bytes() == content


def test_nodes_survive_a_sequence_of_valid_and_mutated_messages(tmp_path: Path) -> None:
    fuzz(tmp_path, seed=1, steps=100)


def test_a_recorded_run_adds_to_those_before() -> None:
    first = {"executions": 1_000, "edges": 5, "features": 7, "corpus": 3, "findings": ["a"]}
    page = added_tally("", {"mail": first})
    again = first | {"edges": 6, "findings": []}
    *_, row = added_tally(page, {"mail": again}).splitlines()
    assert row == "| mail | 2,000 | 6 | 7 | 3 | 1 |"
