"""The password of key and trust stores, as commands are given it: never on the command line."""

import os
from typing import Annotated

import typer

from postroad.cli.problems import fail

PasswordEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The environment variable with the password of stores."),
]


def password_in(variable: str | None) -> bytes | None:
    """What an environment variable holds; None where none is named."""
    if variable is None:
        return None
    value = os.environ.get(variable)
    if value is None:
        fail(f"the environment variable {variable} is not set")
    return value.encode()
