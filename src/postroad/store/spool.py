"""Content that spills to a temporary file once it is too large for memory."""

import tempfile
from collections.abc import Iterator

from postroad.wire.content import CHUNK, Content
from postroad.wire.limits import DEFAULT


class SpooledContent:
    """Bytes in memory or in an unnamed temporary file, gone when nobody holds them any more."""

    __slots__ = ("_file", "_size")

    def __init__(self, file: "tempfile.SpooledTemporaryFile[bytes]", size: int) -> None:
        self._file = file
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def chunks(self) -> Iterator[bytes]:
        return self.span(0, self._size)

    def span(self, begin: int, size: int, /) -> Iterator[bytes]:
        position, end = begin, begin + size
        while position < end:
            self._file.seek(position)
            chunk = self._file.read(min(CHUNK, end - position))
            if not chunk:
                raise OSError(f"spool file ended after {position} of {self._size} bytes")
            position += len(chunk)
            yield chunk


class SpoolSink:
    """A sink in memory up to `memory_bytes`, then in an unnamed temporary file in `folder`."""

    __slots__ = ("_file", "_size")

    def __init__(
        self,
        memory_bytes: int = DEFAULT.memory_bytes,
        folder: str | None = None,
    ) -> None:
        self._file: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            max_size=memory_bytes, dir=folder
        )
        self._size = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self._file.write(data)
        self._size += len(data)

    def finish(self) -> Content:
        self._file.flush()
        return SpooledContent(self._file, self._size)

    def discard(self) -> None:
        self._file.close()
