"""Run another product beside Postroad: the Java programs in the folder `interop` of a checkout.

Each program puts a product behind a control port on loopback and prints `ready PORT` when that
listens. A POST of JSON to a path of the port runs a command and returns JSON. The products come
from their released artifacts, by Maven; nothing of them is part of this project.
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

CHECKOUT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = CHECKOUT / "interop"
BUILD: Final = CHECKOUT / "build" / "interop"
_PATIENCE: Final = 120.0
_TAIL_LINES: Final = 60


class PeerUnavailable(Exception):
    """A product cannot be had on this machine; the text says what is missing."""


class PeerError(Exception):
    """A peer did not start or could not carry out a command; the text is what it answered."""


@dataclass(frozen=True, slots=True)
class JavaTools:
    java: str
    javac: str
    mvn: str


def tools() -> JavaTools | None:
    """Return the JDK and Maven on the PATH, or None if one of them is missing."""
    found = [shutil.which(name) for name in ("java", "javac", "mvn")]
    present = [one for one in found if one]
    return JavaTools(*present) if len(present) == len(found) else None


def required_tools() -> JavaTools:
    """Return the JDK and Maven on the PATH, or raise PeerUnavailable."""
    found = tools()
    if found is None:
        raise PeerUnavailable(
            "Java and Maven were not found. Install a JDK (17 or later) and Maven."
        )
    return found


def build(peer: str) -> str:
    """Compile a peer of `interop` and return its class path; unchanged sources compile once."""
    found = required_tools()
    source = SOURCES / peer
    if not (source / "pom.xml").is_file():
        raise PeerUnavailable(f"{source} does not exist. Run this in a checkout of the project.")
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
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise PeerUnavailable(f"Maven did not bring {source.name}: {said[:2000]}")


def _compile(found: JavaTools, source: Path, target: Path) -> None:
    classes = target / "classes"
    resources = source / "src" / "main" / "resources"
    if resources.is_dir():
        shutil.copytree(resources, classes)
    classes.mkdir(parents=True, exist_ok=True)
    files = sorted(map(str, (source / "src" / "main" / "java").rglob("*.java")))
    options = ["-nowarn", "-proc:none", "--release", "17", "-encoding", "UTF-8"]
    done = subprocess.run(
        [found.javac, *options, "-d", str(classes), "-cp", str(target / "lib" / "*"), *files],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise PeerError(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(one for one in source.rglob("*") if one.is_file()):
        digest.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes respect."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
            with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
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
        self.process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)


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
    if not ready.wait(_PATIENCE) or not ports:
        process.kill()
        process.wait(_PATIENCE)
        raise PeerError(f"{peer} did not start:\n{log.read_text(errors='replace')[-4000:]}")
    return Peer(peer, process, log, ports[0], reader)
