"""Contents on the disk: small ones share segment files, a large one has a file of its own.

Whatever a process has under its hands lies in its own folder below `incoming`: segments that it
still writes to, and files whose commit is not through. Everything elsewhere is finished and named
by a row. So what a killed process leaves behind is found by looking into its folder alone,
however much there is in the store.
"""

import contextlib
import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from postroad.store import gathered
from postroad.store.failures import lost, told
from postroad.store.interface import StoreDamaged
from postroad.store.private import FILE_MODE, create_private_folder
from postroad.store.records import Stored
from postroad.wire.content import CHUNK, BytesContent, Content
from postroad.wire.limits import DEFAULT, MIB

SMALL: Final = DEFAULT.memory_bytes
"""Content up to this size goes to a segment; what is larger has a file of its own."""
SEGMENT_BYTES: Final = 64 * MIB
"""A segment of this size gets no more contents."""
NOTHING: Final = Stored("s", 0, 0)
"""Where empty content lies."""

_SOON: Final = 4 * MIB
"""After so many bytes the disk begins with what was written: who makes it durable waits less."""
_BEGIN_WRITING: Final = 2
"""SYNC_FILE_RANGE_WRITE of sync_file_range(2)."""

_TOKEN: Final = slice(1, 13)
"""Where the name of a place tells which process wrote it."""
_OPENED: Final = 128


