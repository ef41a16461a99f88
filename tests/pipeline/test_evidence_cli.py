"""`postroad pipeline verify` and the summary that it signs."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from postroad.cli.pipeline_verify import verify
from postroad.pipeline.evidence_run import Counts
from postroad.pipeline.evidence_summary import KIND, Summary, WrongSummary, check, sign
from postroad.pipeline.lake import Lake
from postroad.security.keys import load_certificates, load_key_pair
from tests.node.exchange import BEGIN, BUYER
from tests.pipeline.kept import Books, event_frame, exchanged
from tests.pki import p12_trust

ONE, TWO = "one@buyer.example", "two@buyer.example"


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    return exchanged(tmp_path_factory.mktemp("books"), [(ONE, "signed"), (TWO, "signed")])


@pytest.fixture
def lake(books: Books, spark: SparkSession, tmp_path: Path) -> str:
    lake = Lake(spark, str(tmp_path / "lake"))
    change = lake.begin(1)
    assert change is not None
    change.add("events", event_frame(spark, books.events))
    change.commit()
    return lake.url


def called(*arguments: str | Path) -> Any:
    app = typer.Typer()
    app.command()(verify)
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_all_is_verified_and_the_summary_is_signed_so_that_openssl_agrees(
    books: Books, lake: str, tmp_path: Path
) -> None:
    summary, trust = tmp_path / "summary.json", books.certificate("authority")
    key = books.folder / BUYER / "keys" / "buyer.p12"
    bytes_of = f"{BUYER}={books.folders[BUYER]}"
    told = called(
        "--lake", lake, "--evidence", bytes_of, "--trust", trust,
        "--summary", summary, "--key", key, "--json",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["run"]["valid"] == 2
    facts = json.loads(summary.read_bytes())
    assert (facts["table"]["receipts"], facts["table"]["valid"]) == (2, 2)
    assert [one["subject"] for one in facts["trusted"]] == [
        "CN=Development authority,O=Postroad development"
    ]
    assert len(facts["files"]) >= 1
    _openssl_agrees(summary, tmp_path)


def _openssl_agrees(summary: Path, folder: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here")
    certificate, public = f"{summary}.pem", folder / "public.pem"
    shown = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-pubkey", "-noout"],
        capture_output=True,
        check=True,
    )
    public.write_bytes(shown.stdout)
    verified = subprocess.run(
        ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", f"{summary}.sig",
         str(summary)],
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert verified.stdout.strip() == b"Verified OK"


# the summary alone


@pytest.fixture(scope="module")
def signed(books: Books) -> tuple[bytes, bytes, bytes]:
    """A summary of an empty table, its signature and certificate."""
    pair = load_key_pair((books.folder / BUYER / "keys" / "buyer.p12").read_bytes())
    made = Summary(
        KIND, "postroad", BEGIN, "lake", Counts(), Counts(), None, None, {}, (), {"a.parquet": "00"}
    )
    data = msgspec.json.encode(made)
    return data, *sign(data, pair)


def test_a_summary_holds_as_of_when_it_was_made(
    books: Books, signed: tuple[bytes, bytes, bytes]
) -> None:
    found, signer = check(*signed, load_certificates(books.certificate("authority").read_bytes()))
    assert (found.made_at, signer) == (BEGIN, "CN=buyer,O=Postroad development")


def test_a_summary_that_was_changed_does_not_hold(
    books: Books, signed: tuple[bytes, bytes, bytes]
) -> None:
    data, value, certificates = signed
    trusted = load_certificates(books.certificate("authority").read_bytes())
    with pytest.raises(WrongSummary, match="changed"):
        check(data.replace(b'"valid":0', b'"valid":9'), value, certificates, trusted)


def test_a_summary_of_somebody_else_is_not_believed(
    books: Books, signed: tuple[bytes, bytes, bytes]
) -> None:
    with pytest.raises(WrongSummary, match="untrusted"):
        check(*signed, load_certificates(books.certificate("seller").read_bytes()))


def _written(signed: tuple[bytes, bytes, bytes], folder: Path) -> Path:
    for name, data in zip(("s", "s.sig", "s.pem"), signed, strict=True):
        (folder / name).write_bytes(data)
    return folder / "s"


@pytest.mark.parametrize("variable", ["STORE_PASSWORD", "WRONG_PASSWORD", "NO_PASSWORD", None])
def test_a_trust_store_opens_with_its_password(
    books: Books,
    signed: tuple[bytes, bytes, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "a secret of ours")
    monkeypatch.setenv("WRONG_PASSWORD", "another secret")
    store = tmp_path / "auditors.p12"
    authority = load_certificates(books.certificate("authority").read_bytes())
    store.write_bytes(p12_trust(authority, b"a secret of ours"))
    named = [] if variable is None else ["--password-env", variable]
    told = called("--check", _written(signed, tmp_path), "--trust", store, *named)
    problems = {
        "STORE_PASSWORD": "",
        "WRONG_PASSWORD": "auditors.p12: the PKCS#12 store does not open: the password is wrong",
        "NO_PASSWORD": "the environment variable NO_PASSWORD is not set",
        None: "auditors.p12: the PKCS#12 store does not open: it needs a password",
    }
    assert told.exit_code == (2 if problems[variable] else 0), told.output
    assert problems[variable] in told.stderr
    assert "secret" not in told.output


def test_a_table_that_is_not_the_one_of_the_summary_is_told(
    books: Books, signed: tuple[bytes, bytes, bytes], tmp_path: Path
) -> None:
    summary = _written(signed, tmp_path)
    table = tmp_path / "lake" / "evidence"
    table.mkdir(parents=True)
    (table / "b.parquet").write_bytes(b"")
    trust = books.certificate("authority")
    assert called("--check", summary, "--trust", trust).exit_code == 0
    told = called("--check", summary, "--trust", trust, "--lake", tmp_path / "lake")
    assert told.exit_code == 1
    assert "a.parquet is not there" in told.stdout
    assert "b.parquet is new" in told.stdout


@pytest.mark.usefixtures("spark")
def test_what_cannot_be_done_is_told_in_one_line(books: Books, tmp_path: Path) -> None:
    trust: list[str | Path] = ["--trust", books.certificate("authority")]
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"nonsense")
    cases: list[tuple[list[str | Path], str]] = [
        ([], "say with --trust"),
        (trust, "say with --lake"),
        ([*trust, "--lake", tmp_path], "say with --evidence"),
        ([*trust, "--lake", tmp_path, "--evidence", "buyer"], "not of the form"),
        (["--trust", nonsense, "--lake", tmp_path], "nonsense"),
        ([*trust, "--lake", tmp_path, "--crl", nonsense], "no revocation list"),
        ([*trust, "--check", tmp_path / "none"], "No such file"),
        ([*trust, "--lake", tmp_path, "--evidence", "a=b"], "run postroad pipeline run first"),
    ]
    for arguments, words in cases:
        told = called(*arguments)
        assert told.exit_code == 2, told.output
        assert told.stderr.count("\n") == 1, told.stderr
        assert words in told.stderr
