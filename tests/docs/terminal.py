"""A reader at a terminal, who types what a page shows, in a folder of his own.

Commands are run for real. Only what would listen on a fixed port, or take the machine for itself,
is run in a way that suits a test: nodes get free ports, and of `make` only the demo is made.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import typer
from typer.testing import CliRunner

from postroad.cli.main import app
from tests.conftest import PROJECT
from tests.docs.pages import Command
from tests.e2e.nodes import ENVIRONMENT, Pair, Served, free_ports

_SHELL: Final = re.compile(r"[|<>*&;$`]")
"""What only a shell understands."""
_ASSIGNMENT: Final = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)
_TOOLS: Final = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Output:
    code: int
    text: str


@dataclass(slots=True)
class Terminal:
    """Beside the reader lie the folders of two nodes that run already, and what the demo left."""

    folder: Path
    pair: Pair
    demo: Output | None = None
    environment: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    """What the Python blocks of a page have defined so far."""

    def type(self, command: Command) -> Output:
        """Run a command as it stands."""
        text = self._with_real_ports(command.text)
        name, _, value = text.removeprefix("export ").partition("=")
        if text.startswith("export "):
            self.environment[name] = self.shell(f"printf %s {value}").text
            return Output(0, "")
        words = shlex.split(text, comments=True)
        given = {}
        while found := _ASSIGNMENT.fullmatch(words[0]):
            given[found[1]] = found[2]
            words = words[1:]
        if words[0] == "make":
            return self._make(words[1:])
        if Path(words[0]).name != "postroad" or _SHELL.search(text):
            return self.shell(text)
        if words[1] in ("init", "serve", "bench"):
            return {"init": self._init, "serve": self._serve, "bench": _parse}[words[1]](words[1:])
        return self._postroad(words[1:], self.folder, given)

    def shell(self, text: str) -> Output:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env={**_clean(), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Output(done.returncode, done.stdout)

    def python(self, text: str, place: str) -> str:
        """Run a block of Python after those before it; what it prints."""
        printed = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self.environment),
            contextlib.redirect_stdout(printed),
        ):
            exec(compile(text, place, "exec"), self.names)
        return printed.getvalue()

    def _with_real_ports(self, text: str) -> str:
        for usual, node in (
            ("127.0.0.1:8080", self.pair.buyer),
            ("127.0.0.1:8081", self.pair.seller),
        ):
            text = text.replace(usual, f"127.0.0.1:{node.serving.doors[0].port}")
        return text

    def _postroad(self, words: list[str], folder: Path, given: dict[str, str]) -> Output:
        environment = {**ENVIRONMENT, **self.environment, **given}
        with contextlib.chdir(folder):
            result = CliRunner(env=environment).invoke(app, words)
        return Output(result.exit_code, result.output)

    def _init(self, words: list[str]) -> Output:
        """Make other folders than those of the nodes that run."""
        elsewhere = self._elsewhere("init")
        ports = dict(zip(("--port", "--partner-port"), map(str, free_ports()), strict=True))
        options = [word for pair in ports.items() for word in pair]
        made = self._postroad([*words, *options], elsewhere, {})
        config = str(Path(words[1]) / "postroad.yaml")
        checked = self._postroad(["config", "check", config], elsewhere, {})
        assert checked.code == 0, checked.text
        return made

    def _serve(self, words: list[str]) -> Output:
        """The nodes of the pair run already; with other options a copy is started and ended."""
        _parse(words)
        name = Path(words[words.index("-c") + 1]).parent.name
        node = {"buyer": self.pair.buyer, "seller": self.pair.seller}[name]
        options = words[words.index("-c") + 2 :]
        if not options:
            node.ready()
            return Output(0, node.log)
        copy = Served(name, self._elsewhere("serve") / name)
        shutil.copytree(node.folder, copy.folder, ignore=shutil.ignore_patterns("data", "log"))
        text = copy.config.read_text()
        copy.config.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", text))
        try:
            copy.start(*options)
            return Output(copy.end(), copy.log)
        finally:
            if copy.process is not None:
                copy.process.kill()

    def _make(self, words: list[str]) -> Output:
        """The target exists; the demo was made once for all."""
        done = subprocess.run(
            ["make", "--dry-run", *words], cwd=PROJECT, capture_output=True, text=True, check=False
        )
        if words == ["demo"]:
            assert done.stdout.splitlines()[-1] == ".venv/bin/postroad demo"
            assert self.demo is not None
            return self.demo
        return Output(done.returncode, done.stdout + done.stderr)

    def _elsewhere(self, name: str) -> Path:
        number = sum(1 for _ in self.folder.glob(f"{name}-*"))
        made = self.folder / f"{name}-{number}"
        made.mkdir()
        return made


def run_demo(folder: Path) -> Output:
    """`postroad demo` as somebody runs it, in a folder."""
    command = [sys.executable, "-m", "postroad", "demo"]
    done = subprocess.run(
        command, cwd=folder, env=_clean(), capture_output=True, text=True, check=False
    )
    return Output(done.returncode, done.stdout + done.stderr)


def _parse(words: list[str]) -> Output:
    """The command exists, with just these options."""
    command: Any = typer.main.get_command(app)
    name = ""
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    assert command.make_context(name, words).args == []
    return Output(0, "")


def _clean() -> dict[str, str]:
    """The environment, without what the tester's own node is found by."""
    kept = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    return {**kept, "PATH": f"{_TOOLS}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
