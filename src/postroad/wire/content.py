"""Content of any size: where payload bytes are read from and written to, in pieces.

`Content` can be read again and again; a `Sink` takes bytes and gives a `Content` when finished.
The memory kind lives here. The kind that spills to disk is `postroad.store.spool`.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

CHUNK: Final = 256 * 1024


class Content(Protocol):
    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterator[bytes]:
        """The bytes from the beginning, in pieces of bounded size."""
        ...


class Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> None: ...

    def finish(self) -> Content:
        """No more bytes come; what was written can be read from now on."""
        ...

    def discard(self) -> None:
        """Forget what was written."""
        ...


NewSink = Callable[[], Sink]


class BytesContent:
    """Content held in memory."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        yield self.data

    def __repr__(self) -> str:
        return f"BytesContent({len(self.data)} bytes)"


class BytesSink:
    """A sink that keeps everything in memory: for small content whose size is bounded elsewhere."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def write(self, data: bytes | memoryview, /) -> None:
        self._buffer += data

    def finish(self) -> Content:
        return BytesContent(bytes(self._buffer))

    def discard(self) -> None:
        self._buffer.clear()


def read_all(content: Content, limit: int) -> bytes:
    """The whole content as bytes; ValueError when it is larger than `limit`."""
    if isinstance(content, BytesContent):
        if content.size > limit:
            raise ValueError(f"{content.size} bytes, but at most {limit} fit in memory here")
        return content.data
    buffer = bytearray()
    for chunk in content.chunks():
        if len(buffer) + len(chunk) > limit:
            raise ValueError(f"more than {limit} bytes, which is all that fits in memory here")
        buffer += chunk
    return bytes(buffer)
