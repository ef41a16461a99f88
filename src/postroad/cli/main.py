"""The `postroad` command."""

import io
import sys
from typing import Annotated

import typer

from postroad import __version__
from postroad.cli import bench, demo, pmode
from postroad.cli.inspect import inspect

app = typer.Typer(
    name="postroad",
    help="Business messaging gateway: ebMS 3.0, AS4 and ebXML messaging, with proof of delivery.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"postroad {__version__}")
        raise typer.Exit


@app.callback()
def _postroad(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """A stream that cannot write a character escapes it: ✔ and ✘ stay different in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


app.command()(inspect)
app.command()(demo.demo)
app.add_typer(pmode.app, name="pmode")
app.add_typer(bench.app, name="bench")
