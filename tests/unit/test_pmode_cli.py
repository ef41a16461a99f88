"""`postroad pmode` as a user meets it."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from postroad.cli.pmode import app

GOOD = "id: good\nresponder: {party: urn:globex}\nlegs: [{business_info: {action: A}}]\n"
BAD = "id: bad\nresponder: {party: globex}\nlegs: [{security: {conversation: true}}]\n"
TOKEN = (
    "id: token\nresponder: {party: urn:globex}\n"
    "legs: [{security: {username_token: {username: u, password: hunter2}}}]\n"
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_check_ends_with_0_when_nothing_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = run("check", tmp_path / "good.yaml")
    assert result.exit_code == 0
    assert result.stdout == "1 P-Mode in 1 file: 0 errors, 0 warnings\n"
    assert result.stderr == ""


def test_check_tells_problems_on_stderr_and_fails(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    result = run("check", file)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{file}:2:13: warning: PMode.Responder.Party[1]: 'globex' has no type and is not a URI "
        "(give it a type, or write it as a URI, unless your partner uses this very value)",
        f"{file}:3:20: error: PMode[1].Security.Conversation: not supported by this version "
        "(remove it; sign and encrypt with security.x509, hubs pass on conversations of others)",
    ]
    assert result.stdout == "1 P-Mode in 1 file: 1 error, 1 warning\n"


def test_check_reads_folders_and_holds_files_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "deep" / "b.yml").write_text(GOOD)
    (tmp_path / "note.txt").write_text("no P-Mode")
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "b.yml:1:1: error: PMode.ID: another P-Mode has the id 'good' too" in result.stderr
    assert result.stdout.startswith("2 P-Modes in 2 files: 1 error, ")


def test_a_warning_is_told_and_let_through(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("id: w\nlegs: [{}]\n")
    result = run("check", tmp_path / "w.yaml")
    assert result.exit_code == 0
    assert ": warning: " in result.stderr


def test_check_as_json(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    result = run("check", file, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert report["pmodes"] == ["bad"]
    told = [(problem["line"], problem["level"]) for problem in report["problems"]]
    assert told == [(2, "warning"), (3, "error")]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for command in ("check", "show"):
        result = run(command, tmp_path / "none.yaml")
        assert result.exit_code == 1
        assert result.stderr == f"{tmp_path / 'none.yaml'}: No such file or directory\n"
    assert run("check", tmp_path).stderr == f"{tmp_path}: no .yaml file in it\n"


def test_show_masks_passwords(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TOKEN)
    for extra in ([], ["--json"]):
        result = run("show", file, *extra)
        assert result.exit_code == 0
        assert "hunter2" not in result.output
        assert "********" in result.stdout
    assert "PMode[1].Security.UsernameToken.username = u\n" in run("show", file).stdout


def test_show_picks_one_pmode(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(f"{GOOD}---\n{TOKEN}")
    assert "PMode.ID = good" not in run("show", file, "token").stdout
    assert json.loads(run("show", file, "good", "--json").stdout)[0]["PMode.ID"] == "good"
    result = run("show", file, "third")
    assert result.exit_code == 1
    assert result.stderr.endswith("no P-Mode 'third'; there: good, token\n")


def test_show_shows_what_it_can_and_fails_with_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    result = run("show", file)
    assert result.exit_code == 1
    assert "PMode[1].Security.Conversation = true" in result.stdout
    assert "not supported" in result.stderr


def test_schema_is_json() -> None:
    result = run("schema")
    assert result.exit_code == 0
    assert "PMode" in json.loads(result.stdout)["$defs"]
