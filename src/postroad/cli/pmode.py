"""`postroad pmode`: check P-Mode files, show them in dotted names, import and derive others."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from postroad.agreement.importing import import_pmodes, imported_yaml
from postroad.agreement.importing_source import Imported, file_safe
from postroad.agreement.loading import LoadResult, Problem, load_sources
from postroad.agreement.parameters import dotted
from postroad.agreement.pmode import INIT, RESP, PMode
from postroad.agreement.source import DEFAULT_LIMITS
from postroad.agreement.units import derive_units
from postroad.agreement.writing import pmode_schema, pmodes_yaml

app = typer.Typer(help="Check, show, import and derive P-Modes.", no_args_is_help=True)

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


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…", help="ebXML CPAs (2.0), P-Modes of Holodeck B2B or Domibus."
        ),
    ],
    party: Annotated[
        str | None,
        typer.Option(metavar="ID", help="An id, or the name, of this node's party in the files."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where P-Modes and certificates are written to.")
    ] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell all, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    as_json: Json = False,
) -> None:
    """Make P-Modes of agreements for other products, and tell what could not be carried over.

    Each file becomes one file of P-Modes, with its certificates beside it. A P-Mode that `check`
    would refuse is not written. It ends with 0 only if nothing was refused.
    """
    now = datetime.now(UTC)
    outcomes = [
        _Outcome(file, out, import_pmodes(data, name, me=party, now=now))
        for file, (name, data) in zip(files, _read(files), strict=True)
    ]
    _refuse_conflicts(outcomes, out, force)
    for outcome in outcomes:
        if not outcome.refused:
            outcome.write(dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps([outcome.report() for outcome in outcomes], indent=2))
    else:
        for outcome in outcomes:
            outcome.print(dry_run=dry_run)
    if any(outcome.refused or outcome.found.problems for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def multihop(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of P-Modes.")],
    initiator_hub: Annotated[
        str, typer.Option(metavar="URL", help="The hub that the Initiator is behind.")
    ],
    responder_hub: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The Responder's hub; else both have the same."),
    ] = None,
    initiator_pulls: Annotated[
        bool,
        typer.Option(
            "--initiator-pulls",
            help="Nobody can reach the Initiator: it pulls replies, receipts and errors.",
        ),
    ] = False,
    responder_pulls: Annotated[
        bool,
        typer.Option(
            "--responder-pulls",
            help="Nobody can reach the Responder: it pulls messages from its hub.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; else beside FILE.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Make the two units of multi-hop P-Modes from point-to-point ones.

    FILE.init.yaml is for the Initiator, FILE.resp.yaml for the Responder. Names of files in them
    stay as they are. Nothing is written if the two would not fit together.
    """
    given = load_sources(_read([file]))
    _print_problems(given)
    if not given.ok or not given.pmodes:
        _fail(f"{file}: no P-Mode in it that could be taken")
    derive = partial(
        derive_units,
        initiator_hub=initiator_hub,
        responder_hub=responder_hub or initiator_hub,
        initiator_pulls=initiator_pulls,
        responder_pulls=responder_pulls,
    )
    texts = _units(file, given.pmodes, derive)
    folder = out or file.parent
    targets = {folder / f"{file.stem}{unit}.yaml": text for unit, text in texts.items()}
    made = load_sources([(str(path), text) for path, text in targets.items()])
    _print_problems(made)
    if not made.ok:
        _fail(f"{file}: nothing was written")
    for path, text in targets.items():
        if path.exists() and not force and path.read_text() != text:
            _fail(f"{path}: it exists; move it away, or use --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in targets.items():
            path.write_text(text)
            typer.echo(f"wrote {path}: {_count(len(given.pmodes), 'P-Mode')}")
    except OSError as error:
        _fail(f"{folder}: {error.strerror or error}")


def _units(
    file: Path, pmodes: Sequence[PMode], derive: Callable[[PMode], tuple[PMode, PMode]]
) -> dict[str, str]:
    """The text of the file of each unit, and a word about what nobody could derive."""
    pairs = []
    for pmode in pmodes:
        try:
            pairs.append(derive(pmode))
        except ValueError as error:
            _fail(f"{file}: {pmode.id!r}: {error}")
        if any(leg.protocol and leg.protocol.security for leg in pmode.legs):
            said = "protocol.security is about the partner's TLS; write what is true of the hub"
            typer.echo(f"{file}: {pmode.id!r}: {said}", err=True)
    inits, resps = zip(*pairs, strict=True)
    return {INIT: pmodes_yaml(inits), RESP: pmodes_yaml(resps)}


@dataclass(slots=True)
class _Outcome:
    """What came of one file."""

    source: Path
    folder: Path
    found: Imported
    refused: list[str] = field(default_factory=list)
    """Why nothing is written."""
    written: list[Path] = field(default_factory=list)

    @property
    def target(self) -> Path:
        return self.folder / f"{file_safe(self.source.stem)}.yaml"

    @property
    def files(self) -> dict[Path, bytes]:
        """All that is to be written."""
        if not self.found.pmodes:
            return {}
        certificates = {self.folder / name: pem for name, pem in self.found.certificates.items()}
        return {**certificates, self.target: imported_yaml(self.found, self.source.name).encode()}

    def write(self, *, dry_run: bool) -> None:
        try:
            if self.files and not dry_run:
                self.folder.mkdir(parents=True, exist_ok=True)
            for path, data in self.files.items():
                if not dry_run:
                    path.write_bytes(data)
                self.written.append(path)
        except OSError as error:
            _fail(f"{self.folder}: {error.strerror or error}")

    def warnings(self) -> tuple[Problem, ...]:
        """What `check` says about it."""
        text = imported_yaml(self.found, self.source.name)
        return load_sources([(str(self.target), text)]).problems if self.found.pmodes else ()

    def print(self, *, dry_run: bool) -> None:
        for remark in (*self.found.problems, *self.found.notes, *self.refused, *self.warnings()):
            typer.echo(str(remark), err=True)
        pmodes = _count(len(self.found.pmodes), "P-Mode")
        for path in self.written:
            what = pmodes if path == self.target else "a certificate"
            typer.echo(f"{'would write' if dry_run else 'wrote'} {path}: {what}")
        if not self.written:
            typer.echo(f"{self.source}: nothing was written", err=True)

    def report(self) -> dict[str, object]:
        remarks = (*self.found.problems, *self.found.notes)
        return {
            "file": str(self.source),
            "what": self.found.what,
            "pmodes": [pmode["id"] for pmode in self.found.pmodes],
            "written": [str(path) for path in self.written],
            "refused": [*self.refused, *map(str, self.found.problems)],
            "remarks": [asdict(remark) for remark in remarks],
            "problems": [_problem(problem) for problem in self.warnings()],
        }


def _refuse_conflicts(outcomes: list[_Outcome], out: Path, force: bool) -> None:
    """Nothing is overwritten unawares, and an id names one P-Mode only."""
    targets = {outcome.target for outcome in outcomes}
    others = [path for path in sorted(out.glob("*.yaml")) if path not in targets]
    taken = {pmode.id: str(path) for path in others for pmode in _pmodes_of(path)}
    claimed: set[Path] = set()
    for outcome in outcomes:
        for path in outcome.files:
            if path in claimed:
                outcome.refused.append(f"{path}: another file is imported to it; rename one")
            elif path.exists() and not force and path.read_bytes() != outcome.files[path]:
                outcome.refused.append(f"{path}: it exists; move it away, or use --force")
        for pmode in outcome.found.pmodes:
            where = taken.setdefault(str(pmode["id"]), str(outcome.target))
            if where != str(outcome.target):
                outcome.refused.append(f"{where}: there is a P-Mode {pmode['id']!r} in it already")
        claimed.update(outcome.files)


def _pmodes_of(path: Path) -> tuple[PMode, ...]:
    return load_sources(_read([path])).pmodes


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
