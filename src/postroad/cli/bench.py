"""`postroad bench`: the benchmarks, each beside its floor in the same run."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from postroad.cli.bench_wire import Measure, machine, wire_measures

app = typer.Typer(help="Measure, each thing beside its floor in one run.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    pass


@app.command()
def wire(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, help="How long each side of a measure runs.")
    ] = 4.0,
    size: Annotated[
        int, typer.Option(min=1, max=4096, help="MiB of the attachment for the MIME measures.")
    ] = 100,
) -> None:
    """Sign and verify a 10 KiB message; read and write a large MIME message."""
    measures = wire_measures(seconds=seconds, mib=size)
    if as_json:
        typer.echo(json.dumps({"machine": machine(), "measures": _as_json(measures)}, indent=2))
        return
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


def _as_json(measures: dict[str, Measure]) -> dict[str, dict[str, object]]:
    return {name: measure.as_json() for name, measure in measures.items()}
