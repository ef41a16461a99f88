"""What all tests share: conformance, recorded messages, how hard hypothesis tries, one Spark."""

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

from tests import spark_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["pytester", "tests.interop.matrix", "tests.spec.conformance"]

PROJECT: Final = Path(__file__).resolve().parents[1]
VECTORS: Final = PROJECT.parent / "shared" / "vectors"
"""Messages that other software wrote; they lie beside the project, not in it."""

MEMORY: Final = Path("/dev/shm")
"""Where Linux keeps files in memory."""
_ROOM: Final = 4 * 2**30
"""What the files of all tests take at once, with much to spare."""


def _files_in_memory() -> None:
    """Every store of every test flushes its steps to the disk; memory needs no waiting for it.

    What a process wrote outlives its kill there too. A folder that the user names stays.
    """
    try:
        flags, room = os.statvfs(MEMORY).f_flag, shutil.disk_usage(MEMORY).free
        memory = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return
    [available] = re.findall(r"^MemAvailable: +(\d+) kB$", memory, re.MULTILINE) or ["0"]
    if not flags & os.ST_NOEXEC and min(room, 1024 * int(available)) > _ROOM:
        os.environ.setdefault("TMPDIR", str(MEMORY))
        tempfile.tempdir = None


_files_in_memory()

if quick := spark_classes.options(PROJECT / "build" / "spark.jsa"):
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick)

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=3000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of recorded messages; a test that needs it is skipped where it is absent."""
    if not VECTORS.is_dir():
        pytest.skip("the recorded messages are not there")
    return VECTORS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with two cores and two shuffle partitions; what it leaves lies in a temp folder."""
    from postroad.pipeline.session import BRIEF, TINY, session

    # The tests with a Spark of their own show that it is the same with code that Spark writes.
    chosen = BRIEF if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else TINY
    folder = tmp_path_factory.mktemp("spark")
    places = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    spark = session(master="local[2]", app="tests", memory="1g", settings=chosen | places)
    yield spark
    spark.stop()


@dataclass(frozen=True, slots=True)
class Demo:
    """What `postroad demo` left, and what it told."""

    folder: Path
    told: str


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo as a newcomer runs it, told once for all tests."""
    place = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "postroad", "demo"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src"), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Demo(place / "demo", done.stdout)


LONG: Final = (
    "tests/docs/",
    "tests/pipeline/",
    "tests/crash/",
    "tests/cli/test_commands",
    "tests/sim/",
)
"""Where tests take long: they are begun first, so that none is left alone at the end.

Each of them is handed out alone. Others go file by file: xdist looks at all that it has handed
out each time a test ends.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that share what is made once run in one process (`--dist loadgroup`), so it is.

    First: xdist's own hook, which sees the groups, may come before that of a conftest.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    for item in items:
        group = _shared(item)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not look at it again."""
    gc.freeze()


def _shared(item: pytest.Item) -> str | None:
    """What a test shares with others: the one Spark, what its folder has made, or its module."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    made = [found[-1] for found in known.values() if found[-1].baseid.startswith("tests/")]
    wide = sorted(f"{one.baseid}:{one.argname}" for one in made if one.scope == "session")
    if wide:
        return wide[0]
    alone = item.nodeid.startswith(LONG) and all(one.scope != "module" for one in made)
    return None if alone else item.nodeid.partition("::")[0]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A long value is named by its argument: keys that are made anew would rename their tests."""
    return argname if isinstance(val, (str, bytes)) and len(val) > 80 else None
