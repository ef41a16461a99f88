"""Which lake a command reads, and with which Spark: the options for it, and the lake itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from postroad.cli.problems import fail

if TYPE_CHECKING:
    from postroad.pipeline.lake import Lake

LakeUrl = Annotated[
    str | None,
    typer.Option("--lake", metavar="LAKE", help="The folder or URL with the tables."),
]
Format = Annotated[str, typer.Option("--format", help="Of the tables: parquet, delta, iceberg.")]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark's; else all cores here.")
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="Spark Connect: sc://host:15002.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Of Spark's driver, like 4g.")
]


@contextmanager
def opened_lake(
    url: str, format: str, master: str | None, remote: str | None, memory: str | None
) -> "Iterator[Lake]":
    """A lake with a session of its own; what is wrong with either is told in one line."""
    from postroad.pipeline.lake import Lake, LakeError
    from postroad.pipeline.session import NoSpark, session

    try:
        spark = session(master=master, remote=remote, memory=memory)
        yield Lake(spark, url, format)
    except (NoSpark, LakeError) as error:
        fail(str(error))


@contextmanager
def busy(doing: str, quiet: bool) -> "Iterator[None]":
    """Shows on a terminal that something is being done."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(doing):
        yield
