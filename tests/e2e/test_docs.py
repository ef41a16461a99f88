"""The commands that the documentation shows exist, with just those options."""

import re
import shlex
from typing import Any

import pytest
import typer

from postroad.cli.main import app
from tests.conftest import PROJECT

PAGES = ("running.md", "operations.md")


def commands() -> list[str]:
    """Every command line of the pages."""
    found: dict[str, None] = {}
    for page in PAGES:
        text = (PROJECT / "docs" / page).read_text()
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = "\n".join(blocks).splitlines()
        found.update(dict.fromkeys(one for one in lines if one.startswith("$ postroad ")))
    return list(found)


@pytest.mark.parametrize("line", commands())
def test_the_command_can_be_parsed(line: str) -> None:
    _, *words = shlex.split(line.removeprefix("$ "))
    command: Any = typer.main.get_command(app)
    context = None
    while hasattr(command, "commands"):
        command, name = command.commands[words[0]], words[0]
        words = words[1:]
    context = command.make_context(name, words)
    assert context.args == []


def test_the_pages_show_commands() -> None:
    assert len(commands()) > 10
