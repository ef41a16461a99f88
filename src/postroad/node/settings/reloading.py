"""Files that may change while the node runs: what they hold, loaded anew when they changed.

Whoever loads says which files and folders the value came from. A look compares their
fingerprints with those of the last time; only when one differs is the value loaded again. What
cannot be loaded is told once, and the old value stays in force until the files change again.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Generic, TypeVar

from postroad.agreement.groups import Group
from postroad.agreement.loading import load_pmodes
from postroad.node.settings.agreements import pmode_files
from postroad.node.settings.config import Config
from postroad.node.settings.keyring import (
    Keyring,
    TlsIdentity,
    keyring_files,
    load_keyring,
    load_tls,
    tls_files,
)

T = TypeVar("T")

Print = tuple[int, int, int] | frozenset[str] | None
"""Of a file: its time, size and inode; of a folder: the names below it; None: not there."""
Load = Callable[[], tuple[T, set[Path]]]
AT_ONCE: Final = 2000
"""How many files one look compares; where there are more, they take turns, folders do not."""


class Change(StrEnum):
    UNCHANGED = "unchanged"
    RELOADED = "reloaded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a look at the files."""

    change: Change
    problems: tuple[str, ...] = ()
    """Why the new files are not used, a sentence each."""


UNCHANGED: Final = Outcome(Change.UNCHANGED)
RELOADED: Final = Outcome(Change.RELOADED)


class Unloadable(Exception):
    """A load that failed, and the files whose change may mend it."""

    def __init__(self, message: str, paths: Iterable[Path]) -> None:
        super().__init__(message)
        self.paths = frozenset(paths)


class Watched(Generic[T]):
    """A value from files, as it was when they last could be loaded."""

    current: T
    problems: tuple[str, ...] = ()
    """Why the files as they are now are not used; empty when they are."""

    def __init__(self, load: Load[T]) -> None:
        """Load for the first time; what is wrong then is raised as it is."""
        self._load = load
        self._turn = 0
        started = time.time_ns()
        self.current, paths = load()
        self._remember(_prints(paths))
        self._settled = not _is_newer(self._seen, started)

    def refresh(self, *, thorough: bool = False) -> Outcome:
        """Look at the files; load them when they changed. `thorough` waits for no file's turn."""
        if self._settled and not self._differ(thorough):
            return UNCHANGED
        before = _prints(self._seen)
        started = time.time_ns()
        problems: tuple[str, ...] | None = None
        try:
            value, paths = self._load()
        except Exception as error:
            # Whatever it is, a node that runs goes on with what it has.
            problems = tuple(str(error).splitlines()) or (type(error).__name__,)
            paths = {*before, *getattr(error, "paths", ())}
        after = _prints({*before, *paths})
        added = {path: mark for path, mark in after.items() if path not in before}
        self._settled = before.items() <= after.items() and not _is_newer(added, started)
        if not self._settled:
            # Somebody is still writing: what was read may be half of it.
            self._remember(after)
            return UNCHANGED
        self._remember({path: after[path] for path in paths})
        self.problems = problems or ()
        if problems is not None:
            return Outcome(Change.FAILED, problems)
        self.current = value
        return RELOADED

    def _remember(self, prints: dict[Path, Print]) -> None:
        self._seen = prints
        self._folders = [path for path, mark in prints.items() if isinstance(mark, frozenset)]
        self._files = [path for path, mark in prints.items() if not isinstance(mark, frozenset)]

    def _differ(self, thorough: bool) -> bool:
        """Whether a folder or one of the files whose turn it is differs from the last time."""
        if thorough:
            return _prints(self._seen) != self._seen
        if self._turn >= len(self._files):
            self._turn = 0
        files = self._files[self._turn : self._turn + AT_ONCE]
        self._turn += AT_ONCE
        return any(file_print(path) != self._seen[path] for path in (*self._folders, *files))


def _is_newer(prints: dict[Path, Print], moment: int) -> bool:
    """Whether a file changed after a moment, in nanoseconds of the clock."""
    return any(isinstance(mark, tuple) and mark[0] > moment for mark in prints.values())


def _prints(paths: Iterable[Path]) -> dict[Path, Print]:
    return {path: file_print(path) for path in paths}


def file_print(path: Path) -> Print:
    """By what it is seen that a file or folder changed."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            return frozenset(_below(path))
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _below(folder: str | Path) -> Iterator[str]:
    """The names of all files below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
            else:
                yield entry.path


def watch_keyring(config: Config) -> Watched[Keyring]:
    """The keys, trust, token and secret that the settings name."""
    return Watched(lambda: (load_keyring(config), keyring_files(config)))


def watch_tls(config: Config) -> Watched[tuple[TlsIdentity | None, ...]]:
    """The TLS identities of the doors."""
    return Watched(lambda: (load_tls(config), tls_files(config)))


def watch_pmodes(path: Path, load: Callable[[Path], T]) -> Watched[T]:
    """What `load` makes of a folder of P-Modes, with the certificates and keys that they name."""
    return Watched(_PModeFiles(path, load))


_NAMES_FILES: Final = frozenset(
    {"certificate", "key", "pins", "trust_anchors", "anchor_certificates"}
)
"""The parameters of a P-Mode that name files."""


class _PModeFiles(Generic[T]):
    """Loads P-Modes and tells their files; a file that stayed the same is not parsed for that."""

    def __init__(self, path: Path, load: Callable[[Path], T]) -> None:
        self._path = path
        self._value = load
        self._named: dict[Path, tuple[bytes, frozenset[Path]]] = {}

    def __call__(self) -> tuple[T, set[Path]]:
        try:
            value = self._value(self._path)
        except Exception as error:
            raise Unloadable(str(error), self._files()) from error
        return value, self._files()

    def _files(self) -> set[Path]:
        files = {self._path}
        named: dict[Path, tuple[bytes, frozenset[Path]]] = {}
        for file in pmode_files(self._path):
            try:
                data = file.read_bytes()
            except OSError:
                data = b""
            known = self._named.get(file)
            if known is None or known[0] != data:
                known = (data, frozenset(_named(file, data)))
            named[file] = known
            files |= {file, *known[1]}
        self._named = named
        return files


def _named(file: Path, data: bytes) -> Iterator[Path]:
    for pmode in load_pmodes(data, str(file)).pmodes:
        for name in _file_names(pmode):
            yield file.parent / name


def _file_names(group: Group) -> Iterator[str]:
    for field, value in group:
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if isinstance(item, Group):
                yield from _file_names(item)
            elif field in _NAMES_FILES and isinstance(item, str):
                yield item
