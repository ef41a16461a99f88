"""Fetched revocation lists and OCSP answers, kept in files so that a restart need not fetch them.

What is read here is checked again by who asked for it, like what comes from the network. Nothing
depends on these files: one that cannot be read or written is as good as none.
"""

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

from postroad.store.private import create_private_file, create_private_folder

_log = logging.getLogger("postroad.store")
_PARTIAL: Final = ".part"


class RevocationFiles:
    """A folder with at most so many files and bytes, one file a key; the oldest go first."""

    def __init__(self, folder: Path, most: int, most_bytes: int) -> None:
        self._folder = folder
        self._most = most
        self._most_bytes = most_bytes

    def read(self, key: str, most: int) -> bytes | None:
        """What was stored under a key; None where there is nothing, or more than `most` bytes."""
        path = self._path(key)
        try:
            if path.stat().st_size > most:
                return None
            return path.read_bytes()
        except OSError:
            return None

    def write(self, key: str, data: bytes) -> None:
        """Store under a key, all or nothing."""
        path = self._path(key)
        partial = path.with_suffix(f".{os.getpid()}{_PARTIAL}")
        try:
            create_private_folder(self._folder)
            create_private_file(partial)
            partial.write_bytes(data)
            partial.replace(path)
            self._forget_oldest()
        except OSError as error:
            _log.warning("revocation data not stored", extra={"detail": str(error)})

    def _forget_oldest(self) -> None:
        files = [(one.stat(), one) for one in self._folder.iterdir()]
        files.sort(key=lambda one: one[0].st_mtime_ns, reverse=True)
        size = 0
        for number, (status, path) in enumerate(files, 1):
            size += status.st_size
            if number > self._most or size > self._most_bytes:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()
