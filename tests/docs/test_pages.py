"""Every command and every piece of Python that the documentation shows does what it shows."""

import re
from typing import Final
from urllib.parse import unquote

import pytest
import yaml
from _pytest.mark.structures import ParameterSet

from tests.conftest import PROJECT
from tests.docs.conftest import Sit
from tests.docs.pages import Block, Command, blocks, commands, not_shown, pages, uses_spark
from tests.docs.pictures import FOLDER, pictures
from tests.docs.terminal import Output, Terminal

pytestmark = pytest.mark.timeout(400)

ONLY_READ = ("text", "yaml", "json", "ini")
"""Blocks of these languages are there to be read."""
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _with_group(page: str) -> ParameterSet:
    """A page, to be read in one process with others: nodes, demo and Spark are there once."""
    group = "spark" if uses_spark(page) else "docs"
    return pytest.param(page, marks=pytest.mark.xdist_group(group))


@pytest.mark.parametrize("page", [_with_group(page) for page in pages()])
def test_the_page_does_what_it_shows(page: str, sit: Sit) -> None:
    terminal = sit(page)
    for block in blocks(page):
        if block.file is not None:
            (terminal.folder / block.file).write_text(block.text)
        elif block.language == "console":
            _console(terminal, block)
        elif block.language == "sh":
            _succeeds(terminal.shell(block.text), block.place)
        elif block.language == "python":
            terminal.python(block.text, block.place)
        else:
            assert block.language in ONLY_READ, block.place


def _console(terminal: Terminal, block: Block) -> None:
    for command in commands(block.text):
        output = terminal.type(command)
        where = f"{block.place}: {command.text}"
        if command.may_fail:
            assert output.code != 0, f"{where}\n{output.text}"
        else:
            _succeeds(output, where)
        missing = not_shown(command.shown, output.text)
        assert not missing, "\n".join((where, *missing, "--- is not in:", output.text))


def _succeeds(output: Output, where: str) -> None:
    assert output.code == 0, f"{where}\n{output.text}"


@pytest.mark.parametrize("page", pages())
def test_every_link_of_the_page_leads_somewhere(page: str) -> None:
    here = PROJECT / page
    for path, anchor in _LINK.findall(here.read_text(encoding="utf-8")):
        if path.startswith(("http:", "https:")):
            continue
        target = here.parent / unquote(path) if path else here
        assert target.exists(), path
        if anchor:
            assert anchor in _anchors(target.read_text(encoding="utf-8")), f"{path}#{anchor}"


def _anchors(text: str) -> set[str]:
    """The names under which a page's headings are linked to."""
    headings = [re.sub(r"[^\w\- ]", "", one.lower()) for one in _HEADING.findall(text)]
    return {one.replace(" ", "-") for one in headings}


def test_all_pages_stand_in_the_index() -> None:
    index = (PROJECT / "docs/README.md").read_text(encoding="utf-8")
    for page in pages()[1:]:
        assert page == "docs/README.md" or f"({page.removeprefix('docs/')})" in index, page


@pytest.mark.parametrize("name", pictures())
def test_the_picture_shows_the_code_as_it_is(name: str) -> None:
    """If not: `python -m tests.docs.pictures` draws it anew."""
    assert (FOLDER / name).read_text(encoding="utf-8") == pictures()[name]


def test_the_site_has_all_pages_once() -> None:
    site = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = [page for entry in site["nav"] for page in _pages_of(entry)]
    assert sorted(f"docs/{page}" for page in named) == sorted(pages()[1:])


def _pages_of(entry: dict[str, str | list[str]]) -> list[str]:
    (below,) = entry.values()
    return [below] if isinstance(below, str) else below


def test_an_output_that_differs_only_in_names_and_times_is_the_one_that_is_shown() -> None:
    shown = (
        "time  id",
        "2026-01-01 08:00:00  0190aaaa-0000-7000-8000-0123456789ab@buyer",
        "rest …",
    )
    output = (
        "time                 id\n"
        "2026-02-02 09:09:09  0190bbbb-0000-7000-8000-ba9876543210@buyer\n"
        "between\n"
        "rest of it\n"
    )
    assert not_shown(shown, output) == []


@pytest.mark.parametrize("line", ["acknowledged", "rest", "time"])
def test_an_output_without_a_shown_line_is_told(line: str) -> None:
    assert not_shown(("time  id", line), "time  id\nrest of it\n") == [line]


def test_commands_are_told_from_their_output() -> None:
    text = "$ one \\\n    two\nshown\n\n$ three   # why\n"
    assert list(commands(text)) == [Command("one two", ("shown",)), Command("three   # why", ())]


ROOMS: Final = "agreement|api|cli|msh|node|pipeline|reliability|security|store|transport|wire"


def _is_there(dotted: str) -> bool:
    """Whether a module or a name in one is there; what a class has is not looked for."""
    here, names = PROJECT / "src" / "postroad", dotted.split(".")
    while names and (here / names[0]).is_dir():
        here /= names.pop(0)
    if not names:
        return True
    module = here / f"{names.pop(0)}.py"
    return module.is_file() and (not names or names[0] in module.read_text(encoding="utf-8"))


def test_the_house_names_modules_that_are_there() -> None:
    page = (PROJECT / "docs" / "house.md").read_text(encoding="utf-8")
    files = re.findall(rf"`((?:{ROOMS})/[\w/]+\.py)`", page)
    named = re.findall(rf"`((?:{ROOMS})(?:\.\w+)+)`", page)
    assert len(files) > 50
    assert len(named) > 50
    assert not [one for one in files if not (PROJECT / "src" / "postroad" / one).is_file()]
    assert not [one for one in named if not _is_there(one)]
