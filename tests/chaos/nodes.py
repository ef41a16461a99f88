"""Real nodes: their folders, processes and disks, made with the documented commands only."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chaos.agreements import BUYER, HUB, NODES, SELLER, Agreements, Tree, party
from tests.chaos.doors import Door
from tests.chaos.links import Link

POSTROAD: Final = (sys.executable, "-m", "postroad")
MAIL: Final = {one: f"msh@{one}.example" for one in (BUYER, SELLER)}
SETTINGS: Final[Tree] = {
    "http": {"connect_timeout": "PT3S", "answer_timeout": "PT8S", "reply_timeout": "PT4S"},
    "send": {"lease": "PT5S", "breaker": {"pause": "PT1S", "longest_pause": "PT8S"}},
    "journal": {"ship_to": "journal", "segment_age": "PT30S"},
    "joining": {"reserve": "4 MiB"},
    "limits": {"disk_warning": "8 MiB", "disk_reserve": "4 MiB"},
    "security": {"egress": {"callback_networks": ["127.0.0.0/8"]}},
    "log": {"format": "text", "level": "warning"},
}


def run(*arguments: str, cwd: Path | None = None) -> str:
    """Run a command of postroad and return what it prints; raise RuntimeError if it fails."""
    done = subprocess.run([*POSTROAD, *arguments], capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"postroad {' '.join(arguments)}: {done.stderr.strip() or done.stdout}")
    return done.stdout


class Disk:
    """A small file system of its own for the data of a node, which can be made full."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.full = False

    def mount(self) -> bool:
        """Mount it, and tell whether that is possible here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return _mount("-t", "tmpfs", "-o", f"size={self.size}", "chaos", str(self.folder))

    def fill(self) -> bool:
        """Leave a few kilobytes, until `free` is called; tell whether that was done."""
        for spare in (64, 256, 1024):
            room = os.statvfs(self.folder)
            used = (room.f_blocks - room.f_bfree) * room.f_frsize
            if _mount("-o", f"remount,size={used + spare * 1024}", str(self.folder)):
                self.full = True
                return True
        return False

    def free(self) -> None:
        if not _mount("-o", f"remount,size={self.size}", str(self.folder)):
            raise RuntimeError(f"{self.folder} cannot be made as large as it was")
        self.full = False

    def unmount(self, *, keep: bool) -> None:
        """Unmount it; with `keep` its files stay in a folder beside it."""
        if keep:
            shutil.copytree(self.folder, self.folder.with_name("data-kept"), dirs_exist_ok=True)
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True)


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Node:
    """One node: its folder, and the process that serves it."""

    def __init__(self, name: str, folder: Path, ports: Sequence[int], workers: int = 1) -> None:
        self.name = name
        self.folder = folder
        self.msh, self.api, self.mail = ports
        self.workers = workers
        self.lock = threading.RLock()
        """Whoever starts, stops or strikes the process has it."""
        self.ended_by_itself: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder.parent / f"{name}.log"

    @property
    def config(self) -> Path:
        return self.folder / "postroad.yaml"

    @property
    def door(self) -> Door:
        token = (self.folder / "keys" / "api.token").read_text().splitlines()[0]
        return Door("127.0.0.1", self.api, token)

    def configure(self, link: Link, mail_link: Link | None, hook: str | None) -> None:
        """Change what `postroad init` wrote to what the storm needs."""
        config: dict[str, Any] = yaml.safe_load(self.config.read_text())
        config |= SETTINGS
        config["listen"] = [
            {
                "address": f"127.0.0.1:{self.msh}",
                "serve": ["msh"],
                "public_url": f"http://127.0.0.1:{link.port}/msh",
            },
            {"address": f"127.0.0.1:{self.api}", "serve": ["api"]},
        ]
        if hook is not None:
            config["webhook"] = {
                "url": hook,
                "attempts": 1000,
                "first_interval": "PT1S",
                "longest_interval": "PT5S",
            }
        if mail_link is not None:
            config["mail"] = {
                "address": MAIL[self.name],
                "listen": f"127.0.0.1:{self.mail}",
                "timeout": "PT20S",
                "relay": {
                    "host": "127.0.0.1",
                    "port": mail_link.port,
                    "starttls": "never",
                    "connect_timeout": "PT3S",
                    "answer_timeout": "PT8S",
                },
            }
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    # The process

    def begin(self) -> None:
        """Start it; do not wait until it is ready."""
        options = ("--workers", str(self.workers)) if self.workers > 1 else ()
        with self.lock, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*POSTROAD, "serve", "-c", str(self.config), *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def look(self) -> None:
        """Note a process that ended by itself, and start another one."""
        with self.lock:
            if self._process is not None and (code := self._process.poll()) is not None:
                tail = self._log.read_bytes()[-400:].decode(errors="replace")
                self.ended_by_itself.append(f"exit code {code}: {tail}")
                self.begin()

    def kill(self) -> None:
        """kill -9, and wait until it and its children are gone."""
        with self.lock:
            if self._process is None:
                return
            self._process.kill()
            self._process.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None

    def stop(self) -> int | None:
        """Ask it to end, and return its exit code; None if it had to be killed."""
        with self.lock:
            if self._process is None:
                return 0
            self._process.terminate()
            try:
                code: int | None = self._process.wait(120)
            except subprocess.TimeoutExpired:
                self.kill()
                code = None
            self._process = None
            return code

    def freeze(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        with self.lock, contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                os.killpg(self._process.pid, number)

    def children(self) -> list[int]:
        """Return the processes that it started."""
        with self.lock, contextlib.suppress(OSError):
            if self._process is not None:
                pid = self._process.pid
                text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                return [int(one) for one in text.split()]
        return []


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def make_folders(folder: Path) -> None:
    """Make the folders of the three nodes, as the documentation says."""
    run("init", str(folder / BUYER), "--partner", SELLER)
    run("init", str(folder / HUB))
    for name in NODES:
        for sample in (folder / name / "pmodes").glob("*.yaml"):
            sample.unlink()


def write_agreements(folder: Path, agreements: Agreements, hub_url: str) -> None:
    """Give each node its P-Modes, and the hub its rules."""
    for kind in agreements.kinds:
        for name in (BUYER, SELLER):
            path = folder / name / "pmodes" / f"{kind.name}.yaml"
            pmode = (kind.units or {}).get(name, kind.pmode)
            path.write_text(yaml.safe_dump(pmode, sort_keys=False))
    units = folder / "units"
    for one in agreements.multihop:
        source = folder / BUYER / "pmodes" / f"{one}.yaml"
        pulls = ("--responder-pulls",) if one == "hub-channel" else ()
        run(
            "pmode",
            "multihop",
            str(source),
            "--initiator-hub",
            hub_url,
            *pulls,
            "--out",
            str(units),
        )
        for name, unit in ((BUYER, "init"), (SELLER, "resp")):
            (folder / name / "pmodes" / f"{one}.yaml").unlink()
            pmode = yaml.safe_load((units / f"{one}.{unit}.yaml").read_text())
            if unit == "resp" and pulls:
                pmode["legs"][0]["pulling"] = {"interval": "PT0.5S", "longest": "PT2S"}
            path = folder / name / "pmodes" / f"{one}.yaml"
            path.write_text(yaml.safe_dump(pmode, sort_keys=False))
    (folder / HUB / "pmodes" / "relay.yaml").write_text(
        yaml.safe_dump(agreements.relay(), sort_keys=False)
    )
    (folder / HUB / "routes.yaml").write_text(yaml.safe_dump(agreements.routes(), sort_keys=False))
    assert party(HUB) == yaml.safe_load((folder / HUB / "postroad.yaml").read_text())["party"]
    for name in NODES:
        run("config", "check", str(folder / name / "postroad.yaml"))
