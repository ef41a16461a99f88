"""The other commands: help everywhere, the demo, the benchmark, and a first look at P-Modes."""

import json
from pathlib import Path

import click
import pytest
import typer

from postroad.cli.main import app
from tests.cli.conftest import Run, command
from tests.fuzz import seeds


def commands() -> list[tuple[str, ...]]:
    """Every command and group that there is."""
    found: list[tuple[str, ...]] = []

    def walk(name: tuple[str, ...], group: object) -> None:
        found.append(name)
        for child, inner in getattr(group, "commands", {}).items():
            walk((*name, child), inner)

    walk((), typer.main.get_command(app))
    return found


@pytest.mark.parametrize("name", commands(), ids=lambda name: " ".join(name) or "postroad")
def test_every_command_has_help(run: Run, name: tuple[str, ...]) -> None:
    result = run(*name, "--help")
    assert result.exit_code == 0
    assert "Usage: " in click.unstyle(result.stdout)


def test_the_promised_commands_are_there() -> None:
    assert {("inspect",), ("demo",), ("pmode", "check"), ("bench", "wire")} <= set(commands())
    assert {("resend",), ("settle",), ("resume",), ("partners",)} <= set(commands())
    assert {("ping",), ("query",)} <= set(commands())


def test_without_a_command_the_help_is_shown() -> None:
    done = command()
    assert b"Usage: " in done.stdout + done.stderr


def test_an_unknown_command_is_no_traceback() -> None:
    done = command("send-money")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


# bench


def test_the_wire_benchmark_stands_beside_its_floor() -> None:
    done = command("bench", "wire", "--json", "--seconds", "0.1", "--size", "1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["measures"]) == {"sign", "verify", "mime_read", "mime_write"}
    for measure in found["measures"].values():
        assert measure["product"] > 0
        assert measure["floor"] > 0
        assert measure["ratio"] == pytest.approx(measure["product"] / measure["floor"])
    for name in ("mime_read", "mime_write"):
        assert found["measures"][name]["peak_rss_mib"] >= 0
    assert {"cpu", "cores", "python", "postroad", "lxml", "cryptography"} <= set(found["machine"])


def test_the_push_benchmark_sends_from_node_to_node_beside_its_floor() -> None:
    done = command("bench", "push", "--json", "--seconds", "0.5")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["measures"]) == {"signed", "unsigned"}
    for measure in found["measures"].values():
        assert measure["product"] > 0
        assert measure["ratio"] == pytest.approx(measure["product"] / measure["floor"])
        assert measure["peak_rss_mib"] < 250


def test_the_benchmark_of_large_messages_sends_a_payload_beside_keeping_it() -> None:
    options = ("--size", "2", "--fragment", "0", "--only", "plain")
    done = command("bench", "large", "--json", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["measures"]) == {"plain"}
    for measure in found["measures"].values():
        assert measure["ratio"] == pytest.approx(measure["product"] / measure["floor"])
        assert 0 < measure["peak_rss_mib"] < 250


@pytest.mark.parametrize("option", [("--seconds", "0"), ("--size", "0")])
def test_a_benchmark_without_work_is_refused(run: Run, option: tuple[str, str]) -> None:
    assert run("bench", "wire", *option).exit_code == 2


# pmode


def test_pmode_check_show_and_schema(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(seeds.PMODE)
    checked = run("pmode", "check", file)
    assert checked.exit_code == 0, checked.output
    shown = run("pmode", "show", file)
    assert shown.exit_code == 0
    assert "PMode[1].BusinessInfo.Action = NewOrder" in shown.stdout.splitlines()
    schema = json.loads(run("pmode", "schema").stdout)
    assert "$defs" in schema
