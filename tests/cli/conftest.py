"""The `postroad` command as the tests call it: in this process, or really as a command."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from postroad.api.app import create_app
from postroad.cli.main import app
from tests.api.site import Site
from tests.api.world import MemoryWorld
from tests.fuzz import seeds
from tests.pki import NOW, pem, pem_certificates

TOKEN = "a-token-of-the-tests"
NOBODY = {"POSTROAD_CONFIG": None, "POSTROAD_URL": None, "POSTROAD_TOKEN": None}
"""An environment that names no node."""
AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
"""The time of the seeds' certificates and messages."""

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Call the command in this process; arguments may be paths."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)

    return call


@pytest.fixture
def node_log() -> Iterator[None]:
    """A node sets up the log of its whole process."""
    loggers = [logging.getLogger(), logging.getLogger("postroad")]
    before = [(one.level, one.propagate, list(one.handlers)) for one in loggers]
    yield
    logging.captureWarnings(False)
    for one, (level, propagate, handlers) in zip(loggers, before, strict=True):
        one.setLevel(level)
        one.propagate = propagate
        one.handlers[:] = handlers


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def world(site: Site) -> MemoryWorld:
    """A node that keeps everything in memory, and what is around it."""

    async def made() -> MemoryWorld:
        return MemoryWorld()

    world = site.run(made())
    site.app = create_app(world.service, token=TOKEN)
    return world


@pytest.fixture
def ask(site: Site, world: MemoryWorld) -> Run:
    """Call a command in this process that talks to that node."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        options = ["--url", site.url, "--token", TOKEN]
        return CliRunner(env=NOBODY).invoke(app, [*map(str, arguments), *options], input=stdin)

    return call


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.xml"
    path.write_bytes(b"<order/>")
    return path


def one_line(result: Result) -> str:
    """The one line on standard error that tells what is wrong."""
    assert result.exit_code != 0
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.strip()


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
