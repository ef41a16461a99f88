"""Build and run the Java programs of `interop/`, which put other products behind a control port.

Each program prints `ready PORT` when its control port on loopback listens. A POST of JSON to a path
of that port runs a command and returns JSON. The products come from their released artifacts, by
Maven; nothing of them is part of this project.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import PROJECT

SOURCES: Final = PROJECT / "interop"
BUILD: Final = PROJECT / "build" / "interop"
REQUIRED: Final = "POSTROAD_INTEROP_REQUIRED"
"""Set by `make interop`: a peer that cannot be started is then a failure, not a skip."""
PATIENCE: Final = 120.0
_TAIL_LINES: Final = 60


@dataclass(frozen=True, slots=True)
class JavaTools:
    java: str
    javac: str
    mvn: str


def tools() -> JavaTools | None:
    """Return the JDK and Maven on the PATH, or None if one of them is missing."""
    found = [shutil.which(name) for name in ("java", "javac", "mvn")]
    return JavaTools(*[one for one in found if one]) if all(found) else None


def required_tools() -> JavaTools:
    """Return the JDK and Maven; skip the test if they are missing, or fail it in `make interop`."""
    found = tools()
    if found is None:
        unavailable("Java and Maven were not found. Install a JDK (17 or later) and Maven")
    return found


def unavailable(reason: str) -> Any:
    """Skip a live test for a reason that lies outside the project."""
    if os.environ.get(REQUIRED):
        pytest.fail(reason, pytrace=False)
    pytest.skip(f"live peers: {reason}")


def build(peer: str) -> str:
    """Compile a peer of `interop/` and return its class path; unchanged sources compile once."""
    found = required_tools()
    source = SOURCES / peer
    target = BUILD / f"{peer}-{_digest(source)}"
    BUILD.mkdir(parents=True, exist_ok=True)
    with _locked(BUILD / f"{peer}.lock"):
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            _copy_dependencies(found, source, target / "lib")
            _compile(found, source, target)
            (target / "done").touch()
    return os.pathsep.join((str(target / "classes"), str(target / "lib" / "*")))


def _copy_dependencies(found: JavaTools, source: Path, target: Path) -> None:
    done = subprocess.run(
        [
            *(found.mvn, "-q", "-B", "-f", str(source / "pom.xml")),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={target}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        unavailable(f"Maven could not bring {source.name}: {(done.stdout + done.stderr)[:2000]}")


def _compile(found: JavaTools, source: Path, target: Path) -> None:
    classes = target / "classes"
    resources = source / "src" / "main" / "resources"
    if resources.is_dir():
        shutil.copytree(resources, classes)
    classes.mkdir(parents=True, exist_ok=True)
    files = sorted(map(str, (source / "src" / "main" / "java").rglob("*.java")))
    options = ["-nowarn", "-proc:none", "--release", "17", "-encoding", "UTF-8"]
    subprocess.run(
        [found.javac, *options, "-d", str(classes), "-cp", str(target / "lib" / "*"), *files],
        check=True,
    )


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(one for one in source.rglob("*") if one.is_file()):
        digest.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that other test processes respect."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class PeerError(AssertionError):
    """The peer could not carry out a command; the text is what it answered."""


@dataclass
class Peer:
    """A running Java program with a control port."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    port: int
    _reader: threading.Thread = field(repr=False)

    def call(self, path: str, **arguments: Any) -> dict[str, Any]:
        """Run a command of the peer and return its answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path.lstrip('/')}",
            json.dumps(arguments).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")
            raise PeerError(f"{self.name} /{path}: {detail}\n{self.tail()}") from None

    def tail(self) -> str:
        """Return the end of the peer's log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)


def start(
    peer: str,
    main_class: str,
    *arguments: str | Path,
    log: Path,
    properties: Mapping[str, str] | None = None,
    memory: str = "512m",
) -> Peer:
    """Start a peer and wait until its control port listens."""
    classes = build(peer)
    options = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [
                *(required_tools().java, f"-Xmx{memory}", "-XX:+UseSerialGC", "-Xshare:auto"),
                *("-XX:TieredStopAtLevel=1", *options, "-cp", classes),
                *(f"org.postroad.interop.{peer}.{main_class}", *map(str, arguments)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    ready = threading.Event()
    ports: list[int] = []

    def read() -> None:
        assert process.stdout is not None
        with log.open("a") as copy:
            for line in process.stdout:
                copy.write(line)
                copy.flush()
                if line.startswith("ready ") and not ports:
                    ports.append(int(line.split()[1]))
                    ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    if not ready.wait(PATIENCE) or not ports:
        process.kill()
        process.wait(PATIENCE)
        raise PeerError(f"{peer} did not start:\n{log.read_text(errors='replace')[-4000:]}")
    return Peer(peer, process, log, ports[0], reader)
