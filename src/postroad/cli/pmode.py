"""`postroad pmode`: check P-Mode files, show them in dotted names, print their JSON Schema."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from postroad.agreement.loading import LoadResult, Problem, load_sources
from postroad.agreement.parameters import dotted
from postroad.agreement.source import DEFAULT_LIMITS
from postroad.agreement.writing import pmode_schema

app = typer.Typer(help="Check and show P-Modes.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR…", help="P-Mode files, or folders of them.")
    ],
    as_json: Json = False,
) -> None:
    """Tell everything that is wrong with P-Mode files, by line."""
    files = list(_files(paths))
    result = load_sources(_read(files))
    if as_json:
        typer.echo(json.dumps(_report(files, result), indent=2))
    else:
        _print_problems(result)
        typer.echo(_summary(files, result))
    if not result.ok:
        raise typer.Exit(1)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A P-Mode file.")],
    pmode_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Show only this P-Mode.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print P-Modes in the specification's dotted names, defaults included, passwords masked."""
    result = load_sources(_read([file]))
    chosen = [pmode for pmode in result.pmodes if pmode_id in (None, pmode.id)]
    if as_json:
        typer.echo(json.dumps([dict(dotted(pmode)) for pmode in chosen], indent=2))
    else:
        blocks = ("\n".join(f"{name} = {value}" for name, value in dotted(p)) for p in chosen)
        typer.echo("\n\n".join(blocks))
    _print_problems(result)
    if pmode_id is not None and not chosen:
        known = ", ".join(pmode.id for pmode in result.pmodes) or "none"
        typer.echo(f"{file}: no P-Mode {pmode_id!r}; there: {known}", err=True)
        raise typer.Exit(1)
    if not result.ok:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of P-Mode files, for editors."""
    typer.echo(json.dumps(pmode_schema(), indent=2))


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = [*path.rglob("*.yaml"), *path.rglob("*.yml")]
            yield from sorted(found)
            if not found:
                _fail(f"{path}: no .yaml file in it")
        else:
            yield path


def _read(files: list[Path]) -> Iterator[tuple[str, bytes]]:
    most = DEFAULT_LIMITS.characters * 4 + 1
    for file in files:
        try:
            with file.open("rb") as stream:
                yield str(file), stream.read(most)
        except OSError as error:
            _fail(f"{file}: {error.strerror or error}")


def _fail(message: str) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(1)


def _print_problems(result: LoadResult) -> None:
    for problem in result.problems:
        typer.echo(str(problem), err=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _summary(files: list[Path], result: LoadResult) -> str:
    return (
        f"{_count(len(result.pmodes), 'P-Mode')} in {_count(len(files), 'file')}: "
        f"{_count(len(result.errors), 'error')}, {_count(len(result.warnings), 'warning')}"
    )


def _report(files: list[Path], result: LoadResult) -> dict[str, object]:
    return {
        "ok": result.ok,
        "files": [str(file) for file in files],
        "pmodes": [pmode.id for pmode in result.pmodes],
        "problems": [_problem(problem) for problem in result.problems],
    }


def _problem(problem: Problem) -> dict[str, object]:
    return asdict(problem)
