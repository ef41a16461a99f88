"""`postroad demo`: the whole story in one go, on this machine."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from postroad.cli.problems import fail


def demo(
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the companies' folders go; default: a temporary one."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nothing but one JSON object with the totals.")
    ] = False,
) -> None:
    """Two companies exchange orders: signed, encrypted, acknowledged and proven.

    Makes keys for a buyer and a seller, starts a node for each on free ports, sends small and
    large orders, lets a stranger and a tampered message try, and proves the receipts offline.
    """
    # The whole node is behind this: commands that do not need it start quicker without.
    from postroad.cli.demo_nodes import NotStarted
    from postroad.cli.demo_scenes import Story

    console = Console(highlight=False, quiet=as_json)
    work = folder or Path(mkdtemp(prefix="postroad-demo-"))
    try:
        work.mkdir(parents=True, exist_ok=True)
        if any((work / name).exists() for name in ("buyer", "seller")):
            fail(f"{work} holds a buyer or a seller already; name another folder with --dir")
        with ExitStack() as stack:
            story = Story(work, console, stack, datetime.now(UTC))
            story.tell()
    except OSError as error:
        fail(f"{work}: {error.strerror or error}")
    except NotStarted as error:
        fail(str(error), code=1)
    totals = story.totals()
    if as_json:
        typer.echo(json.dumps(totals))
    else:
        _summary(console, totals, work)
    if story.surprises:
        fail(f"not everything was as it should be: {'; '.join(story.surprises)}", code=1)


def _summary(console: Console, totals: dict[str, object], work: Path) -> None:
    table = Table("", "", title="What happened", show_header=False, title_justify="left")
    for name, value in totals.items():
        table.add_row(name.replace("_", " "), str(value))
    console.print()
    console.print(table)
    typer.echo(
        f"\nLook for yourself:\n"
        f"  postroad inspect {work}/evidence-1.zip --trust {work}/buyer/keys/authority.pem\n"
        f"  postroad serve -c {work}/seller/postroad.yaml"
    )
