"""The house plan holds: rooms, the direction of imports, and what may not be in a file."""

import dis
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from tests.conftest import PROJECT
from tests.docs.pictures import floors
from tests.spark_classes import options

ROOMS = (
    "cli",
    "console",
    "api",
    "node",
    "transport",
    "msh",
    "reliability",
    "agreement",
    "security",
    "wire",
    "store",
    "pipeline",
)
LINT = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
OUTSIDE = re.compile(rb"(?<![\w.%-])/(?:wor" + rb"k|roo" + rb"t)/")
UNTRACKED = {".git", ".venv", "build", "dist", "node_modules", "demo"}


def _lint_imports(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LINT, "--config", str(folder / "pyproject.toml"), "--no-cache", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """The files of the project as git knows them, or all that are no product of a tool."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        found = [
            path
            for path in PROJECT.rglob("*")
            if path.relative_to(PROJECT).parts[0] not in UNTRACKED
            and not any(
                part == "__pycache__" or part.endswith("_cache")
                for part in path.relative_to(PROJECT).parts
            )
        ]
    else:
        found = [PROJECT / os.fsdecode(name) for name in listed.split(b"\0") if name]
    return [path for path in found if path.is_file()]


def test_a_room_calls_only_the_rooms_below_it() -> None:
    result = _lint_imports(PROJECT)
    assert result.returncode == 0, result.stdout


def test_a_forbidden_import_is_seen(tmp_path: Path) -> None:
    forbidden = {
        "wire": "from postroad.msh import __doc__",
        "reliability": "import time",
        "node.steps": "from postroad.node.walks import __doc__",
        "node.hub": "from postroad.node.ebxml import __doc__",
    }
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    source = tmp_path / "src" / "postroad"
    for name in (*ROOMS, *(f"node/{each}" for floor in floors() for each in floor)):
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").touch()
    (source / "__init__.py").touch()
    assert _lint_imports(tmp_path).returncode == 0
    for room, wrong in forbidden.items():
        (source / room.replace(".", "/") / "wrong.py").write_text(wrong + "\n")
    result = _lint_imports(tmp_path)
    assert result.returncode == 1
    for room in forbidden:
        assert f"postroad.{room}.wrong -> " in result.stdout


@pytest.mark.parametrize("room", ["msh", "reliability", "agreement", "security", "wire"])
def test_a_pure_room_has_no_http_client(room: str) -> None:
    """The import linter knows top packages only; these two are below harmless ones."""
    for path in (PROJECT / "src" / "postroad" / room).rglob("*.py"):
        names = set(_imported(compile(path.read_bytes(), path.name, "exec")))
        assert not names & {"http.client", "urllib.request"}, path


def _imported(code: CodeType) -> Iterator[str]:
    """Modules, and what is taken out of them.

    `ast` fails in this Python now and then, where another thread of a test uses it.
    """
    module = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            yield module
        elif step.opname == "IMPORT_FROM":
            yield f"{module}.{step.argval}"
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _imported(inner)


@pytest.mark.parametrize("room", ROOMS)
def test_the_room_is_there(room: str) -> None:
    assert (PROJECT / "src" / "postroad" / room / "__init__.py").is_file()


def test_no_test_sleeps() -> None:
    sleeping = re.compile(r"\btime\." + r"sleep\b|\bfrom time import .*\bsleep\b")
    guilty = [
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "tests").rglob("*.py")
        if sleeping.search(path.read_text(encoding="utf-8"))
    ]
    assert guilty == []


def test_no_file_names_a_folder_of_one_machine(files: list[Path]) -> None:
    assert files
    guilty = [str(path.relative_to(PROJECT)) for path in files if OUTSIDE.search(path.read_bytes())]
    assert guilty == []


def test_what_belongs_together_runs_in_one_process(request: pytest.FixtureRequest) -> None:
    """xdist groups tests by what it adds to their names."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("the tests run in one process anyway")
    if not request.config.getvalue("loadgroup"):
        pytest.skip("the tests are not grouped: use --dist loadgroup")
    grouped = [one for one in request.session.items if one.get_closest_marker("xdist_group")]
    if not grouped:
        pytest.skip("none of the tests that were chosen belong together")
    assert [one.nodeid for one in grouped if "@" not in one.nodeid.rpartition("]")[2]] == []


def test_short_tests_are_handed_out_file_by_file(request: pytest.FixtureRequest) -> None:
    """One by one they cost xdist more than they take: it looks at all it has handed out."""
    here = [one for one in request.session.items if one.path == Path(__file__)]
    groups = {mark.args[0] for one in here for mark in one.iter_markers("xdist_group")}
    assert groups == {"tests/test_house.py"}


def test_the_files_of_tests_lie_where_the_user_says(tmp_path: Path) -> None:
    asked = "import tests.conftest, tempfile; print(tempfile.gettempdir())"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path)


def test_what_make_starts_keeps_what_python_has_compiled() -> None:
    done = subprocess.run(
        ["make", "--silent", "-f", "Makefile", "-f", "-", "environment"],
        input="environment:; @env\n",
        cwd=PROJECT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH=" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout


def test_conformance_can_be_asked_for_again_when_its_file_is_there(tmp_path: Path) -> None:
    """Given as a word of its own, a file that exists would be taken for a test to run."""
    [line] = [line for line in (PROJECT / "Makefile").read_text().splitlines() if "--conf" in line]
    [option] = [word for word in line.split() if word.startswith("--conformance")]
    name, equals, _ = option.partition("=")
    assert equals
    told = tmp_path / "conformance.json"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"{name}={told}", "tests/spec", "-k", "table"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "P2" in json.loads(told.read_text())


def test_spark_starts_with_an_archive_of_its_classes_only_where_there_is_one(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "a folder" / "spark.jsa"
    archive.parent.mkdir()
    assert options(archive) == ""
    archive.touch()
    assert options(archive) == "", "Java could not make it"
    archive.write_bytes(b"classes")
    assert shlex.split(options(archive)) == [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
