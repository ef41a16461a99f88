"""How commands show values: plain words, times, sizes, tables and JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNWRAPPED: Final = 100_000
"""Columns where nobody has a screen: one value stays on one line, for grep."""
_STYLES: Final = {
    "acknowledged": "green",
    "delivered": "green",
    "sent": "green",
    "consumed": "dim",
    "failed": "red",
    "expired": "red",
    "in_doubt": "red",
    "rejected": "red",
    "suspended": "red",
    "settled": "dim",
    "flowing": "green",
}


def plain(value: object) -> str:
    """A value in one line; what a terminal would obey is written out instead."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def moment(at: datetime) -> str:
    """A time in the zone of this machine; in its own where that leaves the calendar."""
    try:
        shown = at.astimezone()
    except (OverflowError, OSError):
        shown = at
    return f"{shown:%Y-%m-%d %H:%M:%S}"


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:.3g} TB"


def state(name: str, more: str = "") -> Text:
    """A state in its colour, and what else is said of it."""
    return Text.assemble((name, _STYLES.get(name, "yellow")), plain(more))


def as_data(value: Any) -> Any:
    """A value of the client as JSON has it."""
    return json.loads(json.dumps(asdict(value), default=_as_text))


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_as_text))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table that wraps on a screen only."""
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    screen = console()
    if screen.is_terminal:
        screen.print(table)
        return
    with screen.capture() as captured:
        screen.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_facts(facts: Iterable[tuple[str, str | int | Text | None]]) -> None:
    """Names and values, each on a line; what is empty is left out."""
    shown = [(name, value) for name, value in facts if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    screen = console()
    for name, value in shown:
        said = value if isinstance(value, Text) else plain(value)
        screen.print(f"{plain(name):<{width}}  ", said, sep="")


def console() -> Console:
    found = Console(highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = _UNWRAPPED
    return found
