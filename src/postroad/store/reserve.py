"""Room on the disk that is set aside, and given up when the disk is full.

While the reserve is not whole, only steps that make room are taken (`Store.run_with_reserve`), so
that nothing else of this node uses it. After each of them what is left of it is set aside again,
so that other programs do not get it either.
"""

import os
from pathlib import Path
from typing import Final

from postroad.store.private import FILE_MODE
from postroad.wire.limits import MIB

RESERVE: Final = "reserve"
MARGIN: Final = MIB
"""What stays free when the reserve is set aside on a full disk, for small files beside it."""


class Reserve:
    """A file of a fixed size beside the database; with size 0 there is none.

    All processes of a node see by the file whether the reserve is whole.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._path = folder / RESERVE
        self.size = size

    @property
    def is_whole(self) -> bool:
        return self.held() >= self.size

    def open(self) -> None:
        """At the start: set it aside, or give it up where there is hardly any room.

        A reserve that is larger than wanted, from other settings, is cut.
        """
        if self.held() > self.size:
            os.truncate(self._path, self.size)
        if self.size and self.free() < MARGIN:
            self.release()
        else:
            self.restore()

    def release(self) -> None:
        """Give the room back to the disk."""
        self._path.unlink(missing_ok=True)

    def restore(self) -> bool:
        """Set all of it aside if as much again stays free; whether it is whole."""
        if not self.is_whole and self.held() + self.free() >= 2 * self.size:
            self._hold(self.size)
        return self.is_whole

    def keep_rest(self) -> None:
        """Set aside what is left of it."""
        if not self.is_whole:
            self._hold(min(self.size, self.held() + self.free() - MARGIN))

    def free(self) -> int:
        """Bytes that are free on the disk, beside the reserve."""
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize

    def held(self) -> int:
        """Bytes that are set aside now."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _hold(self, size: int) -> None:
        if size <= self.held():
            return
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.posix_fallocate(file, 0, size)
            finally:
                os.close(file)
        except OSError:
            # Somebody else was faster: another step tries again.
            return
