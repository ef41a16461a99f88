"""`postroad bench`: the benchmarks, each beside its floor in the same run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from postroad.cli.bench.wire import Measure, machine, wire_measures
from postroad.cli.extras import needs_extra
from postroad.cli.problems import fail

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Disk = Annotated[
    Path | None, typer.Option("--dir", help="On which disk; else that of temporary files.")
]

app = typer.Typer(help="Measure, each thing beside its floor in one run.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    pass


@app.command()
def wire(
    as_json: AsJson = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, help="How long each side of a measure runs.")
    ] = 4.0,
    size: Annotated[
        int, typer.Option(min=1, max=4096, help="MiB of the attachment for the MIME measures.")
    ] = 100,
) -> None:
    """Sign and verify a 10 KiB message; read and write a large MIME message."""
    measures = wire_measures(seconds=seconds, mib=size)
    _tell(measures, as_json)


@app.command()
def push(
    as_json: AsJson = False,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=600, help="How long product and floor run, each.")
    ] = 8.0,
    large: Annotated[
        int, typer.Option(min=0, max=65536, help="Also send one payload of so many MiB.")
    ] = 0,
    stored: Annotated[
        int, typer.Option(min=0, help="Also compare with so many messages in the store.")
    ] = 0,
    pipelined: Annotated[
        bool, typer.Option("--pipelined", help="Also pipeline them over one connection.")
    ] = False,
    folder: Disk = None,
) -> None:
    """Send 10 KiB messages from one node to another, signed and unsigned, durable on both sides."""
    # The whole node is behind this: commands that do not need it start quicker without.
    from postroad.cli.bench.push import (
        large_measure,
        pipelined_measure,
        push_measures,
        stored_measure,
    )

    measures = push_measures(seconds=seconds, folder=folder)
    if large:
        measures["large"] = large_measure(mib=large, folder=folder)
    if stored:
        measures["stored"] = stored_measure(stored=stored, seconds=seconds, folder=folder)
    if pipelined:
        measures["pipelined"] = pipelined_measure(seconds=seconds, folder=folder)
    _tell(measures, as_json)


@app.command()
def retry(
    as_json: AsJson = False,
    seconds: Annotated[
        float, typer.Option(min=2, max=600, help="How long messages with and without retries run.")
    ] = 10.0,
    waiting: Annotated[
        int, typer.Option(min=1000, max=10_000_000, help="Messages in the backlog.")
    ] = 1_000_000,
    folder: Disk = None,
) -> None:
    """Retry beside messages that need none; claim due work of a backlog; serve a partner again."""
    from postroad.cli.bench.retry import retry_measures

    measures = retry_measures(seconds=seconds, waiting=waiting, folder=folder)
    _tell(measures, as_json)


@app.command()
def pull(
    as_json: AsJson = False,
    messages: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="Messages that are pulled, and pushed.")
    ] = 10_000,
    waiting: Annotated[
        int, typer.Option(min=2000, max=10_000_000, help="Messages in the channel to select from.")
    ] = 1_000_000,
    folder: Disk = None,
) -> None:
    """Pull 2 KiB messages over one connection, beside pushing; select one out of many."""
    from postroad.cli.bench.pull import pull_measures

    _tell(pull_measures(messages=messages, waiting=waiting, folder=folder), as_json)


@app.command()
def bundle(
    as_json: AsJson = False,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long each side runs.")] = 8.0,
    folder: Disk = None,
) -> None:
    """Send 1 KiB messages, signed, in bundles of a hundred and one by one; keep maxdelay."""
    from postroad.cli.bench.bundle import bundle_measures

    _tell(bundle_measures(seconds=seconds, folder=folder), as_json)


@app.command()
def large(
    as_json: AsJson = False,
    size: Annotated[
        int,
        typer.Option(min=1, max=1 << 20, help="MiB of the payload; linear takes twice that."),
    ] = 256,
    fragment: Annotated[
        int, typer.Option(min=0, max=4096, help="MiB of each fragment; 0: it goes whole.")
    ] = 16,
    only: Annotated[
        list[str] | None,
        typer.Option(help="One of plain, gzip, linear; else all. Repeatable."),
    ] = None,
    folder: Disk = None,
) -> None:
    """Send a large payload in fragments, signed, plain and with gzip, beside keeping its bytes."""
    from postroad.cli.bench.large import MEASURES, large_measures

    wanted = _wanted(only, MEASURES)
    _tell(large_measures(wanted=wanted, mib=size, fragment=fragment, folder=folder), as_json)


@app.command()
def hub(
    as_json: AsJson = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="One of store_and_forward, streaming, rules; else all. Repeatable."),
    ] = None,
    rules: Annotated[int, typer.Option(min=100, max=1_000_000, help="Rules of the hub.")] = 10_000,
    messages: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="Messages that are carried, and received.")
    ] = 4000,
    folder: Disk = None,
) -> None:
    """Carry messages beside receiving them; route by many rules, beside ten."""
    from postroad.cli.bench.hub import MEASURES, hub_measures

    wanted = _wanted(only, MEASURES)
    measures = hub_measures(wanted=wanted, rules=rules, messages=messages, folder=folder)
    _tell(measures, as_json)


@app.command()
@needs_extra("spark")
def pipeline(
    as_json: AsJson = False,
    events: Annotated[
        int, typer.Option(min=500_000, help="Events through all tables, and a fifth as new ones.")
    ] = 10_000_000,
    only: Annotated[
        list[str] | None,
        typer.Option(help="One of tables, incremental, evidence; else all. Repeatable."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of Spark's driver, like 4g.")
    ] = None,
    folder: Disk = None,
) -> None:
    """Turn simulated journals into tables; add new days to old ones; verify receipts in bulk."""
    wanted = _wanted(only, ("tables", "incremental", "evidence"))
    from postroad.cli.bench.pipeline import pipeline_measures
    from postroad.pipeline.session import NoSpark

    try:
        with Console(stderr=True).status("starting Spark") as status:
            measures = pipeline_measures(
                events=events,
                wanted=wanted,
                memory=memory,
                folder=folder,
                tell=lambda said: status.update(said),
            )
    except NoSpark as error:
        fail(str(error))
    _tell(measures, as_json)


def _wanted(only: list[str] | None, measures: Sequence[str]) -> tuple[str, ...]:
    """The measures that are asked for."""
    for name in only or ():
        if name not in measures:
            fail(f"there is no measure {name}: take of {', '.join(measures)}")
    return tuple(only or measures)


def _tell(measures: dict[str, Measure], as_json: bool) -> None:
    if as_json:
        shown = {name: measure.as_json() for name, measure in measures.items()}
        typer.echo(json.dumps({"machine": machine(), "measures": shown}, indent=2))
    else:
        _show(measures)


def _show(measures: dict[str, Measure]) -> None:
    table = Table("measure", "product", "floor", "ratio", "goal", "peak memory")
    for name, measure in measures.items():
        reached = "" if measure.goal is None else _goal(measure)
        memory = "" if measure.peak_rss_mib is None else f"{measure.peak_rss_mib:.1f} MiB"
        table.add_row(
            name,
            f"{measure.product:,.1f} {measure.unit}",
            f"{measure.floor:,.1f} {measure.unit}",
            f"{measure.ratio:.2f}",
            reached,
            memory,
        )
    Console().print(table)


def _goal(measure: Measure) -> str:
    assert measure.goal is not None
    style = "green" if measure.ratio >= measure.goal else "red"
    return f"[{style}]{measure.goal:.2f}[/]"
