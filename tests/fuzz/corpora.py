"""The corpora that are kept in tests/fuzz/corpus: one archive of inputs for each target.

They grew from seeds of this project alone, and are the smallest set that covers what all inputs
found so far cover.
"""

import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = PROJECT / "build" / "fuzz"
KEPT: Final = Path(__file__).with_name("corpus")


def last_input_file(build: Path, name: str) -> Path:
    """Return the file that holds the input that a target is running: four bytes of size first."""
    return build / f"{name}.last"


def read(name: str) -> dict[str, bytes]:
    """Return the kept inputs of a target, by name."""
    path = KEPT / f"{name}.tar.xz"
    if not path.exists():
        return {}
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found[member.name] = file.read()
    return found


def write(names: Iterable[str]) -> None:
    """Keep a minimal corpus of each target: one input for each edge of the code, at most."""
    KEPT.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            options = ["-merge=1", "-use_counters=0", folder]
            subprocess.run(
                [sys.executable, "-m", "tests.fuzz.process", name, *options],
                cwd=PROJECT,
                check=True,
            )
            inputs = sorted(path.read_bytes() for path in Path(folder).iterdir())
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as archive:
            for data in inputs:
                info = tarfile.TarInfo(hashlib.sha256(data).hexdigest()[:16])
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        packed = lzma.compress(tar.getvalue(), preset=9 | lzma.PRESET_EXTREME)
        (KEPT / f"{name}.tar.xz").write_bytes(packed)
        print(f"{name}: {len(inputs)} inputs, {len(packed):,} bytes")
