"""Content of any size: where payload bytes are read from and written to, in pieces.

`Content` can be read again and again; a `Sink` takes bytes and gives a `Content` when finished.
The memory kind lives here. The kind that spills to disk is `postroad.store.spool`.

A message that is split or joined is read from places in its middle. Content that can do so has a
`span`; `Slice` and `Joined` are views on other content, and copy nothing.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Protocol, runtime_checkable

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


@runtime_checkable
class Spanned(Protocol):
    """Content that can be read from any place without reading what stands before it."""

    def span(self, begin: int, size: int, /) -> Iterator[bytes]: ...


NewSink = Callable[[], Sink]


class BytesContent:
    """Content held in memory."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def chunks(self) -> Iterator[bytes]:
        yield self.data

    def span(self, begin: int, size: int, /) -> Iterator[bytes]:
        yield self.data[begin : begin + size]

    def __repr__(self) -> str:
        return f"BytesContent({self.size} bytes)"


class NoSink:
    """A sink for what nobody is going to read."""

    def write(self, _: bytes | memoryview, /) -> None:
        pass

    def finish(self) -> Content:
        return BytesContent(b"")

    def discard(self) -> None:
        pass


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


def span(content: Content, begin: int, size: int) -> Iterator[bytes]:
    """So many bytes from a place on; ValueError when it ends before."""
    if isinstance(content, Spanned):
        return content.span(begin, size)
    return _passed_over(content, begin, size)


def _passed_over(content: Content, begin: int, size: int) -> Iterator[bytes]:
    """For content that can only be read from its beginning."""
    end, at = begin + size, 0
    if not size:
        return
    for chunk in content.chunks():
        after = at + len(chunk)
        if after > begin:
            yield chunk[max(begin - at, 0) : end - at]
        at = after
        if at >= end:
            return
    raise ValueError(f"the content ends after {at} bytes, before {end}")


class Slice:
    """A stretch of other content."""

    __slots__ = ("begin", "content", "size")

    def __init__(self, content: Content, begin: int, size: int) -> None:
        if begin < 0 or size < 0 or begin + size > content.size:
            raise ValueError(f"bytes {begin} to {begin + size} of {content.size} are not there")
        self.content = content
        self.begin = begin
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        return span(self.content, self.begin, self.size)

    def span(self, begin: int, size: int, /) -> Iterator[bytes]:
        return span(self.content, self.begin + begin, size)


class Joined:
    """Contents one after the other, as one."""

    __slots__ = ("_ends", "contents", "size")

    def __init__(self, contents: Sequence[Content]) -> None:
        self.contents = tuple(contents)
        self._ends = tuple(accumulate(content.size for content in self.contents))
        self.size = self._ends[-1] if self._ends else 0

    def chunks(self) -> Iterator[bytes]:
        for content in self.contents:
            yield from content.chunks()

    def span(self, begin: int, size: int, /) -> Iterator[bytes]:
        place = bisect_right(self._ends, begin)
        while size > 0:
            content = self.contents[place]
            within = begin - (self._ends[place] - content.size)
            part = min(size, content.size - within)
            if part:
                yield from span(content, within, part)
            begin, size, place = begin + part, size - part, place + 1


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
