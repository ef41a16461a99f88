"""`postroad serve`: what keeps a node from starting is told in a line, and commands find a node.

Nodes that really run are in `tests/e2e`.
"""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroad.api.serving import Door, Serving, only_one, write_serving
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.settings.config import load_config
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("node_log")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def config(tmp_path: Path, taken: int) -> Path:
    """A node that cannot listen."""
    initialize(Plan(Station("a", tmp_path / "a", taken)), now=datetime.now(UTC))
    return tmp_path / "a" / "postroad.yaml"


def lines(stderr: str) -> list[str]:
    assert "Traceback" not in stderr
    return stderr.splitlines()


def test_each_problem_of_the_file_is_a_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "postroad.yaml"
    file.write_text("node: a\nparty: urn:a\nlissen: x\nclock_skew: 5\n")
    result = run("serve", "-c", file)
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = lines(result.stderr)
    assert first.startswith(f"postroad: {file}:3: lissen: unknown key")
    assert second.startswith(f"postroad: {file}:4: clock_skew: ")


def test_a_file_that_is_not_there_is_a_line(run: Run, tmp_path: Path) -> None:
    result = run("serve", "-c", tmp_path / "nothing.yaml")
    assert result.exit_code == 2
    [line] = lines(result.stderr)
    assert "nothing.yaml:1: the file cannot be read" in line


def test_the_default_file_is_that_of_the_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POSTROAD_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "postroad.yaml:1: the file cannot be read" in run("serve").stderr
    monkeypatch.setenv("POSTROAD_CONFIG", "elsewhere.yaml")
    assert "elsewhere.yaml:1: the file cannot be read" in run("serve").stderr


def test_keys_that_cannot_be_read_are_lines(run: Run, config: Path) -> None:
    (config.parent / "keys" / "a.p12").write_bytes(b"no key")
    (config.parent / "keys" / "api.token").unlink()
    result = run("serve", "-c", config)
    assert result.exit_code == 2
    told = lines(result.stderr)
    assert any("keys.signing" in line for line in told)
    assert any("api.token_file" in line for line in told)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_address_that_is_taken_is_a_line(
    run: Run, config: Path, taken: int, workers: str
) -> None:
    result = run("serve", "-c", config, "--workers", workers)
    assert result.exit_code == 1
    [line] = lines(result.stderr)
    assert line.startswith(f"postroad: cannot listen on 127.0.0.1:{taken}: Address already in use")


@pytest.mark.parametrize("address", ["0.0.0.0:", "127.0.0.1:"])
def test_the_rest_interface_needs_a_token(run: Run, config: Path, address: str) -> None:
    text = config.read_text()
    config.write_text(text.replace("address: 127.0.0.1:", f"address: {address}").split("\napi:")[0])
    (config.parent / "keys" / "api.token").unlink()
    result = run("serve", "-c", config)
    assert result.exit_code == 2
    [line] = lines(result.stderr)
    assert "api.token_file: the REST interface needs a token" in line
    assert "make one with: openssl rand -hex 32 > " in line


@pytest.mark.parametrize("workers", ["1", "2"])
def test_broken_pmodes_are_lines(run: Run, config: Path, workers: str) -> None:
    free = config.read_text().replace("address: 127.0.0.1:", "address: 127.0.0.1:0 # ")
    config.write_text(free)
    [file, *_] = sorted((config.parent / "pmodes").iterdir())
    file.write_text(file.read_text().replace("mep: oneWay", "mep: sideWays"))
    result = run("serve", "-c", config, "--workers", workers)
    assert result.exit_code == 1
    assert any(f"{file}:" in line and "sideWays" in line for line in lines(result.stderr)), (
        result.stderr
    )


def test_a_data_folder_that_is_served_is_refused_before_anything_else(
    run: Run, config: Path
) -> None:
    settings = load_config(config)
    lock = only_one(settings)
    write_serving(settings.data, Serving(4711, "a", (Door("http://127.0.0.1:1", ("msh",), "/m"),)))
    result = run("serve", "-c", config)
    lock.close()
    assert result.exit_code == 1
    [line] = lines(result.stderr)
    assert line == (
        f"postroad: {settings.data} is served already (process 4711, http://127.0.0.1:1/m); "
        "stop that one first, or give this node a data folder of its own"
    )


def test_a_folder_that_cannot_be_made_is_a_line(run: Run, config: Path) -> None:
    (config.parent / "data").write_text("in the way")
    result = run("serve", "-c", config)
    assert result.exit_code == 1
    [line] = lines(result.stderr)
    assert "data cannot be written" in line
