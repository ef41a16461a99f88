"""`postroad serve`: run a node."""

from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.node_options import DEFAULT_FILE
from postroad.node.settings.config import ConfigError


def serve(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", metavar="FILE", envvar="POSTROAD_CONFIG", help="The node."),
    ] = DEFAULT_FILE,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes; else as the file says.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell everything, in text for people.")
    ] = False,
) -> None:
    """Run a node: the protocol endpoint, the REST interface, health and metrics.

    SIGTERM or Ctrl-C ends it in good order: requests in progress are finished. Exit code 0 then, 2
    when the configuration cannot be used, 1 when something else keeps it from running.

    Examples:

      postroad serve -c buyer/postroad.yaml

      postroad serve -c /etc/postroad/postroad.yaml --workers 4
    """
    # Only this command needs the server and its libraries.
    from postroad.api.serving import ServeError
    from postroad.api.workers import serve as run

    try:
        code = run(config, workers=workers, verbose=verbose)
    except ConfigError as error:
        _tell(str(error))
        raise typer.Exit(2) from None
    except ServeError as error:
        _tell(str(error))
        raise typer.Exit(1) from None
    raise typer.Exit(code)


def _tell(problems: str) -> None:
    for line in problems.splitlines():
        typer.echo(f"postroad: {line}", err=True)
