"""What is called wrongly is told in one line; what is meant is understood."""

import subprocess
import sys
from pathlib import Path

import pytest

from postroad.node.first_steps.example import examples, found_companies
from tests import pki
from tests.pki import NOW


def postroad(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from postroad.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["inspect"],
        ["inspect", "--nosuch", "x"],
        ["bench", "wire", "--seconds", "many"],
        ["resume"],
        ["settle", "m@x"],
        ["settle", "m@x", "--answer", "perhaps"],
        ["inbox", "notices", "--ack", "first"],
        ["ping"],
        ["query", "m@x", "--wait", "long"],
    ],
)
def test_a_wrong_call_gets_one_line_and_the_way_to_help(arguments):
    done = postroad(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("postroad: ")
    assert "--help" in done.stderr


def test_no_arguments_show_the_commands():
    done = postroad()
    assert done.returncode == 2
    assert "inspect" in done.stdout


@pytest.mark.parametrize("command", [["messages"], ["inbox", "list"]])
def test_help_shows_flags_without_a_type(command: list[str]):
    shown = postroad(*command, "--help").stdout
    assert "--help" in shown
    assert "<bool>" not in shown


def test_several_certificates_may_follow_trust(tmp_path: Path):
    companies = found_companies(NOW)
    message = tmp_path / "message.http"
    message.write_bytes(examples(companies, NOW)[0].message)
    trusted, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    trusted.write_bytes(pki.pem_certificates(companies.authority.certificate))
    other.write_bytes(pki.pem_certificates(pki.authority("Another").certificate))
    at = ["--at", NOW.isoformat()]
    done = postroad("inspect", str(message), "--trust", str(other), str(trusted), *at)
    assert "trusted" in done.stdout
    assert "not trusted" not in done.stdout
    assert done.returncode == 0, done.stdout
    assert postroad("inspect", "--trust", str(other), str(trusted)).returncode == 2
