"""What SMTP does to the content of a mail: dots at the beginning of lines, and one at its end."""

from collections.abc import Iterable, Iterator
from typing import Final

LAST: Final = b".\r\n"
END: Final = b"\r\n" + LAST


class DataReader:
    """The content of DATA as it comes, up to a line that is a dot alone (RFC 5321, 4.5.2).

    Only CR LF ends a line here. Whoever took a lone LF for one would see another end than the
    servers on the way did, and a second mail behind it.
    """

    def __init__(self, *, line_bytes: int) -> None:
        self.ended = False
        self.rest = b""
        """What came after the end."""
        self.long_line = False
        """Whether a line was longer than it may be."""
        self._line_bytes = line_bytes
        self._unfinished = 0
        # The content begins a line, so that a dot may stand there too.
        self._held = b"\r\n"
        self._made_up = 2

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; the content that they add."""
        buffer = self._held + data
        found = buffer.find(END)
        if found >= 0:
            self.ended = True
            self.rest = buffer[found + len(END) :]
            content, self._held = buffer[: found + 2], b""
        else:
            kept = next((n for n in range(len(END) - 1, 0, -1) if buffer.endswith(END[:n])), 0)
            content, self._held = buffer[: len(buffer) - kept], buffer[len(buffer) - kept :]
        content = content.replace(b"\r\n.", b"\r\n")
        if self._made_up and content:
            content, self._made_up = content[self._made_up :], 0
        self._measure(content)
        return content

    def _measure(self, content: bytes) -> None:
        lengths = [*map(len, content.split(b"\n"))]
        lengths[0] += self._unfinished
        self._unfinished = lengths[-1]
        self.long_line |= max(lengths) > self._line_bytes


def stuffed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Content as DATA takes it: a second dot where a line begins with one, a last line end.

    What is left to write is `LAST`.
    """
    before = b"\r\n"
    for piece in pieces:
        known = before + piece
        yield known.replace(b"\r\n.", b"\r\n..")[2:]
        before = known[-2:]
    if before != b"\r\n":
        yield b"\r\n"
