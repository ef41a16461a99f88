"""`postroad pipeline verify`: every receipt of the journal verified again."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.cli.lake_options import Format, LakeUrl, Master, Memory, Remote, busy, opened_lake
from postroad.cli.passwords import PasswordEnv, password_in
from postroad.cli.problems import fail
from postroad.security.keys import (
    KeyPair,
    KeyStoreError,
    load_certificates,
    load_key_pair,
    load_trusted,
)
from postroad.security.revocation import RevocationError, load_lists

if TYPE_CHECKING:
    from postroad.pipeline.evidence import Believing
    from postroad.pipeline.evidence_run import Failing, Outcome

_SHOWN: Final = 20
_SUMMARY: Final = Path("evidence-summary.json")
HOLDS, DOES_NOT_HOLD = 0, 1


def verify(
    lake: LakeUrl = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE=DIR",
            help="Where the bytes of a node lie: its data folder, or a copy behind any URL.",
        ),
    ] = None,
    trust: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Certificates to trust, of authorities or partners: PEM, DER, PKCS#7, "
            "PKCS#12 or JKS.",
        ),
    ] = None,
    crl: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Revocation lists: PEM or DER.")
    ] = None,
    signer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY=NAME",
            help="Who signs for a party: a name in the certificate, where an authority is trusted.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="All receipts, also those that have a row already.")
    ] = False,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a summary of the table, in JSON.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="Sign the summary with this key (PEM, PKCS#12 or JKS, with its certificate): "
            "FILE.sig and FILE.pem are written beside it."
        ),
    ] = None,
    password_env: PasswordEnv = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Check a signed summary instead; with --lake also against the table.",
        ),
    ] = None,
    allow_legacy: Annotated[
        bool, typer.Option("--allow-legacy", help="Accept weak algorithms and short keys.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    format: Format = "parquet",
    master: Master = None,
    remote: Remote = None,
    memory: Memory = None,
) -> None:
    """Verify receipts again: signature, signer as of its time, digests equal to what was sent.

    The rows go to the table `evidence`; receipts that have one already are not looked at again.

    Exit code 0 when all hold, 1 when one does not or its bytes are gone, 2 when nothing was done.
    """
    password = password_in(password_env)
    certificates = _certificates(trust or [], password)
    if check is not None:
        _check(check, certificates, lake, as_json)
        return
    if lake is None:
        fail("say with --lake where the tables are")
    believing = _believing(certificates, crl or [], signer or [], allow_legacy)
    folders = dict(_pair(one, "--evidence NODE=DIR") for one in evidence or [])
    if not folders:
        fail("say with --evidence NODE=DIR where the bytes of each node lie")
    pair = _key(key, password) if key is not None else None
    summary = summary or (_SUMMARY if pair is not None else None)
    from postroad.pipeline.evidence_run import verify as run
    from postroad.pipeline.evidence_summary import summary as summarize

    now = datetime.now(UTC)
    with (
        opened_lake(lake, format, master, remote, memory) as opened,
        busy("verifying receipts", as_json),
    ):
        if not opened.days("events"):
            fail(f"there are no events in {lake} yet: run postroad pipeline run first")
        outcome = run(opened, folders, believing, now, again=again)
        made = summarize(opened, outcome, believing, now) if summary is not None else b""
    if summary is not None:
        _write(summary, made, pair)
    _tell(outcome, summary, as_json)
    raise typer.Exit(DOES_NOT_HOLD if outcome.run.invalid or outcome.run.gone else HOLDS)


def _pair(text: str, form: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        fail(f"{text!r} is not of the form {form}")
    return name, value


def _certificates(files: list[Path], password: bytes | None) -> bytes:
    """All certificates of the files, in PEM."""
    if not files:
        fail("say with --trust FILE whose certificates to trust")
    found = b""
    for file in files:
        try:
            some = load_trusted(file.read_bytes(), password)
        except (OSError, KeyStoreError) as error:
            fail(f"{file}: {getattr(error, 'strerror', None) or error}")
        found += b"".join(one.public_bytes(Encoding.PEM) for one in some)
    return found


def _believing(
    certificates: bytes, crls: list[Path], signers: list[str], legacy: bool
) -> "Believing":
    from postroad.pipeline.evidence import Believing

    names: dict[str, tuple[str, ...]] = {}
    for one in signers:
        party, name = _pair(one, "--signer PARTY=NAME")
        names[party] = (*names.get(party, ()), name)
    lists = b""
    for file in crls:
        try:
            found = load_lists(file.read_bytes())
        except OSError as error:
            fail(f"{file}: {error.strerror}")
        except RevocationError as error:
            fail(f"{file}: {error}")
        lists += b"".join(one.crl.public_bytes(Encoding.PEM) for one in found)
    return Believing(certificates, lists, tuple(names.items()), legacy)


def _key(file: Path, password: bytes | None) -> KeyPair:
    try:
        return load_key_pair(file.read_bytes(), password)
    except (OSError, KeyStoreError) as error:
        fail(f"{file}: {getattr(error, 'strerror', None) or error}")


def _write(file: Path, data: bytes, pair: KeyPair | None) -> None:
    from postroad.pipeline.evidence_summary import CERTIFICATE, SIGNATURE, WrongSummary, sign

    try:
        if pair is not None:
            value, certificates = sign(data, pair)
            file.with_name(file.name + SIGNATURE).write_bytes(value)
            file.with_name(file.name + CERTIFICATE).write_bytes(certificates)
        file.write_bytes(data)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}")
    except WrongSummary as error:
        fail(str(error))


def _tell(outcome: "Outcome", summary: Path | None, as_json: bool) -> None:
    if as_json:
        facts = msgspec.to_builtins(outcome)
        typer.echo(json.dumps({**facts, "summary": str(summary) if summary else None}, indent=2))
        return
    run = outcome.run
    typer.echo(
        f"{run.receipts} receipts looked at: {run.valid} hold, {run.invalid} do not, "
        f"{run.gone} of which the bytes are gone, {run.unsigned} not signed"
    )
    for node, count in sorted(outcome.elsewhere.items()):
        typer.echo(f"{count} of {node} not looked at: say --evidence {node}=DIR")
    for one in outcome.failing[:_SHOWN]:
        typer.echo(_line(one))
    rest = run.invalid + run.gone - _SHOWN
    if rest > 0:
        typer.echo(f"and {rest} more; all are in the table `evidence`")
    if summary is not None:
        typer.echo(f"summary: {summary}")


def _line(one: "Failing") -> str:
    parts = {"signature": one.signature, "chain": one.chain, "digests": one.digests}
    broken = [name for name, holds in parts.items() if holds is False] or ["bytes"]
    return f"  {one.message_id} ({', '.join(broken)}): {one.detail}"


def _check(file: Path, certificates: bytes, lake: str | None, as_json: bool) -> None:
    """Whether a summary is by somebody who is trusted, and tells of the table as it is."""
    from postroad.pipeline import evidence_summary as summaries

    try:
        found, signer = summaries.check(
            file.read_bytes(),
            file.with_name(file.name + summaries.SIGNATURE).read_bytes(),
            file.with_name(file.name + summaries.CERTIFICATE).read_bytes(),
            load_certificates(certificates),
        )
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    except (summaries.WrongSummary, KeyStoreError) as error:
        fail(f"{file} does not hold: {error}", code=DOES_NOT_HOLD)
    different: list[str] = []
    if lake is not None:
        different = summaries.differences(found, lake)
    facts: dict[str, Any] = {**msgspec.to_builtins(found), "signer": signer, "differs": different}
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        made = found.made_at.isoformat(timespec="seconds")
        typer.echo(f"signed by {signer} at {made}, with {found.tool}")
        table = found.table
        typer.echo(
            f"{table.receipts} receipts: {table.valid} hold, {table.invalid} do not, "
            f"{table.gone} of which the bytes were gone, {table.unsigned} not signed"
        )
        for one in different:
            typer.echo(f"the table differs: {one}")
    raise typer.Exit(DOES_NOT_HOLD if different else HOLDS)
