"""Folders for segments: on a disk, or behind any URL that fsspec knows."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem

_WHOLE: Final = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "obs", "memory"}
)
"""Stores of objects: an object is there when all of it is there, and a rename would copy it."""
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, and the file system it lies in."""

    fs: Any
    root: str

    @staticmethod
    def of(url: str | Path) -> "Place":
        """The folder behind a path or a URL; it need not be there yet."""
        fs, root = fsspec.core.url_to_fs(os.fspath(url))
        return Place(fs, str(root).rstrip("/") or "/")

    @property
    def local(self) -> bool:
        return isinstance(self.fs, LocalFileSystem)

    @property
    def renames(self) -> bool:
        """Whether files are written under another name first; objects are put whole."""
        protocol = self.fs.protocol
        return _WHOLE.isdisjoint([protocol] if isinstance(protocol, str) else protocol)

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def exists(self, name: str) -> bool:
        # Another process writes there too: what fsspec remembers of it may be old.
        self.fs.invalidate_cache()
        return bool(self.fs.exists(self.path(name)))

    def size(self, name: str) -> int:
        return int(self.fs.size(self.path(name)))

    def names(self, ending: str = ".parquet", *, hidden: bool = False) -> list[str]:
        """The files below it with that ending, sorted; `hidden`: those that begin with a dot."""
        self.fs.invalidate_cache()
        if not self.fs.exists(self.root):
            return []
        prefix = f"{self.root.rstrip('/')}/"
        names = (str(path).removeprefix(prefix) for path in self.fs.find(self.root))
        return sorted(
            name
            for name in names
            if name.endswith(ending)
            and hidden == any(part.startswith(".") for part in name.split("/"))
            and (hidden or not name.rsplit("/", 1)[-1].startswith("_"))
        )

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        with self.fs.open(self.path(name), "rb") as file:
            yield file

    def digest(self, name: str) -> str:
        """SHA-256 of a file, in hex."""
        with self.reading(name) as file:
            found = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                found.update(chunk)
            return found.hexdigest()

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.fs.rm_file(self.path(name))

    @contextmanager
    def writing(self, name: str) -> Iterator["Written"]:
        """A file that appears under its name whole and durable, or, after an error, not at all."""
        if self.local:
            with self._renamed(name) as written:
                yield written
            return
        with tempfile.NamedTemporaryFile(prefix="postroad-segment-") as file:
            written = Written(file)
            yield written
            file.flush()
            folder, _, last = self.path(name).rpartition("/")
            if self.renames:
                self.fs.makedirs(folder, exist_ok=True)
                self.fs.put_file(file.name, f"{folder}/.{last}")
                self.fs.mv(f"{folder}/.{last}", f"{folder}/{last}")
            else:
                self.fs.put_file(file.name, f"{folder}/{last}")

    @contextmanager
    def _renamed(self, name: str) -> Iterator["Written"]:
        path = Path(self.path(name))
        made = _make_folder(path.parent)
        dotted = path.with_name(f".{path.name}")
        try:
            with dotted.open("wb") as file:
                written = Written(file)
                yield written
                file.flush()
                os.fsync(file.fileno())
            dotted.rename(path)
        except BaseException:
            with suppress(OSError):
                dotted.unlink()
            raise
        for folder in (path.parent, *made):
            sync_folder(folder)


class Written:
    """A file that is written from its beginning to its end, digested on the way."""

    __slots__ = ("_digest", "_file", "closed", "size")

    def __init__(self, file: Any) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def write(self, chunk: Any) -> int:
        view = memoryview(chunk)
        self._file.write(view)
        self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """The file itself is closed by who opened it."""
        self.closed = True


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder with all above it; the folders that have a new one in them."""
    missing = []
    above = folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    folder.mkdir(parents=True, exist_ok=True)
    return [made.parent for made in missing]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