class OpenedFile:
    """A file that is closed when nobody holds it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class PlacedContent:
    """A stretch of a file."""

    __slots__ = ("_file", "_offset", "_place", "size")

    def __init__(self, file: OpenedFile, place: str, offset: int, size: int) -> None:
        self._file = file
        self._place = place
        self._offset = offset
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        return self.span(0, self.size)

    def span(self, begin: int, size: int, /) -> Iterator[bytes]:
        position, end = begin, begin + size
        while position < end:
            try:
                piece = os.pread(self._file.fd, min(CHUNK, end - position), self._offset + position)
            except OSError as error:
                raise lost(self._place, f"cannot be read ({error.strerror})") from error
            if not piece:
                raise lost(self._place, f"ends after {position} of {self.size} bytes")
            position += len(piece)
            yield piece


class SpilledContent(PlacedContent):
    """Content in a temporary file, which vanishes with it unless it is kept."""

    __slots__ = ("_begun", "path", "persisted")

    def __init__(self, file: OpenedFile, path: Path, size: int) -> None:
        super().__init__(file, path.name, 0, size)
        self.path = path
        self.persisted = False
        self._begun = size
        """So much of it the disk was told to write."""

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        try:
            write_all(self._file.fd, data, self.size)
        except OSError as error:
            raise told(error, self.path) from error
        self.size += len(data)
        self.persisted = False
        if self.size - self._begun >= _SOON:
            begin_writing(self._file.fd, self._begun, self.size - self._begun)
            self._begun = self.size

    def persist(self) -> None:
        if not self.persisted:
            os.fsync(self._file.fd)
            self.persisted = True

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()


class StoreSink:
    """A sink in memory up to `SMALL` bytes, then in a temporary file."""

    __slots__ = ("_buffer", "_contents", "_spilled")

    def __init__(self, contents: "Contents") -> None:
        self._contents = contents
        self._buffer = bytearray()
        self._spilled: SpilledContent | None = None

    def write(self, data: bytes | memoryview, /) -> None:
        spilled = self._spilled
        if spilled is None:
            if len(self._buffer) + len(data) <= SMALL:
                self._buffer += data
                return
            spilled = self._spilled = self._contents.new_file()
            spilled.write(self._buffer)
            self._buffer = bytearray()
        spilled.write(data)

    def finish(self) -> Content:
        if self._spilled is None:
            return BytesContent(bytes(self._buffer))
        return self._spilled

    def discard(self) -> None:
        self._buffer = bytearray()
        self._spilled = None


class Segment:
    """The file to which this process appends small contents."""

    __slots__ = ("end", "file", "path", "place")

    def __init__(self, path: Path) -> None:
        self.place = path.name
        self.path = path
        self.end = 0
        """Where the last commit that went through left it."""
        self.file: OpenedFile | None = None

    def append(self, data: bytes) -> bool:
        """Write behind what is there, durably; True when the file was made for it."""
        made = self.file is None
        if self.file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.file = OpenedFile(os.open(self.path, flags, FILE_MODE))
        write_all(self.file.fd, data, self.end)
        os.fdatasync(self.file.fd)
        return made

    def cut(self) -> None:
        """Forget what was written after the last commit; the file goes if that is everything."""
        with contextlib.suppress(OSError):
            if self.end == 0:
                self.path.unlink()
            elif self.file is not None:
                os.ftruncate(self.file.fd, self.end)
        self.file = None


class Batch:
    """The contents that one commit makes durable."""

    __slots__ = ("_contents", "_files", "_linked", "_pieces", "_size", "segment")

    def __init__(self, contents: "Contents") -> None:
        self._contents = contents
        self._pieces: list[bytes] = []
        self._size = 0
        self._files: list[tuple[SpilledContent | bytes, str]] = []
        self._linked: list[str] = []
        self.segment: Segment | None = None

    @property
    def size(self) -> int:
        """Bytes that wait in memory."""
        return self._size

    @property
    def segment_end(self) -> int:
        return self._size + (self.segment.end if self.segment else 0)

    def keep(self, content: bytes | Content) -> Stored:
        """Where the content will be once the commit is through."""
        if isinstance(content, SpilledContent):
            return self._keep_file(content, content.size)
        if isinstance(content, bytes):
            data = content
        elif isinstance(content, BytesContent):
            data = content.data
        elif content.size <= SMALL:
            data = b"".join(content.chunks())
        else:
            spilled = self._contents.spill(content)
            return self._keep_file(spilled, spilled.size)
        size = len(data)
        if not size:
            return NOTHING
        if size > SMALL:
            return self._keep_file(data, size)
        if self.segment is None:
            self.segment = self._contents.current_segment()
        stored = Stored(self.segment.place, self.segment.end + self._size, size)
        self._pieces.append(data)
        self._size += size
        return stored

    def join(self, pieces: Sequence[Stored]) -> tuple[Stored, int]:
        """Several contents as one, which takes them over; the size of the file that says so."""
        place = self._contents.new_place(gathered.KIND)
        said = gathered.written(pieces)
        self._files.append((said, place))
        return Stored(place, 0, sum(piece.size for piece in pieces)), len(said)

    def pieces(self, place: str) -> tuple[Stored, ...]:
        """What a content is joined from; nothing where it is not, or nobody can tell any more."""
        if not place.startswith(gathered.KIND):
            return ()
        for content, pending in self._files:
            if pending == place and isinstance(content, bytes):
                return gathered.read(place, content)
        with contextlib.suppress(StoreDamaged):
            return self._contents.pieces(place)
        return ()

    def _keep_file(self, content: SpilledContent | bytes, size: int) -> Stored:
        place = self._contents.new_place("f")
        self._files.append((content, place))
        return Stored(place, 0, size)

    def held(self, stored: Stored) -> Content | None:
        """What an earlier step of the same commit kept, while it is in no file yet."""
        for content, place in self._files:
            if place == stored.place and not place.startswith(gathered.KIND):
                return BytesContent(content) if isinstance(content, bytes) else content
        if self.segment is None or stored.place != self.segment.place:
            return None
        at = self.segment.end
        for piece in self._pieces if stored.offset >= at else ():
            if at == stored.offset:
                return BytesContent(piece)
            at += len(piece)
        return None

    def mark(self) -> tuple[int, int, int]:
        return len(self._pieces), self._size, len(self._files)

    def back_to(self, mark: tuple[int, int, int]) -> None:
        pieces, self._size, files = mark
        del self._pieces[pieces:]
        del self._files[files:]

    def write(self) -> None:
        """Make it durable, under names that a restart forgets unless the commit goes through."""
        named = False
        if self._pieces and self.segment is not None:
            named = self.segment.append(b"".join(self._pieces))
        for content, place in self._files:
            self._linked.append(place)
            self._contents.place_file(content, place)
            named = True
        if named:
            sync_folder(self._contents.own)

    def settle(self) -> None:
        """The commit is through."""
        self._contents.begun = None
        if self.segment is not None:
            self.segment.end += self._size
        for place in self._linked:
            self._contents.finish(place)

    def undo(self) -> None:
        """The commit failed."""
        self._contents.begun = None
        for place in self._linked:
            self._contents.forget(place)
        if self.segment is not None:
            self._contents.abandon(self.segment)


class Contents:
    """The contents of a store, as one process reads and writes them."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.own = folder / "incoming" / token
        self.finished: list[Segment] = []
        """Segments to which nothing more is written, and which no commit has closed yet."""
        self._segment: Segment | None = None
        self.begun: Batch | None = None
        """What the commit that is being put together keeps."""
        self._numbers = itertools.count(1)
        self._opened: dict[str, OpenedFile] = {}
        self._opening = threading.Lock()

    def new_place(self, kind: str) -> str:
        return f"{kind}{self.token}-{next(self._numbers)}"

    def new_file(self) -> SpilledContent:
        """An empty temporary file."""
        path = self.own / self.new_place("t")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise told(error, path) from error
        return SpilledContent(OpenedFile(fd), path, 0)

    def batch(self) -> Batch:
        """For the contents of the next commit."""
        self.begun = Batch(self)
        return self.begun

    def new_sink(self) -> StoreSink:
        return StoreSink(self)

    def spill(self, content: Content) -> SpilledContent:
        """A copy in a temporary file, made in pieces."""
        spilled = self.new_file()
        for chunk in content.chunks():
            spilled.write(chunk)
        return spilled

    def persist(self, content: Content) -> Content:
        """Large content as a file that is on the disk."""
        if content.size <= SMALL:
            return content
        spilled = content if isinstance(content, SpilledContent) else self.spill(content)
        try:
            spilled.persist()
        except OSError as error:
            raise told(error, spilled.path) from error
        return spilled

    def content(self, stored: Stored) -> Content:
        if stored.size == 0:
            return BytesContent(b"")
        if stored.place.startswith(gathered.KIND):
            return self._gathered(stored)
        held = self.begun.held(stored) if self.begun is not None else None
        if held is not None:
            return held
        file = self._opened.get(stored.place) or self._open(stored.place)
        there = os.fstat(file.fd).st_size
        if there < stored.offset + stored.size:
            missing = stored.offset + stored.size - there
            raise lost(stored.place, f"is not whole, {missing} bytes are missing")
        return PlacedContent(file, stored.place, stored.offset, stored.size)

    def pieces(self, place: str) -> tuple[Stored, ...]:
        """What a content is joined from."""
        file = self._opened.get(place) or self._open(place)
        size = os.fstat(file.fd).st_size
        return gathered.read(place, b"".join(PlacedContent(file, place, 0, size).chunks()))

    def _gathered(self, stored: Stored) -> Content:
        pieces = self.pieces(stored.place)
        for piece in pieces:
            self.content(piece)
        return gathered.gathered(stored, pieces, self.content)

    def finished_path(self, place: str) -> Path:
        """Where the file lies once its commit is through."""
        if place.startswith("s"):
            return self.folder / "segments" / place
        number = int(place.rpartition("-")[2])
        return self.folder / "payloads" / f"{number & 0xFF:02x}" / place

    def unfinished_path(self, place: str) -> Path:
        return self.folder / "incoming" / place[_TOKEN] / place

    def _open(self, place: str) -> OpenedFile:
        for path in self._paths(place):
            try:
                file = OpenedFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise lost(place, f"cannot be opened ({error.strerror})") from error
            with self._opening:
                while len(self._opened) >= _OPENED:
                    del self._opened[next(iter(self._opened))]
                self._opened[place] = file
            return file
        raise lost(place, "is not there")

    def _paths(self, place: str) -> tuple[Path, ...]:
        """Where it may be; another process may finish it just when we look."""
        try:
            finished = self.finished_path(place)
        except ValueError:
            raise StoreDamaged(
                f"{place!r} names no content of this store: restore a backup of the database."
            ) from None
        return finished, self.unfinished_path(place), finished

    def current_segment(self) -> Segment:
        segment = self._segment
        if segment is not None and segment.end >= SEGMENT_BYTES:
            self.close_segment()
            segment = None
        if segment is None:
            segment = self._segment = Segment(self.own / self.new_place("s"))
        return segment

    def close_segment(self) -> None:
        """Nothing more is written to the current segment; the next commit tells the database."""
        if self._segment is not None:
            self._segment.file = None
            if self._segment.end:
                self.finished.append(self._segment)
        self._segment = None

    def abandon(self, segment: Segment) -> None:
        """Go on with a new segment.

        After a failed write or flush nobody knows what the rest of this file holds.
        """
        segment.cut()
        if segment is self._segment:
            self.close_segment()

    def place_file(self, content: SpilledContent | bytes, place: str) -> None:
        path = self.own / place
        if isinstance(content, bytes):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            try:
                write_all(fd, content, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        else:
            content.persist()
            path.hardlink_to(content.path)

    def finish(self, place: str) -> None:
        """Put a file where finished ones are.

        If that fails it is found where it is, and the next start tries again.
        """
        finished = self.finished_path(place)
        with contextlib.suppress(OSError):
            create_private_folder(finished.parent)
            self.unfinished_path(place).rename(finished)

    def forget(self, place: str) -> None:
        with contextlib.suppress(OSError):
            (self.own / place).unlink()

    def remove(self, place: str) -> bool:
        """Whether the file is gone."""
        with self._opening:
            self._opened.pop(place, None)
        try:
            for path in self._paths(place):
                path.unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def close(self) -> None:
        with self._opening:
            self._opened.clear()
        self.close_segment()
        self.finished.clear()


def write_all(fd: int, data: "bytes | bytearray | memoryview", offset: int) -> None:
    """Write at a place of the file; what an earlier failure left there is overwritten."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written


def begin_writing(fd: int, offset: int, size: int) -> None:
    """Let the disk write a stretch of a file now, and wait for nothing; not everywhere it can."""
    if _sync_file_range is not None:
        _sync_file_range(fd, offset, size, _BEGIN_WRITING)


def _found_sync_file_range() -> "Callable[[int, int, int, int], int] | None":
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found


_sync_file_range: Final = _found_sync_file_range()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
