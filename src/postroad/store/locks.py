"""Locks between processes, as files beside the database."""

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path

from postroad.store.private import FILE_MODE


class FileLock:
    """A lock that ends with the process that holds it, however it ends."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def try_take(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self) -> None:
        """Wait for it, as long as it takes."""
        if self._fd < 0:
            raise OSError(errno.EBADF, "the lock was closed", str(self.path))
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def give_back(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Also gives it back, and to who still waits for it, it does not come."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class TurnLock:
    """A lock that processes get in turn.

    Who waits for the lock stands in the door meanwhile, and who just gave it back must pass the
    door again: so nobody can take it twice while another waits. SQLite's own lock is polled with
    growing pauses, which a busy neighbour always wins.
    """

    __slots__ = ("_door", "_room")

    def __init__(self, folder: Path) -> None:
        self._door = FileLock(folder / "next.lock")
        self._room = FileLock(folder / "write.lock")

    def try_take(self) -> bool:
        if not self._door.try_take():
            return False
        taken = self._room.try_take()
        self._door.give_back()
        return taken

    def take(self) -> None:
        self._door.take()
        try:
            self._room.take()
        finally:
            self._door.give_back()

    def give_back(self) -> None:
        self._room.give_back()

    def close(self) -> None:
        self._door.close()
        self._room.close()


def take_in_time(lock: FileLock | TurnLock, seconds: float) -> bool:
    """Wait for a lock, but not longer than this; whether we have it."""
    if lock.try_take():
        return True
    deciding = threading.Lock()
    taken = threading.Event()
    given_up = False

    def wait() -> None:
        # The lock may be closed by the time it comes to one who has given up.
        with contextlib.suppress(OSError):
            lock.take()
            with deciding:
                if given_up:
                    lock.give_back()
                else:
                    taken.set()

    threading.Thread(target=wait, name="postroad-lock", daemon=True).start()
    taken.wait(seconds)
    with deciding:
        given_up = not taken.is_set()
    return not given_up
