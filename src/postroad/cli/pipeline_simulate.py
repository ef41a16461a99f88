"""`postroad pipeline simulate`: journals of a network that never was, and the truth about it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from postroad.cli.node_options import Json
from postroad.cli.problems import fail
from postroad.cli.showing import plain, print_json


def simulate(
    messages: Annotated[
        int | None, typer.Option(metavar="N", help="How many messages.", show_default=False)
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where journal/ and truth/ are written.")
    ] = Path("simulation"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    events: Annotated[
        int | None,
        typer.Option(metavar="N", help="About so many events, instead of --messages."),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="How long; else about a million events a day.", show_default=False),
    ] = None,
    start: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The first day, UTC.", show_default="2026-03-02"),
    ] = None,
    parties: Annotated[
        int | None, typer.Option(help="How many parties; else by messages.", show_default=False)
    ] = None,
    trouble: Annotated[
        float, typer.Option(help="Share of messages with which something goes wrong, 0 to 1.")
    ] = 0.05,
    heartbeat: Annotated[float, typer.Option(help="Seconds between heartbeats.")] = 45,
    faults: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Faults of the journal itself, with commas between them: missing, late, "
            "repeated, identity, foreign, unknown_event; or all.",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write the journals of a believable network, and what must be found out about each message.

    Examples:

      postroad pipeline simulate --messages 2000 --seed 7 --out simulation

      postroad pipeline simulate --messages 500 --trouble 0.5 --faults all --out hard
    """
    from postroad.pipeline import simulation

    if (messages is None) == (events is None):
        fail("say how much: either --messages N or --events N")
    wanted = [name.strip() for name in faults.split(",") if name.strip()]
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)
        try:
            found = simulation.simulate(
                out,
                messages=messages,
                events=events,
                seed=seed,
                start=start.replace(tzinfo=UTC) if start else simulation.START,
                days=days,
                parties=parties,
                trouble=trouble,
                heartbeat=timedelta(seconds=heartbeat),
                faults=simulation.FAULTS if wanted == ["all"] else wanted,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except simulation.CannotSimulate as error:
            fail(plain(str(error)))
        except OSError as error:
            fail(f"cannot write {plain(str(out))}: {error.strerror or error}", code=1)
    if as_json:
        print_json(
            {
                "messages": found.messages,
                "events": found.events,
                "segments": found.segments,
                "journal": str(found.journal),
                "truth": str(found.truth),
                "faults": [{"fault": one.fault, "path": one.path} for one in found.faults],
                "per_day": found.per_day,
            }
        )
        return
    typer.echo(
        f"{found.messages} messages, {found.events} events, {found.segments} segments"
        f" in {plain(str(found.journal))}; the truth is in {plain(str(found.truth))}"
    )
    for fault in found.faults:
        typer.echo(f"{fault.fault}: {plain(fault.path)} {fault.detail}")
