"""The files that this process has open."""

import contextlib
from pathlib import Path

import pytest


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open, those without a name too."""
    opened = Path("/proc/self/fd")
    if not opened.is_dir():
        pytest.skip("open files cannot be counted here")
    count = 0
    for one in opened.iterdir():
        # Others in this process open and close theirs meanwhile.
        with contextlib.suppress(OSError):
            count += str(one.readlink()).startswith(f"{folder}/")
    return count
