"""`postroad pmode import` as a user meets it."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from postroad.cli.pmode import app
from tests.unit.test_importing_cpa import CONFIRMATION, ORDER, cpa
from tests.unit.test_importing_holodeck import PMODE


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def agreement(tmp_path: Path) -> Path:
    file = tmp_path / "agreement.xml"
    file.write_bytes(cpa())
    return file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


WRITTEN = ["agreement-acme-key.pem", "agreement-globex-key.pem", "agreement.yaml"]


def test_it_writes_pmodes_with_their_certificates_and_they_pass_the_check(
    agreement: Path, tmp_path: Path
) -> None:
    out = tmp_path / "pmodes"
    result = run("import", agreement, "--out", out)
    assert result.exit_code == 0
    assert names(out) == WRITTEN
    assert f"wrote {out / 'agreement.yaml'}: 2 P-Modes\n" in result.stdout
    assert f"wrote {out / 'agreement-acme-key.pem'}: a certificate\n" in result.stdout
    assert run("check", out).stdout == "2 P-Modes in 1 file: 0 errors, 0 warnings\n"


def test_notes_are_told_with_file_and_line(agreement: Path, tmp_path: Path) -> None:
    result = run("import", agreement, "--out", tmp_path / "pmodes")
    assert f"{agreement}:22: note: timeToPerform is the application's" in result.stderr


def test_a_dry_run_tells_all_and_writes_nothing(agreement: Path, tmp_path: Path) -> None:
    out = tmp_path / "pmodes"
    result = run("import", agreement, "--out", out, "--dry-run")
    assert result.exit_code == 0
    assert f"would write {out / 'agreement.yaml'}: 2 P-Modes\n" in result.stdout
    assert names(out) == []


def test_nothing_is_overwritten_without_force(agreement: Path, tmp_path: Path) -> None:
    out = tmp_path / "pmodes"
    run("import", agreement, "--out", out)
    (out / "agreement.yaml").write_text("id: mine\nlegs: [{}]\n")
    result = run("import", agreement, "--out", out)
    assert result.exit_code == 1
    assert "it exists; move it away, or use --force" in result.stderr
    assert "nothing was written" in result.stderr
    assert (out / "agreement.yaml").read_text().startswith("id: mine")
    assert run("import", agreement, "--out", out, "--force").exit_code == 0
    assert (out / "agreement.yaml").read_text().startswith("# Imported")


def test_the_same_import_again_changes_nothing(agreement: Path, tmp_path: Path) -> None:
    out = tmp_path / "pmodes"
    run("import", agreement, "--out", out)
    assert run("import", agreement, "--out", out).exit_code == 0
    assert names(out) == WRITTEN


def test_an_id_that_another_file_has_is_refused(agreement: Path, tmp_path: Path) -> None:
    out = tmp_path / "pmodes"
    out.mkdir()
    (out / "mine.yaml").write_text(f"id: {ORDER}\nlegs: [{{}}]\n")
    result = run("import", agreement, "--out", out)
    assert result.exit_code == 1
    assert f"{out / 'mine.yaml'}: there is a P-Mode '{ORDER}' in it already" in result.stderr
    assert names(out) == ["mine.yaml"]


def test_two_files_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.xml").write_text(PMODE.replace("acme-invoices", folder))
    out = tmp_path / "pmodes"
    result = run("import", tmp_path / "a/x.xml", tmp_path / "b/x.xml", "--out", out)
    assert result.exit_code == 1
    assert "another file is imported to it; rename one" in result.stderr
    assert "id: a\n" in (out / "x.yaml").read_text()


def test_what_is_refused_makes_it_fail_and_the_rest_is_written(
    agreement: Path, tmp_path: Path
) -> None:
    other = tmp_path / "holodeck.xml"
    other.write_text(PMODE.replace("https://globex.example/as4", "jms:queue"))
    result = run("import", agreement, other, "--out", tmp_path / "pmodes")
    assert result.exit_code == 1
    assert names(tmp_path / "pmodes") == WRITTEN
    assert f"{other}: nothing was written" in result.stderr
    assert "no transport for jms:" in result.stderr


def test_identifiers_that_are_not_uris_are_imported_with_a_warning(tmp_path: Path) -> None:
    """EU customs has agreements and services that have no type and are no URIs."""
    file = tmp_path / "holodeck.xml"
    text = PMODE.replace("urn:example:globex", "globex")
    file.write_text(text.replace("<type>urn:example:services</type>", ""))
    result = run("import", file, "--out", tmp_path / "pmodes")
    assert result.exit_code == 0
    for name in ("globex", "invoices"):
        assert f"{name!r} has no type and is not a URI" in result.stderr
    assert "error:" not in result.stderr


def test_json_tells_the_same(agreement: Path, tmp_path: Path) -> None:
    out = tmp_path / "pmodes"
    result = run("import", agreement, "--out", out, "--json", "--party", "acme")
    (report,) = json.loads(result.stdout)
    assert report["what"] == "ebXML CPA 2.0"
    assert report["pmodes"] == [ORDER, CONFIRMATION]
    assert sorted(report["written"]) == [str(out / name) for name in WRITTEN]
    assert report["refused"] == []
    assert {"line", "kind", "message"} <= report["remarks"][0].keys()


def test_a_stranger_is_refused(agreement: Path, tmp_path: Path) -> None:
    result = run("import", agreement, "--party", "initech", "--out", tmp_path / "pmodes")
    assert result.exit_code == 1
    assert "'initech' is no party of this CPA" in result.stderr
    assert names(tmp_path / "pmodes") == []


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    result = run("import", tmp_path / "lost.xml")
    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path / 'lost.xml'}: {os.strerror(2)}\n"


def test_a_folder_that_cannot_be_written_is_told(agreement: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("import", agreement, "--out", tmp_path / "file")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(str(tmp_path / "file"))
