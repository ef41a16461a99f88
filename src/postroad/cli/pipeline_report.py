"""`postroad pipeline report`: one page about all messages of a lake."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.lake_options import Format, Master, Memory, Remote, busy, opened_lake
from postroad.cli.node_options import Json
from postroad.cli.problems import fail
from postroad.cli.showing import plain, print_json


def report(
    lake: Annotated[
        str, typer.Option("--lake", metavar="LAKE", help="The folder or URL with the tables.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page that is written.")] = Path(
        "report.html"
    ),
    days: Annotated[
        int | None,
        typer.Option(min=1, help="Only the last so many days; else all.", show_default=False),
    ] = None,
    format: Format = "parquet",
    master: Master = None,
    remote: Remote = None,
    memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page: volume, delivery rate, latency, what is in doubt, partners, relays.

    The page needs no network and no other file.

    Example: postroad pipeline report --lake lake --out report.html
    """
    from postroad.pipeline.report import of_lake
    from postroad.pipeline.report_page import page

    if not out.parent.is_dir():
        fail(f"{plain(str(out))} cannot be written: there is no folder {plain(str(out.parent))}")
    with opened_lake(lake, format, master, remote, memory) as opened, busy("counting", as_json):
        found = of_lake(opened, days)
    _write(out, page(found, datetime.now(UTC)))
    if as_json:
        print_json({"page": str(out), "messages": found.messages, "classes": dict(found.classes)})
    elif found.empty:
        typer.echo(f"{plain(str(out))}: the lake {plain(lake)} has nothing in it yet")
    else:
        typer.echo(f"{plain(str(out))}: {found.messages} messages")


def _write(out: Path, content: str) -> None:
    """It appears whole, or not at all."""
    scratch = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        scratch.write_text(content, encoding="utf-8")
        scratch.replace(out)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        fail(f"{plain(str(out))} cannot be written: {error.strerror}", code=1)
