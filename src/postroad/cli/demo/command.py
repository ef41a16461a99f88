"""`postroad demo`: the whole story in one go, on this machine."""

import json
import shutil
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from postroad.cli.problems import fail

_MARK: Final = ".postroad-demo"
"""Stands in a folder that a demo made, and that the next one may therefore remove."""


def demo(
    folder: Annotated[
        Path,
        typer.Option("--dir", help="Where the companies' folders go; made anew each time."),
    ] = Path("demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nothing but one JSON object with the totals.")
    ] = False,
) -> None:
    """Companies exchange orders: signed, encrypted, acknowledged and proven.

    Makes keys for a buyer, a seller and a supplier, starts a node for each on free ports, sends
    small and large orders, speaks ebXML over HTTP and mail, lets a supplier that nobody can reach
    collect its order, fetches the answer to a price request that takes too long, sends a thousand
    updates in three envelopes and an order by way of two hubs, exchanges messages with phase4 if
    Java and Maven are found, lets a stranger and a tampered message try, proves the receipts
    offline, and lets Spark reconcile the journals.
    """
    # The whole node is behind this: commands that do not need it start quicker without.
    from postroad.cli.demo.nodes import NotStarted
    from postroad.cli.demo.scenes import Story

    console = Console(highlight=False, quiet=as_json)
    try:
        _make_anew(folder)
        with ExitStack() as stack:
            story = Story(folder, console, stack, datetime.now(UTC))
            story.tell()
    except OSError as error:
        fail(f"{folder}: {error.strerror or error}")
    except NotStarted as error:
        fail(str(error), code=1)
    totals = story.totals()
    if as_json:
        typer.echo(json.dumps(totals))
    else:
        _summary(console, totals, folder)
    if story.surprises:
        fail(f"not everything was as it should be: {'; '.join(story.surprises)}", code=1)


def _make_anew(folder: Path) -> None:
    """An empty folder; one that somebody else filled is left alone."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            fail(f"{folder} holds something else; name another folder with --dir")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()


def _summary(console: Console, totals: dict[str, object], work: Path) -> None:
    table = Table("", "", title="What happened", show_header=False, title_justify="left")
    for name, value in totals.items():
        table.add_row(name.replace("_", " "), str(value))
    console.print()
    console.print(table)
    lake = f"  postroad pipeline reconcile --lake {work}/lake --class refused\n"
    typer.echo(
        f"\nLook for yourself:\n"
        f"  postroad inspect {work}/evidence-1.zip --trust {work}/buyer/keys/authority.pem\n"
        f"  postroad inspect {work}/messages/good.http --trust {work}/messages/authority.pem"
        f" --key {work}/messages/seller.pem\n"
        f"{lake if (work / 'lake').exists() else ''}"
        f"  postroad serve -c {work}/seller/postroad.yaml"
    )
