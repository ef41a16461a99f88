"""A reader at a terminal, who types what a page shows, in a folder of his own.

Commands are run for real. Only what would listen on a fixed port, or take the machine for itself,
is run in a way that suits a test: nodes get free ports, and of `make` only the demo is made.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import typer
from typer.testing import CliRunner

from postroad.cli.main import app
from tests.conftest import PROJECT
from tests.docs.pages import Command
from tests.e2e.nodes import ENVIRONMENT, Pair, Served
from tests.ports import free_port

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
    ports: dict[str, str] = field(default_factory=dict)
    """Those that nodes of the reader's own have instead of what the page says."""
    own: list[Served] = field(default_factory=list)

    def type(self, command: Command) -> Output:
        """Run a command as it stands."""
        text = self._real(command.text)
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
        if Path(words[0]).name != "postroad" or _needs_shell(text):
            return self.shell(text)
        special = {"init": self._init, "serve": self._serve, "demo": self._demo, "bench": _parse}
        if words[1] in special:
            return special[words[1]](words[1:])
        return self._postroad(words[1:], self.folder, given)

    def shell(self, text: str) -> Output:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._real(text)],
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
            exec(compile(self._real(text), place, "exec"), self.names)
        return printed.getvalue()

    def _real(self, text: str) -> str:
        """The text with the ports that the nodes really have."""
        for port, node in ((8080, self.pair.buyer), (8081, self.pair.seller)):
            text = text.replace(f"http://127.0.0.1:{port}", node.serving.api_url or "")
        for given, real in self.ports.items():
            text = text.replace(f"http://127.0.0.1:{given}", f"http://127.0.0.1:{real}")
        return text

    def _postroad(self, words: list[str], folder: Path, given: dict[str, str]) -> Output:
        environment = {**ENVIRONMENT, **self.environment, **given}
        with contextlib.chdir(folder):
            result = CliRunner(env=environment).invoke(app, words)
        return Output(result.exit_code, result.output)

    def _init(self, words: list[str]) -> Output:
        """Make other folders than those of the nodes that run."""
        elsewhere = Path(tempfile.mkdtemp(dir=self.folder))
        ports = {option: str(free_port()) for option in ("--port", "--partner-port")}
        options = [word for pair in ports.items() for word in pair]
        if "--port" in words:
            # A node of its own, which the page goes on to serve.
            elsewhere = self.folder
            self.ports[words[words.index("--port") + 1]] = ports["--port"]
        made = self._postroad([*words, *options], elsewhere, {})
        if "--own-keys" in words:
            # The keys that it names are made next.
            return made
        config = str(Path(words[1]) / "postroad.yaml")
        checked = self._postroad(["config", "check", config], elsewhere, {})
        assert checked.code == 0, checked.text
        return made

    def _serve(self, words: list[str]) -> Output:
        """The nodes of the pair run already; what they told is in their logs. Others are begun."""
        _parse(words)
        name = Path(words[words.index("-c") + 1]).parent.name
        node = {"buyer": self.pair.buyer, "seller": self.pair.seller}.get(name)
        if node is None:
            node = Served(name, self.folder / name)
            self.own.append(node)
            node.begin()
        node.ready()
        return Output(0, node.log)

    def leave(self) -> None:
        """End the nodes that the reader has begun."""
        for node in self.own:
            node.end(signal.SIGKILL)

    def _make(self, words: list[str]) -> Output:
        """The target exists."""
        done = subprocess.run(
            ["make", "--dry-run", *words], cwd=PROJECT, capture_output=True, text=True, check=False
        )
        if words == ["demo"]:
            assert ".venv/bin/postroad demo" in done.stdout.splitlines()
            return self._demo(words)
        return Output(done.returncode, done.stdout + done.stderr)

    def _demo(self, words: list[str]) -> Output:
        """It was made once for all."""
        assert words == ["demo"]
        assert self.demo is not None
        return self.demo


def _needs_shell(text: str) -> bool:
    """Whether pipes or patterns stand in it, and not in quotes."""
    tokens = shlex.shlex(text, posix=True, punctuation_chars=True)
    return any(token[0] in "|<>&;()" for token in tokens if token) or "*" in text or "$" in text


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
