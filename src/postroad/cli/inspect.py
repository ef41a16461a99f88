"""`postroad inspect`: the whole truth about a captured message."""

import json
import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from postroad.cli.inspection_tree import inspection_tree
from postroad.cli.passwords import PasswordEnv, password_in
from postroad.cli.problems import fail
from postroad.msh.lens import Inspection
from postroad.msh.report import report
from postroad.node.evidence.check import Evidence
from postroad.node.evidence.inspecting import Tools, extract, facts_of, look_at, moment
from postroad.node.settings.agreements import AgreementError, load_expectation
from postroad.security.keys import KeyStoreError, load_opening_keys, load_trusted
from postroad.security.revocation import RevocationError, RevocationList, load_lists
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB

HOLDS, DOES_NOT_HOLD, UNREADABLE = 0, 1, 2
_UNWRAPPED = 100_000
"""Columns where nobody has a screen: one value stays on one line, for grep."""


def inspect(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="An HTTP request or response with its headers, a MIME body, an envelope "
            "alone, or the zip of an evidence; - is standard input.",
        ),
    ],
    trust: Annotated[
        list[Path] | None,
        typer.Option(
            help="Certificates to trust, of authorities or partners: PEM, DER, PKCS#7, "
            "PKCS#12 or JKS. Several PEM files may follow, or repeat the option."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The key that opens what is encrypted: PEM, PKCS#12 or JKS."),
    ] = None,
    password_env: PasswordEnv = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Judge certificates and times as of then (2026-01-31 or 2026-01-31T12:00:00Z); "
            "now when absent.",
        ),
    ] = None,
    pmode: Annotated[
        Path | None,
        typer.Option(help="Check the message against the P-Modes of this file or folder."),
    ] = None,
    crl: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Revocation lists to check the signer's certificate and those above it against: "
            "PEM or DER. Repeat the option for several files.",
        ),
    ] = None,
    extract_to: Annotated[
        Path | None,
        typer.Option("--extract", metavar="DIR", help="Write envelope and payloads, opened."),
    ] = None,
    allow_legacy: Annotated[
        bool,
        typer.Option(
            "--allow-legacy",
            help="Accept weak algorithms (SHA-1, MD5, RSA 1.5, CBC, Triple DES, short keys).",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: an object, or a list for several files.")
    ] = False,
) -> None:
    """Tell everything about ebMS 3.0 / AS4 and ebXML messages: content, signature, what is wrong.

    The zip of an evidence is verified: the message's signature, and its receipts.

    Exit code 0 when the message holds, 1 when it does not, 2 when it cannot be read.
    """
    files, trusted = _parted(files, trust or [])
    if not files:
        fail("there is no message to inspect: every file given is a certificate")
    tools = _tools(trusted, key, password_env, at, pmode, crl or [], allow_legacy)
    results: list[dict[str, object]] = []
    worst = HOLDS
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNWRAPPED
    for number, name in enumerate(files, 1):
        with ExitStack() as held:
            try:
                found = _inspect(name, tools, held)
            except OSError as error:
                _cannot_read(name, error, results, as_json)
                worst = UNREADABLE
                continue
            worst = max(worst, _exit_code(found))
            facts = {"file": name, **facts_of(found)}
            if as_json:
                results.append(facts)
            else:
                console.print(inspection_tree(facts))
            if extract_to is not None:
                folder = extract_to / f"{number}" if len(files) > 1 else extract_to
                _extract(found, folder, as_json)
    if as_json:
        typer.echo(json.dumps(results[0] if len(files) == 1 else results, indent=2))
    raise typer.Exit(worst)


def _exit_code(found: Inspection | Evidence) -> int:
    if not found.readable:
        return UNREADABLE
    return HOLDS if found.holds else DOES_NOT_HOLD


def _cannot_read(
    name: str, error: OSError, results: list[dict[str, object]], as_json: bool
) -> None:
    reason = error.strerror or str(error)
    typer.echo(f"postroad: {name}: {reason}", err=True)
    if as_json:
        problem = EbmsError("EBMS:0004", f"the file cannot be read: {reason}", location="file")
        results.append({"file": name, **report(Inspection(problems=[problem]))})


def _tools(
    trust: list[Path],
    key: Path | None,
    password_env: str | None,
    at: str | None,
    pmode: Path | None,
    crls: list[Path],
    allow_legacy: bool,
) -> Tools:
    password = password_in(password_env)
    path: Path | None = None
    try:
        trusted: list[x509.Certificate] = []
        for path in trust:
            trusted += load_trusted(path.read_bytes(), password)
        path = key
        keys = load_opening_keys(key.read_bytes(), password) if key is not None else ()
        path = pmode
        expectation = load_expectation(pmode, password=password) if pmode is not None else None
        lists: list[RevocationList] = []
        for path in crls:
            lists += load_lists(path.read_bytes())
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")
    except (KeyStoreError, RevocationError) as error:
        fail(f"{path}: {error}")
    except AgreementError as error:
        fail(str(error))
    return Tools(
        trust=tuple(trusted),
        keys=keys,
        at=_time(at) if at is not None else None,
        expectation=expectation,
        revocation_lists=tuple(lists),
        allow_legacy=allow_legacy,
    )


def _time(value: str) -> datetime:
    try:
        return moment(value)
    except ValueError:
        fail(f"--at {value!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z")


def _parted(files: list[str], trust: list[Path]) -> tuple[list[str], list[Path]]:
    """With --trust, certificates among the files are meant for it: `--trust a.pem b.pem`."""
    if not trust:
        return files, trust
    more = [name for name in files if _is_certificate(name)]
    return [name for name in files if name not in more], [*trust, *map(Path, more)]


def _is_certificate(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            return file.read(64).lstrip().startswith(b"-----BEGIN ")
    except OSError:
        return False


def _inspect(name: str, tools: Tools, held: ExitStack) -> Inspection | Evidence:
    """What was found; files stay open as long as they are held."""
    if name == "-":
        return held.enter_context(look_at(sys.stdin.buffer, tools))
    size = Path(name).stat().st_size
    if size < 64 * MIB or not sys.stderr.isatty():
        return held.enter_context(look_at(name, tools))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(Path(name).name, total=size)
        return held.enter_context(
            look_at(name, tools, progress=lambda more: progress.advance(task, more))
        )


def _extract(found: Inspection | Evidence, folder: Path, quiet: bool) -> None:
    message = found if isinstance(found, Inspection) else found.message
    try:
        for path in extract(message, folder):
            if not quiet:
                typer.echo(f"wrote {path}")
    except OSError as error:
        fail(f"{folder}: {error.strerror or error}")
