"""Real nodes: `postroad serve` as processes of their own, with folders made by `postroad init`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from typer.testing import CliRunner, Result

from postroad.api.client import Client
from postroad.api.serving import Serving, read_serving
from postroad.cli.main import app
from tests.ports import free_port

PATIENCE: Final = 60.0
"""Seconds after which a test is taken to hang; nothing waits for it when all is well."""
COMMAND: Final = str(Path(sys.executable).with_name("postroad"))
ENVIRONMENT: Final = dict.fromkeys(("POSTROAD_CONFIG", "POSTROAD_URL", "POSTROAD_TOKEN"))


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for something to become true."""
    pause = threading.Event()
    for _ in range(int(patience / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError(f"{what}: not within {patience:g} s")


def postroad(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    """Call a command in this process."""
    return CliRunner(env=ENVIRONMENT).invoke(app, [str(one) for one in arguments], input=stdin)


@dataclass
class Served:
    """A node that can be started, stopped and killed."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> Path:
        return self.folder / "postroad.yaml"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def serving(self) -> Serving:
        found = read_serving(self.data)
        assert found is not None
        return found

    def begin(self, *options: str) -> None:
        """Start it, without waiting."""
        assert self.process is None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "-c", str(self.config), *options],
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if key not in ENVIRONMENT},
            )

    def ready(self, patience: float = PATIENCE) -> None:
        """Wait until it takes messages."""
        until(self._is_ready, f"{self.name} is ready", patience)

    @property
    def lives(self) -> bool:
        """Whether its process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self, *options: str) -> None:
        self.begin(*options)
        self.ready()

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        found = read_serving(self.data)
        if found is None or found.pid != self.process.pid:
            return False
        try:
            return httpx.get(f"{found.api_url}/readyz", timeout=PATIENCE).is_success
        except httpx.TransportError:
            return False

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit code."""
        self.tell(number)
        return self.ended()

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        assert self.process is not None
        process, self.process = self.process, None
        return process.wait(PATIENCE)

    def client(self) -> Client:
        token = (self.folder / "keys" / "api.token").read_text().strip()
        return Client(self.serving.api_url or "", token=token)

    def run(self, *arguments: str | Path, stdin: bytes | None = None) -> Result:
        """A command that talks to this node."""
        return postroad(*arguments, "-c", self.config, stdin=stdin)


@dataclass
class Pair:
    """A buyer and a seller that can talk to each other."""

    buyer: Served
    seller: Served

    def send(self, payload: Path, *options: str | Path, pmode: str = "order") -> Result:
        name = f"buyer-to-seller-{pmode}"
        return self.buyer.run("send", "--pmode", name, "--payload", payload, *options)

    def end(self) -> None:
        for one in (self.buyer, self.seller):
            if one.process is not None:
                one.end(signal.SIGKILL)


def make_pair(folder: Path, *options: str) -> Pair:
    """Folders of a buyer and a seller; nothing runs yet."""
    made = postroad(
        "init",
        folder / "buyer",
        "--partner",
        "seller",
        "--port",
        str(free_port()),
        "--partner-port",
        str(free_port()),
        *options,
    )
    assert made.exit_code == 0, made.output
    return Pair(Served("buyer", folder / "buyer"), Served("seller", folder / "seller"))


def started(pair: Pair) -> Pair:
    for one in (pair.buyer, pair.seller):
        one.begin()
    for one in (pair.buyer, pair.seller):
        one.ready()
    return pair
