"""The pages: their blocks, the commands in them, and whether an output is the one that is shown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.conftest import PROJECT

MORE: Final = "…"
"""Stands for lines that are left out, or for the rest of a line."""
_BLOCK: Final = re.compile(
    r"^(?:<!-- example: (?P<file>\S+\.\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?|\d\d:\d\d:\d\d(?:\.\d+)?"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "DATE"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\b(?:[0-9a-f]{24,}|\d{14,})\b"), "NUMBER"),
    (re.compile(r"\+\d+\.\d+ s\b"), "LATER"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:B|kB|MB|bytes)(?= on the wire)"), "SIZE"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\bpid=\d+"), "PROCESS"),
    (re.compile(r" {2,}"), "  "),
)
"""What is different each time, and what takes its place before outputs are compared."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    place: str
    language: str
    text: str
    file: str | None
    """Under which name the page tells the reader to save it."""


@dataclass(frozen=True, slots=True)
class Command:
    """What stands behind a `$`, and the output that is shown below it."""

    text: str
    shown: tuple[str, ...]

    @property
    def may_fail(self) -> bool:
        """Whether the page shows that this goes wrong."""
        return any("(failure)" in line or "does not hold" in line for line in self.shown)


def pages() -> list[str]:
    """All pages of the documentation."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (PROJECT / "docs").glob("*.md"))]


def uses_spark(page: str) -> bool:
    """Whether the reader of a page starts Spark."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    return "$ postroad pipeline" in text or "postroad.pipeline.session" in text


def blocks(page: str) -> list[Block]:
    text = (PROJECT / page).read_text(encoding="utf-8")
    found = []
    for one in _BLOCK.finditer(text):
        line = text.count("\n", 0, one.start()) + 1
        found.append(Block(f"{page}:{line}", one["language"], one["text"], one["file"]))
    return found


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block; a line that ends in a backslash goes on in the next."""
    for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"\\\n\s*", "", piece).partition("\n")
        yield Command(command, tuple(line for line in output.splitlines() if line.strip()))


def not_shown(shown: Sequence[str], output: str) -> list[str]:
    """Lines that a page shows, from the first on that the output does not have, in this order."""
    lines = iter([_steady(line) for line in output.splitlines()])
    for number, line in enumerate(shown):
        wanted = ".*".join(re.escape(piece) for piece in _steady(line).split(MORE))
        if line.strip() != MORE and not any(re.fullmatch(wanted, one) for one in lines):
            return list(shown[number:])
    return []


def _steady(line: str) -> str:
    for varying, word in _VARYING:
        line = varying.sub(word, line)
    return line.strip()
