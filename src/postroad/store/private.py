"""Access rights of the data folder: its owner reads it, and nobody else.

The folder holds payloads in plain text and the content keys of encrypted messages.
"""

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import Final

from postroad.store.interface import StoreError

logger = logging.getLogger("postroad.store")

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can enter, or take the rights of others away.

    An existing folder that others can enter is corrected with all that is in it. Raise
    StoreError where the system does not allow that, and OSError where the folder cannot be created.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if not _is_open_to_others(folder):
        return
    try:
        _close_to_others(folder)
    except PermissionError:
        raise _not_private(folder) from None
    if _is_open_to_others(folder):
        # Some file systems have no access rights, and say nothing when they are changed.
        raise _not_private(folder)
    logger.warning(
        "Other users could enter %s. Its access rights are now those of its owner alone.", folder
    )


def create_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can enter, and those above it, unless they exist."""
    # pathlib gives the mode to the last folder only.
    try:
        folder.mkdir(FOLDER_MODE, exist_ok=True)
    except FileNotFoundError:
        create_private_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def _close_to_others(folder: Path) -> None:
    """The folder first: nobody gets in any more while its files are corrected."""
    folder.chmod(FOLDER_MODE)
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            # A temporary file may be gone by now.
            with contextlib.suppress(FileNotFoundError):
                if not path.is_symlink():
                    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)


def _is_open_to_others(folder: Path) -> bool:
    return bool(folder.stat().st_mode & _OTHERS)


def _not_private(folder: Path) -> StoreError:
    return StoreError(
        f"Other users can enter the data folder {folder}, and this user cannot change that. Run"
        f" as its owner: chmod 700 {folder}. Or set `data` to a folder that does not exist yet,"
        " for example one below it."
    )
