"""`postroad pipeline run`: the journal into the tables of a lake."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.console import Console

from postroad.agreement.values import parse_duration
from postroad.cli.lake_options import Format, Master, Memory, Remote
from postroad.cli.node_options import Json
from postroad.cli.problems import fail
from postroad.cli.showing import plain, print_json

if TYPE_CHECKING:
    from postroad.pipeline.intake import Totals

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_FAILED: Final = 1


def run(
    journal: Annotated[
        list[str],
        typer.Option(
            "--journal",
            metavar="DIR",
            help="A folder or URL with segments, one's own or a partner's. Repeatable.",
        ),
    ],
    lake: Annotated[
        str, typer.Option("--lake", metavar="DIR", help="The folder or URL of the tables.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Take over what is there, and end. The default.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Go on, and look so often: 30s, 5m.", show_default=False),
    ] = None,
    format: Format = "parquet",
    grace: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long a message may be on its way: 12h, 1d."),
    ] = "1d",
    max_files: Annotated[
        int | None,
        typer.Option(
            "--max-files",
            min=1,
            metavar="N",
            help="So many segments in one commit at most; else all that are there.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    remote: Remote = None,
    memory: Memory = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of Spark's own, for a new session."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring all tables up to the journal. Run again, it takes over what is new.

    Examples:

      postroad pipeline run --journal data/journal --lake lake

      postroad pipeline run --journal ours --journal theirs --lake lake --every 30s
    """
    if once and every is not None:
        fail("say either --once or --every, not both")
    pause = None if every is None else _time(every, "--every")
    patience = _time(grace, "--grace")
    if pause is not None and pause <= timedelta(0):
        fail("--every must be longer than nothing, like 30s")
    from postroad.pipeline.intake_files import NotReadable
    from postroad.pipeline.lake import LakeError
    from postroad.pipeline.lake_formats import SETTINGS
    from postroad.pipeline.runner import Plan, RunError
    from postroad.pipeline.runner import run as run_pipeline
    from postroad.pipeline.session import NoSpark, session

    plan = Plan(tuple(journal), lake, format, patience, max_files)
    settings = {**SETTINGS.get(format, {}), **dict(_pair(one) for one in setting or [])}
    try:
        with _progress(as_json) as tell:
            tell("starting Spark")
            spark = session(master=master, remote=remote, memory=memory, settings=settings)
            if remote is None:
                # What goes wrong is told below, in one line.
                spark.sparkContext.setLogLevel("OFF")
            totals = run_pipeline(spark, plan, every=pause, tell=None if remote else tell)
    except (NoSpark, LakeError, RunError, NotReadable) as error:
        fail(plain(str(error)), code=_FAILED)
    _show(totals, lake, as_json)


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        fail(f"--set {plain(text)} is not of the form NAME=VALUE")
    return name, value


def _time(text: str, option: str) -> timedelta:
    """`30s`, `5m`, `12h`, `1d`, or as ISO 8601 has it."""
    if short := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip()):
        return timedelta(**{_UNITS[short[2]]: float(short[1])})
    try:
        found = parse_duration(text)
    except ValueError:
        found = None
    if not isinstance(found, timedelta):
        fail(f"{option} {plain(text)} is no time: write it like 30s, 5m, 12h, 1d")
    return found


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[str], None]]:
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda said: status.update(said)


def _show(totals: "Totals", lake: str, as_json: bool) -> None:
    if as_json:
        print_json({**msgspec.structs.asdict(totals), "lake": lake})
        return
    if not totals.files:
        typer.echo(f"nothing new; the tables are in {plain(lake)}")
        return
    typer.echo(
        f"{totals.files} files, {totals.read} rows read = {totals.kept} kept"
        f" + {totals.repeats} repeats + {totals.quarantined} quarantined;"
        f" the tables are in {plain(lake)}"
    )
    if totals.foreign or totals.quarantined or totals.retracted:
        typer.echo("not all of it is good: see the table findings")
