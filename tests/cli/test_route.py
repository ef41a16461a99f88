"""`postroad route` as a user meets it."""

import json
from pathlib import Path

import pytest

from postroad.wire.multihop import write_routing_input
from postroad.wire.soap import SoapVersion
from tests.cli.conftest import Run
from tests.unit.routed import ROUTING_INPUT
from tests.unit.test_routing import _envelope

RULES = """\
routes:
  - id: invoices
    match: {action: Invoice}
    to: {push: "http://invoices.example/msh"}
  - id: sales
    match: {to_party: {type: "urn:duns"}}
    to: {push: ["http://a.example/msh", "http://b.example/msh"]}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "routes.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def message(tmp_path: Path) -> Path:
    file = tmp_path / "message.xml"
    file.write_bytes(_envelope(write_routing_input(ROUTING_INPUT, SoapVersion.SOAP_12)))
    return file


def test_check_counts_rules(run: Run, rules: Path) -> None:
    result = run("route", "check", rules)
    assert (result.exit_code, result.stdout) == (0, f"{rules}: 2 rules, 0 errors, 0 warnings\n")


def test_check_tells_what_is_wrong_by_line(run: Run, rules: Path) -> None:
    rules.write_text(RULES.replace("action", "acton"))
    result = run("route", "check", rules, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["ok"], [one["line"] for one in told["problems"]]) == (False, [3])


def test_check_says_that_there_is_no_file(run: Run, tmp_path: Path) -> None:
    result = run("route", "check", tmp_path / "none.yaml")
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_explain_says_which_rule_why_and_what_nearly_matched(
    run: Run, rules: Path, message: Path
) -> None:
    result = run("route", "explain", message, "--routes", rules)
    assert result.exit_code == 0, result.output
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert ["rule", "sales"] in lines
    assert "push http://b.example/msh" in result.stdout
    assert "invoices: action is Process, not Invoice" in result.stdout
    assert "RoutingInput" in result.stdout


def test_explain_of_what_no_rule_matches_fails_with_the_error(
    run: Run, rules: Path, message: Path
) -> None:
    rules.write_text(RULES.replace("urn:duns", "urn:gln"))
    result = run("route", "explain", message, "--routes", rules, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"].startswith("EBMS:0020")


def test_explain_of_what_is_no_message_says_so(run: Run, rules: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.xml"
    other.write_text("<a/>")
    result = run("route", "explain", other, "--routes", rules)
    assert result.exit_code == 1
    assert "EBMS:0009" in result.stdout


def test_a_wrong_file_of_rules_is_told_by_line(run: Run, rules: Path, message: Path) -> None:
    rules.write_text("routes: [{id: a}]\n")
    result = run("route", "explain", message, "--routes", rules)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"postroad: {rules}:1:")


def test_the_schema_names_every_key(run: Run) -> None:
    schema = json.loads(run("route", "schema").stdout)
    assert set(schema["properties"]) >= {"routes", "errors", "namespaces"}
