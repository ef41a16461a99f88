"""The `postroad` command."""

import io
import sys
from typing import Annotated, Any

import typer

from postroad import __version__
from postroad.cli import (
    asking,
    config,
    following,
    inbox,
    journal,
    key,
    message_list,
    messages,
    partner,
    partners,
    pipeline,
    pmode,
    pulling,
    route,
)
from postroad.cli.bench import commands as bench
from postroad.cli.demo import command as demo
from postroad.cli.init import init
from postroad.cli.inspect import inspect
from postroad.cli.messages import WaitsByDefault
from postroad.cli.serve import serve

_LONG = 200
"""Characters of a value that are repeated."""

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


def _tell(sentence: str) -> None:
    typer.echo(f"postroad: {sentence}", err=True)


def _without_types_of_flags(command: Any) -> Any:
    """The command, with help that shows a flag as `--json` and not as `--json <bool>`."""
    for option in command.get_params(typer.Context(command)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for one in getattr(command, "commands", {}).values():
        _without_types_of_flags(one)
    return command


def main() -> None:
    """Run the command; what it is called wrongly with is told in one line on stderr."""
    try:
        code = _without_types_of_flags(typer.main.get_command(app))(standalone_mode=False)
    except typer.Abort:
        typer.echo("postroad: interrupted", err=True)
        sys.exit(130)
    except OSError as error:
        if error.filename is None:
            raise
        name, why = str(error.filename), error.strerror or str(error)
        _tell(f"{name if len(name) < _LONG else name[:_LONG] + '…'}: {why}. Choose another file.")
        sys.exit(1)
    except UnicodeEncodeError as error:
        _tell(f"{str(error.object)[:_LONG]!r} is not valid text. Write it in UTF-8.")
        sys.exit(2)
    except Exception as error:
        # The library's usage errors have no public name; what they can do tells them apart.
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        context = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split())
        if context is None:
            typer.echo(f"postroad: {message}", err=True)
        elif "NoArgs" in type(error).__name__:
            context.get_help()
        else:
            typer.echo(f"postroad: {message} (see {context.command_path} --help)", err=True)
        sys.exit(error.exit_code)
    sys.exit(code)


app.command()(init)
app.command()(serve)
app.command(cls=WaitsByDefault)(messages.send)
app.command()(following.status)
app.command()(following.trace)
app.command()(messages.evidence)
app.command()(message_list.messages)
app.command(cls=WaitsByDefault)(messages.resend)
app.command()(messages.settle)
app.command()(asking.query)
app.command()(asking.ping)
app.command()(pulling.pull)
app.command()(partners.partners)
app.command()(partners.suspend)
app.command()(partners.resume)
app.command()(messages.purge)
app.add_typer(inbox.app, name="inbox")
app.add_typer(pipeline.app, name="pipeline")
app.command()(inspect)
app.command()(demo.demo)
app.add_typer(journal.app, name="journal")
app.add_typer(config.app, name="config")
app.add_typer(key.app, name="key")
app.add_typer(partner.app, name="partner")
app.add_typer(pmode.app, name="pmode")
app.add_typer(route.app, name="route")
app.add_typer(bench.app, name="bench")
