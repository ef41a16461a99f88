"""Saying no on the command line: one readable line on stderr, and a non-zero exit code."""

from typing import NoReturn

import typer


def fail(message: str, *, code: int = 2) -> NoReturn:
    typer.echo(f"postroad: {message}", err=True)
    raise typer.Exit(code)
