"""The `postroad` command as the tests call it: in this process, or really as a command."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from postroad.cli.main import app
from tests.fuzz import seeds
from tests.pki import NOW, pem, pem_certificates

AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
"""The time of the seeds' certificates and messages."""

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Call the command in this process; arguments may be paths."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)

    return call


def command(
    *arguments: str | Path, stdin: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Call the command that lies beside this interpreter."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("postroad")), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def message(tmp_path: Path) -> Callable[[str], Path]:
    """A seed message as a file."""

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.http"
        path.write_bytes(seeds.messages()[name])
        return path

    return write


@pytest.fixture
def good(message: Callable[[str], Path]) -> Path:
    """A message that holds, signed and encrypted."""
    return message("push")


@pytest.fixture
def tampered(tmp_path: Path) -> Path:
    """The same after somebody changed its action."""
    path = tmp_path / "tampered.http"
    path.write_bytes(seeds.messages()["push"].replace(b"NewOrder", b"OldOrder"))
    return path


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_bytes(pem_certificates(seeds.CA.certificate))
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "seller.pem"
    path.write_bytes(pem(seeds.SELLER))
    return path
