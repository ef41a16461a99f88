"""`postroad route`: check the rules of an intermediary, and explain where they lead a message."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from postroad.agreement.writing import routes_schema
from postroad.api.client import Route
from postroad.cli.node_options import DEFAULT_FILE, ConfigFile, Json, SideName, Token, Url, node
from postroad.cli.problems import fail
from postroad.cli.showing import print_facts, print_json
from postroad.msh.forwarding import RouteReport
from postroad.node.hub.route_explaining import explain_capture
from postroad.node.settings.agreements import AgreementError
from postroad.node.settings.config import ConfigError, load_config
from postroad.node.settings.routes import Routing, load_routing, read_routes
from postroad.wire.content import CHUNK

app = typer.Typer(help="Check routing rules, and explain them.", no_args_is_help=True)

_USUAL = Path("routes.yaml")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of rules.")] = _USUAL,
    as_json: Json = False,
) -> None:
    """Tell everything that is wrong with a file of rules, by line."""
    try:
        found = read_routes(file)
    except AgreementError as error:
        fail(str(error), code=1)
    rules = len(found.file.routes)
    if as_json:
        problems = [asdict(one) for one in found.problems]
        told = {"ok": found.ok, "file": str(file), "routes": rules, "problems": problems}
        typer.echo(json.dumps(told, indent=2))
    else:
        for problem in found.problems:
            typer.echo(str(problem), err=True)
        counts = (
            _count(rules, "rule"),
            _count(len(found.errors), "error"),
            _count(len(found.warnings), "warning"),
        )
        typer.echo("{}: {}, {}, {}".format(file, *counts))
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def explain(
    message: Annotated[
        str,
        typer.Argument(
            metavar="FILE|ID",
            help="A captured message (with or without HTTP headers; - is standard input), or the "
            "id of a message that the node has.",
        ),
    ],
    routes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The rules; else those of the node's file, else ./routes.yaml."
        ),
    ] = None,
    side: SideName = None,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Tell which rule a message matches, why, and what else nearly matched.

    It ends with 0 only if a rule matches. Example: postroad route explain message.bin
    """
    if message == "-" or Path(message).is_file():
        report: RouteReport | Route = explain_capture(
            _chunks(message), _rules(routes, config).table
        )
        data = msgspec.to_builtins(report)
    elif routes is not None:
        fail(f"there is no file {message}; with --routes only a file can be explained")
    else:
        with node(config, url, token) as client:
            report = client.route(message, side=side)
        data = asdict(report)
    if as_json:
        print_json(_as_objects(data))
    else:
        _show(report)
    if report.rule is None:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of files of rules, for editors."""
    typer.echo(json.dumps(routes_schema(), indent=2))


def _rules(routes: Path | None, config: Path | None) -> Routing:
    """The rules that the options name."""
    file = routes or _USUAL
    try:
        if routes is None and (config is not None or DEFAULT_FILE.exists()):
            file = load_config(config or DEFAULT_FILE).routes
        return load_routing(file)
    except (AgreementError, ConfigError) as error:
        for line in str(error).splitlines():
            typer.echo(f"postroad: {line}", err=True)
        raise typer.Exit(2) from None


def _chunks(name: str) -> Iterator[bytes]:
    if name == "-":
        yield from iter(lambda: sys.stdin.buffer.read(CHUNK), b"")
        return
    try:
        with Path(name).open("rb") as stream:
            yield from iter(lambda: stream.read(CHUNK), b"")
    except OSError as error:
        fail(f"{name}: {error.strerror or error}")


def _as_objects(data: dict[str, Any]) -> dict[str, Any]:
    """Pairs as the REST interface writes them."""
    for key in ("input", "because"):
        data[key] = [{"criterion": name, "value": value} for name, value in data[key]]
    return data


def _show(report: RouteReport | Route) -> None:
    print_facts(
        (
            ("rule", report.rule or "none matches"),
            ("error", report.error),
            *(("because", f"{name} is {value}") for name, value in report.because),
            *(("goes to", one) for one in report.to),
            *(("note", one) for one in report.notes),
            *(("also", f"{one}, which stands later") for one in report.also),
            *(("nearly", f"{one.rule}: {'; '.join(one.differences)}") for one in report.nearly),
            ("routed by", report.routed_by),
            *((f"  {name}", value) for name, value in report.input),
        )
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
