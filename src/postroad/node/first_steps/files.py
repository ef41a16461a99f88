"""Files of a node's folder: written once, and private from the first byte on where they must be."""

import os
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
KEYS: Final = "keys"
"""The folder of keys: made so that only its owner can enter."""


def write_file(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """Write a file that does not exist yet; FileExistsError if it does."""
    private = path.parent.name == KEYS
    path.parent.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """Write a file, or replace the one that is there: readers see the old or the new one whole."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    write_file(scratch, content, mode)
    scratch.replace(path)
