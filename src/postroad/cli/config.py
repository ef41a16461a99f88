"""`postroad config`: check the node's file, print its JSON Schema."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from postroad.node.settings.agreements import AgreementError, load_agreements
from postroad.node.settings.config import Config, ConfigError, load_config
from postroad.node.settings.config_schema import config_schema
from postroad.node.settings.keyring import Keyring, check_files, load_keyring, tls_warnings
from postroad.node.settings.routes import Routing, load_routing

app = typer.Typer(help="Check the node's configuration.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a look at a configuration and all that it names."""

    ok: bool
    summary: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The node's file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell everything that is wrong with the node's file and with the files that it names."""
    checked = _checked(file)
    if as_json:
        typer.echo(json.dumps(asdict(checked), indent=2))
    else:
        for problem in checked.problems:
            typer.echo(problem, err=True)
        for warning in checked.warnings:
            typer.echo(f"warning: {warning}", err=True)
        typer.echo(checked.summary)
    if not checked.ok:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the node's file, for editors."""
    typer.echo(json.dumps(config_schema(), indent=2))


def _checked(file: Path) -> Checked:
    try:
        config = load_config(file)
    except ConfigError as error:
        return _refused(file, str(error).splitlines())
    problems: list[str] = []
    keyring = Keyring()
    pmodes = 0
    try:
        keyring = load_keyring(config)
    except ConfigError as error:
        problems += str(error).splitlines()
    warnings: tuple[str, ...] = config.warnings + keyring.warnings
    try:
        warnings += tls_warnings(config)
    except ConfigError as error:
        problems += str(error).splitlines()
    try:
        check_files(config)
    except ConfigError as error:
        problems += str(error).splitlines()
    try:
        if config.pmodes.exists():
            found = load_agreements(config.pmodes, password=keyring.password)
            pmodes = len({leg.pmode.id for leg in found.expectation.pmodes.legs})
            warnings += found.warnings
    except AgreementError as error:
        problems += str(error).splitlines()
    routing = Routing()
    try:
        if config.routes.exists():
            routing = load_routing(config.routes)
    except AgreementError as error:
        problems += str(error).splitlines()
    if problems:
        return _refused(file, problems, warnings)
    return Checked(True, _summary(file, config, pmodes, routing), (), warnings)


def _refused(file: Path, problems: list[str], warnings: tuple[str, ...] = ()) -> Checked:
    each = tuple(dict.fromkeys(problems))
    count = f"{len(each)} problem{'' if len(each) == 1 else 's'}"
    return Checked(False, f"{file}: {count}", each, warnings)


def _summary(file: Path, config: Config, pmodes: int, routing: Routing) -> str:
    doors = ", ".join(
        f"{'https' if door.tls else 'http'}://{door.address} ({', '.join(door.serve)})"
        for door in config.listen
    )
    rules = len(routing.table)
    routes = f", {rules} route{'' if rules == 1 else 's'}" if rules else ""
    return (
        f"{file} holds: node {config.node} of {config.party_name}, {doors}, "
        f"{pmodes} P-Mode{'' if pmodes == 1 else 's'}{routes}"
    )
